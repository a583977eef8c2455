"""Walking a damaged segment: which faults are the last ones, and where the walk goes on."""

import pytest

from logstore.record import layout
from logstore.record.codecs import DEFAULT_LIMIT
from logstore.record.scan import Fault, ScannedBatch, SegmentScan, Unreadable
from logstore.runtime import MemoryFileSystem
from logstore.types import INT32_MAX
from tests.support.world.builders import batch

PATH = "/t-0/00000000000000000000.log"
GOOD = [batch(offset) for offset in range(3)]
SIZE = len(GOOD[0])
JUNK = b"\x01" * 30
MAGIC_POSITION = 16


def scan(data, end=None):
    fs = MemoryFileSystem()
    fs.make_dirs("/t-0")
    file = fs.open(PATH, create=True)
    file.append([data])
    return SegmentScan(file, PATH, 0, DEFAULT_LIMIT, end)


def shown(item):
    """Return the kind, extent and outcome of an item in short."""
    if isinstance(item, Fault):
        return item.check, item.position, item.is_last, item.is_tail
    if isinstance(item, Unreadable):
        return "unreadable", *item
    is_sound = item.batch is not None
    return "mended" if item.is_mended else "batch", item.position, item.end_position, is_sound


def damaged(data):
    return data[:-1] + bytes([data[-1] ^ 1])


def with_magic(data, magic):
    return data[:MAGIC_POSITION] + bytes([magic]) + data[MAGIC_POSITION + 1 :]


def test_the_pieces_have_one_size():
    assert {len(each) for each in GOOD} == {SIZE}
    assert layout.HEADER_SIZE < SIZE


@pytest.mark.parametrize(
    ("rest", "is_last", "end"),
    (
        (b"", True, SIZE),
        (GOOD[1], False, SIZE),
        (JUNK, True, SIZE),
        (JUNK + GOOD[1], False, SIZE + len(JUNK)),
    ),
    ids=("end of file", "batch", "junk", "junk and batch"),
)
def test_a_damaged_batch_is_the_last_one_unless_a_sound_batch_follows(rest, is_last, end):
    found = [shown(item) for item in scan(damaged(GOOD[0]) + rest).run()]
    assert found[:2] == [("crc", 0, is_last, False), ("batch", 0, end, False)]


@pytest.mark.parametrize("rest", (b"", GOOD[1]), ids=("end of file", "batch"))
def test_a_batch_whose_magic_alone_is_wrong_is_mended_and_the_walk_goes_on_behind_it(rest):
    found = [shown(item) for item in scan(with_magic(GOOD[0], 3) + rest).run()]
    after = [("batch", SIZE, 2 * SIZE, True)] if rest else []
    assert found == [("magic", 0, False, False), ("mended", 0, SIZE, True), *after]


def test_a_batch_of_wrong_magic_and_bytes_is_passed_over():
    wrong = with_magic(damaged(GOOD[0]), 3)
    found = [shown(item) for item in scan(wrong + JUNK + GOOD[1]).run()]
    behind = SIZE + len(JUNK)
    assert found == [
        ("magic", 0, False, False),
        ("unreadable", 0, behind),
        ("batch", behind, behind + SIZE, True),
    ]
    alone = [shown(item) for item in scan(wrong).run()]
    assert alone == [("magic", 0, True, False), ("unreadable", 0, SIZE)]


@pytest.mark.parametrize(
    ("tail", "check"), ((bytes(70), "zero_tail"), (GOOD[1][:-1], "torn_tail"), (b"\1", "torn_tail"))
)
def test_a_tail_is_reported_from_where_it_begins_to_the_end_of_the_file(tail, check):
    walk = scan(GOOD[0] + tail)
    items = list(walk.run())
    assert [shown(item) for item in items] == [
        ("batch", 0, SIZE, True),
        (check, SIZE, True, True),
    ]
    assert isinstance(items[1], Fault)
    assert (items[1].expected, items[1].found) == (SIZE, SIZE + len(tail))
    assert walk.end_is_known == (check == "zero_tail")
    assert walk.end_position == SIZE


@pytest.mark.parametrize("bad", (damaged(GOOD[1]), with_magic(GOOD[1], 1), bytes(SIZE)))
def test_a_file_that_is_too_large_is_walked_to_its_first_damage(bad):
    walk = scan(GOOD[0] + bad + GOOD[2], INT32_MAX + 1)
    items = list(walk.run())
    assert [shown(item) for item in items] == [
        ("batch", 0, SIZE, True),
        ("segment_size", SIZE, False, True),
    ]
    assert isinstance(items[0], ScannedBatch)
    assert isinstance(items[1], Fault)
    assert (items[1].expected, items[1].found) == (INT32_MAX, INT32_MAX + 1)
    assert not walk.end_is_known
    assert walk.end_position == SIZE
