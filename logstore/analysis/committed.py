"""The committed data of a log, as a `READ_COMMITTED` consumer reads it.

All commands that report live, surviving or lost records use this definition, which is Kafka's: a
data batch is committed if it is below the last stable offset and not part of an aborted
transaction. Data at or above the last stable offset is not committed, even if it is not
transactional. Consumers receive such data once the earlier transaction has ended.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from logstore.types import INT64_MAX

if TYPE_CHECKING:
    from logstore.record.header import BatchHeader
    from logstore.storage.log.log import Log

COMMITTED = "committed"
ABORTED = "aborted"
OPEN_TRANSACTION = "open_transaction"
UNSTABLE = "unstable"

COMMIT_STATES = (COMMITTED, ABORTED, OPEN_TRANSACTION, UNSTABLE)
"""States of a data batch.

`open_transaction`: its transaction has no marker yet. `unstable`: at or above the last stable
offset for another reason, because an open transaction begins below it or its marker is not
replicated.
"""


class CommittedData:
    """Commit states of the batches in a log at the time when this object was created.

    Notes
    -----
    Creation takes O(aborted transactions) time and memory.
    """

    def __init__(self, log: Log) -> None:
        self._stable_offset = log.last_stable_offset
        producers = log.producer_state
        self._open = {
            entry.producer_id: entry.current_txn_first_offset
            for entry in producers.entries()
            if entry.current_txn_first_offset is not None
        }
        self._aborted: dict[int, list[tuple[int, int]]] = {}
        for segment in log.segments:
            for txn in segment.collect_aborted_txns(0, INT64_MAX)[0]:
                ranges = self._aborted.setdefault(txn.producer_id, [])
                ranges.append((txn.first_offset, txn.last_offset))
        for ranges in self._aborted.values():
            ranges.sort()

    def has(self, header: BatchHeader) -> bool:
        """Return whether a batch contains committed data. O(log aborted transactions)."""
        return not header.is_control and self.state_of(header) == COMMITTED

    def state_of(self, header: BatchHeader) -> str:
        """Return the state of a data batch, from `COMMIT_STATES`."""
        if self.is_aborted(header):
            return ABORTED
        if header.last_offset < self._stable_offset:
            return COMMITTED
        first_offset = self._open.get(header.producer_id)
        if header.is_transactional and first_offset is not None:
            return OPEN_TRANSACTION if header.base_offset >= first_offset else UNSTABLE
        return UNSTABLE

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return whether a batch belongs to an aborted transaction."""
        ranges = self._aborted.get(header.producer_id)
        if ranges is None or not header.is_transactional or header.is_control:
            return False
        slot = bisect_right(ranges, (header.base_offset, INT64_MAX)) - 1
        return slot >= 0 and header.base_offset <= ranges[slot][1]
