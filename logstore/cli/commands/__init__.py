"""The commands, one file each; `logstore.cli.main` names them and imports the one that is run."""
