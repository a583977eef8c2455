"""Conversion of users' records, and errors for invalid ones."""

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
from tests.support.world.messages import exactly

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
        ({"v": "x"}, "a header's value must be bytes or None, not 'x'"),
        (["v"], r"a header must be a \(name, value\) pair, not 'v'"),
        ([("v", b"1", 2)], r"a header must be a \(name, value\) pair, not \('v', b'1', 2\)"),
        ("v=1", r"headers must be \(name, value\) pairs, not 'v=1'"),
        (b"v", r"headers must be \(name, value\) pairs, not b'v'"),
        (5, r"headers must be \(name, value\) pairs, not 5"),
    ),
)
def test_other_headers_are_refused_by_name(broker, headers, text):
    with pytest.raises(InvalidRecordError, match=text):
        broker.append("t", value=b"x", headers=headers)
    with pytest.raises(InvalidRecordError, match=text):
        broker.append_many("t", [(b"k", b"x", None, headers)])
    assert list(broker.read("t")) == []


def test_records_that_were_read_are_appended_with_all_their_fields(broker):
    broker.append("t", value=b"x", key=b"k", headers=HEADERS, timestamp=1234)
    broker.append("t", value=None, key=b"l")
    read = list(broker.read("t"))
    broker.append_many("t", read)
    again = list(broker.read("t"))[2:]
    assert [each[3:] for each in again] == [each[3:] for each in read]
    assert (again[0].timestamp, again[0].headers) == (1234, HEADERS)


def test_records_are_given_by_name(broker):
    broker.append_many("t", [{"value": b"v"}, {"key": b"k", "value": None, "timestamp": 5}])
    assert [(r.key, r.value) for r in broker.read("t")] == [(None, b"v"), (b"k", None)]


@pytest.mark.parametrize(
    ("record", "text"),
    (
        (
            {"kye": b"k", "value": b"v"},
            (
                "unknown field 'kye' of a record, expected one of key, value, timestamp, "
                "headers: {'kye': b'k', 'value': b'v'}"
            ),
        ),
        ({"key": b"k"}, "a record needs a value (None for a tombstone): {'key': b'k'}"),
        (
            {"value": b"v", 3: 4},
            (
                "unknown field 3 of a record, expected one of key, value, timestamp, "
                "headers: {'value': b'v', 3: 4}"
            ),
        ),
        ((b"k",), "not a record (key, value[, timestamp[, headers]]): (b'k',)"),
        (b"kv", "not a record (key, value[, timestamp[, headers]]): b'kv'"),
    ),
)
def test_invalid_records_are_refused_with_the_reason(broker, record, text):
    with pytest.raises(InvalidRecordError, match=exactly(text)):
        broker.append_many("t", [record])


def test_an_unknown_isolation_is_refused_with_the_valid_ones(broker):
    names = "Unknown isolation 'committed'. Use one of read_uncommitted, read_committed, log_end"
    with pytest.raises(InvalidConfigurationError, match=names):
        broker.read("t", isolation="committed")
    with pytest.raises(ValueError, match=names):
        broker.table("t", isolation="committed")


def test_a_retry_continues_after_the_last_record():
    """Records read before the failure are not read again."""
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


def test_reading_continues_after_a_log_is_replaced_within_a_batch(world):
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


def test_max_records_limits_a_read(broker):
    broker.append_many("t", [(b"k", b"%d" % row) for row in range(9)], batch_records=3)
    for most in (0, -1, 1, 3, 5, 9, 20):
        found = broker.read("t", max_records=most)
        assert [record.offset for record in found] == list(range(9))[: max(most, 0)]
