"""Conversion between the engine's columns of records and Arrow arrays of Spark's columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logstore.errors import InvalidRecordError
from logstore.export.arrays import binary_array, header_lists
from logstore.record.columns import BytesColumn, RecordColumns, headers_column, join_columns
from logstore.record.varint import encode_varint

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MICROS = 1000
_DIGEST_SECONDS = 20e-6
"""Approximate time per digest in plain Python."""
_TIMESTAMP_MAX_MS = np.iinfo(np.int64).max // _MICROS


class Stored(NamedTuple):
    """The records of a batch.

    `aborted` is None while the records' transaction is open. `delete_horizon_ms` is None if the
    batch has no delete horizon.
    """

    columns: RecordColumns
    timestamp_type: int
    aborted: bool | None = False
    delete_horizon_ms: int | None = None


class _Rows(NamedTuple):
    """The records of several batches."""

    topic: str
    partition: int
    columns: RecordColumns
    counts: list[int]
    parts: Sequence[Stored]


def record_batch(
    schema: pa.Schema, topic: str, partition: int, parts: Sequence[Stored]
) -> pa.RecordBatch:
    """Convert records of one partition to an Arrow batch.

    Parameters
    ----------
    schema : pyarrow.Schema
        Requested columns, in order.
    parts : sequence of Stored
        At least one batch, with at most 2^31 - 1 bytes in total.

    Raises
    ------
    InvalidRecordError
        A timestamp is out of range for Spark, which uses microseconds.
    """
    counts = [len(part.columns) for part in parts]
    columns = join_columns([part.columns for part in parts])
    rows = _Rows(topic, partition, columns, counts, parts)
    arrays = [_COLUMNS[field.name](rows, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _keys(rows: _Rows, _: pa.DataType) -> pa.Array:
    return binary_array(rows.columns.keys)


def _values(rows: _Rows, _: pa.DataType) -> pa.Array:
    return binary_array(rows.columns.values)


def _topics(rows: _Rows, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(rows.topic, kind), len(rows.columns))


def _partitions(rows: _Rows, _: pa.DataType) -> pa.Array:
    return pa.array(np.full(len(rows.columns), rows.partition, np.int32))


def _offsets(rows: _Rows, _: pa.DataType) -> pa.Array:
    return pa.array(rows.columns.offsets)


def _timestamps(rows: _Rows, kind: pa.DataType) -> pa.Array:
    timestamps = rows.columns.timestamps
    beyond = np.flatnonzero(np.abs(timestamps) > _TIMESTAMP_MAX_MS)
    if len(beyond):
        row = beyond[0]
        raise InvalidRecordError(
            f"offset {rows.columns.offsets[row]} of {rows.topic}-{rows.partition}: the timestamp"
            f" {timestamps[row]} ms is out of range for Spark"
        )
    return pa.array(timestamps * _MICROS).view(kind)


def _timestamp_types(rows: _Rows, _: pa.DataType) -> pa.Array:
    types = np.array([part.timestamp_type for part in rows.parts], np.int32)
    return pa.array(np.repeat(types, rows.counts))


def _aborted(rows: _Rows, kind: pa.DataType) -> pa.Array:
    return _of_batches(rows, [part.aborted for part in rows.parts], kind)


def _delete_horizons(rows: _Rows, kind: pa.DataType) -> pa.Array:
    return _of_batches(rows, [part.delete_horizon_ms for part in rows.parts], kind)


def _value_digests(rows: _Rows, _: pa.DataType) -> pa.Array:
    values = rows.columns.values
    return pa.array(_digests(values), mask=values.sizes < 0)


def _header_digests(rows: _Rows, _: pa.DataType) -> pa.Array:
    """Hash the stored headers of each record, including their count and sizes."""
    return pa.array(_digests(rows.columns.encoded_headers))


def _digests(column: BytesColumn) -> NDArray[np.int64]:
    from logstore import jit
    from logstore.spark.datasource.kernels import digest_strings

    jit.compile_if_worthwhile(digest_strings, len(column) * _DIGEST_SECONDS)
    digests = np.empty(len(column), np.int64)
    digest_strings(column.data, column.starts, column.sizes.astype(np.int64), digests)
    return digests


def _of_batches(rows: _Rows, values: Sequence[object], kind: pa.DataType) -> pa.Array:
    """Repeat a per-batch value for all records of each batch."""
    of_each = np.repeat(np.arange(len(values)), rows.counts)
    return pa.array(values, kind).take(pa.array(of_each))


def _headers(rows: _Rows, kind: pa.DataType) -> pa.Array:
    """Decode all headers. As in Spark's Kafka source, records without headers have null."""
    lists = header_lists(rows.columns, kind)
    null = pc.equal(pc.list_value_length(lists), 0)
    return pa.ListArray.from_arrays(lists.offsets, lists.values, type=kind, mask=null)


_COLUMNS: dict[str, Callable[[_Rows, pa.DataType], pa.Array]] = {
    "key": _keys,
    "value": _values,
    "topic": _topics,
    "partition": _partitions,
    "offset": _offsets,
    "timestamp": _timestamps,
    "timestampType": _timestamp_types,
    "headers": _headers,
    "aborted": _aborted,
    "deleteHorizonMs": _delete_horizons,
    "valueDigest": _value_digests,
    "headersDigest": _header_digests,
}


# -- from Arrow --------------------------------------------------------------------------


def bytes_column(array: pa.Array) -> BytesColumn:
    """Convert an Arrow array of bytes or text to a column without copying."""
    if pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type):
        width: type[np.signedinteger] = np.int64
    elif pa.types.is_binary(array.type) or pa.types.is_string(array.type):
        width = np.int32
    else:
        raise InvalidRecordError(f"expected bytes or text, not {array.type}")
    _, bounds_buffer, data_buffer = array.buffers()
    count = len(array)
    bounds = np.zeros(1, np.int64)
    if count:
        bounds = np.frombuffer(bounds_buffer, width)[array.offset : array.offset + count + 1]
        bounds = bounds.astype(np.int64)
    data = np.frombuffer(b"" if data_buffer is None else data_buffer, np.uint8)
    sizes = np.diff(bounds).astype(np.int32)
    if array.null_count:
        sizes[np.asarray(array.is_null())] = -1
    return BytesColumn(data, bounds[:-1], sizes)


def encoded_headers(array: pa.Array) -> BytesColumn:
    """Encode a list of (name, value) headers per record.

    Raises
    ------
    InvalidRecordError
        A header or its name is null.
    """
    pairs = array.flatten()
    if len(pairs):
        names, values = pairs.field(0), pairs.field(1)
        if pairs.null_count or names.null_count:
            raise InvalidRecordError("a header or its name is null")
        pieces = pc.binary_join_element_wise(
            _sizes(names),
            names.cast(pa.binary()),
            _sizes(values),
            pc.fill_null(values.cast(pa.binary()), b""),
            b"",
        )
        counts = pc.fill_null(pc.list_value_length(array), 0)
        bounds = np.concatenate(([0], np.cumsum(np.asarray(counts)))).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(bounds), pieces)
        counts_encoded = _as_varints(np.asarray(counts).astype(np.int64))
        return bytes_column(
            pc.binary_join_element_wise(counts_encoded, pc.binary_join(lists, b""), b"")
        )
    return headers_column(None, len(array))


def _sizes(strings: pa.Array) -> pa.Array:
    """Return the encoded length of each string, or -1 for null."""
    return _as_varints(np.asarray(pc.fill_null(pc.binary_length(strings), -1)).astype(np.int64))


def _as_varints(numbers: NDArray[np.int64]) -> pa.Array:
    distinct, rows = np.unique(numbers, return_inverse=True)
    codes = pa.array([encode_varint(int(delta)) for delta in distinct], pa.binary())
    return codes.take(pa.array(rows))
