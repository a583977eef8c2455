"""The identity of a broker: what its settings and its directories say of number and cluster."""

import pytest

from logstore import Broker
from logstore.config.broker_config import BrokerConfig
from logstore.errors import CorruptCheckpointError, InvalidConfigurationError
from logstore.manager.directories.identity import BrokerIdentity, read_identity
from logstore.runtime import MemoryFileSystem, VirtualClock
from logstore.runtime.fs import open_anew
from tests.support.world.messages import exactly

NODE_1 = "version=1\nnode.id=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\ndirectory.id=x\n"


def identity(*files, **settings):
    """Return the identity of a broker with directories that have these `meta.properties`."""
    fs = MemoryFileSystem(VirtualClock())
    paths = []
    for number, text in enumerate(files):
        paths.append(f"/{number}")
        fs.make_dirs(paths[-1])
        if text is not None:
            file = open_anew(fs, f"{paths[-1]}/meta.properties")
            file.append([text.encode()])
            file.close()
    properties = {key.replace("_", "."): value for key, value in settings.items()}
    return read_identity(fs, paths, BrokerConfig.from_properties(properties))


def test_a_directory_without_a_broker_id_belongs_to_broker_0():
    assert identity(None, None) == BrokerIdentity(0, "logstore")


def test_a_directory_of_kafka_keeps_its_node_and_its_cluster():
    assert identity(NODE_1) == BrokerIdentity(1, "MkU3OEVBNTcwNTJENDM2Qg")
    assert identity(None, NODE_1).node_id == 1


def test_a_directory_of_zookeeper_s_time_has_a_broker_id():
    assert identity("version=0\nbroker.id=7\ncluster.id=c\n") == BrokerIdentity(7, "c")
    assert identity("version=0\n") == BrokerIdentity(0, "logstore")


@pytest.mark.parametrize("settings", ({"node_id": 3}, {"broker_id": 3}))
def test_settings_name_a_broker_whose_directories_do_not(settings):
    assert identity(None, **settings).node_id == 3


@pytest.mark.parametrize(
    ("files", "settings", "message"),
    (
        ([NODE_1], {"node_id": 2}, r"/0/meta.properties belongs to node 1, but node.id is 2"),
        ([NODE_1], {"broker_id": 0}, r"/0/meta.properties belongs to node 1, but broker.id is 0"),
        (
            [NODE_1, NODE_1.replace("node.id=1", "node.id=2")],
            {},
            r"/1/meta.properties belongs to node 2, but /0 belongs to node 1",
        ),
        (
            [NODE_1, NODE_1.replace("Mk", "mK")],
            {},
            r"/1/meta.properties belongs to cluster mKU3\S+, but /0 belongs to cluster MkU3",
        ),
        ([None], {"node_id": 1, "broker_id": 2}, "node.id is 1, and broker.id is 2"),
    ),
)
def test_contradictions_are_refused_with_both_sides(files, settings, message):
    with pytest.raises(InvalidConfigurationError, match=message):
        identity(*files, **settings)


@pytest.mark.parametrize(
    ("text", "check", "message"),
    (
        ("version=2\nnode.id=1\n", "version", "/0/meta.properties: unknown version"),
        ("node.id=1\n", "version", "/0/meta.properties: unknown version"),
        ("version=1\ncluster.id=c\n", "node.id", "/0/meta.properties: node.id is missing"),
        (
            "version=1\nnode.id=one\ncluster.id=c\n",
            "node.id",
            "/0/meta.properties: node.id must be a number",
        ),
        (
            "version=1\nnode.id=-4\ncluster.id=c\n",
            "node.id",
            "/0/meta.properties: node.id must be a number",
        ),
        ("version=1\nnode.id=4\n", "cluster.id", "/0/meta.properties: cluster.id is missing"),
        (
            "version=1\\u00zz\n",
            "properties",
            (
                "/0/meta.properties: /0/meta.properties is not a properties file: "
                "Invalid \\u escape sequence: \\u00zz"
            ),
        ),
    ),
)
def test_a_damaged_file_is_named(text, check, message):
    with pytest.raises(CorruptCheckpointError, match=exactly(message)) as caught:
        identity(text)
    assert caught.value.check == check


def test_a_broker_is_known_by_it_in_the_process_too(tmp_path):
    (tmp_path / "meta.properties").write_text(NODE_1)
    with Broker(tmp_path) as broker:
        broker.create_topic("t")
        told = broker.admin().describe_cluster()
        assert (told["cluster_id"], told["controller_id"]) == ("MkU3OEVBNTcwNTJENDM2Qg", 1)
        assert [each["broker_id"] for each in told["brokers"]] == [1]
        [topic] = broker.admin().describe_topics(["t"])
        assert topic["partitions"][0]["leader_id"] == 1
        assert broker.admin().describe_log_dirs()[0]["broker"] == 1
    assert (tmp_path / "meta.properties").read_text() == NODE_1


def test_a_broker_of_another_number_does_not_listen(tmp_path):
    (tmp_path / "meta.properties").write_text(NODE_1)
    with (
        Broker(tmp_path, broker_config={"node.id": 2}) as broker,
        pytest.raises(InvalidConfigurationError, match=r"belongs to node 1, but node\.id is 2"),
    ):
        broker.listen()
