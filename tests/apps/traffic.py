"""The traffic of an application: the orders sent, and the records in its output.

The clients are confluent-kafka's (librdkafka), so that no code is shared with the applications,
which use Kafka's Java client.
"""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.apps.processes import TIMEOUT_S, wait_for

REGIONS = 5
CUSTOMERS = 40
ITEMS = 60


class Order(NamedTuple):
    """An order of a customer."""

    customer: str
    item: str
    amount: int

    @property
    def region(self) -> str:
        """Return the part of the customer's name before the dash."""
        return self.customer.partition("-")[0]


def order(number: int) -> Order:
    """Return the order with a number; it is the same each time."""
    rng = random.Random(number)
    customer = rng.randrange(CUSTOMERS)
    item = int(rng.paretovariate(0.5)) % ITEMS
    return Order(f"r{customer % REGIONS}-{customer}", f"item{item}", rng.randrange(1000))


# -- topics --------------------------------------------------------------------------------------


def create_topics(
    bootstrap: str, topics: Mapping[str, int], configs: Mapping[str, str] | None = None
) -> None:
    """Create topics, each with its number of partitions and all with the same configuration."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(name, count, config=dict(configs or {})) for name, count in topics.items()]
    for done in admin.create_topics(new).values():
        done.result(TIMEOUT_S)


def partitions_of(bootstrap: str, topics: Iterable[str]) -> list[TopicPartition]:
    """Return all partitions of some topics."""
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=TIMEOUT_S).topics
    return [TopicPartition(topic, number) for topic in topics for number in found[topic].partitions]


def ends_of(
    bootstrap: str, topics: Iterable[str], *, committed: bool = True
) -> dict[tuple[str, int], int]:
    """Return the last stable offset of each partition, or the high watermark."""
    with _consumer(bootstrap, committed=committed) as consumer:
        return {
            (each.topic, each.partition): consumer.get_watermark_offsets(each, TIMEOUT_S)[1]
            for each in partitions_of(bootstrap, topics)
        }


def open_partitions(bootstrap: str) -> set[tuple[str, int]]:
    """Return the partitions whose last stable offset is below the log end offset."""
    topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=TIMEOUT_S).topics
    ends = ends_of(bootstrap, topics)
    return {
        place
        for place, end in ends_of(bootstrap, topics, committed=False).items()
        if end != ends[place]
    }


def committed_of(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    """Return the offsets that a group has committed."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    request = [ConsumerGroupTopicPartitions(group)]
    (done,) = admin.list_consumer_group_offsets(request).values()
    found = done.result(TIMEOUT_S).topic_partitions
    return {(each.topic, each.partition): each.offset for each in found}


# -- sending -------------------------------------------------------------------------------------


class Load(threading.Thread):
    """Sends messages to a topic, at some rate, until it is stopped.

    The producer is idempotent, so every message is in the log once, and messages of one key are in
    the order in which they were sent.

    Parameters
    ----------
    message : callable
        From the number of a message to its key and value.

    Attributes
    ----------
    count : int
        Messages sent so far.
    errors : list of KafkaError
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        message: Callable[[int], tuple[str, str]],
        *,
        per_second: int = 200,
    ) -> None:
        super().__init__(daemon=True)
        self._topic = topic
        self._message = message
        self._pause_s = 1 / per_second
        self._is_ending = threading.Event()
        self.count = 0
        self.errors: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                # With more, records may be appended twice, on Kafka too (librdkafka issue 4953): if
                # NOT_ENOUGH_REPLICAS rejects a batch, and the broker answers the next one in
                # flight with OUT_OF_ORDER_SEQUENCE_NUMBER, librdkafka bumps the producer epoch.
                # Batches of other partitions that were appended but not acknowledged are then
                # appended again, because the brokers do not know them in the new epoch.
                "max.in.flight.requests.per.connection": 1,
                "linger.ms": 5,
                "message.timeout.ms": TIMEOUT_S * 1000,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ending.set()
        self.join()

    def run(self) -> None:
        while not self._is_ending.wait(self._pause_s):
            key, value = self._message(self.count)
            self._producer.produce(self._topic, value, key, on_delivery=self._on_delivery)
            self.count += 1
            self._producer.poll(0)

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.errors.append(error)

    def end(self) -> int:
        """Stop sending, wait until every message is acknowledged, and return how many there are."""
        self._is_ending.set()
        self.join()
        left = self._producer.flush(TIMEOUT_S)
        assert (left, self.errors) == (0, []), "messages that are not delivered"
        return self.count


# -- reading -------------------------------------------------------------------------------------


_DISCONNECTED = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}


class Watched(Protocol):
    """A program, or the brokers, whose end fails the test."""

    def ensure_running(self) -> None: ...


class Reader:
    """Reads topics without deletions from their beginning, as `read_committed`.

    Attributes
    ----------
    messages : list of Message
        In the order in which they came, which is the log's within each partition.
    """

    def __init__(self, bootstrap: str, topics: Sequence[str]) -> None:
        self.messages: list[Message] = []
        self._counts: Counter[str] = Counter()
        self._bootstrap = bootstrap
        self._topics = topics
        self._consumer = _consumer(bootstrap)
        partitions = partitions_of(bootstrap, topics)
        for each in partitions:
            each.offset = OFFSET_BEGINNING
        self._all = {(each.topic, each.partition) for each in partitions}
        self._ended: set[tuple[str, int]] = set()
        self._consumer.assign(partitions)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def poll(self) -> None:
        """Take the available records, or wait for some."""
        for message in self._consumer.consume(500, 0.1):
            place = (message.topic(), message.partition())
            error = message.error()
            if error is None:
                self.messages.append(message)
                self._counts[message.topic()] += 1
                self._ended.discard(place)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ended.add(place)
            else:
                assert error.retriable() or error.code() in _DISCONNECTED, error

    def await_output(
        self, count: int, programs: Collection[Watched], topics: Collection[str] = ()
    ) -> None:
        """Read until each topic, or all together, have a number of records; watch the programs."""

        def is_there() -> bool:
            self.poll()
            for program in programs:
                program.ensure_running()
            counts = [self.count(topic) for topic in topics] or [len(self.messages)]
            return min(counts) >= count

        wait_for(is_there, f"{count} records of output")

    def finish(self) -> None:
        """Read everything up to the ends that the partitions have now."""
        with Reader(self._bootstrap, self._topics) as reader:
            for _ in range(TIMEOUT_S * 10):
                reader.poll()
                if reader._ended == self._all:
                    break
            else:
                raise TimeoutError(f"no end of {self._all - reader._ended}")
        found, again = self.offsets(), reader.offsets()
        assert found <= again, "records that were read before are gone"
        self.messages, self._counts = reader.messages, reader._counts

    def offsets(self) -> set[tuple[str, int, int]]:
        """Return topic, partition and offset of each message."""
        return {(each.topic(), each.partition(), each.offset()) for each in self.messages}

    def count(self, topic: str) -> int:
        """Return the number of messages from a topic."""
        return self._counts[topic]

    def by_key(self, topic: str) -> dict[str, list[str]]:
        """Return the values of each key of a topic, in their order."""
        values: dict[str, list[str]] = defaultdict(list)
        for message in self.messages:
            if message.topic() == topic:
                values[message.key().decode()].append(message.value().decode())
        return dict(values)


def _consumer(bootstrap: str, *, committed: bool = True) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "never-used",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 1000,
        }
    )
