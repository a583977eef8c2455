"""The command line. Each command is a module that uses `logstore.broker`."""
