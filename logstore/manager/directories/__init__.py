"""Data directories: their lock and checkpoints, and moving partitions between them."""
