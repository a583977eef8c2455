"""Draws the floors of the house into docs/ARCHITECTURE.md; `make docs` runs it, a test checks it.

A room is a folder, or a file that stands beside folders. An arrow is an import of one room by
another, be it at the top, inside a function or for type checkers alone. A room stands one floor
above the highest that it imports.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TARGET = ROOT / "docs" / "ARCHITECTURE.md"
BEGIN, END = "<!-- floors: written by `make docs` -->\n", "<!-- end of floors -->\n"

PACKAGES = {"logstore": "logstore", "cleaner": "logstore.cleaner", "bench": "logstore.bench"}
"""Folders of sources, and the names that they are imported by."""

INNER = ("logstore",)
"""Packages whose parts are rooms of their own."""


def modules() -> dict[str, Path]:
    """Return the file of each module."""
    found = {}
    for folder, package in PACKAGES.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


def imports_of(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """Yield the modules of the project that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in known:
                    yield full
                elif node.module in known:
                    yield node.module


def arrows(known: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return what each module imports, itself left out."""
    return {name: {*imports_of(path, known)} - {name} for name, path in known.items()}


def room_of(module: str) -> str:
    """Return the room of a module; a package's own file, where parts are rooms, is one too."""
    for package in INNER:
        if module == package:
            return module
        if module.startswith(f"{package}."):
            return f"{package}.{module.removeprefix(f'{package}.').partition('.')[0]}"
    raise ValueError(module)


def rooms(known: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return the rooms that each room imports."""
    found: dict[str, set[str]] = {room_of(name): set() for name in known}
    for name, targets in arrows(known).items():
        found[room_of(name)] |= {room_of(target) for target in targets}
    graph = {room: targets - {room} for room, targets in found.items()}
    touched = {room for room, targets in graph.items() if targets}.union(*graph.values())
    # A package's own file that only says what the package is, is no room.
    return {room: targets for room, targets in graph.items() if room in touched}


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the sets of nodes that reach each other, sorted."""
    reach: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        pending = [start]
        while pending:
            for target in graph[pending.pop()] - seen:
                seen.add(target)
                pending.append(target)
        reach[start] = seen
    return sorted(
        {
            tuple(sorted({node} | {each for each in reach[node] if node in reach[each]}))
            for node in graph
            if node in reach[node]
        }
    )


def floors(graph: Mapping[str, set[str]]) -> dict[str, int]:
    """Return the floor of each room of a graph without circles; 0 is the ground."""
    found: dict[str, int] = {}

    def floor(room: str) -> int:
        if room not in found:
            found[room] = 1 + max(map(floor, graph[room]), default=-1)
        return found[room]

    for room in graph:
        floor(room)
    return found


def about(path: Path) -> str:
    """Return the first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split()).rstrip(".")


def short(room: str) -> str:
    """Return a room's name without the package."""
    return room.removeprefix("logstore.") or room


def text() -> str:
    """Return the picture and the table of rooms."""
    known = modules()
    graph = rooms(known)
    height = floors(graph)
    count = sum(map(len, graph.values()))
    levels: dict[int, list[str]] = defaultdict(list)
    for room, floor in height.items():
        levels[floor].append(room)
    lines = [
        f"{len(graph)} rooms on {len(levels)} floors, {count} arrows, no circle.",
        "",
        "```",
    ]
    lines += [
        f"{floor:2}  {' · '.join(map(short, sorted(levels[floor])))}"
        for floor in sorted(levels, reverse=True)
    ]
    lines += ["```", "", "| floor | room | what it is |", "|---|---|---|"]
    lines += [
        f"| {height[room]} | `{short(room)}` | {about(known[room])} |"
        for room in sorted(height, key=lambda room: (-height[room], room))
    ]
    return "\n".join([*lines, ""])


def page(old: str) -> str:
    """Return the page with the picture of today."""
    before, _, rest = old.partition(BEGIN)
    return f"{before}{BEGIN}{text()}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    TARGET.write_text(page(TARGET.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{TARGET.relative_to(ROOT)} written")
