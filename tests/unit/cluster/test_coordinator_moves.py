"""Coordinators that fail, or lose their partition, while they wait for replicas."""

import logging

import pytest

from logstore import Cluster, VirtualClock
from logstore.cluster.coordination import ClusterHost
from logstore.coordinator.transactions.state import TransactionVersion
from logstore.errors import (
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
)
from logstore.names import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from tests.unit.cluster.test_coordinators import CONFIG, TIMEOUT_MS, Client, T, values

V0, V2 = TransactionVersion.V0, TransactionVersion.V2
IDS = ("a", "c")  # in the same partition


@pytest.fixture
def cluster():
    config = {**CONFIG, "transaction.state.log.num.partitions": 1}
    with Cluster(clock=VirtualClock(), broker_config=config, seed=1) as cluster:
        cluster.create_topic("t", 3, replication_factor=3)
        yield cluster


@pytest.fixture
def clients(cluster):
    return [Client(cluster, each) for each in IDS]


def begin(client, tp, value):
    client.init()
    client.add(tp)
    client.send(tp, value)


def prepare(clients, coordinator, monkeypatch):
    """Let clients commit a transaction each, of which only the decision is written."""
    with monkeypatch.context() as patch:
        patch.setattr(coordinator, "_complete", lambda metadata: metadata)
        for client in clients:
            begin(client, T[0], b"1")
            client.end()
    states = coordinator.transactions().values()
    assert {each.state.kafka_name for each in states} == {"PrepareCommit"}


def at_next_wait(monkeypatch, action, topic=TRANSACTION_STATE_TOPIC, *, skipped=0):
    """Run an action after the next wait of a coordinator for the replicas of a topic."""
    await_replicated = ClusterHost.await_replicated
    left = skipped

    def wait(host, written):
        nonlocal left
        await_replicated(host, written)
        if {log.topic_partition.topic for log in written} == {topic}:
            left -= 1
            if left == -1:
                action()

    monkeypatch.setattr(ClusterHost, "await_replicated", wait)


def move(cluster, to):
    cluster.move_leader(TRANSACTION_STATE_TOPIC, 0, to=to)


def test_of_two_timed_out_transactions_the_second_is_aborted_by_the_next_leader(
    cluster, clients, monkeypatch
):
    for client in clients:
        begin(client, T[0], b"1")
    leader = cluster.transaction_coordinator("a")
    coordinator = cluster.brokers[leader].coordinator
    cluster.clock.advance(ms=TIMEOUT_MS)
    at_next_wait(monkeypatch, lambda: move(cluster, (leader + 1) % 3))
    coordinator.abort_timed_out()
    cluster.clock.advance(minutes=1)
    states = cluster.brokers[(leader + 1) % 3].coordinator.transactions()
    assert [states[each].state.kafka_name for each in IDS] == ["CompleteAbort"] * 2
    assert values(cluster, T[0]) == []


def test_an_old_decision_does_not_end_the_next_transaction(cluster, clients, monkeypatch):
    """Two transactions are to be completed; during the first, the second is, and another begins."""
    leader = cluster.transaction_coordinator("a")
    coordinator = cluster.brokers[leader].coordinator
    prepare(clients, coordinator, monkeypatch)

    def use_another_leader():
        move(cluster, (leader + 1) % 3)
        cluster.clock.advance(ms=1)
        clients[1].add(T[0])
        clients[1].send(T[0], b"2")
        move(cluster, leader)
        cluster.clock.advance(ms=1)

    at_next_wait(monkeypatch, use_another_leader)
    coordinator.abort_timed_out()
    cluster.clock.advance(seconds=1)
    clients[1].end(commit=False)
    assert values(cluster, T[0]) == [b"1", b"1"]


def test_a_state_from_before_two_moves_is_not_stored(cluster, clients, monkeypatch):
    """A client repeats EndTxn elsewhere and begins another transaction during the flush."""
    client = clients[0]
    begin(client, T[0], b"1")
    leader = cluster.transaction_coordinator("a")
    leader_log = ClusterHost.leader_log

    def use_another_leader(host, tp):
        monkeypatch.setattr(ClusterHost, "leader_log", leader_log)
        move(cluster, (leader + 1) % 3)
        client.end()
        client.add(T[0])
        client.send(T[0], b"2")
        move(cluster, leader)
        cluster.clock.advance(ms=1)
        assert client.coordinator.describe("a").state.kafka_name == "Ongoing"  # loads the states
        return leader_log(host, tp)

    monkeypatch.setattr(ClusterHost, "leader_log", use_another_leader)
    with pytest.raises(NotCoordinatorError):
        client.coordinator.end_transaction("a", client.producer, commit=True)
    move(cluster, (leader + 1) % 3)  # whose coordinator reads the states
    client.end(commit=False)
    assert values(cluster, T[0]) == [b"1"]


def test_a_marker_of_a_decision_from_before_two_moves_is_not_written(cluster, clients, monkeypatch):
    client = clients[0]
    leader = cluster.transaction_coordinator("a")
    coordinator = cluster.brokers[leader].coordinator
    prepare([client], coordinator, monkeypatch)

    def use_another_leader(metadata):
        monkeypatch.undo()
        move(cluster, (leader + 1) % 3)
        cluster.clock.advance(ms=1)
        client.add(T[0])
        client.send(T[0], b"2")
        move(cluster, leader)
        cluster.clock.advance(ms=1)
        return coordinator._complete(metadata)

    monkeypatch.setattr(coordinator, "_complete", use_another_leader)
    coordinator.complete_prepared()
    client.end(commit=False)
    assert values(cluster, T[0]) == [b"1"]


def test_a_marker_of_a_former_coordinator_is_refused_without_an_error(
    cluster, clients, monkeypatch, caplog
):
    client = clients[0]
    client.init()
    for tp in T:
        client.add(tp)
        client.send(tp, b"1")
    leader = cluster.transaction_coordinator("a")
    # After the first marker, the next leader writes all of them.
    at_next_wait(monkeypatch, lambda: move(cluster, (leader + 1) % 3), topic="t")
    client.end()
    cluster.clock.advance(seconds=1)
    assert [values(cluster, tp) for tp in T] == [[b"1"]] * 3
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


def test_a_broker_is_killed_while_it_takes_over(cluster, clients, monkeypatch, caplog):
    leader = cluster.transaction_coordinator("a")
    broker = cluster.brokers[leader]
    prepare(clients, broker.coordinator, monkeypatch)
    at_next_wait(monkeypatch, lambda: cluster.kill(leader))
    broker._host.take_over(TRANSACTION_STATE_TOPIC, GROUP_OFFSETS_TOPIC)
    cluster.clock.advance(seconds=1)
    assert values(cluster, T[0]) == [b"1", b"1"]
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("version", (V0, V2))
def test_a_repeated_addition_of_a_partition_waits_for_the_replicas_too(cluster, clients, version):
    client = clients[0]
    client.init()
    leader = cluster.transaction_coordinator("a")
    cluster.disconnect({leader}, {each for each in range(3) if each != leader})
    for _ in range(2):
        with pytest.raises(CoordinatorNotAvailableError):
            client.coordinator.add_partitions("a", client.producer, T[:1], version)
    cluster.heal()
    client.coordinator.add_partitions("a", client.producer, T[:1], version)
    cluster.kill(leader)
    cluster.clock.advance(seconds=1)
    assert client.coordinator.describe("a").partitions == {T[0]}


def test_a_broker_is_killed_while_it_completes_transactions_in_the_background(
    cluster, clients, monkeypatch
):
    leader = cluster.transaction_coordinator("a")
    coordinator = cluster.brokers[leader].coordinator
    prepare(clients, coordinator, monkeypatch)
    at_next_wait(monkeypatch, lambda: cluster.kill(leader))
    coordinator._abort_in_background()
    cluster.clock.advance(seconds=1)
    assert values(cluster, T[0]) == [b"1", b"1"]


def test_a_producer_is_not_initialized_with_a_state_from_before_two_moves(
    cluster, clients, monkeypatch
):
    client = clients[0]
    begin(client, T[0], b"1")
    former, leader = client.producer, cluster.transaction_coordinator("a")

    def move_and_return():
        for to in ((leader + 1) % 3, leader):
            move(cluster, to)
            cluster.clock.advance(ms=1)

    at_next_wait(monkeypatch, move_and_return, skipped=1)  # after the decision to abort
    with pytest.raises(ConcurrentTransactionsError):
        client.coordinator.init_producer_id("a", TIMEOUT_MS)
    client.init()
    assert client.producer == (former.producer_id, former.producer_epoch + 2)
    assert values(cluster, T[0]) == []
