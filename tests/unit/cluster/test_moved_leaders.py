"""Leaders that move: the responses and errors of each broker."""

from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import TopicPartition

from logstore import Cluster
from logstore.errors import RequestError, UnknownTopicOrPartitionError
from logstore.messages.types import (
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DescribeClusterRequest,
    ElectLeadersRequest,
    FindCoordinatorRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)
from tests.support.world.builders import batch
from tests.support.world.wire import TIMEOUT_S, Client, fetch_of, name_of


@pytest.fixture
def cluster():
    with Cluster(brokers=3, broker_config={"replica.lag.time.max.ms": "3600000"}) as cluster:
        cluster.create_topic("t", partitions=4, replication_factor=3)
        yield cluster


@pytest.fixture
def server(cluster):
    with cluster.listen() as server:
        yield server


@pytest.fixture
def clients(server):
    clients = [Client(server[number]) for number in range(3)]
    yield clients
    for client in clients:
        client.close()


def metadata_of(client):
    topic = MetadataRequest.MetadataRequestTopic(name="t")
    return client.ask(MetadataRequest(topics=[topic]), 12)


def test_all_brokers_report_the_same_brokers_and_leaders(cluster, server, clients):
    ports = [server[number].port for number in range(3)]
    for client in clients:
        answer = metadata_of(client)
        assert [(each.node_id, each.port) for each in answer.brokers] == list(enumerate(ports))
        assert answer.controller_id == 0
        (topic,) = answer.topics
        told = [(each.leader_id, each.replica_nodes, each.isr_nodes) for each in topic.partitions]
        assert told == [
            (0, [0, 1, 2], [0, 1, 2]),
            (1, [1, 2, 0], [1, 2, 0]),
            (2, [2, 0, 1], [2, 0, 1]),
            (0, [0, 1, 2], [0, 1, 2]),
        ]
        cluster = client.ask(DescribeClusterRequest(), 0)
        assert [each.broker_id for each in cluster.brokers] == [0, 1, 2]
        found = client.ask(FindCoordinatorRequest(key="g"), 1)
        assert (found.node_id, found.port) == (0, ports[0])
    assert server.bootstrap == ",".join(f"127.0.0.1:{port}" for port in ports)


def produced(client, partition, version=9):
    data = ProduceRequest.PartitionProduceData(index=partition, records=batch(0))
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    answer = client.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), version)
    return answer.responses[0].partition_responses[0]


def listed(client, partition, epoch=-1):
    kinds = ListOffsetsRequest
    asked = kinds.ListOffsetsPartition(
        partition_index=partition, timestamp=-1, current_leader_epoch=epoch
    )
    request = kinds(topics=[kinds.ListOffsetsTopic(name="t", partitions=[asked])], replica_id=-1)
    return client.ask(request, 4).topics[0].partitions[0]


def deleted(client, partition, offset):
    kinds = DeleteRecordsRequest
    asked = kinds.DeleteRecordsPartition(partition_index=partition, offset=offset)
    topic = kinds.DeleteRecordsTopic(name="t", partitions=[asked])
    return client.ask(kinds(topics=[topic], timeout_ms=1000), 1).topics[0].partitions[0]


def epoch_end(client, partition, epoch, current=-1):
    kinds = OffsetForLeaderEpochRequest
    asked = kinds.OffsetForLeaderPartition(
        partition=partition, leader_epoch=epoch, current_leader_epoch=current
    )
    topic = kinds.OffsetForLeaderTopic(topic="t", partitions=[asked])
    return client.ask(kinds(topics=[topic]), 3).topics[0].partitions[0]


def fetched(client, partition, offset=0, epoch=-1, **fields):
    request = fetch_of("t", offset, partition, **fields)
    request.topics[0].partitions[0].current_leader_epoch = epoch
    return client.ask(request, 10).responses[0].partitions[0]  # 11 may read from followers


def test_only_the_leader_serves(clients):
    leader, other = clients[1], clients[0]
    assert produced(leader, 1).base_offset == 0
    for answer in (
        produced(other, 1),
        fetched(other, 1),
        listed(other, 1),
        epoch_end(other, 1, 0),
        deleted(other, 1, 1),
    ):
        assert name_of(answer.error_code) == "NOT_LEADER_OR_FOLLOWER"
    assert produced(other, 1).base_offset == -1
    assert fetched(leader, 1).high_watermark == 1
    assert listed(leader, 1).offset == 1
    assert epoch_end(leader, 1, 0).end_offset == 1
    assert deleted(leader, 1, 1).low_watermark == 1


def test_a_leader_that_moved_leaves_its_epoch_behind(cluster, server, clients):
    produced(clients[1], 1)
    cluster.move_leader("t", 1, to=2)
    assert cluster.leader("t", 1) == 2
    assert name_of(produced(clients[1], 1).error_code) == "NOT_LEADER_OR_FOLLOWER"
    assert produced(clients[2], 1).base_offset == 1
    partition = metadata_of(clients[0]).topics[0].partitions[1]
    assert (partition.leader_id, partition.leader_epoch) == (2, 1)
    # Every broker checks the epoch first, then the leadership.
    for client in clients:
        for ask in (fetched, listed):
            assert name_of(ask(client, 1, epoch=0).error_code) == "FENCED_LEADER_EPOCH"
            assert name_of(ask(client, 1, epoch=2).error_code) == "UNKNOWN_LEADER_EPOCH"
    for ask in (fetched, listed):
        assert name_of(ask(clients[0], 1, epoch=1).error_code) == "NOT_LEADER_OR_FOLLOWER"
        assert ask(clients[2], 1, epoch=1).error_code == 0
    assert (epoch_end(clients[2], 1, 0).leader_epoch, epoch_end(clients[2], 1, 0).end_offset) == (
        0,
        1,
    )
    assert epoch_end(clients[2], 1, 1, current=1).end_offset == 2
    assert name_of(epoch_end(clients[2], 1, 1, current=0).error_code) == "FENCED_LEADER_EPOCH"


@pytest.mark.parametrize(
    ("version", "epoch", "error"),
    ((10, -1, "NOT_LEADER_OR_FOLLOWER"), (11, 0, "FENCED_LEADER_EPOCH")),
    ids=("of leaders", "of replicas"),
)
def test_a_waiting_fetch_fails_when_the_leader_changes(
    cluster, server, clients, version, epoch, error
):
    client = clients[1]
    request = fetch_of("t", 0, 1, max_wait_ms=30 * TIMEOUT_S * 1000)
    request.topics[0].partitions[0].current_leader_epoch = epoch
    client.socket.sendall(client.frame(request, version))
    client.until(lambda: len(server[1].service.purgatory))
    cluster.move_leader("t", 1, to=0)
    answer = client.read(request, version)[1].responses[0].partitions[0]
    assert name_of(answer.error_code) == error


def test_a_broker_with_a_closed_listener_is_not_listed(cluster, server, clients):
    server[0].close()
    answer = metadata_of(clients[1])
    assert [each.node_id for each in answer.brokers] == [1, 2]
    assert answer.controller_id == 1


def test_topics_have_the_requested_replicas(cluster, clients):
    kinds = CreateTopicsRequest

    def create(name, factor, assignments=()):
        count = -1 if assignments else 1
        topic = kinds.CreatableTopic(
            name=name,
            num_partitions=count,
            replication_factor=factor,
            assignments=[
                kinds.CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
                for number, brokers in enumerate(assignments)
            ],
        )
        (found,) = clients[2].ask(kinds(topics=[topic], timeout_ms=1000), 5).topics
        return name_of(found.error_code), found.replication_factor

    assert create("a", -1) == ("NONE", 1)
    assert create("b", 2) == ("NONE", 2)
    assert create("c", 4)[0] == "INVALID_REPLICATION_FACTOR"
    assert create("d", -1, [(0, 1), (2, 1)]) == ("NONE", 2)
    assert create("e", -1, [(0, 3)])[0] == "INVALID_REPLICA_ASSIGNMENT"
    assert create("f", -1, [(1, 1)])[0] == "INVALID_REPLICA_ASSIGNMENT"
    assert create("g", -1, [(0, 1), (2,)])[0] == "INVALID_REPLICA_ASSIGNMENT"
    assert [topic.name for topic in cluster.topics()] == ["a", "b", "d", "t"]


def test_the_preferred_replica_is_elected_if_it_does_not_lead(cluster, server, clients):
    def elect(*numbers, unclean=False, is_all=False):
        asked = ElectLeadersRequest.TopicPartitions(topic="t", partitions=list(numbers))
        request = ElectLeadersRequest(
            election_type=int(unclean),
            topic_partitions=None if is_all else [asked],
            timeout_ms=1000,
        )
        answer = clients[0].ask(request, 2)
        return [
            (each.partition_id, name_of(each.error_code))
            for topic in answer.replica_election_results
            for each in topic.partition_result
        ]

    cluster.move_leader("t", 1, to=0)
    assert elect(1, 2, 9) == [
        (1, "NONE"),
        (2, "ELECTION_NOT_NEEDED"),
        (9, "UNKNOWN_TOPIC_OR_PARTITION"),
    ]
    assert cluster.leader("t", 1) == 1
    assert elect(is_all=True) == []
    cluster.move_leader("t", 2, to=0)
    assert elect(2, unclean=True) == [(2, "ELECTION_NOT_NEEDED")]
    assert elect(is_all=True) == [(2, "NONE")]


def test_brokers_and_partitions_that_there_are_not_are_refused(cluster, server):
    with pytest.raises(RequestError, match="3"):
        cluster.move_leader("t", 0, to=3)
    with pytest.raises(UnknownTopicOrPartitionError):
        cluster.move_leader("t", 7, to=0)


# -- clients that people use -------------------------------------------------------------------


def test_confluent_follows_leaders_that_move(cluster, server):
    configs = {"bootstrap.servers": server.bootstrap, "topic.metadata.refresh.interval.ms": 100}
    producer = Producer({**configs, "enable.idempotence": True})
    delivered = []
    with closing(Consumer({**configs, "group.id": "g"})) as consumer:
        consumer.assign([ConfluentPartition("t", 1, 0)])
        found = []
        for number in range(4):
            producer.produce(
                "t",
                value=b"%d" % number,
                partition=1,
                on_delivery=lambda error, message: delivered.append((error, message.offset())),
            )
            assert producer.flush(TIMEOUT_S) == 0
            while len(found) <= number:
                found += consumer.consume(1, TIMEOUT_S)
            cluster.move_leader("t", 1, to=(number + 2) % 3)
    assert delivered == [(None, number) for number in range(4)]
    assert [message.value() for message in found] == [b"0", b"1", b"2", b"3"]


def test_kafka_python_follows_leaders_that_move(cluster, server):
    configs = {"bootstrap_servers": server.bootstrap, "retry_backoff_ms": 10}
    with (
        closing(KafkaProducer(**configs)) as producer,
        closing(KafkaConsumer(**configs, group_id=None)) as consumer,
    ):
        consumer.assign([TopicPartition("t", 1)])
        consumer.seek_to_beginning()
        found = []
        for number in range(4):
            sent = producer.send("t", b"%d" % number, partition=1)
            assert sent.get(TIMEOUT_S).offset == number
            while len(found) <= number:
                for records in consumer.poll(TIMEOUT_S * 1000).values():
                    found += records
            cluster.move_leader("t", 1, to=(number + 2) % 3)
    assert [(each.offset, each.value) for each in found] == [(n, b"%d" % n) for n in range(4)]
