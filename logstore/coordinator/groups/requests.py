"""Requests to the group coordinator and their results, as plain values.

An `error` is Kafka's error name, or None on success. Source: Kafka's messages JoinGroup, SyncGroup,
LeaveGroup, OffsetFetch, DescribeGroups and ListGroups, without fields that are only used on the
wire.
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
        The maximum time that a rebalance waits for this member.
    protocols : tuple of (str, bytes)
        The supported assignors and their metadata, in order of preference.
    requires_member_id : bool
        Whether a new member gets an id and must join again with it (JoinGroup version 4).
    can_skip_assignment : bool
        Whether the client supports `skip_assignment` (JoinGroup version 9).
    may_describe : callable, optional
        Returns whether the member may describe a topic. In a consumer group, it restricts the
        patterns that this join resolves. By default, the member may describe all topics.
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
    """A member in the leader's join result, with its metadata for the selected protocol."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """The result of a join. Only the leader's result contains `members`."""

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
    """A request for a member's assignment.

    The leader's request contains all assignments.
    """

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = {}


class SyncResult(NamedTuple):
    """The result of a sync, with the member's assignment."""

    error: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""

    def refused(self, error: str) -> SyncResult:
        """Return a result with an error instead."""
        return SyncResult(error)


SyncCallback = Callable[[SyncResult], object]


class LeavingMember(NamedTuple):
    """A member to remove. Admin clients identify static members only by their instance id."""

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
    """A ConsumerGroupHeartbeat, with which a member can also join or leave (KIP-848).

    Attributes
    ----------
    member_epoch : int
        0 to join, -1 to leave, or -2 to leave as a static member that will return.
    rebalance_timeout_ms : int
        The maximum time that the member may take to revoke partitions, or -1 if unchanged.
    topics, regex, owned : optional
        None if unchanged. `owned` contains partitions by topic id.
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
        All partitions that the member may consume, by topic id, or None if unchanged.
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
    """A committed offset, or None if there is none or an error occurred."""

    committed: OffsetAndMetadata | None
    error: str | None = None


class MemberDescription(NamedTuple):
    """A member of a described group. Metadata and assignment are empty unless it is stable."""

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
        The member's current partitions and its target partitions, by topic name.
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
    """The description of a consumer group. On an error, the other fields are not set."""

    group_id: str
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[ConsumerMemberDescription, ...] = ()
    error: str | None = None
    message: str | None = None


class GroupListing(NamedTuple):
    """A group in a ListGroups result."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"


class DeletedOffsets(NamedTuple):
    """The results of deleting offsets. On a group error, `partitions` is empty."""

    error: str | None
    partitions: Mapping[TopicPartition, str | None] = {}
