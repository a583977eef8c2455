"""The configuration of topics and brokers, with Kafka's keys, defaults and precedence."""

from logstore.config.broker_config import (
    MIN_DEDUPE_BYTES_PER_THREAD,
    BrokerConfig,
    TopicDefault,
    parse_properties,
    read_properties,
)
from logstore.config.keys import ORIGIN_BROKER, ORIGIN_DEFAULT, ORIGIN_TOPIC
from logstore.config.log_config import LogConfig
from logstore.config.overrides import (
    ConfigValue,
    Overrides,
    alter_overrides,
    describe,
    effective_config,
    parse_overrides,
)

__all__ = [
    "MIN_DEDUPE_BYTES_PER_THREAD",
    "ORIGIN_BROKER",
    "ORIGIN_DEFAULT",
    "ORIGIN_TOPIC",
    "BrokerConfig",
    "ConfigValue",
    "LogConfig",
    "Overrides",
    "TopicDefault",
    "alter_overrides",
    "describe",
    "effective_config",
    "parse_overrides",
    "parse_properties",
    "read_properties",
]
