r"""Exports to JSON lines, with the member names of `read`, and to CSV.

CSV writes null as `\N`, which `append` reads from TSV. The literal text `\N` is therefore written
to the base64 column, as are bytes that are not UTF-8. Control characters other than line feeds,
tabs and CR LF are escaped (`\x1b`), because terminals interpret them. The base64 column then
contains the exact bytes. Optionally, an apostrophe prevents spreadsheets from evaluating a cell as
a formula.
"""

from __future__ import annotations

import csv
import io
import json
import re
from typing import TYPE_CHECKING, Any, BinaryIO

from logstore.export.rows import rows_of
from logstore.record.batch import stored_rows
from logstore.record.json_text import header_json, record_json, to_base64

if TYPE_CHECKING:
    from logstore.export.rows import Part, Row

NULL = r"\N"

_FIELDS = (
    *("topic", "partition", "offset", "timestamp", "timestamp_type"),
    *("key", "key_base64", "value", "value_base64", "headers"),
    *("batch_base_offset", "position", "control"),
)
FATE_FIELDS = ("fate", "superseded_by")
DECODED_FIELDS = ("decoded_type", "decoded_key", "decoded_value", "decode_error")


_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)")
_FORMULA = re.compile(r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
"""Start of a cell that spreadsheets evaluate, including full-width characters."""


def has_control_characters(text: str) -> bool:
    """Return whether `csv_cell` would escape any character of a text."""
    return _CONTROL.search(text) is not None


def csv_cell(text: str, *, escape_formulas: bool = False) -> str:
    """Escape a text for a CSV cell.

    Parameters
    ----------
    escape_formulas : bool
        Whether to put an apostrophe before a formula.
    """
    is_formula = escape_formulas and _FORMULA.match(text) is not None
    text = _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
    return f"'{text}" if is_formula else text


class JsonLines:
    """Writes records as JSON lines."""

    decode = staticmethod(stored_rows)

    def __init__(self, stream: BinaryIO, *, fates: bool, decoded: bool) -> None:
        self._write = stream.write
        self._fates = fates
        self._decoded = decoded

    def write(self, part: Part) -> None:
        """Write the records of a part."""
        for row in rows_of(part):
            self._write_row(row)

    def _write_row(self, row: Row) -> None:
        extra: dict[str, Any] = {
            "batch_base_offset": row.batch_base_offset,
            "position": row.position,
            "control": row.control,
        }
        if self._fates:
            extra |= {"fate": row.fate, "superseded_by": row.superseded_by}
        if self._decoded and row.decoded is not None:
            extra["decoded"] = row.decoded
        text = record_json(row.topic, row.partition, row.timestamp_type, row.record, **extra)
        self._write(f"{text}\n".encode())

    def finish(self) -> None:
        """Do nothing, because rows are written immediately."""

    def close(self) -> None:
        """Do nothing, because the stream belongs to the caller."""


class Csv:
    """Writes records as CSV with a header line, escaped as in the module docstring."""

    decode = staticmethod(stored_rows)

    def __init__(
        self, stream: BinaryIO, *, fates: bool, decoded: bool, escape_formulas: bool = False
    ) -> None:
        self._escape_formulas = escape_formulas
        self._text = io.TextIOWrapper(stream, "utf-8", newline="", write_through=True)
        self._fates = fates
        self._decoded = decoded
        self._rows = csv.writer(self._text, lineterminator="\n")
        self._rows.writerow(
            (*_FIELDS, *(FATE_FIELDS if fates else ()), *(DECODED_FIELDS if decoded else ()))
        )

    def write(self, part: Part) -> None:
        """Write the records of a part."""
        for row in rows_of(part):
            self._write_row(row)

    def _write_row(self, row: Row) -> None:
        record = row.record
        headers = [header_json(header) for header in record.headers]
        key, key_base64 = _text_and_base64(record.key)
        value, value_base64 = _text_and_base64(record.value)
        fields: list[object] = [
            *(row.topic, row.partition, record.offset, record.timestamp, int(row.timestamp_type)),
            *(self._cell(key), key_base64, self._cell(value), value_base64),
            *(json.dumps(headers), row.batch_base_offset, row.position, row.control),
        ]
        if self._fates:
            fields += (row.fate, row.superseded_by)
        if self._decoded:
            fields += map(self._cell, decoded_fields(row.decoded))
        self._rows.writerow([NULL if field is None else field for field in fields])

    def _cell(self, text: str | None) -> str | None:
        return None if text is None else csv_cell(text, escape_formulas=self._escape_formulas)

    def finish(self) -> None:
        """Detach the text wrapper without closing the underlying stream."""
        self._text.detach()

    def close(self) -> None:
        """Do nothing, because the stream belongs to the caller."""


def decoded_fields(
    decoded: dict[str, Any] | None,
) -> tuple[str | None, str | None, str | None, str | None]:
    """Return `DECODED_FIELDS` of a record. JSON is returned as text: a column has one type."""
    found = decoded or {}
    return (
        found.get("type"),
        _json_or_none(found.get("key")),
        _json_or_none(found.get("value")),
        found.get("error"),
    )


def _json_or_none(value: object) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


def _text_and_base64(data: bytes | None) -> tuple[str | None, str | None]:
    """Return bytes as text, and also as base64 unless the text is exact."""
    if data is None:
        return None, None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = NULL
    if text == NULL:
        return None, to_base64(data)
    return text, to_base64(data) if has_control_characters(text) else None
