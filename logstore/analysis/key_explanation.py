"""A key in a partition: its records, delete horizon, and the steps to its removal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.analysis.erasure import IN_THE_LOG, LIVE, TOMBSTONE, Erasable, erasure, rule_json
from logstore.analysis.view import PartitionView
from logstore.cleaner.explaining import pass_due
from logstore.cleaner.selection import section_of
from logstore.reasons import Reason, reasons_json
from logstore.record.json_text import bytes_item

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from logstore.cleaner.explaining import Remedy
    from logstore.cleaner.selection import CleaningDecision
    from logstore.types import TopicPartition


class KeyRecord(NamedTuple):
    """A record with the key. For times and reasons, see `ErasurePlace`.

    Attributes
    ----------
    section : str
        Section of the record's segment: `clean`, `dirty`, `uncleanable` or `active`.
    delete_horizon_ms : int or None
        Delete horizon of the record's batch, or None if it has none.
    """

    offset: int
    timestamp: int
    state: str
    segment: int
    section: str
    delete_horizon_ms: int | None
    earliest_ms: int | None
    latest_ms: int | None
    reasons: tuple[Reason, ...]

    def to_json(self) -> dict[str, Any]:
        """Return an item of `records`."""
        item = self._asdict()
        del item["reasons"]
        return item | rule_json(self.reasons)


@dataclass(frozen=True, slots=True)
class KeyExplanation:
    """The future of a key in a partition as of `now_ms`, and the steps to its removal."""

    key: bytes
    records: tuple[KeyRecord, ...]
    steps: tuple[Reason, ...]
    now_ms: int

    def to_json(self) -> dict[str, Any]:
        """Return the member `key` of an item of `logstore explain --key`."""
        return {
            **bytes_item("key", self.key),
            "records": [record.to_json() for record in self.records],
            "steps": [step.text for step in self.steps],
            "reasons": reasons_json(self.steps),
        }


def explain_key(
    broker: Erasable,
    topic_partition: TopicPartition,
    key: bytes,
    decision: CleaningDecision,
    remedies: Sequence[Remedy],
) -> KeyExplanation:
    """Explain a key, given the partition's decision and remedies."""
    report = erasure(broker, topic_partition.topic, key, topic_partition.partition)
    locations = {
        location.offset: location
        for location in report.places
        if location.offset is not None and location.state in IN_THE_LOG
    }
    view = PartitionView(broker, topic_partition)
    records: list[KeyRecord] = []
    for offset, location in sorted(locations.items()):
        at = view.at(offset)
        log = view.log
        segment = log.segments.floor(offset)
        if at is None or segment is None or segment.log_path != location.path:
            continue
        batch, record = at
        records.append(
            KeyRecord(
                offset,
                record.timestamp,
                location.state,
                segment.base_offset,
                section_of(log, segment, decision.state if log.config.compact else None),
                batch.header.delete_horizon_ms,
                location.earliest_ms,
                location.latest_ms,
                location.reasons,
            )
        )
    retention_ms = view.log.config.delete_retention_ms
    steps = tuple(_steps(records, decision, remedies, retention_ms))
    return KeyExplanation(key, tuple(records), steps, report.now_ms)


def _steps(
    records: Sequence[KeyRecord],
    decision: CleaningDecision,
    remedies: Sequence[Remedy],
    delete_retention_ms: int,
) -> Iterator[Reason]:
    """Yield the steps until the key is removed, in order."""
    if not records:
        yield Reason.of("key.no_record")
        return
    last = next((each for each in records if each.state in (LIVE, TOMBSTONE)), None)
    if last is not None and last.state == LIVE and last.earliest_ms is None:
        yield Reason.of("key.live", offset=last.offset)
    binding = decision.binding
    if binding is None or decision.opens_at_ms is not None:
        yield pass_due(decision)
    else:
        remedy = next((each for each in remedies if each.gate == binding.gate), None)
        yield Reason.of("key.no_pass")
        yield from (binding.reason,) if remedy is None else remedy.causes
    if last is None or last.state != TOMBSTONE:
        return
    if last.delete_horizon_ms is None:
        yield Reason.of(
            "key.stamped_later", offset=last.offset, delete_retention_ms=delete_retention_ms
        )
        yield Reason.of("key.removed_later")
    else:
        yield Reason.of("key.horizon", offset=last.offset, at_ms=last.delete_horizon_ms)
