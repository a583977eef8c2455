"""The key that was meant, for one that is unknown."""

from __future__ import annotations

from collections.abc import Iterable

from logstore.config.broker_keys import BROKER_KEYS
from logstore.config.topic_keys import TOPIC_KEYS


def nearest_topic_key(key: str) -> str:
    """Return the topic key that was meant, perhaps: a broker synonym's own, or one alike."""
    for row in TOPIC_KEYS.values():
        if any(synonym.key == key for synonym in row.synonyms):
            return row.key
    return nearest(key, TOPIC_KEYS)


def nearest_broker_key(key: str) -> str:
    """Return the broker key that was meant, perhaps: a topic key's synonym, or one alike."""
    if key in TOPIC_KEYS:
        return TOPIC_KEYS[key].synonyms[0].key
    return nearest(key, BROKER_KEYS)


def and_nearest(name: str, names: Iterable[str]) -> str:
    """Return the words that end a message about an unknown name."""
    return f"; the nearest is {nearest(name, names)!r}"


def nearest(key: str, names: Iterable[str]) -> str:
    """Return the name that is most alike."""
    import difflib  # only a mistake needs it

    return difflib.get_close_matches(key, list(names), n=1, cutoff=0.0)[0]
