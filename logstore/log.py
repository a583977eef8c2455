"""A partition's log: append, roll, read, and the swap of cleaned segments.

One lock guards everything that changes the log. Readers take an immutable view of the
segments and the published end offset, and hold no lock while they read. The log starts no
thread and never calls the cleaner; the cleaner asks for segments and hands back others through
`replace_segments`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from logstore.errors import InvalidRecordError, KafkaStorageError
from logstore.fetch import FetchResult, Isolation, ListedOffset, LogReader
from logstore.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    file_name,
)
from logstore.record.batch import RecordBatch, build_batch, seal_batch
from logstore.record.codecs import Codec
from logstore.record.records import SMALL_BATCH_RECORDS, Header, Record
from logstore.recovery import apply_and_index
from logstore.runtime.environment import VERIFY
from logstore.segment import BatchExtent, LogSegment, RollReason
from logstore.types import NO_TIMESTAMP, AppendOrigin, TimestampType, TopicPartition
from logstore.validate import (
    check_batch_size,
    check_keys,
    check_replicated_batches,
    check_timestamps,
    codec_level,
    prepare_leader_batch,
    target_codec,
    timestamps_in_bounds,
    whole_batches,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from logstore.config import LogConfig
    from logstore.epochs import LeaderEpochCache
    from logstore.loader import Finding
    from logstore.producer_state import ProducerStateManager
    from logstore.record.columns import BytesColumn
    from logstore.runtime import Runtime
    from logstore.segments import LogSegments

logger = logging.getLogger(__name__)


class NewRecord(NamedTuple):
    """A record to append; a timestamp of None means the log's clock."""

    key: bytes | None
    value: bytes | None
    timestamp: int | None = None
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True, slots=True)
class AppendInfo:
    """What an append did.

    Attributes
    ----------
    first_offset, last_offset : int
        Offsets assigned, both inclusive; -1 when nothing was appended.
    max_timestamp : int
        Largest timestamp stored, in ms.
    log_append_time : int
        The time stamped on a LogAppendTime topic, else -1.
    records : int
        Records appended.
    size_bytes : int
        Bytes written to the `.log`.
    roll_reason : RollReason or None
        Why a new segment was started first, if one was.
    """

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time: int
    records: int
    size_bytes: int
    roll_reason: RollReason | None


NOTHING_APPENDED = AppendInfo(-1, -1, NO_TIMESTAMP, NO_TIMESTAMP, 0, 0, None)


class _Deletion(NamedTuple):
    due_ms: int
    segment: LogSegment


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
            The disk failed.

        Notes
        -----
        Up to 64 records are encoded in plain Python, more by a kernel.
        """
        if not records:
            return NOTHING_APPENDED
        now_ms = self.runtime.clock.now_ms()
        timestamps = [now_ms if r.timestamp is None else r.timestamp for r in records]
        if len(records) > SMALL_BATCH_RECORDS:
            import numpy as np

            from logstore.record.columns import BytesColumn, headers_column

            headers = (
                headers_column([r.headers for r in records], len(records))
                if any(r.headers for r in records)
                else None
            )
            return self.append_columns(
                BytesColumn.from_list([r.key for r in records]),
                BytesColumn.from_list([r.value for r in records]),
                np.array(timestamps, np.int64),
                headers,
                codec,
            )
        null_rows = [row for row, record in enumerate(records) if record.key is None]
        with self.lock:
            config = self.config
            check_keys(null_rows, config)
            check_timestamps(timestamps, config, now_ms)
            base = self._log_end_offset
            stored = target_codec(config, codec)
            data = build_batch(
                [
                    Record(base + row, timestamp, record.key, record.value, record.headers)
                    for row, (record, timestamp) in enumerate(zip(records, timestamps, strict=True))
                ],
                codec=stored,
                level=codec_level(config, stored),
                timestamp_type=config.message_timestamp_type,
                append_time=now_ms,
                partition_leader_epoch=self.leader_epoch,
            )
            check_batch_size(len(data), config)
            return self._append_leader_batch(data, now_ms)

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
        import numpy as np

        from logstore.record.columns import encode_section, headers_column

        count = len(values)
        if len(keys) != count:
            raise InvalidRecordError(f"{len(keys)} keys do not fit {count} values")
        if count == 0:
            return NOTHING_APPENDED
        now_ms = self.runtime.clock.now_ms()
        if timestamps is None:
            timestamps = np.full(count, now_ms, np.int64)
        if headers is None:
            headers = headers_column(None, count)
        if len(timestamps) != count or len(headers) != count:
            raise InvalidRecordError(f"timestamps and headers must have {count} rows each")
        first_timestamp = int(timestamps[0])
        section = encode_section(timestamps, keys, values, headers, first_timestamp)
        with self.lock:
            config = self.config
            if config.compact:
                check_keys((keys.sizes < 0).nonzero()[0].tolist(), config)
            largest = int(timestamps.max())
            if not timestamps_in_bounds(int(timestamps.min()), largest, config, now_ms):
                check_timestamps(timestamps.tolist(), config, now_ms)
            append_time = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
            stored = target_codec(config, codec)
            data = seal_batch(
                section,
                codec=stored,
                level=codec_level(config, stored),
                base_offset=self._log_end_offset,
                last_offset_delta=count - 1,
                record_count=count,
                base_timestamp=first_timestamp,
                max_timestamp=now_ms if append_time else largest,
                timestamp_type=config.message_timestamp_type,
                partition_leader_epoch=self.leader_epoch,
            )
            check_batch_size(len(data), config)
            return self._append_leader_batch(data, now_ms)

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
            The disk failed.
        """
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

    def _append_leader_batch(self, data: bytes, now_ms: int) -> AppendInfo:
        return self._append_batches([RecordBatch(data)], now_ms)

    def _append_batches(self, batches: Sequence[RecordBatch], now_ms: int) -> AppendInfo:
        """Write validated batches with offsets in place. The lock is held."""
        self._check_open()
        headers = [batch.header for batch in batches]
        largest = max(headers, key=lambda header: header.max_timestamp)
        size = sum(len(batch.data) for batch in batches)
        last_offset = headers[-1].last_offset
        reason = self.active_segment.roll_reason(size, largest.max_timestamp, last_offset, now_ms)
        if reason is not None:
            self.roll(headers[0].base_offset)
        for header in headers:
            self.epochs.assign(header.partition_leader_epoch, header.base_offset)
        segment = self.active_segment
        segment.append(
            [BatchExtent.of(header) for header in headers], [batch.data for batch in batches]
        )
        self._log_end_offset = last_offset + 1
        for batch in batches:
            apply_and_index(segment, self.producer_state, batch)
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
        with self.lock:
            self._check_open()
            base = max(expected_next_offset or 0, self._log_end_offset)
            active = self.active_segment
            assert base >= active.base_offset, "a roll never goes back"
            if base == active.base_offset:
                assert active.size_bytes == 0, "only an empty segment is replaced at its base"
                self.segments.remove(base)
                active.delete_if_exists()
            self._delete_stale_files(base)
            if base != active.base_offset:
                active.on_become_inactive()
            self.producer_state.map_end_offset = base
            self.producer_state.take_snapshot()
            segment = LogSegment(self.runtime, self.directory, base, self.config, create=True)
            self.segments.add(segment)
            self._log_end_offset = base
            self.flush(base)
            if VERIFY:
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

    def flush(self, up_to: int | None = None) -> None:
        """Make everything below `up_to` (exclusive; the log end by default) durable."""
        with self.lock:
            target = self._log_end_offset if up_to is None else up_to
            if target <= self.recovery_point:
                return
            try:
                for segment in self.segments.between(self.recovery_point, target):
                    segment.flush()
                self.runtime.fs.sync_dir(self.directory)
            except OSError as error:
                raise KafkaStorageError(f"{self.directory}: cannot flush: {error}") from error
            self.recovery_point = target

    def close(self) -> None:
        """Flush, snapshot the producers, trim and close every file.

        Files that were scheduled for deletion are removed now.
        """
        with self.lock:
            if self._closed:
                return
            self.flush()
            self.producer_state.take_snapshot()
            for segment in self.segments:
                segment.close()
            self.delete_expired_files(force=True)
            self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise KafkaStorageError(f"{self.topic_partition}: the log is closed")

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
        then `.swap` is stripped and the directory synced. Offsets do not change.
        """
        with self.lock:
            self._check_open()
            old = sorted(
                (s for s in old_segments if s.base_offset in self.segments),
                key=lambda s: s.base_offset,
            )
            new = sorted(new_segments, key=lambda s: s.base_offset)
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
        with self.lock:
            now_ms = self.runtime.clock.now_ms()
            due = [d for d in self._deletions if force or d.due_ms <= now_ms]
            self._deletions = [d for d in self._deletions if d not in due]
            for deletion in due:
                deletion.segment.delete_if_exists()
            return len(due)

    def _check(self) -> None:
        """Assert every invariant that ties segments and offsets together."""
        view = self.segments.view
        assert view, "a log has at least one segment"
        for segment, following in zip(view, view[1:], strict=False):
            assert segment.base_offset < following.base_offset
        assert view[0].base_offset <= self.log_start_offset or len(view) == 1
        assert self.log_start_offset <= self._high_watermark <= self._log_end_offset
        assert self.active_segment.base_offset <= self._log_end_offset
        assert self.recovery_point <= self._log_end_offset
        assert self.last_stable_offset <= self._high_watermark
