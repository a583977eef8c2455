"""Access control of the page: token, `Host` and origin.

Every request needs the token, including requests for static files. The `Host` header must match
this listener, to prevent DNS rebinding. Requests that change state must also have the right origin
and content type, which forms and scripts on other sites cannot forge.
"""

from __future__ import annotations

import hmac
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from logstore.runtime.sockets import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that do not change state."""

OWN_FETCHES = frozenset({"same-origin", "none"})
"""`Sec-Fetch-Site` values of requests made by this page or by the user."""

POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none';"
    " object-src 'none'"
)

_HEADERS = (
    ("Content-Security-Policy", POLICY),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
)
"""Headers of every response, including errors."""

_NO_TOKEN = (
    "This page requires a token: open the address printed when it was started, or send the token as"
    " `Authorization: Bearer TOKEN`.\n"
)


class Access:
    """ASGI middleware that rejects unauthorized requests.

    Parameters
    ----------
    app : ASGI application
    token : str
    host : str
        Host name or address of the listener, which is also accepted in `Host`.
    port : int
        Port, included in the cookie name because all ports of a host share cookies.
    """

    def __init__(self, app: ASGIApp, *, token: str, host: str, port: int) -> None:
        self._app = app
        self._token = token.encode()
        self._names = {"localhost", host.lower()} - {""}
        self._cookie = f"logstore_{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on or reject it."""
        assert scope["type"] == "http", "the server accepts HTTP only"

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS:
                    headers[name] = value
                if scope["path"].startswith("/api/"):
                    headers["Cache-Control"] = "no-store"
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:  # the number of connections is limited
            refusal.headers["Connection"] = "close"
        answer = refusal or self._start_session(scope) or self._app
        await answer(scope, receive, send_with_headers)

    # -- refusals ------------------------------------------------------------------------

    def _refusal(self, scope: Scope) -> Response | None:
        """Return an error response, or None if the request is authorized."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_ours(hosts[0], scope):
            return PlainTextResponse("The Host header is not an address of this server.\n", 421)
        if not (self._has_token(headers) or self._brings_token(scope)):
            return PlainTextResponse(_NO_TOKEN, 401, {"WWW-Authenticate": "Bearer"})
        if scope["method"] in SAFE:
            return None
        if not _is_same_origin(headers, hosts[0]):
            return PlainTextResponse("Cross-origin requests must not change anything.\n", 403)
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return PlainTextResponse("The content type must be application/json.\n", 415)
        return None

    def _is_ours(self, host: str, scope: Scope) -> bool:
        """Return whether a Host header refers to this listener.

        The port may differ, for example through an SSH tunnel.
        """
        name = _name_of(host)
        if name is None:
            return False
        if name in self._names:
            return True
        try:
            address = ip_address(name)
        except ValueError:
            return False
        at = scope.get("server")
        return is_loopback(name) or (at is not None and str(address) == at[0])

    def _has_token(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(given.strip()):
            return True
        return any(map(self._is_token, self._cookies(headers)))

    def _cookies(self, headers: Headers) -> Iterator[str]:
        """Yield the values of our cookie.

        The header may contain malformed cookies, and cookies with the same name from other ports of
        this host. Such cookies must not lock the user out.
        """
        for line in headers.getlist("cookie"):
            for each in line.split(";"):
                name, _, value = each.partition("=")
                if name.strip() == self._cookie:
                    yield value.strip()

    def _brings_token(self, scope: Scope) -> bool:
        return any(map(self._is_token, _tokens(scope)))

    def _is_token(self, given: str) -> bool:
        """Compare a token in constant time."""
        return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self._token)

    # -- login ---------------------------------------------------------------------------

    def _start_session(self, scope: Scope) -> Response | None:
        """If the request is for the printed URL, set the cookie and redirect.

        The redirect removes the token from the address bar, the history and the Referer header.
        """
        if not _tokens(scope):
            return None
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            self._cookie, self._token.decode(), path="/", httponly=True, samesite="strict"
        )
        answer.headers["Cache-Control"] = "no-store"
        return answer


def _tokens(scope: Scope) -> list[str]:
    """Return the token in the query string of `/`, or an empty list."""
    if scope["path"] != "/" or scope["method"] not in ("GET", "HEAD"):
        return []
    query = scope["query_string"].decode("latin-1")
    try:
        return parse_qs(query, max_num_fields=8).get("token", [])[:1]
    except ValueError:  # too many fields
        return []


def _name_of(host: str) -> str | None:
    """Return the lowercase host of `HOST[:PORT]`, or None if it is invalid."""
    if host.startswith("["):
        name, bracket, port = host[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            return None
    else:
        name, _, port = host.partition(":")
    digits = port.removeprefix(":")
    if digits and not (digits.isascii() and digits.isdigit()):
        return None
    return name.lower()


def _is_same_origin(headers: Headers, host: str) -> bool:
    """Return whether a request was made by this page or by the user directly."""
    site = headers.get("sec-fetch-site")
    if site is not None and site not in OWN_FETCHES:
        return False
    origins = headers.getlist("origin")
    return all(each in (f"http://{host}", f"https://{host}") for each in origins)
