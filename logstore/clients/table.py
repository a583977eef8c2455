"""Tables: the surviving record of each key under a topic's compaction strategy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from logstore.cleaner.strategy import KeySurvivors, Strategy
from logstore.clients.records import ConsumerRecord, read_records

if TYPE_CHECKING:
    from logstore.config.log_config import LogConfig
    from logstore.faults.rules import Faults
    from logstore.storage.log.log import Log
    from logstore.storage.log.reader import Isolation


def latest_per_key(
    records: Iterable[ConsumerRecord], config: LogConfig
) -> Iterator[ConsumerRecord]:
    """Yield the surviving record of each key in offset order, without deleted keys.

    Parameters
    ----------
    records : iterable of ConsumerRecord
        The records of one partition in offset order. Read them with `READ_COMMITTED` to exclude
        uncommitted records. Records without a key are ignored.
    config : LogConfig
        The topic's configuration, including its compaction strategy.

    Notes
    -----
    One record per key remains in memory, including tombstones, because an older version of a
    deleted key may follow.
    """
    survivors = KeySurvivors(Strategy.of(config))
    winners: dict[bytes, ConsumerRecord] = {}
    for record in records:
        key = record.key
        if key is not None and survivors.enter(
            key, record.offset, record.timestamp, record.headers
        ):
            winners[key] = record
    rows = (record for record in winners.values() if record.value is not None)
    yield from sorted(rows, key=lambda record: record.offset)


def values_per_key(
    logs: Iterable[Log], config: LogConfig, isolation: Isolation, faults: Faults
) -> dict[bytes, bytes]:
    """Return the values of a topic by key. Later logs override earlier logs."""
    rows: dict[bytes, bytes] = {}
    for log in logs:
        records = read_records(log, None, None, isolation, None, faults=faults)
        for record in latest_per_key(records, config):
            assert record.key is not None
            assert record.value is not None
            rows[record.key] = record.value
    return rows
