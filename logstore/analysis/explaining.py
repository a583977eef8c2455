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

_UNREAD = "every batch is assumed to be sound: its records were not read; without --quick they are"


class Cleaned(HasLogs, Protocol):
    """A broker, as far as cleaning is concerned."""

    @property
    def broker_config(self) -> BrokerConfig:
        """Its settings."""

    @property
    def cleaner(self) -> LogCleanerManager:
        """Its cleaner."""

    @property
    def clock(self) -> Clock:
        """Its clock."""

    @property
    def read_only(self) -> bool:
        """Whether it changes nothing."""


class Look(NamedTuple):
    """Facts from reading the records of a log: its surviving tombstones, and damage."""

    tombstones: Sequence[Tombstone] | None
    damages: tuple[str, ...]
    obstacle: str | None
    now_ms: int = 0


NOTHING_READ = Look(None, (), None)
"""The records were not read."""


def explain(
    broker: Cleaned,
    partitions: Sequence[TopicPartition],
    *,
    quick: bool = False,
    key: bytes | None = None,
) -> ExplainReport:
    """Explain the gates between partitions and their cleaning; see `Broker`."""
    found = []
    for tp in partitions:
        with suppress(UnknownTopicOrPartitionError):  # deleted meanwhile
            found.append(explain_partition(broker, tp, quick=quick, key=key))
    return ExplainReport(tuple(found))


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
    look = NOTHING_READ
    first_pass = None
    if log.config.compact and quick:
        assumed = (*assumed, _UNREAD)
    elif log.config.compact:
        look = look_at(broker, topic_partition, decision)
        log = broker.manager.log(topic_partition)  # another one, if damage was met
        if look.obstacle is not None:
            decision = decision.stopped_by(Gate.closed_by("uncleanable", look.obstacle))
        elif decision.will_clean:
            decision, first_pass, passes_needed = rehearse(cleaner, log, decision)
    found = explanation(
        log,
        decision,
        look,
        passes_needed,
        first_pass,
        assumed=assumed,
        kafka_exact=chooser.kafka_exact,
    )
    if key is None:
        return found
    from logstore.analysis.key_story import explain_key

    story = explain_key(broker, topic_partition, key, decision, found.remedies)
    return replace(found, key=story)


def explanation(
    log: Log,
    decision: CleaningDecision,
    look: Look,
    passes_needed: int,
    first_pass: CleanerStats | None,
    *,
    assumed: Sequence[str],
    kafka_exact: bool,
) -> PartitionExplanation:
    """Explain a decision that foresaw, with the facts from its records."""
    active = ActiveSegment.of(log, kafka_exact=kafka_exact)
    tombstones = None
    tombstone_reasons: tuple[Reason, ...] = ()
    if look.tombstones is not None:
        tombstones = Tombstones.of(look.tombstones, look.now_ms, decision)
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
        damages=look.damages,
        first_pass=first_pass,
        assumed=tuple(assumed),
    )


def look_at(broker: Cleaned, tp: TopicPartition, decision: CleaningDecision) -> Look:
    """Read the records of a partition once."""
    view = PartitionView(broker, tp)
    now_ms = broker.clock.now_ms()
    try:
        tombstones = live_tombstones(view)
    except _UNREADABLE as error:
        path = getattr(error, "path", None)
        stops = _stops(broker, view.log, decision, path)
        return Look(None, (str(error),), str(error) if stops else None)
    damages = view.damages
    stopping = (str(each) for each in damages if _stops(broker, view.log, decision, each.path))
    return Look(tombstones, tuple(map(str, damages)), next(stopping, None), now_ms)


def _stops(broker: Cleaned, log: Log, decision: CleaningDecision, path: str | None) -> bool:
    """Return whether damage in a file stops the next cleaning.

    It does if the cleaning reads the file; or if recovery would cut the log there, which a command
    that writes refuses.
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
    """Run a cleaning as a dry run does; what stops it closes its gate.

    Parameters
    ----------
    whenever : bool
        That which comes once it is due, as if it was now: forced, with the active segment rolled.

    Returns
    -------
    CleaningDecision, CleanerStats or None, int
        With the number of passes; an upper bound without the numbers of the first.
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
