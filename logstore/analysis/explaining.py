"""Explanations of partitions: the decision about each, and facts from reading its records."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from logstore.analysis.assumptions import assumptions
from logstore.analysis.reports import ExplainReport, PartitionExplanation
from logstore.analysis.tombstones import live_tombstones
from logstore.analysis.view import HasLogs, PartitionView
from logstore.cleaner.command import CleanCommand
from logstore.cleaner.explaining import ActiveSegment, Tombstones, remedies, verdict
from logstore.cleaner.selection import Gate
from logstore.errors import (
    CorruptionError,
    SegmentOverflowError,
    UnknownTopicOrPartitionError,
    UnsupportedFormatError,
)

if TYPE_CHECKING:
    from logstore.cleaner.explaining import Tombstone
    from logstore.cleaner.manager import LogCleanerManager
    from logstore.cleaner.selection import CleaningDecision
    from logstore.cleaner.stats import CleanerStats
    from logstore.config.broker_config import BrokerConfig
    from logstore.reasons import Reason
    from logstore.runtime import Clock
    from logstore.storage.log.log import Log
    from logstore.types import TopicPartition

_UNREADABLE = (CorruptionError, UnsupportedFormatError, SegmentOverflowError)

_UNREAD = "every batch is assumed to be valid: --quick reads no records"


class Cleaned(HasLogs, Protocol):
    """The parts of a broker that cleaning needs."""

    @property
    def broker_config(self) -> BrokerConfig:
        """The broker's settings."""

    @property
    def cleaner(self) -> LogCleanerManager:
        """The broker's cleaner."""

    @property
    def clock(self) -> Clock:
        """The broker's clock."""

    @property
    def read_only(self) -> bool:
        """Whether the broker is read-only."""


class RecordFacts(NamedTuple):
    """Facts from reading the records of a log: its surviving tombstones, and damage."""

    tombstones: Sequence[Tombstone] | None
    damages: tuple[str, ...]
    obstacle: str | None
    now_ms: int = 0


NO_FACTS = RecordFacts(None, (), None)
"""The records were not read."""


def explain(
    broker: Cleaned,
    partitions: Sequence[TopicPartition],
    *,
    quick: bool = False,
    key: bytes | None = None,
) -> ExplainReport:
    """Explain the gates between partitions and their cleaning; see `Broker`."""
    explanations = []
    for tp in partitions:
        with suppress(UnknownTopicOrPartitionError):  # deleted in the meantime
            explanations.append(explain_partition(broker, tp, quick=quick, key=key))
    return ExplainReport(tuple(explanations))


def explain_partition(
    broker: Cleaned,
    topic_partition: TopicPartition,
    *,
    quick: bool = False,
    key: bytes | None = None,
) -> PartitionExplanation:
    """Explain the gates between a partition and its cleaning; see `Broker.explain`."""
    cleaner = broker.cleaner
    chooser = cleaner.chooser
    log = broker.manager.log(topic_partition)
    decision = chooser.explain(log)
    passes_needed = cleaner.passes_bound(log, decision.state)
    assumed = assumptions(broker.manager, topic_partition, cleaning=True)
    facts = NO_FACTS
    first_pass = None
    if log.config.compact and quick:
        assumed = (*assumed, _UNREAD)
    elif log.config.compact:
        facts = read_facts(broker, topic_partition, decision)
        log = broker.manager.log(topic_partition)  # reopened if damage was met
        if facts.obstacle is not None:
            decision = decision.stopped_by(Gate.closed_by("uncleanable", facts.obstacle))
        elif decision.will_clean:
            decision, first_pass, passes_needed = rehearse(cleaner, log, decision)
    result = explanation(
        log,
        decision,
        facts,
        passes_needed,
        first_pass,
        assumed=assumed,
        kafka_exact=chooser.kafka_exact,
    )
    if key is None:
        return result
    from logstore.analysis.key_explanation import explain_key

    key_explanation = explain_key(broker, topic_partition, key, decision, result.remedies)
    return replace(result, key=key_explanation)


def explanation(
    log: Log,
    decision: CleaningDecision,
    facts: RecordFacts,
    passes_needed: int,
    first_pass: CleanerStats | None,
    *,
    assumed: Sequence[str],
    kafka_exact: bool,
) -> PartitionExplanation:
    """Explain a decision made with foresight, using facts from reading the records."""
    active = ActiveSegment.of(log, kafka_exact=kafka_exact)
    tombstones = None
    tombstone_reasons: tuple[Reason, ...] = ()
    if facts.tombstones is not None:
        tombstones = Tombstones.of(facts.tombstones, facts.now_ms, decision)
        tombstone_reasons = tombstones.reasons(decision, log.config.delete_retention_ms)
    return PartitionExplanation.of(
        decision,
        passes_needed,
        reason=verdict(decision, active),
        remedies=remedies(log, decision, active),
        key=None,
        active_segment=active,
        tombstones=tombstones,
        tombstone_reasons=tombstone_reasons,
        damages=facts.damages,
        first_pass=first_pass,
        assumed=tuple(assumed),
    )


def read_facts(broker: Cleaned, tp: TopicPartition, decision: CleaningDecision) -> RecordFacts:
    """Read the records of a partition once."""
    view = PartitionView(broker, tp)
    now_ms = broker.clock.now_ms()
    try:
        tombstones = live_tombstones(view)
    except _UNREADABLE as error:
        path = getattr(error, "path", None)
        stops = _stops(broker, view.log, decision, path)
        return RecordFacts(None, (str(error),), str(error) if stops else None)
    damages = view.damages
    stopping = (str(each) for each in damages if _stops(broker, view.log, decision, each.path))
    return RecordFacts(tombstones, tuple(map(str, damages)), next(stopping, None), now_ms)


def _stops(broker: Cleaned, log: Log, decision: CleaningDecision, path: str | None) -> bool:
    """Return whether damage in a file stops the next cleaning pass.

    It does if the cleaning pass reads the file; or if recovery would cut the log there, which a
    command that writes refuses.
    """
    directory = broker.manager.registry.directory_of(log.topic_partition)
    if broker.read_only and not directory.is_at_rest(log.topic_partition):
        return True
    end = decision.opens_below_offset
    if end is None or path is None:
        end = decision.state.upper_bound_offset
    base = next((each.base_offset for each in log.segments if each.log_path == path), 0)
    return base < end


def rehearse(
    cleaner: LogCleanerManager, log: Log, decision: CleaningDecision, *, whenever: bool = False
) -> tuple[CleaningDecision, CleanerStats | None, int]:
    """Run a cleaning pass as a dry run. An obstacle closes its gate in the decision.

    Parameters
    ----------
    whenever : bool
        Run the next cleaning pass even if it is not due: forced, with the active segment rolled.

    Returns
    -------
    CleaningDecision, CleanerStats or None, int
        The decision, the statistics of the first pass and the number of passes, which is an upper
        bound without statistics.
    """
    passes_needed = cleaner.passes_bound(log, decision.state)
    try:
        report = CleanCommand(cleaner, force=whenever, roll=whenever).rehearse([log])
    except _UNREADABLE as error:
        return decision.stopped_by(Gate.closed_by("uncleanable", str(error))), None, passes_needed
    if not report.cleaned:
        obstacles = [each.gate for each in report.not_cleaned]
        return decision.stopped_by(obstacles[0]) if obstacles else decision, None, passes_needed
    return decision, report.cleaned[0], report.passes_needed[log.topic_partition]
