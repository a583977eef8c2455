"""Faults on demand: rules for requests and file operations, faulty disks, and crashes."""
