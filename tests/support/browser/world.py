"""A broker that fills every view of its page, for tests and screenshots."""

from __future__ import annotations

from logstore import Broker

LONG = "Donaudampfschifffahrtsgesellschaftskapitaensstammdatenaenderungsprotokoll"
"""A topic name of realistic length, below Kafka's limit of 249 characters."""

PARTS = ("records", "stats", "key?key=user-1", "tombstones", "fates", "history")
"""The parts of a partition's page."""

PLACES = (
    "#/",
    "#/t/users",
    "#/t/users/0",
    *(f"#/t/users/0/{part}" for part in PARTS),
    "#/t/users/settings",
    "#/t/payments/0",
    f"#/t/{LONG}/0",
    "#/cleaner",
    "#/groups",
    "#/broker",
)


def fill(broker: Broker) -> None:
    """Give a broker topics of each policy, a reader, and a week that went by."""
    compacted = {
        "cleanup.policy": "compact,delete",
        "segment.ms": "86400000",
        "delete.retention.ms": "86400000",
        "min.cleanable.dirty.ratio": "0.3",
        "max.compaction.lag.ms": "259200000",
    }
    broker.create_topic("users", partitions=2, configs=compacted)
    broker.create_topic("payments", partitions=1, configs={"retention.ms": "172800000"})
    broker.create_topic(LONG, partitions=1, configs={"cleanup.policy": "compact"})
    for day in range(6):
        for partition in (0, 1):
            records = [
                (f"user-{key}".encode(), f'{{"name": "ann", "day": {day}}}'.encode())
                for key in range(day, 40 + day)
            ]
            broker.append_many("users", records, partition=partition)
            broker.append_many("users", [(f"user-{day}".encode(), None)], partition=partition)
        broker.append_many("payments", [(b"%d" % day, b"paid")] * 50, partition=0)
        broker.append_many(LONG, [(b"key", b"value")] * 5, partition=0)
        if day == 3:
            consumer = broker.consumer("users", group_id="search-index")
            consumer.poll(timeout_ms=0)
            consumer.commit()
            consumer.close()
        broker.clock.advance(days=1)
    broker.append_many("users", [(b"user-1", b"last")] * 10, partition=0)
