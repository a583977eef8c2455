"""Result files: the series as CSV, and as Parquet if pyarrow is installed."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from logstore.simulate.outcome import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from logstore.simulate.outcome import Run
    from logstore.simulate.search import Found
    from logstore.simulate.spread import Spread
    from logstore.simulate.sweep import Sweep


REPORT = "report.html"
SWEEP = "sweep.csv"
SEARCH = "search.csv"
SEEDS = "seeds.csv"
SPREAD = "spread.csv"


def save(
    directory: Path,
    run: Run,
    *,
    sweep: Sweep | None = None,
    spread: Spread | None = None,
    found: Found | None = None,
    report: str | None = None,
) -> list[Path]:
    """Write the results of a run and return the paths of the files.

    A sweep, several seeds and a search add their tables.

    Results of an earlier run are only replaced once all files are written, so an error such as a
    full disk leaves the directory unchanged. Unrelated files are retained.

    Raises
    ------
    OSError
        The results cannot be written.
    """
    draft = directory / ".simulate-draft"
    draft.mkdir(exist_ok=True)
    try:
        drafts = [*_write_all(run, sweep, spread, found, draft)]
        if report is not None:
            (draft / REPORT).write_text(report, encoding="utf-8")
            drafts.append(draft / REPORT)
        written = [path.replace(directory / path.name) for path in drafts]
    except OSError as error:  # the error lacks the path if the disk is full
        reason = f"cannot write the results: {error.strerror}"
        raise OSError(error.errno, reason, str(directory)) from error
    finally:
        for path in draft.iterdir():
            path.unlink()
        draft.rmdir()
    for stale in {*_NAMES} - {path.name for path in written}:
        (directory / stale).unlink(missing_ok=True)
    return written


_SERIES = ("partitions", "segments", "passes", "consumers")
_NAMES = (
    REPORT,
    SWEEP,
    SEARCH,
    SEEDS,
    SPREAD,
    *(f"{name}.{kind}" for name in _SERIES for kind in ("csv", "parquet")),
)
"""Names of all files that a run may write."""


def _write_all(
    run: Run, sweep: Sweep | None, spread: Spread | None, found: Found | None, directory: Path
) -> Iterator[Path]:
    """Write each series that has rows, and yield the paths."""
    for name in _SERIES:
        table: Table = getattr(run, name)
        if len(table):
            yield _write_csv(table, directory / f"{name}.csv")
            if can_write_parquet():
                yield _write_parquet(table, directory / f"{name}.parquet")
    if sweep is not None:
        front = sweep.front()
        rows = Table((*sweep.variants[0].settings, *sweep.variants[0].costs, "not_beaten"))
        for each in sweep.variants:
            rows.add(**each.settings, **each.costs, not_beaten=each in front)
        yield _write_csv(rows, directory / SWEEP)
    if spread is not None:
        rows = Table(("seed", *spread.runs[0].costs))
        for one in spread.runs:
            rows.add(seed=one.seed, **one.costs)
        yield _write_csv(rows, directory / SEEDS)
        yield _write_csv(_bands(spread), directory / SPREAD)
    if found is not None:
        rows = Table((*found.best.settings, "seed", *next(iter(found.best.runs.values()))))
        for candidate in found.candidates:
            held = dict(zip(candidate.held_seeds, candidate.held, strict=True))
            for seed, costs in (candidate.runs | held).items():
                rows.add(**candidate.settings, seed=seed, **costs)
        yield _write_csv(rows, directory / SEARCH)


def _bands(spread: Spread) -> Table:
    """Return the percentiles of each combined curve, one row per time."""
    rows = Table(("time_ms", "column", "p5", "p50", "p95"))
    times = spread.time_ms.tolist()
    for topic, column in spread.runs[0].curves:
        if topic is None:
            band = spread.curve(column)
            for time_ms, *values in zip(times, *(each.tolist() for each in band), strict=True):
                low, middle, high = values
                rows.add(time_ms=time_ms, column=column, p5=low, p50=middle, p95=high)
    return rows


def can_write_parquet() -> bool:
    """Return whether pyarrow is installed (the `export` extra)."""
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
