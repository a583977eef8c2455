"""Consumer groups of KIP-848 in a cluster whose coordinator is killed."""

import pytest

from logstore import Cluster, VirtualClock
from logstore.coordinator.groups.offsets import OffsetAndMetadata
from logstore.coordinator.groups.requests import ConsumerHeartbeat, LeavingMember
from logstore.errors import (
    RETRIABLE_ERRORS,
    CoordinatorNotAvailableError,
    IllegalStateError,
    LogStoreError,
)
from logstore.types import TopicPartition

CONFIG = {"offsets.topic.num.partitions": 2, "group.consumer.assignment.interval.ms": 0}


class Member:
    """A member that repeats its heartbeat at the present coordinator, as clients do."""

    def __init__(self, cluster, member_id, topics=("t", "u")):
        self.cluster = cluster
        self.member_id = member_id
        self.topics = topics
        self.epoch = 0
        self.owned = {}

    @property
    def groups(self):
        return self.cluster.brokers[self.cluster.group_coordinator("g")].groups

    def send(self, **fields):
        request = ConsumerHeartbeat("g", self.member_id, self.epoch, **fields)
        for _ in range(200):
            results = []
            try:
                self.groups.consumer_heartbeat(request, results.append)
                for _ in range(20):
                    if not results:
                        self.cluster.clock.advance(ms=10)
            except (LogStoreError, KeyError) as error:
                is_down = isinstance(error, (KeyError, IllegalStateError))
                if not is_down and error.kafka_error not in RETRIABLE_ERRORS:
                    raise
            if results and results[0].error not in RETRIABLE_ERRORS:
                return self.take(results[0])
            self.cluster.clock.advance(ms=100)
        raise TimeoutError

    def take(self, result):
        assert result.error is None, result
        self.epoch = result.member_epoch
        if result.assignment is not None:
            self.owned = dict(result.assignment)
        return result

    def join(self):
        return self.send(rebalance_timeout_ms=60_000, topics=self.topics, owned={})

    def count(self):
        return sum(map(len, self.owned.values()))


@pytest.fixture(params=("memory", "disk"))
def cluster(request, tmp_path):
    data_dir = None if request.param == "memory" else tmp_path
    clock = VirtualClock()
    with Cluster(clock=clock, data_dir=data_dir, broker_config=CONFIG, seed=1) as cluster:
        cluster.create_topic("t", 3, replication_factor=3)
        cluster.create_topic("u", 3, replication_factor=1)
        yield cluster


def test_a_coordinator_that_is_killed_leaves_its_group_to_another(cluster):
    a, b = Member(cluster, "a"), Member(cluster, "b")
    a.join()
    assert a.count() == 6
    b.join()
    a.send()
    assert (a.count(), b.count()) == (3, 0)
    before = a.groups.describe_consumer_group("g")
    cluster.kill(cluster.group_coordinator("g"))
    b.send()
    after = b.groups.describe_consumer_group("g")
    assert sorted(after.members) == sorted(before.members)
    a.send(owned=a.owned)
    b.send()
    assert (a.count(), b.count()) == (3, 3)
    assert b.groups.describe_consumer_group("g").state == "Stable"


def test_topics_of_the_cluster_are_assigned_wherever_their_replicas_are(cluster):
    a = Member(cluster, "a")
    a.join()
    cluster.create_partitions("u", 5)
    a.send()
    assert a.count() == 8
    cluster.delete_topic("u")
    a.send()
    assert a.count() == 3


def test_a_broker_that_does_not_coordinate_the_group_refuses(cluster):
    Member(cluster, "a").join()
    coordinator = cluster.group_coordinator("g")
    results = []
    for number, broker in cluster.brokers.items():
        if number != coordinator:
            request = ConsumerHeartbeat("g", "a", 2)
            broker.groups.consumer_heartbeat(request, results.append)
    assert [each.error for each in results] == ["NOT_COORDINATOR"] * 2


def test_commits_to_a_topic_that_was_created_again_survive_their_coordinator(cluster):
    """Each broker notes the deletion, and applies it only to older offsets if it takes over."""
    offsets = {TopicPartition("t", 0): OffsetAndMetadata(5)}

    def groups():
        return cluster.brokers[cluster.group_coordinator("g")].groups

    groups().commit("g", {TopicPartition("t", 1): OffsetAndMetadata(6)})
    cluster.clock.advance(ms=100)
    coordinator = cluster.group_coordinator("g")
    for number in {*cluster.brokers} - {coordinator}:
        cluster.brokers[number].groups.stop()  # so that no periodic check applies the deletion
    cluster.delete_topic("t")
    cluster.create_topic("t", 3, replication_factor=3)
    cluster.clock.advance(ms=100)
    groups().commit("g", offsets)
    cluster.kill(coordinator)
    cluster.clock.advance(ms=1_000)
    assert groups().committed("g") == offsets


def committed_by(cluster):
    return cluster.brokers[cluster.group_coordinator("g")].groups


def commit_to_topic(cluster, name, replication_factor=3, assignment=None):
    cluster.create_topic(name, 1, replication_factor=replication_factor, assignment=assignment)
    tp = TopicPartition(name, 0)
    assert committed_by(cluster).commit("g", {tp: OffsetAndMetadata(5)}) == {tp: None}
    cluster.clock.advance(ms=100)
    return tp


def test_offsets_are_deleted_with_a_topic_of_other_brokers(cluster):
    other = (cluster.group_coordinator("g") + 1) % 3
    commit_to_topic(cluster, "v", 1, [[other]])
    cluster.delete_topic("v")
    cluster.clock.advance(ms=100)
    assert committed_by(cluster).committed("g") == {}


def test_offsets_of_a_deleted_topic_are_deleted_though_the_coordinator_is_killed_at_once(cluster):
    commit_to_topic(cluster, "v")
    cluster.delete_topic("v")
    for broker in cluster.brokers.values():
        broker.groups.describe("g")  # another call, after which a broker notes no deletion
    cluster.kill(cluster.group_coordinator("g"))
    cluster.clock.advance(ms=1_000)
    assert committed_by(cluster).committed("g") == {}


def test_offsets_of_a_topic_that_is_deleted_without_a_coordinator_are_deleted_by_the_next(cluster):
    tp = committed_by(cluster).partition_of("g")
    commit_to_topic(cluster, "v", 1, [[cluster.leader(tp)]])
    cluster.kill(cluster.leader(tp))
    cluster.delete_topic("v")  # the next coordinator has not loaded the group yet
    cluster.clock.advance(ms=1_000)
    assert committed_by(cluster).committed("g") == {}


def test_offsets_of_a_topic_that_is_deleted_while_no_broker_leads_are_deleted_later(cluster):
    leader = cluster.group_coordinator("g")
    tp = committed_by(cluster).partition_of("g")
    other = (leader + 1) % 3
    commit_to_topic(cluster, "v", 1, [[other]])
    for number in (other, (leader + 2) % 3, leader):
        cluster.kill(number)
    cluster.restart(other)
    cluster.clock.advance(ms=1_000)
    assert (cluster.leader(tp), cluster.state(tp).isr) == (-1, (leader,))
    cluster.delete_topic("v")
    cluster.clock.advance(ms=1_000)
    cluster.move_leader(tp, to=other, unclean=True)
    cluster.clock.advance(ms=1_000)
    assert committed_by(cluster).committed("g") == {}


def test_a_broker_that_returns_keeps_commits_to_a_topic_that_was_created_again(cluster):
    """It deletes its files of the former topic, and is the coordinator before its first call."""
    coordinator = cluster.group_coordinator("g")
    absent = (coordinator + 1) % 3
    tp = commit_to_topic(cluster, "v")
    cluster.kill(absent)
    cluster.delete_topic("v")
    cluster.clock.advance(ms=100)
    commit_to_topic(cluster, "v", 2)
    cluster.restart(absent)
    cluster.clock.advance(ms=60_000)
    for number in {*cluster.brokers} - {absent}:
        cluster.kill(number)
    cluster.clock.advance(ms=1_000)
    assert cluster.group_coordinator("g") == absent
    assert committed_by(cluster).committed("g") == {tp: OffsetAndMetadata(5)}


def test_a_coordinator_behind_a_cut_link_is_not_available(cluster):
    coordinator = cluster.group_coordinator("g")
    one, other = {0, 1, 2} - {coordinator}
    cluster.disconnect({coordinator}, {one})
    assert cluster.brokers[other].groups.of("g") is cluster.brokers[coordinator].groups
    assert cluster.brokers[coordinator].groups.of("g") is cluster.brokers[coordinator].groups
    with pytest.raises(CoordinatorNotAvailableError, match="group 'g'"):
        cluster.brokers[one].groups.of("g")


@pytest.mark.parametrize("change", ("leave", "delete", "delete-offsets"))
def test_an_administrator_gets_an_error_if_a_change_is_not_replicated(cluster, change):
    member = Member(cluster, "m")
    member.join()
    groups = member.groups
    tp = TopicPartition("v", 0)
    cluster.create_topic("v")
    groups.commit("g", {tp: OffsetAndMetadata(1)}, member.epoch, "m")
    if change == "delete":
        groups.leave("g", [LeavingMember("m")], waits=True)
    coordinator = cluster.group_coordinator("g")
    cluster.disconnect({coordinator}, {0, 1, 2} - {coordinator})
    error = {
        "leave": lambda: groups.leave("g", [LeavingMember("m")], waits=True).error,
        "delete": lambda: groups.delete(["g"])["g"],
        "delete-offsets": lambda: groups.delete_offsets("g", [tp]).error,
    }[change]()
    assert error == "COORDINATOR_NOT_AVAILABLE"
