"""Quotas of replication, completions of appends, and links: each by itself, in virtual time."""

from contextlib import nullcontext

import pytest

from logstore import Cluster, TopicPartition, VirtualClock
from logstore.cluster.network import Network
from logstore.cluster.requests import Completion
from logstore.runtime import Runtime
from tests.support.world.locks import HeldLock
from tests.support.world.messages import exactly

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster():
    with Cluster(3, clock=VirtualClock(), seed=1) as cluster:
        cluster.create_topic("t", 2, replication_factor=3)
        yield cluster


@pytest.fixture
def runtime():
    runtime = Runtime(VirtualClock())
    runtime.scheduler.start()
    yield runtime
    runtime.scheduler.shutdown()


# -- quotas ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ("leader", "follower"))
def test_a_quota_applies_to_the_listed_replicas(cluster, side):
    replicas = cluster.replicas(0)
    quotas = {"leader": replicas.leader_quota, "follower": replicas.follower_quota}
    quota = quotas.pop(side)
    (other,) = quotas.values()
    pairs = [(tp, number) for tp in (T0, T1) for number in range(3)]

    def throttled(quota):
        return [(tp.partition, number) for tp, number in pairs if quota.applies_to(tp, number)]

    assert throttled(quota) == []
    key = f"{side}.replication.throttled.replicas"
    cluster.alter_configs("t", {key: "0:1,1:2"})
    assert throttled(quota) == [(0, 1), (1, 2)]
    cluster.alter_configs("t", {key: "*"})
    assert throttled(quota) == [(tp.partition, number) for tp, number in pairs]
    assert throttled(other) == []
    assert not quota.applies_to(TopicPartition("x", 0), 0)


@pytest.mark.parametrize("side", ("leader", "follower"))
def test_a_transfer_waits_until_the_average_is_within_the_rate(cluster, side):
    replicas = cluster.replicas(1)
    quota = replicas.leader_quota if side == "leader" else replicas.follower_quota
    key = f"{side}.replication.throttled.rate"
    quota.spend(10**9)
    assert quota.delay_ms() == 0, "the rate is not set yet"
    cluster.alter_broker_configs({key: "1000"})
    assert quota.delay_ms() == 0
    cluster.clock.advance(hours=1)
    quota.spend(500)
    assert quota.delay_ms() == 500
    cluster.clock.advance(ms=200)
    assert quota.delay_ms() == 300
    quota.spend(100)
    assert quota.delay_ms() == 400
    cluster.clock.advance(ms=400)
    assert quota.delay_ms() == 0
    cluster.clock.advance(hours=1)
    quota.spend(100)
    assert quota.delay_ms() == 100, "an idle hour saves nothing"
    cluster.alter_broker_configs({key: "2000"}, brokers=[1])
    quota.spend(100)
    assert quota.delay_ms() == 150, "the rate of the broker precedes the one of the cluster"
    cluster.clock.advance(hours=1)
    cluster.alter_broker_configs({key: "0"}, brokers=[1])
    quota.spend(3)
    assert quota.delay_ms() == 3000, "one byte per second is the least"
    assert cluster.replicas(2).leader_quota.delay_ms() == 0


# -- completions -----------------------------------------------------------------------------------


class Delayed:
    """An append that completes when the test says so."""

    def __init__(self):
        self.is_complete = False
        self.checks = 0
        self.listeners = []

    def is_done(self):
        self.checks += 1
        return self.is_complete

    def subscribe(self, listener):
        self.listeners.append(listener)

        def unsubscribe():
            if listener in self.listeners:
                self.listeners.remove(listener)

        return unsubscribe

    def complete(self):
        self.is_complete = True
        for listener in list(self.listeners):
            listener()


def completion(runtime, delayed, timeout_ms=1000):
    """Return the calls; each has the number of times that the lock had been acquired."""
    calls, lock = [], HeldLock(nullcontext())
    Completion(runtime.scheduler, lock, delayed, lambda: calls.append(lock.entered), timeout_ms)
    return calls


@pytest.mark.parametrize("count", (0, 2))
def test_a_completion_of_what_is_done_is_immediate(runtime, count):
    delayed = [Delayed() for _ in range(count)]
    for each in delayed:
        each.is_complete = True
    calls = completion(runtime, delayed)
    assert calls == [1]
    assert [each.listeners for each in delayed] == [[]] * count
    runtime.clock.advance(hours=1)
    assert calls == [1]


def test_a_completion_waits_for_all_and_calls_once(runtime):
    first, second = delayed = [Delayed(), Delayed()]
    calls = completion(runtime, delayed)
    first.complete()
    first.complete()
    runtime.clock.advance(ms=1)
    assert (calls, first.checks) == ([], 2)
    second.complete()
    assert calls == [], "the call is made in a task"
    runtime.clock.advance(ms=0)
    assert calls == [1]
    assert first.listeners == second.listeners == []
    runtime.clock.advance(hours=1)
    assert calls == [1]


def test_a_completion_that_ends_while_it_subscribes_keeps_no_subscription():
    """Another thread runs the task that the first subscription causes."""

    class Scheduler:
        def schedule(self, name, action, *, delay_ms=0):
            if not delay_ms:
                action()
            return self

        def cancel(self):
            """Do nothing."""

    class Complete(Delayed):
        def subscribe(self, listener):
            unsubscribe = super().subscribe(listener)
            self.complete()
            return unsubscribe

    first, second = delayed = [Complete(), Delayed()]
    second.is_complete = True
    calls = []
    Completion(Scheduler(), nullcontext(), delayed, lambda: calls.append(1), 1000)
    assert (calls, first.listeners, second.listeners) == ([1], [], [])


def test_a_completion_ends_at_its_timeout(runtime):
    delayed = [Delayed()]
    calls = completion(runtime, delayed, 1000)
    runtime.clock.advance(ms=999)
    assert calls == []
    runtime.clock.advance(ms=1)
    assert (calls, delayed[0].listeners) == ([1], [])
    delayed[0].complete()
    runtime.clock.advance(hours=1)
    assert calls == [1]


# -- links -----------------------------------------------------------------------------------------


def test_links(runtime):
    clock = runtime.clock
    network, arrived, healed = Network(clock, runtime.scheduler), [], []
    network.healed.subscribe(lambda: healed.append(clock.monotonic_ms() - start_ms))
    start_ms = clock.monotonic_ms()

    def send(source, target):
        name = f"{source}{target}"
        network.send(
            source,
            target,
            name,
            lambda: arrived.append((name, clock.monotonic_ms() - start_ms)),
        )

    network.slow(0, 1, 50)
    network.slow(2, 0, 80)
    send(0, 1)
    send(1, 0)
    send(0, 2)
    send(1, 2)
    clock.advance(ms=60)
    assert arrived == [("12", 0), ("01", 50), ("10", 50)]
    network.disconnect({0}, {0, 2})
    clock.advance(ms=10)
    network.disconnect({2, 1}, {0})
    send(2, 0)
    send(1, 2)
    send(2, 2)
    clock.advance(ms=30)
    assert arrived[3:] == [("12", 70), ("22", 70)], "messages in flight are lost"
    cut = [network.cut_since_ms(*each) for each in ((0, 2), (2, 0), (0, 1), (1, 2), (0, 0))]
    assert cut == [start_ms + 60, start_ms + 60, start_ms + 70, None, None]
    assert healed == []
    network.heal()
    assert healed == [100]
    send(0, 1)
    send(0, 2)
    clock.advance(ms=100)
    assert arrived[5:] == [("01", 100), ("02", 100)], "nothing that was sent over a cut link"
    assert network.cut_since_ms(0, 2) is None
    assert [network.number() for _ in range(3)] == [1, 2, 3]
    with pytest.raises(ValueError, match=exactly("delay_ms must not be negative: -1")):
        network.slow(0, 1, -1)
