"""Messages of magic 0 and 1: their fields, the sets of them, and the batches they are read as."""

import pytest

from logstore.errors import CorruptionError, InvalidRecordError
from logstore.record import legacy
from logstore.record.records import Record
from logstore.types import TimestampType
from tests.support.world.legacy import LOG_APPEND_TIME, compressed_set, message
from tests.support.world.messages import exactly

LIMIT = 1 << 20


def records(data):
    return legacy.parse_message(data).records(LIMIT)


@pytest.mark.parametrize("magic", (0, 1))
@pytest.mark.parametrize(("key", "value"), ((b"k", b"v"), (None, b""), (b"", None), (None, None)))
def test_fields_of_a_message(magic, key, value):
    data = message(7, key, value, magic=magic, timestamp=1234)
    parsed = legacy.parse_message(data)
    assert legacy.is_sound(data)
    assert parsed.size_bytes == len(data)
    assert parsed.timestamp_type is (TimestampType.CREATE_TIME if magic else None)
    assert records(data) == [Record(7, 1234 if magic else -1, key, value)]


def test_offsets_in_a_set_are_relative_in_magic_1_and_absolute_in_magic_0():
    rows = [(5, b"a", b"1"), (6, b"b", None), (9, b"c", b"3")]
    for magic in (0, 1):
        found = records(compressed_set(rows, magic=magic, timestamp=8))
        assert [(each.offset, each.key, each.value) for each in found] == rows
        assert {each.timestamp for each in found} == {8 if magic else -1}


def test_a_set_whose_own_offset_was_left_at_zero_keeps_those_inside():
    data = bytearray(compressed_set([(0, b"a", b"1"), (1, b"b", b"2")], timestamp=3))
    data[:8] = bytes(8)
    assert [record.offset for record in records(bytes(data))] == [0, 1]


def test_the_log_s_append_time_matches_every_message():
    data = compressed_set([(0, b"a", b"1"), (1, b"b", b"2")], timestamp=50, appended=True)
    parsed = legacy.parse_message(data)
    batch = parsed.batch(LIMIT)
    assert batch.header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in batch.records()] == [50, 50]
    alone = legacy.parse_message(message(3, b"k", b"v", timestamp=4, attributes=LOG_APPEND_TIME))
    assert alone.batch(LIMIT).header.timestamp_type is TimestampType.LOG_APPEND_TIME


def test_a_batch_spans_the_offsets_and_is_valid():
    batch = legacy.parse_message(compressed_set([(5, b"a", b"1"), (9, b"c", b"3")])).batch(LIMIT)
    assert (batch.header.base_offset, batch.header.last_offset) == (5, 9)
    assert batch.is_valid()


def test_trailing_bytes_of_a_message_are_refused():
    data = message(0, b"key", b"value")
    long_key = data.replace(b"\x00\x00\x00\x03key", b"\x00\x00\x00\x70key")
    for wrong in (data[:17], data[:-1], data + b"x", long_key):
        with pytest.raises(InvalidRecordError):
            legacy.parse_message(wrong)


def test_a_set_in_a_set_an_empty_one_and_a_damaged_one_are_refused():
    inner = compressed_set([(0, b"a", b"1")])
    for rows, change in (([(0, None, inner)], 0), ([(0, b"a", b"1")], 1)):
        data = bytearray(compressed_set(rows))
        if change:
            data[-9] ^= 0xFF
            with pytest.raises(
                (InvalidRecordError, CorruptionError),
                match=exactly(
                    "gzip member at byte 0 is damaged: Error -3 while decompressing data: "
                    "invalid distance code"
                ),
            ):
                records(bytes(data))
        else:
            assert records(bytes(data))[0].value == inner  # a value is a value
    with pytest.raises(InvalidRecordError, match=exactly("a compressed message without a value")):
        records(message(0, None, None, attributes=1))
