"""Write the results of `make interop` into docs/COMPATIBILITY.md, between two markers.

    python -m tests.interop.compatibility [RESULTS_JSON]

It uses the results of the last run (`tests/interop/target/results.json`). The rest of the page is
unchanged; a page without the markers gets the section at its end.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from tests.support.interop.judge import BUILDS, PROJECT

PAGE = Path(__file__).parents[2] / "docs" / "COMPATIBILITY.md"
BEGIN = "<!-- made by `python -m tests.interop.compatibility`: begin -->"
END = "<!-- made by `python -m tests.interop.compatibility`: end -->"


def section(results: dict[str, dict[str, Any]]) -> str:
    """Return the section for the results of a run."""
    versions = sorted({name for row in results.values() for name in row if name != "tests"})
    dump_tool = _dump_tool_version()
    lines = [
        BEGIN,
        "## Results with Kafka's classes",
        "",
        f"From the last `make interop`, against Kafka {' and '.join(versions)}: ✓ all agree, "
        "◐ some, ✗ none, – not run; the number counts directories or logs. "
        "Kafka's classes load, read, recover, dump and clean them; files, records, batches, "
        "indexes, offsets, epochs, producers and aborted ranges must be equal on both sides.",
        "",
        f"Each release uses its own dump tool, except Kafka 4, which uses {dump_tool}'s.",
        "",
        f"| Subject | {' | '.join(f'Kafka {version}' for version in versions)} | Tests |",
        f"|---|{'---|' * len(versions)}---|",
    ]
    for name in sorted(results):
        row = results[name]
        cells = [_cell(row.get(version)) for version in versions]
        tests = ", ".join(f"`{test}`" for test in row["tests"])
        lines.append(f"| {name} | {' | '.join(cells)} | {tests} |")
    return "\n".join([*lines, END])


def _cell(counts: dict[str, int] | None) -> str:
    if counts is None:
        return "–"
    passed, failed = counts["passed"], counts["failed"]
    if not failed:
        return f"✓ {passed}"
    return f"{'◐' if passed else '✗'} {passed} of {passed + failed}"


def _dump_tool_version() -> str:
    text = (PROJECT / "dump-tool.xml").read_text()
    result = re.search(r"<artifactId>kafka-tools</artifactId>\s*<version>(.*?)</version>", text)
    assert result is not None
    return result[1]


def insert(page: str, made: str) -> str:
    """Replace the section of an earlier run, or add one at the end."""
    before, begin, rest = page.partition(BEGIN)
    if not begin:
        return f"{page.rstrip()}\n\n{made}\n"
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{PAGE.name} has a begin marker without an end marker")
    return before + made + after


def main(path: Path) -> None:
    """Rewrite the page."""
    results = json.loads(path.read_text())
    PAGE.write_text(insert(PAGE.read_text(), section(results)))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else BUILDS / "results.json")
