"""A member of a consumer group, and its partitions (KIP-848)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
"""Member epochs that have a special meaning. All others are positive."""

OwnedPartitions = Mapping[str, Mapping[int, int]]
"""Partitions by topic id, each with the member epoch in which it was assigned (KIP-1251)."""

Target = Mapping[str, frozenset[int]]
"""The partitions of a target assignment by topic id."""

NO_PARTITIONS: OwnedPartitions = {}
NO_TARGET: Target = {}


class MemberState(enum.IntEnum):
    """The progress of a member towards its target assignment.

    Attributes
    ----------
    STABLE
        The member has its target assignment.
    UNREVOKED_PARTITIONS
        The member must revoke partitions before it advances to the next epoch.
    UNRELEASED_PARTITIONS
        The member has the latest epoch, but waits for partitions that other members still own.
    UNKNOWN
        A state written by a newer version of Kafka. The member must rejoin without partitions.
    """

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


class ClassicProtocols(NamedTuple):
    """The session timeout and the assignors of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class ResolvedRegex(NamedTuple):
    """The topics that match a pattern.

    Attributes
    ----------
    version : int
        The topic version (`ClusterTopics.version`) when the pattern was resolved.
    resolved_ms : int
        When the pattern was resolved, in Unix milliseconds.
    """

    topics: frozenset[str]
    version: int = 0
    resolved_ms: int = 0


class ConsumerMember(NamedTuple):
    """An immutable member of a consumer group. Each change creates a new object.

    Attributes
    ----------
    previous_epoch : int
        The previous member epoch, or -1 if the member is new.
    regex : str or None
        Pattern for additional topics, in RE2 syntax. May be empty.
    assigned : mapping
        The partitions that the member may consume.
    revoking : mapping
        The partitions that the member must revoke before it advances to the next epoch.
    classic : ClassicProtocols or None
        None if the member uses the consumer protocol.
    """

    member_id: str
    member_epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str | None = ""
    assignor: str | None = None
    assigned: OwnedPartitions = NO_PARTITIONS
    revoking: OwnedPartitions = NO_PARTITIONS
    classic: ClassicProtocols | None = None

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Return whether the member has its target assignment for an epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch

    def advance(self, member_epoch: int) -> ConsumerMember:
        """Return the member with a new epoch, which may equal the current epoch."""
        return self._replace(member_epoch=member_epoch, previous_epoch=self.member_epoch)

    def assignment_epoch(self, topic_id: str, partition: int) -> int | None:
        """Return the epoch in which a partition was assigned, or None if it is not assigned."""
        for owned in (self.assigned, self.revoking):
            epoch = owned.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None
