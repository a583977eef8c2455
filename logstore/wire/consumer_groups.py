"""APIs of Kafka 4's consumer group protocol: heartbeats and group descriptions (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from logstore.coordinator.groups.requests import (
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    ConsumerMemberDescription,
)
from logstore.errors import LogStoreError
from logstore.messages.schema import ZERO_UUID
from logstore.messages.types import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from logstore.wire.groups import NOT_ALLOWED, await_result, code_of
from logstore.wire.registry import handles

if TYPE_CHECKING:
    from logstore.wire.session import Session

_REQUIRES_MEMBER_ID_FROM = 1

TopicPartitions = ConsumerGroupHeartbeatResponse.TopicPartitions
DescribedGroup = ConsumerGroupDescribeResponse.DescribedGroup


@handles("ConsumerGroupHeartbeat")
async def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, session: Session
) -> ConsumerGroupHeartbeatResponse:
    """Handle a heartbeat, with which a member can also join or leave.

    Return the member's epoch and assignment.
    """
    if not session.allows("read", "group", request.group_id):
        return ConsumerGroupHeartbeatResponse(error_code=code_of(NOT_ALLOWED))
    names = request.subscribed_topic_names
    if not all(session.allows("describe", "topic", name) for name in names or ()):
        return ConsumerGroupHeartbeatResponse(error_code=code_of("TOPIC_AUTHORIZATION_FAILED"))
    owned = request.topic_partitions
    heartbeat = ConsumerHeartbeat(
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        None if names is None else tuple(names),
        request.subscribed_topic_regex,
        request.server_assignor,
        None if owned is None else {each.topic_id: each.partitions for each in owned},
        session.client_id or "",
        f"/{session.client_host}",
        requires_member_id=session.version >= _REQUIRES_MEMBER_ID_FROM,
    )
    groups = session.service.groups
    may_describe = partial(session.allows, "describe", "topic")
    try:
        result = await await_result(
            session,
            partial(groups.consumer_heartbeat, heartbeat, may_describe=may_describe),
        )
    except LogStoreError as error:
        result = ConsumerHeartbeatResult(error=error.kafka_error, message=str(error))
    return _answer(result)


def _answer(result: ConsumerHeartbeatResult) -> ConsumerGroupHeartbeatResponse:
    if result.error is not None:
        return ConsumerGroupHeartbeatResponse(
            error_code=code_of(result.error), error_message=result.message
        )
    assignment = None
    if result.assignment is not None:
        assignment = ConsumerGroupHeartbeatResponse.Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=list(numbers))
                for topic_id, numbers in result.assignment.items()
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assignment,
    )


@handles("ConsumerGroupDescribe")
def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, session: Session
) -> ConsumerGroupDescribeResponse:
    """Describe consumer groups whose topics the client may describe."""
    groups = [_described(group_id, session) for group_id in session.each(request.group_ids)]
    if request.include_authorized_operations:
        for each in groups:
            if each.error_code == 0:
                each.authorized_operations = session.operations_on("group", each.group_id)
    return ConsumerGroupDescribeResponse(groups=groups)


def _described(group_id: str, session: Session) -> DescribedGroup:
    if not session.allows("describe", "group", group_id):
        return DescribedGroup(group_id=group_id, error_code=code_of(NOT_ALLOWED))
    if not group_id:
        return DescribedGroup(group_id=group_id, error_code=code_of("INVALID_GROUP_ID"))
    found = session.service.groups.describe_consumer_group(group_id)
    if found.error is not None:
        return DescribedGroup(
            group_id=group_id, error_code=code_of(found.error), error_message=found.message
        )
    if not all(session.allows("describe", "topic", name) for name in _assigned_topics(found)):
        return DescribedGroup(
            group_id=group_id,
            error_code=code_of("TOPIC_AUTHORIZATION_FAILED"),
            error_message="The group has described topic(s) that the client is not authorized to"
            " describe.",
        )
    return DescribedGroup(
        group_id=group_id,
        group_state=found.state,
        group_epoch=found.group_epoch,
        assignment_epoch=found.assignment_epoch,
        assignor_name=found.assignor,
        members=[_member(each, session) for each in found.members],
    )


def _assigned_topics(group: ConsumerGroupDescription) -> set[str]:
    return {name for each in group.members for name in (*each.assignment, *each.target)}


def _member(
    member: ConsumerMemberDescription, session: Session
) -> ConsumerGroupDescribeResponse.Member:
    return ConsumerGroupDescribeResponse.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(member.assignment, session),
        target_assignment=_assignment(member.target, session),
        member_type=0 if member.is_classic else 1,
    )


def _assignment(
    partitions: Mapping[str, Iterable[int]], session: Session
) -> ConsumerGroupDescribeResponse.Assignment:
    return ConsumerGroupDescribeResponse.Assignment(
        topic_partitions=[
            ConsumerGroupDescribeResponse.TopicPartitions(
                topic_id=session.service.id_of_topic(name) or ZERO_UUID,
                topic_name=name,
                partitions=list(numbers),
            )
            for name, numbers in partitions.items()
        ]
    )
