"""The first look of the oracle, at sums by key: of each key exactly that is there which must be.

A sound cleaning leaves of a key its winner, and the tail. So for every key the fingerprints of what
must be there and of what is there are summed up, in one hash aggregate over both sides: no record
meets another, nothing is sorted where only offsets count. Partitions in which some key comes out
otherwise are looked at record by record (`bench.workloads.verify`), which alone decides: here
doubt is enough. A fingerprint has 64 bits, as have the sums, which are exclusive or.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from bench.workloads.rows import (
    FORBIDDEN,
    OPTIONAL,
    REQUIRED,
    Orders,
    competes,
    fixed,
    gone_early,
    in_front,
    in_tail,
    of_winner,
    order_column,
    wrong_horizon,
    young,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_KEY = ["topic", "partition", "key"]
_AT_WINNER = ("fingerprint", "expected", "tombstone", "horizon")
_SUMMED = ("must", "there", "tail_horizons")
_COUNTED = ("is_must", "is_there", "doubt", "is_old", "is_front", "is_early", "is_displaced")
_RULES = ("start", "end", "dirty", "stamp_from", "stamp_to")
_EXPECTED = {FORBIDDEN: 0, OPTIONAL: 1, REQUIRED: 2}


class Glance(NamedTuple):
    """One partition at the first look; counts of records.

    Attributes
    ----------
    before, after : int
        From the log start on.
    doubtful : bool
        Whether it must be looked at record by record.
    gone_from_front, gone_early : int
        Below the log start, and those of them that were too young to go.
    overdue : bool
        Whether its tail may be one that should have been cleaned.
    displaced : bool
        Whether some record lies elsewhere than its offset says.
    """

    before: int
    after: int
    doubtful: bool
    gone_from_front: int
    gone_early: int
    overdue: bool
    displaced: bool


def glances(
    old: DataFrame, new: DataFrame, orders: Orders, *, fates: bool, horizons: bool
) -> dict[tuple[str, int], Glance]:
    """Take the first look at all partitions.

    Parameters
    ----------
    old, new : DataFrame
        Of `old_rows` and `new_rows`.
    fates, horizons : bool
        Whether the records after tell if they were aborted, and their horizons.
    """
    rows = _old(old, orders, fates).unionByName(_new(new, fates), allowMissingColumns=True)
    of_key = [
        *(F.max_by(name, "order").alias(name) for name in _AT_WINNER),
        *(F.bit_xor(name).alias(name) for name in _SUMMED),
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _COUNTED),
        F.max("there_horizon").alias("there_horizon"),
        *(F.max(name).alias(name) for name in (*_RULES, "newest", "overdue")),
    ]
    keys = rows.groupBy(*_KEY).agg(*of_key)
    late = F.max("newest") < F.max("overdue")
    found = (
        keys.withColumn("wrong", ~_is_as_expected(horizons=horizons))
        .groupBy("topic", "partition")
        .agg(
            F.sum("is_old").alias("before"),
            F.sum("is_there").alias("after"),
            F.max(F.coalesce("wrong", F.lit(True)) | (F.col("doubt") > 0)).alias("doubtful"),
            F.sum("is_front").alias("front"),
            F.sum("is_early").alias("early"),
            F.coalesce(late, F.lit(False)).alias("late"),
            (F.sum("is_displaced") > 0).alias("displaced"),
        )
        .collect()
    )
    return {(row[0], row[1]): Glance(*row[2:]) for row in found}


def _fingerprint(fates: bool) -> Column:
    names = ["offset", "tombstone", "value_digest", "headers_digest", "micros", "type"]
    # Hashing skips nulls; an open transaction is one.
    more = [F.coalesce(F.col("aborted").cast("int"), F.lit(2))] if fates else []
    return F.xxhash64(*names, *more)


def _old(old: DataFrame, orders: Orders, fates: bool) -> DataFrame:
    always, tail = fixed(), in_tail()
    aborted = F.when(~F.col("open"), F.col("aborted"))
    marked = (
        old.withColumn("front", in_front())
        .withColumn("order", F.when(competes(), order_column(orders)))
        .withColumn("aborted", aborted)
        .withColumn("fingerprint", _fingerprint(fates))
        .withColumn("aborted", F.coalesce("aborted", F.lit(False)))
    )
    must = ~F.col("front") & (always == REQUIRED)
    expected = reduce(
        lambda column, kind: column.when(of_winner() == kind, _EXPECTED[kind]),
        (OPTIONAL, REQUIRED),
        # What is below the log start is gone, and what must be there anyway is in the sum.
        F.when(F.col("front") | always.isNotNull(), _EXPECTED[FORBIDDEN]),
    ).otherwise(_EXPECTED[FORBIDDEN])
    in_range = ~F.col("front") & ~tail
    last = F.coalesce(F.col("versioned"), F.lit(False)) & (F.col("offset") == F.col("log_end") - 1)
    return marked.select(
        *_KEY,
        *_RULES,
        "overdue",
        "order",
        "fingerprint",
        expected.alias("expected"),
        F.col("tombstone").cast("int").alias("tombstone"),
        "horizon",
        F.when(must, F.col("fingerprint")).alias("must"),
        must.cast("int").alias("is_must"),
        _horizon_mark(~F.col("front") & tail).alias("tail_horizons"),
        (in_range & (young() | F.coalesce(last & F.col("tombstone"), F.lit(False))))
        .cast("int")
        .alias("doubt"),
        F.when(~F.col("front"), F.col("beaten") + 1).alias("is_old"),
        F.col("front").cast("int").alias("is_front"),
        gone_early().cast("int").alias("is_early"),
        F.when(~F.col("front") & tail, F.col("micros")).alias("newest"),
    )


def _new(new: DataFrame, fates: bool) -> DataFrame:
    tail = in_tail()
    return new.select(
        *_KEY,
        *_RULES,
        _fingerprint(fates).alias("there"),
        F.lit(1).alias("is_there"),
        F.col("displaced").cast("int").alias("is_displaced"),
        F.when(~tail, F.col("horizon")).alias("there_horizon"),
        _horizon_mark(tail).alias("tail_horizons"),
    )


def _horizon_mark(where: Column) -> Column:
    """Return what is summed up to compare the horizons of tails, which mostly have none."""
    return F.when(where & F.col("horizon").isNotNull(), F.xxhash64("offset", "horizon"))


def _is_as_expected(*, horizons: bool) -> Column:
    """Tell whether of a key exactly that is there which must be, its horizons included."""
    must, there = (F.coalesce(name, F.lit(0).cast("bigint")) for name in ("must", "there"))
    expected = F.coalesce("expected", F.lit(0))
    without = (F.col("is_there") == F.col("is_must")) & (there == must)
    with_winner = (F.col("is_there") == F.col("is_must") + 1) & (
        there == must.bitwiseXOR(F.col("fingerprint"))
    )
    if horizons:
        marked = F.coalesce("tail_horizons", F.lit(0).cast("bigint")) == 0
        with_winner &= marked & ~wrong_horizon(
            F.col("horizon"), F.col("there_horizon"), F.lit(False), F.col("tombstone") == 1, ""
        )
        without &= marked & F.col("there_horizon").isNull()
    return F.coalesce(((expected < 2) & without) | ((expected > 0) & with_winner), F.lit(False))
