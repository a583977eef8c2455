"""Explanations of a decision: what closes the open segment, what tombstones wait for, what helps.

Pure, like `selection`, whose decision is explained; what needs records read is handed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from logstore.cleaner.selection import idle_roll_ms
from logstore.types import INT64_MAX, time_in_text

if TYPE_CHECKING:
    from logstore.cleaner.selection import CleanableState, CleaningDecision, Gate
    from logstore.config.log_config import LogConfig
    from logstore.storage.log.log import Log


# -- the open segment --------------------------------------------------------------------------


class Closing(NamedTuple):
    """One way in which the active segment closes.

    Attributes
    ----------
    setting : str
        The key that closes it.
    at_ms : int or None
        From when on, Unix ms; None if time plays no part.
    needs_append : bool
        Whether it takes an append, as in Kafka all do but none of them by itself.
    """

    setting: str
    at_ms: int | None
    needs_append: bool
    text: str


@dataclass(frozen=True, slots=True)
class ActiveSegment:
    """The segment that takes appends, which no cleaning touches, and how it comes to close."""

    base_offset: int
    size_bytes: int
    first_timestamp: int | None
    closings: tuple[Closing, ...]

    @classmethod
    def of(cls, log: Log, *, kafka_exact: bool = False) -> ActiveSegment:
        """Look at a log's active segment; reads its first batch's header."""
        segment = log.active_segment
        first = segment.first_batch_timestamp()
        return cls(
            segment.base_offset,
            segment.size_bytes,
            None if first == INT64_MAX else first,
            tuple(_closings(log, kafka_exact=kafka_exact)),
        )


def _closings(log: Log, *, kafka_exact: bool) -> Iterator[Closing]:
    segment, config = log.active_segment, log.config
    if not segment.size_bytes:
        return
    room = config.segment_bytes - segment.size_bytes
    yield Closing(
        "segment.bytes",
        None,
        True,
        f"the append that does not fit into the {max(room, 0)} bytes left of segment.bytes"
        f" {config.segment_bytes}",
    )
    setting, lag = "segment.ms", "max.compaction.lag.ms"
    if config.max_segment_ms < config.segment_ms:
        setting = lag
    moment = segment.rolls_from_ms(config.max_segment_ms)
    if moment is not None:
        yield Closing(
            setting,
            moment,
            True,
            f"the next append whose records are stamped {time_in_text(moment)} or later ({setting}"
            f" {config.max_segment_ms} after its first record); without an append it stays open",
        )
    if kafka_exact or not config.compact or (idle_ms := idle_roll_ms(log)) is None:
        return
    since = time_in_text(idle_ms)
    text = f"{lag} {config.max_compaction_lag_ms}: from {since} on it is rolled"
    yield Closing(lag, idle_ms, False, text)


# -- tombstones --------------------------------------------------------------------------------


class Tombstone(NamedTuple):
    """A tombstone that wins its key, and the delete horizon of its batch if it has one."""

    offset: int
    delete_horizon_ms: int | None


@dataclass(frozen=True, slots=True)
class Tombstones:
    """The tombstones of a log that win their keys, counted by what they wait for.

    Superseded tombstones are not among them: they are removed like any superseded record.

    Attributes
    ----------
    records : int
        All of them from the log start on.
    unstamped : int
        In batches that no cleaning has given a delete horizon yet.
    expired : int
        Whose horizon has come: the next pass that reaches them drops them.
    unreached : int
        Behind the end of the pass that is due now, or that time alone makes due; all of them if no
        pass is.
    first_horizon_ms, last_horizon_ms : int or None
        Of those that have one, Unix ms.
    """

    records: int = 0
    unstamped: int = 0
    expired: int = 0
    unreached: int = 0
    first_horizon_ms: int | None = None
    last_horizon_ms: int | None = None

    @classmethod
    def of(
        cls, tombstones: Iterable[Tombstone], now_ms: int, decision: CleaningDecision
    ) -> Tombstones:
        """Count tombstones as of a time, under a decision that foresaw."""
        records = unreached = 0
        horizons = []
        end_offset = _pass_end(decision)
        for offset, horizon_ms in tombstones:
            records += 1
            unreached += end_offset is None or offset >= end_offset
            if horizon_ms is not None:
                horizons.append(horizon_ms)
        return cls(
            records,
            records - len(horizons),
            sum(horizon_ms <= now_ms for horizon_ms in horizons),
            unreached,
            min(horizons, default=None),
            max(horizons, default=None),
        )

    def text(self, decision: CleaningDecision, delete_retention_ms: int) -> str:
        """Describe what they wait for, and whether a pass is due that reaches them."""
        if not self.records:
            return "there are none"
        parts = []
        if self.unstamped:
            verb = "has" if self.unstamped == 1 else "have"
            parts.append(
                f"{self.unstamped} {verb} no delete horizon yet: the first cleaning that reaches a"
                " tombstone sets one, the time of that cleaning plus"
                f" delete.retention.ms {delete_retention_ms}"
            )
        waiting = self.records - self.unstamped - self.expired
        if waiting:
            until = (
                "is kept until its horizon," if waiting == 1 else "are kept until the last horizon,"
            )
            assert self.last_horizon_ms is not None
            parts.append(f"{waiting} {until} {time_in_text(self.last_horizon_ms)}")
        if self.expired:
            verb = "is" if self.expired == 1 else "are"
            parts.append(
                f"{self.expired} {verb} past the horizon: the next cleaning that reaches them"
                " removes them"
            )
        parts.append(self._next_pass(decision))
        return "; ".join(parts)

    def _next_pass(self, decision: CleaningDecision) -> str:
        """Describe the next pass, and how many of the tombstones are behind its end."""
        end_offset = _pass_end(decision)
        if end_offset is not None:
            when = "a pass is due now"
            if not decision.will_clean and decision.opens_at_ms is not None:
                when = f"a pass is due by itself at {time_in_text(decision.opens_at_ms)}"
            if not self.unreached:
                return when
            which = "them" if self.unreached == self.records else f"{self.unreached} of them"
            return f"{when}, but it ends at offset {end_offset} and does not reach {which}"
        binding = decision.binding
        assert binding is not None, "nothing is in the way of a decision that will clean"
        if binding.gate in ("policy", "cleaner_disabled", "uncleanable"):
            return "no pass comes"
        return (
            "no pass is due by itself: as in Kafka an expired tombstone makes none due, only new"
            " dirty data in closed segments does; clean --force runs one now"
        )


def _pass_end(decision: CleaningDecision) -> int | None:
    """Return where the pass ends that is due now, or by itself later; None if there is none."""
    if decision.will_clean:
        return decision.state.upper_bound_offset
    return decision.opens_below_offset


# -- what helps --------------------------------------------------------------------------------


class Remedy(NamedTuple):
    """Why a gate is closed, and what opens it."""

    gate: str
    cause: str
    cure: str


def remedies(log: Log, decision: CleaningDecision, active: ActiveSegment) -> tuple[Remedy, ...]:
    """Return cause and cure of each gate that is closed and in the way.

    Of the dirty ratio and the maximum lag one is enough; neither is in the way if the other is
    open.
    """
    closed = [gate for gate in decision.gates if not gate.open]
    either = {"dirty_ratio", "max_compaction_lag"}
    is_enough = any(gate.open and gate.gate in either for gate in decision.gates)
    return tuple(
        _remedy(log, decision, active, gate)
        for gate in closed
        if not (is_enough and gate.gate in either)
    )


def _remedy(log: Log, decision: CleaningDecision, active: ActiveSegment, gate: Gate) -> Remedy:
    config, state = log.config, decision.state
    topic = log.topic_partition.topic
    when = "" if gate.opens_at_ms is None else f"wait until {time_in_text(gate.opens_at_ms)}; or "
    match gate.gate:
        case "policy":
            return Remedy(
                gate.gate,
                f"{gate.text}: its records go by age and size, never by key",
                f"if its broker compacts it, say so with --config cleanup.policy=compact; to change"
                f" it: topic alter {topic} --set cleanup.policy=compact",
            )
        case "cleaner_disabled":
            return Remedy(
                gate.gate,
                gate.text,
                "set log.cleaner.enable=true; clean --force cleans all the same",
            )
        case "uncleanable":
            return Remedy(
                gate.gate,
                gate.text,
                "a broker leaves the partition alone until it restarts: save what is intact with"
                " salvage, or truncate and fetch it again from another replica",
            )
        case "paused":
            return Remedy(gate.gate, gate.text, "wait until whoever holds the partition is done")
        case "empty":
            return Remedy(gate.gate, "the log holds no records", "append some")
        case "active_segment":
            return _open_segment(decision, active, gate)
        case "last_stable_offset":
            return _open_transaction(log, gate)
        case "min_compaction_lag":
            return Remedy(
                gate.gate,
                gate.text,
                f"{when}lower min.compaction.lag.ms; clean --force does not ask for it",
            )
        case "dirty_ratio":
            return Remedy(gate.gate, gate.text, _dirtier(state, config, when))
        case _:
            cure = "set max.compaction.lag.ms, after which dirty data is cleaned however little"
            if config.max_compaction_lag_ms < INT64_MAX:
                cure = f"{when}lower max.compaction.lag.ms"
            return Remedy(gate.gate, gate.text, cure)


def _open_segment(decision: CleaningDecision, active: ActiveSegment, gate: Gate) -> Remedy:
    if not active.size_bytes:
        return Remedy(
            gate.gate, "everything is clean, and the open segment is empty", "append something new"
        )
    begins = decision.state.first_dirty_offset
    ways = "; or ".join(closing.text for closing in active.closings)
    return Remedy(
        gate.gate,
        f"all that is dirty, from offset {begins} on, is still in the open segment"
        f" {active.base_offset} ({active.size_bytes} bytes), which no cleaning touches",
        f"it closes with {ways}; or at once: clean --roll",
    )


def _open_transaction(log: Log, gate: Gate) -> Remedy:
    producer_id = log.producer_state.ongoing_producer()
    whose = "a transaction" if producer_id is None else f"a transaction of producer {producer_id}"
    return Remedy(
        gate.gate,
        f"{whose} is open since offset {log.last_stable_offset}: nothing from there on is cleaned",
        "commit or abort it (kafka-transactions.sh find-hanging, then abort)",
    )


def _dirtier(state: CleanableState, config: LogConfig, when: str) -> str:
    """Say what makes a log dirty enough, or lets it be dirty enough."""
    ways = []
    needed = bytes_to_exceed(
        state.cleanable_bytes, state.total_bytes, config.min_cleanable_dirty_ratio
    )
    if needed is not None:
        unit = "byte" if needed == 1 else "bytes"
        ways.append(f"append {needed} more {unit}, in segments that close")
    if state.cleanable_bytes:
        ways.append(f"lower min.cleanable.dirty.ratio below {state.cleanable_ratio:.4g}")
    is_set = config.max_compaction_lag_ms < INT64_MAX
    ways.append(f"{'lower' if is_set else 'set'} max.compaction.lag.ms")
    ways.append("run clean --force")
    return when + "; or ".join(ways)


def bytes_to_exceed(dirty: int, total: int, ratio: float) -> int | None:
    """Return how many more dirty bytes make the dirty part exceed a ratio; None if none do.

    The least number for which (dirty + n) / (total + n) > ratio.
    """
    if ratio >= 1:
        return None
    # Two less than what rounding may have raised by one; the loop finds the least.
    needed = max(0, int((ratio * total - dirty) / (1 - ratio)) - 2)
    while (total + needed) == 0 or (dirty + needed) / (total + needed) <= ratio:
        needed += 1
    return needed


HEADLINES = {
    "policy": "never: its cleanup.policy does not compact",
    "cleaner_disabled": "never: the cleaner is switched off",
    "uncleanable": "cannot be cleaned: it is damaged",
    "paused": "not now: somebody holds it",
    "empty": "nothing to clean: it is empty",
    "active_segment": "not yet: its records are still in the open segment",
    "last_stable_offset": "not yet: a transaction is still open",
    "min_compaction_lag": "not yet: its records are too young",
    "dirty_ratio": "not yet: too little is new",
    "max_compaction_lag": "not yet: too little is new",
}
"""The gate that binds, as a headline."""


def headline(decision: CleaningDecision, active: ActiveSegment) -> str:
    """Return the verdict in words for a tired person, without its moment."""
    binding = decision.binding
    if binding is None:
        return "will be cleaned with the next pass"
    if binding.gate == "active_segment" and not active.size_bytes:
        return "nothing to clean: all of it is clean"
    if binding.gate == "dirty_ratio":
        state = decision.state
        return (
            f"{HEADLINES[binding.gate]}: {state.cleanable_ratio:.0%} of it is dirty, and it takes"
            f" more than {binding.threshold:.0%}"
        )
    return HEADLINES[binding.gate]
