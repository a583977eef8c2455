"""Suggestions for unknown names: the most similar known name."""

from __future__ import annotations

from collections.abc import Iterable

from logstore.config.broker_keys import BROKER_KEYS
from logstore.config.topic_keys import TOPIC_KEYS

_CUTOFF = 0.7
"""Minimum similarity of a suggestion. One wrong letter in four is allowed, or two swapped ones."""


def nearest_topic_key(key: str) -> str | None:
    """Suggest the topic key that a broker key is a synonym of, or the most similar one."""
    for row in TOPIC_KEYS.values():
        if any(synonym.key == key for synonym in row.synonyms):
            return row.key
    return nearest(key, TOPIC_KEYS)


def nearest_broker_key(key: str) -> str | None:
    """Suggest the broker key that corresponds to a topic key, or the most similar broker key."""
    if key in TOPIC_KEYS:
        return TOPIC_KEYS[key].synonyms[0].key
    return nearest(key, BROKER_KEYS)


def and_nearest(name: str, names: Iterable[str]) -> str:
    """Return a suggestion to append to an error about an unknown name. Empty if there is none."""
    return suggestion(nearest(name, names))


def suggestion(near: str | None) -> str:
    """Return the text that suggests `near` at the end of an error. Empty if it is None."""
    return "" if near is None else f"; the nearest is {near!r}"


def nearest(key: str, names: Iterable[str]) -> str | None:
    """Return the most similar name, else the shortest extension of `key`, or None if none fits."""
    import difflib  # imported here, because it is only needed for errors

    known = list(names)
    similar = difflib.get_close_matches(key, known, n=1, cutoff=_CUTOFF)
    longer = [name for name in known if key and name.startswith(key)]
    return similar[0] if similar else min(longer, key=len, default=None)
