"""The application of `services` for confluent-kafka; it needs only a bootstrap address."""

from __future__ import annotations

import json

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from tests.application.services import OrderNotPlacedError

TIMEOUT_S = 30


def send(producer, topic, value, key):
    """Write one record and wait until it is there; return its message."""
    reports = []
    producer.produce(topic, value, key, on_delivery=lambda *report: reports.append(report))
    producer.flush(TIMEOUT_S)
    ((error, message),) = reports
    if error is not None:
        raise KafkaException(error)
    return message


class OrderService:
    """Accepts orders, keyed by id; orders too large for the topic are sent to `rejected`."""

    def __init__(self, producer):
        self._producer = producer

    def place(self, order_id, order):
        """Store an order and return its offset."""
        value = json.dumps(order).encode()
        try:
            return send(self._producer, "orders", value, order_id).offset()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
                raise OrderNotPlacedError(f"order {order_id!r}: {error}") from error
            send(self._producer, "rejected", b"%d" % len(value), order_id)
            raise OrderNotPlacedError(f"order {order_id!r} is too large") from None


class TableCache:
    """The latest value of each key of a compacted topic, in memory."""

    def __init__(self, configs, topic, quiet_s=5):
        self._quiet_s = quiet_s
        self._consumer = Consumer(
            {"group.id": "nobody", "enable.auto.commit": False, **configs}
            | {"enable.partition.eof": True}
        )
        self.rows = {}
        numbers = self._consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
        self._behind = set(numbers)
        self._consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in numbers])

    def warm_up(self):
        """Read up to the current end of the topic, or until no records arrive."""
        while self._behind:
            if not self.refresh(1, self._quiet_s) and self._has_fetched():
                break  # a hole that no batch spans

    def _has_fetched(self):
        behind = [each for each in self._consumer.assignment() if each.partition in self._behind]
        marks = [self._consumer.get_watermark_offsets(each, cached=True) for each in behind]
        return all(high >= 0 for _, high in marks)

    def refresh(self, count=100, timeout_s=0.05):
        """Apply the next records; return whether there were any."""
        messages = self._consumer.consume(count, timeout=timeout_s)
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                self._behind.discard(message.partition())
            elif message.value() is None:
                self.rows.pop(message.key(), None)
            else:
                self.rows[message.key()] = message.value()
        return bool(messages)

    def close(self):
        self._consumer.close()


class CountingStore:
    """Counts the events of each user; its changelog brings the counts back after a restart."""

    def __init__(self, consumer, producer, changelog):
        self._consumer = consumer
        self._producer = producer
        changelog.warm_up()
        self.counts = {key: int(value) for key, value in changelog.rows.items()}

    def step(self):
        """Count the next records."""
        messages = self._consumer.consume(100, timeout=0.1)
        for message in messages:
            user = message.key()
            self.counts[user] = self.counts.get(user, 0) + 1
            self._producer.produce("counts", b"%d" % self.counts[user], user)
        if messages:
            self._producer.flush(TIMEOUT_S)
            self._consumer.commit(asynchronous=False)


class ErasureJob:
    """Deletes users on request: appends a tombstone, then marks the request as done."""

    def __init__(self, requests, producer):
        self._requests = requests
        self._producer = producer

    def run(self):
        """Process the next requests; return the number of users."""
        messages = self._requests.consume(100, timeout=0.1)
        for message in messages:
            send(self._producer, "users", None, message.key())
        if messages:
            self._requests.commit(asynchronous=False)
        return len(messages)


class TransferService:
    """Books each transfer twice, in one transaction with the offset that it was read at."""

    def __init__(self, consumer, producer):
        self._consumer = consumer
        self._producer = producer
        producer.init_transactions(TIMEOUT_S)

    def step(self):
        """Book the next transfers; after an error the same ones are read again."""
        messages = self._consumer.consume(2, timeout=0.1)
        if not messages:
            return
        self._producer.begin_transaction()
        try:
            for message in messages:
                self._book(json.loads(message.value()))
            end = TopicPartition(messages[-1].topic(), 0, messages[-1].offset() + 1)
            self._producer.send_offsets_to_transaction(
                [end], self._consumer.consumer_group_metadata()
            )
            self._producer.commit_transaction(TIMEOUT_S)
        except KafkaException:
            self._producer.abort_transaction(TIMEOUT_S)
            self._consumer.seek(TopicPartition(messages[0].topic(), 0, messages[0].offset()))
            raise

    def _book(self, transfer):
        for account, amount in (
            (transfer["from"], -transfer["cents"]),
            (transfer["to"], transfer["cents"]),
        ):
            self._producer.produce("ledger", b"%d" % amount, account)
