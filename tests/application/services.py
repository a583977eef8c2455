"""An application as users write it, with nothing but kafka-python's interface."""

from __future__ import annotations

import json

from logstore import LogStoreError, MessageSizeTooLargeError, OffsetAndMetadata, TopicPartition


class OrderNotPlacedError(Exception):
    """The order is not known to be stored; the customer must be notified."""


class OrderService:
    """Accepts orders, keyed by id; orders too large for the topic are sent to `rejected`."""

    def __init__(self, producer):
        self._producer = producer

    def place(self, order_id, order):
        """Store an order and return its offset."""
        value = json.dumps(order).encode()
        try:
            return self._producer.send("orders", value, key=order_id).get().offset
        except MessageSizeTooLargeError:
            self._producer.send("rejected", b"%d" % len(value), key=order_id).get()
            raise OrderNotPlacedError(f"order {order_id!r} is too large") from None
        except LogStoreError as error:
            raise OrderNotPlacedError(f"order {order_id!r}: {error}") from error


class TableCache:
    """The latest value of each key of a compacted topic, in memory."""

    def __init__(self, consumer, topic):
        self._consumer = consumer
        self.rows = {}
        self._partitions = [
            TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)
        ]
        consumer.assign(self._partitions)
        consumer.seek_to_beginning()

    def warm_up(self):
        """Read up to the current end of the topic, or until no records arrive."""
        ends = self._consumer.end_offsets(self._partitions)
        positions = self._positions()
        while any(positions[tp] < ends[tp] for tp in self._partitions):
            has_read = self.refresh(timeout_ms=5000)
            before, positions = positions, self._positions()
            has_fetched = None not in [self._consumer.highwater(tp) for tp in self._partitions]
            if not has_read and positions == before and has_fetched:
                break  # a hole that no batch spans

    def _positions(self):
        return {tp: self._consumer.position(tp) for tp in self._partitions}

    def refresh(self, timeout_ms=0):
        """Apply new records; return whether there were any."""
        polled = self._consumer.poll(timeout_ms=timeout_ms)
        for records in polled.values():
            for record in records:
                if record.value is None:
                    self.rows.pop(record.key, None)
                else:
                    self.rows[record.key] = record.value
        return bool(polled)


class CountingStore:
    """Counts the events of each user; its changelog brings the counts back after a restart."""

    def __init__(self, consumer, producer, restoring):
        self._consumer = consumer
        self._producer = producer
        changelog = TableCache(restoring, "counts")
        changelog.warm_up()
        self.counts = {key: int(value) for key, value in changelog.rows.items()}

    def step(self):
        """Count the records of one poll."""
        for records in self._consumer.poll(timeout_ms=100).values():
            for record in records:
                self.counts[record.key] = self.counts.get(record.key, 0) + 1
                value = b"%d" % self.counts[record.key]
                self._producer.send("counts", value, key=record.key).get()
        self._consumer.commit()


class ErasureJob:
    """Deletes users on request: appends a tombstone, then marks the request as done."""

    def __init__(self, requests, producer):
        self._requests = requests
        self._producer = producer

    def run(self):
        """Process the requests of one poll; return the number of users."""
        erased = 0
        for records in self._requests.poll(timeout_ms=100).values():
            for record in records:
                self._producer.send("users", None, key=record.key).get()
                erased += 1
        self._requests.commit()
        return erased


class TransferService:
    """Books each transfer twice, in one transaction with the offset that it was read at."""

    def __init__(self, consumer, producer):
        self._consumer = consumer
        self._producer = producer
        producer.init_transactions()

    def step(self):
        """Book the transfers of one poll; after an error the same ones are read again."""
        for tp, records in self._consumer.poll(timeout_ms=100, max_records=2).items():
            self._producer.begin_transaction()
            try:
                for record in records:
                    transfer = json.loads(record.value)
                    for account, amount in (
                        (transfer["from"], -transfer["cents"]),
                        (transfer["to"], transfer["cents"]),
                    ):
                        self._producer.send("ledger", b"%d" % amount, key=account.encode())
                self._producer.send_offsets_to_transaction(
                    {tp: OffsetAndMetadata(records[-1].offset + 1)},
                    self._consumer.group_metadata(),
                )
                self._producer.commit_transaction()
            except LogStoreError:
                self._producer.abort_transaction()
                self._consumer.seek(tp, records[0].offset)
                raise
