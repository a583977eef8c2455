"""Access control lists (ACLs) and ACL filters.

Names and codes are Kafka's (org.apache.kafka.common.acl and .resource).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

from logstore.errors import RequestError

WILDCARD = "*"
"""Matches every resource name, every host or, as in `User:*`, every principal."""

CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""

ANONYMOUS = "User:ANONYMOUS"
"""The principal of unauthenticated clients."""


class ResourceType(IntEnum):
    """The type of a protected resource."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a resource name is matched. ANY and MATCH are only valid in filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """An operation on a resource."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    """Whether an operation is allowed or denied."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_Word = TypeVar("_Word", bound=IntEnum)

_NOT_IN_ACLS = ("UNKNOWN", "ANY", "MATCH")


@dataclass(frozen=True, slots=True, order=True, init=False)
class Acl:
    """A rule that allows or denies an operation on resources to a principal from a host.

    Enumerations accept Kafka's codes, or Kafka's names in any case, such as `"read"`.

    Attributes
    ----------
    principal : str
        `User:alice`, or `User:*` for all users.
    operation : AclOperation
    resource_type : ResourceType
    resource_name : str
        `*` matches all resources of the type. The cluster is named `kafka-cluster`.
    pattern_type : PatternType
        LITERAL, or PREFIXED to match all resource names with this prefix.
    permission : AclPermission
    host : str
        Client address, or `*`.

    Raises
    ------
    RequestError
        A value is unknown to Kafka or only valid in filters, the principal has no type, the
        resource name is empty, or the cluster is not named `kafka-cluster`.
    """

    principal: str
    operation: AclOperation
    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    permission: AclPermission
    host: str

    def __init__(
        self,
        principal: str,
        operation: AclOperation | str | int,
        resource_type: ResourceType | str | int,
        resource_name: str = CLUSTER_NAME,
        pattern_type: PatternType | str | int = PatternType.LITERAL,
        permission: AclPermission | str | int = AclPermission.ALLOW,
        host: str = WILDCARD,
    ) -> None:
        words = _words(operation, resource_type, pattern_type, permission)
        for name, word in words.items():
            if word.name in _NOT_IN_ACLS:
                raise RequestError(f"an ACL cannot have {name}={word.name}")
        texts = {"principal": principal, "resource_name": resource_name, "host": host}
        for name, value in (words | texts).items():
            object.__setattr__(self, name, value)
        if ":" not in self.principal:
            raise RequestError(
                f"principal {self.principal!r} has no type: expected TYPE:NAME, such as User:ann"
            )
        if not self.resource_name:
            raise RequestError(f"the {self.resource_type.name} resource name is empty")
        if self.resource_type is ResourceType.CLUSTER and self.resource_name != CLUSTER_NAME:
            raise RequestError(
                f"the name of a CLUSTER resource must be {CLUSTER_NAME}, not {self.resource_name}"
            )

    def covers(self, resource_name: str) -> bool:
        """Return whether the pattern matches a resource name of the same type."""
        if self.pattern_type is PatternType.PREFIXED:
            return resource_name.startswith(self.resource_name)
        return self.resource_name in (WILDCARD, resource_name)


@dataclass(frozen=True, slots=True, init=False)
class AclFilter:
    """A filter that selects the ACLs that match all of its attributes.

    Attributes
    ----------
    resource_type, operation, permission : enumerations
        ANY matches all values.
    resource_name, principal, host : str or None
        None matches all values.
    pattern_type : PatternType
        ANY selects patterns with exactly this name, MATCH selects all patterns that match the name,
        and any other value selects patterns of that type.

    Raises
    ------
    RequestError
        A value is unknown to Kafka.
    """

    resource_type: ResourceType
    resource_name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: AclOperation
    permission: AclPermission

    def __init__(
        self,
        resource_type: ResourceType | str | int = ResourceType.ANY,
        resource_name: str | None = None,
        pattern_type: PatternType | str | int = PatternType.ANY,
        principal: str | None = None,
        host: str | None = None,
        operation: AclOperation | str | int = AclOperation.ANY,
        permission: AclPermission | str | int = AclPermission.ANY,
    ) -> None:
        words = _words(operation, resource_type, pattern_type, permission)
        for name, word in words.items():
            if word.name == "UNKNOWN":
                raise RequestError(f"a filter cannot have {name}={word.name}")
        texts = {"principal": principal, "resource_name": resource_name, "host": host}
        for name, value in (words | texts).items():
            object.__setattr__(self, name, value)

    def matches(self, acl: Acl) -> bool:
        """Return whether the filter selects an ACL."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermission.ANY, acl.permission)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        is_match = self.pattern_type is PatternType.MATCH
        if not is_match and self.pattern_type not in (PatternType.ANY, acl.pattern_type):
            return False
        if self.resource_name is None:
            return True
        return (
            acl.covers(self.resource_name) if is_match else self.resource_name == acl.resource_name
        )


def _words(
    operation: object, resource_type: object, pattern_type: object, permission: object
) -> dict[str, Any]:
    return {
        "operation": word_of(AclOperation, operation),
        "resource_type": word_of(ResourceType, resource_type),
        "pattern_type": word_of(PatternType, pattern_type),
        "permission": word_of(AclPermission, permission),
    }


def word_of(kind: type[_Word], word: object) -> _Word:
    """Return the enumeration member of a Kafka name or code, or UNKNOWN for an unknown code.

    Raises
    ------
    RequestError
        The name is unknown.
    """
    if isinstance(word, kind):
        return word
    if isinstance(word, int):
        return kind(word) if word in kind.__members__.values() else kind["UNKNOWN"]
    try:
        return kind[str(word).upper()]
    except KeyError:
        known = ", ".join(each for each in kind.__members__ if each not in _NOT_IN_ACLS)
        raise RequestError(f"{word!r} is not one of {known}") from None
