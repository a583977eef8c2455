"""Batches, records and record fates of a partition, paged."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from logstore.analysis.fates import PartitionFates, fate_json
from logstore.analysis.view import PartitionView
from logstore.errors import InvalidRegularExpressionError
from logstore.inspect.files import describe_batches
from logstore.inspect.filters import INT64_MIN, RecordFilter
from logstore.inspect.records import decoded_member, stored_record_json
from logstore.record.batch import decode_stored
from logstore.record.json_text import record_json
from logstore.runtime.patterns import compile_search
from logstore.storage.log.reader import Isolation
from logstore.ui.api.overview import PAGE_MAX
from logstore.ui.api_request import get
from logstore.ui.errors import InvalidRequestError, UnknownPlaceError

if TYPE_CHECKING:
    from logstore.clients.records import ConsumerRecord
    from logstore.record.survey import Damage
    from logstore.storage.log.log import Log
    from logstore.ui.api_request import ApiRequest

T = TypeVar("T")

RECORDS_MAX = 500
"""Maximum number of items in a response."""

SCAN_RECORDS_MAX = 50_000
SCAN_BYTES_MAX = 32 * 1024 * 1024
"""Maximum number of records, and of key and value bytes, scanned per request."""

ANSWER_CHARACTERS_MAX = 4 * 1024 * 1024
"""Approximate maximum length of a response. It has at least one record."""

ISOLATIONS = ("read_uncommitted", "read_committed")


def batches(request: ApiRequest) -> dict[str, Any]:
    """List the batches of a segment with kafka-dump-log's field names. Verifies CRCs."""
    tp = request.topic_partition("describe", "read")
    base = request.path_offset("base")
    first, count = request.window(PAGE_MAX)
    view = PartitionView(request.broker, tp)
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


def batch_records(request: ApiRequest) -> dict[str, Any]:
    """List the records of a batch, including control records."""
    tp = request.topic_partition("describe", "read")
    base = request.path_offset("base")
    first, count = request.window(RECORDS_MAX)
    view = PartitionView(request.broker, tp)
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


def records(request: ApiRequest) -> dict[str, Any]:
    """List records in offset order as `read` does, optionally only matching records.

    A search may return fewer than `count` records, because it does not read the entire log.
    """
    tp = request.topic_partition("describe", "read")
    count = request.number("count", 100, least=1, most=RECORDS_MAX)
    isolation = request.choice("isolation", ISOLATIONS, "read_uncommitted")
    field_bytes = request.number("field_bytes", 0)
    log = PartitionView(request.broker, tp).log
    start, end = _range(request, log)
    readable = log.reader.upper_offset(Isolation(isolation))
    wanted = _conditions(request)
    read = request.broker.read(tp, offset=start, until=end, isolation=isolation)
    next_offset = start
    scanned = scanned_bytes = 0

    def texts() -> Iterator[str]:
        nonlocal next_offset, scanned, scanned_bytes
        found = 0
        for record in read:
            next_offset = record.offset + 1
            scanned += 1
            scanned_bytes += len(record.key or b"") + len(record.value or b"")
            extra = decoded_member(record.topic, record) | request.context.decoded(record)
            decoded = json.dumps(extra).encode() if extra and wanted is not None else b""
            if wanted is None or wanted.matches(record, decoded):
                yield _text(record, extra, field_bytes)
                found += 1
            if found == count or scanned == SCAN_RECORDS_MAX or scanned_bytes >= SCAN_BYTES_MAX:
                return
        next_offset = max(next_offset, readable if end is None else min(end, readable))

    listed = [json.loads(text) for text in _bounded(texts())]
    log = PartitionView(request.broker, tp).log
    return {
        "records": listed,
        "next_offset": next_offset,
        "scanned": {"records": scanned, "bytes": scanned_bytes},
        "log_start_offset": log.log_start_offset,
        "log_end_offset": log.log_end_offset,
    }


def _range(request: ApiRequest, log: Log) -> tuple[int, int | None]:
    """Return the first offset, and the end offset or None."""
    start = log.log_start_offset
    if "from_timestamp" in request.query:
        found = log.reader.offset_for_timestamp(request.number("from_timestamp", 0))
        start = log.log_end_offset if found is None else found.offset
    start = request.number("from_offset", start)
    if "until_offset" not in request.query:
        return start, None
    return start, request.number("until_offset", 0)


def _conditions(request: ApiRequest) -> RecordFilter | None:
    """Return the filter, or None without conditions."""
    given: dict[str, Any] = {}
    if (key := request.key()) is not None:
        given["key"] = key
    for name, parameter in (("text", "text"), ("header_text", "header_text")):
        if parameter in request.query:
            given[name] = request.text(parameter).encode("utf-8", "surrogateescape")
    if "header" in request.query:
        given["header"] = request.text("header")
    if "pattern" in request.query:
        try:
            given["pattern"] = compile_search(request.text("pattern"))
        except InvalidRegularExpressionError as error:
            raise InvalidRequestError(str(error), field="pattern") from error
    if "until_timestamp" in request.query:
        given["end_ms"] = request.number("until_timestamp", 0)
        given["first_ms"] = request.number("from_timestamp", INT64_MIN)
    return RecordFilter(**given) if given else None


def _text(record: ConsumerRecord, extra: dict[str, Any], field_bytes: int) -> str:
    """Return a record as JSON. `cut` contains the full size of a truncated key or value."""
    cut = {}
    key, value = record.key, record.value
    if field_bytes and key is not None and len(key) > field_bytes:
        cut["key"] = len(key)
        record = record._replace(key=_shortened(key, field_bytes))
    if field_bytes and value is not None and len(value) > field_bytes:
        cut["value"] = len(value)
        record = record._replace(value=_shortened(value, field_bytes))
    if cut:
        extra = extra | {"cut": cut}
    return record_json(record.topic, record.partition, record.timestamp_type, record, **extra)


def _shortened(data: bytes, size: int) -> bytes:
    """Truncate bytes without splitting a UTF-8 character."""
    for end in range(size, max(0, size - 4), -1):
        if data[end] & 0xC0 != 0x80:
            return data[:end]
    return data[:size]


def fates(request: ApiRequest) -> dict[str, Any]:
    """Return the fate of each record in the next cleaning pass, as `inspect --fate` does.

    With `roll`, assume that the active segment is rolled first.
    """
    tp = request.topic_partition("describe", "read")
    first, count = request.window(RECORDS_MAX)
    cleaner = request.broker.cleaner
    view = PartitionView(request.broker, tp)
    roll = request.flag("roll")
    page = view.evaluate(lambda log: PartitionFates(cleaner, log, roll=roll).page(first, count))
    return {
        "total": page.total,
        "first": first,
        "counts": dict(page.counts),
        "fates": [json.loads(fate_json(tp, each)) for each in page.fates],
    }


def _page(items: Iterable[T], first: int, count: int) -> Iterator[T]:
    """Yield `count` items starting at index `first`."""
    return islice(islice(items, first, None), count)


def _bounded(texts: Iterable[str]) -> Iterator[str]:
    """Yield texts up to the maximum response length."""
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
    get(
        f"{_AT}/records",
        records,
        *("from_offset", "until_offset", "from_timestamp", "until_timestamp", "count"),
        *("isolation", "key", "key_base64", "text", "pattern", "header", "header_text"),
        "field_bytes",
    ),
    get(f"{_AT}/fates", fates, "first", "count", "roll"),
)
