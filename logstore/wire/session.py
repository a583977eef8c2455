"""The session of a connection: the client's principal and its permissions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from logstore.runtime.loops import give_way
from logstore.security.acls import ANONYMOUS, CLUSTER_NAME, AclOperation, ResourceType, word_of
from logstore.wire.permissions import NEEDS

if TYPE_CHECKING:
    from logstore.security.authorizer import Decision
    from logstore.security.sasl import SaslServer
    from logstore.wire.service import Service

logger = logging.getLogger(__name__)

T = TypeVar("T")

ELEMENTS_IN_LOOP = 256
"""Maximum number of array elements of requests handled on the event loop (a few milliseconds)."""

_SLICE_ELEMENTS = 64
"""Number of elements of a large request that are handled between pauses (about 1 ms)."""

_OF_RESOURCES = {
    "topic": (
        "read",
        "write",
        "create",
        "describe",
        "delete",
        "alter",
        "describe_configs",
        "alter_configs",
    ),
    "group": ("read", "describe", "delete", "describe_configs", "alter_configs"),
    "cluster": (
        "create",
        "cluster_action",
        "describe_configs",
        "alter_configs",
        "idempotent_write",
        "alter",
        "describe",
    ),
}
"""The supported operations of each resource type (Kafka's AclEntry.supportedOperations)."""


class ClientLeft(Exception):
    """The client has disconnected while its large request is being handled."""


class Session:
    """The state of a connection and of its current request.

    Attributes
    ----------
    service : Service
        The state shared by all connections of the listener.
    client_host : str
        The address of the client.
    address : (str, int)
        The advertised host and port of the listener.
    client_id : str or None
        The client id in the current request.
    api : str
        The API of the current request, such as `Fetch`.
    version : int
        The version of the current request.
    principal : str
        The principal of the client.
    is_authenticated : bool
        Whether the client has authenticated or need not authenticate.
    sasl : SaslServer or None
        The SASL exchange, or None before it starts.
    takes_tokens : bool
        Whether the next frames are raw SASL tokens, as after version 0 of SaslHandshake.
    is_encrypted : bool
        Whether the connection uses TLS.
    has_failed : bool
        Whether authentication failed. The connection is closed shortly after the response.
    ends : bool
        Whether the connection is closed after the response. Set by handlers.
    is_large : bool
        Whether the current request is large and must not be handled on the event loop.
    is_over : bool
        Whether the connection has been closed.
    """

    def __init__(
        self,
        service: Service,
        client_host: str,
        address: tuple[str, int],
        *,
        is_encrypted: bool = False,
    ) -> None:
        self.service = service
        self.client_host = client_host
        self.address = address
        self.client_id: str | None = None
        self.api = ""
        self.version = 0
        self.principal = ANONYMOUS
        self.is_authenticated = not service.authenticates
        self.sasl: SaslServer | None = None
        self.takes_tokens = False
        self.is_encrypted = is_encrypted
        self.has_failed = False
        self.ends = False
        self.is_large = False
        self.is_over = False
        self._left_in_slice = 0

    async def run(self, call: Callable[[], T]) -> T:
        """Run a call for the current request without blocking other connections.

        A call for a large request always runs in a worker thread. See `Service.run`.
        """
        if self.is_large:
            return await self.service.run_large(call)
        return await self.service.run(call)

    def each(self, elements: Sequence[T]) -> Iterable[T]:
        """Iterate over elements of the request. The handler must not have side effects.

        In a large request, other threads can run after each slice, and the iteration stops if the
        client has disconnected.

        Raises
        ------
        ClientLeft
        """
        return self._slices(elements) if self.is_large else elements

    def _slices(self, elements: Sequence[T]) -> Iterator[T]:
        for element in elements:
            if not self._left_in_slice:
                if self.is_over:
                    raise ClientLeft
                give_way()
                self._left_in_slice = _SLICE_ELEMENTS
            self._left_in_slice -= 1
            yield element

    def allows(self, operation: str, resource_type: str, name: str = CLUSTER_NAME) -> bool:
        """Return whether the principal may perform an operation on a resource.

        `permissions.NEEDS` must list the operation for the current API.
        """
        self._check_is_needed(operation, resource_type)
        return self._allows(operation, resource_type, name)

    def allows_any(self, operation: str, resource_type: str) -> bool:
        """Return whether the principal may perform an operation on any resource of a type."""
        self._check_is_needed(operation, resource_type)
        authorizer = self.service.authorizer
        if authorizer is None:
            return True
        kind, what = word_of(ResourceType, resource_type), word_of(AclOperation, operation)
        decision = authorizer.authorize_by_resource_type(
            self.principal, self.client_host, what, kind
        )
        self._log(decision, operation, resource_type, "any")
        return decision.allowed

    def _check_is_needed(self, operation: str, resource_type: str) -> None:
        need = operation, resource_type
        assert need in NEEDS[self.api], f"permissions.NEEDS does not list {need} for {self.api}"

    def _allows(self, operation: str, resource_type: str, name: str) -> bool:
        authorizer = self.service.authorizer
        if authorizer is None:
            return True
        decision = authorizer.authorize(
            self.principal, self.client_host, operation, resource_type, name
        )
        self._log(decision, operation, resource_type, name)
        return decision.allowed

    def _log(self, decision: Decision, operation: str, resource_type: str, name: str) -> None:
        # Unlike Kafka's authorizer log, use the debug level: a denial often only filters a
        # response.
        logger.debug(
            "%s from %s is %s %s of %s '%s' for %s: %s",
            self.principal,
            self.client_host,
            "allowed" if decision.allowed else "denied",
            operation,
            resource_type,
            name,
            self.api,
            decision.acl or decision.rule,
        )

    def operations_on(self, resource_type: str, name: str = CLUSTER_NAME) -> int:
        """Return the operations allowed on a resource, as the protocol's bit field."""
        return sum(
            1 << AclOperation[operation.upper()]
            for operation in _OF_RESOURCES[resource_type]
            if self._allows(operation, resource_type, name)
        )
