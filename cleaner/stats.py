"""Results of a cleaning pass, and of a request to clean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from logstore.cleaner.selection import Gate
    from logstore.reasons import Reason
    from logstore.types import TopicPartition

FATE_NAMES = (
    "retained",
    "superseded",
    "tombstone_expired",
    "aborted",
    "control_expired",
    "null_key",
)
"""Names of the fates by kernel code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerStats:
    """Statistics of a pass over a partition, in the order of their JSON members.

    Attributes
    ----------
    first_dirty_offset, end_offset : int
        The pass cleaned offsets in [first_dirty_offset, end_offset).
    segments_before, segments_after : int
        Number of segments read and written by the rewrite.
    bytes_read, bytes_written : int
        Bytes read and written by the rewrite, in complete batches.
    messages_read, messages_written : int
        Number of records in the batches read, and of retained records.
    invalid_messages_read : int
        Number of records removed because they have no key.
    map_bytes_read, map_messages_read : int
        Bytes and records read to build the map.
    seed_bytes_read, seed_messages_read : int
        Bytes and records of the clean section, read to compare versions.
    unversioned_records, malformed_versions : int
        Number of mapped records without a version, and with a malformed version (strategy
        `header`).
    map_entries : int
        Number of distinct keys.
    map_utilization : float
        Entries divided by counted slots; see `KeyMap.utilization`.
    fates : mapping of str to int
        Number of source records by fate. They add up to `messages_read`.
    index_ms, clean_ms : int
        Monotonic milliseconds spent on mapping and on rewriting.
    """

    topic_partition: TopicPartition
    pass_number: int
    strategy: str
    first_dirty_offset: int
    end_offset: int
    segments_before: int
    segments_after: int
    bytes_read: int
    bytes_written: int
    messages_read: int
    messages_written: int
    map_entries: int
    map_utilization: float
    fates: Mapping[str, int]
    index_ms: int
    clean_ms: int
    map_bytes_read: int
    map_messages_read: int
    seed_bytes_read: int = 0
    seed_messages_read: int = 0
    unversioned_records: int = 0
    malformed_versions: int = 0
    invalid_messages_read: int

    @property
    def fates_total(self) -> int:
        """Number of records in the source batches."""
        return sum(self.fates.values())

    def to_json(self) -> dict[str, Any]:
        """Return the pass as an item of `cleaned` in `logstore clean --format json`."""
        item = {each.name: getattr(self, each.name) for each in fields(self)}
        del item["topic_partition"], item["pass_number"], item["invalid_messages_read"]
        place = self.topic_partition._asdict()
        return {**place, "pass": self.pass_number, **item, "fates": dict(self.fates)}


class NotCleaned(NamedTuple):
    """A partition that was not cleaned, and the gate that prevented it."""

    topic: str
    partition: int
    gate: Gate

    @property
    def reason(self) -> str:
        """Name of the gate."""
        return self.gate.gate

    @property
    def text(self) -> str:
        """The gate's reason as a sentence."""
        return self.gate.text

    @property
    def detail(self) -> Reason:
        """Why the gate is closed."""
        return self.gate.reason

    def to_json(self) -> dict[str, Any]:
        """Return an item of `not_cleaned` in `logstore clean --format json`."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "reason": self.reason,
            **self.detail.to_json(),
        }


@dataclass(frozen=True, slots=True)
class CleanReport:
    """The result of a request to clean.

    Attributes
    ----------
    cleaned : tuple of CleanerStats
        Statistics of each pass, in order.
    not_cleaned : tuple of NotCleaned
        Partitions that were not cleaned, or whose pass did not complete.
    passes_needed : mapping of TopicPartition to int
        Number of passes by cleaned partition. In a dry run, the number of passes needed, of which
        `cleaned` only includes the first.
    dry_run : bool
        Whether nothing was changed.
    """

    cleaned: tuple[CleanerStats, ...]
    not_cleaned: tuple[NotCleaned, ...]
    passes_needed: Mapping[TopicPartition, int] = field(default_factory=dict)
    dry_run: bool = False

    def __repr__(self) -> str:
        done = "would be cleaned" if self.dry_run else "cleaned"
        left = f"{len(self.not_cleaned)} partitions not"
        return f"<CleanReport: {len(self.cleaned)} passes {done}, {left}>"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of `logstore clean --format json`."""
        return {
            "dry_run": self.dry_run,
            "cleaned": [stats.to_json() for stats in self.cleaned],
            "not_cleaned": [each.to_json() for each in self.not_cleaned],
            "passes_needed": {str(tp): count for tp, count in self.passes_needed.items()},
        }
