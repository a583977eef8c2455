"""Kafka's cleaner and ours on identical copies of a log, pass by pass, compared to the byte.

Whatever differs beyond cleaner-semantics §15 raises `Difference`, which names the seed, the pass,
the segment and the first batch that is not the same. Run by hand:

    python -m tests.interop.differential 0 500          # seeds, end exclusive
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from cleaner.config import CleanerConfig
from logstore.record.batch import RecordBatch
from logstore.record.header import BatchHeader
from logstore.record.walk import walk_buffer
from tests.interop.stories import START_MS, Round, Story, story
from tests.support import interop_engine as engine
from tests.support.interop import KAFKA_3, Judge, JudgeError, fast_scratch
from tests.support.interop_view import complaints, differences, view_of

CHECKPOINT = "cleaner-offset-checkpoint"
SEGMENT_FILES = (".log", ".index", ".timeindex", ".txnindex")

IGNORED_FILES = frozenset({"partition.metadata"})
"""Only a broker gives a topic an id."""

CODEC_BITS = 7
CRC_FIELD = slice(17, 21)
LENGTH_FIELD = slice(8, 12)


FULL_INDEX = re.compile(r"Attempt to append to a full (time )?index")
"""Kafka's own failure, with tiny `segment.index.bytes`: since 3.9.1 it appends an entry for each
batch of a chunk, yet looks for room only before the chunk. Its cleaner then marks the partition
uncleanable. Ours leaves the entries out."""


class Difference(AssertionError):
    """The two cleaners did not do the same."""


@dataclass
class Tally:
    """What was compared."""

    stories: int = 0
    passes: int = 0
    partial_passes: int = 0
    kafka_failed: int = 0
    segments: int = 0
    bytes: int = 0
    records_read: int = 0
    records_kept: int = 0
    tombstones_expired: int = 0
    horizons: int = 0
    compressed: int = 0
    recompressed: int = 0
    kafka_ms: int = 0
    seconds: float = 0.0

    def add(self, other: Tally) -> None:
        """Sum up."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def __str__(self) -> str:
        return (
            f"{self.stories} logs, {self.passes} passes ({self.partial_passes} partial, "
            f"{self.kafka_failed} refused by Kafka), "
            f"{self.segments} cleaned segments of {self.bytes:,} bytes, "
            f"{self.records_read:,} records read, {self.records_kept:,} kept, "
            f"{self.tombstones_expired} tombstones expired, {self.horizons} batches with a "
            f"horizon, {self.compressed} compressed batches ({self.recompressed} of them in other "
            f"bytes), {self.seconds:.1f} s"
        )


class Place(NamedTuple):
    """Where in a story a comparison stands."""

    story: Story
    number: int
    run: int

    def __str__(self) -> str:
        return f"seed {self.story.seed}, round {self.number}, pass {self.run}"


def run_story(told: Story, judge: Judge, scratch: Path) -> Tally:
    """Live through a story; raise at the first difference.

    The directories of the failing pass stay in `scratch`: `before`, `kafka`, `ours`.
    """
    started = time.perf_counter()
    tally = Tally(stories=1)
    before = scratch / "before"
    for number, each in enumerate(told.rounds):
        config = told.fill_config if number == 0 else told.config
        _append(before, told.topic, config, each, judge)
        if each.first_dirty_share is not None:
            _lower_checkpoint(before, told.topic, each.first_dirty_share)
        for run in range(each.passes):
            try:
                tally_of_pass = _compare_pass(Place(told, number, run), before, judge, scratch)
            except JudgeError as error:
                if not FULL_INDEX.search(error.trace):
                    raise
                _clean_alone(Place(told, number, run), judge, scratch)
                tally.kafka_failed += 1
                tally.seconds = time.perf_counter() - started
                return tally
            if tally_of_pass is None:
                break
            tally.add(tally_of_pass)
    tally.seconds = time.perf_counter() - started
    return tally


def _append(data_dir: Path, topic: str, config: dict[str, str], each: Round, judge: Judge) -> None:
    """Carry out a round's operations with the engine it names."""
    if each.builder == "kafka":
        kept = data_dir.with_name("kept")
        if data_dir.exists():
            shutil.copytree(data_dir, kept)
        try:
            judge.ask(
                "write", data_dir, topic, config=config, now=each.start_ms,
                operations=each.operations,
            )  # fmt: skip
        except JudgeError as error:
            if not FULL_INDEX.search(error.trace):
                raise
            shutil.rmtree(data_dir)
            if kept.exists():
                kept.rename(data_dir)
        else:
            shutil.rmtree(kept, ignore_errors=True)
            return
    engine.write(data_dir, topic, config, each.start_ms, each.operations)


def _lower_checkpoint(data_dir: Path, topic: str, share: float) -> None:
    path = data_dir / CHECKPOINT
    if path.exists():
        *head, line = path.read_text().splitlines()
        offset = int(int(line.split()[-1]) * share)
        path.write_text("\n".join([*head, f"{topic} 0 {offset}"]) + "\n")


def _compare_pass(place: Place, before: Path, judge: Judge, scratch: Path) -> Tally | None:
    """Clean copies of `before`, compare, and make Kafka's the next `before`; None when done."""
    told = place.story
    now_ms = told.rounds[place.number].clean_ms
    _date_closed_segments(before / f"{told.topic}-0")
    kafka_dir, our_dir = scratch / "kafka", scratch / "ours"
    for copy in (kafka_dir, our_dir):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(before, copy)
    cleaned = judge.ask(
        "clean", kafka_dir, told.topic, config=told.clean_config, now=now_ms,
        dedupe_bytes=told.dedupe_bytes, load_factor=told.load_factor,
        io_buffer=told.io_buffer_bytes, max_io_buffer=told.io_buffer_bytes,
    )  # fmt: skip
    theirs = cleaned["passes"][0]
    state, stats = engine.clean_once(our_dir, told.topic, told.clean_config, now_ms, _cleaner(told))
    _compare_decision(place, theirs, state)
    if (stats is None) != (theirs["stats"] is None):
        raise Difference(f"{place}: only one of the two found something to clean\n{told.title}")
    tally = None
    if stats is not None:
        tally = compare_directories(
            str(place), told.clean_config, kafka_dir, our_dir, told.topic, theirs["end_offset"]
        )
        ignored = set()
        if tally.recompressed:
            ignored.add("bytesWritten")
        if stats.end_offset < theirs["upper_bound_offset"]:
            ignored.add("mapBytesRead")  # of whole chunks, before the one in which the map filled
        compare_stats(str(place), theirs, stats, ignored)
        tally.passes = 1
        tally.records_read = stats.messages_read
        tally.records_kept = stats.messages_written
        tally.tombstones_expired = stats.fates["tombstone_expired"]
        tally.partial_passes = int(stats.end_offset < theirs["upper_bound_offset"])
        tally.kafka_ms = theirs["ms"]
    shutil.rmtree(before)
    kafka_dir.rename(before)
    return tally


def _clean_alone(place: Place, judge: Judge, scratch: Path) -> None:
    """Where Kafka gives up, ours must leave a log that Kafka reads as ours does."""
    told = place.story
    now_ms = told.rounds[place.number].clean_ms
    our_dir = scratch / "ours"
    engine.clean_once(our_dir, told.topic, told.clean_config, now_ms, _cleaner(told))
    theirs = judge.ask("judge", our_dir, told.topic, config=told.config, now=now_ms)
    ours = view_of(our_dir, scratch / "view", told.topic, told.config, now_ms)
    found = differences(theirs, ours) + complaints(theirs["dump"], ours)
    if found:
        raise Difference(f"{place}, where Kafka's cleaner failed: {found}\n{told.title}")


def _cleaner(told: Story) -> CleanerConfig:
    return CleanerConfig(dedupe_buffer_bytes=told.dedupe_bytes, load_factor=told.load_factor)


def _date_closed_segments(folder: Path) -> None:
    """Give every segment but the active one a distinct past time, which cleaning must keep."""
    bases = sorted(int(path.stem) for path in folder.glob("*.log"))
    for slot, base in enumerate(bases[:-1]):
        stamp = (START_MS // 1000 - 1000 + slot,) * 2
        for suffix in SEGMENT_FILES:
            path = folder / f"{base:020}{suffix}"
            if path.exists():
                os.utime(path, stamp)


def _compare_decision(place: Place, theirs: dict[str, Any], state: Any) -> None:
    ours = {
        "first_dirty_offset": state.first_dirty_offset,
        "uncleanable_offset": state.first_uncleanable_offset,
        "upper_bound_offset": state.upper_bound_offset,
        "clean_bytes": state.clean_bytes,
        "cleanable_bytes": state.cleanable_bytes,
    }
    wrong = {name: (theirs[name], value) for name, value in ours.items() if theirs[name] != value}
    if wrong:
        raise Difference(f"{place}: decisions (Kafka, ours) {wrong}\n{place.story.title}")


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
    place: str, config: dict[str, str], theirs: Path, ours: Path, topic: str, end_offset: int
) -> Tally:
    """Compare all files of two cleaned partitions, and the cleaner's checkpoint.

    Parameters
    ----------
    end_offset : int
        Closed segments below it are what the cleaner wrote.

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
    if (theirs / CHECKPOINT).read_text() != (ours / CHECKPOINT).read_text():
        raise Difference(
            f"{place}: cleaner checkpoints {(theirs / CHECKPOINT).read_text()!r} and "
            f"{(ours / CHECKPOINT).read_text()!r}"
        )
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
        if base in recompressed and name.endswith("index"):
            continue
        if (left / name).read_bytes() != (right / name).read_bytes():
            raise Difference(
                f"{place}: {name} differs: {(left / name).read_bytes()[:96].hex()} and "
                f"{(right / name).read_bytes()[:96].hex()}"
            )
    for base in bases[:-1]:
        if base >= end_offset:
            break
        tally.segments += 1
        tally.bytes += (right / f"{base:020}.log").stat().st_size
        for _, batch in _batches((right / f"{base:020}.log").read_bytes()):
            tally.compressed += bool(batch.header.codec_id)
            tally.horizons += batch.header.has_delete_horizon
        for folder in (left, right):
            _check_indexes(place, folder, base, int(config["index.interval.bytes"]))
        for suffix in SEGMENT_FILES[:3]:
            _compare_mtime(place, left / f"{base:020}{suffix}", right / f"{base:020}{suffix}")
    return tally


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - IGNORED_FILES


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
        found = (folder / f"{base:020}{suffix}").read_bytes()
        if found != wanted:
            raise Difference(
                f"{place}: {folder.parent.name}/{base:020}{suffix} does not follow from its log: "
                f"{found[:96].hex()}, expected {wanted[:96].hex()}"
            )


# -- by hand -------------------------------------------------------------------------------------


def run_seeds(seeds: range, judge: Judge, scratch: Path) -> tuple[Tally, list[str]]:
    """Run stories; return the sum and a report for each that failed."""
    total, failed = Tally(), []
    for seed in seeds:
        folder = scratch / str(seed)
        folder.mkdir(parents=True)
        try:
            total.add(run_story(story(seed), judge, folder))
        except Exception as error:
            failed.append(f"seed {seed}: {type(error).__name__}: {error}")
        else:
            shutil.rmtree(folder)
    return total, failed


def main(first: int, end: int) -> int:
    """Run seeds [first, end) against Kafka 3."""
    with Judge.start(KAFKA_3) as judge:
        scratch = Path(tempfile.mkdtemp(dir=fast_scratch()))
        total, failed = run_seeds(range(first, end), judge, scratch)
    if failed:
        failed.append(f"their directories are in {scratch}")
    else:
        scratch.rmdir()
    sys.stdout.write("\n".join([*failed, f"{total}", ""]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
