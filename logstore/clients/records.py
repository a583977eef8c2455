"""The record types of the public API, and conversions between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.errors import InvalidRecordError
from logstore.record.records import Header, NewRecord
from logstore.storage.loading.views import TRANSIENT
from logstore.types import TimestampType

if TYPE_CHECKING:
    from logstore.faults.rules import Faults
    from logstore.storage.log.log import Log
    from logstore.storage.log.reader import Isolation


class RecordMetadata(NamedTuple):
    """The partition, offset and timestamp (Unix milliseconds) of an appended record."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class ConsumerRecord(NamedTuple):
    """A record read from a topic. A null `key` or `value` is None."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


Headers = Iterable[Header] | Mapping[str, bytes | None]
"""Headers as (name, value) pairs with possibly repeated names, or as a mapping."""

RecordLike = NewRecord | tuple[Any, ...] | Mapping[str, Any] | ConsumerRecord
"""A record as accepted by `append_many`: (key, value[, timestamp[, headers]]) or a mapping."""


def to_new_record(item: RecordLike) -> NewRecord:
    """Convert a record in any accepted form to a `NewRecord`.

    Raises
    ------
    InvalidRecordError
        The key or value is neither bytes nor None, or a field is unknown or invalid.
    """
    if isinstance(item, NewRecord):
        return item
    if isinstance(item, ConsumerRecord):
        return NewRecord(item.key, item.value, item.timestamp, item.headers)
    if isinstance(item, Mapping):
        for name in item:
            if name not in NewRecord._fields:
                raise InvalidRecordError(
                    f"unknown field {name!r} of a record, expected one of"
                    f" {', '.join(NewRecord._fields)}: {item!r}"
                )
        if "value" not in item:
            raise InvalidRecordError(f"a record needs a value (None for a tombstone): {item!r}")
        return new_record(**{"key": None, **item})
    if not isinstance(item, tuple | list) or not 2 <= len(item) <= len(NewRecord._fields):  # type: ignore[redundant-expr]  # callers may break the type
        raise InvalidRecordError(f"not a record (key, value[, timestamp[, headers]]): {item!r}")
    return new_record(*item)


def new_record(
    key: bytes | None,
    value: bytes | None,
    timestamp: int | None = None,
    headers: Headers = (),
) -> NewRecord:
    """Check the types of a record's fields, and create the record.

    Raises
    ------
    InvalidRecordError
    """
    if (
        (type(key) is bytes or key is None)
        and (type(value) is bytes or value is None)
        and (timestamp is None or type(timestamp) is int)
        and headers == ()
    ):
        record: NewRecord = tuple.__new__(NewRecord, (key, value, timestamp, ()))
        return record
    for name, field in (("key", key), ("value", value)):
        if field is not None and not isinstance(field, bytes):
            raise InvalidRecordError(f"{name} must be bytes or None, not {type(field).__name__}")
    if timestamp is not None and (isinstance(timestamp, bool) or not isinstance(timestamp, int)):
        raise InvalidRecordError(f"timestamp must be an int in ms, not {timestamp!r}")
    return NewRecord(key, value, timestamp, _check_headers(headers))


def _check_headers(headers: object) -> tuple[Header, ...]:
    if headers is None:
        return ()
    if isinstance(headers, Mapping):
        headers = headers.items()
    if isinstance(headers, str | bytes) or not isinstance(headers, Iterable):
        raise InvalidRecordError(f"headers must be (name, value) pairs, not {headers!r}")
    checked = []
    for header in headers:
        if not isinstance(header, tuple | list) or len(header) != 2:
            raise InvalidRecordError(f"a header must be a (name, value) pair, not {header!r}")
        name, value = header
        if not isinstance(name, str):
            raise InvalidRecordError(f"a header's name must be str, not {name!r}")
        if value is not None and not isinstance(value, bytes):
            raise InvalidRecordError(f"a header's value must be bytes or None, not {value!r}")
        checked.append((name, value))
    return tuple(checked)


def read_records(
    log: Log,
    offset: int | None,
    until: int | None,
    isolation: Isolation,
    key: bytes | None,
    reopen: Callable[[int, Exception], Log | None] = lambda _, __: None,
    faults: Faults | None = None,
) -> Iterator[ConsumerRecord]:
    """Yield the records of a log like `Broker.read`. For the rules of `faults`, this is one fetch.

    After each transient error, `reopen` is called with the number of errors at the current offset
    and the last error. It must return the log to continue with, or None to raise the error. Reading
    continues after the last record yielded, or at the log start offset if that is higher.
    """
    failures = 0
    if faults:
        faults.request("fetch", (log.topic_partition,), lambda: None)
    new, topic, partition = tuple.__new__, *log.topic_partition
    while True:
        start, lifetime = log.log_start_offset if offset is None else offset, log.lifetime
        try:
            for batch, rows in log.reader.rows(start, until, isolation=isolation):
                timestamp_type = batch.header.timestamp_type
                if key is not None:
                    rows = [row for row in rows if row[2] == key]
                for at, timestamp, record_key, value, headers in rows:
                    # do not yield the remaining rows after the log was closed
                    if lifetime.is_over:
                        offset, failures = at, failures if at == offset else 0
                        lifetime.check()
                    yield new(
                        ConsumerRecord,
                        (
                            topic,
                            partition,
                            at,
                            timestamp,
                            timestamp_type,
                            record_key,
                            value,
                            headers,
                        ),
                    )
                if rows:
                    offset, failures = rows[-1][0] + 1, 0
        except TRANSIENT as error:
            failures += 1
            changed = reopen(failures, error)
            if changed is None:
                raise
            log = changed
            offset = max(offset or 0, log.log_start_offset)
        else:
            return
