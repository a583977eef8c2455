"""Kafka's default partitioner."""

from __future__ import annotations

from collections.abc import Sequence

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the unsigned 32-bit murmur2 hash of `data`, with the seed of Kafka's clients."""
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little")
        k = (k * _M) & _MASK
        k ^= k >> 24
        k = (k * _M) & _MASK
        h = ((h * _M) & _MASK) ^ k
    if length > whole:
        h ^= int.from_bytes(data[whole:], "little")
        h = (h * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    return h ^ (h >> 15)


class Partitioner:
    """Kafka's default partitioner.

    It hashes keys. Records without a key are distributed round-robin, one batch at a time.
    """

    def __init__(self) -> None:
        self._next_slot = 0

    def of_key(self, key: bytes, partitions: Sequence[int]) -> int:
        """Return the partition of a key."""
        if len(partitions) == 1:
            return partitions[0]
        return partitions[(murmur2(key) & 0x7FFFFFFF) % len(partitions)]

    def for_null_keys(self, partitions: Sequence[int]) -> int:
        """Return the partition of the next batch of records without a key."""
        slot = self._next_slot % len(partitions)
        self._next_slot += 1
        return partitions[slot]
