"""The rows that the oracle compares, and the rules as column expressions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from logstore.spark.oracle.kinds import RECORD_ID
from logstore.spark.oracle.rules import Cleaned, Rules, StartState
from logstore.spark.oracle.versions import HEADER, OFFSET, parse_version
from logstore.types import INT64_MAX

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

CleanedRanges = Mapping[tuple[str, int], Cleaned]

REQUIRED, OPTIONAL, FORBIDDEN = "required", "optional", "forbidden"

_SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("versioned", BooleanType()),
        StructField("order_by", IntegerType()),
    ]
    + [
        StructField(name, LongType())
        for name in (
            *("start", "end", "log_end", "oldest", "dirty"),
            *("stamp_from", "stamp_to", "since", "now", "young", "overdue", "retained"),
        )
    ]
)
"""Schema of broadcast ranges. `young`, `overdue` and `retained` are limits in microseconds."""


class Orders(NamedTuple):
    """The orders by which records compete (strategy, header, encoding), indexed by `order_by`."""

    rules: tuple[tuple[str, str, str], ...]

    @classmethod
    def of(cls, rules: Mapping[tuple[str, int], Rules]) -> Orders:
        """Return the distinct orders of the rules."""
        return cls(tuple(dict.fromkeys(rule.order for rule in rules.values())))

    @property
    def versioned(self) -> bool:
        """Whether any partition is compacted by version."""
        return any(strategy != OFFSET for strategy, _, _ in self.rules)

    @property
    def needs_headers(self) -> bool:
        """Whether any partition has versions in headers."""
        return any(strategy == HEADER for strategy, _, _ in self.rules)

    def versions(self) -> tuple[Column, Column]:
        """Return whether a record has a version, and the version, according to its partition."""
        present, version = F.lit(False), F.lit(0).cast("bigint")
        for number, order in enumerate(self.rules):
            here = F.col("order_by") == number
            stated, number_stated = parse_version(*order)
            present = F.when(here, stated).otherwise(present)
            version = F.when(here & stated, number_stated).otherwise(version)
        return F.coalesce(present, F.lit(False)), F.coalesce(version, F.lit(0))


def build_ranges(
    frame: DataFrame,
    rules: Mapping[tuple[str, int], Rules],
    cleaned: CleanedRanges,
    begun: Mapping[tuple[str, int], StartState],
) -> DataFrame:
    """Return the cleaned range and rules of each partition as a broadcast table."""
    orders = Orders.of(rules)
    nothing = (None, None)
    rows = []
    for partition, (start, end, log_end, retention_ms) in cleaned.items():
        rule = rules[partition]
        stamps = (None, None)
        if rule.since_ms is not None:
            stamps = tuple(
                _within_int64(ms + rule.delete_retention_ms) for ms in (rule.since_ms, rule.now_ms)
            )
        lags = (
            _limit(rule.now_ms, rule.min_compaction_lag_ms or None),
            _limit(rule.now_ms, rule.max_compaction_lag_ms),
            _limit(rule.now_ms, retention_ms),
        )
        rows.append(
            (
                *partition, rule.strategy != OFFSET, orders.rules.index(rule.order),
                start, end, log_end, *begun.get(partition, nothing),
                *stamps, rule.since_ms, rule.now_ms, *lags,
            )
        )  # fmt: skip
    return small_table(frame.sparkSession, rows, _SCHEMA)


def small_table(
    spark: SparkSession, rows: Iterable[Sequence[object]], schema: StructType
) -> DataFrame:
    """Return rows of the driver as a broadcast table.

    Passing an Arrow table to the JVM avoids a job with Python workers.
    """
    named = [dict(zip(schema.names, row, strict=True)) for row in rows]
    table = pa.Table.from_pylist(named, schema=to_arrow_schema(schema))
    return F.broadcast(spark.createDataFrame(table))


def _limit(now_ms: int, age_ms: int | None) -> int | None:
    """Convert the age of a record to its timestamp in microseconds."""
    return None if age_ms is None else _within_int64((now_ms - age_ms) * 1000)


def _within_int64(number: int) -> int:
    """Clamp a number to int64, because durations can exceed it."""
    return max(-INT64_MAX, min(number, INT64_MAX))


def old_rows(before: DataFrame, ranges: DataFrame, orders: Orders) -> DataFrame:
    """Return the records before cleaning, including those below the new log start.

    Records omitted by `scan_folded` are represented by the `FOLDED` columns of another record.
    """
    aborted = _column(before, "aborted", F.lit(False))
    rows = _contents(
        before,
        ranges,
        F.coalesce(aborted, F.lit(False)).alias("aborted"),
        aborted.isNull().alias("open"),
        *(["headers"] if orders.needs_headers else []),
        "timestamp",
        _column(before, "superseded", F.lit(0).cast("bigint")).alias("superseded"),
        _column(before, "supersededNewest", F.lit(None).cast("bigint")).alias("superseded_newest"),
        start=("oldest", "start"),
    )
    present, version = orders.versions()
    return (
        rows.withColumn("present", present)
        .withColumn("version", version)
        .withColumn("uncertain", F.lit(False))
        .drop("headers", "timestamp")
    )


def new_rows(after: DataFrame, ranges: DataFrame) -> DataFrame:
    """Return the records after cleaning, starting at the log start."""
    # In `aborted`, null means an open transaction. Flags show whether the columns exist.
    return _contents(
        after,
        ranges,
        _column(after, "aborted", F.lit(None).cast("boolean")).alias("aborted"),
        F.lit("aborted" in after.columns).alias("has_aborted"),
        F.lit("deleteHorizonMs" in after.columns).alias("has_horizon"),
        _column(after, "displaced", F.lit(False)).alias("displaced"),
    )


def _column(frame: DataFrame, name: str, default: Column) -> Column:
    return F.col(name) if name in frame.columns else default


def _contents(
    frame: DataFrame,
    ranges: DataFrame,
    *more: Column | str,
    start: Sequence[str] = ("start",),
) -> DataFrame:
    if "valueDigest" in frame.columns:
        value, headers = F.col("valueDigest"), F.col("headersDigest")
    else:
        value = F.when(F.col("value").isNotNull(), F.xxhash64("value"))
        headers = F.xxhash64(
            F.transform(
                F.coalesce(F.col("headers"), F.array()),
                # Hashing skips nulls, so hash a null flag as well.
                lambda each: F.struct(each["key"], each["value"].isNull(), each["value"]),
            )
        )
    picked = frame.select(
        *RECORD_ID,
        "key",
        value.isNull().alias("tombstone"),
        value.alias("value_digest"),
        headers.alias("headers_digest"),
        F.unix_micros("timestamp").alias("micros"),
        F.col("timestampType").alias("type"),
        _column(frame, "deleteHorizonMs", F.lit(None)).cast("bigint").alias("horizon"),
        *more,
    )
    return picked.join(ranges, ["topic", "partition"], "left").where(
        F.col("offset") >= F.coalesce(*start, F.lit(0))
    )


# --- rules for a record -----------------------------------------------------------------------


def in_tail(prefix: str = "") -> Column:
    """Return whether a record is after the cleaned range."""
    return F.col(f"{prefix}offset") >= F.coalesce(F.col(f"{prefix}end"), F.lit(0))


def in_front() -> Column:
    """Return whether a record is below the log start after cleaning."""
    return F.col("offset") < F.coalesce("start", F.lit(0))


def removed_early() -> Column:
    """Return whether a removed record below the log start was too young for retention."""
    return in_front() & F.coalesce(F.col("micros") >= F.col("retained"), F.lit(False))


def can_survive() -> Column:
    """Return whether a record can be the winner of its key."""
    return ~F.col("aborted") & F.col("key").isNotNull() & ~in_tail()


def order_column(orders: Orders) -> Column:
    """Return the column by which records compete. Offsets are numbers, which hash faster."""
    return F.struct("present", "version", "offset") if orders.versioned else F.col("offset")


def fixed_expectation(prefix: str = "") -> Column:
    """Return required, optional or forbidden, or null if this depends on the key's winner."""

    def col(name: str) -> Column:
        return F.col(prefix + name)

    tail = in_tail(prefix)
    return (
        F.when(tail & col("aborted") & _rewritten(prefix), OPTIONAL)
        .when(tail, REQUIRED)
        .when(col("aborted"), superseded_expectation(prefix))
        .when(col("versioned") & (col("offset") == col("log_end") - 1), REQUIRED)
        .when(col("uncertain"), OPTIONAL)
        .when(col("key").isNull(), superseded_expectation(prefix))
    )


def winner_expectation(prefix: str = "") -> Column:
    """Return whether the winner of a key is required, optional or forbidden."""
    horizon, since = F.col(f"{prefix}horizon"), F.col(f"{prefix}since")
    earliest = F.when(since.isNull(), horizon).otherwise(
        F.coalesce(horizon, F.col(f"{prefix}stamp_from"))
    )
    overdue = F.coalesce(horizon <= since, F.lit(False))
    return (
        F.when(~F.col(f"{prefix}tombstone"), REQUIRED)
        .when(F.coalesce(F.col(f"{prefix}now") < earliest, F.lit(False)), REQUIRED)
        .when(overdue & ~F.col(f"{prefix}versioned"), FORBIDDEN)
        .otherwise(OPTIONAL)
    )


def superseded_expectation(prefix: str = "") -> Column:
    """Return forbidden for a superseded record, or optional if its range was already clean."""
    was_clean = F.col(f"{prefix}end") <= F.col(f"{prefix}dirty")
    return F.when(F.coalesce(was_clean, F.lit(False)), OPTIONAL).otherwise(FORBIDDEN)


def is_younger_than_lag(prefix: str = "") -> Column:
    """Return whether a record is younger than the minimum compaction lag.

    The section that was already clean is excluded, because earlier passes may have used a different
    lag.
    """
    col = F.col
    dirty = col(f"{prefix}offset") >= F.coalesce(f"{prefix}dirty", F.lit(0))
    newest = F.greatest(f"{prefix}micros", f"{prefix}superseded_newest")
    return F.coalesce(newest > col(f"{prefix}young"), F.lit(False)) & dirty


def wrong_horizon(old: Column, new: Column, invalid: Column, needed: Column) -> Column:
    """Return whether the delete horizon of a retained record is wrong (KIP-534).

    An existing horizon must not change.

    Parameters
    ----------
    invalid, needed : Column
        For records without an old horizon: `invalid_horizon` of the new one, and whether a horizon
        is required.
    """
    is_wrong = invalid | (new.isNull() & needed)
    return F.when(old.isNotNull(), ~old.eqNullSafe(new)).otherwise(is_wrong)


def invalid_horizon(horizon: Column, prefix: str = "") -> Column:
    """Return whether no cleaning pass can have set this horizon.

    A pass sets the horizon to its start time plus `delete.retention.ms`.
    """
    stamped = horizon.between(F.col(f"{prefix}stamp_from"), F.col(f"{prefix}stamp_to"))
    return horizon.isNotNull() & ~(_rewritten(prefix) & F.coalesce(stamped, F.lit(True)))


def needs_horizon(tombstone: Column, prefix: str = "") -> Column:
    """Return whether a record in the cleaned range must have a horizon.

    A tombstone must have one, unless its range was already clean and may not have been rewritten.
    """
    end, dirty = F.col(f"{prefix}end"), F.col(f"{prefix}dirty")
    return tombstone & F.coalesce(end > dirty, F.lit(True))


def _rewritten(prefix: str) -> Column:
    return F.coalesce(F.col(f"{prefix}end") > F.col(f"{prefix}start"), F.lit(False))
