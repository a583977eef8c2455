"""Parsing of kafka-python's configs, shared by producer, consumer and admin client."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

from logstore.config.suggest import and_nearest
from logstore.errors import InvalidConfigurationError

NETWORK_CONFIGS = frozenset(
    (
        "allow_auto_create_topics",
        "api_version",
        "api_version_auto_timeout_ms",
        "bootstrap_servers",
        "bootstrap_timeout_ms",
        "client_dns_lookup",
        "connections_max_idle_ms",
        "kafka_client",
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
"""Configs of kafka-python that apply to connections. They are accepted and ignored."""

DataFunction = Callable[[str, list[tuple[str, bytes]], Any], Any]
"""A serializer or deserializer. It is called with the topic, the headers and the data."""


def check_names(
    client: str, configs: Mapping[str, Any], known: Collection[str], idle: Collection[str]
) -> None:
    """Raise an error if kafka-python has no config with this name, and suggest a similar one.

    Raises
    ------
    InvalidConfigurationError
    """
    for name in configs:
        if name not in known and name not in idle:
            hint = and_nearest(name, [*known, *sorted(idle)])
            raise InvalidConfigurationError(f"unknown {client} configuration {name!r}{hint}")


def number(
    name: str, values: Mapping[str, Any], lowest: int, highest: float = float("inf")
) -> float:
    """Return a config as a number after checking its range.

    Raises
    ------
    InvalidConfigurationError
    """
    value = values[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidConfigurationError(f"{name} must be a number, not {value!r}")
    if not lowest <= value <= highest:
        raise InvalidConfigurationError(f"{name} is out of range: {value}")
    return value


def data_function(name: str, given: Any, method_name: str) -> DataFunction | None:  # noqa: ANN401  # one of three kinds, see below
    """Adapt a serializer or deserializer to the signature of `DataFunction`.

    As in kafka-python, it may be a callable that takes the data, or an object with a method that
    takes (topic, data) or (topic, headers, data).

    Raises
    ------
    InvalidConfigurationError
    """
    if given is None:
        return None
    method = getattr(given, method_name, None)
    if method is None:
        if not callable(given):
            raise InvalidConfigurationError(f"{name} is not callable: {given!r}")
        return lambda _topic, _headers, data: given(data)
    try:
        inspect.signature(method).bind("topic", [], None)
    except TypeError:
        return lambda topic, _headers, data: method(topic, data)
    return lambda topic, headers, data: method(topic, headers, data)
