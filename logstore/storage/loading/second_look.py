"""Views of a partition that another process writes: taken again until they hold together.

A reader takes no lock, so names and bytes may change between two looks: a swap of cleaned
segments, a roll, retention, an append that is half written. What such a view calls missing or
damaged may be neither. Therefore a view counts only if the finished files were the same before
and after it was taken and nothing in it is odd; otherwise it is taken anew, some times, since a
process that writes without a pause may never stand still. The files of a view are then held
open: whatever becomes of their names, their bytes stay.

A directory that nobody writes is looked at once, and what is odd in it is so.
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

LOOKS_MAX = 9
"""Looks at one thing; with the pauses between them they take a second and a quarter at most."""

FIRST_PAUSE_MS = 5
"""Before the second look; each further pause is twice as long."""

HELD_FILES_MAX = 512
"""Files of views that are held open; half of the descriptors that a process is mostly given."""

IN_PROGRESS = frozenset({"removed_leftover", "rebuilt_index"})
"""Findings that are no news beside a process at work: segments on their way in or out, and the
index that the active one has not begun yet."""

TRANSIENT = (CorruptionError, KafkaStorageError, OSError)
"""Errors by which changes of another process show."""


def pause_after(look: int, clock: Clock) -> None:
    """Wait after the look of that number, the first being 1."""
    clock.sleep(FIRST_PAUSE_MS * 2 ** (look - 1) / 1000)


class Views:
    """Views of the partitions of a data directory that another process may write.

    Parameters
    ----------
    fs : OverlayFileSystem
        Over the files as they are.
    writer : callable
        Returns the process that has the directory for writing, None if none has.
    read_again : callable
        Reads anew what the directory says of its partitions.
    """

    def __init__(
        self,
        fs: OverlayFileSystem,
        clock: Clock,
        writer: Callable[[], int | None],
        read_again: Callable[[], None],
    ) -> None:
        self._fs = fs
        self._clock = clock
        self._writer = writer
        self._read_again = read_again
        self._held: deque[str] = deque()

    def take(
        self, folder: str, load: Callable[[int], Log], insist: Callable[[int], Log] | None = None
    ) -> Log:
        """Load a partition, and again while it changes.

        Parameters
        ----------
        folder : str
            The partition's, which was there when its directory was listed.
        load : callable
            Opens the log, and tells what it finds at the level (of `logging`) that it is given.
        insist : callable, optional
            Opens it in the end, whatever is odd in it is so; as `load` by default.

        Raises
        ------
        UnknownTopicOrPartitionError
            The folder is gone: the partition was deleted, or moved.
        CorruptionError, KafkaStorageError
            Every look gave one, or nobody writes here.
        OSError
            The disk failed, and nobody writes here.
        """
        look = 1
        while look < LOOKS_MAX and self._writer() is not None:
            self._fs.refresh(folder)
            before = self._finished(folder)
            try:
                log = load(logging.INFO)
                if all(finding.action in IN_PROGRESS for finding in log.findings):
                    self._hold(log)
                    if before.is_still(self._finished(folder)):
                        log.findings = ()
                        return log
                log.close()
            except TRANSIENT as error:
                logger.info("%s: look %d: %s", folder, look, error)
            self.look_again(folder, look)
            look += 1
        try:
            return (insist or load)(logging.WARNING)
        except OSError as error:
            if look < LOOKS_MAX:
                raise
            # The disk did not fail: what was listed had another name by the time it was opened.
            raise KafkaStorageError(
                f"{folder} never stood still: another process changed it under each of"
                f" {LOOKS_MAX} looks; try again ({error})"
            ) from error

    def look_again(self, folder: str, look: int) -> None:
        """Wait after the look of that number, and let the next one see the files as they are."""
        pause_after(look, self._clock)
        self._fs.refresh(folder)
        self._read_again()

    def _finished(self, folder: str) -> _Finished:
        """Return the files that nothing but a replacement changes."""
        base = self._fs.base
        try:
            parts = {name: parse_segment_file(name) for name in base.list_dir(folder)}
        except FileNotFoundError:
            raise UnknownTopicOrPartitionError(f"{folder} is gone") from None
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

    def _hold(self, log: Log) -> None:
        """Keep the files of a view open, and the oldest ones of other views no longer."""
        for segment in log.segments:
            indexes = (segment.offset_index, segment.time_index, segment.txn_index)
            for path in (segment.log_path, *(index.path for index in indexes)):
                if self._fs.exists(path):
                    while len(self._held) >= HELD_FILES_MAX:
                        self._fs.let_go(self._held.popleft())
                    self._fs.hold(path)
                    self._held.append(path)


class _Finished(NamedTuple):
    """The files of all segments but the last: name → base offset, size and time if it is there."""

    last_base_offset: int
    files: dict[str, tuple[int, FileStat | None]]

    def is_still(self, later: _Finished) -> bool:
        """Tell whether a later look finds the same, but for segments that began since."""
        last = self.last_base_offset
        return self.files == {name: at for name, at in later.files.items() if at[0] < last}
