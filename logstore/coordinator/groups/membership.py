"""The state machine of the classic rebalance protocol: joins, syncs, heartbeats and leaves.

States, responses and timeouts are the same as in Kafka's GroupCoordinator. The state machine uses
neither offsets nor the topic; its `save` function stores a group. A request that may wait for other
members takes a callback, which gets the result through `reply`. Errors are returned.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from logstore.coordinator.groups.group import Group, GroupState, Member
from logstore.coordinator.groups.offsets import NO_MEMBER, ConsumerGroupMetadata
from logstore.coordinator.groups.requests import (
    JoinCallback,
    JoinRequest,
    JoinResult,
    LeavingMember,
    SyncCallback,
    SyncRequest,
    SyncResult,
)
from logstore.types import MINUTE_MS

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig
    from logstore.coordinator.groups.timers import GroupTimers
    from logstore.runtime import Random
    from logstore.runtime.clock import Clock

logger = logging.getLogger(__name__)

EMPTY, DEAD = GroupState.EMPTY, GroupState.DEAD
PREPARING, COMPLETING = GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * MINUTE_MS
"""Session timeout of a new member until its first rebalance is complete.

Kafka has no config for it.
"""


class ClassicMembership:
    """Changes the members, generations and states of groups.

    The caller must serialize calls.

    Parameters
    ----------
    config : BrokerConfig
    timers : GroupTimers
    clock : Clock
        Provides the timestamps of state changes.
    rng : Random
        Used to generate member ids.
    reply : callable
        Calls a callback with a result after the coordinator's lock has been released.
    save : callable
        Stores a group with the given assignments. Returns an error name, or None on success.
    """

    def __init__(
        self,
        config: BrokerConfig,
        timers: GroupTimers,
        clock: Clock,
        rng: Random,
        reply: Callable[[Callable[[Any], object], object], None],
        save: Callable[[Group, Mapping[str, bytes]], str | None],
    ) -> None:
        self._config = config
        self._timers = timers
        self._clock = clock
        self._rng = rng
        self._reply = reply
        self._save = save

    # -- requests --------------------------------------------------------------------------

    def join(self, group: Group, request: JoinRequest, on_done: JoinCallback) -> str | None:
        """Add a member to the group. Return an error name, or None on success."""
        if not self._has_room(group, request.member_id):
            group.remove(request.member_id)
            self._try_complete_join(group)
            return "GROUP_MAX_SIZE_REACHED"
        if not group.supports(request.protocol_type, request.protocols):
            return "INCONSISTENT_GROUP_PROTOCOL"
        join = self._join_new if request.member_id == NO_MEMBER else self._join_again
        error = join(group, request, on_done)
        self._try_complete_join(group)
        return error

    def sync(self, group: Group, request: SyncRequest, on_done: SyncCallback) -> str | None:
        """Reply to a sync now or when assignments arrive, or return an error name."""
        member_id = request.member_id
        error = group.check_member(member_id, request.group_instance_id, request.generation_id)
        if error is not None:
            return error
        for requested, known in (
            (request.protocol_type, group.protocol_type),
            (request.protocol_name, group.protocol_name),
        ):
            if requested is not None and requested != known:
                return "INCONSISTENT_GROUP_PROTOCOL"
        if group.state is PREPARING:
            return "REBALANCE_IN_PROGRESS"
        member = group.members[member_id]
        group.pending_sync.discard(member_id)
        if group.state is STABLE:
            self._touch(group, member)
            self._reply(on_done, self._sync_result(group, member))
            return None
        self._reply_sync(member, SyncResult("REBALANCE_IN_PROGRESS"))
        member.on_sync = on_done
        if member_id == group.leader:
            self._take_assignments(group, request.assignments)
        return None

    def heartbeat(
        self, group: Group, generation_id: int, member_id: str, group_instance_id: str | None
    ) -> str | None:
        """Restart a member's session. Return an error name, or None on success."""
        error = group.check_member(member_id, group_instance_id, generation_id)
        if error is not None:
            return error
        self._touch(group, group.members[member_id])
        return "REBALANCE_IN_PROGRESS" if group.state is PREPARING else None

    def check_commit(self, group: Group, sender: ConsumerGroupMetadata) -> str | None:
        """Restart the session of a member that commits offsets.

        Return an error name if the member is not allowed to commit, or None if it is.
        """
        if sender.generation_id < 0 and group.state is EMPTY:
            # The commit is from an admin client, or from a consumer with manually assigned
            # partitions. A KIP-848 consumer sends a member id even if it does not join.
            return None
        if not sender.is_member:
            return "UNKNOWN_MEMBER_ID"
        error = group.check_member(sender.member_id, sender.group_instance_id, sender.generation_id)
        if error is not None:
            return error
        if group.state is COMPLETING:
            return "REBALANCE_IN_PROGRESS"
        self._touch(group, group.members[sender.member_id])
        return None

    def leave(self, group: Group, leaving: LeavingMember) -> str | None:
        """Remove a member and start a rebalance. Return an error name if it is unknown."""
        member_id, instance_id = leaving
        if member_id == NO_MEMBER:
            known = group.static_members.get(instance_id) if instance_id is not None else None
            if known is None:
                return "UNKNOWN_MEMBER_ID"
            member_id = known
        elif member_id in group.pending_members and instance_id is None:
            self._remove_pending(group, member_id)
            return None
        error = group.check_member(member_id, instance_id)
        if error is None:
            self._remove_member(group, group.members[member_id])
        return error

    # -- groups loaded and lost ------------------------------------------------------------

    def resume(self, group: Group) -> None:
        """Start the sessions of a group that has been loaded."""
        for member in group.members.values():
            self._touch(group, member)
        if len(group.members) > self._config.group_max_size:
            self._prepare_rebalance(group)

    def adopt(self, group: Group, *, must_rebalance: bool) -> None:
        """Start the sessions of a downgraded consumer group, and a rebalance if necessary."""
        for member in group.members.values():
            self._touch(group, member)
        if must_rebalance:
            self._prepare_rebalance(group)

    def abandon(self, group: Group) -> None:
        """End a group whose partition was deleted or replaced. Its waiting requests fail."""
        self._end(group, "NOT_COORDINATOR")

    def give_up(self, group: Group) -> None:
        """Drop a group that was converted to a consumer group. Waiting members must rejoin."""
        self._end(group, "REBALANCE_IN_PROGRESS")

    def _end(self, group: Group, error: str) -> None:
        for member in group.members.values():
            self._fail(member, error, member.member_id)
        group.enter(DEAD, self._clock.now_ms())

    def shift(self, group: Group, shift_ns: int) -> None:
        """Start new sessions after the timers were moved to a different clock."""
        for member_id in group.pending_members:
            group.pending_members[member_id] += shift_ns
        for member in group.members.values():
            member.armed_ns = None
            self._touch(group, member)

    # -- sessions --------------------------------------------------------------------------

    def _touch(self, group: Group, member: Member, timeout_ms: int | None = None) -> None:
        """Restart a member's session."""
        timeout_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        member.deadline_ns = self._timers.now_ns() + timeout_ms * 1_000_000
        self._arm(group, member)

    def _arm(self, group: Group, member: Member) -> None:
        """Set the session timer, unless it fires before the deadline anyway.

        An early timer is set again when it fires.
        """
        if member.armed_ns is None or member.deadline_ns < member.armed_ns:
            member.armed_ns = member.deadline_ns
            due_ns = member.deadline_ns
            self._timers.at(
                due_ns, "group-session", lambda: self._session_is_over(group, member, due_ns)
            )

    def _session_is_over(self, group: Group, member: Member, due_ns: int) -> None:
        if member.armed_ns != due_ns:
            return  # an earlier timer has been set
        member.armed_ns = None
        if group.members.get(member.member_id) is not member or group.state is DEAD:
            return
        if self._timers.now_ns() < member.deadline_ns:
            self._arm(group, member)
        elif member.is_new or (member.on_join is None and member.on_sync is None):
            logger.info(
                "group '%s': the session of %s has expired", group.group_id, member.member_id
            )
            self._remove_member(group, member)

    # -- joining ---------------------------------------------------------------------------

    def _has_room(self, group: Group, member_id: str) -> bool:
        """Return whether a member may join without exceeding the maximum group size (KIP-389)."""
        known = group.members.get(member_id)
        if group.state is PREPARING:
            # Only members that have joined count. In a group that is too large, the last members to
            # join are rejected.
            has_joined = known is not None and known.on_join is not None
            return has_joined or group.awaiting_join < self._config.group_max_size
        return (
            group.state is EMPTY
            or known is not None
            or len(group.members) < self._config.group_max_size
        )

    def _join_new(self, group: Group, request: JoinRequest, on_done: JoinCallback) -> str | None:
        instance_id = request.group_instance_id
        member_id = self._new_member_id(group, request)
        if instance_id is not None:
            known = group.static_members.get(instance_id)
            if known is not None:
                self._replace_static(group, known, member_id, request, on_done)
                return None
        elif request.requires_member_id:
            due_ms = request.session_timeout_ms
            group.pending_members[member_id] = self._timers.now_ns() + due_ms * 1_000_000
            self._timers.after(
                due_ms, "group-pending-member", lambda: self._forget_pending(group, member_id)
            )
            self._reply(on_done, JoinResult(member_id, "MEMBER_ID_REQUIRED"))
            return None
        self._add_member(group, member_id, request, on_done)
        return None

    def _new_member_id(self, group: Group, request: JoinRequest) -> str:
        """Return an unused member id.

        A generated id may be in use if an earlier broker had the same random seed.
        """
        instance_id = request.group_instance_id
        name = request.client_id if instance_id is None else instance_id
        while True:
            number = uuid.UUID(int=self._rng.getrandbits(128), version=4)
            member_id = f"{name}-{number}"
            if member_id not in group.members and member_id not in group.pending_members:
                return member_id

    def _join_again(self, group: Group, request: JoinRequest, on_done: JoinCallback) -> str | None:
        member_id = request.member_id
        if member_id in group.pending_members and request.group_instance_id is None:
            self._add_member(group, member_id, request, on_done)
            return None
        error = group.check_member(member_id, request.group_instance_id)
        if error is not None:
            return error
        member = group.members[member_id]
        is_same = member.protocols == request.protocols
        # A repeated join means that the member did not receive the response.
        if (group.state is COMPLETING and is_same) or (
            group.state is STABLE and is_same and member_id != group.leader
        ):
            self._touch(group, member)
            self._reply(on_done, group.join_result(member))
            return None
        self._update(member, request, on_done)
        self._maybe_prepare_rebalance(group)
        return None

    def _add_member(
        self, group: Group, member_id: str, request: JoinRequest, on_done: JoinCallback
    ) -> None:
        member = Member(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
            is_new=True,
            on_join=on_done,
        )
        if group.state is PREPARING and group.generation_id == 0:
            group.has_new_member = True
        group.add(member, request.protocol_type)
        # A client sends no heartbeat until it knows its member id, so it may have to wait longer
        # than its session timeout.
        self._touch(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._maybe_prepare_rebalance(group)

    def _update(self, member: Member, request: JoinRequest, on_done: JoinCallback) -> None:
        self._reply_join(member, JoinResult(member.member_id, "REBALANCE_IN_PROGRESS"))
        member.protocols = request.protocols
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.on_join = on_done

    def _replace_static(
        self,
        group: Group,
        old_member_id: str,
        member_id: str,
        request: JoinRequest,
        on_done: JoinCallback,
    ) -> None:
        """Give a rejoining static member a new member id, without a rebalance if possible."""
        leader_before = group.leader
        member = group.members[old_member_id]
        self._fail(member, "FENCED_INSTANCE_ID", old_member_id)
        group.replace_static(old_member_id, member_id)
        self._touch(group, member)
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        self._update(member, request, on_done)
        if group.state is STABLE and group.select_protocol() == group.protocol_name:
            assignments = {each.member_id: each.assignment for each in group.members.values()}
            error = self._save(group, assignments)
            member.on_join = None
            if error is not None:
                member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms = before
                group.replace_static(member_id, old_member_id)
                self._reply(on_done, JoinResult(NO_MEMBER, error))
                return
            result = group.join_result(member)
            if request.can_skip_assignment:
                result = result._replace(skip_assignment=group.leader == member_id)
            else:
                # An older client would recompute assignments as the leader, and a stable group
                # would ignore them. Return the previous leader id, so that the member does not
                # consider itself the leader.
                result = result._replace(leader=leader_before or NO_MEMBER, members=())
            self._reply(on_done, result)
        elif group.state in (STABLE, COMPLETING):
            # The leader may be computing an assignment for the old member id.
            self._prepare_rebalance(group)

    # -- rebalances ------------------------------------------------------------------------

    def _maybe_prepare_rebalance(self, group: Group) -> None:
        if group.state is not PREPARING:
            self._prepare_rebalance(group)

    def _prepare_rebalance(self, group: Group) -> None:
        """Start a rebalance and wait until all members rejoin."""
        if group.state is COMPLETING:
            self._propagate(group, error="REBALANCE_IN_PROGRESS")
        was_empty = group.state is EMPTY
        group.enter(PREPARING, self._clock.now_ms())
        delay_ms = self._config.group_initial_rebalance_delay_ms
        if was_empty and delay_ms > 0:
            group.has_new_member = False
            left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._wait_for_first(group, delay_ms, left_ms)
        elif was_empty:
            self._complete_join(group)
        else:
            self._wait_for_joins(group)
            self._try_complete_join(group)

    def _wait_for_first(self, group: Group, delay_ms: int, left_ms: int) -> None:
        """Delay a group's first rebalance. Each new member extends the delay."""

        def on_delay_elapsed(group: Group) -> None:
            if group.has_new_member and left_ms > 0:
                group.has_new_member = False
                step_ms = min(self._config.group_initial_rebalance_delay_ms, left_ms)
                self._wait_for_first(group, step_ms, left_ms - step_ms)
            else:
                self._complete_join(group)

        group.is_delayed = True
        self._wait(group, delay_ms, "group-initial-rebalance", on_delay_elapsed)

    def _wait_for_joins(self, group: Group) -> None:
        group.is_delayed = False
        self._wait(group, group.rebalance_timeout_ms, "group-rebalance", self._complete_join)

    def _wait(
        self, group: Group, delay_ms: int, name: str, on_delay_elapsed: Callable[[Group], None]
    ) -> None:
        """Call `on_delay_elapsed` after a delay, unless this wait has ended earlier."""
        group.round += 1
        round_number = group.round

        def run() -> None:
            if group.round == round_number and group.state is not DEAD:
                on_delay_elapsed(group)

        self._timers.after(delay_ms, name, run)

    def _try_complete_join(self, group: Group) -> None:
        if group.state is PREPARING and not group.is_delayed and group.has_all_joined:
            self._complete_join(group)

    def _complete_join(self, group: Group) -> None:
        """Remove dynamic members that have not joined, and start the next generation."""
        for member in list(group.members.values()):
            if member.on_join is None and member.group_instance_id is None:
                group.remove(member.member_id)
        if group.members and not group.elect_joined_leader():
            # All members are static, and no member has rejoined. Wait until they rejoin or their
            # sessions expire.
            self._wait_for_joins(group)
            return
        group.next_generation(self._clock.now_ms())
        if group.state is EMPTY:
            error = self._save(group, {})
            if error is not None:
                logger.warning("%s: cannot store the empty group: %s", group, error)
            return
        for member in group.members.values():
            self._reply_join(member, group.join_result(member))
            self._touch(group, member)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        self._wait(group, group.rebalance_timeout_ms, "group-sync", self._remove_silent)

    def _remove_silent(self, group: Group) -> None:
        """Remove members that have not requested their assignment in time."""
        silent = [each for each in group.members if each in group.pending_sync]
        for member_id in silent:
            group.remove(member_id)
        if silent:
            self._prepare_rebalance(group)

    def _take_assignments(self, group: Group, assignments: Mapping[str, bytes]) -> None:
        by_member = {each: assignments.get(each, b"") for each in group.members}
        error = self._save(group, by_member)
        if error is not None:
            self._propagate(group, error=error)
            self._prepare_rebalance(group)
            return
        for member_id, assignment in by_member.items():
            group.members[member_id].assignment = assignment
        group.enter(STABLE, self._clock.now_ms())
        self._propagate(group)

    def _propagate(self, group: Group, *, error: str | None = None) -> None:
        """Send assignments, or an error, to the members that wait for a sync."""
        for member in group.members.values():
            if error is not None:
                member.assignment = b""
            if member.on_sync is not None:
                result = self._sync_result(group, member) if error is None else SyncResult(error)
                self._reply_sync(member, result)
                self._touch(group, member)

    def _sync_result(self, group: Group, member: Member) -> SyncResult:
        return SyncResult(None, group.protocol_type, group.protocol_name, member.assignment)

    # -- leaving ---------------------------------------------------------------------------

    def _remove_member(self, group: Group, member: Member) -> None:
        self._fail(member, "UNKNOWN_MEMBER_ID", NO_MEMBER)
        group.remove(member.member_id)
        if group.state is PREPARING:
            self._try_complete_join(group)
        else:
            self._prepare_rebalance(group)

    def _forget_pending(self, group: Group, member_id: str) -> None:
        due_ns = group.pending_members.get(member_id)
        if due_ns is not None and due_ns <= self._timers.now_ns() and group.state is not DEAD:
            self._remove_pending(group, member_id)

    def _remove_pending(self, group: Group, member_id: str) -> None:
        group.remove(member_id)
        self._try_complete_join(group)

    # -- replies ---------------------------------------------------------------------------

    def _reply_join(self, member: Member, result: JoinResult) -> None:
        """Respond to a member's join if the member is waiting."""
        if member.on_join is not None:
            self._reply(member.on_join, result)
            member.on_join = None

    def _reply_sync(self, member: Member, result: SyncResult) -> None:
        if member.on_sync is not None:
            self._reply(member.on_sync, result)
            member.on_sync = None

    def _fail(self, member: Member, error: str, member_id: str) -> None:
        """Respond with an error to all waiting requests of a member."""
        self._reply_join(member, JoinResult(member_id, error))
        self._reply_sync(member, SyncResult(error))
