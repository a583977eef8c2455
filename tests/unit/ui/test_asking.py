"""Requests with a body: bounded, JSON, with known members, and refused where nothing is changed."""

import json

import pytest

from logstore import Acl, Authorizer, Broker
from logstore.ui import app
from logstore.ui.asking import BODY_BYTES_MAX, Answer, post
from logstore.ui.context import Action
from tests.support.world.page import HOST, TOKEN, Asked

ROLL = Action("roll", "alter", "topic")


def echo(ask):
    ask.require("alter", "topic", "users")
    name = ask.member("name", str)
    if name == "defect":
        raise ZeroDivisionError(name)
    return (
        Answer(409, {"loses": name})
        if name == "loss"
        else {"name": name, "n": ask.member("n", int, 7)}
    )


@pytest.fixture(autouse=True)
def _routes(monkeypatch):
    routes = (
        post("/api/echo", echo, "name", "n"),
        post("/api/action", echo, "name", action=ROLL),
    )
    monkeypatch.setattr(app, "ROUTES", (*app.ROUTES, *routes))


def test_members_are_handed_on_and_an_answer_may_have_its_own_status(page):
    assert page.post("/api/echo", {"name": "a"}).json == {"name": "a", "n": 7}
    loss = page.post("/api/echo", {"name": "loss"})
    assert (loss.status, loss.json) == (409, {"loses": "loss"})


@pytest.mark.parametrize(
    ("body", "field", "suggestion"),
    (
        (b'{"nam": "a"}', "nam", "name"),
        (b"{}", "name", None),
        (b"", "name", None),
        (b'{"name": 1}', "name", None),
        (b'{"name": "a", "n": true}', "n", None),
        (b'{"name": "a"', None, None),
        (b'["name"]', None, None),
        (b"[" * 100_000, None, None),
        (b'{"name": "\xff"}', None, None),
    ),
)
def test_a_body_that_nobody_can_obey_is_refused_by_name(page, body, field, suggestion):
    refused = page.ask("POST", "/api/echo", body)
    assert refused.status == 400
    error = refused.json["error"]
    assert (error["type"], error.get("field"), error.get("suggestion")) == (
        "InvalidRequestError",
        field,
        suggestion,
    )


def test_a_body_without_end_is_not_read_to_it(page):
    parts = []

    async def stream():
        headers = [
            ("host", HOST),
            ("authorization", f"Bearer {TOKEN}"),
            ("content-type", "application/json"),
        ]
        sent = []

        async def receive():
            parts.append(1)
            assert len(parts) < 99, "it reads on and on"
            return {"type": "http.request", "body": b" " * 65536, "more_body": True}

        async def send(message):
            sent.append(message)

        await page.app(page.scope("POST", "/api/echo", headers), receive, send)
        return sent[0]["status"]

    assert page.call(stream()) == 413
    assert len(parts) == BODY_BYTES_MAX // 65536 + 1


def test_a_body_that_says_that_it_is_too_long_is_not_read_at_all(page):
    headers = [
        ("host", HOST),
        ("authorization", f"Bearer {TOKEN}"),
        ("content-type", "application/json"),
        ("content-length", str(BODY_BYTES_MAX + 1)),
    ]
    refused = page.ask("POST", "/api/echo", b'{"name": "a"}', headers)
    assert (refused.status, refused.json["error"]["type"]) == (413, "RequestTooLargeError")


def test_a_defect_is_told_as_one_and_logged_with_its_trace(page, caplog):
    failed = page.post("/api/echo", {"name": "defect"})
    assert failed.status == 500
    assert failed.json["error"]["type"] == "ZeroDivisionError"
    assert "Traceback" in caplog.text


def test_nothing_is_done_to_a_copied_directory(tmp_path):
    with Broker(tmp_path) as broker:
        broker.create_topic("users")
    with Broker(tmp_path, read_only=True) as broker, Asked(broker) as page:
        refused = page.post("/api/action", {"name": "a"})
        assert (refused.status, refused.json["error"]["type"]) == (403, "ReadOnlyError")
        assert page.post("/api/echo", {"name": "a"}).status == 200  # a question may have a body
        about = page.get("/api/about")
        assert (about["read_only"], about["may"]) == (True, [])


def test_what_a_principal_may_do_is_told_and_held(broker):
    acls = [
        Acl("User:ann", "alter", "topic", "users"),
        Acl("User:ann", "all", "topic", "no", permission="deny"),
    ]
    with Asked(broker, Authorizer(acls), "User:ann") as page:
        assert "roll" in page.get("/api/about")["may"]
        assert page.post("/api/action", {"name": "a"}).status == 200
    with Asked(broker, Authorizer(acls), "User:bob") as page:
        assert page.get("/api/about")["may"] == []
        refused = page.post("/api/action", {"name": "a"})
        assert (refused.status, refused.json["error"]["type"]) == (
            403,
            "TopicAuthorizationFailedError",
        )


def test_what_is_no_unicode_can_be_told(page):
    text = json.dumps({"name": "\ud800"}).encode()
    assert page.ask("POST", "/api/echo", text).status == 200
