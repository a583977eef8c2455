"""Several data directories: the lock, a failing disk, and the directories that stay online."""

import random
import subprocess
import sys
from contextlib import suppress

import pytest

from logstore.errors import IllegalStateError, KafkaStorageError, UnsupportedFormatError
from logstore.names import LOCK_FILE
from logstore.runtime import DiskFileSystem, MemoryFileSystem, Runtime, VirtualClock
from logstore.storage.checkpoint.offsets import LOG_START_OFFSETS
from logstore.storage.checkpoint.shutdown import CLEAN_SHUTDOWN
from logstore.storage.log import NewRecord
from logstore.types import TopicPartition
from tests.support.world.builders import log_name, old_message
from tests.support.world.data_home import Home, fill, offsets
from tests.support.world.faulty import FaultyFileSystem
from tests.support.world.messages import exactly

A0 = TopicPartition("a", 0)
A1 = TopicPartition("a", 1)
RECORD = [NewRecord(b"k", b"v")]


def two_dirs(home):
    """A manager over two directories on a disk that fails on demand, one partition in each."""
    fs = FaultyFileSystem(home.fs)
    runtime = Runtime(home.clock, fs, random.Random(0))
    manager = home.open(home.path + "-2", runtime=runtime)
    manager.topics.create("a", 2, {})
    fill(manager.log(A0), 3)
    fill(manager.log(A1), 2)
    assert manager.registry.directory_of(A0) is not manager.registry.directory_of(A1)
    return fs, manager


# -- the lock --------------------------------------------------------------------------------


def test_a_second_writer_is_refused_until_the_first_is_gone(home):
    manager = home.open()
    with pytest.raises(KafkaStorageError, match="in use"):
        home.open()
    manager.close()
    assert LOCK_FILE in home.files(), "Kafka leaves its lock file too"
    home.open().close()


def test_a_refused_second_writer_changes_nothing_and_lets_other_directories_go(home):
    manager = home.open()
    manager.topics.create("a", 1, {})
    before = home.files()
    with pytest.raises(KafkaStorageError, match="in use"):
        Home(home.fs, home.path + "-2", home.clock).open(home.path)
    assert home.files() == before
    Home(home.fs, home.path + "-2", home.clock).open().close()
    manager.close()


def test_the_message_names_the_process_that_holds_the_lock(home, tmp_path):
    manager = home.open()
    with pytest.raises(KafkaStorageError, match=r": this process holds the lock of .*/\.lock"):
        home.open()
    manager.close()
    script = (
        "import sys; from logstore.runtime import DiskFileSystem;"
        "lock = DiskFileSystem().lock(sys.argv[1] + '/.lock'); print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        disk = Home(DiskFileSystem(VirtualClock()), str(tmp_path), VirtualClock())
        with pytest.raises(KafkaStorageError, match=f": process {other.pid} holds the lock of"):
            disk.open()
        other.stdin.close()


CHANGES = {
    "recovery points": lambda manager: manager.checkpoint_recovery_points(),
    "log starts": lambda manager: manager.checkpoint_log_starts(),
    "high watermarks": lambda manager: manager.checkpoint_high_watermarks(),
    "delete-records": lambda manager: manager.delete_records(A0, 1),
    "roll": lambda manager: manager.log(A0).writer.roll(),
    "swap": lambda manager: manager.log(A0).replace_segments([], []),
    "close": lambda manager: manager.close(),
}


@pytest.mark.parametrize("is_replaced", (False, True), ids=("removed", "replaced"))
@pytest.mark.parametrize("change", CHANGES)
def test_a_broker_whose_lock_file_was_removed_stops(home, change, is_replaced):
    """Another one can have the directory by now: both would append at the same offsets."""
    manager = home.open()
    manager.topics.create("a", 1, {})
    fill(manager.log(A0), 2)
    home.fs.remove(f"{home.path}/{LOCK_FILE}")
    second = home.open() if is_replaced else None
    if second is not None:
        fill(second.log(A0), 3)
    before = home.files()
    lost = "removed or replaced while it was locked: another process may write here"
    with suppress(KafkaStorageError):  # the periodic checkpoints report it and go on
        CHANGES[change](manager)
    assert lost in manager.directories[0].offline_reason
    assert home.files() == before, "nothing was written"
    with pytest.raises(IllegalStateError if change == "close" else KafkaStorageError):
        fill(manager.log(A0), 1)
    if change != "close":
        with pytest.raises(KafkaStorageError, match=lost):
            manager.close()
    if second is not None:
        second.close()
        assert home.text(CLEAN_SHUTDOWN)
    assert len(offsets(home.open().log(A0))) == (5 if is_replaced else 2)


def test_each_kind_of_lock_knows_whether_it_is_in_place(home):
    path = f"{home.path}/{LOCK_FILE}"
    home.fs.make_dirs(home.path)
    lock = home.fs.lock(path)
    assert lock.is_in_place()
    home.fs.rename(path, f"{path}-2")
    assert not lock.is_in_place()
    other = home.fs.lock(path)
    assert other is not None
    assert (lock.is_in_place(), other.is_in_place()) == (False, True)
    home.fs.rename(f"{path}-2", path)
    assert (lock.is_in_place(), other.is_in_place()) == (True, False)


def test_reading_needs_no_lock(home):
    manager = home.open()
    manager.topics.create("a", 1, {})
    fill(manager.log(A0), 3)
    looking = home.open(read_only=True)
    assert offsets(looking.log(A0)) == [0, 1, 2]
    looking.close()
    fill(manager.log(A0), 1)
    manager.close()


def test_a_log_that_cannot_be_opened_after_a_crash_does_not_stop_the_others(home):
    """It is refused when it is used, and the directory is not called clean for as long."""
    home.write(f"b-0/{log_name(0)}", old_message(1))
    before = home.files()[f"b-0/{log_name(0)}"]
    for _ in range(2):
        manager = home.open()
        with pytest.raises(UnsupportedFormatError):
            manager.log(TopicPartition("b", 0))
        if "a" not in {topic.name for topic in manager.catalog.topics()}:
            manager.topics.create("a", 1, {})
        fill(manager.log(A0), 1)
        manager.close()
        assert CLEAN_SHUTDOWN not in home.files()
    assert home.files()[f"b-0/{log_name(0)}"] == before
    manager = home.open()
    assert offsets(manager.log(A0)) == [0, 1]
    manager.topics.delete("b")
    manager.close()
    assert CLEAN_SHUTDOWN in home.files()


# -- a disk that fails -----------------------------------------------------------------------


def test_s067_a_failed_write_takes_its_directory_offline_and_the_rest_serves(home):
    fs, manager = two_dirs(home)
    fs.rule = lambda operation, path: operation == "write" and "/a-0/" in path
    with pytest.raises(KafkaStorageError, match="cannot append"):
        manager.log(A0).writer.append_records(RECORD)
    fs.rule = lambda *_: False
    broken = manager.registry.directory_of(A0)
    assert not broken.is_online
    for use in (
        lambda: manager.log(A0).writer.append_records(RECORD),
        lambda: manager.log(A0).reader.read(0, 100),
        lambda: manager.delete_records(A0, 1),
        lambda: manager.truncate_to(A0, 1),
    ):
        with pytest.raises(
            KafkaStorageError,
            match=exactly(
                "a-0 is offline: cannot append: [Errno 5] injected failure of write: "
                "'{path}/00000000000000000000.log'"
            ),
        ):
            use()
    fill(manager.log(A1), 1)
    assert offsets(manager.log(A1)) == [0, 1, 2]
    manager.close()
    assert not home.fs.exists(f"{broken.path}/{CLEAN_SHUTDOWN}")
    manager = home.open(home.path + "-2")
    assert offsets(manager.log(A0)) == [0, 1, 2]
    assert manager.log(A1).findings == ()


def test_all_logs_of_a_failed_directory_go_offline(home):
    fs = FaultyFileSystem(home.fs)
    manager = home.open(runtime=Runtime(home.clock, fs, random.Random(0)))
    manager.topics.create("a", 2, {})
    fill(manager.log(A0), 1)
    fill(manager.log(A1), 1)
    fs.rule = lambda operation, path: operation == "sync" and "/a-1/" in path
    with pytest.raises(KafkaStorageError, match="cannot flush"):
        manager.log(A1).flush()
    fs.rule = lambda *_: False
    with pytest.raises(
        KafkaStorageError,
        match=exactly(
            "a-0 is offline: data directory {path}/data is offline: cannot flush: "
            "[Errno 5] injected failure of sync: '{path}/00000000000000000000.log'"
        ),
    ):
        manager.log(A0).reader.read(0, 100)


def test_a_failed_checkpoint_takes_the_directory_offline(home):
    fs, manager = two_dirs(home)
    broken = manager.registry.directory_of(A0)
    fs.rule = lambda operation, path: operation == "rename" and path.startswith(f"{broken.path}/")
    manager.checkpoint_high_watermarks()
    fs.rule = lambda *_: False
    assert not broken.is_online
    assert manager.registry.directory_of(A1).is_online
    with pytest.raises(
        KafkaStorageError,
        match=exactly(
            "a-0 is offline: data directory {path}/data is offline: cannot write "
            "checkpoints: [Errno 5] injected failure of rename: "
            "'{path}/replication-offset-checkpoint.tmp'"
        ),
    ):
        manager.log(A0).reader.read(0, 1)
    fill(manager.log(A1), 1)
    manager.close()


def test_a_directory_that_cannot_be_read_at_start_is_offline(home):
    _, manager = two_dirs(home)
    manager.close()
    fs = FaultyFileSystem(home.fs)
    other = home.path + "-2"
    fs.rule = lambda operation, path: operation == "open" and path.startswith(f"{other}/")
    manager = home.open(other, runtime=Runtime(home.clock, fs, random.Random(0)))
    fs.rule = lambda *_: False
    here, there = (A0, A1) if manager.directories[0].partitions == {A0} else (A1, A0)
    fill(manager.log(here), 1)
    with pytest.raises(
        KafkaStorageError,
        match=exactly("a-1 is in no directory that is online; it may be in {path}/data-2"),
    ):
        manager.log(there)
    with pytest.raises(
        KafkaStorageError,
        match=exactly("b-0 is in no directory that is online; it may be in {path}/data-2"),
    ):
        manager.topics.create("b", 1, {})
    assert not home.fs.exists(f"{home.path}/{there}")
    manager.close()


def test_without_the_first_directory_or_any_there_is_no_start(home):
    _, manager = two_dirs(home)
    manager.close()
    for prefix in (home.path + "/", home.path):
        fs = FaultyFileSystem(home.fs)
        fs.rule = lambda operation, path, prefix=prefix: (
            operation == "open" and path.startswith(prefix)
        )
        with pytest.raises(KafkaStorageError, match="offline"):
            home.open(home.path + "-2", runtime=Runtime(home.clock, fs, random.Random(0)))
    manager = home.open(home.path + "-2")
    assert offsets(manager.log(A0)) == [0, 1, 2]
    manager.close()


def test_only_the_directory_that_cannot_be_recovered_goes_offline(home):
    """A log that the disk fails to open while its directory is loaded after a crash."""
    _, manager = two_dirs(home)
    home.kill(manager)
    broken = manager.registry.directory_of(A1).path
    if broken == home.path:
        broken = manager.registry.directory_of(A0).path
    fs = FaultyFileSystem(home.fs)
    fs.rule = lambda operation, path: operation == "open" and path.startswith(f"{broken}/a-")
    manager = home.open(home.path + "-2", runtime=Runtime(home.clock, fs, random.Random(0)))
    assert [d.path for d in manager.directories if not d.is_online] == [broken]
    manager.close()
    assert not home.fs.exists(f"{broken}/{CLEAN_SHUTDOWN}")


# -- loading ---------------------------------------------------------------------------------


def test_loading_after_a_crash_reports_its_progress(home):
    manager = home.open(home.path + "-2")
    manager.topics.create("a", 5, {})
    home.kill(manager)
    told = []
    manager = home.open(home.path + "-2", on_load=told.append)
    assert [(each.done, each.total) for each in told] == [(n, 5) for n in range(1, 6)]
    assert {each.topic_partition for each in told} == {TopicPartition("a", n) for n in range(5)}
    manager.close()
    told.clear()
    home.open(home.path + "-2", on_load=told.append).close()
    assert told == [], "a cleanly closed log is opened on first use"


def test_a_log_start_that_was_ignored_is_forgotten_before_the_log_grows_to_it(home):
    """Otherwise the next start, after a crash, would hide the records appended meanwhile."""
    manager = home.open()
    manager.topics.create("a", 1, {})
    fill(manager.log(A0), 3)
    manager.close()
    home.write(LOG_START_OFFSETS, b"0\n1\na 0 5\n")
    manager = home.open()
    fill(manager.log(A0), 10)
    Home.kill(manager)
    manager = home.open()
    assert offsets(manager.log(A0)) == list(range(13))
    manager.close()


def test_the_high_watermark_bears_out_a_log_start_beyond_what_is_left(home):
    """A broker writes it more often than the recovery point."""
    manager = home.open()
    manager.topics.create("a", 1, {})
    fill(manager.log(A0), 3)
    Home.kill(manager)
    home.write(LOG_START_OFFSETS, b"0\n1\na 0 5\n")
    for watermark, start in ((4, 0), (5, 5)):
        home.write("replication-offset-checkpoint", b"0\n1\na 0 %d\n" % watermark)
        looking = home.open(read_only=True)
        assert looking.log(A0).log_start_offset == start
        looking.close()


# -- checkpoints and threads -----------------------------------------------------------------


def test_a_deletion_is_not_undone_by_a_checkpoint_that_was_measured_before_it(home, monkeypatch):
    """The periodic task asks the logs; before it writes, another deletes and acknowledges."""
    manager = home.open()
    manager.topics.create("a", 1, {})
    fill(manager.log(A0), 9)
    manager.delete_records(A0, 2)
    measure = manager.registry.offsets_in

    def overtaken(directory):
        monkeypatch.undo()
        offsets = measure(directory)
        assert manager.delete_records(A0, 5) == 5
        return offsets

    monkeypatch.setattr(manager.registry, "offsets_in", overtaken)
    manager.checkpoint_log_starts()
    stored = manager.registry.directory_of(A0).checkpoint(LOG_START_OFFSETS).read()
    assert stored == {A0: 5}
    manager.close()


def test_a_disk_that_cannot_replace_an_ignored_log_start_goes_offline():
    clock = VirtualClock()
    home = Home(FaultyFileSystem(MemoryFileSystem(clock)), "/data", clock)
    manager = home.open()
    manager.topics.create("a", 1, {})
    fill(manager.log(A0), 3)
    manager.close()
    home.write(LOG_START_OFFSETS, b"0\n1\na 0 20\n")
    home.fs.rule = lambda operation, path: operation == "sync" and LOG_START_OFFSETS in path
    manager = home.open()
    with pytest.raises(KafkaStorageError, match="cannot write checkpoints"):
        manager.log(A0)
    assert not manager.directories[0].is_online
