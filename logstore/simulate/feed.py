"""Feeds: what a topic's workload brings, in the order in which it arrives, and the append of it."""

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
    from logstore.simulate.winners import ScriptWinners, Winners
    from logstore.storage.log.log import Log
    from logstore.workload.recorded import Recorded
    from logstore.workload.spec import Spec

    LogOf = Callable[[TopicPartition], Log | None]


class Arrival(NamedTuple):
    """Something that arrives at a partition: a batch, or (empty) a transaction's end."""

    at_ms: int
    partition: int
    kind: int
    producer: int
    batch: bytes


class Step(NamedTuple):
    """Arrivals of one partition that are appended together, when the last of them arrives."""

    feed: Queue
    partition: int
    at_ms: int
    arrivals: Sequence[Any]


class Queue(ABC):
    """A topic's arrivals on their way into a broker.

    Attributes
    ----------
    topic : str
    partitions : int
        That whoever sends knows of.
    bytes : Counter of int
        Appended so far, by partition.
    waiting : dict of int to deque
        By partition what a log refused, in order: whoever sent it tries again.
    """

    def __init__(self, topic: str, partitions: int) -> None:
        self.topic = topic
        self.partitions = partitions
        self.bytes: Counter[int] = Counter()
        self.waiting: dict[int, deque[Any]] = {}

    @abstractmethod
    def steps(self, log_of: LogOf, now_ms: int, until_ms: int) -> list[Step]:
        """Take what arrives up to a moment, inclusive."""

    def add_partitions(self, total: int, now_ms: int) -> None:
        """Take note that there are more partitions, now."""
        self.partitions = total

    @abstractmethod
    def append(self, log: Log, arrivals: Sequence[Any]) -> None:
        """Append arrivals of one partition, now."""

    def refuse(self, partition: int, arrivals: Sequence[Any]) -> None:
        """Take arrivals back, which wait behind those that were refused before them."""
        self.waiting.setdefault(partition, deque()).extend(arrivals)

    def retry(self, partition: int, log: Log) -> None:
        """Append what waits for a partition, now, until something is refused again."""
        waiting = self.waiting[partition]
        while waiting:
            self.append(log, [waiting[0]])
            waiting.popleft()
        del self.waiting[partition]


class Feed(Queue):
    """A topic's workload on its way into a broker.

    Parameters
    ----------
    spec : Spec
    winners : Winners
        Of the topic; told what is about to arrive, and what was appended.
    recorded : Recorded, optional
        What says when records arrive, if not the workload.
    population : Population, optional
        Other keys than the spec's.
    first_producer_id : int
        Of the producers; those below it are somebody else's.
    """

    def __init__(
        self,
        spec: Spec,
        winners: Winners,
        recorded: Recorded | None = None,
        population: Population | None = None,
        first_producer_id: int = 0,
    ) -> None:
        super().__init__(spec.topic, spec.partitions)
        self.spec = spec
        self._winners = winners
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
        """Take what arrives up to a moment, inclusive.

        Batches of a partition go together where none of them begins a segment: the files are the
        same then, and nothing looks at a log in between.
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
        """Append arrivals of one partition, now."""
        first = arrivals[0]
        if first.kind != DATA:
            producer_id = self._first_producer_id + first.producer
            append_marker(log, producer_id, commit=first.kind == COMMIT)
            return
        placing = self._placings[first.partition].copy()  # if refused, the numbers are not taken
        first_offset = placing.next_offset = log.log_end_offset
        placed = [placing.place(each.producer, each.at_ms, each.batch) for each in arrivals]
        append_batches(log, placed)
        self._placings[first.partition] = placing
        records = sum(batch.records for batch in placed)
        self._winners.append(first.partition, first_offset, records)
        self.bytes[first.partition] += sum(len(batch.data) for batch in placed)

    def add_partitions(self, total: int, now_ms: int) -> None:
        """Let producers know that the topic has more partitions: what they send from now on."""
        self._placings += [BatchPlacer(self.spec.producers) for _ in range(total - self.partitions)]
        super().add_partitions(total, now_ms)
        self.spec = replace(self.spec, partitions=total)
        if self._block is None:
            self._winners.add_partitions(total)
            return
        block = self._block
        self._winners.unexpect(block.partition[block.appended > now_ms])
        self._winners.add_partitions(total)
        rest = repartition_block(block, now_ms, total)
        self._arrivals = chain(self._begun(rest), self._blocks(block.number + 1))
        self._next = next(self._arrivals, None)

    def _blocks(self, first: int) -> Iterator[Arrival]:
        for number in range(first, self.spec.blocks):
            block = build_block(self.spec, number, self._recorded, self._population)
            yield from self._begun(block)
        self._block = None

    def _begun(self, block: Block) -> Iterator[Arrival]:
        """Yield what a block brings, which is expected from now on."""
        self._block = block
        self._winners.expect(block)
        yield from self._arrivals_of(block)

    def _arrivals_of(self, block: Block) -> Iterator[Arrival]:
        found: list[Arrival] = []
        for parcel in pack_block(self.spec, block, keys=self._winners.keys.column(block)):
            place = 0
            for kind, producer, size, at_ms in np.frombuffer(parcel.entries, ENTRY).tolist():
                batch = parcel.batches[place : place + size]
                found.append(Arrival(at_ms, parcel.partition, kind, producer, batch))
                place += size
        found.sort(key=lambda arrival: arrival.at_ms)  # stable: a partition's keep their order
        return iter(found)


class Script(Queue):
    """The messages of a topic on their way into a broker; as `Feed`."""

    def __init__(self, topic: Topic, start_ms: int, winners: ScriptWinners) -> None:
        super().__init__(topic.name, topic.partitions)
        self._messages = deque(topic.messages)
        self._start_ms = start_ms
        self._winners = winners

    def steps(self, log_of: LogOf, now_ms: int, until_ms: int) -> list[Step]:
        """Take what is sent up to a moment, inclusive."""
        found: list[Step] = []
        while self._messages and self._start_ms + self._messages[0].at_ms <= until_ms:
            message = self._messages.popleft()
            found.append(Step(self, message.partition, self._start_ms + message.at_ms, [message]))
        return found

    def append(self, log: Log, arrivals: Sequence[Message]) -> None:
        """Append messages of one partition, now."""
        for message in arrivals:
            key = message.key.encode()
            value = None if message.delete else message.value.encode()
            timestamp = self._start_ms + message.timestamp_ms
            size_bytes = log.size_bytes
            info = log.writer.append_records([NewRecord(key, value, timestamp)])
            self.bytes[message.partition] += log.size_bytes - size_bytes
            self._winners.append(message.partition, info.first_offset, key, value, timestamp)


def bring(
    feeds: Sequence[Queue],
    broker: Broker[VirtualClock],
    clock: VirtualClock,
    until_ms: int,
) -> str | None:
    """Append what arrives up to a moment, inclusive; time moves along with it.

    Returns
    -------
    str or None
        Why a log refused something; the rest for its partition waits then.
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
            return None  # told when it is appended to

    steps = [step for feed in feeds for step in feed.steps(log_of, clock.now_ms(), until_ms)]
    steps.sort(key=lambda step: step.at_ms)
    for step in steps:
        if step.partition in step.feed.waiting:
            step.feed.refuse(step.partition, step.arrivals)
            continue
        clock.set_ms(max(step.at_ms, clock.now_ms()))
        try:
            step.feed.append(broker.log(step.feed.topic, step.partition), step.arrivals)
        except LogStoreError as error:
            reason = str(error)
            step.feed.refuse(step.partition, step.arrivals)
    return reason
