"""What explains a decision: bytes that make a log dirty enough, tombstones, ways to close."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore import Broker, VirtualClock
from logstore.cleaner.explaining import Tombstones, bytes_to_exceed

T = 1_704_067_200_000


@given(
    st.integers(0, 10**9), st.integers(0, 10**9), st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.9, 0.999])
)
def test_so_many_bytes_and_not_one_less_exceed_a_ratio(dirty, clean, ratio):
    total = dirty + clean
    needed = bytes_to_exceed(dirty, total, ratio)

    def exceeds(more):
        return total + more > 0 and (dirty + more) / (total + more) > ratio

    assert exceeds(needed)
    assert needed == 0 or not exceeds(needed - 1)


def test_no_bytes_exceed_all():
    assert bytes_to_exceed(5, 10, 1.0) is None


def test_tombstones_are_told_by_their_horizons():
    found = Tombstones()
    for records, horizon in ((3, None), (2, T), (1, T + 1), (0, T - 9)):
        found = found.with_batch(records, horizon, T)
    assert found == Tombstones(6, 3, 2, T, T + 1)


@pytest.mark.parametrize(
    ("configs", "words"),
    (
        ({"max.compaction.lag.ms": 1000}, "a pass is due by itself at"),
        ({}, "no pass is due by itself"),
        ({"cleanup.policy": "delete"}, None),
    ),
)
def test_whether_anything_makes_their_pass_due(configs, words):
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("t", configs={"cleanup.policy": "compact"} | configs)
        broker.append("t", key=b"k", value=None)
        [found] = broker.explain("t").partitions
        assert found.tombstones_text is None if words is None else words in found.tombstones_text


def test_an_open_transaction_is_named():
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("t", configs={"cleanup.policy": "compact"})
        producer = broker.producer(transactional_id="x")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", key=b"k", value=b"v").get()
        broker.roll("t")
        [found] = broker.explain("t").partitions
        assert found.headline == "not yet: a transaction is still open"
        [remedy] = [each for each in found.remedies if each.gate == "last_stable_offset"]
        assert "of producer 0 is open since offset 0" in remedy.cause
        producer.abort_transaction()


def test_what_is_clean_has_nothing_to_clean():
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("t", configs={"cleanup.policy": "compact"})
        broker.append("t", key=b"k", value=b"v")
        broker.clean("t", force=True, roll=True)
        [found] = broker.explain("t").partitions
        assert found.headline == "nothing to clean: all of it is clean"
