"""The session of a connection: who is at its other end, and what they may do."""

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
"""Elements of a request that the loop's own thread decodes and handles: a few milliseconds."""

_SLICE_ELEMENTS = 64
"""Elements of a large request between two pauses, about a millisecond."""

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
"""Operations that there are on each type of resource (AclEntry.supportedOperations)."""


class ClientLeft(Exception):
    """The client of a large request closed its connection: nobody waits for the answer."""


class Session:
    """One connection, from its beginning to its end; requests of it are answered one by one.

    Attributes
    ----------
    service : Service
        What all connections of the listener share.
    client_host : str
        The address of the other end.
    address : (str, int)
        Host and port by which clients reach the listener, as Metadata tells them.
    client_id : str or None
        Of the request that is being answered.
    api : str
        That of the request that is being answered, as `Fetch`.
    version : int
        Of the request that is being answered.
    principal : str
        Whom the client has shown to be.
    is_authenticated : bool
        Whether it has, or need not.
    sasl : SaslServer or None
        An authentication that is under way.
    takes_tokens : bool
        Whether frames are messages of SASL without a header, as after SaslHandshake version 0.
    is_encrypted : bool
        Whether the connection is TLS.
    has_failed : bool
        Whether the client did not show who it is: its connection ends a moment behind the answer.
    ends : bool
        Set it to have the connection closed behind the answer.
    is_large : bool
        Whether the request that is being answered takes so much work that it is done in another
        thread.
    is_over : bool
        Whether the connection was closed.
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
        """Do work for the request without holding up other connections.

        That of a large request is done in another thread, in memory too. See `Service.run`.
        """
        if self.is_large:
            return await self.service.run_large(call)
        return await self.service.run(call)

    def each(self, elements: Sequence[T]) -> Iterable[T]:
        """Iterate over elements of the request, for a handler that changes nothing.

        A large request is done in slices: between them other threads run, and it ends if its client
        has left.

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
        """Tell whether the principal may do something to something, both in Kafka's words.

        It must be among what `permissions.NEEDS` says of the API whose request is answered.
        """
        self._check_is_needed(operation, resource_type)
        return self._allows(operation, resource_type, name)

    def allows_any(self, operation: str, resource_type: str) -> bool:
        """Tell whether there can be a resource of a type that it may be done to."""
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
        assert need in NEEDS[self.api], f"{need} is not what permissions.NEEDS says of {self.api}"

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
        # As in Kafka's authorizer log; most that is denied is only left out of an answer.
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
        """Return what the principal may do to something, as the bits of the protocol."""
        return sum(
            1 << AclOperation[operation.upper()]
            for operation in _OF_RESOURCES[resource_type]
            if self._allows(operation, resource_type, name)
        )
