"""Invariants of a partition under any actions of clients and cleaners.

The model keeps every record that was acknowledged and not truncated. A record may be removed only
for a reason; removed records never reappear; below the checkpoint each key has one record.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from logstore.storage.log import Log
from logstore.storage.log.reader import Isolation

OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"


@dataclass(eq=False)
class Transaction:
    """A transaction of a producer in one partition.

    Attributes
    ----------
    decided_before : str
        The decision of its truncated marker: a cleaning pass by it cannot be undone, so its client
        decides the same again.
    is_cut : bool
        Some of it was truncated, or of a later transaction of its producer, for whose sake the
        cleaner may have dropped the last sequence of this one. The producer appends no more data.
    """

    producer_id: int
    state: str = OPEN
    sequence: int = 0
    decided_before: str = ""
    is_cut: bool = False


@dataclass(eq=False)
class Stored:
    """An acknowledged record."""

    offset: int
    key: bytes
    value: bytes | None
    timestamp: int
    batch_end: int
    transaction: Transaction | None

    @property
    def is_decided(self) -> bool:
        return self.transaction is None or self.transaction.state == COMMITTED


@dataclass(eq=False)
class PartitionModel:
    """One life of a partition, from its creation to its deletion.

    Attributes
    ----------
    disturbances : int
        Counts what takes records from under a reader: truncations, moves of the start, the end.
    allowed_start : int
        Up to where a client asked for the deletion of records.
    shortest_horizon_ms : int
        Smallest `delete.retention.ms` that ever held.
    """

    records: dict[int, Stored] = field(default_factory=dict)
    markers: dict[int, Transaction] = field(default_factory=dict)
    transactions: list[Transaction] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    start: int = 0
    end: int = 0
    allowed_start: int = 0
    disturbances: int = 0
    shortest_horizon_ms: int = 2**63
    is_deleted: bool = False
    seen: object = None

    # -- client actions ------------------------------------------------------------------

    def append(
        self,
        first_offset: int,
        records: list[tuple[bytes, bytes | None]],
        now: int,
        transaction: Transaction | None = None,
    ) -> None:
        """Note an acknowledged batch."""
        assert first_offset == self.end, "offsets are given once, in order"
        self.end += len(records)
        for offset, (key, value) in enumerate(records, first_offset):
            stored = Stored(offset, key, value, now, self.end - 1, transaction)
            self.records[offset] = stored

    def open_transactions(self) -> list[Transaction]:
        return [each for each in self.transactions if each.state == OPEN]

    def end_transaction(self, offset: int, transaction: Transaction, *, commit: bool) -> None:
        assert offset == self.end
        self.end += 1
        self.markers[offset] = transaction
        transaction.state = COMMITTED if commit else ABORTED

    def truncate(self, offset: int, *, restarted: bool = False) -> None:
        """Drop batches that end above an offset."""
        if offset >= self.end and not restarted:
            return
        self.disturbances += 1
        self.end = offset
        self.start = offset if restarted else min(self.start, offset)
        self.allowed_start = min(self.allowed_start, offset)
        lost = set(self.records) if restarted else set()
        lost |= {each.offset for each in self.records.values() if each.batch_end >= offset}
        result = [self.records[each].transaction for each in lost]
        cut = {each.producer_id for each in result if each is not None}
        for each in lost:
            del self.records[each]
        self.gone -= lost
        for marker, transaction in list(self.markers.items()):
            if restarted or marker >= offset:
                del self.markers[marker]
                transaction.decided_before, transaction.state = transaction.state, OPEN
                transaction.is_cut = True
        left = {id(each.transaction) for each in self.records.values()}
        for transaction in self.transactions:
            transaction.is_cut |= transaction.producer_id in cut
        # The log does not know a producer whose records are all removed.
        self.transactions = [each for each in self.transactions if id(each) in left]

    def reopen(self, log: Log) -> None:
        """Follow a restart: a hole that a truncation left at the end is forgotten, as in Kafka."""
        end = log.log_end_offset
        if end < self.end:
            hole = {offset for offset in self.records if offset >= end}
            assert hole <= self.gone, f"{hole - self.gone} are lost at the end"
            for offset in hole:
                del self.records[offset]
            self.gone -= hole
            self.markers = {o: each for o, each in self.markers.items() if o < end}
            self.end = end

    def latest(self, end: int) -> dict[bytes, Stored]:
        """Return the latest record of each key below an offset, except aborted ones."""
        return {
            each.key: each
            for offset, each in sorted(self.records.items())
            if each.is_decided and offset < end
        }

    # -- invariants ----------------------------------------------------------------------

    def check(self, log: Log, checkpoint: int | None, now: int) -> None:
        """Compare with the log if more than its end changed."""
        log._check()
        config = log.config
        assert log.log_end_offset == self.end, "nothing lost or added at the end"
        self._check_checkpoint(log, checkpoint)
        self.shortest_horizon_ms = min(self.shortest_horizon_ms, config.delete_retention_ms)
        decided = [each.state for each in self.transactions]
        view = (log.segments.view, log.log_start_offset, checkpoint, config.compact, decided)
        if self.seen == view:
            return
        self.seen = view
        self._check_start(log, now)
        result = self._read(log)
        self._check_missing(log, result, now)
        if checkpoint is not None and config.compact:
            self._check_clean(result, checkpoint)

    @staticmethod
    def _check_checkpoint(log: Log, checkpoint: int | None) -> None:
        if checkpoint is not None and log.config.compact:
            active = log.active_segment.base_offset
            assert checkpoint <= max(active, log.log_start_offset), "never into the active segment"

    def _check_start(self, log: Log, now: int) -> None:
        """Check that the log start moved by request or by age."""
        start = log.log_start_offset
        assert start >= self.start, "deleted records do not come back"
        if start > self.start:
            self.disturbances += 1
        for offset in range(max(self.start, self.allowed_start), start):
            record = self.records.get(offset)
            if record is not None and offset not in self.gone:
                assert log.config.delete
                assert record.timestamp < now - log.config.retention_ms, "expired"
        self.start = start

    def _read(self, log: Log) -> set[int]:
        """Read everything; each record was appended there and was never removed before."""
        result: set[int] = set()
        previous = -1
        for _, record in log.reader.records(self.start, isolation=Isolation.LOG_END):
            assert record.offset > previous, "offsets rise, none is there twice"
            previous = record.offset
            known = self.records.get(record.offset)
            assert known is not None, f"offset {record.offset} was never appended"
            assert (record.key, record.value) == (known.key, known.value)
            assert record.offset not in self.gone, f"offset {record.offset} came back"
            result.add(record.offset)
        return result

    def _check_missing(self, log: Log, result: set[int], now: int) -> None:
        """See that each record that went had a reason to."""
        active = log.active_segment.base_offset
        latest_cleaned = {
            each.key: each.offset
            for _, each in sorted(self.records.items())
            if each.is_decided and each.offset < active
        }
        missing = {o for o in self.records if o >= self.start} - result - self.gone
        for offset in missing:
            record = self.records[offset]
            assert offset < active, f"offset {offset} is lost from the active segment"
            if record.transaction is not None and record.transaction.state == ABORTED:
                continue
            if latest_cleaned.get(record.key, -1) > offset:
                continue
            assert record.value is None, f"{record.key!r} at {offset} is lost"
            assert now >= record.timestamp + self.shortest_horizon_ms, "a tombstone went too soon"
        self.gone |= missing

    def _check_clean(self, result: set[int], checkpoint: int) -> None:
        """Below the checkpoint each key has at most one record, and none is aborted."""
        keys: dict[bytes, int] = {}
        for offset in sorted(result):
            if offset < checkpoint:
                record = self.records[offset]
                transaction = record.transaction
                if transaction is not None and transaction.decided_before:
                    continue
                assert record.is_decided, f"offset {offset} is clean and undecided or aborted"
                other = keys.setdefault(record.key, offset)
                assert other == offset, f"{record.key!r} is clean at {other} and {offset}"


@dataclass(eq=False)
class ModelReader:
    """A slow reader, which continues while others append, clean and truncate."""

    model: PartitionModel
    log: Log
    committed: bool

    def __post_init__(self) -> None:
        self.began = self.model.disturbances
        stable = self.log.last_stable_offset
        self.expected = {
            key: each
            for key, each in self.model.latest(stable).items()
            if self.model.start <= each.offset and each.offset not in self.model.gone
        }
        isolation = Isolation.READ_COMMITTED if self.committed else Isolation.READ_UNCOMMITTED
        self._records = self.log.reader.records(self.model.start, isolation=isolation)
        self._last: dict[bytes, int] = {}
        self._previous = -1

    @property
    def is_disturbed(self) -> bool:
        return self.model.is_deleted or self.model.disturbances != self.began

    def read(self, count: int) -> bool:
        """Read some records on; False at the end, where all must have been seen."""
        for _ in range(count):
            result = next(self._records, None)
            if result is None:
                self._finish()
                return False
            _, record = result
            if self.is_disturbed:
                continue
            assert record.offset > self._previous, "offsets rise"
            known = self.model.records[record.offset]
            assert (record.key, record.value) == (known.key, known.value)
            assert known.is_decided or not self.committed
            if known.is_decided:
                self._last[record.key] = record.offset
            self._previous = record.offset
        return True

    def close(self) -> None:
        self._records.close()

    def _finish(self) -> None:
        """See that the latest value of each key, as of the beginning, or a later one was met."""
        if self.is_disturbed:
            return
        log = self.log
        end = log.last_stable_offset if self.committed else log.high_watermark
        latest = self.model.latest(end)
        for key, record in self.expected.items():
            if self._last.get(key, -1) < record.offset:
                newest = latest[key]
                is_deleted = newest.value is None and newest.offset in self.model.gone
                assert is_deleted, f"{key!r} at {record.offset} was not met"


def follow(log: Log, model: PartitionModel) -> None:
    """Notify the model of removals at the time when the log makes them.

    A caller may have to wait for a cleaning pass first, while others append.
    """
    truncate_to, truncate_fully = log.truncate_to, log.truncate_fully_and_start_at
    abandon = log.abandon

    def noted_truncation(offset: int) -> bool:
        model.truncate(offset)
        return truncate_to(offset)

    def noted_restart(offset: int, log_start_offset: int | None = None) -> None:
        model.truncate(offset, restarted=True)
        truncate_fully(offset, log_start_offset)

    def noted_end() -> None:
        model.is_deleted = True
        abandon()

    log.truncate_to = noted_truncation
    log.truncate_fully_and_start_at = noted_restart
    log.abandon = noted_end
