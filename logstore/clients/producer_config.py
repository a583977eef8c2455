"""Producer configuration: kafka-python's names, defaults and conflict rules.

The remaining configs of `KafkaProducer`, in kafka-python 3 and earlier releases, only apply to
network connections and are ignored. An unknown name is an error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

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
    whole,
)
from logstore.errors import InvalidConfigurationError
from logstore.record.codecs import Codec
from logstore.types import INT32_MAX

logger = logging.getLogger(__name__)

ACKS_ALL = -1
IN_FLIGHT_MAX = 5
"""Maximum number of in-flight requests with which brokers can detect duplicate batches."""

Serialize = DataFunction


def _serializer(name: str, given: object) -> DataFunction | None:
    return data_function(name, given, "serialize")


def _acks(_: str, value: object) -> int:
    if value == "all":
        return ACKS_ALL
    if isinstance(value, int) and value in (0, 1, ACKS_ALL):
        return int(value)
    raise InvalidConfigurationError(f"acks must be 0, 1, -1 or 'all', not {value!r}")


def _codec(_: str, name: object) -> Codec:
    if name is None:
        return Codec.NONE
    if not isinstance(name, str):
        raise InvalidConfigurationError(f"compression_type must be a name or None, not {name!r}")
    return Codec.from_name(name)


def _partitioner(_: str, given: Any) -> Any:  # noqa: ANN401  # see ProducerConfig
    if given is None or callable(given) or callable(getattr(given, "partition", None)):
        return given
    raise InvalidConfigurationError(f"partitioner has no partition method: {given!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """The configuration of a producer.

    Attributes
    ----------
    acks : int
        With 0, futures have neither an offset nor an error. 1 and -1 have the same effect here.
    codec : Codec
        The compression codec of batches.
    batch_size : int
        Maximum size in bytes up to which records are added to a batch.
    linger_ms : float
        How long a batch waits for more records. With 0, each record is a separate batch.
    partitioner : object or None
        An object with kafka-python's `partition` method, or a callable that takes the key (bytes),
        all partitions, and the available partitions. None selects Kafka's default partitioner.
    max_request_size : int
        Maximum size of a record in bytes.
    retries : float
        Maximum number of retries of a batch after retriable errors.
    retry_backoff_ms : float
        Time between retries.
    delivery_timeout_ms : float
        Time after which a batch fails instead of being retried.
    max_block_ms : float
        How long a transactional call waits for the coordinator in a cluster.
    in_flight : float
        Maximum number of in-flight requests, which only matters for idempotence.
    """

    client_id: str = config("client_id", None, lambda _, name: name or "logstore-producer")
    serialize_key: Serialize | None = config("key_serializer", None, _serializer)
    serialize_value: Serialize | None = config("value_serializer", None, _serializer)
    close_serializers: tuple[Callable[[], object], ...]
    enable_idempotence: bool = config("enable_idempotence", True, flag)
    transactional_id: str | None = config("transactional_id", None, text)
    transaction_timeout_ms: int = config("transaction_timeout_ms", 60_000, whole(1))
    acks: int = config("acks", ACKS_ALL, _acks)
    codec: Codec = config("compression_type", None, _codec)
    retries: float = config("retries", float("inf"), number(0))
    batch_size: int = config("batch_size", 16_384, whole(0))
    linger_ms: float = config("linger_ms", 0, number(0, INT32_MAX))
    partitioner: Any = config("partitioner", None, _partitioner)
    max_request_size: int = config("max_request_size", 1_048_576, whole(0))
    in_flight: float = config("max_in_flight_requests_per_connection", IN_FLIGHT_MAX, number(1))
    metrics_enabled: bool = config("metrics_enabled", True, flag)
    retry_backoff_ms: float = config("retry_backoff_ms", 100, number(1, INT32_MAX))
    delivery_timeout_ms: float = config("delivery_timeout_ms", 120_000, number(0, INT32_MAX))
    max_block_ms: float = config("max_block_ms", 60_000, number(0, INT32_MAX))

    @classmethod
    def of(cls, configs: Mapping[str, Any]) -> ProducerConfig:
        """Parse configs in kafka-python's format.

        Raises
        ------
        InvalidConfigurationError
            A name is unknown (the message suggests the most similar name), a value is invalid, or
            two values conflict.
        """
        check_names("producer", configs, DEFAULTS)
        closers = closers_of(configs.get("key_serializer"), configs.get("value_serializer"))
        parsed = cls(close_serializers=closers, **parse_configs(cls, configs))
        return replace(parsed, enable_idempotence=_is_idempotent(configs, parsed))


DEFAULTS = defaults_of(ProducerConfig)
"""Defaults of the supported configs. The rest of `logstore.clients.settings` has no effect."""


def _is_idempotent(configs: Mapping[str, Any], parsed: ProducerConfig) -> bool:
    """Return whether the producer is idempotent: by default, if the configs allow it."""
    is_transactional = parsed.transactional_id is not None
    if is_transactional and not parsed.enable_idempotence:
        raise InvalidConfigurationError("transactional_id requires enable_idempotence")
    if not parsed.enable_idempotence:
        return False
    conflicts = []
    if parsed.acks != ACKS_ALL:
        conflicts.append(f"acks={parsed.acks}")
    if parsed.retries == 0:
        conflicts.append("retries=0")
    if parsed.in_flight > IN_FLIGHT_MAX:
        conflicts.append(f"max_in_flight_requests_per_connection={parsed.in_flight}")
    if not conflicts:
        return True
    if is_transactional or "enable_idempotence" in configs:
        raise InvalidConfigurationError(f"enable_idempotence conflicts with {', '.join(conflicts)}")
    logger.warning("the producer is not idempotent: %s", ", ".join(conflicts))
    return False
