"""The same application over the wire: confluent-kafka, unchanged, at a listener."""

from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from logstore import TopicPartition
from logstore.testing import (
    assert_committed,
    assert_compacted,
    history,
    holes,
    records_by_key,
)
from tests.application.confluent_services import (
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


def producer_of(listener, **configs):
    """Return an idempotent producer that tries again at once."""
    options = {
        "bootstrap.servers": listener.bootstrap,
        "enable.idempotence": True,
        "linger.ms": 0,
        "retry.backoff.ms": 10,
        "retry.backoff.max.ms": 10,
        "topic.metadata.refresh.fast.interval.ms": 10,
    }
    return Producer(options | {key.replace("_", "."): value for key, value in configs.items()})


def member(listener, topic, group):
    """Return a consumer of a group that commits when it is told to."""
    consumer = Consumer(
        {
            "bootstrap.servers": listener.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    return consumer


def until(condition, step):
    """Step until it is so; return what the steps gave."""
    found = []
    for _ in range(TRIES):
        if condition():
            return found
        found.append(step())
    raise AssertionError(f"not in {TRIES} steps")


# --- orders and what can go wrong with them ----------------------------------------------------


@pytest.fixture
def broker(logstore_broker):
    orders_topics(logstore_broker)
    return logstore_broker


def test_an_order_is_placed(broker, logstore_server):
    service = OrderService(producer_of(logstore_server))
    assert service.place(b"1", {"item": "tea"}) == 0
    assert history(broker, "orders", b"1") == [b'{"item": "tea"}']


@pytest.mark.parametrize("is_done", (False, True), ids=("refused", "answer lost"))
@pytest.mark.parametrize("error", ("NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT", None))
def test_what_passes_makes_no_duplicate(broker, logstore_server, error, is_done):
    what = {"drop": True} if error is None else {"error": error, "topic": "orders"}
    rule = logstore_server.fail("Produce", times=3, after=is_done, **what)
    assert OrderService(producer_of(logstore_server)).place(b"1", {}) == 0
    assert rule.hits == 3
    assert values(broker, "orders") == [b"{}"]


def test_what_does_not_pass_is_told_after_the_time_limit(broker, logstore_server):
    logstore_server.fail("Produce", topic="orders", error="NOT_LEADER_OR_FOLLOWER")
    service = OrderService(producer_of(logstore_server, message_timeout_ms=200))
    with pytest.raises(OrderNotPlacedError, match=r"order b'1'.*_MSG_TIMED_OUT"):
        service.place(b"1", {})
    assert values(broker, "orders") == []


def test_an_order_that_is_too_large_is_rejected(broker, logstore_server):
    service = OrderService(producer_of(logstore_server))
    with pytest.raises(OrderNotPlacedError, match="too large"):
        service.place(b"1", {"note": "x" * 1000})
    assert history(broker, "orders", b"1") == []
    assert history(broker, "rejected", b"1") == [b"1012"]
    assert service.place(b"1", {}) == 0


def test_a_full_disk_places_nothing_and_takes_nothing_away(
    broker, logstore_server, logstore_server_factory
):
    OrderService(producer_of(logstore_server)).place(b"1", {})
    service = OrderService(producer_of(logstore_server, message_timeout_ms=500))
    broker.fail("append", topic="orders", error="ENOSPC")
    with pytest.raises(OrderNotPlacedError, match="order b'2'"):
        service.place(b"2", {})
    with broker.crash() as again:
        assert set(records_by_key(again, "orders")) == {b"1"}
        service = OrderService(producer_of(logstore_server_factory(again)))
        assert service.place(b"2", {}) == 1


def test_an_order_that_was_confirmed_survives_a_loss_of_power(broker, logstore_server):
    service = OrderService(producer_of(logstore_server))
    for number in range(5):
        service.place(b"%d" % number, {})
    broker.append("rejected", key=None, value=b"not flushed")
    with broker.crash() as again:
        assert len(values(again, "orders")) == 5
        assert values(again, "rejected") == []


# --- a cache that is warmed up from a compacted topic ------------------------------------------


def cache_of(listener, topic, isolation="read_committed", **configs):
    options = {"bootstrap.servers": listener.bootstrap, "isolation.level": isolation}
    return closing(TableCache(options | configs, topic, quiet_s=1))


def test_cache_is_the_table(logstore_broker, logstore_server):
    users_topic(logstore_broker)
    assert_compacted(logstore_broker, "users")
    with cache_of(logstore_server, "users") as cache:
        cache.warm_up()
        assert cache.rows == logstore_broker.table("users")
        logstore_broker.append("users", key=b"u1", value=None)
        logstore_broker.append("users", key=b"new", value=b"x")
        until(lambda: cache.rows == logstore_broker.table("users"), cache.refresh)


@pytest.mark.parametrize(
    ("shape", "isolation"),
    [(shape, "read_committed") for shape in holes.SHAPES] + [("aborted_end", "read_uncommitted")],
)
def test_cache_warms_up_over_every_hole(logstore_broker, logstore_server, shape, isolation):
    holes.fill(logstore_broker, shape, topic="users")
    with cache_of(logstore_server, "users", isolation) as cache:
        cache.warm_up()
        assert cache.rows == logstore_broker.table("users", isolation=isolation)


def test_cache_warms_up_while_fetches_fail_and_cleaning_goes_on(logstore_broker, logstore_server):
    users_topic(logstore_broker, partitions=1)
    rule = logstore_server.fail("Fetch", topic="users", error="NOT_LEADER_OR_FOLLOWER", times=3)
    quick = {"retry.backoff.ms": 10, "topic.metadata.refresh.fast.interval.ms": 10}
    with cache_of(logstore_server, "users", **quick, **{"fetch.message.max.bytes": 100}) as cache:
        cache.refresh()
        logstore_broker.clock.advance(days=3)
        logstore_broker.clean("users", force=True, roll=True)
        cache.warm_up()
        assert rule.hits == 3
        # What it read before the tombstone expired stays with it; nothing else may differ.
        assert logstore_broker.table("users").items() <= cache.rows.items()


# --- state that is restored from its changelog -------------------------------------------------


def test_counts_come_back_from_the_cleaned_changelog(
    logstore_broker, logstore_server, logstore_server_factory
):
    broker = logstore_broker
    expected = events_topic(broker)

    def store_of(listener):
        consumer = member(listener, "events", "counter")
        with cache_of(listener, "counts") as changelog:
            return consumer, CountingStore(consumer, producer_of(listener), changelog)

    consumer, store = store_of(logstore_server)
    with closing(consumer):
        until(lambda: store.counts == expected, store.step)
    broker.clean("counts", force=True, roll=True)
    assert_compacted(broker, "counts")
    with broker.fork() as later:
        later.append("events", key=b"u1", value=b"login")
        consumer, restarted = store_of(logstore_server_factory(later))
        with closing(consumer):
            assert restarted.counts == expected
            expected[b"u1"] += 1
            until(lambda: restarted.counts == expected, restarted.step)
        assert_committed(later, "counter", {TopicPartition("events", 0): 51})


# --- a job that erases -------------------------------------------------------------------------


@pytest.mark.logstore(background=True, storage="disk")
def test_an_erased_user_leaves_the_disk_by_itself(
    logstore_broker, logstore_server, logstore_data_dir
):
    users_to_erase(logstore_broker)
    logstore_broker.append("erasure-requests", key=b"bob", value=b"")
    with closing(member(logstore_server, "erasure-requests", "erasure")) as requests:
        job = ErasureJob(requests, producer_of(logstore_server))
        done = []
        until(lambda: sum(done) == 1, lambda: done.append(job.run()))
    assert_committed(logstore_broker, "erasure", {TopicPartition("erasure-requests", 0): 1})
    assert_bob_leaves_the_disk(logstore_broker, logstore_data_dir)


def test_a_job_that_dies_before_its_commit_does_the_request_again(logstore_broker, logstore_server):
    users_to_erase(logstore_broker)
    logstore_broker.append("erasure-requests", key=b"bob", value=b"")
    producer = producer_of(logstore_server)
    with closing(member(logstore_server, "erasure-requests", "erasure")) as requests:
        job = ErasureJob(requests, producer)
        error = "GROUP_AUTHORIZATION_FAILED"
        with (
            logstore_server.fail("OffsetCommit", error=error) as rule,
            pytest.raises(KafkaException, match=error),
        ):
            until(lambda: rule.hits, job.run)
    with closing(member(logstore_server, "erasure-requests", "erasure")) as requests:
        again = ErasureJob(requests, producer)
        done = []
        until(lambda: sum(done) == 1, lambda: done.append(again.run()))
    assert_committed(logstore_broker, "erasure", {TopicPartition("erasure-requests", 0): 1})
    assert history(logstore_broker, "users", b"bob") == [b"bob's address", None, None]


# --- exactly once ------------------------------------------------------------------------------


class Killed(BaseException):
    """The process is no more: nothing of it gets to abort anything."""


class DyingService(TransferService):
    """It dies with some of a transaction on its way."""

    def __init__(self, consumer, producer, last):
        super().__init__(consumer, producer)
        self._left = last

    def _book(self, transfer):
        super()._book(transfer)
        self._left -= 1
        if not self._left:
            self._producer.flush(30)
            raise Killed


def booking(listener):
    return closing(member(listener, "transfers", "booking"))


def bookkeeper(listener):
    return producer_of(listener, transactional_id="booking-1")


def test_transfers_are_booked_once(logstore_broker, logstore_server):
    expected = transfers_topic(logstore_broker)
    with booking(logstore_server) as consumer:
        service = TransferService(consumer, bookkeeper(logstore_server))
        until(lambda: is_all_booked(logstore_broker), service.step)
    assert_all_booked(logstore_broker)
    assert balances(logstore_broker) == expected


@pytest.mark.parametrize(
    ("api", "error", "nth"),
    (
        ("Produce", "TOPIC_AUTHORIZATION_FAILED", 1),
        ("Produce", "TOPIC_AUTHORIZATION_FAILED", 4),
        ("TxnOffsetCommit", "GROUP_AUTHORIZATION_FAILED", 2),
    ),
)
def test_what_is_refused_takes_its_transaction_back(
    logstore_broker, logstore_server, api, error, nth
):
    """librdkafka takes some tries to pass what was refused once; how many depends on the machine.

    It refuses to work in the transaction, and with the topic until it has asked for metadata again,
    and a batch that never came leaves a gap in its sequence numbers.
    """
    expected = transfers_topic(logstore_broker)
    rule = logstore_server.fail(api, nth=nth, error=error)
    names = []
    with booking(logstore_server) as consumer:
        service = TransferService(consumer, bookkeeper(logstore_server))

        def step():
            try:
                service.step()
            except KafkaException as refused:
                names.append(refused.args[0].name())

        until(lambda: is_all_booked(logstore_broker), step)
    assert rule.hits == 1
    assert names
    assert set(names) <= {error, "OUT_OF_ORDER_SEQUENCE_NUMBER", "_STATE"}
    assert_all_booked(logstore_broker)
    assert balances(logstore_broker) == expected


@pytest.mark.parametrize("last", (1, 5))
def test_a_service_that_dies_is_taken_over_from(logstore_broker, logstore_server, last):
    """Its successor fences it; what it left open is aborted, and nothing is booked twice."""
    expected = transfers_topic(logstore_broker)
    old = bookkeeper(logstore_server)
    with booking(logstore_server) as consumer:
        service = DyingService(consumer, old, last)
        with pytest.raises(Killed):
            until(lambda: is_all_booked(logstore_broker), service.step)
    with booking(logstore_server) as consumer:
        service = TransferService(consumer, bookkeeper(logstore_server))
        until(lambda: is_all_booked(logstore_broker), service.step)
    with pytest.raises(KafkaException) as caught:
        old.commit_transaction(30)
    assert caught.value.args[0].code() == KafkaError._FENCED
    assert_all_booked(logstore_broker)
    assert balances(logstore_broker) == expected
