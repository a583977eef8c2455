"""Facts for explanations and verdicts: damage, tombstones and a dry run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from logstore.analysis.tombstones import live_tombstones
from logstore.analysis.view import Damaged, HasLogs, PartitionView
from logstore.cleaner.command import CleanCommand
from logstore.cleaner.selection import Gate
from logstore.errors import CorruptionError, SegmentOverflowError, UnsupportedFormatError

if TYPE_CHECKING:
    from logstore.cleaner.command import ProgressListener
    from logstore.cleaner.explaining import Tombstone
    from logstore.cleaner.manager import LogCleanerManager
    from logstore.cleaner.selection import CleaningDecision
    from logstore.cleaner.stats import CleanerStats
    from logstore.config.broker_config import BrokerConfig
    from logstore.runtime import Clock
    from logstore.storage.log.log import Log
    from logstore.types import TopicPartition

_UNREADABLE = (CorruptionError, UnsupportedFormatError, SegmentOverflowError)

LEFT = "left_damaged_end"
"""Action of a finding that leaves the damaged end of a log unchanged."""


class Cleaned(HasLogs, Protocol):
    """The parts of a broker that are needed for cleaning."""

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
    """Facts about the records in a log: its surviving tombstones, and damage.

    Attributes
    ----------
    is_read : bool
        Whether all records were read. If not, only damage found earlier is known.
    """

    tombstones: Sequence[Tombstone] | None
    damages: tuple[str, ...]
    obstacle: str | None
    now_ms: int = 0
    is_read: bool = False


NO_FACTS = RecordFacts(None, (), None)
"""Facts if the records were not read."""


def read_facts(broker: Cleaned, tp: TopicPartition, decision: CleaningDecision) -> RecordFacts:
    """Read the records of a partition once."""
    view = PartitionView(broker, tp)
    now_ms = broker.clock.now_ms()
    try:
        tombstones = live_tombstones(view)
    except _UNREADABLE as error:
        path = getattr(error, "path", None)
        stops = _stops(broker, view.log, decision, path)
        return RecordFacts(None, (str(error),), str(error) if stops else None, is_read=True)
    damages = view.damages
    stopping = (str(each) for each in damages if _stops(broker, view.log, decision, each.path))
    return RecordFacts(
        tombstones, tuple(map(str, damages)), next(stopping, None), now_ms, is_read=True
    )


def known_facts(
    broker: Cleaned, log: Log, decision: CleaningDecision, damaged: Sequence[Damaged] = ()
) -> RecordFacts:
    """Return the damage that is known without reading records.

    Parameters
    ----------
    damaged : sequence of Damaged
        Damage that could not be skipped.
    """
    known = [Damaged(str(each), each.path) for each in log.damages]
    known += (Damaged(f"{e.path}: {e.detail}", e.path) for e in log.findings if e.action == LEFT)
    known += damaged
    stopping = (each.text for each in known if _stops(broker, log, decision, each.path))
    return RecordFacts(None, tuple(each.text for each in known), next(stopping, None))


def _stops(broker: Cleaned, log: Log, decision: CleaningDecision, path: str | None) -> bool:
    """Return whether damage in a file stops the next cleaning pass.

    This is the case if the pass reads the file, or if recovery would truncate the log at the
    damage, which commands that write refuse to do.
    """
    directory = broker.manager.registry.directory_of(log.topic_partition)
    if broker.read_only and not directory.is_at_rest(log.topic_partition):
        return True
    end = decision.opens_below_offset
    if end is None or path is None:
        end = decision.state.upper_bound_offset
    base = next((each.base_offset for each in log.segments if each.log_path == path), 0)
    return base < end


def stopped(decision: CleaningDecision, facts: RecordFacts) -> CleaningDecision:
    """Return a decision that includes the gate closed by known damage, if any."""
    if facts.obstacle is None:
        return decision
    return decision.stopped_by(Gate.closed_by("uncleanable", facts.obstacle))


def dry_run_pass(
    cleaner: LogCleanerManager,
    log: Log,
    decision: CleaningDecision,
    *,
    force: bool = False,
    roll: bool = False,
    progress: ProgressListener | None = None,
) -> tuple[CleaningDecision, CleanerStats | None, int]:
    """Dry-run a cleaning pass. An obstacle closes its gate in the decision.

    Parameters
    ----------
    force, roll, progress
        See `CleanCommand`.

    Returns
    -------
    CleaningDecision, CleanerStats or None, int
        The decision, the statistics of the first pass, and the number of passes (an upper bound if
        there are no statistics).
    """
    passes_needed = cleaner.passes_bound(log, decision.state)
    try:
        report = CleanCommand(cleaner, force=force, roll=roll, progress=progress).dry_run([log])
    except _UNREADABLE as error:
        return decision.stopped_by(Gate.closed_by("uncleanable", str(error))), None, passes_needed
    if not report.cleaned:
        obstacles = [each.gate for each in report.not_cleaned]
        return decision.stopped_by(obstacles[0]) if obstacles else decision, None, passes_needed
    return decision, report.cleaned[0], report.passes_needed[log.topic_partition]
