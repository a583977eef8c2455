"""Output of Kafka's `kafka-dump-log`, line by line (docs/spec/storage-format.md §18).

`dump_files` yields lines and their streams, and the caller prints them. The text is exactly
Kafka's, so scripts can parse both. There are two intended differences: Kafka's tool exits at a
damaged file or batch, whereas this one continues; and reports on several files are in the order of
the files, not of a hash table. Source: Kafka's DumpLogSegments.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

from logstore.config.overrides import ReadLimits
from logstore.errors import (
    CorruptSnapshotError,
    InvalidRecordError,
    KafkaStorageError,
    LogStoreError,
    UnsupportedFormatError,
)
from logstore.inspect.batches import codec_name, describe_batch, old_timestamp_type
from logstore.inspect.decoders import (
    DECODERS,
    DecoderClass,
    class_texts,
    java_text,
    raft_control_text,
)
from logstore.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    RAFT_BOOTSTRAP,
    RAFT_SNAPSHOT,
    RAFT_SNAPSHOT_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from logstore.record import layout, legacy
from logstore.record.batch import RecordBatch
from logstore.record.control import decode_control_key, decode_end_txn_marker
from logstore.record.header import BatchHeader, increment_sequence
from logstore.record.records import Record
from logstore.record.walk import BatchAt, read_batch, walk_headers
from logstore.runtime.fs import File, FileSystem
from logstore.storage.checkpoint.atomic import read_bytes
from logstore.storage.index import OffsetIndex, TimeIndex, TransactionIndex
from logstore.storage.producers.snapshot import SnapshotEntry, decode_snapshot
from logstore.types import INT32_MAX, NO_SEQUENCE, NO_TIMESTAMP

DEFAULT_MAX_MESSAGE_SIZE = 5 * 1024 * 1024
"""Default number of bytes read at an index entry's position to find its batch."""

UNLIMITED = INT32_MAX
"""Value of `max_bytes` for the whole file."""

DEFAULT_LIMITS = ReadLimits()

_EXIT_DAMAGED = 1
_EXIT_IO = KafkaStorageError.exit_code

_SLASHES = re.compile("/+")


class Stream(enum.Enum):
    """The kind of a line: part of the dump, a mismatch report, or a failure.

    Reports and failures are printed to standard error.
    """

    OUTPUT = "output"
    REPORT = "report"
    FAILURE = "failure"


class DumpLine(NamedTuple):
    """A line without its line terminator, and the exit code that it implies."""

    text: str
    stream: Stream = Stream.OUTPUT
    exit_code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """The supported flags of `kafka-dump-log`.

    Attributes
    ----------
    deep_iteration : bool
        Show records in addition to batches. Implied by `print_data_log`.
    print_data_log : bool
        Show keys and values, decoded as UTF-8.
    decoder : str, optional
        Show keys and values as records of this internal Kafka topic
        (`logstore.inspect.decoders.DECODERS`).
    decoder_classes : (DecoderClass, DecoderClass), optional
        Decoders for keys and values. `decoder` takes precedence. [default: UTF-8]
    verify_index_only : bool
        Verify indexes without showing their entries.
    index_sanity_check : bool
        Check the indexes without reading the log.
    skip_record_metadata : bool
        Only show the keys and values of records.
    max_message_size : int
        Number of bytes to read at an index entry's position to find its batch.
    max_bytes : int
        Number of bytes to read from each `.log`. [default: `UNLIMITED`]
    limits : ReadLimits
        Limits above which files and batches are reported as failures.
    working_dir : str
        Base of relative paths. Reports show absolute paths.
    """

    deep_iteration: bool = False
    print_data_log: bool = False
    decoder: str | None = None
    decoder_classes: tuple[DecoderClass, DecoderClass] | None = None
    verify_index_only: bool = False
    index_sanity_check: bool = False
    skip_record_metadata: bool = False
    max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE
    max_bytes: int = UNLIMITED
    limits: ReadLimits = DEFAULT_LIMITS
    working_dir: str = ""

    @property
    def prints_data(self) -> bool:
        """Whether keys and values are shown, which a decoder implies."""
        return self.print_data_log or self.decoder is not None or self.decoder_classes is not None


@dataclass(slots=True)
class _Reports:
    """Reports printed after all files, by absolute path."""

    index_mismatches: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    time_mismatches: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    out_of_order: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    not_found: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    non_consecutive: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """Yield the reports in Kafka's order. Like Kafka, list two kinds in reverse order."""
        for path, pairs in self.index_mismatches.items():
            yield f"Mismatches in :{path}"
            for index_offset, log_offset in reversed(pairs):
                yield f"  Index offset: {index_offset}, log offset: {log_offset}"
        for path, pairs in self.time_mismatches.items():
            yield f"Found timestamp mismatch in :{path}"
            for index_time, log_time in pairs:
                yield f"  Index timestamp: {index_time}, log timestamp: {log_time}"
        for path, pairs in self.out_of_order.items():
            yield f"Found out of order timestamp in :{path}"
            for index_time, previous in pairs:
                yield f"  Index timestamp: {index_time}, Previously indexed timestamp: {previous}"
        for pairs in self.not_found.values():
            yield "The following indexed offsets are not found in the log."
            for index_offset, log_offset in pairs:
                yield f"Indexed offset: {index_offset}, found log offset: {log_offset}"
        for path, pairs in self.non_consecutive.items():
            yield f"Non-consecutive offsets in {path}"
            for first, second in reversed(pairs):
                yield f"  {first} is followed by {second}"


def dump_files(
    fs: FileSystem, paths: Iterable[str], options: DumpOptions | None = None
) -> Iterator[DumpLine]:
    """Yield the dump of several files, then the reports on them.

    Parameters
    ----------
    fs : FileSystem
        Only read. A `ReadOnlyFileSystem` is sufficient.
    paths : iterable of str
        `.log`, `.index`, `.timeindex`, `.txnindex`, `.snapshot` or `.checkpoint` files. Any other
        file is reported as unknown.
    options : DumpOptions, optional

    Notes
    -----
    A file that cannot be dumped results in a line of `Stream.FAILURE`, and the remaining files are
    still dumped. Requires memory for one batch and for a pair of numbers per mismatch.
    """
    dump = _Dump(fs, options or DumpOptions())
    for path in paths:
        yield from dump.file(_normalized(path))
    for text in dump.reports.lines():
        yield DumpLine(text, Stream.REPORT)


class _Dump:
    """The state of a `dump_files` call: its options and reports."""

    def __init__(self, fs: FileSystem, options: DumpOptions) -> None:
        self._fs = fs
        self._options = options
        self.reports = _Reports()

    def file(self, path: str) -> Iterator[DumpLine]:
        """Yield the lines of one file."""
        yield DumpLine(f"Dumping {path}")
        _, dot, ending = path.rpartition("/")[2].rpartition(".")
        dump = {
            LOG_SUFFIX: self._log,
            RAFT_SNAPSHOT_SUFFIX: self._log,
            INDEX_SUFFIX: self._index,
            TIME_INDEX_SUFFIX: self._time_index,
            TXN_INDEX_SUFFIX: self._txn_index,
            SNAPSHOT_SUFFIX: self._snapshot,
        }.get(dot + ending)
        if dump is None:
            yield DumpLine(f"Ignoring unknown file {path}", Stream.REPORT)
            return
        try:
            yield from dump(path)
        except LogStoreError as error:
            yield _failure(str(error))
        except OSError as error:
            yield _failure(str(error), _EXIT_IO)

    # -- .log --------------------------------------------------------------------------------

    def _log(self, path: str) -> Iterator[DumpLine]:
        options = self._options
        deep = options.deep_iteration or options.prints_data
        if options.decoder_classes is not None and options.decoder is None:
            key, value = options.decoder_classes
            yield from (DumpLine(each.warning) for each in (value, key) if each.is_deprecated)
        yield DumpLine(_first_line(path))
        with closing(self._fs.open(path)) as file:
            end = min(file.size(), options.max_bytes)
            valid_bytes = 0
            last_offset = -1
            for entry in _entries(file, path, end):
                valid_bytes = entry.end_position
                try:
                    yield DumpLine(entry.line())
                    if not deep:
                        continue
                    for record, line in entry.records(options):
                        if last_offset not in (-1, record.offset - 1):
                            self._report(
                                self.reports.non_consecutive, path, last_offset, record.offset
                            )
                        last_offset = record.offset
                        yield DumpLine(line)
                except InvalidRecordError as error:
                    yield _failure(f"{path} at position {entry.position}: {error}")
                except LogStoreError as error:
                    yield _failure(str(error))
            trailing = end - valid_bytes
            if trailing and options.max_bytes == UNLIMITED:
                name = path.rpartition("/")[2]
                yield DumpLine(f"Found {trailing} invalid bytes at the end of {name}")

    # -- indexes -----------------------------------------------------------------------------

    def _index(self, path: str) -> Iterator[DumpLine]:
        options = self._options
        base_offset = _base_offset(path)
        self._fs.stat(path)  # a missing index would count as empty
        log_path = _sibling(path, LOG_SUFFIX)
        log = self._fs.open(log_path)
        index = OffsetIndex(self._fs, path, base_offset, max_index_bytes=0, writable=False)
        try:
            if index.entries == 0:
                yield DumpLine(f"{path} is empty.")
                return
            if options.index_sanity_check:
                index.sanity_check()
                yield DumpLine(f"{path} passed sanity check.")
                return
            for slot, entry in enumerate(index):
                if entry.offset == base_offset and slot > 0:
                    return  # padding left by a crash after the last entry
                try:
                    at = self._batch_at(log, log_path, entry.position)
                except LogStoreError as error:
                    yield _failure(str(error))
                else:
                    if at is None:
                        yield _failure(
                            f"{path}: entry {slot}: no complete batch of at most"
                            f" {options.max_message_size} bytes at position {entry.position}"
                            f" of {log_path}"
                        )
                    elif at.header.last_offset != entry.offset:
                        found = at.header.last_offset
                        self._report(self.reports.index_mismatches, path, entry.offset, found)
                if not options.verify_index_only:
                    yield DumpLine(f"offset: {entry.offset} position: {entry.position}")
        finally:
            index.close_handler()
            log.close()

    def _batch_at(self, log: File, log_path: str, position: int) -> BatchAt | None:
        size = log.size()
        if not 0 <= position <= size:
            return None
        end = min(size, position + self._options.max_message_size)
        return next(walk_headers(log, log_path, position, end), None)

    def _time_index(self, path: str) -> Iterator[DumpLine]:
        options = self._options
        base_offset = _base_offset(path)
        self._fs.stat(path)  # a missing index would count as empty
        log_path = _sibling(path, LOG_SUFFIX)
        log = self._fs.open(log_path)
        index = OffsetIndex(
            self._fs, _sibling(path, INDEX_SUFFIX), base_offset, max_index_bytes=0, writable=False
        )
        time_index = TimeIndex(self._fs, path, base_offset, max_index_bytes=0, writable=False)
        try:
            if options.index_sanity_check:
                time_index.sanity_check()
                yield DumpLine(f"{path} passed sanity check.")
                return
            previous = NO_TIMESTAMP
            for slot, entry in enumerate(time_index):
                if entry.offset == base_offset and slot > 0:
                    return  # as in an offset index
                position = index.lookup(entry.offset).position
                try:
                    self._verify_time(path, log, log_path, position, entry, previous)
                except LogStoreError as error:
                    yield _failure(str(error))
                if not options.verify_index_only:
                    yield DumpLine(f"timestamp: {entry.timestamp} offset: {entry.offset}")
                previous = entry.timestamp
        finally:
            time_index.close_handler()
            index.close_handler()
            log.close()

    def _verify_time(
        self,
        path: str,
        log: File,
        log_path: str,
        position: int,
        entry: tuple[int, int],
        previous: int,
    ) -> None:
        """Compare a time index entry with the batch that ends at its offset."""
        timestamp, offset = entry
        reports = self.reports
        found = next(
            (
                at
                for at in walk_headers(log, log_path, max(0, position))
                if at.header.last_offset >= offset
            ),
            None,
        )
        if found is None or found.header.last_offset != offset:
            log_offset = -1 if found is None else found.header.last_offset
            self._report(reports.not_found, path, offset, log_offset)
            return
        batch = read_batch(log, log_path, found.position, found.header.size_bytes)
        records = batch.iter_records(self._options.limits.batch_bytes)
        largest = max((record.timestamp for record in records), default=NO_TIMESTAMP)
        largest = max(largest, NO_TIMESTAMP)
        if largest != timestamp:
            self._report(reports.time_mismatches, path, timestamp, largest)
        if previous >= timestamp:
            self._report(reports.out_of_order, path, timestamp, previous)

    def _txn_index(self, path: str) -> Iterator[DumpLine]:
        base_offset = _base_offset(path)
        self._fs.stat(path)
        index = TransactionIndex(self._fs, path, base_offset, writable=False)
        try:
            for txn in index.entries():
                yield DumpLine(
                    f"version: 0 producerId: {txn.producer_id} firstOffset: {txn.first_offset}"
                    f" lastOffset: {txn.last_offset} lastStableOffset: {txn.last_stable_offset}"
                )
        finally:
            index.close_handler()

    # -- .snapshot ---------------------------------------------------------------------------

    def _snapshot(self, path: str) -> Iterator[DumpLine]:
        try:
            entries = decode_snapshot(
                read_bytes(self._fs, path, self._options.limits.small_file_bytes), path
            )
        except CorruptSnapshotError as error:
            yield DumpLine(_snapshot_complaint(error), Stream.REPORT, _EXIT_DAMAGED)
            return
        for entry in entries:
            yield DumpLine(_snapshot_line(entry))

    def _report(
        self, reports: dict[str, list[tuple[int, int]]], path: str, first: int, second: int
    ) -> None:
        absolute = path
        if self._options.working_dir and not path.startswith("/"):
            absolute = f"{self._options.working_dir.rstrip('/')}/{path}"
        reports.setdefault(absolute, []).append((first, second))


class _BatchEntry(NamedTuple):
    """A batch of magic 2."""

    position: int
    end_position: int
    batch: RecordBatch

    def line(self) -> str:
        return _batch_line(self.batch, self.position)

    def records(self, options: DumpOptions) -> Iterator[tuple[Record, str]]:
        for record in self.batch.iter_records(options.limits.batch_bytes):
            yield record, _record_line(self.batch.header, record, options)


class _OldEntry(NamedTuple):
    """A magic 0 or 1 message, or a set of messages."""

    position: int
    end_position: int
    message: legacy.OldMessage

    def line(self) -> str:
        message = self.message
        return (
            f"offset: {message.offset} position: {self.position}"
            f" {old_timestamp_type(message)}: {message.timestamp} size: {message.size_bytes}"
            f" magic: {message.magic} compresscodec: {codec_name(message.codec_id)}"
            f" crc: {message.crc} isvalid: true"
        )

    def records(self, options: DumpOptions) -> Iterator[tuple[Record, str]]:
        for each, record in self.message.entries(options.limits.batch_bytes):
            yield record, _old_record_line(self.message, each, record, options)


def _entries(file: File, path: str, end: int) -> Iterator[_BatchEntry | _OldEntry]:
    """Yield the entries of a file of any magic, in file order.

    Raises
    ------
    CorruptRecordError, InvalidRecordError
        The next bytes are not a batch, or are an old message with an inconsistent length.
    """
    position = 0
    while position < end:
        start = position
        try:
            for at in walk_headers(file, path, position, end):
                position = at.end_position
                batch = read_batch(file, path, at.position, at.header.size_bytes)
                yield _BatchEntry(at.position, position, batch)
            position = end  # or before a torn tail
        except UnsupportedFormatError as error:
            if error.position is None or error.position < start:
                raise
            position = error.position
            size = int.from_bytes(file.read(position + 8, 4), "big") + layout.LOG_OVERHEAD
            message = legacy.parse_message(file.read(position, size))
            yield _OldEntry(position, position + size, message)
            position += size


# -- lines -------------------------------------------------------------------------------------


def _first_line(path: str) -> str:
    name = path.rpartition("/")[2]
    if not name.endswith(RAFT_SNAPSHOT_SUFFIX):
        return f"Log starting offset: {_base_offset(path)}"
    if name == RAFT_BOOTSTRAP:
        return "KRaft bootstrap snapshot"
    named = RAFT_SNAPSHOT.fullmatch(name)
    if named is None:
        raise InvalidRecordError(f"{path}: the name is not the offset and epoch of a snapshot")
    return f"Snapshot end offset: {int(named[1])}, epoch: {int(named[2])}"


def _batch_line(batch: RecordBatch, position: int) -> str:
    _ = batch.codec  # raises an error for an unknown codec, for which Kafka prints no line either
    facts = describe_batch(batch, position)
    timestamp_type = facts.pop("timestampType")
    facts["deleteHorizonMs"] = _optional(facts["deleteHorizonMs"])
    parts = []
    for name, value in facts.items():
        text = _boolean(value) if isinstance(value, bool) else value
        parts.append(f"{timestamp_type if name == 'maxTimestamp' else name}: {text}")
    return " ".join(parts)


def _record_line(header: BatchHeader, record: Record, options: DumpOptions) -> str:
    """Return the line of a record, with exactly the spaces that Kafka prints."""
    parts = []
    prefix = "| "
    if not options.skip_record_metadata:
        sequence = NO_SEQUENCE
        if header.base_sequence >= 0:
            delta = record.offset - header.base_offset
            sequence = increment_sequence(header.base_sequence, delta)
        names = ",".join(
            java_text(name.encode("utf-8", "surrogateescape")) for name, _ in record.headers
        )
        parts.append(
            f"| offset: {record.offset} {header.timestamp_type.kafka_name}: {record.timestamp}"
            f" keySize: {_size(record.key)} valueSize: {_size(record.value)}"
            f" sequence: {sequence} headerKeys: [{names}]"
        )
        if header.is_control:
            parts.append(_control_part(record))
        prefix = " "
    if options.prints_data and not header.is_control:
        key, payload = _texts(record, options)
        if key is not None:
            parts.append(f"{prefix}key: {key}")
        if payload is not None:
            parts.append(f" payload: {payload}")
    return "".join(parts)


def _old_record_line(
    outer: legacy.OldMessage, message: legacy.OldMessage, record: Record, options: DumpOptions
) -> str:
    """Return the line of an old record as Kafka 3.9 prints it, including the unmatched brace."""
    parts = []
    prefix = "| "
    if not options.skip_record_metadata:
        parts.append(
            f"| offset: {record.offset} {old_timestamp_type(outer)}: {record.timestamp}"
            f" keySize: {_size(record.key)} valueSize: {_size(record.value)}"
            f" isValid: true crc: {message.crc}}}"
        )
        prefix = " "
    if options.prints_data:
        key, payload = _texts(record, options)
        if key is not None:
            parts.append(f"{prefix}key: {key}")
        if payload is not None:
            parts.append(f" payload: {payload}")
    return "".join(parts)


def _texts(record: Record, options: DumpOptions) -> tuple[str | None, str | None]:
    if options.decoder is not None:
        return DECODERS[options.decoder](record)
    key, value = options.decoder_classes or (DecoderClass(), DecoderClass())
    return class_texts(key, value, record)


def _control_part(record: Record) -> str:
    marker = decode_end_txn_marker(record.key, record.value)
    if marker is not None:
        return (
            f" endTxnMarker: {marker.control_type.name}"
            f" coordinatorEpoch: {marker.coordinator_epoch}"
        )
    key = decode_control_key(record.key)
    raft = raft_control_text(key.control_type, record.value or b"")
    if raft is not None:
        return f" {raft}"
    return f" controlType: {key.control_type.name}({key.type_id})"


def _snapshot_line(entry: SnapshotEntry) -> str:
    txn_first_offset = entry.current_txn_first_offset
    text = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch}"
        f" coordinatorEpoch: {entry.coordinator_epoch}"
        f" currentTxnFirstOffset: {_optional(None if txn_first_offset < 0 else txn_first_offset)}"
        f" lastTimestamp: {entry.timestamp} "
    )
    if entry.last_offset < 0:
        return text
    first_sequence = entry.last_sequence - entry.offset_delta
    if first_sequence < 0:
        first_sequence += INT32_MAX + 1
    return (
        f"{text}firstSequence: {first_sequence} lastSequence: {entry.last_sequence}"
        f" lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta}"
        f" timestamp: {entry.timestamp}"
    )


def _snapshot_complaint(error: CorruptSnapshotError) -> str:
    if error.check == "version":
        return f"Snapshot contained an unknown file version {error.found}"
    if error.check == "crc":
        return (
            "Snapshot is corrupt (CRC is no longer valid)."
            f" Stored crc: {error.expected}. Computed crc: {error.found}"
        )
    return f"Snapshot failed schema validation: {error.message}"


def _failure(text: str, exit_code: int = _EXIT_DAMAGED) -> DumpLine:
    return DumpLine(text, Stream.FAILURE, exit_code)


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


# -- names -------------------------------------------------------------------------------------


def _normalized(path: str) -> str:
    """Return a path as normalized by Java's `File`: no double or trailing slashes."""
    path = _SLASHES.sub("/", path)
    return path.removesuffix("/") or path


def _base_offset(path: str) -> int:
    """Return the offset at the start of a file name.

    Raises
    ------
    InvalidRecordError
        The name does not start with an offset.
    """
    number = path.rpartition("/")[2].partition(".")[0]
    if not (number.isascii() and number.isdigit()):
        raise InvalidRecordError(f"{path}: the name does not start with an offset")
    return int(number)


def _sibling(path: str, suffix: str) -> str:
    """Return the path of the file with the same base offset and a different suffix."""
    directory, slash, name = path.rpartition("/")
    return f"{directory}{slash}{name.partition('.')[0]}{suffix}"
