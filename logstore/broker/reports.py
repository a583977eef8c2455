"""Reports of a clean as values, with the field names of the command line's JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cleaner.manager import CleanOutcome
    from cleaner.stats import CleanerStats


@dataclass(frozen=True, slots=True)
class NotCleaned:
    """A partition that was passed over, and the gate that kept it (CONTRACT §5 `reason`)."""

    topic: str
    partition: int
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class CleanReport:
    """What `clean` did.

    Attributes
    ----------
    cleaned : tuple of CleanerStats
        One a pass, in order.
    not_cleaned : tuple of NotCleaned
        One a partition that no pass touched.
    dry_run : bool
        Whether nothing was changed.
    """

    cleaned: tuple[CleanerStats, ...]
    not_cleaned: tuple[NotCleaned, ...]
    dry_run: bool = False

    @classmethod
    def of(cls, outcome: CleanOutcome) -> CleanReport:
        """Report what the cleaner did."""
        return cls(
            tuple(outcome.passes),
            tuple(
                NotCleaned(tp.topic, tp.partition, gate.gate, gate.text)
                for tp, gate in outcome.not_cleaned
            ),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of `logstore clean --format json`."""
        passes_needed: dict[str, int] = {}
        for stats in self.cleaned:
            name = str(stats.topic_partition)
            passes_needed[name] = passes_needed.get(name, 0) + 1
        return {
            "dry_run": self.dry_run,
            "cleaned": [stats.to_json() for stats in self.cleaned],
            "not_cleaned": [
                {"topic": each.topic, "partition": each.partition, "reason": each.reason}
                for each in self.not_cleaned
            ],
            "passes_needed": passes_needed,
        }
