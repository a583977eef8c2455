"""Data of aborted transactions, by the transaction indexes of a log."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from logstore.types import INT64_MAX

if TYPE_CHECKING:
    from logstore.log.log import Log
    from logstore.record.header import BatchHeader


class AbortedData:
    """The aborted transactions of a log, as it was when this was made. O(transactions)."""

    def __init__(self, log: Log) -> None:
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        for segment in log.segments:
            for txn in segment.collect_aborted_txns(0, INT64_MAX)[0]:
                ranges = self._ranges.setdefault(txn.producer_id, [])
                ranges.append((txn.first_offset, txn.last_offset))
        for ranges in self._ranges.values():
            ranges.sort()

    def has(self, header: BatchHeader) -> bool:
        """Tell whether a batch holds data of an aborted transaction. O(log transactions)."""
        ranges = self._ranges.get(header.producer_id)
        if ranges is None or not header.is_transactional or header.is_control:
            return False
        slot = bisect_right(ranges, (header.base_offset, INT64_MAX)) - 1
        return slot >= 0 and header.base_offset <= ranges[slot][1]
