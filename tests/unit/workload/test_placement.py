"""Placement of sealed batches: the whole batch as it will be in the log."""

import pytest

from logstore.record.header import BatchHeader
from logstore.types import INT32_MAX
from logstore.workload.placement import BatchPlacer, append_batches, append_marker, fit_segment
from logstore.workload.spec import Producers
from tests.support.world.builders import batch, batches_of, log_name, offsets_of

SEALED = batch(0, 2, timestamp=(50, 70, 60), leader_epoch=3)


def test_batches_follow_each_other_with_the_sequences_of_their_producers():
    placer = BatchPlacer(Producers(count=3, transactional=1), first_id=10)
    placed = [placer.place(producer, 5 + producer, SEALED) for producer in (1, 0)]
    placer.place_marker()
    placed.append(placer.place(1, 9, SEALED))
    expected = [
        batch(
            *(first, first + 2),
            key=None,
            timestamp=(50, 70, 60),
            leader_epoch=3,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=producer_id == 10,
        )
        for first, producer_id, sequence in ((0, 11, 0), (3, 10, 0), (7, 11, 3))
    ]
    for found, wanted in zip(placed, expected, strict=True):
        own, other = (BatchHeader.unpack_from(data) for data in (found.data, wanted))
        assert own == other._replace(crc=own.crc, batch_length=own.batch_length)
        [valid] = batches_of(found.data)
        assert valid.is_valid()
        assert found.data[61:] == SEALED[61:]
    assert [each[1:] for each in placed] == [(6, 70, 3), (5, 70, 3), (9, 70, 3)]
    assert placer.next_offset == 10


@pytest.mark.parametrize(
    ("idempotent", "transactional", "ids"),
    ((True, 0, [0, 1, 2]), (False, 2, [0, 1, -1]), (False, 0, [-1, -1, -1])),
)
def test_producers_without_an_id_have_no_sequence(idempotent, transactional, ids):
    producers = Producers(count=3, transactional=transactional, idempotent=idempotent)
    placer = BatchPlacer(producers)
    headers = [
        BatchHeader.unpack_from(placer.place(producer, 0, SEALED).data)
        for producer in (0, 1, 2, 0, 1, 2)
    ]
    assert [each.producer_id for each in headers] == 2 * ids
    sequences = [0 if each >= 0 else -1 for each in ids] + [3 if each >= 0 else -1 for each in ids]
    assert [each.base_sequence for each in headers] == sequences
    assert [each.is_transactional for each in headers[:3]] == [n < transactional for n in range(3)]


def test_a_sequence_begins_again_after_the_largest():
    placer = BatchPlacer(Producers(count=1))
    placer._sequences[0] = INT32_MAX - 1
    sequences = [
        BatchHeader.unpack_from(placer.place(0, 0, SEALED).data).base_sequence for _ in range(2)
    ]
    assert sequences == [INT32_MAX - 1, 1]


def test_a_copy_goes_on_where_its_original_was_and_changes_nothing_in_it():
    placer = BatchPlacer(Producers(count=2), first_id=7)
    placer.place(0, 0, SEALED)
    twin = placer.copy()
    for _ in range(2):
        twin.place(0, 0, SEALED)
    own, other = placer.place(0, 4, SEALED), twin.place(1, 4, SEALED)
    assert offsets_of(own.data + other.data) == [3, 4, 5, 9, 10, 11]
    headers = [BatchHeader.unpack_from(each.data) for each in (own, other)]
    assert [(each.producer_id, each.base_sequence) for each in headers] == [(7, 3), (8, 0)]
    assert (placer.next_offset, twin.next_offset) == (6, 12)


@pytest.mark.parametrize("commit", (True, False))
def test_placed_batches_and_markers_are_appended_as_they_are(world, commit):
    log = world.log()
    placer = BatchPlacer(Producers(count=1, transactional=1))
    placed = [placer.place(0, 0, SEALED) for _ in range(2)]
    append_batches(log, placed)
    append_marker(log, 0, commit=commit)
    placer.place_marker()
    assert log.log_end_offset == placer.next_offset == 7
    data = world.files(".log")[log_name(0)]
    assert data.startswith(placed[0].data + placed[1].data)
    [producer] = log.producer_state.entries()
    assert (producer.producer_id, producer.current_txn_first_offset) == (0, None)
    assert len(world.files(".txnindex")) == (not commit)


def test_a_segment_takes_batches_that_neither_its_size_nor_its_age_refuse(world):
    size = len(SEALED)
    log = world.log(segment_bytes=4 * size, segment_ms=100)
    assert not fit_segment(log, [SEALED], 50), "an empty segment takes anything"
    append_batches(log, [BatchPlacer(Producers()).place(0, 0, SEALED)])
    assert [fit_segment(log, [SEALED] * count, 50) for count in (1, 3, 4)] == [True, True, False]
    late = batch(0, 2, timestamp=(70, 171, 60))
    assert [fit_segment(log, each, 0) for each in ([late], [SEALED, late], [late, SEALED])] == [
        False
    ] * 3
    just = batch(0, 2, timestamp=(70, 170, 60))
    assert fit_segment(log, [just, SEALED], 0)


def test_a_segment_takes_as_many_batches_as_its_indexes_have_room_for(world):
    log = world.log(segment_index_bytes=48)
    append_batches(log, [BatchPlacer(Producers()).place(0, 0, SEALED)])
    segment = log.active_segment
    assert (segment.offset_index.max_entries, segment.time_index.max_entries) == (6, 4)
    assert [fit_segment(log, [SEALED] * count, 50) for count in (2, 3)] == [True, False]
