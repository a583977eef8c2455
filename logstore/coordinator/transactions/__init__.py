"""Transactions: the coordinator, its log, producer ids, and the appends of clients."""
