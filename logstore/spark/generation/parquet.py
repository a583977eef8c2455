"""Write the rows of a topic atomically as a directory of Parquet files."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from logstore.errors import InvalidConfigurationError
from logstore.spark.datasource.schema import KAFKA_SCHEMA
from logstore.spark.datasource.source import LogstoreDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import InputPartition

    from logstore.spark.datasource.source import LogstoreReader

_REPEATED = ["key", "topic", "partition", "timestampType", "headers.list.element.key"]
"""Columns with few distinct values, for dictionary encoding."""

SUCCESS = "_SUCCESS"
"""File that marks a complete directory in Spark."""


class ParquetTarget:
    """A Parquet directory to write.

    Parameters
    ----------
    path : str
        Directory on a file system that all tasks share.
    overwrite : bool
        Whether to replace an existing directory, which must only contain Parquet files.

    Raises
    ------
    InvalidConfigurationError
        The path exists and must not be replaced.
    """

    def __init__(self, path: str, *, overwrite: bool) -> None:
        self._target = Path(path.removeprefix("file://")).absolute()
        for above in self._target.parents:
            if above.exists() and not above.is_dir():
                raise InvalidConfigurationError(
                    f"cannot write Parquet to {self._target}: {above} is not a directory"
                )
        if not self._target.exists():
            return
        if not overwrite:
            raise InvalidConfigurationError(f"{self._target} already exists; overwrite replaces it")
        self._refuse_foreign()

    def is_within(self, directory: str) -> bool:
        """Return whether the target is `directory` or is inside it."""
        return self._target.resolve().is_relative_to(Path(directory).resolve())

    def write(self, spark: SparkSession, data_dir: str, topic: str) -> None:
        """Write the rows of a topic, sorted by partition and offset within each file.

        Notes
        -----
        The tasks write Parquet files themselves, because the JVM's writer is several times slower.
        """
        reader = LogstoreDataSource({"path": data_dir, "topic": topic}).reader(KAFKA_SCHEMA)
        splits = reader.partitions()
        self._target.parent.mkdir(parents=True, exist_ok=True)
        partial_dir = self._hidden_sibling("partial")
        partial_dir.mkdir()
        try:
            numbers = spark.range(0, len(splits), 1, len(splits))
            numbers.mapInArrow(
                partial(_write_splits, reader, splits, str(partial_dir)), "file string"
            ).collect()
            for attempt in partial_dir.glob(".part-*"):  # leftovers of killed tasks
                attempt.unlink()
            (partial_dir / SUCCESS).touch()
            self._publish(partial_dir)
        except BaseException:
            shutil.rmtree(partial_dir, ignore_errors=True)
            raise

    def _publish(self, partial_dir: Path) -> None:
        if not self._target.exists():
            partial_dir.rename(self._target)
            return
        self._refuse_foreign()
        old = self._hidden_sibling("old")
        self._target.rename(old)
        partial_dir.rename(self._target)
        shutil.rmtree(old, ignore_errors=True)

    def _hidden_sibling(self, purpose: str) -> Path:
        """Return a path next to the target with a name that Spark ignores."""
        return self._target.parent / f".{self._target.name}.{purpose}.{uuid.uuid4().hex}"

    def _refuse_foreign(self) -> None:
        if not self._target.is_dir():
            raise InvalidConfigurationError(f"{self._target} is not a directory")
        for path in self._target.iterdir():
            if path.name != SUCCESS and not path.name.endswith((".parquet", ".crc")):
                raise InvalidConfigurationError(
                    f"cannot replace {self._target}: {path.name} in it is not a Parquet file"
                )


def _write_splits(
    reader: LogstoreReader,
    splits: list[InputPartition],
    directory: str,
    numbers: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    schema = to_arrow_schema(KAFKA_SCHEMA, timezone="UTC")
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            name = f"part-{number:05d}.parquet"
            # Each task attempt writes its own file.
            attempt = f"{directory}/.{name}.{uuid.uuid4().hex}"
            with pq.ParquetWriter(
                attempt, schema, compression="zstd", use_dictionary=_REPEATED
            ) as writer:
                for rows in reader.read(splits[number]):
                    writer.write_batch(rows)
            Path(attempt).rename(f"{directory}/{name}")
            yield pa.RecordBatch.from_pydict({"file": [name]})
