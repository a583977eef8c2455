"""Reassignment: replicas that move to other brokers while clients, cleaners and faults continue."""

import random
from contextlib import suppress

import pytest

from logstore import Cluster, OffsetAndMetadata, TopicPartition, VirtualClock
from logstore.cluster.controller import Controller
from logstore.cluster.memory import ClusterMemory
from logstore.cluster.messages import FetchRequest
from logstore.errors import (
    InvalidReplicaAssignmentError,
    LogStoreError,
    NoReassignmentInProgressError,
)
from logstore.messages.types import (
    AlterPartitionReassignmentsRequest,
    CreateTopicsRequest,
    ListPartitionReassignmentsRequest,
)
from logstore.runtime import MemoryFileSystem
from tests.support.world.wire import Client, name_of

T = TopicPartition("t", 0)
DAY_MS = 86_400_000


def cluster_of(brokers=4, **options):
    return Cluster(brokers, clock=VirtualClock(), seed=1, **options)


@pytest.fixture
def cluster():
    with cluster_of() as cluster:
        cluster.create_topic("t", 2, assignment=[(0, 1), (1, 0)])
        yield cluster


def fill(cluster, count=20, size=100, **fields):
    for number in range(count):
        fields.setdefault("partition", 0)
        cluster.append("t", value=b"v" * size, key=b"%d" % number, **fields)


def finish(cluster, timeout=3600_000):
    assert cluster.run_until(lambda: not cluster.reassignments(), timeout=timeout), cluster.state(T)


def data_of(cluster, broker):
    """Return the bytes of a replica."""
    process = cluster.brokers[broker]
    fs, folder = process.runtime.fs, process.log(T).directory
    found = b""
    for name in sorted(fs.list_dir(folder)):
        if name.endswith(".log"):
            file = fs.open(f"{folder}/{name}")
            found += file.read(0, file.size())
            file.close()
    return found


def has_replica(cluster, broker, partition=0):
    return cluster.brokers[broker].manager.registry.has(TopicPartition("t", partition))


def test_a_replica_moves(cluster):
    fill(cluster)
    cluster.reassign("t", 0, [2, 0])
    state = cluster.state(T)
    assert (state.replicas, state.adding, state.removing) == ((2, 0, 1), (2,), (1,))
    assert (state.leader, state.leader_epoch) == (0, 0)
    assert cluster.reassignments() == [state]
    finish(cluster)
    state = cluster.state(T)
    assert (state.replicas, state.adding, state.removing) == ((2, 0), (), ())
    assert set(state.isr) == {0, 2}
    assert (state.leader, state.leader_epoch) == (0, 1), "a replica was removed"
    assert data_of(cluster, 2) == data_of(cluster, 0)
    assert not has_replica(cluster, 1)
    assert has_replica(cluster, 1, partition=1)
    cluster.append(T, value=b"later")
    assert cluster.run_until(lambda: data_of(cluster, 2) == data_of(cluster, 0), timeout=10_000)


def test_all_replicas_move_and_the_leader_with_them(cluster):
    fill(cluster)
    before = data_of(cluster, 0)
    cluster.reassign(T, replicas=[2, 3])
    finish(cluster)
    state = cluster.state(T)
    assert (state.replicas, set(state.isr), state.leader) == ((2, 3), {2, 3}, 2)
    assert data_of(cluster, 2) == data_of(cluster, 3) == before
    cluster.append(T, value=b"later")
    assert cluster.brokers[2].log(T).high_watermark == 21
    for broker in (0, 1):
        assert not has_replica(cluster, broker)


def test_the_former_leader_waits_for_the_next_one(cluster, monkeypatch):
    """The next leader joins the ISR at the high watermark, below the leader's log end."""
    for broker in range(4):
        cluster.replicas(broker).fetch_max_bytes = 3000
    fill(cluster, 5, size=1000)
    cluster.disconnect([0], [1])
    fill(cluster, 20, size=1000, acks=1)
    log, former = cluster.brokers[0].log(T), cluster.replicas(0).role(T)
    host, ends = cluster._host_moved, []

    def host_moved(tp):
        if cluster.state(tp).replicas == (2,):  # before the leaders know it
            request = FetchRequest(
                1, former.followers[1].number + 1, 0, log.log_end_offset, 0, None
            )
            former.on_fetch(request)
            ends.append((log.high_watermark, cluster.brokers[2].log(T).log_end_offset))
        host(tp)

    monkeypatch.setattr(cluster, "_host_moved", host_moved)
    cluster.reassign(T, replicas=[2])
    finish(cluster)
    high_watermark, next_end = ends[0]
    assert 5 <= high_watermark <= next_end < 25


def test_another_order_and_fewer_replicas_take_effect_at_once(cluster):
    cluster.reassign(T, replicas=[1, 0])
    state = cluster.state(T)
    assert (state.replicas, state.leader, state.leader_epoch) == ((1, 0), 0, 0)
    cluster.reassign(T, replicas=[1])
    state = cluster.state(T)
    assert (state.replicas, state.isr, state.leader, state.leader_epoch) == ((1,), (1,), 1, 1)
    assert not has_replica(cluster, 0)
    cluster.reassign(T, replicas=[1])
    assert cluster.state(T) == state


def test_the_replication_factor_grows(cluster):
    fill(cluster)
    cluster.reassign(T, replicas=[0, 1, 2, 3])
    finish(cluster)
    assert set(cluster.state(T).isr) == {0, 1, 2, 3}
    assert cluster.state(T).leader_epoch == 0, "no replica was removed"
    cluster.create_partitions("t", 3)
    assert len(cluster.state("t", 2).replicas) == 4


def test_a_move_is_cancelled(cluster):
    fill(cluster)
    cluster.disconnect({0}, {2})
    cluster.reassign(T, replicas=[2, 0])
    cluster.clock.advance(seconds=10)
    assert cluster.state(T).is_moving
    cluster.reassign(T, replicas=None)
    state = cluster.state(T)
    assert (state.replicas, state.isr, state.is_moving) == ((0, 1), (0, 1), False)
    assert not has_replica(cluster, 2)
    with pytest.raises(NoReassignmentInProgressError):
        cluster.reassign(T, replicas=None)
    cluster.heal()
    cluster.reassign(T, replicas=[2, 0])
    finish(cluster)
    assert data_of(cluster, 2) == data_of(cluster, 0)


def test_another_move_replaces_the_first(cluster):
    fill(cluster)
    cluster.disconnect({0}, {2})
    cluster.reassign(T, replicas=[2, 0])
    cluster.reassign(T, replicas=[3, 0])
    state = cluster.state(T)
    assert (state.replicas, state.adding, state.removing) == ((3, 0, 1, 2), (3,), (1, 2))
    finish(cluster)
    assert cluster.state(T).replicas == (3, 0)
    assert not has_replica(cluster, 2)


def test_a_move_that_replaces_another_one_waits_for_its_replicas(cluster):
    fill(cluster)
    cluster.disconnect({0}, {2})
    cluster.reassign(T, replicas=[2, 0])
    cluster.reassign(T, replicas=[2, 1, 0])
    state = cluster.state(T)
    assert (state.replicas, state.adding, state.removing) == ((2, 1, 0), (2,), ())
    cluster.heal()
    finish(cluster)
    assert set(cluster.state(T).isr) == {0, 1, 2}


def test_a_cancelled_move_needs_an_old_replica_in_sync(cluster):
    fill(cluster)
    cluster.reassign(T, replicas=[2, 3])
    cluster.run_until(lambda: 2 in cluster.state(T).isr, timeout=10_000)
    if cluster.state(T).is_moving:
        cluster.kill(3)
    cluster.create_topic("u", assignment=[(0,)])
    u = TopicPartition("u", 0)
    cluster.append(u, value=b"1")
    cluster.disconnect({2}, {1})
    cluster.reassign(u, replicas=[1, 2])
    cluster.disconnect({0}, {2})
    cluster.run_until(lambda: 1 in cluster.state(u).isr, timeout=10_000)
    cluster.kill(0)
    assert cluster.state(u).isr == (1,)
    with pytest.raises(InvalidReplicaAssignmentError, match="unclean"):
        cluster.reassign(u, replicas=None)


@pytest.mark.parametrize("replicas", ([], [0, 0], [0, 9], [-1]))
def test_invalid_replicas_are_refused(cluster, replicas):
    with pytest.raises(InvalidReplicaAssignmentError):
        cluster.reassign(T, replicas=replicas)


@pytest.mark.parametrize("power_loss", (False, True))
def test_the_target_dies_during_the_copy(cluster, power_loss):
    fill(cluster, 50)
    cluster.slow(0, 2, 200)
    cluster.reassign(T, replicas=[2, 0])
    cluster.clock.advance(ms=500)
    cluster.kill(2, power_loss=power_loss)
    cluster.clock.advance(minutes=5)
    assert cluster.state(T).is_moving
    cluster.append(T, value=b"meanwhile")
    cluster.restart(2)
    finish(cluster)
    assert data_of(cluster, 2) == data_of(cluster, 0)


def test_the_target_is_stopped_when_the_move_begins(cluster):
    fill(cluster)
    cluster.kill(2)
    cluster.reassign(T, replicas=[2, 0])
    assert cluster.state(T).is_moving
    cluster.restart(2)
    finish(cluster)
    assert data_of(cluster, 2) == data_of(cluster, 0)


def test_a_removed_replica_is_deleted_when_its_broker_starts(cluster):
    fill(cluster)
    cluster.kill(1)
    cluster.reassign(T, replicas=[2, 0])
    finish(cluster)
    cluster.restart(1)
    assert not has_replica(cluster, 1)
    assert has_replica(cluster, 1, partition=1)


def test_the_leader_dies_during_the_copy(cluster):
    fill(cluster, 50)
    cluster.slow(0, 2, 200)
    cluster.reassign(T, replicas=[2, 1])
    cluster.clock.advance(ms=300)
    cluster.kill(0)
    assert cluster.state(T).leader == 1
    finish(cluster)
    assert cluster.state(T).replicas == (2, 1)
    assert data_of(cluster, 2) == data_of(cluster, 1)


def test_the_disk_of_the_target_is_full(cluster):
    fill(cluster)
    with cluster.brokers[2].fail("write", error="ENOSPC"):
        cluster.reassign(T, replicas=[2, 0])
        cluster.clock.advance(minutes=1)
        assert cluster.state(T).is_moving
        assert set(cluster.state(T).isr) == {0, 1}
        fill(cluster, 5)
    cluster.reassign(T, replicas=None)
    assert (cluster.state(T).replicas, cluster.state(T).is_moving) == ((0, 1), False)
    cluster.restart(2)
    assert not has_replica(cluster, 2)
    cluster.reassign(T, replicas=[2, 0])
    finish(cluster)
    assert data_of(cluster, 2) == data_of(cluster, 0)


def test_a_topic_is_deleted_although_a_replica_could_not_be_created(cluster):
    fill(cluster)
    with cluster.brokers[2].fail("write", error="ENOSPC"):
        cluster.reassign(T, replicas=[2, 3])
        cluster.clock.advance(seconds=3)
    assert not has_replica(cluster, 2)
    cluster.delete_topic("t")
    assert not any(has_replica(cluster, broker) for broker in range(4))


def test_records_deleted_during_the_copy(cluster):
    fill(cluster, 50)
    cluster.disconnect({0}, {2})
    cluster.reassign(T, replicas=[2, 0])
    result = cluster.delete_records({T: 30}, timeout_ms=1000)[T]
    assert result.error == "REQUEST_TIMED_OUT", "the new replica is live"
    cluster.heal()
    finish(cluster)
    assert cluster.brokers[2].log(T).log_start_offset == 30
    assert cluster.low_watermark(T) == 30


def test_a_cleaned_log_is_copied():
    with cluster_of() as cluster:
        configs = {
            "cleanup.policy": "compact",
            "segment.bytes": 1000,
            "min.cleanable.dirty.ratio": 0,
        }
        cluster.create_topic("t", configs=configs, assignment=[(0, 1)])
        for _ in range(10):
            fill(cluster, 10)
        cluster.brokers[0].clean("t", force=True, roll=True)
        cluster.disconnect({0}, {2})
        cluster.reassign(T, replicas=[2, 0])
        fill(cluster, 10)
        cluster.brokers[0].clean("t", force=True, roll=True)
        cluster.heal()
        finish(cluster)
        tables = [cluster.brokers[broker].table("t") for broker in (0, 2)]
        assert tables[0] == tables[1]
        ends = {cluster.brokers[broker].log(T).log_end_offset for broker in (0, 2)}
        assert ends == {110}


def test_segments_of_the_copy_equal_the_leader_s():
    with cluster_of() as cluster:
        cluster.create_topic("t", configs={"segment.bytes": 2000}, assignment=[(0, 1)])
        fill(cluster, 60)
        cluster.reassign(T, replicas=[2, 0])
        finish(cluster)
        assert data_of(cluster, 2) == data_of(cluster, 0)


def test_throttled_replicas_are_copied_slowly(cluster):
    fill(cluster, 100, size=1000)
    cluster.alter_broker_configs({"leader.replication.throttled.rate": "10000"}, brokers=[0])
    cluster.alter_configs("t", {"leader.replication.throttled.replicas": "0:0,0:2"})
    for broker in range(4):  # one transfer may exceed the rate
        assert cluster.replicas(broker).fetch_max_bytes == 1 << 20
    cluster.replicas(0).fetch_max_bytes = 5000
    begun_ms = cluster.clock.now_ms()
    cluster.reassign(T, replicas=[2, 0])
    cluster.clock.advance(seconds=5)
    assert cluster.state(T).is_moving
    assert 30_000 < len(data_of(cluster, 2)) < 70_000
    finish(cluster)
    assert 8000 < cluster.clock.now_ms() - begun_ms < 14_000


@pytest.mark.parametrize("on_disk", (False, True))
def test_the_log_start_may_rise_above_a_throttled_replica(tmp_path, on_disk):
    with cluster_of(data_dir=tmp_path if on_disk else None) as cluster:
        cluster.create_topic("t", assignment=[(0, 1)])
        fill(cluster, 100, size=1000)
        cluster.alter_broker_configs({"leader.replication.throttled.rate": "10000"}, brokers=[0])
        cluster.alter_configs("t", {"leader.replication.throttled.replicas": "0:2"})
        cluster.replicas(0).fetch_max_bytes = 5000
        cluster.reassign(T, replicas=[2, 0])
        cluster.clock.advance(seconds=3)  # the leader holds the follower's next request back
        follower = cluster.brokers[2].log(T)
        assert 0 < follower.log_end_offset < 60
        cluster.delete_records({T: 60})
        finish(cluster)
        assert (follower.log_start_offset, follower.log_end_offset) == (60, 100)


def test_appends_do_not_add_tasks_for_a_throttled_replica(cluster, monkeypatch):
    fill(cluster, 100, size=1000)
    cluster.alter_broker_configs({"leader.replication.throttled.rate": "1000"}, brokers=[0])
    cluster.alter_configs("t", {"leader.replication.throttled.replicas": "0:2"})
    leader = cluster.replicas(0)
    leader.fetch_max_bytes = 5000
    cluster.reassign(T, replicas=[2, 0])
    cluster.clock.advance(seconds=1)
    later, names = leader.call_later, []

    def note(name, action, delay_ms):
        names.append(name)
        return later(name, action, delay_ms)

    monkeypatch.setattr(leader, "call_later", note)
    fill(cluster, 50)
    assert names.count("throttled-fetch") <= 1


def test_the_follower_throttles_too(cluster):
    fill(cluster, 100, size=1000)
    cluster.alter_broker_configs({"follower.replication.throttled.rate": "10000"})
    cluster.alter_configs("t", {"follower.replication.throttled.replicas": "*"})
    cluster.replicas(0).fetch_max_bytes = 5000
    begun_ms = cluster.clock.now_ms()
    cluster.reassign(T, replicas=[2, 0])
    finish(cluster)
    assert 8000 < cluster.clock.now_ms() - begun_ms < 14_000


def test_other_replicas_are_not_throttled(cluster):
    fill(cluster, 100, size=1000)
    cluster.alter_broker_configs({"leader.replication.throttled.rate": "10"})
    cluster.alter_configs("t", {"leader.replication.throttled.replicas": "1:2"})
    cluster.reassign(T, replicas=[2, 0])
    finish(cluster, timeout=1000)


def test_a_cluster_is_opened_again_during_a_move(tmp_path):
    with Cluster(3, clock=VirtualClock(), data_dir=tmp_path) as cluster:
        cluster.create_topic("t", assignment=[(0, 1)])
        fill(cluster)
        cluster.disconnect({0}, {2})
        cluster.reassign(T, replicas=[2, 0])
        data = data_of(cluster, 0)
    with Cluster(3, clock=VirtualClock(), data_dir=tmp_path) as cluster:
        assert cluster.run_until(lambda: cluster.state(T).replicas == (2, 0), timeout=60_000)
        assert data_of(cluster, 2) == data
        assert not has_replica(cluster, 1)
    with Cluster(3, clock=VirtualClock(), data_dir=tmp_path) as cluster:
        assert cluster.state(T).replicas == (2, 0)


def test_coordinators_move_with_their_partitions(cluster):
    with Cluster(4, clock=VirtualClock(), seed=2) as cluster:
        old = cluster.group_coordinator("g")
        tp = cluster.brokers[old].groups.partition_for("g")
        consumer = cluster.brokers[old].consumer(group_id="g")
        cluster.create_topic("t", assignment=[(old,)])
        consumer.commit({T: OffsetAndMetadata(5)})
        target = [each for each in range(4) if each not in cluster.state(tp).replicas][:1]
        new = target or [(old + 1) % 4]
        cluster.reassign(tp, replicas=new)
        finish(cluster)
        assert cluster.group_coordinator("g") == new[0]
        consumer = cluster.brokers[new[0]].consumer(group_id="g")
        assert consumer.committed(T) == 5


def test_random_moves_under_load_lose_nothing():
    """Kills, network partitions, cleaning and moves; acknowledged records survive."""
    for seed in range(8):
        rng = random.Random(seed)
        with Cluster(4, clock=VirtualClock(), seed=seed) as cluster:
            configs = {"min.insync.replicas": 2, "segment.bytes": 3000}
            cluster.create_topic("t", configs=configs, assignment=[(0, 1, 2)])
            acknowledged = []
            for number in range(60):
                value = b"%d" % number
                try:
                    found = cluster.append(T, value=value, timeout_ms=2000)
                    acknowledged.append((found.offset, value))
                except LogStoreError:
                    pass
                action = rng.random()
                alive = sorted(cluster.brokers)
                if action < 0.15:
                    replicas = rng.sample(range(4), rng.choice((2, 3)))
                    cluster.reassign(T, replicas=replicas)
                elif action < 0.20 and cluster.state(T).is_moving:
                    with suppress(InvalidReplicaAssignmentError):
                        cluster.reassign(T, replicas=None)
                elif action < 0.26 and len(alive) > 2:
                    cluster.kill(rng.choice(alive))
                elif action < 0.36 and len(alive) < 4:
                    cluster.restart(rng.choice(sorted(set(range(4)) - set(alive))))
                elif action < 0.42:
                    one, other = rng.sample(range(4), 2)
                    cluster.disconnect({one}, {other})
                elif action < 0.52:
                    cluster.heal()
                elif action < 0.6:
                    cluster.clock.advance(seconds=rng.randint(1, 40))
            cluster.heal()
            for broker in set(range(4)) - set(cluster.brokers):
                cluster.restart(broker)
            finish(cluster)
            state = cluster.state(T)
            assert cluster.run_until(
                lambda: set(cluster.state(T).isr) == set(cluster.state(T).replicas),
                timeout=600_000,
            )
            leader = cluster.brokers[cluster.state(T).leader]
            records = {record.offset: record.value for record in leader.read("t")}
            assert dict(acknowledged).items() <= records.items(), seed
            for broker in range(4):
                assert has_replica(cluster, broker) == (broker in state.replicas)
                if broker in state.replicas:
                    assert data_of(cluster, broker) == data_of(cluster, state.leader), seed


# -- the controller's file -------------------------------------------------------------------------


def test_moves_are_stored():
    fs = MemoryFileSystem(VirtualClock())
    memory = ClusterMemory(fs, "/controller")
    with cluster_of() as cluster:
        cluster.create_topic("t", assignment=[(0, 1)])
        cluster.disconnect({0}, {2})
        cluster.reassign(T, replicas=[2, 0])
        topics = cluster.topics()
    memory.write(topics, None, {})
    assert memory.read().topics == topics
    assert isinstance(cluster.controller, Controller)


# -- over the wire ---------------------------------------------------------------------------------


class Moves:
    """A client that moves replicas."""

    def __init__(self, client):
        self.client = client

    def alter(self, number, replicas, version=1, topic="t", **fields):
        """Return the error of one partition, and its message."""
        kind = AlterPartitionReassignmentsRequest
        partition = kind.ReassignablePartition(partition_index=number, replicas=replicas)
        topics = [kind.ReassignableTopic(name=topic, partitions=[partition])]
        answer = self.client.ask(kind(topics=topics, **fields), version)
        assert answer.error_code == 0
        found = answer.responses[0].partitions[0]
        return name_of(found.error_code), found.error_message

    def list(self, *asked):
        """Return the moves of all topics, or of one."""
        kind = ListPartitionReassignmentsRequest
        topics = [
            kind.ListPartitionReassignmentsTopics(name=name, partition_indexes=[number])
            for name, number in asked
        ]
        answer = self.client.ask(kind(topics=topics or None), 0)
        return [
            (topic.name, each.partition_index, each.replicas, each.adding_replicas,
             each.removing_replicas)
            for topic in answer.topics
            for each in topic.partitions
        ]  # fmt: skip


@pytest.fixture
def served():
    with Cluster(3) as cluster, cluster.listen() as server, Client(server[1]) as client:
        cluster.create_topic("t", assignment=[(0, 1)])
        yield cluster, Moves(client)


def test_moves_are_refused_as_kafka_refuses_them(served):
    """Kafka 4.3.1 sends the same messages."""
    _, moves = served
    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    assert moves.alter(0, [0], topic="none") == (unknown, "Unable to find a topic named none.")
    assert moves.alter(9, [0]) == (unknown, "Unable to find partition t:9.")
    assert moves.alter(0, []) == (
        "INVALID_REPLICA_ASSIGNMENT",
        "The manual partition assignment includes an empty replica list.",
    )
    assert moves.alter(0, [0, 0]) == (
        "INVALID_REPLICA_ASSIGNMENT",
        "The manual partition assignment includes the broker 0 more than once.",
    )
    assert moves.alter(0, [0, 99]) == (
        "INVALID_REPLICA_ASSIGNMENT",
        "The manual partition assignment includes broker 99, but no such broker is registered.",
    )
    assert moves.alter(0, None) == ("NO_REASSIGNMENT_IN_PROGRESS", None)
    refused = moves.alter(0, [0, 1, 2], allow_replication_factor_change=False)
    assert refused == (
        "INVALID_REPLICATION_FACTOR",
        "The replication factor is changed from 2 to 3",
    )
    assert moves.list() == []


def test_moves_are_listed(served):
    cluster, moves = served
    cluster.disconnect({0}, {2})
    assert moves.alter(0, [2, 0], version=0) == ("NONE", None)
    move = ("t", 0, [2, 0, 1], [2], [1])
    assert moves.list() == moves.list(("t", 0)) == [move]
    assert moves.list(("none", 0), ("t", 9)) == []
    assert moves.alter(0, None) == ("NONE", None)
    assert moves.list() == []
    cluster.heal()
    assert moves.alter(0, [2, 0]) == ("NONE", None)
    assert cluster.run_until(lambda: moves.list() == [], timeout=20_000)
    assert cluster.state(T).replicas == (2, 0)


def test_new_partitions_cannot_be_created_on_a_stopped_broker(served):
    """Unlike a move, which waits for the broker."""
    cluster, moves = served
    cluster.kill(2)
    kind = CreateTopicsRequest
    assignment = kind.CreatableReplicaAssignment(partition_index=0, broker_ids=[2])
    topic = kind.CreatableTopic(
        name="u", num_partitions=-1, replication_factor=-1, assignments=[assignment]
    )
    answer = moves.client.ask(kind(topics=[topic], timeout_ms=1000), 7)
    assert name_of(answer.topics[0].error_code) == "INVALID_REPLICA_ASSIGNMENT"
    assert moves.alter(0, [2, 0]) == ("NONE", None)
    cluster.restart(2)
    assert cluster.run_until(lambda: not cluster.reassignments(), timeout=20_000)


def test_a_cancelled_removal_has_no_new_epoch(cluster):
    """As in Kafka: the replicas and the leader are the same as before."""
    cluster.kill(1)
    cluster.reassign(T, replicas=[1])
    assert cluster.state(T).removing == (0,)
    before = cluster.state(T)
    cluster.reassign(T, replicas=None)
    after = cluster.state(T)
    assert (after.replicas, after.leader_epoch, after.is_moving) == ((1, 0), 0, False)
    assert after.partition_epoch == before.partition_epoch + 1


def test_the_factor_during_a_move_is_the_one_after_it(served):
    cluster, moves = served
    cluster.disconnect({0}, {2})
    assert moves.alter(0, [0, 1, 2]) == ("NONE", None)
    refused = moves.alter(0, [2, 0], allow_replication_factor_change=False)
    assert refused == (
        "INVALID_REPLICATION_FACTOR",
        "The replication factor is changed from 3 to 2",
    )
