"""The members of consumer groups: their requests, sessions and timeouts (KIP-848).

`consumer_rules` and `migration` make the decisions. This module writes the records, applies them
to the group, sets timers and responds. If the records cannot be written, the group is unchanged.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from logstore.coordinator.groups import consumer_records, consumer_rules, migration
from logstore.coordinator.groups.consumer_group import ConsumerGroup
from logstore.coordinator.groups.consumer_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerMember,
)
from logstore.coordinator.groups.consumer_rules import (
    NS_PER_MS,
    Decision,
    Refusal,
    RuleContext,
)
from logstore.coordinator.groups.group import Group, GroupState
from logstore.coordinator.groups.requests import (
    ConsumerHeartbeat,
    ConsumerHeartbeatCallback,
    ConsumerHeartbeatResult,
    JoinCallback,
    JoinRequest,
    LeavingMember,
    SyncCallback,
    SyncRequest,
)
from logstore.coordinator.groups.topic_patterns import resolve_patterns
from logstore.errors import InvalidRegularExpressionError
from logstore.runtime.patterns import compile_pattern
from logstore.types import encode_topic_id

if TYPE_CHECKING:
    from logstore.coordinator.groups.cluster_topics import TopicsFollower
    from logstore.coordinator.groups.consumer_rules import GroupSettings
    from logstore.coordinator.groups.membership import ClassicMembership
    from logstore.coordinator.groups.registry import AnyGroup
    from logstore.coordinator.groups.store import GroupStore
    from logstore.coordinator.groups.timers import GroupTimers
    from logstore.runtime import Random
    from logstore.runtime.clock import Clock

logger = logging.getLogger(__name__)

RETRY_BACKOFF_MS = 500
"""How long to wait before retrying a timeout whose records could not be written, as in Kafka."""

MayDescribe = Callable[[str], bool]
"""Returns whether a member may describe a topic."""


class ConsumerMembership:
    """Changes consumer groups. The caller must serialize calls.

    Parameters
    ----------
    timers : GroupTimers
    clock : Clock
        Provides the timestamps of records.
    rng : Random
        Used to generate member ids.
    topics : TopicsFollower
    store : GroupStore
    classic : ClassicMembership
        Takes over groups that become classic groups.
    put : callable
        Adds a group to the registry, replacing any group with the same id.
    settings_of : callable
        Returns the settings of a group, given its id.
    reply : callable
        Calls a callback with a result after the coordinator's lock has been released.
    """

    def __init__(
        self,
        timers: GroupTimers,
        clock: Clock,
        rng: Random,
        topics: TopicsFollower,
        store: GroupStore,
        classic: ClassicMembership,
        put: Callable[[AnyGroup], None],
        settings_of: Callable[[str], GroupSettings],
        reply: Callable[[Callable[[Any], object], object], None],
    ) -> None:
        self._timers = timers
        self._clock = clock
        self._rng = rng
        self._topics = topics
        self._store = store
        self._classic = classic
        self._put = put
        self._settings_of = settings_of
        self._reply = reply

    # -- requests of the consumer protocol -------------------------------------------------

    def heartbeat(
        self,
        group: AnyGroup | None,
        request: ConsumerHeartbeat,
        on_done: ConsumerHeartbeatCallback,
        may_describe: MayDescribe | None = None,
    ) -> None:
        """Handle a heartbeat.

        Parameters
        ----------
        may_describe : callable, optional
            Restricts the group's patterns to topics that the member may describe. By default, it
            may describe all topics.
        """
        at = self._context(request.group_id)
        try:
            consumer_rules.check_request(request, at.settings)
            if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
                result = self._leave(_consumer_group(group, request.group_id), request, at)
            else:
                result = self._heartbeat(group, request, at, may_describe)
        except Refusal as refusal:
            result = ConsumerHeartbeatResult(error=refusal.error, message=refusal.message)
        self._reply(on_done, result)

    def _heartbeat(
        self,
        group: AnyGroup | None,
        request: ConsumerHeartbeat,
        at: RuleContext,
        may_describe: MayDescribe | None,
    ) -> ConsumerHeartbeatResult:
        records: list[consumer_records.Record] = []
        classic: Group | None = None
        if request.member_epoch != JOIN_EPOCH:
            known = _consumer_group(group, request.group_id)
        elif group is None:
            known = ConsumerGroup(request.group_id)
        elif isinstance(group, Group):
            classic = group
            known, records = migration.upgrade(group, at.topics, at.settings)
        else:
            known = group
        if not request.member_id:
            request = request._replace(member_id=self._new_member_id())
        decision = consumer_rules.heartbeat(known, request, at, check_pattern)
        assert decision.result is not None
        if known is not group:
            # The records describe the whole group, so apply them to an empty group.
            known = ConsumerGroup(request.group_id)
        self._write(known, [*records, *decision.records])
        if known is not group:
            if classic is not None:
                self._classic.give_up(classic)
            self._put(known)
            for member_id in known.members:
                self._touch(known, member_id)
        self._act(known, decision, at)
        if decision.patterns:
            self._resolve(known, decision.patterns, may_describe)
        return decision.result

    def _leave(
        self, group: ConsumerGroup, request: ConsumerHeartbeat, at: RuleContext
    ) -> ConsumerHeartbeatResult:
        member = consumer_rules.leaving_member(group, request)
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            decision = consumer_rules.leave_temporarily(group, member)
            self._write(group, decision.records)
            assert decision.result is not None
            return decision.result
        self._remove(group, [member], at)
        return ConsumerHeartbeatResult(request.member_id, LEAVE_EPOCH)

    def _new_member_id(self) -> str:
        """Return a new member id: a random UUID in the format of topic ids, as in Kafka."""
        return encode_topic_id(uuid.UUID(int=self._rng.getrandbits(128), version=4).bytes)

    # -- requests of classic members -------------------------------------------------------

    def join(self, group: ConsumerGroup, request: JoinRequest, on_done: JoinCallback) -> str | None:
        """Add a classic member. Return an error name, or None on success."""
        at = self._context(request.group_id)
        try:
            joined = migration.classic_join(group, request, at, check_pattern, self._new_member_id)
            if joined.downgrade is not None:
                self._downgrade(group, joined.downgrade)
            elif joined.decision is not None:
                self._write(group, joined.decision.records)
                self._act(group, joined.decision, at)
                member_id = joined.result.member_id
                group.timeouts.pop(("join", member_id), None)
                self._time_out(group, "sync", member_id, request.rebalance_timeout_ms)
                if joined.decision.patterns:
                    self._resolve(group, joined.decision.patterns, request.may_describe)
        except Refusal as refusal:
            return refusal.error
        self._reply(on_done, joined.result)
        return None

    def sync(self, group: ConsumerGroup, request: SyncRequest, on_done: SyncCallback) -> str | None:
        """Reply with a classic member's assignment. Return an error name, or None on success."""
        try:
            member = migration.classic_member(
                group, request.member_id, request.group_instance_id, request.generation_id
            )
            try:
                result = migration.classic_sync(group, member, request, self._topics.current)
            except Refusal as refusal:
                if refusal.error == "REBALANCE_IN_PROGRESS":
                    self._expect_join(group, member)
                raise
        except Refusal as refusal:
            return refusal.error
        group.timeouts.pop(("sync", member.member_id), None)
        self._touch(group, member.member_id)
        self._reply(on_done, result)
        return None

    def classic_heartbeat(
        self, group: ConsumerGroup, generation_id: int, member_id: str, instance_id: str | None
    ) -> str | None:
        """Restart a classic member's session. Return an error name, or None on success."""
        try:
            member = migration.classic_member(group, member_id, instance_id, generation_id)
        except Refusal as refusal:
            return refusal.error
        self._touch(group, member_id)
        if migration.must_rejoin(group, member):
            self._expect_join(group, member)
            return "REBALANCE_IN_PROGRESS"
        return None

    def leave(self, group: ConsumerGroup, leaving: Sequence[LeavingMember]) -> list[str | None]:
        """Handle a LeaveGroup request. Return the error name of each member, or None on success."""
        errors: list[str | None] = []
        members: dict[str, ConsumerMember] = {}
        for member_id, instance_id in leaving:
            try:
                request = ConsumerHeartbeat(group.group_id, member_id, LEAVE_EPOCH, instance_id)
                known = group.static_member(instance_id)
                if not member_id and known is not None:
                    request = request._replace(member_id=known.member_id)
                member = consumer_rules.leaving_member(group, request)
            except Refusal as refusal:
                errors.append(refusal.error)
            else:
                errors.append(None)
                members[member.member_id] = member
        if members:
            try:
                self._remove(group, list(members.values()), self._context(group.group_id))
            except Refusal as refusal:
                return [each or refusal.error for each in errors]
        return errors

    def _expect_join(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Remove a classic member unless it rejoins within its rebalance timeout."""
        if ("join", member.member_id) not in group.timeouts:
            self._time_out(group, "join", member.member_id, member.rebalance_timeout_ms)

    # -- groups loaded and lost ------------------------------------------------------------

    def resume(self, group: ConsumerGroup) -> None:
        """Start the sessions and the revocation timeouts of a group that has been loaded."""
        for member in group.members.values():
            self._touch(group, member.member_id)
            self._watch_revocation(group, member)

    def abandon(self, group: ConsumerGroup) -> None:
        """Remove a group whose partition was deleted or replaced."""
        group.enter(GroupState.DEAD, self._clock.now_ms())

    def shift(self, group: ConsumerGroup, shift_ns: int) -> None:
        """Start new sessions after the timers were moved to a different clock."""
        if group.assigned_ns is not None:
            group.assigned_ns += shift_ns
        if group.resolved_ns is not None:
            group.resolved_ns += shift_ns
        for session in group.sessions.values():
            session.armed_ns = None
        for member_id in group.members:
            self._touch(group, member_id)

    # -- patterns --------------------------------------------------------------------------

    def _resolve(
        self, group: ConsumerGroup, patterns: Collection[str], may_describe: MayDescribe | None
    ) -> None:
        """Resolve patterns after the response, as in Kafka.

        The next heartbeat takes the topics into account.
        """
        at = self._context(group.group_id)
        found = resolve_patterns(patterns, at.topics.names(), may_describe)
        decision = consumer_rules.resolve(group, found, at)
        try:
            self._write(group, decision.records)
        except Refusal as refusal:
            logger.warning(
                "%s: the topics of patterns cannot be stored: %s", group, refusal.message
            )
            return
        group.resolved_ns, group.resolved_version = at.now_ns, at.topics.version
        if decision.has_checked_topics:
            group.checked_version = at.topics.version

    # -- changes ---------------------------------------------------------------------------

    def _context(self, group_id: str) -> RuleContext:
        return RuleContext(
            self._topics.current,
            self._settings_of(group_id),
            self._clock.now_ms(),
            self._timers.now_ns(),
        )

    def _write(self, group: ConsumerGroup, records: Iterable[consumer_records.Record]) -> None:
        """Write records and apply them to the group.

        Raises
        ------
        Refusal
            The records could not be written, and the group is unchanged.
        """
        records = list(records)
        if not records:
            return
        error = self._store.save_records(group.group_id, records)
        if error is not None:
            raise Refusal(error, f"the records of group {group.group_id} cannot be written")
        group.apply(records)

    def _act(self, group: ConsumerGroup, decision: Decision, at: RuleContext) -> None:
        """Set the timers after the records of a decision were written."""
        if decision.has_checked_topics:
            group.checked_version = at.topics.version
        if decision.has_target:
            group.assigned_ns = at.now_ns
        member = decision.member
        if member is not None:
            self._touch(group, member.member_id)
            if decision.is_reconciled:
                self._watch_revocation(group, member)

    def _remove(
        self, group: ConsumerGroup, members: Collection[ConsumerMember], at: RuleContext
    ) -> None:
        """Remove members, and convert the group to a classic group if it may be downgraded.

        Raises
        ------
        Refusal
            The records could not be written.
        """
        ids = [member.member_id for member in members]
        if migration.may_downgrade(group, members, at.settings):
            change = migration.downgrade(group, ids, at.topics, at.now_ms)
            self._downgrade(group, change)
        else:
            self._write(group, consumer_rules.remove(group, members, at).records)
            for member_id in ids:
                group.sessions.pop(member_id, None)
                for kind in ("revocation", "join", "sync"):
                    group.timeouts.pop((kind, member_id), None)

    def _downgrade(self, group: ConsumerGroup, change: migration.Downgrade) -> None:
        self._write(group, change.records)
        self.abandon(group)
        self._put(change.group)
        self._classic.adopt(change.group, must_rebalance=change.must_rebalance)

    # -- sessions and timeouts -------------------------------------------------------------

    def _touch(self, group: ConsumerGroup, member_id: str) -> None:
        """Restart a member's session."""
        classic = group.members[member_id].classic
        timeout_ms = (
            self._settings_of(group.group_id).session_timeout_ms
            if classic is None
            else classic.session_timeout_ms
        )
        session = group.sessions[member_id]
        session.deadline_ns = self._timers.now_ns() + timeout_ms * NS_PER_MS
        if session.armed_ns is None or session.deadline_ns < session.armed_ns:
            self._arm(group, member_id)

    def _arm(self, group: ConsumerGroup, member_id: str) -> None:
        """Set the session timer. If the session has been extended when it fires, set it again."""
        session = group.sessions[member_id]
        due_ns = session.armed_ns = session.deadline_ns
        self._timers.at(
            due_ns, "consumer-session", partial(self._session_is_over, group, member_id, due_ns)
        )

    def _session_is_over(self, group: ConsumerGroup, member_id: str, due_ns: int) -> None:
        session = group.sessions.get(member_id)
        if session is None or session.armed_ns != due_ns or group.state is GroupState.DEAD:
            return
        session.armed_ns = None
        if member_id not in group.members:  # the static member has returned with a new member id
            del group.sessions[member_id]
        elif self._timers.now_ns() < session.deadline_ns:
            self._arm(group, member_id)
        elif not self._fence(group, member_id, "its session expired"):
            session.deadline_ns = self._timers.now_ns() + RETRY_BACKOFF_MS * NS_PER_MS
            self._arm(group, member_id)

    def _watch_revocation(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Limit the time that a member takes to revoke partitions in its current epoch."""
        member_id = member.member_id
        if consumer_rules.must_revoke(member):
            epoch, timeout_ms = member.member_epoch, member.rebalance_timeout_ms
            self._time_out(group, "revocation", member_id, timeout_ms, epoch)
        else:
            group.timeouts.pop(("revocation", member_id), None)

    def _time_out(
        self,
        group: ConsumerGroup,
        kind: str,
        member_id: str,
        timeout_ms: int,
        epoch: int | None = None,
    ) -> None:
        """Remove a member after a timeout, unless the timeout is cancelled or the epoch changes."""
        key = kind, member_id
        token = group.timeouts[key] = object()
        reason = f"the {kind} took longer than {timeout_ms} ms"

        def run() -> None:
            if group.timeouts.get(key) is not token or group.state is GroupState.DEAD:
                return
            member = group.members.get(member_id)
            is_due = member is not None and epoch in (None, member.member_epoch)
            if is_due and not self._fence(group, member_id, reason):
                self._timers.after(RETRY_BACKOFF_MS, f"consumer-{kind}", run)
            else:
                group.timeouts.pop(key, None)

        self._timers.after(timeout_ms, f"consumer-{kind}", run)

    def _fence(self, group: ConsumerGroup, member_id: str, reason: str) -> bool:
        """Remove a member. Return False if the caller must retry later.

        If this broker no longer coordinates the group, return True: there is nothing to retry.
        """
        logger.info("group '%s': removing %s: %s", group.group_id, member_id, reason)
        try:
            self._remove(group, [group.members[member_id]], self._context(group.group_id))
        except Refusal as refusal:
            logger.warning("%s: %s cannot be removed: %s", group, member_id, refusal.message)
            return refusal.error == "NOT_COORDINATOR"
        return True


def check_pattern(pattern: str) -> None:
    """Raise INVALID_REGULAR_EXPRESSION if a pattern is invalid."""
    try:
        compile_pattern(pattern)
    except InvalidRegularExpressionError as error:
        raise Refusal(
            "INVALID_REGULAR_EXPRESSION",
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}.",
        ) from error


def _consumer_group(group: AnyGroup | None, group_id: str) -> ConsumerGroup:
    if group is None:
        raise Refusal("GROUP_ID_NOT_FOUND", f"Group {group_id} not found.")
    if not isinstance(group, ConsumerGroup):
        raise Refusal("GROUP_ID_NOT_FOUND", f"Group {group_id} is not a consumer group.")
    return group
