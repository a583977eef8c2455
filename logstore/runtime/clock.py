"""Clocks: wall time in Unix milliseconds and monotonic time in nanoseconds.

Wall-clock time is used for the timestamps of records, delete horizons and files. Monotonic time is
used for durations and waits. In virtual time, both advance together. They diverge with
`FixedWallClock` (the command line's `--now`) and `ShiftedClock` (for tests with clients that use
system time).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from numbers import Real
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, Unpack
from weakref import WeakSet

from logstore.errors import InvalidConfigurationError
from logstore.types import INT64_MAX

VIRTUAL_EPOCH_MS = 1_704_067_200_000
"""2024-01-01T00:00:00Z, the default start of a `VirtualClock`."""


class Clock(Protocol):
    """A source of wall-clock time and monotonic time."""

    @property
    def follows_system(self) -> bool:
        """Whether wall-clock time is system time, so that files need no explicit mtime."""

    def now_ms(self) -> int:
        """Return wall-clock time in Unix milliseconds."""

    def monotonic_ns(self) -> int:
        """Return a time in nanoseconds that never decreases, with an arbitrary origin."""

    def monotonic_ms(self) -> int:
        """Return `monotonic_ns` in whole milliseconds."""

    def sleep(self, seconds: float) -> None:
        """Let `seconds` of wall-clock and monotonic time pass."""


class SystemClock:
    """The system clock."""

    follows_system = True

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def now_ms(self) -> int:
        """Return the system's wall-clock time in Unix milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        """Return the system's monotonic time in nanoseconds."""
        return time.monotonic_ns()

    def monotonic_ms(self) -> int:
        """Return `monotonic_ns` in whole milliseconds."""
        return self.monotonic_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Block the calling thread for `seconds`."""
        time.sleep(seconds)

    if not TYPE_CHECKING:  # hide these methods from type checkers

        def __getattr__(self, name: str) -> object:
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in _MOVES:
                message = (
                    f"{self!r} has no {name!r}, because it cannot be changed: use a clock that"
                    " can, as in Broker(clock=VirtualClock()) or Broker(clock=ShiftedClock())"
                )
            raise AttributeError(message, name=name, obj=self)


_MOVES = ("advance", "set_ms")
"""Methods of manual clocks."""


def _check_wall_ms(wall_ms: float) -> None:
    if not 0 <= wall_ms <= INT64_MAX:
        raise InvalidConfigurationError(
            f"a clock cannot be set to {wall_ms} ms: Kafka's times are 0 to {INT64_MAX}, in Unix ms"
        )


def wall_ms_of(moment: datetime) -> int:
    """Convert a datetime with a time zone to Unix milliseconds.

    Raises
    ------
    InvalidConfigurationError
        The datetime has no time zone.
    """
    if moment.tzinfo is None:
        raise InvalidConfigurationError(
            f"{moment!r} has no time zone: datetime(…, tzinfo=timezone.utc) is an exact time"
        )
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _format_time(wall_ms: int) -> str:
    """Format a time for a repr. Times beyond the range of datetime are shown as numbers."""
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=wall_ms)
    except OverflowError:
        return f"{wall_ms} ms"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{wall_ms % 1000:03d}Z"


class FixedWallClock(SystemClock):
    """A clock with a fixed wall-clock time. Monotonic time advances normally.

    Raises
    ------
    InvalidConfigurationError
        The time is before 1970 or above Kafka's limit of 2⁶³ − 1 ms.
    """

    follows_system = False

    def __init__(self, wall_ms: int) -> None:
        _check_wall_ms(wall_ms)
        self._wall_ms = wall_ms

    def __repr__(self) -> str:
        return f"FixedWallClock({_format_time(self._wall_ms)})"

    def now_ms(self) -> int:
        """Return the fixed time in Unix milliseconds."""
        return self._wall_ms


class Units(TypedDict, total=False):
    """The units of time in which clocks advance."""

    weeks: float
    days: float
    hours: float
    minutes: float
    seconds: float
    ms: float


_UNITS = ("weeks", "days", "hours", "minutes", "seconds", "ms")


def _step_ms(delta: timedelta | None, units: Units) -> float:
    """Return a step in milliseconds, as an int if it has no fractional part."""
    if delta is not None and not isinstance(delta, timedelta):
        raise TypeError(
            f"advance({delta!r}) has no unit: write advance(seconds=5) or"
            " advance(timedelta(seconds=5))"
        )
    values: dict[str, Any] = {**units}
    if unknown := values.keys() - set(_UNITS):
        raise TypeError(f"advance() has no unit {min(unknown)!r}")
    weeks, days, hours, minutes, seconds, ms = (values.get(name, 0) for name in _UNITS)
    try:
        total_ms: float = ms + 1000 * (
            seconds + 60 * (minutes + 60 * (hours + 24 * (days + 7 * weeks)))
        )
    except TypeError as error:
        for name, value in values.items():
            if not isinstance(value, Real):
                raise TypeError(f"advance: {name}={value!r} is not a number") from error
        raise
    if delta is not None:
        whole_ms, rest = divmod(delta, timedelta(milliseconds=1))
        total_ms += whole_ms + rest.microseconds / 1000 if rest else whole_ms
    if total_ms < 0:
        raise ValueError(f"cannot advance by {total_ms} ms; set_ms() steps the clock back")
    return total_ms


class ShiftedClock(SystemClock):
    """The system clock with a manual offset to its wall-clock time.

    For tests with programs that use the system clock. The broker's sessions, waits and periods use
    the same time as these programs, while records, tombstones and segments age as quickly as the
    test requires. `advance` does not run any work: work that becomes due runs at the end of its
    period or on request.

    Raises
    ------
    InvalidConfigurationError
        The resulting wall-clock time is before 1970 or above 2⁶³ − 1 ms. The clock is unchanged.

    Notes
    -----
    Thread-safe.
    """

    follows_system = False

    def __init__(self) -> None:
        self._shift_ms = 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"ShiftedClock({self._shift_ms:+d} ms)"

    @property
    def shift_ms(self) -> int:
        """Milliseconds by which wall-clock time is ahead of system time."""
        return self._shift_ms

    def now_ms(self) -> int:
        """Return the shifted wall-clock time in Unix milliseconds."""
        return super().now_ms() + self._shift_ms

    def advance(self, delta: timedelta | None = None, **units: Unpack[Units]) -> int:
        """Advance wall-clock time by the sum of the arguments. Return the new time in Unix ms."""
        step_ms = _step_ms(delta, units)
        with self._lock:
            _check_wall_ms(self.now_ms() + step_ms)
            self._shift_ms += round(step_ms)
        return self.now_ms()

    def set_ms(self, wall_ms: int) -> None:
        """Set wall-clock time to `wall_ms`, forward or backward."""
        _check_wall_ms(wall_ms)
        with self._lock:
            self._shift_ms = wall_ms - super().now_ms()


class TimeListener(Protocol):
    """Work that is due at certain virtual times. Implemented by a deterministic scheduler."""

    def next_due_ns(self) -> int | None:
        """Return the monotonic time of the next due work (maybe past), or None if there is none."""

    def next_due_name(self) -> str | None:
        """Return the name of the work that is due next, or None if there is none."""

    def run_due(self, due_ns: int) -> int:
        """Run all work due at or before `due_ns`, and return the number of runs."""


class VirtualClock:
    """A clock that only advances on request. Wall-clock and monotonic time advance together.

    Parameters
    ----------
    start_ms : int or datetime
        Initial wall-clock time, as Unix milliseconds or a datetime with a time zone. [default:
        2024-01-01T00:00:00Z]

    Raises
    ------
    InvalidConfigurationError
        A datetime has no time zone, or a time is before 1970 or above 2⁶³ − 1 ms, here or in any
        method. The clock is unchanged.

    Notes
    -----
    `sleep` advances the clock and returns immediately. Setting wall-clock time back does not change
    monotonic time. Not synchronized: one thread owns the clock.

    Time moves from one due time to the next, and at each, listeners run the work that is due. Such
    work may itself advance the time (`held`). Work that becomes due in the meantime then runs late.
    """

    follows_system = False

    def __init__(self, start_ms: int | datetime = VIRTUAL_EPOCH_MS) -> None:
        if isinstance(start_ms, datetime):
            start_ms = wall_ms_of(start_ms)
        _check_wall_ms(start_ms)
        self._wall_ns = start_ms * 1_000_000
        self._monotonic_ns = self._wall_ns
        self._listeners: list[TimeListener] = []
        self._holds = 0
        self._servers: WeakSet[object] = WeakSet()

    def __repr__(self) -> str:
        return f"VirtualClock({_format_time(self.now_ms())})"

    def now_ms(self) -> int:
        """Return the virtual wall-clock time in Unix milliseconds."""
        return self._wall_ns // 1_000_000

    def monotonic_ns(self) -> int:
        """Return the virtual monotonic time in nanoseconds."""
        return self._monotonic_ns

    def monotonic_ms(self) -> int:
        """Return `monotonic_ns` in whole milliseconds."""
        return self._monotonic_ns // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Advance by `seconds` without blocking."""
        self.advance(seconds=seconds)

    def advance(self, delta: timedelta | None = None, **units: Unpack[Units]) -> int:
        """Advance time by the sum of the arguments, running the work that becomes due.

        Parameters
        ----------
        delta : timedelta, optional
            Added to the other arguments.
        weeks, days, hours, minutes, seconds, ms : float

        Returns
        -------
        int
            The new wall-clock time in Unix milliseconds.

        Raises
        ------
        ValueError
            The sum is negative. Use `set_ms` to set wall-clock time back.

        Notes
        -----
        If the work of listeners takes time, the clock ends later than requested, and work due after
        the requested time is not run. If a listener raises an error, the clock remains at the time
        of the error.
        """
        total_ms = _step_ms(delta, units)
        _check_wall_ms(self.now_ms() + total_ms)
        self._advance_ns(round(total_ms * 1_000_000))
        return self.now_ms()

    def set_ms(self, wall_ms: int) -> None:
        """Set the clock to `wall_ms`.

        Moving forward works like `advance`. Moving backward only changes wall-clock time.
        """
        _check_wall_ms(wall_ms)
        step_ns = wall_ms * 1_000_000 - self._wall_ns
        if step_ns > 0:
            self._advance_ns(step_ns)
        else:
            self._wall_ns += step_ns

    def copy(self) -> VirtualClock:
        """Return a new clock with the same time and without listeners."""
        twin = VirtualClock()
        twin._wall_ns, twin._monotonic_ns = self._wall_ns, self._monotonic_ns
        return twin

    # -- for schedulers ------------------------------------------------------------------

    def subscribe(self, listener: TimeListener) -> None:
        """Add a listener. The clock keeps it alive until `unsubscribe`."""
        self._listeners.append(listener)

    def unsubscribe(self, listener: TimeListener) -> None:
        """Remove a listener. If it is not subscribed, it is ignored."""
        self._listeners = [each for each in self._listeners if each is not listener]

    @property
    def has_clients(self) -> bool:
        """Whether a server has clients whose requests could end a wait."""
        return bool(self._servers)

    def add_server(self, server: object) -> None:
        """Register a server that serves clients in its own threads, until removed or dropped."""
        self._servers.add(server)

    def remove_server(self, server: object) -> None:
        """Unregister a closed server. Unknown servers are ignored."""
        self._servers.discard(server)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Advance time inside the context without running due work."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1

    def next_event_ms(self) -> int | None:
        """Return the Unix time (ms) to which `step` would move, or None if no work is scheduled."""
        due_ns = self._next_due_ns()
        if due_ns is None:
            return None
        return (self._wall_ns + max(0, due_ns - self._monotonic_ns)) // 1_000_000

    def next_event_name(self) -> str | None:
        """Return the name of the first work that `step` would run, or None if there is none."""
        due_ns = self._next_due_ns()
        firsts = (each for each in self._listeners if each.next_due_ns() == due_ns)
        return None if due_ns is None else next(firsts).next_due_name()

    def _next_due_ns(self) -> int | None:
        dues = (listener.next_due_ns() for listener in self._listeners)
        return min((due for due in dues if due is not None), default=None)

    def step(self, until_ns: int | None = None) -> bool:
        """Move to the next due time of any listener and run the work due at that time.

        Parameters
        ----------
        until_ns : int, optional
            Monotonic time (inclusive) that the clock does not pass.

        Returns
        -------
        bool
            False if no work is due by then. The time is then `until_ns` or, without it, unchanged.

        Notes
        -----
        Also works inside `held`, so a task can wait for other tasks.
        """
        due_ns = self._next_due_ns()
        if due_ns is None or (until_ns is not None and due_ns > until_ns):
            if until_ns is not None:
                self._move_to(until_ns)
            return False
        self._move_to(due_ns)
        for listener in self._listeners:
            listener.run_due(due_ns)
        return True

    def _advance_ns(self, step_ns: int) -> None:
        target_ns = self._monotonic_ns + step_ns
        if self._holds:
            self._move_to(target_ns)
            return
        while self.step(target_ns):
            pass

    def _move_to(self, monotonic_ns: int) -> None:
        step_ns = max(0, monotonic_ns - self._monotonic_ns)
        self._wall_ns += step_ns
        self._monotonic_ns += step_ns


class SkewedClock(VirtualClock):
    """The wall clock of one of several machines that share virtual time.

    Monotonic time is the base clock's time. Advancing this clock advances the base clock.

    Parameters
    ----------
    base : VirtualClock
    skew_ms : int
        Milliseconds by which wall-clock time is ahead, or behind if negative. Can be changed later.
    """

    def __init__(self, base: VirtualClock, skew_ms: int = 0) -> None:
        super().__init__(base.now_ms())
        self._base = base
        self._skew_ms = 0
        self.skew_ms = skew_ms

    def __repr__(self) -> str:
        return f"SkewedClock({_format_time(self.now_ms())}, {self.skew_ms:+d} ms)"

    @property
    def skew_ms(self) -> int:
        """Milliseconds by which wall-clock time is ahead of the base clock."""
        return self._skew_ms

    @skew_ms.setter
    def skew_ms(self, skew_ms: int) -> None:
        _check_wall_ms(self._base.now_ms() + skew_ms)
        self._skew_ms = skew_ms

    def now_ms(self) -> int:
        """Return this machine's wall-clock time in Unix milliseconds."""
        return self._base.now_ms() + self._skew_ms

    def monotonic_ns(self) -> int:
        """Return the monotonic time of the base clock in nanoseconds."""
        return self._base.monotonic_ns()

    def monotonic_ms(self) -> int:
        """Return the monotonic time of the base clock in milliseconds."""
        return self._base.monotonic_ms()

    def advance(self, delta: timedelta | None = None, **units: Unpack[Units]) -> int:
        """Advance the time of all machines. Return this machine's wall-clock time."""
        self._base.advance(delta, **units)
        return self.now_ms()

    def set_ms(self, wall_ms: int) -> None:
        """Set this machine's wall-clock time without advancing time."""
        _check_wall_ms(wall_ms)
        self._skew_ms = wall_ms - self._base.now_ms()

    def copy(self) -> VirtualClock:
        """Return an independent clock with the same wall-clock time."""
        twin = self._base.copy()
        twin._wall_ns += self._skew_ms * 1_000_000
        return twin

    # -- for schedulers ------------------------------------------------------------------

    def subscribe(self, listener: TimeListener) -> None:
        """Add a listener to the base clock."""
        self._base.subscribe(listener)

    def unsubscribe(self, listener: TimeListener) -> None:
        """Remove a listener from the base clock."""
        self._base.unsubscribe(listener)

    @property
    def has_clients(self) -> bool:
        """Whether a server on the base clock has clients."""
        return self._base.has_clients

    def add_server(self, server: object) -> None:
        """Register a server on the base clock."""
        self._base.add_server(server)

    def remove_server(self, server: object) -> None:
        """Unregister a server on the base clock."""
        self._base.remove_server(server)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Advance time inside the context without running due work."""
        with self._base.held():
            yield

    def next_event_ms(self) -> int | None:
        """Return this machine's wall-clock time of the next due work, or None if there is none."""
        moment = self._base.next_event_ms()
        return None if moment is None else moment + self._skew_ms

    def next_event_name(self) -> str | None:
        """Return the name of the work that is due next, or None if there is none."""
        return self._base.next_event_name()

    def step(self, until_ns: int | None = None) -> bool:
        """Move the base clock to the next due time of any listener."""
        return self._base.step(until_ns)
