"""The program, as `python -m logstore`."""

from logstore.cli.entry import main

main()
