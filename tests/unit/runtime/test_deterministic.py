"""DeterministicScheduler: the shared suite, then order, virtual time, seeds and deadlocks."""

import itertools
import threading
from datetime import timedelta

import pytest

from logstore.runtime import (
    Deadlock,
    DeterministicScheduler,
    FixedWallClock,
    Runtime,
    SystemClock,
    VirtualClock,
)
from logstore.runtime.clock import VIRTUAL_EPOCH_MS
from logstore.runtime.loops import LoopThread
from tests.support.world.messages import exactly
from tests.support.world.scheduler_suite import (
    MS,
    NEVER_MS,
    Bench,
    OneAtATime,
    SchedulerSuite,
    Stop,
    WaitingTasks,
)


def started(clock, **options):
    scheduler = DeterministicScheduler(clock, **options)
    scheduler.start()
    return Bench(scheduler, clock)


class TestInVirtualTime(SchedulerSuite, OneAtATime, WaitingTasks):
    @pytest.fixture
    def bench(self):
        return started(VirtualClock())


class TestInVirtualTimeWithASeed(SchedulerSuite, OneAtATime, WaitingTasks):
    @pytest.fixture
    def bench(self):
        return started(VirtualClock(), seed=7)


class TestInTheMachinesTime(SchedulerSuite, OneAtATime, WaitingTasks):
    @pytest.fixture
    def bench(self):
        return started(SystemClock())


class TestAtAFixedWallTime(SchedulerSuite, OneAtATime, WaitingTasks):
    @pytest.fixture
    def bench(self):
        return started(FixedWallClock(1_700_000_000_000))


@pytest.fixture
def clock():
    return VirtualClock(0)


@pytest.fixture
def scheduler(clock):
    return started(clock).scheduler


@pytest.fixture
def journal(clock, scheduler):
    """Schedules tasks that write their name and the time, and take some time themselves."""

    class Journal(list):
        def task(self, name, *, takes_ms=0, **times):
            def action():
                self.append((name, clock.now_ms()))
                if takes_ms:
                    clock.advance(ms=takes_ms)

            return scheduler.schedule(name, action, **times)

    return Journal()


# --- order --------------------------------------------------------------------------------------


def test_tasks_of_one_time_run_in_the_order_in_which_they_were_scheduled(clock, journal):
    for name in "bca":
        journal.task(name, delay_ms=5)
    journal.task("first", delay_ms=4)
    clock.advance(ms=5)
    assert journal == [("first", 4), ("b", 5), ("c", 5), ("a", 5)]


def test_a_periodic_task_queues_up_again_at_its_end(clock, journal):
    journal.task("slow", period_ms=4)
    journal.task("fast", period_ms=2)
    clock.advance(ms=4)
    assert journal == [("slow", 0), ("fast", 0), ("fast", 2), ("slow", 4), ("fast", 4)]


def order_with_seed(seed):
    clock = VirtualClock(0)
    bench = started(clock, seed=seed)
    order = []
    for name in "abc":
        bench.scheduler.schedule(name, lambda name=name: order.append(name), delay_ms=5)
    bench.scheduler.schedule("z", lambda: order.append("z"), delay_ms=4)
    clock.advance(ms=5)
    assert order[0] == "z"  # a seed does not change the order of times
    return "".join(order[1:])


def test_seeds_give_every_order_of_tasks_of_one_time_and_each_seed_the_same_one():
    orders = [order_with_seed(seed) for seed in range(100)]
    assert orders == [order_with_seed(seed) for seed in range(100)]
    assert set(orders) == {"".join(order) for order in itertools.permutations("abc")}


# --- time ---------------------------------------------------------------------------------------


def test_advancing_stops_at_each_due_time(clock, journal):
    journal.task("tick", delay_ms=10, period_ms=25)
    journal.task("once", delay_ms=30)
    assert clock.advance(ms=70) == 70
    assert journal == [("tick", 10), ("once", 30), ("tick", 35), ("tick", 60)]
    assert clock.now_ms() == 70
    clock.advance(ms=14)
    assert len(journal) == 4
    clock.advance(ms=1)
    assert journal[4:] == [("tick", 85)]


def test_sleeping_and_setting_the_clock_forward_let_tasks_run_too(clock, journal):
    journal.task("tick", period_ms=1000)
    clock.sleep(1.5)
    clock.set_ms(3000)
    assert journal == [("tick", 0), ("tick", 1000), ("tick", 2000), ("tick", 3000)]
    assert clock.now_ms() == 3000


def test_nothing_runs_until_time_is_advanced(clock, scheduler, journal):
    journal.task("now")
    assert journal == []
    clock.advance()
    assert journal == [("now", 0)]


def test_time_that_passes_inside_a_task_only_moves(clock, journal):
    """Tasks that became due meanwhile run after the task, late, in the order of due times."""
    journal.task("busy", delay_ms=10, takes_ms=100)
    journal.task("second", delay_ms=60)
    journal.task("first", delay_ms=50)
    journal.task("after", delay_ms=111)
    clock.advance(ms=20)
    assert journal == [("busy", 10)]
    assert clock.now_ms() == 110  # the task took longer than asked
    clock.advance(ms=1)
    assert journal[1:] == [("first", 110), ("second", 110), ("after", 111)]


def test_sleeping_inside_run_due_only_moves_time_too(clock, scheduler, journal):
    journal.task("busy", takes_ms=100)
    journal.task("other", delay_ms=50)
    assert scheduler.run_due() == 1
    assert (journal, clock.now_ms()) == ([("busy", 0)], 100)
    assert scheduler.run_due() == 1
    assert journal[1:] == [("other", 100)]


def test_setting_the_clock_inside_a_task_only_moves_time(clock, scheduler, journal):
    scheduler.schedule("set", lambda: clock.set_ms(500), delay_ms=10)
    journal.task("later", delay_ms=100)
    clock.advance(ms=10)
    assert (journal, clock.now_ms()) == ([], 500)
    clock.advance()
    assert journal == [("later", 500)]


def test_a_late_periodic_task_makes_up_for_what_it_missed_with_one_run(clock, journal):
    journal.task("tick", period_ms=10)
    journal.task("busy", delay_ms=5, takes_ms=50)
    clock.advance(ms=80)
    assert journal == [
        ("tick", 0),
        ("busy", 5),
        ("tick", 55),  # for 10, 20, 30, 40 and 50
        ("tick", 60),
        ("tick", 70),
        ("tick", 80),
    ]


def test_a_periodic_task_longer_than_its_period_runs_once_for_all_it_missed(clock, journal):
    journal.task("slow", period_ms=10, takes_ms=35)
    journal.task("other", delay_ms=12)
    clock.advance(ms=100)
    # At 105 it is late for 80 to 100, which were due before the time that was asked for.
    assert journal == [("slow", 0), ("slow", 35), ("other", 70), ("slow", 70), ("slow", 105)]
    assert clock.now_ms() == 140


def test_a_wall_clock_stepped_back_changes_no_order_and_no_delay(clock, journal):
    journal.task("early", delay_ms=100)
    clock.advance(ms=50)
    clock.set_ms(0)
    journal.task("late", delay_ms=60)
    journal.task("earlier", delay_ms=10)
    clock.advance(ms=60)
    assert journal == [("earlier", 10), ("early", 50), ("late", 60)]


def test_times_are_exact_to_the_nanosecond(clock, scheduler):
    moments = []
    clock.advance(ms=0.25)
    scheduler.schedule("tick", lambda: moments.append(clock.monotonic_ns()), period_ms=3)
    clock.advance(seconds=3, ms=0.125)
    assert moments == [250_000 + 3 * MS * number for number in range(1001)]
    assert clock.monotonic_ns() == 3_000_375_000


def test_a_scheduler_that_is_not_started_leaves_the_clock_alone(clock):
    scheduler = DeterministicScheduler(clock)
    runs = []
    scheduler.schedule("ignored", lambda: runs.append(1))
    clock.advance(days=1)
    scheduler.start()
    scheduler.schedule("tick", lambda: runs.append(1), period_ms=1000)
    scheduler.shutdown()
    clock.advance(days=1)
    assert runs == []
    assert clock.step() is False


def test_schedulers_share_a_clock_in_the_order_of_time(clock):
    order = []
    for name, period_ms in (("a", 20), ("b", 30)):
        started(clock).scheduler.schedule(
            name, lambda name=name: order.append((name, clock.now_ms())), period_ms=period_ms
        )
    clock.advance(ms=60)
    assert order == [
        *(("a", 0), ("b", 0), ("a", 20), ("b", 30), ("a", 40)),
        *(("a", 60), ("b", 60)),
    ]


def test_a_task_of_one_scheduler_is_not_interrupted_by_another(clock, journal):
    other = started(clock).scheduler
    other.schedule("other", lambda: journal.append(("other", clock.now_ms())), delay_ms=5)
    journal.task("busy", takes_ms=10)
    clock.advance(ms=10)
    assert journal == [("busy", 0), ("other", 10)]


def test_one_scheduler_may_stop_another_in_a_task(clock, scheduler):
    other = started(clock).scheduler
    ran = []
    scheduler.schedule("stop", other.shutdown, delay_ms=5)
    other.schedule("other", lambda: ran.append(1), delay_ms=5)
    clock.advance(ms=10)
    assert ran == []


# --- driving by hand ----------------------------------------------------------------------------


def test_run_due_runs_what_is_due_now_and_what_that_schedules_for_now(clock, scheduler, journal):
    scheduler.schedule("chain", lambda: journal.task("link"))
    journal.task("later", delay_ms=1)
    assert scheduler.run_due() == 2
    assert scheduler.run_due() == 0
    assert journal == [("link", 0)]
    assert clock.now_ms() == 0


def test_other_clocks_run_nothing_by_themselves():
    clock = SystemClock()
    scheduler = started(clock).scheduler
    task = scheduler.schedule("now", lambda: None)
    clock.sleep(0.001)
    assert task.runs == 0
    assert scheduler.run_due() == 1
    assert task.runs == 1


def test_next_due_ms_is_the_wall_time_of_the_next_task(clock, scheduler):
    assert scheduler.next_due_ms() is None
    scheduler.schedule("never", lambda: None, delay_ms=NEVER_MS)
    assert scheduler.next_due_ms() is None
    scheduler.schedule("later", lambda: None, delay_ms=70)
    task = scheduler.schedule("soon", lambda: None, delay_ms=40)
    assert scheduler.next_due_ms() == 40
    task.cancel()
    assert scheduler.next_due_ms() == 70
    clock.advance(ms=0.5)
    clock.set_ms(1000)  # forward: time passes, to the task and beyond it
    assert scheduler.next_due_ms() is None
    clock.set_ms(0)
    scheduler.schedule("after", lambda: None, delay_ms=5)
    assert scheduler.next_due_ms() == 5
    clock.advance(ms=0.25)
    assert scheduler.next_due_ms() == 5
    with clock.held():
        clock.advance(ms=100)
    assert scheduler.next_due_ms() == clock.now_ms() == 100


# --- waiting ------------------------------------------------------------------------------------


def test_a_wait_moves_time_no_further_than_needed(clock, scheduler, journal):
    journal.task("tick", delay_ms=10, period_ms=10)
    assert scheduler.wait_until(lambda: len(journal) == 3)
    assert clock.now_ms() == 30
    assert scheduler.wait_until(lambda: len(journal) == 100, timeout_ms=25) is False
    assert clock.now_ms() == 55
    assert journal[-1] == ("tick", 50)


def test_a_wait_ends_in_time_for_what_is_due_at_its_very_end(clock, scheduler, journal):
    journal.task("last", delay_ms=25)
    assert scheduler.wait_until(lambda: bool(journal), timeout_ms=25)
    assert clock.now_ms() == 25


def test_a_wait_for_what_nothing_can_bring_is_a_deadlock(clock, scheduler, journal):
    journal.task("once", delay_ms=10)
    scheduler.schedule("never", lambda: None, delay_ms=NEVER_MS)
    with pytest.raises(Deadlock, match=r"could end the wait; inside no task$"):
        scheduler.wait_until(lambda: False)
    assert journal == [("once", 10)]  # everything was tried
    assert issubclass(Deadlock, AssertionError)


def test_a_wait_that_a_client_of_a_server_may_end_blocks(clock, scheduler):
    loops = LoopThread("test", clock)
    done = threading.Event()
    asked = []

    def is_done():
        asked.append(True)
        if len(asked) == 2:  # nothing was due
            loops.wake(done.set)
        return done.is_set()

    before = clock.monotonic_ns()
    assert scheduler.wait_until(is_done)
    assert clock.monotonic_ns() == before
    loops.stop()
    with pytest.raises(Deadlock):
        scheduler.wait_until(lambda: False)


def test_a_wait_of_a_scheduler_that_is_not_started_is_a_deadlock(clock):
    with pytest.raises(Deadlock):
        DeterministicScheduler(clock).wait_until(lambda: False)
    with pytest.raises(Deadlock):
        DeterministicScheduler(SystemClock()).wait_until(lambda: False)


def test_a_wait_that_only_periodic_tasks_prolong_is_a_deadlock_in_the_end(clock):
    scheduler = started(clock, runs_max=50).scheduler
    task = scheduler.schedule("tick", lambda: None, period_ms=10)
    with pytest.raises(Deadlock, match=r"^50 due times did not end the wait; inside no task$"):
        scheduler.wait_until(lambda: False)
    assert task.runs == 50


def test_tasks_that_follow_each_other_without_delay_for_ever_are_a_deadlock(clock):
    scheduler = started(clock, runs_max=50).scheduler

    def action():
        scheduler.schedule("again", action)

    scheduler.schedule("first", action)
    with pytest.raises(
        Deadlock, match=exactly("51 tasks ran at the same time, the last one is again")
    ):
        clock.advance(ms=1)


def test_many_tasks_of_one_moment_are_no_deadlock(clock):
    scheduler = started(clock, runs_max=50).scheduler
    tasks = [scheduler.schedule("delete-file", lambda: None) for _ in range(500)]
    clock.advance()
    assert all(task.runs == 1 for task in tasks)


def test_a_wait_inside_a_task_lets_others_run_meanwhile(clock, scheduler, journal):
    def wait():
        journal.append(("begin", clock.now_ms()))
        scheduler.wait_until(lambda: ("tick", 30) in journal)
        journal.append(("end", clock.now_ms()))

    scheduler.schedule("waiting", wait, delay_ms=5, period_ms=1000)
    journal.task("tick", delay_ms=10, period_ms=10)
    clock.advance(ms=10)
    assert journal == [("begin", 5), ("tick", 10), ("tick", 20), ("tick", 30), ("end", 30)]
    assert clock.now_ms() == 30  # as a task that takes its time


def test_time_that_passes_in_a_task_beneath_a_wait_only_moves(clock, scheduler, journal):
    scheduler.schedule("waiting", lambda: scheduler.wait_until(lambda: ("late", 50) in journal))
    journal.task("busy", delay_ms=10, takes_ms=40)
    journal.task("late", delay_ms=20)
    clock.advance()
    assert journal == [("busy", 10), ("late", 50)]


def test_tasks_that_wait_for_each_other_are_a_deadlock_that_names_them(clock, scheduler):
    """The one beneath cannot go on before the one above it ends."""
    reached = []

    def beneath():
        scheduler.wait_until(lambda: "above" in reached)
        reached.append("beneath")

    def above():
        scheduler.wait_until(lambda: "beneath" in reached)
        reached.append("above")

    tasks = [scheduler.schedule("b-task", beneath), scheduler.schedule("a-task", above)]
    with pytest.raises(
        Deadlock, match=exactly("no due task could end the wait; inside a-task, b-task")
    ):
        clock.advance()
    assert reached == []
    assert [task.failures for task in tasks] == [1, 1]


# --- errors that nobody may overlook ------------------------------------------------------------


@pytest.mark.parametrize("error", (AssertionError("broken"), Stop("crash")))
def test_a_broken_invariant_or_a_crash_comes_out_where_time_passes(clock, scheduler, error):
    def action():
        if task.runs == 0:
            raise error

    task = scheduler.schedule("broken", action, delay_ms=10, period_ms=10)
    other = scheduler.schedule("other", lambda: None, delay_ms=10)
    with pytest.raises(type(error)) as caught:
        clock.advance(ms=100)
    assert caught.value is error
    assert clock.now_ms() == 10
    assert (task.failures, task.last_error, task.is_running) == (1, error, False)
    scheduler._check()
    clock.advance(ms=20)  # neither the clock nor the other tasks are stuck
    assert (task.runs, other.runs) == (3, 1)


def test_a_broken_invariant_comes_out_of_a_wait(clock, scheduler):
    def action():
        raise AssertionError("broken")

    scheduler.schedule("broken", action)
    with pytest.raises(AssertionError, match="broken"):
        scheduler.wait_until(lambda: False)


# --- jobs and the bundle ------------------------------------------------------------------------


def test_jobs_run_one_after_another_in_the_order_given(scheduler):
    order = []
    scheduler.run_all(
        [lambda number=number: order.append(number) for number in range(9)], threads=4
    )
    assert order == list(range(9))


def test_a_runtime_has_a_scheduler_of_its_clock_that_waits_to_be_started(clock):
    runtime, other = Runtime(clock), Runtime(clock)
    assert isinstance(runtime.scheduler, DeterministicScheduler)
    assert not runtime.scheduler.is_started
    assert runtime.scheduler is not other.scheduler
    runtime.scheduler.start()
    task = runtime.scheduler.schedule("tick", lambda: None, delay_ms=5)
    clock.advance(ms=5)
    assert task.runs == 1


def test_a_runtime_keeps_the_scheduler_it_is_given(clock, scheduler):
    assert Runtime(clock, scheduler=scheduler).scheduler is scheduler


def test_virtual_time_starts_where_it_always_did():
    bench = started(VirtualClock())
    moments = []
    bench.scheduler.schedule("tick", lambda: moments.append(bench.clock.now_ms()), delay_ms=1)
    bench.clock.advance(ms=1)
    assert moments == [VIRTUAL_EPOCH_MS + 1]


def test_a_task_shows_what_becomes_of_it(clock, scheduler):
    texts = []
    task = scheduler.schedule("tick", lambda: texts.append(repr(task)), period_ms=1)
    clock.advance(ms=1)
    texts.append(repr(task))
    task.cancel()
    texts.append(repr(task))
    assert texts == [
        "<ScheduledTask tick: running, 0 runs, 0 failed>",
        "<ScheduledTask tick: running, 1 runs, 0 failed>",
        "<ScheduledTask tick: waiting, 2 runs, 0 failed>",
        "<ScheduledTask tick: cancelled, 2 runs, 0 failed>",
    ]


# --- sleep --------------------------------------------------------------------------------------


def test_a_task_sleeps_through_what_it_calls_idle_and_keeps_to_its_period(clock, scheduler):
    ran, idle = [], [25, 0, None]
    scheduler.schedule(
        "sleeper",
        lambda: ran.append(clock.now_ms()),
        delay_ms=3,
        period_ms=10,
        idle_ms=lambda: idle.pop(0),
    )
    clock.advance(ms=100_000)
    assert ran == [3, 33, 43], "the first due time of the period after 28, the next one, no more"
    assert idle == []


def test_a_woken_task_runs_at_its_next_period(clock, scheduler):
    ran = []
    task = scheduler.schedule(
        "sleeper", lambda: ran.append(clock.now_ms()), period_ms=10, idle_ms=lambda: None
    )
    clock.advance(ms=20)
    task.wake()
    task.wake()
    clock.advance(ms=9)
    assert ran == [0], "the run at 20 is over"
    clock.advance(ms=100)
    assert ran == [0, 30]
    task.cancel()
    task.wake()
    clock.advance(ms=100)
    assert ran == [0, 30]


def test_a_change_during_the_run_is_not_slept_through(clock, scheduler):
    ran = []

    def run():
        ran.append(clock.now_ms())
        if len(ran) == 1:
            task.wake()

    task = scheduler.schedule("sleeper", run, period_ms=10, idle_ms=lambda: None)
    clock.advance(ms=100)
    assert ran == [0, 10]


def test_a_run_that_fails_is_tried_again(clock, scheduler, caplog):
    runs = []

    def run():
        runs.append(None)
        if len(runs) == 1:
            raise ValueError("not now")

    scheduler.schedule("sleeper", run, period_ms=10, idle_ms=lambda: None)
    clock.advance(ms=100)
    assert len(runs) == 2
    assert "not now" in caplog.text


def test_the_idle_time_of_a_task_cancelled_during_its_run_is_not_evaluated(clock, scheduler):
    def idle_ms():
        raise ValueError("closed")

    task = scheduler.schedule("sleeper", lambda: task.cancel(), period_ms=10, idle_ms=idle_ms)
    clock.advance(ms=100)
    assert task.runs == 1


def test_sleeping_tasks_are_cancelled_by_a_shutdown(clock, scheduler):
    task = scheduler.schedule("sleeper", lambda: None, period_ms=10, idle_ms=lambda: None)
    clock.advance(ms=10)
    with pytest.raises(Deadlock, match="no due task"):
        scheduler.wait_until(lambda: False)
    scheduler.shutdown()
    assert task.cancelled


def test_a_task_that_is_woken_runs_at_the_next_due_time_of_its_period(clock, scheduler):
    start_ns, runs = clock.monotonic_ns(), []
    task = scheduler.schedule(
        "sleeper",
        lambda: runs.append(clock.monotonic_ns() - start_ns),
        delay_ms=10,
        period_ms=10,
        idle_ms=lambda: None,
    )
    clock.advance(ms=29)
    clock.advance(timedelta(microseconds=999))
    clock.advance(ms=0.000_999)
    assert clock.monotonic_ns() - start_ns == 29_999_999
    task.wake()
    clock.advance(ms=0.000_001)
    assert runs == [10_000_000, 30_000_000]
    clock.advance(ms=10)
    task.wake()
    clock.advance(ms=9)
    assert len(runs) == 2
    clock.advance(ms=1)
    assert runs[2:] == [50_000_000]


def test_on_other_clocks_every_run_takes_place():
    clock = FixedWallClock(1_700_000_000_000)
    scheduler = started(clock).scheduler
    runs = []
    scheduler.schedule("task", lambda: runs.append(None), period_ms=1, idle_ms=lambda: None)
    scheduler.wait_until(lambda: len(runs) == 3)
