"""Run the commands of docs/questions in order and compare their output with the pages.

In a fenced block `console` a line that starts with `$ ` is a command, followed by its complete
output. `…` matches any text within a line, and any lines if it is alone. `$ echo $?` shows the exit
code. `python tools/question_pages.py` replaces the outputs, except those with a `…` that still
match.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from logstore.cli.main import main
from tools import question_story

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs" / "questions").glob("*.md"))
WIDTH = 100

_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)


class Step(NamedTuple):
    """A command and its output."""

    command: str
    output: str


def steps(block: str) -> Iterator[Step]:
    """Yield the commands of a block. A backslash at the end of a line continues it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command = re.match(r"(.*\\\n)*.*\n?", part)
        assert command is not None
        yield Step(command[0].rstrip("\n"), part[command.end() :])


class Shell:
    """Runs commands in a folder with the story's directories; of ours each in this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._code = 0

    def run(self, command: str) -> str:
        """Run a command and return its output, as a terminal shows it."""
        line = command.replace("\\\n", " ")
        if line == "echo $?":
            return f"{self._code}\n"
        words = shlex.split(line)
        if words[0] == "logstore" and not {"|", ">", "&&"} & set(words):
            before = Path.cwd()
            os.chdir(self._folder)
            try:
                done = CliRunner(env={"COLUMNS": str(WIDTH)}).invoke(main, words[1:])
            finally:
                os.chdir(before)
            self._code = done.exit_code
            return done.output
        python = f'python() {{ "{sys.executable}" "$@"; }}'
        logstore = 'logstore() { python -c "from logstore.cli.main import main; main()" "$@"; }'
        shell = subprocess.run(
            ["bash", "-c", f"{python}; {logstore}; {line}"],
            cwd=self._folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": str(WIDTH), "TZ": "UTC"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self._code = shell.returncode
        return shell.stdout


def agrees(output: str, shown: str) -> bool:
    """Return whether an output matches the output that a page shows."""
    pattern = "".join(
        r"(?:.*\n)*?" if line == "…\n" else re.escape(line).replace("…", ".*")
        for line in shown.splitlines(keepends=True)
    )
    return re.fullmatch(pattern, output) is not None


def written(page: str, folder: Path) -> str:
    """Return a page with its outputs as they are. Those with a `…` remain if they agree."""
    shell = Shell(folder)

    def renewed(match: re.Match[str]) -> str:
        text = ""
        for command, shown in steps(match[1]):
            output = "".join(f"{line.rstrip()}\n" for line in shell.run(command).splitlines())
            text += f"$ {command}\n"
            text += shown if "…" in shown and agrees(output, shown) else output
        return f"```console\n{text}```"

    return _BLOCK.sub(renewed, page)


def write() -> None:
    """Write all pages again."""
    for path in PAGES:
        with tempfile.TemporaryDirectory() as folder:
            question_story.make(Path(folder))
            path.write_text(written(path.read_text(encoding="utf-8"), Path(folder)), "utf-8")


if __name__ == "__main__":
    write()
