"""The session of a connection: who is at its other end, and what they may do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logstore.wire.service import Service

ANONYMOUS = "User:ANONYMOUS"

OPERATIONS = {
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "cluster_action": 9,
    "describe_configs": 10,
    "alter_configs": 11,
    "idempotent_write": 12,
}
"""Operations by Kafka's words, with their numbers in the protocol."""

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

CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of type cluster."""


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
    sasl : object
        The state of an authentication that is under way; `logstore.wire.security` has its own.
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
        self.is_authenticated = service.users is None
        self.sasl: Any = None
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

    def operations_on(self, resource_type: str, name: str = CLUSTER_NAME) -> int:
        """Return what the principal may do to something, as the bits of the protocol."""
        return sum(
            1 << OPERATIONS[operation]
            for operation in _OF_RESOURCES[resource_type]
            if self.allows(operation, resource_type, name)
        )
