"""Facts about the broker, and the list of partitions."""

from __future__ import annotations

from collections import Counter
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from logstore.analysis.assumptions import policy_assumption
from logstore.analysis.broker_state import data_dirs, node_id
from logstore.analysis.verdict import EMPTY_LISTED, Summary, Verdict
from logstore.errors import LogStoreError
from logstore.ui.api_request import get
from logstore.ui.partitions import SORTS

if TYPE_CHECKING:
    from logstore.ui.api_request import ApiRequest

PAGE_MAX = 1_000
"""Maximum number of items in a response."""


def about(request: ApiRequest) -> dict[str, Any]:
    """Describe the broker and the user's permissions."""
    broker, context = request.broker, request.context
    return {
        "version": version("kafka-logstore"),
        "data_dirs": data_dirs(broker),
        "read_only": context.read_only_because is not None,
        "read_only_because": context.read_only_because,
        "clock": context.clock_json(),
        "node_id": _node_id(request),
        "principal": context.principal,
        "may": sorted(action.name for action in context.actions if request.may_change_any(action)),
        "notes": _notes(request),
    }


def _notes(request: ApiRequest) -> list[str]:
    """Return the assumptions and warnings about a copied directory."""
    if not request.broker.read_only:
        return []
    names = [topic.name for topic in request.broker.topics() if topic.adopted]
    assumed = [policy_assumption(request.broker.manager, name) for name in request.visible(names)]
    texts = [f"Assumed: {text}" for text in assumed if text is not None]
    if len(texts) > 1:
        texts[0] += f" (likewise for {len(texts) - 1} more)"
    # Warnings can name any topic.
    return texts[:1] + (
        request.context.notices.texts() if request.allows("describe", "cluster") else []
    )


def _node_id(request: ApiRequest) -> int | None:
    try:
        return node_id(request.broker)
    except LogStoreError:  # inconsistent directories, which `check` reports
        return None


def partitions(request: ApiRequest) -> dict[str, Any]:
    """List partitions, filtered, sorted and paged."""
    sort = request.choice("sort", tuple(SORTS), "bytes")
    descending = request.flag("descending", default=sort != "name")
    wanted = request.text("filter").lower()
    first, count = request.window(PAGE_MAX)
    listed = request.context.partitions
    topics = [
        each for each in request.broker.topics() if request.allows("describe", "topic", each.name)
    ]
    if "topic" in request.query:
        name = request.text("topic")
        topics = [each for each in topics if each.name == name]
    found = [row for row in listed.rows(topics) if wanted in str(row.topic_partition).lower()]
    empty = Counter(row.topic_partition.topic for row in found if row.is_empty)
    if request.flag("empty", default=True) or empty.total() <= EMPTY_LISTED:
        empty.clear()
    rows = [row for row in found if not (empty and row.is_empty)]
    rows.sort(key=lambda row: row.topic_partition)
    rows.sort(key=SORTS[sort], reverse=descending)
    shown = rows[first : first + count]
    listed.measure(found, shown)
    return {
        "total": len(rows),
        "measured": sum(row.measured for row in found),
        "is_exact": all(row.verdict is not None and row.verdict.is_final for row in found),
        "empty": dict(empty),
        "topics": len({row.topic_partition.topic for row in found}),
        "size_bytes": sum(row.size_bytes for row in found),
        "must_clean": sum(row.must_clean for row in rows),
        "uncleanable": sum(row.uncleanable is not None for row in rows),
        "summary": Summary.of(
            Verdict.unmeasured(row.size_bytes) if row.verdict is None else row.verdict
            for row in found
        ).to_json(),
        "partitions": [row.to_json(listed.deleted_bytes(row)) for row in shown],
    }


ROUTES = (
    get("/api/about", about),
    get(
        "/api/partitions",
        partitions,
        "sort",
        "descending",
        "topic",
        "filter",
        "empty",
        "first",
        "count",
    ),
)
