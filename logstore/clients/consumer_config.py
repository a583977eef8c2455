"""Consumer configuration: kafka-python's names, defaults and conflict rules.

The remaining configs of kafka-python 3's `KafkaConsumer` only apply to network connections and are
ignored. An unknown name is an error.
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
    closers_of,
    config,
    data_function,
    defaults_of,
    flag,
    number,
    parse_configs,
    text,
    unchanged,
    whole,
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
"""The configs that each group protocol disallows, as in the Java consumer."""
RESETS = {"smallest": EARLIEST, "largest": LATEST, EARLIEST: EARLIEST, LATEST: LATEST, NONE: NONE}

_INSTANCE_ID = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")


def _is_consumer_protocol(name: str, value: object) -> bool:
    if value not in _OTHER_PROTOCOL_CONFIGS:
        names = " or ".join(_OTHER_PROTOCOL_CONFIGS)
        raise InvalidConfigurationError(f"{name} must be {names}, not {value!r}")
    return value == CONSUMER


def _deserializer(name: str, given: object) -> DataFunction | None:
    return data_function(name, given, "deserialize")


def _instance_id(name: str, value: object) -> str | None:
    instance_id = text(name, value)
    if instance_id is not None and not _INSTANCE_ID.fullmatch(instance_id):
        raise InvalidConfigurationError(
            "group_instance_id must be 1 to 249 characters from A-Z a-z 0-9 . _ - (and not '.' or"
            f" '..'), not {instance_id!r}"
        )
    return instance_id


def _reset(_: str, value: object) -> str:
    if value not in RESETS:
        raise InvalidConfigurationError(
            f"auto_offset_reset must be {EARLIEST}, {LATEST} or {NONE}, not {value!r}"
        )
    return RESETS[str(value)]


def _isolation(_: str, value: object) -> Isolation:
    levels = (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED)
    for level in levels:
        if value == level.value:
            return level
    names = " or ".join(level.value for level in levels)
    raise InvalidConfigurationError(f"isolation_level must be {names}, not {value!r}")


def _assignors(_: str, value: object) -> tuple[Assignor, ...]:
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
    """Return an assignor, given its name or kafka-python's class."""
    name = given if isinstance(given, str) else getattr(given, "name", None)
    if name not in ASSIGNORS:
        raise InvalidConfigurationError(
            f"unknown assignor {given!r}{and_nearest(str(name), ASSIGNORS)}"
        )
    return ASSIGNORS[str(name)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """The configuration of a consumer. All times are in milliseconds.

    Attributes
    ----------
    group_id : str or None
        Name of the consumer group. If None, the consumer has no group and cannot commit offsets.
    group_instance_id : str or None
        Instance id of a static member (KIP-345).
    auto_offset_reset : str
        Where to start reading without a valid offset: `earliest` or `latest`, or `none` to raise
        an error.
    assignors : tuple of Assignor
        Assignors in order of preference. All of them must have the same rebalance protocol
        (cooperative or eager).
    consumer_timeout_ms : float
        Iteration stops after this time without a record.
    retry_backoff_ms : int
        How long to wait before retrying after a retriable error.
    request_timeout_ms : float
        Default timeout of `commit`.
    uses_consumer_protocol : bool
        Whether the consumer joins its group with the consumer protocol (KIP-848).
    group_remote_assignor : str or None
        The preferred server-side assignor with that protocol.
    """

    client_id: str = config("client_id", None, lambda _, name: name or "logstore-consumer")
    group_id: str | None = config("group_id", None, text)
    group_instance_id: str | None = config("group_instance_id", None, _instance_id)
    deserialize_key: DataFunction | None = config("key_deserializer", None, _deserializer)
    deserialize_value: DataFunction | None = config("value_deserializer", None, _deserializer)
    close_deserializers: tuple[Callable[[], object], ...]
    auto_offset_reset: str = config("auto_offset_reset", LATEST, _reset)
    enable_auto_commit: bool = config("enable_auto_commit", True, flag)
    auto_commit_interval_ms: int = config("auto_commit_interval_ms", 5000, whole(0))
    default_offset_commit_callback: Callable[..., object] | None = config(
        "default_offset_commit_callback", None, unchanged
    )
    isolation: Isolation = config("isolation_level", "read_uncommitted", _isolation)
    assignors: tuple[Assignor, ...] = config(
        "partition_assignment_strategy", ("range", "roundrobin"), _assignors
    )
    max_poll_records: int = config("max_poll_records", 500, whole(1))
    max_poll_interval_ms: int = config("max_poll_interval_ms", 300_000, whole(1))
    session_timeout_ms: int = config("session_timeout_ms", 45_000, whole(1))
    heartbeat_interval_ms: int = config("heartbeat_interval_ms", 3000, whole(1))
    consumer_timeout_ms: float = config("consumer_timeout_ms", float("inf"), number(0))
    exclude_internal_topics: bool = config("exclude_internal_topics", True, flag)
    retry_backoff_ms: int = config("retry_backoff_ms", 100, whole(1))
    request_timeout_ms: float = config("request_timeout_ms", 30_000, number(1, INT32_MAX))
    metrics_enabled: bool = config("metrics_enabled", True, flag)
    uses_consumer_protocol: bool = config("group_protocol", CLASSIC, _is_consumer_protocol)
    group_remote_assignor: str | None = config("group_remote_assignor", None, text)

    @classmethod
    def of(cls, configs: Mapping[str, Any]) -> ConsumerConfig:
        """Parse configs in kafka-python's format.

        Raises
        ------
        InvalidConfigurationError
            A name is unknown (the message suggests the most similar name), a value is invalid, or
            two values conflict.
        """
        check_names("consumer", configs, DEFAULTS)
        values = parse_configs(cls, configs)
        if values["group_id"] is None:
            if values["group_instance_id"] is not None:
                raise InvalidConfigurationError("group_instance_id requires group_id")
            values["enable_auto_commit"] = False
        protocol = CONSUMER if values["uses_consumer_protocol"] else CLASSIC
        for key in _OTHER_PROTOCOL_CONFIGS[protocol]:
            if configs.get(key) is not None:
                raise InvalidConfigurationError(
                    f"{key} cannot be set with group_protocol {protocol}"
                )
        heartbeat_ms, session_ms = values["heartbeat_interval_ms"], values["session_timeout_ms"]
        if heartbeat_ms >= session_ms:
            raise InvalidConfigurationError(
                f"heartbeat_interval_ms {heartbeat_ms} must be lower than session_timeout_ms"
                f" {session_ms}"
            )
        closers = closers_of(configs.get("key_deserializer"), configs.get("value_deserializer"))
        return cls(close_deserializers=closers, **values)


DEFAULTS = defaults_of(ConsumerConfig)
"""Defaults of the supported configs. The rest of `logstore.clients.settings` has no effect."""
