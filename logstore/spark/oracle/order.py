"""Check the offset order of rows in one pass, without a shuffle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

SCHEMA = (
    "task int, topic string, partition int, first bigint, last bigint, breaks bigint, at bigint"
)

INT32_SPAN = 1 << 32

RecordId = tuple[str, int, int]


def records_out_of_order(frame: DataFrame, examples: int) -> tuple[int, list[RecordId]]:
    """Count records whose offset is below the previous record's in the partition.

    Parameters
    ----------
    frame : DataFrame
        Rows of a scan, before any shuffle. Tasks must be in segment order.

    Returns
    -------
    count, records : int, list of (topic, partition, offset)
        The first records found, at most one per Arrow batch and `examples` in total.
    """
    rows = frame.select("topic", "partition", "offset").mapInArrow(_runs, SCHEMA).collect()
    rows.sort(key=lambda row: row["task"])  # a stable sort preserves the runs within a task
    count = 0
    places: list[RecordId] = []
    last: dict[tuple[str, int], int] = {}
    for row in rows:
        where = (row["topic"], row["partition"])
        falls = row["first"] < last.get(where, row["first"])
        if falls:
            places.append((*where, row["first"]))
        if row["breaks"]:
            places.append((*where, row["at"]))
        count += row["breaks"] + falls
        last[where] = row["last"]
    return count, sorted(places)[:examples]


def _runs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Summarize each Arrow batch as one row per partition."""
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    task = 0 if context is None else context.partitionId()
    for batch in batches:
        if not batch.num_rows:
            continue
        topics = batch.column(0).dictionary_encode()
        topic = topics.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        partition = batch.column(1).to_numpy(zero_copy_only=False)
        offset = batch.column(2).to_numpy(zero_copy_only=False)
        pairs, group = np.unique(topic * INT32_SPAN + partition, return_inverse=True)
        rows = []
        for number, pair in enumerate(pairs):
            which, where = divmod(int(pair), INT32_SPAN)
            mine = offset[group == number]
            falls = np.flatnonzero(mine[1:] < mine[:-1])
            at = int(mine[falls[0] + 1]) if len(falls) else None
            first, last = int(mine[0]), int(mine[-1])
            name = topics.dictionary[which].as_py()
            rows.append((task, name, where, first, last, len(falls), at))
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(column, kind)
                for column, kind in zip(
                    zip(*rows, strict=True),
                    (pa.int32(), pa.string(), pa.int32(), *[pa.int64()] * 4),
                    strict=True,
                )
            ],
            ["task", "topic", "partition", "first", "last", "breaks", "at"],
        )
