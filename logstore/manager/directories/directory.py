"""A data directory: its lock, its checkpoints, its partition folders, and its shutdown state.

The log manager owns one `LogDirectory` per data directory, which goes offline on the first disk
failure.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from logstore.errors import (
    CorruptCheckpointError,
    CorruptionError,
    InvalidConfigurationError,
    KafkaStorageError,
    LogStoreError,
    SegmentOverflowError,
    UnknownTopicOrPartitionError,
    UnsupportedFormatError,
)
from logstore.manager.directories.move_notes import MOVES_FILE, Move, read_moves, write_moves
from logstore.manager.directories.nesting import check_data_directory
from logstore.manager.topics.store import TOPICS_FILE
from logstore.names import (
    BROKER_DIRS,
    DELETE_DIR_SUFFIX,
    FUTURE_DIR_SUFFIX,
    INDEX_SUFFIX,
    LOCK_FILE,
    LOG_SUFFIX,
    METADATA_LOG,
    METADATA_LOG_DIR,
    PRODUCER_IDS_FILE,
    deletion_dir_name,
    file_name,
    parse_log_dir,
    parse_segment_file,
)
from logstore.runtime import (
    FileKind,
    Lifetime,
    OverlayFileSystem,
    ReadOnlyFileSystem,
    Signal,
    make_dirs_durably,
    remove_tree,
)
from logstore.runtime.guard import StorageGuard
from logstore.runtime.locks import describe_holder
from logstore.storage.checkpoint.atomic import remove_temporary
from logstore.storage.checkpoint.offsets import (
    CHECKPOINTS,
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    REPLICATION_OFFSETS,
    OffsetCheckpoint,
)
from logstore.storage.checkpoint.shutdown import (
    CLEAN_SHUTDOWN,
    is_clean_shutdown,
    mark_clean_shutdown,
    take_clean_shutdown,
)
from logstore.storage.loading.on_damage import OnDamage
from logstore.storage.loading.views import ATTEMPTS_MAX, Views
from logstore.types import INT64_MAX, SMALL_FILE_MAX_BYTES

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig
    from logstore.config.log_config import LogConfig
    from logstore.runtime import FileLock, FileSystem, Runtime
    from logstore.storage.log.log import Log
    from logstore.storage.log.offsets import CheckpointOffsets
    from logstore.types import TopicPartition

logger = logging.getLogger(__name__)

REPLACED_FILES = (*CHECKPOINTS, CLEAN_SHUTDOWN, TOPICS_FILE, MOVES_FILE, PRODUCER_IDS_FILE)
"""Files of a data directory that are replaced as a whole, through a `.tmp` file."""


class _FolderDeletion(NamedTuple):
    due_ms: int
    path: str


class OpenedFolder(NamedTuple):
    """The only folder of a directory to open, under any name, or a single file in it.

    Attributes
    ----------
    topic_partition : TopicPartition
        The partition that the folder is shown as.
    name : str
        Name of the folder.
    file : str or None
        The only `.log` file to show, under any name, or None for all files.
    """

    topic_partition: TopicPartition
    name: str
    file: str | None = None


class LogDirectory:
    """A data directory and its partitions.

    Parameters
    ----------
    read_only : bool
        Take no lock and do not remove the clean-shutdown marker. A missing directory is an error.
    file_delete_delay_ms : int
        How long to keep partition folders whose deletion was scheduled by an earlier process.
    small_file_max_bytes : int
        Maximum size of files that are read as a whole.
    on_damage : OnDamage
        How to handle damaged partitions. `PASS_OVER` requires `read_only`.
    metadata_log : bool
        Open the log of a KRaft node, `__cluster_metadata-0`, as a partition. Requires `read_only`.
    shown : OpenedFolder, optional
        The only folder to open, read-only. Checkpoints only apply to it if it is named after its
        partition.

    Attributes
    ----------
    clean : bool
        Whether the last process closed the directory cleanly.
    fresh : bool
        Whether the directory had no partitions when it was opened.
    partitions : set of TopicPartition
        The partitions in the directory.
    high_watermarks : dict of TopicPartition to int
        The checkpointed high watermarks when the directory was opened, used only as evidence.
    half_opened : set of TopicPartition
        Partitions that are being opened, or whose opening was ended by a disk failure or an
        interrupt. Their files might be half changed, so the next attempt or the next start must
        recover them. The caller of `load` must remove a partition once it has registered the log.
    moves : dict of TopicPartition to Move
        Interrupted moves to another directory.
    futures : set of str
        Folders of unfinished moves into this directory.
    withheld : dict of TopicPartition to str
        Partitions that might have moved away, and why this is unknown.
    checkpoint_writes : int
        Number of checkpoint writes.
    offline_reason : str or None
        Why the directory is offline, or None if it is online.
    went_offline : Signal of str
        Emitted with the reason when the directory goes offline, under the locks that the failing
        thread holds.

    Raises
    ------
    InvalidConfigurationError
        The directory does not exist (read-only), or it contains data directories, as a cluster
        directory does.
    KafkaStorageError
        The lock is held by another process, such as a running Kafka, or by another broker in this
        process.
    """

    def __init__(
        self,
        runtime: Runtime,
        path: str,
        *,
        read_only: bool,
        file_delete_delay_ms: int = 0,
        small_file_max_bytes: int = SMALL_FILE_MAX_BYTES,
        on_damage: OnDamage = OnDamage.RECOVER,
        shown: OpenedFolder | None = None,
        metadata_log: bool = False,
    ) -> None:
        self.runtime = runtime
        self.path = path
        self._shown = shown
        self._shows_metadata_log = metadata_log and read_only
        self.read_only = read_only
        self._on_damage = on_damage
        self._surveyed: set[TopicPartition] = set()  # partitions with damage
        self.file_delete_delay_ms = file_delete_delay_ms
        self._small_file_max_bytes = small_file_max_bytes
        self.clean = False
        self.recovery_points: dict[TopicPartition, int] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.partitions: set[TopicPartition] = set()
        self.half_opened: set[TopicPartition] = set()
        self.moves: dict[TopicPartition, Move] = {}
        self.futures: set[str] = set()
        self.withheld: dict[TopicPartition, str] = {}
        self._new: set[TopicPartition] = set()  # partitions whose folders were created durably
        self._at_rest: set[TopicPartition] = set()
        self._damaged: set[str] = set()  # checkpoints to ignore until they are written
        self.offline_reason: str | None = None
        self.went_offline: Signal[[str]] = Signal(f"the failure of data directory {path}")
        self._file_lock: FileLock | None = None
        self._folder_deletions: list[_FolderDeletion] = []
        lifetime = Lifetime(f"data directory {path}")
        lifetime.add(self)
        self._lifetime = lifetime
        self._removing = lifetime.lock(runtime.lock())  # held while folders are removed
        self._checkpointing = lifetime.lock(runtime.lock())  # held while checkpoints are written
        self._checkpoints = {
            name: OffsetCheckpoint(runtime.fs, f"{path}/{name}", max_bytes=small_file_max_bytes)
            for name in CHECKPOINTS
        }
        self._views: Views | None = None
        if read_only and isinstance(runtime.fs, OverlayFileSystem):
            self._views = Views(runtime.fs, runtime.clock, self.writer, self.reload)
        self.checkpoint_writes = 0
        self._written: dict[str, tuple[dict[TopicPartition, int], set[TopicPartition]]] = {}
        try:
            self._open()
        except OSError as error:
            self.go_offline(f"cannot open: {error}")
        self.fresh = not self.partitions
        self._listed = frozenset(self.partitions)

    def _open(self) -> None:
        fs = self.runtime.fs
        if not fs.is_dir(self.path):
            if self.read_only:
                raise InvalidConfigurationError(f"data directory {self.path} does not exist")
            make_dirs_durably(fs, self.path)
        elif self._shown is None:
            check_data_directory(fs, self.path)
        if not self.read_only:
            self._take_lock()
            remove_temporary(fs, self.path, REPLACED_FILES)
        self.clean = is_clean_shutdown(fs, self.path)
        self.recovery_points = self._read(RECOVERY_POINTS)
        self.log_starts = self._read(LOG_START_OFFSETS)
        self.high_watermarks = self._read(REPLICATION_OFFSETS)
        self.moves = read_moves(fs, self.path, self._small_file_max_bytes)
        if self._shown is None:
            self._find_partitions()
        else:
            self._show(self._shown)
        # Entries of a missing partition must not apply to a new partition with the same name.
        gone = (self.recovery_points.keys() | self.log_starts.keys()) - self.partitions
        for tp in gone:
            self.recovery_points.pop(tp, None)
            self.log_starts.pop(tp, None)
        if not self.read_only:
            take_clean_shutdown(fs, self.path)
            if gone:
                self.forget_retired()

    def _take_lock(self) -> None:
        self._file_lock = self.runtime.fs.lock(f"{self.path}/{LOCK_FILE}")
        if self._file_lock is None:
            raise in_use_error(self.runtime.fs, self.path)

    def _find_partitions(self) -> None:
        """List the folders: partitions, deleted partitions, unfinished copies, and all others."""
        fs = self.runtime.fs
        due_ms = self.runtime.clock.monotonic_ms() + self.file_delete_delay_ms
        foreign: list[str] = []
        for name in fs.list_dir(self.path):
            path = f"{self.path}/{name}"
            if not fs.is_dir(path):
                continue
            if name == METADATA_LOG_DIR and self._shows_metadata_log:
                self.partitions.add(METADATA_LOG)
            parsed = parse_log_dir(name)
            if parsed is None:
                if not (name.startswith(".") or name in BROKER_DIRS):
                    foreign.append(name)
            elif not parsed.state:
                self.partitions.add(parsed.topic_partition)
            elif parsed.state == DELETE_DIR_SUFFIX:
                if not self.read_only:
                    self._folder_deletions.append(_FolderDeletion(due_ms, path))
            elif parsed.state == FUTURE_DIR_SUFFIX:
                self.futures.add(name)
            else:
                logger.warning(
                    "%s is skipped: only its broker can complete or undo the operation", path
                )
        if foreign:
            logger.warning(
                "%s: skipped, because their names are not partition names: %s; a Kafka broker does"
                " not start with such directories",
                self.path,
                ", ".join(foreign),
            )

    @property
    def is_online(self) -> bool:
        """Whether the directory can be used."""
        return self.offline_reason is None

    def go_offline(self, reason: str) -> None:
        """Refuse further use. If called again, the first reason is retained."""
        if self.offline_reason is None:
            logger.error("data directory %s is offline: %s", self.path, reason)
            self.offline_reason = reason
            self.went_offline.emit(reason)

    def guard(self, what: str, topic_partition: TopicPartition | None = None) -> StorageGuard:
        """Take the directory offline if a file operation inside fails.

        Parameters
        ----------
        what : str
            The failed action, such as "cannot write checkpoints".
        topic_partition : TopicPartition, optional
            The partition to name in the error instead of the directory.
        """
        if topic_partition is None:
            return StorageGuard(self, self.path, what)
        return StorageGuard(self, topic_partition, what, f"{what} {topic_partition}")

    def check_online(self) -> None:
        """Raise `KafkaStorageError` if the directory is offline."""
        if self.offline_reason is not None:
            raise KafkaStorageError(f"data directory {self.path} is offline: {self.offline_reason}")

    def check_lock(self) -> None:
        """Go offline and raise `KafkaStorageError` if the lock file was removed or replaced.

        In that case, another process might hold the new lock file.
        """
        lock = self._file_lock
        if lock is not None and not lock.is_in_place():
            self.go_offline(
                f"{lock.path} was removed or replaced while it was locked: another process may"
                " write here"
            )
            self.check_online()

    def check_usable(self, topic_partition: TopicPartition) -> None:
        """Raise `KafkaStorageError` if the directory is offline or the partition is withheld."""
        self.check_online()
        if (reason := self.withheld.get(topic_partition)) is not None:
            raise KafkaStorageError(f"{topic_partition} cannot be opened: {reason}")

    def is_at_rest(self, topic_partition: TopicPartition) -> bool:
        """Return whether a partition that is not currently open was closed cleanly."""
        left_well = self.clean or self.fresh or topic_partition in self._at_rest
        return left_well and topic_partition not in self.half_opened

    def partition_path(self, topic_partition: TopicPartition) -> str:
        """Return the path of a partition's folder."""
        shown = self._shown
        if shown is not None and topic_partition == shown.topic_partition:
            return f"{self.path}/{shown.name}"
        return f"{self.path}/{topic_partition}"

    def _show(self, shown: OpenedFolder) -> None:
        """Open a single partition. Checkpoints do not apply to it if its folder was renamed."""
        self.partitions.add(shown.topic_partition)
        if shown.file is not None or shown.name != str(shown.topic_partition):
            self.clean = False
            for entries in (self.recovery_points, self.log_starts, self.high_watermarks):
                entries.pop(shown.topic_partition, None)

    def _hide_others(self, folder: str) -> None:
        """Show a single `.log` file of a folder, named after its first offset."""
        fs, name = self.runtime.fs, None if self._shown is None else self._shown.file
        if name is None or not isinstance(fs, OverlayFileSystem):
            return
        path = f"{folder}/{name}"
        parts = parse_segment_file(name)
        if parts is not None:
            base_offset = parts.base_offset
        else:
            file = fs.base.open(path)
            base_offset = max(0, int.from_bytes(file.read(0, 8), "big", signed=True))
            file.close()
        for other, kind in fs.kinds(folder).items():
            of_other = parse_segment_file(other)
            is_index = parts is not None and of_other is not None and not of_other.state
            if is_index and of_other.base_offset == base_offset:  # type: ignore[union-attr]  # as above
                continue
            if kind is not FileKind.DIRECTORY:
                fs.remove(f"{folder}/{other}")
        fs.show(f"{folder}/{file_name(base_offset, LOG_SUFFIX)}", partial(fs.base.open, path))

    def make_folders(self, partitions: Iterable[TopicPartition]) -> None:
        """Create the folders of new partitions durably, with a single fsync."""
        for tp in partitions:
            self.runtime.fs.make_dirs(self.partition_path(tp))
        self.runtime.fs.sync_dir(self.path)
        self._new.update(partitions)

    def load(
        self,
        topic_partition: TopicPartition,
        config: LogConfig,
        broker_config: BrokerConfig,
        *,
        replicated: bool = False,
    ) -> Log:
        """Open a partition with the directory's checkpoints. Create its folder if it is missing.

        A read-only partition is reopened as long as another process changes it. A `replicated`
        partition starts at its stored high watermark.

        Raises
        ------
        UnknownTopicOrPartitionError
            Another process deleted or moved the partition since this directory was opened.
        """
        from logstore.storage.loading.loader import open_log
        from logstore.storage.loading.request import LoadRequest

        folder = self.partition_path(topic_partition)
        if (
            self.read_only
            and topic_partition in self._listed
            and not self.has_folder(topic_partition)
        ):
            raise UnknownTopicOrPartitionError(f"{folder} was deleted or moved")
        reached_offset = self.high_watermarks.get(topic_partition, 0)

        def store_reached_offset(offset: int) -> None:
            if not self.read_only:
                self._rewrite(REPLICATION_OFFSETS, {topic_partition: offset})

        recovery_point = self.recovery_points.get(topic_partition)
        is_at_rest = self.is_at_rest(topic_partition)
        was_half_opened = topic_partition in self.half_opened
        self.half_opened.add(topic_partition)
        keep_below = 0
        if self._on_damage is OnDamage.REFUSE:
            # All data of a closed log was durable. The data of a copied log might have been.
            is_known = recovery_point is not None and not is_at_rest
            keep_below = recovery_point if is_known else INT64_MAX  # type: ignore[assignment]  # it is there

        is_new = topic_partition in self._new
        self._new.discard(topic_partition)

        def load(finding_level: int, runtime: Runtime = self.runtime) -> Log:
            if not is_new:
                runtime.fs.make_dirs(folder)
            self._hide_others(folder)
            return open_log(
                runtime,
                LoadRequest(
                    directory=folder,
                    topic_partition=topic_partition,
                    config=config,
                    clean=is_at_rest,
                    recovery_point=recovery_point or 0,
                    log_start_offset=self.log_starts.get(topic_partition, 0),
                    producer_id_expiration_ms=broker_config.producer_id_expiration_ms,
                    finding_level=finding_level,
                    small_file_max_bytes=broker_config.logstore_small_file_max_bytes,
                    reached_offset=reached_offset,
                    high_watermark=reached_offset if replicated else None,
                    store_reached_offset=store_reached_offset if runtime is self.runtime else None,
                    on_damage=self._on_damage,
                    keep_below=keep_below,
                    surveys=topic_partition in self._surveyed,
                    is_named=is_new,
                ),
            )

        def load_all(finding_level: int) -> Log:
            try:
                return load(finding_level)
            except (CorruptionError, UnsupportedFormatError, SegmentOverflowError) as error:
                if not self.skip_damage(topic_partition, error):
                    raise
            return load(finding_level)

        try:
            if topic_partition in self.partitions:
                if keep_below and not self.read_only and self._may_be_cut(folder, is_at_rest):
                    # Open the partition in memory first, so that a refusal changes no file.
                    overlay = OverlayFileSystem(ReadOnlyFileSystem(self.runtime.fs))
                    load(logging.DEBUG, replace(self.runtime, fs=overlay)).close()
                if self._views is not None and topic_partition not in self._surveyed:
                    return self._views.take(folder, load, load_all)
            return load_all(logging.WARNING)
        except LogStoreError:  # the files are unchanged
            if not was_half_opened:
                self.half_opened.discard(topic_partition)
            raise

    def _may_be_cut(self, folder: str, is_at_rest: bool) -> bool:
        """Return whether opening a partition may verify and truncate its log."""
        fs = self.runtime.fs
        if not is_at_rest or not fs.is_dir(folder):
            return fs.is_dir(folder)
        names = set(fs.list_dir(folder))
        logs = [name.removesuffix(LOG_SUFFIX) for name in names if name.endswith(LOG_SUFFIX)]
        return any(f"{stem}{INDEX_SUFFIX}" not in names for stem in logs)

    def skip_damage(self, topic_partition: TopicPartition, error: Exception) -> bool:
        """Permit reopening a partition without its damage. Return False if that cannot help.

        Parameters
        ----------
        error : Exception
            The error that was raised when the partition was opened or read.
        """
        is_damage = isinstance(
            error, CorruptionError | UnsupportedFormatError | SegmentOverflowError
        )
        is_new = topic_partition not in self._surveyed
        if not (self._on_damage is OnDamage.PASS_OVER and is_damage and is_new):
            return False
        logger.info(
            "%s: surveyed batch by batch, because it is damaged: %s", topic_partition, error
        )
        self.survey(topic_partition)
        return True

    def survey(self, topic_partition: TopicPartition) -> None:
        """Check every batch of a partition whenever it is opened from now on."""
        assert self._on_damage is OnDamage.PASS_OVER, self._on_damage
        self._surveyed.add(topic_partition)
        if isinstance(self.runtime.fs, OverlayFileSystem):
            self.runtime.fs.refresh(self.partition_path(topic_partition))

    def has_file(self, name: str) -> bool:
        """Return whether the directory contains a file with this name."""
        return self.runtime.fs.exists(f"{self.path}/{name}")

    # -- read-only, concurrently with a writing process ----------------------------------

    def is_unchanging(self) -> bool:
        """Return whether no other process can change the directory."""
        return not self.read_only or self.writer() is None

    def writer(self) -> int | None:
        """Return the id of the writing process, 0 if it is unknown, or None if there is none."""
        return self.runtime.fs.lock_holder(f"{self.path}/{LOCK_FILE}")

    def has_folder(self, topic_partition: TopicPartition) -> bool:
        """Return whether a partition's folder currently exists, regardless of earlier reads."""
        return self._disk().is_dir(self.partition_path(topic_partition))

    def target_of_move(self, topic_partition: TopicPartition) -> str | None:
        """Return the data directory to which another process moved a partition, if it is known.

        It is known if the move was recorded when this directory was opened, or still is.
        """
        fs = self._disk()
        moves = self.moves | read_moves(fs, self.path, self._small_file_max_bytes)
        move = moves.get(topic_partition)
        if move is None or move.undone or not fs.is_dir(f"{move.target}/{topic_partition}"):
            return None
        return move.target

    def _disk(self) -> FileSystem:
        """Return the file system without the overlay, whose reads may be old."""
        fs = self.runtime.fs
        return fs.base if isinstance(fs, OverlayFileSystem) else fs

    def may_reopen(self, topic_partition: TopicPartition, attempt: int) -> bool:
        """Return whether to reopen an unreadable partition because another process writes it.

        `attempt` is the number of the failed attempt, starting at 1.
        """
        if self._views is None or attempt >= ATTEMPTS_MAX or self.writer() is None:
            return False
        self._views.refresh(self.partition_path(topic_partition), attempt)
        return True

    def reload(self) -> None:
        """Re-read the checkpoints and the clean-shutdown marker."""
        self._damaged.clear()
        self.clean = is_clean_shutdown(self.runtime.fs, self.path)
        self.recovery_points = self._read(RECOVERY_POINTS)
        self.log_starts = self._read(LOG_START_OFFSETS)
        self.high_watermarks = self._read(REPLICATION_OFFSETS)

    # -- checkpoints ---------------------------------------------------------------------

    def checkpoint(self, name: str) -> OffsetCheckpoint:
        """Return one of the directory's offset checkpoints."""
        return self._checkpoints[name]

    def _read(self, name: str) -> dict[TopicPartition, int]:
        if name in self._damaged:
            return {}
        try:
            return self.checkpoint(name).read()
        except CorruptCheckpointError as error:
            # As in Kafka, recovery then starts at 0 and reads more than necessary.
            logger.warning("%s; it is treated as empty", error)
            self._damaged.add(name)  # warn once, not for each partition
            return {}

    def write_recovery_points(
        self, logs: Mapping[TopicPartition, CheckpointOffsets], since: int | None = None
    ) -> bool:
        """Checkpoint the recovery points. The entries of all other logs are retained.

        `since` is the value of `checkpoint_writes` before the logs were measured. If another thread
        has written a checkpoint since then, this writes nothing and returns False, because the
        other thread's values may be newer and acknowledged.
        """
        points = {tp: log.recovery_point for tp, log in logs.items()}
        return self._update(RECOVERY_POINTS, points, since)

    def write_high_watermarks(
        self, logs: Mapping[TopicPartition, CheckpointOffsets], since: int | None = None
    ) -> bool:
        """Checkpoint the high watermarks. Only a Kafka broker uses them as such."""
        marks = {tp: log.high_watermark for tp, log in logs.items()}
        return self._update(REPLICATION_OFFSETS, marks, since)

    def write_log_starts(
        self, logs: Mapping[TopicPartition, CheckpointOffsets], since: int | None = None
    ) -> bool:
        """Checkpoint the log starts that are above the base offset of the first segment."""
        starts = {
            tp: log.log_start_offset for tp, log in logs.items() if log.log_start_offset is not None
        }
        return self._update(LOG_START_OFFSETS, starts, since, replaced=logs.keys())

    def cleaner_offset(self, topic_partition: TopicPartition) -> int | None:
        """Return the stored first dirty offset of a partition, or None if there is none.

        Always None if the directory is offline, because its partitions are not cleaned.
        """
        return self._read(CLEANER_OFFSETS).get(topic_partition) if self.is_online else None

    def write_cleaner_offset(self, topic_partition: TopicPartition, offset: int) -> None:
        """Store the first dirty offset of a partition."""
        self._rewrite(CLEANER_OFFSETS, {topic_partition: offset})

    def lower_cleaner_offset(self, topic_partition: TopicPartition, offset: int) -> None:
        """Lower the first dirty offset of a partition to `offset` if it is higher."""
        with self._checkpointing:
            stored = self.cleaner_offset(topic_partition)
            if stored is not None and stored > offset:
                self.write_cleaner_offset(topic_partition, offset)

    def lower_recovery_point(
        self, topic_partition: TopicPartition, offset: int, log_start_offset: int
    ) -> None:
        """Lower the recovery point of a partition to `offset` if it is higher.

        At the next opening, a log start above `offset` is only accepted if another checkpoint
        proves that the log reached it. The high watermark therefore serves as proof in place of the
        recovery point.
        """
        with self._checkpointing:
            if self._read(RECOVERY_POINTS).get(topic_partition, 0) <= offset:
                return
            high_watermark = self._read(REPLICATION_OFFSETS).get(topic_partition, 0)
            if max(high_watermark, offset) < log_start_offset:
                self._rewrite(REPLICATION_OFFSETS, {topic_partition: log_start_offset})
            self._rewrite(RECOVERY_POINTS, {topic_partition: offset})
            self._written.clear()

    def redirty_last_cleaned(self, topic: str) -> None:
        """Make the last cleaned offset of a topic's partitions dirty again."""
        with self._checkpointing:
            stored = self._read(CLEANER_OFFSETS)
            lowered = {tp: redirtied(end) for tp, end in stored.items() if tp.topic == topic}
            if lowered:
                self._rewrite(CLEANER_OFFSETS, lowered)

    def _update(
        self,
        name: str,
        offsets: Mapping[TopicPartition, int],
        since: int | None,
        replaced: Iterable[TopicPartition] = (),
    ) -> bool:
        """Rewrite a checkpoint unless the values are the same as in the last call."""
        asked = (dict(offsets), set(replaced))
        self.check_lock()
        with self._checkpointing:
            if since not in (None, self.checkpoint_writes):
                return False
            # Most runs of the periodic tasks find no change.
            if self._written.get(name) != asked:
                self._rewrite(name, *asked)
                self._written[name] = asked
            return True

    def _rewrite(
        self,
        name: str,
        offsets: Mapping[TopicPartition, int],
        replaced: Collection[TopicPartition] = (),
    ) -> None:
        self.check_lock()
        with self._checkpointing:
            kept = {
                tp: offset
                for tp, offset in self._read(name).items()
                if tp in self.partitions and tp not in replaced
            }
            # A partition might have been deleted after it was measured.
            known = {tp: offset for tp, offset in offsets.items() if tp in self.partitions}
            self.checkpoint_writes += 1
            self.checkpoint(name).write(kept | known)
            self._damaged.discard(name)

    # -- folders -------------------------------------------------------------------------

    def retire(self, topic_partition: TopicPartition, delay_ms: int) -> None:
        """Rename a partition's folder for deletion and forget the partition.

        The change is durable on return. The partition cannot reappear, and its name can be reused.
        The folder is removed after `delay_ms`.
        """
        fs = self.runtime.fs
        source = self.partition_path(topic_partition)
        target = (
            f"{self.path}/{deletion_dir_name(topic_partition, self.runtime.rng.getrandbits(128))}"
        )
        if fs.is_dir(source):
            fs.rename(source, target)
            fs.sync_dir(self.path)
            due = self.runtime.clock.monotonic_ms() + delay_ms
            self._folder_deletions.append(_FolderDeletion(due, target))
        self.forget_partition(topic_partition)

    def forget_partition(self, topic_partition: TopicPartition) -> None:
        """Forget a partition without changing its files."""
        self._new.discard(topic_partition)
        self._at_rest.discard(topic_partition)
        self.withheld.pop(topic_partition, None)
        self.partitions.discard(topic_partition)
        self.half_opened.discard(topic_partition)
        self.recovery_points.pop(topic_partition, None)
        self.log_starts.pop(topic_partition, None)
        self.high_watermarks.pop(topic_partition, None)

    def adopt(self, topic_partition: TopicPartition, offsets: Mapping[str, int]) -> None:
        """Register a cleanly closed partition whose folder will be moved into this directory.

        Parameters
        ----------
        offsets : mapping
            The partition's entries by checkpoint name. Checkpoints without an entry are omitted.

        Notes
        -----
        The entries are durable on return. If the folder is never moved, the next start drops them.
        """
        with self._checkpointing:
            self._written.clear()
            self.partitions.add(topic_partition)
            self._at_rest.add(topic_partition)
            self.recovery_points[topic_partition] = offsets.get(RECOVERY_POINTS, 0)
            self.log_starts[topic_partition] = offsets.get(LOG_START_OFFSETS, 0)
            for name in CHECKPOINTS:
                entries = {topic_partition: offsets[name]} if name in offsets else {}
                if entries or topic_partition in self._read(name):
                    self._rewrite(name, entries, replaced=(topic_partition,))

    def note_move(self, topic_partition: TopicPartition, move: Move | None) -> None:
        """Record durably that a move has started or, with None, that it has finished."""
        moves = self.moves.copy()
        moves.pop(topic_partition, None)
        if move is not None:
            moves[topic_partition] = move
        if moves != self.moves:
            write_moves(self.runtime.fs, self.path, moves)
            self.moves = moves

    def remove_future(self, name: str) -> None:
        """Durably remove an unfinished copy, if it exists."""
        path = f"{self.path}/{name}"
        if self.runtime.fs.is_dir(path):
            remove_tree(self.runtime.fs, path)
            self.runtime.fs.sync_dir(self.path)
        self.futures.discard(name)

    def forget_retired(self) -> None:
        """Drop entries of partitions that are no longer in this directory from all checkpoints."""
        fs = self.runtime.fs
        with self._checkpointing:
            self._written.clear()
            for name in CHECKPOINTS:
                if fs.exists(f"{self.path}/{name}"):
                    self._rewrite(name, {})

    def delete_retired_folders(self, *, force: bool = False) -> int:
        """Remove the folders whose delay has expired, or all with `force`. Return their number."""
        with self._removing:
            now_ms = self.runtime.clock.monotonic_ms()
            due = [
                deletion
                for deletion in self._folder_deletions
                if force or deletion.due_ms <= now_ms
            ]
            for each in due:
                if self.runtime.fs.exists(each.path):  # an interrupt may have followed its removal
                    remove_tree(self.runtime.fs, each.path)
                self._folder_deletions.remove(each)
            return len(due)

    # -- closing -------------------------------------------------------------------------

    def close(self, *, clean: bool) -> None:
        """Close the directory. If `clean` is set, write the clean-shutdown marker.

        Waits for threads that are writing a checkpoint or removing folders. Later attempts are
        refused.
        """
        if self._lifetime.is_over:
            return
        with self._removing, self._checkpointing:
            try:
                if clean and not self.read_only and self.is_online:
                    mark_clean_shutdown(self.runtime.fs, self.path)
            finally:
                self._lifetime.end()
                if self._file_lock is not None:
                    self._file_lock.release()
                    self._file_lock = None


def in_use_error(fs: FileSystem, path: str) -> KafkaStorageError:
    """Return the error for a data directory whose lock is held."""
    lock = f"{path}/{LOCK_FILE}"
    holder = describe_holder(fs.lock_holder(lock))
    return KafkaStorageError(f"data directory {path} is in use: {holder} holds the lock of {lock}")


def redirtied(cleaner_offset: int) -> int:
    """Return the first dirty offset that makes the last cleaned record dirty again."""
    return max(0, cleaner_offset - 1)


def partition_folders(fs: FileSystem, path: str) -> list[str]:
    """Return the names of all partition folders in a data directory, in any state."""
    try:
        return [name for name in fs.list_dir(path) if parse_log_dir(name) is not None]
    except OSError:  # reported when the directory is opened
        return []
