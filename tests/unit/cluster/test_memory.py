"""A cluster on disks is opened again as it was."""

import json
import threading

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource

from logstore import Cluster, TopicPartition, VirtualClock
from logstore.cluster import cluster as cluster_module
from logstore.cluster.memory import ClusterMemory
from logstore.cluster.states import ClusterTopic, PartitionState
from logstore.config.dynamic import Layer, own_layer
from logstore.errors import (
    CorruptCheckpointError,
    InvalidConfigurationError,
    KafkaStorageError,
)
from logstore.runtime import DiskFileSystem, MemoryFileSystem
from logstore.storage.checkpoint.atomic import read_bytes

TP = TopicPartition("t", 0)
KEY = "log.retention.ms"


def opened(path, brokers=3):
    return Cluster(brokers=brokers, clock=VirtualClock(), data_dir=path)


def memory(path):
    return path / "controller" / "logstore-cluster.json"


def values(cluster, broker):
    return [record.value for record in cluster.brokers[broker].read("t")]


def test_records_topics_and_epochs_are_there_again(tmp_path):
    with opened(tmp_path) as cluster:
        cluster.create_topic("t", 2, {"segment.ms": "7000"}, replication_factor=3)
        cluster.create_topic("gone", replication_factor=2)
        cluster.append(TP, value=b"1")
        cluster.move_leader(TP, to=2)
        cluster.delete_topic("gone")
        topic_id = cluster.topics()[0].id
    with opened(tmp_path) as cluster:
        (topic,) = cluster.topics()
        assert (topic.id, dict(topic.configs)) == (topic_id, {"segment.ms": "7000"})
        state = cluster.state(TP)
        assert (state.leader, state.leader_epoch) == (0, 2), "the first that runs, in a new epoch"
        cluster.append(TP, value=b"2")
        assert cluster.run_until(lambda: cluster.state(TP).isr == (0, 1, 2), timeout=60_000)
        assert [values(cluster, broker) for broker in range(3)] == [[b"1", b"2"]] * 3


def test_topic_ids_differ_although_two_runs_have_the_same_seed(tmp_path):
    for name in ("a", "b"):
        with Cluster(brokers=1, clock=VirtualClock(), data_dir=tmp_path, seed=1) as cluster:
            cluster.create_topic(name, replication_factor=1)
            ids = [topic.id for topic in cluster.topics()]
    assert len(set(ids)) == 2


def test_producer_ids_are_assigned_by_the_controller_for_all_brokers(tmp_path):
    ids = []
    for _ in range(2):
        with opened(tmp_path, brokers=2) as cluster:
            ids += [each.coordinator.new_producer_id() for each in cluster.brokers.values()]
    assert ids == [0, 1, 1000, 1001]
    assert (tmp_path / "controller" / "logstore-producer-ids.json").exists()


def test_an_out_of_sync_replica_is_not_elected(tmp_path):
    with opened(tmp_path, brokers=2) as cluster:
        cluster.create_topic("t", replication_factor=2)
        cluster.kill(0)
        cluster.append(TP, value=b"1")
    with opened(tmp_path, brokers=2) as cluster:
        assert cluster.leader(TP) == 1
        assert cluster.run_until(lambda: values(cluster, 0) == [b"1"], timeout=60_000)


def test_every_change_is_durable_before_brokers_are_notified(tmp_path):
    with opened(tmp_path) as cluster:
        cluster.create_topic("t", replication_factor=3)
        seen = []
        apply = cluster.replicas(1).apply

        def note(states):
            (partition,) = json.loads(memory(tmp_path).read_text())["topics"]["t"]["partitions"]
            seen.append((partition["leader"], partition["leader_epoch"], partition["isr"]))
            apply(states)

        cluster.replicas(1).apply = note
        cluster.kill(0)
        assert seen == [(1, 1, [1, 2])]


def test_a_change_that_cannot_be_stored_has_no_effect(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    with opened(tmp_path) as cluster:
        controller = cluster.controller
        cluster.create_topic("t", 1, configs={"retention.ms": "1"})
        before = controller.topics(), controller.settings, dict(controller.groups)
        monkeypatch.setattr(controller, "_remember", fail)
        for change in (
            lambda: cluster.create_topic("u"),
            lambda: cluster.delete_topic("t"),
            lambda: cluster.alter_configs("t", {"retention.ms": "2"}),
            lambda: cluster.alter_group_configs("g", {"consumer.session.timeout.ms": 50_000}),
            lambda: cluster.alter_broker_configs({"log.retention.ms": "2"}),
        ):
            with pytest.raises(OSError, match="No space"):
                change()
            assert (controller.topics(), controller.settings, dict(controller.groups)) == before
        monkeypatch.undo()
        cluster.create_topic("u")
        assert [topic.name for topic in controller.topics()] == ["t", "u"]


@pytest.mark.parametrize(
    ("rule", "alter", "stored", "first", "second"),
    (
        (
            "alter_overrides",
            lambda cluster, configs: cluster.alter_configs("t", configs),
            lambda cluster: cluster.controller.topic("t").configs,
            {"retention.ms": "1"},
            {"segment.ms": "2"},
        ),
        (
            "alter_group_overrides",
            lambda cluster, configs: cluster.alter_group_configs("g", configs),
            lambda cluster: cluster.controller.groups["g"],
            {"consumer.session.timeout.ms": "50000"},
            {"consumer.heartbeat.interval.ms": "6000"},
        ),
    ),
    ids=("topic", "group"),
)
def test_concurrent_changes_of_configurations_are_both_stored(
    tmp_path, monkeypatch, rule, alter, stored, first, second
):
    real = getattr(cluster_module, rule)
    others = []

    def slow(own, configs, *rest):
        result = real(own, configs, *rest)
        if not others:
            others.append(threading.Thread(target=alter, args=(cluster, second)))
            others[0].start()
            others[0].join(0.2)  # it cannot end before this change is stored
        return result

    with opened(tmp_path) as cluster:
        cluster.create_topic("t")
        monkeypatch.setattr(cluster_module, rule, slow)
        alter(cluster, first)
        others[0].join()
        assert stored(cluster) == first | second


def test_fewer_brokers_than_there_were_are_refused(tmp_path):
    with opened(tmp_path) as cluster:
        cluster.create_topic("t", replication_factor=3)
    with pytest.raises(InvalidConfigurationError) as caught:
        opened(tmp_path, brokers=2)
    assert str(caught.value) == (
        f"{memory(tmp_path)} contains broker 2, but the cluster only has 2"
    )


def partition(**changes):
    """Return a change of the stored partition."""
    return lambda document: document["topics"]["t"]["partitions"][0].update(changes)


MALFORMED = "malformed controller state: "


@pytest.mark.parametrize(
    ("change", "message"),
    (
        (lambda d: d.update(version=2), "'settings'"),
        (
            lambda d: d.update(version=4, groups={"g": {"no.such.key": "1"}}),
            "unknown group configuration 'no.such.key'",
        ),
        (
            lambda d: d.update(version=2, settings=[]),
            "'list' object has no attribute 'items'",
        ),
        (partition(isr=[]), "partition 0 of 't' has replicas (0,), ISR ()"),
        (partition(isr=[7]), "partition 0 of 't' has replicas (0,), ISR (7,)"),
        (partition(replicas=[0, 0, 1]), "invalid broker ids: [0, 0, 1]"),
        (partition(replicas=[0, -1]), "invalid broker ids: [0, -1]"),
        (partition(replicas=[0, True]), "invalid broker ids: [0, True]"),
        (partition(adding=[0, 1]), "partition 0 of 't' has replicas (0,), not [(0, 1), ()]"),
        (partition(removing=[2]), "partition 0 of 't' has replicas (0,), not [(), (2,)]"),
        (partition(leader_epoch="x"), "partition 0 of 't' has leader and epochs [0, 'x', 0]"),
        (partition(leader=-2), "partition 0 of 't' has leader and epochs [-2, 0, 0]"),
        (partition(partition_epoch=True), "partition 0 of 't' has leader and epochs [0, 0, True]"),
        (lambda d: d["topics"]["t"].pop("configs"), "'configs'"),
        (lambda d: d.update(topics=[]), "'list' object has no attribute 'items'"),
    ),
)
def test_a_malformed_file_is_refused_by_name(tmp_path, change, message):
    store = ClusterMemory(DiskFileSystem(), str(tmp_path))
    state = PartitionState(TP, (0,), 0, 0, (0,), 0)
    store.write([ClusterTopic("t", "id", 1, {}, (state,))], None, {})
    path = tmp_path / "logstore-cluster.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(CorruptCheckpointError) as caught:
        store.read()
    error = caught.value
    assert (str(error), error.check) == (f"{path}: {MALFORMED}{message}", "json")


def test_a_file_of_a_later_release_is_refused_by_name(tmp_path):
    path = tmp_path / "logstore-cluster.json"
    path.write_text('{"version": 6}')
    with pytest.raises(CorruptCheckpointError) as caught:
        ClusterMemory(DiskFileSystem(), str(tmp_path)).read()
    error = caught.value
    assert (str(error), error.check, error.expected, error.found) == (
        f"{path}: unknown version",
        "version",
        5,
        6,
    )


@pytest.mark.parametrize("settings", (None, {}, {KEY: "1"}))
@pytest.mark.parametrize("groups", ({}, {"g": {"consumer.session.timeout.ms": "50000"}}))
@pytest.mark.parametrize("name", ("t", "__consumer_offsets", "__transaction_state"))
@pytest.mark.parametrize("moves", ({}, {"adding": (4,)}, {"adding": (4,), "removing": (2, 7)}))
def test_the_file_has_the_lowest_version_that_can_be_read_with_its_contents(
    settings, groups, name, moves
):
    states = (
        PartitionState(TopicPartition(name, 0), (2, 4, 7), 4, 5, (4, 7), 9, **moves),
        PartitionState(TopicPartition(name, 1), (7, 2, 4), -1, 6, (2,), 8),
    )
    topics = [ClusterTopic(name, "id", 3, {"segment.ms": "7"}, states)]
    store = ClusterMemory(fs := MemoryFileSystem(VirtualClock()), "/controller")
    assert store.read() == ([], None, {})
    store.write(topics, settings, groups)
    assert store.read() == (topics, settings, groups)
    needed = {2: settings is not None, 3: name != "t", 4: groups, 5: moves}
    document = json.loads(read_bytes(fs, "/controller/logstore-cluster.json"))
    assert document["version"] == max([1, *(each for each in needed if needed[each])])
    assert document.keys() - {"version", "topics"} == {
        *(["settings"] if settings is not None else []),
        *(["groups"] if groups else []),
    }


# -- settings of all brokers -------------------------------------------------------------------


def described(cluster, key):
    """Return the cluster-wide value that each broker has, in memory and over the wire."""
    in_memory = {
        number: layer[key]
        for number, broker in cluster.brokers.items()
        if key in (layer := own_layer(broker.broker_config, Layer.CLUSTER))
    }
    over_the_wire = {}
    with cluster.listen() as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        for number in cluster.brokers:
            resource = ConfigResource("broker", str(number))
            (future,) = admin.describe_configs([resource]).values()
            entry = future.result(60)[key]
            if entry.source == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value:
                over_the_wire[number] = entry.value
    assert in_memory == over_the_wire
    return in_memory


@pytest.fixture(params=(1, 3))
def brokers(request):
    return request.param


def reopened(path, brokers):
    return Cluster(brokers=brokers, data_dir=path)


def test_settings_of_all_brokers_hold_again(tmp_path, brokers):
    with reopened(tmp_path, brokers) as cluster:
        cluster.alter_broker_configs({KEY: "2000", "log.cleaner.backoff.ms": "7"})
        cluster.alter_broker_configs({"log.cleaner.backoff.ms": None})
    with reopened(tmp_path, brokers) as cluster:
        assert described(cluster, KEY) == dict.fromkeys(range(brokers), "2000")
        assert described(cluster, "log.cleaner.backoff.ms") == {}
        cluster.create_topic("t", replication_factor=brokers)
        retention = cluster.brokers[0].describe_configs("t")["retention.ms"]
        assert retention[:2] == ("2000", "dynamic default")
        cluster.alter_broker_configs({KEY: None})
    with reopened(tmp_path, brokers) as cluster:
        assert described(cluster, KEY) == {}


def test_a_broker_that_was_down_gets_the_settings_when_the_cluster_is_opened(tmp_path):
    with reopened(tmp_path, 3) as cluster:
        cluster.alter_broker_configs({"log.cleaner.backoff.ms": "7", "log.cleaner.threads": "2"})
        cluster.kill(0)
        cluster.alter_broker_configs({KEY: "2000", "log.cleaner.backoff.ms": None})
        for threads in ("4", "8"):  # more than one change allows for the stopped broker
            cluster.alter_broker_configs({"log.cleaner.threads": threads})
    with reopened(tmp_path, 3) as cluster:
        assert described(cluster, KEY) == dict.fromkeys(range(3), "2000")
        assert described(cluster, "log.cleaner.threads") == dict.fromkeys(range(3), "8")
        assert described(cluster, "log.cleaner.backoff.ms") == {}


def test_a_broker_that_was_down_when_the_last_setting_was_unset_does_not_bring_it_back(tmp_path):
    with reopened(tmp_path, 3) as cluster:
        cluster.alter_broker_configs({KEY: "2000"})
        cluster.kill(0)
        cluster.alter_broker_configs({KEY: None})
    with reopened(tmp_path, 3) as cluster:
        assert described(cluster, KEY) == {}


def test_settings_are_stored_before_brokers_get_them(tmp_path, monkeypatch):
    with reopened(tmp_path, 3) as cluster:
        topics = cluster.brokers[0].manager.topics
        seen = []

        def fail(*_):
            seen.append(json.loads(memory(tmp_path).read_text())["settings"])
            raise KafkaStorageError("the disk failed")

        monkeypatch.setattr(topics, "reconfigure", fail)
        with pytest.raises(KafkaStorageError):
            cluster.alter_broker_configs({KEY: "2000"})
        assert seen == [{KEY: "2000"}]
    with reopened(tmp_path, 3) as cluster:
        assert described(cluster, KEY) == dict.fromkeys(range(3), "2000")


def test_settings_that_only_the_brokers_have_stored_are_adopted(tmp_path, brokers):
    """The file of an earlier release has none."""
    with reopened(tmp_path, brokers) as cluster:
        cluster.create_topic("t", replication_factor=1)
        cluster.alter_broker_configs({KEY: "2000"})
    document = json.loads(memory(tmp_path).read_text())
    del document["settings"]
    memory(tmp_path).write_text(json.dumps(document | {"version": 1}))
    with reopened(tmp_path, brokers) as cluster:
        assert described(cluster, KEY) == dict.fromkeys(range(brokers), "2000")
    document = json.loads(memory(tmp_path).read_text())
    assert (document["version"], document["settings"]) == (2, {KEY: "2000"})


def test_settings_that_only_some_brokers_have_stored_are_those_of_all(tmp_path):
    with reopened(tmp_path, 3) as cluster:
        cluster.kill(0)
        cluster.alter_broker_configs({KEY: "2000"})
    document = json.loads(memory(tmp_path).read_text())
    del document["settings"]
    memory(tmp_path).write_text(json.dumps(document | {"version": 1}))
    with reopened(tmp_path, 3) as cluster:
        assert described(cluster, KEY) == dict.fromkeys(range(3), "2000")


def test_only_a_cluster_with_settings_or_coordinators_refuses_earlier_releases(tmp_path):
    """They would ignore its settings, or its groups and transactions."""
    with reopened(tmp_path, 3) as cluster:
        cluster.create_topic("t", replication_factor=1)
        document = json.loads(memory(tmp_path).read_text())
        assert (document["version"], "settings" in document) == (1, False)
        assert cluster.group_coordinator("g") >= 0
        document = json.loads(memory(tmp_path).read_text())
        assert (document["version"], "settings" in document) == (3, False)
        cluster.alter_broker_configs({KEY: "2000"})
    document = json.loads(memory(tmp_path).read_text())
    assert (document["version"], document["settings"]) == (3, {KEY: "2000"})
    with reopened(tmp_path, 3) as cluster:
        assert described(cluster, KEY) == dict.fromkeys(range(3), "2000")
        assert cluster.group_coordinator("g") >= 0
