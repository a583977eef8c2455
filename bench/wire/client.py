"""The measuring client: writes or reads one partition and prints the time.

It is a separate process, so that its CPU time is not attributed to the broker. Arguments: `produce`
or `consume`, the address, the topic, the number of messages, and their size in bytes.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Partition

WITHIN_S = 300


def produce(bootstrap: str, topic: str, count: int, size_bytes: int) -> dict[str, float]:
    """Write messages at full speed and wait until all are acknowledged."""
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
    producer.list_topics(
        topic, WITHIN_S
    )  # fetches metadata, and creates the topic if that is automatic
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
    """Read a partition from start to end. It may have fewer than `count` messages."""
    configs = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    # A client with a full queue pauses for a second, so a fast broker would look slow.
    queue = {"queued.min.messages": 10_000_000, "queued.max.messages.kbytes": 2_000_000}
    consumer = Consumer({**configs, **queue})
    low, high = consumer.get_watermark_offsets(Partition(topic, 0), WITHIN_S)
    received = 0
    deadline = time.monotonic() + WITHIN_S
    began = time.perf_counter()
    consumer.assign([Partition(topic, 0, OFFSET_BEGINNING)])
    while received < high - low:
        messages = consumer.consume(min(10_000, high - low - received), 1.0)
        for message in messages:
            if message.error() is not None:
                raise KafkaException(message.error())
        received += len(messages)
        if time.monotonic() > deadline:
            raise SystemExit(f"timeout after {received} of {high - low} messages")
    took_s = time.perf_counter() - began
    consumer.close()
    return {"count": received, "seconds": took_s}


if __name__ == "__main__":
    task, bootstrap, topic, count, size_bytes = sys.argv[1:]
    work = {"produce": produce, "consume": consume}[task]
    print(json.dumps(work(bootstrap, topic, int(count), int(size_bytes))))
