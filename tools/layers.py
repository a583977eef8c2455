"""Write the packages and their layers into docs/ARCHITECTURE.md; `make docs` runs it.

A package is a folder directly under `logstore`, or a module there. Every import counts: at the
top of a module, inside a function, and for type checkers. A package's layer is one above the
highest package that it imports. `tests/meta/test_layers.py` checks that the page is current.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from tools.pages import replaced

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "ARCHITECTURE.md"

SOURCES = {"logstore": "logstore", "cleaner": "logstore.cleaner", "bench": "logstore.bench"}
"""Folders of sources, and the names that they are imported by."""


def modules() -> dict[str, Path]:
    """Return the file of each module."""
    found = {}
    for folder, package in SOURCES.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


@cache
def _import_statements(path: Path) -> list[ast.Import | ast.ImportFrom]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [each for each in ast.walk(tree) if isinstance(each, ast.Import | ast.ImportFrom)]


def imports_of(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """Yield the modules of the project that a file imports, anywhere in it."""
    for node in _import_statements(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif node.level == 0 and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in known:
                    yield full
                elif node.module in known:
                    yield node.module


def module_imports(known: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return the imports of each module, without the module itself."""
    return {name: {*imports_of(path, known)} - {name} for name, path in known.items()}


def package_of(module: str) -> str:
    """Return the package of a module; `logstore/__init__.py` counts as one."""
    return ".".join(module.split(".")[:2])


def package_imports(known: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return the packages that each package imports."""
    found: dict[str, set[str]] = {package_of(name): set() for name in known}
    for name, targets in module_imports(known).items():
        found[package_of(name)] |= {package_of(target) for target in targets}
    return {package: targets - {package} for package, targets in found.items()}


def layers(graph: Mapping[str, set[str]]) -> dict[str, int]:
    """Return the layer of each node; nodes without imports are in layer 0.

    Raises
    ------
    graphlib.CycleError
        The graph has a cycle, which is the second argument of the error.
    """
    found: dict[str, int] = {}
    for node in TopologicalSorter(graph).static_order():
        found[node] = 1 + max((found[each] for each in graph[node]), default=-1)
    return found


def about(path: Path) -> str:
    """Return the first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split()).rstrip(".")


def short(package: str) -> str:
    """Return a package's name without the first part."""
    return package.removeprefix("logstore.")


def text() -> str:
    """Return the layers, and the table of packages."""
    known = modules()
    graph = package_imports(known)
    layer_of = layers(graph)
    count = sum(map(len, graph.values()))
    levels: dict[int, list[str]] = defaultdict(list)
    for package, layer in layer_of.items():
        levels[layer].append(package)
    lines = [
        f"{len(graph)} packages in {len(levels)} layers, {count} imports between packages,"
        " no cycle.",
        "",
        "```",
    ]
    lines += [
        f"{layer:2}  {' · '.join(map(short, sorted(levels[layer])))}"
        for layer in sorted(levels, reverse=True)
    ]
    lines += ["```", "", "| layer | package | contents |", "|---|---|---|"]
    lines += [
        f"| {layer_of[package]} | `{short(package)}` | {about(known[package])} |"
        for package in sorted(layer_of, key=lambda package: (-layer_of[package], package))
    ]
    return "\n".join([*lines, ""])


def page(old: str) -> str:
    """Return the page with the current table."""
    return replaced(old, "packages", text())


if __name__ == "__main__":
    TARGET.write_text(page(TARGET.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{TARGET.relative_to(ROOT)} written")
