"""Moving partitions while others clean them, append to them and read them."""

import threading

from logstore import Broker, TopicPartition, VirtualClock
from logstore.runtime import MemoryFileSystem
from logstore.storage.checkpoint.offsets import CLEANER_OFFSETS
from tests.support.world.faulty import FaultyFileSystem
from tests.support.world.golden_dirs import tree
from tests.unit.manager.directories.test_moving import A0, MINUTE_MS, Place, move, records


def test_a_cleaning_in_progress_is_given_up_and_done_again_in_the_new_place():
    clock = VirtualClock(1_700_000_000_000)
    place = Place(FaultyFileSystem(MemoryFileSystem(clock)), "/mem", clock)
    broker = place.filled(20, background=True)
    steps = []

    def observe(read, written):
        """Each step of a pass takes an hour."""
        steps.append(read)
        return 60 * MINUTE_MS

    throttles = broker.pool._throttles
    throttles.observe, real = observe, throttles.observe
    place.clock.advance(minutes=60)
    assert broker.cleaner.states.is_in_progress(A0)
    assert move(broker, place.there).error is None
    assert broker.cleaner.states.of(A0) is None
    assert len(steps) == 2, "it ended at the next step"
    throttles.observe = real
    assert not [name for name in tree(place.fs, f"{place.there}/a-0") if ".cleaned" in name]
    place.clock.advance(minutes=5)
    assert place.entry(place.there, CLEANER_OFFSETS) == [broker.cleaner.checkpoints.of(A0)]
    assert broker.cleaner.checkpoints.of(A0) > 10
    assert len(records(broker)) < 8
    assert place.folders(place.here) == set(), "its time was over, in the background"
    broker.close()


def test_concurrent_calls_wait_or_continue_without_loss(tmp_path):
    """Appends, reads, transactions, truncation, retention and commands, in threads; no error."""
    broker = Broker([tmp_path / "here", tmp_path / "there"], seed=1)
    for topic in ("a", "cut", "sent"):
        broker.create_topic(topic, configs={"segment.bytes": 2000, "cleanup.policy": "delete"})
    cut_0, sent_0 = TopicPartition("cut", 0), TopicPartition("sent", 0)
    done = threading.Event()
    acknowledged, committed, failures = [], [], []
    producer = broker.producer(transactional_id="x", transaction_timeout_ms=900_000)
    producer.init_transactions()

    def write():
        value = b"%d" % len(acknowledged)
        acknowledged.append((broker.append("a", value=value).offset, value))

    def read():
        first = max(0, len(acknowledged) - 5)
        seen = [(record.offset, record.value) for record in broker.read("a", offset=first)]
        known = acknowledged[first:]
        assert seen[: len(known)] == known[: len(seen)]

    def commit():
        producer.begin_transaction()
        producer.send("sent", b"%d" % len(committed)).get()
        producer.commit_transaction()
        committed.append(None)

    def cut():
        last = broker.append("cut", value=b"tail").offset
        assert broker.manager.truncate_to(cut_0, last)
        result = broker.delete_records({cut_0: last})[cut_0]
        assert (result.low_watermark, result.error) == (last, None)

    def look():
        broker.retain()
        broker.explain()
        assert broker.log(A0).high_watermark <= len(acknowledged) + 1
        assert broker.log("a").reader.offset_for_timestamp(-2).offset == 0

    def work(step):
        try:
            while not done.is_set():
                step()
        except BaseException as error:  # a thread reports no exception
            failures.append(error)
            done.set()

    steps = (write, read, commit, cut, look)
    threads = [threading.Thread(target=work, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    for target in ("there", "here"):
        for tp in (A0, cut_0, sent_0):
            assert move(broker, tmp_path / target, tp).error is None
    done.set()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert [(record.offset, record.value) for record in broker.read("a")] == acknowledged
    assert sum(1 for _ in broker.read("sent", isolation="read_committed")) == len(committed)
    broker.close()
    with Broker([tmp_path / "here", tmp_path / "there"]) as broker:
        assert [(record.offset, record.value) for record in broker.read("a")] == acknowledged
