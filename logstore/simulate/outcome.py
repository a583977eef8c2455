"""The outcome of a run: time series as arrays, and costs computed from them."""

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
"""Age classes of tombstones: upper bounds as multiples of `delete.retention.ms`."""

PARTITIONS = {
    "time_ms": "Time, in Unix ms.",
    "topic": "Topic.",
    "partition": "Partition number.",
    "event": "Reason for the row: regular, roll, clean, retain, state, start or end.",
    "state": "State: online, uncleanable, offline (its disk failed), down or absent.",
    "log_start_offset": "Log start offset.",
    "log_end_offset": "Log end offset.",
    "first_dirty_offset": "First dirty offset.",
    "segments": "Segments, including the active one.",
    "clean_bytes": "Bytes of segments below the first dirty offset.",
    "dirty_bytes": "Bytes of segments that can be cleaned.",
    "uncleanable_bytes": "Bytes of closed segments that cannot be cleaned yet.",
    "active_bytes": "Bytes of the active segment.",
    "deleted_bytes": "Bytes of files that are scheduled for deletion (`.deleted`).",
    "records": "Data records in the segments.",
    "live_records": "Records that no other record supersedes, without tombstones.",
    "dead_records": "Records that the cleaner will eventually remove, without tombstones.",
    "tombstones": "Tombstones that no other record supersedes.",
    "keys": "Keys that have a record.",
    "hole_offsets": "Offsets between log start and log end without a data record.",
    "cleanable_ratio": "Dirty bytes / (clean + dirty bytes); 0 if the topic is not compacted.",
    "must_clean_ratio": "Bytes older than max.compaction.lag.ms / (clean + dirty bytes).",
    "oldest_dirty_ms": "Age of the first dirty segment (closed or active), by its first batch; "
    "0 if the topic is not compacted.",
    "max_compaction_lag_ms": "max.compaction.lag.ms (KIP-354); 0 if it is not set.",
    "compaction_delay_ms": "Time by which the oldest dirty closed segment exceeds it.",
    "oldest_tombstone_ms": "Age of the oldest of these tombstones.",
    "tombstones_to_half": "Tombstones younger than half of delete.retention.ms.",
    "tombstones_to_1": "Tombstones from there to delete.retention.ms.",
    "tombstones_to_2": "Tombstones from there to twice delete.retention.ms.",
    "tombstones_to_4": "Tombstones from there to four times delete.retention.ms.",
    "tombstones_beyond": "Older tombstones.",
    "appended_bytes": "Bytes appended since the start.",
    "cleaner_read_bytes": "Bytes read by the cleaner since the start.",
    "cleaner_written_bytes": "Bytes written by the cleaner since the start.",
    "write_amplification": "(Appended + cleaner-written bytes) / appended bytes.",
    "cleaner_bytes_per_second": "Bytes per second of passes that ended since the last regular row.",
    "cleaner_load": "That rate / the cleaner's throttle; 0 without a throttle.",
    "throttle_bytes_per_second": "log.cleaner.io.max.bytes.per.second; 0 if it is not set.",
}
"""Columns of the partition series with descriptions, in order."""

CONSUMERS = {
    "time_ms": "Time, in Unix ms.",
    "consumer": "Name of the consumer.",
    "lag_records": "Offsets from its position to the log end, summed over all partitions.",
    "lag_ms": "Time since the next record that it will read was written.",
    "missed_tombstones": "Tombstones, since the start, that were removed before it read them.",
}
"""Columns of the consumer series."""

PASSES = {
    "time_ms": "End of the pass, in Unix ms.",
    "topic": "Topic.",
    "partition": "Partition number.",
    "first_dirty_offset": "First dirty offset of the pass.",
    "end_offset": "End of the dirty section, exclusive.",
    "segments_before": "Segments before the pass.",
    "segments_after": "Segments after the pass.",
    "bytes_read": "Bytes read, including the reads for the offset map.",
    "bytes_written": "Bytes written.",
    "messages_read": "Records read for rewriting.",
    "messages_written": "Records retained.",
    "map_utilization": "Utilization of the offset map, 0 to 1.",
    "duration_ms": "Duration in virtual time; 0 without a throttle or a slow disk.",
    "oldest_dirty_ms": "Age of the oldest dirty data just before the pass.",
    "compaction_delay_ms": "Time by which it exceeded max.compaction.lag.ms.",
    "peak_bytes": "Bytes of the partition's files at its end, with the originals of the segments.",
    "headroom_bytes": "Bytes by which they exceed the log before the pass.",
}
"""Columns of the pass series."""


SEGMENTS = {
    "time_ms": "Time, in Unix ms.",
    "topic": "Topic.",
    "partition": "Partition number.",
    "base_offset": "Base offset of the segment.",
    "end_offset": "First offset after the segment.",
    "records": "Data records in the segment.",
    "hole_offsets": "Offsets from the base to the end without a data record.",
    "bytes": "Bytes of its `.log` file.",
    "section": "clean, dirty, uncleanable or active.",
}
"""Columns of the segment series, which has fewer samples."""


KINDS = ("clean", "dirty", "uncleanable", "active", "deleted", "swap")
"""Kinds of bytes in a partition. Each has a column."""

SIZES = frozenset(f"{kind}_bytes" for kind in KINDS)
"""Columns of the kinds."""

SWAP = "swap_bytes"
"""Column of the combined series: bytes at the end of a pass that no row includes."""

AGE_SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
"""Percentiles of ages over time."""

REGULAR_EVENTS = ("regular", "start", "end")
"""Events of evenly spaced rows."""

RATES = ("cleaner_bytes_per_second", "cleaner_load")
"""Columns that are meaningful only between regular rows."""

COUNTS = ("passes", "missed_tombstones")
"""Costs that are counts. Other costs are sizes, durations or ratios."""


class Table:
    """Rows that are added one by one and read as columns."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self._rows: list[tuple[Any, ...]] = []
        self._arrays: dict[str, Column] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, **values: object) -> None:
        """Add a row with a value for every column."""
        self._rows.append(tuple(values[name] for name in self.columns))
        self._arrays = None

    def __getitem__(self, name: str) -> Column:
        return self.arrays()[name]

    def arrays(self) -> dict[str, Column]:
        """Return every column as an array in row order."""
        if self._arrays is None:
            columns = list(zip(*self._rows, strict=True)) or [()] * len(self.columns)
            self._arrays = {
                name: np.asarray(column) for name, column in zip(self.columns, columns, strict=True)
            }
        return self._arrays

    def where(self, **values: object) -> dict[str, Column]:
        """Return the columns of the rows that have the given values."""
        arrays = self.arrays()
        matches = np.ones(len(self), np.bool_)
        for name, value in values.items():
            matches &= arrays[name] == value
        return {name: column[matches] for name, column in arrays.items()}


@dataclass(frozen=True, slots=True)
class Run:
    """The outcome of running a scenario.

    Attributes
    ----------
    partitions, consumers, passes, segments : Table
        The series, with the columns of `PARTITIONS`, `CONSUMERS`, `PASSES` and `SEGMENTS`.
    digests : dict of str to str
        SHA-256 of the final `.log` files of each partition.
    notes : list of str
        Actions and their errors, failed appends, and losses in crashes.
    """

    scenario: Scenario
    partitions: Table
    consumers: Table
    passes: Table
    segments: Table
    digests: dict[str, str]
    notes: list[str]

    def over_time(self, topic: str | None = None) -> dict[str, Column]:
        """Combine the series of all partitions, or of one topic, at every time.

        The costs, the report and the command line use these values. All rows and passes are
        included, because ages and delays are largest just before a pass.

        Returns
        -------
        dict of str to array
            `time_ms`, ascending, and each numeric column. Counts are sums of the latest values of
            the partitions. Ages, delays, bounds and ratios are maxima. `write_amplification` is
            computed from the sums. `disk_bytes` is the size of all files in all replicas. Two
            columns are 0 except at the end of a pass: `headroom_bytes`, its headroom, and
            `swap_bytes`, the total size of original and rewritten segments minus the bytes in the
            latest row of the partition.
        """
        selection = {} if topic is None else {"topic": topic}
        series, passes = self.partitions.where(**selection), self.passes.where(**selection)
        times = np.unique(np.concatenate((series["time_ms"], passes["time_ms"]))).astype(np.int64)
        names = [
            name
            for name, column in series.items()
            if column.dtype.kind in "if" and name not in ("time_ms", "partition")
        ]
        others = (SWAP, "headroom_bytes", "disk_bytes")
        total = {name: np.zeros(len(times)) for name in (*names, *others)}
        replicas = {each.name: each.replicas for each in self.scenario.topics}
        is_regular = np.isin(series["event"], REGULAR_EVENTS)
        for rows in _rows_by_partition(series):
            own = np.zeros(len(times))
            latest_row = _latest(series["time_ms"], rows, times)
            latest_regular = _latest(series["time_ms"], rows[is_regular[rows]], times)
            at = np.searchsorted(times, series["time_ms"][rows])
            for name in names:
                latest = latest_regular if name in RATES else latest_row
                values = np.where(latest >= 0, series[name][latest], 0)
                if _is_maximum(name):
                    if name not in RATES:
                        np.maximum.at(values, at, series[name][rows])
                    np.maximum(total[name], values, out=total[name])
                    continue
                total[name] += values
                if name in SIZES:
                    own += values
            topic_name, number = series["topic"][rows[0]], series["partition"][rows[0]]
            is_own = (passes["topic"] == topic_name) & (passes["partition"] == number)
            at = np.searchsorted(times, passes["time_ms"][is_own])
            peaks = own.copy()
            np.maximum.at(peaks, at, passes["peak_bytes"][is_own])
            headroom = np.zeros(len(times))
            np.maximum.at(headroom, at, passes["headroom_bytes"][is_own])
            total["headroom_bytes"] += headroom
            total[SWAP] += peaks - own
            total["disk_bytes"] += replicas.get(topic_name, 1) * peaks
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
        """Return ascending times and the total size of all files."""
        series = self.over_time(topic)
        return series["time_ms"], bytes_of(series)

    def costs(self, topic: str | None = None) -> dict[str, float]:
        """Return the costs of the run, for all topics or one topic. Sweeps compare them.

        See `logstore.simulate.quantities`.
        """
        series = self.over_time(topic)
        total, spans = bytes_of(series), np.diff(series["time_ms"])
        lasting = total - series[SWAP]
        mean = (lasting[:-1] * spans).sum() / spans.sum() if spans.sum() else lasting[-1]
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
            "headroom_bytes": int(series["headroom_bytes"].max()),
            "disk_bytes": int(series["disk_bytes"].max()),
            **_age_percentiles("oldest_dirty", series["time_ms"], series["oldest_dirty_ms"]),
            **_age_percentiles("tombstone_age", series["time_ms"], series["oldest_tombstone_ms"]),
        }


def bytes_of(series: Mapping[str, Column]) -> Column:
    """Return the total size of all files at each time of a series."""
    total: Column = np.sum([series[f"{kind}_bytes"] for kind in KINDS], axis=0)
    return total


def _age_percentiles(name: str, times: Column, ages: Column) -> dict[str, float]:
    found = age_quantiles(times, ages, list(AGE_SHARES.values()))
    return {f"{name}_{share}_ms": round(age) for share, age in zip(AGE_SHARES, found, strict=True)}


def age_quantiles(times: Column, ages: Column, shares: Sequence[float]) -> list[float]:
    """Return quantiles over time of an age that is known at certain times.

    An age grows with time and only falls at a known time. In the interval that ends at `times[i]`,
    it therefore had all values from its value at the start (0 or more) to `ages[i]`.
    """
    spans = np.diff(times).astype(np.float64)
    if not spans.sum():
        return [float(ages[-1])] * len(shares)
    ends = ages[1:].astype(np.float64)
    begins = np.maximum(0.0, ends - spans)
    # Time at age 0, then time below each age, which is piecewise linear.
    at_zero = (spans - (ends - begins)).sum()
    edges = np.concatenate((begins, ends))
    steps = np.concatenate((np.ones(len(begins)), -np.ones(len(ends))))
    order = np.argsort(edges, kind="stable")
    edges = edges[order]
    running = np.cumsum(steps[order])[:-1]
    below = np.concatenate(([0.0], np.cumsum(running * np.diff(edges)))) + at_zero
    wanted = np.asarray(shares) * spans.sum()
    return [
        0.0 if target <= at_zero else float(np.interp(target, below, edges)) for target in wanted
    ]


def evenly(times: Column, values: Column, count: int) -> Column:
    """Return the values at the centers of `count` equal intervals."""
    span = times[-1] - times[0]
    centers = times[0] + (np.arange(count) + 0.5) * span / count
    samples: Column = values[np.searchsorted(times, centers, side="right") - 1]
    return samples


def _is_maximum(name: str) -> bool:
    """Return whether a column is combined as a maximum instead of a sum."""
    return name.endswith(("_ms", "_ratio", "_load")) or name == "throttle_bytes_per_second"


def _rows_by_partition(series: Mapping[str, Column]) -> Iterator[Column]:
    """Yield the row numbers of each partition in time order."""
    topics = np.char.add(series["topic"].astype(str), "-")
    names = np.char.add(topics, series["partition"].astype(str))
    for name in np.unique(names):
        yield np.flatnonzero(names == name)


def _latest(time_ms: Column, rows: Column, times: Column) -> Column:
    """Return the index of the last row at or before each time, or -1 if there is none."""
    indices = np.searchsorted(time_ms[rows], times, side="right") - 1
    return np.where(indices >= 0, rows[indices], -1) if len(rows) else np.full(len(times), -1)
