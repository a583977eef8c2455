"""Random calls of clients in a cluster whose coordinators move and end; results are stored."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from logstore import Cluster, LogStoreError, OffsetAndMetadata, TopicPartition, VirtualClock
from logstore.runtime import Deadlock
from tests.support.world.transcripts import Transcript

FEW = 24
STEPS = 45
INTERNAL = ("__consumer_offsets", "__transaction_state")
ASSIGNMENT = ([0, 1, 2], [1, 2, 0], [2, 0, 1])


def transcribe(seed: int) -> Transcript:
    """Return random calls and their results."""
    return _Followers(seed).run()


class _Followers:
    """A cluster, and clients in the processes of its brokers."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.transcript = Transcript()
        self.clock = VirtualClock()
        self.consumers: list[Any] = []
        self.producers: list[Any] = []
        self.number = 0

    def run(self) -> Transcript:
        config = {
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
        }
        with Cluster(clock=self.clock, seed=self.seed, broker_config=config) as cluster:
            self.cluster = cluster
            cluster.create_topic("t", 3, assignment=ASSIGNMENT)
            cluster.group_coordinator("g")
            cluster.transaction_coordinator("x")
            for _ in range(STEPS):
                self.step()
                self.clock.advance(ms=self.rng.choice((0, 0, 1, 100, 3000)))
            for topic in (*INTERNAL, "t"):
                log = cluster.leader_log(TopicPartition(topic, 0))
                for batch in log.reader.batches(log.log_start_offset):
                    self.transcript.note(topic, batch.data)
        return self.transcript

    def attempt(self, name: str, call: Callable[..., object], *arguments: Any) -> Any:
        """Note a call and its result, or its error."""
        try:
            result = call(*arguments)
        except (LogStoreError, Deadlock) as error:
            self.transcript.note(self.clock.now_ms(), name, type(error).__name__, str(error))
            return None
        self.transcript.note(self.clock.now_ms(), name, result)
        return result

    def later(self, action: Callable[[], object]) -> None:
        """Perform an action now, or during a later wait."""
        delay_ms = self.rng.choice((0, 1, 100, 2000))
        self.cluster.runtime.scheduler.schedule(
            "fault", lambda: self.ignore(action), delay_ms=delay_ms
        )

    @staticmethod
    def ignore(action: Callable[[], object]) -> None:
        try:
            action()
        except LogStoreError:
            return

    def step(self) -> None:
        rng, cluster = self.rng, self.cluster
        broker = rng.choice(list(cluster.brokers))
        match rng.randrange(14):
            case 0 | 1:
                self.open(broker)
            case 2 | 3 | 4 | 5:
                self.produce()
            case 6 | 7 | 8 | 9:
                self.consume()
            case 10:
                self.later(lambda: self.move(TopicPartition(rng.choice(INTERNAL), 0)))
            case 11 if len(cluster.brokers) == 3:
                end = rng.choice((cluster.kill, cluster.stop))
                self.later(lambda: end(broker) if len(cluster.brokers) == 3 else None)
            case 12:
                for ended in sorted({0, 1, 2} - set(cluster.brokers)):
                    cluster.restart(ended)
            case _:
                self.administer(broker)

    def move(self, tp: TopicPartition) -> None:
        state = self.cluster.state(tp)
        self.cluster.move_leader(tp, to=state.isr[-1])

    def open(self, broker: int) -> None:
        rng, process = self.rng, self.cluster.brokers[broker]
        if rng.random() < 0.5 and len(self.producers) < 4:
            found = self.attempt("producer", lambda: process.producer(transactional_id="x"))
            if found is not None:
                self.attempt("init", found.init_transactions)
                self.producers.append((found, broker))
        elif len(self.consumers) < 4:
            protocol = rng.choice(("classic", "consumer"))
            options = {"group_protocol": protocol, "auto_offset_reset": "earliest"}
            made = lambda: process.consumer("t", group_id="g", **options)  # noqa: E731
            found = self.attempt("consumer", made)
            self.consumers += [found] * (found is not None)

    def produce(self) -> None:
        rng, attempt = self.rng, self.attempt
        if not self.producers:
            return
        producer, home = rng.choice(self.producers)
        attempt("begin", producer.begin_transaction)
        self.number += 1
        number = home if rng.random() < 0.9 else rng.randrange(3)
        for _ in range(2):
            attempt("send", lambda: producer.send("t", b"%d" % self.number, partition=number) and 0)
        attempt("flush", producer.flush)
        if rng.random() < 0.5:
            offsets = {TopicPartition("t", 0): OffsetAndMetadata(rng.randrange(5), "")}
            attempt("offsets", producer.send_offsets_to_transaction, offsets, "g")
        attempt("end", rng.choice((producer.commit_transaction, producer.abort_transaction)))
        if rng.random() < 0.4:
            attempt("abort", producer.abort_transaction)

    def consume(self) -> None:
        rng, attempt = self.rng, self.attempt
        if not self.consumers:
            return
        consumer = rng.choice(self.consumers)
        attempt("poll", consumer.poll, rng.choice((0, 500, 4000)))
        attempt("assignment", lambda: sorted(consumer.assignment()))
        action = rng.randrange(6)
        if action == 0:
            attempt("commit", consumer.commit)
        elif action == 1:
            attempt("committed", consumer.committed, TopicPartition("t", rng.randrange(3)))
        elif action == 2:
            self.consumers.remove(consumer)
            attempt("close", consumer.close)
        attempt("metadata", consumer.group_metadata)

    def administer(self, broker: int) -> None:
        attempt, admin = self.attempt, self.cluster.brokers[broker].admin()
        attempt("groups", admin.list_groups)
        attempt("described", admin.describe_groups, ["g"])
        attempt("offsets", admin.list_group_offsets, "g")
        if self.rng.random() < 0.2:
            attempt("delete", admin.delete_groups, ["g"])
