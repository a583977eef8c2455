"""Keyed change streams in columns: their specs, what is drawn for them, and the sealed batches."""
