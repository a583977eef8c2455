"""Assertions about the records and offsets in a broker.

The error messages explain the reason for a failure.

By default, the assertions read all partitions with `read_committed`. Faults set by `Broker.fail` do
not affect them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

from logstore.testing.describing import bytes_text, record_text, records_of, time_text
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from logstore.broker import Broker
    from logstore.clients.records import ConsumerRecord
    from logstore.storage.log.log import Log

KEYS_SHOWN = 10

_FORCED = ("active_segment", "dirty_ratio", "min_compaction_lag", "empty")
"""The gates that do not apply to `broker.clean(force=True, roll=True)`."""


def records_by_key(
    broker: Broker,
    topic: str,
    partition: int | None = None,
    *,
    isolation: str = "read_committed",
) -> dict[bytes | None, list[ConsumerRecord]]:
    """Return the records of each key, including tombstones, ordered by partition and offset.

    Raises
    ------
    UnknownTopicOrPartitionError
    """
    found: dict[bytes | None, list[ConsumerRecord]] = {}
    for tp in broker.partitions(topic, partition):
        for record in records_of(broker, tp, isolation=isolation):
            found.setdefault(record.key, []).append(record)
    return found


def history(
    broker: Broker,
    topic: str,
    key: bytes | None,
    partition: int | None = None,
    *,
    isolation: str = "read_committed",
) -> list[bytes | None]:
    """Return the values of a key that are still in the log, oldest first. None is a tombstone.

    Raises
    ------
    UnknownTopicOrPartitionError
    """
    if key is not None:
        _check_bytes(key)
    found = records_by_key(broker, topic, partition, isolation=isolation)
    return [record.value for record in found.get(key, [])]


def assert_compacted(broker: Broker, topic: str, partition: int | None = None) -> None:
    """Assert that a partition has at most one record per key.

    Under a version strategy (KIP-280), the last record in the log may be additional.

    Raises
    ------
    AssertionError
        The message contains the keys, the offsets, and the gates that prevent cleaning.
    UnknownTopicOrPartitionError
    """
    __tracebackhide__ = True
    complaints: list[str] = []
    for tp in broker.partitions(topic, partition):
        complaints += _not_compacted(broker, tp)
    if complaints:
        raise AssertionError("\n".join(complaints))


def assert_tombstone_gone(
    broker: Broker, topic: str, key: bytes, partition: int | None = None
) -> None:
    """Assert that neither values nor tombstones of a key can be read anymore.

    Raises
    ------
    AssertionError
        The message contains each remaining record, why it remains, and when it can be removed.
    UnknownTopicOrPartitionError
    """
    __tracebackhide__ = True
    _check_bytes(key)
    partitions = broker.partitions(topic, partition)
    if not any(broker.log(*tp).log_end_offset for tp in partitions):
        raise AssertionError(f"{topic} is empty: no record was ever appended")
    complaints: list[str] = []
    for tp in partitions:
        complaints += _not_gone(broker, tp, key)
    if complaints:
        raise AssertionError(
            "\n".join([f"there are still records with key {bytes_text(key)}", *complaints])
        )


def assert_committed(
    broker: Broker, group_id: str, offsets: Mapping[TopicPartition, int | None]
) -> None:
    """Assert the committed offsets of a group. None means that no offset is committed.

    Raises
    ------
    AssertionError
        The message contains each partition whose offset differs, and its log end offset.
    """
    __tracebackhide__ = True
    wanted = {TopicPartition(*tp): offset for tp, offset in offsets.items()}
    fetched = broker.groups.fetch(group_id, list(wanted), require_stable=True)
    stored = broker.groups.committed(group_id)
    complaints = []
    for tp, offset in wanted.items():
        committed = stored[tp].offset if tp in stored else None
        if committed == offset:
            continue
        line = f"  {tp}: {_offset_text(committed)}, expected {_offset_text(offset)}"
        if tp in broker.partitions():
            line += f"; the log ends at {broker.log(*tp).log_end_offset}"
        if fetched[tp].error is not None:
            line += "; an open transaction has pending offsets"
        complaints.append(line)
    if complaints:
        head = f"the committed offsets of group {group_id!r} differ:"
        raise AssertionError("\n".join([head, *complaints, *_other_groups(broker, group_id)]))


# --- reasons -----------------------------------------------------------------------------------


def _not_compacted(broker: Broker, tp: TopicPartition) -> Iterator[str]:
    log = broker.log(*tp)
    by_key = records_by_key(broker, *tp)
    by_key.pop(None, None)
    several = {}
    for key, records in by_key.items():
        winner = _winner(log, records)
        losers = [r for r in records if r is not winner and not _is_retained_as_last(log, r)]
        if losers:
            several[key] = records, winner
    if not several:
        return
    yield f"{tp} is not compacted: {len(several)} of {len(by_key)} keys have more than one record"
    for key, (records, winner) in list(several.items())[:KEYS_SHOWN]:
        offsets = ", ".join(str(record.offset) for record in records)
        yield f"  key {bytes_text(key)}: offsets {offsets}; compaction keeps {winner.offset}"
    if len(several) > KEYS_SHOWN:
        yield f"  … and {len(several) - KEYS_SHOWN} more"
    yield from _closed_gates(broker, tp)


def _not_gone(broker: Broker, tp: TopicPartition, key: bytes) -> Iterator[str]:
    log = broker.log(*tp)
    horizons = {
        record.offset: batch.header.delete_horizon_ms
        for batch, record in log.reader.records(log.log_start_offset)
        if record.key == key
    }
    records = [record for record in records_of(broker, tp) if record.key == key]
    if not records:
        return
    winner = _winner(log, records)
    now_ms = broker.clock.now_ms()
    for record in records:
        horizon_ms = horizons.get(record.offset)
        if record is not winner:
            why = f"superseded by offset {winner.offset}; the next pass removes it"
        elif record.value is not None:
            why = "it is the latest record of the key, without a tombstone after it"
        elif horizon_ms is None:
            why = (
                "it has no delete horizon: its first cleaning pass sets one, delete.retention.ms "
                f"({log.config.delete_retention_ms} ms) later"
            )
        elif horizon_ms > now_ms:
            why = f"its delete horizon is {time_text(horizon_ms)}; now is {time_text(now_ms)}"
        else:
            why = f"the next pass removes it (delete horizon {time_text(horizon_ms)})"
        yield f"  {tp} {record_text(record)}: {why}"
    yield from _closed_gates(broker, tp)


def _closed_gates(broker: Broker, tp: TopicPartition) -> Iterator[str]:
    for partition in broker.explain(*tp).partitions:
        if partition.will_clean:
            yield f"  {tp} is due for cleaning: call broker.clean({tp.topic!r})"
        for gate in partition.gates:
            if gate.gate == partition.binding:
                yield f"  cleaning waits for {gate.gate}: {gate.text}"
                if gate.gate in _FORCED:
                    yield f"  broker.clean({tp.topic!r}, force=True, roll=True) ignores this"


def _winner(log: Log, records: list[ConsumerRecord]) -> ConsumerRecord:
    """Return the record that compaction retains for a key."""
    from logstore.cleaner.strategy import Strategy

    order_of = Strategy.of(log.config).order_of
    return max(records, key=lambda each: order_of(each.offset, each.timestamp, each.headers))


def _is_retained_as_last(log: Log, record: ConsumerRecord) -> bool:
    from logstore.cleaner.strategy import Strategy

    return Strategy.of(log.config).has_versions and record.offset == log.log_end_offset - 1


def _other_groups(broker: Broker, group_id: str) -> Iterator[str]:
    known = [group.group_id for group in broker.groups.list_groups()]
    if group_id not in known:
        nearest = get_close_matches(group_id, known, 1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        yield f"  unknown group {group_id!r}{hint}"


def _offset_text(offset: int | None) -> str:
    return "nothing" if offset is None else str(offset)


def _check_bytes(key: object) -> None:
    if not isinstance(key, bytes):
        raise TypeError(f"key must be bytes, not {key!r}")
