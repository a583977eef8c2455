"""The Spark data source `logstore`: reading and writing topics, and splitting them into tasks."""
