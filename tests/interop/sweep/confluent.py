"""The sweep through confluent-kafka."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from tests.interop.sweep.reporting import WITHIN_S, address, long_values, report, until

SERVER = {"bootstrap.servers": address()}
QUICK = {"heartbeat.interval.ms": 200, "session.timeout.ms": 30000}


def _send(producer: Producer, topic: str, *values: str) -> list[Message]:
    sent: list[Message] = []

    def note(error: object, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        sent.append(message)

    for value in values:
        producer.produce(topic, value, "k", 0, headers=[("h", b"x")], on_delivery=note)
    if producer.flush(WITHIN_S):
        raise TimeoutError(f"{topic} was not written")
    return sent


def _numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def produce() -> object:
    sent = _send(Producer({**SERVER, "compression.type": "gzip"}), "written", *long_values())
    return {"first": sent[0].offset()}


def idempotent() -> object:
    producer = Producer({**SERVER, "enable.idempotence": True})
    for number in _numbers(20):
        _send(producer, "once", number)
    return {}


def transaction() -> object:
    producer = Producer({**SERVER, "transactional.id": "booking-1"})
    producer.init_transactions(WITHIN_S)
    producer.begin_transaction()
    _send(producer, "booked", *(f"c{number}" for number in range(10)))
    with closing(_member("booking")) as member:
        offsets = [TopicPartition("transfers", 0, 7)]
        producer.send_offsets_to_transaction(offsets, member.consumer_group_metadata())
    producer.commit_transaction(WITHIN_S)
    producer.begin_transaction()
    _send(producer, "booked", *(f"a{number}" for number in range(10)))
    producer.abort_transaction(WITHIN_S)
    producer.begin_transaction()
    _send(producer, "booked", "d0")
    producer.commit_transaction(WITHIN_S)
    read: list[str] = []
    with closing(_member("nobody")) as reader:
        reader.assign([TopicPartition("booked", 0, OFFSET_BEGINNING)])
        until(lambda: "d0" in read, lambda: read.extend(_polled(reader)))
    return {"read": read}


def _member(group: str) -> Consumer:
    configs = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    return Consumer({**SERVER, **QUICK, **configs, "isolation.level": "read_committed"})


def _polled(consumer: Consumer) -> list[str]:
    result = []
    for message in consumer.consume(100, 0.1):
        if message.error() is not None:
            raise KafkaException(message.error())
        result.append(message.value().decode())
    return result


def group() -> object:
    read: list[str] = []
    with closing(_member("readers")) as consumer:
        consumer.subscribe(["events"])
        until(lambda: len(read) >= 100, lambda: read.extend(_polled(consumer)))
        consumer.commit(asynchronous=False)
    return {"read": sorted(read)}


def rebalance() -> object:
    sizes = []
    with closing(_member("pair")) as one:
        one.subscribe(["events"])
        two = _member("pair")

        def step(*members: Consumer) -> Callable[[], None]:
            def poll() -> None:
                for member in members:
                    member.poll(0.1)

            return poll

        until(lambda: len(one.assignment()) == 4, step(one))
        sizes.append([len(one.assignment())])
        with closing(two):
            two.subscribe(["events"])
            until(lambda: len(one.assignment()) == len(two.assignment()) == 2, step(one, two))
            sizes.append([len(one.assignment()), len(two.assignment())])
        until(lambda: len(one.assignment()) == 4, step(one))
        sizes.append([len(one.assignment())])
    return {"sizes": sizes}


def _result(futures: dict) -> object:
    (future,) = futures.values()
    return future.result(WITHIN_S)


def delete_records() -> object:
    admin = AdminClient(SERVER)
    deleted = _result(admin.delete_records([TopicPartition("old", 0, 12)]))
    request = {TopicPartition("old", 0): OffsetSpec.earliest()}
    earliest = _result(admin.list_offsets(request))
    return {"low": deleted.low_watermark, "earliest": earliest.offset}


def configs() -> object:
    admin = AdminClient(SERVER)
    topic = ConfigResource(ConfigResource.Type.TOPIC, "configured")

    def retention() -> str:
        return _result(admin.describe_configs([topic]))["retention.ms"].value

    before = retention()
    entry = ConfigEntry("retention.ms", "12345", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ConfigResource.Type.TOPIC, "configured", incremental_configs=[entry])
    _result(admin.incremental_alter_configs([change]))
    return {"before": before, "after": retention()}


def acls() -> object:
    admin = AdminClient(SERVER)
    prefixed = (ResourceType.TOPIC, "orders-", ResourcePatternType.PREFIXED)
    allow = AclPermissionType.ALLOW
    wanted = [
        AclBinding(*prefixed, "User:ann", "*", AclOperation.READ, allow),
        AclBinding(*prefixed, "User:bob", "*", AclOperation.WRITE, allow),
    ]
    for future in admin.create_acls(wanted).values():
        future.result(WITHIN_S)

    def principals() -> list[str]:
        every = AclBindingFilter(
            *prefixed, None, None, AclOperation.ANY, AclPermissionType.ANY
        )  # fmt: skip
        return sorted(acl.principal for acl in admin.describe_acls(every).result(WITHIN_S))

    created = principals()
    bobs = AclBindingFilter(
        *prefixed, "User:bob", None, AclOperation.ANY, AclPermissionType.ANY
    )  # fmt: skip
    _result(admin.delete_acls([bobs]))
    return {"created": created, "left": principals()}


if __name__ == "__main__":
    report(produce, idempotent, transaction, group, rebalance, delete_records, configs, acls)
