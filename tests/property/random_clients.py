"""Random calls of producers and consumers with many configs, whose results are stored.

Requests fail now and then. Callbacks, rebalance listeners, log messages of the clients, metrics
and the virtual time of each call are part of the transcript.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from logstore import Broker, Cluster, OffsetAndMetadata, TopicPartition
from tests.property.random_calls import BAD, Calls
from tests.support.world.transcripts import drawn, recording_messages

FEW = 60
STEPS = 120
GROUPS = "gh"
PRODUCERS: dict[str, tuple[Any, ...]] = {
    "linger_ms": (0, 0, 5, 1000),
    "batch_size": (16_384, 300, 0),
    "acks": ("all", "all", 1, 0),
    "enable_idempotence": (True, True, False),
    "transactional_id": (None, None, "x", "y"),
    "transaction_timeout_ms": (60_000, 3000),
    "retries": (float("inf"), 1),
    "retry_backoff_ms": (100, 250),
    "delivery_timeout_ms": (120_000, 600),
    "max_request_size": (1_048_576, 250),
    "partitioner": (None, None, lambda key, every, available: every[-1]),
    "client_id": (None, "p"),
}
CONSUMERS: dict[str, tuple[Any, ...]] = {
    "group_id": (*GROUPS, *GROUPS, None),
    "client_id": (None, "c"),
    "auto_offset_reset": (*["earliest"] * 4, "latest", "latest", "none"),
    "enable_auto_commit": (True, False),
    "auto_commit_interval_ms": (5000, 500),
    "isolation_level": ("read_uncommitted", "read_committed"),
    "max_poll_records": (500, 3),
    "max_poll_interval_ms": (300_000, 20_000),
    "retry_backoff_ms": (100, 250),
    "request_timeout_ms": (30_000, 300),
    "exclude_internal_topics": (True, False),
}
FAMILIES: tuple[tuple[dict[str, Any], ...], ...] = (
    (
        {},
        {"partition_assignment_strategy": ["sticky", "range"], "session_timeout_ms": 10_000},
        {"group_instance_id": "i"},
    ),
    ({"partition_assignment_strategy": ["cooperative-sticky"]},),
    (
        {"group_protocol": "consumer"},
        {"group_protocol": "consumer", "group_instance_id": "j", "group_remote_assignor": "range"},
        {},
    ),
)
"""Configs of members that can be in one group."""

FAULTS: dict[str, tuple[str, ...]] = {
    "append": (
        "NOT_ENOUGH_REPLICAS",
        "REQUEST_TIMED_OUT",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "TOPIC_AUTHORIZATION_FAILED",
        "INVALID_PRODUCER_EPOCH",
    ),
    "fetch": ("NOT_LEADER_OR_FOLLOWER", "TOPIC_AUTHORIZATION_FAILED", "OFFSET_OUT_OF_RANGE"),
    "commit": ("COORDINATOR_LOAD_IN_PROGRESS", "REBALANCE_IN_PROGRESS", "UNKNOWN_MEMBER_ID"),
    "join": ("COORDINATOR_NOT_AVAILABLE", "GROUP_AUTHORIZATION_FAILED", "REBALANCE_IN_PROGRESS"),
}


def transcribe(seed: int) -> Any:
    """Return random calls of clients and their results."""
    return _ClientCalls(seed).run()


def _shown(value: Any) -> Any:
    """Return a text of an argument whose `repr` has an address."""
    return type(value).__name__ if callable(value) or isinstance(value, _Listener) else value


class _Listener:
    """A rebalance listener that notes its calls."""

    def __init__(self, note: Callable[..., None], *, hears_losses: bool) -> None:
        self._note = note
        if hears_losses:
            self.on_partitions_lost = lambda partitions: note("lost", sorted(partitions))

    def on_partitions_revoked(self, partitions: Any) -> None:
        self._note("revoked", sorted(partitions))

    def on_partitions_assigned(self, partitions: Any) -> None:
        self._note("assigned", sorted(partitions))


class _ClientCalls(Calls):
    """The clients of one broker, or of a broker in a cluster."""

    cluster: Any = None

    def run(self) -> Any:
        config = {
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
        }

        def note(record: logging.LogRecord) -> None:
            self.transcript.note(record.levelname, record.getMessage())

        with recording_messages("logstore.clients", logging.INFO, note), ExitStack() as stack:
            if self.seed % 4 == 3:
                options = {"clock": self.clock, "seed": self.seed, "broker_config": config}
                self.cluster = stack.enter_context(Cluster(3, **options))
                self.broker = self.cluster.brokers[0]
                self.home: Any = self.cluster
            else:
                self.broker = self.home = stack.enter_context(
                    Broker(clock=self.clock, seed=self.seed, broker_config=config)
                )
            self.live()
        return self.transcript

    def live(self) -> None:
        """Create topics, use them with several clients, and close the clients."""
        for name, partitions, configs in (
            ("t", 3, {}),
            ("u", 1, {"message.timestamp.type": "LogAppendTime"}),
            ("c", 2, {"cleanup.policy": "compact"}),
        ):
            self.home.create_topic(name, partitions, configs, **self.replicas)
        self.families = {group_id: self.rng.choice(FAMILIES) for group_id in GROUPS}
        self.producers: list[Any] = []
        self.consumers: list[Any] = []
        self.futures: list[Any] = []
        for _ in range(STEPS):
            self.rng.choice((self.produce, self.produce, self.consume, self.consume))()
            if self.rng.random() < 0.08:
                self.fail()
            if self.rng.random() < 0.08:
                self.change()
            self.clock.advance(ms=self.rng.choice((0, 1, 100, 1000, 4000)))
        self.broker.faults.clear()
        self.end()

    @property
    def replicas(self) -> dict[str, int]:
        """How a topic is replicated."""
        return {"replication_factor": 3} if self.cluster is not None else {}

    def change(self) -> None:
        """Change a topic, or move the leader of a partition or of a coordinator."""
        rng, attempt = self.rng, self.attempt
        if self.cluster is not None and rng.random() < 0.7:
            name = rng.choice(("t", "__consumer_offsets", "__transaction_state"))
            attempt(self.cluster.move_leader, TopicPartition(name, 0), to=rng.choice((0, 0, 1)))
            return
        match rng.randrange(4):
            case 0:
                attempt(self.home.create_topic, f"t{rng.randrange(3)}", 2, **self.replicas)
            case 1:
                attempt(self.home.delete_topic, rng.choice(("t0", "t1", "no")))
            case 2:
                attempt(self.home.create_partitions, "t", 4)
            case _:
                limit = {"max.message.bytes": rng.choice(("200", "1000000"))}
                attempt(self.home.alter_configs, rng.choice("tc"), limit)

    def note_call(self, call: Callable[..., object], *arguments: Any, **options: Any) -> None:
        shown = {key: _shown(value) for key, value in options.items()}
        super().note_call(call, *map(_shown, arguments), **shown)

    def topic(self) -> str:
        return self.rng.choice((*"ttttttuuucccc", "no"))

    def fail(self) -> None:
        """Let the next requests of a kind fail, or let all responses of a kind be late."""
        rng = self.rng
        kind = rng.choice([*FAULTS])
        error = rng.choice(FAULTS[kind])
        is_lost = kind != "fetch" and rng.random() < 0.3
        options = {"times": rng.randint(1, 4), "after": is_lost}
        self.transcript.note(kind, error, options)
        try:
            self.broker.fail(kind, error=error, **options)
        except BAD as refusal:
            self.transcript.note(type(refusal).__name__, str(refusal))

    def end(self) -> None:
        """Close the clients, and note the outcomes, the committed offsets and the records."""
        for client in (*self.producers, *self.consumers):
            self.attempt(client.metrics, True)
            self.attempt(client.close)
        for future in self.futures:
            self.transcript.note(future, future.is_done, future.value, future.exception)
        for group in GROUPS:
            self.attempt(self.broker.groups.committed, group)
        for tp in self.broker.partitions():
            batches = self.broker.log(tp).reader.batches(0)
            self.transcript.note(tp, [batch.data for batch in batches])

    # -- producers ---------------------------------------------------------------------------

    def produce(self) -> None:
        rng, attempt = self.rng, self.attempt
        if not self.producers or (len(self.producers) < 4 and rng.random() < 0.3):
            producer = attempt(self.broker.producer, **drawn(self.rng, PRODUCERS, 0.5))
            if producer is not None:
                self.producers.append(producer)
                self.transcript.note(producer)
                if producer.config.transactional_id is not None and rng.random() < 0.9:
                    attempt(producer.init_transactions)
            return
        producer = rng.choice(self.producers)
        is_transactional = producer.config.transactional_id is not None
        if is_transactional and rng.random() < 0.2:
            attempt(producer.begin_transaction)
        match rng.randrange(15 if is_transactional else 12):
            case 0:
                attempt(producer.metrics, True)
            case 1 | 2:
                attempt(producer.flush)
            case 3 if self.futures:
                attempt(rng.choice(self.futures).get)
            case 4 if rng.random() < 0.3:
                self.producers.remove(producer)
                attempt(producer.close)
            case 12:
                attempt(producer.commit_transaction)
            case 13:
                attempt(producer.abort_transaction)
            case 14 if self.consumers:
                group = rng.choice(self.consumers)
                offsets = {self.tp(): OffsetAndMetadata(rng.randint(0, 3), "m")}
                metadata = attempt(group.group_metadata)
                attempt(producer.send_offsets_to_transaction, offsets, metadata or "h")
            case _:
                self.send(producer)

    def send(self, producer: Any) -> None:
        """Send a few records, with callbacks."""
        rng = self.rng
        topic = self.topic()
        for _ in range(rng.choice((1, 1, 3))):
            options = {
                "partition": rng.choice((None, None, 0, 1, 2)),
                "timestamp_ms": rng.choice((None, None, self.clock.now_ms() - 500)),
                "headers": rng.choice((None, [("h", b"1")], [("h", b"1"), ("i", b"")])),
            }
            key = None if topic != "c" and rng.random() < 0.4 else rng.choice((b"k", b"longer key"))
            value = rng.choice((b"v", b"v", b"w" * 100, None if key else b""))
            self.transcript.note(self.clock.now_ms(), producer, topic, key, value, options)
            try:
                future = producer.send(topic, value, key, **options)
            except BAD as error:
                self.transcript.note(type(error).__name__, str(error))
                continue
            if rng.random() < 0.4:
                number = len(self.futures)
                future.add_both(lambda result, number=number: self.transcript.note(number, result))
            self.transcript.note(future)
            self.futures.append(future)

    # -- consumers ---------------------------------------------------------------------------

    def consume(self) -> None:  # noqa: PLR0912  # one case for each call
        rng, attempt = self.rng, self.attempt
        if not self.consumers or (len(self.consumers) < 4 and rng.random() < 0.25):
            self.add_consumer()
            return
        if rng.random() < 0.2:
            self.poll_all()
            return
        consumer = rng.choice(self.consumers)
        assigned = sorted(consumer.assignment())
        tps = [*assigned[:2], self.tp()][: rng.randint(1, 2)]
        match rng.randrange(34):
            case 0:
                attempt(consumer.seek, tps[0], rng.choice((0, 1, 99)))
            case 1:
                attempt(rng.choice((consumer.seek_to_beginning, consumer.seek_to_end)), *tps)
            case 2:
                attempt(rng.choice((consumer.pause, consumer.resume, consumer.resume)), *tps)
                attempt(consumer.paused)
            case 3 | 4:
                offsets = {tp: OffsetAndMetadata(rng.randint(0, 3), "m") for tp in tps}
                attempt(consumer.commit, rng.choice((None, None, offsets)))
            case 5 | 6:
                attempt(consumer.commit_async, callback=lambda *found: self.transcript.note(*found))
            case 7:
                attempt(consumer.committed, tps[0], rng.random() < 0.5)
            case 8:
                attempt(consumer.end_offsets, tps)
                attempt(consumer.highwater, tps[0])
            case 9:
                attempt(consumer.offsets_for_times, {tp: self.clock.now_ms() - 2000 for tp in tps})
            case 10:
                attempt(consumer.unsubscribe)
                self.subscribe(consumer)
            case 11 | 12:
                self.subscribe(consumer)
            case 13:
                attempt(consumer.metrics, rng.random() < 0.5)
            case 14 if rng.random() < 0.5:
                self.consumers.remove(consumer)
                attempt(rng.choice((consumer.close, consumer.crash)))
            case 15:
                attempt(consumer.wakeup)
            case 16:
                attempt(lambda: list(itertools.islice(consumer, 2)))
            case 17:
                attempt(consumer.group_metadata)
            case _:
                attempt(consumer.poll, rng.choice((0, 500, 4000)), rng.choice((None, 1)))
                for tp in sorted(consumer.assignment())[:2]:
                    attempt(consumer.position, tp)

    def poll_all(self) -> None:
        """Poll each consumer a few times, so that their groups become stable."""
        for _ in range(3):
            for consumer in self.consumers:
                self.attempt(consumer.poll)

    def add_consumer(self) -> None:
        rng = self.rng
        group_id = rng.choice(CONSUMERS["group_id"])
        configs = drawn(self.rng, CONSUMERS, 0.5) | {
            "group_id": group_id,
            "consumer_timeout_ms": 200,
        }
        if configs["group_id"] is not None:
            family = self.families[group_id] if rng.random() < 0.9 else rng.choice(FAMILIES)
            configs |= rng.choice(family)
        consumer = self.attempt(self.broker.consumer, **configs)
        if consumer is not None:
            self.consumers.append(consumer)
            self.subscribe(consumer)

    def subscribe(self, consumer: Any) -> None:
        rng, attempt = self.rng, self.attempt
        listener = rng.choice(
            (None, _Listener(self.transcript.note, hears_losses=rng.random() < 0.5))
        )
        match rng.randrange(6):
            case 0:
                attempt(consumer.assign, [TopicPartition("t", 1), TopicPartition("c", 0)])
            case 1:
                attempt(consumer.subscribe, pattern="^t.*", listener=listener)
            case _:
                topics = rng.choice((["t"], ["t"], ["t", "c"], ["u", "t"]))
                attempt(consumer.subscribe, topics, listener=listener)
