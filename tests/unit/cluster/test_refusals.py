"""Errors of a cluster with their types and whole messages, and its warnings."""

import pytest

from logstore import Cluster, TopicPartition, VirtualClock
from logstore.coordinator.groups.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from logstore.coordinator.transactions.state import ProducerIdAndEpoch
from logstore.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidConfigurationError,
    InvalidReplicaAssignmentError,
    KafkaStorageError,
    LeaderNotAvailableError,
    LogStoreError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
)
from logstore.names import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC

T0 = TopicPartition("t", 0)
CONFIG = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
TIMEOUT_MS = 60_000


@pytest.fixture
def cluster():
    with Cluster(3, clock=VirtualClock(), broker_config=CONFIG, seed=1) as cluster:
        cluster.create_topic("t", replication_factor=2)
        yield cluster


def refused(call, error, message):
    with pytest.raises(LogStoreError) as raised:
        call()
    assert (type(raised.value), str(raised.value)) == (error, message)


@pytest.mark.parametrize(
    ("options", "message"),
    (
        ({"brokers": 0}, "a cluster needs at least one broker, not 0"),
        (
            {"brokers": 2, "racks": ["a"]},
            "racks must contain the rack of each of 2 brokers: ['a']",
        ),
        (
            {"brokers": 2, "racks": ("a", "")},
            "racks must contain the rack of each of 2 brokers: ['a', '']",
        ),
    ),
)
def test_clusters(options, message):
    refused(lambda: Cluster(clock=VirtualClock(), **options), InvalidConfigurationError, message)


def test_a_cluster_in_virtual_time_has_no_listeners(cluster):
    refused(
        cluster.listen,
        InvalidConfigurationError,
        "a cluster with a VirtualClock cannot listen, as clients do not advance the clock: use"
        " SystemClock() or ShiftedClock()",
    )


@pytest.mark.parametrize(
    ("replicas", "text"),
    (([], "[]"), ([0, 0], "[0, 0]"), ((2, 3), "[2, 3]")),
)
def test_reassignments(cluster, replicas, text):
    message = f"replicas must be distinct brokers in [0, 1, 2], not {text}"
    refused(lambda: cluster.reassign(T0, replicas=replicas), InvalidReplicaAssignmentError, message)
    assert cluster.reassignments() == []


@pytest.mark.parametrize(
    ("assignment", "message"),
    (
        (
            [(0,), (1, 2)],
            "an assignment needs equally many replicas for each of 2 partitions: [(0,), (1, 2)]",
        ),
        (
            [(0,)],
            "an assignment needs equally many replicas for each of 2 partitions: [(0,)]",
        ),
        ([(0,), (1,)], "replicas must be distinct running brokers in [0, 2], not (1,)"),
        ([(2, 2), (0, 2)], "replicas must be distinct running brokers in [0, 2], not (2, 2)"),
        ([(), ()], "replicas must be distinct running brokers in [0, 2], not ()"),
    ),
)
def test_assignments(cluster, assignment, message):
    cluster.kill(1)
    refused(
        lambda: cluster.create_topic("u", 2, assignment=assignment),
        InvalidReplicaAssignmentError,
        message,
    )
    assert [topic.name for topic in cluster.topics()] == ["t"]


def test_writes_to_replicas_that_do_not_lead(cluster):
    refused(
        lambda: cluster.brokers[1].append(T0, value=b"1"),
        NotLeaderForPartitionError,
        "broker 1 is not the leader of t-0: the leader is broker 0",
    )
    for broker in (1, 2):
        refused(
            lambda broker=broker: cluster.replicas(broker).check_append(T0),
            NotLeaderForPartitionError,
            f"broker {broker} is not the leader of t-0",
        )
    replicas = cluster.replicas(0)
    cluster.kill(0)
    refused(
        lambda: replicas.leadership(T0),
        NotLeaderForPartitionError,
        "broker 0 is not the leader of t-0",
    )


def test_a_replica_that_cannot_be_deleted_is_logged(cluster, monkeypatch, caplog):
    broker = cluster.brokers[1]

    def fail(*_):
        raise KafkaStorageError("no disk")

    monkeypatch.setattr(broker.manager.topics, "remove_partition", fail)
    cluster.reassign(T0, replicas=[0, 2])
    assert cluster.run_until(lambda: not cluster.reassignments(), timeout=60_000)
    cluster.clock.advance(seconds=1)
    monkeypatch.setattr(broker, "delete_topic", fail)
    cluster.delete_topic("t")
    assert [each for each in caplog.messages if "deleted" in each] == [
        "replica t-0 cannot be deleted: no disk",
        "t cannot be deleted on broker 1: no disk",
    ]


# -- coordinators ----------------------------------------------------------------------------------


def test_a_coordinator_that_cannot_be_reached(cluster):
    group = cluster.group_coordinator("g")
    other = (group + 1) % 3
    cluster.disconnect({group}, {other})
    refused(
        lambda: cluster.brokers[other].groups.of("g"),
        CoordinatorNotAvailableError,
        "the coordinator of group 'g' is not available",
    )
    assert cluster.brokers[(group + 2) % 3].groups.of("g") is cluster.brokers[group].groups
    part = TopicPartition(GROUP_OFFSETS_TOPIC, 0)
    refused(
        lambda: cluster._nodes[other].host.leader_log(part),
        LeaderNotAvailableError,
        f"{part} has no leader that broker {other} can reach",
    )


def test_a_coordinator_that_moves(cluster):
    group = cluster.group_coordinator("g")
    groups = cluster.brokers[group].groups
    offsets = {T0: OffsetAndMetadata(1, "")}
    groups.commit("g", offsets)
    next_one = (group + 1) % 3
    cluster.move_leader(GROUP_OFFSETS_TOPIC, 0, to=next_one)
    member = ConsumerGroupMetadata("g")
    part = TopicPartition(GROUP_OFFSETS_TOPIC, 0)
    refused(
        lambda: groups.check_transactional(member, offsets),
        NotCoordinatorError,
        "group 'g' cannot be read here",
    )
    refused(
        lambda: groups.fetch("g"),
        NotCoordinatorError,
        f"broker {group} is not the leader of {part}",
    )
    groups = cluster.brokers[next_one].groups
    refused(
        lambda: groups.check_transactional(member, offsets),
        CoordinatorLoadInProgressError,
        "group 'g' is being loaded",
    )
    refused(
        lambda: groups.fetch("g"),
        CoordinatorLoadInProgressError,
        f"broker {next_one} has not loaded {part} yet",
    )
    cluster.clock.advance(ms=0)
    assert groups.check_transactional(member, offsets) is None


def test_calls_of_one_transactional_id_exclude_each_other(cluster):
    """In virtual time, another call comes while the first one waits for its replicas."""
    coordinator = cluster.brokers[cluster.transaction_coordinator("x")].coordinator
    leader = cluster.transaction_coordinator("x")
    producer = coordinator.init_producer_id("x", TIMEOUT_MS)
    for other in range(3):
        if other != leader:
            cluster.slow(leader, other, 50)
    errors = []

    def interfere():
        with pytest.raises(ConcurrentTransactionsError) as raised:
            coordinator.end_transaction("x", producer, commit=True)
        errors.append(str(raised.value))

    cluster.runtime.scheduler.schedule("interfere", interfere, delay_ms=20)
    coordinator.add_partitions("x", producer, [T0])
    assert errors == ["another request for 'x' is in progress"]
    part = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
    cluster.runtime.scheduler.schedule(
        "move", lambda: cluster.move_leader(part, to=(leader + 1) % 3), delay_ms=20
    )
    refused(
        lambda: coordinator.add_partitions("x", producer, [TopicPartition("u", 0)]),
        NotCoordinatorError,
        f"broker {leader} is not the leader of {part}",
    )
    refused(
        lambda: coordinator.end_transaction("x", producer, commit=True),
        NotCoordinatorError,
        f"broker {leader} is not the leader of {part}",
    )


def test_a_cluster_without_enough_brokers_has_no_coordinator(cluster):
    broker = cluster.brokers[0]
    assert broker.coordinator.owns("x", ProducerIdAndEpoch(0, 0)) is False
    for number in (1, 2):
        cluster.kill(number)
    cluster.alter_broker_configs({"min.insync.replicas": "2"})
    cluster.create_topic("u", replication_factor=1)
    assert cluster.append("u", value=b"1").offset == 0
    refused(
        lambda: cluster.append(T0, value=b"1"),
        NotEnoughReplicasError,
        "t-0: 1 replicas are in sync, fewer than min.insync.replicas = 2",
    )
