"""Entry point for `python -m logstore`."""

from logstore.cli.entry import main

main()
