"""The oracle: verifies cleanings by rules implemented independently of the cleaner."""
