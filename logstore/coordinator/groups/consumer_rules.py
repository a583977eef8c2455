"""The rules of consumer groups, which turn a request or a timeout into records (KIP-848).

A rule reads a group and returns a decision: the records to write, the response, and the timers to
set. A rule changes nothing itself, so a decision has no effect if its records cannot be written.
The rules use neither clocks nor files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from logstore.coordinator.groups import consumer_records
from logstore.coordinator.groups.consumer_group import Subscription, topics_of, topics_of_member
from logstore.coordinator.groups.consumer_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    NO_PARTITIONS,
    NO_TARGET,
    ConsumerMember,
    MemberState,
    ResolvedRegex,
)
from logstore.coordinator.groups.reconciliation import MustRejoinError, reconcile
from logstore.coordinator.groups.requests import ConsumerHeartbeat, ConsumerHeartbeatResult
from logstore.coordinator.groups.target import compute_target, target_records
from logstore.types import INT32_MAX

if TYPE_CHECKING:
    from logstore.coordinator.groups.cluster_topics import ClusterTopics
    from logstore.coordinator.groups.consumer_group import ConsumerGroup
    from logstore.coordinator.groups.consumer_member import OwnedPartitions, Target
    from logstore.coordinator.groups.consumer_records import Record
    from logstore.coordinator.groups.reconciliation import Reported

REGEX_REFRESH_MIN_MS = 10_000
"""Minimum time between two resolutions of a group's patterns. Kafka has no config for it."""

NS_PER_MS = 1_000_000


class MigrationPolicy(Enum):
    """The protocol conversions that `group.consumer.migration.policy` allows."""

    DISABLED = "disabled"
    DOWNGRADE = "downgrade"
    UPGRADE = "upgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def allows_upgrade(self) -> bool:
        """Whether a classic group is converted when a member joins with the consumer protocol."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def allows_downgrade(self) -> bool:
        """Whether a group becomes classic when the last consumer protocol member leaves."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


class GroupSettings(NamedTuple):
    """The settings of a consumer group, with Kafka's defaults.

    Attributes
    ----------
    max_size, classic_max_size : int
        Maximum number of members of a consumer group and of a classic group.
    assignors : tuple of str
        The assignors that a member may choose. The first is the default.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = INT32_MAX
    classic_max_size: int = INT32_MAX
    assignors: tuple[str, ...] = ("uniform", "range")
    migration: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    assignment_interval_ms: int = 1_000
    regex_refresh_interval_ms: int = 600_000


class RuleContext(NamedTuple):
    """The inputs of a rule other than the group and the request.

    Attributes
    ----------
    now_ms : int
        Current time in Unix milliseconds, for records.
    now_ns : int
        Current monotonic time, for intervals.
    """

    topics: ClusterTopics
    settings: GroupSettings
    now_ms: int
    now_ns: int


class Refusal(Exception):
    """The reason to refuse a request: a Kafka error name and a message."""

    def __init__(self, error: str, message: str = "") -> None:
        super().__init__(error, message)
        self.error = error
        self.message = message


class Decision(NamedTuple):
    """The result of a request or a timeout: records, response and timers.

    Attributes
    ----------
    member : ConsumerMember or None
        The member after its request. Its session is restarted.
    group_epoch : int
        The epoch of the group after the request.
    is_reconciled : bool
        Whether the member's assignment has changed, so that its revocation timer must be started
        or stopped.
    has_checked_topics : bool
        Whether the topics were compared with the group's metadata hash.
    has_target : bool
        Whether a target assignment was computed.
    patterns : collection of str
        Patterns that must be resolved.
    left : collection of str
        Ids of the removed members, whose timers must be stopped.
    """

    records: list[Record]
    result: ConsumerHeartbeatResult | None = None
    member: ConsumerMember | None = None
    group_epoch: int = 0
    is_reconciled: bool = False
    has_checked_topics: bool = False
    has_target: bool = False
    patterns: Collection[str] = ()
    left: Collection[str] = ()


# -- requests --------------------------------------------------------------------------------------


def check_request(request: ConsumerHeartbeat, settings: GroupSettings) -> None:
    """Check the fields of a heartbeat that do not depend on the group's state.

    Raises
    ------
    Refusal
        INVALID_REQUEST or UNSUPPORTED_ASSIGNOR.
    """
    epoch = request.member_epoch
    needs_id = request.requires_member_id or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH
    for name, value in (
        ("MemberId", request.member_id if needs_id else None),
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            raise Refusal("INVALID_REQUEST", f"{name} can't be empty.")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise Refusal("INVALID_REQUEST", "InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise Refusal("INVALID_REQUEST", "MemberEpoch is invalid.")
    if request.assignor is not None and request.assignor not in settings.assignors:
        known = ", ".join(settings.assignors)
        raise Refusal(
            "UNSUPPORTED_ASSIGNOR",
            f"ServerAssignor {request.assignor} is not supported. Supported assignors: {known}.",
        )


def _check_join(request: ConsumerHeartbeat) -> None:
    if request.rebalance_timeout_ms == -1:
        raise Refusal("INVALID_REQUEST", "RebalanceTimeoutMs must be provided in first request.")
    if request.owned is None or request.owned:
        raise Refusal("INVALID_REQUEST", "TopicPartitions must be empty when (re-)joining.")
    if request.topics is None and request.regex is None:
        raise Refusal(
            "INVALID_REQUEST",
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when"
            " (re-)joining.",
        )


def check_room(group: ConsumerGroup, member_id: str, settings: GroupSettings) -> None:
    """Raise GROUP_MAX_SIZE_REACHED if the group is full and the member is new."""
    if len(group.members) >= settings.max_size and member_id not in group.members:
        raise Refusal(
            "GROUP_MAX_SIZE_REACHED",
            f"The consumer group has reached its maximum capacity of {settings.max_size} members.",
        )


def heartbeat(
    group: ConsumerGroup,
    request: ConsumerHeartbeat,
    at: RuleContext,
    check_pattern: Callable[[str], None],
) -> Decision:
    """Handle a heartbeat, with which a member joins, resubscribes or revokes partitions.

    Parameters
    ----------
    request : ConsumerHeartbeat
        A checked request that has a member id.
    check_pattern : callable
        Raises `Refusal` if a pattern is invalid.

    Raises
    ------
    Refusal
        GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID,
        FENCED_INSTANCE_ID or INVALID_REGULAR_EXPRESSION.
    """
    check_room(group, request.member_id, at.settings)
    member, records = _sender(group, request)
    updated = member._replace(
        instance_id=_or(request.instance_id, member.instance_id),
        rack_id=_or(request.rack_id, member.rack_id),
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        assignor=_or(request.assignor, member.assignor),
        topics=member.topics if request.topics is None else frozenset(request.topics),
        regex=_or(request.regex, member.regex),
        client_id=request.client_id,
        client_host=request.client_host,
        classic=None,
    )
    decision = update_member(
        group, member, updated, records, request.owned, at, check_pattern, bumps_for_regex=False
    )
    assert decision.member is not None
    is_full = (
        request.rebalance_timeout_ms != -1
        and (request.topics is not None or request.regex is not None)
        and request.owned is not None
    )
    shows_assignment = (
        request.member_epoch == JOIN_EPOCH or is_full or decision.member.assigned != member.assigned
    )
    result = ConsumerHeartbeatResult(
        decision.member.member_id,
        decision.member.member_epoch,
        at.settings.heartbeat_interval_ms,
        numbers_of(decision.member.assigned) if shows_assignment else None,
    )
    return decision._replace(result=result)


def _or(new: str | None, old: str | None) -> str | None:
    return old if new is None else new


def numbers_of(partitions: OwnedPartitions) -> Mapping[str, tuple[int, ...]]:
    """Return sorted partition numbers by topic id, without epochs."""
    return {topic_id: tuple(sorted(numbers)) for topic_id, numbers in sorted(partitions.items())}


def _sender(
    group: ConsumerGroup, request: ConsumerHeartbeat
) -> tuple[ConsumerMember, list[Record]]:
    """Return the member that sent a request, which may be new.

    If it replaces a static member, also return the records of the replacement.
    """
    is_joining = request.member_epoch == JOIN_EPOCH
    if request.instance_id is None:
        member = group.members.get(request.member_id)
        if member is None and not is_joining:
            raise unknown_member(group, request.member_id)
        member = ConsumerMember(request.member_id) if member is None else member
        _check_epoch(member, request)
        return member, []
    known = group.static_member(request.instance_id)
    if not is_joining:
        member = check_static(known, request.member_id, request.instance_id)
        _check_epoch(member, request)
        return member, []
    if known is None:
        return group.members.get(request.member_id, ConsumerMember(request.member_id)), []
    if known.classic is None and known.member_epoch != LEAVE_STATIC_EPOCH:
        raise Refusal(
            "UNRELEASED_INSTANCE_ID",
            f"Static member {request.member_id} with instance id {request.instance_id} cannot join"
            f" the group because the instance id is owned by {known.member_id} member.",
        )
    return replace_static(group, known, request.member_id)


def replace_static(
    group: ConsumerGroup, known: ConsumerMember, member_id: str
) -> tuple[ConsumerMember, list[Record]]:
    """Return a static member with its new id, and the records that replace the old member."""
    member = known._replace(member_id=member_id, member_epoch=0, previous_epoch=0)
    group_id = group.group_id
    target = group.target_of(known.member_id)
    return member, [
        *consumer_records.member_tombstones(group_id, known.member_id),
        consumer_records.member(group_id, member),
        consumer_records.target_assignment(group_id, member_id, target),
        consumer_records.current_assignment(group_id, member),
    ]


def check_static(known: ConsumerMember | None, member_id: str, instance_id: str) -> ConsumerMember:
    """Return a static member, or raise UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    if known is None:
        raise Refusal("UNKNOWN_MEMBER_ID", f"Instance id {instance_id} is unknown.")
    if known.member_id != member_id:
        raise Refusal(
            "FENCED_INSTANCE_ID",
            f"Static member {member_id} with instance id {instance_id} was fenced by member"
            f" {known.member_id}.",
        )
    return known


def unknown_member(group: ConsumerGroup, member_id: str) -> Refusal:
    """Return the error for a request of an unknown member."""
    return Refusal(
        "UNKNOWN_MEMBER_ID", f"Member {member_id} is not a member of group {group.group_id}."
    )


def _check_epoch(member: ConsumerMember, request: ConsumerHeartbeat) -> None:
    """Raise FENCED_MEMBER_EPOCH unless the request has the member's current epoch.

    The previous epoch is accepted if the member owns only assigned partitions: the response with
    the new epoch was lost.
    """
    epoch = request.member_epoch
    if epoch in (JOIN_EPOCH, member.member_epoch):
        return
    side = "greater" if epoch > member.member_epoch else "smaller"
    is_repeated = epoch < member.member_epoch and epoch == member.previous_epoch
    if not (is_repeated and _is_subset(request.owned, member.assigned)):
        raise Refusal(
            "FENCED_MEMBER_EPOCH",
            f"The consumer group member has a {side} member epoch ({epoch}) than the one known by"
            f" the group coordinator ({member.member_epoch}). The member must abandon all its"
            " partitions and rejoin.",
        )


def _is_subset(reported: Reported | None, assigned: OwnedPartitions) -> bool:
    return reported is not None and all(
        topic_id in assigned and all(number in assigned[topic_id] for number in numbers)
        for topic_id, numbers in reported.items()
    )


# -- changes of a member ---------------------------------------------------------------------------


def update_member(
    group: ConsumerGroup,
    member: ConsumerMember,
    updated: ConsumerMember,
    records: list[Record],
    reported: Reported | None,
    at: RuleContext,
    check_pattern: Callable[[str], None],
    *,
    bumps_for_regex: bool,
    assigns: bool = True,
) -> Decision:
    """Store a changed member, start a new epoch if necessary, and reconcile the member.

    Parameters
    ----------
    member, updated : ConsumerMember
        The member before and after its request.
    records : list of Record
        Records to write before the records of the update.
    bumps_for_regex : bool
        Whether a changed pattern starts a new epoch even if it is not resolved yet.
    assigns : bool
        Whether to compute a target assignment for a new epoch. If not, the member is only
        reconciled if the target assignment is current.
    """
    group_id = group.group_id
    if updated != member:
        records.append(consumer_records.member(group_id, updated))
    changes_names = updated.topics != member.topics
    changes_regex, is_resolved = _changed_regex(group, member, updated, records, check_pattern)
    bumps = changes_names or (changes_regex and (is_resolved or bumps_for_regex))
    epoch = group.group_epoch
    checks = bumps or group.checked_version != at.topics.version
    if checks:
        epoch = _checked_epoch(group, member, updated, records, at, bumps=bumps)
    target_epoch, target = group.target_epoch, _last_target(group, updated)
    has_target = assigns and target_epoch < epoch and _may_assign(group, at)
    if has_target:
        target_epoch = epoch
        target = _new_target(group, member, updated, records, epoch, at)
    after = updated
    if assigns or target_epoch >= epoch:
        is_resubscribed = changes_names or changes_regex
        after = _reconciled(group, updated, target, target_epoch, at, reported, is_resubscribed)
    if after != updated:
        records.append(consumer_records.current_assignment(group_id, after))
    return Decision(
        records,
        member=after,
        group_epoch=epoch,
        is_reconciled=after != updated,
        has_checked_topics=checks,
        has_target=has_target,
        patterns=patterns_to_resolve(group, member, updated, at),
    )


def _changed_regex(
    group: ConsumerGroup,
    member: ConsumerMember,
    updated: ConsumerMember,
    records: list[Record],
    check_pattern: Callable[[str], None],
) -> tuple[bool, bool]:
    """Return whether a member's pattern has changed, and whether the new pattern is resolved."""
    before, after = member.regex or "", updated.regex or ""
    if before == after:
        return False, False
    if before and _subscribers(group, before) == 1:
        records.append(consumer_records.regex_tombstone(group.group_id, before))
    if not after:
        return True, True
    if _subscribers(group, after) == 0:
        check_pattern(after)
        return True, False
    return True, after in group.regexes


def _subscribers(group: ConsumerGroup, pattern: str) -> int:
    return sum(count for each, count in group.subscriptions.items() if each.regex == pattern)


def _subscriptions_after(
    group: ConsumerGroup, member: ConsumerMember, updated: ConsumerMember
) -> set[Subscription]:
    """Return the group's subscriptions after a member is updated."""
    counts = group.subscriptions.copy()
    # a new member has no subscription, and `+counts` removes the negative count
    counts[Subscription.of(member)] -= 1
    counts[Subscription.of(updated)] += 1
    return set(+counts)


def _checked_epoch(
    group: ConsumerGroup,
    member: ConsumerMember,
    updated: ConsumerMember,
    records: list[Record],
    at: RuleContext,
    *,
    bumps: bool,
) -> int:
    """Return the group epoch, incremented if `bumps` is set or the subscribed topics changed."""
    topics = topics_of(_subscriptions_after(group, member, updated), group.regexes)
    metadata_hash = at.topics.hash_of(topics)
    epoch = group.group_epoch
    if bumps or metadata_hash != group.metadata_hash:
        epoch += 1
        records.append(consumer_records.group_epoch(group.group_id, epoch, metadata_hash))
    if group.has_partition_metadata:
        records.append(consumer_records.partition_metadata_tombstone(group.group_id))
    return epoch


def _last_target(group: ConsumerGroup, member: ConsumerMember) -> Target:
    if member.instance_id is None:
        return group.target_of(member.member_id)
    known = group.static_members.get(member.instance_id)
    return NO_TARGET if known is None else group.target_of(known)


def _may_assign(group: ConsumerGroup, at: RuleContext) -> bool:
    """Return whether enough time has passed since the last target assignment."""
    interval_ms = at.settings.assignment_interval_ms
    if group.target_ms == 0 or interval_ms == 0:
        return True
    assigned_ns = _since(group.assigned_ns, group.target_ms, at)
    return at.now_ns >= assigned_ns + interval_ms * NS_PER_MS


def _since(known_ns: int | None, stored_ms: int, at: RuleContext) -> int:
    """Return the monotonic time of an event. A loaded group only has its Unix time."""
    return at.now_ns - (at.now_ms - stored_ms) * NS_PER_MS if known_ns is None else known_ns


def _new_target(
    group: ConsumerGroup,
    member: ConsumerMember,
    updated: ConsumerMember,
    records: list[Record],
    epoch: int,
    at: RuleContext,
) -> Target:
    assignor = group.preferred_assignor(at.settings.assignors[0], member, updated)
    targets = compute_target(group, updated, at.topics, assignor)
    replaced = group.static_members.get(updated.instance_id or "")
    ids = {**dict.fromkeys(group.members), updated.member_id: None}
    if replaced is not None and replaced != updated.member_id:
        ids.pop(replaced, None)
    records += target_records(group, targets, ids, epoch, at.now_ms)
    return targets.get(updated.member_id, NO_TARGET)


def _reconciled(
    group: ConsumerGroup,
    member: ConsumerMember,
    target: Target,
    target_epoch: int,
    at: RuleContext,
    reported: Reported | None,
    is_resubscribed: bool,
) -> ConsumerMember:
    if not is_resubscribed and member.is_reconciled_to(target_epoch):
        return member
    try:
        return reconcile(
            member,
            target,
            target_epoch,
            subscribed_ids=at.topics.ids(topics_of_member(member, group.regexes)),
            is_free=group.is_free,
            reported=reported,
            is_resubscribed=is_resubscribed,
        )
    except MustRejoinError:
        raise Refusal(
            "FENCED_MEMBER_EPOCH",
            "The consumer group member is in a unknown state. The member must abandon all its"
            " partitions and rejoin.",
        ) from None


# -- patterns --------------------------------------------------------------------------------------


def patterns_to_resolve(
    group: ConsumerGroup, member: ConsumerMember, updated: ConsumerMember, at: RuleContext
) -> Collection[str]:
    """Return all patterns of a group if they must be resolved now, or no patterns if not.

    A group's patterns are resolved together: when a pattern is new, when topics have been created,
    and periodically.
    """
    after = updated.regex or ""
    if not after and not any(each.regex for each in group.subscriptions):
        return ()
    patterns = {
        each.regex
        for each in _subscriptions_after(group, member, updated)
        if each.regex is not None
    }
    must_resolve = len(patterns) != len(group.regexes) or bool(patterns - group.regexes.keys())
    if group.regexes:
        first = next(iter(group.regexes.values()))
        resolved_ns = _since(group.resolved_ns, first.resolved_ms, at)
        if at.now_ns <= resolved_ns + REGEX_REFRESH_MIN_MS * NS_PER_MS:
            return ()
        interval_ms = at.settings.regex_refresh_interval_ms
        must_resolve = must_resolve or at.now_ns > resolved_ns + interval_ms * NS_PER_MS
        known_version = -1 if group.resolved_version is None else group.resolved_version
        must_resolve = must_resolve or known_version < at.topics.created_version
    return sorted(patterns) if must_resolve else ()


def resolve(group: ConsumerGroup, found: Mapping[str, Iterable[str]], at: RuleContext) -> Decision:
    """Store the topics that match a group's patterns. If they changed, start a new epoch."""
    records = []
    regexes = dict(group.regexes)
    bumps = False
    for pattern, names in found.items():
        if _subscribers(group, pattern) == 0:
            continue
        resolved = ResolvedRegex(frozenset(names), at.topics.version, at.now_ms)
        before = group.regexes.get(pattern, ResolvedRegex(frozenset()))
        bumps = bumps or resolved.topics != before.topics
        regexes[pattern] = resolved
        records.append(consumer_records.resolved_regex(group.group_id, pattern, resolved))
    metadata_hash = at.topics.hash_of(topics_of(group.subscriptions, regexes))
    bumps = bumps or metadata_hash != group.metadata_hash
    if bumps:
        epoch = group.group_epoch + 1
        records.append(consumer_records.group_epoch(group.group_id, epoch, metadata_hash))
    return Decision(records, has_checked_topics=bumps)


# -- leaving ---------------------------------------------------------------------------------------


def leaving_member(group: ConsumerGroup, request: ConsumerHeartbeat) -> ConsumerMember:
    """Return the member that leaves, or raise UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    if request.instance_id is None:
        member = group.members.get(request.member_id)
        if member is None:
            raise unknown_member(group, request.member_id)
        return member
    known = group.static_member(request.instance_id)
    return check_static(known, request.member_id, request.instance_id)


def leave_temporarily(group: ConsumerGroup, member: ConsumerMember) -> Decision:
    """Let a static member leave temporarily. It keeps its partitions until its session expires."""
    away = member._replace(
        member_epoch=LEAVE_STATIC_EPOCH,
        revoking=NO_PARTITIONS,
        assigned={each: dict.fromkeys(numbers, 0) for each, numbers in member.assigned.items()},
    )
    result = ConsumerHeartbeatResult(member.member_id, LEAVE_STATIC_EPOCH)
    return Decision([consumer_records.current_assignment(group.group_id, away)], result)


def remove(group: ConsumerGroup, members: Collection[ConsumerMember], at: RuleContext) -> Decision:
    """Remove members and start a new epoch."""
    group_id = group.group_id
    records: list[Record] = []
    counts = group.subscriptions.copy()
    for member in members:
        records += consumer_records.member_tombstones(group_id, member.member_id)
        counts[Subscription.of(member)] -= 1
    left = set(+counts)
    patterns = {each.regex for each in left}
    gone = {member.regex for member in members if member.regex} - patterns
    records += (
        consumer_records.regex_tombstone(group_id, each) for each in sorted(filter(None, gone))
    )
    metadata_hash = at.topics.hash_of(topics_of(left, group.regexes))
    epoch = group.group_epoch + 1
    records.append(consumer_records.group_epoch(group_id, epoch, metadata_hash))
    return Decision(records, left=[member.member_id for member in members])


def must_revoke(member: ConsumerMember) -> bool:
    """Return whether a member must revoke partitions within its rebalance timeout."""
    return member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None
