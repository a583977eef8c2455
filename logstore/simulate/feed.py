"""Feeds: what a topic's workload brings, in the order in which it arrives, and the append of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from logstore.errors import LogStoreError
from logstore.record.records import NewRecord
from logstore.workload.blocks import Block, block_of
from logstore.workload.parcels import COMMIT, DATA, ENTRY, parcels_of_block
from logstore.workload.placing import (
    GROUP_BATCHES,
    Placing,
    append_marker,
    append_placed,
    fit_the_segment,
)

if TYPE_CHECKING:
    from logstore.broker.broker import Broker
    from logstore.log.log import Log
    from logstore.runtime import VirtualClock
    from logstore.simulate.scenario import Message, Topic
    from logstore.simulate.winners import ScriptWinners, Winners


class Arrival(NamedTuple):
    """Something that arrives at a partition: a batch, or (empty) a transaction's end."""

    at_ms: int
    partition: int
    kind: int
    producer: int
    batch: bytes


class Step(NamedTuple):
    """Arrivals of one partition that are appended together, when the last of them arrives."""

    feed: Feed | Script
    partition: int
    at_ms: int
    arrivals: Sequence[Any]


class Feed:
    """A topic's workload on its way into a broker.

    Parameters
    ----------
    winners : Winners
        Of the topic; told what is about to arrive, and what was appended.

    Attributes
    ----------
    bytes : list of int
        Appended so far, by partition.
    """

    def __init__(self, winners: Winners) -> None:
        spec = winners.spec
        self.spec = spec
        self.topic = spec.topic
        self._winners = winners
        self._placings = [Placing(spec.producers) for _ in range(spec.partitions)]
        self._arrivals = self._blocks()
        self._next = next(self._arrivals, None)
        self._refused: list[Arrival] = []
        self.bytes = [0] * spec.partitions

    def steps(self, broker: Broker[VirtualClock], until_ms: int) -> list[Step]:
        """Take what arrives up to a moment, inclusive, and what was refused before.

        Batches of a partition go together where none of them begins a segment: the files are the
        same then, and nothing looks at a log in between.
        """
        by_partition: dict[int, list[Arrival]] = {}
        for arrival in self._refused:
            by_partition.setdefault(arrival.partition, []).append(arrival)
        self._refused = []
        while self._next is not None and self._next.at_ms <= until_ms:
            by_partition.setdefault(self._next.partition, []).append(self._next)
            self._next = next(self._arrivals, None)
        steps: list[Step] = []
        for partition, arrivals in by_partition.items():
            size = 1
            if all(arrival.kind == DATA for arrival in arrivals):
                log = broker.log(self.spec.topic, partition)
                batches = [arrival.batch for arrival in arrivals]
                if fit_the_segment(log, batches, arrivals[-1].at_ms):
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
        placing = self._placings[first.partition]
        placing.next_offset = log.log_end_offset
        if first.kind != DATA:
            append_marker(log, first.producer, commit=first.kind == COMMIT)
            return
        placed = [placing.place(each.producer, each.at_ms, each.batch) for each in arrivals]
        first_offset = log.log_end_offset
        append_placed(log, placed)
        records = sum(batch.records for batch in placed)
        self._winners.append(first.partition, first_offset, records)
        self.bytes[first.partition] += sum(len(batch.data) for batch in placed)

    def refuse(self, arrivals: Sequence[Arrival]) -> None:
        """Take arrivals back, in order: whoever sent them tries again."""
        self._refused += arrivals

    def _blocks(self) -> Iterator[Arrival]:
        for number in range(self.spec.blocks):
            block = block_of(self.spec, number)
            self._winners.expect(block)
            yield from self._arrivals_of(block)

    def _arrivals_of(self, block: Block) -> Iterator[Arrival]:
        found: list[Arrival] = []
        for parcel in parcels_of_block(self.spec, block):
            place = 0
            for kind, producer, size, at_ms in np.frombuffer(parcel.entries, ENTRY).tolist():
                batch = parcel.batches[place : place + size]
                found.append(Arrival(at_ms, parcel.partition, kind, producer, batch))
                place += size
        found.sort(key=lambda arrival: arrival.at_ms)  # stable: a partition's keep their order
        return iter(found)


class Script:
    """The messages of a topic on their way into a broker; as `Feed`."""

    def __init__(self, topic: Topic, start_ms: int, winners: ScriptWinners) -> None:
        self.topic = topic.name
        self._messages = deque(topic.messages)
        self._start_ms = start_ms
        self._winners = winners
        self.bytes = [0] * topic.partitions

    def steps(self, broker: Broker[VirtualClock], until_ms: int) -> list[Step]:
        """Take what is sent up to a moment, inclusive; see `Feed.steps`."""
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

    def refuse(self, arrivals: Sequence[Message]) -> None:
        """Take messages back, in order."""
        self._messages.extendleft(reversed(arrivals))


def bring(
    feeds: Sequence[Feed | Script], broker: Broker[VirtualClock], until_ms: int
) -> str | None:
    """Append what arrives up to a moment, inclusive; time moves along with it.

    Returns
    -------
    str or None
        Why a log refused something; the rest of its topic waits then.
    """
    steps = [step for feed in feeds for step in feed.steps(broker, until_ms)]
    steps.sort(key=lambda step: step.at_ms)
    refusing: set[Feed | Script] = set()
    reason = None
    for step in steps:
        if step.feed in refusing:
            step.feed.refuse(step.arrivals)
            continue
        broker.clock.set_ms(max(step.at_ms, broker.clock.now_ms()))
        try:
            log = broker.log(step.feed.topic, step.partition)
            step.feed.append(log, step.arrivals)
        except LogStoreError as error:
            reason = str(error)
            refusing.add(step.feed)
            step.feed.refuse(step.arrivals)
    return reason
