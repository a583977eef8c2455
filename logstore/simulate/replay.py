"""Recordings that topics replay: files of times, with counts and keys, checked by line."""

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
"""Columns that say when: ours, and that of an exported topic."""

NULL = r"\N"
"""What stands for null in an exported topic's CSV."""

EVENTS_MAX = 1 << 28


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A recording, and how it is replayed."""

    file: str = setting("", "Where it is: `.csv`, `.toml` or `.parquet`, beside the scenario.")
    loop: bool = setting(False, "Begin anew when it is over, until the scenario ends.")
    period: str = span("0", "Of a loop: from one begin to the next; 0 is its own length.")
    stretch: float = setting(1.0, "How much longer everything takes than it did.", 1e-6, 1e6)

    @property
    def recorded(self) -> Recorded:
        """The recording, read and checked.

        Raises
        ------
        InvalidConfigurationError
            It cannot be read, or a line is wrong; the message names it.
        """
        path = Path(self.file)
        try:
            status = path.stat()
            at_ms, key, tombstone = _read(path, (status.st_mtime_ns, status.st_size))
        except OSError as error:
            raise InvalidConfigurationError(
                f"the recording {self.file!r} cannot be read: {error.strerror}"
            ) from error
        length_ms = int(at_ms.max()) + max(1, round(int(at_ms.max()) / len(at_ms)))
        period_ms = parse_duration(self.period) or length_ms
        if self.loop and period_ms <= at_ms.max():
            raise InvalidConfigurationError(
                f"replay.period {self.period} is shorter than {self.file!r}, which ends "
                f"{at_ms.max()} ms after its start"
            )
        arrived = np.maximum.accumulate(at_ms)  # what is earlier than one before it came late
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
    """Return moments after the start, key numbers or None, and deletes or None, of a file."""
    readers = {".csv": _csv_rows, ".toml": _toml_rows, ".parquet": _parquet_rows}
    if path.suffix not in readers:
        near = and_nearest(path.suffix, list(readers))
        raise InvalidConfigurationError(
            f"a recording is {', '.join(readers)}, and {str(path)!r} is none of them{near}"
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
        is_zero = time_ms == 0  # of either kind
        if not is_zero and is_relative not in (None, after_start):
            raise InvalidConfigurationError(
                f"{path}, {row.place}: time {row.time!r} is of another kind than those above: a "
                "span after the start (90m), or a moment"
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
        raise InvalidConfigurationError(f"{path}: some records have a key, and others none")
    return (
        at_ms,
        np.array(keys, np.int64) if names else None,
        np.array(deletes, np.bool_) if names and any(deletes) else None,
    )


def _time(value: object) -> tuple[int, bool]:
    """Return a time in ms, and whether it is one after the start."""
    if isinstance(value, int) and not isinstance(value, bool):
        return _not_negative(value, value), False
    moment = value if isinstance(value, datetime) else None
    if isinstance(value, str):
        if INTEGER.fullmatch(value.strip()):
            return _not_negative(int(value), value), False
        with suppress(ValueError):
            return parse_duration(value), True
        with suppress(ValueError):
            moment = datetime.fromisoformat(value.strip())
    if moment is None:
        raise ValueError(f"time {value!r} is neither ms, ISO 8601, nor a span such as 90m")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    return _not_negative(since, value), False


def _not_negative(time_ms: int, value: object) -> int:
    if time_ms < 0:
        raise ValueError(f"time {value!r} is before 1970")
    return time_ms


def _count(value: object) -> int:
    try:
        count = value if isinstance(value, int) else int(str(value))
    except ValueError:
        raise ValueError(f"records {value!r} is no integer") from None
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
                        f"{path}, {place}: not as many columns as the first line has"
                    )
                row = {name: None if value == NULL else value for name, value in values.items()}
                yield from _row(place, row, time)
        except (csv.Error, UnicodeDecodeError) as error:
            raise InvalidConfigurationError(f"{path} is no CSV: {error}") from None


def _toml_rows(path: Path) -> Iterator[_Row]:
    try:
        tree = read_toml(path.read_text(encoding="utf-8"), "recording")
    except UnicodeDecodeError as error:
        raise InvalidConfigurationError(f"{path} is no TOML: {error}") from None
    rows = tree.get("rows")
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise InvalidConfigurationError(f"{path} needs [[rows]] with a time each")
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
        raise InvalidConfigurationError(f"{path} is no Parquet: {error}") from None
    with file:
        names = file.schema_arrow.names
        time = _time_column(path, names)
        wanted = [name for name in (time, "records", "key", "value", "control") if name in names]
        number = 0
        for batch in file.iter_batches(columns=wanted):
            for row in batch.to_pylist():
                number += 1
                yield from _row(f"row {number}", row, time)


def _time_column(path: Path, names: Iterable[str]) -> str:
    found = next((name for name in TIMES if name in names), None)
    if found is None:
        raise InvalidConfigurationError(
            f"{path} has no column time, but {', '.join(names) or 'none at all'}"
        )
    return found


def _row(place: str, row: Mapping[str, Any], time: str) -> Iterator[_Row]:
    """Yield what a row says; nothing of a transaction's end in an exported topic."""
    if row.get("control") is not None:
        return
    key = row.get("key")
    if key is None:
        key = row.get("key_base64")
    has_value = "value" in row and row["value"] is None and row.get("value_base64") is None
    is_delete = has_value or row.get("delete") is True
    yield _Row(place, row.get(time), row.get("records", 1), key, is_delete)


def read_replay(table: object, prefix: str) -> Replay:
    """Return the table of a topic as it is checked.

    Raises
    ------
    InvalidConfigurationError
        Something in it is unknown or wrong.
    """
    replay = read_table(Replay, table, prefix)
    if not replay.file:
        raise InvalidConfigurationError(f"{prefix}file says where the recording is")
    return replay
