"""Which calls of the group coordinator hold its lock, let offsets expire, and wait for replicas."""

import pytest

from logstore.coordinator.groups.calls import ExclusiveCalls
from logstore.coordinator.groups.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from logstore.coordinator.groups.requests import (
    ConsumerHeartbeat,
    JoinRequest,
    LeavingMember,
    SyncRequest,
)
from logstore.types import TopicPartition
from tests.support.world.groups import GroupBench

T0 = TopicPartition("t", 0)
OFFSETS = {T0: OffsetAndMetadata(1, "")}

HEARTBEAT = ConsumerHeartbeat("h", "m", 0, rebalance_timeout_ms=1, owned={}, topics=("t",))
JOIN = JoinRequest("j", "consumer", (("range", b""),), 10_000, 10_000)

EXPIRES = (True, False)
WAITS = (True, True)
ONLY_LOCKS = (False, False)

CALLS = {
    "consumer_heartbeat": (lambda g: g.consumer_heartbeat(HEARTBEAT, print), EXPIRES),
    "join": (lambda g: g.join(JOIN, print), EXPIRES),
    "sync": (lambda g: g.sync(SyncRequest("g", 1, "m"), print), EXPIRES),
    "heartbeat": (lambda g: g.heartbeat("g", 1, "m"), EXPIRES),
    "leave": (lambda g: g.leave("g", [LeavingMember("m")]), EXPIRES),
    "leave of an administrator": (
        lambda g: g.leave("g", [LeavingMember("m")], waits=True),
        WAITS,
    ),
    "commit": (lambda g: g.commit("g", OFFSETS), WAITS),
    "check_transactional": (
        lambda g: g.check_transactional(ConsumerGroupMetadata("g"), OFFSETS),
        EXPIRES,
    ),
    "check_epoch": (lambda g: g.check_epoch("g", (0, 0)), EXPIRES),
    "append_transactional": (lambda g: g.append_transactional("g", OFFSETS, (0, 0)), EXPIRES),
    "fetch": (lambda g: g.fetch("g"), WAITS),
    "check_fetch": (lambda g: g.check_fetch("g", "m", 1), EXPIRES),
    "committed": (lambda g: g.committed("g"), WAITS),
    "ensure_stored": (lambda g: g.ensure_stored(), EXPIRES),
    "partition_for": (lambda g: g.partition_for("g"), EXPIRES),
    "logs_with_open_transactions": (lambda g: g.logs_with_open_transactions(), EXPIRES),
    "describe": (lambda g: g.describe("g"), EXPIRES),
    "describe_consumer_group": (lambda g: g.describe_consumer_group("g"), EXPIRES),
    "list_groups": (lambda g: g.list_groups(), EXPIRES),
    "delete": (lambda g: g.delete(["g"]), WAITS),
    "delete_offsets": (lambda g: g.delete_offsets("g", [T0]), WAITS),
    "delete_offsets_of": (lambda g: g.delete_offsets_of([T0]), WAITS),
    "take_over": (lambda g: g.take_over(), EXPIRES),
    "remove_expired": (lambda g: g.remove_expired(), ONLY_LOCKS),
    "start": (lambda g: g.start(), EXPIRES),
    "stop": (lambda g: g.stop(), EXPIRES),
    "use_system_clock": (lambda g: g.use_system_clock(), ONLY_LOCKS),
}


@pytest.mark.parametrize("name", CALLS)
def test_each_call_is_one_exclusive_call(monkeypatch, name):
    bench = GroupBench()
    bench.broker.create_topic("t")
    bench.groups.ensure_stored()
    enter, made = ExclusiveCalls.__call__, []

    def record(calls, *, expires=True, waits=False):
        if calls._depth == 0:
            made.append((expires, waits))
        return enter(calls, expires=expires, waits=waits)

    call, expected = CALLS[name]
    with monkeypatch.context() as patched:
        patched.setattr(ExclusiveCalls, "__call__", record)
        call(bench.groups)
    assert made == [expected]
    bench.broker.close()


class Tasks:
    """A scheduler that only keeps its tasks."""

    def schedule(self, name, run, *, delay_ms, period_ms, idle_ms):
        self.task = name, run, delay_ms, period_ms, idle_ms


def test_periodic_tasks_and_timers_are_exclusive_calls(monkeypatch):
    intervals = {
        "offsets.retention.check.interval.ms": 7000,
        "group.initial.rebalance.delay.ms": 3000,
    }
    bench = GroupBench(**intervals)
    bench.broker.create_topic("t")
    bench.groups.commit("g", OFFSETS)
    member = bench.member()
    member.join()
    tasks = Tasks()
    bench.groups._expiry.start(tasks)
    name, run, delay_ms, period_ms, idle_ms = tasks.task
    assert (name, delay_ms, period_ms) == ("delete-expired-group-metadata", 7000, 7000)
    enter, made = ExclusiveCalls.__call__, []

    def record(calls, *, expires=True, waits=False):
        if calls._depth == 0:
            made.append((expires, waits))
        return enter(calls, expires=expires, waits=waits)

    monkeypatch.setattr(ExclusiveCalls, "__call__", record)
    run()
    assert made == [ONLY_LOCKS]
    made.clear()
    assert idle_ms() is None
    assert made == [EXPIRES]
    made.clear()
    assert member.joined is None
    bench.clock.advance(ms=3000)  # the first rebalance
    assert member.joined.error is None
    assert made == [EXPIRES]
    made.clear()
    bench.broker.delete_topic("t")
    assert made == [ONLY_LOCKS]
