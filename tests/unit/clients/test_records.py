"""Records as users hand them in, and what is said of those that are none."""

import pytest

from logstore import (
    Broker,
    InvalidConfigurationError,
    InvalidRecordError,
    KafkaStorageError,
    VirtualClock,
)
from logstore.clients.records import read_records
from logstore.storage.log import NewRecord
from logstore.storage.log.reader import Isolation
from tests.support.world.builders import fill, log_name, memory_world

HEADERS = (("v", b"1"), ("w", None))


@pytest.fixture
def broker():
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("t")
        yield broker


@pytest.mark.parametrize(
    "headers", (HEADERS, list(HEADERS), [["v", b"1"], ["w", None]], {"v": b"1", "w": None})
)
def test_headers_are_pairs_or_a_mapping(broker, headers):
    broker.append("t", value=b"x", key=b"k", headers=headers)
    broker.append_many("t", [{"key": b"k", "value": b"x", "headers": headers}])
    assert [record.headers for record in broker.read("t")] == [HEADERS] * 2


@pytest.mark.parametrize(
    ("headers", "text"),
    (
        ({1: b"x"}, "a header's name must be str, not 1"),
        ({"v": "x"}, "a header's value must be bytes or None: 'x'"),
        (["v"], "a header is a pair of name and value, not 'v'"),
        ([("v", b"1", 2)], r"a header is a pair of name and value, not \('v', b'1', 2\)"),
        ("v=1", "headers are pairs of name and value, not 'v=1'"),
        (b"v", "headers are pairs of name and value, not b'v'"),
        (5, "headers are pairs of name and value, not 5"),
    ),
)
def test_other_headers_are_refused_by_name(broker, headers, text):
    with pytest.raises(InvalidRecordError, match=text):
        broker.append("t", value=b"x", headers=headers)
    with pytest.raises(InvalidRecordError, match=text):
        broker.append_many("t", [(b"k", b"x", None, headers)])
    assert list(broker.read("t")) == []


def test_records_are_given_by_name(broker):
    broker.append_many("t", [{"value": b"v"}, {"key": b"k", "value": None, "timestamp": 5}])
    assert [(r.key, r.value) for r in broker.read("t")] == [(None, b"v"), (b"k", None)]


@pytest.mark.parametrize(
    ("record", "text"),
    (
        (
            {"kye": b"k", "value": b"v"},
            "a record has no field 'kye', only key, value, timestamp, headers: {'kye'",
        ),
        ({"key": b"k"}, "a record needs a value, None for a tombstone: {'key': b'k'}"),
        ({"value": b"v", 3: 4}, "a record has no field 3"),
        ((b"k",), r"not a record \(key, value\[, timestamp\[, headers\]\]\): \(b'k',\)"),
        (b"kv", "not a record"),
    ),
)
def test_what_is_no_record_is_told_by_its_fault(broker, record, text):
    with pytest.raises(InvalidRecordError, match=text):
        broker.append_many("t", [record])


def test_an_unknown_isolation_is_told_those_there_are(broker):
    names = "isolation 'committed' is none of read_uncommitted, read_committed, log_end"
    with pytest.raises(InvalidConfigurationError, match=names):
        broker.read("t", isolation="committed")
    with pytest.raises(ValueError, match=names):
        broker.table("t", isolation="committed")


def test_a_new_look_gives_what_the_first_did_not():
    """What the first gave before it failed counts."""
    damaged, sound = memory_world(), memory_world()
    for world in (damaged, sound):
        log = world.log()
        fill(log, 10)
        log.close()
    data = bytearray(damaged.files()[log_name(0)])
    data[data.index((3).to_bytes(8)) + 66] ^= 1
    damaged.write(log_name(0), bytes(data))
    again = sound.log()
    looks = []

    def reopen(failures, error):
        looks.append(failures)
        return again

    found = read_records(damaged.log(), 0, None, Isolation.READ_UNCOMMITTED, None, reopen)
    assert [record.offset for record in found] == list(range(10))
    assert looks == [1]


def test_a_log_that_goes_in_the_midst_of_a_batch_is_gone_on_with(world):
    log = world.log()
    log.writer.append_records([NewRecord(b"k", b"%d" % row, 5) for row in range(9)])
    looks = []

    def reopen(failures, error):
        looks.append(failures)
        return world.log(clean=False)

    found = read_records(log, None, None, Isolation.READ_UNCOMMITTED, None, reopen)
    values = [next(found).value for _ in range(4)]
    log.abandon("went", KafkaStorageError)
    values += [record.value for record in found]
    assert values == [b"%d" % row for row in range(9)]
    assert looks == [1]


def test_as_many_records_are_read_as_are_asked_for(broker):
    broker.append_many("t", [(b"k", b"%d" % row) for row in range(9)], batch_records=3)
    for most in (0, -1, 1, 3, 5, 9, 20):
        found = broker.read("t", max_records=most)
        assert [record.offset for record in found] == list(range(9))[: max(most, 0)]
