"""A rewrite does not read batches without surviving records."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from logstore.cleaner.passes import locations, skipping
from logstore.errors import CorruptRecordError
from logstore.record.codecs import Codec
from logstore.runtime import MemoryFileSystem, Runtime, VirtualClock
from logstore.storage.log import Log
from tests.support.world.builders import World
from tests.support.world.cleaning import (
    Producer,
    batch_bases_in,
    compacted,
    map_of,
    offsets_in,
    put,
    run_pass,
)

VALUE = random.Random(0).randbytes(40_000)
"""A batch of one is larger than the least gap, compressed or not."""


class Reads(MemoryFileSystem):
    """Records which bytes of segments are read, and may change them before a read."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.reads: list[tuple[int, int]] = []
        self.before: dict[int, object] = {}

    def open(self, path: str, *, write: bool = False, create: bool = False):
        file = super().open(path, write=write, create=create)
        return _File(self, file) if path.endswith(".log") else file


class _File:
    def __init__(self, fs: Reads, file) -> None:
        self._fs = fs
        self._file = file

    def read_into(self, view: memoryview, position: int) -> int:
        self._fs.before.pop(len(self._fs.reads), lambda: None)()
        self._fs.reads.append((position, len(view)))
        return self._file.read_into(view, position)

    def __getattr__(self, name: str):
        return getattr(self._file, name)


@pytest.fixture
def log() -> Log:
    clock = VirtualClock()
    fs = Reads(clock)
    fs.make_dirs("/data/t-0")
    return compacted(World(Runtime(clock, fs, random.Random(0)), "/data/t-0", clock))


def put_keys(log: Log, keys: str, codec: Codec = Codec.NONE) -> int:
    """Append a batch for each key, then roll; return the size of a batch."""
    for key in keys:
        put(log, (key.encode(), VALUE), codec=codec)
    assert log.active_segment.size_bytes > len(keys) * skipping.LEAST_GAP_BYTES
    size = log.active_segment.size_bytes // len(keys)
    log.writer.roll()
    return size


def ranges_of(log: Log, size: int) -> list[tuple[int, int]]:
    """Return the reads as (first batch, number of batches)."""
    return [(position // size, count // size) for position, count in log.runtime.fs.reads]


@pytest.mark.parametrize("room", (9, locations.LOCATIONS_MAX))
def test_batches_without_survivors_are_read_once(log: Log, room: int, monkeypatch) -> None:
    monkeypatch.setattr(locations, "LOCATIONS_MAX", room)
    size = put_keys(log, "aaabaaaac")
    stats = run_pass(log)
    # The first batch of a chunk is always read, and then the last one of each key.
    assert ranges_of(log, size) == [(0, 9), (0, 1), (3, 1), (7, 2)]
    assert offsets_in(log) == [3, 7, 8]
    assert stats.fates["superseded"] == 6
    assert (stats.messages_read, stats.messages_written) == (9, 3)
    assert stats.bytes_read == 9 * size


@pytest.mark.parametrize("odd", (0, 1, -1))
def test_each_of_several_segments_is_read_by_the_places_of_its_own_batches(
    log: Log, odd: int
) -> None:
    size = put_keys(log, "axb")
    put_keys(log, "bbbac")
    batches = 3 if odd < 0 else 2
    run_pass(log, config=map_of(100, io_buffer_bytes=batches * size + odd))  # chunks of two
    mapped = [(0, 2), (2, 1), (0, 2), (2, 2), (4, 1)]
    assert ranges_of(log, size) == [*mapped, (0, 2), (0, 1), (2, 1), (3, 2)]
    assert offsets_in(log) == [1, 5, 6, 7]


def test_small_gaps_are_read_with_their_neighbours(log: Log, monkeypatch) -> None:
    size = put_keys(log, "aaabaaaac")
    monkeypatch.setattr(skipping, "LEAST_GAP_BYTES", 3 * size)
    run_pass(log)
    assert ranges_of(log, size) == [(0, 9), (0, 4), (7, 2)]
    assert offsets_in(log) == [3, 7, 8]


def test_a_chunk_covers_a_limited_part_of_the_file(log: Log, monkeypatch) -> None:
    size = put_keys(log, "aaaaaaaab")
    monkeypatch.setattr(skipping, "SPAN_BYTES", 4 * size)
    run_pass(log)
    assert ranges_of(log, size) == [(0, 9), (0, 1), (4, 1), (7, 1), (8, 1)]


def test_the_batch_that_ends_the_round_keeps_its_header(log: Log) -> None:
    """Only with versions can all its records be superseded within the round."""
    log.set_config(
        replace(log.config, compaction_strategy="header", compaction_strategy_header="v")
    )
    for version in (9, 1, 2, 3):
        put(log, (b"a", VALUE, None, (("v", version.to_bytes(8, "big")),)))
    log.writer.roll()
    put(log, (b"b", VALUE))  # the last record of a log is always kept
    run_pass(log)
    assert batch_bases_in(log) == [0, 3, 4]
    assert offsets_in(log) == [0, 4]


@pytest.mark.parametrize("how", ("compressed", "idempotent", "transactional", "tiny", "no room"))
def test_all_is_read_twice_where_more_than_the_winners_decides(
    log: Log, how: str, monkeypatch
) -> None:
    if how in ("idempotent", "transactional"):
        producer = Producer(log, 1)
        producer.send((b"z", VALUE), transactional=how == "transactional")
        if how == "transactional":
            producer.commit()
    elif how == "tiny":
        monkeypatch.setattr(locations, "LEAST_BATCH_BYTES", 1 << 20)
    elif how == "no room":
        monkeypatch.setattr(locations, "LOCATIONS_MAX", 3)
    put_keys(log, "aaaaaaaab", Codec.ZSTD if how == "compressed" else Codec.NONE)
    run_pass(log, config=map_of(100, io_buffer_bytes=100_000))  # chunks of two, the last of one
    reads = log.runtime.fs.reads
    assert len(reads) >= 10
    assert reads[: len(reads) // 2] == reads[len(reads) // 2 :]


def test_of_a_segment_that_was_mapped_in_part_all_is_read(log: Log) -> None:
    size = put_keys(log, "aaaaaaaab")
    run_pass(log, config=map_of(2))  # room for the first key alone
    assert ranges_of(log, size) == [(0, 9)] * 2
    assert offsets_in(log) == list(range(9))


def test_of_a_segment_that_is_clean_in_part_all_is_read(log: Log) -> None:
    size = put_keys(log, "wxyzaaaab")
    run_pass(log, 4)
    assert ranges_of(log, size) == [(4, 5), (0, 9)]
    assert offsets_in(log) == [0, 1, 2, 3, 7, 8]


@pytest.mark.parametrize(("number", "field", "value"), ((7, 16, b"\x07"), (8, 8, b"\x7f")))
def test_changes_since_the_mapping_are_reported_with_their_location(
    log: Log, number: int, field: int, value: bytes
) -> None:
    """A magic, and a length that reaches beyond the end of the file."""
    size = put_keys(log, "aaabaaaac")
    path = log.segments.first.log_path

    def damage() -> None:
        file = log.runtime.fs.open(path, write=True)
        file.write_at([value], number * size + field)
        file.close()

    log.runtime.fs.before[3] = damage
    with pytest.raises(CorruptRecordError) as caught:
        run_pass(log)
    assert (caught.value.path, caught.value.position) == (path, number * size)
    # The damaged segment was read completely.
    assert ranges_of(log, size)[4:] == [(0, 9), (number, 9 - number)]


def test_batches_as_large_as_the_buffer_are_passed_over(log: Log) -> None:
    size = put_keys(log, "aaabaaaac")
    run_pass(log, config=map_of(100, io_buffer_bytes=size))
    mapped = [(number, 1) for number in range(9)]
    assert ranges_of(log, size) == [*mapped, (0, 1), (3, 1), (7, 1), (8, 1)]


def test_a_batch_that_is_larger_than_the_buffer_ends_the_skipping(log: Log) -> None:
    size = put_keys(log, "aaabaaaac")
    run_pass(log, config=map_of(100, io_buffer_bytes=1000))
    assert offsets_in(log) == [3, 7, 8]
    assert sum(count for _, count in log.runtime.fs.reads) >= 2 * 9 * size
