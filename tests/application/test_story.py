"""One application with three clients: in process, and confluent-kafka and aiokafka by wire."""

import pytest

from logstore import TopicPartition
from logstore.testing import (
    assert_committed,
    assert_compacted,
    history,
    holes,
    records_by_key,
)
from tests.application.adapters import Aiokafka, Confluent, InProcess, Killed, until
from tests.application.services import OrderNotPlacedError
from tests.application.stories import (
    SMALL,
    assert_all_booked,
    assert_bob_leaves_the_disk,
    balances,
    events_topic,
    is_all_booked,
    on_both,
    transfers_topic,
    users_to_erase,
    users_topic,
    values,
)

pytestmark = pytest.mark.logstore(broker_config=SMALL)


@pytest.fixture(params=(InProcess, Confluent, Aiokafka))
def app(request, logstore_broker):
    """The application with each client."""
    if request.param is InProcess:
        return InProcess(logstore_broker)
    return adapted(request)


@pytest.fixture(params=(Confluent, Aiokafka))
def remote(request):
    """The application with each client that needs a listener."""
    return adapted(request)


def adapted(request):
    app = request.param(request.getfixturevalue("logstore_server"))
    if hasattr(app, "close"):
        request.addfinalizer(app.close)
    return app


# --- orders and their failures -----------------------------------------------------------------


def test_an_order_is_placed(broker, app):
    with app.orders() as service:
        assert service.place(b"1", {"item": "tea"}) == 0
    assert history(broker, "orders", b"1") == [b'{"item": "tea"}']


@pytest.mark.parametrize("is_done", (False, True), ids=("refused", "answer lost"))
@pytest.mark.parametrize("error", ("NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT", None))
def test_transient_errors_cause_no_duplicate(broker, remote, error, is_done):
    what = {"drop": True} if error is None else {"error": error, "topic": "orders"}
    rule = remote.at.fail("Produce", times=3, after=is_done, **what)
    with remote.orders() as service:
        assert service.place(b"1", {}) == 0
    assert rule.hits == 3
    assert values(broker, "orders") == [b"{}"]


def test_permanent_errors_are_reported_after_the_timeout(broker, remote):
    rule = remote.at.fail("Produce", topic="orders", error="NOT_LEADER_OR_FOLLOWER")
    with remote.orders(limit_s=0.2) as service:
        with pytest.raises(OrderNotPlacedError, match=remote.late):
            service.place(b"1", {})
        assert values(broker, "orders") == []
        rule.remove()
    assert values(broker, "orders") == ([] if remote.gives_up else [b"{}"])


def test_an_order_that_is_too_large_is_rejected(broker, app):
    with app.orders() as service:
        with pytest.raises(OrderNotPlacedError, match="too large"):
            service.place(b"1", {"note": "x" * 1000})
        assert history(broker, "orders", b"1") == []
        assert history(broker, "rejected", b"1") == [b"1012"]
        assert service.place(b"1", {}) == 0


def test_a_full_disk_adds_and_removes_no_order(broker, remote, logstore_server_factory):
    with remote.orders() as service:
        service.place(b"1", {})
    with remote.orders(limit_s=0.5) as service:
        broker.fail("append", topic="orders", error="ENOSPC")
        with pytest.raises(OrderNotPlacedError, match="order b'2'"):
            service.place(b"2", {})
        # Only now does a producer of aiokafka give up; it could not be stopped before.
        remote.at.fail("Produce", error="TOPIC_AUTHORIZATION_FAILED")
    with broker.crash() as again:
        assert set(records_by_key(again, "orders")) == {b"1"}
        remote.at = logstore_server_factory(again)
        with remote.orders() as service:
            assert service.place(b"2", {}) == 1


@on_both
def test_an_order_that_was_confirmed_survives_a_loss_of_power(broker, app, storage):
    with app.orders() as service:
        for number in range(5):
            service.place(b"%d" % number, {})
    broker.append("rejected", key=None, value=b"not flushed")
    with broker.crash() as again:
        assert len(values(again, "orders")) == 5
        assert values(again, "rejected") == []


# --- a cache that is warmed up from a compacted topic ------------------------------------------


@on_both
def test_cache_is_the_table(logstore_broker, app, storage):
    users_topic(logstore_broker)
    assert_compacted(logstore_broker, "users")
    with app.cache("users") as cache:
        cache.warm_up()
        assert cache.rows == logstore_broker.table("users")
        logstore_broker.append("users", key=b"u1", value=None)
        logstore_broker.append("users", key=b"new", value=b"x")
        until(lambda: cache.rows == logstore_broker.table("users"), cache.refresh)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "isolation"),
    [(shape, "read_committed") for shape in holes.SHAPES] + [("aborted_end", "read_uncommitted")],
)
def test_cache_warms_up_over_every_hole(logstore_broker, remote, shape, isolation):
    holes.fill(logstore_broker, shape, topic="users")
    with remote.cache("users", isolation=isolation) as cache:
        cache.warm_up()
        assert cache.rows == logstore_broker.table("users", isolation=isolation)


@pytest.mark.slow
def test_cache_warms_up_during_failing_fetches_and_cleaning(logstore_broker, remote):
    users_topic(logstore_broker, partitions=1)
    rule = remote.at.fail("Fetch", topic="users", error="NOT_LEADER_OR_FOLLOWER", times=3)
    with remote.cache("users", fetch_bytes=100) as cache:
        cache.refresh()
        logstore_broker.clock.advance(days=3)
        logstore_broker.clean("users", force=True, roll=True)
        cache.warm_up()
        assert rule.hits == 3
        # The cache keeps records that it read before the tombstone expired; the rest is equal.
        assert logstore_broker.table("users").items() <= cache.rows.items()


# --- state that is restored from its changelog -------------------------------------------------


def test_counts_are_restored_from_the_cleaned_changelog(
    logstore_broker, remote, logstore_server_factory
):
    broker = logstore_broker
    expected = events_topic(broker)
    with remote.counting() as store:
        until(lambda: store.counts == expected, store.step)
    broker.clean("counts", force=True, roll=True)
    assert_compacted(broker, "counts")
    with broker.fork() as later:
        later.append("events", key=b"u1", value=b"login")
        remote.at = logstore_server_factory(later)
        with remote.counting() as restarted:
            assert restarted.counts == expected
            expected[b"u1"] += 1
            until(lambda: restarted.counts == expected, restarted.step)
        assert_committed(later, "counter", {TopicPartition("events", 0): 51})


# --- a job that erases -------------------------------------------------------------------------


def erase_one(app):
    done = []
    with app.erasure() as job:
        until(lambda: sum(done) == 1, lambda: done.append(job.run()))


@pytest.mark.logstore(background=True, storage="disk")
def test_an_erased_user_leaves_the_disk_by_itself(logstore_broker, app, logstore_data_dir):
    users_to_erase(logstore_broker)
    logstore_broker.append("erasure-requests", key=b"bob", value=b"")
    erase_one(app)
    assert_committed(logstore_broker, "erasure", {TopicPartition("erasure-requests", 0): 1})
    assert_bob_leaves_the_disk(logstore_broker, logstore_data_dir)


def test_a_job_that_dies_before_its_commit_repeats_the_request(logstore_broker, remote):
    users_to_erase(logstore_broker)
    logstore_broker.append("erasure-requests", key=b"bob", value=b"")
    with remote.erasure() as job:
        error = "GROUP_AUTHORIZATION_FAILED"
        with (
            remote.at.fail("OffsetCommit", error=error) as rule,
            pytest.raises(remote.error, match=rf"{error}|GroupAuthorizationFailed"),
        ):
            until(lambda: rule.hits, job.run)
    erase_one(remote)
    assert_committed(logstore_broker, "erasure", {TopicPartition("erasure-requests", 0): 1})
    assert history(logstore_broker, "users", b"bob") == [b"bob's address", None, None]


# --- exactly once ------------------------------------------------------------------------------


def assert_booked(broker, expected):
    assert_all_booked(broker)
    assert balances(broker) == expected


def test_transfers_are_booked_once(logstore_broker, app):
    expected = transfers_topic(logstore_broker)
    with app.booking() as service:
        until(lambda: is_all_booked(logstore_broker), service.step)
    assert_booked(logstore_broker, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("api", "error", "nth"),
    (
        ("Produce", "TOPIC_AUTHORIZATION_FAILED", 1),
        ("Produce", "TOPIC_AUTHORIZATION_FAILED", 4),
        ("TxnOffsetCommit", "GROUP_AUTHORIZATION_FAILED", 2),
    ),
)
def test_a_refused_batch_aborts_its_transaction(logstore_broker, remote, api, error, nth):
    expected = transfers_topic(logstore_broker)
    rule = remote.at.fail(api, nth=nth, error=error)
    refusals = []
    with remote.booking() as service:

        def step():
            try:
                service.step()
            except remote.error as refused:
                refusals.append(refused)

        until(lambda: is_all_booked(logstore_broker), step)
    assert rule.hits == 1
    remote.assert_refused(refusals, error)
    assert_booked(logstore_broker, expected)


@pytest.mark.parametrize("last", (1, 5))
def test_a_service_that_dies_is_taken_over_from(logstore_broker, remote, last):
    """The successor fences it, aborts its open transaction, and books nothing twice."""
    expected = transfers_topic(logstore_broker)
    with remote.booking(dies_after=last) as dying, pytest.raises(Killed):
        until(lambda: is_all_booked(logstore_broker), dying.step)
    with remote.booking() as service:
        until(lambda: is_all_booked(logstore_broker), service.step)
    remote.assert_fenced(dying)
    assert_booked(logstore_broker, expected)
