"""A forked child and the broker it inherited: refused by name, and the parent notices nothing."""

import gc
import os
import signal
import subprocess
import sys
import threading
import traceback

import pytest

from logstore import Broker, TopicPartition, VirtualClock
from logstore.errors import IllegalStateError, KafkaStorageError
from logstore.runtime import DiskFileSystem, SystemClock, ThreadScheduler
from logstore.storage.checkpoint.shutdown import CLEAN_SHUTDOWN
from tests.support.world.golden_dirs import tree

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

A0 = TopicPartition("a", 0)
DEADLINE_S = 120


def in_child(action):
    """Run an action in a forked child, and fail with what failed there; a hang ends it, too."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(DEADLINE_S)
        try:
            action()
            os.write(writing, b"fine")
        except BaseException:
            os.write(writing, traceback.format_exc().encode()[-4000:])
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    assert (said, status) == ("fine", 0), said or "it hung"


def filled(path, **options):
    config = {"transaction.state.log.num.partitions": 1}
    broker = Broker(path, broker_config=config, **options)
    broker.create_topic("a", configs={"cleanup.policy": "compact,delete", "segment.bytes": 300})
    for number in range(10):
        broker.append("a", value=b"v%d" % number, key=b"k%d" % (number % 3))
    return broker


def refused(*uses):
    for use in uses:
        with pytest.raises(IllegalStateError, match="cannot be used in this forked process"):
            use()


def test_a_child_is_refused_and_changes_nothing(tmp_path):
    path = str(tmp_path)
    broker = filled(path)
    log, reading, fates = broker.log("a"), broker.read("a"), iter(broker.fates("a"))
    # Longer than a test may take: on a busy machine only the real clock ends it.
    producer = broker.producer(transactional_id="x", transaction_timeout_ms=900_000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("a", b"v", b"k").get()
    next(reading)
    next(fates)
    before = tree(DiskFileSystem(), path)

    def use_it():
        refused(
            lambda: broker.append("a", value=b"v", key=b"k"),
            lambda: broker.clean(force=True, roll=True),
            lambda: broker.coordinator,
            lambda: broker.manager.checkpoint_log_starts(),
            lambda: broker.manager.directories[0].forget_retired(),
            lambda: log.flush(),
            lambda: log.high_watermark,
            lambda: producer.commit_transaction(),
            lambda: next(reading),
            lambda: next(fates),
            broker.__enter__,
        )
        producer.close()
        log.close()
        broker.close()
        broker.__exit__(None, None, None)
        broker.manager.directories[0].close(clean=True)
        assert "Broker(" in repr(broker)

    in_child(use_it)
    assert tree(DiskFileSystem(), path) == before
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    with pytest.raises(KafkaStorageError, match="in use"):
        Broker(path)
    producer.commit_transaction()
    assert broker.append("a", value=b"of the parent", key=b"k").offset == 12
    broker.close()
    with Broker(path) as again:
        assert not again.log("a").findings
        assert [record.value for record in again.read("a")][-1] == b"of the parent"


@pytest.mark.parametrize("kind", ("in memory", "read-only", "background", "virtual"))
def test_every_kind_of_broker_is_refused(tmp_path, kind):
    """Also a broker whose files are private copies: the child's writes would be lost."""
    filled(tmp_path).close()
    clock = VirtualClock() if kind == "virtual" else None
    broker = Broker(
        None if kind == "in memory" else tmp_path,
        read_only=kind == "read-only",
        background=kind in ("background", "virtual"),
        clock=clock,
    )
    before = tree(DiskFileSystem(), str(tmp_path))

    def use_it():
        refused(broker.topics, lambda: broker.log(A0), lambda: list(broker.read("a")))
        if clock is not None:
            clock.advance(days=30)  # with whatever was scheduled before the fork
        broker.close()

    in_child(use_it)
    if kind != "background":
        assert tree(DiskFileSystem(), str(tmp_path)) == before
    assert isinstance(broker.topics(), list)
    broker.close()


def test_a_child_may_have_a_broker_of_its_own(tmp_path):
    broker = filled(tmp_path / "parent")

    def use_another():
        with pytest.raises(KafkaStorageError, match="in use"):
            Broker(tmp_path / "parent")
        with filled(tmp_path / "child") as own:
            assert len(list(own.read("a"))) == 10
        with Broker(tmp_path / "parent", read_only=True) as view:
            assert len(list(view.read("a"))) == 10
        refused(broker.topics)

    in_child(use_another)
    with Broker(tmp_path / "child") as own:
        assert len(list(own.read("a"))) == 10
    assert broker.append("a", value=b"v", key=b"k").offset == 10
    broker.close()


def test_no_lock_that_another_thread_held_at_the_fork_stops_the_child(tmp_path):
    broker = filled(tmp_path, background=True)
    view = Broker(tmp_path / "view", read_only=False)
    view.close()
    view = Broker(tmp_path / "view", read_only=True)
    log, lost_ones = broker.log("a"), [filled(None)]
    held, done = threading.Event(), threading.Event()

    def hold():
        from logstore.runtime import locks, overlay

        manager, scheduler = broker.manager, broker.runtime.scheduler
        with (
            log.lock,
            manager._lock,
            manager._closing,
            manager.directories[0]._checkpointing,
            manager.directories[0]._removing,
            broker.coordinator._lock,
            broker.cleaner.states._lock,
            broker.cleaner.chooser._selecting,
            broker.pool._lock,
            scheduler._lock,
            scheduler._changed,
            locks._mutex,
            overlay._counting,
        ):
            held.set()
            done.wait()

    holding = threading.Thread(target=hold)
    holding.start()
    held.wait()

    def use_it():
        refused(
            lambda: broker.append("a", value=b"v"), lambda: log.reader.read(0, 100), view.topics
        )
        broker.close()
        view.close()
        refused(lost_ones.pop().topics)
        gc.collect()

    try:
        in_child(use_it)
    finally:
        done.set()
        holding.join()
    broker.close()
    view.close()


def test_a_cleaning_in_the_middle_of_which_it_was_forked_keeps_its_files(tmp_path):
    """The child's end of the pass removes nothing, and its next step writes nothing."""
    broker = filled(tmp_path)
    broker.roll("a")
    folder = tmp_path / "a-0"
    decision = broker.cleaner.chooser.decision_of(broker.log("a"), force=True)
    steps = broker.cleaner.run_pass(broker.log("a"), decision.state)
    forks = 0
    for _ in steps:
        before = sorted(path.name for path in folder.iterdir())
        if any(".cleaned" in name for name in before):
            in_child(steps.close)
            in_child(lambda: refused(lambda: next(steps)))
            assert sorted(path.name for path in folder.iterdir()) == before
            forks += 1
    assert forks
    assert len(list(broker.read("a"))) < 10
    broker.close()


def test_the_end_of_a_childs_interpreter_leaves_the_parents_files_alone(tmp_path):
    program = """
import os, sys
from logstore import Broker
path = sys.argv[1]
with Broker(path, background=True) as broker:
    broker.create_topic("a")
    broker.append("a", value=b"v", key=b"k")
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        sys.exit(7)  # through __exit__, atexit and the collector
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7, status
    assert not os.path.exists(f"{path}/.kafka_cleanshutdown")
    assert broker.append("a", value=b"w", key=b"k").offset == 1
print([record.value for record in Broker(path).read("a")])
"""
    done = subprocess.run(
        # Since 3.12, Python warns of forks while threads run.
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("[b'v', b'w']\n", "")


def test_a_child_waits_for_nothing_that_its_parent_s_threads_hold():
    """A scheduler of threads: none of those lives on in the child, and no lock is given back."""
    scheduler = ThreadScheduler(SystemClock(), threads=2)
    scheduler.start()
    held, ran, done = threading.Event(), threading.Event(), threading.Event()
    scheduler.schedule("task", ran.set, period_ms=1)
    assert ran.wait(DEADLINE_S)

    def hold():
        with scheduler._changed, scheduler._lock:
            held.set()
            done.wait(DEADLINE_S)

    def use_anew():
        scheduler.shutdown()
        scheduler.start()
        ran_here = threading.Event()
        scheduler.schedule("task", ran_here.set)
        assert ran_here.wait(DEADLINE_S / 2)
        scheduler.shutdown()

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(DEADLINE_S)
    try:
        in_child(use_anew)
    finally:
        done.set()
        holder.join()
        scheduler.shutdown()
