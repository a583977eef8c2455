"""Summaries of partitions, as shown by `logstore inspect`.

Only reads batch headers, without NumPy and numba, unless records are requested.
docs/spec/cleaner.md §2 defines the sections.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.analysis.assumptions import assumptions, policy_assumption
from logstore.analysis.committed import CommittedData
from logstore.analysis.verdict import DAMAGED, RECORDS, Verdict, partition_verdict
from logstore.analysis.view import Damaged, HasLogs, PartitionView
from logstore.cleaner.checkpoints import CleanerCheckpoints
from logstore.cleaner.selection import SECTIONS, dirty_since_ms, section_of, steady_state
from logstore.errors import CorruptionError, CorruptRecordError, UnsupportedFormatError
from logstore.record.walk import BatchTotals, batch_totals
from logstore.storage.log.reader import Isolation
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from logstore.analysis.facts import Cleaned
    from logstore.cleaner.command import ProgressListener
    from logstore.record.survey import Damage
    from logstore.storage.log.log import Log
    from logstore.storage.segment.segment import LogSegment

CORRUPT_BATCH = "corrupt_batch"
"""Action of a finding without repair: a damaged batch below the recovery point."""


class SegmentSummary(NamedTuple):
    """A segment. If the segment is empty, `last_offset` is its base offset minus 1."""

    base_offset: int
    last_offset: int
    size_bytes: int
    batches: int
    records: int
    max_timestamp: int
    section: str

    @classmethod
    def of(cls, segment: LogSegment, totals: BatchTotals, section: str) -> SegmentSummary:
        """Return the summary of a segment with the given totals."""
        return cls(
            segment.base_offset,
            totals.last_offset if totals.batches else segment.base_offset - 1,
            segment.size_bytes,
            totals.batches,
            totals.records,
            totals.max_timestamp,
            section,
        )


class FindingSummary(NamedTuple):
    """A finding from opening the partition, and the repair."""

    action: str
    path: str
    detail: str


class PartitionSummary(NamedTuple):
    """A partition, with the member names of `logstore inspect --format json`.

    Attributes
    ----------
    records : int
        Number of records according to batch headers, including control records.
    live_keys, tombstones : int or None
        Number of keys whose survivor has a value, and of committed tombstones. None if not counted.
    recovery : tuple of FindingSummary
        Repairs that opening for writing would make, and damage that would remain.
    dirty_since_ms : int or None
        Timestamp of the first batch in the oldest segment that is not clean, in Unix milliseconds.
        None if the partition is clean, not compacted, or has no timestamps.
    now_ms : int
        Time of the summary, in Unix milliseconds.
    damages : tuple of Damage
        Skipped damage.
    assumed : tuple of str
        Assumptions about configs that the directory does not contain.
    is_policy_assumed : bool
        Whether `cleanup_policy` is assumed.
    verdict : Verdict or None
        State of the partition, and bytes that cleaning would free.
    """

    topic: str
    partition: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    first_dirty_offset: int
    first_uncleanable_offset: int
    cleanable_ratio: float
    records: int
    live_keys: int | None
    tombstones: int | None
    recovery: tuple[FindingSummary, ...]
    segments: tuple[SegmentSummary, ...]
    directory: str
    cleanup_policy: str
    dirty_since_ms: int | None
    now_ms: int
    damages: tuple[Damage, ...] = ()
    assumed: tuple[str, ...] = ()
    is_policy_assumed: bool = False
    verdict: Verdict | None = None

    @property
    def lag_ms(self) -> int | None:
        """Age of the oldest data that is not clean, by timestamp, or None if unknown."""
        return None if self.dirty_since_ms is None else max(self.now_ms - self.dirty_since_ms, 0)

    @property
    def size_bytes(self) -> int:
        """Total size of all segments."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def is_damaged(self) -> bool:
        """Whether any batch is damaged, apart from a torn batch at the end."""
        if self.verdict is not None and self.verdict.state == DAMAGED:
            return True  # a dry run may have found damage
        return bool(self.damages) or any(
            finding.action == CORRUPT_BATCH for finding in self.recovery
        )

    def section_bytes(self) -> dict[str, int]:
        """Return the size by section."""
        sizes = dict.fromkeys(SECTIONS, 0)
        for segment in self.segments:
            sizes[segment.section] += segment.size_bytes
        return sizes

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of `logstore inspect`."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "log_start_offset": self.log_start_offset,
            "log_end_offset": self.log_end_offset,
            "high_watermark": self.high_watermark,
            "last_stable_offset": self.last_stable_offset,
            "first_dirty_offset": self.first_dirty_offset,
            "first_uncleanable_offset": self.first_uncleanable_offset,
            "cleanable_ratio": self.cleanable_ratio,
            "records": self.records,
            "live_keys": self.live_keys,
            "tombstones": self.tombstones,
            "recovery": [finding._asdict() for finding in self.recovery],
            "segments": [segment._asdict() for segment in self.segments],
            "directory": self.directory,
            "cleanup_policy": self.cleanup_policy,
            "dirty_since_ms": self.dirty_since_ms,
            "damages": [damage._asdict() for damage in self.damages],
            "assumed": list(self.assumed),
            "is_policy_assumed": self.is_policy_assumed,
            "verdict": None if self.verdict is None else self.verdict.to_json(),
        }

    def to_line_json(self) -> dict[str, Any]:
        """Return the JSON object of `logstore inspect --summary`, without segments."""
        members = self.to_json()
        members["segments"] = len(self.segments)
        return {**members, "size_bytes": self.size_bytes, "lag_ms": self.lag_ms}


# -- partitions ----------------------------------------------------------------------------


def sums_of(log: Log, segment: LogSegment) -> BatchTotals:
    """Sum the batch headers of a segment."""
    return batch_totals(segment.file, segment.log_path, segment.size_bytes)


def inspect_partition(
    broker: Cleaned,
    topic_partition: TopicPartition,
    *,
    deep: bool = False,
    exact: bool = False,
    sums: Callable[[Log, LogSegment], BatchTotals] = sums_of,
    progress: ProgressListener | None = None,
) -> PartitionSummary:
    """Summarize a partition.

    Parameters
    ----------
    broker : Cleaned
        Opened read-only, unless recovery is permitted.
    deep : bool
        Decode and verify all records up to the log end offset, to count keys and tombstones.
        Requires 16 bytes plus overhead per live key.
    exact : bool
        Compute the exact verdict by dry-running the cleaner, as `deep` also does.
    sums : callable
        Returns the totals of a segment, which may be cached.
    progress : callable, optional
        Called before each chunk of a dry run.

    Raises
    ------
    UnknownTopicOrPartitionError
    CorruptionError, UnsupportedFormatError
        The partition cannot be opened. Damage found later is in `recovery`.
    KafkaStorageError
        The disk failed.

    Notes
    -----
    Without `deep`, takes about 0.5 µs per batch.
    """
    view = PartitionView(broker, topic_partition)
    try:
        summary = view.evaluate(
            lambda log: _summarize(broker, log, sums, deep=deep, collects=False)
        )
    except (CorruptionError, UnsupportedFormatError):  # the damage cannot be skipped
        summary = _summarize(broker, view.log, sums, deep=deep, collects=True)
    damaged = [Damaged(e.detail, e.path) for e in summary.recovery if e.action == CORRUPT_BATCH]
    try:
        verdict = partition_verdict(
            broker, topic_partition, exact=deep or exact, damaged=damaged, progress=progress
        )
    except (CorruptionError, UnsupportedFormatError) as error:
        verdict = Verdict.of_error(error, summary.size_bytes)
    if deep:
        verdict = replace(verdict, examined=RECORDS)
    return summary._replace(verdict=verdict)


def _summarize(
    broker: HasLogs,
    log: Log,
    sums: Callable[[Log, LogSegment], BatchTotals],
    *,
    deep: bool,
    collects: bool,
) -> PartitionSummary:
    """Summarize a log. Damage is raised or, with `collects`, added to `recovery`."""
    topic_partition = log.topic_partition
    # A summary only imports these parts of the cleaner.
    checkpoint = CleanerCheckpoints(broker.manager.registry.directory_of).of(topic_partition)
    now_ms = broker.runtime.clock.now_ms()
    state = steady_state(log, checkpoint, now_ms)
    recovery = [FindingSummary(*finding) for finding in log.findings]
    segments = []
    for segment in log.segments:
        try:
            totals = sums(log, segment)
        except (CorruptionError, UnsupportedFormatError) as error:
            if not collects:
                raise
            recovery.append(FindingSummary(CORRUPT_BATCH, segment.log_path, str(error)))
            totals = BatchTotals()
        if not collects and totals.end_position < segment.size_bytes:
            raise CorruptRecordError(
                "a segment that ends inside a batch",
                path=segment.log_path,
                position=totals.end_position,
                check="torn_tail",
            )
        segments.append(SegmentSummary.of(segment, totals, section_of(log, segment, state)))
    live_keys = tombstones = None
    if deep:
        try:
            live_keys, tombstones = count_keys(log)
        except (CorruptionError, UnsupportedFormatError) as error:
            if not collects:
                raise
            path = getattr(error, "path", None) or log.directory
            recovery.append(FindingSummary(CORRUPT_BATCH, path, str(error)))
    return PartitionSummary(
        topic=topic_partition.topic,
        partition=topic_partition.partition,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        first_dirty_offset=state.first_dirty_offset,
        first_uncleanable_offset=state.first_uncleanable_offset,
        cleanable_ratio=state.cleanable_ratio,
        records=sum(segment.records for segment in segments),
        live_keys=live_keys,
        tombstones=tombstones,
        recovery=tuple(recovery),
        segments=tuple(segments),
        directory=log.directory,
        cleanup_policy=",".join(log.config.cleanup_policy),
        dirty_since_ms=dirty_since_ms(log, state) if log.config.compact else None,
        now_ms=now_ms,
        damages=log.damages,
        assumed=assumptions(broker.manager, topic_partition, cleaning=True),
        is_policy_assumed=policy_assumption(broker.manager, topic_partition.topic) is not None,
    )


def count_keys(log: Log) -> tuple[int, int]:
    """Return the number of keys whose survivor has a value, and of tombstones.

    Only committed records count. The topic's compaction strategy determines survivors. Decodes all
    records up to the log end offset and verifies CRCs.

    Raises
    ------
    CorruptRecordError
        A batch is damaged. The message contains file and position.
    """
    import xxhash

    from logstore.cleaner.strategy import KeySurvivors, Strategy

    digest = xxhash.xxh3_128_digest
    survivors = KeySurvivors(Strategy.of(log.config))
    live: set[bytes] = set()
    tombstones = 0
    committed = CommittedData(log)
    for batch, rows in log.reader.rows(log.log_start_offset, isolation=Isolation.LOG_END):
        if not committed.has(batch.header):
            continue
        for offset, timestamp, key, value, headers in rows:
            tombstones += value is None
            if key is None:
                continue
            hashed = digest(key)
            if not survivors.enter(hashed, offset, timestamp, headers):
                continue
            if value is None:
                live.discard(hashed)
            else:
                live.add(hashed)
    return len(live), tombstones
