"""Outcomes: the series of a run as arrays, and what they come to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from logstore.simulate.scenario import Scenario

Column = NDArray[Any]

AGE_CLASSES = {
    "tombstones_to_half": 0.5,
    "tombstones_to_1": 1.0,
    "tombstones_to_2": 2.0,
    "tombstones_to_4": 4.0,
    "tombstones_beyond": float("inf"),
}
"""Tombstones by age: below so many times `delete.retention.ms`, and not in the class before."""

PARTITIONS = {
    "time_ms": "When, in Unix ms.",
    "topic": "Which topic.",
    "partition": "Which partition.",
    "event": "Why there is a row: regular, roll, clean, retain, state, start or end.",
    "state": "How it stands: online, uncleanable, offline (its disk failed), down, or absent.",
    "log_start_offset": "First offset that a reader gets.",
    "log_end_offset": "Next offset.",
    "first_dirty_offset": "Up to where it is clean, exclusive.",
    "segments": "Segments, the active one counted.",
    "clean_bytes": "Bytes of segments below the first dirty offset.",
    "dirty_bytes": "Bytes that a cleaning may take.",
    "uncleanable_bytes": "Bytes of closed segments that no cleaning may take yet.",
    "active_bytes": "Bytes of the active segment.",
    "deleted_bytes": "Bytes of files that wait for their removal (`.deleted`).",
    "records": "Data records in the segments.",
    "live_records": "Records that are the last word on their key, and no tombstones.",
    "dead_records": "Records that a cleaning could drop, sooner or later, tombstones not counted.",
    "tombstones": "Tombstones that are the last word on their key.",
    "keys": "Keys that have a record.",
    "hole_offsets": "Offsets between log start and log end without a data record.",
    "cleanable_ratio": "Cleanable bytes over clean and cleanable ones; 0 if it is not compacted.",
    "must_clean_ratio": "Bytes older than max.compaction.lag.ms over clean and cleanable ones.",
    "oldest_dirty_ms": "Age of the first dirty segment, by its first batch, the active one too; "
    "0 if the topic is not compacted.",
    "max_compaction_lag_ms": "max.compaction.lag.ms, KIP-354's bound; 0 if it is not set.",
    "compaction_delay_ms": "By how much the oldest dirty closed segment exceeds it.",
    "oldest_tombstone_ms": "Age of the oldest tombstone that is the last word on its key.",
    "tombstones_to_half": "Those among them younger than half of delete.retention.ms.",
    "tombstones_to_1": "Those from there on, younger than delete.retention.ms.",
    "tombstones_to_2": "Those from there on, younger than twice of it.",
    "tombstones_to_4": "Those from there on, younger than four times of it.",
    "tombstones_beyond": "Those that are older.",
    "appended_bytes": "Bytes appended since the start.",
    "cleaner_read_bytes": "Bytes that the cleaner read since the start.",
    "cleaner_written_bytes": "Bytes that the cleaner wrote since the start.",
    "write_amplification": "Bytes appended and written by the cleaner over bytes appended.",
    "cleaner_bytes_per_second": "Bytes a second of passes that ended since the last regular row.",
    "cleaner_load": "That over the cleaner's throttle; 0 if it has none.",
    "throttle_bytes_per_second": "log.cleaner.io.max.bytes.per.second; 0 if it is not set.",
}
"""Columns of the series of partitions, in order, with their meanings."""

CONSUMERS = {
    "time_ms": "When, in Unix ms.",
    "consumer": "Whose row it is.",
    "lag_records": "Offsets from its position to the log end, over all partitions.",
    "lag_ms": "How long ago what it reads next was written.",
    "missed_tombstones": "Deletes, since the start, that were cleaned away before it read them.",
}
"""Columns of the series of consumers."""

PASSES = {
    "time_ms": "When the pass ended, in Unix ms.",
    "topic": "Which topic.",
    "partition": "Which partition.",
    "first_dirty_offset": "From where.",
    "end_offset": "Up to where, exclusive.",
    "segments_before": "Segments that it took.",
    "segments_after": "Segments that it left.",
    "bytes_read": "Bytes that it read, the map's included.",
    "bytes_written": "Bytes that it wrote.",
    "messages_read": "Records that it read in rewriting.",
    "messages_written": "Records that stayed.",
    "map_utilization": "How full its map was, 0 to 1.",
    "duration_ms": "How long it took: virtual time passes in it for a throttle or a slow disk.",
    "oldest_dirty_ms": "Age of what no cleaning had seen, just before.",
    "compaction_delay_ms": "By how much that exceeded max.compaction.lag.ms, just before.",
}
"""Columns of the series of passes."""


SEGMENTS = {
    "time_ms": "When, in Unix ms.",
    "topic": "Which topic.",
    "partition": "Which partition.",
    "base_offset": "First offset of the segment.",
    "end_offset": "First offset behind it.",
    "records": "Data records in it.",
    "hole_offsets": "Offsets from the first to the end without a data record.",
    "bytes": "Bytes of its `.log`.",
    "section": "clean, dirty, uncleanable or active.",
}
"""Columns of the series of segments, which is sampled more seldom."""


KINDS = ("clean", "dirty", "uncleanable", "active", "deleted")
"""Kinds of bytes that a partition has, each with its column."""

REGULAR_EVENTS = ("regular", "start", "end")
"""Events of the rows that are evenly spread in time."""

RATES = ("cleaner_bytes_per_second", "cleaner_load")
"""Columns that say something only over the time between two regular rows."""

COUNTS = ("passes", "missed_tombstones")
"""Costs that are counted; the others are sizes, spans and ratios."""


class Table:
    """Rows as they come, columns when they are asked for."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self._rows: list[tuple[Any, ...]] = []
        self._arrays: dict[str, Column] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, **values: object) -> None:
        """Add a row; it has every column."""
        self._rows.append(tuple(values[name] for name in self.columns))
        self._arrays = None

    def __getitem__(self, name: str) -> Column:
        return self.arrays()[name]

    def arrays(self) -> dict[str, Column]:
        """Return every column as an array, in the order of the rows."""
        if self._arrays is None:
            columns = list(zip(*self._rows, strict=True)) or [()] * len(self.columns)
            self._arrays = {
                name: np.asarray(column) for name, column in zip(self.columns, columns, strict=True)
            }
        return self._arrays

    def where(self, **values: object) -> dict[str, Column]:
        """Return the columns of the rows that have these values."""
        arrays = self.arrays()
        chosen = np.ones(len(self), np.bool_)
        for name, value in values.items():
            chosen &= arrays[name] == value
        return {name: column[chosen] for name, column in arrays.items()}


@dataclass(frozen=True, slots=True)
class Run:
    """A scenario's run.

    Attributes
    ----------
    partitions, consumers, passes, segments : Table
        The series, by the columns of `PARTITIONS`, `CONSUMERS`, `PASSES` and `SEGMENTS`.
    digests : dict of str to str
        SHA-256 of the `.log` bytes of each partition at the end.
    notes : list of str
        What happened besides: actions, what they met, and crashes.
    """

    scenario: Scenario
    partitions: Table
    consumers: Table
    passes: Table
    segments: Table
    digests: dict[str, str]
    notes: list[str]

    def over_time(self, topic: str | None = None) -> dict[str, Column]:
        """Return the numbers of all partitions together, or of a topic's, at every moment.

        These are the numbers that costs, report and command line show. Every row of the series
        counts, and every pass: just before one, ages and delays are at their largest.

        Returns
        -------
        dict of str to array
            `time_ms`, rising, and each column of numbers. Counts are summed over the partitions, of
            each the last that is known. Of ages, delays, bounds and ratios it is the largest.
            `write_amplification` is that of the sums.
        """
        wanted = {} if topic is None else {"topic": topic}
        found, passes = self.partitions.where(**wanted), self.passes.where(**wanted)
        times = np.unique(np.concatenate((found["time_ms"], passes["time_ms"]))).astype(np.int64)
        names = [
            name
            for name, column in found.items()
            if column.dtype.kind in "if" and name not in ("time_ms", "partition")
        ]
        total = {name: np.zeros(len(times)) for name in names}
        is_regular = np.isin(found["event"], REGULAR_EVENTS)
        for rows in _rows_by_partition(found):
            known = _latest(found["time_ms"], rows, times)
            looked = _latest(found["time_ms"], rows[is_regular[rows]], times)
            at = np.searchsorted(times, found["time_ms"][rows])
            for name in names:
                latest = looked if name in RATES else known
                values = np.where(latest >= 0, found[name][latest], 0)
                if _is_worst(name):
                    if name not in RATES:
                        np.maximum.at(values, at, found[name][rows])
                    np.maximum(total[name], values, out=total[name])
                else:
                    total[name] += values
        at = np.searchsorted(times, passes["time_ms"])
        for name in ("oldest_dirty_ms", "compaction_delay_ms"):
            np.maximum.at(total[name], at, passes[name])
        appended = total["appended_bytes"]
        written = appended + total["cleaner_written_bytes"]
        total["write_amplification"] = np.divide(
            written, appended, out=np.ones(len(times)), where=appended > 0
        )
        return {"time_ms": times, **total}

    def total_bytes(self, topic: str | None = None) -> tuple[Column, Column]:
        """Return moments, rising, and the bytes of all files at each of them."""
        series = self.over_time(topic)
        return series["time_ms"], bytes_of(series)

    def costs(self, topic: str | None = None) -> dict[str, float]:
        """Return what the run cost, over all topics or in one: the numbers that sweeps compare.

        `bytes_peak` and `bytes_mean` (over time, all files), `write_amplification` (at the end),
        `compaction_delay_max_ms` (beyond `max.compaction.lag.ms`), `oldest_dirty_max_ms`,
        `tombstone_age_max_ms`, `cleaner_read_bytes`, `cleaner_written_bytes`, `passes`,
        `live_share` (live records over records, at the end), `missed_tombstones`.
        """
        series = self.over_time(topic)
        total, spans = bytes_of(series), np.diff(series["time_ms"])
        mean = (total[:-1] * spans).sum() / spans.sum() if spans.sum() else total[-1]
        passes = self.passes.where(**({} if topic is None else {"topic": topic}))
        missed = self.consumers["missed_tombstones"]
        return {
            "bytes_peak": int(total.max()),
            "bytes_mean": float(mean),
            "write_amplification": float(series["write_amplification"][-1]),
            "compaction_delay_max_ms": int(series["compaction_delay_ms"].max()),
            "oldest_dirty_max_ms": int(series["oldest_dirty_ms"].max()),
            "tombstone_age_max_ms": int(series["oldest_tombstone_ms"].max()),
            "cleaner_read_bytes": int(series["cleaner_read_bytes"][-1]),
            "cleaner_written_bytes": int(series["cleaner_written_bytes"][-1]),
            "passes": len(passes["time_ms"]),
            "live_share": float(series["live_records"][-1] / max(1, series["records"][-1])),
            "missed_tombstones": int(missed.max()) if len(missed) else 0,
        }


def bytes_of(series: Mapping[str, Column]) -> Column:
    """Return the bytes of all files at each moment of a series."""
    total: Column = np.sum([series[f"{kind}_bytes"] for kind in KINDS], axis=0)
    return total


def evenly(times: Column, values: Column, count: int) -> Column:
    """Return the values at so many moments, as far from each other as from start and end."""
    span = times[-1] - times[0]
    wanted = times[0] + (np.arange(count) + 0.5) * span / count
    found: Column = values[np.searchsorted(times, wanted, side="right") - 1]
    return found


def _is_worst(name: str) -> bool:
    """Return whether of several partitions the largest number counts, not the sum."""
    return name.endswith(("_ms", "_ratio", "_load")) or name == "throttle_bytes_per_second"


def _rows_by_partition(found: Mapping[str, Column]) -> Iterator[Column]:
    """Yield the rows of each partition, in the order of time."""
    topics = np.char.add(found["topic"].astype(str), "-")
    names = np.char.add(topics, found["partition"].astype(str))
    for name in np.unique(names):
        yield np.flatnonzero(names == name)


def _latest(time_ms: Column, rows: Column, times: Column) -> Column:
    """Return, for each moment, the number of the last row by then; -1 where there is none."""
    places = np.searchsorted(time_ms[rows], times, side="right") - 1
    return np.where(places >= 0, rows[places], -1) if len(rows) else np.full(len(times), -1)
