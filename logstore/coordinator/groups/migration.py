"""Classic members of consumer groups, and conversions between the two protocols (KIP-848).

A classic group is converted when a member joins with the consumer protocol. The classic members
remain: their syncs return the current assignment, and heartbeats ask them to rejoin for each step
of their reconciliation. When the last consumer protocol member leaves, the group becomes classic
again. `group.consumer.migration.policy` can disallow either conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from logstore.coordinator.groups import consumer_records
from logstore.coordinator.groups.consumer_group import ConsumerGroup
from logstore.coordinator.groups.consumer_member import (
    ClassicProtocols,
    ConsumerMember,
    MemberState,
)
from logstore.coordinator.groups.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    Assignment,
    Subscription,
    by_topic,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from logstore.coordinator.groups.consumer_rules import (
    Decision,
    MigrationPolicy,
    Refusal,
    RuleContext,
    check_room,
    check_static,
    replace_static,
    unknown_member,
    update_member,
)
from logstore.coordinator.groups.group import Group, GroupState, Member
from logstore.coordinator.groups.requests import JoinResult, SyncResult
from logstore.errors import InvalidRecordError
from logstore.messages import version_of
from logstore.messages.types import GroupMetadataKey
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from logstore.coordinator.groups.cluster_topics import ClusterTopics
    from logstore.coordinator.groups.consumer_member import OwnedPartitions, Target
    from logstore.coordinator.groups.consumer_records import Record
    from logstore.coordinator.groups.consumer_rules import GroupSettings
    from logstore.coordinator.groups.requests import JoinRequest, SyncRequest


# -- upgrade ---------------------------------------------------------------------------------------


def upgrade(
    group: Group, topics: ClusterTopics, settings: GroupSettings
) -> tuple[ConsumerGroup, list[Record]]:
    """Convert a classic group. Return the consumer group and the records to write.

    Raises
    ------
    Refusal
        GROUP_ID_NOT_FOUND: the group cannot be converted, or the policy disallows it.
    """
    group_id = group.group_id
    records: list[Record] = []
    if group.generation_id > 0:  # generation 0 has not been stored
        records.append((GroupMetadataKey(group=group_id), None))
    after = ConsumerGroup(group_id)
    if group.state is GroupState.EMPTY:
        return after, records
    if not settings.migration.allows_upgrade:
        raise _not_upgraded(group_id, "online upgrade is disabled")
    if not group.is_consumer_group:
        raise _not_upgraded(group_id, "the group does not use the consumer embedded protocol")
    if len(group.members) > settings.max_size:
        raise _not_upgraded(group_id, "the group size exceeds the consumer group maximum size")
    try:
        members = [_upgraded_member(group, each, topics) for each in group.members.values()]
    except InvalidRecordError:
        reason = "the embedded consumer protocol is malformed"
        raise _not_upgraded(group_id, reason) from None
    epoch = group.generation_id
    subscribed = frozenset(name for each in members for name in each.topics)
    records += (consumer_records.member(group_id, each) for each in members)
    records.append(consumer_records.group_epoch(group_id, epoch, topics.hash_of(subscribed)))
    for each in members:
        target = {topic_id: frozenset(numbers) for topic_id, numbers in each.assigned.items()}
        records.append(consumer_records.target_assignment(group_id, each.member_id, target))
    records.append(consumer_records.target_epoch(group_id, epoch, 0))
    records += (consumer_records.current_assignment(group_id, each) for each in members)
    after.apply(records)
    return after, records


def _not_upgraded(group_id: str, reason: str) -> Refusal:
    return Refusal(
        "GROUP_ID_NOT_FOUND",
        f"Cannot upgrade classic group {group_id} to consumer group because {reason}.",
    )


def _upgraded_member(group: Group, member: Member, topics: ClusterTopics) -> ConsumerMember:
    """Convert a classic member and its last assignment.

    Raises
    ------
    InvalidRecordError
        The subscription or the assignment is malformed.
    Refusal
        The assignment contains user data of a custom assignor.
    """
    epoch = group.generation_id
    assignment = decode_assignment(member.assignment)
    if assignment.user_data:
        raise _not_upgraded(group.group_id, "an unsupported custom assignor is in use")
    # If the group has not completed a rebalance, it has no protocol yet.
    name = group.protocol_name or group.select_protocol()
    subscription = decode_subscription(member.metadata(name))
    assigned = _ids(assignment.partitions, topics)
    return ConsumerMember(
        member.member_id,
        epoch,
        epoch,
        MemberState.STABLE,
        member.group_instance_id,
        subscription.rack_id or None,
        member.rebalance_timeout_ms,
        member.client_id,
        member.client_host,
        frozenset(subscription.topics),
        assigned={each: dict.fromkeys(numbers, epoch) for each, numbers in assigned.items()},
        classic=ClassicProtocols(member.session_timeout_ms, member.protocols),
    )


def _ids(
    partitions: Iterable[TopicPartition], topics: ClusterTopics
) -> Mapping[str, Collection[int]]:
    """Return the existing partitions by topic id."""
    ids = {}
    for name, numbers in by_topic(partitions).items():
        topic = topics.named(name)
        existing = set(() if topic is None else topic.partitions)
        if topic is not None and not existing.isdisjoint(numbers):
            ids[topic.topic_id] = [each for each in numbers if each in existing]
    return ids


# -- downgrade -------------------------------------------------------------------------------------


def may_downgrade(
    group: ConsumerGroup, leaving: Collection[ConsumerMember], settings: GroupSettings
) -> bool:
    """Return whether the group becomes classic when the given members leave."""
    left = len(group.members) - len(leaving)
    classic_left = group.classic_members - sum(each.classic is not None for each in leaving)
    return (
        0 < left == classic_left
        and settings.migration.allows_downgrade
        and left <= settings.classic_max_size
    )


def may_downgrade_replaced(
    group: ConsumerGroup, replaced: ConsumerMember, settings: GroupSettings
) -> bool:
    """Return whether the group becomes classic when a classic member replaces a static member."""
    count = len(group.members)
    return (
        replaced.classic is None
        and group.classic_members == count - 1
        and settings.migration.allows_downgrade
        and count <= settings.classic_max_size
    )


class Downgrade(NamedTuple):
    """The classic group that replaces a consumer group.

    Attributes
    ----------
    must_rebalance : bool
        Whether the members must rejoin immediately.
    """

    group: Group
    records: list[Record]
    must_rebalance: bool


def downgrade(
    group: ConsumerGroup,
    leaving: Collection[str],
    topics: ClusterTopics,
    now_ms: int,
    *,
    joining: ConsumerMember | None = None,
    must_rebalance: bool = True,
) -> Downgrade:
    """Convert a consumer group to a classic group with the remaining members and their targets.

    Parameters
    ----------
    leaving : collection of str
        Ids of the members that leave.
    joining : ConsumerMember, optional
        A static member that replaces the member with the same instance id.
    """
    replaced = None if joining is None else group.static_member(joining.instance_id)
    after = Group(group.group_id)
    after.generation_id = group.group_epoch
    for member in group.members.values():
        if member.member_id not in leaving and member is not replaced:
            after.add(_downgraded_member(member, group.target_of(member.member_id), topics), "")
    if joining is not None:
        target = group.target_of(joining.member_id if replaced is None else replaced.member_id)
        after.add(_downgraded_member(joining, target, topics), "")
    after.become_stable(CONSUMER_PROTOCOL_TYPE, now_ms)
    assignments = {each.member_id: each.assignment for each in after.members.values()}
    records = [
        *group.deletion(),
        (GroupMetadataKey(group=group.group_id), after.to_record(assignments)),
    ]
    return Downgrade(after, records, must_rebalance)


def _downgraded_member(member: ConsumerMember, target: Target, topics: ClusterTopics) -> Member:
    classic = member.classic
    assert classic is not None
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        classic.session_timeout_ms,
        classic.protocols,
        _encode_assignment(target, classic, topics),
    )


def _encode_assignment(
    partitions: OwnedPartitions | Target, classic: ClassicProtocols, topics: ClusterTopics
) -> bytes:
    """Encode an assignment in the version of the member's subscription."""
    named = []
    for topic_id, numbers in partitions.items():
        topic = topics.of_id(topic_id)
        if topic is not None:
            named += [TopicPartition(topic.name, number) for number in numbers]
    return encode_assignment(Assignment(tuple(named)), version_of(classic.protocols[0][1]))


# -- classic members -------------------------------------------------------------------------------


class ClassicJoin(NamedTuple):
    """The outcome of a classic member's join to a consumer group.

    Attributes
    ----------
    result : JoinResult
    decision : Decision or None
        None if nothing changes.
    downgrade : Downgrade or None
        The classic group that replaces the consumer group, if the replaced member was the last
        consumer protocol member.
    """

    result: JoinResult
    decision: Decision | None = None
    downgrade: Downgrade | None = None


def classic_join(
    group: ConsumerGroup,
    request: JoinRequest,
    at: RuleContext,
    check_pattern: Callable[[str], None],
    new_member_id: Callable[[], str],
) -> ClassicJoin:
    """Add or update a classic member of a consumer group.

    Raises
    ------
    Refusal
        INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID or
        FENCED_INSTANCE_ID.
    """
    if at.settings.migration is MigrationPolicy.DISABLED:
        raise Refusal("INCONSISTENT_GROUP_PROTOCOL", "the migration of groups is disabled")
    is_new = not request.member_id
    member_id = new_member_id() if is_new else request.member_id
    check_room(group, member_id, at.settings)
    subscription = _supported(group, request)
    instance_id = request.group_instance_id
    if is_new and instance_id is None and request.requires_member_id:
        return ClassicJoin(JoinResult(member_id, "MEMBER_ID_REQUIRED"))
    known = group.static_member(instance_id)
    records: list[Record] = []
    if instance_id is None:
        member = group.members.get(member_id, ConsumerMember(member_id))
    elif not is_new:
        member = check_static(known, member_id, instance_id)
    elif known is None:
        member = ConsumerMember(member_id)
    else:
        member, records = replace_static(group, known, member_id)
    updated = member._replace(
        instance_id=member.instance_id if instance_id is None else instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=frozenset(subscription.topics),
        regex="",
        client_id=request.client_id,
        client_host=request.client_host,
        classic=ClassicProtocols(request.session_timeout_ms, request.protocols),
    )
    becomes_classic = known is not None and may_downgrade_replaced(group, known, at.settings)
    decision = update_member(
        group,
        member,
        updated,
        records,
        _ids(subscription.owned_partitions, at.topics),
        at,
        check_pattern,
        bumps_for_regex=True,
        assigns=not becomes_classic,
    )
    after = decision.member
    assert after is not None
    result = JoinResult(
        member_id,
        None,
        after.member_epoch,
        CONSUMER_PROTOCOL_TYPE,
        request.protocols[0][0],
    )
    if not becomes_classic:
        return ClassicJoin(result, decision)
    downgraded = downgrade(
        group,
        (),
        at.topics,
        at.now_ms,
        joining=after,
        must_rebalance=group.target_epoch < decision.group_epoch,
    )
    return ClassicJoin(result, decision, downgraded)


def _supported(group: ConsumerGroup, request: JoinRequest) -> Subscription:
    """Return the subscription in a join. All classic members must have an assignor in common."""
    names = [name for name, _ in request.protocols]
    known = [
        {name for name, _ in each.classic.protocols}
        for each in group.members.values()
        if each.classic is not None
    ]
    is_supported = request.protocol_type == CONSUMER_PROTOCOL_TYPE and any(
        all(name in of_member for of_member in known) for name in names
    )
    if not is_supported:
        raise Refusal("INCONSISTENT_GROUP_PROTOCOL", "the member's protocols are not supported")
    try:
        return decode_subscription(request.protocols[0][1])
    except InvalidRecordError as error:
        raise Refusal("UNKNOWN_SERVER_ERROR", str(error)) from error


def classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int | None
) -> ConsumerMember:
    """Return the classic member that sent a request.

    Raises
    ------
    Refusal
        UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION.
    """
    if instance_id is not None:
        member = check_static(group.static_member(instance_id), member_id, instance_id)
    elif member_id in group.members:
        member = group.members[member_id]
    else:
        raise unknown_member(group, member_id)
    if member.classic is None:
        message = f"Member {member_id} does not use the classic protocol."
        raise Refusal("UNKNOWN_MEMBER_ID", message)
    if generation_id is not None and generation_id != member.member_epoch:
        raise Refusal("ILLEGAL_GENERATION", f"the epoch of {member_id} is {member.member_epoch}")
    return member


def classic_sync(
    group: ConsumerGroup, member: ConsumerMember, request: SyncRequest, topics: ClusterTopics
) -> SyncResult:
    """Return the assignment of a classic member.

    Raises
    ------
    Refusal
        INCONSISTENT_GROUP_PROTOCOL, or REBALANCE_IN_PROGRESS if the member must rejoin first.
    """
    assert member.classic is not None
    for requested, known in (
        (request.protocol_type, CONSUMER_PROTOCOL_TYPE),
        (request.protocol_name, member.classic.protocols[0][0]),
    ):
        if requested not in (None, known):
            raise Refusal("INCONSISTENT_GROUP_PROTOCOL", f"expected {known}, not {requested}")
    if (
        group.target_epoch > member.member_epoch
        and member.state is not MemberState.UNREVOKED_PARTITIONS
    ):
        raise Refusal("REBALANCE_IN_PROGRESS", "the member must rejoin")
    return SyncResult(
        None,
        request.protocol_type,
        request.protocol_name,
        _encode_assignment(member.assigned, member.classic, topics),
    )


def must_rejoin(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Return whether a classic member must rejoin to take its next reconciliation step."""
    return (
        member.member_epoch < group.target_epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not _is_waiting(group, member))
    )


def _is_waiting(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Return whether other members still own partitions of a member's target assignment."""
    return any(
        number not in member.assigned.get(topic_id, ()) and not group.is_free(topic_id, number)
        for topic_id, numbers in group.target_of(member.member_id).items()
        for number in numbers
    )
