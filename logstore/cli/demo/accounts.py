"""The demo's input: updates of user accounts, some of which are closed.

A pure function of size, seed and time: who is updated when and which accounts are closed is
drawn once, and the bytes of any record can be made again at any time. So what a log must hold
can be computed without asking the log, or the cleaner.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from logstore.record.columns import BytesColumn
from logstore.types import DAY_MS

if TYPE_CHECKING:
    from numpy.typing import NDArray


DAYS = 17
"""Virtual days from the first record to the end of the story."""

_FIRST_NAMES = (
    "Ada Amir Anna Ben Carl Chen Clara Dana David Elif Emma Enzo Eva Femi Finn Grace Hana Hugo "
    "Ida Igor Ines Ivan Jack Jana Joao Julia Kai Kemal Lara Leo Lina Luis Maja Marco Maria Mia "
    "Milan Mira Nadia Nina Noah Olga Omar Paula Pedro Rosa Sami Sara Simon Tara Theo Yara Zoe"
)
_LAST_NAMES = (
    "Adams Ahmed Bauer Becker Blanc Brown Clark Costa Cruz Diaz Evans Farah Fischer Garcia Green "
    "Haas Hansen Ito Jansen Jones Khan Kim Klein Kovacs Kumar Lang Lee Lopez Martin Meyer Miller "
    "Moore Mori Nagy Novak Okoye Olsen Park Patel Perez Reed Rossi Sato Silva Smith Tanaka Weber "
    "Wolf Wood Young Zhang"
)
FIRST_NAMES = _FIRST_NAMES.split()
LAST_NAMES = _LAST_NAMES.split()
PLANS = ("free", "plus", "family")

SKEW = 0.8
"""Exponent of the Zipf-like law by which accounts are updated."""

RECORDS_A_USER = 4
CLOSED_SHARE = 0.02


class Chapter(NamedTuple):
    """A stretch of the story: rows [start, stop), written from one day to another."""

    start: int
    stop: int
    first_day: float
    last_day: float

    @property
    def records(self) -> int:
        """Rows in it."""
        return self.stop - self.start


class Columns(NamedTuple):
    """Records to append, as columns."""

    keys: BytesColumn
    values: BytesColumn
    timestamps: NDArray[np.int64]

    def slice(self, start: int, stop: int) -> Columns:
        """Return rows [start, stop)."""
        return Columns(
            self.keys.slice(start, stop),
            self.values.slice(start, stop),
            self.timestamps[start:stop],
        )


class Accounts:
    """Updates of user accounts; a row's number is the offset that its record will get.

    Parameters
    ----------
    records : int
        Updates in all, closures among them.
    seed : int
        The same numbers draw the same story.
    start_ms : int
        Wall time at which it begins, in Unix ms.

    Attributes
    ----------
    users : (n,) int64
        Number of the account that each row is about.
    tombstones : (n,) bool
        Whether the row closes the account: its value is null.
    timestamps : (n,) int64
        In ms, never going back.
    closed : (m,) int64
        The closed accounts, rising; none of them is updated after it was closed.
    """

    def __init__(self, records: int, seed: int, start_ms: int) -> None:
        self.records = records
        self.start_ms = start_ms
        self.history = self._chapter(0, 0.85, 0, 6)
        self.closing = self._chapter(0.85, 0.91, 6, 7.5)
        self.after_closing = self._chapter(0.91, 0.98, 7.5, 9)
        self.latest = self._chapter(0.98, 1, DAYS - 1, DAYS)
        self.accounts = max(records // RECORDS_A_USER, 10)
        self.digits = max(6, len(str(self.accounts - 1)))
        rng = np.random.default_rng(seed)
        self.users = _zipf(rng, records, self.accounts)
        self.tombstones = np.zeros(records, np.bool_)
        self.closed = self._close_accounts(rng)
        self.timestamps = self._spread()
        self.erased = self._most_updated_closed()

    def _chapter(self, start: float, stop: float, first_day: float, last_day: float) -> Chapter:
        records = self.records
        return Chapter(round(start * records), round(stop * records), first_day, last_day)

    def _close_accounts(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Let some accounts be closed, and let nobody touch them afterwards."""
        known = np.flatnonzero(np.bincount(self.users[: self.history.stop]))
        count = max(1, round(self.accounts * CLOSED_SHARE))
        closed = rng.choice(known, count, replace=False)
        chapter = self.closing
        rows = chapter.start + rng.choice(chapter.records, count, replace=False)
        self.users[rows] = closed
        self.tombstones[rows] = True
        closed_at = np.full(self.accounts, self.records, np.int64)
        closed_at[closed] = rows
        too_late = np.flatnonzero(np.arange(self.records) > closed_at[self.users])
        open_accounts = np.flatnonzero(closed_at == self.records)
        self.users[too_late] = open_accounts[self.users[too_late] % len(open_accounts)]
        return np.sort(closed)

    def _spread(self) -> NDArray[np.int64]:
        """Return times that fill each chapter evenly."""
        parts = [
            np.linspace(chapter.first_day, chapter.last_day, chapter.records, endpoint=False)
            for chapter in (self.history, self.closing, self.after_closing, self.latest)
        ]
        return self.start_ms + (np.concatenate(parts) * DAY_MS).astype(np.int64)

    def _most_updated_closed(self) -> int:
        counts = np.bincount(self.users, minlength=self.accounts)
        return int(self.closed[np.argmax(counts[self.closed])])

    def count_users(self, rows: NDArray[np.int64] | slice) -> int:
        """Return how many accounts some rows are about."""
        return int(np.count_nonzero(np.bincount(self.users[rows])))

    # -- bytes ---------------------------------------------------------------------------

    def key(self, user: int) -> bytes:
        """Return the key of an account."""
        return f"user-{user:0{self.digits}}".encode()

    def name(self, user: int) -> str:
        """Return the name of an account's holder."""
        first, last = _name_numbers(user)
        return f"{FIRST_NAMES[first]} {LAST_NAMES[last]}"

    def email(self, user: int) -> bytes:
        """Return the e-mail address of an account; it ends in the account's number."""
        text = self.name(user).lower().replace(" ", ".")
        return f"{text}.{user:0{self.digits}}@example.org".encode()

    @property
    def traces(self) -> re.Pattern[bytes]:
        """A pattern for a key or an e-mail address; a group holds the account's number."""
        number = rb"(\d{%d})" % self.digits
        return re.compile(rb"user-" + number + rb"|\." + number + rb"@example\.org")

    def columns(self, rows: Sequence[int] | NDArray[np.int64] | slice) -> Columns:
        """Return the records of some rows. O(rows), some MB for each 10,000 of them."""
        users = self.users[rows]
        numbers = np.arange(self.records)[rows] if isinstance(rows, slice) else np.asarray(rows)
        count = len(users)
        number_text = _digits(users, self.digits)
        keys = np.concatenate([_constant(b"user-", count), number_text], axis=1)
        first, last = _name_numbers(users)
        parts = [
            _constant(b'{"name":"', count),
            _FIRST[first],
            _constant(b" ", count),
            _LAST[last],
            _constant(b'","email":"', count),
            _FIRST_LOWER[first],
            _constant(b".", count),
            _LAST_LOWER[last],
            _constant(b".", count),
            number_text,
            _constant(b'@example.org","phone":"+1-555-', count),
            _digits(users * 7919 % 10_000_000, 7),
            _constant(b'","plan":"', count),
            _PLAN[(users + numbers) % len(PLANS)],
            _constant(b'","revision":', count),
            _without_leading_zeros(_digits(numbers + 1, len(str(self.records)))),
            _constant(b"}", count),
        ]
        values = _column(np.concatenate(parts, axis=1))
        values.sizes[self.tombstones[rows]] = -1
        return Columns(_column(keys), values, self.timestamps[rows])


def _zipf(rng: np.random.Generator, count: int, accounts: int) -> NDArray[np.int64]:
    """Draw accounts: the r-th most popular with a weight of 1/r^SKEW, in no order of numbers."""
    weights = 1 / np.arange(1, accounts + 1) ** SKEW
    cumulated = np.cumsum(weights)
    ranks = np.searchsorted(cumulated, rng.random(count) * cumulated[-1], side="right")
    drawn: NDArray[np.int64] = rng.permutation(accounts)[np.minimum(ranks, accounts - 1)]
    return drawn


def _name_numbers(user: NDArray[np.int64] | int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return user % len(FIRST_NAMES), user // len(FIRST_NAMES) % len(LAST_NAMES)  # type: ignore[return-value]  # ints for an int


# Text as rows of bytes: shorter ones end in zeros, which no text here contains.


def _lines(texts: Sequence[str]) -> NDArray[np.uint8]:
    width = max(map(len, texts))
    data = b"".join(text.encode().ljust(width, b"\0") for text in texts)
    return np.frombuffer(data, np.uint8).reshape(len(texts), width)


_FIRST = _lines(FIRST_NAMES)
_LAST = _lines(LAST_NAMES)
_FIRST_LOWER = _lines([name.lower() for name in FIRST_NAMES])
_LAST_LOWER = _lines([name.lower() for name in LAST_NAMES])
_PLAN = _lines(PLANS)


def _constant(text: bytes, count: int) -> NDArray[np.uint8]:
    return np.broadcast_to(np.frombuffer(text, np.uint8), (count, len(text)))


def _digits(numbers: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
    powers = 10 ** np.arange(width - 1, -1, -1, dtype=np.int64)
    return (numbers[:, np.newaxis] // powers % 10 + ord("0")).astype(np.uint8)


def _without_leading_zeros(digits: NDArray[np.uint8]) -> NDArray[np.uint8]:
    started = np.logical_or.accumulate(digits != ord("0"), axis=1)
    return np.where(started, digits, np.uint8(0))


def _column(rows: NDArray[np.uint8]) -> BytesColumn:
    """Pack rows of bytes, without the zeros that fill them up."""
    used = rows != 0
    sizes = used.sum(axis=1, dtype=np.int32)
    starts = np.zeros(len(sizes), np.int64)
    np.cumsum(sizes[:-1], out=starts[1:])
    return BytesColumn(rows[used], starts, sizes)
