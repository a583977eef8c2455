"""Rows of an export: a record, its position, and its fate in the next cleaning pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.errors import InvalidRecordError, LogStoreError
from logstore.record.control import ControlType, decode_control_key
from logstore.record.records import Record
from logstore.storage.loading.views import TRANSIENT

if TYPE_CHECKING:
    from logstore.analysis.fates import RecordFate
    from logstore.analysis.view import PartitionView
    from logstore.record.batch import RecordBatch
    from logstore.storage.log.log import Log
    from logstore.types import TopicPartition


_CONTROLS = {ControlType.ABORT: "abort", ControlType.COMMIT: "commit"}
_OTHER_CONTROL = "other"


class Row(NamedTuple):
    """A record of an export.

    Attributes
    ----------
    topic, partition : str or None, int or None
        Topic and partition, or None if the directory and file names do not contain them.
    control : str or None
        `abort`, `commit` or `other` for a control record. None for data.
    fate, superseded_by : str or None, int or None
        See `inspect --fate`. None if not requested, or unknown because of damage.
    decoded : dict or None
        `key` and `value` as JSON values, and `error` if decoding failed; for Kafka's internal
        topics also `type` and `version`. None if not requested.
    """

    topic: str | None
    partition: int | None
    timestamp_type: int
    record: Record
    batch_base_offset: int
    position: int
    control: str | None
    fate: str | None
    superseded_by: int | None
    decoded: dict[str, Any] | None


RESTARTS_MAX = 64
"""How often the fates of a partition are computed again from its start, after damage."""


class Fates:
    """The fates of the records in a partition, in offset order.

    Damaged batches are skipped, as by other readers: the log is reopened, and the fates are
    restarted.

    Parameters
    ----------
    view : PartitionView
    start : callable
        Returns the fates of a log, starting at its first record.

    Attributes
    ----------
    failure : LogStoreError or None
        Why the fates end before the log does. A cleaning pass would also fail.
    """

    def __init__(self, view: PartitionView, start: Callable[[Log], Iterable[RecordFate]]) -> None:
        self._view = view
        self._start = start
        self._fates: Iterator[RecordFate] | None = None
        self._next: RecordFate | None = None
        self._restarts = 0
        self.failure: LogStoreError | None = None

    def at(self, offset: int) -> RecordFate | None:
        """Return the fate of a record, or None. Offsets must not decrease between calls."""
        error: LogStoreError | None = None
        while self.failure is None:
            try:
                if self._fates is None:
                    self._begin(error)
                return self._find(offset)
            except LogStoreError as found:
                error = found
                self._fates = None
                self._restarts += 1
                if self._restarts > RESTARTS_MAX:
                    self.failure = error
        return None

    def _begin(self, error: LogStoreError | None) -> None:
        """Start the fates. After damage, reopen the log first."""
        pending = [error] if isinstance(error, TRANSIENT) else []

        def visit(log: Log) -> tuple[Iterator[RecordFate], RecordFate | None]:
            if pending:
                raise pending.pop()
            fates = iter(self._start(log))
            return fates, next(fates, None)

        try:
            self._fates, self._next = self._view.evaluate(visit)
        except LogStoreError as failure:
            self.failure = failure
            raise

    def _find(self, offset: int) -> RecordFate | None:
        assert self._fates is not None
        while self._next is not None and self._next.offset < offset:
            self._next = next(self._fates, None)
        return self._next if self._next is not None and self._next.offset == offset else None


def row_of(
    topic_partition: TopicPartition | None,
    batch: RecordBatch,
    position: int,
    record: Record,
    fate: RecordFate | None,
) -> Row:
    """Return the row of a record without decoding the record.

    Parameters
    ----------
    topic_partition : TopicPartition or None
        The partition, or None if the directory and file names do not contain it.
    position : int
        Position of the record's batch in the file.
    """
    topic, partition = topic_partition or (None, None)
    header = batch.header
    return Row(
        topic,
        partition,
        header.timestamp_type,
        record,
        header.base_offset,
        position,
        _control(record) if header.is_control else None,
        None if fate is None else fate.fate,
        None if fate is None else fate.superseded_by,
        None,
    )


def _control(record: Record) -> str:
    try:
        kind = decode_control_key(record.key).control_type
    except InvalidRecordError:
        return _OTHER_CONTROL
    return _CONTROLS.get(kind, _OTHER_CONTROL)
