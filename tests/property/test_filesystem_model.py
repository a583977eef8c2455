"""File systems in memory against a dict of bytearrays, step by step.

Handles are part of the model: each keeps the contents it was opened on, whatever happens to the
name; so does a lock. A fork and its model diverge from the time of the fork.
"""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from logstore.runtime import MemoryFileSystem, OverlayFileSystem, ReadOnlyFileSystem, VirtualClock

BLOCK = 256 * 1024
FAR = 10 << 20
ROOT = "/data"

names = st.sampled_from(["a", "b", "c", "d"])
seeds = st.integers(0, 250)
near_borders = st.sampled_from([0, BLOCK, 2 * BLOCK, 3 * BLOCK]).flatmap(
    lambda border: st.integers(max(0, border - 3), border + 3)
)
sizes = st.one_of(st.integers(0, 600), near_borders)
positions = st.one_of(st.integers(0, 1000), near_borders)


def pattern(seed, size):
    """Bytes that differ from their neighbours and from other seeds."""
    return (bytes((seed + step) % 251 for step in range(251)) * (size // 251 + 1))[:size]


class Model:
    """A file: a bytearray and its expected modification time."""

    def __init__(self, data, mtime_ms):
        self.data = bytearray(data)
        self.mtime_ms = mtime_ms

    def copy(self):
        return Model(self.data, self.mtime_ms)

    def write_at(self, piece, position):
        if piece:
            self.data.extend(bytes(max(0, position - len(self.data))))
            self.data[position : position + len(piece)] = piece

    def truncate(self, size):
        del self.data[size:]
        self.data.extend(bytes(size - len(self.data)))


class FileSystemMachine(RuleBasedStateMachine):
    """Random changes through handles and names, on a memory file system."""

    handles = Bundle("handles")

    def __init__(self):
        super().__init__()
        self.clock = VirtualClock(1_000_000)
        self.fs = self.make_file_system()
        self.files = self.first_files()
        self.forks = []
        self.locks = {}  # by the model of the file, whatever its name

    def make_file_system(self):
        fs = MemoryFileSystem(self.clock)
        fs.make_dirs(ROOT)
        return fs

    def first_files(self):
        return {}

    @rule(target=handles, name=names)
    def create(self, name):
        self.clock.advance(ms=1)
        model = self.files.setdefault(name, Model(b"", self.clock.now_ms()))
        return self.fs.open(f"{ROOT}/{name}", create=True), model

    @rule(target=handles, name=names)
    def open(self, name):
        if name not in self.files:
            return multiple()
        return self.fs.open(f"{ROOT}/{name}", write=True), self.files[name]

    @rule(handle=handles, seed=seeds, counts=st.lists(sizes, max_size=3))
    def append(self, handle, seed, counts):
        file, model = handle
        pieces = [pattern(seed + number, size) for number, size in enumerate(counts)]
        self.clock.advance(ms=1)
        assert file.append(pieces) == len(model.data)
        model.data += b"".join(pieces)
        if any(pieces):
            model.mtime_ms = self.clock.now_ms()

    @rule(handle=handles, seed=seeds, position=positions, size=sizes)
    def write_at(self, handle, seed, position, size):
        file, model = handle
        self.clock.advance(ms=1)
        file.write_at([pattern(seed, size)], position)
        model.write_at(pattern(seed, size), position)
        if size:
            model.mtime_ms = self.clock.now_ms()

    @rule(handle=handles, size=st.one_of(positions, st.just(FAR)))
    def truncate(self, handle, size):
        file, model = handle
        self.clock.advance(ms=1)
        file.truncate(size)
        model.truncate(size)
        model.mtime_ms = self.clock.now_ms()

    @rule(handle=handles, position=positions, size=sizes)
    def read(self, handle, position, size):
        file, model = handle
        expected = bytes(model.data[position : position + size])
        assert file.read(position, size) == expected
        view = bytearray(size)
        assert file.read_into(memoryview(view), position) == len(expected)
        assert view == expected + bytes(size - len(expected))

    @rule(handle=handles)
    def read_the_end(self, handle):
        file, model = handle
        size = len(model.data)
        assert file.size() == size
        assert file.read(max(0, size - 700), 1000) == model.data[max(0, size - 700) :]

    @rule(handle=consumes(handles))
    def close(self, handle):
        handle[0].close()

    @rule(old=names, new=names)
    def rename(self, old, new):
        if old in self.files:
            self.fs.rename(f"{ROOT}/{old}", f"{ROOT}/{new}")
            self.files[new] = self.files.pop(old)

    @rule(name=names)
    def remove(self, name):
        if name in self.files:
            self.fs.remove(f"{ROOT}/{name}")
            del self.files[name]

    @rule(name=names, mtime_ms=st.integers(0, 2**41))
    def set_mtime(self, name, mtime_ms):
        if name in self.files:
            self.fs.set_mtime(f"{ROOT}/{name}", mtime_ms)
            self.files[name].mtime_ms = mtime_ms

    @rule(name=names)
    def lock(self, name):
        self.clock.advance(ms=1)
        model = self.files.setdefault(name, Model(b"", self.clock.now_ms()))
        lock = self.fs.lock(f"{ROOT}/{name}")
        assert (lock is None) == (model in self.locks)
        if lock is not None:
            self.locks[model] = lock

    @rule(lose=st.booleans(), data=st.data())
    def release(self, lose, data):
        if self.locks:
            model = data.draw(st.sampled_from(list(self.locks)))
            lock = self.locks.pop(model)
            if not lose:
                lock.release()

    @invariant()
    def names_sizes_and_times_agree(self):
        assert self.fs.list_dir(ROOT) == sorted(self.files)
        for name, model in self.files.items():
            assert self.fs.stat(f"{ROOT}/{name}") == (len(model.data), model.mtime_ms)

    def check_contents(self, fs, files):
        assert fs.list_dir(ROOT) == sorted(files)
        for name, model in files.items():
            file = fs.open(f"{ROOT}/{name}")
            assert file.read(0, len(model.data) + 1) == model.data
            file.close()

    def teardown(self):
        self.check_contents(self.fs, self.files)
        for fs, files in self.forks:
            self.check_contents(fs, files)


class MemoryMachine(FileSystemMachine):
    """With forks: the machine continues with either side, and handles stay with theirs."""

    @rule(follow_fork=st.booleans())
    def fork(self, follow_fork):
        if len(self.forks) == 3:
            return
        twin = self.fs.fork()
        copies = {name: model.copy() for name, model in self.files.items()}
        if follow_fork:
            self.forks.append((self.fs, self.files))
            self.fs, self.files = twin, copies
            self.locks = {}
        else:
            self.forks.append((twin, copies))


class OverlayMachine(FileSystemMachine):
    """Over a base that has files at the start, and must have the same at the end."""

    BASE_SIZES = (("a", 0), ("b", 700), ("c", 2 * BLOCK + 5))

    def make_file_system(self):
        self.base = MemoryFileSystem(VirtualClock(500_000))
        self.base.make_dirs(ROOT)
        for name, size in self.BASE_SIZES:
            file = self.base.open(f"{ROOT}/{name}", create=True)
            file.append([pattern(7, size)])
            file.close()
        return OverlayFileSystem(ReadOnlyFileSystem(self.base), self.clock)

    def first_files(self):
        return {name: Model(pattern(7, size), 500_000) for name, size in self.BASE_SIZES}

    def teardown(self):
        super().teardown()
        self.check_contents(self.base, self.first_files())
        for name, size in self.BASE_SIZES:
            assert self.base.stat(f"{ROOT}/{name}") == (size, 500_000)


TestMemoryModel = MemoryMachine.TestCase
TestOverlayModel = OverlayMachine.TestCase
TestMemoryModel.settings = TestOverlayModel.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
