"""A cluster on disks is opened again as it was."""

import json

import pytest

from logstore import Cluster, TopicPartition, VirtualClock
from logstore.checkpoint.shutdown import CLEAN_SHUTDOWN
from logstore.errors import CorruptCheckpointError, InvalidConfigurationError

TP = TopicPartition("t", 0)


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


def test_the_files_of_the_coordinators_are_closed_with_the_cluster(tmp_path):
    with opened(tmp_path, brokers=1) as cluster:
        cluster._coordinators().transactions.init_producer_id("x", 60_000)
        assert not (tmp_path / "coordinator" / CLEAN_SHUTDOWN).exists()
    assert (tmp_path / "coordinator" / CLEAN_SHUTDOWN).exists()
    with opened(tmp_path, brokers=1) as cluster:
        assert cluster._coordinators().transactions.transactions()["x"].producer_epoch == 0


def test_who_was_out_of_sync_does_not_lead(tmp_path):
    with opened(tmp_path, brokers=2) as cluster:
        cluster.create_topic("t", replication_factor=2)
        cluster.kill(0)
        cluster.append(TP, value=b"1")
    with opened(tmp_path, brokers=2) as cluster:
        assert cluster.leader(TP) == 1
        assert cluster.run_until(lambda: values(cluster, 0) == [b"1"], timeout=60_000)


def test_every_change_is_on_disk_before_brokers_are_told(tmp_path):
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


def test_fewer_brokers_than_there_were_are_refused(tmp_path):
    with opened(tmp_path) as cluster:
        cluster.create_topic("t", replication_factor=3)
    with pytest.raises(
        InvalidConfigurationError, match="tells of broker 2: a cluster of 2 cannot go on"
    ):
        opened(tmp_path, brokers=2)


CHANGES = (
    lambda d: d.update(version=2),
    lambda d: d["topics"]["t"]["partitions"][0].update(isr=[]),
    lambda d: d["topics"]["t"]["partitions"][0].update(isr=[7]),
    lambda d: d["topics"]["t"]["partitions"][0].update(replicas=[0, 0, 1]),
    lambda d: d["topics"]["t"]["partitions"][0].update(leader_epoch="x"),
    lambda d: d["topics"]["t"].pop("configs"),
    lambda d: d.update(topics=[]),
)


def test_a_file_that_is_none_is_refused_by_name(tmp_path):
    with opened(tmp_path, brokers=1) as cluster:
        cluster.create_topic("t", replication_factor=1)
    text = memory(tmp_path).read_text()
    for change in CHANGES:
        document = json.loads(text)
        change(document)
        memory(tmp_path).write_text(json.dumps(document))
        with pytest.raises(CorruptCheckpointError, match=r"logstore-cluster\.json"):
            opened(tmp_path, brokers=1)
