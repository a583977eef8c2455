"""Consumer group APIs: coordinators, members and offsets.

The handlers of JoinGroup and SyncGroup await a future, which the coordinator's callback completes.
Source: KafkaApis and GroupCoordinator of Kafka 3.9 and 4.3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from logstore.coordinator.groups.group import GroupState
from logstore.coordinator.groups.offsets import NO_LEADER_EPOCH, OffsetAndMetadata
from logstore.coordinator.groups.requests import (
    FetchedOffset,
    JoinRequest,
    JoinResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from logstore.errors import KAFKA_CODES, KafkaStorageError, LogStoreError
from logstore.messages.types import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from logstore.types import NO_OFFSET, TopicPartition
from logstore.wire.registry import handles

if TYPE_CHECKING:
    from logstore.wire.service import Service
    from logstore.wire.session import Session

R = TypeVar("R")

NOT_ALLOWED = "GROUP_AUTHORIZATION_FAILED"


def code_of(error: str | None) -> int:
    """Return the code of a Kafka error name, or 0 for None."""
    return KAFKA_CODES["NONE" if error is None else error]


async def await_result(session: Session, ask: Callable[[Callable[[R], object]], object]) -> R:
    """Await the result that a coordinator passes to its callback, which any thread may call."""
    loops = session.service.loops
    future: asyncio.Future[R] = loops.loop.create_future()

    def end(result: R) -> None:
        if not future.done():  # the future is cancelled if the client disconnects
            future.set_result(result)

    await session.run(partial(ask, lambda result: loops.wake(partial(end, result))))
    return await future


# -- coordinators ----------------------------------------------------------------------------------

_KEY_TYPES = {
    0: ("group", NOT_ALLOWED),
    1: ("transactional_id", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
}
_BATCHED_FROM = 4


@handles("FindCoordinator")
def find_coordinator(request: FindCoordinatorRequest, session: Session) -> FindCoordinatorResponse:
    """Return the address of a key's coordinator."""
    if session.version < _BATCHED_FROM:
        error, node_id, host, port = _coordinator(request.key, request.key_type, session)
        return FindCoordinatorResponse(
            error_code=code_of(error),
            error_message=error or "NONE",
            node_id=node_id,
            host=host,
            port=port,
        )
    coordinators = []
    for key in session.each(request.coordinator_keys):
        error, node_id, host, port = _coordinator(key, request.key_type, session)
        coordinators.append(
            FindCoordinatorResponse.Coordinator(
                key=key, error_code=code_of(error), node_id=node_id, host=host, port=port
            )
        )
    return FindCoordinatorResponse(coordinators=coordinators)


def _coordinator(key: str, key_type: int, session: Session) -> tuple[str | None, int, str, int]:
    """Return an error name (None on success), and the coordinator's id, host and port."""
    nobody = -1, "", -1
    if key_type not in _KEY_TYPES:
        return "INVALID_REQUEST", *nobody
    resource_type, refusal = _KEY_TYPES[key_type]
    if not session.allows("describe", resource_type, key):
        return refusal, *nobody
    service = session.service
    try:
        if resource_type == "group":
            partition = service.groups.partition_for(key)
        else:
            partition = service.transactions.partition_for(key)
    except LogStoreError:
        return "COORDINATOR_NOT_AVAILABLE", *nobody
    leader = service.nodes.partition(partition).leader
    address = service.nodes.addresses(session.address).get(leader)
    return ("COORDINATOR_NOT_AVAILABLE", *nobody) if address is None else (None, leader, *address)


# -- members ---------------------------------------------------------------------------------------

_NAMED_PROTOCOL_FROM = 7
_REQUIRES_MEMBER_ID_FROM = 4
_SKIPS_ASSIGNMENT_FROM = 9
_REQUIRES_PROTOCOL_FROM = 5


@handles("JoinGroup")
async def join_group(request: JoinGroupRequest, session: Session) -> JoinGroupResponse:
    """Add a member to its group. Respond when all members have joined."""
    if not session.allows("read", "group", request.group_id):
        return _joined(JoinResult("", NOT_ALLOWED), session.version)
    asked = JoinRequest(
        request.group_id,
        request.protocol_type,
        tuple((each.name, bytes(each.metadata)) for each in request.protocols),
        request.session_timeout_ms,
        # Version 0 has no rebalance timeout and uses the session timeout.
        request.rebalance_timeout_ms if session.version else request.session_timeout_ms,
        request.member_id,
        request.group_instance_id,
        session.client_id or "",
        f"/{session.client_host}",
        requires_member_id=session.version >= _REQUIRES_MEMBER_ID_FROM,
        can_skip_assignment=session.version >= _SKIPS_ASSIGNMENT_FROM,
        may_describe=partial(session.allows, "describe", "topic"),
    )
    service = session.service
    try:
        result = await await_result(session, partial(service.groups.join, asked))
    except LogStoreError as error:
        result = JoinResult(request.member_id, error.kafka_error)
    return _joined(result, session.version)


def _joined(result: JoinResult, version: int) -> JoinGroupResponse:
    may_be_null = version >= _NAMED_PROTOCOL_FROM
    return JoinGroupResponse(
        error_code=code_of(result.error),
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name if may_be_null else result.protocol_name or "",
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                metadata=each.metadata,
            )
            for each in result.members
        ],
    )


@handles("SyncGroup")
async def sync_group(request: SyncGroupRequest, session: Session) -> SyncGroupResponse:
    """Return a member's assignment. Respond when the group leader has sent assignments."""
    service = session.service
    requires_protocol = session.version >= _REQUIRES_PROTOCOL_FROM
    if not session.allows("read", "group", request.group_id):
        result = SyncResult(NOT_ALLOWED)
    elif requires_protocol and (request.protocol_type is None or request.protocol_name is None):
        result = SyncResult("INCONSISTENT_GROUP_PROTOCOL")
    else:
        asked = SyncRequest(
            request.group_id,
            request.generation_id,
            request.member_id,
            request.group_instance_id,
            request.protocol_type,
            request.protocol_name,
            {each.member_id: bytes(each.assignment) for each in request.assignments},
        )
        try:
            result = await await_result(session, partial(service.groups.sync, asked))
        except LogStoreError as error:
            result = SyncResult(error.kafka_error)
    return SyncGroupResponse(
        error_code=code_of(result.error),
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )


@handles("Heartbeat")
def heartbeat(request: HeartbeatRequest, session: Session) -> HeartbeatResponse:
    """Handle a member's heartbeat. The error code asks the member to rejoin if necessary."""
    error: str | None = NOT_ALLOWED
    if session.allows("read", "group", request.group_id):
        error = session.service.groups.heartbeat(
            request.group_id, request.generation_id, request.member_id, request.group_instance_id
        )
    return HeartbeatResponse(error_code=code_of(error))


_MEMBERS_FROM = 3


@handles("LeaveGroup")
def leave_group(request: LeaveGroupRequest, session: Session) -> LeaveGroupResponse:
    """Remove members from their group."""
    if not session.allows("read", "group", request.group_id):
        return LeaveGroupResponse(error_code=code_of(NOT_ALLOWED))
    groups = session.service.groups
    if session.version < _MEMBERS_FROM:
        left = groups.leave(request.group_id, [LeavingMember(request.member_id)], waits=True)
        error = left.error or (left.members[0].error if left.members else None)
        return LeaveGroupResponse(error_code=code_of(error))
    left = groups.leave(
        request.group_id,
        [LeavingMember(each.member_id, each.group_instance_id) for each in request.members],
        waits=True,
    )
    return LeaveGroupResponse(
        error_code=code_of(left.error),
        members=[
            LeaveGroupResponse.MemberResponse(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                error_code=code_of(each.error),
            )
            for each in left.members
        ],
    )


# -- offsets ---------------------------------------------------------------------------------------


def allowed_offsets(
    topics: Iterable[Any], session: Session, errors: dict[TopicPartition, str | None]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets that may be committed. Add the errors of all others to `errors`.

    Parameters
    ----------
    topics : iterable
        The topics of an OffsetCommit or TxnOffsetCommit request.
    """
    offsets = {}
    for topic in topics:
        may_read = session.allows("read", "topic", topic.name)
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition_index)
            if not may_read:
                errors[tp] = "TOPIC_AUTHORIZATION_FAILED"
            elif not exists(session.service, tp):
                errors[tp] = "UNKNOWN_TOPIC_OR_PARTITION"
            else:
                offsets[tp] = OffsetAndMetadata(
                    partition.committed_offset,
                    partition.committed_metadata or "",
                    partition.committed_leader_epoch,
                )
    return offsets


def exists(service: Service, topic_partition: TopicPartition) -> bool:
    """Return whether a partition exists."""
    try:
        topic = service.nodes.topic(topic_partition.topic)
    except LogStoreError:
        return False
    return topic_partition.partition in topic.partitions


def partitions_of(topics: Iterable[Any]) -> Iterator[TopicPartition]:
    """Yield all partitions of an OffsetCommit or TxnOffsetCommit request."""
    for topic in topics:
        for partition in topic.partitions:
            yield TopicPartition(topic.name, partition.partition_index)


def errors_by_topic(
    topics: Iterable[Any],
    errors: Mapping[TopicPartition, str | None],
    of_topic: type[Any],
    of_partition: type[Any],
) -> list[Any]:
    """Return the topics of a response, with the error code of each partition.

    Parameters
    ----------
    of_topic, of_partition : type
        The response structures for topics and partitions.
    """
    return [
        of_topic(
            name=topic.name,
            partitions=[
                of_partition(
                    partition_index=each.partition_index,
                    error_code=code_of(errors[TopicPartition(topic.name, each.partition_index)]),
                )
                for each in topic.partitions
            ],
        )
        for topic in topics
    ]


_TOPIC_IDS_FROM = 10


@handles("OffsetCommit")
def offset_commit(request: OffsetCommitRequest, session: Session) -> OffsetCommitResponse:
    """Commit a group's offsets."""
    errors: dict[TopicPartition, str | None] = {}
    if session.allows("read", "group", request.group_id):
        topics: list[Any] = request.topics
        if session.version >= _TOPIC_IDS_FROM:
            topics, unknown = _topics_of_ids(topics, session)
            errors |= dict.fromkeys(partitions_of(unknown), "UNKNOWN_TOPIC_ID")
        offsets = allowed_offsets(topics, session, errors)
        if offsets:
            errors |= session.service.groups.commit(
                request.group_id,
                offsets,
                request.generation_id_or_member_epoch,
                request.member_id,
                request.group_instance_id,
                version=session.version,
            )
    else:
        errors = dict.fromkeys(partitions_of(request.topics), NOT_ALLOWED)
    rows = errors_by_topic(
        request.topics,
        errors,
        OffsetCommitResponse.OffsetCommitResponseTopic,
        OffsetCommitResponse.OffsetCommitResponsePartition,
    )
    for row, topic in zip(rows, request.topics, strict=True):
        row.topic_id = topic.topic_id
    return OffsetCommitResponse(topics=rows)


def _topics_of_ids(topics: Iterable[Any], session: Session) -> tuple[list[Any], list[Any]]:
    """Set the names of topics that are given by id. Return the known and the unknown topics."""
    known: list[Any] = []
    unknown: list[Any] = []
    for topic in topics:
        topic.name = session.service.topic_of_id(topic.topic_id) or ""
        (known if topic.name else unknown).append(topic)
    return known, unknown


_GROUPS_FROM = 8
_TOP_LEVEL_ERROR_FROM = 2


@handles("OffsetFetch")
def offset_fetch(request: OffsetFetchRequest, session: Session) -> OffsetFetchResponse:
    """Return the committed offsets of one or more groups."""
    stable = request.require_stable
    if session.version >= _GROUPS_FROM:
        groups = session.each(request.groups)
        return OffsetFetchResponse(
            groups=[_fetched_group(each, session, require_stable=stable) for each in groups]
        )
    found, error = _fetched(request.group_id, request.topics, session, require_stable=stable)
    if error is not None and session.version < _TOP_LEVEL_ERROR_FROM:
        refused = FetchedOffset(None, error)
        asked = [
            TopicPartition(topic.name, index)
            for topic in request.topics or ()
            for index in topic.partition_indexes
        ]
        found, error = dict.fromkeys(asked, refused), None
    topics = _by_topic(
        found,
        OffsetFetchResponse.OffsetFetchResponseTopic,
        OffsetFetchResponse.OffsetFetchResponsePartition,
    )
    return OffsetFetchResponse(topics=topics, error_code=code_of(error))


def _fetched_group(
    group: OffsetFetchRequest.OffsetFetchRequestGroup, session: Session, *, require_stable: bool
) -> OffsetFetchResponse.OffsetFetchResponseGroup:
    """Return the committed offsets of one group of a batched request (KIP-709)."""
    of_topic = OffsetFetchResponse.OffsetFetchResponseTopics
    of_partition = OffsetFetchResponse.OffsetFetchResponsePartitions
    uses_ids = session.version >= _TOPIC_IDS_FROM
    topics: Sequence[Any] | None = group.topics
    unknown: list[Any] = []
    if uses_ids and topics is not None:
        topics, unknown = _topics_of_ids(topics, session)
    member = group.member_id, group.member_epoch
    found, error = _fetched(group.group_id, topics, session, member, require_stable=require_stable)
    rows = _by_topic(found, of_topic, of_partition)
    if uses_ids and error is None:
        ids = {each.name: each.topic_id for each in topics or ()}
        for row in rows:
            row.topic_id = ids.get(row.name) or session.service.id_of_topic(row.name)
        rows = [row for row in rows if row.topic_id is not None]
        for topic in unknown:
            refused = FetchedOffset(None, "UNKNOWN_TOPIC_ID")
            asked = [TopicPartition("", index) for index in topic.partition_indexes]
            for row in _by_topic(dict.fromkeys(asked, refused), of_topic, of_partition):
                row.topic_id = topic.topic_id
                rows.append(row)
    return OffsetFetchResponse.OffsetFetchResponseGroup(
        group_id=group.group_id, topics=rows, error_code=code_of(error)
    )


def _fetched(
    group_id: str,
    topics: Iterable[Any] | None,
    session: Session,
    member: tuple[str | None, int] | None = None,
    *,
    require_stable: bool,
) -> tuple[dict[TopicPartition, FetchedOffset], str | None]:
    """Return a group's committed offsets, and an error name (None on success).

    If `topics` is None, return all topics that the client may describe.

    Parameters
    ----------
    member : (str or None, int), optional
        The member id and member epoch in the request, if the version has them.
    """
    if not session.allows("describe", "group", group_id):
        return {}, NOT_ALLOWED
    groups = session.service.groups
    if member is not None:
        error = groups.check_fetch(group_id, *member)
        if error is not None:
            return {}, error
    refused = FetchedOffset(None, "TOPIC_AUTHORIZATION_FAILED")
    try:
        if topics is None:
            every = groups.fetch(group_id, require_stable=require_stable)
            visible = {
                topic
                for topic in {tp.topic for tp in every}
                if session.allows("describe", "topic", topic)
            }
            return {tp: each for tp, each in every.items() if tp.topic in visible}, None
        asked = {}
        for topic in session.each(list(topics)):
            may_see = session.allows("describe", "topic", topic.name)
            for index in topic.partition_indexes:
                asked[TopicPartition(topic.name, index)] = may_see
        wanted = [tp for tp, may_see in asked.items() if may_see]
        found = groups.fetch(group_id, wanted, require_stable=require_stable)
    except LogStoreError as error:
        is_lost = isinstance(error, KafkaStorageError)
        return {}, "NOT_COORDINATOR" if is_lost else error.kafka_error
    return {tp: found.get(tp, refused) for tp in asked}, None


def _by_topic(
    found: dict[TopicPartition, FetchedOffset], of_topic: type[Any], of_partition: type[Any]
) -> list[Any]:
    topics: dict[str, list[Any]] = {}
    for tp, (committed, error) in found.items():
        offset, metadata, epoch = committed or (NO_OFFSET, "", NO_LEADER_EPOCH)
        topics.setdefault(tp.topic, []).append(
            of_partition(
                partition_index=tp.partition,
                committed_offset=offset,
                committed_leader_epoch=epoch,
                metadata=metadata,
                error_code=code_of(error),
            )
        )
    return [of_topic(name=name, partitions=each) for name, each in topics.items()]


@handles("OffsetDelete")
def offset_delete(request: OffsetDeleteRequest, session: Session) -> OffsetDeleteResponse:
    """Delete a group's committed offsets."""
    group_id = request.group_id
    if not session.allows("delete", "group", group_id):
        return OffsetDeleteResponse(error_code=code_of(NOT_ALLOWED))
    errors: dict[TopicPartition, str | None] = {}
    wanted = []
    for topic in request.topics:
        may_read = session.allows("read", "topic", topic.name)
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition_index)
            if not may_read:
                errors[tp] = "TOPIC_AUTHORIZATION_FAILED"
            else:
                wanted.append(tp)
    deleted = session.service.groups.delete_offsets(group_id, wanted)
    if deleted.error is not None:
        return OffsetDeleteResponse(error_code=code_of(deleted.error))
    errors |= deleted.partitions
    return OffsetDeleteResponse(
        topics=errors_by_topic(
            request.topics,
            errors,
            OffsetDeleteResponse.OffsetDeleteResponseTopic,
            OffsetDeleteResponse.OffsetDeleteResponsePartition,
        )
    )


# -- administration --------------------------------------------------------------------------------


_REPORTS_UNKNOWN_GROUPS_FROM = 6


@handles("DescribeGroups")
def describe_groups(request: DescribeGroupsRequest, session: Session) -> DescribeGroupsResponse:
    """Describe groups and their members."""
    names = list(dict.fromkeys(request.groups))
    groups = [_described(group_id, session) for group_id in session.each(names)]
    if request.include_authorized_operations:
        for each in groups:
            if each.error_code == 0:
                each.authorized_operations = session.operations_on("group", each.group_id)
    return DescribeGroupsResponse(groups=groups)


def _described(group_id: str, session: Session) -> DescribeGroupsResponse.DescribedGroup:
    if not session.allows("describe", "group", group_id):
        return DescribeGroupsResponse.DescribedGroup(
            group_id=group_id, error_code=code_of(NOT_ALLOWED)
        )
    found = session.service.groups.describe(group_id)
    if found.error is not None:
        return DescribeGroupsResponse.DescribedGroup(
            group_id=group_id, error_code=code_of(found.error)
        )
    if found.state == GroupState.DEAD.value and session.version >= _REPORTS_UNKNOWN_GROUPS_FROM:
        return DescribeGroupsResponse.DescribedGroup(
            group_id=group_id,
            group_state=found.state,
            error_code=code_of("GROUP_ID_NOT_FOUND"),
            error_message=found.message,
        )
    return DescribeGroupsResponse.DescribedGroup(
        group_id=group_id,
        group_state=found.state,
        protocol_type=found.protocol_type,
        protocol_data=found.protocol,
        members=[
            DescribeGroupsResponse.DescribedGroupMember(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                member_metadata=each.metadata,
                member_assignment=each.assignment,
            )
            for each in found.members
        ],
    )


@handles("ListGroups")
def list_groups(request: ListGroupsRequest, session: Session) -> ListGroupsResponse:
    """Return the groups of this coordinator that the client may describe."""
    try:
        found = session.service.groups.list_groups(request.states_filter, request.types_filter)
    except LogStoreError:
        return ListGroupsResponse(error_code=code_of("COORDINATOR_NOT_AVAILABLE"))
    sees_all = session.allows("describe", "cluster")
    return ListGroupsResponse(
        groups=[
            ListGroupsResponse.ListedGroup(
                group_id=each.group_id,
                protocol_type=each.protocol_type,
                group_state=each.state,
                group_type=each.group_type,
            )
            for each in found
            if sees_all or session.allows("describe", "group", each.group_id)
        ]
    )


@handles("DeleteGroups")
def delete_groups(request: DeleteGroupsRequest, session: Session) -> DeleteGroupsResponse:
    """Delete empty groups."""
    names = list(dict.fromkeys(request.groups_names))
    allowed = [name for name in names if session.allows("delete", "group", name)]
    errors = session.service.groups.delete(allowed)
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponse.DeletableGroupResult(
                group_id=name, error_code=code_of(errors.get(name, NOT_ALLOWED))
            )
            for name in names
        ]
    )
