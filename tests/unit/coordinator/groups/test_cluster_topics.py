"""The topics of the cluster as consumer groups see them: versions, ids, hashes and patterns."""

import pytest

from logstore import Broker, VirtualClock
from logstore.coordinator.groups.cluster_topics import ClusterTopics, TopicInfo, TopicsFollower
from logstore.coordinator.groups.topic_patterns import resolve_patterns
from logstore.coordinator.host import CoordinatorHost
from logstore.manager.topics.store import Topic
from logstore.types import encode_topic_id

IDS = [encode_topic_id(bytes([number] * 16)) for number in range(1, 6)]
A, B, C = (TopicInfo(name, IDS[number], range(number + 1)) for number, name in enumerate("abc"))


@pytest.mark.parametrize(
    ("after", "versions"),
    (
        ([B, A], None),
        ([A, B, C], (8, 8)),
        ([A], (8, 3)),
        ([A, B._replace(partitions=range(3))], (8, 3)),
        ([A, B._replace(racks=[["r"], ["r"]])], (8, 3)),
        ([A, B._replace(topic_id=IDS[3])], (8, 8)),
        ([A, C], (8, 8)),
    ),
)
def test_a_change_has_the_next_version_and_is_a_creation_if_there_is_a_new_id(after, versions):
    before = ClusterTopics([A, B], 7, 3)
    changed = before.changed_to(after)
    if versions is None:
        assert changed is before
    else:
        assert (changed.version, changed.created_version) == versions
        assert (before.version, before.created_version) == (7, 3)
    assert list(changed.names()) == [each.name for each in (after if versions else (A, B))]


def test_topics_by_name_and_by_id():
    topics = ClusterTopics([A, B])
    assert [topics.named(name) for name in "abc"] == [A, B, None]
    assert [topics.of_id(each) for each in IDS[:3]] == [A, B, None]
    assert (topics.version, topics.created_version) == (0, 0)
    assert (topics == ClusterTopics([B, A], 5), topics == ClusterTopics([A]), topics == [A, B]) == (
        True,
        False,
        False,
    )


def test_ids_have_the_order_of_a_hash_set_of_the_names():
    """Java's hash of a name of one character is the character, of which 16 buckets are used."""
    names = ["z", "p", "a", "c", "b"]
    topics = ClusterTopics(TopicInfo(name, IDS[names.index(name)], range(1)) for name in names)
    assert list(topics.ids({"c", "z", "none", "p", "a", "b"})) == [
        IDS[names.index(name)] for name in "pabcz"
    ]
    assert list(topics.ids(())) == []


def test_the_hash_of_topics_depends_on_all_of_those_that_exist():
    topics = ClusterTopics([A, B])
    assert (topics.hash_of(()), topics.hash_of(["none"])) == (0, 0)
    both = topics.hash_of(["b", "none", "a"])
    assert both == topics.hash_of(["a", "b"]) == ClusterTopics([B, A, C]).hash_of("ab")
    others = [
        B._replace(partitions=range(1, 3)),
        B._replace(topic_id=IDS[0][:-2] + IDS[1][-2:]),
        B._replace(racks=[["r"], []]),
        B._replace(racks=[[], ["r"]]),
        B._replace(racks=[["r", "s"], []]),
        B._replace(racks=[["rs"], []]),
    ]
    hashes = [ClusterTopics([A, each]).hash_of("ab") for each in others]
    hashes += [both, topics.hash_of("a"), topics.hash_of("b")]
    assert len(set(hashes)) == 9
    assert all(-(2**63) <= each < 2**63 for each in hashes)


def test_the_current_topics_are_read_again_after_a_change():
    with Broker(clock=VirtualClock(), broker_config={"broker.rack": "r"}) as broker:
        current = TopicsFollower(CoordinatorHost(broker.manager))
        assert list(current.current.names()) == []
        broker.create_topic("t", 2)
        topics = current.current
        (topic,) = broker.topics()
        assert topics.named("t") == TopicInfo("t", topic.id, (0, 1), (("r",), ("r",)))
        assert (topics.version, topics.created_version) == (1, 1)
        assert current.current is topics
        broker.alter_configs("t", {"retention.ms": "7"})
        assert current.current is topics
        broker.create_partitions("t", 3)
        broker.delete_topic("t")
        assert (current.current.version, current.current.created_version) == (2, 1)
        assert current.current.named("t") is None


def test_topics_are_only_read_after_changes_and_need_an_id_and_partitions():
    class Host:
        topic_changes = 5
        reads = 0

        def topics(self):
            self.reads += 1
            return [
                Topic("a", (), {}, id=IDS[0]),
                Topic("b", (0, 2), {}, id=IDS[1]),
                Topic("c", (0,), {}, id=None),
            ]

        def racks_of(self, name, numbers):
            return [[name, str(number)] for number in numbers]

    host = Host()
    current = TopicsFollower(host)
    for changes in (5, 5, 6):
        host.topic_changes = changes
        topics = current.current
        assert list(topics.names()) == ["b"]
    assert topics.named("b") == TopicInfo("b", IDS[1], (0, 2), [["b", "0"], ["b", "2"]])
    assert host.reads == 2


# -- patterns --------------------------------------------------------------------------------------


def test_patterns_match_whole_names_of_visible_topics():
    """A pattern that cannot be compiled was stored by another version, and matches none."""
    patterns = ("t.*", "u", "[", "none", "t1|u")
    names = ("u", "t1", "t2", "tu", "uu")
    assert resolve_patterns(patterns, names) == {
        "t.*": {"t1", "t2", "tu"},
        "u": {"u"},
        "[": set(),
        "none": set(),
        "t1|u": {"t1", "u"},
    }
    asked = []

    def is_visible(name):
        asked.append(name)
        return name != "t1"

    assert resolve_patterns(patterns, names, is_visible) == {
        "t.*": {"t2", "tu"},
        "u": {"u"},
        "[": set(),
        "none": set(),
        "t1|u": {"u"},
    }
    assert asked == ["u", "t1", "t2", "tu"], "only topics that match"
