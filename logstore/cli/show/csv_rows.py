"""JSON items as CSV: the members of the first ones are the columns, what is nested is JSON."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from logstore.export.text import NULL

_BASE64 = "_base64"
_OF_RECORDS = ("key", "value")
_SAMPLE_ITEMS = 20
"""Items of a stream that tell its columns; of a list all do."""


def csv_lines(items: Iterable[str]) -> Iterator[str]:
    r"""Yield a line of headings, then a row for each item, without their line ends.

    Keys and values of records have two columns each, for text and for base64, since the names
    of a record's members depend on what it holds. Text that is `\N` itself stands in that of
    base64, as in what `export` writes. A member that none of a stream's first items has gets no
    column.
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
    if plain in _OF_RECORDS and members.get(plain) == NULL:
        from logstore.record.json_text import to_base64

        value = None if column == plain else to_base64(NULL.encode())
    if value is None:
        return NULL
    return value if isinstance(value, str) else json.dumps(value)


def _line(cells: Iterable[str]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()
