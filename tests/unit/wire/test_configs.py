"""Configurations over the wire: described, replaced, changed key by key."""

import json

import pytest

from logstore import Broker, Cluster
from logstore.errors import CorruptCheckpointError
from logstore.messages.types import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from tests.support.world.wire import Client, name_of

TOPIC, BROKER, BROKER_LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.fixture(autouse=True)
def topic(broker):
    broker.create_topic("t", configs={"retention.ms": "1000"})


def described(client, kind, name, keys=None, version=4, **fields):
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    answer = client.ask(DescribeConfigsRequest(resources=[resource], **fields), version)
    (result,) = answer.results
    return name_of(result.error_code), {row.name: row for row in result.configs}


def changed(client, kind, name, *operations, version=1, **fields):
    resources = IncrementalAlterConfigsRequest
    configs = [
        resources.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in operations
    ]
    resource = resources.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=configs
    )
    (found,) = client.ask(resources(resources=[resource], **fields), version).responses
    return name_of(found.error_code)


@pytest.mark.parametrize("version", range(1, 5))
def test_values_come_with_where_they_come_from(broker, client, version):
    broker.alter_broker_configs({"log.cleaner.delete.retention.ms": "5"})
    broker.alter_broker_configs({"log.segment.bytes": "7000"}, cluster_wide=True)
    error, rows = described(client, TOPIC, "t", version=version)
    assert error == "NONE"
    told = {
        key: (rows[key].value, rows[key].config_source)
        for key in ("retention.ms", "delete.retention.ms", "segment.bytes", "segment.ms")
    }
    assert told == {
        "retention.ms": ("1000", 1),
        "delete.retention.ms": ("5", 2),
        "segment.bytes": ("7000", 3),
        "segment.ms": ("604800000", 5),
    }
    assert not any(row.read_only or row.is_sensitive or row.synonyms for row in rows.values())
    if version >= 3:
        kinds = {key: rows[key].config_type for key in ("retention.ms", "cleanup.policy")}
        assert kinds == {"retention.ms": 5, "cleanup.policy": 7}


def test_synonyms_and_documentation_are_included_on_request(broker, client):
    broker.alter_broker_configs({"log.retention.ms": "77"})
    broker.alter_broker_configs({"log.retention.ms": "88"}, cluster_wide=True)
    _, rows = described(
        client, TOPIC, "t", ["retention.ms"], include_synonyms=True, include_documentation=True
    )
    assert list(rows) == ["retention.ms"]
    row = rows["retention.ms"]
    assert [(each.name, each.value, each.source) for each in row.synonyms] == [
        ("retention.ms", "1000", 1),
        ("log.retention.ms", "77", 2),
        ("log.retention.ms", "88", 3),
        ("log.retention.hours", "168", 5),
    ]
    assert row.documentation.startswith("Age in ms")


def test_the_broker_s_settings_are_returned(client):
    error, rows = described(client, BROKER, "0")
    assert error == "NONE"
    assert rows["log.cleaner.threads"].value == "1"
    assert not rows["log.cleaner.threads"].read_only
    assert rows["offsets.retention.minutes"].read_only
    assert rows["log.retention.hours"].value == "168"
    assert rows["log.retention.ms"].value is None
    assert described(client, BROKER, "") == ("NONE", {})
    assert described(client, BROKER_LOGGER, "0") == ("NONE", {})


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    (
        (TOPIC, "none", "UNKNOWN_TOPIC_OR_PARTITION"),
        (BROKER, "7", "INVALID_REQUEST"),
        (BROKER, "x", "INVALID_REQUEST"),
        (BROKER_LOGGER, "", "INVALID_REQUEST"),
        (99, "t", "INVALID_REQUEST"),
    ),
)
def test_a_topic_without_a_configuration_is_refused(client, kind, name, error):
    assert described(client, kind, name) == (error, {})
    assert changed(client, kind, name or "9", ("segment.ms", SET, "5")) == error


@pytest.mark.parametrize("version", range(3))
def test_a_configuration_is_replaced_as_a_whole(broker, client, version):
    kinds = AlterConfigsRequest

    def replace(name="t", **configs):
        rows = [
            kinds.AlterableConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ]
        resource = kinds.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=rows)
        (found,) = client.ask(kinds(resources=[resource]), version).responses
        return name_of(found.error_code)

    assert replace(segment_ms="7000") == "NONE"
    assert dict(broker.topic("t").configs) == {"segment.ms": "7000"}
    assert replace(segment_ms="-7") == "INVALID_CONFIG"
    assert replace(segment_ms=None) == "INVALID_REQUEST"
    assert replace("none") == "UNKNOWN_TOPIC_OR_PARTITION"
    assert dict(broker.topic("t").configs) == {"segment.ms": "7000"}


def test_the_settings_of_a_broker_are_replaced_as_a_whole(broker, client):
    kinds = AlterConfigsRequest

    def replace(name, **configs):
        rows = [
            kinds.AlterableConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ]
        resource = kinds.AlterConfigsResource(
            resource_type=BROKER, resource_name=name, configs=rows
        )
        (found,) = client.ask(kinds(resources=[resource]), 2).responses
        return name_of(found.error_code)

    assert replace("0", log_retention_ms="5000", log_roll_ms="6000") == "NONE"
    assert replace("", log_roll_ms="7000") == "NONE"
    assert replace("0", log_retention_ms="5500") == "NONE"
    layers = broker.broker_config.dynamic
    assert layers.broker == {"log.retention.ms": "5500"}
    assert layers.cluster == {"log.roll.ms": "7000"}


def test_keys_are_changed_one_by_one(broker, client):
    assert (
        changed(
            client,
            TOPIC,
            "t",
            ("segment.ms", SET, "7000"),
            ("retention.ms", DELETE, None),
            ("cleanup.policy", APPEND, "compact"),
        )
        == "NONE"
    )
    assert dict(broker.topic("t").configs) == {
        "segment.ms": "7000",
        "cleanup.policy": "delete,compact",
    }
    assert changed(client, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")) == "NONE"
    assert broker.topic("t").configs["cleanup.policy"] == "compact"


@pytest.mark.parametrize(
    ("error", "operations"),
    (
        ("INVALID_CONFIG", [("segment.ms", SET, "never")]),
        ("INVALID_CONFIG", [("no.such.key", SET, "1")]),
        ("INVALID_CONFIG", [("segment.ms", APPEND, "1")]),
        ("INVALID_REQUEST", [("segment.ms", SET, None)]),
        ("INVALID_REQUEST", [("segment.ms", 9, "1")]),
        ("INVALID_REQUEST", [("segment.ms", SET, "1"), ("segment.ms", SET, "2")]),
    ),
)
def test_a_change_that_cannot_be_changes_nothing(broker, client, error, operations):
    assert changed(client, TOPIC, "t", *operations) == error
    assert dict(broker.topic("t").configs) == {"retention.ms": "1000"}


def test_a_validated_change_is_not_made(broker, client):
    assert changed(client, TOPIC, "t", ("segment.ms", SET, "5"), validate_only=True) == "NONE"
    assert (
        changed(client, BROKER, "0", ("log.cleaner.threads", SET, "2"), validate_only=True)
        == "NONE"
    )
    assert "segment.ms" not in broker.topic("t").configs
    assert broker.broker_config.log_cleaner_threads == 1


def test_settings_of_the_broker_change_while_it_runs(broker, client):
    assert changed(client, BROKER, "0", ("log.cleaner.threads", SET, "2")) == "NONE"
    assert broker.broker_config.log_cleaner_threads == 2
    assert changed(client, BROKER, "", ("log.retention.ms", SET, "5000")) == "NONE"
    assert described(client, TOPIC, "t")[1]["retention.ms"].value == "1000"
    _, rows = described(client, BROKER, "", include_synonyms=True)
    assert [(row.name, row.value, row.config_source) for row in rows.values()] == [
        ("log.retention.ms", "5000", 3)
    ]
    _, rows = described(client, BROKER, "0", include_synonyms=True)
    threads, retention = rows["log.cleaner.threads"], rows["log.retention.ms"]
    assert (threads.value, threads.config_source) == ("2", 2)
    assert [each.source for each in threads.synonyms] == [2, 5]
    assert (retention.value, retention.config_source) == ("5000", 3)
    assert changed(client, BROKER, "0", ("log.retention.ms", DELETE, None)) == "NONE"
    assert described(client, BROKER, "0")[1]["log.retention.ms"].value == "5000"
    assert changed(client, BROKER, "", ("log.retention.ms", DELETE, None)) == "NONE"
    assert described(client, BROKER, "") == ("NONE", {})
    assert changed(client, BROKER, "0", ("log.dirs", SET, "/x")) == "INVALID_CONFIG"


def test_a_resource_named_twice_is_refused(client):
    resources = IncrementalAlterConfigsRequest
    twice = resources.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[])
    answer = client.ask(resources(resources=[twice, twice]), 1)
    assert [name_of(each.error_code) for each in answer.responses] == ["INVALID_REQUEST"] * 2


def test_the_default_of_a_key_with_units_matches_the_coarsest(client):
    _, rows = described(client, TOPIC, "t", include_synonyms=True)
    told = {
        key: [(each.name, each.value) for each in rows[key].synonyms if each.source == 5]
        for key in ("retention.ms", "segment.ms", "segment.jitter.ms", "flush.ms", "segment.bytes")
    }
    assert told == {
        "retention.ms": [("log.retention.hours", "168")],
        "segment.ms": [("log.roll.hours", "168")],
        "segment.jitter.ms": [],
        "flush.ms": [],
        "segment.bytes": [("log.segment.bytes", "1073741824")],
    }


@pytest.mark.parametrize("name", ("t", "none"))
def test_a_description_has_an_empty_message_whether_the_topic_is_there_or_not(client, name):
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC, resource_name=name, configuration_keys=None
    )
    (result,) = client.ask(DescribeConfigsRequest(resources=[resource]), 4).results
    assert result.error_message == ""


def test_a_value_that_cannot_be_comes_before_a_topic_that_is_not_there(client):
    shredded = changed(client, TOPIC, "none", ("cleanup.policy", SET, "shred"))
    assert shredded == "INVALID_CONFIG"
    compacted = changed(client, TOPIC, "none", ("cleanup.policy", SET, "compact"))
    assert compacted == "UNKNOWN_TOPIC_OR_PARTITION"


def test_any_key_can_be_unset_even_if_it_was_not_set(broker, client):
    assert changed(client, TOPIC, "t", ("no.such.key", DELETE, None)) == "NONE"
    assert broker.topic("t").configs == {"retention.ms": "1000"}
    assert changed(client, BROKER, "0", ("log.cleaner.threads", DELETE, None)) == "NONE"
    assert changed(client, BROKER, "0", ("my.plugin.setting", DELETE, None)) == "NONE"
    assert changed(client, BROKER, "0", ("num.partitions", DELETE, None)) == "INVALID_CONFIG"


THROTTLES = {
    "leader.replication.throttled.rate": "5000",
    "follower.replication.throttled.rate": "6000",
    "replica.alter.log.dirs.io.max.bytes.per.second": "7000",
}


@pytest.mark.parametrize("name", ("0", ""))
def test_unknown_keys_of_a_broker_are_stored_and_described_without_their_values(
    broker, client, name
):
    keys = ("my.plugin.setting", "cleanup.policy")
    assert changed(client, BROKER, name, *((key, SET, "x") for key in keys)) == "NONE"
    error, rows = described(client, BROKER, name)
    assert error == "NONE"
    for key in keys:
        row = rows[key]
        assert (row.value, row.is_sensitive, row.read_only) == (None, True, False)
        assert (row.config_type, row.config_source) == (0, 2 if name else 3)
    assert changed(client, BROKER, name, (keys[0], APPEND, "y")) == "INVALID_CONFIG"
    assert changed(client, BROKER, name, ("ssl.protocol", SET, "y")) == "INVALID_CONFIG"
    assert changed(client, BROKER, name, (keys[0], DELETE, None)) == "NONE"
    assert changed(client, BROKER, name, ("my.other", DELETE, None)) == "NONE"
    assert set(keys) & described(client, BROKER, name)[1].keys() == {keys[1]}


def test_throttles_are_set_described_and_removed(broker, client):
    replicas = "leader.replication.throttled.replicas"
    for _ in range(2):
        assert changed(client, BROKER, "0", *((k, SET, v) for k, v in THROTTLES.items())) == "NONE"
        rows = described(client, BROKER, "0")[1]
        assert {key: rows[key].value for key in THROTTLES} == THROTTLES
        assert {(rows[key].config_type, rows[key].read_only) for key in THROTTLES} == {(5, False)}
        assert changed(client, TOPIC, "t", (replicas, APPEND, "0:1")) == "NONE"
        assert changed(client, TOPIC, "t", (replicas, APPEND, "0:2")) == "NONE"
        assert described(client, TOPIC, "t")[1][replicas].value == "0:1,0:2"
        assert changed(client, TOPIC, "t", (replicas, SET, "0:1:2")) == "INVALID_CONFIG"
        for _ in range(2):
            assert changed(client, TOPIC, "t", (replicas, DELETE, None)) == "NONE"
            assert changed(client, BROKER, "0", *((k, DELETE, None) for k in THROTTLES)) == "NONE"
        assert not THROTTLES.keys() & described(client, BROKER, "0")[1].keys()
        assert replicas not in described(client, TOPIC, "t")[1]


# -- groups ------------------------------------------------------------------------------------

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def own_of(client, group="g"):
    error, rows = described(client, GROUP, group)
    assert error == "NONE"
    return {key: row.value for key, row in rows.items() if row.config_source == 8}


def test_a_group_is_configured(broker, client):
    error, rows = described(client, GROUP, "g", include_synonyms=True, include_documentation=True)
    assert error == "NONE"
    row = rows[SESSION]
    assert (row.value, row.config_source, row.config_type, row.read_only) == ("45000", 5, 3, False)
    assert [(each.name, each.value, each.source) for each in row.synonyms] == [
        ("group.consumer.session.timeout.ms", "45000", 5)
    ]
    assert row.documentation
    assert changed(client, GROUP, "g", (SESSION, SET, "50000"), (HEARTBEAT, SET, "6000")) == "NONE"
    assert own_of(client) == {SESSION: "50000", HEARTBEAT: "6000"}
    assert own_of(client, "other") == {}
    _, rows = described(client, GROUP, "g", [SESSION], include_synonyms=True)
    assert [each.source for each in rows[SESSION].synonyms] == [8, 5]
    assert changed(client, GROUP, "g", (SESSION, DELETE, None)) == "NONE"
    assert own_of(client) == {HEARTBEAT: "6000"}


@pytest.mark.parametrize(
    ("group", "operation", "error"),
    (
        ("g", (SESSION, SET, "500"), "INVALID_CONFIG"),
        ("g", (SESSION, SET, "x"), "INVALID_CONFIG"),
        ("g", (SESSION, SET, None), "INVALID_REQUEST"),
        ("g", (SESSION, APPEND, "50000"), "INVALID_CONFIG"),
        ("g", ("foo", SET, "1"), "INVALID_CONFIG"),
        ("g", ("foo", DELETE, None), "NONE"),
        ("", (SESSION, SET, "50000"), "INVALID_REQUEST"),
        ("g" * 1001, (SESSION, SET, "50000"), "INVALID_CONFIG"),
    ),
)
@pytest.mark.parametrize("validate_only", (False, True))
def test_changes_of_groups_are_checked_as_in_kafka(client, group, operation, error, validate_only):
    assert changed(client, GROUP, group, operation, validate_only=validate_only) == error
    assert own_of(client) == {}


def test_a_dry_run_of_a_group_changes_nothing(client):
    assert changed(client, GROUP, "g", (SESSION, SET, "50000"), validate_only=True) == "NONE"
    assert own_of(client) == {}


def test_the_group_without_a_name_has_no_configuration(client):
    assert described(client, GROUP, "") == ("INVALID_REQUEST", {})


def test_alter_configs_replaces_all_values_of_a_group(client):
    assert changed(client, GROUP, "g", (SESSION, SET, "50000")) == "NONE"
    config = AlterConfigsRequest.AlterableConfig(name=HEARTBEAT, value="7000")
    resource = AlterConfigsRequest.AlterConfigsResource(
        resource_type=GROUP, resource_name="g", configs=[config]
    )
    (found,) = client.ask(AlterConfigsRequest(resources=[resource]), 2).responses
    assert found.error_code == 0
    assert own_of(client) == {HEARTBEAT: "7000"}


@pytest.mark.parametrize("layout", ("memory", "disk", "cluster", "cluster on disk"))
def test_configurations_of_groups_are_durable(layout, tmp_path):
    is_cluster = layout.startswith("cluster")
    where = tmp_path if layout.endswith("disk") else None

    def opened():
        return Cluster(2, data_dir=where) if is_cluster else Broker(where)

    with opened() as started, started.listen() as listening:
        listeners = listening.values() if is_cluster else [listening]
        with Client(next(iter(listeners))) as client:
            assert changed(client, GROUP, "g", (SESSION, SET, "50000")) == "NONE"
            assert changed(client, GROUP, "h", (SESSION, SET, "51000")) == "NONE"
            assert changed(client, GROUP, "h", (SESSION, DELETE, None)) == "NONE"
        for each in listeners:
            with Client(each) as client:
                assert own_of(client) == {SESSION: "50000"}
    if where is None:
        return
    with opened() as started, started.listen() as listening:
        listener = next(iter(listening.values())) if is_cluster else listening
        with Client(listener) as client:
            assert (own_of(client), own_of(client, "h")) == ({SESSION: "50000"}, {})


@pytest.mark.parametrize("text", ('{"g": {"consumer.session.timeout.ms": "x"}}', '{"g": 7}', "[]"))
def test_damaged_configurations_of_groups(text, tmp_path):
    with Broker(tmp_path) as broker, broker.listen() as listener, Client(listener) as client:
        assert changed(client, GROUP, "g", (SESSION, SET, "50000")) == "NONE"
    path = tmp_path / "logstore-topics.json"
    document = json.loads(path.read_text())
    assert document["version"] == 4
    path.write_text(json.dumps(document | {"groups": json.loads(text)}))
    with pytest.raises(CorruptCheckpointError):
        Broker(tmp_path)
