"""Replay files: times, record counts and keys of recorded arrivals."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from logstore.config.suggest import and_nearest
from logstore.config.units import INTEGER, parse_duration
from logstore.errors import InvalidConfigurationError
from logstore.workload.recorded import Recorded
from logstore.workload.tables import read_table, read_toml, setting, span

TIMES = ("time", "timestamp")
"""Names of the time column, in a replay file and in an exported topic."""

NULL = r"\N"
"""Null in the CSV of an exported topic."""

EVENTS_MAX = 1 << 28


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A replay file and its options."""

    file: str = setting("", "`.csv`, `.toml` or `.parquet` file, next to the scenario.")
    loop: bool = setting(False, "Repeat until the scenario ends.")
    period: str = span("0", "Time between the starts of two repetitions; 0: length of the file.")
    stretch: float = setting(1.0, "Factor by which all times are multiplied.", 1e-6, 1e6)

    def read(self) -> Recorded:
        """Read and check the file.

        Raises
        ------
        InvalidConfigurationError
            The file cannot be read, or a line is invalid. The message names the line.
        """
        path = Path(self.file)
        try:
            status = path.stat()
            at_ms, key, tombstone = _read(path, (status.st_mtime_ns, status.st_size))
        except OSError as error:
            raise InvalidConfigurationError(
                f"the replay file {self.file!r} cannot be read: {error.strerror}"
            ) from error
        length_ms = int(at_ms.max()) + max(1, round(int(at_ms.max()) / len(at_ms)))
        period_ms = parse_duration(self.period) or length_ms
        if self.loop and period_ms <= at_ms.max():
            raise InvalidConfigurationError(
                f"replay.period {self.period} is shorter than {self.file!r}, which ends "
                f"{at_ms.max()} ms after its start"
            )
        arrived = np.maximum.accumulate(at_ms)  # a row whose time decreases is late
        return Recorded(
            at_ms=(arrived * self.stretch).astype(np.int64),
            lag_ms=arrived - at_ms,
            key=key,
            tombstone=tombstone,
            period_ms=max(1, int(period_ms * self.stretch)) if self.loop else 0,
        )


class _Row(NamedTuple):
    place: str
    time: object
    records: object
    key: object
    is_delete: bool


@lru_cache(maxsize=4)
def _read(path: Path, version: tuple[int, int]) -> tuple[Any, Any, Any]:
    """Return times after the start, key numbers or None, and deletes or None."""
    readers = {".csv": _csv_rows, ".toml": _toml_rows, ".parquet": _parquet_rows}
    if path.suffix not in readers:
        near = and_nearest(path.suffix, list(readers))
        raise InvalidConfigurationError(
            f"unknown format of replay file {str(path)!r}: expected {', '.join(readers)}{near}"
        )
    names: dict[object, int] = {}
    times: list[int] = []
    keys: list[int] = []
    deletes: list[bool] = []
    is_relative: bool | None = None
    for row in readers[path.suffix](path):
        try:
            time_ms, after_start = _time(row.time)
            count = _count(row.records)
        except ValueError as error:
            raise InvalidConfigurationError(f"{path}, {row.place}: {error}") from None
        is_zero = time_ms == 0  # valid as both kinds of times
        if not is_zero and is_relative not in (None, after_start):
            raise InvalidConfigurationError(
                f"{path}, {row.place}: time {row.time!r} is of another kind than the times above: "
                "use either durations after the start (90m) or timestamps in all rows"
            )
        is_relative = is_relative if is_zero else after_start
        if len(times) + count > EVENTS_MAX:
            raise InvalidConfigurationError(f"{path}, {row.place}: more than {EVENTS_MAX} records")
        times += [time_ms] * count
        keys += [-1 if row.key is None else names.setdefault(row.key, len(names))] * count
        deletes += [row.is_delete] * count
    if not times:
        raise InvalidConfigurationError(f"{path} has no records")
    at_ms = np.array(times, np.int64)
    at_ms -= 0 if is_relative else at_ms.min()
    if names and min(keys) < 0:
        raise InvalidConfigurationError(f"{path}: some records have a key, others do not")
    return (
        at_ms,
        np.array(keys, np.int64) if names else None,
        np.array(deletes, np.bool_) if names and any(deletes) else None,
    )


def _time(value: object) -> tuple[int, bool]:
    """Return a time in milliseconds, and whether it is relative to the start."""
    if isinstance(value, int) and not isinstance(value, bool):
        return _not_negative(value, value), False
    timestamp = value if isinstance(value, datetime) else None
    if isinstance(value, str):
        if INTEGER.fullmatch(value.strip()):
            return _not_negative(int(value), value), False
        with suppress(ValueError):
            return parse_duration(value), True
        with suppress(ValueError):
            timestamp = datetime.fromisoformat(value.strip())
    if timestamp is None:
        raise ValueError(f"time {value!r} is neither ms, ISO 8601, nor a duration such as 90m")
    if timestamp.tzinfo is None:
        timestamp = timestamp.replace(tzinfo=UTC)
    time_ms = (timestamp - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    return _not_negative(time_ms, value), False


def _not_negative(time_ms: int, value: object) -> int:
    if time_ms < 0:
        raise ValueError(f"time {value!r} is before 1970")
    return time_ms


def _count(value: object) -> int:
    try:
        count = value if isinstance(value, int) else int(str(value))
    except ValueError:
        raise ValueError(f"records {value!r} is not an integer") from None
    if count < 0:
        raise ValueError(f"records {value!r} is below 0")
    return count


# -- files ---------------------------------------------------------------------------------


def _csv_rows(path: Path) -> Iterator[_Row]:
    with path.open(encoding="utf-8", newline="") as file:
        try:
            reader = csv.DictReader(file)
            time = _time_column(path, reader.fieldnames or ())
            for values in reader:
                place = f"line {reader.line_num}"
                if None in values or None in values.values():
                    raise InvalidConfigurationError(
                        f"{path}, {place}: the number of columns differs from the first line"
                    )
                row = {name: None if value == NULL else value for name, value in values.items()}
                yield from _row(place, row, time)
        except (csv.Error, UnicodeDecodeError) as error:
            raise InvalidConfigurationError(f"{path} is not valid CSV: {error}") from None


def _toml_rows(path: Path) -> Iterator[_Row]:
    try:
        tree = read_toml(path.read_text(encoding="utf-8"), "recording")
    except UnicodeDecodeError as error:
        raise InvalidConfigurationError(f"{path} is not valid TOML: {error}") from None
    rows = tree.get("rows")
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise InvalidConfigurationError(f"{path} needs [[rows]], each with a time")
    for number, row in enumerate(rows):
        place = f"rows[{number}]"
        for name in row:
            if name not in ("time", "records", "key", "delete"):
                near = and_nearest(name, ["time", "records", "key", "delete"])
                raise InvalidConfigurationError(f"{path}, {place}: unknown key {name}{near}")
        yield from _row(place, row, "time")


def _parquet_rows(path: Path) -> Iterator[_Row]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise InvalidConfigurationError(
            f"{path} needs pyarrow: pip install 'kafka-logstore[export]'"
        ) from error
    try:
        file = parquet.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise InvalidConfigurationError(f"{path} is not a Parquet file: {error}") from None
    with file:
        names = file.schema_arrow.names
        time = _time_column(path, names)
        columns = [name for name in (time, "records", "key", "value", "control") if name in names]
        number = 0
        for batch in file.iter_batches(columns=columns):
            for row in batch.to_pylist():
                number += 1
                yield from _row(f"row {number}", row, time)


def _time_column(path: Path, names: Iterable[str]) -> str:
    column = next((name for name in TIMES if name in names), None)
    if column is None:
        raise InvalidConfigurationError(
            f"{path} has no column time; its columns: {', '.join(names) or 'none'}"
        )
    return column


def _row(place: str, row: Mapping[str, Any], time: str) -> Iterator[_Row]:
    """Yield a parsed row, except for transaction markers of an exported topic."""
    if row.get("control") is not None:
        return
    key = row.get("key")
    if key is None:
        key = row.get("key_base64")
    is_null = "value" in row and row["value"] is None and row.get("value_base64") is None
    is_delete = is_null or row.get("delete") is True
    yield _Row(place, row.get(time), row.get("records", 1), key, is_delete)


def read_replay(table: object, prefix: str) -> Replay:
    """Parse and check the replay table of a topic.

    Raises
    ------
    InvalidConfigurationError
        A key is unknown, or a value is invalid.
    """
    replay = read_table(Replay, table, prefix)
    if not replay.file:
        raise InvalidConfigurationError(f"{prefix}file is required: the path of the replay file")
    return replay
