"""Random calls of a cluster, a broker and its clients, whose results and errors are stored.

The clock is virtual. A call is drawn with arguments that mostly name things that exist.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random
from typing import Any

from logstore import Broker, Cluster, LogStoreError, OffsetAndMetadata, TopicPartition, VirtualClock
from logstore.clients.admin_client import ConfigResource, MemberToRemove, NewTopic, OffsetSpec
from logstore.runtime import MemoryFileSystem
from tests.support.world.transcripts import Transcript

FEW = 48
STEPS = 70
BROKERS = 4
CONFIGS: tuple[dict[str, object], ...] = (
    {},
    {"min.insync.replicas": "2"},
    {"retention.ms": "1h", "segment.bytes": "1 MiB"},
    {"cleanup.policy": "compact"},
    {"cleanup.policy": "x"},
    {"no": "1"},
)
BROKER_CONFIGS = (
    {"log.cleaner.threads": "2"},
    {"log.retention.ms": "3600000"},
    {"leader.replication.throttled.rate": "100"},
    {"node.id": "3"},
    {"mine": "1"},
)
GROUP_CONFIGS = (
    {"consumer.session.timeout.ms": "50000"},
    {"consumer.heartbeat.interval.ms": "1"},
    {"no": "1"},
)
BAD = (LogStoreError, ValueError, TypeError, KeyError)


def transcribe(seed: int) -> Transcript:
    """Return random calls and their results; half of the seeds are about a cluster."""
    return (_ClusterCalls if seed % 2 else _BrokerCalls)(seed).run()


class Calls:
    """Random calls and their transcript."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.transcript = Transcript()
        self.clock = VirtualClock()

    def attempt(self, call: Callable[..., object], *arguments: Any, **options: Any) -> Any:
        """Note a call and its result, or its error."""
        self.note_call(call, *arguments, **options)
        try:
            result = call(*arguments, **options)
        except BAD as error:
            self.transcript.note(type(error).__name__, str(error))
            return None
        if not callable(getattr(result, "close", None)):
            self.transcript.note(result)
        return result

    def note_call(self, call: Callable[..., object], *arguments: Any, **options: Any) -> None:
        self.transcript.note(self.clock.now_ms(), call.__name__, arguments, options)

    def some(self, *values: Any) -> list[Any]:
        return self.rng.sample(values, self.rng.randint(0, min(2, len(values))))

    def topic(self) -> str:
        return self.rng.choice(
            ("t", "t", "t", "u", "u", "v", "no") if self.rng.random() < 0.9 else ("a/b", "")
        )

    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic(), self.rng.choice((0, 0, 1, 1, 2, 9)))


class _ClusterCalls(Calls):
    """Administration of a cluster."""

    def run(self) -> Transcript:
        config = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
        racks = ["a", "b", "a", "b"] if self.seed % 4 == 1 else None
        with Cluster(
            BROKERS, clock=self.clock, seed=self.seed, broker_config=config, racks=racks
        ) as cluster:
            self.cluster = cluster
            self.attempt(cluster.create_topic, "t", 2, replication_factor=3)
            for _ in range(STEPS):
                self.step()
                self.note_state()
        return self.transcript

    def step(self) -> None:
        rng, cluster, attempt = self.rng, self.cluster, self.attempt
        brokers = rng.sample(range(BROKERS + 1), rng.randint(0, 3))
        running = list(cluster.brokers)
        match rng.randrange(20):
            case 0 | 1:
                factor = rng.choice((-1, 1, 2, 3, 9))
                configs, count = rng.choice(CONFIGS), rng.choice((0, 1, 2, 3))
                attempt(
                    cluster.create_topic, self.topic(), count, configs, replication_factor=factor
                )
            case 2:
                attempt(cluster.create_topic, self.topic(), 1, assignment=[brokers])
            case 3:
                attempt(cluster.create_partitions, self.topic(), rng.randint(0, 4))
            case 4:
                total = rng.randint(0, 4)
                attempt(cluster.create_partitions, self.topic(), total, assignment=[brokers] * 2)
            case 5:
                unset = self.some("min.insync.replicas", "retention.ms", "no")
                attempt(cluster.alter_configs, self.topic(), rng.choice(CONFIGS), unset=unset)
            case 6:
                attempt(cluster.delete_topic, self.topic())
            case 7:
                configs = rng.choice(BROKER_CONFIGS)
                attempt(cluster.alter_broker_configs, configs, brokers=rng.choice((None, brokers)))
            case 8:
                attempt(cluster.alter_group_configs, "g", rng.choice(GROUP_CONFIGS))
            case 9 | 10 | 11:
                attempt(cluster.reassign, self.tp(), replicas=rng.choice((None, brokers, brokers)))
            case 12:
                attempt(cluster.move_leader, self.tp(), to=rng.randint(-1, BROKERS))
            case 13:
                wanted = {self.tp(): rng.choice((0, 1, 2, -1)) for _ in range(2)}
                attempt(cluster.delete_records, wanted, timeout_ms=100)
            case 14 if running:
                attempt(cluster.stop, rng.choice(running))
            case 15:
                ended = sorted(set(range(BROKERS)) - set(running))
                for broker in ended:
                    cluster.restart(broker)
            case 16:
                attempt(cluster.append, "t", value=b"v", partition=rng.randint(0, 3))
            case 17:
                attempt(cluster.group_coordinator, rng.choice("gh"))
                attempt(cluster.transaction_coordinator, rng.choice("xy"))
            case _:
                self.clock.advance(ms=rng.choice((1, 1000, 31_000)))

    def note_state(self) -> None:
        cluster, note = self.cluster, self.transcript.note
        note([*cluster.brokers], cluster.reassignments())
        for topic in cluster.topics():
            note(topic.name, topic.id, dict(topic.configs), topic.partitions)
            for state in topic.partitions:
                tp = state.topic_partition
                hosts = [
                    number for number, broker in cluster.brokers.items() if self._has(broker, tp)
                ]
                note(hosts, cluster.leader(tp))
                self.attempt(cluster.low_watermark, tp)

    @staticmethod
    def _has(broker: Broker[Any], tp: TopicPartition) -> bool:
        try:
            broker.log(tp)
        except LogStoreError:
            return False
        return True


class _BrokerCalls(Calls):
    """Calls of an administrator, of producers and of consumers."""

    def run(self) -> Transcript:
        config = {"log.dirs": "/one,/two", "offsets.topic.num.partitions": 2}
        fs = MemoryFileSystem(self.clock)
        with Broker(None, fs=fs, clock=self.clock, seed=self.seed, broker_config=config) as broker:
            self.broker = broker
            broker.create_topic("t", 2)
            broker.create_topic("u")
            self.admin = broker.admin()
            self.consumers: list[Any] = []
            self.producers = [broker.producer(transactional_id=each) for each in "xy"]
            if self.seed % 4:
                self.producers[0].init_transactions()
            self.producers.append(broker.producer(enable_idempotence=True))
            for _ in range(STEPS):
                self.step()
                self.clock.advance(ms=self.rng.choice((0, 1, 100, 1000)))
        return self.transcript

    def step(self) -> None:
        self.rng.choice(
            (self.administer, self.administer, self.produce, self.produce, self.consume)
        )()

    def administer(self) -> None:  # noqa: PLR0912  # one case for each call
        rng, admin, attempt = self.rng, self.admin, self.attempt
        raises = {"raise_errors": rng.random() < 0.5}
        tps = [self.tp() for _ in range(rng.randint(1, 2))]
        kinds = ("topic", "topic", "broker", "group")
        resource = (rng.choice(kinds), rng.choice(("t", "u", "0", "g", "")))
        match rng.randrange(22):
            case 0:
                attempt(admin.describe_topics, rng.choice((None, ["t", "no"])))
            case 1:
                new = NewTopic(
                    self.topic(),
                    rng.choice((-1, 1, 2, 0)),
                    rng.choice((-1, 1, 2)),
                    rng.choice((None, None, {0: [0]}, {0: [0], 2: [0]}, {0: [1]})),
                    rng.choice(CONFIGS),
                )
                attempt(admin.create_topics, [new], validate_only=rng.random() < 0.3, **raises)
            case 2:
                attempt(admin.delete_topics, [rng.choice(("v", "no"))], **raises)
            case 3:
                attempt(admin.create_partitions, {self.topic(): rng.randint(0, 3)}, **raises)
            case 4 | 5:
                keys = rng.choice((None, ["retention.ms", "log.cleaner.threads", "no"]))
                which = rng.choice(("all", "modified"))
                asked = [ConfigResource(*resource, keys)]
                attempt(admin.describe_configs, asked, rng.random() < 0.5, which)
            case 6 | 7:
                configs = rng.choice((*CONFIGS, *BROKER_CONFIGS))
                asked = [ConfigResource(*resource, configs)]
                attempt(admin.alter_configs, asked, rng.random() < 0.3)
            case 8:
                asked = [ConfigResource(*resource, rng.choice((None, ["retention.ms"])))]
                attempt(admin.reset_configs, asked)
            case 9:
                states = rng.choice((None, ["Empty"], ["Stable"]))
                types = rng.choice((None, ["classic"], ["consumer"]))
                attempt(admin.list_groups, None, states, types)
            case 10 | 11:
                attempt(admin.describe_groups, ["g", "h", "no"])
            case 12:
                attempt(admin.delete_groups, self.some("g", "h", "no"))
            case 13:
                members = [MemberToRemove(rng.choice(("m", None)), rng.choice(("i", None, "no")))]
                attempt(admin.remove_group_members, rng.choice("gh"), members)
            case 14:
                offsets = {tp: OffsetAndMetadata(rng.randint(0, 3), "m") for tp in tps}
                attempt(admin.alter_group_offsets, rng.choice("gh"), offsets)
            case 15:
                attempt(admin.list_group_offsets, rng.choice(("g", ["g", "h"], {"g": tps})))
            case 16:
                specs = {tp: rng.choice((*OffsetSpec, 0, 5, -7)) for tp in tps}
                attempt(admin.reset_group_offsets, rng.choice("gh"), specs)
            case 17:
                attempt(admin.delete_group_offsets, rng.choice("gh"), tps)
            case 18:
                attempt(admin.delete_records, {tp: rng.choice((0, 1, 99, -1)) for tp in tps})
            case 19:
                specs = {tp: rng.choice((*OffsetSpec, 0, self.clock.now_ms())) for tp in tps}
                level = rng.choice(("read_committed", "READ_UNCOMMITTED", "x"))
                attempt(admin.list_partition_offsets, specs, level)
            case 20:
                attempt(admin.describe_log_dirs, rng.choice((None, ["t"], {"t": [0], "u": [5]})))
                attempt(admin.describe_cluster)
            case _:
                moves = {tp: rng.choice(("/one", "/two", "/three")) for tp in tps}
                attempt(admin.alter_replica_log_dirs, moves)

    def produce(self) -> None:
        rng, attempt = self.rng, self.attempt
        producer = rng.choice(self.producers)
        match rng.randrange(9):
            case 0:
                attempt(producer.init_transactions)
            case 1 | 2:
                attempt(producer.begin_transaction)
            case 3 | 4 | 5:
                headers = rng.choice(([], [("h", b"1")]))
                future = self._send(producer, headers)
                if future is not None:
                    attempt(producer.flush)
                    self.transcript.note(future.is_done, future.exception)
                    self.transcript.note(future.value if future.succeeded() else None)
            case 6:
                offsets = {self.tp(): OffsetAndMetadata(rng.randint(0, 3), "")}
                attempt(producer.send_offsets_to_transaction, offsets, "g")
            case 7:
                attempt(producer.commit_transaction)
            case _:
                attempt(producer.abort_transaction)

    def _send(self, producer: Any, headers: Any) -> Any:
        value = self.rng.choice((b"v", None, b"x" * 100))
        key = self.rng.choice((b"k", None))
        try:
            return producer.send(self.topic(), value, key, headers=headers)
        except BAD as error:
            self.transcript.note(type(error).__name__, str(error))
            return None

    def consume(self) -> None:
        rng, attempt = self.rng, self.attempt
        if not self.consumers or (len(self.consumers) < 3 and rng.random() < 0.3):
            protocol = rng.choice(({}, {"group_protocol": "consumer"}, {"group_instance_id": "i"}))
            options = {"group_id": rng.choice("gh"), "auto_offset_reset": "earliest"} | protocol
            found = attempt(self.broker.consumer, *self.some("t", "u"), **options)
            if found is not None:
                self.consumers.append(found)
            return
        consumer = rng.choice(self.consumers)
        tps = [self.tp()]
        assigned = sorted(consumer.assignment())
        tps += assigned[:1]
        match rng.randrange(16):
            case 0:
                attempt(consumer.subscribe, ["t", "u"])
            case 1:
                attempt(consumer.seek, tps[-1], rng.choice((0, 1, 99, -1)))
            case 2:
                attempt(consumer.seek_to_beginning, *tps)
            case 3:
                attempt(consumer.pause, tps[-1])
                self.transcript.note(sorted(consumer.paused()))
            case 4:
                attempt(consumer.resume, tps[-1])
            case 5:
                attempt(consumer.commit)
            case 6:
                attempt(consumer.committed, tps[-1])
            case 7:
                attempt(consumer.end_offsets, tps)
                attempt(consumer.beginning_offsets, tps)
            case 8:
                attempt(consumer.offsets_for_times, {tp: rng.choice((0, 1 << 50)) for tp in tps})
            case 9:
                attempt(consumer.unsubscribe)
            case 10:
                self.consumers.remove(consumer)
                attempt(consumer.close)
            case 11:
                attempt(consumer.partitions_for_topic, self.topic())
                attempt(consumer.topics)
            case _:
                attempt(consumer.poll, rng.choice((0, 500, 4000)))
                for tp in itertools.islice(sorted(consumer.assignment()), 2):
                    attempt(consumer.position, tp)
