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
    with pytest.raises(TopicAlreadyExistsError):
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
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.describe_configs([ConfigResource("topic", "no")])
    with pytest.raises(InvalidConfigurationError):
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


def test_offsets_of_groups(broker, admin):
    broker.append_many("t", [(b"k", b"v")] * 5, partition=0)
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
    ):
        assert admin.reset_group_offsets("g", {T0: spec}) == {T0: {"error": None, "offset": offset}}
        assert admin.list_group_offsets("g")["g"][T0] == OffsetAndMetadata(offset, "m")
    assert admin.delete_group_offsets("g", [T0]) == {T0: None}
    assert admin.list_group_offsets("g") == {"g": {}}
    with pytest.raises(GroupIdNotFoundError):
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
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({T0: 99, T1: 0})
    admin.create_topics({"c": {"configs": {"cleanup.policy": "compact"}}})
    with pytest.raises(PolicyViolationError):
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


def test_what_is_refused(broker, admin):
    with pytest.raises(InvalidConfigurationError, match="the nearest is 'client_id'"):
        broker.admin(clientid="x")
    with pytest.raises(InvalidConfigurationError, match="the nearest is 'num_partitions'"):
        admin.create_topics({"x": {"partitions": 5}})
    for wrong in (lambda: admin.create_topics("x"), lambda: admin.delete_topics("t")):
        with pytest.raises(TypeError):
            wrong()
    with broker.admin() as other:
        pass
    with pytest.raises(IllegalStateError):
        other.list_topics()
    broker.close()
    with pytest.raises(IllegalStateError):
        admin.list_topics()
