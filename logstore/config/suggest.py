"""The key that was meant, for one that is unknown."""

from __future__ import annotations

from collections.abc import Iterable

from logstore.config.broker_keys import BROKER_KEYS
from logstore.config.topic_keys import TOPIC_KEYS

_CUTOFF = 0.7
"""Least likeness of a suggestion: one letter of four may be wrong, or two be swapped."""


def nearest_topic_key(key: str) -> str | None:
    """Return the topic key that was meant: a broker synonym's own, or a similar one."""
    for row in TOPIC_KEYS.values():
        if any(synonym.key == key for synonym in row.synonyms):
            return row.key
    return nearest(key, TOPIC_KEYS)


def nearest_broker_key(key: str) -> str | None:
    """Return the broker key that was meant: a topic key's synonym, or a similar one."""
    if key in TOPIC_KEYS:
        return TOPIC_KEYS[key].synonyms[0].key
    return nearest(key, BROKER_KEYS)


def and_nearest(name: str, names: Iterable[str]) -> str:
    """Return the words that end a message about an unknown name; empty if none is similar."""
    return suggesting(nearest(name, names))


def suggesting(near: str | None) -> str:
    """Return the words that suggest a name at the end of a message; empty without one."""
    return "" if near is None else f"; the nearest is {near!r}"


def nearest(key: str, names: Iterable[str]) -> str | None:
    """Return the name that is most similar, or the shortest that begins with `key`.

    None if all names are unrelated: a wrong suggestion misleads more than none.
    """
    import difflib  # only a mistake needs it

    known = list(names)
    similar = difflib.get_close_matches(key, known, n=1, cutoff=_CUTOFF)
    longer = [name for name in known if key and name.startswith(key)]
    return similar[0] if similar else min(longer, key=len, default=None)
