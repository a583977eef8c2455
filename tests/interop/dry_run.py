"""A dry run before each pass of this engine, whose report must equal the pass's.

Also counts the cases that a pass will meet, from the files and independently of the cleaner.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from logstore.cleaner.config import CleanerConfig
from logstore.cleaner.selection import CleanableState
from logstore.cleaner.stats import CleanerStats
from logstore.record.control import end_txn_marker_of
from logstore.record.header import BatchHeader
from logstore.storage.log import Log
from tests.interop.comparing import Difference
from tests.support.interop import engine

MISLED = "Kafka maps a committed batch as if aborted"


@dataclass(frozen=True)
class Expected:
    """The expected report of a pass, and the cases it meets."""

    report: CleanerStats
    records: int
    """Records of its source batches."""

    kinds: Counter[str]


class DryRun:
    """Dry-runs every pass over a log in `data_dir`; see `interop_engine.clean_in_turns`.

    Attributes
    ----------
    expected : list of Expected
        One for each pass so far.
    round_ends : set of int
        Upper bounds of the passes so far.
    """

    def __init__(self, data_dir: Path, cleaner: CleanerConfig) -> None:
        self._data_dir = data_dir
        self._cleaner = cleaner
        self.expected: list[Expected] = []
        self.round_ends: set[int] = set()
        self._ends_emptied = False

    def __call__(self, log: Log, state: CleanableState) -> None:
        """Run dry.

        Raises
        ------
        Difference
            A file was changed.
        """
        before = contents(self._data_dir)
        report = engine.run_pass(log, self._cleaner, state, dry_run=True)
        changed = differing(before, contents(self._data_dir))
        if changed:
            raise Difference(f"a dry run changed {changed}")
        headers = list(_headers(Path(log.directory)))
        self._ends_emptied |= self._has_emptied_end(headers)
        self.round_ends.add(state.upper_bound_offset)
        end = report.end_offset
        bases = [segment.base_offset for segment in log.segments]
        limit = min(end, state.upper_bound_offset)
        sources = max((base for base in bases if base < limit), default=-1)
        read = [header for base, header in headers if base <= sources]
        kinds = _meets(read, log.runtime.clock.now_ms())
        if end < state.upper_bound_offset:
            kinds += _meets_full_map(read, end)
        if misleads_kafka(log, state.first_dirty_offset, state.upper_bound_offset):
            kinds[MISLED] = 1
        kinds["transaction open over a pass"] += (
            log.last_stable_offset < log.active_segment.base_offset
        )
        self.expected.append(Expected(report, sum(header.record_count for header in read), +kinds))

    @property
    def misled_kafka(self) -> bool:
        """Whether results of Kafka's passes may differ because of `misleads_kafka`."""
        return any(MISLED in each.kinds for each in self.expected)

    def ends_emptied(self, folder: Path) -> bool:
        """Return whether a pass kept a batch without records at the end of its round.

        Kafka 4.4.0 keeps it only where it ends at the high watermark (KAFKA-20452).
        """
        return self._ends_emptied or self._has_emptied_end(_headers(folder))

    def _has_emptied_end(self, headers: Iterable[tuple[int, BatchHeader]]) -> bool:
        return any(
            not header.record_count and header.next_offset in self.round_ends
            for _, header in headers
        )

    def check(self, place: str, number: int, stats: CleanerStats) -> Counter[str]:
        """Compare a pass with its dry run; return the cases it met.

        Raises
        ------
        Difference
            They report different things, or the fates do not add up to the records.
        """
        expected = self.expected[number]
        if untimed(stats) != untimed(expected.report):
            raise Difference(f"{place}: a dry run reports {expected.report}, the pass {stats}")
        if sum(stats.fates.values()) != expected.records:
            raise Difference(f"{place}: {expected.records} records, but fates {stats.fates}")
        return expected.kinds


def untimed(stats: CleanerStats) -> CleanerStats:
    """Return a report without its times."""
    return replace(stats, index_ms=0, clean_ms=0)


def contents(data_dir: Path) -> dict[str, tuple[str, int]]:
    """Return digest and date of every file, by path."""
    return {
        str(path.relative_to(data_dir)): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mtime_ns,
        )
        for path in data_dir.rglob("*")
        if path.is_file()
    }


def differing(
    before: Mapping[str, tuple[str, int]], after: Mapping[str, tuple[str, int]]
) -> list[str]:
    """Return the names of files that are not the same, or not there both times."""
    return sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )


def _headers(folder: Path) -> Iterator[tuple[int, BatchHeader]]:
    """Yield every batch's header after the base of its segment, the active one's left out."""
    for path in sorted(folder.glob("*.log"))[:-1]:
        data = path.read_bytes()
        position = 0
        while position < len(data):
            header = BatchHeader.unpack_from(data, position)
            yield int(path.stem), header
            position += header.size_bytes


def _meets(headers: list[BatchHeader], now_ms: int) -> Counter[str]:
    """Count records at their horizon, or just before it."""
    kinds: Counter[str] = Counter()
    for header in headers:
        if not (header.has_delete_horizon and header.record_count):
            continue
        what = "marker" if header.is_control else "tombstones"
        if header.base_timestamp == now_ms:
            kinds[f"{what} at the horizon"] += 1
        elif header.base_timestamp == now_ms + 1:
            kinds[f"{what} 1 ms before the horizon"] += 1
    return kinds


def _meets_full_map(headers: list[BatchHeader], end_offset: int) -> Counter[str]:
    """Return whether a map was full: it covers the log up to `end_offset`."""
    kinds = Counter({"map full": 1})
    undecided: set[int] = set()
    for header in headers:
        if header.base_offset < end_offset <= header.last_offset:
            kinds["map full inside a batch"] = 1
        if header.is_transactional and header.base_offset < end_offset:
            if header.is_control:
                undecided.discard(header.producer_id)
            elif header.record_count:
                undecided.add(header.producer_id)
    kinds["map full inside a transaction"] = bool(undecided)
    return kinds


def misleads_kafka(log: Log, first_dirty_offset: int, upper_bound_offset: int) -> bool:
    """Return whether Kafka treats a committed batch as aborted while it builds its map.

    Kafka uses every aborted transaction in the index of the segment in which the dirty range
    begins, including those that ended below it, up to the producer's next abort marker. It reads
    from the position in the offset index.
    """
    start = log.segments.from_offset(first_dirty_offset)[0]
    ended = {
        txn.producer_id
        for txn in start.txn_index.entries()
        if log.log_start_offset <= txn.last_offset < first_dirty_offset
    }
    position = start.indexed_position(first_dirty_offset)
    for segment in log.segments.between(first_dirty_offset, upper_bound_offset):
        for at in segment.batches(position if segment is start else 0):
            header = at.header
            if header.producer_id not in ended or not header.is_transactional:
                continue
            if not header.is_control:
                if header.record_count and header.last_offset >= first_dirty_offset:
                    return True
            elif header.record_count:
                marker = end_txn_marker_of(segment.read_batch(at))
                if marker is not None and marker.is_abort:
                    ended.discard(header.producer_id)
    return False
