"""Write docs/REASONS.md and the page's copy of its sentences.

`make docs` runs it, a test checks that both are current.
"""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path

from logstore.reasons.templates import TEMPLATES

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "REASONS.md"
SCRIPT = ROOT / "logstore" / "ui" / "front" / "templates.js"

HEADINGS = {
    "condition": "Conditions of a cleaning pass, by gate",
    "refusal": "Partitions that were not cleaned, by gate",
    "gate": "Gates",
    "verdict": "Verdicts",
    "note": "Notes of a verdict",
    "cause": "Causes of a closed gate",
    "cure": "What opens a gate",
    "closing": "What closes the active segment",
    "tombstones": "Tombstones",
    "pass": "The next pass",
    "key": "Until a key is gone",
    "retention": "Retention",
    "location": "Locations of a key's bytes, by state",
    "erasure": "Rules that remove a key's bytes",
}
"""A heading for each group of codes; docs/CHECKS.md lists the group `check`."""

_INTRO = """# Reasons

Decisions and findings carry their reason as a code with values. In JSON a reason is
`{"code": …, "values": {…}, "text": …}`, or has these members in the object that it explains: gates
and closings of `explain`, `not_cleaned` of `clean`, segments of `retain`, places of `erasure`,
findings of `check`. `reasons` lists several. Programs should use `code` and `values`: `text` is the
sentence that the command line prints, and its words may change.

The name of a value gives its kind. In a sentence a value is formatted accordingly:

| name ends with | value | shown as |
|---|---|---|
| `at_ms` | a time, Unix ms | `2024-01-31 12:00:00.000Z` |
| `span_ms` | a measured span of time | `6d 23h`: the two largest units, cut off |
| `_ms` otherwise | a duration that was set | `7d`, `1500ms`: exact |
| `_bytes` | a size | `1,048,576` |
| `ratio` | a share of 1 | `0.25`: up to four decimals |
| `offset`, `_id` | an offset or an id | `1700605005775` |
| anything else | a count, or a text | `1,000` |

Numbers from 2⁵³ on are Kafka's "no limit" and shown as `unlimited`. A `message` is the text of an
error. A finding has the values `expected` and `found` if two values were compared; a number has its
unit in the name, such as `expected_offset`. Codes of `condition` and `refusal` name a gate in a
table and are not part of any JSON.

A finding of `check` has the code `check.NAME`; [CHECKS.md](CHECKS.md) lists the names.

`make docs` writes this page from `logstore/reasons/templates.py`.
"""


def _fields(template: str) -> list[str]:
    return template.replace("}", "{").split("{")[1::2]


def _sentence(template: str) -> str:
    """Return a template with its words for several things, and its fields as code."""
    parts = template.replace("}", "{").split("{")
    for slot in range(1, len(parts), 2):
        name, _, words = parts[slot].partition("?")
        parts[slot] = words.partition("|")[2] or f"`{name}`"
    return "".join(parts)


def page() -> str:
    """Return docs/REASONS.md."""
    lines = [_INTRO]
    for group, codes in groupby(TEMPLATES, key=lambda code: code.partition(".")[0]):
        if group not in HEADINGS:
            continue
        lines += [f"## {HEADINGS[group]}", "", "| code | sentence |", "|---|---|"]
        lines += [f"| `{code}` | {_sentence(TEMPLATES[code])} |" for code in codes]
        lines.append("")
    return "\n".join(lines)


def script() -> str:
    """Return the page's copy of the table."""
    lines = ["// The sentence of every reason, by its code. Written by `make docs`."]
    lines += ["", "export const TEMPLATES = {"]
    for code, template in TEMPLATES.items():
        lines.append(f"  {json.dumps(code)}: {json.dumps(template, ensure_ascii=False)},")
    return "\n".join([*lines, "};", ""])


def fields(code: str) -> set[str]:
    """Return the names of the values in a code's sentence."""
    return {field.partition("?")[0] for field in _fields(TEMPLATES[code])}


if __name__ == "__main__":
    for path, text in ((PAGE, page()), (SCRIPT, script())):
        path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(ROOT)} written")
