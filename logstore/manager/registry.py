"""The logs of a broker and their data directories. Logs are opened on first use.

If a disk fails, its directory and logs go offline. All others remain in service.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from logstore.errors import (
    IllegalStateError,
    KafkaStorageError,
    LogStoreError,
    NotLeaderForPartitionError,
    UnknownTopicOrPartitionError,
)
from logstore.manager.directories.directory import LogDirectory
from logstore.manager.directories.moving import PartitionMove, find_directory, find_folder
from logstore.manager.topics.ids import inconsistent_topic_id, read_topic_id
from logstore.runtime import NotRegularFileError, one_at_a_time
from logstore.runtime.guard import StorageGuard
from logstore.storage.checkpoint.topic_id import write_all_partition_metadata
from logstore.types import TopicPartition, decode_topic_id

if TYPE_CHECKING:
    from logstore.manager.opening import LoadListener
    from logstore.manager.services import LogServices
    from logstore.manager.topics.catalog import TopicCatalog
    from logstore.manager.topics.partitions import PartitionMap
    from logstore.runtime import Runtime
    from logstore.storage.log.log import Log
    from logstore.storage.log.offsets import CheckpointOffsets

logger = logging.getLogger(__name__)


CREATED_TOGETHER = 64
"""Number of new logs that are created before their topic ids are made durable."""


class _Opened(NamedTuple):
    """A log, and the topic id that must be stored in its folder."""

    log: Log
    topic_id: bytes | None


class LogRegistry:
    """The logs of a broker and their data directories.

    Parameters
    ----------
    directories : sequence of LogDirectory
        Open directories, whose partitions are in `homes`.
    homes : PartitionMap[LogDirectory]
        The directory of each partition, which the registry updates.
    catalog : TopicCatalog
        The topics and their configurations.
    services : LogServices
        Receives added and moved partitions, and every change of a log.
    lock : context manager
        Held during changes of topics and partitions.
    read_only : bool
    replicated : bool
        Whether the logs are replicas. If so, they start at their stored high watermark, and only a
        leader appends to them, once assigned.

    Attributes
    ----------
    is_replicated : bool
        `replicated`.
    """

    def __init__(
        self,
        runtime: Runtime,
        directories: Sequence[LogDirectory],
        homes: PartitionMap[LogDirectory],
        catalog: TopicCatalog,
        services: LogServices,
        lock: AbstractContextManager[object],
        *,
        read_only: bool,
        replicated: bool,
    ) -> None:
        self.runtime = runtime
        self.directories = directories
        self._homes = homes
        self._catalog = catalog
        self._services = services
        self._lock = lock
        self._read_only = read_only
        self.is_replicated = replicated
        self._logs: dict[TopicPartition, Log] = {}
        for directory in directories:
            directory.went_offline.subscribe(partial(self._take_logs_offline, directory))

    # -- logs ----------------------------------------------------------------------------

    def log(self, topic_partition: TopicPartition) -> Log:
        """Return a partition's log, opening it if necessary.

        Raises
        ------
        UnknownTopicOrPartitionError
        UnsupportedFormatError, CorruptionError, KafkaStorageError
            The log cannot be opened; the last also if the disk failed earlier.
        InconsistentTopicIdError
            The folder has the id of a different topic. Nothing is changed.
        """
        log = self._logs.get(topic_partition)
        if log is None:
            with self._lock:
                log = self._logs.get(topic_partition)
                if log is None:
                    self._open_all([topic_partition])
                    log = self._logs[topic_partition]
        return log

    @one_at_a_time
    def create_logs(self, topic: str, numbers: Iterable[int]) -> None:
        """Open the logs of a topic.

        Raises the same errors as `log`. New logs are created together and share fsyncs, which take
        most of the time.
        """
        partitions = [TopicPartition(topic, number) for number in numbers]
        new: dict[LogDirectory, list[TopicPartition]] = {}
        for tp in partitions:
            if tp not in self._homes:
                new.setdefault(self._place(tp), []).append(tp)
        for directory, placed in new.items():
            with directory.guard("cannot open", placed[0]):
                directory.make_folders(placed)
        partitions = [tp for tp in partitions if tp not in self._logs]
        for first in range(0, len(partitions), CREATED_TOGETHER):
            self._open_all(partitions[first : first + CREATED_TOGETHER])

    def _open_all(self, partitions: Iterable[TopicPartition]) -> None:
        """Open logs, store missing topic ids in their folders, and register them.

        Registered logs survive an interrupt.
        """
        opened: dict[TopicPartition, _Opened] = {}
        try:
            for tp in partitions:
                opened[tp] = self._open(tp)
        except BaseException:
            with suppress(LogStoreError):  # the first error is raised
                self._register(opened)
            raise
        self._register(opened)

    def _register(self, opened: Mapping[TopicPartition, _Opened]) -> None:
        self._store_ids(opened)
        for tp, (log, _) in opened.items():
            self._logs[tp] = log
            self._homes[tp].half_opened.discard(tp)

    def _store_ids(self, opened: Mapping[TopicPartition, _Opened]) -> None:
        """Store topic ids durably in the folders that lack them."""
        lacking: dict[LogDirectory, dict[TopicPartition, bytes]] = {}
        for tp, (_, topic_id) in opened.items():
            if topic_id is not None:
                lacking.setdefault(self._homes[tp], {})[tp] = topic_id
        for directory, ids in lacking.items():
            with _opening(next(iter(ids)), directory):
                topic_ids = {opened[tp].log.directory: topic_id for tp, topic_id in ids.items()}
                write_all_partition_metadata(self.runtime, topic_ids)

    def open_logs(self) -> Iterator[Log]:
        """Yield the open logs."""
        yield from list(self._logs.values())

    def open_logs_of(self, topic: str) -> Iterator[Log]:
        """Yield the open logs of a topic."""
        yield from (log for tp, log in list(self._logs.items()) if tp.topic == topic)

    @one_at_a_time
    def reopen(self, topic_partition: TopicPartition, attempt: int, error: Exception) -> Log | None:
        """Reopen an unreadable log. Return None if that would not help.

        See `LogDirectory.may_reopen` and `skip_damage`.
        """
        directory = self.directory_of(topic_partition)
        if not (
            directory.may_reopen(topic_partition, attempt)
            or directory.skip_damage(topic_partition, error)
        ):
            return None
        self._logs.pop(topic_partition).close()
        return self.log(topic_partition)

    @one_at_a_time
    def survey(self, topic_partition: TopicPartition) -> Log:
        """Return a log whose batches have all been checked; see `OnDamage.PASS_OVER`."""
        self.directory_of(topic_partition).survey(topic_partition)
        if (log := self._logs.pop(topic_partition, None)) is not None:
            log.close()
        return self.log(topic_partition)

    def load_unclean(self, on_load: LoadListener | None, threads_per_directory: int) -> None:
        """Open the logs of all uncleanly closed directories, several at a time.

        Raises
        ------
        KafkaStorageError
            No directory is online anymore.
        """
        from logstore.manager.opening import load_logs  # not needed for reading

        pending = [
            tp
            for directory in self.directories
            if not directory.clean
            for tp in sorted(directory.partitions)
            if not self._catalog.is_being_deleted(tp.topic)
        ]

        def load(topic_partition: TopicPartition) -> None:
            self._open_all([topic_partition])

        threads = threads_per_directory * len(self.directories)
        refused = load_logs(self.runtime, pending, load, threads=threads, on_load=on_load)
        # They cannot be used either, and their directory must not be marked clean.
        for tp in refused:
            self._homes[tp].half_opened.add(tp)
        reasons = [
            directory.offline_reason for directory in self.directories if not directory.is_online
        ]
        if len(reasons) == len(self.directories):
            raise KafkaStorageError(
                f"every data directory is offline: {'; '.join(map(str, reasons))}"
            )

    def _open(self, topic_partition: TopicPartition) -> _Opened:
        topic = self._catalog.topic(topic_partition.topic)
        if topic_partition.partition not in topic.partitions:
            raise UnknownTopicOrPartitionError(
                f"topic '{topic.name}' has no partition {topic_partition.partition}"
            )
        directory = self._homes.get(topic_partition) or self._place(topic_partition)
        directory.check_usable(topic_partition)
        try:
            opened = self._load(topic_partition, directory)
        except UnknownTopicOrPartitionError:  # another process moved or deleted the partition
            self._homes[topic_partition] = find_folder(self.directories, topic_partition)
            return self._open(topic_partition)
        log = opened.log
        if self.is_replicated:
            log.writer.refuse = partial(_refuse_without_leader, topic_partition)
        log_changed = self._services.events.log_changed
        log.went_offline.subscribe(partial(self._take_directory_offline, log))
        log.check_owner = partial(self._check_lock, topic_partition)
        log.changed.subscribe(log_changed.emit)
        log_changed.emit()  # housekeeping must see the new log
        return opened

    def _load(self, topic_partition: TopicPartition, directory: LogDirectory) -> _Opened:
        topic = self._catalog.topic(topic_partition.topic)
        config = self._catalog.config(topic.name)
        found_id = self.checked_topic_id(topic_partition, topic.id, directory)
        with _opening(topic_partition, directory):
            log = directory.load(
                topic_partition,
                config,
                self._catalog.broker_config,
                replicated=self.is_replicated,
            )
        if log.log_start_offset < directory.log_starts.get(topic_partition, 0):
            self._replace_ignored_log_start(directory, log)
        if found_id is not None or topic.adopted or self._read_only or topic.id is None:
            return _Opened(log, None)
        return _Opened(log, decode_topic_id(topic.id))

    def _replace_ignored_log_start(self, directory: LogDirectory, log: Log) -> None:
        """Replace a log start that was ignored on loading, before the log grows beyond it."""
        directory.log_starts.pop(log.topic_partition)
        if not self._read_only:
            with directory.guard("cannot write checkpoints"):
                directory.write_log_starts({log.topic_partition: log.offsets.checkpoint()})

    def checked_topic_id(
        self, topic_partition: TopicPartition, expected: str | None, directory: LogDirectory
    ) -> str | None:
        """Return the topic id in a partition's folder, or None if the id or the folder is missing.

        Raises
        ------
        InconsistentTopicIdError
            The id is not the expected one. A read-only registry only warns.
        """
        folder = directory.partition_path(topic_partition)
        found = read_topic_id(self.runtime.fs, folder)
        if found is not None and expected is not None and found != expected:
            error = inconsistent_topic_id(topic_partition, folder, expected, found)
            if not self._read_only:
                raise error
            logger.warning("%s", error)
        return found

    # -- homes ---------------------------------------------------------------------------

    def directory_of(self, topic_partition: TopicPartition) -> LogDirectory:
        """Return the data directory of a partition.

        Raises
        ------
        UnknownTopicOrPartitionError
        """
        try:
            return self._homes[topic_partition]
        except KeyError:
            raise UnknownTopicOrPartitionError(
                f"partition {topic_partition} does not exist"
            ) from None

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic that have a directory, in numeric order."""
        return self._homes.of(topic)

    def _place(self, topic_partition: TopicPartition) -> LogDirectory:
        """Choose the directory with the fewest partitions for a new partition, as in Kafka."""
        offline = [each.path for each in self.directories if not each.is_online]
        if offline:
            # The partition might be in the offline directory, and a second folder would hide its
            # data.
            raise KafkaStorageError(
                f"{topic_partition} is in no directory that is online; it may be in"
                f" {', '.join(offline)}"
            )
        directory = min(self.directories, key=lambda each: len(each.partitions))
        directory.partitions.add(topic_partition)
        self._homes[topic_partition] = directory
        self._services.events.partition_added.emit(topic_partition)
        return directory

    @one_at_a_time
    def move_partition(self, topic_partition: TopicPartition, log_dir: str) -> None:
        """Move a partition to another data directory; see `logstore.manager.directories.moving`.

        The log remains the same object. Appends wait until the move is complete; reads continue.

        Raises
        ------
        LogDirNotFoundError, UnknownTopicOrPartitionError, KafkaStorageError
            The partition remains in its directory, unless only the removal of the old files or the
            opening of the new files failed.
        """
        target = find_directory(self.directories, log_dir)
        log = self.log(topic_partition)
        source = self._homes[topic_partition]
        if target is source:
            return
        move = PartitionMove(log, source, target)
        with self._services.paused(topic_partition), log.at_rest():
            move.begin()
            self._homes[topic_partition] = target
            self._services.events.partition_moved.emit(topic_partition, target.path)
            try:
                moved = self._load(topic_partition, target)
                self._store_ids({topic_partition: moved})
                log.switch_files(moved.log)
                target.half_opened.discard(topic_partition)
            except BaseException:
                del self._logs[topic_partition]
                log.abandon("could not be opened in its new directory", KafkaStorageError)
                raise
            move.finish()
        self.schedule_folder_deletion(log.config.file_delete_delay_ms)

    def check_not_inside(self, topic: str) -> None:
        """Raise `IllegalStateError` if this thread is changing or cleaning a partition of a topic.

        The caller must check this before the first change, because it may run in a signal handler
        or a listener.
        """
        for log in self.open_logs_of(topic):
            log.check_not_inside()
            self._services.check_pausable(log.topic_partition)

    def has(self, topic_partition: TopicPartition) -> bool:
        """Return whether a partition has a directory."""
        return topic_partition in self._homes

    @one_at_a_time
    def remove_partitions(self, topic: str, delay_ms: int, *, number: int | None = None) -> None:
        """Forget the partitions of a topic, and remove their folders after `delay_ms`.

        Partitions in offline directories are not affected.

        Parameters
        ----------
        number : int, optional
            Only remove this partition.

        Raises
        ------
        KafkaStorageError
            The disk failed.
        """
        touched: list[LogDirectory] = []
        for tp in self._homes.of(topic):
            directory = self._homes[tp]
            if not directory.is_online or number not in (None, tp.partition):
                continue
            self._services.pause(tp)
            if (log := self._logs.pop(tp, None)) is not None:
                log.abandon()
            with directory.guard(f"cannot delete {tp}"):
                directory.retire(tp, delay_ms)
            del self._homes[tp]
            if directory not in touched:
                touched.append(directory)
            self._services.events.partition_removed.emit(tp)
        for directory in touched:
            with directory.guard("cannot write checkpoints"):
                directory.forget_retired()

    # -- folders and disks ---------------------------------------------------------------

    def delete_folders(self) -> None:
        """Remove the folders of deleted partitions whose delay has expired."""
        for directory in self.directories:
            if directory.is_online:
                with suppress(KafkaStorageError), directory.guard("cannot delete folders"):
                    directory.delete_retired_folders()

    def schedule_folder_deletion(self, delay_ms: int) -> None:
        """Schedule `delete_folders` after a delay, if the scheduler is started."""
        if self.runtime.scheduler.is_started:
            self.runtime.scheduler.schedule(
                "kafka-delete-logs", self.delete_folders, delay_ms=delay_ms
            )

    def _check_lock(self, topic_partition: TopicPartition) -> None:
        """Raise `KafkaStorageError` if the directory of a partition is no longer locked."""
        if (directory := self._homes.get(topic_partition)) is not None:
            directory.check_lock()

    def _take_directory_offline(self, log: Log, reason: str) -> None:
        directory = self._homes.get(log.topic_partition)  # the log may have been moved
        if directory is not None and not log.lifetime.is_over:
            directory.go_offline(reason)

    def _take_logs_offline(self, directory: LogDirectory, reason: str) -> None:
        for tp, log in list(self._logs.items()):
            if self._homes.get(tp) is directory and not log.lifetime.is_over:
                log.go_offline(f"data directory {directory.path} is offline: {reason}")

    def offsets_in(self, directory: LogDirectory) -> dict[TopicPartition, CheckpointOffsets]:
        """Return the checkpoint offsets of the open logs in the given log directory."""
        found = {}
        for tp, log in list(self._logs.items()):
            with suppress(UnknownTopicOrPartitionError):  # just deleted
                if self._homes.get(tp) is directory and not log.is_offline:
                    found[tp] = log.offsets.checkpoint()
        return found

    def close(self) -> None:
        """Close all logs and directories. Mark directories without a failure as shut down cleanly.

        Raises
        ------
        KafkaStorageError
            The disk failed. The other logs and directories are closed.
        """
        failures: list[KafkaStorageError] = []
        offsets: dict[TopicPartition, CheckpointOffsets] = {}
        for directory in self.directories:
            try:
                directory.check_lock()
            except KafkaStorageError as error:
                failures.append(error)
        for tp, log in self._logs.items():
            try:
                closed_at = log.close()
            except KafkaStorageError as error:
                failures.append(error)
                closed_at = log.close()  # if offline now, only closes the files
            if closed_at is not None:
                offsets[tp] = closed_at
        for directory in self.directories:
            try:
                with StorageGuard(None, directory.path, "cannot close"):  # closed in any case
                    self._close_directory(directory, offsets)
            except KafkaStorageError as error:
                failures.append(error)
        self._logs.clear()
        if failures:
            raise failures[0]

    def abandon(self, why: str) -> None:
        """Close all files and directories without a flush."""
        for log in self._logs.values():
            log.abandon(why, IllegalStateError)
        for directory in self.directories:
            directory.close(clean=False)
        self._logs.clear()

    def _close_directory(
        self, directory: LogDirectory, offsets: Mapping[TopicPartition, CheckpointOffsets]
    ) -> None:
        partitions = [tp for tp in self._logs if self._homes[tp] is directory]
        good = {tp: offsets[tp] for tp in partitions if tp in offsets}
        clean = False
        try:
            if directory.is_online and not self._read_only:
                directory.write_recovery_points(good)
                directory.write_high_watermarks(good)
                directory.write_log_starts(good)
                directory.delete_retired_folders(force=True)
                clean = len(good) == len(partitions) and not directory.half_opened
        finally:
            directory.close(clean=clean)


@contextmanager
def _opening(topic_partition: TopicPartition, directory: LogDirectory) -> Iterator[None]:
    """Raise `KafkaStorageError` if a file is missing or not regular, or the disk fails."""
    with directory.guard("cannot open", topic_partition):
        try:
            yield
        except (NotRegularFileError, IsADirectoryError) as error:
            # The disk did not fail, and the other partitions remain in service.
            what = "a folder" if isinstance(error, IsADirectoryError) else "not a regular file"
            raise KafkaStorageError(
                f"{topic_partition} cannot be opened: {error.filename} is {what}"
            ) from error


def _refuse_without_leader(topic_partition: TopicPartition) -> NoReturn:
    raise NotLeaderForPartitionError(f"this broker does not know the leader of {topic_partition}")
