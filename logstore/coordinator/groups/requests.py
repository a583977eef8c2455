"""Requests to the group coordinator and their results, as plain values.

An `error` is Kafka's error name, or None. Source: Kafka's messages JoinGroup, SyncGroup,
LeaveGroup, OffsetFetch, DescribeGroups and ListGroups. Fields that are only used on the wire are
left out.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from logstore.coordinator.groups.offsets import NO_GENERATION, NO_MEMBER, OffsetAndMetadata
from logstore.types import TopicPartition


class GroupType(enum.Enum):
    """The protocol of a group, with Kafka's name."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


Protocol = tuple[str, bytes]
"""The name of an assignor, and the member's metadata for it."""


class JoinRequest(NamedTuple):
    """A request to join or rejoin a group.

    Attributes
    ----------
    member_id : str
        Empty for a new member.
    session_timeout_ms : int
        The member is removed from the group after this time without a heartbeat.
    rebalance_timeout_ms : int
        The longest time that a rebalance waits for this member.
    protocols : tuple of (str, bytes)
        The supported assignors and their metadata, in order of preference.
    requires_member_id : bool
        Whether a new member gets an id and must join again with it (JoinGroup version 4).
    can_skip_assignment : bool
        Whether the client supports `skip_assignment` (JoinGroup version 9).
    may_describe : callable, optional
        Returns whether the member may describe a topic. This is used for the patterns of other
        members of a consumer group. By default, it may describe all topics.
    """

    group_id: str
    protocol_type: str
    protocols: tuple[Protocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str = NO_MEMBER
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    requires_member_id: bool = True
    can_skip_assignment: bool = True
    may_describe: Callable[[str], bool] | None = None


class JoinedMember(NamedTuple):
    """A member in the join result of the leader, with its metadata for the selected protocol."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """The result of a join. Only the leader gets `members`."""

    member_id: str
    error: str | None = None
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False

    def refused(self, error: str) -> JoinResult:
        """Return a result with an error instead."""
        return JoinResult(self.member_id, error)


JoinCallback = Callable[[JoinResult], object]


class SyncRequest(NamedTuple):
    """A request for the assignment of a member.

    The request of the leader contains all assignments.
    """

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = {}


class SyncResult(NamedTuple):
    """The result of a sync, which contains the assignment of the member."""

    error: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""

    def refused(self, error: str) -> SyncResult:
        """Return a result with an error instead."""
        return SyncResult(error)


SyncCallback = Callable[[SyncResult], object]


class LeavingMember(NamedTuple):
    """A member to remove. Admin clients identify a static member only by its instance id."""

    member_id: str = NO_MEMBER
    group_instance_id: str | None = None


class LeftMember(NamedTuple):
    """The result of removing one member."""

    member_id: str
    group_instance_id: str | None
    error: str | None


class LeaveResult(NamedTuple):
    """The results of removing members, in the order of the request."""

    error: str | None
    members: tuple[LeftMember, ...] = ()


class ConsumerHeartbeat(NamedTuple):
    """A member's heartbeat in a consumer group, which can also join or leave (KIP-848).

    Attributes
    ----------
    member_epoch : int
        0 to join, -1 to leave, or -2 to leave as a static member that will return.
    rebalance_timeout_ms : int
        The longest time for the member to give up partitions, or -1 if it has not changed.
    topics, regex, owned : optional
        None if they have not changed. `owned` contains partitions by topic id.
    requires_member_id : bool
        Whether the client generates its member id (version 1).
    """

    group_id: str
    member_id: str = NO_MEMBER
    member_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Mapping[str, Collection[int]] | None = None
    client_id: str = ""
    client_host: str = ""
    requires_member_id: bool = True


class ConsumerHeartbeatResult(NamedTuple):
    """The result of a heartbeat.

    Attributes
    ----------
    assignment : mapping of str to tuple of int, or None
        All partitions that the member may use, by topic id. None if they have not changed.
    """

    member_id: str = NO_MEMBER
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Mapping[str, tuple[int, ...]] | None = None
    error: str | None = None
    message: str | None = None

    def refused(self, error: str) -> ConsumerHeartbeatResult:
        """Return a result with an error instead."""
        return ConsumerHeartbeatResult(error=error)


ConsumerHeartbeatCallback = Callable[[ConsumerHeartbeatResult], object]


class FetchedOffset(NamedTuple):
    """A committed offset. None if no offset was committed, or if there is an error."""

    committed: OffsetAndMetadata | None
    error: str | None = None


class MemberDescription(NamedTuple):
    """A member in a description. Metadata and assignment are empty unless the group is stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(NamedTuple):
    """The description of a classic group.

    If the group does not exist, its state is `Dead` and `message` contains the reason.
    """

    group_id: str
    state: str
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[MemberDescription, ...] = ()
    error: str | None = None
    message: str | None = None


class ConsumerMemberDescription(NamedTuple):
    """A member in the description of a consumer group (ConsumerGroupDescribe).

    Attributes
    ----------
    assignment, target : mapping of str to tuple of int
        The partitions that the member has, and those that it will have, by topic name.
    """

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    regex: str | None
    assignment: Mapping[str, tuple[int, ...]]
    target: Mapping[str, tuple[int, ...]]
    is_classic: bool = False


class ConsumerGroupDescription(NamedTuple):
    """The description of a consumer group. If there is an error, the other fields are not set."""

    group_id: str
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[ConsumerMemberDescription, ...] = ()
    error: str | None = None
    message: str | None = None


class GroupListing(NamedTuple):
    """A group in the result of listing groups."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"


class DeletedOffsets(NamedTuple):
    """The results of deleting offsets. If the group has an error, `partitions` is empty."""

    error: str | None
    partitions: Mapping[TopicPartition, str | None] = {}
