"""Permissions of every API: the table is whole, handlers go by it, and the page shows it."""

import pytest

from logstore import Acl, Authorizer, Broker, OffsetAndMetadata, TopicPartition
from logstore.errors import KAFKA_CODES, MessageError
from logstore.messages import to_json
from logstore.messages.types import ListGroupsRequest, ListTransactionsRequest
from logstore.record.batch import build_batch
from logstore.record.records import Record
from logstore.wire.permissions import NEEDS
from logstore.wire.session import Session
from logstore.wire.versions import SERVED
from tests.support.interop.answers import errors_in
from tests.support.interop.caller import made
from tests.support.world.wire import Client

TOPIC = "TOPIC_AUTHORIZATION_FAILED"
GROUP = "GROUP_AUTHORIZATION_FAILED"
CLUSTER = "CLUSTER_AUTHORIZATION_FAILED"
TRANSACTION = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"

BATCH = build_batch([Record(0, 1_704_067_200_000, b"k", b"v")])
ANY_ACL = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1}


ACL = {
    "resource_type": 2,
    "resource_name": "t",
    "principal": "User:bob",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
P0 = {"partition_index": 0}
T0 = [{"name": "t", "partitions": [P0]}]
CASES = {
    "Produce": (
        {
            "acks": -1,
            "timeout_ms": 5000,
            "transactional_id": None,
            "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": BATCH}]}],
        },
        TOPIC,
    ),
    "Fetch": ({"topics": []}, None),  # by id from version 13 on; see below
    "ListOffsets": ({"topics": [{"name": "t", "partitions": [P0]}]}, TOPIC),
    "Metadata": ({"topics": [{"name": "t"}]}, TOPIC),
    "OffsetCommit": ({"group_id": "g", "topics": T0}, GROUP),
    "OffsetFetch": ({"groups": [{"group_id": "g", "topics": None}]}, GROUP),
    "FindCoordinator": ({"coordinator_keys": ["g"]}, GROUP),
    "JoinGroup": ({"group_id": "g", "session_timeout_ms": 9000}, GROUP),
    "Heartbeat": ({"group_id": "g"}, GROUP),
    "LeaveGroup": ({"group_id": "g"}, GROUP),
    "SyncGroup": ({"group_id": "g", "protocol_type": "c", "protocol_name": "r"}, GROUP),
    "DescribeGroups": ({"groups": ["g"]}, GROUP),
    "ListGroups": ({}, None),
    "CreateTopics": (
        {
            "topics": [{"name": "new", "num_partitions": 1, "replication_factor": 1}],
            "timeout_ms": 5000,
        },
        TOPIC,
    ),
    "DeleteTopics": ({"topics": [{"name": "t"}], "timeout_ms": 5000}, TOPIC),
    "DeleteRecords": (
        {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "offset": 0}]}]},
        TOPIC,
    ),
    "InitProducerId": ({"transactional_id": None}, CLUSTER),
    "OffsetForLeaderEpoch": ({"topics": [{"topic": "t", "partitions": [{"partition": 0}]}]}, TOPIC),
    "AddPartitionsToTxn": (
        {
            "v3_and_below_transactional_id": "x",
            "v3_and_below_topics": [{"name": "t", "partitions": [0]}],
        },
        TRANSACTION,
    ),
    "WriteTxnMarkers": (
        {"markers": [{"topics": [{"name": "t", "partition_indexes": [0]}]}]},
        CLUSTER,
    ),
    "AddOffsetsToTxn": ({"transactional_id": "x", "group_id": "g"}, TRANSACTION),
    "EndTxn": ({"transactional_id": "x"}, TRANSACTION),
    "TxnOffsetCommit": ({"transactional_id": "x", "group_id": "g", "topics": T0}, TRANSACTION),
    "DescribeAcls": (ANY_ACL | {"permission_type": 1}, CLUSTER),
    "CreateAcls": ({"creations": [ACL]}, CLUSTER),
    "DeleteAcls": ({"filters": [ANY_ACL | {"permission_type": 1}]}, CLUSTER),
    "DescribeConfigs": (
        {"resources": [{"resource_type": 2, "resource_name": "t", "configuration_keys": None}]},
        TOPIC,
    ),
    "AlterConfigs": ({"resources": [{"resource_type": 2, "resource_name": "t"}]}, TOPIC),
    "IncrementalAlterConfigs": (
        {"resources": [{"resource_type": 4, "resource_name": "0"}]},
        CLUSTER,
    ),
    "AlterReplicaLogDirs": (
        {"dirs": [{"path": "/no", "topics": [{"name": "t", "partitions": [0]}]}]},
        CLUSTER,
    ),
    "DescribeLogDirs": ({"topics": None}, CLUSTER),
    "CreatePartitions": ({"topics": [{"name": "t", "count": 2}], "timeout_ms": 5000}, TOPIC),
    "DeleteGroups": ({"groups_names": ["g"]}, GROUP),
    "ElectLeaders": ({"topic_partitions": None}, CLUSTER),
    "AlterPartitionReassignments": ({"topics": []}, CLUSTER),
    "ListPartitionReassignments": ({"topics": None}, CLUSTER),
    "OffsetDelete": ({"group_id": "g", "topics": T0}, GROUP),
    "DescribeUserScramCredentials": ({"users": [{"name": "ann"}]}, CLUSTER),
    "AlterUserScramCredentials": ({"deletions": [{"name": "a", "mechanism": 1}]}, CLUSTER),
    "DescribeClientQuotas": ({}, CLUSTER),
    "AlterClientQuotas": (
        {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "u"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1.0}],
                }
            ]
        },
        CLUSTER,
    ),
    "DescribeQuorum": (
        {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
        CLUSTER,
    ),
    "UpdateFeatures": ({}, CLUSTER),
    "UnregisterBroker": ({"broker_id": 99}, CLUSTER),
    "ListConfigResources": ({}, CLUSTER),
    "DescribeCluster": ({"include_cluster_authorized_operations": True}, None),
    "DescribeProducers": ({"topics": [{"name": "t", "partition_indexes": [0]}]}, TOPIC),
    "DescribeTransactions": ({"transactional_ids": ["x"]}, TRANSACTION),
    "ListTransactions": ({}, None),
    "ConsumerGroupHeartbeat": (
        {
            "group_id": "g",
            "member_id": "m",
            "rebalance_timeout_ms": 1000,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
        },
        GROUP,
    ),
    "ConsumerGroupDescribe": ({"group_ids": ["g"]}, GROUP),
    "DescribeTopicPartitions": ({"topics": [{"name": "t"}], "response_partition_limit": 9}, TOPIC),
}
"""Fields of a request in the last version, and the response to an unauthorized client."""

WITHOUT_NEEDS = {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}
REFUSALS = {each for each in KAFKA_CODES if "AUTHORIZATION" in each}


def errors_of(response, version):
    """Return the names of all errors in a response, at any depth."""
    codes = {code for code in errors_in(to_json(response, version)) if code}
    return {name for name, code in KAFKA_CODES.items() if code in codes}


def answer(api, authorizer, fields=None):
    """Return the errors in the answer to a request."""
    with Broker() as broker, broker.listen(authorizer=authorizer) as listener:
        broker.create_topic("t")
        with Client(listener) as client:
            request = made(f"{api}Request", CASES[api][0] if fields is None else fields)
            version = LAST_OF_CLIENTS.get(api, SERVED[api].last)
            return errors_of(client.ask(request, version), version)


LAST_OF_CLIENTS = {"AddPartitionsToTxn": 3, "OffsetCommit": 9, "OffsetFetch": 9, "Produce": 12}
"""Versions of `CASES`, if later ones have other fields."""


def granting(needs):
    return Authorizer(
        Acl("User:*", operation, kind, "kafka-cluster" if kind == "cluster" else "*")
        for operation, kind in needs
    )


def test_the_table_has_every_api_that_is_served():
    assert set(NEEDS) == set(SERVED)
    assert {api for api, needs in NEEDS.items() if not needs} == WITHOUT_NEEDS
    assert set(CASES) | WITHOUT_NEEDS == set(NEEDS)


@pytest.mark.parametrize("api", CASES)
def test_a_client_without_permissions_is_refused(api):
    told = answer(api, Authorizer())
    assert told == ({CASES[api][1]} if CASES[api][1] else set())


@pytest.mark.parametrize("api", CASES)
def test_permissions_of_the_table_are_sufficient(api):
    assert not answer(api, granting(NEEDS[api])) & REFUSALS


@pytest.mark.parametrize("api", ("OffsetCommit", "OffsetFetch"))
def test_topics_by_id_need_the_permissions_of_topics_by_name(api):
    """The name of a topic that the client may not see is not in the response."""
    lacks = NEEDS[api][1]
    authorizer = granting(set(NEEDS[api]) - {lacks})
    with Broker() as broker, broker.listen(authorizer=authorizer) as listener:
        broker.create_topic("t")
        by_id = {"topic_id": broker.topic("t").id}
        fields = {
            "OffsetCommit": {
                "group_id": "g",
                "topics": [by_id | {"partitions": [{"partition_index": 0}]}],
            },
            "OffsetFetch": {
                "groups": [{"group_id": "g", "topics": [by_id | {"partition_indexes": [0]}]}]
            },
        }[api]
        with Client(listener) as client:
            response = client.ask(made(f"{api}Request", fields), 10)
    assert errors_of(response, 10) == {TOPIC}
    (topic,) = response.topics if api == "OffsetCommit" else response.groups[0].topics
    assert (topic.topic_id, topic.name) == (by_id["topic_id"], "")


@pytest.mark.parametrize(
    ("api", "fields", "lacks", "error"),
    (
        ("OffsetCommit", None, ("read", "topic"), TOPIC),
        (
            "OffsetFetch",
            {"groups": [{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}]},
            ("describe", "topic"),
            TOPIC,
        ),
        (
            "FindCoordinator",
            {"coordinator_keys": ["x"], "key_type": 1},
            ("describe", "transactional_id"),
            TRANSACTION,
        ),
        ("AddPartitionsToTxn", None, ("write", "topic"), TOPIC),
        ("AddOffsetsToTxn", None, ("read", "group"), GROUP),
        ("TxnOffsetCommit", None, ("read", "group"), GROUP),
        ("TxnOffsetCommit", None, ("read", "topic"), TOPIC),
        ("InitProducerId", {"transactional_id": "x"}, ("write", "transactional_id"), TRANSACTION),
        ("OffsetDelete", None, ("read", "topic"), "GROUP_ID_NOT_FOUND"),
        ("DeleteTopics", None, ("delete", "topic"), TOPIC),
        (
            "DescribeConfigs",
            {"resources": [{"resource_type": 4, "resource_name": "0", "configuration_keys": None}]},
            ("describe_configs", "cluster"),
            CLUSTER,
        ),
        (
            "AlterConfigs",
            {"resources": [{"resource_type": 4, "resource_name": "0"}]},
            ("alter_configs", "cluster"),
            CLUSTER,
        ),
        (
            "DescribeConfigs",
            {"resources": [{"resource_type": 32, "resource_name": "g"}]},
            ("describe_configs", "group"),
            GROUP,
        ),
        (
            "AlterConfigs",
            {"resources": [{"resource_type": 32, "resource_name": "g"}]},
            ("alter_configs", "group"),
            GROUP,
        ),
        (
            "IncrementalAlterConfigs",
            {"resources": [{"resource_type": 32, "resource_name": "g"}]},
            ("alter_configs", "group"),
            GROUP,
        ),
        (
            "IncrementalAlterConfigs",
            {"resources": [{"resource_type": 2, "resource_name": "t"}]},
            ("alter_configs", "topic"),
            TOPIC,
        ),
    ),
)
def test_one_missing_permission_of_several_is_reported(api, fields, lacks, error):
    told = answer(api, granting(set(NEEDS[api]) - {lacks}), fields)
    assert told == {error}


@pytest.mark.parametrize("version", (4, 5))
@pytest.mark.parametrize("is_allowed", (True, False))
def test_partitions_of_several_transactions_need_an_action_of_the_cluster(version, is_allowed):
    topics = [{"name": "t", "partitions": [0]}]
    fields = {"transactions": [{"transactional_id": "x", "topics": topics}]}
    needs = [("cluster_action", "cluster")]
    if not is_allowed:
        needs = [("write", "transactional_id"), ("write", "topic"), ("alter", "cluster")]
    with Broker() as broker, broker.listen(authorizer=granting(needs)) as listener:
        broker.create_topic("t")
        with Client(listener) as client:
            response = client.ask(made("AddPartitionsToTxnRequest", fields), version)
    told = errors_of(response, version)
    assert told == {"INVALID_PRODUCER_ID_MAPPING" if is_allowed else CLUSTER}
    assert bool(response.results_by_transaction) is is_allowed


@pytest.mark.parametrize("version", (1, 2))
@pytest.mark.parametrize("operation", ("alter", "cluster_action"))
def test_markers_need_one_of_two(version, operation):
    fields = CASES["WriteTxnMarkers"][0]
    with (
        Broker() as broker,
        broker.listen(authorizer=granting([(operation, "cluster")])) as listener,
    ):
        broker.create_topic("t")
        with Client(listener) as client:
            response = client.ask(made("WriteTxnMarkersRequest", fields), version)
            assert errors_of(response, version) == set()
        assert broker.log("t").log_end_offset == 1


@pytest.mark.parametrize("grants", ([("idempotent_write", "cluster")], [("write", "topic")]))
def test_an_idempotent_producer_needs_one_of_two(grants):
    assert answer("InitProducerId", granting(grants)) == set()


@pytest.mark.parametrize("grants", ([("create", "cluster")], [("create", "topic")]))
def test_creating_a_topic_needs_one_of_two_permissions(grants):
    fields = CASES["CreateTopics"][0]
    assert answer("CreateTopics", granting(grants), fields) <= {TOPIC}
    with Broker() as broker, broker.listen(authorizer=granting(grants)) as listener:
        with Client(listener) as client:
            client.ask(made("CreateTopicsRequest", fields), SERVED["CreateTopics"].last)
        assert [topic.name for topic in broker.topics()] == ["new"]


@pytest.mark.parametrize("version", (0, 1, 2))
def test_elections_that_are_refused_are_answered_partition_by_partition(version):
    """Version 0 has no error for the whole."""
    fields = {"topic_partitions": [{"topic": "t", "partitions": [0, 1]}]}
    with (
        Broker() as broker,
        broker.listen(authorizer=Authorizer()) as listener,
        Client(listener) as client,
    ):
        told = client.ask(made("ElectLeadersRequest", fields), version)
    refused = KAFKA_CODES[CLUSTER]
    (topic,) = told.replica_election_results
    assert [each.error_code for each in topic.partition_result] == [refused, refused]
    assert told.error_code == (refused if version else 0)


def test_a_fetch_needs_read():
    asked = {
        "max_wait_ms": 0,
        "max_bytes": 100,
        "topics": [{"topic": "t", "partitions": [{"partition": 0, "partition_max_bytes": 100}]}],
    }
    for needs, errors in ((), {TOPIC}), (NEEDS["Fetch"], set()):
        with Broker() as broker, broker.listen(authorizer=granting(needs)) as listener:
            broker.create_topic("t")
            with Client(listener) as client:
                assert errors_of(client.ask(made("FetchRequest", asked), 11), 11) == errors


def test_groups_and_transactions_that_may_not_be_seen_are_left_out():
    def listed(needs):
        with Broker() as broker, broker.listen(authorizer=granting(needs)) as listener:
            broker.create_topic("t")
            producer = broker.producer(transactional_id="x")
            producer.init_transactions()
            with broker.consumer("t", group_id="g") as consumer, Client(listener) as client:
                consumer.poll()
                groups = client.ask(ListGroupsRequest(), 4).groups
                states = client.ask(ListTransactionsRequest(), 0).transaction_states
                return len(groups), len(states)

    assert listed(()) == (0, 0)
    assert listed([("describe", "cluster")]) == (1, 0)
    assert listed([("describe", "group")]) == (1, 0)
    assert listed([("describe", "transactional_id")]) == (0, 1)


def test_offsets_of_topics_that_may_not_be_seen_are_left_out_of_all():
    authorizer = granting([("describe", "group")])
    authorizer.add(Acl("User:*", "describe", "topic", "t"))
    with Broker() as broker, broker.listen(authorizer=authorizer) as listener:
        for name in ("t", "hidden"):
            broker.create_topic(name)
            broker.groups.commit("g", {TopicPartition(name, 0): OffsetAndMetadata(5)})
        with Client(listener) as client:
            asked = made("OffsetFetchRequest", {"groups": [{"group_id": "g", "topics": None}]})
            (group,) = client.ask(asked, 8).groups
    assert [topic.name for topic in group.topics] == ["t"]


@pytest.mark.parametrize("version", (1, 2))
def test_offsets_of_a_group_that_may_not_be_seen_in_old_versions(version):
    """Version 1 has no place for an error but the partitions."""
    topics = [{"name": "t", "partition_indexes": [0]}]
    asked = made("OffsetFetchRequest", {"group_id": "g", "topics": topics})
    with (
        Broker() as broker,
        broker.listen(authorizer=Authorizer()) as listener,
        Client(listener) as client,
    ):
        told = client.ask(asked, version)
    assert errors_of(told, version) == {GROUP}
    assert len(told.topics) == (version == 1)


def test_a_handler_requires_only_the_permissions_in_the_table():
    with Broker() as broker, broker.listen() as listener:
        session = Session(listener.service, "127.0.0.1", ("127.0.0.1", 1))
        session.api = "Fetch"
        assert session.allows("read", "topic", "t")
        for ask in (session.allows, session.allows_any):
            with pytest.raises(
                AssertionError, match=r"permissions\.NEEDS does not list .* for Fetch"
            ):
                ask("write", "topic")


# -- names in answers --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grants", "error", "name"),
    (
        ((), TOPIC, None),
        ((("describe", "topic"),), TOPIC, "secret-topic"),
        ((("delete", "topic"),), "NONE", "secret-topic"),  # which implies DESCRIBE
    ),
)
def test_a_topic_deleted_by_id_is_named_only_with_describe_permission(grants, error, name):
    with Broker() as broker, broker.listen(authorizer=granting(grants)) as listener:
        broker.create_topic("secret-topic")
        asked = {"topics": [{"name": None, "topic_id": broker.topic("secret-topic").id}]}
        with Client(listener) as client:
            (found,) = client.ask(made("DeleteTopicsRequest", asked), 6).responses
    assert (found.error_code, found.name) == (KAFKA_CODES[error], name)


@pytest.mark.parametrize(
    ("grants", "error", "name"),
    (((), "UNKNOWN_TOPIC_ID", None), ((("describe", "topic"),), "NONE", "secret-topic")),
)
def test_a_topic_requested_by_id_is_named_only_with_describe_permission(grants, error, name):
    with Broker() as broker, broker.listen(authorizer=granting(grants)) as listener:
        broker.create_topic("secret-topic")
        asked = {"topics": [{"name": None, "topic_id": broker.topic("secret-topic").id}]}
        with Client(listener) as client:
            (found,) = client.ask(made("MetadataRequest", asked), 12).topics
    assert (found.error_code, found.name) == (KAFKA_CODES[error], name)


def asked_without_names(api, topic_id):
    """Return requests that name nothing: all that there is, or a topic by its id."""
    yield {}
    for field in ("topics", "groups", "users", "topic_partitions", "resources"):
        yield {field: None}
        yield {field: []}
    partitions = [{"partition": 0, "partition_max_bytes": 1000}]
    yield {"topics": [{"topic_id": topic_id, "partitions": partitions}], "max_bytes": 1000}
    yield {"topics": [{"name": None, "topic_id": topic_id}]}
    yield {"groups": [{"group_id": "secret-group", "topics": None}]}
    yield {"transactional_ids": ["secret-id"]}
    yield {"filters": [ANY_ACL | {"permission_type": 1}]}
    yield ANY_ACL | {"permission_type": 1}


def texts_in(told):
    """Yield all texts of an answer in JSON."""
    if isinstance(told, dict):
        told = list(told.values())
    if isinstance(told, list):
        for each in told:
            yield from texts_in(each)
    elif isinstance(told, str):
        yield told


@pytest.fixture(scope="module")
def secrets():
    """A broker with topics, groups, transactions, ACLs and users that a stranger must not see."""
    authorizer = Authorizer([Acl("User:ann", "read", "topic", "secret-acl")])
    with (
        Broker() as broker,
        broker.listen(authorizer=authorizer, sasl={"ann": "a", "secret-user": "b"}) as listener,
    ):
        broker.create_topic("secret-topic")
        broker.append("secret-topic", key=b"secret-key", value=b"secret-value")
        tp = TopicPartition("secret-topic", 0)
        broker.groups.commit("secret-group", {tp: OffsetAndMetadata(5, "secret-metadata")})
        producer = broker.producer(transactional_id="secret-id")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("secret-topic", value=b"secret", partition=0)
        producer.flush()
        with Client(listener) as client:
            client.ask(made("SaslHandshakeRequest", {"mechanism": "PLAIN"}), 1)
            client.ask(made("SaslAuthenticateRequest", {"auth_bytes": b"\0ann\0a"}), 2)
            yield broker, client
        producer.abort_transaction()


@pytest.mark.parametrize("api", CASES)
def test_no_answer_names_what_its_reader_may_not_see(secrets, api):
    """Not codes alone: no name, key or value that the question did not have."""
    broker, client = secrets
    topic_id = broker.topic("secret-topic").id
    asked = 0
    for fields in asked_without_names(api, topic_id):
        for version in {SERVED[api].first, SERVED[api].last}:
            if api == "Produce":
                fields = {"acks": 1, **fields}  # which is answered
            try:
                request = made(f"{api}Request", fields)
                frame = client.frame(request, version)
            except (MessageError, KeyError, TypeError):
                continue  # not a field of this request, or not of this version
            client.socket.sendall(frame)
            told = list(texts_in(to_json(client.read(request, version)[1], version)))
            mine = set(texts_in(to_json(request, version)))
            assert [each for each in told if "secret" in each and each not in mine] == []
            asked += 1
    assert asked
