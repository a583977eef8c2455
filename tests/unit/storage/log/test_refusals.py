"""Refused appends: the error of each, and no change by any."""

import random

import numpy as np
import pytest

from logstore.config.log_config import LogConfig
from logstore.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTxnStateError,
    MessageSizeTooLargeError,
    NotLeaderForPartitionError,
    OffsetOutOfRangeError,
    OffsetsOutOfOrderError,
    RecordListTooLargeError,
    UnexpectedAppendOffsetError,
    UnsupportedFormatError,
)
from logstore.record.batch import RecordBatch, seal_batch
from logstore.record.codecs import Codec
from logstore.record.columns import BytesColumn
from logstore.record.records import Record, encode_records
from logstore.runtime.clock import VIRTUAL_EPOCH_MS
from logstore.storage.log import NewRecord
from logstore.storage.log.drafts import RecordArrays
from logstore.storage.log.epochs import EpochEntry
from logstore.storage.log.reader import Isolation
from logstore.types import INT32_MAX, INT64_MAX, NO_TIMESTAMP, AppendOrigin, TimestampType
from tests.support.oracles.cleaner_oracle import empty_batch
from tests.support.world.builders import (
    batch,
    batches_of,
    commit,
    data_batch,
    log_name,
    old_message,
    records_of,
)

REPLICA = AppendOrigin.REPLICATION
COORDINATOR = AppendOrigin.COORDINATOR
NOW = VIRTUAL_EPOCH_MS


def damaged(data):
    return data[:-1] + bytes([data[-1] ^ 1])


def miscounted(count, last_delta, records=3):
    section = encode_records([Record(row, 5, b"k", b"v") for row in range(records)], 0, 5)
    return seal_batch(
        section,
        last_offset_delta=last_delta,
        record_count=count,
        base_timestamp=5,
        max_timestamp=5,
    )


def from_producer(**fields):
    """Return a batch with producer fields that the builder does not accept."""
    section = encode_records([Record(0, NOW, b"k", b"v")], 0, NOW)
    facts = {"record_count": 1, "base_timestamp": NOW, "max_timestamp": NOW, "producer_id": 7}
    return seal_batch(section, last_offset_delta=0, **facts | fields)


def with_codec(data, codec):
    """Return the batch with another codec in its header and a correct CRC."""
    header = RecordBatch(data).header
    header = header._replace(attributes=header.attributes | int(codec))
    changed = header.pack() + data[61:]
    return header._replace(crc=RecordBatch(changed).computed_crc()).pack() + data[61:]


def columns_of_times(log, *times):
    column = BytesColumn.from_list([b"k"] * len(times))
    return log.writer.append_records(RecordArrays(column, column, np.array(times, np.int64)))


CLIENT_REFUSALS = {
    "null key": (
        lambda log: log.writer.append_records([NewRecord(None, b"v")]),
        InvalidRecordError,
    ),
    "null key among many": (
        lambda log: log.writer.append_records(
            [NewRecord(b"k", b"v")] * 99 + [NewRecord(None, b"v")]
        ),
        InvalidRecordError,
    ),
    "null key in a batch": (
        lambda log: log.writer.append_batches(batch(0, 3, key=None)),
        InvalidRecordError,
    ),
    "null key in a compressed batch": (
        lambda log: log.writer.append_batches(batch(0, 99, key=None, codec=Codec.ZSTD)),
        InvalidRecordError,
    ),
    "too old": (
        lambda log: log.writer.append_records([NewRecord(b"k", b"v", 5)]),
        InvalidTimestampError,
    ),
    "too old among many": (lambda log: columns_of_times(log, *[5] * 70), InvalidTimestampError),
    "too new": (
        lambda log: log.writer.append_batches(batch(0, timestamp=2**62)),
        InvalidTimestampError,
    ),
    "negative time": (
        lambda log: log.writer.append_records([NewRecord(b"k", b"v", -2)]),
        InvalidTimestampError,
    ),
    "negative time among many": (
        lambda log: log.writer.append_records([NewRecord(b"k", b"v", -2)] * 70),
        InvalidTimestampError,
    ),
    "negative time in columns": (lambda log: columns_of_times(log, -2), InvalidTimestampError),
    "time of 65 bits": (
        lambda log: log.writer.append_records([NewRecord(b"k", b"v", 2**63)]),
        InvalidTimestampError,
    ),
    "time of 65 bits among many": (
        lambda log: log.writer.append_records([NewRecord(b"k", b"v", 2**63)] * 70),
        InvalidTimestampError,
    ),
    "too large": (
        lambda log: log.writer.append_records([NewRecord(b"k", bytes(2000), NOW)]),
        MessageSizeTooLargeError,
    ),
    "too large in columns": (
        lambda log: log.writer.append_records(
            RecordArrays(BytesColumn.from_list([b"k"]), BytesColumn.from_list([bytes(2000)]))
        ),
        MessageSizeTooLargeError,
    ),
    "too large as a batch": (
        lambda log: log.writer.append_batches(batch(0, value=bytes(2000), timestamp=NOW)),
        MessageSizeTooLargeError,
    ),
    "columns of different length": (
        lambda log: log.writer.append_records(
            RecordArrays(BytesColumn.from_list([b"k"]), BytesColumn.from_list([b"v", b"w"]))
        ),
        InvalidRecordError,
    ),
    "bad CRC": (lambda log: log.writer.append_batches(damaged(batch(0))), CorruptRecordError),
    "bad magic": (
        lambda log: log.writer.append_batches(batch(0)[:16] + b"\x03" + batch(0)[17:]),
        CorruptRecordError,
    ),
    "old format": (lambda log: log.writer.append_batches(old_message(1)), UnsupportedFormatError),
    "base offset": (
        lambda log: log.writer.append_batches(batch(5, timestamp=NOW)),
        InvalidRecordError,
    ),
    "two batches": (
        lambda log: log.writer.append_batches(batch(0, timestamp=NOW) * 2),
        InvalidRecordError,
    ),
    "count below the delta": (
        lambda log: log.writer.append_batches(miscounted(2, 2)),
        InvalidRecordError,
    ),
    "count above the delta": (
        lambda log: log.writer.append_batches(miscounted(3, 1)),
        InvalidRecordError,
    ),
    "count above the records": (
        lambda log: log.writer.append_batches(miscounted(4, 3)),
        InvalidRecordError,
    ),
    "count below the records": (
        lambda log: log.writer.append_batches(miscounted(2, 1)),
        InvalidRecordError,
    ),
    "no records": (lambda log: log.writer.append_batches(miscounted(0, -1, 0)), InvalidRecordError),
    "damaged compression": (
        lambda log: log.writer.append_batches(with_codec(miscounted(1, 0, 1), Codec.GZIP)),
        InvalidRecordError,
    ),
    "a time that only the log gives, but which it did not": (
        lambda log: log.writer.append_batches(
            batch(0, timestamp_type=TimestampType.LOG_APPEND_TIME, append_time=NO_TIMESTAMP)
        ),
        InvalidTimestampError,
    ),
    "producer without a sequence": (
        lambda log: log.writer.append_batches(from_producer(producer_epoch=0)),
        InvalidRecordError,
    ),
    "producer without an epoch": (
        lambda log: log.writer.append_batches(from_producer(base_sequence=0)),
        InvalidRecordError,
    ),
    "control batch": (lambda log: log.writer.append_batches(commit(0, 5)), InvalidRecordError),
}


CLIENT_MESSAGES = {
    "null key": ("Compacted topic cannot accept message without key (record 0 of the batch)"),
    "null key among many": (
        "Compacted topic cannot accept message without key (record 99 of the batch)"
    ),
    "null key in a batch": (
        "Compacted topic cannot accept message without key (record 0 of the batch and 3 more)"
    ),
    "null key in a compressed batch": (
        "Compacted topic cannot accept message without key (record 0 of the batch and 99 more)"
    ),
    "too old": ("record 0: Timestamp 5 is outside [1704067199500, 1704067201500]"),
    "too old among many": (
        "record 0 and 69 more: Timestamp 5 is outside [1704067199500, 1704067201500]"
    ),
    "too new": (
        "record 0: Timestamp 4611686018427387904 is outside [1704067199500, 1704067201500]"
    ),
    "negative time": ("record 0: Timestamp -2 is outside [1704067199500, 1704067201500]"),
    "negative time among many": (
        "record 0 and 69 more: Timestamp -2 is outside [1704067199500, 1704067201500]"
    ),
    "negative time in columns": (
        "record 0: Timestamp -2 is outside [1704067199500, 1704067201500]"
    ),
    "time of 65 bits": (
        "record 0: Timestamp 9223372036854775808 is outside [1704067199500, 1704067201500]"
    ),
    "time of 65 bits among many": (
        "record 0 and 69 more: Timestamp 9223372036854775808 is outside "
        "[1704067199500, 1704067201500]"
    ),
    "too large": "a batch of 2071 bytes exceeds max.message.bytes 1000",
    "too large in columns": "a batch of 2071 bytes exceeds max.message.bytes 1000",
    "too large as a batch": "a batch of 2072 bytes exceeds max.message.bytes 1000",
    "columns of different length": (
        "columns differ in length: 1 keys, 2 values, 2 timestamps, 2 headers"
    ),
    "bad CRC": (
        "batch at offset 0 has a bad CRC (stored crc = 1024731543, computed crc = 3481250452)"
    ),
    "bad magic": "magic 3 is not 2",
    "old format": (
        "buffer at position 0: message format v1 (magic 0 and 1) is not supported; "
        "the file is not changed"
    ),
    "base offset": "a client's batch has base offset 0, not 5",
    "two batches": "an append takes exactly one batch, not 2",
    "count below the delta": "2 records do not match last offset delta 2",
    "count above the delta": "3 records do not match last offset delta 1",
    "count above the records": "premature end: 3 of 4 records in 27 bytes",
    "count below the records": "records remaining: 9 bytes after 2 records",
    "no records": "0 records do not match last offset delta -1",
    "damaged compression": (
        "gzip member at byte 0 is damaged: Error -3 while decompressing data: "
        "incorrect header check"
    ),
    "a time that only the log gives, but which it did not": (
        "a producer's batch cannot carry LogAppendTime"
    ),
    "producer without a sequence": "a batch of producer 7 has no sequence: -1",
    "producer without an epoch": "a batch of producer 7 has no epoch: -1",
    "control batch": "clients may not write control batches",
}


@pytest.mark.parametrize("name", CLIENT_REFUSALS)
def test_a_refusal_changes_nothing(world, name):
    """Log, offsets and all bytes on disk are unchanged, although a roll was due."""
    log = world.log(
        cleanup_policy=("compact",),
        max_message_bytes=1000,
        message_timestamp_before_max_ms=1000,
        message_timestamp_after_max_ms=1000,
        segment_ms=10_000,
    )
    assert world.clock.now_ms() == NOW
    log.writer.append_records([NewRecord(b"k", b"v", -1)])
    log.flush()
    world.clock.advance(ms=500)
    action, error = CLIENT_REFUSALS[name]
    before = (world.files(), log.log_end_offset, log.high_watermark, log.recovery_point)
    epochs, view = log.epochs.entries, log.segments.view
    with pytest.raises(error) as caught:
        action(log)
    assert str(caught.value) == CLIENT_MESSAGES[name]
    assert before == (world.files(), log.log_end_offset, log.high_watermark, log.recovery_point)
    assert (epochs, view) == (log.epochs.entries, log.segments.view)
    log._check()
    assert log.writer.append_records([NewRecord(b"k", b"v")]).first_offset == 1


def test_a_log_that_takes_no_appends_refuses_them_before_it_judges_a_batch(world):
    """As in Kafka, the producer of an invalid batch first learns that another broker leads."""

    def refuse():
        raise NotLeaderForPartitionError("another broker leads")

    log = world.log(cleanup_policy=("compact",))
    log.writer.refuse = refuse
    with pytest.raises(NotLeaderForPartitionError):
        log.writer.append_batches(batch(0, key=None, timestamp=NOW))


def test_a_batch_of_just_the_greatest_size_passes(world):
    size = len(batch(0, value=b"v" * 500))
    log = world.log(max_message_bytes=size)
    log.writer.append_batches(batch(0, value=b"v" * 500))
    with pytest.raises(MessageSizeTooLargeError):
        log.writer.append_batches(batch(0, value=b"v" * 501))
    log.writer.append_batches(batch(1, value=b"v" * 501), REPLICA)


def test_a_set_larger_than_a_segment_is_refused_for_leader_and_follower(world):
    size = len(batch(0, value=b"v" * 500))
    log = world.log(segment_bytes=size - 1)
    with pytest.raises(RecordListTooLargeError):
        log.writer.append_batches(batch(0, value=b"v" * 500))
    with pytest.raises(RecordListTooLargeError):
        log.writer.append_batches(batch(0, value=b"v" * 500), REPLICA)
    assert log.log_end_offset == 0
    assert log.size_bytes == 0


def test_uncompressed_batches_may_grow_too_large_by_recompression(world):
    """The limit also applies to the stored batch."""
    value = random.Random(1).randbytes(900)
    size = len(batch(0, value=value))
    log = world.log(max_message_bytes=size, compression_type="gzip")
    with pytest.raises(MessageSizeTooLargeError):
        log.writer.append_batches(batch(0, value=value))
    assert log.size_bytes == 0


REPLICA_REFUSALS = {
    "offsets that fall": (batch(20, 22) + batch(21, 30), OffsetsOutOfOrderError),
    "the same batch twice": (batch(20) + batch(20), OffsetsOutOfOrderError),
    "below the log end": (batch(4, 12) + batch(13), UnexpectedAppendOffsetError),
    "no leader epoch": (batch(20, leader_epoch=-1), InvalidRecordError),
    "negative delta": (
        seal_batch(
            b"",
            base_offset=20,
            last_offset_delta=-1,
            record_count=0,
            base_timestamp=5,
            max_timestamp=5,
            partition_leader_epoch=0,
        ),
        InvalidRecordError,
    ),
    "more than 31 bits": (batch(20) + batch(20 + 2**31), InvalidRecordError),
    "bad CRC in the second": (batch(20) + damaged(batch(21)), CorruptRecordError),
    "a malformed marker": (
        batch(20) + batch(21, key=b"xx", producer_id=1, producer_epoch=0, is_control=True),
        InvalidRecordError,
    ),
    "plain data in an open transaction": (
        data_batch(20, 21, 1) + batch(22, producer_id=1, producer_epoch=0, base_sequence=2),
        InvalidTxnStateError,
    ),
    "plain data after a marker that compaction emptied": (
        data_batch(20, 21, 1)
        + empty_batch(RecordBatch(commit(22, 1)).header)
        + batch(23, producer_id=1, producer_epoch=0, base_sequence=2),
        InvalidTxnStateError,
    ),
    "plain data in a transaction open before": (
        batch(20, producer_id=9, producer_epoch=0, base_sequence=2),
        InvalidTxnStateError,
    ),
}


REPLICA_MESSAGES = {
    "offsets that fall": "offset 21 follows 22 in one append",
    "the same batch twice": "offset 20 follows 20 in one append",
    "below the log end": "first offset 4 is below the log end offset 10",
    "no leader epoch": (
        "a replicated batch at offset 20 has leader epoch -1 and last offset delta 0"
    ),
    "negative delta": (
        "a replicated batch at offset 20 has leader epoch 0 and last offset delta -1"
    ),
    "more than 31 bits": "offsets 20 to 2147483668 do not fit in one segment",
    "bad CRC in the second": (
        "batch at offset 21 has a bad CRC (stored crc = 868736336, computed crc = 3249299027)"
    ),
    "a malformed marker": (
        "a control record needs a key of at least 4 bytes, found a key of 2 bytes"
    ),
    "plain data in an open transaction": (
        "producer 1 writes outside a transaction at offset 22 while a transaction "
        "of the same append is open"
    ),
    "plain data after a marker that compaction emptied": (
        "producer 1 writes outside a transaction at offset 23 while a transaction "
        "of the same append is open"
    ),
    "plain data in a transaction open before": (
        "t-0: producer 9 writes outside a transaction while its transaction from offset 5 is open"
    ),
}


@pytest.mark.parametrize("name", REPLICA_REFUSALS)
def test_a_follower_refuses_as_a_whole(world, name):
    log = world.log()
    log.writer.append_batches(batch(0, 3) + data_batch(5, 9, 9), REPLICA)
    log.flush()
    data, error = REPLICA_REFUSALS[name]
    before = (world.files(), log.log_end_offset, log.segments.view, log.epochs.entries)
    with pytest.raises(error) as caught:
        log.writer.append_batches(data, REPLICA)
    assert str(caught.value) == REPLICA_MESSAGES[name]
    assert before == (world.files(), log.log_end_offset, log.segments.view, log.epochs.entries)
    if error is UnexpectedAppendOffsetError:
        assert (caught.value.first_offset, caught.value.last_offset) == (4, 13)
    log.producer_state._check()
    log.writer.append_batches(batch(10), REPLICA)


def test_a_follower_takes_offsets_31_bits_apart(world):
    log = world.log()
    log.writer.append_batches(batch(20) + batch(20 + INT32_MAX), REPLICA)
    assert [record.offset for record in records_of(log)] == [20, 20 + INT32_MAX]


def test_a_follower_keeps_gaps_and_bytes(world):
    log = world.log()
    data = [
        batch(5, 7, leader_epoch=2),
        batch(20, codec=Codec.LZ4, leader_epoch=2),
        batch(300, 301, leader_epoch=7),
    ]
    log.writer.append_batches(data[0] + data[1], REPLICA)
    log.writer.append_batches(data[2], REPLICA)
    assert world.files()[log_name(0)] == b"".join(data)
    assert log.log_end_offset == 302
    assert log.epochs.entries == (EpochEntry(2, 5), EpochEntry(7, 300))
    assert [record.offset for record in records_of(log)] == [5, 6, 7, 20, 300, 301]


# -- the end of all offsets --------------------------------------------------------------------

BEYOND = {
    "records": lambda log: log.writer.append_records([NewRecord(b"k", b"v")] * 3),
    "many records": lambda log: log.writer.append_records([NewRecord(b"k", b"v")] * 100),
    "columns": lambda log: columns_of_times(log, NOW, NOW, NOW),
    "a batch": lambda log: log.writer.append_batches(batch(0, 2)),
    "a batch to be compressed": lambda log: log.writer.append_batches(
        batch(0, 99, codec=Codec.ZSTD)
    ),
    "a replica's batch": lambda log: log.writer.append_batches(
        batch(INT64_MAX - 2, INT64_MAX), REPLICA
    ),
    "a replica's second batch": lambda log: log.writer.append_batches(
        batch(INT64_MAX - 2) + batch(INT64_MAX), REPLICA
    ),
}


@pytest.mark.parametrize("door", BEYOND)
def test_offsets_beyond_64_bits_are_refused(world, door):
    log = world.log(segment_bytes=10_000)
    log.truncate_fully_and_start_at(INT64_MAX - 3)
    log.writer.append_records([NewRecord(b"k", b"v")])
    before = (world.files(), log.log_end_offset, log.epochs.entries)
    with pytest.raises(InvalidRecordError, match=f"exceed {INT64_MAX - 1}, the maximum"):
        BEYOND[door](log)
    assert before == (world.files(), log.log_end_offset, log.epochs.entries)


def test_a_log_that_is_full_is_read_rolled_and_opened_as_any_other(world):
    log = world.log()
    log.truncate_fully_and_start_at(INT64_MAX - 3)
    sent = data_batch(0, 1, 7)
    assert log.writer.append_batches(sent).first_offset == INT64_MAX - 3
    log.writer.append_end_txn_marker(7, 0, 0, commit=False)
    with pytest.raises(InvalidRecordError, match=f"offsets {INT64_MAX} to {INT64_MAX} exceed"):
        log.writer.append_end_txn_marker(7, 0, 0, commit=True)
    assert log.writer.append_batches(sent).is_duplicate, "a duplicate needs no offset"
    assert (
        log.writer.roll().base_offset == log.log_end_offset == log.last_stable_offset == INT64_MAX
    )
    with pytest.raises(InvalidRecordError, match="exceed"):
        log.writer.append_records([NewRecord(b"k", b"v")])
    for clean in (True, False):
        log.close()
        log = world.log(clean=clean)
        assert log.log_end_offset == INT64_MAX
        assert [record.offset for record in records_of(log)] == [INT64_MAX - 3, INT64_MAX - 2]
        assert list(log.reader.records(INT64_MAX - 3, isolation=Isolation.READ_COMMITTED)) == []
    log.truncate_to(INT64_MAX - 1)
    assert log.writer.append_records([NewRecord(b"k", b"v")]).last_offset == INT64_MAX - 1


def test_no_segment_begins_beyond_64_bits(world):
    log = world.log()
    with pytest.raises(ValueError, match=f"cannot start t-0 at {2**63}"):
        log.truncate_fully_and_start_at(2**63)
    with pytest.raises(ValueError, match=f"t-0 has no offset {2**63}"):
        log.writer.roll(2**63)
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_records(2**63)
    assert (log.log_end_offset, len(log.segments)) == (0, 1)


# -- errors of single records ------------------------------------------------------------------


@pytest.mark.parametrize("count", (3, 90))
@pytest.mark.parametrize("timestamp", (2**63, -2, 2**80))
def test_timestamps_that_are_not_64_bit_numbers_are_each_named(world, count, timestamp):
    """By default the format is the only limit."""
    log = world.log(cleanup_policy=("compact",))
    times = [timestamp if row % 2 else 5 for row in range(count)]
    keys = [None if row == 2 else b"k" for row in range(count)]
    with pytest.raises(
        InvalidTimestampError, match=r"is outside \[-1, 9223372036854775807\]"
    ) as no:
        log.writer.append_records(
            [NewRecord(*each) for each in zip(keys, keys, times, strict=True)]
        )
    refusal = f"Timestamp {timestamp} is outside [-1, 9223372036854775807]"
    errors = [(row, refusal) for row in range(1, count, 2)]
    errors.insert(1, (2, "Compacted topic cannot accept message without key"))
    assert [*no.value.record_errors] == errors
    assert log.log_end_offset == 0


def test_a_record_obeys_the_settings_of_now(world):
    """Rules that were built for older settings are not used any more."""
    log = world.log()
    keyless = NewRecord(None, b"v")
    log.writer.append_record(keyless)
    log.set_config(LogConfig(cleanup_policy=("compact",), compression_type="gzip"))
    with pytest.raises(InvalidRecordError):
        log.writer.append_record(keyless)
    log.writer.append_record(NewRecord(b"k", b"v"))
    log.set_config(LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    assert log.writer.append_record(NewRecord(None, b"v", 5)).log_append_time == NOW
    codecs = [found.codec for found in batches_of(world.files()[log_name(0)])]
    assert codecs == [Codec.NONE, Codec.GZIP, Codec.NONE]
