"""Topic and broker configs as form fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from logstore.config.dynamic import is_reconfigurable
from logstore.config.inert_keys import (
    STORED_BROKER_KEYS,
    STORED_TOPIC_KEYS,
    unknown_broker_key,
)
from logstore.config.keys import KAFKA_ORIGINS, ConfigKey, Kind, render
from logstore.config.units import unit_of
from logstore.types import INT32_MAX, INT64_MAX
from logstore.ui.api_request import get

if TYPE_CHECKING:
    from logstore.config.overrides import ConfigValue, LayeredValue
    from logstore.ui.api_request import ApiRequest

_LARGEST = {Kind.INT: INT32_MAX, Kind.LONG: INT64_MAX}


def topic_configs(request: ApiRequest) -> dict[str, Any]:
    """List the configs of a topic."""
    topic = request.topic("describe_configs")
    described = request.broker.describe_configs(topic)
    return {
        "topic": topic,
        "read_only": request.context.read_only_because is not None,
        "configs": [
            _field(STORED_TOPIC_KEYS[key], found, is_fixed=False)
            for key, found in described.items()
        ],
    }


def broker_configs(request: ApiRequest) -> dict[str, Any]:
    """List the configs of the broker."""
    request.require("describe_configs", "cluster")
    described = request.broker.describe_broker_configs()
    return {
        "topic": None,
        "read_only": request.context.read_only_because is not None,
        "configs": [
            _field(
                STORED_BROKER_KEYS.get(key) or unknown_broker_key(key),
                found,
                is_fixed=not is_reconfigurable(key),
            )
            for key, found in described.items()
        ],
    }


def _field(row: ConfigKey, found: ConfigValue, *, is_fixed: bool) -> dict[str, Any]:
    """Describe a config as a form field."""
    return {
        "key": row.key,
        "value": found.value,
        "default": render(row.default),
        "origin": found.origin,
        "source": KAFKA_ORIGINS[found.origin],
        "broker_key": found.broker_key,
        "kind": row.kind.value,
        "unit": unit_of(row.key) if row.kind in _LARGEST else None,
        "range": row.range_text,
        "bounds": _bounds(row),
        "choices": _choices(row),
        "documentation": row.doc,
        "read_only": is_fixed,
        # No known key is secret. Clients' passwords are not broker configs.
        "sensitive": row == unknown_broker_key(row.key),
        "layers": _layers(found.layers),
    }


def _bounds(row: ConfigKey) -> list[list[float | None]]:
    """Return the closed intervals of valid numbers. None means unbounded."""
    if row.kind not in (*_LARGEST, Kind.DOUBLE):
        return []
    largest = _LARGEST.get(row.kind)
    least = None if largest is None else -largest - 1
    return [
        [least if low is None else low, largest if high is None else high]
        for low, high in row.ranges or ((None, None),)
    ]


def _choices(row: ConfigKey) -> list[str]:
    return ["true", "false"] if row.kind is Kind.BOOLEAN else list(row.values)


def _layers(layers: Sequence[LayeredValue]) -> list[dict[str, str]]:
    return [each._asdict() for each in layers]


ROUTES = (
    get("/api/topics/{topic}/configs", topic_configs),
    get("/api/broker/configs", broker_configs),
)
