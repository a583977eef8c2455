"""Locations of a key's bytes, and the times when they can be deleted."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from logstore.ui.asking import get
from logstore.ui.errors import InvalidRequestError

if TYPE_CHECKING:
    from logstore.ui.asking import Ask


def erasure(ask: Ask) -> dict[str, Any]:
    """Find all locations of a key in a partition's files."""
    tp = ask.topic_partition("read")
    report = ask.broker.erasure(tp.topic, _key(ask), tp.partition)
    return report.to_json()


def _key(ask: Ask) -> bytes:
    """Return the key given as text or as base64."""
    given = [name for name in ("key", "key_base64") if name in ask.query]
    if len(given) != 1:
        raise InvalidRequestError("give one of key and key_base64", field="key")
    text = ask.text(given[0])
    if given == ["key"]:
        return text.encode("utf-8", "surrogateescape")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:  # also raised for non-ASCII characters
        raise InvalidRequestError(
            f"key_base64: {text[:80]!r} is not base64: {error}", field="key_base64"
        ) from error


ROUTES = (get("/api/partitions/{topic}/{partition}/erasure", erasure, "key", "key_base64"),)
