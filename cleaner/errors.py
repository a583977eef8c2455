"""Errors of the cleaner.

CleaningError (LogStoreError)
├─ CleaningAbortedError            normal: somebody wants the partition; nothing was changed
├─ OverflowedSegmentError          normal: a source must be split first
├─ OffsetMapFullError              normal: the range ends here, another pass goes on
└─ IllegalCleaningStateError       (+IllegalStateError) a partition was to be paused, resumed or
                                   released out of turn
"""

from __future__ import annotations

from logstore.errors import IllegalStateError, LogStoreError


class CleaningError(LogStoreError):
    """A pass did not come to its end."""


class CleaningAbortedError(CleaningError):
    """The pass was told to stop; its unfinished output is removed."""


class OverflowedSegmentError(CleaningError):
    """The segment at `base_offset` holds offsets more than 31 bits above its base."""

    def __init__(self, message: str, *, base_offset: int) -> None:
        super().__init__(message)
        self.base_offset = base_offset


class OffsetMapFullError(CleaningError):
    """The map took as many keys as its buffer counts."""


class IllegalCleaningStateError(CleaningError, IllegalStateError):
    """A partition's state does not allow what was asked (Kafka's IllegalStateException)."""
