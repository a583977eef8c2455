"""Threads of a cluster that overtake each other: states, deletions, appends and stops."""

import threading
from dataclasses import replace

import pytest

from logstore import Cluster, OffsetAndMetadata, TopicPartition, VirtualClock
from logstore.cluster.leadership import Leadership
from logstore.cluster.replicas import Replicas
from logstore.cluster.wire import ClusterListeners
from logstore.coordinator.groups.coordinator import GroupCoordinator
from logstore.coordinator.markers import write_markers
from logstore.errors import (
    FencedLeaderEpochError,
    IllegalStateError,
    NotLeaderForPartitionError,
)
from logstore.messages.types import (
    AlterPartitionReassignmentsRequest,
    DescribeQuorumRequest,
    WriteTxnMarkersRequest,
)
from tests.support.world.wire import Client

T = TopicPartition("t", 0)


@pytest.fixture
def cluster():
    with Cluster(4, clock=VirtualClock(), seed=1) as cluster:
        cluster.create_topic("t", assignment=[(0, 1)])
        yield cluster


def has_replica(cluster, broker):
    return cluster.brokers[broker].manager.registry.has(T)


def finish(cluster):
    assert cluster.run_until(lambda: not cluster.reassignments(), timeout=3600_000)


def test_a_follower_that_is_added_before_the_leader_knows_it_fetches_again(cluster):
    moving, _ = cluster.controller.reassign({T: [0, 1, 2]})  # by a thread that stops here
    cluster._host_moved(T)
    cluster._nodes[2].replicas.apply(moving)
    cluster.clock.advance(ms=1000)
    cluster._notify_brokers(moving)
    finish(cluster)
    assert cluster.state(T).isr == (0, 1, 2)


def test_an_idle_follower_rejoins_although_the_leader_did_not_know_the_newest_state(monkeypatch):
    with Cluster(3, clock=VirtualClock(), seed=1) as cluster:
        cluster.create_topic("t", assignment=[(0, 1, 2)])
        cluster.run_until(lambda: len(cluster.state(T).isr) == 3)
        cluster.kill(2)

        def alter_isr(known, isr):
            raise FencedLeaderEpochError("another thread has changed the state")

        with monkeypatch.context() as patch:
            patch.setattr(cluster.controller, "alter_isr", alter_isr)
            cluster.restart(2)
            cluster.clock.advance(ms=1000)
        assert cluster.state(T).isr == (0, 1)
        cluster.stop(1)  # the new state, which the other thread sends
        assert cluster.run_until(lambda: 2 in cluster.state(T).isr, timeout=10_000)


# -- moves -----------------------------------------------------------------------------------------


def test_a_state_that_is_sent_late_does_not_undo_a_newer_one(cluster):
    cluster.append(T, value=b"1")
    cluster.disconnect({0}, {2})
    cluster.reassign(T, replicas=[2, 0])
    cancelled, _ = cluster.controller.reassign({T: None})  # by a thread that stops here
    cluster.reassign(T, replicas=[2, 0])
    cluster._notify_brokers(cancelled)
    assert has_replica(cluster, 2)
    cluster.heal()
    finish(cluster)
    assert cluster.state(T).replicas == (2, 0)


def test_a_late_state_does_not_create_a_removed_replica(cluster):
    cluster.disconnect({0}, {2})
    moving, _ = cluster.controller.reassign({T: [2, 0]})  # by a thread that stops here
    cluster.reassign(T, replicas=None)
    cluster._notify_brokers(moving)
    assert not has_replica(cluster, 2)


def test_a_topic_is_deleted_when_a_move_has_just_ended(cluster, monkeypatch):
    """The former replicas, which do not know it yet, keep nothing for a topic of that name."""
    cluster.append(T, value=b"old")
    with monkeypatch.context() as patched:
        patched.setattr(Leadership, "_alter_isr", lambda *_: None)
        cluster.reassign(T, replicas=[2, 3])
        cluster.clock.advance(seconds=5)
        state = cluster.state(T)
        cluster.controller.alter_isr(state, state.replicas)  # the brokers learn it in a task
    assert cluster.state(T).replicas == (2, 3)
    cluster.delete_topic("t")
    assert not any(has_replica(cluster, broker) for broker in range(4))
    cluster.create_topic("t", assignment=[(0, 1)])
    cluster.append(T, value=b"new")
    cluster.clock.advance(seconds=5)
    for broker in (0, 1):
        assert [each.value for each in cluster.brokers[broker].read("t")] == [b"new"]


def test_a_deletion_ends_although_a_coordinator_ends(cluster, monkeypatch):
    for broker in cluster.brokers.values():
        assert broker.groups is not None
    delete, calls = GroupCoordinator.delete_offsets_of, []

    def ending(groups, partitions):
        calls.append(groups)
        if len(calls) == 1:
            cluster.kill(1)
        elif len(calls) == 2:
            raise IllegalStateError("the broker has ended")
        delete(groups, partitions)

    monkeypatch.setattr(GroupCoordinator, "delete_offsets_of", ending)
    cluster.delete_topic("t")
    assert len(calls) >= 3
    assert cluster.topics() == []


def test_fewer_replicas_must_all_be_in_sync(cluster):
    """As in Kafka; if there are not fewer, only the added ones must be."""
    cluster.reassign(T, replicas=[0, 1, 2])
    finish(cluster)
    cluster.kill(1)
    cluster.reassign(T, replicas=[1, 2])
    assert cluster.state(T).removing == (0,)
    cluster.clock.advance(minutes=1)
    assert cluster.state(T).is_moving
    cluster.restart(1)
    finish(cluster)
    assert cluster.state(T).replicas == (1, 2)
    cluster.kill(1)
    cluster.reassign(T, replicas=[0, 1, 2])
    finish(cluster)
    assert set(cluster.state(T).isr) == {0, 2}


# -- appends ---------------------------------------------------------------------------------------


def test_an_append_fails_if_its_leader_has_led_twice(cluster):
    replicas = cluster.replicas(0)
    role = replicas.check_append(T)
    offset = cluster.brokers[0].append(T, value=b"1").offset
    cluster.clock.advance(seconds=1)
    cluster.move_leader(T, to=1)
    cluster.clock.advance(seconds=1)
    cluster.move_leader(T, to=0)
    cluster.clock.advance(seconds=1)
    delayed = replicas.delayed_append(T, offset, role)
    assert delayed.is_done()
    assert isinstance(delayed.error, NotLeaderForPartitionError)


def test_a_marker_waits_in_the_role_before_it_was_appended(cluster):
    replicas, roles = cluster.replicas(0), []

    class Leader:
        def log(self, tp):
            return replicas.log(tp)

        def check_append(self, tp):
            role = replicas.check_append(tp)
            cluster.move_leader(T, to=1)
            cluster.clock.advance(seconds=1)
            cluster.move_leader(T, to=0)
            cluster.clock.advance(seconds=1)
            return role

        def delayed_append(self, tp, offset, role):
            roles.append(role)
            return replicas.delayed_append(tp, offset, role)

    kind = WriteTxnMarkersRequest
    topic = kind.WritableTxnMarkerTopic(name="t", partition_indexes=[0])
    marker = kind.WritableTxnMarker(
        producer_id=1, producer_epoch=0, transaction_result=True, topics=[topic]
    )
    before = replicas.role(T)
    _, delayed = write_markers(kind(markers=[marker]), Leader())
    assert roles == [before]
    (waiting,) = delayed.values()
    assert waiting.is_done()
    assert isinstance(waiting.error, NotLeaderForPartitionError)


# -- clients in the process ------------------------------------------------------------------------


def test_a_wrong_use_is_no_moving_coordinator(cluster, monkeypatch):
    consumer = cluster.brokers[0].consumer(group_id="g")
    consumer.commit({T: OffsetAndMetadata(1)})

    def refuse(*_, **__):
        raise IllegalStateError("this thread cleans the partition")

    monkeypatch.setattr(GroupCoordinator, "fetch", refuse)
    began_ms = cluster.clock.now_ms()
    with pytest.raises(IllegalStateError, match="cleans"):
        consumer.committed(T)
    assert cluster.clock.now_ms() == began_ms


def test_no_listener_of_a_deleted_partition_is_called_under_a_lock(cluster):
    manager = cluster.brokers[1].manager
    waits = []

    def take():
        with manager.topics._lock:
            pass

    def listener():
        thread = threading.Thread(target=take)
        thread.start()
        thread.join(5)
        waits.append(thread.is_alive())

    manager.services.events.topic_deleted.subscribe(listener)
    cluster.reassign(T, replicas=[0])
    assert not has_replica(cluster, 1)
    assert waits == [False]


# -- over the wire ---------------------------------------------------------------------------------


def test_a_quorum_is_described_while_the_controller_stops(monkeypatch):
    with Cluster(3) as cluster, cluster.listen() as server, Client(server[1]) as client:
        cluster.stop(0)
        iterate = ClusterListeners.__iter__
        calls = []

        def stale(listeners):
            """Broker 0 is listed once more, as when it stops after the question."""
            calls.append(None)
            return iter([0, 1, 2]) if len(calls) == 1 else iterate(listeners)

        monkeypatch.setattr(ClusterListeners, "__iter__", stale)
        kind = DescribeQuorumRequest
        partition = kind.PartitionData(partition_index=0)
        topic = kind.TopicData(topic_name="__cluster_metadata", partitions=[partition])
        answer = client.ask(kind(topics=[topic]), 2)
        assert answer.error_code == 0
        assert answer.topics[0].partitions[0].leader_id == answer.nodes[0].node_id == 0


def test_many_partitions_move_in_one_change():
    with Cluster(3) as cluster, cluster.listen() as server, Client(server[1]) as client:
        cluster.create_topic("t", 200, assignment=[(0, 1)] * 200)
        cluster.disconnect({0, 1}, {2})
        kind = AlterPartitionReassignmentsRequest
        partitions = [
            kind.ReassignablePartition(partition_index=number, replicas=[0, 2])
            for number in range(200)
        ]
        before = cluster.controller.changes
        answer = client.ask(
            kind(topics=[kind.ReassignableTopic(name="t", partitions=partitions)]), 1
        )
        assert not any(each.error_code for each in answer.responses[0].partitions)
        assert len(cluster.reassignments()) == 200
        assert cluster.controller.changes == before + 1


@pytest.mark.parametrize("on_disk", (False, True))
def test_a_replica_that_is_removed_while_its_broker_starts_is_deleted(
    tmp_path, on_disk, monkeypatch
):
    with Cluster(
        4, clock=VirtualClock(), seed=1, data_dir=tmp_path if on_disk else None
    ) as cluster:
        cluster.create_topic("t", assignment=[(0, 1)])
        cluster.append("t", value=b"v")
        cluster.disconnect([0, 1], [2])
        cluster.reassign(T, replicas=[1, 2])
        cluster.kill(0)
        started = cluster.controller.broker_started

        def moved_before(broker):  # by another thread, before the broker gets the states
            cluster.heal()
            finish(cluster)
            return started(broker)

        monkeypatch.setattr(cluster.controller, "broker_started", moved_before)
        cluster.restart(0)
        cluster.clock.advance(ms=1000)
        assert cluster.state(T).replicas == (1, 2)
        assert [has_replica(cluster, broker) for broker in range(3)] == [False, True, True]


@pytest.mark.parametrize("name", ("on_epoch", "on_fetch"))
def test_a_request_that_arrives_while_the_leader_begins_a_new_epoch_is_answered(
    cluster, monkeypatch, name
):
    cluster.append("t", value=b"v")  # otherwise, followers do not ask for the end of an epoch
    former = cluster.replicas(0).role(T)
    cluster.reassign(T, replicas=[0, 1, 2])
    finish(cluster)
    cluster.reassign(T, replicas=[0, 1])
    finish(cluster)
    assert cluster.replicas(0).role(T) is not former
    cluster.kill(1)
    answer, late = getattr(Replicas, name), []

    def looked_up_before(replicas, topic_partition, request):
        if late:
            answer(replicas, topic_partition, request)
        else:
            late.append(request)
            getattr(former, name)(request)

    monkeypatch.setattr(Replicas, name, looked_up_before)
    cluster.restart(1)
    assert cluster.run_until(lambda: cluster.state(T).isr == (0, 1), timeout=60_000)
    assert late


def test_a_fetch_in_a_newer_epoch_is_not_kept_for_a_replica_that_is_added_later(cluster):
    moving, _ = cluster.controller.reassign({T: [0, 1, 2]})  # by a thread that stops here
    cluster._host_moved(T)
    (state,) = moving
    newer = replace(state, leader_epoch=state.leader_epoch + 1)
    cluster._nodes[2].replicas.apply([newer])
    cluster.clock.advance(ms=10)
    assert cluster.replicas(0).role(T)._early == {}
