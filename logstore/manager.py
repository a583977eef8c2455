"""The logs of one or more data directories: opening, checkpoints, orderly closing.

Owns which partition lives where, whether its directory was left in good order, and the offset
checkpoints. Logs are opened when first asked for; a directory that was not closed in good order
is opened as a whole, since the marker it gets in the end speaks for all of it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from logstore.checkpoint import (
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    REPLICATION_OFFSETS,
    OffsetCheckpoint,
    is_clean_shutdown,
    mark_clean_shutdown,
    take_clean_shutdown,
)
from logstore.config import LogConfig, effective_config
from logstore.errors import (
    CorruptCheckpointError,
    InvalidConfigurationError,
    InvalidTopicError,
    KafkaStorageError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from logstore.loader import open_log
from logstore.log import Log
from logstore.names import parse_partition_dir, validate_topic_name
from logstore.runtime import make_dirs_durably
from logstore.topics import INTERNAL_COMPACTED_TOPICS, Topic, TopicStore
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from logstore.config import BrokerConfig
    from logstore.runtime import Runtime

logger = logging.getLogger(__name__)


class LogDirectory:
    """One data directory: its partitions, its checkpoints, how it was left.

    Attributes
    ----------
    clean : bool
        Whether the last process closed it in good order.
    fresh : bool
        Whether it held no partition when this process came.
    half_opened : set of TopicPartition
        Those that the disk failed to open: their files may be in between, so that they must be
        recovered, by the next attempt or by the next start.
    """

    def __init__(self, runtime: Runtime, path: str, *, read_only: bool) -> None:
        self.runtime = runtime
        self.path = path
        fs = runtime.fs
        if not fs.is_dir(path):
            if read_only:
                raise InvalidConfigurationError(f"data directory {path} does not exist")
            make_dirs_durably(fs, path)
        self.clean = is_clean_shutdown(fs, path)
        self.recovery_points = self._read(RECOVERY_POINTS)
        self.log_starts = self._read(LOG_START_OFFSETS)
        self.partitions = {
            tp
            for name in fs.list_dir(path)
            if (tp := parse_partition_dir(name)) is not None and fs.is_dir(f"{path}/{name}")
        }
        self.fresh = not self.partitions
        self.half_opened: set[TopicPartition] = set()
        if not read_only:
            take_clean_shutdown(fs, path)

    def partition_path(self, topic_partition: TopicPartition) -> str:
        """Return the folder of a partition."""
        return f"{self.path}/{topic_partition}"

    def checkpoint(self, name: str) -> OffsetCheckpoint:
        """Return one of the directory's offset checkpoints."""
        return OffsetCheckpoint(self.runtime.fs, f"{self.path}/{name}")

    def _read(self, name: str) -> dict[TopicPartition, int]:
        try:
            return self.checkpoint(name).read()
        except CorruptCheckpointError as error:
            # Kafka starts from 0 as well: recovery then reads more than it needs to.
            logger.warning("%s; it is taken as empty", error)
            return {}

    def write_checkpoints(self, logs: Mapping[TopicPartition, Log]) -> None:
        """Write recovery points, high watermarks and log starts; other logs' entries stay."""
        self._update(RECOVERY_POINTS, {tp: log.recovery_point for tp, log in logs.items()})
        self._update(REPLICATION_OFFSETS, {tp: log.high_watermark for tp, log in logs.items()})
        starts = {
            tp: log.log_start_offset
            for tp, log in logs.items()
            if log.log_start_offset > log.segments.first.base_offset
        }
        self._update(LOG_START_OFFSETS, starts, replaced=logs.keys())

    def _update(
        self,
        name: str,
        offsets: Mapping[TopicPartition, int],
        replaced: Iterable[TopicPartition] = (),
    ) -> None:
        checkpoint = self.checkpoint(name)
        try:
            stored = checkpoint.read()
        except CorruptCheckpointError:
            stored = {}
        gone = set(replaced)
        kept = {
            tp: offset for tp, offset in stored.items() if tp in self.partitions and tp not in gone
        }
        checkpoint.write(kept | dict(offsets))


class LogManager:
    """All logs of a broker.

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
        Write no checkpoint and no marker, and refuse new topics.

    Raises
    ------
    InvalidConfigurationError
        A directory is missing (read-only), or a partition stands in two of them.
    """

    def __init__(
        self,
        runtime: Runtime,
        log_dirs: Sequence[str],
        broker_config: BrokerConfig,
        *,
        read_only: bool = False,
    ) -> None:
        self.runtime = runtime
        self.broker_config = broker_config
        self.read_only = read_only
        self.directories = [LogDirectory(runtime, path, read_only=read_only) for path in log_dirs]
        self.topic_store = TopicStore(runtime.fs, log_dirs[0])
        self._homes: dict[TopicPartition, LogDirectory] = {}
        self._logs: dict[TopicPartition, Log] = {}
        self._overrides: dict[str, Mapping[str, str]] = {}
        for directory in self.directories:
            for tp in directory.partitions:
                if tp in self._homes:
                    raise InvalidConfigurationError(
                        f"partition {tp} stands in {self._homes[tp].path} and in {directory.path}"
                    )
                self._homes[tp] = directory
        if not read_only:
            self._recover_unclean_directories()

    def _recover_unclean_directories(self) -> None:
        for directory in self.directories:
            if not directory.clean:
                for tp in sorted(directory.partitions):
                    self.log(tp)

    # -- topics --------------------------------------------------------------------------

    def topics(self) -> list[Topic]:
        """Return stored and adopted topics by name."""
        names = {tp.topic for tp in self._homes} | {t.name for t in self.topic_store.all()}
        return [self.topic(name) for name in sorted(names)]

    def topic(self, name: str) -> Topic:
        """Return a stored or adopted topic.

        Raises
        ------
        UnknownTopicOrPartitionError
        """
        stored = self.topic_store.get(name)
        if stored is not None:
            return stored
        numbers = tuple(sorted(tp.partition for tp in self._homes if tp.topic == name))
        if not numbers:
            raise UnknownTopicOrPartitionError(f"unknown topic '{name}'")
        compacted = name in INTERNAL_COMPACTED_TOPICS
        configs = {"cleanup.policy": "compact"} if compacted else {}
        return Topic(name, numbers, configs, adopted=True)

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        """Store a topic and create its partitions' logs.

        A copied partition's folder is taken over as it is: its data are not touched.

        Raises
        ------
        InvalidTopicError, TopicAlreadyExistsError, InvalidConfigurationError
            Nothing was created.
        """
        validate_topic_name(name)
        if name in self.topic_store:
            raise TopicAlreadyExistsError(f"topic '{name}' already exists")
        if partitions < 1:
            raise InvalidTopicError(f"a topic needs at least 1 partition, not {partitions}")
        effective_config(configs, self.broker_config)
        adopted = {tp.partition for tp in self._homes if tp.topic == name}
        numbers = sorted(adopted | set(range(partitions)))
        topic = self.topic_store.create(name, numbers, configs)
        for number in numbers:
            self.log(TopicPartition(name, number))
        return topic

    def create_partitions(self, name: str, total: int) -> Topic:
        """Let a stored topic have the partitions 0 to `total` - 1, keeping those it has.

        Raises
        ------
        UnknownTopicOrPartitionError
            The topic is not stored.
        """
        stored = self.topic_store.get(name)
        if stored is None:
            raise UnknownTopicOrPartitionError(f"unknown topic '{name}'")
        numbers = sorted({*stored.partitions, *range(total)})
        topic = self.topic_store.set_partitions(name, numbers)
        for number in numbers:
            self.log(TopicPartition(name, number))
        return topic

    def override(self, topic: str, configs: Mapping[str, str]) -> None:
        """Lay configs over a topic's own for as long as this manager lives.

        Raises
        ------
        InvalidConfigurationError, UnknownTopicOrPartitionError
            Nothing was changed.
        """
        config = effective_config({**self.topic(topic).configs, **configs}, self.broker_config)
        self._overrides[topic] = dict(configs)
        for tp, log in self._logs.items():
            if tp.topic == topic:
                log.set_config(config)

    def overrides(self, topic: str) -> dict[str, str]:
        """Return the topic's own configs, with this run's laid over them."""
        return {**self.topic(topic).configs, **self._overrides.get(topic, {})}

    def topic_config(self, topic: str) -> LogConfig:
        """Return a topic's effective configuration."""
        return effective_config(self.overrides(topic), self.broker_config)

    # -- logs ----------------------------------------------------------------------------

    def log(self, topic_partition: TopicPartition) -> Log:
        """Return a partition's log, opened now if it was not.

        Raises
        ------
        UnknownTopicOrPartitionError
        UnsupportedFormatError, CorruptionError
            What opening found.
        KafkaStorageError
            The disk failed.
        """
        log = self._logs.get(topic_partition)
        if log is None:
            log = self._logs[topic_partition] = self._open(topic_partition)
        return log

    def _open(self, topic_partition: TopicPartition) -> Log:
        topic = self.topic(topic_partition.topic)
        if topic_partition.partition not in topic.partitions:
            raise UnknownTopicOrPartitionError(
                f"topic '{topic.name}' has no partition {topic_partition.partition}"
            )
        directory = self._homes.get(topic_partition)
        if directory is None:
            directory = min(self.directories, key=lambda each: len(each.partitions))
            directory.partitions.add(topic_partition)
            self._homes[topic_partition] = directory
        half_opened = topic_partition in directory.half_opened
        try:
            log = open_log(
                self.runtime,
                directory.partition_path(topic_partition),
                topic_partition,
                self.topic_config(topic.name),
                clean=(directory.clean or directory.fresh) and not half_opened,
                recovery_point=directory.recovery_points.get(topic_partition, 0),
                log_start_offset=directory.log_starts.get(topic_partition, 0),
                producer_id_expiration_ms=self.broker_config.producer_id_expiration_ms,
            )
        except OSError as error:
            directory.half_opened.add(topic_partition)
            raise KafkaStorageError(f"{topic_partition}: cannot open: {error}") from error
        directory.half_opened.discard(topic_partition)
        return log

    def partitions(
        self, topic: str | None = None, partition: int | None = None
    ) -> list[TopicPartition]:
        """Return the partitions of one or all topics, in order.

        Raises
        ------
        UnknownTopicOrPartitionError
        """
        if topic is None:
            return [
                TopicPartition(t.name, number) for t in self.topics() for number in t.partitions
            ]
        numbers = self.topic(topic).partitions
        if partition is not None:
            if partition not in numbers:
                raise UnknownTopicOrPartitionError(f"topic '{topic}' has no partition {partition}")
            numbers = (partition,)
        return [TopicPartition(topic, number) for number in numbers]

    def open_logs(self) -> Iterator[Log]:
        """Yield the logs that are open."""
        yield from self._logs.values()

    def directory_of(self, topic_partition: TopicPartition) -> LogDirectory:
        """Return the data directory that a partition lives in."""
        return self._homes[topic_partition]

    # -- closing -------------------------------------------------------------------------

    def close(self) -> None:
        """Flush and close every log, write the checkpoints, mark the directories clean.

        Raises
        ------
        KafkaStorageError
            The disk failed. The other logs are closed all the same, and the directories of
            those that failed, now or when opened, are not marked clean: the next start recovers
            them.
        """
        failures: list[KafkaStorageError] = []
        good: dict[TopicPartition, Log] = {}
        for tp, log in self._logs.items():
            try:
                log.close()
            except KafkaStorageError as error:
                failures.append(error)
            if not log.is_offline:
                good[tp] = log
        if not self.read_only:
            for directory in self.directories:
                own = [tp for tp in self._logs if self._homes[tp] is directory]
                try:
                    directory.write_checkpoints({tp: good[tp] for tp in own if tp in good})
                    if all(tp in good for tp in own) and not directory.half_opened:
                        mark_clean_shutdown(self.runtime.fs, directory.path)
                except OSError as error:
                    failures.append(KafkaStorageError(f"{directory.path}: cannot close: {error}"))
        self._logs.clear()
        if failures:
            raise failures[0]
