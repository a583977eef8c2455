"""Generation of workloads on Spark: the files of a topic, and its rows as Parquet."""
