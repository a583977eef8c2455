"""Generate workloads on Spark: the log files of a topic, and its rows as Parquet."""
