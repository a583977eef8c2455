"""The writing half of a log: records, columns and ready-made batches, validated and placed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from logstore.append import (
    NOTHING_APPENDED,
    AppendInfo,
    ColumnsDraft,
    NewRecord,
    Placement,
    RecordsDraft,
    draft_records,
    end_txn_batch,
)
from logstore.record.batch import RecordBatch
from logstore.record.codecs import Codec
from logstore.record.control import ControlType, EndTxnMarker
from logstore.types import AppendOrigin
from logstore.validate import check_replicated_batches, prepare_leader_batch, whole_batches

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from logstore.log import Log
    from logstore.record.columns import BytesColumn


class LogAppender:
    """The doors through which a `Log` is appended to; holds no state of its own.

    What is refused leaves the log unchanged: no byte, no roll, no epoch.
    """

    def __init__(self, log: Log) -> None:
        self._log = log

    def records(self, records: Sequence[NewRecord], codec: Codec = Codec.NONE) -> AppendInfo:
        """Append records as one batch.

        Parameters
        ----------
        records : sequence of NewRecord
            None appends nothing and rolls nothing.
        codec : Codec
            What the producer compresses with; `compression.type` may overrule it.

        Raises
        ------
        InvalidRecordError, InvalidTimestampError, MessageSizeTooLargeError,
        RecordListTooLargeError
            The log is unchanged.
        KafkaStorageError
            The disk failed; the log is offline.

        Notes
        -----
        Up to 64 records are encoded in plain Python, more by a kernel.
        """
        if not records:
            return NOTHING_APPENDED
        now_ms = self._log.runtime.clock.now_ms()
        return self._append(draft_records(records, now_ms), codec, now_ms)

    def columns(
        self,
        keys: BytesColumn,
        values: BytesColumn,
        timestamps: NDArray[np.int64] | None = None,
        headers: BytesColumn | None = None,
        codec: Codec = Codec.NONE,
    ) -> AppendInfo:
        """Append columns as one batch: the fast door.

        Parameters
        ----------
        keys, values : BytesColumn
            n rows each; size -1 is null.
        timestamps : (n,) int64, optional
            In ms; the log's clock by default.
        headers : BytesColumn, optional
            Encoded headers, as `logstore.record.columns.headers_column` gives them.

        Raises as `records` does.
        """
        if len(values) == 0:
            return NOTHING_APPENDED
        now_ms = self._log.runtime.clock.now_ms()
        if timestamps is None:
            import numpy as np

            timestamps = np.full(len(values), now_ms, np.int64)
        return self._append(ColumnsDraft(keys, values, timestamps, headers), codec, now_ms)

    def _append(self, draft: RecordsDraft | ColumnsDraft, codec: Codec, now_ms: int) -> AppendInfo:
        log = self._log
        with log.lock:
            log.check_open()
            place = Placement(log.config, log.log_end_offset, log.leader_epoch, now_ms)
            batches = [RecordBatch(draft.seal(codec, place))]
            return log.write(batches, AppendOrigin.CLIENT, now_ms)

    def batches(
        self,
        data: bytes,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        leader_epoch: int | None = None,
    ) -> AppendInfo:
        """Append ready-made batches (storage-format §12).

        Parameters
        ----------
        data : bytes
            Whole batches; a torn one at the end is dropped. A client or coordinator gives
            exactly one, whose offsets, leader epoch and perhaps times are set here; a replica
            gives any number, and their bytes are kept.
        leader_epoch : int, optional
            Stamped on a leader's batch; the newest known by default.

        Raises
        ------
        RequestError, CorruptRecordError, UnsupportedFormatError
            The log is unchanged.
        KafkaStorageError
            As `records`.
        ValueError
            `leader_epoch` is negative.
        """
        if leader_epoch is not None and leader_epoch < 0:
            raise ValueError(f"a leader epoch cannot be negative: {leader_epoch}")
        batches = whole_batches(data)
        if not batches:
            return NOTHING_APPENDED
        log = self._log
        now_ms = log.runtime.clock.now_ms()
        with log.lock:
            log.check_open()
            if origin is AppendOrigin.REPLICATION:
                check_replicated_batches(batches, log.log_end_offset, log.config)
            else:
                epoch = log.leader_epoch if leader_epoch is None else leader_epoch
                prepared = prepare_leader_batch(
                    batches, origin, log.config, now_ms, log.log_end_offset, epoch
                )
                batches = [RecordBatch(prepared)]
            return log.write(batches, origin, now_ms)

    def end_txn_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, *, commit: bool
    ) -> AppendInfo:
        """End a producer's transaction, as the coordinator; also one without data here.

        Raises
        ------
        InvalidProducerEpochError, TransactionCoordinatorFencedError
            Who asks is out of date; the log is unchanged.
        """
        control_type = ControlType.COMMIT if commit else ControlType.ABORT
        marker = EndTxnMarker(control_type, coordinator_epoch)
        data = end_txn_batch(producer_id, producer_epoch, marker, self._log.runtime.clock.now_ms())
        return self.batches(data, AppendOrigin.COORDINATOR)
