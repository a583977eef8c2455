"""A walk over transactions: aborted batches, unneeded markers, last batches of producers."""

from __future__ import annotations

import numpy as np
import pytest

from logstore.cleaner.kernels.table import (
    COL_DISCARD,
    COL_VERDICT,
    DISCARD_ABORTED,
    DISCARD_EXPIRING,
    DISCARD_NONE,
    DISCARD_NONE_MAPPED,
    TABLE_COLUMNS,
    Scan,
    read_control_types,
    scan_batches,
)
from logstore.cleaner.passes import transactions
from logstore.cleaner.passes.chunks import Chunk, ChunkReader
from logstore.cleaner.passes.clean import clean_pass
from logstore.cleaner.passes.transactions import (
    AbortedTransactions,
    LastBatches,
    TransactionState,
)
from logstore.errors import CorruptRecordError
from logstore.record.batch import RecordBatch, build_batch
from logstore.record.codecs import Codec
from logstore.record.kernels import OK
from logstore.record.records import Record
from logstore.storage.producers.entry import LastRecord
from logstore.types import INT64_MAX, AbortedTxn
from tests.support.oracles.cleaner_oracle import empty_batch
from tests.support.world.builders import abort, batch, commit, data_batch, memory_world
from tests.support.world.cleaning import (
    ALL_KEYS,
    Producer,
    batch_bases_in,
    compacted,
    drive,
    keys_in,
    map_of,
    offsets_in,
    put,
    put_batches,
    run_pass,
    run_passes,
)
from tests.support.world.kernel_calls import array

NONE, MAPPED, ABORTED, EXPIRING = (
    DISCARD_NONE,
    DISCARD_NONE_MAPPED,
    DISCARD_ABORTED,
    DISCARD_EXPIRING,
)


def chunk_of(*batches: bytes) -> Chunk:
    """Return a chunk as its reader yields it."""
    data = b"".join(batches)
    table = np.empty((len(batches), TABLE_COLUMNS), np.int64)
    found = Scan(*scan_batches(array(data), len(data), True, 0, INT64_MAX, table))
    status, _ = read_control_types(array(data), table)
    assert status == OK
    return Chunk(None, 0, len(data), array(data), table, found)


def judged(state: TransactionState, *batches: bytes) -> list[int]:
    chunk = chunk_of(*batches)
    state.mark_discardable(chunk)
    return chunk.table[:, COL_DISCARD].tolist()


def emptied(data: bytes) -> bytes:
    return empty_batch(RecordBatch(data).header)


def aborted(producer_id: int, first: int, last: int) -> AbortedTxn:
    return AbortedTxn(producer_id, first, last, last + 1)


# --- judge ------------------------------------------------------------------------------------


def test_an_aborted_transaction_ends_with_its_marker() -> None:
    state = TransactionState()
    state.add_aborted([aborted(1, 0, 4)])
    found = judged(
        state,
        data_batch(0, 1, 1),
        data_batch(2, 2, 2),
        data_batch(3, 3, 1, sequence=2),
        abort(4, 1),
        data_batch(5, 5, 1, sequence=3),
    )
    assert found == [ABORTED, NONE, ABORTED, NONE, NONE]
    assert state.kept_aborts == [aborted(1, 0, 4)]


def test_a_batch_counts_from_its_last_offset_on() -> None:
    """Compaction may have removed the first records; an index may have duplicate entries."""
    state = TransactionState()
    state.add_aborted([aborted(1, 3, 6)])
    assert judged(state, data_batch(0, 1, 1), data_batch(2, 3, 1)) == [NONE, ABORTED]


def test_an_aborted_transaction_that_begins_inside_a_run_takes_the_rest_of_it() -> None:
    """The batches before it are committed, with their marker; both kinds end in one chunk."""
    state = TransactionState()
    state.add_aborted([aborted(2, 0, 9), aborted(1, 5, 9)])
    run = [data_batch(2 * at, 2 * at + 1, 1, sequence=2 * at) for at in range(4)]
    found = judged(state, *run, abort(9, 1), commit(10, 1), commit(11, 1))
    assert found == [NONE, NONE, ABORTED, ABORTED, NONE, NONE, EXPIRING]
    assert state.discarded == {5, 7}
    assert state.kept_aborts == [aborted(1, 5, 9)]


def test_runs_of_a_producer_are_aborted_whole_and_noted_batch_by_batch() -> None:
    state = TransactionState()
    state.add_aborted([aborted(1, 0, 9)])
    data = (data_batch(0, 1, 1), data_batch(2, 3, 1, sequence=2), batch(4), data_batch(5, 5, 2))
    again = (data_batch(6, 6, 2, sequence=1), data_batch(7, 7, 1, sequence=4), abort(9, 1))
    assert judged(state, *data, *again) == [*(ABORTED, ABORTED, NONE, NONE, NONE, ABORTED, NONE)]
    assert state.discarded == {1, 3, 7}


def test_data_outside_transactions_are_ignored() -> None:
    state = TransactionState()
    state.add_aborted([aborted(1, 0, 2)])
    plain = batch(0, producer_id=1, producer_epoch=0, base_sequence=0)
    assert judged(state, plain, batch(1), abort(2, 1)) == [NONE, NONE, EXPIRING]
    assert state.kept_aborts == []


def test_markers_without_data_before_them_expire() -> None:
    state = TransactionState()
    state.add_aborted([aborted(1, 0, 5)])
    assert judged(state, abort(5, 1), commit(6, 2), abort(7, 3)) == [EXPIRING] * 3


def test_an_emptied_data_batch_keeps_its_marker() -> None:
    state = TransactionState()
    state.add_aborted([aborted(1, 0, 2)])
    data = (emptied(data_batch(0, 1, 1)), abort(2, 1), emptied(data_batch(3, 3, 2)), commit(4, 2))
    assert judged(state, *data) == [ABORTED, NONE, NONE, NONE]


def test_a_second_marker_of_the_same_kind_finds_no_data() -> None:
    state = TransactionState()
    state.add_aborted([aborted(1, 0, 1)])
    data = (data_batch(0, 0, 1), abort(1, 1), abort(2, 1), data_batch(3, 3, 1, sequence=1))
    assert judged(state, *data, commit(4, 1), commit(5, 1)) == [
        *(ABORTED, NONE, EXPIRING, NONE, NONE, EXPIRING)
    ]


def test_one_producers_transactions_do_not_mix() -> None:
    """The data of the second aborted transaction were removed earlier, the first one's were not."""
    state = TransactionState()
    state.add_aborted([aborted(1, 2, 6), aborted(1, 0, 1)])
    assert judged(state, data_batch(0, 0, 1), abort(1, 1), abort(6, 1)) == [
        *(ABORTED, NONE, EXPIRING)
    ]
    assert state.kept_aborts == [aborted(1, 0, 1)]


def test_an_empty_control_batch_is_removed_and_ends_no_transaction() -> None:
    state = TransactionState()
    data = (data_batch(0, 0, 1), emptied(commit(1, 1)), commit(2, 1))
    assert judged(state, *data) == [NONE, EXPIRING, NONE]


def test_control_records_of_other_kinds_are_retained() -> None:
    leader_change = build_batch(
        [Record(0, 5, bytes.fromhex("00000002"), b"")],
        producer_id=1,
        producer_epoch=0,
        is_control=True,
    )
    assert judged(TransactionState(), leader_change) == [NONE]


def test_a_transaction_continues_across_chunks_and_is_added_again_with_each_segment() -> None:
    state = TransactionState()
    for _ in range(3):
        state.add_aborted([aborted(1, 0, 9)])
        assert judged(state, batch(2)) == [NONE]
    assert judged(state, data_batch(3, 3, 1)) == [ABORTED]
    state.add_aborted([aborted(1, 0, 9)])
    assert judged(state, abort(9, 1), data_batch(10, 10, 1)) == [NONE, NONE]


def test_batches_count_as_mapped_unless_they_were_discarded_then() -> None:
    """Also if it is not discarded now because the log starts above its abort marker."""
    mapping = TransactionState()
    mapping.add_aborted([aborted(1, 0, 1)])
    data = (data_batch(0, 0, 1), abort(1, 1), data_batch(2, 3, 1, sequence=1), commit(4, 1))
    assert judged(mapping, *data, batch(5)) == [ABORTED, NONE, NONE, NONE, NONE]
    assert mapping.discarded == {0}
    rewriting = TransactionState(mapping.discarded)
    assert judged(rewriting, *data, batch(5)) == [NONE, EXPIRING, MAPPED, NONE, NONE]


def test_too_many_discarded_batches_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is unknown for all batches of transactions whether they were mapped."""
    monkeypatch.setattr(transactions, "DISCARDED_MAX", 1)
    state = TransactionState()
    state.add_aborted([aborted(1, 0, 9)])
    judged(state, data_batch(0, 0, 1))
    assert state.discarded == {0}
    judged(state, data_batch(1, 1, 1, sequence=1), data_batch(2, 2, 1, sequence=2))
    assert state.discarded is None
    assert judged(TransactionState(state.discarded), data_batch(0, 0, 1)) == [NONE]


@pytest.mark.parametrize("moves", (False, True))
def test_an_abort_that_the_log_start_passes_during_a_pass_counts_no_more(moves: bool) -> None:
    """Its records were not mapped, so they are not superseded; as in Kafka they reappear."""
    log = compacted(memory_world())
    one = Producer(log, 1)
    put(log, (b"1", b"old"), (b"2", b"v"))
    one.send(1, 3)
    one.abort()
    one.send(2)
    one.commit()
    put(log, (b"4", b"v"))
    log.writer.roll()
    steps = clean_pass(log, ALL_KEYS, 0, log.active_segment.base_offset)
    assert next(steps).phase == "map"
    if moves:
        log.offsets.maybe_increment_log_start_offset(5)
    drive(steps)
    assert keys_in(log) == ([1, 1, 3, 2, 4] if moves else [1, 2, 4])


# --- AbortedTransactions ----------------------------------------------------------------------


def test_aborted_transactions_of_a_range_with_markers_anywhere() -> None:
    log = compacted(memory_world())
    one, two, three = (Producer(log, number) for number in (1, 2, 3))
    one.send(1)
    one.abort()
    two.send(2)
    log.writer.roll()
    three.send(3)
    three.abort()
    put(log, (b"k", b"v"))
    log.writer.roll()
    two.abort()
    first, third, second = (1, 0, 1, 2), (3, 3, 4, 2), (2, 2, 6, 7)
    cases = {
        (0, 2): [first],
        (0, 3): [first, second],
        (0, 6): [first, third, second],
        (1, 3): [first, second],
        (3, 6): [third, second],
        (5, 6): [second],
        (6, 7): [second],
        (7, 7): [],
        (4, 4): [],
    }
    found = {case: AbortedTransactions(log).between(*case) for case in cases}
    assert {case: [tuple(each) for each in txns] for case, txns in found.items()} == cases


def test_an_abort_below_the_dirty_range_does_not_apply_to_its_batches() -> None:
    """Kafka treats the tombstone as aborted in the second pass; its key reappears in the third."""
    log = compacted(memory_world(), delete_retention_ms=1000, index_interval_bytes=0)
    one = Producer(log, 1)
    put(log, (b"1", b"v"))
    one.send(7)
    one.abort()
    put(log, (b"2", b"v"))
    one.send((b"1", None))
    one.commit()
    log.writer.roll()
    two_keys = map_of(2, 1.0)
    assert [each.end_offset for each in run_passes(log, two_keys)] == [4, 6]
    assert offsets_in(log) == [2, 3, 4, 5]
    log.runtime.clock.advance(ms=1000)
    put(log, (b"3", b"v"))
    log.writer.roll()
    run_pass(log, 6)
    assert keys_in(log) == [2, 3]


def test_a_transaction_that_ended_below_the_log_start_counts_as_none() -> None:
    """Kafka forgets the abort; the data are below the log start, too."""
    log = compacted(memory_world())
    one, two = (Producer(log, number) for number in (1, 2))
    one.send(1)
    one.abort()
    two.send(2)
    log.writer.roll()
    two.abort()
    put(log, (b"k", b"v"))
    first, second = (1, 0, 1, 2), (2, 2, 3, 4)
    found = []
    for log_start in (1, 2, 3, 4):
        log.offsets.maybe_increment_log_start_offset(log_start)
        found.append([tuple(each) for each in AbortedTransactions(log).between(0, 3)])
    assert found == [[first, second], [second], [second], []]


# --- LastBatches ------------------------------------------------------------------------------


def kept(producers: dict[int, LastRecord], *batches: bytes) -> list[bool]:
    chunk = chunk_of(*batches)
    LastBatches(producers).keep(chunk)
    return [verdict == 1 for verdict in chunk.table[:, COL_VERDICT].tolist()]


def test_the_batch_of_the_last_data_offset_is_kept() -> None:
    data = (data_batch(0, 1, 1), data_batch(2, 3, 1, sequence=2), data_batch(4, 4, 2), batch(5))
    assert kept({1: LastRecord(0, 3), 2: LastRecord(0, 9)}, *data) == [False, True, False, False]
    assert kept({}, *data) == [False] * 4
    assert kept({9: LastRecord(0, 1)}, *data) == [False] * 4


def test_offsets_before_inside_and_behind_a_chunk_are_of_no_batch_in_it() -> None:
    data = (data_batch(10, 11, 1), data_batch(12, 13, 2), data_batch(14, 15, 3))
    others = {number: LastRecord(0, offset) for number, offset in enumerate((9, 10, 12, 16), 1)}
    assert kept(others, *data) == [False] * 3
    ends = {1: LastRecord(0, 11), 2: LastRecord(0, 15), 3: LastRecord(0, 15), 4: LastRecord(0, -1)}
    assert kept(ends, *data) == [True, False, True]


def test_without_data_the_markers_of_the_present_epoch_are_kept() -> None:
    data = (
        data_batch(0, 0, 1, epoch=2),
        abort(1, 1, epoch=2),
        abort(2, 1, epoch=3),
        emptied(commit(3, 1, epoch=3)),
        commit(4, 2, epoch=3),
    )
    assert kept({1: LastRecord(3, -1)}, *data) == [False, False, True, True, False]
    assert kept({1: LastRecord(3, 0)}, *data) == [True, False, False, False, False]
    assert kept({1: LastRecord(2, -1)}, *data) == [False, True, False, False, False]


@pytest.mark.parametrize("segment_bytes", (100, 1024))
def test_batches_at_both_ends_of_a_group_are_the_last_of_their_producers(
    segment_bytes: int,
) -> None:
    """With one group for each segment, and with one group for all."""
    log = compacted(memory_world(), segment_bytes=segment_bytes)
    for offset in range(3):
        producer = {"producer_id": offset, "producer_epoch": 0, "base_sequence": 0}
        put_batches(log, batch(offset, key=b"1", **producer))
        log.writer.roll()
    put(log, (b"1", b"v"))
    log.writer.roll()
    run_pass(log)
    assert len(list(log.segments)) == (5 if segment_bytes == 100 else 2)
    assert batch_bases_in(log) == [0, 1, 2, 3]
    assert offsets_in(log) == [3]


# --- chunks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", (Codec.NONE, Codec.GZIP))
@pytest.mark.parametrize("key", (None, b"\0\0\0", b"\x80\0\0\1"))
def test_a_control_batch_without_a_sound_key_fails_the_pass(
    key: bytes | None, codec: Codec
) -> None:
    world = memory_world()
    log = compacted(world)
    put(log, (b"a", b"1"))
    sound = build_batch(
        [Record(1, 5, b"\0\0\0\5", b"")], codec=codec, is_control=True, partition_leader_epoch=0
    )
    put_batches(log, sound)
    log.writer.roll()
    at = log.segments.first.size_bytes - len(sound)
    log.close()
    bad = build_batch([Record(1, 5, key, b"")], codec=codec, is_control=True)
    file = world.fs.open(log.segments.first.log_path, write=True)
    file.truncate(at)
    file.write_at([bad], at)
    file.close()
    log = compacted(world)
    with pytest.raises(CorruptRecordError, match="control record") as caught:
        list(ChunkReader(4096).chunks(log.segments.first, 2))
    assert (caught.value.check, caught.value.position) == ("control_record", at)
    assert caught.value.path == log.segments.first.log_path
    with pytest.raises(CorruptRecordError):
        run_pass(log)
