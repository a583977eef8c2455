"""Rehearsals: the future of a partition, run by the engine itself over a copy that nobody sees.

The files are an overlay's, changes stay in memory, and time is virtual. So what retention and
cleaning will have done by some moment is not computed a second time: it is done, and looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from logstore.cleaner.command import CleanCommand
from logstore.cleaner.manager import LogCleanerManager
from logstore.cleaner.selection import cleanable_state, next_moment_ms
from logstore.cleaner.strategy import Strategy
from logstore.errors import (
    CorruptRecordError,
    LogStoreError,
    RequestError,
    UnsupportedFormatError,
)
from logstore.manager.manager import LogManager
from logstore.record.batch import decode_stored
from logstore.record.records import NewRecord
from logstore.record.walk import read_batch
from logstore.runtime import (
    OverlayFileSystem,
    ReadOnlyFileSystem,
    Runtime,
    VirtualClock,
    random_source,
)
from logstore.types import INT64_MAX, TimestampType

if TYPE_CHECKING:
    from logstore.cleaner.passes.clean import PassProgress
    from logstore.config.broker_config import BrokerConfig
    from logstore.runtime import FileSystem
    from logstore.storage.log.log import Log
    from logstore.types import TopicPartition

RehearsalProgress = Callable[[str, int, int], None]

_TIME_ENDS_MS = INT64_MAX // 2
"""Moments from here on never come."""


_PASSES_AGAIN = 3
"""Passes at one moment over what is clean."""


class Cause(StrEnum):
    """What removes a record."""

    OPENING = "opening"
    CLEANING = "cleaning"
    RETENTION = "retention"


class Removal(NamedTuple):
    """A removal: when, by what, and the moment from which on that was due."""

    at_ms: int
    cause: Cause
    due_ms: int


class Held(NamedTuple):
    """A record that is still there, in the batch that it lies in."""

    is_tombstone: bool
    delete_horizon_ms: int | None


class TransactionEnd(NamedTuple):
    """The end that the coordinator gives an open transaction if its producer does nothing.

    Attributes
    ----------
    producer_epoch : int
        Of the marker.
    commit : bool
        Whether it is committed: only if that was decided already.
    due_ms : int
        Unix ms; a check of the coordinator may come later.
    """

    producer_id: int
    producer_epoch: int
    commit: bool
    due_ms: int


class Rehearsal:
    """A partition's log over a copy that nobody sees, on a clock of its own.

    Parameters
    ----------
    fs : FileSystem
        Only read.
    log_dirs : sequence of str
    configs : mapping
        Laid over the topic's own.
    now_ms : int
        When it is opened, as a broker's start does it.
    ends : sequence of TransactionEnd
        Of the transactions that are open in the partition, as far as a coordinator knows them;
        others stay open.
    progress : callable, optional
        Told of each step of a cleaning: the task, and bytes done and all.

    Raises
    ------
    LogStoreError
        The partition cannot be opened.

    Notes
    -----
    Memory: what cleanings keep of the log, as long as the rehearsal is held.
    """

    def __init__(
        self,
        fs: FileSystem,
        log_dirs: Sequence[str],
        broker_config: BrokerConfig,
        topic_partition: TopicPartition,
        configs: Mapping[str, str],
        now_ms: int,
        ends: Sequence[TransactionEnd] = (),
        *,
        progress: RehearsalProgress | None = None,
    ) -> None:
        self.clock = VirtualClock(now_ms)
        self._ends = sorted(ends, key=lambda end: end.due_ms)
        self._start_ms = now_ms
        self._broker_config = broker_config
        self.fs = OverlayFileSystem(ReadOnlyFileSystem(fs), self.clock)
        runtime = Runtime(self.clock, self.fs, random_source(0))
        self._manager = LogManager(runtime, log_dirs, broker_config, read_only=True)
        if configs:
            self._manager.catalog.override(topic_partition.topic, configs)
        self.log: Log = self._manager.log(topic_partition)
        self._cleaner = LogCleanerManager(runtime, self._manager, broker_config)
        self._tp = topic_partition
        self._progress = progress

    def _tell(self, topic_partition: TopicPartition, step: PassProgress) -> None:
        if self._progress is not None:
            self._progress(f"rehearsing {topic_partition}", step.bytes_done, step.bytes_total)

    def close(self) -> None:
        """Forget everything."""
        self._manager.close()

    def held(self, offset: int, key: bytes) -> Held | None:
        """Return what became of a record, None if it is gone; one that cannot be read is there."""
        segment = self.log.segments.floor(offset)
        if segment is None:
            return None
        try:
            at = segment.translate_offset(offset)
            if at is None or at.base_offset > offset:
                return None
            batch = read_batch(segment.file, segment.log_path, at.position, at.size_bytes)
            limit = segment.config.logstore_decompression_max_bytes
            for record in decode_stored(batch, limit):
                if record.offset == offset and record.key == key:
                    return Held(record.value is None, batch.header.delete_horizon_ms)
        except (CorruptRecordError, UnsupportedFormatError):
            return Held(False, None)
        return None

    # -- what a broker does by itself ------------------------------------------------------

    def left_alone(self, *, late: bool) -> Iterator[Removal]:
        """Let time pass with nothing appended; yield after each time that something was done.

        Parameters
        ----------
        late : bool
            What falls due is done as late as the broker's intervals allow: retention of a topic
            that is only deleted from by `log.retention.check.interval.ms`, the rest by
            `log.cleaner.backoff.ms`. Else at once.
        """
        check_ms = self._check_interval_ms() if late else 0
        end_ms = self._broker_config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        end_ms = end_ms if late else 0
        while True:
            self._end_transactions(self.clock.now_ms() - end_ms)
            if self._due():
                due_ms = self.clock.now_ms()
                if due_ms + check_ms >= _TIME_ENDS_MS:
                    return
                self.clock.advance(ms=check_ms)
                self._end_transactions(self.clock.now_ms() - end_ms)
                done = [cause for cause in (Cause.CLEANING, Cause.RETENTION) if self._does(cause)]
                for cause in done:
                    yield Removal(self.clock.now_ms(), cause, due_ms)
                if done:
                    continue
            moments = [self._next_moment(), *(end.due_ms + end_ms for end in self._ends[:1])]
            moment = min((each for each in moments if each is not None), default=None)
            if moment is None:
                return
            self.clock.advance(ms=moment - self.clock.now_ms())

    def _end_transactions(self, until_ms: int) -> None:
        """Write the markers of the transactions whose ends are due by a time."""
        while self._ends and self._ends[0].due_ms <= until_ms:
            end = self._ends.pop(0)
            entry = self.log.producer_state.entry(end.producer_id)
            if entry is not None and entry.current_txn_first_offset is not None:
                self.log.writer.append_end_txn_marker(
                    end.producer_id,
                    max(end.producer_epoch, entry.producer_epoch),
                    max(entry.coordinator_epoch, 0),
                    commit=end.commit,
                )

    def _check_interval_ms(self) -> int:
        if self.log.config.compact:
            return max(1, self._broker_config.log_cleaner_backoff_ms)
        return self._broker_config.log_retention_check_interval_ms

    def _due(self) -> bool:
        """Tell whether there is something to do now."""
        return self._will_clean() or self._rolls() or bool(self.log.retention_decision().removed)

    def _cleans(self) -> bool:
        return self._broker_config.log_cleaner_enable and self.log.config.compact

    def _will_clean(self) -> bool:
        chooser = self._cleaner.chooser
        decision = chooser.decision_of(self.log, rolled=chooser.is_idle(self.log))
        return self._cleans() and decision.will_clean

    def _rolls(self) -> bool:
        """Tell whether the active segment is to be rolled though nothing is appended."""
        return self._cleans() and self._cleaner.chooser.is_idle(self.log)

    def _does(self, cause: Cause) -> bool:
        """Do what is due; tell whether something was."""
        log = self.log
        if cause is Cause.CLEANING:
            if not self._cleans():
                return False
            if self._rolls():
                log.writer.roll()
            return bool(CleanCommand(self._cleaner, progress=self._tell).run([log]).passes)
        checkpoint = self._cleaner.checkpoints.of(self._tp) or 0
        return bool(log.delete_old_segments(first_dirty_offset=checkpoint).removed)

    def _next_moment(self) -> int | None:
        """Return the first moment after now at which time alone may make something due."""
        log, now_ms = self.log, self.clock.now_ms()
        moments = [log.next_expiry_ms()]
        if self._cleans():
            first_dirty = self._cleaner.chooser.state_of(log).first_dirty_offset
            exact = self._cleaner.chooser.kafka_exact
            moments.append(next_moment_ms(log, first_dirty, now_ms, kafka_exact=exact))
        later = [each for each in moments if each is not None and now_ms < each < _TIME_ENDS_MS]
        return min(later, default=None)

    # -- what may happen at the earliest ---------------------------------------------------

    def hurried(self, key: bytes, wanted: Callable[[], Mapping[int, Held]]) -> Iterator[Removal]:
        """Let time pass with others appending what helps; yield after each thing that was done.

        The open segment is closed at once, and a pass is made whenever the configuration lets one
        be due: `min.compaction.lag.ms`, open transactions and delete horizons hold, a dirty ratio
        that is too low does not, since appends change it. A transaction that a coordinator would
        end later ends at once, as its producer may let it.

        Parameters
        ----------
        key : bytes
            The key of the records that are waited for; others are appended to.
        wanted : callable
            Returns the records whose removal is waited for, those that are left, by offset.
        """
        log = self.log
        self._end_transactions(INT64_MAX)
        if log.active_segment.size_bytes:
            log.writer.roll()
        while wanted():
            now_ms = self.clock.now_ms()
            self._append_behind(key, wanted())
            if self._does(Cause.RETENTION):
                yield Removal(now_ms, Cause.RETENTION, now_ms)
            passes = 0
            while self._cleans() and self._passes(wanted().values(), passes):
                passes += 1
                yield Removal(now_ms, Cause.CLEANING, now_ms)
            moment = self._next_help(wanted().values())
            if moment is None:
                return
            self.clock.advance(ms=moment - now_ms)

    def _append_behind(self, key: bytes, wanted: Mapping[int, Held]) -> None:
        """Append a record of another key, in a segment of its own, if the last one is waited for.

        Under a strategy with versions a cleaning retains the last record of the log.
        """
        log = self.log
        is_kept = Strategy.of(log.config).has_versions and log.log_end_offset - 1 in wanted
        if not is_kept or not self._cleans():
            return
        stamp_ms = max(1, self.clock.now_ms() - log.config.timestamp_before_max_ms)
        with suppress(RequestError):  # the topic takes no such record: then nothing is appended
            log.writer.append_records([NewRecord(key + b"+", b"", stamp_ms)])
            log.writer.roll()

    def _passes(self, wanted: Collection[Held], passes: int) -> bool:
        """Run a pass if one can be made due and changes something; tell whether it was run.

        `passes` is how many were run at this moment: under versions an expired winner may stay for
        one more, and a tombstone that expires at once goes in the second.
        """
        log, now_ms = self.log, self.clock.now_ms()
        checkpoint = self._cleaner.checkpoints.of(self._tp)
        state = cleanable_state(log, checkpoint, now_ms)
        if not wanted or not self._can_be_due(now_ms):
            return False
        if state.cleanable_bytes == 0 or state.first_dirty_offset >= state.upper_bound_offset:
            dirty = log.segments.from_offset(state.first_dirty_offset)
            if any(each.size_bytes for each in dirty if each is not log.active_segment):
                return False  # too young, or in a transaction that is open
            if passes > _PASSES_AGAIN or not any(_is_expired(each, now_ms) for each in wanted):
                return False
        steps = self._cleaner.run_pass(log, state)
        try:
            while True:
                self._tell(self._tp, next(steps))
        except StopIteration as done:
            return done.value.stats is not None
        finally:
            steps.close()

    def _can_be_due(self, now_ms: int) -> bool:
        """Tell whether appends could have made a pass due by now, or it is."""
        return now_ms >= self._appends_help_ms() or self._will_clean()

    def _appends_help_ms(self) -> int:
        """Return from when on appends of now, stamped as early as allowed, make a pass due."""
        config = self.log.config
        age_ms = config.timestamp_before_max_ms
        if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
            age_ms = 0
        waits = []
        if config.min_cleanable_dirty_ratio < 1:
            waits.append(config.min_compaction_lag_ms)
        if config.max_compaction_lag_ms < INT64_MAX:
            waits.append(max(config.min_compaction_lag_ms, config.max_compaction_lag_ms + 1))
        if not waits:
            return _TIME_ENDS_MS
        return self._start_ms + max(0, min(waits) - age_ms)

    def _next_help(self, wanted: Iterable[Held]) -> int | None:
        now_ms = self.clock.now_ms()
        moments = [self._next_moment(), self._appends_help_ms()]
        moments += [each.delete_horizon_ms for each in wanted if each.is_tombstone]
        later = [each for each in moments if each is not None and now_ms < each < _TIME_ENDS_MS]
        return min(later, default=None)


def _is_expired(held: Held, now_ms: int) -> bool:
    horizon = held.delete_horizon_ms
    return held.is_tombstone and horizon is not None and horizon <= now_ms


class Watch(NamedTuple):
    """The removal of each record that is watched, by its offset; None of one that stays."""

    removals: Mapping[int, Removal | None]
    failure: str | None


def watch(
    make: Callable[[], Rehearsal],
    key: bytes,
    offsets: list[int],
    way: Callable[[Rehearsal, Callable[[], Mapping[int, Held]]], Iterator[Removal]],
) -> Watch:
    """Run a rehearsal until all records of a key are gone, or nothing happens any more."""
    removals: dict[int, Removal | None] = dict.fromkeys(offsets)
    failure = None
    rehearsal = make()
    left: dict[int, Held] = {}

    def look(removal: Removal) -> None:
        for offset in list(left):
            held = rehearsal.held(offset, key)
            if held is None:
                removals[offset] = removal
                del left[offset]
            else:
                left[offset] = held

    try:
        left = dict.fromkeys(offsets, Held(False, None))
        now_ms = rehearsal.clock.now_ms()
        look(Removal(now_ms, Cause.OPENING, now_ms))
        for removal in way(rehearsal, lambda: left):
            look(removal)
            if not left:
                break
    except LogStoreError as error:
        failure = str(error)
    finally:
        rehearsal.close()
    return Watch(removals, failure)
