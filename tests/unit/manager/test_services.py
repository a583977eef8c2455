"""Housekeeping in the background: Kafka's tasks on Kafka's intervals, in virtual time."""

import random

import pytest

from logstore.manager.housekeeping import Housekeeping
from logstore.runtime import (
    DeterministicScheduler,
    FixedWallClock,
    MemoryFileSystem,
    Runtime,
    ThreadScheduler,
    VirtualClock,
)
from logstore.storage.checkpoint.offsets import (
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    REPLICATION_OFFSETS,
)
from logstore.storage.log import NewRecord
from logstore.types import AppendOrigin, TopicPartition
from tests.support.world.builders import batch, log_name
from tests.support.world.data_home import Home, fill, offsets

A0 = TopicPartition("a", 0)
MINUTE_MS = 60_000
FIRST_RUN_MS = 30_000
HOUR_MS = 60 * MINUTE_MS


class Kept:
    """A broker's data directory in memory, with housekeeping, in virtual time."""

    def __init__(self):
        self.clock = VirtualClock()
        self.home = Home(MemoryFileSystem(self.clock), "/data", self.clock)
        self.manager = None

    def open(self, **properties):
        self.manager = self.home.open(**properties)
        self.manager.start([Housekeeping(self.manager)])
        return self.manager

    def topic(self, name="a", **configs):
        configs = {key.replace("_", "."): str(value) for key, value in configs.items()}
        self.manager.topics.create(name, 1, configs)
        return self.manager.log(TopicPartition(name, 0))

    def deleted_files(self):
        return [name for name in self.home.files() if name.endswith(".deleted")]

    def checkpoint(self, name):
        return self.manager.directories[0].checkpoint(name).read()


@pytest.fixture
def kept():
    kept = Kept()
    yield kept
    kept.manager.close()


def test_retention_runs_after_the_initial_delay_and_then_on_its_interval(kept):
    kept.open()
    log = kept.topic(retention_ms=HOUR_MS, segment_bytes=200)
    fill(log, 10)
    kept.clock.advance(ms=FIRST_RUN_MS)
    assert log.log_start_offset == 0
    kept.clock.advance(ms=HOUR_MS - FIRST_RUN_MS)
    assert log.log_start_offset == 0, "a record exactly as old as retention.ms stays"
    kept.clock.advance(ms=5 * MINUTE_MS)
    assert (log.log_start_offset, len(log.segments)) == (10, 1)
    runs = 30_000 + 5 * MINUTE_MS * 12
    assert kept.clock.now_ms() >= VirtualClock().now_ms() + runs


def test_only_topics_that_are_deleted_from_and_stored_are_retained(kept):
    """Compacted ones are the cleaner's, adopted ones nobody's until a command names them."""
    kept.home.write(f"copied-0/{log_name(0)}", batch(0))
    kept.open()
    compacted = kept.topic("c", cleanup_policy="compact,delete", retention_ms=1)
    deleted = kept.topic("d", retention_ms=1)
    fill(compacted, 2)
    fill(deleted, 2)
    kept.clock.advance(days=30)
    starts = {
        log.topic_partition.topic: log.log_start_offset for log in kept.manager.registry.open_logs()
    }
    assert starts == {"c": 0, "copied": 0, "d": 2}
    kept.manager.topics.alter("copied", {"retention.ms": "1"})
    kept.clock.advance(ms=5 * MINUTE_MS)
    assert kept.manager.log(TopicPartition("copied", 0)).log_start_offset == 1


def test_a_log_that_another_service_works_on_is_retained_later_and_then_no_more(kept, monkeypatch):
    """While nothing can expire, the task does not run in virtual time."""
    manager = kept.open()
    busy, asked = [True], []

    class Working:
        def try_pause(self, topic_partition):
            asked.append(topic_partition)
            return not busy

        def resume(self, topic_partition):
            pass

    manager.services.add_holder(Working())
    log = kept.topic(retention_ms=MINUTE_MS, segment_bytes=200)
    fill(log, 2)
    kept.clock.advance(days=1)
    assert (log.log_start_offset, asked) == (0, [A0] * (24 * 12))
    busy.clear()
    kept.clock.advance(ms=5 * MINUTE_MS)
    assert log.log_start_offset == 2
    asked.clear()
    kept.clock.advance(days=1)
    assert len(asked) <= 1


def test_deleted_files_go_when_their_delay_is_over_and_not_before(kept):
    kept.open()
    log = kept.topic(file_delete_delay_ms=1000, segment_bytes=200)
    fill(log, 10)
    kept.manager.delete_records(A0, 5)
    assert kept.deleted_files()
    kept.clock.advance(ms=999)
    assert kept.deleted_files()
    kept.clock.advance(ms=1)
    assert kept.deleted_files() == []
    assert offsets(log) == list(range(5, 10))


def test_a_deleted_topics_folder_is_removed_after_its_delay(kept):
    kept.open()
    kept.topic(file_delete_delay_ms=1000)
    kept.manager.topics.delete("a")
    kept.clock.advance(ms=999)
    assert [name for name in kept.home.files() if "-delete/" in name]
    kept.clock.advance(ms=1)
    assert [name for name in kept.home.files() if "-delete" in name] == []


def test_folders_of_an_earlier_deletion_wait_for_their_delay_again(kept):
    kept.home.write(f"a-0.{'0' * 32}-delete/{log_name(0)}", b"")
    kept.open()
    assert kept.manager.catalog.topics() == []
    kept.clock.advance(ms=MINUTE_MS - 1)
    assert [name for name in kept.home.files() if "-delete/" in name]
    kept.clock.advance(ms=1)
    assert [name for name in kept.home.files() if "-delete" in name] == []


def test_checkpoints_are_written_on_their_intervals(kept):
    kept.open()
    log = kept.topic()
    fill(log, 5)
    kept.clock.advance(ms=5000)
    assert kept.checkpoint(REPLICATION_OFFSETS) == {A0: 5}
    assert kept.checkpoint(RECOVERY_POINTS) == {}
    kept.clock.advance(ms=FIRST_RUN_MS)
    assert kept.checkpoint(RECOVERY_POINTS) == {A0: 0}
    log.flush()
    log.offsets.maybe_increment_log_start_offset(2)
    kept.clock.advance(ms=MINUTE_MS - 5001)
    assert (kept.checkpoint(RECOVERY_POINTS), kept.checkpoint(LOG_START_OFFSETS)) == ({A0: 0}, {})
    kept.clock.advance(ms=1)
    assert kept.checkpoint(RECOVERY_POINTS) == {A0: 5}
    assert kept.checkpoint(LOG_START_OFFSETS) == {A0: 2}


def test_logs_are_flushed_when_flush_ms_is_over(kept):
    kept.open(log_flush_scheduler_interval_ms="1000")
    log = kept.topic(flush_ms=10_000)
    never = kept.topic("b", flush_ms=10**15)
    fill(log, 2)
    fill(never, 2)
    kept.clock.advance(ms=FIRST_RUN_MS)
    assert log.recovery_point == 2
    fill(log, 1)
    kept.clock.advance(ms=9_000)
    assert log.recovery_point == 2
    kept.clock.advance(ms=1_000)
    assert (log.recovery_point, never.recovery_point) == (3, 0)


def test_idle_producers_are_forgotten(kept):
    kept.open(producer_id_expiration_ms=str(HOUR_MS))
    log = kept.topic()
    now = kept.clock.now_ms()
    written = batch(0, timestamp=now, producer_id=7, producer_epoch=0, base_sequence=0)
    log.writer.append_batches(written, AppendOrigin.REPLICATION)
    kept.clock.advance(ms=HOUR_MS - 1)
    assert log.producer_state.entry(7) is not None
    kept.clock.advance(ms=10 * MINUTE_MS)
    assert log.producer_state.entry(7) is None


def test_nothing_runs_after_closing(kept):
    manager = kept.open()
    log = kept.topic(retention_ms=1)
    fill(log, 2)
    manager.close()
    stored = kept.home.files()
    kept.clock.advance(days=30)
    assert kept.home.files() == stored


def test_services_hear_of_partitions_and_configurations(kept):
    heard = []

    class Listener:
        def follow(self, events):
            return [
                events.partition_added.subscribe(lambda tp: heard.append(f"+{tp}")),
                events.partition_removed.subscribe(lambda tp: heard.append(f"-{tp}")),
                events.config_changed.subscribe(lambda topic: heard.append(f"config {topic}")),
                events.log_changed.subscribe(lambda: heard.append("moved")),
            ]

        def start(self):
            heard.append("start")

        def stop(self):
            heard.append("stop")

        def check_pausable(self, topic_partition):
            pass

        def pause(self, topic_partition):
            heard.append(f"pause {topic_partition}")

        def resume(self, topic_partition):
            heard.append(f"resume {topic_partition}")

    manager = kept.open()
    listener = Listener()
    manager.start([listener])
    manager.services.add_holder(listener)
    manager.topics.create("a", 2, {})
    manager.topics.alter("a", {"retention.ms": "5"})
    fill(manager.log(A0), 1)
    manager.truncate_fully_and_start_at(A0, 0)
    manager.topics.delete("a")
    manager.stop()
    assert heard == [
        *("start", "config a", "+a-0", "+a-1", "moved", "moved", "config a", "moved"),
        *("pause a-0", "moved", "resume a-0"),
        *("pause a-0", "-a-0", "pause a-1", "-a-1", "stop"),
    ]
    manager.topics.create("b", 1, {})
    assert heard[-1] == "stop", "a service that was stopped follows nothing any more"


def test_a_task_that_fails_stops_no_other(kept):
    """A log that the disk fails is left out; the tasks go on with the rest."""
    kept.open()
    broken, sound = kept.topic("a", retention_ms=1), kept.topic("b", retention_ms=1)
    fill(broken, 1)
    fill(sound, 1)
    broken.go_offline("on purpose")
    kept.manager.directories[0].offline_reason = None
    sound._offline_reason, sound.is_offline = None, False
    kept.clock.advance(ms=FIRST_RUN_MS)
    assert sound.log_start_offset == 1


def test_housekeeping_runs_in_threads_on_other_clocks():
    clock = FixedWallClock(1_700_000_000_000)
    home = Home(MemoryFileSystem(clock), "/data", clock)
    runtime = Runtime(clock, home.fs, random.Random(0), ThreadScheduler(clock))
    properties = {"log_initial_task_delay_ms": "1", "log_retention_check_interval_ms": "1"}
    manager = home.open(runtime=runtime, **properties)
    manager.topics.create("a", 1, {"retention.ms": "1", "file.delete.delay.ms": "0"})
    log = manager.log(A0)
    manager.start([Housekeeping(manager)])
    log.writer.append_records([NewRecord(b"k", b"v", clock.now_ms() - 1000)])
    assert runtime.scheduler.wait_until(lambda: log.log_start_offset == 1, timeout_ms=20_000)
    files = [f"/data/a-0/{log_name(0)}.deleted", f"/data/a-0/{log_name(0)}"]
    assert runtime.scheduler.wait_until(
        lambda: not any(home.fs.exists(path) for path in files), timeout_ms=20_000
    )
    manager.close()
    assert not runtime.scheduler.is_started


def test_a_default_runtime_waits_for_its_owner_to_start_it():
    assert isinstance(Runtime(VirtualClock()).scheduler, DeterministicScheduler)
    assert not Runtime(VirtualClock()).scheduler.is_started
