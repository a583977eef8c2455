"""Kernels of logstore.record and the instructions of logstore.jit, case by case.

What holds for any input is in tests/property/test_record_kernels.py.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

import google_crc32c
import numpy as np
import pytest

from logstore.jit import crc32c
from logstore.record import kernels
from logstore.record.batch import build_batch
from logstore.record.records import Record, encode_headers, encode_record
from logstore.record.varint import encode_varint
from tests.support.world import golden

ROOT = Path(__file__).resolve().parents[3]
CHECK = b"123456789"


def array(data):
    return np.frombuffer(data, np.uint8)


def decode(
    section, count, base_offset=0, base_timestamp=0, start=0, end=None, run=kernels.decode_records
):
    table = np.full(kernels.DECODED_COLUMNS * count, -99, np.int64)
    end = len(section) if end is None else end
    status, row = run(section, start, end, base_offset, base_timestamp, table)
    offsets, timestamps = table[: 2 * count].reshape(2, count).tolist()
    extents = table[2 * count :].reshape(count, kernels.EXTENT_COLUMNS)
    return status, row, extents, list(zip(offsets, timestamps, strict=True))


def with_body(*parts):
    body = b"".join(parts)
    return encode_varint(len(body)) + body


# --- integers ---------------------------------------------------------------------------------


def test_integers_are_signed_and_big_endian():
    data = array(bytes.fromhex("00 80000000 7fffffff fffffffe 8000000000000000 fffffffffffffffd"))
    assert kernels.read_i16(data, 1) == -(2**15)
    assert kernels.read_i16(data, 5) == 2**15 - 1
    assert kernels.read_i16(data, 11) == -2
    assert kernels.read_i32(data, 1) == -(2**31)
    assert kernels.read_i32(data, 5) == 2**31 - 1
    assert kernels.read_i32(data, 9) == -2
    assert kernels.read_i64(data, 13) == -(2**63)
    assert kernels.read_i64(data, 21) == -3


def test_write_be_writes_low_bytes_of_any_sign():
    out = np.zeros(16, np.uint8)
    position = kernels.write_be(out, 1, np.int64(-2), 8)
    position = kernels.write_be(out, position, np.int64(0x01020304), 4)
    position = kernels.write_be(out, position, np.int64(0x40), 2)
    assert position == 15
    assert out.tobytes().hex() == "00" + "fffffffffffffffe" + "01020304" + "0040" + "00"


# --- CRC-32C ----------------------------------------------------------------------------------


def test_crc32c_of_the_catalogues_check_string():
    assert kernels.crc32c(array(CHECK), 0, 9) == 0xE3069283


def test_crc32c_of_golden_batches():
    for data in golden.BATCHES.values():
        assert kernels.crc32c(array(data), 21, len(data)) == int.from_bytes(data[17:21], "big")


def test_crc32c_of_every_short_slice():
    """Each way to split a range into words and single bytes, at each alignment."""
    data = bytes(range(7, 40))
    for start in range(len(data)):
        for end in range(start, len(data) + 1):
            assert kernels.crc32c(array(data), start, end) == google_crc32c.value(data[start:end])


@pytest.mark.parametrize("blocks", (1, 2, 7, 13))
def test_crc32c_of_whole_blocks_and_of_some_bytes_more(blocks):
    """A quarter of a block, several of them, whole ones; each at another alignment."""
    data = random.Random(6).randbytes(crc32c.CRC_BLOCK * (blocks + 2))
    for quarter in (1, 2, 3, 4):
        whole = crc32c.CRC_BLOCK * (blocks - 1) + crc32c.CRC_BLOCK * quarter // 4
        for size in range(whole - 2, whole + 19):
            start = size % 61
            found = kernels.crc32c(array(data), start, start + size)
            assert found == google_crc32c.value(data[start : start + size]), size


@pytest.mark.parametrize("start", range(crc32c.CRC_BLOCK - 2, crc32c.CRC_BLOCK + 2))
def test_crc32c_with_and_without_a_whole_block_before_the_start(start):
    """Preceding bytes are read only if they belong to the array, and never count."""
    data = b"\xff" * start + random.Random(start).randbytes(crc32c.CRC_BLOCK + 3)
    for end in (start + 1, start + 63, start + 64, start + 65, start + 200, *range(-3, 0)):
        found = kernels.crc32c(array(data), start, end % len(data))
        assert found == google_crc32c.value(data[start:end]), end


@pytest.mark.parametrize("blocks", (1, 6, 48, 60))
def test_crc32c_by_words_agrees(blocks):
    """Each of its three strides, then words and bytes."""
    size = crc32c.CRC_BLOCK * blocks + 13
    data = random.Random(blocks).randbytes(10 + size)
    found = crc32c.crc32c_by_words(array(data), 10, 10 + size, np.uint64(0))
    assert int(found) ^ 0xFFFFFFFF == google_crc32c.value(data[10:])


def test_zero_bytes_lead_from_each_beginning_to_the_usual_one():
    for count, register in enumerate(crc32c.CRC_BEGINNINGS.tolist()):
        for _ in range(count):
            register = (register >> 8) ^ int(crc32c.CRC_TABLES[0, register & 0xFF])
        assert register == 0xFFFFFFFF


@pytest.mark.parametrize("part", (crc32c.CRC_SHORT, crc32c.CRC_LONG))
def test_crc32c_of_ranges_that_are_taken_three_parts_at_a_time(part):
    """`_crc_of_three`: just below, at and above one round, two of them, and both sizes together."""
    data = random.Random(5).randbytes(6 * part + 3 * crc32c.CRC_SHORT + 20)
    for around in (3 * part, 6 * part, 6 * part + 3 * crc32c.CRC_SHORT):
        for size in range(around - 9, around + 10):
            found = kernels.crc32c(array(data), 3, 3 + size)
            assert found == google_crc32c.value(data[3 : 3 + size]), size


def test_crc_shifts_are_what_zero_bytes_do():
    for table, size in enumerate((crc32c.CRC_LONG, crc32c.CRC_SHORT)):
        for register in (1, 0x80000000, 0xDEADBEEF):
            byte = register
            for _ in range(size):
                byte = (byte >> 8) ^ int(crc32c.CRC_TABLES[0, byte & 0xFF])
            assert crc32c._shifted_crc(table, np.uint64(register)) == byte


def test_both_byte_steps_agree():
    """The processor's instruction, if it has one, and the tables."""
    register = np.uint64(0xFFFFFFFF)
    for byte in b"123456789":
        register = np.uint64(crc32c.crc32c_u8_by_tables(register, np.uint8(byte)))
    assert int(register) ^ 0xFFFFFFFF == 0xE3069283


@pytest.mark.parametrize("position", (0, 1, 5))
def test_integers_are_read_big_endian_and_signed_at_any_position(position):
    data = bytes(position) + bytes.fromhex("80000000fffffffe") + b"?"
    whole = array(data)
    assert kernels.read_i64(whole, position) == -(2**63) + 0xFFFFFFFE
    assert kernels.read_i32(whole, position) == -(2**31)
    assert kernels.read_i32(whole, position + 4) == -2
    assert kernels.read_i16(whole, position) == -(2**15)


def test_both_word_steps_agree():
    """The processor's instruction, if it has one, and the tables."""
    assert crc32c.CRC_TABLES.shape == (8, 256)
    data = bytes(range(64))
    register = 0xFFFFFFFF
    for position in range(0, 64, 8):
        word = np.uint64(int.from_bytes(data[position : position + 8], "little"))
        register = int(crc32c.crc32c_u64_by_tables(np.uint64(register), word))
        assert register ^ 0xFFFFFFFF == google_crc32c.value(data[: position + 8])
        assert kernels.crc32c(array(data), 0, position + 8) == register ^ 0xFFFFFFFF


def run_python(code, **environment):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


PROBE_OF_CRC = """
import sys
import numpy as np
from logstore.record import kernels
data = np.tile(np.arange(251, dtype=np.uint8), 20)
crc = kernels.crc32c(data, 3, 5020)
print("numba" in sys.modules, crc)
"""

PROBE = (
    PROBE_OF_CRC
    + """
from logstore.record.columns import BytesColumn, decode_section, encode_section
column = BytesColumn.from_list([b"k", None])
section = encode_section(np.array([5, -6]), column, column)
print(bytes(section).hex(), len(decode_section(section, 2, 0, 0).to_records()))
"""
)


CRC_OF_PROBE = google_crc32c.value((20 * bytes(range(251)))[3:])


@pytest.mark.parametrize("features", ("", "+sse4.2,+crc32"), ids=("by tables", "by words"))
def test_the_crc_is_right_without_the_instruction(features):
    environment = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": features}
    uses_numba, crc = run_python(PROBE_OF_CRC, **environment)
    assert uses_numba == str("NUMBA_DISABLE_JIT" not in os.environ)
    assert int(crc) == CRC_OF_PROBE


def test_kernels_work_without_the_compiler():
    uses_numba, crc, section, count = run_python(PROBE, NUMBA_DISABLE_JIT="1")
    assert uses_numba == "False"
    assert int(crc) == CRC_OF_PROBE
    expected = encode_record(0, 0, b"k", b"k") + encode_record(-11, 1, None, None)
    assert (section, count) == (expected.hex(), "2")


def test_a_record_that_exceeds_its_section_is_rejected():
    data = with_body(b"\0\0\0", encode_varint(3), b"key", encode_varint(5), b"value", b"\0")
    for end, status in ((len(data), kernels.OK), (len(data) - 1, kernels.BAD_RECORD_SIZE)):
        found = decode(data + bytes(16), 1, end=end)
        assert found[:2] == (status, 1 if status == kernels.OK else 0)
        assert kernels.read_record(array(data + bytes(16)), 0, end)[0] == status


# --- varints ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    (0, -1, 1, 63, -64, 64, -65, 8191, 8192, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, -(2**63)),
)
def test_write_varint_read_varint_and_varint_size_agree(value):
    out = np.zeros(12, np.uint8)
    encoded = encode_varint(value)
    assert kernels.varint_size(np.int64(value)) == len(encoded)
    assert kernels.write_varint(out, 1, np.int64(value)) == 1 + len(encoded)
    assert out.tobytes() == b"\0" + encoded + bytes(11 - len(encoded))
    assert kernels.read_varint(out, 1, 12, 10) == (value, 1 + len(encoded))
    assert kernels.read_varint(out, 1, len(encoded), 10)[1] == -1


def test_read_varint_refuses_what_is_too_long():
    assert kernels.read_varint(array(b"\x80" * 4 + b"\0"), 0, 5, 5) == (0, 5)
    assert kernels.read_varint(array(b"\x80" * 5 + b"\0"), 0, 6, 5)[1] == -1
    assert kernels.read_varint(array(b"\x80" * 9 + b"\0"), 0, 10, 10) == (0, 10)
    assert kernels.read_varint(array(b"\x80" * 10 + b"\0"), 0, 11, 10)[1] == -1
    assert kernels.read_varint(array(b""), 0, 0, 5)[1] == -1


def test_read_varint_drops_bits_beyond_the_32nd():
    assert kernels.read_varint(array(b"\xff\xff\xff\xff\x7f"), 0, 5, 5) == (-(2**31), 5)
    assert kernels.read_varint(array(b"\xff\xff\xff\xff\x7f"), 0, 5, 10) == (-(2**34), 5)


def test_copy_bytes_moves_a_range():
    out = np.zeros(6, np.uint8)
    assert kernels.copy_bytes(array(b"abcdef"), 1, 4, out, 2) == 5
    assert out.tobytes() == b"\0\0bcd\0"
    assert kernels.copy_bytes(array(b"abcdef"), 2, 2, out, 6) == 6


# --- records ----------------------------------------------------------------------------------


def test_check_headers_walks_to_their_end():
    raw = b"\xff" + encode_headers((("h", b"12"), ("", None), ("n", b""))) + b"\xff"
    assert kernels.check_headers(array(raw), 1, len(raw)) == (kernels.OK, len(raw) - 1)
    assert kernels.check_headers(array(b"\0"), 0, 1) == (kernels.OK, 1)


@pytest.mark.parametrize(
    ("raw", "status"),
    (
        (b"", kernels.BAD_VARINT),
        (encode_varint(-1), kernels.BAD_HEADER_COUNT),
        (encode_varint(2) + b"\0", kernels.BAD_HEADER_COUNT),
        (encode_varint(1) + b"\x80", kernels.BAD_VARINT),
        (encode_varint(1) + b"\1\1", kernels.BAD_HEADER_KEY_SIZE),
        (encode_varint(1) + b"\2", kernels.FIELD_OVERRUN),
        (encode_varint(1) + b"\0", kernels.BAD_VARINT),
        (encode_varint(1) + b"\0\4v", kernels.FIELD_OVERRUN),
    ),
)
def test_check_headers_names_the_check_that_failed(raw, status):
    assert kernels.check_headers(array(raw), 0, len(raw))[0] == status


def test_decode_records_writes_extents_and_absolute_offsets_and_timestamps():
    section = encode_record(5, 0, b"key", None) + encode_record(-3, 2, None, b"")
    status, row, extents, places = decode(section, 2, base_offset=100, base_timestamp=1000)
    assert (status, row) == (kernels.OK, 2)
    assert extents.tolist() == [[0, 10, 5, 3, 9, -1, 9], [10, 17, 15, -1, 16, 0, 16]]
    assert places == [(100, 1005), (102, 997)]


def test_decode_records_reads_only_its_range():
    record = encode_record(5, 0, b"key", None)
    data = b"\xff\xff" + record + b"\xff"
    status, _, extents, _ = decode(data, 1, start=2, end=2 + len(record))
    assert status == kernels.OK
    assert extents[0, :2].tolist() == [2, 12]
    longer = encode_record(5, 0, b"key", b"value" * 9)
    assert decode(longer, 1, end=len(longer) - 1)[0] == kernels.BAD_RECORD_SIZE


def test_decode_records_of_none():
    assert decode(b"", 0)[:2] == (kernels.OK, 0)
    assert decode(b"\0", 0)[:2] == (kernels.RECORDS_REMAINING, 0)


@pytest.mark.parametrize("run", (kernels.decode_records, kernels.decode_records.plain))
@pytest.mark.parametrize("timestamp", (1, 2**63 - 1))
def test_decode_records_wraps_like_java(run, timestamp):
    record = encode_record(timestamp, 1, None, None)
    with np.errstate(over="ignore"):
        status, _, _, places = decode(record, 1, 2**63 - 1, 2**63 - 1, run=run)
    assert status == kernels.OK
    assert places == [(-(2**63), timestamp - 2**63 - 1)]


@pytest.mark.parametrize(
    ("section", "status"),
    (
        (b"", kernels.PREMATURE_END),
        (b"\x80", kernels.BAD_VARINT),
        (b"\x00", kernels.BAD_RECORD_SIZE),
        (b"\x01", kernels.BAD_RECORD_SIZE),
        (b"\x0e" + bytes(6), kernels.BAD_RECORD_SIZE),
        (with_body(b"\0"), kernels.BAD_VARINT),
        (with_body(b"\0\0"), kernels.BAD_VARINT),
        (with_body(b"\0\0\0"), kernels.BAD_VARINT),
        (with_body(b"\0\0\0\1"), kernels.BAD_VARINT),
        # A record that ends before its header count, at the very end of the data.
        (with_body(b"\0\0\0\1\1"), kernels.BAD_VARINT),
        (with_body(b"\0\0\0\1\2v"), kernels.BAD_VARINT),
        (with_body(b"\0\0\1\1\1\0"), kernels.BAD_OFFSET_DELTA),
        (with_body(b"\0\0\0\4k"), kernels.FIELD_OVERRUN),
        (with_body(b"\0\0\0\1\4v"), kernels.FIELD_OVERRUN),
        (with_body(b"\0\0\0\1\1\1"), kernels.BAD_HEADER_COUNT),
        (with_body(b"\0\0\0\1\1\2\1\1"), kernels.BAD_HEADER_KEY_SIZE),
        (with_body(b"\0\0\0\1\1\0\0"), kernels.RECORD_NOT_CONSUMED),
        (encode_record(0, 0, None, None) + b"\0", kernels.RECORDS_REMAINING),
    ),
)
def test_decode_records_names_the_check_that_failed(section, status):
    assert decode(section, 1)[0] == status


def test_decode_records_names_the_record():
    good = encode_record(0, 0, b"k", b"v")
    assert decode(good + good + b"\x01", 3)[:2] == (kernels.BAD_RECORD_SIZE, 2)
    assert decode(good, 2)[:2] == (kernels.PREMATURE_END, 1)


@pytest.mark.parametrize("spare_bytes", (0, 200))
def test_encode_batches_writes_within_its_bytes(spare_bytes):
    """Also where strings could be copied by whole blocks."""
    keys, values = array(b"xkey" + bytes(spare_bytes)), array(b"value" + bytes(spare_bytes))
    columns = (
        (keys, np.array([1, 0], np.int64), np.array([3, -1], np.int32)),
        (values, np.array([0, 5], np.int64), np.array([5, 0], np.int32)),
        (array(encode_headers(())), np.empty(0, np.int64), np.empty(0, np.int32)),
    )
    timestamps = np.array([2**40, 2**40 - 1], np.int64)
    records = [Record(8, 2**40, b"key", b"value"), Record(9, 2**40 - 1, None, b"")]
    expected = build_batch(records, partition_leader_epoch=5)
    whole, extents = np.full(len(expected) + 200, 0xEE, np.uint8), np.zeros((1, 3), np.int64)
    flat = [each for column in columns for each in column]
    bounds = np.array([0, 2], np.int64)
    out = whole[: len(expected)]
    size = kernels.encode_batches(8, 5, 0, bounds, timestamps, *flat, out, extents)
    assert size == len(expected)
    assert whole.tobytes() == expected + b"\xee" * 200
    assert extents.tolist() == [[9, 2**40, size]]
