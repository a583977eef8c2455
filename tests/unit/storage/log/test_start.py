"""The log start and delete-records: behaviour scenarios of group I, KIP-107."""

import random

import pytest

from logstore.errors import (
    IllegalStateError,
    KafkaStorageError,
    OffsetOutOfRangeError,
    PolicyViolationError,
)
from logstore.runtime import Runtime
from logstore.storage.log import NewRecord
from logstore.storage.log.reader import EARLIEST_TIMESTAMP, Isolation
from logstore.types import AppendOrigin
from tests.support.world.builders import (
    abort,
    bases_of,
    batch,
    batches_of,
    commit,
    data_batch,
    fill,
    log_name,
    memory_world,
    offsets_in,
)
from tests.support.world.faulty import FaultyFileSystem


def in_segments(world, count=15, each=5, **config):
    """Return a log of one-record batches, a given number per segment, without retention."""
    config.setdefault("retention_ms", -1)
    log = world.log(**config)
    for start in range(0, count, each):
        if start:
            log.writer.roll()
        fill(log, min(each, count - start), start)
    return log


# -- scenarios -------------------------------------------------------------------------------


def test_s091_the_log_start_moves_up_to_the_high_watermark(world):
    """S-091: beyond it is out of range; a lower offset changes nothing."""
    log = in_segments(world, 30)
    log.offsets.set_high_watermark(25)
    with pytest.raises(OffsetOutOfRangeError, match="26 of t-0 is above the high watermark") as e:
        log.offsets.maybe_increment_log_start_offset(26)
    assert (e.value.offset, e.value.log_start_offset, e.value.log_end_offset) == (26, 0, 30)
    assert log.log_start_offset == 0
    assert log.offsets.maybe_increment_log_start_offset(25)
    assert not log.offsets.maybe_increment_log_start_offset(20)
    assert not log.offsets.maybe_increment_log_start_offset(25)
    assert log.log_start_offset == 25


def test_s092_requests_to_delete_records(world):
    """S-092: -1 is the high watermark; offsets out of range and other policies are refused."""
    log = in_segments(world)
    log.offsets.set_high_watermark(12)
    for offset in (-5, -2, 13, 15, 2**62):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            log.delete_records(offset)
        assert caught.value.offset == offset
        assert (log.log_start_offset, bases_of(log)) == (0, [0, 5, 10])
    assert log.delete_records(-1) == log.log_start_offset == log.high_watermark == 12


@pytest.mark.parametrize(
    ("policy", "allowed"),
    ((("compact",), False), ((), False), (("delete",), True), (("compact", "delete"), True)),
)
def test_s092_the_policy_must_include_delete(world, policy, allowed):
    """S-092: a topic that is only compacted keeps its records."""
    log = in_segments(world, cleanup_policy=policy)
    if allowed:
        assert log.delete_records(7) == 7
        return
    with pytest.raises(
        PolicyViolationError, match=f"cleanup.policy is {''.join(policy) or 'empty'}"
    ):
        log.delete_records(7)
    assert (log.log_start_offset, bases_of(log)) == (0, [0, 5, 10])


def test_s093_segments_go_once_the_log_start_has_passed_them(world):
    """S-093: log start 1, 6 and 15 leave 3, 2 and 1 segments after a run."""
    log = in_segments(world)
    for start, left in ((1, [0, 5, 10]), (6, [5, 10]), (15, [10])):
        assert log.offsets.maybe_increment_log_start_offset(start)
        log.delete_old_segments()
        assert (log.log_start_offset, bases_of(log)) == (start, left)
        assert offsets_in(log) == list(range(start, 15))


# -- deleting --------------------------------------------------------------------------------


def test_segments_below_go_at_once_others_stay_hidden(world):
    log = in_segments(world)
    assert log.delete_records(9) == 9
    assert bases_of(log) == [5, 10]
    assert list(world.files(".log")) == [log_name(5), log_name(10)]
    assert list(world.files(".log.deleted")) == [log_name(0) + ".deleted"]
    assert log.segments.first.read_next_offset() == 10, "the records below are still there"
    assert offsets_in(log) == list(range(9, 15))
    for offset in (0, 5, 8):
        with pytest.raises(OffsetOutOfRangeError, match=r"out of range \[9, 15\]"):
            log.reader.read(offset, 1000)
    assert log.reader.offset_for_timestamp(EARLIEST_TIMESTAMP).offset == 9
    assert log.reader.offset_for_timestamp(0).offset == 9
    assert log.delete_records(10) == 10
    assert bases_of(log) == [10]


def test_every_record_can_be_deleted_and_appends_continue(world):
    log = in_segments(world)
    assert log.delete_records(-1) == 15
    assert (bases_of(log), log.log_end_offset, offsets_in(log)) == ([10], 15, [])
    assert log.reader.read(15, 1000).data == b""
    assert log.writer.append_records([NewRecord(b"k", b"v")]).first_offset == 15
    assert offsets_in(log) == [15]
    log.close()
    log = world.log(log_start_offset=15)
    assert (log.log_start_offset, offsets_in(log)) == (15, [15])


def test_a_batch_is_cut_by_the_log_start_only_for_readers(world):
    log = world.log()
    log.writer.append_batches(batch(0, 9), AppendOrigin.REPLICATION)
    assert log.delete_records(4) == 4
    assert offsets_in(log) == list(range(4, 10))
    found = log.reader.read(4, 1, min_one_message=True)
    assert batches_of(found.data)[0].header.base_offset == 0


def test_deleting_up_to_the_current_log_start_removes_remaining_segments(world):
    """As after a crash between the two steps: the log start moved, but no segment was removed."""
    in_segments(world).close()
    log = world.log(log_start_offset=12)
    assert bases_of(log) == [0, 5, 10]
    assert log.delete_records(3) == 12
    assert bases_of(log) == [10]


def test_retention_limits_play_no_part_in_deleting_records(world):
    log = in_segments(world, retention_ms=0, retention_bytes=0)
    log.delete_records(6)
    assert bases_of(log) == [5, 10]


def test_the_log_start_hides_an_open_transaction(world):
    """The last stable offset is not below what readers may see."""
    log = world.log()
    log.writer.append_batches(batch(0), AppendOrigin.REPLICATION)
    log.writer.append_batches(data_batch(1, 3, 7), AppendOrigin.REPLICATION)
    log.writer.append_batches(batch(4, 6), AppendOrigin.REPLICATION)
    assert log.last_stable_offset == 1
    assert log.delete_records(2) == 2
    assert log.last_stable_offset == 2
    assert log.delete_records(5) == log.last_stable_offset == 5
    committed = {"isolation": Isolation.READ_COMMITTED}
    assert list(log.reader.records(5, **committed)) == []
    log.writer.append_batches(commit(7, 7), AppendOrigin.REPLICATION)
    assert log.last_stable_offset == 8
    assert [record.offset for _, record in log.reader.records(5, **committed)] == [5, 6]


def test_an_aborted_transaction_stays_aborted_above_the_log_start(world):
    log = world.log(file_delete_delay_ms=0)
    log.writer.append_batches(data_batch(0, 1, 7), AppendOrigin.REPLICATION)
    log.writer.roll()
    log.writer.append_batches(data_batch(2, 3, 7, sequence=2), AppendOrigin.REPLICATION)
    log.writer.append_batches(abort(4, 7), AppendOrigin.REPLICATION)
    log.writer.append_batches(batch(5), AppendOrigin.REPLICATION)
    log.delete_records(3)
    log.delete_expired_files()
    records = log.reader.records(3, isolation=Isolation.READ_COMMITTED)
    assert [record.offset for _, record in records] == [5]


def test_producers_stay_known_though_their_records_are_removed(world):
    log = world.log(file_delete_delay_ms=0)
    for sequence in range(4):
        data = batch(sequence, producer_id=1, producer_epoch=0, base_sequence=sequence)
        log.writer.append_batches(data, AppendOrigin.REPLICATION)
        log.writer.roll()
    log.delete_records(-1)
    log.delete_expired_files()
    assert log.producer_state.snapshot_offsets == [4]
    assert log.producer_state.entry(1).last_sequence == 3
    log.close()
    assert world.log(log_start_offset=4).producer_state.entry(1) is None, "as in Kafka"


def test_a_closed_log_deletes_nothing(world):
    log = in_segments(world)
    log.close()
    for action in (
        lambda: log.delete_records(3),
        lambda: log.offsets.maybe_increment_log_start_offset(3),
        log.retention_decision,
        log.delete_old_segments,
    ):
        with pytest.raises(IllegalStateError, match="closed"):
            action()


# -- a disk that fails -----------------------------------------------------------------------


def test_any_failure_while_deleting_leaves_a_log_that_reopens():
    """Each operation fails once: the log is offline, and after a restart it begins somewhere
    between the old start and the new one, with nothing missing from there on."""
    number, starts = 0, set()
    while True:
        world = memory_world()
        in_segments(world, 20).close()
        fs = FaultyFileSystem(world.fs)
        log = world.log(runtime=Runtime(world.clock, fs, random.Random(0)))
        log.writer.append_batches(batch(20, leader_epoch=4), AppendOrigin.REPLICATION)
        countdown = iter(range(number, -1, -1))
        fs.rule = lambda *_, steps=countdown: next(steps, None) == 0
        try:
            log.delete_records(17)
        except KafkaStorageError:
            assert log.is_offline
            with pytest.raises(KafkaStorageError, match="offline"):
                log.reader.read(17, 100)
            with pytest.raises(KafkaStorageError, match="offline"):
                log.delete_records(17)
            assert log.delete_expired_files(force=True) == 0, "a failed disk is not used"
        else:
            break
        finally:
            fs.rule = lambda *_: False
        log.close()
        reopened = world.log(clean=False, log_start_offset=0)
        starts.add(reopened.log_start_offset)
        assert offsets_in(reopened) == list(range(reopened.log_start_offset, 21))
        assert not world.files(".deleted")
        assert reopened.delete_records(17) == 17
        reopened._check()
        number += 1
    assert number > 10
    assert starts == {0, 5, 10, 15}


def test_the_leader_epoch_survives_the_deletion_of_all_records(world):
    """The epoch file is then empty, as in Kafka; the batches below the log start have the epoch."""
    log = world.log()
    log.writer.append_batches(batch(0, 4, leader_epoch=5), AppendOrigin.REPLICATION)
    log.delete_records(-1)
    log.close()
    log = world.log(log_start_offset=5)
    assert log.epochs.entries == ()
    assert log.leader_epoch == 5
    log.writer.append_records([NewRecord(b"k", b"v")])
    assert log.epochs.entries == ((5, 5),)
