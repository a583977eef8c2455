"""Writes the table of APIs into docs/WIRE.md; `make docs` runs it, a test checks it."""

from __future__ import annotations

from pathlib import Path

from logstore.messages.apis import apis_by_name
from logstore.wire.registry import handlers
from logstore.wire.versions import MINIMUM, SERVED, Versions

ROOT = Path(__file__).resolve().parents[3]
TARGET = ROOT / "docs" / "WIRE.md"
BEGIN, END = "<!-- apis: written by `make docs` -->\n", "<!-- end of apis -->\n"


def table() -> str:
    """Return the table: each API with its versions, and what its handler says it does."""
    lines = ["| API | key | versions | fewest | what it does |", "|---|---|---|---|---|"]
    for name in sorted(handlers(), key=lambda name: apis_by_name()[name].key):
        about = (handlers()[name].function.__doc__ or "").partition("\n")[0].removesuffix(".")
        fewest = shown(MINIMUM[name]) if name in MINIMUM else "–"
        key = apis_by_name()[name].key
        lines.append(f"| {name} | {key} | {shown(SERVED[name])} | {fewest} | {about} |")
    return "\n".join(lines) + "\n"


def shown(versions: Versions) -> str:
    """Return versions as `3–11`, with what is advertised below them in brackets."""
    first, last, _ = versions
    served = f"{first}" if first == last else f"{first}–{last}"
    if versions.first_advertised == first:
        return served
    return f"{served} (advertised from {versions.first_advertised})"


def page(old: str) -> str:
    """Return the page with the table of today."""
    before, _, rest = old.partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    TARGET.write_text(page(TARGET.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{TARGET.relative_to(ROOT)} written")
