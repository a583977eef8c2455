"""The in-memory state of a group, as whole records, results and tables."""

from dataclasses import fields

import pytest

from logstore.coordinator.groups.consumer_protocol import Subscription, encode_subscription
from logstore.coordinator.groups.group import Group, GroupState, Member
from logstore.coordinator.groups.requests import (
    GroupDescription,
    JoinedMember,
    JoinResult,
    MemberDescription,
)
from logstore.messages.types import GroupMetadataValue

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = list(GroupState)[:5]
T, U = (encode_subscription(Subscription((name,))) for name in "tu")


def stored_member(member_id, instance_id, rebalance_ms, session_ms, subscription):
    return GroupMetadataValue.MemberMetadata(
        member_id=member_id,
        group_instance_id=instance_id,
        client_id=f"client {member_id}",
        client_host=f"/{member_id}",
        rebalance_timeout=rebalance_ms,
        session_timeout=session_ms,
        subscription=subscription,
        assignment=f"of {member_id}".encode(),
    )


def stored(**changes):
    return GroupMetadataValue(
        **{
            "protocol_type": "consumer",
            "generation": 3,
            "protocol": "range",
            "leader": "b",
            "current_state_timestamp": 77,
            "members": [stored_member("a", None, 60, 10, T), stored_member("b", "i", 50, 20, U)],
            **changes,
        }
    )


def loaded(**changes):
    return Group.from_record("g", stored(**changes))


def test_a_group_is_loaded_from_its_record_and_stored_as_it_was():
    group = loaded()
    assert [[getattr(each, f.name) for f in fields(Member)] for each in group.members.values()] == [
        ["a", None, "client a", "/a", 60, 10, (("range", T),), b"of a", False, None, None, 0, None],
        ["b", "i", "client b", "/b", 50, 20, (("range", U),), b"of b", False, None, None, 0, None],
    ]
    assert list(group.members) == ["a", "b"]
    assert (group.state, group.state_ms, group.generation_id) == (STABLE, 77, 3)
    assert (group.protocol_type, group.protocol_name, group.leader) == ("consumer", "range", "b")
    assert (group.static_members, group.subscribed_topics) == ({"i": "b"}, {"t", "u"})
    assert (group.rebalance_timeout_ms, group.is_consumer_group) == (60, True)
    assert repr(group) == "<Group g: Stable, generation 3, 2 members>"
    group._check()
    assert group.to_record({"a": b"of a", "b": b"of b"}) == stored()
    assert Group("new").to_record({}) == GroupMetadataValue(
        protocol_type="",
        generation=0,
        protocol=None,
        leader=None,
        current_state_timestamp=-1,
        members=[],
    )
    assert [each.assignment for each in group.to_record({"b": b"other"}).members] == [b"", b"other"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    (
        ({"members": []}, (EMPTY, None, "consumer", "range", frozenset())),
        (
            {"members": [], "protocol_type": "", "protocol": None},
            (EMPTY, None, None, None, frozenset()),
        ),
        ({"leader": None}, (STABLE, "a", "consumer", "range", {"t", "u"})),
        ({"leader": "gone"}, (STABLE, "a", "consumer", "range", {"t", "u"})),
        ({"protocol": None}, (STABLE, "b", "consumer", None, None)),
        ({"protocol_type": "connect"}, (STABLE, "b", "connect", "range", None)),
        (
            {"members": [stored_member("a", None, 60, 10, b"not of a consumer")]},
            (STABLE, "a", "consumer", "range", None),
        ),
    ),
)
def test_groups_of_other_records(changes, expected):
    group = loaded(**changes)
    assert (
        group.state,
        group.leader,
        group.protocol_type,
        group.protocol_name,
        group.subscribed_topics,
    ) == expected
    names = {name for each in group.members.values() for name, _ in each.protocols}
    assert names == ({group.protocol_name or ""} if group.members else set())


def test_a_record_of_version_0_has_one_timeout():
    group = loaded(
        members=[stored_member("a", None, -1, 10, T), stored_member("b", "i", -1, 20, U)]
    )
    timeouts = [(m.rebalance_timeout_ms, m.session_timeout_ms) for m in group.members.values()]
    assert timeouts == [(10, 10), (20, 20)]


def test_results_and_descriptions():
    """Only the leader gets the members, and only a stable group is described in full."""
    group = loaded()
    a, b = group.members.values()
    joined = (JoinedMember("a", None, T), JoinedMember("b", "i", U))
    assert group.join_result(b) == JoinResult("b", None, 3, "consumer", "range", "b", joined)
    assert group.join_result(a) == JoinResult("a", None, 3, "consumer", "range", "b", ())
    assert group.describe() == GroupDescription(
        "g",
        "Stable",
        "consumer",
        "range",
        (
            MemberDescription("a", None, "client a", "/a", T, b"of a"),
            MemberDescription("b", "i", "client b", "/b", U, b"of b"),
        ),
    )
    group.enter(PREPARING, 78)
    assert group.describe() == GroupDescription(
        "g",
        "PreparingRebalance",
        "consumer",
        "",
        (
            MemberDescription("a", None, "client a", "/a", b"", b""),
            MemberDescription("b", "i", "client b", "/b", b"", b""),
        ),
    )
    assert Group("new").describe() == GroupDescription("new", "Empty")


# -- states ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "before"),
    (
        (EMPTY, {PREPARING}),
        (PREPARING, {EMPTY, COMPLETING, STABLE}),
        (COMPLETING, {PREPARING}),
        (STABLE, {COMPLETING}),
        (DEAD, set(GroupState)),
    ),
)
def test_states_follow_each_other_as_in_kafka(state, before):
    def follows(former):
        group = Group("g")
        group.state = former
        try:
            group.enter(state, 5)
        except AssertionError:
            return False
        return (group.state, group.state_ms) == (state, 5)

    assert {former for former in GroupState if follows(former)} == before


def test_the_next_generation_with_and_without_members():
    group = loaded()
    group.pending_sync.add("a")
    group.enter(PREPARING, 78)
    for each in group.members.values():
        each.protocols = (("other", U), *each.protocols)
    group.next_generation(79)
    assert (group.state, group.state_ms, group.generation_id, group.round) == (COMPLETING, 79, 4, 1)
    assert (group.protocol_name, group.subscribed_topics) == ("other", {"u"})
    assert group.pending_sync == set()
    group.enter(PREPARING, 80)
    group.remove("b")
    assert (group.leader, group.static_members) == ("a", {})
    group.remove("a")
    assert (group.leader, group.members) == (None, {})
    group.next_generation(81)
    assert (group.state, group.state_ms, group.generation_id, group.round) == (EMPTY, 81, 5, 2)
    assert (group.protocol_name, group.subscribed_topics) == (None, frozenset())


def test_a_group_whose_members_have_assignments_becomes_stable():
    group = Group("g")
    for name, data in (("a", T), ("b", U)):
        group.add(Member(name, None, "", "", 1, 1, (("range", data),)), "other")
    group.become_stable("consumer", 82)
    assert (group.state, group.state_ms, group.protocol_type) == (STABLE, 82, "consumer")
    assert (group.protocol_name, group.subscribed_topics) == ("range", {"t", "u"})


# -- members ---------------------------------------------------------------------------------------


def member(member_id, *names, instance=None, joins=False):
    protocols = tuple((name, b"") for name in names)
    return Member(
        member_id, instance, "client", "host", 1, 1, protocols, on_join=print if joins else None
    )


def test_members_and_pending_ids():
    group = Group("g")
    group.pending_members |= {"a": 5, "p": 6}
    group.add(member("a", "range", joins=True), "consumer")
    assert (group.pending_members, group.leader, group.protocol_type) == ({"p": 6}, "a", "consumer")
    assert (group.awaiting_join, group.has_all_joined) == (1, False)
    group.remove("p")
    assert group.has_all_joined
    group.add(member("b", "range", instance="i"), "other")
    assert (group.leader, group.protocol_type) == ("a", "consumer")
    assert (group.awaiting_join, group.has_all_joined) == (1, False)
    group.pending_sync |= {"a", "b"}
    group.remove("a")
    assert (group.leader, group.pending_sync, list(group.members)) == ("b", {"b"}, ["b"])
    for wrong in (member("b", "range"), member("c", "range", instance="i")):
        with pytest.raises(AssertionError):
            group.add(wrong, "consumer")


@pytest.mark.parametrize("is_awaited", (True, False))
@pytest.mark.parametrize("leads", (True, False))
def test_a_static_member_that_returns_is_awaited_if_it_was(is_awaited, leads):
    group = Group("g")
    if not leads:
        group.add(member("other", "range"), "consumer")
    group.add(member("old", "range", instance="i"), "consumer")
    if is_awaited:
        group.pending_sync.add("old")
    returned = group.replace_static("old", "new")
    assert group.pending_sync == ({"new"} if is_awaited else set())
    assert (group.members["new"], returned.member_id) == (returned, "new")
    assert group.leader == ("new" if leads else "other")
    assert group.static_members == {"i": "new"}


@pytest.mark.parametrize(
    ("joined", "leader", "is_elected"),
    (("b", "b", True), ("c", "c", True), ("ab", "b", True), ("ac", "a", True), ("", "b", False)),
)
def test_the_leader_remains_if_it_has_joined(joined, leader, is_elected):
    group = Group("g")
    assert group.elect_joined_leader() is False
    for name in "abc":
        group.add(member(name, "range", joins=name in joined), "consumer")
    group.leader = "b"
    assert (group.elect_joined_leader(), group.leader) == (is_elected, leader)


@pytest.mark.parametrize(
    ("member_id", "instance_id", "generation_id", "error"),
    (
        ("a", None, None, None),
        ("a", None, 3, None),
        ("a", None, 2, "ILLEGAL_GENERATION"),
        ("x", None, 3, "UNKNOWN_MEMBER_ID"),
        ("b", "i", 3, None),
        ("b", None, 3, None),
        ("a", "i", 3, "FENCED_INSTANCE_ID"),
        ("b", "j", 3, "UNKNOWN_MEMBER_ID"),
    ),
)
def test_ids_and_generations_are_checked(member_id, instance_id, generation_id, error):
    assert loaded().check_member(member_id, instance_id, generation_id) == error


# -- protocols -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "protocol_type", "names", "expected"),
    (
        (EMPTY, "other", "x", True),
        (EMPTY, "", "x", False),
        (EMPTY, "other", "", False),
        (STABLE, "consumer", "r", True),
        (STABLE, "consumer", "xs", True),
        (STABLE, "consumer", "x", False),
        (STABLE, "consumer", "qp", False),
        (STABLE, "consumer", "", False),
        (STABLE, "other", "r", False),
    ),
)
def test_a_group_supports_the_protocols_of_all_members(state, protocol_type, names, expected):
    group = Group("g")
    group.add(member("a", "q", "r", "s"), "consumer")
    group.add(member("b", "s", "r", "p"), "consumer")
    group.state = state
    assert group.supports(protocol_type, [(name, b"") for name in names]) is expected


def test_a_preparing_group_without_members_supports_protocols_of_its_type():
    group = Group("g")
    group.protocol_type, group.state = "consumer", PREPARING
    assert group.supports("consumer", [("range", b"")])
    assert not group.supports("consumer", [])
    assert not group.supports("other", [("range", b"")])


def test_the_protocol_with_most_votes_of_those_that_all_support_is_selected():
    group = Group("g")
    for name, names in (("a", "qrs"), ("b", "srq"), ("c", "xsr")):
        group.add(member(name, *names), "consumer")
    assert group.select_protocol() == "s"
    group.add(member("d", "r"), "consumer")
    assert group.select_protocol() == "r"
    assert group.members["a"].metadata("none") == b""
