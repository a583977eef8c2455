"""Leader epochs (storage-format §15; S-101, S-102, S-107, S-108, S-125)."""

import pytest

from logstore.errors import CorruptCheckpointError
from logstore.runtime import MemoryFileSystem
from logstore.storage.checkpoint.atomic import read_bytes
from logstore.storage.log.epochs import EpochEndOffset, EpochEntry, LeaderEpochCache
from tests.support.world.brokers import write_file
from tests.support.world.messages import exactly

PATH = "t-0/leader-epoch-checkpoint"


@pytest.fixture
def fs():
    fs = MemoryFileSystem()
    fs.make_dirs("t-0")
    return fs


@pytest.fixture
def cache(fs):
    return LeaderEpochCache(fs, "t-0")


def fill(cache, *entries):
    for epoch, start_offset in entries:
        cache.assign(epoch, start_offset)
    cache._check()
    return cache


def test_a_new_cache_is_empty_and_has_no_file(fs, cache):
    assert cache.entries == ()
    assert cache.latest is None
    assert cache.earliest is None
    cache.flush()
    assert fs.list_dir("t-0") == []


def test_assigning_writes_the_file_at_once(fs, cache):
    """S-125."""
    fill(cache, (0, 0), (2, 15))
    assert read_bytes(fs, PATH) == b"0\n2\n0 0\n2 15\n"
    assert LeaderEpochCache(fs, "t-0").entries == (EpochEntry(0, 0), EpochEntry(2, 15))


def test_assign_appends_ignores_or_replaces(cache, caplog):
    """S-107."""
    fill(cache, (1, 5))
    assert cache.assign(2, 10)
    assert cache.entries == ((1, 5), (2, 10))
    assert not cache.assign(2, 12)
    assert cache.entries == ((1, 5), (2, 10))
    assert not caplog.records
    assert cache.assign(1, 20)
    assert cache.entries == ((1, 20),)
    assert "replaces [(1, 5), (2, 10)]" in caplog.text


def test_assign_of_the_newest_epoch_at_an_earlier_offset_moves_it(cache):
    fill(cache, (1, 5), (2, 10), (2, 7))
    assert cache.entries == ((1, 5), (2, 7))


def test_a_new_epoch_replaces_those_that_start_at_or_above_it(cache):
    fill(cache, (1, 5), (2, 10), (3, 20), (4, 10))
    assert cache.entries == ((1, 5), (4, 10))


@pytest.mark.parametrize(
    ("epoch", "start_offset", "message"),
    (
        (-1, 0, ("a leader epoch and its start offset cannot be negative: -1 at 0")),
        (0, -1, ("a leader epoch and its start offset cannot be negative: 0 at -1")),
    ),
)
def test_negative_epochs_and_offsets_are_refused(fs, cache, epoch, start_offset, message):
    """S-107: assign(-1, 0)."""
    with pytest.raises(ValueError, match=exactly(message)):
        cache.assign(epoch, start_offset)
    assert cache.entries == ()
    assert fs.list_dir("t-0") == []


@pytest.mark.parametrize(
    ("end_offset", "left"), ((-1, 3), (20, 3), (17, 3), (16, 2), (11, 2), (0, 0))
)
def test_truncate_from_end_drops_epochs_that_start_there_or_above(cache, end_offset, left):
    """Scenario 101, in part: epochs 0@0, 1@10, 2@16."""
    fill(cache, (0, 0), (1, 10), (2, 16)).truncate_from_end(end_offset, flush=True)
    assert len(cache.entries) == left
    cache._check()


def test_truncate_from_end_at_ten_leaves_one(cache):
    """Scenario 101, in part."""
    fill(cache, (0, 0), (1, 10), (2, 16)).truncate_from_end(10, flush=True)
    assert cache.entries == ((0, 0),)


def test_truncating_to_the_log_end_removes_an_epoch_without_records(cache):
    """Scenario 102, in part."""
    fill(cache, (19, 27), (20, 29)).truncate_from_end(29, flush=True)
    assert cache.entries == ((19, 27),)


@pytest.mark.parametrize(
    ("start_offset", "entries"),
    (
        (4, ((1, 5), (2, 10), (3, 20))),
        (5, ((1, 5), (2, 10), (3, 20))),
        (7, ((1, 7), (2, 10), (3, 20))),
        (10, ((2, 10), (3, 20))),
        (15, ((2, 15), (3, 20))),
        (25, ((3, 25),)),
    ),
)
def test_truncate_from_start_moves_the_epoch_that_contains_it(cache, start_offset, entries):
    fill(cache, (1, 5), (2, 10), (3, 20)).truncate_from_start(start_offset, flush=True)
    assert cache.entries == entries
    cache._check()


def test_a_lost_truncation_is_repeated_from_the_log_start(fs, cache):
    """Scenario 108, in part."""
    fill(cache, (1, 5), (2, 10)).truncate_from_start(12, flush=False)
    assert cache.entries == ((2, 12),)
    reloaded = LeaderEpochCache(fs, "t-0")
    assert reloaded.entries == ((1, 5), (2, 10))
    reloaded.truncate_from_start(12, flush=True)
    assert reloaded.entries == cache.entries
    assert read_bytes(fs, PATH) == b"0\n1\n2 12\n"


def test_unflushed_truncations_are_written_by_flush_or_by_the_next_assign(fs, cache):
    fill(cache, (1, 5), (2, 10)).truncate_from_end(10, flush=False)
    assert read_bytes(fs, PATH) == b"0\n2\n1 5\n2 10\n"
    cache.flush()
    assert read_bytes(fs, PATH) == b"0\n1\n1 5\n"
    cache.clear(flush=False)
    cache.assign(7, 8)
    assert read_bytes(fs, PATH) == b"0\n1\n7 8\n"
    cache.clear(flush=True)
    assert read_bytes(fs, PATH) == b"0\n0\n"


def test_a_change_that_changes_nothing_writes_nothing(fs, cache):
    fill(cache, (1, 5))
    fs.remove(PATH)
    cache.truncate_from_end(6, flush=True)
    cache.truncate_from_start(5, flush=True)
    assert fs.list_dir("t-0") == []


@pytest.mark.parametrize(
    ("epoch", "answer"),
    (
        (-1, (-1, -1)),
        (0, (0, 5)),
        (1, (1, 5)),
        (2, (2, 10)),
        (3, (2, 10)),
        (4, (4, 20)),
        (5, (5, 33)),
        (6, (-1, -1)),
    ),
)
def test_end_offset_for(cache, epoch, answer):
    fill(cache, (2, 5), (4, 10), (5, 20))
    assert cache.end_offset_for(epoch, 33) == answer


def test_end_offset_for_with_nothing_known(cache):
    assert cache.end_offset_for(0, 33) == EpochEndOffset(-1, -1)


@pytest.mark.parametrize(
    ("text", "complaint"),
    (
        ("0\n2\n1 5\n1 6\n", r"line 4: \(1, 6\) does not rise"),
        ("0\n2\n1 5\n2 5\n", "line 4"),
        ("0\n1\n-1 5\n", "line 3: negative"),
        ("0\n1\n1 5 6\n", "line 3: an entry of 2 fields"),
        ("0\n1\n1 x\n", "line 3: start offset 'x'"),
        ("0\n1\n2147483648 0\n", "line 3: epoch '2147483648'"),
    ),
)
def test_a_damaged_file_is_the_callers_decision(fs, text, complaint):
    write_file(fs, PATH, text)
    with pytest.raises(CorruptCheckpointError, match=complaint):
        LeaderEpochCache(fs, "t-0")
    empty = LeaderEpochCache(fs, "t-0", load=False)
    assert empty.entries == ()
    assert read_bytes(fs, PATH) == text.encode()
    empty.flush()
    assert LeaderEpochCache(fs, "t-0").entries == ()
