"""The in-memory state of a group."""

import pytest

from logstore.coordinator.groups.group import Group, Member


@pytest.mark.parametrize("is_awaited", (True, False))
def test_a_static_member_that_returns_is_awaited_if_it_was(is_awaited):
    group = Group("g")
    group.add(Member("old", "instance", "client", "host", 1, 1, (("range", b""),)), "consumer")
    if is_awaited:
        group.pending_sync.add("old")
    member = group.replace_static("old", "new")
    assert group.pending_sync == ({"new"} if is_awaited else set())
    assert group.members == {"new": member}
    assert (group.leader, group.static_members) == ("new", {"instance": "new"})
