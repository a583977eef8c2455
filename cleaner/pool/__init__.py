"""Cleaner threads: starting, stopping, resizing, throttling and metrics."""
