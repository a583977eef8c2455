"""Write the results of `make soak` into docs/RELIABILITY.md; `make docs` runs it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from tests.soak.run import PARTS, RESULTS
from tools.pages import replaced

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "RELIABILITY.md"
AIMS = Counter(kills=5_000, clusters=10_000, executions=5_000_000, threads=120)
"""The least sums of a release."""


def results() -> list[dict[str, Any]]:
    """Return the stored results, the newest first."""
    paths = sorted(RESULTS.glob("*.json"), reverse=True)
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def section(stored: list[dict[str, Any]]) -> str:
    """Return the tables: the parts of the newest run, and all runs with their sums."""
    if not stored:
        return "\nNo result is stored yet.\n\n"
    lines = [
        "",
        f"The newest result of each part, on {stored[0]['machine']}:",
        "",
        "| part | description | date | minutes | seed | operations | result |",
        "|---|---|---|--:|--:|---|---|",
    ]
    newest = {
        row["part"]: {**row, "date": run["date"]} for run in stored[::-1] for row in run["rows"]
    }
    for row in newest.values():
        counts = ", ".join(f"{number:,} {name}" for name, number in row["counts"].items())
        state = f"failed: {row['problem']}" if row["problem"] else "passed"
        about = PARTS[row["part"]].about if row["part"] in PARTS else ""
        lines.append(
            f"| {row['part']} | {about} | {row['date'][:10]} | {row['minutes']} | {row['seed']} "
            f"| {counts} | {state} |"
        )
    lines += [
        "",
        "All stored runs:",
        "",
        "| date | commit | minutes | kills | clusters | fuzzed | thread minutes | failed |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    sums: Counter[str] = Counter()
    for result in stored:
        row = Counter(minutes=result["minutes"])
        for part in result["rows"]:
            for name in ("kills", "clusters", "executions"):
                row[name] += part["counts"].get(name, 0)
            row["threads"] += part["minutes"] if part["part"] == "threads" else 0
            row["failed"] += bool(part["problem"])
        sums += row
        lines.append(_figures(result["date"], result["commit"], row))
    lines += [_figures("sum", "", sums), _figures("aim of a release", "", AIMS), "", ""]
    return "\n".join(lines)


def _figures(date: str, commit: str, row: Counter[str]) -> str:
    names = ("kills", "clusters", "executions")
    figures = [
        f"{row['minutes']:.0f}" if row["minutes"] else "",
        *(f"{row[name]:,}" for name in names),
    ]
    return f"| {date} | {commit} | {' | '.join(figures)} | {row['threads']:.0f} | {row['failed']} |"


def written(page: str) -> str:
    """Return the page with current tables."""
    return replaced(page, "soak", section(results()))


if __name__ == "__main__":
    TARGET.write_text(written(TARGET.read_text(encoding="utf-8")), encoding="utf-8")
