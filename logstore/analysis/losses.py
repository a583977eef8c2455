"""Losses: records visible to consumers that an operation would remove.

Compaction does not count as a loss. For all other operations, this determines in advance which
records would be removed, how many, and their timestamps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.analysis.reports import segment_sizes
from logstore.cleaner.command import CleanCommand
from logstore.cleaner.stats import CleanerStats
from logstore.errors import CorruptionError, UnsupportedFormatError
from logstore.record.batch import decode_stored
from logstore.record.walk import walk_headers
from logstore.storage.log.retention import RetentionDecision
from logstore.types import INT64_MAX

if TYPE_CHECKING:
    from logstore.cleaner.manager import LogCleanerManager
    from logstore.manager.manager import LogManager
    from logstore.storage.log.log import Log
    from logstore.storage.segment.segment import LogSegment
    from logstore.types import TopicPartition

COUNTED_BYTES_MAX = 256 << 20
"""Size up to which batch headers are read to count records. Otherwise offsets are counted."""


class LostRecords(NamedTuple):
    """Records of a partition that would be removed.

    Attributes
    ----------
    first_offset, last_offset : int
        Range of visible records (inclusive), or -1 if the partition cannot be opened.
    records : int
        Number of records according to batch headers, excluding control records. If not
        `is_counted`, the number of offsets, which is an upper bound.
    size_bytes : int
        Total size of the records' batches.
    first_timestamp, last_timestamp : int or None
        Minimum and maximum timestamp in Unix milliseconds, or None if unknown.
    """

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
    size_bytes: int
    first_timestamp: int | None
    last_timestamp: int | None
    is_counted: bool

    @property
    def description(self) -> str:
        """Partition and offsets as text."""
        name = f"{self.topic}-{self.partition}"
        if self.first_offset < 0:
            return f"all of {name}, which cannot be opened"
        return f"offsets {self.first_offset} to {self.last_offset} of {name}"

    def to_json(self) -> dict[str, Any]:
        """Return the item of `partitions`."""
        return self._asdict()


@dataclass(frozen=True, slots=True)
class Loss:
    """The records that an operation would remove. Falsy if there are none."""

    parts: tuple[LostRecords, ...] = ()
    unnamed: frozenset[str] = frozenset()
    """Topics that are counted but not named."""

    def __bool__(self) -> bool:
        return bool(self.parts)

    @classmethod
    def of_all(cls, losses: Iterable[Loss]) -> Loss:
        """Combine several losses."""
        return cls(tuple(part for loss in losses for part in loss.parts))

    def visible_to(self, sees: Callable[[str], bool]) -> Loss:
        """Return this loss without naming the topics for which `sees` is false."""
        return replace(
            self, unnamed=frozenset(part.topic for part in self.parts if not sees(part.topic))
        )

    @property
    def named(self) -> list[LostRecords]:
        """The parts whose topics may be named."""
        return [part for part in self.parts if part.topic not in self.unnamed]

    @property
    def records(self) -> int:
        """Number of records, or an upper bound if not `is_counted`."""
        return sum(part.records for part in self.parts)

    @property
    def size_bytes(self) -> int:
        """Total size of the affected batches."""
        return sum(part.size_bytes for part in self.parts)

    @property
    def is_counted(self) -> bool:
        """Whether records were counted instead of offsets."""
        return all(part.is_counted for part in self.parts)

    @property
    def text(self) -> str:
        """The loss as a sentence, with times in Unix milliseconds."""
        if not self.parts:
            return "nothing is lost"
        bound = "" if self.is_counted else "up to "
        if any(part.first_offset < 0 for part in self.parts):
            bound = "at least "
        noun = "record" if self.records == 1 else "records"
        count = f"{bound}{self.records:,} {noun}" if self.records else noun
        descriptions = ", ".join(part.description for part in self.named[:_NAMED_MAX])
        more = len(self.parts) - min(len(self.named), _NAMED_MAX)
        if more > 0:
            others = "partition" if more == 1 else "partitions"
            named = f"{descriptions} and {more} more" if descriptions else f"of {more}"
            descriptions = f"{named} {others}"
        return (
            f"{count} in {self.size_bytes:,} bytes that can still be read would be permanently"
            f" removed: {descriptions}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the loss as JSON, with the first partitions and the number of further ones."""
        firsts = [each.first_timestamp for each in self.parts if each.first_timestamp is not None]
        lasts = [each.last_timestamp for each in self.parts if each.last_timestamp is not None]
        listed = self.named[:_LISTED_MAX]
        return {
            "records": self.records,
            "is_counted": self.is_counted,
            "bytes": self.size_bytes,
            "from_ms": min(firsts, default=None),
            "to_ms": max(lasts, default=None),
            "text": self.text,
            "partitions": [each.to_json() for each in listed],
            "left_out": len(self.parts) - len(listed),
        }


_NAMED_MAX, _LISTED_MAX = 3, 100
"""Maximum number of partitions named in a sentence, and listed in JSON."""

NOTHING_LOST = Loss()


def lost_between(log: Log, start_offset: int, end_offset: int) -> Loss:
    """Return the records in [start, end) that are currently visible to consumers.

    Notes
    -----
    Reads batch headers if the range has at most `COUNTED_BYTES_MAX` bytes.
    """
    return log.reader.steady(partial(_lost_between, log, start_offset, end_offset))


def _lost_between(log: Log, start_offset: int, end_offset: int) -> Loss:
    start = max(start_offset, log.log_start_offset)
    end = min(end_offset, log.log_end_offset)
    if start >= end:
        return NOTHING_LOST
    segments = log.segments.between(start, end)
    size = sum(segment.size_bytes for segment in segments)
    part = None
    if size <= COUNTED_BYTES_MAX:
        try:
            part = _count_records(log, segments, start, end)
        except (CorruptionError, UnsupportedFormatError):  # damaged data would be removed as well
            part = _measure(log, segments, start, end)
    else:
        part = _measure(log, segments, start, end)
    return NOTHING_LOST if part is None else Loss((part,))


def _count_records(
    log: Log, segments: Sequence[LogSegment], start: int, end: int
) -> LostRecords | None:
    records = size_bytes = 0
    first_offset = last_offset = None
    oldest, newest = INT64_MAX, -1
    for segment in segments:
        for at in walk_headers(segment.file, segment.log_path, 0, segment.size_bytes):
            header = at.header
            if header.last_offset < start:
                continue
            if header.base_offset >= end:
                break
            count = header.record_count
            low, high = header.base_offset, header.last_offset
            if low < start or high >= end:
                limit = log.config.logstore_decompression_max_bytes
                inside = decode_stored(segment.read_batch(at), limit)
                count = sum(start <= record.offset < end for record in inside)
                low, high = max(low, start), min(high, end - 1)
            if header.is_control or not count:
                continue
            records += count
            size_bytes += header.size_bytes
            first_offset = low if first_offset is None else first_offset
            last_offset = high
            if header.max_timestamp >= 0:
                # A delete horizon set by cleaning is stored in the base timestamp.
                begins = (
                    header.max_timestamp if header.has_delete_horizon else header.base_timestamp
                )
                oldest = min(oldest, begins if begins >= 0 else header.max_timestamp)
                newest = max(newest, header.max_timestamp)
    if first_offset is None or last_offset is None:
        return None
    return LostRecords(
        *log.topic_partition,
        first_offset,
        last_offset,
        records,
        size_bytes,
        None if newest < 0 else oldest,
        None if newest < 0 else newest,
        True,
    )


def _measure(log: Log, segments: Sequence[LogSegment], start: int, end: int) -> LostRecords:
    newest = max(segment.max_timestamp_so_far.timestamp for segment in segments)
    oldest = min(segment.first_batch_timestamp() for segment in segments)
    return LostRecords(
        *log.topic_partition,
        start,
        end - 1,
        end - start,
        sum(segment.size_bytes for segment in segments),
        None if oldest == INT64_MAX else oldest,
        None if newest < 0 else newest,
        False,
    )


# -- operations with losses --------------------------------------------------------------------


def lost_by_retention(
    log: Log, decision: RetentionDecision, *, beyond: RetentionDecision | None = None
) -> Loss:
    """Return the loss of a retention run with the given decision.

    Parameters
    ----------
    beyond : RetentionDecision, optional
        Removals that happen in any case, which are not counted.
    """
    if not decision.removed:
        return NOTHING_LOST
    start = log.log_start_offset
    if beyond is not None and beyond.removed:
        start = max(start, beyond.removed[-1].end_offset)
    return lost_between(log, start, decision.removed[-1].end_offset)


def lost_by_delete_records(log: Log, before_offset: int) -> Loss:
    """Return the loss of deleting records before an offset, or all records if it is -1."""
    end = log.high_watermark if before_offset == -1 else before_offset
    return lost_between(log, log.log_start_offset, min(end, log.high_watermark))


def lost_with(logs: Iterable[Log]) -> Loss:
    """Return the loss of deleting logs."""
    return Loss.of_all(lost_between(log, log.log_start_offset, log.log_end_offset) for log in logs)


def lost_unread(manager: LogManager, topic_partition: TopicPartition) -> Loss:
    """Return the loss of a partition that cannot be opened, based on file sizes."""
    sizes = segment_sizes(manager, topic_partition)
    if not any(sizes):
        return NOTHING_LOST
    part = LostRecords(*topic_partition, -1, -1, 0, sum(sizes), None, None, False)
    return Loss((part,))


def lost_by_forced_cleaning(cleaner: LogCleanerManager, log: Log, *, roll: bool) -> Loss:
    """Return the records that forced cleaning would remove despite `min.compaction.lag.ms`.

    Compares dry runs with and without the records that the lag protects.
    """
    config = log.config
    if not config.compact or config.min_compaction_lag_ms == 0:
        return NOTHING_LOST
    forced = CleanCommand(cleaner, force=True, roll=roll).decision_of(log)
    allowed = CleanCommand(cleaner, roll=roll).decision_of(log).state.upper_bound_offset
    state = forced.state
    if not forced.will_clean or state.upper_bound_offset <= allowed:
        return NOTHING_LOST
    removals = []
    for bound in (state.upper_bound_offset, max(allowed, state.first_dirty_offset)):
        stats = cleaner.clean(log, state._replace(upper_bound_offset=bound), dry_run=True)
        if not isinstance(stats, CleanerStats):  # damaged or in use; the cleaner reports this
            return NOTHING_LOST
        removals.append(
            (stats.fates_total - stats.fates["retained"], stats.bytes_read - stats.bytes_written)
        )
    (records, size_bytes), (before, before_bytes) = removals
    if records <= before:
        return NOTHING_LOST
    first, last = min(allowed, state.first_dirty_offset), state.upper_bound_offset - 1
    whole = lost_between(log, first, last + 1)
    times = [(each.first_timestamp, each.last_timestamp) for each in whole.parts] or [(None, None)]
    return Loss(
        (
            LostRecords(
                *log.topic_partition,
                max(first, log.log_start_offset),
                last,
                records - before,
                max(0, size_bytes - before_bytes),
                *times[0],
                True,
            ),
        )
    )
