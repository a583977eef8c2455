"""The stored content of a partition: all valid batches with their locations, and damage.

All commands that read use this layer. Opening a partition does not change files. Damaged batches
are skipped and reported. If the broker was opened `as_recovered`, the log is in the state after
recovery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from logstore.record.batch import RecordBatch, stored_rows
from logstore.record.records import Record
from logstore.record.walk import check_place, misplaced, read_batch, walk_headers
from logstore.runtime import OverlayFileSystem
from logstore.storage.loading.views import TRANSIENT
from logstore.storage.log.finding import Finding
from logstore.storage.log.reader import Isolation
from logstore.types import INT64_MAX

if TYPE_CHECKING:
    from logstore.inspect.files import BatchSource
    from logstore.manager.manager import LogManager
    from logstore.record.survey import Damage, SegmentBounds
    from logstore.runtime import FileSystem, Runtime
    from logstore.storage.log.log import Log
    from logstore.storage.segment.segment import LogSegment
    from logstore.types import TopicPartition

Answer = TypeVar("Answer")
Decoded = TypeVar("Decoded")


class HasLogs(Protocol):
    """A broker with logs."""

    @property
    def manager(self) -> LogManager:
        """The broker's logs."""

    @property
    def runtime(self) -> Runtime:
        """The broker's clock, files and threads."""


class StoredBatch(NamedTuple):
    """A valid batch and its location.

    Attributes
    ----------
    path, position, size_bytes : str, int, int
        File, position and size of the batch.
    magic : int
        Magic number in the file. `batch` always has magic 2.
    batch : RecordBatch
        A batch with a valid CRC and decodable records.
    """

    path: str
    position: int
    size_bytes: int
    magic: int
    batch: RecordBatch


class Damaged(NamedTuple):
    """A description of damage, and the damaged file if known."""

    text: str
    path: str | None


class PartitionView:
    """A read-only view of a partition.

    Parameters
    ----------
    broker : HasLogs
        Opened read-only.
    topic_partition : TopicPartition

    Notes
    -----
    Damage is found by reading. Once `batches` is exhausted, all damage is known.
    """

    def __init__(self, broker: HasLogs, topic_partition: TopicPartition) -> None:
        self.broker = broker
        self.topic_partition = topic_partition

    @property
    def log(self) -> Log:
        """The current log, which is reopened after damage."""
        return self.broker.manager.log(self.topic_partition)

    @property
    def files(self) -> FileSystem:
        """The stored files, without the changes in an overlay."""
        fs = self.broker.manager.runtime.fs
        return fs.base if isinstance(fs, OverlayFileSystem) else fs

    @property
    def damages(self) -> tuple[Damage, ...]:
        """Damage found so far."""
        return self.log.damages

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings that opening for writing would repair, including a torn batch at the end."""
        return self.log.findings

    def survey(self) -> Log:
        """Verify all batches now, and return the log without damaged batches.

        Raises
        ------
        LogStoreError
            The log cannot be opened for a reason other than damage.
        """
        return self.broker.manager.registry.survey(self.topic_partition)

    def evaluate(self, question: Callable[[Log], Answer]) -> Answer:
        """Evaluate a function of the log.

        The function is called again if damage can be skipped, or if another reader has reopened the
        log and thus closed its files.

        Raises
        ------
        CorruptionError, KafkaStorageError
            The damage cannot be skipped.
        """
        failures = 0
        while True:
            log = self.log
            try:
                return question(log)
            except TRANSIENT as error:
                failures += 1
                self.reopen(log, failures, error)
            except Exception:
                if self.log is log:
                    raise

    def reopen(self, log: Log, failures: int, error: Exception) -> None:
        """Reopen a log after an error, unless another reader did. Raise the error if that fails.

        Parameters
        ----------
        failures : int
            Number of failures so far, including the current one.
        """
        registry = self.broker.manager.registry
        if self.log is not log or registry.reopen(self.topic_partition, failures, error):
            return
        if self.log is log:  # another reader may have reopened it
            raise error

    def batches(
        self, start_offset: int | None = None, end_offset: int | None = None
    ) -> Iterator[StoredBatch]:
        """Yield the valid batches that overlap [start, end), in log order.

        Parameters
        ----------
        start_offset : int, optional
            [default: the log start offset, because lower offsets are hidden]
        end_offset : int, optional
            [default: the log end offset]
        """
        return (stored for stored, _ in self.decoded(stored_rows, start_offset, end_offset))

    def decoded(
        self,
        decode: Callable[[RecordBatch, int], Decoded],
        start_offset: int | None = None,
        end_offset: int | None = None,
    ) -> Iterator[tuple[StoredBatch, Decoded]]:
        """Yield the batches that `batches` yields, each with its decoded records.

        Parameters
        ----------
        decode : callable
            Called with a batch and the maximum decompressed size in bytes. Raises
            `CorruptRecordError` if a record is invalid; `stored_rows` and `stored_columns` do.
        """
        offset = start_offset
        failures = 0
        while True:
            log = self.log
            try:
                for stored, records in self._walk(decode, offset, end_offset):
                    yield stored, records
                    offset, failures = stored.batch.header.next_offset, 0
            except TRANSIENT as error:
                failures += 1
                self.reopen(log, failures, error)
            else:
                return

    def _walk(
        self,
        decode: Callable[[RecordBatch, int], Decoded],
        start_offset: int | None,
        end_offset: int | None,
    ) -> Iterator[tuple[StoredBatch, Decoded]]:
        log = self.log
        start = log.log_start_offset if start_offset is None else start_offset
        segments = log.segments.from_offset(start)
        log_end = log.log_end_offset  # read last, so that closed segments are below it
        end = log_end if end_offset is None else end_offset
        for segment in segments:
            bounds = log.surveyed.get(segment.log_path)
            if bounds is None:
                limit = INT64_MAX if segment is segments[-1] else log_end
                found = self._plain(log, segment, limit, decode)
            else:
                found = self._surveyed(log, bounds, decode)
            for stored, records in found:
                header = stored.batch.header
                if header.base_offset >= end:
                    if header.base_offset < log_end:
                        return
                    continue  # the offset may be wrong: then the next batch raises the error
                if header.last_offset >= start:
                    yield stored, records

    def _plain(
        self,
        log: Log,
        segment: LogSegment,
        end_offset: int,
        decode: Callable[[RecordBatch, int], Decoded],
    ) -> Iterator[tuple[StoredBatch, Decoded]]:
        """Yield the batches of a segment without known damage, all below `end_offset`."""
        limit = log.config.logstore_decompression_max_bytes
        path, file = segment.log_path, segment.file
        previous = segment.base_offset - 1
        for at in walk_headers(file, path, 0, segment.size_bytes):
            header = at.header
            check_place(header, previous, path, at.position)
            expected, previous = previous + 1, header.last_offset
            if previous >= end_offset:
                raise misplaced(header.base_offset, previous, expected, path, at.position)
            batch = read_batch(file, path, at.position, header.size_bytes)
            batch.ensure_valid()
            records = decode(batch, limit)
            yield StoredBatch(path, at.position, header.size_bytes, header.magic, batch), records

    def _surveyed(
        self, log: Log, bounds: SegmentBounds, decode: Callable[[RecordBatch, int], Decoded]
    ) -> Iterator[tuple[StoredBatch, Decoded]]:
        """Yield the valid batches of a segment with known damage."""
        # Imported only in case of damage, because the import is slow.
        from logstore.record.survey import Damage, survey

        limit = log.config.logstore_decompression_max_bytes
        file = self.files.open(bounds.path)
        try:
            for found in survey(file, bounds, limit):
                if not isinstance(found, Damage):
                    size = found.end_position - found.position
                    stored = StoredBatch(
                        bounds.path, found.position, size, found.magic, found.batch
                    )
                    yield stored, decode(found.batch, limit)
        finally:
            file.close()

    def sources(self, segments: Iterable[LogSegment]) -> Iterator[tuple[BatchSource, int]]:
        """Yield the `.log` files of segments, each with the first visible offset.

        The caller must use each file before requesting the next one.
        """
        from logstore.inspect.files import source_of_segment, sources_of

        log = self.log
        for source in sources_of(self.topic_partition, segments):
            bounds = log.surveyed.get(source.path)
            if bounds is None:
                yield source, log.log_start_offset
                continue
            as_it_lies = source_of_segment(self.files, bounds.path, source)
            try:
                yield as_it_lies, max(log.log_start_offset, bounds.first_offset)
            finally:
                as_it_lies.file.close()

    def records(
        self, start_offset: int | None = None, end_offset: int | None = None
    ) -> Iterator[tuple[StoredBatch, Record]]:
        """Yield the records in [start, end), including control records, with their batches."""
        start = self.log.log_start_offset if start_offset is None else start_offset
        end = INT64_MAX + 1 if end_offset is None else end_offset
        for stored, lists in self.decoded(stored_rows, start_offset, end_offset):
            for rows in lists:
                for row in rows:
                    if start <= row[0] < end:
                        yield stored, Record._make(row)

    def at(self, offset: int) -> tuple[RecordBatch, Record] | None:
        """Return the data record at an offset with its batch, or None. Uses the index.

        Raises
        ------
        CorruptionError, KafkaStorageError
            The record cannot be read.
        """

        def find(log: Log) -> tuple[RecordBatch, Record] | None:
            if offset < log.log_start_offset:
                found = self.records(offset, offset + 1)  # hidden from consumers
                return next(((stored.batch, record) for stored, record in found), None)
            reader = log.reader
            return next(reader.records(offset, offset + 1, isolation=Isolation.LOG_END), None)

        return self.evaluate(find)
