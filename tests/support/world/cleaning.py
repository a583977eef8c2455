"""Helpers to fill, clean and read a compacted log."""

from __future__ import annotations

from logstore.cleaner.config import CleanerConfig
from logstore.cleaner.passes.clean import clean_pass
from logstore.cleaner.stats import CleanerStats
from logstore.record.batch import RecordBatch, build_batch
from logstore.record.codecs import Codec
from logstore.record.records import Record
from logstore.storage.log import AppendInfo, Log, NewRecord
from logstore.storage.log.reader import Isolation
from logstore.storage.segment import LogSegment
from logstore.types import AppendOrigin
from tests.support.world.builders import World, memory_world

ALL_KEYS = CleanerConfig(dedupe_buffer_bytes=24 * 100_000)
"""Room for everything that a small test writes."""


def map_of(slots: int, load_factor: float = 0.9, **settings: int) -> CleanerConfig:
    """A cleaner whose map has `slots` slots."""
    return CleanerConfig(dedupe_buffer_bytes=24 * slots, load_factor=load_factor, **settings)


def compacted(world: World, **config: object) -> Log:
    """Open the world's log with policy compact; deleted files go at the next chance."""
    config.setdefault("cleanup_policy", ("compact",))
    return world.log(file_delete_delay_ms=0, **config)


RETENTION_MS = 1000


def opened(**config: object) -> tuple[World, Log]:
    """Return a world in memory and its log, whose tombstones are kept for `RETENTION_MS`."""
    world = memory_world()
    return world, compacted(world, **{"delete_retention_ms": RETENTION_MS} | config)


def versioned(key: bytes, version: int | None, value: bytes | None = b"x") -> tuple:
    """Return a record with its version in the header `v`, without one if that is None."""
    headers = () if version is None else (("v", version.to_bytes(8, "big", signed=True)),)
    return key, value, None, headers


# -- filling -----------------------------------------------------------------------------------


def put(log: Log, *pairs: tuple, codec: Codec = Codec.NONE) -> None:
    """Append one batch of `(key, value[, timestamp[, headers]])`."""
    log.writer.append_records([NewRecord(*pair) for pair in pairs], codec)


def put_each(log: Log, *pairs: tuple) -> None:
    """Append one batch a record."""
    for pair in pairs:
        put(log, pair)


def put_batches(log: Log, *batches: bytes) -> None:
    """Append finished batches with their offsets, as a follower does."""
    log.writer.append_batches(b"".join(batches), AppendOrigin.REPLICATION)


class Producer:
    """A client with a producer id, which counts its sequences.

    Parameters
    ----------
    log : Log
        Where it writes; to be replaced when the log was opened again.

    Attributes
    ----------
    sent : list of bytes
        Its batches, as they were sent.
    """

    def __init__(self, log: Log, producer_id: int, *, epoch: int = 0) -> None:
        self.log = log
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = 0
        self.sent: list[bytes] = []

    def send(
        self, *pairs: int | tuple, transactional: bool = True, codec: Codec = Codec.NONE
    ) -> AppendInfo:
        """Append one batch of `(key, value)`; a number n is the key `b"n"` with some value."""
        now_ms = self.log.runtime.clock.now_ms()
        records = [
            Record(at, now_ms, *((b"%d" % pair, b"v") if isinstance(pair, int) else pair))
            for at, pair in enumerate(pairs)
        ]
        data = build_batch(
            records,
            codec=codec,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            is_transactional=transactional,
        )
        self.sequence += len(pairs)
        self.sent.append(data)
        return self.log.writer.append_batches(data)

    def commit(self) -> AppendInfo:
        """Commit the transaction, as the coordinator does."""
        return self._end(commit=True)

    def abort(self) -> AppendInfo:
        """Abort the transaction, as the coordinator does."""
        return self._end(commit=False)

    def _end(self, *, commit: bool) -> AppendInfo:
        return self.log.writer.append_end_txn_marker(self.producer_id, self.epoch, 0, commit=commit)


# -- cleaning ----------------------------------------------------------------------------------


def drive(steps) -> CleanerStats:
    """Run a pass to its end."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


def run_pass(
    log: Log,
    first_dirty: int = 0,
    upper_bound: int | None = None,
    config: CleanerConfig = ALL_KEYS,
) -> CleanerStats:
    """Run one pass, by default over everything below the active segment."""
    if upper_bound is None:
        upper_bound = log.active_segment.base_offset
    stats = drive(clean_pass(log, config, first_dirty, upper_bound))
    assert sum(stats.fates.values()) >= stats.messages_read
    assert stats.fates["retained"] == stats.messages_written
    log.delete_expired_files()
    return stats


def run_passes(log: Log, config: CleanerConfig, first_dirty: int = 0) -> list[CleanerStats]:
    """Run passes until everything below the active segment is clean."""
    upper_bound = log.active_segment.base_offset
    done = []
    while first_dirty < upper_bound:
        done.append(run_pass(log, first_dirty, upper_bound, config))
        assert done[-1].end_offset > first_dirty
        first_dirty = done[-1].end_offset
    return done


# -- looking -----------------------------------------------------------------------------------


def batches_in(log: Log) -> list[RecordBatch]:
    """All physical batches, including empty ones."""
    return [segment.read_batch(at) for segment in log.segments for at in segment.batches()]


def contents(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of every physical record."""
    return [
        (record.offset, record.key, record.value)
        for batch in batches_in(log)
        for record in batch.records()
    ]


def offsets_in(log: Log) -> list[int]:
    """Offsets of every physical record."""
    return [offset for offset, _, _ in contents(log)]


def ends_in(log: Log) -> list[int]:
    """Last offset of every physical batch."""
    return [batch.header.last_offset for batch in batches_in(log)]


def batch_bases_in(log: Log) -> list[int]:
    """Base offset of every physical batch."""
    return [batch.header.base_offset for batch in batches_in(log)]


def keys_in(log: Log) -> list[int]:
    """Keys, as numbers, of every physical data record."""
    return [
        int(record.key)
        for batch in batches_in(log)
        if not batch.header.is_control
        for record in batch.records()
    ]


def txn_entries(log: Log) -> list[tuple[int, int, int, int]]:
    """Producer, first, last and last stable offset of each transaction index entry."""
    return [tuple(entry) for segment in log.segments for entry in segment.txn_index.entries()]


def aborted_list(log: Log) -> list[tuple[int, int]]:
    """Aborted transactions in a read_committed fetch from the log start."""
    matches: dict[tuple[int, int], None] = {}
    for segment in log.segments:
        start = max(segment.base_offset, log.log_start_offset)
        result = log.reader.read(start, 1 << 30, isolation=Isolation.READ_COMMITTED)
        matches.update(dict.fromkeys(tuple(each) for each in result.aborted))
    return list(matches)


def committed(log: Log, start: int | None = None) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of all records for a read_committed reader."""
    start = log.log_start_offset if start is None else start
    matches = log.reader.records(start, isolation=Isolation.READ_COMMITTED)
    return [(record.offset, record.key, record.value) for _, record in matches]


def closed_size(log: Log) -> int:
    """Bytes of all segments but the active one."""
    return sum(segment.size_bytes for segment in log.segments.view[:-1])


def files_of(log: Log, segment: LogSegment) -> tuple[bytes, bytes, bytes]:
    """`.log`, `.index` and `.timeindex` of a segment, as stored."""
    return tuple(
        bytes_at(log, path)
        for path in (segment.log_path, segment.offset_index.path, segment.time_index.path)
    )


def bytes_at(log: Log, path: str) -> bytes:
    """The contents of one file."""
    fs = log.runtime.fs
    file = fs.open(path)
    data = file.read(0, fs.stat(path).size)
    file.close()
    return data


def snapshot(world: World) -> dict[str, tuple[bytes, int]]:
    """Bytes and modification time of every file in the partition."""
    return {
        name: (data, world.fs.stat(world.path(name)).mtime_ms)
        for name, data in world.files().items()
    }
