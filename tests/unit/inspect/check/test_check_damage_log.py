"""Seeded damage to batches and segments: each is found by name and location, and no other.

Every row runs on a directory of Kafka's and on one of this engine's.
"""

import struct

import pytest

from logstore.inspect.check import INFO, WARNING
from tests.support.world.builders import batch, batches_of, log_name
from tests.support.world.damage import (
    CODECS,
    EPOCHS,
    ORIGINS,
    DamageTable,
    Found,
    Site,
    healthy,
    kafka,
    partition,
    site,
)
from tests.support.world.edited_batches import with_offset_and_epoch
from tests.support.world.legacy import message

TABLE = DamageTable()
row = TABLE.row

FIRST_LOG = f"golden-0/{log_name(0)}"


# -- bit flips -------------------------------------------------------------------------------------

OUTSIDE_THE_CRC = {
    "baseOffset": (0, 8),
    "batchLength": (8, 4),
    "partitionLeaderEpoch": (12, 4),
    "magic": (16, 1),
}
UNDER_THE_CRC = {
    "crc": (17, 4),
    "attributes": (21, 2),
    "lastOffsetDelta": (23, 4),
    "baseTimestamp": (27, 8),
    "maxTimestamp": (35, 8),
    "producerId": (43, 8),
    "producerEpoch": (51, 2),
    "baseSequence": (53, 4),
    "recordCount": (57, 4),
}
assert sum(size for _, size in (*OUTSIDE_THE_CRC.values(), *UNDER_THE_CRC.values())) == 61

NAMES = {
    "baseOffset": {"segment_bounds", "segment_overlap", "offset_order"},
    "batchLength": {"batch_length"},
    "partitionLeaderEpoch": {"leader_epoch"},
    "magic": {"magic"},
}


@pytest.mark.parametrize("field", OUTSIDE_THE_CRC)
@pytest.mark.parametrize("origin", ORIGINS)
def test_every_flipped_bit_outside_the_crc_is_one_finding(field, origin):
    """Fields outside the CRC are checked against the adjacent batches, segments and epochs."""
    start, size = OUTSIDE_THE_CRC[field]
    place = site("segments", origin)
    for number in (0, place.number, len(place.batches) - 1):
        position = place.position_of(number)
        for bit in range(8 * size):
            with place.flipped(place.log, position + start + bit // 8, bit % 8):
                (offset,) = struct.unpack_from(">q", place.read(place.log), position)
                (found,) = place.found()
            assert found.check in NAMES[field], (number, bit)
            assert found[1:4] == (place.log, position, offset), (number, bit)


@pytest.mark.parametrize("field", UNDER_THE_CRC)
@pytest.mark.parametrize("origin", ORIGINS)
def test_a_flipped_bit_in_each_byte_under_the_crc_is_one_finding(field, origin):
    start, size = UNDER_THE_CRC[field]
    place = site("segments", origin)
    for byte in range(start, start + size):
        with place.flipped(place.log, place.position + byte, byte % 8):
            assert place.found() == place.at_target("crc")


@pytest.mark.parametrize("origin", ORIGINS)
def test_a_flipped_bit_in_each_byte_of_the_records_is_one_finding(origin):
    place = site("segments", origin)
    for byte in range(61, len(place.after(0).data)):
        with place.flipped(place.log, place.position + byte, byte % 8):
            assert place.found() == place.at_target("crc")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("origin", ORIGINS)
def test_a_flipped_bit_in_a_codec_section_is_one_finding(codec, origin):
    directory = healthy(f"codec-{codec}", origin)
    sound = batches_of(directory.read(FIRST_LOG))
    assert all(each.codec.name.lower() == codec for each in sound)
    for number in (0, len(sound) - 1):
        position = sum(len(each.data) for each in sound[:number])
        size = len(sound[number].data)
        expected = [Found("crc", FIRST_LOG, position, sound[number].header.base_offset)]
        for byte in (61, 61 + (size - 61) // 2, size - 1):
            with directory.flipped(FIRST_LOG, position + byte, byte % 8):
                assert directory.found() == expected


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("origin", ORIGINS)
def test_a_codec_section_that_was_damaged_before_its_crc_was_taken(codec, origin):
    directory = healthy(f"codec-{codec}", origin)
    directory.reseal(FIRST_LOG, 0, ">q", 61, -1)
    assert directory.found() == [Found("codec", FIRST_LOG, 0, 0)]


# -- damage that adjacent batches do not reveal ----------------------------------------------------


@pytest.mark.parametrize("origin", ORIGINS)
def test_a_last_base_offset_that_moved_up_leaves_a_gap(origin):
    """No batch follows the last one, so it can only be missed at its old offset."""
    place = site("segments", origin)
    last = place.last_batches[-1]
    position = len(place.read(place.last_log)) - len(last.data)
    for byte in range(5, 8):
        (bit,) = [n for n in range(8) if not last.header.base_offset >> (8 * (7 - byte) + n) & 1][
            :1
        ]
        with place.flipped(place.last_log, position + byte, bit):
            (offset,) = struct.unpack_from(">q", place.read(place.last_log), position)
            assert Found("offset_gap", place.last_log, position, offset, WARNING) in place.found()


def test_a_base_offset_between_its_neighbours_is_invisible_where_offsets_are_missing():
    """Below the first dirty offset any place between the neighbours may be the right one."""
    directory = kafka("clean-tombstones-2/after/data")
    one, two = batches_of(directory.read(FIRST_LOG))[:2]
    spare = two.header.base_offset - one.header.next_offset
    assert spare > 0
    directory.add(FIRST_LOG, ">q", 0, spare)
    assert directory.found() == []
    directory.add(FIRST_LOG, ">q", 0, 1)
    assert [each.check for each in directory.found()] == ["offset_order"]


def test_a_leader_epoch_is_invisible_where_the_checkpoint_allows_for_two():
    """Below the log start the checkpoint only implies that epochs rise up to its first."""
    batches = [batch(at, leader_epoch=epoch) for at, epoch in enumerate((1, 3, 3, 7, 7))]
    directory = partition(batches)
    directory.write(EPOCHS, b"0\n1\n7 3\n")
    size = len(batches[0])
    log = f"golden-0/{log_name(0)}"
    sound = directory.found()
    directory.put(log, ">i", size + 12, 2)
    assert directory.found() == sound
    for number, epoch in ((1, 0), (1, 4), (2, 8), (1, -2), (3, 6)):
        changed = partition(batches)
        changed.write(EPOCHS, b"0\n1\n7 3\n")
        changed.put(log, ">i", number * size + 12, epoch)
        assert [each for each in changed.found() if each not in sound] == [
            Found("leader_epoch", log, number * size, number)
        ]


# -- batches ---------------------------------------------------------------------------------------


@row("bad length")
def length_up_to_a_later_batch(place):
    place.add(place.log, ">i", place.position + 8, len(place.after(1).data))
    return place.at_target("batch_length")


@row("magic")
def message_of_an_old_format(place):
    end, offset = len(place.read(place.last_log)), place.end_offset
    place.append(place.last_log, message(offset, b"k", b"v") + message(offset + 1, b"k", b"w"))
    return [Found("unsupported_format", place.last_log, end, offset, INFO)]


@row("in each header field")
def max_timestamp_not_the_largest(place):
    place.reseal(place.log, place.position, ">q", 35, 5)
    slot = [place.time_entry(n)[1] for n in range(4)].index(place.after(0).header.last_offset)
    entry = Found("time_index_entry", place.time_index, 12 * slot, place.time_entry(slot)[1])
    return [*place.at_target("max_timestamp"), entry]


@row("in each header field")
def sequence_without_a_producer(place):
    place.reseal(place.log, place.position, ">i", 53, 5)
    (found,) = place.at_target("producer_fields")
    return [found._replace(severity=WARNING)]


@row("in each header field")
def control_batch_that_is_no_marker(place):
    place.reseal(place.log, place.position, ">h", 21, 0x20)
    (found,) = place.at_target("control_batch")
    return [found._replace(severity=WARNING)]


@row("in each header field")
def delete_horizon_negative(place):
    log = place.log
    place.reseal(log, place.position, ">h", 21, 0x48)
    place.reseal(log, place.position, ">q", 27, -5)
    return place.at_target("delete_horizon")


# -- segments --------------------------------------------------------------------------------------


def end_of(place, name):
    return len(place.read(name))


@row("torn tail")
def tail_of_noise(place):
    end = end_of(place, place.last_log)
    place.append(place.last_log, b"\1" * 37)
    return [Found("torn_tail", place.last_log, end)]


@row("torn tail")
def tail_too_short_for_a_header(place):
    end = end_of(place, place.last_log)
    place.append(place.last_log, b"\1" * 9)
    return [Found("torn_tail", place.last_log, end)]


@row("torn tail")
def tail_cut_off(place):
    """There is no finding about the log end, which is unknown now."""
    position = end_of(place, place.last_log) - len(place.last_batches[-1].data)
    place.cut(place.last_log, -5)
    return [Found("torn_tail", place.last_log, position)]


@row("torn tail")
def tail_of_a_closed_segment(place):
    end = end_of(place, place.log)
    place.append(place.log, b"\1" * 37)
    return [Found("torn_tail", place.log, end)]


@row("zero tail")
def tail_of_zeros(place):
    end = end_of(place, place.last_log)
    place.append(place.last_log, bytes(500))
    return [Found("zero_tail", place.last_log, end)]


@row("zero tail")
def tail_of_a_few_zeros(place):
    """Seventeen bytes are too few for a walk to look at them."""
    end = end_of(place, place.last_log)
    place.append(place.last_log, bytes(17))
    return [Found("zero_tail", place.last_log, end)]


@row("zero tail")
def tail_of_zeros_in_a_closed_segment(place):
    end = end_of(place, place.log)
    place.append(place.log, bytes(4096))
    return [Found("zero_tail", place.log, end)]


@row("offsets out of order")
def batch_twice(place):
    end = end_of(place, place.last_log)
    last = place.last_batches[-1]
    place.append(place.last_log, last.data)
    return [Found("offset_order", place.last_log, end, last.header.base_offset)]


@row("offsets out of order")
def batch_of_lower_offsets(place):
    place.add(place.log, ">q", place.position, -1)
    offset = place.offset - 1
    return [Found("offset_order", place.log, place.position, offset)]


@row("offsets out of order")
def batch_below_the_segment(place):
    place.put(place.log, ">q", place.position, 3)
    return [Found("segment_bounds", place.log, place.position, 3)]


@row("offsets out of order")
def batch_too_far_above_the_segment(place):
    offset = place.last_base + (1 << 31)
    last = place.last_batches[-1].data
    position = end_of(place, place.last_log)
    place.append(place.last_log, with_offset_and_epoch(last, offset, 5))
    return [Found("segment_bounds", place.last_log, position, offset)]


@row("overlap of segments")
def batch_in_the_next_segment(place):
    place.put(place.log, ">q", place.position, place.next_base)
    return [Found("segment_overlap", place.log, place.position, place.next_base)]


@row("overlap of segments")
def segment_that_holds_what_the_next_one_holds(place):
    """As if a merged segment is next to one of the segments it replaced: ignored."""
    place.append(place.log, place.read(place.next_log))
    last = len(place.read(place.time_index))  # position of the missing entry of the added batch
    return [
        Found("leftover_segment", place.next_log, None, place.next_base, WARNING),
        Found("time_index_last", place.time_index, last, None, WARNING),
    ]


@row("overlap of segments")
def snapshot_of_a_segment_that_another_one_replaced(place):
    """The snapshot belongs to the segment that is passed over, so it is passed over too."""
    expected = segment_that_holds_what_the_next_one_holds(place)
    place.write(place.next_log.replace(".log", ".snapshot"), b"damaged")
    return expected


@row("gap that no cleaning pass explains")
def segment_lost(place):
    for name in (place.log, place.index, place.time_index, place.snapshot):
        if place.fs.exists(f"/data/{name}"):
            place.remove(name)
    return [Found("offset_gap", place.next_log, 0, place.next_base, WARNING)]


@row("missing `.log`")
def log_lost(place):
    place.remove(place.log)
    return [
        Found("missing_log", place.log, None, place.base),
        Found("offset_gap", place.next_log, 0, place.next_base, WARNING),
    ]


@row("two segments of one base")
def segment_of_a_short_name(place):
    """`41.log` is segment 41 to Kafka too, which then opens the one of the full name."""
    name = f"golden-0/{place.base}.log"
    place.write(name, place.read(place.log))
    return [
        Found("file_name", name, None, place.base),
        Found("duplicate_base", name, None, place.base),
    ]


@row("two segments of one base")
def segment_of_a_name_too_long(place):
    name = f"golden-0/{place.base:021d}.log"
    place.write(name, place.read(place.log))
    return [
        Found("file_name", name, None, place.base),
        Found("duplicate_base", name, None, place.base),
    ]


@row("two segments of one base")
def segment_of_a_short_name_alone(place):
    name = f"golden-0/{place.base}.log"
    place.rename(place.log, name)
    return [Found("file_name", name, None, place.base)]


@row("two segments of one base")
def segment_of_no_offset(place):
    name = f"golden-0/{'9' * 20}.log"
    place.write(name)
    return [Found("file_name", name)]


# -- one field -------------------------------------------------------------------------------------

TABLE.add(
    "log",
    Site.at_target,
    {
        "bad length": (
            ("length_too_long", ("add_here", ">i", 8, 1), "batch_length"),
            ("length_below_a_header", ("put_here", ">i", 8, 30), "batch_length"),
            ("length_beyond_the_file", ("put_here", ">i", 8, 10**9), "batch_length"),
            ("length_negative", ("put_here", ">i", 8, -1), "batch_length"),
        ),
        "magic": (
            ("magic_of_the_future", ("put_here", ">b", 16, 3), "magic"),
            ("magic_of_the_past", ("put_here", ">b", 16, 1), "magic"),
        ),
        "record count": (
            ("record_count_too_high", ("reseal_here", ">i", 57, 9), "record_count"),
            ("record_count_too_low", ("reseal_here", ">i", 57, 0), "record_count"),
            ("record_count_negative", ("reseal_here", ">i", 57, -1), "record_count"),
        ),
        "in a record": (
            ("record_of_a_negative_size", ("reseal_here", ">B", 61, 1), "record_structure"),
            ("record_with_a_key_beyond_it", ("reseal_here", ">B", 65, 0x7E), "record_structure"),
        ),
        "offsets out of order": (
            ("offset_of_a_record_too_high", ("reseal_here", ">B", 64, 10), "offset_delta"),
            ("last_offset_below_the_base", ("reseal_here", ">i", 23, -1), "offset_delta"),
        ),
        "in each header field": (
            ("codec_unknown", ("reseal_here", ">h", 21, 6), "codec"),
            ("transaction_without_a_producer", ("reseal_here", ">h", 21, 0x10), "producer_fields"),
            ("producer_without_an_epoch", ("reseal_here", ">q", 43, 7), "producer_fields"),
        ),
        "in a codec section": (
            ("codec_of_no_such_section", ("reseal_here", ">h", 21, 1), "codec"),
        ),
    },
)


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("origin", ORIGINS)
def test_damage_is_found_and_nothing_else(name, origin):
    place, expected = TABLE.seed(name, origin)
    assert expected
    assert place.found() == expected
    TABLE.check_values(name, origin, place)
