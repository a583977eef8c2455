"""Directories whose `__consumer_offsets` never got the markers of decided transactions."""

import random

import pytest

from logstore.coordinator.groups.offsets import OffsetAndMetadata
from logstore.coordinator.transactions import coordinator
from logstore.coordinator.transactions.log import TransactionLog
from logstore.coordinator.transactions.pending_offsets import History, Outcome
from logstore.coordinator.transactions.state import (
    TransactionMetadata,
    TransactionState,
    encode_key,
)
from logstore.errors import InvalidProducerEpochError, KafkaStorageError, ProducerFencedError
from logstore.names import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from logstore.runtime import MemoryFileSystem, SkewedClock, VirtualClock
from logstore.storage.log import NewRecord
from logstore.testing import SimulatedCrash
from logstore.types import TopicPartition
from tests.support.world.faulty import FaultyFileSystem, never
from tests.support.world.transactions import Bench, markers

CONFIG = {"offsets.topic.num.partitions": "2"}
TIMEOUT_MS = 60_000


class Group:
    """Group `g`, to which producers commit offsets in transactions.

    Without `with_markers`, the coordinator behaves as earlier versions did in clusters: it writes
    no markers to `__consumer_offsets`, except for producers in `marked`.
    """

    def __init__(self, *, with_markers=False, marked="", fs=None):
        self.clock = SkewedClock(VirtualClock())
        self.fs = MemoryFileSystem(self.clock) if fs is None else fs
        self.bench = Bench(self.fs, clock=self.clock, broker_config=CONFIG)
        self.bench.broker.create_topic("t", 4)
        if not with_markers:
            self.omit_markers()
        self.marked = marked
        self.producers = {}
        self.init("x")

    def omit_markers(self):
        host = self.coordinator._host
        write_markers = type(host).write_markers

        def write_some(marker, partitions):
            is_marked = marker[:2] in [self.producers[name] for name in self.marked]
            some = [tp for tp in partitions if is_marked or tp.topic != GROUP_OFFSETS_TOPIC]
            return {
                **dict.fromkeys(partitions),
                **(write_markers(host, marker, some) if some else {}),
            }

        host.write_markers = write_some

    @property
    def coordinator(self):
        return self.bench.coordinator

    @property
    def log(self):
        return self.log_of("g")

    def log_of(self, group_id):
        return self.bench.broker.manager.log(self.coordinator.groups.partition_for(group_id))

    def tick(self):
        self.clock.advance(ms=1)

    def init(self, name):
        self.producers[name] = self.coordinator.init_producer_id(name, TIMEOUT_MS)

    def send(self, offsets, name="x", group_id="g"):
        """Add offsets, by partition, to a producer's transaction."""
        self.tick()
        part = self.coordinator.groups.partition_for(group_id)
        self.coordinator.add_partitions(name, self.producers[name], (part, TopicPartition("t", 0)))
        self.tick()
        with self.coordinator.verified(part, self.producers[name], name):
            self.bench.broker.groups.append_transactional(
                group_id, _of_topic(offsets), self.producers[name]
            )

    def end(self, name="x", *, commit=True):
        self.tick()
        self.coordinator.end_transaction(name, self.producers[name], commit=commit)

    def commit(self, offsets, name="x"):
        self.send(offsets, name)
        self.end(name)

    def abort(self, offsets, name="x"):
        self.send(offsets, name)
        self.end(name, commit=False)

    def commit_plainly(self, offsets):
        self.tick()
        self.bench.broker.groups.commit("g", _of_topic(offsets))

    def reopen(self):
        """Restart the process."""
        self.tick()
        self.bench.reopen()
        self.coordinator.init_producer_id("another", TIMEOUT_MS)

    def offsets(self, group_id="g", *, require_stable=True):
        """Return the offset, or the error, of each partition."""
        found = self.bench.broker.groups.fetch(group_id, require_stable=require_stable)
        return {
            tp.partition: each.error or (each.committed and each.committed.offset)
            for tp, each in found.items()
        }

    def markers(self):
        return [kind for *_, kind, _ in markers(self.log)]

    def state(self, name="x"):
        return self.bench.state(name)


def _of_topic(offsets):
    return {TopicPartition("t", n): OffsetAndMetadata(each, "") for n, each in offsets.items()}


@pytest.fixture
def group():
    group = Group()
    yield group
    group.bench.broker.close()


# -- decided transactions --------------------------------------------------------------------------


def test_committed_offsets_take_effect(group):
    group.commit({0: 5, 1: 1})
    group.commit({0: 7})
    assert group.state() == "CompleteCommit"
    assert group.offsets() == dict.fromkeys((0, 1), "UNSTABLE_OFFSET_COMMIT")
    group.reopen()
    assert group.offsets() == {0: 7, 1: 1}
    assert markers(group.log) == [(3, 0, 0, "COMMIT", 0)]


def test_a_copied_topic_is_left_alone_until_a_group_needs_it(group):
    """Its transactions may belong to a broker that is still running."""
    group.commit({0: 5})
    group.bench.kill()
    for name in group.fs.list_dir(group.bench.path):
        if name.endswith(".json"):
            group.fs.remove(f"{group.bench.path}/{name}")
    group.bench.open()
    group.coordinator.init_producer_id("another", TIMEOUT_MS)
    assert group.bench.broker.topic(GROUP_OFFSETS_TOPIC).adopted
    assert group.markers() == []


def test_aborted_offsets_are_no_longer_pending(group):
    group.commit_plainly({0: 3})
    group.abort({0: 9})
    group.reopen()
    assert group.offsets() == {0: 3}
    assert group.markers() == ["ABORT"]


def test_committed_offsets_among_aborted_ones_take_effect(group, caplog):
    group.commit({0: 5, 1: 1, 2: 2})
    group.abort({0: 9, 3: 9})
    group.commit({1: 7})
    group.reopen()
    assert group.offsets() == {0: 5, 1: 7, 2: 2}
    tp = group.log.topic_partition
    assert [each for each in caplog.messages if "wrote" in each] == [
        f"{tp}: wrote the offsets committed by producer 0 again, outside a transaction: 2",
        f"{tp}: wrote the offsets committed by producer 0 again, outside a transaction: 1",
        f"{tp}: wrote the missing ABORT marker of producer 0 with epoch 0",
    ]


def test_offsets_that_were_committed_later_stay(group):
    group.commit({0: 5, 1: 1})
    group.abort({1: 9})
    group.commit_plainly({0: 20})
    group.reopen()
    assert group.offsets() == {0: 20, 1: 1}


def test_the_later_of_two_producers_counts(group):
    group.init("y")
    group.commit({0: 5, 1: 1})
    group.abort({2: 9})
    group.commit({0: 7}, "y")
    group.reopen()
    assert group.offsets() == {0: 7, 1: 1}


def test_an_epoch_that_ended_counts_too(group):
    group.commit({0: 5})
    group.send({0: 9})
    group.init("x")  # aborts the transaction
    group.commit({1: 1})
    group.reopen()
    assert group.offsets() == {0: 5, 1: 1}


def test_transactions_of_an_expired_id_count_too(group):
    group.commit({0: 5})
    group.clock.advance(days=8)
    assert group.coordinator.remove_expired() == ["x"]
    group.reopen()
    assert group.offsets() == {0: 5}


def test_the_end_alone_is_enough_once_a_cleaning_has_removed_the_decision(group):
    group.commit({0: 5})
    group.bench.broker.roll(TRANSACTION_STATE_TOPIC, 0)
    group.bench.broker.clean(TRANSACTION_STATE_TOPIC, force=True)
    states = [r.value for r in group.bench.broker.read(TRANSACTION_STATE_TOPIC, 0)]
    assert len(states) == 1
    group.reopen()
    assert group.offsets() == {0: 5}


# -- transactions that are not complete ------------------------------------------------------------


def test_an_open_transaction_stays_open(group):
    group.send({0: 5})
    group.reopen()
    assert (group.offsets(), group.markers()) == ({0: "UNSTABLE_OFFSET_COMMIT"}, [])
    group.end()
    assert (group.offsets(), group.markers()) == ({0: 5}, ["COMMIT"])


def test_an_open_transaction_stays_open_though_the_clock_was_set_back():
    """Its offsets have timestamps before its start, during an earlier transaction."""
    group = Group(with_markers=True)
    group.send({0: 1})
    group.clock.advance(ms=100)
    group.end()
    group.send({0: 5})
    group.clock.skew_ms = -50
    group.send({1: 6})
    group.reopen()
    assert group.state() == "Ongoing"
    group.end()
    assert group.offsets() == {0: 5, 1: 6}
    group.bench.broker.close()


def test_transactions_within_one_millisecond_are_not_confused():
    group = Group(with_markers=True)
    group.tick = lambda: None
    group.commit({0: 1})
    group.abort({0: 2})
    group.send({0: 5})
    group.reopen()
    assert group.state() == "Ongoing"
    assert group.offsets(require_stable=False) == {0: 1}
    group.end()
    assert group.offsets() == {0: 5}
    group.bench.broker.close()


def test_an_open_transaction_behind_committed_ones_is_aborted(group, caplog):
    """Its marker would end the earlier ones too."""
    group.commit({0: 5, 1: 1})
    group.send({0: 9})
    group.reopen()
    assert group.state() == "CompleteAbort"
    assert group.offsets() == {0: 5, 1: 1}
    assert [text.partition(": ")[2] for text in caplog.messages] == [
        "aborting the open transaction of 'x' because earlier ones have no marker",
        "wrote the offsets committed by producer 0 again, outside a transaction: 2",
    ]
    with pytest.raises((ProducerFencedError, InvalidProducerEpochError)):
        group.send({0: 9})
    group.init("x")
    group.commit({0: 10})
    assert group.offsets() == {0: 10, 1: 1}


def test_an_open_transaction_is_aborted_once_for_all_partitions(group):
    assert group.log_of("g") is not group.log_of("h")
    for name in "gh":
        group.send({0: 5}, group_id=name)
    group.end()
    for name in "gh":
        group.send({0: 9}, group_id=name)
    group.reopen()
    assert group.state() == "CompleteAbort"
    assert group.coordinator.transactions()["x"].producer_epoch == 1
    assert group.offsets("g") == group.offsets("h") == {0: 5}


def test_an_open_transaction_behind_aborted_ones_is_aborted(group):
    group.abort({0: 5})
    group.send({0: 9})
    group.reopen()
    assert group.state() == "CompleteAbort"
    assert group.offsets() == {}


def test_another_open_transaction_is_aborted_only_where_offsets_are_written_again(group):
    group.init("y")
    group.commit({0: 5})
    group.send({0: 6}, "y")
    group.reopen()
    assert group.state("y") == "Ongoing"
    group.end("y")
    assert group.offsets() == {0: 6}
    group.omit_markers()
    group.commit({0: 7})
    group.abort({0: 8})
    group.send({0: 9}, "y")
    group.reopen()
    assert group.state("y") == "CompleteAbort"
    assert group.offsets() == {0: 7}


def test_another_open_transaction_stays_open_if_no_offsets_are_written_again(group):
    group.init("y")
    group.abort({0: 5})
    group.send({0: 9})
    group.send({1: 6}, "y")
    group.reopen()
    assert (group.state("x"), group.state("y")) == ("CompleteAbort", "Ongoing")
    group.end("y")
    assert group.offsets() == {1: 6}


@pytest.mark.parametrize("commit", (True, False))
def test_a_prepared_transaction_behind_others_is_completed(group, commit):
    group.commit({0: 5, 1: 1})

    def fail(*_, **__):
        raise SimulatedCrash

    group.send({0: 9})
    group.coordinator._host.write_markers = fail
    with pytest.raises(SimulatedCrash):
        group.end(commit=commit)
    group.reopen()
    assert group.state() == ("CompleteCommit" if commit else "CompleteAbort")
    assert group.offsets() == {0: 9 if commit else 5, 1: 1}
    assert group.markers() == ["COMMIT" if commit else "ABORT"]


# -- unknown producers -----------------------------------------------------------------------------


def test_offsets_of_an_unknown_producer_stay_pending(group, caplog):
    group.bench.broker.groups.append_transactional("g", _of_topic({0: 5}), (4711, 0))
    group.reopen()
    assert group.offsets() == {0: "UNSTABLE_OFFSET_COMMIT"}
    assert caplog.messages == [
        f"{group.log.topic_partition}: offsets of producer 4711 remain pending"
        " because it has no transactional id"
    ]


def test_offsets_of_an_id_whose_states_are_damaged_stay_pending(group):
    group.commit({0: 5})
    damaged = NewRecord(encode_key("x"), b"\0\0 damaged")
    group.bench.log(TRANSACTION_STATE_TOPIC).writer.append_records([damaged])
    group.reopen()
    assert group.offsets() == {0: "UNSTABLE_OFFSET_COMMIT"}


# -- disks that fail -------------------------------------------------------------------------------


def test_offsets_are_settled_although_another_partition_cannot_be_opened(group, caplog):
    group.commit({0: 5})
    broken = TopicPartition(GROUP_OFFSETS_TOPIC, 0)
    assert group.log.topic_partition > broken
    group.tick()
    group.bench.reopen()
    manager = group.bench.broker.manager
    opened = manager.log

    def log(tp):
        if tp == broken:
            raise KafkaStorageError("the disk has failed")
        return opened(tp)

    manager.log = log
    group.coordinator.init_producer_id("another", TIMEOUT_MS)
    assert f"{broken} cannot be opened: the disk has failed" in caplog.text
    assert group.offsets() == {0: 5}


def disk_failed(*_):
    raise KafkaStorageError("the disk has failed")


def test_offsets_stay_pending_while_their_partition_cannot_be_written(group, monkeypatch, caplog):
    group.commit({0: 5})
    with monkeypatch.context() as patched:
        patched.setattr(coordinator, "write_missing_markers", disk_failed)
        group.reopen()
        assert group.offsets() == {0: "UNSTABLE_OFFSET_COMMIT"}
    assert caplog.messages == [
        f"{group.log}: pending offsets cannot be settled: the disk has failed"
    ]
    group.reopen()
    assert group.offsets() == {0: 5}


def test_offsets_stay_pending_while_the_history_of_transactions_cannot_be_read(
    group, monkeypatch, caplog
):
    """New transactions begin nevertheless, and the next process settles the offsets."""

    group.commit({0: 5})
    with monkeypatch.context() as patched:
        patched.setattr(TransactionLog, "history", disk_failed)
        group.reopen()
        assert group.offsets() == {0: "UNSTABLE_OFFSET_COMMIT"}
    assert "the history of transactions cannot be read: the disk has failed" in caplog.text
    group.reopen()
    assert group.offsets() == {0: 5}


# -- crashes, and random histories -----------------------------------------------------------------


def mixed(fs=None):
    """Return a group with committed, aborted and open transactions."""
    group = Group(fs=fs)
    group.init("y")
    group.commit({0: 5, 1: 1})
    group.abort({0: 9})
    group.commit({0: 6, 2: 2}, "y")
    group.send({1: 9})
    group.send({2: 9}, "y")
    return group


def test_a_crash_at_any_write_changes_nothing_in_the_end():
    for number in range(100):
        fs = FaultyFileSystem(MemoryFileSystem(VirtualClock()))
        group = mixed(fs)
        left = [number]

        def rule(operation, _, left=left):
            left[0] -= operation in ("write", "sync")
            if left[0] < 0:
                raise SimulatedCrash
            return False

        group.bench.kill()
        fs.rule = rule
        is_over = True
        try:
            group.bench.open()
            group.coordinator.init_producer_id("another", TIMEOUT_MS)
        except SimulatedCrash:
            is_over = False
        fs.rule = never
        group.reopen()
        assert group.offsets() == {0: 6, 1: 1, 2: 2}, number
        assert (group.state("x"), group.state("y")) == ("CompleteAbort", "CompleteAbort")
        end_offset = group.log.log_end_offset
        group.reopen()
        assert group.log.log_end_offset == end_offset, "a second restart writes no more"
        group.bench.broker.close()
        if is_over:
            break
    else:
        pytest.fail("it never came to an end")
    assert number > 10


@pytest.mark.parametrize("seed", range(30))
def test_the_offsets_are_those_that_markers_would_have_given(seed):
    def story(group):
        rng = random.Random(seed)
        group.init("y")
        for _ in range(rng.randint(3, 25)):
            name = rng.choice("xy")
            kind = rng.choice(("send", "send", "commit", "commit", "abort", "plain", "init"))
            offsets = {rng.randrange(4): rng.randrange(100) for _ in range(rng.randint(1, 3))}
            if kind == "init":
                group.init(name)
            elif kind == "plain":
                group.commit_plainly(offsets)
            else:
                getattr(group, kind)(offsets, name)
        return group

    expected = story(Group(with_markers=True)).offsets(require_stable=False)
    group = story(Group(marked="y" if seed % 2 else ""))
    group.reopen()
    assert group.offsets(require_stable=False) == expected
    for name in "xy":
        if group.state(name) == "Ongoing":
            group.end(name, commit=False)
    assert group.offsets() == expected


# -- the history of a producer ---------------------------------------------------------------------

HERE, ELSEWHERE = TopicPartition(GROUP_OFFSETS_TOPIC, 0), TopicPartition(GROUP_OFFSETS_TOPIC, 1)
ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = list(TransactionState)[
    1:6
]


def history(*states, partition=HERE):
    """Return a history of producer 7 from (state, start, last update) in order."""
    return History(
        TransactionMetadata(
            "x",
            7,
            0,
            TIMEOUT_MS,
            state,
            frozenset() if state in (COMPLETE_COMMIT, COMPLETE_ABORT) else frozenset({partition}),
            start_ms,
            update_ms,
        )
        for state, start_ms, update_ms in states
    )


COMMIT = ((PREPARE_COMMIT, 10, 20), (COMPLETE_COMMIT, 10, 30))


@pytest.mark.parametrize(
    ("states", "written_ms", "marked_ms", "expected"),
    (
        (COMMIT, 9, -1, Outcome.ABORTED),
        (COMMIT, 10, -1, Outcome.COMMITTED),
        (COMMIT, 20, -1, Outcome.COMMITTED),
        (COMMIT, 20, 19, Outcome.COMMITTED),
        (COMMIT, 20, 20, Outcome.ABORTED),
        (COMMIT, 21, -1, Outcome.ABORTED),
        (COMMIT[:1], 21, -1, Outcome.COMMITTED),
        (((PREPARE_ABORT, 10, 20),), 21, -1, Outcome.ABORTED),
        ((*COMMIT, (COMPLETE_ABORT, 30, 40)), 15, -1, Outcome.COMMITTED),
        (((PREPARE_ABORT, 1, 5), (COMPLETE_COMMIT, 10, 20)), 15, -1, Outcome.COMMITTED),
        ((*COMMIT, (PREPARE_ABORT, 20, 40)), 20, -1, Outcome.ABORTED),
        ((*COMMIT, (ONGOING, 20, 40)), 19, -1, Outcome.COMMITTED),
        ((*COMMIT, (ONGOING, 20, 40)), 20, -1, Outcome.OPEN),
        ((*COMMIT, (ONGOING, 40, 40)), 39, -1, Outcome.OPEN),
    ),
)
def test_the_outcome_of_a_batch_follows_from_the_transaction_at_its_time(
    states, written_ms, marked_ms, expected
):
    assert history(*states).outcome_of(7, HERE, written_ms, marked_ms) is expected


def test_a_transaction_in_another_partition_does_not_keep_a_batch_pending():
    for state in (ONGOING, PREPARE_COMMIT):
        past = history((state, 10, 20), partition=ELSEWHERE)
        assert past.outcome_of(7, HERE, 30, -1) is Outcome.ABORTED


def test_only_a_prepared_transaction_awaits_a_marker():
    assert history((PREPARE_COMMIT, 10, 20)).prepared(7, HERE) is Outcome.COMMITTED
    assert history((PREPARE_ABORT, 10, 20)).prepared(7, HERE) is Outcome.ABORTED
    assert history((PREPARE_ABORT, 10, 20)).prepared(7, ELSEWHERE) is None
    assert history((PREPARE_COMMIT, 10, 20)).prepared(8, HERE) is None
    assert history((ONGOING, 10, 20)).prepared(7, HERE) is None


def test_the_log_returns_the_states_of_some_producers_from_all_partitions(monkeypatch):
    bench = Bench(state_partitions=3)
    log = bench.coordinator._log
    assert log.history({0}) == [], "without the topic"
    producers = {name: bench.coordinator.init_producer_id(name, TIMEOUT_MS) for name in "abcdefgh"}
    for name in "abcdefgh":
        bench.coordinator.init_producer_id(name, TIMEOUT_MS)
    partitions = {name: log.partition_of(name) for name in producers}
    assert set(partitions.values()) == {0, 1, 2}
    ids = {producer.producer_id for name, producer in producers.items() if name != "a"}

    def epochs():
        found = {}
        for state in log.history(ids):
            found.setdefault(state.transactional_id, []).append(state.producer_epoch)
        return found

    assert epochs() == {name: [0, 1] for name in "bcdefgh"}
    damaged = NewRecord(encode_key("b"), b"\0\0 damaged")
    writer = bench.log(TRANSACTION_STATE_TOPIC, partitions["b"]).writer
    writer.append_records([damaged, NewRecord(encode_key("c"), None)])
    assert epochs() == {name: [0, 1] for name in "cdefgh"}
    values = log._values

    def fail_in_the_first(number):
        if number == 0:
            raise KafkaStorageError("the disk failed")
        return values(number)

    monkeypatch.setattr(log, "_values", fail_in_the_first)
    assert epochs().keys() == {name for name in "cdefgh" if partitions[name] != 0}
    bench.broker.close()
