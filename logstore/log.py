"""A partition's log: append, roll, read, and the swap of cleaned segments.

One lock guards everything that changes the log. Readers take an immutable view of the
segments and the published end offset, and hold no lock while they read. The log starts no
thread and never calls the cleaner; the cleaner asks for segments and hands back others through
`replace_segments`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from logstore.append import (
    NOTHING_APPENDED,
    AppendInfo,
    ColumnsDraft,
    NewRecord,
    Placement,
    RecordsDraft,
    check_producers,
    draft_records,
)
from logstore.errors import KafkaStorageError
from logstore.fetch import FetchResult, Isolation, ListedOffset, LogReader
from logstore.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    file_name,
)
from logstore.record.batch import RecordBatch
from logstore.record.codecs import Codec
from logstore.recovery import apply_to_segment
from logstore.runtime.environment import VERIFY
from logstore.segment import BatchExtent, LogSegment
from logstore.types import NO_TIMESTAMP, AppendOrigin, TimestampType, TopicPartition
from logstore.validate import check_replicated_batches, prepare_leader_batch, whole_batches

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from logstore.config import LogConfig
    from logstore.epochs import LeaderEpochCache
    from logstore.loader import Finding
    from logstore.producer_state import ProducerStateManager
    from logstore.record.columns import BytesColumn
    from logstore.record.records import Record
    from logstore.runtime import Runtime
    from logstore.segments import LogSegments

__all__ = ["AppendInfo", "Log", "NewRecord"]

logger = logging.getLogger(__name__)


class _Deletion(NamedTuple):
    due_ms: int
    segment: LogSegment


class _StorageGuard:
    """Turns an `OSError` inside into a `KafkaStorageError` that takes the log offline."""

    __slots__ = ("_log", "_what")

    def __init__(self, log: Log, what: str) -> None:
        self._log = log
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            self._log.go_offline(f"cannot {self._what}: {error}")
            raise KafkaStorageError(
                f"{self._log.topic_partition}: cannot {self._what}: {error}"
            ) from error


class Log:
    """One partition's log; opened through `logstore.loader.open_log`.

    Thread safety: any thread may read; changes serialise on the log's lock.
    """

    def __init__(
        self,
        runtime: Runtime,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        segments: LogSegments,
        producer_state: ProducerStateManager,
        epochs: LeaderEpochCache,
        *,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        findings: Sequence[Finding] = (),
    ) -> None:
        self.runtime = runtime
        self.directory = directory
        self.topic_partition = topic_partition
        self.config = config
        self.segments = segments
        self.producer_state = producer_state
        self.epochs = epochs
        self.log_start_offset = log_start_offset
        self.recovery_point = recovery_point
        self.findings = tuple(findings)
        self.lock = runtime.lock()
        self._log_end_offset = log_end_offset
        self._high_watermark = log_start_offset
        self._deletions: list[_Deletion] = []
        self._closed = False
        self._offline_reason: str | None = None
        self.reader = LogReader(self)
        self.set_high_watermark(log_end_offset)

    def __repr__(self) -> str:
        return (
            f"Log({self.topic_partition}, offsets [{self.log_start_offset}, "
            f"{self.log_end_offset}), {len(self.segments)} segments)"
        )

    # -- offsets -------------------------------------------------------------------------

    @property
    def log_end_offset(self) -> int:
        """Next offset to assign; exclusive end of the log."""
        return self._log_end_offset

    @property
    def high_watermark(self) -> int:
        """Exclusive end of what consumers see."""
        return self._high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Exclusive end of what is decided: no open transaction below it."""
        unstable = self.producer_state.first_unstable_offset(self._high_watermark)
        return self._high_watermark if unstable is None else min(unstable, self._high_watermark)

    def set_high_watermark(self, offset: int) -> None:
        """Move the high watermark, clamped into [log_start_offset, log_end_offset]."""
        self._high_watermark = min(max(offset, self.log_start_offset), self._log_end_offset)
        self.producer_state.on_high_watermark_updated(self._high_watermark)

    def set_config(self, config: LogConfig) -> None:
        """Obey other settings from the next use on; an existing segment keeps its jitter."""
        with self.lock:
            self.config = config
            for segment in self.segments:
                segment.config = config

    @property
    def active_segment(self) -> LogSegment:
        """The last segment, the only one that takes appends."""
        return self.segments.active

    @property
    def size_bytes(self) -> int:
        """Data bytes of all segments."""
        return self.segments.size_bytes

    @property
    def leader_epoch(self) -> int:
        """The newest leader epoch known, else 0."""
        latest = self.epochs.latest
        return 0 if latest is None else latest.epoch

    # -- append --------------------------------------------------------------------------

    def append_records(self, records: Sequence[NewRecord], codec: Codec = Codec.NONE) -> AppendInfo:
        """Append records as one batch.

        Parameters
        ----------
        records : sequence of NewRecord
            None appends nothing and rolls nothing.
        codec : Codec
            What the producer compresses with; `compression.type` may overrule it.

        Raises
        ------
        InvalidRecordError, InvalidTimestampError, MessageSizeTooLargeError,
        RecordListTooLargeError
            The log is unchanged.
        KafkaStorageError
            The disk failed. If the write itself did, nothing was appended and the log can be
            used on; whatever else fails takes it offline.

        Notes
        -----
        Up to 64 records are encoded in plain Python, more by a kernel.
        """
        if not records:
            return NOTHING_APPENDED
        now_ms = self.runtime.clock.now_ms()
        return self._append_draft(draft_records(records, now_ms), codec, now_ms)

    def append_columns(
        self,
        keys: BytesColumn,
        values: BytesColumn,
        timestamps: NDArray[np.int64] | None = None,
        headers: BytesColumn | None = None,
        codec: Codec = Codec.NONE,
    ) -> AppendInfo:
        """Append columns as one batch: the fast door.

        Parameters
        ----------
        keys, values : BytesColumn
            n rows each; size -1 is null.
        timestamps : (n,) int64, optional
            In ms; the log's clock by default.
        headers : BytesColumn, optional
            Encoded headers, as `logstore.record.columns.headers_column` gives them.

        Raises
        ------
        InvalidRecordError, InvalidTimestampError, MessageSizeTooLargeError,
        RecordListTooLargeError, KafkaStorageError
            As `append_records`.
        """
        if len(values) == 0:
            return NOTHING_APPENDED
        now_ms = self.runtime.clock.now_ms()
        if timestamps is None:
            import numpy as np

            timestamps = np.full(len(values), now_ms, np.int64)
        return self._append_draft(ColumnsDraft(keys, values, timestamps, headers), codec, now_ms)

    def _append_draft(
        self, draft: RecordsDraft | ColumnsDraft, codec: Codec, now_ms: int
    ) -> AppendInfo:
        with self.lock:
            place = Placement(self.config, self._log_end_offset, self.leader_epoch, now_ms)
            return self._append_batches([RecordBatch(draft.seal(codec, place))], now_ms)

    def append_batches(
        self,
        data: bytes,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        leader_epoch: int | None = None,
    ) -> AppendInfo:
        """Append ready-made batches (storage-format §12).

        Parameters
        ----------
        data : bytes
            Whole batches; a torn one at the end is dropped. A client or coordinator gives
            exactly one, whose offsets, leader epoch and perhaps times are set here; a replica
            gives any number, and their bytes are kept.
        leader_epoch : int, optional
            Stamped on a leader's batch; the newest known by default.

        Raises
        ------
        RequestError, CorruptRecordError, UnsupportedFormatError
            The log is unchanged.
        KafkaStorageError
            As `append_records`.
        ValueError
            `leader_epoch` is negative.
        """
        if leader_epoch is not None and leader_epoch < 0:
            raise ValueError(f"a leader epoch cannot be negative: {leader_epoch}")
        batches = whole_batches(data)
        if not batches:
            return NOTHING_APPENDED
        now_ms = self.runtime.clock.now_ms()
        with self.lock:
            if origin is AppendOrigin.REPLICATION:
                check_replicated_batches(batches, self._log_end_offset, self.config)
            else:
                epoch = self.leader_epoch if leader_epoch is None else leader_epoch
                prepared = prepare_leader_batch(
                    batches, origin, self.config, now_ms, self._log_end_offset, epoch
                )
                batches = [RecordBatch(prepared)]
            return self._append_batches(batches, now_ms)

    def _append_batches(self, batches: Sequence[RecordBatch], now_ms: int) -> AppendInfo:
        """Write validated batches with offsets in place. The lock is held."""
        self.check_open()
        markers = check_producers(self.producer_state, batches)
        headers = [batch.header for batch in batches]
        largest = max(headers, key=lambda header: header.max_timestamp)
        size = sum(len(batch.data) for batch in batches)
        last_offset = headers[-1].last_offset
        with self._storage("append"):
            reason = self.active_segment.roll_reason(
                size, largest.max_timestamp, last_offset, now_ms
            )
            if reason is not None:
                self.roll(headers[0].base_offset)
            for header in headers:
                self.epochs.assign(header.partition_leader_epoch, header.base_offset)
            segment = self.active_segment
            segment.append(
                [BatchExtent.of(header) for header in headers], [batch.data for batch in batches]
            )
            self._log_end_offset = last_offset + 1
            if markers:
                for header, marker in zip(headers, markers, strict=True):
                    apply_to_segment(segment, self.producer_state, header, marker)
        self.producer_state.map_end_offset = self._log_end_offset
        self.set_high_watermark(self._log_end_offset)
        if self._log_end_offset - self.recovery_point >= self.config.flush_messages:
            self.flush()
        if VERIFY:
            self._check()
        stamped = largest.timestamp_type is TimestampType.LOG_APPEND_TIME
        return AppendInfo(
            first_offset=headers[0].base_offset,
            last_offset=last_offset,
            max_timestamp=largest.max_timestamp,
            log_append_time=largest.max_timestamp if stamped else NO_TIMESTAMP,
            records=sum(header.record_count for header in headers),
            size_bytes=size,
            roll_reason=reason,
        )

    # -- roll ----------------------------------------------------------------------------

    def roll(self, expected_next_offset: int | None = None) -> LogSegment:
        """Start a new active segment (storage-format §8.4).

        Parameters
        ----------
        expected_next_offset : int, optional
            Base of the new segment when above the log end offset (a replica's gap).

        Returns
        -------
        LogSegment
            The new active segment; an empty active one of the same base is recreated.
        """
        with self.lock, self._storage("roll"):
            self.check_open()
            base = max(expected_next_offset or 0, self._log_end_offset)
            active = self.active_segment
            assert base >= active.base_offset, "a roll never goes back"
            if base == active.base_offset:
                assert active.size_bytes == 0, "only an empty segment is replaced at its base"
                active.delete_if_exists()
            else:
                active.on_become_inactive()
            self._delete_stale_files(base)
            self.producer_state.map_end_offset = base
            self.producer_state.take_snapshot()
            # Before the new file appears: a segment that a crash empties must be the last one.
            # Forced, since trimming changed the indexes even if no record is new.
            self.flush(base, force=base != active.base_offset)
            segment = LogSegment(self.runtime, self.directory, base, self.config, create=True)
            self.segments.add(segment)
            self._log_end_offset = base
            if VERIFY:
                if active.base_offset != base:
                    active._check()
                self._check()
            return segment

    def _delete_stale_files(self, base_offset: int) -> None:
        fs = self.runtime.fs
        for kind in SEGMENT_SUFFIXES:
            path = f"{self.directory}/{file_name(base_offset, kind)}"
            if fs.exists(path):
                logger.warning("newly rolled segment file %s already exists; deleting it", path)
                fs.remove(path)

    # -- read ----------------------------------------------------------------------------

    def read(
        self,
        start_offset: int,
        max_bytes: int,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        min_one_message: bool = False,
    ) -> FetchResult:
        """Read raw batches from `start_offset` on; see `LogReader.read`."""
        return self.reader.read(
            start_offset, max_bytes, isolation=isolation, min_one_message=min_one_message
        )

    def batches(
        self,
        start_offset: int,
        end_offset: int | None = None,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Iterator[RecordBatch]:
        """Yield whole batches that overlap [start, end); see `LogReader.batches`."""
        return self.reader.batches(start_offset, end_offset, isolation=isolation)

    def records(
        self,
        start_offset: int,
        end_offset: int | None = None,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Iterator[tuple[RecordBatch, Record]]:
        """Yield data records in [start, end); see `LogReader.records`."""
        return self.reader.records(start_offset, end_offset, isolation=isolation)

    def offset_for_timestamp(self, target: int) -> ListedOffset | None:
        """Answer a ListOffsets query; see `LogReader.offset_for_timestamp`."""
        return self.reader.offset_for_timestamp(target)

    # -- durability ----------------------------------------------------------------------

    def flush(self, up_to: int | None = None, *, force: bool = False) -> None:
        """Make the log durable and move the recovery point up.

        Parameters
        ----------
        up_to : int, optional
            End of what must be durable, exclusive; the log end by default.
        force : bool
            Sync the active segment even if nothing was appended to it.
        """
        with self.lock:
            self.check_open()
            target = self._log_end_offset if up_to is None else up_to
            if target <= self.recovery_point and not force:
                return
            segments = set(self.segments.between(self.recovery_point, target))
            if force:
                segments.add(self.active_segment)
            with self._storage("flush"):
                for segment in sorted(segments, key=lambda each: each.base_offset):
                    segment.flush()
                self.runtime.fs.sync_dir(self.directory)
            self.recovery_point = max(target, self.recovery_point)

    def close(self) -> None:
        """Flush, snapshot the producers, trim and close every file.

        Files that were scheduled for deletion are removed now. A log that is offline gives up
        its files as they are.

        Raises
        ------
        KafkaStorageError
            The disk failed; the log is offline, and closed by a second call.
        """
        with self.lock:
            if self._closed:
                return
            if self._offline_reason is None:
                with self._storage("close"):
                    # Finished before the flush, so that a clean stop finds trimmed indexes.
                    self.active_segment.on_become_inactive()
                    self.flush(force=True)
                    self.producer_state.take_snapshot()
                    for segment in self.segments:
                        segment.close()
                    self.delete_expired_files(force=True)
            else:
                for segment in (*self.segments, *(d.segment for d in self._deletions)):
                    segment.close_handlers()
            self._closed = True

    @property
    def is_offline(self) -> bool:
        """Whether a failure of the disk put an end to the use of this log."""
        return self._offline_reason is not None

    def check_open(self) -> None:
        """Raise `KafkaStorageError` if the log was closed or is offline."""
        if self._offline_reason is not None:
            raise KafkaStorageError(f"{self.topic_partition} is offline: {self._offline_reason}")
        if self._closed:
            raise KafkaStorageError(f"{self.topic_partition}: the log is closed")

    def _storage(self, what: str) -> _StorageGuard:
        """Take the log offline if a file operation inside fails halfway."""
        return _StorageGuard(self, what)

    def go_offline(self, reason: str) -> None:
        """Refuse all use from now on; only a restart, with recovery, helps."""
        self._offline_reason = reason

    # -- swap ----------------------------------------------------------------------------

    def replace_segments(
        self, new_segments: Sequence[LogSegment], old_segments: Sequence[LogSegment]
    ) -> None:
        """Put cleaned (or split) segments in the place of others (cleaner-semantics §9.1).

        Parameters
        ----------
        new_segments : sequence of LogSegment
            Complete, durable, named `.cleaned`.
        old_segments : sequence of LogSegment
            Those that are gone already (retention) are passed over.

        Notes
        -----
        The order of renames makes every intermediate state recoverable from names alone:
        `.cleaned` becomes `.swap` from the highest base down, the old files become `.deleted`,
        then `.swap` is stripped. Each step waits until the one before is durable, since a disk
        may reorder names: else an index could come without its log, or an old segment stand
        beside the one that replaced it. Offsets do not change.
        """
        with self.lock, self._storage("replace segments"):
            self.check_open()
            old = sorted(
                (s for s in old_segments if s.base_offset in self.segments),
                key=lambda s: s.base_offset,
            )
            new = sorted(new_segments, key=lambda s: s.base_offset)
            self.runtime.fs.sync_dir(self.directory)
            for segment in reversed(new):
                assert segment.suffix == CLEANED_SUFFIX
                segment.change_suffix(SWAP_SUFFIX)
            self.runtime.fs.sync_dir(self.directory)
            for segment in new:
                self.segments.add(segment)
            new_bases = {segment.base_offset for segment in new}
            for segment in old:
                if segment.base_offset not in new_bases:
                    self.segments.remove(segment.base_offset)
                    self.producer_state.delete_snapshot(segment.base_offset)
                self._schedule_deletion(segment)
            self.runtime.fs.sync_dir(self.directory)
            for segment in new:
                segment.change_suffix("")
            self.runtime.fs.sync_dir(self.directory)
            if VERIFY:
                for segment in new:
                    segment._check()
                self._check()

    def _schedule_deletion(self, segment: LogSegment) -> None:
        segment.change_suffix(DELETED_SUFFIX)
        due = self.runtime.clock.now_ms() + self.config.file_delete_delay_ms
        self._deletions.append(_Deletion(due, segment))

    def delete_expired_files(self, *, force: bool = False) -> int:
        """Remove `.deleted` files whose `file.delete.delay.ms` is over; return how many."""
        with self.lock, self._storage("delete segments"):
            now_ms = self.runtime.clock.now_ms()
            due = [d for d in self._deletions if force or d.due_ms <= now_ms]
            self._deletions = [d for d in self._deletions if not (force or d.due_ms <= now_ms)]
            for deletion in due:
                deletion.segment.delete_if_exists()
            return len(due)

    def _check(self) -> None:
        """Assert every invariant that ties segments and offsets together."""
        view = self.segments.view
        assert view, "a log has at least one segment"
        for segment, following in pairwise(view):
            assert segment.base_offset < following.base_offset
        assert view[0].base_offset <= self.log_start_offset or len(view) == 1
        assert self.log_start_offset <= self._high_watermark <= self._log_end_offset
        assert self.active_segment.base_offset <= self._log_end_offset
        assert self.recovery_point <= self._log_end_offset
        assert self.last_stable_offset <= self._high_watermark
