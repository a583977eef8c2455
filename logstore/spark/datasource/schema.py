"""Schemas of records in Spark."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

KAFKA_SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField(
            "headers",
            ArrayType(
                StructType([StructField("key", StringType()), StructField("value", BinaryType())])
            ),
        ),
    ]
)
"""Columns of Spark's Kafka source, including headers."""

MORE_COLUMNS = StructType(
    [
        StructField("aborted", BooleanType()),
        StructField("deleteHorizonMs", LongType()),
        StructField("valueDigest", LongType()),
        StructField("headersDigest", LongType()),
    ]
)
"""Additional columns that must be requested."""
