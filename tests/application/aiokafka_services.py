"""The application of `services` for aiokafka, as coroutines that use Kafka's interface only."""

from __future__ import annotations

import asyncio
import json

from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from tests.application.services import OrderNotPlacedError


class OrderService:
    """Accepts orders, keyed by id; orders too large for the topic are sent to `rejected`."""

    def __init__(self, producer, limit_s=60):
        self._producer = producer
        self._limit_s = limit_s

    async def place(self, order_id, order):
        """Store an order and return its offset.

        The producer never gives up: an order that timed out may still arrive.
        """
        value = json.dumps(order).encode()
        sent = self._producer.send_and_wait("orders", value, order_id)
        try:
            return (await asyncio.wait_for(sent, self._limit_s)).offset
        except TimeoutError:
            raise OrderNotPlacedError(f"order {order_id!r} is late") from None
        except MessageSizeTooLargeError:
            await self._producer.send_and_wait("rejected", b"%d" % len(value), order_id)
            raise OrderNotPlacedError(f"order {order_id!r} is too large") from None
        except KafkaError as error:
            raise OrderNotPlacedError(f"order {order_id!r}: {error!r}") from error


class TableCache:
    """The latest value of each key of a compacted topic, in memory."""

    def __init__(self, consumer, quiet_ms=5000):
        self._consumer = consumer
        self._quiet_ms = quiet_ms
        self.rows = {}

    async def warm_up(self):
        """Read up to the current end of the topic, or until no records arrive."""
        ends = await self._consumer.end_offsets(self._consumer.assignment())
        positions = await self._positions()
        while any(positions[tp] < end for tp, end in ends.items()):
            has_read = await self.refresh(timeout_ms=self._quiet_ms)
            before, positions = positions, await self._positions()
            has_fetched = None not in [self._consumer.highwater(tp) for tp in ends]
            if not has_read and positions == before and has_fetched:
                break  # a hole that no batch spans

    async def _positions(self):
        return {tp: await self._consumer.position(tp) for tp in self._consumer.assignment()}

    async def refresh(self, timeout_ms=50):
        """Apply the next records; return whether there were any."""
        polled = await self._consumer.getmany(timeout_ms=timeout_ms)
        for records in polled.values():
            for record in records:
                if record.value is None:
                    self.rows.pop(record.key, None)
                else:
                    self.rows[record.key] = record.value
        return bool(polled)


class CountingStore:
    """Counts the events of each user; its changelog brings the counts back after a restart."""

    def __init__(self, consumer, producer):
        self._consumer = consumer
        self._producer = producer
        self.counts = {}

    async def restore(self, changelog):
        """Start from the counts in the changelog's cache."""
        await changelog.warm_up()
        self.counts = {key: int(value) for key, value in changelog.rows.items()}

    async def step(self):
        """Count the next records."""
        result = await self._consumer.getmany(timeout_ms=100)
        for records in result.values():
            for record in records:
                self.counts[record.key] = self.counts.get(record.key, 0) + 1
                await self._producer.send("counts", b"%d" % self.counts[record.key], record.key)
        if result:
            await self._producer.flush()
            await self._consumer.commit()


class ErasureJob:
    """Deletes users on request: appends a tombstone, then marks the request as done."""

    def __init__(self, requests, producer):
        self._requests = requests
        self._producer = producer

    async def run(self):
        """Process the next requests; return the number of users."""
        result = await self._requests.getmany(timeout_ms=100)
        erased = [record.key for records in result.values() for record in records]
        for user in erased:
            await self._producer.send_and_wait("users", None, user)
        if erased:
            await self._requests.commit()
        return len(erased)


class TransferService:
    """Books each transfer twice, in one transaction with the offset that it was read at.

    After an error it continues with a new producer, whose start aborts the open transaction. The
    old one has forgotten the partitions, so its abort would end nothing at the broker.
    """

    def __init__(self, consumer, new_producer, group):
        self._consumer = consumer
        self._new_producer = new_producer
        self._group = group
        self.producer = None

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        if self.producer is not None:
            await self.producer.stop()

    async def step(self):
        """Book the next transfers; after an error the same ones are read again."""
        if self.producer is None:
            self.producer = self._new_producer()
            await self.producer.start()
        result = await self._consumer.getmany(timeout_ms=100, max_records=2)
        for tp, records in result.items():
            try:
                await self._book_all(tp, records)
            except KafkaError:
                self._consumer.seek(tp, records[0].offset)
                await self.producer.stop()
                self.producer = None
                raise

    async def _book_all(self, tp, records):
        await self.producer.begin_transaction()
        sent = []
        for record in records:
            sent += await self._book(json.loads(record.value))
        await asyncio.gather(*sent)  # the commit alone would not show the refused records
        await self.producer.send_offsets_to_transaction({tp: records[-1].offset + 1}, self._group)
        await self.producer.commit_transaction()

    async def _book(self, transfer):
        return [
            await self.producer.send("ledger", b"%d" % amount, account.encode())
            for account, amount in (
                (transfer["from"], -transfer["cents"]),
                (transfer["to"], transfer["cents"]),
            )
        ]
