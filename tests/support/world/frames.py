"""Spark frames of a few rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame_of(spark: SparkSession, rows: Iterable[Sequence[object]], schema: str) -> DataFrame:
    """Return a frame whose rows are in the JVM.

    A frame of Python objects reads them from Python again in each job of each query. Not for times,
    which would need a time zone here.
    """
    kinds = schema_of(schema)
    cells = [
        {field.name: _plain(value, field.dataType) for value, field in zip(row, kinds, strict=True)}
        for row in rows
    ]
    table = pa.Table.from_pylist(cells, schema=to_arrow_schema(kinds))
    return spark.createDataFrame(table, kinds)


HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))
KINDS = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "boolean": BooleanType(),
    "array<struct<key:string,value:binary>>": HEADERS,
}


def schema_of(text: str) -> StructType:
    """Return the schema of columns such as `topic string, offset bigint`, without a JVM."""
    schema = StructType()
    for column in text.split(", "):
        name, kind = column.split()
        schema = schema.add(name, KINDS[kind])
    return schema


def _plain(value: Any, kind: DataType) -> Any:
    """Return a value as Arrow takes it: structs as dictionaries."""
    if value is not None and isinstance(kind, ArrayType):
        return [_plain(each, kind.elementType) for each in value]
    if value is not None and isinstance(kind, StructType):
        return dict(zip(kind.names, value, strict=True))
    return value
