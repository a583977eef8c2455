"""A cluster over the wire: what real clients see of leaders, replicas, and requests that wait."""

import asyncio
import socket
import threading
from contextlib import closing
from itertools import count

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, ElectionType, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import errors as kafka_errors
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPartition

from logstore import Acl, Authorizer, Cluster, ShiftedClock, TopicPartition, VirtualClock
from logstore.cluster.requests import DelayedProduce
from logstore.errors import (
    IllegalStateError,
    InvalidConfigurationError,
    InvalidReplicaAssignmentError,
)
from logstore.messages.types import (
    AddPartitionsToTxnRequest,
    DeleteRecordsRequest,
    DescribeTransactionsRequest,
    ElectLeadersRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)
from tests.support.world.builders import batch
from tests.support.world.wire import Client, fetch_of, name_of

TIMEOUT_S = 60
"""Upper limit of each wait; a passing test never waits that long."""

TP = TopicPartition("t", 0)
NEVER_LAGS = {"replica.lag.time.max.ms": 10 * TIMEOUT_S * 1000}


@pytest.fixture(scope="module")
def shared():
    """A cluster that tests leave as it was; each has topics of its own."""
    with Cluster(brokers=3, broker_config=NEVER_LAGS) as cluster, cluster.listen() as server:
        yield cluster, server


@pytest.fixture
def made():
    """A cluster to be spoilt."""
    with Cluster(brokers=3, broker_config=NEVER_LAGS) as cluster, cluster.listen() as server:
        cluster.create_topic("t", replication_factor=3, configs={"min.insync.replicas": "2"})
        yield cluster, server


def wait_for(condition):
    """Wait for something that other threads are about to do."""
    pause = threading.Event()
    for _ in range(TIMEOUT_S * 200):
        if condition():
            return
        pause.wait(0.005)
    raise TimeoutError


def in_sync(cluster, tp=TP, count=3):
    wait_for(lambda: len(cluster.state(tp).isr) == count)


def produced(listener, tp, *, acks=-1, timeout_ms=TIMEOUT_S * 1000):
    data = ProduceRequest.PartitionProduceData(index=tp.partition, records=batch(0))
    topic = ProduceRequest.TopicProduceData(name=tp.topic, partition_data=[data])
    request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])
    with Client(listener) as client:
        found = client.ask(request, 9).responses[0].partition_responses[0]
    return name_of(found.error_code), found.base_offset


def deleted(listener, tp, offset, timeout_ms=TIMEOUT_S * 1000):
    kinds = DeleteRecordsRequest
    asked = kinds.DeleteRecordsPartition(partition_index=tp.partition, offset=offset)
    topic = kinds.DeleteRecordsTopic(name=tp.topic, partitions=[asked])
    with Client(listener) as client:
        answer = client.ask(kinds(topics=[topic], timeout_ms=timeout_ms), 1)
    found = answer.topics[0].partitions[0]
    return name_of(found.error_code), found.low_watermark


# -- responses to clients ----------------------------------------------------------------------


def test_metadata_lists_brokers_leaders_epochs_and_replicas(made):
    cluster, server = made
    cluster.create_topic("alone", partitions=2, replication_factor=1)

    def partitions(broker, name):
        with Client(server[broker]) as client:
            topic = MetadataRequest.MetadataRequestTopic(name=name)
            answer = client.ask(MetadataRequest(topics=[topic]), 12)
        brokers = [each.node_id for each in answer.brokers]
        ports = [each.port for each in answer.brokers]
        assert ports == [server[number].port for number in brokers]
        return brokers, answer.controller_id, answer.topics[0].partitions

    for broker in range(3):
        brokers, controller, (found,) = partitions(broker, "t")
        assert (brokers, controller) == ([0, 1, 2], 0)
        assert (found.leader_id, found.leader_epoch) == (0, 0)
        assert (found.replica_nodes, found.isr_nodes) == ([0, 1, 2], [0, 1, 2])
        # Also of partitions of which the broker has no replica.
        _, _, alone = partitions(broker, "alone")
        assert [each.leader_id for each in alone] == [0, 1]
    cluster.kill(0)
    brokers, controller, (found,) = partitions(1, "t")
    assert (brokers, controller) == ([1, 2], 1)
    assert (found.leader_id, found.leader_epoch) == (1, 1)
    assert (found.isr_nodes, found.offline_replicas) == ([1, 2], [0])
    _, _, (found, _) = partitions(1, "alone")
    assert (found.leader_id, name_of(found.error_code)) == (-1, "LEADER_NOT_AVAILABLE")


def test_a_topic_deleted_during_a_metadata_request_has_no_leader(shared, monkeypatch):
    """LEADER_NOT_AVAILABLE, upon which clients ask again."""
    cluster, server = shared
    topic = cluster.create_topic("short", replication_factor=1)
    cluster.delete_topic("short")
    topics = cluster.controller.topics()
    monkeypatch.setattr(cluster.controller, "topics", lambda: [*topics, topic])
    with Client(server[0]) as client:
        answer = client.ask(MetadataRequest(topics=None), 9)
    (found,) = [each for each in answer.topics if each.name == "short"]
    assert name_of(found.partitions[0].error_code) == "LEADER_NOT_AVAILABLE"


def test_a_broker_that_returns_listens_where_it_did(made):
    cluster, server = made
    bootstrap, port = server.bootstrap, server[1].port
    assert list(server) == [0, 1, 2]
    cluster.stop(1)
    assert list(server) == [0, 2]
    assert (1 in server, len(server), server.bootstrap) == (False, 2, bootstrap)
    cluster.restart(1)
    assert list(server) == [0, 1, 2]
    if server[1].port != port:  # another process took it meanwhile, and clients get the new one
        assert server.bootstrap != bootstrap
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))


def test_a_broker_whose_port_was_taken_listens_on_another_one(caplog):
    with Cluster(brokers=2) as cluster, cluster.listen() as server:
        port = server[1].port
        cluster.stop(1)
        with socket.socket() as other:
            other.bind(("127.0.0.1", port))
            other.listen()
            cluster.restart(1)
            assert server[1].port != port
    (message,) = [each for each in caplog.messages if "another port" in each]
    assert message.startswith("broker 1 listens on another port: ")
    assert str(port) in message


def test_a_virtual_cluster_does_not_listen():
    with (
        Cluster(brokers=1, clock=VirtualClock()) as cluster,
        pytest.raises(InvalidConfigurationError, match="with a VirtualClock cannot listen"),
    ):
        cluster.listen()


@pytest.mark.parametrize("brokers", (1, 3))
def test_a_consumer_in_the_process_waits_no_longer_than_its_timeout(brokers):
    with Cluster(brokers=brokers, clock=ShiftedClock()) as cluster, cluster.listen():
        cluster.create_topic("t", replication_factor=brokers)
        consumer = cluster.brokers[0].consumer()
        consumer.assign([TP])
        assert consumer.poll(timeout_ms=20) == {}


def test_listeners_are_closed_with_the_cluster():
    with Cluster(brokers=2) as cluster:
        server = cluster.listen()
    assert list(server) == []
    with Cluster(brokers=2) as cluster, cluster.listen() as server:
        assert list(server) == [0, 1]
    assert list(server) == []


# -- errors ------------------------------------------------------------------------------------


def test_followers_send_clients_to_the_leader(shared):
    """NOT_LEADER_OR_FOLLOWER, also of a broker without a replica."""
    cluster, server = shared
    cluster.create_topic("led", replication_factor=2, configs={})
    tp = TopicPartition("led", 0)
    for broker in (1, 2):
        assert produced(server[broker], tp) == ("NOT_LEADER_OR_FOLLOWER", -1)
        assert deleted(server[broker], tp, 0) == ("NOT_LEADER_OR_FOLLOWER", -1)
        with Client(server[broker]) as client:
            found = client.ask(fetch_of("led", 0), 10).responses[0].partitions[0]
        assert name_of(found.error_code) == "NOT_LEADER_OR_FOLLOWER"
    assert produced(server[0], tp) == ("NONE", 0)
    assert produced(server[1], TopicPartition("led", 9))[0] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert produced(server[1], TopicPartition("none", 0))[0] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_brokers_without_a_replica_know_topics_by_their_ids(shared):
    cluster, server = shared
    topic = cluster.create_topic("identified", replication_factor=1, configs={})
    fetched = fetch_of("", 0)
    fetched.topics[0].topic_id = topic.id
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(topic_id=topic.id)])
    for broker in (1, 2):
        with Client(server[broker]) as client:
            assert client.ask(asked, 12).topics[0].name == "identified"
            found = client.ask(fetched, 13).responses[0].partitions[0]
        assert name_of(found.error_code) == "NOT_LEADER_OR_FOLLOWER"


@pytest.mark.parametrize(("fetch_version", "produce_version"), ((15, 9), (16, 10), (17, 12)))
def test_a_refusal_names_the_leader(made, fetch_version, produce_version):
    """KIP-951: the client needs no metadata to find it."""
    cluster, server = made
    cluster.move_leader("t", to=2)
    fetched = fetch_of("", 0)
    fetched.topics[0].topic_id = cluster.topics()[0].id
    data = ProduceRequest.PartitionProduceData(index=0, records=batch(0))
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    with Client(server[1]) as client:
        fetched.topics[0].partitions[0].current_leader_epoch = 0
        fenced = client.ask(fetched, fetch_version)
        refused = client.ask(ProduceRequest(acks=1, topic_data=[topic]), produce_version)
    one = fenced.responses[0].partitions[0]
    other = refused.responses[0].partition_responses[0]
    names = [name_of(each.error_code) for each in (one, other)]
    assert names == ["FENCED_LEADER_EPOCH", "NOT_LEADER_OR_FOLLOWER"]
    for answer, found in ((fenced, one), (refused, other)):
        if fetch_version < 16:
            assert answer.node_endpoints == []
            continue
        assert (found.current_leader.leader_id, found.current_leader.leader_epoch) == (2, 1)
        (endpoint,) = answer.node_endpoints
        assert (endpoint.node_id, endpoint.port, endpoint.rack) == (2, server[2].port, None)


def test_a_refusal_names_the_leaders_of_all_partitions(made):
    cluster, server = made
    cluster.create_topic("led", 3, replication_factor=1)
    data = [ProduceRequest.PartitionProduceData(index=n, records=batch(0)) for n in (2, 0, 1)]
    topic = ProduceRequest.TopicProduceData(name="led", partition_data=data)
    with Client(server[0]) as client:
        answer = client.ask(ProduceRequest(acks=1, topic_data=[topic]), 10)
    assert [
        (
            each.index,
            name_of(each.error_code),
            each.current_leader and each.current_leader.leader_id,
        )
        for each in answer.responses[0].partition_responses
    ] == [(2, "NOT_LEADER_OR_FOLLOWER", 2), (0, "NONE", None), (1, "NOT_LEADER_OR_FOLLOWER", 1)]
    endpoints = [(each.node_id, each.port) for each in answer.node_endpoints]
    assert endpoints == [(1, server[1].port), (2, server[2].port)]


def test_an_impossible_election_has_a_message(made):
    cluster, server = made
    cluster.kill(0)
    kind = ElectLeadersRequest
    asked = kind.TopicPartitions(topic="t", partitions=[0])
    with Client(server[1]) as client:
        answer = client.ask(kind(topic_partitions=[asked], timeout_ms=1000), 2)
    found = answer.replica_election_results[0].partition_result[0]
    assert name_of(found.error_code) == "PREFERRED_LEADER_NOT_AVAILABLE"
    assert found.error_message == "The preferred leader was not available."


def test_clients_with_another_leader_epoch_get_an_error(shared):
    """FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH, before NOT_LEADER_OR_FOLLOWER."""
    cluster, server = shared
    cluster.create_topic("epochs", replication_factor=3)
    assert produced(server[0], TopicPartition("epochs", 0)) == ("NONE", 0)
    cluster.move_leader("epochs", to=2)
    assert produced(server[2], TopicPartition("epochs", 0)) == ("NONE", 1)

    def fetched(broker, epoch):
        request = fetch_of("epochs", 0)
        request.topics[0].partitions[0].current_leader_epoch = epoch
        with Client(server[broker]) as client:
            return name_of(client.ask(request, 10).responses[0].partitions[0].error_code)

    def epoch_end(broker, epoch, current):
        kinds = OffsetForLeaderEpochRequest
        asked = kinds.OffsetForLeaderPartition(
            partition=0, leader_epoch=epoch, current_leader_epoch=current
        )
        topic = kinds.OffsetForLeaderTopic(topic="epochs", partitions=[asked])
        with Client(server[broker]) as client:
            found = client.ask(kinds(topics=[topic]), 3).topics[0].partitions[0]
        return name_of(found.error_code), found.leader_epoch, found.end_offset

    assert [fetched(2, epoch) for epoch in (-1, 0, 1, 2)] == [
        "NONE",
        "FENCED_LEADER_EPOCH",
        "NONE",
        "UNKNOWN_LEADER_EPOCH",
    ]
    assert [fetched(0, epoch) for epoch in (-1, 0, 1)] == [
        "NOT_LEADER_OR_FOLLOWER",
        "FENCED_LEADER_EPOCH",
        "NOT_LEADER_OR_FOLLOWER",
    ]
    assert epoch_end(2, 0, 1) == ("NONE", 0, 1)
    assert epoch_end(2, 1, 1) == ("NONE", 1, 2)
    assert epoch_end(2, 1, 0)[0] == "FENCED_LEADER_EPOCH"
    assert epoch_end(1, 1, 1)[0] == "NOT_LEADER_OR_FOLLOWER"


def test_acks_all_wants_enough_replicas_and_waits_for_them(made):
    """NOT_ENOUGH_REPLICAS, REQUEST_TIMED_OUT, and neither for acks=1."""
    cluster, server = made
    assert produced(server[0], TP) == ("NONE", 0)
    cluster.disconnect({0}, {1, 2})
    assert produced(server[0], TP, timeout_ms=1) == ("REQUEST_TIMED_OUT", -1)
    assert produced(server[0], TP, acks=1) == ("NONE", 2)
    log = cluster.brokers[0].log(TP)
    assert (log.high_watermark, log.log_end_offset) == (1, 3), "readers see none of it yet"
    cluster.heal()
    assert produced(server[0], TP) == ("NONE", 3)
    cluster.kill(1)
    cluster.kill(2)
    assert produced(server[0], TP) == ("NOT_ENOUGH_REPLICAS", -1)
    assert log.log_end_offset == 4, "nothing was appended"
    assert produced(server[0], TP, acks=1) == ("NONE", 4)


def test_an_append_and_a_deletion_that_wait_end_by_the_clock(made):
    """The timeout is in ms: a thousand times as long, and the client itself would give up."""
    cluster, server = made
    assert produced(server[0], TP) == ("NONE", 0)
    cluster.disconnect({0}, {1, 2})
    for _ in range(2):
        assert produced(server[0], TP, timeout_ms=100) == ("REQUEST_TIMED_OUT", -1)
        assert deleted(server[0], TP, 1, timeout_ms=100) == ("REQUEST_TIMED_OUT", 0)


def test_a_fetch_waits_for_the_high_watermark_of_what_is_in_the_log_already(made):
    """Such records add no byte to the log when they come in sight."""
    cluster, server = made
    cluster.disconnect({0}, {1, 2})
    assert produced(server[0], TP, acks=1) == ("NONE", 0)
    log = cluster.brokers[0].log(TP)
    assert (log.high_watermark, log.log_end_offset) == (0, 1)
    with Client(server[0]) as client:
        before = len(log.changed._listeners)
        asked = fetch_of("t", 0, max_wait_ms=3_600_000)
        client.socket.sendall(client.frame(asked, 12))
        client.until(lambda: len(log.changed._listeners) > before)
        cluster.heal()
        found = client.read(asked, 12)[1].responses[0].partitions[0]
    assert (found.high_watermark, len(found.records) > 0) == (1, True)


def test_a_waiting_append_fails_when_the_leader_changes(made):
    """NOT_LEADER_OR_FOLLOWER, before the timeout."""
    cluster, server = made
    cluster.disconnect({0}, {1, 2})
    answers = []
    thread = threading.Thread(target=lambda: answers.append(produced(server[0], TP)))
    thread.start()
    wait_for(lambda: len(server[0].service.purgatory))
    cluster.move_leader(TP, to=1)
    thread.join()
    assert answers == [("NOT_LEADER_OR_FOLLOWER", -1)]


def id_at(cluster, broker):
    """Return a transactional id that a broker coordinates."""
    ids = (f"x-{number}" for number in count())
    return next(each for each in ids if cluster.transaction_coordinator(each) == broker)


def init_of(transactional_id):
    return InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_S * 1000
    )


def begin(client, transactional_id, *, commit):
    """Begin a transaction on partition 0 of `t`, and return the request that ends it."""
    begun = client.ask(init_of(transactional_id), 4)
    of_topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=begun.producer_id,
        v3_and_below_producer_epoch=begun.producer_epoch,
        v3_and_below_topics=[of_topic(name="t", partitions=[0])],
    )
    client.ask(added, 3)
    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=begun.producer_id,
        producer_epoch=begun.producer_epoch,
        committed=commit,
    )


def state_of(client, transactional_id):
    asked = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    return client.ask(asked, 0).transaction_states[0].transaction_state


@pytest.mark.parametrize("power_loss", (False, True), ids=("kill", "power loss"))
def test_a_marker_stops_waiting_for_a_follower_when_its_process_ends(made, power_loss):
    """The process ends although a request at its listener waits for replicas, too."""
    cluster, server = made
    x, y = id_at(cluster, 0), id_at(cluster, 2)
    with Client(server[0]) as client, Client(server[2]) as other:
        commit = begin(client, x, commit=True)
        cluster.disconnect({2}, {0, 1})
        client.socket.sendall(client.frame(commit, 3))
        wait_for(lambda: len(cluster.purgatory))
        other.socket.sendall(other.frame(init_of(y), 4))
        wait_for(lambda: "InitProducerId" in [each.api for each in server[2].requests])
        cluster.kill(2, power_loss=power_loss)
        client.read(commit, 3)
        assert state_of(client, x) == "CompleteCommit", "both replicas in sync have the marker"


def test_a_marker_that_no_leader_took_is_written_by_the_next_one():
    """The producer does not ask for it: it is gone."""
    configs = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 20, **NEVER_LAGS}
    with Cluster(brokers=3, broker_config=configs) as cluster, cluster.listen() as server:
        cluster.create_topic("t")
        x = id_at(cluster, 1)
        with Client(server[1]) as client:
            abort = begin(client, x, commit=False)
            cluster.kill(0)
            assert name_of(client.ask(abort, 3).error_code) == "NONE"
            assert state_of(client, x) == "PrepareAbort", "the partition has no leader"
            cluster.restart(0)
            wait_for(lambda: state_of(client, x) == "CompleteAbort")


def test_an_append_fails_if_too_few_replicas_have_it():
    """NOT_ENOUGH_REPLICAS_AFTER_APPEND: the setting or the replicas changed as it was answered."""
    with Cluster(brokers=3, clock=VirtualClock()) as cluster:
        cluster.create_topic("t", replication_factor=3)
        offset = cluster.append("t", value=b"x").offset
        cluster.kill(2)
        cluster.alter_configs("t", {"min.insync.replicas": "3"})
        delayed = DelayedProduce(cluster.replicas(0), TP, offset, cluster.replicas(0).role(TP))
        assert delayed.is_done()
        assert delayed.error.kafka_error == "NOT_ENOUGH_REPLICAS_AFTER_APPEND"


def test_deletions_wait_for_live_replicas(made):
    """KIP-107, step 4: REQUEST_TIMED_OUT, OFFSET_OUT_OF_RANGE, NOT_LEADER_OR_FOLLOWER, and -1.

    After a timeout, Kafka reports the low watermark as of the request.
    """
    cluster, server = made
    for number in range(5):
        assert produced(server[0], TP) == ("NONE", number)
    assert deleted(server[0], TP, 2) == ("NONE", 2)
    assert deleted(server[0], TP, 6) == ("OFFSET_OUT_OF_RANGE", -1)
    assert deleted(server[1], TP, 3) == ("NOT_LEADER_OR_FOLLOWER", -1)
    cluster.disconnect({0}, {2})
    assert deleted(server[0], TP, 3, timeout_ms=1) == ("REQUEST_TIMED_OUT", 2)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(deleted(server[0], TP, 4)))
    thread.start()
    wait_for(lambda: len(server[0].service.purgatory))
    cluster.heal()
    thread.join()
    assert answers == [("NONE", 4)]
    assert deleted(server[0], TP, -1) == ("NONE", 5)
    starts = [broker.log(TP).log_start_offset for broker in cluster.brokers.values()]
    assert starts == [5, 5, 5]


def test_step_9_an_admin_client_gets_each_result_from_its_leader(shared):
    """KIP-107, steps 2 and 9, by clients that people use."""
    cluster, server = shared
    cluster.create_topic("steps", partitions=3, replication_factor=3)
    for partition in range(3):
        for _ in range(4):
            cluster.append("steps", value=b"x", partition=partition)
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    asked = [ConfluentPartition("steps", n, offset) for n, offset in enumerate((1, 9, -1))]
    results = admin.delete_records(asked, request_timeout=TIMEOUT_S)
    found = {}
    for each, future in results.items():
        try:
            found[each.partition] = future.result(TIMEOUT_S).low_watermark
        except KafkaException as error:
            found[each.partition] = error.args[0].code()
    assert found == {0: 1, 1: KafkaError.OFFSET_OUT_OF_RANGE, 2: 4}
    with closing(KafkaAdminClient(bootstrap_servers=server.bootstrap)) as client:
        tps = {TopicPartition("steps", n): offset for n, offset in enumerate((2, 3, 4))}
        answers = client.delete_records(tps)
        assert [answers[tp]["low_watermark"] for tp in tps] == [2, 3, 4]


def test_section_3_deleting_records_wants_delete_on_the_topic():
    """KIP-107, "API Authorization": the operation is DELETE, the resource the topic."""
    acls = [Acl("User:*", operation, "topic", "t") for operation in ("describe", "write")]
    with (
        Cluster(brokers=2) as cluster,
        cluster.listen(authorizer=Authorizer(acls)) as server,
    ):
        cluster.create_topic("t", replication_factor=2)
        assert deleted(server[0], TP, 0) == ("TOPIC_AUTHORIZATION_FAILED", -1)
        server[0].service.authorizer.add(Acl("User:*", "delete", "topic", "t"))
        assert deleted(server[0], TP, 0) == ("NONE", 0)


# -- clients that people use -------------------------------------------------------------------


def test_confluent_sees_that_too_few_replicas_are_in_sync(made):
    cluster, server = made
    configs = {"bootstrap.servers": server.bootstrap, "message.send.max.retries": 0, "acks": "all"}
    errors = []
    cluster.kill(1)
    cluster.kill(2)
    producer = Producer(configs)
    producer.produce("t", b"x", on_delivery=lambda error, _: errors.append(error.code()))
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == [KafkaError.NOT_ENOUGH_REPLICAS]


def test_confluent_sees_a_deletion_that_replicas_are_late_for(made):
    cluster, server = made
    assert produced(server[0], TP) == ("NONE", 0)
    cluster.disconnect({0}, {2})
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    asked = [ConfluentPartition("t", 0, 1)]
    options = {"operation_timeout": 0.001, "request_timeout": TIMEOUT_S}
    (future,) = admin.delete_records(asked, **options).values()
    with pytest.raises(KafkaException) as raised:
        future.result(TIMEOUT_S)
    assert raised.value.args[0].code() == KafkaError.REQUEST_TIMED_OUT
    cluster.heal()
    (future,) = admin.delete_records(asked, request_timeout=TIMEOUT_S).values()
    assert future.result(TIMEOUT_S).low_watermark == 1


def test_kafka_python_sees_too_few_replicas_and_another_leader(made):
    cluster, server = made
    cluster.kill(1)
    cluster.kill(2)
    configs = {"bootstrap_servers": server.bootstrap, "retries": 0, "acks": "all"}
    with closing(KafkaProducer(**configs, enable_idempotence=False)) as producer:
        with pytest.raises(kafka_errors.NotEnoughReplicasError):
            producer.send("t", b"x").get(TIMEOUT_S)
        cluster.restart(1)
        in_sync(cluster, count=2)
        cluster.disconnect({0}, {1})
        with closing(
            KafkaProducer(**configs, enable_idempotence=False, request_timeout_ms=TIMEOUT_S * 1000)
        ) as waiting:
            sent = waiting.send("t", b"x")
            wait_for(lambda: len(server[0].service.purgatory))
            cluster.move_leader(TP, to=1)
            with pytest.raises(kafka_errors.NotLeaderForPartitionError):
                sent.get(TIMEOUT_S)


@pytest.mark.slow
def test_confluent_produces_and_consumes_while_leaders_move(made):
    cluster, server = made
    configs = {"bootstrap.servers": server.bootstrap}
    producer = Producer({**configs, "enable.idempotence": True})
    with closing(
        Consumer({**configs, "group.id": "g", "auto.offset.reset": "earliest"})
    ) as consumer:
        consumer.subscribe(["t"])
        found = []
        for number in range(4):
            producer.produce("t", b"%d" % number)
            assert producer.flush(TIMEOUT_S) == 0
            while len(found) <= number:
                found += [each.value() for each in consumer.consume(1, TIMEOUT_S)]
            in_sync(cluster)
            cluster.move_leader(TP, to=(number + 1) % 3)
        consumer.commit(asynchronous=False)
    assert found == [b"0", b"1", b"2", b"3"]
    with closing(KafkaConsumer(bootstrap_servers=server.bootstrap, group_id="g")) as consumer:
        assert consumer.committed(KafkaPartition("t", 0)) == 4


def test_confluent_commits_transactions_over_several_leaders(shared):
    cluster, server = shared
    cluster.create_topic("tx", partitions=3, replication_factor=3)
    configs = {"bootstrap.servers": server.bootstrap}
    producer = Producer({**configs, "transactional.id": "tx"})
    producer.init_transactions(TIMEOUT_S)
    for value, commit in ((b"1", True), (b"2", False), (b"3", True)):
        producer.begin_transaction()
        for partition in range(3):
            producer.produce("tx", value, partition=partition)
        assert producer.flush(TIMEOUT_S) == 0  # including the aborted records
        (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT_S)
    for partition in range(3):
        tp = TopicPartition("tx", partition)
        for broker in cluster.brokers.values():
            log = broker.log(tp)
            wait_for(lambda log=log: log.high_watermark == 6)
            found = broker.read(tp, isolation="read_committed")
            assert [record.value for record in found] == [b"1", b"3"]


def confluent_commits(bootstrap, topic, group, offset, *, commit):
    configs = {"bootstrap.servers": bootstrap}
    producer = Producer({**configs, "transactional.id": group})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"x")
    with closing(Consumer({**configs, "group.id": group})) as consumer:
        offsets = [ConfluentPartition(topic, 0, offset)]
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction(offsets, metadata, TIMEOUT_S)
    (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT_S)


def kafka_python_commits(bootstrap, topic, group, offset, *, commit):
    with closing(KafkaProducer(bootstrap_servers=bootstrap, transactional_id=group)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"x")
        offsets = {KafkaPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}
        producer.send_offsets_to_transaction(offsets, group)
        (producer.commit_transaction if commit else producer.abort_transaction)()


def aiokafka_commits(bootstrap, topic, group, offset, *, commit):
    async def run():
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=group)
        await producer.start()
        await producer.begin_transaction()
        await producer.send(topic, b"x")
        await producer.send_offsets_to_transaction({AioPartition(topic, 0): offset}, group)
        await (producer.commit_transaction if commit else producer.abort_transaction)()
        await producer.stop()

    asyncio.run(run())


@pytest.mark.parametrize("commits", (confluent_commits, kafka_python_commits, aiokafka_commits))
def test_clients_commit_offsets_in_transactions(shared, commits):
    cluster, server = shared
    topic = commits.__name__
    cluster.create_topic(topic, replication_factor=3)
    commits(server.bootstrap, topic, topic, 5, commit=True)
    commits(server.bootstrap, topic, topic, 9, commit=False)
    configs = {"bootstrap.servers": server.bootstrap, "group.id": topic}
    for isolation in ("read_uncommitted", "read_committed"):
        with closing(Consumer({**configs, "isolation.level": isolation})) as consumer:
            (found,) = consumer.committed([ConfluentPartition(topic, 0)], TIMEOUT_S)
        assert found.offset == 5


def test_confluent_administers_the_whole_cluster(shared):
    cluster, server = shared
    admin = AdminClient({"bootstrap.servers": server.bootstrap})

    def done(futures):
        return [future.result(TIMEOUT_S) for future in futures.values()]

    done(admin.create_topics([NewTopic("made", 2, 2), NewTopic("one", 1)]))
    assert [topic.replication_factor for topic in cluster.topics() if topic.name == "made"] == [2]
    placed = NewTopic("placed", 2, replica_assignment=[[2, 0], [1, 2]])
    done(admin.create_topics([placed]))
    assert [cluster.state("placed", n).replicas for n in range(2)] == [(2, 0), (1, 2)]
    with pytest.raises(KafkaException) as raised:
        done(admin.create_topics([NewTopic("many", 1, 4)]))
    assert raised.value.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR

    def alter(kind, name, **values):
        entries = [
            ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for key, value in values.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        done(admin.incremental_alter_configs([resource]))

    alter("topic", "made", retention_ms="77")
    alter("broker", "2", log_retention_ms="88")
    resource = ConfigResource("broker", "2")
    (described,) = done(admin.describe_configs([resource]))
    assert described["log.retention.ms"].value == "88"
    retention = [
        broker.describe_configs("one")["retention.ms"].value if number == 0 else None
        for number, broker in cluster.brokers.items()
    ]
    assert retention[0] == "604800000"
    assert cluster.brokers[0].describe_configs("made")["retention.ms"].value == "77"
    in_sync(cluster, TopicPartition("placed", 0), 2)
    cluster.move_leader("placed", 0, to=0)
    elected = admin.elect_leaders(ElectionType.PREFERRED, [ConfluentPartition("placed", 0)])
    elected.result(TIMEOUT_S)
    assert cluster.leader("placed", 0) == 2
    done(admin.delete_topics(["made", "one", "placed"]))
    assert "made" not in [topic.name for topic in cluster.topics()]


# -- settings ----------------------------------------------------------------------------------


def retention(cluster):
    return {
        number: tuple(broker.describe_configs("t")["retention.ms"][:2])
        for number, broker in cluster.brokers.items()
    }


def test_settings_are_of_all_brokers_of_a_group_of_them_or_of_one():
    key = "log.retention.ms"
    with Cluster(brokers=3, clock=VirtualClock(), broker_config={key: "1"}) as cluster:
        cluster.create_topic("t", replication_factor=3)
        cluster.kill(2)
        cluster.alter_broker_configs({key: "2"})
        cluster.alter_broker_configs({key: "3"}, brokers=[0, 1])
        cluster.alter_broker_configs({key: "4"}, brokers=[1])
        cluster.restart(2)
        assert retention(cluster) == {
            0: ("3", "dynamic broker"),
            1: ("4", "dynamic broker"),
            2: ("2", "dynamic default"),
        }
        cluster.restart(0)
        cluster.kill(1)
        cluster.alter_broker_configs({key: None})
        cluster.alter_broker_configs({key: None}, brokers=[0])
        cluster.restart(1)
        cluster.alter_broker_configs({key: None}, brokers=[1])
        assert retention(cluster) == dict.fromkeys(range(3), ("1", "broker"))
        with pytest.raises(InvalidConfigurationError):
            cluster.alter_broker_configs({key: "5", "log.dirs": "/x"})
        with pytest.raises(
            InvalidConfigurationError, match=r"^unknown broker 3: broker ids are 0 to 2$"
        ):
            cluster.alter_broker_configs({key: "5"}, brokers=[0, 3])
        cluster.alter_configs("t", {"max.compaction.lag.ms": "10"})
        with pytest.raises(InvalidConfigurationError):
            cluster.alter_broker_configs({key: "5", "log.cleaner.min.compaction.lag.ms": "11"})
        assert retention(cluster) == dict.fromkeys(range(3), ("1", "broker"))
        cluster.alter_broker_configs({"log.cleaner.min.compaction.lag.ms": "9"}, brokers=[2])
        with pytest.raises(InvalidConfigurationError):  # of the last one
            cluster.alter_broker_configs({key: "5", "log.cleaner.max.compaction.lag.ms": "8"})
        assert retention(cluster) == dict.fromkeys(range(3), ("1", "broker"))
        cluster.kill(0)
        with pytest.raises(IllegalStateError):
            cluster.alter_broker_configs({key: "5"}, brokers=[0])


def test_replicas_that_were_chosen_are_checked():
    with Cluster(brokers=3, clock=VirtualClock()) as cluster:
        cluster.kill(0)
        uneven = "an assignment needs equally many replicas for each of 2 partitions: "
        others = "replicas must be distinct running brokers in [1, 2], not "
        for wrong, message in (
            ([[2, 1]], f"{uneven}[(2, 1)]"),
            ([[2, 1], [2]], f"{uneven}[(2, 1), (2,)]"),
            ([[1, 2], [2, 2]], f"{others}(2, 2)"),
            ([[2, 3], [1, 2]], f"{others}(2, 3)"),
            ([[2, 1], [0, 2]], f"{others}(0, 2)"),
            ([[], []], f"{others}()"),
        ):
            with pytest.raises(InvalidReplicaAssignmentError) as caught:
                cluster.create_topic("t", 2, assignment=wrong)
            assert str(caught.value) == message
        cluster.restart(0)
        cluster.create_topic("t", 2, assignment=[[2, 1], [1, 0]])
        cluster.create_partitions("t", 3, assignment=[[0, 2]])
        assert [cluster.state("t", n).replicas for n in range(3)] == [(2, 1), (1, 0), (0, 2)]
