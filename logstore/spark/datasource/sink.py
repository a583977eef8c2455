"""Write topics from Spark, one directory per partition, with an atomic commit.

    frame = frame.repartitionById(8, "partition").sortWithinPartitions("offset")
    frame.write.format("logstore").mode("append").option("topic", "users").save(DATA_DIR)

Records are in the task's row order and get new offsets from 0. All rows of a partition must be in
the same task, which `repartitionById` ensures.

Columns
-------
value : bytes or text; required. Null is a tombstone.
key : bytes or text.
topic : text; required unless the option `topic` is set.
partition : int; required for more than one partition.
timestamp : timestamp, or bigint milliseconds. [default: current time]
headers : as in the read schema.
offset : not stored, but must ascend within a partition, so that a missing sort is detected.
timestampType : ignored.

See docs/WORKLOADS.md for the write options. A batch contains fewer than `batchRecords` records if
more could exceed `max.message.bytes`.

Modes
-----
append : adds topics. Fails without writing if one of them exists.
overwrite : replaces topics of the same name. Other topics are not affected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
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

from logstore.config.overrides import alter_overrides
from logstore.errors import InvalidConfigurationError, InvalidRecordError
from logstore.manager.topics.store import Topic
from logstore.names import validate_topic_name
from logstore.record.codecs import Codec
from logstore.record.columns import headers_column
from logstore.runtime import (
    Clock,
    DiskFileSystem,
    FixedWallClock,
    Runtime,
    SystemClock,
    random_source,
)
from logstore.spark.datasource.arrow import bytes_column, encoded_headers
from logstore.spark.datasource.commit import (
    WriteJob,
    WrittenPartition,
    by_partition,
    close_log,
    create_log,
)
from logstore.spark.datasource.options import parse_number, refuse_unknown
from logstore.spark.datasource.schema import KAFKA_SCHEMA
from logstore.storage.log.drafts import RecordArrays
from logstore.types import INT32_MAX, TopicPartition

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from logstore.record.columns import BytesColumn
    from logstore.storage.log.log import Log

BATCH_RECORDS = 1000

_GATHER_ROWS = 8192
_GATHER_BYTES = 64 << 20
_RECORD_OVERHEAD_MAX = 1 + 5 + 10 + 5 + 5 + 5
_BATCH_OVERHEAD_MAX = 4096
"""Batch header plus the expansion of incompressible data."""

OPTIONS = ("path", "topic", "partitions", "batchRecords", "compression", "now")
"""All write options except topic configs."""

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


@dataclass
class TaskMessage(WriterCommitMessage):
    """Partitions written by a task."""

    partitions: tuple[WrittenPartition, ...]


@dataclass(frozen=True)
class WriteOptions:
    """Parsed write options; see the module docstring."""

    topic: str | None
    partitions: int | None
    batch_records: int
    codec: Codec
    configs: Mapping[str, str]
    now_ms: int | None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Parse the options from Spark.

        Raises
        ------
        InvalidConfigurationError, InvalidTopicError
            An option is unknown or invalid.
        """
        refuse_unknown(options, OPTIONS, _CONFIG_PREFIX)
        topic = options.get("topic")
        if topic is not None:
            validate_topic_name(topic)
        overrides = {
            key.removeprefix(_CONFIG_PREFIX): value
            for key, value in options.items()
            if key.startswith(_CONFIG_PREFIX)
        }
        configs, _ = alter_overrides({}, overrides, ())
        return cls(
            topic,
            _positive("partitions", options.get("partitions")),
            _positive("batchRecords", options.get("batchRecords")) or BATCH_RECORDS,
            Codec.from_name(options.get("compression", Codec.NONE.kafka_name)),
            configs,
            parse_number("now", options["now"]) if "now" in options else None,
        )

    def runtime(self) -> Runtime:
        clock: Clock = SystemClock() if self.now_ms is None else FixedWallClock(self.now_ms)
        return Runtime(clock, DiskFileSystem(clock), random_source())


def _positive(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    number = parse_number(name, text)
    if not 1 <= number <= INT32_MAX:
        raise InvalidConfigurationError(f"{name}: {number} is not in [1, {INT32_MAX}]")
    return number


class LogstoreWriter(DataSourceArrowWriter):
    """The writer of a job. The driver creates it, and it is copied to the tasks."""

    def __init__(
        self, path: str, options: Mapping[str, str], schema: StructType, *, overwrite: bool
    ) -> None:
        self.options = WriteOptions.parse(options)
        _check_columns(schema, self.options)
        topic = self.options.topic
        self.job = WriteJob.begin(path, [] if topic is None else [topic], overwrite=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Write the rows of one task.

        Raises
        ------
        RequestError
            A row is not a valid record.
        """
        runtime = self.options.runtime()
        task_dir = self.job.task_dir()  # fails, like later calls, once the job is aborted
        writers: dict[TopicPartition, PartitionWriter] = {}
        for rows in iterator:
            for tp, part in _by_partition(rows, self.options):
                if tp not in writers:
                    log = create_log(runtime, f"{task_dir}/{tp}", tp, self.options.configs)
                    writers[tp] = PartitionWriter(log, self.options)
                writers[tp].add(part)
        return TaskMessage(tuple(writers[tp].finish() for tp in sorted(writers)))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the partitions of all tasks atomically.

        Raises
        ------
        InvalidRecordError
            Several tasks had rows of the same partition.
        TopicAlreadyExistsError
            A topic exists and the mode is not `overwrite`.
        KafkaStorageError
            The data directory is in use by another process, or the disk failed.
        """
        written = [
            partition
            for message in messages
            if isinstance(message, TaskMessage)
            for partition in message.partitions
        ]
        written = _all_partitions(self.job, self.options, written)
        numbers: dict[str, list[int]] = {}
        for tp in sorted(by_partition(written)):
            numbers.setdefault(tp.topic, []).append(tp.partition)
        topics = [Topic(name, tuple(own), self.options.configs) for name, own in numbers.items()]
        self.job.commit(self.options.runtime(), topics, written)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the files of the job; see `WriteJob.abort`."""
        self.job.abort()


# -- rows --------------------------------------------------------------------------------


def _check_columns(schema: StructType, options: WriteOptions) -> None:
    names = schema.names
    for name in names:
        if name not in _TYPES:
            raise InvalidConfigurationError(
                f"unknown column {name}; known columns are {', '.join(_TYPES)}"
            )
        kind = schema[name].dataType
        if not isinstance(kind, _TYPES[name]):
            raise InvalidConfigurationError(f"column {name} cannot be {kind.simpleString()}")
    headers = KAFKA_SCHEMA["headers"].dataType.simpleString()
    if "headers" in names and schema["headers"].dataType.simpleString() != headers:
        raise InvalidConfigurationError(f"column headers must be {headers}")
    if "value" not in names:
        raise InvalidConfigurationError("the column value is missing")
    if options.topic is None and "topic" not in names:
        raise InvalidConfigurationError("the column topic is missing: add it, or set the option")
    if "partition" not in names and options.partitions != 1:
        raise InvalidConfigurationError(
            "the column partition is missing: add it, or set partitions=1"
        )


def _by_partition(
    rows: pa.RecordBatch, options: WriteOptions
) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """Split rows by partition, preserving their order."""
    names = rows.schema.names
    topics: list[str] = [] if options.topic is None else [options.topic]
    topic_column = numbers_column = None
    if not topics:
        topic_column = _without_nulls(rows, "topic")
        topics = topic_column.unique().to_pylist()
    for topic in topics:
        chosen = rows if len(topics) == 1 else rows.filter(pc.equal(topic_column, topic))
        numbers = [0]
        if "partition" in names:
            numbers_column = _without_nulls(chosen, "partition")
            numbers = numbers_column.unique().to_pylist()
        for number in numbers:
            tp = TopicPartition(topic, number)
            if not 0 <= number < (options.partitions or INT32_MAX):
                raise InvalidRecordError(
                    f"a row is for {tp}, but the topic has "
                    f"{options.partitions or INT32_MAX} partitions"
                )
            alone = len(numbers) == 1
            yield tp, chosen if alone else chosen.filter(pc.equal(numbers_column, number))


def _without_nulls(rows: pa.RecordBatch, name: str) -> pa.Array:
    column = rows.column(name)
    if column.null_count:
        raise InvalidRecordError(f"a row has no {name}")
    return column


class PartitionWriter:
    """Writes one partition of a task, packing rows into batches.

    Batch boundaries only depend on the records, not on Spark's Arrow batches.
    """

    def __init__(self, log: Log, options: WriteOptions) -> None:
        self._log = log
        self._options = options
        self._batch_bytes = log.config.max_message_bytes - _BATCH_OVERHEAD_MAX
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = 0
        self._last_offset = -1

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows and append full batches."""
        self._check_order(rows)
        step = max(1, rows.num_rows * _GATHER_BYTES // max(rows.nbytes, 1))
        for start in range(0, rows.num_rows, step):
            self._gather(rows.slice(start, step))

    def _gather(self, rows: pa.RecordBatch) -> None:
        self._pending.append(rows)
        self._pending_rows += rows.num_rows
        self._pending_bytes += rows.nbytes
        are_many = self._pending_rows >= max(_GATHER_ROWS, self._options.batch_records)
        if are_many or self._pending_bytes >= _GATHER_BYTES:
            self._append_batches(final=False)

    def finish(self) -> WrittenPartition:
        """Append the remaining rows and close the log cleanly."""
        self._append_batches(final=True)
        return close_log(self._log)

    def _check_order(self, rows: pa.RecordBatch) -> None:
        if "offset" not in rows.schema.names:
            return
        offsets = np.asarray(_without_nulls(rows, "offset")).astype(np.int64)
        steps = np.diff(offsets, prepend=self._last_offset)
        if (steps <= 0).any():
            row = int(np.flatnonzero(steps <= 0)[0])
            raise InvalidRecordError(
                f"the offsets of {self._log.topic_partition} do not ascend: {offsets[row]} follows"
                f" {offsets[row] - steps[row]}; sortWithinPartitions('offset') is missing"
            )
        self._last_offset = int(offsets[-1])

    def _append_batches(self, *, final: bool) -> None:
        if not self._pending_rows:
            return
        # Columns larger than 2 GiB would have several chunks.
        (rows,) = pa.Table.from_batches(self._pending).combine_chunks().to_batches()
        columns = self._columns(rows)
        done = 0
        for start, stop in self._cuts(columns, final=final):
            self._append(columns, start, stop)
            done = stop
        rest = rows.slice(done)
        self._pending = [rest]
        self._pending_rows, self._pending_bytes = rest.num_rows, rest.nbytes

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
        """Yield the row range [start, stop) of each full batch, and of the last if `final`."""
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
        records = RecordArrays(
            columns.keys.slice(start, stop),
            columns.values.slice(start, stop),
            columns.timestamps[start:stop],
            columns.headers.slice(start, stop),
        )
        self._log.writer.append_records(records, self._options.codec)


@dataclass(frozen=True, slots=True)
class _Columns:
    keys: BytesColumn
    values: BytesColumn
    timestamps: NDArray[np.int64]
    headers: BytesColumn

    def ends(self) -> NDArray[np.int64]:
        """Return upper bounds of the cumulative uncompressed size of the records."""
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


def _all_partitions(
    job: WriteJob, options: WriteOptions, written: Iterable[WrittenPartition]
) -> list[WrittenPartition]:
    """Return all partitions of the topics, creating those without rows."""
    partitions = by_partition(written)
    totals = {} if options.topic is None else {options.topic: 1}
    for tp in partitions:
        totals[tp.topic] = max(totals.get(tp.topic, 1), tp.partition + 1)
    runtime = options.runtime()
    empty = job.task_dir()
    for topic, total in totals.items():
        for number in range(options.partitions or total):
            tp = TopicPartition(topic, number)
            if tp not in partitions:
                log = create_log(runtime, f"{empty}/{tp}", tp, options.configs)
                partitions[tp] = close_log(log)
    return list(partitions.values())
