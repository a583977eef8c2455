"""Splits of a partition: what one task reads, planned so that it need not open the log.

The planner opens a log once and has recovery computed. What it found of each segment (the file,
where to begin and where what counts ends) goes with the split; the task reads those bytes and
nothing else. A cleaning, retention or a deletion may put other files in their place meanwhile.
Such a file has another identity or size, and the task then opens the log itself and goes on from
the offset it had reached.
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
"""Recovery that puts other bytes under a segment's name, in memory only."""


class SegmentFile(NamedTuple):
    """The part of a `.log` file that a split reads: [position, end), in bytes.

    `inode` tells the file from one that takes its name, as does `size`, which only the active
    segment's may outgrow; its is None.
    """

    path: str
    position: int
    end: int
    inode: int
    size: int | None


class Transaction(NamedTuple):
    """Offsets first to last, inclusive, of a producer's transaction that was not committed.

    `last` is None while the transaction is open.
    """

    producer_id: int
    first: int
    last: int | None


@dataclass(frozen=True)
class SegmentSplit:
    """Offsets [start, end) of one partition, read in one go.

    Attributes
    ----------
    files : tuple of SegmentFile
        Where they lie; none if the log must be opened to know.
    uncommitted : tuple of Transaction
        Those that reach into the split, if anybody asked.
    lowest, beyond : int
        Offsets [lowest, beyond) were asked for of the whole partition.
    decompression_limit : int
        Bytes that a compressed section may unfold to.
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
        """Bytes to be read; None if the log must be opened to know."""
        return sum(file.end - file.position for file in self.files) if self.files else None


@dataclass(frozen=True)
class Task(InputPartition):
    """Splits that one task reads, one after another; none where there is nothing at all."""

    splits: tuple[SegmentSplit, ...]


class FileChangedError(KafkaStorageError):
    """A file is no longer the one that was planned with."""


# --- planning -----------------------------------------------------------------------------------


def splits_of(
    log: Log, start_offset: int, end_offset: int, split_bytes: int, *, transactions: bool
) -> Iterator[SegmentSplit]:
    """Yield the splits of [start, end): whole segments, together up to `split_bytes`.

    Parameters
    ----------
    log : Log
        Open; what is appended from now on is not read.
    transactions : bool
        Whether the tasks must know what was not committed.
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


def tasks_of(splits: Iterable[SegmentSplit], task_bytes: int) -> list[Task]:
    """Return the tasks for splits: neighbours together, up to a size.

    A topic of many small partitions is so read by few tasks. A split of unknown size is alone.
    There is one task at least, as Spark wants it.
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
    """Return where segments lie; nothing if what lies there is not what the log was opened on."""
    files = []
    cut = {finding.path for finding in log.findings if finding.action == "truncated_tail"}
    for segment in segments:
        try:
            found = os.stat(segment.log_path)  # noqa: PTH116  # a string is what there is
        except FileNotFoundError:
            if segment.size_bytes:
                return ()
            continue  # recovery put an empty segment here
        end = segment.size_bytes
        may_be_longer = segment is log.active_segment or segment.log_path in cut
        if found.st_size < end or (found.st_size > end and not may_be_longer):
            return ()
        position = 0
        if start > segment.base_offset:
            at = segment.translate_offset(start)
            position = end if at is None else at.position
        size = None if segment is log.active_segment else found.st_size
        files.append(SegmentFile(segment.log_path, position, end, found.st_ino, size))
    return tuple(files)


def _uncommitted(log: Log, start: int, end: int) -> tuple[Transaction, ...]:
    found = [
        Transaction(entry.producer_id, first, None)
        for entry in log.producer_state.entries()
        if (first := entry.current_txn_first_offset) is not None and first < end
    ]
    for segment in log.segments.from_offset(start):
        aborted, complete = segment.collect_aborted_txns(start, end)
        found += [
            Transaction(txn.producer_id, txn.first_offset, txn.last_offset) for txn in aborted
        ]
        if complete:
            break
    return tuple(found)


# --- reading ------------------------------------------------------------------------------------


def stored_batches(
    split: SegmentSplit,
    paths: Sequence[str],
    *,
    committed: bool = False,
    as_stored: bool = False,
) -> Iterator[Stored]:
    """Yield the data records of a split, batch by batch; every CRC is verified.

    Parameters
    ----------
    paths : sequence of str
        The data directories, for when the files have changed since the split was planned.
    committed : bool
        Pass over what was aborted.
    as_stored : bool
        Give what lies in the files in its order there, whatever its offsets: within the bounds of
        what was asked of the partition. Else batches whose offsets do not rise are damage.

    Raises
    ------
    OffsetOutOfRangeError
        Retention took records away since the split was planned.
    CorruptRecordError
        A batch is damaged; names file and position.
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
    """Which batches were not committed."""

    def __init__(self, transactions: Sequence[Transaction]) -> None:
        # Those of one producer follow one another, an open one last.
        self._by_producer: dict[int, list[Transaction]] = {}
        for each in sorted(transactions, key=lambda transaction: transaction.first):
            self._by_producer.setdefault(each.producer_id, []).append(each)

    def uncommitted(self, batch: RecordBatch) -> bool | None:
        """Return True if a batch was aborted, None if its transaction is open, else False."""
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
    """Reads the files of a split, one after another.

    Attributes
    ----------
    next_offset : int
        Behind the last batch that was given.
    """

    def __init__(self, split: SegmentSplit, *, as_stored: bool) -> None:
        self._split = split
        self._as_stored = as_stored
        self.next_offset = 0

    def batches(self) -> Iterator[RecordBatch]:
        """Yield the batches; `FileChangedError` if a file is not the one it was."""
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
        raise FileChangedError(f"{file.path} is gone") from error
    try:
        status = os.fstat(handle)
        if status.st_ino != file.inode or file.size not in (None, status.st_size):
            raise FileChangedError(f"{file.path} is another file")
        yield from _walk(handle, file)
    finally:
        os.close(handle)


def _walk(handle: int, file: SegmentFile) -> Iterator[RecordBatch]:
    position, wanted = file.position, FETCH_BYTES
    while position < file.end:
        size = min(wanted, file.end - position)
        data = os.pread(handle, size, position)
        if len(data) < size:
            raise FileChangedError(f"{file.path} has become shorter")
        start = position
        for batch in walk_buffer(data, file.path, start):
            yield batch
            position += batch.header.size_bytes
        if position == start:
            if size == file.end - position:
                return  # a torn tail, which a log that was closed cleanly may have
            wanted *= 4
        else:
            wanted = FETCH_BYTES
