"""The demo checks its own result: from what was written alone, never from the cleaner.

What must be left is computed by the definition of compaction with a dict; what is left is read
like any consumer reads it, and like anybody reads files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from logstore.errors import LogStoreError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from logstore.broker import Broker
    from logstore.cli.demo.accounts import Accounts
    from logstore.record.columns import BytesColumn

ROWS_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """A check: what it compared, and the first thing it found wrong; None if nothing."""

    records: int
    keys: int
    problem: str | None


def expected_offsets(
    accounts: Accounts, cleaned_to: int, *, with_tombstones: bool
) -> NDArray[np.int64]:
    """Return the offsets that a log must hold after cleaning.

    Parameters
    ----------
    cleaned_to : int
        Below it each key keeps its last record only; from it on everything stays.
    with_tombstones : bool
        Whether a last record without a value stays too (before its delete horizon).
    """
    latest = dict(zip(accounts.users[:cleaned_to].tolist(), range(cleaned_to), strict=True))
    kept = np.sort(np.fromiter(latest.values(), np.int64, len(latest)))
    if not with_tombstones:
        kept = kept[~accounts.tombstones[kept]]
    return np.concatenate([kept, np.arange(cleaned_to, accounts.records)])


def verify_records(
    broker: Broker, topic: str, accounts: Accounts, expected: NDArray[np.int64]
) -> Verdict:
    """Read a topic from its start and compare offset, time, key and value of every record."""
    keys = accounts.count_users(expected)
    checked = 0
    try:
        found = broker.read(topic, 0)
        for start in range(0, len(expected), ROWS_AT_ONCE):
            rows = expected[start : start + ROWS_AT_ONCE]
            columns = accounts.columns(rows)
            for offset, timestamp, key, value in zip(
                rows.tolist(),
                columns.timestamps.tolist(),
                _texts(columns.keys),
                _texts(columns.values),
                strict=True,
            ):
                record = next(found, None)
                if record is None:
                    return Verdict(
                        checked, keys, f"the log ends where the record of offset {offset} belongs"
                    )
                if record.offset != offset:
                    return Verdict(
                        checked, keys, f"expected offset {offset}, read offset {record.offset}"
                    )
                wanted = (timestamp, key, value, ())
                got = (record.timestamp, record.key, record.value, record.headers)
                if got != wanted:
                    return Verdict(checked, keys, f"offset {offset}: {got!r} is not {wanted!r}")
                checked += 1
        extra = next(found, None)
    except LogStoreError as error:
        return Verdict(checked, keys, str(error))
    if extra is not None:
        return Verdict(checked, keys, f"the log holds offset {extra.offset}, which must be gone")
    return Verdict(checked, keys, None)


def _texts(column: BytesColumn) -> list[bytes | None]:
    raw = column.data.tobytes()
    return [
        None if size < 0 else raw[start : start + size]
        for start, size in zip(column.starts.tolist(), column.sizes.tolist(), strict=True)
    ]


def offsets_left(broker: Broker, topic: str) -> NDArray[np.int64]:
    """Return the offsets of all records of a topic's partition 0."""
    log = broker.log(topic)
    batches = log.reader.batches(log.log_start_offset)
    return np.concatenate([batch.columns().offsets for batch in batches])


@dataclass(frozen=True, slots=True)
class Traces:
    """The outcome of a search of files for accounts.

    Attributes
    ----------
    files, size_bytes : int
        The files that were searched.
    accounts : int
        Accounts of which a key or an e-mail address was found.
    closed : int
        The closed ones of them.
    where : str or None
        A file that holds one of a closed account.
    """

    files: int
    size_bytes: int
    accounts: int
    closed: int
    where: str | None


def search_files(directory: Path, accounts: Accounts) -> Traces:
    """Search every byte of every file for keys and e-mail addresses."""
    closed = set(accounts.closed.tolist())
    seen: set[int] = set()
    files = size = 0
    where = None
    for path in sorted(file for file in directory.rglob("*") if file.is_file()):
        data = path.read_bytes()
        files += 1
        size += len(data)
        found = {int(a or b) for a, b in set(accounts.traces.findall(data))}
        if where is None and not closed.isdisjoint(found):
            where = str(path)
        seen |= found
    return Traces(files, size, len(seen), len(seen & closed), where)


def occurrences(directory: Path, needle: bytes) -> int:
    """Count how often some bytes stand in the files of a directory."""
    paths = sorted(file for file in directory.rglob("*") if file.is_file())
    return sum(path.read_bytes().count(needle) for path in paths)
