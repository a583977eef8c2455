"""Records as columns: arrays of offsets, timestamps and extents over a byte array.

Modules only exchange large numbers of records in this form. A `BytesColumn` represents the keys or
values of n records without n objects. `RecordColumns` is a decoded section.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, cast

import numpy as np

from logstore import jit
from logstore.errors import InvalidRecordError
from logstore.record import kernels
from logstore.record.layout import (
    CODEC_MASK,
    HEADER_SIZE,
    MAX_RECORD_OVERHEAD,
    MIN_RECORD_SIZE,
    TIMESTAMP_TYPE_BIT,
)
from logstore.record.records import (
    NO_HEADERS,
    Header,
    Record,
    RecordRow,
    decode_headers,
    encode_headers,
)
from logstore.types import NO_PARTITION_LEADER_EPOCH

if TYPE_CHECKING:
    from numpy.typing import NDArray

    _EncodeBuffers = tuple[NDArray[np.uint8], memoryview, NDArray[np.int64], NDArray[np.int64]]

_NO_HEADERS = np.frombuffer(NO_HEADERS, np.uint8)
_NO_STARTS = np.empty(0, np.int64)
_NO_SIZES = np.empty(0, np.int32)
_INT64_STRIDES = (8,)
_LEAST_ROOM = HEADER_SIZE + kernels.OUT_SLACK
_ROWS_AT_A_TIME = 1024
_sum = np.add.reduce  # takes half as long as `ndarray.sum` for a batch

_DECODE_SECONDS = 30e-6
_ENCODE_SECONDS = 45e-6
"""Approximate time per record of a kernel in plain Python."""

_header_of_columns = struct.Struct(">q13xh4xqq14xi").unpack_from
"""Base offset, attributes, base and maximum timestamp, and record count of a batch."""
_empty, _int64 = np.empty, np.dtype(np.int64)
_decode = jit.Direct(kernels.decode_records)
_encode = jit.Direct(kernels.encode_batches)

_DECODE_ERRORS = {
    kernels.PREMATURE_END: "premature end: fewer records than the header counts",
    kernels.BAD_VARINT: "a varint is too long or runs past the end of its record",
    kernels.BAD_RECORD_SIZE: "a record's size does not fit the bytes left",
    kernels.BAD_OFFSET_DELTA: "negative offset delta",
    kernels.FIELD_OVERRUN: "a key, value or header runs past the end of its record",
    kernels.BAD_HEADER_COUNT: "a header count is negative or cannot fit the bytes left",
    kernels.BAD_HEADER_KEY_SIZE: "negative header key length",
    kernels.RECORD_NOT_CONSUMED: "bytes left unread in a record",
    kernels.RECORDS_REMAINING: "records remaining after the last one counted",
}


@dataclass(slots=True, eq=False)
class BytesColumn:
    """A column of n byte strings, some of which may be null.

    Attributes
    ----------
    data : (m,) uint8
        Concatenated bytes of the strings.
    starts : (n,) int64
        Position of each string in `data`. Undefined for nulls.
    sizes : (n,) int32
        Size of each string in bytes, or -1 for null.
    total_bytes : int, optional
        Total size of all strings. Set by `from_list`, because computing it takes as long as
        encoding a few dozen records. The arrays of such a column are contiguous and its data is
        read-only, so kernels need not check them.
    """

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int32]
    total_bytes: int | None = None

    @classmethod
    def from_list(
        cls, values: Iterable[bytes | None], *, has_nulls: bool | None = None
    ) -> BytesColumn:
        """Copy byte strings and Nones to a new column. `has_nulls` avoids a search for None.

        O(n + bytes).
        """
        items = values if isinstance(values, list | tuple) else list(values)
        if None in items if has_nulls is None else has_nulls:
            sizes = np.fromiter(
                (-1 if item is None else len(item) for item in items), np.int32, len(items)
            )
            joined = b"".join([item for item in items if item])
        else:
            known = cast("list[bytes]", items)
            sizes = np.fromiter(map(len, known), np.int32, len(items))
            joined = b"".join(known)
        starts = np.zeros(len(items), np.int64)
        np.cumsum(np.maximum(sizes[:-1], 0), dtype=np.int64, out=starts[1:])
        return cls(np.frombuffer(joined, np.uint8), starts, sizes, len(joined))

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, row: int) -> bytes | None:
        size = int(self.sizes[row])
        if size < 0:
            return None
        start = int(self.starts[row])
        return self.data[start : start + size].tobytes()

    def null_rows(self) -> list[int]:
        """Return the rows of the nulls."""
        return (self.sizes < 0).nonzero()[0].tolist()

    def slice(self, start: int, stop: int) -> BytesColumn:
        """Return rows [start, stop) without copying."""
        return BytesColumn(self.data, self.starts[start:stop], self.sizes[start:stop])


class RecordColumns:
    """The decoded records of a batch.

    The arrays are views of one table. They are created on access, because creating a view takes as
    long as decoding a few dozen records.

    Parameters
    ----------
    raw : bytes
        Bytes that include the decompressed records section.
    count : int
        Number of records (n).
    table : (DECODED_COLUMNS * n,) int64
        See `kernels.decode_records`.
    """

    __slots__ = ("_count", "_raw", "_table")

    def __init__(self, raw: bytes, count: int, table: NDArray[np.int64]) -> None:
        self._raw = raw
        self._count = count
        self._table = table

    @property
    def data(self) -> NDArray[np.uint8]:
        """Read-only bytes that include keys, values and headers."""
        return np.frombuffer(self._raw, np.uint8)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """(n,) absolute offsets."""
        return self._table[: self._count]

    @property
    def timestamps(self) -> NDArray[np.int64]:
        """(n,) timestamps in milliseconds."""
        count = self._count
        return self._table[count : 2 * count]

    @property
    def extents(self) -> NDArray[np.int64]:
        """(n, EXTENT_COLUMNS) positions and sizes of each record; see `kernels.EXTENT_*`."""
        count = self._count
        return self._table[2 * count :].reshape(count, kernels.EXTENT_COLUMNS)

    def __len__(self) -> int:
        return self._count

    @property
    def has_null_key(self) -> bool:
        """Whether any record has a null key."""
        return bool((self.extents[:, kernels.EXTENT_KEY_SIZE] < 0).any())

    def has_offsets_from(self, offset: int) -> bool:
        """Return whether offsets start at `offset` and have no gaps."""
        return bool(np.array_equal(self.offsets, np.arange(offset, offset + self._count)))

    @property
    def section_bytes(self) -> int:
        """Total size of the decompressed records."""
        if not self._count:
            return 0
        extents = self.extents
        return int(extents[-1, kernels.EXTENT_END] - extents[0, kernels.EXTENT_START])

    @property
    def keys(self) -> BytesColumn:
        """The keys of the records."""
        return self._column(kernels.EXTENT_KEY_START, kernels.EXTENT_KEY_SIZE)

    @property
    def values(self) -> BytesColumn:
        """The values of the records."""
        return self._column(kernels.EXTENT_VALUE_START, kernels.EXTENT_VALUE_SIZE)

    @property
    def encoded_headers(self) -> BytesColumn:
        """Headers of each record, encoded by `encode_headers`. One zero byte means no headers.

        Can be passed to `encode_section`. Equal headers have equal bytes.
        """
        extents = self.extents
        starts = np.ascontiguousarray(extents[:, kernels.EXTENT_HEADERS])
        sizes = extents[:, kernels.EXTENT_END] - starts
        return BytesColumn(self.data, starts, sizes.astype(np.int32))

    def between(self, start_offset: int, end_offset: int | None = None) -> RecordColumns:
        """Return the records with offsets in [start, end) without copying. `end` is optional."""
        offsets = self.offsets
        inside = offsets >= start_offset
        if end_offset is not None:
            inside &= offsets < end_offset
        return self if inside.all() else self._selected(inside)

    def slice(self, start: int, stop: int) -> RecordColumns:
        """Return rows [start, stop) without copying the records."""
        return self._selected(np.arange(start, stop))

    def _selected(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> RecordColumns:
        parts = self.offsets[rows], self.timestamps[rows], self.extents[rows].ravel()
        return RecordColumns(self._raw, len(parts[0]), np.concatenate(parts))

    def _column(self, start: int, size: int) -> BytesColumn:
        extents = self.extents
        starts = np.ascontiguousarray(extents[:, start])
        return BytesColumn(self.data, starts, extents[:, size].astype(np.int32))

    def headers(self, row: int) -> tuple[Header, ...]:
        """Return the headers of the record in `row`."""
        extent = self.extents[row]
        start, end = int(extent[kernels.EXTENT_HEADERS]), int(extent[kernels.EXTENT_END])
        if end - start == 1:
            return ()
        return decode_headers(self._raw, start, end)[0]

    def to_records(self) -> list[Record]:
        """Return the records as objects. O(n + bytes)."""
        return [Record._make(row) for rows in self.row_lists() for row in rows]

    def row_lists(self) -> Iterator[list[RecordRow]]:
        """Yield the records as lists of a few hundred rows."""
        raw, offsets, timestamps = self._raw, self.offsets, self.timestamps
        for first in range(0, len(self), _ROWS_AT_A_TIME):
            rows = slice(first, first + _ROWS_AT_A_TIME)
            extents = self.extents[rows]
            ends = extents[:, kernels.EXTENT_END]
            starts = extents[:, kernels.EXTENT_HEADERS]
            headers: Iterable[tuple[Header, ...]] = repeat(())
            if (ends - starts > 1).any():
                headers = [
                    () if end - start == 1 else decode_headers(raw, start, end)[0]
                    for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
                ]
            yield list(
                zip(  # noqa: B905  # headers may repeat for ever
                    offsets[rows].tolist(),
                    timestamps[rows].tolist(),
                    _pieces(raw, extents, kernels.EXTENT_KEY_START, kernels.EXTENT_KEY_SIZE),
                    _pieces(raw, extents, kernels.EXTENT_VALUE_START, kernels.EXTENT_VALUE_SIZE),
                    headers,
                )
            )


def _pieces(raw: bytes, extents: NDArray[np.int64], start: int, size: int) -> list[bytes | None]:
    starts = extents[:, start]
    return [
        raw[begin:end] if end >= begin else None
        for begin, end in zip(starts.tolist(), (starts + extents[:, size]).tolist(), strict=True)
    ]


def decode_section(
    section: bytes | memoryview,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None = None,
) -> RecordColumns:
    """Decode an uncompressed records section into columns.

    Arguments and errors are as in `records.decode_records`, the oracle of the kernel used here. If
    the section is not `bytes`, it is copied.
    """
    if count < 0:
        raise InvalidRecordError(f"negative record count {count}")
    raw = section if isinstance(section, bytes) else bytes(section)
    return _decoded(raw, 0, count, base_offset, base_timestamp, append_time)


_POSITIONS = (
    *(kernels.EXTENT_START, kernels.EXTENT_END, kernels.EXTENT_KEY_START),
    *(kernels.EXTENT_VALUE_START, kernels.EXTENT_HEADERS),
)


def join_columns(parts: Sequence[RecordColumns]) -> RecordColumns:
    """Concatenate the records of several batches."""
    if len(parts) == 1:
        return parts[0]
    starts = np.cumsum([0, *(len(part._raw) for part in parts[:-1])])
    extents = np.concatenate([part.extents for part in parts])
    extents[:, _POSITIONS] += np.repeat(starts, [len(part) for part in parts])[:, np.newaxis]
    offsets = [part.offsets for part in parts]
    timestamps = [part.timestamps for part in parts]
    table = np.concatenate([*offsets, *timestamps, extents.reshape(-1)])
    return RecordColumns(b"".join(part._raw for part in parts), len(extents), table)


WINDOW_RECORDS = 1 << 16
"""Maximum number of records of a large batch to decode at once: 5 MiB of columns."""


def decode_windows(
    raw: bytes,
    start: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None = None,
    *,
    rows_max: int = WINDOW_RECORDS,
) -> Iterator[RecordColumns]:
    """Decode records starting at a position, into columns of at most `rows_max` records.

    Memory use does not depend on `count`. Errors are as in `decode_section`, and are raised when
    the window that contains the record is decoded.
    """
    done, position = 0, start
    while done < count or not done:
        rows = min(rows_max, count - done)
        columns = _decoded(
            raw, position, rows, base_offset, base_timestamp, append_time, done, count
        )
        yield columns
        done += rows
        if rows <= 0:
            return
        position = int(columns.extents[-1, kernels.EXTENT_END])


def decode_batch(data: bytes) -> RecordColumns:
    """Decode a complete uncompressed batch into columns without checking its CRC.

    `RecordBatch.columns` also decodes compressed batches.

    Raises
    ------
    InvalidRecordError
        The batch is shorter than a header, compressed, or violates storage-format §2.
    """
    if len(data) < HEADER_SIZE:
        raise InvalidRecordError(f"batch of {len(data)} bytes is smaller than its header")
    base_offset, attributes, base_timestamp, max_timestamp, count = _header_of_columns(data)
    if attributes & CODEC_MASK or count < 0:
        raise InvalidRecordError(
            f"negative record count {count}" if count < 0 else "the batch is compressed"
        )
    append_time = max_timestamp if attributes & TIMESTAMP_TYPE_BIT else None
    return _decoded(data, HEADER_SIZE, count, base_offset, base_timestamp, append_time)


def _decoded(
    raw: bytes,
    start: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    done: int = 0,
    total: int | None = None,
) -> RecordColumns:
    """Decode `count` records from `start` on. The first one is number `done` of `total`."""
    end = len(raw)
    total = count if total is None else total
    # Do not allocate memory for the record count in a damaged header.
    if (total - done) * MIN_RECORD_SIZE > end - start:
        raise InvalidRecordError(
            f"premature end: {total - done} records cannot fit {end - start} bytes"
        )
    decode = _decode.entry
    if decode is None:
        jit.compile_if_worthwhile(kernels.decode_records, count * _DECODE_SECONDS)
        decode = _decode
    table = _empty(kernels.DECODED_COLUMNS * count, _int64)
    status, row = decode(raw, start, end, base_offset, base_timestamp, table)
    if status and not (status == kernels.RECORDS_REMAINING and done + count < total):
        raise InvalidRecordError(f"record {done + row} of {total}: {_DECODE_ERRORS[status]}")
    if append_time is not None:
        table[count : 2 * count] = append_time
    return RecordColumns(raw, count, table)


_NO_HEADERS_COLUMN = BytesColumn(_NO_HEADERS, _NO_STARTS, _NO_SIZES, 0)
"""Encoded headers of records without headers."""


def _read_only(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a read-only view, so that kernels are only compiled for one array type."""
    if not data.flags.writeable:
        return data
    view = data.view()
    view.flags.writeable = False
    return view


def headers_column(headers: Sequence[Sequence[Header]] | None, count: int) -> BytesColumn:
    """Return the encoded headers of each record. `headers` is None if no record has headers."""
    if headers is None:
        return BytesColumn(_NO_HEADERS, np.zeros(count, np.int64), np.ones(count, np.int32))
    return BytesColumn.from_list([encode_headers(each) for each in headers])


def find_bounds(keys: BytesColumn, values: BytesColumn, room: int, most: int) -> list[int]:
    """Divide records without headers into batches, by upper bounds of the batch sizes.

    Parameters
    ----------
    room, most : int
        Maximum bytes and records per batch. A larger record gets its own batch.

    Returns
    -------
    list of int
        Batch i has the rows [bounds[i], bounds[i + 1]). The last batch might have room for more.
    """
    bounds = np.empty(len(keys) + 1, np.int64)
    count = kernels.find_bounds(keys.sizes, values.sizes, MAX_RECORD_OVERHEAD, room, most, bounds)
    found: list[int] = bounds[: count + 1].tolist()
    return found


def encode_batches(
    timestamps: NDArray[np.int64],
    keys: BytesColumn,
    values: BytesColumn,
    headers: BytesColumn | None,
    bounds: Sequence[int] | NDArray[np.int64],
    *,
    first_offset: int = 0,
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    attributes: int = 0,
) -> tuple[memoryview, NDArray[np.int64]]:
    """Encode columns as uncompressed batches with consecutive offsets and without a producer.

    Parameters
    ----------
    timestamps : (n,) int64
        In milliseconds.
    keys, values, headers : BytesColumn
        n rows each; size -1 means null. Headers are encoded (see `headers_column`), or None if no
        record has headers.
    bounds : (m + 1,) int
        Batch i has the rows [bounds[i], bounds[i + 1]), which must not be empty.

    Returns
    -------
    memoryview, (m, 3) int64
        The batches, and each batch's last offset, maximum timestamp and size in bytes.
    """
    count = len(timestamps)
    jit.compile_if_worthwhile(kernels.encode_batches, count * _ENCODE_SECONDS)
    heads = _NO_HEADERS_COLUMN if headers is None else headers
    # 2 extra bytes per record compensate for the size -1 of null keys and values.
    room = (len(bounds) - 1) * HEADER_SIZE + count * (MAX_RECORD_OVERHEAD + 2) + kernels.OUT_SLACK
    for column in (keys, values, heads):
        known = column.total_bytes
        room += int(_sum(column.sizes, dtype=_int64)) if known is None else known
    out = np.empty(room, np.uint8)
    extents = np.empty((len(bounds) - 1, 3), np.int64)
    size = kernels.encode_batches(
        first_offset,
        leader_epoch,
        attributes,
        np.ascontiguousarray(bounds, np.int64),
        timestamps,
        _read_only(keys.data),
        keys.starts,
        keys.sizes,
        _read_only(values.data),
        values.starts,
        values.sizes,
        _read_only(heads.data),
        heads.starts,
        heads.sizes,
        out,
        extents,
    )
    return memoryview(out)[:size], extents  # type: ignore[arg-type]  # a NumPy array is a buffer


_ENCODE_BUFFER_BYTES = 1 << 16
_encode_buffers: list[_EncodeBuffers] = []
"""Unused buffers. A call removes one from the list, so that threads do not share it.

Creating a buffer takes a tenth of the time of encoding a batch.
"""


def _new_encode_buffers() -> _EncodeBuffers:
    """Return a byte array, a view of it, and arrays for the bounds and extents of one batch."""
    out = np.empty(_ENCODE_BUFFER_BYTES, np.uint8)
    view = memoryview(out)  # type: ignore[arg-type]  # a NumPy array is a buffer
    return out, view, np.zeros(2, np.int64), np.empty((1, 3), np.int64)


def encode_batch(
    timestamps: NDArray[np.int64],
    keys: BytesColumn,
    values: BytesColumn,
    headers: BytesColumn | None = None,
    *,
    first_offset: int = 0,
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    attributes: int = 0,
) -> bytes:
    """Encode columns with at least one row as an uncompressed batch without a producer.

    Parameters are as in `encode_batches`. Columns from `BytesColumn.from_list` are fastest.
    """
    count = len(timestamps)
    key_bytes, value_bytes = keys.total_bytes, values.total_bytes
    if (
        headers is None
        and key_bytes is not None
        and value_bytes is not None
        and timestamps.dtype is _int64
        and timestamps.strides == _INT64_STRIDES
        and _LEAST_ROOM + count * MAX_RECORD_OVERHEAD + key_bytes + value_bytes
        <= _ENCODE_BUFFER_BYTES
    ):
        encode = _encode.entry
        if encode is None:
            jit.compile_if_worthwhile(kernels.encode_batches, count * _ENCODE_SECONDS)
            encode = _encode
        buffers = out, view, bounds, extents = (
            _encode_buffers.pop() if _encode_buffers else _new_encode_buffers()
        )
        bounds[1] = count
        size = encode(
            first_offset,
            leader_epoch,
            attributes,
            bounds,
            timestamps,
            keys.data,
            keys.starts,
            keys.sizes,
            values.data,
            values.starts,
            values.sizes,
            _NO_HEADERS,
            _NO_STARTS,
            _NO_SIZES,
            out,
            extents,
        )
        data = view[:size].tobytes()  # faster than `bytes(view)`
        _encode_buffers.append(buffers)
        return data
    batches, _ = encode_batches(
        timestamps,
        keys,
        values,
        headers,
        (0, count),
        first_offset=first_offset,
        leader_epoch=leader_epoch,
        attributes=attributes,
    )
    return bytes(batches)


def encode_section(
    timestamps: NDArray[np.int64],
    keys: BytesColumn,
    values: BytesColumn,
    headers: BytesColumn | None = None,
) -> memoryview:
    """Encode columns as an uncompressed section, with deltas relative to the first timestamp.

    Parameters are as in `encode_batches`.
    """
    return memoryview(encode_batch(timestamps, keys, values, headers))[HEADER_SIZE:]
