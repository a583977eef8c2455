"""The writer of a log, which validates and writes records and encoded batches.

All appends take two steps, whether of a record, of columns of records, or of encoded batches.
First, they are encoded or decoded without holding the log's lock. Then they are sealed and written
to the active segment under the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from logstore.record.batch import RecordBatch
from logstore.record.codecs import Codec
from logstore.record.control import ControlType, EndTxnMarker, build_end_txn_batch
from logstore.record.header import BatchHeader
from logstore.runtime.environment import VERIFY
from logstore.storage.log.drafts import (
    NOTHING_APPENDED,
    AppendInfo,
    BatchDraft,
    BatchesDraft,
    NewRecord,
    Placement,
    ProducerFields,
    RecordArrays,
    RecordLists,
    RecordSealer,
    SealedBatch,
)
from logstore.storage.log.recovery import apply_to_segment
from logstore.storage.log.validate import (
    check_last_offset,
    check_producers,
    check_replicated_batches,
    prepare_leader_batch,
    whole_batches,
)
from logstore.storage.producers.rules import BUMPED_EPOCH_VERSION, check_bumped_epoch
from logstore.storage.segment.values import BatchExtent
from logstore.types import INT64_MAX, NO_SEQUENCE, NO_TIMESTAMP, AppendOrigin

if TYPE_CHECKING:
    from logstore.config.log_config import LogConfig
    from logstore.runtime.fs import Buffer
    from logstore.storage.log.local_log import LocalLog
    from logstore.storage.log.offsets import LogOffsets
    from logstore.storage.producers.entry import ProducerEntry
    from logstore.storage.segment.segment import LogSegment
    from logstore.storage.segment.values import RollReason

    Produced = Sequence[tuple[BatchHeader, EndTxnMarker | None]]
    """Headers of batches that have a producer, each with its transaction marker or None."""

_new = tuple.__new__  # see `logstore.storage.log.drafts`


class LogWriter:
    """Appends to a log and rolls its active segment.

    If an append is refused, the log does not change: no bytes are written, no segment is rolled and
    no epoch is assigned.

    Attributes
    ----------
    refuse : callable or None
        Set on a follower. Raises the error for writes that do not come from its leader. None
        accepts all writes.
    """

    def __init__(self, local: LocalLog, offsets: LogOffsets) -> None:
        self._local = local
        self._offsets = offsets
        self._guard = local.guard("cannot append")
        self._clock = local.runtime.clock
        self._sealer = RecordSealer(local.config)
        self.refuse: Callable[[], NoReturn] | None = None

    # -- appends -------------------------------------------------------------------------

    def append_record(self, record: NewRecord, codec: Codec = Codec.NONE) -> AppendInfo:
        """Append one record as a batch.

        Takes the parameters and raises the same errors as `append_records`.
        """
        local = self._local
        now_ms = self._clock.now_ms()
        with local.lock:
            if local.is_changing or local.is_unfinished:
                local.prepare_change()
            try:  # inlines `LocalLog.change`, whose calls would take time
                local.is_changing = True
                base, epoch = self._begin()
                sealer = self._sealer
                if sealer.config is not local.config:
                    sealer = self._sealer = RecordSealer(local.config)
                sealed = None
                if codec is Codec.NONE:
                    sealed = sealer.seal(record, base, epoch, now_ms)
                if sealed is None:
                    draft = RecordLists.of((record,)).draft(now_ms)
                    sealed = draft.seal(codec, Placement(local.config, base, epoch, now_ms))
                return self._append_sealed(sealed, base, epoch, now_ms)
            finally:
                local.is_changing = False
                if local.is_unfinished:
                    local.recover()

    def append_next(
        self, record: NewRecord, producer_fields: ProducerFields | None = None
    ) -> AppendInfo | None:
        """Append a producer's record as a single-record batch, in the simple cases.

        The result is the same as with `append_records`. This is faster for producers that send
        their records one by one.

        Parameters
        ----------
        producer_fields : ProducerFields, optional
            Producer fields of a batch outside a transaction.

        Returns
        -------
        AppendInfo or None
            None, without any change, if the topic compresses its batches, the batch does not follow
            its producer's last batch, or it breaks a rule. The caller must then call
            `append_records`, which appends the batch or raises the error.

        Raises
        ------
        LogStoreError
            See `append_records`.
        """
        local = self._local
        now_ms = self._clock.now_ms()
        with local.lock:
            if local.is_changing or local.is_unfinished:
                local.prepare_change()
            try:  # see `append_record`
                local.is_changing = True
                base, epoch = self._begin()
                sealer = self._sealer
                if sealer.config is not local.config:
                    sealer = self._sealer = RecordSealer(local.config)
                entry, sequence = None, NO_SEQUENCE
                if producer_fields is None:
                    sealed = sealer.seal(record, base, epoch, now_ms)
                else:
                    producer_id, producer_epoch, sequence, _ = producer_fields
                    entry = local.producer_state.entry(producer_id)
                    if entry is None or not entry.is_followed_by(producer_epoch, sequence):
                        return None
                    sealed = sealer.seal(
                        record, base, epoch, now_ms, producer_id, producer_epoch, sequence
                    )
                if sealed is None or base == INT64_MAX:
                    return None
                return self._append_sealed(sealed, base, epoch, now_ms, entry, sequence)
            finally:
                local.is_changing = False
                if local.is_unfinished:
                    local.recover()

    def append_records(
        self,
        records: Sequence[NewRecord] | RecordLists | RecordArrays,
        codec: Codec = Codec.NONE,
        producer_fields: ProducerFields | None = None,
    ) -> AppendInfo:
        """Append records as one batch.

        Parameters
        ----------
        records : sequence of NewRecord, RecordLists or RecordArrays
            If empty, neither an append nor a roll takes place.
        codec : Codec
            The producer's codec, which `compression.type` may override.
        producer_fields : ProducerFields, optional
            Producer fields of the batch. The batch is then checked like a batch passed to
            `append_batches`, in the same order and with the same errors. `codec` must be NONE, and
            all timestamps must be set.

        Raises
        ------
        InvalidRecordError, InvalidTimestampError, MessageSizeTooLargeError,
        RecordListTooLargeError
            The log is unchanged.
        KafkaStorageError
            The disk failed. The log is offline.
        """
        count = len(records)
        if count == 0:
            return NOTHING_APPENDED
        if not isinstance(records, (RecordLists, RecordArrays)):
            records = RecordLists.of(records)
        if count == 1 and producer_fields is None and isinstance(records, RecordLists):
            return self.append_record(records.record(0), codec)
        now_ms = self._clock.now_ms()
        return self._append(records.draft(now_ms), codec, now_ms, producer_fields)

    def append_parts(
        self,
        records: RecordArrays,
        bounds: Sequence[int],
        codec: Codec = Codec.NONE,
        request: Callable[[Callable[[], AppendInfo]], AppendInfo] | None = None,
    ) -> Iterator[AppendInfo]:
        """Append records without timestamps and headers as several batches.

        All batches are written at once if the topic changes neither codec nor timestamps, no batch
        is refused and none requires a new segment. Otherwise, they are written one at a time.

        Parameters
        ----------
        bounds : sequence of int
            Batch i has the rows [bounds[i], bounds[i + 1]), which must not be empty.
        request : callable, optional
            Called with the append of each batch. If given, each batch is written separately.

        Yields
        ------
        AppendInfo
            One for all batches or one per batch. Raises the same errors as `append_records`.
        """
        draft = records.draft_batches(bounds, self._clock.now_ms())
        if request is None:
            info = self._local.change(self._append_at_once, draft, codec)
            if info is not None:
                yield info
                return
        for part in draft.split():
            now_ms = self._clock.now_ms()
            if request is None:
                yield self._append(part, codec, now_ms)
            else:
                yield request(partial(self._append, part, codec, now_ms))

    def _append_at_once(self, draft: BatchesDraft, codec: Codec) -> AppendInfo | None:
        local = self._local
        base, epoch = self._begin()
        now_ms = self._clock.now_ms()
        extents = draft.seal(codec, Placement(local.config, base, epoch, now_ms))
        if extents is None:
            return None
        last, timestamp, size = extents[-1].last_offset, draft.timestamp, len(draft.data)
        segment = local.segments.active
        if (
            last >= INT64_MAX
            or segment.roll_reason(size, timestamp, last, now_ms) is not None
            or not segment.has_entries_for(len(extents))
        ):
            return None
        self._store(extents, (draft.data,), ((epoch, base),), now_ms)
        return AppendInfo(base, last, timestamp, NO_TIMESTAMP, last - base + 1, size, None)

    def _append(
        self,
        draft: BatchDraft,
        codec: Codec,
        now_ms: int,
        producer_fields: ProducerFields | None = None,
    ) -> AppendInfo:
        return self._local.change(self._append_draft, draft, codec, now_ms, producer_fields)

    def _append_draft(
        self, draft: BatchDraft, codec: Codec, now_ms: int, producer_fields: ProducerFields | None
    ) -> AppendInfo:
        base, epoch = self._begin()
        sealed = draft.seal(
            codec, Placement(self._local.config, base, epoch, now_ms, producer_fields)
        )
        if sealed.batch is not None:
            return self._write([sealed.batch], AppendOrigin.CLIENT, now_ms)
        return self._append_sealed(sealed, base, epoch, now_ms)

    def _begin(self) -> tuple[int, int]:
        """Return the offset and leader epoch for the next batch. The caller must hold the lock.

        Raises an error if the log is closed, offline, or a follower's.
        """
        local = self._local
        if local.is_offline:
            local.check_open()
        if self.refuse is not None:
            self.refuse()
        return local.log_end.offset, local.leader_epoch  # raises an error if the log is closed

    def _append_sealed(
        self,
        sealed: SealedBatch,
        base: int,
        epoch: int,
        now_ms: int,
        entry: ProducerEntry | None = None,
        sequence: int = NO_SEQUENCE,
    ) -> AppendInfo:
        """Write a batch that was sealed at the offset and epoch returned by `_begin`.

        Parameters
        ----------
        entry : ProducerEntry, optional
            Producer state for a single-record batch, to which `sequence` is added.
        """
        data, count, max_timestamp, append_time, _ = sealed
        last, size = base + count - 1, len(data)
        reason = None
        if self._store_next(data, base, last, epoch, max_timestamp):
            if entry is not None:
                entry.add_batch(sequence, base, max_timestamp)
            self._publish(self._local.segments.active, last + 1, ())
        else:
            extent = BatchExtent(last, max_timestamp, size)
            produced = () if entry is None else ((BatchHeader.unpack_from(data), None),)
            reason = self._store((extent,), (data,), ((epoch, base),), now_ms, produced)
        info: AppendInfo = _new(
            AppendInfo, (base, last, max_timestamp, append_time, count, size, reason, False)
        )
        return info

    def append_batches(
        self,
        data: bytes,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        leader_epoch: int | None = None,
    ) -> AppendInfo:
        """Append encoded batches (storage-format §12).

        Parameters
        ----------
        data : bytes
            Complete batches. An incomplete last batch is dropped. Clients and coordinators send
            exactly one batch, whose offsets, leader epoch and possibly timestamps are set here. A
            follower appends any number of batches unchanged.
        leader_epoch : int, optional
            Leader epoch for a leader's batch. [default: the newest known epoch]

        Raises
        ------
        RequestError, CorruptRecordError, UnsupportedFormatError
            The log is unchanged.
        KafkaStorageError
            See `append_records`.
        ValueError
            `leader_epoch` is negative.
        """
        if leader_epoch is not None and leader_epoch < 0:
            raise ValueError(f"a leader epoch cannot be negative: {leader_epoch}")
        batches = whole_batches(data)
        return self._append_ready(batches, origin, leader_epoch) if batches else NOTHING_APPENDED

    def _append_ready(
        self, batches: Sequence[RecordBatch], origin: AppendOrigin, leader_epoch: int | None
    ) -> AppendInfo:
        local = self._local
        now_ms = self._clock.now_ms()
        if origin is AppendOrigin.REPLICATION:
            return local.change(self._append_replicated, batches, now_ms)
        while True:
            # Do this without the lock, because a few hundred bytes may decompress to megabytes.
            self._begin()
            config = local.config
            prepared = prepare_leader_batch(batches, origin, config, now_ms)
            info = local.change(
                self._append_prepared, prepared, config, origin, leader_epoch, now_ms
            )
            if info is not None:
                return info

    def _append_replicated(self, batches: Sequence[RecordBatch], now_ms: int) -> AppendInfo:
        local = self._local
        local.check_open()
        check_replicated_batches(batches, local.log_end.offset, local.config)
        return self._write(batches, AppendOrigin.REPLICATION, now_ms)

    def _append_prepared(
        self,
        prepared: RecordBatch,
        config: LogConfig,
        origin: AppendOrigin,
        leader_epoch: int | None,
        now_ms: int,
    ) -> AppendInfo | None:
        """Append a batch validated under `config`, or return None if the configuration changed."""
        base, epoch = self._begin()
        if self._local.config is not config:
            return None
        epoch = epoch if leader_epoch is None else leader_epoch
        return self._write([prepared.with_place(base, epoch)], origin, now_ms)

    def append_end_txn_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        commit: bool,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Append the marker that ends a producer's transaction, as a coordinator does.

        The transaction may have no data in this log.

        Parameters
        ----------
        transaction_version : int
            From version 2 on, the marker's epoch must be above the transaction's epoch.

        Raises
        ------
        InvalidProducerEpochError, TransactionCoordinatorFencedError
            The epoch of the producer or the coordinator is out of date. The log is unchanged.
        """
        control_type = ControlType.COMMIT if commit else ControlType.ABORT
        marker = EndTxnMarker(control_type, coordinator_epoch)
        batch = build_end_txn_batch(producer_id, producer_epoch, marker, self._clock.now_ms())
        local = self._local
        with local.lock:
            if transaction_version >= BUMPED_EPOCH_VERSION:
                entry = local.producer_state.entry(producer_id)
                check_bumped_epoch(local.topic_partition, entry, batch.header)
            return self._append_ready([batch], AppendOrigin.COORDINATOR, None)

    # -- the segment ---------------------------------------------------------------------

    def _write(
        self, batches: Sequence[RecordBatch], origin: AppendOrigin, now_ms: int
    ) -> AppendInfo:
        """Write validated batches with their final offsets. The log must be open and locked.

        A duplicate batch is not written; the result then has its original offsets.
        """
        producer_state = self._local.producer_state
        markers, duplicate = check_producers(producer_state, batches, origin)
        if duplicate is not None:
            return AppendInfo.of_duplicate(duplicate)
        headers = [batch.header for batch in batches]
        produced = list(zip(headers, markers, strict=True)) if markers else ()
        first = headers[0]
        if len(batches) == 1 and self._store_next(
            batches[0].data,
            first.base_offset,
            first.last_offset,
            first.partition_leader_epoch,
            first.max_timestamp,
        ):
            self._publish(self._local.segments.active, first.last_offset + 1, produced)
            return AppendInfo.of(headers, None)
        reason = self._store(
            [BatchExtent.of(header) for header in headers],
            [batch.data for batch in batches],
            [(header.partition_leader_epoch, header.base_offset) for header in headers],
            now_ms,
            produced,
        )
        return AppendInfo.of(headers, reason)

    def _store(
        self,
        extents: Sequence[BatchExtent],
        buffers: Sequence[Buffer],
        epochs: Sequence[tuple[int, int]],
        now_ms: int,
        produced: Produced = (),
    ) -> RollReason | None:
        """Roll if necessary, write batches in one write, and publish them to readers.

        The log must be open and locked. Batches above the maximum offset are refused.

        Parameters
        ----------
        extents, buffers : sequence of BatchExtent, of bytes-like
            See `LogSegment.append`.
        epochs : sequence of (int, int)
            Leader epochs of the batches and their start offsets, in order.
        produced : sequence of (BatchHeader, EndTxnMarker or None)
            The batches that have a producer, for the producer state.

        Returns
        -------
        RollReason or None
            Why a new segment was rolled first, or None if it was not.
        """
        local = self._local
        first_offset = epochs[0][1]
        last_offset, largest_timestamp, size = extents[-1]
        for extent in extents[:-1]:
            largest_timestamp = max(largest_timestamp, extent.max_timestamp)
            size += extent.size_bytes
        check_last_offset(first_offset, last_offset)
        local.is_unfinished = True
        try:
            segment = local.segments.active
            reason = segment.roll_reason(size, largest_timestamp, last_offset, now_ms)
            if reason is not None:
                segment = self.roll_inside(first_offset)
            for epoch, start_offset in epochs:
                local.epochs.assign(epoch, start_offset)
            segment.append(extents, buffers)
        except OSError as error:
            self._guard.fail(error)
        self._publish(segment, last_offset + 1, produced)
        return reason

    def _store_next(
        self, data: Buffer, first_offset: int, last_offset: int, epoch: int, timestamp: int
    ) -> bool:
        """Write a batch unless it requires a roll, an index entry or a new epoch.

        Return whether it was written.

        The caller must publish it.
        """
        local = self._local
        local.is_unfinished = True
        try:
            if not (
                local.epochs.is_latest(epoch, first_offset)
                and local.segments.active.append_next(data, last_offset, timestamp)
            ):
                local.is_unfinished = False
                return False
        except OSError as error:
            self._guard.fail(error)
        return True

    def _publish(self, segment: LogSegment, end: int, produced: Produced) -> None:
        """Publish the new log end to readers and to the state derived from the log."""
        local = self._local
        local.publish_end(end)
        if produced:
            with self._guard:
                for header, marker in produced:
                    apply_to_segment(segment, local.producer_state, header, marker)
        local.producer_state.map_end_offset = end
        self._offsets.follow_append(end)
        local.is_unfinished = False
        if end - local.recovery_point >= local.config.flush_messages:
            local.flush()
        if VERIFY:
            self._offsets._check()

    def roll(self, expected_next_offset: int | None = None) -> LogSegment:
        """Start a new active segment (storage-format §8.4).

        Parameters
        ----------
        expected_next_offset : int, optional
            Base offset of the new segment if above the log end offset (a gap on a follower).

        Returns
        -------
        LogSegment
            The new active segment. An empty active segment with the same base offset is re-created.

        Raises
        ------
        ValueError
            `expected_next_offset` is above 2⁶³ - 1.
        """
        return self._local.change(self.roll_inside, expected_next_offset)

    def roll_inside(self, expected_next_offset: int | None = None) -> LogSegment:
        """Roll inside a change; see `roll`."""
        local = self._local
        with local.guard("cannot roll"):
            local.check_changeable()
            base = max(expected_next_offset or 0, local.log_end.offset)
            if base > INT64_MAX:
                raise ValueError(f"{local.topic_partition} has no offset {base}")
            active = local.segments.active
            assert base >= active.base_offset, "a roll never goes back"
            is_new = base != active.base_offset
            local.begin()
            if is_new:
                active.on_become_inactive()
                local.delete_stale_files(base)
            local.producer_state.map_end_offset = base
            local.producer_state.take_snapshot()
            # Flush before the new file is created, because only the last segment may be empty after
            # a crash. Force the flush, because trimming changes the indexes even without new
            # records.
            local.flush(base, force=is_new)
            segment = local.add_segment(base) if is_new else local.renew_segment(active)
            local.publish_end(base)
            local.changed.emit()
            if VERIFY:
                if is_new:
                    active._check()
                self._offsets._check()
            return segment
