"""Compare two cleaned copies of a log, file by file.

Only the differences listed in cleaner §15 are allowed. Any other raises `Difference`, which names
the place in the story, the segment and the first differing batch.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from logstore.record.batch import RecordBatch
from logstore.record.codecs import Codec
from logstore.record.header import BatchHeader
from logstore.record.walk import walk_buffer
from logstore.storage.checkpoint.offsets import (
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    REPLICATION_OFFSETS,
)
from logstore.storage.checkpoint.topic_id import PARTITION_METADATA
from logstore.types import INT64_MAX
from tests.support.interop import engine
from tests.support.interop.sums import Sums
from tests.support.interop.view import sorted_snapshot

SEGMENT_FILES = (".log", ".index", ".timeindex", ".txnindex")
DATED_FILES = SEGMENT_FILES[:3]

EPOCHS = "leader-epoch-checkpoint"
NO_EPOCHS = (b"", b"0\n0\n")
"""An empty epoch file is as good as none."""

BROKER_CHECKPOINTS = (LOG_START_OFFSETS, RECOVERY_POINTS, REPLICATION_OFFSETS)

CODEC_BITS = 7
CRC_FIELD = slice(17, 21)
LENGTH_FIELD = slice(8, 12)
TXN_INDEX_ENTRY_SIZE = 34


class Difference(AssertionError):
    """The two cleaners' results differ."""


@dataclass
class Tally(Sums):
    """Numbers of compared logs, passes and batches."""

    stories: int = 0
    passes: int = 0
    dry_runs: int = 0
    kafka_failed: int = 0
    parted: Counter[str] = field(default_factory=Counter)
    """Logs that ended at an entry of the closed list, by entry."""

    segments: int = 0
    bytes: int = 0
    records_read: int = 0
    records_kept: int = 0
    fates: Counter[str] = field(default_factory=Counter)
    horizons: int = 0
    compressed: int = 0
    recompressed: int = 0
    aborted_ranges: int = 0
    """Entries of cleaned transaction indexes."""

    kinds: Counter[str] = field(default_factory=Counter)
    """Covered cases, by name."""

    kafka_ms: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        kinds = ", ".join(f"{name} {self.kinds[name]}" for name in sorted(self.kinds))
        return (
            f"{self.stories} logs, {self.passes} passes ({self.kafka_failed} refused by Kafka), "
            f"{self.parted.total()} logs parted ({dict(self.parted)}), "
            f"{self.dry_runs} dry runs with equal reports, "
            f"{self.segments} cleaned segments of {self.bytes:,} bytes, "
            f"{self.records_read:,} records read, {self.records_kept:,} kept, "
            f"fates {dict(self.fates)}, {self.horizons} batches with a "
            f"horizon, {self.compressed} compressed batches ({self.recompressed} of them in other "
            f"bytes), {self.aborted_ranges} aborted ranges, {self.seconds:.1f} s; {kinds}"
        )


def compare_stats(place: str, theirs: dict[str, Any], stats: Any, ignored: set[str]) -> None:
    """Compare end offset, map use and counters."""
    ours = engine.kafka_stats(stats)
    ours |= {"end_offset": stats.end_offset, "map_slots_used": stats.map_entries}
    expected = dict(theirs["stats"])
    expected |= {name: theirs[name] for name in ("end_offset", "map_slots_used")}
    wrong = {n: (expected[n], ours[n]) for n in ours if expected[n] != ours[n]}
    wrong = {name: values for name, values in wrong.items() if name not in ignored}
    if wrong:
        raise Difference(f"{place}: counters (Kafka, ours) {wrong}")


# -- directories ---------------------------------------------------------------------------------


def compare_directories(
    place: str,
    config: dict[str, str],
    theirs: Path,
    ours: Path,
    topic: str,
    end_offset: int,
    dated_below: int = INT64_MAX,
) -> Tally:
    """Compare all files of two cleaned partitions, and the checkpoints.

    Parameters
    ----------
    end_offset : int
        Closed segments below it were written by the cleaner.
    dated_below : int
        Segments that end above it come from files that the two wrote at different times.

    Raises
    ------
    Difference
    """
    tally = Tally()
    left, right = theirs / f"{topic}-0", ours / f"{topic}-0"
    names = sorted(_names(left) | _names(right))
    for name in names:
        if name not in _names(left) or name not in _names(right):
            who = "Kafka" if name in _names(left) else "this engine"
            raise Difference(f"{place}: only {who} has {name}")
    _compare_checkpoints(place, theirs, ours)
    bases = sorted(int(name.removesuffix(".log")) for name in names if name.endswith(".log"))
    recompressed = set()
    for base in bases:
        rebuilt = _compare_log(place, left / f"{base:020}.log", right / f"{base:020}.log")
        if rebuilt:
            recompressed.add(base)
            tally.recompressed += rebuilt
    for name in names:
        if name.endswith(".log"):
            continue
        base = int(name.split(".")[0]) if name[0].isdigit() else None
        if base in recompressed and name.endswith((".index", ".timeindex")):
            continue
        one, two = _content(left / name), _content(right / name)
        if one != two:
            raise Difference(f"{place}: {name} differs: {one[:96].hex()} and {two[:96].hex()}")
    for base, following in pairwise(bases):
        if base >= end_offset:
            break
        tally.segments += 1
        _count(tally, right / f"{base:020}")
        for folder in (left, right):
            _check_indexes(place, folder, base, int(config["index.interval.bytes"]))
        for suffix in DATED_FILES if following <= dated_below else ():
            _compare_mtime(place, left / f"{base:020}{suffix}", right / f"{base:020}{suffix}")
    return tally


def _count(tally: Tally, segment: Path) -> None:
    data = segment.with_suffix(".log").read_bytes()
    tally.bytes += len(data)
    for _, batch in _batches(data):
        header = batch.header
        tally.compressed += bool(header.codec_id)
        tally.horizons += header.has_delete_horizon
        if header.codec_id:
            tally.kinds[Codec(header.codec_id).name.lower()] += 1
        if header.timestamp_type:
            tally.kinds["LogAppendTime"] += 1
    aborted = segment.with_suffix(".txnindex")
    if aborted.exists():
        tally.aborted_ranges += aborted.stat().st_size // TXN_INDEX_ENTRY_SIZE


def _names(folder: Path) -> set[str]:
    return {
        path.name
        for path in folder.iterdir()
        if path.name != PARTITION_METADATA  # Kafka's classes get no topic ids
        and not (path.name == EPOCHS and path.read_bytes() in NO_EPOCHS)
    }


def _content(path: Path) -> bytes:
    data = path.read_bytes()
    return sorted_snapshot(data) if path.suffix == ".snapshot" else data


def _compare_checkpoints(place: str, theirs: Path, ours: Path) -> None:
    one, two = (_text(folder / CLEANER_OFFSETS) for folder in (theirs, ours))
    if one != two:
        raise Difference(f"{place}: cleaner checkpoints {one!r} and {two!r}")
    for name in BROKER_CHECKPOINTS:
        one, two = (_text(folder / name) for folder in (theirs, ours))
        if one != two:
            raise Difference(f"{place}: {name}: {one!r} and {two!r}")


def _text(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def _compare_mtime(place: str, left: Path, right: Path) -> None:
    times = [path.stat().st_mtime_ns // 1_000_000 for path in (left, right)]
    if times[0] != times[1]:
        raise Difference(f"{place}: {left.name} is dated {times[0]} and {times[1]} ms")


def _compare_log(place: str, left: Path, right: Path) -> int:
    """Compare two `.log` files; return how many batches differ only as codecs may make them."""
    theirs, ours = left.read_bytes(), right.read_bytes()
    if theirs == ours:
        return 0
    rebuilt = 0
    pairs = zip(_batches(theirs), _batches(ours), strict=False)
    for (at, one), (_, two) in pairs:
        if one.data != two.data:
            _compare_rebuilt(f"{place}: {left.name} at {at}", one, two)
            rebuilt += 1
    counts = [sum(1 for _ in _batches(data)) for data in (theirs, ours)]
    if counts[0] != counts[1]:
        raise Difference(f"{place}: {left.name} has {counts[0]} and {counts[1]} batches")
    return rebuilt


def _compare_rebuilt(place: str, one: RecordBatch, two: RecordBatch) -> None:
    if _fixed_fields(one.data) != _fixed_fields(two.data):
        raise Difference(f"{place}: first differing batch\nKafka {one.header}\nours  {two.header}")
    if not one.header.attributes & CODEC_BITS:
        raise Difference(
            f"{place}: records of an uncompressed batch differ\n{one.header}\n"
            f"Kafka {bytes(one.section()).hex():.400}\nours  {bytes(two.section()).hex():.400}"
        )
    if bytes(one.section()) != bytes(two.section()):
        raise Difference(f"{place}: decompressed sections differ\n{one.header}")
    if not (one.is_valid() and two.is_valid()):
        raise Difference(f"{place}: a CRC is wrong\n{one.header}\n{two.header}")


def _fixed_fields(batch: bytes) -> bytes:
    """The header without length and CRC."""
    head = bytearray(batch[:61])
    head[CRC_FIELD] = head[LENGTH_FIELD] = bytes(4)
    return bytes(head)


def _batches(data: bytes) -> Iterator[tuple[int, RecordBatch]]:
    position = 0
    for batch in walk_buffer(data):
        yield position, batch
        position += batch.header.size_bytes


# -- indexes -------------------------------------------------------------------------------------


def expected_indexes(data: bytes, base_offset: int, interval_bytes: int) -> tuple[bytes, bytes]:
    """Return the `.index` and `.timeindex` of a cleaned segment: they follow from its `.log`."""
    offsets: list[bytes] = []
    times: list[tuple[int, int]] = []
    position = since_last = 0
    largest = (-1, base_offset)
    while position < len(data):
        header = BatchHeader.unpack_from(data, position)
        if header.max_timestamp > largest[0]:
            largest = (header.max_timestamp, header.last_offset)
        if since_last > interval_bytes:
            offsets.append(struct.pack(">ii", header.last_offset - base_offset, position))
            _append_time(times, largest)
            since_last = 0
        position += header.size_bytes
        since_last += header.size_bytes
    _append_time(times, largest)
    packed = b"".join(struct.pack(">qi", time, offset - base_offset) for time, offset in times)
    return b"".join(offsets), packed


def _append_time(times: list[tuple[int, int]], entry: tuple[int, int]) -> None:
    if entry[0] > (times[-1][0] if times else -1):
        times.append(entry)


def _check_indexes(place: str, folder: Path, base: int, interval_bytes: int) -> None:
    data = (folder / f"{base:020}.log").read_bytes()
    expected = expected_indexes(data, base, interval_bytes)
    for suffix, wanted in zip((".index", ".timeindex"), expected, strict=True):
        result = (folder / f"{base:020}{suffix}").read_bytes()
        if result != wanted:
            raise Difference(
                f"{place}: {folder.parent.name}/{base:020}{suffix} does not follow from its log: "
                f"{result[:96].hex()}, expected {wanted[:96].hex()}"
            )
