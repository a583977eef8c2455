"""A batch of a transaction that is refused once: Kafka's responses to later batches."""

from __future__ import annotations

import time

import pytest

from logstore import Authorizer, Broker
from logstore.record.batch import build_batch
from logstore.record.records import Record
from tests.interop.conftest import unavailable
from tests.interop.conversations import warm_up
from tests.support.interop.answers import Side
from tests.support.interop.caller import Caller
from tests.support.interop.judge import RELEASES, Unavailable
from tests.support.interop.real_broker import RealBroker

pytestmark = pytest.mark.interop

SETTLED_WITHIN_S = 30
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
TOPIC, LITERAL, WRITE, DENY, ALLOW, ALL, ANY = 2, 3, 4, 2, 3, 2, 1
DENIED, ALLOWED = (
    {
        "resource_type": TOPIC,
        "resource_name": "t",
        "resource_pattern_type": LITERAL,
        "principal": "User:*",
        "host": "*",
        "operation": operation,
        "permission_type": permission,
    }
    for operation, permission in ((WRITE, DENY), (ALL, ALLOW))
)


def until(done):
    deadline = time.monotonic() + SETTLED_WITHIN_S
    while not done():
        assert time.monotonic() < deadline, "the broker does not settle"
        time.sleep(0.05)


def story(bootstrap):
    """Return the error of each batch of a transaction, of which the second is denied."""
    warm_up(Side("", bootstrap))
    caller = Caller(bootstrap)
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
    caller.call("CreateTopics", 5, {"topics": [topic], "timeout_ms": 5000})
    caller.call("CreateAcls", 3, {"creations": [ALLOWED]})
    init = {"transactional_id": "x", "transaction_timeout_ms": 600_000}
    producer = caller.call("InitProducerId", 1, init)
    who = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    added = {
        "v3_and_below_transactional_id": "x",
        "v3_and_below_producer_id": who["producer_id"],
        "v3_and_below_producer_epoch": who["producer_epoch"],
        "v3_and_below_topics": [{"name": "t", "partitions": [0]}],
    }

    def is_added():
        answer = caller.call("AddPartitionsToTxn", 1, added)
        topics = answer.results_by_topic_v3_and_below
        return topics[0].results_by_partition[0].partition_error_code == 0

    until(is_added)

    def produce(sequence):
        records = [Record(0, 1, b"k", b"%d" % sequence)]
        data = build_batch(records, base_sequence=sequence, is_transactional=True, **who)
        topics = [{"name": "t", "partition_data": [{"index": 0, "records": data}]}]
        fields = {"transactional_id": "x", "acks": -1, "timeout_ms": 5000, "topic_data": topics}
        return caller.call("Produce", 9, fields).responses[0].partition_responses[0].error_code

    def denies(count):
        request = {
            "resource_type_filter": TOPIC,
            "resource_name_filter": "t",
            "pattern_type_filter": LITERAL,
            "principal_filter": None,
            "host_filter": None,
            "operation": WRITE,
            "permission_type": DENY,
        }
        result = caller.call("DescribeAcls", 3, request).resources
        return sum(len(each.acls) for each in result) == count

    errors = [produce(0)]
    caller.call("CreateAcls", 3, {"creations": [DENIED]})
    until(lambda: denies(1))
    errors.append(produce(1))
    meant = {
        "resource_type_filter": TOPIC,
        "resource_name_filter": "t",
        "pattern_type_filter": LITERAL,
        "principal_filter": None,
        "host_filter": None,
        "operation": WRITE,
        "permission_type": DENY,
    }
    caller.call("DeleteAcls", 3, {"filters": [meant]})
    until(lambda: denies(0))
    errors += [produce(2), produce(1), produce(2)]
    ended = caller.call("EndTxn", 1, {"transactional_id": "x", "committed": True, **who})
    caller.close()
    return [*errors, ended.error_code]


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.profile)
def test_batches_behind_a_denied_one_are_out_of_order_until_it_is_sent_again(release, scratch, say):
    """So librdkafka, which drops a denied batch and sends later ones, receives error 45."""
    try:
        kafka = RealBroker.of(release, scratch / "kafka", SETTINGS)
    except Unavailable as error:
        unavailable(error)
    with kafka:
        theirs = story(kafka.bootstrap)
    authorizer = Authorizer(allow_everyone_if_no_acl_found=True)
    with Broker(scratch / "ours") as broker, broker.listen(authorizer=authorizer) as listener:
        ours = story(listener.bootstrap)
    assert ours == theirs == [0, 29, 45, 0, 0, 0]
    say(f"{release.profile}: a denied batch, those behind it, and it again: {theirs}")
