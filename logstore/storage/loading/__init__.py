"""Opening one partition: clean up after a crash, repair damage, rebuild indexes."""
