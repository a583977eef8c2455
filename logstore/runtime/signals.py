"""Signals: events with any number of listeners.

A listener is a function. It is called in the thread that emits the event, after earlier
subscribers, while that thread holds its locks. Each signal documents these locks. A listener must
therefore be fast, and must not acquire locks that could cause a deadlock. For longer work, it
should wake another thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Generic, ParamSpec

from logstore.runtime.scheduler import is_contained

logger = logging.getLogger(__name__)

P = ParamSpec("P")

Unsubscribe = Callable[[], object]
"""Ends a subscription. A second call has no effect."""


class Signal(Generic[P]):
    """A recurring event.

    Parameters
    ----------
    name : str
        Name of the event for messages, such as "a change of users-0".

    Notes
    -----
    Any thread may subscribe and emit. An error in a listener is logged, and the remaining listeners
    are still called. An assertion, an interrupt or a simulated crash is raised after all listeners
    have been called.
    """

    __slots__ = ("_called", "_listeners", "_name", "_numbers")

    def __init__(self, name: str) -> None:
        self._name = name
        self._numbers = count()
        self._listeners: dict[int, Callable[P, object]] = {}  # in the order of subscription
        # A copy, because listeners may subscribe and unsubscribe during `emit`.
        self._called: tuple[Callable[P, object], ...] = ()

    def subscribe(self, listener: Callable[P, object]) -> Unsubscribe:
        """Subscribe a listener. The returned function ends the subscription.

        A listener that is subscribed twice is called twice. An `emit` in another thread might still
        call a listener once after it has unsubscribed.
        """
        number = next(self._numbers)
        self._listeners[number] = listener
        self._called = tuple(self._listeners.values())
        return partial(self._leave, number)

    def _leave(self, number: int) -> None:
        self._listeners.pop(number, None)
        self._called = tuple(self._listeners.values())

    def emit(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call all listeners."""
        if not self._called:
            return
        raised: BaseException | None = None
        for listener in self._called:
            try:
                listener(*args, **kwargs)
            except BaseException as error:
                if is_contained(error):
                    logger.exception("a listener of %s failed", self._name)
                else:
                    raised = raised or error
        if raised is not None:
            raise raised
