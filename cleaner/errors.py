"""Errors of the cleaner.

CleaningError (LogStoreError)
├─ CleaningAbortedError            normal: somebody wants the partition; nothing was changed
├─ OffsetMapFullError              normal: the range ends here, another pass goes on
└─ IllegalCleaningStateError       a partition was to be paused, resumed or released out of turn
"""

from __future__ import annotations

from logstore.errors import LogStoreError


class CleaningError(LogStoreError):
    """A pass did not come to its end."""


class CleaningAbortedError(CleaningError):
    """The pass was told to stop; its unfinished output is removed."""


class OffsetMapFullError(CleaningError):
    """The map took as many keys as its buffer counts."""


class IllegalCleaningStateError(CleaningError):
    """A partition's state does not allow what was asked (Kafka's IllegalStateException)."""
