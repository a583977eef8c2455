"""A partition: summary, segments, cleaning decision and statistics."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from logstore.analysis.assumptions import assumptions
from logstore.analysis.broker_state import cleaner_view, cleaning_decision
from logstore.analysis.segment_map import deleted_files
from logstore.analysis.summary import inspect_partition
from logstore.analysis.tombstones import live_tombstones
from logstore.analysis.verdict import DAMAGED, partition_verdict
from logstore.analysis.view import PartitionView
from logstore.cleaner.explaining import Tombstones
from logstore.reasons import reasons_json, text_of
from logstore.ui.api.overview import PAGE_MAX
from logstore.ui.api_request import get

if TYPE_CHECKING:
    from logstore.cleaner.explaining import Tombstone
    from logstore.ui.api_request import ApiRequest

BUCKETS = 200
BUCKETS_MAX = 4_000
"""Default and maximum number of buckets in a segment map."""

TOP_KEYS_MAX = 1_000


def partition(request: ApiRequest) -> dict[str, Any]:
    """Describe a partition as `inspect --summary` does, and why it is or is not cleaned."""
    tp = request.topic_partition()
    broker = request.broker
    summary = inspect_partition(broker, tp, sums=request.context.segment_maps.sums)
    view = PartitionView(broker, tp)
    log = view.log
    decision = view.evaluate(partial(cleaning_decision, broker))
    mark, state = cleaner_view(broker, tp)
    waiting = [
        {"base_offset": base_offset, "size_bytes": size_bytes}
        for base_offset, size_bytes in deleted_files(view.files, log.directory)
    ]
    binding = decision.binding
    assert summary.verdict is not None, "inspect_partition gives one"
    assumed = assumptions(broker.manager, tp, cleaning=True)
    return {
        **summary.to_line_json(),
        "verdict": request.context.partitions.exact_verdict(log, summary.verdict).to_json(),
        "sections": summary.section_bytes(),
        "holes": sum(item.holes for item in request.context.segment_maps.items(tp)[1]),
        "deleted": waiting,
        "deleted_bytes": sum(each["size_bytes"] for each in waiting),
        "decision": {
            "will_clean": decision.will_clean,
            "binding": None if binding is None else binding.gate,
            "opens_at_ms": decision.opens_at_ms,
            "gates": [gate.to_json() for gate in decision.gates],
            "cleanable_bytes": decision.state.cleanable_bytes,
            "must_clean_bytes": decision.state.must_clean_bytes,
            "max_compaction_delay_ms": decision.state.max_compaction_delay_ms,
        },
        "max_compaction_lag_ms": log.config.max_compaction_lag_ms,
        "min_cleanable_dirty_ratio": log.config.min_cleanable_dirty_ratio,
        "assumed": list(assumed),
        "uncleanable": None if mark is None else mark.to_json(),
        "in_progress": None if state is None else str(state),
    }


def verdict(request: ApiRequest) -> dict[str, Any]:
    """Compute the exact verdict by dry runs, with progress on the event stream."""
    tp = request.topic_partition()
    context = request.context
    with context.cleaning_lock.hold(), context.live.dry_run(tp) as progress:
        found = partition_verdict(request.broker, tp, exact=True, progress=progress)
    context.partitions.note_verdict(tp, found)
    return {**tp._asdict(), "verdict": found.to_json()}


def segments(request: ApiRequest) -> dict[str, Any]:
    """List segments in offset order, including those awaiting deletion."""
    tp = request.topic_partition()
    first, count = request.window(PAGE_MAX)
    total, items = request.context.segment_maps.items(tp, first, count)
    return {"total": total, "first": first, "segments": [item.to_json() for item in items]}


def segment_map(request: ApiRequest) -> dict[str, Any]:
    """Return the segment map: adjacent segments merged into about `buckets` buckets."""
    tp = request.topic_partition()
    buckets = request.number("buckets", BUCKETS, least=1, most=BUCKETS_MAX)
    first = request.number("first", 0)
    count = request.number("count", 0) if "count" in request.query else None
    total, items = request.context.segment_maps.buckets(tp, buckets, first, count)
    shown = sum(item.segments for item in items)
    found = [item.to_json() for item in items]
    return {"total": total, "first": first, "count": shown, "buckets": found}


def explain(request: ApiRequest) -> dict[str, Any]:
    """Explain why a partition is or is not cleaned, as `explain` does."""
    key = request.text("key").encode() if "key" in request.query else None
    # The history of a key reveals the contents of records.
    tp = (
        request.topic_partition("describe")
        if key is None
        else request.topic_partition("describe", "read")
    )
    with request.context.cleaning_lock.hold():
        report = request.broker.explain(tp, quick=request.flag("quick"), key=key)
    item = report.partitions[0]
    if item.verdict is not None and (item.verdict.exact or item.verdict.state == DAMAGED):
        request.context.partitions.note_verdict(tp, item.verdict)
    return item.to_json()


def tombstones(request: ApiRequest) -> dict[str, Any]:
    """Count surviving tombstones by the condition that they await, and by segment."""
    tp = request.topic_partition()
    broker, now_ms = request.broker, request.broker.clock.now_ms()
    view = PartitionView(broker, tp)
    live = live_tombstones(view)
    log, decision = view.log, view.evaluate(partial(cleaning_decision, broker))
    found = Tombstones.of(live, now_ms, decision)
    retention_ms = log.config.delete_retention_ms
    reasons = found.reasons(decision, retention_ms)
    by_segment: dict[int, list[Tombstone]] = {}
    for each in live:
        segment = log.segments.floor(each.offset)
        by_segment.setdefault(0 if segment is None else segment.base_offset, []).append(each)
    return {
        "tombstones": asdict(found) | {"text": text_of(reasons), "reasons": reasons_json(reasons)},
        "segments": [
            {"base_offset": base, **asdict(Tombstones.of(inside, now_ms, decision))}
            for base, inside in by_segment.items()
        ],
        "is_compacted": log.config.compact,
        "delete_retention_ms": retention_ms,
        "now_ms": now_ms,
        "damages": [str(damage) for damage in view.damages],
    }


def stats(request: ApiRequest) -> dict[str, Any]:
    """Count records, keys and bytes, as `stats` does."""
    tp = request.topic_partition("describe", "read")  # shows keys
    with request.context.cleaning_lock.hold():  # the verdict requires dry runs
        found = request.broker.stats(tp, top=request.number("top", 10, most=TOP_KEYS_MAX))
    request.context.partitions.note_verdict(tp, found.verdict)
    return found.to_json()


_AT = "/api/partitions/{topic}/{partition}"

ROUTES = (
    get(_AT, partition),
    get(f"{_AT}/verdict", verdict),
    get(f"{_AT}/segments", segments, "first", "count"),
    get(f"{_AT}/segment-map", segment_map, "buckets", "first", "count"),
    get(f"{_AT}/explain", explain, "quick", "key"),
    get(f"{_AT}/tombstones", tombstones),
    get(f"{_AT}/stats", stats, "top"),
)
