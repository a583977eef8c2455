"""Pictures that commands make: the terminal, and a simulation. Part of `make pictures`.

The terminal pictures are SVG of the output of commands, on the directories of docs/questions. The
picture of a simulation is a photograph of its report, which needs Chromium and the extra `report`.
"""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
import textwrap
from pathlib import Path

from click.testing import CliRunner
from PIL import Image
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from logstore.cli.main import main as program
from logstore.simulate import library, parse, run
from logstore.simulate.report import page as report
from tests.support.browser.chromium import Visitor, chromium
from tools import question_story

DIRECTORY = Path(__file__).parents[1] / "docs" / "pictures"
WIDTH = 100
COLOURS = 64

TERMINAL = {
    "explain": "explain ./kafka-logs/users-0 --config cleanup.policy=compact"
    " --config min.compaction.lag.ms=10d --now 2024-03-01",
    "inspect": "inspect ./kafka-logs --sort lag --config cleanup.policy=compact --now 2024-03-01",
}
"""Commands after `logstore`, by the name of their picture."""

SVG = re.sub(r"@font-face \{\{.*?\n    \}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
"""rich's picture without the fonts, which it would load from another host."""


def terminal(command: str, folder: Path) -> str:
    """Return an SVG of a command and its output."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        environment = {"COLUMNS": str(WIDTH), "FORCE_COLOR": "1"}
        done = CliRunner(env=environment).invoke(program, command.split(), color=True)
    finally:
        os.chdir(before)
    console = Console(
        record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    shown = f" \\\n{' ' * 4}".join(textwrap.wrap(f"logstore {command}", WIDTH - 8))
    console.print(Text.assemble(("$ ", "bold green"), (shown, "bold")))
    console.print(Text.from_ansi(done.output), end="")
    return console.export_svg(title="logstore", code_format=SVG, unique_id="terminal")


def simulation(target: Path, scenario: str = "erasure-promise") -> None:
    """Photograph the first plot of a simulation's report."""
    outcome = run(parse(library.text_of(scenario)), samples=400)
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        path = Path(name) / "report.html"
        path.write_text(report(outcome), encoding="utf-8")
        with Visitor(browser) as visitor:
            page = visitor.visit(path.as_uri())
            page.set_viewport_size({"width": 1280, "height": 900})
            plot = page.locator(".plot").first
            plot.locator(".main-svg").first.wait_for()
            plot.screenshot(path=str(target))
    with Image.open(target) as image:
        image.quantize(COLOURS, dither=Image.Dither.NONE).save(target, optimize=True)


def main() -> None:
    """Make all pictures."""
    DIRECTORY.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        question_story.make(Path(folder))
        for name, command in TERMINAL.items():
            text = terminal(command, Path(folder))
            (DIRECTORY / f"{name}.svg").write_text(text, encoding="utf-8")
    simulation(DIRECTORY / "simulation.png")
    for path in sorted(DIRECTORY.iterdir()):
        print(f"{path.name}: {path.stat().st_size / 1024:.0f} KiB", file=sys.stderr)


if __name__ == "__main__":
    main()
