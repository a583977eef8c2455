"""The application with each client: in process, confluent-kafka, aiokafka.

An adapter creates the application's services for a broker or a listener. All are called
synchronously.
"""

import asyncio
import inspect
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError, ProducerFenced

from tests.application import aiokafka_services, confluent_services, services

TRIES = 300
"""Attempts at intervals of 0.1 s, more than enough for a correct run."""


def until(condition, step):
    """Step until a condition is true."""
    for _ in range(TRIES):
        if condition():
            return
        step()
    raise AssertionError(f"not in {TRIES} steps")


class Killed(BaseException):
    """The process has ended: it cannot abort its transaction."""


class InProcess:
    """Clients of a broker in this process, in the style of kafka-python."""

    def __init__(self, broker):
        self.at = broker

    @contextmanager
    def orders(self):
        yield services.OrderService(self.at.producer())

    @contextmanager
    def cache(self, topic):
        yield services.TableCache(self.at.consumer(), topic)

    @contextmanager
    def erasure(self):
        consumer = self.at.consumer(
            "erasure-requests", group_id="erasure", auto_offset_reset="earliest"
        )
        yield services.ErasureJob(consumer, self.at.producer())

    @contextmanager
    def booking(self):
        consumer = self.at.consumer(
            "transfers",
            group_id="booking",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        producer = self.at.producer(transactional_id="booking-1")
        yield services.TransferService(consumer, producer)


class Confluent:
    """confluent-kafka at a listener."""

    error = confluent_kafka.KafkaException
    late = r"order b'\d'.*_MSG_TIMED_OUT"
    gives_up = True

    def __init__(self, listener):
        self.at = listener

    def _producer(self, **configs):
        """Return an idempotent producer that tries again at once."""
        options = {
            "bootstrap.servers": self.at.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "retry.backoff.ms": 10,
            "retry.backoff.max.ms": 10,
            "topic.metadata.refresh.fast.interval.ms": 10,
        }
        return confluent_kafka.Producer(
            options | {key.replace("_", "."): value for key, value in configs.items()}
        )

    def _member(self, topic, group):
        """Return a context with a consumer of a group that commits on request."""
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.at.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([topic])
        return closing(consumer)

    @contextmanager
    def orders(self, limit_s=30):
        producer = self._producer(message_timeout_ms=int(limit_s * 1000))
        yield confluent_services.OrderService(producer)

    def cache(self, topic, isolation="read_committed", fetch_bytes=None):
        options = {
            "bootstrap.servers": self.at.bootstrap,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 50,
        }
        if fetch_bytes is not None:
            options |= {
                "retry.backoff.ms": 10,
                "topic.metadata.refresh.fast.interval.ms": 10,
                "fetch.message.max.bytes": fetch_bytes,
            }
        return closing(confluent_services.TableCache(options, topic, quiet_s=1))

    @contextmanager
    def counting(self):
        with self._member("events", "counter") as consumer:
            with self.cache("counts") as changelog:
                store = confluent_services.CountingStore(consumer, self._producer(), changelog)
            yield store

    @contextmanager
    def erasure(self):
        with self._member("erasure-requests", "erasure") as requests:
            yield confluent_services.ErasureJob(requests, self._producer())

    @contextmanager
    def booking(self, dies_after=None):
        producer = self._producer(transactional_id="booking-1")
        with self._member("transfers", "booking") as consumer:
            if dies_after is None:
                yield confluent_services.TransferService(consumer, producer)
            else:
                yield _DyingWithConfluent(consumer, producer, dies_after)

    def assert_fenced(self, service):
        with pytest.raises(confluent_kafka.KafkaException) as caught:
            service.producer.commit_transaction(30)
        assert caught.value.args[0].code() == confluent_kafka.KafkaError._FENCED

    @staticmethod
    def assert_refused(errors, name):
        """Check the errors of a service that met one refusal.

        librdkafka retries several times, depending on the machine. It stops using the transaction,
        and the topic until it has fetched metadata again; a batch that never arrived leaves a gap
        in the sequence numbers.
        """
        names = {error.args[0].name() for error in errors}
        assert names
        assert names <= {name, "OUT_OF_ORDER_SEQUENCE_NUMBER", "_STATE"}


class _DyingWithConfluent(confluent_services.TransferService):
    """It dies after some transfers, with its transaction open."""

    def __init__(self, consumer, producer, dies_after):
        super().__init__(consumer, producer)
        self.producer = producer
        self._left = dies_after

    def _book(self, transfer):
        super()._book(transfer)
        self._left -= 1
        if not self._left:
            self._producer.flush(30)
            raise Killed


class Aiokafka:
    """aiokafka at a listener, in an event loop that runs while a service is called."""

    error = KafkaError
    late = r"order b'\d' is late"
    gives_up = False  # a producer goes on trying until it is stopped

    def __init__(self, listener, runner=None):
        self.at = listener
        self._runner = runner or asyncio.Runner()

    def close(self):
        self._runner.close()

    @contextmanager
    def _synced(self, opened):
        """Enter an asynchronous context and yield its service, to be called without `await`."""
        service = self._runner.run(opened.__aenter__())
        try:
            yield _Synced(self._runner, service)
        finally:
            self._runner.run(opened.__aexit__(None, None, None))

    @asynccontextmanager
    async def _started(self, kind, *topics, **configs):
        client = kind(*topics, bootstrap_servers=self.at.bootstrap, retry_backoff_ms=10, **configs)
        await client.start()
        try:
            yield client
        finally:
            await client.stop()

    def _producer(self):
        """Return an idempotent producer that tries again at once."""
        return self._started(AIOKafkaProducer, enable_idempotence=True)

    def _member(self, topic, group):
        """Return a consumer of a group that commits on request."""
        return self._started(
            AIOKafkaConsumer,
            topic,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )

    def orders(self, limit_s=60):
        @asynccontextmanager
        async def opened():
            async with self._producer() as producer:
                yield aiokafka_services.OrderService(producer, limit_s)

        return self._synced(opened())

    @asynccontextmanager
    async def _cache(self, topic, isolation="read_committed", fetch_bytes=1 << 20):
        async with self._started(
            AIOKafkaConsumer,
            topic,
            auto_offset_reset="earliest",
            isolation_level=isolation,
            max_partition_fetch_bytes=fetch_bytes,
        ) as consumer:
            yield aiokafka_services.TableCache(consumer, quiet_ms=1000)

    def cache(self, *topic, **options):
        return self._synced(self._cache(*topic, **options))

    def counting(self):
        @asynccontextmanager
        async def opened():
            async with (
                self._member("events", "counter") as consumer,
                self._producer() as producer,
                self._cache("counts") as changelog,
            ):
                store = aiokafka_services.CountingStore(consumer, producer)
                await store.restore(changelog)
                yield store

        return self._synced(opened())

    def erasure(self):
        @asynccontextmanager
        async def opened():
            async with (
                self._member("erasure-requests", "erasure") as requests,
                self._producer() as producer,
            ):
                yield aiokafka_services.ErasureJob(requests, producer)

        return self._synced(opened())

    def booking(self, dies_after=None):
        def new_producer():
            return AIOKafkaProducer(
                bootstrap_servers=self.at.bootstrap,
                enable_idempotence=True,
                retry_backoff_ms=10,
                transactional_id="booking-1",
            )

        @asynccontextmanager
        async def opened():
            async with AsyncExitStack() as stack:
                consumer = await stack.enter_async_context(self._member("transfers", "booking"))
                if dies_after is None:
                    kind = aiokafka_services.TransferService
                    service = kind(consumer, new_producer, "booking")
                    await stack.enter_async_context(service)
                else:  # its producer lives on, see assert_fenced
                    service = _DyingWithAiokafka(consumer, new_producer, "booking")
                    service.left = dies_after
                yield service

        return self._synced(opened())

    def assert_fenced(self, service):
        with pytest.raises(ProducerFenced):
            self._runner.run(service.producer.commit_transaction())
        self._runner.run(service.producer.stop())

    @staticmethod
    def assert_refused(errors, name):
        """Check the errors of a service that met one refusal."""
        (error,) = errors
        assert type(error).__name__ == f"{name.title().replace('_', '')}Error"


class _DyingWithAiokafka(aiokafka_services.TransferService):
    """It dies after some transfers, with its transaction open."""

    left = 0

    async def _book(self, transfer):
        sent = await super()._book(transfer)
        self.left -= 1
        if not self.left:
            await asyncio.gather(*sent)
            raise Killed
        return sent


class _Synced:
    """A service whose coroutines run to their end."""

    def __init__(self, runner, service):
        self._runner = runner
        self._service = service

    def __getattr__(self, name):
        result = getattr(self._service, name)
        if not inspect.iscoroutinefunction(result):
            return result
        return lambda *arguments, **options: self._runner.run(result(*arguments, **options))
