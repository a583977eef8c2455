"""Where bytes of a key are found, and when they can vanish that a transaction holds back."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from logstore import Broker, TopicPartition, VirtualClock
from logstore.analysis.erasure import scan_file
from logstore.coordinator.host import NO_EPOCH, CoordinatorHost
from logstore.coordinator.transactions.log import TransactionLog
from logstore.coordinator.transactions.state import TransactionState
from logstore.record.varint import encode_varint
from logstore.runtime import MemoryFileSystem
from logstore.runtime.fs import open_anew
from tests.support.world.cleaning import Producer

TP = TopicPartition("t", 0)
LAG_MS = 300_000
CONFIGS = {
    "cleanup.policy": "compact",
    "max.compaction.lag.ms": str(LAG_MS),
    "file.delete.delay.ms": "0",
}


BLOCK_BYTES = 1 << 20
"""Damage is read so many bytes at a time."""


KEY = b"the-key"
SHORT = encode_varint(len(KEY))
LONG = len(KEY).to_bytes(4, "big")


@pytest.mark.parametrize("prefix", (SHORT, LONG), ids=("magic 2", "magic 0 and 1"))
@pytest.mark.parametrize("others", ((), (100,), (BLOCK_BYTES - 60,)), ids=("alone", "far", "near"))
def test_a_key_in_damage_is_found_where_two_reads_meet(prefix, others):
    """1.5 MiB of no valid batch, wherever the end of the first MiB divides the key's record.

    Another record of the key before it, which was found already, neither hides it nor counts twice.
    """
    record = prefix + KEY
    for before in range(1, len(record)):
        data = bytearray(BLOCK_BYTES + BLOCK_BYTES // 2)
        starts = (*others, BLOCK_BYTES - before)
        for start in starts:
            data[start : start + len(record)] = record
        fs = MemoryFileSystem(VirtualClock())
        with closing(open_anew(fs, "/x.log")) as file:
            file.append([data])
            found = list(scan_file(file, "/x.log", 0, KEY, 1 << 20))
        assert [each.position for each in found] == [start + len(prefix) for start in starts]
        assert {each.state for each in found} == {"torn_tail"}


@pytest.fixture(params=("memory", "disk"))
def broker(request, tmp_path):
    data_dir = tmp_path / "data" if request.param == "disk" else None
    with Broker(data_dir, clock=VirtualClock(), background=True) as broker:
        broker.create_topic("t", configs=CONFIGS)
        broker.append("t", key=b"a", value=b"old")
        broker.append("t", key=b"a", value=b"new")
        yield broker


def begin(broker, timeout_ms):
    """Send b=1 in a transaction of the id x, whose producer then does nothing more."""
    producer = broker.producer(transactional_id="x", transaction_timeout_ms=timeout_ms)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"1", key=b"b").get()


def decide(broker):
    """Decide to commit the transaction of x, and write no marker, as before a crash."""
    log = TransactionLog(CoordinatorHost(broker.manager), broker.coordinator.config)
    prepared = replace(log.read().by_id["x"], state=TransactionState.PREPARE_COMMIT)
    log.append(prepared, NO_EPOCH, now_ms=broker.clock.now_ms(), durable=True)


def places_of(broker):
    found = [*broker.erasure("t", b"a").places, *broker.erasure("t", b"b").places]
    return {place.offset: place for place in found}


@pytest.mark.parametrize(
    ("timeout_ms", "until_ms"),
    ((60_000, LAG_MS + 1 + 15_000), (2 * LAG_MS, 2 * LAG_MS + 1 + 10_000 + 15_000)),
)
def test_an_open_transaction_is_aborted_in_time(broker, timeout_ms, until_ms):
    """Kafka's checks come every 10 s for transactions, and every 15 s for cleanings."""
    now_ms = broker.clock.now_ms()
    begin(broker, timeout_ms)
    places = places_of(broker)
    moments = {offset: (each.earliest_ms, each.latest_ms) for offset, each in places.items()}
    latest_ms = now_ms + until_ms
    assert moments == {0: (now_ms, latest_ms), 1: (None, None), 2: (now_ms, latest_ms)}
    aborts = [each for each in places[2].reasons if each.code == "erasure.transaction_timeout"]
    assert [each.values["at_ms"] for each in aborts] == [now_ms + timeout_ms + 1]
    broker.clock.advance(ms=latest_ms - now_ms)
    assert set(places_of(broker)) == {1}


def test_a_transaction_that_no_coordinator_knows_stays_open(broker):
    Producer(broker.log(TP), 77).send((b"b", b"1"))
    begin(broker, 60_000)
    for offset, place in places_of(broker).items():
        assert (place.earliest_ms, place.latest_ms) == (None, None)
        if offset != 1:
            assert "no coordinator in this directory knows it" in place.rule
    broker.clock.advance(days=1)
    assert set(places_of(broker)) == {0, 1, 2, 3}


def test_a_transaction_that_was_decided_ends_as_was_decided(broker):
    """As a crash between the decision and its markers leaves it."""
    now_ms = broker.clock.now_ms()
    begin(broker, 60_000)
    decide(broker)
    places = places_of(broker)
    latest_ms = now_ms + LAG_MS + 1 + 15_000
    assert (places[0].earliest_ms, places[0].latest_ms) == (now_ms, latest_ms)
    assert (places[2].earliest_ms, places[2].latest_ms) == (None, None)
    assert "aborted" not in places[2].rule


def test_a_decided_transaction_is_not_among_those_that_never_end():
    """Without a cleaner, the report names the disabled cleaner as the reason."""
    with Broker(clock=VirtualClock(), broker_config={"log.cleaner.enable": "false"}) as broker:
        broker.create_topic("t", configs=CONFIGS)
        broker.append("t", key=b"a", value=b"old")
        broker.append("t", key=b"a", value=b"new")
        begin(broker, 60_000)
        decide(broker)
        assert "log.cleaner.enable is false" in places_of(broker)[0].rule
