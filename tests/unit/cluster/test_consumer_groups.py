"""Consumer groups of KIP-848 in a cluster whose coordinator is killed."""

import pytest

from logstore import Cluster, VirtualClock
from logstore.coordinator.groups.offsets import OffsetAndMetadata
from logstore.coordinator.groups.requests import ConsumerHeartbeat, LeavingMember
from logstore.errors import RETRIABLE_ERRORS, IllegalStateError, LogStoreError
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


@pytest.fixture
def cluster():
    with Cluster(clock=VirtualClock(), broker_config=CONFIG, seed=1) as cluster:
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
