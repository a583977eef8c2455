"""Clocks: what moves with what. And the bundle that hands them out."""

import random
import threading
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from logstore.errors import InvalidConfigurationError
from logstore.runtime import (
    Clock,
    DiskFileSystem,
    FixedWallClock,
    MemoryFileSystem,
    Runtime,
    ShiftedClock,
    SkewedClock,
    SystemClock,
    VirtualClock,
)
from logstore.runtime.clock import VIRTUAL_EPOCH_MS
from tests.support.world.messages import exactly


def test_system_clock_is_the_machines():
    clock: Clock = SystemClock()
    before = time.time_ns() // 1_000_000
    assert before <= clock.now_ms() <= time.time_ns() // 1_000_000
    first = clock.monotonic_ns()
    clock.sleep(0.002)
    assert clock.monotonic_ns() - first >= 2_000_000
    assert clock.follows_system


def test_fixed_wall_clock_is_constant_while_monotonic_time_runs():
    clock: Clock = FixedWallClock(1_700_000_000_000)
    first = clock.monotonic_ns()
    clock.sleep(0.002)
    assert clock.now_ms() == 1_700_000_000_000
    assert clock.monotonic_ns() > first
    assert not clock.follows_system


def test_virtual_clock_starts_in_2024_and_moves_only_on_request():
    clock: Clock = VirtualClock()
    assert clock.now_ms() == VIRTUAL_EPOCH_MS == 1_704_067_200_000
    assert not clock.follows_system
    before = time.monotonic()
    clock.sleep(86_400)
    assert time.monotonic() - before < 10
    assert clock.now_ms() == VIRTUAL_EPOCH_MS + 86_400_000


def test_advance_adds_its_units_up_and_returns_the_new_time():
    clock = VirtualClock(0)
    first = clock.monotonic_ns()
    assert clock.advance(days=1, hours=2, minutes=3, seconds=4, ms=5) == 93_784_005
    assert clock.monotonic_ns() - first == 93_784_005 * 1_000_000


@pytest.mark.parametrize(
    "clock", (VirtualClock(), ShiftedClock(), SkewedClock(VirtualClock())), ids=repr
)
def test_a_step_without_a_unit_is_refused_with_what_to_write(clock):
    before = clock.monotonic_ms()
    for step in (5, 2.5, True, "5s"):
        with pytest.raises(TypeError) as caught:
            clock.advance(step)
        assert str(caught.value) == (
            f"advance({step!r}) has no unit:"
            " write advance(seconds=5) or advance(timedelta(seconds=5))"
        )
    for unit in ("weeks", "days", "hours", "minutes", "seconds", "ms"):
        with pytest.raises(TypeError, match=f"^advance: {unit}='5' is not a number$"):
            clock.advance(**{unit: "5"})
    assert clock.monotonic_ms() - before < 60_000


class NoSum(float):
    """A number that cannot be multiplied."""

    def __mul__(self, other):
        raise TypeError("no product")

    __rmul__ = __mul__


def test_an_error_of_a_number_itself_is_passed_on():
    clock = VirtualClock()
    with pytest.raises(TypeError, match=r"^no product$"):
        clock.advance(weeks=NoSum(1))


@pytest.mark.parametrize("clock", (SystemClock(), FixedWallClock(0)), ids=repr)
@pytest.mark.parametrize("name", ("advance", "set_ms"))
def test_a_clock_that_cannot_be_moved_names_those_that_can(clock, name):
    with pytest.raises(AttributeError) as raised:
        getattr(clock, name)
    assert str(raised.value) == (
        f"{clock!r} has no {name!r}, because it cannot be changed: use a clock that can,"
        " as in Broker(clock=VirtualClock()) or Broker(clock=ShiftedClock())"
    )
    assert (raised.value.name, raised.value.obj) == (name, clock)
    assert not hasattr(clock, name)
    message = f"^'{type(clock).__name__}' object has no attribute 'anything'$"
    with pytest.raises(AttributeError, match=message):
        _ = clock.anything


def test_parts_of_milliseconds_add_up():
    clock = VirtualClock(0)
    for _ in range(4):
        clock.advance(ms=0.25)
    assert clock.now_ms() == 1
    clock.advance(seconds=0.1)
    clock.advance(seconds=0.2)
    assert clock.monotonic_ns() == 301_000_000


def test_long_virtual_times_stay_exact():
    clock = VirtualClock(1_700_000_000_001)
    assert clock.advance(days=365_000, ms=1) == 1_700_000_000_002 + 365_000 * 86_400_000


def test_advance_refuses_to_go_back():
    clock = VirtualClock(1000)
    with pytest.raises(
        ValueError, match=exactly("cannot advance by -1 ms; set_ms() steps the clock back")
    ):
        clock.advance(seconds=2, ms=-2001)
    assert clock.now_ms() == 1000


def test_a_wall_clock_stepped_back_leaves_monotonic_time():
    clock = VirtualClock(1_000)
    first = clock.monotonic_ns()
    clock.set_ms(5_000)
    assert (clock.now_ms(), clock.monotonic_ns() - first) == (5_000, 4_000_000_000)
    clock.set_ms(2_000)
    assert (clock.now_ms(), clock.monotonic_ns() - first) == (2_000, 4_000_000_000)
    clock.advance(ms=1)
    assert (clock.now_ms(), clock.monotonic_ns() - first) == (2_001, 4_001_000_000)


class Listener:
    """Runs an action at each of its times, and records the time."""

    def __init__(self, clock, *dues_ms, then=None, name="listener"):
        self.clock = clock
        self.name = name
        self.dues_ms = list(dues_ms)
        self.then = then
        self.calls = []

    def next_due_ns(self):
        return self.dues_ms[0] * 1_000_000 if self.dues_ms else None

    def next_due_name(self):
        return self.name if self.dues_ms else None

    def run_due(self, due_ns):
        assert due_ns <= self.clock.monotonic_ns()
        count = 0
        while self.dues_ms and self.dues_ms[0] * 1_000_000 <= due_ns:
            self.calls.append((self.dues_ms.pop(0), self.clock.now_ms()))
            count += 1
            if self.then is not None:
                with self.clock.held():
                    self.then()
        return count


def test_listeners_are_served_at_their_times_on_the_way():
    clock = VirtualClock(0)
    first, second = Listener(clock, 5, 20, 31), Listener(clock, 5, 10)
    clock.subscribe(first)
    clock.subscribe(second)
    clock.advance(ms=30)
    assert first.calls == [(5, 5), (20, 20)]
    assert second.calls == [(5, 5), (10, 10)]
    assert clock.now_ms() == 30
    clock.set_ms(31)
    assert first.calls[2:] == [(31, 31)]


def test_the_next_event_has_a_name():
    clock = VirtualClock(0)
    assert clock.next_event_name() is None
    for name, due_ms in (("later", 20), ("sooner", 5), ("as soon", 5)):
        clock.subscribe(Listener(clock, due_ms, name=name))
    clock.subscribe(Listener(clock, name="idle"))
    assert (clock.next_event_ms(), clock.next_event_name()) == (5, "sooner")
    assert SkewedClock(clock, 1_000).next_event_name() == "sooner"
    clock.step()
    assert (clock.next_event_ms(), clock.next_event_name()) == (20, "later")


def test_a_listener_that_leaves_is_served_no_more():
    clock = VirtualClock(0)
    listener = Listener(clock, 5, 10)
    clock.unsubscribe(listener)
    clock.subscribe(listener)
    clock.advance(ms=5)
    clock.unsubscribe(listener)
    clock.advance(ms=50)
    assert listener.calls == [(5, 5)]


def test_time_only_moves_while_it_is_held():
    clock = VirtualClock(0)
    listener = Listener(clock, 5, 10, 60, then=lambda: clock.advance(ms=50))
    clock.subscribe(listener)
    assert clock.advance(ms=5) == 55
    assert listener.calls == [(5, 5)]  # 10 came up inside
    with clock.held():
        clock.sleep(0.001)
        with clock.held():
            clock.set_ms(57)
        clock.sleep(0.001)
    assert (clock.now_ms(), len(listener.calls)) == (58, 1)
    clock.advance()
    assert listener.calls[1:] == [(10, 58)]


def test_a_step_advances_to_the_next_due_time_or_to_its_limit():
    clock = VirtualClock(0)
    assert clock.step() is False
    assert clock.now_ms() == 0
    assert clock.step(3_000_000) is False
    assert clock.now_ms() == 3
    listener = Listener(clock, 2, 10)
    clock.subscribe(listener)
    assert clock.step() is True
    assert listener.calls == [(2, 3)]
    assert clock.step(9_999_999) is False
    assert clock.monotonic_ns() == 9_999_999
    with clock.held():
        assert clock.step(10_000_000) is True
    assert listener.calls[1:] == [(10, 10)]
    assert clock.step(5_000_000) is False  # past: time does not go back
    assert clock.now_ms() == 10


def test_an_error_of_a_listener_stops_the_clock_at_its_time():
    clock = VirtualClock(0)
    listener = Listener(clock, 5, then=lambda: 1 / 0)
    clock.subscribe(listener)
    with pytest.raises(ZeroDivisionError):
        clock.advance(ms=10)
    assert clock.now_ms() == 5
    assert clock.advance(ms=10) == 15
    listener.dues_ms.append(20)
    listener.then = None
    clock.advance(ms=5)
    assert listener.calls == [(5, 5), (20, 20)]  # and it is not held forever


def test_runtime_uses_system_services_by_default():
    runtime = Runtime()
    assert isinstance(runtime.clock, SystemClock)
    assert isinstance(runtime.fs, DiskFileSystem)
    clock, fs = VirtualClock(), MemoryFileSystem()
    runtime = Runtime(clock=clock, fs=fs, rng=random.Random(7))
    assert (runtime.clock, runtime.fs) == (clock, fs)
    assert runtime.rng.random() == random.Random(7).random()


def test_locks_are_re_entrant_and_exclude_other_threads():
    lock = Runtime().lock()
    entered = []

    def enter():
        with lock:
            entered.append(True)

    with lock, lock:
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join(0.05)
        assert entered == []
    thread.join()
    assert entered == [True]


@pytest.mark.parametrize("wall_ms", (2**63, -1, 10**30))
def test_a_clock_refuses_times_that_kafka_does_not_have(wall_ms):
    """Kafka's timestamps are 64 bits with a sign, and none is negative."""
    for make in (VirtualClock, FixedWallClock):
        with pytest.raises(InvalidConfigurationError, match=f"cannot be set to {wall_ms} ms"):
            make(wall_ms)
    clock = VirtualClock()
    with pytest.raises(ValueError, match="cannot be set to"):
        clock.set_ms(wall_ms)
    assert clock.now_ms() == VIRTUAL_EPOCH_MS


def test_a_clock_is_limited_to_kafkas_time_range():
    clock = VirtualClock()
    for step in ({"ms": 2**63}, {"days": 1e300}, {"days": float("inf")}, {"ms": float("nan")}):
        with pytest.raises(ValueError, match="cannot"):
            clock.advance(**step)
        assert clock.now_ms() == VIRTUAL_EPOCH_MS
    clock.set_ms(2**63 - 1)
    assert clock.now_ms() == 2**63 - 1
    with pytest.raises(InvalidConfigurationError):
        clock.advance(ms=1)
    clock.set_ms(0)
    assert clock.now_ms() == 0


# -- steps and times as Python's types -------------------------------------------------------


@pytest.mark.parametrize("kind", (VirtualClock, ShiftedClock))
def test_a_step_is_a_timedelta_too(kind):
    clock = kind()
    before = clock.now_ms()
    clock.advance(timedelta(days=1, microseconds=500), weeks=2, ms=0.5)
    assert 15 * 86_400_000 + 1 <= clock.now_ms() - before < 15 * 86_400_000 + 60_000
    with pytest.raises(
        ValueError, match=exactly("cannot advance by -1000 ms; set_ms() steps the clock back")
    ):
        clock.advance(timedelta(seconds=-1))
    with pytest.raises(InvalidConfigurationError):
        clock.advance(weeks=10**12)


def test_a_virtual_clock_starts_at_a_datetime():
    zone = timezone(timedelta(hours=2))
    assert VirtualClock(datetime(2024, 1, 1, 2, tzinfo=zone)).now_ms() == VIRTUAL_EPOCH_MS
    with pytest.raises(
        InvalidConfigurationError,
        match=exactly(
            "datetime.datetime(2024, 1, 1, 0, 0) has no time zone: datetime(…, "
            "tzinfo=timezone.utc) is an exact time"
        ),
    ):
        VirtualClock(datetime(2024, 1, 1))  # what is refused
    with pytest.raises(InvalidConfigurationError):
        VirtualClock(datetime(1969, 12, 31, tzinfo=UTC))


def test_a_shifted_clock_moves_wall_time_alone():
    clock: Clock = ShiftedClock()
    machine = SystemClock()
    assert 0 <= clock.now_ms() - machine.now_ms() + 1000 < 2000
    first = clock.monotonic_ns()
    clock.advance(days=30)
    assert clock.shift_ms == 30 * 86_400_000
    assert clock.monotonic_ns() - first < 86_400 * 10**9
    assert abs(clock.now_ms() - machine.now_ms() - clock.shift_ms) < 60_000
    clock.set_ms(VIRTUAL_EPOCH_MS)
    assert 0 <= clock.now_ms() - VIRTUAL_EPOCH_MS < 60_000
    assert not clock.follows_system
    with pytest.raises(InvalidConfigurationError):
        clock.set_ms(-1)


def test_a_server_on_a_skewed_clock_and_on_the_one_below_is_seen_on_both():
    base = VirtualClock()
    skewed = SkewedClock(base)
    for one in (base, skewed):
        server = threading.Event()  # anything that can be referred to weakly
        one.add_server(server)
        assert (base.has_clients, skewed.has_clients) == (True, True)
        one.remove_server(server)
        assert (base.has_clients, skewed.has_clients) == (False, False)


SUNDAY = datetime(2024, 1, 7, 12, 30, 5, 6000, tzinfo=UTC)


def test_clocks_show_their_time():
    skewed = SkewedClock(VirtualClock(SUNDAY))
    assert repr(skewed) == "SkewedClock(2024-01-07T12:30:05.006Z, +0 ms)"
    skewed.skew_ms = -1006
    assert repr(skewed) == "SkewedClock(2024-01-07T12:30:04.000Z, -1006 ms)"
    skewed.skew_ms = 5
    assert repr(skewed) == "SkewedClock(2024-01-07T12:30:05.011Z, +5 ms)"
    assert repr(VirtualClock(SUNDAY)) == "VirtualClock(2024-01-07T12:30:05.006Z)"
    assert repr(FixedWallClock(1_704_630_605_006)) == "FixedWallClock(2024-01-07T12:30:05.006Z)"
    far_ms = 253_402_300_800_000
    assert repr(FixedWallClock(far_ms - 1)) == "FixedWallClock(9999-12-31T23:59:59.999Z)"
    assert repr(FixedWallClock(far_ms)) == "FixedWallClock(253402300800000 ms)"
