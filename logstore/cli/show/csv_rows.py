"""Convert JSON items to CSV."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from logstore.export.text import NULL, csv_cell, has_control_characters

_BASE64 = "_base64"
_OF_RECORDS = ("key", "value")
_SAMPLE_ITEMS = 20
"""Number of items of a stream that determine the columns."""


_escapes_formulas = False


def escape_formulas(is_wanted: bool) -> None:
    """Set whether to prefix cells that a spreadsheet would evaluate with an apostrophe."""
    global _escapes_formulas
    _escapes_formulas = is_wanted


def csv_lines(items: Iterable[str]) -> Iterator[str]:
    r"""Yield the header line, then a row per item, without line endings.

    The columns are the members of the first items. Members that only occur in later items are
    omitted. Nested values are written as JSON. Keys and values of records have two columns, text
    and base64. As in the CSV of `export` (`export.text`), the text `\N` is written as base64, and
    control characters are escaped.
    """
    found = map(json.loads, items)
    first = list(found if isinstance(items, Sequence) else itertools.islice(found, _SAMPLE_ITEMS))
    if not first:
        return
    columns = list(dict.fromkeys(column for members in first for column in _columns(members)))
    yield _line(columns)
    for members in itertools.chain(first, found):
        yield _line(_cell(members, column) for column in columns)


def _columns(members: dict[str, Any]) -> list[str]:
    columns = []
    for name in members:
        plain = name.removesuffix(_BASE64)
        columns += [plain, plain + _BASE64] if plain in _OF_RECORDS else [name]
    return columns


def _cell(members: dict[str, Any], column: str) -> str:
    plain = column.removesuffix(_BASE64)
    value = members.get(column)
    text = members.get(plain) if column != plain and plain in _OF_RECORDS else None
    if isinstance(text, str) and (text == NULL or has_control_characters(text)):
        from logstore.record.json_text import to_base64

        value = to_base64(text.encode())
    if value is None:
        return NULL
    if not isinstance(value, str):
        return json.dumps(value)
    if column != plain:
        return value
    return csv_cell(value, escape_formulas=_escapes_formulas)


def _line(cells: Iterable[str]) -> str:
    text = io.StringIO(newline="")
    # The line terminator determines which characters are quoted.
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().removesuffix("\r\n")
