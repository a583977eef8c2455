"""Moving partitions while others clean them, append to them and read them."""

import threading

from logstore import Broker, VirtualClock
from logstore.checkpoint import CLEANER_OFFSETS
from logstore.errors import KafkaStorageError
from logstore.runtime import MemoryFileSystem
from tests.support.faulty import FaultyFileSystem
from tests.support.golden_dirs import tree
from tests.unit.test_moving import A0, MINUTE_MS, Place, move, records


def test_a_cleaning_under_way_is_given_up_and_done_again_in_the_new_place():
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
    assert place.entry(place.there, CLEANER_OFFSETS) == [broker.cleaner.checkpoint_of(A0)]
    assert broker.cleaner.checkpoint_of(A0) > 10
    assert len(records(broker)) < 8
    assert place.folders(place.here) == set(), "its time was over, in the background"
    broker.close()


def test_whoever_appends_and_reads_meanwhile_loses_nothing(tmp_path):
    """In threads: an append waits, or is told that the log was closed, and is tried again."""
    broker = Broker([tmp_path / "here", tmp_path / "there"], seed=1)
    broker.create_topic("a")
    done = threading.Event()
    acknowledged, refusals, failures = [], [], []

    def write():
        while not done.is_set() or len(acknowledged) < 50:
            value = b"%d" % len(acknowledged)
            try:
                acknowledged.append((broker.append("a", value).offset, value))
            except KafkaStorageError as error:
                refusals.append(str(error))

    def read():
        try:
            while not done.is_set():
                try:
                    seen = [(record.offset, record.value) for record in broker.read("a")]
                except KafkaStorageError as error:
                    refusals.append(str(error))
                    continue
                assert seen == acknowledged[: len(seen)] or len(seen) == len(acknowledged) + 1
        except BaseException as error:  # a thread tells nobody
            failures.append(error)

    threads = [threading.Thread(target=each) for each in (write, read)]
    for thread in threads:
        thread.start()
    for target in ("there", "here") * 4:
        assert move(broker, tmp_path / target).error is None
    done.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert all("closed" in each for each in refusals), refusals
    assert [(record.offset, record.value) for record in broker.read("a")] == acknowledged
    broker.close()
