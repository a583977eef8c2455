"""Decide whether a log is due for cleaning by checking a series of gates (cleaner §2).

Decisions are pure functions of the log and the time. The cleaner executes them, and `explain`
prints them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.reasons import Reason
from logstore.types import INT64_MAX, TopicPartition

if TYPE_CHECKING:
    from logstore.storage.log.log import Log
    from logstore.storage.segment.segment import LogSegment


CLEAN = "clean"
DIRTY = "dirty"
UNCLEANABLE = "uncleanable"
ACTIVE = "active"
SECTIONS = (CLEAN, DIRTY, UNCLEANABLE, ACTIVE)
"""The sections of a log; see `section_of`."""

_ADMIN_GATES = ("policy", "cleaner_disabled", "uncleanable", "paused")
"""Gates that neither time nor appends can open."""

_EITHER = ("dirty_ratio", "max_compaction_lag")
"""Gates of which only one must be open."""


class Gate(NamedTuple):
    """A condition for cleaning a partition.

    `value` and `threshold` are the compared values, in the unit given by `reason`. `opens_at_ms` is
    when the gate opens, or None if only an append or a command can open it.
    """

    gate: str
    open: bool
    value: float | None
    threshold: float | None
    reason: Reason
    opens_at_ms: int | None = None

    @classmethod
    def closed_by(cls, gate: str, message: str) -> Gate:
        """Return a gate that stopped an attempted cleaning, with the error message."""
        return cls(gate, False, None, None, Reason(f"gate.{gate}", {"message": message}))

    @property
    def text(self) -> str:
        """The reason as a sentence."""
        return self.reason.text

    def to_json(self) -> dict[str, Any]:
        """Return an item of `gates` in `logstore explain --format json`."""
        return {
            "gate": self.gate,
            "open": self.open,
            "value": self.value,
            "threshold": self.threshold,
            **self.reason.to_json(),
            "opens_at_ms": self.opens_at_ms,
        }


class LogView(NamedTuple):
    """The segments of a log, either as they are or as after a roll.

    After a roll, `active` is None and represents an empty segment that starts at
    `active_base_offset`.
    """

    closed: Sequence[LogSegment]
    active: LogSegment | None
    active_base_offset: int

    @classmethod
    def of(cls, log: Log, *, rolled: bool = False) -> LogView:
        """Return a log's segments. If `rolled`, treat a non-empty active segment as rolled."""
        view = log.segments.view
        if rolled and view[-1].size_bytes:
            return cls(view, None, log.log_end_offset)
        return cls(view[:-1], view[-1], view[-1].base_offset)

    def closed_from(self, offset: int) -> Sequence[LogSegment]:
        """Return the closed segments from the one that contains `offset` on."""
        if offset >= self.active_base_offset:
            return ()
        slot = bisect_right(self.closed, offset, key=lambda segment: segment.base_offset) - 1
        return self.closed[max(slot, 0) :]

    def upper_bound(self, limit: int) -> int:
        """Round a limit down to the base offset of the closed segment that contains it."""
        bases = [segment.base_offset for segment in self.closed] + [self.active_base_offset]
        for base, next_base in pairwise(bases):
            if limit < next_base:
                return base
        return self.active_base_offset

    def bytes_between(self, start_offset: int, end_offset: int) -> int:
        """Return the size of the closed segments from the one that contains the start on."""
        if start_offset >= end_offset:
            return 0
        segments = self.closed_from(start_offset)
        return sum(s.size_bytes for s in segments if s.base_offset < end_offset)


class CleanableState(NamedTuple):
    """Measurements of a log's clean section, dirty section and limits.

    Attributes
    ----------
    first_dirty_offset : int
        The checkpointed offset, after repair. Everything below it is clean.
    checkpoint_repaired : bool
        Whether the checkpointed offset was outside the log and must be replaced.
    first_uncleanable_offset : int
        The exact limit: last stable offset, active segment or `min.compaction.lag.ms`.
    uncleanable_gate : str
        The gate that determines the limit.
    upper_bound_offset : int
        The limit, rounded down to the base offset of a segment. A pass rewrites neither this
        segment nor later ones.
    clean_bytes, cleanable_bytes : int
        Sizes of the sections. As in Kafka, both include the segment that contains the first dirty
        offset.
    max_compaction_delay_ms : int
        By how long the oldest dirty data exceeds `max.compaction.lag.ms`, or 0.
    must_clean_bytes : int
        Size of the cleanable segments whose first batch is older than `max.compaction.lag.ms`.
    generation : int
        Generation of the log when it was measured. A truncation invalidates the measurement.
    """

    topic_partition: TopicPartition
    first_dirty_offset: int
    checkpoint_repaired: bool
    first_uncleanable_offset: int
    uncleanable_gate: str
    upper_bound_offset: int
    clean_bytes: int
    cleanable_bytes: int
    max_compaction_delay_ms: int
    must_clean_bytes: int
    generation: int = 0

    @property
    def total_bytes(self) -> int:
        """Clean plus cleanable bytes."""
        return self.clean_bytes + self.cleanable_bytes

    @property
    def cleanable_ratio(self) -> float:
        """Cleanable bytes / (clean + cleanable bytes), or 0 for an empty log."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def must_clean_ratio(self) -> float:
        """Bytes that exceed the maximum lag / (clean + cleanable bytes) (KIP-354)."""
        return self.must_clean_bytes / self.total_bytes if self.total_bytes else 0.0


class CleaningDecision(NamedTuple):
    """Whether to clean a log, with all gates.

    With `forecast`, `opens_at_ms` is when the log will be cleaned, and `opens_below_offset`
    is the end of the range to be cleaned then. Both are None if only an append or a command can
    open the gates.
    """

    state: CleanableState
    gates: tuple[Gate, ...]
    opens_at_ms: int | None = None
    opens_below_offset: int | None = None

    @property
    def will_clean(self) -> bool:
        """Whether all required gates are open."""
        return self.binding is None

    @property
    def is_candidate(self) -> bool:
        """Whether the log can be cleaned now or later."""
        return all(gate.open for gate in self.gates if gate.gate in _ADMIN_GATES)

    @property
    def binding(self) -> Gate | None:
        """The first closed gate that prevents cleaning, or None if there is none.

        A low dirty ratio does not prevent cleaning if `max.compaction.lag.ms` is exceeded.
        """
        needed = next((g for g in self.gates if not g.open and g.gate not in _EITHER), None)
        either = [gate for gate in self.gates if gate.gate in _EITHER]
        if needed is not None or not either or any(gate.open for gate in either):
            return needed
        return either[0]

    def stopped_by(self, obstacle: Gate) -> CleaningDecision:
        """Return the decision, updated with a gate found to be closed when records were read."""
        gates = [gate for gate in self.gates if gate.gate != obstacle.gate]
        index = next((n for n, g in enumerate(self.gates) if g.gate == obstacle.gate), len(gates))
        gates.insert(index, obstacle)
        return self._replace(gates=tuple(gates), opens_at_ms=None, opens_below_offset=None)


class CleaningConditions(NamedTuple):
    """Conditions for cleaning that are not part of the log.

    Attributes
    ----------
    cleaner_enabled : bool
        `log.cleaner.enable`.
    force : bool
        Ignore the dirty ratio and lags. Clean even without dirty data if there is a clean section.
    uncleanable : str, optional
        Why the partition is uncleanable, or None. This also prevents forced cleaning.
    paused : str, optional
        Current state of the partition, or None if it is not in use.
    kafka_exact : bool
        Do not roll idle active segments (`logstore.kafka.exact`).
    """

    cleaner_enabled: bool = True
    force: bool = False
    uncleanable: str | None = None
    paused: str | None = None
    kafka_exact: bool = False


# -- measuring -------------------------------------------------------------------------------


def steady_state(log: Log, checkpoint: int | None, now_ms: int) -> CleanableState:
    """Measure a log that may change concurrently; see `cleanable_state`.

    Raises
    ------
    UnknownTopicOrPartitionError, KafkaStorageError
        The log was deleted, or the disk failed.
    """
    return log.reader.steady(lambda: cleanable_state(log, checkpoint, now_ms))


def cleanable_state(
    log: Log,
    checkpoint: int | None,
    now_ms: int,
    *,
    ignore_lag: bool = False,
    view: LogView | None = None,
) -> CleanableState:
    """Measure a log.

    Parameters
    ----------
    checkpoint : int or None
        Entry in the cleaner checkpoint, or None if there is none.
    ignore_lag : bool
        Ignore `min.compaction.lag.ms`, as forced cleaning does.
    view : LogView, optional
        Segments of the log. [default: the current ones]
    """
    view = LogView.of(log) if view is None else view
    stored = log.log_start_offset if checkpoint is None else checkpoint
    repaired = not log.log_start_offset <= stored <= log.log_end_offset
    first_dirty = log.log_start_offset if repaired else stored
    limits = [
        (view.active_base_offset, "active_segment"),
        (log.last_stable_offset, "last_stable_offset"),
    ]
    if not ignore_lag:
        limits.append((_first_young(log, view, first_dirty, now_ms), "min_compaction_lag"))
    limit, gate = min(limits, key=lambda candidate: candidate[0])
    limit = max(first_dirty, limit)
    upper_bound = view.upper_bound(limit)
    clean_bytes = sum(s.size_bytes for s in view.closed if s.base_offset < first_dirty)
    if view.active is not None and view.active_base_offset < first_dirty:
        clean_bytes += view.active.size_bytes
    start = min(first_dirty, upper_bound)
    delay, overdue = _max_lag(log, view, start, upper_bound, first_dirty, now_ms)
    return CleanableState(
        topic_partition=log.topic_partition,
        first_dirty_offset=first_dirty,
        checkpoint_repaired=repaired,
        first_uncleanable_offset=limit,
        uncleanable_gate=gate,
        upper_bound_offset=upper_bound,
        clean_bytes=clean_bytes,
        cleanable_bytes=view.bytes_between(start, upper_bound),
        max_compaction_delay_ms=delay,
        must_clean_bytes=overdue,
        generation=log.generation,
    )


def still_fits(log: Log, state: CleanableState, checkpoint: int | None) -> bool:
    """Return whether a measurement is still valid after the partition was claimed.

    In the meantime, the log may have been truncated, or another thread may have cleaned it and
    merged segments. The caller must hold the log's lock.
    """
    start = log.log_start_offset
    is_inside = checkpoint is not None and start <= checkpoint <= log.log_end_offset
    upper_bound = state.upper_bound_offset
    return (
        state.generation == log.generation
        and state.first_dirty_offset == (checkpoint if is_inside else start)
        and (upper_bound in log.segments or upper_bound >= log.active_segment.base_offset)
    )


def _first_young(log: Log, view: LogView, first_dirty: int, now_ms: int) -> int:
    """Return the base offset of the first segment within `min.compaction.lag.ms`, or 2^63-1."""
    min_lag_ms = log.config.min_compaction_lag_ms
    if min_lag_ms > 0:
        for segment in view.closed_from(first_dirty):
            if segment.largest_timestamp > now_ms - min_lag_ms:
                return segment.base_offset
    return INT64_MAX


def _max_lag(
    log: Log, view: LogView, start: int, end: int, first_dirty: int, now_ms: int
) -> tuple[int, int]:
    """Return the delay past `max.compaction.lag.ms`, and the overdue bytes (cleaner §2.4)."""
    limit = now_ms - log.config.max_compaction_lag_ms
    if limit <= 0:
        return 0, 0
    dirty = view.closed_from(first_dirty)
    firsts = [t for s in dirty if 0 < (t := s.first_batch_timestamp()) < INT64_MAX]
    delay = max(0, limit - min(firsts)) if firsts else 0
    cleanable = (s for s in view.closed_from(start) if s.base_offset < end) if start < end else ()
    overdue = sum(s.size_bytes for s in cleanable if 0 < s.first_batch_timestamp() < limit)
    return delay, overdue


def idle_roll_ms(log: Log) -> int | None:
    """Return when KIP-354 requires a roll of the active segment without an append.

    None if the segment is empty or has no timestamps, or `max.compaction.lag.ms` is not set.
    """
    first = log.active_segment.first_batch_timestamp()
    roll_ms = first + log.config.max_compaction_lag_ms + 1
    return roll_ms if roll_ms <= INT64_MAX else None


# -- deciding --------------------------------------------------------------------------------


def decide(
    log: Log,
    checkpoint: int | None,
    now_ms: int,
    conditions: CleaningConditions | None = None,
    *,
    rolled: bool = False,
    forecast: bool = False,
) -> CleaningDecision:
    """Decide whether a log is due for cleaning.

    Parameters
    ----------
    rolled : bool
        Assume that the active segment is rolled, as the cleaner does with an overdue idle segment.
        Has no effect on a log that is never cleaned.
    forecast : bool
        Compute when closed gates open without an append. O(dirty segments squared).
    """
    conditions = conditions or CleaningConditions()
    decision = _decide(log, checkpoint, now_ms, conditions, LogView.of(log, rolled=rolled))
    if rolled and not decision.is_candidate:  # such a log would not be rolled
        decision = _decide(log, checkpoint, now_ms, conditions, LogView.of(log))
    if not forecast:
        return decision
    return _forecast_opening(log, checkpoint, now_ms, conditions, decision)


def _forecast_opening(
    log: Log,
    checkpoint: int | None,
    now_ms: int,
    conditions: CleaningConditions,
    decision: CleaningDecision,
) -> CleaningDecision:
    """Compute when each closed gate opens, and when the log will be cleaned."""
    opens: dict[str, int] = {gate.gate: now_ms for gate in decision.gates if gate.open}
    cleaned_at, end_offset = None, None
    if decision.will_clean:
        cleaned_at, end_offset = now_ms, decision.state.upper_bound_offset
    is_rolled = decision.is_candidate and not conditions.kafka_exact
    roll_ms = idle_roll_ms(log) if is_rolled else None
    for time_ms in _change_times(log, decision.state.first_dirty_offset, roll_ms):
        if time_ms <= now_ms:
            continue
        view = LogView.of(log, rolled=roll_ms is not None and time_ms >= roll_ms)
        then = _decide(log, checkpoint, time_ms, conditions, view)
        for gate in then.gates:
            if gate.open:
                opens.setdefault(gate.gate, time_ms)
        if cleaned_at is None and then.will_clean:
            cleaned_at, end_offset = time_ms, then.state.upper_bound_offset
        if cleaned_at is not None and len(opens) == len(decision.gates):
            break
    gates = (gate._replace(opens_at_ms=opens.get(gate.gate)) for gate in decision.gates)
    return decision._replace(
        gates=tuple(gates), opens_at_ms=cleaned_at, opens_below_offset=end_offset
    )


def section_of(log: Log, segment: LogSegment, state: CleanableState | None) -> str:
    """Return the section of a segment.

    A `clean` segment is entirely below the first dirty offset. A `dirty` segment has higher offsets
    and can be cleaned, as far as `state` is known. An `uncleanable` segment starts at or above the
    upper bound of a pass.
    """
    following = log.segments.higher(segment.base_offset)
    if following is None:
        return ACTIVE
    if state is None:
        return DIRTY
    if following.base_offset <= state.first_dirty_offset:
        return CLEAN
    return DIRTY if segment.base_offset < state.upper_bound_offset else UNCLEANABLE


def dirty_since_ms(log: Log, state: CleanableState) -> int | None:
    """Return the timestamp of the first batch in the oldest segment that is not clean.

    None if the log is clean or has no timestamps. O(segments that are not clean).
    """
    first_dirty = log.segments.floor(state.first_dirty_offset)
    firsts = (
        segment.first_batch_timestamp()
        for segment in log.segments.from_offset(first_dirty.base_offset if first_dirty else 0)
        if section_of(log, segment, state) != CLEAN
    )
    return min((each for each in firsts if 0 < each < INT64_MAX), default=None)


def next_change_ms(log: Log, first_dirty: int, now_ms: int, *, kafka_exact: bool) -> int | None:
    """Return the next time when the decision about a log may change without an append.

    None if the decision will not change. O(dirty segments).
    """
    roll_ms = None if kafka_exact else idle_roll_ms(log)
    return next((each for each in _change_times(log, first_dirty, roll_ms) if each > now_ms), None)


def _change_times(log: Log, first_dirty: int, roll_ms: int | None) -> Iterator[int]:
    """Yield, in order, the times when a decision may change without an append.

    `roll_ms` is when the active segment will be rolled without an append, or None if never.
    """
    config = log.config
    closed = LogView.of(log).closed_from(first_dirty)
    active = log.active_segment
    found = set() if roll_ms is None else {roll_ms}
    # An empty closed segment, which results from a gap in a replica, also delays later segments.
    for segment in (*closed, active) if active.size_bytes else closed:
        if config.min_compaction_lag_ms:
            found.add(segment.largest_timestamp + config.min_compaction_lag_ms)
        first = segment.first_batch_timestamp()
        if 0 < first < INT64_MAX:
            found.add(first + config.max_compaction_lag_ms + 1)
    yield from sorted(time_ms for time_ms in found if time_ms <= INT64_MAX)


def _decide(
    log: Log, checkpoint: int | None, now_ms: int, conditions: CleaningConditions, view: LogView
) -> CleaningDecision:
    force = conditions.force
    state = cleanable_state(log, checkpoint, now_ms, ignore_lag=force, view=view)
    gates = [*_admin_gates(log, conditions)]
    size = log.size_bytes
    gates.append(Gate("empty", size > 0, size, 1, Reason.of("gate.size", size_bytes=size)))
    gates += _range_gates(log, state, view, now_ms, force=force)
    if not force:
        gates += (_ratio_gate(log, state), _max_lag_gate(log, state))
    return CleaningDecision(state, tuple(gates))


def _admin_gates(log: Log, conditions: CleaningConditions) -> Iterator[Gate]:
    config = log.config
    policy = ",".join(config.cleanup_policy) or "empty"
    reason = Reason.of("gate.policy", policy=policy)
    yield Gate("policy", config.compact, None, None, reason)
    enabled = conditions.cleaner_enabled
    reason = Reason.of("gate.cleaner_enabled" if enabled else "gate.cleaner_disabled")
    yield Gate("cleaner_disabled", enabled or conditions.force, None, None, reason)
    if conditions.uncleanable is None:
        yield Gate("uncleanable", True, None, None, Reason.of("gate.never_failed"))
    else:
        yield Gate.closed_by("uncleanable", conditions.uncleanable)
    if conditions.paused is None:
        yield Gate("paused", True, None, None, Reason.of("gate.free"))
    else:
        yield Gate.closed_by("paused", conditions.paused)


def _range_gates(
    log: Log, state: CleanableState, view: LogView, now_ms: int, *, force: bool
) -> Iterator[Gate]:
    """Yield one gate per limit, which is open if there is data to clean below the limit."""
    dirty = state.first_dirty_offset
    active_base = view.active_base_offset
    first_base = log.segments.first.base_offset
    closed_bytes = view.bytes_between(dirty, active_base)

    def is_open(limit: int) -> bool:
        bound = view.upper_bound(max(dirty, limit))
        # Forced cleaning also rewrites the clean section.
        return view.bytes_between(min(dirty, bound), bound) > 0 or (force and first_base < bound)

    yield Gate(
        "active_segment",
        is_open(active_base),
        active_base,
        dirty,
        Reason.of(
            "gate.active_segment",
            active_offset=active_base,
            dirty_offset=dirty,
            closed_bytes=closed_bytes,
        ),
    )
    stable = log.last_stable_offset
    yield Gate(
        "last_stable_offset",
        not closed_bytes or is_open(stable),
        stable,
        dirty,
        Reason.of("gate.last_stable_offset", stable_offset=stable, dirty_offset=dirty),
    )
    lag_ms = log.config.min_compaction_lag_ms
    if not force:
        young = _first_young(log, view, dirty, now_ms)
        reason = Reason.of("gate.old_enough", lag_ms=lag_ms)
        if young < INT64_MAX:
            reason = Reason.of("gate.too_young", offset=young, lag_ms=lag_ms)
        yield Gate(
            "min_compaction_lag",
            not closed_bytes or is_open(young),
            min(young, active_base),
            dirty,
            reason,
        )


def _ratio_gate(log: Log, state: CleanableState) -> Gate:
    threshold = log.config.min_cleanable_dirty_ratio
    return Gate(
        "dirty_ratio",
        state.cleanable_ratio > threshold,
        state.cleanable_ratio,
        threshold,
        Reason.of("gate.dirty_ratio", ratio=state.cleanable_ratio, threshold_ratio=threshold),
    )


def _max_lag_gate(log: Log, state: CleanableState) -> Gate:
    delay = state.max_compaction_delay_ms
    limit = log.config.max_compaction_lag_ms
    reason = Reason.of("gate.lag_not_set")
    if delay:
        reason = Reason.of("gate.overdue", lag_ms=limit, span_ms=delay)
    elif limit < INT64_MAX:
        reason = Reason.of("gate.not_overdue", lag_ms=limit)
    return Gate("max_compaction_lag", delay > 0 and state.cleanable_bytes > 0, delay, 0, reason)


def selection_order(
    decision: CleaningDecision, *, kafka_exact: bool = False
) -> tuple[float, float, str, int]:
    """Return the sort key of due logs: most overdue first, then dirtiest (KIP-354).

    Kafka, and therefore `logstore.kafka.exact`, only uses the dirty ratio.
    """
    state = decision.state
    tp = state.topic_partition
    overdue = 0.0 if kafka_exact else state.must_clean_ratio
    return (-overdue, -state.cleanable_ratio, tp.topic, tp.partition)
