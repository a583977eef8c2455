"""Writes the table of permissions into docs/WIRE.md; `make docs` runs it, a test checks it."""

from __future__ import annotations

from pathlib import Path

from logstore.wire.permissions import NEEDS

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "WIRE.md"
BEGIN, END = "<!-- permissions: written by `make docs` -->\n", "<!-- end of permissions -->\n"


def table() -> str:
    """Return the table, in the order of the APIs' names."""
    lines = ["| API | operation on resource |", "|---|---|"]
    for api, needs in sorted(NEEDS.items()):
        words = [f"{operation.upper()} on {kind.upper()}" for operation, kind in needs]
        lines.append(f"| {api} | {', '.join(words) or 'none'} |")
    return "\n".join(lines) + "\n"


def page(old: str) -> str:
    """Return the page with the table of today."""
    before, _, rest = old.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    TARGET.write_text(page(TARGET.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{TARGET.relative_to(ROOT)} written")
