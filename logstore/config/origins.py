"""Origins of a value: the layers that can set a key, by the words of `topic describe`."""

ORIGIN_TOPIC = "topic"
ORIGIN_DYNAMIC_BROKER = "dynamic broker"
ORIGIN_DYNAMIC_DEFAULT = "dynamic default"
ORIGIN_BROKER = "broker"
ORIGIN_DEFAULT = "default"

KAFKA_ORIGINS = {
    ORIGIN_TOPIC: "DYNAMIC_TOPIC_CONFIG",
    ORIGIN_DYNAMIC_BROKER: "DYNAMIC_BROKER_CONFIG",
    ORIGIN_DYNAMIC_DEFAULT: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    ORIGIN_BROKER: "STATIC_BROKER_CONFIG",
    ORIGIN_DEFAULT: "DEFAULT_CONFIG",
}
"""Kafka's names of the origins (ConfigEntry.ConfigSource)."""
