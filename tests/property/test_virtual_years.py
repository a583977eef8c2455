"""Advancing time in one step, in many, or with every periodic run has the same result."""

import hypothesis.strategies as st
from hypothesis import given, settings

from logstore import Broker, TopicPartition, VirtualClock
from logstore.runtime import DeterministicScheduler, MemoryFileSystem
from tests.support.world.golden_dirs import tree

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS

# --- tasks --------------------------------------------------------------------------------------


class Work:
    """A periodic task with work at some times, and the times when others want it to run."""

    def __init__(self, world, number, plan):
        self.world = world
        self.number = number
        self.delay_ms, self.period_ms, times_ms, self.wakes = plan
        self.moments = sorted(times_ms)
        self.is_wanted = False
        self.task = None

    def run(self):
        now_ms = self.world.clock.now_ms()
        due = [each for each in self.moments if each <= now_ms]
        if not due and not self.is_wanted:
            return
        self.moments = self.moments[len(due) :]
        self.is_wanted = False
        self.world.journal.append((now_ms, self.number, len(due)))
        if self.wakes is not None:
            self.world.want(self.wakes)

    def idle_ms(self):
        return self.moments[0] - self.world.clock.now_ms() if self.moments else None


class World:
    """Tasks of a plan; they sleep while idle, or never."""

    def __init__(self, plans, *, sleep):
        self.clock = VirtualClock(0)
        self.scheduler = DeterministicScheduler(self.clock)
        self.scheduler.start()
        self.journal = []
        self.works = [Work(self, number, plan) for number, plan in enumerate(plans)]
        for work in self.works:
            work.task = self.scheduler.schedule(
                f"task {work.number}",
                work.run,
                delay_ms=work.delay_ms,
                period_ms=work.period_ms,
                idle_ms=work.idle_ms if sleep else None,
            )

    def want(self, number):
        work = self.works[number % len(self.works)]
        work.is_wanted = True
        work.task.wake()

    def live(self, steps):
        for step_ms, wanted in steps:
            self.clock.advance(ms=step_ms)
            self.scheduler._check()
            if wanted is not None:
                self.journal.append((self.clock.now_ms(), "wanted", wanted))
                self.want(wanted)
        return self.journal


plans = st.lists(
    st.tuples(
        st.integers(0, 12),
        st.integers(1, 12),
        st.lists(st.integers(0, 150), max_size=3),
        st.none() | st.integers(0, 3),
    ),
    min_size=1,
    max_size=4,
)
steps = st.lists(st.tuples(st.integers(0, 60), st.none() | st.integers(0, 3)), max_size=6)


@given(plans, steps)
def test_sleeping_tasks_do_the_same_work_in_the_same_order(plans, steps):
    awake = World(plans, sleep=False).live(steps)
    assert World(plans, sleep=True).live(steps) == awake


@given(plans, steps)
def test_one_step_equals_many(plans, steps):
    small = [
        (ms, wanted if last else None)
        for step_ms, wanted in steps
        for ms, last in [*[(1, False)] * step_ms, (0, True)]
    ]
    assert World(plans, sleep=True).live(small) == World(plans, sleep=True).live(steps)


# --- a broker -----------------------------------------------------------------------------------

CONFIG = {
    "log.retention.check.interval.ms": str(7 * MINUTE_MS),
    "log.flush.scheduler.interval.ms": str(10 * MINUTE_MS),
    "log.flush.offset.checkpoint.interval.ms": str(9 * MINUTE_MS),
    "log.flush.start.offset.checkpoint.interval.ms": str(11 * MINUTE_MS),
    "log.index.size.max.bytes": "4000",
    "transaction.state.log.num.partitions": "1",
    "transactional.id.expiration.ms": str(12 * HOUR_MS),
    "producer.id.expiration.ms": str(6 * HOUR_MS),
}
KEPT = {"retention.ms": str(8 * HOUR_MS), "segment.bytes": "300", "flush.ms": str(45 * MINUTE_MS)}


def append(broker, topic, count):
    for number in range(count):
        broker.append(topic, value=b"v" * 20, key=b"k%d" % (number % 3))


def transact(broker):
    producer = broker.producer(transactional_id="x", transaction_timeout_ms=MINUTE_MS)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("kept", b"v", b"k")  # and no end


ACTIONS = {
    "append": lambda broker: append(broker, "kept", 7),
    "append compacted": lambda broker: append(broker, "table", 7),
    "roll": lambda broker: broker.roll("kept"),
    "flush": lambda broker: broker.log("kept").flush(),
    "delete": lambda broker: broker.delete_records({TopicPartition("kept", 0): -1}),
    "transact": transact,
    "alter": lambda broker: broker.alter_configs("kept", {"retention.ms": str(20 * HOUR_MS)}),
    "recreate": lambda broker: (broker.delete_topic("kept"), broker.create_topic("kept", 1, KEPT)),
}
story = st.lists(
    st.tuples(st.integers(0, 20 * 60), st.sampled_from(sorted(ACTIONS))),
    min_size=1,
    max_size=4,
)


def run_story(story, split, *, sleep=True):
    """Return the files, with their times, and the state after a story."""
    clock = VirtualClock()
    fs = MemoryFileSystem(clock)
    broker = Broker("/data", fs=fs, clock=clock, seed=1, broker_config=CONFIG, background=True)
    if not sleep:
        for task in [*broker.runtime.scheduler._asleep, *all_tasks(broker)]:
            task._idle_ms = None
    broker.create_topic("kept", 1, KEPT)
    broker.create_topic("table", 1, {**KEPT, "cleanup.policy": "compact,delete"})
    for minutes, action in [*story, (40 * 60, "flush")]:
        for part in range(split):
            clock.advance(
                ms=(part + 1) * minutes * MINUTE_MS // split - part * minutes * MINUTE_MS // split
            )
        ACTIONS[action](broker)
    files = {
        # Rewriting a checkpoint with equal contents is not a change.
        name: (data, None if "-checkpoint" in name else fs.stat(f"/data/{name}").mtime_ms)
        for name, data in tree(fs, "/data").items()
    }
    state = [
        (log.topic_partition, log.offsets.checkpoint(), sorted(log.producer_state._producers))
        for log in broker.manager.registry.open_logs()
    ]
    transactions = sorted(broker.coordinator.transactions())
    broker.close()
    return files, state, transactions


def all_tasks(broker):
    return [entry[-1] for entry in broker.runtime.scheduler._queue]


@settings(max_examples=4)
@given(story)
def test_a_broker_in_one_step_equals_one_in_many_and_one_that_never_sleeps(story):
    """Equal files, modification times and state."""
    once = run_story(story, 1)
    assert run_story(story, 3) == once
    assert run_story(story, 1, sleep=False) == once


def test_four_thousand_days_run_no_idle_task():
    clock = VirtualClock()
    with Broker(clock=clock, background=True) as broker:
        broker.create_topic("table", configs={"cleanup.policy": "compact,delete"})
        broker.create_topic("kept")
        for topic in ("table", "kept"):
            broker.append(topic, value=b"v", key=b"k")
        tasks = all_tasks(broker)
        clock.advance(days=4000)
        assert list(broker.read("kept")) == []
        assert len(tasks) > 5
        assert sum(task.runs for task in tasks) < 100
