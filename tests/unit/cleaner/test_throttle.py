"""Bytes per second: windows of 300 ms, and sleeps that lower the rate."""

from __future__ import annotations

import pytest

from logstore.cleaner.pool.throttle import UNLIMITED, Throttle, Throttles
from logstore.config.broker_config import BrokerConfig
from logstore.runtime import Runtime, VirtualClock


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def throttle(clock):
    return Throttle(Runtime(clock), 1000.0)


def test_s231_a_window_that_is_over_asks_for_the_rest_of_its_time(clock, throttle):
    clock.advance(ms=310)
    assert throttle.observe(1000) == 690


def test_s231_a_window_of_exactly_300_ms_is_not_over(clock, throttle):
    clock.advance(ms=300)
    assert throttle.observe(1000) == 0
    clock.advance(ms=1)
    assert throttle.observe(0) == 699


def test_a_rate_within_the_limit_begins_a_new_window(clock, throttle):
    clock.advance(ms=400)
    assert throttle.observe(399) == 0
    clock.advance(ms=301)
    assert throttle.observe(301) == 0
    clock.advance(ms=301)
    assert throttle.observe(602) == 301


def test_the_time_slept_does_not_count(clock, throttle):
    clock.advance(ms=310)
    clock.advance(ms=throttle.observe(1000))
    assert throttle.observe(1000) == 0
    clock.advance(ms=301)
    assert throttle.observe(0) == 699


def test_s230_another_limit_holds_at_once(clock, throttle):
    throttle.bytes_per_second = 2000.0
    clock.advance(ms=310)
    assert throttle.observe(1000) == 190


def test_nothing_is_no_reason_to_sleep(clock):
    unlimited = Throttle(Runtime(clock))
    assert unlimited.bytes_per_second == UNLIMITED
    clock.advance(ms=301)
    assert unlimited.observe(2**40) == 0


def test_many_sleepers_share_the_limit(clock, throttle):
    """100,000 bytes of two cleaners take a hundred seconds, except for the last window."""
    start = clock.now_ms()
    for _ in range(1000):
        for size in (60, 40):
            clock.advance(ms=1)
            if sleep_ms := throttle.observe(size):
                clock.advance(ms=sleep_ms)
    last_window = 301 * 60
    assert 100_000 - last_window < clock.now_ms() - start <= 100_000


def test_while_one_sleeps_all_do(clock, throttle):
    clock.advance(ms=310)
    assert throttle.observe(1000) == 690
    clock.advance(ms=90)
    assert throttle.observe(500) == 600
    clock.advance(ms=600)
    assert throttle.observe(0) == 0
    clock.advance(ms=301)
    assert throttle.observe(0) == 199


def test_where_work_takes_no_time_bytes_alone_end_a_window(clock):
    throttle = Throttle(Runtime(clock), 1000.0, eager=True)
    assert throttle.observe(300) == 0
    assert throttle.observe(1) == 301
    clock.advance(ms=301)
    assert throttle.observe(1000) == 1000


def test_reading_and_writing_have_limits_of_their_own(clock):
    """KAFKA-631's two limits in addition to Kafka's one; the strictest applies."""
    config = BrokerConfig.from_properties(
        {
            "log.cleaner.io.max.bytes.per.second": "2000",
            "cleaner.max.read.throughput": "1000",
            "cleaner.max.write.throughput": "500",
        }
    )
    limits = Throttles(Runtime(clock), config)
    clock.advance(ms=310)
    assert limits.observe(1000, 100) == 690
    clock.advance(ms=690 + 310)
    assert limits.observe(100, 1000) == 1000
    clock.advance(ms=1000)
    limits.configure(BrokerConfig())
    clock.advance(ms=400)
    assert limits.observe(10**9, 10**9) == 0
