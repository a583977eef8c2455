"""Keyed change streams in columns: specs, random draws and sealed batches."""
