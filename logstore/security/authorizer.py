"""The authorizer, which decides whether a principal may perform an operation on a resource.

A test compares it with Kafka's StandardAuthorizer. The rules are:

1. A super user may perform all operations.
2. An ACL applies if it matches the resource (by name, prefix or `*`), the principal (or `User:*`),
   the host (or `*`) and the operation.
3. If any applicable ACL denies, the decision is deny. If not and any ACL allows, it is allow.
4. If no ACL matches the resource, `allow_everyone_if_no_acl_found` decides.
5. In all other cases, the decision is deny.

ALL matches every operation. Allowing READ, WRITE, DELETE or ALTER also allows DESCRIBE. Allowing
ALTER_CONFIGS also allows DESCRIBE_CONFIGS. Denying an operation denies no other operations.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from logstore.errors import InvalidConfigurationError, RequestError
from logstore.security.acls import (
    WILDCARD,
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    word_of,
)

ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
EVERYBODY = f"User:{WILDCARD}"

_IMPLIED_BY = {
    AclOperation.DESCRIBE: frozenset(
        {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS}),
}
"""The operations that imply each operation when they are allowed."""

# The resource name that Kafka uses to check for any resource of a type.
_ANY_NAME = "hardcode"


class Decision(NamedTuple):
    """A decision of the authorizer, with its reason.

    Attributes
    ----------
    allowed : bool
    rule : str
        `super_user`, `acl`, `no_acl` (no ACL matches the resource) or `default` (ACLs match the
        resource, but no ACL applies).
    acl : Acl or None
        The deciding ACL if the rule is `acl`, or None.
    """

    allowed: bool
    rule: str
    acl: Acl | None = None


@dataclass(frozen=True, slots=True)
class _Patterns:
    """The ACLs of one resource type by name. A lookup costs one search per prefix length."""

    literal: dict[str, list[Acl]]
    prefixed: dict[str, list[Acl]]
    lengths: tuple[int, ...]

    @classmethod
    def of(cls, acls: Iterable[Acl]) -> _Patterns:
        literal: dict[str, list[Acl]] = {}
        prefixed: dict[str, list[Acl]] = {}
        for acl in acls:
            by_name = prefixed if acl.pattern_type is PatternType.PREFIXED else literal
            by_name.setdefault(acl.resource_name, []).append(acl)
        return cls(literal, prefixed, tuple(sorted({len(name) for name in prefixed})))

    def covering(self, name: str) -> Iterator[Acl]:
        """Yield the ACLs that match a resource name."""
        yield from self.literal.get(name, ())
        for length in self.lengths:
            if length > len(name):
                break
            yield from self.prefixed.get(name[:length], ())
        # As in Kafka, `*` does not match names that start with `*`.
        if not name.startswith(WILDCARD):
            yield from self.literal.get(WILDCARD, ())


_NOTHING = _Patterns.of(())


class Authorizer:
    """Checks the permissions of principals by ACLs that can change at any time.

    The class is thread-safe.

    Parameters
    ----------
    acls : iterable of Acl
    super_users : iterable of str
        Principals, such as `User:admin`, that may perform all operations.
    allow_everyone_if_no_acl_found : bool
        Whether everyone may access a resource without matching ACLs
        (`allow.everyone.if.no.acl.found`).

    Raises
    ------
    InvalidConfigurationError
        A super user has no principal type.

    Notes
    -----
    Changes are atomic: a decision uses the ACLs either before or after a change. A decision costs
    one search per prefix length, and a change costs O(number of ACLs).

    Examples
    --------
    >>> authorizer = Authorizer([Acl("User:ann", "read", "topic", "orders-", "prefixed")])
    >>> authorizer.authorize("User:ann", "127.0.0.1", "describe", "topic", "orders-eu").allowed
    True
    """

    def __init__(
        self,
        acls: Iterable[Acl] = (),
        *,
        super_users: Iterable[str] = (),
        allow_everyone_if_no_acl_found: bool = False,
    ) -> None:
        if isinstance(super_users, str):
            raise InvalidConfigurationError(f"super_users must be a list, not {super_users!r}")
        self.super_users = frozenset(super_users)
        for each in sorted(self.super_users):
            if ":" not in each:
                raise InvalidConfigurationError(
                    f"super user {each!r} has no type: expected TYPE:NAME, such as User:ann"
                )
        self.allow_everyone_if_no_acl_found = allow_everyone_if_no_acl_found
        self._acls: frozenset[Acl] = frozenset()
        self._patterns: dict[ResourceType, _Patterns] = {}
        self._hold(frozenset(acls))

    def _hold(self, acls: frozenset[Acl]) -> None:
        by_type: dict[ResourceType, list[Acl]] = {}
        for acl in sorted(acls):
            by_type.setdefault(acl.resource_type, []).append(acl)
        self._patterns = {kind: _Patterns.of(each) for kind, each in by_type.items()}
        self._acls = acls

    # -- decisions -----------------------------------------------------------------------

    def authorize(
        self,
        principal: str,
        host: str,
        operation: AclOperation | str,
        resource_type: ResourceType | str,
        resource_name: str,
    ) -> Decision:
        """Decide whether an operation on a resource is allowed.

        Raises
        ------
        RequestError
            An operation or resource type is unknown to Kafka.
        """
        operation = word_of(AclOperation, operation)
        resource_type = word_of(ResourceType, resource_type)
        if principal in self.super_users:
            return Decision(True, "super_user")
        allowing, found_any = None, False
        for acl in self._patterns.get(resource_type, _NOTHING).covering(resource_name):
            found_any = True
            if not _is_for(acl, principal, host) or not _permits(acl, operation):
                continue
            if acl.permission is DENY:
                return Decision(False, "acl", acl)
            allowing = allowing or acl
        if allowing is not None:
            return Decision(True, "acl", allowing)
        if not found_any:
            return Decision(self.allow_everyone_if_no_acl_found, "no_acl")
        return Decision(False, "default")

    def authorize_by_resource_type(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> Decision:
        """Decide whether an operation may be allowed on any resource of a type.

        An allowing pattern counts unless a denying pattern covers it: `*`, a prefix of its name, or
        the same literal. Implied operations do not count.
        """
        anything = self.authorize(principal, host, operation, resource_type, _ANY_NAME)
        if anything.allowed:
            return anything
        denied: dict[PatternType, set[str]] = {
            PatternType.LITERAL: set(),
            PatternType.PREFIXED: set(),
        }
        allowing = []
        for acl in sorted(self._acls):
            if (
                acl.resource_type is not resource_type
                or not _is_for(acl, principal, host)
                or acl.operation not in (AclOperation.ALL, operation)
            ):
                continue
            if acl.permission is ALLOW:
                allowing.append(acl)
            elif _is_for_all(acl):
                return Decision(False, "acl", acl)
            else:
                denied[acl.pattern_type].add(acl.resource_name)
        for acl in allowing:
            if _is_for_all(acl) or not _is_denied(acl, denied):
                return Decision(True, "acl", acl)
        return Decision(False, "default")

    # -- the ACLs themselves -------------------------------------------------------------

    def acls(self, wanted: AclFilter | None = None) -> list[Acl]:
        """Return the sorted ACLs that a filter selects, by default all."""
        return sorted(self._acls if wanted is None else filter(wanted.matches, self._acls))

    def add(self, *acls: Acl) -> None:
        """Add ACLs to the existing ACLs."""
        self._hold(self._acls.union(acls))

    def remove(self, wanted: AclFilter) -> list[Acl]:
        """Remove the ACLs that a filter selects. Return the removed ACLs."""
        gone = self.acls(wanted)
        self._hold(self._acls.difference(gone))
        return gone

    # -- as text -------------------------------------------------------------------------

    @classmethod
    def from_json(cls, text: str) -> Authorizer:
        """Create an authorizer from the JSON of `to_json`, in which all members are optional.

        Raises
        ------
        InvalidConfigurationError
            The JSON is malformed, or has unknown members or values.
        """
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidConfigurationError(f"the ACLs are not valid JSON: {error}") from error
        given = _object(document, "the ACLs", set(_DEFAULTS))
        acls, super_users, is_open = (_DEFAULTS | given).values()
        if not isinstance(acls, list) or not isinstance(super_users, list):
            raise InvalidConfigurationError("acls and super_users must be lists")
        if not isinstance(is_open, bool) or not all(isinstance(each, str) for each in super_users):
            raise InvalidConfigurationError(
                "allow_everyone_if_no_acl_found must be a boolean, and super_users strings"
            )
        return cls(
            [_acl_of(each, number) for number, each in enumerate(acls)],
            super_users=super_users,
            allow_everyone_if_no_acl_found=is_open,
        )

    def to_json(self) -> str:
        """Return the super users, the default decision and the ACLs as JSON."""
        document = {
            "super_users": sorted(self.super_users),
            "allow_everyone_if_no_acl_found": self.allow_everyone_if_no_acl_found,
            "acls": [_json_of(acl) for acl in self.acls()],
        }
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


_DEFAULTS: dict[str, Any] = {
    "acls": [],
    "super_users": [],
    "allow_everyone_if_no_acl_found": False,
}


def _is_for(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, EVERYBODY) and acl.host in (host, WILDCARD)


def _permits(acl: Acl, operation: AclOperation) -> bool:
    """Return whether an ACL covers an operation, directly or by implication."""
    if acl.operation in (AclOperation.ALL, operation):
        return True
    return acl.permission is ALLOW and acl.operation in _IMPLIED_BY.get(operation, ())


def _is_for_all(acl: Acl) -> bool:
    return acl.pattern_type is PatternType.LITERAL and acl.resource_name == WILDCARD


def _is_denied(acl: Acl, denied: Mapping[PatternType, set[str]]) -> bool:
    """Return whether denying patterns cover an allowing ACL."""
    name = acl.resource_name
    if acl.pattern_type is PatternType.LITERAL and name in denied[PatternType.LITERAL]:
        return True
    prefixes = denied[PatternType.PREFIXED]
    return any(name[:length] in prefixes for length in range(1, len(name) + 1))


def _object(value: object, what: str, known: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidConfigurationError(f"{what}: expected an object, got {value!r}")
    unknown = sorted(value.keys() - known)
    if unknown:
        raise InvalidConfigurationError(f"{what}: unknown {unknown[0]!r}; known: {sorted(known)}")
    return value


def _json_of(acl: Acl) -> dict[str, str]:
    given = {name: getattr(acl, name) for name in Acl.__slots__}
    return {name: each.name if isinstance(each, IntEnum) else each for name, each in given.items()}


def _acl_of(value: object, number: int) -> Acl:
    what = f"ACL {number}"
    given = _object(value, what, set(Acl.__slots__))
    if not all(isinstance(each, str) for each in given.values()):
        raise InvalidConfigurationError(f"{what}: expected strings, got {given}")
    try:
        return Acl(**given)
    except (TypeError, RequestError) as error:
        raise InvalidConfigurationError(f"{what}: {error}") from error
