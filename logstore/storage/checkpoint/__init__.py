"""The small files of a data directory: checkpoints, the clean-shutdown marker, topic ids."""
