"""The broker's clock: where it stands, and, if it is virtual, moving it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logstore.runtime import SystemClock, VirtualClock
from logstore.types import INT64_MAX
from logstore.ui.asking import get, post
from logstore.ui.errors import ClockError, InvalidRequestError
from logstore.ui.site import Deed

if TYPE_CHECKING:
    from logstore.ui.asking import Ask

MOVE_MS = 1_000
"""Machine time after which a move is answered with how far it came."""


def clock(ask: Ask) -> dict[str, Any]:
    """Tell where the clock stands."""
    return ask.site.clock_json()


def move(ask: Ask) -> dict[str, Any]:
    """Move a virtual clock up to a moment, by a span, or to the next event.

    What falls due on the way is done. A move that takes longer than a bound is answered with how
    far it came; to ask again for the same moment goes on.
    """
    ask.require("alter", "cluster")
    wanted = [name for name in ("to_ms", "by_ms", "next_event") if name in ask.body]
    if len(wanted) != 1:
        raise InvalidRequestError("one of to_ms, by_ms and next_event says where to")
    broker_clock = ask.broker.clock
    if not isinstance(broker_clock, VirtualClock):
        raise ClockError("this broker's clock is the machine's: only a virtual one can be moved")
    with ask.site.turns.turn():
        now_ms = broker_clock.now_ms()
        if wanted == ["next_event"]:
            if not ask.member("next_event", bool):
                raise InvalidRequestError("next_event: only true will do", field="next_event")
            is_event = broker_clock.step()
            return _told(ask, broker_clock, broker_clock.now_ms(), steps=int(is_event))
        if wanted == ["by_ms"]:
            by_ms = ask.check_number("by_ms", ask.member("by_ms", int), 0, INT64_MAX - now_ms)
            return _moved(ask, broker_clock, now_ms + by_ms)
        to_ms = ask.check_number("to_ms", ask.member("to_ms", int), 0, INT64_MAX)
        if to_ms < now_ms:
            raise InvalidRequestError(
                f"to_ms: the clock stands at {now_ms} and goes forward only, not to {to_ms}",
                field="to_ms",
            )
        return _moved(ask, broker_clock, to_ms)


def _moved(ask: Ask, broker_clock: VirtualClock, to_ms: int) -> dict[str, Any]:
    """Go from event to event until the moment is reached, or this took long enough."""
    machine = SystemClock()
    until_ms = machine.monotonic_ms() + MOVE_MS
    until_ns = broker_clock.monotonic_ns() + (to_ms - broker_clock.now_ms()) * 1_000_000
    steps = 0
    while broker_clock.step(until_ns):
        steps += 1
        # What is due may take time itself, and go beyond.
        if broker_clock.now_ms() >= to_ms or machine.monotonic_ms() >= until_ms:
            break
    return _told(ask, broker_clock, to_ms, steps=steps)


def _told(ask: Ask, broker_clock: VirtualClock, to_ms: int, *, steps: int) -> dict[str, Any]:
    stands = ask.site.clock_json()
    return {
        **stands,
        "to_ms": to_ms,
        "is_done": broker_clock.now_ms() >= to_ms,
        "steps": steps,
    }


ROUTES = (
    get("/api/clock", clock),
    post(
        "/api/clock",
        move,
        "to_ms",
        "by_ms",
        "next_event",
        deed=Deed("move-clock", "alter", "cluster"),
    ),
)
