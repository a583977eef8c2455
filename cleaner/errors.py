"""Errors of the cleaner.

CleaningError (LogStoreError)
├─ CleaningAbortedError            normal: somebody wants the partition; nothing was changed
├─ OverflowedSegmentError          normal: a source must be split first
├─ OffsetMapFullError              normal: the range ends here, another pass goes on
└─ IllegalCleaningStateError       a partition was to be paused, resumed or released out of turn
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.errors import LogStoreError

if TYPE_CHECKING:
    from logstore.segment import LogSegment


class CleaningError(LogStoreError):
    """A pass did not come to its end."""


class CleaningAbortedError(CleaningError):
    """The pass was told to stop; its unfinished output is removed."""


class OverflowedSegmentError(CleaningError):
    """A segment holds offsets more than 31 bits above its base; `segment` is that one."""

    def __init__(self, message: str, segment: LogSegment) -> None:
        super().__init__(message)
        self.segment = segment


class OffsetMapFullError(CleaningError):
    """The map took as many keys as its buffer counts."""


class IllegalCleaningStateError(CleaningError):
    """A partition's state does not allow what was asked (Kafka's IllegalStateException)."""
