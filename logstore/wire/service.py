"""State shared by the connections of a listener: the parts of the broker and the settings.

Handlers reach everything that does not belong to one connection through it: logs and topics by the
manager, both coordinators, the authorizer, the event loop and the worker threads.
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
from logstore.runtime import SystemClock, random_source
from logstore.wire.faulty import kinds_of
from logstore.wire.fetch_sessions import FetchSessions
from logstore.wire.nodes import Nodes
from logstore.wire.purgatory import Purgatory
from logstore.wire.registry import Handler, handlers
from logstore.wire.versions import SERVED

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
"""Large requests handled concurrently; limits their total memory."""


class ServedBroker(NamedTuple):
    """The parts of a broker that handlers use.

    Attributes
    ----------
    works_in_memory : bool
        Whether file operations never wait for a disk, so the event loop may run them.
    nodes : Nodes, optional
        Cluster metadata. [default: a single broker]
    """

    runtime: Runtime
    manager: LogManager
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    works_in_memory: bool = False
    nodes: Nodes | None = None


class Service:
    """State shared by the connections of one listener.

    Parameters
    ----------
    broker : ServedBroker
        Its parts become attributes.
    settings : ListenerSettings
        Except for `sasl` and `tls`, these become attributes too.
    limits : Limits
        Current limits.
    pool : RequestPool
        Limits the memory of all requests.
    loops : LoopThread
        Event loop of the listener.

    Attributes
    ----------
    credentials : Credentials
        Users and their passwords.
    authenticates : bool
        Whether clients must authenticate.
    faults : Faults
        Rules created by `Listener.fail`.
    purgatory : Purgatory
        Requests that wait for a condition.
    nodes : Nodes
        Cluster metadata as this broker reports it.
    fetch_sessions : FetchSessions
        Incremental fetch sessions (KIP-227).
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
        self.versions = SERVED if settings.versions is None else settings.versions
        self.authorizer = settings.authorizer
        self.quotas = settings.quotas
        self.auto_create = settings.auto_create
        self.restamp = settings.restamp
        self.loops = loops
        self.authenticates = settings.credentials is not None
        self.credentials = settings.credentials or settings.own_credentials
        self.faults = Faults(kinds_of(self.versions), SystemClock())
        self.purgatory = Purgatory()
        self.nodes = broker.nodes or Nodes(broker.manager)
        self.fetch_sessions = FetchSessions(
            limits.fetch_sessions,
            self.runtime.lock(),
            SystemClock().monotonic_ms,
            random_source(),
        )
        self._names: tuple[int, dict[str, str]] = -1, {}  # of a number of changes
        self._slots = asyncio.Semaphore(_LARGE_AT_ONCE)

    @property
    def node_id(self) -> int:
        """Id of the broker."""
        return self.nodes.node_id

    @property
    def cluster_id(self) -> str:
        """Id of the cluster."""
        return self.manager.identity.cluster_id

    @cached_property
    def handlers(self) -> Mapping[str, Handler]:
        """Handlers of the served APIs, by API name."""
        return {name: found for name, found in handlers().items() if name in self.versions}

    @cached_property
    def api_keys(self) -> Sequence[ApiVersionsResponse.ApiVersion]:
        """API versions for the ApiVersions response, ordered by API key."""
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
        """How far the broker's clock is ahead of the system clock, in ms."""
        return self.runtime.clock.now_ms() - SystemClock().now_ms()

    def topic_of_id(self, topic_id: str) -> str | None:
        """Return the topic name of a topic id, or None."""
        changes = self.nodes.topic_changes  # before the topics, which may change meanwhile
        known, names = self._names
        if changes != known:
            topics = self.nodes.topics()
            names = {each.id: each.name for each in topics if each.id is not None}
            self._names = changes, names
        return names.get(topic_id)

    def id_of_topic(self, name: str) -> str | None:
        """Return the id of a topic, or None if it does not exist or has none."""
        with suppress(UnknownTopicOrPartitionError):
            return self.nodes.topic(name).id
        return None

    async def run(self, call: Callable[[], T]) -> T:
        """Run a call that may block, on a disk or a fault rule, in a worker thread."""
        is_quick = self.works_in_memory and not self.manager.faults.rules
        return call() if is_quick else await self.loops.blocking(call)

    async def run_large(self, call: Callable[[], T]) -> T:
        """Run a call of a large request in a worker thread, when a slot is free.

        The call keeps its slot until it returns, even if the client disconnects, because its memory
        is in use until then.
        """
        async with self._slots:
            return await self.loops.to_its_end(call)
