"""One pass over one log: surviving records, written bytes, and the files after a failure."""

from __future__ import annotations

import pytest

from logstore.cleaner.errors import CleaningAbortedError
from logstore.cleaner.passes.build import passes_after
from logstore.cleaner.passes.chunks import ChunkReader
from logstore.cleaner.passes.clean import _last_modified_ms, clean_pass
from logstore.cleaner.passes.offset_map import OffsetMap
from logstore.cleaner.passes.rewrite import Rewriter
from logstore.errors import CorruptRecordError, SegmentOverflowError
from logstore.record.batch import RecordBatch, build_batch
from logstore.record.codecs import Codec
from logstore.record.records import Record
from logstore.runtime import Runtime, VirtualClock
from logstore.storage.log import Log
from logstore.storage.segment.swap import create_cleaned
from logstore.types import INT64_MIN, TimestampType
from tests.support.world import golden
from tests.support.world.builders import LOG_APPEND_TIME, MIB, World, bases_of, memory_world
from tests.support.world.cleaning import (
    ALL_KEYS,
    batches_in,
    bytes_at,
    closed_size,
    compacted,
    contents,
    drive,
    files_of,
    map_of,
    offsets_in,
    put,
    put_batches,
    put_each,
    run_pass,
    run_passes,
    snapshot,
)
from tests.support.world.messages import exactly
from tests.support.world.pool_world import CountingFileSystem

T = golden.E_TIMESTAMP


def key(number: int) -> bytes:
    return b"%d" % number


def rewrite(
    log: Log, superseded: list[bytes], group: list, upper_bound: int, latest: int
) -> Rewriter:
    """Rewrite a group with a prepared map that has later offsets of the given keys."""
    offset_map = OffsetMap(24 * 1000)
    for each in superseded:
        offset_map.put(each, 2**39)
    offset_map.latest_offset = latest
    rewriter = Rewriter(
        log,
        offset_map,
        ChunkReader(4096),
        first_dirty_offset=0,
        upper_bound_offset=upper_bound,
        now_ms=T,
    )
    destination = create_cleaned(log.runtime, log.directory, group[0].base_offset, log.config)
    for _ in rewriter.steps(group, destination):
        pass
    destination.on_become_inactive()
    destination.flush()
    log.replace_segments([destination], group)
    return rewriter


# --- survivors --------------------------------------------------------------------------------


def test_s149_a_prepared_map_over_three_of_four_segments() -> None:
    log = compacted(memory_world(), segment_bytes=1000)
    put_each(log, *((key(number), b"v" * 20) for number in range(44)))
    group = list(log.segments.view[:3])
    before = contents(log)
    sizes = sum(segment.size_bytes for segment in group)
    end = log.segments.view[3].base_offset
    gone = [key(number) for number in (1, 3, 5, 7, 9)]
    rewriter = rewrite(log, gone, group, upper_bound=end, latest=2**39)
    assert rewriter.bytes_read == sizes
    assert contents(log) == [item for item in before if item[1] not in gone]
    assert bases_of(log)[:2] == [0, end]


def test_s152_stats_of_a_small_map_from_a_later_first_dirty_offset() -> None:
    log = compacted(memory_world())
    put_each(log, *((key(number), b"v%d" % at) for at, number in enumerate((0, 1, 0, 1, 0))))
    log.writer.roll()
    before = closed_size(log)
    stats = run_pass(log, 2, config=map_of(4, 0.75))
    assert stats.end_offset == 5
    assert (stats.messages_read, stats.messages_written) == (5, 2)
    assert stats.invalid_messages_read == 0
    assert (stats.bytes_read, stats.bytes_written) == (before, closed_size(log))
    assert (stats.map_entries, stats.map_utilization) == (2, 0.5)
    assert stats.fates["superseded"] == 3
    assert contents(log) == [(3, b"1", b"v3"), (4, b"0", b"v4")]


def test_s155_records_without_a_key_disappear() -> None:
    log = compacted(memory_world(), cleanup_policy=("delete",))
    put(log, (None, b"1"), (b"a", b"1"), (None, b"2"))
    put(log, (None, b"3"))
    put(log, (b"b", b"1"))
    log.writer.roll()
    stats = run_pass(log)
    assert stats.invalid_messages_read == stats.fates["null_key"] == 3
    assert contents(log) == [(1, b"a", b"1"), (4, b"b", b"1")]


def test_s156_a_record_without_a_key_beyond_the_map_stays_for_a_later_pass() -> None:
    log = compacted(memory_world(), cleanup_policy=("delete",))
    put(log, (b"a", b"1"), (None, b"2"), (b"b", b"1"), (None, b"3"), (b"c", b"1"))
    log.writer.roll()
    first = run_pass(log, config=map_of(4, 0.75))
    assert first.end_offset == 5
    log = compacted(memory_world(), cleanup_policy=("delete",))
    put(log, (b"a", b"1"), (None, b"2"), (b"b", b"1"), (None, b"3"), (b"c", b"1"), (None, b"4"))
    log.writer.roll()
    first = run_pass(log, config=map_of(3, 0.75))
    assert (first.end_offset, first.invalid_messages_read) == (3, 1)
    assert offsets_in(log) == [0, 2, 3, 4, 5]
    second = run_pass(log, 3, config=map_of(3, 0.75))
    assert (second.end_offset, second.invalid_messages_read) == (6, 2)
    assert offsets_in(log) == [0, 2, 4]


@pytest.mark.parametrize("lowered", (False, True))
def test_s157_batches_far_larger_than_the_buffers(lowered: bool) -> None:
    log = compacted(memory_world(), segment_bytes=5 * MIB, max_message_bytes=2 * MIB)
    put_each(log, *((key(number % 2), bytes(MIB)) for number in range(4)))
    put(log, (b"small", b"1"))
    log.writer.roll()
    if lowered:
        log.set_config(compacted_config(log, max_message_bytes=512 * 1024))
    stats = run_pass(log, config=map_of(100, io_buffer_bytes=1024))
    assert stats.messages_written == 3
    assert offsets_in(log) == [2, 3, 4]
    reader = ChunkReader(1024)
    sizes = [
        (chunk.rows, len(reader._buffer) >= chunk.size_bytes)
        for chunk in reader.chunks(log.segments.first, 5)
    ]
    assert sizes == [(1, True)] * 3
    assert len(reader._buffer) == 1024


def compacted_config(log: Log, **changes: object):
    """The log's configuration with some values replaced."""
    from dataclasses import replace

    return replace(log.config, **changes)


@pytest.mark.parametrize("damage", ("magic", "cut"))
def test_s158_a_damaged_large_batch_fails_the_pass_and_nothing_else(damage: str) -> None:
    world = memory_world()
    log = compacted(world, segment_bytes=3 * MIB, max_message_bytes=2 * MIB)
    put_each(log, *((b"a", bytes(MIB)) for _ in range(2)))
    log.writer.roll()
    put(log, (b"later", b"1"))
    log.writer.roll()
    log.set_config(compacted_config(log, max_message_bytes=512 * 1024))
    file = world.fs.open(world.path(f"{0:020d}.log"), write=True)
    if damage == "magic":
        file.write_at([b"\xff"], 16)
    else:
        file.truncate(1024)
    before = world.files(".log")
    with pytest.raises(CorruptRecordError):
        run_pass(log, config=map_of(100, io_buffer_bytes=1024))
    assert {n: d for n, d in world.files(".log").items() if "cleaned" not in n} == before
    assert [r.key for _, r in log.reader.records(2)] == [b"later"]
    put(log, (b"still", b"1"))
    assert [r.key for _, r in log.reader.records(2)] == [b"later", b"still"]


def test_batches_that_were_not_verified_while_mapping_are_verified_while_rewriting() -> None:
    world = memory_world()
    log = compacted(world)
    put_each(log, *((key(number), b"v" * 100) for number in range(10)))
    log.writer.roll()
    name = world.path(f"{0:020d}.log")
    file = world.fs.open(name, write=True)
    file.write_at([b"w"], log.segments.first.size_bytes - 2)
    file.close()
    with pytest.raises(CorruptRecordError, match="CRC") as caught:
        run_pass(log, config=map_of(3, 0.9, io_buffer_bytes=200))
    assert caught.value.path == name
    assert world.files(".cleaned")


def test_s159_a_preallocated_log_is_trimmed_to_its_content() -> None:
    log = compacted(memory_world(), segment_bytes=10_000, preallocate=True)
    put_each(log, (b"a", b"1"), (b"a", b"2"))
    log.writer.roll()
    run_pass(log)
    cleaned = log.segments.first
    assert log.runtime.fs.stat(cleaned.log_path).size == cleaned.size_bytes < 100


@pytest.mark.parametrize("codec", tuple(Codec))
def test_s160_a_rebuilt_batch_keeps_codec_offsets_and_deltas(codec: Codec) -> None:
    log = compacted(memory_world())
    put(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"), codec=codec)
    put(log, (b"a", b"3"))
    log.writer.roll()
    run_pass(log)
    rebuilt = batches_in(log)[0]
    rebuilt.ensure_valid()
    assert rebuilt.codec is codec
    assert (rebuilt.header.base_offset, rebuilt.header.last_offset_delta) == (0, 3)
    assert [(r.offset, r.key) for r in rebuilt.records()] == [(1, b"b"), (3, b"c")]


def test_s161_an_untouched_batch_is_copied_byte_for_byte() -> None:
    log = compacted(memory_world())
    untouched = build_batch(
        [Record(0, 5, b"a", b"1"), Record(1, 3, b"b", b"2", (("h", None),))],
        codec=Codec.GZIP,
        level=1,
        partition_leader_epoch=0,
    )
    put_batches(log, untouched)
    put(log, (b"c", b"1"))
    put(log, (b"c", b"2"))
    log.writer.roll()
    run_pass(log)
    assert batches_in(log)[0].data == untouched


@pytest.mark.parametrize("timestamp_type", tuple(TimestampType))
def test_s161_max_timestamp_of_a_batch_that_lost_its_latest_record(
    timestamp_type: TimestampType,
) -> None:
    log = compacted(memory_world())
    records = [Record(0, 10, b"a", b"1"), Record(1, 30, b"b", b"1"), Record(2, 20, b"c", b"1")]
    append_time = 99 if timestamp_type is LOG_APPEND_TIME else None
    put_batches(
        log,
        build_batch(
            records,
            timestamp_type=timestamp_type,
            append_time=append_time,
            partition_leader_epoch=0,
        ),
    )
    put(log, (b"b", b"2"))
    log.writer.roll()
    run_pass(log)
    header = batches_in(log)[0].header
    assert header.record_count == 2
    assert header.timestamp_type is timestamp_type
    assert header.max_timestamp == (99 if append_time else 20)


def test_s162_a_dropped_last_record_leaves_the_next_offsets() -> None:
    log = compacted(memory_world())
    put(log, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    put(log, (b"c", b"2"))
    log.writer.roll()
    put(log, (b"d", b"1"))
    run_pass(log)
    assert batches_in(log)[0].header.next_offset == 3
    assert log.log_end_offset == 5
    assert [record.offset for _, record in log.reader.records(2)] == [3, 4]


def test_s163_the_last_batch_of_the_round_keeps_its_header() -> None:
    log = compacted(memory_world())
    for number in range(3):
        put(log, (b"a", b"1"), (b"b", b"%d" % number))
        log.writer.roll()
    rewrite(log, [b"a", b"b"], list(log.segments.view[:3]), upper_bound=6, latest=2**39)
    (empty,) = batches_in(log)
    assert (empty.header.base_offset, empty.header.last_offset) == (4, 5)
    assert (empty.header.record_count, len(empty.data)) == (0, 61)
    assert bases_of(log) == [0, 6]
    assert log.log_end_offset == 6


def test_s163_no_batch_is_kept_when_the_round_ends_in_a_gap() -> None:
    log = compacted(memory_world())
    for _ in range(2):
        put(log, (b"a", b"1"))
        log.writer.roll()
    put(log, (b"a", b"1"))
    log.writer.roll(10)
    rewrite(log, [b"a"], list(log.segments.view[:3]), upper_bound=10, latest=2**39)
    assert batches_in(log) == []
    assert [(s.base_offset, s.size_bytes) for s in log.segments] == [(0, 0), (10, 0)]


# --- abort ------------------------------------------------------------------------------------


def log_of_three_groups(world: World) -> Log:
    log = compacted(world, segment_bytes=400)
    put_each(log, *((key(number % 5), b"v" * 50) for number in range(30)))
    log.writer.roll()
    return log


SMALL_CHUNKS = map_of(1000, io_buffer_bytes=200)


def test_s165_an_abort_at_the_first_chunk_leaves_the_log_as_it_was() -> None:
    world = memory_world()
    log = log_of_three_groups(world)
    before = snapshot(world)
    steps = clean_pass(log, SMALL_CHUNKS, 0, log.active_segment.base_offset)
    next(steps)
    with pytest.raises(CleaningAbortedError):
        steps.throw(CleaningAbortedError("stop"))
    assert snapshot(world) == before


def test_s165_an_abort_at_any_step_leaves_whole_groups_and_no_cleaned_files() -> None:
    total = sum(1 for _ in clean_pass(*ready(memory_world())))
    expected = None
    for stop_after in range(1, total + 1):
        world = memory_world()
        arguments = ready(world)
        log = arguments[0]
        newest = {k: (o, v) for o, k, v in contents(log)}
        steps = clean_pass(*arguments)
        phases = [next(steps).phase for _ in range(stop_after)]
        with pytest.raises(CleaningAbortedError):
            steps.throw(CleaningAbortedError("stop"))
        assert not world.files(".cleaned", ".swap")
        assert {k: (o, v) for o, k, v in contents(log)} == newest
        if "rewrite" not in phases:
            assert offsets_in(log) == list(range(30))
        log.delete_expired_files()
        run_pass(log)
        expected = expected or contents(log)
        assert contents(log) == expected


def ready(world: World) -> tuple:
    log = log_of_three_groups(world)
    return log, SMALL_CHUNKS, 0, log.active_segment.base_offset


def three_apart(**settings) -> Log:
    """Three segments that are rewritten one by one and swapped together; then an active one."""
    log = compacted(memory_world(), segment_bytes=80, **settings)
    put_each(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"))
    assert bases_of(log) == [0, 1, 2, 3]
    return log


@pytest.mark.parametrize(
    "error", (CorruptRecordError("damage"), SegmentOverflowError("too far"), CleaningAbortedError())
)
def test_of_groups_that_are_swapped_together_none_is_if_one_fails(error: Exception) -> None:
    """No files of lower base offsets stay that would invalidate a later swap."""
    log = three_apart()
    steps = clean_pass(log, ALL_KEYS, 0, 3)
    while next(steps).phase != "rewrite":
        pass
    next(steps)
    next(steps)
    with pytest.raises(type(error)):
        steps.throw(error)
    assert bases_of(log) == [0, 1, 2, 3]
    assert offsets_in(log) == [0, 1, 2, 3]
    left = [n for n in log.runtime.fs.list_dir(log.directory) if n.endswith(".cleaned")]
    stays = isinstance(error, CorruptRecordError)
    assert {int(name[:20]) for name in left} == ({2} if stays else set())
    run_pass(log)
    assert offsets_in(log) == [1, 2, 3]


def test_a_group_that_was_deleted_meanwhile_is_not_swapped_in_with_the_others() -> None:
    log = three_apart(cleanup_policy=("compact", "delete"))
    steps = clean_pass(log, ALL_KEYS, 0, 3)
    while next(steps).phase != "rewrite":
        pass
    next(steps)
    log.delete_records(1)
    log.delete_old_segments()
    assert bases_of(log) == [1, 2, 3]
    for _ in steps:
        pass
    assert bases_of(log) == [1, 2, 3]
    assert offsets_in(log) == [1, 2, 3]
    names = log.runtime.fs.list_dir(log.directory)
    assert not [n for n in names if n.endswith((".cleaned", ".swap"))]


def test_a_reader_never_sees_a_later_group_swapped_and_an_earlier_one_not() -> None:
    log = three_apart()
    seen = []
    publish = log.segments._publish

    def publish_and_look() -> None:
        publish()
        seen.append(offsets_in(log))

    log.segments._publish = publish_and_look
    run_pass(log)
    assert seen == [[1, 2, 3]]


def test_a_pass_that_is_dropped_is_aborted() -> None:
    world = memory_world()
    steps = clean_pass(*ready(world))
    while next(steps).phase == "map":
        pass
    assert world.files(".cleaned")
    steps.close()
    assert not world.files(".cleaned")


def test_progress_counts_every_byte_once() -> None:
    log, config, start, end = ready(memory_world())
    size = closed_size(log)
    begun = list(clean_pass(log, config, start, end))
    for phase in ("map", "rewrite"):
        steps = [step for step in begun if step.phase == phase]
        done = [step.bytes_done for step in steps]
        assert done[0] == 0
        assert done == sorted(set(done))
        assert done[-1] < size
        assert {step.bytes_total for step in steps} == {size}


# --- the range --------------------------------------------------------------------------------


def test_the_clean_section_is_rewritten_for_its_expired_tombstones() -> None:
    world = memory_world()
    log = compacted(world, delete_retention_ms=1000)
    put_each(log, (b"a", b"1"), (b"a", None), (b"b", b"1"))
    log.writer.roll()
    first = run_pass(log)
    assert contents(log) == [(1, b"a", None), (2, b"b", b"1")]
    world.clock.advance(ms=999)
    run_pass(log, first.end_offset)
    assert offsets_in(log) == [1, 2]
    world.clock.advance(ms=1)
    stats = run_pass(log, first.end_offset)
    assert offsets_in(log) == [2]
    assert stats.fates["tombstone_expired"] == 1
    assert (stats.first_dirty_offset, stats.end_offset) == (3, 3)
    assert (stats.map_entries, stats.map_bytes_read) == (0, 0)


def test_a_segment_at_the_upper_bound_is_never_rewritten_even_below_the_first_dirty_offset() -> (
    None
):
    """As after an unclean leader election: the checkpoint is inside the active segment."""
    world = memory_world()
    log = compacted(world)
    put_each(log, (b"a", b"1"), (b"a", b"2"))
    log.writer.roll()
    put_each(log, (b"b", b"1"), (b"b", b"2"), (b"b", b"3"))
    active = log.active_segment
    before = files_of(log, active)
    stats = run_pass(log, 4, 2)
    assert stats.end_offset == 4
    assert log.active_segment is active
    assert files_of(log, active) == before
    assert stats.segments_before == 1
    assert offsets_in(log) == [0, 1, 2, 3, 4]


def test_records_beyond_the_map_stay_whatever_they_are() -> None:
    log = compacted(memory_world())
    put(log, (b"a", b"1"), (b"b", b"1"), (b"c", None), (b"a", b"2"), (b"c", b"1"))
    log.writer.roll()
    stats = run_pass(log, config=map_of(3, 0.75))
    assert stats.end_offset == 2
    assert offsets_in(log) == [0, 1, 2, 3, 4]
    assert stats.fates["retained"] == 5


def test_delete_retention_near_the_end_of_time_saturates() -> None:
    """Kafka's sum overflows and the batch is rewritten in every pass (cleaner §15.4)."""
    log = compacted(memory_world(), delete_retention_ms=2**63 - 1)
    put_each(log, (b"a", None), (b"b", b"1"))
    log.writer.roll()
    run_pass(log)
    assert batches_in(log)[0].header.delete_horizon_ms == 2**63 - 1
    before = files_of(log, log.segments.first)
    run_pass(log)
    assert files_of(log, log.segments.first) == before


def test_a_decompressed_chunk_does_not_grow_without_bounds() -> None:
    """Sixty batches of a MiB of zeros each are a few KB on disk."""
    log = compacted(memory_world(), max_message_bytes=2 * MIB)
    for number in range(60):
        put(log, (key(number % 2), bytes(MIB)), codec=Codec.GZIP)
    log.writer.roll()
    reader = ChunkReader(1 << 20)
    chunks = [(chunk.rows, len(chunk.data)) for chunk in reader.chunks(log.segments.first, 60)]
    assert sum(rows for rows, _ in chunks) == 60
    assert len(chunks) > 1
    assert max(size for _, size in chunks) < 19 * MIB
    assert run_pass(log).messages_written == 2


def test_a_negative_timestamp_in_a_compressed_batch_is_rebuilt() -> None:
    log = compacted(memory_world())
    horizon = build_batch(
        [Record(0, -5, b"a", b"1"), Record(1, -7, b"b", b"1")],
        codec=Codec.ZSTD,
        delete_horizon_ms=0,
        partition_leader_epoch=0,
    )
    header = RecordBatch(horizon).header._replace(attributes=Codec.ZSTD, base_timestamp=0)
    whole = header.pack() + horizon[61:]
    header = header._replace(crc=RecordBatch(whole).computed_crc())
    put_batches(log, header.pack() + horizon[61:])
    put(log, (b"b", b"2"))
    log.writer.roll()
    run_pass(log)
    (kept,) = batches_in(log)[0].records()
    assert (kept.key, kept.timestamp) == (b"a", -5)
    assert batches_in(log)[0].is_valid()


# --- interference -----------------------------------------------------------------------------


def test_lookups_in_a_cleaned_and_indexed_segment() -> None:
    log = compacted(memory_world(), index_interval_bytes=100)
    for number in range(200):
        put(log, (key(number % 60), b"v" * 30, T + number), (key(number), b"w", T + number))
    log.writer.roll()
    run_pass(log)
    segment = log.segments.first
    assert segment.offset_index.entries > 3
    for offset in range(400):
        expected = next((o for o in offsets_in(log) if o >= offset), None)
        found = next((r.offset for _, r in log.reader.records(offset)), None)
        assert found == expected
    assert bytes_at(log, segment.offset_index.path) == b"".join(
        entry.offset.to_bytes(4, "big") + entry.position.to_bytes(4, "big")
        for entry in segment.offset_index
    )


def test_stats_as_json_have_the_contracts_names() -> None:
    log = compacted(memory_world())
    put_each(log, (b"a", b"1"), (b"a", b"2"))
    log.writer.roll()
    stats = drive(clean_pass(log, ALL_KEYS, 0, 2, pass_number=3))
    found = stats.to_json()
    assert list(found) == [
        *("topic", "partition", "pass", "strategy", "first_dirty_offset", "end_offset"),
        *("segments_before", "segments_after", "bytes_read", "bytes_written", "messages_read"),
        *("messages_written", "map_entries", "map_utilization", "fates", "index_ms", "clean_ms"),
        *("map_bytes_read", "map_messages_read", "seed_bytes_read", "seed_messages_read"),
        *("unversioned_records", "malformed_versions"),
    ]
    assert found["pass"] == 3
    assert (found["map_bytes_read"], found["map_messages_read"]) == (found["bytes_read"], 2)
    assert not any(found[name] for name in found if name.startswith(("seed", "unv", "malf")))
    assert found["fates"] == {
        "retained": 1,
        "superseded": 1,
        "tombstone_expired": 0,
        "aborted": 0,
        "control_expired": 0,
        "null_key": 0,
    }


def test_passes_of_a_map_of_one_key() -> None:
    log = compacted(memory_world())
    put_each(log, *((key(number % 3), b"%d" % number) for number in range(9)))
    log.writer.roll()
    passes = run_passes(log, map_of(2, 0.9))
    assert len(passes) == 9
    assert contents(log) == [(6, b"0", b"6"), (7, b"1", b"7"), (8, b"2", b"8")]


def test_the_passes_left_are_counted_although_another_thread_truncates_the_log() -> None:
    """A count reads without a lock: the rest of its range may be gone."""
    log = compacted(memory_world())
    put_each(log, *((key(number % 3), b"%d" % number) for number in range(9)))
    config = map_of(2, 0.9)
    assert passes_after(log, config, 0, 1, 9) == 8
    log.truncate_to(4)
    assert passes_after(log, config, 0, 1, 9) == 4
    assert passes_after(log, config, 0, 4, 9) == 1


@pytest.mark.parametrize("offset", (29, 31))
def test_records_read_before_a_truncation_are_never_swapped_in(offset: int) -> None:
    """KAFKA-631's generation check, for a truncation that does not stop the cleaner."""
    world = memory_world()
    log, config, first_dirty, upper_bound = ready(world)
    put_each(log, *((b"later", b"v") for _ in range(3)))
    log.reader.open_files(upper_bound)
    steps = clean_pass(log, config, first_dirty, upper_bound)
    while next(steps).phase == "map":
        pass
    log.truncate_to(offset)
    put_each(log, (b"instead", b"v"))
    before = contents(log)
    with pytest.raises(
        CleaningAbortedError, match=exactly("t-0 was truncated during its cleaning")
    ):
        drive(steps)
    assert contents(log) == before
    assert not world.files(".cleaned", ".swap")


def test_a_pass_that_fails_leaves_no_file_of_its_output_open(monkeypatch) -> None:
    """The files themselves stay, for the next start to remove."""
    clock = VirtualClock()
    fs = CountingFileSystem(clock)
    fs.make_dirs("/data/t-0")
    world = World(Runtime(clock, fs), "/data/t-0", clock)
    log, config, first_dirty, upper_bound = ready(world)
    failures = []

    def fail(*_: object) -> None:
        failures.append([each for each in fs.open_handles() if ".cleaned" in each.path])
        raise OSError(5, "no disk")

    monkeypatch.setattr(Rewriter, "_filter", fail)
    with pytest.raises(OSError, match="no disk"):
        drive(clean_pass(log, config, first_dirty, upper_bound))
    assert failures[0], "it was open"
    assert not [each for each in fs.open_handles() if ".cleaned" in each.path]
    assert world.files(".cleaned")


def test_the_last_append_below_an_offset_matches_the_last_segment_wholly_below() -> None:
    """It decides when tombstones expire; a segment that ends exactly there is below."""
    log = log_of_three_groups(memory_world())
    first, second, third, *_ = log.segments
    for at, segment in enumerate(log.segments):
        segment.set_last_modified_ms(1000 * (at + 1))
    assert _last_modified_ms(log, third.base_offset) == 2000
    assert _last_modified_ms(log, third.base_offset - 1) == 1000
    assert _last_modified_ms(log, second.base_offset) == 1000
    assert _last_modified_ms(log, second.base_offset - 1) == INT64_MIN
    assert first.last_modified_ms == 1000
