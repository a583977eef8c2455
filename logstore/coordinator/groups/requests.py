"""Requests of members and answers of the coordinator, as plain values.

An `error` is Kafka's name of it, or None. Source: the messages of JoinGroup, SyncGroup, LeaveGroup,
OffsetFetch, DescribeGroups and ListGroups, without what only the wire needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from logstore.coordinator.groups.offsets import NO_GENERATION, NO_MEMBER, OffsetAndMetadata
from logstore.types import TopicPartition

Protocol = tuple[str, bytes]
"""An assignor's name, and the member's metadata for it."""


class JoinRequest(NamedTuple):
    """A member that joins, or joins again.

    Attributes
    ----------
    member_id : str
        Empty for a member that has none yet.
    session_timeout_ms : int
        Silence after which the member is taken out of the group.
    rebalance_timeout_ms : int
        Longest time that the others wait for the member in a rebalance.
    protocols : tuple of (str, bytes)
        Assignors that the member supports, the preferred one first.
    requires_member_id : bool
        Whether a new member gets an id and joins again with it (JoinGroup 4 and above).
    can_skip_assignment : bool
        Whether a returning static leader is told so, and assigns nothing (JoinGroup 9 and above).
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


class JoinedMember(NamedTuple):
    """A member as its leader sees it; `metadata` is for the chosen protocol."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """The end of a rebalance; `members` are for the leader alone."""

    member_id: str
    error: str | None = None
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class SyncRequest(NamedTuple):
    """A member's request for its assignment; the leader's carries the assignments of all."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = {}


class SyncResult(NamedTuple):
    """A member's assignment."""

    error: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class LeavingMember(NamedTuple):
    """A member to remove; an administrator names a static one by instance id alone."""

    member_id: str = NO_MEMBER
    group_instance_id: str | None = None


class LeftMember(NamedTuple):
    """Outcome of one member's removal."""

    member_id: str
    group_instance_id: str | None
    error: str | None


class LeaveResult(NamedTuple):
    """Outcomes of removals, in the order of the request."""

    error: str | None
    members: tuple[LeftMember, ...] = ()


class FetchedOffset(NamedTuple):
    """A committed offset; None if there is none, or with an error."""

    committed: OffsetAndMetadata | None
    error: str | None = None


class MemberDescription(NamedTuple):
    """A member as an administrator sees it; `assignment` is empty while nothing is assigned."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(NamedTuple):
    """A group as an administrator sees it; one that does not exist is `Dead`."""

    group_id: str
    state: str
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[MemberDescription, ...] = ()
    error: str | None = None


class GroupListing(NamedTuple):
    """A group as it is listed."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"


class DeletedOffsets(NamedTuple):
    """Outcomes of deletions of offsets; none by partition if the group has an error."""

    error: str | None
    partitions: Mapping[TopicPartition, str | None] = {}
