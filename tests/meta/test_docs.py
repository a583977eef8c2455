"""All pages of docs/ are in the index, have valid links, and name only existing code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from logstore.clients import consumer_config, producer_config
from tools import api_docs, site, soak_docs

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MAP = DOCS / "README.md"
SITE = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
PAGES = (*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md")))
PYTHON = (DOCS / "PYTHON.md").read_text(encoding="utf-8")


# --- pages and links -------------------------------------------------------------------------


def prose(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as forges spell them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_map_lists_every_page_once():
    listed = re.findall(r"^\|.*?\]\(([\w./-]+)\)", prose(MAP), re.MULTILINE)
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} - {"README.md"}
    assert sorted(name for name in listed if "../" not in name) == sorted(pages)
    assert "](docs/README.md)" in prose(ROOT / "README.md")


def test_navigation_of_the_site_has_every_page_once():
    listed = re.findall(r"^ +- (?:.*: )?(\S+\.md)$", SITE, re.MULTILINE)
    assert sorted(listed) == sorted(page.relative_to(ROOT).as_posix() for page in site.pages())


@pytest.mark.parametrize(
    ("text", "shown"),
    (
        ("[a](tests/x.py) [b](docs/START.md#install)", "a [b](docs/START.md#install)"),
        ("![a](docs/page/x.png) [b](#b)", "![a](docs/page/x.png) [b](#b)"),
        ("[a][x] [b][y]\n\n[x]: tests/x.py\n[y]: https://y\n", "a [b][y]\n\n[y]: https://y\n"),
        ("```\n[a](tests/x.py)\n```\n", "```\n[a](tests/x.py)\n```\n"),
        ("a:\n- b\n  c\n- d\n  - e\n", "a:\n\n- b\n  c\n- d\n    - e\n"),
        ("a\nb 1. c\n", "a\nb 1. c\n"),
    ),
)
def test_links_to_other_files_become_text_on_the_site(text, shown):
    assert site.for_the_site(text, ROOT / "README.md") == shown


def test_links_without_a_target_are_found(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/index.html").write_text('<h1 id="x">X</h1><a href="../b/">b</a>')
    links = '<a href="a/#x">1</a><a href="a/#y">2</a><a href="c.html">3</a>'
    (tmp_path / "index.html").write_text(f'{links}<img src="https://elsewhere/x.png">')
    assert sorted(site.broken_links(tmp_path)) == [
        "a/index.html: ../b/",
        "index.html: a/#y (no such heading)",
        "index.html: c.html",
    ]
    assert site.foreign_resources(tmp_path) == ["index.html: https://elsewhere/x.png"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_relative_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_options_that_issue_templates_name_exist():
    known = "--version " + (DOCS / "CLI.md").read_text(encoding="utf-8")
    for template in (ROOT / ".github").rglob("*.md"):
        for command in re.findall(r"`([^`]*--[^`]*)`", template.read_text(encoding="utf-8")):
            for option in re.findall(r"--[a-z-]+", command):
                if not command.startswith("python "):
                    assert re.search(rf"{option}\b", known), f"{template.name}: {option}"


def test_results_of_the_soak_are_on_their_page():
    page = (DOCS / "RELIABILITY.md").read_text(encoding="utf-8")
    assert soak_docs.written(page) == page, "run: make docs"


# --- the Python API --------------------------------------------------------------------------


def test_reference_is_the_code_s():
    """`make docs` writes it."""
    written = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "api").glob("*.md")}
    assert written == api_docs.pages(), "run: make docs"


@pytest.mark.parametrize("package", api_docs.PACKAGES, ids=lambda package: package.__name__)
def test_every_public_name_is_in_the_reference_once(package):
    listed = [name for group in api_docs.GROUPS for name in group.names.split()]
    assert len(listed) == len(set(listed))
    listed += [name for name, *_ in api_docs.error_items()]
    assert set(package.__all__) - set(listed) == set()


def test_every_public_name_and_method_has_a_summary():
    for group in api_docs.GROUPS:
        for row in api_docs.page(group).splitlines():
            assert not row.endswith("|  |"), f"{row} has no docstring"


@pytest.mark.parametrize("config", (producer_config, consumer_config), ids=lambda c: c.__name__)
def test_every_config_that_a_client_obeys_is_on_the_page(config):
    assert [name for name in config.DEFAULTS if f"`{name}`" not in PYTHON] == []
