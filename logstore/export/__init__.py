"""Records written to files that other programs read: Parquet, Arrow, CSV, JSON lines."""
