"""Results of requests as values, with the member names used in JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.config.keys import ORIGIN_DEFAULT
from logstore.config.overrides import ConfigValue
from logstore.names import LOG_SUFFIX
from logstore.reasons import Reason, reasons_json, text_of

if TYPE_CHECKING:
    from logstore.analysis.key_explanation import KeyExplanation
    from logstore.analysis.verdict import Verdict
    from logstore.cleaner.explaining import ActiveSegment, Remedy, Tombstones
    from logstore.cleaner.selection import CleaningDecision, Gate
    from logstore.cleaner.stats import CleanerStats
    from logstore.manager.manager import LogManager
    from logstore.manager.topics.store import Topic
    from logstore.storage.log.retention import RetentionDecision
    from logstore.types import TopicPartition


@dataclass(frozen=True, slots=True)
class RetainReport:
    """The decisions of `retain`, which were executed unless `dry_run`.

    Attributes
    ----------
    decisions : tuple of RetentionDecision
        One decision per partition, with each segment and the rule that deletes it or the reason for
        keeping it.
    """

    decisions: tuple[RetentionDecision, ...]
    dry_run: bool = False

    def __repr__(self) -> str:
        removed = sum(len(decision.removed) for decision in self.decisions)
        done = "would be removed" if self.dry_run else "removed"
        return f"<RetainReport: {removed} segments of {len(self.decisions)} partitions {done}>"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of `logstore retain --format json`."""
        return {
            "dry_run": self.dry_run,
            "removed": [
                {
                    **decision.topic_partition._asdict(),
                    **verdict.to_json(),
                    "rule": str(verdict.rule),
                }
                for decision in self.decisions
                for verdict in decision.removed
            ],
            "kept": [
                {
                    **decision.topic_partition._asdict(),
                    **verdict.to_json(),
                    "expires_at_ms": verdict.expires_at_ms,
                    "delayed_by_merging": verdict.delayed_by_merging,
                }
                for decision in self.decisions
                for verdict in decision.kept
            ],
        }


@dataclass(frozen=True, slots=True)
class PartitionExplanation:
    """Why a partition will or will not be cleaned, with the member names used in JSON.

    Attributes
    ----------
    will_clean : bool
        Whether all gates are open.
    binding : str or None
        The first closed gate that prevents cleaning, or None if there is none.
    opens_at_ms : int or None
        Time when the partition will be cleaned, in Unix milliseconds. None if that requires an
        append or a command.
    gates : tuple of Gate
        All gates. Closed gates have the time when they open without intervention.
    passes_needed : int
        Number of passes (each fills the offset map) if a pass was dry-run. Otherwise an upper
        bound, which assumes a distinct key for every dirty record.
    must_clean_ratio, cleanable_ratio : float
        Fraction of bytes that exceed `max.compaction.lag.ms`, and of dirty bytes.
    max_compaction_delay_ms : int
        By how long the oldest dirty data exceeds `max.compaction.lag.ms`, in milliseconds.
    first_dirty_offset, first_uncleanable_offset : int
        Start, and exclusive end, of the range to clean.
    reason : Reason
        The verdict without its time. `headline` is its text.
    remedies : tuple of Remedy
        Causes and remedies for each closed gate that prevents cleaning.
    active_segment : ActiveSegment
        The active segment, which is never cleaned, and the conditions for rolling it.
    tombstones : Tombstones or None
        Counts of surviving tombstones. None if the records were not read or are unreadable.
    tombstone_reasons : tuple of Reason
        Conditions for removing tombstones, and whether the required pass becomes due.
    damages : tuple of str
        Damage in the files, if the records were read.
    first_pass : CleanerStats or None
        Statistics of the first pass, as in a dry run. None if the partition will not be cleaned or
        its records were not read.
    assumed : tuple of str
        Assumptions about configs that the directory does not contain.
    key : KeyExplanation or None
        The future of the requested key, or None if no key was requested.
    verdict : Verdict or None
        State of the partition, and bytes that cleaning would free. None in a preview.
    decision : CleaningDecision
        The underlying decision.
    """

    topic: str
    partition: int
    will_clean: bool
    binding: str | None
    opens_at_ms: int | None
    gates: tuple[Gate, ...]
    passes_needed: int
    must_clean_ratio: float
    cleanable_ratio: float
    max_compaction_delay_ms: int
    first_dirty_offset: int
    first_uncleanable_offset: int
    reason: Reason
    remedies: tuple[Remedy, ...]
    active_segment: ActiveSegment
    tombstones: Tombstones | None
    tombstone_reasons: tuple[Reason, ...]
    damages: tuple[str, ...]
    first_pass: CleanerStats | None
    assumed: tuple[str, ...]
    key: KeyExplanation | None
    decision: CleaningDecision = field(repr=False)
    verdict: Verdict | None = None

    @classmethod
    def of(
        cls, decision: CleaningDecision, passes_needed: int, **attributes: Any
    ) -> PartitionExplanation:
        """Explain a decision made with foresight. `found` contains the other attributes."""
        state, binding = decision.state, decision.binding
        return cls(
            topic=state.topic_partition.topic,
            partition=state.topic_partition.partition,
            will_clean=decision.will_clean,
            binding=None if binding is None else binding.gate,
            opens_at_ms=decision.opens_at_ms,
            gates=decision.gates,
            passes_needed=passes_needed,
            must_clean_ratio=state.must_clean_ratio,
            cleanable_ratio=state.cleanable_ratio,
            max_compaction_delay_ms=state.max_compaction_delay_ms,
            first_dirty_offset=state.first_dirty_offset,
            first_uncleanable_offset=state.first_uncleanable_offset,
            decision=decision,
            **attributes,
        )

    @property
    def headline(self) -> str:
        """The verdict as text, without its time."""
        return self.reason.text

    def to_json(self) -> dict[str, Any]:
        """Return an item of `partitions` in `logstore explain --format json`."""
        item = {each.name: getattr(self, each.name) for each in fields(self)}
        del item["decision"], item["tombstone_reasons"]
        active = self.active_segment
        tombstones = None
        if self.tombstones is not None:
            tombstones = asdict(self.tombstones) | {
                "text": text_of(self.tombstone_reasons),
                "reasons": reasons_json(self.tombstone_reasons),
            }
        return item | {
            "headline": self.headline,
            "reason": self.reason.to_json(),
            "gates": [gate.to_json() for gate in self.gates],
            "remedies": [remedy.to_json() for remedy in self.remedies],
            "active_segment": {
                "base_offset": active.base_offset,
                "size_bytes": active.size_bytes,
                "first_timestamp": active.first_timestamp,
                "closings": [closing.to_json() for closing in active.closings],
            },
            "tombstones": tombstones,
            "first_pass": None if self.first_pass is None else self.first_pass.to_json(),
            "key": None if self.key is None else self.key.to_json(),
            "verdict": None if self.verdict is None else self.verdict.to_json(),
        }


@dataclass(frozen=True, slots=True)
class ExplainReport:
    """The result of `explain`, with one item per partition."""

    partitions: tuple[PartitionExplanation, ...]

    def __repr__(self) -> str:
        due = sum(partition.will_clean for partition in self.partitions)
        return f"<ExplainReport: {due} of {len(self.partitions)} partitions due for cleaning>"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of `logstore explain --format json`."""
        return {"partitions": [partition.to_json() for partition in self.partitions]}


class ConfigChange(NamedTuple):
    """A config key whose effective value or origin changes."""

    key: str
    before: ConfigValue
    after: ConfigValue

    def to_json(self) -> dict[str, Any]:
        """Return an item of `changed` in `logstore topic alter --format json`."""
        return {
            "key": self.key,
            "before": {"value": self.before.value, "origin": self.before.origin},
            "after": {"value": self.after.value, "origin": self.after.origin},
        }


NO_VALUE = ConfigValue("", ORIGIN_DEFAULT, "")
"""Value of the finer unit of a time config before the broker sets it."""


def changes_between(
    before: Mapping[str, ConfigValue], after: Mapping[str, ConfigValue]
) -> tuple[ConfigChange, ...]:
    """Return the keys that change. A missing value counts as empty."""
    changes = []
    for key in {**before, **after}:
        change = ConfigChange(key, before.get(key, NO_VALUE), after.get(key, NO_VALUE))
        if change.before[:2] != change.after[:2]:
            changes.append(change)
    return tuple(changes)


def segment_sizes(manager: LogManager, topic_partition: TopicPartition) -> list[int]:
    """Return a partition's segment sizes without opening its log, which may be damaged.

    Segments removed by another process are omitted.
    """
    fs = manager.runtime.fs
    sizes = []
    for directory in manager.directories:
        if topic_partition in directory.partitions and directory.is_online:
            folder = directory.partition_path(topic_partition)
            with suppress(FileNotFoundError):
                for name in fs.list_dir(folder):
                    if name.endswith(LOG_SUFFIX):
                        with suppress(FileNotFoundError):
                            sizes.append(fs.stat(f"{folder}/{name}").size)
    return sizes


def deleted_json(topic: Topic, sizes: Sequence[int]) -> dict[str, Any]:
    """Return the JSON object of `logstore topic delete --format json`."""
    return {**topic.to_json(), "segments": len(sizes), "size_bytes": sum(sizes)}


def rolled_json(topic_partition: TopicPartition, base_offset: int) -> dict[str, Any]:
    """Return the JSON object of `logstore roll --format json`."""
    return {**topic_partition._asdict(), "base_offset": base_offset}
