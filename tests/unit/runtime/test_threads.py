"""ThreadScheduler: the shared suite, then what only threads do.

Threads meet at events and barriers, whose timeouts only end a test that has failed.
"""

import logging
import threading
from contextlib import contextmanager

import pytest

from logstore.runtime import FixedWallClock, SystemClock, ThreadScheduler, VirtualClock, threads
from logstore.runtime.deterministic import DeterministicScheduler
from logstore.runtime.threads import PacedScheduler
from tests.support.world.messages import exactly
from tests.support.world.scheduler_suite import (
    MS,
    Bench,
    OneAtATime,
    SchedulerSuite,
    Stop,
    WaitingTasks,
)

LONG_S = 60
HOUR_MS = 3_600_000


others = set()
"""Threads that were there before the test: not ours to count."""


def own_threads():
    return [
        thread
        for thread in threading.enumerate()
        if thread.name.startswith("logstore-") and thread not in others
    ]


@pytest.fixture(autouse=True)
def _leave_no_thread_behind():
    others.clear()
    others.update(threading.enumerate())
    yield
    for thread in own_threads():  # those that were no longer needed may still be ending
        thread.join(LONG_S)
    assert own_threads() == []


@contextmanager
def running(clock, scheduler=None, **options):
    scheduler = scheduler or ThreadScheduler(clock, **options)
    scheduler.start()
    try:
        yield Bench(scheduler, clock)
    finally:
        scheduler.shutdown()


class TestThreads(SchedulerSuite, WaitingTasks):
    @pytest.fixture
    def bench(self):
        with running(SystemClock()) as bench:
            yield bench


class TestOneThread(SchedulerSuite, OneAtATime):
    @pytest.fixture
    def bench(self):
        with running(SystemClock(), threads=1) as bench:
            yield bench


class TestThreadsAtAFixedWallTime(SchedulerSuite, WaitingTasks):
    @pytest.fixture
    def bench(self):
        with running(FixedWallClock(1_700_000_000_000), threads=3) as bench:
            yield bench


class TestThreadsNextToAVirtualClock(SchedulerSuite, WaitingTasks):
    @pytest.fixture
    def bench(self):
        with running(SystemClock(), PacedScheduler(VirtualClock())) as bench:
            yield bench


@pytest.fixture
def scheduler():
    with running(SystemClock(), threads=3) as bench:
        yield bench.scheduler


class Gate:
    """An action that says when it has begun and ends when it is let go."""

    def __init__(self):
        self.begun, self.open = threading.Event(), threading.Event()

    def __call__(self):
        self.begun.set()
        assert self.open.wait(LONG_S)


# --- threads ------------------------------------------------------------------------------------


def test_threads_are_made_when_they_are_needed(scheduler):
    assert own_threads() == []
    tasks = [scheduler.schedule("later", lambda: None, delay_ms=HOUR_MS) for _ in range(20)]
    assert len(own_threads()) == 1
    gates = [Gate(), Gate()]
    for gate in gates:
        scheduler.schedule("gate", gate)
    for gate in gates:
        assert gate.begun.wait(LONG_S)
    assert len(own_threads()) == 3  # two that run, one that minds the hour
    for gate in gates:
        gate.open.set()
    assert scheduler.wait_until(lambda: len(own_threads()) == 1, timeout_ms=LONG_S * 1000)
    assert all(task.runs == 0 for task in tasks)


def test_as_many_tasks_run_at_the_same_time_as_there_are_threads(scheduler):
    together = threading.Barrier(3)
    meeting = [scheduler.schedule("meet", lambda: together.wait(LONG_S)) for _ in range(3)]
    assert scheduler.wait_until(lambda: all(task.runs for task in meeting), timeout_ms=60_000)
    assert [task.failures for task in meeting] == [0, 0, 0]
    gates = [Gate(), Gate(), Gate()]
    for gate in gates:
        scheduler.schedule("gate", gate)
    fourth = scheduler.schedule("fourth", lambda: None)
    for gate in gates:
        assert gate.begun.wait(LONG_S)
    # Those of before that were not needed any longer may still be ending.
    assert scheduler.wait_until(lambda: len(own_threads()) == 3, timeout_ms=60_000)
    assert fourth.runs == 0
    gates[1].open.set()
    assert scheduler.wait_until(lambda: fourth.runs == 1, timeout_ms=60_000)
    for gate in gates:
        gate.open.set()


def test_threads_are_daemons_that_have_the_name_of_their_task(scheduler):
    seen = []
    task = scheduler.schedule("kafka-log-flusher", lambda: seen.append(threading.current_thread()))
    scheduler.schedule("later", lambda: None, delay_ms=HOUR_MS)
    assert scheduler.wait_until(lambda: task.runs == 1, timeout_ms=60_000)
    (thread,) = seen
    names = []
    task = scheduler.schedule("kafka-log-retention", lambda: names.append(thread_name()))
    assert scheduler.wait_until(lambda: task.runs == 1, timeout_ms=60_000)
    assert names == ["logstore-kafka-log-retention"]
    assert thread.daemon
    assert scheduler.wait_until(
        lambda: (
            [each.name[: len("logstore-scheduler-")] for each in own_threads()]
            == ["logstore-scheduler-"]
        ),
        timeout_ms=60_000,
    )


def thread_name():
    return threading.current_thread().name


def test_a_task_that_is_due_earlier_wakes_the_thread_that_waits_for_a_later_one(scheduler):
    scheduler.schedule("later", lambda: None, delay_ms=HOUR_MS)
    task = scheduler.schedule("now", lambda: None)
    assert scheduler.wait_until(lambda: task.runs == 1, timeout_ms=60_000)


def test_a_thread_that_ends_hands_the_next_due_task_to_the_one_that_waits():
    """One idle thread waits for the hour; a busy one queues its own period again and leaves."""
    with running(SystemClock(), threads=2) as bench:
        gate = Gate()
        ticking = bench.scheduler.schedule("tick", gate, period_ms=1)
        assert gate.begun.wait(LONG_S)
        bench.scheduler.schedule("later", lambda: None, delay_ms=HOUR_MS)
        gate.open.set()
        bench.reach(lambda: ticking.runs >= 5)


def test_an_idle_thread_sleeps_until_the_next_task_is_due(monkeypatch):
    scheduler = ThreadScheduler(SystemClock())
    waits = []
    asleep = threading.Event()
    wait = scheduler._wakeup.wait

    def spy(seconds):
        waits.append(seconds)
        asleep.set()
        return wait(seconds)

    monkeypatch.setattr(scheduler._wakeup, "wait", spy)
    scheduler.start()
    scheduler.schedule("later", lambda: None, delay_ms=HOUR_MS)
    assert asleep.wait(LONG_S)
    scheduler.shutdown()
    assert len(waits) == 1
    assert 3600 - LONG_S < waits[0] <= 3600


class HandClock(SystemClock):
    """Monotonic time that the test moves; waits for it look again every few milliseconds."""

    def __init__(self):
        self.now_ns = 0

    def monotonic_ns(self):
        return self.now_ns


def test_a_late_periodic_task_makes_up_for_what_it_missed_with_one_run():
    """With one thread, tasks due before the mark have run before it."""
    clock = HandClock()
    with running(clock, threads=1) as bench:
        gate = Gate()
        task = bench.scheduler.schedule("tick", gate, period_ms=10)
        assert gate.begun.wait(LONG_S)
        clock.now_ns = 35 * MS
        gate.open.set()
        mark = bench.scheduler.schedule("mark", lambda: None)
        assert bench.scheduler.wait_until(lambda: mark.runs == 1)
        assert task.runs == 2  # due at 0, and one for 10, 20 and 30
        clock.now_ns = 40 * MS
        assert bench.scheduler.wait_until(lambda: task.runs == 3)


def test_when_no_more_threads_can_be_had_those_there_are_do_the_work(
    scheduler, monkeypatch, caplog
):
    gate = Gate()
    scheduler.schedule("gate", gate)
    assert gate.begun.wait(LONG_S)

    def refuse(_thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(threading.Thread, "start", refuse)
        task = scheduler.schedule("late", lambda: None)
    assert "1 threads" in caplog.text
    gate.open.set()
    assert scheduler.wait_until(lambda: task.runs == 1, timeout_ms=60_000)


def test_without_any_thread_scheduling_fails(scheduler, monkeypatch):
    def refuse(_thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            scheduler.schedule("first", lambda: None)


def test_virtual_time_and_no_threads_are_refused():
    with pytest.raises(
        ValueError,
        match=exactly("virtual time requires a single thread: use a DeterministicScheduler"),
    ):
        ThreadScheduler(VirtualClock())
    with pytest.raises(ValueError, match="0 threads"):
        ThreadScheduler(SystemClock(), threads=0)


# --- stopping -----------------------------------------------------------------------------------


def test_shutdown_waits_for_what_is_running_and_begins_nothing(scheduler):
    order = []
    gate = Gate()

    def work():
        gate()
        order.append("task ended")

    task = scheduler.schedule("work", work, period_ms=1)
    waiting = scheduler.schedule("waiting", lambda: None, delay_ms=HOUR_MS)
    assert gate.begun.wait(LONG_S)

    def stop():
        scheduler.shutdown()
        order.append("shutdown returned")

    stoppers = [threading.Thread(target=stop) for _ in range(2)]
    for stopper in stoppers:
        stopper.start()
    assert scheduler.wait_until(lambda: not scheduler.is_started, timeout_ms=60_000)
    assert task.is_running
    assert waiting.cancelled
    assert order == []
    gate.open.set()
    for stopper in stoppers:
        stopper.join(LONG_S)
    assert order == ["task ended", "shutdown returned", "shutdown returned"]
    assert (task.runs, waiting.runs) == (1, 0)


def test_two_tasks_may_shut_down_at_the_same_time(scheduler):
    together = threading.Barrier(2)

    def stop():
        together.wait(LONG_S)
        scheduler.shutdown()

    tasks = [scheduler.schedule("stop", stop) for _ in range(2)]
    assert scheduler.wait_until(lambda: all(task.runs == 1 for task in tasks), timeout_ms=60_000)
    assert [task.failures for task in tasks] == [0, 0]


def test_a_scheduler_started_again_during_a_run_of_before_continues(scheduler):
    gate = Gate()

    def stop():
        scheduler.shutdown()
        gate()

    stopping = scheduler.schedule("stop", stop, period_ms=1)
    assert gate.begun.wait(LONG_S)
    scheduler.start()
    task = scheduler.schedule("tick", lambda: None, period_ms=1)
    assert scheduler.wait_until(lambda: task.runs >= 2, timeout_ms=60_000)
    gate.open.set()
    assert scheduler.wait_until(lambda: stopping.runs == 1, timeout_ms=60_000)
    assert not stopping.is_running


# --- waiting ------------------------------------------------------------------------------------


@pytest.fixture
def only_notices(monkeypatch):
    """Nobody looks by himself within the time of the test."""
    monkeypatch.setattr(threads, "POLL_MS", 10 * LONG_S * 1000)


@pytest.mark.usefixtures("only_notices")
def test_a_notification_wakes_waiting_threads(scheduler):
    asked, told = threading.Semaphore(0), threading.Event()

    def predicate():
        asked.release()
        return told.is_set()

    results = []
    waiters = [
        threading.Thread(target=lambda: results.append(scheduler.wait_until(predicate)))
        for _ in range(2)
    ]
    for waiter in waiters:
        waiter.start()
        assert asked.acquire(timeout=LONG_S)
    told.set()
    scheduler.notify()
    for waiter in waiters:
        waiter.join(LONG_S)
    assert results == [True, True]


@pytest.mark.usefixtures("only_notices")
def test_the_end_of_a_task_wakes_waiting_threads(scheduler):
    task = scheduler.schedule("work", lambda: None, delay_ms=5)
    assert scheduler.wait_until(lambda: task.runs == 1)
    task = scheduler.schedule("work", lambda: 1 / 0, delay_ms=5)
    assert scheduler.wait_until(lambda: task.runs == 1)


@pytest.mark.usefixtures("only_notices")
def test_a_notice_between_asking_and_waiting_is_not_lost(scheduler):
    answers = [False, False, True]

    def predicate():
        scheduler.notify()  # as another thread might, just after the answer was found
        return answers.pop(0)

    assert scheduler.wait_until(predicate)
    assert answers == []


def test_waiting_threads_poll_periodically(scheduler):
    told = threading.Event()
    asked = threading.Event()

    def predicate():
        asked.set()
        return told.is_set()

    def tell():
        assert asked.wait(LONG_S)
        told.set()

    teller = threading.Thread(target=tell)
    teller.start()
    assert scheduler.wait_until(predicate)
    teller.join()


def test_a_predicate_may_take_a_lock_that_a_notifier_holds(scheduler):
    """It is asked without a lock held, or the two would wait for each other."""
    lock = threading.RLock()
    state = []
    asked = threading.Event()

    def predicate():
        asked.set()
        with lock:
            return bool(state)

    def work():
        assert asked.wait(LONG_S)
        with lock:
            scheduler.notify()
            state.append(1)

    worker = threading.Thread(target=work)
    worker.start()
    assert scheduler.wait_until(predicate, timeout_ms=LONG_S * 1000)
    worker.join()


# --- errors that nobody may overlook ------------------------------------------------------------


@pytest.mark.parametrize("error", (AssertionError("broken"), Stop("crash")))
def test_a_broken_invariant_or_a_crash_goes_to_the_hook_for_threads(scheduler, monkeypatch, error):
    hooked = []
    monkeypatch.setattr(threading, "excepthook", hooked.append)

    def action(task):
        if task.runs == 0:
            raise error

    task = Bench(scheduler, SystemClock()).schedule_with_task(
        "broken", action, delay_ms=1, period_ms=1
    )
    assert scheduler.wait_until(lambda: task.runs >= 3, timeout_ms=60_000)
    assert (task.failures, task.last_error) == (1, error)
    (arguments,) = hooked
    assert (arguments.exc_type, arguments.exc_value) == (type(error), error)


def test_a_hook_that_fails_costs_a_thread_but_no_task(monkeypatch):
    calls = []

    def hook(arguments):
        calls.append(arguments.exc_value)
        if len(calls) == 1:
            raise ValueError("hook")

    monkeypatch.setattr(threading, "excepthook", hook)
    with running(SystemClock(), threads=1) as bench:

        def action():
            raise AssertionError("broken")

        bench.scheduler.schedule("broken", action)
        # Python reports the hook's own error through the hook again.
        bench.reach(lambda: len(calls) == 2 and not own_threads())
        assert isinstance(calls[1], ValueError)
        bench.let_pass(1)


# --- jobs ---------------------------------------------------------------------------------------


def test_jobs_run_concurrently_on_separate_threads(scheduler):
    together = threading.Barrier(3)
    names = set()

    def job():
        names.add(thread_name())
        return together.wait(LONG_S)

    assert sorted(scheduler.run_all([job] * 3, threads=3)) == [0, 1, 2]
    assert names == {"logstore-job-0", "logstore-job-1", "logstore-job-2"}
    assert own_threads() == []


def test_no_more_jobs_run_at_the_same_time_than_asked(scheduler):
    lock = threading.Lock()
    inside, most = 0, 0
    pairs = threading.Barrier(2)

    def job():
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        pairs.wait(LONG_S)  # two at least
        with lock:
            inside -= 1

    assert scheduler.run_all([job] * 20, threads=2) == [None] * 20
    assert most == 2


def test_one_thread_of_jobs_is_the_callers(scheduler):
    assert scheduler.run_all([thread_name] * 3, threads=1) == [thread_name()] * 3
    assert scheduler.run_all([thread_name], threads=5) == [thread_name()]


def test_an_error_that_is_raised_waits_for_the_jobs_that_were_begun(scheduler):
    both = threading.Barrier(2)
    ended = []

    def fail():
        both.wait(LONG_S)
        raise Stop("crash")

    def work():
        both.wait(LONG_S)
        ended.append(True)

    with pytest.raises(Stop):
        scheduler.run_all([fail, work], threads=2)
    assert ended == [True]


# --- many at once -------------------------------------------------------------------------------


def test_threads_may_schedule_and_cancel_at_the_same_time(scheduler):
    started = threading.Barrier(4)
    kept, cancelled = [], []

    def work(number):
        started.wait(LONG_S)
        for count in range(100):
            task = scheduler.schedule(
                f"task {number}-{count}",
                lambda: None,
                delay_ms=count % 7,
                period_ms=None if count % 3 else 2,
            )
            if count % 3 == 0 or count % 5 == 0:
                task.cancel()
                cancelled.append(task)
            else:
                kept.append(task)
            if count % 20 == 0:
                scheduler._check()

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(LONG_S)
    assert scheduler.wait_until(lambda: all(task.runs == 1 for task in kept), timeout_ms=60_000)
    assert scheduler.wait_until(lambda: not any(t.is_running for t in cancelled), timeout_ms=60_000)
    scheduler._check()
    assert scheduler.next_due_ns() is None
    assert all(task.failures == 0 for task in (*kept, *cancelled))


# --- next to a virtual clock -------------------------------------------------------------------


@pytest.fixture
def paced():
    clock = VirtualClock()
    with running(clock, PacedScheduler(clock)) as bench:
        yield bench


def test_a_wait_that_times_out_leaves_the_virtual_clock_at_its_end(paced):
    scheduler, clock = paced
    before = clock.monotonic_ns()
    assert not scheduler.wait_until(lambda: False, timeout_ms=20)
    assert clock.monotonic_ns() - before == 20 * MS


def test_the_virtual_clock_moves_no_further_than_the_system_clock(paced):
    scheduler, clock = paced
    done = threading.Event()
    scheduler.schedule("sender", done.set, delay_ms=5)
    before, real_before = clock.monotonic_ns(), SystemClock().monotonic_ns()
    assert scheduler.wait_until(done.is_set, timeout_ms=HOUR_MS)
    passed_ns = SystemClock().monotonic_ns() - real_before
    assert 0 < clock.monotonic_ns() - before <= passed_ns


def test_a_predicate_that_holds_costs_no_virtual_time(paced):
    scheduler, clock = paced
    before = clock.monotonic_ns()
    assert scheduler.wait_until(lambda: True, timeout_ms=HOUR_MS)
    assert clock.monotonic_ns() == before


def test_tasks_of_the_virtual_clock_run_in_the_thread_that_waits(paced):
    scheduler, clock = paced
    virtual = DeterministicScheduler(clock)
    virtual.start()
    runs = []
    before = clock.monotonic_ns()
    for delay_ms in (3, 5, HOUR_MS):
        virtual.schedule(
            "linger",
            lambda: runs.append((threading.current_thread(), clock.monotonic_ns() - before)),
            delay_ms=delay_ms,
        )
    assert scheduler.wait_until(lambda: len(runs) == 2, timeout_ms=HOUR_MS)
    here = threading.current_thread()
    assert runs == [(here, 3 * MS), (here, 5 * MS)]
    assert clock.monotonic_ns() - before == 5 * MS, "the wait ends at the time of its condition"
    virtual.shutdown()


def test_a_jump_of_the_virtual_clock_ends_a_wait(paced):
    scheduler, clock = paced
    scheduler.schedule("jump", lambda: clock.advance(ms=HOUR_MS), delay_ms=5)
    assert not scheduler.wait_until(lambda: False, timeout_ms=HOUR_MS)


def test_a_wait_pauses_no_longer_than_to_its_end_or_to_the_next_task(paced, monkeypatch):
    scheduler, clock = paced
    pauses = []
    pause = scheduler._pause

    def record(changes, seconds):
        pauses.append(seconds)
        pause(changes, seconds)

    monkeypatch.setattr(scheduler, "_pause", record)
    assert not scheduler.wait_until(lambda: False, timeout_ms=5)
    assert pauses[0] == 0.005
    pauses.clear()
    virtual = DeterministicScheduler(clock)
    virtual.start()
    runs = []
    virtual.schedule("linger", lambda: runs.append(1), delay_ms=3)
    assert scheduler.wait_until(lambda: len(runs) == 1, timeout_ms=HOUR_MS)
    assert pauses[0] == 0.003
    assert min(pauses) >= 0
    virtual.shutdown()
