"""The commands, one per module. `logstore.cli.main` lists them and imports only the one to run."""
