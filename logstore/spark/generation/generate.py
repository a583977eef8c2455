"""Generate a workload as a Spark job, to a topic and to Parquet.

Tasks generate blocks in any order (`parcels`). Then one task per partition writes the files from
the parcels of all blocks in order (`log_files`). The shuffle in between moves sealed batches in a
few large rows. The topic is committed atomically (`commit`).
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
from logstore.runtime import Runtime, SystemClock, random_source
from logstore.spark.datasource.commit import WriteJob, WrittenPartition, refuse_in_use
from logstore.spark.generation.log_files import GeneratedPartition, write_partitions
from logstore.spark.generation.parquet import ParquetTarget
from logstore.spark.stages import timed
from logstore.workload.parcels import Parcel, build_parcels
from logstore.workload.spec import Spec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPLITS_PER_CORE = 4
"""More than one, so that cores that finish early get more work."""

ARROW_BYTES = 32 << 20
"""Number of bytes that the JVM passes to a writing task at once."""

_PARCELS = "partition int, block bigint, part int, entries binary, batches binary"
_PARTITIONS = (
    "partition int, folder string, end_offset bigint, records bigint, batches bigint, "
    "markers bigint, bytes bigint, began_ms bigint"
)


@dataclass(frozen=True, slots=True)
class Generated:
    """A generated topic.

    Attributes
    ----------
    topic : str
        Name of the topic.
    partitions, records, batches, markers : int
        Numbers of each. Markers are control batches, which `records` and `batches` exclude.
    bytes : int
        Size of the `.log` files.
    seconds : dict
        Duration of each stage: `records` (generating sealed batches), `logs` (writing and
        committing), and `parquet` (reading the logs and writing Parquet).
    """

    topic: str
    partitions: int
    records: int
    batches: int
    markers: int
    bytes: int
    seconds: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        """Return the JSON that the command prints."""
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
    """Generate the topic of a workload, and its rows as Parquet.

    Parameters
    ----------
    data_dir : str
        Data directory, created if missing. The topic is written atomically.
    parquet : str, optional
        Directory for the rows, with the schema of the `logstore` data source and including aborted
        records. It is written atomically after the topic.
    splits : int, optional
        Number of tasks that generate records. Does not affect the output.
    configs : mapping
        Additional topic configs, which override the workload's.
    overwrite : bool
        Whether to replace an existing topic and its Parquet files.

    Raises
    ------
    InvalidConfigurationError
        The configs or the Parquet directory are invalid. Nothing was written.
    TopicAlreadyExistsError, KafkaStorageError
        The topic exists, or another process has locked the data directory. Nothing was written, or
        everything was removed.
    PySparkException
        A task failed. Everything was removed, except the topic if writing Parquet failed.

    Notes
    -----
    A task requires memory for one block, or for one parcel and the state of a segment.
    """
    spec = spec.with_configs(configs)
    data_dir = str(Path(data_dir.removeprefix("file://")).absolute())
    target = None if parquet is None else ParquetTarget(parquet, overwrite=overwrite)
    if target is not None and target.is_within(data_dir):
        raise InvalidConfigurationError(
            f"{parquet} is in the data directory {data_dir}: choose another directory for Parquet"
        )
    refuse_in_use(data_dir)
    began_ms = SystemClock().now_ms()
    job = WriteJob.begin(data_dir, [spec.topic], overwrite=overwrite)
    try:
        results = _write_logs(spark, _parcels(spark, spec, splits), spec, job)
        topic = Topic(spec.topic, tuple(range(spec.partitions)), spec.topic_configs)
        written = [each.written for each, _ in results]
        # The topic id only depends on the seed and the name, so that every run writes the same
        # files.
        rng = random_source(spec.seed + int.from_bytes(spec.topic.encode()))
        job.commit(Runtime(rng=rng), [topic], written, producer_ids=spec.producers.with_id)
    except BaseException:
        job.abort()
        raise
    wrote_ms = min(start_ms for _, start_ms in results)
    seconds = {
        "records": (wrote_ms - began_ms) / 1000,
        "logs": (SystemClock().now_ms() - wrote_ms) / 1000,
    }
    if target is not None:
        with timed(seconds, "parquet"):
            target.write(spark, data_dir, spec.topic)
    partitions = [each for each, _ in results]
    return Generated(
        spec.topic,
        spec.partitions,
        sum(part.records for part in partitions),
        sum(part.batches for part in partitions),
        sum(part.markers for part in partitions),
        sum(part.bytes for part in partitions),
        seconds,
    )


def parquet_dir(data_dir: str, topic: str) -> str:
    """Return the default Parquet directory of a topic."""
    return f"{Path(data_dir).resolve()}.parquet/{topic}"


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
            for parcel in build_parcels(spec, number):
                yield pa.RecordBatch.from_pydict(
                    {
                        "partition": pa.array([parcel.partition], pa.int32()),
                        "block": pa.array([parcel.block], pa.int64()),
                        "part": pa.array([parcel.part], pa.int32()),
                        "entries": pa.array([parcel.entries], pa.binary()),
                        "batches": pa.array([parcel.batches], pa.binary()),
                    }
                )


def _write_logs(
    spark: SparkSession, parcels: DataFrame, spec: Spec, job: WriteJob
) -> list[tuple[GeneratedPartition, int]]:
    """Write the partitions. Return each with the start time of its task in milliseconds."""
    with _setting(spark, "spark.sql.execution.arrow.maxBytesPerBatch", str(ARROW_BYTES)):
        rows = parcels.mapInArrow(partial(_partition_rows, spec, job), _PARTITIONS).collect()
    return [
        (
            GeneratedPartition(
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


def _partition_rows(
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
        for partition in write_partitions(spec, _parcels_from(parcels), job.task_dir())
    ]
    schema = pa.schema(
        [("partition", pa.int32()), ("folder", pa.string())]
        + [
            (name, pa.int64())
            for name in ("end_offset", "records", "batches", "markers", "bytes", "began_ms")
        ]
    )
    yield pa.RecordBatch.from_pylist(rows, schema)


def _parcels_from(rows: Iterable[pa.RecordBatch]) -> Iterator[Parcel]:
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
