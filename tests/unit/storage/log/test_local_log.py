"""Files of a log: delayed removal, readers of removed files, flushing, swapping."""

import gc
from pathlib import Path

import pytest

from logstore.config.log_config import LogConfig
from logstore.errors import KafkaStorageError, OffsetOutOfRangeError
from logstore.names import LEADER_EPOCHS
from logstore.runtime import DeterministicScheduler, Runtime
from logstore.storage.log import NewRecord
from logstore.storage.segment import LogSegment
from logstore.types import AppendOrigin
from tests.support.world.builders import (
    append,
    bases_of,
    batch,
    disk_world,
    fill,
    log_name,
    offsets_in,
    offsets_of,
)
from tests.support.world.crashes import crashes_of
from tests.support.world.faulty import FaultyFileSystem
from tests.support.world.messages import exactly

LARGE = b"x" * 3000
"""A value of which a hundred are more than a reader takes in at a time."""


def in_segments(log, count=15, each=5, value=b"v"):
    """Append one-record batches, a given number per segment."""
    for offset in range(log.log_end_offset, count):
        if offset % each == 0 and log.active_segment.size_bytes:
            log.writer.roll()
        log.writer.append_batches(batch(offset, value=value), AppendOrigin.REPLICATION)
    return log


def open_files(world):
    """Return the names, below the world's directory, of the files this process has open."""
    names = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = str(link.readlink())
        except FileNotFoundError:
            continue  # the descriptor of the listing itself
        if target.startswith(world.directory + "/"):
            names.append(target.removeprefix(world.directory + "/"))
    return sorted(names)


# -- removal ---------------------------------------------------------------------------------


def test_s094_files_go_after_the_delay(world):
    """S-094: renamed .deleted at once, removed after file.delete.delay.ms, with their snapshots."""
    log = in_segments(world.log(file_delete_delay_ms=1000))
    before = set(world.files())
    log.delete_old_segments()
    gone = {name for name in before if name[:1].isdigit() and int(name[:20]) < 15}
    assert gone >= {log_name(0), f"{0:020d}.index", f"{5:020d}.snapshot", f"{10:020d}.timeindex"}
    assert set(world.files(".deleted")) == {f"{name}.deleted" for name in gone}
    assert not gone & set(world.files())
    world.clock.advance(ms=999)
    assert log.delete_expired_files() == 0
    assert len(world.files(".deleted")) == len(gone)
    world.clock.advance(ms=2)
    assert log.delete_expired_files() == 5, "three segments, two snapshots"
    assert not world.files(".deleted")
    assert log.delete_expired_files() == 0


def test_s094_readers_that_hold_a_segment_continue(world):
    """S-094: both one that walks the segment and one that reads the log."""
    log = in_segments(world.log(file_delete_delay_ms=1000), 300, 100, LARGE)
    held = log.segments.first
    walk = held.batches()
    records = log.reader.records(0)
    found = [next(walk), next(walk)]
    assert next(records)[1].offset == 0
    assert log.delete_old_segments().rolls
    assert [at.header.base_offset for at in (*found, next(walk))] == [0, 1, 2]
    world.clock.advance(ms=1001)
    log.delete_expired_files()
    assert not world.files(".deleted")
    rest = list(walk)
    assert rest[-1].header.base_offset == 99
    assert held.read_batch(rest[-1]).ensure_valid() is None
    assert offsets_of(held.read(98, 100_000).data) == [98, 99]
    assert [next(records)[1].offset for _ in range(99)] == list(range(1, 100)), (
        "the rest of its chunk"
    )
    with pytest.raises(OffsetOutOfRangeError):
        next(records)


def test_s094_descriptors_close_with_the_last_reader(tmp_path):
    """S-094: none remains open for a removed segment, and none is closed too early."""
    world = disk_world(tmp_path)
    log = in_segments(world.log(file_delete_delay_ms=1000), 300, 100, LARGE)
    log.close()
    assert open_files(world) == []
    log = world.log(file_delete_delay_ms=1000)
    walk = log.segments.first.batches()
    assert next(walk).header.base_offset == 0
    assert log.reader.offset_for_timestamp(0).offset == 0
    assert log_name(0) in open_files(world)
    log.delete_old_segments()
    log.delete_records(-1)
    world.clock.advance(ms=1001)
    log.delete_expired_files()
    assert [name for name in open_files(world) if "deleted" in name] == [
        f"{log_name(0)}.deleted (deleted)"
    ]
    assert [at.header.base_offset for at in walk] == list(range(1, 100))
    del walk
    gc.disable()  # must not depend on the garbage collector
    try:
        assert all(name.startswith(f"{300:020d}") for name in open_files(world))
        log.close()
        assert open_files(world) == []
    finally:
        gc.enable()


def test_the_scheduler_deletes_files_when_they_are_due(world):
    runtime = Runtime(world.clock, world.fs, world.runtime.rng, DeterministicScheduler(world.clock))
    runtime.scheduler.start()
    log = in_segments(world.log(runtime=runtime, file_delete_delay_ms=1000))
    log.delete_old_segments()
    world.clock.advance(ms=999)
    assert world.files(".deleted")
    world.clock.advance(ms=1)
    assert not world.files(".deleted")
    log.delete_records(-1)
    log.close()
    world.clock.advance(days=1)
    runtime.scheduler.shutdown()


def test_closing_removes_deleted_files_at_once(world):
    log = in_segments(world.log())
    log.delete_records(12)
    assert world.files(".deleted")
    log.close()
    assert not world.files(".deleted")


def test_a_start_after_a_kill_removes_deleted_files(world):
    log = in_segments(world.log())
    log.delete_records(12)
    log.flush()
    log = world.log(clean=False, log_start_offset=12)
    assert not world.files(".deleted")
    assert offsets_in(log) == [12, 13, 14]


def test_the_same_base_can_be_removed_twice_within_the_delay(world):
    log = in_segments(world.log(file_delete_delay_ms=1000))
    for _ in range(2):
        log.truncate_to(7)
        world.clock.advance(ms=600)
        log.delete_expired_files()
        in_segments(log)
        assert bases_of(log) == [0, 5, 10]
    world.clock.advance(ms=600)
    log.delete_expired_files()
    assert not world.files(".deleted")
    assert offsets_in(log) == list(range(15))


# -- crashes ---------------------------------------------------------------------------------


def prepare(world):
    in_segments(world.log(), 20).close()


def prepare_one_segment(world):
    in_segments(world.log(), 20, each=100).close()


def prepare_empty(world):
    log = in_segments(world.log(), 20)
    log.delete_old_segments()
    log.close()


def retain(log):
    return log.delete_old_segments()


UNLIMITED = {"retention_ms": -1}

CHANGES = {
    "delete records": (prepare, lambda log: log.delete_records(17), UNLIMITED, 15),
    "limit the size": (prepare, retain, UNLIMITED | {"retention_bytes": 600}, 10),
    "expire all": (prepare, retain, {}, 20),
    "expire all at once": (prepare_one_segment, retain, {}, 20),
    "roll an empty log": (prepare_empty, lambda log: log.writer.roll(), {}, 20),
}


@pytest.mark.parametrize("has_epochs", (True, False))
@pytest.mark.parametrize("name", CHANGES)
def test_a_crash_during_removal_leaves_no_hole(name, has_epochs):
    """The rest is always a tail of the log: an old value never outlives a newer one."""
    prepare, change, config, start = CHANGES[name]
    states = 0

    def prepare_with_or_without_epochs(world):
        prepare(world)
        if not has_epochs:  # writing them also makes names durable
            world.fs.remove(world.path(LEADER_EPOCHS))

    for what, world in crashes_of(prepare_with_or_without_epochs, change, **config):
        log = world.log(clean=False, recovery_point=20)
        assert log.log_end_offset == 20, what
        assert offsets_in(log) == list(range(log.log_start_offset, 20)), what
        assert log.log_start_offset == start if what == "done" else log.log_start_offset <= start
        log._check()
        states += 1
    assert states > 10


# -- flushing --------------------------------------------------------------------------------


def test_s105_the_recovery_point(world):
    """S-105: with flush.messages 1 it follows each append; otherwise rolls and flushes move it."""
    log = world.log(flush_messages=1)
    for offset in range(3):
        fill(log, 1, offset)
        assert log.recovery_point == offset + 1
    log.set_config(LogConfig(segment_index_bytes=4000))
    fill(log, 3, 3)
    assert log.recovery_point == 3
    log.writer.roll()
    assert log.recovery_point == 6
    fill(log, 2, 6)
    assert log.recovery_point == 6
    log.flush()
    assert log.recovery_point == log.log_end_offset == 8
    log.truncate_to(7)
    assert log.recovery_point == 7


def test_the_recovery_point_is_not_below_the_log_start(world):
    """Removed records need not be durable; as in Kafka."""
    log = world.log()
    fill(log, 5)
    log.delete_records(3)
    assert log.recovery_point == 3
    log.writer.roll()
    log.delete_records(4)
    assert log.recovery_point == 5


def test_s106_flushing_an_empty_active_segment(world):
    """S-106: its index files appear only if forced."""
    log = world.log()
    fill(log, 2)
    log.writer.roll()
    assert len(world.files(".log")) == 2
    log.flush()
    assert list(world.files(".index")) == [f"{0:020d}.index"]
    log.flush(force=True)
    assert list(world.files(".index")) == [f"{0:020d}.index", f"{2:020d}.index"]


def test_a_flush_beyond_the_recovery_point_syncs_only_the_rest(world):
    fs = FaultyFileSystem(world.fs)
    log = in_segments(world.log(runtime=Runtime(world.clock, fs, world.runtime.rng)))
    log.flush()
    fs.operations.clear()
    log.flush()
    assert fs.operations == []
    fill(log, 1, 15)
    fs.operations.clear()
    log.flush()
    synced = {path.rpartition("/")[2][:20] for kind, path in fs.operations if kind == "sync"}
    assert synced == {f"{10:020d}"}


def test_other_settings_hold_from_the_next_segment_on(world):
    """As in Kafka, an existing one keeps the settings of its indexes, even if truncated."""
    log = world.log(index_interval_bytes=0, segment_index_bytes=800)
    fill(log, 3)
    log.set_config(LogConfig(index_interval_bytes=4096, segment_index_bytes=160))
    fill(log, 2, 3)
    first = log.active_segment
    assert first.offset_index.entries == 4
    log.truncate_to(4)
    assert (first.offset_index.entries, first.offset_index.max_entries) == (3, 100)
    log.writer.roll()
    fill(log, 4, 4)
    second = log.active_segment
    assert (second.offset_index.entries, second.offset_index.max_entries) == (0, 20)
    assert second.time_index.max_entries == 13


def test_an_offline_log_rejects_all_calls_and_notifies_its_owner_once(world):
    reasons = []
    log = in_segments(world.log())
    log.went_offline.subscribe(reasons.append)
    log.go_offline("the disk is full")
    log.go_offline("again")
    assert (log.is_offline, reasons) == (True, ["the disk is full"])
    for action in (
        log.flush,
        log.writer.roll,
        log.retention_decision,
        lambda: log.truncate_to(3),
        lambda: log.truncate_fully_and_start_at(3),
        lambda: log.delete_records(3),
        lambda: log.reader.read(0, 100),
        lambda: log.writer.append_records([NewRecord(b"k", b"v")]),
    ):
        with pytest.raises(KafkaStorageError, match=exactly("t-0 is offline: the disk is full")):
            action()
    log.close()


# -- swapping --------------------------------------------------------------------------------


def cleaned(world, base, *batches):
    """Write a segment as a cleaner does."""
    segment = LogSegment(
        world.runtime,
        world.directory,
        base,
        LogConfig(segment_index_bytes=4000),
        suffix=".cleaned",
        create=True,
    )
    append(segment, *batches)
    segment.on_become_inactive()
    segment.flush()
    return segment


def test_several_segments_take_the_place_of_one_without_a_gap_for_readers(world):
    """A concurrent reader finds all offsets, in the old segment or in the new ones."""
    log = world.log()
    fill(log, 4)
    log.writer.roll()
    new = [cleaned(world, base, batch(base), batch(base + 1)) for base in (0, 2)]
    seen = []
    publish = log.segments._publish

    def publish_and_look():
        publish()
        seen.append([record.offset for _, record in log.reader.records(0)])

    log.segments._publish = publish_and_look
    log.replace_segments(new, [log.segments.first])
    assert seen == [[0, 1, 2, 3]]
    assert bases_of(log) == [0, 2, 4]


def test_a_merged_segment_is_dropped_if_its_sources_were_deleted_meanwhile(world):
    """Retention was faster than the cleaner."""
    log = in_segments(world.log())
    old = list(log.segments.view[:2])
    new = cleaned(world, 0, batch(0), batch(9))
    log.delete_records(10)
    log.replace_segments([new], old)
    assert bases_of(log) == [10]
    assert not world.files(".cleaned", ".swap")
    assert log_name(0) not in world.files()


def test_a_merged_segment_replaces_the_remaining_sources(world):
    """Some records were deleted in the meantime: they stay hidden below the log start."""
    log = in_segments(world.log())
    old = list(log.segments.view[:2])
    new = cleaned(world, 0, batch(0), batch(9))
    log.delete_records(7)
    assert bases_of(log) == [5, 10]
    log.replace_segments([new], old)
    assert bases_of(log) == [0, 10]
    assert offsets_in(log) == list(range(9, 15))
    assert log.delete_records(10) == 10
    assert bases_of(log) == [10]
