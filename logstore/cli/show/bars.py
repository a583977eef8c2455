"""Bars of characters, for shares at a glance."""

from __future__ import annotations

from logstore.cli.show.tables import can_print

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar(part: float, whole: float, width: int) -> str:
    """Return a bar as long as a part is of the whole; whatever is not nothing shows.

    In eighths of a character where the output has them, else in `#`.
    """
    if part <= 0 or whole <= 0:
        return ""
    if not can_print(_EIGHTHS):
        return "#" * max(1, round(width * min(part / whole, 1)))
    eighths = max(1, round(8 * width * min(part / whole, 1)))
    full, rest = divmod(eighths, 8)
    return _EIGHTHS[8] * full + (_EIGHTHS[rest] if rest else "")
