"""Builders of batches, segments and logs in one line each.

A `World` is a runtime with a virtual clock and an empty directory, in memory or on disk; it opens
segments and logs there, and returns the files as a dict.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from logstore.config.log_config import LogConfig
from logstore.record.batch import RecordBatch, build_batch
from logstore.record.codecs import Codec
from logstore.record.control import (
    ControlType,
    EndTxnMarker,
    encode_control_key,
    encode_end_txn_value,
)
from logstore.record.records import Record
from logstore.record.walk import walk_buffer
from logstore.runtime import (
    DiskFileSystem,
    FileSystem,
    MemoryFileSystem,
    OverlayFileSystem,
    ReadOnlyFileSystem,
    Runtime,
    VirtualClock,
)
from logstore.storage.checkpoint.atomic import read_bytes
from logstore.storage.loading.loader import open_log
from logstore.storage.loading.request import LoadRequest
from logstore.storage.log import Log, NewRecord
from logstore.storage.log.epochs import LeaderEpochCache
from logstore.storage.log.recovery import SegmentRecovery, recover_segment
from logstore.storage.producers.state import ProducerStateManager
from logstore.storage.segment import BatchExtent, LogSegment
from logstore.types import TimestampType, TopicPartition

TP = TopicPartition("t", 0)

CODECS = tuple(Codec)

MIB = 1 << 20


# -- batches ---------------------------------------------------------------------------------


def batch(
    first: int,
    last: int | None = None,
    *,
    timestamp: int | Sequence[int] = 1000,
    key: bytes | None = b"k",
    value: bytes | None = None,
    leader_epoch: int = 0,
    **fields: object,
) -> bytes:
    """Build a batch of the offsets `first` to `last`, both inclusive; one record by default.

    Every record has `key` (with its offset appended if it is `b"k"`) and `value` (`v<offset>` by
    default); `timestamp` is one value for all or one for each. Other fields are `build_batch`'s.
    """
    offsets = range(first, (first if last is None else last) + 1)
    times = [timestamp] * len(offsets) if isinstance(timestamp, int) else list(timestamp)
    records = [
        Record(
            offset,
            time,
            b"k%d" % offset if key == b"k" else key,
            b"v%d" % offset if value is None else value,
        )
        for offset, time in zip(offsets, times, strict=True)
    ]
    return build_batch(records, partition_leader_epoch=leader_epoch, **fields)


def data_batch(
    first: int, last: int, producer_id: int, *, sequence: int = 0, epoch: int = 0, **fields: object
) -> bytes:
    """Build a transactional batch of a producer."""
    return batch(
        first,
        last,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
        **fields,
    )


def marker(
    offset: int,
    producer_id: int,
    control_type: ControlType,
    *,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    timestamp: int = 1000,
    leader_epoch: int = 0,
) -> bytes:
    """Build the batch of a transaction marker."""
    value = encode_end_txn_value(EndTxnMarker(control_type, coordinator_epoch))
    return build_batch(
        [Record(offset, timestamp, encode_control_key(control_type), value)],
        partition_leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=epoch,
        is_transactional=True,
        is_control=True,
    )


def abort(offset: int, producer_id: int, **fields: int) -> bytes:
    """Build an ABORT marker."""
    return marker(offset, producer_id, ControlType.ABORT, **fields)


def commit(offset: int, producer_id: int, **fields: int) -> bytes:
    """Build a COMMIT marker."""
    return marker(offset, producer_id, ControlType.COMMIT, **fields)


def old_message(magic: int = 1, offset: int = 0, payload: bytes = b"x" * 20) -> bytes:
    """Build a valid message of an old format, with its own CRC-32."""
    import zlib

    checked = bytes([magic]) + payload
    size = 4 + len(checked)
    crc = zlib.crc32(checked)
    return offset.to_bytes(8, "big") + size.to_bytes(4, "big") + crc.to_bytes(4, "big") + checked


def batches_of(data: bytes) -> list[RecordBatch]:
    """Take a buffer of whole batches apart."""
    return list(walk_buffer(data))


def offsets_of(data: bytes) -> list[int]:
    """Return the offsets of all records in a buffer of batches."""
    return [record.offset for each in walk_buffer(data) for record in each.records()]


# -- segments and logs -----------------------------------------------------------------------


def append(segment: LogSegment, *batches: bytes) -> int:
    """Append batches to a segment in one chunk; return its position."""
    extents = [BatchExtent.of(RecordBatch(data).header) for data in batches]
    return segment.append(extents, list(batches))


def append_columns(segment: LogSegment, *batches: bytes) -> int:
    """Do the same by columns."""
    extents = [BatchExtent.of(RecordBatch(data).header) for data in batches]
    return segment.append(np.array(extents, np.int64), list(batches))


@dataclass
class World:
    """A runtime and an empty directory in it."""

    runtime: Runtime
    directory: str
    clock: VirtualClock

    @property
    def fs(self) -> FileSystem:
        return self.runtime.fs

    def segment(self, base_offset: int, *, create: bool = True, **config: object) -> LogSegment:
        """Create (or open) a segment, by default with indexes of 1000 bytes."""
        config.setdefault("segment_index_bytes", 1000)
        return LogSegment(
            self.runtime, self.directory, base_offset, LogConfig(**config), create=create
        )

    def log(
        self,
        *,
        clean: bool = True,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        runtime: Runtime | None = None,
        **config: object,
    ) -> Log:
        """Open the log in the directory, by default with indexes of 4000 bytes."""
        config.setdefault("segment_index_bytes", 4000)
        return open_log(
            runtime or self.runtime,
            LoadRequest(
                directory=self.directory,
                topic_partition=TP,
                config=LogConfig(**config),
                clean=clean,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
            ),
        )

    def read_only(self) -> Runtime:
        """Return a runtime that computes changes over the same files without making them."""
        fs = OverlayFileSystem(ReadOnlyFileSystem(self.fs), self.clock)
        return Runtime(self.clock, fs, self.runtime.rng)

    def recover(
        self,
        segment: LogSegment,
        state: ProducerStateManager | None = None,
        epochs: LeaderEpochCache | None = None,
    ) -> SegmentRecovery:
        """Recover a segment with a fresh producer state and epoch cache unless given."""
        state = state or ProducerStateManager(self.fs, self.directory, TP)
        epochs = epochs or LeaderEpochCache(self.fs, self.directory)
        return recover_segment(segment, state, epochs)

    def path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def files(self, *suffixes: str) -> dict[str, bytes]:
        """Return the contents of the directory's files, by default of all."""
        return {
            name: read_bytes(self.fs, self.path(name))
            for name in self.fs.list_dir(self.directory)
            if not suffixes or name.endswith(suffixes)
        }

    def write(self, name: str, data: bytes) -> None:
        """Replace (or make) a file."""
        file = self.fs.open(self.path(name), create=True)
        file.truncate(0)
        file.write_at([data], 0)
        file.close()

    def put(self, files: dict[str, bytes]) -> None:
        """Replace the directory's contents by these files."""
        for name in self.fs.list_dir(self.directory):
            self.fs.remove(self.path(name))
        for name, data in files.items():
            self.write(name, data)


def memory_world(seed: int = 0) -> World:
    """Return a world in memory."""
    clock = VirtualClock()
    fs = MemoryFileSystem(clock)
    fs.make_dirs("/data/t-0")
    return World(Runtime(clock, fs, random.Random(seed)), "/data/t-0", clock)


def disk_world(path: Path, seed: int = 0) -> World:
    """Return a world below a directory of the disk."""
    clock = VirtualClock()
    directory = path / "t-0"
    directory.mkdir()
    return World(Runtime(clock, DiskFileSystem(clock), random.Random(seed)), str(directory), clock)


def log_name(base_offset: int) -> str:
    """Return the name of a segment's `.log`."""
    return f"{base_offset:020d}.log"


def records_of(log: Log, start: int | None = None) -> list[Record]:
    """Read all data records of a log."""
    start = log.log_start_offset if start is None else start
    return [record for _, record in log.reader.records(start)]


def offsets_in(log: Log) -> list[int]:
    """Return the offsets of all data records of a log."""
    return [record.offset for record in records_of(log)]


def actions_of(log: Log) -> list[str]:
    """Return the results of opening a log, by stage."""
    return [finding.action for finding in log.findings]


def findings_of(log: Log) -> list[tuple[str, str, str]]:
    """Return the action, the file name and the reason of each result of opening a log."""
    return [
        (each.action, each.path.rpartition("/")[2], each.detail.replace(f"{log.directory}/", ""))
        for each in log.findings
    ]


def fill(log: Log, count: int, start: int = 0) -> None:
    """Append records one by one, their times 1000 above their offsets."""
    for offset in range(start, start + count):
        log.writer.append_records([NewRecord(b"k%d" % offset, b"v", 1000 + offset)])


def read_offsets(
    segment: LogSegment, start: int, max_size: int = 300, **options: object
) -> list[int] | None:
    """Return the offsets of the records that a segment's read gives, None for none."""
    result = segment.read(start, max_size, **options)
    return None if result is None else offsets_of(result.data)


LOG_APPEND_TIME = TimestampType.LOG_APPEND_TIME


def bases_of(log: Log) -> list[int]:
    """Base offsets of the segments."""
    return [segment.base_offset for segment in log.segments]
