"""Transactions of a cluster: the offsets that they commit, and the markers that end them."""

from contextlib import contextmanager

import pytest

from logstore import Acl, Authorizer, Broker, Cluster, TopicPartition, VirtualClock
from logstore.coordinator.groups.offsets import OffsetAndMetadata
from logstore.errors import CoordinatorLoadInProgressError, NotCoordinatorError
from logstore.messages.types import (
    DescribeProducersRequest,
    ListGroupsRequest,
    ListTransactionsRequest,
)
from tests.support.world.wire import Client, name_of
from tests.support.world.wire_transactions import (
    CONFIG,
    NOBODY,
    add,
    add_offsets,
    commit_offsets,
    coordinator_id,
    end,
    fetch_offsets,
    init,
    produced,
)

TP = TopicPartition("t", 0)
TIMEOUT_MS = 60_000
NOT_ALLOWED = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


class Member:
    """A producer that commits offsets of group `g`, as the coordinators of a cluster see it."""

    def __init__(self, cluster, transactional_id="x"):
        self.cluster = cluster
        self.transactional_id = transactional_id
        self.producer = self.coordinator.init_producer_id(transactional_id, TIMEOUT_MS)

    @property
    def coordinator(self):
        return coordinator_of(self.cluster, self.transactional_id)

    def send(self, offset, partition=0):
        """Add an offset of group `g` to the transaction."""
        offsets = {TopicPartition("t", partition): OffsetAndMetadata(offset, "")}
        groups = groups_of(self.cluster)
        part = groups.partition_for("g")
        self.coordinator.add_partitions(self.transactional_id, self.producer, (part,))
        with self.coordinator.verified(part, self.producer, self.transactional_id):
            wait = groups.append_transactional("g", offsets, self.producer)
        wait()

    def end(self, *, commit=True):
        self.coordinator.end_transaction(self.transactional_id, self.producer, commit=commit)

    def state(self):
        return self.coordinator.describe(self.transactional_id).state.kafka_name


def coordinator_of(cluster, transactional_id="x"):
    return cluster.brokers[cluster.transaction_coordinator(transactional_id)].coordinator


def groups_of(cluster, group_id="g"):
    return cluster.brokers[cluster.group_coordinator(group_id)].groups


def loaded(cluster):
    """Wait until the coordinators of `g` and `x` have loaded their partitions."""
    for call in (
        lambda: groups_of(cluster).fetch("g"),
        lambda: coordinator_of(cluster).describe("x"),
    ):
        assert cluster.run_until(lambda call=call: is_loaded(call), timeout=60)


def is_loaded(call):
    try:
        call()
    except (CoordinatorLoadInProgressError, NotCoordinatorError):
        return False
    return True


def committed(cluster):
    """Return the offsets of group `g` that a reader of stable offsets gets, by partition."""
    fetched = groups_of(cluster).fetch("g", require_stable=True)
    return {
        tp.partition: each.error or (each.committed and each.committed.offset)
        for tp, each in fetched.items()
    }


@pytest.fixture(params=("memory", "disk"))
def data_dir(request, tmp_path):
    return None if request.param == "memory" else tmp_path / "data"


def opened(data_dir, brokers=3):
    return Cluster(
        brokers=brokers, clock=VirtualClock(), data_dir=data_dir, broker_config=CONFIG, seed=1
    )


# -- in process ------------------------------------------------------------------------------------


@pytest.mark.parametrize("brokers", (1, 3))
def test_offsets_take_effect_when_their_transaction_is_committed(data_dir, brokers):
    with opened(data_dir, brokers) as cluster:
        cluster.create_topic("t", replication_factor=brokers)
        member = Member(cluster)
        member.send(5)
        assert committed(cluster) == {0: "UNSTABLE_OFFSET_COMMIT"}
        member.end()
        assert committed(cluster) == {0: 5}
        member.send(9)
        member.end(commit=False)
        assert committed(cluster) == {0: 5}
        assert member.state() == "CompleteAbort"
    if data_dir is not None:
        with opened(data_dir, brokers) as cluster:
            loaded(cluster)
            assert committed(cluster) == {0: 5}


def test_an_abandoned_transaction_is_aborted_after_an_idle_hour():
    with opened(None) as cluster:
        cluster.create_topic("t", replication_factor=3)
        member = Member(cluster)
        cluster.clock.advance(hours=1)
        member.send(5)
        cluster.clock.advance(hours=5)
        assert committed(cluster) == {}
        assert member.state() == "CompleteAbort"


def test_a_marker_for_a_partition_that_is_unknown_is_reported(caplog):
    with opened(None) as cluster:
        cluster.create_topic("t", replication_factor=3)
        member = Member(cluster)
        member.coordinator.add_partitions("x", member.producer, (TP,))
        cluster.delete_topic("t")
        member.end()
        assert member.state() == "CompleteCommit"
    assert [text for text in caplog.messages if "marker" in text] == [
        "t-0: skipping the marker of producer 0 with epoch 0: unknown topic 't'"
    ]


# -- over the wire ---------------------------------------------------------------------------------


LAYOUTS = ("broker", "cluster of 1", "cluster of 3")
PARTITIONS = 3
"""Of topic `t`; as many leaders in the layouts with several nodes."""


class Served:
    """A broker or cluster with topic `t`, and its listeners."""

    def __init__(self, listeners, leader=lambda topic, partition: 0):
        self.listeners = list(listeners)
        self._leader = leader

    def leader_of(self, partition):
        return self.listeners[self._leader("t", partition)]

    def coordinator_of(self, key, key_type=1):
        """Return the listener of the broker that coordinates an id, or a group (type 0)."""
        with Client(self.listeners[0]) as client:
            return self.listeners[coordinator_id(client, key, key_type)]


@contextmanager
def listening(layout, data_dir=None, config=(), **settings):
    """Yield the listeners of a broker or cluster with topic `t`."""
    config = {**CONFIG, **dict(config)}
    if layout.startswith("cluster"):
        brokers = int(layout[-1])
        with (
            Cluster(brokers=brokers, data_dir=data_dir, broker_config=config) as cluster,
            cluster.listen(**settings) as server,
        ):
            if not cluster.topics():
                cluster.create_topic("t", PARTITIONS, replication_factor=brokers)
            yield Served(server.values(), cluster.leader)
        return
    with Broker(data_dir, broker_config=config) as broker:
        if not broker.topics():
            broker.create_topic("t", PARTITIONS)
        with broker.listen(**settings) as listener:
            yield Served([listener])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_coordinator_answers_with_the_offsets_of_committed_transactions(layout, data_dir):
    with listening(layout, data_dir) as served, Client(served.coordinator_of("x")) as client:
        _, producer = init(client, timeout_ms=TIMEOUT_MS)
        for offset, commit in ((5, True), (9, False)):
            assert add(client, producer, ("t", 0)) == ["NONE"]
            assert add_offsets(client, producer) == "NONE"
            assert commit_offsets(client, producer, ("t", 0, offset, "")) == ["NONE"]
            assert fetch_offsets(client, ("t", 0)) == [("UNSTABLE_OFFSET_COMMIT", -1)]
            assert end(client, producer, commit=commit) == "NONE"
        for listener in served.listeners:
            is_coordinator = listener is served.coordinator_of("g", 0)
            answer = [("NONE", 5)] if is_coordinator else []
            with Client(listener) as other:
                assert fetch_offsets(other, ("t", 0)) == answer
                assert fetch_offsets(other, ("t", 0), require_stable=False) == answer
    if data_dir is not None:
        with (
            listening(layout, data_dir) as served,
            Client(served.coordinator_of("g", 0)) as client,
        ):
            client.until(lambda: fetch_offsets(client, ("t", 0)) == [("NONE", 5)])


def sent(client, producer, *args, **options):
    return name_of(produced(client, producer, *args, **options).error_code)


@pytest.mark.parametrize("verification", ("true", "false"))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_batch_is_taken_into_the_transaction_of_another_producer(layout, verification):
    """Whether or not it is the first one of its partition; the owner does not notice."""
    config = {"transaction.partition.verification.enable": verification}
    with listening(layout, config=config) as served, Client(served.coordinator_of("x")) as client:
        _, old = init(client, timeout_ms=TIMEOUT_MS)
        _, owner = init(client, timeout_ms=TIMEOUT_MS)
        _, other = init(client, timeout_ms=TIMEOUT_MS, transactional_id="y")
        later = owner._replace(producer_epoch=owner.producer_epoch + 1)
        wrong = (
            (owner, None, NOT_ALLOWED),
            (owner, "y", "INVALID_PRODUCER_ID_MAPPING"),
            (owner, "nobody", "INVALID_PRODUCER_ID_MAPPING"),
            (old, "x", "INVALID_PRODUCER_EPOCH"),
            (later, "x", "INVALID_PRODUCER_EPOCH"),
        )
        tps = [("t", number) for number in range(PARTITIONS)]
        assert add(client, owner, *tps) == ["NONE"] * PARTITIONS
        assert add(client, other, *tps, transactional_id="y") == ["NONE"] * PARTITIONS
        for partition in range(PARTITIONS):
            with Client(served.leader_of(partition)) as leader:
                for sequence in range(2):
                    for version in (9, 11):
                        for who, whose, error in wrong:
                            told = sent(leader, who, partition, whose, sequence, version)
                            assert told == error, (who, whose, sequence, version)
                        # The epoch in the log is checked before the owner.
                        error = ("INVALID_PRODUCER_ID_MAPPING", "INVALID_PRODUCER_EPOCH")[sequence]
                        assert sent(leader, old, partition, "y", sequence, version) == error
                    assert sent(leader, owner, partition, "x", sequence) == "NONE"
                plain = sent(leader, owner, partition, None, 2, is_transactional=False)
                assert plain == "INVALID_TXN_STATE"
                assert sent(leader, other, partition, "y", 0) == "NONE"
                assert sent(leader, owner, partition, "x", 1) == "NONE", "a duplicate is answered"
        assert end(client, owner) == "NONE"


def test_a_transactional_id_matters_to_transactional_batches_alone():
    """As in Kafka; other values come from the topic."""
    authorizer = Authorizer([Acl("User:*", "write", "topic", "t")])
    with (
        listening("broker", authorizer=authorizer) as served,
        Client(served.listeners[0]) as client,
    ):
        for is_transactional in (False, True):
            told = sent(client, NOBODY, is_transactional=is_transactional)
            assert told == ("NONE", NOT_ALLOWED)[is_transactional]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_replica_describes_its_producers(layout):
    with listening(layout) as served, Client(served.leader_of(0)) as client:
        _, producer = init(client, timeout_ms=TIMEOUT_MS)
        assert add(client, producer, ("t", 0)) == ["NONE"]
        assert sent(client, producer) == "NONE"
        kind = DescribeProducersRequest.TopicRequest
        asked = DescribeProducersRequest(topics=[kind(name="t", partition_indexes=[0])])

        def described(other):
            (found,) = other.ask(asked, 0).topics[0].partitions
            assert name_of(found.error_code) == "NONE"
            return [
                (each.producer_id, each.producer_epoch, each.current_txn_start_offset)
                for each in found.active_producers
            ]

        for listener in served.listeners:
            with Client(listener) as other:
                other.until(lambda other=other: described(other))  # a follower has it later
                assert described(other) == [(*producer, 0)]


def test_a_broker_without_a_replica_describes_no_producers():
    with (
        Cluster(brokers=2, broker_config=CONFIG) as cluster,
        cluster.listen() as server,
        Client(server[1]) as client,
    ):
        cluster.create_topic("t", replication_factor=1)
        kind = DescribeProducersRequest.TopicRequest
        asked = DescribeProducersRequest(topics=[kind(name="t", partition_indexes=[0, 1])])
        known, unknown = client.ask(asked, 0).topics[0].partitions
        assert name_of(known.error_code) == "NOT_LEADER_OR_FOLLOWER"
        assert name_of(unknown.error_code) == "UNKNOWN_TOPIC_OR_PARTITION"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_of_all_nodes_lists_a_group_or_transactional_id(layout):
    """The one that is their coordinator: clients ask every node, and join the answers."""
    with listening(layout) as served, Client(served.coordinator_of("x")) as client:
        _, producer = init(client, timeout_ms=TIMEOUT_MS)
        init(client, timeout_ms=TIMEOUT_MS, transactional_id="y")
        assert add_offsets(client, producer) == "NONE"
        assert commit_offsets(client, producer, ("t", 0, 5, "")) == ["NONE"]
        assert end(client, producer) == "NONE"
        ids, groups, coordinators = [], [], set()
        for listener in served.listeners:
            with Client(listener) as other:
                answer = other.ask(ListTransactionsRequest(), 0)
                ids += [each.transactional_id for each in answer.transaction_states]
                groups += [each.group_id for each in other.ask(ListGroupsRequest(), 4).groups]
                coordinators.add(coordinator_id(other, "g", 0))
        assert (ids, groups) == (["x", "y"], ["g"])
        assert len(coordinators) == 1


@pytest.mark.parametrize("version", (3, 5))
def test_another_broker_refuses_offsets_so_that_clients_look_up_the_coordinator(version):
    """KAFKA_STORAGE_ERROR would make Java's producer repeat the request at the same broker."""
    with listening("cluster of 3") as served, Client(served.coordinator_of("x")) as client:
        _, producer = init(client, timeout_ms=TIMEOUT_MS)
        assert add_offsets(client, producer) == "NONE"
        for listener in served.listeners:
            is_coordinator = listener is served.coordinator_of("g", 0)
            with Client(listener) as other:
                told = commit_offsets(other, producer, ("t", 0, 5, ""), version=version)
                assert told == ["NONE" if is_coordinator else "NOT_COORDINATOR"]
