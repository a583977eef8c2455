"""A second implementation of strategies with versions: plain Python on ints and dicts.

Twins of `cleaner/kernels/versions.py` and of its use in `mapping` and `classify`, from cleaner §13;
it imports nothing from `cleaner`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from logstore.record.batch import RecordBatch
from logstore.record.records import Header, Record

MISSING, FOUND, MALFORMED = "missing", "found", "malformed"

Order = tuple[bool, int, int]
"""(has a version, version, offset)."""


class By(NamedTuple):
    """The order of records: by `timestamp`, or by a header as `long` or `varlong`."""

    form: str
    header: str = "v"


def stated_version(headers: Sequence[Header], by: By) -> tuple[str, int]:
    """Return the value of the last header of the name (cleaner §13.2)."""
    values = [value for name, value in headers if name == by.header]
    if not values or values[-1] is None:
        return MISSING, 0
    value = values[-1]
    if by.form == "long":
        if len(value) != 8:
            return MALFORMED, 0
        number = sum(byte << 8 * (7 - at) for at, byte in enumerate(value))
        return FOUND, number - (number >> 63 << 64)
    ends = [at for at, byte in enumerate(value) if byte < 0x80]
    if not ends or ends[0] != len(value) - 1 or len(value) > 10:
        return MALFORMED, 0
    zigzag = sum((byte & 0x7F) << 7 * at for at, byte in enumerate(value)) % 2**64
    return FOUND, -(zigzag + 1) // 2 if zigzag % 2 else zigzag // 2


def order_of(record: Record, by: By) -> Order:
    """Return the order of a record among the records of its key."""
    if by.form == "timestamp":
        return True, record.timestamp, record.offset
    status, version = stated_version(record.headers, by)
    return status == FOUND, version, record.offset


@dataclass
class VersionKeyMap:
    """A map with versions: the winner of each key, and the highest offset that competed for it.

    Attributes
    ----------
    keep_offset, safe_ms : int
        The record that stays whatever it is, and the latest horizon that is known to be safe.
    unversioned, malformed : int
        Records put without a version, and how many of them have a malformed header.
    """

    by: By
    latest_offset: int
    keep_offset: int = -1
    safe_ms: int = 0
    winners: dict[bytes, Order] = field(default_factory=dict)
    highest: dict[bytes, int] = field(default_factory=dict)
    messages: int = 0
    unversioned: int = 0
    malformed: int = 0
    full: bool = False

    def compete(self, record: Record) -> None:
        """Compare a record with its key's winner."""
        assert record.key is not None
        order = order_of(record, self.by)
        self.winners[record.key] = max(self.winners.get(record.key, order), order)
        self.highest[record.key] = max(self.highest.get(record.key, -1), record.offset)

    def has_later_loser(self, key: bytes) -> bool:
        """Return whether a record of a higher offset was superseded by a key's winner (cleaner
        §13.5)."""
        return key in self.winners and self.highest[key] > self.winners[key][2]

    def build(
        self,
        batches: Sequence[RecordBatch],
        start: int,
        end: int,
        limit: int,
        aborted: Collection[int] = (),
    ) -> None:
        """Map the records of [start, end), until there are `limit` keys (cleaner §13.5.1)."""
        for number, batch in enumerate(batches):
            header = batch.header
            if header.is_control or number in aborted:
                self.messages += 1 if header.is_control else header.record_count
            else:
                for record in batch.records():
                    if record.key is not None and start <= record.offset < end:
                        if len(self.winners) >= limit:
                            self.full = True
                            return
                        self.compete(record)
                        self.latest_offset = record.offset
                        if self.by.form != "timestamp":
                            status, _ = stated_version(record.headers, self.by)
                            self.unversioned += status != FOUND
                            self.malformed += status == MALFORMED
                    self.messages += 1
            if header.last_offset >= start:
                self.latest_offset = header.last_offset

    def seed(
        self, batches: Sequence[RecordBatch], start: int, end: int, aborted: Collection[int] = ()
    ) -> None:
        """Compare the records of [start, end) with the winners of known keys (cleaner §13.5.2)."""
        for number, batch in enumerate(batches):
            if not batch.header.is_control and number not in aborted:
                for record in batch.records():
                    if record.key in self.winners and start <= record.offset < end:
                        self.compete(record)

    def fate(self, record: Record, horizon: int | None, now_ms: int) -> str:
        """Return the fate of a data record that the map speaks for (cleaner §13.5.3)."""
        if record.offset == self.keep_offset:
            return "retained"
        if record.key is None:
            return "null_key"
        order = order_of(record, self.by)
        if order < self.winners.get(record.key, order):
            return "superseded"
        if record.value is not None or horizon is None or now_ms < horizon:
            return "retained"
        if self.has_later_loser(record.key) or horizon > self.safe_ms:
            return "retained"
        return "tombstone_expired"
