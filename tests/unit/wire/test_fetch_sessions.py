"""Incremental fetch sessions (KIP-227), compared once with Kafka 4.3.1 request by request."""

import random
import threading

import pytest

from logstore import Acl, Authorizer, Broker, Cluster
from logstore.errors import KAFKA_CODES
from logstore.messages.types import FetchRequest, FetchResponse
from logstore.storage.log.reader import Isolation
from logstore.wire import fetch_sessions
from logstore.wire.fetch import _ReadPositions
from logstore.wire.fetch_sessions import FetchSessions, _next
from tests.support.world.locks import GuardedDict, HeldLock
from tests.support.world.wire import Client

T = "t"


def request_of(partitions, forgotten=(), version=12, **fields):
    """Return a request for (topic, partition, offset) each; topics are ids since version 13."""
    field = "topic_id" if version >= 13 else "topic"
    topics = [
        FetchRequest.FetchTopic(
            **{field: topic},
            partitions=[
                FetchRequest.FetchPartition(
                    partition=number, fetch_offset=offset, partition_max_bytes=1 << 20
                )
            ],
        )
        for topic, number, offset in partitions
    ]
    gone = [
        FetchRequest.ForgottenTopic(**{field: topic}, partitions=[number])
        for topic, number in forgotten
    ]
    options = {"max_bytes": 1 << 20, "min_bytes": 1, "max_wait_ms": 0} | fields
    return FetchRequest(topics=topics, forgotten_topics_data=gone, **options)


class Fetcher:
    """A client with one fetch session."""

    def __init__(self, client, version=12):
        self.client = client
        self.version = version
        self.id = self.epoch = 0

    def fetch(self, *partitions, forgotten=(), **fields):
        """Return the error, or {(topic, partition): (error, high watermark, has records)}."""
        fields = {"session_id": self.id, "session_epoch": self.epoch} | fields
        request = request_of(partitions, forgotten, self.version, **fields)
        answer = self.client.ask(request, self.version)
        if answer.error_code:
            assert (answer.session_id, answer.responses) == (0, [])
            return answer.error_code
        self.id = answer.session_id
        self.epoch = self.epoch + 1 if self.id else 0
        return {
            (topic.topic if self.version < 13 else topic.topic_id, each.partition_index): (
                each.error_code,
                each.high_watermark,
                bool(each.records),
            )
            for topic in answer.responses
            for each in topic.partitions
        }


@pytest.fixture(autouse=True)
def topic(broker):
    broker.create_topic(T, 3)


@pytest.fixture
def fetcher(client):
    return Fetcher(client)


def test_a_session_reports_only_news(broker, fetcher):
    broker.append(T, partition=0, value=b"1")
    everything = [(T, number, 0) for number in range(3)]
    assert fetcher.fetch(*everything) == {
        (T, 0): (0, 1, True),
        (T, 1): (0, 0, False),
        (T, 2): (0, 0, False),
    }
    assert fetcher.id > 0
    assert fetcher.fetch((T, 0, 1)) == {}
    broker.append(T, partition=2, value=b"2")
    assert fetcher.fetch() == {(T, 2): (0, 1, True)}
    assert fetcher.fetch() == {(T, 2): (0, 1, True)}, "the client has not moved on"
    assert fetcher.fetch((T, 2, 1)) == {}
    broker.append(T, partition=0, value=b"3")
    broker.delete_records({(T, 0): 1})
    assert fetcher.fetch((T, 0, 2)) == {(T, 0): (0, 2, False)}, "high watermark and log start"


def test_partitions_with_records_are_read_last_next_time(broker, fetcher):
    fetcher.fetch(*((T, number, 0) for number in range(3)))
    for number in (0, 1):
        broker.append(T, partition=number, value=b"1")
    assert list(fetcher.fetch()) == [(T, 0), (T, 1)]
    broker.append(T, partition=2, value=b"1")
    assert list(fetcher.fetch()) == [(T, 2), (T, 0), (T, 1)]


def test_errors_are_reported_until_they_are_gone(broker, fetcher):
    fetcher.fetch((T, 0, 0))
    unknown = KAFKA_CODES["UNKNOWN_TOPIC_OR_PARTITION"]
    assert fetcher.fetch(("u", 0, 0)) == {("u", 0): (unknown, -1, False)}
    assert fetcher.fetch() == {("u", 0): (unknown, -1, False)}
    broker.create_topic("u")
    assert fetcher.fetch() == {("u", 0): (0, 0, False)}
    assert fetcher.fetch() == {}


def test_requests_outside_of_the_session_are_refused(fetcher):
    fetcher.fetch((T, 0, 0))
    wrong_epoch = KAFKA_CODES["INVALID_FETCH_SESSION_EPOCH"]
    unknown = KAFKA_CODES["FETCH_SESSION_ID_NOT_FOUND"]
    assert fetcher.fetch(session_epoch=2) == wrong_epoch
    assert fetcher.fetch(session_id=fetcher.id + 1) == unknown
    assert fetcher.fetch(session_id=-5) == unknown
    assert fetcher.fetch(session_id=0, session_epoch=1) == unknown
    fetcher.version = 13
    assert fetcher.fetch() == KAFKA_CODES["FETCH_SESSION_TOPIC_ID_ERROR"]
    fetcher.version = 12
    assert fetcher.fetch() == {}
    assert fetcher.epoch == 2


def test_a_session_ends(listener, fetcher):
    sessions = listener._service.fetch_sessions
    fetcher.fetch((T, 0, 0))
    first = fetcher.id
    fetcher.epoch = 0
    assert (T, 0) in fetcher.fetch((T, 0, 0)), "a request for another session"
    assert (fetcher.id == first, len(sessions)) == (False, 1)
    assert fetcher.fetch(forgotten=[(T, 0)]) == {}
    assert (fetcher.id, len(sessions)) == (0, 0), "without partitions"
    fetcher.fetch((T, 0, 0))
    fetcher.epoch = -1
    assert (T, 0) in fetcher.fetch((T, 0, 0))
    assert (fetcher.id, len(sessions)) == (0, 0), "closed by the client"


def test_old_versions_have_no_sessions(listener, client):
    old = Fetcher(client, version=6)
    assert (T, 0) in old.fetch((T, 0, 0), session_id=0, session_epoch=-1)
    assert (old.id, len(listener._service.fetch_sessions)) == (0, 0)


def test_a_topic_that_is_created_again_in_a_session(broker, client):
    fetcher = Fetcher(client, version=13)
    old = broker.topic(T).id
    assert fetcher.fetch((old, 0, 0)) == {(old, 0): (0, 0, False)}
    broker.delete_topic(T)
    gone = KAFKA_CODES["UNKNOWN_TOPIC_OR_PARTITION"]
    assert fetcher.fetch() == {(old, 0): (gone, -1, False)}
    broker.create_topic(T)
    other = KAFKA_CODES["INCONSISTENT_TOPIC_ID"]
    assert fetcher.fetch() == {(old, 0): (other, -1, False)}
    new = broker.topic(T).id
    assert fetcher.fetch((new, 0, 0), forgotten=[(old, 0)]) == {(new, 0): (0, 0, False)}
    assert fetcher.fetch() == {}
    never = "B" * 21 + "A"
    unknown = KAFKA_CODES["UNKNOWN_TOPIC_ID"]
    assert fetcher.fetch((never, 0, 0)) == {(never, 0): (unknown, -1, False)}


def test_unreadable_partitions_do_not_end_the_wait(broker, fetcher):
    fetcher.fetch((T, 0, 0), ("none", 0, 0))
    timer = threading.Timer(0.3, lambda: broker.append(T, partition=0, value=b"1"))
    timer.start()
    found = fetcher.fetch(max_wait_ms=20_000)
    timer.join()
    assert found[T, 0] == (0, 1, True)
    assert ("none", 0) in found


def test_permissions_are_checked_in_each_request(broker):
    authorizer = Authorizer([Acl("User:ANONYMOUS", "read", "topic", T)])
    with broker.listen(authorizer=authorizer) as listener, Client(listener) as client:
        fetcher = Fetcher(client)
        assert fetcher.fetch((T, 0, 0)) == {(T, 0): (0, 0, False)}
        authorizer.add(Acl("User:*", "read", "topic", T, permission="deny"))
        denied = KAFKA_CODES["TOPIC_AUTHORIZATION_FAILED"]
        assert fetcher.fetch() == {(T, 0): (denied, -1, False)}


def test_a_session_of_many_partitions_is_large(broker):
    broker.create_topic("many", 400)
    with broker.listen() as listener, Client(listener) as client:
        fetcher = Fetcher(client)
        assert len(fetcher.fetch(*(("many", number, 0) for number in range(400)))) == 400
        assert fetcher.fetch() == {}
        broker.append("many", partition=399, value=b"1")
        assert fetcher.fetch() == {("many", 399): (0, 1, True)}


def test_a_leader_that_moved_is_reported_in_a_session():
    with Cluster(2) as cluster, cluster.listen() as server:
        cluster.create_topic(T, replication_factor=2)
        with Client(server[0]) as client:
            fetcher = Fetcher(client, version=10)  # the last one that only reads from leaders
            assert fetcher.fetch((T, 0, 0)) == {(T, 0): (0, 0, False)}
            cluster.move_leader(T, to=1)
            moved = KAFKA_CODES["NOT_LEADER_OR_FOLLOWER"]
            assert fetcher.fetch() == {(T, 0): (moved, -1, False)}
            cluster.move_leader(T, to=0)
            assert fetcher.fetch() == {(T, 0): (0, 0, False)}


def test_concurrent_requests_of_a_session(client, fetcher, listener):
    fetcher.fetch((T, 0, 0))
    waits = request_of((), session_id=fetcher.id, session_epoch=1, max_wait_ms=500)
    client.socket.sendall(client.frame(waits, 12))
    with Client(listener) as other:
        sessions = listener._service.fetch_sessions
        client.until(lambda: sessions._session(fetcher.id).epoch == 2)
        answer = other.ask(request_of((), session_id=fetcher.id, session_epoch=2), 12)
        assert answer.error_code == 0
    _, answer = client.read(waits, 12)
    assert answer.error_code == KAFKA_CODES["INVALID_FETCH_SESSION_EPOCH"]


# -- the cache -----------------------------------------------------------------------------------


class World:
    """Sessions on a clock of the test."""

    def __init__(self, slots):
        self.now_ms = 0
        lock = HeldLock(threading.Lock())
        self.sessions = FetchSessions(slots, lock, lambda: self.now_ms, random.Random(1))
        self.sessions._shards = [GuardedDict(lock) for _ in self.sessions._shards]

    def create(self, partitions=1):
        """Return the id of a new session, or 0."""
        asked = [(T, number, 0) for number in range(partitions)]
        context = self.sessions.open(request_of(asked, session_epoch=0), 12, lambda _: None)
        found = FetchResponse.PartitionData()
        session_id, _ = self.sessions.finish(
            context, [(place, found) for place in context.partitions]
        )
        return session_id

    def use(self, session_id, epoch, *asked):
        """Return the error of a request."""
        request = request_of(asked, session_id=session_id, session_epoch=epoch)
        return self.sessions.open(request, 12, lambda _: None).error


def test_a_log_may_be_replaced_by_a_concurrent_request(broker, listener):
    class Place:
        logs = iter((broker.log(T, 0), None))

        @property
        def log(self):
            return next(self.logs)

    stand = _ReadPositions.of([Place()], Isolation.READ_UNCOMMITTED, listener._service.nodes)
    assert [log.topic_partition for log in stand.logs] == [(T, 0)]


def test_slots_are_divided_as_in_kafka():
    world = World(slots=17)
    ids = [world.create() for _ in range(24)]
    assert [bool(each) for each in ids] == [True] * 16 + [False] * 8
    assert [each // ((2**31 - 1) // 8) for each in ids[:16]] == [*range(8), *range(8)]
    assert World(slots=7).create() == 0
    assert World(slots=0).create() == 0


def test_idle_sessions_are_replaced():
    world = World(slots=8)
    first = [world.create() for _ in range(8)]
    world.now_ms = 120_000
    assert world.create() == 0
    world.now_ms += 1
    assert world.use(first[1], 1) is None
    second = [world.create() for _ in range(8)]
    # The refused request had the turn of the first shard; the second one has no idle session.
    assert [bool(each) for each in second] == [False] + [True] * 7


def test_an_old_session_is_replaced_by_a_larger_one_only():
    world = World(slots=8)
    first = [world.create(2) for _ in range(8)]
    world.now_ms = 120_001
    for session_id in first:
        assert world.use(session_id, 1) is None
    assert [world.create(2) for _ in range(8)] == [0] * 8
    assert all(world.create(3) for _ in range(8))
    assert world.use(first[0], 2) == "FETCH_SESSION_ID_NOT_FOUND"
    assert [world.create(4) for _ in range(8)] == [0] * 8, "the new ones are young"


def test_the_partitions_of_all_sessions_are_bounded(monkeypatch):
    monkeypatch.setattr(fetch_sessions, "_MAX_PARTITIONS", 5)
    world = World(slots=1000)
    first, second = world.create(2), world.create(3)
    assert min(first, second) > 0
    assert world.create(1) == 0
    assert world.use(second, 1, (T, 7, 0)) == "FETCH_SESSION_ID_NOT_FOUND"
    assert len(world.sessions) == 1
    assert world.create(3) > 0


def test_a_session_has_no_names_that_are_too_long_for_a_topic(fetcher, listener):
    """Clients could fill the memory with them."""
    sessions = listener._service.fetch_sessions
    unknown = KAFKA_CODES["UNKNOWN_TOPIC_OR_PARTITION"], -1, False
    assert fetcher.fetch(("x" * 250, 0, 0)) == {("x" * 250, 0): unknown}
    assert (fetcher.id, len(sessions)) == (0, 0)
    assert fetcher.fetch(("x" * 249, 0, 0)) == {("x" * 249, 0): unknown}
    assert len(sessions) == 1
    assert fetcher.fetch(("x" * 250, 0, 0)) == KAFKA_CODES["FETCH_SESSION_ID_NOT_FOUND"]
    assert len(sessions) == 0


def test_epochs_start_again_at_one():
    assert (_next(1), _next(2**31 - 1)) == (2, 1)


def test_slots_are_a_setting():
    with Broker(broker_config={"max.incremental.fetch.session.cache.slots": 0}) as broker:
        broker.create_topic(T)
        with broker.listen() as listener, Client(listener) as client:
            fetcher = Fetcher(client)
            assert fetcher.fetch((T, 0, 0)) == {(T, 0): (0, 0, False)}
            assert fetcher.id == 0
