"""Recover a segment: verify each batch, rebuild the indexes, and truncate a torn end.

This also replays the batches into the producer state. Source: docs/spec/storage-format.md §8.5,
§9.3.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from logstore.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTxnStateError,
    SegmentOverflowError,
)
from logstore.record import layout
from logstore.record.batch import RecordBatch
from logstore.record.control import ControlType, end_txn_marker_of
from logstore.record.crc32c import crc32c
from logstore.record.header import BatchHeader
from logstore.record.walk import check_place, misplaced, walk_buffer
from logstore.types import INT32_MAX, INT64_MAX, NO_TIMESTAMP, OffsetPosition, TimestampOffset

if TYPE_CHECKING:
    from collections.abc import Callable

    from logstore.record.control import EndTxnMarker
    from logstore.storage.log.epochs import LeaderEpochCache
    from logstore.storage.producers.state import ProducerStateManager
    from logstore.storage.segment.segment import LogSegment
    from logstore.types import AbortedTxn

_CHUNK_BYTES = 1 << 20


class SegmentRecovery(NamedTuple):
    """The result of recovering a segment.

    Attributes
    ----------
    valid_bytes, truncated_bytes : int
        Number of valid bytes, and number of bytes truncated after them.
    reason : str or None
        Why the walk stopped, or None if nothing was truncated.
    next_offset : int
        Offset after the last valid batch, or the base offset if there is none.
    must_split : bool
        Whether the segment has offset overflow. If so, no file was changed, and
        `logstore.storage.log.split` moves the valid bytes into segments that can contain the
        offsets.
    aborted : tuple of AbortedTxn
        The aborted transactions whose markers are in the valid bytes.
    """

    valid_bytes: int
    truncated_bytes: int
    reason: str | None
    next_offset: int
    must_split: bool = False
    aborted: tuple[AbortedTxn, ...] = ()


def apply_to_segment(
    segment: LogSegment,
    producer_state: ProducerStateManager,
    header: BatchHeader,
    marker: EndTxnMarker | None,
) -> None:
    """Apply a batch to the producer state. Add an aborted transaction to the segment's index."""
    if aborted := _apply(producer_state, header, marker):
        segment.txn_index.append(aborted)


def _apply(
    producer_state: ProducerStateManager, header: BatchHeader, marker: EndTxnMarker | None
) -> AbortedTxn | None:
    """Apply a batch to the producer state. Return the index entry if it aborts a transaction."""
    completed = producer_state.update_from_batch(header, marker)
    if completed is None or not completed.is_aborted:
        return None
    return completed.to_aborted_txn(producer_state.last_stable_offset_after(completed))


def has_aborted_transaction(segment: LogSegment) -> bool:
    """Return whether a transaction was aborted in the segment that contains its data.

    This reads all batch headers. A marker is not sufficient evidence, because a transaction without
    data has no index entry.
    """
    producers: set[int] = set()  # producers with open transactions
    for at in segment.batches():
        header = at.header
        if not header.is_transactional:
            continue
        if not header.is_control:
            producers.add(header.producer_id)
        elif header.producer_id in producers:
            with suppress(InvalidRecordError):
                marker = end_txn_marker_of(segment.read_batch(at))
                if marker is not None and marker.control_type is ControlType.ABORT:
                    return True
            producers.discard(header.producer_id)
    return False


def recover_segment(
    segment: LogSegment,
    producer_state: ProducerStateManager,
    epochs: LeaderEpochCache,
    *,
    before_cut: Callable[[SegmentRecovery], None] | None = None,
) -> SegmentRecovery:
    """Rebuild a segment's indexes from its batches and truncate it after the last valid batch.

    Parameters
    ----------
    segment : LogSegment
        The segment to recover. Its indexes, the end of its `.log` and its largest timestamp are
        changed.
    producer_state : ProducerStateManager
        State at the segment's base offset, which every batch is applied to.
    epochs : LeaderEpochCache
        Cache to which newer leader epochs are added.
    before_cut : callable, optional
        Called before the file is truncated. If it raises an exception, the file does not change.

    Returns
    -------
    SegmentRecovery
        The result. If `must_split` is set, the segment is unchanged.

    Raises
    ------
    UnsupportedFormatError
        A valid batch has magic 0 or 1. No file was changed.
    SegmentOverflowError
        A batch overflows the segment and is followed by valid batches with lower offsets, so its
        base offset is damaged, and a split would keep it. No file was changed.
    CorruptRecordError
        A valid batch contradicts its producer's open transaction. No file was changed, because the
        snapshot might be wrong and the batch right.

    Notes
    -----
    About 2 µs for a small batch. The whole file is read before any change, so a file that causes an
    error is unchanged.
    """
    scan = _Scan(segment, producer_state, epochs)
    try:
        scan.run()
    except InvalidTxnStateError as error:
        raise _contradiction(error, segment, scan.valid_bytes) from error
    recovery = scan.result()
    if recovery.must_split:
        return recovery
    if recovery.truncated_bytes and before_cut is not None:
        before_cut(recovery)
    segment.offset_index.reset()
    segment.time_index.reset()
    segment.txn_index.reset()
    for entry, largest in scan.entries:
        if segment.offset_index.is_full or segment.time_index.is_full:
            break  # the index is full, so reads scan the rest
        segment.offset_index.append(*entry)
        segment.time_index.maybe_append(*largest)
    for aborted in scan.aborted:
        segment.txn_index.append(aborted)
    for epoch, start_offset in scan.epochs:
        epochs.assign(epoch, start_offset)
    if recovery.truncated_bytes:
        segment.truncate_file(recovery.valid_bytes)
    segment.finish_recovery(scan.largest)
    return recovery


class _Scan:
    """A walk over a segment that verifies every batch and collects the result of the recovery."""

    def __init__(
        self,
        segment: LogSegment,
        producer_state: ProducerStateManager,
        epochs: LeaderEpochCache,
    ) -> None:
        self._segment = segment
        self._producer_state = producer_state
        latest = epochs.latest
        self._epoch = -1 if latest is None else latest.epoch
        self._last_index_position = 0
        self._last_offset = segment.base_offset - 1
        # The offset range of one segment. A batch beyond it must start a new segment.
        self._span_start = segment.base_offset
        self.valid_bytes = 0
        self.reason: str | None = None
        self.largest = TimestampOffset(NO_TIMESTAMP, segment.base_offset)
        self.entries: list[tuple[OffsetPosition, TimestampOffset]] = []
        self.aborted: list[AbortedTxn] = []
        self.epochs: list[tuple[int, int]] = []

    def run(self) -> None:
        """Walk to the end of the file or to the first invalid batch."""
        segment = self._segment
        chunk_bytes = _CHUNK_BYTES
        try:
            while (position := self.valid_bytes) < segment.size_bytes:
                data = segment.file.read(position, min(chunk_bytes, segment.size_bytes - position))
                self._scan(data)
                if self.valid_bytes > position:
                    chunk_bytes = _CHUNK_BYTES
                elif len(data) < chunk_bytes:
                    self.reason = "the last batch is torn"
                    return
                else:
                    chunk_bytes *= 2
        except (CorruptRecordError, InvalidRecordError) as error:
            self.reason = str(error)
        finally:
            self._producer_state.map_end_offset = self._last_offset + 1

    def result(self) -> SegmentRecovery:
        """Return the result of the walk."""
        truncated = self._segment.size_bytes - self.valid_bytes
        return SegmentRecovery(
            self.valid_bytes,
            truncated,
            self.reason if truncated else None,
            self._last_offset + 1,
            self._last_offset > _span_end(self._segment.base_offset),
            tuple(self.aborted),
        )

    def _scan(self, data: bytes) -> None:
        """Verify the complete batches in a chunk that starts after the valid bytes."""
        unpack = layout.HEADER.unpack_from
        span_end = _span_end(self._span_start)
        interval = self._segment.config.index_interval_bytes
        last_offset, largest_timestamp, newest_epoch = (
            self._last_offset,
            self.largest.timestamp,
            self._epoch,
        )
        chunk_start = self.valid_bytes
        start, end = 0, len(data)
        try:
            while end - start >= layout.HEADER_SIZE:
                fields = unpack(data, start)
                first, length, epoch, magic, crc, _, delta, _, max_timestamp, producer_id = fields[
                    :10
                ]
                stop = start + length + layout.LOG_OVERHEAD
                if (
                    magic != layout.MAGIC
                    or length < layout.HEADER_LENGTH
                    or stop > end
                    or crc32c(data[start + layout.ATTRIBUTES_POSITION : stop]) != crc
                ):
                    break
                last = first + delta
                if not last_offset < first <= last <= span_end:
                    span_end = self._check_jump(first, last, last_offset, chunk_start + start)
                if producer_id >= 0:
                    self._follow(data[start:stop], chunk_start + start)
                if max_timestamp > largest_timestamp:
                    largest_timestamp = max_timestamp
                    self.largest = TimestampOffset(max_timestamp, last)
                if chunk_start + start - self._last_index_position > interval:
                    self._last_index_position = chunk_start + start
                    entry = OffsetPosition(last, chunk_start + start)
                    self.entries.append((entry, self.largest))
                if epoch > newest_epoch:
                    newest_epoch = self._epoch = epoch
                    self.epochs.append((epoch, first))
                last_offset = last
                start = stop
        finally:
            self.valid_bytes = chunk_start + start
            self._last_offset = last_offset
        # A walk decides whether the remaining bytes are incomplete, damaged or of an old format.
        path = self._segment.log_path
        for batch in walk_buffer(data[start:], path, chunk_start + start):
            batch.ensure_valid()

    def _follow(self, data: bytes, position: int) -> None:
        batch = RecordBatch(data, self._segment.log_path, position)
        aborted = _apply(self._producer_state, batch.header, end_txn_marker_of(batch))
        if aborted is not None:
            self.aborted.append(aborted)

    def _check_jump(self, first: int, last: int, previous: int, position: int) -> int:
        """Accept a batch beyond the segment's range, or raise an error if it is misplaced.

        The CRC does not cover the base offset, so a damaged base offset is detected here.

        Returns
        -------
        int
            Last offset that fits in the same segment as this batch.
        """
        path = self._segment.log_path
        if previous < first <= last < INT64_MAX:
            self._span_start = first
            return _span_end(first)
        if first < self._span_start and self._span_start != self._segment.base_offset:
            raise SegmentOverflowError(
                f"{path} at position {position}: offset {first} follows offset {previous}, which is"
                " more than 2^31-1 above the segment's base; the file is not changed"
            )
        raise misplaced(first, last, previous + 1, path, position)


def _span_end(start: int) -> int:
    """Return the last offset that a segment with base offset `start` can contain."""
    return min(start + INT32_MAX, INT64_MAX - 1)


def replay_batches(
    segment: LogSegment, producer_state: ProducerStateManager, start_offset: int, end_offset: int
) -> None:
    """Apply a segment's batches with offsets in [start, end) to the producer state.

    Raises
    ------
    CorruptRecordError, UnsupportedFormatError
        The segment cannot be walked, a batch is out of order or contradicts its producer's
        transaction, or a transaction marker cannot be read.
    """
    found = segment.translate_offset(start_offset)
    if found is None:
        return
    previous = segment.base_offset - 1
    for at in segment.batches(found.position):
        header = at.header
        if header.base_offset >= end_offset:
            return
        check_place(header, previous, segment.log_path, at.position)
        previous = header.last_offset
        if header.has_producer_id:
            marker = None
            if header.is_control:
                batch = segment.read_batch(at)
                try:
                    marker = end_txn_marker_of(batch)
                except InvalidRecordError as error:
                    raise CorruptRecordError(
                        str(error), path=batch.path, position=batch.position, check="control_record"
                    ) from error
            try:
                producer_state.update_from_batch(header, marker)
            except InvalidTxnStateError as error:
                raise _contradiction(error, segment, at.position) from error
        producer_state.map_end_offset = header.next_offset


def _contradiction(
    error: InvalidTxnStateError, segment: LogSegment, position: int
) -> CorruptRecordError:
    return CorruptRecordError(
        str(error), path=segment.log_path, position=position, check="transaction_state"
    )
