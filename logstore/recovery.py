"""Recovery of one segment: verify every batch, rebuild what is derived, cut what is torn.

Storage-format §8.5. Also the replay of batches into the producer state (§9.3).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from logstore.errors import CorruptRecordError, InvalidRecordError
from logstore.fetch import decode_stored
from logstore.record.batch import RecordBatch
from logstore.record.control import decode_end_txn_marker
from logstore.record.walk import walk_buffer
from logstore.types import AbortedTxn, TimestampOffset

if TYPE_CHECKING:
    from logstore.epochs import LeaderEpochCache
    from logstore.producer_state import CompletedTxn, ProducerStateManager
    from logstore.segment import LogSegment

_CHUNK_BYTES = 1 << 20


class SegmentRecovery(NamedTuple):
    """What recovering a segment found: bytes kept, bytes cut, and why the walk stopped."""

    valid_bytes: int
    truncated_bytes: int
    reason: str | None


def apply_to_producers(
    producer_state: ProducerStateManager, batch: RecordBatch
) -> CompletedTxn | None:
    """Tell the producer state of a batch in the log; return the transaction it ended."""
    header = batch.header
    if not header.has_producer_id:
        return None
    marker = None
    if header.is_control:
        records = decode_stored(batch)
        # Compaction may have left the header of a control batch alone; it says nothing.
        if records:
            marker = decode_end_txn_marker(records[0].key, records[0].value)
    return producer_state.update_from_batch(header, marker)


def apply_and_index(
    segment: LogSegment, producer_state: ProducerStateManager, batch: RecordBatch
) -> None:
    """Tell the producer state of a batch; a transaction it aborts enters the segment's index."""
    completed = apply_to_producers(producer_state, batch)
    if completed is not None and completed.is_aborted:
        segment.txn_index.append(
            AbortedTxn(
                completed.producer_id,
                completed.first_offset,
                completed.last_offset,
                producer_state.last_stable_offset_after(completed),
            )
        )


def read_batches(segment: LogSegment, start: int = 0) -> Iterator[RecordBatch]:
    """Yield the whole batches of a segment with their bytes, from position `start` on.

    Reads 1 MiB at a time, more for a larger batch. Stops quietly at a torn tail and raises as
    `walk_buffer` does; CRCs are not checked.
    """
    position = start
    chunk_bytes = _CHUNK_BYTES
    while position < segment.size_bytes:
        data = segment.file.read(position, min(chunk_bytes, segment.size_bytes - position))
        before = position
        for batch in walk_buffer(data, segment.log_path, position):
            yield batch
            position += len(batch.data)
        if position > before:
            chunk_bytes = _CHUNK_BYTES
        elif before + len(data) >= segment.size_bytes:
            return
        else:
            chunk_bytes *= 2


def recover_segment(
    segment: LogSegment, producer_state: ProducerStateManager, epochs: LeaderEpochCache
) -> SegmentRecovery:
    """Rebuild a segment's indexes from its batches and cut the file after the last valid one.

    Parameters
    ----------
    segment : LogSegment
        Changed in place: all three indexes, the `.log` beyond the last valid batch, the largest
        timestamp.
    producer_state : ProducerStateManager
        Stands at the segment's base; follows every batch.
    epochs : LeaderEpochCache
        Learns the leader epochs that are newer than its newest.

    Raises
    ------
    UnsupportedFormatError
        A sound entry of magic 0 or 1; nothing is cut.
    """
    segment.offset_index.reset()
    segment.time_index.reset()
    segment.txn_index.reset()
    valid_bytes = last_index_position = 0
    largest = TimestampOffset(-1, segment.base_offset)
    reason = None
    try:
        for batch in read_batches(segment):
            batch.ensure_valid()
            header = batch.header
            if not segment.can_append_offset(header.last_offset):
                raise InvalidRecordError(
                    f"offset {header.last_offset} does not fit segment {segment.base_offset}"
                )
            if header.max_timestamp > largest.timestamp:
                largest = TimestampOffset(header.max_timestamp, header.last_offset)
            if valid_bytes - last_index_position > segment.config.index_interval_bytes:
                segment.offset_index.append(header.last_offset, valid_bytes)
                segment.time_index.maybe_append(*largest)
                last_index_position = valid_bytes
            apply_and_index(segment, producer_state, batch)
            producer_state.map_end_offset = header.next_offset
            valid_bytes += len(batch.data)
            latest = epochs.latest
            epoch = header.partition_leader_epoch
            if epoch >= 0 and (latest is None or epoch > latest.epoch):
                epochs.assign(epoch, header.base_offset)
    except (CorruptRecordError, InvalidRecordError) as error:
        reason = str(error)
    truncated = segment.size_bytes - valid_bytes
    if truncated:
        reason = reason or "the last batch is torn"
        segment.truncate_file(valid_bytes)
    segment.finish_recovery(largest)
    return SegmentRecovery(valid_bytes, truncated, reason)


def replay_batches(
    segment: LogSegment, producer_state: ProducerStateManager, start_offset: int, end_offset: int
) -> None:
    """Feed the batches of a segment in [start, end) offsets to the producer state."""
    found = segment.translate_offset(start_offset)
    if found is None:
        return
    for batch in read_batches(segment, found.position):
        if batch.header.base_offset >= end_offset:
            return
        apply_to_producers(producer_state, batch)
        producer_state.map_end_offset = batch.header.next_offset
