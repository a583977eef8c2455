"""A scan's report of each damage, and whether a valid batch follows it."""

import struct

import pytest

from logstore.record.scan import Fault, ScannedBatch, SegmentScan, Unreadable
from logstore.runtime import MemoryFileSystem, VirtualClock
from logstore.types import INT32_MAX
from tests.support.world.builders import batch

LIMIT = 1 << 20
PATH = "/00.log"
ROWS = [batch(n) for n in range(4)]
SIZE = len(ROWS[0])
CRC_AT, LENGTH_AT, MAGIC_AT, RECORDS_AT = 17, 8, 16, 61


class HugeFile:
    """A sparse file: some bytes at the start, then zeros to its size."""

    def __init__(self, data, size):
        self._data, self._size = data, size

    def size(self):
        return self._size

    def read(self, position, count):
        data = self._data[position : position + count]
        return data.ljust(max(0, min(count, self._size - position)), b"\0")


def scan_of(data, size=None):
    if size is not None:
        return SegmentScan(HugeFile(bytes(data), size), PATH, 0, LIMIT)
    fs = MemoryFileSystem(VirtualClock())
    file = fs.open(PATH, create=True)
    file.append([bytes(data)])
    return SegmentScan(file, PATH, 0, LIMIT)


def summary(scan):
    """Return the items of a scan, reduced to kind, positions and the compared fields."""
    items = []
    for item in scan.run():
        if isinstance(item, Fault):
            items.append((item.check, item.position, item.is_tail, item.is_last))
        else:
            kind = "unreadable" if isinstance(item, Unreadable) else "batch"
            if isinstance(item, ScannedBatch) and item.batch is None:
                kind = "damaged"
            items.append((kind, item.position, item.end_position))
    return items


def good(first, stop):
    return [("batch", n * SIZE, (n + 1) * SIZE) for n in range(first, stop)]


def spoilt(number, at, kind, value):
    data = bytearray(b"".join(ROWS))
    struct.pack_into(kind, data, number * SIZE + at, value)
    return data


@pytest.mark.parametrize("number", range(4))
def test_a_wrong_crc_is_last_in_the_last_batch_only(number):
    data = spoilt(number, RECORDS_AT, ">b", 1)
    start, end = number * SIZE, (number + 1) * SIZE
    scan = scan_of(data)
    assert summary(scan) == [
        *good(0, number),
        ("crc", start, False, number == 3),
        ("damaged", start, end),
        *good(number + 1, 4),
    ]
    assert (scan.end_position, scan.end_is_known) == (4 * SIZE, True)


def test_a_wrong_crc_before_another_one_is_not_last_by_its_length():
    data = spoilt(2, RECORDS_AT, ">b", 1)
    data[3 * SIZE + RECORDS_AT] ^= 1
    assert [item[-1] for item in summary(scan_of(data)) if item[0] == "crc"] == [True, True]


def test_garbage_behind_a_wrong_crc_leaves_it_the_last_batch():
    data = b"".join(ROWS[:2]) + b"\xff" * 100
    data = bytearray(data)
    data[SIZE + RECORDS_AT] ^= 1
    assert ("crc", SIZE, False, True) in summary(scan_of(data))


@pytest.mark.parametrize("number", range(4))
def test_a_wrong_length_is_corrected_by_the_crc(number):
    for value in (0, 13, 14, SIZE - 13, 3 * SIZE):
        items = summary(scan_of(spoilt(number, LENGTH_AT, ">i", value)))
        assert items == [
            *good(0, number),
            ("batch_length", number * SIZE, False, False),
            *good(number, 4),
        ]


@pytest.mark.parametrize("number", range(4))
def test_a_wrong_length_over_damage_is_last_in_the_last_batch_only(number):
    data = spoilt(number, LENGTH_AT, ">i", 13)
    data[number * SIZE + RECORDS_AT] ^= 1
    assert summary(scan_of(data)) == [
        *good(0, number),
        ("batch_length", number * SIZE, False, number == 3),
        ("unreadable", number * SIZE, (number + 1) * SIZE),
        *good(number + 1, 4),
    ]


@pytest.mark.parametrize("number", range(4))
def test_an_unknown_magic_over_a_sound_batch_is_corrected(number):
    items = summary(scan_of(spoilt(number, MAGIC_AT, ">b", 9)))
    assert items == [*good(0, number), ("magic", number * SIZE, False, False), *good(number, 4)]


@pytest.mark.parametrize("number", range(4))
def test_an_unknown_magic_over_damage_is_last_in_the_last_batch_only(number):
    data = spoilt(number, MAGIC_AT, ">b", 9)
    data[number * SIZE + RECORDS_AT] ^= 1
    scan = scan_of(data)
    assert summary(scan) == [
        *good(0, number),
        ("magic", number * SIZE, False, number == 3),
        ("unreadable", number * SIZE, (number + 1) * SIZE),
        *good(number + 1, 4),
    ]
    assert scan.end_is_known == (number != 3)


@pytest.mark.parametrize("size", (1, 16, 17, 18, 40))
@pytest.mark.parametrize(("fill", "check"), ((b"\0", "zero_tail"), (b"\x11", "torn_tail")))
def test_a_tail_is_last_and_ends_the_file(size, fill, check):
    scan = scan_of(ROWS[0] + fill * size)
    assert summary(scan) == [*good(0, 1), (check, SIZE, True, True)]
    assert (scan.end_position, scan.end_is_known) == (SIZE, check == "zero_tail")


@pytest.mark.parametrize("count", range(5))
def test_a_file_that_no_segment_can_be_is_read_to_its_first_damage(count):
    scan = scan_of(b"".join(ROWS[:count]), size=INT32_MAX + 1)
    [*batches, fault] = scan.run()
    assert [(each.position, each.end_position) for each in batches] == [
        (n * SIZE, (n + 1) * SIZE) for n in range(count)
    ]
    assert [each.header.base_offset for each in batches] == list(range(count))
    assert (fault.check, fault.position, fault.is_tail) == ("segment_size", count * SIZE, True)
    assert (fault.expected, fault.found) == (INT32_MAX, INT32_MAX + 1)
    assert not scan.end_is_known


@pytest.mark.parametrize(
    ("at", "kind", "value"),
    (
        (RECORDS_AT, ">b", 1),
        (CRC_AT, ">i", 1),
        (MAGIC_AT, ">b", 1),
        (LENGTH_AT, ">i", 48),
        (LENGTH_AT, ">i", INT32_MAX),
    ),
)
def test_damage_ends_the_batches_of_a_file_that_no_segment_can_be(at, kind, value):
    scan = scan_of(spoilt(1, at, kind, value), size=INT32_MAX + 1)
    items = summary(scan)
    assert items == [*good(0, 1), ("segment_size", SIZE, True, False)]


def test_a_pair_has_the_next_batch_only_if_its_crc_is_right():
    data = spoilt(1, RECORDS_AT, ">b", 1)
    pairs = [
        (current.position, None if following is None else following.position)
        for current, following in scan_of(data).pairs()
    ]
    assert pairs == [
        (0, None),
        (SIZE, None),
        (SIZE, 2 * SIZE),
        (2 * SIZE, 3 * SIZE),
        (3 * SIZE, None),
    ]


@pytest.mark.parametrize("rest", (b"", ROWS[3]), ids=("at the end", "before another one"))
def test_a_batch_inside_a_value_does_not_follow_a_damaged_one(rest):
    data = bytearray(batch(0, value=ROWS[1]) + rest)
    data[RECORDS_AT] ^= 1
    end = len(data) - len(rest)
    assert summary(scan_of(data))[:2] == [("crc", 0, False, not rest), ("damaged", 0, end)]


@pytest.mark.parametrize(
    ("size", "leader_epoch"),
    ((10, 0), (5000, 7), (20_000, 2)),
    ids=("short length", "unknown magic", "wrong crc"),
)
def test_a_batch_one_byte_behind_its_place_is_found(size, leader_epoch):
    data = batch(0, value=bytes(size), leader_epoch=leader_epoch)
    items = summary(scan_of(b"\0" + data))
    assert items[-1] == ("batch", 1, 1 + len(data))
