"""The producer state of a partition: sequences, epochs and transactions.

The state maps each producer id to the epochs of producer and coordinator, the time of the last
activity, the start of the open transaction and the last five batches. It is used for duplicate
detection, the first unstable offset, the transaction index and the cleaner's choice of empty
batches. The state is derived from the log. Snapshots shorten the replay after a restart. Source:
docs/spec/storage-format.md §9, and Kafka's ProducerStateManager and ProducerAppendInfo.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from logstore.errors import CorruptSnapshotError, InvalidTxnStateError
from logstore.record.control import EndTxnMarker
from logstore.record.header import BatchHeader
from logstore.runtime.fs import FileSystem
from logstore.storage.producers.entry import (
    BATCHES_REMEMBERED,
    BatchMetadata,
    CompletedTxn,
    LastRecord,
    ProducerEntry,
)
from logstore.storage.producers.rules import check_data, check_marker
from logstore.storage.producers.snapshot import SnapshotEntry, SnapshotFiles
from logstore.types import (
    DAY_MS,
    INT64_MAX,
    NO_OFFSET,
    SMALL_FILE_MAX_BYTES,
    AppendOrigin,
    TopicPartition,
)

PRODUCER_ID_EXPIRATION_MS = DAY_MS

_logger = logging.getLogger(__name__)


class ProducerStateManager:
    """The producers of a partition and their snapshot files.

    Parameters
    ----------
    fs : FileSystem
    directory : str
        The partition's directory, which must exist.
    topic_partition : TopicPartition
        The partition, for messages.
    producer_id_expiration_ms : int
        Idle time after which a producer without an open transaction expires.
    small_file_max_bytes : int
        Maximum size of a snapshot, in bytes.

    Attributes
    ----------
    damaged_snapshots : list of CorruptSnapshotError
        Errors of the damaged snapshots that `load_snapshot` deleted.
    map_end_offset : int
        End of the log that has been applied (exclusive). Set by the caller.
    may_lack_batches : bool
        True if damaged batches of the log were skipped. A batch that contradicts an open
        transaction then means that the transaction's marker was in a skipped batch.

    Notes
    -----
    Guarded by the log's lock. `now_ms` is wall-clock time in Unix milliseconds. `_check` asserts
    the invariants.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        topic_partition: TopicPartition,
        *,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        small_file_max_bytes: int = SMALL_FILE_MAX_BYTES,
    ) -> None:
        self._topic_partition = topic_partition
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.damaged_snapshots: list[CorruptSnapshotError] = []
        self._producers: dict[int, ProducerEntry] = {}
        # Open transactions: first data offset → producer id, lowest offset first.
        self._ongoing: dict[int, int] = {}
        # Completed transactions whose marker is not yet below the high watermark: marker offset →
        # first data offset, lowest marker first.
        self._unreplicated: dict[int, int] = {}
        self.map_end_offset = 0
        self.may_lack_batches = False
        self._last_snapshot_offset = 0
        self._snapshots = SnapshotFiles(fs, directory, small_file_max_bytes)

    # --- queries ------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether no producer is known and no completed transaction awaits the high watermark."""
        return not self._producers and not self._unreplicated

    def entry(self, producer_id: int) -> ProducerEntry | None:
        """Return a producer's live state, or None if unknown. Only `LogWriter` may modify it."""
        return self._producers.get(producer_id)

    def entries(self) -> list[ProducerEntry]:
        """Return the live state of each producer. The caller must not modify it."""
        return list(self._producers.values())

    def last_data_offset(self, producer_id: int) -> int:
        """Return the offset of a producer's last data record, or -1 if unknown."""
        entry = self._producers.get(producer_id)
        return NO_OFFSET if entry is None else entry.last_data_offset

    def active_producers(
        self, start_offset: int = 0, end_offset: int = INT64_MAX
    ) -> dict[int, LastRecord]:
        """Return the epoch and last data offset of every known producer id, as a copy.

        A range selects the producers whose last data offset is in [start, end) or unknown.
        """
        # Avoids the entry's property, because a cleaning pass reads thousands of entries per
        # segment.
        found = {}
        for producer_id, entry in self._producers.items():
            last = batches[-1].last_offset if (batches := entry.batches) else NO_OFFSET
            if start_offset <= last < end_offset or last == NO_OFFSET:
                found[producer_id] = LastRecord(entry.producer_epoch, last)
        return found

    def has_open_transaction(self, producer_id: int) -> bool:
        """Return whether a producer has an open transaction in this partition."""
        entry = self._producers.get(producer_id)
        return entry is not None and entry.current_txn_first_offset is not None

    @property
    def has_transactions(self) -> bool:
        """Whether a transaction is open or its marker is at or above the high watermark."""
        return bool(self._ongoing or self._unreplicated)

    def first_undecided_offset(self) -> int | None:
        """Return the first offset of the oldest open transaction, or None if there is none."""
        return next(iter(self._ongoing), None)

    def open_producers(self) -> list[int]:
        """Return the producer ids of the open transactions, oldest first."""
        return list(self._ongoing.values())

    def ongoing_producer(self) -> int | None:
        """Return the producer id of the oldest open transaction, or None if there is none."""
        return next(iter(self._ongoing.values()), None)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the first offset that `read_committed` readers must not read.

        Parameters
        ----------
        high_watermark : int
            High watermark (exclusive). A transaction is decided for readers once its marker is
            below it.

        Returns
        -------
        int or None
            First offset of the oldest transaction that is open or whose marker is at or above the
            high watermark, or None if there is none.

        Notes
        -----
        O(transactions ended since the last `on_high_watermark_updated`).
        """
        pending = [
            first_offset
            for marker_offset, first_offset in self._unreplicated.items()
            if marker_offset >= high_watermark
        ]
        undecided = self.first_undecided_offset()
        if undecided is not None:
            pending.append(undecided)
        return min(pending, default=None)

    def last_stable_offset_after(self, completed: CompletedTxn) -> int:
        """Return the last stable offset to record in a transaction index entry.

        The caller must call this right after the `update_from_batch` that returned `completed`. The
        result is the first offset of the oldest open transaction or, if none is open, the offset
        after the marker.
        """
        undecided = self.first_undecided_offset()
        return completed.last_offset + 1 if undecided is None else undecided

    # --- changes ------------------------------------------------------------------------------

    def validate(
        self,
        header: BatchHeader,
        marker: EndTxnMarker | None = None,
        origin: AppendOrigin = AppendOrigin.REPLICATION,
    ) -> BatchMetadata | None:
        """Check a batch against the state of its producer, without changing the state.

        Parameters
        ----------
        header : BatchHeader
            Header of a batch with a producer id.
        marker : EndTxnMarker or None
            See `update_from_batch`.
        origin : AppendOrigin
            Selects the rules; see `logstore.storage.producers.rules`.

        Returns
        -------
        BatchMetadata or None
            The original batch if this one is a duplicate, which must not be written again.

        Raises
        ------
        InvalidProducerEpochError, OutOfOrderSequenceNumberError, InvalidTxnStateError,
        TransactionCoordinatorFencedError
        """
        entry = self._producers.get(header.producer_id)
        if not header.is_control:
            return check_data(self._topic_partition, entry, header, origin)
        if marker is not None:
            check_marker(self._topic_partition, entry, header, marker, origin)
        return None

    def update_from_batch(
        self,
        header: BatchHeader,
        marker: EndTxnMarker | None = None,
        first_offset: int | None = None,
    ) -> CompletedTxn | None:
        """Apply a batch of the log by the replication rules, which accept the log as it is.

        Decreasing epochs are logged and accepted. The caller must advance `map_end_offset`.

        Parameters
        ----------
        header : BatchHeader
            Header with the final offsets. A batch without a producer id has no effect.
        marker : EndTxnMarker or None
            The marker in a control batch. None for any other control record, which has no effect,
            and for a marker removed by compaction, which only makes the producer known.
        first_offset : int, optional
            First offset of a transaction that this batch opens. [default: the base offset]

        Returns
        -------
        CompletedTxn or None
            The transaction that the marker completed, or None if it had no data.

        Raises
        ------
        InvalidTxnStateError
            See `validate`. The state is unchanged.
        """
        if not header.has_producer_id:
            return None
        try:
            self.validate(header)
        except InvalidTxnStateError:
            if not self.may_lack_batches:
                raise
            self._forget(header.producer_id)
        if not header.is_control:
            self._apply_data(header, header.base_offset if first_offset is None else first_offset)
            return None
        if marker is not None:
            return self._apply_marker(header, marker)
        if not header.record_count:
            producer_id = header.producer_id
            self._producers.setdefault(producer_id, ProducerEntry(producer_id))
        return None

    def _forget(self, producer_id: int) -> None:
        """Forget a producer and its open transaction."""
        first_offset = self._producers.pop(producer_id).current_txn_first_offset
        if first_offset is not None:
            self._ongoing.pop(first_offset, None)

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Forget the completed transactions whose markers are below `high_watermark`."""
        passed = []
        for marker_offset in self._unreplicated:
            if marker_offset >= high_watermark:
                break
            passed.append(marker_offset)
        for marker_offset in passed:
            del self._unreplicated[marker_offset]

    def on_log_start_offset_incremented(self, log_start_offset: int) -> None:
        """Advance the log start offset. Producers without records remain known."""
        self.on_high_watermark_updated(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        latest = self.latest_snapshot_offset
        self._last_snapshot_offset = log_start_offset if latest is None else latest

    def remove_expired(self, now_ms: int) -> int:
        """Forget idle producers without an open transaction, and return their number."""
        expired = [
            entry.producer_id
            for entry in self._producers.values()
            if self._is_expired(entry, now_ms)
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def next_expiry_ms(self, now_ms: int) -> int | None:
        """Return when the next idle producer expires, in Unix milliseconds, or None if never.

        Producers that only remain because of an open transaction are ignored.
        """
        moments = [
            entry.last_timestamp + self.producer_id_expiration_ms
            for entry in self._producers.values()
        ]
        return min((moment for moment in moments if moment > now_ms), default=None)

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Reload the newest snapshot on disk within the log's bounds.

        Snapshots at or below `log_start_offset` or above `log_end_offset` are deleted. Unless the
        state is already at `log_end_offset`, it is reloaded (`load_snapshot`), and the caller must
        replay the log from `map_end_offset` on.
        """
        for offset in self.snapshot_offsets:
            if not log_start_offset < offset <= log_end_offset:
                self.delete_snapshot(offset)
        if log_end_offset == self.map_end_offset:
            self.on_log_start_offset_incremented(log_start_offset)
        else:
            self.load_snapshot(log_start_offset, now_ms)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Clear the state, delete all snapshots, and make the state end at `offset`."""
        self._clear()
        for snapshot_offset in self.snapshot_offsets:
            self.delete_snapshot(snapshot_offset)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    # --- snapshots ----------------------------------------------------------------------------

    @property
    def snapshot_offsets(self) -> list[int]:
        """Offsets of the snapshot files, ascending."""
        return self._snapshots.offsets

    @property
    def latest_snapshot_offset(self) -> int | None:
        """Offset of the newest snapshot file, or None if there is none."""
        return self._snapshots.latest_offset

    def take_snapshot(self, *, sync: bool = True) -> str | None:
        """Write the state to `<map_end_offset>.snapshot`.

        Parameters
        ----------
        sync : bool
            Fsync the file now. After a roll, the next flush does so. A torn file is harmless: its
            CRC is wrong, and an older snapshot is used.

        Returns
        -------
        str or None
            Path of the file, or None if the newest snapshot already contains the state.
        """
        if self.map_end_offset <= self._last_snapshot_offset:
            return None
        entries = (entry.to_snapshot() for entry in self._producers.values())
        path = self._snapshots.write(self.map_end_offset, entries, sync=sync)
        self._last_snapshot_offset = self.map_end_offset
        return path

    def load_snapshot(self, log_start_offset: int, now_ms: int) -> None:
        """Replace the state with the newest readable snapshot.

        Damaged snapshots are deleted with a warning. Producers that have expired by `now_ms` are
        skipped. Without a snapshot, the state is empty and ends at `log_start_offset`.
        """
        self._clear()
        self.map_end_offset = log_start_offset
        while (offset := self.latest_snapshot_offset) is not None:
            try:
                stored = self._snapshots.read(offset)
            except CorruptSnapshotError as error:
                _logger.warning("%s: snapshot deleted: %s", self._topic_partition, error)
                self.damaged_snapshots.append(error)
                self.delete_snapshot(offset)
                continue
            self._restore(stored, now_ms)
            self.map_end_offset = offset
            break
        self._last_snapshot_offset = self.map_end_offset

    def delete_snapshot(self, offset: int) -> None:
        """Delete the snapshot of `offset` and its file, if they exist."""
        self._snapshots.delete(offset)

    def mark_snapshot_deleted(self, offset: int) -> str | None:
        """Rename a snapshot for later deletion. Return its new path, or None if it is missing."""
        return self._snapshots.mark_deleted(offset)

    def remove_straggler_snapshots(self, segment_base_offsets: Collection[int]) -> None:
        """Re-read the directory and delete the snapshots without a segment.

        The newest of these is retained if it is above every segment, because a clean shutdown took
        it.
        """
        self._snapshots.reload()
        bases = set(segment_base_offsets)
        stragglers = [offset for offset in self.snapshot_offsets if offset not in bases]
        if stragglers and stragglers[-1] > max(bases, default=NO_OFFSET):
            stragglers.pop()
        for offset in stragglers:
            self.delete_snapshot(offset)

    # --- implementation -----------------------------------------------------------------------

    def _apply_data(self, header: BatchHeader, first_offset: int) -> None:
        entry = self._obtain(header)
        entry.enter_epoch(header.producer_epoch)
        entry.batches.append(
            BatchMetadata(
                header.last_sequence,
                header.last_offset,
                header.last_offset - first_offset,
                header.max_timestamp,
            )
        )
        entry.last_timestamp = header.max_timestamp
        if header.is_transactional and entry.current_txn_first_offset is None:
            entry.current_txn_first_offset = first_offset
            self._ongoing[first_offset] = header.producer_id

    def _apply_marker(self, header: BatchHeader, marker: EndTxnMarker) -> CompletedTxn | None:
        entry = self._obtain(header)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            _logger.info(
                "%s: marker at offset %d of producer %d has coordinator epoch %d, below %d",
                self._topic_partition,
                header.base_offset,
                header.producer_id,
                marker.coordinator_epoch,
                entry.coordinator_epoch,
            )
        entry.enter_epoch(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        # A marker batch contains one record, so the batch's largest timestamp is the marker's.
        entry.last_timestamp = header.max_timestamp
        first_offset, entry.current_txn_first_offset = entry.current_txn_first_offset, None
        if first_offset is None:
            return None
        del self._ongoing[first_offset]
        self._unreplicated[header.base_offset] = first_offset
        return CompletedTxn(header.producer_id, first_offset, header.base_offset, marker.is_abort)

    def _obtain(self, header: BatchHeader) -> ProducerEntry:
        entry = self._producers.get(header.producer_id)
        if entry is None:
            entry = self._producers[header.producer_id] = ProducerEntry(header.producer_id)
        elif header.producer_epoch < entry.producer_epoch:
            _logger.warning(
                "%s: batch at offset %d of producer %d has epoch %d, below %d",
                self._topic_partition,
                header.base_offset,
                header.producer_id,
                header.producer_epoch,
                entry.producer_epoch,
            )
        return entry

    def _restore(self, stored: Iterable[SnapshotEntry], now_ms: int) -> None:
        for snapshot_entry in stored:
            entry = ProducerEntry.from_snapshot(snapshot_entry)
            if not self._is_expired(entry, now_ms):
                self._producers[entry.producer_id] = entry
        self._ongoing = dict(
            sorted(
                (entry.current_txn_first_offset, entry.producer_id)
                for entry in self._producers.values()
                if entry.current_txn_first_offset is not None
            )
        )

    def _is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        idle_ms = now_ms - entry.last_timestamp
        return entry.current_txn_first_offset is None and idle_ms >= self.producer_id_expiration_ms

    def _clear(self) -> None:
        self._producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()

    def _check(self) -> None:
        """Assert that the parts of the state are consistent."""
        open_txns = {
            entry.current_txn_first_offset: producer_id
            for producer_id, entry in self._producers.items()
            if entry.current_txn_first_offset is not None
        }
        assert open_txns == self._ongoing, (open_txns, self._ongoing)
        assert list(self._ongoing) == sorted(self._ongoing), self._ongoing
        assert list(self._unreplicated) == sorted(self._unreplicated), self._unreplicated
        for producer_id, entry in self._producers.items():
            assert entry.producer_id == producer_id >= 0, entry
            assert len(entry.batches) <= BATCHES_REMEMBERED, entry
            last_offsets = [batch.last_offset for batch in entry.batches]
            assert last_offsets == sorted(last_offsets), entry
        for marker_offset, first_offset in self._unreplicated.items():
            assert first_offset < marker_offset, self._unreplicated
