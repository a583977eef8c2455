"""Assignors: Kafka's assignments, and the guarantees of the sticky assignors."""

import random

import pytest

from logstore.coordinator.groups.assignors import (
    ASSIGNORS,
    _read_user_data,
    assign_cooperatively,
    assign_range,
    assign_round_robin,
    assign_sticky,
    owned_before,
    sticky_user_data,
)
from logstore.coordinator.groups.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from logstore.errors import InvalidRecordError
from logstore.types import TopicPartition


def tps(text):
    """Parse partitions such as `t0 t1 u0`."""
    return [TopicPartition(each[0], int(each[1:])) for each in text.split()]


def wanting(*topics, owned="", generation=1):
    return Subscription(topics, None, tuple(tps(owned)), generation)


def shares(found):
    return {
        name: " ".join(f"{tp.topic}{tp.partition}" for tp in share) for name, share in found.items()
    }


# -- range and round robin: the examples of Kafka's documentation -------------------------


def test_range_assigns_runs_of_each_topic():
    members = {"c1": wanting("t", "u"), "c0": wanting("t", "u")}
    assert shares(assign_range({"t": 3, "u": 3}, members)) == {
        "c0": "t0 t1 u0 u1",
        "c1": "t2 u2",
    }


def test_round_robin_assigns_across_all_topics():
    members = {"c1": wanting("t", "u"), "c0": wanting("t", "u")}
    assert shares(assign_round_robin({"t": 3, "u": 3}, members)) == {
        "c0": "t0 t2 u1",
        "c1": "t1 u0 u2",
    }
    some = {"c0": wanting("t"), "c1": wanting("t", "u"), "c2": wanting("t", "u", "v")}
    assert shares(assign_round_robin({"t": 1, "u": 2, "v": 3}, some)) == {
        "c0": "t0",
        "c1": "u0",
        "c2": "u1 v0 v1 v2",
    }


@pytest.mark.parametrize("name", ASSIGNORS)
def test_topics_without_subscribers_and_members_without_topics(name):
    members = {"c0": wanting("t"), "c1": wanting("gone"), "c2": wanting()}
    found = ASSIGNORS[name].assign({"t": 2, "u": 2}, members)
    assert shares(found) == {"c0": "t0 t1", "c1": "", "c2": ""}
    assert ASSIGNORS[name].assign({"t": 2}, {}) == {}


# -- sticky assignors -------------------------------------------------------------------------


def test_sticky_moves_only_partitions_that_balance_the_shares():
    members = {
        "a": wanting("t", owned="t0 t1 t2"),
        "b": wanting("t", owned="t3"),
        "c": wanting("t"),
    }
    found = assign_sticky({"t": 6}, members)
    assert [len(found[name]) for name in "abc"] == [2, 2, 2]
    assert set(found["a"]) < set(tps("t0 t1 t2"))
    assert set(tps("t3")) < set(found["b"])


def test_the_owner_of_the_later_generation_keeps_a_partition():
    members = {
        "old": wanting("t", owned="t0 t1", generation=3),
        "new": wanting("t", owned="t0 t1", generation=4),
    }
    found = assign_sticky({"t": 2}, members)
    assert sorted(map(len, found.values())) == [1, 1]
    assert shares(found)["new"] in ("t0", "t1")
    assert shares(assign_sticky({"t": 1}, members)) == {"old": "", "new": "t0"}


def test_an_owner_without_a_subscription_loses_its_partitions():
    members = {"a": wanting("u", owned="t0 t1 u0"), "b": wanting("t", owned="t2")}
    found = assign_sticky({"t": 3, "u": 1}, members)
    assert (found["a"], sorted(found["b"])) == (tps("u0"), tps("t0 t1 t2"))


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("seed", range(10))
def test_members_only_get_partitions_of_their_topics(name, seed):
    """Members change their topics at random from one generation to the next."""
    rng = random.Random(seed)
    counts = {topic: rng.randrange(1, 5) for topic in "tuv"}
    owned = {f"m{number}": () for number in range(4)}
    for generation in range(6):
        topics = {each: rng.sample("tuv", rng.randrange(0, 4)) for each in owned}
        members = {
            each: Subscription(tuple(topics[each]), None, tuple(owned[each]), generation)
            for each in owned
        }
        found = ASSIGNORS[name].assign(counts, members)
        for each, share in found.items():
            assert {tp.topic for tp in share} <= set(topics[each])
        owned = found


def test_cooperative_assignment_withholds_partitions_of_other_owners():
    members = {"a": wanting("t", owned="t0 t1"), "b": wanting("t")}
    first = assign_cooperatively({"t": 2}, members)
    (kept,) = first["a"]
    assert first["b"] == []
    members["a"] = members["a"]._replace(owned_partitions=(kept,))
    second = assign_cooperatively({"t": 2}, members)
    assert second["a"] == [kept]
    assert len(second["b"]) == 1


@pytest.mark.parametrize("seed", range(40))
def test_sticky_shares_are_complete_balanced_and_stable(seed):
    """Each partition has one subscribed owner; nothing moves without a change."""
    rng = random.Random(seed)
    counts = {name: rng.randrange(1, 7) for name in "tuv"}
    is_alike = rng.random() < 0.5
    members = {
        f"m{number}": wanting(*("tuv" if is_alike else rng.sample("tuv", rng.randrange(1, 4))))
        for number in range(rng.randrange(1, 6))
    }
    found = assign_sticky(counts, members)
    dealt = sorted(tp for share in found.values() for tp in share)
    wanted = {topic for each in members.values() for topic in each.topics}
    assert dealt == sorted(
        TopicPartition(topic, number)
        for topic in counts
        if topic in wanted
        for number in range(counts[topic])
    )
    assert all(tp.topic in members[name].topics for name, share in found.items() for tp in share)
    if is_alike:
        sizes = [len(share) for share in found.values()]
        assert max(sizes) - min(sizes) <= 1
    again = {
        name: each._replace(owned_partitions=tuple(found[name]), generation_id=2)
        for name, each in members.items()
    }
    assert assign_sticky(counts, again) == found
    if is_alike and len(members) > 1:
        gone = rng.choice(sorted(again))
        lost = set(found[gone])
        left = {name: each for name, each in again.items() if name != gone}
        after = assign_sticky(counts, left)
        for name in left:
            assert set(found[name]) <= set(after[name])
        assert sum(len(set(after[name]) - set(found[name])) for name in left) == len(lost)


# -- consumer protocol ------------------------------------------------------------------------


def test_subscriptions_and_assignments_are_the_clients_bytes():
    """The bytes of Kafka 3.9's clients, and of older and newer versions."""
    subscription = Subscription(("t", "u"), b"\1", tuple(tps("t0 t2 u1")), 7, "rack")
    data = encode_subscription(subscription)
    assert data.hex() == (
        "0003" "00000002" "000174" "000175" "00000001" "01"
        "00000002" "000174" "00000002" "00000000" "00000002" "000175" "00000001" "00000001"
        "00000007" "00047261636b"
    )  # fmt: skip
    assert decode_subscription(data) == subscription
    assert decode_subscription(b"\0\4" + data[2:] + b"more") == subscription
    oldest = bytes.fromhex("0000" "00000001" "000174" "ffffffff")  # fmt: skip
    assert decode_subscription(oldest) == Subscription(("t",))
    assignment = Assignment(tuple(tps("t0 t1")), None)
    assert encode_assignment(assignment).hex() == (
        "0003" "00000001" "000174" "00000002" "00000000" "00000001" "ffffffff"
    )  # fmt: skip
    assert decode_assignment(encode_assignment(assignment)) == assignment
    assert decode_assignment(b"") == Assignment(())
    with_data = Assignment(assignment.partitions, b"data")
    encoded = [encode_assignment(with_data, version) for version in (-1, 0, 1, 3, 4)]
    assert [each[:2].hex() for each in encoded] == ["0000", "0000", "0001", "0003", "0003"]
    assert [decode_assignment(each) for each in encoded] == [with_data] * 5
    for size in range(len(oldest)):
        with pytest.raises(InvalidRecordError):
            decode_subscription(oldest[:size])


def test_user_data_of_sticky_members_of_other_clients():
    data = sticky_user_data(tuple(tps("t0 u3")), 5)
    assert data.hex() == (
        "00000002" "000174" "00000001" "00000000" "000175" "00000001" "00000003" "00000005"
    )  # fmt: skip
    wants = Subscription(("t",), data)
    assert owned_before(wants) == (tuple(tps("t0 u3")), 5)
    assert owned_before(wants._replace(user_data=data[:-4])) == (tuple(tps("t0 u3")), -1)
    empty = bytes.fromhex("00000001" "000174" "00000000" "00000005")  # fmt: skip
    assert owned_before(wants._replace(user_data=empty)) == ((), 5)
    both = wants._replace(owned_partitions=tuple(tps("t2")), generation_id=9)
    assert owned_before(both) == (tuple(tps("t2")), 9)
    for size in range(len(data) - 4):
        assert owned_before(wants._replace(user_data=data[:size])) == ((), -1)
    for count in (-1, len(data) + 1):
        damaged = data[:7] + count.to_bytes(4, "big", signed=True) + data[11:]
        assert owned_before(wants._replace(user_data=damaged)) == ((), -1)
        with pytest.raises(
            InvalidRecordError, match=f"^{count} partitions cannot fit in {len(data)} bytes$"
        ):
            _read_user_data(damaged)
    assert owned_before(wanting("t", owned="t1", generation=9)) == (tuple(tps("t1")), 9)


@pytest.mark.parametrize(
    ("decode", "kind"),
    (
        (decode_subscription, "ConsumerProtocolSubscription"),
        (decode_assignment, "ConsumerProtocolAssignment"),
    ),
)
def test_data_of_a_negative_version_is_refused(decode, kind):
    with pytest.raises(InvalidRecordError) as caught:
        decode(b"\xff\xff rest")
    assert str(caught.value) == f"not a {kind}: b'\\xff\\xff rest'"
