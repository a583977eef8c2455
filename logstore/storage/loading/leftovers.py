"""Cleanup after a crash: finish or undo interrupted changes, as the file names indicate.

These are the first stages of loading a partition (storage-format §11, steps 1 to 4). All stages
share one listing of the directory. Each stage is idempotent.
"""

from __future__ import annotations

import logging
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from logstore.errors import CorruptRecordError
from logstore.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LEADER_EPOCHS,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    file_name,
    parse_segment_file,
)
from logstore.record.walk import walk_headers
from logstore.runtime import FileKind
from logstore.storage.checkpoint.atomic import remove_temporary
from logstore.storage.checkpoint.topic_id import PARTITION_METADATA
from logstore.storage.log.finding import Finding
from logstore.storage.segment.swap import from_both_ends
from logstore.types import INT64_MAX

if TYPE_CHECKING:
    from logstore.names import SegmentFile
    from logstore.runtime import FileSystem

logger = logging.getLogger(__name__)


class PartitionFiles:
    """A partition directory that is being loaded: its files, changes and findings."""

    def __init__(
        self, fs: FileSystem, directory: str, finding_level: int = logging.WARNING
    ) -> None:
        self._finding_level = finding_level
        self.fs = fs
        self.directory = directory
        self._findings: dict[Finding, None] = {}
        self._listing: list[tuple[str, SegmentFile]] | None = None
        self._irregular: dict[str, FileKind] = {}
        self._unsettled = False

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings so far, in order."""
        return tuple(self._findings)

    def listed(
        self, *, kind: str | None = None, state: str | None = ""
    ) -> list[tuple[str, SegmentFile]]:
        """List the segment files and snapshots, as pairs of path and parsed name.

        Parameters
        ----------
        kind, state : str or None
            A suffix such as `.log`, and a second suffix such as `.swap`. None matches any.
        """
        if self._listing is None:
            self._listing = self._list()
        return [
            (path, parts)
            for path, parts in self._listing
            if kind in (None, parts.kind) and state in (None, parts.state)
        ]

    def _list(self) -> list[tuple[str, SegmentFile]]:
        """List the files that a log could have written.

        All other files are ignored, including directories, pipes and devices that are named like a
        `.log`. A `.log` that is a symbolic link can be read. The other names belong to the engine,
        which may remove or replace such files even if they are not regular (see `irregular`).
        """
        found = []
        self._irregular.clear()
        for name, kind in self.fs.kinds(self.directory).items():
            parts = parse_segment_file(name)
            if parts is None or parts.base_offset > INT64_MAX:
                continue
            if name != file_name(parts.base_offset, parts.kind) + parts.state:
                continue
            path = f"{self.directory}/{name}"
            if kind is not FileKind.FILE:
                self._irregular[path] = kind
            if kind is FileKind.DIRECTORY:
                continue
            if kind is FileKind.SPECIAL and parts.kind == LOG_SUFFIX and not parts.state:
                logger.warning("%s: ignored because it is not a regular file", path)
                continue
            found.append((path, parts))
        return found

    def irregular(self, path: str) -> FileKind | None:
        """Return the kind of a file that is named like a segment file but is not regular."""
        return self._irregular.get(path)

    def note(self, action: str, path: str, detail: str) -> None:
        """Record and log a finding. Duplicates are ignored."""
        finding = Finding(action, path, detail)
        if finding not in self._findings:
            logger.log(self._finding_level, "%s: %s: %s", path, action, detail)
            self._findings[finding] = None

    def remove(self, path: str, action: str, detail: str) -> None:
        """Remove a listed file and record why. If it is a link, the link itself is removed."""
        self.note(action, path, detail)
        self.fs.remove(path)
        self.changed()

    def changed(self) -> None:
        """Mark the directory as changed."""
        self._listing = None
        self._unsettled = True

    def sync_names(self) -> None:
        """Fsync the directory, so that no later change survives a crash without the earlier ones.

        A crash between two stages must leave a state that the next start reads the same way.
        """
        if self._unsettled:
            self.fs.sync_dir(self.directory)
            self._unsettled = False


def remove_leftovers(files: PartitionFiles, *, keeps_cleaned: bool = False) -> None:
    """Delete `.deleted` files, `.swap` files of unfinished splits, and `.cleaned` files.

    These are steps 1 and 2.

    Temporary files of interrupted writes are deleted as well, without a finding.

    Parameters
    ----------
    keeps_cleaned : bool
        Whether `.cleaned` files are retained if there is no `.swap`, because the log is in use and
        a cleaning pass in another thread might be writing them.
    """
    if remove_temporary(files.fs, files.directory, (LEADER_EPOCHS, PARTITION_METADATA)):
        files.changed()
    for path, _ in files.listed(state=DELETED_SUFFIX):
        files.remove(path, "removed_leftover", "it was scheduled for deletion")
    for path, _ in files.listed(state=SWAP_SUFFIX):
        if files.irregular(path) is not None:
            files.remove(path, "removed_leftover", "it is not a regular file, so no swap wrote it")
    cleaned = files.listed(state=CLEANED_SUFFIX)
    if keeps_cleaned and not files.listed(state=SWAP_SUFFIX):
        cleaned = []
    if cleaned:
        lowest = min(parts.base_offset for _, parts in cleaned)
        for path, parts in files.listed(state=SWAP_SUFFIX):
            if parts.base_offset >= lowest:
                files.remove(path, "removed_leftover", "its swap is incomplete")
        files.sync_names()  # a `.swap` without any `.cleaned` counts as complete
    for path, _ in cleaned:
        files.remove(path, "removed_leftover", "it was written by an unfinished cleaning pass")
    files.sync_names()


def finish_swaps(files: PartitionFiles) -> None:
    """Delete the segments superseded by complete `.swap` segments, then remove the suffix.

    These are steps 3 and 4.

    Raises
    ------
    CorruptRecordError, UnsupportedFormatError
        A `.swap` cannot be walked to its end. This stage changes nothing in that case.
    """
    logs = files.listed(kind=LOG_SUFFIX, state=SWAP_SUFFIX)
    swaps = {parts.base_offset: path for path, parts in logs}
    if swaps:
        lowest = min(swaps)
        highest = max(_next_offset(files.fs, path, base) for base, path in swaps.items())
        original = _original_of_split(files, lowest)
        for path, parts in files.listed():
            superseded = lowest <= parts.base_offset < highest
            if parts.kind in SEGMENT_SUFFIXES:
                # An empty new segment also replaces the old one with the same base offset.
                superseded |= parts.base_offset in swaps or parts.base_offset == original
            elif parts.kind != SNAPSHOT_SUFFIX:
                continue
            if superseded:
                files.remove(path, "finished_swap", "it is replaced by complete segments")
        files.sync_names()  # superseded files must not reappear next to their replacement
    swapped = files.listed(state=SWAP_SUFFIX)
    for bases in from_both_ends({parts.base_offset for _, parts in swapped}):
        for path, parts in swapped:
            if parts.base_offset in bases:
                target = path.removesuffix(SWAP_SUFFIX)
                files.note("finished_swap", target, "renamed from .swap")
                files.fs.rename(path, target)
                files.changed()
        files.sync_names()


def _next_offset(fs: FileSystem, path: str, base_offset: int) -> int:
    with closing(fs.open(path)) as file:
        next_offset = base_offset
        for at in walk_headers(file, path):
            next_offset = at.header.next_offset
        return next_offset


def _original_of_split(files: PartitionFiles, lowest: int) -> int | None:
    """Return the base offset of the segment whose split starts at `lowest`, or None if none does.

    The first new segment is named after its first batch, so its base offset may be above the old
    one. No other segment below it starts with that batch.
    """
    logs = [(parts.base_offset, path) for path, parts in files.listed(kind=LOG_SUFFIX)]
    base, path = max(((base, path) for base, path in logs if base < lowest), default=(None, ""))
    if base is None:
        return None
    with closing(files.fs.open(path)) as file, suppress(CorruptRecordError):
        first = next(walk_headers(file, path), None)
        return base if first is not None and first.header.base_offset == lowest else None
    return None
