"""The checkpoints of a data directory, and the log of a KRaft node in it."""

from types import SimpleNamespace

import pytest

from logstore.errors import IllegalStateError, KafkaStorageError
from logstore.manager.directories.directory import LogDirectory
from logstore.names import LOCK_FILE, METADATA_LOG, METADATA_LOG_DIR
from logstore.runtime import MemoryFileSystem, Runtime, VirtualClock
from logstore.storage.checkpoint.offsets import (
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    REPLICATION_OFFSETS,
)
from logstore.storage.checkpoint.shutdown import CLEAN_SHUTDOWN
from logstore.types import TopicPartition
from tests.support.world.data_home import Home, fill
from tests.support.world.messages import exactly

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
A = TopicPartition("a", 0)


@pytest.fixture
def runtime():
    clock = VirtualClock()
    fs = MemoryFileSystem(clock)
    fs.make_dirs("/data/t-0")
    fs.make_dirs("/data/t-1")
    return Runtime(clock, fs)


@pytest.fixture
def directory(runtime):
    return LogDirectory(runtime, "/data", read_only=False)


def stored(directory, name):
    return dict(directory.checkpoint(name).read())


@pytest.mark.parametrize(
    ("point", "high_watermark", "offset", "log_start", "expected"),
    (
        (10, 10, 9, 0, (9, 10)),
        (10, 10, 10, 0, (10, 10)),
        (10, 10, 11, 0, (10, 10)),
        (10, 5, 4, 5, (4, 5)),
        (10, 5, 4, 6, (4, 6)),
        (10, None, 4, 5, (4, 5)),
        (10, None, 5, 5, (5, None)),
        (10, None, 6, 5, (6, None)),
        (10, 3, 5, 5, (5, 3)),
        (None, 3, 0, 8, (None, 3)),
    ),
)
def test_lowering_a_recovery_point_leaves_evidence_of_the_log_start(
    directory, point, high_watermark, offset, log_start, expected
):
    others = {OTHER: 7}
    for name, value in ((RECOVERY_POINTS, point), (REPLICATION_OFFSETS, high_watermark)):
        own = {} if value is None else {TP: value}
        directory.checkpoint(name).write(others | own)
    directory.lower_recovery_point(TP, offset, log_start)
    recovery_points = stored(directory, RECOVERY_POINTS)
    high_watermarks = stored(directory, REPLICATION_OFFSETS)
    assert (recovery_points.pop(TP, None), high_watermarks.pop(TP, None)) == expected
    assert recovery_points == high_watermarks == others


@pytest.mark.parametrize(("offset", "expected"), ((9, 9), (10, 10), (11, 10)))
def test_a_cleaner_offset_is_only_lowered(directory, offset, expected):
    directory.checkpoint(CLEANER_OFFSETS).write({TP: 10, OTHER: 20})
    directory.lower_cleaner_offset(TP, offset)
    assert stored(directory, CLEANER_OFFSETS) == {TP: expected, OTHER: 20}


def test_no_cleaner_offset_is_made_by_lowering(directory):
    directory.lower_cleaner_offset(TP, 5)
    assert directory.cleaner_offset(TP) is None


def test_entries_of_partitions_that_are_removed_are_dropped(directory):
    gone = TopicPartition("gone", 0)
    directory.checkpoint(CLEANER_OFFSETS).write({TP: 10, gone: 20})
    directory.write_cleaner_offset(OTHER, 3)
    assert stored(directory, CLEANER_OFFSETS) == {TP: 10, OTHER: 3}
    directory.write_cleaner_offset(gone, 4)
    assert stored(directory, CLEANER_OFFSETS) == {TP: 10, OTHER: 3}


@pytest.mark.parametrize(
    "write",
    (
        lambda directory: directory.write_cleaner_offset(TP, 3),
        lambda directory: directory.lower_recovery_point(TP, 3, 0),
    ),
    ids=("cleaner", "recovery point"),
)
def test_nothing_is_written_after_the_lock_file_was_removed(directory, write):
    directory.checkpoint(RECOVERY_POINTS).write({TP: 10})
    directory.runtime.fs.remove(f"/data/{LOCK_FILE}")
    with pytest.raises(
        KafkaStorageError,
        match=exactly(
            "data directory /data is offline: /data/.lock was removed or replaced "
            "while it was locked: another process may write here"
        ),
    ):
        write(directory)
    assert stored(directory, RECOVERY_POINTS) == {TP: 10}
    assert stored(directory, CLEANER_OFFSETS) == {}
    assert not directory.is_online


def offsets(point):
    return {TP: SimpleNamespace(recovery_point=point, high_watermark=point, log_start_offset=point)}


@pytest.mark.parametrize(
    "write", ("write_recovery_points", "write_high_watermarks", "write_log_starts")
)
def test_offsets_that_were_measured_before_another_write_are_not_written(directory, write):
    write, since = getattr(directory, write), directory.checkpoint_writes
    assert write(offsets(5), since) is True
    assert write(offsets(6), since) is False
    names = (RECOVERY_POINTS, REPLICATION_OFFSETS, LOG_START_OFFSETS)
    assert sorted(stored(directory, name).get(TP, 0) for name in names) == [0, 0, 5]
    assert write(offsets(6), directory.checkpoint_writes) is True
    assert sorted(stored(directory, name).get(TP, 0) for name in names) == [0, 0, 6]


def test_a_removed_lock_file_is_noticed_though_no_offset_changed(directory):
    assert directory.write_recovery_points(offsets(5))
    written = directory.checkpoint_writes
    assert directory.write_recovery_points(offsets(5))
    assert directory.checkpoint_writes == written
    directory.runtime.fs.remove(f"/data/{LOCK_FILE}")
    with pytest.raises(
        KafkaStorageError,
        match=exactly(
            "data directory /data is offline: /data/.lock was removed or replaced "
            "while it was locked: another process may write here"
        ),
    ):
        directory.write_recovery_points(offsets(5))
    assert not directory.is_online


def test_a_damaged_checkpoint_counts_again_once_it_is_written(directory, caplog):
    file = directory.runtime.fs.open(f"/data/{CLEANER_OFFSETS}", create=True)
    file.write_at([b"x"], 0)
    file.close()
    assert [directory.cleaner_offset(TP) for _ in range(2)] == [None, None]
    assert caplog.messages == [
        f"/data/{CLEANER_OFFSETS}: line 1: version 'x' is not a 32-bit number; it is treated as"
        " empty"
    ]
    directory.write_cleaner_offset(TP, 7)
    assert directory.cleaner_offset(TP) == 7


def test_folders_are_removed_under_a_lock_that_ends_with_the_directory(directory):
    directory.close(clean=True)
    for lock in (directory._removing, directory._checkpointing):
        with (
            pytest.raises(IllegalStateError, match=exactly("data directory /data is closed")),
            lock,
        ):
            pass


def test_a_recovery_that_cuts_a_log_keeps_a_higher_high_watermark(runtime):
    """It proves how far the log once reached; the log start proves less."""
    home = Home(runtime.fs, "/data", runtime.clock)
    manager = home.open()
    manager.topics.create("a", 1, {})
    fill(manager.log(A), 10)
    manager.close()
    runtime.fs.remove(f"/data/{CLEAN_SHUTDOWN}")
    home.write(RECOVERY_POINTS, b"0\n1\na 0 0\n")
    name = "a-0/00000000000000000000.log"
    home.write(name, home.files()[name][:-1])
    manager = home.open()
    assert manager.log(A).log_end_offset == 9
    assert stored(manager.directories[0], REPLICATION_OFFSETS)[A] == 10
    home.kill(manager)


# -- the log of a KRaft node ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", ("folder", "file", None))
@pytest.mark.parametrize("read_only", (True, False))
@pytest.mark.parametrize("metadata_log", (True, False, None))
def test_the_metadata_log_is_a_partition_only_to_a_reader_that_asks(
    runtime, metadata_log, read_only, kind
):
    path = f"/data/{METADATA_LOG_DIR}"
    if kind == "folder":
        runtime.fs.make_dirs(path)
    elif kind == "file":
        runtime.fs.open(path, create=True).close()
    options = {} if metadata_log is None else {"metadata_log": metadata_log}
    directory = LogDirectory(runtime, "/data", read_only=read_only, **options)
    is_shown = bool(metadata_log) and read_only and kind == "folder"
    assert directory.partitions == {TP, OTHER} | ({METADATA_LOG} if is_shown else set())
