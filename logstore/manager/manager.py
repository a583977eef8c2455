"""The log manager: all logs and topics of a broker, from its start to its close."""

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
    from logstore.manager.directories.directory import ShownFolder
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

    Any thread may call: topics and partitions change under one lock, records under each log's.
    All that works through a manager is a member of its `lifetime`: once it is closed, all of that
    raises `IllegalStateError`. Logs are opened when first asked for; a directory that was not
    closed cleanly is opened as a whole, since the marker it gets in the end speaks for all of it.

    Parameters
    ----------
    runtime : Runtime
        For read-only use its files are an overlay over a read-only view.
    log_dirs : sequence of str
        Data directories; the first holds `logstore-topics.json`. Created when missing, unless
        `read_only`.
    broker_config : BrokerConfig
        Defaults for topics without an override.
    read_only : bool
        Write no checkpoint and no marker, take no lock, and refuse new topics.
    on_load : callable, optional
        Told of each partition that had to be opened because of an unclean stop.
    faults : Faults, optional
        None of any kind by default.
    replicated : bool
        Whether its logs are replicas of a cluster's; see `LogRegistry`.
    on_damage : OnDamage
        What is done about damage in partitions.
    metadata_log : bool
        Have the log of a KRaft node, `__cluster_metadata-0`, among the partitions; only read-only.
    shown : ShownFolder, optional
        The only folder that is looked at.

    Attributes
    ----------
    faults : Faults
        Rules that the doors of requests obey; the log manager itself asks nobody.
    registry : LogRegistry
        Which log lives where.
    topics : TopicAdmin
        Creates, alters and deletes topics.
    catalog : TopicCatalog
        Which topics there are.
    directories : list of LogDirectory
    services : LogServices
    lifetime : Lifetime

    Raises
    ------
    InvalidConfigurationError
        A directory is missing (read-only), or a partition stands in two of them.
    KafkaStorageError
        Another process holds a directory, the first one, which has the topics, cannot be read,
        or none can. Any other that cannot be read or loaded is offline, and the rest serves.
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
        shown: ShownFolder | None = None,
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
                self.topics.give_ids()
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
        """The settings in force, which `TopicAdmin.reconfigure` changes."""
        return self.catalog.broker_config

    @property
    def identity(self) -> BrokerIdentity:
        """The broker's number and cluster, as of when it was first asked for.

        Only who tells them needs them: a directory of another broker can be read and cleaned.

        Raises
        ------
        InvalidConfigurationError, CorruptCheckpointError
            See `identity_of`.
        """
        if self._identity is None:
            # Loaded by those who tell them.
            from logstore.manager.directories.identity import identity_of

            paths = [directory.path for directory in self.directories if directory.is_online]
            self._identity = identity_of(self.runtime.fs, paths, self.broker_config)
        return self._identity

    def log(self, topic_partition: TopicPartition) -> Log:
        """Return a partition's log, opened now if it was not; see `LogRegistry.log`."""
        return self.registry.log(topic_partition)

    # -- deleting and truncating records -------------------------------------------------

    def delete_records(self, topic_partition: TopicPartition, before_offset: int) -> int:
        """Delete the records below an offset, durably; see `Log.delete_records`.

        The checkpoint of log starts is written before this returns, so that what was deleted
        does not come back after a crash.
        """
        log = self.log(topic_partition)
        low_watermark = log.delete_records(before_offset)
        self._write_checkpoints(log)
        return low_watermark

    def raise_log_start(self, topic_partition: TopicPartition, offset: int) -> None:
        """Raise the log start of a replica, durably; see `Log.raise_log_start`."""
        log = self.log(topic_partition)
        if log.raise_log_start(offset):
            self._write_checkpoints(log)

    def truncate_to(self, topic_partition: TopicPartition, offset: int) -> bool:
        """Drop what lies at or above an offset; the checkpoints follow. See `Log.truncate_to`.

        A cleaning of the partition is stopped first if it may read what goes.
        """
        log = self.log(topic_partition)
        with log.lock:  # or a roll might close the segment that the offset is in
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
        """Drop everything and go on at `offset`; the checkpoints follow, as in `truncate_to`."""
        log = self.log(topic_partition)
        with self.services.paused(topic_partition), log.lock:
            self._lower_checkpoints(log, min(offset, log.segments.first.base_offset))
            log.truncate_fully_and_start_at(offset, log_start_offset)
            self._write_checkpoints(log)

    def _lower_checkpoints(self, log: Log, offset: int) -> None:
        """Lower the checkpoints of a log that is about to be truncated to an offset.

        Nothing that is appended again counts as cleaned, whatever the policy is now: a topic that
        is compacted again goes by the checkpoint it had. And the log never ends below its recovery
        point, not even if the process ends before the checkpoints are written again. The caller
        holds the lock of the log.
        """
        tp = log.topic_partition
        directory = self.registry.directory_of(tp)
        floor = log.segments.floor(offset)  # the active segment after the truncation
        cleaned_offset = offset if floor is None else floor.base_offset
        with directory.guard("cannot write checkpoints"):
            directory.lower_cleaner_offset(tp, cleaned_offset)
            directory.lower_recovery_point(tp, offset, log.log_start_offset)

    def _write_checkpoints(self, log: Log) -> None:
        """Before an answer: else a log start beyond a new end would empty the log when reopened."""
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
        """Remove deleted segments and topics whose delay is over."""
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
        """Stop the services and the scheduler; nothing runs afterwards."""
        self.services.stop()
        self.runtime.scheduler.shutdown()

    # -- closing -------------------------------------------------------------------------

    def close(self) -> None:
        """Flush and close every log, write the checkpoints, mark the directories clean.

        Work of other threads comes to its end first, or is refused; nothing is written
        once the directories are given up. A second call, also of a thread that comes meanwhile,
        returns when that is done.

        Raises
        ------
        KafkaStorageError
            The disk failed. The other logs are closed all the same, and the directories of
            those that failed, now or when opened, are not marked clean: the next start recovers
            them.
        IllegalStateError
            A signal handler or a listener runs while this thread changes a log. Nothing was closed.
        """
        with self._closing:
            if self.lifetime.is_over:
                return
            self.check_not_inside()
            self.stop()
            with self._lock:  # whoever opens a log or changes a topic
                self.lifetime.end()
            self.registry.close()

    def check_not_inside(self) -> None:
        """Raise `IllegalStateError` if this thread is changing a log."""
        for log in self.registry.open_logs():
            log.check_not_inside()

    def abandon(self, why: str) -> None:
        """Abandon everything as if the process ended: nothing is flushed or marked.

        Parameters
        ----------
        why : str
            Follows "the broker" in what later uses are refused with.
        """
        with self._closing:
            if self.lifetime.is_over:
                return
            self.stop()
            with self._lock:  # whoever opens a log or changes a topic
                self.registry.abandon(why)
                self.lifetime.end(why)


def _write_current(
    directory: LogDirectory,
    write: CheckpointWrite,
    measure: Callable[[], Mapping[TopicPartition, CheckpointOffsets]],
) -> None:
    """Write a checkpoint by what logs say, and ask them anew if another thread wrote meanwhile.

    A log start that was measured before records were deleted would bring them back at the next
    start, though their deletion was acknowledged. Logs are not asked under the checkpoints' lock:
    who moves a log holds its lock and wants that one.
    """
    while True:
        since = directory.checkpoint_writes
        if write(directory, measure(), since):
            return
