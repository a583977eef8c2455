"""Locations of a key's bytes, and the times when they can be deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logstore.ui.asking import get
from logstore.ui.errors import InvalidRequestError

if TYPE_CHECKING:
    from logstore.ui.asking import Ask


def erasure(ask: Ask) -> dict[str, Any]:
    """Find all locations of a key in a partition's files."""
    tp = ask.topic_partition("read")
    key = ask.key()
    if key is None:
        raise InvalidRequestError("give one of key and key_base64", field="key")
    report = ask.broker.erasure(tp.topic, key, tp.partition)
    return report.to_json()


ROUTES = (get("/api/partitions/{topic}/{partition}/erasure", erasure, "key", "key_base64"),)
