"""`logstore demo`: input, story, output and verification."""
