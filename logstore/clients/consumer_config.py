"""Consumer configuration: kafka-python's names, defaults and conflict rules.

The other configs of kafka-python 3's `KafkaConsumer` only apply to network connections. They are
accepted and ignored. An unknown name is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from logstore.clients.arguments import EARLIEST, LATEST
from logstore.clients.client_config import (
    DataFunction,
    check_names,
    data_function,
    number,
)
from logstore.config.suggest import and_nearest
from logstore.coordinator.groups.assignors import ASSIGNORS, Assignor
from logstore.errors import InvalidConfigurationError
from logstore.storage.log.reader import Isolation
from logstore.types import INT32_MAX

NONE = "none"
CLASSIC, CONSUMER = "classic", "consumer"
_OTHER_PROTOCOL_CONFIGS = {
    CLASSIC: ("group_remote_assignor",),
    CONSUMER: (
        "partition_assignment_strategy",
        "session_timeout_ms",
        "heartbeat_interval_ms",
    ),
}
"""The configs that are not allowed with each group protocol, as in the Java consumer."""
RESETS = {"smallest": EARLIEST, "largest": LATEST, EARLIEST: EARLIEST, LATEST: LATEST, NONE: NONE}

DEFAULTS: dict[str, Any] = {
    "client_id": None,
    "group_id": None,
    "group_instance_id": None,
    "key_deserializer": None,
    "value_deserializer": None,
    "auto_offset_reset": LATEST,
    "enable_auto_commit": True,
    "auto_commit_interval_ms": 5000,
    "default_offset_commit_callback": None,
    "isolation_level": "read_uncommitted",
    "partition_assignment_strategy": ("range", "roundrobin"),
    "max_poll_records": 500,
    "max_poll_interval_ms": 300_000,
    "session_timeout_ms": 45_000,
    "heartbeat_interval_ms": 3000,
    "consumer_timeout_ms": float("inf"),
    "exclude_internal_topics": True,
    "retry_backoff_ms": 100,
    "request_timeout_ms": 30_000,
    "metrics_enabled": True,
    "group_protocol": "classic",
    "group_remote_assignor": None,
}
"""Supported configs. The others of `logstore.clients.settings` have no effect."""


_INSTANCE_ID = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """The configuration of a consumer. All times are in ms.

    Attributes
    ----------
    group_id : str or None
        Name of the consumer group. If None, the consumer has no group and cannot commit offsets.
    group_instance_id : str or None
        Instance id of a static member (KIP-345).
    auto_offset_reset : str
        Where to start reading without a valid offset: `earliest` or `latest`. If `none`, an
        error is raised instead.
    assignors : tuple of Assignor
        Assignors in order of preference. Either all of them are cooperative or none is.
    consumer_timeout_ms : float
        An iteration stops after this time without a record.
    retry_backoff_ms : int
        Time to wait before a retry after a retriable error.
    request_timeout_ms : float
        Default timeout of `commit`.
    uses_consumer_protocol : bool
        Whether the consumer uses the protocol of KIP-848 to join its group.
    group_remote_assignor : str or None
        The server-side assignor that the consumer prefers with that protocol.
    """

    client_id: str
    group_id: str | None
    group_instance_id: str | None
    deserialize_key: DataFunction | None
    deserialize_value: DataFunction | None
    close_deserializers: tuple[Callable[[], object], ...]
    auto_offset_reset: str
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    default_offset_commit_callback: Callable[..., object] | None
    isolation: Isolation
    assignors: tuple[Assignor, ...]
    max_poll_records: int
    max_poll_interval_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    consumer_timeout_ms: float
    exclude_internal_topics: bool
    retry_backoff_ms: int
    request_timeout_ms: float
    metrics_enabled: bool
    uses_consumer_protocol: bool
    group_remote_assignor: str | None

    @classmethod
    def of(cls, configs: Mapping[str, Any]) -> ConsumerConfig:
        """Parse the configs given in kafka-python's form.

        Raises
        ------
        InvalidConfigurationError
            A name is unknown (the message suggests the most similar one), a value is invalid, or
            two values contradict each other.
        """
        check_names("consumer", configs, DEFAULTS)
        values = {**DEFAULTS, **configs}
        group_id = _name("group_id", values["group_id"])
        deserializers = (values["key_deserializer"], values["value_deserializer"])
        session_ms = int(number("session_timeout_ms", values, 1, INT32_MAX))
        heartbeat_ms = int(number("heartbeat_interval_ms", values, 1, INT32_MAX))
        if heartbeat_ms >= session_ms:
            raise InvalidConfigurationError(
                f"heartbeat_interval_ms {heartbeat_ms} must be lower than session_timeout_ms"
                f" {session_ms}"
            )
        return cls(
            client_id=values["client_id"] or "logstore-consumer",
            group_id=group_id,
            group_instance_id=_instance_id(values["group_instance_id"], group_id),
            deserialize_key=data_function("key_deserializer", deserializers[0], "deserialize"),
            deserialize_value=data_function("value_deserializer", deserializers[1], "deserialize"),
            close_deserializers=tuple(
                each.close for each in deserializers if callable(getattr(each, "close", None))
            ),
            auto_offset_reset=_reset(values["auto_offset_reset"]),
            enable_auto_commit=bool(values["enable_auto_commit"]) and group_id is not None,
            auto_commit_interval_ms=int(number("auto_commit_interval_ms", values, 0, INT32_MAX)),
            default_offset_commit_callback=values["default_offset_commit_callback"],
            isolation=_isolation(values["isolation_level"]),
            assignors=_assignors(values["partition_assignment_strategy"]),
            max_poll_records=int(number("max_poll_records", values, 1, INT32_MAX)),
            max_poll_interval_ms=int(number("max_poll_interval_ms", values, 1, INT32_MAX)),
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=heartbeat_ms,
            consumer_timeout_ms=number("consumer_timeout_ms", values, 0),
            exclude_internal_topics=bool(values["exclude_internal_topics"]),
            retry_backoff_ms=int(number("retry_backoff_ms", values, 1, INT32_MAX)),
            request_timeout_ms=number("request_timeout_ms", values, 1, INT32_MAX),
            metrics_enabled=bool(values["metrics_enabled"]),
            uses_consumer_protocol=_uses_consumer_protocol(configs),
            group_remote_assignor=_name("group_remote_assignor", values["group_remote_assignor"]),
        )


def _name(key: str, value: object) -> str | None:
    if value is not None and (not isinstance(value, str) or not value):
        raise InvalidConfigurationError(f"{key} must be a non-empty string, not {value!r}")
    return value


def _uses_consumer_protocol(configs: Mapping[str, Any]) -> bool:
    """Return whether `group_protocol` is `consumer`, and check that the other configs match."""
    protocol = configs.get("group_protocol", CLASSIC)
    if protocol not in _OTHER_PROTOCOL_CONFIGS:
        names = " or ".join(_OTHER_PROTOCOL_CONFIGS)
        raise InvalidConfigurationError(f"group_protocol must be {names}, not {protocol!r}")
    for key in _OTHER_PROTOCOL_CONFIGS[protocol]:
        if configs.get(key) is not None:
            raise InvalidConfigurationError(f"{key} cannot be set with group_protocol {protocol}")
    return bool(protocol == CONSUMER)


def _instance_id(value: object, group_id: str | None) -> str | None:
    name = _name("group_instance_id", value)
    if name is None:
        return None
    if group_id is None:
        raise InvalidConfigurationError("group_instance_id requires group_id")
    if not _INSTANCE_ID.fullmatch(name):
        raise InvalidConfigurationError(
            "group_instance_id must be 1 to 249 characters from A-Z a-z 0-9 . _ - (and not '.' or"
            f" '..'), not {name!r}"
        )
    return name


def _reset(value: object) -> str:
    if value not in RESETS:
        raise InvalidConfigurationError(
            f"auto_offset_reset must be {EARLIEST}, {LATEST} or {NONE}, not {value!r}"
        )
    return RESETS[str(value)]


def _isolation(value: object) -> Isolation:
    levels = (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED)
    for level in levels:
        if value == level.value:
            return level
    names = " or ".join(level.value for level in levels)
    raise InvalidConfigurationError(f"isolation_level must be {names}, not {value!r}")


def _assignors(value: object) -> tuple[Assignor, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise InvalidConfigurationError(
            f"partition_assignment_strategy must be a list of assignors, not {value!r}"
        )
    assignors = tuple(_assignor(each) for each in value)
    if len({each.is_cooperative for each in assignors}) > 1:
        raise InvalidConfigurationError(
            "partition_assignment_strategy mixes eager and cooperative assignors:"
            f" {', '.join(each.name for each in assignors)}"
        )
    return assignors


def _assignor(given: object) -> Assignor:
    """Return an assignor given by its name or by kafka-python's class."""
    name = given if isinstance(given, str) else getattr(given, "name", None)
    if name not in ASSIGNORS:
        raise InvalidConfigurationError(
            f"unknown assignor {given!r}{and_nearest(str(name), ASSIGNORS)}"
        )
    return ASSIGNORS[str(name)]
