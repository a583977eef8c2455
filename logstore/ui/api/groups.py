"""Consumer groups: members, committed offsets and lag."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from logstore.coordinator.groups.consumer_protocol import Assignment, Subscription
from logstore.coordinator.groups.group import GroupState
from logstore.errors import GroupIdNotFoundError, LogStoreError
from logstore.ui.api_request import get

if TYPE_CHECKING:
    from logstore.coordinator.groups.offsets import OffsetAndMetadata
    from logstore.types import TopicPartition
    from logstore.ui.api_request import ApiRequest


def groups(request: ApiRequest) -> dict[str, Any]:
    """List the groups that the principal may describe."""
    found = request.broker.admin().list_groups()
    if not request.allows("describe", "cluster"):
        found = [each for each in found if request.allows("describe", "group", each["group_id"])]
    return {"groups": found}


def group(request: ApiRequest) -> dict[str, Any]:
    """Describe a group. Omits topics that the principal may not describe."""
    may_describe = partial(request.allows, "describe", "topic")
    group_id = request.path["group"]
    request.require("describe", "group", group_id)
    admin = request.broker.admin()
    described = admin.describe_groups([group_id])[group_id]
    offsets = admin.list_group_offsets(group_id)[group_id]
    if described["group_state"] == GroupState.DEAD.value and not offsets:
        raise GroupIdNotFoundError(f"unknown group '{group_id}'")
    members = [_member(each) for each in described["members"]]
    if "group_epoch" in described:  # in a classic group, the members assign partitions
        for member in members:
            visible = [each for each in member["assignment"] if may_describe(each["topic"])]
            member["assignment"] = visible
    return {
        **described,
        "members": members,
        "offsets": [
            _offset(request, tp, committed)
            for tp, committed in sorted(offsets.items())
            if may_describe(tp.topic)
        ],
    }


def _member(member: dict[str, Any]) -> dict[str, Any]:
    wants, has = member.pop("member_metadata"), member.pop("member_assignment")
    assigned = has.partitions if isinstance(has, Assignment) else ()
    return {
        **member,
        "topics": list(wants.topics) if isinstance(wants, Subscription) else [],
        "assignment": [tp._asdict() for tp in assigned],
    }


def _offset(
    request: ApiRequest, topic_partition: TopicPartition, committed: OffsetAndMetadata
) -> dict[str, Any]:
    """Return a committed offset, and its lag if the log end offset is known."""
    end: int | None
    try:
        end = request.broker.log(*topic_partition).high_watermark
    except LogStoreError:  # deleted, or cannot be opened
        end = None
    return {
        **topic_partition._asdict(),
        **committed._asdict(),
        "log_end_offset": end,
        "lag": None if end is None else max(0, end - committed.offset),
    }


ROUTES = (
    get("/api/groups", groups),
    get("/api/groups/{group:path}", group),
)
