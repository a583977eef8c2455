r"""Exports as text: JSON lines with the names of `read`, and CSV.

CSV has `\N` for what is null, as `append` reads it in TSV; so text that is `\N` itself stands in
the column of base64, where all bytes are that are not UTF-8.
"""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any, BinaryIO

from logstore.record.json_text import header_json, record_json, to_base64

if TYPE_CHECKING:
    from logstore.export.rows import Row

NULL = r"\N"

_FIELDS = (
    *("topic", "partition", "offset", "timestamp", "timestamp_type"),
    *("key", "key_base64", "value", "value_base64", "headers"),
    *("batch_base_offset", "position", "control"),
)
FATE_FIELDS = ("fate", "superseded_by")
DECODED_FIELDS = ("decoded_type", "decoded_key", "decoded_value", "decode_error")


class JsonLines:
    """Writes rows as JSON lines."""

    def __init__(self, stream: BinaryIO, *, fates: bool, decoded: bool) -> None:
        self._write = stream.write
        self._fates = fates
        self._decoded = decoded

    def write(self, row: Row) -> None:
        """Write one row."""
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
        """Write what is left: nothing."""


class Csv:
    """Writes rows as CSV with a line of headings."""

    def __init__(self, stream: BinaryIO, *, fates: bool, decoded: bool) -> None:
        self._text = io.TextIOWrapper(stream, "utf-8", newline="", write_through=True)
        self._fates = fates
        self._decoded = decoded
        self._rows = csv.writer(self._text, lineterminator="\n")
        self._rows.writerow(
            (*_FIELDS, *(FATE_FIELDS if fates else ()), *(DECODED_FIELDS if decoded else ()))
        )

    def write(self, row: Row) -> None:
        """Write one row."""
        record = row.record
        headers = [header_json(header) for header in record.headers]
        fields: list[object] = [
            *(row.topic, row.partition, record.offset, record.timestamp, int(row.timestamp_type)),
            *_text_and_base64(record.key),
            *_text_and_base64(record.value),
            *(json.dumps(headers), row.batch_base_offset, row.position, row.control),
        ]
        if self._fates:
            fields += (row.fate, row.superseded_by)
        if self._decoded:
            fields += decoded_fields(row)
        self._rows.writerow([NULL if field is None else field for field in fields])

    def finish(self) -> None:
        """Hand the stream back."""
        self._text.detach()


def decoded_fields(row: Row) -> tuple[str | None, str | None, str | None, str | None]:
    """Return `DECODED_FIELDS` of a row: JSON as text, since a column has one type."""
    found = row.decoded or {}
    return (
        found.get("type"),
        _json_or_none(found.get("key")),
        _json_or_none(found.get("value")),
        found.get("error"),
    )


def _json_or_none(value: object) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


def _text_and_base64(data: bytes | None) -> tuple[str | None, str | None]:
    if data is None:
        return None, None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = NULL
    return (None, to_base64(data)) if text == NULL else (text, None)
