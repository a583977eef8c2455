"""Requests with a body: bounded, JSON, with known members; refused for reading requests."""

import json

import pytest

from logstore import Acl, Authorizer, Broker, errors
from logstore.types import INT64_MAX
from logstore.ui import app
from logstore.ui import errors as ui_errors
from logstore.ui.api_request import (
    BODY_BYTES_MAX,
    ApiRequest,
    ApiResponse,
    failure,
    post,
    unknown_topic,
)
from logstore.ui.context import Action
from logstore.ui.errors import InvalidRequestError
from logstore.ui.settings import KEYS_MAX, given_keys, given_settings
from tests.support.world.messages import exactly
from tests.support.world.page import HOST, TOKEN, Asked

ROLL = Action("roll", "alter", "topic")


def echo(ask):
    ask.require("alter", "topic", "users")
    name = ask.member("name", str)
    if name == "defect":
        raise ZeroDivisionError(name)
    return (
        ApiResponse(409, {"loses": name})
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
def test_an_invalid_body_is_rejected_by_name(page, body, field, suggestion):
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


def test_a_body_with_a_content_length_above_the_limit_is_not_read(page):
    headers = [
        ("host", HOST),
        ("authorization", f"Bearer {TOKEN}"),
        ("content-type", "application/json"),
        ("content-length", str(BODY_BYTES_MAX + 1)),
    ]
    refused = page.ask("POST", "/api/echo", b'{"name": "a"}', headers)
    assert (refused.status, refused.json["error"]["type"]) == (413, "RequestTooLargeError")


def test_a_defect_is_reported_as_one_and_logged_with_its_traceback(page, caplog):
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


def test_permitted_operations_are_listed_and_enforced(broker):
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


def test_text_that_is_not_unicode_can_be_printed(page):
    text = json.dumps({"name": "\ud800"}).encode()
    assert page.ask("POST", "/api/echo", text).status == 200


@pytest.mark.parametrize(
    ("text", "bounds", "expected"),
    (
        ("3", (3, 5), 3),
        ("5", (3, 5), 5),
        ("2", (3, 5), "n: expected an integer from 3 to 5, not '2'"),
        ("6", (3, 5), "n: expected an integer from 3 to 5, not '6'"),
        ("-1", (-1, INT64_MAX), -1),
        ("-2", (-1, INT64_MAX), "n: expected an integer at least -1, not '-2'"),
        (str(INT64_MAX), (0, INT64_MAX), INT64_MAX),
        ("0" * 19, (0, 5), 0),
        ("0" * 20, (0, 5), f"n: expected an integer from 0 to 5, not '{'0' * 20}'"),
        ("--1", (-1, 5), "n: expected an integer from -1 to 5, not '--1'"),
        ("", (0, 5), "n: expected an integer from 0 to 5, not ''"),
        ("٣", (0, 5), "n: expected an integer from 0 to 5, not '٣'"),
    ),
)
def test_integers_are_within_inclusive_bounds(text, bounds, expected):
    ask = ApiRequest(None, {}, {"n": text}, {}, "")
    least, most = bounds
    if isinstance(expected, int):
        assert ask.number("n", 9, least=least, most=most) == expected
        assert ask.check_number("n", expected, least, most) == expected
        return
    with pytest.raises(InvalidRequestError) as raised:
        ask.number("n", 9, least=least, most=most)
    assert (str(raised.value), raised.value.field) == (expected, "n")


def test_defaults_and_words_of_parameters():
    ask = ApiRequest(None, {}, {"yes": "TRUE", "one": "1", "no": "false", "zero": "0"}, {}, "")
    assert ask.number("n", 9) == 9
    assert ask.window(1000) == (0, 100)
    assert ApiRequest(None, {}, {"first": "4", "count": "7"}, {}, "").window(7) == (4, 7)
    assert (ask.text("a"), ask.text("a", "b"), ask.text("yes")) == ("", "b", "TRUE")
    assert [ask.flag(name) for name in ("yes", "one", "no", "zero", "other")] == [
        *(True, True, False, False, False),
    ]
    assert ask.flag("other", default=True)
    assert not ask.flag("no", default=True)
    with pytest.raises(InvalidRequestError) as raised:
        ask.check_number("n", 0, 1, INT64_MAX)
    assert str(raised.value) == "n: expected an integer at least 1, not 0"


def test_members_have_types_and_a_boolean_is_not_a_number():
    ask = ApiRequest(None, {}, {}, {"n": 1, "yes": True, "text": "a"}, "")
    assert ask.member("n", int) == 1
    assert ask.member("n", (int, str)) == 1
    assert ask.member("yes", bool) is True
    assert ask.member("absent", int, None) is None
    for name, kind, message in (
        ("yes", int, "yes: expected int, not true"),
        ("text", (int, bool), 'text: expected int or bool, not "a"'),
        ("absent", int, "the request lacks 'absent'"),
    ):
        with pytest.raises(InvalidRequestError) as raised:
            ask.member(name, kind)
        assert (str(raised.value), raised.value.field) == (message, name)


STATUSES = {
    errors.UnknownTopicOrPartitionError("x"): 404,
    errors.GroupIdNotFoundError("x"): 404,
    ui_errors.UnknownPlaceError("x"): 404,
    errors.TopicAuthorizationFailedError("x"): 403,
    errors.GroupAuthorizationFailedError("x"): 403,
    ui_errors.ClusterAuthorizationFailedError("x"): 403,
    ui_errors.ReadOnlyError("x"): 403,
    ui_errors.ClockError("x"): 409,
    errors.TopicAlreadyExistsError("x"): 409,
    ui_errors.BusyError("x"): 503,
    ui_errors.RequestTooLargeError("x"): 413,
    InvalidRequestError("x"): 400,
    errors.InvalidConfigurationError("x"): 400,
    errors.CorruptionError("x"): 409,
    errors.KafkaStorageError("x"): 503,
    errors.IllegalStateError("x"): 503,
    errors.LogStoreError("x"): 500,
}


def test_errors_have_their_status_and_members():
    for error, status in STATUSES.items():
        response = failure(error)
        assert response.status_code == status, error
        assert json.loads(response.body) == {
            "error": {"type": type(error).__name__, "message": "x"}
        }
    assert failure(InvalidRequestError("x"), 405).status_code == 405
    full = failure(InvalidRequestError("x", field="a", suggestion="b"))
    assert json.loads(full.body)["error"] == {
        "type": "InvalidRequestError",
        "message": "x",
        "field": "a",
        "suggestion": "b",
    }
    setting = errors.InvalidConfigurationError("x", key="a.b", nearest="a.c")
    assert json.loads(failure(setting).body)["error"] == {
        "type": "InvalidConfigurationError",
        "message": "x",
        "field": "a.b",
        "suggestion": "a.c",
    }
    defect = json.loads(failure(ZeroDivisionError("n")).body)["error"]
    assert defect["message"] == "unexpected ZeroDivisionError: n; this is a bug"


def test_messages_about_names():
    assert str(unknown_topic("a", [])) == "unknown topic 'a'; there are no topics"
    near = unknown_topic("userz", ["users", "events"])
    assert (str(near), near.suggestion) == (
        "unknown topic 'userz'; the nearest is 'users'",
        "users",
    )


def test_a_refusal_names_the_operation_and_the_resource(broker):
    with Asked(broker, Authorizer(), "User:ann") as page:
        for target, message in (
            ("/api/topics/users/configs", "User:ann may not DESCRIBE_CONFIGS topic 'users'"),
            ("/api/broker/configs", "User:ann may not DESCRIBE_CONFIGS the cluster"),
            ("/api/groups/g", "User:ann may not DESCRIBE group 'g'"),
        ):
            assert page.ask("GET", target).json["error"]["message"] == message
        unknown = page.ask("GET", "/api/about?x=1").json["error"]
        assert unknown["message"] == "unknown parameter 'x'; none is accepted"
        lost = page.ask("GET", "/api/partitons").json["error"]
        assert (lost["message"], lost["suggestion"]) == (
            "unknown address /api/partitons; the nearest is '/api/partitions'",
            "/api/partitions",
        )
        wrong = page.ask("PUT", "/api/clock")
        assert (wrong.status, wrong.header("Allow")) == (405, "GET, HEAD, POST")
        assert wrong.json["error"]["message"] == "/api/clock allows GET, HEAD, POST, not PUT"


def test_settings_are_checked_before_the_engine_reads_them():
    values = {"a": "t", "b": 1, "c": 0.5, "d": True, "e": ["x", "y"], "f": []}
    full = {f"k{number}": 1 for number in range(KEYS_MAX)}
    ask = ApiRequest(
        None, {}, {}, {"set": values, "full": full, "keys": ["a"], "none": {"k": None}}, ""
    )
    assert given_settings(ask, "set") == values
    assert given_settings(ask, "full") == full
    assert (given_settings(ask, "absent"), given_keys(ask, "absent")) == ({}, [])
    assert given_keys(ask, "keys") == ["a"]
    expected = "expected a string, a number, a boolean or a list of strings, not"
    for value, message in (
        (None, f"k: {expected} null"),
        ([1], f"k: {expected} [1]"),
        (float("inf"), f"k: {expected} Infinity"),
        ("a\x1f", 'k: "a\\u001f" has a control character or surrogate'),
        ("\ud800", 'k: "\\ud800" has a control character or surrogate'),
        ("\udfff", 'k: "\\udfff" has a control character or surrogate'),
        (["\n"], 'k: "\\n" has a control character or surrogate'),
        ("\n" + 100 * "a", 'k: "\\n' + 77 * "a" + " has a control character or surrogate"),
    ):
        with pytest.raises(InvalidRequestError) as raised:
            given_settings(ApiRequest(None, {}, {}, {"set": {"k": value}}, ""), "set")
        assert (str(raised.value), raised.value.field) == (message, "k")
    assert given_settings(ApiRequest(None, {}, {}, {"set": {"k": " \ue000"}}, ""), "set") == {
        "k": " \ue000"
    }
    for body, read in (
        ({"m": full | {"one": 1}}, given_settings),
        ({"m": ["a"] * (KEYS_MAX + 1)}, given_keys),
    ):
        with pytest.raises(
            InvalidRequestError, match=exactly("m: 1001 keys exceed the limit 1000")
        ) as raised:
            read(ApiRequest(None, {}, {}, body, ""), "m")
        assert str(raised.value) == f"m: {KEYS_MAX + 1} keys exceed the limit {KEYS_MAX}"
        assert raised.value.field == "m"
    with pytest.raises(InvalidRequestError) as raised:
        given_keys(ApiRequest(None, {}, {}, {"m": [1]}, ""), "m")
    assert str(raised.value) == "m: expected a string, not 1"
