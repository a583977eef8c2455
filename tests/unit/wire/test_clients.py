"""Clients that people use, unchanged, against a listener: records, topics, configurations."""

import asyncio
from contextlib import closing

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioTopic
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import ConfigResource as KafkaConfigResource
from kafka.errors import TopicAlreadyExistsError
from kafka.structs import TopicPartition

from logstore import Broker, Cluster
from logstore.wire.versions import MINIMUM
from tests.support.world.brokers import values
from tests.support.world.messages import exactly

TIMEOUT_S = 30


@pytest.fixture(params=("recommended", "minimum"))
def server(request):
    """A listener with all versions, or with the fewest that clients get by with."""
    versions = MINIMUM if request.param == "minimum" else None
    with Broker() as broker, broker.listen(versions=versions) as listener:
        broker.create_topic("t", 2)
        yield broker, listener


# -- confluent-kafka (librdkafka) --------------------------------------------------------------


@pytest.mark.parametrize("codec", ("none", "gzip", "snappy", "lz4", "zstd"))
def test_confluent_writes_and_reads(server, codec):
    broker, listener = server
    producer = Producer({"bootstrap.servers": listener.bootstrap, "compression.type": codec})
    delivered = []
    for number in range(100):
        producer.produce(
            "t",
            value=b"%d" % number,
            key=b"k",
            headers=[("h", b"x")],
            partition=0,
            on_delivery=lambda error, message: delivered.append((error, message.offset())),
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert delivered == [(None, number) for number in range(100)]
    assert values(broker, "t") == [b"%d" % number for number in range(100)]
    configs = {"group.id": "g", "enable.auto.commit": False}
    with closing(Consumer({"bootstrap.servers": listener.bootstrap, **configs})) as consumer:
        consumer.assign([ConfluentPartition("t", 0, 40)])
        found = []
        while len(found) < 60:
            found += consumer.consume(60, TIMEOUT_S)
        assert [message.value() for message in found] == [b"%d" % n for n in range(40, 100)]
        assert found[0].headers() == [("h", b"x")]
        assert consumer.get_watermark_offsets(ConfluentPartition("t", 0)) == (0, 100)


def test_confluent_administers(server):
    broker, listener = server
    admin = AdminClient({"bootstrap.servers": listener.bootstrap})

    def done(futures):
        return {key: future.result(TIMEOUT_S) for key, future in futures.items()}

    done(admin.create_topics([NewTopic("new", 3, 1, config={"cleanup.policy": "compact"})]))
    assert broker.topic("new").partitions == (0, 1, 2)
    with pytest.raises(
        KafkaException,
        match=exactly(
            "KafkaError{code=TOPIC_ALREADY_EXISTS,val=36,str=\"Topic 'new' already exists.\"}"
        ),
    ) as caught:
        done(admin.create_topics([NewTopic("new", 1, 1)]))
    assert caught.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    done(admin.create_partitions([NewPartitions("new", 4)]))
    resource = ConfigResource(ConfigResource.Type.TOPIC, "new")
    entry = ConfigEntry("retention.ms", "5", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ConfigResource.Type.TOPIC, "new", incremental_configs=[entry])
    done(admin.incremental_alter_configs([changed]))
    (found,) = done(admin.describe_configs([resource])).values()
    assert (found["retention.ms"].value, found["cleanup.policy"].value) == ("5", "compact")
    assert len(admin.list_topics(timeout=TIMEOUT_S).topics["new"].partitions) == 4
    broker.append("t", value=b"x", partition=0)
    broker.append("t", value=b"y", partition=0)
    asked = {ConfluentPartition("t", 0): OffsetSpec.latest()}
    assert [each.offset for each in done(admin.list_offsets(asked)).values()] == [2]
    deleted = done(admin.delete_records([ConfluentPartition("t", 0, 1)]))
    assert [each.low_watermark for each in deleted.values()] == [1]
    done(admin.delete_topics(["new"]))
    assert [topic.name for topic in broker.topics()] == ["t"]


# -- kafka-python ------------------------------------------------------------------------------


def test_kafka_python_writes_reads_and_administers(server):
    broker, listener = server
    address = listener.bootstrap
    with closing(KafkaProducer(bootstrap_servers=address, enable_idempotence=False)) as producer:
        sent = [producer.send("t", b"%d" % number, partition=1) for number in range(50)]
        assert [each.get(TIMEOUT_S).offset for each in sent] == list(range(50))
    assert values(broker, "t", 1) == [b"%d" % number for number in range(50)]
    tp = TopicPartition("t", 1)
    with closing(KafkaConsumer(bootstrap_servers=address, group_id=None)) as consumer:
        consumer.assign([tp])
        consumer.seek_to_beginning()
        found = []
        while len(found) < 50:
            found += consumer.poll(1000).get(tp, [])
        assert [record.value for record in found] == values(broker, "t", 1)
        assert consumer.beginning_offsets([tp]) == {tp: 0}
        assert consumer.end_offsets([tp]) == {tp: 50}
        assert consumer.offsets_for_times({tp: 0})[tp].offset == 0
    with closing(KafkaAdminClient(bootstrap_servers=address)) as admin:
        admin.create_topics({"new": {"num_partitions": 2, "replication_factor": 1}})
        with pytest.raises(TopicAlreadyExistsError):
            admin.create_topics({"new": {"num_partitions": 2, "replication_factor": 1}})
        assert admin.delete_records({tp: 10})[tp]["low_watermark"] == 10
        assert sorted(admin.list_topics()) == ["new", "t"]
        admin.delete_topics(["new"])
    assert [topic.name for topic in broker.topics()] == ["t"]


# -- aiokafka ----------------------------------------------------------------------------------


def test_aiokafka_writes_reads_and_administers(server):
    broker, listener = server

    async def main():
        address = listener.bootstrap
        producer = AIOKafkaProducer(bootstrap_servers=address)
        await producer.start()
        try:
            for number in range(50):
                sent = await producer.send_and_wait("t", b"%d" % number, partition=0)
                assert sent.offset == number
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=address, group_id=None)
        await consumer.start()
        try:
            tp = AioPartition("t", 0)
            consumer.assign([tp])
            consumer.seek(tp, 20)
            found = [(await consumer.getone()).value for _ in range(30)]
            assert found == [b"%d" % number for number in range(20, 50)]
            assert await consumer.end_offsets([tp]) == {tp: 50}
        finally:
            await consumer.stop()
        admin = AIOKafkaAdminClient(bootstrap_servers=address)
        await admin.start()
        try:
            await admin.create_topics([AioTopic("new", 2, 1)])
            assert sorted(await admin.list_topics()) == ["new", "t"]
        finally:
            await admin.close()

    asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))
    assert len(broker.topic("new").partitions) == 2


# -- keys without effect -------------------------------------------------------------------------

INERT = {"message.format.version": "2.8", "follower.replication.throttled.replicas": "0:0"}
UNKNOWN = "my.plugin.setting"


@pytest.fixture(params=(1, 3))
def bootstrap(request):
    """A broker, or a cluster of three."""
    with Cluster(brokers=request.param) as cluster, cluster.listen() as listeners:
        yield listeners[0].bootstrap


def test_confluent_stores_keys_without_effect_and_unknown_keys(bootstrap):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 1, config=INERT)])["t"].result(TIMEOUT_S)
    described = {}
    for kind, name, configs in (
        (ConfigResource.Type.TOPIC, "t", {"remote.storage.enable": "false"}),
        (ConfigResource.Type.BROKER, "0", {UNKNOWN: "x", "num.io.threads": "12"}),
    ):
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in configs.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
        resource = ConfigResource(kind, name)
        described |= admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert {key: described[key].value for key in INERT} == INERT
    assert described["remote.storage.enable"].value == "false"
    assert described["num.io.threads"].value == "12"
    assert (described[UNKNOWN].value, described[UNKNOWN].is_sensitive) == (None, True)
    tiered = ConfigEntry(
        "remote.storage.enable", "true", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ConfigResource.Type.TOPIC, "t", incremental_configs=[tiered])
    with pytest.raises(KafkaException, match="tiered storage is not supported"):
        admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


def test_kafka_python_stores_keys_without_effect_and_unknown_keys(bootstrap):
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        admin.create_topics({"t": {"num_partitions": 1, "configs": INERT}})
        broker = KafkaConfigResource("BROKER", "0", {UNKNOWN: "x"})
        admin.alter_configs([broker], raise_on_unknown=False)
        described = admin.describe_configs(
            [KafkaConfigResource("TOPIC", "t"), KafkaConfigResource("BROKER", "0")]
        )
    assert {key: described["topic"]["t"][key]["value"] for key in INERT} == INERT
    unknown = described["broker"]["0"][UNKNOWN]
    assert (unknown["value"], unknown["is_sensitive"]) == (None, True)
