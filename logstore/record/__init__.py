"""Record batches of magic 2: their bytes, their checks, and the records inside."""
