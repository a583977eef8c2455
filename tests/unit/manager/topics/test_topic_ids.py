"""Topic ids: made, stored, written into folders, taken over, and compared."""

import json
import logging
import random
import uuid

import pytest

from logstore import Broker, InconsistentTopicIdError, VirtualClock
from logstore.errors import KafkaStorageError, TopicAlreadyExistsError
from logstore.inspect.check import Checker
from logstore.manager.topics.ids import random_topic_id
from logstore.runtime import MemoryFileSystem, ReadOnlyFileSystem
from logstore.storage.checkpoint.atomic import read_bytes
from logstore.storage.checkpoint.topic_id import read_partition_metadata
from logstore.types import TopicPartition, decode_topic_id
from tests.support.world.brokers import write_file
from tests.support.world.messages import exactly

TOPICS = "/data/logstore-topics.json"
ID, OTHER = "AAAAAAAAAAEAAAAAAAAAAg", "AAAAAAAAAAEAAAAAAAAAAw"


@pytest.fixture
def fs():
    return MemoryFileSystem(VirtualClock())


def opened(fs, *dirs, **settings):
    return Broker(list(dirs) or "/data", fs=fs, clock=VirtualClock(), seed=5, **settings)


def folder_id(fs, partition, data_dir="/data"):
    return read_partition_metadata(fs, f"{data_dir}/{partition}")


def put_id(fs, partition, topic_id, data_dir="/data"):
    fs.make_dirs(f"{data_dir}/{partition}")
    text = f"version: 0\ntopic_id: {topic_id}"
    write_file(fs, f"{data_dir}/{partition}/partition.metadata", text.encode())


def stored(fs):
    return json.loads(read_bytes(fs, TOPICS))


def topic_findings(fs):
    found = Checker(ReadOnlyFileSystem(fs)).data_dirs(["/data"])
    return [(each.path, each.severity) for each in found if each.check == "topic_id"]


class _Bits:
    """Randomness that gives these numbers."""

    def __init__(self, *numbers):
        self.numbers = list(numbers)

    def getrandbits(self, count):
        assert count == 128
        return self.numbers.pop(0)


def test_ids_are_random_uuids_that_no_tool_takes_for_an_option():
    """Kafka draws again too where the text would begin with a dash."""
    rng = random.Random(1)
    texts = [random_topic_id(rng) for _ in range(1000)]
    assert len(set(texts)) == 1000
    assert {uuid.UUID(bytes=decode_topic_id(text)).version for text in texts} == {4}
    assert not [text for text in texts if text.startswith("-")]
    dashed, sound = 0xFB << 120, 0x01 << 120
    assert random_topic_id(_Bits(dashed, dashed, sound)).startswith("AQ")


def test_s126_created_topic_has_an_id_in_the_store_and_in_each_folder(fs):
    with opened(fs) as broker:
        topic = broker.create_topic("t", partitions=2)
        assert [folder_id(fs, f"t-{n}") for n in range(2)] == [decode_topic_id(topic.id)] * 2
        broker.manager.topics.create_partitions("t", 3)
        assert folder_id(fs, "t-2") == decode_topic_id(topic.id)
        assert broker.topic("t").id == topic.id
    assert stored(fs) == {
        "version": 2,
        "topics": {"t": {"partitions": [0, 1, 2], "configs": {}, "id": topic.id}},
    }
    with opened(fs) as broker:
        assert broker.topic("t").id == topic.id


def test_the_error_of_a_log_is_not_hidden_by_that_of_topic_ids(fs, monkeypatch):
    with opened(fs) as broker:
        broker.create_topic("t", partitions=2)
    for number in range(2):
        fs.remove(f"/data/t-{number}/partition.metadata")

    with opened(fs) as broker:
        registry = broker.manager.registry
        open_log = registry._open

        def open_first(tp):
            if tp.partition == 1:
                raise KafkaStorageError("the log cannot be opened")
            return open_log(tp)

        def fail(*_):
            raise KafkaStorageError("the topic id cannot be stored")

        with monkeypatch.context() as patch:
            patch.setattr(registry, "_open", open_first)
            patch.setattr(registry, "_store_ids", fail)
            with pytest.raises(KafkaStorageError, match="the log cannot be opened"):
                registry._open_all(TopicPartition("t", number) for number in range(2))


def test_internal_topics_have_an_id_too(fs):
    with opened(fs, broker_config={"transaction.state.log.num.partitions": "1"}) as broker:
        broker.create_topic("t")
        producer = broker.producer(transactional_id="x")
        producer.init_transactions()
        topic = broker.topic("__transaction_state")
        assert folder_id(fs, "__transaction_state-0") == decode_topic_id(topic.id)


def test_topic_that_is_created_again_gets_a_new_id(fs):
    with opened(fs) as broker:
        first = broker.create_topic("t").id
        broker.delete_topic("t")
        second = broker.create_topic("t").id
        assert second != first
        assert folder_id(fs, "t-0") == decode_topic_id(second)


def test_equal_seeds_make_equal_ids():
    ids = []
    for _ in range(2):
        with opened(MemoryFileSystem(VirtualClock())) as broker:
            ids.append(broker.create_topic("t").id)
    assert ids[0] == ids[1]


def test_folder_that_a_crash_left_without_the_file_gets_it(fs):
    with opened(fs) as broker:
        topic = broker.create_topic("t")
    fs.remove("/data/t-0/partition.metadata")
    with opened(fs, read_only=True) as broker:
        broker.log("t")
    assert folder_id(fs, "t-0") is None, "reading writes nothing"
    with opened(fs) as broker:
        broker.log("t")
    assert folder_id(fs, "t-0") == decode_topic_id(topic.id)


# -- folders that came from elsewhere --------------------------------------------------------------


def test_adopted_topic_takes_the_id_of_its_folders(fs):
    """The folder without one is left as it was copied, until the topic is stored."""
    fs.make_dirs("/data/t-0")
    put_id(fs, "t-1", ID)
    with opened(fs) as broker:
        assert broker.topic("t").id == ID
        broker.append("t", value=b"x", partition=0)
        assert folder_id(fs, "t-0") is None
        assert broker.create_topic("t", partitions=3).id == ID
        broker.append("t", value=b"x", partition=2)
        assert folder_id(fs, "t-2") == decode_topic_id(ID)
    with opened(fs) as broker:
        broker.log("t", 0)
        assert folder_id(fs, "t-0") == decode_topic_id(ID)


def test_adopted_topic_without_an_id_gets_none_until_it_is_stored(fs):
    fs.make_dirs("/data/t-0")
    with opened(fs) as broker:
        broker.append("t", value=b"x")
        assert broker.topic("t").id is None
        assert folder_id(fs, "t-0") is None
        broker.alter_configs("t", {"segment.ms": "5"})
        assert broker.topic("t").id is not None


@pytest.mark.parametrize("alter", (False, True))
def test_adopted_topic_that_is_stored_keeps_the_id_of_its_folders(fs, alter):
    put_id(fs, "t-0", ID)
    with opened(fs) as broker:
        if alter:
            broker.alter_configs("t", {"segment.ms": "5"})
        else:
            broker.create_topic("t")
    assert stored(fs)["topics"]["t"]["id"] == ID


def test_folder_of_another_topic_of_that_name_is_refused(fs):
    """For writing; a reader opens it with a warning."""
    with opened(fs) as broker:
        topic = broker.create_topic("t", partitions=2)
        broker.append("t", value=b"x", partition=1)
    put_id(fs, "t-1", OTHER)
    assert topic_findings(fs) == [("/data/t-1/partition.metadata", "error")]
    with opened(fs) as broker:
        broker.append("t", value=b"x", partition=0)
        with pytest.raises(InconsistentTopicIdError, match=f"id is {topic.id}.* has {OTHER}") as e:
            broker.append("t", value=b"x", partition=1)
        assert e.value.kafka_error == "INCONSISTENT_TOPIC_ID"
    with opened(fs, read_only=True) as broker:
        assert [each.value for each in broker.read("t", 1)] == [b"x"]
    assert folder_id(fs, "t-1") == decode_topic_id(OTHER)


def test_adopted_folders_that_disagree_are_refused(fs):
    put_id(fs, "t-0", ID)
    put_id(fs, "t-1", OTHER)
    with opened(fs) as broker:
        broker.append("t", value=b"x", partition=0)
        with pytest.raises(
            InconsistentTopicIdError,
            match=exactly(
                "t-1: the topic's id is AAAAAAAAAAEAAAAAAAAAAg, but "
                "/data/t-1/partition.metadata has AAAAAAAAAAEAAAAAAAAAAw: the folder "
                "belongs to another topic of this name"
            ),
        ):
            broker.append("t", value=b"x", partition=1)
        with pytest.raises(
            InconsistentTopicIdError,
            match=exactly(
                "t-1: the topic's id is AAAAAAAAAAEAAAAAAAAAAg, but "
                "/data/t-1/partition.metadata has AAAAAAAAAAEAAAAAAAAAAw: the folder "
                "belongs to another topic of this name"
            ),
        ):
            broker.create_topic("t", partitions=2)
    assert not fs.exists(TOPICS)


@pytest.mark.parametrize("data", (b"", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"))
def test_damaged_file_is_replaced_by_what_the_topic_knows(fs, data, caplog):
    with opened(fs) as broker:
        topic = broker.create_topic("t")
    write_file(fs, "/data/t-0/partition.metadata", data)
    with caplog.at_level(logging.WARNING), opened(fs) as broker:
        broker.append("t", value=b"x")
    assert folder_id(fs, "t-0") == decode_topic_id(topic.id)
    assert "partition.metadata" in caplog.text


def test_damaged_file_of_an_adopted_topic_is_left_alone(fs):
    fs.make_dirs("/data/t-0")
    write_file(fs, "/data/t-0/partition.metadata", b"x")
    with opened(fs) as broker:
        broker.append("t", value=b"x")
        assert broker.topic("t").id is None
    assert read_bytes(fs, "/data/t-0/partition.metadata") == b"x"


# -- files of an older version ---------------------------------------------------------------------


def write_version_1(fs):
    topics = {"t": {"partitions": [0, 1], "configs": {}}, "u": {"partitions": [0], "configs": {}}}
    write_file(fs, TOPICS, json.dumps({"version": 1, "topics": topics}).encode())


def test_topics_of_version_1_get_ids_from_their_folders_or_new_ones(fs):
    put_id(fs, "t-1", ID)
    fs.make_dirs("/data/u-0")
    write_version_1(fs)
    with opened(fs, read_only=True) as broker:
        assert [topic.id for topic in broker.topics()] == [None, None]
    assert stored(fs)["version"] == 1
    with opened(fs) as broker:
        ids = [topic.id for topic in broker.topics()]
        assert ids[0] == ID
        assert len(ids[1]) == 22
        broker.log("t", 0)
    assert stored(fs)["version"] == 2
    assert folder_id(fs, "t-0") == decode_topic_id(ID)
    with opened(fs) as broker:
        assert [topic.id for topic in broker.topics()] == ids


@pytest.mark.parametrize(
    ("topic_id", "message"),
    (
        (
            "x",
            (
                "/data/logstore-topics.json: not a topics file: 'x' is not a topic id: "
                "expected 22 characters of URL-safe base64"
            ),
        ),
        (
            5,
            (
                "/data/logstore-topics.json: not a topics file: expected string or "
                "bytes-like object, got 'int'"
            ),
        ),
        (
            "AAAAAAAAAAAAAAAAAAAAAA",
            ("/data/logstore-topics.json: not a topics file: the id of 't' is zero"),
        ),
    ),
)
def test_stored_id_that_is_none_is_refused(fs, topic_id, message):
    fs.make_dirs("/data")
    topics = {"t": {"partitions": [0], "configs": {}, "id": topic_id}}
    write_file(fs, TOPICS, json.dumps({"version": 2, "topics": topics}).encode())
    with pytest.raises(Exception, match=exactly(message)):
        opened(fs)


# -- whatever makes folders ------------------------------------------------------------------------


def test_moved_partition_and_copies_keep_the_id(fs, tmp_path):
    with opened(fs, "/data", "/more") as broker:
        topic = broker.create_topic("t")
        home = broker.manager.registry.directory_of(TopicPartition("t", 0)).path
        target = "/more" if home == "/data" else "/data"
        broker.manager.registry.move_partition(TopicPartition("t", 0), target)
        assert folder_id(fs, "t-0", target) == decode_topic_id(topic.id)
        with pytest.raises(TopicAlreadyExistsError, match=exactly("topic 't' already exists")):
            broker.create_topic("t")
