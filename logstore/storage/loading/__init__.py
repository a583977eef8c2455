"""Open a partition: clean up after a crash, repair damage, and rebuild indexes."""
