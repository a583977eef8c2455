"""Feeds append the records of a topic's workload in order of arrival."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from logstore.errors import LogStoreError
from logstore.record.records import NewRecord
from logstore.types import TopicPartition
from logstore.workload.blocks import Block, Population, build_block, repartition_block
from logstore.workload.parcels import COMMIT, DATA, ENTRY, pack_block
from logstore.workload.placement import (
    GROUP_BATCHES,
    BatchPlacer,
    append_batches,
    append_marker,
    fit_segment,
)

if TYPE_CHECKING:
    from logstore.broker.broker import Broker
    from logstore.runtime import VirtualClock
    from logstore.simulate.scenario import Message, Topic
    from logstore.simulate.survivors import ScriptSurvivors, Survivors
    from logstore.storage.log.log import Log
    from logstore.workload.recorded import Recorded
    from logstore.workload.spec import Spec

    LogOf = Callable[[TopicPartition], Log | None]


class Arrival(NamedTuple):
    """A batch that arrives at a partition, or (if empty) the end of a transaction."""

    at_ms: int
    partition: int
    kind: int
    producer: int
    batch: bytes


class Step(NamedTuple):
    """Arrivals at one partition that are appended together when the last one arrives."""

    feed: Queue
    partition: int
    at_ms: int
    arrivals: Sequence[Any]


class Queue(ABC):
    """Arrivals of a topic that have not been appended yet.

    Attributes
    ----------
    topic : str
    partitions : int
        Number of partitions known to the producers.
    bytes : Counter of int
        Bytes appended so far, by partition.
    waiting : dict of int to deque
        Arrivals that a log refused, by partition and in order. They are retried.
    """

    def __init__(self, topic: str, partitions: int) -> None:
        self.topic = topic
        self.partitions = partitions
        self.bytes: Counter[int] = Counter()
        self.waiting: dict[int, deque[Any]] = {}

    @abstractmethod
    def steps(self, log_of: LogOf, now_ms: int, until_ms: int) -> list[Step]:
        """Take the arrivals up to `until_ms` (inclusive)."""

    def add_partitions(self, total: int, now_ms: int) -> None:
        """Change the number of partitions."""
        self.partitions = total

    @abstractmethod
    def append(self, log: Log, arrivals: Sequence[Any]) -> None:
        """Append arrivals at one partition, at the current time."""

    def postpone(self, partition: int, arrivals: Sequence[Any]) -> None:
        """Queue arrivals after those that were refused earlier."""
        self.waiting.setdefault(partition, deque()).extend(arrivals)

    def retry(self, partition: int, log: Log) -> None:
        """Append the waiting arrivals of a partition until one is refused again."""
        waiting = self.waiting[partition]
        while waiting:
            self.append(log, [waiting[0]])
            waiting.popleft()
        del self.waiting[partition]


class Feed(Queue):
    """Records of a topic's workload that have not been appended yet.

    Parameters
    ----------
    spec : Spec
    survivors : Survivors
        Tracker of the topic's surviving records. Notified of expected and appended records.
    recorded : Recorded, optional
        Arrival times to use instead of the workload's.
    population : Population, optional
        Keys to use instead of the spec's.
    first_producer_id : int
        Lowest producer id to use, because lower ones are in use.
    """

    def __init__(
        self,
        spec: Spec,
        survivors: Survivors,
        recorded: Recorded | None = None,
        population: Population | None = None,
        first_producer_id: int = 0,
    ) -> None:
        super().__init__(spec.topic, spec.partitions)
        self.spec = spec
        self._survivors = survivors
        self._recorded = recorded
        self._population = population
        self._first_producer_id = first_producer_id
        self._placings = [
            BatchPlacer(spec.producers, first_producer_id) for _ in range(spec.partitions)
        ]
        self._block: Block | None = None
        self._arrivals = self._blocks(0)
        self._next = next(self._arrivals, None)

    def steps(self, log_of: LogOf, now_ms: int, until_ms: int) -> list[Step]:
        """Take the arrivals up to `until_ms` (inclusive).

        Batches of a partition are appended together if none of them starts a segment. This does not
        affect the resulting files, because no task reads the log in between.
        """
        by_partition: dict[int, list[Arrival]] = {}
        while self._next is not None and self._next.at_ms <= until_ms:
            by_partition.setdefault(self._next.partition, []).append(self._next)
            self._next = next(self._arrivals, None)
        steps: list[Step] = []
        for partition, arrivals in by_partition.items():
            size = 1
            if all(arrival.kind == DATA for arrival in arrivals):
                log = log_of(TopicPartition(self.topic, partition))
                batches = [arrival.batch for arrival in arrivals]
                if log is not None and fit_segment(log, batches, max(now_ms, arrivals[-1].at_ms)):
                    size = GROUP_BATCHES
            steps += (
                Step(self, partition, group[-1].at_ms, group)
                for start in range(0, len(arrivals), size)
                if (group := arrivals[start : start + size])
            )
        return steps

    def append(self, log: Log, arrivals: Sequence[Arrival]) -> None:
        """Append arrivals at one partition, at the current time."""
        first = arrivals[0]
        if first.kind != DATA:
            producer_id = self._first_producer_id + first.producer
            append_marker(log, producer_id, commit=first.kind == COMMIT)
            return
        placing = self._placings[first.partition].copy()  # a refusal uses no sequences
        first_offset = placing.next_offset = log.log_end_offset
        placed = [placing.place(each.producer, each.at_ms, each.batch) for each in arrivals]
        append_batches(log, placed)
        self._placings[first.partition] = placing
        records = sum(batch.records for batch in placed)
        self._survivors.append(first.partition, first_offset, records)
        self.bytes[first.partition] += sum(len(batch.data) for batch in placed)

    def add_partitions(self, total: int, now_ms: int) -> None:
        """Spread records sent from now on over more partitions."""
        self._placings += [BatchPlacer(self.spec.producers) for _ in range(total - self.partitions)]
        super().add_partitions(total, now_ms)
        self.spec = replace(self.spec, partitions=total)
        if self._block is None:
            self._survivors.add_partitions(total)
            return
        block = self._block
        self._survivors.withdraw(block.partition[block.appended > now_ms])
        self._survivors.add_partitions(total)
        rest = repartition_block(block, now_ms, total)
        self._arrivals = chain(self._start_block(rest), self._blocks(block.number + 1))
        self._next = next(self._arrivals, None)

    def _blocks(self, first: int) -> Iterator[Arrival]:
        for number in range(first, self.spec.blocks):
            block = build_block(self.spec, number, self._recorded, self._population)
            yield from self._start_block(block)
        self._block = None

    def _start_block(self, block: Block) -> Iterator[Arrival]:
        """Register a block's records as expected, and yield its arrivals."""
        self._block = block
        self._survivors.expect(block)
        yield from self._arrivals_of(block)

    def _arrivals_of(self, block: Block) -> Iterator[Arrival]:
        arrivals: list[Arrival] = []
        for parcel in pack_block(self.spec, block, keys=self._survivors.keys.column(block)):
            position = 0
            for kind, producer, size, at_ms in np.frombuffer(parcel.entries, ENTRY).tolist():
                batch = parcel.batches[position : position + size]
                arrivals.append(Arrival(at_ms, parcel.partition, kind, producer, batch))
                position += size
        # The sort is stable, so arrivals of a partition retain their order.
        arrivals.sort(key=lambda arrival: arrival.at_ms)
        return iter(arrivals)


class Script(Queue):
    """Scripted messages of a topic that have not been appended yet."""

    def __init__(self, topic: Topic, start_ms: int, survivors: ScriptSurvivors) -> None:
        super().__init__(topic.name, topic.partitions)
        self._messages = deque(topic.messages)
        self._start_ms = start_ms
        self._survivors = survivors

    def steps(self, log_of: LogOf, now_ms: int, until_ms: int) -> list[Step]:
        """Take the messages up to `until_ms` (inclusive)."""
        steps: list[Step] = []
        while self._messages and self._start_ms + self._messages[0].at_ms <= until_ms:
            message = self._messages.popleft()
            steps.append(Step(self, message.partition, self._start_ms + message.at_ms, [message]))
        return steps

    def append(self, log: Log, arrivals: Sequence[Message]) -> None:
        """Append messages at one partition, at the current time."""
        for message in arrivals:
            key = message.key.encode()
            value = None if message.delete else message.value.encode()
            timestamp = self._start_ms + message.timestamp_ms
            size_bytes = log.size_bytes
            info = log.writer.append_records([NewRecord(key, value, timestamp)])
            self.bytes[message.partition] += log.size_bytes - size_bytes
            self._survivors.append(message.partition, info.first_offset, key, value, timestamp)


def append_arrivals(
    feeds: Sequence[Queue],
    broker: Broker[VirtualClock],
    clock: VirtualClock,
    until_ms: int,
) -> str | None:
    """Append all arrivals up to `until_ms` (inclusive), and advance the clock with them.

    Returns
    -------
    str or None
        The last refusal by a log, or None. Later arrivals at that partition wait.
    """
    reason = None
    for feed in feeds:
        for partition in list(feed.waiting):
            try:
                feed.retry(partition, broker.log(feed.topic, partition))
            except LogStoreError as error:
                reason = str(error)

    def log_of(tp: TopicPartition) -> Log | None:
        try:
            return broker.log(tp)
        except LogStoreError:
            return None  # the append will report the error

    steps = [step for feed in feeds for step in feed.steps(log_of, clock.now_ms(), until_ms)]
    steps.sort(key=lambda step: step.at_ms)
    for step in steps:
        if step.partition in step.feed.waiting:
            step.feed.postpone(step.partition, step.arrivals)
            continue
        clock.set_ms(max(step.at_ms, clock.now_ms()))
        try:
            step.feed.append(broker.log(step.feed.topic, step.partition), step.arrivals)
        except LogStoreError as error:
            reason = str(error)
            step.feed.postpone(step.partition, step.arrivals)
    return reason
