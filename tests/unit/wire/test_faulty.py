"""Requests that fail by rule: as a whole or in part, before or after they are done."""

import threading
from datetime import timedelta

import pytest

from logstore import Broker, SystemClock
from logstore.errors import KAFKA_CODES, InvalidConfigurationError
from logstore.messages.apis import apis_by_name
from logstore.messages.types import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProduceRequest,
)
from logstore.types import TopicPartition
from logstore.wire.faulty import Subject, call_of, merged, refusal_of, without
from logstore.wire.frames import RequestHead
from tests.support.world.builders import batch, offsets_of
from tests.support.world.messages import exactly
from tests.support.world.wire import TIMEOUT_S, Client, fetch_of, name_of

NOT_LEADER = KAFKA_CODES["NOT_LEADER_OR_FOLLOWER"]


@pytest.fixture(autouse=True)
def topics(broker):
    broker.create_topic("a", 2)
    broker.create_topic("b")


def produce_of(*partitions, acks=1):
    topics = [
        ProduceRequest.TopicProduceData(
            name=topic,
            partition_data=[ProduceRequest.PartitionProduceData(index=number, records=batch(0))],
        )
        for topic, number in partitions
    ]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)


def codes(answer):
    return {
        (topic.name, each.index): (each.error_code, each.base_offset)
        for topic in answer.responses
        for each in topic.partition_responses
    }


def test_a_refused_request_does_nothing_and_is_counted(broker, listener, client):
    rule = listener.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=2)
    for _ in range(2):
        answer = client.ask(produce_of(("a", 0)), 9)
        assert codes(answer) == {("a", 0): (NOT_LEADER, -1)}
    assert broker.log("a").log_end_offset == 0
    assert codes(client.ask(produce_of(("a", 0)), 9)) == {("a", 0): (0, 0)}
    assert (rule.calls, rule.hits) == (3, 2)
    assert list(listener.faults) == [rule]


def test_a_rule_about_a_topic_refuses_that_alone(broker, listener, client):
    listener.fail("Produce", topic="a", partition=1, error="NOT_LEADER_OR_FOLLOWER")
    answer = client.ask(produce_of(("a", 0), ("b", 0), ("a", 1)), 9)
    assert codes(answer) == {("a", 0): (0, 0), ("b", 0): (0, 0), ("a", 1): (NOT_LEADER, -1)}
    assert [broker.log(*tp).log_end_offset for tp in (("a", 0), ("a", 1), ("b", 0))] == [1, 0, 1]
    assert codes(client.ask(produce_of(("b", 0)), 9)) == {("b", 0): (0, 1)}


def test_a_rule_may_refuse_what_was_done(broker, listener, client):
    listener.fail("Produce", topic="a", error="REQUEST_TIMED_OUT", after=True)
    answer = client.ask(produce_of(("a", 0), ("b", 0)), 9)
    timed_out = KAFKA_CODES["REQUEST_TIMED_OUT"]
    assert codes(answer) == {("a", 0): (timed_out, -1), ("b", 0): (0, 0)}
    assert broker.log("a").log_end_offset == 1


@pytest.mark.parametrize("after", (False, True))
def test_a_connection_is_cut_instead_of_an_answer(broker, listener, client, after):
    with listener.fail("Produce", drop=True, after=after):
        client.socket.sendall(client.frame(produce_of(("a", 0)), 9))
        assert client.is_at_end()
    assert broker.log("a").log_end_offset == int(after)


def test_acks_0_that_are_refused_end_the_connection(broker, listener, client):
    listener.fail("Produce", error="NOT_LEADER_OR_FOLLOWER")
    client.socket.sendall(client.frame(produce_of(("a", 0), acks=0), 9))
    assert client.is_at_end()
    assert broker.log("a").log_end_offset == 0


def test_a_fetch_is_refused_in_part_and_at_once(broker, listener, client):
    broker.log("b").writer.append_batches(batch(0))
    listener.fail("Fetch", topic="a", error="NOT_LEADER_OR_FOLLOWER")
    request = fetch_of("a", 0, max_wait_ms=60_000, min_bytes=10_000)
    request.topics += fetch_of("b", 0).topics
    answer = client.ask(request, 12)
    found = {each.topic: each.partitions[0] for each in answer.responses}
    assert (found["a"].error_code, found["a"].high_watermark) == (NOT_LEADER, -1)
    assert offsets_of(bytes(found["b"].records)) == [0]
    request = fetch_of("", 0)
    request.topics[0].topic_id = broker.topic("a").id
    answer = client.ask(request, 13)
    assert answer.responses[0].topic_id == broker.topic("a").id
    assert answer.responses[0].partitions[0].error_code == NOT_LEADER


def test_metadata_keep_their_brokers(listener, client):
    listener.fail("Metadata", topic="a", error="LEADER_NOT_AVAILABLE", nth=1)
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in "ab"]
    answer = client.ask(MetadataRequest(topics=topics), 12)
    assert len(answer.brokers) == 1
    assert {each.name: each.error_code for each in answer.topics} == {"a": 5, "b": 0}
    answer = client.ask(MetadataRequest(topics=topics), 12)
    assert {each.name: each.error_code for each in answer.topics} == {"a": 0, "b": 0}


def test_topics_are_refused_by_name(broker, listener, client):
    listener.fail("CreateTopics", topic="c", error="NOT_CONTROLLER")
    listener.fail("DeleteTopics", topic="b", error="REQUEST_TIMED_OUT")
    made = [
        CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        for name in "cd"
    ]
    answer = client.ask(CreateTopicsRequest(topics=made), 7)
    assert {each.name: each.error_code for each in answer.topics} == {
        "c": KAFKA_CODES["NOT_CONTROLLER"],
        "d": 0,
    }
    answer = client.ask(DeleteTopicsRequest(topic_names=["a", "b"]), 5)
    assert {each.name: each.error_code for each in answer.responses} == {"a": 0, "b": 7}
    assert [topic.name for topic in broker.topics()] == ["b", "d"]


def test_a_late_answer_comes(listener, client):
    rule = listener.fail("ApiVersions", delay=timedelta(milliseconds=1))
    assert client.ask(ApiVersionsRequest(), 0).error_code == 0
    assert rule.hits == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    (
        (
            {"api": "Prodcue", "error": "NOT_CONTROLLER"},
            (
                "unknown kind of call 'Prodcue'; the nearest is 'Produce'; known: "
                "Produce, Fetch, ListOffsets, Metadata, OffsetCommit, OffsetFetch, "
                "FindCoordinator, JoinGroup, Heartbeat, LeaveGroup, SyncGroup, "
                "DescribeGroups, ListGroups, SaslHandshake, ApiVersions, CreateTopics, "
                "DeleteTopics, DeleteRecords, InitProducerId, OffsetForLeaderEpoch, "
                "AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, WriteTxnMarkers, TxnOffsetCommit, "
                "DescribeAcls, CreateAcls, DeleteAcls, DescribeConfigs, AlterConfigs, "
                "AlterReplicaLogDirs, DescribeLogDirs, SaslAuthenticate, CreatePartitions, "
                "DeleteGroups, ElectLeaders, IncrementalAlterConfigs, "
                "AlterPartitionReassignments, ListPartitionReassignments, OffsetDelete, "
                "DescribeUserScramCredentials, AlterUserScramCredentials, "
                "DescribeClientQuotas, AlterClientQuotas, DescribeQuorum, UpdateFeatures, "
                "DescribeCluster, DescribeProducers, DescribeTransactions, ListTransactions, "
                "ConsumerGroupHeartbeat, ConsumerGroupDescribe, UnregisterBroker, "
                "ListConfigResources, DescribeTopicPartitions"
            ),
        ),
        (
            {"api": "Produce"},
            ("fail('Produce') requires an error, such as error='REQUEST_TIMED_OUT', or a delay"),
        ),
        (
            {"api": "Produce", "error": "NOT_LEADER"},
            ("'NOT_LEADER' is not a Kafka error; the nearest is 'NOT_LEADER_OR_FOLLOWER'"),
        ),
        (
            {"api": "Produce", "error": "NOT_CONTROLLER", "drop": True},
            "fail takes either an error or drop, not both",
        ),
    ),
)
def test_a_rule_without_sense_is_refused_by_name(listener, arguments, message):
    with pytest.raises(InvalidConfigurationError, match=exactly(message)):
        listener.fail(**arguments)


# -- any message -------------------------------------------------------------------------------


def refused(request, version, error="NOT_COORDINATOR", topic=None, partition=None):
    api = apis_by_name()[type(request).__name__.removesuffix("Request")]
    head = RequestHead(api, version, 1, "me", 0)
    subject = Subject(topic, partition, version, lambda topic_id: None)
    return refusal_of(head, request, error, subject), call_of(head, request, lambda _: None)


def test_an_item_with_one_error_has_its_code():
    answer, call = refused(HeartbeatRequest(group_id="g"), 4)
    assert answer.error_code == KAFKA_CODES["NOT_COORDINATOR"]
    assert (call.kind, call.group_id, call.client_id, call.partitions) == (
        "Heartbeat",
        "g",
        "me",
        (),
    )
    assert refused(FindCoordinatorRequest(key="g"), 2)[0].error_code == 16


def test_names_in_lists_are_answered_one_by_one():
    answer, _ = refused(FindCoordinatorRequest(coordinator_keys=["g", "h"]), 4)
    assert [(each.key, each.error_code) for each in answer.coordinators] == [("g", 16), ("h", 16)]
    assert answer.error_code == 0


@pytest.mark.parametrize("version", range(2, 10))
def test_commits_are_refused_by_partition(version):
    kinds = OffsetCommitRequest
    partitions = [
        kinds.OffsetCommitRequestPartition(partition_index=number, committed_offset=1)
        for number in (0, 1)
    ]
    topics = [kinds.OffsetCommitRequestTopic(name="t", partitions=partitions)]
    request = kinds(group_id="g", topics=topics)
    answer, call = refused(request, version, partition=1)
    (topic,) = answer.topics
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(1, 16)]
    assert call.partitions == (TopicPartition("t", 0), TopicPartition("t", 1))
    subject = Subject(None, 1, version, lambda _: None)
    assert without(request, subject)
    assert [each.partition_index for each in request.topics[0].partitions] == [0]


def test_offsets_of_several_groups_are_refused_by_topic():
    kinds = OffsetFetchRequest
    group = kinds.OffsetFetchRequestGroup(
        group_id="g",
        topics=[kinds.OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in "ab"],
    )
    answer, call = refused(kinds(groups=[group]), 8, topic="b")
    assert call.partitions == (TopicPartition("a", 0), TopicPartition("b", 0))
    (found,) = answer.groups
    assert [topic.name for topic in found.topics] == ["b"]


def test_a_fully_expected_message_leaves_no_rest():
    request = FetchRequest(topics=fetch_of("a", 0).topics)
    assert not without(request, Subject("a", None, 12, lambda _: None))
    api = apis_by_name()["Fetch"]
    empty = api.response()
    assert merged(empty, empty, Subject(None, None, 12, lambda _: None)) is empty


# -- rules of the broker, which also apply to the listener -------------------------------------


def test_a_join_is_refused_or_its_answer_lost(broker, client):
    def joined(member_id=""):
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
        asked = JoinGroupRequest(
            group_id="g",
            protocol_type="consumer",
            protocols=[protocol],
            member_id=member_id,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
        )
        return client.ask(asked, 3)

    with broker.fail("join", nth=1, error="COORDINATOR_LOAD_IN_PROGRESS") as rule:
        assert name_of(joined().error_code) == "COORDINATOR_LOAD_IN_PROGRESS"
        assert rule.hits == 1
        assert broker.groups.describe("g").state == "Dead"
    with broker.fail("join", nth=1, error="REQUEST_TIMED_OUT", after=True):
        assert name_of(joined().error_code) == "REQUEST_TIMED_OUT"
    assert len(broker.groups.describe("g").members) == 1
    with broker.fail("join", error="NOT_COORDINATOR", when=lambda call: call.group_id == "other"):
        assert (
            name_of(joined(broker.groups.describe("g").members[0].member_id).error_code) == "NONE"
        )


@pytest.mark.parametrize("after", (False, True))
def test_a_commit_is_refused_or_its_answer_lost(broker, client, after):
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=7
    )
    topics = [
        OffsetCommitRequest.OffsetCommitRequestTopic(name=name, partitions=[partition])
        for name in ("a", "b")
    ]
    asked = OffsetCommitRequest(group_id="g", topics=topics)
    rule = broker.fail("commit", topic="b", times=1, error="NOT_COORDINATOR", after=after)
    answer = client.ask(asked, 8)
    # A commit is one request: it is refused as a whole.
    assert {name_of(each.partitions[0].error_code) for each in answer.topics} == {"NOT_COORDINATOR"}
    committed = {tp: each.offset for tp, each in broker.groups.committed("g").items()}
    assert committed == ({TopicPartition("a", 0): 7, TopicPartition("b", 0): 7} if after else {})
    answer = client.ask(asked, 8)
    assert {each.partitions[0].error_code for each in answer.topics} == {0}
    assert rule.hits == 1


@pytest.mark.parametrize("kind", ("append", "fetch", "commit", "join"))
def test_a_request_delayed_by_a_rule_does_not_delay_others(kind):
    class HeldClock(SystemClock):
        """Sleeps until it is woken."""

        def __init__(self):
            self.sleeps, self.goes_on = threading.Event(), threading.Event()

        def sleep(self, seconds):
            self.sleeps.set()
            assert self.goes_on.wait(TIMEOUT_S)

    clock = HeldClock()
    with Broker(clock=clock) as broker, broker.listen() as listener:
        broker.create_topic("a")
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
        commit = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=7
        )
        request, version = {
            "append": (produce_of(("a", 0)), 9),
            "fetch": (fetch_of("a", 0), 12),
            "commit": (
                OffsetCommitRequest(
                    group_id="g",
                    topics=[
                        OffsetCommitRequest.OffsetCommitRequestTopic(name="a", partitions=[commit])
                    ],
                ),
                8,
            ),
            "join": (
                JoinGroupRequest(
                    group_id="g",
                    protocol_type="consumer",
                    protocols=[protocol],
                    session_timeout_ms=30_000,
                    rebalance_timeout_ms=30_000,
                ),
                3,
            ),
        }[kind]
        broker.fail(kind, delay=3_600_000)
        with Client(listener) as delayed, Client(listener) as other:
            delayed.socket.sendall(delayed.frame(request, version))
            assert clock.sleeps.wait(TIMEOUT_S)
            assert other.ask(MetadataRequest(topics=None), 9).topics[0].name == "a"
            clock.goes_on.set()
            assert delayed.read(request, version)[0] == delayed.correlation_id
