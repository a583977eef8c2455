"""Client quotas, which are stored and described but not enforced."""

from __future__ import annotations

import ipaddress
import math
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from logstore.errors import KAFKA_CODES
from logstore.messages.types import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from logstore.types import INT32_MAX, INT64_MAX
from logstore.wire.refusal import Refusal, code_of, message_of
from logstore.wire.registry import HandlerThread, handles
from logstore.wire.session import ELEMENTS_IN_LOOP

if TYPE_CHECKING:
    from logstore.wire.client_quotas import Entity
    from logstore.wire.session import Session

_USER, _CLIENT, _ADDRESS = "user", "client-id", "ip"

_OF_CLIENTS: Mapping[str, float] = {
    "producer_byte_rate": INT64_MAX,
    "consumer_byte_rate": INT64_MAX,
    "request_percentage": math.inf,
    "controller_mutation_rate": math.inf,
}
_OF_ADDRESSES: Mapping[str, float] = {"connection_creation_rate": INT32_MAX}
"""The quotas and their maximum values. Quotas without a maximum may be fractions."""


_Key = frozenset[tuple[str, str | None]]
"""The parts of an entity, in any order."""

# -- AlterClientQuotas -----------------------------------------------------------------------------


@handles("AlterClientQuotas", HandlerThread.WORKER)
def alter_client_quotas(
    request: AlterClientQuotasRequest, session: Session
) -> AlterClientQuotasResponse:
    """Change client quotas, which are stored but not enforced."""
    allowed = session.allows("alter_configs", "cluster")
    asked = Counter(_key(entry.entity) for entry in request.entries)
    results, changes = [], []
    for entry in request.entries:
        result = AlterClientQuotasResponse.EntryData(
            error_message=None,
            entity=[
                AlterClientQuotasResponse.EntityData(
                    entity_type=each.entity_type, entity_name=each.entity_name
                )
                for each in entry.entity
            ],
        )
        try:
            changes.append(_change(entry, asked, is_allowed=allowed))
        except Refusal as error:
            result.error_code, result.error_message = code_of(error), message_of(error)
        results.append(result)
    if not request.validate_only:
        session.service.quotas.alter(changes)
    return AlterClientQuotasResponse(entries=results)


def _change(
    entry: AlterClientQuotasRequest.EntryData, asked: Mapping[_Key, int], *, is_allowed: bool
) -> tuple[Entity, dict[str, float | None]]:
    """Return a validated change of quotas, or raise `Refusal`."""
    if not is_allowed:
        raise Refusal("CLUSTER_AUTHORIZATION_FAILED")
    if asked[_key(entry.entity)] > 1 or len({op.key for op in entry.ops}) < len(entry.ops):
        text = ", ".join(f"{each.entity_type}={each.entity_name}" for each in entry.entity)
        raise Refusal(
            "INVALID_REQUEST",
            f"Ignoring duplicate entity ClientQuotaEntity(entries={{{text}}})",
        )
    entity = _entity(entry.entity)
    return entity, {
        op.key: None if op.remove else _checked(entity, op.key, op.value) for op in entry.ops
    }


def _key(parts: Sequence[AlterClientQuotasRequest.EntityData]) -> _Key:
    return frozenset((each.entity_type, each.entity_name) for each in parts)


def _entity(parts: Sequence[AlterClientQuotasRequest.EntityData]) -> Entity:
    """Return a validated entity, or raise `Refusal`. The last name of a repeated type is used."""
    entity = {each.entity_type: each.entity_name for each in parts}
    if not entity:
        raise Refusal("INVALID_REQUEST", "Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in (_USER, _CLIENT, _ADDRESS):
            raise Refusal("INVALID_REQUEST", f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise Refusal("INVALID_REQUEST", f"Empty {kind} not supported")
    if _ADDRESS in entity and len(entity) > 1:
        raise Refusal(
            "INVALID_REQUEST",
            "Invalid quota entity combination, IP entity should"
            "not be combined with User or ClientId",
        )
    address = entity.get(_ADDRESS)
    if address is not None and not _is_address(address):
        text = f"{address} is not a valid IP or resolvable host."
        raise Refusal("INVALID_REQUEST", text)
    return tuple(sorted(entity.items()))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        try:
            socket.getaddrinfo(text, None)
        except (OSError, UnicodeError):
            return False
    return True


def _checked(entity: Entity, key: str, value: float) -> float:
    largest = (_OF_ADDRESSES if entity[0][0] == _ADDRESS else _OF_CLIENTS).get(key)
    if largest is None:
        raise Refusal("INVALID_REQUEST", f"Invalid configuration key {key}")
    if value <= 0:
        raise Refusal("INVALID_REQUEST", f"Quota {key} must be greater than 0")
    if largest < math.inf and not math.isnan(value):
        if value > largest:
            kind = "LONG" if largest == INT64_MAX else "INT"
            text = f"Proposed value for {key} is too large for a {kind}."
            raise Refusal("INVALID_REQUEST", text)
        if value != math.floor(value):
            raise Refusal("INVALID_REQUEST", f"{key} cannot be a fractional value.")
    return value


# -- DescribeClientQuotas --------------------------------------------------------------------------

_EXACT, _DEFAULT, _SPECIFIED = range(3)
_MATCHES = {_EXACT: "EXACT", _DEFAULT: "DEFAULT", _SPECIFIED: "SPECIFIED"}


class _Filter(NamedTuple):
    match: int
    name: str | None

    def matches(self, name: str | None) -> bool:
        return self.match == _SPECIFIED or name == (None if self.match == _DEFAULT else self.name)


@handles("DescribeClientQuotas", HandlerThread.WORKER)
def describe_client_quotas(
    request: DescribeClientQuotasRequest, session: Session
) -> DescribeClientQuotasResponse:
    """Return the client quotas that match a filter."""
    response = DescribeClientQuotasResponse(entries=None)
    if not session.allows("describe_configs", "cluster"):
        response.error_code = KAFKA_CODES["CLUSTER_AUTHORIZATION_FAILED"]
        response.error_message = "Cluster authorization failed."
        return response
    try:
        filters = _filters(request.components)
    except Refusal as error:
        response.error_code, response.error_message = code_of(error), message_of(error)
        return response
    response.error_message = ""
    response.entries = [
        DescribeClientQuotasResponse.EntryData(
            entity=[
                DescribeClientQuotasResponse.EntityData(entity_type=kind, entity_name=name)
                for kind, name in entity
            ],
            values=[
                DescribeClientQuotasResponse.ValueData(key=key, value=value)
                for key, value in values.items()
            ],
        )
        for entity, values in session.service.quotas
        if _is_selected(dict(entity), filters, is_strict=request.strict)
    ]
    session.is_large |= len(response.entries) > ELEMENTS_IN_LOOP
    return response


def _is_selected(
    entity: Mapping[str, str | None], filters: Mapping[str, _Filter], *, is_strict: bool
) -> bool:
    if is_strict and len(entity) != len(filters):
        return False
    return all(kind in entity and each.matches(entity[kind]) for kind, each in filters.items())


def _filters(
    components: Sequence[DescribeClientQuotasRequest.ComponentData],
) -> dict[str, _Filter]:
    filters: dict[str, _Filter] = {}
    for each in components:
        kind, match, name = each.entity_type, each.match_type, each.match
        if not kind:
            raise Refusal("INVALID_REQUEST", "Invalid empty entity type.")
        if kind in filters:
            text = f"Entity type {kind} cannot appear more than once in the filter."
            raise Refusal("INVALID_REQUEST", text)
        if kind not in (_USER, _CLIENT, _ADDRESS):
            raise Refusal("UNSUPPORTED_VERSION", f"Unsupported entity type {kind}")
        if match not in _MATCHES:
            raise Refusal("INVALID_REQUEST", f"Unknown match type {match}")
        if match == _EXACT and name is None:
            text = "Request specified MATCH_TYPE_EXACT, but set match string to null."
            raise Refusal("INVALID_REQUEST", text)
        if match != _EXACT and name is not None:
            kind = f"MATCH_TYPE_{_MATCHES[match]}"
            text = f"Request specified {kind}, but also specified a match string."
            raise Refusal("INVALID_REQUEST", text)
        filters[kind] = _Filter(match, name)
    if _ADDRESS in filters and len(filters) > 1:
        raise Refusal(
            "INVALID_REQUEST",
            "Invalid entity filter component combination. IP filter component should not be used"
            " with user or clientId filter component.",
        )
    return filters
