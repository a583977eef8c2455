"""Published examples: the footnote of KIP-354, and a guide to cleanup policies."""

from __future__ import annotations

import pytest

from logstore import Broker, VirtualClock
from logstore.errors import InvalidTimestampError
from tests.support.world.builders import bases_of
from tests.support.world.cleaning import contents, offsets_in

SECOND_MS = 1000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

# --- KIP-354, footnote 1: the worst case of D + M + D -----------------------------------------

FULL = b'{name: "John Doe", phone: "5555555"}'
SHORT = b'{name: "John Doe"}'


def users(lag_ms: int, difference_ms: int, *, exact: bool = False) -> Broker:
    """Return a broker whose topic `users` is cleaned by its maximum lag only; user 1 is clean."""
    broker = Broker(clock=VirtualClock(), seed=1, broker_config={"logstore.kafka.exact": exact})
    broker.create_topic(
        "users",
        configs={
            "cleanup.policy": "compact",
            "max.compaction.lag.ms": lag_ms,
            "message.timestamp.difference.max.ms": difference_ms,
            "min.cleanable.dirty.ratio": 1.0,
            "segment.ms": 1000 * DAY_MS,
        },
    )
    broker.append("users", value=FULL, key=b"1")
    broker.clean("users", force=True, roll=True)
    broker.clock.advance(hours=5)
    return broker


def append(broker: Broker, value: bytes | None, key: bytes, timestamp: int) -> int:
    """Append a record to `users`; return its offset."""
    return broker.append("users", value=value, key=key, timestamp=timestamp).offset


@pytest.mark.parametrize(
    ("lag_ms", "difference_ms"),
    ((HOUR_MS, 10 * SECOND_MS), (HOUR_MS, DAY_MS), (7 * DAY_MS, 7 * DAY_MS), (HOUR_MS, 0)),
)
@pytest.mark.parametrize("closed", (False, True), ids=("active", "closed"))
@pytest.mark.parametrize("update", (SHORT, None), ids=("value", "tombstone"))
def test_kip_354_a_record_waits_at_most_the_lag_and_twice_the_difference(
    lag_ms: int, difference_ms: int, closed: bool, update: bytes | None
) -> None:
    """The first record of the segment is dated D ahead, the second D back.

    Records older than the lag are eligible: one millisecond after D + now + M, idle or not.
    """
    broker = users(lag_ms, difference_ms)
    now_ms = broker.clock.now_ms()
    for beyond in (difference_ms + 1, -difference_ms - 1):
        with pytest.raises(InvalidTimestampError):
            append(broker, b"v", b"2", now_ms + beyond)
    append(broker, b"v", b"2", now_ms + difference_ms)
    late = append(broker, update, b"1", now_ms - difference_ms)
    assert bases_of(broker.log("users"))[1:] == [1]
    if closed:
        broker.roll("users")
    eligible_ms = difference_ms + now_ms + lag_ms
    (explained,) = broker.explain("users").partitions
    assert explained.decision.opens_at_ms == eligible_ms + 1
    broker.clock.advance(ms=eligible_ms - now_ms)
    assert not broker.clean("users").cleaned
    assert contents(broker.log("users"))[0] == (0, b"1", FULL), "the old record is still there"
    broker.clock.advance(ms=1)
    (stats,) = broker.clean("users").cleaned
    assert (stats.first_dirty_offset, stats.end_offset) == (1, 3)
    assert contents(broker.log("users")) == [(1, b"2", b"v"), (late, b"1", update)]
    waited_ms = broker.clock.now_ms() - 1 - (now_ms - difference_ms)
    assert waited_ms == difference_ms + lag_ms + difference_ms


@pytest.mark.parametrize("first_ms", (-DAY_MS, -1, 0, 1, DAY_MS))
@pytest.mark.parametrize("second_ms", (-DAY_MS, -1, 0, 1, DAY_MS))
def test_kip_354_no_order_of_timestamps_takes_longer(first_ms: int, second_ms: int) -> None:
    """Each record is cleaned when it is D + M + D old by its own timestamp, or earlier."""
    broker = users(HOUR_MS, DAY_MS)
    now_ms = broker.clock.now_ms()
    moments = [now_ms + first_ms, now_ms + second_ms]
    for moment in moments:
        append(broker, SHORT, b"1", moment)
    log = broker.log("users")
    latest_ms = [moment + 2 * DAY_MS + HOUR_MS + 1 for moment in moments]
    cleaned_to = 1
    while cleaned_to < log.log_end_offset:
        (explained,) = broker.explain("users").partitions
        opens_ms = explained.decision.opens_at_ms
        assert opens_ms is not None
        broker.clock.advance(ms=max(0, opens_ms - broker.clock.now_ms()))
        (stats,) = broker.clean("users").cleaned
        for offset in range(cleaned_to, stats.end_offset):
            assert broker.clock.now_ms() <= latest_ms[offset - 1]
        cleaned_to = stats.end_offset
    assert contents(log) == [(2, b"1", SHORT)]


def test_kip_354_kafka_itself_waits_for_an_append_to_roll() -> None:
    broker = users(HOUR_MS, DAY_MS, exact=True)
    now_ms = broker.clock.now_ms()
    append(broker, b"v", b"2", now_ms + DAY_MS)
    append(broker, None, b"1", now_ms - DAY_MS)
    broker.clock.advance(ms=3 * DAY_MS)
    (explained,) = broker.explain("users").partitions
    assert explained.decision.opens_at_ms is None
    assert not broker.clean("users").cleaned
    append(broker, b"v", b"3", broker.clock.now_ms())
    assert bases_of(broker.log("users"))[1:] == [1, 3]
    assert [stats.end_offset for stats in broker.clean("users").cleaned] == [3]


# --- the guide: a message at offset 5 under each policy ---------------------------------------

RETENTION_MS = HOUR_MS
QUEUE = (b"key1", b"key2", b"key1", b"key3", b"key1", b"key2", b"key3", b"key1", b"key3", b"key1")
"""Keys by offset; the last of key2 is at 5, which ends a segment."""

YOUNG = [6, 7, 8, 9]
LAST_OF_EACH = [8, 9]
"""Without key2's."""


def queue(policy: str) -> Broker:
    """Return the queue: the first segment is as old as allowed, the second 50 minutes newer."""
    broker = Broker(clock=VirtualClock(), seed=1)
    broker.create_topic(
        "queue",
        configs={
            "cleanup.policy": policy,
            "retention.ms": RETENTION_MS,
            "min.cleanable.dirty.ratio": 0.01,
            "segment.bytes": 500,
        },
    )
    for offset, key in enumerate(QUEUE):
        if offset == 6:
            broker.roll("queue")
            broker.clock.advance(minutes=50)
        assert broker.append("queue", value=b"value", key=key).offset == offset
    broker.roll("queue")
    broker.clock.advance(minutes=10)
    assert bases_of(broker.log("queue")) == [0, 6, 10]
    return broker


def test_the_guide_delete_takes_offset_5_because_of_its_age() -> None:
    """The whole segment is removed once its newest record is older than the retention."""
    broker = queue("delete")
    log = broker.log("queue")
    broker.retain("queue")
    assert offsets_in(log) == list(range(10)), "equal to the retention is not older"
    broker.clock.advance(ms=1)
    assert not broker.clean("queue", force=True).cleaned
    broker.retain("queue")
    assert offsets_in(log) == YOUNG
    assert log.log_start_offset == 6


def test_the_guide_compact_keeps_offset_5_as_the_last_of_its_key() -> None:
    broker = queue("compact")
    log = broker.log("queue")
    for _ in range(3):
        broker.retain("queue")
        broker.clean("queue")
        assert offsets_in(log) == [5, *LAST_OF_EACH]
        assert contents(log)[0] == (5, b"key2", b"value")
        broker.clock.advance(days=365)
    assert log.log_start_offset == 0


@pytest.mark.parametrize("first", ("clean", "retain"))
def test_the_guide_both_policies_take_offset_5_though_nothing_overwrote_it(first: str) -> None:
    broker = queue("compact,delete")
    log = broker.log("queue")
    if first == "clean":
        broker.clean("queue")
        assert offsets_in(log) == [5, *LAST_OF_EACH]
    broker.retain("queue")
    assert 5 in offsets_in(log)
    broker.clock.advance(ms=1)
    broker.retain("queue")
    assert offsets_in(log) == (LAST_OF_EACH if first == "clean" else YOUNG)
    broker.clean("queue")
    assert offsets_in(log) == LAST_OF_EACH
    assert log.log_start_offset == 6
