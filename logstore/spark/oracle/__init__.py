"""The oracle: verifies cleaning passes by rules implemented independently of the cleaner."""
