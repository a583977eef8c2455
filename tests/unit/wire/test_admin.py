"""Topics, partitions, log directories and the cluster, as a cluster of one of Kafka's answers."""

import shutil

import pytest

from logstore import Broker
from logstore.errors import KAFKA_CODES
from logstore.messages.types import (
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    DescribeTopicPartitionsRequest,
    ElectLeadersRequest,
    FindCoordinatorRequest,
    ListPartitionReassignmentsRequest,
    MetadataRequest,
)
from logstore.types import BROKER_ID, CLUSTER_ID
from logstore.wire.limits import Limits
from logstore.wire.nodes import Nodes
from tests.support.world.builders import batch
from tests.support.world.wire import Client, name_of

NOTHING = "A" * 22
ALL_ON_A_TOPIC = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
ALL_ON_THE_CLUSTER = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))


# -- Metadata ----------------------------------------------------------------------------------


def metadata(client, version, *names, **fields):
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return client.ask(MetadataRequest(topics=topics, **fields), version)


@pytest.mark.parametrize("version", range(13))
def test_metadata_lists_brokers_and_topics(broker, listener, client, version):
    broker.create_topic("t", 2)
    answer = metadata(client, version, "t")
    (told,) = answer.brokers
    assert (told.node_id, told.host, told.port) == (BROKER_ID, "127.0.0.1", listener.port)
    (topic,) = answer.topics
    assert (topic.name, topic.error_code) == ("t", 0)
    assert [
        (p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in topic.partitions
    ] == [
        (0, BROKER_ID, [BROKER_ID], [BROKER_ID]),
        (1, BROKER_ID, [BROKER_ID], [BROKER_ID]),
    ]
    if version >= 1:
        assert answer.controller_id == BROKER_ID
    if version >= 2:
        assert answer.cluster_id == CLUSTER_ID
    if version >= 10:
        assert topic.topic_id == broker.topic("t").id


def test_a_broker_is_identified_by_its_id():
    """As the only one, as controller and coordinator, as leader, and where replicas may be."""
    with Broker(broker_config={"node.id": 3}) as broker, broker.listen() as listener:
        broker.create_topic("t")
        with Client(listener) as client:
            answer = metadata(client, 8, "t")
            assert [each.node_id for each in answer.brokers] == [3]
            partition = answer.topics[0].partitions[0]
            assert (answer.controller_id, partition.leader_id) == (3, 3)
            assert (partition.replica_nodes, partition.isr_nodes) == ([3], [3])
            cluster = client.ask(DescribeClusterRequest(), 0)
            assert (cluster.controller_id, cluster.brokers[0].broker_id) == (3, 3)
            assert client.ask(FindCoordinatorRequest(key="g"), 2).node_id == 3
            for broker_id, error in ((3, "NONE"), (0, "INVALID_REPLICA_ASSIGNMENT")):
                assignment = CreateTopicsRequest.CreatableReplicaAssignment(
                    partition_index=0, broker_ids=[broker_id]
                )
                topic = CreateTopicsRequest.CreatableTopic(
                    name=f"on-{broker_id}",
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[assignment],
                )
                created = client.ask(CreateTopicsRequest(topics=[topic]), 5).topics[0]
                assert name_of(created.error_code) == error
            for name, error in (("3", "NONE"), ("0", "INVALID_REQUEST")):
                resource = DescribeConfigsRequest.DescribeConfigsResource(
                    resource_type=4, resource_name=name, configuration_keys=["node.id"]
                )
                [told] = client.ask(DescribeConfigsRequest(resources=[resource]), 4).results
                assert name_of(told.error_code) == error
                if told.configs:
                    assert [each.value for each in told.configs] == ["3"]


def test_all_topics_are_null_and_in_version_0_nothing(broker, client):
    broker.create_topic("a")
    broker.create_topic("b")
    for version, topics, expected in (
        (0, [], ["a", "b"]),
        (1, [], []),
        (1, None, ["a", "b"]),
        (12, None, ["a", "b"]),
    ):
        answer = client.ask(MetadataRequest(topics=topics), version)
        assert [each.name for each in answer.topics] == expected


def test_topics_are_auto_created_unless_disabled(broker, client):
    def codes(version, *names, **fields):
        answer = metadata(client, version, *names, **fields)
        return [name_of(each.error_code) for each in answer.topics]

    assert codes(3, "a") == ["NONE"]
    assert codes(4, "b", allow_auto_topic_creation=False) == ["UNKNOWN_TOPIC_OR_PARTITION"]
    assert codes(4, "b", "not legal") == ["NONE", "INVALID_TOPIC_EXCEPTION"]
    assert [topic.name for topic in broker.topics()] == ["a", "b"]
    assert codes(4, "__consumer_offsets") == ["NONE"]
    assert metadata(client, 4, "__consumer_offsets").topics[0].is_internal
    assert codes(4, "__transaction_state") == ["UNKNOWN_TOPIC_OR_PARTITION"]
    with broker.listen(auto_create=False) as listener, Client(listener) as other:
        assert metadata(other, 4, "c").topics[0].error_code == 3


def test_topics_are_found_by_id(broker, client):
    topic_id = broker.create_topic("t").id
    for asked, expected in (
        (topic_id, ("t", 0)),
        ("B" * 22, (None, KAFKA_CODES["UNKNOWN_TOPIC_ID"])),
    ):
        topics = [MetadataRequest.MetadataRequestTopic(topic_id=asked, name=None)]
        (found,) = client.ask(MetadataRequest(topics=topics), 12).topics
        assert (found.name, found.error_code) == expected


def test_each_topic_is_found_by_its_id_once(broker, client):
    ids = [broker.create_topic(name).id for name in ("t", "u")]
    asked = [MetadataRequest.MetadataRequestTopic(topic_id=each, name=None) for each in ids * 2]
    found = client.ask(MetadataRequest(topics=asked), 12).topics
    assert [each.name for each in found] == ["t", "u"]


@pytest.mark.parametrize("version", (10, 11))
def test_versions_before_12_cannot_ask_by_id(broker, client, version):
    topic_id = broker.create_topic("t").id
    kind = MetadataRequest.MetadataRequestTopic
    for asked, name in ((kind(topic_id=topic_id, name=None), ""), (kind(name=None), "")):
        (found,) = client.ask(MetadataRequest(topics=[asked]), version).topics
        assert (found.name, name_of(found.error_code)) == (name, "INVALID_REQUEST")


def test_authorized_operations_are_returned_on_request(broker, client):
    broker.create_topic("t")
    answer = metadata(
        client,
        8,
        "t",
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    assert answer.topics[0].topic_authorized_operations == ALL_ON_A_TOPIC
    assert answer.cluster_authorized_operations == ALL_ON_THE_CLUSTER
    assert metadata(client, 8, "t").topics[0].topic_authorized_operations == -(2**31)


# -- CreateTopics ------------------------------------------------------------------------------


def new_topic(name="t", partitions=1, replicas=1, assignments=(), **configs):
    kinds = CreateTopicsRequest
    return kinds.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            kinds.CreatableReplicaAssignment(partition_index=number, broker_ids=brokers)
            for number, brokers in assignments
        ],
        configs=[
            kinds.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def created(client, *topics, version=7, **fields):
    return client.ask(CreateTopicsRequest(topics=list(topics), **fields), version).topics


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_are_created_with_partitions_and_configs(broker, client, version):
    (found,) = created(client, new_topic(partitions=3, cleanup_policy="compact"), version=version)
    assert (found.name, found.error_code, found.error_message) == ("t", 0, None)
    topic = broker.topic("t")
    assert topic.partitions == (0, 1, 2)
    assert dict(topic.configs) == {"cleanup.policy": "compact"}
    if version >= 5:
        assert (found.num_partitions, found.replication_factor) == (3, 1)
        told = {each.name: (each.value, each.config_source) for each in found.configs}
        assert told["cleanup.policy"] == ("compact", 1)
        assert told["retention.ms"] == ("604800000", 5)
    if version >= 7:
        assert found.topic_id == topic.id


def test_defaults_and_manual_assignments(broker, client):
    topics = (
        new_topic("a", -1, -1),
        new_topic("b", -1, -1, assignments=((1, [0]), (0, [0]))),
    )
    assert [each.num_partitions for each in created(client, *topics)] == [1, 2]
    assert broker.topic("b").partitions == (0, 1)


def test_existing_topics_are_listed_once_for_many_new_ones(broker, client, monkeypatch):
    """A list of all topics for each new one would take a time that grows with their square."""
    listed = []
    monkeypatch.setattr(Nodes, "topics", lambda self: listed.append(self) or [])
    assert len(created(client, *(new_topic(f"a_{number}") for number in range(20)))) == 20
    assert len(listed) == 1
    created(client, new_topic("plain"))
    assert len(listed) == 1


@pytest.mark.parametrize(
    ("error", "topic", "message"),
    (
        ("TOPIC_ALREADY_EXISTS", new_topic("old"), "Topic 'old' already exists."),
        (
            "INVALID_TOPIC_EXCEPTION",
            new_topic("dotted_name"),
            "Topic 'dotted_name' collides with existing topic: dotted.name",
        ),
        (
            "INVALID_TOPIC_EXCEPTION",
            new_topic("no good"),
            (
                "topic name 'no good' has characters other than ASCII letters, digits, '.', "
                "'_' and '-'"
            ),
        ),
        ("INVALID_TOPIC_EXCEPTION", new_topic(""), "the topic name is empty"),
        (
            "INVALID_PARTITIONS",
            new_topic(partitions=0),
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            "INVALID_PARTITIONS",
            new_topic(partitions=-2),
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            "INVALID_REPLICATION_FACTOR",
            new_topic(replicas=0),
            ("Replication factor must be larger than 0, or -1 to use the default value."),
        ),
        (
            "INVALID_REPLICATION_FACTOR",
            new_topic(replicas=-2),
            ("Replication factor must be larger than 0, or -1 to use the default value."),
        ),
        (
            "INVALID_REPLICATION_FACTOR",
            new_topic(replicas=3),
            (
                "Unable to replicate the partition 3 time(s): The target replication factor "
                "of 3 cannot be reached because only 1 broker(s) are registered."
            ),
        ),
        (
            "INVALID_CONFIG",
            new_topic(retention_ms="soon"),
            ("retention.ms = 'soon' is not allowed: it must be a 64-bit integer of at least -1"),
        ),
        ("INVALID_CONFIG", new_topic(no_such_key="1"), "unknown topic configuration 'no.such.key'"),
        (
            "INVALID_CONFIG",
            new_topic(retention_ms=None),
            "Null value not supported for topic configs: retention.ms",
        ),
        (
            "INVALID_REQUEST",
            new_topic(partitions=1, replicas=-1, assignments=((0, [0]),)),
            ("A manual partition assignment was specified, but numPartitions was not set to -1."),
        ),
        (
            "INVALID_REQUEST",
            new_topic(partitions=-1, replicas=1, assignments=((0, [0]),)),
            (
                "A manual partition assignment was specified, but replication factor was "
                "not set to -1."
            ),
        ),
        (
            "INVALID_REPLICA_ASSIGNMENT",
            new_topic("t", -1, -1, ((0, [0]), (0, [0]))),
            "Found multiple manual assignments.",
        ),
        (
            "INVALID_REPLICA_ASSIGNMENT",
            new_topic("t", -1, -1, ((1, [0]),)),
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            "INVALID_REPLICA_ASSIGNMENT",
            new_topic("t", -1, -1, ((0, []),)),
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            "INVALID_REPLICA_ASSIGNMENT",
            new_topic("t", -1, -1, ((0, [7]),)),
            (
                "The manual partition assignment includes broker 7, but no such broker is "
                "registered."
            ),
        ),
        (
            "INVALID_REPLICA_ASSIGNMENT",
            new_topic("t", -1, -1, ((0, [0, 0]),)),
            "The manual partition assignment includes the broker 0 more than once.",
        ),
    ),
)
def test_a_topic_that_cannot_be_is_refused_and_keeps_from_no_other(
    broker, client, error, topic, message
):
    broker.create_topic("old")
    broker.create_topic("dotted.name")
    refused, other = created(client, topic, new_topic("other"))
    assert (name_of(refused.error_code), other.error_code) == (error, 0)
    assert refused.error_message
    assert [each.name for each in broker.topics()] == ["dotted.name", "old", "other"]
    assert refused.error_message == message


def test_a_topic_named_twice_is_refused_once(broker, client):
    (found,) = created(client, new_topic(), new_topic())
    assert name_of(found.error_code) == "INVALID_REQUEST"
    assert broker.topics() == []


def test_validated_topics_are_not_created(broker, client):
    found = created(client, new_topic(partitions=4), new_topic("x", replicas=2), validate_only=True)
    assert [each.error_code for each in found] == [0, KAFKA_CODES["INVALID_REPLICATION_FACTOR"]]
    assert (found[0].num_partitions, found[0].topic_id) == (4, NOTHING)
    assert broker.topics() == []


# -- DeleteTopics, CreatePartitions ------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 6))
def test_topics_are_deleted_by_name(broker, client, version):
    broker.create_topic("a")
    answer = client.ask(DeleteTopicsRequest(topic_names=["a", "b", "c", "c"]), version)
    found = {each.name: name_of(each.error_code) for each in answer.responses}
    assert found == {
        "a": "NONE",
        "b": "UNKNOWN_TOPIC_OR_PARTITION",
        "c": "INVALID_REQUEST",
    }
    assert broker.topics() == []


def test_topics_are_deleted_by_id(broker, client):
    topic_id = broker.create_topic("a").id
    kind = DeleteTopicsRequest.DeleteTopicState
    asked = [
        kind(name=None, topic_id=topic_id),
        kind(name=None, topic_id="B" * 22),
        kind(name="a", topic_id=topic_id),
        kind(name=None, topic_id=NOTHING),
        kind(name="b", topic_id=NOTHING),
    ]
    answer = client.ask(DeleteTopicsRequest(topics=asked), 6)
    assert [(each.name, name_of(each.error_code)) for each in answer.responses] == [
        ("a", "NONE"),
        (None, "UNKNOWN_TOPIC_ID"),
        ("a", "INVALID_REQUEST"),
        (None, "INVALID_REQUEST"),
        ("b", "UNKNOWN_TOPIC_OR_PARTITION"),
    ]
    assert broker.topics() == []


@pytest.mark.parametrize("version", range(4))
def test_topics_get_more_partitions(broker, client, version):
    broker.create_topic("a", 2)
    broker.create_topic("b", 2)
    kind = CreatePartitionsRequest.CreatePartitionsTopic
    manual = CreatePartitionsRequest.CreatePartitionsAssignment

    def grow(*topics, **fields):
        answer = client.ask(CreatePartitionsRequest(topics=list(topics), **fields), version)
        return {each.name: name_of(each.error_code) for each in answer.results}

    assert grow(kind(name="a", count=4, assignments=None), validate_only=True) == {"a": "NONE"}
    assert len(broker.topic("a").partitions) == 2
    assert grow(
        kind(name="a", count=4, assignments=None),
        kind(name="b", count=2, assignments=None),
        kind(name="c", count=2, assignments=None),
    ) == {"a": "NONE", "b": "INVALID_PARTITIONS", "c": "UNKNOWN_TOPIC_OR_PARTITION"}
    assert len(broker.topic("a").partitions) == 4
    assert grow(kind(name="a", count=3, assignments=None)) == {"a": "INVALID_PARTITIONS"}
    wrong = [manual(broker_ids=[0]), manual(broker_ids=[0])]
    assert grow(kind(name="a", count=5, assignments=wrong)) == {"a": "INVALID_REPLICA_ASSIGNMENT"}
    elsewhere = [manual(broker_ids=[4])]
    assert grow(kind(name="a", count=5, assignments=elsewhere)) == {
        "a": "INVALID_REPLICA_ASSIGNMENT"
    }
    assert grow(kind(name="a", count=5, assignments=wrong[:1])) == {"a": "NONE"}
    twice = kind(name="a", count=9, assignments=None)
    assert grow(twice, twice) == {"a": "INVALID_REQUEST"}


# -- DeleteRecords, DescribeProducers ----------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted_below_an_offset(broker, client, version):
    broker.create_topic("t", 3)
    broker.create_topic("c", configs={"cleanup.policy": "compact"})
    broker.groups.partition_for("g")
    for partition in range(3):
        broker.log("t", partition).writer.append_batches(batch(0, 9))

    def delete(topic, *wanted):
        kind = DeleteRecordsRequest.DeleteRecordsPartition
        partitions = [kind(partition_index=number, offset=offset) for number, offset in wanted]
        topics = [DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=partitions)]
        answer = client.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000), version)
        return [
            (each.low_watermark, name_of(each.error_code)) for each in answer.topics[0].partitions
        ]

    assert delete("t", (0, 4), (1, -1), (2, 11), (9, 1)) == [
        (4, "NONE"),
        (10, "NONE"),
        (-1, "OFFSET_OUT_OF_RANGE"),
        (-1, "UNKNOWN_TOPIC_OR_PARTITION"),
    ]
    assert delete("t", (0, 2), (0, -5)) == [(4, "NONE"), (-1, "OFFSET_OUT_OF_RANGE")]
    assert delete("c", (0, 0)) == [(-1, "POLICY_VIOLATION")]
    assert delete("__consumer_offsets", (0, 0)) == [(-1, "INVALID_TOPIC_EXCEPTION")]
    assert broker.log("t").log_start_offset == 4


def test_producers_of_a_partition_are_described(broker, client):
    broker.create_topic("t")
    broker.log("t").writer.append_batches(
        batch(0, 4, producer_id=7, producer_epoch=2, base_sequence=0, timestamp=5000)
    )
    kind = DescribeProducersRequest.TopicRequest
    topics = [kind(name="t", partition_indexes=[0, 1])]
    known, unknown = client.ask(DescribeProducersRequest(topics=topics), 0).topics[0].partitions
    (found,) = known.active_producers
    assert (found.producer_id, found.producer_epoch, found.last_sequence) == (7, 2, 4)
    assert (found.last_timestamp, found.current_txn_start_offset) == (5000, -1)
    assert name_of(unknown.error_code) == "UNKNOWN_TOPIC_OR_PARTITION"


# -- log directories ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 5))
def test_partitions_move_between_directories(tmp_path, version):
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    with (
        Broker(paths) as broker,
        broker.listen() as listener,
        Client(listener) as client,
    ):
        broker.create_topic("t")
        broker.log("t").writer.append_batches(batch(0, 9))
        size = broker.log("t").size_bytes

        def homes(topics=None):
            answer = client.ask(DescribeLogDirsRequest(topics=topics), version)
            return {
                result.log_dir: [
                    (topic.name, each.partition_index, each.partition_size)
                    for topic in result.topics
                    for each in topic.partitions
                ]
                for result in answer.results
            }

        before = homes()
        (home,) = (path for path in paths if before[path])
        (other,) = (path for path in paths if path != home)
        assert before[home] == [("t", 0, size)]
        assert homes([]) == {home: [], other: []}
        topic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name="t", partitions=[0, 1])
        dirs = [AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=other, topics=[topic])]
        answer = client.ask(AlterReplicaLogDirsRequest(dirs=dirs), min(version, 2))
        assert [name_of(each.error_code) for each in answer.results[0].partitions] == [
            "NONE",
            "UNKNOWN_TOPIC_OR_PARTITION",
        ]
        assert homes() == {home: [], other: [("t", 0, size)]}
        dirs[0].path = "/nowhere"
        answer = client.ask(AlterReplicaLogDirsRequest(dirs=dirs), min(version, 2))
        assert name_of(answer.results[0].partitions[0].error_code) == "LOG_DIR_NOT_FOUND"


# -- what cannot move --------------------------------------------------------------------------


def test_leaders_and_replicas_stay_where_they_are(broker, client):
    broker.create_topic("t")
    kind = ElectLeadersRequest.TopicPartitions
    asked = ElectLeadersRequest(topic_partitions=[kind(topic="t", partitions=[0, 5])])
    found = client.ask(asked, 2).replica_election_results[0].partition_result
    assert [name_of(each.error_code) for each in found] == [
        "ELECTION_NOT_NEEDED",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]
    assert client.ask(ElectLeadersRequest(topic_partitions=None), 2).replica_election_results == []
    partition = AlterPartitionReassignmentsRequest.ReassignablePartition
    asked = [
        partition(partition_index=0, replicas=[BROKER_ID]),
        partition(partition_index=0, replicas=[3]),
        partition(partition_index=0, replicas=None),
        partition(partition_index=4, replicas=[BROKER_ID]),
    ]
    topics = [AlterPartitionReassignmentsRequest.ReassignableTopic(name="t", partitions=asked)]
    answer = client.ask(AlterPartitionReassignmentsRequest(topics=topics), 0)
    assert [name_of(each.error_code) for each in answer.responses[0].partitions] == [
        "NONE",
        "INVALID_REPLICA_ASSIGNMENT",
        "NO_REASSIGNMENT_IN_PROGRESS",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]
    listed = client.ask(ListPartitionReassignmentsRequest(), 0)
    assert (listed.error_code, listed.topics) == (0, [])


# -- the cluster -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_one_broker(listener, client, version):
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    answer = client.ask(request, version)
    (told,) = answer.brokers
    assert (answer.cluster_id, answer.controller_id) == (CLUSTER_ID, BROKER_ID)
    assert (told.broker_id, told.host, told.port) == (BROKER_ID, "127.0.0.1", listener.port)
    assert answer.cluster_authorized_operations == ALL_ON_THE_CLUSTER
    if version:
        for kind, name in ((2, "MISMATCHED_ENDPOINT_TYPE"), (9, "UNSUPPORTED_ENDPOINT_TYPE")):
            answer = client.ask(DescribeClusterRequest(endpoint_type=kind), version)
            assert name_of(answer.error_code) == name


def test_topics_are_described_in_pieces(broker, client):
    broker.create_topic("a", 3)
    broker.create_topic("b", 2)

    def pieces(*names, limit=2):
        cursor, found = None, []
        while True:
            request = DescribeTopicPartitionsRequest(
                topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names],
                response_partition_limit=limit,
                cursor=cursor,
            )
            answer = client.ask(request, 0)
            found.append(
                [
                    (topic.name, [p.partition_index for p in topic.partitions])
                    for topic in answer.topics
                ]
            )
            if answer.next_cursor is None:
                return found
            cursor = DescribeTopicPartitionsRequest.Cursor(
                topic_name=answer.next_cursor.topic_name,
                partition_index=answer.next_cursor.partition_index,
            )

    assert pieces() == [[("a", [0, 1])], [("a", [2]), ("b", [0])], [("b", [1])]]
    assert pieces(limit=3) == [[("a", [0, 1, 2])], [("b", [0, 1])]]
    assert pieces("b", "b", limit=100) == [[("b", [0, 1])]]
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name="none")]
    )
    (topic,) = client.ask(request, 0).topics
    assert name_of(topic.error_code) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert len(broker.topics()) == 2


def test_authorized_operations_of_a_missing_topic_are_returned(client):
    topics = [DescribeTopicPartitionsRequest.TopicRequest(name="none")]
    (found,) = client.ask(DescribeTopicPartitionsRequest(topics=topics), 0).topics
    assert name_of(found.error_code) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert found.topic_authorized_operations == ALL_ON_A_TOPIC


def test_free_space_of_a_volume_is_reported_but_not_for_memory(tmp_path, client):
    (in_memory,) = client.ask(DescribeLogDirsRequest(topics=[]), 4).results
    assert (in_memory.total_bytes, in_memory.usable_bytes) == (-1, -1)
    with Broker(tmp_path) as broker, broker.listen() as listener, Client(listener) as other:
        (on_disk,) = other.ask(DescribeLogDirsRequest(topics=[]), 4).results
    room = shutil.disk_usage(tmp_path)
    assert on_disk.total_bytes == room.total
    assert 0 < on_disk.usable_bytes < room.total


def test_no_request_creates_more_partitions_than_the_limit():
    """As a whole it is refused, by name, before any of it is done."""
    limits = Limits(partitions=10)
    with Broker() as broker, broker.listen(limits=limits) as listener, Client(listener) as client:
        for partitions in ((4, 7), (11, 1), (2**31 - 1, 1)):
            topics = [new_topic(f"t{number}", each) for number, each in enumerate(partitions)]
            for found in created(client, *topics):
                assert name_of(found.error_code) == "POLICY_VIOLATION"
                message = "Excessively large number of partitions per request."
                assert found.error_message == message
        assert broker.topics() == []
        assert [each.error_code for each in created(client, new_topic("a", 9))] == [0]
        for count, error in (
            (20, "POLICY_VIOLATION"),
            (2**31 - 1, "POLICY_VIOLATION"),
            (19, "NONE"),
        ):
            asked = [
                CreatePartitionsRequest.CreatePartitionsTopic(
                    name=name, count=each, assignments=None
                )
                for name, each in (("a", count), ("a-too", 0))
            ]
            answer = client.ask(CreatePartitionsRequest(topics=asked), 3)
            assert name_of(answer.results[0].error_code) == error
        assert len(broker.topic("a").partitions) == 19
        # The limit applies to each request separately.
        for number in range(3):
            asked = created(client, new_topic(f"b{number}", 10), new_topic(f"c{number}", 1))
            assert {name_of(each.error_code) for each in asked} == {"POLICY_VIOLATION"}
            assert [each.error_code for each in created(client, new_topic(f"b{number}", 10))] == [0]


def test_topics_have_the_brokers_default_number_of_partitions():
    with Broker(broker_config={"num.partitions": "4"}) as broker, broker.listen() as listener:
        with Client(listener) as client:
            (by_asking,) = metadata(client, 4, "asked", allow_auto_topic_creation=True).topics
            assert len(by_asking.partitions) == 4
            assert created(client, new_topic("made", partitions=-1))
        broker.admin().create_topics(["byadmin"])
        counts = {name: len(broker.topic(name).partitions) for name in ("asked", "made", "byadmin")}
    assert counts == {"asked": 4, "made": 4, "byadmin": 4}
