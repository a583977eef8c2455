"""MemoryFileSystem: the shared suite, sparseness, forks, and reads during truncations."""

import sys
import threading
import tracemalloc
from itertools import product

import pytest

from logstore.runtime import MemoryFileSystem, VirtualClock
from logstore.runtime.memfs import BLOCK_SIZE, MemoryBytes
from tests.support.world.fs_suite import BLOCK, FileSystemSuite, Place, write_file


class TestMemoryFileSystem(FileSystemSuite):
    @pytest.fixture
    def place(self):
        fs = MemoryFileSystem()
        fs.make_dirs("/data")
        return Place(fs, "/data", lambda path, data: write_file(fs, path, data))


class TestMemoryFileSystemWithRelativePaths(FileSystemSuite):
    @pytest.fixture
    def place(self):
        fs = MemoryFileSystem()
        fs.make_dirs("data/dir")
        return Place(fs, "data/dir", lambda path, data: write_file(fs, path, data))


def test_blocks_are_those_the_suite_tries():
    assert BLOCK_SIZE == BLOCK


def test_root_is_there_from_the_start():
    fs = MemoryFileSystem()
    write_file(fs, "/a", b"1")
    write_file(fs, "b", b"2")
    assert fs.list_dir("/") == ["a"]
    assert fs.list_dir("") == ["b"]


def test_files_have_the_clocks_time():
    clock = VirtualClock(1_000_000)
    fs = MemoryFileSystem(clock)
    file = fs.open("/a", create=True)
    assert fs.stat("/a") == (0, 1_000_000)
    clock.advance(ms=5)
    file.append([b"x"])
    assert fs.stat("/a") == (1, 1_000_005)


@pytest.mark.parametrize("written", (0, 24, BLOCK_SIZE, BLOCK_SIZE + 24))
def test_zeros_that_were_never_written_cost_no_memory(written):
    """An index of 10 MiB is preallocated, then filled from its start, entry by entry."""
    file = MemoryFileSystem().open("/a.index", create=True)
    tracemalloc.start()
    try:
        file.truncate(10 << 20)
        for position in range(0, written, 8):
            file.write_at([b"8 bytes!"], position)
        assert file.size() == 10 << 20
        assert file.read((10 << 20) - 8, 8) == bytes(8)
        held, _ = tracemalloc.get_traced_memory()
        assert held < written + 64 * 1024
        assert file.written() == written
        assert file.read(0, 20 << 20) == b"8 bytes!" * (written // 8) + bytes((10 << 20) - written)
    finally:
        tracemalloc.stop()


def test_a_far_write_shares_the_zeros_before_it():
    file = MemoryFileSystem().open("/a", create=True)
    tracemalloc.start()
    try:
        file.write_at([b"end"], 10 << 20)
        assert tracemalloc.get_traced_memory()[0] < 64 * 1024
    finally:
        tracemalloc.stop()
    assert file.read((10 << 20) - 2, 10) == b"\0\0end"
    file.write_at([b"x"], 3 * BLOCK_SIZE + 1)
    assert file.read(3 * BLOCK_SIZE, 3) == b"\0x\0"
    assert file.read(2 * BLOCK_SIZE, 3) == bytes(3)


def test_forks_are_independent_in_both_directions():
    fs = MemoryFileSystem()
    fs.make_dirs("/d")
    old = b"o" * (2 * BLOCK_SIZE + 100)
    write_file(fs, "/d/a", old)
    write_file(fs, "/d/b", b"b")
    twin = fs.fork()
    ours, theirs = fs.open("/d/a", write=True), twin.open("/d/a", write=True)
    ours.write_at([b"1"], 5)
    ours.append([b"1" * BLOCK_SIZE])
    theirs.write_at([b"2"], BLOCK_SIZE + 5)
    theirs.write_at([b"2"], 2 * BLOCK_SIZE + 5)
    theirs.truncate(2 * BLOCK_SIZE + 50)
    fs.remove("/d/b")
    twin.make_dirs("/d/e")
    twin.set_mtime("/d/a", 77)
    assert ours.read(0, 1 << 20) == old[:5] + b"1" + old[6:] + b"1" * BLOCK_SIZE
    changed = bytearray(old[: 2 * BLOCK_SIZE + 50])
    changed[BLOCK_SIZE + 5] = changed[2 * BLOCK_SIZE + 5] = ord("2")
    assert theirs.read(0, 1 << 20) == changed
    assert (fs.list_dir("/d"), twin.list_dir("/d")) == (["a"], ["a", "b", "e"])
    assert fs.stat("/d/a").mtime_ms != 77


def test_a_fork_shares_sealed_blocks():
    fs = MemoryFileSystem()
    write_file(fs, "/a", b"o" * (40 * BLOCK_SIZE))
    tracemalloc.start()
    try:
        twin = fs.fork()
        assert tracemalloc.get_traced_memory()[0] < BLOCK_SIZE
    finally:
        tracemalloc.stop()
    assert twin.stat("/a").size == 40 * BLOCK_SIZE


def test_the_tail_is_copied_only_as_far_as_it_is_written():
    contents = MemoryBytes()
    contents.write_at(memoryview(b"x" * (BLOCK_SIZE - 1)), 0)
    contents.truncate(10)
    twin = contents.copy()
    contents.write_at(memoryview(b"y"), 10)
    assert twin.read(0, 100) == b"x" * 10
    twin.write_at(memoryview(b"z"), 10)
    assert contents.read(0, 100) == b"x" * 10 + b"y"


class Interrupted(MemoryBytes):
    """Contents whose reader is overtaken by a writer at one chosen look at the fields."""

    __slots__ = ("looks_left", "meanwhile")

    def __getattribute__(self, name):
        value = super().__getattribute__(name)
        if name in {"size", "written", "_blocks_and_tail"} and self.looks_left is not None:
            self.looks_left -= 1
            if self.looks_left == 0:
                self.looks_left = None
                self.meanwhile()
        return value


@pytest.mark.parametrize("size_before", (100, BLOCK_SIZE - 100, BLOCK_SIZE, 2 * BLOCK_SIZE - 7))
@pytest.mark.parametrize("added", (50, 300, BLOCK_SIZE, 2 * BLOCK_SIZE))
@pytest.mark.parametrize("preallocated", (0, 4 * BLOCK_SIZE))
@pytest.mark.parametrize("looks", range(1, 8))
def test_a_reader_overtaken_by_an_append_sees_all_that_was_there(
    size_before, added, preallocated, looks
):
    """The order in which a reader takes the fields is what keeps it right without a lock."""
    data = bytes(range(1, 252)) * (5 * BLOCK_SIZE // 251)
    for read_from, read_by_view in product((0, size_before - 90), (False, True)):
        contents = Interrupted()
        contents.looks_left = None
        contents.write_at(memoryview(data)[:size_before], 0)
        contents.truncate(max(size_before, preallocated))
        added_data = memoryview(data)[size_before : size_before + added]
        contents.meanwhile = lambda c=contents, d=added_data: c.write_at(d, size_before)
        contents.looks_left = looks
        if read_by_view:
            view = bytearray(5 * BLOCK_SIZE)
            found = bytes(view[: contents.read_into(memoryview(view), read_from)])
        else:
            found = contents.read(read_from, 5 * BLOCK_SIZE)
        contents.looks_left = None
        assert len(found) >= size_before - read_from
        if preallocated:  # where what came meanwhile may still be the zeros before it
            found = found.rstrip(b"\0")
        assert found == data[read_from : read_from + len(found)]
        assert len(found) >= size_before - read_from


NUMBERED = b"".join(bytes([1 + number]) * BLOCK_SIZE for number in range(4))


@pytest.mark.parametrize("kept", (0, 5, BLOCK_SIZE, BLOCK_SIZE + 5, 2 * BLOCK_SIZE + 700))
@pytest.mark.parametrize("added", (0, 1, 600, BLOCK_SIZE, 3 * BLOCK_SIZE))
@pytest.mark.parametrize("position", (0, BLOCK_SIZE - 10, BLOCK_SIZE + 3, 3 * BLOCK_SIZE - 300))
def test_a_reader_overtaken_by_a_truncation_sees_no_byte_that_was_never_there(
    kept, added, position
):
    """Kept and added bytes equal the previous ones, so zeros would be detected."""
    for looks, length, read_by_view in product(range(1, 8), (200, 300_000), (False, True)):
        contents = Interrupted()
        contents.looks_left = None
        contents.write_at(memoryview(NUMBERED), 0)

        def cut_and_append(contents=contents):
            contents.truncate(kept)
            if added:
                contents.write_at(memoryview(NUMBERED)[kept : kept + added], kept)

        contents.meanwhile = cut_and_append
        contents.looks_left = looks
        if read_by_view:
            view = bytearray(length)
            found = bytes(view[: contents.read_into(memoryview(view), position)])
        else:
            found = contents.read(position, length)
        assert found == NUMBERED[position : position + len(found)]
        assert len(found) >= min(length, min(kept + added, len(NUMBERED)) - position)


class Shown(MemoryBytes):
    """Contents that a reader looks at after each step of a writer."""

    __slots__ = ("show",)

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name != "show" and hasattr(self, "show"):
            self.show()


@pytest.mark.parametrize("kept", (0, 5, BLOCK_SIZE, BLOCK_SIZE + 5, 2 * BLOCK_SIZE + 700))
def test_each_step_of_a_truncation_leaves_only_bytes_that_were_there(kept):
    contents = Shown()
    contents.write_at(memoryview(NUMBERED), 0)
    shown = []

    def show():
        found = contents.read(0, len(NUMBERED))
        view = bytearray(len(NUMBERED))
        count = contents.read_into(memoryview(view), 0)
        assert found == view[:count] == NUMBERED[: len(found)]
        shown.append(len(found))

    contents.show = show
    contents.truncate(kept)
    assert shown == sorted(shown, reverse=True)
    assert shown[-1] == kept
    contents.write_at(memoryview(NUMBERED)[kept:], kept)
    assert shown[-1] == len(NUMBERED)


def test_a_read_concurrent_with_truncations_may_end_early_but_is_correct():
    """Each block holds its own number: a byte from another block or a zero would be seen."""
    fs = MemoryFileSystem()
    blocks = [bytes([1 + number]) * BLOCK_SIZE for number in range(4)]
    write_file(fs, "/a", b"".join(blocks))
    writer, reader = fs.open("/a", write=True), fs.open("/a")
    failures: list[str] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set() and not failures:
            for position in range(BLOCK_SIZE - 10, 4 * BLOCK_SIZE, BLOCK_SIZE // 2):
                data = reader.read(position, BLOCK_SIZE)
                found = [data[0], data[-1]] if data else []
                last = position + len(data) - 1
                if found != [1 + at // BLOCK_SIZE for at in (position, last)][: len(found)]:
                    failures.append(f"{found} at {position}..{last}")

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=read)
    thread.start()
    try:
        for size in (BLOCK_SIZE + 5, 2 * BLOCK_SIZE, 5, 3 * BLOCK_SIZE + 1) * 20:
            writer.truncate(size)
            number = size // BLOCK_SIZE
            writer.append([blocks[number][size % BLOCK_SIZE :], *blocks[number + 1 :]])
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert failures == []
