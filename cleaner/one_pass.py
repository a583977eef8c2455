"""One pass over a log, and the ways it can end."""

from __future__ import annotations

from collections.abc import Callable, Generator
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from logstore.cleaner.errors import CleaningAbortedError, OffsetMapFullError, OverflowedSegmentError
from logstore.cleaner.selection import still_fits
from logstore.errors import (
    CorruptionError,
    InvalidConfigurationError,
    InvalidOffsetError,
    KafkaStorageError,
    SegmentOverflowError,
    UnsupportedFormatError,
)
from logstore.runtime.guard import StorageGuard

if TYPE_CHECKING:
    from logstore.cleaner.config import CleanerConfig
    from logstore.cleaner.passes.clean import PassProgress
    from logstore.cleaner.selection import CleanableState
    from logstore.cleaner.stats import CleanerStats
    from logstore.storage.log.log import Log

FOR_GOOD = (CorruptionError, UnsupportedFormatError, SegmentOverflowError, InvalidOffsetError)
"""Errors that a further attempt would meet again; the log serves on, but is left uncleaned."""


class Ending(Enum):
    """Outcome of a pass."""

    FINISHED = auto()
    OUTDATED = auto()  # the log was cut since it was measured: it is as due as it was
    ABORTED = auto()  # somebody wanted the partition
    MAP_FULL = auto()  # not even the first key fits
    OVERFLOWED = auto()  # a segment must be split first
    DAMAGED = auto()  # `FOR_GOOD`
    DISK_FAILED = auto()
    REFUSED = auto()  # the memory is too small for the topic's strategy
    FAILED = auto()  # by anything else: the end of the broker, a defect of this engine
    CLOSED = auto()  # by whoever drives it

    @classmethod
    def by(cls, error: Exception) -> Ending:
        """Return how a pass ended that raised an error."""
        return next(ending for kinds, ending in _ENDINGS if isinstance(error, kinds))


_ENDINGS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], Ending], ...] = (
    (CleaningAbortedError, Ending.ABORTED),
    (OffsetMapFullError, Ending.MAP_FULL),
    (OverflowedSegmentError, Ending.OVERFLOWED),
    (FOR_GOOD, Ending.DAMAGED),
    (KafkaStorageError, Ending.DISK_FAILED),
    (InvalidConfigurationError, Ending.REFUSED),
    (Exception, Ending.FAILED),
)

_STORED = (Ending.OVERFLOWED, Ending.DAMAGED, Ending.FAILED, Ending.CLOSED)
"""Endings after which the first dirty offset is stored again, as Kafka's `doneCleaning` does."""


class Outcome(NamedTuple):
    """Outcome of a pass.

    Attributes
    ----------
    stats : CleanerStats or None
        Its numbers, if it finished.
    error : Exception or None
        What it raised, if it raised anything.
    checkpoint : int or None
        First dirty offset to be stored; None if the stored one stays.
    """

    ending: Ending
    stats: CleanerStats | None = None
    error: Exception | None = None
    checkpoint: int | None = None


def one_pass(
    log: Log,
    state: CleanableState,
    config: CleanerConfig,
    checkpoint_of: Callable[[], int | None],
    check: Callable[[], None],
    *,
    tell: Callable[[PassProgress], object] | None = None,
    number: int = 1,
    dry_run: bool = False,
) -> Generator[PassProgress, None, Outcome]:
    """Clean a log as it was measured; only a failing disk has consequences here.

    Parameters
    ----------
    state : CleanableState
        What to clean.
    checkpoint_of : callable
        Returns the stored first dirty offset.
    check : callable
        Called before each chunk; raises if the pass is to end.
    tell : callable, optional
        Told how far the pass is, before each chunk.
    number : int
        Which pass over the log it is, from 1.
    dry_run : bool
        Write nothing, and take nothing offline.

    Notes
    -----
    Yields before each chunk and holds no lock then; closing it removes what is unfinished.
    """
    from logstore.cleaner.passes.clean import clean_pass

    first_dirty, upper_bound = state.first_dirty_offset, state.upper_bound_offset
    has_begun = False
    steps = clean_pass(log, config, first_dirty, upper_bound, pass_number=number, dry_run=dry_run)
    try:
        with StorageGuard(None if dry_run else log, log.topic_partition, "cannot clean"):
            with log.lock:
                log.check_open()  # one of the same name may be in its place, or none
                if not still_fits(log, state, checkpoint_of()):
                    return Outcome(Ending.OUTDATED)
                has_begun = True
                log.reader.open_files(upper_bound)
                step = next(steps)  # knows its segments now, which may be removed from here on
            while True:
                if tell is not None:
                    tell(step)
                yield step
                check()
                step = next(steps)
    except StopIteration as done:
        stats: CleanerStats = done.value
        return Outcome(Ending.FINISHED, stats, checkpoint=stats.end_offset)
    except Exception as error:
        ending = Ending.by(error)
        is_stored = has_begun and ending in _STORED
        return Outcome(ending, error=error, checkpoint=first_dirty if is_stored else None)
    finally:
        steps.close()


def closed(state: CleanableState) -> Outcome:
    """Return what came of a pass whose driver closed it."""
    return Outcome(Ending.CLOSED, checkpoint=state.first_dirty_offset)
