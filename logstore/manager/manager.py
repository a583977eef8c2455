"""The log manager: all logs and topics of a broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from logstore.errors import (
    KafkaStorageError,
    UnknownTopicOrPartitionError,
)
from logstore.faults.rules import REQUEST_KINDS, Faults
from logstore.manager.directories.directory import LogDirectory
from logstore.manager.directories.opening import close_unused, open_directories
from logstore.manager.registry import LogRegistry
from logstore.manager.services import LogServices
from logstore.manager.topic_admin import TopicAdmin
from logstore.runtime import Lifetime
from logstore.runtime.lifetime import lasting
from logstore.storage.loading.on_damage import OnDamage
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig
    from logstore.manager.directories.directory import OpenedFolder
    from logstore.manager.directories.identity import BrokerIdentity
    from logstore.manager.opening import LoadListener
    from logstore.manager.services import LogService
    from logstore.runtime import Runtime
    from logstore.storage.log.log import Log
    from logstore.storage.log.offsets import CheckpointOffsets

    CheckpointWrite = Callable[
        [LogDirectory, Mapping[TopicPartition, CheckpointOffsets], int], bool
    ]


class LogManager:
    """All logs of a broker.

    Thread-safe. Changes of topics and partitions share one lock; appends use the lock of the log.
    Objects that use a manager are members of its `lifetime`, and raise `IllegalStateError` after it
    is closed. A log is opened on first use. If a directory was not closed cleanly, all its logs are
    opened at startup, because its clean-shutdown marker covers all of them.

    Parameters
    ----------
    runtime : Runtime
        Provides files, clock and scheduler. If `read_only`, the files must be an overlay over a
        read-only view.
    log_dirs : sequence of str
        Data directories, created if missing unless `read_only`. The first contains
        `logstore-topics.json`.
    broker_config : BrokerConfig
        Defaults for topics without an override.
    read_only : bool
        Write no checkpoints or markers, take no lock, and refuse new topics.
    on_load : callable, optional
        Called for each partition that is opened at startup because of an unclean shutdown.
    faults : Faults, optional
        Fault rules. [default: none]
    replicated : bool
        Whether the logs are replicas in a cluster; see `LogRegistry`.
    on_damage : OnDamage
        How to handle damaged partitions.
    metadata_log : bool
        Open the log of a KRaft node, `__cluster_metadata-0`, as a partition. Requires `read_only`.
    shown : OpenedFolder, optional
        The only folder to open.

    Attributes
    ----------
    faults : Faults
        Fault rules for requests. The log manager itself does not apply them.
    registry : LogRegistry
        The logs and their directories.
    topics : TopicAdmin
        Creates, alters and deletes topics.
    catalog : TopicCatalog
        The topics and their configurations.
    directories : list of LogDirectory
    services : LogServices
    lifetime : Lifetime

    Raises
    ------
    InvalidConfigurationError
        A directory is missing (read-only), or a partition is in two directories.
    KafkaStorageError
        Another process holds a directory, the first directory (which contains the topics) cannot be
        read, or no directory can be read. Any other unreadable directory goes offline, and the rest
        are served.
    """

    def __init__(
        self,
        runtime: Runtime,
        log_dirs: Sequence[str],
        broker_config: BrokerConfig,
        *,
        read_only: bool = False,
        on_load: LoadListener | None = None,
        faults: Faults | None = None,
        replicated: bool = False,
        on_damage: OnDamage = OnDamage.RECOVER,
        shown: OpenedFolder | None = None,
        metadata_log: bool = False,
    ) -> None:
        self.runtime = runtime
        self.faults = Faults(REQUEST_KINDS, runtime.clock) if faults is None else faults
        self.read_only = read_only
        self._identity: BrokerIdentity | None = None
        self.services = LogServices()
        self.lifetime = Lifetime("the broker")
        self._lock = self.lifetime.lock(runtime.lock())
        self._closing = runtime.lock()
        self.directories, homes, self.catalog = open_directories(
            runtime,
            log_dirs,
            broker_config,
            read_only=read_only,
            on_damage=on_damage,
            shown=shown,
            metadata_log=metadata_log,
        )
        try:
            self.registry = LogRegistry(
                runtime,
                self.directories,
                homes,
                self.catalog,
                self.services,
                self._lock,
                read_only=read_only,
                replicated=replicated,
            )
            self.topics = TopicAdmin(self.registry, self.catalog, self.services, self._lock)
            if not read_only:
                self.topics.assign_missing_ids()
                self.topics.finish_deletions()
                threads = broker_config.num_recovery_threads_per_data_dir
                self.registry.load_unclean(on_load, threads)
        except BaseException:
            close_unused(self.directories)
            raise
        for member in (self, self.registry, self.topics, self.catalog, self.catalog.store):
            self.lifetime.add(member)

    def __repr__(self) -> str:
        return f"LogManager({', '.join(directory.path for directory in self.directories)})"

    @property
    @lasting
    def broker_config(self) -> BrokerConfig:
        """The current settings, which `TopicAdmin.reconfigure` changes."""
        return self.catalog.broker_config

    @property
    def identity(self) -> BrokerIdentity:
        """The broker's node id and cluster id, determined by the first call.

        Raises
        ------
        InvalidConfigurationError, CorruptCheckpointError
            See `read_identity`.
        """
        if self._identity is None:
            # imported here, because most processes do not need it
            from logstore.manager.directories.identity import read_identity

            paths = [directory.path for directory in self.directories if directory.is_online]
            self._identity = read_identity(self.runtime.fs, paths, self.broker_config)
        return self._identity

    def log(self, topic_partition: TopicPartition) -> Log:
        """Return a partition's log, opening it if necessary; see `LogRegistry.log`."""
        return self.registry.log(topic_partition)

    # -- deleting and truncating records -------------------------------------------------

    def delete_records(self, topic_partition: TopicPartition, before_offset: int) -> int:
        """Delete the records below an offset, durably; see `Log.delete_records`.

        The log start is checkpointed before this returns, so a crash cannot bring records back.
        """
        log = self.log(topic_partition)
        low_watermark = log.delete_records(before_offset)
        self._write_checkpoints(log)
        return low_watermark

    def raise_log_start(self, topic_partition: TopicPartition, offset: int) -> None:
        """Advance a replica's log start offset durably; see `Log.raise_log_start`."""
        log = self.log(topic_partition)
        if log.raise_log_start(offset):
            self._write_checkpoints(log)

    def truncate_to(self, topic_partition: TopicPartition, offset: int) -> bool:
        """Truncate a log at an offset, and lower its checkpoints; see `Log.truncate_to`.

        A cleaning pass that might read the truncated segments is stopped first.
        """
        log = self.log(topic_partition)
        with log.lock:  # a roll must not close the segment that contains the offset
            if offset >= log.active_segment.base_offset:
                return self._truncate(log, offset)
        with self.services.paused(topic_partition), log.lock:
            return self._truncate(log, offset)

    def _truncate(self, log: Log, offset: int) -> bool:
        self._lower_checkpoints(log, offset)
        if truncated := log.truncate_to(offset):
            self._write_checkpoints(log)
        return truncated

    def truncate_fully_and_start_at(
        self, topic_partition: TopicPartition, offset: int, log_start_offset: int | None = None
    ) -> None:
        """Drop all records and continue at `offset`. Lower the checkpoints as in `truncate_to`."""
        log = self.log(topic_partition)
        with self.services.paused(topic_partition), log.lock:
            self._lower_checkpoints(log, min(offset, log.segments.first.base_offset))
            log.truncate_fully_and_start_at(offset, log_start_offset)
            self._write_checkpoints(log)

    def _lower_checkpoints(self, log: Log, offset: int) -> None:
        """Lower the checkpoints of a log before it is truncated to an offset.

        Records that are appended again must not count as cleaned, regardless of the current policy,
        because a topic that becomes compacted again uses its old checkpoint. The log end must not
        be below the recovery point, even if the process ends before the checkpoints are written
        again. The caller must hold the log's lock.
        """
        tp = log.topic_partition
        directory = self.registry.directory_of(tp)
        floor = log.segments.floor(offset)  # active segment after the truncation
        cleaned_offset = offset if floor is None else floor.base_offset
        with directory.guard("cannot write checkpoints"):
            directory.lower_cleaner_offset(tp, cleaned_offset)
            directory.lower_recovery_point(tp, offset, log.log_start_offset)

    def _write_checkpoints(self, log: Log) -> None:
        """Write the checkpoints before responding.

        Otherwise a log start beyond the new log end would empty the log when it is reopened.
        """
        tp = log.topic_partition
        directory = self.registry.directory_of(tp)
        with directory.guard("cannot write checkpoints"):
            for write in (LogDirectory.write_log_starts, LogDirectory.write_recovery_points):
                _write_current(directory, write, lambda: {tp: log.offsets.checkpoint()})

    # -- checkpoints and removal ---------------------------------------------------------

    def checkpoint_recovery_points(self) -> None:
        """Write the recovery points of all open logs."""
        self._checkpoint(LogDirectory.write_recovery_points)

    def checkpoint_log_starts(self) -> None:
        """Write the log starts of all open logs."""
        self._checkpoint(LogDirectory.write_log_starts)

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks of all open logs."""
        self._checkpoint(LogDirectory.write_high_watermarks)

    def _checkpoint(self, write: CheckpointWrite) -> None:
        for directory in self.directories:
            if directory.is_online:
                with suppress(KafkaStorageError), directory.guard("cannot write checkpoints"):
                    _write_current(directory, write, partial(self.registry.offsets_in, directory))

    def delete_expired_files(self) -> None:
        """Remove deleted segments and topics whose delay has expired."""
        for log in self.registry.open_logs():
            with suppress(UnknownTopicOrPartitionError):  # just deleted
                if not log.is_offline:
                    log.delete_expired_files()
        self.registry.delete_folders()

    # -- services ------------------------------------------------------------------------

    def start(self, services: Sequence[LogService]) -> None:
        """Start services on the runtime's scheduler."""
        self.runtime.scheduler.start()
        self.registry.schedule_folder_deletion(self.directories[0].file_delete_delay_ms)
        for service in services:
            self.services.add(service)
            service.start()

    def stop(self) -> None:
        """Stop the services and the scheduler."""
        self.services.stop()
        self.runtime.scheduler.shutdown()

    # -- closing -------------------------------------------------------------------------

    def close(self) -> None:
        """Flush and close every log, write the checkpoints, and mark the directories clean.

        Work in other threads is either completed first or refused. No file is written after the
        directories are released. A second call waits for the first one.

        Raises
        ------
        KafkaStorageError
            The disk failed. The other logs are closed. Directories with a failure, now or at
            startup, are not marked clean, so the next start recovers them.
        IllegalStateError
            This was called in a signal handler or listener while the thread was changing a log.
            Nothing was closed.
        """
        with self._closing:
            if self.lifetime.is_over:
                return
            self.check_not_inside()
            self.stop()
            with self._lock:  # opening a log and changing a topic hold it
                self.lifetime.end()
            self.registry.close()

    def check_not_inside(self) -> None:
        """Raise `IllegalStateError` if this thread is changing a log."""
        for log in self.registry.open_logs():
            log.check_not_inside()

    def abandon(self, why: str) -> None:
        """Stop as if the process were killed, without flushing or marking a clean shutdown.

        Parameters
        ----------
        why : str
            Reason for errors of later uses, as a continuation of "the broker".
        """
        with self._closing:
            if self.lifetime.is_over:
                return
            self.stop()
            with self._lock:  # as in `close`
                self.registry.abandon(why)
                self.lifetime.end(why)


def _write_current(
    directory: LogDirectory,
    write: CheckpointWrite,
    measure: Callable[[], Mapping[TopicPartition, CheckpointOffsets]],
) -> None:
    """Write a checkpoint of the logs' offsets. Retry if another thread wrote one in the meantime.

    A log start measured before records were deleted must not be written after their deletion was
    acknowledged, because the next start would bring the records back. The logs are not measured
    under the checkpoint lock, because a thread that moves a log holds the log's lock while it waits
    for the checkpoint lock.
    """
    while True:
        since = directory.checkpoint_writes
        if write(directory, measure(), since):
            return
