"""Locks beyond the shared suite: other processes on a disk, copies and crashes in memory."""

import errno
import fcntl
import gc
import os
import signal
import struct
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from logstore.runtime import (
    DiskFileSystem,
    MemoryFileSystem,
    OverlayFileSystem,
    ReadOnlyFileSystem,
    VirtualClock,
    locks,
)
from logstore.testing import CrashMode, FaultyFileSystem, SimulatedCrash
from tests.support.world.fs_suite import write_file

# What Java's FileChannel.tryLock does, which Kafka calls: a record lock over the whole file.
TAKE = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
try:
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("taken", flush=True)
except OSError:
    print("refused", flush=True)
sys.stdin.read()
"""

TAKE_BY_US = """
import sys
from logstore.runtime import DiskFileSystem
lock = DiskFileSystem().lock(sys.argv[1])
print("refused" if lock is None else "taken", flush=True)
sys.stdin.read()
"""


@contextmanager
def other_process(path, script=TAKE):
    """Another process that tries the lock and keeps it; yield the process and its output."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def answer_of_another_process(path, script=TAKE):
    with other_process(path, script) as (_, answer):
        return answer


@pytest.fixture
def path(tmp_path):
    return f"{tmp_path}/.lock"


def open_descriptors():
    """The open files of this process; empty if the system does not report them."""
    table = Path("/proc/self/fd")
    return {entry.name for entry in table.iterdir()} if table.is_dir() else set()


# --- processes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("script", (TAKE, TAKE_BY_US))
def test_processes_exclude_each_other(path, script):
    fs = DiskFileSystem()
    lock = fs.lock(path)
    assert answer_of_another_process(path, script) == "refused"
    lock.release()
    with other_process(path, script) as (_, answer):
        assert answer == "taken"
        assert fs.lock(path) is None


@pytest.mark.parametrize("script", (TAKE, TAKE_BY_US))
def test_the_process_that_holds_a_lock_is_named_to_readers(path, script):
    fs = ReadOnlyFileSystem(DiskFileSystem())
    with other_process(path, script) as (process, answer):
        assert answer == "taken"
        before = open_descriptors()
        assert fs.lock_holder(path) == process.pid
        assert open_descriptors() == before
        process.kill()
        process.wait()
        assert fs.lock_holder(path) is None


def test_reading_the_owner_of_a_lock_does_not_release_it(path):
    """The system drops a lock with any descriptor of the file that its process closes."""
    fs = DiskFileSystem()
    lock = fs.lock(path)
    assert fs.lock_holder(path) == os.getpid()
    os.link(path, f"{path}.hard")
    assert fs.lock_holder(f"{path}.hard") == os.getpid()
    assert answer_of_another_process(path) == "refused"
    lock.release()


def test_a_requested_lock_cannot_be_acquired_by_others(path, monkeypatch):
    """One taken by then would go unseen with the descriptor by which was asked."""
    asked, free = fcntl.fcntl, []

    def ask(*arguments):
        other = threading.Thread(target=lambda: free.append(locks._mutex.acquire(blocking=False)))
        other.start()
        other.join()
        return asked(*arguments)

    Path(path).touch()
    monkeypatch.setattr(locks.fcntl, "fcntl", ask)
    assert DiskFileSystem().lock_holder(path) is None
    assert free == [False]


@pytest.mark.skipif(not hasattr(fcntl, "F_OFD_SETLK"), reason="Linux alone has such locks")
def test_a_lock_that_belongs_to_no_process_is_held_by_an_unknown_one(path):
    with Path(path).open("wb") as file:
        asked = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, asked)
        assert DiskFileSystem().lock_holder(path) == 0
    assert DiskFileSystem().lock_holder(path) is None


def test_a_pipe_in_place_of_a_lock_file_does_not_block(path):
    os.mkfifo(path)
    assert DiskFileSystem().lock_holder(path) is None


def test_the_death_of_a_process_releases_its_lock(path):
    fs = DiskFileSystem()
    with other_process(path) as (process, answer):
        assert answer == "taken"
        assert fs.lock(path) is None
        process.kill()
        process.wait()
        lock = fs.lock(path)
        assert lock is not None
        lock.release()


def test_a_lost_lock_lets_another_process_in(path):
    lock = DiskFileSystem().lock(path)
    ring = [lock]
    ring.append(ring)  # only the garbage collector can find this
    del lock, ring
    gc.collect()
    assert answer_of_another_process(path) == "taken"


def test_closing_other_handles_does_not_release_a_lock(path):
    """The system itself would drop the lock with any descriptor of the file."""
    fs = DiskFileSystem()
    before = open_descriptors()
    early = fs.open(path, create=True)
    lock = fs.lock(path)
    early.close()
    fs.open(path).close()
    lost = fs.open(path, write=True)
    del lost
    assert DiskFileSystem().lock(path) is None
    assert answer_of_another_process(path) == "refused"
    lock.release()
    assert open_descriptors() == before
    assert answer_of_another_process(path) == "taken"


def test_another_name_of_a_locked_file_is_refused_without_losing_the_lock(path):
    fs = DiskFileSystem()
    lock = fs.lock(path)
    os.link(path, f"{path}.hard")
    Path(f"{path}.soft").symlink_to(path)
    before = open_descriptors()
    assert fs.lock(f"{path}.hard") is None
    assert fs.lock(f"{path}.soft") is None
    assert open_descriptors() == before  # each would stay open until the release
    assert answer_of_another_process(path) == "refused"
    lock.release()


def test_a_name_that_comes_to_mean_a_locked_file_does_not_lose_the_lock(path, monkeypatch):
    """Between the look at the name and its opening, somebody links it to the locked file."""
    fs = DiskFileSystem()
    lock = fs.lock(path)
    name = f"{path}.hard"
    os_open = os.open

    def open_after_link(opened, *arguments):
        with suppress(FileExistsError):
            os.link(path, name)
        return os_open(opened, *arguments)

    before = open_descriptors()
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", open_after_link)
        assert fs.lock(name) is None
    assert answer_of_another_process(path) == "refused"
    lock.release()
    assert len(open_descriptors()) == len(before) - 1


def test_a_lock_on_a_file_that_was_removed_meanwhile_does_not_count(path, monkeypatch):
    """Kafka 4.0 removes the file on its way out; who opened it before would hold nothing."""
    lockf = fcntl.lockf
    removals = []

    def lock_then_remove(*arguments):
        lockf(*arguments)
        if len(removals) < 3:
            Path(path).unlink()
            removals.append(path)

    fs = DiskFileSystem()
    before = open_descriptors()
    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "lockf", lock_then_remove)
        lock = fs.lock(path)
    assert len(removals) == 3
    assert answer_of_another_process(path) == "refused"
    lock.release()
    assert open_descriptors() == before


def test_a_file_that_is_removed_again_and_again_is_not_locked(path, monkeypatch):
    calls = []

    def remove(*_arguments):
        Path(path).unlink()
        calls.append(path)

    before = open_descriptors()
    monkeypatch.setattr(fcntl, "lockf", remove)
    assert DiskFileSystem().lock(path) is None
    assert len(calls) == locks.ATTEMPTS_MAX
    assert open_descriptors() == before


@pytest.mark.parametrize("code", (errno.EACCES, errno.EAGAIN))
def test_both_ways_of_saying_held_are_understood(path, monkeypatch, code):
    def refuse(*_arguments):
        raise OSError(code, os.strerror(code))

    before = open_descriptors()
    monkeypatch.setattr(fcntl, "lockf", refuse)
    assert DiskFileSystem().lock(path) is None
    assert open_descriptors() == before


def test_a_disk_without_locks_is_an_error_that_names_the_file(path, monkeypatch):
    def fail(*_arguments):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    before = open_descriptors()
    monkeypatch.setattr(fcntl, "lockf", fail)
    with pytest.raises(OSError) as caught:
        DiskFileSystem().lock(path)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOLCK, path)
    assert open_descriptors() == before


FORK = """
import os, sys
from logstore.runtime import DiskFileSystem

def check(condition):
    if not condition:
        os._exit(1)

fs = DiskFileSystem()
path = sys.argv[1]
lock = fs.lock(path)
(read_refused, refused), (read_released, released) = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    check(fs.lock(path) is None)  # its parent's
    os.write(refused, b"x")
    os.read(read_released, 1)
    own = fs.lock(path)
    check(own is not None)
    lock.release()  # inherited, but not held by the child
    check(fs.lock(path) is None)
    own.release()
    other = fs.lock(path)
    lock.release()
    check(fs.lock(path) is None)
    os._exit(0)
os.read(read_refused, 1)
lock.release()
os.write(released, b"x")
_, status = os.waitpid(child, 0)
lock = fs.lock(path)
print(os.waitstatus_to_exitcode(status), lock is not None, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_holds_nothing_and_may_take_locks_of_its_own(path):
    """Run in a separate process, because forking a process with threads is unsafe."""
    with other_process(path, FORK) as (_, answer):
        assert answer == "0 True"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_cannot_release_its_parents_lock(path):
    script = """
import os, sys
from logstore.runtime import DiskFileSystem
lock = DiskFileSystem().lock(sys.argv[1])
child = os.fork()
if child == 0:
    lock.release()
    del lock
    DiskFileSystem().open(sys.argv[1]).close()
    os._exit(0)
os.waitpid(child, 0)
print("done", flush=True)
sys.stdin.read()
"""
    with other_process(path, script) as (_, answer):
        assert answer == "done"
        assert answer_of_another_process(path) == "refused"


def test_a_lock_does_not_reach_programs_started_while_it_is_held(path):
    """An inherited descriptor would hold no lock, but stay open forever."""
    lock = DiskFileSystem().lock(path)
    listing = "import os; print([os.path.realpath(f'/proc/self/fd/{n}') for n in range(256)])"
    done = subprocess.run(
        [sys.executable, "-c", listing],
        close_fds=False,
        capture_output=True,
        text=True,
        check=True,
    )
    assert os.path.realpath(path) not in done.stdout
    lock.release()


def test_a_stopped_process_still_holds_its_lock(path):
    with other_process(path) as (process, answer):
        assert answer == "taken"
        process.send_signal(signal.SIGSTOP)
        assert DiskFileSystem().lock(path) is None


# --- the file -----------------------------------------------------------------------------------


def test_a_lock_file_is_made_for_its_owner_to_write(path):
    before = os.umask(0)
    try:
        lock = DiskFileSystem().lock(path)
    finally:
        os.umask(before)
    assert Path(path).stat().st_mode & 0o777 == 0o644
    lock.release()


def test_a_lock_file_has_the_time_of_a_clock_that_is_not_the_machines(path):
    clock = VirtualClock(1_000_000_000_000)
    fs = DiskFileSystem(clock)
    fs.lock(path).release()
    assert fs.stat(path) == (0, 1_000_000_000_000)
    clock.advance(seconds=1)
    fs.lock(path).release()
    assert fs.stat(path) == (0, 1_000_000_000_000)


def test_a_lock_may_be_released_by_another_thread(path):
    fs = DiskFileSystem()
    thread = threading.Thread(target=fs.lock(path).release)
    thread.start()
    thread.join()
    assert answer_of_another_process(path) == "taken"


# --- memory, overlays and crashes ---------------------------------------------------------------


def test_a_fork_of_memory_starts_unlocked():
    fs = MemoryFileSystem()
    lock = fs.lock("/.lock")
    twin = fs.fork()
    twins = twin.lock("/.lock")
    assert twins is not None
    lock.release()
    assert twin.lock("/.lock") is None
    assert fs.lock("/.lock") is not None


def test_file_systems_in_memory_know_nothing_of_each_other():
    locks_of_two = [MemoryFileSystem().lock("/.lock") for _ in range(2)]
    assert None not in locks_of_two


@pytest.mark.parametrize("exists", (False, True))
def test_an_overlay_locks_nothing_of_its_base(tmp_path, exists):
    base = DiskFileSystem()
    path = f"{tmp_path}/.lock"
    if exists:
        write_file(base, path, b"")
    over = OverlayFileSystem(ReadOnlyFileSystem(base))
    lock = over.lock(path)
    assert lock is not None
    assert over.lock(path) is None
    assert OverlayFileSystem(base).lock(path) is not None
    assert base.exists(path) == exists
    assert answer_of_another_process(path) == "taken"


def test_an_overlay_does_not_see_the_locks_of_its_base(tmp_path):
    base = DiskFileSystem()
    path = f"{tmp_path}/.lock"
    held = base.lock(path)
    assert OverlayFileSystem(ReadOnlyFileSystem(base)).lock(path) is not None
    assert answer_of_another_process(path) == "refused"
    held.release()


def test_locking_is_not_an_operation_that_can_be_crashed():
    fs = FaultyFileSystem(VirtualClock())
    fs.make_dirs("/data")
    fs.sync_dir("/")
    count, names = fs.operation_count, fs.pending_names
    fs.crash_at(count + 1)
    lock = fs.lock("/data/.lock")
    assert (fs.operation_count, fs.pending_names, fs.pending_units) == (count, names, 0)
    image = fs.crash(CrashMode())
    assert image.list_dir("/data") == [".lock"]
    assert image.lock("/data/.lock") is not None
    with pytest.raises(SimulatedCrash):
        write_file(fs, "/data/a", b"")
    with pytest.raises(SimulatedCrash):
        fs.lock("/data/.lock")
    lock.release()


def test_a_crash_takes_a_lock_file_along_with_its_directory():
    fs = FaultyFileSystem(VirtualClock())
    fs.make_dirs("/data")
    assert fs.lock("/data/.lock") is not None
    assert fs.crash().list_dir("/") == []


def test_a_lock_can_be_made_to_fail():
    fs = FaultyFileSystem(VirtualClock())
    fault = fs.fail("lock", nth=1, suffix=".lock")
    any_change = fs.fail("change", error="ENOSPC", nth=1)
    with pytest.raises(OSError) as caught:
        fs.lock("/.lock")
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, "/.lock")
    assert not fs.exists("/.lock")
    assert fs.lock("/.lock") is not None
    assert (fault.hits, any_change.hits) == (1, 0)


def test_the_holder_of_a_lock_is_described_as_far_as_it_is_known():
    assert locks.describe_holder(os.getpid()) == "this process"
    assert locks.describe_holder(os.getpid() + 1) == f"process {os.getpid() + 1}"
    for unknown in (None, locks.UNKNOWN_PROCESS):
        assert locks.describe_holder(unknown) == "another process"
