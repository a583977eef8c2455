"""Citations of the specification hold: each cited section of docs/spec/ exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.tracked import ROOT, texts

THIS = Path(__file__).name
SPEC = ROOT / "docs" / "spec"

SECTION = re.compile(r"§\s?(\d+(?:\.\d+)*)")
CITED_PAGE = re.compile(r"(?:docs/spec/)?\b(storage-format|cleaner)(?:\.md)?[\s#]+$", re.IGNORECASE)
OTHER_DOCUMENT = re.compile(r"\bRFC \d+[\s#]+$")
CONNECTION = re.compile(r"(?:,|\band\b|\bto\b|[\s#])+")
"""Between two sections of one page."""
UNKNOWN_DOCUMENT = re.compile(r"\bcleaner-semantics\b|\bCONTRACT\b|\b(?:SF|CS) §")


def sections(name: str) -> set[str]:
    """Return the numbers of a page's headings and numbered rows."""
    text = (SPEC / f"{name}.md").read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (\d+(?:\.\d+)*)\.? ", text, re.MULTILINE)
    rows = re.findall(r"^\| (\d+\.\d+) \|", text, re.MULTILINE)
    assert len(set(headings)) == len(headings), name
    return {*headings, *rows}


KNOWN = {name: sections(name) for name in ("storage-format", "cleaner")}


def citations(name: str, text: str) -> Iterator[tuple[str | None, str]]:
    """Yield the page and number of each section that a text cites; None for no known page."""
    own = Path(name).stem if name.startswith("docs/spec/") else None
    cited, end = own, 0
    for match in SECTION.finditer(text):
        before = text[: match.start()]
        if found := CITED_PAGE.search(before):
            cited = found[1].lower()
        elif OTHER_DOCUMENT.search(before):
            continue
        elif not (end and CONNECTION.fullmatch(text, end, match.start())):
            cited = own
        end = match.end()
        yield cited, match[1]


def test_each_cited_section_exists() -> None:
    dangling = [
        f"{name}: {cited or 'which page?'} §{number}"
        for name, text in texts().items()
        if not name.endswith(THIS)
        for cited, number in citations(name, text)
        if cited is None or number not in KNOWN[cited]
    ]
    assert dangling == []


def test_no_document_outside_the_repository_is_cited() -> None:
    found = {
        name: lines
        for name, text in texts().items()
        if not name.endswith(THIS)
        if (lines := [line for line in text.splitlines() if UNKNOWN_DOCUMENT.search(line)])
    }
    assert found == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    (
        ("Source: docs/spec/storage-format.md §8.1.", [("storage-format", "8.1")]),
        (
            "(storage-format §8, §11 and\n    §13 to §15)",
            [("storage-format", n) for n in ("8", "11", "13", "15")],
        ),
        ("cleaner\n# §5, storage-format §2", [("cleaner", "5"), ("storage-format", "2")]),
        ("cleaner §5. And §6", [("cleaner", "5"), (None, "6")]),
        ("RFC 8878 §3.1.1", []),
    ),
)
def test_citations_of_a_text(text: str, expected: list[tuple[str | None, str]]) -> None:
    assert list(citations("a.py", text)) == expected
