"""Kernels against their oracles in plain Python, for any input that Hypothesis generates.

Kernels: `read_i16`, `read_i32`, `read_i64`, `write_be`, `crc32c`, `crc32c_u64_by_tables`,
`read_varint`, `write_varint`, `varint_size`, `check_headers`, `decode_records` over `read_record`,
`encode_batches` (and `copy_bytes`, which it uses), `find_bounds`.
"""

from itertools import pairwise

import google_crc32c
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given, settings

from logstore.errors import InvalidRecordError
from logstore.jit import crc32c
from logstore.record import kernels, records
from logstore.record.batch import pack_batch
from logstore.record.columns import (
    BytesColumn,
    decode_section,
    encode_batches,
    find_bounds,
    headers_column,
)
from logstore.record.layout import MAX_RECORD_OVERHEAD
from logstore.record.varint import decode_varint, decode_varlong, encode_varint
from tests.support.world.record_strategies import INT32, INT64, damaged, record_lists, timestamps

pytestmark = pytest.mark.skipif(
    not hasattr(kernels.crc32c, "signatures"),
    reason="kernels run as plain Python, where overflow warns instead of wrapping",
)

# Many continuation bits, so that limits and ends are met.
varint_bytes = st.lists(st.one_of(st.integers(0x80, 0xFF), st.integers(0, 0xFF)), max_size=14).map(
    bytes
)


def outcome(function, *arguments):
    """Return a decoder's result, or None if it refuses."""
    try:
        return function(*arguments)
    except InvalidRecordError:
        return None


# --- integers ---------------------------------------------------------------------------------


@given(small=INT32, large=INT64, lead=st.integers(0, 3))
def test_big_endian_integers(small, large, lead):
    big = small.to_bytes(4, "big", signed=True) + large.to_bytes(8, "big", signed=True)
    data = np.frombuffer(bytes(lead) + big, np.uint8)
    assert kernels.read_i16(data, lead) == small >> 16
    assert kernels.read_i32(data, lead) == small
    assert kernels.read_i64(data, lead + 4) == large
    out = np.zeros(len(data), np.uint8)
    assert kernels.write_be(out, lead, np.int64(small), 4) == lead + 4
    assert kernels.write_be(out, lead + 4, np.int64(large), 8) == len(data)
    assert out.tobytes() == data.tobytes()


# --- CRC-32C ----------------------------------------------------------------------------------


@given(data=st.binary(max_size=200), start=st.integers(0, 200), end=st.integers(0, 200))
@settings(deadline=None)
def test_crc32c_of_any_slice(data, start, end):
    end = min(end, len(data))
    start = min(start, end)
    result = kernels.crc32c(np.frombuffer(data, np.uint8), start, end)
    assert result == google_crc32c.value(data[start:end])


@given(data=st.binary(max_size=120))
@settings(deadline=None)
def test_crc32c_by_tables(data):
    """`crc32c_u64_by_tables`, word by word, the rest byte by byte."""
    register = np.uint64(0xFFFFFFFF)
    whole = len(data) // 8 * 8
    for position in range(0, whole, 8):
        word = np.uint64(int.from_bytes(data[position : position + 8], "little"))
        register = np.uint64(crc32c.crc32c_u64_by_tables(register, word))
    crc = int(register) ^ 0xFFFFFFFF
    assert google_crc32c.extend(crc, data[whole:]) == google_crc32c.value(data)


# --- varints ----------------------------------------------------------------------------------


@given(value=st.one_of(INT64, timestamps), lead=st.integers(0, 3))
@settings(deadline=None)
def test_write_varint_and_varint_size(value, lead):
    expected = encode_varint(value)
    out = np.zeros(lead + 10, np.uint8)
    assert kernels.varint_size(np.int64(value)) == len(expected)
    assert kernels.write_varint(out, lead, np.int64(value)) == lead + len(expected)
    assert out[lead : lead + len(expected)].tobytes() == expected
    assert decode_varlong(expected, 0, len(expected)) == (value, len(expected))
    if -(2**31) <= value < 2**31:
        assert decode_varint(expected, 0, len(expected)) == (value, len(expected))


@given(data=varint_bytes, position=st.integers(0, 14), end=st.integers(0, 14))
@example(data=b"\x80" * 4 + b"\x7f", position=0, end=5)
@example(data=b"\x80" * 5 + b"\x00", position=0, end=6)
@example(data=b"\xff" * 9 + b"\x7f", position=0, end=10)
@example(data=b"\x80" * 10 + b"\x00", position=0, end=11)
@settings(deadline=None, max_examples=500)
def test_read_varint(data, position, end):
    end = min(end, len(data))
    for decode, max_bytes in ((decode_varint, 5), (decode_varlong, 10)):
        expected = outcome(decode, data, position, end)
        value, after = kernels.read_varint(np.frombuffer(data, np.uint8), position, end, max_bytes)
        if expected is None:
            assert after == -1
        else:
            assert (value, after) == expected


# --- headers and records ----------------------------------------------------------------------


@given(data=st.data(), generated=record_lists(min_size=1, max_size=1))
@settings(deadline=None)
def test_check_headers(data, generated):
    _, (record,) = generated
    raw = records.encode_headers(record.headers)
    raw = data.draw(st.one_of(st.just(raw), damaged(raw)))
    expected = outcome(records.decode_headers, raw, 0, len(raw))
    status, after = kernels.check_headers(np.frombuffer(raw, np.uint8), 0, len(raw))
    if expected is None:
        assert status not in (kernels.OK, kernels.PREMATURE_END, kernels.RECORDS_REMAINING)
    else:
        assert (status, after) == (kernels.OK, expected[1])


@given(generated=record_lists(), base_timestamp=timestamps, append_time=st.none() | timestamps)
@settings(deadline=None)
def test_decode_records(generated, base_timestamp, append_time):
    base, expected = generated
    section = records.encode_records(expected, base, base_timestamp)
    if append_time is not None:
        expected = [record._replace(timestamp=append_time) for record in expected]
    arguments = (section, len(expected), base, base_timestamp, append_time)
    assert records.decode_records(*arguments) == expected
    columns = decode_section(*arguments)
    assert columns.to_records() == expected
    assert [columns.headers(row) for row in range(len(expected))] == [r.headers for r in expected]
    assert [columns.keys[row] for row in range(len(expected))] == [r.key for r in expected]
    assert [columns.values[row] for row in range(len(expected))] == [r.value for r in expected]


@given(
    generated=record_lists(dense=True),
    cuts=st.sets(st.integers(1, 8)),
    epoch=INT32,
    attributes=st.sampled_from((0, 8)),
    has_headers=st.booleans(),
)
@settings(deadline=None)
def test_encode_batches(generated, cuts, epoch, attributes, has_headers):
    _, plain = generated
    if not has_headers:
        plain = [record._replace(headers=()) for record in plain]
    bounds = sorted({0, len(plain), *(cut for cut in cuts if cut < len(plain))})
    data, extents = encode_batches(
        np.array([record.timestamp for record in plain], np.int64),
        BytesColumn.from_list([record.key for record in plain]),
        BytesColumn.from_list([record.value for record in plain]),
        headers_column([record.headers for record in plain], len(plain)) if has_headers else None,
        bounds,
        first_offset=9,
        leader_epoch=epoch,
        attributes=attributes,
    )
    expected, rows = [], []
    for first, last in pairwise(bounds):
        batch = [record._replace(offset=9 + row) for row, record in enumerate(plain)][first:last]
        base, times = batch[0].timestamp, [record.timestamp for record in batch]
        section = records.encode_records(batch, 9 + first, base)
        under_crc = (attributes, last - first - 1, base, max(times), -1, -1, -1, last - first)
        expected.append(pack_batch(section, 9 + first, epoch, *under_crc))
        rows.append([8 + last, max(times), len(expected[-1])])
    assert bytes(data) == b"".join(expected)
    assert extents.tolist() == rows


@given(
    sizes=st.lists(st.tuples(st.integers(-1, 60), st.integers(-1, 60)), min_size=1, max_size=40),
    room=st.integers(1, 400),
    most=st.integers(1, 12),
)
@settings(deadline=None)
def test_find_bounds(sizes, room, most):
    """A batch is full exactly when the next record would not fit."""
    columns = [
        BytesColumn.from_list([None if size < 0 else bytes(size) for size in column])
        for column in zip(*sizes, strict=True)
    ]
    bounds = find_bounds(*columns, room, most)
    assert (bounds[0], bounds[-1]) == (0, len(sizes))
    taken = [MAX_RECORD_OVERHEAD + max(key, 0) + max(value, 0) for key, value in sizes]
    for first, last in pairwise(bounds):
        held = last - first
        assert held == 1 or (sum(taken[first:last]) <= room and held <= most)
        assert last == len(sizes) or sum(taken[first : last + 1]) > room or held == most


@given(data=st.data(), generated=record_lists(max_size=4), base_timestamp=timestamps)
@settings(deadline=None, max_examples=600)
def test_decode_records_of_damaged_sections(data, generated, base_timestamp):
    """Kernel and oracle accept the same sections and read the same out of them."""
    base, plain = generated
    section = data.draw(damaged(records.encode_records(plain, base, base_timestamp)))
    count = len(plain) + data.draw(st.sampled_from([0, 0, 0, -1, 1, 2**31 - 1 - len(plain)]))
    arguments = (section, count, base, base_timestamp)
    expected = outcome(records.decode_records, *arguments)
    columns = outcome(decode_section, *arguments)
    assert (columns is None) == (expected is None)
    if columns is not None:
        assert columns.to_records() == expected
