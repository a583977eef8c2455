"""The producers of a partition: entries, rules, state and snapshots."""
