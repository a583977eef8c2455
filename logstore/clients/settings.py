"""The keyword settings of the clients as types, with which type checkers find invalid settings.

`producer_config`, `consumer_config` and `client_config` define the names and parse the values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict


class NetworkSettings(TypedDict, total=False):
    """kafka-python's settings for connections, which have no effect here."""

    allow_auto_create_topics: bool
    api_version: Any
    api_version_auto_timeout_ms: float
    bootstrap_servers: str | Sequence[str]
    bootstrap_timeout_ms: float
    client_dns_lookup: str | None
    connections_max_idle_ms: float
    kafka_client: Any
    metadata_max_age_ms: float
    metric_reporters: Any
    metrics_num_samples: int | None
    metrics_sample_window_ms: float
    proxy_url: str | None
    receive_buffer_bytes: int | None
    receive_message_max_bytes: int | None
    reconnect_backoff_max_ms: float
    reconnect_backoff_ms: float
    sasl_kerberos_domain_name: str | None
    sasl_kerberos_name: str | None
    sasl_kerberos_service_name: str | None
    sasl_mechanism: str | None
    sasl_oauth_token_provider: Any
    sasl_plain_password: str | None
    sasl_plain_username: str | None
    security_protocol: str | None
    selector: Any
    send_buffer_bytes: int | None
    sock_chunk_buffer_count: int | None
    sock_chunk_bytes: int | None
    socket_options: Any
    socks5_proxy: str | None
    ssl_cafile: str | None
    ssl_certfile: str | None
    ssl_check_hostname: bool
    ssl_ciphers: str | None
    ssl_context: Any
    ssl_crlfile: str | None
    ssl_keyfile: str | None
    ssl_password: str | None


class ProducerSettings(NetworkSettings, total=False):
    """The settings of `Broker.producer`. Times are in milliseconds."""

    client_id: str | None
    key_serializer: Any
    value_serializer: Any
    enable_idempotence: bool
    transactional_id: str | None
    transaction_timeout_ms: float
    acks: Literal[0, 1, -1, "all"]
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] | None
    retries: float
    batch_size: float
    linger_ms: float
    partitioner: Any
    max_request_size: float
    max_in_flight_requests_per_connection: float
    metrics_enabled: bool
    request_timeout_ms: float
    retry_backoff_ms: float
    delivery_timeout_ms: float
    bootstrap_topics_filter: Any
    buffer_memory: float
    max_block_ms: float


class ConsumerSettings(NetworkSettings, total=False):
    """The settings of `Broker.consumer`. Times are in milliseconds."""

    client_id: str | None
    group_id: str | None
    group_instance_id: str | None
    key_deserializer: Any
    value_deserializer: Any
    auto_offset_reset: Literal["earliest", "latest", "none", "smallest", "largest"]
    enable_auto_commit: bool
    auto_commit_interval_ms: float
    default_offset_commit_callback: Callable[..., object] | None
    isolation_level: Literal["read_uncommitted", "read_committed"]
    partition_assignment_strategy: Sequence[Any]
    max_poll_records: float
    max_poll_interval_ms: float
    session_timeout_ms: float
    heartbeat_interval_ms: float
    consumer_timeout_ms: float
    exclude_internal_topics: bool
    retry_backoff_ms: float
    request_timeout_ms: float
    metrics_enabled: bool
    group_protocol: Literal["classic", "consumer"]
    group_remote_assignor: str | None
    check_crcs: bool
    client_rack: str | None
    enable_incremental_fetch_sessions: bool
    fetch_max_bytes: float
    fetch_max_wait_ms: float
    fetch_min_bytes: float
    max_in_flight_requests_per_connection: float
    max_partition_fetch_bytes: float
    metric_group_prefix: str


class AdminSettings(NetworkSettings, total=False):
    """The settings of `Broker.admin`. Only `client_id` has an effect."""

    client_id: str | None
    request_timeout_ms: float
    metrics_enabled: bool
    retry_backoff_ms: float
