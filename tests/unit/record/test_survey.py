"""A survey of a `.log`, and the splice that shows it without the damage."""

import struct

import pytest

from logstore.record.splice import SplicedFile
from logstore.record.survey import Damage, SegmentBounds, SpliceBuilder, survey
from logstore.record.walk import walk_headers
from logstore.runtime import MemoryFileSystem, VirtualClock
from tests.support.world.builders import batch, batches_of
from tests.support.world.legacy import compressed_set, message

LIMIT = 1 << 20
PATH = "/00.log"


def file_of(data):
    fs = MemoryFileSystem(VirtualClock())
    file = fs.open(PATH, create=True)
    file.append([bytes(data)])
    return file


def surveyed(data, base=0, following=None, first=None):
    bounds = SegmentBounds(PATH, base, base if first is None else first, following)
    return list(survey(file_of(data), bounds, LIMIT))


def shown(data):
    """The bytes as they are shown; None if as they lie."""
    builder = SpliceBuilder(PATH, LIMIT)
    for found in surveyed(data):
        if not isinstance(found, Damage):
            builder.add(found)
    splice = builder.finish(len(data))
    if splice is None:
        return None
    file = SplicedFile(file_of(data), splice)
    whole = file.read(0, file.size())
    # However it is asked, it gives the same.
    assert b"".join(file.read(at, 7) for at in range(0, file.size(), 7)) == whole
    assert file.read(file.size(), 5) == b""
    return whole


ROWS = [batch(n) for n in range(5)]
SIZE = len(ROWS[0])


@pytest.mark.parametrize(
    ("before", "after", "is_mended", "later", "text"),
    (
        (None, None, False, None, "are damaged (crc)"),
        (None, None, False, 0, "are damaged (crc)"),
        (4, None, False, 1, "after offset 4 are damaged (crc); 1 later record is valid"),
        (None, 9, False, 2, "before offset 9 are damaged (crc); 2 later records are valid"),
        (
            *(0, 0, False, 1234),
            "after offset 0 and before offset 0 are damaged (crc); 1,234 later records are valid",
        ),
        (
            *(4, 9, True, 5),
            "after offset 4 and before offset 9 are wrong (crc), but can be inferred from"
            " adjacent batches",
        ),
    ),
)
def test_damage_as_a_text(before, after, is_mended, later, text):
    found = Damage(PATH, 12345, 6789, "crc", before, after, is_mended, later)
    assert str(found) == f"/00.log: 6,789 bytes at position 12345 {text}"


def places(found):
    return [(each.position, each.size_bytes, each.check) for each in found]


def damages(found):
    return [each for each in found if isinstance(each, Damage)]


def offsets(data):
    return [each.header.base_offset for each in batches_of(data)]


def test_a_valid_file_is_shown_in_file_order():
    data = b"".join(ROWS)
    assert not damages(surveyed(data))
    assert shown(data) is None
    assert shown(b"") is None


@pytest.mark.parametrize("number", range(5))
def test_a_batch_with_a_wrong_crc_is_left_out_and_named(number):
    data = bytearray(b"".join(ROWS))
    data[number * SIZE + 70] ^= 1
    [damage] = damages(surveyed(data))
    assert places([damage]) == [(number * SIZE, SIZE, "crc")]
    assert damage.last_offset_before == (number - 1 if number else None)
    assert damage.first_offset_after == (number + 1 if number < 4 else None)
    assert offsets(shown(data)) == [n for n in range(5) if n != number]


@pytest.mark.parametrize(
    ("kind", "at", "value", "check"),
    ((">i", 8, 3, "batch_length"), (">b", 16, 9, "magic"), (">q", 0, 1 << 20, "offset_order")),
)
def test_fields_outside_the_crc_are_repaired_if_unambiguous(kind, at, value, check):
    data = bytearray(b"".join(ROWS))
    struct.pack_into(kind, data, 2 * SIZE + at, value)
    [damage] = damages(surveyed(data))
    assert (damage.position, damage.check, damage.is_mended) == (2 * SIZE, check, True)
    assert shown(data) == b"".join(ROWS)


def test_a_base_offset_with_room_for_several_answers_is_damage():
    data = bytearray(batch(0) + batch(40) + batch(90))
    struct.pack_into(">q", data, SIZE, 89)
    assert not damages(surveyed(data)), "nothing contradicts it"
    struct.pack_into(">q", data, SIZE, 90)
    [damage] = damages(surveyed(data))
    assert (damage.check, damage.is_mended) == ("offset_order", False)


def test_bytes_between_batches_and_behind_the_last_one():
    data = ROWS[0] + b"garbage" * 9 + ROWS[1] + ROWS[2][:50]
    found = damages(surveyed(data))
    assert [(each.position, each.size_bytes) for each in found] == [(SIZE, 63), (2 * SIZE + 63, 50)]
    assert found[1].check == "torn_tail"
    assert found[1].first_offset_after is None
    assert offsets(shown(data)) == [0, 1]


def test_superseded_segments_are_skipped_silently():
    found = surveyed(b"".join(ROWS), first=3)
    assert [each.batch.header.base_offset for each in found] == [3, 4]


def test_batches_beyond_the_next_segment_are_damage():
    assert places(damages(surveyed(b"".join(ROWS), following=4))) == [
        (4 * SIZE, SIZE, "segment_overlap")
    ]


def test_old_messages_are_shown_as_batches_a_run_in_one():
    rows = [(2, b"a", b"1"), (3, b"b", b"2")]
    data = message(0, b"k", b"v") + message(1, b"k", None) + compressed_set(rows) + batch(4)
    assert [each.magic for each in surveyed(data)] == [1, 1, 1, 2]
    found = batches_of(shown(data))
    assert [each.header.base_offset for each in found] == [0, 4]
    assert [record.offset for each in found for record in each.records()] == [0, 1, 2, 3, 4]
    file = file_of(shown(data))
    assert len(list(walk_headers(file, PATH))) == 2
