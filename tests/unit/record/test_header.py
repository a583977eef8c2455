"""Batch headers: layout, attribute bits, derived values."""

import struct

import pytest

from logstore.errors import CorruptRecordError
from logstore.record import layout
from logstore.record.batch import RecordBatch, build_batch
from logstore.record.codecs import Codec, compress
from logstore.record.header import BatchHeader, increment_sequence, possible_record_count
from logstore.record.records import Record
from logstore.types import TimestampType
from tests.support.world import golden


def header_of(**changes):
    return BatchHeader.unpack_from(golden.G3)._replace(**changes)


@pytest.mark.parametrize("name", golden.BATCHES)
def test_golden_headers_pack_to_the_same_bytes(name):
    data = golden.BATCHES[name]
    header = BatchHeader.unpack_from(data)
    assert header.pack() == data[:61]
    assert header.size_bytes == len(data)
    assert header.magic == 2


def test_fields_of_g3():
    assert BatchHeader.unpack_from(b"x" + golden.G3, 1) == BatchHeader(
        base_offset=42,
        batch_length=58,
        partition_leader_epoch=3,
        magic=2,
        crc=0xB9B267A3,
        attributes=0,
        last_offset_delta=0,
        base_timestamp=1700000000123,
        max_timestamp=1700000000123,
        producer_id=4000,
        producer_epoch=7,
        base_sequence=11,
        record_count=1,
    )


def test_positions_of_the_layout_match_the_fields():
    """Each position constant reads its field alone."""
    header = BatchHeader(*range(1, 14))
    raw = header.pack()
    for field, position, code in (
        ("base_offset", layout.BASE_OFFSET_POSITION, ">q"),
        ("batch_length", layout.BATCH_LENGTH_POSITION, ">i"),
        ("partition_leader_epoch", layout.PARTITION_LEADER_EPOCH_POSITION, ">i"),
        ("magic", layout.MAGIC_POSITION, ">b"),
        ("crc", layout.CRC_POSITION, ">I"),
        ("attributes", layout.ATTRIBUTES_POSITION, ">h"),
        ("last_offset_delta", layout.LAST_OFFSET_DELTA_POSITION, ">i"),
        ("base_timestamp", layout.BASE_TIMESTAMP_POSITION, ">q"),
        ("max_timestamp", layout.MAX_TIMESTAMP_POSITION, ">q"),
        ("producer_id", layout.PRODUCER_ID_POSITION, ">q"),
        ("producer_epoch", layout.PRODUCER_EPOCH_POSITION, ">h"),
        ("base_sequence", layout.BASE_SEQUENCE_POSITION, ">i"),
        ("record_count", layout.RECORD_COUNT_POSITION, ">i"),
    ):
        assert struct.unpack_from(code, raw, position) == (getattr(header, field),)
    assert (layout.LOG_OVERHEAD, layout.HEADER_SIZE_UP_TO_MAGIC, layout.HEADER_SIZE) == (12, 17, 61)
    assert (layout.MIN_BATCH_LENGTH, layout.MAX_RECORD_OVERHEAD) == (14, 21)


def test_offsets_of_a_batch():
    header = header_of(base_offset=100, last_offset_delta=6)
    assert (header.last_offset, header.next_offset) == (106, 107)


def test_each_attribute_bit_answers_one_question():
    bits = {
        0x08: "timestamp_type",
        0x10: "is_transactional",
        0x20: "is_control",
        0x40: "has_delete_horizon",
    }
    for bit in bits:
        header = header_of(attributes=bit)
        answers = {name: bool(getattr(header, name)) for name in bits.values()}
        assert answers == {name: name == bits[bit] for name in bits.values()}
        assert header.codec_id == 0
    assert header_of(attributes=0x08).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header_of(attributes=0).timestamp_type is TimestampType.CREATE_TIME


def test_high_attribute_bits_mean_nothing():
    header = header_of(attributes=-256 | 0x80 | 4)
    assert header.codec_id == 4
    assert not header.is_transactional
    assert not header.is_control
    assert header.delete_horizon_ms is None


@pytest.mark.parametrize("codec_id", (5, 6, 7))
def test_unknown_codecs_are_named(codec_id):
    batch = RecordBatch(header_of(attributes=codec_id).pack() + b"\0")
    with pytest.raises(CorruptRecordError, match=f"unknown compression type id: {codec_id}"):
        batch.records()


def test_delete_horizon_is_the_base_timestamp_with_its_bit():
    assert header_of(attributes=0x40, base_timestamp=77).delete_horizon_ms == 77
    assert header_of(attributes=0, base_timestamp=77).delete_horizon_ms is None


def test_producer_id_is_there_from_zero_on():
    assert header_of(producer_id=0).has_producer_id
    assert not header_of(producer_id=-1).has_producer_id


def test_s005_sequences_wrap_to_zero():
    """S-005: base sequence 2147483640 and 12 records end at sequence 3; -1 stays -1."""
    records = [Record(offset, 0, b"k", b"v") for offset in range(12)]
    batch = build_batch(records, producer_id=1, producer_epoch=0, base_sequence=2147483640)
    header = RecordBatch(batch).header
    assert header.last_sequence == 3
    assert [increment_sequence(header.base_sequence, delta) for delta in range(12)] == [
        *range(2147483640, 2147483648),
        *range(4),
    ]
    header = header._replace(base_sequence=-1)
    assert header.last_sequence == -1
    assert {increment_sequence(-1, delta) for delta in range(12)} == {-1}


@pytest.mark.parametrize(
    ("sequence", "increment", "expected"),
    (
        (0, 0, 0),
        (0, 2**31 - 1, 2**31 - 1),
        (1, 2**31 - 1, 0),
        (2**31 - 1, 1, 0),
        (2**31 - 1, 2**31 - 1, 2**31 - 2),
    ),
)
def test_increment_sequence_at_the_border(sequence, increment, expected):
    assert increment_sequence(sequence, increment) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    (
        ({}, 5),
        # A record takes 7 bytes at least.
        ({"record_count": 100, "last_offset_delta": 99}, 14),
        ({"record_count": 2**31 - 1}, 5),
        ({"record_count": -1}, 0),
        ({"last_offset_delta": -3}, 0),
        ({"batch_length": 49}, 0),
        ({"record_count": 100, "last_offset_delta": 99, "attributes": 1}, 100),
        ({"record_count": 9**9, "last_offset_delta": 9**9, "attributes": 1}, 100 * 1032 // 7),
        ({"attributes": 6}, 0),
    ),
)
def test_count_is_no_more_than_offsets_and_bytes_leave_room_for(changes, expected):
    header = header_of(record_count=5, last_offset_delta=4, batch_length=49 + 100)
    assert header._replace(**changes).possible_record_count == expected


def test_no_codec_holds_more_than_is_believed():
    """What compresses best: one byte over and over, in records of the least size."""
    count = 100_000
    section = (bytes([12]) + bytes(6)) * count
    for codec in Codec:
        if codec is not Codec.NONE:
            size = layout.HEADER_SIZE + len(compress(codec, section))
            assert possible_record_count(count, count - 1, size, codec) == count
