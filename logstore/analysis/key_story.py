"""One key of a partition: its records, the horizon of its tombstone, and what must happen first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.analysis.erasure import LIVE, SWAP, TOMBSTONE, Erasable, erasure
from logstore.analysis.view import PartitionView
from logstore.cleaner.selection import section_of
from logstore.record.json_text import bytes_item
from logstore.types import time_in_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from logstore.cleaner.explaining import Remedy
    from logstore.cleaner.selection import CleaningDecision
    from logstore.types import TopicPartition


class KeyRecord(NamedTuple):
    """A record of a key; moments and rule as in `ErasurePlace`.

    Attributes
    ----------
    section : str
        Of its segment: `clean`, `dirty`, `uncleanable`, `active`.
    delete_horizon_ms : int or None
        Of its batch.
    """

    offset: int
    timestamp: int
    state: str
    segment: int
    section: str
    delete_horizon_ms: int | None
    earliest_ms: int | None
    latest_ms: int | None
    rule: str


@dataclass(frozen=True, slots=True)
class KeyExplanation:
    """What becomes of a key in a partition, as of `now_ms`, and what must happen first."""

    key: bytes
    records: tuple[KeyRecord, ...]
    steps: tuple[str, ...]
    now_ms: int

    def to_json(self) -> dict[str, Any]:
        """Return the member `key` of an item of `logstore explain --key`."""
        return {
            **bytes_item("key", self.key),
            "records": [record._asdict() for record in self.records],
            "steps": list(self.steps),
        }


def explain_key(
    broker: Erasable,
    topic_partition: TopicPartition,
    key: bytes,
    decision: CleaningDecision,
    remedies: Sequence[Remedy],
) -> KeyExplanation:
    """Tell of a key in a partition; the decision and its remedies are the partition's."""
    report = erasure(broker, topic_partition.topic, key, topic_partition.partition)
    places = {
        place.offset: place
        for place in report.places
        if place.offset is not None and place.state != SWAP
    }
    view = PartitionView(broker, topic_partition)
    records: list[KeyRecord] = []
    for offset, place in sorted(places.items()):
        at = view.at(offset)
        log = view.log
        segment = log.segments.floor(offset)
        if at is None or segment is None or segment.log_path != place.path:
            continue
        batch, record = at
        records.append(
            KeyRecord(
                offset,
                record.timestamp,
                place.state,
                segment.base_offset,
                section_of(log, segment, decision.state if log.config.compact else None),
                batch.header.delete_horizon_ms,
                place.earliest_ms,
                place.latest_ms,
                place.rule,
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
) -> Iterator[str]:
    """Yield, in order, what must happen until the key is gone."""
    if not records:
        yield "it has no record in the log"
        return
    last = next((each for each in records if each.state in (LIVE, TOMBSTONE)), None)
    if last is not None and last.state == LIVE and last.earliest_ms is None:
        yield (
            f"record {last.offset} is what readers see of it; it stays until a newer record of the"
            " key, or a tombstone, is appended"
        )
    binding = decision.binding
    if decision.will_clean:
        yield "a pass over the partition is due now"
    elif decision.opens_at_ms is not None:
        moment = time_in_text(decision.opens_at_ms)
        yield f"a pass over the partition is due by itself at {moment}"
    elif binding is not None:
        remedy = next((each for each in remedies if each.gate == binding.gate), None)
        why = binding.text if remedy is None else f"{remedy.cause}; what helps: {remedy.cure}"
        yield f"no pass over the partition is due by itself: {why}"
    if last is None or last.state != TOMBSTONE:
        return
    if last.delete_horizon_ms is None:
        yield (
            f"the first pass through tombstone {last.offset} gives it its delete horizon: the"
            f" moment of that pass plus delete.retention.ms {delete_retention_ms}"
        )
        yield "the first pass at or after that horizon drops it; one must be due then, too"
    else:
        yield (
            f"the delete horizon of tombstone {last.offset} is"
            f" {time_in_text(last.delete_horizon_ms)}: the first pass at or after it drops it"
        )
