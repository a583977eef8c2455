"""The batches of a producer, and its records' futures with kafka-python's API.

Batches are sent synchronously, so a future is done as soon as its batch has been sent. `get` sends
a lingering batch.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from logstore.clients.open_batch import OpenBatch
from logstore.types import NO_OFFSET, NO_TIMESTAMP, TopicPartition

if TYPE_CHECKING:
    from logstore.errors import LogStoreError
    from logstore.record.records import Header

logger = logging.getLogger(__name__)


class ProducedMetadata(NamedTuple):
    """The metadata of a stored record, with the fields of kafka-python's RecordMetadata.

    Attributes
    ----------
    offset : int
        Offset of the record, or -1 with `acks=0`.
    timestamp : int
        Timestamp of the record in Unix milliseconds: the append time if the topic's
        `message.timestamp.type` is LogAppendTime.
    checksum : None
        Always None, because records have no checksums since message format v2.
    serialized_key_size, serialized_value_size, serialized_header_size : int
        Sizes in bytes, or -1 for a null or missing headers.
    """

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    checksum: None = None
    serialized_key_size: int = -1
    serialized_value_size: int = -1
    serialized_header_size: int = -1


class _Outcome(NamedTuple):
    """The outcome of consecutive records of a batch.

    Attributes
    ----------
    first_row : int
    offset : int
        Offset of the first record, or -1 if unknown, as with `acks=0`.
    log_append_time : int
        The append time set by the log, or -1 if the log did not set it.
    errors : sequence of LogStoreError
        The error of each record. Empty if the records were stored.
    """

    first_row: int
    offset: int
    log_append_time: int
    errors: Sequence[LogStoreError]


class ProducerBatch(OpenBatch):
    """A batch of one partition's records, and the outcome of each record.

    Futures look up their outcome in the batch, because setting the result of each future would take
    as long as storing its record. A settled batch only retains its records' sizes and timestamps.

    Parameters
    ----------
    limit_bytes : int
        See `OpenBatch`.
    opened_ns : int
        Monotonic time when the batch was opened.
    linger_ms : float
        Time after which the batch must be sent.
    lock : context manager
        The producer's lock. The caller must hold it to change the batch, but not to read outcomes.
    send : callable
        Sends the batch unless it was already sent.
    """

    __slots__ = (
        "_header_sizes",
        "_key_sizes",
        "_listeners",
        "_outcomes",
        "_send",
        "_value_sizes",
        "due_ns",
        "lock",
        "opened_ns",
        "settled_rows",
        "sizes",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        limit_bytes: int,
        opened_ns: int,
        linger_ms: float,
        lock: AbstractContextManager[object],
        send: Callable[[ProducerBatch], None],
    ) -> None:
        super().__init__(limit_bytes)
        self.topic_partition = topic_partition
        self.opened_ns = opened_ns
        self.due_ns = opened_ns + round(linger_ms * 1_000_000)
        self.lock = lock
        self._send = send
        self.sizes: list[int] = []
        # Rows are settled in order. All rows below this number have an outcome.
        self.settled_rows = 0
        self._outcomes: list[_Outcome] = []
        self._key_sizes: list[int] = []
        self._value_sizes: list[int] = []
        self._header_sizes: dict[int, int] = {}
        # Callbacks and errbacks by row, for the few records that have any.
        self._listeners: dict[int, tuple[list[Callable[..., object]], ...]] = {}

    def send(self) -> None:
        """Send the batch, unless it was already sent."""
        self._send(self)

    def cut(self, row: int) -> None:
        """Remove `row`, which may be incomplete, and all later rows."""
        for column in (self.keys, self.values, self.timestamps, self.sizes):
            del column[row:]
        self.headers.pop(row, None)

    def complete_rows(
        self,
        stop: int,
        offset: int,
        log_append_time: int = NO_TIMESTAMP,
        errors: Sequence[LogStoreError] = (),
    ) -> None:
        """Set the outcome of all unsettled rows below `stop`. The caller must hold the lock.

        `offset` is the offset of the first row, or -1 if it has no offset or `acks` is 0.
        """
        start, count = self.settled_rows, len(self.timestamps)
        assert start < stop <= count, "an outcome is final"
        if not start:
            self._key_sizes = _sizes(self.keys)
            self._value_sizes = _sizes(self.values)
            self._header_sizes = {
                row: size_of_headers(headers) for row, headers in self.headers.items()
            }
        self._outcomes.append(_Outcome(start, offset, log_append_time, errors))
        self.settled_rows = stop
        if stop == count:
            self.keys, self.values, self.headers, self.sizes = [], [], {}, []

    def metadata(self, row: int) -> ProducedMetadata | None:
        """Return the metadata of a record, or None if it was rejected or is pending."""
        outcome = self._outcome(row)
        if outcome is None or outcome.errors:
            return None
        first_row, offset, stamped, _ = outcome
        timestamp = self.timestamps[row]
        assert timestamp is not None, "set when the record was sent"
        tp = self.topic_partition
        return ProducedMetadata(
            tp[0],
            tp[1],
            tp,
            offset if offset == NO_OFFSET else offset + row - first_row,
            timestamp if stamped == NO_TIMESTAMP else stamped,
            None,
            self._key_sizes[row],
            self._value_sizes[row],
            self._header_sizes.get(row, -1),
        )

    def error(self, row: int) -> LogStoreError | None:
        """Return the error of a record, or None if it was stored or is pending."""
        outcome = self._outcome(row)
        return outcome.errors[row - outcome.first_row] if outcome and outcome.errors else None

    def _outcome(self, row: int) -> _Outcome | None:
        if row >= self.settled_rows:
            return None
        outcomes = self._outcomes
        return outcomes[bisect_right(outcomes, row, key=_first_row) - 1]

    def listen(self, row: int, function: Callable[..., object], *, to_errors: bool) -> bool:
        """Register a callback or errback. Return False if the outcome is already known."""
        with self.lock:
            if row < self.settled_rows:
                return False
            self._listeners.setdefault(row, ([], []))[to_errors].append(function)
            return True

    def run_callbacks(self) -> None:
        """Run the callbacks of all settled records. The caller must not hold the lock."""
        for row in sorted(self._listeners):
            error = self.error(row)
            metadata = self.metadata(row)
            if error is None and metadata is None:
                continue
            callbacks, errbacks = self._listeners.pop(row, ((), ()))
            for function in callbacks if error is None else errbacks:
                _call(function, metadata if error is None else error)


def _first_row(outcome: _Outcome) -> int:
    return outcome.first_row


def size_of_headers(headers: Iterable[Header]) -> int:
    """Return the size of a record's headers as reported in its metadata."""
    return sum(len(name.encode()) + len(value or b"") for name, value in headers)


def _sizes(items: list[bytes | None]) -> list[int]:
    return [-1 if item is None else len(item) for item in items]


class FutureRecordMetadata:
    """The future of a record passed to `Producer.send`."""

    __slots__ = ("_batch", "_row")

    def __init__(self, batch: ProducerBatch, row: int) -> None:
        self._batch = batch
        self._row = row

    def __repr__(self) -> str:
        outcome = "waiting" if not self.is_done else self.exception or self.value
        return f"FutureRecordMetadata({outcome!r})"

    @property
    def is_done(self) -> bool:
        """Whether the record has been stored or rejected."""
        return self._row < self._batch.settled_rows

    @property
    def value(self) -> ProducedMetadata | None:
        """The metadata of the record, or None if it was rejected or is pending."""
        return self._batch.metadata(self._row)

    @property
    def exception(self) -> LogStoreError | None:
        """The error of the record, or None if it was stored or is pending."""
        return self._batch.error(self._row)

    def succeeded(self) -> bool:
        """Return whether the record was stored."""
        return self.is_done and self.exception is None

    def failed(self) -> bool:
        """Return whether the record was rejected."""
        return self.exception is not None

    def retriable(self) -> bool:
        """Return False, because the producer has already retried all retriable errors."""
        return False

    def get(self, timeout: float | None = None) -> ProducedMetadata:
        """Return the metadata of the record, after sending its batch if that is lingering.

        Parameters
        ----------
        timeout : float, optional
            Ignored.

        Raises
        ------
        LogStoreError
            The record was rejected.
        """
        if not self.is_done:
            self._batch.send()
        error = self.exception
        if error is not None:
            raise error
        value = self.value
        assert value is not None, "a sent batch has an outcome"
        return value

    def add_callback(
        self, function: Callable[..., object], *args: object, **kwargs: object
    ) -> Self:
        """Call `function(*args, metadata, **kwargs)` when the record has been stored.

        If the record is already stored, the function is called immediately. Its exceptions are
        logged.
        """
        callback = partial(function, *args, **kwargs) if args or kwargs else function
        if not self._batch.listen(self._row, callback, to_errors=False):
            value = self.value
            if value is not None:
                _call(callback, value)
        return self

    def add_errback(self, function: Callable[..., object], *args: object, **kwargs: object) -> Self:
        """Call `function(*args, exception, **kwargs)` when the record has been rejected.

        If the record is already rejected, the function is called immediately. Its exceptions are
        logged.
        """
        errback = partial(function, *args, **kwargs) if args or kwargs else function
        if not self._batch.listen(self._row, errback, to_errors=True):
            error = self.exception
            if error is not None:
                _call(errback, error)
        return self

    def add_both(self, function: Callable[..., object], *args: object, **kwargs: object) -> Self:
        """Add a callback that is called with either the metadata or the exception."""
        self.add_callback(function, *args, **kwargs)
        return self.add_errback(function, *args, **kwargs)


class StoredRecord(FutureRecordMetadata):
    """The future of a record that `Producer.send` stored without a batch."""

    __slots__ = ("metadata",)

    metadata: ProducedMetadata

    @property
    def is_done(self) -> bool:
        """Always True."""
        return True

    @property
    def value(self) -> ProducedMetadata:
        """The metadata of the record."""
        return self.metadata

    @property
    def exception(self) -> None:
        """Always None, because the record was stored."""
        return

    def add_callback(
        self, function: Callable[..., object], *args: object, **kwargs: object
    ) -> Self:
        """Call `function(*args, metadata, **kwargs)`. Its exceptions are logged."""
        _call(partial(function, *args, **kwargs), self.metadata)
        return self

    def add_errback(self, function: Callable[..., object], *args: object, **kwargs: object) -> Self:
        """Do nothing, because the record was stored."""
        return self


def _call(function: Callable[[Any], object], argument: object) -> None:
    try:
        function(argument)
    except Exception:
        logger.exception("a callback of a sent record failed")
