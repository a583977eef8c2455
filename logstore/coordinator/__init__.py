"""Kafka's two coordinators, of groups and of transactions, and their internal topics."""
