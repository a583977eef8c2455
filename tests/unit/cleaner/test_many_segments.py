"""A pass over many small segments: each costs as much as any."""

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
    """A log of that many segments of a record each, none of which can be joined to another."""
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


@pytest.mark.parametrize("transactions", (False, True))
def test_twice_the_segments_are_twice_the_work_and_no_more(monkeypatch, transactions: bool) -> None:
    """2,000 took half a minute: each looked for aborted transactions in all those above it."""
    for module in (log_module, appender):  # which go through all after each change
        monkeypatch.setattr(module, "VERIFY", False)
    # What other tests of the process opened would decide which files are let go of, and when.
    monkeypatch.setattr(open_files, "OPEN_FILES_MIN", open_files.DESCRIPTORS_MAX)
    run_pass(log_of(8, transactions=transactions)[0])  # whatever is done once only is done
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
    """Most have no such index, and that there is no file is found out anew each time."""
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
    """Each alone cost five; what is synced besides is the three files of each."""
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
    # New names, `.swap`, `.deleted`, and two new segments at a time that get their names.
    assert kinds.count(Kind.SYNC_DIR) == 4 * (3 + BATCH_GROUPS // 2)
    assert kinds.count(Kind.SYNC) == 3 * segments
