"""Batches, records and fates of a partition, in pages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from logstore.analysis.fates import PartitionFates, fate_json
from logstore.analysis.view import PartitionView
from logstore.inspect.files import describe_batches
from logstore.inspect.records import decoded_member, stored_record_json
from logstore.record.batch import decode_stored
from logstore.record.json_text import record_json
from logstore.ui.api.overview import PAGE_MAX
from logstore.ui.asking import get
from logstore.ui.errors import UnknownPlaceError

if TYPE_CHECKING:
    from logstore.record.survey import Damage
    from logstore.ui.asking import Ask

T = TypeVar("T")

RECORDS_MAX = 500
"""Maximum number of items in a response."""

ANSWER_CHARACTERS_MAX = 4 * 1024 * 1024
"""Length after which a response with records ends. It always has at least one record."""

ISOLATIONS = ("read_uncommitted", "read_committed")


def batches(ask: Ask) -> dict[str, Any]:
    """List the batches of a segment with kafka-dump-log's field names, verifying each CRC."""
    tp = ask.topic_partition("describe", "read")
    base = ask.place("base")
    first, count = ask.window(PAGE_MAX)
    view = PartitionView(ask.broker, tp)
    segment = view.log.segments.get(base)
    if segment is None:
        raise UnknownPlaceError(f"{tp} has no segment {base}")
    damages: list[Damage] = []
    found: list[dict[str, Any]] = []
    for source, _ in view.sources([segment]):
        described = describe_batches(source, damages)
        found = [each | tp._asdict() for each in _page(described, first, count)]
    return {
        "first": first,
        "batches": found,
        "damages": [
            damage._asdict() for damage in damages if damage.first_offset_after is not None
        ],
    }


def batch_records(ask: Ask) -> dict[str, Any]:
    """List the records of a batch, including control records."""
    tp = ask.topic_partition("describe", "read")
    base = ask.place("base")
    first, count = ask.window(RECORDS_MAX)
    view = PartitionView(ask.broker, tp)
    overlapping = view.batches(base, base + 1)
    stored = next((each for each in overlapping if each.batch.header.base_offset == base), None)
    if stored is None:
        raise UnknownPlaceError(f"{tp} has no batch {base}")
    inside = decode_stored(stored.batch, view.log.config.logstore_decompression_max_bytes)
    texts = (
        stored_record_json(tp, stored.batch, stored.position, record)
        for record in _page(inside, first, count)
    )
    return {"first": first, "records": [json.loads(text) for text in _bounded(texts)]}


def records(ask: Ask) -> dict[str, Any]:
    """List records in offset order, as `read` does."""
    tp = ask.topic_partition("describe", "read")
    broker = ask.broker
    count = ask.number("count", 100, most=RECORDS_MAX)
    isolation = ask.choice("isolation", ISOLATIONS, "read_uncommitted")
    view = PartitionView(broker, tp)
    start = view.log.log_start_offset
    if "from_timestamp" in ask.query:
        found = view.log.reader.offset_for_timestamp(ask.number("from_timestamp", 0))
        start = view.log.log_end_offset if found is None else found.offset
    start = ask.number("from_offset", start)
    key = ask.text("key").encode() if "key" in ask.query else None
    read = broker.read(tp, offset=start, isolation=isolation, key=key)
    next_offset = start

    def texts() -> Iterator[str]:
        nonlocal next_offset
        for record in islice(read, count):
            next_offset = record.offset + 1
            yield record_json(
                record.topic,
                record.partition,
                record.timestamp_type,
                record,
                **decoded_member(record.topic, record),
            )

    listed = [json.loads(text) for text in _bounded(texts())]
    log = view.log
    return {
        "records": listed,
        "next_offset": next_offset if listed else max(start, log.high_watermark),
        "log_start_offset": log.log_start_offset,
        "log_end_offset": log.log_end_offset,
    }


def fates(ask: Ask) -> dict[str, Any]:
    """Return the fate of each record in the next cleaning pass, as `inspect --fate` does."""
    tp = ask.topic_partition("describe", "read")
    first, count = ask.window(RECORDS_MAX)
    cleaner = ask.broker.cleaner
    view = PartitionView(ask.broker, tp)
    page = view.evaluate(lambda log: PartitionFates(cleaner, log).page(first, count))
    return {
        "total": page.total,
        "first": first,
        "counts": dict(page.counts),
        "fates": [json.loads(fate_json(tp, each)) for each in page.fates],
    }


def _page(items: Iterable[T], first: int, count: int) -> Iterator[T]:
    """Yield `count` items starting at index `first`, which may be large."""
    return islice(islice(items, first, None), count)


def _bounded(texts: Iterable[str]) -> Iterator[str]:
    """Yield texts up to the maximum length of a response."""
    characters = 0
    for text in texts:
        yield text
        characters += len(text)
        if characters >= ANSWER_CHARACTERS_MAX:
            return


_AT = "/api/partitions/{topic}/{partition}"

ROUTES = (
    get(f"{_AT}/segments/{{base}}/batches", batches, "first", "count"),
    get(f"{_AT}/batches/{{base}}/records", batch_records, "first", "count"),
    get(f"{_AT}/records", records, "from_offset", "from_timestamp", "count", "isolation", "key"),
    get(f"{_AT}/fates", fates, "first", "count"),
)
