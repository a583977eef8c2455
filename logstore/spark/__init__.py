"""Spark integration: a data source for partition logs, a workload generator and an oracle.

Only this package imports pyspark.
"""
