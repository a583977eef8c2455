"""Interference with a cleaning pass at any time: truncations, deletions, failing disks."""

from __future__ import annotations

import threading

import pytest

from logstore import Broker, VirtualClock
from logstore.cleaner.passes import grouping
from logstore.cleaner.selection import CleanableState
from logstore.cleaner.states import ABORTED, CleaningStates, paused
from logstore.errors import KafkaStorageError, UnknownTopicOrPartitionError
from logstore.inspect.check.directory import Checker
from logstore.manager.directories import directory as log_directory
from logstore.manager.housekeeping import Housekeeping
from logstore.runtime import MemoryFileSystem, Runtime
from logstore.storage.log import Log
from tests.support.world.builders import data_batch
from tests.support.world.messages import exactly
from tests.support.world.pool_world import CountingFileSystem
from tests.unit.cleaner.test_pool import BACKOFF_MS, HOUR_MS, USERS, fill, offsets, slow, topic


def open_broker(fs: MemoryFileSystem | None = None, **configs: object) -> Broker:
    clock = VirtualClock() if fs is None else fs._clock
    return Broker(
        clock=clock,
        fs=MemoryFileSystem(clock) if fs is None else fs,
        seed=5,
        background=True,
        broker_config={key.replace("_", "."): value for key, value in configs.items()},
    )


def reopened(broker: Broker, **configs: object) -> Broker:
    """Return a broker that has no files open yet."""
    broker.close()
    return open_broker(broker.runtime.fs, **configs)


# --- owners of a partition --------------------------------------------------------------------


def test_two_waiters_for_a_partition_being_cleaned_both_acquire_it() -> None:
    runtime = Runtime(VirtualClock())
    runtime.scheduler.start()
    states = CleaningStates(runtime)
    states.begin(USERS)

    def second() -> None:
        assert states.of(USERS) == ABORTED
        runtime.scheduler.schedule("worker", lambda: states.done(USERS), delay_ms=5)
        states.pause_in_turn(USERS)

    task = runtime.scheduler.schedule("second", second)
    states.pause_in_turn(USERS)
    assert task.failures == 0
    assert states.of(USERS) == paused(2)
    runtime.scheduler.shutdown()


def test_a_deletion_takes_back_its_own_pause_and_no_other() -> None:
    broker = open_broker()
    topic(broker)
    broker.cleaner.pause(USERS)
    broker.delete_topic("users")
    topic(broker)
    fill(broker)
    broker.clock.advance(ms=BACKOFF_MS)
    assert len(offsets(broker)) == 20, "still paused"
    broker.cleaner.resume(USERS)
    broker.clock.advance(ms=BACKOFF_MS)
    assert len(offsets(broker)) == 5


def test_a_checkpoint_is_stored_before_anybody_else_can_have_the_partition() -> None:
    states = CleaningStates(Runtime(VirtualClock()))
    taken: list[bool] = []
    states.begin(USERS)
    assert states.done(USERS, lambda: taken.append(states.begin(USERS)))
    assert taken == [False]
    assert states.begin(USERS)


def test_a_checkpoint_that_cannot_be_stored_leaves_no_state() -> None:
    states = CleaningStates(Runtime(VirtualClock()))
    states.begin(USERS)

    def fail() -> None:
        raise KafkaStorageError("no disk")

    with pytest.raises(KafkaStorageError):
        states.done(USERS, fail)
    assert states.of(USERS) is None


def test_a_failing_disk_at_the_end_of_a_pass_takes_the_log_offline_and_no_worker(
    monkeypatch,
) -> None:
    broker = open_broker()
    topic(broker)
    fill(broker)
    (directory,) = broker.manager.directories

    def fail(*_: object) -> None:
        raise OSError(5, "no disk")

    monkeypatch.setattr(directory, "write_cleaner_offset", fail)
    broker.clock.advance(ms=BACKOFF_MS)
    assert not directory.is_online
    assert broker.metrics().dead_thread_count == 0
    assert broker.cleaner.states.of(USERS) is None


# --- outdated measurements --------------------------------------------------------------------


def test_a_log_that_was_truncated_after_its_choice_is_measured_again() -> None:
    """Otherwise a pass would reach the active segment, or count new records as clean."""
    broker = open_broker()
    topic(broker)
    fill(broker)
    selected = broker.cleaner.chooser.select()
    assert selected is not None
    broker.cleaner.states.done(USERS)
    broker.manager.truncate_to(USERS, 3)
    for number in range(30):
        broker.append("users", value=b"v%d" % number, key=b"k", partition=0)
    steps = broker.cleaner.run_pass(selected.log, selected.state)
    with pytest.raises(StopIteration) as done:
        next(steps)
    assert done.value.value is None
    assert broker.cleaner.states.of(USERS) is None
    assert len(offsets(broker)) == 33


def test_a_log_that_another_one_cleaned_after_its_choice_is_measured_again() -> None:
    """Its segments may have been merged, so that the range ends inside one."""
    broker = open_broker()
    topic(broker, min_cleanable_dirty_ratio=0)
    fill(broker, count=6)
    selected = broker.cleaner.chooser.select()
    assert selected is not None
    broker.cleaner.states.done(USERS)
    fill(broker, count=6)
    assert broker.clean("users").cleaned
    fill(broker, count=6)
    steps = broker.cleaner.run_pass(selected.log, selected.state)
    with pytest.raises(StopIteration) as done:
        next(steps)
    assert done.value.value is None
    assert broker.cleaner.checkpoints.of(USERS) == 12


def test_a_log_whose_segments_a_stopped_pass_joined_is_measured_again(monkeypatch) -> None:
    """The checkpoint is unchanged, but the range would end inside a segment."""
    monkeypatch.setattr(grouping, "BATCH_GROUPS", 1)  # each group is swapped at once
    broker = open_broker()
    topic(broker, min_cleanable_dirty_ratio=0)
    for _ in range(2):
        fill(broker, count=6)
    selected = broker.cleaner.chooser.select()
    assert selected is not None
    log, end = selected.log, selected.state.upper_bound_offset
    broker.cleaner.states.done(USERS)
    for _ in range(3):
        fill(broker, count=6)
    size = max(segment.size_bytes for segment in log.segments)
    broker.alter_configs("users", {"segment.bytes": str(3 * size)})
    other = broker.cleaner.run_pass(log, broker.cleaner.chooser.state_of(log))
    while end in log.segments:
        next(other)
    other.close()
    state = broker.cleaner.chooser.state_of(log)
    assert state.generation == selected.state.generation
    assert state.first_dirty_offset == selected.state.first_dirty_offset
    with pytest.raises(StopIteration) as done:
        next(broker.cleaner.run_pass(log, selected.state))
    assert done.value.value is None


@pytest.mark.parametrize("comes_again", (False, True))
def test_a_log_deleted_after_its_selection_is_not_a_failure_of_the_worker(
    comes_again: bool,
) -> None:
    broker = open_broker()
    topic(broker)
    fill(broker)
    selected = broker.cleaner.chooser.select()
    assert selected is not None
    broker.cleaner.states.done(USERS)
    broker.delete_topic("users")
    if comes_again:
        topic(broker)
    steps = broker.cleaner.run_pass(selected.log, selected.state)
    with pytest.raises(UnknownTopicOrPartitionError, match="deleted"):
        next(steps)
    assert broker.cleaner.states.of(USERS) is None


def test_a_log_whose_start_moved_after_its_choice_is_measured_again() -> None:
    broker = open_broker()
    topic(broker, cleanup_policy="compact,delete")
    fill(broker)
    selected = broker.cleaner.chooser.select()
    assert selected is not None
    broker.delete_records({USERS: 20})
    steps = broker.cleaner.run_pass(selected.log, selected.state, claimed=True)
    with pytest.raises(StopIteration) as done:
        next(steps)
    assert done.value.value is None


def test_a_log_that_another_one_replaced_is_skipped() -> None:
    broker = open_broker()
    topic(broker, max_compaction_lag_ms=HOUR_MS)
    fill(broker)
    old = broker.log("users")
    broker.delete_topic("users")
    topic(broker, max_compaction_lag_ms=HOUR_MS)
    fill(broker, count=3)
    for segment in old.segments:
        segment._rolling_based_timestamp = None  # as if nobody had asked yet
    assert broker.cleaner.chooser._examine(old) is None
    with pytest.raises(
        OSError,
        match=exactly("[Errno 9] closed for good: '/memory/users-0/00000000000000000000.log'"),
    ):
        old.segments.first.read_batch(next(broker.log("users").segments.first.batches()))
    assert broker.cleaner.chooser._examine(broker.log("users")) is not None


def test_a_truncation_lowers_the_checkpoint_also_of_a_topic_that_is_not_compacted_now() -> None:
    broker = open_broker()
    topic(broker, min_cleanable_dirty_ratio=0)
    fill(broker)
    broker.clock.advance(ms=BACKOFF_MS)
    assert broker.cleaner.checkpoints.of(USERS) == 20
    broker.alter_configs("users", {"cleanup.policy": "delete"})
    broker.manager.truncate_to(USERS, 0)
    fill(broker)
    broker.alter_configs("users", {"cleanup.policy": "compact"})
    broker.clock.advance(ms=BACKOFF_MS)
    assert offsets(broker) == [15, 16, 17, 18, 19]


# --- records are deleted in mid-pass ----------------------------------------------------------


@pytest.mark.parametrize("phase", ("map", "rewrite"))
def test_files_that_are_removed_in_mid_pass_are_read_to_the_end(phase: str) -> None:
    """Deleting records does not stop a cleaning pass, and after a start no file is open."""
    broker = open_broker()
    topic(broker, cleanup_policy="compact,delete", segment_bytes=400)
    fill(broker, count=40)
    broker = reopened(broker)
    with slow(broker) as steps:
        while len(steps) < (1 if phase == "map" else 9):
            broker.clock.advance(ms=HOUR_MS)
        assert broker.cleaner.states.is_in_progress(USERS)
        removed = broker.log("users").segments.view[:-1]
        assert any(segment._file is None for segment in removed) is False
        broker.delete_records({USERS: 40})
        assert len(broker.log("users").segments) == 1
    broker.clock.advance(ms=2 * HOUR_MS)
    assert all(directory.is_online for directory in broker.manager.directories)
    assert broker.cleaner.uncleanable() == ()
    assert broker.cleaner.states.of(USERS) is None
    names = broker.runtime.fs.list_dir("/memory/users-0")
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]


# --- housekeeping among deletions -------------------------------------------------------------


def test_retention_of_the_others_continues_when_a_log_is_deleted_under_its_hands() -> None:
    broker = open_broker(log_retention_check_interval_ms=2**63 - 1)
    for name in ("a", "b"):
        topic(broker, name, cleanup_policy="delete", retention_ms=1)
        fill(broker, name)
    broker.clock.advance(ms=1000)
    broker.log("a").abandon()
    Housekeeping(broker.manager).retain()
    assert offsets(broker, "b") == []
    for log in broker.manager.registry.open_logs():
        log.config = broker.log("b").config
    Housekeeping(broker.manager).flush()


def test_folders_are_removed_by_one_thread_at_a_time(monkeypatch) -> None:
    """Two deletions may be due at once; the second must not fail because of the first."""
    broker = open_broker()
    topic(broker, file_delete_delay_ms=1000)
    fill(broker)
    broker.delete_topic("users")
    (directory,) = broker.manager.directories
    entered, go_on = threading.Event(), threading.Event()
    removed: list[str] = []
    remove_tree = log_directory.remove_tree

    def slowly(fs: object, path: str) -> None:
        removed.append(path)
        entered.set()
        assert go_on.wait(60)
        remove_tree(fs, path)

    monkeypatch.setattr(log_directory, "remove_tree", slowly)
    counts: list[int] = []

    def remove() -> None:
        counts.append(directory.delete_retired_folders(force=True))

    threads = [threading.Thread(target=remove) for _ in range(2)]
    threads[0].start()
    assert entered.wait(60)
    threads[1].start()
    threads[1].join(0.05)
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert sorted(counts) == [0, 1]
    assert len(removed) == 1


def test_a_deleted_log_keeps_no_file_open_that_it_removed_before() -> None:
    clock = VirtualClock()
    broker = open_broker(CountingFileSystem(clock))
    topic(broker, file_delete_delay_ms=HOUR_MS)
    fill(broker)
    log = broker.log("users")
    broker.manager.truncate_to(USERS, 5)
    broker.delete_topic("users")
    assert log.is_offline is False
    assert not [each for each in broker.runtime.fs.open_handles() if "users" in each.path]


def test_the_measurement_of_a_deleted_partition_is_not_stored() -> None:
    broker = open_broker()
    topic(broker)
    fill(broker)
    log = broker.log("users")
    broker.delete_topic("users")
    (directory,) = broker.manager.directories
    directory.write_recovery_points({USERS: log})
    assert USERS not in directory.checkpoint("recovery-point-offset-checkpoint").read()


# --- later checks -----------------------------------------------------------------------------


def test_a_snapshot_below_the_first_segment_is_held_to_nothing() -> None:
    """A stop writes one at the log's end; then retention removes its batches."""
    broker = open_broker()
    topic(broker, cleanup_policy="delete", segment_ms=2**62)
    now = broker.clock.now_ms()
    broker.log("users").writer.append_batches(data_batch(0, 1, 7, timestamp=now))
    broker = reopened(broker)
    broker.log("users").writer.append_batches(data_batch(0, 1, 7, sequence=2, timestamp=now))
    broker.log("users").writer.append_end_txn_marker(7, 0, 0, commit=True)
    broker.roll("users")
    broker.append("users", value=b"v", key=b"k", partition=0)
    broker.delete_records({USERS: 5})
    fs = broker.runtime.fs
    assert fs.exists("/memory/users-0/00000000000000000002.snapshot")
    assert broker.log("users").segments.first.base_offset == 5
    broker.close()
    rows = list(Checker(fs).data_dirs(["/memory"]))
    assert [row for row in rows if row.check == "snapshot_state"] == []


def to_be_repaired() -> tuple[Broker, Log, CleanableState]:
    """Return a broker, a log whose checkpoint is beyond its end, and its measurement."""
    broker = open_broker()
    topic(broker)
    fill(broker)
    (directory,) = broker.manager.directories
    directory.write_cleaner_offset(USERS, 1000)
    log = broker.log("users")
    state = broker.cleaner.chooser.state_of(log)
    assert state.checkpoint_repaired
    return broker, log, state


def test_a_repair_does_not_change_a_checkpoint_of_a_claimed_partition() -> None:
    broker, log, state = to_be_repaired()
    broker.cleaner.states.begin(USERS)
    broker.cleaner.chooser.repair_checkpoint(log, state)
    assert broker.cleaner.checkpoints.of(USERS) == 1000
    broker.cleaner.states.done(USERS)
    broker.cleaner.chooser.repair_checkpoint(log, state)
    assert broker.cleaner.checkpoints.of(USERS) == 0


def test_a_repair_measures_again_once_it_has_the_partition() -> None:
    """A pass may have stored a new checkpoint since the checkpoint was read."""
    broker, log, state = to_be_repaired()
    (directory,) = broker.manager.directories
    directory.write_cleaner_offset(USERS, 10)
    broker.cleaner.chooser.repair_checkpoint(log, state)
    assert broker.cleaner.checkpoints.of(USERS) == 10


def test_a_repair_writes_no_checkpoint_that_is_sound_by_now(monkeypatch) -> None:
    """The log may also be truncated between the measurement and the write."""
    broker, log, state = to_be_repaired()
    (directory,) = broker.manager.directories
    directory.write_cleaner_offset(USERS, 10)
    written = []
    monkeypatch.setattr(broker.cleaner.checkpoints, "write", lambda *each: written.append(each))
    broker.cleaner.chooser.repair_checkpoint(log, state)
    assert written == []


def test_a_repair_for_a_log_that_was_replaced_leaves_its_successor_s_checkpoint_alone() -> None:
    broker, old, state = to_be_repaired()
    (directory,) = broker.manager.directories
    broker.delete_topic("users")
    topic(broker)
    fill(broker, count=30)
    directory.write_cleaner_offset(USERS, 30)  # beyond the old log's end
    with pytest.raises(UnknownTopicOrPartitionError, match="deleted"):
        broker.cleaner.chooser.repair_checkpoint(old, state)
    assert broker.cleaner.checkpoints.of(USERS) == 30
    assert broker.cleaner.states.of(USERS) is None


def test_a_snapshot_need_not_know_producers_below_the_log_start() -> None:
    """After a truncation the producer state is rebuilt from the log start on."""
    broker = open_broker()
    topic(broker, cleanup_policy="delete", segment_ms=2**62)
    log = broker.log("users")
    now = broker.clock.now_ms()
    log.writer.append_batches(data_batch(0, 1, 7, timestamp=now))
    log.writer.append_end_txn_marker(7, 0, 0, commit=True)
    fill(broker, count=3)
    broker.delete_records({USERS: 2})
    broker.manager.truncate_to(USERS, 5)
    broker.append("users", value=b"v", key=b"k", partition=0)
    broker.roll("users")
    broker.append("users", value=b"v", key=b"k", partition=0)
    broker.close()
    rows = list(Checker(broker.runtime.fs).data_dirs(["/memory"]))
    assert [row for row in rows if row.check == "snapshot_state"] == []
