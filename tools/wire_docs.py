"""Writes the tables of docs/WIRE.md: clients, peers, permissions, APIs; `make docs` runs it."""

from __future__ import annotations

from pathlib import Path

from logstore.bench.wire.__main__ import RESULTS
from logstore.bench.wire.result import lines, read_result
from logstore.messages.apis import apis_by_name
from logstore.wire.permissions import NEEDS
from logstore.wire.registry import handlers
from logstore.wire.versions import MINIMUM, SERVED, Versions
from tests.support.interop.foreign_clients import ABSENT, CLIENTS
from tests.support.interop.sweep import ACTIONS
from tools.pages import replaced

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "WIRE.md"


def clients_table() -> str:
    """Return the table of the clients that the sweep of `make interop` knows."""
    titles = [action.replace("_", " ") for action in ACTIONS]
    lines = [f"| client | {' | '.join(titles)} |", f"|---|{'---|' * len(titles)}"]
    for client in CLIENTS:
        done = ["–" if (client.name, action) in ABSENT else "✓" for action in ACTIONS]
        lines.append(f"| {client.title} | {' | '.join(done)} |")
    titles_by_name = {client.name: client.title for client in CLIENTS}
    lines.append("")
    for (name, action), reason in ABSENT.items():
        lines.append(f"– {titles_by_name[name]}, {action.replace('_', ' ')}: {reason}.")
    return "\n".join(lines) + "\n"


def peers_tables() -> str:
    """Return the newest result of `make bench-wire`."""
    return "\n".join(lines(read_result(max(RESULTS.glob("*.json"))))) + "\n"


def apis_table() -> str:
    """Return the table: each API with its versions, and what its handler says it does."""
    lines = ["| API | key | versions | fewest | action |", "|---|---|---|---|---|"]
    for name in sorted(handlers(), key=lambda name: apis_by_name()[name].key):
        about = (handlers()[name].function.__doc__ or "").partition("\n")[0].removesuffix(".")
        fewest = shown(MINIMUM[name]) if name in MINIMUM else "–"
        key = apis_by_name()[name].key
        lines.append(f"| {name} | {key} | {shown(SERVED[name])} | {fewest} | {about} |")
    return "\n".join(lines) + "\n"


def permissions_table() -> str:
    """Return the table of the permissions that each API needs, in the order of the names."""
    lines = ["| API | operation on resource |", "|---|---|"]
    for api, needs in sorted(NEEDS.items()):
        words = [f"{operation.upper()} on {kind.upper()}" for operation, kind in needs]
        lines.append(f"| {api} | {', '.join(words) or 'none'} |")
    return "\n".join(lines) + "\n"


def shown(versions: Versions) -> str:
    """Return versions as `3–11`, with lower advertised versions in brackets."""
    first, last, _ = versions
    served = f"{first}" if first == last else f"{first}–{last}"
    if versions.first_advertised == first:
        return served
    return f"{served} (advertised from {versions.first_advertised})"


def page(old: str) -> str:
    """Return the page with the tables of today."""
    tables = {
        "clients": clients_table(),
        "peers": peers_tables(),
        "permissions": permissions_table(),
        "apis": apis_table(),
    }
    for name, table in tables.items():
        old = replaced(old, name, f"\n{table}\n")
    return old


if __name__ == "__main__":
    TARGET.write_text(page(TARGET.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{TARGET.relative_to(ROOT)} written")
