"""The server's assignors, where Kafka's choice depends on Java's hash maps."""

from itertools import combinations

from logstore.coordinator.groups.java_maps import java_id_order
from logstore.coordinator.groups.server_assignors import (
    AssignedGroup,
    AssignedMember,
    assign_uniform,
)
from logstore.types import encode_topic_id


def same_bucket():
    """Return two topic ids that a HashMap keeps in one bucket, in the order of insertion."""
    ids = [encode_topic_id(bytes([number] * 15 + [1])) for number in range(1, 40)]
    return next(
        pair
        for pair in combinations(ids, 2)
        if java_id_order(pair) == list(pair) and java_id_order(pair[::-1]) == list(pair[::-1])
    )


def test_a_member_s_new_topic_is_first_in_its_bucket():
    """As with HashMap.computeIfAbsent. The first topics keep their partitions when members join."""
    one, other = same_bucket()
    partitions = {one: range(4), other: range(1)}
    group = AssignedGroup({"a": AssignedMember((one, other))}, partitions, True, lambda *_: False)
    target = assign_uniform(group)["a"]
    assert list(target) == [other, one]
    members = {"a": AssignedMember((one, other), target=target), "b": AssignedMember((one, other))}
    shares = assign_uniform(AssignedGroup(members, partitions, True, lambda *_: True))
    assert shares["a"] == {one: {0, 1}, other: {0}}
    assert shares["b"] == {one: {2, 3}}
