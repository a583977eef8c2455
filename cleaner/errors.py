"""Errors of the cleaner.

CleaningError (LogStoreError)
├─ CleaningAbortedError            normal: another caller needs the partition; nothing changed
├─ OverflowedSegmentError          normal: a source segment must be split first
├─ OffsetMapFullError              normal: the range ends here, and another pass continues
└─ IllegalCleaningStateError       (+IllegalStateError) a partition cannot be paused, resumed or
                                   released in its current state
"""

from __future__ import annotations

from logstore.errors import IllegalStateError, LogStoreError


class CleaningError(LogStoreError):
    """A cleaning pass did not complete."""


class CleaningAbortedError(CleaningError):
    """The pass was aborted and its unfinished output removed."""


class OverflowedSegmentError(CleaningError):
    """The segment at `base_offset` has offsets more than 2^31-1 above its base offset."""

    def __init__(self, message: str, *, base_offset: int) -> None:
        super().__init__(message)
        self.base_offset = base_offset


class OffsetMapFullError(CleaningError):
    """The map contains the maximum number of keys."""


class IllegalCleaningStateError(CleaningError, IllegalStateError):
    """The operation is not allowed in the partition's state (Kafka's IllegalStateException)."""
