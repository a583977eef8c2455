"""Files read as they lie, without a log being opened."""
