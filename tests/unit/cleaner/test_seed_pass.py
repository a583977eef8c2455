"""The seed pass: its reads of the clean section under strategies with versions, and its effect.

The bytes are counted by the file system, not by the cleaner.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from logstore.cleaner.passes.clean import clean_pass
from logstore.cleaner.stats import CleanerStats
from logstore.errors import CorruptRecordError
from logstore.runtime import File, MemoryFileSystem, Runtime, VirtualClock
from logstore.storage.log import Log
from tests.support.world.builders import World, abort, batch, commit, data_batch, memory_world
from tests.support.world.cleaning import (
    ALL_KEYS,
    compacted,
    contents,
    drive,
    map_of,
    offsets_in,
    put,
    put_batches,
    put_each,
    run_pass,
)

HEADER = {"compaction_strategy": "header", "compaction_strategy_header": "v"}
TIMESTAMP = {"compaction_strategy": "timestamp"}


class CountedFile:
    """A file that records its reads in the file system."""

    def __init__(self, fs: CountingFileSystem, path: str, file: File) -> None:
        self._fs = fs
        self._path = path
        self._file = file

    def read_into(self, view: memoryview, position: int) -> int:
        count = self._file.read_into(view, position)
        self._fs.reads.append((self._path, position, count))
        return count

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


class CountingFileSystem(MemoryFileSystem):
    """Records every read of a segment's batches: path, position, bytes."""

    reads: list[tuple[str, int, int]]

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        self.reads = getattr(self, "reads", [])
        file = super().open(path, write=write, create=create)
        return CountedFile(self, path, file) if ".log" in path else file


def opened(**config: object) -> Log:
    clock = VirtualClock()
    fs = CountingFileSystem(clock)
    fs.make_dirs("/data/t-0")
    world = World(Runtime(clock, fs, random.Random(0)), "/data/t-0", clock)
    return compacted(world, **config)


def versioned(key: bytes, value: bytes | None, version: int | None) -> tuple:
    headers = () if version is None else (("v", version.to_bytes(8, "big", signed=True)),)
    return key, value, None, headers


def counted(log: Log, first_dirty: int, config=ALL_KEYS) -> tuple[CleanerStats, list]:
    """Run a pass; return its reads of batches: (base offset of the segment, position, bytes)."""
    fs = log.runtime.fs
    assert isinstance(fs, CountingFileSystem)
    fs.reads.clear()
    stats = run_pass(log, first_dirty, config=config)
    reads = [
        (int(path.rpartition("/")[2].partition(".")[0]), position, size)
        for path, position, size in fs.reads
    ]
    return stats, reads


def clean_and_dirty(strategy: dict[str, object], segments: int = 6) -> tuple[Log, int]:
    """Return a log with clean segments of ten distinct keys each, and two dirty segments."""
    log = opened(segment_bytes=2000, **strategy)
    for number in range(segments):
        put_each(log, *(versioned(b"%d-%d" % (number, n), b"x" * 50, n) for n in range(10)))
        log.writer.roll()
    assert run_pass(log).seed_bytes_read == 0, "no clean section yet"
    first_dirty = log.active_segment.base_offset
    for number in range(2):
        log.runtime.clock.advance(ms=1)
        put_each(log, *(versioned(b"%d-%d" % (number, n), b"y" * 50, n) for n in range(10)))
        log.writer.roll()
    return log, first_dirty


# --- how much is read -------------------------------------------------------------------------


def test_the_clean_section_is_read_once_more_and_in_order() -> None:
    log, first_dirty = clean_and_dirty(HEADER)
    sizes = {s.base_offset: s.size_bytes for s in log.segments if s.size_bytes}
    clean = {base: size for base, size in sizes.items() if base < first_dirty}
    assert len(clean) > 2
    stats, reads = counted(log, first_dirty)
    assert stats.seed_bytes_read == sum(clean.values())
    assert stats.seed_messages_read == first_dirty
    assert stats.map_bytes_read == sum(sizes.values()) - sum(clean.values())
    assert stats.bytes_read == sum(sizes.values())
    (lookup, *rest) = reads
    assert lookup[0] == max(clean), "the record before the first dirty offset"
    dirty = [base for base in sizes if base >= first_dirty]
    whole = [(base, 0, sizes[base]) for base in [*dirty, *clean, *clean, *dirty]]
    assert rest == whole, "map, seed, rewrite: each segment once, from its beginning to its end"


def test_without_versions_nothing_is_read_twice() -> None:
    log, first_dirty = clean_and_dirty({})
    stats, reads = counted(log, first_dirty)
    assert (stats.seed_bytes_read, stats.seed_messages_read) == (0, 0)
    assert sum(size for _, _, size in reads) == stats.map_bytes_read + stats.bytes_read


def test_the_seed_pass_ends_with_the_clean_section_for_any_buffer() -> None:
    """The first dirty offset is inside a segment, because the map was full there."""
    log = opened(**HEADER)
    put_each(log, *(versioned(b"%02d" % n, b"x" * 50, n) for n in range(40)))
    log.writer.roll()
    small = map_of(32, io_buffer_bytes=200)  # 24 entries of 32 bytes, 21 keys
    first = run_pass(log, config=small)
    assert first.end_offset == 21
    stats, _ = counted(log, first.end_offset, small)
    size = log.segments.first.size_bytes
    clean = size * 21 // 40
    assert size % 40 == 0, "records of equal size"
    assert stats.end_offset == 40
    assert 0 <= stats.seed_bytes_read - clean <= small.io_buffer_bytes


def test_nothing_is_read_when_nothing_is_mapped() -> None:
    log = opened(**HEADER)
    put_each(log, versioned(b"a", b"1", 9), versioned(b"a", b"2", 5), versioned(b"b", b"3", 1))
    log.writer.roll()
    put(log, versioned(b"b", b"old", 0))
    log.writer.roll()
    put_batches(log, batch(4, key=None))
    end = run_pass(log, 0, 4).end_offset
    assert offsets_in(log) == [0, 2, 4], "the record before the first dirty offset is removed"
    log.writer.roll()
    put(log, versioned(b"c", b"4", 1))
    stats, reads = counted(log, end)
    assert (stats.first_dirty_offset, stats.end_offset, stats.map_entries) == (4, 5, 0)
    assert (stats.seed_bytes_read, stats.seed_messages_read) == (0, 0)
    assert offsets_in(log) == [0, 2, 5]
    once = Counter(base for base, _, size in reads if size)
    assert once[0] <= 2, "for the search of the record, and for the rewrite"


@pytest.mark.parametrize(("newer_ms", "is_read"), ((-1, False), (0, False), (1, True)))
def test_by_timestamp_segments_too_old_to_win_are_not_read(newer_ms: int, is_read: bool) -> None:
    """Too old: no timestamp above all mapped ones; of equal timestamps the later offset wins."""
    log = opened(segment_bytes=1000, **TIMESTAMP)
    for number, timestamp in enumerate((100, 1000 + newer_ms, 1000)):
        put(log, (b"%d" % number, b"x" * 600, timestamp))
    log.writer.roll()
    end = run_pass(log).end_offset
    for number in range(3):
        put(log, (b"%d" % number, b"y", 1000 + number))
    log.writer.roll()
    sizes = {s.base_offset: s.size_bytes for s in log.segments}
    stats, reads = counted(log, end)
    assert stats.seed_bytes_read == (sizes[1] if is_read else 0)
    assert stats.seed_messages_read == (1 if is_read else 0)
    times = Counter(base for base, _, size in reads if size == sizes[base])
    once_more = 1 if is_read else 0
    assert times == {0: 1, 1: 1 + once_more, 2: 2, 3: 2}, "2 for the record before the dirty ones"
    assert offsets_in(log) == [3, 4, 5]


def test_by_timestamp_nothing_is_read_when_everything_clean_is_older() -> None:
    """As in a log whose records arrive in order."""
    log = opened(segment_bytes=1000, **TIMESTAMP)
    for number in range(5):
        put(log, (b"%d" % number, b"x" * 600, 100 + number))
    log.writer.roll()
    end = run_pass(log).end_offset
    for number in range(5):
        put(log, (b"%d" % number, b"y" * 600, 200 + number))
    log.writer.roll()
    before = [s.size_bytes for s in log.segments if s.base_offset < end]
    assert len(before) == 5
    stats, reads = counted(log, end)
    assert (stats.seed_bytes_read, stats.seed_messages_read) == (0, 0)
    extra = sum(size for _, _, size in reads) - stats.map_bytes_read - stats.bytes_read
    assert extra == before[-1], "the record before the dirty section"


def test_the_progress_includes_the_seed_pass_and_its_bytes() -> None:
    log, first_dirty = clean_and_dirty(HEADER)
    steps = list(clean_pass(log, ALL_KEYS, first_dirty, log.active_segment.base_offset))
    assert [step.phase for step in steps] == sorted(
        (step.phase for step in steps), key=("map", "seed", "rewrite").index
    )
    seed = [step for step in steps if step.phase == "seed"]
    clean = sum(s.size_bytes for s in log.segments if s.base_offset < first_dirty)
    assert len(seed) > 2
    assert seed[0].bytes_done == 0
    assert {step.bytes_total for step in seed} != {0}
    assert [s.bytes_done for s in seed] == sorted({s.bytes_done for s in seed})
    assert steps[-1].bytes_read > clean, "reads of all phases count, for the throttle"
    assert [step.bytes_read for step in steps] == sorted(step.bytes_read for step in steps)


# --- its effect -------------------------------------------------------------------------------


def test_records_below_the_log_start_do_not_compete() -> None:
    log = opened(**HEADER)
    put(log, versioned(b"a", b"gone", 9), versioned(b"b", b"1", 1))
    put(log, versioned(b"c", b"1", 1))
    log.writer.roll()
    end = run_pass(log).end_offset
    put(log, versioned(b"c", b"2", 0), versioned(b"a", b"new", 5))
    log.writer.roll()
    log.offsets.maybe_increment_log_start_offset(1)
    run_pass(log, end)
    assert contents(log)[2:] == [(2, b"c", b"1"), (4, b"a", b"new")]


def test_damage_in_the_clean_section_is_found_before_any_write() -> None:
    log, first_dirty = clean_and_dirty(HEADER)
    segment = log.segments.view[1]
    file = log.runtime.fs.open(segment.log_path, write=True)
    (byte,) = file.read(100, 1)
    file.write_at([bytes([byte ^ 1])], 100)
    before = log.runtime.fs.list_dir("/data/t-0")
    with pytest.raises(CorruptRecordError) as found:
        drive(clean_pass(log, ALL_KEYS, first_dirty, log.active_segment.base_offset))
    assert found.value.path == segment.log_path
    assert log.runtime.fs.list_dir("/data/t-0") == before


def test_aborted_records_of_the_clean_section_do_not_compete() -> None:
    log = opened(**TIMESTAMP)
    put_batches(log, data_batch(0, 0, 1, key=b"a", timestamp=9000), batch(1, key=b"b"))
    put_batches(log, abort(2, 1, timestamp=9000), batch(3, key=b"c"))
    log.writer.roll()
    put_batches(log, batch(4, key=b"a", timestamp=5000))
    log.writer.roll()
    # The map of the first pass was full: the aborted record is still there.
    stats = run_pass(log, 4)
    assert stats.seed_messages_read == 4
    assert stats.fates["aborted"] == 1
    assert [(offset, k) for offset, k, _ in contents(log) if offset == 4] == [(4, b"a")]


def test_segments_that_are_skipped_do_not_confuse_the_transactions() -> None:
    """A marker in a segment that is too old to be read still ends its transaction.

    Records that the same producer commits afterwards compete, and survive.
    """
    log = opened(**TIMESTAMP)
    put_batches(log, data_batch(0, 0, 1, key=b"x", timestamp=9000))
    log.writer.roll()
    put_batches(log, abort(1, 1, timestamp=10))
    log.writer.roll()
    put_batches(log, data_batch(2, 2, 1, sequence=1, key=b"a", timestamp=9000))
    put_batches(log, commit(3, 1, timestamp=9000))
    log.writer.roll()
    put_batches(log, batch(4, key=b"a", timestamp=5000), batch(5, key=b"b", timestamp=5000))
    log.writer.roll()
    stats = run_pass(log, 4)
    assert stats.seed_messages_read == 3, "the middle segment was skipped"
    assert [offset for offset, k, _ in contents(log) if k == b"a"] == [2]
    assert stats.fates["superseded"] == 1


def test_by_timestamp_a_clean_segment_whose_times_are_unknown_is_read() -> None:
    """After the time index was lost: it may contain a survivor."""
    world = memory_world()
    config = {**TIMESTAMP, "segment_bytes": 10_000}
    log = compacted(world, **config)
    put(log, (b"k", b"newest", 9_000))
    put(log, (b"last", b"v", 1_000))
    log.writer.roll()
    put(log, (b"k", b"late", 5_000))
    put(log, (b"other", b"v", 6_000))
    log.writer.roll()
    log.close()
    world.fs.remove(f"{world.directory}/00000000000000000000.timeindex")
    log = compacted(world, **config)
    assert log.segments.first.max_timestamp_so_far.timestamp < 0, "nobody knows"
    run_pass(log, 2)
    values = {key: value for _, key, value in contents(log)}
    assert values == {b"k": b"newest", b"last": b"v", b"other": b"v"}


@pytest.mark.parametrize("start", (0, 1))
def test_the_record_before_the_dirty_ones_is_put_also_if_it_is_the_log_s_first(start: int) -> None:
    log = opened(**HEADER)
    put_each(log, versioned(b"a", b"1", 7), versioned(b"b", b"1", None), versioned(b"c", b"1", 7))
    log.writer.roll()
    log.offsets.maybe_increment_log_start_offset(start)
    stats = run_pass(log, start + 1)
    assert stats.map_entries == 3 - start, "those from the log start on"


def test_the_record_before_the_dirty_ones_counts_nowhere() -> None:
    log = opened(**HEADER)
    put_each(log, versioned(b"a", b"1", None), versioned(b"b", b"1", 7), versioned(b"c", b"1", 7))
    log.writer.roll()
    stats = run_pass(log, 1)
    assert stats.map_entries == 3
    assert stats.map_messages_read == 3, "in the batches that contain the dirty records"
    assert stats.unversioned_records == 0
