"""Explanations of decisions: when the active segment rolls, when tombstones expire, and remedies.

These are pure functions, like those in `selection`, whose decisions they explain. The caller reads
the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.cleaner.selection import idle_roll_ms
from logstore.reasons import Reason, reasons_json, text_of
from logstore.types import INT64_MAX

if TYPE_CHECKING:
    from logstore.cleaner.selection import CleaningDecision, Gate
    from logstore.storage.log.log import Log


# -- the active segment ------------------------------------------------------------------------


class RollCondition(NamedTuple):
    """A condition under which the active segment rolls.

    Attributes
    ----------
    setting : str
        The config key.
    at_ms : int or None
        Earliest time in Unix milliseconds, or None if the condition does not depend on time.
    needs_append : bool
        Whether the condition requires an append, as all of Kafka's conditions do.
    """

    setting: str
    at_ms: int | None
    needs_append: bool
    reason: Reason

    def to_json(self) -> dict[str, Any]:
        """Return an item of `closings` in `logstore explain --format json`."""
        return {
            "setting": self.setting,
            "at_ms": self.at_ms,
            "needs_append": self.needs_append,
            **self.reason.to_json(),
        }


@dataclass(frozen=True, slots=True)
class ActiveSegment:
    """The active segment, which is never cleaned, and the conditions under which it rolls."""

    base_offset: int
    size_bytes: int
    first_timestamp: int | None
    closings: tuple[RollCondition, ...]

    @classmethod
    def of(cls, log: Log, *, kafka_exact: bool = False) -> ActiveSegment:
        """Describe the active segment of a log. Reads the header of the segment's first batch."""
        segment = log.active_segment
        first = segment.first_batch_timestamp()
        return cls(
            segment.base_offset,
            segment.size_bytes,
            None if first == INT64_MAX else first,
            tuple(_closings(log, kafka_exact=kafka_exact)),
        )


def _closings(log: Log, *, kafka_exact: bool) -> Iterator[RollCondition]:
    segment, config = log.active_segment, log.config
    if not segment.size_bytes:
        return
    left = max(config.segment_bytes - segment.size_bytes, 0)
    reason = Reason.of("closing.bytes", left_bytes=left, limit_bytes=config.segment_bytes)
    yield RollCondition("segment.bytes", None, True, reason)
    setting, lag = "segment.ms", "max.compaction.lag.ms"
    if config.max_segment_ms < config.segment_ms:
        setting = lag
    at_ms = segment.rolls_from_ms(config.max_segment_ms)
    if at_ms is not None:
        limit_ms = config.max_segment_ms
        reason = Reason.of("closing.time", at_ms=at_ms, setting=setting, limit_ms=limit_ms)
        yield RollCondition(setting, at_ms, True, reason)
    if kafka_exact or not config.compact or (idle_ms := idle_roll_ms(log)) is None:
        return
    reason = Reason.of("closing.idle", lag_ms=config.max_compaction_lag_ms, at_ms=idle_ms)
    yield RollCondition(lag, idle_ms, False, reason)


# -- tombstones --------------------------------------------------------------------------------


class Tombstone(NamedTuple):
    """A tombstone that is the last record of its key, and its batch's delete horizon, if any."""

    offset: int
    delete_horizon_ms: int | None


@dataclass(frozen=True, slots=True)
class Tombstones:
    """The surviving tombstones of a log, counted by the event that they await.

    Superseded tombstones are excluded, because they are removed like any other superseded record.

    Attributes
    ----------
    records : int
        All surviving tombstones at or above the log start offset.
    unstamped : int
        Tombstones in batches without a delete horizon.
    expired : int
        Tombstones past their horizon, which the next pass that reaches them removes.
    unreached : int
        Tombstones beyond the end of the pass that is due now or becomes due without an append. If
        there is none, all tombstones.
    first_horizon_ms, last_horizon_ms : int or None
        Earliest and latest horizon, in Unix milliseconds.
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
        """Count tombstones at a given time, using a decision that was made with foresight."""
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

    def reasons(self, decision: CleaningDecision, delete_retention_ms: int) -> tuple[Reason, ...]:
        """Return the events that the tombstones await, and whether a pass reaching them is due."""
        if not self.records:
            return (Reason.of("tombstones.none"),)
        found = []
        if self.unstamped:
            found.append(
                Reason.of(
                    "tombstones.unstamped",
                    records=self.unstamped,
                    delete_retention_ms=delete_retention_ms,
                )
            )
        waiting = self.records - self.unstamped - self.expired
        if waiting:
            found.append(
                Reason.of("tombstones.waiting", records=waiting, horizon_at_ms=self.last_horizon_ms)
            )
        if self.expired:
            found.append(Reason.of("tombstones.expired", records=self.expired))
        return (*found, *self._next_pass(decision))

    def _next_pass(self, decision: CleaningDecision) -> Iterator[Reason]:
        """Yield when the next pass is due, and how many tombstones are beyond its end."""
        end_offset = _pass_end(decision)
        if end_offset is not None:
            yield pass_due(decision)
            if self.unreached:
                records = self.unreached
                yield Reason.of("pass.ends_before", end_offset=end_offset, records=records)
            return
        binding = decision.binding
        assert binding is not None, "a decision with an end offset has no binding gate"
        if binding.gate in ("policy", "cleaner_disabled", "uncleanable"):
            yield Reason.of("pass.never")
        else:
            yield Reason.of("pass.not_by_itself")
            yield Reason.of("pass.forced")


def pass_due(decision: CleaningDecision) -> Reason:
    """Return when the next pass is due, if the decision has one."""
    if decision.will_clean or decision.opens_at_ms is None:
        return Reason.of("pass.due")
    return Reason.of("pass.due_later", at_ms=decision.opens_at_ms)


def _pass_end(decision: CleaningDecision) -> int | None:
    """Return the end of the pass that is due now or later without an append, or None if none is."""
    if decision.will_clean:
        return decision.state.upper_bound_offset
    return decision.opens_below_offset


# -- what helps --------------------------------------------------------------------------------


class Remedy(NamedTuple):
    """Why a gate is closed, and how to open it. One of the `cures` is sufficient."""

    gate: str
    causes: tuple[Reason, ...]
    cures: tuple[Reason, ...]

    @property
    def cause(self) -> str:
        """The causes as text."""
        return text_of(self.causes)

    @property
    def cure(self) -> str:
        """The cures as text."""
        return text_of(self.cures, "; or ")

    def to_json(self) -> dict[str, Any]:
        """Return an item of `remedies` in `logstore explain --format json`."""
        return {
            "gate": self.gate,
            "cause": self.cause,
            "cure": self.cure,
            "causes": reasons_json(self.causes),
            "cures": reasons_json(self.cures),
        }


def remedies(log: Log, decision: CleaningDecision, active: ActiveSegment) -> tuple[Remedy, ...]:
    """Return causes and cures for each closed gate that prevents cleaning.

    Either the dirty ratio or the maximum lag is sufficient, so neither prevents cleaning if the
    other gate is open.
    """
    closed = [gate for gate in decision.gates if not gate.open]
    either = {"dirty_ratio", "max_compaction_lag"}
    is_enough = any(gate.open and gate.gate in either for gate in decision.gates)
    return tuple(
        Remedy(
            gate.gate,
            tuple(_causes(log, decision, active, gate)),
            tuple(_cures(log, decision, active, gate)),
        )
        for gate in closed
        if not (is_enough and gate.gate in either)
    )


def _causes(
    log: Log, decision: CleaningDecision, active: ActiveSegment, gate: Gate
) -> Iterator[Reason]:
    """Yield why a gate is closed."""
    match gate.gate:
        case "empty":
            yield Reason.of("cause.no_records")
        case "active_segment" if not active.size_bytes:
            yield Reason.of("cause.all_clean")
        case "active_segment":
            yield Reason.of(
                "cause.in_active_segment",
                dirty_offset=decision.state.first_dirty_offset,
                base_offset=active.base_offset,
                size_bytes=active.size_bytes,
            )
        case "last_stable_offset":
            producer_id, offset = log.producer_state.ongoing_producer(), log.last_stable_offset
            if producer_id is None:
                yield Reason.of("cause.unknown_transaction", offset=offset)
            else:
                yield Reason.of("cause.open_transaction", producer_id=producer_id, offset=offset)
        case "policy":
            yield gate.reason
            yield Reason.of("cause.by_age_and_size")
        case "uncleanable":
            yield gate.reason
            yield Reason.of("cause.left_alone")
        case _:
            yield gate.reason


def _cures(
    log: Log, decision: CleaningDecision, active: ActiveSegment, gate: Gate
) -> Iterator[Reason]:
    """Yield how to open a closed gate."""
    match gate.gate:
        case "policy":
            yield Reason.of("cure.suppose_policy")
            yield Reason.of("cure.set_policy", topic=log.topic_partition.topic)
        case "cleaner_disabled":
            yield Reason.of("cure.enable_cleaner")
            yield Reason.of("cure.force")
        case "uncleanable":
            yield Reason.of("cure.salvage")
            yield Reason.of("cure.fetch_again")
        case "paused":
            yield Reason.of("cure.wait_for_other")
        case "active_segment" if active.size_bytes:
            yield from (closing.reason for closing in active.closings)
            yield Reason.of("cure.roll")
        case "empty" | "active_segment":
            yield Reason.of("cure.append")
        case "last_stable_offset":
            yield Reason.of("cure.end_transaction")
        case _:
            if gate.opens_at_ms is not None:
                yield Reason.of("cure.wait", at_ms=gate.opens_at_ms)
            yield from _shorter_wait(log, decision, gate)


def _shorter_wait(log: Log, decision: CleaningDecision, gate: Gate) -> Iterator[Reason]:
    """Yield how to open a gate now that would otherwise open with time."""
    if gate.gate == "min_compaction_lag":
        yield Reason.of("cure.lower_min_lag")
        yield Reason.of("cure.force")
    elif gate.gate == "dirty_ratio":
        yield from _dirtier(log, decision)
    else:
        yield _shorter_max_lag(log)


def _dirtier(log: Log, decision: CleaningDecision) -> Iterator[Reason]:
    """Yield how to exceed the dirty ratio, or how to clean without exceeding it."""
    state = decision.state
    needed = bytes_to_exceed(
        state.cleanable_bytes, state.total_bytes, log.config.min_cleanable_dirty_ratio
    )
    if needed is not None:
        yield Reason.of("cure.append_bytes", more_bytes=needed)
    if state.cleanable_bytes:
        yield Reason.of("cure.lower_ratio", ratio=state.cleanable_ratio)
    yield _shorter_max_lag(log)
    yield Reason.of("cure.force")


def _shorter_max_lag(log: Log) -> Reason:
    is_set = log.config.max_compaction_lag_ms < INT64_MAX
    return Reason.of("cure.lower_max_lag" if is_set else "cure.set_max_lag")


def bytes_to_exceed(dirty: int, total: int, ratio: float) -> int | None:
    """Return the number of additional dirty bytes needed to exceed a ratio, or None if impossible.

    This is the smallest n with (dirty + n) / (total + n) > ratio.
    """
    if ratio >= 1:
        return None
    # Rounding can be off by one, so start two lower. The loop finds the smallest n.
    needed = max(0, int((ratio * total - dirty) / (1 - ratio)) - 2)
    while (total + needed) == 0 or (dirty + needed) / (total + needed) <= ratio:
        needed += 1
    return needed


def verdict(decision: CleaningDecision, active: ActiveSegment) -> Reason:
    """Return the verdict on a partition: whether it will be cleaned, or the binding gate."""
    binding = decision.binding
    if binding is None:
        return Reason.of("verdict.due")
    if binding.gate == "active_segment" and not active.size_bytes:
        return Reason.of("verdict.all_clean")
    if binding.gate in ("dirty_ratio", "min_compaction_lag"):
        return Reason(f"verdict.{binding.gate}", binding.reason.values)
    return Reason(f"verdict.{binding.gate}", {})
