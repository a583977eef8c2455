"""The service behind a listener's connections: the broker's parts, and how the listener is set.

What handlers need that is not of one connection is here: logs and topics by way of the manager,
both coordinators, the authorizer, the event loop and where work is done that blocks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from logstore.errors import UnknownTopicOrPartitionError
from logstore.faults.rules import Faults
from logstore.messages.apis import apis_by_name
from logstore.messages.types import ApiVersionsResponse
from logstore.runtime import SystemClock
from logstore.security.sasl import Credentials
from logstore.wire.faulty import kinds_of
from logstore.wire.nodes import Nodes
from logstore.wire.purgatory import Purgatory
from logstore.wire.registry import Handler, handlers

if TYPE_CHECKING:
    from logstore.coordinator.groups.coordinator import GroupCoordinator
    from logstore.coordinator.transactions.coordinator import TransactionCoordinator
    from logstore.manager.manager import LogManager
    from logstore.runtime import Runtime
    from logstore.runtime.loops import LoopThread
    from logstore.wire.limits import Limits
    from logstore.wire.pool import RequestPool
    from logstore.wire.settings import ListenerSettings

T = TypeVar("T")

_LARGE_AT_ONCE = 2
"""Large requests that are worked on at the same time: their memory adds up, as does their delay."""


class ServedBroker(NamedTuple):
    """The broker behind a listener, as far as handlers ask for it.

    Attributes
    ----------
    works_in_memory : bool
        Whether no file operation of the broker waits for a disk, so that requests may be served
        in the loop.
    nodes : Nodes, optional
        The cluster that it is of; by default it is alone.
    """

    runtime: Runtime
    manager: LogManager
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    works_in_memory: bool = False
    nodes: Nodes | None = None


class Service:
    """All that the connections of one listener share.

    Parameters
    ----------
    broker : ServedBroker
        Its parts are attributes here, too.
    settings : ListenerSettings
        So are these, but for `sasl` and `tls`.
    limits : Limits
        Those in force.
    pool : RequestPool
        The memory of all requests.
    loops : LoopThread
        The listener's event loop.

    Attributes
    ----------
    credentials : Credentials
        Users and their passwords.
    authenticates : bool
        Whether clients have to show who they are.
    faults : Faults
        The rules of `Listener.fail`.
    purgatory : Purgatory
        Requests that wait for others.
    nodes : Nodes
        The cluster as the broker tells it: alone by default.
    """

    def __init__(
        self,
        broker: ServedBroker,
        settings: ListenerSettings,
        limits: Limits,
        pool: RequestPool,
        loops: LoopThread,
    ) -> None:
        self.runtime = broker.runtime
        self.manager = broker.manager
        self.groups = broker.groups
        self.transactions = broker.transactions
        self.works_in_memory = broker.works_in_memory
        self.limits = limits
        self.pool = pool
        self.versions = settings.versions
        self.authorizer = settings.authorizer
        self.auto_create = settings.auto_create
        self.restamp = settings.restamp
        self.loops = loops
        self.authenticates = settings.credentials is not None
        self.credentials = settings.credentials or Credentials({})
        self.faults = Faults(kinds_of(self.versions), SystemClock())
        self.purgatory = Purgatory()
        self.nodes = broker.nodes or Nodes(broker.manager)
        self._names: dict[str, str] = {}
        self._turns = asyncio.Semaphore(_LARGE_AT_ONCE)

    @property
    def node_id(self) -> int:
        """The number of the broker behind the listener."""
        return self.nodes.node_id

    @property
    def cluster_id(self) -> str:
        """The id of the cluster that it is of."""
        return self.manager.identity.cluster_id

    @cached_property
    def handlers(self) -> Mapping[str, Handler]:
        """The handlers of the APIs that are served."""
        return {name: found for name, found in handlers().items() if name in self.versions}

    @cached_property
    def api_keys(self) -> Sequence[ApiVersionsResponse.ApiVersion]:
        """The versions of each API as ApiVersions tells them, in the order of their keys."""
        keys = {name: api.key for name, api in apis_by_name().items()}
        return [
            ApiVersionsResponse.ApiVersion(
                api_key=keys[name],
                min_version=self.versions[name].first_advertised,
                max_version=self.versions[name].last,
            )
            for name in sorted(self.handlers, key=keys.__getitem__)
        ]

    @property
    def shift_ms(self) -> int:
        """How far the broker's wall time is ahead of the machine's, in ms."""
        return self.runtime.clock.now_ms() - SystemClock().now_ms()

    def topic_of_id(self, topic_id: str) -> str | None:
        """Return the name of the topic of an id, None if there is none."""
        nodes = self.nodes
        name = self._names.get(topic_id)
        if name is not None:
            with suppress(UnknownTopicOrPartitionError):
                if nodes.topic(name).id == topic_id:
                    return name
        self._names = {each.id: each.name for each in nodes.topics() if each.id is not None}
        return self._names.get(topic_id)

    async def run(self, call: Callable[[], T]) -> T:
        """Do something that may wait, without holding up other connections.

        For the disk, or for as long as a rule of the broker says.
        """
        is_quick = self.works_in_memory and not self.manager.faults.rules
        return call() if is_quick else await self.loops.blocking(call)

    async def run_large(self, call: Callable[[], T]) -> T:
        """Do something for a large request, in another thread, when it is its turn.

        It keeps its turn until it returns, even if the client leaves, since its memory is not free
        before.
        """
        async with self._turns:
            return await self.loops.to_its_end(call)
