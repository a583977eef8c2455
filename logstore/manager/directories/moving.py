"""Move a partition to another data directory, and complete or undo moves at startup.

In Kafka's AlterReplicaLogDirs, a second replica in the target catches up while the first one
remains in use. Here, appends to the partition wait until the move is complete, and reads continue.

1. The source directory records the move (`logstore.manager.directories.move_notes`).
2. The files are copied into a folder named `-future` and made durable.
3. The partition's entries are added to the target's checkpoints.
4. The copy is renamed to the partition's name. **From here on, the copy is valid.**
5. The source folder is renamed to `-delete`, and its checkpoint entries and the recorded move are
   removed.

Each step is durable before the next one. If a start finds a recorded move and the folder in both
directories, it retires the source folder. If it finds the folder only in the source, it drops the
record and the copy. A failed move is recorded as undone before the source continues, because the
failed disk may come back with a folder of the right name.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from logstore.errors import (
    InvalidConfigurationError,
    KafkaStorageError,
    LogDirNotFoundError,
    UnknownTopicOrPartitionError,
)
from logstore.manager.directories.copying import copy_file, files_of
from logstore.manager.directories.move_notes import Move
from logstore.names import future_dir_name, parse_segment_file
from logstore.runtime import make_dirs_durably
from logstore.storage.checkpoint.atomic import TMP_SUFFIX
from logstore.storage.checkpoint.offsets import (
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    REPLICATION_OFFSETS,
)

if TYPE_CHECKING:
    from logstore.manager.directories.directory import LogDirectory
    from logstore.runtime import FileSystem
    from logstore.storage.log.log import Log
    from logstore.types import TopicPartition

logger = logging.getLogger(__name__)

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def find_directory(directories: Sequence[LogDirectory], log_dir: str) -> LogDirectory:
    """Return the data directory with a given path.

    Raises
    ------
    LogDirNotFoundError
    """
    path = log_dir.rstrip("/") or "/"
    paths = (path, os.path.abspath(path))  # noqa: PTH100  # a link keeps its name
    for directory in directories:
        if directory.path in paths:
            return directory
    known = ", ".join(directory.path for directory in directories)
    raise LogDirNotFoundError(f"{log_dir} is not one of the data directories, which are {known}")


class PartitionMove:
    """A move of a partition. The log manager keeps all other work away from the partition.

    Parameters
    ----------
    log : Log
        The log, which must be at rest until the move ends.
    source, target : LogDirectory
        The data directories, which must differ.

    Raises
    ------
    InvalidConfigurationError
        The directories were opened read-only.
    KafkaStorageError
        One of the directories is offline.
    """

    def __init__(self, log: Log, source: LogDirectory, target: LogDirectory) -> None:
        if source.read_only:
            raise InvalidConfigurationError(
                f"cannot move {log.topic_partition}: {source.path} was opened read-only"
            )
        source.check_online()
        target.check_online()
        self._log = log
        self._tp = log.topic_partition
        self._fs: FileSystem = log.runtime.fs
        self._source = source
        self._target = target
        self._what = f"cannot move {self._tp} from {source.path} to {target.path}"
        self._move = Move(target.path, future_dir_name(self._tp, log.runtime.rng.getrandbits(128)))

    def begin(self) -> None:
        """Create a complete, durable copy in the target.

        Raises
        ------
        KafkaStorageError
            A disk failed and its directory is offline, or a disk is full and its directory remains
            online. The partition remains in the source.
        """
        try:
            with self._unless_full(self._source):  # which may be the reason for the move
                self._source.note_move(self._tp, self._move)
            self._copy_files()
            with self._unless_full(self._target):
                self._target.adopt(self._tp, self._offsets())
            with self._target.guard(self._what):
                future = f"{self._target.path}/{self._move.folder}"
                self._fs.rename(future, self._target.partition_path(self._tp))
                self._fs.sync_dir(self._target.path)
        except KafkaStorageError:
            self._undo()
            raise

    def finish(self) -> None:
        """Retire the source folder after the target's copy is in use.

        Raises
        ------
        KafkaStorageError
            The source disk failed. The next start completes the move.
        """
        with self._source.guard(f"{self._tp} is in {self._target.path}, but"):
            try:
                self._source.retire(self._tp, self._log.config.file_delete_delay_ms)
            finally:
                self._source.forget_partition(self._tp)
            self._source.forget_retired()
            self._source.note_move(self._tp, None)

    def _offsets(self) -> dict[str, int]:
        """Return the partition's entries by checkpoint name."""
        log = self._log.offsets.checkpoint()
        offsets = {RECOVERY_POINTS: log.recovery_point, REPLICATION_OFFSETS: log.high_watermark}
        if log.log_start_offset is not None:
            offsets[LOG_START_OFFSETS] = log.log_start_offset
        with self._source.guard(self._what):
            cleaned = self._source.cleaner_offset(self._tp)
        if cleaned is not None:
            offsets[CLEANER_OFFSETS] = cleaned
        return offsets

    # -- the copy ------------------------------------------------------------------------

    def _copy_files(self) -> None:
        future = f"{self._target.path}/{self._move.folder}"
        with self._unless_full(self._target):
            make_dirs_durably(self._fs, future)
        folder = self._log.directory
        with self._source.guard(self._what):
            files = files_of(self._fs, folder)
        for name, stat in files.items():
            if not _is_leftover(name):
                copy_file(
                    self._fs,
                    f"{folder}/{name}",
                    stat,
                    self._fs,
                    f"{future}/{name}",
                    reading=partial(self._source.guard, self._what),
                    writing=partial(self._unless_full, self._target),
                )
        with self._unless_full(self._target):
            self._fs.sync_dir(future)

    @contextmanager
    def _unless_full(self, directory: LogDirectory) -> Iterator[None]:
        """Guard a change in a directory. A full disk has lost no data, so it remains online."""
        with directory.guard(self._what):
            try:
                yield
            except OSError as error:
                if error.errno in _NO_ROOM:
                    raise KafkaStorageError(f"{self._what}: {error}") from error
                raise

    # -- when it fails -------------------------------------------------------------------

    def _undo(self) -> None:
        """Resume the source. A failed disk is left alone until the next start cleans it up."""
        source, target = self._source, self._target
        target.forget_partition(self._tp)
        with suppress(KafkaStorageError):
            if source.is_online and self._tp in source.moves:
                with source.guard(self._what):
                    # Do this before the next append, because the target may come back with a
                    # complete copy.
                    source.note_move(self._tp, self._move._replace(undone=True))
            if target.is_online:
                with self._unless_full(self._target):
                    target.remove_future(self._move.folder)
                    target.forget_retired()
            if source.is_online and target.is_online:
                with source.guard(self._what):
                    source.note_move(self._tp, None)


def _is_leftover(name: str) -> bool:
    parsed = parse_segment_file(name)
    return name.endswith(TMP_SUFFIX) or (parsed is not None and bool(parsed.state))


# --- start ------------------------------------------------------------------------------------


def recover_moves(directories: Sequence[LogDirectory]) -> None:
    """Determine the location of each partition whose move was interrupted.

    When this returns, no partition is in two directories because of a move. Unless the directories
    are read-only, the moves are also completed or undone on disk. A directory whose disk fails goes
    offline.

    Raises
    ------
    InvalidConfigurationError
        A partition was moved to a directory that is not in `directories`.
    """
    for source in directories:
        if source.is_online:
            for tp, move in sorted(source.moves.items()):
                _InterruptedMove(directories, source, tp, move).recover()
    for directory in directories:
        for name in sorted(directory.futures):
            path = f"{directory.path}/{name}"
            # A running process might still finish the move.
            level = logging.WARNING if directory.is_unchanging() else logging.INFO
            logger.log(
                level, "%s is skipped: only its broker can complete or undo the operation", path
            )


class _InterruptedMove:
    """A recorded move found when a directory is opened."""

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        source: LogDirectory,
        topic_partition: TopicPartition,
        move: Move,
    ) -> None:
        self._source = source
        self._tp = topic_partition
        self._move = move
        self._all = directories
        self._target = next(
            (directory for directory in directories if directory.path == move.target), None
        )
        self._copies = [
            directory
            for directory in directories
            if directory is not source
            and directory.is_online
            and topic_partition in directory.partitions
        ]

    def recover(self) -> None:
        """Complete or undo the move, or withhold the partition if neither is safe."""
        is_here = self._tp in self._source.partitions
        doubt = (
            self._reason_unknown() if is_here and not (self._move.undone or self._copies) else None
        )
        if doubt is not None:
            logger.error("%s in %s is withheld: %s", self._tp, self._source.path, doubt)
            self._source.withheld[self._tp] = doubt
            return
        if is_here and self._move.undone:
            for directory in self._copies:
                self._drop(directory)
        elif is_here and self._copies:
            self._drop(self._source)
        futures = [each for each in self._all if self._move.folder in each.futures]
        for directory in futures:
            self._change(directory, lambda each: each.remove_future(self._move.folder))
            directory.futures.discard(self._move.folder)
        self._change(self._source, lambda each: self._note(each, is_here=is_here))

    def _note(self, source: LogDirectory, *, is_here: bool) -> None:
        """Drop the record, or keep it as long as files of an undone move might remain."""
        if not is_here:
            source.forget_retired()
        tidy = self._target is not None and self._target.is_online
        lives_on = is_here and self._tp in source.partitions
        if lives_on and not tidy and (self._move.undone or self._target is not None):
            source.note_move(self._tp, self._move._replace(undone=True))
        else:
            source.note_move(self._tp, None)

    def _reason_unknown(self) -> str | None:
        """Return why it is unknown whether the partition is in the target, or None if known."""
        target, where = self._target, self._move.target
        offline = [directory.path for directory in self._all if not directory.is_online]
        if (target is None and offline) or (target is not None and not target.is_online):
            return f"it was being moved to {where}; offline: {', '.join(offline)}"
        if target is None and self._source.runtime.fs.is_dir(f"{where}/{self._tp}"):
            raise _moved_error(self._tp, self._source, where)
        return None

    def _drop(self, directory: LogDirectory) -> None:
        """Retire the invalid copy."""
        logger.info(
            "%s in %s is removed, because its other copy is current", self._tp, directory.path
        )

        def retire(directory: LogDirectory) -> None:
            directory.retire(self._tp, directory.file_delete_delay_ms)
            directory.forget_retired()

        self._change(directory, retire)
        directory.forget_partition(self._tp)

    def _change(self, directory: LogDirectory, change: Callable[[LogDirectory], None]) -> None:
        """Apply a change unless read-only. A failure takes the directory offline."""
        if directory.read_only or not directory.is_online:
            return
        with (
            suppress(KafkaStorageError),
            directory.guard(f"cannot complete the move of {self._tp}"),
        ):
            change(directory)


# --- in another process -----------------------------------------------------------------------


def find_folder(
    directories: Sequence[LogDirectory], topic_partition: TopicPartition
) -> LogDirectory:
    """Return the directory into which another process moved a partition, and register it there.

    Raises
    ------
    InvalidConfigurationError
        The partition was moved to a directory that is not in `directories`.
    UnknownTopicOrPartitionError
        The partition was deleted, or moved to an unknown directory.
    """
    for directory in directories:
        if directory.has_folder(topic_partition):
            directory.partitions.add(topic_partition)
            return directory
    for directory in directories:
        if (target := directory.target_of_move(topic_partition)) is not None:
            raise _moved_error(topic_partition, directory, target)
    raise UnknownTopicOrPartitionError(
        f"{topic_partition} was removed: another process has deleted it or moved it to"
        " another data directory"
    )


def _moved_error(
    topic_partition: TopicPartition, source: LogDirectory, target: str
) -> InvalidConfigurationError:
    return InvalidConfigurationError(
        f"partition {topic_partition} was moved from {source.path} to {target}, which is not"
        f" one of the data directories: add it, or read {target}/{topic_partition}"
    )
