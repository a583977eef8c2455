"""A closed broker: everything that was got from it is refused, and its directory is let go."""

import copy
import functools
import inspect
import pickle
import threading

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from logstore import Broker, TopicPartition, VirtualClock
from logstore.analysis.fates import PartitionFates
from logstore.broker.prometheus import BrokerCollector, prometheus_text
from logstore.errors import IllegalStateError, KafkaStorageError
from logstore.runtime import DiskFileSystem, MemoryFileSystem, SystemClock
from logstore.runtime.lifetime import is_lasting
from logstore.storage.checkpoint.shutdown import CLEAN_SHUTDOWN
from logstore.storage.log import NewRecord
from tests.support.world.faulty import FaultyFileSystem
from tests.support.world.golden_dirs import tree
from tests.support.world.messages import exactly

A0 = TopicPartition("a", 0)
SPECIAL = {
    "__call__",
    "__contains__",
    "__enter__",
    "__getitem__",
    "__iter__",
    "__len__",
    "__next__",
}


@pytest.fixture(params=("memory", "disk"))
def world(request, tmp_path):
    clock = VirtualClock()
    if request.param == "disk":
        return DiskFileSystem(clock), f"{tmp_path}/data", clock
    return MemoryFileSystem(clock), "/data", clock


def opened(world, **options):
    fs, path, clock = world
    return Broker(path, fs=fs, clock=clock, seed=1, **options)


def filled(world, **options):
    broker = opened(world, **options)
    broker.create_topic("a", configs={"cleanup.policy": "compact,delete", "segment.bytes": 300})
    for number in range(10):
        broker.append("a", value=b"v%d" % number, key=b"k%d" % (number % 3))
    return broker


def handles(broker):
    """Whatever works through a broker, and can be had from it."""
    log = broker.log("a")
    return {
        "broker": broker,
        "manager": broker.manager,
        "catalog": broker.manager.catalog,
        "directory": broker.manager.directories[0],
        "cleaner": broker.cleaner,
        "pool": broker.pool,
        "coordinator": broker.coordinator,
        "group coordinator": broker.groups,
        "producer": broker.producer(),
        "batch writer": broker.batch_writer("a"),
        "fates": broker.fates("a"),
        "log": log,
        "reader": log.reader,
        "writer": log.writer,
        "offsets": log.offsets,
    }


def uses_of(kind):
    """Return what objects of a class can be asked, by name, and whether it is a property.

    All of it but `close` and what takes no object: so a method added tomorrow is among them.
    """
    found = {}
    for name in dir(kind):
        if name.startswith("_") and name not in SPECIAL:
            continue
        attribute = inspect.getattr_static(kind, name)
        if isinstance(attribute, property | functools.cached_property):
            if not is_lasting(attribute):
                found[name] = True
        elif inspect.isfunction(attribute) and name != "close":
            found[name] = False
    return found


def test_everything_of_a_closed_broker_is_refused():
    broker = filled((MemoryFileSystem(), "/data", VirtualClock()), background=True)
    members = handles(broker)
    kinds = {name: type(member) for name, member in members.items()}
    for name, member in members.items():
        for use, is_property in uses_of(kinds[name]).items():
            if is_property:
                getattr(member, use)  # it works until then
    texts = {name: repr(member) for name, member in members.items()}
    broker.close()
    checked = 0
    for name, member in members.items():
        for use, is_property in uses_of(kinds[name]).items():
            with pytest.raises(IllegalStateError, match="is closed"):
                getattr(member, use) if is_property else getattr(member, use)()
            checked += 1
        assert isinstance(member, kinds[name])
    for name in ("broker", "manager", "producer", "log"):
        members[name].close()
    members["directory"].close(clean=True)
    assert checked > 150
    assert repr(broker) == texts["broker"].replace(")", ", closed)")
    with pytest.raises(IllegalStateError, match="the broker is closed"), broker:
        pytest.fail("it was entered")
    broker.__exit__(None, None, None)


def test_rejected_calls_accept_any_arguments(world):
    broker = filled(world)
    broker.close()
    for use in (
        lambda: broker.append("a", value=b"v", key=b"k"),
        lambda: broker.read("a", 0, offset=3),
        lambda: broker.clean("a", force=True),
        lambda: broker.retain(dry_run=True),
        lambda: broker.metrics(),
        lambda: broker.coordinator,
    ):
        with pytest.raises(IllegalStateError, match="the broker is closed"):
            use()


def test_iterators_that_are_open_are_refused_at_their_next_step(world):
    broker = filled(world)
    log = broker.log("a")
    iterators = {
        "read": broker.read("a"),
        "records": log.reader.records(0),
        "batches": log.reader.batches(0),
        "columns": log.reader.columns(0),
        "fates": iter(broker.fates("a")),
        "read, not begun": broker.read("a"),
    }
    for name, iterator in iterators.items():
        if "not" not in name:
            next(iterator)
    broker.close()
    for iterator in iterators.values():
        with pytest.raises(IllegalStateError, match="is closed"):
            next(iterator)


def test_two_brokers_never_acknowledge_the_same_offset(world):
    """The first is closed and the second opens the directory: only that one appends and reads."""
    fs, path, _ = world
    first = filled(world)
    log, producer, writer = first.log("a"), first.producer(), first.batch_writer("a")
    writer.add(NewRecord(b"k", b"waits"))
    first.close()
    second = opened(world)
    assert second.append("a", value=b"of the second", key=b"k").offset == 10
    before = tree(fs, path)
    for use in (
        lambda: first.append("a", value=b"of the first", key=b"k"),
        lambda: log.writer.append_records([NewRecord(b"k", b"v")]),
        lambda: producer.send("a", b"v"),
        lambda: writer.finish(),
        lambda: first.create_topic("b"),
        lambda: first.clean(force=True, roll=True),
        lambda: first.manager.checkpoint_log_starts(),
        lambda: list(first.read("a")),
    ):
        with pytest.raises(IllegalStateError):
            use()
    first.close()
    assert tree(fs, path) == before
    assert not fs.exists(f"{path}/{CLEAN_SHUTDOWN}")
    second.close()
    with opened(world) as third:
        assert [record.value for record in third.read("a")][10:] == [b"of the second"]


def test_a_look_at_a_closed_broker_changes_no_file(world):
    """A log opened again would leave its indexes at full size, filled with zeros, and retention
    by the last time entry would delete new records."""
    fs, path, clock = world
    broker = filled(world, broker_config={"log.retention.ms": 86_400_000})
    broker.close()
    before = tree(fs, path)
    with pytest.raises(IllegalStateError):
        list(broker.read("a"))
    with pytest.raises(IllegalStateError):
        broker.log(A0)
    assert tree(fs, path) == before
    clock.advance(hours=1)
    with opened(world, broker_config={"log.retention.ms": 86_400_000}) as again:
        assert not again.retain().to_json()["removed"]
        assert len(list(again.read("a"))) == 10


def test_a_collector_of_a_closed_broker_yields_nothing():
    broker = filled((MemoryFileSystem(), "/data", VirtualClock()), background=True)
    registry = CollectorRegistry()
    registry.register(BrokerCollector(broker))
    assert b"kafka_log_log_size" in generate_latest(registry)
    broker.close()
    assert generate_latest(registry) == b""
    assert prometheus_text(broker) == ""
    with pytest.raises(IllegalStateError):
        broker.metrics()


def test_the_creator_of_a_manager_closes_its_broker(world):
    broker = filled(world)
    broker.manager.close()
    with pytest.raises(IllegalStateError, match="the broker is closed"):
        broker.append("a", value=b"v", key=b"k")
    broker.close()


def test_a_broker_whose_disk_fails_at_its_end_is_closed_all_the_same(world):
    base, path, clock = world
    fs = FaultyFileSystem(base)
    broker = filled((fs, path, clock))
    log = broker.log("a")
    fs.rule = lambda operation, _: operation == "sync"
    with pytest.raises(KafkaStorageError):
        broker.close()
    fs.rule = lambda *_: False
    broker.close()
    for use in (lambda: broker.append("a", value=b"v", key=b"k"), lambda: log.reader.read(0, 100)):
        with pytest.raises(IllegalStateError):
            use()
    with opened(world) as again:
        assert len(list(again.read("a"))) == 10


# -- other threads ---------------------------------------------------------------------------


@pytest.mark.parametrize("background", (False, True))
@pytest.mark.parametrize("round_", range(3))
def test_a_close_waits_for_calls_of_other_threads_or_rejects_them(tmp_path, background, round_):
    """Acknowledged records are kept, and no file is written after the directory is released."""
    broker = Broker(tmp_path, background=background)
    broker.create_topic("a", 3, {"cleanup.policy": "compact,delete", "segment.bytes": 2000})
    acknowledged = {0: [], 1: [], 2: []}
    names = iter(range(1_000_000))
    failures, in_use = [], []
    begin = threading.Barrier(8)
    appended = threading.Event()

    def append(number):
        value = b"%d" % len(acknowledged[number])
        metadata = broker.append("a", value=value, key=value, partition=number)
        acknowledged[number].append((metadata.offset, value))
        if len(acknowledged[number]) > 5 * round_:
            appended.set()

    def change():
        broker.create_topic(f"t{next(names)}")
        broker.delete_records({TopicPartition("a", 2): 1})

    def look():
        list(broker.read("a"))
        broker.explain()

    def work(step):
        begin.wait()
        try:
            while True:
                step()
        except IllegalStateError:
            pass
        except BaseException as error:  # a thread reports no exception
            failures.append(error)

    def close():
        begin.wait()
        appended.wait()
        try:
            broker.close()
            with Broker(tmp_path):
                pass
        except KafkaStorageError as error:
            in_use.append(str(error))  # by the other one who closed it
        except BaseException as error:  # see above
            failures.append(error)

    steps = [functools.partial(append, number) for number in range(3)]
    steps += [change, look, lambda: broker.clean(force=True, roll=True)]
    threads = [threading.Thread(target=work, args=(step,)) for step in steps]
    threads += [threading.Thread(target=close) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert len(in_use) < 2, in_use
    with Broker(tmp_path) as again:
        for number, known in acknowledged.items():
            tp = TopicPartition("a", number)
            assert not again.log(*tp).findings, "it was closed cleanly"
            found = {record.offset: record.value for record in again.read(*tp)}
            assert again.log(tp).high_watermark > max((offset for offset, _ in known), default=-1)
            if number < 2:  # of the other one some were deleted; no key comes twice
                assert found == dict(known)


def test_a_second_close_returns_once_the_first_is_done(world):
    base, path, clock = world
    fs = FaultyFileSystem(base)
    broker = filled((fs, path, clock))
    closing, seen = threading.Event(), []

    def close_too():
        closing.wait()
        broker.close()
        seen.append(fs.exists(f"{path}/{CLEAN_SHUTDOWN}"))

    def tell(operation, _):
        if operation == "sync":
            closing.set()
        return False

    other = threading.Thread(target=close_too)
    other.start()
    fs.rule = tell
    broker.close()
    other.join()
    assert seen == [True]


def test_a_repeated_request_for_a_fate_is_rejected():
    broker = filled((MemoryFileSystem(), "/data", VirtualClock()))
    fates = broker.fates("a")
    assert isinstance(fates, PartitionFates)
    assert len(list(fates)) == 10
    broker.close()
    with pytest.raises(IllegalStateError):
        list(fates)


# -- closed in mid-call ----------------------------------------------------------------------


@pytest.mark.parametrize("threads", (None, 2))
@pytest.mark.parametrize("virtual", (True, False))
def test_a_progress_listener_that_closes_its_broker_gets_an_error(virtual, threads):
    clock = VirtualClock() if virtual else SystemClock()
    fs = MemoryFileSystem(clock)
    world = fs, "/data", clock
    # No log is due by itself: a late thread of the pool would clean the expected records.
    never = {"log.cleaner.min.cleanable.ratio": "1"}
    with filled(world, background=True, broker_config=never) as broker:
        broker.roll("a")
        refusals = []

        def close(*_):
            try:
                broker.close()
            except IllegalStateError as error:
                refusals.append(str(error))
                raise

        with pytest.raises(
            IllegalStateError,
            match=exactly(
                "the broker cannot be closed by a listener of its own cleaning, or by a "
                "signal handler in the same thread, which would wait for itself: raise an "
                "exception to end the cleaning pass"
            ),
        ):
            broker.clean("a", force=True, threads=threads, progress=close)
        assert len(refusals) == 1, "its exception ended the cleaning pass"
        assert len(broker.clean("a", force=True).cleaned) == 1
    with opened(world) as broker:
        assert broker.manager.directories[0].clean, "the close after it was a proper one"


def test_a_progress_listener_may_close_another_broker(world):
    other = Broker()
    with filled(world) as broker:
        broker.roll("a")
        report = broker.clean("a", force=True, progress=lambda *_: other.close())
        assert len(report.cleaned) == 1
    with pytest.raises(IllegalStateError):
        other.topics()


@pytest.mark.parametrize("copied", (pickle.dumps, copy.copy, copy.deepcopy))
def test_a_broker_is_not_pickled_nor_copied(world, copied):
    broker = opened(world)
    with pytest.raises(
        TypeError,
        match=exactly(
            "a Broker cannot be pickled or copied because it has open files and a locked "
            "directory; close it and pass the path of its data directory to the other "
            "process"
        ),
    ):
        copied(broker)
    broker.close()
    with pytest.raises(
        TypeError,
        match=exactly(
            "a Broker cannot be pickled or copied because it has open files and a locked "
            "directory; close it and pass the path of its data directory to the other "
            "process"
        ),
    ):
        copied(broker)
