"""Errors of the cleaner.

CleaningError (LogStoreError)
├─ CleaningAbortedError            normal: somebody wants the partition; nothing was changed
├─ OffsetMapFullError              normal: the range ends here, another pass goes on
└─ UnsupportedTransactionsError    the log has producer ids or markers; not cleaned yet
"""

from __future__ import annotations

from logstore.errors import LogStoreError


class CleaningError(LogStoreError):
    """A pass did not come to its end."""


class CleaningAbortedError(CleaningError):
    """The pass was told to stop; its unfinished output is removed."""


class OffsetMapFullError(CleaningError):
    """The map took as many keys as its buffer counts."""


class UnsupportedTransactionsError(CleaningError):
    """A batch of an idempotent or transactional producer, or a control batch, was met."""
