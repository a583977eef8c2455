"""The session of a connection: who is at its other end, and what they may do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.security.acls import ANONYMOUS, CLUSTER_NAME, AclOperation, ResourceType, word_of

if TYPE_CHECKING:
    from logstore.security.sasl import SaslServer
    from logstore.wire.service import Service

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
    ends : bool
        Set it to have the connection closed behind the answer.
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
        self.version = 0
        self.principal = ANONYMOUS
        self.is_authenticated = not service.authenticates
        self.sasl: SaslServer | None = None
        self.takes_tokens = False
        self.is_encrypted = is_encrypted
        self.ends = False

    def allows(self, operation: str, resource_type: str, name: str = CLUSTER_NAME) -> bool:
        """Tell whether the principal may do something to something, both in Kafka's words."""
        authorizer = self.service.authorizer
        if authorizer is None:
            return True
        decision = authorizer.authorize(
            self.principal, self.client_host, operation, resource_type, name
        )
        return decision.allowed

    def allows_any(self, operation: str, resource_type: str) -> bool:
        """Tell whether there can be a resource of a type that it may be done to."""
        authorizer = self.service.authorizer
        if authorizer is None:
            return True
        decision = authorizer.authorize_by_resource_type(
            self.principal,
            self.client_host,
            word_of(AclOperation, operation),
            word_of(ResourceType, resource_type),
        )
        return decision.allowed

    def operations_on(self, resource_type: str, name: str = CLUSTER_NAME) -> int:
        """Return what the principal may do to something, as the bits of the protocol."""
        return sum(
            1 << AclOperation[operation.upper()]
            for operation in _OF_RESOURCES[resource_type]
            if self.allows(operation, resource_type, name)
        )
