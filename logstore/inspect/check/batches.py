"""Checks inside a batch with a valid CRC."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from logstore.errors import CorruptRecordError, InvalidRecordError
from logstore.inspect.check.findings import ERROR, WARNING, CheckFinding, finding
from logstore.record import layout
from logstore.record.batch import RecordBatch
from logstore.record.control import EndTxnMarker, decode_control_key, decode_end_txn_marker
from logstore.record.header import BatchHeader
from logstore.record.varint import decode_varint
from logstore.types import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TimestampType,
)

if TYPE_CHECKING:
    from logstore.record.columns import RecordColumns
    from logstore.record.records import Record

# Not significant without a producer id. Kafka's group coordinators write a sequence of 0, and some
# clients an epoch of 0 as well.
_NO_EPOCH = (NO_PRODUCER_EPOCH, 0)
_NO_SEQUENCE = (NO_SEQUENCE, 0)


class _Records(NamedTuple):
    """Properties of decoded records. `wrong_offset` is the first that does not increase."""

    size: int
    last_offset: int
    wrong_offset: int | None
    max_timestamp: int
    key: bytes | None
    value: bytes | None


def verify_batch(
    batch: RecordBatch, decompression_limit: int, *, is_metadata: bool = False
) -> Iterator[CheckFinding | EndTxnMarker]:
    """Yield the findings of a batch, and the transaction marker if it contains one.

    Parameters
    ----------
    batch : RecordBatch
        A complete batch with a valid CRC.
    decompression_limit : int
        Maximum decompressed size of the records, in bytes.
    is_metadata : bool
        Whether the batch is in a KRaft metadata log, whose control records end no transactions.
    """
    yield from _producer_fields(batch)
    yield from _horizon(batch)
    header = batch.header
    try:
        records = _facts_of(batch.windows(decompression_limit)(), header)
    except CorruptRecordError as error:
        yield _wrong(batch, "codec", error.expected, error.found or error.message)
        return
    except InvalidRecordError as error:
        yield _structure(batch, bytes(batch.section(decompression_limit)), error)
        return
    yield from _offsets_and_times(batch, records)
    if header.is_control:
        yield from _control(batch, records, is_metadata=is_metadata)


def _facts_of(windows: Iterator[list[Record] | RecordColumns], header: BatchHeader) -> _Records:
    """Decode all records in windows and return the properties that the checks need.

    Raises
    ------
    InvalidRecordError
    """
    size, previous, wrong = 0, header.base_offset, None
    largest, key, value = NO_TIMESTAMP, None, None
    for window in windows:
        if not len(window):
            continue
        if isinstance(window, list):
            offsets, timestamps = (
                [each.offset for each in window],
                [each.timestamp for each in window],
            )
            falls = next((b for a, b in pairwise(offsets) if b <= a), None)
            window_largest, first = max(timestamps), (window[0].key, window[0].value)
        else:
            offsets = [int(window.offsets[0]), int(window.offsets[-1])]
            fallen = window.offsets[1:][window.offsets[1:] <= window.offsets[:-1]]
            falls = int(fallen[0]) if len(fallen) else None
            window_largest = int(window.timestamps.max())
            first = window.keys[0], window.values[0]
        if size and wrong is None and offsets[0] <= previous:
            wrong = offsets[0]
        wrong = falls if wrong is None else wrong
        if not size:
            largest, (key, value) = window_largest, first
        largest, previous = max(largest, window_largest), offsets[-1]
        size += len(window)
    return _Records(size, previous, wrong, largest, key, value)


def _structure(batch: RecordBatch, section: bytes, error: InvalidRecordError) -> CheckFinding:
    """Return a finding for a wrong record count or for malformed records."""
    count = _count(section)
    if count is not None and count != batch.header.record_count:
        return _wrong(batch, "record_count", count, batch.header.record_count)
    return _wrong(batch, "record_structure", None, str(error))


def _count(section: bytes) -> int | None:
    """Count the records by their lengths alone. Return None if the lengths do not add up."""
    position, end, count = 0, len(section), 0
    while position < end:
        try:
            size, position = decode_varint(section, position, end)
        except InvalidRecordError:
            return None
        if not 1 <= size <= end - position:
            return None
        position += size
        count += 1
    return count


def _offsets_and_times(batch: RecordBatch, records: _Records) -> Iterator[CheckFinding]:
    header = batch.header
    if records.wrong_offset is not None:
        yield _wrong(batch, "offset_delta", "rising offsets", records.wrong_offset)
    elif records.size and records.last_offset > header.last_offset:
        yield _wrong(batch, "offset_delta", header.last_offset, records.last_offset)
    # A batch emptied by the cleaner retains its largest timestamp.
    if (
        records.size
        and header.timestamp_type is TimestampType.CREATE_TIME
        and records.max_timestamp != header.max_timestamp
    ):
        yield _wrong(batch, "max_timestamp", records.max_timestamp, header.max_timestamp)


def _control(
    batch: RecordBatch, records: _Records, *, is_metadata: bool
) -> Iterator[CheckFinding | EndTxnMarker]:
    header = batch.header
    if header.codec_id != 0:
        yield _wrong(batch, "control_batch", "no compression", header.codec_id)
    if header.base_sequence != NO_SEQUENCE:
        yield _wrong(batch, "control_batch", NO_SEQUENCE, header.base_sequence)
    if not records.size:
        return  # the cleaner has removed its marker
    if records.size > 1 and header.is_transactional:
        yield _wrong(batch, "control_batch", 1, records.size)
    try:
        marker = decode_end_txn_marker(records.key, records.value)
    except InvalidRecordError as error:
        yield _wrong(batch, "control_batch", None, str(error))
        return
    if marker is None:
        if is_metadata:
            return
        # Invisible to consumers; only written to metadata logs.
        kind = decode_control_key(records.key).type_id
        yield _wrong(batch, "control_batch", "an end-of-transaction marker", kind, WARNING)
        return
    if not (header.is_transactional and header.has_producer_id):
        yield _wrong(batch, "control_batch", "a transactional producer", header.producer_id)
    yield marker


def _horizon(batch: RecordBatch) -> Iterator[CheckFinding]:
    header = batch.header
    if not header.has_delete_horizon:
        return
    if header.base_timestamp < 0:
        yield _wrong(batch, "delete_horizon", 0, header.base_timestamp)
    elif header.record_count == 0 and len(batch.data) == layout.HEADER_SIZE:
        yield _wrong(batch, "delete_horizon", None, header.base_timestamp, WARNING)


def _producer_fields(batch: RecordBatch) -> Iterator[CheckFinding]:
    header = batch.header
    id_, epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
    if id_ < 0:
        if header.is_transactional:
            yield _wrong(batch, "producer_fields", "a producer id", id_)
        elif id_ != NO_PRODUCER_ID or epoch not in _NO_EPOCH or sequence not in _NO_SEQUENCE:
            yield _wrong(batch, "producer_fields", "-1 -1 -1", f"{id_} {epoch} {sequence}", WARNING)
    elif epoch < 0:
        yield _wrong(batch, "producer_fields", "an epoch", epoch)
    elif sequence < NO_SEQUENCE:
        yield _wrong(batch, "producer_fields", NO_SEQUENCE, sequence)


def _wrong(
    batch: RecordBatch, check: str, expected: object, found: object, severity: str = ERROR
) -> CheckFinding:
    return finding(
        check,
        str(batch.path),
        batch.position,
        offset=batch.header.base_offset,
        expected=expected,
        found=found,
        severity=severity,
    )
