"""Outcome of a record that was sent: kafka-python's futures.

A producer here sends in the thread of whoever calls it, so that a future is done as soon as its
batch was sent; `get` sends the batch if it still waits for more records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from logstore.types import TopicPartition

if TYPE_CHECKING:
    from logstore.log.drafts import NewRecord

logger = logging.getLogger(__name__)


class ProducedMetadata(NamedTuple):
    """Where a record was stored, under the names of kafka-python's RecordMetadata.

    Attributes
    ----------
    offset : int
        -1 with `acks=0`.
    timestamp : int
        Unix ms: the record's, or the log's if the topic's type is LogAppendTime.
    checksum : None
        Batches have one, records no more.
    serialized_key_size, serialized_value_size, serialized_header_size : int
        In bytes; -1 if there is none.
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


class FutureRecordMetadata:
    """The outcome of one `Producer.send`.

    Parameters
    ----------
    lock : context manager
        The producer's; guards the outcome and the lists of callbacks.
    send_now : callable
        Sends the record's batch if that was not done yet.
    record : NewRecord
        What waits; given up once the outcome is known.
    size_bytes : int
        An upper bound of what it takes in its batch.

    Attributes
    ----------
    is_done : bool
        Whether the outcome is known.
    value : ProducedMetadata or None
        Where the record was stored.
    exception : Exception or None
        Why it was not.
    """

    __slots__ = (
        "_callbacks",
        "_errbacks",
        "_lock",
        "_record",
        "_send_now",
        "exception",
        "is_done",
        "size_bytes",
        "value",
    )

    def __init__(
        self,
        lock: AbstractContextManager[object],
        send_now: Callable[[], None],
        record: NewRecord | None = None,
        size_bytes: int = 0,
    ) -> None:
        self.is_done = False
        self.value: ProducedMetadata | None = None
        self.exception: Exception | None = None
        self._lock = lock
        self._send_now: Callable[[], None] | None = send_now
        self._record = record
        self.size_bytes = size_bytes
        # Few have any; a list for each of many futures would take as long as all the rest.
        self._callbacks: tuple[Callable[[ProducedMetadata], object], ...] = ()
        self._errbacks: tuple[Callable[[Exception], object], ...] = ()

    def __repr__(self) -> str:
        outcome = "waiting" if not self.is_done else self.exception or self.value
        return f"FutureRecordMetadata({outcome!r})"

    def succeeded(self) -> bool:
        """Tell whether the record was stored."""
        return self.is_done and self.exception is None

    def failed(self) -> bool:
        """Tell whether the record was refused."""
        return self.is_done and self.exception is not None

    def retriable(self) -> bool:
        """Tell whether sending it again might help: never, what could help was tried."""
        return False

    def get(self, timeout: float | None = None) -> ProducedMetadata:
        """Return where the record was stored, after sending its batch if that still waits.

        Parameters
        ----------
        timeout : float, optional
            Accepted: there is no answer to wait for.

        Raises
        ------
        LogStoreError
            Why it was refused.
        """
        send_now = self._send_now
        if send_now is not None:
            send_now()
        if self.exception is not None:
            raise self.exception
        assert self.value is not None, "a batch that was sent has an outcome"
        return self.value

    def add_callback(
        self, function: Callable[..., object], *args: object, **kwargs: object
    ) -> Self:
        """Call `function(*args, value, **kwargs)` once the record is stored; now if it is.

        What it raises is logged.
        """
        callback = partial(function, *args, **kwargs) if args or kwargs else function
        with self._lock:
            if not self.is_done:
                self._callbacks += (callback,)
                return self
        if self.value is not None:
            _call(callback, self.value)
        return self

    def add_errback(self, function: Callable[..., object], *args: object, **kwargs: object) -> Self:
        """Call `function(*args, exception, **kwargs)` once the record is refused; see above."""
        errback = partial(function, *args, **kwargs) if args or kwargs else function
        with self._lock:
            if not self.is_done:
                self._errbacks += (errback,)
                return self
        if self.exception is not None:
            _call(errback, self.exception)
        return self

    def add_both(self, function: Callable[..., object], *args: object, **kwargs: object) -> Self:
        """Call a function with either outcome."""
        self.add_callback(function, *args, **kwargs)
        return self.add_errback(function, *args, **kwargs)

    @property
    def waiting(self) -> NewRecord:
        """The record, as long as its outcome is not known; for the producer."""
        assert self._record is not None, "an outcome is final"
        return self._record

    def settle(self, outcome: ProducedMetadata | Exception) -> None:
        """Note the outcome; for the producer, which holds the lock."""
        assert not self.is_done, "an outcome is final"
        if isinstance(outcome, Exception):
            self.exception = outcome
        else:
            self.value = outcome
        self._send_now = self._record = None
        self.is_done = True

    def call_back(self) -> None:
        """Tell those who wait; for the producer, once it has given the lock back."""
        callbacks, errbacks = self._callbacks, self._errbacks
        self._callbacks, self._errbacks = (), ()
        if self.exception is not None:
            for errback in errbacks:
                _call(errback, self.exception)
        elif self.value is not None:
            for callback in callbacks:
                _call(callback, self.value)


def _call(function: Callable[[Any], object], argument: object) -> None:
    try:
        function(argument)
    except Exception:
        logger.exception("a callback of a record that was sent failed")
