"""The sweep through kafka-python 2 or 3, whichever is installed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import closing

from tests.interop.sweep.reporting import WITHIN_S, address, long_values, report, until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of how version 3 reads its schemas
    import kafka
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import (
        ACL,
        ACLFilter,
        ACLOperation,
        ACLPermissionType,
        ACLResourcePatternType,
        ConfigResource,
        ConfigResourceType,
        ResourcePattern,
        ResourcePatternFilter,
        ResourceType,
    )
    from kafka.structs import OffsetAndMetadata

IS_OLD = kafka.__version__.startswith("2.")
BOOKED = TopicPartition("booked", 0)
OLD = TopicPartition("old", 0)
SOURCE = TopicPartition("transfers", 0)


def _producer(**configs: object) -> KafkaProducer:
    return KafkaProducer(bootstrap_servers=address(), **configs)


def _consumer(group: str | None, *topics: str) -> KafkaConsumer:
    consumer = KafkaConsumer(
        bootstrap_servers=address(),
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        heartbeat_interval_ms=200,
    )
    if topics:
        # kafka-python 3 forgets a subscription made while its first metadata request is in flight.
        consumer.topics()
        consumer.subscribe(topics)
    return consumer


def _admin() -> KafkaAdminClient:
    return KafkaAdminClient(bootstrap_servers=address())


def _send(producer: KafkaProducer, topic: str, *values: str) -> list:
    sent = [
        producer.send(topic, value.encode(), b"k", [("h", b"x")], partition=0) for value in values
    ]
    producer.flush(WITHIN_S)
    return [each.get(WITHIN_S) for each in sent]


def _read(consumer: KafkaConsumer) -> list[str]:
    result = consumer.poll(100)
    return [record.value.decode() for records in result.values() for record in records]


def produce() -> object:
    with closing(_producer(compression_type="gzip", enable_idempotence=False)) as producer:
        sent = _send(producer, "written", *long_values())
    return {"first": sent[0].offset}


def idempotent() -> object:
    with closing(_producer(enable_idempotence=True)) as producer:
        for number in range(20):
            _send(producer, "once", str(number))
    return {}


def transaction() -> object:
    with closing(_producer(transactional_id="booking-1")) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        _send(producer, "booked", *(f"c{number}" for number in range(10)))
        offsets = {SOURCE: OffsetAndMetadata(7, "", -1)}
        producer.send_offsets_to_transaction(offsets, "booking" if IS_OLD else _metadata())
        producer.commit_transaction()
        producer.begin_transaction()
        _send(producer, "booked", *(f"a{number}" for number in range(10)))
        producer.abort_transaction()
        producer.begin_transaction()
        _send(producer, "booked", "d0")
        producer.commit_transaction()
    read: list[str] = []
    with closing(_consumer(None)) as consumer:
        consumer.assign([BOOKED])
        until(lambda: "d0" in read, lambda: read.extend(_read(consumer)))
    return {"read": read}


def _metadata() -> object:
    with closing(_consumer("booking")) as consumer:
        return consumer.group_metadata()


def group() -> object:
    read: list[str] = []
    with closing(_consumer("readers", "events")) as consumer:
        until(lambda: len(read) >= 100, lambda: read.extend(_read(consumer)))
        consumer.commit()
    return {"read": sorted(read)}


def rebalance() -> object:
    sizes = []

    def polling(*members: KafkaConsumer) -> Callable[[], None]:
        def step() -> None:
            for member in members:
                member.poll(100)

        return step

    with closing(_consumer("pair", "events")) as one:
        until(lambda: len(one.assignment()) == 4, polling(one))
        sizes.append([len(one.assignment())])
        with closing(_consumer("pair", "events")) as two:
            until(
                lambda: len(one.assignment()) == len(two.assignment()) == 2,
                polling(one, two),
            )
            sizes.append([len(one.assignment()), len(two.assignment())])
        until(lambda: len(one.assignment()) == 4, polling(one))
        sizes.append([len(one.assignment())])
    return {"sizes": sizes}


def delete_records() -> object:
    with closing(_admin()) as admin:
        low = admin.delete_records({OLD: 12})[OLD]["low_watermark"]
    with closing(_consumer(None)) as consumer:
        return {"low": low, "earliest": consumer.beginning_offsets([OLD])[OLD]}


def configs() -> object:
    with closing(_admin()) as admin:

        def retention() -> str:
            request = ConfigResource(ConfigResourceType.TOPIC, "configured")
            if IS_OLD:
                (answer,) = admin.describe_configs([request])
                ((error, message, _, _, entries),) = (each[:5] for each in answer.resources)
                if error:
                    raise RuntimeError(message)
                return next(entry[1] for entry in entries if entry[0] == "retention.ms")
            answer = admin.describe_configs([request], config_filter="all")
            return answer["topic"]["configured"]["retention.ms"]["value"]

        before = retention()
        wanted = {"retention.ms": "12345"}
        admin.alter_configs(
            [ConfigResource(ConfigResourceType.TOPIC, "configured", configs=wanted)]
        )
        return {"before": before, "after": retention()}


def acls() -> object:
    prefixed = ("orders-", ACLResourcePatternType.PREFIXED)
    allow = ACLPermissionType.ALLOW
    topics = ResourcePattern(ResourceType.TOPIC, *prefixed)
    filtered = ResourcePatternFilter(ResourceType.TOPIC, *prefixed)
    with closing(_admin()) as admin:
        admin.create_acls(
            [
                ACL("User:ann", "*", ACLOperation.READ, allow, topics),
                ACL("User:bob", "*", ACLOperation.WRITE, allow, topics),
            ]
        )

        def matching(principal: str | None) -> ACLFilter:
            return ACLFilter(principal, None, ACLOperation.ANY, ACLPermissionType.ANY, filtered)

        def principals() -> list[str]:
            result, _ = admin.describe_acls(matching(None))
            return sorted(acl.principal for acl in result)

        created = principals()
        admin.delete_acls([matching("User:bob")])
        return {"created": created, "left": principals()}


if __name__ == "__main__":
    report(produce, idempotent, transaction, group, rebalance, delete_records, configs, acls)
