"""Inspection of files as they are on disk, without opening a log."""
