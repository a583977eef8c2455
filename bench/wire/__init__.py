"""Brokers side by side over the wire: speed, cost, and the truth of what they serve."""
