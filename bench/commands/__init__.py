"""`logstore bench`: a short benchmark on the user's machine and data."""
