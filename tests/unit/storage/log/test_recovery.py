"""Recovery of one segment: rebuilt indexes, truncations, and refusals without changes."""

import random

import pytest

from logstore.errors import (
    CorruptRecordError,
    SegmentOverflowError,
    UnsupportedFormatError,
)
from logstore.record.batch import RecordBatch, build_batch
from logstore.record.records import Record
from logstore.storage.log.epochs import EpochEntry, LeaderEpochCache
from logstore.storage.log.recovery import has_aborted_transaction, replay_batches
from logstore.storage.producers.state import ProducerStateManager
from logstore.types import AbortedTxn, TimestampOffset, TopicPartition
from tests.support.oracles.cleaner_oracle import empty_batch
from tests.support.world.builders import (
    LOG_APPEND_TIME,
    MIB,
    abort,
    append,
    batch,
    data_batch,
    log_name,
    old_message,
    read_offsets,
)

BIG_INDEX = 10 << 20

TOO_FAR = 2**31
"""Above a base, the first offset that its segment cannot hold."""


def test_recovery_keeps_valid_batches(world):
    """Nothing is truncated, the indexes are as after the appends, a second run changes nothing."""
    segment = world.segment(0, index_interval_bytes=100)
    for offset in range(0, 90, 3):
        append(segment, batch(offset, offset + 2, timestamp=1000 - offset % 7))
    append(segment, empty_batch(RecordBatch(batch(90, 95)).header))
    append(segment, batch(96, timestamp_type=LOG_APPEND_TIME, append_time=9999))
    segment.close()
    before = world.files()
    recovered = []
    for _ in range(2):
        segment = world.segment(0, create=False, index_interval_bytes=100)
        assert world.recover(segment) == (segment.size_bytes, 0, None, 97, False, ())
        assert segment.max_timestamp_so_far == TimestampOffset(9999, 96)
        segment.close()
        recovered.append(world.files(".log", ".index", ".timeindex"))
    assert recovered[0] == recovered[1]
    assert recovered[0].keys() == before.keys()
    assert recovered[0][log_name(0)] == before[log_name(0)]


def test_recovery_crosses_the_pieces_it_reads(world):
    """Batches of 100 bytes to 3 MiB, so that chunks of 1 MiB end everywhere."""
    rng = random.Random(3)
    segment = world.segment(0, segment_index_bytes=BIG_INDEX, index_interval_bytes=4096)
    offset = 0
    for _ in range(40):
        size = rng.choice((0, 100, 40_000, MIB - 100, MIB, 3 * MIB))
        append(segment, batch(offset, value=bytes(size)))
        offset += rng.randrange(1, 5)
    last = segment.read_next_offset() - 1
    entries = list(segment.offset_index)
    assert world.recover(segment).truncated_bytes == 0
    assert segment.read_next_offset() == last + 1
    assert {entry.offset for entry in entries} <= {
        at.header.last_offset for at in segment.batches()
    }
    segment._check()


@pytest.mark.parametrize("zeros", (1, 17, 18, 61, 5000, 3 * MIB))
def test_recovery_cuts_zeros(world, zeros):
    segment = world.segment(0)
    append(segment, batch(0))
    world.write(log_name(0), batch(0) + bytes(zeros))
    segment = world.segment(0, create=False)
    assert world.recover(segment)[:2] == (len(batch(0)), zeros)
    assert world.files()[log_name(0)] == batch(0)


def test_recovery_cuts_batches_whose_offsets_do_not_rise(world):
    sound = batch(5, 9) + batch(10)
    for last in (batch(10), batch(3), batch(7, 9)):
        world.put({log_name(5): sound + last + batch(20)})
        segment = world.segment(5, create=False)
        result = world.recover(segment)
        assert result.valid_bytes == len(sound)
        assert "is where offsets from 11 on are expected" in result.reason
    world.put({log_name(50): batch(49)})
    assert world.recover(world.segment(50, create=False)).valid_bytes == 0


def test_recovery_cuts_a_malformed_marker(world):
    bad = batch(1, key=b"xy", producer_id=5, producer_epoch=0, is_control=True)
    world.put({log_name(0): batch(0) + bad + batch(2)})
    result = world.recover(world.segment(0, create=False))
    assert result.valid_bytes == len(batch(0))
    assert "control record" in result.reason


@pytest.mark.parametrize(
    ("batches", "next_offset"),
    (
        ((batch(0), batch(TOO_FAR)), TOO_FAR + 1),
        ((batch(TOO_FAR), batch(TOO_FAR + 1)), TOO_FAR + 2),
        ((batch(5, 6), batch(TOO_FAR - 1, TOO_FAR)), TOO_FAR + 1),
        ((batch(0), batch(TOO_FAR), batch(2 * TOO_FAR), batch(2 * TOO_FAR + 7)), 2**32 + 8),
    ),
)
def test_recovery_leaves_offsets_beyond_the_segment_to_a_split(world, batches, next_offset):
    """Everything up to the torn batch is verified, without a change."""
    torn = batch(next_offset)[:-1]
    world.put({log_name(0): b"".join(batches) + torn, f"{0:020d}.index": bytes(8)})
    before = world.files()
    recovery = world.recover(world.segment(0, create=False))
    assert recovery.must_split
    assert recovery.valid_bytes == sum(map(len, batches))
    assert (recovery.truncated_bytes, recovery.next_offset) == (len(torn), next_offset)
    assert recovery.reason == "the last batch is torn"
    assert world.files() == before


def test_the_largest_offset_of_a_segment_does_not_cause_a_split(world):
    world.put({log_name(7): batch(7) + batch(7 + TOO_FAR - 1)})
    segment = world.segment(7, create=False, index_interval_bytes=0)
    recovery = world.recover(segment)
    assert (recovery.must_split, recovery.truncated_bytes) == (False, 0)
    assert [entry.offset for entry in segment.offset_index] == [7 + TOO_FAR - 1]


def test_aborted_transactions_of_a_segment_to_be_split_are_returned(world):
    """With the last stable offset after each, as in the transaction index."""
    data = data_batch(0, 1, 5) + data_batch(2, 2, 6) + abort(TOO_FAR, 5) + abort(TOO_FAR + 1, 6)
    world.put({log_name(0): data})
    recovery = world.recover(world.segment(0, create=False))
    assert recovery.aborted == (
        AbortedTxn(5, 0, TOO_FAR, 2),
        AbortedTxn(6, 2, TOO_FAR + 1, TOO_FAR + 2),
    )


@pytest.mark.parametrize("ends", (False, True))
def test_an_unreadable_marker_aborts_no_transaction(world, ends):
    """It ends its transaction nevertheless: the valid marker after it has none to end."""
    unreadable = batch(2, key=b"xy", producer_id=5, producer_epoch=0, is_transactional=True,
                       is_control=True)  # fmt: skip
    more = data_batch(3, 3, 5) if ends else b""
    world.put({log_name(0): data_batch(0, 2, 5) + unreadable + more + abort(4, 5)})
    assert has_aborted_transaction(world.segment(0, create=False)) == ends


def test_recovery_refuses_a_jump_that_sound_offsets_contradict(world):
    """No CRC covers a base offset: a damaged one must not start a new segment."""
    for jump in (2 + 2**40, 2**62):
        data = batch(0) + batch(1) + batch(jump) + batch(3) + batch(4)
        world.put({log_name(0): data, f"{0:020d}.index": bytes(8)})
        before = world.files()
        with pytest.raises(SegmentOverflowError, match="the file is not changed"):
            world.recover(world.segment(0, create=False))
        assert world.files() == before


def test_offsets_that_fall_behind_a_jump_without_contradicting_it_are_cut(world):
    sound = batch(0) + batch(TOO_FAR + 5) + batch(TOO_FAR + 6)
    world.put({log_name(0): sound + batch(TOO_FAR + 6)})
    recovery = world.recover(world.segment(0, create=False))
    assert (recovery.must_split, recovery.valid_bytes) == (True, len(sound))
    assert "is where offsets from" in recovery.reason


def test_a_jump_that_is_itself_cut_needs_no_split(world):
    bad = batch(TOO_FAR, key=b"xy", producer_id=5, producer_epoch=0, is_control=True)
    world.put({log_name(0): batch(0) + bad})
    recovery = world.recover(world.segment(0, create=False))
    assert recovery[:2] == (len(batch(0)), len(bad))
    assert (recovery.next_offset, recovery.must_split) == (1, False)


def test_recovery_cuts_a_batch_that_ends_where_no_offset_can(world):
    """2^63-1 has no next offset."""
    last = batch(2**63 - 2, 2**63 - 2)
    for base in (0, 2**63 - 10):
        for damaged in (batch(3, 4), batch(3)):
            data = bytearray(damaged)
            data[:8] = (2**63 - 1 - (len(damaged) > len(batch(3)))).to_bytes(8, "big")
            world.put({log_name(base): bytes(data)})
            recovery = world.recover(world.segment(base, create=False))
            assert (recovery.valid_bytes, recovery.must_split) == (0, False)
    world.put({log_name(2**63 - 10): last})
    recovery = world.recover(world.segment(2**63 - 10, create=False))
    assert (recovery.truncated_bytes, recovery.next_offset) == (0, 2**63 - 1)


@pytest.mark.parametrize("magic", (0, 1))
def test_recovery_refuses_old_messages_and_changes_nothing(world, magic):
    """Also after valid batches; a damaged one is an ordinary torn tail."""
    message = old_message(magic, offset=1)
    world.put({log_name(0): batch(0) + message + batch(2), f"{0:020d}.index": bytes(8)})
    before = world.files()
    with pytest.raises(UnsupportedFormatError) as caught:
        world.recover(world.segment(0, create=False))
    assert (caught.value.magic, caught.value.position) == (magic, len(batch(0)))
    assert world.files() == before
    world.put({log_name(0): batch(0) + message[:-1] + b"!" + batch(2)})
    assert world.recover(world.segment(0, create=False)).valid_bytes == len(batch(0))


def test_recovery_fits_smaller_indexes_than_the_first_writers(world):
    segment = world.segment(0, segment_index_bytes=BIG_INDEX, index_interval_bytes=0)
    append(segment, *[batch(offset, timestamp=offset) for offset in range(100)])
    segment.close()
    segment = world.segment(0, create=False, segment_index_bytes=120, index_interval_bytes=0)
    world.recover(segment)
    assert segment.time_index.entries == 10
    assert segment.offset_index.entries == 9
    assert segment.max_timestamp_so_far == TimestampOffset(99, 99)
    assert read_offsets(segment, 99, 1, min_one_message=True) == [99]


def test_recovery_does_not_replace_newer_epochs(world):
    epochs = LeaderEpochCache(world.fs, world.directory)
    epochs.assign(5, 0)
    segment = world.segment(0)
    append(segment, batch(0, leader_epoch=3), batch(1, leader_epoch=-1), batch(2, leader_epoch=6))
    world.recover(segment, epochs=epochs)
    assert epochs.entries == (EpochEntry(5, 0), EpochEntry(6, 2))


PLAIN_AFTER_DATA = data_batch(0, 1, 1), batch(2, producer_id=1, producer_epoch=0, base_sequence=2)


def test_a_contradiction_of_a_transaction_has_the_position_of_its_batch(world):
    data, plain = PLAIN_AFTER_DATA
    segment = world.segment(0)
    for each in (data, plain):
        append(segment, each)
    segment.close()
    segment = world.segment(0, create=False)
    before = world.files()
    with pytest.raises(CorruptRecordError) as refused:
        world.recover(segment)
    assert (refused.value.path, refused.value.position, refused.value.check) == (
        segment.log_path,
        len(data),
        "transaction_state",
    )
    assert world.files() == before
    state = ProducerStateManager(world.fs, world.directory, TopicPartition("t", 0))
    with pytest.raises(CorruptRecordError) as refused:
        replay_batches(segment, state, 0, 3)
    assert (refused.value.position, refused.value.check) == (len(data), "transaction_state")


def test_a_control_record_without_a_valid_key_has_the_position_of_its_batch(world):
    data = data_batch(0, 0, producer_id=5)
    marker = build_batch(
        [Record(1, 5, b"\0\0\0", b"")],
        producer_id=5,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    segment = world.segment(0)
    for each in (data, marker):
        append(segment, each)
    state = ProducerStateManager(world.fs, world.directory, TopicPartition("t", 0))
    with pytest.raises(CorruptRecordError) as refused:
        replay_batches(segment, state, 0, 2)
    assert (refused.value.path, refused.value.position, refused.value.check) == (
        segment.log_path,
        len(data),
        "control_record",
    )
    assert state.map_end_offset == 1
