"""The next step of a member towards its target assignment, as whole members."""

import pytest

from logstore.coordinator.groups.consumer_member import ConsumerMember, MemberState
from logstore.coordinator.groups.reconciliation import MustRejoinError, reconcile

STABLE, UNREVOKED, UNRELEASED, UNKNOWN = MemberState

TARGET_EPOCH = 9


def member(state, epoch, assigned, revoking=None, *, previous=2):
    """Return a member whose partitions are given with the epochs of their assignment."""
    return ConsumerMember(
        "m",
        epoch,
        previous,
        state,
        instance_id="i",
        topics=frozenset("ab"),
        assigned=assigned,
        revoking=revoking or {},
    )


A01 = {"a": {0: 3, 1: 4}}


@pytest.mark.parametrize(
    ("before", "target", "reported", "taken", "after"),
    (
        # A member in its target epoch, or that still owns what it must revoke, stays the same.
        (member(STABLE, 9, A01), {"a": {5}}, {}, "", None),
        (member(UNREVOKED, 4, A01, {"b": {7: 1}}), {"a": {0}}, {"b": [7]}, "", None),
        (member(UNREVOKED, 9, A01, {"b": {7: 1}}), {"a": {0}}, None, "", None),
        (member(STABLE, 9, {"x": {0: 3}}), {}, None, "", None),
        # A new target, of which everything is free.
        (
            member(STABLE, 4, A01),
            {"a": {0, 1, 2}, "b": {5}},
            {"a": [0, 1]},
            "",
            member(STABLE, 9, {"a": {0: 3, 1: 4, 2: 9}, "b": {5: 9}}, previous=4),
        ),
        # Others have some of it.
        (
            member(STABLE, 4, A01),
            {"a": {0, 1, 2}, "b": {5, 6}},
            {},
            "a2 b6",
            member(UNRELEASED, 9, {"a": {0: 3, 1: 4}, "b": {5: 9}}, previous=4),
        ),
        # It waits for them in the epoch of the target.
        (
            member(UNRELEASED, 9, A01),
            {"a": {0, 1, 2}},
            None,
            "a2",
            member(UNRELEASED, 9, A01, previous=9),
        ),
        (
            member(UNRELEASED, 9, A01),
            {"a": {0, 1, 2}},
            None,
            "",
            member(STABLE, 9, {"a": {0: 3, 1: 4, 2: 9}}, previous=9),
        ),
        # Partitions to revoke come first; the epoch remains.
        (
            member(STABLE, 4, A01 | {"b": {5: 4}}),
            {"a": {1, 2}},
            None,
            "",
            member(UNREVOKED, 4, {"a": {1: 4}}, {"a": {0: 3}, "b": {5: 4}}, previous=4),
        ),
        (
            member(STABLE, 4, A01),
            {"a": {1}},
            {"b": [0], "a": [1, 0]},
            "",
            member(UNREVOKED, 4, {"a": {1: 4}}, {"a": {0: 3}}, previous=4),
        ),
        # If the member no longer owns them, there is nothing to wait for.
        (
            member(STABLE, 4, A01),
            {"a": {1, 2}},
            {"a": [1], "b": [0]},
            "",
            member(STABLE, 9, {"a": {1: 4, 2: 9}}, previous=4),
        ),
        # It has revoked them. What it had to revoke is its own, even if it is not free yet.
        (
            member(UNREVOKED, 4, {"a": {0: 3}}, {"a": {1: 4}, "b": {5: 4}}),
            {"a": {0, 1}, "b": {6}},
            {"a": [0]},
            "a1 b6",
            member(UNRELEASED, 9, {"a": {0: 3, 1: 9}}, previous=4),
        ),
        # Topics to which it is not subscribed are not part of its target.
        (
            member(STABLE, 4, {"x": {0: 3}, "a": {1: 4}}),
            {"x": {0, 1}, "a": {1}},
            None,
            "",
            member(UNREVOKED, 4, {"a": {1: 4}}, {"x": {0: 3}}, previous=4),
        ),
        # A state of a later release, without partitions.
        (
            member(UNKNOWN, 4, A01),
            {"a": {1}},
            {},
            "",
            member(STABLE, 9, {"a": {1: 4}}, previous=4),
        ),
    ),
)
def test_steps(before, target, reported, taken, after):
    found = reconcile(
        before,
        {topic_id: frozenset(numbers) for topic_id, numbers in target.items()},
        TARGET_EPOCH,
        subscribed_ids=("a", "b"),
        is_free=lambda topic_id, number: f"{topic_id}{number}" not in taken.split(),
        reported=reported,
    )
    assert found == (after or before)
    assert found.state is (after or before).state


@pytest.mark.parametrize("reported", (None, {"a": [0]}))
def test_a_member_in_a_state_of_a_later_release_must_rejoin_without_partitions(reported):
    with pytest.raises(MustRejoinError):
        reconcile(
            member(UNKNOWN, 9, A01),
            {},
            9,
            subscribed_ids=(),
            is_free=lambda *_: True,
            reported=reported,
        )


X2, B8 = {"x": {2: 5}}, {"b": {8: 1}}


@pytest.mark.parametrize(
    ("state", "revoking", "reported", "after"),
    (
        (STABLE, {}, {"a": [0]}, (STABLE, {})),
        (STABLE, {}, {"x": [2]}, (UNREVOKED, X2)),
        (STABLE, {}, None, (UNREVOKED, X2)),
        (UNREVOKED, B8, {"b": [8]}, (UNREVOKED, B8 | X2)),
        (UNREVOKED, {"x": {1: 4}}, {"x": [1]}, (UNREVOKED, {"x": {1: 4, 2: 5}})),
    ),
)
def test_a_member_that_unsubscribes_drops_the_topics_in_its_epoch(state, revoking, reported, after):
    """Without a new epoch, if it is in the epoch of its target or still revokes partitions."""
    before = member(state, 9, A01 | X2, revoking)
    arguments = {
        "subscribed_ids": ("a", "b"),
        "is_free": lambda *_: pytest.fail("it gets nothing"),
        "reported": reported,
        "is_resubscribed": True,
    }
    expected = member(after[0], 9, A01, after[1], previous=9)
    assert reconcile(before, {}, 9, **arguments) == expected
    without = member(state, 9, A01, revoking)
    reported = reported or dict.fromkeys(revoking, range(9))
    assert reconcile(without, {}, 9, **(arguments | {"reported": reported})) is without
