"""State shared by all requests to a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from logstore.analysis.broker_state import is_replicated
from logstore.analysis.segment_map import SegmentMaps
from logstore.errors import LogStoreError
from logstore.inspect.schemas.framing import FRAME_BYTES, MAGIC
from logstore.runtime import FixedWallClock, VirtualClock
from logstore.ui.errors import ReadOnlyError
from logstore.ui.live import Live
from logstore.ui.locks import OperationLock
from logstore.ui.notices import Notices
from logstore.ui.partitions import PartitionList

if TYPE_CHECKING:
    from logstore.broker import Broker
    from logstore.clients.records import ConsumerRecord
    from logstore.inspect.schemas.kinds import Schema
    from logstore.runtime.loops import LoopThread
    from logstore.security.authorizer import Authorizer

T = TypeVar("T")

DECODED_BYTES_MAX = 1024 * 1024
"""Maximum size of a key or value that is decoded with a schema."""


class Action(NamedTuple):
    """An operation that changes state, and the required permission.

    `operation` and `resource_type` are Kafka's names, for example `alter_configs` and `topic`.
    """

    name: str
    operation: str
    resource_type: str


class Context:
    """The broker of a page, and state shared by its requests.

    Parameters
    ----------
    broker : Broker
    loops : LoopThread
        The event loop, and the threads that call the broker.
    authorizer : Authorizer, optional
        Authorizes operations. [default: all are permitted]
    principal : str
        Principal of all operations.
    schemas : mapping of int to Schema
        Schemas by Confluent schema id.

    Attributes
    ----------
    partitions : PartitionList
        Rows of the partition list.
    live : Live
        Events and history.
    segment_maps : SegmentMaps
        Segment maps of the partitions.
    actions : tuple of Action
        Operations of all routes.
    change_lock, cleaning_lock : OperationLock
        Locks that serialize changes, and cleaning passes including dry runs, because these lock
        their partition.
    read_only_because : str or None
        Why the page is read-only, or None if it is not.
    notices : Notices
        Warnings about a copied directory.
    """

    def __init__(
        self,
        broker: Broker,
        loops: LoopThread,
        authorizer: Authorizer | None,
        principal: str,
        schemas: Mapping[int, Schema] | None = None,
    ) -> None:
        self.broker = broker
        self.loops = loops
        self.authorizer = authorizer
        self.principal = principal
        self._schemas = schemas or {}
        self.actions: tuple[Action, ...] = ()
        self.live = Live(broker, loops, self.clock_json)
        self.partitions = PartitionList(broker, loops.submit, self.live.note_measured)
        self.segment_maps = SegmentMaps(broker)
        self.change_lock, self.cleaning_lock = OperationLock(), OperationLock()
        self.read_only_because: str | None = None
        self.notices = Notices()
        if broker.read_only:
            self.notices.attach()
            self.read_only_because = "the directory was opened read-only"
        elif is_replicated(broker):
            self.read_only_because = (
                "this broker is part of a cluster; send changes to the cluster's controller"
            )

    def check_writable(self) -> None:
        """Raise `ReadOnlyError` if the page is read-only."""
        if self.read_only_because is not None:
            raise ReadOnlyError(self.read_only_because)

    def clock_json(self) -> dict[str, Any]:
        """Return the type of the clock, its time and its next event."""
        clock = self.broker.clock
        virtual = clock if isinstance(clock, VirtualClock) else None
        is_fixed = isinstance(clock, FixedWallClock)
        return {
            "kind": "virtual" if virtual is not None else "fixed" if is_fixed else "system",
            "now_ms": clock.now_ms(),
            "next_event_ms": None if virtual is None else virtual.next_event_ms(),
            "next_event": None if virtual is None else virtual.next_event_name(),
        }

    def decoded(self, record: ConsumerRecord) -> dict[str, Any]:
        """Decode the key and value of a record with a known schema."""
        found: dict[str, Any] = {}
        errors = []
        for name, data in (("key", record.key), ("value", record.value)):
            if not self._schemas or data is None or len(data) > DECODED_BYTES_MAX:
                continue
            schema = self._schemas.get(int.from_bytes(data[1:5], "big"))
            if schema is None or len(data) < FRAME_BYTES or data[0] != MAGIC:
                continue
            try:
                found[name] = schema.decode(data[FRAME_BYTES:])
            except LogStoreError as error:
                errors.append(f"{name}: {error}")
        if errors:
            found["error"] = "; ".join(errors)
        return {"decoded": found} if found else {}

    def close(self) -> None:
        """Stop background work."""
        self.notices.detach()
        self.partitions.close()
        self.live.close()

    async def run(self, call: Callable[[], T]) -> T:
        """Run a blocking call in a worker thread."""
        return await self.loops.blocking(call)
