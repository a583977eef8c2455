"""Scans for the oracle, planned by the driver and reduced in the workers.

Loading the data source would start two Python processes for planning and pass every record to the
JVM. Here the driver plans, and the workers omit committed records that a later record with the same
key supersedes within the same stretch. Two additional columns of the later record contain the
number of omitted records and their latest timestamp. This is only possible if records compete by
offset.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

from logstore.spark.datasource.source import LogstoreDataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from logstore.spark.datasource.source import LogstoreReader
    from logstore.spark.datasource.splits import Task

STRETCH_ROWS = 1 << 20
STRETCH_BYTES = 64 << 20
"""Rows, or column bytes, that a worker reduces together."""

FOLDED_SPLIT_BYTES = 128 << 20
"""File bytes per reducing task. Longer splits have more superseded records."""

FOLDED = (StructField("superseded", LongType()), StructField("supersededNewest", LongType()))
"""Number of records that this one supersedes, and their latest timestamp in microseconds."""

DISPLACED = StructField("displaced", BooleanType())
"""Whether the offset is lower than the previous one in the split, or outside the split."""

Ranges = Mapping[tuple[str, int], tuple[int, int]]


def scan(spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]) -> DataFrame:
    """Return the rows of a load.

    Parameters
    ----------
    options : mapping
        Options of the data source.
    """
    reader, tasks = _planned(paths, options)
    return _scan(spark, tasks, reader.read, reader.columns)


def scan_in_order(
    spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]
) -> DataFrame:
    """Return the rows of a load with the column `DISPLACED`.

    Parameters
    ----------
    options : mapping
        Options of the data source.
    """
    reader, tasks = _planned(paths, options)
    schema = StructType([*reader.columns, DISPLACED])
    arrow = to_arrow_schema(schema, timezone="UTC")

    def read(task: Task) -> Iterator[pa.RecordBatch]:
        for split in task.splits:
            last = split.start_offset
            for batch in reader.read_split(split):
                offsets = batch.column("offset").to_numpy()
                before = np.concatenate(([last], offsets[:-1]))
                displaced = (offsets < before) | (offsets >= split.end_offset)
                last = offsets[-1]
                yield pa.RecordBatch.from_arrays(
                    [*batch.columns, pa.array(displaced)], schema=arrow
                )

    return _scan(spark, tasks, read, schema)


def scan_folded(
    spark: SparkSession, paths: Sequence[str], options: Mapping[str, str], ranges: Ranges
) -> DataFrame:
    """Return the rows of a load without superseded records, and with the columns `FOLDED`.

    Parameters
    ----------
    options : mapping
        Options of the data source. The columns must include topic, partition, offset, timestamp,
        key and aborted.
    ranges : mapping
        Offsets [start, end) in which records compete by offset, by (topic, partition). All other
        records are returned.
    """
    reader, tasks = _planned(paths, {"splitBytes": str(FOLDED_SPLIT_BYTES), **options})
    schema = StructType([*reader.columns, *FOLDED])
    arrow = to_arrow_schema(schema, timezone="UTC")

    def read(task: Task) -> Iterator[pa.RecordBatch]:
        for split in task.splits:
            start, end = ranges.get((split.topic, split.partition), (0, 0))
            stretch: list[pa.RecordBatch] = []
            rows = size = 0
            for batch in reader.read_split(split):
                stretch.append(batch)
                rows, size = rows + batch.num_rows, size + batch.nbytes
                if rows >= STRETCH_ROWS or size >= STRETCH_BYTES:
                    yield from _folded(stretch, start, end, arrow)
                    stretch, rows, size = [], 0, 0
            if stretch:
                yield from _folded(stretch, start, end, arrow)

    return _scan(spark, tasks, read, schema)


def _planned(paths: Sequence[str], options: Mapping[str, str]) -> tuple[LogstoreReader, list[Task]]:
    source = LogstoreDataSource({"paths": json.dumps([*paths]), **options})
    reader = source.reader(source.schema())
    return reader, reader.tasks()


def _scan(
    spark: SparkSession,
    tasks: list[Task],
    read: Callable[[Task], Iterator[pa.RecordBatch]],
    schema: StructType,
) -> DataFrame:
    def rows(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from read(tasks[number])

    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(rows, schema)


def _folded(
    stretch: list[pa.RecordBatch], start: int, end: int, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Omit rows that a later row with the same key supersedes. Rows must be in offset order."""
    table = pa.Table.from_batches(stretch).combine_chunks()
    offsets = table["offset"].to_numpy()
    micros = table["timestamp"].cast(pa.int64()).to_numpy()
    keys = table["key"].combine_chunks().dictionary_encode()
    codes = keys.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    aborted = table["aborted"].fill_null(True).to_numpy()  # open transactions count as aborted
    compete = np.flatnonzero(~aborted & (codes >= 0) & (offsets >= start) & (offsets < end))
    own = codes[compete]
    winner = np.full(len(keys.dictionary), -1, np.int64)
    np.maximum.at(winner, own, compete)
    superseded = compete[winner[own] != compete]
    count = np.zeros(len(offsets), np.int64)
    newest = np.full(len(offsets), np.iinfo(np.int64).min)
    by = winner[codes[superseded]]
    np.add.at(count, by, 1)
    np.maximum.at(newest, by, micros[superseded])
    stays = np.ones(len(offsets), bool)
    stays[superseded] = False
    table = table.append_column("superseded", pa.array(count))
    table = table.append_column("supersededNewest", pa.array(newest, mask=count == 0))
    yield from table.filter(pa.array(stays)).cast(schema).to_batches(max_chunksize=1 << 16)
