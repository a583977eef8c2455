"""Suggestions for unknown names: the most similar known one."""

from __future__ import annotations

from collections.abc import Iterable

from logstore.config.broker_keys import BROKER_KEYS
from logstore.config.topic_keys import TOPIC_KEYS

_CUTOFF = 0.7
"""Minimum similarity of a suggestion: one wrong letter of four, or two swapped ones."""


def nearest_topic_key(key: str) -> str | None:
    """Return the topic key of a broker synonym, else the most similar topic key, if any."""
    for row in TOPIC_KEYS.values():
        if any(synonym.key == key for synonym in row.synonyms):
            return row.key
    return nearest(key, TOPIC_KEYS)


def nearest_broker_key(key: str) -> str | None:
    """Return the broker synonym of a topic key, else the most similar broker key, if any."""
    if key in TOPIC_KEYS:
        return TOPIC_KEYS[key].synonyms[0].key
    return nearest(key, BROKER_KEYS)


def and_nearest(name: str, names: Iterable[str]) -> str:
    """Return a suggestion to append to an error about an unknown name; empty if none is similar."""
    return suggestion(nearest(name, names))


def suggestion(near: str | None) -> str:
    """Return the text that suggests `near` at the end of an error, or empty if None."""
    return "" if near is None else f"; the nearest is {near!r}"


def nearest(key: str, names: Iterable[str]) -> str | None:
    """Return the most similar name, else the shortest one that starts with `key`, else None."""
    import difflib  # lazy: needed for errors only

    known = list(names)
    similar = difflib.get_close_matches(key, known, n=1, cutoff=_CUTOFF)
    longer = [name for name in known if key and name.startswith(key)]
    return similar[0] if similar else min(longer, key=len, default=None)
