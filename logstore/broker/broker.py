"""The broker: topics, produce, consume and clean over the logs of data directories.

A facade that composes the log manager and the cleaner; it holds no rule of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, NamedTuple, Self

from logstore.broker.partitioner import Partitioner
from logstore.broker.records import (
    ConsumerRecord,
    RecordLike,
    RecordMetadata,
    new_record,
    to_new_record,
)
from logstore.config import BrokerConfig, ConfigValue, describe
from logstore.errors import InvalidConfigurationError
from logstore.fetch import Isolation
from logstore.log import Log, NewRecord
from logstore.manager import LogManager
from logstore.record.codecs import Codec
from logstore.record.layout import HEADER_SIZE, MAX_RECORD_OVERHEAD
from logstore.runtime import (
    Clock,
    DiskFileSystem,
    FileSystem,
    MemoryFileSystem,
    OverlayFileSystem,
    ReadOnlyFileSystem,
    Runtime,
    SystemClock,
    random_source,
)
from logstore.topics import Topic
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from cleaner.manager import LogCleanerManager, ProgressListener
    from logstore.broker.reports import CleanReport
    from logstore.record.records import Header

BATCH_BYTES = 16_384
"""Where `append_many` closes a batch unless told otherwise: `batch.size` of Kafka's producer."""

MEMORY_DIR = "/memory"


class AppendedRange(NamedTuple):
    """What one `append_many` stored in one partition; offsets are inclusive."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
    bytes: int


class Broker:
    """A single-node broker in this process.

    Parameters
    ----------
    data_dir : path or sequence of paths, optional
        Kafka log directories, created when missing. None keeps everything in memory.
    clock : Clock, optional
        Wall and monotonic time; the machine's by default, `VirtualClock()` for tests.
    broker_config : mapping or BrokerConfig, optional
        Kafka's broker properties; they give topics their defaults.
    read_only : bool
        Open without changing a byte: recovery is computed in memory and reported.
    seed : int, optional
        Makes everything random repeatable (roll jitter, the cleaner's hash key).
    fs : FileSystem, optional
        Other files than the disk's or fresh memory.

    Raises
    ------
    InvalidConfigurationError
        A property is wrong, or with `read_only` a directory is missing.
    """

    def __init__(
        self,
        data_dir: str | PathLike[str] | Sequence[str | PathLike[str]] | None = None,
        *,
        clock: Clock | None = None,
        broker_config: Mapping[str, object] | BrokerConfig | None = None,
        read_only: bool = False,
        seed: int | None = None,
        fs: FileSystem | None = None,
    ) -> None:
        self.clock: Clock = SystemClock() if clock is None else clock
        if not isinstance(broker_config, BrokerConfig):
            broker_config = BrokerConfig.from_properties(broker_config or {})
        self.broker_config = broker_config
        if fs is None:
            fs = MemoryFileSystem(self.clock) if data_dir is None else DiskFileSystem(self.clock)
        if read_only:
            fs = OverlayFileSystem(ReadOnlyFileSystem(fs), self.clock)
        self.runtime = Runtime(self.clock, fs, random_source(seed))
        self.manager = LogManager(
            self.runtime, _directories(data_dir), broker_config, read_only=read_only
        )
        self.read_only = read_only
        self._partitioner = Partitioner()
        self._cleaner: LogCleanerManager | None = None
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        names = ", ".join(directory.path for directory in self.manager.directories)
        return f"Broker({names})"

    def close(self) -> None:
        """Flush and close everything in good order; closing twice is allowed."""
        if not self._closed:
            self._closed = True
            self.manager.close()

    # -- topics --------------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None
    ) -> Topic:
        """Create a topic; a folder of that name copied from a broker is taken over as it is.

        Raises
        ------
        InvalidTopicError, TopicAlreadyExistsError, InvalidConfigurationError
            Nothing was created.
        """
        self._refuse_if_read_only("create a topic")
        texts = {key: str(value) for key, value in (configs or {}).items()}
        return self.manager.create_topic(name, partitions, texts)

    def topics(self) -> list[Topic]:
        """Return all topics by name, adopted ones included."""
        return self.manager.topics()

    def topic(self, name: str) -> Topic:
        """Return one topic.

        Raises
        ------
        UnknownTopicOrPartitionError
        """
        return self.manager.topic(name)

    def describe_configs(self, topic: str) -> dict[str, ConfigValue]:
        """Return each effective config of a topic with its origin and meaning."""
        return describe(self.manager.overrides(topic), self.broker_config)

    def override_configs(self, topic: str, configs: Mapping[str, object]) -> None:
        """Lay configs over a topic's own until this broker closes; nothing is stored."""
        self.manager.override(topic, {key: str(value) for key, value in configs.items()})

    def partitions(
        self, topic: str | None = None, partition: int | None = None
    ) -> list[TopicPartition]:
        """Return the partitions of one or all topics.

        Raises
        ------
        UnknownTopicOrPartitionError
        """
        return self.manager.partitions(topic, partition)

    def log(self, topic: str, partition: int = 0) -> Log:
        """Return a partition's log, for what this facade does not offer."""
        return self.manager.log(TopicPartition(topic, partition))

    # -- produce -------------------------------------------------------------------------

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Iterable[Header] = (),
        compression: str = "none",
    ) -> RecordMetadata:
        """Append one record as a batch of its own.

        Parameters
        ----------
        partition : int, optional
            By Kafka's default partitioner when not given.
        timestamp : int, optional
            Unix ms; the clock's by default.

        Raises
        ------
        RequestError
            The log is unchanged.
        """
        self._refuse_if_read_only("append")
        record = new_record(key, value, timestamp, headers)
        tp = TopicPartition(topic, self._partition_for(topic, record, partition))
        info = self.manager.log(tp).append_records([record], _codec(compression))
        return RecordMetadata(topic, tp.partition, info.first_offset, info.max_timestamp)

    def append_many(
        self,
        topic: str,
        records: Iterable[RecordLike],
        *,
        partition: int | None = None,
        compression: str = "none",
        batch_records: int | None = None,
    ) -> list[AppendedRange]:
        """Append records in batches.

        Parameters
        ----------
        records : iterable
            `(key, value[, timestamp[, headers]])` tuples, mappings with those names,
            `NewRecord`s or `ConsumerRecord`s. Read once, a batch a partition at a time.
        batch_records : int, optional
            Records a batch; by default a batch closes at about 16 KiB, as a producer's does.

        Returns
        -------
        list of AppendedRange
            One a partition, in order of partition.

        Raises
        ------
        RequestError
            A batch was refused; the batches before it stay.
        """
        self._refuse_if_read_only("append")
        writer = BatchWriter(self, topic, compression, batch_records)
        for item in records:
            writer.add(to_new_record(item), partition)
        return writer.finish()

    def _partition_for(self, topic: str, record: NewRecord, partition: int | None) -> int:
        if partition is not None:
            return partition
        numbers = self.manager.topic(topic).partitions
        if record.key is None:
            return self._partitioner.for_null_keys(numbers)
        return self._partitioner.of_key(record.key, numbers)

    # -- consume -------------------------------------------------------------------------

    def read(
        self,
        topic: str,
        partition: int = 0,
        *,
        offset: int | None = None,
        until: int | None = None,
        max_records: int | None = None,
        isolation: str = "read_uncommitted",
        key: bytes | None = None,
    ) -> Iterator[ConsumerRecord]:
        """Yield records in offset order; holes are passed over.

        Parameters
        ----------
        offset : int, optional
            First offset wanted, inclusive; the log start by default.
        until : int, optional
            Exclusive; the end of what `isolation` allows by default.
        key : bytes, optional
            Only records of this key.

        Raises
        ------
        OffsetOutOfRangeError
            `offset` is outside the log; raised at the first step.
        CorruptRecordError
            A batch is damaged; names file and position.
        """
        log = self.manager.log(TopicPartition(topic, partition))
        start = log.log_start_offset if offset is None else offset
        records = log.records(start, until, isolation=Isolation(isolation))
        given = 0
        if max_records is not None and max_records <= 0:
            return
        for batch, record in records:
            if key is not None and record.key != key:
                continue
            yield ConsumerRecord(
                topic,
                partition,
                record.offset,
                record.timestamp,
                batch.header.timestamp_type,
                record.key,
                record.value,
                record.headers,
            )
            given += 1
            if given == max_records:
                return

    # -- segments and cleaning -----------------------------------------------------------

    def roll(self, topic: str, partition: int = 0) -> int:
        """Start a new active segment and return its base offset."""
        self._refuse_if_read_only("roll")
        return self.manager.log(TopicPartition(topic, partition)).roll().base_offset

    @property
    def cleaner(self) -> LogCleanerManager:
        """The cleaner over this broker's logs."""
        if self._cleaner is None:
            from cleaner.manager import LogCleanerManager

            self._cleaner = LogCleanerManager(self.runtime, self.manager, self.broker_config)
        return self._cleaner

    def clean(
        self,
        topic: str | None = None,
        partition: int | None = None,
        *,
        force: bool = False,
        roll: bool = False,
        progress: ProgressListener | None = None,
    ) -> CleanReport:
        """Compact what is due, until nothing is; or with `force` whatever can be cleaned.

        Parameters
        ----------
        topic, partition : str, int, optional
            All partitions by default.
        force : bool
            Ignore dirty ratio and compaction lags, and clean up to the first uncleanable
            offset in as many passes as the map needs; an empty dirty range still rewrites the
            clean section once. Never crosses the active segment or the last stable offset.
        roll : bool
            Roll non-empty active segments first.

        Returns
        -------
        CleanReport
            The numbers of every pass, and why the other partitions were not cleaned.
        """
        from logstore.broker.reports import CleanReport

        self._refuse_if_read_only("clean")
        partitions = self.partitions(topic, partition)
        return CleanReport.of(
            self.cleaner.clean(partitions, force=force, roll=roll, progress=progress)
        )

    def _refuse_if_read_only(self, what: str) -> None:
        if self.read_only:
            raise InvalidConfigurationError(f"cannot {what}: the broker was opened read-only")


class BatchWriter:
    """Collects records into batches, one open batch a partition."""

    def __init__(
        self, broker: Broker, topic: str, compression: str, batch_records: int | None
    ) -> None:
        if batch_records is not None and batch_records < 1:
            raise InvalidConfigurationError(f"batch records must be at least 1: {batch_records}")
        self._broker = broker
        self._topic = topic
        self._codec = _codec(compression)
        self._batch_records = batch_records
        self._numbers = broker.topic(topic).partitions
        self._open: dict[int, list[NewRecord]] = {}
        self._open_bytes: dict[int, int] = {}
        self._null_key_partition: int | None = None
        self._done: dict[int, AppendedRange] = {}

    def add(self, record: NewRecord, partition: int | None) -> None:
        """Take a record; appends a batch when one is full."""
        number = self._choose(record, partition)
        size = estimated_size(record)
        pending = self._open.setdefault(number, [])
        if pending and self._is_full(number, size):
            self.flush(number)
            pending = self._open.setdefault(number, [])
        pending.append(record)
        self._open_bytes[number] = self._open_bytes.get(number, HEADER_SIZE) + size
        if self._batch_records is not None and len(pending) >= self._batch_records:
            self.flush(number)

    def flush(self, number: int) -> None:
        """Append the open batch of a partition."""
        pending = self._open.pop(number, [])
        self._open_bytes.pop(number, None)
        if number == self._null_key_partition:
            self._null_key_partition = None
        if not pending:
            return
        log = self._broker.log(self._topic, number)
        info = log.append_records(pending, self._codec)
        before = self._done.get(number)
        self._done[number] = AppendedRange(
            self._topic,
            number,
            info.first_offset if before is None else before.first_offset,
            info.last_offset,
            info.records + (0 if before is None else before.records),
            info.size_bytes + (0 if before is None else before.bytes),
        )

    def finish(self) -> list[AppendedRange]:
        """Append all open batches and return what was stored, also after an error."""
        for number in list(self._open):
            self.flush(number)
        return self.appended

    @property
    def appended(self) -> list[AppendedRange]:
        """What was stored so far, one range a partition."""
        return [self._done[number] for number in sorted(self._done)]

    def _choose(self, record: NewRecord, partition: int | None) -> int:
        if partition is not None:
            return partition
        if record.key is not None:
            return self._broker._partitioner.of_key(record.key, self._numbers)
        if self._null_key_partition is None:
            self._null_key_partition = self._broker._partitioner.for_null_keys(self._numbers)
        return self._null_key_partition

    def _is_full(self, number: int, size: int) -> bool:
        if self._batch_records is not None:
            limit = self._broker.log(self._topic, number).config.max_message_bytes
        else:
            limit = BATCH_BYTES
        return self._open_bytes[number] + size > limit


def estimated_size(record: NewRecord) -> int:
    """Return an upper bound of a record's bytes in an uncompressed batch."""
    size = MAX_RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += 10 + 4 * len(name) + len(value or b"")
    return size


def _codec(compression: str) -> Codec:
    return Codec.from_name(compression)


def _directories(
    data_dir: str | PathLike[str] | Sequence[str | PathLike[str]] | None,
) -> list[str]:
    if data_dir is None:
        return [MEMORY_DIR]
    if isinstance(data_dir, str | PathLike):
        data_dir = [data_dir]
    if not data_dir:
        raise InvalidConfigurationError("at least one data directory is needed")
    return [fspath(path).rstrip("/") or "/" for path in data_dir]
