"""Model of a partition's log as plain lists: batches in segments, bounds, leader epochs.

It follows storage-format §8, §11 and §13 to §15, without bytes and without the engine's rules. The
size of a batch, the modification time of a file and the reason for a roll are inputs. The model
derives the segments that retention deletes, the result of a truncation, the records for a reader or
a search by time, and the state after a restart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from logstore.config.log_config import LogConfig
from logstore.record.records import Record

MtimeOf = Callable[[int], int]
"""Base offset of a segment → modification time of its `.log`, in ms."""

SEGMENT_FILE = re.compile(r"(\d{20})\.(log|index|timeindex|txnindex|snapshot)(\.deleted)?")
OTHER_FILES = {"leader-epoch-checkpoint", "leader-epoch-checkpoint.tmp"}


@dataclass(frozen=True)
class Batch:
    """A batch in the log.

    Attributes
    ----------
    records : tuple of Record
        With the timestamps that readers see; a marker's record is not data.
    last_offset : int
        Inclusive.
    marker : str
        `commit` or `abort` if the batch ends a transaction of its producer.
    """

    records: tuple[Record, ...]
    last_offset: int
    size_bytes: int
    epoch: int
    producer_id: int = -1
    marker: str = ""

    @property
    def base_offset(self) -> int:
        return self.records[0].offset

    @property
    def max_timestamp(self) -> int:
        return max(record.timestamp for record in self.records)


@dataclass
class Segment:
    """The batches of one file, and when the file was last created, emptied or opened."""

    base_offset: int
    created_ms: int
    batches: list[Batch] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return sum(batch.size_bytes for batch in self.batches)

    @property
    def max_timestamp(self) -> int:
        return max((batch.max_timestamp for batch in self.batches), default=-1)

    def age_counts_from(self, mtime_of: MtimeOf) -> int:
        """Return the largest record timestamp; if there is none, the file's time."""
        return self.max_timestamp if self.max_timestamp >= 0 else mtime_of(self.base_offset)


class Expired(NamedTuple):
    """A segment that retention deletes, and the first rule that applies."""

    base_offset: int
    rule: str


class Epochs:
    """The leader epochs of a log, and the contents its file may have (storage-format §15).

    Attributes
    ----------
    entries : list of (int, int)
        Epoch and first offset.
    stored : list of such lists
        Records that a crash may restore: a truncation at the log start need not be durable (S-108).
    """

    def __init__(self, entries: Sequence[tuple[int, int]] = ()) -> None:
        self.entries = list(entries)
        self.stored = [self.entries]

    @property
    def newest(self) -> int:
        return self.entries[-1][0] if self.entries else -1

    def assign(self, epoch: int, offset: int) -> None:
        if self.newest != epoch or self.entries[-1][1] > offset:
            kept = [(e, o) for e, o in self.entries if e < epoch and o < offset]
            self._write([*kept, (epoch, offset)])

    def cut_from_end(self, end: int) -> None:
        self._write([(e, o) for e, o in self.entries if o < end])

    def cut_from_start(self, start: int) -> None:
        below = [e for e, o in self.entries if o <= start]
        above = [(e, o) for e, o in self.entries if o > start]
        self.entries = [*((e, start) for e in below[-1:]), *above]
        self.stored.append(self.entries)

    def clear(self) -> None:
        self._write([])

    def _write(self, entries: list[tuple[int, int]]) -> None:
        self.entries = entries
        self.stored = [entries]


class LogModel:
    """One log.

    Attributes
    ----------
    flushed : int
        The recovery point, exclusive: records below are durable, or below the log start.
    durable : int
        A crash loses no record below it: those were flushed, or found after a crash.
    checkpoint : tuple of int
        Log start and recovery point as the data directory knows them.
    awaiting : set of int
        Bases of the removed segments whose files are still there.
    hidden_transactions : dict of int to int
        Producer → first offset of transactions whose beginning is in no segment any more.
    """

    def __init__(self, config: LogConfig, now_ms: int) -> None:
        self.config = config
        self.segments = [Segment(0, now_ms)]
        self.start = self.end = self.high_watermark = 0
        self.flushed = self.durable = 0
        self.generation = 0
        self.epochs = Epochs()
        self.checkpoint = (0, 0)
        self.awaiting: set[int] = set()
        self.hidden_transactions: dict[int, int] = {}
        self._deletions: list[tuple[int, int]] = []

    # -- questions -----------------------------------------------------------------------

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def bases(self) -> list[int]:
        return [segment.base_offset for segment in self.segments]

    @property
    def batches(self) -> list[Batch]:
        return [batch for segment in self.segments for batch in segment.batches]

    @property
    def epoch(self) -> int:
        """The epoch of a leader's batch: a log start at the end leaves it to the batches."""
        newest = self.epochs.newest
        return newest if newest >= 0 else max([0, *(batch.epoch for batch in self.batches[-1:])])

    def readable(self, upper: int, *, committed: bool = False) -> list[Record]:
        """Return the records that readers see from the log start in batches that end below
        `upper`."""
        aborted = self.aborted() if committed else set()
        return [
            record
            for batch in self.batches
            if batch.last_offset < upper and not batch.marker
            for record in batch.records
            if record.offset >= self.start and record.offset not in aborted
        ]

    def aborted(self) -> set[int]:
        """Return the offsets of the transactional records that an ABORT marker undid."""
        undone: set[int] = set()
        pending: dict[int, list[int]] = {}
        for batch in self.batches:
            if batch.marker:
                offsets = pending.pop(batch.producer_id, [])
                undone.update(offsets if batch.marker == "abort" else ())
            elif batch.producer_id >= 0:
                own = pending.setdefault(batch.producer_id, [])
                own += [record.offset for record in batch.records]
        return undone

    def open_transactions(self) -> dict[int, int]:
        """Return producer → first offset of each transaction without its marker."""
        open_ones = dict(self.hidden_transactions)
        for batch in self.batches:
            if batch.marker:
                open_ones.pop(batch.producer_id, None)
            elif batch.producer_id >= 0:
                open_ones.setdefault(batch.producer_id, batch.base_offset)
        return open_ones

    def first_at_or_after(self, target: int, mtime_of: MtimeOf) -> tuple[int, int, int] | None:
        """Return time, offset and epoch that a query by time answers: a scan in Kafka's order.

        Only the first segment with a timestamp that late is searched, even if the timestamp is of a
        record below the log start, or of the file.
        """
        for segment in self.segments:
            if segment.age_counts_from(mtime_of) >= target:
                for batch in segment.batches:
                    for record in batch.records:
                        if record.timestamp >= target and record.offset >= self.start:
                            return record.timestamp, record.offset, batch.epoch
                return None
        return None

    def largest_time(self) -> tuple[int, int, int] | None:
        """Return time, offset and epoch of the first record with the largest time of all."""
        largest = max(segment.max_timestamp for segment in self.segments)
        if largest < 0:
            return None
        return next(
            (largest, record.offset, batch.epoch)
            for batch in self.batches
            for record in batch.records
            if record.timestamp == largest
        )

    def check_files(self, names: Sequence[str]) -> None:
        """Assert that the directory holds the log's files and no others but allowed ones."""
        logs, deleted = set(), set()
        for name in names:
            match = SEGMENT_FILE.fullmatch(name)
            if match is None:
                assert name in OTHER_FILES, f"{name} does not belong here"
                continue
            base, kind, is_deleted = int(match[1]), match[2], match[3] is not None
            if is_deleted:
                assert base in self.awaiting, f"{name} should be gone"
                deleted |= {base} if kind == "log" else set()
            elif kind == "snapshot":
                assert base <= self.end, f"{name} is beyond the end {self.end}"
            else:
                assert base in self.bases, f"{name} belongs to no segment"
                logs |= {base} if kind == "log" else set()
        assert logs == set(self.bases)
        assert deleted == self.awaiting, "removed before file.delete.delay.ms"

    # -- appends -------------------------------------------------------------------------

    def append(self, batches: Sequence[Batch], reason: str | None, now_ms: int) -> None:
        """Append a batch; `reason` is the log's reason if it rolled first."""
        self._check_reason(batches, reason, now_ms)
        if reason is not None:
            self.roll(now_ms, batches[0].base_offset)
        self.active.batches += batches
        self.end = self.high_watermark = batches[-1].last_offset + 1
        for batch in batches:
            self.epochs.assign(batch.epoch, batch.base_offset)
            if batch.marker:
                self.hidden_transactions.pop(batch.producer_id, None)
        if self.end - self.flushed >= self.config.flush_messages:
            self.flush()

    def _check_reason(self, batches: Sequence[Batch], reason: str | None, now_ms: int) -> None:
        """Assert that the log rolled if and only if size or time demanded it (storage-format §8.3).

        Full indexes are a reason that only the log knows.
        """
        active, config = self.active, self.config
        appended = sum(batch.size_bytes for batch in batches)
        too_large = active.size_bytes + appended > config.segment_bytes
        waited = 0
        if active.batches:
            first = active.batches[0].max_timestamp
            newest = max(batch.max_timestamp for batch in batches)
            waited = newest - first if first >= 0 else now_ms - active.created_ms
        limit = config.segment_ms
        if "compact" in config.cleanup_policy:
            limit = min(limit, config.max_compaction_lag_ms)
        expected = "segment.bytes" if too_large else "segment.ms" if waited > limit else None
        if reason is None or expected is not None:
            assert reason == expected, f"rolled for {reason}, expected {expected}"
        else:
            assert reason.endswith("index full")

    def roll(self, now_ms: int, first_offset: int = 0) -> None:
        """Start a new segment at the end, or at a replica's `first_offset` above it."""
        self.end = max(self.end, first_offset)
        self.flush()
        if self.active.base_offset == self.end:
            self.segments.pop()
        else:
            self.durable = self.end
        self.segments.append(Segment(self.end, now_ms))

    def flush(self, up_to: int | None = None) -> None:
        target = self.end if up_to is None else up_to
        if target > self.flushed:
            self.flushed = target
            self.durable = max(self.durable, target)

    # -- log start and retention ---------------------------------------------------------

    def raise_start(self, offset: int) -> bool:
        if offset <= self.start:
            return False
        self.start = offset
        self.flushed = max(self.flushed, offset)
        self.epochs.cut_from_start(offset)
        return True

    def expired(self, now_ms: int, mtime_of: MtimeOf, *, start_only: bool = False) -> list[Expired]:
        """Return the segments that a retention run deletes, oldest first (storage-format §13.1)."""
        config = self.config
        left = list(self.segments)
        removed: list[Expired] = []
        rules = ["log_start_offset"]
        if "delete" in config.cleanup_policy and not start_only:
            rules += ["retention.bytes", "retention.ms"]
        for rule in rules:
            excess = sum(segment.size_bytes for segment in left) - config.retention_bytes
            while left:
                oldest, is_last = left[0], len(left) == 1
                upper = self.end if is_last else left[1].base_offset
                if rule == "log_start_offset":
                    goes = not is_last and upper <= self.start
                elif rule == "retention.bytes":
                    goes = config.retention_bytes >= 0 and excess >= oldest.size_bytes
                else:
                    age_ms = now_ms - oldest.age_counts_from(mtime_of)
                    goes = config.retention_ms >= 0 and age_ms > config.retention_ms
                if not goes or upper > self.high_watermark or (is_last and not oldest.batches):
                    break
                excess -= oldest.size_bytes
                removed.append(Expired(oldest.base_offset, rule))
                del left[0]
        return removed

    def remove_oldest(self, count: int, now_ms: int, uptime_ms: int) -> None:
        """Remove segments; the log keeps at least an empty one."""
        if count == len(self.segments):
            self.roll(now_ms)
        begun = self.open_transactions()
        removed, self.segments = self.segments[:count], self.segments[count:]
        self.hidden_transactions |= {
            producer: first
            for producer, first in begun.items()
            if first < self.segments[0].base_offset
        }
        if removed:
            self.raise_start(self.segments[0].base_offset)
        self._await_deletion(removed, uptime_ms)

    def _await_deletion(self, removed: Sequence[Segment], uptime_ms: int) -> None:
        due = uptime_ms + self.config.file_delete_delay_ms
        self._deletions += [(due, segment.base_offset) for segment in removed]
        self.awaiting |= {segment.base_offset for segment in removed}

    def delete_files(self, uptime_ms: int) -> int:
        """Drop the files whose delay has elapsed; return the number of segments."""
        due = [deletion for deletion in self._deletions if deletion[0] <= uptime_ms]
        self._deletions = [deletion for deletion in self._deletions if deletion[0] > uptime_ms]
        self.awaiting -= {base for _, base in due}
        return len(due)

    # -- truncation ----------------------------------------------------------------------

    def truncate(self, offset: int, now_ms: int, uptime_ms: int) -> bool:
        """Truncate to `offset`; a batch that extends beyond it is removed whole (storage-format
        §13.4)."""
        if offset >= self.end:
            self.epochs.cut_from_end(self.end)
            return False
        if offset < self.segments[0].base_offset:
            self.truncate_fully(offset, offset, now_ms, uptime_ms)
            return True
        self.generation += 1
        ended = self._ends_without_data()
        removed = [segment for segment in self.segments if segment.base_offset > offset]
        del self.segments[len(self.segments) - len(removed) :]
        self._await_deletion(removed, uptime_ms)
        active = self.active
        active.batches = [batch for batch in active.batches if batch.last_offset < offset]
        if not active.batches:
            active.created_ms = now_ms
        self.start = min(self.start, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self._end_at(offset)
        self.epochs.cut_from_end(offset)
        self._open_again(ended)
        return True

    def _ends_without_data(self) -> set[int]:
        """Return the producers of markers whose transactions are in no segment any more."""
        first = {batch.producer_id: batch for batch in reversed(self.batches)}
        return {producer for producer, batch in first.items() if batch.marker}

    def _open_again(self, ended: set[int]) -> None:
        """Reopen transactions whose markers were removed and whose data is in no segment."""
        self.hidden_transactions |= dict.fromkeys(ended - self._ends_without_data(), 0)

    def truncate_fully(self, offset: int, start: int, now_ms: int, uptime_ms: int) -> None:
        self.generation += 1
        # A first segment with that base is emptied instead.
        stays = self.segments[0].base_offset == offset
        self._await_deletion(self.segments[stays:], uptime_ms)
        self.segments = [Segment(offset, now_ms)]
        self.start, self.high_watermark = start, offset
        self._end_at(offset)
        self.epochs.clear()
        self.hidden_transactions = {}

    def _end_at(self, offset: int) -> None:
        self.end = offset
        self.flushed = min(self.flushed, offset)
        self.durable = min(self.durable, offset)

    # -- restarts ------------------------------------------------------------------------

    def name_log_start(self, now_ms: int) -> None:
        """Roll at a clean stop if all batches are below the log start, but the end is not.

        The name of the new segment preserves the log start for the next start.
        """
        active = self.active
        data_end = active.batches[-1].last_offset + 1 if active.batches else active.base_offset
        if active.base_offset < self.start and data_end < self.start:
            self.roll(now_ms)

    def write_checkpoint(self) -> None:
        """Write the checkpoint of the data directory, which omits a log start at the first base."""
        below = self.start <= self.segments[0].base_offset
        self.checkpoint = (0 if below else self.start, self.flushed)

    def lose(self, result: Sequence[tuple[int, list[tuple[int, int]]]]) -> None:
        """Drop the records that a crash lost, and assert that it was allowed to lose them.

        Parameters
        ----------
        found : sequence of (int, list of (int, int))
            Base of each segment, with the first and last offsets of its batches.
        """
        assert result, "a log has at least one segment"
        bases = [base for base, _ in result]
        assert bases == self.bases[: len(bases)], f"segments {bases} were {self.bases}"
        kept = [list(segment.batches) for segment in self.segments]
        ended = self._ends_without_data()
        for segment, (_, extents) in zip(self.segments, result, strict=False):
            there = [(batch.base_offset, batch.last_offset) for batch in segment.batches]
            assert extents == there[: len(extents)], f"batches {extents} were {there}"
            del segment.batches[len(extents) :]
        del self.segments[len(result) :]
        lost = [batch for batches in kept for batch in batches][len(self.batches) :]
        durable = [batch for batch in lost if batch.last_offset < self.durable]
        assert not durable, f"lost below {self.durable}: {durable}"
        whole = [batch for batches in kept for batch in batches][: len(self.batches)]
        assert self.batches == whole, "a batch is missing before another one"
        self._open_again(ended)

    def lose_all_below_the_start(self, result: Sequence[tuple[int, list[object]]]) -> None:
        """Drop all records where a start had to reset the log to the stored log start."""
        start, _ = self.checkpoint
        assert result == [(start, [])]
        durable = [batch for batch in self.batches if start <= batch.last_offset < self.durable]
        assert not durable, f"lost below {self.durable}: {durable}"
        assert self.segments[0].base_offset < start
        self.segments = [Segment(self.segments[0].base_offset, 0)]

    def reopen(self, now_ms: int, epochs: Sequence[tuple[int, int]], *, clean: bool) -> None:
        """Restart: the end comes from the last batch, the rest from checkpoints.

        Parameters
        ----------
        epochs : sequence of (int, int)
            Those that the log found; taken if the file may have led to them.
        """
        start, flushed = self.checkpoint
        active = self.active
        self.end = active.batches[-1].last_offset + 1 if active.batches else active.base_offset
        ends_below_start = self.end < start
        if ends_below_start:
            self.segments = [Segment(start, now_ms)]
            self.end = start
            self.epochs.clear()
            self.hidden_transactions = {}
        for stored in self.epochs.stored:
            self.epochs = self._epochs_after_start(stored, clean=clean)
            if self.epochs.entries == list(epochs):
                break
        for segment in self.segments:
            segment.created_ms = now_ms
        self.start = max(start, self.segments[0].base_offset)
        self.high_watermark = self.end
        recovered = self.end if clean and not ends_below_start else min(flushed, self.end)
        self.flushed = max(recovered, self.start)
        self.durable = self.end
        self.generation = 0
        self.awaiting = set()
        self._deletions = []

    def _epochs_after_start(self, stored: Sequence[tuple[int, int]], *, clean: bool) -> Epochs:
        """Return the epochs after a start with the stored ones.

        A recovery learns epochs above the newest known one from the batches that it reads
        (storage-format §8.5).
        """
        start, flushed = self.checkpoint
        epochs = Epochs(stored)
        if not clean:
            first = sum(base <= flushed for base in self.bases) - 1
            for segment in self.segments[max(0, first) :]:
                for batch in segment.batches:
                    if batch.epoch > epochs.newest:
                        epochs.assign(batch.epoch, batch.base_offset)
        epochs.cut_from_end(self.end)
        epochs.cut_from_start(start)
        return epochs

    # -- always --------------------------------------------------------------------------

    def check(self) -> None:
        """Assert that the model is consistent."""
        assert self.start <= self.high_watermark <= self.end
        assert max(self.flushed, self.durable) <= self.end
        for segment, following in pairwise(self.segments):
            assert all(batch.last_offset < following.base_offset for batch in segment.batches)
        for batch, following in pairwise(self.batches):
            assert batch.last_offset < following.base_offset

    def interesting_offsets(self) -> Iterator[int]:
        """Yield the offsets of all boundaries, and the ones next to them."""
        marks = {self.start, self.end, self.high_watermark, self.flushed, *self.bases}
        for batch in self.batches:
            marks |= {batch.base_offset, batch.last_offset}
        yield from sorted({max(0, mark + step) for mark in marks for step in (-1, 0, 1)})
