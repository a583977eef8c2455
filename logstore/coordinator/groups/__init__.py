"""Consumer groups: membership, rebalances, committed offsets, and the consumer protocol."""
