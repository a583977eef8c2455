"""The network between the brokers of a cluster. Its links can be cut, delayed and restored.

A message is a function that a task calls on the receiver after the link's delay. If the link is cut
by then, the message is lost without an error. As in Kafka, the sender resends its request, but when
the link is restored (`healed`) instead of after a timeout. Clients and the controller do not use
this network and can always reach each running broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count, product
from typing import TYPE_CHECKING

from logstore.runtime import Signal

if TYPE_CHECKING:
    from logstore.runtime import Clock, Scheduler

_Link = frozenset[int]


class Network:
    """The links between brokers. A link has the same state in both directions.

    The class is thread-safe.

    Attributes
    ----------
    healed : Signal
        Emitted after links were restored, in the thread that restored them.
    """

    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._cut_ms: dict[_Link, int] = {}  # monotonic times when links were cut
        self._delays_ms: dict[_Link, int] = {}
        self._numbers = count(1)
        self.healed: Signal[[]] = Signal("links that are whole again")

    def disconnect(self, ones: Iterable[int], others: Iterable[int]) -> None:
        """Cut all links between two sets of brokers. Messages in flight are lost."""
        now_ms = self._clock.monotonic_ms()
        for one, other in product(ones, others):
            if one != other:
                self._cut_ms.setdefault(frozenset((one, other)), now_ms)

    def heal(self) -> None:
        """Restore all links and remove all delays."""
        self._cut_ms.clear()
        self._delays_ms.clear()
        self.healed.emit()

    def slow(self, one: int, other: int, delay_ms: int) -> None:
        """Delay all messages between two brokers by `delay_ms`."""
        if delay_ms < 0:
            raise ValueError(f"delay_ms must not be negative: {delay_ms}")
        self._delays_ms[frozenset((one, other))] = delay_ms

    def cut_since_ms(self, one: int, other: int) -> int | None:
        """Return the monotonic time when a link was cut, or None if it is not cut."""
        return self._cut_ms.get(frozenset((one, other)))

    def number(self) -> int:
        """Return a new request number."""
        return next(self._numbers)

    def send(self, source: int, target: int, name: str, deliver: Callable[[], None]) -> None:
        """Schedule a call on another broker, which is dropped if the link is cut by then.

        Parameters
        ----------
        name : str
            Name of the task.
        """
        link = frozenset((source, target))
        if link in self._cut_ms:
            return

        def arrive() -> None:
            if link not in self._cut_ms:
                deliver()

        self._scheduler.schedule(name, arrive, delay_ms=self._delays_ms.get(link, 0))
