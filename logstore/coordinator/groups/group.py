"""A group of the classic protocol: its members, generation and state.

The implementation follows Kafka's GroupMetadata and MemberMetadata. The states are:

Empty                 no members; clients outside the group may commit offsets
PreparingRebalance    waiting for all members to rejoin
CompletingRebalance   waiting for the leader's assignments
Stable                assignments are known
Dead                  being deleted

Consumer groups (KIP-848) have the states Empty, Stable and Dead, and two more:

Assigning             a target assignment must be computed
Reconciling           members have not reached the target assignment yet
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from logstore.coordinator.groups.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    decode_subscription,
)
from logstore.coordinator.groups.records import NO_TIMEOUT
from logstore.coordinator.groups.requests import (
    GroupDescription,
    GroupType,
    JoinCallback,
    JoinedMember,
    JoinResult,
    MemberDescription,
    Protocol,
    SyncCallback,
)
from logstore.errors import InvalidRecordError
from logstore.messages.types import GroupMetadataValue
from logstore.types import NO_TIMESTAMP


class GroupState(enum.Enum):
    """The state of a group, with Kafka's name."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"


_BEFORE = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: {
        GroupState.EMPTY,
        GroupState.COMPLETING_REBALANCE,
        GroupState.STABLE,
    },
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
    GroupState.DEAD: set(GroupState),
}
"""The valid previous states of each state, for classic groups."""


@dataclass(slots=True, eq=False)
class Member:
    """A member of a group.

    Attributes
    ----------
    is_new : bool
        Whether the member's first rebalance is still in progress.
    on_join, on_sync : callable or None
        Callback of the waiting join or sync, or None if the member is not waiting.
    deadline_ns : int
        Monotonic time when the session expires.
    armed_ns : int or None
        Monotonic time when the session timer fires.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    on_join: JoinCallback | None = None
    on_sync: SyncCallback | None = None
    deadline_ns: int = 0
    armed_ns: int | None = None

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for a protocol, or b"" if it is not supported."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def vote(self, candidates: Iterable[str]) -> str:
        """Return the member's preferred protocol among the candidates."""
        known = set(candidates)
        return next(name for name, _ in self.protocols if name in known)


class Group:
    """The state of a group in memory.

    Attributes
    ----------
    members : dict of str to Member
        The members by id, in the order in which they joined.
    pending_members : dict of str to int
        Member ids that were assigned but have not joined yet, with their monotonic expiry times.
    pending_sync : set of str
        Members of this generation that have not requested their assignment yet.
    round : int
        The number of waits so far. A timer compares it to detect that its wait is over.
    is_delayed : bool
        Whether the group is waiting for the initial rebalance delay.
    has_new_member : bool
        Whether a member joined during the initial delay.
    subscribed_topics : frozenset of str or None
        Topics to which the members of a consumer group are subscribed, or None if unknown.
    """

    type = GroupType.CLASSIC

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_ms = NO_TIMESTAMP
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: dict[str, int] = {}
        self.pending_sync: set[str] = set()
        self.round = 0
        self.is_delayed = False
        self.has_new_member = False
        self.subscribed_topics: frozenset[str] | None = frozenset()

    def __repr__(self) -> str:
        return (
            f"<Group {self.group_id}: {self.state.value}, generation {self.generation_id},"
            f" {len(self.members)} members>"
        )

    @classmethod
    def from_record(cls, group_id: str, stored: GroupMetadataValue) -> Group:
        """Create a group from its stored record."""
        group = cls(group_id)
        for each in stored.members:
            # Version 0 of the record has only one timeout.
            has_one_timeout = each.rebalance_timeout == NO_TIMEOUT
            member = group.members[each.member_id] = Member(
                each.member_id,
                each.group_instance_id,
                each.client_id,
                each.client_host,
                each.session_timeout if has_one_timeout else each.rebalance_timeout,
                each.session_timeout,
                ((stored.protocol or "", bytes(each.subscription)),),
                bytes(each.assignment),
            )
            if member.group_instance_id is not None:
                group.static_members[member.group_instance_id] = member.member_id
        group.state = GroupState.STABLE if group.members else GroupState.EMPTY
        group.state_ms = stored.current_state_timestamp
        group.generation_id = stored.generation
        group.protocol_type = stored.protocol_type or None
        group.protocol_name = stored.protocol
        is_known = stored.leader in group.members
        group.leader = stored.leader if is_known else next(iter(group.members), None)
        group.subscribed_topics = group._topics_of_members()
        return group

    def to_record(self, assignments: Mapping[str, bytes]) -> GroupMetadataValue:
        """Return the value of the group's record with the given assignments."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.leader,
            current_state_timestamp=self.state_ms,
            members=[
                GroupMetadataValue.MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol_name),
                    assignment=assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ],
        )

    # -- state -----------------------------------------------------------------------------

    @property
    def rebalance_timeout_ms(self) -> int:
        """The members' longest rebalance timeout."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    @property
    def is_consumer_group(self) -> bool:
        """Whether the members use the embedded protocol of consumers."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def enter(self, state: GroupState, now_ms: int) -> None:
        """Change the state."""
        assert self.state in _BEFORE[state], f"{self.group_id}: {self.state} → {state}"
        self.state = state
        self.state_ms = now_ms

    def become_stable(self, protocol_type: str, now_ms: int) -> None:
        """Become stable with the members and assignments of a former consumer group."""
        self.protocol_type = protocol_type
        self.protocol_name = self.select_protocol()
        self.subscribed_topics = self._topics_of_members()
        self.state = GroupState.STABLE
        self.state_ms = now_ms

    def next_generation(self, now_ms: int) -> None:
        """Start the next generation with the current members."""
        self.generation_id += 1
        self.round += 1
        self.pending_sync.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.subscribed_topics = self._topics_of_members()
            self.enter(GroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.subscribed_topics = frozenset()
            self.enter(GroupState.EMPTY, now_ms)

    # -- members ---------------------------------------------------------------------------

    @property
    def awaiting_join(self) -> int:
        """The number of members that have joined the current rebalance."""
        return sum(each.on_join is not None for each in self.members.values())

    @property
    def has_all_joined(self) -> bool:
        """Whether all members have joined and no member id is pending."""
        return self.awaiting_join == len(self.members) and not self.pending_members

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        assert member.member_id not in self.members
        self.members[member.member_id] = member
        self.pending_members.pop(member.member_id, None)
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending member id."""
        member = self.members.pop(member_id, None)
        if member is not None and member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_members.pop(member_id, None)
        self.pending_sync.discard(member_id)

    def replace_static(self, old_member_id: str, new_member_id: str) -> Member:
        """Replace the member id of a rejoining static member. Return the member."""
        was_awaiting = old_member_id in self.pending_sync
        member = self.members.pop(old_member_id)
        assert member.group_instance_id is not None
        member.member_id = new_member_id
        self.members[new_member_id] = member
        self.static_members[member.group_instance_id] = new_member_id
        if self.leader == old_member_id:
            self.leader = new_member_id
        if was_awaiting:
            self.pending_sync.discard(old_member_id)
            self.pending_sync.add(new_member_id)
        return member

    def elect_joined_leader(self) -> bool:
        """Elect a leader among the members that have joined, preferably the current leader.

        Return False if no member has joined.
        """
        if self.leader is None:
            return False
        if self.members[self.leader].on_join is not None:
            return True
        joined = (each.member_id for each in self.members.values() if each.on_join is not None)
        leader = next(joined, None)
        if leader is not None:
            self.leader = leader
        return leader is not None

    def check_member(
        self, member_id: str, group_instance_id: str | None, generation_id: int | None = None
    ) -> str | None:
        """Return the error for a request's member ids and generation, or None if they are valid."""
        if group_instance_id is not None:
            known = self.static_members.get(group_instance_id)
            if known is None:
                return "UNKNOWN_MEMBER_ID"
            if known != member_id:
                return "FENCED_INSTANCE_ID"
        if member_id not in self.members:
            return "UNKNOWN_MEMBER_ID"
        is_current = generation_id is None or generation_id == self.generation_id
        return None if is_current else "ILLEGAL_GENERATION"

    # -- protocols -------------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: Iterable[Protocol]) -> bool:
        """Return whether all members support at least one of the given protocols."""
        names = [name for name, _ in protocols]
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(names)
        candidates = self._candidates() if self.members else set(names)
        return self.protocol_type == protocol_type and not candidates.isdisjoint(names)

    def select_protocol(self) -> str:
        """Return the protocol with the most votes among those that all members support."""
        candidates = self._candidates()
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def _candidates(self) -> set[str]:
        known = ({name for name, _ in each.protocols} for each in self.members.values())
        return set.intersection(*known)

    def _topics_of_members(self) -> frozenset[str] | None:
        if not self.members:
            return frozenset()
        if not self.is_consumer_group:
            return None
        try:
            return frozenset(
                topic
                for each in self.members.values()
                for topic in decode_subscription(each.metadata(self.protocol_name)).topics
            )
        except InvalidRecordError:
            return None  # the metadata is not in the consumer format; Kafka ignores it too

    # -- results ---------------------------------------------------------------------------

    def join_result(self, member: Member) -> JoinResult:
        """Return a member's join result in the current generation."""
        members = self.members.values() if member.member_id == self.leader else ()
        return JoinResult(
            member.member_id,
            None,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            self.leader or "",
            tuple(
                JoinedMember(
                    each.member_id, each.group_instance_id, each.metadata(self.protocol_name)
                )
                for each in members
            ),
        )

    def describe(self) -> GroupDescription:
        """Describe the group for admin clients."""
        is_stable = self.state is GroupState.STABLE
        return GroupDescription(
            self.group_id,
            self.state.value,
            self.protocol_type or "",
            (self.protocol_name or "") if is_stable else "",
            tuple(
                MemberDescription(
                    each.member_id,
                    each.group_instance_id,
                    each.client_id,
                    each.client_host,
                    each.metadata(self.protocol_name) if is_stable else b"",
                    each.assignment if is_stable else b"",
                )
                for each in self.members.values()
            ),
        )

    def _check(self) -> None:
        """Assert the invariants of the group."""
        assert (self.leader is None) == (not self.members)
        assert self.leader is None or self.leader in self.members
        assert all(member_id == each.member_id for member_id, each in self.members.items())
        assert self.static_members == {
            each.group_instance_id: each.member_id
            for each in self.members.values()
            if each.group_instance_id is not None
        }
        assert not self.members.keys() & self.pending_members.keys()
        if self.state in (GroupState.EMPTY, GroupState.DEAD):
            assert not self.members
        if self.state is GroupState.STABLE:
            assert all(each.on_sync is None for each in self.members.values())
        if self.state is not GroupState.PREPARING_REBALANCE:
            assert all(each.on_join is None for each in self.members.values())
