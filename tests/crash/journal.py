"""What a scenario did, what it was told, and whether a reopened broker agrees with that.

A scenario drives a `Session`; the session notes in the `Journal` every record that was tried or
acknowledged, the offset below which the engine called the log durable, and each cleaning with
what it removed. `check_broker` then judges any state that a crash left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from logstore.broker import Broker
from logstore.checkpoint import CLEANER_OFFSETS
from logstore.config import BrokerConfig
from logstore.errors import KafkaStorageError, LogStoreError
from logstore.log import Log, NewRecord
from logstore.names import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX
from logstore.runtime import FileSystem, VirtualClock
from logstore.runtime.faultfs import FaultyFileSystem
from logstore.segment import LogSegment
from logstore.types import TopicPartition

DATA_DIR = "/disk/data"

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
    """One `clean`: the offsets there were, and once it is done, those that stayed."""

    before: list[int]
    bases_before: list[int]
    checkpoint_before: int | None
    after: list[int] | None = None
    bases_after: list[int] = field(default_factory=list)
    checkpoint_after: int | None = None


class Partition:
    """What was tried, told and known of one partition."""

    def __init__(self) -> None:
        self.tried: dict[int, list[tuple[Rec, ...]]] = {}
        """Batches by the offset that their first record was to get; the last try comes last."""
        self.present: list[int] = []
        """Acknowledged offsets, without those that a finished cleaning removed."""
        self.acknowledged: dict[int, Rec] = {}
        self.flushed = 0
        self.cleanings: list[Cleaning] = []
        self.is_cleaning = False

    @property
    def state(self) -> tuple[int, ...]:
        return (
            sum(map(len, self.tried.values())),
            len(self.present),
            self.flushed,
            len(self.cleanings),
            self.is_cleaning,
        )


class Journal:
    """The memory of one run of a scenario.

    Attributes
    ----------
    first_operation : int
        Crashes come from this operation on; what was before is preparation.
    """

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.topics: dict[str, tuple[int, dict[str, str]]] = {}
        self.tried_topics: dict[str, tuple[int, dict[str, str]]] = {}
        self.partitions: dict[TopicPartition, Partition] = {}
        self.first_operation = 1
        self.failures: list[BaseException] = []

    def partition(self, topic_partition: TopicPartition) -> Partition:
        return self.partitions.setdefault(topic_partition, Partition())

    @property
    def state(self) -> tuple[object, ...]:
        """Equal for two moments between which nothing was journaled."""
        return (
            len(self.topics),
            len(self.tried_topics),
            self.clock.now_ms(),
            *(partition.state for _, partition in sorted(self.partitions.items())),
        )


def open_broker(fs: FileSystem, clock: VirtualClock) -> Broker:
    return Broker(DATA_DIR, fs=fs, clock=clock, broker_config=BROKER_CONFIG, seed=1)


class SessionEnd(Exception):
    """Nothing more can be tried on this disk."""


class Session:
    """A broker whose every step is journaled.

    With `go_on` a step that fails with a storage error is noted and the next one is tried. After
    a failed sync the files must not be opened again before the machine restarts, since they show
    what is lost: then a scenario that stops its broker ends there (`SessionEnd`).
    """

    def __init__(self, fs: FaultyFileSystem, journal: Journal, *, go_on: bool = False) -> None:
        self.fs = fs
        self.journal = journal
        self.go_on = go_on
        self._broker: Broker | None = None

    @property
    def broker(self) -> Broker:
        if self._broker is None:
            if self.journal.failures and self.fs.lost_contents:
                raise SessionEnd
            self._broker = open_broker(self.fs, self.journal.clock)
        return self._broker

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except (LogStoreError, OSError) as error:
            if not self.journal.failures and not isinstance(error, KafkaStorageError | OSError):
                raise
            self.journal.failures.append(error)
            if not self.go_on:
                raise

    def begin(self) -> None:
        """End the preparation: everything from here on is crashed and failed."""
        self.journal.first_operation = self.fs.operation_count + 1

    def create_topic(self, name: str, partitions: int = 1, **configs: object) -> None:
        texts = {key.replace("_", "."): str(value) for key, value in configs.items()}

        def step() -> None:
            self.journal.tried_topics[name] = (partitions, texts)
            self.broker.create_topic(name, partitions, texts)
            self.journal.topics[name] = (partitions, texts)

        self._try(step)

    def append(self, *records: tuple[bytes | None, bytes | None], topic: str = "t") -> None:
        """Append one batch to partition 0; the clock moves by 10 ms a record."""

        def step() -> None:
            log = self.broker.log(topic)
            partition = self.journal.partition(log.topic_partition)
            batch = []
            for key, value in records:
                self.journal.clock.advance(ms=10)
                batch.append(Rec(key, value, self.journal.clock.now_ms()))
            expected = log.log_end_offset
            partition.tried.setdefault(expected, []).append(tuple(batch))
            info = log.append_records([NewRecord(*record) for record in batch])
            assert info.first_offset == expected
            for offset, record in enumerate(batch, expected):
                partition.acknowledged[offset] = record
                partition.present.append(offset)
            self._note_flushed(log)

        self._try(step)

    def flush(self, topic: str = "t") -> None:
        def step() -> None:
            log = self.broker.log(topic)
            log.flush()
            self._note_flushed(log)
            assert self.journal.partition(log.topic_partition).flushed == log.log_end_offset

        self._try(step)

    def roll(self, topic: str = "t") -> None:
        def step() -> None:
            self.broker.roll(topic)
            self._note_flushed(self.broker.log(topic))

        self._try(step)

    def clean(self, topic: str = "t") -> None:
        def step() -> None:
            log = self.broker.log(topic)
            partition = self.journal.partition(log.topic_partition)
            if not partition.is_cleaning:  # else a cleaning that failed is tried again
                checkpoint = checkpoint_of(self.broker, log)
                cleaning = Cleaning(list(partition.present), bases(log), checkpoint)
                partition.cleanings.append(cleaning)
            cleaning = partition.cleanings[-1]
            partition.is_cleaning = True
            report = self.broker.clean(topic, force=True)
            assert report.cleaned, report
            cleaning.after = offsets(log)
            cleaning.bases_after = bases(log)
            cleaning.checkpoint_after = checkpoint_of(self.broker, log)
            partition.present = list(cleaning.after)
            partition.is_cleaning = False

        self._try(step)

    def close(self) -> None:
        def step() -> None:
            logs = [log for log in self.broker.manager.open_logs() if not log.is_offline]
            broker, self._broker = self.broker, None
            broker.close()
            for log in logs:
                partition = self.journal.partition(log.topic_partition)
                partition.flushed = max(partition.flushed, log.log_end_offset)

        self._try(step)

    def _note_flushed(self, log: Log) -> None:
        partition = self.journal.partition(log.topic_partition)
        partition.flushed = max(partition.flushed, log.recovery_point)


# --- what is there ------------------------------------------------------------------------------


def stored(log: Log) -> dict[int, Rec]:
    return {
        record.offset: Rec(record.key, record.value, record.timestamp)
        for _, record in log.records(log.log_start_offset)
    }


def offsets(log: Log) -> list[int]:
    return list(stored(log))


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def checkpoint_of(broker: Broker, log: Log) -> int | None:
    directory = broker.manager.directory_of(log.topic_partition)
    return directory.checkpoint(CLEANER_OFFSETS).read().get(log.topic_partition)


class Found(NamedTuple):
    """What a reopened partition holds."""

    records: dict[int, Rec]
    log_start_offset: int
    log_end_offset: int
    bases: list[int]


def found_in(broker: Broker) -> dict[TopicPartition, Found]:
    found = {}
    for tp in broker.partitions():
        log = broker.manager.log(tp)
        found[tp] = Found(stored(log), log.log_start_offset, log.log_end_offset, bases(log))
    return found


# --- what must be there -------------------------------------------------------------------------


def check_broker(broker: Broker, journal: Journal, reference: Journal) -> None:
    """Assert every invariant of a reopened broker.

    Parameters
    ----------
    journal : Journal
        As of the crash.
    reference : Journal
        Of the run without a crash: what a cleaning that was under way would have left.
    """
    topics = {topic.name: topic for topic in broker.topics()}
    for name, (partitions, configs) in journal.topics.items():
        assert name in topics, f"topic {name} is lost"
        assert topics[name].partitions == tuple(range(partitions))
        assert dict(topics[name].configs) == configs
    for name, topic in topics.items():
        assert name in journal.tried_topics, f"topic {name} was invented"
        assert dict(topic.configs) == journal.tried_topics[name][1]
        assert topic.partitions == tuple(range(journal.tried_topics[name][0]))
    for tp in broker.partitions():
        log = broker.manager.log(tp)
        check_log(log)
        partition = journal.partitions.get(tp, Partition())
        complete = reference.partitions.get(tp, Partition())
        check_contents(log, partition, complete, checkpoint_of(broker, log))
    lost = set(journal.partitions) - set(broker.partitions())
    assert not any(journal.partitions[tp].flushed for tp in lost), f"flushed partitions lost {lost}"


def check_contents(
    log: Log, partition: Partition, complete: Partition, checkpoint: int | None
) -> None:
    """Assert that the log holds what was acknowledged, as far as it may have got."""
    there = stored(log)
    end = log.log_end_offset
    assert list(there) == sorted(there), "offsets rise"
    assert partition.flushed <= end, f"flushed to {partition.flushed}, the log ends at {end}"
    cleaned_to = 0
    checkpoints: set[int | None] = {None} if not partition.cleanings else set()
    if partition.is_cleaning:
        own = partition.cleanings[-1]
        intended = complete.cleanings[len(partition.cleanings) - 1 :]
        checkpoints.add(own.checkpoint_before)
        if not check_mixture(there, own, intended):
            checkpoints |= {cleaning.checkpoint_after for cleaning in intended}
        cleaned_to = own.bases_before[-1]
    elif partition.cleanings:
        own = partition.cleanings[-1]
        assert own.after is not None
        cleaned_to = own.bases_after[-1]
        inside = [offset for offset in there if offset < cleaned_to]
        cleaned = [offset for offset in own.after if offset < cleaned_to]
        assert inside == cleaned, "a finished cleaning is not undone"
        checkpoints.add(own.checkpoint_after)
    for offset in there:
        if offset < cleaned_to:
            assert there[offset] == partition.acknowledged[offset]
    assert checkpoint in checkpoints, f"cleaner checkpoint {checkpoint} is none of {checkpoints}"
    check_prefix(there, partition, cleaned_to, end)
    assert live(there.values()) == live(
        partition.acknowledged.get(offset, there.get(offset))
        for offset in range(end)
        if offset in partition.acknowledged or offset in there
    ), "the latest value of a key changed"


def check_mixture(there: dict[int, Rec], own: Cleaning, intended: list[Cleaning]) -> bool:
    """Assert that each source segment is as before or as it was to be; tell if any is as before.

    Parameters
    ----------
    intended : list of Cleaning
        This cleaning and later ones as they ended where nothing failed: a pass that is tried
        again may do the work of a later one.
    """
    mixed = False
    all_bases = {*own.bases_before, *(base for c in intended for base in c.bases_after)}
    for start, stop in pairwise(sorted(base for base in all_bases if base <= own.bases_before[-1])):

        def within(offsets: Iterable[int], start: int = start, stop: int = stop) -> list[int]:
            return [offset for offset in offsets if start <= offset < stop]

        allowed = [within(cleaning.after or []) for cleaning in intended]
        inside = within(there)
        mixed |= inside not in allowed
        allowed.append(within(own.before))
        assert inside in allowed, f"[{start}, {stop}) has {inside}, not one of {allowed}"
    return mixed


def check_prefix(there: dict[int, Rec], partition: Partition, start: int, end: int) -> None:
    """Assert that from `start` on whole batches follow each other as they were written."""
    offset = start
    while offset < end:
        tries = partition.tried.get(offset, [])
        if offset < partition.flushed:
            tries = tries[-1:]
        for batch in tries:
            if all(there.get(at) == record for at, record in enumerate(batch, offset)):
                offset += len(batch)
                break
        else:
            got = [there.get(at) for at in range(offset, end)]
            raise AssertionError(f"at offset {offset}: {got} was not written there: {tries}")
    assert offset == end, f"batches end at {offset}, the log at {end}"
    assert all(at < end for at in there)


def live(records: Iterable[Rec | None]) -> dict[bytes | None, bytes]:
    """Return the latest value of each key; a tombstone takes the key away."""
    values: dict[bytes | None, bytes] = {}
    for record in records:
        assert record is not None
        if record.value is None:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
    return values


def check_log(log: Log) -> None:
    """Assert the invariants of a loaded log, its segments, and their indexes as look-ups."""
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
    """Assert that look-ups are those of a scan; return the offset after the last batch."""
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
