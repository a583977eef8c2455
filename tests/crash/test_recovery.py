"""Crashes while a start repairs damaged data, missing indexes, or overflowed segments."""

from itertools import pairwise, product
from typing import NamedTuple

import pytest

from logstore.names import file_name, parse_segment_file
from logstore.storage.checkpoint.atomic import TMP_SUFFIX, read_bytes
from logstore.storage.checkpoint.offsets import LOG_START_OFFSETS, RECOVERY_POINTS
from logstore.storage.checkpoint.shutdown import CLEAN_SHUTDOWN
from logstore.testing import (
    Contents,
    CrashMode,
    FaultyFileSystem,
    Kind,
    Names,
    SimulatedCrash,
)
from tests.crash.harness import KEPT, fingerprint, run
from tests.crash.journal import check_log, found_in, open_broker
from tests.support.world.brokers import write_file
from tests.support.world.builders import batch, log_name
from tests.support.world.crafted import (
    FAR,
    SPLIT_BASES,
    Files,
    cut_below_the_log_start,
    overflowed,
    overflowed_from_the_start,
    without,
)
from tests.support.world.crashes import Profile, modes

PROFILE = Profile(cuts=1, seeds=2)
DIRECTORY = "/disk/data/t-0"


def four_segments(session):
    session.create_topic("t", segment_bytes=4000)
    for number in range(3):
        session.append((b"a", b"%d" % number), (b"b", b"%d" % number))
        session.append((b"c", b"%d" % number))
        session.append((b"d", b"%d" % number))
        session.roll()
    session.append((b"e", b"active"))
    session.close()


@pytest.fixture
def stopped():
    """A disk with segments 0, 4, 8 and 12 after a clean stop, and its clock."""
    fs, journal = run(four_segments)
    return FaultyFileSystem(journal.clock, fs.crash(KEPT)), journal.clock


def crash_recoveries(fs, clock, profile=PROFILE, check=check_log):
    """Crash at the operations of the next start; every one after it ends as if none had."""
    image = fs.crash(KEPT)
    broker = open_broker(FaultyFileSystem(clock, image), clock)
    expected = found_in(broker)
    number, points, seen = 1, 0, set()
    while True:
        fs = FaultyFileSystem(clock, image)
        fs.crash_at(number)
        try:
            found_in(open_broker(fs, clock))
        except SimulatedCrash:
            points += 1
            number += profile.stride
        else:
            assert len(seen) > points > 5
            return broker.log("t")
        for mode in modes(fs, profile):
            left = fs.crash(mode)
            if (key := fingerprint(left)) not in seen:
                seen.add(key)
                again = open_broker(FaultyFileSystem(clock, left), clock)
                where = f"{fs.operations[-1]}, {mode}"
                assert found_in(again) == expected, where
                check(again.log("t"))


def damage(fs, name, position):
    file = fs.open(f"{DIRECTORY}/{name}", write=True)
    byte = file.read(position, 1)[0]
    file.write_at([bytes([byte ^ 1])], position)
    file.close()


def craft(stopped, files, *, clean, recovery_point=0, log_start_offset=0):
    """Put durable files into the partition, as if left there; return disk and clock."""
    fs, clock = stopped
    for name in fs.list_dir(DIRECTORY):
        fs.remove(f"{DIRECTORY}/{name}")
    for name, data in files.items():
        write_file(fs, f"{DIRECTORY}/{name}", data)
    if not clean:
        fs.remove(f"/disk/data/{CLEAN_SHUTDOWN}")
    write_file(fs, f"/disk/data/{RECOVERY_POINTS}", b"0\n1\nt 0 %d\n" % recovery_point)
    write_file(fs, f"/disk/data/{LOG_START_OFFSETS}", b"0\n1\nt 0 %d\n" % log_start_offset)
    return FaultyFileSystem(clock, fs.crash(KEPT)), clock


def test_segments_after_a_damaged_one_do_not_reappear(stopped):
    fs, clock = stopped
    fs.remove(f"/disk/data/{CLEAN_SHUTDOWN}")
    fs.remove("/disk/data/recovery-point-offset-checkpoint")
    damage(fs, "00000000000000000004.log", 190)
    log = crash_recoveries(fs, clock)
    assert [segment.base_offset for segment in log.segments] == [0, 4]
    assert log.log_end_offset == 7


def test_a_torn_end_after_a_clean_stop_does_not_reappear(stopped):
    """The cut is durable before the next record is appended."""
    fs, clock = stopped
    name = f"{DIRECTORY}/{log_name(12)}"
    data = read_bytes(fs, name)
    write_file(fs, name, data + batch(13)[:40])
    fs = FaultyFileSystem(clock, fs.crash(KEPT))
    assert open_broker(fs, clock).log("t").log_end_offset == 13
    assert [each.kind for each in fs.operations if each.path == name] == [Kind.TRUNCATE, Kind.SYNC]
    assert read_bytes(fs.crash(CrashMode(Contents.DROPPED, Names.UNDONE)), name) == data


@pytest.mark.parametrize("clean", (True, False))
def test_a_rebuilt_index_is_not_used_before_it_is_complete(stopped, clean):
    fs, clock = stopped
    if not clean:
        fs.remove(f"/disk/data/{CLEAN_SHUTDOWN}")
    fs.remove(f"{DIRECTORY}/00000000000000000004.index")
    log = crash_recoveries(fs, clock)
    segment = log.segments.get(4)
    assert segment.offset_index.entries == 2
    assert segment.time_index.entries == 2


def test_a_start_with_a_topic_without_its_partition(stopped):
    fs, clock = stopped
    for name in fs.list_dir(DIRECTORY):
        fs.remove(f"{DIRECTORY}/{name}")
    fs.remove_dir(DIRECTORY)
    assert crash_recoveries(fs, clock).log_end_offset == 0


# -- segments that must be split ---------------------------------------------------------------


def check_wide(log):
    """Assert the invariants of `check_log` for a log with too many offsets to try each."""
    assert len(parts := [parse_segment_file(n) for n in log.runtime.fs.list_dir(DIRECTORY)]) > 4
    assert not [part for part in parts if part is not None and part.state], "left over"
    log._check()
    end = 0
    for segment in log.segments:
        segment._check()
        batches = list(segment.batches())
        positions = {at.header.last_offset: at.position for at in batches}
        assert segment.base_offset >= end, "segments overlap"
        assert {e.offset: e.position for e in segment.offset_index}.items() <= positions.items()
        assert {e.offset for e in segment.time_index} <= positions.keys()
        end = batches[-1].header.next_offset
        assert segment.read_next_offset() == end
    assert end == log.log_end_offset


class Split(NamedTuple):
    """A directory with a segment to split, and the expected bases of its segments."""

    files: Files
    clean: bool
    recovery_point: int
    bases: list[int]


ABORTED = overflowed(aborted=True)
"""A segment to split, with an aborted transaction across two of the new segments."""

UNINDEXED = without(ABORTED, file_name(0, ".index"))

TORN = overflowed(tail=batch(3 * FAR + 1)[:-1])

HIGHER = overflowed_from_the_start(10) | {log_name(0): batch(3), file_name(0, ".index"): b""}

SPLITS = {
    "clean": Split(ABORTED, True, 4 * FAR + 2, SPLIT_BASES),
    "all verified": Split(ABORTED, False, 0, SPLIT_BASES),
    "verified from the middle": Split(ABORTED, False, FAR + 7, SPLIT_BASES),
    "nothing verified": Split(ABORTED, False, 4 * FAR + 2, SPLIT_BASES),
    "clean, no index": Split(UNINDEXED, True, 4 * FAR + 2, SPLIT_BASES),
    "unclean, no index": Split(UNINDEXED, False, 0, SPLIT_BASES),
    "torn": Split(TORN, False, 0, SPLIT_BASES[:3]),
    "clean, to a higher base": Split(HIGHER, True, FAR + 25, [0, FAR + 15]),
    "unclean, to a higher base": Split(HIGHER, False, 0, [0, FAR + 15]),
}


def crash_split(stopped, split, profile):
    crafted = craft(stopped, split.files, clean=split.clean, recovery_point=split.recovery_point)
    log = crash_recoveries(*crafted, profile, check_wide)
    check_wide(log)
    assert [segment.base_offset for segment in log.segments] == split.bases
    if split.bases is SPLIT_BASES:
        assert len(log.segments.view[1].txn_index.entries()) == 1


@pytest.mark.parametrize("name", ("clean", "torn", "clean, to a higher base"))
def test_an_overflowed_segment_is_whole_or_split(stopped, name):
    crash_split(stopped, SPLITS[name], Profile(stride=5, cuts=1, seeds=3))


def test_new_segments_of_a_split_become_durable_one_by_one(stopped):
    """Renames that a disk brings to last in any order, at each sync that waits for them."""
    split = SPLITS["clean"]
    disk, clock = craft(
        stopped, split.files, clean=split.clean, recovery_point=split.recovery_point
    )
    image = disk.crash(KEPT)
    whole = FaultyFileSystem(clock, image)
    expected = found_in(open_broker(whole, clock))
    syncs = [
        operation.number
        for before, operation in pairwise(whole.operations)
        if before.kind is Kind.RENAME
        and operation.kind is Kind.SYNC_DIR
        and not before.path.endswith(TMP_SUFFIX)  # a small file next to the segments
    ]
    # Renames to `.swap`, to `.deleted`, and to the final names, which come in pairs.
    assert len(syncs) == 3 + 1 + 2
    seen = set()
    for number, seed in product(syncs, range(60)):
        fs = FaultyFileSystem(clock, image)
        fs.crash_at(number)
        with pytest.raises(SimulatedCrash):
            found_in(open_broker(fs, clock))
        left = fs.crash(CrashMode(Contents.KEPT, Names.SUBSET, seed=seed))
        if (key := fingerprint(left)) not in seen:
            seen.add(key)
            again = open_broker(FaultyFileSystem(clock, left), clock)
            assert found_in(again) == expected, f"{fs.operations[-1]}, seed {seed}"
            check_wide(again.log("t"))
    assert len(seen) > 40


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", SPLITS)
def test_an_overflowed_segment_is_whole_or_split_after_any_crash(stopped, name):
    crash_split(stopped, SPLITS[name], Profile(cuts=3, seeds=12))


# -- data that does not end where the names claim ----------------------------------------------


def test_a_cut_below_the_log_start_ends_with_an_empty_log(stopped):
    crafted = cut_below_the_log_start()
    log = crash_recoveries(*craft(stopped, crafted.files, clean=False, log_start_offset=4))
    assert [segment.base_offset for segment in log.segments] == [4]
    assert (log.log_start_offset, log.log_end_offset) == (4, 4)
