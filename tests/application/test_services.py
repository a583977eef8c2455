"""The application in process and in virtual time, with faults; `test_story` has the rest."""

from collections import Counter
from datetime import timedelta

import pytest

from logstore import LogStoreError
from logstore.testing import (
    assert_compacted,
    history,
    holes,
    records_by_key,
)
from tests.application.services import (
    CountingStore,
    ErasureJob,
    OrderNotPlacedError,
    OrderService,
    TableCache,
    TransferService,
)
from tests.application.stories import (
    SMALL,
    assert_all_booked,
    balances,
    events_topic,
    on_both,
    transfers_topic,
    users_to_erase,
    users_topic,
    values,
)

pytestmark = pytest.mark.logstore(broker_config=SMALL)

# --- orders and their failures -----------------------------------------------------------------


@pytest.mark.parametrize("is_done", (False, True), ids=("refused", "answer lost"))
@pytest.mark.parametrize("error", ("NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT"))
def test_transient_errors_cost_time_but_cause_no_duplicate(broker, error, is_done):
    before_ms = broker.clock.now_ms()
    rule = broker.fail("append", topic="orders", error=error, times=3, after=is_done)
    OrderService(broker.producer()).place(b"1", {})
    assert rule.hits == 3
    assert values(broker, "orders") == [b"{}"]
    assert broker.clock.now_ms() > before_ms


def test_permanent_errors_are_reported_after_the_timeout(broker):
    broker.fail("append", topic="orders", error="NOT_LEADER_OR_FOLLOWER")
    service = OrderService(broker.producer(delivery_timeout_ms=60_000))
    before_ms = broker.clock.now_ms()
    with pytest.raises(OrderNotPlacedError, match="order b'1'"):
        service.place(b"1", {})
    assert broker.clock.now_ms() - before_ms <= 61_000
    assert values(broker, "orders") == []


@on_both
def test_a_full_disk_adds_and_removes_no_order(broker, storage):
    service = OrderService(broker.producer())
    service.place(b"1", {})
    broker.fail("append", topic="orders", error="ENOSPC")
    with pytest.raises(OrderNotPlacedError, match="No space left on device"):
        service.place(b"2", {})
    with broker.crash() as again:
        assert set(records_by_key(again, "orders")) == {b"1"}
        assert OrderService(again.producer()).place(b"2", {}) == 1


# --- a cache that is warmed up from a compacted topic ------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ("read_committed", "read_uncommitted"))
@pytest.mark.parametrize("shape", holes.SHAPES)
def test_cache_warms_up_over_every_hole(logstore_broker, shape, isolation):
    holes.fill(logstore_broker, shape, topic="users")
    cache = TableCache(logstore_broker.consumer(isolation_level=isolation), "users")
    cache.warm_up()
    assert cache.rows == logstore_broker.table("users", isolation=isolation)


def test_cache_warms_up_during_failing_fetches_and_cleaning(logstore_broker):
    users_topic(logstore_broker, partitions=1)
    logstore_broker.fail("fetch", topic="users", error="NOT_LEADER_OR_FOLLOWER", nth=2, times=3)
    logstore_broker.fail("fetch", topic="users", delay=timedelta(seconds=2))
    cache = TableCache(logstore_broker.consumer(max_poll_records=3), "users")
    cache.refresh()
    logstore_broker.clock.advance(days=3)
    logstore_broker.clean("users", force=True, roll=True)
    cache.warm_up()
    # The cache keeps records that it read before the tombstone expired; the rest must be equal.
    expected = logstore_broker.table("users")
    assert expected.items() <= cache.rows.items()


# --- state that is restored from its changelog -------------------------------------------------


def store_of(broker):
    consumer = broker.consumer(
        "events", group_id="counter", auto_offset_reset="earliest", enable_auto_commit=False
    )
    return CountingStore(consumer, broker.producer(), broker.consumer())


@pytest.mark.parametrize("is_cleaned", (False, True))
def test_counts_are_restored_from_the_changelog(logstore_broker, is_cleaned):
    broker = logstore_broker
    expected = events_topic(broker)
    store = store_of(broker)
    store.step()
    assert store.counts == expected
    broker.append("events", key=b"u1", value=b"login")
    if is_cleaned:
        broker.clean("counts", force=True, roll=True)
        assert_compacted(broker, "counts")
    later = broker.fork()
    restarted = store_of(later)
    assert restarted.counts == expected
    while restarted.counts == expected:  # until the session of the one that died is over
        restarted.step()
        later.clock.advance(seconds=20)
    assert restarted.counts == expected + Counter([b"u1"])


# --- a job that erases -------------------------------------------------------------------------


def erasure_world(broker):
    users_to_erase(broker)
    return ErasureJob(
        broker.consumer("erasure-requests", group_id="erasure", auto_offset_reset="earliest"),
        broker.producer(),
    )


def test_a_job_that_dies_before_its_commit_repeats_the_request(logstore_broker):
    broker = logstore_broker
    job = erasure_world(broker)
    broker.append("erasure-requests", key=b"bob", value=b"")
    with broker.fail("commit", error="GROUP_AUTHORIZATION_FAILED"), pytest.raises(LogStoreError):
        job.run()
    job._requests.crash()
    broker.clock.advance(minutes=1)  # its session is over
    again = ErasureJob(
        broker.consumer("erasure-requests", group_id="erasure", auto_offset_reset="earliest"),
        broker.producer(),
    )
    assert again.run() == 1
    assert again.run() == 0
    assert history(broker, "users", b"bob") == [b"bob's address", None, None]


# --- exactly once ------------------------------------------------------------------------------


def service_of(broker):
    consumer = broker.consumer(
        "transfers",
        group_id="booking",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    return TransferService(consumer, broker.producer(transactional_id="booking-1"))


def finish(broker, service):
    for _ in range(40):
        service.step()
    assert_all_booked(broker)


@pytest.mark.parametrize("nth", range(1, 9))
def test_a_refused_record_aborts_its_transaction(logstore_broker, nth):
    expected = transfers_topic(logstore_broker)
    service = service_of(logstore_broker)
    rule = logstore_broker.fail(
        "append", topic="ledger", nth=nth, error="TOPIC_AUTHORIZATION_FAILED"
    )
    while not rule.hits:
        try:
            service.step()
        except LogStoreError:
            break
    rule.remove()
    finish(logstore_broker, service)
    assert balances(logstore_broker) == expected


@pytest.mark.parametrize("nth", range(1, 9))
def test_a_service_that_dies_is_taken_over_from(logstore_broker, nth):
    """The successor fences it, aborts its open transaction, and books nothing twice."""
    broker = logstore_broker
    expected = transfers_topic(broker)
    first = service_of(broker)
    with broker.fail("append", topic="ledger", nth=nth, error="TOPIC_AUTHORIZATION_FAILED") as rule:
        first._producer.abort_transaction = lambda: None  # it dies before it can
        while not rule.hits:
            try:
                first.step()
            except LogStoreError:
                break
    first._consumer.crash()
    first._producer.crash()
    broker.clock.advance(minutes=1)
    finish(broker, service_of(broker))
    assert balances(broker) == expected
