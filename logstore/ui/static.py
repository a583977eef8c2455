"""Static files of the page, read once and served from memory."""

from __future__ import annotations

from hashlib import blake2b
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

    from starlette.requests import Request

KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
"""Content types by file suffix. Other files are not served."""

INDEX = "/index.html"


class _File(NamedTuple):
    content: bytes
    kind: str
    tag: str


class StaticFiles:
    """Static files by URL path. `/` is the index."""

    def __init__(self) -> None:
        self._files = dict(_found(files("logstore.ui") / "front", ""))
        self._files["/"] = self._files[INDEX]

    def addresses(self) -> list[str]:
        """Return all URL paths."""
        return sorted(self._files)

    async def answer(self, request: Request) -> Response | None:
        """Return a file, a 304 response if the client has it, or None if it does not exist."""
        file = self._files.get(request.url.path)
        if file is None:
            return None
        headers = {"ETag": file.tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers=headers, media_type=file.kind)


def _found(folder: Traversable, above: str) -> Iterator[tuple[str, _File]]:
    for each in folder.iterdir():
        address = f"{above}/{each.name}"
        if each.is_dir():
            yield from _found(each, address)
            continue
        kind = KINDS.get(f".{each.name.rpartition('.')[2]}")
        if kind is not None:
            content = each.read_bytes()
            tag = blake2b(content, digest_size=16).hexdigest()
            yield address, _File(content, kind, f'"{tag}"')
