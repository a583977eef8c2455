"""Output: JSON, notes and errors, and formatting of numbers and bytes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from logstore.cli.show.tables import can_print, display_text
from logstore.record.json_text import header_json, record_json, to_base64

if TYPE_CHECKING:
    from logstore.types import TopicPartition

__all__ = [
    "can_print",
    "display_bytes",
    "display_text",
    "emit",
    "emit_failure",
    "emit_items",
    "emit_json",
    "emit_lines",
    "emit_values",
    "format_count",
    "header_json",
    "note",
    "one_line",
    "plural",
    "print_stderr",
    "record_json",
]

_CHUNK_LINES_MAX = 512


# -- streams -------------------------------------------------------------------------------


def emit(text: str) -> None:
    """Write a line to standard output."""
    sys.stdout.write(f"{text}\n")


def emit_json(value: object, output: str = "json") -> None:
    """Write a value as JSON, or as a CSV row with a column per member."""
    emit_values([value], output="jsonl" if output == "json" else output)


def print_stderr(line: str) -> None:
    """Write a line to standard error, ignoring write errors."""
    with suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


def note(text: str) -> None:
    """Print a note to standard error."""
    print_stderr(f"note: {one_line(text)}")


def emit_failure(topic_partition: TopicPartition, message: str, kafka_error: str) -> None:
    """Print a partition's error to standard error."""
    name = str(topic_partition)
    prefix = "" if name in message else f"{name}: "
    print_stderr(f"error: {prefix}{one_line(message)} ({kafka_error})")


def one_line(text: str) -> str:
    """Return a message as a single line, with control characters escaped."""
    return display_text(" ".join(text.split()))


def emit_lines(lines: Iterable[str]) -> None:
    """Write lines: the first one immediately, the rest in growing chunks.

    If the iterable raises an error, earlier lines are still written.
    """
    pending: list[str] = []
    chunk_lines = 1
    try:
        for line in lines:
            pending.append(f"{line}\n")
            if len(pending) >= chunk_lines:
                _write_out(pending)
                chunk_lines = min(2 * chunk_lines, _CHUNK_LINES_MAX)
    finally:
        _write_out(pending)


def emit_items(
    items: Iterable[str],
    *,
    output: str,
    name: str,
    more: Callable[[], Mapping[str, Any]] = dict,
) -> None:
    """Stream JSON items: one per line (`jsonl`, `csv`), or as `{name: [...]}` (`json`).

    With `json`, members returned by `more` are appended after the last item.

    If the iterable raises an error, the output is a complete document with the earlier items, or
    empty if there are none.
    """
    if output == "csv":
        from logstore.cli.show.csv_rows import csv_lines

        emit_lines(csv_lines(items))
        return
    if output == "jsonl":
        emit_lines(items)
        return
    pending: list[str] = []
    opened = False
    chunk_lines = 1
    try:
        for item in items:
            pending.append(f", {item}" if opened else f'{{"{name}": [{item}')
            opened = True
            if len(pending) >= chunk_lines:
                _write_out(pending)
                chunk_lines = min(2 * chunk_lines, _CHUNK_LINES_MAX)
    except BaseException:
        if opened:
            emit("".join(pending) + "]}")
        raise
    rest = "".join(f", {json.dumps(key)}: {json.dumps(value)}" for key, value in more().items())
    emit("".join(pending) + f"]{rest}}}" if opened else f'{{"{name}": []{rest}}}')


def emit_values(values: Iterable[object], *, output: str) -> None:
    """Write values as JSON lines or CSV rows."""
    texts = map(json.dumps, values)
    emit_items(list(texts) if isinstance(values, Sequence) else texts, output=output, name="")


def _write_out(pending: list[str]) -> None:
    """Write and flush pending text."""
    if pending:
        text = "".join(pending)
        pending.clear()  # clear first, so that it is not written again after a broken pipe
        sys.stdout.write(text)
        sys.stdout.flush()


# -- bytes and records ---------------------------------------------------------------------


def display_bytes(data: bytes | None) -> str:
    """Return bytes as readable text, with control characters escaped, or as `base64:…`."""
    if data is None:
        return "∅"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"base64:{to_base64(data)}"
    return display_text(text)


# -- numbers -------------------------------------------------------------------------------


def format_count(count: int) -> str:
    """Format a number with thousands separators."""
    return f"{count:,}"


def plural(count: int, noun: str, nouns: str | None = None) -> str:
    """Return `1 record`, `2 records`."""
    return f"{format_count(count)} {noun if count == 1 else nouns or noun + 's'}"
