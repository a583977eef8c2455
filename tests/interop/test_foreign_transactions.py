"""Batches sent into another producer's transaction: Kafka's responses and this engine's."""

from __future__ import annotations

import pytest

from logstore import Broker
from logstore.errors import KAFKA_CODES
from logstore.record.batch import build_batch
from logstore.record.records import Record
from tests.interop.conftest import unavailable
from tests.interop.conversations import warm_up
from tests.support.interop.answers import Side
from tests.support.interop.caller import Caller
from tests.support.interop.judge import RELEASES, Unavailable
from tests.support.interop.real_broker import RealBroker

pytestmark = pytest.mark.interop

FIRST, OPEN = "first", "open"
"""Topics: the batch is the first one of the transaction there, or a later one."""

ATTEMPTS_MAX = 1000
NOT_ALLOWED = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
NOT_MAPPED = "INVALID_PRODUCER_ID_MAPPING"
EPOCH = "INVALID_PRODUCER_EPOCH"


def until(ask, code_of):
    """Repeat until the call succeeds: a broker that has just started may not be ready."""
    for _ in range(ATTEMPTS_MAX):
        answer = ask()
        if code_of(answer) == 0:
            return answer
    raise TimeoutError


def story(bootstrap):
    """Return the error of each batch."""
    warm_up(Side("", bootstrap))
    caller = Caller(bootstrap)
    topics = [
        {"name": name, "num_partitions": 1, "replication_factor": 1} for name in (FIRST, OPEN)
    ]
    caller.call("CreateTopics", 5, {"topics": topics, "timeout_ms": 5000})

    def init(name):
        fields = {"transactional_id": name, "transaction_timeout_ms": 600_000}
        ask = lambda: caller.call("InitProducerId", 1, fields)  # noqa: E731  # asked again and again
        result = until(ask, lambda answer: answer.error_code)
        return result.producer_id, result.producer_epoch

    def produce(topic, name, producer, sequence, *, is_transactional=True):
        producer_id, epoch = producer
        data = build_batch(
            [Record(0, 1, b"k", b"v")],
            base_sequence=sequence,
            is_transactional=is_transactional,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        partition = {"index": 0, "records": data}
        topics = [{"name": topic, "partition_data": [partition]}]
        fields = {"transactional_id": name, "acks": -1, "timeout_ms": 5000, "topic_data": topics}
        code = caller.call("Produce", 9, fields).responses[0].partition_responses[0].error_code
        return next(each for each, number in KAFKA_CODES.items() if number == code)

    init("x")
    owner, _ = init("x"), init("y")
    old = (owner[0], owner[1] - 1)
    added = {
        "v3_and_below_transactional_id": "x",
        "v3_and_below_producer_id": owner[0],
        "v3_and_below_producer_epoch": owner[1],
        "v3_and_below_topics": [{"name": name, "partitions": [0]} for name in (FIRST, OPEN)],
    }
    until(
        lambda: caller.call("AddPartitionsToTxn", 1, added),
        lambda answer: max(
            topic.results_by_partition[0].partition_error_code
            for topic in answer.results_by_topic_v3_and_below
        ),
    )
    assert produce(OPEN, "x", owner, 0) == "NONE"
    errors = {
        (topic, name): produce(topic, name, owner, sequence)
        for topic, sequence in ((FIRST, 0), (OPEN, 1))
        for name in (None, "y", "nobody")
        if (topic, name) != (OPEN, "nobody")
    }
    errors |= {(topic, "old epoch"): produce(topic, "x", old, 0) for topic in (FIRST, OPEN)}
    errors[FIRST, "plain"] = produce(FIRST, None, owner, 0, is_transactional=False)
    caller.close()
    return errors


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.profile)
def test_kafka_looks_at_the_transactional_id_of_the_first_batch_alone(release, scratch):
    """Later ones are taken under any id; here all are held to the owner of the producer id."""
    try:
        kafka = RealBroker.of(release, scratch / "kafka", {})
    except Unavailable as error:
        unavailable(error)
    with kafka:
        theirs = story(kafka.bootstrap)
    with Broker(scratch / "ours") as broker, broker.listen() as listener:
        ours = story(listener.bootstrap)
    assert theirs == {
        (FIRST, None): NOT_ALLOWED,
        (FIRST, "y"): NOT_MAPPED,
        (FIRST, "nobody"): NOT_MAPPED,
        (OPEN, None): NOT_ALLOWED,
        (OPEN, "y"): "NONE",
        (FIRST, "old epoch"): EPOCH,
        (OPEN, "old epoch"): EPOCH,
        (FIRST, "plain"): "NONE",
    }
    assert ours == {**theirs, (OPEN, "y"): NOT_MAPPED}
