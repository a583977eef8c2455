"""The logs of one or more data directories: opening, changing, checkpoints, orderly closing.

Owns which partition lives where and what happens to a directory whose disk fails. Logs are
opened when first asked for; a directory that was not closed in good order is opened as a whole,
since the marker it gets in the end speaks for all of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from logstore.catalog import TopicCatalog
from logstore.checkpoint.topic_id import decode_topic_id, write_partition_metadata
from logstore.config.dynamic import reconfigured
from logstore.config.overrides import altered_overrides, effective_config
from logstore.errors import (
    InvalidConfigurationError,
    InvalidTopicError,
    KafkaStorageError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from logstore.homes import PartitionHomes
from logstore.loading import load_logs
from logstore.log import Log
from logstore.log_directory import LogDirectory, find_folder, partition_folders
from logstore.moving import PartitionMove, find_directory, settle_moves
from logstore.names import validate_topic_name
from logstore.runtime import Lifetime, one_at_a_time
from logstore.second_look import LOOKS_MAX, pause_after
from logstore.services import LogServices
from logstore.topic_ids import folder_topic_id, inconsistent, random_topic_id
from logstore.topics import Topic, TopicStore
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig
    from logstore.config.log_config import LogConfig
    from logstore.loading import LoadListener
    from logstore.log import CheckpointOffsets
    from logstore.runtime import Runtime
    from logstore.services import LogService

    CheckpointWrite = Callable[
        [LogDirectory, Mapping[TopicPartition, CheckpointOffsets], int], bool
    ]

logger = logging.getLogger(__name__)


class LogManager:
    """All logs of a broker.

    Any thread may call: topics and partitions change under one lock, records under each log's.
    Whatever works through a manager is a member of its `lifetime`: once it is closed, all of that
    raises `IllegalStateError`.

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
    ) -> None:
        self.runtime = runtime
        self.broker_config = broker_config
        self.read_only = read_only
        self.directories: list[LogDirectory] = []
        self.services = LogServices()
        self.lifetime = Lifetime("the broker")
        self._lock = self.lifetime.lock(runtime.lock())
        self._closing = runtime.lock()
        self._homes = PartitionHomes()
        self._logs: dict[TopicPartition, Log] = {}
        try:
            self._open_directories(log_dirs)
            self.directories[0].check_online()
            self._store = TopicStore(
                runtime.fs, log_dirs[0], broker_config.logstore_small_file_max_bytes
            )
            self.catalog = TopicCatalog(self._store, self._homes, broker_config)
            settle_moves(self.directories)
            self._find_partitions()
            if not read_only:
                self._give_topics_ids()
                self._finish_topic_deletions()
                self._load_unclean_directories(on_load)
        except BaseException:
            for directory in self.directories:
                directory.close(clean=False)
            raise
        for member in (self, self.catalog, self._store):
            self.lifetime.add(member)

    def _open_directories(self, log_dirs: Sequence[str]) -> None:
        """Open the directories; again while another process moves partitions between them."""
        delay_ms = effective_config({}, self.broker_config).file_delete_delay_ms
        for look in range(1, LOOKS_MAX + 1):
            before = [partition_folders(self.runtime.fs, path) for path in log_dirs]
            self.directories = []
            for path in log_dirs:
                directory = LogDirectory(
                    self.runtime,
                    path,
                    read_only=self.read_only,
                    file_delete_delay_ms=delay_ms,
                    small_file_max_bytes=self.broker_config.logstore_small_file_max_bytes,
                )
                self.directories.append(directory)
            if all(directory.is_at_hand() for directory in self.directories):
                return
            if before == [partition_folders(self.runtime.fs, path) for path in log_dirs]:
                return
            pause_after(look, self.runtime.clock)

    def _find_partitions(self) -> None:
        for directory in self.directories:
            for tp in directory.partitions:
                if tp in self._homes:
                    raise InvalidConfigurationError(
                        f"partition {tp} stands in {self._homes[tp].path} and in {directory.path}"
                    )
                self._homes[tp] = directory

    def _give_topics_ids(self) -> None:
        """Give an id to the topics that an older version stored without one.

        Not while a directory is offline: folders there may bear it.
        """
        without = [topic for topic in self._store.all() if topic.id is None]
        if without and all(directory.is_online for directory in self.directories):
            with self._storing():
                self._store.put(replace(topic, id=self._id_of_folders(topic)) for topic in without)

    def _id_of_folders(self, topic: Topic) -> str:
        """Return the id that the folders of a topic without one bear, or a new one."""
        return self.catalog.folder_id(topic.name) or random_topic_id(self.runtime.rng)

    def _load_unclean_directories(self, on_load: LoadListener | None) -> None:
        """Open all of what was not closed in good order, several partitions at a time."""
        pending = [
            tp
            for directory in self.directories
            if not directory.clean
            for tp in sorted(directory.partitions)
            if not self.catalog.is_being_deleted(tp.topic)
        ]

        def load(topic_partition: TopicPartition) -> None:
            self._logs[topic_partition] = self._open(topic_partition)

        threads = self.broker_config.num_recovery_threads_per_data_dir * len(self.directories)
        refused = load_logs(self.runtime, pending, load, threads=threads, on_load=on_load)
        # They are refused again when used, and keep their directory from being called clean.
        for tp in refused:
            self._homes[tp].half_opened.add(tp)
        reasons = [each.offline_reason for each in self.directories if not each.is_online]
        if len(reasons) == len(self.directories):
            raise KafkaStorageError(
                f"every data directory is offline: {'; '.join(map(str, reasons))}"
            )

    # -- topics --------------------------------------------------------------------------

    @one_at_a_time
    def create_topic(self, name: str, partitions: int, configs: Mapping[str, object]) -> Topic:
        """Store a topic and create its logs; a copied partition's folder is taken over as it is.

        Raises
        ------
        InvalidTopicError, TopicAlreadyExistsError, InvalidConfigurationError
        InconsistentTopicIdError
            Nothing was created. The last if copied folders bear different topic ids.
        """
        validate_topic_name(name)
        if name in self._store:
            raise TopicAlreadyExistsError(f"topic '{name}' already exists")
        if partitions < 1:
            raise InvalidTopicError(f"a topic needs at least 1 partition, not {partitions}")
        own, _ = altered_overrides({}, configs, (), self.broker_config)
        copied = self._homes.of(name)
        topic_id: str | None = None
        for tp in copied:
            topic_id = self._checked_topic_id(tp, self._homes[tp], topic_id) or topic_id
        numbers = sorted({tp.partition for tp in copied} | set(range(partitions)))
        with self._storing():
            topic_id = topic_id or random_topic_id(self.runtime.rng)
            topic = self._store.create(name, numbers, own, topic_id)
        self._config_changed(name)
        for number in numbers:
            self.log(TopicPartition(name, number))
        return topic

    @one_at_a_time
    def create_partitions(self, name: str, total: int) -> Topic:
        """Let a stored topic have the partitions 0 to `total` - 1, keeping those it has.

        Raises
        ------
        UnknownTopicOrPartitionError
            The topic is not stored.
        """
        stored = self._store.get(name)
        if stored is None or stored.deleting:
            raise UnknownTopicOrPartitionError(f"unknown topic '{name}'")
        numbers = sorted({*stored.partitions, *range(total)})
        with self._storing():
            topic = self._store.set_partitions(name, numbers)
        for number in numbers:
            self.log(TopicPartition(name, number))
        return topic

    @one_at_a_time
    def alter_topic(
        self, name: str, set_configs: Mapping[str, object], unset: Iterable[str] = ()
    ) -> tuple[Topic, tuple[str, ...]]:
        """Change a topic's own configuration, stored and in force from the next use on.

        An adopted topic becomes a stored one.

        Returns
        -------
        Topic, tuple of str
            The topic as stored, and notes on old names that were understood.

        Raises
        ------
        UnknownTopicOrPartitionError, InvalidConfigurationError
            Nothing was changed.
        """
        topic, before = self.catalog.topic(name), self.catalog.config(name)
        configs, notes = altered_overrides(topic.configs, set_configs, unset, self.broker_config)
        with self._storing():
            if topic.adopted:
                topic_id = self._id_of_folders(topic)
                topic = self._store.create(name, topic.partitions, configs, topic_id)
            else:
                topic = self._store.set_configs(name, configs)
        self._config_changed(name, before)
        return topic, notes

    @one_at_a_time
    def delete_topic(self, name: str) -> None:
        """Delete a topic: its name is free at once, its files go after `file.delete.delay.ms`.

        Raises
        ------
        UnknownTopicOrPartitionError
        KafkaStorageError
            The disk failed, or some of it lives in an offline directory; what is left is
            deleted by the next start.
        """
        topic = self.catalog.topic(name)
        delay_ms = self.catalog.config(name).file_delete_delay_ms
        if not topic.adopted:  # so that the next start goes on after a crash
            with self._storing():
                self._store.mark_deleting(name)
        self._delete_partitions(name, delay_ms)

    def _delete_partitions(self, name: str, delay_ms: int) -> None:
        own = self._homes.of(name)
        touched: list[LogDirectory] = []
        for tp in own:
            directory = self._homes[tp]
            if not directory.is_online:
                continue
            self.services.pause(tp)
            if (log := self._logs.pop(tp, None)) is not None:
                log.local.abandon()
            with self._storage(directory, f"cannot delete {tp}"):
                directory.retire(tp, delay_ms)
            del self._homes[tp]
            if directory not in touched:
                touched.append(directory)
            self.services.partition_removed(tp)
        for directory in touched:
            with self._storage(directory, "cannot write checkpoints"):
                directory.forget_retired()
        self.catalog.forget_override(name)
        offline = [each.path for each in self.directories if not each.is_online]
        if offline:
            raise KafkaStorageError(
                f"topic '{name}' may have partitions in {', '.join(offline)}, which is offline:"
                " the rest of it was deleted"
            )
        if name in self._store:
            with self._storing():
                self._store.remove(name)
        self._schedule_folder_deletion(delay_ms)

    def _storing(self) -> AbstractContextManager[None]:
        """Guard a change of the stored topics, which stand in the first directory."""
        self.directories[0].check_online()
        return self._storage(self.directories[0], "cannot store the topics")

    def _finish_topic_deletions(self) -> None:
        if any(not directory.is_online for directory in self.directories):
            return
        for topic in self._store.all():
            if topic.deleting:
                delay_ms = effective_config(topic.configs, self.broker_config).file_delete_delay_ms
                self._delete_partitions(topic.name, delay_ms)

    @one_at_a_time
    def reconfigure(self, changes: Mapping[str, object]) -> tuple[str, ...]:
        """Change broker settings while it runs; see `logstore.config.dynamic.reconfigured`.

        Also refused, and nothing changed, if the defaults contradict what a topic says.
        """
        config, notes = reconfigured(self.broker_config, changes)
        before = {topic.name: self.catalog.config(topic.name) for topic in self.catalog.topics()}
        self.catalog.reconfigure(config)
        self.broker_config = config
        for name, old in before.items():
            self._config_changed(name, old)
        self.services.reconfigure(config)
        return notes

    @one_at_a_time
    def override(self, topic: str, configs: Mapping[str, object]) -> None:
        """Lay configs over a topic's own for as long as this manager lives."""
        before = self.catalog.config(topic)
        self.catalog.override(topic, configs)
        self._config_changed(topic, before)

    def _config_changed(self, topic: str, before: LogConfig | None = None) -> None:
        config = self.catalog.config(topic)
        if before is not None and before.winner_keys != config.winner_keys:
            # The record that ended the log may have been kept though it lost; it competes anew.
            for directory in {self._homes[tp] for tp in self._homes.of(topic)}:
                with self._storage(directory, "cannot write the cleaner checkpoint"):
                    directory.step_back_cleaner_offsets(topic)
        for tp, log in list(self._logs.items()):
            if tp.topic == topic:
                log.local.set_config(config)
        self.services.config_changed(topic)

    # -- logs ----------------------------------------------------------------------------

    def log(self, topic_partition: TopicPartition) -> Log:
        """Return a partition's log, opened now if it was not.

        Raises
        ------
        UnknownTopicOrPartitionError
        UnsupportedFormatError, CorruptionError, KafkaStorageError
            What opening found; the last also if the disk failed earlier.
        InconsistentTopicIdError
            Its folder bears the id of another topic; nothing was changed.
        """
        log = self._logs.get(topic_partition)
        if log is None:
            with self._lock:
                log = self._logs.get(topic_partition)
                if log is None:
                    log = self._logs[topic_partition] = self._open(topic_partition)
        return log

    def _open(self, topic_partition: TopicPartition) -> Log:
        topic = self.catalog.topic(topic_partition.topic)
        if topic_partition.partition not in topic.partitions:
            raise UnknownTopicOrPartitionError(
                f"topic '{topic.name}' has no partition {topic_partition.partition}"
            )
        directory = self._homes.get(topic_partition) or self._settle(topic_partition)
        directory.check_usable(topic_partition)
        try:
            log = self._load(topic_partition, directory)
        except UnknownTopicOrPartitionError:  # another process moved it, or deleted it
            self._homes[topic_partition] = find_folder(self.directories, topic_partition)
            return self._open(topic_partition)
        log.local.on_offline = partial(self._take_offline, directory)
        log.local.on_change = self.services.log_changed
        self.services.log_changed()  # what is opened is looked after, too
        return log

    def _load(self, topic_partition: TopicPartition, directory: LogDirectory) -> Log:
        topic = self.catalog.topic(topic_partition.topic)
        config = self.catalog.config(topic.name)
        found_id = self._checked_topic_id(topic_partition, directory, topic.id)
        try:
            log = directory.load(topic_partition, config, self.broker_config)
            if found_id is None and topic.id is not None and not (topic.adopted or self.read_only):
                topic_id = decode_topic_id(topic.id)
                write_partition_metadata(self.runtime.fs, log.directory, topic_id)
        except OSError as error:
            directory.half_opened.add(topic_partition)
            self._take_offline(directory, f"cannot open {topic_partition}: {error}")
            raise KafkaStorageError(f"{topic_partition}: cannot open: {error}") from error
        directory.half_opened.discard(topic_partition)
        if log.log_start_offset < directory.log_starts.get(topic_partition, 0):
            self._forget_log_start(directory, log)
        return log

    def _forget_log_start(self, directory: LogDirectory, log: Log) -> None:
        """Replace a log start that loading ignored, before the log grows to it."""
        directory.log_starts.pop(log.topic_partition)
        if not self.read_only:
            with self._storage(directory, "cannot write checkpoints"):
                directory.write_log_starts({log.topic_partition: log.offsets.checkpoint()})

    def reopen(self, topic_partition: TopicPartition, look: int) -> Log | None:
        """Return a log that could not be read, opened anew; see `LogDirectory.look_again`."""
        if not self.directory_of(topic_partition).look_again(topic_partition, look):
            return None
        self._logs.pop(topic_partition).close()
        return self.log(topic_partition)

    def _checked_topic_id(
        self, topic_partition: TopicPartition, directory: LogDirectory, expected: str | None
    ) -> str | None:
        """Return the id that a partition's folder bears; None if it bears none, or is not there.

        Raises
        ------
        InconsistentTopicIdError
            It is another than expected. What is only read is looked at all the same.
        """
        folder = directory.partition_path(topic_partition)
        found = folder_topic_id(self.runtime.fs, folder)
        if found is not None and expected is not None and found != expected:
            error = inconsistent(topic_partition, folder, expected, found)
            if not self.read_only:
                raise error
            logger.warning("%s", error)
        return found

    def _settle(self, topic_partition: TopicPartition) -> LogDirectory:
        """Choose where a new partition lives: where the fewest do, as Kafka does."""
        offline = [each.path for each in self.directories if not each.is_online]
        if offline:
            # It may be there already, and a second one would hide its data.
            raise KafkaStorageError(
                f"{topic_partition} is in no directory that is online; it may be in"
                f" {', '.join(offline)}"
            )
        directory = min(self.directories, key=lambda each: len(each.partitions))
        directory.partitions.add(topic_partition)
        self._homes[topic_partition] = directory
        self.services.partition_added(topic_partition)
        return directory

    def _take_offline(self, directory: LogDirectory, reason: str) -> None:
        """Give up a directory whose disk failed, with all its logs; the rest serves on."""
        if not directory.is_online:
            return
        directory.go_offline(reason)
        for tp, log in list(self._logs.items()):
            if self._homes.get(tp) is directory and not log.lifetime.is_over:
                log.local.go_offline(f"data directory {directory.path} is offline: {reason}")

    @contextmanager
    def _storage(self, directory: LogDirectory, what: str) -> Iterator[None]:
        """Take a directory offline if a file operation inside fails."""
        try:
            yield
        except OSError as error:
            self._take_offline(directory, f"{what}: {error}")
            raise KafkaStorageError(f"{directory.path}: {what}: {error}") from error

    def open_logs(self) -> Iterator[Log]:
        """Yield the logs that are open."""
        yield from list(self._logs.values())

    def directory_of(self, topic_partition: TopicPartition) -> LogDirectory:
        """Return the data directory that a partition lives in.

        Raises
        ------
        UnknownTopicOrPartitionError
        """
        try:
            return self._homes[topic_partition]
        except KeyError:
            raise UnknownTopicOrPartitionError(f"there is no partition {topic_partition}") from None

    @one_at_a_time
    def move_partition(self, topic_partition: TopicPartition, log_dir: str) -> None:
        """Let a partition live in another data directory; see `logstore.moving`.

        Its log stays the same object: who appends meanwhile waits, who reads goes on.

        Raises
        ------
        LogDirNotFoundError, UnknownTopicOrPartitionError, KafkaStorageError
            It lives on where it was, unless only the old files could not be removed, or the new
            ones not be opened.
        """
        target = find_directory(self.directories, log_dir)
        log = self.log(topic_partition)
        source = self._homes[topic_partition]
        if target is source:
            return
        move = PartitionMove(log, source, target, self._storage)
        with self.services.paused(topic_partition), log.local.at_rest():
            move.begin()
            self._homes[topic_partition] = target
            self.services.partition_moved(topic_partition, target.path)
            log.local.on_offline = partial(self._take_offline, target)
            try:
                log.go_on_in(self._load(topic_partition, target))
            except BaseException:
                del self._logs[topic_partition]
                log.local.abandon("could not be opened where it was moved to", KafkaStorageError)
                raise
            move.finish()
        self._schedule_folder_deletion(log.config.file_delete_delay_ms)

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

    def truncate_to(self, topic_partition: TopicPartition, offset: int) -> bool:
        """Drop what lies at or above an offset; the checkpoints follow. See `Log.truncate_to`.

        A cleaning of the partition is stopped first if it may read what goes.
        """
        log = self.log(topic_partition)
        with log.lock:  # or a roll might close the segment that the offset is in
            if offset >= log.active_segment.base_offset:
                return self._truncate(log, offset)
        with self.services.paused(topic_partition):
            return self._truncate(log, offset)

    def _truncate(self, log: Log, offset: int) -> bool:
        self._lower_cleaner_checkpoint(log, offset)
        if truncated := log.truncate_to(offset):
            self._write_checkpoints(log)
        return truncated

    def truncate_fully_and_start_at(
        self, topic_partition: TopicPartition, offset: int, log_start_offset: int | None = None
    ) -> None:
        """Drop everything and go on at `offset`; the checkpoints follow, as in `truncate_to`."""
        log = self.log(topic_partition)
        with self.services.paused(topic_partition):
            self._lower_cleaner_checkpoint(log, offset)
            log.truncate_fully_and_start_at(offset, log_start_offset)
            self._write_checkpoints(log)

    def _lower_cleaner_checkpoint(self, log: Log, offset: int) -> None:
        """Before truncation, so that what is appended again never counts as cleaned.

        Whatever the policy is now: a topic that is compacted again goes by the checkpoint it had.
        """
        directory = self.directory_of(log.topic_partition)
        if (active := log.segments.floor(offset)) is not None:
            offset = active.base_offset  # of what will be the active segment
        with self._storage(directory, "cannot write the cleaner checkpoint"):
            directory.lower_cleaner_offset(log.topic_partition, offset)

    def _write_checkpoints(self, log: Log) -> None:
        """Before an answer: else a log start beyond a new end would empty the log when reopened."""
        tp = log.topic_partition
        directory = self.directory_of(tp)
        with self._storage(directory, "cannot write checkpoints"):
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
                with (
                    suppress(KafkaStorageError),
                    self._storage(directory, "cannot write checkpoints"),
                ):
                    _write_current(directory, write, partial(self._offsets_in, directory))

    def _offsets_in(self, directory: LogDirectory) -> dict[TopicPartition, CheckpointOffsets]:
        found = {}
        for tp, log in list(self._logs.items()):
            with suppress(UnknownTopicOrPartitionError):  # just deleted
                if self._homes.get(tp) is directory and not log.is_offline:
                    found[tp] = log.offsets.checkpoint()
        return found

    def delete_expired_files(self) -> None:
        """Remove deleted segments and topics whose delay is over."""
        for log in self.open_logs():
            with suppress(UnknownTopicOrPartitionError):  # just deleted
                if not log.is_offline:
                    log.local.delete_expired_files()
        self._delete_folders()

    def _delete_folders(self) -> None:
        for directory in self.directories:
            if directory.is_online:
                with suppress(KafkaStorageError), self._storage(directory, "cannot delete folders"):
                    directory.delete_retired_folders()

    def _schedule_folder_deletion(self, delay_ms: int) -> None:
        if self.runtime.scheduler.is_started:
            self.runtime.scheduler.schedule(
                "kafka-delete-logs", self._delete_folders, delay_ms=delay_ms
            )

    # -- services ------------------------------------------------------------------------

    def start(self, services: Sequence[LogService]) -> None:
        """Let services work on the logs from now on, on the runtime's scheduler."""
        self.runtime.scheduler.start()
        self._schedule_folder_deletion(self.directories[0].file_delete_delay_ms)
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

        What other threads are doing comes to its end first, or is refused; nothing is written
        once the directories are given up. A second call, also of a thread that comes meanwhile,
        returns when that is done.

        Raises
        ------
        KafkaStorageError
            The disk failed. The other logs are closed all the same, and the directories of
            those that failed, now or when opened, are not marked clean: the next start recovers
            them.
        """
        with self._closing:
            if self.lifetime.is_over:
                return
            self.stop()
            with self._lock:  # whoever opens a log or changes a topic
                self.lifetime.end()
            failures: list[KafkaStorageError] = []
            offsets: dict[TopicPartition, CheckpointOffsets] = {}
            for tp, log in self._logs.items():
                try:
                    closed_at = log.close()
                except KafkaStorageError as error:
                    failures.append(error)
                    closed_at = log.close()  # as it is
                if closed_at is not None:
                    offsets[tp] = closed_at
            for directory in self.directories:
                try:
                    self._close_directory(directory, offsets)
                except OSError as error:
                    failures.append(KafkaStorageError(f"{directory.path}: cannot close: {error}"))
            self._logs.clear()
            if failures:
                raise failures[0]

    def _close_directory(
        self, directory: LogDirectory, offsets: Mapping[TopicPartition, CheckpointOffsets]
    ) -> None:
        own = [tp for tp in self._logs if self._homes[tp] is directory]
        good = {tp: offsets[tp] for tp in own if tp in offsets}
        clean = False
        try:
            if directory.is_online and not self.read_only:
                directory.write_recovery_points(good)
                directory.write_high_watermarks(good)
                directory.write_log_starts(good)
                directory.delete_retired_folders(force=True)
                clean = len(good) == len(own) and not directory.half_opened
        finally:
            directory.close(clean=clean)


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
