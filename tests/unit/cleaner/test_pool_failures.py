"""Failures during cleaning: the log becomes uncleanable, the cleaner continues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from logstore import Broker, TopicPartition, VirtualClock
from logstore.cleaner import choosing, manager
from logstore.cleaner.checkpoints import CleanerCheckpoints
from logstore.cleaner.passes import clean, rewrite
from logstore.cleaner.passes.build import MapBuild, SeedPass
from logstore.cleaner.states import IN_PROGRESS
from logstore.runtime import MemoryFileSystem, SystemClock
from logstore.storage.log import Log
from logstore.testing import FaultyFileSystem, SimulatedCrash
from tests.unit.cleaner.test_pool import (
    BACKOFF_MS,
    HOUR_MS,
    USERS,
    eventually,
    fill,
    offsets,
    slow,
    topic,
)

OTHERS = TopicPartition("others", 0)
LAST = TopicPartition("zebras", 0)


def open_broker(path: Path | None = None, **configs: object) -> Broker:
    clock = SystemClock() if path is not None else VirtualClock()
    return Broker(
        path,
        clock=clock,
        fs=None if path is not None else MemoryFileSystem(clock),
        seed=5,
        background=True,
        broker_config={key.replace("_", "."): value for key, value in configs.items()},
    )


@pytest.fixture(params=("virtual", "threads"))
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """Return a broker with one cleaner, in virtual time or in a thread."""
    path = tmp_path if request.param == "threads" else None
    with open_broker(path, **{"log.cleaner.backoff.ms": 10 if path else BACKOFF_MS}) as broker:
        yield broker


def until(broker: Broker, condition: Callable[[], bool]) -> None:
    """Let the cleaner work until a condition is true."""
    if isinstance(broker.clock, VirtualClock):
        broker.clock.advance(ms=3 * BACKOFF_MS)
        assert condition()
    else:
        eventually(condition)


def of_log(arguments: tuple[Any, ...]) -> Log | None:
    """Return the log of a call: an argument, or an attribute of its object."""
    for each in arguments:
        if isinstance(each, Log):
            return each
        if isinstance(found := getattr(each, "_log", None), Log):
            return found
    return None


def fails_for_users(monkeypatch: Any, owner: Any, name: str, error: Exception) -> None:
    """Make a function fail whenever it is called for one partition."""
    real = getattr(owner, name)

    def failing(*arguments: Any, **options: Any) -> Any:
        log = of_log(arguments)
        assert log is not None
        if log.topic_partition == USERS:
            raise error
        return real(*arguments, **options)

    monkeypatch.setattr(owner, name, failing)


STAGES: dict[str, tuple[Any, str]] = {
    "idle roll": (choosing, "idle_roll_ms"),
    "decision": (choosing, "decide"),
    "begin of a pass": (manager, "still_fits"),
    "map": (MapBuild, "steps"),
    "seed": (SeedPass, "_may_win"),
    "rewrite": (rewrite.Rewriter, "_filter"),
    "destination": (clean, "_create_destination"),
    "swap": (clean, "_swap"),
    "checkpoint": (CleanerCheckpoints, "write"),
    "retention": (Log, "delete_old_segments"),
}


def prepare(broker: Broker) -> None:
    """Make three logs due, each with a clean and a dirty section, while no cleaner runs."""
    broker.pool.stop()
    for tp in (OTHERS, USERS, LAST):
        topic(broker, tp.topic, compaction_strategy="timestamp", min_cleanable_dirty_ratio=0)
        fill(broker, tp.topic)
    broker.clean()
    for tp in (OTHERS, USERS, LAST):
        fill(broker, tp.topic)


def others_are_clean(broker: Broker) -> bool:
    return all(len(offsets(broker, tp.topic)) == 5 for tp in (OTHERS, LAST))


@pytest.mark.parametrize("stage", STAGES)
def test_an_unexpected_error_only_ends_the_cleaning_of_its_log(
    broker: Broker, monkeypatch, caplog, stage: str
) -> None:
    prepare(broker)
    fails_for_users(monkeypatch, *STAGES[stage], IndexError("index 7 is out of bounds"))
    broker.pool.start()
    until(broker, lambda: bool(broker.cleaner.uncleanable()) and others_are_clean(broker))
    (mark,) = broker.cleaner.uncleanable()
    assert mark.topic_partition == USERS
    assert mark.reason == "IndexError: index 7 is out of bounds"
    metrics = broker.metrics()
    assert metrics.dead_thread_count == 0
    assert list(metrics.uncleanable_partitions_count.values()) == [1]
    assert broker.cleaner.states.of(USERS) is None
    (record,) = [each for each in caplog.records if "is no longer cleaned" in each.message]
    assert record.exc_info is not None, "a defect is logged with its traceback"
    monkeypatch.undo()
    assert broker.cleaner.retry(USERS)
    until(broker, lambda: len(offsets(broker)) == 5)


@pytest.mark.parametrize("path", ("cleaner-offset-checkpoint", "00000000000000000020.log"))
def test_a_disk_that_fails_while_a_log_is_chosen_is_a_mark_and_a_gauge(path: str, caplog) -> None:
    """As in Kafka, the directory stays online, since appends still work."""
    clock = VirtualClock()
    fs = FaultyFileSystem(clock)
    broker = Broker(
        clock=clock, fs=fs, seed=5, background=True,
        broker_config={"log.cleaner.backoff.ms": BACKOFF_MS},
    )  # fmt: skip
    topic(broker, max_compaction_lag_ms=HOUR_MS)
    fill(broker)
    broker.clean("users")
    fill(broker)
    broker.pool.stop()
    fault = fs.fail("read", suffix=path)
    for segment in broker.log("users").segments:
        segment._rolling_based_timestamp = None  # as if not read yet
    broker.pool.start()
    clock.advance(ms=BACKOFF_MS)
    assert fault.hits
    (mark,) = broker.cleaner.uncleanable()
    assert "Input/output error" in mark.reason
    assert broker.metrics().uncleanable_partitions_count == {"/memory": 1}
    assert broker.metrics().uncleanable_bytes == {"/memory": 0}, "nobody can tell"
    assert broker.metrics().dead_thread_count == 0
    (record,) = [each for each in caplog.records if "is no longer cleaned" in each.message]
    assert record.levelname == "WARNING"
    assert record.exc_info is None
    broker.append("users", value=b"v", key=b"k", partition=0)


def test_a_log_that_is_deleted_while_it_is_looked_at_gets_no_mark(monkeypatch) -> None:
    """Nor does a new log of the same name."""
    broker = open_broker()
    broker.pool.stop()
    topic(broker)
    fill(broker)

    def decide(*_: object, **__: object) -> NoReturn:
        monkeypatch.undo()
        broker.delete_topic("users")
        topic(broker)
        fill(broker)
        raise IndexError("of a log that is gone")

    monkeypatch.setattr(choosing, "decide", decide)
    assert broker.cleaner.chooser.select() is None
    assert broker.cleaner.uncleanable() == ()
    selected = broker.cleaner.chooser.select()
    assert selected is not None
    assert selected.log is broker.log("users")


def test_a_failure_in_looking_ahead_makes_the_log_uncleanable_too(monkeypatch) -> None:
    """Only in virtual time, where rounds without work are skipped."""
    broker = open_broker()
    prepare(broker)
    real = choosing.next_change_ms

    def failing(log: Log, *arguments: Any, **options: Any) -> int | None:
        if log.topic_partition == USERS:
            raise IndexError("index 7 is out of bounds")
        return real(log, *arguments, **options)

    monkeypatch.setattr(choosing, "next_change_ms", failing)
    broker.pool.start()
    broker.clock.advance(ms=BACKOFF_MS)
    assert [mark.topic_partition for mark in broker.cleaner.uncleanable()] == [USERS]
    assert broker.metrics().dead_thread_count == 0
    fill(broker, "others")
    broker.clock.advance(ms=BACKOFF_MS)
    assert others_are_clean(broker)


def test_a_memory_too_small_for_a_strategy_stops_no_other_log(broker: Broker) -> None:
    """A command is refused; the pool skips that topic."""
    broker.pool.stop()
    topic(broker, compaction_strategy="timestamp")
    topic(broker, "others", min_cleanable_dirty_ratio=0)
    fill(broker)
    fill(broker, "others", keys=1)
    broker.cleaner.config = replace(broker.cleaner.config, dedupe_buffer_bytes=72)
    broker.pool.start()
    until(broker, lambda: len(offsets(broker, "others")) == 1)
    until(broker, lambda: bool(broker.cleaner.uncleanable()))
    (mark,) = broker.cleaner.uncleanable()
    assert mark.topic_partition == USERS
    assert "log.cleaner.dedupe.buffer.size" in mark.reason
    assert broker.metrics().dead_thread_count == 0


def test_a_failure_outside_of_logs_is_retried_after_the_back_off(
    broker: Broker, monkeypatch, caplog
) -> None:
    """Such as a user's listener, or the whole selection."""
    prepare(broker)
    calls: list[str] = []
    order = choosing.selection_order

    def listener(_: object) -> NoReturn:
        calls.append("listener")
        raise ValueError("a listener's own defect")

    def failing(*arguments: Any, **options: Any) -> Any:
        calls.append("order")
        if calls.count("order") == 1:
            raise RuntimeError("no order")
        return order(*arguments, **options)

    passes: list[object] = []
    broker.pool.pass_ended.subscribe(listener)
    broker.pool.pass_ended.subscribe(passes.append)
    monkeypatch.setattr(choosing, "selection_order", failing)
    broker.pool.start()
    until(broker, lambda: others_are_clean(broker) and len(offsets(broker)) == 5)
    until(broker, lambda: len(passes) == 3)  # a failing listener does not affect the others
    assert calls.count("listener") == 3
    assert broker.metrics().dead_thread_count == 0
    assert broker.cleaner.uncleanable() == ()
    for message, count in (("a round failed", 1), ("a listener of the end of a pass failed", 3)):
        failures = [each for each in caplog.records if message in each.message]
        assert len(failures) == count
        assert all(each.exc_info is not None for each in failures)


def test_a_crash_and_an_interrupt_go_through(monkeypatch) -> None:
    """They are not failures of a log: a simulated crash must end the worker."""
    broker = open_broker()
    topic(broker)
    fill(broker)

    def crash(*_: object, **__: object) -> NoReturn:
        raise SimulatedCrash

    monkeypatch.setattr(choosing, "decide", crash)
    with pytest.raises(SimulatedCrash):
        broker.clock.advance(ms=BACKOFF_MS)
    assert broker.metrics().dead_thread_count == 1
    assert broker.cleaner.uncleanable() == ()


# --- the checkpoint of a pass without a result ------------------------------------------------


@pytest.mark.parametrize("end", ("reconfiguration", "defect", "stop"))
def test_a_pass_without_output_stores_its_first_dirty_offset(monkeypatch, end: str) -> None:
    """As Kafka's `doneCleaning`, for every end of a pass except an abort."""
    broker = open_broker()
    topic(broker)
    fill(broker)
    assert broker.cleaner.checkpoints.of(USERS) is None
    with slow(broker):
        broker.clock.advance(ms=HOUR_MS)
        assert broker.cleaner.states.is_in_progress(USERS)
        if end == "reconfiguration":
            broker.alter_broker_configs({"log.cleaner.backoff.ms": 2 * HOUR_MS})
        elif end == "stop":
            broker.pool.stop()
        else:
            fails_for_users(monkeypatch, rewrite.Rewriter, "_filter", IndexError("7"))
            broker.clock.advance(ms=2 * HOUR_MS)
    assert broker.cleaner.states.of(USERS) in (None, IN_PROGRESS)
    assert broker.cleaner.checkpoints.of(USERS) == 0


def test_an_aborted_pass_leaves_the_checkpoint_to_the_aborting_caller() -> None:
    broker = open_broker()
    topic(broker)
    fill(broker)
    with slow(broker):
        broker.clock.advance(ms=HOUR_MS)
        broker.cleaner.states.abort(USERS)
    assert broker.cleaner.checkpoints.of(USERS) is None


def test_a_stop_continues_though_the_checkpoint_cannot_be_stored() -> None:
    clock = VirtualClock()
    fs = FaultyFileSystem(clock)
    broker = Broker(
        clock=clock, fs=fs, seed=5, background=True, broker_config={"log.cleaner.threads": 2}
    )
    for name in ("users", "others"):
        topic(broker, name)
        fill(broker, name)
    with slow(broker):
        clock.advance(ms=HOUR_MS)
        assert broker.cleaner.states.is_in_progress(USERS)
        assert broker.cleaner.states.is_in_progress(OTHERS)
        fs.fail("change", suffix="cleaner-offset-checkpoint.tmp")
        broker.pool.stop()
    assert broker.cleaner.states.of(USERS) is None
    assert broker.cleaner.states.of(OTHERS) is None
    assert not broker.manager.directories[0].is_online
