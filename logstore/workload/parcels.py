"""Parcels: sealed batches and markers of a block for one partition, in arrival order.

A parcel consists of a few large byte strings, so that a shuffle moves a few rows of compressed
bytes instead of millions of records. Offsets and producer sequences depend on earlier blocks and
are assigned later. Independent of Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from logstore.config.log_config import LogConfig
from logstore.config.overrides import effective_config
from logstore.record.codecs import Codec
from logstore.record.columns import BytesColumn
from logstore.record.varint import encode_varint
from logstore.storage.log.drafts import Placement, RecordArrays
from logstore.workload.blocks import (
    MALFORMED_BYTES,
    MALFORMED_VERSION,
    VERSION,
    Block,
    build_block,
)
from logstore.workload.spec import Spec

DATA, COMMIT, ABORT = range(3)
"""Kinds of entries: a record batch, or a transaction marker."""

LEADER_EPOCH = 0

PARCEL_BYTES = 8 << 20
"""Maximum size of a parcel. A larger batch is a parcel by itself."""

ENTRY = np.dtype([("kind", "u1"), ("producer", "<i4"), ("size", "<i4"), ("at_ms", "<i8")])
"""An append: kind, producer number, bytes in `batches` (0 for a marker), and time in Unix ms."""


class Parcel(NamedTuple):
    """Consecutive entries of one partition.

    Attributes
    ----------
    partition, block : int
        Partition and block of the entries.
    part : int
        Index among the parcels with the same partition and block.
    entries : bytes
        An array of `ENTRY`.
    batches : bytes
        Concatenated batches of the data entries, sealed with the topic config, base offset 0 and no
        producer id.
    """

    partition: int
    block: int
    part: int
    entries: bytes
    batches: bytes


def build_parcels(spec: Spec, number: int, parcel_bytes: int = PARCEL_BYTES) -> Iterator[Parcel]:
    """Yield the parcels of a block, in order within each partition.

    Parameters
    ----------
    number : int
        Block number. Block 0 has a parcel for every partition, which may be empty.
    parcel_bytes : int
        Maximum size of a parcel. Does not affect the log files.

    Raises
    ------
    InvalidTimestampError, MessageSizeTooLargeError
        The topic config does not permit a batch.
    """
    return pack_block(spec, build_block(spec, number), parcel_bytes)


def pack_block(
    spec: Spec,
    block: Block,
    parcel_bytes: int = PARCEL_BYTES,
    *,
    keys: BytesColumn | None = None,
) -> Iterator[Parcel]:
    """Yield the parcels of a generated block; see `build_parcels`.

    Parameters
    ----------
    keys : BytesColumn, optional
        Keys of the records, if a population provides them.
    """
    drafts = {partition: _Draft(parcel_bytes) for partition in _partitions(spec, block)}
    for partition, kind, producer, at_ms, batch in _arrivals(spec, block, keys):
        drafts[partition].add(kind, producer, at_ms, batch)
    for partition, draft in drafts.items():
        for part, (entries, batches) in enumerate(draft.finish()):
            yield Parcel(partition, block.number, part, entries, batches)


def _partitions(spec: Spec, block: Block) -> list[int]:
    if block.number == 0:
        return list(range(spec.partitions))
    partitions: list[int] = np.unique(block.partition).tolist()
    return partitions


class _Draft:
    """Builds the parcels of a partition."""

    def __init__(self, parcel_bytes: int) -> None:
        self._parcel_bytes = parcel_bytes
        self._done: list[tuple[bytes, bytes]] = []
        self._entries: list[tuple[int, int, int, int]] = []
        self._batches: list[bytes] = []
        self._size = 0

    def add(self, kind: int, producer: int, at_ms: int, batch: bytes) -> None:
        if self._batches and self._size + len(batch) > self._parcel_bytes:
            self._close()
        self._entries.append((kind, producer, len(batch), at_ms))
        self._batches.append(batch)
        self._size += len(batch)

    def finish(self) -> list[tuple[bytes, bytes]]:
        if self._entries or not self._done:
            self._close()
        return self._done

    def _close(self) -> None:
        entries = np.array(self._entries, ENTRY).tobytes()
        self._done.append((entries, b"".join(self._batches)))
        self._entries, self._batches, self._size = [], [], 0


def _arrivals(
    spec: Spec, block: Block, keys: BytesColumn | None
) -> Iterator[tuple[int, int, int, int, bytes]]:
    """Yield partition, kind, producer, time and batch of each append, in order."""
    markers = zip(*(column.tolist() for column in block.markers), strict=True)
    marker = next(markers, None)
    for first, partition, producer, at_ms, batch in _sealed_batches(spec, block, keys):
        # A transaction ends with a batch, so no marker is within a batch.
        while marker is not None and marker[0] < first:
            yield _end(marker)
            marker = next(markers, None)
        yield partition, DATA, producer, at_ms, batch
    while marker is not None:
        yield _end(marker)
        marker = next(markers, None)


def _end(marker: tuple[int, int, int, int, bool, int]) -> tuple[int, int, int, int, bytes]:
    _, partition, producer, _, commit, at_ms = marker
    return partition, COMMIT if commit else ABORT, producer, at_ms, b""


def _sealed_batches(
    spec: Spec, block: Block, keys: BytesColumn | None
) -> Iterator[tuple[int, int, int, int, bytes]]:
    """Yield first sequence, partition, producer, time and bytes of each batch."""
    config, codec = effective_config(spec.topic_configs), Codec.from_name(spec.batches.codec)
    keys = _keys(block) if keys is None else keys
    values, headers = _values(block), version_headers(spec.versions.header, block)
    starts = np.flatnonzero(np.diff(block.batch, prepend=-1))
    stops = np.append(starts[1:], len(block))
    facts = (block.sequence, block.partition, block.producer, block.appended)
    rows = (starts, stops, *(column[starts] for column in facts))
    for start, stop, sequence, partition, producer, at_ms in zip(
        *(row.tolist() for row in rows), strict=True
    ):
        records = RecordArrays(
            keys.slice(start, stop),
            values.slice(start, stop),
            block.timestamp[start:stop],
            headers.slice(start, stop),
        )
        batch = records.draft(at_ms).seal(codec, _placement(config, at_ms)).data
        yield sequence, partition, producer, at_ms, bytes(batch)


def _placement(config: LogConfig, at_ms: int) -> Placement:
    return Placement(config, 0, LEADER_EPOCH, at_ms)


def _keys(block: Block) -> BytesColumn:
    count, width = block.key.shape
    return BytesColumn(
        block.key.reshape(-1),
        np.arange(count, dtype=np.int64) * width,
        np.full(count, width, np.int32),
    )


def _values(block: Block) -> BytesColumn:
    sizes = np.diff(block.value.ends).astype(np.int32)
    sizes[block.tombstone] = -1
    return BytesColumn(block.value.data, block.value.ends[:-1], sizes)


def version_headers(name: str, block: Block) -> BytesColumn:
    """Return the encoded headers of each record: the version header or no header."""
    pieces = [np.zeros(1, np.uint8)]  # a header count of 0
    starts, sizes = np.zeros(len(block), np.int64), np.ones(len(block), np.int32)
    versions, used = block.version_values(), 1
    for form, value_size in ((VERSION, 8), (MALFORMED_VERSION, MALFORMED_BYTES)):
        rows = np.flatnonzero(block.version_form == form)
        before = np.frombuffer(_before_value(name, value_size), np.uint8)
        size = len(before) + value_size
        encoded = np.empty((len(rows), size), np.uint8)
        encoded[:, : len(before)] = before
        positions = versions.ends[rows][:, None] + np.arange(value_size)
        encoded[:, len(before) :] = versions.data[positions]
        pieces.append(encoded.reshape(-1))
        starts[rows] = used + size * np.arange(len(rows))
        sizes[rows] = size
        used += size * len(rows)
    return BytesColumn(np.concatenate(pieces), starts, sizes)


def _before_value(name: str, value_size: int) -> bytes:
    """Return the bytes that precede the value of a record's only header."""
    key = name.encode()
    return encode_varint(1) + encode_varint(len(key)) + key + encode_varint(value_size)
