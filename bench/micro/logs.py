"""Generate logs of a given shape and size to be cleaned. Equal seeds give equal bytes.

The key distribution is skewed: the rank is `keys × u²` for a uniform `u`. The number of keys is
chosen so that the given fraction of records survives. Segments are written as files and opened
once, so that recovery creates their indexes. Both contestants clean copies of the same directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from logstore.broker import Broker
from logstore.manager.topics import TopicStore
from logstore.record import layout
from logstore.record.batch import seal_batch
from logstore.record.codecs import Codec
from logstore.record.columns import BytesColumn, encode_batches
from logstore.record.control import (
    ControlType,
    EndTxnMarker,
    encode_control_key,
    encode_end_txn_value,
)
from logstore.record.records import Header, Record, encode_records
from logstore.runtime import DiskFileSystem, FixedWallClock
from logstore.storage.checkpoint.offsets import CLEANER_OFFSETS, OffsetCheckpoint
from logstore.storage.log.drafts import NewRecord
from logstore.types import TopicPartition

TOPIC = "bench"
START_MS = 1_700_000_000_000
CLEANED_AT_MS = START_MS + 3_600_000
"""Wall time of the cleaning pass, after all records and before any tombstone expires."""

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

PIECE_BYTES = 16 * MIB
"""Approximate size of generated pieces, at most a quarter of a segment."""

POOL_BYTES = 8 * MIB
"""Size of the pool of random bytes or words. Values are slices of it."""

RECORD_OVERHEAD = 9
"""Approximate size of a record without key and value."""

TOMBSTONE_SHARE = 0.05
TRANSACTION_EVERY = 10
"""In a mixed log, every tenth batch is a transaction, and every fifth one is aborted."""
ABORT_EVERY = 5
_HEADERS = ((), (("trace", b"0123456789abcdef"),), (("kind", b"update"), ("note", None)))


@dataclass(frozen=True)
class LogShape:
    """The shape of a log.

    Attributes
    ----------
    value_bytes : int
        Mean value size. Sizes are uniform from 0 to twice that.
    survivors : float
        Approximate fraction of the records in the dirty section that survive cleaning.
    batch_records : int
        Mean number of records per batch. Numbers are uniform from 1 to almost twice that.
    total_bytes : int
        Approximate size of the closed segments before compression.
    partitions : int
        Number of partitions of this size.
    codec : str
        Codec of every batch. With compression, values are words instead of random bytes.
    mixed : bool
        Whether 2/3 of the records have headers, 5 % are tombstones, every tenth batch is a
        transaction, and keys have 4 to 64 bytes.
    strategy : str
        `compaction.strategy` of the topic: offset, timestamp, or header (with versions).
    clean_tail : int
        Size of the clean section relative to the dirty section. Its keys are distinct.
    """

    value_bytes: int
    survivors: float
    batch_records: int
    total_bytes: int = 256 * MIB
    partitions: int = 1
    codec: str = "none"
    mixed: bool = False
    strategy: str = "offset"
    clean_tail: int = 0
    seed: int = 1

    @property
    def segment_bytes(self) -> int:
        """`segment.bytes` of the topic, for at least four segments and at most Kafka's default."""
        return min(GIB, max(64 * KIB, self.total_bytes // 4))

    @property
    def configs(self) -> dict[str, str]:
        """Topic configs."""
        configs = {"cleanup.policy": "compact", "segment.bytes": str(self.segment_bytes)}
        if self.strategy != "offset":
            configs["compaction.strategy"] = self.strategy
        if self.strategy == "header":
            configs["compaction.strategy.header"] = "version"
        return configs

    @property
    def record_bytes(self) -> int:
        """Approximate size of a record, including its share of the batch header."""
        key_bytes = 34 if self.mixed else 11
        overhead = RECORD_OVERHEAD + layout.HEADER_SIZE // self.batch_records
        return self.value_bytes + key_bytes + overhead

    @property
    def records(self) -> int:
        """Number of records in a partition."""
        return max(8, self.total_bytes // self.record_bytes)

    @property
    def clean_records(self) -> int:
        """Number of records in the clean section."""
        return self.records * self.clean_tail // (self.clean_tail + 1)


def key_count(records: int, survivors: float) -> int:
    """Return the number of keys for which a fraction `survivors` of the records survives.

    Ranks are `keys × u²`, so the expected number of distinct ranks is an integral of `1 -
    exp(-records × chance)` over the ranks. It increases with the number of keys, which is found by
    bisection.
    """
    edges = np.geomspace(1e-9, 1.0, 4096)  # fractions of the keys, most frequent first

    def distinct(keys: float) -> float:
        middle = np.sqrt(edges[1:] * edges[:-1])
        chance = 0.5 / (
            keys * np.sqrt(middle)
        )  # probability of this rank: the density of u² divided by keys
        return float((-np.expm1(-records * chance) * np.diff(edges)).sum() * keys)

    low, high = 1.0, 1e13
    while high / low > 1.0001:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if distinct(middle) < survivors * records else (low, middle)
    return max(1, round(high))


class _Partition:
    """Generates the records of a partition in pieces, and encodes them as batches."""

    def __init__(self, shape: LogShape, number: int) -> None:
        self._shape = shape
        self._random = np.random.Generator(np.random.Philox(key=[shape.seed, number]))
        self._pool = _words(shape.seed) if shape.codec != "none" else _noise(shape.seed)
        self._keys = key_count(shape.records - shape.clean_records, shape.survivors)
        self._codec = Codec.from_name(shape.codec)
        self._batch_number = 0
        self.next_offset = 0

    def pieces(self) -> Iterator[tuple[int, bytes]]:
        """Yield the pieces. See `pieces_of`."""
        shape, done = self._shape, 0
        size = max(1, min(PIECE_BYTES, shape.segment_bytes // 4) // shape.record_bytes)
        while done < shape.records:
            end = shape.clean_records if done < shape.clean_records else shape.records
            count = min(size, end - done)
            base_offset = self.next_offset
            yield base_offset, self._piece(count, done)
            done += count

    def _piece(self, count: int, done: int) -> bytes:
        shape, random = self._shape, self._random
        ranks = (self._keys * random.random(count) ** 2).astype(np.int64)
        if done < shape.clean_records:
            ranks = np.arange(done, done + count)
        keys = self._keys_of(ranks)
        sizes = random.integers(0, 2 * shape.value_bytes + 1, count, dtype=np.int32)
        starts = random.integers(0, POOL_BYTES - 2 * shape.value_bytes - 1, count)
        if shape.mixed:
            sizes[random.random(count) < TOMBSTONE_SHARE] = -1
        values = BytesColumn(self._pool, starts.astype(np.int64), sizes)
        times = START_MS + self.next_offset // 100 + random.integers(-500, 500, count)
        firsts = self._batches(count)
        if not shape.mixed and self._codec is Codec.NONE and shape.strategy != "header":
            data, _ = encode_batches(
                times, keys, values, None, firsts, first_offset=self.next_offset, leader_epoch=0
            )
            self.next_offset += count
            return bytes(data)
        return b"".join(self._one_by_one(firsts, times, keys, values))

    def _batches(self, count: int) -> np.ndarray:
        """Return the first row of each batch, and the end of the last one."""
        mean = self._shape.batch_records
        sizes = self._random.integers(1, 2 * mean, count)
        ends = np.cumsum(sizes)
        firsts = np.concatenate(([0], ends[ends < count], [count]))
        return np.ascontiguousarray(firsts, np.int64)

    def _keys_of(self, ranks: np.ndarray) -> BytesColumn:
        if self._shape.mixed:
            return BytesColumn.from_list([mixed_key(rank) for rank in ranks.tolist()])
        return BytesColumn.from_list([b"key-%d" % rank for rank in ranks.tolist()])

    def _one_by_one(
        self, firsts: np.ndarray, times: np.ndarray, keys: BytesColumn, values: BytesColumn
    ) -> Iterator[bytes]:
        """Yield batches with codecs, headers or transactions, which columns do not support."""
        for first, last in zip(firsts[:-1].tolist(), firsts[1:].tolist(), strict=True):
            records = [
                Record(
                    self.next_offset + row - first,
                    int(times[row]),
                    keys[row],
                    values[row],
                    self._headers(self.next_offset + row - first),
                )
                for row in range(first, last)
            ]
            yield from self._batch(records)

    def _headers(self, offset: int) -> tuple[Header, ...]:
        headers: tuple[Header, ...] = _HEADERS[offset % 3] if self._shape.mixed else ()
        if self._shape.strategy == "header":
            headers = (("version", (offset ^ 5).to_bytes(8, "big")), *headers)
        return headers

    def _batch(self, records: list[Record]) -> Iterator[bytes]:
        self._batch_number += 1
        transaction, is_last = divmod(self._batch_number, TRANSACTION_EVERY)
        transactional = self._shape.mixed and is_last == 0
        facts = (
            {"producer_id": transaction, "producer_epoch": 0, "base_sequence": 0}
            if transactional
            else {}
        )
        base = records[0].offset
        yield seal_batch(
            encode_records(records, base, records[0].timestamp),
            codec=self._codec,
            base_offset=base,
            last_offset_delta=len(records) - 1,
            record_count=len(records),
            base_timestamp=records[0].timestamp,
            max_timestamp=max(record.timestamp for record in records),
            partition_leader_epoch=0,
            is_transactional=transactional,
            **facts,
        )
        self.next_offset = base + len(records)
        if transactional:
            aborted = transaction % ABORT_EVERY == 0
            yield _marker(self.next_offset, transaction, records[-1].timestamp, aborted=aborted)
            self.next_offset += 1


def mixed_key(rank: int) -> bytes:
    """Return the unique key for a rank, with 4 to 64 bytes."""
    return (b"%d:" % rank).ljust(4 + rank * 0x9E3779B1 % 61, b"k")


def _marker(offset: int, producer_id: int, timestamp: int, *, aborted: bool) -> bytes:
    kind = ControlType.ABORT if aborted else ControlType.COMMIT
    key, value = encode_control_key(kind), encode_end_txn_value(EndTxnMarker(kind, 0))
    return seal_batch(
        encode_records([Record(offset, timestamp, key, value)], offset, timestamp),
        base_offset=offset,
        last_offset_delta=0,
        record_count=1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        partition_leader_epoch=0,
        producer_id=producer_id,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )


def _noise(seed: int) -> np.ndarray:
    return np.frombuffer(np.random.Generator(np.random.Philox(seed)).bytes(POOL_BYTES), np.uint8)


def _words(seed: int) -> np.ndarray:
    """Return JSON fields with varying words, which compress to a third or less."""
    random = np.random.Generator(np.random.Philox(seed))
    letters = np.frombuffer(b"etaoinshrdlucmfw", np.uint8)
    words = [
        letters[random.integers(0, len(letters), size)].tobytes()
        for size in random.integers(3, 10, 500)
    ]
    shape = b'{"name":"%s","city":"%s","state":"%s","updated":true},'
    picks = random.integers(0, len(words), (POOL_BYTES // len(shape) + 1, 3)).tolist()
    pieces = [shape % (words[name], words[city], words[state]) for name, city, state in picks]
    return np.frombuffer(b"".join(pieces)[:POOL_BYTES], np.uint8)


def pieces_of(shape: LogShape, number: int) -> Iterator[tuple[int, bytes]]:
    """Yield (base offset, bytes) of complete batches in order, a few MiB each."""
    return _Partition(shape, number).pieces()


# -- files -------------------------------------------------------------------------------------


def make_log(shape: LogShape, data_dir: Path) -> int:
    """Write a log to a new data directory, close it cleanly, and return its size.

    The active segment of each partition has one record.
    """
    data_dir.mkdir(parents=True)
    clock = FixedWallClock(CLEANED_AT_MS)
    fs = DiskFileSystem(clock)
    TopicStore(fs, str(data_dir)).create(TOPIC, list(range(shape.partitions)), shape.configs)
    written = 0
    for number in range(shape.partitions):
        folder = data_dir / f"{TOPIC}-{number}"
        folder.mkdir()
        written += _write_segments(shape, number, folder)
    with Broker(data_dir, clock=clock) as broker:
        for number in range(shape.partitions):
            broker.roll(TOPIC, number)
            active = NewRecord(b"key-active", b"1", CLEANED_AT_MS)
            broker.log(TOPIC, number).writer.append_records([active])
    if shape.clean_tail:
        _mark_clean(shape, data_dir)
    return written


def _write_segments(shape: LogShape, number: int, folder: Path) -> int:
    written = size = 0
    file = None
    for base_offset, data in pieces_of(shape, number):
        is_dirty = base_offset == shape.clean_records > 0
        if file is None or is_dirty or size + len(data) > shape.segment_bytes:
            if file is not None:
                file.close()
            file = (folder / f"{base_offset:020}.log").open("wb")
            size = 0
        file.write(data)
        size += len(data)
        written += len(data)
    if file is not None:
        file.close()
    return written


def _mark_clean(shape: LogShape, data_dir: Path) -> None:
    """Write the cleaner checkpoint with the first dirty offset of each partition."""
    offsets = {
        TopicPartition(TOPIC, number): shape.clean_records for number in range(shape.partitions)
    }
    fs = DiskFileSystem(FixedWallClock(CLEANED_AT_MS))
    OffsetCheckpoint(fs, f"{data_dir}/{CLEANER_OFFSETS}").write(offsets)
