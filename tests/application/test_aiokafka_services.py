"""The same application over the wire: aiokafka, unchanged, at a listener."""

import asyncio
import functools
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError, ProducerFenced

from logstore import TopicPartition
from logstore.testing import (
    assert_committed,
    assert_compacted,
    history,
    holes,
    records_by_key,
)
from tests.application.aiokafka_services import (
    CountingStore,
    ErasureJob,
    OrderService,
    TableCache,
    TransferService,
)
from tests.application.services import OrderNotPlacedError
from tests.application.stories import (
    SMALL,
    assert_all_booked,
    assert_bob_leaves_the_disk,
    balances,
    events_topic,
    is_all_booked,
    orders_topics,
    transfers_topic,
    users_to_erase,
    users_topic,
    values,
)

TRIES = 300
"""Of a tenth of a second: more than enough where nothing is wrong."""

pytestmark = pytest.mark.logstore(broker_config=SMALL)


def in_loop(test):
    """Run a test that is a coroutine."""

    @functools.wraps(test)
    def run(**fixtures):
        asyncio.run(test(**fixtures))

    return run


@asynccontextmanager
async def started(kind, *topics, **configs):
    client = kind(*topics, **configs)
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


def producer_configs(listener):
    return {
        "bootstrap_servers": listener.bootstrap,
        "enable_idempotence": True,
        "retry_backoff_ms": 10,
    }


def producer_of(listener):
    """Return an idempotent producer that tries again at once."""
    return started(AIOKafkaProducer, **producer_configs(listener))


def member(listener, topic, group):
    """Return a consumer of a group that commits when it is told to."""
    return started(
        AIOKafkaConsumer,
        topic,
        bootstrap_servers=listener.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        retry_backoff_ms=10,
    )


async def until(condition, step):
    """Step until it is so; return what the steps gave."""
    found = []
    for _ in range(TRIES):
        if condition():
            return found
        found.append(await step())
    raise AssertionError(f"not in {TRIES} steps")


# --- orders and what can go wrong with them ----------------------------------------------------


@pytest.fixture
def broker(logstore_broker):
    orders_topics(logstore_broker)
    return logstore_broker


@in_loop
async def test_an_order_is_placed(broker, logstore_server):
    async with producer_of(logstore_server) as producer:
        assert await OrderService(producer).place(b"1", {"item": "tea"}) == 0
    assert history(broker, "orders", b"1") == [b'{"item": "tea"}']


@pytest.mark.parametrize("is_done", (False, True), ids=("refused", "answer lost"))
@pytest.mark.parametrize("error", ("NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT", None))
@in_loop
async def test_what_passes_makes_no_duplicate(broker, logstore_server, error, is_done):
    what = {"drop": True} if error is None else {"error": error, "topic": "orders"}
    rule = logstore_server.fail("Produce", times=3, after=is_done, **what)
    async with producer_of(logstore_server) as producer:
        assert await OrderService(producer).place(b"1", {}) == 0
    assert rule.hits == 3
    assert values(broker, "orders") == [b"{}"]


@in_loop
async def test_what_does_not_pass_is_told_after_the_time_limit(broker, logstore_server):
    rule = logstore_server.fail("Produce", topic="orders", error="NOT_LEADER_OR_FOLLOWER")
    async with producer_of(logstore_server) as producer:
        with pytest.raises(OrderNotPlacedError, match="order b'1' is late"):
            await OrderService(producer, limit_s=0.2).place(b"1", {})
        assert values(broker, "orders") == []
        rule.remove()
    assert values(broker, "orders") == [b"{}"]  # it went on trying until it was stopped


@in_loop
async def test_an_order_that_is_too_large_is_rejected(broker, logstore_server):
    async with producer_of(logstore_server) as producer:
        service = OrderService(producer)
        with pytest.raises(OrderNotPlacedError, match="too large"):
            await service.place(b"1", {"note": "x" * 1000})
        assert history(broker, "orders", b"1") == []
        assert history(broker, "rejected", b"1") == [b"1012"]
        assert await service.place(b"1", {}) == 0


@in_loop
async def test_a_full_disk_places_nothing_and_takes_nothing_away(
    broker, logstore_server, logstore_server_factory
):
    async with producer_of(logstore_server) as producer:
        await OrderService(producer).place(b"1", {})
        broker.fail("append", topic="orders", error="ENOSPC")
        with pytest.raises(OrderNotPlacedError, match="order b'2' is late"):
            await OrderService(producer, limit_s=0.2).place(b"2", {})
        # Only now the producer gives up; it could not be stopped before.
        logstore_server.fail("Produce", error="TOPIC_AUTHORIZATION_FAILED")
    with broker.crash() as again:
        assert set(records_by_key(again, "orders")) == {b"1"}
        async with producer_of(logstore_server_factory(again)) as producer:
            assert await OrderService(producer).place(b"2", {}) == 1


@in_loop
async def test_an_order_that_was_confirmed_survives_a_loss_of_power(broker, logstore_server):
    async with producer_of(logstore_server) as producer:
        service = OrderService(producer)
        for number in range(5):
            await service.place(b"%d" % number, {})
    broker.append("rejected", key=None, value=b"not flushed")
    with broker.crash() as again:
        assert len(values(again, "orders")) == 5
        assert values(again, "rejected") == []


# --- a cache that is warmed up from a compacted topic ------------------------------------------


@asynccontextmanager
async def cache_of(listener, topic, isolation="read_committed", **configs):
    async with started(
        AIOKafkaConsumer,
        topic,
        bootstrap_servers=listener.bootstrap,
        auto_offset_reset="earliest",
        isolation_level=isolation,
        retry_backoff_ms=10,
        **configs,
    ) as consumer:
        yield TableCache(consumer, quiet_ms=1000)


@in_loop
async def test_cache_is_the_table(logstore_broker, logstore_server):
    users_topic(logstore_broker)
    assert_compacted(logstore_broker, "users")
    async with cache_of(logstore_server, "users") as cache:
        await cache.warm_up()
        assert cache.rows == logstore_broker.table("users")
        logstore_broker.append("users", key=b"u1", value=None)
        logstore_broker.append("users", key=b"new", value=b"x")
        await until(lambda: cache.rows == logstore_broker.table("users"), cache.refresh)


@pytest.mark.parametrize(
    ("shape", "isolation"),
    [(shape, "read_committed") for shape in holes.SHAPES] + [("aborted_end", "read_uncommitted")],
)
@in_loop
async def test_cache_warms_up_over_every_hole(logstore_broker, logstore_server, shape, isolation):
    holes.fill(logstore_broker, shape, topic="users")
    async with cache_of(logstore_server, "users", isolation) as cache:
        await cache.warm_up()
        assert cache.rows == logstore_broker.table("users", isolation=isolation)


@in_loop
async def test_cache_warms_up_while_fetches_fail_and_cleaning_goes_on(
    logstore_broker, logstore_server
):
    users_topic(logstore_broker, partitions=1)
    rule = logstore_server.fail("Fetch", topic="users", error="NOT_LEADER_OR_FOLLOWER", times=3)
    async with cache_of(logstore_server, "users", max_partition_fetch_bytes=100) as cache:
        warming = asyncio.create_task(cache.warm_up())
        await until(lambda: rule.hits, functools.partial(asyncio.sleep, 0.01))
        logstore_broker.clock.advance(days=3)
        logstore_broker.clean("users", force=True, roll=True)
        await warming
        assert rule.hits == 3
        # What it read before the tombstone expired stays with it; nothing else may differ.
        assert logstore_broker.table("users").items() <= cache.rows.items()


# --- state that is restored from its changelog -------------------------------------------------


@in_loop
async def test_counts_come_back_from_the_cleaned_changelog(
    logstore_broker, logstore_server, logstore_server_factory
):
    broker = logstore_broker
    expected = events_topic(broker)

    @asynccontextmanager
    async def store_of(listener):
        async with AsyncExitStack() as stack:
            consumer = await stack.enter_async_context(member(listener, "events", "counter"))
            producer = await stack.enter_async_context(producer_of(listener))
            changelog = await stack.enter_async_context(cache_of(listener, "counts"))
            store = CountingStore(consumer, producer)
            await store.restore(changelog)
            yield store

    async with store_of(logstore_server) as store:
        await until(lambda: store.counts == expected, store.step)
    broker.clean("counts", force=True, roll=True)
    assert_compacted(broker, "counts")
    with broker.fork() as later:
        later.append("events", key=b"u1", value=b"login")
        async with store_of(logstore_server_factory(later)) as restarted:
            assert restarted.counts == expected
            expected[b"u1"] += 1
            await until(lambda: restarted.counts == expected, restarted.step)
        assert_committed(later, "counter", {TopicPartition("events", 0): 51})


# --- a job that erases -------------------------------------------------------------------------


@pytest.mark.logstore(background=True, storage="disk")
@in_loop
async def test_an_erased_user_leaves_the_disk_by_itself(
    logstore_broker, logstore_server, logstore_data_dir
):
    users_to_erase(logstore_broker)
    logstore_broker.append("erasure-requests", key=b"bob", value=b"")
    async with (
        member(logstore_server, "erasure-requests", "erasure") as requests,
        producer_of(logstore_server) as producer,
    ):
        done = []
        job = ErasureJob(requests, producer)

        async def step():
            done.append(await job.run())

        await until(lambda: sum(done) == 1, step)
    assert_committed(logstore_broker, "erasure", {TopicPartition("erasure-requests", 0): 1})
    assert_bob_leaves_the_disk(logstore_broker, logstore_data_dir)


@in_loop
async def test_a_job_that_dies_before_its_commit_does_the_request_again(
    logstore_broker, logstore_server
):
    users_to_erase(logstore_broker)
    logstore_broker.append("erasure-requests", key=b"bob", value=b"")
    async with producer_of(logstore_server) as producer:
        async with member(logstore_server, "erasure-requests", "erasure") as requests:
            job = ErasureJob(requests, producer)
            error = "GROUP_AUTHORIZATION_FAILED"
            with (
                logstore_server.fail("OffsetCommit", error=error) as rule,
                pytest.raises(KafkaError, match="GroupAuthorizationFailed"),
            ):
                await until(lambda: rule.hits, job.run)
        async with member(logstore_server, "erasure-requests", "erasure") as requests:
            again = ErasureJob(requests, producer)
            done = []

            async def step():
                done.append(await again.run())

            await until(lambda: sum(done) == 1, step)
    assert_committed(logstore_broker, "erasure", {TopicPartition("erasure-requests", 0): 1})
    assert history(logstore_broker, "users", b"bob") == [b"bob's address", None, None]


# --- exactly once ------------------------------------------------------------------------------


class Killed(BaseException):
    """The process is no more: nothing of it gets to abort anything."""


class DyingService(TransferService):
    """It dies with some of a transaction on its way."""

    left = 0

    async def _book(self, transfer):
        sent = await super()._book(transfer)
        self.left -= 1
        if not self.left:
            await asyncio.gather(*sent)
            raise Killed
        return sent


def booking(listener):
    return member(listener, "transfers", "booking")


def booking_service(listener, consumer, kind=TransferService):
    def new_producer():
        return AIOKafkaProducer(**producer_configs(listener), transactional_id="booking-1")

    return kind(consumer, new_producer, "booking")


@in_loop
async def test_transfers_are_booked_once(logstore_broker, logstore_server):
    expected = transfers_topic(logstore_broker)
    async with (
        booking(logstore_server) as consumer,
        booking_service(logstore_server, consumer) as service,
    ):
        await until(lambda: is_all_booked(logstore_broker), service.step)
    assert_all_booked(logstore_broker)
    assert balances(logstore_broker) == expected


@pytest.mark.parametrize(
    ("api", "error", "nth", "name"),
    (
        ("Produce", "TOPIC_AUTHORIZATION_FAILED", 1, "TopicAuthorizationFailedError"),
        ("Produce", "TOPIC_AUTHORIZATION_FAILED", 4, "TopicAuthorizationFailedError"),
        ("TxnOffsetCommit", "GROUP_AUTHORIZATION_FAILED", 2, "GroupAuthorizationFailedError"),
    ),
)
@in_loop
async def test_what_is_refused_takes_its_transaction_back(
    logstore_broker, logstore_server, api, error, nth, name
):
    expected = transfers_topic(logstore_broker)
    rule = logstore_server.fail(api, nth=nth, error=error)
    told = []
    async with (
        booking(logstore_server) as consumer,
        booking_service(logstore_server, consumer) as service,
    ):

        async def step():
            try:
                await service.step()
            except KafkaError as refused:
                told.append(type(refused).__name__)

        await until(lambda: is_all_booked(logstore_broker), step)
    assert rule.hits == 1
    assert told == [name]
    assert_all_booked(logstore_broker)
    assert balances(logstore_broker) == expected


@pytest.mark.parametrize("last", (1, 5))
@in_loop
async def test_a_service_that_dies_is_taken_over_from(logstore_broker, logstore_server, last):
    """Its successor fences it; what it left open is aborted, and nothing is booked twice."""
    expected = transfers_topic(logstore_broker)
    async with booking(logstore_server) as consumer:
        dying = booking_service(logstore_server, consumer, DyingService)
        dying.left = last
        with pytest.raises(Killed):
            await until(lambda: is_all_booked(logstore_broker), dying.step)
    async with (
        booking(logstore_server) as consumer,
        booking_service(logstore_server, consumer) as service,
    ):
        await until(lambda: is_all_booked(logstore_broker), service.step)
    async with dying:
        with pytest.raises(ProducerFenced):
            await dying.producer.commit_transaction()
    assert_all_booked(logstore_broker)
    assert balances(logstore_broker) == expected
