"""Arrow arrays of keys, values and headers, from the engine's columns of records.

Keys (or values) are at ascending positions in the bytes of a batch. An Arrow array over these
bytes, whose odd elements are the gaps between keys, therefore requires no copy. Taking its even
elements gathers the keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from logstore.errors import InvalidRecordError
from logstore.record.columns import BytesColumn
from logstore.types import INT32_MAX

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from logstore.record.columns import RecordColumns


def binary_array(column: BytesColumn) -> pa.Array:
    """Gather byte strings at ascending positions. A negative size means null.

    Raises
    ------
    InvalidRecordError
        The bytes of the column exceed the offsets of one Arrow array, 2^31 - 1.
    """
    data, starts = column.data, column.starts
    if len(data) > INT32_MAX:
        raise InvalidRecordError(f"{len(data)} bytes of records are too many for one Arrow array")
    count = len(starts)
    sizes = column.sizes.astype(np.int64)
    null = sizes < 0
    bounds = np.empty(2 * count + 1, np.int64)
    bounds[0:-1:2] = np.where(null, 0, starts)
    bounds[1::2] = np.where(null, 0, starts + sizes)
    bounds[-1] = 0
    np.maximum.accumulate(bounds, out=bounds)
    buffers = [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(data)]
    interleaved = pa.Array.from_buffers(pa.binary(), 2 * count, buffers)
    return interleaved.take(pa.array(np.arange(0, 2 * count, 2), mask=null))


def header_lists(columns: RecordColumns, kind: pa.ListType) -> pa.ListArray:
    """Decode all headers to lists of structs of name and value, without nulls.

    Bounds are not checked, because the headers were validated when the records were decoded.

    Parameters
    ----------
    kind : pyarrow.ListType
        Its value type is a struct of a string and a binary field.
    """
    encoded = columns.encoded_headers
    data, starts = encoded.data, encoded.starts
    remaining = np.zeros(len(starts), np.int64)
    some = np.flatnonzero(encoded.sizes > 1)
    remaining[some], position = _varints(data, starts[some])
    offsets = np.concatenate(([0], np.cumsum(remaining)))
    more = remaining[some] > 0
    some, position = some[more], position[more]
    headers: list[tuple[NDArray[np.int64], ...]] = []
    while len(some):
        name_sizes, name_starts = _varints(data, position)
        value_sizes, value_starts = _varints(data, name_starts + name_sizes)
        headers.append((some, name_starts, name_sizes, value_starts, value_sizes))
        position = value_starts + np.maximum(value_sizes, 0)
        remaining[some] -= 1
        more = remaining[some] > 0
        some, position = some[more], position[more]
    fields = [np.concatenate(parts) for parts in zip(*headers, strict=True)]
    fields = fields or [np.empty(0, np.int64)] * 5
    order = np.argsort(fields[0], kind="stable")
    _, name_starts, name_sizes, value_starts, value_sizes = (field[order] for field in fields)
    names = BytesColumn(data, name_starts, name_sizes.astype(np.int32))
    values = BytesColumn(data, value_starts, value_sizes.astype(np.int32))
    pairs = pa.StructArray.from_arrays(
        [_utf8(binary_array(names)), binary_array(values)], fields=list(kind.value_type)
    )
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pairs, type=kind)


def _utf8(strings: pa.Array) -> pa.Array:
    """Decode text as Java does: invalid UTF-8 becomes U+FFFD."""
    try:
        return strings.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [text.decode("utf-8", "replace") for text in strings.to_pylist()]
        return pa.array(texts, pa.string())


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
