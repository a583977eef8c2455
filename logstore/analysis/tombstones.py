"""Surviving tombstones, the only tombstones that need a delete horizon.

A superseded tombstone is removed like any other superseded record. Uncommitted tombstones do not
count yet.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import xxhash

from logstore.analysis.committed import CommittedData
from logstore.cleaner.explaining import Tombstone
from logstore.cleaner.strategy import KeySurvivors, Strategy
from logstore.record.batch import stored_rows

if TYPE_CHECKING:
    from logstore.analysis.view import PartitionView
    from logstore.config.log_config import LogConfig


def live_tombstones(view: PartitionView, config: LogConfig | None = None) -> list[Tombstone]:
    """Return the committed tombstones that survive, in offset order.

    Parameters
    ----------
    config : LogConfig, optional
        Config with the compaction strategy. [default: the log's config]

    Notes
    -----
    Reads all records. Requires about 300 bytes of memory per surviving tombstone and, with a
    version strategy, about 200 bytes per key.
    """
    log = view.log
    strategy = Strategy.of(log.config if config is None else config)
    survivors, committed = KeySurvivors(strategy), view.evaluate(CommittedData)
    start = log.log_start_offset
    tombstones: dict[bytes, Tombstone] = {}
    for stored, lists in view.decoded(stored_rows):
        header = stored.batch.header
        if not committed.has(header):
            continue
        for offset, timestamp, key, value, headers in chain.from_iterable(lists):
            if key is None or offset < start:
                continue
            if value is not None and not tombstones and not strategy.has_versions:
                continue  # neither a tombstone nor able to supersede one
            hashed = xxhash.xxh3_128_digest(key)
            if not survivors.enter(hashed, offset, timestamp, headers):
                continue
            if value is None:
                tombstones[hashed] = Tombstone(offset, header.delete_horizon_ms)
            else:
                tombstones.pop(hashed, None)
    return sorted(tombstones.values())
