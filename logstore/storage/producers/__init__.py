"""Producers of a partition: entries, rules, state, snapshots."""
