"""Report the damage that a command skipped, and the assumptions it made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from logstore.cli.show.output import note, plural, print_stderr

if TYPE_CHECKING:
    from logstore.broker import Broker
    from logstore.manager.manager import LogManager
    from logstore.record.survey import Damage
    from logstore.types import TopicPartition

DAMAGES_SHOWN_MAX = 10
"""Maximum number of damaged ranges to print. The others are counted."""

EXIT_DAMAGED = 1


class SkippedDamage:
    """Damaged ranges that were skipped while listing files, one after another."""

    def __init__(self) -> None:
        self._files: list[list[Damage]] = []

    def of_next_file(self) -> list[Damage]:
        """Return the list to which the next file's damage is added."""
        self._files.append([])
        return self._files[-1]

    @property
    def damages(self) -> list[Damage]:
        """Damaged ranges, excluding a torn batch at the end of the last file."""
        return self._split()[0]

    def _split(self) -> tuple[list[Damage], list[Damage]]:
        """Return the damaged ranges, and separately those behind the last file's last batch."""
        found = [damage for damages in self._files for damage in damages]
        ends: list[Damage] = []
        if self._files:
            ends = [
                each
                for each in self._files[-1]
                # A file with an impossible size is damaged in any case.
                if each.first_offset_after is None and each.check != "segment_size"
            ]
        return [damage for damage in found if damage not in ends], ends

    def report(self) -> int:
        """Print the damage to standard error and return the exit code."""
        damages, ends = self._split()
        for end in ends:
            size = plural(end.size_bytes, "byte")
            note(f"{size} after the last whole batch of {end.path} ({end.check})")
        return report_all(damages)

    def to_json(self) -> dict[str, Any]:
        """Return the `damages` member, or an empty dict if nothing was damaged."""
        damages = self.damages
        return {"damages": [damage._asdict() for damage in damages]} if damages else {}


def damages_of(broker: Broker, partitions: Iterable[TopicPartition]) -> list[Damage]:
    """Return the damage found so far in open partitions."""
    from logstore.analysis.broker_state import open_logs

    wanted = set(partitions)
    return [
        damage for tp, log in open_logs(broker).items() if tp in wanted for damage in log.damages
    ]


def report_damages(broker: Broker, partitions: Iterable[TopicPartition]) -> int:
    """Print the damage found so far to standard error and return the exit code."""
    return report_all(damages_of(broker, partitions))


def report_all(damages: Sequence[Damage]) -> int:
    """Print damage to standard error and return the exit code."""
    for damage in damages[:DAMAGES_SHOWN_MAX]:
        print_stderr(f"damage: {damage}")
    if len(damages) > DAMAGES_SHOWN_MAX:
        note(f"{plural(len(damages), 'damaged range')} in total; see logstore check")
    return EXIT_DAMAGED if damages else 0


def note_assumed_policy(broker: Broker, partitions: Iterable[TopicPartition]) -> None:
    """Print a note to standard error if any cleanup.policy is assumed."""
    from logstore.analysis.assumptions import policy_assumption

    _note_assumed(broker, partitions, policy_assumption)


def note_assumed_limits(broker: Broker, partitions: Iterable[TopicPartition]) -> None:
    """Print a note to standard error if any retention limits are assumed."""
    from logstore.analysis.assumptions import limits_assumption

    _note_assumed(broker, partitions, limits_assumption)


def _note_assumed(
    broker: Broker,
    partitions: Iterable[TopicPartition],
    assumption: Callable[[LogManager, str], str | None],
) -> None:
    topics = dict.fromkeys(tp.topic for tp in partitions)
    assumed = [text for topic in topics if (text := assumption(broker.manager, topic))]
    if assumed:
        others = plural(len(assumed) - 1, "other topic")
        note(f"assumed: {assumed[0]}" + (f" (likewise for {others})" if assumed[1:] else ""))


def found_json(broker: Broker, partitions: Iterable[TopicPartition]) -> dict[str, Any]:
    """Return the skipped damage and the assumptions as JSON. Empty if there are none."""
    partitions = list(partitions)
    damages = [damage._asdict() for damage in damages_of(broker, partitions)]
    assumed = assumed_of(broker, partitions)
    return {name: found for name, found in (("damages", damages), ("assumed", assumed)) if found}


def assumed_of(
    broker: Broker, partitions: Iterable[TopicPartition], *, cleaning: bool = False
) -> list[str]:
    """Return the distinct assumptions about open partitions."""
    from logstore.analysis.assumptions import assumptions
    from logstore.analysis.broker_state import open_logs

    opened = open_logs(broker)
    texts = (
        text
        for tp in partitions
        if tp in opened
        for text in assumptions(broker.manager, tp, cleaning=cleaning)
    )
    return list(dict.fromkeys(texts))
