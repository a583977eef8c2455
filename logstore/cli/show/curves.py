"""Small line charts as text."""

from __future__ import annotations

from collections.abc import Sequence

from logstore.cli.show.tables import can_print

_BLOCKS = "▁▂▃▄▅▆▇█"
_PLAIN = "_.-=+*#@"


def curve(values: Sequence[float], width: int, top: float | None = None) -> str:
    """Return a chart with values from zero to `top`, which defaults to the maximum.

    Each character shows the mean of several values.
    """
    if not len(values):
        return ""
    marks = _BLOCKS if can_print(_BLOCKS) else _PLAIN
    width = min(width, len(values))
    parts = [
        values[number * len(values) // width : (number + 1) * len(values) // width]
        for number in range(width)
    ]
    means = [sum(part) / len(part) for part in parts]
    top = max(means) if top is None else top
    if top <= 0:
        return marks[0] * width
    return "".join(marks[min(7, int(8 * mean / top))] for mean in means)
