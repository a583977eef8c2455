"""Quantities of a run that are reported, compared and bounded by goals.

The command line, reports and goals use these names, units and descriptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from logstore.config.suggest import and_nearest
from logstore.config.units import parse_duration, parse_size
from logstore.errors import InvalidConfigurationError
from logstore.reasons.formats import format_size, format_span

BYTES, MS, COUNT, RATIO, SHARE = "bytes", "ms", "count", "ratio", "share"
"""Units of quantities."""


class Quantity(NamedTuple):
    """A cost of a run.

    Attributes
    ----------
    cost : str
        Key in `Run.costs`.
    name : str
        Name in goals.
    label, short : str
        Headings in a list and in a wide table.
    unit : str
    doc : str
        Description in the documentation.
    """

    cost: str
    name: str
    label: str
    short: str
    unit: str
    doc: str

    def format(self, value: float) -> str:
        """Format a value with its unit."""
        if self.unit == BYTES:
            return format_size(value)
        if self.unit == MS:
            return format_span(round(value))
        if self.unit == SHARE:
            return f"{value:.0%}"
        return f"{value:.2f}" if self.unit == RATIO else f"{value:,.0f}"

    def parse(self, text: str) -> float:
        """Parse a value with a unit: `30d`, `1GiB`, `80%`, `1.5`.

        Raises
        ------
        InvalidConfigurationError
            The text is not a valid value.
        """
        try:
            if self.unit == BYTES:
                return parse_size(text)
            if self.unit == MS:
                return parse_duration(text)
            if self.unit == SHARE and text.endswith("%"):
                return float(text[:-1]) / 100
            return float(text)
        except ValueError as error:
            raise InvalidConfigurationError(f"{self.name}: {error}") from error


QUANTITIES: Mapping[str, Quantity] = {
    each.cost: each
    for each in (
        Quantity("bytes_peak", "bytes", "peak size", "peak", BYTES,
                 "largest size of all files, in one replica"),
        Quantity("bytes_mean", "bytes.mean", "mean size", "mean", BYTES,
                 "mean size of all files over time"),
        Quantity("headroom_bytes", "headroom", "peak headroom of a pass", "headroom", BYTES,
                 "largest size by which a pass exceeds the log before it: rewritten segments, and "
                 "files of earlier passes that wait for removal"),
        Quantity("disk_bytes", "disk", "peak size of all replicas", "disk", BYTES,
                 "largest size of all files in all replicas"),
        Quantity("write_amplification", "written", "write amplification", "written", RATIO,
                 "bytes written for each byte appended"),
        Quantity("oldest_dirty_max_ms", "oldest", "oldest uncleaned record", "not cleaned", MS,
                 "largest age of a record that no cleaning pass has seen, including the open "
                 "segment"),
        Quantity("oldest_dirty_p50_ms", "oldest.p50", "  median", "p50", MS,
                 "median of this age over time"),
        Quantity("oldest_dirty_p95_ms", "oldest.p95", "  95th percentile", "p95", MS,
                 "95th percentile of this age over time"),
        Quantity("oldest_dirty_p99_ms", "oldest.p99", "  99th percentile", "p99", MS,
                 "99th percentile of this age over time"),
        Quantity("compaction_delay_max_ms", "late", "past max.compaction.lag.ms", "late by", MS,
                 "time by which a pass exceeded `max.compaction.lag.ms`"),
        Quantity("tombstone_age_max_ms", "tombstone", "oldest tombstone", "tombstone", MS,
                 "largest age of a surviving tombstone"),
        Quantity("tombstone_age_p50_ms", "tombstone.p50", "  median", "p50", MS,
                 "median of this age over time"),
        Quantity("tombstone_age_p95_ms", "tombstone.p95", "  95th percentile", "p95", MS,
                 "95th percentile of this age over time"),
        Quantity("tombstone_age_p99_ms", "tombstone.p99", "  99th percentile", "p99", MS,
                 "99th percentile of this age over time"),
        Quantity("cleaner_read_bytes", "cleaner.read", "read by the cleaner", "read", BYTES,
                 "bytes that the cleaner read"),
        Quantity("cleaner_written_bytes", "cleaner.written", "written by the cleaner", "rewritten",
                 BYTES, "bytes that the cleaner wrote"),
        Quantity("passes", "passes", "passes", "passes", COUNT, "number of cleaning passes"),
        Quantity("live_share", "live", "live records", "live", SHARE,
                 "live records / records, at the end"),
        Quantity("missed_tombstones", "missed", "missed deletes", "missed", COUNT,
                 "largest number of deletes that a consumer missed"),
    )
}  # fmt: skip
"""All costs, in display order."""

SWEPT = (
    "bytes_peak",
    "bytes_mean",
    "write_amplification",
    "oldest_dirty_max_ms",
    "compaction_delay_max_ms",
    "tombstone_age_max_ms",
    "passes",
    "live_share",
)
"""Costs shown in the terminal table of a sweep."""

RATIOS = ("_ratio", "_load", "_amplification")
"""Suffixes of ratio columns."""


def quantity(name: str) -> Quantity:
    """Return the quantity with a given name in goals or key in `Run.costs`.

    Raises
    ------
    InvalidConfigurationError
        The name is unknown. The message suggests the closest name.
    """
    by_name = {each.name: each for each in QUANTITIES.values()}
    found = by_name.get(name) or QUANTITIES.get(name)
    if found is None:
        near = and_nearest(name, [*by_name, *QUANTITIES])
        raise InvalidConfigurationError(f"unknown quantity {name!r}{near}")
    return found


def format_value(column: str, value: float) -> str:
    """Format a value of a series with the unit implied by its column name."""
    if column.endswith("_ms"):
        return format_span(round(value))
    if "bytes" in column:
        return format_size(value)
    return f"{value:.2f}" if column.endswith(RATIOS) else f"{value:,.0f}"
