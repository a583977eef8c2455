"""The command line. Each command has a file and uses `logstore.broker`."""
