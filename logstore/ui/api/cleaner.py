"""State, metrics and history of the log cleaner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logstore.analysis.broker_state import cleanable_state
from logstore.cleaner.pool.throttle import UNLIMITED
from logstore.errors import LogStoreError
from logstore.types import TopicPartition
from logstore.ui.api_request import get
from logstore.ui.errors import InvalidRequestError
from logstore.ui.live import passes_under_way

if TYPE_CHECKING:
    from logstore.broker import Broker
    from logstore.ui.api_request import ApiRequest

CLEANINGS = 100
"""Maximum number of cleaning passes in a response."""


def cleaner(request: ApiRequest) -> dict[str, Any]:
    """Return the cleaner's threads, limits, gauges and uncleanable partitions."""
    broker = request.broker
    config = broker.broker_config
    under_way = [each for each in passes_under_way(broker) if _is_visible(request, each)]
    steps = {TopicPartition(each["topic"], each["partition"]): each for each in under_way}
    threads = []
    for worker, is_alive in () if broker.pool is None else broker.pool.workers():
        step = None if worker.at is None else steps.get(worker.at)
        threads.append(
            {
                "name": worker.name,
                "alive": is_alive,
                "topic": None if step is None else step["topic"],
                "partition": None if step is None else step["partition"],
                "phase": None if step is None else step["phase"],
                "bytes_done": 0 if step is None else step["bytes_done"],
                "bytes_total": 0 if step is None else step["bytes_total"],
                "throttled_ms": worker.pause_ms,
                "passes": worker.passes,
            }
        )
    return {
        "enabled": broker.pool is not None and config.log_cleaner_enable,
        "threads": threads,
        "under_way": under_way,
        "throttle": {
            "both": _limit(config.log_cleaner_io_max_bytes_per_second),
            "reads": _limit(config.logstore_cleaner_max_read_bytes_per_second),
            "writes": _limit(config.logstore_cleaner_max_write_bytes_per_second),
        },
        "gauges": _gauges_of_copy(request) if broker.read_only else broker.metrics().to_json(),
        "uncleanable": [
            mark.to_json() | {"bytes": _dirty_bytes(request.broker, mark.topic_partition)}
            for mark in broker.cleaner.uncleanable()
            if _is_visible(request, mark.to_json())
        ],
        "history": _cleanings(request, None)[:CLEANINGS],
    }


def _gauges_of_copy(request: ApiRequest) -> dict[str, Any]:
    """Compute the cleaner's gauges from the partitions measured so far.

    A copied directory has no cleaner, so the actual gauges would all be 0.
    """
    topics = [
        each for each in request.broker.topics() if request.allows("describe", "topic", each.name)
    ]
    rows = request.context.partitions.rows(topics)
    request.context.partitions.measure(rows, rows)
    ratios = [row.cleanable_ratio for row in rows if row.cleanable_ratio is not None]
    delays = [row.max_compaction_delay_ms or 0 for row in rows if row.measured]
    return {
        "partitions": len(rows),
        "measured-partitions": sum(row.measured for row in rows),
        "due-partitions": sum(row.will_clean is True for row in rows),
        "max-dirty-percent": int(100 * max(ratios, default=0)),
        "max-compaction-delay-secs": max(delays, default=0) // 1000,
    }


def _limit(bytes_per_second: float) -> float | None:
    return None if bytes_per_second >= UNLIMITED else bytes_per_second


def _dirty_bytes(broker: Broker, topic_partition: TopicPartition) -> int | None:
    try:
        return cleanable_state(broker, broker.log(topic_partition)).cleanable_bytes
    except LogStoreError:  # deleted in the meantime, or unreadable
        return None


def history(request: ApiRequest) -> dict[str, Any]:
    """Return gauges over time and the last cleaning passes, for the broker or a partition."""
    live = request.context.live.history
    if "topic" not in request.query:
        if "partition" in request.query:
            raise InvalidRequestError("partition requires topic", field="topic")
        return {"series": live.curves(), "cleanings": _cleanings(request, None)[:CLEANINGS]}
    name = request.text("topic")
    (tp,) = request.broker.partitions(request.known_topic(name), request.number("partition", 0))
    return {"series": live.curves_of(tp), "cleanings": _cleanings(request, tp)[:CLEANINGS]}


def _cleanings(request: ApiRequest, wanted: TopicPartition | None) -> list[dict[str, Any]]:
    return request.context.live.history.cleanings(
        lambda each: (
            _is_visible(request, each)
            and (wanted is None or wanted == (each["topic"], each["partition"]))
        )
    )


def _is_visible(request: ApiRequest, item: dict[str, Any]) -> bool:
    return request.allows("describe", "topic", item["topic"])


ROUTES = (
    get("/api/cleaner", cleaner),
    get("/api/history", history, "topic", "partition"),
)
