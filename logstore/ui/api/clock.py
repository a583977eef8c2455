"""The broker's clock. A virtual clock can be advanced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logstore.runtime import SystemClock, VirtualClock
from logstore.types import INT64_MAX
from logstore.ui.api_request import get, post
from logstore.ui.context import Action
from logstore.ui.errors import ClockError, InvalidRequestError

if TYPE_CHECKING:
    from logstore.ui.api_request import ApiRequest

MOVE_MS = 1_000
"""Time limit of a request to advance the clock."""


def clock(request: ApiRequest) -> dict[str, Any]:
    """Return the state of the clock."""
    return request.context.clock_json()


def move(request: ApiRequest) -> dict[str, Any]:
    """Advance a virtual clock to a time, by a duration, or to the next event.

    Events that become due are run. After `MOVE_MS` of real time, the response contains the time
    reached so far, and the client repeats the request to continue.
    """
    request.require("alter", "cluster")
    wanted = [name for name in ("to_ms", "by_ms", "next_event") if name in request.body]
    if len(wanted) != 1:
        raise InvalidRequestError("exactly one of to_ms, by_ms and next_event is required")
    broker_clock = request.broker.clock
    if not isinstance(broker_clock, VirtualClock):
        raise ClockError("this broker uses the system clock; only a virtual clock can be advanced")
    with request.context.change_lock.hold():
        now_ms = broker_clock.now_ms()
        if wanted == ["next_event"]:
            if not request.member("next_event", bool):
                raise InvalidRequestError("next_event: expected true", field="next_event")
            is_event = broker_clock.step()
            return _move_json(request, broker_clock, broker_clock.now_ms(), steps=int(is_event))
        if wanted == ["by_ms"]:
            by_ms = request.check_number(
                "by_ms", request.member("by_ms", int), 0, INT64_MAX - now_ms
            )
            return _moved(request, broker_clock, now_ms + by_ms)
        to_ms = request.check_number("to_ms", request.member("to_ms", int), 0, INT64_MAX)
        if to_ms < now_ms:
            raise InvalidRequestError(
                f"to_ms: the clock cannot go back from {now_ms} to {to_ms}",
                field="to_ms",
            )
        return _moved(request, broker_clock, to_ms)


def _moved(request: ApiRequest, broker_clock: VirtualClock, to_ms: int) -> dict[str, Any]:
    """Run events until `to_ms`, or for at most `MOVE_MS` of real time."""
    machine = SystemClock()
    until_ms = machine.monotonic_ms() + MOVE_MS
    until_ns = broker_clock.monotonic_ns() + (to_ms - broker_clock.now_ms()) * 1_000_000
    steps = 0
    while broker_clock.step(until_ns):
        steps += 1
        # Events may advance the clock as well.
        if broker_clock.now_ms() >= to_ms or machine.monotonic_ms() >= until_ms:
            break
    return _move_json(request, broker_clock, to_ms, steps=steps)


def _move_json(
    request: ApiRequest, broker_clock: VirtualClock, to_ms: int, *, steps: int
) -> dict[str, Any]:
    clock = request.context.clock_json()
    return {
        **clock,
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
        action=Action("move-clock", "alter", "cluster"),
    ),
)
