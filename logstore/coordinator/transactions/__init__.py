"""Transactions: producer ids, what the coordinator decides and stores, and the door of clients."""
