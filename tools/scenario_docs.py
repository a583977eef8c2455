"""Writes the tests of each scenario into docs/spec/scenarios.md; `make docs` runs it.

A test covers a scenario if it names it: `test_s029_…`, or `S-029` in its decorators, docstring or
body.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "spec" / "scenarios.md"
WIDTH = 100

SCENARIO = re.compile(r"\bS-(\d{3})\b")
NAME = re.compile(r"(?:^|_)s(\d{3})(?=_|$)")
ITEM = re.compile(r"^- \*\*S-(\d{3})\*\* (.*)$")
TEST = re.compile(r"^  `(tests/\S+)`$")


def numbers_in(text: str) -> set[int]:
    """Return the scenarios that a text names."""
    return {int(number) for number in SCENARIO.findall(text)}


def tests_of(path: Path) -> Iterator[tuple[str, set[int]]]:
    """Yield each test function of a file with the scenarios that it names, in order."""
    source = path.read_text(encoding="utf-8")
    if not SCENARIO.search(source) and not NAME.search(source):
        return
    lines = source.splitlines()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            first = min(each.lineno for each in (node, *node.decorator_list))
            named = {int(number) for number in NAME.findall(node.name)}
            yield node.name, named | numbers_in("\n".join(lines[first - 1 : node.end_lineno]))


def coverage(root: Path = ROOT) -> dict[int, list[str]]:
    """Return the tests of each scenario, as `path::name`, by path and in the order of the file."""
    found: dict[int, list[str]] = defaultdict(list)
    for path in sorted((root / "tests").rglob("test_*.py")):
        if path.is_relative_to(root / "tests" / "meta"):
            continue
        for name, numbers in tests_of(path):
            for number in numbers:
                found[number].append(f"{path.relative_to(root).as_posix()}::{name}")
    return dict(found)


def items(page: str) -> dict[int, list[str]]:
    """Return the tests that the page lists for each scenario, in the order of the page."""
    found: dict[int, list[str]] = {}
    number = 0
    for line in page.splitlines():
        if match := ITEM.match(line):
            number = int(match[1])
            assert number not in found, f"S-{number:03} appears twice"
            found[number] = []
        elif match := TEST.match(line):
            found[number].append(match[1])
    return found


def page(old: str) -> str:
    """Return the page with the lists of today and its items filled to the width."""
    tests = coverage()
    lines: list[str] = []
    item: list[str] = []

    def close_item() -> None:
        if item:
            number = int(item[0])
            text = f"**S-{number:03}** {' '.join(item[1:])}"
            lines.extend(
                textwrap.wrap(
                    text, WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False
                )
            )
            lines.extend(f"  `{name}`" for name in tests.get(number, ()))
            item.clear()

    for line in old.splitlines():
        if match := ITEM.match(line):
            close_item()
            item += [match[1], match[2].strip()]
        elif item and line.startswith("  "):
            if not TEST.match(line):
                item.append(line.strip())
        else:
            close_item()
            lines.append(line)
    close_item()
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TARGET.write_text(page(TARGET.read_text(encoding="utf-8")), encoding="utf-8")
