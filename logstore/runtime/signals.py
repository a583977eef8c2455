"""Signals: something that happens, and any number of listeners that are told of it.

A listener is a function; it is told in the thread in which the thing happens, under the locks that
are held there (each signal says which), after those that subscribed before it. So it is quick,
takes no lock under which others wait for those, and leaves real work to somebody that it wakes.
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
"""Ends a subscription; a second call does nothing."""


class Signal(Generic[P]):
    """One thing that happens again and again.

    Parameters
    ----------
    name : str
        What happens, for messages: "a change of users-0".

    Notes
    -----
    Any thread may subscribe and emit. A listener's own error keeps from no other listener and not
    from what happened: it is logged. An assertion, an interrupt or a simulated crash is raised once
    all were told.
    """

    __slots__ = ("_listeners", "_name", "_numbers", "_told")

    def __init__(self, name: str) -> None:
        self._name = name
        self._numbers = count()
        self._listeners: dict[int, Callable[P, object]] = {}  # in the order of their numbers
        # The same as of the last change: one may leave, or come, while it is told.
        self._told: tuple[Callable[P, object], ...] = ()

    def subscribe(self, listener: Callable[P, object]) -> Unsubscribe:
        """Tell a listener from now on, until what is returned is called.

        A listener may be subscribed twice, and is told twice then. Another thread that is about
        to tell it when it leaves still does.
        """
        number = next(self._numbers)
        self._listeners[number] = listener
        self._told = tuple(self._listeners.values())
        return partial(self._leave, number)

    def _leave(self, number: int) -> None:
        self._listeners.pop(number, None)
        self._told = tuple(self._listeners.values())

    def emit(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Tell every listener."""
        if not self._told:
            return
        raised: BaseException | None = None
        for listener in self._told:
            try:
                listener(*args, **kwargs)
            except BaseException as error:
                if is_contained(error):
                    logger.exception("a listener of %s failed", self._name)
                else:
                    raised = raised or error
        if raised is not None:
            raise raised
