"""Workloads on Spark: partition logs as a data source, generated streams, an independent oracle.

The one home of pyspark.
"""
