"""Kafka's group coordinator and transaction coordinator, and their internal topics."""
