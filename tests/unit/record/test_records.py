"""Records in plain Python: every read rule of storage-format §2, and encoding."""

import pytest

from logstore.errors import InvalidRecordError
from logstore.record.layout import MAX_RECORD_OVERHEAD
from logstore.record.records import (
    Record,
    decode_headers,
    decode_records,
    encode_headers,
    encode_record,
    encode_records,
)
from logstore.record.varint import encode_varint
from tests.support.world import golden

RECORDS = (
    Record(7, 1000, b"k1", b"v1"),
    Record(8, 900, None, b""),
    Record(12, 2**50, b"", None, (("h", b"1"), ("h", None), ("", b""))),
)


def with_body(*parts):
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def test_records_survive_coding():
    section = encode_records(RECORDS, 5, 1000)
    assert decode_records(section, 3, 5, 1000) == list(RECORDS)
    assert decode_records(memoryview(section), 3, 5, 1000) == list(RECORDS)
    assert encode_records((), 0, 0) == b""
    assert decode_records(b"", 0, 0, 0) == []


def test_append_time_replaces_every_timestamp():
    section = encode_records(RECORDS, 5, 1000)
    assert [r.timestamp for r in decode_records(section, 3, 5, 1000, append_time=77)] == [77] * 3


def test_golden_section():
    section = golden.G1[61:]
    assert encode_records(golden.G1_RECORDS, 0, 1000) == section
    assert decode_records(section, 3, 0, 1000) == list(golden.G1_RECORDS)


def test_smallest_record_takes_seven_bytes_and_the_overhead_is_bounded():
    assert len(encode_record(0, 0, None, None)) == 7
    largest = encode_record(-(2**63), 2**31 - 1, b"k" * 2**21, b"v" * 2**21)
    lengths = 2 * 4 + 1  # of key, value and header count
    assert len(largest) - 2**22 <= MAX_RECORD_OVERHEAD + lengths


@pytest.mark.parametrize(
    ("base", "timestamp"),
    ((-1, 2**63 - 1), (2**63 - 1, -(2**63)), (2**63 - 1, -1), (0, -(2**63)), (0, 2**63 - 1)),
)
def test_timestamps_wrap_at_64_bits(base, timestamp):
    """Additions and subtractions wrap as in Java; the pair returns its input."""
    section = encode_records([Record(0, timestamp, None, None)], 0, base)
    assert decode_records(section, 1, 0, base) == [Record(0, timestamp, None, None)]


def test_a_sum_beyond_64_bits_wraps():
    section = encode_record(2**63 - 1, 1, None, None)
    assert decode_records(section, 1, 2**63 - 1, 10)[0][:2] == (-(2**63), -(2**63) + 9)


def test_any_negative_length_reads_as_null():
    section = with_body(b"\0", b"\0\0", encode_varint(-5), encode_varint(-(2**31)), b"\0")
    assert decode_records(section, 1, 0, 0) == [Record(0, 0, None, None)]
    headers = encode_varint(1) + encode_varint(1) + b"h" + encode_varint(-9)
    assert decode_headers(headers, 0, len(headers)) == ((("h", None),), len(headers))


def test_record_attributes_are_ignored():
    section = with_body(b"\xff", b"\0\0", b"\x02k", b"\x01", b"\0")
    assert decode_records(section, 1, 0, 0) == [Record(0, 0, b"k", None)]


def test_header_names_that_are_not_utf_8_keep_their_bytes():
    raw = encode_varint(1) + encode_varint(2) + b"\xff\xc3" + b"\x01"
    headers, _ = decode_headers(raw, 0, len(raw))
    assert encode_headers(headers) == raw
    assert encode_headers((("ключ", "значение".encode()),))[1:2] == encode_varint(8)


def test_s003_counts_that_do_not_fit_the_bytes():
    """S-003: too few, too many and a negative number of records counted."""
    section = encode_records(RECORDS, 5, 1000)
    with pytest.raises(InvalidRecordError, match="records remaining"):
        decode_records(section, 2, 5, 1000)
    with pytest.raises(InvalidRecordError, match="premature end"):
        decode_records(section, 4, 5, 1000)
    with pytest.raises(InvalidRecordError, match="negative record count -1"):
        decode_records(section, -1, 5, 1000)
    with pytest.raises(InvalidRecordError, match="records remaining"):
        decode_records(section, 0, 5, 1000)


S004 = (
    (encode_varint(-1), "negative header count -1"),
    (encode_varint(3) + b"\x02h", "3 headers cannot fit"),
    (encode_varint(2**31 - 1), "headers cannot fit"),
    (encode_varint(1) + encode_varint(-1) + b"\x01", "negative header key length -1"),
)


@pytest.mark.parametrize(("headers", "message"), S004)
def test_s004_damaged_headers(headers, message):
    """S-004: header counts and header key lengths that cannot be."""
    with pytest.raises(InvalidRecordError, match=message):
        decode_records(encode_record(0, 0, b"k", b"v", headers), 1, 0, 0)


@pytest.mark.parametrize(
    ("section", "message"),
    (
        (b"\x00", "record of 0 bytes"),
        (b"\x01", "record of -1 bytes"),
        (b"\x80", "past the end"),
        (b"\x0e" + bytes(6), "record of 7 bytes in a section with 6 left"),
        (b"\x80\x80\x80\x80\x80\x01", "more than 5 bytes"),
        (with_body(b"\0"), "past the end"),
        (with_body(b"\0\0"), "past the end"),
        (with_body(b"\0\0\0"), "past the end"),
        (with_body(b"\0\0\0\1"), "past the end"),
        (with_body(b"\0\0\0\1\1"), "past the end"),
        (with_body(b"\0\0\1\1\1\0"), "negative offset delta -1"),
        (with_body(b"\0\0\0\4k\1\0"), "past the end"),
        (with_body(b"\0\0\0\x7ek\1\0"), "key of 63 bytes"),
        (with_body(b"\0\0\0\1\x7ev\0"), "value of 63 bytes"),
        (with_body(b"\0\0\0\1\1\0\0"), "1 bytes left unread"),
        (with_body(b"\0\0\0\1\1\2\x7eh"), "header key of 63 bytes"),
        (with_body(b"\0\0\0\1\1\2\2h\x7ev"), "header value of 63 bytes"),
        (with_body(b"\0", b"\x80" * 10, b"\0\0\1\1\0"), "more than 10 bytes"),
        (with_body(b"\0\0", b"\x80" * 5, b"\0\1\1\0"), "more than 5 bytes"),
    ),
)
def test_each_read_rule_is_enforced(section, message):
    with pytest.raises(InvalidRecordError, match=message):
        decode_records(section, 1, 0, 0)
    with pytest.raises(InvalidRecordError):
        # More bytes after the record must not save it.
        decode_records(section + bytes(64), 1, 0, 0)
