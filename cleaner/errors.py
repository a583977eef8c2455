"""Errors of the cleaner.

CleaningError (LogStoreError)
├─ CleaningAbortedError normal: another caller wants the partition; nothing changed
├─ OverflowedSegmentError          normal: a source must be split first
├─ OffsetMapFullError              normal: the range ends here, another pass continues
└─ IllegalCleaningStateError       (+IllegalStateError) a partition cannot be paused, resumed or
                                   released in its present state
"""

from __future__ import annotations

from logstore.errors import IllegalStateError, LogStoreError


class CleaningError(LogStoreError):
    """A pass did not finish."""


class CleaningAbortedError(CleaningError):
    """The pass was aborted. Its unfinished output is removed."""


class OverflowedSegmentError(CleaningError):
    """The segment at `base_offset` contains offsets more than 31 bits above its base."""

    def __init__(self, message: str, *, base_offset: int) -> None:
        super().__init__(message)
        self.base_offset = base_offset


class OffsetMapFullError(CleaningError):
    """The map contains as many keys as its buffer counts."""


class IllegalCleaningStateError(CleaningError, IllegalStateError):
    """The partition's state does not allow the request (Kafka's IllegalStateException)."""
