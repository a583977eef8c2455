"""A member of a consumer group, and the values that describe its partitions (KIP-848)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
"""Member epochs with a meaning of their own; all others are positive."""

OwnedPartitions = Mapping[str, Mapping[int, int]]
"""Partitions by topic id, each with the member epoch in which it was assigned (KIP-1251)."""

Target = Mapping[str, frozenset[int]]
"""Partitions of a target assignment by topic id."""

NO_PARTITIONS: OwnedPartitions = {}
NO_TARGET: Target = {}


class MemberState(enum.IntEnum):
    """Progress of a member towards its target assignment.

    Attributes
    ----------
    STABLE
        The member has its target assignment.
    UNREVOKED_PARTITIONS
        The member must revoke partitions before its epoch may advance.
    UNRELEASED_PARTITIONS
        The member has the latest epoch, but waits for partitions of other members.
    UNKNOWN
        A state of a later version of Kafka. The member must rejoin without partitions.
    """

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


class ClassicProtocols(NamedTuple):
    """Session timeout and supported assignors of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class ResolvedRegex(NamedTuple):
    """The topics that match a pattern.

    Attributes
    ----------
    version : int
        Version of the cluster's topics at that time.
    resolved_ms : int
        Unix time in ms.
    """

    topics: frozenset[str]
    version: int = 0
    resolved_ms: int = 0


class ConsumerMember(NamedTuple):
    """A member. Values are immutable; each change of a member makes a new one.

    Attributes
    ----------
    previous_epoch : int
        Epoch before the last change of the epoch; -1 if the member is new.
    regex : str or None
        Pattern of further topics, in RE2 syntax. It may be empty or None.
    assigned : mapping
        Partitions that the member may use.
    revoking : mapping
        Partitions that the member must give up first.
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
        """Return whether the member has its target assignment of an epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch

    def advance(self, member_epoch: int) -> ConsumerMember:
        """Return the member with a new epoch, which may equal the old one."""
        return self._replace(member_epoch=member_epoch, previous_epoch=self.member_epoch)

    def assignment_epoch(self, topic_id: str, partition: int) -> int | None:
        """Return the epoch in which a partition was assigned, or None if it is not assigned."""
        for owned in (self.assigned, self.revoking):
            epoch = owned.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None
