"""Consistent read-only views of partitions that another process writes.

A reader does not acquire a lock, so files and their contents may change while it loads a partition,
for example when cleaned segments are swapped in, a segment is rolled or deleted, or an append is in
progress. Files can then appear to be missing or damaged. A view is therefore only accepted if it
has no findings and the closed segments did not change while it was loaded. Otherwise it is loaded
again. The number of attempts is limited, because a busy writer may never pause. The files of an
accepted view are held open, so that their bytes remain readable after they are renamed or removed.

A directory without a writer is loaded once, and its findings are reported.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from logstore.errors import CorruptionError, KafkaStorageError, UnknownTopicOrPartitionError
from logstore.names import LOG_SUFFIX, SEGMENT_SUFFIXES, parse_segment_file

if TYPE_CHECKING:
    from logstore.runtime import Clock, FileStat, OverlayFileSystem
    from logstore.storage.log.log import Log

logger = logging.getLogger(__name__)

ATTEMPTS_MAX = 9
"""Maximum number of attempts to load a view. The pauses take at most 1.25 s in total."""

FIRST_PAUSE_MS = 5
"""Pause before the second attempt. Each further pause is twice as long as the last."""

HELD_FILES_MAX = 512
"""Maximum number of files of views that are kept open.

It is half of the usual limit of file descriptors.
"""

IN_PROGRESS = frozenset({"removed_leftover", "rebuilt_index"})
"""Findings that are normal while another process writes: segments that are being added or removed,
and an active segment without an index yet."""

TRANSIENT = (CorruptionError, KafkaStorageError, OSError)
"""Errors that a change by another process can cause."""


def pause_after(attempt: int, clock: Clock) -> None:
    """Wait after a failed attempt. The first attempt is number 1."""
    clock.sleep(FIRST_PAUSE_MS * 2 ** (attempt - 1) / 1000)


class Views:
    """Views of the partitions in a data directory that another process may be writing.

    Parameters
    ----------
    fs : OverlayFileSystem
        An overlay over the files on disk.
    writer : callable
        Returns the id of the process that writes the directory, or None if there is none.
    reload : callable
        Reads the directory's checkpoints again.
    """

    def __init__(
        self,
        fs: OverlayFileSystem,
        clock: Clock,
        writer: Callable[[], int | None],
        reload: Callable[[], None],
    ) -> None:
        self._fs = fs
        self._clock = clock
        self._writer = writer
        self._reload = reload
        self._held: deque[str] = deque()

    def take(
        self, folder: str, load: Callable[[int], Log], load_last: Callable[[int], Log] | None = None
    ) -> Log:
        """Load a partition. Repeat this if its files change in the meantime.

        Parameters
        ----------
        folder : str
            The partition directory, which existed when the data directory was listed.
        load : callable
            Opens the log and reports its findings at the given `logging` level.
        load_last : callable, optional
            Makes the last attempt, whose result is always accepted. [default: `load`]

        Raises
        ------
        UnknownTopicOrPartitionError
            The directory does not exist: the partition was deleted or moved.
        CorruptionError, KafkaStorageError
            Every attempt failed, or an attempt failed while no process writes the directory.
        OSError
            The disk failed while no process writes the directory.
        """
        attempt = 1
        while attempt < ATTEMPTS_MAX and self._writer() is not None:
            self._fs.refresh(folder)
            before = self._finished(folder)
            try:
                log = load(logging.INFO)
                if all(finding.action in IN_PROGRESS for finding in log.findings):
                    self._pin(log)
                    if before.is_unchanged(self._finished(folder)):
                        log.findings = ()
                        return log
                log.close()
            except TRANSIENT as error:
                logger.info("%s: attempt %d: %s", folder, attempt, error)
            self.refresh(folder, attempt)
            attempt += 1
        try:
            return (load_last or load)(logging.WARNING)
        except OSError as error:
            if attempt < ATTEMPTS_MAX:
                raise
            # Not a disk failure: a file was renamed after it was listed and before it was opened.
            raise KafkaStorageError(
                f"{folder}: another process changed it during each of {ATTEMPTS_MAX} attempts to"
                f" read it; try again ({error})"
            ) from error

    def refresh(self, folder: str, attempt: int) -> None:
        """Wait after a failed attempt, and discard the list of files for the retry."""
        pause_after(attempt, self._clock)
        self._fs.refresh(folder)
        self._reload()

    def _finished(self, folder: str) -> _Finished:
        """Return the files that do not change unless segments are replaced."""
        base = self._fs.base
        try:
            parts = {name: parse_segment_file(name) for name in base.list_dir(folder)}
        except FileNotFoundError:
            raise UnknownTopicOrPartitionError(f"{folder} was deleted or moved") from None
        logs = [part.base_offset for part in parts.values() if part and part.kind == LOG_SUFFIX]
        last = max(logs, default=0)
        found: dict[str, tuple[int, FileStat | None]] = {}
        for name, each in parts.items():
            is_file = each is not None and each.kind in SEGMENT_SUFFIXES and not each.state
            if each is not None and is_file and each.base_offset < last:
                try:
                    found[name] = (each.base_offset, base.stat(f"{folder}/{name}"))
                except FileNotFoundError:
                    found[name] = (each.base_offset, None)
        return _Finished(last, found)

    def _pin(self, log: Log) -> None:
        """Keep the files of a view open. Above the limit, close the files of the oldest views."""
        for segment in log.segments:
            indexes = (segment.offset_index, segment.time_index, segment.txn_index)
            for path in (segment.log_path, *(index.path for index in indexes)):
                if self._fs.exists(path):
                    while len(self._held) >= HELD_FILES_MAX:
                        self._fs.unpin(self._held.popleft())
                    self._fs.pin(path)
                    self._held.append(path)


class _Finished(NamedTuple):
    """File name to base offset and file status, for all segments but the last."""

    last_base_offset: int
    files: dict[str, tuple[int, FileStat | None]]

    def is_unchanged(self, later: _Finished) -> bool:
        """Return whether `later` has the same files, ignoring segments that were started since."""
        last = self.last_base_offset
        return self.files == {name: at for name, at in later.files.items() if at[0] < last}
