"""Log directories after crashes, copies and mistakes, for both loaders.

Each shape is a log of several segments, closed cleanly, whose files were then renamed, added,
removed or rewritten. The result of loading is judged: names, bytes, records.
"""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from logstore.config.overrides import effective_config
from logstore.record.batch import RecordBatch, build_batch
from logstore.record.records import Record
from logstore.record.walk import walk_buffer
from logstore.runtime import DiskFileSystem, Runtime, VirtualClock
from logstore.storage.checkpoint.offsets import LOG_START_OFFSETS, RECOVERY_POINTS
from logstore.storage.checkpoint.shutdown import CLEAN_SHUTDOWN
from logstore.storage.segment import BatchExtent, LogSegment
from tests.interop.directories import (
    SEGMENTS,
    TOPIC,
    WRITERS,
    Written,
    broker_at,
    fill,
    replicate_golden,
    texts,
)
from tests.interop.stories import START_MS

KINDS = (".log", ".index", ".timeindex", ".txnindex")
BEYOND_INDEX = 2**31

Change = Callable[[Path, list[int]], None]
"""Changes a partition's folder, given the base offsets of its segments."""


def _log(path: Path, change: Change) -> Written:
    broker, log = broker_at(path, **SEGMENTS)
    with broker:
        fill(log, broker.clock, 100)
        bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 4
    change(path / f"{TOPIC}-0", bases)
    return Written(path, texts(SEGMENTS), broker.clock.now_ms(), is_sound=False)


def _shape(name: str, change: Change) -> None:
    WRITERS[name] = lambda path: _log(path, change)


def shape(name: str) -> Callable[[Change], Change]:
    """Register a change under a name, whose prefix selects the row of the table."""

    def register(change: Change) -> Change:
        _shape(name, change)
        return change

    return register


def file(folder: Path, base: int, kind: str, suffix: str = "") -> Path:
    """Return the path of one of a segment's files."""
    return folder / f"{base:020}{kind}{suffix}"


def rename(folder: Path, base: int, suffix: str, *, copy: bool = False) -> None:
    """Give a segment's files another suffix, or such a copy."""
    for kind in KINDS:
        path = file(folder, base, kind)
        if path.exists():
            target = path.with_name(path.name + suffix)
            if copy:
                shutil.copy2(path, target)
            else:
                path.rename(target)


def write_segment(
    folder: Path, base: int, batches: Iterable[RecordBatch], suffix: str = ""
) -> None:
    """Write a closed segment with its indexes, as appends and a roll would."""
    clock = VirtualClock(START_MS)
    runtime = Runtime(clock, DiskFileSystem(clock), random.Random(0))
    segment = LogSegment(
        runtime, str(folder), base, effective_config(texts(SEGMENTS)), suffix=suffix, create=True
    )
    for batch in batches:
        segment.append([BatchExtent.of(batch.header)], [batch.data])
    segment.on_become_inactive()
    segment.close()


def batches_of(folder: Path, bases: Sequence[int]) -> list[RecordBatch]:
    """Return the batches of several segments."""
    return [
        RecordBatch(batch.data)
        for base in bases
        for batch in walk_buffer(file(folder, base, ".log").read_bytes())
    ]


def merge(folder: Path, bases: Sequence[int], suffix: str) -> None:
    """Write the segments' successor, which took every second batch."""
    write_segment(folder, bases[0], batches_of(folder, bases)[::2], suffix)


# -- swaps ---------------------------------------------------------------------------------------

_shape("leftover .cleaned", lambda folder, bases: rename(folder, bases[1], ".cleaned", copy=True))
_shape("leftover .deleted", lambda folder, bases: rename(folder, bases[0], ".deleted"))
_shape("leftover .swap, complete", lambda folder, bases: rename(folder, bases[1], ".swap"))
_shape(
    "leftover .swap beside what it replaces",
    lambda folder, bases: rename(folder, bases[1], ".swap", copy=True),
)


@shape("leftover .swap, its indexes still .cleaned")
def _half_swap(folder: Path, bases: list[int]) -> None:
    rename(folder, bases[1], ".cleaned", copy=True)
    file(folder, bases[1], ".log", ".cleaned").rename(file(folder, bases[1], ".log", ".swap"))


@shape("leftover merge: the new segment is .cleaned")
def _merge_cleaned(folder: Path, bases: list[int]) -> None:
    merge(folder, bases[1:4], ".cleaned")


@shape("leftover merge: .swap beside all it replaces")
def _merge_swap(folder: Path, bases: list[int]) -> None:
    merge(folder, bases[1:4], ".swap")


@shape("leftover merge: .swap, one of the old is .deleted")
def _merge_one_deleted(folder: Path, bases: list[int]) -> None:
    merge(folder, bases[1:4], ".swap")
    rename(folder, bases[1], ".deleted")


@shape("leftover merge: .swap, all old are .deleted")
def _merge_all_deleted(folder: Path, bases: list[int]) -> None:
    merge(folder, bases[1:4], ".swap")
    for base in bases[1:4]:
        rename(folder, base, ".deleted")


@shape("leftover merge: done but for the .deleted")
def _merge_done(folder: Path, bases: list[int]) -> None:
    merge(folder, bases[1:4], ".swap")
    for base in bases[1:4]:
        rename(folder, base, ".deleted")
    for kind in KINDS[:3]:
        file(folder, bases[1], kind, ".swap").rename(file(folder, bases[1], kind))


@shape("leftover split: an upper part is .swap, the lowest still .cleaned")
def _split_unfinished(folder: Path, bases: list[int]) -> None:
    rename(folder, bases[1], ".cleaned", copy=True)
    rename(folder, bases[2], ".swap", copy=True)
    rename(folder, bases[3], ".swap", copy=True)


@shape("leftover split: all parts are .swap")
def _split_swaps(folder: Path, bases: list[int]) -> None:
    merged = batches_of(folder, bases[1:4])
    for base in bases[1:4]:
        rename(folder, base, ".swap")
    write_segment(folder, bases[1], merged)


@shape("leftover .swap below another .cleaned")
def _swap_below_cleaned(folder: Path, bases: list[int]) -> None:
    merge(folder, bases[0:2], ".swap")
    rename(folder, bases[3], ".cleaned", copy=True)


@shape("leftover empty .swap")
def _empty_swap(folder: Path, bases: list[int]) -> None:
    write_segment(folder, bases[1], [], ".swap")


@shape("leftover .deleted of everything but the last segment")
def _all_deleted(folder: Path, bases: list[int]) -> None:
    for base in bases[:-1]:
        rename(folder, base, ".deleted")


@shape("leftover .deleted snapshots")
def _deleted_snapshots(folder: Path, bases: list[int]) -> None:
    for snapshot in sorted(folder.glob("*.snapshot")):
        snapshot.rename(snapshot.with_name(snapshot.name + ".deleted"))


# -- indexes -------------------------------------------------------------------------------------


def _without(kinds: Sequence[str], folder: Path, bases: list[int]) -> None:
    for base in (bases[0], bases[2], bases[-1]):
        for kind in kinds:
            file(folder, base, kind).unlink()


for _kinds in ((".index",), (".timeindex",), (".index", ".timeindex")):
    _shape(f"load without {' and '.join(_kinds)}", partial(_without, _kinds))


@shape("load with an index of no log")
def _orphans(folder: Path, bases: list[int]) -> None:
    for base, kind in ((bases[1] + 1, ".index"), (bases[-1] + 1, ".timeindex")):
        file(folder, base, kind).write_bytes(bytes(24))
    file(folder, 10**12, ".txnindex").write_bytes(b"")


@shape("load with foreign files")
def _foreign(folder: Path, bases: list[int]) -> None:
    (folder / "notes.txt").write_text("of no log\n")
    (folder / f"{bases[1]:020}.bak").write_bytes(bytes(9))


def _damaged_txn_index(path: Path) -> Written:
    """The first entry has a transaction that ended below the segment."""
    config = {"segment_bytes": 900, "index_interval_bytes": 200}
    written = replicate_golden(path, "transactions", config)
    index = min(written.partition.glob("*.txnindex"))
    index.write_bytes(struct.pack(">hqqqq", 0, 7, -9, -5, -4) + index.read_bytes()[34:])
    return replace(written, is_sound=False)


WRITERS["load with a damaged transaction index"] = _damaged_txn_index


# -- segments that do not follow each other ------------------------------------------------------


@shape("load with overlapping segments")
def _overlapping(folder: Path, bases: list[int]) -> None:
    second_half = batches_of(folder, bases[1:2])
    second_half = second_half[len(second_half) // 2 :]
    write_segment(folder, second_half[0].header.base_offset, second_half)


@shape("load with a segment missing in the middle")
def _missing_middle(folder: Path, bases: list[int]) -> None:
    for kind in KINDS[:3]:
        file(folder, bases[2], kind).unlink()


@shape("load with an empty segment in the middle")
def _empty_middle(folder: Path, bases: list[int]) -> None:
    for kind in KINDS[:3]:
        file(folder, bases[2], kind).write_bytes(b"")


def _checkpoint(path: Path, name: str, offset: int) -> None:
    (path / name).write_text(f"0\n1\n{TOPIC} 0 {offset}\n")


def log_start_beyond(path: Path, beyond: int) -> Written:
    written = _log(path, lambda folder, bases: None)
    end = int((path / RECOVERY_POINTS).read_text().split()[-1])
    _checkpoint(path, LOG_START_OFFSETS, end + beyond)
    return written


def _lost_end(path: Path) -> Written:
    """The recovery point confirms the log start: the log existed, and its end is lost."""
    written = log_start_beyond(path, 1000)
    start = int((path / LOG_START_OFFSETS).read_text().split()[-1])
    _checkpoint(path, RECOVERY_POINTS, start)
    (path / CLEAN_SHUTDOWN).unlink()
    return written


WRITERS["load with the log start at the log end"] = partial(log_start_beyond, beyond=0)
WRITERS["unclean, with the log end lost below the log start"] = _lost_end


@shape("load with the log start in the middle of a batch")
def _log_start_inside(folder: Path, bases: list[int]) -> None:
    batch = next(each for each in batches_of(folder, bases[2:3]) if each.header.record_count > 1)
    _checkpoint(folder.parent, LOG_START_OFFSETS, batch.header.last_offset)


@shape("load with all data of the log gone")
def _no_segments(folder: Path, bases: list[int]) -> None:
    for base in bases:
        for kind in KINDS[:3]:
            file(folder, base, kind).unlink()
    _checkpoint(folder.parent, LOG_START_OFFSETS, bases[3])


# -- more offsets than an index can address ------------------------------------------------------


def overflowed(path: Path, *firsts: int, indexed: bool, clean: bool = False) -> Written:
    """One segment from 0 with batches at these offsets, as a broker before 1.1 could write it.

    Loaders read it whole if its offset index is missing, or after an unclean stop.
    """
    written = _log(path, lambda folder, bases: None)
    for old in written.partition.glob("0*"):
        old.unlink()
    batches = [
        build_batch(
            [Record(first + slot, START_MS + slot, b"k%d" % slot, b"v" * 90) for slot in range(3)],
            partition_leader_epoch=0,
        )
        for first in firsts
    ]
    file(written.partition, 0, ".log").write_bytes(b"".join(batches))
    _checkpoint(path, RECOVERY_POINTS, 0)
    if indexed:
        for kind in (".index", ".timeindex"):
            file(written.partition, 0, kind).write_bytes(b"")
    if not clean:
        (path / CLEAN_SHUTDOWN).unlink()
    return written


WRITERS["load with offset overflow"] = lambda path: overflowed(
    path, 0, 3, BEYOND_INDEX - 1, BEYOND_INDEX + 9, BEYOND_INDEX + 50, indexed=False
)
# If Kafka finds these while it replaces a missing index, it keeps the old segment next to the new
# ones, since it searches for it among the loaded segments.
WRITERS["load with offset overflow, split in three"] = lambda path: overflowed(
    path, 5, 9, BEYOND_INDEX + 7, 2 * BEYOND_INDEX + 7, 2 * BEYOND_INDEX + 11, indexed=True
)
WRITERS["load with offset overflow from the first batch on"] = lambda path: overflowed(
    path, BEYOND_INDEX + 3, BEYOND_INDEX + 6, indexed=True
)
