"""The Spark data source `logstore`: topics of a data directory as Spark's Kafka source shows them.

`spark.read.format("logstore").load(DATA_DIR)` opens the directory read-only: recovery is computed,
no byte changes, no lock is taken, so that any number of tasks may read beside a live process.

Options to read
---------------
topic : names, comma-separated; all topics by default.
partitions : numbers, comma-separated, of each topic; all by default.
startOffset, endOffset : [start, end), clamped to what each partition holds; a number, `earliest`
    or `latest`. What is appended after the plan was made is not read.
columns : names of the schema, comma-separated. Others are not made, which Spark cannot ask for.
isolation : `read_uncommitted` (default) or `read_committed`.
splitBytes : segments that follow one another are read by one task up to this many bytes together
    (default 32 MiB); a larger segment has a task of its own.

Filters are not pushed down: a relation that Spark has loaded remembers them for later queries and
then answers wrongly. The options do the same, in the open. The options to write stand in
`bench.workloads.sink`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from bench.workloads.arrow import Stored, record_batch
from logstore.broker import Broker
from logstore.errors import InvalidConfigurationError
from logstore.fetch import Isolation

if TYPE_CHECKING:
    import pyarrow as pa

    from logstore.log import Log

SPLIT_BYTES = 32 << 20
ARROW_ROWS = 65_536
ARROW_BYTES = 16 << 20
"""A batch for the JVM is closed at so many rows, or bytes of records, whichever comes first."""

KAFKA_SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField(
            "headers",
            ArrayType(
                StructType([StructField("key", StringType()), StructField("value", BinaryType())])
            ),
        ),
    ]
)
"""The columns of Spark's own Kafka source, headers included."""


@dataclass(frozen=True)
class SegmentSplit(InputPartition):
    """Offsets [start, end) of one partition, read by one task."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int


class LogstoreDataSource(DataSource):
    """Partition logs as rows; see the head of this module."""

    @classmethod
    def name(cls) -> str:
        """Return what `format(...)` takes."""
        return "logstore"

    def schema(self) -> StructType:
        """Return the columns asked for, of Spark's Kafka source."""
        asked = names_of(self.options.get("columns"))
        if asked is None:
            return KAFKA_SCHEMA
        known = KAFKA_SCHEMA.names
        if not asked or len(set(asked)) < len(asked) or not set(asked) <= set(known):
            raise InvalidConfigurationError(
                f"columns: {', '.join(asked)} is no choice from {', '.join(known)}"
            )
        return StructType([KAFKA_SCHEMA[name] for name in asked])

    def reader(self, schema: StructType) -> LogstoreReader:
        """Return the reader."""
        return LogstoreReader(path_of(self.options), self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of one job."""
        from bench.workloads.sink import LogstoreWriter

        return LogstoreWriter(path_of(self.options), self.options, schema, overwrite=overwrite)


class LogstoreReader(DataSourceReader):
    """Plans the splits on the driver's side, and reads one at a time in the workers."""

    def __init__(self, path: str, options: Mapping[str, str], schema: StructType) -> None:
        self.path = path
        self.columns = schema
        self.topics = names_of(options.get("topic"))
        numbers = names_of(options.get("partitions"))
        self.numbers = None if numbers is None else [number_of("partitions", n) for n in numbers]
        self.start_offset = _offset_option(options, "startOffset", "earliest")
        self.end_offset = _offset_option(options, "endOffset", "latest")
        self.split_bytes = number_of("splitBytes", options.get("splitBytes", str(SPLIT_BYTES)))
        self.isolation = _isolation(options.get("isolation", Isolation.READ_UNCOMMITTED.value))

    def partitions(self) -> list[InputPartition]:
        """Return the splits of all partitions asked for.

        Raises
        ------
        UnknownTopicOrPartitionError, InvalidConfigurationError
            There is no such topic, partition or data directory.
        """
        with Broker(self.path, read_only=True) as broker:
            topics = self.topics
            if topics is None:
                topics = [topic.name for topic in broker.topics()]
            return [
                split
                for topic in topics
                for tp in self._partitions_of(broker, topic)
                for split in self._splits(broker.log(tp.topic, tp.partition))
            ] or [_NOTHING]

    def _partitions_of(self, broker: Broker, topic: str) -> list:
        if self.numbers is None:
            return broker.partitions(topic)
        return [tp for number in self.numbers for tp in broker.partitions(topic, number)]

    def _splits(self, log: Log) -> Iterator[SegmentSplit]:
        end = log.high_watermark
        if self.isolation is Isolation.READ_COMMITTED:
            end = log.last_stable_offset
        end = min(end, _resolved(self.end_offset, log))
        start = max(log.log_start_offset, _resolved(self.start_offset, log))
        segments = log.segments.view
        size = 0
        for segment, following in zip(segments, [*segments[1:], None], strict=True):
            size += segment.size_bytes
            until = end if following is None else min(following.base_offset, end)
            if until <= start:
                size = 0
                continue
            next_size = 0 if following is None else following.size_bytes
            if until == end or size + next_size > self.split_bytes:
                tp = log.topic_partition
                yield SegmentSplit(tp.topic, tp.partition, start, until)
                start, size = until, 0
            if until == end:
                return

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a split as Arrow batches.

        Raises
        ------
        OffsetOutOfRangeError
            Retention took records away since the plan was made.
        CorruptRecordError
            A batch is damaged; names file and position.
        """
        assert isinstance(partition, SegmentSplit)
        if partition.start_offset >= partition.end_offset:
            return
        schema = to_arrow_schema(self.columns, timezone="UTC")
        topic, number = partition.topic, partition.partition
        with Broker(self.path, read_only=True) as broker:
            parts: list[Stored] = []
            rows = size = 0
            for batch, columns in broker.log(topic, number).columns(
                partition.start_offset, partition.end_offset, isolation=self.isolation
            ):
                if parts and (
                    rows + len(columns) > ARROW_ROWS or size + len(columns.data) > ARROW_BYTES
                ):
                    yield record_batch(schema, topic, number, parts)
                    parts, rows, size = [], 0, 0
                parts.append(Stored(columns, int(batch.header.timestamp_type)))
                rows += len(columns)
                size += len(columns.data)
            if parts:
                yield record_batch(schema, topic, number, parts)


_NOTHING = SegmentSplit("", 0, 0, 0)
"""Spark wants one split at least."""


def path_of(options: Mapping[str, str]) -> str:
    """Return the data directory that `load` or `save` was called with."""
    path = options.get("path")
    if not path:
        raise InvalidConfigurationError("no data directory was given: load(DATA_DIR)")
    return path.removeprefix("file://") if path.startswith("file://") else path


def names_of(text: str | None) -> list[str] | None:
    """Return the items of a comma-separated option; None if it is not given."""
    if text is None:
        return None
    return [each.strip() for each in text.split(",") if each.strip()]


def number_of(option: str, text: str) -> int:
    """Return an option's value as a number that is not negative."""
    if not text.strip().isdecimal():
        raise InvalidConfigurationError(f"{option}: {text!r} is no number")
    return int(text)


def _offset_option(options: Mapping[str, str], name: str, default: str) -> int | str:
    text = options.get(name, default)
    return text if text in ("earliest", "latest") else number_of(name, text)


def _isolation(text: str) -> Isolation:
    known = (Isolation.READ_UNCOMMITTED.value, Isolation.READ_COMMITTED.value)
    if text not in known:
        raise InvalidConfigurationError(f"isolation: {text!r} is none of {', '.join(known)}")
    return Isolation(text)


def _resolved(offset: int | str, log: Log) -> int:
    if isinstance(offset, int):
        return offset
    return log.log_start_offset if offset == "earliest" else log.high_watermark
