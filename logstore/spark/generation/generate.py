"""A workload as a Spark job: a topic in a data directory, and the same rows as Parquet.

Tasks make blocks in any order (`parcels`); one task a partition then writes its
files from the parcels of all blocks, in order (`log_files`). What moves between
them are sealed batches, a few large rows. The topic is committed as a whole
(`commit`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from logstore.errors import InvalidConfigurationError
from logstore.manager.topics.store import Topic
from logstore.names import validate_topic_name
from logstore.runtime import Runtime, SystemClock, random_source
from logstore.spark.datasource.commit import WriteJob, WrittenPartition, refuse_in_use
from logstore.spark.generation.log_files import MadePartition, write_partitions
from logstore.spark.generation.parquet import ParquetTarget
from logstore.spark.stages import timed
from logstore.workload.parcels import Parcel, parcels_of
from logstore.workload.spec import Spec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPLITS_PER_CORE = 4
"""So that a core which is done early finds more to do."""

ARROW_BYTES = 32 << 20
"""Bytes that the JVM hands a writing task at a time."""

_PARCELS = "partition int, block bigint, part int, entries binary, batches binary"
_MADE = (
    "partition int, folder string, end_offset bigint, records bigint, batches bigint, "
    "markers bigint, bytes bigint, began_ms bigint"
)


@dataclass(frozen=True, slots=True)
class Generated:
    """The topic that was made.

    Attributes
    ----------
    topic : str
    partitions, records, batches, markers : int
        How many; markers are control batches, not counted among the records and batches.
    bytes : int
        Of the `.log` files.
    seconds : dict
        Of each stage, in order: `records` are made and sealed, `logs` are written and committed,
        `parquet` is read back from them.
    """

    topic: str
    partitions: int
    records: int
    batches: int
    markers: int
    bytes: int
    seconds: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        """Return the object of the command's JSON."""
        return asdict(self)


def generate(
    spark: SparkSession,
    spec: Spec,
    data_dir: str,
    *,
    parquet: str | None = None,
    splits: int | None = None,
    configs: Mapping[str, str] = {},
    overwrite: bool = False,
) -> Generated:
    """Make a workload's topic, and its rows as Parquet.

    Parameters
    ----------
    data_dir : str
        Gets the topic, all or nothing; made if it does not exist.
    parquet : str, optional
        Directory that gets the rows as the source `logstore` shows them, aborted ones included;
        all or nothing, after the topic.
    splits : int, optional
        Tasks that make records. The bytes depend on it as little as on the number of cores.
    configs : mapping
        Further configurations of the topic, laid over the workload's.
    overwrite : bool
        Put topic and Parquet in the place of what is there; else that is refused.

    Raises
    ------
    InvalidConfigurationError, InvalidTopicError
        The configurations, the name or the Parquet directory are no good; nothing was begun.
    TopicAlreadyExistsError, KafkaStorageError
        The topic exists, or another process holds the data directory; nothing was begun, or,
        if this came about meanwhile, nothing stays.
    PySparkException
        A task failed; nothing stays, but for the topic where Parquet failed.

    Notes
    -----
    A task holds one block, or one parcel and a segment's state, whatever the records.
    """
    spec = spec.with_configs(configs)
    validate_topic_name(spec.topic)
    data_dir = str(Path(data_dir.removeprefix("file://")).absolute())
    target = None if parquet is None else ParquetTarget(parquet, overwrite=overwrite)
    if target is not None and target.lies_in(data_dir):
        raise InvalidConfigurationError(
            f"{parquet} lies in the data directory {data_dir}: Parquet goes elsewhere"
        )
    refuse_in_use(data_dir)
    began_ms = SystemClock().now_ms()
    job = WriteJob.begin(data_dir, [spec.topic], overwrite=overwrite)
    try:
        made = _made(spark, _parcels(spark, spec, splits), spec, job)
        topic = Topic(spec.topic, tuple(range(spec.partitions)), spec.topic_configs)
        written = [each.written for each, _ in made]
        # The topic's id is of the seed and the name, so that the files are those of every run.
        rng = random_source(spec.seed + int.from_bytes(spec.topic.encode()))
        job.commit(Runtime(rng=rng), [topic], written, producer_ids=spec.producers.with_id)
    except BaseException:
        job.abort()
        raise
    wrote_ms = min(moment for _, moment in made)
    seconds = {
        "records": (wrote_ms - began_ms) / 1000,
        "logs": (SystemClock().now_ms() - wrote_ms) / 1000,
    }
    if target is not None:
        with timed(seconds, "parquet"):
            target.write(spark, data_dir, spec.topic)
    return _generated(spec, [each for each, _ in made], seconds)


def parquet_dir(data_dir: str, topic: str) -> str:
    """Return where a topic's rows go as Parquet unless somebody says otherwise."""
    return f"{Path(data_dir).resolve()}.parquet/{topic}"


def _generated(spec: Spec, made: list[MadePartition], seconds: dict[str, float]) -> Generated:
    return Generated(
        spec.topic,
        spec.partitions,
        sum(part.records for part in made),
        sum(part.batches for part in made),
        sum(part.markers for part in made),
        sum(part.bytes for part in made),
        seconds,
    )


def _parcels(spark: SparkSession, spec: Spec, splits: int | None) -> DataFrame:
    if splits is None:
        splits = min(spec.blocks, SPLITS_PER_CORE * spark.sparkContext.defaultParallelism)
    blocks = spark.range(0, spec.blocks, 1, splits)
    parcels = blocks.mapInArrow(partial(_parcel_rows, spec), _PARCELS)
    return parcels.repartitionById(spec.partitions, "partition").sortWithinPartitions(
        "partition", "block", "part"
    )


def _parcel_rows(spec: Spec, blocks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in blocks:
        for number in batch.column(0).to_pylist():
            for parcel in parcels_of(spec, number):
                yield pa.RecordBatch.from_pydict(
                    {
                        "partition": pa.array([parcel.partition], pa.int32()),
                        "block": pa.array([parcel.block], pa.int64()),
                        "part": pa.array([parcel.part], pa.int32()),
                        "entries": pa.array([parcel.entries], pa.binary()),
                        "batches": pa.array([parcel.batches], pa.binary()),
                    }
                )


def _made(
    spark: SparkSession, parcels: DataFrame, spec: Spec, job: WriteJob
) -> list[tuple[MadePartition, int]]:
    """Write the partitions; return what they are and when each was begun."""
    with _setting(spark, "spark.sql.execution.arrow.maxBytesPerBatch", str(ARROW_BYTES)):
        rows = parcels.mapInArrow(partial(_made_rows, spec, job), _MADE).collect()
    return [
        (
            MadePartition(
                WrittenPartition(spec.topic, row.partition, row.folder, row.end_offset),
                row.records,
                row.batches,
                row.markers,
                row.bytes,
            ),
            row.began_ms,
        )
        for row in rows
    ]


def _made_rows(
    spec: Spec, job: WriteJob, parcels: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    began_ms = SystemClock().now_ms()
    rows = [
        {
            "partition": partition.written.partition,
            "folder": partition.written.folder,
            "end_offset": partition.written.end_offset,
            "records": partition.records,
            "batches": partition.batches,
            "markers": partition.markers,
            "bytes": partition.bytes,
            "began_ms": began_ms,
        }
        for partition in write_partitions(spec, _received(parcels), job.task_dir())
    ]
    schema = pa.schema(
        [("partition", pa.int32()), ("folder", pa.string())]
        + [
            (name, pa.int64())
            for name in ("end_offset", "records", "batches", "markers", "bytes", "began_ms")
        ]
    )
    yield pa.RecordBatch.from_pylist(rows, schema)


def _received(rows: Iterable[pa.RecordBatch]) -> Iterator[Parcel]:
    for batch in rows:
        for row in range(batch.num_rows):
            yield Parcel(*(column[row].as_py() for column in batch.columns))


@contextmanager
def _setting(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    before = spark.conf.get(key, None)
    spark.conf.set(key, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, before)
