"""`logstore bench`: the short form of the harness, for a user's machine and data."""
