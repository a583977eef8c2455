"""A copied directory in the page: everything is looked at, and not a file of it is touched."""

import json

import pytest
from playwright.sync_api import expect

from logstore import Broker, VirtualClock
from logstore.ui.app import ROUTES
from tests.cli.conftest import tree_hash
from tests.support.browser.chromium import Visitor
from tests.support.browser.page import go
from tests.support.browser.world import PLACES, fill


@pytest.fixture
def directory(tmp_path):
    """A directory as a broker leaves it that dies: a torn tail, no clean-shutdown marker."""
    path = tmp_path / "copied"
    broker = Broker(path, clock=VirtualClock())
    fill(broker)
    broker.clean("users", partition=1)
    broker.close()
    for marker in path.rglob(".kafka_cleanshutdown"):
        marker.unlink()
    with max((path / "payments-0").glob("*.log")).open("ab") as file:
        file.write(b"\1" * 40)
    return path


def test_no_page_and_no_route_touches_a_copied_directory(browser, directory):
    before = tree_hash(directory)
    with Broker(directory, read_only=True) as broker, Visitor(browser) as visitor:
        page = visitor.visit(broker.ui().url)
        for place in PLACES:
            go(page, place)
            # What changes something is not offered.
            for name in ("Roll …", "Clean …", "Delete records …", "Create a topic …", "Retry"):
                expect(page.get_by_role("button", name=name)).to_have_count(0)
        expect(page.get_by_text("read-only copy")).to_be_visible()

        # A setting can be tried all the same.
        go(page, "#/t/users/settings")
        page.get_by_role("textbox", name="min.cleanable.dirty.ratio").fill("0.9")
        preview = page.get_by_role("region", name="Preview")
        expect(preview).to_contain_text("users-0")
        expect(page.get_by_role("button", name="Set 1 change")).to_have_count(0)

        # Each route, asked as the page would: what changes something is refused.
        statuses = page.evaluate(
            """async asked => {
                const results = [];
                for (const [method, path, body] of asked) {
                    const answer = await fetch(path, method === "GET" ? {} : {
                        method, body, headers: {"Content-Type": "application/json"}});
                    results.push([method, path, answer.status]);
                    if (!path.endsWith("/events")) await answer.text();
                }
                return results;
            }""",
            list(requests()),
        )
        refused = [each for each in statuses if each[2] != 200]
        assert all(each[2] in (400, 403) for each in refused), refused
        changing = [each for each in statuses if each[0] != "GET" and each[1] != "/api/preview"]
        assert len(changing) >= 9
        assert [each for each in changing if each[2] != 403] == []
        visitor.watch_of(page).expect("Failed to load resource")
    assert tree_hash(directory) == before


# Members that a request must have.
BODIES = {
    "/api/preview": {"topic": "users"},
    "/api/topics": {"name": "new"},
    "/api/topics/users/configs": {"set": {"retention.ms": "1"}},
    "/api/broker/configs": {"set": {"log.cleaner.threads": "2"}},
    "/api/partitions/users/0/delete-records": {"before_offset": 1},
}


def requests():
    """Yield a request for each route, with an address that is there."""
    parts = {"{topic}": "users", "{partition}": "0", "{base}": "0", "{base_offset}": "0"}
    parts["{group:path}"] = "search-index"
    for route in ROUTES:
        path = route.path
        for part, value in parts.items():
            path = path.replace(part, value)
        for method in sorted(set(route.methods) - {"HEAD"}):
            yield method, path, json.dumps(BODIES.get(path, {}))
