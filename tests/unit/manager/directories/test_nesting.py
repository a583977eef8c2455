"""A directory of data directories, as a cluster's is, is not opened as a data directory."""

from __future__ import annotations

import pytest

from logstore import Broker, Cluster, TopicPartition, VirtualClock
from logstore.analysis.locations import locate
from logstore.errors import InvalidConfigurationError
from logstore.inspect.check import Checker
from logstore.runtime import DiskFileSystem, MemoryFileSystem
from tests.support.world.special_files import files_below

CLUSTER = r"is the directory of a cluster: .* \(--data-dir .*/broker-0\).*serve --brokers {}"


def make_cluster(path, brokers, *, topics=True):
    with Cluster(brokers, clock=VirtualClock(), data_dir=path) as cluster:
        if topics:
            cluster.create_topic("users", replication_factor=brokers)
            cluster.append("users", value=b"1")


def make_broker(path, topic, **arguments):
    with Broker(path, clock=VirtualClock(), **arguments) as broker:
        broker.create_topic(topic)
        broker.append(topic, value=b"1")


def values(path, topic, **arguments):
    with Broker(path, clock=VirtualClock(), **arguments) as broker:
        return [record.value for record in broker.read(topic)]


@pytest.mark.parametrize("topics", (True, False), ids=("with topics", "without"))
@pytest.mark.parametrize("brokers", (1, 3))
@pytest.mark.parametrize("read_only", (True, False))
def test_a_broker_refuses_the_directory_of_a_cluster(tmp_path, brokers, read_only, topics):
    make_cluster(tmp_path, brokers, topics=topics)
    before = files_below(tmp_path)
    (tmp_path / "one").mkdir()
    with pytest.raises(InvalidConfigurationError, match=CLUSTER.format(brokers)):
        Broker(tmp_path, read_only=read_only)
    with pytest.raises(InvalidConfigurationError, match="is the directory of a cluster"):
        Broker([tmp_path / "one", tmp_path], read_only=read_only)
    assert {n: d for n, d in files_below(tmp_path).items() if n[:3] != "one"} == before


@pytest.mark.parametrize("brokers", (1, 3))
def test_the_directories_that_the_message_names_can_be_opened(tmp_path, brokers):
    make_cluster(tmp_path, brokers)
    assert values(tmp_path / "broker-0", "users") == [b"1"]
    with Cluster(brokers, clock=VirtualClock(), data_dir=tmp_path) as cluster:
        assert cluster.leader("users", 0) == 0


def test_a_cluster_directory_that_was_written_by_a_single_broker_is_still_a_clusters(tmp_path):
    make_cluster(tmp_path, 1)
    for name in (".lock", "recovery-point-offset-checkpoint", "logstore-topics.json"):
        (tmp_path / name).touch()
    (tmp_path / "broker-0" / "00000000000000000000.log").touch()
    with pytest.raises(InvalidConfigurationError, match=CLUSTER.format(1)):
        Broker(tmp_path)
    with Cluster(1, clock=VirtualClock(), data_dir=tmp_path) as cluster:
        assert [record.value for record in cluster.brokers[0].read("users")] == [b"1"]


@pytest.mark.parametrize("read_only", (True, False))
def test_a_topic_named_broker_is_a_topic(tmp_path, read_only):
    make_broker(tmp_path, "broker")
    assert values(tmp_path, "broker", read_only=read_only) == [b"1"]
    for name in files_below(tmp_path):
        if "/" not in name:
            (tmp_path / name).unlink()
    assert values(tmp_path, "broker", read_only=read_only) == [b"1"], "folders that were copied"


def test_a_cluster_may_have_a_topic_named_broker(tmp_path):
    with Cluster(1, clock=VirtualClock(), data_dir=tmp_path) as cluster:
        cluster.create_topic("broker", replication_factor=1)
        cluster.append("broker", value=b"1")
    assert values(tmp_path / "broker-0", "broker") == [b"1"]
    with Cluster(1, clock=VirtualClock(), data_dir=tmp_path) as cluster:
        assert cluster.leader("broker", 0) == 0


@pytest.mark.parametrize("name", ("data-0", "broker-0"))
@pytest.mark.parametrize("read_only", (True, False))
@pytest.mark.parametrize("has_stray_segment", (False, True))
def test_a_broker_refuses_a_directory_of_mounted_data_directories(
    tmp_path, has_stray_segment, read_only, name
):
    make_broker(tmp_path / name, "users")
    if has_stray_segment:
        (tmp_path / name / "00000000000000000000.log").touch()
    with pytest.raises(InvalidConfigurationError, match=rf"\({name}\).*--data-dir .*/{name}"):
        Broker(tmp_path, read_only=read_only)
    assert values(tmp_path / name, "users") == [b"1"]


def test_folders_named_like_partitions_of_a_topic_broker_0_are_not_brokers(tmp_path):
    make_broker(tmp_path / "broker-0-0", "users")
    (tmp_path / "controller").mkdir()
    with pytest.raises(
        InvalidConfigurationError, match=r"contains data directories \(broker-0-0\)"
    ):
        Broker(tmp_path)


def test_files_in_memory_are_recognised_too():
    fs = MemoryFileSystem(VirtualClock())
    make_broker("/disks/data-0", "users", fs=fs)
    with pytest.raises(InvalidConfigurationError, match="contains data directories"):
        Broker("/disks", fs=fs)


def test_a_partition_folder_once_opened_as_a_data_directory_stays_a_partition(tmp_path):
    make_broker(tmp_path, "users")
    with Broker(tmp_path / "users-0"):
        pass
    assert (tmp_path / "users-0" / "recovery-point-offset-checkpoint").exists()
    assert values(tmp_path, "users") == [b"1"]


# -- the reverse -----------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ("users", "broker"))
@pytest.mark.parametrize("is_copy", (True, False))
def test_a_cluster_refuses_the_directory_of_one_broker(tmp_path, topic, is_copy):
    make_broker(tmp_path, topic)
    if is_copy:  # of the partitions alone
        for name in files_below(tmp_path):
            if "/" not in name:
                (tmp_path / name).unlink()
    before = files_below(tmp_path)
    with pytest.raises(InvalidConfigurationError, match="is the data directory of one broker"):
        Cluster(3, clock=VirtualClock(), data_dir=tmp_path)
    assert files_below(tmp_path) == before


def test_a_cluster_refuses_the_directory_of_one_broker_that_fell_at_once(tmp_path):
    (tmp_path / ".lock").touch()
    with pytest.raises(InvalidConfigurationError, match=r"since it has \.lock"):
        Cluster(1, clock=VirtualClock(), data_dir=tmp_path)


def test_a_cluster_that_fell_while_it_was_made_is_made_again(tmp_path):
    (tmp_path / "controller").mkdir()
    (tmp_path / "broker-0").mkdir()
    make_cluster(tmp_path, 1)


# -- paths -----------------------------------------------------------------------------------


def test_a_path_of_a_cluster_is_refused_and_of_one_of_its_brokers_is_not(tmp_path):
    make_cluster(tmp_path, 3, topics=False)
    fs = DiskFileSystem()
    with pytest.raises(InvalidConfigurationError, match=CLUSTER.format(3)):
        locate(fs, str(tmp_path))
    place = locate(fs, str(tmp_path / "broker-0"))
    assert place == ((str(tmp_path / "broker-0"),), None)


def test_a_path_of_mounted_data_directories_is_all_of_them(tmp_path):
    for number in range(2):
        make_broker(tmp_path / f"data-{number}", f"users{number}")
    place = locate(DiskFileSystem(), str(tmp_path))
    assert place.directories == tuple(str(tmp_path / f"data-{number}") for number in range(2))


def test_check_refuses_a_cluster_and_verifies_one_of_its_brokers(tmp_path):
    make_cluster(tmp_path, 1, topics=False)
    checker = Checker(DiskFileSystem())
    with pytest.raises(InvalidConfigurationError, match=CLUSTER.format(1)):
        checker.path(str(tmp_path))
    with pytest.raises(InvalidConfigurationError, match=CLUSTER.format(1)):
        checker.data_dirs([str(tmp_path)])
    assert not list(checker.path(str(tmp_path / "broker-0")))


def test_partitions_of_a_topic_named_broker_are_seen_by_check(tmp_path):
    make_broker(tmp_path, "broker")
    checker = Checker(DiskFileSystem())
    assert not list(checker.path(str(tmp_path)))
    assert not list(checker.path(str(tmp_path / str(TopicPartition("broker", 0)))))
    assert checker.counts.segments == 2
