"""Locations of a key in the files of a partition, and when each can be deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logstore.reasons import reasons_json
from logstore.types import INT64_MAX
from logstore.ui.api_request import get
from logstore.ui.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from logstore.analysis.erasure import ErasurePlace
    from logstore.ui.api_request import ApiRequest


def erasure(request: ApiRequest) -> dict[str, Any]:
    """Find all locations of a key in a partition, grouped by state and rule.

    With `places`, list at most that many locations per group.
    """
    tp = request.topic_partition("read")
    key = request.key()
    if key is None:
        raise InvalidRequestError("exactly one of key and key_base64 is required", field="key")
    limit = request.number("places", INT64_MAX)
    report = request.broker.erasure(tp.topic, key, tp.partition)
    groups: dict[tuple[str, ...], list[ErasurePlace]] = {}
    listed = []
    for place in report.places:
        codes = (place.state, *(reason.code for reason in place.reasons))
        members = groups.setdefault(codes, [])
        members.append(place)
        if len(members) <= limit:
            listed.append(place)
    return {
        **report.to_json(),
        "places": [place.to_json() for place in listed],
        "total": len(report.places),
        "groups": [_group_json(members) for members in groups.values()],
        **_times(report.places),
    }


def _group_json(places: Sequence[ErasurePlace]) -> dict[str, Any]:
    first = places[0]
    offsets = [place.offset for place in places if place.offset is not None]
    return {
        "state": first.state,
        "count": len(places),
        "first_offset": min(offsets, default=None),
        "last_offset": max(offsets, default=None),
        "timestamp": first.timestamp if len(places) == 1 else None,
        "files": len({place.path for place in places}),
        "reasons": reasons_json(first.reasons),
        **_times(places),
    }


def _times(places: Sequence[ErasurePlace]) -> dict[str, int | None]:
    """Return when all locations can be deleted, or null if any is never deleted automatically."""
    return {
        "earliest_ms": _last(place.earliest_ms for place in places),
        "latest_ms": _last(place.latest_ms for place in places),
    }


def _last(times: Iterable[int | None]) -> int | None:
    last = -1
    for time_ms in times:
        if time_ms is None:
            return None
        last = max(last, time_ms)
    return None if last < 0 else last


ROUTES = (
    get("/api/partitions/{topic}/{partition}/erasure", erasure, "key", "key_base64", "places"),
)
