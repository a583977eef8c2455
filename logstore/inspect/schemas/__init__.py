"""Decoding of keys and values: JSON, and Confluent's wire format with schemas from files."""
