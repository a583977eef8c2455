"""The configuration of a producer: kafka-python's names, defaults and contradictions.

What has a meaning without a network is obeyed. The rest of what `KafkaProducer` knows, of release 3
and of those before it, is accepted and means nothing here; any other name is refused.
"""

from __future__ import annotations

import inspect
import itertools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from logstore.config.suggest import nearest
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
}
"""Names that are obeyed."""

WITHOUT_MEANING = frozenset(
    (
        "allow_auto_create_topics",
        "api_version",
        "api_version_auto_timeout_ms",
        "bootstrap_servers",
        "bootstrap_timeout_ms",
        "bootstrap_topics_filter",
        "buffer_memory",
        "client_dns_lookup",
        "connections_max_idle_ms",
        "delivery_timeout_ms",
        "kafka_client",
        "max_block_ms",
        "metadata_max_age_ms",
        "metric_reporters",
        "metrics_num_samples",
        "metrics_sample_window_ms",
        "proxy_url",
        "receive_buffer_bytes",
        "receive_message_max_bytes",
        "reconnect_backoff_max_ms",
        "reconnect_backoff_ms",
        "request_timeout_ms",
        "retry_backoff_ms",
        "sasl_kerberos_domain_name",
        "sasl_kerberos_name",
        "sasl_kerberos_service_name",
        "sasl_mechanism",
        "sasl_oauth_token_provider",
        "sasl_plain_password",
        "sasl_plain_username",
        "security_protocol",
        "selector",
        "send_buffer_bytes",
        "sock_chunk_buffer_count",
        "sock_chunk_bytes",
        "socket_options",
        "socks5_proxy",
        "ssl_cafile",
        "ssl_certfile",
        "ssl_check_hostname",
        "ssl_ciphers",
        "ssl_context",
        "ssl_crlfile",
        "ssl_keyfile",
        "ssl_password",
    )
)
"""Names of kafka-python's that mean nothing in one process."""

_client_numbers = itertools.count(1)

Serialize = Callable[[str, list[tuple[str, bytes]], Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """What a producer goes by.

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

    @classmethod
    def of(cls, configs: Mapping[str, Any]) -> ProducerConfig:
        """Understand kafka-python's configs.

        Raises
        ------
        InvalidConfigurationError
            A name is unknown (the message has the nearest), a value cannot be obeyed, or two
            contradict each other.
        """
        for name in configs:
            if name not in DEFAULTS and name not in WITHOUT_MEANING:
                meant = nearest(name, [*DEFAULTS, *sorted(WITHOUT_MEANING)])
                raise InvalidConfigurationError(
                    f"unknown producer configuration {name!r}; the nearest is {meant!r}"
                )
        values = {**DEFAULTS, **configs}
        transactional_id = values["transactional_id"]
        if transactional_id is not None and (
            not isinstance(transactional_id, str) or not transactional_id
        ):
            raise InvalidConfigurationError(f"transactional_id is no name: {transactional_id!r}")
        acks = _acks(values["acks"])
        serializers = (values["key_serializer"], values["value_serializer"])
        return cls(
            client_id=values["client_id"] or f"logstore-producer-{next(_client_numbers)}",
            serialize_key=_serializer("key_serializer", serializers[0]),
            serialize_value=_serializer("value_serializer", serializers[1]),
            close_serializers=tuple(
                each.close for each in serializers if callable(getattr(each, "close", None))
            ),
            enable_idempotence=_is_idempotent(configs, values, acks),
            transactional_id=transactional_id,
            transaction_timeout_ms=int(_number("transaction_timeout_ms", values, 1, INT32_MAX)),
            acks=acks,
            codec=_codec(values["compression_type"]),
            batch_size=int(_number("batch_size", values, 0, INT32_MAX)),
            linger_ms=_number("linger_ms", values, 0, INT32_MAX),
            partitioner=_partitioner(values["partitioner"]),
            max_request_size=int(_number("max_request_size", values, 0, INT32_MAX)),
            metrics_enabled=bool(values["metrics_enabled"]),
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
    if _number("retries", values, 0) == 0:
        conflicts.append("retries=0")
    if _number(in_flight, values, 1) > IN_FLIGHT_MAX:
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


def _number(
    name: str, values: Mapping[str, Any], lowest: int, highest: float = float("inf")
) -> float:
    value = values[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidConfigurationError(f"{name} is a number, not {value!r}")
    if not lowest <= value <= highest:
        raise InvalidConfigurationError(f"{name} is out of range: {value}")
    return value


def _serializer(name: str, given: Any) -> Serialize | None:  # noqa: ANN401  # kafka-python takes three shapes
    """Bring the three shapes of a serializer to one: callable, `serialize` of two or of three."""
    if given is None:
        return None
    method = getattr(given, "serialize", None)
    if method is None:
        if not callable(given):
            raise InvalidConfigurationError(f"{name} is not callable: {given!r}")
        return lambda _topic, _headers, data: given(data)
    try:
        inspect.signature(method).bind("topic", [], None)
    except TypeError:
        return lambda topic, _headers, data: method(topic, data)
    return lambda topic, headers, data: method(topic, headers, data)


def _partitioner(given: Any) -> Any:  # noqa: ANN401  # see ProducerConfig
    if given is None or callable(given) or callable(getattr(given, "partition", None)):
        return given
    raise InvalidConfigurationError(f"partitioner has no partition method: {given!r}")
