"""The results of a pass of the manager, and the checkpoint that each one stores."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from logstore import Broker, TopicPartition, VirtualClock
from logstore.cleaner.checkpoints import CleanerCheckpoints
from logstore.cleaner.errors import (
    CleaningAbortedError,
    OffsetMapFullError,
    OverflowedSegmentError,
)
from logstore.cleaner.selection import Gate
from logstore.cleaner.stats import CleanerStats
from logstore.errors import (
    CorruptRecordError,
    InvalidConfigurationError,
    InvalidOffsetError,
    KafkaStorageError,
    SegmentOverflowError,
    UnsupportedFormatError,
)
from logstore.storage.log.log import Log
from logstore.testing import FaultyFileSystem
from tests.support.world.brokers import cleaner_checkpoint, fill
from tests.unit.cleaner.test_cleaner_manager import (
    USERS,
    damage,
    new_broker,
    overflowed_broker,
    topic,
)


def dirty_broker() -> Broker:
    """Return a broker whose log is clean below offset 20 and dirty below 40."""
    broker = new_broker()
    topic(broker)
    fill(broker)
    broker.clean("users")
    fill(broker)
    return broker


def run(broker: Broker, *, dry_run: bool = False) -> CleanerStats | Gate | None:
    """Run a pass over the current log."""
    log, cleaner = broker.log("users"), broker.cleaner
    return cleaner.clean(log, cleaner.chooser.state_of(log), dry_run=dry_run)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which written checkpoints are appended."""
    offsets: list[int] = []
    write = CleanerCheckpoints.write

    def record(self: CleanerCheckpoints, log: Log, first_dirty_offset: int) -> None:
        offsets.append(first_dirty_offset)
        write(self, log, first_dirty_offset)

    monkeypatch.setattr(CleanerCheckpoints, "write", record)
    return offsets


def fail(broker: Broker, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Make each later pass fail after its first chunk."""

    def check(*_: object) -> None:
        raise error

    monkeypatch.setattr(broker.cleaner, "_check_wanted", check)


def test_a_pass_that_finishes_returns_its_statistics_and_stores_its_end() -> None:
    broker = dirty_broker()
    result = run(broker)
    assert isinstance(result, CleanerStats)
    assert result.end_offset == 40
    assert cleaner_checkpoint(broker) == {USERS: 40}


def test_a_dry_run_returns_statistics_and_stores_nothing() -> None:
    broker = dirty_broker()
    result = run(broker, dry_run=True)
    assert isinstance(result, CleanerStats)
    assert result.end_offset == 40
    assert cleaner_checkpoint(broker) == {USERS: 20}


def test_a_pass_over_an_outdated_measurement_changes_nothing(written: list[int]) -> None:
    broker = dirty_broker()
    log, cleaner = broker.log("users"), broker.cleaner
    state = cleaner.chooser.state_of(log)._replace(first_dirty_offset=5)
    written.clear()
    assert cleaner.clean(log, state) is None
    assert written == []


@pytest.mark.parametrize(
    ("error", "gate", "checkpoint"),
    (
        (CleaningAbortedError("wanted"), "paused", []),
        (OffsetMapFullError("full"), "offset_map", []),
        (OverflowedSegmentError("too far", base_offset=1), None, [20]),
        (CorruptRecordError("damaged"), "uncleanable", [20]),
        (UnsupportedFormatError("old"), "uncleanable", [20]),
        (SegmentOverflowError("full"), "uncleanable", [20]),
        (InvalidOffsetError("backwards"), "uncleanable", [20]),
    ),
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else "",
)
def test_an_error_in_a_pass_closes_a_gate(
    error: Exception,
    gate: str | None,
    checkpoint: list[int],
    written: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = dirty_broker()
    written.clear()
    fail(broker, monkeypatch, error)
    result = run(broker)
    if gate is None:
        assert result is None
    else:
        assert result == Gate.closed_by(gate, str(error))
    assert written == checkpoint
    assert_only_this_partition_is_affected(broker)
    reasons = [each.reason for each in broker.cleaner.uncleanable()]
    assert reasons == ([str(error)] if gate == "uncleanable" else [])


@pytest.mark.parametrize(
    ("error", "checkpoint"),
    (
        (KafkaStorageError("offline"), []),
        (InvalidConfigurationError("no room"), []),
        (IndexError("index 7 is out of bounds"), [20]),
        (KeyboardInterrupt(), []),
        (SystemExit(), []),
    ),
    ids=lambda each: type(each).__name__ if isinstance(each, BaseException) else "",
)
def test_other_errors_are_raised(
    error: BaseException,
    checkpoint: list[int],
    written: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = dirty_broker()
    written.clear()
    fail(broker, monkeypatch, error)
    with pytest.raises(type(error)) as raised:
        run(broker)
    assert raised.value is error
    assert written == checkpoint
    assert_only_this_partition_is_affected(broker)
    assert broker.cleaner.uncleanable() == ()


def assert_only_this_partition_is_affected(broker: Broker) -> None:
    assert not [n for n in broker.runtime.fs.list_dir("/memory/users-0") if "cleaned" in n]
    assert broker.cleaner.states.of(USERS) is None
    assert not broker.cleaner.under_way
    assert not broker.log("users").is_offline


def test_a_pass_that_is_closed_stores_its_first_dirty_offset(written: list[int]) -> None:
    broker = dirty_broker()
    written.clear()
    log, cleaner = broker.log("users"), broker.cleaner
    with closing(cleaner.run_pass(log, cleaner.chooser.state_of(log))) as steps:
        next(steps)
    assert written == [20]
    assert_only_this_partition_is_affected(broker)


@pytest.mark.parametrize("dry_run", (False, True))
def test_a_pass_shows_its_step_unless_it_is_a_dry_run(*, dry_run: bool) -> None:
    broker = dirty_broker()
    log, cleaner = broker.log("users"), broker.cleaner
    with closing(cleaner.run_pass(log, cleaner.chooser.state_of(log), dry_run=dry_run)) as steps:
        for step in steps:
            assert cleaner.under_way == ({} if dry_run else {USERS: step})
    assert_only_this_partition_is_affected(broker)


def test_the_log_is_locked_while_a_pass_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = dirty_broker()
    log, cleaner = broker.log("users"), broker.cleaner
    state = cleaner.chooser.state_of(log)
    of, was_locked = cleaner.checkpoints.of, []

    def try_to_lock() -> bool:
        if not log.lock.acquire(blocking=False):
            return False
        log.lock.release()
        return True

    def read(topic_partition: TopicPartition) -> int | None:
        with ThreadPoolExecutor(1) as thread:
            was_locked.append(not thread.submit(try_to_lock).result())
        return of(topic_partition)

    monkeypatch.setattr(cleaner.checkpoints, "of", read)
    assert isinstance(cleaner.clean(log, state), CleanerStats)
    assert was_locked == [True]


def test_a_pass_that_did_not_begin_stores_nothing(
    written: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = dirty_broker()
    written.clear()
    log, cleaner = broker.log("users"), broker.cleaner
    state = cleaner.chooser.state_of(log)
    error = IndexError("before it began")

    def fail_to_read(*_: object) -> int:
        raise error

    monkeypatch.setattr(cleaner.checkpoints, "of", fail_to_read)
    with pytest.raises(IndexError) as raised:
        cleaner.clean(log, state)
    assert raised.value is error
    assert written == []


def test_damage_makes_the_partition_uncleanable_and_an_overflow_splits_its_segment() -> None:
    broker = new_broker()
    topic(broker)
    fill(broker)
    damage(broker)
    result = run(broker)
    assert isinstance(result, Gate)
    assert result.gate == "uncleanable"
    assert [each.topic_partition for each in broker.cleaner.uncleanable()] == [USERS]
    assert cleaner_checkpoint(broker) == {USERS: 0}
    broker = overflowed_broker()
    assert run(broker) is None
    assert [each.base_offset for each in broker.log("users").segments] == [0, 2**31, 2**40]
    assert cleaner_checkpoint(broker) == {USERS: 0}


def test_a_dry_run_neither_marks_nor_splits() -> None:
    broker = new_broker()
    topic(broker)
    fill(broker)
    damage(broker)
    result = run(broker, dry_run=True)
    assert isinstance(result, Gate)
    assert result.gate == "uncleanable"
    assert broker.cleaner.uncleanable() == ()
    broker = overflowed_broker()
    assert isinstance(run(broker, dry_run=True), Gate)
    assert [each.base_offset for each in broker.log("users").segments] == [0, 2**40]


@pytest.mark.parametrize("dry_run", (False, True))
def test_a_disk_failure_takes_the_log_offline_unless_it_is_a_dry_run(
    dry_run: bool, written: list[int]
) -> None:
    clock = VirtualClock()
    fs = FaultyFileSystem(clock)
    broker = Broker(clock=clock, fs=fs, seed=3)
    topic(broker)
    fill(broker)
    fs.fail("read", suffix="0.log")
    with pytest.raises(KafkaStorageError, match=r"^users-0: cannot clean: "):
        run(broker, dry_run=dry_run)
    assert written == []
    assert broker.log("users").is_offline is not dry_run
