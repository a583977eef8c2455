"""The winning record of each key: what a compacted topic comes down to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from logstore.cleaner.strategy import Contest, Strategy
from logstore.clients.records import ConsumerRecord, read_records

if TYPE_CHECKING:
    from logstore.config.log_config import LogConfig
    from logstore.faults.rules import Faults
    from logstore.storage.log.log import Log
    from logstore.storage.log.reader import Isolation


def latest_per_key(
    records: Iterable[ConsumerRecord], config: LogConfig
) -> Iterator[ConsumerRecord]:
    """Yield the winning record of each key in offset order; deleted keys are left out.

    Parameters
    ----------
    records : iterable of ConsumerRecord
        One partition's, in offset order; those that were read with `READ_COMMITTED`, unless
        uncommitted ones are to compete. Records without a key belong to no row.
    config : LogConfig
        Of the topic; its compaction strategy decides.

    Notes
    -----
    Holds one record a key, that of a deleted key as well: an older version may still come.
    """
    contest = Contest(Strategy.of(config))
    winners: dict[bytes, ConsumerRecord] = {}
    for record in records:
        key = record.key
        if key is not None and contest.enter(key, record.offset, record.timestamp, record.headers):
            winners[key] = record
    rows = (record for record in winners.values() if record.value is not None)
    yield from sorted(rows, key=lambda record: record.offset)


def values_per_key(
    logs: Iterable[Log], config: LogConfig, isolation: Isolation, faults: Faults
) -> dict[bytes, bytes]:
    """Return the values of a topic's rows by key; the later log tells of a key in several."""
    rows: dict[bytes, bytes] = {}
    for log in logs:
        records = read_records(log, None, None, isolation, None, faults=faults)
        for record in latest_per_key(records, config):
            assert record.key is not None
            assert record.value is not None
            rows[record.key] = record.value
    return rows
