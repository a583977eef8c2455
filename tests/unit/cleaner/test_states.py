"""Cleaning states: the transitions of Kafka's table, and waiting for the end of a cleaning pass."""

from __future__ import annotations

import threading

import pytest

from logstore.cleaner.errors import CleaningAbortedError, IllegalCleaningStateError
from logstore.cleaner.states import ABORTED, IN_PROGRESS, CleaningStates, paused
from logstore.runtime import Runtime, SystemClock, ThreadScheduler, VirtualClock
from logstore.types import TopicPartition
from tests.support.world.locks import GuardedDict, HeldLock

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


@pytest.fixture
def runtime():
    runtime = Runtime(VirtualClock())
    runtime.scheduler.start()
    yield runtime
    runtime.scheduler.shutdown()


@pytest.fixture
def states(runtime):
    states = CleaningStates(runtime)
    lock = states._lock = HeldLock(states._lock)
    states._states = GuardedDict(lock)
    return states


def test_s215_s216_done_without_a_state_or_when_paused_is_illegal(states):
    with pytest.raises(IllegalCleaningStateError, match=r"t-0.*none"):
        states.done(TP)
    states.abort_and_pause(TP)
    with pytest.raises(IllegalCleaningStateError, match=r"paused\(1\)"):
        states.done(TP)
    assert states.of(TP) == paused(1)


def test_s215_s216_done_in_progress_leaves_no_state(states):
    assert states.begin(TP)
    assert states.of(TP) == IN_PROGRESS
    assert states.done(TP)
    assert states.of(TP) is None


def test_s215_s216_done_when_aborted_pauses_and_stores_nothing(states, runtime):
    states.begin(TP)
    runtime.scheduler.schedule("cleaner", lambda: finish(states))
    states.abort_and_pause(TP)
    assert states.of(TP) == paused(1)
    assert stored == [False]


stored: list[bool] = []


def finish(states):
    stored[:] = [states.done(TP)]


def test_s217_an_abort_waits_until_the_cleaning_notices(states, runtime):
    """The worker notices at its next chunk; afterwards the log can be chosen again."""
    states.begin(TP)
    told = []

    def chunk():
        try:
            states.check_not_aborted(TP)
        except CleaningAbortedError:
            told.append("noticed")
            states.done(TP)
        else:
            runtime.scheduler.schedule("chunk", chunk, delay_ms=5)

    runtime.scheduler.schedule("chunk", chunk)
    states.abort_and_pause(TP)
    assert told == ["noticed"]
    assert not states.begin(TP)
    states.resume(TP)
    assert states.begin(TP)


def test_s217_an_abort_waits_for_another_thread():
    runtime = Runtime(SystemClock(), scheduler=ThreadScheduler(SystemClock()))
    states = CleaningStates(runtime)
    states.begin(TP)
    aborted = threading.Thread(target=states.abort_and_pause, args=(TP,))
    aborted.start()
    assert runtime.scheduler.wait_until(lambda: states.of(TP) == ABORTED, timeout_ms=60_000)
    assert aborted.is_alive()
    assert states.is_claimed(TP), "the aborted cleaning still runs"
    states.done(TP)
    assert not states.is_claimed(TP)
    aborted.join(60)
    assert not aborted.is_alive()
    assert states.of(TP) == paused(1)


@pytest.mark.parametrize("ends", (False, True), ids=("it goes on", "it has just ended"))
def test_an_interrupted_pause_leaves_nothing_paused(states, runtime, monkeypatch, ends):
    def interrupted(_):
        if ends:
            states.done(TP)
        raise KeyboardInterrupt

    states.begin(TP)
    monkeypatch.setattr(runtime.scheduler, "wait_until", interrupted)
    with pytest.raises(KeyboardInterrupt):
        states.abort_and_pause(TP)
    assert states.of(TP) == (None if ends else IN_PROGRESS)


def test_s218_a_second_abort_at_the_same_time_is_illegal(states, runtime):
    states.begin(TP)

    def second():
        with pytest.raises(IllegalCleaningStateError, match="aborted"):
            states.abort_and_pause(TP)
        assert states.of(TP) == ABORTED, "the first abort is still waiting"
        states.done(TP)

    task = runtime.scheduler.schedule("second", second)
    states.abort_and_pause(TP)
    assert (task.runs, task.failures) == (1, 0)
    assert states.of(TP) == paused(1)


def test_s219_pauses_are_counted(states):
    """Retention pauses a log of policy `delete`; truncation and deletion pause it concurrently."""
    assert states.pause_idle([TP, OTHER]) == [TP, OTHER]
    states.abort_and_pause(TP)
    assert states.of(TP) == paused(2)
    states.resume(TP)
    states.abort(TP)
    assert states.of(TP) == paused(1)
    assert states.pause_idle([TP]) == []
    for each in (TP, OTHER):
        states.resume(each)
        assert states.of(each) is None
    with pytest.raises(IllegalCleaningStateError, match="resume t-0"):
        states.resume(TP)


def test_a_claimed_partition_cannot_be_claimed_again(states):
    states.begin(TP)
    assert not states.begin(TP)
    assert states.pause_idle([TP]) == []
    with pytest.raises(IllegalCleaningStateError):
        states.resume(TP)
    states.forget(TP)
    assert states.begin(TP)


def test_an_undisturbed_cleaning_is_not_aborted(states):
    states.check_not_aborted(TP)
    states.begin(TP)
    states.check_not_aborted(TP)


def test_after_a_stop_nothing_is_begun(states):
    states.stop()
    assert not states.begin(TP)
    assert states.of(TP) is None


def test_a_removed_partition_loses_the_pause_of_the_caller_that_removed_it(states):
    for _ in range(3):
        states.abort_and_pause(TP)
    states.forget(TP)
    assert states.of(TP) == paused(2)
    states.forget(TP)
    assert states.of(TP) == paused(1)
    states.forget(TP)
    states.forget(TP)
    assert states.of(TP) is None


@pytest.mark.parametrize(
    ("begin", "use", "message"),
    (
        (lambda s: None, lambda s: s.resume(TP), "cannot resume t-0, whose cleaning state is none"),
        (
            lambda s: None,
            lambda s: s.done(TP),
            "cannot done with t-0, whose cleaning state is none",
        ),
        (lambda s: s.begin(TP), lambda s: s.resume(TP), None),
        (lambda s: s.abort_and_pause(TP), lambda s: s.done(TP), None),
    ),
)
def test_illegal_operations_change_nothing(states, begin, use, message):
    begin(states)
    before = states.of(TP)
    with pytest.raises(IllegalCleaningStateError) as info:
        use(states)
    assert states.of(TP) == before
    if message is None:
        what = "resume" if before == IN_PROGRESS else "done with"
        message = f"cannot {what} t-0, whose cleaning state is {before}"
    assert str(info.value) == message
