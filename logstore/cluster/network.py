"""The network between the brokers of a cluster: cut, slowed or healed between any two of them.

A message is a function that is called at its receiver, as a task of the scheduler, once the time on
the way is over. If the link is cut by then, it is lost, and nobody is told: as in Kafka whoever
waits for an answer asks again, here as soon as the link is whole (`healed`) and not after a
timeout. Clients and the controller reach every broker that runs; only what brokers say to each
other goes this way.
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
    """The links between brokers.

    Attributes
    ----------
    healed : Signal
        Links that were cut are whole again, told in the thread of who healed them.

    Notes
    -----
    Any thread may call. Both directions of a link share a fate.
    """

    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._cut_ms: dict[_Link, int] = {}  # since when, in monotonic time
        self._delays_ms: dict[_Link, int] = {}
        self._numbers = count(1)
        self.healed: Signal[[]] = Signal("links that are whole again")

    def disconnect(self, ones: Iterable[int], others: Iterable[int]) -> None:
        """Cut every link between brokers of two groups; what is on its way is lost."""
        now_ms = self._clock.monotonic_ms()
        for one, other in product(ones, others):
            if one != other:
                self._cut_ms.setdefault(frozenset((one, other)), now_ms)

    def heal(self) -> None:
        """Make all links whole, and quick again."""
        self._cut_ms.clear()
        self._delays_ms.clear()
        self.healed.emit()

    def slow(self, one: int, other: int, delay_ms: int) -> None:
        """Let each message between two brokers take so long from now on; 0 is at once."""
        if delay_ms < 0:
            raise ValueError(f"a delay is not negative: {delay_ms}")
        self._delays_ms[frozenset((one, other))] = delay_ms

    def cut_since_ms(self, one: int, other: int) -> int | None:
        """Return the moment of monotonic time since which two brokers are apart, None if not."""
        return self._cut_ms.get(frozenset((one, other)))

    def number(self) -> int:
        """Return a number for a message, larger than all before: what is asked later counts."""
        return next(self._numbers)

    def send(self, source: int, target: int, name: str, deliver: Callable[[], None]) -> None:
        """Let something be called at another broker, unless the link is cut by then.

        Parameters
        ----------
        name : str
            Of the task.
        """
        link = frozenset((source, target))
        if link in self._cut_ms:
            return

        def arrive() -> None:
            if link not in self._cut_ms:
                deliver()

        self._scheduler.schedule(name, arrive, delay_ms=self._delays_ms.get(link, 0))
