"""`logstore bench`: a short benchmark for a user's machine and data."""
