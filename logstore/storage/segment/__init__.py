"""The segments of a log: their files, and how they are replaced."""

from logstore.storage.segment.segment import LogSegment
from logstore.storage.segment.segments import LogSegments
from logstore.storage.segment.values import UNKNOWN_POSITION, BatchExtent, RollReason

__all__ = ["UNKNOWN_POSITION", "BatchExtent", "LogSegment", "LogSegments", "RollReason"]
