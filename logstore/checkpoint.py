"""The small files of a data directory: checkpoints, the clean-shutdown marker, topic ids.

A checkpoint is a table in text: line 1 the version `0`, line 2 the number of entries, then one
entry a line, its fields one space apart. It is always replaced as a whole (`write_atomically`),
so a reader sees an old or a new one, and it is allowed to lag behind what it describes.
Source: storage-format §10; Kafka's CheckpointFile reads and writes the same.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from logstore.config_table import SMALL_FILE_MAX_BYTES
from logstore.errors import CorruptCheckpointError, CorruptionError
from logstore.runtime.fs import FileKind, FileSystem, NotRegularFileError, open_anew
from logstore.types import TopicPartition

CLEANER_OFFSETS = "cleaner-offset-checkpoint"
"""First dirty offset of each compacted partition."""

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
"""Offset below which each partition is known to be flushed."""

LOG_START_OFFSETS = "log-start-offset-checkpoint"
"""Log start offsets, of the logs whose start lies above their first segment's base."""

REPLICATION_OFFSETS = "replication-offset-checkpoint"
"""High watermark of each partition."""

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
PARTITION_METADATA = "partition.metadata"
UNREADABLE = "readable file"
"""As the check that failed: what stands under a name was not even read."""
PRODUCER_IDS_FILE = "logstore-producer-ids.json"
TMP_SUFFIX = ".tmp"
CHECKPOINT_VERSION = 0
NO_BROKER_EPOCH = -1

TOPIC_ID_SIZE = 16
TOPIC_ID_LENGTH = 22
"""Characters of a topic id in text: 16 bytes in URL-safe base64 without its two `=`."""
assert TOPIC_ID_LENGTH == (TOPIC_ID_SIZE * 8 + 5) // 6

_NUMBER = re.compile(r"[+-]?[0-9]+")
_FIELD_GAP = re.compile(r"[ \t\v\f]+")
_LINE_END = re.compile(r"\r\n|\n|\r")
_TOPIC_ID = re.compile(rf"[A-Za-z0-9_-]{{{TOPIC_ID_LENGTH}}}")
_METADATA_GAP = re.compile(r":[ \t]+")


def read_bytes(
    fs: FileSystem,
    path: str,
    max_bytes: int = SMALL_FILE_MAX_BYTES,
    *,
    error: type[CorruptionError] = CorruptCheckpointError,
) -> bytes:
    """Return the contents of a small file.

    Parameters
    ----------
    fs : FileSystem
    path : str
    max_bytes : int, optional
        The most that it may hold (`logstore.small.file.max.bytes`): a damaged one would take
        all memory.
    error : type, optional
        What to raise of one that is damaged.

    Raises
    ------
    FileNotFoundError
        There is none.
    CorruptionError
        It is larger, or no regular file; of the type `error`.
    """
    try:
        file = fs.open(path)
    except (IsADirectoryError, NotRegularFileError) as refusal:
        text = refusal.strerror or "is no regular file"
        raise error(text, path=path, check=UNREADABLE) from refusal
    try:
        if (size := file.size()) > max_bytes:
            raise error(
                f"{size} bytes are more than logstore.small.file.max.bytes = {max_bytes}",
                path=path,
                check=UNREADABLE,
                expected=max_bytes,
                found=size,
            )
        return file.read(0, size)
    finally:
        file.close()


def write_atomically(fs: FileSystem, path: str, data: bytes) -> None:
    """Replace a file's contents so that a crash leaves the old ones or the new ones.

    Parameters
    ----------
    fs : FileSystem
    path : str
        The file, with its directory. `<path>.tmp` is used on the way; what a crash left there
        is overwritten.
    data : bytes
        All of the new contents.

    Notes
    -----
    Two syncs: the contents before the rename, the directory after it. Writers of one path must
    not overlap; `OffsetCheckpoint` takes a lock for that.
    """
    temporary = path + TMP_SUFFIX
    file = open_anew(fs, temporary)
    try:
        file.append([data])
        file.sync()
    finally:
        file.close()
    fs.rename(temporary, path)
    fs.sync_dir(_parent(path))


def remove_temporary(fs: FileSystem, directory: str, names: Iterable[str]) -> int:
    """Remove what an interrupted `write_atomically` of these files left; return how many.

    Only files: what else bears such a name is not this engine's.
    """
    paths = [f"{directory}/{name}{TMP_SUFFIX}" for name in names]
    left = [path for path in paths if fs.kind(path) is FileKind.FILE]
    for path in left:
        fs.remove(path)
    return len(left)


class Row(NamedTuple):
    """An entry of a text checkpoint and the number of its line, counted from 1."""

    line: int
    fields: Sequence[str]


def read_rows(
    fs: FileSystem, path: str, field_count: int, max_bytes: int = SMALL_FILE_MAX_BYTES
) -> list[Row]:
    """Read a text checkpoint.

    Parameters
    ----------
    fs : FileSystem
    path : str
    field_count : int
        Fields that every entry must have.
    max_bytes : int, optional
        See `read_bytes`.

    Returns
    -------
    list of Row
        In the file's order; empty when the file is missing, is empty, or ends after its version.

    Raises
    ------
    CorruptCheckpointError
        The version is not 0, a number does not parse, an entry has another number of fields (a
        blank line has none), or there are more or fewer entries than announced.
    """
    try:
        data = read_bytes(fs, path, max_bytes)
    except FileNotFoundError:
        return []
    return _rows_of(data, path, field_count)


def _rows_of(data: bytes, path: str, field_count: int) -> list[Row]:
    try:
        lines = _LINE_END.split(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise CorruptCheckpointError(
            "not UTF-8 text", path=path, position=error.start, check="encoding"
        ) from error
    if not lines[-1]:
        lines.pop()
    if lines:
        version = parse_number(path, Row(1, lines[:1]), 0, "version", bits=32)
        if version != CHECKPOINT_VERSION:
            raise CorruptCheckpointError(
                f"line 1: unknown version {version}",
                path=path,
                check="version",
                expected=CHECKPOINT_VERSION,
                found=version,
            )
    if len(lines) < 2:
        return []
    announced = parse_number(path, Row(2, lines[1:2]), 0, "entry count", bits=32)
    rows = []
    for number, text in enumerate(lines[2:], start=3):
        fields = _FIELD_GAP.split(text.rstrip(" \t\v\f"))
        if len(fields) != field_count:
            raise CorruptCheckpointError(
                f"line {number}: an entry of {field_count} fields expected, found {text!r}",
                path=path,
                check="field count",
                expected=field_count,
                found=text,
            )
        rows.append(Row(number, fields))
    if len(rows) != announced:
        raise CorruptCheckpointError(
            f"line 2 announces {announced} entries, found {len(rows)}",
            path=path,
            check="entry count",
            expected=announced,
            found=len(rows),
        )
    return rows


def write_rows(fs: FileSystem, path: str, rows: Iterable[Sequence[object]]) -> bytes:
    """Write a text checkpoint atomically; return it. Each row is the fields of one entry."""
    lines = [" ".join(map(str, row)) for row in rows]
    text = "\n".join([str(CHECKPOINT_VERSION), str(len(lines)), *lines])
    data = f"{text}\n".encode()
    write_atomically(fs, path, data)
    return data


def parse_number(path: str, row: Row, field: int, name: str, *, bits: int) -> int:
    """Return a field of a checkpoint as a signed number of `bits` bits.

    Raises
    ------
    CorruptCheckpointError
        It is no decimal number or does not fit; the message has the line and `name`.
    """
    text = row.fields[field]
    value = int(text) if _NUMBER.fullmatch(text) and len(text) <= 20 else None
    if value is None or not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise CorruptCheckpointError(
            f"line {row.line}: {name} {text!r} is no {bits}-bit number",
            path=path,
            check=name,
            expected=f"a {bits}-bit number",
            found=text,
        )
    return value


class OffsetCheckpoint:
    """One offset for each partition of a log directory.

    Parameters
    ----------
    fs : FileSystem
    path : str
        The file, with its directory; one of the names at the top of this module.
    lock : context manager, optional
        Held while reading and while writing, so that two threads cannot use the same `.tmp`
        file at once. Give one (`Runtime.lock()`) where several threads share the object.
    max_bytes : int, optional
        See `read_bytes`.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        *,
        lock: AbstractContextManager[object] | None = None,
        max_bytes: int = SMALL_FILE_MAX_BYTES,
    ) -> None:
        self._fs = fs
        self.path = path
        self._max_bytes = max_bytes
        self._lock = nullcontext() if lock is None else lock
        self._parsed: tuple[bytes, dict[TopicPartition, int]] = (b"", {})

    def read(self) -> dict[TopicPartition, int]:
        """Return the offsets; none when the file is missing or empty.

        The file is read each time, and parsed if it differs from the last time's. Of two entries
        for one partition the later holds.

        Raises
        ------
        CorruptCheckpointError
            See `read_rows`. Negative numbers pass, as in Kafka; the user clamps offsets anyway.
        """
        with self._lock:
            try:
                data = read_bytes(self._fs, self.path, self._max_bytes)
            except FileNotFoundError:
                data = b""
        before, offsets = self._parsed
        if data != before:
            offsets = self._parse(data)
            self._parsed = (data, offsets)
        return offsets.copy()

    def _parse(self, data: bytes) -> dict[TopicPartition, int]:
        offsets = {}
        for row in _rows_of(data, self.path, 3):
            if not _is_topic(row.fields[0]):
                raise CorruptCheckpointError(
                    f"line {row.line}: {row.fields[0]!r} is no topic",
                    path=self.path,
                    check="topic",
                    found=row.fields[0],
                )
            partition = parse_number(self.path, row, 1, "partition", bits=32)
            offset = parse_number(self.path, row, 2, "offset", bits=64)
            offsets[TopicPartition(row.fields[0], partition)] = offset
        return offsets

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace all entries, sorted by topic and partition; durable on return."""
        for topic, _ in offsets:
            assert _is_topic(topic), f"{topic!r} would break its line"
        rows = [(tp.topic, tp.partition, offsets[tp]) for tp in sorted(offsets)]
        with self._lock:
            self._parsed = (write_rows(self._fs, self.path, rows), dict(offsets))


def _is_topic(text: str) -> bool:
    """Tell whether a name can stand in a line: not empty, no blank of any kind."""
    return bool(text) and not any(map(str.isspace, text))


def is_clean_shutdown(fs: FileSystem, log_dir: str) -> bool:
    """Tell whether the last process to use the directory closed it in good order."""
    return fs.exists(f"{log_dir}/{CLEAN_SHUTDOWN}")


def mark_clean_shutdown(
    fs: FileSystem, log_dir: str, *, broker_epoch: int = NO_BROKER_EPOCH
) -> None:
    """Say that everything in the directory is flushed; the last step of closing it.

    The marker's existence is what counts; the epoch is for a broker that starts here later.
    """
    text = f'{{"version":0,"brokerEpoch":{broker_epoch}}}'
    write_atomically(fs, f"{log_dir}/{CLEAN_SHUTDOWN}", text.encode())


def take_clean_shutdown(fs: FileSystem, log_dir: str) -> bool:
    """Remove the clean-shutdown marker durably and tell whether there was one.

    The first step of loading a directory: a crash from here on must not look clean.
    """
    if not is_clean_shutdown(fs, log_dir):
        return False
    fs.remove(f"{log_dir}/{CLEAN_SHUTDOWN}")
    fs.sync_dir(log_dir)
    return True


def encode_topic_id(topic_id: bytes) -> str:
    """Return a topic's 16-byte UUID as the 22 characters that files and tools show."""
    assert len(topic_id) == TOPIC_ID_SIZE, f"a topic id has 16 bytes, not {len(topic_id)}"
    return base64.urlsafe_b64encode(topic_id).decode("ascii").rstrip("=")


def decode_topic_id(text: str) -> bytes:
    """Return the 16 bytes of a topic id; ValueError if `text` is none."""
    if not _TOPIC_ID.fullmatch(text):
        raise ValueError(
            f"{text!r} is no topic id: {TOPIC_ID_LENGTH} characters of URL-safe base64 expected"
        )
    return base64.urlsafe_b64decode(text + "==")


def read_partition_metadata(
    fs: FileSystem, directory: str, max_bytes: int = SMALL_FILE_MAX_BYTES
) -> bytes | None:
    """Return the topic id stored in a partition's directory.

    Returns
    -------
    bytes or None
        16 bytes, never all zero; None when the partition has no `partition.metadata`.

    Raises
    ------
    CorruptCheckpointError
        A line is missing or malformed, the version is negative, or the id is zero.
    """
    path = f"{directory}/{PARTITION_METADATA}"
    try:
        data = read_bytes(fs, path, max_bytes)
    except FileNotFoundError:
        return None
    lines = _LINE_END.split(data.decode("utf-8", errors="replace"))
    version_text = _metadata_value(path, lines, 1, "version")
    if parse_number(path, Row(1, [version_text]), 0, "version", bits=32) < 0:
        raise CorruptCheckpointError(
            f"line 1: negative version {version_text}", path=path, check="version"
        )
    id_text = _metadata_value(path, lines, 2, "topic_id")
    try:
        topic_id = decode_topic_id(id_text)
    except ValueError as error:
        raise CorruptCheckpointError(
            f"line 2: {error}", path=path, check="topic_id", found=id_text
        ) from error
    if not any(topic_id):
        raise CorruptCheckpointError(
            "line 2: the topic id is zero", path=path, check="topic_id", found=id_text
        )
    return topic_id


def write_partition_metadata(fs: FileSystem, directory: str, topic_id: bytes) -> None:
    """Store a topic id of 16 bytes, not all zero, in a partition's directory; durable."""
    assert any(topic_id), "the zero id stands for no topic"
    text = f"version: {CHECKPOINT_VERSION}\ntopic_id: {encode_topic_id(topic_id)}"
    write_atomically(fs, f"{directory}/{PARTITION_METADATA}", text.encode())


def _metadata_value(path: str, lines: Sequence[str], number: int, name: str) -> str:
    text = lines[number - 1] if number <= len(lines) else ""
    found, *values = _METADATA_GAP.split(text)
    if found != name or len(values) != 1:
        raise CorruptCheckpointError(
            f"line {number}: {name!r} and its value expected, found {text!r}",
            path=path,
            check=name,
            found=text,
        )
    return values[0]


def _parent(path: str) -> str:
    directory, slash, _ = path.rpartition("/")
    return directory or slash or "."
