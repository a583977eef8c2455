"""Copy partitions to a new data directory, for `clean --out`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from logstore.errors import CorruptCheckpointError, InvalidConfigurationError, KafkaStorageError
from logstore.manager.directories.copying import copy_file, files_of
from logstore.manager.topics.store import TopicStore
from logstore.names import LOG_SUFFIX, parse_partition_dir, parse_segment_file
from logstore.runtime import clear_folder, make_dirs_durably, remove_tree
from logstore.runtime.guard import StorageGuard
from logstore.storage.checkpoint.offsets import CHECKPOINTS, OffsetCheckpoint
from logstore.storage.checkpoint.shutdown import (
    is_clean_shutdown,
    mark_clean_shutdown,
    take_clean_shutdown,
)
from logstore.storage.segment.files import check_segment_size

if TYPE_CHECKING:
    from logstore.manager.directories.directory import LogDirectory
    from logstore.manager.manager import LogManager
    from logstore.runtime import FileStat, FileSystem
    from logstore.types import TopicPartition

logger = logging.getLogger(__name__)

UNFINISHED = ".logstore-unfinished-copy"
"""Marker file in a data directory with an unfinished copy."""


class CopyProgress(NamedTuple):
    """Progress of a copy, which is currently copying `topic_partition`."""

    topic_partition: TopicPartition
    bytes_done: int
    bytes_total: int


CopyListener = Callable[[CopyProgress], None]

Link = Callable[[str, str], bool]
"""Adds a hard link to a file. Returns False if that is not possible (`DiskFileSystem.link`)."""


def copy_partitions(
    source: LogManager,
    partitions: Sequence[TopicPartition],
    fs: FileSystem,
    target: str,
    *,
    link: Link | None = None,
    progress: CopyListener | None = None,
) -> None:
    """Copy partitions, their checkpoint entries and topic configs.

    Parameters
    ----------
    source : LogManager
        Opened read-only. No log may be open yet, so that files are unchanged.
    fs : FileSystem
        File system of the target.
    target : str
        New data directory, missing or empty, and not within a directory of the source.
    link : callable, optional
        Hard-links `.log` files of closed segments if possible, instead of copying them. The file
        system class copies such a file before changing it, so the original is safe unless another
        process already has it open for writing.
    progress : callable, optional
        Called before each block.

    Raises
    ------
    InvalidConfigurationError
        The target is a file or not empty. Nothing was written.
    CorruptRecordError
        A (sparse) `.log` file exceeds the maximum segment size. Nothing was copied.
    KafkaStorageError
        A file cannot be read or written, or a partition changed during the copy. The copy was
        removed (`unfinished`).

    Notes
    -----
    Modification times are preserved. The copy counts as cleanly shut down if its source directories
    do. If not, it is recovered when opened. Durable on return.
    """
    with unfinished(fs, target):
        _Copy(source, fs, target, link, progress).run(partitions)


def copy_into(
    source: LogManager,
    partitions: Sequence[TopicPartition],
    fs: FileSystem,
    target: str,
    *,
    link: Link | None = None,
    progress: CopyListener | None = None,
) -> None:
    """Copy as `copy_partitions` does, into an `unfinished` directory.

    The directory must be empty or contain earlier copies of other partitions. It counts as cleanly
    shut down if all sources do.
    """
    _Copy(source, fs, target, link, progress).run(partitions)


@contextmanager
def unfinished(fs: FileSystem, target: str) -> Iterator[None]:
    """Reserve a missing or empty directory for a copy that is valid after this context.

    Until then, the directory contains a marker file. After an error or interrupt, everything
    written is removed. If the process is killed, the next copy to this directory removes the
    output.

    Raises
    ------
    InvalidConfigurationError
        The target is a file, or is neither empty nor an unfinished copy.
    KafkaStorageError
        A file operation failed.
    """
    created = _take_target(fs, target)
    marker = f"{target}/{UNFINISHED}"
    with StorageGuard(None, target, "cannot copy to it"):
        try:
            fs.open(marker, create=True).close()
            fs.sync_dir(target)
            yield
            fs.remove(marker)
            fs.sync_dir(target)
        except BaseException:
            with suppress(OSError):
                _discard(fs, target, created=created)
            raise


def _take_target(fs: FileSystem, target: str) -> bool:
    """Ensure that a directory exists and is empty. Return whether it was created."""
    if not fs.exists(target):
        with StorageGuard(None, target, "cannot create it"):
            make_dirs_durably(fs, target)
        return True
    if not fs.is_dir(target):
        raise InvalidConfigurationError(f"{target} is not a directory")
    if UNFINISHED in (names := fs.list_dir(target)):
        logger.warning("removing an unfinished copy in %s", target)
        _discard(fs, target, created=False)
    elif names:
        raise InvalidConfigurationError(
            f"{target} is not empty; a copy needs a new or empty directory"
        )
    return False


def _discard(fs: FileSystem, target: str, *, created: bool) -> None:
    """Remove a copy, and its marker file last."""
    for name in fs.list_dir(target):
        if name != UNFINISHED:
            path = f"{target}/{name}"
            remove_tree(fs, path) if fs.is_dir(path) else fs.remove(path)
    clear_folder(fs, target)
    if created:
        fs.remove_dir(target)


class _Copy:
    """One run of `copy_partitions` into an empty directory."""

    def __init__(
        self,
        source: LogManager,
        fs: FileSystem,
        target: str,
        link: Link | None,
        progress: CopyListener | None,
    ) -> None:
        self._source = source
        self._fs = fs
        self._target = target
        self._link = link
        self._progress = progress
        self._bytes_done = 0
        self._bytes_total = 0

    def run(self, partitions: Sequence[TopicPartition]) -> None:
        # A checkpointed partition without a directory is empty.
        homes = {tp: home for tp in partitions if (home := self._home(tp)) is not None}
        clean = all(home.clean for home in homes.values())
        is_first = not any(map(parse_partition_dir, self._fs.list_dir(self._target)))
        source = self._source.runtime.fs
        # Read checkpoints before the data, because they may be behind the data but not ahead of it.
        checkpoints = _checkpoints(homes)
        folders = {tp: files_of(source, home.partition_path(tp)) for tp, home in homes.items()}
        for tp, files in folders.items():
            for name, stat in files.items():
                if name.endswith(LOG_SUFFIX):
                    check_segment_size(f"{homes[tp].partition_path(tp)}/{name}", stat.size)
        self._bytes_total = sum(stat.size for files in folders.values() for stat in files.values())
        for tp, home in homes.items():
            self._copy_partition(tp, home.partition_path(tp), folders[tp])
        for name, offsets in checkpoints.items():
            checkpoint = OffsetCheckpoint(self._fs, f"{self._target}/{name}")
            earlier = checkpoint.read() if self._fs.exists(checkpoint.path) else {}
            checkpoint.write(earlier | offsets)
        self._store_topics(partitions)
        self._fs.sync_dir(self._target)
        if clean and homes and (is_first or is_clean_shutdown(self._fs, self._target)):
            mark_clean_shutdown(self._fs, self._target)
        elif homes and not clean:
            take_clean_shutdown(self._fs, self._target)

    def _home(self, topic_partition: TopicPartition) -> LogDirectory | None:
        for directory in self._source.directories:
            directory.check_online()  # the partition may be in an offline directory
            if topic_partition in directory.partitions:
                return directory
        return None

    def _copy_partition(
        self, topic_partition: TopicPartition, path: str, files: Mapping[str, FileStat]
    ) -> None:
        folder = f"{self._target}/{topic_partition}"
        self._fs.make_dirs(folder)
        growing = _growing(files)
        try:
            for name, stat in files.items():
                names = f"{path}/{name}", f"{folder}/{name}"
                closed = name.endswith(LOG_SUFFIX) and name not in growing
                if closed and self._link is not None and self._link(*names):
                    self._bytes_done += stat.size
                else:
                    self._copy_file(topic_partition, *names, stat)
            after = files_of(self._source.runtime.fs, path)
        except FileNotFoundError as error:
            raise _changed(path, f"{error.filename} was removed") from error
        self._fs.sync_dir(folder)
        for name, stat in files.items():
            if name not in after or (after[name] != stat and name not in growing):
                raise _changed(path, name)

    def _copy_file(
        self, topic_partition: TopicPartition, source: str, target: str, stat: FileStat
    ) -> None:
        def report(done: int) -> None:
            if self._progress is not None:
                done += self._bytes_done
                self._progress(CopyProgress(topic_partition, done, self._bytes_total))

        # A second listing detects files that were truncated during the copy.
        copy_file(self._source.runtime.fs, source, stat, self._fs, target, progress=report)
        self._bytes_done += stat.size

    def _store_topics(self, partitions: Sequence[TopicPartition]) -> None:
        """Store the topics with their configs. Adopted topics are not stored and remain adopted."""
        store = TopicStore(self._fs, self._target)
        for name in dict.fromkeys(tp.topic for tp in partitions):
            topic = self._source.catalog.topic(name)
            if not topic.adopted:
                numbers = [tp.partition for tp in partitions if tp.topic == name]
                known = store.get(name)
                if known is None:
                    store.create(name, numbers, topic.configs, topic.id)
                else:
                    store.set_partitions(name, [*known.partitions, *numbers])


def _checkpoints(
    homes: Mapping[TopicPartition, LogDirectory],
) -> dict[str, dict[TopicPartition, int]]:
    """Return the entries of partitions by checkpoint file. Missing files are skipped."""
    entries: dict[str, dict[TopicPartition, int]] = {}
    for directory in {id(home): home for home in homes.values()}.values():
        for name in CHECKPOINTS:
            checkpoint = directory.checkpoint(name)
            if not directory.runtime.fs.exists(checkpoint.path):
                continue
            try:
                offsets = checkpoint.read()
            except CorruptCheckpointError as error:
                logger.warning("%s; it is not copied", error)
                continue
            own = {tp: at for tp, at in offsets.items() if homes.get(tp) is directory}
            entries[name] = entries.get(name, {}) | own
    return entries


def _growing(files: Mapping[str, FileStat]) -> set[str]:
    """Return the files to which a process with the partition open may be appending."""
    parts = {name: parse_segment_file(name) for name in files}
    active = max((p.base_offset for p in parts.values() if p and p.kind == LOG_SUFFIX), default=0)
    return {name for name, each in parts.items() if each is None or each.base_offset >= active}


def _changed(path: str, what: str) -> KafkaStorageError:
    return KafkaStorageError(
        f"{path} changed during the copy ({what}): another process writes to it;"
        " stop it or try again"
    )
