"""Three brokers, restarted one after another under a client's load: no record lost or doubled.

The client is confluent-kafka (librdkafka), idempotent, with acks=all. Every record reported as
delivered, in the end all records, is once and in order on every replica.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from logstore import Cluster, TopicPartition

pytestmark = pytest.mark.interop

PARTITIONS = 3
DELAY_MS = 20
"""Delay of each message between brokers: a leader is always some records ahead of its followers,
and would lose them if it acknowledged too early."""

ROUNDS = 2
"""Restarts of each broker."""

TIMEOUT_S = 300
"""Maximum wait; nothing that works takes this long."""


class Load(threading.Thread):
    """A producer that sends rising numbers to each partition until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self.delivered: dict[int, list[int]] = defaultdict(list)
        self.refused: list[KafkaError] = []
        self.left = 0
        self._stop_asked = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "retry.backoff.ms": 10,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "topic.metadata.refresh.interval.ms": 200,
                "message.timeout.ms": TIMEOUT_S * 1000,
            }
        )

    def run(self) -> None:
        try:
            self._send()
        except KafkaException as error:  # fatal: the producer sends no more records
            self.refused.append(error.args[0])

    def _send(self) -> None:
        numbers = [0] * PARTITIONS
        while not self._stop_asked.is_set():
            for partition in range(PARTITIONS):
                self._producer.produce(
                    "orders",
                    b"%d" % numbers[partition],
                    partition=partition,
                    on_delivery=self._on_delivery,
                )
                numbers[partition] += 1
            self._producer.poll(0.002)
        self.left = self._producer.flush(TIMEOUT_S)

    def _on_delivery(self, error: KafkaError | None, message: object) -> None:
        if error is not None:
            self.refused.append(error)
        else:
            self.delivered[message.partition()].append(int(message.value()))

    def count(self) -> int:
        return sum(map(len, self.delivered.values()))

    def wait_for_more(self) -> None:
        """Wait until some more are delivered."""
        before = self.count()
        wait_for(lambda: self.refused or self.count() > before + 30)
        assert self.refused == []

    def end(self) -> None:
        self._stop_asked.set()
        self.join()


def wait_for(condition) -> None:
    pause = threading.Event()
    for _ in range(TIMEOUT_S * 100):
        if condition():
            return
        pause.wait(0.01)
    raise TimeoutError


@pytest.mark.parametrize("way", ("stop", "kill", "power loss"))
def test_nothing_acknowledged_is_lost_or_doubled(way, tmp_path):
    with (
        Cluster(brokers=3, data_dir=tmp_path / "cluster", disk_faults=True) as cluster,
        cluster.listen() as server,
    ):
        partitions = [TopicPartition("orders", number) for number in range(PARTITIONS)]
        configs = {"min.insync.replicas": "2", "segment.bytes": "65536"}
        cluster.create_topic("orders", PARTITIONS, configs, replication_factor=3)
        for one, other in ((0, 1), (0, 2), (1, 2)):
            cluster.slow(one, other, DELAY_MS)
        load = Load(server.bootstrap)
        load.start()
        try:
            for broker in list(range(3)) * ROUNDS:
                load.wait_for_more()
                if way == "stop":
                    cluster.stop(broker)
                else:
                    cluster.kill(broker, power_loss=way == "power loss")
                load.wait_for_more()
                cluster.restart(broker)
                wait_for(lambda: all(len(cluster.state(tp).isr) == 3 for tp in partitions))
        finally:
            load.end()
        assert (load.left, load.refused) == (0, [])
        ends = {tp: cluster.leader_log(tp).log_end_offset for tp in partitions}
        assert sum(ends.values()) == load.count() > 6 * 60
        for tp in partitions:
            delivered = load.delivered[tp.partition]
            assert delivered == list(range(len(delivered))), "in the order in which they were sent"
            for broker in cluster.brokers.values():
                log = broker.log(tp)
                wait_for(lambda log=log, tp=tp: log.high_watermark == ends[tp])
                assert [int(record.value) for record in broker.read(tp)] == delivered
        assert consumed(server.bootstrap, sum(ends.values())) == load.delivered


def consumed(bootstrap: str, count: int) -> dict[int, list[int]]:
    """Return the records that a consumer of a group reads, by partition."""
    result: dict[int, list[int]] = defaultdict(list)
    configs = {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    with closing(Consumer(configs)) as consumer:
        consumer.subscribe(["orders"])
        while sum(map(len, result.values())) < count:
            # It waits for all of them or for its time: a short one, again and again.
            for message in consumer.consume(1000, 0.1):
                assert message.error() is None
                result[message.partition()].append(int(message.value()))
    return result
