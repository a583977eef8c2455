"""A generated stream and its cleaning, as a data directory before and after.

Sixty virtual days of the preset `adversarial`: late timestamps, versions, tombstones, aborted
transactions. After a third the topic is cleaned once, so that its tombstones get a delete horizon,
which is long past when the cleaning pass between before and after begins.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from logstore import Broker, VirtualClock
from logstore.record.batch import build_batch
from logstore.record.codecs import Codec
from logstore.record.records import Record
from logstore.workload.blocks import NO_TRANSACTION, NO_VERSION, Block, build_block
from logstore.workload.spec import Spec
from tests.support.world.generated import preset
from tests.support.world.segment_faults import LogBytes

TOPIC = "t"
DAY_MS = 86_400_000
DELETE_RETENTION_MS = DAY_MS
MIN_LAG_MS = 3_600_000
MAX_LAG_MS = 5 * DAY_MS
RECORDS_A_PARTITION = 260
KEYS_A_PARTITION = 30
HASTY_KEYS = 5
KEYLESS = 6
CLOSED_KEYS = 4

_COMPACT = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": str(MIN_LAG_MS),
}


@dataclass(frozen=True)
class History:
    """Two data directories, and the partitions cleaned between them.

    Attributes
    ----------
    before, after : Path
    now_ms : int
        When the cleaning pass began.
    cleaned : dict
        By partition: log start offset, first dirty offset afterwards, log end offset.
    spec : Spec
    """

    before: Path
    after: Path
    now_ms: int
    cleaned: dict[int, tuple[int, int, int]]
    spec: Spec

    def bytes_before(self, partition: int) -> LogBytes:
        """Take a partition of the directory before apart."""
        return LogBytes(self.before / f"{TOPIC}-{partition}")

    def bytes_after(self, partition: int, after: Path | None = None) -> LogBytes:
        """Take a partition of the directory after, or of a copy of it, apart."""
        return LogBytes((after or self.after) / f"{TOPIC}-{partition}")


def cleaned_history(
    root: Path, strategy: str, partitions: int, *, idle: int = -1, hasty: int = -1
) -> History:
    """Make a stream, copy it, and clean it with the engine.

    Parameters
    ----------
    root : Path
        Gets the directories `before` and `after`.
    idle : int
        A partition without appends in the last days, whose active segment is not rolled: it is
        not cleaned, although all of it is older than `MAX_LAG_MS`. No transaction
        writes to it.
    hasty : int
        A partition in which keys are written twice just before it is cleaned, younger than
        `MIN_LAG_MS`: a forced cleaning pass asks for no lag.
    """
    spec = preset(
        "adversarial",
        records=partitions * RECORDS_A_PARTITION,
        partitions=partitions,
        keys={"count": partitions * KEYS_A_PARTITION, "distribution": "uniform"},
        values={"max_bytes": 200},
        versions={"late_records": 3_000},
        producers={"count": 4, "transactional": 2, "transaction_records": 150, "abort_share": 0.3},
        batches={"min_records": 1, "max_records": 12},
    )
    configs = {"compaction.strategy": strategy, "delete.retention.ms": DELETE_RETENTION_MS}
    if strategy == "header":
        configs["compaction.strategy.header"] = spec.versions.header
    after = root / "after"
    stream = _Stream(spec, build_block(spec, 0), idle, hasty)
    clock = VirtualClock(spec.time.start_ms)
    with Broker(after, clock=clock) as broker:
        broker.create_topic(TOPIC, partitions=partitions, configs=configs)
        stream.write(broker, 0.0, 0.2)
        for number, at in product(range(partitions), range(CLOSED_KEYS)):
            for value in (b"open", None):
                broker.append(TOPIC, key=b"closed-%d" % at, value=value, partition=number)
        stream.write(broker, 0.2, 0.35)
        broker.alter_configs(TOPIC, _COMPACT)
        broker.clean(TOPIC, force=True, roll=True)
        # A compacted topic refuses records without keys.
        broker.alter_configs(TOPIC, {}, unset=_COMPACT)
        for number, at in product(range(partitions), range(KEYLESS)):
            broker.append(TOPIC, value=b"no key %d" % at, partition=number)
        broker.alter_configs(TOPIC, _COMPACT)
        stream.write(broker, 0.35, 0.6)
        for number in range(partitions):
            broker.roll(TOPIC, number)
        stream.write(broker, 0.6, 0.8)
        for number in range(partitions):
            if number != idle:
                broker.roll(TOPIC, number)
        stream.write(broker, 0.8, 1.0)
        if hasty >= 0:
            stream.make_due(broker)
    shutil.copytree(after, root / "before")
    cleaned = {}
    with Broker(after, clock=clock) as broker:
        for number in range(partitions):
            broker.clean(TOPIC, number, force=True)
            log = broker.log(TOPIC, number)
            end_offset = broker.cleaner.checkpoints.of(log.topic_partition)
            cleaned[number] = (log.log_start_offset, end_offset, log.log_end_offset)
        # If the engine had known of it, it would have rolled overdue segments.
        broker.alter_configs(TOPIC, {"max.compaction.lag.ms": str(MAX_LAG_MS)})
        now_ms = clock.now_ms()
    return History(root / "before", after, now_ms, cleaned, spec)


class _Stream:
    """Writes a block to a topic, batch by batch, with the ends of its transactions."""

    def __init__(self, spec: Spec, block: Block, idle: int, hasty: int) -> None:
        self.spec, self.block, self.idle, self.hasty = spec, block, idle, hasty
        self.versions = block.version_values()
        self.sequences: Counter[tuple[int, int]] = Counter()
        self.markers = list(zip(*block.markers, strict=True))

    def write(self, broker: Broker, start: float, stop: float) -> None:
        """Write the batches that end in a share of the block, at the times of their arrival."""
        begins = np.flatnonzero(np.diff(self.block.batch, prepend=-1))
        ends = np.append(begins[1:], len(self.block))
        low, high = (int(share * len(self.block)) for share in (start, stop))
        late = start >= 0.8
        for first, end in zip(begins.tolist(), ends.tolist(), strict=True):
            if low < end <= high:
                partition = int(self.block.partition[first])
                clock = broker.runtime.clock
                clock.advance(ms=int(self.block.appended[first]) - clock.now_ms())
                if not (late and partition in (self.idle, self.hasty)):
                    self._append(broker, partition, first, end)
                self._end_transactions(broker, end)

    def _append(self, broker: Broker, partition: int, first: int, end: int) -> None:
        block = self.block
        in_transaction = block.transaction[first] != NO_TRANSACTION
        if in_transaction and partition == self.idle:
            return
        fields = {}
        if in_transaction:
            producer = int(block.producer[first])
            sequence = self.sequences[producer, partition]
            self.sequences[producer, partition] += end - first
            fields = {
                "producer_id": 1000 + producer,
                "producer_epoch": 0,
                "base_sequence": sequence,
                "is_transactional": True,
            }
        records = list(self._records(first, end))
        codec = Codec.from_name(self.spec.batches.codec)
        broker.log(TOPIC, partition).writer.append_batches(
            build_batch(records, codec=codec, **fields)
        )

    def _records(self, first: int, end: int) -> Iterator[Record]:
        block = self.block
        for row in range(first, end):
            stated = block.version_form[row] != NO_VERSION
            yield Record(
                row - first,
                int(block.timestamp[row]),
                block.key[row].tobytes(),
                None if block.tombstone[row] else block.value[row],
                ((self.spec.versions.header, self.versions[row]),) if stated else (),
            )

    def _end_transactions(self, broker: Broker, end: int) -> None:
        while self.markers and self.markers[0][0] < end:
            _, partition, producer, _, commit, _ = self.markers.pop(0)
            if partition != self.idle:
                broker.log(TOPIC, int(partition)).writer.append_end_txn_marker(
                    1000 + int(producer), 0, 0, commit=bool(commit)
                )

    def make_due(self, broker: Broker) -> None:
        """Write keys twice, then one more record into the active segment."""
        now = broker.runtime.clock.now_ms()
        for value in (b"first", b"second"):
            for number in range(HASTY_KEYS):
                broker.append(
                    TOPIC, key=b"hasty-%d" % number, value=value, partition=self.hasty,
                    timestamp=now - 1000,
                )  # fmt: skip
        broker.roll(TOPIC, self.hasty)
        broker.append(TOPIC, key=b"last", value=b"", partition=self.hasty, timestamp=now)
