"""Coordinators of a cluster that move, load and fail, in virtual time."""

import pytest

from logstore import Cluster, TopicPartition, VirtualClock
from logstore.coordinator.groups.offsets import OffsetAndMetadata
from logstore.coordinator.transactions.log import TransactionLog
from logstore.coordinator.transactions.state import ProducerIdAndEpoch
from logstore.errors import (
    RETRIABLE_ERRORS,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    IllegalStateError,
    LogStoreError,
    NotCoordinatorError,
)
from logstore.record.batch import build_batch
from logstore.record.records import Record
from logstore.storage.log.log import Log
from logstore.storage.log.reader import Isolation
from tests.support.world.locks import GuardedDict, HeldLock

T = [TopicPartition("t", number) for number in range(3)]
CONFIG = {"offsets.topic.num.partitions": 2, "transaction.state.log.num.partitions": 2}
TIMEOUT_MS = 60_000


@pytest.fixture
def cluster():
    with Cluster(clock=VirtualClock(), broker_config=CONFIG, seed=1) as cluster:
        cluster.create_topic("t", 3, replication_factor=3)
        yield cluster


def is_retriable(error):
    """Return whether clients retry; a closed broker is a broken connection."""
    return isinstance(error, IllegalStateError) or error.kafka_error in RETRIABLE_ERRORS


class Client:
    """A client that repeats a call at the present coordinator while its error is retriable."""

    def __init__(self, cluster, transactional_id="x", group_id="g"):
        self.cluster = cluster
        self.id = transactional_id
        self.group_id = group_id
        self.producer = None
        self.sequences = dict.fromkeys(T, 0)

    @property
    def coordinator(self):
        return self.cluster.brokers[self.cluster.transaction_coordinator(self.id)].coordinator

    @property
    def groups(self):
        return self.cluster.brokers[self.cluster.group_coordinator(self.group_id)].groups

    def retry(self, call):
        for _ in range(100):
            try:
                return call()
            except (LogStoreError, KeyError) as error:
                if isinstance(error, LogStoreError) and not is_retriable(error):
                    raise
                self.cluster.clock.advance(ms=100)
        raise TimeoutError

    def init(self):
        self.producer = self.retry(lambda: self.coordinator.init_producer_id(self.id, TIMEOUT_MS))
        self.sequences = dict.fromkeys(T, 0)

    def add(self, *partitions):
        self.retry(lambda: self.coordinator.add_partitions(self.id, self.producer, partitions))

    def batch(self, tp, value):
        """Return the next batch of the transaction in a partition, with one record."""
        batch = build_batch(
            [Record(0, self.cluster.clock.now_ms(), b"k", value)],
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            base_sequence=self.sequences[tp],
            is_transactional=True,
        )
        self.sequences[tp] += 1
        return batch

    def send(self, tp, value):
        """Append a record; a repetition is a duplicate."""
        batch = self.batch(tp, value)
        self.retry(lambda: self.cluster.append_batches(tp, batch, transactional_id=self.id))

    def send_offset(self, offset):
        part = self.retry(lambda: self.groups.partition_for(self.group_id))
        self.add(part)
        offsets = {T[0]: OffsetAndMetadata(offset, "")}

        def commit():
            with self.coordinator.verified(part, self.producer, self.id):
                wait = self.groups.append_transactional(self.group_id, offsets, self.producer)
            wait()

        self.retry(commit)

    def end(self, *, commit=True):
        self.retry(lambda: self.coordinator.end_transaction(self.id, self.producer, commit=commit))

    def commit(self, offset):
        errors = self.retry(
            lambda: self.groups.commit(self.group_id, {T[0]: OffsetAndMetadata(offset, "")})
        )
        return errors[T[0]]

    def committed(self):
        found = self.retry(lambda: self.groups.fetch(self.group_id, [T[0]], require_stable=True))
        return found[T[0]].error or (found[T[0]].committed and found[T[0]].committed.offset)


def values(cluster, tp):
    """Return the committed values, which are the same in each replica."""
    read = [
        [
            record.value
            for _, record in broker.log(tp).reader.records(0, isolation=Isolation.READ_COMMITTED)
        ]
        for broker in cluster.brokers.values()
    ]
    assert all(each == read[0] for each in read)
    return read[0]


# -- moves -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ("kill", "power loss", "stop", "move"))
def test_the_next_leader_coordinates_with_all_that_was_acknowledged(cluster, how):
    client = Client(cluster)
    assert client.commit(5) is None
    client.init()
    first = client.producer
    group, transaction = cluster.group_coordinator("g"), cluster.transaction_coordinator("x")
    for broker in {group, transaction}:
        if how == "move":
            for topic in ("__consumer_offsets", "__transaction_state"):
                for number in range(2):
                    cluster.move_leader(topic, number, to=(broker + 1) % 3)
        elif how == "stop":
            cluster.stop(broker)
        else:
            cluster.kill(broker, power_loss=how == "power loss")
        assert cluster.group_coordinator("g") != broker
        assert client.committed() == 5
        if how != "move":
            cluster.restart(broker)
            cluster.clock.advance(seconds=1)
    client.init()
    assert client.producer == first._replace(producer_epoch=1)


def test_a_former_coordinator_refuses_and_a_new_one_loads_first(cluster):
    client = Client(cluster)
    assert client.commit(5) is None
    client.init()
    group, transaction = cluster.group_coordinator("g"), cluster.transaction_coordinator("x")
    old_groups = cluster.brokers[group].groups
    old_transactions = cluster.brokers[transaction].coordinator
    for topic in ("__consumer_offsets", "__transaction_state"):
        for number in range(2):
            state = cluster.state(topic, number)
            cluster.move_leader(topic, number, to=(state.leader + 1) % 3)
    with pytest.raises(NotCoordinatorError):
        old_groups.fetch("g")
    assert old_groups.commit("g", {T[0]: OffsetAndMetadata(6, "")}) == {T[0]: "NOT_COORDINATOR"}
    assert old_groups.describe("g").error == "NOT_COORDINATOR"
    assert old_groups.list_groups() == []
    with pytest.raises(NotCoordinatorError):
        old_transactions.init_producer_id("x", TIMEOUT_MS)
    with pytest.raises(NotCoordinatorError):
        old_transactions.describe("x")
    assert old_transactions.transactions() == {}
    assert client.groups.commit("g", {T[0]: OffsetAndMetadata(6, "")}) == {
        T[0]: "COORDINATOR_LOAD_IN_PROGRESS"
    }
    with pytest.raises(CoordinatorLoadInProgressError):
        client.groups.fetch("g")
    with pytest.raises(CoordinatorLoadInProgressError):
        client.coordinator.describe("x")
    cluster.clock.advance(ms=0)
    assert client.committed() == 5
    assert client.coordinator.describe("x").producer == client.producer
    assert [each.group_id for each in client.groups.list_groups()] == ["g"]


def test_a_write_that_is_not_replicated_is_not_acknowledged(cluster):
    """The leader answers COORDINATOR_NOT_AVAILABLE, and its successor does not know the write."""
    client = Client(cluster)
    assert client.commit(5) is None
    coordinator = cluster.group_coordinator("g")
    cluster.disconnect({coordinator}, set(range(3)) - {coordinator})
    assert client.groups.commit("g", {T[0]: OffsetAndMetadata(6, "")}) == {
        T[0]: "COORDINATOR_NOT_AVAILABLE"
    }
    with pytest.raises(CoordinatorNotAvailableError):
        client.groups.fetch("g")  # it would answer with the write
    cluster.kill(coordinator)
    cluster.heal()
    assert client.committed() == 5
    cluster.restart(coordinator)
    cluster.clock.advance(seconds=1)
    assert client.committed() == 5


def test_a_marker_that_is_written_does_not_hide_another_one_that_waits(cluster):
    """Two transactions end at the same time, in two threads."""
    host = cluster._nodes[0].host

    class Success:
        def __bool__(self):
            host._has_unwritten = True  # the other thread
            return False

    host._send_markers = lambda _, partitions: dict.fromkeys(partitions, Success())
    host.write_markers(None, [T[0]])
    assert host._has_unwritten


def test_contents_of_an_earlier_epoch_are_not_continued(cluster):
    """The leadership went to another broker and returned, which may have written meanwhile."""
    client = Client(cluster)
    assert client.commit(5) is None
    topic, number = client.groups._store._topic, client.groups.partition_of("g").partition
    epoch, leader = topic.owned[number], cluster.group_coordinator("g")
    for to in ((leader + 1) % 3, leader):
        cluster.move_leader(topic.name, number, to=to)
        cluster.clock.advance(seconds=1)
    with pytest.raises(NotCoordinatorError):
        topic.append(number, epoch, lambda writer: pytest.fail("it must not write"))
    assert topic.owned == {number: epoch + 2}


def test_a_coordinator_that_loses_its_partition_during_a_call_refuses(cluster, monkeypatch):
    """The data is flushed before the decision is stored; the leader moves in between."""
    client = Client(cluster)
    client.init()
    client.add(T[0])
    client.send(T[0], b"1")
    coordinator, leader = client.coordinator, cluster.transaction_coordinator("x")
    tp = coordinator.partition_for("x")
    flush = Log.flush

    def move_and_flush(log, *arguments):
        if cluster.leader(tp) == leader:
            cluster.move_leader(tp, to=(leader + 1) % 3)
        flush(log, *arguments)

    monkeypatch.setattr(Log, "flush", move_and_flush)
    with pytest.raises(NotCoordinatorError):
        coordinator.end_transaction("x", client.producer, commit=True)
    client.end()
    assert values(cluster, T[0]) == [b"1"]


def test_one_broker_needs_no_other():
    with Cluster(1, clock=VirtualClock(), broker_config=CONFIG) as cluster:
        cluster.create_topic("t", 3, replication_factor=1)
        client = Client(cluster)
        client.init()
        client.add(*T)
        for tp in T:
            client.send(tp, b"1")
        client.send_offset(7)
        client.end()
        assert client.committed() == 7
        assert [values(cluster, tp) for tp in T] == [[b"1"]] * 3
        cluster.restart(0)
        assert client.committed() == 7


def test_a_batch_without_an_id_belongs_to_whichever_coordinator_has_its_producer(cluster):
    """A Produce request always has the id; callers in the process need not give it."""
    clients = [Client(cluster, each) for each in ("x", "y")]
    for client in clients:
        client.init()
        client.add(*T)
    assert {cluster.transaction_coordinator(each.id) for each in clients} == {0, 1}
    assert [cluster.leader(tp) for tp in T] == [0, 1, 2]
    for client in clients:
        for tp in T:
            for value in (b"1", b"2"):  # which opens the transaction in the partition, and a later
                cluster.append_batches(tp, client.batch(tp, value))
    client = clients[0]
    fenced = client.producer
    client.end()
    client.init()
    for producer, error in (
        (client.producer, "{0} is not part of a transaction of 'x', whose state is Empty"),
        (
            fenced,
            "producer 0 with epoch 0 of transactional id 'x' is fenced: epoch 1 is the newest",
        ),
        (
            ProducerIdAndEpoch(99, 0),
            "{0}: producer 99 has no transactional id, so it cannot have an open transaction",
        ),
    ):
        client.producer = producer
        for tp in T:
            with pytest.raises(LogStoreError) as raised:
                cluster.append_batches(tp, client.batch(tp, b"3"))
            assert str(raised.value) == error.format(tp)
    clients[1].end(commit=False)
    assert [values(cluster, tp) for tp in T] == [[b"1", b"2"]] * 3


def test_a_leader_that_cannot_reach_the_coordinator_refuses_the_first_batch(cluster):
    client = Client(cluster)
    client.init()
    client.add(*T)
    coordinator = cluster.transaction_coordinator("x")
    tp = next(tp for tp in T if cluster.leader(tp) != coordinator)
    cluster.disconnect({coordinator}, {cluster.leader(tp)})
    batch = client.batch(tp, b"1")
    for transactional_id, error in (
        ("x", "the transaction coordinator of 'x' is not available"),
        (None, f"{tp}: producer 0 has no transactional id, so it cannot have an open transaction"),
    ):
        with pytest.raises(LogStoreError) as raised:
            cluster.append_batches(tp, batch, transactional_id=transactional_id, acks=1)
        assert str(raised.value) == error
    cluster.heal()
    cluster.append_batches(tp, batch, transactional_id="x")
    client.end()
    assert values(cluster, tp) == [b"1"]


def test_states_of_transactions_are_read_and_written_under_a_lock(cluster, monkeypatch):
    """No lock is held while a coordinator waits for replicas and markers."""
    locks, called = {}, set()
    for broker in cluster.brokers.values():
        coordinator = broker.coordinator
        lock = coordinator._lock = HeldLock(coordinator._lock)
        locks[coordinator._log] = lock
        coordinator._pending = GuardedDict(lock)
        coordinator._with_marker = GuardedDict(lock)

        def load(coordinator=coordinator, load=coordinator._load, lock=lock):
            stored = load()
            if not isinstance(stored.by_id, GuardedDict):
                stored.by_id = GuardedDict(lock, stored.by_id)
            return stored

        monkeypatch.setattr(coordinator, "_load", load)
        host = coordinator._host
        for name in ("await_replicated", "write_markers"):
            method = getattr(host, name)

            def wait(*arguments, method=method, lock=lock, name=name):
                called.add(name)
                assert not lock.depth, f"{name} with the lock"
                return method(*arguments)

            monkeypatch.setattr(host, name, wait)
    for name in ("append", "forget", "read", "ensure_stored"):
        method = getattr(TransactionLog, name)

        def check(log, *arguments, method=method, name=name, **options):
            called.add(name)
            if log in locks:
                assert locks[log].depth, f"{name} without the lock"
            return method(log, *arguments, **options)

        monkeypatch.setattr(TransactionLog, name, check)
    client = Client(cluster)
    client.init()
    client.add(*T)
    client.send(T[0], b"1")
    assert client.coordinator.has_producer(client.producer.producer_id)
    with client.coordinator.verified(T[0], client.producer, "x"):
        assert client.coordinator._lock.depth == 1
    leader = cluster.transaction_coordinator("x")
    tp = client.coordinator.partition_for("x")
    cluster.move_leader(tp, to=(leader + 1) % 3)
    cluster.clock.advance(seconds=1)
    client.end()
    client.init()
    client.add(T[1])
    cluster.clock.advance(ms=2 * TIMEOUT_MS)
    assert client.coordinator.describe("x").state.kafka_name == "CompleteAbort"
    assert list(client.coordinator.transactions()) == ["x"]
    cluster.clock.advance(days=8)
    assert client.coordinator.transactions() == {}
    assert called == {
        "append", "await_replicated", "ensure_stored", "forget", "read", "write_markers"
    }  # fmt: skip
