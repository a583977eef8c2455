"""Descriptions of a broker's state as text, for reports of failed tests."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from logstore.errors import LogStoreError
from logstore.names import INTERNAL_COMPACTED_TOPICS

if TYPE_CHECKING:
    from logstore.broker import Broker
    from logstore.clients.records import ConsumerRecord
    from logstore.types import TopicPartition

PARTITIONS_SHOWN = 20
RECORDS_SHOWN = 4
TEXT_SHOWN = 60
"""Maximum number of characters of a key or a value that are shown."""


def described(broker: Broker) -> str:
    """Describe the time, topics, partitions, last records, groups, transactions and faults.

    This never raises an exception; errors are included in the text. It changes nothing and does not
    advance the clock.
    """
    if broker.manager.lifetime.is_over:
        return f"{broker!r} was closed"
    lines: list[str] = []
    parts = (_head, _topics, _groups, _transactions, _faults)
    for part in parts:
        try:
            lines += part(broker)
        except Exception as error:  # must not hide the test's failure
            lines.append(f"({part.__name__.strip('_')}: {type(error).__name__}: {error})")
    return "\n".join(lines)


def _head(broker: Broker) -> Iterator[str]:
    yield f"{broker!r} at {time_text(broker.clock.now_ms())}"


def _topics(broker: Broker) -> Iterator[str]:
    left = PARTITIONS_SHOWN
    for topic in broker.topics():
        if topic.name in INTERNAL_COMPACTED_TOPICS:
            continue
        configs = " ".join(f"{key}={value}" for key, value in topic.configs.items())
        yield f"topic {topic.name} {configs}".rstrip()
        for tp in broker.partitions(topic.name):
            if left == 0:
                yield "  …"
                return
            left -= 1
            try:
                yield from _partition(broker, tp)
            except LogStoreError as error:
                yield f"  {tp}: {type(error).__name__}: {error}"


def _partition(broker: Broker, tp: TopicPartition) -> Iterator[str]:
    log = broker.log(*tp)
    segments = log.segments
    size = sum(segment.size_bytes for segment in segments)
    stable = log.last_stable_offset
    yield (
        f"  {tp}: offsets {log.log_start_offset} to {log.log_end_offset}"
        + (f", open transaction from {stable}" if stable < log.high_watermark else "")
        + f", {len(segments)} segment{'s' * (len(segments) != 1)}, {size} bytes"
    )
    first = max(log.log_start_offset, log.log_end_offset - 10 * RECORDS_SHOWN)
    for record in deque(records_of(broker, tp, offset=first), maxlen=RECORDS_SHOWN):
        yield f"    {record_text(record)}"


def _groups(broker: Broker) -> Iterator[str]:
    for group_id, _, state, _ in broker.groups.list_groups():
        found = broker.groups.describe_consumer_group(group_id)
        is_consumer = found.error is None
        count = len((found if is_consumer else broker.groups.describe(group_id)).members)
        yield f"group {group_id}: {state}, {count} member{'s' * (count != 1)}"
        for tp, committed in broker.groups.committed(group_id).items():
            try:
                end = f" of {broker.log(*tp).log_end_offset}"
            except LogStoreError:
                end = ", a deleted partition"
            yield f"  {tp} committed {committed.offset}{end}"


def _transactions(broker: Broker) -> Iterator[str]:
    for transactional_id, metadata in broker.coordinator.transactions().items():
        on = ", ".join(map(str, sorted(metadata.partitions)))
        yield f"transaction {transactional_id}: {metadata.state.kafka_name}{' on ' * bool(on)}{on}"


def _faults(broker: Broker) -> Iterator[str]:
    for rule in broker.faults:
        yield f"fault {rule!r}"


def records_of(
    broker: Broker,
    tp: TopicPartition,
    *,
    offset: int | None = None,
    isolation: str = "read_uncommitted",
) -> Iterator[ConsumerRecord]:
    """Yield records like `Broker.read`, but without applying fault rules."""
    from logstore.clients.records import read_records
    from logstore.storage.log.reader import Isolation

    return read_records(broker.log(*tp), offset, None, Isolation(isolation), None)


# --- text --------------------------------------------------------------------------------------


def record_text(record: ConsumerRecord) -> str:
    """Return a record as a single line."""
    value = "a tombstone" if record.value is None else f"value {bytes_text(record.value)}"
    return f"offset {record.offset}: key {bytes_text(record.key)}, {value}"


def bytes_text(data: bytes | None) -> str:
    """Return the repr of bytes, truncated if it is long."""
    text = repr(data)
    return text if len(text) <= TEXT_SHOWN else f"{text[:TEXT_SHOWN]}… ({len(data or b'')} bytes)"


def time_text(wall_ms: int) -> str:
    """Return a time in UTC, followed by its Unix milliseconds."""
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=wall_ms)
    except OverflowError:  # beyond the year 9999
        return f"{wall_ms} ms"
    return f"{moment.isoformat(timespec='milliseconds').removesuffix('+00:00')}Z ({wall_ms} ms)"
