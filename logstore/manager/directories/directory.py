"""A data directory: its lock, checkpoints and partition folders, and how it was closed.

The log manager owns one `LogDirectory` per data directory. After the first disk failure it is
offline.
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


class ShownFolder(NamedTuple):
    """The one folder of a directory to open, under any name, or one file in it.

    Attributes
    ----------
    topic_partition : TopicPartition
        The partition to show it as.
    name : str
        The folder's name.
    file : str or None
        The only `.log` file to show, under any name.
    """

    topic_partition: TopicPartition
    name: str
    file: str | None = None


class LogDirectory:
    """A data directory and its partitions.

    Parameters
    ----------
    read_only : bool
        Take no lock and remove no marker. A missing directory is an error.
    file_delete_delay_ms : int
        How long to keep partition folders whose deletion was scheduled earlier.
    small_file_max_bytes : int
        Size limit of files that are read as a whole.
    on_damage : OnDamage
        How to handle damaged partitions; `PASS_OVER` needs `read_only`.
    metadata_log : bool
        Open the log of a KRaft node, `__cluster_metadata-0`, as a partition; only if `read_only`.
    shown : ShownFolder, optional
        The only folder to open, read-only. Checkpoints apply to it only if it has its partition's
        name.

    Attributes
    ----------
    clean : bool
        Whether the last process closed it cleanly.
    fresh : bool
        Whether it had no partition when it was opened.
    partitions : set of TopicPartition
        The partitions in it.
    high_watermarks : dict of TopicPartition to int
        The state found at opening, as evidence only.
    half_opened : set of TopicPartition
        Partitions that are being opened, or whose opening was ended by a disk failure or an
        interrupt. Their files may be half changed, so the next attempt, or the next start, must
        recover them. The caller of `load` removes a partition once it has registered the log.
    moves : dict of TopicPartition to Move
        Interrupted moves to other directories.
    futures : set of str
        Folders of unfinished moves into this directory.
    withheld : dict of TopicPartition to str
        Partitions that may have moved away, and why that is unknown.
    checkpoint_writes : int
        Number of checkpoint writes.
    offline_reason : str or None
        Why the directory is offline, or None if it is online.
    went_offline : Signal of str
        Emitted with the reason when it goes offline, under the locks of the thread that met the
        failure.

    Raises
    ------
    InvalidConfigurationError
        It does not exist (read-only), or it contains data directories, as a cluster's does.
    KafkaStorageError
        Another process, such as a running Kafka, or another broker of this process holds the lock.
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
        shown: ShownFolder | None = None,
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
        self._new: set[TopicPartition] = set()  # whose folders were created durably
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
        # Entries of a missing partition must not apply to a new one with the same name.
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
        """List the folders: partitions, partitions to be deleted, unfinished copies, and others."""
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
                logger.warning("%s is left alone: only a broker knows what to do with it", path)
        if foreign:
            logger.warning(
                "%s: passed over, as no folder of a partition is called so: %s; a broker refuses"
                " the whole directory for that",
                self.path,
                ", ".join(foreign),
            )

    @property
    def is_online(self) -> bool:
        """Whether the directory can be used."""
        return self.offline_reason is None

    def go_offline(self, reason: str) -> None:
        """Refuse further use. The first reason is retained."""
        if self.offline_reason is None:
            logger.error("data directory %s is offline: %s", self.path, reason)
            self.offline_reason = reason
            self.went_offline.emit(reason)

    def guard(self, what: str, topic_partition: TopicPartition | None = None) -> StorageGuard:
        """Take the directory offline if a file operation inside fails.

        Parameters
        ----------
        what : str
            The failed action: "cannot write checkpoints".
        topic_partition : TopicPartition, optional
            The partition to name in place of the directory.
        """
        if topic_partition is None:
            return StorageGuard(self, self.path, what)
        return StorageGuard(self, topic_partition, what, f"{what} {topic_partition}")

    def check_online(self) -> None:
        """Raise `KafkaStorageError` if the directory is offline."""
        if self.offline_reason is not None:
            raise KafkaStorageError(f"data directory {self.path} is offline: {self.offline_reason}")

    def check_lock(self) -> None:
        """If the lock file was removed or replaced, go offline and raise `KafkaStorageError`.

        Another process may have taken the new lock file since then.
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
        """Return whether a partition that is not open was closed cleanly."""
        left_well = self.clean or self.fresh or topic_partition in self._at_rest
        return left_well and topic_partition not in self.half_opened

    def partition_path(self, topic_partition: TopicPartition) -> str:
        """Return the folder of a partition."""
        shown = self._shown
        if shown is not None and topic_partition == shown.topic_partition:
            return f"{self.path}/{shown.name}"
        return f"{self.path}/{topic_partition}"

    def _show(self, shown: ShownFolder) -> None:
        """Open one partition only. If it was renamed, the checkpoints do not apply to it."""
        self.partitions.add(shown.topic_partition)
        if shown.file is not None or shown.name != str(shown.topic_partition):
            self.clean = False
            for entries in (self.recovery_points, self.log_starts, self.high_watermarks):
                entries.pop(shown.topic_partition, None)

    def _hide_others(self, folder: str) -> None:
        """Show one `.log` file of a folder, under the name of its first offset."""
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
        """Create the folders of new partitions durably, with one sync for all of them."""
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
        """Open a partition with the directory's checkpoints, and create its folder if missing.

        A read-only partition is opened again while another process changes it. A `replicated` one
        starts at its stored high watermark.
        """
        from logstore.storage.loading.loader import open_log
        from logstore.storage.loading.request import LoadRequest

        folder = self.partition_path(topic_partition)
        reached_offset = self.high_watermarks.get(topic_partition, 0)

        def keep_reached_offset(offset: int) -> None:
            if not self.read_only:
                self._rewrite(REPLICATION_OFFSETS, {topic_partition: offset})

        recovery_point = self.recovery_points.get(topic_partition)
        is_at_rest = self.is_at_rest(topic_partition)
        was_half_opened = topic_partition in self.half_opened
        self.half_opened.add(topic_partition)
        keep_below = 0
        if self._on_damage is OnDamage.REFUSE:
            # All data of a closed log was durable. Of a copied log it may have been.
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
                    keep_reached_offset=keep_reached_offset if runtime is self.runtime else None,
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
                if not self.pass_over(topic_partition, error):
                    raise
            return load(finding_level)

        try:
            if topic_partition in self.partitions:
                if keep_below and not self.read_only and self._may_be_cut(folder, is_at_rest):
                    # Open it in memory first, so a refusal changes no file.
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
        """Return whether opening a partition may verify and truncate it."""
        fs = self.runtime.fs
        if not is_at_rest or not fs.is_dir(folder):
            return fs.is_dir(folder)
        names = set(fs.list_dir(folder))
        logs = [name.removesuffix(LOG_SUFFIX) for name in names if name.endswith(LOG_SUFFIX)]
        return any(f"{stem}{INDEX_SUFFIX}" not in names for stem in logs)

    def pass_over(self, topic_partition: TopicPartition, error: Exception) -> bool:
        """Allow a partition to be reopened without its damage. Return False if that cannot help.

        Parameters
        ----------
        error : Exception
            The error when opening or reading it.
        """
        is_damage = isinstance(
            error, CorruptionError | UnsupportedFormatError | SegmentOverflowError
        )
        is_new = topic_partition not in self._surveyed
        if not (self._on_damage is OnDamage.PASS_OVER and is_damage and is_new):
            return False
        logger.info("%s: looked at batch by batch, since %s", topic_partition, error)
        self.survey(topic_partition)
        return True

    def survey(self, topic_partition: TopicPartition) -> None:
        """Check a partition batch by batch whenever it is opened from now on."""
        assert self._on_damage is OnDamage.PASS_OVER, self._on_damage
        self._surveyed.add(topic_partition)
        if isinstance(self.runtime.fs, OverlayFileSystem):
            self.runtime.fs.refresh(self.partition_path(topic_partition))

    def has_file(self, name: str) -> bool:
        """Return whether the directory has a file of that name."""
        return self.runtime.fs.exists(f"{self.path}/{name}")

    # -- read-only, concurrently with a writing process ----------------------------------

    def is_unchanging(self) -> bool:
        """Return whether no other process can change the directory."""
        return not self.read_only or self.writer() is None

    def writer(self) -> int | None:
        """Return the process that writes the directory: its id, 0 if unknown, None if none does."""
        return self.runtime.fs.lock_holder(f"{self.path}/{LOCK_FILE}")

    def has_folder(self, topic_partition: TopicPartition) -> bool:
        """Return whether a partition's folder exists now, regardless of earlier reads."""
        fs = self.runtime.fs
        if isinstance(fs, OverlayFileSystem):
            fs = fs.base
        return fs.is_dir(self.partition_path(topic_partition))

    def may_reopen(self, topic_partition: TopicPartition, attempt: int) -> bool:
        """Return whether to reopen an unreadable partition, as another process writes it.

        `attempt` is the number of the one that failed, 1 for the first.
        """
        if self._views is None or attempt >= ATTEMPTS_MAX or self.writer() is None:
            return False
        self._views.refresh(self.partition_path(topic_partition), attempt)
        return True

    def reload(self) -> None:
        """Read the checkpoints and the clean-shutdown marker again."""
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
            # As in Kafka: recovery starts at 0 and reads more than necessary.
            logger.warning("%s; it is taken as empty", error)
            self._damaged.add(name)  # warn once, not for each partition
            return {}

    def write_recovery_points(
        self, logs: Mapping[TopicPartition, CheckpointOffsets], since: int | None = None
    ) -> bool:
        """Checkpoint the recovery points; entries of other logs are retained, here and below.

        `since`, here and below, is the `checkpoint_writes` from before the logs were measured. If
        another thread wrote since then, this writes nothing and returns False: the other values may
        be newer and acknowledged.
        """
        points = {tp: log.recovery_point for tp, log in logs.items()}
        return self._update(RECOVERY_POINTS, points, since)

    def write_high_watermarks(
        self, logs: Mapping[TopicPartition, CheckpointOffsets], since: int | None = None
    ) -> bool:
        """Checkpoint the high watermarks; for a broker, not trusted here."""
        marks = {tp: log.high_watermark for tp, log in logs.items()}
        return self._update(REPLICATION_OFFSETS, marks, since)

    def write_log_starts(
        self, logs: Mapping[TopicPartition, CheckpointOffsets], since: int | None = None
    ) -> bool:
        """Checkpoint the log starts that are above the base of the first segment."""
        starts = {
            tp: log.log_start_offset for tp, log in logs.items() if log.log_start_offset is not None
        }
        return self._update(LOG_START_OFFSETS, starts, since, replaced=logs.keys())

    def cleaner_offset(self, topic_partition: TopicPartition) -> int | None:
        """Return the stored first dirty offset of a partition, or None if there is none.

        Always None in an offline directory, whose partitions are not cleaned.
        """
        return self._read(CLEANER_OFFSETS).get(topic_partition) if self.is_online else None

    def write_cleaner_offset(self, topic_partition: TopicPartition, offset: int) -> None:
        """Store the first dirty offset of a partition."""
        self._rewrite(CLEANER_OFFSETS, {topic_partition: offset})

    def lower_cleaner_offset(self, topic_partition: TopicPartition, offset: int) -> None:
        """Lower the first dirty offset of a partition to `offset`, if it is higher."""
        with self._checkpointing:
            stored = self.cleaner_offset(topic_partition)
            if stored is not None and stored > offset:
                self.write_cleaner_offset(topic_partition, offset)

    def lower_recovery_point(
        self, topic_partition: TopicPartition, offset: int, log_start_offset: int
    ) -> None:
        """Lower the recovery point of a partition to `offset`, if it is higher.

        The next opening accepts a log start above `offset` only if another checkpoint proves that
        the log once reached it: the high watermark, in place of the recovery point.
        """
        with self._checkpointing:
            if self._read(RECOVERY_POINTS).get(topic_partition, 0) <= offset:
                return
            high_watermark = self._read(REPLICATION_OFFSETS).get(topic_partition, 0)
            if max(high_watermark, offset) < log_start_offset:
                self._rewrite(REPLICATION_OFFSETS, {topic_partition: log_start_offset})
            self._rewrite(RECOVERY_POINTS, {topic_partition: offset})
            self._written.clear()

    def step_back_cleaner_offsets(self, topic: str) -> None:
        """Make the last cleaned offset of a topic's partitions dirty again."""
        with self._checkpointing:
            stored = self._read(CLEANER_OFFSETS)
            lowered = {tp: stepped_back(end) for tp, end in stored.items() if tp.topic == topic}
            if lowered:
                self._rewrite(CLEANER_OFFSETS, lowered)

    def _update(
        self,
        name: str,
        offsets: Mapping[TopicPartition, int],
        since: int | None,
        replaced: Iterable[TopicPartition] = (),
    ) -> bool:
        """Rewrite a checkpoint unless the last call had the same values."""
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
            # A partition may have been deleted since it was measured.
            known = {tp: offset for tp, offset in offsets.items() if tp in self.partitions}
            self.checkpoint_writes += 1
            self.checkpoint(name).write(kept | known)
            self._damaged.discard(name)

    # -- folders -------------------------------------------------------------------------

    def retire(self, topic_partition: TopicPartition, delay_ms: int) -> None:
        """Rename a partition's folder for deletion, and forget the partition.

        The change is durable on return. The partition does not come back, and its name can be used
        again. The folder is removed after `delay_ms`.
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
        self.disown(topic_partition)

    def disown(self, topic_partition: TopicPartition) -> None:
        """Forget a partition. The files are unchanged."""
        self._new.discard(topic_partition)
        self._at_rest.discard(topic_partition)
        self.withheld.pop(topic_partition, None)
        self.partitions.discard(topic_partition)
        self.half_opened.discard(topic_partition)
        self.recovery_points.pop(topic_partition, None)
        self.log_starts.pop(topic_partition, None)
        self.high_watermarks.pop(topic_partition, None)

    def adopt(self, topic_partition: TopicPartition, offsets: Mapping[str, int]) -> None:
        """Register a partition that was closed cleanly and whose folder is about to be moved here.

        Parameters
        ----------
        offsets : mapping
            Its entries by checkpoint name; checkpoints without an entry are left out.

        Notes
        -----
        The entries are durable on return. If the folder does not arrive, the next start drops them.
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
        """Record a move durably, or with None that it is finished."""
        moves = self.moves.copy()
        moves.pop(topic_partition, None)
        if move is not None:
            moves[topic_partition] = move
        if moves != self.moves:
            write_moves(self.runtime.fs, self.path, moves)
            self.moves = moves

    def remove_future(self, name: str) -> None:
        """Remove an unfinished copy, if it exists, durably."""
        path = f"{self.path}/{name}"
        if self.runtime.fs.is_dir(path):
            remove_tree(self.runtime.fs, path)
            self.runtime.fs.sync_dir(self.path)
        self.futures.discard(name)

    def forget_retired(self) -> None:
        """Drop entries of partitions that are no longer here from all checkpoints."""
        fs = self.runtime.fs
        with self._checkpointing:
            self._written.clear()
            for name in CHECKPOINTS:
                if fs.exists(f"{self.path}/{name}"):
                    self._rewrite(name, {})

    def delete_retired_folders(self, *, force: bool = False) -> int:
        """Remove the folders whose delay is over, or all of them, and return how many."""
        with self._removing:
            now_ms = self.runtime.clock.monotonic_ms()
            due = [
                deletion
                for deletion in self._folder_deletions
                if force or deletion.due_ms <= now_ms
            ]
            for each in due:
                if self.runtime.fs.exists(each.path):  # an interrupt may follow its removal
                    remove_tree(self.runtime.fs, each.path)
                self._folder_deletions.remove(each)
            return len(due)

    # -- closing -------------------------------------------------------------------------

    def close(self, *, clean: bool) -> None:
        """Close the directory; `clean` writes the clean-shutdown marker.

        Waits for threads that write a checkpoint or remove folders. They are refused afterwards.
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


def stepped_back(cleaner_offset: int) -> int:
    """Return the first dirty offset that makes the last cleaned record dirty again."""
    return max(0, cleaner_offset - 1)


def partition_folders(fs: FileSystem, path: str) -> list[str]:
    """Return the names of all partition folders in a data directory, in any state."""
    try:
        return [name for name in fs.list_dir(path) if parse_log_dir(name) is not None]
    except OSError:  # reported when it is opened
        return []


def find_folder(
    directories: Iterable[LogDirectory], topic_partition: TopicPartition
) -> LogDirectory:
    """Return the directory to which another process moved a partition, and register it there.

    Raises
    ------
    UnknownTopicOrPartitionError
        The partition is in none of the directories.
    """
    for directory in directories:
        if directory.has_folder(topic_partition):
            directory.partitions.add(topic_partition)
            return directory
    raise UnknownTopicOrPartitionError(
        f"{topic_partition} is gone: the process that writes here has deleted it"
    )
