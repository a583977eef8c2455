"""Broker settings that were changed while a broker ran, kept across runs."""

import json

import pytest

from logstore import Broker, Cluster, VirtualClock
from logstore.config.dynamic import Layer
from logstore.errors import CorruptCheckpointError, InvalidConfigurationError
from logstore.manager.topics import Topic

KEY = "log.retention.ms"


def retention(broker):
    found = broker.describe_configs("t")["retention.ms"]
    return found.value, found.origin


def test_dynamic_settings_persist_after_a_restart(tmp_path):
    path = tmp_path / "logstore-topics.json"
    with Broker(tmp_path, broker_config={KEY: "1000"}) as broker:
        broker.create_topic("t")
        assert retention(broker) == ("1000", "broker")
        assert json.loads(path.read_text())["version"] == 2
        broker.alter_broker_configs({KEY: "2000"}, cluster_wide=True)
        assert retention(broker) == ("2000", "dynamic default")
        broker.alter_broker_configs({KEY: "3000"})
    document = json.loads(path.read_text())
    assert document["version"] == 3
    assert document["settings"] == {"cluster": {KEY: "2000"}, "broker": {KEY: "3000"}}
    with Broker(tmp_path, broker_config={KEY: "1500"}) as broker:
        assert retention(broker) == ("3000", "dynamic broker")
        broker.alter_broker_configs({KEY: None})
        assert retention(broker) == ("2000", "dynamic default")
    with Broker(tmp_path, broker_config={KEY: "1500"}, read_only=True) as broker:
        assert retention(broker) == ("2000", "dynamic default")
        assert broker.describe_broker_configs()[KEY].origin == "dynamic default"
    with Broker(tmp_path) as broker:
        broker.alter_broker_configs({KEY: None}, cluster_wide=True)
        assert retention(broker) == ("604800000", "default")
    assert json.loads(path.read_text()).keys() == {"version", "topics"}
    assert json.loads(path.read_text())["version"] == 2


def test_a_change_that_cannot_be_stored_changes_nothing():
    with Broker() as broker:
        broker.create_topic("t")
        broker.alter_broker_configs({KEY: "5"})
        with broker.fail("rename"), pytest.raises(Exception, match="store"):
            broker.alter_broker_configs({KEY: "6"})
        assert retention(broker) == ("5", "dynamic broker")
        assert broker.manager.catalog.store.settings(Layer.BROKER) == {KEY: "5"}


def test_a_fork_has_the_layers_of_its_origin():
    with Broker(clock=VirtualClock(), broker_config={KEY: "1000"}) as broker:
        broker.create_topic("t")
        broker.alter_broker_configs({KEY: "2000"})
        with broker.fork() as other:
            assert retention(other) == ("2000", "dynamic broker")
            other.alter_broker_configs({KEY: None})
            assert retention(other) == ("1000", "broker")
        assert retention(broker) == ("2000", "dynamic broker")


def test_values_that_conflict_with_the_config_file_of_the_next_start_are_named(tmp_path):
    with Broker(tmp_path) as broker:
        broker.alter_broker_configs({"log.cleaner.max.compaction.lag.ms": "10"})
    lag = {"log.cleaner.min.compaction.lag.ms": "11"}
    with pytest.raises(
        InvalidConfigurationError, match=r"logstore-topics\.json: its stored broker"
    ):
        Broker(tmp_path, broker_config=lag)


@pytest.mark.parametrize(
    "settings", ({"host": {}}, {"broker": 5}, {"broker": ["x"]}, [], {"broker": {"log.dirs": "/x"}})
)
def test_settings_that_are_none_are_refused_by_file(tmp_path, settings):
    path = tmp_path / "logstore-topics.json"
    path.write_text(json.dumps({"version": 3, "topics": {}, "settings": settings}))
    with pytest.raises((CorruptCheckpointError, InvalidConfigurationError), match=path.name):
        Broker(tmp_path)


INERT = {"message.format.version": "2.8", "leader.replication.throttled.replicas": "*"}
STORED = {"my.plugin.setting": " x ", "leader.replication.throttled.rate": "5000"}


@pytest.mark.parametrize("brokers", (None, 1, 3))
def test_keys_without_effect_and_unknown_keys_are_kept(tmp_path, brokers):
    def opened():
        return Broker(tmp_path) if brokers is None else Cluster(brokers=brokers, data_dir=tmp_path)

    def members(world):
        return [world] if brokers is None else list(world.brokers.values())

    with opened() as world:
        world.create_topic("t", configs=INERT)
        for broker in members(world):
            broker.alter_broker_configs(STORED)
    with opened() as world:
        for broker in members(world):
            assert broker.manager.catalog.store.settings(Layer.BROKER) == STORED
            described = broker.describe_broker_configs()
            assert described["my.plugin.setting"].value == "(hidden)"
            assert described["leader.replication.throttled.rate"].value == "5000"
        (broker, *_) = members(world)
        configs = broker.manager.catalog.topic("t").configs
        assert dict(configs) == INERT


def test_a_topic_that_lacks_partitions_counts_those_it_has():
    topic = Topic("t", (1, 4), {"retention.ms": "5"}, adopted=True, id="x" * 22)
    assert topic.to_json() == {
        "name": "t",
        "partitions": 2,
        "configs": {"retention.ms": "5"},
        "partition_numbers": [1, 4],
        "adopted": True,
        "id": "x" * 22,
    }
