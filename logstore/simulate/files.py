"""Series in files: CSV for everybody, Parquet where pyarrow is installed."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from logstore.simulate.outcome import Run, Table


def write_series(run: Run, directory: Path) -> Iterator[Path]:
    """Write each series that has rows; yield the files."""
    for name, table in (
        ("partitions", run.partitions),
        ("segments", run.segments),
        ("passes", run.passes),
        ("consumers", run.consumers),
    ):
        if len(table):
            yield _write_csv(table, directory / f"{name}.csv")
            if can_write_parquet():
                yield _write_parquet(table, directory / f"{name}.parquet")


def can_write_parquet() -> bool:
    """Tell whether pyarrow is installed (the extra `export`)."""
    return importlib.util.find_spec("pyarrow") is not None


def _write_csv(table: Table, path: Path) -> Path:
    columns = [column.tolist() for column in table.arrays().values()]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table.columns)
        writer.writerows(zip(*columns, strict=True))
    return path


def _write_parquet(table: Table, path: Path) -> Path:
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table(table.arrays()), path, compression="zstd")
    return path
