"""Output of commands: tables, bars, progress, messages, JSON and CSV."""
