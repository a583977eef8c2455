"""The versions that records state, decoded in columns, against plain Python."""

import random

import pytest

pytest.importorskip("pyspark")

from logstore.record.varint import encode_varint
from logstore.spark.oracle import versions
from logstore.spark.oracle.versions import parse_long, parse_varlong, parse_version
from tests.support.world.frames import frame_of

NUMBERS = (0, 1, -1, 63, 64, -64, -65, 2**31, -(2**31), 2**62, 2**63 - 1, -(2**63))


def plain_varlong(data):
    """Decode as the specification says: None if it is not a complete varlong."""
    if data is None or not 1 <= len(data) <= 10:
        return None
    if any(byte < 0x80 for byte in data[:-1]) or data[-1] >= 0x80:
        return None
    raw = sum((byte & 0x7F) << 7 * at for at, byte in enumerate(data)) % 2**64
    return raw // 2 if raw % 2 == 0 else -(raw // 2) - 1


def samples():
    rng = random.Random(1)
    yield from (None, b"", b"\x80", b"\xff" * 9, b"\x80" * 10, b"\x80" * 9 + b"\x01", b"\x01\x00")
    yield from (b"\xff" * 9 + b"\x7f", b"\xff" * 9 + b"\x01", b"\x80\x00", b"\x80" * 9 + b"\x00")
    yield from (b"\x80" * 10 + b"\x00", b"\x00" * 8, b"\xff" * 8, b"\x7f", b"x" * 200)
    for number in (
        *NUMBERS,
        *(rng.randrange(-(2**63), 2**63) >> rng.randrange(64) for _ in range(200)),
    ):
        encoded = encode_varint(number)
        assert plain_varlong(encoded) == number
        yield encoded
        yield number.to_bytes(8, "big", signed=True)
        yield encoded[:-1]
        yield encoded + bytes([rng.randrange(256)])
        yield bytes(rng.randrange(256) for _ in range(rng.randrange(12)))
        yield bytes(
            [*(rng.randrange(128, 256) for _ in range(rng.randrange(11))), rng.randrange(128)]
        )


def test_versions_are_decoded_as_specified(frames):
    given = [*samples()]
    frame = frame_of(frames, [(value,) for value in given], "value binary").coalesce(1)
    is_varlong, number = parse_varlong(versions.F.col("value"))
    is_long, word = parse_long(versions.F.col("value"))
    rows = frame.select(
        "value",
        is_varlong.alias("is_varlong"), versions.F.when(is_varlong, number).alias("number"),
        is_long.alias("is_long"), versions.F.when(is_long, word).alias("word"),
    ).collect()  # fmt: skip
    assert len(rows) == len(given) > 1_000
    for row in rows:
        value = None if row.value is None else bytes(row.value)
        expected = plain_varlong(value)
        assert (row.is_varlong, row.number) == (expected is not None, expected), value
        long = value is not None and len(value) == 8
        word = int.from_bytes(value, "big", signed=True) if long else None
        assert (row.is_long, row.word) == (long, word), value
    assert sum(row.is_varlong for row in rows) > 400
    assert sum(not row.is_varlong for row in rows) > 400


def test_the_last_header_of_the_name_decides(frames):
    five, six = encode_varint(5), encode_varint(-6)
    headers = [
        None,
        [],
        [("v", five)],
        [("v", five), ("v", six)],
        [("v", five), ("v", None)],
        [("v", None), ("v", six), ("w", five)],
        [("w", five)],
    ]
    frame = frame_of(
        frames,
        [(at, each) for at, each in enumerate(headers)],
        "at int, headers array<struct<key:string,value:binary>>",
    )
    present, number = parse_version("header", "v", "varlong")
    rows = (
        frame.select("at", versions.F.when(present, number).alias("number")).orderBy("at").collect()
    )
    assert [row.number for row in rows] == [None, None, 5, -6, None, -6, None]
