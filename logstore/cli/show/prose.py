"""Sentences for human eyes: folded, listed under a name, with times and durations in words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from logstore.cli.show.tables import can_print, display_text, output_width, paint
from logstore.cli.times import format_duration, format_time

_WIDTH_MAX = 100
"""Columns beyond which sentences are hard to read."""


def wrapped(text: str, indent: str = "", style: str = "") -> list[str]:
    """Return a sentence in lines; those after the first stand two columns in."""
    from textwrap import wrap

    width = min(output_width(), _WIDTH_MAX)
    text = display_text(text.replace("\n", " "))
    parts = wrap(text, width, initial_indent=indent, subsequent_indent=indent or "  ")
    return [paint(part, style) for part in parts]


def said(name: str, texts: Sequence[str], style: str = "") -> Iterator[str]:
    """Yield a list of sentences under a name, after an empty line; nothing if there are none."""
    if not texts:
        return
    yield ""
    yield paint(f"{name}:", style or "bold")
    bullet = "•" if can_print("•") else "-"
    for text in texts:
        first, *others = wrapped(text, "    ", "dim" if style == "dim" else "")
        yield first.replace("    ", f"  {bullet} ", 1)
        yield from others


def with_times(text: str) -> str:
    """Return a text with its times (`types.time_in_text`) as dates, and durations in words."""
    text = re.sub(r"\bUnix ms (\d+)\b", lambda found: format_time(int(found[1])), text)
    return re.sub(
        r"((?:segment|lag|retention|delay)\.ms) (\d+)\b",
        lambda found: f"{found[1]} {format_duration(int(found[2]))}",
        text,
    )
