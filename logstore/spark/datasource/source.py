"""The `logstore` data source: read topics with the schema of Spark's Kafka source.

`spark.read.format("logstore").load(DATA_DIR)` opens the directory read-only. Recovery happens in
memory: no byte is changed and no lock is taken, so any number of tasks can read while a process is
writing. Pass all data directories of a broker together: `load([DIR, DIR])`.

See docs/WORKLOADS.md for the options. `valueDigest` and `headersDigest` are computed without
passing the bytes to Spark. Records appended after planning are not read.

Filters are not pushed down, because a loaded relation would apply them to later queries as well and
return wrong results. Use options to restrict rows. For writing, see `sink`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    StructType,
)

from logstore.broker import Broker
from logstore.errors import InvalidConfigurationError
from logstore.spark.datasource.arrow import Stored, record_batch
from logstore.spark.datasource.options import (
    parse_json,
    parse_names,
    parse_number,
    refuse_unknown,
    resolve_synonyms,
)
from logstore.spark.datasource.schema import KAFKA_SCHEMA, MORE_COLUMNS
from logstore.spark.datasource.splits import (
    SegmentSplit,
    Task,
    plan_splits,
    plan_tasks,
    stored_batches,
)
from logstore.storage.log.reader import Isolation

if TYPE_CHECKING:
    import pyarrow as pa

    from logstore.storage.log.log import Log
    from logstore.types import TopicPartition

OPTIONS = (
    *("path", "paths", "topic", "subscribe", "partitions", "assign"),
    *("startOffset", "startingOffsets", "endOffset", "endingOffsets"),
    *("columns", "isolation", "splitBytes", "order"),
)
"""Read options."""

_EDGES = {-2: "earliest", -1: "latest"}
"""Numbers that mean the log's ends in Spark's Kafka source."""

SPLIT_BYTES = 32 << 20
ARROW_ROWS = 65_536
ARROW_BYTES = 16 << 20
"""Limits of an Arrow batch: rows, and bytes of records."""


class _Offsets(NamedTuple):
    """Offsets (or `earliest`, `latest`): a default, and values by partition."""

    default: int | str
    by_partition: dict[tuple[str, int], int | str]

    def of(self, log: Log) -> int:
        """Return the offset to use for a log."""
        offset = self.by_partition.get(tuple(log.topic_partition), self.default)
        if isinstance(offset, int):
            return offset
        return log.log_start_offset if offset == "earliest" else log.high_watermark


class LogstoreDataSource(DataSource):
    """Records of partition logs as rows; see the module docstring."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "logstore"

    def schema(self) -> StructType:
        """Return the requested columns, by default the schema of Spark's Kafka source."""
        names = parse_names(self.options.get("columns"))
        if names is None:
            return KAFKA_SCHEMA
        known = {field.name: field for field in (*KAFKA_SCHEMA, *MORE_COLUMNS)}
        if not names or len(set(names)) < len(names) or not set(names) <= known.keys():
            raise InvalidConfigurationError(
                f"columns: '{', '.join(names)}' must be distinct names from {', '.join(known)}"
            )
        return StructType([known[name] for name in names])

    def reader(self, schema: StructType) -> LogstoreReader:
        """Return the reader.

        Raises
        ------
        InvalidConfigurationError
            An option is unknown, or the caller set a different schema.
        """
        refuse_unknown(self.options, OPTIONS)
        columns = self.schema()
        if [(column.name, column.dataType) for column in schema] != [
            (column.name, column.dataType) for column in columns
        ]:
            raise InvalidConfigurationError(
                "the schema of the data source is fixed; the option columns selects from it"
            )
        return LogstoreReader(parse_paths(self.options), self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a job."""
        from logstore.spark.datasource.sink import LogstoreWriter

        return LogstoreWriter(parse_path(self.options), self.options, schema, overwrite=overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader that raises an error on every call.

        If the error were raised here, Spark would add two more errors and three tracebacks.
        """
        return _NoStream()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Raise an error, because streaming is not supported.

        Raises
        ------
        InvalidConfigurationError
            Always.
        """
        raise _no_stream("DataFrame.write")


class _NoStream(DataSourceStreamReader):
    """A stream reader whose methods all raise an error."""

    def initialOffset(self) -> dict[str, int]:
        raise _no_stream("spark.read")

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # Spark takes both forms
        raise _no_stream("spark.read")

    def partitions(self, *_: object) -> list[InputPartition]:
        raise _no_stream("spark.read")

    def read(self, *_: object) -> Iterator[pa.RecordBatch]:
        raise _no_stream("spark.read")


def _no_stream(instead: str) -> InvalidConfigurationError:
    """Return the error for streaming queries, and hide its traceback in Spark's report."""
    # The process only runs this query and ends with the error.
    os.environ["SPARK_HIDE_TRACEBACK"] = "1"
    return InvalidConfigurationError(
        "the data source 'logstore' does not support streaming: use"
        f" {instead}.format('logstore'), or 'logstore serve' and Spark's format 'kafka'"
    )


class LogstoreReader(DataSourceReader):
    """Plans splits on the driver and reads them in the workers."""

    def __init__(self, paths: list[str], options: Mapping[str, str], schema: StructType) -> None:
        self.paths = paths
        self.columns = schema
        self.topics = parse_names(resolve_synonyms(options, "topic", "subscribe"))
        numbers = parse_names(options.get("partitions"))
        self.numbers = None if numbers is None else [parse_number("partitions", n) for n in numbers]
        self.assigned = _assigned(options)
        self.start_offset = _offsets(options, ("startOffset", "startingOffsets"), "earliest")
        self.end_offset = _offsets(options, ("endOffset", "endingOffsets"), "latest")
        self.split_bytes = parse_number("splitBytes", options.get("splitBytes", str(SPLIT_BYTES)))
        self.isolation = _isolation(options.get("isolation", Isolation.READ_UNCOMMITTED.value))
        self.as_stored = _as_stored(options.get("order", "checked"))

    def partitions(self) -> list[InputPartition]:
        """Return the tasks as Spark's input partitions."""
        return [*self.tasks()]

    def tasks(self) -> list[Task]:
        """Plan the tasks for all requested partitions.

        Raises
        ------
        UnknownTopicOrPartitionError, InvalidConfigurationError
            A topic, partition or data directory does not exist.
        """
        with Broker(self.paths, read_only=True) as broker:
            splits = (
                split
                for tp in self._partitions_of(broker)
                for split in self._splits(broker.log(tp.topic, tp.partition))
            )
            return plan_tasks(splits, self.split_bytes)

    def _partitions_of(self, broker: Broker) -> Iterator[TopicPartition]:
        assigned = self.assigned
        if assigned is None:
            topics = self.topics
            if topics is None:
                topics = [topic.name for topic in broker.topics()]
                if not topics:
                    raise InvalidConfigurationError(f"{', '.join(self.paths)}: no topic found")
            assigned = dict.fromkeys(topics, self.numbers)
        for topic, numbers in assigned.items():
            if numbers is None:
                yield from broker.partitions(topic)
            else:
                for number in numbers:
                    yield from broker.partitions(topic, number)

    def _splits(self, log: Log) -> Iterator[SegmentSplit]:
        end = log.high_watermark
        if self._is_committed:
            end = log.last_stable_offset
        end = min(end, self.end_offset.of(log))
        start = max(log.log_start_offset, self.start_offset.of(log))
        needs_transactions = self._is_committed or "aborted" in self.columns.names
        if start >= end:
            return iter(())
        return plan_splits(log, start, end, self.split_bytes, transactions=needs_transactions)

    @property
    def _is_committed(self) -> bool:
        return self.isolation is Isolation.READ_COMMITTED

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task as Arrow batches.

        Raises
        ------
        OffsetOutOfRangeError
            Retention removed records after planning.
        CorruptRecordError
            A batch is damaged. The message contains its file and position.
        """
        assert isinstance(partition, Task)
        for split in partition.splits:
            yield from self.read_split(split)

    def read_split(self, split: SegmentSplit) -> Iterator[pa.RecordBatch]:
        """Yield the records of a split as Arrow batches. Raises the same errors as `read`."""
        schema = to_arrow_schema(self.columns, timezone="UTC")
        topic, number = split.topic, split.partition
        parts: list[Stored] = []
        rows = size = 0
        for part in stored_batches(
            split, self.paths, committed=self._is_committed, as_stored=self.as_stored
        ):
            more, data = len(part.columns), len(part.columns.data)
            if parts and (rows + more > ARROW_ROWS or size + data > ARROW_BYTES):
                yield record_batch(schema, topic, number, parts)
                parts, rows, size = [], 0, 0
            parts.append(part)
            rows += more
            size += data
        if parts:
            yield record_batch(schema, topic, number, parts)


def parse_paths(options: Mapping[str, str]) -> list[str]:
    """Return the data directories to load. Spark passes a list as JSON."""
    several = options.get("paths")
    if several is None:
        return [parse_path(options)]
    paths = json.loads(several)
    if options.get("path"):
        raise InvalidConfigurationError("path and paths are both set: use load([DIR, DIR])")
    return [parse_path({"path": path}) for path in paths] or [parse_path({})]


def parse_path(options: Mapping[str, str]) -> str:
    """Return the single data directory of `load` or `save`."""
    path = options.get("path")
    if not path:
        raise InvalidConfigurationError("no data directory is given: use load(DATA_DIR)")
    # Workers may have a different working directory.
    return os.path.abspath(path.removeprefix("file://"))  # noqa: PTH100  # paths are strings here


def _offsets(options: Mapping[str, str], names: tuple[str, str], default: str) -> _Offsets:
    """Parse start or end offsets, for all partitions or by partition."""
    text = resolve_synonyms(options, *names)
    if text is None:
        return _Offsets(default, {})
    name = next(option for option in names if options.get(option) is not None)
    if not text.lstrip().startswith("{"):
        return _Offsets(text if text in _EDGES.values() else parse_number(name, text), {})
    form = '{"topic": {"0": 23, "1": -1}}'
    offsets: dict[tuple[str, int], int | str] = {}
    for topic, by_partition in parse_json(name, text, form).items():
        if not isinstance(by_partition, dict):
            raise InvalidConfigurationError(f"{name}: {text!r} is not of the form {form}")
        for number, offset in by_partition.items():
            if type(offset) is not int or offset < min(_EDGES):
                raise InvalidConfigurationError(f"{name}: {offset!r} is not an offset, -1 or -2")
            offsets[topic, parse_number(name, number)] = _EDGES.get(offset, offset)
    return _Offsets(default, offsets)


def _isolation(text: str) -> Isolation:
    known = (Isolation.READ_UNCOMMITTED.value, Isolation.READ_COMMITTED.value)
    if text not in known:
        raise InvalidConfigurationError(f"isolation: {text!r} is not one of {', '.join(known)}")
    return Isolation(text)


def _as_stored(text: str) -> bool:
    if text not in ("checked", "stored"):
        raise InvalidConfigurationError(f"order: {text!r} is not one of checked, stored")
    return text == "stored"


def _assigned(options: Mapping[str, str]) -> dict[str, list[int]] | None:
    text = options.get("assign")
    if text is None:
        return None
    if any(options.get(name) is not None for name in ("topic", "subscribe", "partitions")):
        raise InvalidConfigurationError(
            "assign cannot be combined with topic, subscribe or partitions"
        )
    form = '{"topic": [0, 1]}'
    assigned = {}
    for topic, numbers in parse_json("assign", text, form).items():
        if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
            raise InvalidConfigurationError(f"assign: {text!r} is not of the form {form}")
        assigned[topic] = numbers
    return assigned
