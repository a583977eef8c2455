"""The look of the demo: short paragraphs, pictures of the segments, small tables."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from logstore.cli.show.inspect import STYLES, section_glyphs
from logstore.cli.show.output import format_count, format_size, plural
from logstore.cli.show.tables import Table, can_print

if TYPE_CHECKING:
    from rich.console import RenderableType

    from logstore.analysis.summary import PartitionSummary

PIPED_WIDTH = 80
WIDTH_MAX = 96
INDENT = 3

_FILLING = re.compile(r" +((?:\x1b\[0m)?)$", re.MULTILINE)


class Narrator:
    """Tells the story on standard output, or keeps quiet.

    Parameters
    ----------
    quiet : bool
        Print nothing: the caller wants JSON.
    """

    def __init__(self, *, quiet: bool) -> None:
        stream = StringIO() if quiet else sys.stdout
        found = Console(file=stream, highlight=False, emoji=False)
        if "COLUMNS" not in os.environ and not stream.isatty():
            found = Console(file=stream, highlight=False, emoji=False, width=PIPED_WIDTH)
        self._console = found
        self._quiet = quiet
        self._steps = 0
        self.width = min(found.width, WIDTH_MAX)
        self._bars = section_glyphs()

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Show on a terminal that something takes time."""
        if self._quiet or not self._console.is_terminal:
            yield
            return
        spinner = "dots" if can_print("⠋") else "line"
        with self._console.status(text, spinner=spinner):
            yield

    def title(self, text: str) -> None:
        """Begin the story."""
        self._print(Text(text, "bold"))

    def step(self, text: str) -> None:
        """Begin a chapter."""
        self._steps += 1
        self._print("")
        self._print(Text.assemble((f"{self._steps}  ", "bold cyan"), (text, "bold")))

    def text(self, text: str, style: str = "") -> None:
        """Print a paragraph."""
        self._print(Text(text, style), INDENT)

    def pairs(self, lines: Sequence[tuple[str, str]]) -> None:
        """Print lines that each begin with a few words, in a column of their own."""
        grid = Grid.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True)
        grid.add_column()
        for first, second in lines:
            grid.add_row(Text(first, "bold"), Text(second))
        self._print(grid, INDENT)

    def gap(self) -> None:
        """Print an empty line."""
        self._print("")

    def passed(self, text: str) -> None:
        """Report a check that found nothing wrong."""
        mark = "✓" if can_print("✓") else "ok"
        self._marked(f"{mark} ", "bold green", text)

    def failed(self, text: str) -> None:
        """Report a check that found something wrong."""
        mark = "✗" if can_print("✗") else "FAILED"
        self._marked(f"{mark} ", "bold red", text)

    def _marked(self, mark: str, style: str, text: str) -> None:
        line = Grid.grid(padding=0)
        line.add_column(no_wrap=True)
        line.add_column()
        line.add_row(Text(mark, style), Text(text))
        self._print(line, INDENT)

    def commands(self, lines: Sequence[tuple[str, str]]) -> None:
        """Print command lines that may be copied, each with what it shows above it."""
        for meaning, line in lines:
            self._print(Text(f"# {meaning}", "dim"), INDENT)
            # Never wrapped: a line copied from the terminal must stay one command.
            self._console.print(Text(" " * INDENT + line, "cyan"), soft_wrap=True)

    def rows(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()
    ) -> None:
        """Print a table."""
        for line in Table(columns, right=right).lines(rows):
            self._print(Text.from_ansi(line), INDENT)

    def picture(self, summary: PartitionSummary, scale_bytes: int) -> None:
        """Draw a bar a segment, as long as its bytes; `scale_bytes` is the longest one."""
        offsets = [format_count(segment.base_offset) for segment in summary.segments]
        counts = [format_count(segment.records) for segment in summary.segments]
        sizes = [format_size(segment.size_bytes) for segment in summary.segments]
        left = max(map(len, ["base offset", *offsets]))
        middle = max(map(len, ["records", *counts]))
        right = max(map(len, ["size", *sizes]))
        longest = max(8, self.width - INDENT - left - middle - right - len("  uncleanable") - 8)
        grid = Grid.grid(padding=(0, 2, 0, 0))
        for justify in ("right", "right", "right", "left"):
            grid.add_column(justify=justify, no_wrap=True)
        grid.add_row(
            *(Text(text, "dim") for text in ("base offset".rjust(left), "records", "size", ""))
        )
        for segment, offset, count, size in zip(
            summary.segments, offsets, counts, sizes, strict=True
        ):
            style = STYLES[segment.section]
            cells = min(longest, round(longest * segment.size_bytes / max(scale_bytes, 1)))
            if segment.size_bytes:
                cells = max(cells, 1)
            bar = self._bars[segment.section] * cells
            grid.add_row(
                offset,
                count,
                size,
                Text.assemble((f"{bar} " if bar else "", style), (segment.section, style)),
            )
        self._print(grid, INDENT)
        sections = ", ".join(
            f"{format_size(size)} {name}" for name, size in summary.section_bytes().items() if size
        )
        self.text(
            f"{plural(len(summary.segments), 'segment')}, {format_size(summary.size_bytes)}"
            + (f": {sections}" if sections else "")
        )

    def sizes(self, lines: Sequence[tuple[str, Mapping[str, int]]]) -> None:
        """Draw totals below each other: a name and bytes by section each, to one scale."""
        totals = {name: sum(sections.values()) for name, sections in lines}
        names = max(map(len, totals))
        longest = self.width - INDENT - names - len("  1,023.9 KiB") - 3
        grid = Grid.grid(padding=(0, 2, 0, 0))
        for name, sections in lines:
            bar = Text()
            for section, size in sections.items():
                cells = max(1, round(longest * size / max(totals.values()))) if size else 0
                bar.append(self._bars[section] * cells, STYLES[section])
            bar.append(f" {format_size(totals[name])}")
            grid.add_row(Text(name, "bold"), bar)
        self._print(grid, INDENT)

    def _print(self, what: RenderableType, indent: int = 0) -> None:
        if indent:
            what = Padding(what, (0, 0, 0, indent))
        with self._console.capture() as captured:
            self._console.print(what, width=self.width)
        # Rich fills lines up with spaces, which nobody wants in a log.
        self._console.file.write(_FILLING.sub(r"\1", captured.get()))
        self._console.file.flush()
