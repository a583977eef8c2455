"""Changes from a signal handler or a listener that runs inside a change of the same thread.

The lock of a log is re-entrant. The predicate of a fault rule takes the place of the handler: it
runs in the middle of a change, at an operation of the disk.
"""

import signal
from contextlib import contextmanager

import pytest

from logstore import Broker, Cluster, TopicPartition, VirtualClock
from logstore.coordinator.transactions.coordinator import TransactionCoordinator
from logstore.errors import IllegalStateError, KafkaTimeoutError
from logstore.types import AppendOrigin
from tests.support.world.builders import batch
from tests.support.world.messages import exactly

TP = TopicPartition("t", 0)
CONFIGS = {"cleanup.policy": "compact,delete", "segment.bytes": 4000, "retention.bytes": 300}


class Layout:
    """One broker, in memory or on disk, or a cluster, with the leader of the partition."""

    def __init__(self, kind, tmp_path):
        clock = VirtualClock()
        self.whole = None
        if kind.startswith("cluster"):
            self.whole = Cluster(int(kind[-1]), clock=clock, seed=1)
            self.whole.create_topic("t", configs=CONFIGS, replication_factor=int(kind[-1]))
            self.broker = self.whole.brokers[self.whole.leader("t", 0)]
        else:
            home = tmp_path / "data" if kind == "disk" else None
            self.broker = Broker(home, clock=clock, disk_faults=True)
            self.broker.create_topic("t", configs=CONFIGS)
        self.log = self.broker.log("t")
        for number in range(8):
            self.append(b"%d" % (number % 3), b"v%d" % number)
            if number % 2:
                self.broker.roll("t")
        self.append(b"a", b"active")

    def append(self, key, value):
        return (self.whole or self.broker).append("t", key=key, value=value).offset

    def records(self):
        return [(each.offset, each.value) for each in self.broker.read("t")]

    def close(self):
        (self.whole or self.broker).close()


@pytest.fixture(params=("memory", "disk", "cluster of 1", "cluster of 3"))
def layout(request, tmp_path):
    layout = Layout(request.param.replace("cluster of ", "cluster"), tmp_path)
    yield layout
    layout.close()


@pytest.fixture
def broker():
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("t", configs=CONFIGS)
        for number in range(8):
            broker.append("t", key=b"%d" % (number % 3), value=b"v%d" % number)
            if number % 2:
                broker.roll("t")
        broker.append("t", key=b"a", value=b"active")
        yield broker


@contextmanager
def amid(broker, kind, action):
    """Call an action once, at the first disk operation of a kind."""
    calls = []

    def when(call):
        if call.partitions == (TP,) and not calls:
            calls.append(call)
            action()
        return False

    with broker.fail(kind, when=when):
        yield
    assert calls, f"no {kind}"


CHANGES = {
    "append": ("write", lambda broker: broker.append("t", key=b"k", value=b"v")),
    "append_many": ("write", lambda broker: broker.append_many("t", [(b"k", b"v")] * 300)),
    "batch of a client": ("write", lambda broker: broker.append_batches(TP, batch(0))),
    "batch of a producer": ("write", lambda broker: send(broker)),
    "roll": ("write", lambda broker: broker.roll("t")),
    "clean": ("swap", lambda broker: broker.clean("t", force=True)),
    "delete_records": ("rename", lambda broker: broker.manager.delete_records(TP, 4)),
    "retain": ("rename", lambda broker: broker.retain("t")),
    "truncate": ("write", lambda broker: broker.manager.truncate_to(TP, 5)),
    "truncate fully": (
        "rename",
        lambda broker: broker.manager.truncate_fully_and_start_at(TP, 20),
    ),
    "alter_configs": (None, lambda broker: broker.alter_configs("t", {"segment.bytes": 5000})),
    "alter_broker_configs": (
        None,
        lambda broker: broker.alter_broker_configs({"log.retention.ms": "5"}),
    ),
    "delete_topic": (None, lambda broker: broker.delete_topic("t")),
    "close": (None, lambda broker: broker.close()),
}
"""Every way to change a log: a disk operation inside the change, and the call that makes it."""


def send(broker):
    with broker.producer() as producer:
        producer.send("t", b"v", key=b"k").get()


@pytest.mark.parametrize("inner", CHANGES)
@pytest.mark.parametrize("outer", [name for name, (kind, _) in CHANGES.items() if kind])
def test_a_change_inside_a_change_of_the_same_thread_is_refused(broker, outer, inner):
    errors = []

    def again():
        try:
            CHANGES[inner][1](broker)
        except IllegalStateError as error:
            errors.append(str(error))

    kind, change = CHANGES[outer]
    before, settings = broker.log("t").log_end_offset, broker.broker_config
    with amid(broker, kind, again):
        change(broker)
    assert broker.broker_config is settings
    # A cleaning passes over a partition that is being cleaned, or retained.
    assert errors or (inner == "clean" and outer in {"clean", "retain"})
    assert all("signal handler" in each for each in errors)
    log = broker.log("t")
    log._check()
    appended = {"append": 1, "append_many": 300, "batch of a client": 1, "batch of a producer": 1}
    if outer in appended:
        assert log.log_end_offset == before + appended[outer]
    assert broker.append("t", key=b"k", value=b"after").offset == log.log_end_offset - 1
    assert list(broker.read("t"))[-1].value == b"after"


def test_an_append_inside_an_append_is_refused_and_the_outer_one_keeps_its_offset(layout):
    refused = []

    def again():
        with pytest.raises(IllegalStateError, match="t-0 cannot be changed by a signal handler"):
            layout.append(b"k", b"inner")
        refused.append(True)

    before = layout.records()
    with amid(layout.broker, "write", again):
        offset = layout.append(b"k", b"outer")
    assert refused
    assert layout.records() == [*before, (offset, b"outer")]
    assert layout.append(b"k", b"next") == offset + 1


def test_a_signal_handler_whose_append_is_refused_ends_the_append_that_it_interrupts(layout):
    """No offset is assigned twice, and the log can still be written."""
    before = layout.records()

    def handle(*_):
        layout.append(b"k", b"of the handler")

    previous = signal.signal(signal.SIGUSR1, handle)
    try:
        with (
            amid(layout.broker, "write", lambda: signal.raise_signal(signal.SIGUSR1)),
            pytest.raises(IllegalStateError),
        ):
            layout.append(b"k", b"interrupted")
    finally:
        signal.signal(signal.SIGUSR1, previous)
    found = layout.records()
    assert found[: len(before)] == before
    assert [value for _, value in found[len(before) :]] in ([], [b"interrupted"])
    offset = layout.append(b"k", b"next")
    assert layout.records() == [*found, (offset, b"next")]


def interrupt():
    raise KeyboardInterrupt


@pytest.mark.parametrize("kind", ("write", "fsync", "swap", "rename"))
def test_a_cleaning_that_is_interrupted_leaves_the_partition_online(layout, kind, caplog):
    latest = last_values(layout)
    with amid(layout.broker, kind, interrupt), pytest.raises(KeyboardInterrupt):
        layout.broker.clean("t", force=True)
    assert ("recovered from an interrupted change" in caplog.text) == (kind in {"swap", "rename"})
    assert last_values(layout) == latest
    offset = layout.append(b"k", b"after")
    assert layout.broker.clean("t", force=True).cleaned
    assert last_values(layout) == latest | {b"k": b"after"}
    assert layout.records()[-1] == (offset, b"after")
    layout.log._check()


def last_values(layout):
    return {each.key: each.value for each in layout.broker.read("t")}


def test_a_listener_of_a_log_cannot_change_it(broker, caplog):
    """Listeners run inside changes: an append has its offset before a roll calls them."""
    log = broker.log("t")
    unsubscribe = log.subscribe(lambda: broker.append("t", key=b"k", value=b"inner"))
    offset = broker.append("t", key=b"k", value=b"outer").offset
    unsubscribe()
    assert "cannot be changed by a signal handler or a listener" in caplog.text
    assert offset == log.log_end_offset - 1
    assert [each.value for each in broker.read("t")][-1] == b"outer"


def test_another_log_may_be_changed_inside_a_change(broker):
    broker.create_topic("u")
    with amid(broker, "write", lambda: broker.append("u", value=b"v")):
        broker.append("t", key=b"k", value=b"v")
    assert [each.value for each in broker.read("u")] == [b"v"]


def test_a_replica_batch_is_refused_inside_an_append(broker):
    data = batch(broker.log("t").log_end_offset)

    def again():
        with pytest.raises(IllegalStateError):
            broker.log("t").writer.append_batches(data, AppendOrigin.REPLICATION)

    with amid(broker, "write", again):
        broker.append("t", key=b"k", value=b"v")


def test_a_predicate_of_a_disk_that_appends_to_the_log_being_changed_is_refused(layout):
    calls = []

    def when(call):
        if call.partitions == (TP,) and len(calls) < 2:
            calls.append(call)
            layout.append(b"k", b"inner")
        return False

    before = layout.records()
    with layout.broker.fail("write", error="ENOSPC", when=when), pytest.raises(IllegalStateError):
        layout.append(b"k", b"outer")
    assert calls
    assert layout.append(b"k", b"next") >= len(before)
    assert [value for _, value in layout.records()][-1] == b"next"


# --- producers ----------------------------------------------------------------------------------


@contextmanager
def in_the_middle_of_a_record(monkeypatch, action):
    from logstore.clients.futures import ProducerBatch

    add = ProducerBatch.add

    def interrupted(self, *fields):
        monkeypatch.setattr(ProducerBatch, "add", add)
        self.keys.append(fields[0])
        action()
        self.keys.pop()
        return add(self, *fields)

    monkeypatch.setattr(ProducerBatch, "add", interrupted)
    yield


@pytest.mark.parametrize("again", ("send", "flush"))
def test_a_producer_is_not_used_while_its_thread_gives_it_a_record(broker, monkeypatch, again):
    producer = broker.producer(linger_ms=1000)
    producer.send("t", b"1", key=b"a")

    def use():
        with pytest.raises(IllegalStateError, match="a signal handler cannot send with a producer"):
            producer.send("t", b"inner", key=b"x") if again == "send" else producer.flush()

    with in_the_middle_of_a_record(monkeypatch, use):
        future = producer.send("t", b"2", key=b"b")
    producer.flush()
    found = [(each.key, each.value) for each in broker.read("t")]
    assert found[-2:] == [(b"a", b"1"), (b"b", b"2")]
    assert future.get().offset == broker.log("t").log_end_offset - 1


def test_a_record_that_an_interrupt_kept_from_a_producer_leaves_no_part_of_it(broker, monkeypatch):
    producer = broker.producer(linger_ms=1000)
    futures = [producer.send("t", b"1", key=b"a")]

    with in_the_middle_of_a_record(monkeypatch, interrupt), pytest.raises(KeyboardInterrupt):
        producer.send("t", b"lost", key=b"x", headers=[("h", b"1")])
    futures.append(producer.send("t", b"2", key=b"b"))
    producer.flush()
    found = [(each.key, each.value, each.headers) for each in broker.read("t")][-2:]
    assert found == [(b"a", b"1", ()), (b"b", b"2", ())]
    end = broker.log("t").log_end_offset
    assert [each.get().offset for each in futures] == [end - 2, end - 1]


@pytest.mark.parametrize("configs", ({}, {"enable_idempotence": True}))
def test_records_whose_send_was_interrupted_fail(broker, configs):
    producer = broker.producer(linger_ms=1000, **configs)
    broker.create_topic("u")
    failed = []
    futures = [producer.send(topic, b"lost", key=b"k").add_errback(failed.append) for topic in "tu"]
    with amid(broker, "write", interrupt), pytest.raises(KeyboardInterrupt):
        producer.flush()
    for future in futures:
        with pytest.raises(KafkaTimeoutError, match="the send was interrupted"):
            future.get()
    assert len(failed) == 2
    assert producer.send("t", b"next", key=b"k").get().offset == broker.log("t").log_end_offset - 1
    assert list(broker.read("t"))[-1].value == b"next"


def test_a_send_that_was_interrupted_before_it_had_a_producer_id_fails(broker, monkeypatch):
    producer = broker.producer(linger_ms=1000)
    future = producer.send("t", b"lost", key=b"k")
    with monkeypatch.context() as patch:
        patch.setattr(TransactionCoordinator, "new_producer_id", lambda _: interrupt())
        with pytest.raises(KeyboardInterrupt):
            producer.flush()
    with pytest.raises(KafkaTimeoutError, match="the send was interrupted"):
        future.get()
    assert producer.send("t", b"next", key=b"k").get().offset == broker.log("t").log_end_offset - 1


# --- cleanings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    (
        (
            "delete_topic",
            (
                "t-0 cannot be changed by a listener of its own cleaning, or by a signal "
                "handler in the same thread, which would wait for itself: raise an "
                "exception to end the cleaning pass"
            ),
        ),
        (
            "alter_configs",
            (
                "t-0 cannot be changed by a listener of its own cleaning, or by a signal "
                "handler in the same thread, which would wait for itself: raise an "
                "exception to end the cleaning pass"
            ),
        ),
        (
            "truncate",
            (
                "t-0 cannot be changed by a listener of its own cleaning, or by a signal "
                "handler in the same thread, which would wait for itself: raise an "
                "exception to end the cleaning pass"
            ),
        ),
        (
            "retain",
            (
                "t-0 cannot be changed by a listener of its own cleaning, or by a signal "
                "handler in the same thread, which would wait for itself: raise an "
                "exception to end the cleaning pass"
            ),
        ),
        (
            "close",
            (
                "the broker cannot be closed by a listener of its own cleaning, or by a "
                "signal handler in the same thread, which would wait for itself: raise "
                "an exception to end the cleaning pass"
            ),
        ),
    ),
)
def test_a_progress_listener_that_would_wait_for_its_own_cleaning_is_refused(
    broker, change, message
):
    refused = []

    def listen(*_):
        with pytest.raises(IllegalStateError, match=exactly(message)):
            CHANGES[change][1](broker)
        refused.append(change)

    assert broker.clean("t", force=True, progress=listen).cleaned
    assert refused
    assert broker.cleaner.states.of(TP) is None, "nothing stays paused"
    broker.append("t", key=b"k", value=b"v")
    broker.roll("t")
    assert broker.clean("t", force=True).cleaned


def test_a_progress_listener_may_append_and_delete_records(broker):
    offsets = []

    def listen(*_):
        offsets.append(broker.append("t", key=b"k", value=b"v").offset)

    assert broker.clean("t", force=True, progress=listen).cleaned
    assert offsets == sorted(set(offsets))
    assert broker.log("t").log_end_offset == offsets[-1] + 1


@pytest.mark.parametrize("end", ("close", "crash", "_kill", "_lose_power"))
def test_a_listener_of_a_cleaning_cannot_end_its_broker(end):
    refused = []
    with Broker(clock=VirtualClock(), disk_faults=True) as broker:
        broker.create_topic("t", configs={"cleanup.policy": "compact"})
        for _ in range(3):
            broker.append("t", key=b"k", value=b"v")
        broker.roll("t")

        def listen(*_):
            with pytest.raises(
                IllegalStateError,
                match=exactly(
                    "the broker cannot be closed by a listener of its own cleaning, or by a "
                    "signal handler in the same thread, which would wait for itself: raise "
                    "an exception to end the cleaning pass"
                ),
            ) as error:
                getattr(broker, end)()
            refused.append(str(error.value))

        assert broker.clean("t", force=True, progress=listen).cleaned
        assert broker.append("t", key=b"k", value=b"w").offset == 3
    assert set(refused) == {
        "the broker cannot be closed by a listener of its own cleaning, or by a signal handler in"
        " the same thread, which would wait for itself: raise an exception to end the cleaning pass"
    }


def test_a_progress_listener_may_change_other_partitions(broker):
    for name in ("u", "v"):
        broker.create_topic(name, configs={"cleanup.policy": "compact"})
        broker.append(name, key=b"k", value=b"v")
    changed = []

    def listen(*_):
        if not changed:
            changed.append(broker.delete_topic("u"))
            changed.append(broker.manager.truncate_to(TopicPartition("v", 0), 0))

    assert broker.clean("t", force=True, progress=listen).cleaned
    assert len(changed) == 2
    assert "u" not in [topic.name for topic in broker.topics()]
    assert broker.log("v").log_end_offset == 0
