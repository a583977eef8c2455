from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import CorruptIndexError, InvalidOffsetError, SegmentOverflowError
from logstore.runtime import MemoryFileSystem, OverlayFileSystem, ReadOnlyFileSystem
from logstore.storage.index import OffsetIndex
from logstore.types import OffsetPosition
from tests.support.world.locks import HeldLock
from tests.support.world.messages import exactly

BASE = 45
NAME = "00000000000000000045.index"


def make_index(place, base_offset=BASE, max_index_bytes=8 * 30, name=NAME, writable=True):
    fs, directory = place
    return OffsetIndex(
        fs,
        f"{directory}/{name}",
        base_offset,
        max_index_bytes=max_index_bytes,
        writable=writable,
    )


def write_file(place, data: bytes, name=NAME) -> None:
    fs, directory = place
    file = fs.open(f"{directory}/{name}", create=True)
    file.write_at([data], 0)
    file.close()


def read_file(fs, path: str) -> bytes:
    return fs.open(path).read(0, fs.stat(path).size)


def test_s028_lookup_below_exact_between_and_above(place):
    """S-028: lookup returns the floor entry; below the first entry, the base."""
    index = make_index(place)
    entries = [OffsetPosition(46 + 3 * i, 100 * i + 7) for i in range(30)]
    for offset, position in entries:
        index.append(offset, position)
    assert index.lookup(45) == OffsetPosition(45, 0)
    assert index.lookup(0) == OffsetPosition(45, 0)
    for entry in entries:
        assert index.lookup(entry.offset) == entry
        assert index.lookup(entry.offset + 1) == entry
        assert index.lookup(entry.offset + 2) == entry
    assert index.lookup(10**15) == entries[-1]
    assert list(index) == entries
    assert [index.entry(slot) for slot in range(30)] == entries
    index._check()


def test_s029_preallocates_whole_entries_and_trims(place):
    """S-029: 100 bytes give a file of 96 and 12 entries; two entries trim to 16 bytes."""
    fs, _ = place
    index = make_index(place, max_index_bytes=100)
    assert index.max_entries == 12
    assert fs.stat(index.path).size == 96
    assert read_file(fs, index.path) == bytes(96)
    index.append(46, 0)
    index.append(47, 10)
    assert fs.stat(index.path).size == 96
    index.trim_to_valid_size()
    assert fs.stat(index.path).size == index.size_bytes == 16
    assert index.is_full
    index._check()


def test_s030_relative_offset_must_fit_31_bits(place):
    """S-030: a relative offset of 2^31 is refused, 2^31-1 is accepted."""
    index = make_index(place)
    with pytest.raises(
        SegmentOverflowError,
        match=exactly(
            "{path}/00000000000000000045.index: offset 2147483693 is not within 2^31-1 of base 45"
        ),
    ):
        index.append(BASE + 2**31, 0)
    with pytest.raises(
        SegmentOverflowError,
        match=exactly(
            "{path}/00000000000000000045.index: offset 44 is not within 2^31-1 of base 45"
        ),
    ):
        index.append(BASE - 1, 0)
    assert index.entries == 0
    assert not index.can_append_offset(BASE + 2**31)
    assert not index.can_append_offset(BASE - 1)
    assert index.can_append_offset(BASE)
    assert index.can_append_offset(BASE + 2**31 - 1)
    index.append(BASE + 2**31 - 1, 0)
    assert index.last_offset == BASE + 2**31 - 1
    assert index.lookup(BASE + 2**31) == OffsetPosition(BASE + 2**31 - 1, 0)


def test_s031_fetch_upper_bound_offset(place):
    """S-031: the first entry at or past the end of the read, or none."""
    index = make_index(place)
    assert index.fetch_upper_bound_offset(OffsetPosition(BASE, 0), 5) is None
    first, second, third, fourth = entries = [
        OffsetPosition(BASE, 0),
        OffsetPosition(BASE + 1, 10),
        OffsetPosition(BASE + 2, 23),
        OffsetPosition(BASE + 3, 37),
    ]
    for entry in entries:
        index.append(*entry)
    assert index.fetch_upper_bound_offset(first, 5) == second
    assert index.fetch_upper_bound_offset(first, 10) == second
    assert index.fetch_upper_bound_offset(first, 22) == third
    assert index.fetch_upper_bound_offset(first, 23) == third
    assert index.fetch_upper_bound_offset(first, 200) is None
    assert index.fetch_upper_bound_offset(second, 24) == fourth
    assert index.fetch_upper_bound_offset(fourth, 1) is None


def test_s032_reopened_index_keeps_entries_and_resize_makes_room(place):
    """S-032: entries = length / 8 after a reopen; room to append only after a resize."""
    fs, _ = place
    index = make_index(place)
    index.append(51, 345)
    index.append(52, 789)
    index.close()
    assert fs.stat(index.path).size == 16

    index = make_index(place)
    assert (index.entries, index.last_offset) == (2, 52)
    assert index.max_entries == 2
    assert fs.stat(index.path).size == 16
    assert index.is_full
    with pytest.raises(
        SegmentOverflowError,
        match=exactly("{path}/00000000000000000045.index: full with 2 entries"),
    ):
        index.append(53, 800)
    index.resize(8 * 30)
    assert fs.stat(index.path).size == 240
    assert (index.entries, index.max_entries, index.is_full) == (2, 30, False)
    index.append(53, 800)
    assert list(index) == [(51, 345), (52, 789), (53, 800)]
    index._check()


def test_golden_f3_bytes(place):
    fs, _ = place
    index = make_index(place, base_offset=50)
    index.append(55, 4096)
    index.close()
    assert read_file(fs, index.path) == bytes.fromhex("0000000500001000")


def test_nothing_is_touched_before_first_use(place):
    fs, directory = place
    index = make_index(place)
    index.rename_to(f"{directory}/renamed")
    assert not index.is_file_open
    assert not index.exists_on_disk
    assert fs.list_dir(directory) == []
    assert index.lookup(46) == OffsetPosition(BASE, 0)
    assert index.is_file_open
    assert fs.list_dir(directory) == ["renamed"]


def test_close_of_untouched_index_creates_and_trims_nothing(place):
    fs, directory = place
    make_index(place).close()
    assert fs.list_dir(directory) == []
    write_file(place, bytes(20))
    make_index(place).close()
    assert fs.stat(f"{directory}/{NAME}").size == 20


@pytest.mark.parametrize("touch", ("flush", "trim_to_valid_size", "truncate", "reset"))
def test_touching_creates_the_file(place, touch):
    index = make_index(place)
    getattr(index, touch)()
    assert index.exists_on_disk
    index._check()


def test_read_only_index_on_missing_file_is_empty(place):
    fs, directory = place
    index = make_index(place, writable=False)
    assert (index.entries, index.size_bytes, index.last_offset) == (0, 0, BASE)
    assert index.lookup(99) == OffsetPosition(BASE, 0)
    assert index.fetch_upper_bound_offset(OffsetPosition(BASE, 0), 1) is None
    assert list(index) == []
    index.sanity_check()
    index.flush()
    index.close()
    assert fs.list_dir(directory) == []


def test_read_only_index_refuses_changes(place):
    write_file(place, bytes.fromhex("0000000500001000"))
    index = make_index(place, writable=False)
    assert list(index) == [(50, 4096)]
    for change in (index.truncate, index.reset, index.trim_to_valid_size):
        with pytest.raises(
            ValueError, match=exactly("{path}/00000000000000000045.index: index is read-only")
        ):
            change()
    with pytest.raises(
        ValueError, match=exactly("{path}/00000000000000000045.index: index is read-only")
    ):
        index.resize(800)


def test_read_only_view_and_overlay_leave_the_base_alone():
    base = MemoryFileSystem()
    base.make_dirs("/log")
    write_file((base, "/log"), bytes.fromhex("0000000500001000"))
    view = ReadOnlyFileSystem(base)
    assert list(make_index((view, "/log"), writable=False)) == [(50, 4096)]
    overlaid = make_index((OverlayFileSystem(view), "/log"))
    overlaid.resize(80)
    overlaid.append(60, 5000)
    overlaid.truncate_to(60)
    overlaid.append(61, 5000)
    overlaid.close()
    assert list(make_index((base, "/log"), writable=False)) == [(50, 4096)]


def test_append_must_rise(place):
    index = make_index(place)
    index.append(50, 10)
    for offset in (50, 49):
        with pytest.raises(InvalidOffsetError):
            index.append(offset, 20)
    assert list(index) == [(50, 10)]


def test_first_entry_may_be_the_base_offset(place):
    index = make_index(place)
    index.append(BASE, 3)
    assert index.lookup(BASE) == OffsetPosition(BASE, 3)


def test_position_must_fit_31_bits(place):
    index = make_index(place)
    for position in (-1, 2**31):
        with pytest.raises(SegmentOverflowError):
            index.append(50, position)
    index.append(50, 2**31 - 1)
    assert index.lookup(50).position == 2**31 - 1


def test_full_index_refuses_appends(place):
    index = make_index(place, max_index_bytes=17)
    index.append(46, 0)
    assert not index.is_full
    index.append(47, 1)
    assert index.is_full
    with pytest.raises(
        SegmentOverflowError,
        match=exactly("{path}/00000000000000000045.index: full with 2 entries"),
    ):
        index.append(48, 2)


def test_maximum_below_one_entry_is_always_full(place):
    index = make_index(place, max_index_bytes=4)
    assert (index.max_entries, index.is_full) == (0, True)


def test_untrimmed_index_of_a_crash_is_full_of_zero_entries_until_reset(place):
    fs, _ = place
    write_file(place, bytes.fromhex("0000000500001000") + bytes(232))
    index = make_index(place, max_index_bytes=80)
    assert (index.entries, index.is_full, index.last_offset) == (30, True, BASE)
    index.sanity_check()
    index.reset()
    assert (index.entries, index.is_full) == (0, False)
    assert read_file(fs, index.path) == bytes(80)
    index._check()


def test_truncate_to_keeps_entries_below(place):
    fs, _ = place
    index = make_index(place)
    for offset in range(50, 70, 2):
        index.append(offset, offset)
    index.truncate_to(70)
    assert index.entries == 10
    index.truncate_to(61)
    assert (index.entries, index.last_offset) == (6, 60)
    index.truncate_to(60)
    assert (index.entries, index.last_offset) == (5, 58)
    assert fs.stat(index.path).size == 240
    assert read_file(fs, index.path)[40:] == bytes(200)
    index.append(59, 60)
    index.truncate_to(0)
    assert (index.entries, index.last_offset) == (0, BASE)
    index.append(46, 1)
    index.truncate()
    assert read_file(fs, index.path) == bytes(240)
    index._check()


def test_resize_never_drops_entries(place):
    fs, _ = place
    index = make_index(place)
    for offset in range(50, 60):
        index.append(offset, offset)
    index.resize(20)
    assert (index.entries, index.is_full, fs.stat(index.path).size) == (10, True, 80)
    index.reset()
    assert index.max_entries == 2


def test_resize_drops_a_torn_entry(place):
    fs, _ = place
    write_file(place, bytes.fromhex("0000000500001000") + b"noise")
    index = make_index(place)
    assert index.entries == 1
    index.resize(100)
    assert read_file(fs, index.path) == bytes.fromhex("0000000500001000") + bytes(88)


@pytest.mark.parametrize(
    ("data", "position", "message"),
    (
        (
            bytes(15),
            8,
            (
                "{path}/00000000000000000045.index at position 8: length 15 is not a "
                "multiple of the entry size 8"
            ),
        ),
        (
            bytes.fromhex("ffffffff00000000"),
            0,
            (
                "{path}/00000000000000000045.index at position 0: last offset 44 is "
                "below the base offset 45"
            ),
        ),
    ),
)
def test_sanity_check_finds_torn_length_and_offset_below_base(place, data, position, message):
    write_file(place, data)
    index = make_index(place)
    with pytest.raises(CorruptIndexError, match=exactly(message)) as caught:
        index.sanity_check()
    assert (caught.value.path, caught.value.position) == (index.path, position)
    assert caught.value.check
    assert caught.value.expected != caught.value.found


def test_sanity_check_of_missing_file_creates_nothing(place):
    fs, directory = place
    make_index(place).sanity_check()
    assert fs.list_dir(directory) == []


def test_rename_keeps_the_open_file(place):
    fs, directory = place
    index = make_index(place)
    index.append(50, 1)
    index.rename_to(f"{directory}/{NAME}.deleted")
    index.append(51, 2)
    assert index.lookup(51) == OffsetPosition(51, 2)
    assert fs.list_dir(directory) == [f"{NAME}.deleted"]
    index.close()
    assert fs.stat(index.path).size == 16


def test_path_follows_a_renamed_directory(place):
    fs, directory = place
    index = make_index(place)
    index.append(50, 1)
    fs.rename(directory, f"{directory}-delete")
    index.path = f"{directory}-delete/{NAME}"
    assert index.delete_if_exists()
    assert fs.list_dir(f"{directory}-delete") == []


def test_delete_if_exists(place):
    index = make_index(place)
    assert not index.delete_if_exists()
    index = make_index(place)
    index.append(50, 1)
    assert index.delete_if_exists()
    assert not index.exists_on_disk
    assert not index.is_file_open
    assert not index.delete_if_exists()


def test_closed_index_stays_closed(place):
    index = make_index(place)
    index.append(50, 1)
    index.close()
    index.close()
    with pytest.raises(
        ValueError, match=exactly("{path}/00000000000000000045.index: index is closed")
    ):
        index.lookup(50)
    index.delete_if_exists()
    with pytest.raises(
        ValueError, match=exactly("{path}/00000000000000000045.index: index is closed")
    ):
        index.append(51, 2)
    assert not index.exists_on_disk


def test_close_handler_does_not_trim(place):
    fs, _ = place
    index = make_index(place)
    index.append(50, 1)
    index.close_handler()
    assert fs.stat(index.path).size == 240
    index.close()
    assert fs.stat(index.path).size == 240


def test_close_leaves_an_exact_file_untouched(place):
    fs, _ = place
    write_file(place, bytes.fromhex("0000000500001000"))
    index = make_index(place)
    fs.set_mtime(index.path, 12345)
    assert index.entries == 1
    index.close()
    assert fs.stat(index.path).mtime_ms == 12345


def test_entry_outside_raises_index_error(place):
    index = make_index(place)
    index.append(50, 1)
    for slot in (-1, 1):
        with pytest.raises(IndexError):
            index.entry(slot)


def test_search_in_a_large_index(place):
    """Many fences and, in the position column, many halvings."""
    index = make_index(place, max_index_bytes=8 * 10_000)
    for i in range(10_000):
        index.append(BASE + 3 * i + 2, 7 * i)
    for i in (0, 1, 63, 64, 65, 127, 128, 129, 4999, 5000, 9983, 9984, 9985, 9999):
        entry = OffsetPosition(BASE + 3 * i + 2, 7 * i)
        assert index.lookup(entry.offset) == index.lookup(entry.offset + 2) == entry
        assert index.lookup(entry.offset - 1).offset == (entry.offset - 3 if i else BASE)
        assert index.fetch_upper_bound_offset(OffsetPosition(0, 7 * i), 0) == entry
        assert index.fetch_upper_bound_offset(OffsetPosition(0, 7 * i - 6), 0) == entry
    assert index.lookup(10**6) == index.entry(9999)
    assert index.fetch_upper_bound_offset(OffsetPosition(0, 0), 69_994) is None
    index.truncate_to(BASE + 3 * 5000)
    assert index.entries == 5000
    assert index.lookup(10**6) == index.entry(4999)
    index._check()


def test_readers_see_only_whole_entries_while_one_writer_appends_and_cuts(place):
    """Every result is an entry that was written; entries below the cuts are always found."""
    index = make_index(place, max_index_bytes=8 * 4000)
    kept = 500
    for i in range(kept):
        index.append(BASE + i, 10 * i)
    done = threading.Event()
    faults: list[object] = []

    def read() -> None:
        try:
            target = 0
            while not done.is_set():
                target = (target + 37) % 4000
                found = index.lookup(BASE + target)
                if found.position != 10 * (found.offset - BASE) or found.offset > BASE + target:
                    faults.append((target, found))
                if target < kept and found.offset != BASE + target:
                    faults.append((target, found))
        except Exception as error:
            faults.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for reader in readers:
            reader.start()
        for end in (1500, 900, 2500, 501, 3000, 700):
            for i in range(index.entries, end):
                index.append(BASE + i, 10 * i)
            index.truncate_to(BASE + kept + 20)
    finally:
        done.set()
        for reader in readers:
            reader.join()
        sys.setswitchinterval(interval)
    assert faults == []
    index._check()


@pytest.mark.parametrize("moment", ("before the fences", "before the page", "after the page"))
def test_a_lookup_during_a_truncation_finds_a_remaining_entry(place, monkeypatch, moment):
    """Truncate at each step of a lookup of the last entry: the result is an existing entry."""
    for kept in (0, 1, 63, 64, 65, 150, 191, 192, 193, 199):
        index = make_index(place, max_index_bytes=8 * 200, name=str(kept))
        entries = [OffsetPosition(BASE + 2 * i, 10 * i) for i in range(200)]
        for entry in entries:
            index.append(*entry)
        file, fences_for = index._file, index._fences_for
        if moment == "before the fences":

            def cut_then_fences(*args, index=index, kept=kept, fences_for=fences_for):
                index.truncate_to(BASE + 2 * kept)
                return fences_for(*args)

            # Only during the first search, not during the one inside the truncation.
            calls = iter((cut_then_fences,))
            monkeypatch.setattr(
                index,
                "_fences_for",
                lambda *args, calls=calls, real=fences_for: next(calls, real)(*args),
            )
        else:
            index.lookup(0)

            class Overtaken:
                def __init__(self, file, index, kept) -> None:
                    self.file, self.index, self.kept = file, index, kept

                def read(self, position, size):
                    self.index._file = self.file
                    if moment == "before the page":
                        self.index.truncate_to(BASE + 2 * self.kept)
                    data = self.file.read(position, size)
                    self.index.truncate_to(BASE + 2 * self.kept)
                    return data

            index._file = Overtaken(file, index, kept)
        found = index.lookup(BASE + 398)
        assert found in entries[:kept] or found == (BASE, 0)
        assert index.entries == kept
        assert index.lookup(BASE + 398) == (entries[kept - 1] if kept else (BASE, 0))
        index._check()


def test_readers_racing_to_create_agree(place):
    """The second one must not read the zeros of the new file as entries."""
    fs, directory = place
    for attempt in range(20):
        index = make_index((fs, directory), name=str(attempt))
        barrier = threading.Barrier(4)
        counts: list[int] = []

        def touch(index=index, barrier=barrier, counts=counts) -> None:
            barrier.wait()
            counts.append(index.entries)

        threads = [threading.Thread(target=touch) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert counts == [0, 0, 0, 0]


def test_import_needs_neither_numpy_nor_numba():
    code = "import sys, logstore.storage.index; assert not {'numpy', 'numba'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 9), st.integers(1, 99)),
        st.tuples(st.just("append_many"), st.integers(50, 150), st.integers(1, 9)),
        st.tuples(st.just("truncate_to"), st.floats(0, 1), st.integers(-1, 1)),
        st.tuples(st.just("resize"), st.integers(0, 3000), st.none()),
        st.tuples(st.just("reset"), st.none(), st.none()),
        st.tuples(st.just("trim"), st.none(), st.none()),
        st.tuples(st.just("reopen"), st.none(), st.none()),
        st.tuples(st.just("rename"), st.none(), st.none()),
    ),
    max_size=25,
)


@given(operations=OPERATIONS, targets=st.lists(st.integers(-5, 1500), max_size=10))
@settings(deadline=None)
def test_equals_a_list(make_place, operations, targets):
    """Against a plain list: the same entries, floors and upper bounds after any history."""
    place = make_place()
    fs, directory = place
    index = make_index(place, max_index_bytes=2000)
    model: list[OffsetPosition] = []

    def append(offset_step: int, position_step: int) -> None:
        offset, position = model[-1] if model else (BASE - 1, -1)
        entry = OffsetPosition(offset + offset_step, position + position_step)
        if index.is_full:
            with pytest.raises(SegmentOverflowError):
                index.append(*entry)
        else:
            index.append(*entry)
            model.append(entry)

    for number, (name, first, second) in enumerate(operations):
        if name == "append":
            append(first, second)
        elif name == "append_many":
            for _ in range(first):
                append(second, second)
        elif name == "truncate_to":
            offset = (model[int(first * (len(model) - 1))].offset if model else BASE) + second
            index.truncate_to(offset)
            model = [entry for entry in model if entry.offset < offset]
        elif name == "resize":
            index.resize(first)
            assert index.max_entries == max(first // 8, len(model))
        elif name == "reset":
            index.reset()
            model = []
        elif name == "trim":
            index.trim_to_valid_size()
            assert fs.stat(index.path).size == 8 * len(model)
        elif name == "reopen":
            index.flush()
            index.close()
            index = make_index(place, max_index_bytes=2000, name=index.path.rpartition("/")[2])
        else:
            index.rename_to(f"{directory}/{number}")
        index._check()
        assert index.entries == len(model)
        assert index.size_bytes == 8 * len(model)
        assert index.last_offset == (model[-1].offset if model else BASE)
        for target in targets:
            below = [entry for entry in model if entry.offset <= BASE + target]
            assert index.lookup(BASE + target) == (below[-1] if below else (BASE, 0))
            above = [entry for entry in model if entry.position >= target]
            bound = index.fetch_upper_bound_offset(OffsetPosition(0, target), 0)
            assert bound == (above[0] if above else None)
    assert list(index) == model
    assert [index.entry(slot) for slot in range(len(model))] == model


def test_a_file_is_opened_renamed_and_closed_under_a_lock(place):
    """A file that is opened while it is renamed or closed would be another one, or leak."""
    fs, directory = place
    index = make_index(place)
    lock = index._lock = HeldLock(index._lock)
    entered = []

    def note(call):
        before = lock.entered
        call()
        entered.append(lock.entered - before)

    note(lambda: index.loaded_entries)
    note(lambda: index.append(46, 70))
    note(lambda: index.lookup(46))
    note(lambda: index.lookup(46))
    note(lambda: index.rename_to(f"{directory}/new.index"))
    note(lambda: setattr(index, "path", f"{directory}/new.index"))
    note(lambda: index.release_file())
    note(lambda: index.lookup(46))
    note(lambda: index.truncate_to(45))
    note(lambda: index.retire())
    note(lambda: index.close_handler())
    assert entered == [1, 0, 1, 0, 1, 1, 0, 1, 1, 1, 1]
    assert (lock.depth, fs.exists(f"{directory}/new.index")) == (0, True)
