"""How many files a process keeps open, and that nobody notices when some of them are not."""

import os
import resource
from pathlib import Path

import pytest

from logstore import Broker
from logstore.errors import KafkaStorageError
from logstore.runtime import open_files, raise_descriptor_limit
from logstore.runtime.open_files import OPEN_FILES_MIN, SHARE, TRIES_MAX, OpenFiles
from logstore.storage.log.reader import Isolation
from tests.support.world.builders import fill, log_name, memory_world, offsets_in
from tests.support.world.messages import exactly

SMALL = {"segment_bytes": 300, "index_interval_bytes": 60}


class Holder:
    """Counts how often it was asked, and may refuse."""

    def __init__(self, *, refuses=False):
        self.refuses = refuses
        self.asked = 0

    def release_file(self):
        self.asked += 1
        return not self.refuses


@pytest.fixture
def limit(monkeypatch):
    """Let no more than the least number of files stay open."""
    monkeypatch.setattr(open_files, "descriptor_limit", lambda: OPEN_FILES_MIN * SHARE)
    return OPEN_FILES_MIN


# -- the queue -----------------------------------------------------------------------------------


def test_the_file_opened_first_is_closed_first(limit):
    files = OpenFiles()
    holders = [Holder() for _ in range(limit + 3)]
    for holder in holders:
        files.opened(holder)
    assert [holder.asked for holder in holders] == [1] * 3 + [0] * limit


def test_one_that_must_stay_open_is_asked_again_later(limit):
    files = OpenFiles()
    first, *others = [Holder(refuses=True), *(Holder() for _ in range(2 * limit))]
    for holder in (first, *others):
        files.opened(holder)
    assert first.asked == 2
    assert sum(holder.asked for holder in others) == limit + 1


def test_where_all_must_stay_open_an_opening_asks_only_some(limit):
    files = OpenFiles()
    holders = [Holder(refuses=True) for _ in range(limit + 1)]
    for holder in holders:
        files.opened(holder)
    assert sum(holder.asked for holder in holders) == TRIES_MAX


def test_a_stopped_broker_is_not_listed(limit):
    files = OpenFiles()
    kept = Holder()
    files.opened(kept)
    for _ in range(3 * limit):
        files.opened(Holder())
    assert (len(files), kept.asked) == (1, 0)


# -- limits --------------------------------------------------------------------------------------


@pytest.fixture
def limits():
    """Restore the limits of this process; yield its hard one."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_program_takes_what_it_may_and_a_library_nothing(limits, tmp_path):
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, limits))
    with Broker(tmp_path) as broker:
        broker.create_topic("t", 1)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (512, limits)
    assert open_files.descriptor_limit() == 512
    raise_descriptor_limit()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert (soft, hard) == (min(limits, 1 << 20) if limits > 0 else 1 << 20, limits)


def test_a_new_segment_is_kept_open_until_it_is_durable(limit):
    """Who opens it again to sync it would not hear that its first write failed."""
    segment = memory_world().segment(0)
    assert not segment.release_file()
    segment.flush()
    assert segment.release_file()


# -- a log of many segments ----------------------------------------------------------------------


def descriptors_below(directory):
    """Return what this process has open below a directory."""
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  # entries vanish meanwhile
        try:
            target = Path(f"/proc/self/fd/{name}").readlink()
        except OSError:
            continue
        if target.is_relative_to(directory):
            found.append(target.name)
    return found


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="descriptors are listed there")
def test_descriptors_do_not_grow_with_the_segments(limit, tmp_path):
    with Broker(tmp_path) as broker:
        broker.create_topic("t", 1, {"segment.bytes": "80"})
        for number in range(3 * limit):
            broker.append("t", value=b"%d" % number)
            assert len(descriptors_below(tmp_path)) <= limit + 8
        values = [record.value for record in broker.read("t")]
        assert values == [b"%d" % number for number in range(3 * limit)]
        assert len(descriptors_below(tmp_path)) <= limit + 8
    assert descriptors_below(tmp_path) == []


def everything_of(log):
    """Yield the segments and indexes that may let go of a file."""
    for segment in log.segments.view:
        yield from (segment, segment.offset_index, segment.time_index, segment.txn_index)


def let_all_go(log):
    return [each.release_file() for each in everything_of(log)]


def story(world, between):
    """A log that is appended to, rolled, truncated, flushed and closed."""
    log = world.log(**SMALL)
    for step in range(40):
        fill(log, 1, log.log_end_offset)
        between(log)
        if step % 13 == 7:
            log.truncate_to(log.log_end_offset - 2)
        elif step % 11 == 5:
            log.writer.roll()
        elif step % 5 == 3:
            log.flush()
        between(log)
    log.flush()
    between(log)
    seen = offsets_in(log)
    times = [log.reader.offset_for_timestamp(time) for time in (0, world.clock.now_ms())]
    between(log)
    log.close()
    return seen, times, world.files()


def test_letting_go_changes_nothing():
    """Files, offsets and times equal those of a log whose files stayed open."""
    release_file = []
    expected = story(memory_world(), lambda log: None)
    assert story(memory_world(), lambda log: release_file.extend(let_all_go(log))) == expected
    assert True in release_file


def test_a_reader_continues_in_a_file_that_was_released_and_removed(world):
    log = world.log(**SMALL)
    fill(log, 30)
    log.flush()
    reading = log.segments.first.batches()
    next(reading)
    assert all(let_all_go(log))
    log.delete_records(20)
    world.fs.remove(f"{log.directory}/{log_name(0)}.deleted")
    assert len(list(reading)) == 3
    assert [record.offset for _, record in log.reader.records(20)] == list(range(20, 30))


def test_records_that_are_not_durable_stay_open(world):
    log = world.log(**SMALL)
    fill(log, 30)
    active = log.active_segment
    assert not active.release_file()
    assert log.segments.first.release_file()  # flushed when the log was rolled
    log.flush()
    assert active.release_file()


def test_a_removed_index_is_not_reported_as_empty(world):
    """Aborted records would come through else; the reader looks again, in other segments."""
    log = world.log(**SMALL)
    fill(log, 30)
    log.flush()
    first = log.segments.first
    assert first.offset_index.entries > 0
    assert first.offset_index.release_file()
    world.fs.remove(first.offset_index.path)
    with pytest.raises(FileNotFoundError):
        first.offset_index.lookup(2)
    with pytest.raises(
        KafkaStorageError,
        match=exactly(
            "t-0: cannot read: [Errno 2] No such file or directory: "
            "'{path}/00000000000000000000.index'"
        ),
    ):
        log.reader.read(2, 100, isolation=Isolation.READ_COMMITTED)
