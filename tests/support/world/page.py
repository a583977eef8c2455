"""Requests to a broker's page in this process: without a socket, in the loop that serves it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit

from logstore.runtime.loops import LoopThread
from logstore.ui.app import application
from logstore.ui.context import Context

TOKEN = "t0ken"
HOST = "127.0.0.1:4711"


@dataclass
class Answer:
    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""

    def header(self, name: str) -> str | None:
        return next((value for each, value in self.headers if each == name.lower()), None)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Asked:
    """A page with `get` and `post`, which send the token by default."""

    def __init__(
        self,
        broker: Any,
        authorizer: Any = None,
        principal: str = "User:ANONYMOUS",
        schemas: Any = None,
    ) -> None:
        self._loops = LoopThread("test-page")
        self.context = Context(broker, self._loops, authorizer, principal, schemas)
        self.app = application(self.context, token=TOKEN, host="127.0.0.1", port=4711)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.call(self.context.live.poll_once())  # delivers pending events, so that no stream hangs
        self.call(self._end())
        self._loops.stop()

    async def _end(self) -> None:
        self.context.close()

    def call(self, coroutine: Any) -> Any:
        """Run something in the page's loop, and wait for it."""
        return self._loops.call(coroutine)

    def scope(
        self, method: str, target: str, headers: list[tuple[str, str]] | None = None
    ) -> dict[str, Any]:
        """Return the request as a server hands it on."""
        if headers is None:
            headers = [("host", HOST), ("authorization", f"Bearer {TOKEN}")]
            if method not in ("GET", "HEAD", "OPTIONS"):
                headers.append(("content-type", "application/json"))
        split = urlsplit(target)
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "path": split.path,
            "raw_path": split.path.encode(),
            "query_string": split.query.encode(),
            "root_path": "",
            "scheme": "http",
            "headers": [
                (name.encode("latin-1"), value.encode("latin-1")) for name, value in headers
            ],
            "client": ("127.0.0.1", 5),
            "server": ("127.0.0.1", 4711),
            "state": {},
        }

    def ask(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: list[tuple[str, str]] | None = None,
    ) -> Answer:
        """Send a request with exactly these headers, or with the page's."""
        scope = self.scope(method, target, headers)
        answer = Answer()
        parts = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            return parts.pop(0) if parts else {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = [
                    (name.decode("latin-1").lower(), value.decode("latin-1"))
                    for name, value in message["headers"]
                ]
            else:
                answer.body += message.get("body", b"")

        async def run() -> None:
            await self.app(scope, receive, send)

        self._loops.call(run())
        return answer

    def get(self, target: str) -> Any:
        """Return the response of an address, which must succeed."""
        answer = self.ask("GET", target)
        assert answer.status == 200, answer.body
        return answer.json

    def post(self, target: str, body: object = None, method: str = "POST") -> Answer:
        return self.ask(method, target, b"" if body is None else json.dumps(body).encode())
