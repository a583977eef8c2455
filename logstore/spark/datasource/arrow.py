"""Conversion between the engine's columns of records and Arrow arrays.

Keys (or values) are at ascending positions in the bytes of a batch. An Arrow array over these
bytes, whose odd elements are the gaps between keys, therefore requires no copy. Taking its even
elements gathers the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logstore.errors import InvalidRecordError
from logstore.record import kernels
from logstore.record.columns import BytesColumn, headers_column
from logstore.record.varint import encode_varint
from logstore.types import INT32_MAX

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from logstore.record.columns import RecordColumns

_MICROS = 1000
_DIGEST_SECONDS = 20e-6
"""Approximate time per digest in plain Python."""
_TIMESTAMP_MAX_MS = np.iinfo(np.int64).max // _MICROS
_STARTS = [
    kernels.EXTENT_START,
    kernels.EXTENT_END,
    kernels.EXTENT_KEY_START,
    kernels.EXTENT_VALUE_START,
    kernels.EXTENT_HEADERS,
]


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
    """The records of several batches over a single byte array."""

    topic: str
    partition: int
    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    extents: NDArray[np.int64]
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
    rows = _concatenate(topic, partition, parts)
    arrays = [_COLUMNS[field.name](rows, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _concatenate(topic: str, partition: int, parts: Sequence[Stored]) -> _Rows:
    columns = [part.columns for part in parts]
    counts = [len(column) for column in columns]
    data, extents = columns[0].data, columns[0].extents
    if len(parts) > 1:
        sizes = np.array([len(column.data) for column in columns], np.int64)
        data = np.concatenate([column.data for column in columns])
        extents = np.concatenate([column.extents for column in columns])
        extents[:, _STARTS] += np.repeat(np.cumsum(sizes) - sizes, counts)[:, None]
    return _Rows(
        topic,
        partition,
        data,
        np.concatenate([column.offsets for column in columns]),
        np.concatenate([column.timestamps for column in columns]),
        extents,
        counts,
        parts,
    )


def _strings(
    data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> pa.Array:
    """Gather byte strings at ascending positions. A negative size means null."""
    count = len(starts)
    if len(data) > INT32_MAX:
        raise InvalidRecordError(f"{len(data)} bytes of records are too many for one Arrow array")
    null = sizes < 0
    bounds = np.empty(2 * count + 1, np.int64)
    bounds[0:-1:2] = np.where(null, 0, starts)
    bounds[1::2] = np.where(null, 0, starts + sizes)
    bounds[-1] = 0
    np.maximum.accumulate(bounds, out=bounds)
    buffers = [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(data)]
    interleaved = pa.Array.from_buffers(pa.binary(), 2 * count, buffers)
    return interleaved.take(pa.array(np.arange(0, 2 * count, 2), mask=null))


def _utf8(strings: pa.Array) -> pa.Array:
    """Decode text as Java does: invalid UTF-8 becomes U+FFFD."""
    try:
        return strings.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [text.decode("utf-8", "replace") for text in strings.to_pylist()]
        return pa.array(texts, pa.string())


def _keys(rows: _Rows, _: pa.DataType) -> pa.Array:
    return _strings(
        rows.data,
        rows.extents[:, kernels.EXTENT_KEY_START],
        rows.extents[:, kernels.EXTENT_KEY_SIZE],
    )


def _values(rows: _Rows, _: pa.DataType) -> pa.Array:
    return _strings(
        rows.data,
        rows.extents[:, kernels.EXTENT_VALUE_START],
        rows.extents[:, kernels.EXTENT_VALUE_SIZE],
    )


def _topics(rows: _Rows, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(rows.topic, kind), len(rows.offsets))


def _partitions(rows: _Rows, _: pa.DataType) -> pa.Array:
    return pa.array(np.full(len(rows.offsets), rows.partition, np.int32))


def _offsets(rows: _Rows, _: pa.DataType) -> pa.Array:
    return pa.array(rows.offsets)


def _timestamps(rows: _Rows, kind: pa.DataType) -> pa.Array:
    beyond = np.flatnonzero(np.abs(rows.timestamps) > _TIMESTAMP_MAX_MS)
    if len(beyond):
        row = beyond[0]
        raise InvalidRecordError(
            f"offset {rows.offsets[row]} of {rows.topic}-{rows.partition}: the timestamp"
            f" {rows.timestamps[row]} ms is out of range for Spark"
        )
    return pa.array(rows.timestamps * _MICROS).view(kind)


def _timestamp_types(rows: _Rows, _: pa.DataType) -> pa.Array:
    types = np.array([part.timestamp_type for part in rows.parts], np.int32)
    return pa.array(np.repeat(types, rows.counts))


def _aborted(rows: _Rows, kind: pa.DataType) -> pa.Array:
    return _of_batches(rows, [part.aborted for part in rows.parts], kind)


def _delete_horizons(rows: _Rows, kind: pa.DataType) -> pa.Array:
    return _of_batches(rows, [part.delete_horizon_ms for part in rows.parts], kind)


def _value_digests(rows: _Rows, _: pa.DataType) -> pa.Array:
    sizes = rows.extents[:, kernels.EXTENT_VALUE_SIZE]
    digests = _digests(rows.data, rows.extents[:, kernels.EXTENT_VALUE_START], sizes)
    return pa.array(digests, mask=sizes < 0)


def _header_digests(rows: _Rows, _: pa.DataType) -> pa.Array:
    """Hash the stored headers of each record, including their count and sizes."""
    starts = rows.extents[:, kernels.EXTENT_HEADERS]
    return pa.array(_digests(rows.data, starts, rows.extents[:, kernels.EXTENT_END] - starts))


def _digests(
    data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    from logstore import jit
    from logstore.spark.datasource.kernels import digest_strings

    jit.compile_if_worthwhile(digest_strings, len(sizes) * _DIGEST_SECONDS)
    digests = np.empty(len(sizes), np.int64)
    starts, sizes = (np.ascontiguousarray(each, np.int64) for each in (starts, sizes))
    digest_strings(data, starts, sizes, digests)
    return digests


def _of_batches(rows: _Rows, values: Sequence[object], kind: pa.DataType) -> pa.Array:
    """Repeat a per-batch value for all records of each batch."""
    of_each = np.repeat(np.arange(len(values)), rows.counts)
    return pa.array(values, kind).take(pa.array(of_each))


def _headers(rows: _Rows, kind: pa.DataType) -> pa.Array:
    """Decode all headers. As in Spark's Kafka source, records without headers have null.

    Bounds are not checked, because the headers were validated when the records were decoded.
    """
    data, starts = rows.data, rows.extents[:, kernels.EXTENT_HEADERS]
    remaining = np.zeros(len(starts), np.int64)
    some = np.flatnonzero(rows.extents[:, kernels.EXTENT_END] - starts > 1)
    remaining[some], position = _varints(data, starts[some])
    offsets = np.concatenate(([0], np.cumsum(remaining)))
    null = remaining == 0
    some, position = some[~null[some]], position[~null[some]]
    headers: list[tuple[NDArray[np.int64], ...]] = []
    while len(some):
        key_sizes, key_starts = _varints(data, position)
        value_sizes, value_starts = _varints(data, key_starts + key_sizes)
        headers.append((some, key_starts, key_sizes, value_starts, value_sizes))
        position = value_starts + np.maximum(value_sizes, 0)
        remaining[some] -= 1
        more = remaining[some] > 0
        some, position = some[more], position[more]
    fields = [np.concatenate(parts) for parts in zip(*headers, strict=True)]
    fields = fields or [np.empty(0, np.int64)] * 5
    order = np.argsort(fields[0], kind="stable")
    _, key_starts, key_sizes, value_starts, value_sizes = (field[order] for field in fields)
    pairs = pa.StructArray.from_arrays(
        [_utf8(_strings(data, key_starts, key_sizes)), _strings(data, value_starts, value_sizes)],
        fields=list(kind.value_type),
    )
    return pa.ListArray.from_arrays(
        pa.array(offsets.astype(np.int32)), pairs, type=kind, mask=pa.array(null)
    )


def _varints(
    data: NDArray[np.uint8], positions: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Read a zigzag varint at each position. Return the values and end positions."""
    positions = positions.copy()
    raw = np.zeros(len(positions), np.int64)
    open_rows = np.arange(len(positions))
    for shift in range(0, 35, 7):
        if not len(open_rows):
            break
        byte = data[positions[open_rows]].astype(np.int64)
        raw[open_rows] |= (byte & 0x7F) << shift
        positions[open_rows] += 1
        open_rows = open_rows[byte >= 0x80]
    raw &= 0xFFFFFFFF
    return (raw >> 1) ^ -(raw & 1), positions


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
