"""Spark: partition logs as a data source, generated workloads, an independent oracle.

The only package that imports pyspark.
"""
