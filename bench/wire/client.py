"""The client that is measured with: writes or reads one partition, and tells how long it took.

A program of its own, so that its work is not counted as the broker's. Arguments: `produce` or
`consume`, the address, the topic, how many messages, and their bytes.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Partition

WITHIN_S = 300


def produce(bootstrap: str, topic: str, count: int, size_bytes: int) -> dict[str, float]:
    """Write messages, as they come, and wait until all are acknowledged."""
    failures: list[object] = []

    def note(error: object, message: object) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "queue.buffering.max.messages": max(100_000, count),
        }
    )
    producer.list_topics(topic, WITHIN_S)  # it is known, and made where it is made by asking
    value = bytes(size_bytes)
    began = time.perf_counter()
    for _ in range(count):
        producer.produce(topic, value, partition=0, on_delivery=note)
        producer.poll(0)
    left = producer.flush(WITHIN_S)
    took_s = time.perf_counter() - began
    if left or failures:
        raise SystemExit(f"{left} messages not written, {failures[:1]}")
    return {"count": count, "seconds": took_s}


def consume(bootstrap: str, topic: str, count: int, size_bytes: int) -> dict[str, float]:
    """Read a partition from its beginning to its end, be it `count` messages or fewer."""
    configs = {"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False}
    # As its queue fills up the client stops for a second: a fast broker would look slow.
    room = {"queued.min.messages": 10_000_000, "queued.max.messages.kbytes": 2_000_000}
    consumer = Consumer({**configs, **room})
    low, high = consumer.get_watermark_offsets(Partition(topic, 0), WITHIN_S)
    found = 0
    deadline = time.monotonic() + WITHIN_S
    began = time.perf_counter()
    consumer.assign([Partition(topic, 0, OFFSET_BEGINNING)])
    while found < high - low:
        messages = consumer.consume(min(10_000, high - low - found), 1.0)
        for message in messages:
            if message.error() is not None:
                raise KafkaException(message.error())
        found += len(messages)
        if time.monotonic() > deadline:
            raise SystemExit(f"{found} messages of {high - low}, and no end")
    took_s = time.perf_counter() - began
    consumer.close()
    return {"count": found, "seconds": took_s}


if __name__ == "__main__":
    what, bootstrap, topic, count, size_bytes = sys.argv[1:]
    work = {"produce": produce, "consume": consume}[what]
    print(json.dumps(work(bootstrap, topic, int(count), int(size_bytes))))
