"""The text format of all checkpoints.

Line 1 is the version `0`, line 2 the number of entries. Each further line is an entry with fields
separated by one space. The file is always replaced as a whole, so a reader sees either the old or
the new file. Its offsets may be out of date. Source: docs/spec/storage-format.md §10, and Kafka's
CheckpointFile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from logstore.errors import CorruptCheckpointError
from logstore.runtime.fs import FileSystem
from logstore.storage.checkpoint.atomic import read_bytes, write_atomically
from logstore.types import LINE_END, SMALL_FILE_MAX_BYTES

CHECKPOINT_VERSION = 0

_NUMBER = re.compile(r"[+-]?[0-9]+")
_FIELD_GAP = re.compile(r"[ \t\v\f]+")


class Row(NamedTuple):
    """An entry of a text checkpoint and its line number, counted from 1."""

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
        Number of fields of every entry.
    max_bytes : int, optional
        See `read_bytes`.

    Returns
    -------
    list of Row
        In file order. Empty if the file is missing, is empty, or ends after the version.

    Raises
    ------
    CorruptCheckpointError
        The version is not 0, a number cannot be parsed, an entry has the wrong number of fields (a
        blank line has none), or the number of entries differs from line 2.
    """
    try:
        data = read_bytes(fs, path, max_bytes)
    except FileNotFoundError:
        return []
    return rows_of(data, path, field_count)


def rows_of(data: bytes, path: str, field_count: int) -> list[Row]:
    """Parse the bytes of a checkpoint. Raises the same errors as `read_rows`."""
    try:
        lines = LINE_END.split(data.decode("utf-8"))
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
    """Write a text checkpoint atomically and return its bytes. A row has the fields of an entry."""
    data = encode_rows(rows)
    write_atomically(fs, path, data)
    return data


def encode_rows(rows: Iterable[Sequence[object]]) -> bytes:
    """Return the bytes of a text checkpoint. Each row contains the fields of an entry."""
    lines = [" ".join(map(str, row)) for row in rows]
    text = "\n".join([str(CHECKPOINT_VERSION), str(len(lines)), *lines])
    return f"{text}\n".encode()


def parse_number(path: str, row: Row, field: int, name: str, *, bits: int) -> int:
    """Parse a field of a checkpoint as a signed number of `bits` bits.

    Raises
    ------
    CorruptCheckpointError
        The field is not a decimal number or does not fit into `bits`. The message names the line
        and `name`.
    """
    text = row.fields[field]
    value = int(text) if _NUMBER.fullmatch(text) and len(text) <= 20 else None
    if value is None or not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise CorruptCheckpointError(
            f"line {row.line}: {name} {text!r} is not a {bits}-bit number",
            path=path,
            check=name,
            expected=f"a {bits}-bit number",
            found=text,
        )
    return value
