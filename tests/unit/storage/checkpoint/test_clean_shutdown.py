"""The clean-shutdown file from stop to start to kill (S-128, storage-format §10.3)."""

import itertools

import pytest

from logstore import Broker
from logstore.runtime import VirtualClock
from logstore.storage.checkpoint.atomic import read_bytes
from logstore.storage.checkpoint.shutdown import CLEAN_SHUTDOWN
from logstore.testing import (
    Contents,
    CrashMode,
    FaultyFileSystem,
    Kind,
    Names,
    SimulatedCrash,
)

DIRS = ("/disk/a", "/disk/b")
DROPPED = CrashMode()
KEPT = CrashMode(Contents.KEPT, Names.KEPT)


def start(fs, clock):
    return Broker(DIRS, fs=fs, clock=clock, seed=1)


def markers(fs):
    return [fs.exists(f"{path}/{CLEAN_SHUTDOWN}") for path in DIRS]


def was_clean(broker):
    return [directory.clean for directory in broker.manager.directories]


def stopped(clock):
    """Return the files of two directories with a partition each, after a clean stop."""
    fs = FaultyFileSystem(clock)
    with start(fs, clock) as broker:
        broker.create_topic("t", partitions=2)
        for partition in (0, 1):
            broker.append("t", value=b"v", partition=partition)
    return fs


@pytest.mark.parametrize("mode", (DROPPED, KEPT), ids=str)
def test_s128_the_file_is_there_from_an_orderly_stop_to_the_next_start(mode):
    clock = VirtualClock()
    fs = stopped(clock)
    assert markers(fs) == [True, True]
    for path in DIRS:
        assert read_bytes(fs, f"{path}/{CLEAN_SHUTDOWN}") == b'{"version":0,"brokerEpoch":-1}'

    # All files on disk at the stop survive a power failure right after it.
    fs = FaultyFileSystem(clock, fs.crash(mode))
    assert markers(fs) == [True, True]
    broker = start(fs, clock)
    assert was_clean(broker) == [True, True]
    assert markers(fs) == [False, False]
    assert list(broker.manager.registry.open_logs()) == [], "a clean start reads no log"

    # After a kill, whatever had reached the disk, the second start finds no marker.
    broker.append("t", value=b"w", partition=1)
    fs = FaultyFileSystem(clock, fs.crash(mode))
    assert markers(fs) == [False, False]
    broker = start(fs, clock)
    assert was_clean(broker) == [False, False]
    assert len(list(broker.manager.registry.open_logs())) == 2, "all are recovered"
    assert [record.value for record in broker.read("t", 0)] == [b"v"]
    expected = [b"v", b"w"] if mode is KEPT else [b"v"]
    assert [record.value for record in broker.read("t", 1)] == expected
    broker.close()
    assert markers(fs) == [True, True]
    assert was_clean(start(fs, clock)) == [True, True]


@pytest.mark.parametrize("mode", (DROPPED, KEPT), ids=str)
def test_s128_nothing_is_changed_while_the_file_still_speaks_for_it(mode):
    """A start that stops at any operation: as long as the file exists, all others are unchanged."""
    clock = VirtualClock()
    image = stopped(clock).crash(KEPT)
    seen = set()
    for number in itertools.count(1):
        fs = FaultyFileSystem(clock, image)
        fs.crash_at(number)
        try:
            broker = start(fs, clock)
            broker.append("t", value=b"w", partition=0)
            broker.append("t", value=b"w", partition=1)
        except SimulatedCrash:
            after = fs.crash(mode)
        else:
            break
        left = markers(after)
        for path, is_there in zip(DIRS, left, strict=True):
            changes = [each for each in fs.operations if each.path.startswith(path)]
            if is_there:
                assert {each.path for each in changes} <= {f"{path}/{CLEAN_SHUTDOWN}", path}
                assert {each.kind for each in changes} <= {Kind.REMOVE, Kind.SYNC_DIR}
        seen.add(tuple(left))
        restarted = start(after, clock)
        assert was_clean(restarted) == left
        assert [record.value for record in restarted.read("t", 0)][:1] == [b"v"]
    # The first change is the removal: it may or may not have reached the disk.
    assert ((True, True) in seen) == (mode is DROPPED)
    assert (False, False) in seen
