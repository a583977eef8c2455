"""Damage that a command passed over, told on standard error and counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from logstore.cli.show.output import note, plural, tell

if TYPE_CHECKING:
    from logstore.broker import Broker
    from logstore.record.survey import Damage
    from logstore.types import TopicPartition

DAMAGES_SHOWN_MAX = 10
"""Damages that are told one by one; the rest is counted."""

EXIT_DAMAGED = 1


class MetDamages:
    """Damages that a listing of files met, one file after another."""

    def __init__(self) -> None:
        self._files: list[list[Damage]] = []

    def of_next_file(self) -> list[Damage]:
        """Return the list that the next file's damages go into."""
        self._files.append([])
        return self._files[-1]

    @property
    def damages(self) -> list[Damage]:
        """The damages, without what stands at the end behind all that is valid."""
        return self._split()[0]

    def _split(self) -> tuple[list[Damage], list[Damage]]:
        """Return the damages, and what stands at the end behind all that is valid."""
        found = [damage for damages in self._files for damage in damages]
        ends: list[Damage] = []
        if self._files:
            ends = [
                each
                for each in self._files[-1]
                # A file that no segment can be is damaged, whatever stands at its end.
                if each.first_offset_after is None and each.check != "segment_size"
            ]
        return [damage for damage in found if damage not in ends], ends

    def tell(self) -> int:
        """Tell all; return the exit code that goes with them."""
        damages, ends = self._split()
        for end in ends:
            size = plural(end.size_bytes, "byte")
            note(f"{size} after the last whole batch of {end.path} ({end.check})")
        return tell_all(damages)

    def to_json(self) -> dict[str, Any]:
        """Return the damages, if there are any."""
        damages = self.damages
        return {"damages": [damage._asdict() for damage in damages]} if damages else {}


def damages_of(broker: Broker, partitions: Iterable[TopicPartition]) -> list[Damage]:
    """Return the damages that were met so far in partitions that are open."""
    from logstore.analysis.broker_state import open_logs

    wanted = set(partitions)
    return [
        damage for tp, log in open_logs(broker).items() if tp in wanted for damage in log.damages
    ]


def tell_damages(broker: Broker, partitions: Iterable[TopicPartition]) -> int:
    """Tell the damages that were met; return the exit code that goes with them."""
    return tell_all(damages_of(broker, partitions))


def tell_all(damages: Sequence[Damage]) -> int:
    """Tell damages; return the exit code that goes with them."""
    for damage in damages[:DAMAGES_SHOWN_MAX]:
        tell(f"damage: {damage}")
    if len(damages) > DAMAGES_SHOWN_MAX:
        note(f"{plural(len(damages), 'damage')} in all; logstore check shows them")
    return EXIT_DAMAGED if damages else 0


def found_json(broker: Broker, partitions: Iterable[TopicPartition]) -> dict[str, Any]:
    """Return for JSON what was passed over and what was assumed, each if there is any."""
    from logstore.analysis.assumptions import assumptions
    from logstore.analysis.broker_state import open_logs

    partitions = list(partitions)
    damages = [damage._asdict() for damage in damages_of(broker, partitions)]
    opened = open_logs(broker)
    assumed = [
        text for tp in partitions if tp in opened for text in assumptions(broker.manager, tp)
    ]
    return {
        name: found
        for name, found in (("damages", damages), ("assumed", list(dict.fromkeys(assumed))))
        if found
    }
