"""An oracle that verifies cleaning with rules implemented independently of the cleaner."""
