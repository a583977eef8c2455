"""The Spark data source `logstore`: topics of a data directory as Spark's Kafka source shows them.

`spark.read.format("logstore").load(DATA_DIR)` opens the directory read-only: recovery is computed,
no byte changes, no lock is taken, so that any number of tasks may read beside a live process. The
data directories of one broker are loaded together: `load([DIR, DIR])`.

Options to read
---------------
topic : names, comma-separated; all topics by default. `subscribe` is the same, as in Spark's Kafka
    source.
partitions : numbers, comma-separated, of each topic; all by default.
assign : instead of both, as with Spark's Kafka source: `{"users": [0, 2], "orders": [1]}`.
startOffset, endOffset : [start, end), clamped to what each partition holds; a number, `earliest`
    or `latest`. `startingOffsets` and `endingOffsets` are the same, as in Spark's Kafka source, and
    all take its JSON: `{"users": {"0": 23, "1": -1}}`, -2 earliest, -1 latest; a partition that is
    not named is read from its start, to its end. What is appended after the plan was made is not
    read.
columns : names of the schema, comma-separated. Others are not made, which Spark cannot ask for.
    Four more are there only if they are named: `aborted boolean`, whether the record's transaction
    was aborted, null while it is open; `deleteHorizonMs bigint`, when tombstones of the record's
    batch may go (KIP-534), null if no cleaning has said yet; `valueDigest bigint`, what Spark's
    `xxhash64(value)` gives, null for a null value; and `headersDigest bigint`, the same of the
    bytes of all headers as they are stored. Digests are made without handing the bytes to Spark.
isolation : `read_uncommitted` (default) or `read_committed`.
splitBytes : segments, and partitions, that follow one another are read by one task up to this many
    bytes together (default 32 MiB); a larger segment has a task of its own.
order : `checked` (default): a batch whose offsets do not rise is damage; or `stored`: rows come as
    they lie in the files, whatever their offsets, for whoever judges files.

Any other option is refused, as is a directory in which no topic lies.

Filters are not pushed down: a relation that Spark has loaded remembers them for later queries and
then answers wrongly. The options do the same, in the open. The options to write stand in
`sink`.
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
    json_of,
    names_of,
    number_of,
    one_of,
    refuse_unknown,
)
from logstore.spark.datasource.schema import KAFKA_SCHEMA, MORE_COLUMNS
from logstore.spark.datasource.splits import (
    SegmentSplit,
    Task,
    splits_of,
    stored_batches,
    tasks_of,
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
"""All there are to read."""

_EDGES = {-2: "earliest", -1: "latest"}
"""How Spark's Kafka source writes them as numbers."""

SPLIT_BYTES = 32 << 20
ARROW_ROWS = 65_536
ARROW_BYTES = 16 << 20
"""A batch for the JVM is closed at so many rows, or bytes of records, whichever comes first."""


class _Offsets(NamedTuple):
    """An offset, `earliest` or `latest`: of all partitions, and of those that have their own."""

    of_all: int | str
    by_partition: dict[tuple[str, int], int | str]

    def of(self, log: Log) -> int:
        """Return the offset in a log."""
        offset = self.by_partition.get(tuple(log.topic_partition), self.of_all)
        if isinstance(offset, int):
            return offset
        return log.log_start_offset if offset == "earliest" else log.high_watermark


class LogstoreDataSource(DataSource):
    """Partition logs as rows; see the head of this module."""

    @classmethod
    def name(cls) -> str:
        """Return what `format(...)` takes."""
        return "logstore"

    def schema(self) -> StructType:
        """Return the columns asked for; by default those of Spark's Kafka source."""
        asked = names_of(self.options.get("columns"))
        if asked is None:
            return KAFKA_SCHEMA
        known = {field.name: field for field in (*KAFKA_SCHEMA, *MORE_COLUMNS)}
        if not asked or len(set(asked)) < len(asked) or not set(asked) <= known.keys():
            raise InvalidConfigurationError(
                f"columns: {', '.join(asked)} is no choice from {', '.join(known)}"
            )
        return StructType([known[name] for name in asked])

    def reader(self, schema: StructType) -> LogstoreReader:
        """Return the reader.

        Raises
        ------
        InvalidConfigurationError
            Somebody gave a schema of his own.
        """
        refuse_unknown(self.options, OPTIONS)
        columns = self.schema()
        if [(column.name, column.dataType) for column in schema] != [
            (column.name, column.dataType) for column in columns
        ]:
            raise InvalidConfigurationError(
                "the schema is that of the data source; the option columns chooses from it"
            )
        return LogstoreReader(paths_of(self.options), self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of one job."""
        from logstore.spark.datasource.sink import LogstoreWriter

        return LogstoreWriter(path_of(self.options), self.options, schema, overwrite=overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader that refuses to stream.

        Spark reports an error that is raised here with two more and three tracebacks.
        """
        return _NoStream()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Refuse to stream.

        Raises
        ------
        InvalidConfigurationError
        """
        raise _no_stream("DataFrame.write")


class _NoStream(DataSourceStreamReader):
    """A reader of streams that refuses the first thing a query asks for."""

    def initialOffset(self) -> dict[str, int]:
        raise _no_stream("spark.read")

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # Spark takes both forms
        raise _no_stream("spark.read")

    def partitions(self, *_: object) -> list[InputPartition]:
        raise _no_stream("spark.read")

    def read(self, *_: object) -> Iterator[pa.RecordBatch]:
        raise _no_stream("spark.read")


def _no_stream(instead: str) -> InvalidConfigurationError:
    """Return the refusal to stream, of which Spark then reports no traceback."""
    # The process, which is this query's alone, ends with the error.
    os.environ["SPARK_HIDE_TRACEBACK"] = "1"
    return InvalidConfigurationError(
        f"the data source 'logstore' does not stream: use {instead}.format('logstore'), or"
        " 'logstore serve' and Spark's own format 'kafka'"
    )


class LogstoreReader(DataSourceReader):
    """Plans the splits on the driver's side, and reads one at a time in the workers."""

    def __init__(self, paths: list[str], options: Mapping[str, str], schema: StructType) -> None:
        self.paths = paths
        self.columns = schema
        self.topics = names_of(one_of(options, "topic", "subscribe"))
        numbers = names_of(options.get("partitions"))
        self.numbers = None if numbers is None else [number_of("partitions", n) for n in numbers]
        self.assigned = _assigned(options)
        self.start_offset = _offsets(options, ("startOffset", "startingOffsets"), "earliest")
        self.end_offset = _offsets(options, ("endOffset", "endingOffsets"), "latest")
        self.split_bytes = number_of("splitBytes", options.get("splitBytes", str(SPLIT_BYTES)))
        self.isolation = _isolation(options.get("isolation", Isolation.READ_UNCOMMITTED.value))
        self.as_stored = _as_stored(options.get("order", "checked"))

    def partitions(self) -> list[InputPartition]:
        """Return the tasks, as Spark names them."""
        return [*self.tasks()]

    def tasks(self) -> list[Task]:
        """Return the splits of all partitions asked for.

        Raises
        ------
        UnknownTopicOrPartitionError, InvalidConfigurationError
            There is no such topic, partition or data directory.
        """
        with Broker(self.paths, read_only=True) as broker:
            splits = (
                split
                for tp in self._partitions_of(broker)
                for split in self._splits(broker.log(tp.topic, tp.partition))
            )
            return tasks_of(splits, self.split_bytes)

    def _partitions_of(self, broker: Broker) -> Iterator[TopicPartition]:
        assigned = self.assigned
        if assigned is None:
            topics = self.topics
            if topics is None:
                topics = [topic.name for topic in broker.topics()]
                if not topics:
                    raise InvalidConfigurationError(f"{', '.join(self.paths)}: no topic lies there")
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
        return splits_of(log, start, end, self.split_bytes, transactions=needs_transactions)

    @property
    def _is_committed(self) -> bool:
        return self.isolation is Isolation.READ_COMMITTED

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task's splits as Arrow batches.

        Raises
        ------
        OffsetOutOfRangeError
            Retention took records away since the plan was made.
        CorruptRecordError
            A batch is damaged; names file and position.
        """
        assert isinstance(partition, Task)
        for split in partition.splits:
            yield from self.read_split(split)

    def read_split(self, split: SegmentSplit) -> Iterator[pa.RecordBatch]:
        """Yield the records of one split, as `read` does."""
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


def paths_of(options: Mapping[str, str]) -> list[str]:
    """Return the data directories that `load` was called with: Spark gives several as JSON."""
    several = options.get("paths")
    if several is None:
        return [path_of(options)]
    paths = json.loads(several)
    if options.get("path"):
        raise InvalidConfigurationError("path and paths were given: load([DIR, DIR]) says all")
    return [path_of({"path": path}) for path in paths] or [path_of({})]


def path_of(options: Mapping[str, str]) -> str:
    """Return the one data directory that `load` or `save` was called with."""
    path = options.get("path")
    if not path:
        raise InvalidConfigurationError("no data directory was given: load(DATA_DIR)")
    # Absolute, as the workers need not share the driver's working directory.
    return os.path.abspath(path.removeprefix("file://"))  # noqa: PTH100  # paths are strings here


def _offsets(options: Mapping[str, str], names: tuple[str, str], default: str) -> _Offsets:
    """Return where to begin or to end: for all partitions, or by partition."""
    text = one_of(options, *names)
    if text is None:
        return _Offsets(default, {})
    name = next(option for option in names if options.get(option) is not None)
    if not text.lstrip().startswith("{"):
        return _Offsets(text if text in _EDGES.values() else number_of(name, text), {})
    form = '{"topic": {"0": 23, "1": -1}}'
    found: dict[tuple[str, int], int | str] = {}
    for topic, by_partition in json_of(name, text, form).items():
        if not isinstance(by_partition, dict):
            raise InvalidConfigurationError(f"{name}: {text!r} is not of the form {form}")
        for number, offset in by_partition.items():
            if type(offset) is not int or offset < min(_EDGES):
                raise InvalidConfigurationError(f"{name}: {offset!r} is no offset, -1 or -2")
            found[topic, number_of(name, number)] = _EDGES.get(offset, offset)
    return _Offsets(default, found)


def _isolation(text: str) -> Isolation:
    known = (Isolation.READ_UNCOMMITTED.value, Isolation.READ_COMMITTED.value)
    if text not in known:
        raise InvalidConfigurationError(f"isolation: {text!r} is none of {', '.join(known)}")
    return Isolation(text)


def _as_stored(text: str) -> bool:
    if text not in ("checked", "stored"):
        raise InvalidConfigurationError(f"order: {text!r} is none of checked, stored")
    return text == "stored"


def _assigned(options: Mapping[str, str]) -> dict[str, list[int]] | None:
    text = options.get("assign")
    if text is None:
        return None
    if any(options.get(name) is not None for name in ("topic", "subscribe", "partitions")):
        raise InvalidConfigurationError("assign stands instead of topic, subscribe and partitions")
    form = '{"topic": [0, 1]}'
    assigned = {}
    for topic, numbers in json_of("assign", text, form).items():
        if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
            raise InvalidConfigurationError(f"assign: {text!r} is not of the form {form}")
        assigned[topic] = numbers
    return assigned
