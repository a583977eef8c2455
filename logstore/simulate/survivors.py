"""Track the surviving record of each key while records are appended."""

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
"""Lower than all versions, because a record with a version supersedes records without one
(KIP-280)."""


class _Rows(NamedTuple):
    """Records of a partition, in offset order."""

    slot: Ints
    offset: Ints
    version: Ints
    tombstone: NDArray[np.bool_]
    committed: NDArray[np.bool_]
    """False if the record's transaction is aborted."""


class Survivors:
    """The surviving record of each key in a topic, according to its compaction strategy.

    Parameters
    ----------
    configs : mapping
        Topic configs.
    keys : Keys
        Keys of the topic.
    partitions : int
        Number of partitions.

    Attributes
    ----------
    keys : Keys
    strategy : Strategy
        Compaction strategy of the topic.
    offset : (slots,) int64
        Offset of the survivor, or -1 if the key has no records.
    tombstone : (slots,) bool
        Whether the survivor is a tombstone.
    partition : (slots,) int32
        Partition of the slot. A key has a slot in each partition to which it was ever assigned.

    Notes
    -----
    A record counts once it is appended, even if its transaction is still open. Records of
    transactions that will be aborted never count. Requires 29 bytes of memory per key, and 26 bytes
    per record in the current block.
    """

    def __init__(self, configs: Mapping[str, str], keys: Keys, partitions: int) -> None:
        self.keys = keys
        self.strategy = Strategy.of(effective_config(configs))
        self.offset: Ints = np.zeros(0, np.int64)
        self._version: Ints = np.zeros(0, np.int64)
        self.tombstone = np.zeros(0, np.bool_)
        self.partition = np.zeros(0, np.int32)
        self._slots: list[Ints] = []  # slots by key, for each partition count so far
        self._spread(partitions)
        self._expected: list[deque[_Rows]] = [deque() for _ in range(partitions)]
        self._appended: list[_Rows] = []
        self._aborted: list[list[Ints]] = [[] for _ in range(partitions)]

    def _spread(self, partitions: int) -> None:
        """Spread the keys over a number of partitions. A key that moves gets a new slot."""
        self.keys.spread(partitions)
        partition_of = self.keys.partitions(np.arange(self.keys.count))
        slots = np.full(self.keys.count, -1, np.int64)
        for earlier in self._slots:
            slots = np.where(self.partition[earlier] == partition_of, earlier, slots)
        new = np.flatnonzero(slots < 0)
        slots[new] = self._new_slots(partition_of[new])
        self._slots.append(slots)

    def _grow(self, count: int) -> None:
        """Add slots for keys numbered below `count`, and some spare slots."""
        known = len(self._slots[-1])
        if count > known:
            numbers = np.arange(known, max(count, known + known // 4))
            self._slots[-1] = np.append(
                self._slots[-1], self._new_slots(self.keys.partitions(numbers))
            )

    def _new_slots(self, partitions: NDArray[np.int32]) -> Ints:
        """Add a slot in each of the given partitions, and return the slots."""
        first, count = len(self.offset), len(partitions)
        self.offset = np.append(self.offset, np.full(count, -1))
        self._version = np.append(self._version, np.full(count, _NO_VERSION))
        self.tombstone = np.append(self.tombstone, np.zeros(count, np.bool_))
        self.partition = np.append(self.partition, partitions)
        return first + np.arange(count)

    def withdraw(self, partitions: NDArray[np.int32]) -> None:
        """Remove the last expected records, because they will not be appended.

        Parameters
        ----------
        partitions : (n,) int32
            Partition of each record.
        """
        for partition, count in zip(*np.unique(partitions, return_counts=True), strict=True):
            rows = self._expected[partition].pop()
            assert len(rows.slot) >= count, "the records are of one block"
            if len(rows.slot) > count:
                kept = _Rows._make(column[:-count] for column in rows)
                self._expected[partition].append(kept)

    def add_partitions(self, total: int) -> None:
        """Set the number of partitions for all later records."""
        self._spread(total)
        self._expected += [deque() for _ in range(total - len(self._expected))]
        self._aborted += [[] for _ in range(total - len(self._aborted))]

    def expect(self, block: Block) -> None:
        """Register the records of a block that will be appended."""
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
        """Register that the next expected records of a partition were appended."""
        queue = self._expected[partition]
        while records:
            rows = queue.popleft()
            count = min(records, len(rows.slot))
            offsets = np.arange(first_offset, first_offset + count)
            self._appended.append(
                _Rows._make(column[:count] for column in rows)._replace(offset=offsets)
            )
            if not rows.committed[:count].all():
                self._aborted[partition].append(offsets[~rows.committed[:count]])
            if count < len(rows.slot):
                queue.appendleft(_Rows._make(column[count:] for column in rows))
            first_offset += count
            records -= count

    def update_survivors(self) -> None:
        """Update the survivors with the appended records."""
        if self._appended:
            appended, self._appended = self._appended, []
            self._replace_superseded(_Rows._make(map(np.concatenate, zip(*appended, strict=True))))

    def live_keys_and_deletes(self, partition: int, log_start_offset: int) -> tuple[int, Ints]:
        """Return the number of live keys and the offsets of surviving tombstones.

        Records below the log start are excluded. Offsets are in ascending order.
        """
        survives = (self.partition == partition) & (self.offset >= max(0, log_start_offset))
        deletes: Ints = np.sort(self.offset[survives & self.tombstone])
        return int(survives.sum()) - len(deletes), deletes

    def read(self, partition: int, log: Log) -> None:
        """Determine the survivors of a partition from its log."""
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
            self._replace_superseded(
                _Rows(
                    _slots_of(slots, self.keys.numbers_in(partition, columns.keys)),
                    columns.offsets,
                    self._versions_in(columns),
                    columns.values.sizes < 0,
                    ~(np.isin(columns.offsets, aborted) | committed.is_aborted(batch.header)),
                )
            )

    def forget(self, partition: int) -> None:
        """Remove a partition whose log was deleted."""
        self._clear(partition)
        self._aborted[partition] = []

    def _clear(self, partition: int) -> None:
        slots = self.partition == partition
        self.offset[slots], self._version[slots], self.tombstone[slots] = -1, _NO_VERSION, False

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
            versions = (
                self.strategy.version_in(columns.headers(row)) for row in range(len(columns))
            )
            return np.array([_NO_VERSION if v is None else v for v in versions], np.int64)
        return np.zeros(len(columns), np.int64)

    def _replace_superseded(self, rows: _Rows) -> None:
        """Replace each key's survivor with the best of the given records, unless it is newer."""
        competing = rows.committed & (rows.slot >= 0)
        rows = _Rows._make(column[competing] for column in rows)
        if not len(rows.slot):
            return
        order = np.lexsort((rows.offset, rows.version, rows.slot))
        slots = rows.slot[order]
        best = order[np.append(slots[1:] != slots[:-1], True)]
        slot = rows.slot[best]
        supersedes = rows.version[best] >= self._version[slot]
        best, slot = best[supersedes], slot[supersedes]
        self.offset[slot] = rows.offset[best]
        self._version[slot] = rows.version[best]
        self.tombstone[slot] = rows.tombstone[best]


def _slots_of(slots: Ints, numbers: Ints) -> Ints:
    """Return the slots of keys, or -1 for null and unknown keys."""
    known = (numbers >= 0) & (numbers < len(slots))
    slots_of_keys = np.full(len(numbers), -1, np.int64)
    slots_of_keys[known] = slots[numbers[known]]
    return slots_of_keys


def _data_batches(log: Log) -> Iterator[RecordBatch]:
    """Yield the data batches from the log start, without verifying checksums."""
    return (
        batch for batch in log.reader.batches(log.log_start_offset) if not batch.header.is_control
    )


class _Survivor(NamedTuple):
    order: Order
    offset: int
    is_tombstone: bool


class ScriptSurvivors:
    """The surviving messages of a scripted topic, with the interface of `Survivors`."""

    def __init__(self, topic: Topic) -> None:
        self.strategy = Strategy.of(effective_config(topic.configs))
        self._survivors: dict[tuple[int, bytes], _Survivor] = {}

    def append(
        self, partition: int, offset: int, key: bytes, value: bytes | None, timestamp: int
    ) -> None:
        """Update the survivor of a key with an appended message."""
        order = self.strategy.order_of(offset, timestamp, ())
        survivor = self._survivors.get((partition, key))
        if survivor is None or order >= survivor.order:
            self._survivors[partition, key] = _Survivor(order, offset, value is None)

    def update_survivors(self) -> None:
        """Do nothing, because `append` updates the survivors."""

    def live_keys_and_deletes(self, partition: int, log_start_offset: int) -> tuple[int, Ints]:
        """Return the number of live keys and the surviving tombstones; see `Survivors`."""
        survivors = [
            survivor
            for (number, _), survivor in self._survivors.items()
            if number == partition and survivor.offset >= log_start_offset
        ]
        deletes = sorted(survivor.offset for survivor in survivors if survivor.is_tombstone)
        return len(survivors) - len(deletes), np.array(deletes, np.int64)

    def read(self, partition: int, log: Log) -> None:
        """Determine the survivors of a partition from its log."""
        self.forget(partition)
        for batch in _data_batches(log):
            for record in batch.iter_records(log.config.logstore_decompression_max_bytes):
                if record.offset >= log.log_start_offset and record.key is not None:
                    self.append(
                        partition, record.offset, record.key, record.value, record.timestamp
                    )

    def forget(self, partition: int) -> None:
        """Remove a partition whose log was deleted."""
        self._survivors = {at: each for at, each in self._survivors.items() if at[0] != partition}
