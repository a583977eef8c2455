"""The pool: its workers in virtual time and in threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from logstore import Broker, TopicPartition, VirtualClock
from logstore.cleaner.stats import CleanerStats
from logstore.cleaner.strategy import Strategy
from logstore.errors import InvalidConfigurationError
from logstore.runtime import MemoryFileSystem, SystemClock
from tests.support.world.brokers import fill

USERS = TopicPartition("users", 0)
HOUR_MS = 3_600_000
BACKOFF_MS = 15_000


def new_broker(**configs: object) -> Broker:
    clock = VirtualClock()
    return Broker(
        clock=clock,
        fs=MemoryFileSystem(clock),
        seed=5,
        background=True,
        broker_config={key.replace("_", "."): value for key, value in configs.items()},
    )


def topic(broker: Broker, name: str = "users", partitions: int = 1, **configs: object) -> None:
    texts = {"cleanup_policy": "compact", "file_delete_delay_ms": 0} | configs
    broker.create_topic(name, partitions, {key.replace("_", "."): v for key, v in texts.items()})


def offsets(broker: Broker, name: str = "users", partition: int = 0) -> list[int]:
    return [record.offset for record in broker.read(name, partition)]


def passes_of(broker: Broker) -> list[CleanerStats]:
    """Return a list to which later passes are appended."""
    passes: list[CleanerStats] = []
    broker.pool.pass_ended.subscribe(passes.append)
    return passes


# --- in virtual time --------------------------------------------------------------------------


def test_a_dirty_log_is_cleaned_within_a_back_off() -> None:
    broker = new_broker()
    topic(broker)
    broker.clock.advance(ms=1)
    fill(broker)
    broker.clock.advance(ms=BACKOFF_MS - 2)
    assert len(offsets(broker)) == 20
    broker.clock.advance(ms=1)
    assert offsets(broker) == [15, 16, 17, 18, 19]


def test_s232_nothing_found_sleeps_the_back_off_something_found_continues() -> None:
    broker = new_broker(log_cleaner_backoff_ms=700)
    for name in ("a", "b", "c"):
        topic(broker, name)
    broker.clock.advance(ms=1)
    for name in ("a", "b", "c"):
        fill(broker, name)
    broker.clock.advance(ms=699)
    assert [len(offsets(broker, name)) for name in "abc"] == [5, 5, 5], "at the same time, in turn"
    fill(broker, "b")
    broker.clock.advance(ms=699)
    assert len(offsets(broker, "b")) == 25
    broker.clock.advance(ms=1)
    assert len(offsets(broker, "b")) == 5


def test_s229_no_log_is_cleaned_by_two_workers_at_once() -> None:
    broker = new_broker(log_cleaner_threads=2)
    running: set[TopicPartition] = set()
    manager = broker.cleaner
    run_pass, most = manager.run_pass, []

    def watched(log, *arguments, **options):
        assert log.topic_partition not in running
        running.add(log.topic_partition)
        most.append(len(running))
        try:
            return (yield from run_pass(log, *arguments, **options))
        finally:
            running.discard(log.topic_partition)

    manager.run_pass = watched
    topic(broker, partitions=3)
    for number in range(3):
        fill(broker, partition=number)
    broker.clock.advance(ms=BACKOFF_MS)
    assert [len(offsets(broker, "users", number)) for number in range(3)] == [5, 5, 5]
    assert max(most) == 2


def test_s226_what_is_younger_than_the_minimum_lag_is_retained() -> None:
    broker = new_broker(log_cleaner_min_cleanable_ratio="0.01")
    topic(broker, min_compaction_lag_ms=HOUR_MS)
    fill(broker)
    broker.clock.advance(ms=HOUR_MS - 1)
    assert len(offsets(broker)) == 20
    fill(broker)
    broker.clock.advance(ms=1 + BACKOFF_MS)
    first_block = [offset for offset in offsets(broker) if offset < 20]
    assert first_block == [15, 16, 17, 18, 19], "compacted by itself"
    assert len(offsets(broker)) == 25, "the newer block is complete"


@pytest.mark.parametrize("exact", (False, True))
def test_s227_an_idle_active_segment_past_the_maximum_lag(exact: bool) -> None:
    """KIP-354: it is rolled and cleaned; Kafka waits for an append."""
    broker = new_broker(logstore_kafka_exact=exact)
    topic(
        broker, max_compaction_lag_ms=HOUR_MS, min_cleanable_dirty_ratio=1, segment_ms=7 * HOUR_MS
    )
    for number in range(10):
        broker.append("users", value=b"v%d" % number, key=b"k", partition=0)
    broker.clock.advance(ms=HOUR_MS)
    assert len(offsets(broker)) == 10
    broker.clock.advance(ms=BACKOFF_MS)
    assert len(offsets(broker)) == (10 if exact else 1)
    broker.append("users", value=b"last", key=b"k", partition=0)
    broker.clock.advance(ms=BACKOFF_MS)
    assert offsets(broker) == [9, 10]


def test_s228_compact_and_delete_expires_what_was_never_compacted() -> None:
    broker = new_broker()
    topic(
        broker,
        cleanup_policy="compact,delete",
        retention_ms=HOUR_MS,
        min_compaction_lag_ms=3 * HOUR_MS,
    )
    fill(broker)
    broker.clock.advance(ms=HOUR_MS + BACKOFF_MS)
    assert offsets(broker) == []
    assert broker.log("users").log_start_offset == 20
    broker.alter_configs("users", {"min.compaction.lag.ms": "0"})
    fill(broker)
    broker.clock.advance(ms=BACKOFF_MS)
    assert offsets(broker) == [35, 36, 37, 38, 39]
    assert broker.cleaner.checkpoints.of(USERS) == 40


def test_s234_without_the_cleaner_compacted_logs_are_let_be() -> None:
    broker = new_broker(log_cleaner_enable="false", log_retention_check_interval_ms=1000)
    topic(broker, cleanup_policy="compact,delete", retention_ms=HOUR_MS)
    topic(broker, "events", cleanup_policy="delete", retention_ms=HOUR_MS)
    fill(broker)
    fill(broker, "events")
    broker.clock.advance(ms=2 * HOUR_MS)
    assert len(offsets(broker)) == 20
    assert offsets(broker, "events") == []
    assert not broker.pool.is_running


def test_an_adopted_topic_is_left_alone_until_it_is_named() -> None:
    clock = VirtualClock()
    fs = MemoryFileSystem(clock)
    with Broker(clock=clock, fs=fs, seed=1) as broker:
        topic(broker)
        fill(broker)
    fs.remove("/memory/logstore-topics.json")
    config = {"log.cleanup.policy": "compact"}
    broker = Broker(clock=clock, fs=fs, seed=1, broker_config=config, background=True)
    broker.clock.advance(ms=BACKOFF_MS)
    assert len(offsets(broker)) == 20
    broker.alter_configs("users", {"segment.ms": "600000"})
    broker.clock.advance(ms=BACKOFF_MS)
    assert len(offsets(broker)) == 5


def test_a_map_too_small_takes_several_passes_without_a_pause() -> None:
    broker = new_broker(log_cleaner_io_buffer_load_factor="0.000005")
    passes = passes_of(broker)
    topic(broker, min_cleanable_dirty_ratio=0)
    fill(broker, count=60, keys=30)
    broker.clock.advance(ms=BACKOFF_MS)
    assert broker.cleaner.config.max_keys_of(Strategy()) == 27
    assert [(each.first_dirty_offset, each.end_offset) for each in passes] == [
        (0, 27),
        (27, 54),
        (54, 60),
    ]
    assert len(offsets(broker)) == 30


def test_the_throttle_takes_virtual_time() -> None:
    """At 1000 bytes per second; the pass reads a log of 20 kB twice."""
    broker = new_broker(log_cleaner_io_max_bytes_per_second="1000", log_cleaner_io_buffer_size="0")
    passes = passes_of(broker)
    topic(broker, min_cleanable_dirty_ratio=0)
    for number in range(200):
        broker.append("users", value=b"x" * 900, key=b"k%d" % number, partition=0)
    broker.roll("users")
    size = broker.log("users").size_bytes
    broker.clock.advance(ms=BACKOFF_MS)
    assert not passes
    broker.clock.advance(ms=3 * size - 30_000)
    assert not passes
    broker.clock.advance(ms=30_000 + BACKOFF_MS)
    assert len(passes) == 1


def test_months_of_nothing_are_no_rounds_at_all() -> None:
    broker = new_broker()
    topic(broker)
    fill(broker)
    broker.clock.advance(ms=BACKOFF_MS)
    rounds: list[int] = []
    select = broker.cleaner.chooser.select
    broker.cleaner.chooser.select = lambda: rounds.append(broker.clock.now_ms()) or select()
    broker.clock.advance(days=60)
    assert not rounds
    assert broker.metrics().time_since_last_run_ms < BACKOFF_MS, "as if rounds had run"
    fill(broker)
    broker.clock.advance(ms=BACKOFF_MS)
    assert len(offsets(broker)) == 5


# --- uncleanable ------------------------------------------------------------------------------


def spoil(broker: Broker) -> None:
    """Damage a byte of the first batch's record."""
    path = "/memory/users-0/00000000000000000000.log"
    file = broker.runtime.fs.open(path, write=True)
    file.write_at([b"\xff"], 70)
    file.close()


def test_a_damaged_partition_is_named_with_its_reason_and_the_others_continue() -> None:
    broker = new_broker()
    topic(broker)
    topic(broker, "other")
    fill(broker)
    fill(broker, "other")
    spoil(broker)
    broker.clock.advance(ms=BACKOFF_MS)
    (mark,) = broker.cleaner.uncleanable()
    assert (mark.topic_partition, mark.log_dir) == (USERS, "/memory")
    assert "crc" in mark.reason.lower()
    assert mark.since_ms <= broker.clock.now_ms()
    assert len(offsets(broker, "other")) == 5
    metrics = broker.metrics()
    assert metrics.uncleanable_partitions_count == {"/memory": 1}
    assert metrics.uncleanable_bytes == {"/memory": broker.log("users").size_bytes}
    assert broker.explain("users").partitions[0].decision.binding.gate == "uncleanable"


def test_retry_lets_a_mended_partition_be_cleaned() -> None:
    broker = new_broker()
    topic(broker)
    fill(broker)
    path = "/memory/users-0/00000000000000000000.log"
    file = broker.runtime.fs.open(path, write=True)
    good = file.read(70, 1)
    spoil(broker)
    broker.clock.advance(ms=BACKOFF_MS)
    assert broker.cleaner.uncleanable()
    file.write_at([good], 70)
    broker.clock.advance(ms=BACKOFF_MS)
    assert broker.cleaner.checkpoints.of(USERS) == 0, "stored after a failure, as in Kafka"
    assert broker.cleaner.retry(USERS)
    assert not broker.cleaner.retry(USERS)
    broker.clock.advance(ms=BACKOFF_MS)
    assert offsets(broker) == [15, 16, 17, 18, 19]


def test_s221_which_logs_the_pool_takes_for_retention() -> None:
    taken: list[TopicPartition] = []
    broker = new_broker()
    for name, policy in (("a", "delete"), ("b", "compact,delete"), ("c", "compact")):
        topic(broker, name, cleanup_policy=policy)
    topic(broker, "d")
    topic(broker, "e")
    broker.cleaner.states.begin(TopicPartition("d", 0))
    for name in "abcde":
        log = broker.log(name)
        real = log.delete_old_segments

        def watched(real=real, name=name, **options):
            taken.append(name)
            return real(**options)

        log.delete_old_segments = watched
    fill(broker, "e")
    broker.cleaner.uncleanable_partitions.add(TopicPartition("e", 0), ValueError("damaged"))
    broker.cleaner.retain()
    assert sorted(taken) == ["b", "c"]


# --- stopping, dying, reconfiguring ----------------------------------------------------------


def test_s235_the_map_is_shared_out_and_too_little_is_refused() -> None:
    assert new_broker().cleaner.config.slots == 5592405
    assert new_broker().cleaner.config.max_keys_of(Strategy()) == 5033164
    assert new_broker(log_cleaner_threads=2).cleaner.config.slots == 5592405 // 2
    with pytest.raises(InvalidConfigurationError, match=r"dedupe\.buffer\.size"):
        new_broker(log_cleaner_dedupe_buffer_size=1 << 20)


def test_s230_another_limit_holds_at_once() -> None:
    broker = new_broker(log_cleaner_io_max_bytes_per_second="10000000")
    assert broker.pool._throttles.both.bytes_per_second == 10_000_000
    broker.alter_broker_configs({"log.cleaner.io.max.bytes.per.second": "20000000"})
    assert broker.pool._throttles.both.bytes_per_second == 20_000_000


def test_s233_a_dead_worker_is_counted_and_replaced_by_a_reconfiguration() -> None:
    broker = new_broker(log_cleaner_threads=2)
    topic(broker)
    broker.clock.advance(ms=1)
    select = broker.cleaner.chooser.select

    def failing():
        broker.cleaner.chooser.select = select
        raise SystemExit

    broker.cleaner.chooser.select = failing
    fill(broker)
    with pytest.raises(SystemExit):
        broker.clock.advance(ms=BACKOFF_MS)
    broker.clock.advance(ms=BACKOFF_MS)
    assert broker.metrics().dead_thread_count == 1
    assert len(offsets(broker)) == 5, "the other worker continues"
    broker.alter_broker_configs({"log.cleaner.backoff.ms": 5})
    assert broker.metrics().dead_thread_count == 0
    assert len(broker.pool._threads) == 2


@contextmanager
def slow(broker: Broker) -> Iterator[list[int]]:
    """Make each step of a pass take an hour."""
    steps: list[int] = []
    throttles = broker.pool._throttles
    real = throttles.observe

    def observe(read: int, written: int) -> int:
        steps.append(read)
        return HOUR_MS

    throttles.observe = observe
    yield steps
    throttles.observe = real


def test_a_stop_aborts_the_pass_and_removes_its_output() -> None:
    broker = new_broker()
    topic(broker)
    fill(broker)
    with slow(broker) as steps:
        broker.clock.advance(ms=HOUR_MS + 2 * BACKOFF_MS)
        assert len(steps) == 2, "mapped, and about to rewrite"
        assert broker.cleaner.states.is_in_progress(USERS)
        names = broker.runtime.fs.list_dir("/memory/users-0")
        assert any(name.endswith(".cleaned") for name in names)
        broker.pool.stop()
    assert broker.cleaner.states.of(USERS) is None
    names = broker.runtime.fs.list_dir("/memory/users-0")
    assert not any(name.endswith(".cleaned") for name in names)
    assert len(offsets(broker)) == 20
    broker.pool.start()
    broker.clock.advance(ms=BACKOFF_MS)
    assert len(offsets(broker)) == 5


def test_a_reconfiguration_during_a_pass_restarts_it() -> None:
    broker = new_broker()
    topic(broker)
    fill(broker)
    with slow(broker):
        broker.clock.advance(ms=HOUR_MS)
        assert broker.cleaner.states.is_in_progress(USERS)
        broker.alter_broker_configs({"log.cleaner.threads": 2})
    broker.clock.advance(ms=BACKOFF_MS)
    assert len(offsets(broker)) == 5


def test_a_worker_that_was_stopped_is_not_scheduled_again() -> None:
    """It may be stopped in the middle of a step."""
    broker = new_broker()
    topic(broker)
    broker.clock.advance(ms=1)
    (thread,) = broker.pool._threads
    before = thread.task
    broker.pool.stop()
    broker.pool._schedule(thread, 0)
    assert thread.task is before
    assert thread.worker.name not in [task.name for *_, task in broker.runtime.scheduler._queue]


@pytest.mark.parametrize("change", ("truncate", "delete", "policy"))
def test_events_during_a_pass_wait_for_its_end(change: str) -> None:
    broker = new_broker()
    topic(broker)
    fill(broker)
    with slow(broker):
        broker.clock.advance(ms=HOUR_MS)
        assert broker.cleaner.states.is_in_progress(USERS)
        if change == "truncate":
            broker.manager.truncate_to(USERS, 10)
        elif change == "delete":
            broker.delete_topic("users")
        else:
            broker.alter_configs("users", {"cleanup.policy": "delete"})
        assert broker.cleaner.states.of(USERS) is None
    broker.clock.advance(ms=BACKOFF_MS)
    if change != "delete":
        assert len(offsets(broker)) == {"truncate": 10, "policy": 20}[change]


def test_s220_retention_of_a_log_that_becomes_compacted() -> None:
    broker = new_broker()
    topic(broker, cleanup_policy="delete")
    fill(broker)
    with broker.manager.services.paused_if_idle(USERS) as taken:
        assert taken
        broker.alter_configs("users", {"cleanup.policy": "compact"})
        assert broker.cleaner.chooser.select() is None
    selected = broker.cleaner.chooser.select()
    assert selected is not None
    assert selected.log.topic_partition == USERS
    broker.cleaner.states.done(USERS)

    broker.cleaner.states.begin(USERS)
    with broker.manager.services.paused_if_idle(USERS) as taken:
        assert not taken, "in progress: retention skips it"
    broker.cleaner.states.done(USERS)
    broker.alter_configs("users", {"cleanup.policy": "delete"})
    with broker.manager.services.paused_if_idle(USERS) as taken:
        assert taken
    assert broker.cleaner.states.of(USERS) is None


# --- metrics ----------------------------------------------------------------------------------


def test_the_gauges_match_the_last_passes() -> None:
    broker = new_broker(log_cleaner_io_buffer_load_factor="0.000005")
    topic(broker, min_cleanable_dirty_ratio=0, max_compaction_lag_ms=HOUR_MS)
    broker.clock.advance(ms=1)
    for number in range(20):
        broker.append("users", value=b"v%d" % number, key=b"k%d" % (number % 5), partition=0)
    broker.clock.advance(ms=HOUR_MS + 5 * BACKOFF_MS)
    (worker,) = [thread.worker for thread in broker.pool._threads]
    last = worker.last_pass
    metrics = broker.metrics()
    assert last is not None
    assert metrics.cleaner_recopy_percent == 100 * last.bytes_written // last.bytes_read
    assert metrics.max_buffer_utilization_percent == int(100 * last.map_utilization)
    assert metrics.max_compaction_delay_secs <= BACKOFF_MS // 1000
    assert metrics.time_since_last_run_ms < BACKOFF_MS
    assert metrics.max_dirty_percent == 0, "nothing is left"
    assert metrics.uncleanable_partitions_count == {"/memory": 0}


def test_s212_max_dirty_percent_counts_logs_that_are_not_due() -> None:
    broker = new_broker()
    topic(broker, min_cleanable_dirty_ratio=1)
    topic(broker, "other", min_cleanable_dirty_ratio=1)
    assert broker.metrics().max_dirty_percent == 0
    fill(broker)
    broker.clock.advance(ms=BACKOFF_MS)
    assert broker.metrics().max_dirty_percent == 100
    broker.clean("users", force=True)
    fill(broker, count=3)
    log = broker.log("users")
    broker.clock.advance(ms=BACKOFF_MS)
    state = broker.cleaner.chooser.state_of(log)
    assert 0 < state.cleanable_ratio < 1
    assert broker.metrics().max_dirty_percent == int(100 * state.cleanable_ratio)


# --- in threads -------------------------------------------------------------------------------


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_threads_clean_dirty_logs(tmp_path) -> None:
    config = {"log.cleaner.threads": "2", "log.cleaner.backoff.ms": "10"}
    with Broker(tmp_path, clock=SystemClock(), background=True, broker_config=config) as broker:
        topic(broker, partitions=4, min_cleanable_dirty_ratio=0)
        for number in range(4):
            fill(broker, partition=number)
        eventually(lambda: all(len(offsets(broker, "users", n)) == 5 for n in range(4)))
        broker.alter_broker_configs({"log.cleaner.threads": 4})
        fill(broker)
        eventually(lambda: len(offsets(broker)) == 5)
        broker.manager.truncate_to(USERS, 5)
        broker.delete_topic("users")
        assert broker.metrics().dead_thread_count == 0


def test_an_abort_reaches_a_worker_that_is_asleep() -> None:
    """The waiting caller advances the time until the worker notices."""
    broker = new_broker()
    topic(broker)
    fill(broker)
    with slow(broker):
        broker.clock.advance(ms=HOUR_MS)
        before = broker.clock.now_ms()
        broker.cleaner.states.abort_and_pause(USERS)
        assert broker.clock.now_ms() - before <= HOUR_MS
    assert str(broker.cleaner.states.of(USERS)) == "paused(1)"


def test_segments_that_retention_removes_from_a_compacted_log_are_reported(caplog) -> None:
    caplog.set_level("INFO", "logstore.manager.housekeeping")
    broker = new_broker()
    topic(broker, cleanup_policy="compact,delete", retention_ms=HOUR_MS)
    fill(broker)
    broker.clock.advance(ms=2 * HOUR_MS)
    (told,) = [each.message for each in caplog.records if "deleted by" in each.message]
    assert told.startswith("users-0: segment 0 deleted by ")
    broker.close()


def test_followers_of_the_logs_are_notified_of_a_pass_once_the_partition_is_free() -> None:
    """A worker that skipped the log, because it was being cleaned, checks again."""
    with Broker(clock=VirtualClock()) as broker:
        topic(broker)
        fill(broker)
        heard: list[object] = []
        broker.cleaner.changed.subscribe(lambda: heard.append(broker.cleaner.states.of(USERS)))
        broker.clean("users", force=True)
        assert heard == [None]
