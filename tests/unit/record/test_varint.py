"""Varints in plain Python: known encodings, limits, damage."""

import pytest

from logstore.errors import InvalidRecordError
from logstore.record.varint import decode_varint, decode_varlong, encode_varint, wrap_int64
from tests.support.world.messages import exactly

KNOWN = (
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (63, "7e"),
    (-64, "7f"),
    (64, "8001"),
    (-65, "8101"),
    (8191, "fe7f"),
    (-8192, "ff7f"),
    (8192, "808001"),
    (-4095, "fd3f"),
    (2**31 - 1, "feffffff0f"),
    (-(2**31), "ffffffff0f"),
)
KNOWN_LONG = (
    (2**31, "8080808010"),
    (-(2**31) - 1, "8180808010"),
    (2**63 - 1, "feffffffffffffffff01"),
    (-(2**63), "ffffffffffffffffff01"),
)


@pytest.mark.parametrize(("value", "encoded"), KNOWN)
def test_known_varints(value, encoded):
    data = bytes.fromhex(encoded)
    assert encode_varint(value) == data
    assert decode_varint(data, 0, len(data)) == (value, len(data))
    assert decode_varlong(data, 0, len(data)) == (value, len(data))


@pytest.mark.parametrize(("value", "encoded"), KNOWN_LONG)
def test_known_varlongs(value, encoded):
    data = bytes.fromhex(encoded)
    assert encode_varint(value) == data
    assert decode_varlong(b"\xff" + data + b"\xff", 1, 1 + len(data)) == (value, 1 + len(data))


@pytest.mark.parametrize("data", ("8000", "808000", "8080808000"))
def test_encodings_longer_than_need_be_are_read_within_the_limit(data):
    raw = bytes.fromhex(data)
    assert decode_varint(raw, 0, len(raw)) == (0, len(raw))


def test_the_limits_are_five_and_ten_bytes():
    """Continuation in the last byte allowed is an error even if more bytes would follow."""
    assert decode_varlong(b"\x80" * 9 + b"\x00", 0, 10) == (0, 10)
    with pytest.raises(InvalidRecordError, match="more than 5 bytes"):
        decode_varint(b"\x80" * 5 + b"\x00", 0, 6)
    with pytest.raises(InvalidRecordError, match="more than 10 bytes"):
        decode_varlong(b"\x80" * 10 + b"\x00", 0, 11)


def test_bits_beyond_the_width_fall_off():
    assert decode_varint(bytes.fromhex("ffffffff7f"), 0, 5) == (-(2**31), 5)
    assert decode_varint(bytes.fromhex("8080808070"), 0, 5) == (0, 5)
    assert decode_varlong(b"\xff" * 9 + b"\x7f", 0, 10) == (-(2**63), 10)


@pytest.mark.parametrize("decode", (decode_varint, decode_varlong))
@pytest.mark.parametrize(("data", "position", "end"), (("", 0, 0), ("80", 0, 1), ("00", 1, 1)))
def test_running_past_the_end_is_an_error(decode, data, position, end):
    with pytest.raises(InvalidRecordError, match="past the end"):
        decode(bytes.fromhex(data), position, end)


def test_the_end_given_counts_and_not_the_buffers():
    with pytest.raises(
        InvalidRecordError, match=exactly("varint runs past the end of its record at byte 1")
    ):
        decode_varint(bytes.fromhex("8001"), 0, 1)


@pytest.mark.parametrize(
    ("value", "wrapped"),
    (
        (0, 0),
        (-1, -1),
        (2**63 - 1, 2**63 - 1),
        (2**63, -(2**63)),
        (-(2**63) - 1, 2**63 - 1),
        (2**64 + 5, 5),
    ),
)
def test_wrap_int64(value, wrapped):
    assert wrap_int64(value) == wrapped
