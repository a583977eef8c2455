"""A topic's rows as a directory of Parquet files, which appears as a whole."""

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
"""Columns of few different values, which alone are worth a dictionary."""

SUCCESS = "_SUCCESS"
"""The file that Spark leaves in a directory that it has written to the end."""


class ParquetTarget:
    """A directory to be written.

    Parameters
    ----------
    path : str
        Of the directory, on a file system that all tasks see.
    overwrite : bool
        Replace one that holds Parquet files and nothing else.

    Raises
    ------
    InvalidConfigurationError
        There is something that must not be replaced.
    """

    def __init__(self, path: str, *, overwrite: bool) -> None:
        self._target = Path(path.removeprefix("file://")).absolute()
        for above in self._target.parents:
            if above.exists() and not above.is_dir():
                raise InvalidConfigurationError(f"{above} is no directory: Parquet cannot go there")
        if not self._target.exists():
            return
        if not overwrite:
            raise InvalidConfigurationError(f"{self._target} exists already; overwrite replaces it")
        self._refuse_foreign()

    def lies_in(self, directory: str) -> bool:
        """Tell whether it is a directory, or below it."""
        return self._target.resolve().is_relative_to(Path(directory).resolve())

    def write(self, spark: SparkSession, data_dir: str, topic: str) -> None:
        """Write the rows of a topic, in the order of partition and offset within each file.

        Notes
        -----
        The tasks read splits as the data source does, and write them without passing through the
        JVM, whose writer takes several times as long.
        """
        reader = LogstoreDataSource({"path": data_dir, "topic": topic}).reader(KAFKA_SCHEMA)
        splits = reader.partitions()
        self._target.parent.mkdir(parents=True, exist_ok=True)
        making = self._beside("making")
        making.mkdir()
        try:
            numbers = spark.range(0, len(splits), 1, len(splits))
            numbers.mapInArrow(
                partial(_write_splits, reader, splits, str(making)), "file string"
            ).collect()
            for attempt in making.glob(".part-*"):  # of tasks that were killed
                attempt.unlink()
            (making / SUCCESS).touch()
            self._put_in_place(making)
        except BaseException:
            shutil.rmtree(making, ignore_errors=True)
            raise

    def _put_in_place(self, making: Path) -> None:
        if not self._target.exists():
            making.rename(self._target)
            return
        self._refuse_foreign()
        old = self._beside("old")
        self._target.rename(old)
        making.rename(self._target)
        shutil.rmtree(old, ignore_errors=True)

    def _beside(self, what: str) -> Path:
        """Return a name that Spark takes for no data, in the directory of the target."""
        return self._target.parent / f".{self._target.name}.{what}.{uuid.uuid4().hex}"

    def _refuse_foreign(self) -> None:
        if not self._target.is_dir():
            raise InvalidConfigurationError(f"{self._target} is no directory")
        for path in self._target.iterdir():
            if path.name != SUCCESS and not path.name.endswith((".parquet", ".crc")):
                raise InvalidConfigurationError(
                    f"{self._target} holds {path.name}, which is no Parquet: it is not replaced"
                )


def _write_splits(
    reader: LogstoreReader,
    splits: list[InputPartition],
    making: str,
    numbers: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    schema = to_arrow_schema(KAFKA_SCHEMA, timezone="UTC")
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            name = f"part-{number:05d}.parquet"
            # A second attempt of the task must not write into the file of the first.
            attempt = f"{making}/.{name}.{uuid.uuid4().hex}"
            with pq.ParquetWriter(
                attempt, schema, compression="zstd", use_dictionary=_REPEATED
            ) as writer:
                for rows in reader.read(splits[number]):
                    writer.write_batch(rows)
            Path(attempt).rename(f"{making}/{name}")
            yield pa.RecordBatch.from_pydict({"file": [name]})
