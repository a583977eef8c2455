"""Checks of the demo, which compare the result with the input independently of the cleaner."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from logstore.errors import LogStoreError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from logstore.broker import Broker
    from logstore.cli.demo.accounts import Accounts


def expected_offsets(
    accounts: Accounts, cleaned_to: int, *, with_tombstones: bool
) -> NDArray[np.int64]:
    """Return the offsets that must remain after cleaning.

    Parameters
    ----------
    cleaned_to : int
        Offset below which only the last record of each key is retained.
    with_tombstones : bool
        Whether tombstones are retained, because their delete horizon has not passed.
    """
    latest = dict(zip(accounts.users[:cleaned_to].tolist(), range(cleaned_to), strict=True))
    kept = np.sort(np.fromiter(latest.values(), np.int64, len(latest)))
    if not with_tombstones:
        kept = kept[~accounts.tombstones[kept]]
    return np.concatenate([kept, np.arange(cleaned_to, accounts.records)])


def verify_records(
    broker: Broker, topic: str, accounts: Accounts, expected: NDArray[np.int64]
) -> tuple[int, str | None]:
    """Read a topic and compare the offset, time, key and value of every record.

    Returns
    -------
    checked : int
        Number of correct records.
    problem : str or None
        The first difference, or None if there is none.
    """
    checked = 0
    try:
        for row, record in zip_longest(expected.tolist(), broker.read(topic, 0)):
            if record is None:
                return checked, f"the log ends before the expected offset {row}"
            if row is None:
                return checked, f"unexpected record at offset {record.offset}"
            if record.offset != row:
                return checked, f"expected offset {row}, read offset {record.offset}"
            wanted = (*accounts.record(row), ())
            got = (record.timestamp, record.key, record.value, record.headers)
            if got != wanted:
                return checked, f"offset {row}: {got!r} is not {wanted!r}"
            checked += 1
    except LogStoreError as error:
        return checked, str(error)
    return checked, None


def offsets_left(broker: Broker, topic: str) -> NDArray[np.int64]:
    """Return the offsets of all records in partition 0 of a topic."""
    log = broker.log(topic)
    batches = log.reader.batches(log.log_start_offset)
    return np.concatenate([batch.columns().offsets for batch in batches])


class Traces(NamedTuple):
    """The result of searching files for accounts.

    Attributes
    ----------
    files, size_bytes : int
        Files searched.
    accounts : int
        Accounts whose key or e-mail address was found.
    closed : int
        Number of closed accounts among the accounts found.
    where : str or None
        The first file with a trace of a closed account.
    """

    files: int
    size_bytes: int
    accounts: int
    closed: int
    where: str | None


def search_files(directory: Path, accounts: Accounts) -> Traces:
    """Search all files for keys and e-mail addresses."""
    closed = set(accounts.closed.tolist())
    seen: set[int] = set()
    files = size = 0
    where = None
    for path in _files(directory):
        data = path.read_bytes()
        files += 1
        size += len(data)
        found = {int(a or b) for a, b in set(accounts.traces.findall(data))}
        if where is None and not closed.isdisjoint(found):
            where = str(path)
        seen |= found
    return Traces(files, size, len(seen), len(seen & closed), where)


def occurrences(directory: Path, needle: bytes) -> int:
    """Count occurrences of a byte string in the files of a directory."""
    return sum(path.read_bytes().count(needle) for path in _files(directory))


def _files(directory: Path) -> list[Path]:
    return sorted(file for file in directory.rglob("*") if file.is_file())
