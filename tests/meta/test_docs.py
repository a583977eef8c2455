"""All pages of docs/ are in the index, have valid links, and name only existing code."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import logstore
import logstore.broker
import logstore.testing
from logstore import Broker, LogStoreError, VirtualClock, errors
from logstore.clients import consumer_config, producer_config
from logstore.testing import FaultyFileSystem, holes

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MAP = DOCS / "README.md"
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))
PACKAGES = (logstore, logstore.broker, logstore.testing)
PYTHON = (DOCS / "PYTHON.md").read_text(encoding="utf-8")
ENTRIES = [
    " ".join(span.split())
    for entry in re.findall(r"^- (`.*?):\s", PYTHON, re.DOTALL | re.MULTILINE)
    for span in re.findall(r"`([^`]+)`", entry)
]
"""The code before the colon of each item of PYTHON.md, each on one line."""


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


# --- the Python API --------------------------------------------------------------------------


def signature(name: str, value: object) -> str:
    """Return a callable's signature as PYTHON.md shows it: without parameter types."""
    result = inspect.signature(value)
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in result.parameters.values()
    ]
    text = re.sub(r"<(\w+\.\w+): .*?>", r"\1", f"{name}{inspect.Signature(parameters)}")
    text = text.replace("<factory>", "…")
    returned = result.return_annotation
    if returned in (inspect.Signature.empty, "None", None):
        return text
    return f"{text} -> {returned if isinstance(returned, str) else returned.__name__}"


@pytest.fixture(scope="module")
def things():
    """Names on the page, such as `broker` and `producer`, and the objects they refer to."""
    with Broker(clock=VirtualClock(), background=True) as broker:
        broker.create_topic("topic")
        producer = broker.producer()
        yield {
            "broker": broker,
            "admin": broker.admin(),
            "authorizer": logstore.Authorizer(),
            "clock": broker.clock,
            "consumer": broker.consumer(),
            "fs": FaultyFileSystem(),
            "future": producer.send("topic", b"value"),
            "holes": holes,
            "listener": broker.listen(),
            "producer": producer,
        }


def entry_names() -> set[str]:
    return {entry.partition("(")[0] for entry in ENTRIES}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_every_public_name_is_on_the_page(package):
    named = entry_names() | {name for name, *_ in error_items()}
    assert set(package.__all__) - named == set()


@pytest.mark.parametrize(
    "name", ("broker", "producer", "consumer", "admin", "authorizer", "listener")
)
def test_every_public_method_is_on_the_page(things, name):
    public = {f"{name}.{each}" for each in dir(things[name]) if not each.startswith("_")}
    assert public - entry_names() == set()


def test_every_signature_on_the_page_is_the_code_s(things):
    for entry in ENTRIES:
        name = entry.partition("(")[0]
        thing, _, attribute = name.rpartition(".")
        if thing:
            value = getattr(things[thing], attribute)
        else:
            value = next(getattr(each, name) for each in PACKAGES if name in each.__all__)
        if entry != name or inspect.isroutine(value):
            assert entry == signature(name, value)


@pytest.mark.parametrize("config", (producer_config, consumer_config), ids=lambda c: c.__name__)
def test_every_config_that_a_client_obeys_is_on_the_page(config):
    assert [name for name in config.DEFAULTS if f"`{name}`" not in PYTHON] == []


# --- errors ----------------------------------------------------------------------------------


def error_items(
    kind: type[LogStoreError] = LogStoreError, depth: int = 0
) -> Iterator[tuple[str, int, type[LogStoreError]]]:
    """Yield name, depth and class of every error, each below its base class."""
    yield kind.__name__, depth, kind
    for each in kind.__subclasses__():
        if each.__module__ == errors.__name__:
            yield from error_items(each, depth + 1)


def test_tree_of_errors_is_the_code_s():
    """The expected text is the one to put on the page."""
    lines = []
    for name, depth, kind in error_items():
        shown = name if name in logstore.__all__ else f"errors.{name}"
        about = " ".join(inspect.getdoc(kind).partition("\n\n")[0].split())
        about = re.sub(r" \([\w-]+ §[\d.]+\)", "", about)  # of the specification
        item = f"- `{shown}` ({kind.kafka_error}, {kind.exit_code}): {about}"
        indent = "  " * depth
        lines += textwrap.wrap(item, 100, initial_indent=indent, subsequent_indent=f"{indent}  ")
    section = PYTHON.partition("\n## Errors\n")[2].partition("\n## ")[0]
    (tree,) = re.findall(r"^- .*\Z", section, re.DOTALL | re.MULTILINE)
    assert tree.splitlines() == lines
