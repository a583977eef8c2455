"""Consumer groups: membership, rebalances, committed offsets, and the protocol of KIP-848."""
