"""Horizontal text bars."""

from __future__ import annotations

from logstore.cli.show.tables import can_print

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar(part: float, whole: float, width: int) -> str:
    """Return a bar of length part / whole. A positive part is always visible.

    The resolution is an eighth of a character, or `#` if the output cannot print these characters.
    """
    if part <= 0 or whole <= 0:
        return ""
    if not can_print(_EIGHTHS):
        return "#" * max(1, round(width * min(part / whole, 1)))
    eighths = max(1, round(8 * width * min(part / whole, 1)))
    full, rest = divmod(eighths, 8)
    return _EIGHTHS[8] * full + (_EIGHTHS[rest] if rest else "")
