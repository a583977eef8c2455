"""Batches of an idempotent producer on replicas that lag behind, or that do not know the producer.

Three brokers of Kafka 4.3.1 and three of ours answer the same sequence of requests alike. A client
that bumps its epoch after OUT_OF_ORDER_SEQUENCE_NUMBER, as librdkafka does with several requests in
flight, can append a record twice on both sides (librdkafka issue 4953). If the leader is a new
replica that was copied after all records of the producer had been deleted, records can also be
appended out of order: the leader accepts any first sequence of a producer it does not know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pytest

from logstore.errors import KAFKA_CODES
from logstore.record.batch import build_batch
from logstore.record.records import Record
from tests.interop.conftest import unavailable
from tests.interop.failovers import SETTINGS
from tests.support.interop.caller import Caller
from tests.support.interop.judge import Unavailable
from tests.support.interop.real_cluster import SIZE
from tests.support.interop.two_clusters import (
    ANY,
    Call,
    Client,
    KafkaCluster,
    Nodes,
    OurCluster,
    await_registered,
    create_topic,
    produce_fields,
    settle,
    until,
)

pytestmark = pytest.mark.interop

TOPIC = "t"
LEADER = 0
NEW = 2

NAMES = {code: name for name, code in KAFKA_CODES.items()}

VERSIONS = {"CreateTopics": (5, 5), "ElectLeaders": (2, 2), "Metadata": (9, 9)}

IN_SYNC = [("sent first", 0, 0)]
ALONE = [
    ("R1", 1, 0),
    ("R2", 2, 0),
    ("a duplicate", 0, 0),
]
IN_SYNC_AGAIN = [
    ("R2 without R1", 2, 0),
    ("a duplicate", 0, 0),
    ("R1", 1, 0),
    ("R1 again", 1, 0),
    ("R2", 2, 0),
    ("a gap in the next epoch", 3, 1),
    ("R1 in the next epoch", 0, 1),
    ("R1 in the former epoch", 1, 0),
]
"""Name, sequence and epoch of each batch."""

EXPECTED = [
    ("NONE", 0),
    ("NOT_ENOUGH_REPLICAS", -1),
    ("NOT_ENOUGH_REPLICAS", -1),
    ("NOT_ENOUGH_REPLICAS", -1),
    ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1),
    ("NONE", 0),
    ("NONE", 1),
    ("NONE", 1),
    ("NONE", 2),
    ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1),
    ("NONE", 3),
    ("INVALID_PRODUCER_EPOCH", -1),
]
"""Error and base offset of each response."""


COPIED = [("R2 without R1", 2, 0), ("R1", 1, 0), ("R1 in the next epoch", 0, 1)]
"""Batches for the new leader, after the producer's only record has been deleted."""

EXPECTED_OF_COPY = [
    ("NONE", 0),
    ("NONE", 1),
    ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1),
    ("NONE", 2),
]


class Producer:
    """An idempotent producer that sends one batch after the other, and its topic.

    Attributes
    ----------
    received : list
        Error and base offset of each response.
    """

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.client = Client(nodes, VERSIONS, Counter(), seed=1)
        self.received: list[tuple[str, int]] = []
        await_registered(self.client)
        create_topic([self.client], TOPIC)
        settle([self.client], [TOPIC])
        fields = {"transactional_id": None, "transaction_timeout_ms": 1000}
        new = self.client.ask(Call("InitProducerId", 0, lambda _: fields, ANY))
        self._id = self.client.value_of(new["producerId"])
        self._callers: dict[int, Caller] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for caller in self._callers.values():
            caller.close()
        self.client.close()

    def call(self, broker: int, api: str, version: int, fields: Mapping[str, Any]) -> Any:
        """Send a request to a broker."""
        if broker not in self._callers:
            self._callers[broker] = Caller(self.nodes.addresses()[broker])
        return self._callers[broker].call(api, version, fields)

    def send(self, broker: int, batches: list[tuple[str, int, int]]) -> None:
        """Send batches of one record to a broker."""
        for name, sequence, epoch in batches:
            data = build_batch(
                [Record(0, 1000, b"k", name.encode())],
                producer_id=self._id,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
            answer = self.call(broker, "Produce", 9, produce_fields(TOPIC, LEADER, data))
            (partition,) = answer.responses[0].partition_responses
            self.received.append((NAMES[partition.error_code], partition.base_offset))

    def partition(self) -> tuple[tuple[int, ...], int]:
        """Return the in-sync replicas and the leader."""
        return self.client.partitions(LEADER, [TOPIC])[TOPIC, LEADER]

    def reassign(self, replicas: Sequence[int]) -> None:
        """Move the partition to other replicas, and wait until they are in sync."""
        partition = {"partition_index": LEADER, "replicas": list(replicas)}
        topics = [{"name": TOPIC, "partitions": [partition]}]
        fields = {"timeout_ms": 30_000, "topics": topics}
        answer = self.call(LEADER, "AlterPartitionReassignments", 0, fields)
        assert not answer.error_code
        assert not answer.responses[0].partitions[0].error_code
        wanted = tuple(sorted(replicas))
        until(
            lambda: self.partition()[0] == wanted and self.partition()[1] in replicas,
            f"{self.nodes.name} has moved the partition to {replicas}",
        )


def responses_while_lagging(nodes: Nodes) -> list[tuple[str, int]]:
    """Send batches to the leader; its followers are dead during `ALONE`."""
    with Producer(nodes) as producer:
        producer.send(LEADER, IN_SYNC)
        followers = [each for each in range(SIZE) if each != LEADER]
        for each in followers:
            nodes.kill(each)
        until(lambda: len(producer.partition()[0]) == 1, f"{nodes.name} has one replica in sync")
        producer.send(LEADER, ALONE)
        for each in followers:
            nodes.begin_restart(each)
        for each in followers:
            nodes.await_restarted(each)
        until(lambda: len(producer.partition()[0]) == SIZE, f"{nodes.name} has all in sync")
        producer.send(LEADER, IN_SYNC_AGAIN)
        return producer.received


def responses_of_copy(nodes: Nodes) -> list[tuple[str, int]]:
    """Delete the producer's record, and send batches to a replica that is copied afterwards."""
    with Producer(nodes) as producer:
        producer.reassign([LEADER, 1])
        producer.send(LEADER, IN_SYNC)
        topics = [{"name": TOPIC, "partitions": [{"partition_index": LEADER, "offset": -1}]}]
        fields = {"topics": topics, "timeout_ms": 30_000}
        answer = producer.call(LEADER, "DeleteRecords", 2, fields)
        assert answer.topics[0].partitions[0].low_watermark == 1
        producer.reassign([NEW, 1])
        until(lambda: producer.partition()[1] == NEW, f"{nodes.name} elects the new replica")
        producer.send(NEW, COPIED)
        return producer.received


SCENARIOS = ((responses_while_lagging, EXPECTED), (responses_of_copy, EXPECTED_OF_COPY))


@pytest.mark.parametrize(("responses", "expected"), SCENARIOS, ids=("lagging", "copied"))
def test_ours_answers_as_expected(responses, expected, scratch: Path):
    with OurCluster(scratch, SETTINGS) as nodes:
        assert responses(nodes) == expected


@pytest.mark.parametrize(("responses", "expected"), SCENARIOS, ids=("lagging", "copied"))
def test_kafka_answers_as_expected(responses, expected, scratch: Path):
    try:
        with KafkaCluster(scratch, SETTINGS) as nodes:
            assert responses(nodes) == expected
    except Unavailable as error:
        unavailable(error)
