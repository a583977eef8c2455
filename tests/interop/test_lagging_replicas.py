"""Batches of an idempotent producer while too few replicas are in sync, and afterwards.

Three brokers of Kafka 4.3.1 and three of ours answer the same sequence of requests alike. A client
that bumps its epoch after OUT_OF_ORDER_SEQUENCE_NUMBER may append a record twice on both sides, as
librdkafka does with several requests in flight (librdkafka issue 4953).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

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


def responses(nodes: Nodes) -> list[tuple[str, int]]:
    """Send all batches to the leader; its followers are dead during `ALONE`."""
    client = Client(nodes, VERSIONS, Counter(), seed=1)
    await_registered(client)
    create_topic([client], TOPIC)
    settle([client], [TOPIC])
    fields = {"transactional_id": None, "transaction_timeout_ms": 1000}
    new = client.ask(Call("InitProducerId", 0, lambda _: fields, ANY))
    producer_id = client.value_of(new["producerId"])
    leader = Caller(nodes.addresses()[LEADER])
    received = []

    def send(batches: list[tuple[str, int, int]]) -> None:
        for name, sequence, epoch in batches:
            data = build_batch(
                [Record(0, 1000, b"k", name.encode())],
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
            answer = leader.call("Produce", 9, produce_fields(TOPIC, LEADER, data))
            (partition,) = answer.responses[0].partition_responses
            received.append((NAMES[partition.error_code], partition.base_offset))

    def in_sync() -> int:
        return len(client.partitions(LEADER, [TOPIC])[TOPIC, LEADER][0])

    send(IN_SYNC)
    followers = [each for each in range(SIZE) if each != LEADER]
    for each in followers:
        nodes.kill(each)
    until(lambda: in_sync() == 1, f"{nodes.name} has one replica in sync")
    send(ALONE)
    for each in followers:
        nodes.begin_restart(each)
    for each in followers:
        nodes.await_restarted(each)
    until(lambda: in_sync() == SIZE, f"{nodes.name} has all replicas in sync")
    send(IN_SYNC_AGAIN)
    leader.close()
    client.close()
    return received


def test_ours_answers_as_expected(scratch: Path):
    with OurCluster(scratch, SETTINGS) as nodes:
        assert responses(nodes) == EXPECTED


def test_kafka_answers_as_expected(scratch: Path):
    try:
        with KafkaCluster(scratch, SETTINGS) as nodes:
            assert responses(nodes) == EXPECTED
    except Unavailable as error:
        unavailable(error)
