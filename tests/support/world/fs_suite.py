"""The suite for all writable file systems: disk, memory and overlay.

A test module subclasses `FileSystemSuite` and provides the fixture `place`. An overlay runs it
twice: over its own files, and over files of its base (`Place.add` writes the base's files).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import NamedTuple

import pytest

from logstore.runtime import FileKind, FileSystem, clear_folder, open_anew, remove_tree

BLOCK = 256 * 1024


class Place(NamedTuple):
    """A file system, an existing empty directory in it, and a function to add a file there.

    `add` may write through another file system beneath; no handle of it remains open.
    """

    fs: FileSystem
    root: str
    add: Callable[[str, bytes], None]

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def file(self, name: str, data: bytes = b"") -> str:
        path = self.path(name)
        self.add(path, data)
        return path

    def read_all(self, path: str) -> bytes:
        file = self.fs.open(path)
        data = file.read(0, file.size() + 1)
        file.close()
        return data


def write_file(fs: FileSystem, path: str, data: bytes) -> None:
    file = fs.open(path, create=True)
    if data:
        file.append([data])
    file.close()


class FileSystemSuite:
    """Behaviour of files and directories; subclasses give the fixture `place`."""

    renames_directories = True

    # --- one file ---------------------------------------------------------------------------

    def test_append_returns_the_position_of_the_first_byte(self, place):
        file = place.fs.open(place.path("a"), create=True)
        assert file.append([b"abc", b"", b"de"]) == 0
        assert file.append([bytearray(b"f"), memoryview(b"gh")]) == 5
        assert file.append([]) == 8
        assert file.size() == 8
        assert file.read(0, 100) == b"abcdefgh"
        file.close()

    def test_append_continues_at_the_end(self, place):
        path = place.file("a", b"old")
        file = place.fs.open(path, write=True)
        assert file.append([b"new"]) == 3
        assert file.read(0, 10) == b"oldnew"
        file.close()

    def test_append_of_more_buffers_than_one_system_call_carries(self, place):
        file = place.fs.open(place.path("a"), create=True)
        buffers = [bytes([number % 251]) * (number % 7) for number in range(3000)]
        file.append(buffers)
        assert file.read(0, 20_000) == b"".join(buffers)
        file.close()

    def test_write_takes_any_contiguous_buffer(self, place):
        file = place.fs.open(place.path("a"), create=True)
        file.append([memoryview(bytes(8)).cast("Q"), memoryview(b"xy")])
        assert file.read(0, 20) == bytes(8) + b"xy"
        file.close()

    @pytest.mark.parametrize("size", (BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 3 * BLOCK + 7))
    def test_contents_cross_block_borders(self, place, size):
        data = (bytes(range(251)) * (size // 251 + 1))[:size]
        path = place.file("a", data)
        file = place.fs.open(path, write=True)
        file.append([b"tail"])
        data += b"tail"
        for position in (0, 1, BLOCK - 2, BLOCK - 1, BLOCK, BLOCK + 1, size - 1, size, size + 3):
            for length in (1, 3, BLOCK, 2 * BLOCK + 3):
                expected = data[position : position + length]
                assert file.read(position, length) == expected
                view = bytearray(length)
                assert file.read_into(memoryview(view), position) == len(expected)
                assert view[: len(expected)] == expected
        file.close()

    def test_reads_end_at_the_end(self, place):
        path = place.file("a", b"abcdef")
        file = place.fs.open(path)
        assert file.read(4, 10) == b"ef"
        assert file.read(6, 10) == b""
        assert file.read(60, 10) == b""
        assert file.read(2, 0) == b""
        view = bytearray(b"zzzz")
        assert file.read_into(memoryview(view), 4) == 2
        assert view == b"efzz"
        assert file.read_into(memoryview(view), 6) == 0
        assert file.read_into(memoryview(view), 60) == 0
        assert file.read_into(memoryview(b""), 0) == 0
        file.close()

    def test_write_at_overwrites_and_extends(self, place):
        path = place.file("a", b"0123456789")
        file = place.fs.open(path, write=True)
        file.write_at([b"AB", b"C"], 3)
        assert file.read(0, 20) == b"012ABC6789"
        file.write_at([b"XYZ"], 9)
        assert file.read(0, 20) == b"012ABC678XYZ"
        file.write_at([b"q"], 0)
        assert file.read(0, 20) == b"q12ABC678XYZ"
        file.close()

    def test_a_gap_before_a_write_reads_as_zeros(self, place):
        path = place.file("a", b"abc")
        file = place.fs.open(path, write=True)
        file.write_at([b"z"], 6)
        assert file.read(0, 20) == b"abc\0\0\0z"
        file.write_at([b"end"], 2 * BLOCK + 5)
        assert file.size() == 2 * BLOCK + 8
        assert file.read(7, 2 * BLOCK) == bytes(2 * BLOCK - 2) + b"en"
        file.close()

    def test_writing_nothing_far_out_changes_nothing(self, place):
        path = place.file("a", b"abc")
        place.fs.set_mtime(path, 5_000)
        file = place.fs.open(path, write=True)
        file.write_at([b"", b""], 100)
        file.write_at([], 100)
        assert file.size() == 3
        assert place.fs.stat(path) == (3, 5_000)
        file.close()

    def test_truncate_cuts_and_extends_with_zeros(self, place):
        path = place.file("a", b"0123456789")
        file = place.fs.open(path, write=True)
        file.truncate(4)
        assert file.read(0, 20) == b"0123"
        file.truncate(6)
        assert file.read(0, 20) == b"0123\0\0"
        assert file.append([b"x"]) == 6
        assert file.read(0, 20) == b"0123\0\0x"
        file.truncate(0)
        assert (file.size(), file.read(0, 20)) == (0, b"")
        file.append([b"new"])
        assert file.read(0, 20) == b"new"
        file.close()

    @pytest.mark.parametrize("size", (1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK))
    def test_truncate_at_block_borders_drops_the_rest(self, place, size):
        path = place.file("a", b"x" * (2 * BLOCK + 10))
        file = place.fs.open(path, write=True)
        file.truncate(size)
        file.truncate(size + BLOCK)
        assert file.read(0, 4 * BLOCK) == b"x" * size + bytes(BLOCK)
        file.truncate(size)
        file.append([b"y" * BLOCK])
        assert file.read(0, 4 * BLOCK) == b"x" * size + b"y" * BLOCK
        file.close()

    def test_bytes_read_earlier_survive_a_change(self, place):
        path = place.file("a", b"x" * 100)
        file = place.fs.open(path, write=True)
        data = file.read(0, 100)
        file.write_at([b"y" * 100], 0)
        file.truncate(0)
        assert data == b"x" * 100
        file.close()

    def test_writer_keeps_no_hold_on_a_buffer(self, place):
        buffer = bytearray(b"abc")
        file = place.fs.open(place.path("a"), create=True)
        file.append([buffer])
        buffer[:] = b"xyz"
        buffer.extend(b"more")  # would raise if a view were left
        assert file.read(0, 10) == b"abc"
        file.close()

    # --- handles ----------------------------------------------------------------------------

    def test_handles_share_the_file(self, place):
        path = place.file("a", b"abc")
        reader = place.fs.open(path)
        writer = place.fs.open(path, write=True)
        writer.append([b"def"])
        assert (reader.size(), reader.read(0, 10)) == (6, b"abcdef")
        writer.truncate(1)
        assert reader.read(0, 10) == b"a"
        writer.close()
        writer.close()
        assert reader.read(0, 10) == b"a"
        reader.close()

    def test_a_handle_outlives_rename_and_remove(self, place):
        path = place.file("a", b"abc")
        file = place.fs.open(path, write=True)
        place.fs.rename(path, place.path("b"))
        file.append([b"d"])
        assert place.read_all(place.path("b")) == b"abcd"
        place.fs.remove(place.path("b"))
        file.append([b"e"])
        assert (file.size(), file.read(0, 10)) == (5, b"abcde")
        assert place.fs.list_dir(place.root) == []
        file.close()

    def test_a_handle_outlives_a_file_renamed_over_it(self, place):
        old = place.file("old", b"old")
        new = place.file("new", b"new")
        file = place.fs.open(old)
        place.fs.rename(new, old)
        assert file.read(0, 10) == b"old"
        assert place.read_all(old) == b"new"
        file.close()

    def test_a_new_file_shares_no_data_with_a_removed_one(self, place):
        path = place.file("a", b"first")
        file = place.fs.open(path)
        place.fs.remove(path)
        write_file(place.fs, path, b"2nd")
        assert file.read(0, 10) == b"first"
        assert place.read_all(path) == b"2nd"
        file.close()

    def test_create_keeps_existing_contents(self, place):
        path = place.file("a", b"abc")
        place.fs.open(path, create=True).close()
        assert place.read_all(path) == b"abc"

    def test_a_handle_for_reading_refuses_to_write(self, place):
        path = place.file("a", b"abc")
        file = place.fs.open(path)
        with pytest.raises(OSError):
            file.append([b"x"])
        with pytest.raises(OSError):
            file.write_at([b"x"], 0)
        with pytest.raises(OSError):
            file.truncate(0)
        file.close()
        assert place.read_all(path) == b"abc"

    def test_a_closed_handle_refuses_everything(self, place):
        file = place.fs.open(place.file("a", b"abc"), write=True)
        file.sync()
        file.close()
        for use in (
            file.size,
            file.sync,
            lambda: file.read(0, 1),
            lambda: file.read_into(memoryview(bytearray(1)), 0),
            lambda: file.append([b"x"]),
            lambda: file.write_at([b"x"], 0),
            lambda: file.truncate(0),
        ):
            with pytest.raises(OSError):
                use()

    # --- names ------------------------------------------------------------------------------

    def test_missing_files_are_named(self, place):
        path = place.path("missing")
        for use in (
            lambda: place.fs.open(path),
            lambda: place.fs.open(path, write=True),
            lambda: place.fs.open(place.path("no/such"), create=True),
            lambda: place.fs.stat(path),
            lambda: place.fs.set_mtime(path, 1),
            lambda: place.fs.remove(path),
            lambda: place.fs.rename(path, place.path("b")),
            lambda: place.fs.list_dir(path),
            lambda: place.fs.remove_dir(path),
        ):
            with pytest.raises(FileNotFoundError) as caught:
                use()
            assert str(caught.value.filename).startswith(place.root)
        assert not place.fs.exists(path)
        assert not place.fs.is_dir(path)
        assert place.fs.list_dir(place.root) == []

    def test_list_dir_is_sorted_and_shallow(self, place):
        for name in ("b", "a", "c.log"):
            place.file(name)
        place.fs.make_dirs(place.path("d/e"))
        write_file(place.fs, place.path("d/deep"), b"")
        assert place.fs.list_dir(place.root) == ["a", "b", "c.log", "d"]
        assert place.fs.list_dir(place.path("d")) == ["deep", "e"]
        assert place.fs.list_dir(place.path("d/e")) == []

    def test_exists_and_is_dir_distinguish_files_and_directories(self, place):
        path = place.file("a")
        assert place.fs.exists(path)
        assert not place.fs.is_dir(path)
        assert place.fs.exists(place.root)
        assert place.fs.is_dir(place.root)
        with pytest.raises(OSError):
            place.fs.list_dir(path)

    def test_kinds_are_returned_for_each_name(self, place):
        assert place.fs.kinds(place.root) == {}
        path = place.file("b", b"1")
        place.fs.make_dirs(place.path("a/deep"))
        write_file(place.fs, place.path("c"), b"")
        expected = {"a": FileKind.DIRECTORY, "b": FileKind.FILE, "c": FileKind.FILE}
        assert list(place.fs.kinds(place.root).items()) == list(expected.items())
        assert place.fs.kinds(place.path("a")) == {"deep": FileKind.DIRECTORY}
        for name, kind in expected.items():
            assert place.fs.kind(place.path(name)) is kind
        assert place.fs.kind(place.root) is FileKind.DIRECTORY
        place.fs.remove(path)
        for missing in (path, place.path("c/below"), place.path("no/such")):
            assert place.fs.kind(missing) is None
        del expected["b"]
        assert place.fs.kinds(place.root) == expected
        with pytest.raises(FileNotFoundError):
            place.fs.kinds(path)
        with pytest.raises(NotADirectoryError):
            place.fs.kinds(place.path("c"))

    def test_a_tree_is_removed_with_all_it_holds(self, place):
        place.fs.make_dirs(place.path("tree/a/b"))
        write_file(place.fs, place.path("tree/a/b/file"), b"1")
        write_file(place.fs, place.path("tree/file"), b"2")
        kept = place.file("kept", b"3")
        clear_folder(place.fs, place.path("tree/a"))
        assert place.fs.list_dir(place.path("tree")) == ["a", "file"]
        assert place.fs.list_dir(place.path("tree/a")) == []
        remove_tree(place.fs, place.path("tree"))
        assert place.fs.list_dir(place.root) == ["kept"]
        remove_tree(place.fs, kept)
        assert place.fs.list_dir(place.root) == []

    def test_a_new_file_is_empty(self, place):
        path = place.file("a", b"before")
        for _ in range(2):
            file = open_anew(place.fs, path)
            assert file.size() == 0
            file.append([b"new"])
            file.close()
        assert place.read_all(path) == b"new"
        place.fs.make_dirs(place.path("d"))
        with pytest.raises(IsADirectoryError):
            open_anew(place.fs, place.path("d"))

    def test_directories_are_not_files(self, place):
        place.fs.make_dirs(place.path("d"))
        for options in ({}, {"write": True}, {"create": True}):
            with pytest.raises(IsADirectoryError):
                place.fs.open(place.path("d"), **options)
        with pytest.raises(OSError):
            place.fs.remove(place.path("d"))
        with pytest.raises(OSError):
            place.fs.make_dirs(place.file("a") + "/b")
        with pytest.raises(OSError):
            place.fs.make_dirs(place.path("a"))
        with pytest.raises(OSError):
            place.fs.open(place.path("a/b"), create=True)
        assert place.fs.list_dir(place.root) == ["a", "d"]

    def test_make_dirs_makes_all_and_may_be_repeated(self, place):
        place.fs.make_dirs(place.path("d/e/f"))
        place.fs.make_dirs(place.path("d/e/f"))
        write_file(place.fs, place.path("d/e/f/a"), b"1")
        assert place.fs.list_dir(place.path("d/e")) == ["f"]
        assert place.read_all(place.path("d/e/f/a")) == b"1"
        place.fs.sync_dir(place.path("d/e"))

    def test_remove_dir_wants_it_empty(self, place):
        place.fs.make_dirs(place.path("d/e"))
        write_file(place.fs, place.path("d/e/a"), b"")
        for name in ("d", "d/e"):
            with pytest.raises(OSError):
                place.fs.remove_dir(place.path(name))
        place.fs.remove(place.path("d/e/a"))
        place.fs.remove_dir(place.path("d/e"))
        place.fs.remove_dir(place.path("d"))
        assert place.fs.list_dir(place.root) == []
        with pytest.raises(FileNotFoundError):
            place.fs.sync_dir(place.path("d"))

    def test_rename_moves_and_replaces(self, place):
        first, second = place.file("a", b"1"), place.file("b", b"2")
        place.fs.rename(first, second)
        assert place.fs.list_dir(place.root) == ["b"]
        assert place.read_all(second) == b"1"
        assert not place.fs.exists(first)
        place.fs.rename(second, second)
        assert place.read_all(second) == b"1"
        place.fs.make_dirs(place.path("d"))
        place.fs.rename(second, place.path("d/c"))
        assert place.fs.list_dir(place.path("d")) == ["c"]
        assert place.fs.list_dir(place.root) == ["d"]

    def test_a_refused_rename_changes_nothing(self, place):
        path = place.file("a", b"1")
        place.fs.make_dirs(place.path("d"))
        with pytest.raises(OSError):
            place.fs.rename(path, place.path("d"))
        with pytest.raises(FileNotFoundError):
            place.fs.rename(path, place.path("no/such"))
        with pytest.raises(OSError):
            place.fs.rename(place.path("d"), path)
        assert place.fs.list_dir(place.root) == ["a", "d"]
        assert place.read_all(path) == b"1"

    def test_rename_of_a_directory_takes_everything_along(self, place):
        place.fs.make_dirs(place.path("d/e"))
        write_file(place.fs, place.path("d/e/a"), b"1")
        write_file(place.fs, place.path("d-other"), b"2")
        file = place.fs.open(place.path("d/e/a"), write=True)
        if not self.renames_directories:
            with pytest.raises(OSError):
                place.fs.rename(place.path("d"), place.path("x"))
            file.close()
            return
        place.fs.rename(place.path("d"), place.path("x"))
        file.append([b"!"])
        assert place.fs.list_dir(place.root) == ["d-other", "x"]
        assert place.fs.list_dir(place.path("x")) == ["e"]
        assert place.read_all(place.path("x/e/a")) == b"1!"
        assert not place.fs.exists(place.path("d/e/a"))
        assert not place.fs.exists(place.path("d"))
        with pytest.raises(OSError):
            place.fs.rename(place.path("x"), place.path("x/e/y"))
        place.fs.make_dirs(place.path("full/inner"))
        with pytest.raises(OSError):
            place.fs.rename(place.path("x"), place.path("full"))
        place.fs.rename(place.path("x"), place.path("full/inner"))
        assert place.read_all(place.path("full/inner/e/a")) == b"1!"
        place.fs.rename(place.path("full"), place.path("full"))
        assert place.fs.list_dir(place.path("full")) == ["inner"]
        file.close()

    # --- modification times -----------------------------------------------------------------

    def test_mtime_is_kept_by_rename_and_renewed_by_change(self, place):
        path = place.file("a", b"abc")
        place.fs.set_mtime(path, 1_234_567_890_123)
        assert place.fs.stat(path) == (3, 1_234_567_890_123)
        other = place.path("b")
        place.fs.rename(path, other)
        assert place.fs.stat(other) == (3, 1_234_567_890_123)
        file = place.fs.open(other, write=True)
        assert file.read(0, 1) == b"a"
        assert place.fs.stat(other).mtime_ms == 1_234_567_890_123
        for change in (
            lambda: file.append([b"x"]),
            lambda: file.write_at([b"y"], 0),
            lambda: file.truncate(2),
        ):
            place.fs.set_mtime(other, 5_000)
            change()
            assert place.fs.stat(other).mtime_ms > 1_600_000_000_000
        assert place.fs.stat(other).size == 2
        file.close()

    # --- locks ------------------------------------------------------------------------------

    def test_a_lock_excludes_all_others_until_it_is_released(self, place):
        path = place.path(".lock")
        lock = place.fs.lock(path)
        assert lock.path == path
        assert place.fs.stat(path).size == 0
        assert place.fs.lock(path) is None
        other = place.fs.lock(place.path("other"))
        assert other is not None
        lock.release()
        lock.release()
        again = place.fs.lock(path)
        assert again is not None
        lock.release()  # no longer its own
        assert place.fs.lock(path) is None
        again.release()
        other.release()
        assert place.fs.list_dir(place.root) == [".lock", "other"]

    def test_the_holder_of_a_lock_is_reported_to_readers(self, place):
        path = place.path(".lock")
        assert place.fs.lock_holder(path) is None
        assert not place.fs.exists(path)
        lock = place.fs.lock(path)
        assert place.fs.lock_holder(path) == os.getpid()
        assert place.fs.lock(path) is None  # looking took nothing, and gave nothing up
        lock.release()
        assert place.fs.lock_holder(path) is None
        assert place.fs.lock_holder(place.path("no/.lock")) is None
        assert place.fs.lock_holder(f"{path}/.lock") is None

    def test_a_lock_keeps_the_files_contents(self, place):
        path = place.file(".lock", b"abc")
        place.fs.set_mtime(path, 5_000)
        lock = place.fs.lock(path)
        assert place.fs.stat(path) == (3, 5_000)
        assert place.read_all(path) == b"abc"
        lock.release()
        assert place.fs.stat(path) == (3, 5_000)

    def test_a_lost_lock_is_released(self, place):
        path = place.path(".lock")
        lock = place.fs.lock(path)
        assert place.fs.lock(path) is None
        del lock
        assert place.fs.lock(path) is not None

    def test_handles_on_a_locked_file_can_be_opened_and_closed(self, place):
        path = place.path(".lock")
        before = place.fs.open(path, create=True)
        lock = place.fs.lock(path)
        before.close()
        place.fs.open(path).close()
        with pytest.raises(OSError):
            before.size()
        assert place.fs.lock(path) is None
        lock.release()
        assert place.fs.lock(path) is not None

    def test_a_lock_is_the_files_whatever_its_name(self, place):
        path, moved = place.path(".lock"), place.path("moved")
        lock = place.fs.lock(path)
        place.fs.rename(path, moved)
        assert place.fs.lock(moved) is None
        successor = place.fs.lock(path)
        assert successor is not None
        lock.release()
        assert place.fs.lock(path) is None
        lock = place.fs.lock(moved)
        assert lock is not None
        place.fs.remove(moved)
        lock.release()

    def test_a_file_that_cannot_be_locked_is_named(self, place):
        place.fs.make_dirs(place.path("d"))
        with pytest.raises(IsADirectoryError) as caught:
            place.fs.lock(place.path("d"))
        assert caught.value.filename == place.path("d")
        with pytest.raises(FileNotFoundError) as caught:
            place.fs.lock(place.path("no/.lock"))
        assert caught.value.filename == place.path("no/.lock")
        assert place.fs.list_dir(place.root) == ["d"]

    def test_of_many_threads_one_gets_the_lock(self, place):
        path = place.path(".lock")
        started = threading.Barrier(8)
        locks = []

        def take() -> None:
            started.wait()
            locks.append(place.fs.lock(path))

        threads = [threading.Thread(target=take) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(locks) == 8
        assert sum(lock is not None for lock in locks) == 1

    # --- threads ----------------------------------------------------------------------------

    def test_threads_read_whole_records_while_one_appends(self, place):
        """Whatever is below the size that a reader has seen is there, and right."""
        path = place.file("a", b"")
        record = 1021  # divides no block
        count = 3 * BLOCK // record
        writer = place.fs.open(path, write=True)
        failures: list[str] = []
        started, done = threading.Barrier(4), threading.Event()

        def expected(start: int, end: int) -> bytes:
            first, last = start // record, -(-end // record)
            data = b"".join(bytes([1 + n % 250]) * record for n in range(first, last))
            return data[start - first * record : end - first * record]

        def read(step: int) -> None:
            file = place.fs.open(path)
            view = bytearray(3000)
            started.wait()
            last_round = False
            while not failures and not last_round:
                last_round = done.is_set()
                size = file.size()
                for position in (size - 1, size - 2999, size - size // step, BLOCK - 1500):
                    wanted = min(3000, size - position)
                    if position < 0 or wanted <= 0:
                        continue
                    if file.read(position, wanted) != expected(position, position + wanted):
                        failures.append(f"read at {position} of {size}")
                    if file.read_into(memoryview(view)[:wanted], position) != wanted:
                        failures.append(f"short read at {position} of {size}")
                    if view[:wanted] != expected(position, position + wanted):
                        failures.append(f"read_into at {position} of {size}")
            file.close()

        threads = [threading.Thread(target=read, args=(step,)) for step in (2, 3, 7)]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            for thread in threads:
                thread.start()
            started.wait()
            for number in range(count):
                writer.append([bytes([1 + number % 250]) * record])
        finally:
            done.set()
            for thread in threads:
                thread.join()
            sys.setswitchinterval(interval)
        writer.close()
        assert failures == []
        assert place.fs.stat(path).size == count * record
