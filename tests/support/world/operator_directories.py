"""Directories as operators have them: never cleaned, partly clean, copied in part, damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from logstore import Broker, OffsetAndMetadata, TopicPartition, VirtualClock

COMPACT = {"cleanup.policy": "compact"}


def fill(broker: Broker[Any], topic: str, records: int, *, keys: int = 5) -> None:
    for number in range(records):
        value = None if number % 7 == 6 else b"x" * (40 + number % 60)
        broker.append(topic, key=b"%d" % (number % keys), value=value)


def rolled(broker: Broker[Any], topic: str, *counts: int, **options: int) -> None:
    for count in counts:
        fill(broker, topic, count, **options)
        broker.roll(topic)
    fill(broker, topic, 4)


def never_cleaned(path: Path) -> None:
    with Broker(path, clock=VirtualClock()) as broker:
        for name in ("open", "closed", "young", "deleting"):
            broker.create_topic(name, configs=COMPACT)
        fill(broker, "open", 20)
        rolled(broker, "closed", 30, 20)
        broker.alter_configs("young", {"min.compaction.lag.ms": "30d"})
        rolled(broker, "young", 30)
        broker.alter_configs("deleting", {"cleanup.policy": "delete", "retention.ms": "1d"})
        rolled(broker, "deleting", 10, 10)
        broker.create_topic("empty", configs=COMPACT)


def partly_clean(path: Path) -> None:
    with Broker(path, clock=VirtualClock()) as broker:
        for name in ("clean", "dirty", "dirtier", "both"):
            broker.create_topic(name, configs=COMPACT)
            rolled(broker, name, 40, keys=30)
            broker.clean(name, force=True, roll=True)
        rolled(broker, "dirty", 5)
        rolled(broker, "dirtier", 60, 20, keys=40)
        broker.alter_configs("both", {"cleanup.policy": "compact,delete", "retention.bytes": "900"})
        rolled(broker, "both", 40, 30)


def partial_copy(path: Path) -> None:
    """Folders of a broker without its topics and checkpoints; one lacks its first segment."""
    never_cleaned(path)
    for name in (*path.glob("*checkpoint*"), path / "logstore-topics.json"):
        name.unlink()
    for name in ("open", "closed"):
        (path / f"{name}-0").rename(path / f"connect-{name}-offsets-0")
    for file in (path / "young-0").glob("00000000000000000000.*"):
        file.unlink()


def damaged(path: Path) -> None:
    with Broker(path, clock=VirtualClock()) as broker:
        for name in ("in-closed", "in-open", "intact"):
            broker.create_topic(name, configs=COMPACT)
            rolled(broker, name, 30, 20)
    for name, base in (("in-closed", 0), ("in-open", 50)):
        with (path / f"{name}-0" / f"{base:020}.log").open("r+b") as file:
            file.seek(120)
            file.write(b"\xff")


def interrupted(path: Path) -> None:
    """A directory without a clean shutdown, a torn batch, and an open transaction."""
    with Broker(path, clock=VirtualClock()) as broker:
        for name in ("torn", "hanging"):
            broker.create_topic(name, configs=COMPACT)
        rolled(broker, "torn", 30)
        rolled(broker, "hanging", 20)
        producer = broker.producer(transactional_id="x")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("hanging", key=b"1", value=b"1").get()
        rolled(broker, "hanging", 20)
    (path / ".kafka_cleanshutdown").unlink()
    with (path / "torn-0" / f"{30:020}.log").open("ab") as file:
        file.write(b"\x00\x00\x00\x00\x00\x00\x00\x22\x00\x00")


def own_topics(path: Path) -> None:
    """Topics that Kafka and its companions keep for themselves."""
    with Broker(path, clock=VirtualClock()) as broker:
        for name in ("_schemas", "connect-offsets", "app-store-changelog"):
            broker.create_topic(name, configs=COMPACT)
        rolled(broker, "_schemas", 12)
        rolled(broker, "connect-offsets", 30, keys=2)
        fill(broker, "app-store-changelog", 15)
        for number in range(20):
            with broker.consumer(group_id=f"group-{number % 2}") as consumer:
                tp = TopicPartition("_schemas", 0)
                consumer.assign([tp])
                consumer.commit({tp: OffsetAndMetadata(number)})
        for _ in range(3):
            with broker.producer(transactional_id="x") as producer:
                producer.init_transactions()
                producer.begin_transaction()
                producer.send("_schemas", key=b"1", value=b"1").get()
                producer.commit_transaction()
        for topic in ("__consumer_offsets", "__transaction_state"):
            for tp in broker.partitions(topic):
                if broker.log(*tp).size_bytes:
                    broker.roll(*tp)


def healthy(path: Path) -> None:
    """Everything is clean, but for a topic that another policy keeps short."""
    with Broker(path, clock=VirtualClock()) as broker:
        for name in ("clean", "expiring"):
            broker.create_topic(name, configs=COMPACT)
            rolled(broker, name, 40, keys=30)
            broker.clean(name, force=True, roll=True)
        broker.alter_configs("expiring", {"cleanup.policy": "delete", "retention.ms": "1d"})
