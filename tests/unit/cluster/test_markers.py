"""Markers of transactions in a cluster: requests over the network between brokers."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from logstore import Cluster, TopicPartition, VirtualClock
from logstore.cluster.markers import MarkerChannel
from logstore.cluster.network import Network
from logstore.coordinator.groups.offsets import OffsetAndMetadata
from logstore.coordinator.transactions.state import TransactionVersion
from logstore.errors import ConcurrentTransactionsError, CoordinatorNotAvailableError
from logstore.names import TRANSACTION_STATE_TOPIC
from logstore.runtime import SystemClock

TP = TopicPartition("t", 0)
STATES = (TopicPartition(TRANSACTION_STATE_TOPIC, 0), TopicPartition(TRANSACTION_STATE_TOPIC, 1))
TIMEOUT_MS = 60_000
IDS = ("x", "y")
"""Ids of different partitions, if there are two."""

COORDINATOR, REPLICA, LEADER = 0, 1, 2


@pytest.fixture(params=("memory", "disk"))
def data_dir(request, tmp_path):
    return None if request.param == "memory" else tmp_path / "data"


def opened(data_dir=None, clock=None, replicas=(LEADER, REPLICA)):
    """Open a cluster whose data leader has no replica of the coordinator's partition."""
    cluster = Cluster(clock=VirtualClock() if clock is None else clock, data_dir=data_dir, seed=1)
    create_states(cluster, [COORDINATOR, REPLICA])
    cluster.create_topic("t", assignment=[replicas])
    return cluster


def create_states(cluster, *assignment):
    configs = {"cleanup.policy": "compact", "compaction.strategy": "offset"}
    cluster.create_topic(TRANSACTION_STATE_TOPIC, len(assignment), configs, assignment=assignment)


class Owner:
    """The producer of a transactional id, and its coordinator."""

    def __init__(self, cluster, transactional_id="x"):
        self.cluster = cluster
        self.id = transactional_id
        self.producer = self.coordinator.init_producer_id(transactional_id, TIMEOUT_MS)

    @property
    def coordinator(self):
        return self.cluster.brokers[self.cluster.transaction_coordinator(self.id)].coordinator

    def add(self, tp=TP):
        self.coordinator.add_partitions(self.id, self.producer, (tp,))

    def end(self, *, commit=True, version=TransactionVersion.V0):
        self.producer = self.coordinator.end_transaction(
            self.id, self.producer, commit=commit, version=version
        )

    @property
    def state(self):
        return self.coordinator.describe(self.id).state.kafka_name


def markers(cluster, tp=TP):
    """Return the number of markers in a partition that only has markers."""
    return cluster.leader_log(tp).log_end_offset


# -- faults of the network -------------------------------------------------------------------------


@pytest.mark.parametrize("version", (TransactionVersion.V0, TransactionVersion.V2))
def test_a_marker_takes_as_long_as_its_link(data_dir, version):
    with opened(data_dir) as cluster:
        owner = Owner(cluster)
        owner.add()
        cluster.slow(COORDINATOR, LEADER, 3_000)
        arrivals = []
        started_ms = cluster.clock.now_ms()
        cluster.leader_log(TP).subscribe(
            lambda: arrivals.append(cluster.clock.now_ms() - started_ms)
        )
        owner.end(version=version)
        assert arrivals[0] == 3_000
        assert cluster.clock.now_ms() - started_ms == 6_000
        assert (owner.state, markers(cluster)) == ("CompleteCommit", 1)


@pytest.mark.parametrize("remedy", ("heal", "move", "kill"))
@pytest.mark.parametrize("commit", (True, False))
def test_a_cut_link_delays_the_marker_until_it_is_healed_or_the_leader_moves(
    data_dir, remedy, commit
):
    with opened(data_dir) as cluster:
        owner = Owner(cluster)
        owner.add()
        cluster.disconnect({COORDINATOR}, {LEADER})
        owner.end(commit=commit)
        assert owner.state == ("PrepareCommit" if commit else "PrepareAbort")
        with pytest.raises(ConcurrentTransactionsError):
            owner.add()
        cluster.clock.advance(minutes=5)
        assert markers(cluster) == 0
        if remedy == "heal":
            cluster.heal()
        elif remedy == "move":
            cluster.move_leader(TP, to=REPLICA)
        else:
            cluster.kill(LEADER)
        cluster.clock.advance(ms=1)
        assert owner.state == ("CompleteCommit" if commit else "CompleteAbort")
        assert markers(cluster) == 1
        owner.add()
        assert owner.state == "Ongoing"


@pytest.mark.parametrize("lost", ("request", "response"))
def test_a_marker_is_sent_again_after_its_request_or_response_was_lost(lost):
    with opened() as cluster:
        owner = Owner(cluster)
        owner.add()
        cluster.slow(COORDINATOR, LEADER, 1_000)
        schedule = cluster.runtime.scheduler.schedule
        cut_ms = 500 if lost == "request" else 1_500
        schedule("cut", lambda: cluster.disconnect({0}, {LEADER}), delay_ms=cut_ms)
        schedule("heal", cluster.heal, delay_ms=20_000)
        owner.end()
        cluster.clock.advance(seconds=30)
        assert owner.state == "CompleteCommit"
        assert markers(cluster) == (1 if lost == "request" else 2)


def test_a_request_that_was_given_up_does_not_end_a_later_transaction():
    """It was on a slow link when that was healed. Without epoch bumps, nothing tells them apart."""
    with opened() as cluster:
        owner = Owner(cluster)
        owner.add()
        cluster.slow(COORDINATOR, LEADER, 50_000)
        cluster.runtime.scheduler.schedule("heal", cluster.heal, delay_ms=35_000)
        owner.end()
        cluster.clock.advance(seconds=10)
        assert (owner.state, markers(cluster)) == ("CompleteCommit", 1)
        owner.add()
        cluster.clock.advance(seconds=50)
        assert (owner.state, markers(cluster)) == ("Ongoing", 1)


def test_a_request_that_took_too_long_is_given_up():
    """It is sent again when the link is restored, which also removes the delay."""
    with opened() as cluster:
        owner = Owner(cluster)
        owner.add()
        cluster.slow(COORDINATOR, LEADER, 50_000)
        started_ms = cluster.clock.now_ms()
        owner.end()
        assert (owner.state, cluster.clock.now_ms() - started_ms) == ("PrepareCommit", 30_000)
        cluster.clock.advance(minutes=1)
        assert (owner.state, markers(cluster)) == ("PrepareCommit", 0)
        cluster.heal()
        cluster.clock.advance(ms=1)
        assert (owner.state, markers(cluster)) == ("CompleteCommit", 1)


@pytest.mark.parametrize("version", (TransactionVersion.V0, TransactionVersion.V2))
def test_a_coordinator_that_leads_again_writes_all_markers_of_a_later_transaction(version):
    """It lost its partition while an earlier transaction of the id had only one of two markers."""
    other = TopicPartition("u", 0)
    with Cluster(brokers=4, clock=VirtualClock(), seed=1) as cluster:
        create_states(cluster, [COORDINATOR, REPLICA])
        cluster.create_topic("t", assignment=[[LEADER]])
        cluster.create_topic("u", assignment=[[3]])
        owner = Owner(cluster)
        owner.add()
        owner.add(other)
        cluster.disconnect({COORDINATOR}, {3})
        owner.end(version=version)
        assert (owner.state, markers(cluster), markers(cluster, other)) == ("PrepareCommit", 1, 0)
        cluster.move_leader(STATES[0], to=REPLICA)
        cluster.clock.advance(seconds=1)
        assert (owner.state, markers(cluster, other)) == ("CompleteCommit", 1)
        cluster.heal()
        owner.add()
        owner.add(other)
        cluster.disconnect({REPLICA}, {LEADER, 3})
        owner.end(version=version)
        assert owner.state == "PrepareCommit"
        written = markers(cluster)
        cluster.move_leader(STATES[0], to=COORDINATOR)
        cluster.clock.advance(seconds=1)
        assert owner.state == "CompleteCommit"
        assert (markers(cluster), markers(cluster, other)) == (written + 1, 2)


def test_a_marker_waits_for_a_leader_and_for_its_in_sync_replicas():
    with opened(replicas=[LEADER]) as cluster:
        cluster.create_topic("u", configs={"min.insync.replicas": 2}, assignment=[[LEADER, 1]])
        tp = TopicPartition("u", 0)
        owner = Owner(cluster)
        owner.producer = owner.coordinator.init_producer_id("x", 3_600_000 // 6)
        owner.add()
        owner.add(tp)
        cluster.disconnect({REPLICA}, {LEADER})
        for _ in range(20):  # so that the follower lags
            cluster.append(tp, value=b"x", acks=1)
            cluster.clock.advance(seconds=3)
        assert cluster.state(tp).isr == (LEADER,)
        before = markers(cluster, tp)
        owner.end()
        cluster.clock.advance(minutes=1)
        assert owner.state == "PrepareCommit"
        assert markers(cluster) == 1
        assert markers(cluster, tp) == before, "none is appended below min.insync.replicas"
        cluster.kill(LEADER)
        cluster.clock.advance(minutes=1)
        assert owner.state == "PrepareCommit"
        cluster.heal()
        cluster.restart(LEADER)
        cluster.clock.advance(minutes=1)
        assert owner.state == "CompleteCommit"


def test_a_marker_is_sent_again_to_the_leader_that_was_elected_during_the_call():
    """The other partition has its marker, and its leader gets no second one."""
    with opened() as cluster:
        cluster.create_topic("u", assignment=[[REPLICA]])
        other = TopicPartition("u", 0)
        owner = Owner(cluster)
        owner.add()
        owner.add(other)
        cluster.slow(COORDINATOR, LEADER, 3_000)
        move = partial(cluster.move_leader, TP, to=REPLICA)
        cluster.runtime.scheduler.schedule("move", move, delay_ms=1_000)
        started_ms = cluster.clock.now_ms()
        owner.end()
        assert cluster.clock.now_ms() - started_ms == 6_000
        assert (owner.state, markers(cluster), markers(cluster, other)) == ("CompleteCommit", 1, 1)


def test_a_marker_is_written_when_all_replicas_have_the_decision_of_the_earlier_leader():
    """Otherwise, a replica without the decision could become the leader and abort."""
    with Cluster(brokers=4, clock=VirtualClock(), seed=1) as cluster:
        create_states(cluster, [COORDINATOR, REPLICA, 3])
        cluster.create_topic("t", assignment=[[LEADER]])
        owner = Owner(cluster)
        owner.add()
        cluster.disconnect({COORDINATOR, REPLICA}, {3})
        with pytest.raises(CoordinatorNotAvailableError):
            owner.end()
        cluster.move_leader(STATES[0], to=REPLICA)
        cluster.clock.advance(seconds=1)
        assert (owner.state, markers(cluster)) == ("PrepareCommit", 0)
        cluster.heal()
        owner.add()
        assert (owner.state, markers(cluster)) == ("Ongoing", 1)


def test_refused_markers_are_sent_again_at_a_constant_rate():
    """One retry covers all prepared transactions, however many of them were refused."""
    with Cluster(clock=VirtualClock(), seed=1) as cluster:
        create_states(cluster, [COORDINATOR])
        cluster.create_topic("t", configs={"min.insync.replicas": 2}, assignment=[[LEADER, 1]])
        owners = [Owner(cluster, each) for each in ("x", "y", "z")]
        for owner in owners:
            owner.add()
        cluster.disconnect({REPLICA}, {LEADER})
        for _ in range(20):  # so that the follower lags
            cluster.append(TP, value=b"x", acks=1)
            cluster.clock.advance(seconds=2)
        assert cluster.state(TP).isr == (LEADER,)
        for owner in owners:
            owner.end()
        sent = []
        channel = cluster.replicas(COORDINATOR).markers
        send, started_ms = channel.send, cluster.clock.now_ms()

        def record(target, request):
            sent.append((cluster.clock.now_ms() - started_ms, request.markers[0].producer_id))
            return send(target, request)

        channel.send = record
        cluster.clock.advance(ms=9_999)
        ids = [owner.producer.producer_id for owner in owners]
        backoff_ms = cluster.replicas(COORDINATOR).backoff_ms
        assert sent == [(n * backoff_ms, each) for n in range(1, 10) for each in ids]


# -- waits for replicas ----------------------------------------------------------------------------


def test_others_are_served_while_a_state_is_replicated():
    """Threads: the call for one id waits for a follower, and holds no lock."""
    with Cluster(seed=1) as cluster:
        create_states(cluster, [COORDINATOR, 1], [COORDINATOR, 2])
        numbers = {}
        coordinator = cluster.brokers[COORDINATOR].coordinator
        for number in range(20):
            numbers.setdefault(coordinator.partition_for(f"id-{number}"), f"id-{number}")
        waiting, served = (numbers[tp] for tp in STATES)
        producers = {
            each: coordinator.init_producer_id(each, TIMEOUT_MS) for each in (waiting, served)
        }
        cluster.disconnect({COORDINATOR}, {1})
        results = []
        thread = threading.Thread(
            target=lambda: results.append(coordinator.init_producer_id(waiting, TIMEOUT_MS))
        )
        thread.start()
        assert cluster.run_until(lambda: len(cluster.purgatory) > 0, timeout=60)
        second = coordinator.init_producer_id(served, TIMEOUT_MS)
        assert second == producers[served]._replace(producer_epoch=1)
        assert coordinator.describe(waiting).producer == producers[waiting], "not replicated yet"
        with pytest.raises(ConcurrentTransactionsError):
            coordinator.init_producer_id(waiting, TIMEOUT_MS)
        assert not results
        cluster.heal()
        thread.join()
        assert results == [producers[waiting]._replace(producer_epoch=1)]


def test_a_call_can_end_while_the_states_are_reloaded(monkeypatch):
    """The reload iterates over the calls in progress, so none of them may end meanwhile."""
    with Cluster(seed=1) as cluster:
        create_states(cluster, [COORDINATOR, REPLICA])
        owner = Owner(cluster)
        coordinator = owner.coordinator
        partition_of = coordinator._log.partition_of
        threads = []
        with coordinator._exclusive("a"), coordinator._exclusive("b"):
            other = coordinator._exclusive("c")
            other.__enter__()

            def end_other(transactional_id):
                if transactional_id == "a" and not threads:
                    threads.append(threading.Thread(target=other.__exit__, args=(None,) * 3))
                    threads[0].start()
                    threads[0].join(timeout=0.2)  # with a lock, it ends later
                return partition_of(transactional_id)

            monkeypatch.setattr(coordinator._log, "partition_of", end_other)
            coordinator._stored.epochs = dict(coordinator._stored.epochs)
            coordinator._load()
            threads[0].join()
        assert coordinator._pending == {}


def test_two_leaders_add_their_partitions_to_one_transaction_at_once(monkeypatch):
    monkeypatch.setattr("logstore.coordinator.transactions.coordinator.ADD_TIMEOUT_MS", 60_000)
    with opened(clock=SystemClock()) as cluster:
        owner = Owner(cluster)
        cluster.disconnect({COORDINATOR}, {REPLICA})

        def add(partition):
            tp = TopicPartition("t", partition)
            with owner.coordinator.verified(tp, owner.producer, "x", adds=True):
                return tp

        with ThreadPoolExecutor() as executor:
            first = executor.submit(add, 0)
            assert cluster.run_until(lambda: len(cluster.purgatory) > 0, timeout=60)
            second = executor.submit(add, 1)
            cluster.heal()
            added = {first.result(), second.result()}
        assert owner.coordinator.describe("x").partitions == added


def test_a_task_in_virtual_time_does_not_enter_a_call_that_waits():
    """Locks do not exclude it: it runs in the thread that waits."""
    with opened(clock=VirtualClock()) as cluster:
        owner = Owner(cluster)
        cluster.disconnect({COORDINATOR}, {REPLICA})
        refused = []

        def call():
            with pytest.raises(ConcurrentTransactionsError):
                owner.coordinator.init_producer_id("x", TIMEOUT_MS)
            refused.append(cluster.clock.now_ms())
            cluster.heal()

        cluster.runtime.scheduler.schedule("call", call, delay_ms=1_000)
        assert owner.coordinator.init_producer_id("x", TIMEOUT_MS).producer_epoch == 1
        assert refused
        assert owner.coordinator.init_producer_id("x", TIMEOUT_MS).producer_epoch == 2


def test_a_state_that_was_not_replicated_is_rolled_back():
    with opened() as cluster:
        owner = Owner(cluster)
        owner.add()
        cluster.disconnect({COORDINATOR}, {REPLICA})
        with pytest.raises(CoordinatorNotAvailableError):
            owner.end()
        assert (owner.state, markers(cluster)) == ("Ongoing", 0)
        cluster.heal()
        owner.end(commit=False)
        assert owner.state == "CompleteAbort"


def test_nothing_is_appended_below_min_insync_replicas():
    """Kafka's coordinators append with acks=all; the topic of transactions needs two replicas."""
    with opened() as cluster:
        cluster.delete_topic(TRANSACTION_STATE_TOPIC)
        owner = Owner(cluster)
        (tp,) = {owner.coordinator.partition_for("x")}
        before = cluster.leader_log(tp).log_end_offset
        leader = cluster.leader(tp)
        for broker in {0, 1, 2} - {leader}:
            cluster.kill(broker)
        with pytest.raises(CoordinatorNotAvailableError):
            owner.coordinator.init_producer_id("x", TIMEOUT_MS)
        assert cluster.leader_log(tp).log_end_offset == before


def test_offsets_of_a_transaction_are_replicated_without_the_lock_of_its_coordinator():
    with Cluster(seed=1) as cluster:
        create_states(cluster, [COORDINATOR, 2])
        cluster.create_topic("t", replication_factor=1)
        configs = {"cleanup.policy": "compact", "compaction.strategy": "offset"}
        cluster.create_topic("__consumer_offsets", 1, configs, assignment=[[COORDINATOR, 1]])
        owner = Owner(cluster)
        broker = cluster.brokers[COORDINATOR]
        part = broker.groups.partition_for("g")
        owner.add(part)
        session = broker.producer(transactional_id="z")
        session.init_transactions()
        session.begin_transaction()
        cluster.disconnect({COORDINATOR}, {1})
        thread = threading.Thread(
            target=lambda: session.send_offsets_to_transaction({TP: OffsetAndMetadata(5, "")}, "g")
        )
        thread.start()
        assert cluster.run_until(lambda: len(cluster.purgatory) > 0, timeout=60)
        other = Owner(cluster, "y")
        assert other.producer.producer_epoch == 0
        assert thread.is_alive()
        cluster.heal()
        thread.join()
        session.commit_transaction()


# -- requests and their responses ------------------------------------------------------------------


class FakeProcess:
    """A broker whose messages are delivered when the test does so."""

    broker_id = COORDINATOR
    is_over = False

    def __init__(self):
        self.network = Network(VirtualClock(), None)
        self.sent = []

    def send(self, target, name, call):
        peer = FakePeer()
        self.sent.append((target, name, lambda: call(peer), peer))
        return peer


class FakePeer:
    is_over = False

    def __init__(self):
        self.received = []

    def on_markers(self, *arguments):
        self.received.append(arguments)


def test_each_request_gets_its_own_response_once():
    process = FakeProcess()
    channel = MarkerChannel(process)
    first, second = channel.send(LEADER, "one"), channel.send(REPLICA, "two")
    woken = []
    unsubscribe = first.subscribe(lambda: woken.append(first.errors))
    for _, _, deliver, _ in process.sent:
        deliver()
    assert [(target, name, peer.received) for target, name, _, peer in process.sent] == [
        (LEADER, "WriteTxnMarkers", [(COORDINATOR, 1, "one")]),
        (REPLICA, "WriteTxnMarkers", [(COORDINATOR, 2, "two")]),
    ]
    assert (first.is_done(), second.is_done()) == (False, False)
    channel.on_response(1, {7: {TP: None}})
    channel.on_response(1, {7: {TP: "LATE"}})
    channel.on_response(9, {})
    assert (first.errors, woken) == ({7: {TP: None}}, [{7: {TP: None}}])
    assert (first.is_done(), second.is_done(), second.errors) == (True, False, None)
    second.subscribe(lambda: woken.append("given up"))
    channel.give_up()
    assert (first.is_given_up, second.is_given_up, second.is_done()) == (False, True, True)
    assert woken.pop() == "given up"
    unsubscribe()
    first.answer({})
    assert woken == [{7: {TP: None}}]


def test_a_request_that_was_given_up_is_not_delivered():
    process = FakeProcess()
    channel = MarkerChannel(process)
    sent = [channel.send(LEADER, each) for each in ("one", "two", "three")]
    channel.give_up(sent[0].number, sent[2].number)
    channel.give_up(sent[0].number)
    channel.on_response(sent[2].number, {})
    for _, _, deliver, _ in process.sent:
        deliver()
    assert [len(peer.received) for *_, peer in process.sent] == [0, 1, 0]
    assert [each.errors for each in sent] == [None, None, None]


@pytest.mark.parametrize("ends", ("process", "peer", "link", "nobody"))
def test_a_response_is_not_awaited_from_a_broker_that_cannot_send_it(ends):
    process = FakeProcess()
    if ends == "nobody":
        process.send = lambda *_: None
    sent = MarkerChannel(process).send(LEADER, "one")
    assert sent.is_done() == (ends == "nobody")
    if ends == "process":
        process.is_over = True
    elif ends == "peer":
        sent.receiver.is_over = True
    elif ends == "link":
        process.network.disconnect([COORDINATOR], [REPLICA])
        assert not sent.is_done()
        process.network.disconnect([COORDINATOR], [LEADER])
    assert sent.is_done()
