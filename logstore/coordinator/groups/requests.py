"""Requests to the group coordinator and their results, as plain values.

An `error` is Kafka's error name, or None. Source: Kafka's messages JoinGroup, SyncGroup,
LeaveGroup, OffsetFetch, DescribeGroups and ListGroups, without fields that only matter on the wire.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from logstore.coordinator.groups.offsets import NO_GENERATION, NO_MEMBER, OffsetAndMetadata
from logstore.types import TopicPartition


class GroupType(enum.Enum):
    """Protocol of a group, with Kafka's names."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


Protocol = tuple[str, bytes]
"""An assignor's name, and the member's metadata for it."""


class JoinRequest(NamedTuple):
    """A request to join or rejoin a group.

    Attributes
    ----------
    member_id : str
        Empty for a new member.
    session_timeout_ms : int
        Time without a heartbeat after which the member is removed from the group.
    rebalance_timeout_ms : int
        Longest time that a rebalance waits for the member.
    protocols : tuple of (str, bytes)
        Supported assignors with metadata, in order of preference.
    requires_member_id : bool
        Whether a new member is assigned an id with which it must rejoin (JoinGroup version 4).
    can_skip_assignment : bool
        Whether the client understands `skip_assignment` (JoinGroup version 9).
    may_describe : callable, optional
        Returns whether the member may describe a topic, for the patterns of other members of a
        consumer group. By default, it may describe all.
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
    """Result of a join. Only the leader gets `members`."""

    member_id: str
    error: str | None = None
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False

    def refused(self, error: str) -> JoinResult:
        """Return the result with an error instead."""
        return JoinResult(self.member_id, error)


JoinCallback = Callable[[JoinResult], object]


class SyncRequest(NamedTuple):
    """A request for a member's assignment. The leader's request carries all assignments."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = {}


class SyncResult(NamedTuple):
    """Result of a sync: the member's assignment."""

    error: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""

    def refused(self, error: str) -> SyncResult:
        """Return the result with an error instead."""
        return SyncResult(error)


SyncCallback = Callable[[SyncResult], object]


class LeavingMember(NamedTuple):
    """A member to remove. Admin clients identify static members by instance id alone."""

    member_id: str = NO_MEMBER
    group_instance_id: str | None = None


class LeftMember(NamedTuple):
    """Result of the removal of one member."""

    member_id: str
    group_instance_id: str | None
    error: str | None


class LeaveResult(NamedTuple):
    """Results of removals, in the order of the request."""

    error: str | None
    members: tuple[LeftMember, ...] = ()


class ConsumerHeartbeat(NamedTuple):
    """A member's heartbeat in a consumer group, with which it also joins and leaves (KIP-848).

    Attributes
    ----------
    member_epoch : int
        0 to join, -1 to leave, -2 to leave as a static member that will return.
    rebalance_timeout_ms : int
        Longest time in which the member gives up partitions; -1 if it did not change.
    topics, regex, owned : optional
        None if they did not change. `owned` maps topic ids to partitions.
    requires_member_id : bool
        Whether the client generates its id (version 1).
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
    """Result of a heartbeat.

    Attributes
    ----------
    assignment : mapping of str to tuple of int, or None
        All partitions that the member may use, by topic id; None if they did not change.
    """

    member_id: str = NO_MEMBER
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Mapping[str, tuple[int, ...]] | None = None
    error: str | None = None
    message: str | None = None

    def refused(self, error: str) -> ConsumerHeartbeatResult:
        """Return the result with an error instead."""
        return ConsumerHeartbeatResult(error=error)


ConsumerHeartbeatCallback = Callable[[ConsumerHeartbeatResult], object]


class FetchedOffset(NamedTuple):
    """A committed offset; None if there is none, or on error."""

    committed: OffsetAndMetadata | None
    error: str | None = None


class MemberDescription(NamedTuple):
    """A member's description; metadata and assignment are empty unless the group is stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(NamedTuple):
    """A description of a classic group.

    If it does not exist, the state is `Dead`, and `message` gives the reason.
    """

    group_id: str
    state: str
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[MemberDescription, ...] = ()
    error: str | None = None
    message: str | None = None


class ConsumerMemberDescription(NamedTuple):
    """A member of a consumer group (ConsumerGroupDescribe).

    Attributes
    ----------
    assignment, target : mapping of str to tuple of int
        Partitions by topic name: those that the member has, and those that it will have.
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
    """A consumer group's description. All other fields are unset if there is an error."""

    group_id: str
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[ConsumerMemberDescription, ...] = ()
    error: str | None = None
    message: str | None = None


class GroupListing(NamedTuple):
    """A group in a listing."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"


class DeletedOffsets(NamedTuple):
    """Results of offset deletions; `partitions` is empty if the group has an error."""

    error: str | None
    partitions: Mapping[TopicPartition, str | None] = {}
