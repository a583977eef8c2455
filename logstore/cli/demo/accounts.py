"""Input of the demo: updates of user accounts, some of which are later closed.

The `user-accounts` preset of `logstore.workload` determines which account is updated when. The
bytes of a record only depend on its offset, so the expected log can be computed without the log or
the cleaner.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from logstore.record.columns import BytesColumn
from logstore.types import DAY_MS
from logstore.workload.draws import DELETES, Stream, key_numbers
from logstore.workload.spec import from_mapping

if TYPE_CHECKING:
    from numpy.typing import NDArray

DAYS = 17
"""Virtual days from the first record to the end."""

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
FIRST_NAMES, LAST_NAMES = _FIRST_NAMES.split(), _LAST_NAMES.split()
PLANS = (b"free", b"plus", b"family")

RECORDS_PER_ACCOUNT = 4
CLOSED_SHARE = 0.02


class Chapter(NamedTuple):
    """A part of the story: offsets [start, stop), written between two days."""

    start: int
    stop: int
    first_day: float
    last_day: float

    @property
    def records(self) -> int:
        """Number of records in the chapter."""
        return self.stop - self.start


class Accounts:
    """Updates of user accounts, by record offset.

    Parameters
    ----------
    records : int
        Number of updates, including closures.
    seed : int
        Seed of the random draws.
    start_ms : int
        Wall-clock time of the first record, in Unix milliseconds.

    Attributes
    ----------
    users : (n,) int64
        Account number of each record.
    tombstones : (n,) bool
        Whether the record has a null value, which closes the account.
    timestamps : (n,) int64
        In milliseconds, never decreasing.
    closed : (m,) int64
        Closed accounts, in ascending order. They have no later records.
    """

    def __init__(self, records: int, seed: int, start_ms: int) -> None:
        self.records = records
        self.start_ms = start_ms
        shares = ((0, 0.85), (0.85, 0.91), (0.91, 0.98), (0.98, 1))
        days = ((0, 6), (6, 7.5), (7.5, 9), (DAYS - 1, DAYS))
        self.chapters = [
            Chapter(round(start * records), round(stop * records), first, last)
            for (start, stop), (first, last) in zip(shares, days, strict=True)
        ]
        self.history, self.closing, self.after_closing, self.latest = self.chapters
        self.accounts = max(records // RECORDS_PER_ACCOUNT, 10)
        self.digits = max(6, len(str(self.accounts - 1)))
        stream = Stream(seed, 0, DELETES)
        spec = from_mapping(
            {
                "preset": "user-accounts",
                "records": records,
                "seed": seed,
                "keys": {"count": self.accounts},
            }
        )
        ranks = key_numbers(spec, 0, np.arange(records))
        # Spread popular accounts over the entire number range.
        self.users: NDArray[np.int64] = np.argsort(stream.words(self.accounts))[ranks]
        self.tombstones = np.zeros(records, np.bool_)
        self.closed = self._close_accounts(stream)
        self.timestamps = start_ms + np.concatenate(
            [
                (np.linspace(each.first_day, each.last_day, each.records, endpoint=False) * DAY_MS)
                for each in self.chapters
            ]
        ).astype(np.int64)
        counts = np.bincount(self.users, minlength=self.accounts)
        self.erased = int(self.closed[np.argmax(counts[self.closed])])

    def _close_accounts(self, stream: Stream) -> NDArray[np.int64]:
        """Close some accounts and move their later updates to open accounts."""
        known = np.unique(self.users[: self.history.stop])
        count = max(1, round(self.accounts * CLOSED_SHARE))
        closed = known[np.argsort(stream.words(len(known)))[:count]]
        chapter = self.closing
        rows = chapter.start + np.argsort(stream.words(chapter.records))[:count]
        self.users[rows] = closed
        self.tombstones[rows] = True
        closed_at = np.full(self.accounts, self.records, np.int64)
        closed_at[closed] = rows
        too_late = np.flatnonzero(np.arange(self.records) > closed_at[self.users])
        open_accounts = np.flatnonzero(closed_at == self.records)
        self.users[too_late] = open_accounts[self.users[too_late] % len(open_accounts)]
        return np.sort(closed)

    def count_users(self, rows: NDArray[np.int64] | slice) -> int:
        """Count the accounts that the given records update."""
        return int(np.count_nonzero(np.bincount(self.users[rows])))

    def key(self, user: int) -> bytes:
        """Return the key of an account."""
        return f"user-{user:0{self.digits}}".encode()

    def name(self, user: int) -> str:
        """Return the name of an account holder."""
        last = LAST_NAMES[user // len(FIRST_NAMES) % len(LAST_NAMES)]
        return f"{FIRST_NAMES[user % len(FIRST_NAMES)]} {last}"

    def email(self, user: int) -> bytes:
        """Return the e-mail address of an account. It ends with the account number."""
        text = self.name(user).lower().replace(" ", ".")
        return f"{text}.{user:0{self.digits}}@example.org".encode()

    @property
    def traces(self) -> re.Pattern[bytes]:
        """A pattern for keys and e-mail addresses. A group captures the account number."""
        number = rb"(\d{%d})" % self.digits
        return re.compile(rb"user-" + number + rb"|\." + number + rb"@example\.org")

    @lru_cache(maxsize=1 << 18)  # noqa: B019  # one instance a run
    def _holder(self, user: int) -> tuple[bytes, bytes]:
        """Return the key of an account, and the constant part of its values."""
        name, email, phone = self.name(user), self.email(user).decode(), user * 7919 % 10_000_000
        text = f'{{"name":"{name}","email":"{email}","phone":"+1-555-{phone:07}","plan":"'
        return self.key(user), text.encode()

    def _pairs(self, start: int, stop: int) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the keys and values of the records in [start, stop)."""
        users, closures = self.users[start:stop].tolist(), self.tombstones[start:stop].tolist()
        for row, user, is_closure in zip(range(start, stop), users, closures, strict=True):
            key, holder = self._holder(user)
            plan = PLANS[(user + row) % len(PLANS)]
            yield key, None if is_closure else b'%b%b","revision":%d}' % (holder, plan, row + 1)

    def columns(self, start: int, stop: int) -> tuple[BytesColumn, BytesColumn]:
        """Return the keys and values of the records in [start, stop)."""
        keys, values = zip(*self._pairs(start, stop), strict=True)
        return BytesColumn.from_list(keys), BytesColumn.from_list(values)

    def record(self, row: int) -> tuple[int, bytes, bytes | None]:
        """Return the timestamp, key and value of one record."""
        ((key, value),) = self._pairs(row, row + 1)
        return int(self.timestamps[row]), key, value
