"""Rows of the oracle: what it compares of a record, in columns of fixed width, and its rules."""

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

from logstore.spark.oracle.kinds import PLACE
from logstore.spark.oracle.rules import Begin, Cleaned, Rules
from logstore.spark.oracle.versions import HEADER, OFFSET, version_of
from logstore.types import INT64_MAX

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Places = Mapping[tuple[str, int], Cleaned]

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
"""Of the broadcast ranges; `young`, `overdue` and `retained` are limits in microseconds."""


class Orders(NamedTuple):
    """The ways in which records of the partitions compete, numbered as in `order_by`."""

    rules: tuple[tuple[str, str, str], ...]

    @classmethod
    def of(cls, rules: Mapping[tuple[str, int], Rules]) -> Orders:
        """Return those of some rules."""
        return cls(tuple(dict.fromkeys(rule.order for rule in rules.values())))

    @property
    def versioned(self) -> bool:
        """Whether anything but offsets counts anywhere."""
        return any(strategy != OFFSET for strategy, _, _ in self.rules)

    @property
    def needs_headers(self) -> bool:
        """Whether some version stands in a header."""
        return any(strategy == HEADER for strategy, _, _ in self.rules)

    def versions(self) -> tuple[Column, Column]:
        """Return whether a record states a version, and which, by the rules of its partition."""
        present, version = F.lit(False), F.lit(0).cast("bigint")
        for number, order in enumerate(self.rules):
            here = F.col("order_by") == number
            stated, number_stated = version_of(*order)
            present = F.when(here, stated).otherwise(present)
            version = F.when(here & stated, number_stated).otherwise(version)
        return F.coalesce(present, F.lit(False)), F.coalesce(version, F.lit(0))


def ranges_of(
    frame: DataFrame,
    rules: Mapping[tuple[str, int], Rules],
    cleaned: Places,
    begun: Mapping[tuple[str, int], Begin],
) -> DataFrame:
    """Return what was cleaned of each partition, and its rules, as a table to be broadcast."""
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
    """Return rows of the driver as a table to be broadcast.

    As an Arrow table they go to the JVM as they are; rows of Python would be made in a job, by
    Python workers that serve nothing else.
    """
    named = [dict(zip(schema.names, row, strict=True)) for row in rows]
    table = pa.Table.from_pylist(named, schema=to_arrow_schema(schema))
    return F.broadcast(spark.createDataFrame(table))


def _limit(now_ms: int, age_ms: int | None) -> int | None:
    """Return the time, in microseconds, of a record that is just so old."""
    return None if age_ms is None else _within_int64((now_ms - age_ms) * 1000)


def _within_int64(number: int) -> int:
    """Return a sum or a product as near as a column can have it: durations may be endless."""
    return max(-INT64_MAX, min(number, INT64_MAX))


def old_rows(before: DataFrame, ranges: DataFrame, orders: Orders) -> DataFrame:
    """Return the records before, those included that were removed from the front since.

    Where `scan` left some out, those that stay speak for them.
    """
    aborted = _column(before, "aborted", F.lit(False))
    rows = _contents(
        before,
        ranges,
        F.coalesce(aborted, F.lit(False)).alias("aborted"),
        aborted.isNull().alias("open"),
        *(["headers"] if orders.needs_headers else []),
        "timestamp",
        _column(before, "beaten", F.lit(0).cast("bigint")).alias("beaten"),
        _column(before, "beatenNewest", F.lit(None).cast("bigint")).alias("beaten_newest"),
        start=("oldest", "start"),
    )
    present, version = orders.versions()
    return (
        rows.withColumn("present", present)
        .withColumn("version", version)
        .withColumn("faded", F.lit(False))
        .drop("headers", "timestamp")
    )


def new_rows(after: DataFrame, ranges: DataFrame) -> DataFrame:
    """Return the records after, from the log start on."""
    # Without the columns nothing is said of it; null is an open transaction.
    told = [F.lit(name in after.columns) for name in ("aborted", "deleteHorizonMs")]
    return _contents(
        after,
        ranges,
        _column(after, "aborted", F.lit(None).cast("boolean")).alias("aborted"),
        told[0].alias("told"),
        told[1].alias("stamped"),
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
                # Hashing skips nulls, so whether one was there is hashed in its place.
                lambda each: F.struct(each["key"], each["value"].isNull(), each["value"]),
            )
        )
    picked = frame.select(
        *PLACE,
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


# --- what the rules say of a record -----------------------------------------------------------


def in_tail(prefix: str = "") -> Column:
    """Tell whether a record lies beyond the cleaned range."""
    return F.col(f"{prefix}offset") >= F.coalesce(F.col(f"{prefix}end"), F.lit(0))


def in_front() -> Column:
    """Tell whether a record lies below the log start after."""
    return F.col("offset") < F.coalesce("start", F.lit(0))


def gone_early() -> Column:
    """Tell whether a record lies below the log start though it was not old enough to go."""
    return in_front() & F.coalesce(F.col("micros") >= F.col("retained"), F.lit(False))


def competes() -> Column:
    """Tell whether a record can win its key."""
    return ~F.col("aborted") & F.col("key").isNotNull() & ~in_tail()


def order_column(orders: Orders) -> Column:
    """Return by what records compete: a number where only offsets count, which hashes faster."""
    return F.struct("present", "version", "offset") if orders.versioned else F.col("offset")


def fixed(prefix: str = "") -> Column:
    """Return whether a record is required, optional or forbidden whoever wins; else null."""

    def col(name: str) -> Column:
        return F.col(prefix + name)

    tail = in_tail(prefix)
    return (
        F.when(tail & col("aborted") & _rewritten(prefix), OPTIONAL)
        .when(tail, REQUIRED)
        .when(col("aborted"), of_loser(prefix))
        .when(_flag(f"{prefix}versioned") & (col("offset") == col("log_end") - 1), REQUIRED)
        .when(col("faded"), OPTIONAL)
        .when(col("key").isNull(), of_loser(prefix))
    )


def of_winner(prefix: str = "") -> Column:
    """Return whether a record is required, optional or forbidden if it wins its key."""
    horizon, since = F.col(f"{prefix}horizon"), F.col(f"{prefix}since")
    earliest = F.when(since.isNull(), horizon).otherwise(
        F.coalesce(horizon, F.col(f"{prefix}stamp_from"))
    )
    overdue = F.coalesce(horizon <= since, F.lit(False))
    return (
        F.when(~F.col(f"{prefix}tombstone"), REQUIRED)
        .when(F.coalesce(F.col(f"{prefix}now") < earliest, F.lit(False)), REQUIRED)
        .when(overdue & ~_flag(f"{prefix}versioned"), FORBIDDEN)
        .otherwise(OPTIONAL)
    )


def of_loser(prefix: str = "") -> Column:
    """Return that a record which lost is forbidden, or optional in what had been clean before."""
    was_clean = F.col(f"{prefix}end") <= F.col(f"{prefix}dirty")
    return F.when(F.coalesce(was_clean, F.lit(False)), OPTIONAL).otherwise(FORBIDDEN)


def young(prefix: str = "") -> Column:
    """Tell whether a record is so young that no cleaning may have removed it.

    What was clean already was so for reasons of its own: other lags, or a forced cleaning.
    """
    col = F.col
    dirty = col(f"{prefix}offset") >= F.coalesce(f"{prefix}dirty", F.lit(0))
    newest = F.greatest(f"{prefix}micros", f"{prefix}beaten_newest")
    return F.coalesce(newest > col(f"{prefix}young"), F.lit(False)) & dirty


def wrong_horizon(old: Column, new: Column, strange: Column, asked: Column) -> Column:
    """Tell whether a record that stays bears a horizon that no cleaning gives (KIP-534).

    A horizon that was there stays.

    Parameters
    ----------
    strange, asked : Column
        If there was none: `strange_horizon` of what is there, and whether one must be there.
    """
    return F.when(old.isNotNull(), ~old.eqNullSafe(new)).otherwise(strange | (new.isNull() & asked))


def strange_horizon(horizon: Column, prefix: str = "") -> Column:
    """Tell whether a batch cannot have got its horizon in a cleaning of the range.

    It is `delete.retention.ms` after the cleaning began.
    """
    stamped = horizon.between(F.col(f"{prefix}stamp_from"), F.col(f"{prefix}stamp_to"))
    return horizon.isNotNull() & ~(_rewritten(prefix) & F.coalesce(stamped, F.lit(True)))


def asks_horizon(tombstone: Column, prefix: str = "") -> Column:
    """Tell whether a record of the range must have a horizon by now.

    A tombstone must, unless its partition had been clean before, and so perhaps was not rewritten.
    """
    end, dirty = F.col(f"{prefix}end"), F.col(f"{prefix}dirty")
    return tombstone & F.coalesce(end > dirty, F.lit(True))


def _rewritten(prefix: str) -> Column:
    return F.coalesce(F.col(f"{prefix}end") > F.col(f"{prefix}start"), F.lit(False))


def _flag(name: str) -> Column:
    return F.coalesce(F.col(name), F.lit(False))
