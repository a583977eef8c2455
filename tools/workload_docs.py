"""Writes docs/WORKLOAD-KEYS.md from the tables of a spec; `make docs` runs it, a test checks it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from logstore.spark.oracle.violations import KINDS
from logstore.workload.presets import PRESETS
from logstore.workload.spec import TABLES, Spec
from logstore.workload.tables import Allowed

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "WORKLOAD-KEYS.md"

INTRODUCTION = """\
# Workloads: keys, presets, violations

Generated from `logstore/workload` by `make docs`; do not edit. [WORKLOADS.md](WORKLOADS.md)
describes their use.

A workload is a TOML file. It may name a `preset`, which provides values that the file does not set.
Unknown keys, values out of range and contradictions are refused before the workload starts. Equal
files produce equal bytes.
"""


def text() -> str:
    """Return the whole page."""
    return "".join(
        (
            INTRODUCTION,
            "\n## Every key\n",
            *table("", [each for each in fields(Spec) if each.name not in TABLES]),
            *(line for name, kind in TABLES.items() for line in table(name, fields(kind))),
            "\n## Presets\n",
            *(line for name, values in PRESETS.items() for line in preset(name, values)),
            "\n## Violations\n\nThe violations that `workload verify` counts.\n\n",
            *violations(),
        )
    )


def violations() -> Iterator[str]:
    """Yield the table of violations."""
    yield "| Kind | Meaning |\n|---|---|\n"
    yield from (f"| `{kind}` | {meaning} |\n" for kind, meaning in KINDS.items())


def table(name: str, rows: tuple[Field[Any], ...] | list[Field[Any]]) -> Iterator[str]:
    """Yield the section of one table of the file."""
    yield f"\n### {f'`[{name}]`' if name else 'Top level'}\n\n"
    yield "| Key | Default | Allowed | Meaning |\n|---|---|---|---|\n"
    for row in rows:
        allowed = row.metadata.get("allowed", Allowed(""))
        yield f"| `{row.name}` | {default(row)} | {bounds(allowed)} | {allowed.doc} |\n"


def default(row: Field[Any]) -> str:
    value = row.default_factory() if row.default is MISSING else row.default  # type: ignore[misc]
    return f"`{toml(value)}`"


def bounds(allowed: Allowed) -> str:
    """Return which values there are."""
    if allowed.choice:
        return ", ".join(f"`{each}`" for each in allowed.choice)
    if allowed.low is None:
        return ""
    return f"{number(allowed.low)} to {number(allowed.high)}"


def number(value: float | None) -> str:
    """Return a bound with its thousands set apart."""
    if value is None:
        return "any"
    return f"{int(value):_}".replace("_", " ") if value == int(value) else str(value)


def preset(name: str, values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a preset as a file would state it."""
    yield f"\n### `{name}`\n\n```toml\n"
    yield from (f"{key} = {toml(each)}\n" for key, each in values.items() if not is_table(each))
    for key, each in values.items():
        if is_table(each):
            yield f"\n[{key}]\n"
            yield from (f"{quoted(name)} = {toml(value)}\n" for name, value in each.items())
    yield "```\n"


def is_table(value: object) -> bool:
    return isinstance(value, Mapping)


def quoted(key: str) -> str:
    return f'"{key}"' if "." in key else key


def toml(value: object) -> str:
    """Return a value in TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:_}"
    if isinstance(value, Mapping):
        inner = ", ".join(f"{quoted(key)} = {toml(each)}" for key, each in value.items())
        return f"{{ {inner} }}"
    return f'"{value}"' if isinstance(value, str) else str(value)


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
    sys.stdout.write(f"{TARGET.relative_to(ROOT)} written\n")
