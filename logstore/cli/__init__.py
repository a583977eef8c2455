"""The command line: one file a command, a coat over `logstore.broker`."""
