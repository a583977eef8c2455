"""Spark integration: a data source for partition logs, a workload generator and an oracle.

No other package imports pyspark.
"""
