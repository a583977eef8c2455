"""The verdict on a partition: its state, the bytes that cleaning would free, and remedies.

The verdict is based only on decisions of the cleaner and retention, and on dry runs of the cleaner.
Bytes are sizes in `.log` files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.analysis.assumptions import is_policy_known
from logstore.analysis.facts import (
    NO_FACTS,
    Cleaned,
    RecordFacts,
    dry_run_pass,
    known_facts,
    read_facts,
    stopped,
)
from logstore.analysis.missing import missing_offsets
from logstore.analysis.trial import Trial
from logstore.analysis.view import Damaged, PartitionView
from logstore.cleaner.checkpoints import CleanerCheckpoints
from logstore.cleaner.explaining import ActiveSegment, remedies
from logstore.cleaner.explaining import verdict as gate_verdict
from logstore.cleaner.selection import dirty_since_ms
from logstore.errors import CorruptionError, LogStoreError, UnsupportedFormatError
from logstore.reasons import Reason, Value, reasons_json
from logstore.record.walk import batch_totals
from logstore.storage.log.retention import RetentionRule

if TYPE_CHECKING:
    from logstore.cleaner.command import ProgressListener
    from logstore.cleaner.selection import CleaningDecision
    from logstore.cleaner.stats import CleanerStats
    from logstore.config.log_config import LogConfig
    from logstore.storage.log.log import Log
    from logstore.storage.log.retention import RetentionDecision
    from logstore.types import TopicPartition

DAMAGED = "damaged"
UNCLEANABLE = "uncleanable"
DUE = "due"
WAITING = "waiting"
NOTHING_TO_DO = "nothing_to_do"
NOT_COMPACTED = "not_compacted"
UNKNOWN = "unknown"
STATES = (DAMAGED, UNCLEANABLE, DUE, WAITING, NOTHING_TO_DO, NOT_COMPACTED, UNKNOWN)
"""The states of a verdict, most urgent first."""

HEADERS = "headers"
RECORDS = "records"
"""The parts of a log on which a verdict is based: its batch headers, or also all records."""

EMPTY_LISTED = 3
"""Maximum number of empty partitions that a table lists. More are only counted."""


_FAILURES = ("uncleanable", "offset_map", "paused")
"""Gates that stop a dry run before it counts anything."""


class Removal(NamedTuple):
    """Bytes and records that cleaning would remove, according to dry runs.

    Attributes
    ----------
    bytes_if_rolled : int or None
        Number of bytes if the active segment were rolled first. None if that requires several
        passes.
    """

    bytes: int
    records: int
    bytes_if_rolled: int | None


class Measured(NamedTuple):
    """A decision, and the removal measured by dry runs.

    Attributes
    ----------
    decision : CleaningDecision
        The decision, including a gate closed by the dry run.
    removal : Removal or None
        The measured removal. None if nothing was measured, or if several passes are required,
        because a dry run covers only one.
    met_damage : bool
        Whether a dry run met an unreadable batch.
    """

    decision: CleaningDecision
    removal: Removal | None = None
    met_damage: bool = False


class Retention(NamedTuple):
    """The segments that retention would delete now.

    Attributes
    ----------
    reasons : tuple of Reason
        The settings that cause the deletion, and whether it would empty the log.
    """

    segments: int
    bytes: int
    reasons: tuple[Reason, ...] = ()

    @classmethod
    def of(cls, decision: RetentionDecision, config: LogConfig) -> Retention:
        """Summarize a decision."""
        removed = decision.removed
        rules = {each.rule for each in removed}
        reasons = []
        if RetentionRule.LOG_START in rules:
            start = decision.log_start_offset
            reasons.append(Reason.of("retention.by_log_start", log_start_offset=start))
        if RetentionRule.SIZE in rules:
            limit = config.retention_bytes
            reasons.append(Reason.of("retention.by_size", limit_bytes=limit))
        if RetentionRule.TIME in rules:
            reasons.append(Reason.of("retention.by_time", limit_ms=config.retention_ms))
        if decision.rolls:
            reasons.append(Reason.of("retention.empties"))
        size_bytes = sum(each.size_bytes for each in removed)
        return cls(len(removed), size_bytes, tuple(reasons))

    def to_json(self) -> dict[str, Any]:
        """Return `retention` in the JSON of a verdict."""
        return {**self._asdict(), "reasons": reasons_json(self.reasons)}


class Removable(NamedTuple):
    """Bytes that can be freed now, and bytes if the active segment were rolled first."""

    now: int
    if_rolled: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a partition.

    Attributes
    ----------
    state : str
        One of `STATES`. Damage takes precedence.
    exact : bool
        Whether a dry run has read all records counted in `frees_records` without finding damage. If
        the policy does not include `compact`, whether the headers of all batches that retention
        would remove were read.
    frees_bytes, frees_records : int or None
        Number of bytes and records that would be removed now: by the pass that is due, or else by a
        forced pass; if the topic is not compacted, by retention. None unless exact.
    frees_bytes_if_rolled : int or None
        `frees_bytes` if the active segment were rolled first.
    frees_bytes_at_most : int
        `frees_bytes` if exact. Otherwise the size of all segments that the pass may rewrite or
        retention would delete.
    frees_bytes_if_rolled_at_most : int
        `frees_bytes_at_most` if the active segment were rolled first.
    reason : Reason
    since_ms : int or None
        Timestamp of the oldest data that awaits cleaning, or the time when cleaning failed, in Unix
        milliseconds.
    helps : tuple of Reason
        Commands and configs, any one of which is sufficient.
    retention : Retention
        What retention would remove now, under any policy.
    size_bytes : int
        Size of the partition.
    is_due : bool
        Whether the cleaner would clean the partition now, even if there is damage elsewhere.
    notes : tuple of Reason
        Other observations, such as missing offsets.
    examined : str or None
        `HEADERS` or `RECORDS`, or None if the partition was not opened. Damage inside batches can
        only be found by reading records.
    """

    state: str
    exact: bool
    frees_bytes: int | None
    frees_records: int | None
    frees_bytes_if_rolled: int | None
    frees_bytes_at_most: int
    frees_bytes_if_rolled_at_most: int
    reason: Reason
    since_ms: int | None
    helps: tuple[Reason, ...]
    retention: Retention
    size_bytes: int
    is_due: bool = False
    notes: tuple[Reason, ...] = ()
    examined: str | None = None

    @property
    def is_of_an_empty_log(self) -> bool:
        """Whether the log is open and empty, and there is nothing to report."""
        is_opened = self.state in (NOTHING_TO_DO, NOT_COMPACTED) or (
            self.reason.code == "verdict.unknown_policy"
        )
        return is_opened and not self.size_bytes and not self.notes

    @property
    def is_final(self) -> bool:
        """Whether reading the records would not change the verdict."""
        return self.exact or self.state == DAMAGED or not self.size_bytes

    @property
    def is_of_headers(self) -> bool:
        """Whether the log has records that were not read."""
        return self.examined == HEADERS and self.size_bytes > 0

    @property
    def removable_bytes(self) -> Removable:
        """Upper bound of the bytes that the cleaner or retention can free, for sorting.

        Damage stops the cleaner, even in a forced pass.
        """
        retained = self.retention.bytes
        is_stopped = self.state in (DAMAGED, UNCLEANABLE) and not self.is_due
        if is_stopped or self.state in (NOTHING_TO_DO, UNKNOWN):
            return Removable(retained, retained)
        now = max(self.frees_bytes_at_most, retained)
        return Removable(now, max(self.frees_bytes_if_rolled_at_most, now))

    def to_json(self) -> dict[str, Any]:
        """Return `verdict` in the JSON of `inspect`, `explain`, `stats` and the page."""
        return {
            "state": self.state,
            "exact": self.exact,
            "frees_bytes": self.frees_bytes,
            "frees_records": self.frees_records,
            "frees_bytes_if_rolled": self.frees_bytes_if_rolled,
            "frees_bytes_at_most": self.frees_bytes_at_most,
            "frees_bytes_if_rolled_at_most": self.frees_bytes_if_rolled_at_most,
            "removable_bytes": self.removable_bytes._asdict(),
            "reason": self.reason.to_json(),
            "since_ms": self.since_ms,
            "helps": [help_.text for help_ in self.helps],
            "help_reasons": reasons_json(self.helps),
            "retention": self.retention.to_json(),
            "notes": reasons_json(self.notes),
            "examined": self.examined,
        }

    @classmethod
    def of_error(cls, error: LogStoreError, size_bytes: int) -> Verdict:
        """Return the verdict on a partition that cannot be opened or read."""
        if isinstance(error, CorruptionError | UnsupportedFormatError):
            reason = Reason.of("verdict.unreadable", message=str(error))
            helps = (Reason.of("help.check"),)
            return cls._without_numbers(DAMAGED, reason, size_bytes, helps)
        reason = Reason.of("verdict.not_opened", message=str(error))
        return cls._without_numbers(UNKNOWN, reason, size_bytes)

    @classmethod
    def unmeasured(cls, size_bytes: int) -> Verdict:
        """Return the verdict on a partition that has not been opened yet."""
        return cls._without_numbers(UNKNOWN, Reason.of("verdict.unmeasured"), size_bytes)

    @classmethod
    def _without_numbers(
        cls, state: str, reason: Reason, size_bytes: int, helps: tuple[Reason, ...] = ()
    ) -> Verdict:
        return cls(
            state=state,
            exact=False,
            frees_bytes=None,
            frees_records=None,
            frees_bytes_if_rolled=None,
            frees_bytes_at_most=size_bytes,
            frees_bytes_if_rolled_at_most=size_bytes,
            reason=reason,
            since_ms=None,
            helps=helps,
            retention=Retention(0, 0),
            size_bytes=size_bytes,
        )


@dataclass(frozen=True, slots=True)
class Summary:
    """Totals over the verdicts of a directory.

    Attributes
    ----------
    states : dict of str to int
        Number of partitions by state.
    frees_bytes : int or None
        Bytes that cleaning would free now in due partitions, including damaged ones. None unless
        all their verdicts are exact.
    frees_bytes_at_most : int
    bytes : int
        Size of all partitions.
    retention_bytes : int
        Bytes that retention would free now.
    retention_bytes_of_due : int
        The part of `retention_bytes` in partitions that are due, which `frees_bytes` and
        `frees_bytes_at_most` may also include.
    headers_only : int
        Number of partitions with records that were not read.
    """

    partitions: int
    states: dict[str, int]
    frees_bytes: int | None
    frees_bytes_at_most: int
    bytes: int
    retention_bytes: int
    retention_bytes_of_due: int
    headers_only: int

    @classmethod
    def of(cls, verdicts: Iterable[Verdict]) -> Summary:
        """Sum verdicts."""
        states = dict.fromkeys(STATES, 0)
        frees: int | None = 0
        at_most = size = retention = of_due = headers_only = 0
        for each in verdicts:
            states[each.state] += 1
            size += each.size_bytes
            headers_only += each.is_of_headers
            if each.state != UNKNOWN:
                retention += each.retention.bytes
            if each.is_due:
                of_due += each.retention.bytes
                at_most += each.frees_bytes_at_most
                frees = (
                    None if frees is None or each.frees_bytes is None else frees + each.frees_bytes
                )
        return cls(
            sum(states.values()), states, frees, at_most, size, retention, of_due, headers_only
        )

    def to_json(self) -> dict[str, Any]:
        """Return `summary` in the JSON of `inspect`, `explain`, `stats` and the page."""
        return {
            "partitions": self.partitions,
            **self.states,
            "frees_bytes": self.frees_bytes,
            "frees_bytes_at_most": self.frees_bytes_at_most,
            "bytes": self.bytes,
            "retention_bytes": self.retention_bytes,
            "retention_bytes_of_due": self.retention_bytes_of_due,
            "headers_only": self.headers_only,
        }


# -- computing -----------------------------------------------------------------------------------


DryRun = tuple["CleaningDecision", "CleanerStats | None", int]
"""What `dry_run_pass` returns."""


def partition_verdict(
    broker: Cleaned,
    topic_partition: TopicPartition,
    *,
    exact: bool = False,
    damaged: Sequence[Damaged] = (),
    progress: ProgressListener | None = None,
) -> Verdict:
    """Compute the verdict on a partition.

    Parameters
    ----------
    exact : bool
        Dry-run a cleaning pass, twice if the active segment is not empty. [default: use only batch
        headers and known damage]
    damaged : sequence of Damaged
        Damage found by the caller, in addition to damage that was skipped.
    progress : callable, optional
        Called before each chunk of a dry run.

    Raises
    ------
    LogStoreError
        The partition cannot be opened, or the disk failed; see `Verdict.of_error`.
    """
    view = PartitionView(broker, topic_partition)
    decision = view.evaluate(broker.cleaner.chooser.explain)
    log = view.log
    facts = known_facts(broker, log, decision, damaged)
    measured = Measured(decision, None)
    if exact and log.config.compact:
        measured = measure(broker, log, decision, facts, progress=progress)
        if measured.met_damage or facts.damages:
            read = read_facts(broker, topic_partition, decision)
            log = view.log  # reopened after damage
            known = known_facts(broker, log, decision, damaged)
            facts = (known if known.damages else read)._replace(is_read=True)
            measured = Measured(decision)
    if facts.obstacle is not None:
        measured = Measured(stopped(decision, facts))
    return verdict_of(broker, log, measured, facts)


def quick_verdict(broker: Cleaned, log: Log, decision: CleaningDecision) -> Verdict:
    """Return the verdict on an open log, based on a few batch headers.

    Parameters
    ----------
    decision : CleaningDecision
        Decision made without foresight, so `helps` contains no times.
    """
    facts = known_facts(broker, log, decision)
    return verdict_of(broker, log, Measured(stopped(decision, facts)), facts, counts=False)


def explained_verdict(
    broker: Cleaned,
    log: Log,
    done: DryRun,
    facts: RecordFacts,
    *,
    exact: bool,
    progress: ProgressListener | None = None,
) -> Verdict:
    """Return the verdict on an explained partition. Exact if it is due, or if requested.

    Parameters
    ----------
    done : DryRun
        The decision and, if a pass is due, its dry run.
    """
    decision = done[0]
    measured = Measured(decision)
    if facts is NO_FACTS:
        facts = known_facts(broker, log, decision)
        measured = Measured(stopped(decision, facts))
    elif exact or decision.will_clean:
        known = None if done[1] is None else done
        measured = measure(broker, log, decision, facts, known, progress=progress)
    return verdict_of(broker, log, measured, facts)


def measure(
    broker: Cleaned,
    log: Log,
    decision: CleaningDecision,
    facts: RecordFacts,
    done: DryRun | None = None,
    *,
    progress: ProgressListener | None = None,
) -> Measured:
    """Measure the removal by dry-running the pass that is due or, if none is, a forced pass.

    Parameters
    ----------
    facts : RecordFacts
        Known damage.
    done : DryRun, optional
        An earlier dry run without a roll, if any.
    """
    is_disabled = decision.binding is not None and decision.binding.gate == "cleaner_disabled"
    is_candidate = decision.is_candidate or is_disabled  # a forced pass does not need the cleaner
    if not is_candidate or facts.damages:  # with damage, a command may refuse to open the log
        return Measured(decision)
    force = not decision.will_clean
    run = partial(dry_run_pass, broker.cleaner, log, decision, force=force, progress=progress)
    done = done or run()
    now = _Outcome.of(done)
    if now.bytes is None or now.records is None:
        return Measured(decision if now.failure is None else done[0], None, now.met_damage)
    if not log.active_segment.size_bytes:
        return Measured(decision, Removal(now.bytes, now.records, now.bytes))
    rolled = _Outcome.of(run(roll=True))
    return Measured(decision, Removal(now.bytes, now.records, rolled.bytes), rolled.met_damage)


class _Outcome(NamedTuple):
    """The gate that stopped a dry run, or its removal. Both are None if several passes run."""

    failure: str | None
    bytes: int | None
    records: int | None

    @classmethod
    def of(cls, dry_run: DryRun) -> _Outcome:
        decision, stats, passes = dry_run
        if stats is None:
            gate = None if decision.binding is None else decision.binding.gate
            return cls(gate, None, None) if gate in _FAILURES else cls(None, 0, 0)
        if passes > 1:
            return cls(None, None, None)
        removed = stats.messages_read - stats.messages_written
        return cls(None, stats.bytes_read - stats.bytes_written, removed)

    @property
    def met_damage(self) -> bool:
        return self.failure == "uncleanable"


def verdict_of(
    broker: Cleaned, log: Log, measured: Measured, facts: RecordFacts, *, counts: bool = True
) -> Verdict:
    """Return the verdict on a log.

    Parameters
    ----------
    measured : Measured
        The decision, and the results of dry runs, if any.
    facts : RecordFacts
        Known damage.
    counts : bool
        Whether to read batch headers, to count the records that retention would remove and to find
        missing offsets.
    """
    judgement = _VerdictBuilder(broker, log, measured.decision, facts)
    return judgement.verdict(measured.removal, counts=counts)


class _VerdictBuilder:
    """Computes the parts of a verdict on a log."""

    def __init__(
        self, broker: Cleaned, log: Log, decision: CleaningDecision, facts: RecordFacts
    ) -> None:
        self.broker = broker
        self.log = log
        self.decision = decision
        self.facts = facts
        retention = Trial(log, broker.cleaner).retention()
        self.retained = retention.removed
        self.retention = Retention.of(retention, log.config)
        self.active = ActiveSegment.of(log, kafka_exact=broker.cleaner.chooser.kafka_exact)
        self.is_all_clean = decision.state.first_dirty_offset >= log.log_end_offset

    def verdict(self, removal: Removal | None, *, counts: bool) -> Verdict:
        log, decision = self.log, self.decision
        state = self._state()
        if not log.config.compact:
            removal, at_most, rolled_at_most = self._retention_only(state, counts=counts)
        else:
            at_most, rolled_at_most = self._bounds()
        if state == NOTHING_TO_DO and removal is not None and removal.bytes:
            state = WAITING  # waiting for dirty data, which even a forced pass requires
        if removal is not None:
            at_most = removal.bytes
            if removal.bytes_if_rolled is not None:
                rolled_at_most = removal.bytes_if_rolled
        # The removal by retention is counted from headers.
        is_read = self.facts.is_read or (removal is not None and log.config.compact)
        notes = self._notes() if counts else ()
        return Verdict(
            state=state,
            exact=removal is not None,
            frees_bytes=None if removal is None else removal.bytes,
            frees_records=None if removal is None else removal.records,
            frees_bytes_if_rolled=None if removal is None else removal.bytes_if_rolled,
            frees_bytes_at_most=at_most,
            frees_bytes_if_rolled_at_most=rolled_at_most,
            reason=self._reason(state),
            since_ms=self._since_ms(state),
            helps=tuple(self._helps(state, has_notes=bool(notes))),
            retention=self.retention,
            size_bytes=log.size_bytes,
            is_due=decision.will_clean,
            notes=notes,
            examined=RECORDS if is_read else HEADERS,
        )

    def _state(self) -> str:
        if self.facts.damages:
            return DAMAGED
        binding = self.decision.binding
        match None if binding is None else binding.gate:
            case None:
                return DUE
            case "policy":
                topic = self.log.topic_partition.topic
                is_known = is_policy_known(self.broker.manager, topic)
                return NOT_COMPACTED if is_known else UNKNOWN
            case "uncleanable" | "offset_map":
                return UNCLEANABLE
            case "empty":
                return NOTHING_TO_DO
            case "active_segment" if self.is_all_clean:
                return NOTHING_TO_DO
            case _:
                return WAITING

    def _bounds(self) -> tuple[int, int]:
        """Return the size of the segments that a pass may rewrite, now and after a roll.

        A pass also removes clean records that are superseded by dirty ones.
        """
        end = self.decision.state.upper_bound_offset
        if not self.decision.will_clean:
            chooser = self.broker.cleaner.chooser
            end = chooser.decision_of(self.log, force=True).state.upper_bound_offset
        sizes = (each.size_bytes for each in self.log.segments if each.base_offset < end)
        return sum(sizes), self.log.size_bytes

    def _retention_only(self, state: str, *, counts: bool) -> tuple[Removal | None, int, int]:
        """Return what retention would remove from a log that is not compacted, and its bounds."""
        if state == UNKNOWN:
            return None, self.log.size_bytes, self.log.size_bytes
        size = self.retention.bytes
        if not counts and self.retained:
            return None, size, size
        bases = {each.base_offset for each in self.retained}
        try:
            records = sum(
                batch_totals(segment.file, segment.log_path, segment.size_bytes).records
                for segment in self.log.segments
                if segment.base_offset in bases
            )
        except (CorruptionError, UnsupportedFormatError):
            return None, size, size
        return Removal(size, records, size), size, size

    def _reason(self, state: str) -> Reason:
        segments, size = self.retention.segments, self.retention.bytes
        removed = {"segments": segments, "removed_bytes": size}
        damages = self.facts.damages
        match state:
            case "damaged":
                is_elsewhere = self.facts.obstacle is None
                code = "verdict.damaged_elsewhere" if is_elsewhere else "verdict.damaged"
                return Reason.of(code, ranges=len(damages), message=damages[0])
            case "not_compacted":
                return Reason("verdict.retention", removed)
            case "unknown":
                policy = ",".join(self.log.config.cleanup_policy) or "empty"
                return Reason("verdict.unknown_policy", {"policy": policy, **removed})
            case "nothing_to_do" if self.log.size_bytes:
                return Reason.of("verdict.all_clean")
            case "waiting" if self.is_all_clean:
                return Reason.of("verdict.only_forced")
            case _:
                return gate_verdict(self.decision, self.active)

    def _notes(self) -> tuple[Reason, ...]:
        tp = self.log.topic_partition
        checkpoint = CleanerCheckpoints(self.broker.manager.registry.directory_of).of(tp)
        files = PartitionView(self.broker, tp).files
        return tuple(
            Reason(
                "note.missing_offsets",
                {
                    "first_offset": each.start,
                    "last_offset": each.stop - 1,
                    "next_offset": each.stop,
                },
            )
            for each in missing_offsets(self.log, files, checkpoint)
        )

    def _since_ms(self, state: str) -> int | None:
        if state not in (DUE, WAITING, UNCLEANABLE):
            return None
        uncleanable = self.broker.cleaner.uncleanable_partitions
        if (mark := uncleanable.get(self.log.topic_partition)) is not None:
            return mark.since_ms
        return dirty_since_ms(self.log, self.decision.state)

    def _helps(self, state: str, *, has_notes: bool) -> Iterator[Reason]:
        """Yield the commands and settings that help.

        While a segment might be lost, nothing that removes data is suggested, because the loss
        takes priority.
        """
        topic, partition = self.log.topic_partition
        names: dict[str, Value] = {"topic": topic, "partition_id": partition}
        if state == DAMAGED:
            yield Reason("help.check", {})
            yield Reason("help.salvage", names)
        elif has_notes:
            yield Reason("help.check", {})
            yield Reason("help.fetch_lost", {})
            return
        elif state == DUE:
            yield Reason("help.clean", names)
        elif state == WAITING and self.is_all_clean:
            yield Reason("help.force", names)
        elif state in (UNCLEANABLE, WAITING, UNKNOWN):
            yield from self._helps_of_cures(names)
        if self.retained and state not in (DAMAGED, UNKNOWN):
            yield Reason("help.retain", names)

    def _helps_of_cures(self, names: Mapping[str, Value]) -> Iterator[Reason]:
        binding = self.decision.binding
        cures = [
            cure
            for remedy in remedies(self.log, self.decision, self.active)
            if binding is not None and remedy.gate == binding.gate
            for cure in remedy.cures
        ]
        helps = [
            Reason(self._help_code(cure), {**names, **cure.values})
            for cure in cures
            if cure.code in _HELPS
        ]
        yield from helps or cures

    def _help_code(self, cure: Reason) -> str:
        """Return the help code for a cure. A roll alone might not make a pass due."""
        if cure.code == "cure.roll":
            chooser = self.broker.cleaner.chooser
            if not chooser.decision_of(self.log, rolled=True).will_clean:
                return "help.force_roll"
        return _HELPS[cure.code]


_HELPS = {
    "cure.suppose_policy": "help.suppose_policy",
    "cure.set_policy": "help.set_policy",
    "cure.enable_cleaner": "help.enable_cleaner",
    "cure.force": "help.force",
    "cure.roll": "help.roll",
    "cure.salvage": "help.salvage",
    "cure.lower_min_lag": "help.lower_min_lag",
    "cure.lower_ratio": "help.lower_ratio",
    "cure.lower_max_lag": "help.max_lag",
    "cure.set_max_lag": "help.max_lag",
    "cure.end_transaction": "help.end_transaction",
}
"""Command or config for each remedy. Waiting and appending have none."""
