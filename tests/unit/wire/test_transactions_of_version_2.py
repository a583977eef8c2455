"""Transactions of version 2 and of old clients over the wire (KIP-890 part 2)."""

import pytest

from logstore import Broker, Cluster, VirtualClock
from logstore.coordinator.transactions.state import ProducerIdAndEpoch
from logstore.errors import KafkaStorageError
from logstore.messages.types import DescribeProducersRequest, ProduceRequest
from logstore.record.batch import build_batch
from logstore.record.records import Record
from logstore.types import TopicPartition
from tests.support.world.transactions import markers
from tests.support.world.wire import Client, name_of
from tests.support.world.wire_transactions import (
    CONFIG,
    NOBODY,
    add,
    add_batched,
    add_offsets,
    commit_offsets,
    end,
    ended,
    init,
    produce,
    produced,
    write_markers,
)


@pytest.fixture
def broker():
    with Broker(clock=VirtualClock(), broker_config=CONFIG) as broker:
        broker.create_topic("t", 2)
        yield broker


def state(broker, transactional_id="x"):
    return broker.coordinator.transactions()[transactional_id].state.kafka_name


# -- transactions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", (True, False))
def test_transactions_need_no_partitions_beforehand(broker, client, commit):
    _, producer = init(client)
    for number in range(3):
        assert produce(client, producer, version=12) == "NONE"
        assert state(broker) == "Ongoing"
        error, following = ended(client, producer, commit=commit)
        assert (error, following) == ("NONE", (producer.producer_id, number + 1))
        assert ended(client, producer, commit=commit) == ("NONE", following), "a retry"
        error, none = ended(client, producer, commit=not commit)
        assert (error, none) == ("INVALID_TXN_STATE", NOBODY)
        producer = following
    assert len(list(broker.read("t", 0, isolation="read_committed"))) == 3 * commit


def test_an_abort_without_a_transaction_moves_the_epoch(client):
    _, producer = init(client)
    assert ended(client, producer)[0] == "INVALID_TXN_STATE"
    assert ended(client, producer, commit=False, version=4)[0] == "INVALID_TXN_STATE"
    assert ended(client, producer, commit=False) == ("NONE", (producer.producer_id, 1))


def test_old_and_new_clients_work_on_one_broker(broker, client):
    old, new = init(client, transactional_id="old")[1], init(client, transactional_id="new")[1]
    for sequence in range(2):
        assert add(client, old, ("t", 0), transactional_id="old") == ["NONE"]
        assert produce(client, old, transactional_id="old", sequence=sequence) == "NONE"
        assert produce(client, new, transactional_id="new", version=12) == "NONE"
        assert end(client, old, transactional_id="old") == "NONE"
        error, new = ended(client, new, transactional_id="new")
        assert error == "NONE"
    assert len(list(broker.read("t", 0, isolation="read_committed"))) == 4
    assert [epoch for _, _, epoch, _, _ in markers(broker.log("t"))] == [0, 1, 0, 2]


def test_a_batch_without_a_transaction_is_refused_in_old_versions_only(client):
    _, producer = init(client)
    assert produce(client, producer, version=10) == "INVALID_TXN_STATE"
    assert produce(client, producer, version=11) == "TRANSACTION_ABORTABLE"
    assert produce(client, producer, version=12) == "NONE"


@pytest.mark.parametrize("version", (11, 12))
def test_a_batch_of_the_last_transaction_does_not_open_another(broker, client, version):
    _, producer = init(client)
    assert produce(client, producer, version=12) == "NONE"
    ended(client, producer)
    assert produce(client, producer, version=version, sequence=1) == "INVALID_PRODUCER_EPOCH"
    assert produce(client, producer, version=version, partition=1) == "INVALID_PRODUCER_EPOCH"
    assert state(broker) == "CompleteCommit"


def test_a_batch_of_another_producer_is_refused(client):
    _, producer = init(client)
    init(client, transactional_id="y")
    assert produce(client, producer, version=12, transactional_id="y") == (
        "INVALID_PRODUCER_ID_MAPPING"
    )
    assert produce(client, producer, version=12, transactional_id="z") == (
        "INVALID_PRODUCER_ID_MAPPING"
    )


@pytest.mark.parametrize("version", (11, 12))
def test_the_log_refuses_an_outdated_epoch_before_the_coordinator_is_asked(client, version):
    """A producer whose epochs are used up is fenced, although its id has another owner now."""
    _, producer = init(client)
    offsets_version = 5 if version >= 12 else 4
    produce(client, producer, version=12)
    assert commit_offsets(client, producer, ("t", 0, 5, ""), version=5) == ["NONE"]
    ended(client, producer)
    named = {"transactional_id": "y", "version": version}
    assert produce(client, producer, **named) == "INVALID_PRODUCER_EPOCH"
    assert produce(client, producer, **named, partition=1) == "INVALID_PRODUCER_ID_MAPPING"
    named["version"] = offsets_version
    assert commit_offsets(client, producer, ("t", 0, 6, ""), **named) == ["INVALID_PRODUCER_EPOCH"]


def test_the_partitions_of_a_request_are_added_with_one_record(broker, client):
    _, producer = init(client)
    broker.create_topic("u", 1)
    log = broker.log("__transaction_state")
    before = log.log_end_offset

    def data(partition, sequence=0):
        batch = build_batch(
            [Record(0, 1_704_067_200_000, b"k", b"v")],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        return ProduceRequest.PartitionProduceData(index=partition, records=batch)

    def send(*topics, acks=-1):
        request = ProduceRequest(
            transactional_id="x",
            acks=acks,
            timeout_ms=1000,
            topic_data=[
                ProduceRequest.TopicProduceData(name=name, partition_data=each)
                for name, each in topics
            ],
        )
        return [
            name_of(each.error_code)
            for topic in client.ask(request, 12).responses
            for each in topic.partition_responses
        ]

    assert send(("t", [data(0), data(1)]), acks=7) == ["INVALID_REQUIRED_ACKS"] * 2
    assert log.log_end_offset == before
    told = send(("t", [data(0), data(1)]), ("u", [data(0), data(9)]), ("no", [data(0)]))
    assert told == ["NONE"] * 3 + ["UNKNOWN_TOPIC_OR_PARTITION"] * 2
    assert log.log_end_offset == before + 1
    told = send(("t", [data(0, 1), data(1, 1)]), ("__consumer_offsets", [data(0)]))
    assert told[:2] == ["NONE"] * 2
    assert told[2] != "NONE"
    assert log.log_end_offset == before + 1
    assert ended(client, producer)[0] == "NONE"
    assert [len(markers(broker.log("t", number))) for number in (0, 1)] == [1, 1]


@pytest.mark.parametrize("commit", (True, False))
def test_offsets_add_their_partition(broker, client, commit):
    _, producer = init(client)
    assert commit_offsets(client, producer, ("t", 0, 5, "m"), version=5) == ["NONE"]
    assert state(broker) == "Ongoing"
    tp = TopicPartition("t", 0)
    stable = broker.groups.fetch("g", [tp], require_stable=True)[tp]
    assert stable.error == "UNSTABLE_OFFSET_COMMIT"
    error, following = ended(client, producer, commit=commit)
    assert error == "NONE"
    assert [each.offset for each in broker.groups.committed("g").values()] == [5] * commit
    late = commit_offsets(client, producer, ("t", 0, 6, ""), version=5)
    assert late == ["INVALID_PRODUCER_EPOCH"]
    assert state(broker).startswith("Complete")
    assert commit_offsets(client, following, ("t", 0, 7, ""), version=5) == ["NONE"]
    assert ended(client, following)[0] == "NONE"
    assert [each.offset for each in broker.groups.committed("g").values()] == [7]


def test_an_old_client_continues_with_version_2(broker, client):
    """Between two transactions of one transactional id."""
    _, producer = init(client)
    assert add(client, producer, ("t", 0)) == ["NONE"]
    assert add_offsets(client, producer) == "NONE"
    assert commit_offsets(client, producer, ("t", 0, 5, "")) == ["NONE"]
    assert produce(client, producer) == "NONE"
    assert end(client, producer) == "NONE"
    assert produce(client, producer, sequence=1, version=12) == "NONE"
    assert commit_offsets(client, producer, ("t", 0, 6, ""), version=5) == ["NONE"]
    assert ended(client, producer) == ("NONE", (producer.producer_id, 1))
    assert len(list(broker.read("t", 0, isolation="read_committed"))) == 2
    assert [each.offset for each in broker.groups.committed("g").values()] == [6]


def test_a_transaction_that_takes_too_long_is_aborted():
    """The commit is refused, and the client continues after an abort."""
    with Broker(clock=VirtualClock(), broker_config=CONFIG, background=True) as broker:
        broker.create_topic("t")
        with broker.listen() as listener, Client(listener) as client:
            _, producer = init(client)
            assert produce(client, producer, version=12) == "NONE"
            broker.clock.advance(minutes=1)
            assert broker.log("t").last_stable_offset == 2
            assert produce(client, producer, version=12, sequence=1) == "INVALID_PRODUCER_EPOCH"
            assert ended(client, producer)[0] == "INVALID_TXN_STATE"
            error, following = ended(client, producer, commit=False)
            assert (error, following) == ("NONE", (producer.producer_id, 1))
            assert produce(client, following, version=12) == "NONE"


def test_a_client_waits_while_a_marker_cannot_be_written(broker, client, monkeypatch):
    _, producer = init(client)
    produce(client, producer, version=12)

    def fail(*_, **__):
        raise KafkaStorageError("the disk failed")

    with monkeypatch.context() as patch:
        patch.setattr(broker.log("t").writer, "append_end_txn_marker", fail)
        error, following = ended(client, producer)
        assert (error, following) == ("NONE", (producer.producer_id, 1))
        assert produce(client, following, version=12) == "CONCURRENT_TRANSACTIONS"
        assert produce(client, following, version=11) == "NOT_ENOUGH_REPLICAS"
        assert add(client, following, ("t", 1)) == ["CONCURRENT_TRANSACTIONS"]
        assert init(client) == ("CONCURRENT_TRANSACTIONS", NOBODY)
        told = commit_offsets(client, following, ("t", 0, 5, ""), version=5)
        assert told == ["CONCURRENT_TRANSACTIONS"]
        assert commit_offsets(client, following, ("t", 0, 5, "")) == ["NOT_COORDINATOR"]
    assert produce(client, following, version=12) == "NONE"


def test_a_failing_disk_of_the_coordinator_is_retried(broker, client):
    _, producer = init(client)
    produce(client, producer, version=12)
    with broker.fail("append", error="EIO", topic="__transaction_state"):
        assert ended(client, producer) == ("NOT_COORDINATOR", NOBODY)


# -- between brokers -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", (4, 5))
def test_several_transactions_are_added_at_once(broker, client, version):
    x, y = init(client)[1], init(client, transactional_id="y")[1]
    told = add_batched(
        client,
        ("x", x, (0, 1), False),
        ("y", y, (1,), False),
        ("z", x, (0,), False),
        version=version,
    )
    assert told == {"x": ["NONE"] * 2, "y": ["NONE"], "z": ["INVALID_PRODUCER_ID_MAPPING"]}
    known = broker.coordinator.transactions()
    assert {each: len(known[each].partitions) for each in known} == {"x": 2, "y": 1}
    assert add_batched(client, ("x", x, (0, 7), False), version=version) == {
        "x": ["OPERATION_NOT_ATTEMPTED", "UNKNOWN_TOPIC_OR_PARTITION"]
    }


def test_partitions_are_verified_without_being_added(broker, client):
    _, producer = init(client)
    assert add_batched(client, ("x", producer, (0,), True)) == {"x": ["TRANSACTION_ABORTABLE"]}
    add(client, producer, ("t", 0))
    told = add_batched(client, ("x", producer, (0, 1), True))
    assert told == {"x": ["NONE", "TRANSACTION_ABORTABLE"]}
    older = producer._replace(producer_epoch=7)
    assert add_batched(client, ("x", older, (0,), True)) == {"x": ["PRODUCER_FENCED"]}
    assert add_batched(client, ("", producer, (0,), True)) == {"": ["INVALID_REQUEST"]}
    other = producer._replace(producer_id=99)
    assert add_batched(client, ("x", other, (0,), True)) == {"x": ["INVALID_PRODUCER_ID_MAPPING"]}
    assert broker.coordinator.transactions()["x"].partitions == {TopicPartition("t", 0)}


# -- markers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", (1, 2))
@pytest.mark.parametrize("commit", (True, False))
def test_markers_end_transactions_of_a_partition(broker, client, version, commit):
    _, producer = init(client)
    produce(client, producer, version=12)
    told = write_markers(
        client, (producer, 0, commit, 0, [("t", 0), ("t", 1), ("no", 0)]), version=version
    )
    assert told == {
        producer.producer_id: {
            ("t", 0): "NONE",
            ("t", 1): "NONE",
            ("no", 0): "UNKNOWN_TOPIC_OR_PARTITION",
        }
    }
    assert broker.log("t").last_stable_offset == 2
    assert len(list(broker.read("t", 0, isolation="read_committed"))) == commit


def test_markers_of_several_producers_are_answered_by_producer(broker, client):
    first, second = init(client)[1], init(client, transactional_id="y")[1]
    told = write_markers(
        client,
        (first, 0, True, 0, [("t", 0)]),
        (second, 0, True, 0, [("t", 0)]),
        (first, 0, True, 0, [("t", 1)]),
    )
    assert told == {
        first.producer_id: {("t", 0): "NONE", ("t", 1): "NONE"},
        second.producer_id: {("t", 0): "NONE"},
    }
    assert write_markers(client) == {}


def test_outdated_markers_are_refused(broker, client):
    _, producer = init(client)
    produce(client, producer, version=12)
    place = [("t", 0)]

    def error(epoch, coordinator_epoch, transaction_version):
        named = ProducerIdAndEpoch(producer.producer_id, epoch)
        marker = (named, coordinator_epoch, False, transaction_version, place)
        return write_markers(client, marker)[producer.producer_id]["t", 0]

    assert error(0, 3, 2) == "INVALID_PRODUCER_EPOCH", "the epoch of the transaction"
    assert error(1, 3, 2) == "NONE"
    assert error(1, 3, 2) == "NONE", "a retry"
    assert error(0, 3, 0) == "INVALID_PRODUCER_EPOCH"
    assert error(1, 2, 2) == "TRANSACTION_COORDINATOR_FENCED"


def test_a_hanging_transaction_is_aborted_as_kafka_transactions_does(broker, client):
    """With the epochs that DescribeProducers reports."""
    _, producer = init(client)
    broker.log("t").writer.append_batches(
        build_batch(
            [Record(0, 1_704_067_200_000, b"k", b"v")],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
    )
    request = DescribeProducersRequest(
        topics=[DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0])]
    )
    (topic,) = client.ask(request, 0).topics
    (found,) = topic.partitions[0].active_producers
    assert found.current_txn_start_offset == 0
    hanging = ProducerIdAndEpoch(found.producer_id, found.producer_epoch)
    marker = (hanging, max(0, found.coordinator_epoch), False, 0, [("t", 0)])
    assert write_markers(client, marker) == {hanging.producer_id: {("t", 0): "NONE"}}
    assert broker.log("t").last_stable_offset == broker.log("t").log_end_offset


def test_markers_wait_for_the_replicas_of_a_cluster():
    with Cluster(3) as cluster:
        cluster.create_topic("t", 1, replication_factor=3)
        with cluster.listen() as listeners:
            leader = cluster.controller.state(TopicPartition("t", 0)).leader
            follower = next(each for each in listeners if each != leader)
            producer = ProducerIdAndEpoch(5, 0)
            marker = (producer, 0, True, 0, [("t", 0)])
            with Client(listeners[follower]) as client:
                told = write_markers(client, marker)
                assert told == {5: {("t", 0): "NOT_LEADER_OR_FOLLOWER"}}
            with Client(listeners[leader]) as client:
                assert write_markers(client, marker) == {5: {("t", 0): "NONE"}}


def test_a_produced_response_names_the_offset(client):
    _, producer = init(client)
    assert produced(client, producer, version=12).base_offset == 0
