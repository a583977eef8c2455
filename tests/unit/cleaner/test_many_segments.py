"""A pass over many small segments: the cost is linear in their number."""

from __future__ import annotations

import pytest

from logstore.cleaner.passes.grouping import BATCH_GROUPS
from logstore.runtime import MemoryFileSystem, Runtime, open_files
from logstore.storage.log import Log
from logstore.storage.log import log as log_module
from logstore.storage.log import writer as appender
from logstore.testing import FaultyFileSystem, Kind
from tests.support.world.builders import World, memory_world
from tests.support.world.cleaning import Producer, compacted, put, run_pass
from tests.support.world.effort import CountedCalls, lines_run


def log_of(segments: int, *, transactions: bool) -> tuple[Log, CountedCalls]:
    """Return a log of many segments with one record each that cannot be merged."""
    world = memory_world()
    fs = CountedCalls(world.fs)
    counted = World(Runtime(world.clock, fs), world.directory, world.clock)
    log = compacted(counted, segment_bytes=80, min_cleanable_dirty_ratio=0.0)
    if transactions:
        producer = Producer(log, 1)
        producer.send(1)
        producer.abort()
    for number in range(segments):
        put(log, (b"%d" % (number % 5), b"value"))
    log.writer.roll()
    return log, fs


@pytest.mark.slow
@pytest.mark.parametrize("transactions", (False, True))
def test_twice_the_segments_are_twice_the_work_and_no_more(monkeypatch, transactions: bool) -> None:
    """2,000 took half a minute: for each, all segments above it were searched for aborts."""
    for module in (log_module, appender):  # they check all segments after each change
        monkeypatch.setattr(module, "VERIFY", False)
    # Files opened by other tests would affect which files are closed, and when.
    monkeypatch.setattr(open_files, "OPEN_FILES_MIN", open_files.DESCRIPTORS_MAX)
    run_pass(log_of(8, transactions=transactions)[0])  # run one-time work
    efforts = []
    for segments in (16, 32, 64):
        log, fs = log_of(segments, transactions=transactions)
        fs.calls.clear()
        lines = lines_run(lambda log=log: run_pass(log))
        efforts.append((lines, fs.calls.total()))
    (lines, calls), (lines_2, calls_2), (lines_4, calls_4) = efforts
    assert calls_4 - calls_2 <= 2 * (calls_2 - calls), "files"
    assert lines_4 - lines_2 <= 2.02 * (lines_2 - lines), "steps"


def test_each_segment_is_asked_once_for_aborted_transactions(monkeypatch) -> None:
    """Most have no such index, and each query would check for the file again."""
    log, _ = log_of(8, transactions=True)
    asked = []
    open_file = MemoryFileSystem.open

    def noted(fs: MemoryFileSystem, path: str, **how: bool):
        if path.endswith(".txnindex"):
            asked.append(path)
        return open_file(fs, path, **how)

    monkeypatch.setattr(MemoryFileSystem, "open", noted)
    run_pass(log)
    assert len(asked) == len(set(asked)) >= 8


@pytest.mark.parametrize("keys", (5, 1000), ids=("most end up empty", "all stay"))
def test_many_small_segments_share_the_syncs_of_their_directory(keys: int) -> None:
    """Each alone cost five; besides, the three files of each segment are synced."""
    world = memory_world()
    fs = FaultyFileSystem(world.clock, world.fs)
    log = compacted(World(Runtime(world.clock, fs), world.directory, world.clock), segment_bytes=80)
    segments = 4 * BATCH_GROUPS
    for number in range(segments):
        put(log, (b"%d" % (number % keys), b"value"))
    log.writer.roll()
    before = fs.operation_count
    stats = run_pass(log)
    assert (stats.segments_before, stats.segments_after) == (segments, segments)
    kinds = [operation.kind for operation in fs.operations[before:]]
    # New files, `.swap`, `.deleted`, and two new segments at a time that are renamed.
    assert kinds.count(Kind.SYNC_DIR) == 4 * (3 + BATCH_GROUPS // 2)
    assert kinds.count(Kind.SYNC) == 3 * segments
