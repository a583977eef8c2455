"""Crashes while a start mends what it found: damaged data, missing indexes, leftovers."""

import pytest

from logstore.checkpoint import CLEAN_SHUTDOWN
from logstore.runtime.faultfs import FaultyFileSystem, SimulatedCrash
from tests.crash.harness import KEPT, Profile, fingerprint, modes, run
from tests.crash.journal import check_log, found_in, open_broker

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
    """A disk with four segments, 0, 4, 8 and 12, after a clean stop, and its clock."""
    fs, journal = run(four_segments)
    return FaultyFileSystem(journal.clock, fs.crash(KEPT)), journal.clock


def crash_recoveries(fs, clock):
    """Crash at each operation of the next start; every one after it ends as if none had."""
    image = fs.crash(KEPT)
    broker = open_broker(FaultyFileSystem(clock, image), clock)
    expected = found_in(broker)
    points, seen = 0, set()
    while True:
        fs = FaultyFileSystem(clock, image)
        fs.crash_at(points + 1)
        try:
            found_in(open_broker(fs, clock))
        except SimulatedCrash:
            points += 1
        else:
            assert len(seen) > points > 5
            return broker.log("t")
        for mode in modes(fs, PROFILE):
            left = fs.crash(mode)
            if (key := fingerprint(left)) not in seen:
                seen.add(key)
                again = open_broker(FaultyFileSystem(clock, left), clock)
                where = f"{fs.operations[-1]}, {mode}"
                assert found_in(again) == expected, where
                check_log(again.log("t"))


def damage(fs, name, position):
    file = fs.open(f"{DIRECTORY}/{name}", write=True)
    byte = file.read(position, 1)[0]
    file.write_at([bytes([byte ^ 1])], position)
    file.close()


def test_segments_after_a_damaged_one_do_not_come_back(stopped):
    fs, clock = stopped
    fs.remove(f"/disk/data/{CLEAN_SHUTDOWN}")
    fs.remove("/disk/data/recovery-point-offset-checkpoint")
    damage(fs, "00000000000000000004.log", 190)
    log = crash_recoveries(fs, clock)
    assert [segment.base_offset for segment in log.segments] == [0, 4]
    assert log.log_end_offset == 7


@pytest.mark.parametrize("clean", (True, False))
def test_an_index_that_is_built_anew_is_never_believed_before_it_is_whole(stopped, clean):
    fs, clock = stopped
    if not clean:
        fs.remove(f"/disk/data/{CLEAN_SHUTDOWN}")
    fs.remove(f"{DIRECTORY}/00000000000000000004.index")
    log = crash_recoveries(fs, clock)
    segment = log.segments.get(4)
    assert segment.offset_index.entries == 2
    assert segment.time_index.entries == 2


def test_a_start_that_finds_a_topic_without_its_partition(stopped):
    fs, clock = stopped
    for name in fs.list_dir(DIRECTORY):
        fs.remove(f"{DIRECTORY}/{name}")
    fs.remove_dir(DIRECTORY)
    assert crash_recoveries(fs, clock).log_end_offset == 0
