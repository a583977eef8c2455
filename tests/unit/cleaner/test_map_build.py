"""The keys that a build maps, the range that its map covers, and its end if the map is full."""

from __future__ import annotations

import pytest

from logstore.cleaner.errors import OverflowedSegmentError
from logstore.cleaner.passes.build import MapBuild
from logstore.cleaner.passes.chunks import ChunkReader
from logstore.cleaner.passes.offset_map import OffsetMap
from logstore.errors import CorruptRecordError
from logstore.record.batch import RecordBatch
from tests.support.world.builders import World, batch, memory_world
from tests.support.world.cleaning import (
    closed_size,
    compacted,
    contents,
    map_of,
    put,
    put_batches,
    put_each,
    run_pass,
    run_passes,
)
from tests.support.world.messages import exactly


def build(log, first_dirty: int, upper_bound: int, *, slots: int = 10_000, io: int = 4096):
    """Build a map; return it and the build."""
    offset_map = OffsetMap(24 * slots, 0.75, base_offset=first_dirty)
    work = MapBuild(log, first_dirty, upper_bound, offset_map, ChunkReader(io))
    for _ in work.steps():
        pass
    return offset_map, work


def key(number: int) -> bytes:
    return b"key-%d" % number


def test_s150_every_range_of_500_unique_keys() -> None:
    log = compacted(memory_world(), segment_bytes=5000)
    put_each(log, *((key(number), b"v" * 30) for number in range(500)))
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 5
    for start in bases:
        for end in bases:
            if start >= end:
                continue
            a_map, work = build(log, start, end)
            assert a_map.latest_offset == end - 1
            assert len(a_map) == work.messages_read == end - start
            found = [a_map.get(key(number)) for number in range(500)]
            assert found == [number if start <= number < end else -1 for number in range(500)]


def test_a_range_may_begin_inside_a_segment_and_a_batch() -> None:
    log = compacted(memory_world())
    put(log, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    put(log, (b"d", b"1"))
    log.writer.roll()
    a_map, work = build(log, 2, 4)
    assert [a_map.get(each) for each in (b"a", b"b", b"c", b"d")] == [-1, -1, 2, 3]
    assert work.messages_read == 4


def test_s151_a_sparse_dirty_range() -> None:
    log = compacted(memory_world())
    put_batches(log, batch(0), batch(7206178))
    log.writer.roll()
    a_map, _ = build(log, 0, 7206179)
    assert a_map.latest_offset == 7206178
    assert len(a_map) == 2
    stats = run_pass(log)
    assert stats.end_offset == 7206179
    assert stats.messages_written == 2


def test_gaps_before_and_after_segments_are_jumped() -> None:
    log = compacted(memory_world())
    put_batches(log, batch(5))
    log.writer.roll(100)
    put_batches(log, batch(120))
    log.writer.roll(200)
    for start, end, size in ((0, 100, 1), (6, 100, 0), (0, 200, 2), (50, 200, 1), (121, 200, 0)):
        a_map, _ = build(log, start, end)
        assert (len(a_map), a_map.latest_offset) == (size, end - 1)


def test_the_map_never_speaks_beyond_the_upper_bound() -> None:
    """Selection passes base offsets of segments; other offsets work too."""
    log = compacted(memory_world())
    put_each(log, *((key(number), b"1") for number in range(4)))
    log.writer.roll()
    a_map, _ = build(log, 0, 2)
    assert a_map.latest_offset == 1


def test_an_empty_range_maps_nothing() -> None:
    log = compacted(memory_world())
    put(log, (b"a", b"1"))
    log.writer.roll()
    for start in (0, 1):
        a_map, work = build(log, start, start)
        assert (len(a_map), a_map.latest_offset, work.bytes_read) == (0, start - 1, 0)


def test_s153_a_dirty_batch_with_more_keys_than_the_map_takes() -> None:
    log = compacted(memory_world())
    put(log, *((key(number % 7), b"%d" % number) for number in range(14)))
    log.writer.roll()
    a_map, work = build(log, 0, 14, slots=4)
    assert work.full
    assert a_map.latest_offset == 2
    passes = run_passes(log, map_of(4, 0.75))
    assert [stats.end_offset for stats in passes] == [3, 6, 9, 12, 14]
    assert contents(log) == [(7 + n, key(n), b"%d" % (7 + n)) for n in range(7)]


def test_a_pass_that_starts_inside_a_batch_ignores_its_earlier_records() -> None:
    log = compacted(memory_world())
    put(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", b"2"))
    log.writer.roll()
    a_map, work = build(log, 2, 4)
    assert (a_map.get(b"a"), a_map.get(b"b"), len(a_map)) == (2, 3, 2)
    assert work.messages_read == 4


def test_s154_holes_at_the_ends_of_segments() -> None:
    log = compacted(memory_world())
    put_batches(log, *(batch(offset) for offset in range(10)))
    log.writer.roll(15)
    put_batches(log, *(batch(offset) for offset in range(15, 25)))
    log.writer.roll(30)
    assert run_pass(log).end_offset == 30


def test_a_full_map_stops_at_a_known_key_too() -> None:
    """As in Kafka: the count is checked before the key."""
    log = compacted(memory_world())
    put_each(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"))
    log.writer.roll()
    a_map, _ = build(log, 0, 4, slots=3)
    assert (len(a_map), a_map.latest_offset) == (2, 1)


def test_records_after_the_map_is_full_are_not_counted() -> None:
    log = compacted(memory_world())
    put_each(log, *((key(number % 4), b"x" * 50) for number in range(40)))
    log.writer.roll()
    whole, work = build(log, 0, 40)
    assert (work.bytes_read, work.messages_read) == (closed_size(log), 40)
    assert not work.full
    _, partial = build(log, 0, 40, slots=4, io=128)
    assert partial.full
    assert partial.bytes_read < work.bytes_read
    assert partial.messages_read == 3
    assert len(whole) == 4


# --- damage -----------------------------------------------------------------------------------


def overwrite(world: World, name: str, position: int, data: bytes) -> None:
    file = world.fs.open(world.path(name), write=True)
    file.write_at([data], position)
    file.close()


def two_closed_segments() -> tuple[World, object]:
    world = memory_world()
    log = compacted(world)
    put_each(log, (b"a", b"1"), (b"b", b"1"))
    log.writer.roll()
    put_each(log, (b"a", b"2"), (b"b", b"2"))
    log.writer.roll()
    return world, log


FIRST = f"{0:020d}.log"
BATCH_SIZE = 70


@pytest.mark.parametrize(
    ("position", "data", "check", "message"),
    (
        (
            BATCH_SIZE - 1,
            b"\x01",
            "crc",
            (
                "/data/t-0/00000000000000000000.log at position 0: batch at offset 0 has "
                "a bad CRC (stored crc = 2520997529, computed crc = 1680399770)"
            ),
        ),
        (
            BATCH_SIZE + 16,
            b"\x07",
            "magic",
            ("/data/t-0/00000000000000000000.log at position 70: magic 7 is not 2"),
        ),
        (
            BATCH_SIZE + 8,
            bytes(4),
            "batch_length",
            (
                "/data/t-0/00000000000000000000.log at position 70: batch length 0 is "
                "less than the minimum 14"
            ),
        ),
        (
            BATCH_SIZE,
            (99).to_bytes(8, "big"),
            "offsets",
            (
                "/data/t-0/00000000000000000000.log at position 70: a batch has offsets "
                "99 to 99, expected offsets in [1, 2)"
            ),
        ),
        (
            BATCH_SIZE,
            (0).to_bytes(8, "big"),
            "offsets",
            (
                "/data/t-0/00000000000000000000.log at position 70: a batch has offsets "
                "0 to 0, expected offsets in [1, 2)"
            ),
        ),
        (
            BATCH_SIZE,
            (2**63 - 1).to_bytes(8, "big"),
            "offsets",
            (
                "/data/t-0/00000000000000000000.log at position 70: a batch has offsets "
                "9223372036854775807 to 9223372036854775807, expected offsets in [1, 2)"
            ),
        ),
        (
            BATCH_SIZE,
            b"\xff" * 8,
            "offsets",
            (
                "/data/t-0/00000000000000000000.log at position 70: the batch or a "
                "record in it is outside the offsets -1 to -1 of its header"
            ),
        ),
        (
            BATCH_SIZE + 8,
            (10_000).to_bytes(4, "big"),
            "whole_batch",
            ("/data/t-0/00000000000000000000.log at position 70: the segment ends inside a batch"),
        ),
    ),
)
def test_damage_is_named_with_file_position_and_check(
    position: int, data: bytes, check: str, message: str
) -> None:
    world, log = two_closed_segments()
    assert log.segments.first.size_bytes == 2 * BATCH_SIZE
    overwrite(world, FIRST, position, data)
    with pytest.raises(CorruptRecordError, match=exactly(message)) as caught:
        build(log, 0, 4)
    assert caught.value.check == check
    assert caught.value.path.endswith(FIRST)
    assert caught.value.position in (0, BATCH_SIZE)


def test_a_count_that_a_batch_has_no_room_for_ends_its_chunk_before_it() -> None:
    """No buffer is allocated for so many records, although the CRC is correct."""
    world, log = two_closed_segments()
    log.close()
    sound = world.files()[FIRST]
    header = RecordBatch(sound[BATCH_SIZE:]).header._replace(record_count=2**31 - 1)
    bad = header.pack() + sound[BATCH_SIZE + 61 :]
    bad = header._replace(crc=RecordBatch(bad).computed_crc()).pack() + bad[61:]
    later = RecordBatch(bad).header._replace(base_offset=2).pack() + bad[61:]
    world.put({FIRST: sound[:BATCH_SIZE] + bad + later})
    chunks = ChunkReader(4096).chunks(compacted(world).segments.first, 3)
    first = next(chunks)
    assert (first.rows, first.size_bytes, first.record_count) == (1, BATCH_SIZE, 1)
    with pytest.raises(CorruptRecordError) as caught:
        next(chunks)
    assert (caught.value.check, caught.value.position) == ("record_structure", BATCH_SIZE)


@pytest.mark.parametrize(
    ("number", "io", "message"),
    (
        (
            0,
            4096,
            (
                "/data/t-0/00000000000000000002.log at position 0: a batch has offsets 1 "
                "to 1, expected offsets in [2, 4)"
            ),
        ),
        (
            1,
            64,
            (
                "/data/t-0/00000000000000000002.log at position 70: a batch has offsets "
                "2 to 2, expected offsets in [3, 4)"
            ),
        ),
    ),
)
def test_offsets_rise_from_the_segments_base_on_also_from_chunk_to_chunk(
    number: int, io: int, message: str
) -> None:
    world, log = two_closed_segments()
    overwrite(world, f"{2:020d}.log", number * BATCH_SIZE, (number + 1).to_bytes(8, "big"))
    with pytest.raises(CorruptRecordError, match=exactly(message)) as caught:
        build(log, 0, 4, io=io)
    assert (caught.value.check, caught.value.position) == ("offsets", number * BATCH_SIZE)


def test_a_segment_of_too_wide_a_span_is_refused_by_name() -> None:
    world = memory_world()
    log = compacted(world)
    put_each(log, (b"a", b"1"), (b"b", b"1"))
    log.writer.roll(2**40)
    overwrite(world, FIRST, BATCH_SIZE, (2**31).to_bytes(8, "big"))
    with pytest.raises(
        OverflowedSegmentError,
        match=exactly(
            "/data/t-0/00000000000000000000.log: offset 2147483648 is more than 31 bits "
            "above the base"
        ),
    ):
        build(log, 0, 2**40)


def test_chunks_of_any_size_map_the_same() -> None:
    log = compacted(memory_world())
    put_each(log, *((key(number % 9), b"x" * (number * 37 % 300)) for number in range(60)))
    log.writer.roll()
    maps = [build(log, 0, 60, io=io)[0] for io in (1, 61, 100, 1000, 1 << 20)]
    for each in range(9):
        assert len({a_map.get(key(each)) for a_map in maps}) == 1
