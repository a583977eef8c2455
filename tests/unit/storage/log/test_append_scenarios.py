"""Appending and validation, scenario by scenario (group F of the scenarios).

S-059, S-060, S-061, S-066 and S-067 are in `test_append.py`.
"""

import random

import pytest

from logstore.errors import (
    CorruptRecordError,
    InvalidRecordError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    UnexpectedAppendOffsetError,
)
from logstore.record.batch import RecordBatch, build_batch
from logstore.record.codecs import Codec
from logstore.record.header import BatchHeader
from logstore.record.records import Record
from logstore.storage.log import NewRecord
from logstore.types import NO_TIMESTAMP, AppendOrigin
from tests.support.world.builders import batch, batches_of, log_name, offsets_of, records_of
from tests.support.world.messages import exactly

REPLICA = AppendOrigin.REPLICATION
COORDINATOR = AppendOrigin.COORDINATOR


def stored(world):
    """Return the only batch in the log's first segment."""
    [only] = batches_of(world.files()[log_name(0)])
    return only


def producer_fields(header: BatchHeader):
    return (
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.is_transactional,
        header.is_control,
    )


def test_s054_first_append_to_an_empty_log(world):
    log = world.log()
    info = log.writer.append_batches(batch(0, 2, leader_epoch=-1), leader_epoch=9)
    assert (info.first_offset, info.last_offset, log.log_end_offset) == (0, 2, 3)
    assert stored(world).header.partition_leader_epoch == 9
    stored(world).ensure_valid()
    assert log.writer.append_records([NewRecord(b"k", b"v")]).first_offset == 3


@pytest.mark.parametrize("log_end", (0, 4, 5))
def test_s055_a_base_offset_is_for_followers_only(world, log_end):
    """A client passes 0; a follower any offset that is not below the log end."""
    log = world.log()
    if log_end:
        log.writer.append_batches(batch(0, log_end - 1), REPLICA)
    before = world.files()
    with pytest.raises(
        InvalidRecordError, match=exactly("a client's batch has base offset 0, not 5")
    ):
        log.writer.append_batches(batch(5))
    assert (world.files(), log.log_end_offset) == (before, log_end)
    info = log.writer.append_batches(batch(5), REPLICA)
    assert (info.first_offset, log.log_end_offset) == (5, 6)
    assert records_of(log, 5)[0].offset == 5
    with pytest.raises(UnexpectedAppendOffsetError):
        log.writer.append_batches(batch(5), REPLICA)


def test_s056_max_message_bytes_binds_clients(world):
    """The whole batch counts, including its header; a larger one is not written."""
    fits, exceeds = batch(0, value=b"v" * 500), batch(0, value=b"v" * 501)
    log = world.log(max_message_bytes=len(fits))
    assert len(exceeds) == len(fits) + 1
    before = world.files()
    with pytest.raises(
        MessageSizeTooLargeError,
        match=exactly("a batch of 573 bytes exceeds max.message.bytes 572"),
    ):
        log.writer.append_batches(exceeds)
    assert (world.files(), log.log_end_offset, log.size_bytes) == (before, 0, 0)
    assert log.writer.append_batches(fits).size_bytes == log.config.max_message_bytes
    assert log.writer.append_batches(batch(1, value=b"v" * 501), REPLICA).records == 1
    assert log.size_bytes == len(fits) + len(exceeds)


def test_s057_a_set_must_fit_in_a_segment_for_all_senders(world):
    """The set of a follower is all its batches together."""
    one = batch(0, value=b"v" * 100)
    two = one + batch(1, value=b"v" * 100)
    log = world.log(segment_bytes=len(two) - 1)
    before = world.files()
    with pytest.raises(
        RecordListTooLargeError, match=exactly("a set of 344 bytes exceeds segment.bytes 343")
    ):
        log.writer.append_batches(two, REPLICA)
    for origin in (AppendOrigin.CLIENT, REPLICA):
        large = batch(0, value=b"v" * (100 + len(one)))
        assert len(large) > log.config.segment_bytes
        with pytest.raises(
            RecordListTooLargeError, match=exactly("a set of 344 bytes exceeds segment.bytes 343")
        ):
            log.writer.append_batches(large, origin)
    assert (world.files(), log.log_end_offset, len(log.segments)) == (before, 0, 1)
    log.close()
    assert world.log(segment_bytes=len(two)).writer.append_batches(two, REPLICA).size_bytes == len(
        two
    )


@pytest.mark.parametrize("origin", (AppendOrigin.CLIENT, COORDINATOR))
def test_s058_the_topics_codec_overrules_the_producers(world, origin):
    """Records and, if the origin allows them, the producer fields are the same."""
    producer = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 11}
    fields = {**producer, "is_transactional": True} if origin is COORDINATOR else {}
    records = [
        Record(0, 1000, b"a", b"1" * 50, (("h", b"x"), ("n", None))),
        Record(1, 900, b"b", None, ()),
        Record(2, 1100, b"", b"", ()),
    ]
    plain = build_batch(records, **fields)
    log = world.log(compression_type="gzip")
    log.writer.append_batches(plain, origin)
    kept = stored(world)
    kept.ensure_valid()
    assert kept.codec is Codec.GZIP
    assert list(kept.records()) == list(RecordBatch(plain).records()) == records
    assert producer_fields(kept.header) == producer_fields(RecordBatch(plain).header)
    assert kept.header.producer_id == (7 if origin is COORDINATOR else -1)
    assert kept.header.max_timestamp == 1100


def test_s058_compression_type_producer_keeps_the_bytes(world):
    """All bytes after the header, and the header fields that the log does not set."""
    data = batch(0, 9, codec=Codec.ZSTD)
    log = world.log()
    log.writer.append_batches(batch(0))
    log.writer.append_batches(data, leader_epoch=4)
    kept = batches_of(world.files()[log_name(0)])[1]
    assert kept.data[61:] == data[61:]
    given = RecordBatch(data).header
    assert kept.header == given._replace(base_offset=1, partition_leader_epoch=4)


def test_s058_compression_type_uncompressed_unpacks(world):
    data = batch(0, 9, codec=Codec.LZ4)
    log = world.log(compression_type="uncompressed")
    log.writer.append_batches(data)
    kept = stored(world)
    assert kept.codec is Codec.NONE
    assert kept.data == batch(0, 9)


def test_s062_a_follower_never_goes_back(world):
    """The error has the offsets, so that the caller can restart the log there."""
    log = world.log()
    log.writer.append_batches(batch(0, 2), REPLICA)
    with pytest.raises(
        UnexpectedAppendOffsetError, match=exactly("first offset 0 is below the log end offset 3")
    ) as caught:
        log.writer.append_batches(batch(0, 2) + batch(3, 4), REPLICA)
    assert (caught.value.first_offset, caught.value.last_offset) == (0, 4)
    assert (log.log_end_offset, offsets_of(world.files()[log_name(0)])) == (3, [0, 1, 2])


def test_s062_a_log_that_starts_above_zero_takes_nothing_below(world):
    log = world.log(log_start_offset=7)
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)
    with pytest.raises(
        UnexpectedAppendOffsetError, match=exactly("first offset 4 is below the log end offset 7")
    ) as caught:
        log.writer.append_batches(batch(4, 6), REPLICA)
    assert (caught.value.first_offset, caught.value.last_offset) == (4, 6)
    assert log.log_end_offset == 7
    assert log.writer.append_batches(batch(7), REPLICA).first_offset == 7


@pytest.mark.parametrize("codec", (Codec.NONE, Codec.LZ4))
@pytest.mark.parametrize("segment_bytes", (1 << 20, 700))
def test_s063_a_followers_gaps_are_kept_and_read_across(world, codec, segment_bytes):
    """In one segment and over many, each sparsely indexed."""
    offsets = [*range(50), *range(50, 200, 7)]
    log = world.log(segment_bytes=segment_bytes, index_interval_bytes=200)
    for offset in offsets:
        log.writer.append_batches(batch(offset, timestamp=1000 + offset, codec=codec), REPLICA)
    assert (len(log.segments) > 1) == (segment_bytes == 700)
    assert log.log_end_offset == offsets[-1] + 1
    for start in range(log.log_end_offset):
        found = offsets_of(log.reader.read(start, 1, min_one_message=True).data)
        assert found[0] == next(offset for offset in offsets if offset >= start)
        assert next(log.reader.records(start))[1].offset == found[0]
    assert [record.offset for record in records_of(log)] == offsets
    assert [record.value for record in records_of(log)] == [b"v%d" % offset for offset in offsets]


def test_s064_a_wrong_crc_is_refused_and_a_torn_tail_dropped(world):
    """A bit is flipped in each byte that the CRC covers, and in the CRC itself."""
    whole = batch(0, 1)
    log = world.log()
    before = world.files()
    for position in range(17, len(whole)):
        flipped = bytearray(whole)
        flipped[position] ^= 1
        for origin in (AppendOrigin.CLIENT, REPLICA):
            with pytest.raises(CorruptRecordError):
                log.writer.append_batches(bytes(flipped), origin)
    assert (world.files(), log.log_end_offset, log.high_watermark) == (before, 0, 0)
    info = log.writer.append_batches(whole + batch(2)[:10])
    assert (info.records, info.size_bytes) == (2, len(whole))
    assert stored(world).data == whole
    log._check()


def test_s065_a_null_value_is_a_tombstone(world):
    """Its stored size is the varint of -1; it is not an empty value."""
    log = world.log(cleanup_policy=("compact",))
    log.writer.append_records([NewRecord(b"k", None, 1000)])
    log.writer.append_records([NewRecord(b"k", b"", 1000)])
    tombstone, empty = records_of(log)
    assert (tombstone.key, tombstone.value, empty.value) == (b"k", None, b"")
    first, second = batches_of(world.files()[log_name(0)])
    # length, attributes, two deltas, key size and key, value size, header count
    assert first.data[61:] == bytes((7 << 1, 0, 0, 0, 1 << 1)) + b"k" + bytes((1, 0))
    assert second.data[61:] == bytes((7 << 1, 0, 0, 0, 1 << 1)) + b"k" + bytes((0, 0))
    log.close()
    assert [record.value for record in records_of(world.log(cleanup_policy=("compact",)))] == [
        None,
        b"",
    ]


def test_s060_many_records_are_named_each_by_its_index(world):
    """All records with their bounds; the message names one and counts the others."""
    log = world.log(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000)
    now_ms = world.clock.now_ms()
    times = [now_ms, now_ms - 1001, NO_TIMESTAMP, now_ms + 1001, now_ms + 1000]
    with pytest.raises(InvalidRecordError) as caught:
        log.writer.append_records([NewRecord(b"k", b"v", time) for time in times])
    bounds = f"is outside [{now_ms - 1000}, {now_ms + 1000}]"
    assert caught.value.record_errors == (
        (1, f"Timestamp {now_ms - 1001} {bounds}"),
        (3, f"Timestamp {now_ms + 1001} {bounds}"),
    )
    rng = random.Random(3)
    many = [rng.choice((0, 5)) for _ in range(100)]
    with pytest.raises(InvalidRecordError, match=r"^record 0 and 99 more: Timestamp") as caught:
        log.writer.append_records([NewRecord(b"k", b"v", time) for time in many])
    assert [row for row, _ in caught.value.record_errors] == list(range(100))
    assert log.log_end_offset == 0
