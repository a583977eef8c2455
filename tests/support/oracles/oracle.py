"""A log as a list and a cleaner as a dict: the specification without bytes.

Written from docs/spec/cleaner.md §5, §6 and §8 for the offset strategy without transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple


class Item(NamedTuple):
    """The part of a record that matters for cleaning."""

    offset: int
    key: bytes | None
    value: bytes | None


def latest_values(items: Iterable[Item]) -> dict[bytes, bytes]:
    """The table that a log represents: the last value of each key, without deleted keys."""
    table: dict[bytes, bytes] = {}
    for item in items:
        if item.key is None:
            continue
        if item.value is None:
            table.pop(item.key, None)
        else:
            table[item.key] = item.value
    return table


def survivors(items: Sequence[Item], end_offset: int) -> list[Item]:
    """The result of a first pass over everything below `end_offset`: no tombstone expires."""
    last = {item.key: item.offset for item in items if item.offset < end_offset}
    return [
        item
        for item in items
        if item.offset >= end_offset or (item.key is not None and last[item.key] == item.offset)
    ]


@dataclass
class Batch:
    """Records that were appended together, and the horizon that their tombstones share."""

    items: list[Item]
    last_offset: int
    horizon_ms: int | None = None


@dataclass
class OracleLog:
    """All batches of a log, and the end of its clean section.

    Attributes
    ----------
    first_dirty : int
        Where the next pass begins to map.
    """

    batches: list[Batch] = field(default_factory=list)
    next_offset: int = 0
    first_dirty: int = 0

    def append(self, pairs: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        """Append one batch."""
        first = self.next_offset
        items = [Item(first + at, key, value) for at, (key, value) in enumerate(pairs)]
        self.next_offset += len(items)
        self.batches.append(Batch(items, self.next_offset - 1))

    @property
    def items(self) -> list[Item]:
        """Every remaining record."""
        return [item for batch in self.batches for item in batch.items]

    def plan(
        self, bases: Sequence[int], upper_bound: int, limit: int
    ) -> tuple[dict[bytes, int], int]:
        """Map the records of [first dirty, upper bound); return the map and its last offset.

        `bases` are the segments' base offsets, `limit` is the maximum number of keys.
        """
        offsets: dict[bytes, int] = {}
        latest = self.first_dirty - 1
        for base, following in pairwise(bases):
            if following <= self.first_dirty or base >= upper_bound:
                continue
            for batch in self.batches:
                if not base <= batch.last_offset < following:
                    continue
                for item in batch.items:
                    if item.key is None or item.offset < self.first_dirty:
                        continue
                    if len(offsets) >= limit:
                        return offsets, latest
                    offsets[item.key] = latest = item.offset
                if batch.last_offset >= self.first_dirty:
                    latest = batch.last_offset
            latest = following - 1
        return offsets, latest

    def rewrite(
        self,
        offsets: dict[bytes, int],
        latest: int,
        below: int,
        upper_bound: int,
        now_ms: int,
        retention_ms: int,
    ) -> None:
        """Filter the batches of the segments below `below` through a map.

        An emptied batch is removed unless it ends the round.
        """
        for batch in self.batches:
            if batch.last_offset >= below:
                continue
            expired = batch.horizon_ms is not None and now_ms >= batch.horizon_ms
            batch.items = [
                item
                for item in batch.items
                if item.offset > latest
                or (
                    item.key is not None
                    and item.offset >= offsets.get(item.key, -1)
                    and not (item.value is None and expired)
                )
            ]
            tombstones = any(item.value is None for item in batch.items)
            if tombstones and batch.horizon_ms is None:
                batch.horizon_ms = now_ms + retention_ms
        self.batches = [
            batch
            for batch in self.batches
            if batch.items or batch.last_offset >= below or batch.last_offset == upper_bound - 1
        ]
