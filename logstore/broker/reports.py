"""Reports of cleaning, retention and deletion as values, named as in the command line's JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from cleaner.manager import CleanOutcome
    from cleaner.stats import CleanerStats
    from logstore.retention import RetentionDecision


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


@dataclass(frozen=True, slots=True)
class RetainReport:
    """What `retain` did, or with `dry_run` would do.

    Attributes
    ----------
    decisions : tuple of RetentionDecision
        One a partition: every segment, with the rule that removes it or the reason why it stays.
    """

    decisions: tuple[RetentionDecision, ...]
    dry_run: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of `logstore retain --format json`."""
        return {
            "dry_run": self.dry_run,
            "removed": [
                {
                    "topic": decision.topic_partition.topic,
                    "partition": decision.topic_partition.partition,
                    "base_offset": verdict.base_offset,
                    "size_bytes": verdict.size_bytes,
                    "rule": str(verdict.rule),
                    "reason": verdict.reason,
                }
                for decision in self.decisions
                for verdict in decision.removed
            ],
            "kept": [
                {
                    "topic": decision.topic_partition.topic,
                    "partition": decision.topic_partition.partition,
                    "base_offset": verdict.base_offset,
                    "size_bytes": verdict.size_bytes,
                    "reason": verdict.reason,
                    "expires_at_ms": verdict.expires_at_ms,
                    "delayed_by_merging": verdict.delayed_by_merging,
                }
                for decision in self.decisions
                for verdict in decision.kept
            ],
        }


class DeleteRecordsResult(NamedTuple):
    """What became of one partition of a delete-records request.

    `low_watermark` is the log start afterwards, -1 with an error; `error` is its name in Kafka's
    protocol, None if there was none, and `message` says more.
    """

    low_watermark: int
    error: str | None = None
    message: str | None = None


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time; the epoch is -1 if its batch has none."""

    offset: int
    timestamp: int
    leader_epoch: int
