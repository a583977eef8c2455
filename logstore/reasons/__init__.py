"""Reasons: why something is, or is not, as a code with typed values.

The engine decides and returns a `Reason`. The sentence is rendered when the reason is shown: here
for the command line and for `text` in JSON, in `ui/front/reasons.js` for the page. Both use the
table in `templates`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import floor
from typing import Any, NamedTuple

from logstore.reasons.formats import format_duration, format_span, format_time
from logstore.reasons.templates import TEMPLATES

Value = int | float | str | None
"""A value of a reason. The end of its name is its unit, see `format_value`."""

_EXACT_MAX = 2**53
"""From here on JavaScript rounds whole numbers; Kafka's 2^63 - 1 means "no limit"."""


class Reason(NamedTuple):
    """A reason: a code in `TEMPLATES`, and the values in its sentence."""

    code: str
    values: Mapping[str, Value]

    @classmethod
    def of(cls, code: str, /, **values: Value) -> Reason:
        """Return a reason with the given values."""
        return cls(code, values)

    @property
    def text(self) -> str:
        """The reason as a sentence without a full stop."""
        return render(self.code, self.values, self.code)

    def to_json(self) -> dict[str, Any]:
        """Return the reason as JSON."""
        return {"code": self.code, "values": dict(self.values), "text": self.text}


def text_of(reasons: Iterable[Reason], separator: str = "; ") -> str:
    """Return the sentences of several reasons as a single text."""
    return separator.join(reason.text for reason in reasons)


def reasons_json(reasons: Iterable[Reason]) -> list[dict[str, Any]]:
    """Return several reasons as JSON."""
    return [reason.to_json() for reason in reasons]


def render(code: str, values: Mapping[str, Value], text: str) -> str:
    """Return the sentence for a code, with its values.

    Returns `text` if the code is unknown or a value is missing, as in JSON from a different
    version. A field in a template is `{name}`, or `{name?one|other}`: the first word if the value
    is 1, otherwise the second.
    """
    template = TEMPLATES.get(code)
    if template is None:
        return text
    parts = template.replace("}", "{").split("{")
    for slot in range(1, len(parts), 2):
        name, _, words = parts[slot].partition("?")
        if name not in values:
            return text
        one, _, other = words.partition("|")
        value = values[name]
        parts[slot] = format_value(name, value) if not words else one if value == 1 else other
    return "".join(parts)


def format_value(name: str, value: Value) -> str:
    """Return a value in human-readable form. Its name determines its kind.

    `…at_ms` is a time, `…span_ms` a measured time span (truncated to two units), any other `…_ms` a
    configured duration, `…ratio` a fraction of 1. Offsets and ids are plain digits; other numbers
    have thousands separators.
    """
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    if value >= _EXACT_MAX:
        return "unlimited"
    if name.endswith("ratio"):
        return f"{floor(value * 10_000 + 0.5) / 10_000:g}"
    assert isinstance(value, int)
    if name.endswith("at_ms"):
        return format_time(value)
    if name.endswith("span_ms"):
        return format_span(value)
    if name.endswith("_ms"):
        return format_duration(value)
    return str(value) if name.endswith(("offset", "_id")) else f"{value:,}"
