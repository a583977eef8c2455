"""The same client requests to a running Kafka broker and to this engine's listener.

Each step is a request of a random version, sent to both over plain connections; all fields of the
two responses must be equal, except as listed in `tests.support.interop.answers`. Run by hand:

    python -m tests.interop.conversations kafka3 0 500                # seeds, end exclusive
"""

from __future__ import annotations

import contextlib
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logstore import Broker
from logstore.messages.apis import apis_by_name
from logstore.record.batch import build_batch
from logstore.record.codecs import Codec
from logstore.record.records import Record
from tests.support.interop import real_broker
from tests.support.interop.answers import (
    FIRST_MS,
    Closed,
    Side,
    differences,
    errors_in,
    response_data,
)
from tests.support.interop.caller import Caller, ClosedByPeer
from tests.support.interop.judge import RELEASES, Release, fast_scratch
from tests.support.interop.real_broker import RealBroker

Fields = Mapping[str, Any]
Build = Callable[["Side"], Fields]

SETTLED_WITHIN_S = 30

SETTINGS = {
    "log.roll.ms": "604800000",
    "log.retention.ms": "-1",
    "log.cleaner.backoff.ms": "600000",
    "log.retention.check.interval.ms": "600000",
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "600000",
}
"""Settings of both brokers: no background activity during a history."""

EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -2, -1, -3, -4, -5
TOPIC, BROKER = 2, 4
NO_ERROR = 0
CONCURRENT_TRANSACTIONS, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 51, 27, 79
NOT_YET = frozenset({14, 15, 16, CONCURRENT_TRANSACTIONS})
"""Errors of a coordinator that is about to serve, or to end a transaction."""


class Difference(AssertionError):
    """The two responses differ."""


# -- requests ------------------------------------------------------------------------------------


@dataclass
class Tally:
    """Numbers of requests and covered cases."""

    histories: int = 0
    requests: Counter[str] = field(default_factory=Counter)
    errors: Counter[int] = field(default_factory=Counter)
    versions: set[tuple[str, int]] = field(default_factory=set)
    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.histories} histories, {self.requests.total()} requests "
            f"({dict(self.requests)}) in {len(self.versions)} versions, errors "
            f"{dict(sorted(self.errors.items()))}, {self.seconds:.1f} s"
        )


@dataclass(eq=False)
class Producer:
    """An idempotent or transactional producer, as its client knows it."""

    name: str
    transactional_id: str | None
    epoch: int
    sequences: Counter[tuple[str, int]] = field(default_factory=Counter)
    added: set[tuple[str, int]] = field(default_factory=set)
    has_offsets: bool = False
    is_v2: bool = False

    @property
    def is_open(self) -> bool:
        return bool(self.added) or self.has_offsets


@dataclass(eq=False)
class Member:
    """A group member with its own connection."""

    connection: str
    name: str
    instance: str | None
    generation: int = -1
    is_leader: bool = False


class Conversation:
    """One seed's history.

    Parameters
    ----------
    seed : int
    kafka, ours : Side
    closed : Closed
    tally : Tally
    transactions : int
        How often transactions continue, relative to the other requests.
    """

    def __init__(
        self,
        seed: int,
        kafka: Side,
        ours: Side,
        closed: Closed,
        tally: Tally,
        transactions: int = 14,
    ) -> None:
        self.transactions = transactions
        self.rng = random.Random(seed)
        self.seed = seed
        self.sides = (kafka, ours)
        self.closed = closed
        self.tally = tally
        self.steps: list[str] = []
        served = [side.versions() for side in self.sides]
        self.served = {
            api.name: (
                max(versions[api.key][0] for versions in served),
                min(versions[api.key][1] for versions in served),
            )
            for api in apis_by_name().values()
            if all(api.key in versions for versions in served)
        }
        self.topics: dict[str, int] = {}
        self.log_append: set[str] = set()
        self.keyed: set[str] = set()
        self.zstd: set[str] = set()
        self.producers: list[Producer] = []
        self.members: dict[str, list[Member]] = {}
        self.lives: Counter[int] = Counter()
        self.now_ms = FIRST_MS + seed

    @property
    def serves_v2(self) -> bool:
        """Whether both serve transactions version 2."""
        return self.served["EndTxn"][1] >= 5

    # -- sending -------------------------------------------------------------------------------

    def version(self, api: str, least: int = 0, most: int = 99) -> int:
        """Draw a version that both serve."""
        low, high = self.served[api]
        low, high = max(low, least), min(high, most)
        return self.rng.choice((low, high, self.rng.randint(low, high)))

    def ask(
        self, api: str, version: int, build: Build, connection: str = "main", *, until: bool = False
    ) -> Any:
        """Send a request to both and compare; return the answer, named, of both.

        With `until`, the request is repeated while a side responds that it is not ready yet.

        Raises
        ------
        Difference
        """
        for side in self.sides:
            self._send(side, api, version, build, connection)
        return self._answers(api, version, build, connection, until=until)

    def _send(self, side: Side, api: str, version: int, build: Build, connection: str) -> None:
        side.caller(connection).send(api, version, build(side))

    def _answers(
        self, api: str, version: int, build: Build, connection: str, *, until: bool = False
    ) -> Any:
        answers = []
        for side in self.sides:
            deadline = time.monotonic() + SETTLED_WITHIN_S
            answer = self._receive(side, api, version, connection)
            while until and set(errors_in(answer)) & NOT_YET and time.monotonic() < deadline:
                time.sleep(0.02)
                self._send(side, api, version, build, connection)
                answer = self._receive(side, api, version, connection)
            answers.append(answer)
        self._compare(api, version, *answers, build)
        return answers[0]

    def _receive(self, side: Side, api: str, version: int, connection: str) -> Any:
        try:
            return response_data(side, api, version, side.caller(connection).receive())
        except ClosedByPeer:
            side.forget(connection)
            return "closed"

    def _compare(self, api: str, version: int, kafka: Any, ours: Any, build: Build) -> None:
        self.steps.append(f"{api} {version} {build(self.sides[0])}"[:300])
        self.tally.requests[api] += 1
        self.tally.versions.add((api, version))
        self.tally.errors.update(code for code in errors_in(kafka) if code)
        result = [each for each in differences(kafka, ours) if not self.closed.allows(api, *each)]
        if result:
            lines = [f"  {path}: Kafka {one!r}, here {other!r}" for path, one, other in result[:20]]
            lines.append(f"  asked: {str(build(self.sides[0]))[:500]}")
            raise Difference(
                "\n".join([f"seed {self.seed}, {api} {version}", *lines, *self.steps[-12:]])
            )

    def settle(self, api: str, version: int, fields: Fields, done: Callable[[Any], bool]) -> None:
        """Repeat a request until each side is ready; brokers follow their controller with a
        delay."""
        for side in self.sides:
            deadline = time.monotonic() + SETTLED_WITHIN_S
            while not done(
                response_data(side, api, version, side.caller().call(api, version, fields))
            ):
                if time.monotonic() > deadline:
                    raise Difference(
                        f"seed {self.seed}: {side.name} does not settle: {api} {fields}"
                    )
                time.sleep(0.02)

    # -- a history -----------------------------------------------------------------------------

    def run(self, rounds: int) -> None:
        """Run the history; topics, transactions and groups are removed in the end.

        Raises
        ------
        Difference
        """
        for _ in range(self.rng.randint(1, 3)):
            self.create_topic()
        deeds: list[tuple[Callable[[], None], int]] = [
            (self.produce, 24),
            (self.fetch, 16),
            (self.list_offsets, 10),
            (self.produce_wrongly, 6),
            (self.fetch_wrongly, 5),
            (self.begin_producer, 4),
            (self.renew_producer, 4),
            (self.transact, self.transactions),
            (self.write_markers, 1 if self.serves_v2 else 0),
            (self.group, 14),
            (self.commit_offsets, 6),
            (self.fetch_offsets, 6),
            (self.describe_and_delete_groups, 4),
            (self.delete_records, 4),
            (self.alter_configs, 4),
            (self.describe_configs, 3),
            (self.create_topic, 1),
            (self.create_wrongly, 4),
            (self.create_partitions, 2),
            (self.metadata, 4),
            (self.epochs, 3),
            (self.cluster, 2),
            (self.describe_producers_and_transactions, 3),
            (self.delete_topic, 1),
        ]
        acts, weights = zip(*deeds, strict=True)
        try:
            for _ in range(rounds):
                self.rng.choices(acts, weights)[0]()
            self.end()
        finally:
            for side in self.sides:
                side.close()
        self.tally.histories += 1

    def end(self) -> None:
        """End open transactions, and compare everything once more."""
        for producer in self.producers:
            if producer.is_open:
                self.end_transaction(producer)
        for group in self.members:
            self.leave(group, self.members[group][:])
        for topic, partitions in self.topics.items():
            for partition in range(partitions):
                self.fetch_from(topic, partition, 0, isolation=1)
        for topic in list(self.topics):
            self.delete_topic(topic)

    def topic(self) -> str:
        """Draw a topic; there is always one."""
        if not self.topics:
            self.create_topic()
        return self.rng.choice(list(self.topics))

    def somewhere(self) -> tuple[str, int]:
        """Draw a partition."""
        topic = self.topic()
        return topic, self.rng.randrange(self.topics[topic])

    # -- topics --------------------------------------------------------------------------------

    def create_topic(self) -> None:
        """Create a topic with a random configuration."""
        rng = self.rng
        name = f"t{self.seed}.{len(self.steps)}"
        partitions = rng.randint(1, 3)
        configs = {"retention.ms": "-1"}
        policy = rng.choice(("delete", "compact", "compact,delete"))
        configs["cleanup.policy"] = policy
        if rng.random() < 0.2:
            configs["message.timestamp.type"] = "LogAppendTime"
            self.log_append.add(name)
        if rng.random() < 0.2:
            configs["compression.type"] = rng.choice(("gzip", "lz4", "zstd", "uncompressed"))
            if configs["compression.type"] == "zstd":
                self.zstd.add(name)
        if rng.random() < 0.2:
            configs["max.message.bytes"] = "2000"
        if "compact" in policy:
            self.keyed.add(name)
        version = self.version("CreateTopics")
        fields = {
            "topics": [_new_topic(name, partitions, configs)],
            "timeout_ms": 30_000,
        }
        if version >= 1:
            fields["validate_only"] = False
        self.ask("CreateTopics", version, lambda _: fields)
        self.topics[name] = partitions
        self._await_partitions(name, partitions)

    def _await_partitions(self, name: str, partitions: int) -> None:
        request = {
            "replica_id": -1,
            "topics": [
                {
                    "name": name,
                    "partitions": [
                        {"partition_index": number, "timestamp": LATEST}
                        for number in range(partitions)
                    ],
                }
            ],
        }
        self.settle("ListOffsets", 1, request, lambda answer: not any(errors_in(answer)))

    def create_wrongly(self) -> None:
        """Request invalid topics."""
        rng = self.rng
        name = f"t{self.seed}.{len(self.steps)}"
        topics = [
            _new_topic(self.topic(), 1, {}),
            _new_topic("no good/name", 1, {}),
            _new_topic("", 1, {}),
            _new_topic("..", 1, {}),
            _new_topic("x" * 250, 1, {}),
            _new_topic(name, 0, {}),
            _new_topic(name, 1, {}, replication=3),
            _new_topic(name, 1, {}, replication=0),
            _new_topic(name, 1, {"no.such.key": "1"}),
            _new_topic(name, 1, {"cleanup.policy": "shred"}),
            _new_topic(name, 1, {"segment.bytes": "-7"}),
            _new_topic(name, 1, {"retention.ms": "soon"}),
            {**_new_topic(name, 1, {}), "assignments": [{"partition_index": 0, "broker_ids": [0]}]},
        ]
        version = self.version("CreateTopics")
        fields: dict[str, Any] = {"topics": [rng.choice(topics)], "timeout_ms": 30_000}
        if version >= 1:
            fields["validate_only"] = rng.random() < 0.3
        self.ask("CreateTopics", version, lambda _: fields)

    def create_partitions(self) -> None:
        """Request more partitions, or fewer."""
        name = self.rng.choice((self.topic(), f"none{self.seed}"))
        count = self.topics.get(name, 1) + self.rng.choice((1, 1, 0, -1))
        version = self.version("CreatePartitions")
        fields = {
            "topics": [{"name": name, "count": count, "assignments": None}],
            "timeout_ms": 30_000,
            "validate_only": self.rng.random() < 0.3,
        }
        answer = self.ask("CreatePartitions", version, lambda _: fields)
        if not any(errors_in(answer)) and not fields["validate_only"]:
            self.topics[name] = count
            self._await_partitions(name, count)

    def delete_topic(self, name: str | None = None) -> None:
        """Delete a topic, or one that is not there."""
        name = name or self.rng.choice((self.topic(), f"none{self.seed}"))
        version = self.version("DeleteTopics", most=5)
        fields = {"topic_names": [name], "timeout_ms": 30_000}
        if any(producer.is_open for producer in self.producers):
            return
        self.ask("DeleteTopics", version, lambda _: fields)
        if self.topics.pop(name, None):
            for producer in self.producers:
                for key in [key for key in producer.sequences if key[0] == name]:
                    del producer.sequences[key]
            self.settle(
                "Metadata", 1, {"topics": [{"name": name}]}, lambda answer: 3 in errors_in(answer)
            )

    def metadata(self) -> None:
        """Request metadata."""
        names = self.rng.choice(
            ([self.topic()], [f"none{self.seed}"], ["no good/name"], list(self.topics), [])
        )
        version = self.version("Metadata")
        if not names and version == 0:
            return
        fields: dict[str, Any] = {"topics": [{"name": name} for name in names]}
        if version >= 4:
            fields["allow_auto_topic_creation"] = False
        self.ask("Metadata", version, lambda _: fields)

    def cluster(self) -> None:
        """Request the cluster's description."""
        version = self.version("DescribeCluster", most=1)
        self.ask(
            "DescribeCluster", version, lambda _: {"include_cluster_authorized_operations": False}
        )
        if "DescribeTopicPartitions" in self.served:
            fields = {"topics": [{"name": self.topic()}, {"name": f"none{self.seed}"}]}
            self.ask("DescribeTopicPartitions", 0, lambda _: fields)
        version = self.version("DescribeLogDirs")
        topic, partition = self.somewhere()
        fields = {"topics": [{"topic": topic, "partitions": [partition]}]}
        self.ask("DescribeLogDirs", version, lambda _: fields)

    # -- configurations ------------------------------------------------------------------------

    def alter_configs(self) -> None:
        """Change a topic's configuration, rightly or not."""
        rng = self.rng
        name = rng.choice((self.topic(), self.topic(), f"none{self.seed}"))
        key, value = rng.choice(
            (
                ("min.cleanable.dirty.ratio", "0.25"),
                ("delete.retention.ms", "1000"),
                ("max.message.bytes", "3000"),
                ("no.such.key", "1"),
                ("cleanup.policy", "shred"),
                ("min.compaction.lag.ms", "-3"),
                ("max.message.bytes", "100000"),
            )
        )
        validate = rng.random() < 0.3
        if rng.random() < 0.7:
            api = "IncrementalAlterConfigs"
            operation = rng.choice((0, 0, 0, 1, 2))
            entry: dict[str, Any] = {
                "name": key,
                "config_operation": operation,
                "value": None if operation == 1 else value,
            }
        else:
            api, entry = "AlterConfigs", {"name": key, "value": value}
            if self.topics.get(name) and name in self.log_append:
                return  # It resets the keys that it does not name.
        version = self.version(api)
        fields = {
            "resources": [{"resource_type": TOPIC, "resource_name": name, "configs": [entry]}],
            "validate_only": validate,
        }
        self.ask(api, version, lambda _: fields)
        time.sleep(0.05)

    def describe_configs(self) -> None:
        """Request a configuration, whole or in part."""
        rng = self.rng
        name = rng.choice((self.topic(), self.topic(), f"none{self.seed}"))
        keys = rng.choice(
            (
                None,
                ["cleanup.policy", "max.message.bytes", "retention.ms"],
                ["min.cleanable.dirty.ratio", "no.such.key"],
            )
        )
        version = self.version("DescribeConfigs")
        fields: dict[str, Any] = {
            "resources": [
                {"resource_type": TOPIC, "resource_name": name, "configuration_keys": keys}
            ]
        }
        if version >= 1:
            fields["include_synonyms"] = rng.random() < 0.5
        if version >= 3:
            fields["include_documentation"] = False
        self.ask("DescribeConfigs", version, lambda _: fields)

    # -- data ----------------------------------------------------------------------------------

    def records(self, topic: str, count: int | None = None) -> list[Record]:
        """Draw records; the keys are few."""
        rng = self.rng
        result = []
        for offset in range(rng.randint(1, 5) if count is None else count):
            self.now_ms += rng.randint(0, 1000)
            key = b"k%d" % rng.randrange(4)
            if topic not in self.keyed and rng.random() < 0.2:
                key = None
            value = None if rng.random() < 0.15 else rng.randbytes(rng.randint(0, 60))
            headers = (("h", b"1"),) if rng.random() < 0.1 else ()
            result.append(Record(offset, self.now_ms, key, value, headers))
        return result

    def produce(self) -> None:
        """Produce without transactions; now and then a batch that was sent before."""
        rng = self.rng
        topic, partition = self.somewhere()
        records = self.records(topic)
        plain = [each for each in self.producers if each.transactional_id is None]
        producer = rng.choice([None, *plain])
        version = self.version("Produce", least=3, most=12)
        codec = rng.choice((Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4))
        if version >= 7 and rng.random() < 0.2:
            codec = Codec.ZSTD
        build = self._batch(topic, partition, records, producer, codec)
        answer = self._produce(version, build, rng.choice((-1, 1)))
        if producer is not None and not any(errors_in(answer)):
            producer.sequences[topic, partition] += len(records)
        if rng.random() < 0.15:
            self._produce(version, build, -1)
            if producer is None and not any(errors_in(answer)):
                return

    def _batch(
        self,
        topic: str,
        partition: int,
        records: list[Record],
        producer: Producer | None,
        codec: Codec = Codec.NONE,
        *,
        epoch: int | None = None,
        sequence: int | None = None,
    ) -> Build:
        first = producer.sequences[topic, partition] if producer else 0
        if sequence is not None:
            first = sequence
        known = producer.epoch if producer else -1

        def build(side: Side) -> Fields:
            identity: dict[str, Any] = {}
            if producer is not None:
                identity = {
                    "producer_id": side.value_of(producer.name),
                    "producer_epoch": known if epoch is None else epoch,
                    "base_sequence": first,
                    "is_transactional": producer.transactional_id is not None,
                }
            data = build_batch(records, codec=codec, **identity)
            return _produce_fields(
                topic, partition, data, producer.transactional_id if producer else None
            )

        return build

    def _produce(self, version: int, build: Build, acks: int, *, until: bool = False) -> Any:
        return self.ask("Produce", version, lambda side: {**build(side), "acks": acks}, until=until)

    def produce_wrongly(self) -> None:
        """Send records that must be refused."""
        rng = self.rng
        topic, partition = self.somewhere()
        records = self.records(topic)
        version = self.version("Produce", least=3, most=12)
        data = build_batch(records)
        plain = [each for each in self.producers if each.transactional_id is None]
        which = rng.randrange(9)
        build: Build
        if which == 0:
            build = _always(_produce_fields(f"none{self.seed}", 0, data, None))
        elif which == 1:
            build = _always(_produce_fields(topic, 77, data, None))
        elif which == 2:
            broken = bytearray(data)
            broken[-1] ^= 1
            build = _always(_produce_fields(topic, partition, bytes(broken), None))
        elif which == 3:
            large = [Record(0, self.now_ms, b"k", rng.randbytes(1_200_000))]
            build = _always(_produce_fields(topic, partition, build_batch(large), None))
        elif which == 4:
            nobody = [Record(0, self.now_ms, None, b"v"), Record(1, self.now_ms, b"k", b"v")]
            build = _always(_produce_fields(topic, partition, build_batch(nobody), None))
        elif which == 5 and plain:
            build = self._batch(topic, partition, records, rng.choice(plain), sequence=1000)
        elif which == 6 and plain:
            build = self._batch(topic, partition, records, rng.choice(plain), epoch=77, sequence=5)
        elif which == 7:
            build = _always(_produce_fields(topic, partition, data + data, None))
        else:
            build = _always(_produce_fields(topic, partition, data, None))
            self._produce(version, build, 7)
            return
        self._produce(version, build, -1)

    def fetch(self) -> None:
        """Fetch from somewhere."""
        topic, partition = self.somewhere()
        self.fetch_from(topic, partition, self.rng.choice((0, 0, 1, 3, 10)))

    def fetch_from(
        self, topic: str, partition: int, offset: int, isolation: int | None = None
    ) -> Any:
        """Fetch from an offset on."""
        rng = self.rng
        # Kafka 4 no longer refuses zstd to versions before 10.
        version = self.version("Fetch", least=10 if topic in self.zstd else 4, most=12)
        fields = _fetch_fields(version, topic, partition, offset)
        fields["isolation_level"] = rng.randrange(2) if isolation is None else isolation
        size = rng.choice((1, 200, 1000, 1 << 20))
        fields["topics"][0]["partitions"][0]["partition_max_bytes"] = size
        return self.ask("Fetch", version, lambda _: fields)

    def fetch_wrongly(self) -> None:
        """Fetch from unknown partitions or invalid offsets."""
        rng = self.rng
        topic, partition = self.somewhere()
        topic, partition, offset = rng.choice(
            (
                (f"none{self.seed}", 0, 0),
                (topic, 77, 0),
                (topic, partition, 10_000),
                (topic, partition, -1),
                (topic, partition, -9),
            )
        )
        version = self.version("Fetch", least=10 if topic in self.zstd else 4, most=12)
        fields = _fetch_fields(version, topic, partition, offset)
        if version >= 9 and rng.random() < 0.3:
            fields["topics"][0]["partitions"][0]["current_leader_epoch"] = rng.choice((0, 1, 9))
        self.ask("Fetch", version, lambda _: fields)

    def list_offsets(self) -> None:
        """Request offsets by time."""
        rng = self.rng
        topic, partition = rng.choice((self.somewhere(), self.somewhere(), (self.topic(), 77)))
        version = self.version("ListOffsets", least=1)
        stamps = [EARLIEST, LATEST, FIRST_MS, self.now_ms - rng.randint(0, 5000), self.now_ms + 9]
        if version >= 7:
            stamps.append(MAX_TIMESTAMP)
        if version >= 8:
            stamps.append(EARLIEST_LOCAL)
        if topic in self.log_append:
            stamps = [EARLIEST, LATEST]
        request = {"partition_index": partition, "timestamp": rng.choice(stamps)}
        if version >= 4 and rng.random() < 0.2:
            request["current_leader_epoch"] = rng.choice((0, 9))
        fields: dict[str, Any] = {
            "replica_id": -1,
            "topics": [{"name": topic, "partitions": [request]}],
        }
        if version >= 2:
            fields["isolation_level"] = rng.randrange(2)
        answer = self.ask("ListOffsets", version, lambda _: fields)
        assert answer is not None

    def epochs(self) -> None:
        """Request the end offsets of leader epochs."""
        topic, partition = self.rng.choice((self.somewhere(), (f"none{self.seed}", 0)))
        version = self.version("OffsetForLeaderEpoch", least=2)
        request = {"partition": partition, "leader_epoch": self.rng.choice((0, 1, 7))}
        fields = {"topics": [{"topic": topic, "partitions": [request]}]}
        self.ask("OffsetForLeaderEpoch", version, lambda _: fields)

    def delete_records(self) -> None:
        """Delete records before an offset."""
        topic, partition = self.rng.choice((self.somewhere(), (f"none{self.seed}", 0)))
        version = self.version("DeleteRecords")
        request = {
            "partition_index": partition,
            "offset": self.rng.choice((0, 1, 2, -1, -2, 10_000)),
        }
        fields = {"topics": [{"name": topic, "partitions": [request]}], "timeout_ms": 10_000}
        self.ask("DeleteRecords", version, lambda _: fields)

    # -- producers and transactions ------------------------------------------------------------

    def begin_producer(self) -> None:
        """Request a producer id, with or without a transactional id."""
        rng = self.rng
        transactional_id = rng.choice((None, f"x{self.seed}.{rng.randrange(2)}"))
        version = self.version("InitProducerId", most=4)
        fields = {
            "transactional_id": transactional_id,
            "transaction_timeout_ms": rng.choice((600_000, 600_000, 0, 2_000_000_000)),
        }
        answer = self.ask("InitProducerId", version, _always(fields), until=True)
        if any(errors_in(answer)):
            return
        if transactional_id is not None:
            for each in self.producers:
                if each.transactional_id == transactional_id:
                    self._await_transaction(each)
            self.producers = [
                each for each in self.producers if each.transactional_id != transactional_id
            ]
        self.producers.append(
            Producer(answer["producerId"], transactional_id, answer["producerEpoch"])
        )

    def renew_producer(self) -> None:
        """Request another epoch with a correct or wrong current one (KIP-360)."""
        rng = self.rng
        transactional = [each for each in self.producers if each.transactional_id is not None]
        # A request during a transaction is fenced by Kafka 3; Kafka 4 treats it as a retry.
        able = [each for each in transactional if self.serves_v2 or not each.is_open]
        if not able:
            self.begin_producer()
            return
        producer, other = rng.choice(able), rng.choice(self.producers)
        name = rng.choice((producer.name, producer.name, producer.name, other.name))
        known = producer.epoch + rng.choice((0, 0, 0, -1, 1, 7))
        version = self.version("InitProducerId", least=3, most=4)

        def build(side: Side) -> Fields:
            return {
                "transactional_id": producer.transactional_id,
                "transaction_timeout_ms": 600_000,
                "producer_id": side.value_of(name),
                "producer_epoch": max(0, known),
            }

        answer = self.ask("InitProducerId", version, build, until=True)
        if not any(errors_in(answer)):
            # A client that misses the response retries.
            again = self.ask("InitProducerId", version, build, until=True)
            self._await_transaction(producer)
            self.producers.remove(producer)
            epoch = answer["producerEpoch"] if any(errors_in(again)) else again["producerEpoch"]
            renewed = Producer(answer["producerId"], producer.transactional_id, epoch)
            self.producers.append(renewed)

    def _await_transaction(self, producer: Producer) -> None:
        ended = {"Empty", "CompleteCommit", "CompleteAbort"}
        self.settle(
            "DescribeTransactions",
            0,
            {"transactional_ids": [producer.transactional_id]},
            lambda answer: answer["transactionStates"][0]["transactionState"] in ended,
        )

    def transact(self) -> None:
        """Continue a transaction, or begin one."""
        rng = self.rng
        able = [each for each in self.producers if each.transactional_id is not None]
        if not able:
            self.begin_producer()
            return
        producer = rng.choice(able)
        if not producer.is_open:
            producer.is_v2 = self.serves_v2 and rng.random() < 0.6
        if producer.is_v2:
            self.transact_v2(producer)
            return
        topic, partition = self.somewhere()
        draw = rng.random()
        if draw < 0.3 or not producer.is_open:
            self.add_partition(producer, topic, partition)
        elif draw < 0.65:
            where = rng.choice(sorted(producer.added) or [(topic, partition)])
            self.produce_transactional(producer, *where)
        elif draw < 0.75:
            self.commit_in_transaction(producer)
        elif draw < 0.8:
            wrong = Producer(producer.name, producer.transactional_id, producer.epoch + 5)
            self.add_partition(wrong, topic, partition)
        elif draw < 0.85 and (topic, partition) not in producer.added:
            self.produce_transactional(producer, topic, partition)
        else:
            self.end_transaction(producer)

    def transact_v2(self, producer: Producer) -> None:
        """Continue a transaction of version 2, begin one, or abort without one."""
        rng = self.rng
        topic, partition = self.somewhere()
        draw = rng.random()
        if draw < 0.35 or (draw < 0.8 and not producer.is_open):
            self.produce_v2(producer, topic, partition)
        elif draw < 0.42:
            self.commit_v2(producer)
        elif draw < 0.48:
            self.produce_v2(producer, topic, partition, sequence=rng.choice((1, 7)))
        elif draw < 0.53:
            self.produce_v2(producer, topic, partition, epoch=producer.epoch + rng.choice((-1, 1)))
        elif draw < 0.6:
            self.add_batched(producer, topic, partition)
        elif draw < 0.65:
            wrong = Producer(producer.name, producer.transactional_id, producer.epoch)
            wrong.epoch += rng.choice((-2, -1, 1, 5))
            self.end_v2(wrong, committed=rng.random() < 0.5)
        else:
            self.end_transaction(producer)

    def produce_v2(
        self,
        producer: Producer,
        topic: str,
        partition: int,
        *,
        epoch: int | None = None,
        sequence: int | None = None,
    ) -> None:
        """Produce to a partition that need not be part of the transaction yet."""
        records = self.records(topic)
        epoch = None if epoch is None else max(0, epoch)
        build = self._batch(topic, partition, records, producer, epoch=epoch, sequence=sequence)
        version = self.version("Produce", least=12, most=12)
        answer = self._produce(version, build, -1, until=True)
        if not any(errors_in(answer)) and epoch is None and sequence is None:
            producer.sequences[topic, partition] += len(records)
        producer.added.add((topic, partition))

    def commit_v2(self, producer: Producer) -> None:
        """Commit a group's offsets without adding its partition before."""
        topic, partition = self.somewhere()
        offset = self.rng.randrange(100)

        def build(side: Side) -> Fields:
            request = {
                "partition_index": partition,
                "committed_offset": offset,
                "committed_metadata": "in a transaction",
            }
            return {
                "transactional_id": producer.transactional_id,
                "producer_id": side.value_of(producer.name),
                "producer_epoch": producer.epoch,
                "group_id": f"g{self.seed}.x",
                "topics": [{"name": topic, "partitions": [request]}],
            }

        version = self.version("TxnOffsetCommit", least=5, most=5)
        self.ask("TxnOffsetCommit", version, build, until=True)
        producer.has_offsets = True

    def add_batched(self, producer: Producer, topic: str, partition: int) -> None:
        """Add or verify partitions as a broker does."""
        rng = self.rng
        verify_only = rng.random() < 0.5
        epoch = max(0, producer.epoch + rng.choice((0, 0, 0, -1, 1)))
        name = rng.choice((topic, topic, f"none{self.seed}"))

        def build(side: Side) -> Fields:
            transaction = {
                "transactional_id": producer.transactional_id,
                "producer_id": side.value_of(producer.name),
                "producer_epoch": epoch,
                "verify_only": verify_only,
                "topics": [
                    {"name": topic, "partitions": [partition]},
                    *([] if name == topic else [{"name": name, "partitions": [0]}]),
                ],
            }
            return {"transactions": [transaction]}

        version = self.version("AddPartitionsToTxn", least=4, most=5)
        self.ask("AddPartitionsToTxn", version, build, until=True)
        producer.added.add((topic, partition))

    def end_v2(self, producer: Producer, *, committed: bool) -> Any:
        """End a transaction of version 2; return the answer."""

        def build(side: Side) -> Fields:
            return {
                "transactional_id": producer.transactional_id,
                "producer_id": side.value_of(producer.name),
                "producer_epoch": max(0, producer.epoch),
                "committed": committed,
            }

        answer = self.ask("EndTxn", 5, build, until=True)
        if not any(errors_in(answer)):
            self._await_transaction(producer)
        return answer

    def write_markers(self) -> None:
        """Write markers as a coordinator or an administrator does."""
        rng = self.rng
        if not (able := [each for each in self.producers if each.transactional_id is not None]):
            return
        producer = rng.choice(able)
        topic, partition = self.somewhere()
        epoch = max(0, producer.epoch + rng.choice((0, 0, 1, -1)))
        if epoch > producer.epoch:
            if producer.is_open:
                return  # Kafka's coordinator gives its own markers up, until it restarts
            self.producers.remove(producer)
        marker = {
            "producer_epoch": epoch,
            "transaction_result": rng.random() < 0.5,
            "coordinator_epoch": rng.choice((0, 0, -1)),
            "topics": [
                {"name": topic, "partition_indexes": [partition]},
                {"name": f"none{self.seed}", "partition_indexes": [0]},
            ],
        }
        version = self.version("WriteTxnMarkers", most=2)
        if version == 2:
            marker["transaction_version"] = rng.choice((0, 2))

        def build(side: Side) -> Fields:
            return {"markers": [{**marker, "producer_id": side.value_of(producer.name)}]}

        self.ask("WriteTxnMarkers", version, build)

    def add_partition(self, producer: Producer, topic: str, partition: int) -> None:
        """Add a partition to a transaction."""
        version = self.version("AddPartitionsToTxn", most=3)
        where = {"name": topic, "partitions": [partition]}

        def build(side: Side) -> Fields:
            return {
                "v3_and_below_transactional_id": producer.transactional_id,
                "v3_and_below_producer_id": side.value_of(producer.name),
                "v3_and_below_producer_epoch": producer.epoch,
                "v3_and_below_topics": [where],
            }

        if not any(errors_in(self.ask("AddPartitionsToTxn", version, build, until=True))):
            producer.added.add((topic, partition))

    def produce_transactional(self, producer: Producer, topic: str, partition: int) -> None:
        """Produce in a transaction; also to a partition that was not added."""
        records = self.records(topic)
        build = self._batch(topic, partition, records, producer)
        version = self.version("Produce", least=3, most=11)
        if not any(errors_in(self._produce(version, build, -1))):
            producer.sequences[topic, partition] += len(records)

    def commit_in_transaction(self, producer: Producer) -> None:
        """Commit a group's offsets with the transaction."""
        group = f"g{self.seed}.x"
        topic, partition = self.somewhere()
        version = self.version("AddOffsetsToTxn", most=3)

        def add(side: Side) -> Fields:
            return {
                "transactional_id": producer.transactional_id,
                "producer_id": side.value_of(producer.name),
                "producer_epoch": producer.epoch,
                "group_id": group,
            }

        if any(errors_in(self.ask("AddOffsetsToTxn", version, add, until=True))):
            return
        producer.has_offsets = True
        version = self.version("TxnOffsetCommit", most=4)
        request = {
            "partition_index": partition,
            "committed_offset": self.rng.randrange(100),
            "committed_metadata": "in a transaction",
        }

        def commit(side: Side) -> Fields:
            return {**add(side), "topics": [{"name": topic, "partitions": [request]}]}

        self.ask("TxnOffsetCommit", version, commit, until=True)

    def end_transaction(self, producer: Producer) -> None:
        """Commit or abort, and wait for the markers."""
        committed = self.rng.random() < 0.6
        if producer.is_v2 if self.rng.random() < 0.9 else self.serves_v2:
            answer = self.end_v2(producer, committed=committed)
            old = Producer(producer.name, producer.transactional_id, producer.epoch)
            if not any(errors_in(answer)):
                producer.name, producer.epoch = answer["producerId"], answer["producerEpoch"]
                producer.sequences.clear()
                producer.added.clear()
                producer.has_offsets = False
            if self.rng.random() < 0.3:  # the response was lost
                self.end_v2(old, committed=committed ^ (self.rng.random() < 0.2))
            return
        version = self.version("EndTxn", most=4)

        def build(side: Side) -> Fields:
            return {
                "transactional_id": producer.transactional_id,
                "producer_id": side.value_of(producer.name),
                "producer_epoch": producer.epoch,
                "committed": committed,
            }

        self.ask("EndTxn", version, build, until=True)
        self._await_transaction(producer)
        producer.added.clear()
        producer.has_offsets = False

    def describe_producers_and_transactions(self) -> None:
        """Request the active producers and their transactions."""
        topic, partition = self.somewhere()
        fields = {"topics": [{"name": topic, "partition_indexes": [partition]}]}
        self.ask("DescribeProducers", 0, lambda _: fields)
        ids = [each.transactional_id for each in self.producers if each.transactional_id]
        request = {"transactional_ids": [*ids, f"nobody{self.seed}"]}
        self.ask("DescribeTransactions", 0, lambda _: request)

    # -- groups --------------------------------------------------------------------------------

    def group(self) -> None:
        """Do something in a group with members."""
        rng = self.rng
        number = rng.randrange(2)
        group = f"g{self.seed}.{number}.{self.lives[number]}"
        members = self.members.setdefault(group, [])
        draw = rng.random()
        if not members or (draw < 0.3 and len(members) < 3):
            self.join(group)
        elif draw < 0.5:
            self.heartbeat(group, rng.choice(members))
        elif draw < 0.8:
            self.commit_as_member(group, rng.choice(members))
        else:
            # The leader that Kafka chooses after a leader left depends on the order of a hash map.
            able = [each for each in members if not each.is_leader or len(members) < 3]
            self.leave(group, [rng.choice(able)])
            # Kafka 4 keeps the generation of an empty group, Kafka 3 does not.
            self.lives[number] += not members

    def join(self, group: str) -> None:
        """Let a new member join and the others rejoin; then all sync."""
        rng = self.rng
        old = self.members[group]
        version = self.version("JoinGroup", least=1)
        connection = f"{group}/{len(self.steps)}"
        instance = None
        if version >= 5 and rng.random() < 0.3:
            instance = f"i{len(self.steps)}"
        new = Member(connection, "", instance)
        if version >= 4 and instance is None:
            answer = self.ask("JoinGroup", version, self._join(group, new), connection, until=True)
            new.name = answer["memberId"]
        answers = self._rejoin(group, [new, *old], version, newcomer=new)
        for member in [new, *old]:
            answer = answers[member.connection]
            member.name = answer["memberId"]
            member.generation = answer["generationId"]
            member.is_leader = answer["memberId"] == answer["leader"]
        old.append(new)
        self._sync(group)

    def _join(self, group: str, member: Member, protocols: Iterable[str] = ("range",)) -> Build:
        def build(side: Side) -> Fields:
            fields: dict[str, Any] = {
                "group_id": group,
                "session_timeout_ms": 300_000,
                "rebalance_timeout_ms": 300_000,
                "member_id": side.value_of(member.name) if member.name else "",
                "protocol_type": "consumer",
                "protocols": [{"name": name, "metadata": b"meta"} for name in protocols],
            }
            if member.instance is not None:
                fields["group_instance_id"] = member.instance
            return fields

        return build

    def _rejoin(
        self, group: str, members: list[Member], version: int, newcomer: Member
    ) -> dict[str, Any]:
        """Let all members join; the new member's join waits for the others."""
        build = {each.connection: self._join(group, each) for each in members}
        for side in self.sides:
            self._send(side, "JoinGroup", version, build[newcomer.connection], newcomer.connection)
        others = [each for each in members if each is not newcomer]
        for member in others:
            self._await_rebalance(group, member)
        for member in others:
            for side in self.sides:
                least = 5 if member.instance is not None else 0
                joined = max(version, least)
                self._send(side, "JoinGroup", joined, build[member.connection], member.connection)
        return {
            each.connection: self._answers(
                "JoinGroup",
                version if each is newcomer or each.instance is None else max(version, 5),
                build[each.connection],
                each.connection,
            )
            for each in members
        }

    def _await_rebalance(self, group: str, member: Member) -> None:
        for side in self.sides:
            deadline = time.monotonic() + SETTLED_WITHIN_S
            while True:
                fields = {
                    "group_id": group,
                    "generation_id": member.generation,
                    "member_id": side.value_of(member.name),
                }
                caller = side.caller(member.connection)
                if caller.call("Heartbeat", 0, fields).error_code == REBALANCE_IN_PROGRESS:
                    break
                if time.monotonic() > deadline:
                    raise Difference(f"seed {self.seed}: {side.name} does not rebalance {group}")
                time.sleep(0.01)

    def _sync(self, group: str) -> None:
        members = sorted(self.members[group], key=lambda each: not each.is_leader)
        version = self.version("SyncGroup")
        for member in members:
            if member.is_leader:

                def assign(side: Side) -> list[dict[str, Any]]:
                    return [
                        {"member_id": side.value_of(each.name), "assignment": each.name.encode()}
                        for each in members
                    ]

            else:

                def assign(_: Side) -> list[dict[str, Any]]:
                    return []

            def build(
                side: Side, member: Member = member, assign: Callable[..., Any] = assign
            ) -> Fields:
                fields: dict[str, Any] = {
                    "group_id": group,
                    "generation_id": member.generation,
                    "member_id": side.value_of(member.name),
                    "assignments": assign(side),
                }
                if version >= 3 and member.instance is not None:
                    fields["group_instance_id"] = member.instance
                if version >= 5:
                    fields |= {"protocol_type": "consumer", "protocol_name": "range"}
                return fields

            self.ask("SyncGroup", version, build, member.connection)

    def heartbeat(self, group: str, member: Member) -> None:
        """Send a sign of life, of the right generation or not, of a member or a stranger."""
        rng = self.rng
        generation = member.generation + rng.choice((0, 0, 1, -1))
        stranger = rng.random() < 0.2
        version = self.version("Heartbeat")

        def build(side: Side) -> Fields:
            fields: dict[str, Any] = {
                "group_id": group,
                "generation_id": generation,
                "member_id": "nobody" if stranger else side.value_of(member.name),
            }
            if version >= 3 and member.instance is not None:
                fields["group_instance_id"] = member.instance
            return fields

        self.ask("Heartbeat", version, build, member.connection)

    def commit_as_member(self, group: str, member: Member) -> None:
        """Commit as a member, of the right generation or not."""
        rng = self.rng
        generation = member.generation + rng.choice((0, 0, 0, 1))
        self._commit(group, generation, member, stranger=rng.random() < 0.1)

    def commit_offsets(self) -> None:
        """Commit for a group without members."""
        self._commit(f"g{self.seed}.lone", -1, None)

    def _commit(
        self, group: str, generation: int, member: Member | None, *, stranger: bool = False
    ) -> None:
        rng = self.rng
        version = self.version("OffsetCommit", least=2, most=9)
        topic, partition = rng.choice((self.somewhere(), self.somewhere(), (self.topic(), 77)))
        request: dict[str, Any] = {
            "partition_index": partition,
            "committed_offset": rng.randrange(1000),
            # A metadata string that is too long creates an empty group in Kafka 3 but not in Kafka
            # 4.
            "committed_metadata": rng.choice(("", None, "note", "x" * 5000)[: 4 if member else 3]),
        }
        if version >= 6:
            request["committed_leader_epoch"] = rng.choice((-1, 0))

        def build(side: Side) -> Fields:
            name = side.value_of(member.name) if member else ""
            fields: dict[str, Any] = {
                "group_id": group,
                "generation_id_or_member_epoch": generation,
                "member_id": "nobody" if stranger else name,
                "topics": [{"name": topic, "partitions": [request]}],
            }
            if version >= 7 and member is not None and member.instance is not None:
                fields["group_instance_id"] = member.instance
            return fields

        self.ask("OffsetCommit", version, build, until=True)

    def fetch_offsets(self) -> None:
        """Request committed offsets."""
        rng = self.rng
        group = rng.choice(
            [f"g{self.seed}.lone", f"g{self.seed}.x", f"nobody{self.seed}", *self.members]
        )
        version = self.version("OffsetFetch", least=1, most=9)
        topic, partition = self.somewhere()
        topics: list[dict[str, Any]] | None
        topics = [{"name": topic, "partition_indexes": [partition, 77]}]
        if version >= 2 and rng.random() < 0.4:
            topics = None
        if version >= 8:
            fields: dict[str, Any] = {"groups": [{"group_id": group, "topics": topics}]}
        else:
            fields = {"group_id": group, "topics": topics}
        if version >= 7:
            # For all partitions, Kafka 3 also returns those with only a pending offset.
            fields["require_stable"] = topics is not None and rng.random() < 0.5
        self.ask("OffsetFetch", version, lambda _: fields, until="require_stable" not in fields)

    def leave(self, group: str, leaving: list[Member]) -> None:
        """Let members leave; the others rejoin."""
        for member in leaving:
            version = self.version("LeaveGroup", least=3 if member.instance is not None else 0)

            def build(side: Side, member: Member = member, version: int = version) -> Fields:
                name = side.value_of(member.name)
                if version < 3:
                    return {"group_id": group, "member_id": name}
                identity = {"member_id": name, "group_instance_id": member.instance}
                return {"group_id": group, "members": [identity]}

            self.ask("LeaveGroup", version, build, member.connection)
            self.members[group].remove(member)
            for side in self.sides:
                side.forget(member.connection)
            staying = self.members[group]
            if staying and not set(staying) <= set(leaving):
                version = self.version("JoinGroup", least=5)
                answers = self._rejoin_all(group, staying, version)
                for other in staying:
                    answer = answers[other.connection]
                    other.generation = answer["generationId"]
                    other.is_leader = answer["memberId"] == answer["leader"]
                self._sync(group)

    def _rejoin_all(self, group: str, members: list[Member], version: int) -> dict[str, Any]:
        for member in members:
            self._await_rebalance(group, member)
        build = {each.connection: self._join(group, each) for each in members}
        for member in members:
            for side in self.sides:
                self._send(side, "JoinGroup", version, build[member.connection], member.connection)
        return {
            each.connection: self._answers(
                "JoinGroup", version, build[each.connection], each.connection
            )
            for each in members
        }

    def describe_and_delete_groups(self) -> None:
        """Describe groups, and delete one."""
        rng = self.rng
        group = rng.choice([f"g{self.seed}.lone", f"nobody{self.seed}", *self.members])
        which = rng.randrange(4)
        if which == 0:
            version = self.version("DescribeGroups")
            self.ask("DescribeGroups", version, _always({"groups": [group]}))
        elif which == 1:
            version = self.version("FindCoordinator")
            fields: dict[str, Any]
            if version >= 4:
                fields = {"key_type": 0, "coordinator_keys": [group]}
            elif version >= 1:
                fields = {"key": group, "key_type": rng.randrange(2)}
            else:
                fields = {"key": group}
            self.ask("FindCoordinator", version, _always(fields), until=True)
        elif which == 2:
            topic, partition = self.somewhere()
            where = {"name": topic, "partitions": [{"partition_index": partition}]}
            self.ask("OffsetDelete", 0, _always({"group_id": group, "topics": [where]}))
        elif group == f"nobody{self.seed}" or rng.random() < 0.3:
            version = self.version("DeleteGroups")
            self.ask("DeleteGroups", version, _always({"groups_names": [group]}))


# -- fields --------------------------------------------------------------------------------------


def _always(fields: Fields) -> Build:
    return lambda _: fields


def _new_topic(
    name: str, partitions: int, configs: Mapping[str, str], replication: int = 1
) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replication,
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }


def _produce_fields(
    topic: str, partition: int, data: bytes, transactional_id: str | None
) -> dict[str, Any]:
    return {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout_ms": 10_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": data}]}],
    }


def _fetch_fields(version: int, topic: str, partition: int, offset: int) -> dict[str, Any]:
    request = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    fields: dict[str, Any] = {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 24,
        "topics": [{"topic": topic, "partitions": [request]}],
    }
    if version >= 7:
        fields |= {"session_id": 0, "session_epoch": -1}
    return fields


# -- running -------------------------------------------------------------------------------------


@contextlib.contextmanager
def our_broker(path: Path) -> Iterator[str]:
    """Serve a broker of ours over real time; yields its address."""
    settings = {**real_broker.SETTINGS, **SETTINGS}
    with Broker(path, broker_config=settings) as broker, broker.listen(auto_create=False) as server:
        yield server.bootstrap


def warm_up(side: Side) -> None:
    """Wait until a side's coordinators are available: Kafka creates their topics at first use."""
    caller = side.caller()
    for key_type in (0, 1):
        until(lambda kind=key_type: _found(caller, kind))
    request = {"group_id": "warm", "topics": []}
    until(lambda: caller.call("OffsetFetch", 5, request).error_code == NO_ERROR)
    init = {"transactional_id": "warm", "transaction_timeout_ms": 1000}
    until(lambda: caller.call("InitProducerId", 1, init).error_code == NO_ERROR)
    side.close()


def _found(caller: Caller, key_type: int) -> bool:
    answer = caller.call("FindCoordinator", 1, {"key": "warm", "key_type": key_type})
    return answer.error_code == NO_ERROR


def until(done: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + SETTLED_WITHIN_S
    while not done():
        assert time.monotonic() < deadline, "the broker does not get ready"
        time.sleep(0.1)


def converse(
    release: Release,
    kafka: str,
    ours: str,
    seeds: Iterable[int],
    rounds: int = 40,
    transactions: int = 14,
) -> tuple[Tally, Closed]:
    """Run the histories of seeds on two brokers, one of them Kafka's of a release.

    Raises
    ------
    Difference
        Of the first seed whose answers differ.
    """
    tally, closed = Tally(), Closed(release.profile)
    began = time.monotonic()
    for name, bootstrap in (("Kafka", kafka), ("here", ours)):
        side = Side(name, bootstrap)
        warm_up(side)
    for seed in seeds:
        sides = Side("Kafka", kafka), Side("here", ours)
        Conversation(seed, *sides, closed, tally, transactions).run(rounds)
    tally.seconds = time.monotonic() - began
    return tally, closed


def main(arguments: list[str]) -> None:
    """Run a range of seeds on a release and this engine; `self` compares Kafka with itself.

    With `transactions`, most requests belong to transactions.
    """
    profile, first, end, *rest = arguments
    transactions = 200 if "transactions" in rest else 14
    release = next(each for each in RELEASES if each.profile == profile)
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=fast_scratch())))
        kafka = RealBroker.of(release, home / "kafka", SETTINGS)
        stack.enter_context(kafka)
        if "self" in rest:
            other = RealBroker.of(release, home / "other", SETTINGS)
            ours = stack.enter_context(other).bootstrap
        else:
            ours = stack.enter_context(our_broker(home / "ours"))
        failed = 0
        for seed in range(int(first), int(end)):
            try:
                tally, closed = converse(
                    release, kafka.bootstrap, ours, [seed], transactions=transactions
                )
                summary = f"{seed}: {tally}; {dict(closed.used)}"
            except Difference as error:
                failed += 1
                summary = str(error)
            sys.stdout.write(f"{summary}\n")
        sys.stdout.write(f"{failed} seeds differ\n")


if __name__ == "__main__":
    main(sys.argv[1:])
