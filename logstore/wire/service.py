"""The state shared by the connections of a listener.

It gives handlers access to everything that does not belong to a single connection: the log manager,
both coordinators, the authorizer, the settings, the event loop and the worker threads.
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
"""Maximum number of large requests handled concurrently, which limits their memory."""


class ServedBroker(NamedTuple):
    """The parts of a broker that handlers use.

    Attributes
    ----------
    works_in_memory : bool
        Whether file operations never wait for a disk, so that the event loop may perform them.
    nodes : Nodes, optional
        The metadata of the cluster. [default: a single broker]
    """

    runtime: Runtime
    manager: LogManager
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    works_in_memory: bool = False
    nodes: Nodes | None = None


class Service:
    """The state shared by the connections of one listener.

    Parameters
    ----------
    broker : ServedBroker
        The served broker, whose parts become attributes of the service.
    settings : ListenerSettings
        The settings, which also become attributes, except for `sasl` and `tls`.
    limits : Limits
        The current limits.
    pool : RequestPool
        Limits the memory used by all requests.
    loops : LoopThread
        The listener's event loop.

    Attributes
    ----------
    credentials : Credentials
        The users and their passwords.
    authenticates : bool
        Whether clients must authenticate.
    faults : Faults
        The rules created by `Listener.fail`.
    purgatory : Purgatory
        The requests that wait for a condition.
    nodes : Nodes
        The metadata of the cluster as reported by this broker.
    fetch_sessions : FetchSessions
        The fetch sessions (KIP-227).
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
        # the topic names by id, after the given number of changes
        self._names: tuple[int, dict[str, str]] = -1, {}
        self._slots = asyncio.Semaphore(_LARGE_AT_ONCE)

    @property
    def node_id(self) -> int:
        """The id of the broker."""
        return self.nodes.node_id

    @property
    def cluster_id(self) -> str:
        """The id of the cluster."""
        return self.manager.identity.cluster_id

    @cached_property
    def handlers(self) -> Mapping[str, Handler]:
        """The handlers of the supported APIs by name."""
        return {name: found for name, found in handlers().items() if name in self.versions}

    @cached_property
    def api_keys(self) -> Sequence[ApiVersionsResponse.ApiVersion]:
        """The versions for the ApiVersions response, in the order of API keys."""
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
        """How far the broker's clock is ahead of the system clock, in milliseconds."""
        return self.runtime.clock.now_ms() - SystemClock().now_ms()

    def topic_of_id(self, topic_id: str) -> str | None:
        """Return the name of the topic with an id, or None if the id is unknown."""
        # read this before the topics, which may change concurrently
        changes = self.nodes.changes
        known, names = self._names
        if changes != known:
            topics = self.nodes.topics()
            names = {each.id: each.name for each in topics if each.id is not None}
            self._names = changes, names
        return names.get(topic_id)

    def id_of_topic(self, name: str) -> str | None:
        """Return the id of a topic, or None if the topic does not exist or has no id."""
        with suppress(UnknownTopicOrPartitionError):
            return self.nodes.topic(name).id
        return None

    async def run(self, call: Callable[[], T]) -> T:
        """Run a call, in a worker thread if a disk or a fault rule may block it."""
        is_quick = self.works_in_memory and not self.manager.faults.rules
        return call() if is_quick else await self.loops.blocking(call)

    async def run_large(self, call: Callable[[], T]) -> T:
        """Run a call for a large request in a worker thread, as soon as a slot is free.

        The call uses its slot, like its memory, until it returns, even if the client disconnects.
        """
        async with self._slots:
            return await self.loops.to_its_end(call)
