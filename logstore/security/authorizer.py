"""The authorizer: may a principal, from a host, do an operation to a resource, and why.

The rules of Kafka's StandardAuthorizer, which a test holds it to:

1. a super user may do everything;
2. of the ACLs that stand for the resource (its name, a prefix of it, or `*`), those are looked at
   that are for the principal or for `User:*`, for the host or for `*`, and for the operation;
3. one of them that denies, denies; else one that allows, allows;
4. where nothing stands for the resource at all, `allow_everyone_if_no_acl_found` decides;
5. else it is denied.

ALL is for every operation. Who is allowed to READ, WRITE, DELETE or ALTER may DESCRIBE, and who may
ALTER_CONFIGS may DESCRIBE_CONFIGS; to deny implies nothing.
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
"""Operations that come with the permission for others."""

# Kafka asks about this name to see whether somebody may do something to whatever there is.
_ANY_NAME = "hardcode"


class Decision(NamedTuple):
    """Answer of the authorizer.

    Attributes
    ----------
    allowed : bool
    rule : str
        `super_user`, `acl`, `no_acl` (nothing stands for the resource) or `default` (something
        does, but for others).
    acl : Acl or None
        What decided, under the rule `acl`.
    """

    allowed: bool
    rule: str
    acl: Acl | None = None


@dataclass(frozen=True, slots=True)
class _Patterns:
    """ACLs of one type of resource by their names, so that a look takes one search a length."""

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
        """Yield the ACLs that stand for a name."""
        yield from self.literal.get(name, ())
        for length in self.lengths:
            if length > len(name):
                break
            yield from self.prefixed.get(name[:length], ())
        # As in Kafka, which seeks `*` behind a name's prefixes: it does not stand for `*a`.
        if not name.startswith(WILDCARD):
            yield from self.literal.get(WILDCARD, ())


_NOTHING = _Patterns.of(())


class Authorizer:
    """Decides what each principal may do, by ACLs that can be changed at any time.

    Parameters
    ----------
    acls : iterable of Acl
    super_users : iterable of str
        Principals as `User:admin`, who may do everything.
    allow_everyone_if_no_acl_found : bool
        Whether a resource that no ACL stands for is open to all; Kafka's key of that name.

    Raises
    ------
    InvalidConfigurationError
        A super user without a type.

    Notes
    -----
    Any thread may call. A change takes the place of all at once, so that a decision goes by what
    was in force before or after it. One decision costs a search for each length that prefixes
    have; a change costs all ACLs once.

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
            raise InvalidConfigurationError(f"super_users is a list, not the text {super_users!r}")
        self.super_users = frozenset(super_users)
        for each in sorted(self.super_users):
            if ":" not in each:
                raise InvalidConfigurationError(f"super user '{each}' has no type, as in User:ann")
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
        """Decide about one operation to one resource.

        Raises
        ------
        RequestError
            A word that Kafka does not know.
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
        """Decide whether there can be a resource of a type that the operation may be done to.

        A pattern that allows counts unless one that denies stands for all it stands for: `*`, a
        prefix of its name, or the same literal. What other operations imply does not count.
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
        """Return the ACLs that a filter means, in order; all by default."""
        return sorted(self._acls if wanted is None else filter(wanted.matches, self._acls))

    def add(self, *acls: Acl) -> None:
        """Put ACLs in force; one that is already stays."""
        self._hold(self._acls.union(acls))

    def remove(self, wanted: AclFilter) -> list[Acl]:
        """Put out of force the ACLs that a filter means, and return them."""
        gone = self.acls(wanted)
        self._hold(self._acls.difference(gone))
        return gone

    # -- as text -------------------------------------------------------------------------

    @classmethod
    def from_json(cls, text: str) -> Authorizer:
        """Return the authorizer that JSON describes, as `to_json` writes it; all names optional.

        Raises
        ------
        InvalidConfigurationError
            It is no JSON, or says what there is not.
        """
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidConfigurationError(f"the ACLs are no JSON: {error}") from error
        given = _object(document, "the ACLs", set(_DEFAULTS))
        acls, super_users, is_open = (_DEFAULTS | given).values()
        if not isinstance(acls, list) or not isinstance(super_users, list):
            raise InvalidConfigurationError("acls and super_users are lists")
        if not isinstance(is_open, bool) or not all(isinstance(each, str) for each in super_users):
            raise InvalidConfigurationError(
                "allow_everyone_if_no_acl_found is true or false, super_users are texts"
            )
        return cls(
            [_acl_of(each, number) for number, each in enumerate(acls)],
            super_users=super_users,
            allow_everyone_if_no_acl_found=is_open,
        )

    def to_json(self) -> str:
        """Return everything as JSON."""
        document = {
            "super_users": sorted(self.super_users),
            "allow_everyone_if_no_acl_found": self.allow_everyone_if_no_acl_found,
            "acls": [_told(acl) for acl in self.acls()],
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
    """Tell whether an ACL speaks of an operation, be it by implication."""
    if acl.operation in (AclOperation.ALL, operation):
        return True
    return acl.permission is ALLOW and acl.operation in _IMPLIED_BY.get(operation, ())


def _is_for_all(acl: Acl) -> bool:
    return acl.pattern_type is PatternType.LITERAL and acl.resource_name == WILDCARD


def _is_denied(acl: Acl, denied: Mapping[PatternType, set[str]]) -> bool:
    """Tell whether patterns that deny stand for all that one that allows stands for."""
    name = acl.resource_name
    if acl.pattern_type is PatternType.LITERAL and name in denied[PatternType.LITERAL]:
        return True
    prefixes = denied[PatternType.PREFIXED]
    return any(name[:length] in prefixes for length in range(1, len(name) + 1))


def _object(value: object, what: str, known: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidConfigurationError(f"{what}: an object is wanted, not {value!r}")
    unknown = sorted(value.keys() - known)
    if unknown:
        raise InvalidConfigurationError(f"{what}: unknown {unknown[0]!r}, of {sorted(known)}")
    return value


def _told(acl: Acl) -> dict[str, str]:
    told = {name: getattr(acl, name) for name in Acl.__slots__}
    return {name: each.name if isinstance(each, IntEnum) else each for name, each in told.items()}


def _acl_of(value: object, number: int) -> Acl:
    what = f"ACL {number}"
    given = _object(value, what, set(Acl.__slots__))
    if not all(isinstance(each, str) for each in given.values()):
        raise InvalidConfigurationError(f"{what}: texts are wanted: {given}")
    try:
        return Acl(**given)
    except (TypeError, RequestError) as error:
        raise InvalidConfigurationError(f"{what}: {error}") from error
