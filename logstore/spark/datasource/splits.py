"""Splits of partitions, planned so that tasks need not open the log.

The planner opens a log once and computes its recovery. A split lists the file and the valid byte
range of each segment, and the task only reads these ranges. If cleaning, retention or a deletion
replaces a file, its inode or size differs. The task then opens the log itself and continues at its
current offset.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import InputPartition

from logstore.broker import Broker
from logstore.errors import (
    CorruptRecordError,
    InvalidRecordError,
    KafkaStorageError,
)
from logstore.record.walk import check_place, walk_buffer
from logstore.spark.datasource.arrow import Stored
from logstore.storage.log.reader import FETCH_BYTES, Isolation
from logstore.types import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logstore.record.batch import RecordBatch
    from logstore.record.columns import RecordColumns
    from logstore.storage.log.log import Log
    from logstore.storage.segment.segment import LogSegment

_MOVES_BYTES = frozenset({"finished_swap", "split_segment"})
"""Recovery actions that replace the bytes of a segment, but only in memory."""


class SegmentFile(NamedTuple):
    """The byte range [position, end) of a `.log` file.

    `inode` and `size` identify the planned file, so that a replacement is detected. `size` is None
    for the active segment, which may grow.
    """

    path: str
    position: int
    end: int
    inode: int
    size: int | None


class Transaction(NamedTuple):
    """Offsets [first, last] of an aborted or open transaction.

    `last` is None while the transaction is open.
    """

    producer_id: int
    first: int
    last: int | None


@dataclass(frozen=True)
class SegmentSplit:
    """Offsets [start, end) of a partition that are read together.

    Attributes
    ----------
    files : tuple of SegmentFile
        Files that contain the offsets. Empty if the log must be opened.
    uncommitted : tuple of Transaction
        Uncommitted transactions that overlap the split, if requested.
    lowest, beyond : int
        The range of offsets [lowest, beyond) requested from the partition.
    decompression_limit : int
        Maximum decompressed size of a batch, in bytes.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    files: tuple[SegmentFile, ...] = ()
    uncommitted: tuple[Transaction, ...] = ()
    lowest: int = 0
    beyond: int = INT64_MAX
    decompression_limit: int = 0

    @property
    def size_bytes(self) -> int | None:
        """Number of bytes to read, or None if the log must be opened."""
        return sum(file.end - file.position for file in self.files) if self.files else None


@dataclass(frozen=True)
class Task(InputPartition):
    """Splits that a task reads in order. Empty if there is nothing to read."""

    splits: tuple[SegmentSplit, ...]


class FileChangedError(KafkaStorageError):
    """A planned file has been replaced."""


# --- planning -----------------------------------------------------------------------------------


def plan_splits(
    log: Log, start_offset: int, end_offset: int, split_bytes: int, *, transactions: bool
) -> Iterator[SegmentSplit]:
    """Yield splits of [start, end) that consist of whole segments, up to `split_bytes` each.

    Parameters
    ----------
    log : Log
        Open log. Records appended later are not read.
    transactions : bool
        Whether the tasks need the uncommitted transactions.
    """
    segments = log.segments.view
    steady = not any(finding.action in _MOVES_BYTES for finding in log.findings)
    taken: list[LogSegment] = []
    start, size = start_offset, 0
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        until = end_offset
        if following is not None:
            until = min(following.base_offset, end_offset)
        if until <= start:
            continue
        taken.append(segment)
        size += segment.size_bytes
        next_size = 0 if following is None else following.size_bytes
        if until == end_offset or size + next_size > split_bytes:
            tp = log.topic_partition
            yield SegmentSplit(
                tp.topic,
                tp.partition,
                start,
                until,
                _files(log, taken, start) if steady else (),
                _uncommitted(log, start, until) if transactions else (),
                start_offset,
                end_offset,
                log.config.logstore_decompression_max_bytes,
            )
            taken, start, size = [], until, 0
        if until == end_offset:
            return


def plan_tasks(splits: Iterable[SegmentSplit], task_bytes: int) -> list[Task]:
    """Combine consecutive splits into tasks of up to `task_bytes`.

    This way, a topic with many small partitions needs few tasks. A split of unknown size counts as
    `task_bytes`. There is always at least one task, as Spark requires.
    """
    tasks: list[Task] = []
    taken: list[SegmentSplit] = []
    room = task_bytes
    for split in splits:
        size = task_bytes if split.size_bytes is None else split.size_bytes
        if taken and size > room:
            tasks.append(Task(tuple(taken)))
            taken, room = [], task_bytes
        taken.append(split)
        room -= size
    if taken or not tasks:
        tasks.append(Task(tuple(taken)))
    return tasks


def _files(log: Log, segments: Sequence[LogSegment], start: int) -> tuple[SegmentFile, ...]:
    """Return the files of segments. Empty if they changed since the log was opened."""
    files = []
    cut = {finding.path for finding in log.findings if finding.action == "truncated_tail"}
    for segment in segments:
        try:
            status = os.stat(segment.log_path)  # noqa: PTH116  # the path is a string
        except FileNotFoundError:
            if segment.size_bytes:
                return ()
            continue  # an empty segment added by recovery
        end = segment.size_bytes
        may_be_longer = segment is log.active_segment or segment.log_path in cut
        if status.st_size < end or (status.st_size > end and not may_be_longer):
            return ()
        position = 0
        if start > segment.base_offset:
            at = segment.translate_offset(start)
            position = end if at is None else at.position
        size = None if segment is log.active_segment else status.st_size
        files.append(SegmentFile(segment.log_path, position, end, status.st_ino, size))
    return tuple(files)


def _uncommitted(log: Log, start: int, end: int) -> tuple[Transaction, ...]:
    transactions = [
        Transaction(entry.producer_id, first, None)
        for entry in log.producer_state.entries()
        if (first := entry.current_txn_first_offset) is not None and first < end
    ]
    for segment in log.segments.from_offset(start):
        aborted, complete = segment.collect_aborted_txns(start, end)
        transactions += [
            Transaction(txn.producer_id, txn.first_offset, txn.last_offset) for txn in aborted
        ]
        if complete:
            break
    return tuple(transactions)


# --- reading ------------------------------------------------------------------------------------


def stored_batches(
    split: SegmentSplit,
    paths: Sequence[str],
    *,
    committed: bool = False,
    as_stored: bool = False,
) -> Iterator[Stored]:
    """Yield the data records of a split, one batch at a time. Verifies CRCs.

    Parameters
    ----------
    paths : sequence of str
        Data directories, which are opened if files have changed since planning.
    committed : bool
        Skip batches of aborted and open transactions.
    as_stored : bool
        Yield records in file order, regardless of their offsets, if the offsets were requested from
        the partition. If False, batches whose offsets are not ascending count as damaged.

    Raises
    ------
    OffsetOutOfRangeError
        Retention removed records after planning.
    CorruptRecordError
        A batch is damaged. The message contains its file and position.
    """
    fates = _Fates(split.uncommitted)
    lowest, beyond = split.start_offset, split.end_offset
    if as_stored:
        lowest, beyond = split.lowest, split.beyond
    reader = _FileReader(split, as_stored=as_stored)
    try:
        for batch in reader.batches():
            batch.ensure_valid()
            header = batch.header
            uncommitted = fates.uncommitted(batch)
            if header.is_control or (committed and uncommitted is not False):
                continue
            columns = _columns(batch, split.decompression_limit).between(lowest, beyond)
            if len(columns):
                yield Stored(
                    columns, int(header.timestamp_type), uncommitted, header.delete_horizon_ms
                )
    except FileChangedError:
        pass
    else:
        return
    isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
    start = max(reader.next_offset, split.start_offset)
    with Broker(list(paths), read_only=True) as broker:
        log = broker.log(split.topic, split.partition)
        for batch, columns in log.reader.columns(start, split.end_offset, isolation=isolation):
            header = batch.header
            yield Stored(
                columns,
                int(header.timestamp_type),
                fates.uncommitted(batch),
                header.delete_horizon_ms,
            )


def _columns(batch: RecordBatch, limit: int) -> RecordColumns:
    try:
        return batch.columns(limit)
    except InvalidRecordError as error:
        raise CorruptRecordError(
            str(error), path=batch.path, position=batch.position, check="record_structure"
        ) from error


class _Fates:
    """Looks up whether a batch belongs to an uncommitted transaction."""

    def __init__(self, transactions: Sequence[Transaction]) -> None:
        # A producer's transactions do not overlap, and only the last one may be open.
        self._by_producer: dict[int, list[Transaction]] = {}
        for each in sorted(transactions):
            self._by_producer.setdefault(each.producer_id, []).append(each)

    def uncommitted(self, batch: RecordBatch) -> bool | None:
        """Return True if a batch is aborted, None if its transaction is open, otherwise False."""
        header = batch.header
        if not header.is_transactional or not self._by_producer:
            return False
        known = self._by_producer.get(header.producer_id, [])
        at = bisect_right(known, header.base_offset, key=lambda each: each.first)
        if not at:
            return False
        last = known[at - 1].last
        if last is None:
            return None
        return header.base_offset <= last


class _FileReader:
    """Reads the files of a split in order.

    Attributes
    ----------
    next_offset : int
        Offset after the last batch that was returned.
    """

    def __init__(self, split: SegmentSplit, *, as_stored: bool) -> None:
        self._split = split
        self._as_stored = as_stored
        self.next_offset = 0

    def batches(self) -> Iterator[RecordBatch]:
        """Yield the batches. Raises `FileChangedError` if a file was replaced."""
        if not self._split.files and self._split.start_offset < self._split.end_offset:
            raise FileChangedError(f"{self._split.topic}-{self._split.partition}: recovered")
        previous = -1
        for file in self._split.files:
            for batch in _batches_in(file):
                header = batch.header
                if not self._as_stored:
                    if header.base_offset >= self._split.end_offset:
                        return
                    check_place(header, previous, batch.path, batch.position or 0)
                    previous = header.last_offset
                    if previous < self._split.start_offset:
                        continue
                yield batch
                self.next_offset = header.next_offset


def _batches_in(file: SegmentFile) -> Iterator[RecordBatch]:
    try:
        handle = os.open(file.path, os.O_RDONLY)
    except FileNotFoundError as error:
        raise FileChangedError(f"{file.path} no longer exists") from error
    try:
        status = os.fstat(handle)
        if status.st_ino != file.inode or file.size not in (None, status.st_size):
            raise FileChangedError(f"{file.path} was replaced")
        yield from _walk(handle, file)
    finally:
        os.close(handle)


def _walk(handle: int, file: SegmentFile) -> Iterator[RecordBatch]:
    position, wanted = file.position, FETCH_BYTES
    while position < file.end:
        size = min(wanted, file.end - position)
        data = os.pread(handle, size, position)
        if len(data) < size:
            raise FileChangedError(f"{file.path} was truncated")
        start = position
        for batch in walk_buffer(data, file.path, start):
            yield batch
            position += batch.header.size_bytes
        if position == start:
            if size == file.end - position:
                return  # a torn last batch, which is possible even after a clean shutdown
            wanted *= 4
        else:
            wanted = FETCH_BYTES
