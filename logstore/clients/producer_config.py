"""Producer configuration: kafka-python's names, defaults and conflict rules.

The other configs of `KafkaProducer`, in kafka-python 3 and in earlier releases, only apply to
network connections. They are accepted and ignored. An unknown name is an error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from logstore.clients.client_config import (
    DataFunction,
    check_names,
    data_function,
    number,
)
from logstore.errors import InvalidConfigurationError
from logstore.record.codecs import Codec
from logstore.types import INT32_MAX

logger = logging.getLogger(__name__)

ACKS_ALL = -1
IN_FLIGHT_MAX = 5
"""Maximum number of requests in flight for which brokers can detect duplicate batches."""

DEFAULTS: dict[str, Any] = {
    "client_id": None,
    "key_serializer": None,
    "value_serializer": None,
    "enable_idempotence": True,
    "transactional_id": None,
    "transaction_timeout_ms": 60_000,
    "acks": ACKS_ALL,
    "compression_type": None,
    "retries": float("inf"),
    "batch_size": 16_384,
    "linger_ms": 0,
    "partitioner": None,
    "max_request_size": 1_048_576,
    "max_in_flight_requests_per_connection": IN_FLIGHT_MAX,
    "metrics_enabled": True,
    "retry_backoff_ms": 100,
    "delivery_timeout_ms": 120_000,
    "max_block_ms": 60_000,
}
"""Supported configs. The others of `logstore.clients.settings` have no effect."""


Serialize = DataFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """The configuration of a producer.

    Attributes
    ----------
    acks : int
        With 0, a future has neither an offset nor an error. 1 and -1 have the same effect here.
    codec : Codec
        The compression codec of batches.
    batch_size : int
        Maximum size in bytes up to which records are added to a batch.
    linger_ms : float
        Time that a batch waits for more records. With 0, each record is a batch of its own.
    partitioner : object or None
        An object with the `partition` method of kafka-python, or a callable with the arguments key
        (bytes), all partitions, available partitions. If None, Kafka's default partitioner is used.
    max_request_size : int
        Maximum size of a record in bytes.
    retries : float
        Number of times that a batch is retried after retriable errors.
    retry_backoff_ms : float
        Time between two retries.
    delivery_timeout_ms : float
        Time after which a batch fails instead of being retried.
    max_block_ms : float
        How long a transactional call waits for the coordinator in a cluster.
    """

    client_id: str
    serialize_key: Serialize | None
    serialize_value: Serialize | None
    close_serializers: tuple[Callable[[], object], ...]
    enable_idempotence: bool
    transactional_id: str | None
    transaction_timeout_ms: int
    acks: int
    codec: Codec
    batch_size: int
    linger_ms: float
    partitioner: Any
    max_request_size: int
    metrics_enabled: bool
    retries: float
    retry_backoff_ms: float
    delivery_timeout_ms: float
    max_block_ms: float

    @classmethod
    def of(cls, configs: Mapping[str, Any]) -> ProducerConfig:
        """Parse the configs given in kafka-python's form.

        Raises
        ------
        InvalidConfigurationError
            A name is unknown (the message suggests the most similar one), a value is invalid, or
            two values contradict each other.
        """
        check_names("producer", configs, DEFAULTS)
        values = {**DEFAULTS, **configs}
        transactional_id = values["transactional_id"]
        if transactional_id is not None and (
            not isinstance(transactional_id, str) or not transactional_id
        ):
            raise InvalidConfigurationError(
                f"transactional_id must be a non-empty string, not {transactional_id!r}"
            )
        acks = _acks(values["acks"])
        serializers = (values["key_serializer"], values["value_serializer"])
        return cls(
            client_id=values["client_id"] or "logstore-producer",
            serialize_key=data_function("key_serializer", serializers[0], "serialize"),
            serialize_value=data_function("value_serializer", serializers[1], "serialize"),
            close_serializers=tuple(
                each.close for each in serializers if callable(getattr(each, "close", None))
            ),
            enable_idempotence=_is_idempotent(configs, values, acks),
            transactional_id=transactional_id,
            transaction_timeout_ms=int(number("transaction_timeout_ms", values, 1, INT32_MAX)),
            acks=acks,
            codec=_codec(values["compression_type"]),
            batch_size=int(number("batch_size", values, 0, INT32_MAX)),
            linger_ms=number("linger_ms", values, 0, INT32_MAX),
            partitioner=_partitioner(values["partitioner"]),
            max_request_size=int(number("max_request_size", values, 0, INT32_MAX)),
            metrics_enabled=bool(values["metrics_enabled"]),
            retries=number("retries", values, 0),
            retry_backoff_ms=number("retry_backoff_ms", values, 1, INT32_MAX),
            delivery_timeout_ms=number("delivery_timeout_ms", values, 0, INT32_MAX),
            max_block_ms=number("max_block_ms", values, 0, INT32_MAX),
        )


def _is_idempotent(configs: Mapping[str, Any], values: Mapping[str, Any], acks: int) -> bool:
    """Return whether the producer is idempotent, which is the default if the configs allow it."""
    wanted = bool(values["enable_idempotence"])
    is_transactional = values["transactional_id"] is not None
    if is_transactional and not wanted:
        raise InvalidConfigurationError("transactional_id requires enable_idempotence")
    if not wanted:
        return False
    in_flight = "max_in_flight_requests_per_connection"
    conflicts = []
    if acks != ACKS_ALL:
        conflicts.append(f"acks={acks}")
    if number("retries", values, 0) == 0:
        conflicts.append("retries=0")
    if number(in_flight, values, 1) > IN_FLIGHT_MAX:
        conflicts.append(f"{in_flight}={values[in_flight]}")
    if not conflicts:
        return True
    if is_transactional or "enable_idempotence" in configs:
        raise InvalidConfigurationError(f"enable_idempotence conflicts with {', '.join(conflicts)}")
    logger.warning("the producer is not idempotent: %s", ", ".join(conflicts))
    return False


def _acks(value: object) -> int:
    if value == "all":
        return ACKS_ALL
    if isinstance(value, int) and value in (0, 1, ACKS_ALL):
        return int(value)
    raise InvalidConfigurationError(f"acks must be 0, 1, -1 or 'all', not {value!r}")


def _codec(name: object) -> Codec:
    if name is None:
        return Codec.NONE
    if not isinstance(name, str):
        raise InvalidConfigurationError(f"compression_type must be a name or None, not {name!r}")
    return Codec.from_name(name)


def _partitioner(given: Any) -> Any:  # noqa: ANN401  # see ProducerConfig
    if given is None or callable(given) or callable(getattr(given, "partition", None)):
        return given
    raise InvalidConfigurationError(f"partitioner has no partition method: {given!r}")
