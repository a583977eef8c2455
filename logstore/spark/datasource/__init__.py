"""The `logstore` data source: reads and writes topics, and splits them into tasks."""
