"""The clean command: what its threads share is only used under its lock."""

import pytest

from logstore import Broker, VirtualClock
from logstore.cleaner.command import CleanCommand
from logstore.types import TopicPartition
from tests.support.world.locks import GuardedDict, HeldLock


@pytest.fixture
def broker():
    with Broker(clock=VirtualClock(), seed=1) as broker:
        for name in ("a", "b", "c"):
            broker.create_topic(name, configs={"cleanup.policy": "compact", "segment.bytes": 300})
            for number in range(20):
                broker.append(name, key=b"k%d" % (number % 3), value=b"v%d" % number)
        yield broker


class GuardedList(list):
    def __init__(self, lock):
        super().__init__()
        self.lock = lock

    def append(self, item):
        assert self.lock.depth, "the lock is not held"
        super().append(item)


@pytest.mark.parametrize("threads", (1, 2))
def test_the_results_and_the_logs_that_are_due_change_under_the_lock(broker, threads):
    held = []
    command = CleanCommand(
        broker.cleaner, force=True, threads=threads, progress=lambda *_: held.append(lock.depth)
    )
    lock = command._lock = HeldLock(command._lock)
    command._cleaned, command._not_cleaned = GuardedList(lock), GuardedList(lock)
    command._passes, command._passes_needed = GuardedDict(lock), GuardedDict(lock)
    consider, take = command._consider, command._take

    def checked_consider(log):
        assert lock.depth or not command._busy, "a log is considered without the lock"
        consider(log)

    def checked_take():
        before = lock.entered
        log = take()
        assert (lock.entered, lock.depth) == (before + 1, 0)
        assert log is None or log in command._busy
        return log

    command._consider, command._take = checked_consider, checked_take
    logs = [broker.log(name) for name in ("c", "a", "b")]
    report = command.run(logs)
    assert sorted(each.topic_partition.topic for each in report.cleaned) == ["a", "b", "c"]
    assert report.passes_needed == {TopicPartition(name, 0): 1 for name in ("a", "b", "c")}
    assert (report.not_cleaned, report.dry_run) == ((), False)
    assert set(held) == {1}
    assert command._busy == set()
    assert command._due == {}


def test_a_topic_that_is_deleted_during_the_run_is_left_out(broker):
    def delete(tp, _):
        if tp.topic == "a" and "b" in [topic.name for topic in broker.topics()]:
            broker.delete_topic("b")
            command._due = GuardedDict(lock, command._due)

    command = CleanCommand(broker.cleaner, force=True, progress=delete)
    lock = command._lock = HeldLock(command._lock)
    report = command.run([broker.log(name) for name in ("a", "b", "c")])
    assert [each.topic_partition.topic for each in report.cleaned] == ["a", "c"]
    assert report.not_cleaned == ()
    assert command._due == {}
    assert command._busy == set()
