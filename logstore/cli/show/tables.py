"""Text tables: aligned columns, a rule under the header, and colours on a terminal.

Does not use rich, because importing rich would take longer than most commands.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

PIPED_WIDTH = 240
"""Width of output that is not a terminal."""

GAP = "  "
_SAMPLE_ROWS = 50
_INDENT = "    "
_WRAP_MIN = 24
_CUT_MIN = 8
"""Minimum width of a truncated column, unless its heading is shorter."""


class Styled(NamedTuple):
    """Text with a style: space-separated names, such as `bold green`."""

    text: str
    style: str


Cell = str | Styled

_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "magenta": "35",
    "cyan": "36",
}


def has_colour() -> bool:
    """Return whether standard output is a terminal and NO_COLOR is not set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def paint(text: str, style: str) -> str:
    """Apply a style to text if standard output supports colours."""
    if not style or not text or not has_colour():
        return text
    codes = ";".join(_CODES[name] for name in style.split())
    return f"\x1b[{codes}m{text}\x1b[0m"


_is_cut = True


def cut_cells(is_wanted: bool) -> None:
    """Set whether tables truncate cells to the terminal width. `--full` disables this."""
    global _is_cut
    _is_cut = is_wanted


def is_bounded() -> bool:
    """Return whether a terminal or `COLUMNS` limits the output width."""
    return sys.stdout.isatty() or bool(os.environ.get("COLUMNS"))


def output_width() -> int:
    """Return the output width: the terminal's, `COLUMNS`, or the width for pipes."""
    if not is_bounded():
        return PIPED_WIDTH
    from shutil import get_terminal_size

    return get_terminal_size().columns


def display_text(text: str) -> str:
    """Escape control characters."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def can_print(text: str) -> bool:
    """Return whether the encoding of standard output supports these characters."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def rule(width: int) -> str:
    """Return a horizontal line."""
    return ("─" if can_print("─") else "-") * width


class Table:
    """A table that prints rows as they arrive. The first few rows determine the column widths.

    Parameters
    ----------
    columns : sequence of str
        Headings.
    right : sequence of str
        Right-aligned columns, which are never truncated.
    wrap : bool
        Whether to wrap the last column, or to put it below its row if there is little room.
    whole : sequence of str
        Further columns that are not truncated.
    least : mapping of str to int, optional
        Minimum column widths.
    """

    def __init__(
        self,
        columns: Sequence[str],
        *,
        right: Sequence[str] = (),
        wrap: bool = False,
        whole: Sequence[str] = (),
        least: Mapping[str, int] | None = None,
    ) -> None:
        self._columns = columns
        self._least = dict(least or {})
        self._right = [column in right for column in columns]
        self._whole = [column in right or column in whole for column in columns]
        self._wrap = wrap

    def lines(self, rows: Iterable[Sequence[Cell]]) -> Iterator[str]:
        """Yield the header, a rule, and one or more lines per row.

        Control characters are escaped. If the iterable raises an error, earlier rows are yielded
        first.
        """
        rows = map(_escaped, rows)
        first: list[Sequence[Cell]] = []
        failure: Exception | None = None
        try:
            first.extend(itertools.islice(rows, _SAMPLE_ROWS))
        except Exception as error:  # raised below, after earlier rows were yielded
            failure = error
        widths = [
            max(
                len(heading),
                self._least.get(heading, 0),
                max((len(_text(row[column])) for row in first), default=0),
            )
            for column, heading in enumerate(self._columns)
        ]
        total = output_width()
        is_cut = _is_cut and is_bounded()
        if is_cut:
            widths = self._cut(widths, total)
        room = total - sum(widths[:-1]) - len(GAP) * (len(widths) - 1)
        is_beneath = self._wrap and room < min(widths[-1], _WRAP_MIN)
        if is_beneath:
            room, widths[-1] = total - len(_INDENT), 0
        elif self._wrap:
            widths[-1] = min(widths[-1], room)
        headings = [Styled(heading, "bold") for heading in self._columns]
        if is_beneath:
            headings[-1] = Styled("", "")
        yield self._line(headings, widths)
        yield paint(rule(len(GAP) * (len(widths) - 1) + sum(widths)), "dim")
        for row in itertools.chain(first, rows):
            if is_cut:
                row = self._shortened(row, widths)
            if not self._wrap:
                yield self._line(row, widths)
            elif is_beneath:
                yield self._line([*row[:-1], ""], widths)
                yield from (paint(f"{_INDENT}{part}", "dim") for part in _folded(row[-1], room))
            else:
                part, *others = _folded(row[-1], room) or [""]
                yield self._line([*row[:-1], _restyled(row[-1], part)], widths)
                for other in others:
                    yield self._line([*[""] * (len(row) - 1), _restyled(row[-1], other)], widths)
        if failure is not None:
            raise failure

    def _cut(self, widths: Sequence[int], total: int) -> list[int]:
        """Return widths that fit the terminal, if possible, by shrinking the widest columns.

        Columns in `whole` and a wrapped last column are not truncated.
        """
        count = len(widths) - self._wrap
        floors = [
            min(width, max(len(heading), _CUT_MIN))
            for width, heading in zip(widths, self._columns, strict=True)
        ]
        cut = list(widths)
        texts = [column for column in range(count) if not self._whole[column]]
        room = total - len(GAP) * (count - 1)
        while (excess := sum(cut[:count]) - room) > 0:
            texts = [column for column in texts if cut[column] > floors[column]]
            if not texts:
                break
            top = max(cut[column] for column in texts)
            widest = [column for column in texts if cut[column] == top]
            below = max((cut[column] for column in texts if cut[column] < top), default=0)
            for column in widest:
                cut[column] = max(floors[column], below, top - -(-excess // len(widest)))
        return cut

    def _shortened(self, row: Sequence[Cell], widths: Sequence[int]) -> list[Cell]:
        """Truncate texts in a row to their columns, except in a wrapped column."""
        last = len(row) - 1
        return [
            cell
            if self._whole[column] or (self._wrap and column == last)
            else _restyled(cell, _shortened(_text(cell), widths[column]))
            for column, cell in enumerate(row)
        ]

    def _line(self, row: Sequence[Cell], widths: Sequence[int]) -> str:
        parts = []
        for column, (cell, width, right) in enumerate(zip(row, widths, self._right, strict=True)):
            text, style = cell if isinstance(cell, Styled) else (cell, "")
            blanks = " " * (width - len(text))
            painted = paint(text, style)
            if right:
                parts.append(blanks + painted)
            else:
                parts.append(painted if column == len(widths) - 1 else painted + blanks)
        return GAP.join(parts).rstrip()


def _shortened(text: str, width: int) -> str:
    """Return a text truncated to a width, with an ellipsis. `topic-42` keeps its number."""
    if len(text) <= width:
        return text
    mark = "…" if can_print("…") else "..."
    _, dash, number = text.rpartition("-")
    end = dash + number if number.isdigit() and len(number) < width // 2 else ""
    return text[: max(width - len(mark) - len(end), 0)] + mark + end


def _folded(cell: Cell, width: int) -> list[str]:
    """Split the text of a cell into lines of at most `width` columns."""
    text = _text(cell)
    if len(text) <= width:
        return [text] if text else []
    from textwrap import wrap

    return wrap(text, max(width, 1), break_on_hyphens=False)


def _escaped(row: Sequence[Cell]) -> Sequence[Cell]:
    """Escape control characters in a row."""
    if all(_text(cell).isprintable() for cell in row):
        return row
    return [_restyled(cell, display_text(_text(cell))) for cell in row]


def _restyled(cell: Cell, text: str) -> Cell:
    return Styled(text, cell.style) if isinstance(cell, Styled) else text


def full_width(columns: Sequence[str], rows: Iterable[Mapping[str, Cell]]) -> int:
    """Return the width of a table without truncation."""
    widths = {name: len(name) for name in columns}
    for row in rows:
        for name in columns:
            widths[name] = max(widths[name], len(_text(row[name])))
    return sum(widths.values()) + len(GAP) * (len(columns) - 1)


def _text(cell: Cell) -> str:
    return cell.text if isinstance(cell, Styled) else cell
