"""The admin client: its results have the fields of Kafka's responses."""

import enum
from collections import namedtuple

import pytest

from logstore import (
    Broker,
    ConfigResource,
    GroupIdNotFoundError,
    IllegalStateError,
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    MemberToRemove,
    NewTopic,
    OffsetAndMetadata,
    OffsetOutOfRangeError,
    OffsetSpec,
    PolicyViolationError,
    TopicAlreadyExistsError,
    TopicPartition,
    UnknownTopicOrPartitionError,
    VirtualClock,
)
from logstore.config.inert_keys import STORED_TOPIC_KEYS
from logstore.coordinator.groups.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_subscription,
)
from logstore.coordinator.groups.requests import JoinRequest
from tests.support.world.messages import exactly

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@pytest.fixture
def broker():
    config = {"offsets.topic.num.partitions": 1, "log.retention.ms": "1000000"}
    with Broker(clock=VirtualClock(), seed=1, broker_config=config) as broker:
        broker.create_topic("t", 2)
        yield broker


@pytest.fixture
def admin(broker):
    return broker.admin()


def test_configs_that_are_no_mapping_are_refused_with_their_value(admin):
    with pytest.raises(
        InvalidConfigurationError, match=exactly("configs must be a mapping, not [('a', '1')]")
    ) as refused:
        admin._alter("topic", "t", [("a", "1")], validate_only=True)
    assert str(refused.value) == "configs must be a mapping, not [('a', '1')]"


# -- topics -----------------------------------------------------------------------------------


def test_topics_are_created_in_each_way(broker, admin):
    assert [each["name"] for each in admin.create_topics(["a"])["topics"]] == ["a"]
    created = admin.create_topics(
        {"b": {"num_partitions": 3, "configs": {"cleanup.policy": "compact"}}}
    )["topics"][0]
    assert created == {
        "name": "b",
        "topic_id": broker.topic("b").id,
        "num_partitions": 3,
        "replication_factor": 1,
        "error_code": 0,
        "error_message": None,
    }
    assert broker.describe_configs("b")["cleanup.policy"].value == "compact"
    admin.create_topics([NewTopic("c", 2, 1, topic_configs={"retention.ms": "5"})])
    admin.create_topics({"d": {"assignments": {0: [0], 1: [0]}}})
    assert len(broker.topic("c").partitions) == len(broker.topic("d").partitions) == 2
    assert admin.list_topics() == ["a", "b", "c", "d", "t"]


def test_topics_that_are_only_tried(broker, admin):
    admin.create_topics(["x"], validate_only=True)
    for wanted, error in (
        (["t"], TopicAlreadyExistsError),
        (["no/name"], InvalidTopicError),
        ({"x": {"configs": {"retention": "5"}}}, InvalidConfigurationError),
        ({"x": {"num_partitions": 0}}, InvalidPartitionsError),
        ({"x": {"replication_factor": 3}}, InvalidReplicationFactorError),
        ({"x": {"assignments": {0: [1]}}}, InvalidReplicationFactorError),
    ):
        with pytest.raises(error):
            admin.create_topics(wanted, validate_only=True)
    assert admin.list_topics() == ["t"]


def test_one_topic_that_is_refused_keeps_from_no_other(admin):
    results = admin.create_topics(["a", "t", "b"], raise_errors=False)["topics"]
    assert [each["error_code"] for each in results] == [0, 36, 0]
    assert "already exists" in results[1]["error_message"]
    with pytest.raises(TopicAlreadyExistsError, match=exactly("topic 'a' already exists")):
        admin.create_topics(["a", "c"])
    deleted = admin.delete_topics(["a", "no", "b", "c"], raise_errors=False)["topics"]
    assert [each["error_code"] for each in deleted] == [0, 3, 0, 0]
    assert admin.list_topics() == ["t"]


def test_topics_are_described(broker, admin):
    found, missing = admin.describe_topics(["t", "no"])
    assert (found["name"], found["error_code"]) == ("t", 0)
    assert found["topic_id"] == broker.topic("t").id
    assert [each["partition_index"] for each in found["partitions"]] == [0, 1]
    assert found["partitions"][0]["leader_id"] == 0
    assert (missing["error_code"], missing["partitions"]) == (3, [])
    broker.groups.commit("g", {T0: OffsetAndMetadata(1)})
    assert [each["is_internal"] for each in admin.describe_topics()] == [True, False]


def test_topics_get_more_partitions(broker, admin):
    total = namedtuple("NewPartitions", "total_count")
    admin.create_partitions({"t": 3}, validate_only=True)
    assert len(broker.topic("t").partitions) == 2
    for wanted, count in ((3, 3), ({"count": 4}, 4), (total(5), 5)):
        admin.create_partitions({"t": wanted})
        assert len(broker.topic("t").partitions) == count
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({"t": 5})
    results = admin.create_partitions({"no": 5, "t": 6}, raise_errors=False)["results"]
    assert [each["error_code"] for each in results] == [3, 0]


# -- configurations ---------------------------------------------------------------------------


def test_configurations_are_described(broker, admin):
    broker.alter_configs("t", {"segment.ms": "600000"})
    topic = ConfigResource("topic", "t")
    found = admin.describe_configs([topic])
    assert list(found["topic"]["t"]) == ["segment.ms"]
    assert found["topic"]["t"]["segment.ms"]["value"] == "600000"
    assert found["topic"]["t"]["segment.ms"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"
    everything = admin.describe_configs([topic], config_filter="all")["topic"]["t"]
    assert everything["retention.ms"]["config_source"] == "STATIC_BROKER_CONFIG"
    assert everything["cleanup.policy"]["config_source"] == "DEFAULT_CONFIG"
    assert everything["cleanup.policy"]["config_type"] == "LIST"
    asked = ConfigResource("topic", "t", ["retention.ms"])
    assert list(admin.describe_configs([asked], config_filter="static")["topic"]["t"]) == [
        "retention.ms"
    ]
    by_filter = {
        name: set(admin.describe_configs([topic], config_filter=name)["topic"]["t"])
        for name in ("static", "default", "modified")
    }
    assert "retention.ms" in by_filter["static"]
    assert "cleanup.policy" not in by_filter["static"], "defaults are not static configs"
    assert "segment.ms" in by_filter["modified"] - by_filter["default"] - by_filter["static"]
    of_broker = admin.describe_configs([ConfigResource("broker", "0")], config_filter="all")
    assert of_broker["broker"]["0"]["offsets.topic.num.partitions"]["value"] == "1"
    with pytest.raises(UnknownTopicOrPartitionError, match=exactly("unknown topic 'no'")):
        admin.describe_configs([ConfigResource("topic", "no")])
    with pytest.raises(
        InvalidConfigurationError,
        match=exactly(
            "config_filter must be one of all, dynamic, modified, default, static, not some"
        ),
    ):
        admin.describe_configs([topic], config_filter="some")
    with pytest.raises(InvalidConfigurationError):
        admin.describe_configs([ConfigResource("client", "x")])


def test_configurations_are_altered(broker, admin):
    kinds = enum.IntEnum("ConfigResourceType", {"TOPIC": 2, "BROKER": 4})
    operations = enum.IntEnum("AlterConfigOp", {"SET": 0, "DELETE": 1, "APPEND": 2})

    def alter(configs, name="t", **options):
        resource = ConfigResource(kinds.TOPIC, name, configs)
        return admin.alter_configs([resource], **options)["topic"][name]

    def value(key):
        return broker.describe_configs("t")[key].value

    assert alter({"segment.ms": "5", "retention.ms": ("SET", "7")}) is None
    assert (value("segment.ms"), value("retention.ms")) == ("5", "7")
    assert alter({"segment.ms": (operations.DELETE, None)}) is None
    assert value("segment.ms") == "604800000"
    assert alter({"cleanup.policy": (operations.APPEND, "compact")}) is None
    assert value("cleanup.policy") == "delete,compact"
    assert alter({"cleanup.policy": ("SUBTRACT", "delete")}) is None
    assert value("cleanup.policy") == "compact"
    assert alter({"cleanup.policy": "delete"}, validate_only=True) is None
    assert value("cleanup.policy") == "compact"
    assert alter({"segment.mss": "5"}) == "INVALID_CONFIG"
    assert alter({"segment.ms": ("MULTIPLY", "5")}) == "INVALID_CONFIG"
    assert alter({"segment.ms": (operations.APPEND, "5")}) == "INVALID_CONFIG"
    assert alter({"segment.ms": "5"}, "no") == "UNKNOWN_TOPIC_OR_PARTITION"
    assert (
        admin.reset_configs([ConfigResource("topic", "t", ["retention.ms"])])["topic"]["t"] is None
    )
    assert (value("retention.ms"), value("cleanup.policy")) == ("1000000", "compact")
    admin.reset_configs([ConfigResource("topic", "t")])
    assert broker.topic("t").configs == {}


def test_configs_that_are_not_a_mapping_are_refused(admin):
    assert admin.alter_configs([ConfigResource("topic", "t", 7)]) == {
        "topic": {"t": "INVALID_CONFIG"}
    }


def test_settings_of_the_broker_and_of_all_brokers_are_layers(broker, admin):
    def alter(name, configs, **options):
        return admin.alter_configs([ConfigResource("broker", name, configs)], **options)

    def described(kind, name, **options):
        return admin.describe_configs([ConfigResource(kind, name)], **options)[kind][name]

    assert alter("", {"log.segment.bytes": "7000"}) == {"broker": {"": None}}
    assert alter("0", {"log.segment.bytes": "8000"}) == {"broker": {"0": None}}
    assert alter("0", {"log.segment.bytes": "1"}) == {"broker": {"0": "INVALID_CONFIG"}}
    assert alter("0", {"log.dirs": "/x"}) == {"broker": {"0": "INVALID_CONFIG"}}
    assert alter("1", {"log.segment.bytes": "9000"}) == {"broker": {"1": "INVALID_CONFIG"}}
    assert alter("0", {"log.segment.bytes": "9000"}, validate_only=True)["broker"]["0"] is None
    found = described("topic", "t", include_synonyms=True, config_filter="all")["segment.bytes"]
    assert (found["value"], found["config_source"]) == ("8000", "DYNAMIC_BROKER_CONFIG")
    assert found["synonyms"] == [
        {"name": "log.segment.bytes", "value": "8000", "source": "DYNAMIC_BROKER_CONFIG"},
        {"name": "log.segment.bytes", "value": "7000", "source": "DYNAMIC_DEFAULT_BROKER_CONFIG"},
        {"name": "log.segment.bytes", "value": "1073741824", "source": "DEFAULT_CONFIG"},
    ]
    found = described("broker", "0")
    assert {key: row["config_source"] for key, row in found.items()} == {
        "log.segment.bytes": "DYNAMIC_BROKER_CONFIG"
    }
    assert found["log.segment.bytes"]["synonyms"] == []
    assert not found["log.segment.bytes"]["read_only"]
    assert list(described("broker", "")) == ["log.segment.bytes"]
    admin.reset_configs([ConfigResource("broker", "0"), ConfigResource("broker", "")])
    assert described("broker", "0") == described("broker", "") == {}
    assert broker.broker_config.dynamic is None


# -- groups -----------------------------------------------------------------------------------


def test_groups_are_listed_and_described(broker, admin):
    consumer = broker.consumer("t", group_id="g", client_id="me")
    consumer.poll()
    broker.groups.commit("h", {T0: OffsetAndMetadata(1)})
    assert admin.list_groups() == [
        {
            "group_id": "g",
            "protocol_type": "consumer",
            "group_state": "Stable",
            "group_type": "classic",
        },
        {"group_id": "h", "protocol_type": "", "group_state": "Empty", "group_type": "classic"},
    ]
    assert [each["group_id"] for each in admin.list_groups(states_filter=["Empty"])] == ["h"]
    described = admin.describe_groups(["g", "none"])
    (member,) = described["g"]["members"]
    assert member["client_id"] == "me"
    assert member["member_metadata"].topics == ("t",)
    assert member["member_assignment"].partitions == (T0, T1)
    assert described["g"]["protocol_data"] == "range"
    assert described["none"]["group_state"] == "Dead"
    assert described["none"]["error"] is None


class OffsetTimestamp(int):
    """Not a plain int, as in kafka-python, which distinguishes timestamps from offsets so."""


def test_offsets_of_groups(broker, admin):
    for timestamp in (1000, 2000, 3000, 5000, 4000):
        broker.append("t", value=b"v", partition=0, timestamp=timestamp)
    five = OffsetAndMetadata(5, "m")
    assert admin.alter_group_offsets("g", {T0: five, U0: five}) == {
        T0: None,
        U0: "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert admin.list_group_offsets("g") == {"g": {T0: five}}
    assert admin.list_group_offsets(["g", "h"]) == {"g": {T0: five}, "h": {}}
    assert admin.list_group_offsets({"g": [T0, T1]})["g"][T1].offset == -1
    broker.delete_records({T0: 2})
    for spec, offset in (
        (OffsetSpec.EARLIEST, 2),
        (OffsetSpec.LATEST, 5),
        (4, 4),
        (0, 2),
        (99, 5),
        (-1, 5),
        (5, 5),
        (OffsetSpec.MAX_TIMESTAMP, 3),
        (OffsetTimestamp(2500), 2),
        (OffsetTimestamp(5001), 5),
    ):
        assert admin.reset_group_offsets("g", {T0: spec, T1: spec}) == {
            T0: {"error": None, "offset": offset},
            T1: {"error": None, "offset": 0},
        }
        assert admin.list_group_offsets("g") == {
            "g": {T0: OffsetAndMetadata(offset, "m"), T1: OffsetAndMetadata(0)}
        }
    assert admin.reset_group_offsets("new", {T0: OffsetSpec.LATEST}) == {
        T0: {"error": None, "offset": 5}
    }
    assert admin.delete_group_offsets("g", [T0]) == {T0: None}
    assert admin.list_group_offsets("g") == {"g": {T1: OffsetAndMetadata(0)}}
    with pytest.raises(
        GroupIdNotFoundError,
        match=exactly("offsets of group 'none' cannot be deleted: GROUP_ID_NOT_FOUND"),
    ):
        admin.delete_group_offsets("none", [T0])


def test_groups_and_members_are_removed(broker, admin):
    consumer = broker.consumer("t", group_id="g", group_instance_id="i")
    consumer.poll()
    assert admin.delete_groups(["g", "none"]) == {
        "g": "NON_EMPTY_GROUP",
        "none": "GROUP_ID_NOT_FOUND",
    }
    assert admin.alter_group_offsets("g", {T0: OffsetAndMetadata(1)}) == {T0: "UNKNOWN_MEMBER_ID"}
    removed = admin.remove_group_members(
        "g", [MemberToRemove(group_instance_id="i"), MemberToRemove("nobody")]
    )
    assert removed == {"i": None, "nobody": "UNKNOWN_MEMBER_ID"}
    assert admin.delete_groups(["g"]) == {"g": None}


# -- records and the broker -------------------------------------------------------------------


def test_records_are_deleted(broker, admin):
    broker.append_many("t", [(b"k", b"v")] * 5, partition=0)
    assert admin.delete_records({T0: 3}) == {
        T0: {"partition_index": 0, "low_watermark": 3, "error_code": 0, "error_message": None}
    }
    with pytest.raises(
        OffsetOutOfRangeError,
        match=exactly("offset 99 of t-0 is above the high watermark: the log is [3, 5]"),
    ):
        admin.delete_records({T0: 99, T1: 0})
    admin.create_topics({"c": {"configs": {"cleanup.policy": "compact"}}})
    with pytest.raises(
        PolicyViolationError,
        match=exactly("records of c-0 cannot be deleted: cleanup.policy is compact"),
    ):
        admin.delete_records({TopicPartition("c", 0): 0})


def test_offsets_of_partitions(broker, admin):
    broker.append("t", value=b"a", partition=0, timestamp=1000)
    broker.append("t", value=b"b", partition=0, timestamp=3000)
    producer = broker.producer(transactional_id="x")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"open", partition=0, timestamp_ms=2000)

    def listed(spec, **options):
        return admin.list_partition_offsets({T0: spec}, **options)[T0]

    assert listed(OffsetSpec.EARLIEST).offset == 0
    assert listed(OffsetSpec.LATEST).offset == 3
    assert listed(OffsetSpec.LATEST, isolation_level="read_committed").offset == 2
    assert listed(OffsetSpec.MAX_TIMESTAMP)[:2] == (1, 3000)
    assert listed(1500)[:2] == (1, 3000)
    assert listed(9000)[:2] == (-1, -1)


def test_the_broker_and_its_directories(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    with Broker([first, second]) as broker:
        admin = broker.admin(bootstrap_servers="x", client_id="y")
        admin.create_topics({"t": {"num_partitions": 2}})
        broker.append("t", value=b"v", partition=0)
        cluster = admin.describe_cluster()
        assert cluster["controller_id"] == cluster["brokers"][0]["broker_id"] == 0
        (told,) = admin.describe_log_dirs()
        sizes = {
            each["log_dir"]: {
                row["partition_index"]: row["partition_size"]
                for topic in each["topics"]
                for row in topic["partitions"]
            }
            for each in told["log_dirs"]
        }
        assert sizes == {str(first): {0: broker.log("t", 0).size_bytes}, str(second): {1: 0}}
        assert admin.describe_log_dirs({"t": [1]})[0]["log_dirs"][0]["topics"] == []
        assert admin.describe_log_dirs(["none"])[0]["log_dirs"][1]["topics"] == []
        moved = admin.alter_replica_log_dirs({("t", 0, 0): second, ("t", 1, 0): "elsewhere"})
        assert moved == {("t", 0, 0): None, ("t", 1, 0): "LOG_DIR_NOT_FOUND"}


def test_refusals(broker, admin):
    with pytest.raises(InvalidConfigurationError, match="the nearest is 'client_id'"):
        broker.admin(clientid="x")
    with pytest.raises(InvalidConfigurationError, match="the nearest is 'num_partitions'"):
        admin.create_topics({"x": {"partitions": 5}})
    for wrong in (lambda: admin.create_topics("x"), lambda: admin.delete_topics("t")):
        with pytest.raises(TypeError):
            wrong()
    with broker.admin() as other:
        pass
    for call in (
        other.list_topics,
        other.describe_topics,
        lambda: other.create_topics([]),
        lambda: other.describe_configs([]),
        other.list_groups,
        lambda: other.describe_groups([]),
        lambda: other.list_group_offsets({}),
        lambda: other.list_partition_offsets({}),
        other.describe_cluster,
        other.describe_log_dirs,
    ):
        with pytest.raises(IllegalStateError, match=exactly("the admin client is closed")):
            call()
    broker.close()
    with pytest.raises(IllegalStateError):
        admin.list_topics()


# -- whole results ------------------------------------------------------------------------------


@pytest.fixture
def seventh():
    config = {
        "node.id": "7",
        "num.partitions": "3",
        "offsets.topic.num.partitions": 1,
        "log.segment.bytes": "2048",
    }
    with Broker(clock=VirtualClock(), seed=1, broker_config=config) as broker:
        broker.create_topic("t", 2)
        yield broker


def test_a_description_of_a_topic_is_whole(seventh):
    seventh.append("t", value=b"v", partition=1)

    def partition(number):
        return {
            "error_code": 0,
            "partition_index": number,
            "leader_id": 7,
            "leader_epoch": seventh.log("t", number).leader_epoch,
            "replica_nodes": [7],
            "isr_nodes": [7],
            "offline_replicas": [],
        }

    topic = {
        "error_code": 0,
        "name": "t",
        "topic_id": seventh.topic("t").id,
        "is_internal": False,
        "partitions": [partition(0), partition(1)],
    }
    admin = seventh.admin()
    assert admin.describe_topics(["no", "t"]) == [
        {"error_code": 3, "name": "no", "topic_id": None, "is_internal": False, "partitions": []},
        topic,
    ]
    assert admin.describe_topics() == [topic]


def test_results_for_topics_are_whole(seventh):
    admin = seventh.admin()
    assert admin.create_topics(["a"], validate_only=True) == {
        "topics": [
            {
                "name": "a",
                "topic_id": None,
                "num_partitions": 3,
                "replication_factor": 1,
                "error_code": 0,
                "error_message": None,
            }
        ]
    }
    created = admin.create_topics(
        {
            "a": {},
            "t": {},
            "b": {"num_partitions": 0},
            "c": {"replication_factor": 2},
            "d": {"replication_factor": 1, "assignments": {0: [7], 1: [8]}},
            "e": {"assignments": {0: [7], 1: [7]}, "num_partitions": 9},
            "f": {"configs": {"retention.ms": "many"}},
        },
        raise_errors=False,
    )["topics"]
    assert [(each["name"], each["error_code"], each.get("num_partitions")) for each in created] == [
        ("a", 0, 3),
        ("t", 36, None),
        ("b", 37, None),
        ("c", 38, None),
        ("d", 38, None),
        ("e", 0, 2),
        ("f", 40, None),
    ]
    assert [each["error_message"] for each in created[2:5]] == [
        "topic 'b' cannot have 0 partitions",
        "topic 'c': 2 replicas requested, but there is one broker",
        "topic 'd': replicas can only be assigned to broker 7",
    ]
    first_id = seventh.topic("a").id
    deleted = admin.delete_topics(["a", "no"], raise_errors=False)
    assert deleted["topics"][0] == {
        "name": "a",
        "topic_id": first_id,
        "error_code": 0,
        "error_message": None,
    }
    assert deleted["topics"][1]["error_code"] == 3
    assert [seventh.manager.catalog.topic(each).name for each in admin.list_topics()] == ["e", "t"]
    with pytest.raises(TopicAlreadyExistsError, match=r"^topic 't' already exists$"):
        admin.create_topics(["t"], validate_only=True)


def test_results_for_partitions_are_whole(seventh):
    admin = seventh.admin()
    results = admin.create_partitions({"t": 2}, raise_errors=False)["results"]
    message = "topic 't' has 2 partitions; the new total must be higher, not 2"
    assert results == [{"name": "t", "error_code": 37, "error_message": message}]
    for wanted in (True, "3", 2.5):
        (result,) = admin.create_partitions({"t": wanted}, raise_errors=False)["results"]
        assert result["error_code"] == 37
    assert admin.create_partitions({"t": 3}) == {
        "results": [{"name": "t", "error_code": 0, "error_message": None}]
    }
    assert len(seventh.topic("t").partitions) == 3


def test_rows_of_configurations_are_whole(seventh):
    admin = seventh.admin()
    seventh.alter_configs("t", {"segment.ms": "600000"})
    topic, asked = ConfigResource("topic", "t"), ConfigResource("topic", "t", ["segment.bytes"])
    row = {
        "value": "600000",
        "read_only": False,
        "is_sensitive": False,
        "config_source": "DYNAMIC_TOPIC_CONFIG",
        "config_type": "LONG",
        "documentation": STORED_TOPIC_KEYS["segment.ms"].doc,
        "synonyms": [],
    }
    assert admin.describe_configs([topic]) == {"topic": {"t": {"segment.ms": row}}}
    rows = admin.describe_configs([asked, topic], True, "all")
    assert list(rows["topic"]) == ["t"]
    assert rows["topic"]["t"]["segment.ms"]["synonyms"][0] == {
        "name": "segment.ms",
        "value": "600000",
        "source": "DYNAMIC_TOPIC_CONFIG",
    }
    rows = admin.describe_configs([asked], True, "ConfigFilter.STATIC")["topic"]["t"]
    assert {key: (row["value"], row["config_type"]) for key, row in rows.items()} == {
        "segment.bytes": ("2048", "INT")
    }
    of_broker = admin.describe_configs([ConfigResource("broker", "7")], config_filter="all")
    rows = of_broker["broker"]["7"]
    assert rows["node.id"]["read_only"]
    assert not rows["log.segment.bytes"]["read_only"]
    dynamic = admin.describe_configs([ConfigResource("broker", "7")], config_filter="dynamic")
    assert dynamic["broker"]["7"] == {key: row for key, row in rows.items() if not row["read_only"]}
    for resource, options, message in (
        (
            ConfigResource("client", "x"),
            {},
            "resource_type must be topic or broker, not 'client'",
        ),
        (ConfigResource("broker", "0"), {}, "unknown broker '0'; use '' for all brokers"),
        (
            topic,
            {"config_filter": "some"},
            "config_filter must be one of all, dynamic, modified, default, static, not some",
        ),
    ):
        with pytest.raises(InvalidConfigurationError) as raised:
            admin.describe_configs([resource], **options)
        assert str(raised.value) == message


def test_several_resources_of_both_kinds_are_altered_and_reset(seventh):
    admin = seventh.admin()
    seventh.create_topic("u")

    def segment_bytes():
        return seventh.describe_configs("u")["segment.bytes"].value

    resources = [
        ConfigResource("topic", "t", {"segment.ms": "5", "retention.ms": "6"}),
        ConfigResource("broker", "7", {"log.segment.bytes": "4096"}),
        ConfigResource("topic", "u", {"segment.ms": "wrong"}),
        ConfigResource("topic", "no", {"segment.ms": "5"}),
        ConfigResource("broker", "", ["log.segment.bytes"]),
    ]
    outcome = {
        "topic": {"t": None, "u": "INVALID_CONFIG", "no": "UNKNOWN_TOPIC_OR_PARTITION"},
        "broker": {"7": None, "": "INVALID_CONFIG"},
    }
    assert admin.alter_configs(resources, validate_only=True) == outcome
    assert (seventh.topic("t").configs, segment_bytes()) == ({}, "2048")
    assert admin.alter_configs(resources) == outcome
    assert seventh.topic("t").configs == {"segment.ms": "5", "retention.ms": "6"}
    assert segment_bytes() == "4096"
    assert admin.reset_configs([ConfigResource("topic", "t", ["segment.ms"])]) == {
        "topic": {"t": None}
    }
    assert seventh.topic("t").configs == {"retention.ms": "6"}
    both = [ConfigResource("topic", "t"), ConfigResource("broker", "7")]
    assert admin.reset_configs(both, validate_only=True) == {
        "topic": {"t": None},
        "broker": {"7": None},
    }
    assert seventh.topic("t").configs == {"retention.ms": "6"}
    admin.reset_configs(both)
    assert (seventh.topic("t").configs, segment_bytes()) == ({}, "2048")


def test_offsets_of_partitions_are_whole(seventh):
    admin = seventh.admin()
    for timestamp in (1000, 3000, 2000):
        seventh.append("t", value=b"v", partition=0, timestamp=timestamp)
    epoch = seventh.log("t", 0).leader_epoch
    assert admin.list_partition_offsets({T0: 1500, T1: OffsetSpec.MAX_TIMESTAMP, ("t", 1): 5}) == {
        T0: (1, 3000, epoch),
        T1: (-1, -1, -1),
    }
    assert admin.list_partition_offsets({T0: OffsetSpec.LATEST, T1: OffsetSpec.EARLIEST}) == {
        T0: (3, -1, epoch),
        T1: (0, -1, -1),
    }
    with pytest.raises(ValueError, match="'x'"):
        admin.list_partition_offsets({T0: 0}, "x")
    assert admin.delete_records({T0: 2, T1: 0}) == {
        T0: {"partition_index": 0, "low_watermark": 2, "error_code": 0, "error_message": None},
        T1: {"partition_index": 1, "low_watermark": 0, "error_code": 0, "error_message": None},
    }


def test_descriptions_of_the_cluster_and_its_directories_are_whole(seventh):
    admin = seventh.admin()
    for number in range(3):
        seventh.append("t", value=b"v" * number, partition=number % 2)
    cluster_id = seventh.manager.identity.cluster_id
    broker = {"broker_id": 7, "host": "localhost", "port": -1, "rack": None, "is_fenced": False}
    assert admin.describe_cluster() == {
        "cluster_id": cluster_id,
        "controller_id": 7,
        "brokers": [broker],
    }
    (directory,) = seventh.manager.directories
    row = {"offset_lag": 0, "is_future_key": False}
    partitions = [
        {"partition_index": each, "partition_size": seventh.log("t", each).size_bytes, **row}
        for each in (0, 1)
    ]
    assert admin.describe_log_dirs() == [
        {
            "broker": 7,
            "log_dirs": [
                {
                    "error_code": 0,
                    "log_dir": directory.path,
                    "topics": [{"name": "t", "partitions": partitions}],
                    "total_bytes": -1,
                    "usable_bytes": -1,
                }
            ],
        }
    ]


def test_a_description_of_a_group_is_whole(seventh):
    admin = seventh.admin()
    consumer = seventh.consumer("t", group_id="g", client_id="me", group_instance_id="i")
    consumer.poll()
    (known,) = seventh.groups.describe("g").members
    assert admin.describe_groups("g" for _ in range(1))["g"] == {
        "group_id": "g",
        "group_state": "Stable",
        "protocol_type": "consumer",
        "protocol_data": "range",
        "members": [
            {
                "member_id": known.member_id,
                "group_instance_id": "i",
                "client_id": "me",
                "client_host": known.client_host,
                "member_metadata": decode_subscription(known.metadata),
                "member_assignment": decode_assignment(known.assignment),
            }
        ],
        "error": None,
    }


def test_a_description_of_a_group_of_the_consumer_protocol_is_whole(broker, admin):
    """The first member has not given up its partition yet, and the last has no assignment yet."""
    options = {"group_id": "g", "group_protocol": "consumer"}
    broker.consumer("t", client_id="me", group_instance_id="i", **options).poll()
    broker.clock.advance(ms=2000)
    for name in ("second", "third"):
        broker.consumer("t", client_id=name, **options).poll()
    first, second, third = (
        each.member_id for each in broker.groups.describe_consumer_group("g").members
    )

    def member(member_id, instance_id, client_id, epoch, partitions):
        return {
            "member_id": member_id,
            "group_instance_id": instance_id,
            "client_id": client_id,
            "client_host": "/127.0.0.1",
            "member_epoch": epoch,
            "member_metadata": Subscription(("t",)),
            "member_assignment": Assignment(partitions),
        }

    assert admin.describe_groups(["g"]) == {
        "g": {
            "group_id": "g",
            "group_state": "Assigning",
            "protocol_type": "consumer",
            "protocol_data": "uniform",
            "group_epoch": 4,
            "assignment_epoch": 3,
            "members": [
                member(first, "i", "me", 2, (T0, T1)),
                member(second, None, "second", 3, ()),
                member(third, None, "third", 3, ()),
            ],
            "error": None,
        }
    }


def test_a_member_has_no_subscription_before_its_group_is_stable(broker, admin):
    joined = []
    request = JoinRequest(
        "g",
        "consumer",
        (("range", encode_subscription(Subscription(("t",)))),),
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        client_id="me",
        client_host="/host",
        requires_member_id=False,
    )
    broker.groups.join(request, joined.append)
    (described,) = admin.describe_groups(["g"]).values()
    (member,) = described.pop("members")
    assert described == {
        "group_id": "g",
        "group_state": "CompletingRebalance",
        "protocol_type": "consumer",
        "protocol_data": "",
        "error": None,
    }
    assert member.pop("member_id").startswith("me-")
    assert member == {
        "group_instance_id": None,
        "client_id": "me",
        "client_host": "/host",
        "member_metadata": b"",
        "member_assignment": b"",
    }


def test_arguments_of_a_wrong_kind_are_named(admin):
    for call, message in (
        (lambda: admin.create_topics("x"), "new_topics must be a list or a mapping, not 'x'"),
        (lambda: admin.create_topics(5), "new_topics must be a list or a mapping, not 5"),
        (lambda: admin.delete_topics("t"), "expected a list of names, not 't'"),
        (lambda: admin.delete_topics(None), "expected a list of names, not None"),
    ):
        with pytest.raises(TypeError) as raised:
            call()
        assert str(raised.value) == message


def test_a_read_only_broker_changes_nothing(tmp_path):
    with Broker(tmp_path) as broker:
        broker.create_topic("t")
    with Broker(tmp_path, read_only=True) as broker:
        admin = broker.admin()
        for what, call in (
            ("create topics", lambda: admin.create_topics(["x"])),
            ("delete topics", lambda: admin.delete_topics(["t"])),
            ("create partitions", lambda: admin.create_partitions({"t": 2})),
            ("alter configs", lambda: admin.alter_configs([])),
            ("reset configs", lambda: admin.reset_configs([])),
            ("delete groups", lambda: admin.delete_groups([])),
            ("remove group members", lambda: admin.remove_group_members("g", [])),
            ("alter group offsets", lambda: admin.alter_group_offsets("g", {})),
            ("reset group offsets", lambda: admin.reset_group_offsets("g", {})),
            ("delete group offsets", lambda: admin.delete_group_offsets("g", [])),
            ("delete records", lambda: admin.delete_records({})),
            ("alter replica log dirs", lambda: admin.alter_replica_log_dirs({})),
        ):
            with pytest.raises(InvalidConfigurationError) as raised:
                call()
            assert str(raised.value) == f"cannot {what}: the broker was opened read-only"
        assert admin.list_topics() == ["t"]
