"""The configuration of a producer: kafka-python's names, defaults and contradictions.

What has a meaning without a network is obeyed. The rest of what `KafkaProducer` knows, of release 3
and of those before it, is accepted and means nothing here; any other name is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from logstore.clients.client_config import (
    NETWORK_CONFIGS,
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
"""Requests in flight with which an idempotent producer still knows what is a duplicate."""

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
}
"""Names that are obeyed."""

WITHOUT_MEANING = NETWORK_CONFIGS | {
    "buffer_memory",
    "max_block_ms",
    "bootstrap_topics_filter",
}
"""Names of kafka-python's that mean nothing in one process."""


Serialize = DataFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """Configuration of a producer.

    Attributes
    ----------
    acks : int
        0: nothing is heard of what happens to a record. 1 and -1 are the same here.
    codec : Codec
        What batches are compressed with.
    batch_size : int
        Bytes up to which a batch takes records.
    linger_ms : float
        Time that a batch waits for more records; 0: it does not, and holds one.
    partitioner : object or None
        An object with kafka-python's `partition` method, or a callable of a key's bytes, all
        partitions and the available ones; None is Kafka's default.
    max_request_size : int
        Bytes of the largest record.
    retries : float
        How often a batch is sent again that was refused with an error that passes.
    retry_backoff_ms : float
        Time before that.
    delivery_timeout_ms : float
        Time after which such a batch is given up.
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

    @classmethod
    def of(cls, configs: Mapping[str, Any]) -> ProducerConfig:
        """Understand kafka-python's configs.

        Raises
        ------
        InvalidConfigurationError
            A name is unknown (the message has the nearest), a value cannot be obeyed, or two
            contradict each other.
        """
        check_names("producer", configs, DEFAULTS, WITHOUT_MEANING)
        values = {**DEFAULTS, **configs}
        transactional_id = values["transactional_id"]
        if transactional_id is not None and (
            not isinstance(transactional_id, str) or not transactional_id
        ):
            raise InvalidConfigurationError(f"transactional_id is no name: {transactional_id!r}")
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
        )


def _is_idempotent(configs: Mapping[str, Any], values: Mapping[str, Any], acks: int) -> bool:
    """Tell whether the producer is idempotent: by default, unless another config forbids it."""
    wanted = bool(values["enable_idempotence"])
    is_transactional = values["transactional_id"] is not None
    if is_transactional and not wanted:
        raise InvalidConfigurationError("transactional_id needs enable_idempotence")
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
        raise InvalidConfigurationError(
            f"enable_idempotence does not go with {', '.join(conflicts)}"
        )
    logger.warning("the producer is not idempotent: %s", ", ".join(conflicts))
    return False


def _acks(value: object) -> int:
    if value == "all":
        return ACKS_ALL
    if isinstance(value, int) and value in (0, 1, ACKS_ALL):
        return int(value)
    raise InvalidConfigurationError(f"acks is one of 0, 1, -1 and 'all', not {value!r}")


def _codec(name: object) -> Codec:
    if name is None:
        return Codec.NONE
    if not isinstance(name, str):
        raise InvalidConfigurationError(f"compression_type is a name or None, not {name!r}")
    return Codec.from_name(name)


def _partitioner(given: Any) -> Any:  # noqa: ANN401  # see ProducerConfig
    if given is None or callable(given) or callable(getattr(given, "partition", None)):
        return given
    raise InvalidConfigurationError(f"partitioner has no partition method: {given!r}")
