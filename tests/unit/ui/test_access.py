"""Access control: each rule by itself, in process and exactly as a server would pass it on."""

import hmac
from unittest.mock import ANY

import pytest

from tests.support.world.page import HOST, TOKEN

BEARER = ("authorization", f"Bearer {TOKEN}")
JSON = ("content-type", "application/json")
ADDRESSES = ("/", "/index.html", "/main.js", "/style.css", "/nothing", "/api/about", "/api/events")


def asked(page, method="GET", target="/api/about", *headers, host=HOST, body=b""):
    given = [("host", host)] if host is not None else []
    return page.ask(method, target, body, [*given, *headers])


# --- the token -------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ("GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT"))
@pytest.mark.parametrize("target", ADDRESSES)
def test_nothing_is_answered_without_the_token(page, target, method):
    refused = asked(page, method, target, JSON)
    assert refused.status == 401
    assert b"token" in refused.body
    assert refused.header("www-authenticate") == "Bearer"


@pytest.mark.parametrize(
    "header",
    (
        ("authorization", "Bearer t0keN"),
        ("authorization", "Bearer "),
        ("authorization", TOKEN),
        ("authorization", f"Basic {TOKEN}"),
        ("authorization", "Bearer t\xf6ken"),
        ("cookie", "logstore_4711=t0keN"),
        ("cookie", f"logstore_4712={TOKEN}"),  # the cookie of another page on this machine
        ("cookie", "logstore_4711"),
        ("cookie", f"xlogstore_4711={TOKEN}"),
        ("cookie", "\xff=;;;"),
    ),
)
def test_a_wrong_token_is_none(page, header):
    assert asked(page, "GET", "/api/about", header).status == 401


@pytest.mark.parametrize(
    "header",
    (
        BEARER,
        ("authorization", f"bearer  {TOKEN}"),
        ("cookie", f"logstore_4711={TOKEN}"),
        ("cookie", f"other=1; logstore_4711={TOKEN}"),
        # Cookies set by other programs of this machine are sent too.
        ("cookie", f'prefs={{"a": [1, 2]}}; logstore_4711={TOKEN}'),
        ("cookie", f"\xff; =; ; logstore_4711={TOKEN}"),
        ("cookie", f"logstore_4711=another; logstore_4711={TOKEN}"),
    ),
)
def test_a_header_or_the_cookie_brings_it(page, header):
    assert asked(page, "GET", "/api/about", header).status == 200


def test_a_guess_is_compared_in_constant_time(page, monkeypatch):
    compared = []

    def compare(one, two):
        compared.append((one, two))
        return one == two

    monkeypatch.setattr(hmac, "compare_digest", compare)
    asked(page, "GET", "/api/about", ("authorization", "Bearer guess"))
    asked(page, "GET", "/api/about", ("cookie", "logstore_4711=guess"))
    asked(page, "GET", "/?token=guess")
    assert compared == [(b"guess", TOKEN.encode())] * 3


def test_the_printed_address_gives_a_cookie_and_leaves_the_address_bar(page):
    entered = asked(page, "GET", f"/?token={TOKEN}")
    assert entered.status == 303
    assert entered.header("location") == "/"
    assert entered.header("cache-control") == "no-store"
    cookie, *attributes = entered.header("set-cookie").split("; ")
    assert cookie == f"logstore_4711={TOKEN}"
    assert set(attributes) == {"HttpOnly", "Path=/", "SameSite=strict"}
    assert asked(page, "GET", "/", ("cookie", cookie)).status == 200


@pytest.mark.parametrize("target", (f"/api/about?token={TOKEN}", f"/index.html?token={TOKEN}"))
def test_no_other_address_takes_the_token(page, target):
    assert asked(page, "GET", target).status == 401


def test_the_address_with_the_token_is_no_way_to_change_anything(page):
    assert asked(page, "POST", f"/?token={TOKEN}", JSON).status == 401


def test_a_wrong_token_in_the_address_is_refused(page):
    assert asked(page, "GET", "/?token=guess").status == 401
    assert asked(page, "GET", "/?" + "&".join(["token=guess"] * 99)).status == 401


# --- the host --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ("127.0.0.1:4711", "127.0.0.1", "localhost:4711", "LOCALHOST:80", "[::1]:4711", "127.9.9.9:1"),
)
def test_an_address_of_this_machine_is_answered(page, host):
    assert asked(page, "GET", "/api/about", BEARER, host=host).status == 200


@pytest.mark.parametrize(
    "host",
    (
        "evil.example",
        "evil.example:4711",
        "127.0.0.1.evil.example:4711",
        "localhost.evil.example",
        "10.0.0.1:4711",
        "[2001:db8::1]:4711",
        "[::1",
        "127.0.0.1:4711:4711",
        "127.0.0.1@evil.example",
        "",
        None,
    ),
)
@pytest.mark.parametrize("target", ("/", f"/?token={TOKEN}", "/api/about"))
def test_a_name_that_was_made_to_point_here_is_not(page, host, target):
    assert asked(page, "GET", target, BEARER, host=host).status == 421


def test_two_hosts_are_one_too_many(page):
    assert asked(page, "GET", "/api/about", BEARER, ("host", "evil.example")).status == 421


# --- the origin ------------------------------------------------------------------------------


def changing(page, *headers, method="POST"):
    """The response to a wrong method, once the request is authorized."""
    return asked(page, method, "/api/about", BEARER, *headers).status


@pytest.mark.parametrize("method", ("POST", "DELETE", "PUT", "PATCH"))
def test_our_own_page_and_no_page_at_all_may_change(page, method):
    assert changing(page, JSON, method=method) == 405
    assert changing(page, JSON, ("origin", f"http://{HOST}"), method=method) == 405
    own = (("origin", f"http://{HOST}"), ("sec-fetch-site", "same-origin"))
    assert changing(page, JSON, *own, method=method) == 405
    assert changing(page, JSON, ("origin", f"https://{HOST}"), method=method) == 405
    assert changing(page, JSON, ("sec-fetch-site", "none"), method=method) == 405


@pytest.mark.parametrize(
    "headers",
    (
        (("origin", "http://evil.example"),),
        (("origin", "null"),),
        (("origin", ""),),
        (("origin", "http://127.0.0.1:4712"),),  # another program of this machine
        (("origin", "http://localhost:4711"),),  # as it was not called
        (("origin", f"http://{HOST}"), ("origin", "http://evil.example")),
        (("sec-fetch-site", "cross-site"),),
        (("sec-fetch-site", "same-site"),),
        (("origin", f"http://{HOST}"), ("sec-fetch-site", "cross-site")),
    ),
)
@pytest.mark.parametrize("method", ("POST", "DELETE", "PUT", "PATCH"))
def test_a_foreign_origin_may_change_nothing(page, headers, method):
    assert changing(page, JSON, *headers, method=method) == 403


@pytest.mark.parametrize(
    "kind",
    (
        None,
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "application/jsonp",
    ),
)
def test_requests_of_a_form_change_nothing(page, kind):
    headers = () if kind is None else (("content-type", kind),)
    assert changing(page, *headers) == 415
    assert changing(page, ("content-type", "Application/JSON; charset=utf-8")) == 405


# --- responses -------------------------------------------------------------------------------


SECURITY = {
    "content-security-policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none';"
        " object-src 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "content-length": ANY,
}
PLAIN = {"content-type": "text/plain; charset=utf-8", "connection": "close"}
STATIC = {"etag": ANY, "cache-control": "no-cache"}
API = {"content-type": "application/json", "cache-control": "no-store"}


@pytest.mark.parametrize(
    ("method", "target", "given", "status", "own"),
    (
        ("GET", "/", (BEARER,), 200, STATIC | {"content-type": "text/html; charset=utf-8"}),
        ("GET", "/main.js", (BEARER,), 200, STATIC | {"content-type": ANY}),
        ("GET", "/api/about", (BEARER,), 200, API),
        ("GET", "/api/nothing", (BEARER,), 404, API),
        ("POST", "/api/about", (BEARER, JSON), 405, API | {"allow": "GET, HEAD"}),
        ("POST", "/api/clock", (BEARER,), 415, PLAIN | {"cache-control": "no-store"}),
        ("GET", "/", (), 401, PLAIN | {"www-authenticate": "Bearer"}),
        (
            *("GET", f"/?token={TOKEN}", (), 303),
            {"location": "/", "set-cookie": ANY, "cache-control": "no-store"},
        ),
    ),
)
def test_responses_have_exactly_these_headers(page, method, target, given, status, own):
    answer = asked(page, method, target, *given)
    assert (answer.status, dict(answer.headers)) == (status, SECURITY | own)
    assert len(answer.headers) == len(SECURITY | own)


def test_a_static_file_is_sent_once(page):
    first = asked(page, "GET", "/main.js", BEARER)
    assert first.header("content-type") == "text/javascript; charset=utf-8"
    again = asked(page, "GET", "/main.js", BEARER, ("if-none-match", first.header("etag")))
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize(
    "target",
    ("/../app.py", "/%2e%2e/app.py", "/vendor/../../app.py", "//etc/passwd", "/app.py", "/vendor"),
)
def test_no_file_next_to_the_page_is_served(page, target):
    assert asked(page, "GET", target, BEARER).status == 404


# --- addresses and methods -------------------------------------------------------------------


def test_an_address_that_is_not_there_has_a_nearest_one(page):
    unknown = asked(page, "GET", "/api/partition", BEARER)
    assert (unknown.status, unknown.json["error"]["suggestion"]) == (404, "/api/partitions")


@pytest.mark.parametrize("method", ("OPTIONS", "PUT", "POST"))
def test_a_method_that_an_address_does_not_take_is_refused_with_those_it_takes(page, method):
    refused = asked(page, method, "/api/about", BEARER, JSON)
    assert refused.status == 405
    assert refused.header("allow") == "GET, HEAD"


def test_head_is_get_without_a_body_to_come(page):
    assert asked(page, "HEAD", "/api/about", BEARER).status == 200
    assert asked(page, "HEAD", "/", BEARER).status == 200


@pytest.mark.parametrize("kind", ("websocket", "lifespan"))
def test_other_protocols_are_not_served(page, kind):
    scope = page.scope("GET", "/api/about") | {"type": kind}
    with pytest.raises(AssertionError) as refused:
        page.call(page.app(scope, None, None))
    assert str(refused.value).partition("\n")[0] == "the server accepts HTTP only"
