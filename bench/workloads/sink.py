"""Writing topics from Spark: one directory a partition, committed all or nothing.

    frame = frame.repartitionById(8, "partition").sortWithinPartitions("offset")
    frame.write.format("logstore").mode("append").option("topic", "users").save(DATA_DIR)

Rows become records in the order in which a task meets them; offsets are given anew, from 0 on.
A partition must come whole from one task: `repartitionById` sees to that.

Columns
-------
value : bytes or text; needed. Null is a tombstone.
key : bytes or text.
topic : text, unless the option says it.
partition : int; needed if there is more than one.
timestamp : a timestamp, or milliseconds as bigint. Missing or null, the clock's.
headers : as in the schema to read.
offset : only looked at: it must rise within a partition, so that a forgotten sort is found.
timestampType : passed over.

Options to write
----------------
topic : the name, for all rows.
partitions : how many a topic gets (default: up to the highest number met).
batchRecords : most records of a batch (default 1000); it closes earlier where the next record
    might not fit `max.message.bytes`.
compression : `none` (default), `gzip`, `snappy`, `lz4`, `zstd`.
config.KEY : a topic's own configuration, stored with it: `config.segment.bytes`.
now : wall time in ms to write by, for files that are the same each time.

Modes
-----
append : adds topics. One that exists is refused, and nothing is written.
overwrite : puts topics in the place of those of the same name; other topics stay.

Tasks write below a directory of the job's own, in the data directory. The commit takes the lock
of the data directory, stores the topics as being deleted, moves the folders in, and then, by
replacing one file, makes them known. Until then no reader sees them; whoever opens the directory
after a crash removes them. A crash within the commit of an overwrite may so leave neither topic,
but never a mixture.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from bench.workloads.arrow import bytes_column, encoded_headers
from bench.workloads.source import KAFKA_SCHEMA, number_of
from logstore.checkpoint import RECOVERY_POINTS, REPLICATION_OFFSETS
from logstore.config import BrokerConfig, altered_overrides, effective_config
from logstore.errors import (
    InvalidConfigurationError,
    InvalidRecordError,
    TopicAlreadyExistsError,
)
from logstore.loader import open_log
from logstore.log_directory import LogDirectory, remove_tree
from logstore.names import parse_log_dir, validate_topic_name
from logstore.record.codecs import Codec
from logstore.record.columns import headers_column
from logstore.runtime import (
    Clock,
    DiskFileSystem,
    FileSystem,
    FixedWallClock,
    Runtime,
    SystemClock,
    make_dirs_durably,
    random_source,
)
from logstore.topics import Topic, TopicStore
from logstore.types import INT32_MAX, TopicPartition

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from logstore.log import Log
    from logstore.record.columns import BytesColumn

BATCH_RECORDS = 1000
JOB_DIR_PREFIX = ".logstore-write."
LEFTOVER_AGE_MS = 24 * 60 * 60 * 1000
"""A job's directory in which nothing was made for so long belongs to no job that still runs."""

_GATHER_ROWS = 8192
_RECORD_OVERHEAD_MAX = 1 + 5 + 10 + 5 + 5 + 5
_BATCH_OVERHEAD_MAX = 4096
"""Its header, and what a codec adds to bytes that it cannot compress."""

_CONFIG_PREFIX = "config."
_TEXT = (BinaryType, StringType)
_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "key": _TEXT,
    "value": _TEXT,
    "topic": (StringType,),
    "partition": (IntegerType, LongType),
    "offset": (LongType, IntegerType),
    "timestamp": (TimestampType, LongType),
    "timestampType": (IntegerType,),
    "headers": (type(KAFKA_SCHEMA["headers"].dataType),),
}


@dataclass(frozen=True)
class WrittenPartition:
    """A partition in a folder of its own, closed in good order; `end_offset` is its log end."""

    topic: str
    partition: int
    folder: str
    end_offset: int


@dataclass
class TaskMessage(WriterCommitMessage):
    """What a task wrote."""

    partitions: tuple[WrittenPartition, ...]


@dataclass(frozen=True)
class WriteOptions:
    """How to write; see the head of this module."""

    topic: str | None
    partitions: int | None
    batch_records: int
    codec: Codec
    configs: Mapping[str, str]
    now_ms: int | None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Return the options as given to Spark.

        Raises
        ------
        InvalidConfigurationError, InvalidTopicError
        """
        topic = options.get("topic")
        if topic is not None:
            validate_topic_name(topic)
        given = {
            key.removeprefix(_CONFIG_PREFIX): value
            for key, value in options.items()
            if key.startswith(_CONFIG_PREFIX)
        }
        configs, _ = altered_overrides({}, given, ())
        return cls(
            topic,
            _positive("partitions", options.get("partitions")),
            _positive("batchRecords", options.get("batchRecords")) or BATCH_RECORDS,
            Codec.from_name(options.get("compression", Codec.NONE.kafka_name)),
            configs,
            number_of("now", options["now"]) if "now" in options else None,
        )

    def runtime(self) -> Runtime:
        """Return the world to write in."""
        clock: Clock = SystemClock() if self.now_ms is None else FixedWallClock(self.now_ms)
        return Runtime(clock, DiskFileSystem(clock), random_source())


def _positive(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    number = number_of(name, text)
    if not 1 <= number <= INT32_MAX:
        raise InvalidConfigurationError(f"{name}: {number} is not in [1, {INT32_MAX}]")
    return number


class LogstoreWriter(DataSourceArrowWriter):
    """Writes one job's partitions; made where the job is planned, and copied to its tasks."""

    def __init__(
        self, path: str, options: Mapping[str, str], schema: StructType, *, overwrite: bool
    ) -> None:
        self.path = path.rstrip("/") or "/"
        self.options = WriteOptions.parse(options)
        self.overwrite = overwrite
        self.job_dir = f"{self.path}/{JOB_DIR_PREFIX}{uuid.uuid4().hex}"
        _check_columns(schema, self.options)
        fs = DiskFileSystem()
        _sweep_leftovers(fs, self.path)
        if not overwrite and self.options.topic is not None and fs.is_dir(self.path):
            names = [parse_log_dir(name) for name in fs.list_dir(self.path)]
            found = [each.topic_partition for each in names if each and not each.state]
            _refuse_existing(TopicStore(fs, self.path), found, [self.options.topic], self.path)
        make_dirs_durably(fs, self.path)
        Path(self.job_dir).mkdir()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Write the rows of one task; return where they are.

        Raises
        ------
        RequestError
            A row can be no record; the job fails.
        """
        runtime = self.options.runtime()
        task_dir = f"{self.job_dir}/{uuid.uuid4().hex}"
        Path(task_dir).mkdir()  # fails, as all below it does, once the job was aborted
        writers: dict[TopicPartition, PartitionWriter] = {}
        for rows in iterator:
            for tp, own in _by_partition(rows, self.options):
                if tp not in writers:
                    log = _new_log(runtime, f"{task_dir}/{tp}", tp, self.options.configs)
                    writers[tp] = PartitionWriter(log, self.options)
                writers[tp].add(own)
        return TaskMessage(tuple(writers[tp].finish() for tp in sorted(writers)))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make what all tasks wrote known at once.

        Raises
        ------
        InvalidRecordError
            Rows of one partition came from several tasks.
        TopicAlreadyExistsError
            One does, and the mode is not `overwrite`.
        KafkaStorageError
            The data directory is in use by another process, or the disk failed.
        """
        written = [
            each
            for message in messages
            if isinstance(message, TaskMessage)
            for each in message.partitions
        ]
        _commit(self.path, self.job_dir, self.options, written, overwrite=self.overwrite)
        self.abort([])

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove all that this job left in its own directory.

        Spark does not wait for the tasks that it kills. The directory takes another name first,
        so that they find no place to make files in.
        """
        fs = DiskFileSystem()
        doomed = f"{self.job_dir}.doomed"
        with suppress(FileNotFoundError):
            fs.rename(self.job_dir, doomed)
            remove_tree(fs, doomed)


# -- rows --------------------------------------------------------------------------------


def _check_columns(schema: StructType, options: WriteOptions) -> None:
    names = schema.names
    for name in names:
        if name not in _TYPES:
            raise InvalidConfigurationError(
                f"column {name} means nothing here; known are {', '.join(_TYPES)}"
            )
        kind = schema[name].dataType
        if not isinstance(kind, _TYPES[name]):
            raise InvalidConfigurationError(f"column {name} cannot be {kind.simpleString()}")
    headers = KAFKA_SCHEMA["headers"].dataType.simpleString()
    if "headers" in names and schema["headers"].dataType.simpleString() != headers:
        raise InvalidConfigurationError(f"column headers must be {headers}")
    if "value" not in names:
        raise InvalidConfigurationError("a column value is needed")
    if options.topic is None and "topic" not in names:
        raise InvalidConfigurationError("a column topic or an option topic is needed")
    if "partition" not in names and options.partitions != 1:
        raise InvalidConfigurationError("a column partition is needed, or partitions=1")


def _by_partition(
    rows: pa.RecordBatch, options: WriteOptions
) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """Yield the rows of each partition among some, in their order."""
    names = rows.schema.names
    topics: list[str] = [] if options.topic is None else [options.topic]
    topic_column = numbers_column = None
    if not topics:
        topic_column = _without_nulls(rows, "topic")
        topics = topic_column.unique().to_pylist()
    for topic in topics:
        own = rows if len(topics) == 1 else rows.filter(pc.equal(topic_column, topic))
        numbers = [0]
        if "partition" in names:
            numbers_column = _without_nulls(own, "partition")
            numbers = numbers_column.unique().to_pylist()
        for number in numbers:
            tp = TopicPartition(topic, number)
            if not 0 <= number < (options.partitions or INT32_MAX):
                raise InvalidRecordError(
                    f"a row for {tp}, but there are {options.partitions or INT32_MAX} partitions"
                )
            alone = len(numbers) == 1
            yield tp, own if alone else own.filter(pc.equal(numbers_column, number))


def _without_nulls(rows: pa.RecordBatch, name: str) -> pa.Array:
    column = rows.column(name)
    if column.null_count:
        raise InvalidRecordError(f"a row has no {name}")
    return column


class PartitionWriter:
    """Cuts the rows of a partition into batches and appends them; a task has one a partition.

    Where a batch ends depends on the records alone, not on how Spark cut the rows.
    """

    def __init__(self, log: Log, options: WriteOptions) -> None:
        self._log = log
        self._options = options
        self._batch_bytes = log.config.max_message_bytes - _BATCH_OVERHEAD_MAX
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._last_offset = -1

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows."""
        self._check_order(rows)
        self._pending.append(rows)
        self._pending_rows += rows.num_rows
        if self._pending_rows >= max(_GATHER_ROWS, self._options.batch_records):
            self._append_batches(final=False)

    def finish(self) -> WrittenPartition:
        """Append what is left and close the log in good order."""
        self._append_batches(final=True)
        log = self._log
        tp = log.topic_partition
        end_offset = log.log_end_offset
        log.close()
        return WrittenPartition(tp.topic, tp.partition, log.directory, end_offset)

    def _check_order(self, rows: pa.RecordBatch) -> None:
        if "offset" not in rows.schema.names:
            return
        offsets = np.asarray(_without_nulls(rows, "offset")).astype(np.int64)
        steps = np.diff(offsets, prepend=self._last_offset)
        if (steps <= 0).any():
            row = int(np.flatnonzero(steps <= 0)[0])
            raise InvalidRecordError(
                f"the offsets of {self._log.topic_partition} do not rise: {offsets[row]} comes"
                f" after {offsets[row] - steps[row]}; sortWithinPartitions('offset') is missing"
            )
        self._last_offset = int(offsets[-1])

    def _append_batches(self, *, final: bool) -> None:
        if not self._pending_rows:
            return
        rows = pa.Table.from_batches(self._pending).combine_chunks().to_batches()[0]
        columns = self._columns(rows)
        done = 0
        for start, stop in self._cuts(columns, final=final):
            self._append(columns, start, stop)
            done = stop
        rest = rows.slice(done)
        self._pending = [rest] if rest.num_rows else []
        self._pending_rows = rest.num_rows

    def _columns(self, rows: pa.RecordBatch) -> _Columns:
        names, count = rows.schema.names, rows.num_rows
        nothing = pa.nulls(count, pa.binary())
        headers = headers_column(None, count)
        if "headers" in names:
            headers = encoded_headers(rows.column("headers"))
        timestamps = np.full(count, self._log.runtime.clock.now_ms(), np.int64)
        if "timestamp" in names:
            timestamps = _timestamps_ms(rows.column("timestamp"), timestamps)
        return _Columns(
            bytes_column(rows.column("key") if "key" in names else nothing),
            bytes_column(rows.column("value")),
            timestamps,
            headers,
        )

    def _cuts(self, columns: _Columns, *, final: bool) -> Iterator[tuple[int, int]]:
        """Yield [start, stop) of each batch that is full; of the last one too if `final`."""
        count, most = len(columns.timestamps), self._options.batch_records
        ends = columns.ends()
        start = 0
        while start < count:
            before = ends[start - 1] if start else 0
            fitting = int(np.searchsorted(ends, before + self._batch_bytes, "right"))
            stop = min(start + most, max(fitting, start + 1))
            if stop == count and stop - start < most and not final:
                return
            yield start, stop
            start = stop

    def _append(self, columns: _Columns, start: int, stop: int) -> None:
        self._log.append_columns(
            columns.keys.slice(start, stop),
            columns.values.slice(start, stop),
            columns.timestamps[start:stop],
            columns.headers.slice(start, stop),
            self._options.codec,
        )


@dataclass(frozen=True, slots=True)
class _Columns:
    keys: BytesColumn
    values: BytesColumn
    timestamps: NDArray[np.int64]
    headers: BytesColumn

    def ends(self) -> NDArray[np.int64]:
        """Return how many bytes the records up to each can take, uncompressed, at most."""
        sizes = np.full(len(self.timestamps), _RECORD_OVERHEAD_MAX, np.int64)
        for column in (self.keys, self.values, self.headers):
            sizes += np.maximum(column.sizes, 0)
        return np.cumsum(sizes)


def _timestamps_ms(column: pa.Array, default: NDArray[np.int64]) -> NDArray[np.int64]:
    numbers = column.cast(pa.timestamp("us", column.type.tz)) if _is_time(column) else column
    values = np.asarray(pc.fill_null(numbers.view(pa.int64()), 0))
    if _is_time(column):
        values = values // 1000
    return np.where(np.asarray(column.is_null()), default, values) if column.null_count else values


def _is_time(column: pa.Array) -> bool:
    return pa.types.is_timestamp(column.type)


# -- folders -----------------------------------------------------------------------------


def _new_log(runtime: Runtime, folder: str, tp: TopicPartition, configs: Mapping[str, str]) -> Log:
    validate_topic_name(tp.topic)
    Path(folder).mkdir()
    return open_log(
        runtime,
        folder,
        tp,
        effective_config(configs),
        clean=True,
        recovery_point=0,
        log_start_offset=0,
        producer_id_expiration_ms=BrokerConfig().producer_id_expiration_ms,
    )


def _commit(
    path: str,
    job_dir: str,
    options: WriteOptions,
    written: Sequence[WrittenPartition],
    *,
    overwrite: bool,
) -> None:
    partitions = _all_partitions(job_dir, options, written)
    numbers: dict[str, list[int]] = {} if options.topic is None else {options.topic: []}
    for tp in sorted(partitions):
        numbers.setdefault(tp.topic, []).append(tp.partition)
    runtime = options.runtime()
    directory = LogDirectory(runtime, path, read_only=False)
    try:
        directory.check_online()
        store = TopicStore(runtime.fs, path)
        if not overwrite:
            _refuse_existing(store, directory.partitions, numbers, path)
        topics = [Topic(name, tuple(own), options.configs) for name, own in numbers.items()]
        store.put(Topic(each.name, each.partitions, each.configs, deleting=True) for each in topics)
        _retire(directory, numbers)
        _move_in(directory, partitions)
        store.put(topics)
        directory.delete_retired_folders(force=True)
    finally:
        # Of the other partitions nothing was touched: they are as good as they were.
        directory.close(clean=directory.clean or directory.fresh)


def _all_partitions(
    job_dir: str, options: WriteOptions, written: Iterable[WrittenPartition]
) -> dict[TopicPartition, WrittenPartition]:
    """Return the partitions of the topics, empty ones made where no row went."""
    found: dict[TopicPartition, WrittenPartition] = {}
    for each in written:
        tp = TopicPartition(each.topic, each.partition)
        if tp in found:
            raise InvalidRecordError(
                f"rows of {tp} came from several tasks: repartitionById(n, 'partition') is missing"
            )
        found[tp] = each
    totals = {} if options.topic is None else {options.topic: options.partitions or 1}
    for tp in found:
        least = max(totals.get(tp.topic, 1), tp.partition + 1)
        totals[tp.topic] = options.partitions or least
    runtime = options.runtime()
    empty = f"{job_dir}/empty"
    Path(empty).mkdir()
    for topic, total in totals.items():
        for number in range(total):
            tp = TopicPartition(topic, number)
            if tp not in found:
                log = _new_log(runtime, f"{empty}/{tp}", tp, options.configs)
                found[tp] = PartitionWriter(log, options).finish()
    return found


def _retire(directory: LogDirectory, topics: Iterable[str]) -> None:
    for tp in sorted(tp for tp in directory.partitions if tp.topic in topics):
        directory.retire(tp, 0)
    directory.forget_retired()


def _move_in(
    directory: LogDirectory, partitions: Mapping[TopicPartition, WrittenPartition]
) -> None:
    fs = directory.runtime.fs
    for tp, each in sorted(partitions.items()):
        end = each.end_offset
        directory.adopt(tp, {RECOVERY_POINTS: end, REPLICATION_OFFSETS: end})
        fs.rename(each.folder, directory.partition_path(tp))
    fs.sync_dir(directory.path)


def _refuse_existing(
    store: TopicStore, found: Iterable[TopicPartition], topics: Iterable[str], path: str
) -> None:
    folders = {tp.topic for tp in found}
    for name in topics:
        stored = store.get(name)
        if (stored is not None and not stored.deleting) or (stored is None and name in folders):
            raise TopicAlreadyExistsError(
                f"topic '{name}' already exists in {path}; mode('overwrite') replaces it"
            )


def _sweep_leftovers(fs: FileSystem, path: str) -> None:
    """Remove directories of jobs that died, or whose killed task outlived its job's abort."""
    if not fs.is_dir(path):
        return
    oldest_ms = SystemClock().now_ms() - LEFTOVER_AGE_MS
    for name in fs.list_dir(path):
        job_dir = f"{path}/{name}"
        if name.startswith(JOB_DIR_PREFIX) and _last_change_ms(fs, job_dir) < oldest_ms:
            with suppress(FileNotFoundError):  # another job may be sweeping too
                remove_tree(fs, job_dir)


def _last_change_ms(fs: FileSystem, path: str) -> int:
    """Return when something was last made in a directory or those below; files do not count."""
    below = [f"{path}/{name}" for name in fs.list_dir(path)]
    times = [_last_change_ms(fs, each) for each in below if fs.is_dir(each)]
    return max([fs.stat(path).mtime_ms, *times])
