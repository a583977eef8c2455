"""Losses: records that a reader could still read, and that a deed would take away.

What compaction removes is none: it was set to. Everything else that removes records tells here
beforehand which, how many and of what time.
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
"""Bytes of a log whose batch headers are read to count records; of more, offsets are counted."""


class LostRecords(NamedTuple):
    """The records of one partition that would go.

    Attributes
    ----------
    first_offset, last_offset : int
        Inclusive; of what readers see. -1 of a partition that cannot be opened.
    records : int
        By the batch headers, control records not counted; the offsets, which are at least as many,
        unless `is_counted`.
    size_bytes : int
        Bytes of the batches that they are in.
    first_timestamp, last_timestamp : int or None
        Unix ms, the oldest and the newest; None if no record has one.
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
    def place(self) -> str:
        """Their partition and offsets in words."""
        name = f"{self.topic}-{self.partition}"
        if self.first_offset < 0:
            return f"all of {name}, which cannot be opened"
        return f"offsets {self.first_offset} to {self.last_offset} of {name}"

    def to_json(self) -> dict[str, Any]:
        """Return the item of `partitions`."""
        return self._asdict()


@dataclass(frozen=True, slots=True)
class Loss:
    """What a deed would take away; false if that is nothing."""

    parts: tuple[LostRecords, ...] = ()
    unnamed: frozenset[str] = frozenset()
    """Topics that count and are not told by name."""

    def __bool__(self) -> bool:
        return bool(self.parts)

    @classmethod
    def of_all(cls, losses: Iterable[Loss]) -> Loss:
        """Return several as one."""
        return cls(tuple(part for loss in losses for part in loss.parts))

    def told_to(self, sees: Callable[[str], bool]) -> Loss:
        """Return the same, without the names of topics that somebody may not see."""
        return replace(
            self, unnamed=frozenset(part.topic for part in self.parts if not sees(part.topic))
        )

    @property
    def named(self) -> list[LostRecords]:
        """The parts that are told by name."""
        return [part for part in self.parts if part.topic not in self.unnamed]

    @property
    def records(self) -> int:
        """All of them; at most so many, unless `is_counted`."""
        return sum(part.records for part in self.parts)

    @property
    def size_bytes(self) -> int:
        """Bytes of all of them."""
        return sum(part.size_bytes for part in self.parts)

    @property
    def is_counted(self) -> bool:
        """Whether the records were counted, not their offsets."""
        return all(part.is_counted for part in self.parts)

    @property
    def text(self) -> str:
        """All of it in a sentence, times in Unix ms."""
        if not self.parts:
            return "nothing is lost"
        count = f"{'' if self.is_counted else 'up to '}{self.records:,}"
        noun = "record" if self.records == 1 else "records"
        if any(part.first_offset < 0 for part in self.parts):
            count = "records" if not self.records else f"at least {self.records:,}"
            noun = "" if not self.records else noun
        places = [part.place for part in self.named[:_NAMED_MAX]]
        more = len(self.parts) - len(places)
        if more > 0:
            other = "more of {} other" if places else "of {}"
            places.append(f"{other.format(more)} {'partition' if more == 1 else 'partitions'}")
        return (
            f"{count} {noun} in {self.size_bytes:,} bytes go for good, which can still be read:"
            f" {', '.join(places)}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON; of many partitions the first, and how many more there are."""
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
"""Partitions that a sentence names, and that JSON lists."""

NOTHING_LOST = Loss()


def lost_between(log: Log, start_offset: int, end_offset: int) -> Loss:
    """Return the records of a log in [start, end), as far as readers see them now.

    Notes
    -----
    Reads the batch headers of up to `COUNTED_BYTES_MAX` bytes, and else none.
    """
    return log.reader.steady(partial(_lost_between, log, start_offset, end_offset))


def _lost_between(log: Log, start_offset: int, end_offset: int) -> Loss:
    start = max(start_offset, log.log_start_offset)
    end = min(end_offset, log.log_end_offset)
    if start >= end:
        return NOTHING_LOST
    segments = log.segments.between(start, end)
    size = sum(segment.size_bytes for segment in segments)
    found = None
    if size <= COUNTED_BYTES_MAX:
        try:
            found = _counted(log, segments, start, end)
        except (CorruptionError, UnsupportedFormatError):  # what is damaged goes all the same
            found = _measured(log, segments, start, end)
    else:
        found = _measured(log, segments, start, end)
    return NOTHING_LOST if found is None else Loss((found,))


def _counted(log: Log, segments: Sequence[LogSegment], start: int, end: int) -> LostRecords | None:
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
                # Where a cleaning left a horizon, the base timestamp is that.
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


def _measured(log: Log, segments: Sequence[LogSegment], start: int, end: int) -> LostRecords:
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


# -- deeds that lose ---------------------------------------------------------------------------


def lost_by_retention(
    log: Log, decision: RetentionDecision, *, beyond: RetentionDecision | None = None
) -> Loss:
    """Return what a run of retention takes away, as decided.

    Parameters
    ----------
    beyond : RetentionDecision, optional
        What goes anyway, and is not counted.
    """
    if not decision.removed:
        return NOTHING_LOST
    start = log.log_start_offset
    if beyond is not None and beyond.removed:
        start = max(start, beyond.removed[-1].end_offset)
    return lost_between(log, start, decision.removed[-1].end_offset)


def lost_by_delete_records(log: Log, before_offset: int) -> Loss:
    """Return what a request to delete the records below an offset takes away; -1: all."""
    end = log.high_watermark if before_offset == -1 else before_offset
    return lost_between(log, log.log_start_offset, min(end, log.high_watermark))


def lost_with(logs: Iterable[Log]) -> Loss:
    """Return all that readers see of some logs, which are to be deleted."""
    return Loss.of_all(lost_between(log, log.log_start_offset, log.log_end_offset) for log in logs)


def lost_unread(manager: LogManager, topic_partition: TopicPartition) -> Loss:
    """Return a partition whose log cannot be opened, by the sizes of its files."""
    sizes = segment_sizes(manager, topic_partition)
    if not any(sizes):
        return NOTHING_LOST
    part = LostRecords(*topic_partition, -1, -1, 0, sum(sizes), None, None, False)
    return Loss((part,))


def lost_by_forced_cleaning(cleaner: LogCleanerManager, log: Log, *, roll: bool) -> Loss:
    """Return what a forced cleaning takes away though `min.compaction.lag.ms` promises it.

    Runs the cleaning as in a dry run, with and without what the lag holds back.
    """
    config = log.config
    if not config.compact or config.min_compaction_lag_ms == 0:
        return NOTHING_LOST
    forced = CleanCommand(cleaner, force=True, roll=roll).foresee(log)
    allowed = CleanCommand(cleaner, roll=roll).foresee(log).state.upper_bound_offset
    state = forced.state
    if not forced.will_clean or state.upper_bound_offset <= allowed:
        return NOTHING_LOST
    gone = []
    for bound in (state.upper_bound_offset, max(allowed, state.first_dirty_offset)):
        stats = cleaner.clean(log, state._replace(upper_bound_offset=bound), dry_run=True)
        if not isinstance(stats, CleanerStats):  # damaged or in use, as the cleaning will report
            return NOTHING_LOST
        gone.append(
            (stats.fates_total - stats.fates["retained"], stats.bytes_read - stats.bytes_written)
        )
    (records, size_bytes), (before, before_bytes) = gone
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
