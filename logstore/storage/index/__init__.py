"""The indexes of a segment. They can be rebuilt from the .log file."""

from logstore.storage.index.offset_index import OffsetIndex
from logstore.storage.index.time_index import TimeIndex
from logstore.storage.index.transaction_index import TransactionIndex

__all__ = ["OffsetIndex", "TimeIndex", "TransactionIndex"]
