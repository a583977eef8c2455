"""Report pages, rendered from parts by a template into one self-contained file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Template

Part = dict[str, Any]
"""An element of a page. `type` selects its form in the template."""


def heading(text: str) -> Part:
    """Return a heading."""
    return {"type": "heading", "text": text}


def paragraph(text: str, kind: str = "", small: str = "") -> Part:
    """Return a paragraph with the CSS class `kind`, and optionally a line in small print."""
    return {"type": "text", "text": text, "kind": kind, "small": small}


def items(texts: Sequence[str]) -> Part:
    """Return a list."""
    return {"type": "items", "texts": texts}


def table(
    label: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    front: Sequence[int] = (),
    numbers: Sequence[str] = (),
    ids: Sequence[str] = (),
    kind: str = "",
) -> Part:
    """Return a table.

    Parameters
    ----------
    label : str
        Name for screen readers.
    rows : sequence
        Cells, as text or markup (`cell`).
    front : sequence of int
        Rows to emphasize.
    numbers : sequence of str
        Headings of numeric columns.
    ids : sequence of str
        Anchors of the rows.
    kind : str
        CSS class. Rows of `lines` become paragraphs on a narrow screen.
    """
    return {
        "type": "table", "label": label, "heads": heads, "rows": rows, "front": front,
        "numbers": numbers, "ids": ids, "kind": kind,
    }  # fmt: skip


def group(name: str, parts: Iterable[Part]) -> Part:
    """Return parts whose plots share a time axis."""
    return {"type": "group", "name": name, "parts": list(parts)}


def figure(name: str, title: str, words: str, drawing: str) -> Part:
    """Return a drawing with a caption that describes it in words."""
    return {"type": "figure", "name": name, "title": title, "words": words, "drawing": drawing}


def svg(drawing: str) -> Part:
    """Return a drawing that includes its own title."""
    return {"type": "svg", "drawing": drawing}


def render(title: str, parts: Iterable[Part], library: str = "") -> str:
    """Render a page as HTML. `library` is the script required by the plots.

    Raises
    ------
    ImportError
        Jinja2 is not installed.
    """
    path = Path(__file__).with_name("templates") / "page.html"
    return template(path).render(title=title, parts=list(parts), library=library)


def template(path: Path) -> Template:
    """Load a template that escapes all text."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(path.parent), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template(path.name)
