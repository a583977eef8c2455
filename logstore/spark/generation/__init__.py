"""Workloads as Spark makes them: the files of a topic, and its rows as Parquet."""
