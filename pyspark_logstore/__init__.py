"""Where PySpark looks for the data source `logstore`: installed packages named `pyspark_…`.

Spark imports this in a process of its own, when a session first asks for a source it does not know.
"""

from __future__ import annotations

from logstore.spark.datasource.source import LogstoreDataSource as DefaultSource

__all__ = ("DefaultSource",)
