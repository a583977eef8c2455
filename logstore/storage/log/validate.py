"""Validate appends before the log is changed (storage-format §12).

These are pure functions that raise a `RequestError` or return the batch to write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, count
from typing import TYPE_CHECKING, NamedTuple

from logstore.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTxnStateError,
    MessageSizeTooLargeError,
    OffsetsOutOfOrderError,
    RecordListTooLargeError,
    UnexpectedAppendOffsetError,
)
from logstore.record.batch import RecordBatch, RecordFacts, rows_of, seal_batch
from logstore.record.choice import encodes_by_kernel
from logstore.record.codecs import Codec
from logstore.record.control import end_txn_marker_of
from logstore.record.records import encode_rows
from logstore.record.varint import wrap_int64
from logstore.record.walk import walk_buffer
from logstore.types import INT32_MAX, INT64_MAX, NO_TIMESTAMP, AppendOrigin, TimestampType

if TYPE_CHECKING:
    from logstore.config.log_config import LogConfig
    from logstore.record.control import EndTxnMarker
    from logstore.record.records import RecordRow
    from logstore.storage.producers.entry import BatchMetadata
    from logstore.storage.producers.state import ProducerStateManager

NULL_KEY = "Compacted topic cannot accept message without key"

RECORD_ERRORS_MAX = 1000
"""Maximum number of records that an error names. A batch may have a million invalid ones."""


def target_codec(config: LogConfig, source: Codec) -> Codec:
    """Return the codec of the stored batch: the topic's codec or the producer's."""
    if config.compression_type == "producer":
        return source
    if config.compression_type == "uncompressed":
        return Codec.NONE
    return Codec.from_name(config.compression_type)


def codec_level(config: LogConfig, codec: Codec) -> int | None:
    """Return the topic's compression level for a codec, or None if the codec has no levels."""
    if codec is Codec.NONE:
        return None
    return {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }.get(codec)


def check_keys(null_rows: Sequence[int], config: LogConfig) -> None:
    """Refuse a batch with null keys on a compacted topic.

    Parameters
    ----------
    null_rows : sequence of int
        Indexes of the records with a null key.
    """
    if null_rows and config.compact:
        raise InvalidRecordError(
            f"{NULL_KEY} (record {null_rows[0]} of the batch{_and_more(len(null_rows))})",
            record_errors=[(int(row), NULL_KEY) for row in null_rows[:RECORD_ERRORS_MAX]],
        )


def check_timestamps(
    timestamps: Sequence[int], config: LogConfig, now_ms: int, null_rows: Sequence[int] = ()
) -> None:
    """Refuse create times outside [now - before.max, now + after.max], other than -1.

    A LogAppendTime topic has no such bounds. A timestamp below -1 is always refused, because no
    batch header can contain it. If a batch breaks this rule and `check_keys`, this error is raised.

    Parameters
    ----------
    null_rows : sequence of int
        Indexes of the records with a null key. On a compacted topic, they are reported as such, and
        their timestamps are not checked.
    """
    if timestamps_in_bounds(min(timestamps), max(timestamps), config, now_ms):
        return
    earliest, latest = _bounds(config, now_ms)
    keyless = {int(row) for row in null_rows} if config.compact else set()
    errors = [
        (row, f"Timestamp {timestamp} is outside [{earliest}, {latest}]")
        for row, timestamp in enumerate(timestamps)
        if row not in keyless and timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest
    ]
    if errors:
        row, message = errors[0]
        both = sorted([*errors, *((row, NULL_KEY) for row in keyless)])
        raise InvalidTimestampError(
            f"record {row}{_and_more(len(both))}: {message}",
            record_errors=both[:RECORD_ERRORS_MAX],
        )


def _and_more(count: int) -> str:
    """Return the end of a message that names only the first of several records."""
    return f" and {count - 1} more" if count > 1 else ""


def timestamps_in_bounds(lowest: int, highest: int, config: LogConfig, now_ms: int) -> bool:
    """Return whether the minimum and maximum timestamp of a batch are in bounds."""
    if lowest == highest == now_ms:
        return True  # both limits are at least 0
    earliest, latest = _bounds(config, now_ms)
    return lowest >= earliest and highest <= latest


def _bounds(config: LogConfig, now_ms: int) -> tuple[int, int]:
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        return NO_TIMESTAMP, INT64_MAX
    earliest = max(now_ms - config.timestamp_before_max_ms, NO_TIMESTAMP)
    return earliest, min(now_ms + config.timestamp_after_max_ms, INT64_MAX)


def check_batch_size(size_bytes: int, config: LogConfig) -> None:
    """Refuse a batch that exceeds `max.message.bytes` or that no segment can contain."""
    if size_bytes > config.max_message_bytes:
        raise MessageSizeTooLargeError(
            f"a batch of {size_bytes} bytes exceeds max.message.bytes {config.max_message_bytes}"
        )
    check_set_size(size_bytes, config)


def check_record_count(count: int, config: LogConfig) -> None:
    """Refuse a batch with more than `logstore.batch.max.records` records.

    A million records can be compressed to a few hundred bytes. On this error, a producer can split
    the batch and retry.
    """
    if count > config.logstore_batch_max_records:
        raise MessageSizeTooLargeError(
            f"a batch of {count} records exceeds logstore.batch.max.records"
            f" {config.logstore_batch_max_records}"
        )


def check_set_size(size_bytes: int, config: LogConfig) -> None:
    """Refuse a set of batches that no segment can contain."""
    if size_bytes > config.segment_bytes:
        raise RecordListTooLargeError(
            f"a set of {size_bytes} bytes exceeds segment.bytes {config.segment_bytes}"
        )


def check_last_offset(first_offset: int, last_offset: int) -> None:
    """Refuse an append whose last offset (inclusive) leaves no 64-bit log end offset.

    A log that ends at 2⁶³ - 1 is full.
    """
    if last_offset >= INT64_MAX:
        raise InvalidRecordError(
            f"offsets {first_offset} to {last_offset} exceed {INT64_MAX - 1}, the maximum offset"
            " of a record"
        )


def whole_batches(data: bytes) -> list[RecordBatch]:
    """Split a request into batches. Drop an incomplete last batch; reject a corrupt batch."""
    batches = list(walk_buffer(data))
    for batch in batches:
        batch.ensure_valid()
    return batches


def prepare_leader_batch(
    batches: Sequence[RecordBatch], origin: AppendOrigin, config: LogConfig, now_ms: int
) -> RecordBatch:
    """Validate an encoded batch and return the batch to store, except for its offsets.

    Raises
    ------
    InvalidRecordError, InvalidTimestampError, MessageSizeTooLargeError, CorruptRecordError
        The batch violates a rule of storage-format §12. The log is unchanged.

    Notes
    -----
    Runs without the log's lock, because time and memory grow with the decompressed size. Records
    are decoded in windows, which takes at most some tens of bytes per record.
    """
    if len(batches) != 1:
        raise InvalidRecordError(f"an append takes exactly one batch, not {len(batches)}")
    batch = batches[0]
    header = batch.header
    check_batch_size(len(batch.data), config)
    if origin is AppendOrigin.CLIENT:
        _check_client_header(batch)
    append_time = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    if header.is_control:
        # Never recompressed, regardless of `compression.type`.
        return batch.with_timestamp(TimestampType.LOG_APPEND_TIME, now_ms) if append_time else batch
    check_record_count(header.record_count, config)
    limit = config.logstore_decompression_max_bytes
    facts = _facts(batch, limit)
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME and (
        append_time or facts.lowest == NO_TIMESTAMP
    ):
        raise InvalidTimestampError("a producer's batch cannot carry LogAppendTime")
    is_in_bounds = timestamps_in_bounds(facts.lowest, facts.largest, config, now_ms)
    if not is_in_bounds or (facts.has_null_key and config.compact):
        _check_records(batch, config, now_ms, limit)
    max_timestamp = now_ms if append_time else facts.largest
    codec = batch.codec
    wanted = target_codec(config, codec)
    if wanted is codec and (codec is Codec.NONE or facts.is_dense):
        return batch.with_timestamp(config.message_timestamp_type, max_timestamp)
    rebuilt = _rebuilt(batch, wanted, max_timestamp, config, limit)
    check_batch_size(len(rebuilt.data), config)
    return rebuilt


def _facts(batch: RecordBatch, limit: int) -> RecordFacts:
    try:
        return batch.facts(limit)
    except CorruptRecordError as error:
        if error.check == "decompressed_size":
            raise MessageSizeTooLargeError(
                f"a batch of {len(batch.data)} bytes exceeds logstore.decompression.max.bytes"
                f" {limit} when it is decompressed"
            ) from error
        raise InvalidRecordError(str(error)) from error


def _rows(batch: RecordBatch, limit: int) -> Iterator[Sequence[RecordRow]]:
    """Decode records that are known to be valid."""
    return (rows for window in batch.windows(limit)() for rows in rows_of(window))


def _check_records(batch: RecordBatch, config: LogConfig, now_ms: int, limit: int) -> None:
    """Refuse a batch and name its invalid records, as `check_timestamps` and `check_keys` do."""
    earliest, latest = _bounds(config, now_ms)
    errors: list[tuple[int, str]] = []
    first_late = None
    row = wrong = 0
    for rows in _rows(batch, limit):
        for _, timestamp, key, _, _ in rows:
            message = None
            if key is None and config.compact:
                message = NULL_KEY
            elif timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
                message = f"Timestamp {timestamp} is outside [{earliest}, {latest}]"
                first_late = first_late or (row, message)
            if message is not None:
                wrong += 1
                if len(errors) < RECORD_ERRORS_MAX:
                    errors.append((row, message))
            row += 1
    if first_late is not None:
        row, message = first_late
        raise InvalidTimestampError(
            f"record {row}{_and_more(wrong)}: {message}", record_errors=errors
        )
    if errors:
        raise InvalidRecordError(
            f"{NULL_KEY} (record {errors[0][0]} of the batch{_and_more(wrong)})",
            record_errors=errors,
        )


def _rebuilt(
    batch: RecordBatch, codec: Codec, max_timestamp: int, config: LogConfig, limit: int
) -> RecordBatch:
    """Return a batch with the same records, consecutive offsets and a different codec."""
    header = batch.header
    if encodes_by_kernel(header.record_count):
        from logstore.record.columns import encode_section

        columns = batch.columns(limit)
        timestamps = columns.timestamps
        first_timestamp = int(timestamps[0])
        section: bytes | memoryview = encode_section(
            timestamps, columns.keys, columns.values, columns.encoded_headers
        )
    else:
        lists = _rows(batch, limit)
        head = next(lists)
        first_timestamp = head[0][1]
        offsets = count()
        section = b"".join(
            encode_rows(
                (wrap_int64(timestamp - first_timestamp), next(offsets), key, value, headers)
                for _, timestamp, key, value, headers in rows
            )
            for rows in chain((head,), lists)
        )
    data = seal_batch(
        section,
        codec=codec,
        level=codec_level(config, codec),
        last_offset_delta=header.record_count - 1,
        record_count=header.record_count,
        base_timestamp=first_timestamp,
        max_timestamp=max_timestamp,
        timestamp_type=config.message_timestamp_type,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
    )
    return RecordBatch(data)


def check_replicated_batches(
    batches: Sequence[RecordBatch], log_end_offset: int, config: LogConfig
) -> None:
    """Check that a follower's batches are in order and start at or above the log end offset.

    Raises
    ------
    OffsetsOutOfOrderError, UnexpectedAppendOffsetError, RecordListTooLargeError
    InvalidRecordError
        A batch has a negative leader epoch or last offset delta, which no leader writes, or the
        batches do not fit into a segment.
    """
    previous = -1
    first = batches[0].header.base_offset
    for batch in batches:
        header = batch.header
        if header.partition_leader_epoch < 0 or header.last_offset_delta < 0:
            raise InvalidRecordError(
                f"a replicated batch at offset {header.base_offset} has leader epoch "
                f"{header.partition_leader_epoch} and last offset delta {header.last_offset_delta}"
            )
        if header.base_offset <= previous:
            raise OffsetsOutOfOrderError(
                f"offset {header.base_offset} follows {previous} in one append"
            )
        previous = header.last_offset
    if first < log_end_offset:
        raise UnexpectedAppendOffsetError(
            f"first offset {first} is below the log end offset {log_end_offset}",
            first_offset=first,
            last_offset=previous,
        )
    if previous - first > INT32_MAX:
        raise InvalidRecordError(f"offsets {first} to {previous} do not fit in one segment")
    check_set_size(sum(len(batch.data) for batch in batches), config)


def _check_client_header(batch: RecordBatch) -> None:
    header = batch.header
    if header.base_offset != 0:
        raise InvalidRecordError(f"a client's batch has base offset 0, not {header.base_offset}")
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise InvalidRecordError(
            f"{header.record_count} records do not match last offset delta"
            f" {header.last_offset_delta}"
        )
    if header.is_control:
        raise InvalidRecordError("clients may not write control batches")
    for what, number in (("epoch", header.producer_epoch), ("sequence", header.base_sequence)):
        if header.has_producer_id and number < 0:
            raise InvalidRecordError(
                f"a batch of producer {header.producer_id} has no {what}: {number}"
            )


class ProducerCheck(NamedTuple):
    """Result of `check_producers`.

    `markers` contains the marker of each batch, or None for a data batch. It is empty if no batch
    has a producer. `duplicate` is the earlier append of the same batch, or None if there was none.
    """

    markers: Sequence[EndTxnMarker | None]
    duplicate: BatchMetadata | None = None


NO_PRODUCERS = ProducerCheck(())


def check_producers(
    producer_state: ProducerStateManager, batches: Sequence[RecordBatch], origin: AppendOrigin
) -> ProducerCheck:
    """Check the batches of an append against the producer state without changing the state.

    Parameters
    ----------
    batches : sequence of RecordBatch
        The batches with their final offsets. Only a follower may append more than one.

    Raises
    ------
    InvalidProducerEpochError, OutOfOrderSequenceNumberError, InvalidTxnStateError,
    TransactionCoordinatorFencedError
        See `logstore.storage.producers.rules`.
    InvalidRecordError, CorruptRecordError
        A control record is malformed.
    """
    for batch in batches:
        if batch.header.producer_id >= 0:
            break
    else:
        return NO_PRODUCERS
    markers = [end_txn_marker_of(batch) for batch in batches]
    if origin is not AppendOrigin.REPLICATION:
        duplicate = producer_state.validate(batches[0].header, markers[0], origin)
        return ProducerCheck(markers, duplicate)
    # Whether a producer's transaction is open after the batches checked so far.
    is_open: dict[int, bool] = {}
    for batch, marker in zip(batches, markers, strict=True):
        header = batch.header
        producer_id = header.producer_id
        if not header.has_producer_id:
            continue
        if header.is_control:
            if marker is not None:
                is_open[producer_id] = False
        elif header.is_transactional:
            is_open[producer_id] = True
        elif producer_id not in is_open:
            producer_state.validate(header)
        elif is_open[producer_id]:
            raise InvalidTxnStateError(
                f"producer {producer_id} writes outside a transaction at offset"
                f" {header.base_offset} while a transaction of the same append is open"
            )
    return ProducerCheck(markers)
