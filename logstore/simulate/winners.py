"""Winners: which record of each key is the one that stays, as the rows of a workload arrive."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logstore.analysis.committed import CommittedData
from logstore.cleaner.strategy import HEADER, TIMESTAMP, Order, Strategy
from logstore.config.overrides import effective_config
from logstore.workload.blocks import VERSION, Block

if TYPE_CHECKING:
    from collections.abc import Mapping

    from logstore.record.batch import RecordBatch
    from logstore.record.columns import RecordColumns
    from logstore.simulate.population import Keys
    from logstore.simulate.scenario import Topic
    from logstore.storage.log.log import Log

Ints = NDArray[np.int64]

_NO_VERSION = np.iinfo(np.int64).min
"""Below every version, so that a record with one wins over those without (KIP-280)."""


class _Rows(NamedTuple):
    """Records that compete, in the order of their offsets."""

    slot: Ints
    offset: Ints
    version: Ints
    tombstone: NDArray[np.bool_]
    stays: NDArray[np.bool_]
    """False: its transaction is aborted."""


class Winners:
    """The winner of every key of a topic, under its strategy.

    Parameters
    ----------
    configs : mapping
        Of the topic.
    keys : Keys
        What keys there are.
    partitions : int
        Above every number of a partition.

    Attributes
    ----------
    keys : Keys
    strategy : Strategy
        By which records compete.
    offset : (slots,) int64
        Of the winner; -1 where the key was never written.
    tombstone : (slots,) bool
        The winner deletes its key.
    partition : (slots,) int32
        Of the slot. A key has one slot in each partition that it belonged to.

    Notes
    -----
    A record competes from when it is appended, one of a transaction that will be aborted never.
    29 bytes a key, and 26 bytes a record of the block that arrives.
    """

    def __init__(self, configs: Mapping[str, str], keys: Keys, partitions: int) -> None:
        self.keys = keys
        self.strategy = Strategy.of(effective_config(configs))
        self.offset: Ints = np.zeros(0, np.int64)
        self._version: Ints = np.zeros(0, np.int64)
        self.tombstone = np.zeros(0, np.bool_)
        self.partition = np.zeros(0, np.int32)
        self._slots: list[Ints] = []  # of each key, for each number of partitions there was
        self._spread(partitions)
        self._expected: list[deque[_Rows]] = [deque() for _ in range(partitions)]
        self._appended: list[_Rows] = []
        self._aborted: list[list[Ints]] = [[] for _ in range(partitions)]

    def _spread(self, partitions: int) -> None:
        """Let keys belong to so many partitions; a key that moves gets another slot."""
        self.keys.spread(partitions)
        belongs = self.keys.partitions(np.arange(self.keys.count))
        slots = np.full(self.keys.count, -1, np.int64)
        for earlier in self._slots:
            slots = np.where(self.partition[earlier] == belongs, earlier, slots)
        new = np.flatnonzero(slots < 0)
        slots[new] = self._new_slots(belongs[new])
        self._slots.append(slots)

    def _grow(self, count: int) -> None:
        """Make room for keys that have come: those of numbers below `count`, and some more."""
        known = len(self._slots[-1])
        if count > known:
            numbers = np.arange(known, max(count, known + known // 4))
            self._slots[-1] = np.append(
                self._slots[-1], self._new_slots(self.keys.partitions(numbers))
            )

    def _new_slots(self, partitions: NDArray[np.int32]) -> Ints:
        """Return new slots that belong to these partitions."""
        first, count = len(self.offset), len(partitions)
        self.offset = np.append(self.offset, np.full(count, -1))
        self._version = np.append(self._version, np.full(count, _NO_VERSION))
        self.tombstone = np.append(self.tombstone, np.zeros(count, np.bool_))
        self.partition = np.append(self.partition, partitions)
        return first + np.arange(count)

    def unexpect(self, partitions: NDArray[np.int32]) -> None:
        """Take back the last records that were expected: they go elsewhere, or nowhere.

        Parameters
        ----------
        partitions : (n,) int32
            Of each of them.
        """
        for partition, count in zip(*np.unique(partitions, return_counts=True), strict=True):
            rows = self._expected[partition].pop()
            assert len(rows.slot) >= count, "they are of one block"
            if len(rows.slot) > count:
                kept = _Rows._make(column[:-count] for column in rows)
                self._expected[partition].append(kept)

    def add_partitions(self, total: int) -> None:
        """Let the topic have more partitions: what is expected from now on is spread over them."""
        self._spread(total)
        self._expected += [deque() for _ in range(total - len(self._expected))]
        self._aborted += [[] for _ in range(total - len(self._aborted))]

    def expect(self, block: Block) -> None:
        """Take note of a block's records, which arrive from now on."""
        numbers = block.key_number
        self._grow(int(numbers.max(initial=-1)) + 1)
        rows = _Rows(
            _slots_of(self._slots[-1], numbers),
            np.full(len(block), -1, np.int64),
            self._versions_of(block),
            block.tombstone,
            ~block.aborted,
        )
        for partition, queue in enumerate(self._expected):
            here = block.partition == partition
            if here.any():
                queue.append(_Rows._make(column[here] for column in rows))

    def append(self, partition: int, first_offset: int, records: int) -> None:
        """Take note that the next so many records of a partition are in the log."""
        queue = self._expected[partition]
        while records:
            rows = queue.popleft()
            taken = min(records, len(rows.slot))
            offsets = np.arange(first_offset, first_offset + taken)
            self._appended.append(
                _Rows._make(column[:taken] for column in rows)._replace(offset=offsets)
            )
            if not rows.stays[:taken].all():
                self._aborted[partition].append(offsets[~rows.stays[:taken]])
            if taken < len(rows.slot):
                queue.appendleft(_Rows._make(column[taken:] for column in rows))
            first_offset += taken
            records -= taken

    def settle(self) -> None:
        """Let what was appended compete."""
        if self._appended:
            appended, self._appended = self._appended, []
            self._compete(_Rows._make(map(np.concatenate, zip(*appended, strict=True))))

    def standing(self, partition: int, log_start_offset: int) -> tuple[int, Ints]:
        """Return how many keys a partition holds, and the offsets of the deletes that won, rising.

        What lies below the log start is nobody's winner any more.
        """
        here = (self.partition == partition) & (self.offset >= max(0, log_start_offset))
        deleting: Ints = np.sort(self.offset[here & self.tombstone])
        return int(here.sum()) - len(deleting), deleting

    def read(self, partition: int, log: Log) -> None:
        """Forget a partition's winners, and let what is in its log compete."""
        self._clear(partition)
        aborted = np.concatenate([np.zeros(0, np.int64), *self._aborted[partition]])
        aborted = aborted[aborted < log.log_end_offset]
        self._aborted[partition] = [aborted]
        slots = np.full(len(self._slots[-1]), -1, np.int64)
        for each in self._slots:
            slots = np.where(self.partition[each] == partition, each, slots)
        committed = CommittedData(log)
        for batch in _data_batches(log):
            columns = batch.columns(log.config.logstore_decompression_max_bytes)
            columns = columns.between(log.log_start_offset, None)
            self._compete(
                _Rows(
                    _slots_of(slots, self.keys.numbers_in(partition, columns.keys)),
                    columns.offsets,
                    self._versions_in(columns),
                    columns.values.sizes < 0,
                    ~(np.isin(columns.offsets, aborted) | committed.is_aborted(batch.header)),
                )
            )

    def forget(self, partition: int) -> None:
        """Forget a partition, whose log is deleted."""
        self._clear(partition)
        self._aborted[partition] = []

    def _clear(self, partition: int) -> None:
        here = self.partition == partition
        self.offset[here], self._version[here], self.tombstone[here] = -1, _NO_VERSION, False

    def _versions_of(self, block: Block) -> Ints:
        if self.strategy.name == TIMESTAMP:
            return block.timestamp
        if self.strategy.name == HEADER:
            return np.where(block.version_form == VERSION, block.version, _NO_VERSION)
        return np.zeros(len(block), np.int64)

    def _versions_in(self, columns: RecordColumns) -> Ints:
        if self.strategy.name == TIMESTAMP:
            return columns.timestamps
        if self.strategy.name == HEADER:
            found = (self.strategy.version_in(columns.headers(row)) for row in range(len(columns)))
            return np.array([_NO_VERSION if v is None else v for v in found], np.int64)
        return np.zeros(len(columns), np.int64)

    def _compete(self, rows: _Rows) -> None:
        """Let records compete with each other, then the best of each key with its winner."""
        competing = rows.stays & (rows.slot >= 0)
        rows = _Rows._make(column[competing] for column in rows)
        if not len(rows.slot):
            return
        order = np.lexsort((rows.offset, rows.version, rows.slot))
        slots = rows.slot[order]
        best = order[np.append(slots[1:] != slots[:-1], True)]
        slot = rows.slot[best]
        wins = rows.version[best] >= self._version[slot]
        best, slot = best[wins], slot[wins]
        self.offset[slot] = rows.offset[best]
        self._version[slot] = rows.version[best]
        self.tombstone[slot] = rows.tombstone[best]


def _slots_of(slots: Ints, numbers: Ints) -> Ints:
    """Return the slots of keys; -1 of none, and of one that nobody knows."""
    known = (numbers >= 0) & (numbers < len(slots))
    found = np.full(len(numbers), -1, np.int64)
    found[known] = slots[numbers[known]]
    return found


def _data_batches(log: Log) -> Iterator[RecordBatch]:
    """Yield the batches of records from the log start on; a wrong checksum is none's concern."""
    return (
        batch for batch in log.reader.batches(log.log_start_offset) if not batch.header.is_control
    )


class _Winner(NamedTuple):
    order: Order
    offset: int
    is_tombstone: bool


class ScriptWinners:
    """The winners among a topic's scripted messages; as `Winners`."""

    def __init__(self, topic: Topic) -> None:
        self.strategy = Strategy.of(effective_config(topic.configs))
        self._winners: dict[tuple[int, bytes], _Winner] = {}

    def append(
        self, partition: int, offset: int, key: bytes, value: bytes | None, timestamp: int
    ) -> None:
        """Let a message that is in the log compete."""
        order = self.strategy.order_of(offset, timestamp, ())
        before = self._winners.get((partition, key))
        if before is None or order >= before.order:
            self._winners[partition, key] = _Winner(order, offset, value is None)

    def settle(self) -> None:
        """Do nothing: every message competes at once."""

    def standing(self, partition: int, log_start_offset: int) -> tuple[int, Ints]:
        """Return how many keys a partition holds, and the deletes that won; see `Winners`."""
        here = [
            winner
            for (number, _), winner in self._winners.items()
            if number == partition and winner.offset >= log_start_offset
        ]
        deleting = sorted(winner.offset for winner in here if winner.is_tombstone)
        return len(here) - len(deleting), np.array(deleting, np.int64)

    def read(self, partition: int, log: Log) -> None:
        """Forget a partition's winners, and let what is in its log compete."""
        self.forget(partition)
        for batch in _data_batches(log):
            for record in batch.iter_records(log.config.logstore_decompression_max_bytes):
                if record.offset >= log.log_start_offset and record.key is not None:
                    self.append(
                        partition, record.offset, record.key, record.value, record.timestamp
                    )

    def forget(self, partition: int) -> None:
        """Forget a partition, whose log is deleted."""
        self._winners = {at: each for at, each in self._winners.items() if at[0] != partition}
