"""Cleaning logs of producers and transactions: S-164, S-174, S-176 and group P of the scenarios."""

from __future__ import annotations

import pytest

from logstore.cleaner.passes import clean as clean_module
from logstore.cleaner.selection import cleanable_state
from logstore.record.codecs import Codec
from logstore.record.control import ControlType, encode_control_key
from logstore.storage.index import TransactionIndex
from logstore.storage.log import Log
from logstore.types import TimestampType
from tests.support.world.builders import World, bases_of
from tests.support.world.cleaning import (
    RETENTION_MS,
    Producer,
    aborted_list,
    batch_bases_in,
    batches_in,
    committed,
    compacted,
    ends_in,
    keys_in,
    map_of,
    offsets_in,
    opened,
    put,
    put_each,
    run_pass,
    run_passes,
    snapshot,
    txn_entries,
)


def producers_of(log: Log, count: int) -> list[Producer]:
    """Return producers with the ids 1, 2, ..."""
    return [Producer(log, number + 1) for number in range(count)]


def reopened(world: World, log: Log, *, clean: bool = True, **config: object) -> Log:
    log.close()
    config.setdefault("delete_retention_ms", RETENTION_MS)
    return compacted(world, clean=clean, **config)


def last_sequences(log: Log, *producer_ids: int) -> list[int]:
    return [log.producer_state.entry(each).last_sequence for each in producer_ids]


def roll_and_clean(log: Log, first_dirty: int = 0) -> int:
    """Roll and clean the whole log; return the next first dirty offset."""
    log.writer.roll()
    return run_pass(log, first_dirty).end_offset


# --- producers --------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", (True, False))
def test_s164_the_last_batch_of_each_producer_keeps_its_header(clean: bool) -> None:
    world, log = opened()
    one, two, three = producers_of(log, 3)
    one.send(1, 2, 3, transactional=False)
    two.send(3, 1, 4, transactional=False)
    three.send(1, 4, transactional=False)
    end = roll_and_clean(log)
    assert ends_in(log) == [2, 5, 7]
    assert offsets_in(log) == [1, 3, 6, 7]
    assert last_sequences(log, 1, 2, 3) == [2, 2, 1]

    log = reopened(world, log, clean=clean)
    assert last_sequences(log, 1, 2, 3) == [2, 2, 1]
    for producer, offsets in ((one, (0, 2)), (three, (6, 7)), (two, (3, 5))):
        again = log.writer.append_batches(producer.sent[0])
        assert (again.is_duplicate, again.first_offset, again.last_offset) == (True, *offsets)
    assert log.log_end_offset == 8

    Producer(log, 4).send(2, transactional=False)
    roll_and_clean(log, end)
    assert ends_in(log) == [2, 5, 7, 8]
    assert offsets_in(log) == [3, 6, 7, 8]
    assert batches_in(log)[0].header.record_count == 0
    for _ in range(2):
        again = log.writer.append_batches(one.sent[0])
        assert (again.is_duplicate, again.first_offset, again.last_offset) == (True, 0, 2)
        log = reopened(world, log, clean=clean)


@pytest.mark.parametrize("clean", (True, False))
def test_s176_an_expired_tombstone_in_a_producers_last_batch_leaves_its_header(
    clean: bool,
) -> None:
    world, log = opened()
    (one,) = producers_of(log, 1)
    one.send((b"1", b"v"), transactional=False)
    one.send((b"1", None), transactional=False)
    end = roll_and_clean(log)
    assert (ends_in(log), offsets_in(log)) == ([1], [1])
    world.clock.advance(ms=RETENTION_MS - 1)
    run_pass(log, end)
    assert offsets_in(log) == [1]
    world.clock.advance(ms=1)
    stats = run_pass(log, end)
    assert stats.fates["tombstone_expired"] == 1
    assert (ends_in(log), offsets_in(log)) == ([1], [])
    (empty,) = batches_in(log)
    assert (len(empty.data), empty.header.last_sequence) == (61, 1)
    run_pass(log, end)
    assert ends_in(log) == [1]
    log = one.log = reopened(world, log, clean=clean)
    assert last_sequences(log, 1) == [1]
    one.send(2, transactional=False)
    roll_and_clean(log, end)
    assert (ends_in(log), offsets_in(log)) == ([2], [2])


# --- a tombstone in a compressed batch --------------------------------------------------------


def test_s174_a_horizon_in_a_compressed_batch_of_append_times() -> None:
    world, log = opened(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    appended_ms = world.clock.now_ms()
    pairs = ((b"a", b"x" * 100, 5), (b"b", None, 7), (b"c", b"y" * 100, 6))
    put(log, *pairs, codec=Codec.ZSTD)
    before = batches_in(log)[0].header
    log.writer.roll()
    world.clock.advance(ms=77)
    run_pass(log)
    (batch,) = batches_in(log)
    header = batch.header
    batch.ensure_valid()
    assert batch.codec is Codec.ZSTD
    assert header.delete_horizon_ms == appended_ms + 77 + RETENTION_MS
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.max_timestamp == before.max_timestamp == appended_ms
    assert [(r.offset, r.key, r.timestamp) for r in batch.records()] == [
        (0, b"a", appended_ms),
        (1, b"b", appended_ms),
        (2, b"c", appended_ms),
    ]
    assert [record.timestamp for _, record in log.reader.records(0)] == [appended_ms] * 3
    world.clock.advance(ms=RETENTION_MS)
    run_pass(log, 3)
    (batch,) = batches_in(log)
    assert batch.header.delete_horizon_ms == header.delete_horizon_ms
    assert batch.header.max_timestamp == appended_ms
    assert [(r.offset, r.timestamp) for r in batch.records()] == [
        (0, appended_ms),
        (2, appended_ms),
    ]


# --- transactions -----------------------------------------------------------------------------


def test_s177_aborted_data_is_removed_and_reads_do_not_change() -> None:
    _, log = opened()
    one, two = producers_of(log, 2)
    one.send(1, 2)
    two.send(2, 3)
    one.send(3, 4)
    assert one.abort().first_offset == 6
    assert two.commit().first_offset == 7
    one.send(2)
    assert one.commit().first_offset == 9
    before = aborted_list(log)
    assert before == [(1, 0)]
    assert log.reader.read(0, 1 << 20).aborted == ()
    visible = committed(log)
    roll_and_clean(log)
    assert keys_in(log) == [3, 2]
    assert offsets_in(log) == [3, 6, 7, 8, 9]
    assert aborted_list(log) == before
    assert txn_entries(log) == [(1, 0, 6, 2)]
    assert committed(log) == [item for item in visible if item[0] in (3, 8)]
    assert log.last_stable_offset == log.log_end_offset == 10


def test_s178_aborted_data_is_removed_if_its_marker_is_in_the_active_segment() -> None:
    _, log = opened()
    one, two, three = producers_of(log, 3)
    one.send(1, 2)
    three.send(2, 3)
    two.send(3, 4)
    log.writer.roll()
    two.send(5, 6)
    three.send(6, 7)
    one.send(7, 8)
    two.abort()
    three.send(8, 9)
    three.commit()
    one.send(9, 10)
    one.abort()
    end = run_pass(log).end_offset
    assert end == 6
    assert keys_in(log) == [2, 3, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10]
    assert sorted(int(key) for _, key, _ in committed(log)) == [2, 3, 6, 7, 8, 9]
    log.writer.roll()
    two.send(11)
    one.send(12)
    end = run_pass(log, end).end_offset
    assert keys_in(log) == [2, 3, 6, 7, 8, 9, 11, 12]
    assert end == log.active_segment.base_offset
    assert txn_entries(log) == [(2, 4, 12, 0), (1, 0, 18, 19)]


def test_s179_a_commit_marker_is_removed_delete_retention_ms_after_its_data() -> None:
    world, log = opened()
    (one,) = producers_of(log, 1)
    one.send(1)
    one.send(2, 3)
    one.commit()
    one.send(2)
    one.commit()
    end = roll_and_clean(log)
    assert offsets_in(log) == [0, 2, 3, 4, 5]
    one.send(1, 3)
    one.commit()
    end = roll_and_clean(log, end)
    assert keys_in(log) == [2, 1, 3]
    assert offsets_in(log) == [3, 4, 5, 6, 7, 8]
    marker = batches_in(log)[0].header
    assert (marker.is_control, marker.delete_horizon_ms) == (True, None)
    run_pass(log, end)
    assert offsets_in(log) == [3, 4, 5, 6, 7, 8]
    horizons = [batch.header.delete_horizon_ms for batch in batches_in(log)]
    assert horizons == [world.clock.now_ms() + RETENTION_MS, *[None] * 4]
    world.clock.advance(ms=RETENTION_MS - 1)
    run_pass(log, end)
    assert offsets_in(log) == [3, 4, 5, 6, 7, 8]
    world.clock.advance(ms=1)
    stats = run_pass(log, end)
    assert offsets_in(log) == [4, 5, 6, 7, 8]
    assert stats.fates["control_expired"] == 1


def test_s180_chunks_of_which_nothing_is_left_do_not_stall_the_pass() -> None:
    world, log = opened(max_message_bytes=100)
    (one,) = producers_of(log, 1)
    one.send(1)
    one.abort()
    one.send(2)
    one.send(2)
    one.commit()
    log.writer.roll()
    tiny = map_of(100, io_buffer_bytes=100)
    end = run_pass(log, config=tiny).end_offset
    assert offsets_in(log) == [1, 3, 4]
    run_pass(log, end, config=tiny)
    world.clock.advance(ms=RETENTION_MS)
    run_pass(log, end, config=tiny)
    assert offsets_in(log) == [3, 4]


@pytest.mark.parametrize("clean", (True, False))
def test_s181_a_marker_without_data_leaves_an_empty_control_batch(clean: bool) -> None:
    world, log = opened()
    Producer(log, 1).commit()
    put_each(log, (b"2", b"v"), (b"3", b"v"))
    end = roll_and_clean(log)
    assert offsets_in(log) == [0, 1, 2]
    for _ in range(3):
        world.clock.advance(ms=RETENTION_MS)
        run_pass(log, end)
        assert ends_in(log) == [0, 1, 2]
        assert offsets_in(log) == [1, 2]
        (empty, *_) = batches_in(log)
        assert (empty.header.is_control, len(empty.data)) == (True, 61)
    stats = run_pass(log)
    assert stats.map_messages_read == 3, "Kafka counts an empty control batch as one"
    assert stats.fates["control_expired"] == 0
    log = reopened(world, log, clean=clean)
    assert offsets_in(log) == [1, 2]
    assert (log.last_stable_offset, [key for _, key, _ in committed(log)]) == (3, [b"2", b"3"])
    # A snapshot still has the producer; an empty control batch adds no information.
    known = log.producer_state.entry(1)
    assert (known is not None) is clean
    run_pass(log)
    assert ends_in(log) == ([0, 1, 2] if clean else [1, 2])


def test_s182_an_abort_in_another_segment_stays_as_long_as_the_emptied_data_batch() -> None:
    world, log = opened()
    (one,) = producers_of(log, 1)
    one.send(1)
    log.writer.roll()
    one.abort()
    end = roll_and_clean(log)
    for _ in range(4):
        assert ends_in(log) == [0, 1]
        assert offsets_in(log) == [1]
        assert batches_in(log)[1].header.delete_horizon_ms is None
        assert txn_entries(log) == [(1, 0, 1, 2)]
        world.clock.advance(ms=2 * RETENTION_MS)
        run_pass(log, end)


def test_s183_the_transaction_index_loses_an_entry_with_the_last_of_its_data() -> None:
    world, log = opened()
    (one,) = producers_of(log, 1)
    one.send(1, 2)
    one.abort()
    end = roll_and_clean(log)
    for _ in range(3):
        assert offsets_in(log) == [2]
        assert ends_in(log) == [1, 2]
        assert txn_entries(log) == [(1, 0, 2, 3)]
        world.clock.advance(ms=2 * RETENTION_MS)
        run_pass(log, end)
    one.send(3)
    end = roll_and_clean(log, end)
    assert ends_in(log) == [2, 3]
    assert txn_entries(log) == [(1, 0, 2, 3)]
    run_pass(log, end)
    assert ends_in(log) == [2, 3]
    assert txn_entries(log) == []
    assert not log.segments.first.txn_index.exists_on_disk
    world.clock.advance(ms=RETENTION_MS)
    run_pass(log, end)
    assert (ends_in(log), txn_entries(log)) == ([3], [])


def test_aborts_are_written_with_the_batches_that_they_are_of(monkeypatch) -> None:
    """Together, even from several chunks; each segment gets the entries of its batches."""
    _, log = opened()
    written = []
    extend = TransactionIndex.extend
    for numbers in ((1, 2, 3), (4, 5)):
        for number in numbers:
            one = Producer(log, number)
            one.send(number)
            one.abort()
        log.writer.roll()

    def noted(index: TransactionIndex, txns: list) -> None:
        written.append([txn.producer_id for txn in txns])
        extend(index, txns)

    monkeypatch.setattr(TransactionIndex, "extend", noted)
    monkeypatch.setattr(clean_module, "group_segments", lambda each, *_: [[one] for one in each])
    run_pass(log, config=map_of(100, io_buffer_bytes=200))
    assert [each for each in written if each] == [[1, 2, 3], [4, 5]]
    firsts = [segment.txn_index.entries() for segment in log.segments.view[:2]]
    assert [[txn.producer_id for txn in each] for each in firsts] == [[1, 2, 3], [4, 5]]


@pytest.mark.parametrize("clean", (True, False))
def test_s184_sequences_continue_behind_an_aborted_transaction(clean: bool) -> None:
    world, log = opened()
    (one,) = producers_of(log, 1)
    one.send(1)
    one.send(2, 3)
    one.abort()
    end = roll_and_clean(log)
    assert ends_in(log) == [2, 3]
    assert last_sequences(log, 1) == [2]
    assert keys_in(log) == []
    log = one.log = reopened(world, log, clean=clean)
    assert last_sequences(log, 1) == [2]
    assert one.send(1, 5).first_offset == 4
    log.writer.roll()
    run_pass(log, end)
    assert ends_in(log) == [3, 5]
    assert offsets_in(log) == [3, 4, 5]
    assert last_sequences(log, 1) == [4]
    log = reopened(world, log, clean=clean)
    assert last_sequences(log, 1) == [4]
    assert log.last_stable_offset == 4


def test_s185_a_record_whose_key_is_that_of_a_marker() -> None:
    world, log = opened()
    (one,) = producers_of(log, 1)
    key = encode_control_key(ControlType.COMMIT)
    one.send((key, b"data"))
    one.commit()
    log.writer.roll()
    one.send(1)
    one.commit()
    log.writer.roll()
    for _ in range(3):
        stats = run_pass(log)
        assert stats.map_entries == 2
        assert offsets_in(log) == [0, 1, 2, 3]
        assert committed(log) == [(0, key, b"data"), (2, b"1", b"v")]
        assert [b.header.delete_horizon_ms for b in batches_in(log)] == [None] * 4
        world.clock.advance(ms=2 * RETENTION_MS)


def test_s186_transactions_in_passes_of_a_small_map() -> None:
    world, log = opened(delete_retention_ms=50_000)
    one, two = producers_of(log, 2)
    one.send(1, 2)
    two.send(2, 3)
    one.send(3, 4)
    one.commit()
    two.commit()
    one.send(2, 3)
    one.abort()
    two.send(4, 5)
    one.send(5, 6)
    one.commit()
    two.abort()
    two.send(6, 7)
    two.commit()
    log.writer.roll()
    assert log.log_end_offset == 20
    small = map_of(4, 0.75)

    assert run_pass(log, 0, config=small).end_offset == 4
    bases = [0, 2, 4, 6, 7, 10, 13, 15, 16, 17, 19]
    assert batch_bases_in(log) == bases
    assert offsets_in(log) == [0, 2, 3, 4, 5, 6, 7, 10, *range(13, 20)]
    assert txn_entries(log) == [(1, 8, 10, 11), (2, 11, 16, 17)]

    assert run_pass(log, 4, config=small).end_offset == 14
    assert batch_bases_in(log) == bases
    assert offsets_in(log) == [0, 2, 4, 5, 6, 7, 10, *range(13, 20)]
    assert txn_entries(log) == []

    world.clock.advance(ms=50_000)
    assert run_pass(log, 14, config=small).end_offset == 20
    assert batch_bases_in(log) == [base for base in bases if base not in (10, 16)]
    assert offsets_in(log) == [0, 2, 4, 5, 6, 7, 13, 15, 17, 18, 19]


def test_s187_nothing_is_touched_from_the_segment_of_an_undecided_transaction_on() -> None:
    world, log = opened()
    (one,) = producers_of(log, 1)
    put_each(log, (b"1", b"a"), (b"1", b"b"))
    log.writer.roll()
    put_each(log, (b"1", b"c"))
    one.send(2)
    put_each(log, (b"1", b"d"))
    log.writer.roll()
    put_each(log, (b"1", b"e"), (b"1", b"f"))
    log.writer.roll()
    assert bases_of(log) == [0, 2, 5, 7]
    before = snapshot(world)
    state = cleanable_state(log, None, world.clock.now_ms())
    assert state.first_uncleanable_offset == log.last_stable_offset == 3
    assert state.uncleanable_gate == "last_stable_offset"
    assert state.upper_bound_offset == 2
    world.clock.advance(hours=1)
    stats = run_pass(log, 0, state.upper_bound_offset)
    assert stats.end_offset == 2
    assert offsets_in(log) == [1, 2, 3, 4, 5, 6]
    untouched = {name: each for name, each in before.items() if not name.startswith("0" * 20)}
    after = snapshot(world)
    assert {name: after[name] for name in untouched} == untouched
    one.commit()
    log.writer.roll()
    state = cleanable_state(log, 2, world.clock.now_ms())
    assert state.upper_bound_offset == log.active_segment.base_offset == 8
    run_passes(log, map_of(100), 2)
    assert offsets_in(log) == [3, 6, 7]


def test_s188_an_aborted_value_supersedes_nothing() -> None:
    _, log = opened()
    one, two = producers_of(log, 2)
    one.send((b"k", b"committed"))
    one.commit()
    log.writer.roll()
    two.send((b"k", b"aborted"), (b"only", b"aborted"))
    two.abort()
    log.writer.roll()
    stats = run_pass(log)
    assert stats.map_entries == 1
    assert stats.fates["aborted"] == 2
    assert committed(log) == [(0, b"k", b"committed")]
    assert offsets_in(log) == [0, 1, 4]
