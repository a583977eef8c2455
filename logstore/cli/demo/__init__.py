"""`logstore demo`: input, scenario, output and verification."""
