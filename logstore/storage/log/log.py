"""The log of a partition: files, offsets, a writer and a reader.

`Log` combines its files (the base class `LocalLog`) with `LogOffsets` (the offsets that readers may
see), `LogWriter` (appends and rolls) and `LogReader`. It adds the operations that involve more than
one of them: retention, deleting records, truncation, moves, swaps and closing.

One lock guards every change of the log. Readers take an immutable view of the segments and the
published end offset, and hold no lock while they read. The log starts no thread and never calls the
cleaner. The cleaner asks for segments and passes cleaned segments to `replace_segments`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING

from logstore.errors import CorruptRecordError, PolicyViolationError, UnsupportedFormatError
from logstore.runtime.environment import VERIFY
from logstore.runtime.lifetime import lasting
from logstore.storage.log.drafts import AppendInfo, NewRecord
from logstore.storage.log.local_log import LocalLog
from logstore.storage.log.offsets import CheckpointOffsets, LogOffsets
from logstore.storage.log.reader import LogReader
from logstore.storage.log.writer import LogWriter
from logstore.types import INT64_MAX, TopicPartition

if TYPE_CHECKING:
    from logstore.config.log_config import LogConfig
    from logstore.record.survey import Damage, SegmentBounds
    from logstore.runtime import Runtime, Unsubscribe
    from logstore.storage.log.epochs import LeaderEpochCache
    from logstore.storage.log.finding import Finding
    from logstore.storage.log.retention import RetentionDecision, RetentionRule
    from logstore.storage.producers.state import ProducerStateManager
    from logstore.storage.segment.segment import LogSegment
    from logstore.storage.segment.segments import LogSegments

__all__ = ["AppendInfo", "CheckpointOffsets", "Log", "NewRecord"]

HIGH_WATERMARK = -1
"""As the offset of a delete-records request, this means everything below the high watermark."""


class Log(LocalLog):
    """The log of a partition. Use `logstore.storage.loading.loader.open_log` to open it.

    Any thread may read. The lock serializes changes. The log manager writes the checkpoints of the
    data directory.

    Attributes
    ----------
    offsets : LogOffsets
        The offsets that limit reads.
    writer : LogWriter
    reader : LogReader
    findings : tuple of Finding
        Findings from opening the log.
    damages : tuple of Damage
        Damage that was skipped when the log was opened; empty unless skipping was requested.
    torn : tuple of Damage
        Bytes after the last valid batch, if every batch was read when the log was opened.
    surveyed : mapping of str to SegmentBounds
        The `.log` files that are only read in part.
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
        high_watermark: int | None = None,
        findings: Sequence[Finding] = (),
        damages: Sequence[Damage] = (),
        torn: Sequence[Damage] = (),
        surveyed: Mapping[str, SegmentBounds] = MappingProxyType({}),
    ) -> None:
        super().__init__(
            runtime,
            directory,
            topic_partition,
            config,
            segments,
            producer_state,
            epochs,
            log_end_offset=log_end_offset,
            recovery_point=recovery_point,
        )
        self.findings = tuple(findings)
        self.damages = tuple(damages)
        self.torn = tuple(torn)
        self.surveyed = surveyed
        self.offsets = LogOffsets(self, log_start_offset, high_watermark)
        self.writer = LogWriter(self, self.offsets)
        self.reader = LogReader(self, self.offsets)
        for member in (self.offsets, self.writer, self.reader):
            self.lifetime.add(member)

    def __repr__(self) -> str:
        return (
            f"Log({self.topic_partition}, offsets [{self.offsets.log_start_offset}, "
            f"{self.log_end.offset}), {len(self.segments)} segments)"
        )

    # -- state ---------------------------------------------------------------------------

    @property
    def active_segment(self) -> LogSegment:
        """The last segment, the only one that is appended to."""
        return self.segments.active

    @property
    def size_bytes(self) -> int:
        """Size of all segments in bytes."""
        return self.segments.size_bytes

    @property
    @lasting
    def log_start_offset(self) -> int:
        """First offset that can be read."""
        return self.offsets.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """Next offset to assign; the exclusive end of the log."""
        return self.log_end.offset

    @property
    def high_watermark(self) -> int:
        """Exclusive end of the records visible to consumers."""
        return self.offsets.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Exclusive end of the decided records: first open transaction or high watermark."""
        return self.offsets.last_stable_offset

    def subscribe(self, listener: Callable[[], object]) -> Unsubscribe:
        """Call a listener whenever the log may have changed.

        This includes appends, rolls, flushes, truncations and changes of the log start, the high
        watermark or the last stable offset. The listener is also called when the log goes offline,
        is closed or deleted. Using the log then raises an error.

        Parameters
        ----------
        listener : callable
            Called in the thread that changes the log, usually with the log's lock held. A listener
            may read offsets, and should leave any other work to a task. Changing the log in a
            listener raises `IllegalStateError`. Errors in a listener are logged. They neither undo
            the change nor prevent calls of other listeners.

        Returns
        -------
        callable
            Ends the subscription.
        """
        with ExitStack() as subscriptions:
            for signal in (self.changed, self.closed):
                subscriptions.callback(signal.subscribe(listener))
            subscriptions.callback(self.went_offline.subscribe(lambda _: listener()))
            return subscriptions.pop_all().close

    # -- closing -------------------------------------------------------------------------

    def close(self) -> CheckpointOffsets | None:
        """Flush, take a producer snapshot, trim and close every file, and delete removed files.

        If the log is offline, its files are closed unchanged. If it goes offline during the close,
        this raises `KafkaStorageError`, and a second call completes the close. Later use raises
        `IllegalStateError`.

        Returns
        -------
        CheckpointOffsets or None
            The final offsets, or None if the log is offline or already closed.
        """
        with self.lock:
            return None if self.lifetime.is_over else self.change(self._close)

    def _close(self) -> CheckpointOffsets | None:
        offsets = None
        if not self.is_offline:
            self._name_log_start()
            self.begin()
            with self.guard("cannot close"):
                self.prepare_shutdown()
                for segment in self.segments:
                    segment.close()
                self.delete_expired_files(force=True)
            offsets = self.offsets.checkpoint()
        self.close_files()
        self.is_unfinished = False
        self.lifetime.end()
        self.closed.emit()
        return offsets

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Flush the files and block changes, so that others can open them; see `files_at_rest`."""
        with self.lock:
            self.check_open()
            self.change(self._name_log_start)
            with self.files_at_rest():
                yield

    def _name_log_start(self) -> None:
        """Roll if the last batch is below the log start but the log continues above.

        This happens if a cleaner removed the records above the batch and a truncation made its
        segment active. The next start would compute the log end from the last batch, ignore the log
        start, and bring deleted records back. The base offset of the new segment prevents that.
        """
        active = self.active_segment
        if self.log_start_offset <= active.base_offset:
            return
        data_end = self.log_end_offset
        with (
            self.guard("cannot read the end"),
            suppress(CorruptRecordError, UnsupportedFormatError),  # readers report it
        ):
            data_end = active.read_next_offset()
        if data_end < self.log_start_offset:
            self.writer.roll_inside()

    # -- retention -----------------------------------------------------------------------

    def delete_records(self, before_offset: int) -> int:
        """Delete the records below an offset (KIP-107).

        Parameters
        ----------
        before_offset : int
            Exclusive end of the records to delete. -1 means the high watermark.

        Returns
        -------
        int
            The low watermark, that is, the new log start offset. It may be higher than requested.

        Raises
        ------
        PolicyViolationError
            `cleanup.policy` does not include `delete`.
        OffsetOutOfRangeError
            `before_offset` is below -1 or above the high watermark.

        Notes
        -----
        Segments entirely below the offset are removed at once. The remaining records below it are
        invisible, but remain in the first segment's file until that segment is removed.
        """
        with self.lock:
            self.raise_log_start(self.deletion_end(before_offset))
            return self.offsets.log_start_offset

    def deletion_end(self, before_offset: int) -> int:
        """Return the exclusive end of the records that a delete-records request deletes.

        Raises the same errors as `delete_records`.
        """
        offsets = self.offsets
        with self.lock:
            self.check_open()
            if not self.config.delete:
                raise PolicyViolationError(
                    f"records of {self.topic_partition} cannot be deleted:"
                    f" cleanup.policy is {','.join(self.config.cleanup_policy) or 'empty'}"
                )
            end = offsets.high_watermark if before_offset == HIGH_WATERMARK else before_offset
            if end < 0:
                raise offsets.out_of_range(end, "is negative")
            if end > offsets.high_watermark:
                raise offsets.out_of_range(end, "is above the high watermark")
            return end

    def raise_log_start(self, offset: int) -> bool:
        """Raise the log start regardless of the policy, and drop the segments entirely below it.

        Followers apply their leader's log start this way. Returns False if the log start is already
        at or above `offset`.

        Raises
        ------
        OffsetOutOfRangeError
            `offset` is above the high watermark. The log is unchanged.
        """
        return self.change(self._raise_log_start, offset)

    def _raise_log_start(self, offset: int) -> bool:
        from logstore.storage.log.retention import RetentionRule  # see `retention_decision`

        is_raised = self.offsets.increment_log_start(offset)
        self._retain(self.retention_decision(rules=(RetentionRule.LOG_START,)))
        return is_raised

    def retention_decision(
        self,
        *,
        rules: Sequence[RetentionRule] | None = None,
        first_dirty_offset: int = 0,
    ) -> RetentionDecision:
        """Decide which segments retention would remove now; see `decide_retention`."""
        # Imported here because retention never runs for many logs.
        from logstore.storage.log.retention import LogBounds, RetentionRule, decide_retention

        offsets = self.offsets
        with self.lock, self.guard("cannot decide about retention"):
            self.check_open()
            return decide_retention(
                self.topic_partition,
                self.segments.view,
                self.config,
                LogBounds(offsets.log_start_offset, offsets.high_watermark, self.log_end.offset),
                self.runtime.clock.now_ms(),
                rules=tuple(RetentionRule) if rules is None else rules,
                first_dirty_offset=first_dirty_offset,
            )

    def next_expiry_ms(self) -> int | None:
        """Return when the next segment expires by time, in Unix milliseconds, or None if never.

        The time may be in the past if the segment is retained for another reason.
        """
        first = self.segments.first
        if not self.config.delete or not self.size_bytes:
            return None  # an empty segment is retained
        from logstore.storage.log.retention import expires_at_ms  # see `retention_decision`

        return expires_at_ms(first, self.config)

    def delete_old_segments(self, *, first_dirty_offset: int = 0) -> RetentionDecision:
        """Run retention once and return the decision."""
        return self.change(self._delete_old_segments, first_dirty_offset)

    def _delete_old_segments(self, first_dirty_offset: int) -> RetentionDecision:
        self.check_open()
        decision = self.retention_decision(first_dirty_offset=first_dirty_offset)
        self._retain(decision)
        return decision

    def _retain(self, decision: RetentionDecision) -> None:
        """Remove the segments of a decision, inside a change."""
        if not decision.removed:
            return
        gone = [self.segments.get(verdict.base_offset) for verdict in decision.removed]
        with self.guard("cannot delete segments"):
            self.check_changeable()
            if decision.rolls:
                self.writer.roll_inside()
                # Otherwise a crash could leave no segment, and the log would restart at 0.
                self.runtime.fs.sync_dir(self.directory)
            self.offsets.increment_log_start(decision.log_start_offset)
            self.remove_segments(segment for segment in gone if segment is not None)
            self.delete_snapshots(verdict.base_offset for verdict in decision.removed)
        if VERIFY:
            self._check()

    # -- truncation ----------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Truncate the log, so that `offset` becomes the log end offset.

        Returns
        -------
        bool
            False if no records are at or above `offset`.

        Raises
        ------
        ValueError
            `offset` is negative.

        Notes
        -----
        A batch that crosses `offset` is dropped entirely, which leaves a gap below `offset`. The
        change is durable on return.
        """
        if offset < 0:
            raise ValueError(
                f"cannot truncate {self.topic_partition} to a negative offset {offset}"
            )
        return self.change(self._truncate_to, offset)

    def _truncate_to(self, offset: int) -> bool:
        with self.guard("cannot truncate"):
            self.check_changeable()
            if offset >= self.log_end.offset:
                self.epochs.truncate_from_end(self.log_end.offset, flush=True)
                return False
            if offset < self.segments.first.base_offset:
                self._truncate_fully(offset, offset)
                return True
            with self.truncation():
                self.cut_segments(offset)
                self.offsets.follow_truncation()
            if VERIFY:
                self._check()
            return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop all records and continue at `offset` with an empty segment.

        Parameters
        ----------
        log_start_offset : int, optional
            At most `offset`. [default: `offset`]

        Raises
        ------
        ValueError
            The log start is negative or above `offset`, or `offset` is above 2⁶³ - 1.
        """
        start = offset if log_start_offset is None else log_start_offset
        if not 0 <= start <= offset <= INT64_MAX:
            raise ValueError(
                f"cannot start {self.topic_partition} at {start} and end it at {offset}"
            )
        self.change(self._truncate_fully, offset, start)

    def _truncate_fully(self, offset: int, start: int) -> None:
        with self.guard("cannot truncate"):
            self.check_changeable()
            with self.truncation():
                self.restart_at(offset)
                self.offsets.restart(start)
            if VERIFY:
                self._check()

    # -- move ----------------------------------------------------------------------------

    def switch_files(self, copy: Log) -> None:
        """Switch to the files of a log that was opened on a copy of this log's files.

        The caller must hold this log at rest. Appends and reads continue with the same object.
        """
        self.take_files_of(copy)
        self.offsets.set_high_watermark(self.offsets.high_watermark)
        if VERIFY:
            self._check()

    # -- interrupts ----------------------------------------------------------------------

    def adopt_recovered(self, copy: Log) -> None:
        """After an interrupt, take over the state of a log that was opened on the same files.

        Readers keep their open files.
        """
        with self.truncation():
            self.take_state_of(copy)
            self.offsets.recover(copy.offsets.log_start_offset)
        # Otherwise, after a crash, truncated records could reappear next to newly appended ones.
        self.flush(force=True)
        if VERIFY:
            self._check()

    # -- swap ----------------------------------------------------------------------------

    def replace_segments(
        self,
        new_segments: Sequence[LogSegment],
        old_segments: Sequence[LogSegment],
        *,
        apart: bool = False,
    ) -> None:
        """Replace segments with cleaned or split segments.

        Parameters
        ----------
        new_segments : sequence of LogSegment
            Complete, durable, and named `.cleaned`.
        old_segments : sequence of LogSegment
            The segments to replace. Any that retention has removed in the meantime are skipped.
        apart : bool
            Whether the first new segments may survive a crash without the remaining ones.

        Notes
        -----
        Offsets do not change. The order of operations in `logstore.storage.segment.swap` makes a
        crash harmless.
        """
        self.change(self._replace_segments, new_segments, old_segments, apart)

    def _replace_segments(
        self, new_segments: Sequence[LogSegment], old_segments: Sequence[LogSegment], apart: bool
    ) -> None:
        with self.guard("cannot replace segments"):
            self.check_changeable()
            self.swap_segments(new_segments, old_segments, apart=apart)
            if VERIFY:
                for segment in new_segments:
                    if self.segments.get(segment.base_offset) is segment:
                        segment._check()
                self._check()

    def split_segment(self, segment: LogSegment) -> list[LogSegment]:
        """Replace a segment whose offsets exceed 31 bits with several segments.

        Raises
        ------
        SegmentOverflowError, CorruptRecordError, CorruptIndexError, UnsupportedFormatError
            The segment cannot be split. The log is unchanged
            (`logstore.storage.log.split.split_segment`).
        """
        return self.change(self._split_segment, segment)

    def _split_segment(self, segment: LogSegment) -> list[LogSegment]:
        with self.guard("cannot split a segment"):
            self.check_changeable()
            new = self.swap_split(segment)
            if VERIFY:
                self._check()
            return new

    def _check(self) -> None:
        """Assert every invariant of the log."""
        self.offsets._check()
