"""The configuration of topics and brokers, with Kafka's keys, defaults and precedence."""
