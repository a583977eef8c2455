"""Transactions: the coordinator and its log, producer ids, and the append path of clients."""
