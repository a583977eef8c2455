"""The network between the brokers of a cluster, which can be partitioned, slowed and healed.

A message is a function that a scheduled task calls at the receiver after the link's delay. If the
link is cut by then, the message is lost silently. The sender repeats its request, as in Kafka, but
when the link is healed (`healed`) instead of after a timeout. Clients and the controller do not use
this network and reach every running broker.
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
    """The links between brokers. Each has one state for both directions. Thread-safe.

    Attributes
    ----------
    healed : Signal
        Sent after links were healed, in the thread of the caller.
    """

    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._cut_ms: dict[_Link, int] = {}  # since when, in monotonic time
        self._delays_ms: dict[_Link, int] = {}
        self._numbers = count(1)
        self.healed: Signal[[]] = Signal("links that are whole again")

    def disconnect(self, ones: Iterable[int], others: Iterable[int]) -> None:
        """Cut every link between two groups of brokers; messages in flight are lost."""
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
        """Delay each message between two brokers by `delay_ms`."""
        if delay_ms < 0:
            raise ValueError(f"delay_ms must not be negative: {delay_ms}")
        self._delays_ms[frozenset((one, other))] = delay_ms

    def cut_since_ms(self, one: int, other: int) -> int | None:
        """Return the monotonic time since which a link is cut, or None."""
        return self._cut_ms.get(frozenset((one, other)))

    def number(self) -> int:
        """Return the next request number."""
        return next(self._numbers)

    def send(self, source: int, target: int, name: str, deliver: Callable[[], None]) -> None:
        """Schedule a call at another broker, which is dropped if the link is cut by then.

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
