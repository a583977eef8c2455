"""The numbers of one pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from logstore.types import TopicPartition

FATE_NAMES = (
    "retained",
    "superseded",
    "tombstone_expired",
    "aborted",
    "control_expired",
    "null_key",
)
"""Names of the fates, in the order of the kernels' codes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerStats:
    """The numbers of one pass over one partition: read, kept, written.

    Attributes
    ----------
    first_dirty_offset, end_offset : int
        The pass cleaned offsets in [first_dirty_offset, end_offset).
    segments_before, segments_after : int
        Segments rewritten, and what they became.
    bytes_read, bytes_written : int
        Of the rewrite; whole batches.
    messages_read, messages_written : int
        Records of the batches that were read, and records kept.
    invalid_messages_read : int
        Records without a key that were dropped.
    map_bytes_read, map_messages_read : int
        Of the map build.
    seed_bytes_read, seed_messages_read : int
        Of the clean section, read to be compared under strategies with versions.
    unversioned_records, malformed_versions : int
        Records of the map build that had no version under strategy header, and those of them
        whose header is not of the expected form.
    map_entries : int
        Distinct keys mapped.
    map_utilization : float
        Entries over the slots that the buffer counts.
    fates : mapping of str to int
        Records of the source batches by fate; they add up to all of them.
    index_ms, clean_ms : int
        Monotonic ms spent on the map and on the rewrite.
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
    invalid_messages_read: int
    map_bytes_read: int
    map_messages_read: int
    seed_bytes_read: int = 0
    seed_messages_read: int = 0
    unversioned_records: int = 0
    malformed_versions: int = 0
    map_entries: int
    map_utilization: float
    fates: Mapping[str, int]
    index_ms: int
    clean_ms: int

    @property
    def fates_total(self) -> int:
        """Records of the source batches."""
        return sum(self.fates.values())

    def to_json(self) -> dict[str, Any]:
        """Return the pass as an item of `cleaned` in `logstore clean --format json`."""
        return {
            "topic": self.topic_partition.topic,
            "partition": self.topic_partition.partition,
            "pass": self.pass_number,
            "strategy": self.strategy,
            "first_dirty_offset": self.first_dirty_offset,
            "end_offset": self.end_offset,
            "segments_before": self.segments_before,
            "segments_after": self.segments_after,
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "messages_read": self.messages_read,
            "messages_written": self.messages_written,
            "map_entries": self.map_entries,
            "map_utilization": self.map_utilization,
            "fates": dict(self.fates),
            "index_ms": self.index_ms,
            "clean_ms": self.clean_ms,
            "map_bytes_read": self.map_bytes_read,
            "map_messages_read": self.map_messages_read,
            "seed_bytes_read": self.seed_bytes_read,
            "seed_messages_read": self.seed_messages_read,
            "unversioned_records": self.unversioned_records,
            "malformed_versions": self.malformed_versions,
        }
