"""What all requests of one page share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from logstore.analysis.broker_state import is_replicated
from logstore.analysis.segment_map import SegmentMaps
from logstore.runtime import VirtualClock
from logstore.ui.errors import ReadOnlyError
from logstore.ui.live import Live
from logstore.ui.partitions import PartitionList
from logstore.ui.turns import Turns

if TYPE_CHECKING:
    from logstore.broker import Broker
    from logstore.runtime.loops import LoopThread
    from logstore.security.authorizer import Authorizer

T = TypeVar("T")


class Deed(NamedTuple):
    """A request that changes something, and what its principal must be allowed for any to work.

    `operation` and `resource_type` are in Kafka's words, as `alter_configs` and `topic`.
    """

    name: str
    operation: str
    resource_type: str


class Site:
    """The broker behind a page, and how it is asked.

    Parameters
    ----------
    broker : Broker
    loops : LoopThread
        Of the page: the loop answers requests, its other threads call the broker.
    authorizer : Authorizer, optional
        Decides what the page may do; everything by default.
    principal : str
        As whom.

    Attributes
    ----------
    partitions : PartitionList
        The rows of the list.
    live : Live
        What happens, and what was.
    strips : SegmentMaps
        The segments of its partitions.
    deeds : tuple of Deed
        What its routes can do at all.
    turns, passes : Turns
        In which deeds are done, and cleanings run, also in thought: each has a partition to itself,
        and what finds one in the hands of another takes that for an obstacle.
    read_only_because : str or None
        Why nothing can be changed from here.
    """

    def __init__(
        self,
        broker: Broker,
        loops: LoopThread,
        authorizer: Authorizer | None,
        principal: str,
    ) -> None:
        self.broker = broker
        self.loops = loops
        self.authorizer = authorizer
        self.principal = principal
        self.deeds: tuple[Deed, ...] = ()
        self.live = Live(broker, loops, self.clock_json)
        self.partitions = PartitionList(broker, loops.submit, self.live.note_measured)
        self.strips = SegmentMaps(broker)
        self.turns, self.passes = Turns(), Turns()
        self.read_only_because: str | None = None
        if broker.read_only:
            self.read_only_because = "the directory is only looked at: nothing in it can be changed"
        elif is_replicated(broker):
            self.read_only_because = (
                "this is one broker of a cluster, whose controller decides: it is only looked at"
            )

    def check_writable(self) -> None:
        """Raise `ReadOnlyError` where nothing can be changed."""
        if self.read_only_because is not None:
            raise ReadOnlyError(self.read_only_because)

    def clock_json(self) -> dict[str, Any]:
        """Return what the broker's clock is, and where it stands."""
        clock = self.broker.clock
        virtual = clock if isinstance(clock, VirtualClock) else None
        return {
            "kind": "system" if virtual is None else "virtual",
            "now_ms": clock.now_ms(),
            "next_event_ms": None if virtual is None else virtual.next_event_ms(),
            "next_event": None if virtual is None else virtual.next_event_name(),
        }

    def close(self) -> None:
        """End what goes on beside the answers."""
        self.partitions.close()
        self.live.close()

    async def run(self, call: Callable[[], T]) -> T:
        """Make a call that may block, in another thread than the loop's."""
        return await self.loops.blocking(call)
