"""Data directories: their lock and checkpoints, and partitions that move from one to another."""
