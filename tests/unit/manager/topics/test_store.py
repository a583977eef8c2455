"""The file of topics: its contents after each change, and damaged files."""

import json
import logging

import pytest

from logstore.config.dynamic import Layer
from logstore.errors import CorruptCheckpointError, InvalidTopicError, TopicAlreadyExistsError
from logstore.manager.topics import Topic
from logstore.manager.topics.store import TopicStore
from logstore.runtime import MemoryFileSystem, VirtualClock

PATH = "/data/logstore-topics.json"
ID = "AAAAAAAAAAAAAAAAAAAAAQ"


class Disk(MemoryFileSystem):
    """A file system whose next writes fail."""

    fails = False

    def rename(self, *arguments, **options):
        if self.fails:
            raise OSError("full")
        return super().rename(*arguments, **options)


@pytest.fixture
def fs():
    fs = Disk(VirtualClock())
    fs.make_dirs("/data")
    return fs


def write(fs, data):
    file = fs.open(PATH, create=True)
    file.append([data])
    file.close()


def document(fs):
    file = fs.open(PATH)
    data = file.read(0, file.size())
    file.close()
    return json.loads(bytes(data))


def test_each_change_is_stored(fs):
    store = TopicStore(fs, "/data")
    assert (store.all(), store.changes, "t" in store, store.get("t")) == ([], 0, False, None)
    u = store.create("u", (2, 0), {"retention.ms": "1"}, ID)
    t = store.create("t", (0,), {})
    assert (store.changes, u) == (2, Topic("u", (0, 2), {"retention.ms": "1"}, id=ID))
    assert store.all() == [t, u] == TopicStore(fs, "/data").all()
    assert document(fs) == {
        "version": 2,
        "topics": {
            "t": {"partitions": [0], "configs": {}},
            "u": {"partitions": [0, 2], "configs": {"retention.ms": "1"}, "id": ID},
        },
    }
    store.set_partitions("t", (3, 1))
    store.set_configs("u", {"cleanup.policy": "compact"})
    store.mark_deleting("u")
    store.remove("t")
    assert (store.changes, "t" in store) == (6, False)
    after = TopicStore(fs, "/data")
    assert after.all() == store.all()
    assert after.all() == [Topic("u", (0, 2), {"cleanup.policy": "compact"}, deleting=True, id=ID)]
    assert document(fs)["topics"]["u"]["deleting"] is True
    with pytest.raises(TopicAlreadyExistsError, match=r"^topic 'u' already exists$"):
        store.create("u", (0,), {})
    with pytest.raises(InvalidTopicError):
        store.put([Topic("v", (0,)), Topic("a/b", (0,))])
    assert (store.changes, len(store.all())) == (6, 1)


def test_the_version_is_the_oldest_that_has_the_contents(fs):
    store = TopicStore(fs, "/data")
    store.put_settings({Layer.CLUSTER: {"a": "1"}, Layer.BROKER: {}})
    assert document(fs) == {"version": 3, "settings": {"cluster": {"a": "1"}}, "topics": {}}
    assert (store.settings(Layer.CLUSTER), store.settings(Layer.BROKER)) == ({"a": "1"}, {})
    own = {"consumer.session.timeout.ms": "50000"}
    store.put_group("g", own)
    assert document(fs) == {
        "version": 4,
        "settings": {"cluster": {"a": "1"}},
        "groups": {"g": own},
        "topics": {},
    }
    again = TopicStore(fs, "/data")
    assert (again.groups, again.settings(Layer.CLUSTER)) == ({"g": own}, {"a": "1"})
    store.put_group("g", {})
    store.put_settings({})
    assert document(fs) == {"version": 2, "topics": {}}
    assert store.changes == 0


def test_a_failed_change_leaves_everything_as_it_was(fs):
    store = TopicStore(fs, "/data")
    store.create("t", (0,), {})
    store.put_settings({Layer.BROKER: {"a": "1"}})
    own = {"consumer.session.timeout.ms": "50000"}
    store.put_group("g", own)
    fs.fails = True
    for change in (
        lambda: store.create("u", (0,), {}),
        lambda: store.put_settings({}),
        lambda: store.put_group("h", own),
        lambda: store.put_group("g", {}),
    ):
        with pytest.raises(OSError, match="full"):
            change()
    assert store.all() == [Topic("t", (0,))]
    assert (store.settings(Layer.BROKER), store.groups) == ({"a": "1"}, {"g": own})
    assert store.changes == 3, "the topics may have been read while the change was stored"


T = {"partitions": [0], "configs": {}}


@pytest.mark.parametrize(
    "data",
    (
        b"",
        b"{",
        b"[" * 100_000,
        b"[]",
        b"\xff",
        {"topics": {}},
        {"version": 2},
        {"version": 2, "topics": []},
        {"version": 2, "topics": {"t": []}},
        {"version": 2, "topics": {"t": {"partitions": [0]}}},
        {"version": 2, "topics": {"t": {"configs": {}}}},
        {"version": 2, "topics": {"t": T | {"partitions": {}}}},
        {"version": 2, "topics": {"t": T | {"partitions": [-1]}}},
        {"version": 2, "topics": {"t": T | {"partitions": [1 << 31]}}},
        {"version": 2, "topics": {"t": T | {"partitions": [True]}}},
        {"version": 2, "topics": {"t": T | {"partitions": [0, 1, 0]}}},
        {"version": 2, "topics": {"t": T | {"id": "A" * 22}}},
        {"version": 2, "topics": {"t": T | {"id": "x"}}},
        {"version": 2, "topics": {"a/b": T}},
        {"version": 3, "settings": {"other": {}}, "topics": {}},
        {"version": 4, "groups": {"g": {"no": "1"}}, "topics": {}},
    ),
)
def test_another_file_is_refused_or_taken_as_empty(fs, data, caplog):
    write(fs, data if isinstance(data, bytes) else json.dumps(data).encode())
    with pytest.raises(CorruptCheckpointError, match="not a topics file") as caught:
        TopicStore(fs, "/data")
    assert (caught.value.path, caught.value.check) == (PATH, "json")
    with caplog.at_level(logging.WARNING):
        assert TopicStore(fs, "/data", is_tolerant=True).all() == []
    assert caplog.messages == [f"{caught.value}; it is treated as empty"]


@pytest.mark.parametrize(("version", "is_known"), ((0, False), (1, True), (4, True), (5, False)))
def test_versions(fs, version, is_known):
    largest = {"partitions": [2**31 - 1, 0], "configs": {}, "deleting": 1}
    write(fs, json.dumps({"version": version, "topics": {"t": largest}}).encode())
    if is_known:
        assert TopicStore(fs, "/data").all() == [Topic("t", (0, 2**31 - 1))]
        return
    with pytest.raises(CorruptCheckpointError) as caught:
        TopicStore(fs, "/data")
    assert (caught.value.check, caught.value.expected, caught.value.found) == (
        "version",
        4,
        version,
    )
