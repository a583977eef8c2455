"""A broker that nobody uses wakes for nothing, however many partitions it has."""

from logstore import Broker, VirtualClock
from logstore.runtime.deterministic import DeterministicScheduler

PARTITIONS = 100


def test_days_in_which_nothing_can_be_due_run_no_task(monkeypatch):
    runs = []
    run = DeterministicScheduler._run
    monkeypatch.setattr(
        DeterministicScheduler, "_run", lambda self, task: (runs.append(task.name), run(self, task))
    )
    with Broker(clock=VirtualClock(), background=True) as broker:
        broker.create_topic("t", PARTITIONS, {"cleanup.policy": "compact"})
        for partition in range(PARTITIONS):
            broker.append("t", key=b"k", value=b"v", partition=partition)
        broker.clock.advance(days=1)
        assert 0 < len(runs) <= 12  # each task reads the appended records once
        del runs[:]
        broker.clock.advance(days=5)
        assert runs == []
        broker.append("t", key=b"k", value=b"w", partition=7)
        broker.clock.advance(days=1)
        assert 0 < len(runs) <= 12
