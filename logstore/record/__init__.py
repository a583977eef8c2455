"""Record batches of magic 2: encoding, decoding and validation."""
