"""A partition's log: files, offsets, a writer and a reader.

`Log` is the files (`LocalLog`, its base class) together with `LogOffsets` (what readers may see),
`LogWriter` (appends and rolls) and `LogReader`. It adds the operations that concern several of
them: retention, delete-records, truncation, moves, swaps and the close.

One lock guards every change of the log. Readers take an immutable view of the segments and the
published end offset, and hold no lock while they read. The log starts no thread and never calls
the cleaner; the cleaner asks for segments and passes new ones to `replace_segments`.
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
"""As the offset of a delete-records request: everything below the high watermark."""


class Log(LocalLog):
    """One partition's log; `logstore.storage.loading.loader.open_log` opens it.

    Any thread may read; changes are serialized by the lock. The log manager writes the checkpoints
    of the data directory.

    Attributes
    ----------
    offsets : LogOffsets
        How far readers may see.
    writer : LogWriter
    reader : LogReader
    findings : tuple of Finding
        What opening the log found.
    damages : tuple of Damage
        Damage that opening the log passed over; empty unless that was requested.
    torn : tuple of Damage
        What follows the last valid batch, if opening the log read every batch.
    surveyed : mapping of str to SegmentBounds
        The `.log` files that are read with parts left out.
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

    # -- what it is now ------------------------------------------------------------------

    @property
    def active_segment(self) -> LogSegment:
        """The last segment, the only one that takes appends."""
        return self.segments.active

    @property
    def size_bytes(self) -> int:
        """Data bytes of all segments."""
        return self.segments.size_bytes

    @property
    @lasting
    def log_start_offset(self) -> int:
        """First offset that readers may ask for."""
        return self.offsets.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """Next offset to assign; exclusive end of the log."""
        return self.log_end.offset

    @property
    def high_watermark(self) -> int:
        """Exclusive end of what consumers see."""
        return self.offsets.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Exclusive end of what is decided: no open transaction below it, but the log start."""
        return self.offsets.last_stable_offset

    def subscribe(self, listener: Callable[[], object]) -> Unsubscribe:
        """Tell a listener, from now on, whenever there may be something new to ask this log.

        That is after an append, a roll, a flush or a cut, when an offset moved (log start, high
        watermark, last stable offset), and when the log went offline, was closed or deleted: then
        what it is asked raises.

        Parameters
        ----------
        listener : callable
            Called in the thread that changes the log, which usually holds the log's lock: it may
            read offsets and should wake another task for all else. Changing the log here raises
            `IllegalStateError`. Its errors are logged; they neither undo the change nor keep other
            listeners from being called.

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
        """Flush, snapshot the producers, trim and close every file, and remove deleted ones.

        A log that is offline gives up its files as they are; one that goes offline meanwhile
        raises `KafkaStorageError` and is closed by a second call. All that is called afterwards
        raises `IllegalStateError`.

        Returns
        -------
        CheckpointOffsets or None
            As of the end; None if it is offline, or was closed before.
        """
        with self.lock:
            return None if self.lifetime.is_over else self.change(self._close)

    def _close(self) -> CheckpointOffsets | None:
        offsets = None
        if not self.is_offline:
            self._name_log_start()
            self.begin()
            with self.guard("cannot close"):
                self.come_to_rest()
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
        """Keep the files so that they can be opened elsewhere; see `LocalLog.files_at_rest`."""
        with self.lock:
            self.check_open()
            self.change(self._name_log_start)
            with self.files_at_rest():
                yield

    def _name_log_start(self) -> None:
        """Roll if the last batch lies below the log start, though the log goes on beyond.

        A cleaner removed what came after it, and a truncation to an offset in between made its
        segment the active one. An opening goes by the batches and would not believe in
        the log start, nor that what is left was deleted: the name of a new segment tells it.
        """
        active = self.active_segment
        if self.log_start_offset <= active.base_offset:
            return
        data_end = self.log_end_offset
        with (
            self.guard("cannot read the end"),
            suppress(CorruptRecordError, UnsupportedFormatError),  # found when it is read
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
            Exclusive end of what goes; -1 is the high watermark.

        Returns
        -------
        int
            The low watermark: the log start, at least as asked.

        Raises
        ------
        PolicyViolationError
            `cleanup.policy` does not include `delete`.
        OffsetOutOfRangeError
            Below 0 or above the high watermark.

        Notes
        -----
        Segments wholly below go at once; other records below stay in the first segment's file,
        invisible, until it goes.
        """
        with self.lock:
            self.raise_log_start(self.deletion_end(before_offset))
            return self.offsets.log_start_offset

    def deletion_end(self, before_offset: int) -> int:
        """Return the exclusive end of what a request deletes; refuses as `delete_records`."""
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
        """Raise the log start, whatever the policy, and drop the segments wholly below it.

        As a replica does after its leader. False if it is there or beyond already.

        Raises
        ------
        OffsetOutOfRangeError
            `offset` is above the high watermark; nothing was changed.
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
        """Decide what a retention run would remove now, by all rules; see `decide_retention`."""
        # Loaded here, since a log that is only read, or written for a while, does without.
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
        """Return from when on time alone lets retention remove something, Unix ms; None if never.

        That moment may have passed without effect, if something else keeps the segment.
        """
        first = self.segments.first
        if not self.config.delete or not self.size_bytes:
            return None  # an empty segment stays
        from logstore.storage.log.retention import expires_at_ms  # see `retention_decision`

        return expires_at_ms(first, self.config)

    def delete_old_segments(self, *, first_dirty_offset: int = 0) -> RetentionDecision:
        """Run retention once; return what was decided, and done."""
        return self.change(self._delete_old_segments, first_dirty_offset)

    def _delete_old_segments(self, first_dirty_offset: int) -> RetentionDecision:
        self.check_open()
        decision = self.retention_decision(first_dirty_offset=first_dirty_offset)
        self._retain(decision)
        return decision

    def _retain(self, decision: RetentionDecision) -> None:
        """Remove the segments that a decision names, inside a change."""
        if not decision.removed:
            return
        gone = [self.segments.get(verdict.base_offset) for verdict in decision.removed]
        with self.guard("cannot delete segments"):
            self.check_changeable()
            if decision.rolls:
                self.writer.roll_inside()
                # Else a crash might leave no segment at all, and the log would start anew at 0.
                self.runtime.fs.sync_dir(self.directory)
            self.offsets.increment_log_start(decision.log_start_offset)
            self.remove_segments(segment for segment in gone if segment is not None)
            self.delete_snapshots(verdict.base_offset for verdict in decision.removed)
        if VERIFY:
            self._check()

    # -- truncation ----------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Make `offset` the log end, dropping what lies at or above it (storage-format §13.4).

        Returns
        -------
        bool
            False if nothing lies there.

        Raises
        ------
        ValueError
            `offset` is negative.

        Notes
        -----
        A batch that reaches beyond `offset` goes whole, and leaves a hole below it. Durable on
        return.
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
        """Drop everything and go on at `offset` with one empty segment.

        Parameters
        ----------
        log_start_offset : int, optional
            At most `offset`, which is the default.

        Raises
        ------
        ValueError
            The log start is negative or above `offset`, or that is above 2⁶³ - 1.
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
                self.start_anew(offset)
                self.offsets.restart(start)
            if VERIFY:
                self._check()

    # -- move ----------------------------------------------------------------------------

    def go_on_in(self, copy: Log) -> None:
        """Replace the files by those of a log that was opened over a copy of these.

        To be called while this log is at rest. Whoever holds it appends and reads on without
        noticing.
        """
        self.take_files_of(copy)
        self.offsets.set_high_watermark(self.offsets.high_watermark)
        if VERIFY:
            self._check()

    # -- interrupts ----------------------------------------------------------------------

    def recover_as(self, copy: Log) -> None:
        """Take over the state of a log that was opened on the same files, after an interrupt.

        Readers keep the files that are open.
        """
        with self.truncation():
            self.take_state_of(copy)
            self.offsets.recover(copy.offsets.log_start_offset)
        # Else a crash could bring back records that were cut, next to those appended from now on.
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
        """Put cleaned (or split) segments in the place of others (cleaner §9.1).

        Parameters
        ----------
        new_segments : sequence of LogSegment
            Complete, durable, named `.cleaned`.
        old_segments : sequence of LogSegment
            Those that are gone already (retention) are passed over.
        apart : bool
            Whether a crash may leave the first few of the new ones without the others.

        Notes
        -----
        Offsets do not change. See `logstore.storage.segment.swap` for the order that makes a crash
        harmless.
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
        """Put several segments in the place of one whose offsets go beyond 31 bits (cleaner §9.2).

        Raises
        ------
        SegmentOverflowError, CorruptRecordError, CorruptIndexError, UnsupportedFormatError
            It cannot be split; the log is unchanged (`logstore.storage.log.split.split_segment`).
        """
        return self.change(self._split_segment, segment)

    def _split_segment(self, segment: LogSegment) -> list[LogSegment]:
        with self.guard("cannot split a segment"):
            self.check_changeable()
            new = self.swap_in_parts_of(segment)
            if VERIFY:
                self._check()
            return new

    def _check(self) -> None:
        """Assert every invariant of the log."""
        self.offsets._check()
