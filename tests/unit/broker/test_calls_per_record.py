"""Function calls that a record costs on the append paths; more of them would be slower."""

import gc
import sys
from functools import partial

import pytest

from logstore import Broker, VirtualClock
from logstore.clients import partitioner as broker_partitioner
from logstore.record import batch as batch_module
from logstore.record.header import BatchHeader
from logstore.record.records import Record
from logstore.storage.log.validate import check_timestamps


@pytest.fixture
def broker():
    with Broker(clock=VirtualClock(), seed=0) as broker:
        broker.create_topic("t")
        broker.append("t", key=b"k", value=b"v")  # opens the log
        yield broker


def counting(monkeypatch, owner, name):
    """Count the calls of a function that an object or module has."""
    calls = []
    function = getattr(owner, name)

    def count(*args, **kwargs):
        calls.append(args)
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, count)
    return calls


def test_an_append_packs_a_header_once_and_parses_none(broker, monkeypatch):
    monkeypatch.setattr("logstore.runtime.environment.VERIFY", False)
    monkeypatch.setattr("logstore.storage.log.writer.VERIFY", False)
    monkeypatch.setattr(BatchHeader, "unpack_from", lambda *_: pytest.fail("parsed"))
    packed = counting(monkeypatch, batch_module, "_pack_up_to_crc")
    broker.append("t", key=b"k", value=b"v")
    broker.append("t", key=None, value=None, headers=[("h", b"1")])
    assert len(packed) == 2


def python_calls(function):
    """Count the calls in Python that a function makes, itself among them."""
    calls = []
    sys.setprofile(lambda frame, event, _: event == "call" and calls.append(frame.f_code))
    try:
        function()
    finally:
        sys.setprofile(None)
    return len(calls)


def test_an_append_that_needs_nothing_but_its_bytes_is_few_calls(broker, monkeypatch):
    """A record that needs an index entry, a roll or a codec goes on from there."""
    monkeypatch.setattr("logstore.runtime.environment.VERIFY", False)
    monkeypatch.setattr("logstore.storage.log.writer.VERIFY", False)
    append = partial(broker.append, "t", key=b"k", value=b"v")
    append()  # measures how far the next ones may go
    # The garbage collector may call finalizers during one of them.
    assert min(python_calls(append) for _ in range(3)) <= 30


def test_own_times_are_not_compared_with_bounds(broker, monkeypatch):
    monkeypatch.setattr(
        "logstore.storage.log.drafts.check_timestamps", lambda *_: pytest.fail("compared")
    )
    broker.append("t", key=b"k", value=b"v")
    monkeypatch.setattr("logstore.storage.log.drafts.check_timestamps", check_timestamps)
    broker.append("t", key=b"k", value=b"v", timestamp=1)
    assert [record.timestamp for record in broker.read("t", offset=2)] == [1]


def test_a_read_makes_no_record_but_those_it_gives(broker, monkeypatch):
    broker.append_many("t", [(b"k", b"v")] * 200, batch_records=200)
    monkeypatch.setattr(Record, "_make", lambda *_: pytest.fail("made"))
    verified = counting(monkeypatch, batch_module, "crc32c")
    assert len(list(broker.read("t", offset=1))) == 200
    assert len(verified) == 1


def test_a_record_that_is_sent_is_measured_once(broker, monkeypatch):
    from logstore.clients import producer

    producing = broker.producer(linger_ms=1000, batch_size=1 << 20)
    measured = counting(monkeypatch, producer, "estimated_size")
    hashed = counting(monkeypatch, broker_partitioner, "murmur2")
    futures = [producing.send("t", b"v", key=b"%d" % number) for number in range(9)]
    assert (len(measured), len(hashed)) == (9, 0)  # one partition: whatever the hash
    assert [future.get().offset for future in futures] == list(range(1, 10))


def test_a_record_that_is_sent_into_an_open_batch_is_few_calls(broker):
    producing = broker.producer(linger_ms=1000, batch_size=1 << 20)
    producing.send("t", b"v", key=b"k")
    assert python_calls(partial(producing.send, "t", b"v", b"k")) <= 12


@pytest.mark.parametrize("idempotent", (True, False))
def test_a_sent_batch_is_not_parsed_and_its_futures_are_not_notified(
    broker, monkeypatch, idempotent
):
    """A future looks up its outcome in its batch, which is stored by columns, at any size."""
    monkeypatch.setattr("logstore.runtime.environment.VERIFY", False)
    monkeypatch.setattr("logstore.storage.log.writer.VERIFY", False)
    producing = broker.producer(linger_ms=1000, batch_size=1 << 20, enable_idempotence=idempotent)
    calls = []
    for count in (100, 100, 700):  # the first one imports
        futures = [producing.send("t", b"v", key=b"k") for _ in range(count)]
        with monkeypatch.context() as patched:
            patched.setattr(BatchHeader, "unpack_from", lambda *_: pytest.fail("parsed"))
            patched.setattr(batch_module, "crc32c", lambda *_: pytest.fail("verified"))
            calls.append(python_calls(producing.flush))
        assert [future.value.offset for future in futures[::99]] == [
            *range(futures[0].value.offset, broker.log("t").log_end_offset, 99)
        ]
    assert calls[2] <= calls[1] + 5


def test_a_sent_batch_keeps_little_memory(broker):
    """Its futures report sizes and times, but hold no keys, values or headers."""
    producing = broker.producer(linger_ms=1000)
    future = producing.send("t", b"v" * 9, b"key", [("h", b"12")])
    waiting = gc.get_referents(future)[0]
    assert waiting.keys == [b"key"]
    producing.flush()
    assert (waiting.keys, waiting.values, waiting.sizes, waiting.headers) == ([], [], [], {})
    assert producing._accumulator.settled == []
    metadata = future.get()
    sizes = (metadata.serialized_key_size, metadata.serialized_value_size)
    assert (*sizes, metadata.serialized_header_size) == (3, 9, 3)
