"""Relative data directories: resolved when a broker opens, and reported as absolute paths."""

import os

import pytest

from logstore import Broker, Cluster, TopicPartition, VirtualClock

SMALL = {"segment.bytes": "1000"}


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Open in one directory, and change to another that has a data directory of that name."""
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        with Broker("data") as broker:
            broker.create_topic("t", configs=SMALL)
    monkeypatch.chdir(tmp_path / "here")
    return lambda: os.chdir(tmp_path / "there")


def sizes(path):
    return {each.name: each.stat().st_size for each in sorted((path / "data" / "t-0").iterdir())}


@pytest.mark.parametrize("read_only", (False, True))
def test_a_later_change_of_the_working_directory_changes_no_path(elsewhere, tmp_path, read_only):
    with Broker("data") as broker:
        broker.append("t", value=b"here")
    before = sizes(tmp_path / "there")
    with Broker("data", read_only=read_only) as broker:
        elsewhere()
        assert [record.value for record in broker.read("t")] == [b"here"]
        if not read_only:
            for _ in range(30):
                broker.append("t", value=bytes(100))
            assert len(broker.log("t").segments) > 3
    assert sizes(tmp_path / "there") == before
    with Broker(tmp_path / "here" / "data", read_only=True) as broker:
        assert broker.log("t").log_end_offset == (1 if read_only else 31)


def test_log_directories_are_reported_as_absolute_paths(elsewhere, tmp_path):
    data, other = (str(tmp_path / "here" / name) for name in ("data", "other"))
    with Broker(["data", "other"]) as broker:
        (told,) = broker.admin().describe_log_dirs()
        assert [each["log_dir"] for each in told["log_dirs"]] == [data, other]
        tp = TopicPartition("t", 0)
        for path, home in (("other", other), (data, data), ("./other/", other)):
            assert broker.alter_replica_log_dirs({tp: path})[tp].error is None
            assert broker.manager.registry.directory_of(tp).path == home


def test_a_cluster_keeps_its_directory(elsewhere, tmp_path):
    with Cluster(brokers=3, data_dir="cluster", clock=VirtualClock()) as cluster:
        elsewhere()
        cluster.create_topic("t", partitions=1, replication_factor=3)
        cluster.append("t", key=b"k", value=b"v", acks="all")
        cluster.kill(0)
        cluster.restart(0)
    assert not (tmp_path / "there" / "cluster").exists()
    for number in range(3):
        assert (tmp_path / "here" / "cluster" / f"broker-{number}" / "t-0").is_dir()
