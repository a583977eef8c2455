"""Every route: method, path, query parameters, members of the body, and the operation it is.

To accept a change, delete `routes.txt`, run the test, and review its new contents.
"""

from functools import partial
from pathlib import Path

import pytest

from logstore.ui.app import ROUTES

STORED = Path(__file__).with_name("routes.txt")


def described(route):
    if not isinstance(route.endpoint, partial):
        return (
            f"{' '.join(sorted(route.methods - {'HEAD'}))} {route.path}: {route.endpoint.__name__}"
        )
    call, query, members, refused = route.endpoint.args
    lines = [f"{' '.join(sorted(route.methods - {'HEAD'}))} {route.path}: {call.__name__}"]
    if query:
        lines.append(f"  query: {', '.join(query)}")
    if members is not None:
        lines.append(f"  body: {', '.join(members)}")
    if route.action is not None:
        needs_dry_run = "" if refused else ", unless it is a dry run"
        name, operation, resource_type = route.action
        lines.append(f"  {name}: {operation} of the {resource_type}; refused{needs_dry_run}")
        assert refused in (None, route.action)
    return "\n".join(lines)


def test_the_routes_are_these():
    text = "".join(f"{described(route)}\n" for route in ROUTES)
    if not STORED.exists():
        STORED.write_text(text, encoding="utf-8")
        pytest.fail(f"{STORED} was missing: review the new file")
    assert text.splitlines() == STORED.read_text(encoding="utf-8").splitlines()
