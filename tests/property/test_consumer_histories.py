"""Consumers of one group in one thread: no record is missed, no partition has two readers.

Members join, poll, commit, pause, leave and crash at random, on a virtual clock. Every record is
read at least once, offsets never go back, and after the last change all partitions are assigned.
The same seed writes the same bytes, in memory and on disk.
"""

import random
from contextlib import suppress

import pytest

from logstore import (
    Broker,
    CommitFailedError,
    RebalanceInProgressError,
    TopicPartition,
    VirtualClock,
)

PARTITIONS = [TopicPartition("t", number) for number in range(4)]
STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky")


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

    def come(self):
        if len(self.consumers) < 4:
            consumer = self.broker.consumer(
                "t",
                group_id="g",
                client_id="c",
                auto_offset_reset="earliest",
                enable_auto_commit=self.rng.random() < 0.5,
                partition_assignment_strategy=[self.strategy],
                session_timeout_ms=10_000,
                max_poll_records=self.rng.choice((1, 3, 500)),
            )
            self.consumers.append(consumer)

    def write(self):
        tp = self.rng.choice(PARTITIONS)
        offset = self.broker.append("t", value=b"v", partition=tp.partition).offset
        self.written.add((tp, offset))

    def poll(self, consumer):
        for tp, records in consumer.poll(self.rng.choice((0, 0, 200, 2000))).items():
            self.read |= {(tp, record.offset) for record in records}
        if self.rng.random() < 0.3:
            with suppress(CommitFailedError, RebalanceInProgressError):
                consumer.commit()
        self.check_offsets()

    def check_offsets(self):
        result = {tp: each.offset for tp, each in self.broker.groups.committed("g").items()}
        for tp, offset in self.committed.items():
            assert result[tp] >= offset, (tp, offset)
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
        self.broker.close()
        return data


@pytest.mark.parametrize("part", range(4))
def test_consumers_of_a_group_miss_nothing(part):
    for seed in range(part, 60, 4):
        try:
            Story(seed).live()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("seed", (1, 3))
def test_the_same_seed_writes_the_same_bytes(seed, tmp_path):
    assert Story(seed).live() == Story(seed).live() == Story(seed, tmp_path).live()
