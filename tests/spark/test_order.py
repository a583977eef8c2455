"""The check of the offset order: the report of each task, and the combined result."""

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from logstore.spark.oracle.order import SCHEMA, _runs, records_out_of_order
from tests.support.world.frames import schema_of

NAMES = schema_of(SCHEMA).names


def batch(*rows):
    columns = zip(*rows, strict=True) if rows else [()] * 3
    kinds = (pa.string(), pa.int32(), pa.int64())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, ["topic", "partition", "offset"])


def test_a_task_reports_the_runs_of_each_partition_of_each_batch():
    first = batch(("b", 0, 5), ("a", 1, 7), ("b", 0, 4), ("a", 0, 1), ("b", 0, 3), ("b", 0, 3))
    found = [made.to_pylist() for made in _runs(iter((first, batch(), batch(("a", 1, 2)))))]
    assert [[tuple(row.values()) for row in rows] for rows in found] == [
        [(0, "b", 0, 5, 3, 2, 4), (0, "a", 0, 1, 1, 0, None), (0, "a", 1, 7, 7, 0, None)],
        [(0, "a", 1, 2, 2, 0, None)],
    ]
    assert next(iter(_runs(iter((first,))))).schema == pa.schema(
        [("task", pa.int32()), ("topic", pa.string()), ("partition", pa.int32())]
        + [(name, pa.int64()) for name in ("first", "last", "breaks", "at")]
    )


class Reported:
    """A frame whose tasks have reported these rows."""

    def __init__(self, *rows):
        self.rows = rows

    def select(self, *names):
        assert names == ("topic", "partition", "offset")
        return self

    def mapInArrow(self, function, schema):
        assert (function, schema) == (_runs, SCHEMA)
        return self

    def collect(self):
        return [dict(zip(NAMES, row, strict=True)) for row in self.rows]


def test_reports_are_joined_in_the_order_of_the_tasks():
    rows = (
        (2, "a", 0, 8, 9, 0, None),
        (1, "a", 0, 4, 7, 0, None),
        (1, "a", 0, 7, 8, 0, None),
        (0, "a", 0, 1, 4, 0, None),
        (0, "a", 1, 5, 6, 0, None),
        (0, "b", 0, 5, 6, 0, None),
    )
    assert records_out_of_order(Reported(*rows), 10) == (0, [])
    wrong = (
        (1, "b", 0, 3, 9, 0, None),
        (0, "b", 0, 2, 8, 3, 1),
        (1, "a", 1, 6, 2, 1, 2),
        (0, "a", 1, 4, 7, 0, None),
    )
    places = [("a", 1, 2), ("a", 1, 6), ("b", 0, 1), ("b", 0, 3)]
    assert records_out_of_order(Reported(*wrong), 10) == (6, places)
    assert records_out_of_order(Reported(*wrong), 3) == (6, places[:3])
