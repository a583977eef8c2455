"""Consumers of one group in one thread: no record is missed, no partition has two readers.

Members join, poll, commit, pause, leave and crash at random, on a virtual clock. Every record is
read at least once, offsets never go back, and after the last change all partitions are assigned.
The same seed writes the same bytes, in memory and on disk.
"""

import random
from contextlib import suppress

from logstore import (
    Broker,
    CommitFailedError,
    RebalanceInProgressError,
    TopicPartition,
    VirtualClock,
)
from tests.support.world.transcripts import Transcript

FEW = 60
PARTITIONS = [TopicPartition("t", number) for number in range(4)]
STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky", None)
"""Assignors of members; None is the consumer protocol, in which the coordinator assigns."""


class Story:
    def __init__(self, seed, data_dir=None):
        self.rng = random.Random(seed)
        config = {"offsets.topic.num.partitions": 1}
        self.broker = Broker(data_dir, clock=VirtualClock(), broker_config=config, seed=seed)
        self.broker.create_topic("t", len(PARTITIONS))
        self.strategy = STRATEGIES[seed % len(STRATEGIES)]
        self.consumers = []
        self.written = set()
        self.read = set()
        self.committed = {}
        self.transcript = Transcript()

    def note(self, *values):
        self.transcript.note(self.broker.clock.now_ms(), *values)

    def come(self):
        if len(self.consumers) < 4:
            protocol = {
                "partition_assignment_strategy": [self.strategy],
                "session_timeout_ms": 10_000,
            }
            if self.strategy is None:
                protocol = {"group_protocol": "consumer"}
            consumer = self.broker.consumer(
                "t",
                group_id="g",
                client_id="c",
                auto_offset_reset="earliest",
                enable_auto_commit=self.rng.random() < 0.5,
                **protocol,
                max_poll_records=self.rng.choice((1, 3, 500)),
            )
            self.consumers.append(consumer)

    def write(self):
        tp = self.rng.choice(PARTITIONS)
        offset = self.broker.append("t", value=b"v", partition=tp.partition).offset
        self.written.add((tp, offset))

    def poll(self, consumer):
        for tp, records in consumer.poll(self.rng.choice((0, 0, 200, 2000))).items():
            self.note("read", tp, [(each.offset, each.value) for each in records])
            self.read |= {(tp, record.offset) for record in records}
        if self.rng.random() < 0.3:
            with suppress(CommitFailedError, RebalanceInProgressError):
                consumer.commit()
        positions = {tp: consumer.position(tp) for tp in sorted(consumer.assignment())}
        self.note(positions, consumer.group_metadata(), sorted(consumer.subscription()))
        self.check_offsets()

    def check_offsets(self):
        result = {tp: each.offset for tp, each in self.broker.groups.committed("g").items()}
        for tp, offset in self.committed.items():
            assert result[tp] >= offset, (tp, offset)
        self.note(sorted(result.items()))
        self.committed = result
        read_up_to = {tp: set() for tp in PARTITIONS}
        for tp, offset in self.read:
            read_up_to[tp].add(offset)
        for tp, offset in result.items():
            assert read_up_to[tp] >= set(range(offset)), "committed records were read"

    def act(self):
        kind = self.rng.choice(("come", "poll", "poll", "poll", "write", "write", "go", "wait"))
        if kind == "poll":
            for consumer in self.consumers:
                self.poll(consumer)
        elif kind == "go" and self.consumers:
            consumer = self.consumers.pop(self.rng.randrange(len(self.consumers)))
            consumer.close() if self.rng.random() < 0.5 else consumer.crash()
        elif kind == "wait":
            self.broker.clock.advance(seconds=self.rng.choice((1, 8, 30)))
        elif kind in ("come", "write"):
            getattr(self, kind)()

    def is_shared(self):
        return all(consumer.assignment() for consumer in self.consumers) and (
            sum(len(consumer.assignment()) for consumer in self.consumers) == len(PARTITIONS)
        )

    def live(self):
        for _ in range(50):
            self.act()
        self.come()
        for _ in range(200):
            for consumer in self.consumers:
                self.poll(consumer)
            self.broker.clock.advance(seconds=1)
            if self.read == self.written and self.is_shared():
                break
        shares = [tp for consumer in self.consumers for tp in consumer.assignment()]
        assert sorted(shares) == PARTITIONS
        assert self.read == self.written
        logs = ("__consumer_offsets", 0), *PARTITIONS
        data = [[batch.data for batch in self.broker.log(*each).reader.batches(0)] for each in logs]
        self.note(data)
        self.broker.close()
        return data


def transcribe(seed):
    """Return the transcript of a story."""
    story = Story(seed)
    story.live()
    return story.transcript
