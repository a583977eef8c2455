"""The iteration order of Java's hash maps and sets, on which Kafka's assignors depend."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import TypeVar

from logstore.types import decode_topic_id
from logstore.types import java_hash as _java_hash

K = TypeVar("K", str, int)

_FEWEST_BUCKETS = 16
_LOAD_FACTOR = 0.75
_FIBONACCI = -7046029254386353131


java_hash = lru_cache(maxsize=10_000)(_java_hash)


def java_hash_order(keys: Collection[str]) -> list[str]:
    """Return strings, given in insertion order, in the iteration order of a HashMap."""
    return _in_buckets(((java_hash(key), key) for key in keys), _buckets(len(keys)))


def java_id_order(topic_ids: Collection[str], *, is_copy: bool = False) -> list[str]:
    """Return topic ids in the iteration order of a HashMap.

    With `is_copy`, return the order of a HashSet that was created from another collection.
    """
    count = len(topic_ids)
    buckets = _copied_buckets(count) if is_copy else _buckets(count)
    return _in_buckets(((_id_hash(each), each) for each in topic_ids), buckets)


def java_number_order(numbers: Collection[int]) -> list[int]:
    """Return partition numbers, given in ascending order, in the order of a copied HashSet."""
    return _in_buckets(((each, each) for each in numbers), _copied_buckets(len(numbers)))


def timeline_order(keys: Iterable[str]) -> list[str]:
    """Return strings in the iteration order of a TimelineHashMap without removals."""
    slots: list[list[tuple[int, str]]] = [[], []]
    for count, key in enumerate(keys, 1):
        if count * _LOAD_FACTOR > len(slots):
            entries = [entry for slot in slots for entry in slot]
            slots = [[] for _ in range(2 * len(slots))]
            for entry in entries:
                slots[_slot(entry[0], len(slots))].append(entry)
        hashed = java_hash(key)
        slots[_slot(hashed, len(slots))].append((hashed, key))
    return [key for slot in slots for _, key in reversed(slot)]


def _slot(hashed: int, slots: int) -> int:
    mixed = (hashed * _FIBONACCI) & 0xFFFFFFFFFFFFFFFF
    return mixed >> (65 - slots.bit_length())


def id_order_key(topic_id: str) -> tuple[int, int]:
    """Return Java's sort key of a topic id: its two halves as signed 64-bit numbers."""
    data = decode_topic_id(topic_id)
    return int.from_bytes(data[:8], "big", signed=True), int.from_bytes(
        data[8:], "big", signed=True
    )


def _in_buckets(hashed: Iterable[tuple[int, K]], buckets: int) -> list[K]:
    mask = buckets - 1
    return [key for _, key in sorted(((_spread(h) & mask, key) for h, key in hashed), key=_bucket)]


def _bucket(entry: tuple[int, object]) -> int:
    return entry[0]


def _spread(hashed: int) -> int:
    hashed &= 0xFFFFFFFF
    return hashed ^ (hashed >> 16)


def _id_hash(topic_id: str) -> int:
    high, low = id_order_key(topic_id)
    mixed = (high ^ low) & 0xFFFFFFFFFFFFFFFF
    return (mixed >> 32) ^ (mixed & 0xFFFFFFFF)


def _buckets(count: int) -> int:
    """Return the number of buckets of a HashMap that has grown from the default capacity."""
    buckets = _FEWEST_BUCKETS
    while count > buckets * _LOAD_FACTOR:
        buckets *= 2
    return buckets


def _copied_buckets(count: int) -> int:
    """Return the number of buckets of a HashSet that was created from another collection."""
    wanted = max(int(count / _LOAD_FACTOR) + 1, _FEWEST_BUCKETS)
    return 1 << (wanted - 1).bit_length()
