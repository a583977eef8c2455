"""The computation of a consumer group's target assignment (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.coordinator.groups import consumer_records
from logstore.coordinator.groups.consumer_group import topics_of_member
from logstore.coordinator.groups.consumer_member import NO_TARGET
from logstore.coordinator.groups.java_maps import timeline_order
from logstore.coordinator.groups.server_assignors import (
    SERVER_ASSIGNORS,
    AssignedGroup,
    AssignedMember,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from logstore.coordinator.groups.cluster_topics import ClusterTopics
    from logstore.coordinator.groups.consumer_group import ConsumerGroup
    from logstore.coordinator.groups.consumer_member import ConsumerMember, Target
    from logstore.coordinator.groups.consumer_records import Record
    from logstore.coordinator.groups.server_assignors import Targets


def compute_target(
    group: ConsumerGroup, updated: ConsumerMember, topics: ClusterTopics, assignor: str
) -> Targets:
    """Return a group's target assignment after a member was added or updated.

    A member that replaces a static member with the same instance id inherits its target assignment.
    """
    members = {each: group.members[each] for each in timeline_order(group.members)}
    replaced = group.static_member(updated.instance_id)
    start = group.target_of(updated.member_id)
    if replaced is not None and replaced.member_id != updated.member_id:
        start = group.target_of(replaced.member_id)
        members.pop(replaced.member_id)
    members[updated.member_id] = updated
    ids = {
        subscription: topics.ids(topics_of_member(member, group.regexes))
        for member in members.values()
        for subscription in [(member.topics, member.regex)]
    }
    partitions: dict[str, Sequence[int]] = {}
    for of_member in ids.values():
        for topic_id in of_member:
            if (topic := topics.of_id(topic_id)) is not None:
                partitions[topic_id] = topic.partitions
    existing = {topic_id: frozenset(numbers) for topic_id, numbers in partitions.items()}
    assigned = {
        (each, n) for target in group.targets.values() for each in target for n in target[each]
    }
    return SERVER_ASSIGNORS[assignor](
        AssignedGroup(
            {
                member_id: AssignedMember(
                    ids[member.topics, member.regex],
                    member.instance_id,
                    _existing(
                        start if member_id == updated.member_id else group.target_of(member_id),
                        existing,
                    ),
                )
                for member_id, member in members.items()
            },
            partitions,
            is_homogeneous((member.topics, member.regex or None) for member in members.values()),
            lambda topic_id, number: (topic_id, number) in assigned,
        )
    )


def _existing(target: Target, existing: Mapping[str, frozenset[int]]) -> Target:
    """Return a target without the partitions that no longer exist in a subscribed topic."""
    if all(numbers <= existing.get(topic_id, numbers) for topic_id, numbers in target.items()):
        return target
    return {
        topic_id: kept
        for topic_id, numbers in target.items()
        if (kept := numbers & existing.get(topic_id, numbers))
    }


def is_homogeneous(subscriptions: Iterable[tuple[frozenset[str], str | None]]) -> bool:
    """Return whether all members have the same topics or the same pattern, but not both."""
    distinct = set(subscriptions)
    return len(distinct) <= 1 and not any(topics and regex for topics, regex in distinct)


def target_records(
    group: ConsumerGroup,
    targets: Targets,
    member_ids: Iterable[str],
    epoch: int,
    now_ms: int,
) -> list[Record]:
    """Return the records of a new target assignment: the changed targets and the epoch."""
    records = []
    for member_id in member_ids:
        target = targets.get(member_id, NO_TARGET)
        if group.targets.get(member_id) != target:
            records.append(consumer_records.target_assignment(group.group_id, member_id, target))
    records.append(consumer_records.target_epoch(group.group_id, epoch, now_ms))
    return records
