"""Fault injection: rules for requests and file operations, faulty disks and crashes."""
