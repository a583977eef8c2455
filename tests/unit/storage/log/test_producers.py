"""Idempotent and transactional producers on a log: scenarios of group K."""

import random

import pytest

from logstore.errors import (
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTxnStateError,
    KafkaStorageError,
    OutOfOrderSequenceNumberError,
    TransactionCoordinatorFencedError,
)
from logstore.record.batch import build_batch
from logstore.record.codecs import Codec
from logstore.record.records import Record
from logstore.runtime import Runtime
from logstore.storage.log import NewRecord
from logstore.storage.log.reader import Isolation
from logstore.testing import Contents, CrashMode, Names
from logstore.testing import FaultyFileSystem as CrashingFileSystem
from logstore.types import INT32_MAX, AppendOrigin
from tests.support.oracles.cleaner_oracle import empty_batch
from tests.support.world.builders import abort, batch, batches_of, commit, data_batch, memory_world
from tests.support.world.faulty import FaultyFileSystem
from tests.support.world.messages import exactly

REPLICA = AppendOrigin.REPLICATION


def send(log, pid, sequence, count=1, *, epoch=0, txn=False, codec=Codec.NONE):
    """Append a client's batch of `count` records."""
    data = batch(
        0,
        count - 1,
        timestamp=log.runtime.clock.now_ms(),
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=txn,
        codec=codec,
    )
    return log.writer.append_batches(data)


def end(log, pid, *, is_commit=True, epoch=0, coordinator_epoch=0):
    return log.writer.append_end_txn_marker(pid, epoch, coordinator_epoch, commit=is_commit)


def aborted_entries(log):
    return [tuple(entry) for segment in log.segments for entry in segment.txn_index.entries()]


def refused(log, error, *call, **fields):
    """Assert that a call raises a given error and changes nothing."""
    before = (log.log_end_offset, log.size_bytes, len(log.segments), log.producer_state.entries())
    with pytest.raises(error):
        call[0](log, *call[1:], **fields)
    assert before == (
        log.log_end_offset,
        log.size_bytes,
        len(log.segments),
        log.producer_state.entries(),
    )


def test_s109_sequences_and_epochs(world):
    log = world.log()
    send(log, 1, 0)
    refused(log, OutOfOrderSequenceNumberError, send, 1, 2)
    send(log, 1, 0, epoch=1)
    refused(log, InvalidProducerEpochError, send, 1, 0, epoch=0)
    other = world.log()
    send(other, 2, 0)
    refused(other, OutOfOrderSequenceNumberError, send, 2, 5, epoch=1)
    assert send(other, 3, 3, epoch=1).first_offset == other.log_end_offset - 1


def test_s110_the_last_five_batches_are_answered_again(world):
    log = world.log()
    for sequence in range(6):
        send(log, 1, sequence)
    first = send(log, 1, 6, 3)
    assert (first.first_offset, first.last_offset, first.is_duplicate) == (6, 8, False)
    before = world.files(".log")
    again = send(log, 1, 6, 3)
    assert (again.first_offset, again.last_offset, again.is_duplicate) == (6, 8, True)
    assert again.log_append_time == again.max_timestamp == first.max_timestamp, "as in Kafka"
    assert (again.records, again.size_bytes) == (0, 0)
    assert (log.log_end_offset, world.files(".log")) == (9, before)
    refused(log, OutOfOrderSequenceNumberError, send, 1, 7, 2)
    assert send(log, 1, 2).first_offset == 2
    refused(log, OutOfOrderSequenceNumberError, send, 1, 1)
    assert send(log, 1, 9).first_offset == 9


def test_s111_sequences_wrap(world):
    log = world.log()
    send(log, 1, INT32_MAX)
    assert send(log, 1, 0).first_offset == 1
    refused(log, OutOfOrderSequenceNumberError, send, 1, 0, 2)
    send(log, 2, INT32_MAX - 1, 4)
    assert send(log, 2, 2).first_offset == 6


def test_s112_after_a_marker_alone_the_epoch_begins_with_sequence_0(world):
    log = world.log()
    end(log, 1, epoch=3)
    refused(log, OutOfOrderSequenceNumberError, send, 1, 4, epoch=3, txn=True)
    assert send(log, 1, 0, epoch=3, txn=True).first_offset == 1


@pytest.mark.parametrize("clean", (True, False))
def test_s114_and_s115_what_compaction_thinned_is_still_known_after_a_reload(world, clean):
    """An empty batch kept for its producer, and one without its first and last record."""
    now = world.clock.now_ms()
    (first,) = batches_of(
        batch(0, 3, timestamp=now, producer_id=1, producer_epoch=5, base_sequence=10)
    )
    empty = empty_batch(first.header)
    fields = {"producer_id": 2, "producer_epoch": 0, "base_sequence": 0}
    (second,) = batches_of(batch(4, 7, timestamp=now, **fields))
    holed = build_batch(
        second.records()[1:3], base_offset=4, last_offset=7, partition_leader_epoch=0, **fields
    )
    log = world.log()
    log.writer.append_batches(empty + holed, REPLICA)
    log.close()
    log = world.log(clean=clean)
    entry = log.producer_state.entry(1)
    assert (entry.producer_epoch, entry.last_sequence, entry.last_data_offset) == (5, 13, 3)
    assert log.producer_state.entry(2).batches[-1] == (3, 7, 3, now)
    again = send(log, 1, 10, 4, epoch=5)
    assert (again.is_duplicate, again.first_offset, again.last_offset) == (True, 0, 3)
    assert send(log, 2, 0, 4).is_duplicate
    assert send(log, 1, 14, epoch=5).first_offset == 8


def test_s116_s117_the_last_stable_offset_follows_the_oldest_open_transaction(world):
    """Without replicas the high watermark is the log end, so that a marker decides at once.

    The effect of a lower high watermark is tested with the producer state.
    """
    log = world.log()
    send(log, 1, 0, 3, txn=True)
    log.writer.append_batches(batch(0, 2, timestamp=log.runtime.clock.now_ms()))
    send(log, 2, 0, 3, txn=True)
    assert log.last_stable_offset == 0
    end(log, 1, is_commit=False)
    assert log.last_stable_offset == 6
    assert list(committed(log)) == [3, 4, 5]
    end(log, 2)
    assert log.last_stable_offset == log.log_end_offset == 11
    assert list(committed(log)) == [3, 4, 5, 6, 7, 8]


def committed(log):
    found = log.reader.records(log.log_start_offset, isolation=Isolation.READ_COMMITTED)
    return [record.offset for _, record in found]


LTS = (
    ("data", 1, 5), ("plain", 0, 3), ("data", 2, 2), ("data", 1, 4), ("data", 3, 3),
    ("plain", 0, 2), ("data", 1, 10), ("abort", 1, 1), ("data", 2, 6), ("data", 4, 3),
    ("plain", 0, 10), ("data", 3, 9), ("commit", 3, 1), ("data", 4, 8), ("data", 2, 7),
    ("abort", 2, 1), ("plain", 0, 10), ("data", 4, 4), ("commit", 4, 1),
)  # fmt: skip


@pytest.mark.parametrize("reload", (None, "clean", "unclean"))
@pytest.mark.parametrize("segment_bytes", (1 << 20, 1500))
def test_s118_the_log_lts(world, segment_bytes, reload):
    log = world.log(segment_bytes=segment_bytes)
    sequences = dict.fromkeys((1, 2, 3, 4), 0)
    stable = {}
    for kind, pid, count in LTS:
        if kind == "data":
            send(log, pid, sequences[pid], count, txn=True)
            sequences[pid] += count
        elif kind == "plain":
            log.writer.append_batches(batch(0, count - 1, timestamp=log.runtime.clock.now_ms()))
        else:
            end(log, pid, is_commit=kind == "commit")
        stable[log.log_end_offset] = log.last_stable_offset
    assert (stable[29], stable[30], stable[75], stable[90]) == (0, 8, 36, 90)
    if reload:
        log.close()
        log = world.log(clean=reload == "clean", segment_bytes=segment_bytes)
    assert aborted_entries(log) == [(1, 0, 29, 8), (2, 8, 74, 36)]
    aborted = {*range(5), 8, 9, *range(10, 14), *range(19, 30), *range(30, 36), *range(67, 75)}
    assert committed(log) == sorted(set(range(90)) - aborted - {58, 89})
    assert log.last_stable_offset == 90


def test_s119_an_old_coordinator_is_fenced(world):
    log = world.log()
    send(log, 1, 0, txn=True)
    end(log, 1, coordinator_epoch=2)
    refused(log, TransactionCoordinatorFencedError, end, 1, coordinator_epoch=1)
    send(log, 1, 1, txn=True)
    refused(log, TransactionCoordinatorFencedError, end, 1, coordinator_epoch=1)
    end(log, 1, epoch=1, coordinator_epoch=2)
    refused(log, InvalidProducerEpochError, end, 1, epoch=0, coordinator_epoch=3)
    offset = log.log_end_offset
    now = world.clock.now_ms()
    log.writer.append_batches(commit(offset, 1, coordinator_epoch=1, timestamp=now), REPLICA)
    assert log.producer_state.entry(1).coordinator_epoch == 1, "replicated batches are accepted"
    log.close()
    assert world.log(clean=False).producer_state.entry(1).coordinator_epoch == 1


def test_s120_no_data_outside_an_open_transaction(world):
    log = world.log()
    send(log, 1, 0, txn=True)
    refused(log, InvalidTxnStateError, send, 1, 1)
    with pytest.raises(InvalidTxnStateError):
        log.writer.append_batches(
            batch(1, producer_id=1, producer_epoch=0, base_sequence=1), REPLICA
        )
    end(log, 1)
    assert send(log, 1, 1).first_offset == 2


def test_s121_a_failed_transaction_index_takes_the_log_offline_and_recovery_mends_it(world):
    fs = FaultyFileSystem(world.fs)
    log = world.log(runtime=Runtime(world.clock, fs, world.runtime.rng))
    send(log, 1, 0, txn=True)
    fs.rule = lambda operation, path: operation in ("open", "write") and ".txnindex" in path
    with pytest.raises(KafkaStorageError, match="cannot append"):
        end(log, 1, is_commit=False)
    fs.rule = lambda *_: False
    assert log.is_offline
    log.close()
    log = world.log(clean=False)
    assert aborted_entries(log) == [(1, 0, 1, 2)]
    assert (committed(log), log.last_stable_offset) == ([], 2)


def test_s122_a_roll_takes_a_snapshot_and_a_flush_none(world):
    log = world.log()
    send(log, 1, 0)
    log.writer.roll()
    assert [*world.files(".snapshot")] == ["00000000000000000001.snapshot"]
    send(log, 1, 1)
    log.flush()
    assert [*world.files(".snapshot")] == ["00000000000000000001.snapshot"]
    log.writer.roll()
    assert [*world.files(".snapshot")] == [
        "00000000000000000001.snapshot",
        "00000000000000000002.snapshot",
    ]


# -- other cases -----------------------------------------------------------------------------


@pytest.mark.parametrize("codec", (Codec.NONE, Codec.GZIP, Codec.ZSTD))
@pytest.mark.parametrize("compression_type", ("producer", "uncompressed", "lz4"))
def test_a_re_encoded_batch_keeps_its_producer_and_is_known_again(world, codec, compression_type):
    log = world.log(compression_type=compression_type)
    send(log, 7, 3, 4, epoch=2, txn=True, codec=codec)
    (stored,) = log.reader.batches(0)
    header = stored.header
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 3)
    assert header.is_transactional
    assert send(log, 7, 3, 4, epoch=2, txn=True, codec=codec).is_duplicate


def test_a_duplicate_is_answered_even_from_an_open_transaction_and_after_a_marker(world):
    log = world.log()
    first = send(log, 1, 0, 2, txn=True)
    assert send(log, 1, 0, 2, txn=True).first_offset == first.first_offset
    end(log, 1)
    assert send(log, 1, 0, 2, txn=True).is_duplicate
    assert log.last_stable_offset == log.log_end_offset, "it opened no transaction"


def test_a_duplicate_of_an_older_epoch_is_fenced(world):
    log = world.log()
    send(log, 1, 0)
    send(log, 1, 0, epoch=1)
    refused(log, InvalidProducerEpochError, send, 1, 0)


@pytest.mark.parametrize("clean", (True, False))
def test_only_the_last_batch_is_known_again_after_a_restart(world, clean):
    """A snapshot keeps one batch per producer; a replay of the log keeps five."""
    log = world.log()
    for sequence in range(4):
        send(log, 1, sequence)
    log.close()
    log = world.log(clean=clean)
    assert send(log, 1, 3).is_duplicate
    refused(log, OutOfOrderSequenceNumberError, send, 1, 2)
    assert send(log, 1, 4).first_offset == 4


def test_a_forgotten_producer_may_continue_with_any_sequence(world):
    log = world.log()
    send(log, 1, 0)
    world.clock.advance(days=1)
    assert log.producer_state.remove_expired(world.clock.now_ms()) == 1
    assert send(log, 1, 17).first_offset == 1


def test_truncation_replays_even_where_all_producers_were_forgotten(world):
    """Kafka skips the replay, but a truncated marker leaves a transaction open."""
    log = world.log()
    send(log, 1, 0, txn=True)
    end(log, 1)
    send(log, 2, 0)
    world.clock.advance(days=1)
    assert log.producer_state.remove_expired(world.clock.now_ms()) == 2
    log.truncate_to(1)
    assert [entry.producer_id for entry in log.producer_state.entries()] == [1]
    assert (log.last_stable_offset, committed(log)) == (0, [])


def test_truncation_replays_where_a_producer_is_still_known(world):
    log = world.log()
    log.writer.roll()
    send(log, 2, 0)
    world.clock.advance(hours=1)
    send(log, 3, 0)
    send(log, 3, 1)
    world.clock.advance(hours=23)
    assert log.producer_state.remove_expired(world.clock.now_ms()) == 1
    log.truncate_to(2)
    assert [entry.producer_id for entry in log.producer_state.entries()] == [2, 3]


@pytest.mark.parametrize("compact", (True, False))
def test_of_a_batch_without_keys_and_with_a_bad_time_the_time_names_the_error(world, compact):
    """On a compacted topic the time of a record without a key is not checked."""
    log = world.log(
        cleanup_policy=("compact" if compact else "delete",), message_timestamp_after_max_ms=10
    )
    now = world.clock.now_ms()
    times = {"keyless": [now + 99, now], "both": [now + 99, now + 99]}
    for case, (first, second) in times.items():
        records = [NewRecord(None, b"v", first), NewRecord(b"k", b"v", second)]
        data = build_batch(
            [Record(row, each.timestamp, each.key, b"v") for row, each in enumerate(records)]
        )
        expected = InvalidTimestampError
        if compact and case == "keyless":
            expected = InvalidRecordError
        for append in (
            lambda: log.writer.append_batches(data),  # noqa: B023
            lambda: log.writer.append_records(records),  # noqa: B023
        ):
            with pytest.raises(InvalidRecordError) as refusal:
                append()
            assert type(refusal.value) is expected
            rows = [0] if case == "keyless" else [0, 1]
            assert [row for row, _ in refusal.value.record_errors] == rows
    assert log.log_end_offset == 0


def test_coordinators_write_markers_only_where_they_may(world):
    log = world.log()
    now = world.clock.now_ms()
    with pytest.raises(InvalidRecordError, match=exactly("clients may not write control batches")):
        log.writer.append_batches(commit(0, 1, timestamp=now))
    send(log, 1, 0, epoch=4, txn=True)
    refused(log, InvalidProducerEpochError, end, 1, epoch=3)
    end(log, 1, epoch=5, is_commit=False)
    assert aborted_entries(log) == [(1, 0, 1, 2)]
    refused(log, InvalidProducerEpochError, send, 1, 1, epoch=4, txn=True)
    assert send(log, 1, 0, epoch=5, txn=True).first_offset == 2


def test_a_transaction_survives_retention_of_its_first_records(world):
    """S-116 at the log start: a transaction that began below it counts from there."""
    log = world.log(segment_bytes=300)
    send(log, 1, 0, txn=True)
    for _ in range(6):
        log.writer.append_batches(batch(0, timestamp=log.runtime.clock.now_ms()))
    assert log.last_stable_offset == 0
    log.delete_records(4)
    assert log.last_stable_offset == 4
    end(log, 1, is_commit=False)
    assert (log.last_stable_offset, committed(log)) == (8, [4, 5, 6])


def test_a_lost_marker_reopens_a_transaction_known_only_from_the_snapshot():
    """Its data were removed, so the last stable offset is the log start until it ends."""
    world = memory_world()
    fs = CrashingFileSystem(world.clock, world.fs)
    log = world.log(runtime=Runtime(world.clock, fs, random.Random(0)), segment_bytes=300)
    send(log, 1, 0, txn=True)
    for _ in range(4):
        log.writer.append_batches(batch(0, timestamp=log.runtime.clock.now_ms()))
    log.writer.roll()
    log.writer.append_batches(batch(0, timestamp=log.runtime.clock.now_ms()))
    log.flush()
    end(log, 1)
    log.delete_records(-1)
    assert (log.log_start_offset, log.last_stable_offset, len(log.segments)) == (7, 7, 1)
    left = fs.crash(CrashMode(Contents.DROPPED, Names.UNDONE))
    log = world.log(
        runtime=Runtime(world.clock, left, random.Random(0)),
        clean=False,
        recovery_point=6,
        segment_bytes=300,
    )
    assert (log.log_start_offset, log.last_stable_offset, log.log_end_offset) == (5, 5, 6)
    end(log, 1)
    assert log.last_stable_offset == 7


@pytest.mark.parametrize("keep", (0, 2, 3, 4, 5, 6))
def test_truncation_into_transactions_equals_a_replay(world, keep):
    now = {"timestamp": world.clock.now_ms()}
    log = world.log()
    for data in (
        data_batch(0, 1, 1, **now),
        data_batch(2, 2, 2, **now),
        abort(3, 1, **now),
        data_batch(4, 4, 1, sequence=2, **now),
        commit(5, 2, **now),
        abort(6, 1, **now),
    ):
        log.writer.append_batches(data, REPLICA)
    log.truncate_to(keep)
    log._check()
    known = known_of(log)
    log.close()
    assert known_of(world.log(clean=False)) == known


def known_of(log):
    entries = [entry.to_snapshot() for entry in log.producer_state.entries()]
    return sorted(entries), aborted_entries(log), log.last_stable_offset


def test_a_new_epoch_forgets_old_batches_in_every_way_of_replay(world):
    """Batch by batch, in one append, or replayed from an older snapshot, with the same result."""
    now_ms = world.clock.now_ms()
    now = {"timestamp": now_ms}
    before = data_batch(0, 1, 5, **now)
    after = (abort(2, 5, epoch=1, **now), data_batch(3, 3, 5, sequence=9, **now))
    expected = [(9, 3, 0, now_ms)]
    for appends in ((before + b"".join(after),), (before, b"".join(after)), (before, *after)):
        world.put({})
        log = world.log()
        for data in appends:
            log.writer.append_batches(data, REPLICA)
            if data == before:
                log.writer.roll()
        assert list(log.producer_state.entry(5).batches) == expected
        log.close()
    for clean, kept in ((True, "2.snapshot"), (False, "2.snapshot"), (False, "none")):
        for name in world.files(".snapshot"):
            if not name.endswith(kept):
                world.fs.remove(world.path(name))
        log = world.log(clean=clean, recovery_point=4)
        assert list(log.producer_state.entry(5).batches) == expected
        log.close()


def test_a_marker_may_bring_the_epoch_of_the_next_transaction(world):
    """As from a broker with transaction version 2 (KIP-890)."""
    log = world.log()
    now = {"timestamp": world.clock.now_ms()}
    parts = (
        data_batch(0, 1, 5, **now),
        abort(2, 5, epoch=1, **now),
        data_batch(3, 4, 5, epoch=1, **now),
        commit(5, 5, epoch=2, **now),
        data_batch(6, 6, 5, epoch=2, **now),
    )
    for data in parts:
        log.writer.append_batches(data, REPLICA)
    for clean in (None, True, False):
        if clean is not None:
            log.close()
            log = world.log(clean=clean)
        assert aborted_entries(log) == [(5, 0, 2, 3)]
        assert (committed(log), log.last_stable_offset) == ([3, 4], 6)
        assert log.producer_state.entry(5).producer_epoch == 2
