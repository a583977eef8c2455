"""Salvage: copy all valid batches of damaged partitions to a new data directory.

Batches are copied byte for byte into segments with the same base offsets. Only fields without a CRC
(length, magic, base offset, leader epoch) are repaired, using adjacent batches. All other files
(indexes, snapshots, epochs, checkpoints) are rebuilt, so damage to them does not matter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.analysis.copies import unfinished
from logstore.analysis.view import HasLogs, PartitionView, StoredBatch
from logstore.config.broker_config import BrokerConfig
from logstore.config.overrides import effective_config
from logstore.errors import (
    CorruptCheckpointError,
    CorruptRecordError,
    InvalidConfigurationError,
    LogStoreError,
    UnknownTopicOrPartitionError,
)
from logstore.inspect.check.batches import verify_batch
from logstore.inspect.check.findings import ERROR, CheckFinding
from logstore.manager.directories.copying import copy_file
from logstore.manager.topics.store import TopicStore
from logstore.names import METADATA_LOG_DIR, parse_segment_file
from logstore.record import layout
from logstore.record.header import BatchHeader
from logstore.runtime import remove_tree
from logstore.runtime.guard import StorageGuard
from logstore.storage.checkpoint.offsets import (
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    REPLICATION_OFFSETS,
    OffsetCheckpoint,
)
from logstore.storage.checkpoint.shutdown import mark_clean_shutdown
from logstore.storage.checkpoint.topic_id import read_partition_metadata, write_partition_metadata
from logstore.storage.loading.loader import open_log
from logstore.storage.loading.request import LoadRequest
from logstore.storage.log.epochs import LeaderEpochCache
from logstore.storage.segment.segment import LogSegment
from logstore.storage.segment.values import BatchExtent
from logstore.types import decode_topic_id

if TYPE_CHECKING:
    from logstore.runtime import File, FileSystem, Runtime
    from logstore.storage.log.log import Log
    from logstore.types import TopicPartition

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 20
_BROKER_FILES = ("meta.properties", "bootstrap.checkpoint")
"""Files that identify a data directory to its broker."""

_CONTRADICTION = "transaction_state"


class Lost(NamedTuple):
    """A file or range that could not be saved. `reason` is the failed check."""

    path: str
    position: int
    size_bytes: int
    reason: str


class SalvageReport(NamedTuple):
    """Saved and lost data, with the member names used in JSON."""

    partitions: tuple[TopicPartition, ...]
    batches: int
    records: int
    mended: int
    lost: tuple[Lost, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of `logstore salvage`."""
        return {
            "saved": {"records": self.records, "batches": self.batches, "mended": self.mended},
            "lost": [lost._asdict() for lost in self.lost],
            "partitions": [tp._asdict() for tp in self.partitions],
        }


SalvageListener = Callable[["TopicPartition", int, int], None]
"""Called with a partition, the number of completed partitions, and the total."""


def salvage(
    broker: HasLogs,
    partitions: Sequence[TopicPartition],
    fs: FileSystem,
    target: str,
    *,
    progress: SalvageListener | None = None,
) -> SalvageReport:
    """Write all valid batches of partitions to a new data directory.

    Parameters
    ----------
    broker : HasLogs
        Opened read-only with `on_damage="pass_over"`.
    fs : FileSystem
        File system of the target.
    target : str
        New data directory, missing or empty.
    progress : callable, optional

    Raises
    ------
    InvalidConfigurationError
        The target is a file or not empty. Nothing was written.
    KafkaStorageError
        A file operation failed. The output was removed.

    Notes
    -----
    Reads and writes all data once, then reads the output, because opening it as after a crash
    builds the derived files. Requires memory for a chunk of 1 MiB or a batch. Durable on return.
    """
    with unfinished(fs, target):
        run = _Salvage(broker, fs, target)
        for number, tp in enumerate(partitions):
            if progress is not None:
                progress(tp, number, len(partitions))
            run.save(tp)
        run.finish()
    return run.report()


class _Salvage:
    """One run of `salvage`."""

    def __init__(self, broker: HasLogs, fs: FileSystem, target: str) -> None:
        self._broker = broker
        self._fs = fs
        self._target = target
        self._runtime: Runtime = replace(broker.runtime, fs=fs)
        self._offsets: dict[str, dict[TopicPartition, int]] = {
            name: {} for name in (RECOVERY_POINTS, REPLICATION_OFFSETS, LOG_START_OFFSETS)
        }
        self._topic_ids = {
            topic.name: decode_topic_id(topic.id)
            for topic in broker.manager.catalog.topics()
            if topic.id is not None
        }
        self._partitions: list[TopicPartition] = []
        self._lost: list[Lost] = []
        self._batches = self._records = self._mended = 0

    def report(self) -> SalvageReport:
        return SalvageReport(
            tuple(self._partitions),
            self._batches,
            self._records,
            self._mended,
            tuple(self._lost),
        )

    def save(self, tp: TopicPartition) -> None:
        """Save a partition. If it cannot be opened, the entire partition is lost."""
        view = PartitionView(self._broker, tp)
        try:
            directory = self._broker.manager.registry.directory_of(tp)
        except UnknownTopicOrPartitionError:
            return  # stored but without a directory, so empty
        try:
            log = view.survey()
        except LogStoreError as error:
            logger.warning("%s cannot be saved: %s", tp, error)
            self._lost.append(Lost(directory.partition_path(tp), 0, 0, str(error)))
            return
        folder = f"{self._target}/{tp}"
        refused: dict[int, str] = {}
        while True:
            self._fs.make_dirs(folder)
            partition = _Partition(self._runtime, view, log, folder, refused)
            partition.write()
            if partition.has_old_formats:
                end_offset = partition.end_offset
                break
            try:
                start_offset = min(log.log_start_offset, partition.end_offset)
                end_offset = self._derive(tp, log, folder, max(start_offset, partition.first_base))
                break
            except CorruptRecordError as error:
                offset = _offset_at(self._fs, error)
                if error.check != _CONTRADICTION or offset is None or offset in refused:
                    raise
                # The transaction marker was lost, so a broker would reject the log.
                refused[offset] = _CONTRADICTION
                remove_tree(self._fs, folder)
        self._copy_topic_id(view, log, folder)
        self._fs.sync_dir(folder)
        self._partitions.append(tp)
        self._batches += partition.batches
        self._records += partition.records
        self._mended += partition.mended + sum(damage.is_mended for damage in log.damages)
        self._lost += partition.lost
        self._lost += [
            Lost(damage.path, damage.position, damage.size_bytes, damage.check)
            for damage in (*log.damages, *log.torn)
            if not damage.is_mended
        ]
        self._offsets[RECOVERY_POINTS][tp] = end_offset
        self._offsets[REPLICATION_OFFSETS][tp] = end_offset
        if partition.first_base < log.log_start_offset <= end_offset:
            self._offsets[LOG_START_OFFSETS][tp] = log.log_start_offset
        cleaned = directory.cleaner_offset(tp)
        if cleaned is not None:
            entries = self._offsets.setdefault(CLEANER_OFFSETS, {})
            entries[tp] = max(min(cleaned, partition.last_base), partition.first_base)

    def _derive(self, tp: TopicPartition, log: Log, folder: str, log_start_offset: int) -> int:
        """Build the files that are derived from batches, and return the log end offset."""
        opened = open_log(
            self._runtime,
            LoadRequest(
                directory=folder,
                topic_partition=tp,
                config=log.config,
                clean=False,
                log_start_offset=log_start_offset,
            ),
        )
        end_offset = opened.log_end_offset
        opened.close()
        return end_offset

    def _copy_topic_id(self, view: PartitionView, log: Log, folder: str) -> None:
        topic = log.topic_partition.topic
        with suppress(CorruptCheckpointError):  # a broker assigns a new id
            topic_id = read_partition_metadata(view.files, log.directory)
            if topic_id is not None:
                # A broker would reject an id that differs from the stored id or the first one.
                topic_id = self._topic_ids.setdefault(topic, topic_id)
                write_partition_metadata(self._fs, folder, topic_id)

    def finish(self) -> None:
        """Write checkpoints and other files of the data directory."""
        with StorageGuard(None, self._target, "cannot write to it"):
            directories = self._broker.manager.directories
            if any(each.has_file(CLEANER_OFFSETS) for each in directories):
                self._offsets.setdefault(CLEANER_OFFSETS, {})
            for name, offsets in self._offsets.items():
                OffsetCheckpoint(self._fs, f"{self._target}/{name}").write(offsets)
            for name in _BROKER_FILES:
                for directory in directories:
                    if directory.has_file(name):
                        self._copy(f"{directory.path}/{name}", name)
                        break
            catalog = self._broker.manager.catalog
            stored = []
            for name in dict.fromkeys(tp.topic for tp in self._partitions):
                topic = catalog.topic(name)
                if not topic.adopted:
                    numbers = (tp.partition for tp in self._partitions if tp.topic == name)
                    configs = _valid_overrides(topic.configs)
                    partitions = tuple(sorted(numbers))
                    stored.append(replace(topic, partitions=partitions, configs=configs))
            if stored:
                TopicStore(self._fs, self._target).put(stored)
            self._fs.sync_dir(self._target)
            mark_clean_shutdown(self._fs, self._target)

    def _copy(self, path: str, name: str) -> None:
        source = self._broker.runtime.fs
        copy_file(source, path, source.stat(path), self._fs, f"{self._target}/{name}")


class _Partition:
    """Copies the valid batches of a partition to new segments.

    Parameters
    ----------
    refused : dict of int to str
        Reasons for omitting batches, by base offset.
    """

    def __init__(
        self,
        runtime: Runtime,
        view: PartitionView,
        log: Log,
        folder: str,
        refused: dict[int, str],
    ) -> None:
        self._runtime = runtime
        self._view = view
        self._log = log
        self._folder = folder
        self._refused = refused
        self._limit = log.config.logstore_decompression_max_bytes
        self._is_metadata = str(log.topic_partition) == METADATA_LOG_DIR
        self.first_base = self.last_base = log.segments.first.base_offset
        self.end_offset = self.last_base
        self.has_old_formats = False
        self.batches = self.records = self.mended = 0
        self.lost: list[Lost] = []
        self._file: tuple[str, File] | None = None

    def write(self) -> None:
        """Write the segments, closed and durable. The last segment may be empty."""
        segment: LogSegment | None = None
        chunk: list[tuple[BatchExtent, bytes]] = []
        size = 0
        bases: list[int] = []
        for base, stored, data in self._batches():
            if segment is None or base != segment.base_offset:
                if segment is not None:
                    self._end(segment, chunk)
                segment, chunk, size = self._begin(base), [], 0
                bases.append(base)
            header = stored.batch.header
            extent = BatchExtent(header.last_offset, header.max_timestamp, len(data))
            chunk.append((extent, data))
            size += len(data)
            self.batches += 1
            self.records += header.record_count
            self.end_offset = header.next_offset
            if size >= _CHUNK_BYTES:
                _append(segment, chunk)
                size = 0
        if segment is not None:
            self._end(segment, chunk)
        last = self._log.active_segment.base_offset
        if not bases or bases[-1] < last:
            self._end(self._begin(last), [])
            bases.append(last)
            self.end_offset = max(self.end_offset, last)
        self.first_base, self.last_base = bases[0], bases[-1]
        self._runtime.fs.sync_dir(self._folder)
        self._close()

    def _begin(self, base_offset: int) -> LogSegment:
        return LogSegment(self._runtime, self._folder, base_offset, self._log.config, create=True)

    def _end(self, segment: LogSegment, chunk: list[tuple[BatchExtent, bytes]]) -> None:
        _append(segment, chunk)
        segment.resize_indexes()
        segment.on_become_inactive()
        segment.flush()
        source = self._log.segments.floor(segment.base_offset)
        if source is not None:
            segment.set_last_modified_ms(source.last_modified_ms)
        segment.close_handlers()

    def _batches(self) -> Iterator[tuple[int, StoredBatch, bytes]]:
        """Yield the batches to save, each with its segment's base offset and its bytes."""
        start = self._log.segments.first.base_offset
        for stored, epoch in _with_epochs(self._view, self._log, start):
            header = stored.batch.header
            reason = self._refused.get(header.base_offset) or self._wrong(stored)
            if reason is not None:
                self.lost.append(Lost(stored.path, stored.position, stored.size_bytes, reason))
                continue
            parts = parse_segment_file(stored.path.rpartition("/")[2])
            assert parts is not None, stored.path
            if stored.magic != layout.MAGIC:
                self.has_old_formats = True
                yield parts.base_offset, stored, self._read_bytes(stored)
                continue
            batch = stored.batch
            if epoch != header.partition_leader_epoch:
                batch = batch.with_place(header.base_offset, epoch)
                self.mended += 1
            yield parts.base_offset, stored, batch.data

    def _read_bytes(self, stored: StoredBatch) -> bytes:
        if self._file is None or self._file[0] != stored.path:
            self._close()
            self._file = stored.path, self._view.files.open(stored.path)
        return self._file[1].read(stored.position, stored.size_bytes)

    def _close(self) -> None:
        if self._file is not None:
            self._file[1].close()
            self._file = None

    def _wrong(self, stored: StoredBatch) -> str | None:
        """Return the first check of severity `error` that a batch fails, or None if it is valid."""
        if stored.magic != layout.MAGIC:
            return None
        for row in verify_batch(stored.batch, self._limit, is_metadata=self._is_metadata):
            if isinstance(row, CheckFinding) and row.severity == ERROR:
                return row.check
        return None


def _valid_overrides(configs: Mapping[str, str]) -> dict[str, str]:
    """Return the valid config overrides of a topic."""
    valid: dict[str, str] = {}
    for key, value in configs.items():
        try:
            effective_config(valid | {key: value}, BrokerConfig())
        except InvalidConfigurationError as error:
            logger.warning("left out an invalid configuration: %s", error)
        else:
            valid[key] = value
    return valid


def _append(segment: LogSegment, chunk: list[tuple[BatchExtent, bytes]]) -> None:
    segment.append([extent for extent, _ in chunk], [data for _, data in chunk])
    chunk.clear()


def _with_epochs(
    view: PartitionView, log: Log, start_offset: int
) -> Iterator[tuple[StoredBatch, int]]:
    """Yield batches with their correct leader epochs.

    No CRC covers the epoch. Epochs never decrease, so an epoch that is not between its neighbours
    is wrong. The partition's epoch file or the previous batch determines the correct epoch.
    """
    known: LeaderEpochCache | None = None
    with suppress(CorruptCheckpointError):
        known = LeaderEpochCache(view.files, log.directory)
    low = -1  # the epoch of the previous batch
    waiting: StoredBatch | None = None

    def right_epoch(stored: StoredBatch, following: int | None) -> int:
        stored_epoch = stored.batch.header.partition_leader_epoch
        is_odd = stored_epoch < low or (following is not None and low <= following < stored_epoch)
        if following is None and known is not None and known.latest is not None:
            is_odd = is_odd or stored_epoch > known.latest.epoch
        if not is_odd:
            return stored_epoch
        expected = -1
        for entry in known.entries if known is not None else ():
            if entry.start_offset <= stored.batch.header.base_offset:
                expected = entry.epoch
        return max(low, expected if following is None else min(expected, following))

    for stored in view.batches(start_offset):
        if waiting is not None:
            low = right_epoch(waiting, stored.batch.header.partition_leader_epoch)
            yield waiting, low
        waiting = stored
    if waiting is not None:
        yield waiting, right_epoch(waiting, None)


def _offset_at(fs: FileSystem, error: CorruptRecordError) -> int | None:
    """Return the base offset of the batch that raised an error, or None if unknown."""
    if error.path is None or error.position is None:
        return None
    file = fs.open(error.path)
    try:
        data = file.read(error.position, layout.HEADER_SIZE)
    finally:
        file.close()
    return BatchHeader.unpack_from(data).base_offset if len(data) == layout.HEADER_SIZE else None
