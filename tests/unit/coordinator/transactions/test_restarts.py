"""Transactions over restarts, kills, failing disks and copied directories."""

import pytest

from logstore.coordinator.records import partition_for
from logstore.coordinator.transactions.producer_ids import PRODUCER_IDS_FILE
from logstore.coordinator.transactions.state import encode_key
from logstore.errors import KafkaStorageError, ProducerFencedError
from logstore.names import TRANSACTION_STATE_TOPIC
from logstore.runtime import DiskFileSystem, MemoryFileSystem, VirtualClock
from logstore.storage.log import NewRecord
from logstore.testing import SimulatedCrash
from logstore.types import TopicPartition
from tests.support.world.builders import batch, data_batch, log_name
from tests.support.world.faulty import FaultyFileSystem, never
from tests.support.world.transactions import Bench, markers, stamps

MINUTE_MS = 60_000


@pytest.fixture(params=("memory", "disk"))
def bench(request, tmp_path):
    clock = VirtualClock()
    if request.param == "disk":
        bench = Bench(DiskFileSystem(clock), f"{tmp_path}/data", clock=clock)
    else:
        bench = Bench(clock=clock)
    bench.broker.create_topic("t", 2)
    yield bench
    bench.broker.close()


def open_transaction(bench, transactional_id="x"):
    producer = bench.transactional(transactional_id)
    producer.begin_transaction()
    producer.send("t", b"%s 0" % transactional_id.encode(), partition=0)
    producer.send("t", b"%s 1" % transactional_id.encode(), partition=1)
    return producer


# -- kills ---------------------------------------------------------------------------------


def test_an_open_transaction_outlives_a_kill_until_its_id_is_initialized(bench):
    open_transaction(bench)
    bench.broker.append("t", value=b"plain", partition=0)
    bench.reopen()
    assert bench.state() == "Ongoing"
    assert bench.seen() == [], "records after an open transaction are not visible"
    producer = bench.transactional()
    assert bench.seen() == [b"plain"]
    assert bench.seen(partition=1) == []
    assert bench.seen(isolation="read_uncommitted") == [b"x 0", b"plain"]
    producer.begin_transaction()
    producer.send("t", b"again", partition=0)
    producer.commit_transaction()
    assert bench.seen() == [b"plain", b"again"]
    assert stamps(bench.log())[-1][1:] == (0, 2, 0, True)


def test_an_open_transaction_of_a_dead_process_times_out(bench):
    open_transaction(bench)
    bench.clock.advance(ms=MINUTE_MS - 1)
    bench.reopen()
    bench.transactional("other")
    assert bench.state() == "Ongoing"
    bench.clock.advance(ms=2)
    bench.transactional("other")
    assert bench.state() == "CompleteAbort"
    assert [kind for *_, kind, _ in markers(bench.log())] == ["ABORT"]


def test_the_background_task_checks_timeouts_after_a_restart_too():
    bench = Bench(background=True)
    bench.broker.create_topic("t", 2)
    open_transaction(bench)
    bench.reopen()
    bench.clock.advance(ms=MINUTE_MS)
    assert bench.state() == "Ongoing"
    bench.clock.advance(ms=10_000)
    assert bench.state() == "CompleteAbort"
    bench.broker.close()


def test_a_producer_from_before_a_restart_is_fenced_by_a_later_one(bench):
    """The session of the old producer survives, as in a client of another process."""
    older = open_transaction(bench)._session
    bench.reopen()
    older._coordinator = bench.transactional()._session._coordinator
    with pytest.raises(ProducerFencedError):
        older.commit()


def test_committed_records_stay_and_sequences_continue_after_a_kill(bench):
    producer = open_transaction(bench)
    producer.commit_transaction()
    bench.reopen()
    assert (bench.seen(), bench.seen(partition=1)) == ([b"x 0"], [b"x 1"])
    assert bench.state() == "CompleteCommit"
    bench.transactional().begin_transaction()
    assert bench.coordinator.transactions()["x"].producer == (0, 1)


def test_closing_the_broker_aborts_open_transactions(bench):
    open_transaction(bench)
    bench.broker.close()
    bench.open()
    assert bench.state() == "CompleteAbort"
    assert bench.seen() == []
    assert bench.log().last_stable_offset == bench.log().high_watermark


# -- prepared transactions -------------------------------------------------------------------


def crash_in(bench, suffix):
    """End the process at the next change of a file; earlier writes are not lost."""

    def rule(operation, path):
        if path.endswith(suffix) and operation == "write":
            raise SimulatedCrash
        return False

    bench.fs.rule = rule


@pytest.mark.parametrize("commit", (True, False))
@pytest.mark.parametrize("background", (True, False))
def test_a_prepared_transaction_is_completed_by_the_next_process(commit, background):
    """The process ends between the two markers; the first is written again."""
    clock = VirtualClock()
    fs = FaultyFileSystem(MemoryFileSystem(clock))
    bench = Bench(fs, clock=clock, background=background)
    bench.broker.create_topic("t", 2)
    producer = open_transaction(bench)
    crash_in(bench, f"t-1/{log_name(0)}")
    with pytest.raises(SimulatedCrash):
        producer.commit_transaction() if commit else producer.abort_transaction()
    fs.rule = never
    bench.reopen()
    name = "Commit" if commit else "Abort"
    if not background:
        assert bench.state() == f"Prepare{name}", "reading does not complete it"
        assert bench.seen(partition=1) == []
        bench.transactional("other")
    assert bench.state() == f"Complete{name}"
    assert [kind for *_, kind, _ in markers(bench.log())] == [name.upper()] * 2
    assert [kind for *_, kind, _ in markers(bench.log(partition=1))] == [name.upper()]
    assert bench.seen() == ([b"x 0"] if commit else [])
    assert bench.seen(partition=1) == ([b"x 1"] if commit else [])
    assert bench.transactional()._session.producer == (0, 1)
    bench.broker.close()


def test_a_crash_before_the_decision_leaves_an_open_transaction():
    clock = VirtualClock()
    fs = FaultyFileSystem(MemoryFileSystem(clock))
    bench = Bench(fs, clock=clock)
    bench.broker.create_topic("t", 2)
    producer = open_transaction(bench)
    crash_in(bench, f"{TRANSACTION_STATE_TOPIC}-0/{log_name(0)}")
    with pytest.raises(SimulatedCrash):
        producer.commit_transaction()
    fs.rule = never
    bench.reopen()
    assert bench.state() == "Ongoing"
    assert markers(bench.log()) == []
    bench.transactional()
    assert bench.seen() == bench.seen(partition=1) == []
    bench.broker.close()


# -- failing disks ---------------------------------------------------------------------------


class TwoDisks:
    """A broker with partitions on two disks; the second can fail."""

    def __init__(self):
        clock = VirtualClock()
        self.fs = FaultyFileSystem(MemoryFileSystem(clock))
        self.bench = Bench(self.fs, ["/one", "/two"], clock=clock)
        self.bench.transactional("first")
        self.bench.broker.create_topic("t", 2)
        # The state topic's partition is on the first disk, so that the second gets t-0.
        assert [self.home("t", number) for number in (0, 1)] == ["/two", "/one"]
        assert self.home(TRANSACTION_STATE_TOPIC, 0) == "/one"

    def home(self, topic, number):
        return self.bench.broker.manager.registry.directory_of(TopicPartition(topic, number)).path

    def fail(self, *operations):
        self.fs.rule = lambda operation, path: path.startswith("/two") and operation in operations

    def heal(self):
        self.fs.rule = never
        self.bench.reopen()


def test_a_marker_missed_by_a_failed_disk_follows_after_the_restart():
    """The decision is final and the other partition has its marker; the id must wait."""
    disks = TwoDisks()
    bench = disks.bench
    producer = open_transaction(bench)
    disks.fail("write")
    producer.commit_transaction()
    assert bench.state() == "PrepareCommit"
    assert bench.seen(partition=1) == [b"x 1"]
    producer.begin_transaction()
    with pytest.raises(KafkaStorageError, match="PrepareCommit"):
        producer.send("t", b"more", partition=1).get()
    with pytest.raises(KafkaStorageError, match="PrepareCommit"):
        bench.transactional()
    bench.coordinator.end_transaction("x", producer._session.producer, commit=True)
    assert bench.state() == "PrepareCommit", "repeating the commit is harmless"
    disks.heal()
    assert bench.seen(partition=0) == []
    bench.transactional()
    assert bench.seen(partition=0) == [b"x 0"]
    assert bench.seen(partition=1) == [b"x 1"]
    assert [kind for *_, kind, _ in markers(bench.log(partition=1))] == ["COMMIT"] * 2
    bench.broker.close()


def test_a_marker_that_a_topic_refused_follows_with_the_next_transaction(bench, caplog):
    """A marker has 78 bytes; `max.message.bytes` applies to it, as in Kafka."""
    producer = bench.transactional()
    producer.begin_transaction()
    producer.send("t", b"v", partition=0)
    bench.broker.alter_configs("t", {"max.message.bytes": 77})
    producer.commit_transaction()
    assert bench.state() == "PrepareCommit"
    assert bench.seen() == []
    assert caplog.messages == ["t-0: no marker was written for 'x': MESSAGE_TOO_LARGE"]
    metadata = bench.coordinator.transactions()["x"]
    with pytest.raises(KafkaStorageError) as caught:
        bench.coordinator.add_partitions("x", metadata.producer, [TopicPartition("t", 1)])
    assert str(caught.value) == (
        "the last transaction of 'x' is still in state PrepareCommit:"
        " not all of its partitions are writable"
    )
    bench.broker.alter_configs("t", {"max.message.bytes": 1000})
    producer.begin_transaction()
    producer.send("t", b"next", partition=1)
    producer.commit_transaction()
    assert (bench.seen(), bench.seen(partition=1)) == ([b"v"], [b"next"])
    assert len(markers(bench.log())) == 1


@pytest.mark.parametrize("background", (False, True), ids=("calls", "background"))
@pytest.mark.parametrize("commit", (True, False), ids=("commit", "abort"))
def test_a_refused_marker_follows_without_its_producer(background, commit):
    """Without background tasks, this happens at the next call of any producer."""
    bench = Bench(background=background)
    bench.broker.create_topic("t")
    producer = bench.transactional()
    producer.begin_transaction()
    producer.send("t", b"v")
    bench.broker.alter_configs("t", {"max.message.bytes": 77})
    (producer.commit_transaction if commit else producer.abort_transaction)()
    bench.clock.advance(hours=5)
    assert bench.state() == ("PrepareCommit" if commit else "PrepareAbort")
    bench.broker.alter_configs("t", {"max.message.bytes": 1000})
    if background:
        bench.clock.advance(ms=10_000)
    else:
        bench.transactional("other")
    assert bench.state() == ("CompleteCommit" if commit else "CompleteAbort")
    assert bench.seen() == ([b"v"] if commit else [])
    assert bench.log().last_stable_offset == bench.log().log_end_offset == 2
    bench.broker.close()


@pytest.mark.parametrize("commit", (True, False))
def test_a_repeated_end_writes_the_missing_marker_at_once(commit, monkeypatch):
    """The background task would do so within ten seconds."""
    bench = Bench(background=True)
    bench.broker.create_topic("t")
    coordinator = bench.coordinator
    producer = coordinator.init_producer_id("x", 60_000)
    coordinator.add_partitions("x", producer, [TopicPartition("t", 0)])
    with monkeypatch.context() as patched:
        patched.setattr(coordinator._host, "write_markers", lambda _, tps: dict.fromkeys(tps, "X"))
        coordinator.end_transaction("x", producer, commit=commit)
        assert bench.state() == ("PrepareCommit" if commit else "PrepareAbort")
    coordinator.end_transaction("x", producer, commit=commit)
    assert bench.state() == ("CompleteCommit" if commit else "CompleteAbort")
    assert len(markers(bench.log())) == 1
    bench.broker.close()


def test_a_transaction_ends_even_if_its_completion_is_not_stored():
    """The disk of the state topic fails after the decision and the markers."""
    disks = TwoDisks()
    bench = disks.bench
    producer = bench.transactional()
    producer.begin_transaction()
    producer.send("t", b"v", partition=0)
    writes = []

    def rule(operation, path):
        if not path.startswith("/one/") or operation != "write":
            return False
        writes.append(path)
        return len(writes) > 1

    disks.fs.rule = rule
    producer.commit_transaction()
    assert bench.seen(partition=0) == [b"v"]
    with pytest.raises(KafkaStorageError):
        bench.transactional("other")
    disks.heal()
    assert bench.state() == "PrepareCommit"
    bench.transactional()
    assert bench.seen(partition=0) == [b"v"]
    bench.broker.close()


def test_a_state_topic_that_cannot_be_written_lets_timeouts_wait(caplog):
    disks = TwoDisks()
    bench = disks.bench
    open_transaction(bench)
    disks.fs.rule = lambda operation, path: path.startswith("/one/") and operation == "write"
    bench.clock.advance(minutes=2)
    assert bench.coordinator.abort_timed_out() == []
    assert caplog.messages[-1].startswith(
        "transaction of 'x' cannot be aborted: __transaction_state-0: cannot append: "
    )
    assert bench.state() == "Ongoing"
    disks.heal()
    assert bench.coordinator.abort_timed_out() == ["x"]
    bench.broker.close()


def test_a_record_for_an_offline_partition_is_refused_through_its_future():
    disks = TwoDisks()
    bench = disks.bench
    disks.fail("write")
    producer = bench.broker.producer()
    for _ in range(2):
        with pytest.raises(KafkaStorageError):
            producer.send("t", b"v", partition=0).get()
    assert producer.send("t", b"v", partition=1).get().offset == 0
    disks.fs.rule = never
    bench.kill()
    disks.fs.rule = lambda _, path: path.startswith("/two/t-0")
    bench.open()
    producer = bench.broker.producer(linger_ms=10)
    future = producer.send("t", b"v", partition=0)
    with pytest.raises(KafkaStorageError):
        future.get()
    assert producer.send("t", b"v", partition=1).get().offset == 1
    disks.fs.rule = never
    bench.broker.close()


def test_data_that_cannot_be_flushed_is_not_committed():
    disks = TwoDisks()
    bench = disks.bench
    producer = open_transaction(bench)
    disks.fail("sync")
    with pytest.raises(KafkaStorageError):
        producer.commit_transaction()
    assert bench.state() == "Ongoing"
    producer.abort_transaction()
    assert bench.state() == "PrepareAbort", "the offline partition has no marker yet"
    assert bench.seen(partition=1) == []
    disks.heal()
    bench.transactional()
    assert bench.seen(partition=0) == bench.seen(partition=1) == []
    bench.broker.close()


def test_a_timed_out_transaction_that_cannot_be_aborted_blocks_no_other():
    disks = TwoDisks()
    bench = disks.bench
    open_transaction(bench)
    disks.fail("write")
    bench.clock.advance(minutes=2)
    other = bench.transactional("other")
    other.begin_transaction()
    other.send("t", b"fine", partition=1)
    other.commit_transaction()
    assert bench.state() == "PrepareAbort"
    assert bench.seen(partition=1) == [b"fine"]
    disks.heal()
    bench.transactional("other")
    assert bench.state() == "CompleteAbort"
    bench.broker.close()


def test_ids_whose_partition_of_the_state_topic_is_offline_are_refused_and_others_served():
    clock = VirtualClock()
    fs = FaultyFileSystem(MemoryFileSystem(clock))
    bench = Bench(fs, ["/one", "/two"], clock=clock, state_partitions=2)
    bench.broker.create_topic("t", 2)
    for transactional_id in ("a", "b"):
        bench.transactional(transactional_id)
    home = bench.broker.manager.registry.directory_of(
        TopicPartition(TRANSACTION_STATE_TOPIC, 1)
    ).path
    assert home == "/two"
    bench.kill()
    fs.rule = lambda _, path: path.startswith(f"/two/{TRANSACTION_STATE_TOPIC}")
    bench.open()
    assert [partition_for(name, 2) for name in ("a", "b")] == [1, 0]
    with pytest.raises(KafkaStorageError, match=f"in {TRANSACTION_STATE_TOPIC}-1: "):
        bench.transactional("a")
    bench.transactional("b")
    fs.rule = never
    bench.broker.close()


# -- copied directories --------------------------------------------------------------------------


def test_a_copied_state_topic_is_taken_over_by_the_first_transactional_producer(bench):
    """One folder of 50, with an id that hashes to it; markers continue with its leader epoch."""
    bench.kill()
    copied = Bench(bench.fs, f"{bench.path}-2", clock=bench.clock, state_partitions=50)
    producer = copied.transactional("copy-job")
    copied.broker.create_topic("t")
    producer.begin_transaction()
    producer.send("t", b"open")
    copied.kill()
    forget_topics(copied)
    copied.open()
    assert copied.broker.topic(TRANSACTION_STATE_TOPIC).adopted
    assert copied.broker.producer().send("t", b"plain").get().offset == 1
    assert copied.broker.topic(TRANSACTION_STATE_TOPIC).adopted
    assert copied.seen() == []
    copied.transactional("copy-job")
    assert not copied.broker.topic(TRANSACTION_STATE_TOPIC).adopted
    assert len(copied.broker.topic(TRANSACTION_STATE_TOPIC).partitions) == 50
    assert copied.seen() == [b"plain"]
    assert copied.coordinator.transactions()["copy-job"].producer == (0, 2)
    copied.broker.close()
    bench.open()


def forget_topics(bench):
    """Keep only partition folders, as in a copy from a broker."""
    for name in bench.fs.list_dir(bench.path):
        if name.endswith(".json"):
            bench.fs.remove(f"{bench.path}/{name}")
    for name in bench.fs.list_dir(bench.path):
        if name.startswith(TRANSACTION_STATE_TOPIC) and not name.endswith("-35"):
            for file in bench.fs.list_dir(f"{bench.path}/{name}"):
                bench.fs.remove(f"{bench.path}/{name}/{file}")
            bench.fs.remove_dir(f"{bench.path}/{name}")


def test_new_producer_ids_begin_above_those_of_copied_logs(bench):
    log = bench.log()
    log.writer.append_batches(data_batch(0, 1, 4711))
    log.writer.append_batches(batch(0, producer_id=99, producer_epoch=0, base_sequence=0))
    bench.kill()
    bench.open()
    assert bench.broker.producer().send("t", b"v", partition=0).get().offset == 3
    assert stamps(bench.log())[-1] == (3, 4712, 0, 0, False)
    assert bench.fs.exists(f"{bench.path}/{PRODUCER_IDS_FILE}")


def test_new_producer_ids_begin_above_those_of_the_state_topic(bench):
    """The id has no data in any log, as after its transactions were deleted."""
    bench.transactional()
    bench.fs.remove(f"{bench.path}/{PRODUCER_IDS_FILE}")
    bench.reopen()
    bench.broker.producer().send("t", b"v", partition=0)
    assert stamps(bench.log())[-1][1] == 1


def test_a_malformed_state_only_affects_its_id(bench):
    bench.transactional()
    log = bench.log(TRANSACTION_STATE_TOPIC)
    log.writer.append_records([NewRecord(encode_key("x"), b"\0\0 damaged")])
    bench.reopen()
    with pytest.raises(
        KafkaStorageError,
        match=r"^cannot read the state of .*'x' in __transaction_state-0: TransactionLogValue\.",
    ):
        bench.transactional()
    bench.transactional("other")
    bench.log(TRANSACTION_STATE_TOPIC).writer.append_records([NewRecord(encode_key("x"), None)])
    bench.reopen()
    bench.transactional()


def test_a_malformed_key_affects_all_ids_of_its_partition(bench):
    bench.transactional()
    bench.log(TRANSACTION_STATE_TOPIC).writer.append_records([NewRecord(b"\0", b"v")])
    bench.reopen()
    for transactional_id in ("x", "other"):
        with pytest.raises(KafkaStorageError, match=f"cannot read .* '{transactional_id}'"):
            bench.transactional(transactional_id)
    assert bench.broker.producer().send("t", b"v").get().offset == 0


def test_keys_of_a_later_version_are_skipped(bench):
    bench.transactional()
    bench.log(TRANSACTION_STATE_TOPIC).writer.append_records([NewRecord(b"\0\7later", b"v")])
    bench.reopen()
    bench.transactional()
    assert list(bench.coordinator.transactions()) == ["x"]
