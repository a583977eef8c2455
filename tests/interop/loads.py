"""Clients that write to topics until their input ends, and print the acknowledged records.

Each client is a process, so a slow one delays no broker. The lines have JSON lists: partition,
offset, key and value of an acknowledged record, or `committed` or `aborted` and the values of a
transaction.

    python -m tests.interop.loads confluent|kafka_python|transactions BOOTSTRAP

The fourth program is `sweep/go/load.go`.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from itertools import count

PLAIN, KEYED, PAID = "plain", "keyed", "paid"
"""Topics of all clients, of keyed records, and of transactions."""

PARTITIONS = 3
KEYS = 20
PAUSE_S = 0.01
TIMEOUT_S = 240
"""Longest time in which a record is delivered; nothing that works takes this long."""

_end = threading.Event()


def _numbers() -> Iterator[int]:
    """Yield rising numbers until the input ends."""
    for number in count():
        if _end.wait(PAUSE_S):
            return
        yield number


def _print(*fields: object) -> None:
    sys.stdout.write(f"{json.dumps(fields)}\n")
    sys.stdout.flush()


def _value(client: str, number: int) -> bytes:
    return b"%s:%d:%s" % (client.encode(), number, b"x" * (number * 7 % 200))


_CONFLUENT = {
    "acks": "all",
    "linger.ms": 1,
    "retry.backoff.ms": 10,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 500,
}


def confluent(bootstrap: str) -> None:
    """Write with librdkafka, idempotent, to each partition and with keys."""
    from confluent_kafka import KafkaError, Message, Producer

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        key = message.key()
        _print(
            message.topic(),
            message.partition(),
            message.offset(),
            key and key.decode(),
            message.value().decode(),
        )

    options = {"message.timeout.ms": TIMEOUT_S * 1000, "enable.idempotence": True}
    producer = Producer({"bootstrap.servers": bootstrap, **_CONFLUENT, **options})
    for number in _numbers():
        value = _value("confluent", number)
        for partition in range(PARTITIONS):
            producer.produce(PLAIN, value, partition=partition, on_delivery=on_delivery)
        producer.produce(KEYED, value, b"%d" % (number % KEYS), on_delivery=on_delivery)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0


def kafka_python(bootstrap: str) -> None:
    """Write with kafka-python to each partition."""
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        delivery_timeout_ms=TIMEOUT_S * 1000,
        retry_backoff_ms=20,
        reconnect_backoff_ms=20,
        reconnect_backoff_max_ms=200,
        metadata_max_age_ms=1000,
    )
    for number in _numbers():
        value = _value("kafka-python", number)
        for partition in range(PARTITIONS):
            sent = producer.send(PLAIN, value, partition=partition)
            sent.add_callback(
                lambda found, value=value: _print(
                    found.topic, found.partition, found.offset, None, value.decode()
                )
            )
            sent.add_errback(lambda error: _print("failed", repr(error)))
    producer.flush(TIMEOUT_S)
    producer.close()


def transactions(bootstrap: str) -> None:
    """Write transactions with librdkafka; every fourth is aborted."""
    from confluent_kafka import KafkaError, KafkaException, Producer

    options = {"transactional.id": "payments", "transaction.timeout.ms": 60_000}

    def until_done(call) -> bool:
        """Repeat a call after retriable errors; return False if the transaction must abort."""
        while True:
            try:
                call(TIMEOUT_S)
            except KafkaException as error:
                reason = error.args[0]
                if reason.retriable():
                    continue
                if reason.txn_requires_abort():
                    return False
                raise
            return True

    def started() -> Producer:
        producer = Producer({"bootstrap.servers": bootstrap, **_CONFLUENT, **options})
        assert until_done(producer.init_transactions)
        return producer

    def aborted(producer: Producer) -> Producer:
        """Abort the transaction; return the producer for the next one.

        If the coordinator ends before it has answered AddPartitionsToTxn, librdkafka sends EndTxn
        without knowing whether a transaction is open. If none is, the error is fatal.
        """
        try:
            assert until_done(producer.abort_transaction)
        except KafkaException as error:
            reason = error.args[0]
            if not (reason.fatal() and reason.code() == KafkaError.INVALID_TXN_STATE):
                raise
            return started()
        return producer

    producer = started()
    for number in _numbers():
        values = [f"payment:{number}:{each}" for each in range(5)]
        producer.begin_transaction()
        for each, value in enumerate(values):
            producer.produce(PAID, value.encode(), partition=each % 2)
        is_committed = number % 4 != 3 and until_done(producer.commit_transaction)
        if not is_committed:
            producer = aborted(producer)
        _print("committed" if is_committed else "aborted", values)


def _await_end() -> None:
    sys.stdin.read()
    _end.set()


if __name__ == "__main__":
    threading.Thread(target=_await_end, daemon=True).start()
    {"confluent": confluent, "kafka_python": kafka_python, "transactions": transactions}[
        sys.argv[1]
    ](sys.argv[2])
