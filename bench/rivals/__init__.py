"""Peers: Kafka's classes on a JVM, Python clients, and other brokers."""
