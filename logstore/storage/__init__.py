"""One partition on disk: segments, indexes, producer state, checkpoints, and the log over them."""
