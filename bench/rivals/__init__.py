"""The peers that are measured against: Kafka's classes on a JVM, clients in Python, brokers."""
