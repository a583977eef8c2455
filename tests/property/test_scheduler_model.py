"""The deterministic scheduler against a list that is searched for each run.

The model has no heap, clock or listener: it takes the earliest task each time. It shares only the
documented rule with the scheduler: order by due time, then by the start of waiting (for a periodic
task, the previous due time), then by first scheduling; a run covers all due times of its period
that had passed when it began.
"""

import hypothesis.strategies as st
from hypothesis import given
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from logstore.runtime import DeterministicScheduler, VirtualClock

delays = st.integers(0, 40)
periods = st.none() | st.integers(1, 30)
lengths = st.sampled_from([0, 0, 0, 1, 7, 25, 100])


class Model:
    """Tasks as `[due, since, number, name, period, takes, child]`; times in ms."""

    def __init__(self):
        self.now = 0
        self.waiting = []
        self.scheduled = 0
        self.runs = []

    def schedule(self, name, delay, period, takes, child):
        self.scheduled += 1
        due = self.now + delay
        self.waiting.append([due, self.now, self.scheduled, name, period, takes, child])

    def cancel(self, name):
        self.waiting = [task for task in self.waiting if task[3] != name]

    def advance(self, ms):
        target = self.now + ms
        while self.waiting:
            task = min(self.waiting, key=lambda task: task[:3])
            if task[0] > target:
                break
            self.waiting.remove(task)
            due, _, _, name, period, takes, child = task
            self.now = start = max(self.now, due)
            self.runs.append((name, start))
            if child is not None:
                self.schedule(f"{name}'", child, None, 0, None)
            self.now += takes
            if period is not None:
                while task[0] <= start:
                    task[0] += period
                task[1] = task[0] - period
                self.waiting.append(task)
        self.now = max(self.now, target)


class SchedulerMachine(RuleBasedStateMachine):
    """Scheduling, cancelling and advancing, in any order; tasks may schedule others."""

    def __init__(self):
        super().__init__()
        self.clock = VirtualClock(0)
        self.scheduler = DeterministicScheduler(self.clock)
        self.scheduler.start()
        self.model = Model()
        self.runs = []
        self.tasks = []

    @rule(delay=delays, period=periods, takes=lengths, child=st.none() | delays)
    def schedule(self, delay, period, takes, child):
        name = f"task {len(self.tasks)}"

        def action():
            self.runs.append((name, self.clock.now_ms()))
            if child is not None:
                self.scheduler.schedule(
                    f"{name}'",
                    lambda: self.runs.append((f"{name}'", self.clock.now_ms())),
                    delay_ms=child,
                )
            self.clock.advance(ms=takes)

        self.tasks.append(self.scheduler.schedule(name, action, delay_ms=delay, period_ms=period))
        self.model.schedule(name, delay, period, takes, child)

    @rule(data=st.data())
    def cancel(self, data):
        if self.tasks:
            task = data.draw(st.sampled_from(self.tasks))
            task.cancel()
            self.model.cancel(task.name)

    @rule(ms=st.integers(0, 200))
    def advance(self, ms):
        self.clock.advance(ms=ms)
        self.model.advance(ms)

    @rule(ms=st.integers(0, 200))
    def wait_in_vain(self, ms):
        """Waiting advances the clock, but stops at the first time that exhausts the timeout."""
        if all(task[5] == 0 for task in self.model.waiting):
            assert not self.scheduler.wait_until(lambda: False, timeout_ms=ms)
            self.model.advance(ms)

    @invariant()
    def runs_and_time_agree(self):
        assert self.runs == self.model.runs
        assert self.clock.now_ms() == self.model.now
        self.scheduler._check()


TestSchedulerModel = SchedulerMachine.TestCase

programs = st.lists(st.tuples(delays, periods), min_size=1, max_size=6)


def runs_of(program, steps, seed):
    clock = VirtualClock(0)
    scheduler = DeterministicScheduler(clock, seed)
    scheduler.start()
    runs = []
    for number, (delay, period) in enumerate(program):
        scheduler.schedule(
            f"task {number}",
            lambda number=number: runs.append((clock.now_ms(), number)),
            delay_ms=delay,
            period_ms=period,
        )
    for ms in steps:
        clock.advance(ms=ms)
    return runs


@given(programs, st.lists(st.integers(0, 60), min_size=1, max_size=8), st.none() | st.integers())
def test_many_small_steps_of_time_are_one_large_one(program, steps, seed):
    assert runs_of(program, steps, seed) == runs_of(program, [sum(steps)], seed)


@given(programs, st.integers(0, 200), st.integers())
def test_seeds_change_only_the_order_of_equal_times(program, ms, seed):
    plain, shuffled = runs_of(program, [ms], None), runs_of(program, [ms], seed)
    assert [time_ms for time_ms, _ in shuffled] == [time_ms for time_ms, _ in plain]
    assert sorted(shuffled) == sorted(plain)
