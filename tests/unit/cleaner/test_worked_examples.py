"""The worked examples of cleaner §14, in the bytes of the reference."""

from __future__ import annotations

from logstore.record.batch import build_batch
from logstore.record.records import Record
from logstore.storage.log import Log
from tests.support.world import golden
from tests.support.world.builders import World, bases_of, memory_world
from tests.support.world.cleaning import (
    batches_in,
    bytes_at,
    compacted,
    ends_in,
    files_of,
    offsets_in,
    put,
    run_pass,
    txn_entries,
)

T = golden.E_TIMESTAMP


def e1_log() -> tuple[World, Log]:
    world = memory_world()
    log = compacted(world, delete_retention_ms=1000, index_interval_bytes=1)
    put(log, (b"a", b"0", T), (b"b", b"0", T + 1))
    put(log, (b"a", None, T + 2), (b"b", b"1", T + 3))
    put(log, (b"c", b"1", T + 4))
    log.writer.roll()
    return world, log


def test_e1_a_tombstone_in_two_passes() -> None:
    """`.index` as in Kafka since 3.9.1, with an entry per batch: see `clean-dense-index`."""
    world, log = e1_log()
    assert files_of(log, log.segments.first) == golden.E1_INPUT[:3]
    world.clock.set_ms(T + 10)
    run_pass(log)
    data, index, time_index = files_of(log, log.segments.first)
    assert (data, time_index) == (golden.E1_PASS_1.log, golden.E1_PASS_1.timeindex)
    assert index == bytes.fromhex("0000000400000050")
    world.clock.set_ms(T + 1010)
    run_pass(log)
    data, index, time_index = files_of(log, log.segments.first)
    assert (data, time_index) == (golden.E1_PASS_2.log, golden.E1_PASS_2.timeindex)
    assert index == bytes.fromhex("0000000400000047")
    world.clock.set_ms(T + 10_000)
    before = files_of(log, log.segments.first)
    run_pass(log)
    assert files_of(log, log.segments.first) == before


def test_e2_an_aborted_transaction_in_five_passes() -> None:
    """Indexes have an entry per batch, as in E1, so the time index does not change."""
    world = memory_world()
    log = compacted(world, delete_retention_ms=1000, index_interval_bytes=1)

    def send(*records: Record) -> None:
        log.writer.append_batches(
            build_batch(
                records,
                producer_id=4000,
                producer_epoch=7,
                base_sequence=0 if log.log_end_offset == 0 else 2,
                is_transactional=True,
            )
        )

    def end_at(moment: int, *, commit: bool) -> None:
        world.clock.set_ms(moment)
        log.writer.append_end_txn_marker(4000, 7, 9, commit=commit)

    def clean_at(moment: int) -> None:
        world.clock.set_ms(moment)
        run_pass(log)

    def first_files() -> golden.SegmentFiles:
        segment = log.segments.first
        return golden.SegmentFiles(*files_of(log, segment), bytes_at(log, segment.txn_index.path))

    send(Record(0, T, b"a", b"0"), Record(1, T + 1, b"b", b"0"))
    end_at(T + 2, commit=False)
    put(log, (b"c", b"1", T + 3))
    log.writer.roll()
    assert first_files() == golden.E2_INPUT
    for moment in (T + 10, T + 20):
        clean_at(moment)
        data, _, time_index, txn_index = first_files()
        assert data == golden.E2_PASS_1.log
        assert (time_index, txn_index) == golden.E2_INPUT[2:]

    world.clock.set_ms(T + 30)
    send(Record(0, T + 30, b"z", b"1"))
    end_at(T + 31, commit=True)
    log.writer.roll()
    clean_at(T + 40)
    assert ends_in(log) == [2, 3, 4, 5]
    assert not batches_in(log)[0].header.has_delete_horizon
    assert txn_entries(log) == [(4000, 0, 2, 3)]

    clean_at(T + 50)
    marker = batches_in(log)[0]
    assert (marker.header.delete_horizon_ms, len(marker.data)) == (T + 1050, 79)
    assert txn_entries(log) == []
    clean_at(T + 1050)
    assert ends_in(log) == [3, 4, 5]


def test_e3_segments_and_stats() -> None:
    world = memory_world()
    log = compacted(world, segment_bytes=300)
    for number in range(12):
        put(log, (b"k%d" % (number % 6), b"v%d" % number))
        world.clock.advance(seconds=1)
    log.writer.roll()
    assert bases_of(log) == [0, 4, 8, 12]
    modified = {s.base_offset: s.last_modified_ms for s in log.segments}
    stats = run_pass(log)
    assert (stats.messages_read, stats.bytes_read) == (12, 866)
    assert (stats.messages_written, stats.bytes_written) == (6, 434)
    assert (stats.map_messages_read, stats.map_bytes_read) == (12, 866)
    assert (stats.segments_before, stats.segments_after) == (3, 3)
    assert [(s.base_offset, s.size_bytes) for s in log.segments] == [
        (0, 0),
        (4, 144),
        (8, 290),
        (12, 0),
    ]
    assert offsets_in(log) == [6, 7, 8, 9, 10, 11]
    world.clock.advance(days=1)
    stats = run_pass(log, 12, 12)
    assert (stats.segments_before, stats.segments_after) == (3, 2)
    assert [(s.base_offset, s.size_bytes) for s in log.segments] == [(0, 144), (8, 290), (12, 0)]
    assert log.segments.first.last_modified_ms == modified[4]
    assert offsets_in(log) == [6, 7, 8, 9, 10, 11]
