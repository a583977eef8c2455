"""Layout of the demo's output: paragraphs, segment bars and small tables."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from logstore.cli.show.inspect import STYLES, section_bar, section_glyphs
from logstore.cli.show.output import emit, format_count, plural
from logstore.cli.show.tables import Cell, Styled, Table, can_print, is_bounded, output_width, paint
from logstore.reasons.formats import format_size

if TYPE_CHECKING:
    from logstore.analysis.summary import PartitionSummary

PIPED_WIDTH = 80
WIDTH_MAX = 96
INDENT = " " * 3
_SEGMENT_COLUMNS = 3 + 11 + 9 + 11 + 3 * 2 + 12
"""Width of a segment's line without the bar."""


class Narrator:
    """Prints the story to standard output, unless it is quiet (for JSON)."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._steps = 0
        self._last_block = ""
        self.width = min(output_width() if is_bounded() else PIPED_WIDTH, WIDTH_MAX)

    def _line(self, text: str) -> None:
        if not self._quiet:
            emit(text)
            sys.stdout.flush()

    def _begin(self, block: str) -> None:
        """Print an empty line before a block, except after a heading and between checks."""
        if self._last_block and (block, self._last_block) != ("check", "check"):
            self._line("")
        self._last_block = block

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Show a spinner on a terminal."""
        if self._quiet or not sys.stdout.isatty():
            yield
            return
        from rich.console import Console

        with Console().status(text, spinner="dots" if can_print("⠋") else "line"):
            yield

    def title(self, text: str) -> None:
        """Print the title."""
        self._begin("title")
        self._line(paint(text, "bold"))

    def step(self, text: str) -> None:
        """Print the heading of a chapter."""
        self._steps += 1
        self._begin("step")
        self._line(f"{paint(f'{self._steps}', 'bold cyan')}  {paint(text, 'bold')}")
        self._last_block = ""

    def text(self, text: str, style: str = "") -> None:
        """Print a paragraph."""
        self._begin("text")
        self._wrapped(text, style)

    def _wrapped(
        self, text: str, style: str = "", lead: str = "", lead_style: str = "bold"
    ) -> None:
        """Print wrapped text to the right of a label."""
        blank = INDENT + " " * len(lead)
        before = INDENT + paint(lead, lead_style)
        for line in textwrap.wrap(text, self.width - len(blank), break_on_hyphens=False):
            self._line(before + paint(line, style))
            before = blank

    def pairs(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Print texts to the right of labels, which form a column."""
        self._begin("pairs")
        width = max(len(lead) for lead, _ in pairs) + 2
        for lead, text in pairs:
            self._wrapped(text, lead=lead.ljust(width))

    def passed(self, text: str) -> None:
        """Report a passed check."""
        self._begin("check")
        self._wrapped(text, lead="✓ " if can_print("✓") else "ok ", lead_style="bold green")

    def failed(self, text: str) -> None:
        """Report a failed check."""
        self._begin("check")
        self._wrapped(text, lead="✗ " if can_print("✗") else "FAILED ", lead_style="bold red")

    def commands(self, lines: Sequence[tuple[str, str]]) -> None:
        """Print command lines to copy, unwrapped, each after its description."""
        for meaning, line in lines:
            self._line(INDENT + paint(f"# {meaning}", "dim"))
            self._line(INDENT + paint(line, "cyan"))

    def rows(
        self, columns: Sequence[str], rows: Sequence[Sequence[Cell]], right: Sequence[str] = ()
    ) -> None:
        """Print a table."""
        self._begin("rows")
        for line in Table(columns, right=right).lines(rows):
            self._line(INDENT + line)

    def draw_segments(self, summary: PartitionSummary, scale_bytes: int) -> None:
        """Draw a bar for each segment. `scale_bytes` is the size of the longest bar."""
        longest = max(8, self.width - _SEGMENT_COLUMNS)
        rows = []
        for segment in summary.segments:
            size = segment.size_bytes
            cells = max(1, min(longest, round(longest * size / max(scale_bytes, 1)))) if size else 0
            bar = section_glyphs()[segment.section] * cells
            rows.append(
                (
                    format_count(segment.base_offset),
                    format_count(segment.records),
                    format_size(size),
                    Styled(f"{bar} {segment.section}".lstrip(), STYLES[segment.section]),
                )
            )
        numbers = ("base offset", "records", "size")
        self.rows((*numbers, "section"), rows, right=numbers)
        sections = ", ".join(
            f"{format_size(size)} {name}" for name, size in summary.section_bytes().items() if size
        )
        self._wrapped(
            f"{plural(len(summary.segments), 'segment')}, {format_size(summary.size_bytes)}"
            + (f": {sections}" if sections else "")
        )

    def sizes(
        self, before: tuple[str, Mapping[str, int]], *after: tuple[str, Mapping[str, int]]
    ) -> None:
        """Draw totals by section, in proportion to the first total."""
        self._begin("sizes")
        totals = [(name, sum(sections.values()), sections) for name, sections in (before, *after)]
        names = max(len(name) for name, _, _ in totals) + 2
        longest = self.width - len(INDENT) - names - len(" 1,023.9 KiB")
        for name, total, sections in totals:
            width = max(1, round(longest * total / totals[0][1]))
            bar = next(section_bar(sections, width=width))
            self._line(f"{INDENT}{paint(name.ljust(names), 'bold')}{bar} {format_size(total)}")
