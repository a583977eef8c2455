"""Indexes of a segment: derived data that the .log file can rebuild."""

from logstore.index.offset_index import OffsetIndex
from logstore.index.time_index import TimeIndex
from logstore.index.transaction_index import TransactionIndex

__all__ = ["OffsetIndex", "TimeIndex", "TransactionIndex"]
