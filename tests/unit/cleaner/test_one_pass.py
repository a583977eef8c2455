"""How one pass ends, as a value: each way it can, what is to be stored, and nothing done of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from logstore import Broker, VirtualClock
from logstore.cleaner.errors import (
    CleaningAbortedError,
    OffsetMapFullError,
    OverflowedSegmentError,
)
from logstore.cleaner.one_pass import Ending, Outcome, one_pass
from logstore.errors import (
    CorruptRecordError,
    InvalidConfigurationError,
    InvalidOffsetError,
    KafkaStorageError,
    SegmentOverflowError,
    UnsupportedFormatError,
)
from logstore.testing import FaultyFileSystem
from tests.unit.cleaner.test_cleaner_manager import (
    USERS,
    damage,
    fill,
    new_broker,
    overflowed_broker,
    stored,
    topic,
)


def dirty_broker() -> Broker:
    """Return a broker whose log is clean up to offset 20, and dirty up to 40."""
    broker = new_broker()
    topic(broker)
    fill(broker)
    broker.clean("users")
    fill(broker)
    return broker


def nothing() -> None:
    pass


def ending(
    broker: Broker, check: Callable[[], None] = nothing, *, dry_run: bool = False
) -> Outcome:
    """Run a pass over the log as it is, and return what came of it."""
    log, cleaner = broker.log("users"), broker.cleaner
    steps = one_pass(
        log,
        cleaner.chooser.state_of(log),
        cleaner.config,
        lambda: cleaner.checkpoints.of(USERS),
        check,
        dry_run=dry_run,
    )
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


def raising(error: BaseException) -> Callable[[], None]:
    def check() -> None:
        raise error

    return check


def test_a_pass_that_finishes_has_numbers_and_the_offset_that_is_clean_now() -> None:
    broker = dirty_broker()
    outcome = ending(broker)
    assert outcome.ending is Ending.FINISHED
    assert outcome.stats is not None
    assert outcome.error is None
    assert outcome.checkpoint == outcome.stats.end_offset == 40
    assert stored(broker) == {USERS: 20}, "whoever runs it stores that"


def test_a_pass_over_what_is_no_longer_so_changes_nothing() -> None:
    broker = dirty_broker()
    log, cleaner = broker.log("users"), broker.cleaner
    state = cleaner.chooser.state_of(log)
    steps = one_pass(log, state, cleaner.config, lambda: 5, nothing)
    with pytest.raises(StopIteration) as done:
        next(steps)
    assert done.value.value == Outcome(Ending.OUTDATED)


@pytest.mark.parametrize(
    ("error", "expected", "checkpoint"),
    (
        (CleaningAbortedError("wanted"), Ending.ABORTED, None),
        (OffsetMapFullError("full"), Ending.MAP_FULL, None),
        (OverflowedSegmentError("too far", base_offset=0), Ending.OVERFLOWED, 20),
        (CorruptRecordError("damaged"), Ending.DAMAGED, 20),
        (UnsupportedFormatError("old"), Ending.DAMAGED, 20),
        (SegmentOverflowError("full"), Ending.DAMAGED, 20),
        (InvalidOffsetError("backwards"), Ending.DAMAGED, 20),
        (KafkaStorageError("offline"), Ending.DISK_FAILED, None),
        (InvalidConfigurationError("no room"), Ending.REFUSED, None),
        (IndexError("index 7 is out of bounds"), Ending.FAILED, 20),
    ),
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else "",
)
def test_what_is_raised_in_a_pass_becomes_its_ending(
    error: Exception, expected: Ending, checkpoint: int | None
) -> None:
    broker = dirty_broker()
    assert ending(broker, raising(error)) == Outcome(expected, None, error, checkpoint)
    assert not [n for n in broker.runtime.fs.list_dir("/memory/users-0") if "cleaned" in n]
    assert stored(broker) == {USERS: 20}
    assert broker.cleaner.uncleanable() == ()
    assert not broker.log("users").is_offline


def test_a_pass_that_did_not_begin_stores_nothing() -> None:
    broker = dirty_broker()
    log, cleaner = broker.log("users"), broker.cleaner
    error = IndexError("before it began")

    def checkpoint_of() -> int:
        raise error

    steps = one_pass(log, cleaner.chooser.state_of(log), cleaner.config, checkpoint_of, nothing)
    with pytest.raises(StopIteration) as done:
        next(steps)
    assert done.value.value == Outcome(Ending.FAILED, None, error, None)


@pytest.mark.parametrize("error", (KeyboardInterrupt, SystemExit))
def test_what_is_no_exception_goes_through(error: type[BaseException]) -> None:
    with pytest.raises(error):
        ending(dirty_broker(), raising(error()))


def test_damage_and_an_overflow_are_told_and_left_to_whoever_runs_the_pass() -> None:
    broker = new_broker()
    topic(broker)
    fill(broker)
    damage(broker)
    outcome = ending(broker)
    assert (outcome.ending, outcome.checkpoint) == (Ending.DAMAGED, 0)
    assert broker.cleaner.uncleanable() == ()
    broker = overflowed_broker()
    outcome = ending(broker)
    assert (outcome.ending, outcome.checkpoint) == (Ending.OVERFLOWED, 0)
    assert [each.base_offset for each in broker.log("users").segments] == [0, 2**40]


@pytest.mark.parametrize("dry_run", (False, True))
def test_a_failing_disk_takes_the_log_offline_unless_the_pass_only_rehearses(
    dry_run: bool,
) -> None:
    clock = VirtualClock()
    fs = FaultyFileSystem(clock)
    broker = Broker(clock=clock, fs=fs, seed=3)
    topic(broker)
    fill(broker)
    fs.fail("read", suffix="0.log")
    outcome = ending(broker, dry_run=dry_run)
    assert outcome.ending is Ending.DISK_FAILED
    assert isinstance(outcome.error, KafkaStorageError)
    assert str(outcome.error).startswith("users-0: cannot clean: ")
    assert outcome.checkpoint is None
    assert broker.log("users").is_offline is not dry_run
