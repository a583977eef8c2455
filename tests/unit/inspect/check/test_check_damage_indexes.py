"""Seeded damage to indexes, and to the markers that one of them is about: found alone, in place.

Every row runs on a directory of Kafka's and on one of this engine's.
"""

import pytest

from logstore.inspect.check import ERROR, INFO, WARNING
from logstore.inspect.check.findings import LIMIT
from tests.support.world.damage import ORIGINS, DamageTable, Found

TABLE = DamageTable()
row = TABLE.row


# -- offset index ----------------------------------------------------------------------------------


def entry(place, check, slot, offset=None, severity=ERROR):
    """Return a finding at an entry of the offset index, by default of the offset it has now."""
    offset = place.entry(slot)[0] if offset is None else offset
    return [Found(check, place.index, 8 * slot, offset, severity)]


@row("index unsorted")
def index_entry_to_a_much_later_batch(place):
    place.put(place.index, ">i", 12, place.entry(4)[1])
    return entry(place, "index_order", 1)


@row("index unsorted")
def index_entries_beyond_counting(place):
    """Entries that do not ascend: as many as are listed, and seven more."""
    end = len(place.read(place.index))
    slots = end // 8
    place.append(place.index, place.read(place.index)[-8:] * (LIMIT + 7))
    offset = place.entry(slots - 1)[0]
    told = [Found("index_order", place.index, end + 8 * n, offset) for n in range(LIMIT)]
    return [*told, Found("suppressed", place.index, None, None, INFO)]


@row("odd size")
def index_of_odd_size(place):
    end = len(place.read(place.index))
    place.append(place.index, b"\1\2\3")
    return [Found("index_size", place.index, end)]


@row("odd size")
def index_cut_inside_an_entry(place):
    end = len(place.read(place.index))
    place.cut(place.index, -3)
    return [Found("index_size", place.index, end - 8)]


@row("wrong position")
def index_position_of_the_next_batch(place):
    place.put(place.index, ">i", 12, place.position_of(place.number + 1))
    return entry(place, "index_entry", 1)


@row("wrong position")
def index_offset_of_the_batch_before(place):
    place.put(place.index, ">i", 8, place.offset - 1 - place.base)
    return entry(place, "index_entry", 1)


@row("wrong position")
def index_offset_of_a_batch_that_follows(place):
    """Sound to a look-up, and what Kafka wrote before 3.9.1 for a chunk of batches."""
    last_offset = place.after(1).header.last_offset
    place.put(place.index, ">i", 8, last_offset - place.base)
    return entry(place, "index_chunked", 1, severity=INFO)


@row("wrong position")
def index_offset_inside_a_batch_that_follows(place):
    """Sound to a look-up too, but no chunk ends there."""
    batch = next(each for each in map(place.after, (1, 2, 3)) if each.header.last_offset_delta)
    place.put(place.index, ">i", 8, batch.header.base_offset - place.base)
    return entry(place, "index_chunked", 1, severity=WARNING)


@row("beyond the file")
def index_position_at_the_end(place):
    last = len(place.read(place.index)) // 8 - 1
    place.put(place.index, ">i", 8 * last + 4, len(place.read(place.log)))
    return entry(place, "index_position", last)


@row("index unsorted")
def index_padded_with_zeros(place):
    end = len(place.read(place.index))
    place.append(place.index, bytes(80))
    return [Found("index_padding", place.index, end)]


@row("missing `.log`")
def index_lost(place):
    place.remove(place.index)
    return [Found("missing_index", place.index, None, place.base, WARNING)]


@row("missing `.log`")
def index_of_no_segment(place):
    name = f"golden-0/{999:020d}.index"
    place.write(name, bytes(80))
    return [Found("orphan_index", name, None, 999, INFO)]


# -- time index ------------------------------------------------------------------------------------


def time_entry(place, check, slot, severity=ERROR):
    """Return a finding at an entry of the time index, of the offset it has now."""
    return [Found(check, place.time_index, 12 * slot, place.time_entry(slot)[1], severity)]


@row("wrong timestamp")
def time_index_lacks_the_largest_timestamp(place):
    place.cut(place.time_index, -12)
    end = len(place.read(place.time_index))
    return [Found("time_index_last", place.time_index, end, None, WARNING)]


@row("odd size")
def time_index_of_odd_size(place):
    end = len(place.read(place.time_index))
    place.append(place.time_index, b"\1\2\3")
    return [Found("time_index_size", place.time_index, end)]


@row("time index unsorted")
def time_index_padded_with_zeros(place):
    end = len(place.read(place.time_index))
    place.append(place.time_index, bytes(120))
    return [Found("time_index_padding", place.time_index, end)]


@row("missing `.log`")
def time_index_lost(place):
    place.remove(place.time_index)
    return [Found("missing_index", place.time_index, None, place.base, WARNING)]


# -- transaction index -----------------------------------------------------------------------------


def txn_entry(place, check, slot=0, *, moved_by=0):
    """Return a finding at an entry of the transaction index, of the marker it names now."""
    data = place.read(place.txn_index)[34 * slot :]
    return Found(check, place.txn_index, 34 * slot, int.from_bytes(data[18:26], "big") + moved_by)


def txn_lost(place, slot=0):
    """Return the finding of an entry that is not there any more."""
    return txn_entry(place, "txn_index_missing", slot)._replace(position=None)


@row("odd size", "transactions")
def txn_index_of_odd_size(place):
    end = len(place.read(place.txn_index))
    place.append(place.txn_index, b"123")
    return [Found("txn_index_size", place.txn_index, end)]


@row("out of range", "transactions")
def txn_index_of_no_marker(place):
    lost = txn_lost(place)
    place.add(place.txn_index, ">q", 18, 1)
    return [txn_entry(place, "txn_index_entry"), lost]


@row("out of range", "transactions")
def txn_index_of_a_marker_elsewhere(place):
    lost = txn_lost(place, 1)
    place.put(place.txn_index, ">q", 34 + 18, 10**6)
    return [txn_entry(place, "txn_index_entry", 1), lost]


@row("index unsorted", "transactions")
def txn_index_lacks_an_entry(place):
    lost = txn_lost(place)
    place.write(place.txn_index, place.read(place.txn_index)[34:])
    return [lost]


@row("index unsorted", "transactions")
def txn_index_is_lost(place):
    lost = [txn_lost(place, slot) for slot in (0, 1)]
    place.remove(place.txn_index)
    return lost


# -- markers ---------------------------------------------------------------------------------------


def marker_position(place):
    """Position and offset of the first marker of the segment."""
    number = next(n for n, each in enumerate(place.batches) if each.header.is_control)
    return place.position_of(number), place.batches[number].header.base_offset


@row("in each header field", "transactions")
def marker_with_a_sequence(place):
    position, offset = marker_position(place)
    place.reseal(place.log, position, ">i", 53, 5)
    return [Found("control_batch", place.log, position, offset)]


@row("in a record", "transactions")
def marker_of_a_negative_version(place):
    position, offset = marker_position(place)
    place.reseal(place.log, position, ">B", 66, 0x80)
    return [Found("control_batch", place.log, position, offset)]


# -- one field -------------------------------------------------------------------------------------

TABLE.add(
    "index",
    entry,
    {
        "index unsorted": (
            ("index_entries_swapped", ("swap", 8), ("index_order", 1)),
            ("index_entry_to_an_earlier_batch", ("put", ">i", 12, 0), ("index_order", 1)),
        ),
        "out of range": (
            ("index_offset_in_a_later_segment", ("put", ">i", 8, 10**6), ("index_range", 1)),
            ("index_offset_below_the_base", ("put", ">i", 8, -3), ("index_range", 1)),
        ),
        "wrong position": (
            ("index_position_inside_a_batch", ("add", ">i", 12, 1), ("index_position", 1)),
        ),
        "beyond the file": (
            ("index_position_beyond_the_file", ("put", ">i", 12, 10**6), ("index_position", 1)),
            ("index_position_negative", ("put", ">i", 12, -1), ("index_position", 1)),
        ),
    },
)
TABLE.add(
    "time_index",
    time_entry,
    {
        "time index unsorted": (
            ("time_index_entries_swapped", ("swap", 12), ("time_index_order", 1)),
            ("time_index_timestamp_in_the_past", ("put", ">q", 12, 5), ("time_index_order", 1)),
            (
                "time_index_timestamp_in_the_future",
                ("put", ">q", 12, 1 << 60),
                ("time_index_order", 1),
            ),
        ),
        "wrong timestamp": (
            ("time_index_timestamp_too_late", ("add", ">q", 12, 1), ("time_index_entry", 1)),
            ("time_index_timestamp_too_early", ("add", ">q", 12, -1), ("time_index_entry", 1)),
            ("time_index_offset_of_the_next_batch", ("add", ">i", 20, 1), ("time_index_entry", 1)),
            ("time_index_offset_in_no_segment", ("put", ">i", 20, 9999), ("time_index_range", 1)),
        ),
    },
)
TABLE.add(
    "txn_index",
    txn_entry,
    {
        "index unsorted": (("txn_index_entries_swapped", ("swap", 34), ("txn_index_order", 1)),),
        "checkpoint of wrong version": (
            ("txn_index_of_another_version", ("flip", 1), "txn_index_version"),
        ),
        "wrong position": (
            ("txn_index_of_another_producer", ("add", ">q", 2, 5), "txn_index_entry"),
            ("txn_index_of_another_first_offset", ("add", ">q", 10, 1), "txn_index_entry"),
            ("txn_index_of_a_negative_first_offset", ("flip", 10, 7), "txn_index_entry"),
            ("txn_index_of_another_stable_offset", ("add", ">q", 26, -1), "txn_index_entry"),
        ),
    },
    case="transactions",
)


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("origin", ORIGINS)
def test_damage_is_found_and_nothing_else(name, origin):
    place, expected = TABLE.seed(name, origin)
    assert expected
    assert place.found() == expected
    TABLE.check_values(name, origin, place)
