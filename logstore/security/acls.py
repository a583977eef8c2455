"""Access control lists: what one says, and which ones a filter means.

Numbers and words are those of Kafka's protocol (org.apache.kafka.common.acl and .resource).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

from logstore.errors import RequestError

WILDCARD = "*"
"""As the name of a resource, every one; as a host, every one; as in `User:*`, everybody."""

CLUSTER_NAME = "kafka-cluster"
"""The one resource of type CLUSTER."""

ANONYMOUS = "User:ANONYMOUS"
"""Who did not say who they are."""


class ResourceType(IntEnum):
    """What is protected."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a name stands for resources; ANY and MATCH are for filters alone."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """What somebody does to a resource."""

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
    """One rule: a principal, from a host, may or may not do an operation to resources.

    Words may be given as text in any case, `"read"`, or as Kafka's numbers.

    Attributes
    ----------
    principal : str
        `User:alice`, or `User:*` for everybody.
    operation : AclOperation
    resource_type : ResourceType
    resource_name : str
        `*` means all of the type; the cluster's is `kafka-cluster`.
    pattern_type : PatternType
        LITERAL, or PREFIXED for all whose names begin so.
    permission : AclPermission
    host : str
        The client's address, or `*`.

    Raises
    ------
    RequestError
        A word that Kafka does not know or that only a filter may say, a principal without a type,
        an empty name, or another cluster than `kafka-cluster`.
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
            raise RequestError(f"no colon between the principal's type and name: {self.principal}")
        if not self.resource_name:
            raise RequestError(f"the name of the {self.resource_type.name} is empty")
        if self.resource_type is ResourceType.CLUSTER and self.resource_name != CLUSTER_NAME:
            raise RequestError(f"the only CLUSTER is {CLUSTER_NAME}, not {self.resource_name}")

    def covers(self, resource_name: str) -> bool:
        """Tell whether the pattern stands for a name, whatever the type."""
        if self.pattern_type is PatternType.PREFIXED:
            return resource_name.startswith(self.resource_name)
        return self.resource_name in (WILDCARD, resource_name)


@dataclass(frozen=True, slots=True, init=False)
class AclFilter:
    """ACLs that are meant: those that agree in everything that is given.

    Attributes
    ----------
    resource_type, operation, permission : enumerations
        ANY for all of them.
    resource_name, principal, host : str or None
        None for all of them.
    pattern_type : PatternType
        ANY: patterns of this very name; MATCH: all patterns that stand for the name; else those
        of this type.

    Raises
    ------
    RequestError
        A word that Kafka does not know.
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
        """Tell whether an ACL is meant."""
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
    """Return what a word or a number of Kafka's means; UNKNOWN for a number it does not have.

    Raises
    ------
    RequestError
        It is no such word.
    """
    if isinstance(word, kind):
        return word
    if isinstance(word, int):
        return kind(word) if word in kind.__members__.values() else kind["UNKNOWN"]
    try:
        return kind[str(word).upper()]
    except KeyError:
        known = ", ".join(each for each in kind.__members__ if each not in _NOT_IN_ACLS)
        raise RequestError(f"{word!r} is none of {known}") from None
