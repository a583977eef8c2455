"""The state of a consumer group, built from its records (KIP-848).

Only applying a record changes the state. The rules in `consumer_rules` read the state and decide
which records to write.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.coordinator.groups import consumer_records
from logstore.coordinator.groups.consumer_member import (
    LEAVE_EPOCH,
    NO_PARTITIONS,
    NO_TARGET,
    ClassicProtocols,
    ConsumerMember,
    MemberState,
    OwnedPartitions,
    ResolvedRegex,
    Target,
)
from logstore.coordinator.groups.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from logstore.coordinator.groups.group import GroupState
from logstore.coordinator.groups.java_maps import timeline_order
from logstore.coordinator.groups.requests import (
    ConsumerGroupDescription,
    ConsumerMemberDescription,
    GroupType,
)
from logstore.messages import Message
from logstore.messages.types import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from logstore.types import NO_TIMESTAMP

if TYPE_CHECKING:
    from logstore.coordinator.groups.cluster_topics import ClusterTopics
    from logstore.coordinator.groups.consumer_records import Record
    from logstore.coordinator.groups.offsets import ConsumerGroupMetadata


FIRST_EPOCH = 1
"""The epoch of a group, and of its target assignment, until a record sets it."""

_NO_EPOCH = -1
_EPOCHS_SINCE = 9
"""The first version of OffsetCommit that uses member epochs."""


class Subscription(NamedTuple):
    """The subscribed topics and the pattern of a member."""

    topics: frozenset[str]
    regex: str | None

    @classmethod
    def of(cls, member: ConsumerMember) -> Subscription:
        """Return a member's subscription."""
        return cls(member.topics, member.regex or None)


@dataclass(slots=True)
class Session:
    """A member's session: when it expires, and when its timer fires, in monotonic time."""

    deadline_ns: int = 0
    armed_ns: int | None = None


class ConsumerGroup:
    """The state of a consumer group.

    Attributes
    ----------
    group_epoch : int
        Incremented when subscriptions or topics change.
    metadata_hash : int
        Hash of the subscribed topics; see `ClusterTopics.hash_of`.
    target_epoch : int
        Group epoch of the target assignment, or -1 if it was deleted.
    target_ms : int
        Time of the target assignment in Unix milliseconds, or 0 if unknown.
    members : dict of str to ConsumerMember
    targets : dict of str to Target
        Target assignments by member id.
    regexes : dict of str to ResolvedRegex
        The topics that match each pattern.
    static_members : dict of str to str
        Member ids by instance id.
    subscriptions : Counter of Subscription
        The number of members with each subscription.
    has_partition_metadata : bool
        Whether the log contains a record of Kafka 4.0 that must be deleted.
    checked_version, resolved_version : int or None
        Topic versions at the last comparison with the hash, and at the last resolution of patterns.
        Neither these nor the two times below are stored.
    assigned_ns, resolved_ns : int or None
        Monotonic times of the last target assignment, and of the last resolution of patterns.
    sessions : dict of str to Session
        Sessions by member id.
    timeouts : dict
        Pending timeouts by kind and member id.
    """

    type = GroupType.CONSUMER
    protocol_type = CONSUMER_PROTOCOL_TYPE
    is_consumer_group = True
    pending_members: Mapping[str, int] = {}
    state_ms = NO_TIMESTAMP

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.target_epoch = FIRST_EPOCH
        self.target_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Target] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.static_members: dict[str, str] = {}
        self.subscriptions: Counter[Subscription] = Counter()
        self.has_partition_metadata = False
        self.checked_version: int | None = None
        self.resolved_version: int | None = None
        self.assigned_ns: int | None = None
        self.resolved_ns: int | None = None
        self.sessions: defaultdict[str, Session] = defaultdict(Session)
        self.timeouts: dict[tuple[str, str], object] = {}
        self._owners: dict[str, dict[int, str]] = {}
        self._is_dead = False
        # Whether every member has its target assignment. None if not computed since the last
        # change.
        self._is_reconciled: bool | None = None
        self._subscribed: frozenset[str] | None = None

    def __repr__(self) -> str:
        return (
            f"<ConsumerGroup {self.group_id}: {self.state.value}, epoch {self.group_epoch},"
            f" {len(self.members)} members>"
        )

    # -- questions -------------------------------------------------------------------------

    @property
    def state(self) -> GroupState:
        """The state of the group, derived from its members and epochs."""
        if self._is_dead:
            return GroupState.DEAD
        if not self.members:
            return GroupState.EMPTY
        if self.group_epoch > self.target_epoch:
            return GroupState.ASSIGNING
        if self._is_reconciled is None:
            self._is_reconciled = all(
                each.is_reconciled_to(self.target_epoch) for each in self.members.values()
            )
        return GroupState.STABLE if self._is_reconciled else GroupState.RECONCILING

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """The names of the subscribed topics, including topics that match patterns."""
        if self._subscribed is None:
            self._subscribed = topics_of(self.subscriptions, self.regexes)
        return self._subscribed

    @property
    def classic_members(self) -> int:
        """The number of members that use the classic protocol."""
        return sum(each.classic is not None for each in self.members.values())

    def target_of(self, member_id: str) -> Target:
        """Return the target assignment of a member, which may be empty."""
        return self.targets.get(member_id, NO_TARGET)

    def is_free(self, topic_id: str, partition: int) -> bool:
        """Return whether a partition is neither assigned nor being revoked."""
        return partition not in self._owners.get(topic_id, ())

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """Return the member with an instance id, or None if there is none."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def preferred_assignor(
        self,
        default: str,
        before: ConsumerMember | None = None,
        after: ConsumerMember | None = None,
    ) -> str:
        """Return the assignor that most members prefer once `after` has replaced `before`.

        A tie is resolved as in Kafka: the first name in its hash map is used. Both names are in
        the same bucket, and a new name is inserted at the front.
        """
        counts = Counter(each.assignor for each in self.members.values() if each.assignor)
        names = timeline_order(counts)
        if before is not None and before.assignor:
            counts[before.assignor] -= 1
        names = [name for name in names if counts[name] > 0]
        if after is not None and after.assignor:
            counts[after.assignor] += 1
            if after.assignor not in names:
                names.insert(0, after.assignor)
        return max(names, key=counts.__getitem__, default=default)

    # -- checks of offsets -----------------------------------------------------------------

    def check_commit(
        self,
        sender: ConsumerGroupMetadata,
        *,
        is_transactional: bool = False,
        version: int | None = None,
    ) -> str | None:
        """Return the error that applies to all offsets of a commit, or None if there is none.

        The generation id is the member epoch. If it is older than the member's current epoch, the
        caller must check each partition with `check_partition`.

        Parameters
        ----------
        version : int, optional
            Version of the OffsetCommit request.
        """
        epoch = sender.generation_id
        if epoch < 0 and not self.members:
            return None
        if is_transactional and not sender.is_member:
            return None
        member = self.members.get(sender.member_id)
        if member is None:
            return "UNKNOWN_MEMBER_ID"
        is_classic = member.classic is not None
        if not (is_transactional or is_classic) and version is not None and version < _EPOCHS_SINCE:
            return "UNSUPPORTED_VERSION"
        return _wrong_epoch(member) if epoch > member.member_epoch else None

    def check_partition(
        self, sender: ConsumerGroupMetadata, topic_id: str | None, partition: int
    ) -> str | None:
        """Return the error for one partition of a commit that `check_commit` accepted.

        A member may commit with an older epoch if it has owned the partition since that epoch
        (KIP-1251). Return None if the commit is valid.
        """
        member = self.members.get(sender.member_id)
        epoch = sender.generation_id
        if member is None or epoch == member.member_epoch:
            return None
        if epoch < 0 and not sender.is_member:
            return None
        assigned = None if topic_id is None else member.assignment_epoch(topic_id, partition)
        return _wrong_epoch(member) if assigned is None or epoch < assigned else None

    def check_fetch(self, member_id: str | None, member_epoch: int) -> str | None:
        """Return the error for an OffsetFetch with a member epoch, or None if it is valid."""
        if member_id is None and member_epoch < 0:
            return None
        member = self.members.get(member_id or "")
        if member is None:
            return "UNKNOWN_MEMBER_ID"
        return None if member_epoch == member.member_epoch else _wrong_epoch(member)

    # -- description -----------------------------------------------------------------------

    def describe_consumer_group(
        self, topics: ClusterTopics, default_assignor: str
    ) -> ConsumerGroupDescription:
        """Return the description for a ConsumerGroupDescribe response."""
        return ConsumerGroupDescription(
            self.group_id,
            self.state.value,
            self.group_epoch,
            self.target_epoch,
            self.preferred_assignor(default_assignor),
            tuple(
                ConsumerMemberDescription(
                    each.member_id,
                    each.instance_id,
                    each.rack_id,
                    each.member_epoch,
                    each.client_id,
                    each.client_host,
                    tuple(sorted(each.topics)),
                    each.regex,
                    _named((each.assigned, each.revoking), topics),
                    _named((self.target_of(each.member_id),), topics),
                    is_classic=each.classic is not None,
                )
                for each in self.members.values()
            ),
        )

    # -- records ---------------------------------------------------------------------------

    def apply(self, records: Iterable[Record]) -> None:
        """Apply records of this group, in order. Records of a classic group are ignored."""
        for key, value in records:
            apply = _APPLY.get(type(key))
            if apply is not None:
                apply(self, key, value)

    def deletion(self) -> list[Record]:
        """Return the tombstones of the group and of all its members."""
        group_id = self.group_id
        by_member = [consumer_records.member_tombstones(group_id, each) for each in self.members]
        return [
            *(records[0] for records in by_member),
            *(records[1] for records in by_member),
            consumer_records.target_epoch_tombstone(group_id),
            *(records[2] for records in by_member),
            *(consumer_records.regex_tombstone(group_id, each) for each in self.regexes),
            consumer_records.partition_metadata_tombstone(group_id),
            consumer_records.group_tombstone(group_id),
        ]

    def enter(self, state: GroupState, now_ms: int) -> None:
        """Enter the state DEAD. All other states are derived from the members and epochs."""
        del now_ms
        assert state is GroupState.DEAD
        self._is_dead = True

    def _apply_group(
        self, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None
    ) -> None:
        del key
        if value is not None:
            self.group_epoch, self.metadata_hash = value.epoch, value.metadata_hash

    def _apply_partition_metadata(
        self, key: ConsumerGroupPartitionMetadataKey, value: Message | None
    ) -> None:
        del key
        self.has_partition_metadata = value is not None

    def _apply_member(
        self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
    ) -> None:
        member_id = key.member_id
        if value is None:
            self._replace(self.members.pop(member_id, None), None)
            return
        before = self.members.get(member_id)
        classic = value.classic_member_metadata
        member = (ConsumerMember(member_id) if before is None else before)._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
            regex=value.subscribed_topic_regex,
            assignor=value.server_assignor,
            classic=None
            if classic is None
            else ClassicProtocols(
                classic.session_timeout_ms,
                tuple((each.name, bytes(each.metadata)) for each in classic.supported_protocols),
            ),
        )
        self._replace(before, member)

    def _apply_current(
        self,
        key: ConsumerGroupCurrentMemberAssignmentKey,
        value: ConsumerGroupCurrentMemberAssignmentValue | None,
    ) -> None:
        before = self.members.get(key.member_id)
        if value is not None:
            member = ConsumerMember(key.member_id) if before is None else before
            epoch = value.member_epoch
            self._replace(
                before,
                member._replace(
                    member_epoch=epoch,
                    previous_epoch=value.previous_member_epoch,
                    state=MemberState(value.state),
                    assigned=_owned(value.assigned_partitions, epoch),
                    revoking=_owned(value.partitions_pending_revocation, epoch),
                ),
            )
        elif before is not None:
            gone = before._replace(
                member_epoch=LEAVE_EPOCH,
                previous_epoch=LEAVE_EPOCH,
                assigned=NO_PARTITIONS,
                revoking=NO_PARTITIONS,
            )
            self._replace(before, gone)

    def _apply_target(
        self,
        key: ConsumerGroupTargetAssignmentMemberKey,
        value: ConsumerGroupTargetAssignmentMemberValue | None,
    ) -> None:
        if value is None:
            self.targets.pop(key.member_id, None)
        else:
            self.targets[key.member_id] = {
                each.topic_id: frozenset(each.partitions) for each in value.topic_partitions
            }

    def _apply_target_epoch(
        self,
        key: ConsumerGroupTargetAssignmentMetadataKey,
        value: ConsumerGroupTargetAssignmentMetadataValue | None,
    ) -> None:
        del key
        self._is_reconciled = None
        if value is None:
            self.target_epoch, self.target_ms = _NO_EPOCH, 0
        else:
            self.target_epoch, self.target_ms = value.assignment_epoch, value.assignment_timestamp

    def _apply_regex(
        self,
        key: ConsumerGroupRegularExpressionKey,
        value: ConsumerGroupRegularExpressionValue | None,
    ) -> None:
        self._subscribed = None
        if value is None:
            self.regexes.pop(key.regular_expression, None)
        else:
            self.regexes[key.regular_expression] = ResolvedRegex(
                frozenset(value.topics), value.version, value.timestamp
            )

    def _replace(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        """Replace a member, and update the owners, counts and static members."""
        self._is_reconciled = None
        if before is not None:
            self._release(before)
            self._count(before, -1)
            if before.instance_id is not None:
                known = self.static_members.get(before.instance_id)
                if known == before.member_id:
                    del self.static_members[before.instance_id]
        if after is not None:
            self.members[after.member_id] = after
            self._count(after, 1)
            if after.instance_id is not None:
                self.static_members[after.instance_id] = after.member_id
            for partitions in (after.assigned, after.revoking):
                for topic_id, numbers in partitions.items():
                    if not numbers:
                        continue
                    owners = self._owners.setdefault(topic_id, {})
                    owners.update(dict.fromkeys(numbers, after.member_id))

    def _count(self, member: ConsumerMember, change: int) -> None:
        subscription = Subscription.of(member)
        count = self.subscriptions[subscription] = self.subscriptions[subscription] + change
        if count == 0:
            del self.subscriptions[subscription]
        if count == (change > 0):
            self._subscribed = None

    def _release(self, member: ConsumerMember) -> None:
        for partitions in (member.assigned, member.revoking):
            for topic_id, numbers in partitions.items():
                owners = self._owners.get(topic_id, {})
                for number in numbers:
                    if owners.get(number) == member.member_id:
                        del owners[number]
                if not owners:
                    self._owners.pop(topic_id, None)

    def _check(self) -> None:
        """Assert the invariants of the group, above all that a partition has at most one owner."""
        owners: dict[str, dict[int, str]] = {}
        for member in self.members.values():
            for partitions in (member.assigned, member.revoking):
                for topic_id, numbers in partitions.items():
                    of_topic = owners.setdefault(topic_id, {})
                    for number in numbers:
                        assert number not in of_topic, (
                            f"{self.group_id}: {topic_id}-{number} has two owners"
                        )
                        of_topic[number] = member.member_id
        assert {key: value for key, value in owners.items() if value} == self._owners
        assert self.subscriptions == Counter(map(Subscription.of, self.members.values()))
        assert self.subscribed_topics == topics_of(self.subscriptions, self.regexes)
        assert self.targets.keys() <= self.members.keys()
        assert set(self.static_members.values()) == {
            each.member_id for each in self.members.values() if each.instance_id is not None
        }


_APPLY: Mapping[type[Message], Callable[[ConsumerGroup, Any, Any], None]] = {
    ConsumerGroupMetadataKey: ConsumerGroup._apply_group,
    ConsumerGroupPartitionMetadataKey: ConsumerGroup._apply_partition_metadata,
    ConsumerGroupMemberMetadataKey: ConsumerGroup._apply_member,
    ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroup._apply_target_epoch,
    ConsumerGroupTargetAssignmentMemberKey: ConsumerGroup._apply_target,
    ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroup._apply_current,
    ConsumerGroupRegularExpressionKey: ConsumerGroup._apply_regex,
}


def topics_of(
    subscriptions: Iterable[Subscription], regexes: Mapping[str, ResolvedRegex]
) -> frozenset[str]:
    """Return the topics of subscriptions. An unresolved pattern has no topics yet."""
    names: set[str] = set()
    for topics, regex in subscriptions:
        names |= topics
        if regex is not None and regex in regexes:
            names |= regexes[regex].topics
    return frozenset(names)


def topics_of_member(
    member: ConsumerMember, regexes: Mapping[str, ResolvedRegex]
) -> frozenset[str]:
    """Return the topics to which a member is subscribed."""
    resolved = regexes.get(member.regex) if member.regex else None
    return member.topics if resolved is None else member.topics | resolved.topics


def _wrong_epoch(member: ConsumerMember) -> str:
    return "STALE_MEMBER_EPOCH" if member.classic is None else "ILLEGAL_GENERATION"


def _owned(
    stored: Iterable[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions], epoch: int
) -> OwnedPartitions:
    """Return the stored partitions. Without assignment epochs, the member epoch is used."""
    owned = {}
    for each in stored:
        epochs: Collection[int] = each.assignment_epochs or ()
        if len(epochs) != len(each.partitions):
            epochs = [max(epoch, 0)] * len(each.partitions)
        owned[each.topic_id] = dict(zip(each.partitions, epochs, strict=True))
    return owned


def _named(
    partitions: Iterable[Mapping[str, Iterable[int]]], topics: ClusterTopics
) -> Mapping[str, tuple[int, ...]]:
    """Return partitions by topic name, without deleted topics."""
    named: dict[str, list[int]] = {}
    for by_id in partitions:
        for topic_id, numbers in by_id.items():
            topic = topics.of_id(topic_id)
            if topic is not None:
                named.setdefault(topic.name, []).extend(numbers)
    return {name: tuple(sorted(numbers)) for name, numbers in sorted(named.items())}
