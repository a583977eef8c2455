from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import CorruptIndexError, InvalidOffsetError, SegmentOverflowError
from logstore.storage.index import TimeIndex
from logstore.types import TimestampOffset
from tests.support.world.messages import exactly

BASE = 40
NAME = "00000000000000000040.timeindex"


def make_index(place, base_offset=BASE, max_index_bytes=12 * 20, name=NAME, writable=True):
    fs, directory = place
    return TimeIndex(
        fs,
        f"{directory}/{name}",
        base_offset,
        max_index_bytes=max_index_bytes,
        writable=writable,
    )


def write_file(place, data: bytes) -> None:
    fs, directory = place
    fs.open(f"{directory}/{NAME}", create=True).write_at([data], 0)


def filled(place, count=10) -> TimeIndex:
    index = make_index(place)
    for offset in range(BASE, BASE + count):
        index.maybe_append(offset * 10, offset)
    return index


def test_s029_preallocates_whole_entries_and_trims(place):
    """S-029: 100 bytes give a file of 96 and 8 entries; two entries trim to 24 bytes."""
    fs, _ = place
    index = make_index(place, max_index_bytes=100)
    assert index.max_entries == 8
    assert fs.stat(index.path).size == 96
    index.maybe_append(10, 41)
    index.maybe_append(20, 42)
    index.trim_to_valid_size()
    assert fs.stat(index.path).size == index.size_bytes == 24


def test_s033_lookup_and_order(place):
    """S-033: floor lookup, equal timestamps skipped, decreasing time or offset refused."""
    index = filled(place)
    assert index.lookup(399) == TimestampOffset(-1, BASE)
    for offset in range(BASE, BASE + 10):
        assert index.lookup(offset * 10) == TimestampOffset(offset * 10, offset)
        assert index.lookup(offset * 10 + 5) == TimestampOffset(offset * 10, offset)
    assert index.lookup(10**15) == TimestampOffset(490, 49)
    assert index.entries == 10
    index.maybe_append(490, 50)
    assert index.entries == 10
    with pytest.raises(
        InvalidOffsetError,
        match=exactly(
            "{path}/00000000000000000040.timeindex: timestamp 489 is below the last one, 490"
        ),
    ):
        index.maybe_append(489, 51)
    with pytest.raises(
        InvalidOffsetError,
        match=exactly("{path}/00000000000000000040.timeindex: offset 48 is below the last one, 49"),
    ):
        index.maybe_append(500, 48)
    assert index.entries == 10
    index.maybe_append(500, 49)
    assert index.last_entry == TimestampOffset(500, 49)
    index._check()


def test_s034_last_slot_is_reserved(place):
    """S-034: full at max - 1 entries; skipping the check uses the last slot once."""
    index = make_index(place, max_index_bytes=12 * 4)
    for i in range(3):
        assert not index.is_full
        index.maybe_append(i, BASE + i)
    assert index.is_full
    with pytest.raises(
        SegmentOverflowError,
        match=exactly("{path}/00000000000000000040.timeindex: full with 3 entries"),
    ):
        index.maybe_append(3, BASE + 3)
    index.maybe_append(3, BASE + 3, skip_full_check=True)
    assert index.entries == index.max_entries == 4
    with pytest.raises(
        SegmentOverflowError,
        match=exactly("{path}/00000000000000000040.timeindex: no slot left after 4"),
    ):
        index.maybe_append(4, BASE + 4, skip_full_check=True)
    index.maybe_append(3, BASE + 4, skip_full_check=True)
    assert list(index) == [(i, BASE + i) for i in range(4)]
    index._check()


def test_s035_truncate_to_and_truncate(place):
    """S-035: entries at or above the offset are removed; of none the last entry is (-1, base)."""
    fs, _ = place
    index = filled(place)
    index.truncate_to(BASE + 5)
    assert index.last_entry == TimestampOffset((BASE + 4) * 10, BASE + 4)
    assert list(index) == [(offset * 10, offset) for offset in range(BASE, BASE + 5)]
    assert fs.stat(index.path).size == 240
    index._check()
    index.truncate()
    assert index.last_entry == TimestampOffset(-1, BASE)
    assert index.last_offset == BASE
    assert fs.open(index.path).read(0, 1000) == bytes(240)


def test_s036_equal_timestamp_with_higher_offset_adds_nothing(place):
    """S-036: no entry, no error."""
    index = make_index(place)
    index.maybe_append(100, 45)
    index.maybe_append(100, 46)
    assert list(index) == [(100, 45)]


def test_golden_f4_bytes(place):
    fs, _ = place
    index = make_index(place, base_offset=50)
    index.maybe_append(1700000000000, 55)
    index.close()
    assert fs.open(index.path).read(0, 100) == bytes.fromhex("0000018bcfe5680000000005")


def test_truncate_to_drops_all_entries_of_an_offset(place):
    """Several timestamps may share an offset, as when a segment closes."""
    index = make_index(place)
    for timestamp in (1, 2, 3):
        index.maybe_append(timestamp, 45)
    index.truncate_to(45)
    assert index.entries == 0


def test_no_timestamp_is_never_indexed(place):
    index = make_index(place)
    index.maybe_append(-1, 45)
    index.maybe_append(-500, 45)
    assert index.entries == 0
    index.maybe_append(0, 45)
    assert index.lookup(0) == TimestampOffset(0, 45)


def test_relative_offset_must_fit_31_bits(place):
    index = make_index(place)
    for offset in (BASE + 2**31, BASE - 1):
        with pytest.raises(SegmentOverflowError):
            index.maybe_append(1, offset)
    index.maybe_append(1, BASE + 2**31 - 1)
    assert index.last_offset == BASE + 2**31 - 1


def test_reopened_index_is_full_until_resized(place):
    index = filled(place)
    index.close()
    index = make_index(place)
    assert (index.entries, index.last_entry, index.is_full) == (10, (490, 49), True)
    with pytest.raises(
        SegmentOverflowError,
        match=exactly("{path}/00000000000000000040.timeindex: full with 10 entries"),
    ):
        index.maybe_append(500, 50)
    with pytest.raises(
        SegmentOverflowError,
        match=exactly("{path}/00000000000000000040.timeindex: no slot left after 10"),
    ):
        index.maybe_append(500, 50, skip_full_check=True)
    index.resize(12 * 20)
    index.maybe_append(500, 50)
    assert index.entry(10) == TimestampOffset(500, 50)


def test_nothing_is_touched_before_first_use(place):
    fs, directory = place
    index = make_index(place)
    index.rename_to(f"{directory}/renamed")
    assert fs.list_dir(directory) == []
    assert index.last_entry == TimestampOffset(-1, BASE)
    assert fs.list_dir(directory) == ["renamed"]


def test_read_only_index_on_missing_file_is_empty(place):
    fs, directory = place
    index = make_index(place, writable=False)
    assert index.last_entry == index.lookup(5) == TimestampOffset(-1, BASE)
    assert list(index) == []
    index.sanity_check()
    index.close()
    assert fs.list_dir(directory) == []


@pytest.mark.parametrize(
    "data",
    (
        bytes(13),
        bytes.fromhex("0000018bcfe56800ffffffff"),
        bytes.fromhex("0000018bcfe5680000000005") + bytes(24),
    ),
    ids=("torn", "offset below base", "zeros behind entries"),
)
def test_sanity_check_finds_damage(place, data):
    write_file(place, data)
    index = make_index(place)
    with pytest.raises(CorruptIndexError) as caught:
        index.sanity_check()
    assert caught.value.path == index.path
    assert caught.value.expected != caught.value.found


def test_sanity_check_accepts_sound_and_empty_files(place):
    filled(place).close()
    make_index(place).sanity_check()
    index = make_index(place, name="empty")
    index.trim_to_valid_size()
    index.sanity_check()


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(-1, 5), st.integers(-1, 3)),
        st.tuples(st.just("append_many"), st.integers(50, 150), st.integers(1, 9)),
        st.tuples(st.just("close_segment"), st.integers(0, 5), st.integers(0, 3)),
        st.tuples(st.just("truncate_to"), st.floats(0, 1), st.integers(-1, 1)),
        st.tuples(st.just("resize"), st.integers(0, 3000), st.none()),
        st.tuples(st.just("reset"), st.none(), st.none()),
        st.tuples(st.just("reopen"), st.none(), st.none()),
    ),
    max_size=25,
)


@given(operations=OPERATIONS, targets=st.lists(st.integers(-5, 1500), max_size=10))
@settings(deadline=None)
def test_equals_a_list(make_place, operations, targets):
    """Against a plain list that follows storage-format §7.3 word by word."""
    place = make_place()
    index = make_index(place, max_index_bytes=2000)
    model: list[TimestampOffset] = []
    slots = 2000 // 12

    def append(time_step: int, offset_step: int, *, skip: bool = False) -> None:
        timestamp, offset = model[-1] if model else (-1, BASE)
        entry = TimestampOffset(timestamp + time_step, max(BASE, offset + offset_step))
        full = len(model) >= slots - 1 and not skip
        falls = bool(model) and (entry.offset < offset or entry.timestamp < timestamp)
        adds = entry.timestamp > timestamp
        if full or (adds and not falls and len(model) >= slots):
            with pytest.raises(SegmentOverflowError):
                index.maybe_append(*entry, skip_full_check=skip)
        elif falls:
            with pytest.raises(InvalidOffsetError):
                index.maybe_append(*entry, skip_full_check=skip)
        else:
            index.maybe_append(*entry, skip_full_check=skip)
            if adds:
                model.append(entry)

    for name, first, second in operations:
        if name == "append":
            append(first, second)
        elif name == "append_many":
            for _ in range(first):
                append(second, second)
        elif name == "close_segment":
            append(first, second, skip=True)
        elif name == "truncate_to":
            offset = (model[int(first * (len(model) - 1))].offset if model else BASE) + second
            index.truncate_to(offset)
            model = [entry for entry in model if entry.offset < offset]
        elif name == "resize":
            index.resize(first)
            slots = max(first // 12, len(model))
        elif name == "reset":
            index.reset()
            model = []
            slots = index.max_index_bytes // 12
        else:
            index.close()
            index = make_index(place, max_index_bytes=2000)
            slots = len(model) if index.exists_on_disk else 2000 // 12
        index._check()
        assert (index.entries, index.max_entries) == (len(model), slots)
        assert index.last_entry == (model[-1] if model else (-1, BASE))
        for target in targets:
            below = [entry for entry in model if entry.timestamp <= target]
            assert index.lookup(target) == (below[-1] if below else (-1, BASE))
    assert list(index) == model
