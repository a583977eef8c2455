"""The suite for all schedulers: threads and one thread, real and virtual time.

A test module subclasses `SchedulerSuite` and provides the fixture `bench`. No test sleeps: tests
wait for a task's effect, and compare times only with lower bounds.
"""

from __future__ import annotations

import logging
import threading
from typing import NamedTuple

import pytest

from logstore.runtime import Clock, ScheduledTask, Scheduler

NEVER_MS = 2**63 - 1
MS = 1_000_000


class Bench(NamedTuple):
    """A started scheduler and its clock."""

    scheduler: Scheduler
    clock: Clock

    def reach(self, predicate) -> None:
        """Run tasks until `predicate` is true, at most a minute, far more than any test needs."""
        assert self.scheduler.wait_until(predicate, timeout_ms=60_000)

    def schedule_with_task(self, name, action, **times) -> ScheduledTask:
        """Schedule an action that receives its own task, which a thread may start too early."""
        known = threading.Event()
        report = []

        def run():
            assert known.wait(60)
            action(*report)

        report.append(self.scheduler.schedule(name, run, **times))
        known.set()
        return report[0]

    def let_pass(self, delay_ms: int) -> None:
        """Run tasks until one that is scheduled now for that time has run."""
        mark = self.scheduler.schedule("mark", lambda: None, delay_ms=delay_ms)
        self.reach(lambda: mark.runs == 1)


class Stop(BaseException):
    """Not an `Exception`, as the simulated crash of a machine."""


class SchedulerSuite:
    """Behaviour of tasks, jobs and waits; subclasses give the fixture `bench`."""

    # --- tasks ------------------------------------------------------------------------------

    def test_a_task_runs_once_and_not_before_its_delay(self, bench):
        times_ms = []
        before = bench.clock.monotonic_ns()
        task = bench.scheduler.schedule(
            "once", lambda: times_ms.append(bench.clock.monotonic_ns()), delay_ms=15
        )
        assert task.name == "once"
        bench.reach(lambda: task.runs == 1)
        bench.let_pass(20)
        assert len(times_ms) == 1
        assert times_ms[0] - before >= 15 * MS
        assert (task.runs, task.failures, task.last_error) == (1, 0, None)
        assert not task.is_running
        assert not task.cancelled

    def test_a_periodic_task_runs_at_its_first_delay_and_then_each_period(self, bench):
        times_ms = []
        before = bench.clock.monotonic_ns()
        task = bench.scheduler.schedule(
            "tick",
            lambda: times_ms.append(bench.clock.monotonic_ns()),
            delay_ms=7,
            period_ms=3,
        )
        bench.reach(lambda: len(times_ms) >= 6)
        task.cancel()
        for number, time_ms in enumerate(times_ms):
            assert time_ms - before >= (7 + 3 * number) * MS

    def test_periods_do_not_drift_with_the_length_or_lateness_of_runs(self, bench):
        dues = []

        def action(task):
            dues.append(task._due_ns)
            bench.clock.sleep(0.001 * len(dues))

        task = bench.schedule_with_task("tick", action, delay_ms=1, period_ms=2)
        bench.reach(lambda: len(dues) >= 6)
        task.cancel()
        steps = [(due - dues[0]) / (2 * MS) for due in dues]
        assert steps == sorted({round(step) for step in steps})

    def test_a_task_may_schedule_others(self, bench):
        order = []

        def first():
            order.append("first")
            bench.scheduler.schedule("second", lambda: order.append("second"), delay_ms=2)

        bench.scheduler.schedule("first", first)
        bench.reach(lambda: len(order) == 2)
        assert order == ["first", "second"]

    def test_a_periodic_task_never_runs_concurrently_with_itself(self, bench):
        inside: list[bool] = []
        overlaps = []

        def action():
            overlaps.append(len(inside))
            inside.append(True)
            bench.clock.sleep(0.003)
            inside.pop()

        task = bench.scheduler.schedule("slow", action, period_ms=1)
        bench.reach(lambda: task.runs >= 4)
        assert set(overlaps) == {0}

    @pytest.mark.parametrize("times", ({"delay_ms": -1}, {"period_ms": 0}, {"period_ms": -5}))
    def test_times_that_mean_nothing_are_refused(self, bench, times):
        with pytest.raises(ValueError, match="bad one"):
            bench.scheduler.schedule("bad one", lambda: None, **times)

    def test_the_largest_delays_and_periods_mean_never(self, bench):
        """Kafka's default of log.flush.scheduler.interval.ms."""
        never = bench.scheduler.schedule("never", lambda: None, delay_ms=NEVER_MS)
        once = bench.scheduler.schedule("once", lambda: None, period_ms=NEVER_MS)
        bench.reach(lambda: once.runs == 1)
        bench.let_pass(5)
        assert (never.runs, once.runs) == (0, 1)

    # --- failures ---------------------------------------------------------------------------

    def test_a_failing_task_keeps_its_period_and_disturbs_no_other(self, bench, caplog):
        errors = [ValueError("first"), OSError("second")]
        pending = list(errors)

        def action():
            if pending:
                raise pending.pop(0)

        failing = bench.scheduler.schedule("failing", action, period_ms=1)
        other = bench.scheduler.schedule("other", lambda: None, period_ms=1)
        with caplog.at_level(logging.ERROR):
            bench.reach(lambda: failing.runs >= 4 and other.runs >= 4)
        assert failing.failures == 2
        assert failing.last_error is errors[1]
        assert (other.failures, other.last_error) == (0, None)
        logged = [record for record in caplog.records if "failing" in record.getMessage()]
        assert [record.exc_info[1] for record in logged] == errors

    def test_a_task_that_fails_once_is_done(self, bench):
        task = bench.scheduler.schedule("once", lambda: 1 / 0)  # type: ignore[arg-type]
        bench.reach(lambda: task.runs == 1)
        bench.let_pass(3)
        assert (task.runs, task.failures) == (1, 1)
        assert isinstance(task.last_error, ZeroDivisionError)

    # --- cancelling -------------------------------------------------------------------------

    def test_a_cancelled_task_does_not_run(self, bench):
        task = bench.scheduler.schedule("cancelled", lambda: None, delay_ms=10_000)
        task.cancel()
        task.cancel()
        assert task.cancelled
        assert bench.scheduler.next_due_ns() is None
        assert bench.scheduler.next_due_name() is None
        bench.let_pass(3)
        assert task.runs == 0

    def test_cancelling_one_leaves_the_others(self, bench):
        tasks = [
            bench.scheduler.schedule("task", lambda: None, delay_ms=5 if number % 3 else 60_000)
            for number in range(12)
        ]
        for task in tasks[::3]:
            task.cancel()
        bench.scheduler._check()
        assert [task.cancelled for task in tasks] == [number % 3 == 0 for number in range(12)]
        bench.reach(lambda: sum(task.runs for task in tasks) == 8)
        assert [task.runs for task in tasks[::3]] == [0] * 4

    def test_a_task_may_cancel_itself(self, bench):
        def action(task):
            if task.runs == 2:
                assert task.is_running
                task.cancel()

        task = bench.schedule_with_task("tick", action, delay_ms=1, period_ms=1)
        bench.reach(lambda: task.cancelled and not task.is_running)
        bench.let_pass(5)
        assert (task.runs, task.failures) == (3, 0)

    def test_cancelling_a_finished_task_has_no_effect(self, bench):
        task = bench.scheduler.schedule("once", lambda: None)
        bench.reach(lambda: task.runs == 1)
        task.cancel()
        assert (task.runs, task.failures, task.is_running) == (1, 0, False)

    # --- starting and stopping --------------------------------------------------------------

    def test_a_scheduler_that_is_not_started_ignores_tasks(self, bench):
        bench.scheduler.shutdown()
        assert not bench.scheduler.is_started
        task = bench.scheduler.schedule("ignored", lambda: None, period_ms=1)
        assert task.cancelled
        assert bench.scheduler.next_due_ns() is None
        bench.scheduler.start()
        bench.let_pass(3)
        assert task.runs == 0

    def test_start_and_shutdown_may_be_repeated(self, bench):
        bench.scheduler.start()
        bench.scheduler.start()
        assert bench.scheduler.is_started
        bench.let_pass(0)
        bench.scheduler.shutdown()
        bench.scheduler.shutdown()
        assert not bench.scheduler.is_started
        bench.scheduler.start()
        bench.let_pass(1)

    def test_no_task_runs_after_shutdown(self, bench):
        ticks = [bench.scheduler.schedule("tick", lambda: None, period_ms=1) for _ in range(3)]
        later = bench.scheduler.schedule("later", lambda: None, delay_ms=60_000)
        bench.reach(lambda: all(tick.runs for tick in ticks))
        bench.scheduler.shutdown()
        runs = [task.runs for task in (*ticks, later)]
        assert all(task.cancelled and not task.is_running for task in (*ticks, later))
        bench.scheduler.start()
        bench.let_pass(5)
        assert [task.runs for task in (*ticks, later)] == runs

    def test_a_task_may_shut_the_scheduler_down(self, bench):
        def action(task):
            bench.scheduler.shutdown()
            assert task.is_running

        other = bench.scheduler.schedule("other", lambda: None, delay_ms=10_000)
        task = bench.schedule_with_task("last", action, delay_ms=1, period_ms=1)
        bench.reach(lambda: task.runs == 1)
        assert (task.failures, task.cancelled, other.cancelled) == (0, True, True)
        assert not bench.scheduler.is_started

    # --- waiting ----------------------------------------------------------------------------

    def test_a_wait_for_a_true_condition_runs_no_task(self, bench):
        assert bench.scheduler.wait_until(lambda: True)
        assert bench.scheduler.wait_until(lambda: True, timeout_ms=0)

    def test_a_wait_ends_when_a_task_has_made_it_true(self, bench):
        done: list[int] = []
        bench.scheduler.schedule("work", lambda: done.append(1), delay_ms=2, period_ms=2)
        assert bench.scheduler.wait_until(lambda: len(done) >= 3)

    @pytest.mark.parametrize("started", (True, False))
    def test_a_wait_gives_up_after_its_time(self, bench, started):
        if not started:
            bench.scheduler.shutdown()
        before = bench.clock.monotonic_ns()
        assert not bench.scheduler.wait_until(lambda: False, timeout_ms=12)
        assert bench.clock.monotonic_ns() - before >= 12 * MS
        assert not bench.scheduler.wait_until(lambda: False, timeout_ms=0)

    def test_an_error_of_the_predicate_is_raised(self, bench):
        with pytest.raises(ZeroDivisionError):
            bench.scheduler.wait_until(lambda: 1 // 0 == 0)

    def test_a_notification_without_waiters_has_no_effect(self, bench):
        bench.scheduler.notify()

    # --- jobs -------------------------------------------------------------------------------

    @pytest.mark.parametrize("threads", (1, 2, 3, 50))
    def test_jobs_give_results_and_errors_in_their_order(self, bench, threads):
        error = OSError("third")

        def job(number):
            if number == 3:
                raise error
            return number * number

        jobs = [lambda number=number: job(number) for number in range(20)]
        results = bench.scheduler.run_all(jobs, threads=threads)
        expected = [number * number for number in range(20)]
        assert results == [*expected[:3], error, *expected[4:]]

    def test_no_jobs_are_done_at_once(self, bench):
        assert bench.scheduler.run_all([], threads=4) == []

    def test_jobs_need_a_thread(self, bench):
        with pytest.raises(ValueError, match="0 threads"):
            bench.scheduler.run_all([lambda: 1], threads=0)

    @pytest.mark.parametrize("threads", (1, 3))
    @pytest.mark.parametrize("error", (AssertionError("broken"), Stop("crash")))
    def test_critical_errors_are_raised_and_stop_further_jobs(self, bench, threads, error):
        begun = []

        def job(number):
            begun.append(number)
            if number >= 2:
                raise error

        jobs = [lambda number=number: job(number) for number in range(100)]
        with pytest.raises(type(error)) as caught:
            bench.scheduler.run_all(jobs, threads=threads)
        assert caught.value is error
        assert len(begun) <= 2 + threads

    def test_jobs_run_also_when_the_scheduler_does_not(self, bench):
        bench.scheduler.shutdown()
        assert bench.scheduler.run_all([lambda: 1, lambda: 2], threads=2) == [1, 2]

    def test_a_task_may_run_jobs(self, bench):
        results = []
        task = bench.scheduler.schedule(
            "load", lambda: results.extend(bench.scheduler.run_all([lambda: 1] * 5, threads=2))
        )
        bench.reach(lambda: task.runs == 1)
        assert results == [1] * 5


class OneAtATime:
    """Behavior of schedulers whose tasks never overtake each other."""

    def test_tasks_run_in_the_order_in_which_they_are_due(self, bench):
        order = []
        tasks = []
        for number, delay_ms in enumerate((30, 0, 20, 10, 25)):
            tasks.append(
                bench.scheduler.schedule(
                    "note", lambda number=number: order.append(number), delay_ms=delay_ms
                )
            )
        bench.reach(lambda: len(order) == 5)
        # Not by the delays: real time may have passed between two calls.
        assert order == sorted(range(5), key=lambda number: tasks[number]._due_ns)


class WaitingTasks:
    """Behaviour of schedulers that run other tasks while one waits."""

    def test_a_task_may_wait_for_another(self, bench):
        order = []

        def wait():
            assert bench.scheduler.wait_until(lambda: "other" in order, timeout_ms=60_000)
            order.append("waiting")

        waiting = bench.scheduler.schedule("waiting", wait)
        bench.scheduler.schedule("other", lambda: order.append("other"), delay_ms=5)
        bench.reach(lambda: waiting.runs == 1)
        assert order == ["other", "waiting"]
        assert waiting.failures == 0
