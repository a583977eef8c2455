"""Which log is due for cleaning, and why the others are not (cleaner-semantics §2).

Pure: from a log's state to values that can be shown. The cleaner executes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from logstore.types import INT64_MAX, TopicPartition

if TYPE_CHECKING:
    from logstore.log import Log
    from logstore.segment import LogSegment


_STANDING_GATES = ("policy", "cleaner_disabled", "unsupported_transactions", "uncleanable")
"""Gates that neither time nor appends can open."""


class Gate(NamedTuple):
    """One condition between a partition and its cleaning.

    `value` and `threshold` are what was compared, in the unit that `text` names.
    """

    gate: str
    open: bool
    value: float | None
    threshold: float | None
    text: str


@dataclass(frozen=True, slots=True)
class CleanableState:
    """Where a log's clean section ends, and what could be cleaned.

    Attributes
    ----------
    first_dirty_offset : int
        The checkpoint's offset after repair; everything below is clean.
    checkpoint_repaired : bool
        The stored offset was outside the log and must be replaced.
    first_uncleanable_offset : int
        Exact limit: last stable offset, active segment or `min.compaction.lag.ms`.
    upper_bound_offset : int
        That limit rounded to a segment's base; a pass never touches what lies at or above.
    clean_bytes, cleanable_bytes : int
        A segment that holds the first dirty offset counts in both, as in Kafka.
    max_compaction_delay_ms : int
        By how much the oldest dirty data exceeds `max.compaction.lag.ms`; 0 if it does not.
    must_clean_bytes : int
        Bytes of cleanable segments whose first batch is older than that limit.
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

    @property
    def total_bytes(self) -> int:
        """Clean and cleanable bytes together."""
        return self.clean_bytes + self.cleanable_bytes

    @property
    def cleanable_ratio(self) -> float:
        """Cleanable bytes over clean and cleanable bytes; 0 when there are none."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def must_clean_ratio(self) -> float:
        """Bytes past the maximum lag over clean and cleanable bytes (KIP-354)."""
        return self.must_clean_bytes / self.total_bytes if self.total_bytes else 0.0


@dataclass(frozen=True, slots=True)
class CleaningDecision:
    """Whether a log will be cleaned, and every gate on the way."""

    state: CleanableState
    gates: tuple[Gate, ...]

    @property
    def will_clean(self) -> bool:
        """Whether all gates are open."""
        return self.binding is None

    @property
    def is_candidate(self) -> bool:
        """Whether the log is one to be cleaned at all, if not now."""
        return all(gate.open for gate in self.gates if gate.gate in _STANDING_GATES)

    @property
    def binding(self) -> Gate | None:
        """The first closed gate, None when all are open."""
        return next((gate for gate in self.gates if not gate.open), None)


def cleanable_state(
    log: Log, checkpoint: int | None, now_ms: int, *, ignore_lag: bool = False
) -> CleanableState:
    """Measure a log.

    Parameters
    ----------
    checkpoint : int or None
        What the cleaner checkpoint says, None if nothing.
    ignore_lag : bool
        Leave `min.compaction.lag.ms` out of the limit (a forced clean).
    """
    stored = log.log_start_offset if checkpoint is None else checkpoint
    repaired = not log.log_start_offset <= stored <= log.log_end_offset
    first_dirty = log.log_start_offset if repaired else stored
    limit, gate = _first_uncleanable(log, first_dirty, now_ms, ignore_lag=ignore_lag)
    closed = log.segments.view[:-1]
    upper_bound = _upper_bound(log, closed, limit)
    clean_bytes = sum(s.size_bytes for s in closed if s.base_offset < first_dirty)
    if log.active_segment.base_offset < first_dirty:
        clean_bytes += log.active_segment.size_bytes
    cleanable = log.segments.between(min(first_dirty, upper_bound), upper_bound)
    delay, overdue = _max_lag(log, cleanable, first_dirty, now_ms)
    return CleanableState(
        topic_partition=log.topic_partition,
        first_dirty_offset=first_dirty,
        checkpoint_repaired=repaired,
        first_uncleanable_offset=limit,
        uncleanable_gate=gate,
        upper_bound_offset=upper_bound,
        clean_bytes=clean_bytes,
        cleanable_bytes=sum(segment.size_bytes for segment in cleanable),
        max_compaction_delay_ms=delay,
        must_clean_bytes=overdue,
    )


def _first_uncleanable(
    log: Log, first_dirty: int, now_ms: int, *, ignore_lag: bool
) -> tuple[int, str]:
    """Return the first uncleanable offset and the gate that sets it (§2.2)."""
    candidates = [
        (log.active_segment.base_offset, "active_segment"),
        (log.last_stable_offset, "last_stable_offset"),
    ]
    min_lag_ms = log.config.min_compaction_lag_ms
    if min_lag_ms > 0 and not ignore_lag:
        for segment in log.segments.from_offset(first_dirty):
            if segment is log.active_segment:
                break
            if segment.largest_timestamp > now_ms - min_lag_ms:
                candidates.append((segment.base_offset, "min_compaction_lag"))
                break
    offset, gate = min(candidates, key=lambda candidate: candidate[0])
    return max(first_dirty, offset), gate


def _upper_bound(log: Log, closed: Sequence[LogSegment], limit: int) -> int:
    """Round the limit to a segment's base: the segment that contains it stays out (§2.3)."""
    active_base = log.active_segment.base_offset
    bases = [segment.base_offset for segment in closed] + [active_base]
    for base, next_base in pairwise(bases):
        if limit < next_base:
            return base
    return active_base


def _max_lag(
    log: Log, cleanable: Sequence[LogSegment], first_dirty: int, now_ms: int
) -> tuple[int, int]:
    """Return the delay beyond `max.compaction.lag.ms`, and the overdue bytes (§2.4)."""
    limit = now_ms - log.config.max_compaction_lag_ms
    if limit <= 0:
        return 0, 0
    dirty = [s for s in log.segments.from_offset(first_dirty) if s is not log.active_segment]
    firsts = [t for s in dirty if 0 < (t := s.first_batch_timestamp()) < INT64_MAX]
    delay = max(0, limit - min(firsts)) if firsts else 0
    overdue = sum(s.size_bytes for s in cleanable if 0 < s.first_batch_timestamp() < limit)
    return delay, overdue


def decide(
    log: Log,
    checkpoint: int | None,
    now_ms: int,
    *,
    cleaner_enabled: bool = True,
    force: bool = False,
    uncleanable: str | None = None,
) -> CleaningDecision:
    """Decide whether a log is due.

    Parameters
    ----------
    cleaner_enabled : bool
        `log.cleaner.enable`.
    force : bool
        Ignore dirty ratio and both lags, and clean even an empty dirty range as long as there
        is a clean section.
    uncleanable : str, optional
        Why an earlier cleaning failed for good; also a forced one keeps away then.
    """
    state = cleanable_state(log, checkpoint, now_ms, ignore_lag=force)
    config = log.config
    policy = ",".join(config.cleanup_policy)
    gates = [
        Gate("policy", config.compact, None, None, f"cleanup.policy is {policy or 'empty'}"),
        Gate(
            "cleaner_disabled",
            cleaner_enabled or force,
            None,
            None,
            f"log.cleaner.enable is {str(cleaner_enabled).lower()}",
        ),
        _transactions_gate(log),
        Gate("uncleanable", uncleanable is None, None, None, uncleanable or "no cleaning failed"),
        Gate("empty", log.size_bytes > 0, log.size_bytes, 1, f"{log.size_bytes} bytes in the log"),
        _range_gate(log, state, force=force),
    ]
    if not force:
        gates.append(_ratio_gate(log, state))
    return CleaningDecision(state, tuple(gates))


def _transactions_gate(log: Log) -> Gate:
    has = not log.producer_state.is_empty or any(
        segment.txn_index.exists_on_disk for segment in log.segments
    )
    text = (
        "the log has producer ids or aborted transactions, which are not cleaned yet"
        if has
        else "no producer ids and no transactions"
    )
    return Gate("unsupported_transactions", not has, None, None, text)


def _range_gate(log: Log, state: CleanableState, *, force: bool) -> Gate:
    """Tell whether there is anything to clean below the first uncleanable offset."""
    gate = state.uncleanable_gate
    is_open = state.cleanable_bytes > 0
    if force and not is_open:
        is_open = log.segments.first.base_offset < state.upper_bound_offset
    text = {
        "active_segment": f"the active segment starts at offset {log.active_segment.base_offset}",
        "last_stable_offset": f"the last stable offset is {log.last_stable_offset}",
        "min_compaction_lag": (
            f"data from offset {state.first_uncleanable_offset} on is younger than "
            f"min.compaction.lag.ms {log.config.min_compaction_lag_ms}"
        ),
    }[gate]
    return Gate(
        gate,
        is_open,
        state.first_uncleanable_offset,
        state.first_dirty_offset,
        f"{text}; dirty data begins at {state.first_dirty_offset}, "
        f"{state.cleanable_bytes} bytes can be cleaned",
    )


def _ratio_gate(log: Log, state: CleanableState) -> Gate:
    threshold = log.config.min_cleanable_dirty_ratio
    overdue = state.max_compaction_delay_ms > 0 and state.cleanable_bytes > 0
    return Gate(
        "dirty_ratio",
        overdue or state.cleanable_ratio > threshold,
        state.cleanable_ratio,
        threshold,
        f"the dirty ratio {state.cleanable_ratio:.4f} must exceed "
        f"min.cleanable.dirty.ratio {threshold}"
        + (", but max.compaction.lag.ms is exceeded" if overdue else ""),
    )


def selection_order(
    decision: CleaningDecision, *, kafka_exact: bool = False
) -> tuple[float, float, str, int]:
    """Return the key by which due logs are ordered: most overdue, then dirtiest (KIP-354).

    Kafka itself, and so `logstore.kafka.exact`, looks at the dirty ratio alone.
    """
    state = decision.state
    tp = state.topic_partition
    overdue = 0.0 if kafka_exact else state.must_clean_ratio
    return (-overdue, -state.cleanable_ratio, tp.topic, tp.partition)
