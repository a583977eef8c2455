"""The journal of a scenario: its actions, their acknowledgements, and the reopened contents.

A scenario drives a `Session`, which notes in the `Journal` every record that was tried or
acknowledged, the offset below which the engine called the log durable, each cleaning pass and the
records it removed, the log start, truncations, and deleted topics. `judge.check_broker` judges any
state after a crash by it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from logstore.broker import Broker
from logstore.config.broker_config import BrokerConfig
from logstore.names import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX
from logstore.runtime import FileSystem, VirtualClock
from logstore.storage.checkpoint.offsets import CLEANER_OFFSETS
from logstore.storage.log import Log
from logstore.storage.segment import LogSegment
from logstore.types import TopicPartition
from tests.support.world.builders import bases_of

DATA_DIR = "/disk/data"
OTHER_DIR = "/disk/other"
"""A second data directory, for scenarios that begin by creating it."""

BROKER_CONFIG = BrokerConfig.from_properties(
    {
        # Small indexes, with an entry for every batch but the first of a segment.
        "log.index.size.max.bytes": "240",
        "log.index.interval.bytes": "0",
        "log.segment.bytes": "400",
        "log.cleaner.dedupe.buffer.size": str(1 << 21),
        "log.cleaner.io.buffer.size": str(1 << 16),
    }
)


class Rec(NamedTuple):
    """A record without its offset."""

    key: bytes | None
    value: bytes | None
    timestamp: int


@dataclass
class Cleaning:
    """One `clean`: the offsets before it and, once it is done, those that remain."""

    before: list[int]
    bases_before: list[int]
    checkpoint_before: int | None
    after: list[int] | None = None
    bases_after: list[int] = field(default_factory=list)
    checkpoint_after: int | None = None


@dataclass
class Reduction:
    """A step that removes records from the start or the end of a log, while in progress.

    Attributes
    ----------
    bases : list of int
        Of the segments before it.
    start : int, optional
        The log start that it leads to, by delete-records or retention.
    end : int, optional
        Where it truncates.
    restart : int, optional
        Where the log goes on after a full truncation.
    """

    bases: list[int]
    start: int | None = None
    end: int | None = None
    restart: int | None = None


class Partition:
    """The tried, acknowledged and known state of a partition."""

    def __init__(self) -> None:
        self.tried: dict[int, list[tuple[Rec, ...]]] = {}
        """Batches by the offset intended for their first record; the last attempt comes last."""
        self.present: list[int] = []
        """Acknowledged offsets, without those that a completed step removed."""
        self.acknowledged: dict[int, Rec] = {}
        self.flushed = 0
        self.cleanings: list[Cleaning] = []
        self.is_cleaning = False
        self.start = 0
        """The acknowledged log start."""
        self.reductions: list[Reduction] = []
        """Begun and not acknowledged; more than one if an earlier one failed."""
        self.holes: dict[int, int] = {}
        """Holes from truncations into a batch: from the batch's base to the truncation's offset."""
        self.cut_batches: list[tuple[int, int]] = []
        """Holes of all truncations into a batch, including closed ones: a checkpoint may still name
        the end of one."""
        self.truncations = 0

    @property
    def state(self) -> tuple[object, ...]:
        return (
            sum(map(len, self.tried.values())),
            len(self.present),
            self.flushed,
            len(self.cleanings),
            self.is_cleaning,
            self.start,
            len(self.reductions),
            self.truncations,
        )

    @property
    def flushed_end(self) -> int:
        """The end of flushed data as a start finds it."""
        return self.end_below(self.flushed)

    def end_below(self, offset: int) -> int:
        """Return `offset`, or the start of the hole that ends there: no file has that end."""
        return next((a for a, b in self.holes.items() if a < offset <= b), offset)

    def base_at(self, offset: int) -> int:
        """Return the base of the batch that a truncation to `offset` takes first."""
        return next(
            (b for b, tries in self.tried.items() if b < offset < b + len(tries[-1])), offset
        )

    def cut(self, offset: int) -> None:
        """Record a completed truncation: the records it removed must not reappear."""
        base = self.end_below(self.base_at(offset))
        self.forget_from(base)
        self.holes = {a: b for a, b in self.holes.items() if a < base}
        if base < offset:
            self.holes[base] = offset
            self.cut_batches.append((base, offset))
        self.flushed = min(self.flushed, offset)
        self.truncations += 1

    def forget_from(self, offset: int) -> None:
        """Drop expectations for records at `offset` and above, which may or may not exist."""
        self.tried = {at: tries for at, tries in self.tried.items() if at < offset}
        self.acknowledged = {at: rec for at, rec in self.acknowledged.items() if at < offset}
        self.present = [at for at in self.present if at < offset]

    def fill_hole(self, offset: int) -> None:
        """Follow an append at the base of a hole, which a restart closed."""
        if self.holes.pop(offset, None) is not None:
            self.flushed = min(self.flushed, offset)

    def adopt(self, log: Log) -> None:
        """Adopt the recovered state where recovery had a choice."""
        start, end = log.log_start_offset, log.log_end_offset
        self.forget_from(self.base_at(end))
        self.holes = {a: b for a, b in self.holes.items() if a < end}
        if any(reduction.restart == end for reduction in self.reductions) and not stored(log):
            self.forget_from(0)
            self.holes = {start: end} if start < end else {}
        elif start < self.start < end:
            self.holes[start] = self.start
        self.start = start
        self.present = [at for at in self.present if at >= self.start]
        self.flushed = min(self.flushed, end)
        self.reductions.clear()


class Journal:
    """The memory of one run of a scenario.

    Attributes
    ----------
    deleting : set of str
        Topics whose deletion was asked for and not acknowledged.
    deleted : set of str
        Names that topics had which were deleted.
    homes : dict of TopicPartition to set of str
        Where a partition may be that was moved, or is being moved.
    first_operation : int
        Crashes happen from this operation on; earlier ones are preparation.
    """

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.topics: dict[str, tuple[int, dict[str, str]]] = {}
        self.tried_topics: dict[str, tuple[int, dict[str, str]]] = {}
        self.deleting: set[str] = set()
        self.deleted: set[str] = set()
        self.partitions: dict[TopicPartition, Partition] = {}
        self.homes: dict[TopicPartition, set[str]] = {}
        self.first_operation = 1
        self.failures: list[BaseException] = []

    def partition(self, topic_partition: TopicPartition) -> Partition:
        return self.partitions.setdefault(topic_partition, Partition())

    @property
    def state(self) -> tuple[object, ...]:
        """A value that is equal for two times between which nothing was journaled."""
        return (
            len(self.topics),
            len(self.tried_topics),
            len(self.deleting),
            len(self.deleted),
            self.clock.now_ms(),
            *((tp, *sorted(homes)) for tp, homes in sorted(self.homes.items())),
            *(partition.state for _, partition in sorted(self.partitions.items())),
        )

    @property
    def is_reducing(self) -> bool:
        """Whether a removal of records or topics is in progress."""
        return bool(self.deleting) or any(p.reductions for p in self.partitions.values())

    def forget_topic(self, name: str) -> None:
        """Record a completed deletion: no file of the topic may reappear."""
        self.topics.pop(name, None)
        del self.tried_topics[name]
        self.deleting.discard(name)
        self.deleted.add(name)
        self.partitions = {tp: each for tp, each in self.partitions.items() if tp.topic != name}
        self.homes = {tp: each for tp, each in self.homes.items() if tp.topic != name}

    def settle(self, broker: Broker) -> None:
        """Adopt the recovered state of all topics, which was judged before."""
        there = {topic.name for topic in broker.topics()}
        for name in self.tried_topics.keys() - there:
            self.forget_topic(name)
        self.deleting.clear()
        for tp in broker.partitions():
            self.partition(tp).adopt(broker.manager.log(tp))
            if tp in self.homes:
                self.homes[tp] = {broker.manager.registry.directory_of(tp).path}


def open_broker(fs: FileSystem, clock: VirtualClock) -> Broker:
    directories = [DATA_DIR, OTHER_DIR] if fs.is_dir(OTHER_DIR) else [DATA_DIR]
    return Broker(directories, fs=fs, clock=clock, broker_config=BROKER_CONFIG, seed=1)


# --- contents on disk ---------------------------------------------------------------------------


def stored(log: Log) -> dict[int, Rec]:
    return {
        record.offset: Rec(record.key, record.value, record.timestamp)
        for _, record in log.reader.records(log.log_start_offset)
    }


def offsets(log: Log) -> list[int]:
    return list(stored(log))


def checkpoint_of(broker: Broker, log: Log) -> int | None:
    directory = broker.manager.registry.directory_of(log.topic_partition)
    return directory.checkpoint(CLEANER_OFFSETS).read().get(log.topic_partition)


class Found(NamedTuple):
    """The contents of a reopened partition."""

    records: dict[int, Rec]
    log_start_offset: int
    log_end_offset: int
    bases: list[int]


def found_in(broker: Broker) -> dict[TopicPartition, Found]:
    result = {}
    for tp in broker.partitions():
        log = broker.manager.log(tp)
        result[tp] = Found(stored(log), log.log_start_offset, log.log_end_offset, bases_of(log))
    return result


# --- invariants of every log --------------------------------------------------------------------


def check_log(log: Log) -> None:
    """Assert the invariants of a loaded log, its segments, and lookups in their indexes."""
    names = log.runtime.fs.list_dir(log.directory)
    left = [n for n in names if n.endswith((CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX))]
    assert not left, f"left over: {left}"
    log._check()
    log.producer_state._check()
    log.epochs._check()
    previous_end = 0
    for segment in log.segments:
        segment._check()
        assert segment.base_offset >= previous_end, "segments overlap"
        previous_end = max(segment.base_offset, check_indexes(segment))
    assert previous_end == log.log_end_offset


def check_indexes(segment: LogSegment) -> int:
    """Assert that lookups agree with a scan; return the offset after the last batch."""
    batches = list(segment.batches())
    segment.offset_index._check()
    segment.time_index._check()
    segment.txn_index._check()
    by_last_offset = {at.header.last_offset: at.position for at in batches}
    for entry in segment.offset_index:
        assert by_last_offset.get(entry.offset) == entry.position, f"{segment}: {entry}"
    times = []
    for entry in segment.time_index:
        assert entry.offset in by_last_offset, f"{segment}: {entry}"
        before = [at for at in batches if at.header.last_offset <= entry.offset]
        assert max(at.header.max_timestamp for at in before) == entry.timestamp
        times.append(entry.timestamp)
    assert times == sorted(set(times))
    if batches:
        largest = max(at.header.max_timestamp for at in batches)
        assert segment.largest_timestamp == largest, f"{segment}: largest timestamp"
    end = batches[-1].header.next_offset if batches else segment.base_offset
    assert segment.read_next_offset() == end
    for offset in range(segment.base_offset, end):
        at = next(at for at in batches if at.header.last_offset >= offset)
        place = segment.translate_offset(offset)
        assert place is not None
        assert place.position == at.position, f"{segment}: offset {offset}"
    return end
