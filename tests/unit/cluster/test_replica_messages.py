"""Messages between replicas: whole responses, and their receivers."""

import pytest

from logstore import Cluster, TopicPartition, VirtualClock
from logstore.cluster.messages import EpochRequest, EpochResponse, FetchRequest, FetchResponse
from logstore.cluster.replicas import Replicas
from tests.support.world.locks import HeldLock
from tests.unit.cluster.replicas import settle

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOT_LEADER = "NOT_LEADER_OR_FOLLOWER"


@pytest.fixture
def cluster():
    """Return brokers 0, 2 and 3 with replicas of two partitions; broker 1 has none.

    Broker 2 leads `t-1`, with two records of epoch 0 and one of epoch 2.
    """
    with Cluster(4, clock=VirtualClock(), seed=1) as cluster:
        cluster.create_topic("t", 2, assignment=[(0, 2, 3), (2, 0, 3)])
        for value in (b"1", b"2"):
            cluster.append(T1, value=value)
        for leader in (0, 2):
            cluster.move_leader(T1, to=leader)
            settle(cluster)
        cluster.append(T1, value=b"3")
        settle(cluster)
        assert cluster.state(T1).leader_epoch == 2
        yield cluster


@pytest.fixture
def responses(monkeypatch):
    """Record (receiver, partition, response) instead of handling a response."""
    received = []

    def record(self, tp, answer):
        received.append((self.broker_id, tp, answer))

    monkeypatch.setattr(Replicas, "on_fetch_response", record)
    monkeypatch.setattr(Replicas, "on_epoch_response", record)
    return received


@pytest.mark.parametrize(
    ("broker", "leader_epoch", "epoch", "expected"),
    (
        (2, 2, 0, EpochResponse(77, None, 0, 2)),
        (2, 2, 1, EpochResponse(77, None, 0, 2)),
        (2, 2, 2, EpochResponse(77, None, 2, 3)),
        (2, 2, 3, EpochResponse(77, None, -1, -1)),
        (2, 1, 0, EpochResponse(77, "FENCED_LEADER_EPOCH", -1, -1)),
        (2, 3, 0, EpochResponse(77, "UNKNOWN_LEADER_EPOCH", -1, -1)),
        (0, 2, 0, EpochResponse(77, NOT_LEADER, -1, -1)),
        (1, 2, 0, EpochResponse(77, NOT_LEADER, -1, -1)),
    ),
)
def test_the_end_of_an_epoch(cluster, responses, broker, leader_epoch, epoch, expected):
    """A follower, and a broker without a replica, answer that they are not the leader."""
    cluster.replicas(broker).on_epoch(T1, EpochRequest(3, 77, leader_epoch, epoch))
    settle(cluster)
    assert responses == [(3, T1, expected)]


@pytest.mark.parametrize(
    ("broker", "leader_epoch", "error"),
    (
        (2, 1, "FENCED_LEADER_EPOCH"),
        (2, 3, "UNKNOWN_LEADER_EPOCH"),
        (0, 2, NOT_LEADER),
        (1, 2, NOT_LEADER),
    ),
)
def test_a_fetch_that_is_refused(cluster, responses, broker, leader_epoch, error):
    number = cluster.network.number()
    cluster.replicas(broker).on_fetch(T1, FetchRequest(3, number, leader_epoch, 0, 0, None))
    settle(cluster)
    assert responses == [(3, T1, FetchResponse(number, error, b"", -1, -1, -1))]


@pytest.mark.parametrize(
    ("offset", "is_in_range"), ((0, False), (1, True), (2, True), (3, True), (4, False))
)
def test_a_fetch_at_both_ends_of_the_log(cluster, responses, offset, is_in_range):
    cluster.delete_records({T1: 1})
    settle(cluster)
    responses.clear()
    log, number = cluster.brokers[2].log(T1), cluster.network.number()
    cluster.replicas(2).on_fetch(T1, FetchRequest(3, number, 2, offset, 0, None))
    settle(cluster)
    if is_in_range:
        data = b"".join(bytes(each.data) for each in log.reader.batches(offset))
        expected = FetchResponse(number, None, data, high_watermark=3, log_start_offset=1)
    else:
        expected = FetchResponse(number, "OFFSET_OUT_OF_RANGE", b"", -1, 1, 3)
    assert responses == [(3, T1, expected)]


def test_only_a_request_that_overtook_no_newer_one_is_answered(cluster, responses):
    older, newer = cluster.network.number(), cluster.network.number()
    leader = cluster.replicas(2)
    for number in (newer, older, newer):
        leader.on_fetch(T1, FetchRequest(3, number, 2, 2, 0, None))
    settle(cluster)
    assert [answer.number for _, _, answer in responses] == [newer, newer]


def test_nothing_is_answered_to_a_replica_that_was_removed(cluster, responses):
    cluster.replicas(2).on_fetch(T1, FetchRequest(1, cluster.network.number(), 2, 0, 0, None))
    settle(cluster)
    assert responses == []


@pytest.mark.parametrize("heard", (None, (3, 0), (2, 0), (3, 1)))
def test_a_fetch_at_the_end_waits_while_the_follower_knows_the_offsets(cluster, responses, heard):
    number = cluster.network.number()
    cluster.replicas(2).on_fetch(T1, FetchRequest(3, number, 2, 3, 0, heard))
    settle(cluster)
    at_once = [] if heard == (3, 0) else [(3, T1, FetchResponse(number, None, b"", 3, 0))]
    assert responses == at_once


# -- locks -----------------------------------------------------------------------------------------


def test_replicas_are_created_changed_and_deleted_by_one_thread_at_a_time(cluster, monkeypatch):
    """Otherwise a thread with an older state would undo the work of one with a newer state."""
    lock = cluster._applying = HeldLock(cluster._applying)
    unlocked, called = [], set()

    def watch(owner, name):
        method = getattr(owner, name)

        def check(*arguments, **options):
            called.add(name)
            if not lock.depth:
                unlocked.append(name)
            return method(*arguments, **options)

        monkeypatch.setattr(owner, name, check)

    methods = {Replicas: ("apply", "store_epochs", "forget")}
    methods[Cluster] = ("_host", "_host_moved", "_delete_on", "_drop", "_delete_stray_replicas")
    for owner, names in methods.items():
        for name in names:
            watch(owner, name)
    cluster.stop(2)
    cluster.create_topic("u", replication_factor=2)
    cluster.create_partitions("u", 2)
    cluster.alter_configs("u", {"retention.ms": "5"})
    cluster.delete_topic("u")
    cluster.restart(2)
    settle(cluster)
    cluster.move_leader(T0, to=2)
    cluster.reassign(T1, replicas=[1, 2])
    assert cluster.run_until(lambda: not cluster.reassignments(), timeout=60_000)
    cluster.clock.advance(minutes=1)
    assert (unlocked, called) == ([], {name for names in methods.values() for name in names})
