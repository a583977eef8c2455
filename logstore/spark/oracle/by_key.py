"""First pass of the oracle: compare checksums by key, expected against actual.

After a correct cleaning pass, each key has its survivor plus its records in the tail. A single hash
aggregate over both sides computes checksums of the expected and the actual records of each key. It
requires no join and, if records compete by offset, no sort. If the checksums of any key differ,
`verify` compares the partition record by record, and only that comparison reports violations.
Fingerprints have 64 bits; a checksum is the exclusive or of fingerprints.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from logstore.spark.oracle.rows import (
    FORBIDDEN,
    REQUIRED,
    Orders,
    can_survive,
    fixed_expectation,
    in_front,
    in_tail,
    invalid_horizon,
    is_younger_than_lag,
    needs_horizon,
    order_column,
    removed_early,
    winner_expectation,
    wrong_horizon,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_KEY = ["topic", "partition", "key"]
_WINNER_COLUMNS = ("fingerprint", "winner", "horizon")
_COUNTED = ("is_must", "is_there", "is_old", "is_front")

# Bits of `seen`: properties of the key and the partition of a record.
_DOUBTFUL, _EARLY, _DISPLACED, _OVERDUE, _NOT_OVERDUE, _INVALID_HORIZON = (
    1 << bit for bit in range(6)
)

# Bits of `winner`: properties of the winner.
_MAY, _MUST, _NEEDS_HORIZON = 1, 2, 4


class PartitionSummary(NamedTuple):
    """The result of the first pass for a partition.

    Attributes
    ----------
    before, after : int
        Number of records at or after the log start.
    doubtful : bool
        Whether the partition must be compared record by record.
    gone_from_front : int
        Number of records below the log start.
    removed_early : bool
        Whether any of these records was too young to be removed.
    overdue : bool
        Whether the tail might exceed the maximum compaction lag.
    displaced : bool
        Whether any record is out of offset order.
    """

    before: int
    after: int
    doubtful: bool
    gone_from_front: int
    removed_early: bool
    overdue: bool
    displaced: bool


def summarize_partitions(
    old: DataFrame, new: DataFrame, orders: Orders, *, fates: bool, horizons: bool
) -> dict[tuple[str, int], PartitionSummary]:
    """Run the first pass over all partitions.

    Parameters
    ----------
    old, new : DataFrame
        Results of `old_rows` and `new_rows`.
    fates, horizons : bool
        Whether `new` has the columns `aborted` and `deleteHorizonMs`.
    """
    rows = _old(old, orders, fates=fates, horizons=horizons).unionByName(
        _new(new, fates=fates, horizons=horizons)
    )
    of_key = [
        *(F.max_by(name, "order").alias(name) for name in _WINNER_COLUMNS),
        F.bit_xor("fingerprints").alias("fingerprints"),
        *(F.sum(name).alias(name) for name in _COUNTED),
        F.bit_or("seen").alias("seen"),
        F.max("there_horizon").alias("there_horizon"),
    ]
    rows_by_partition = (
        rows.groupBy(*_KEY)
        .agg(*of_key)
        .withColumn("wrong", ~_is_as_expected(horizons=horizons))
        .groupBy("topic", "partition")
        .agg(
            *(F.sum(name).alias(name) for name in ("is_old", "is_there", "is_front")),
            F.max("wrong").alias("wrong"),
            F.bit_or("seen").alias("seen"),
        )
        .collect()
    )
    return {(topic, partition): _summary(*row) for topic, partition, *row in rows_by_partition}


def _summary(before: int, after: int, front: int, wrong: bool, seen: int) -> PartitionSummary:
    return PartitionSummary(
        before,
        after,
        doubtful=wrong or bool(seen & _DOUBTFUL),
        gone_from_front=front,
        removed_early=bool(seen & _EARLY),
        overdue=bool(seen & _OVERDUE) and not seen & _NOT_OVERDUE,
        displaced=bool(seen & _DISPLACED),
    )


def _fingerprint(*, fates: bool, horizons: bool) -> Column:
    """Return a hash of everything in a record that must not change.

    The horizon is only included in the tail, because a cleaning pass may set it elsewhere.
    """
    names = ["offset", "tombstone", "value_digest", "headers_digest", "micros", "type"]
    more = []
    # Hashing skips nulls, which represent open transactions.
    if fates:
        more.append(F.coalesce(F.col("aborted").cast("int"), F.lit(2)))
    if horizons:
        more.append(F.when(in_tail(), F.col("horizon")))
    return F.xxhash64(*names, *more)


def _old(old: DataFrame, orders: Orders, *, fates: bool, horizons: bool) -> DataFrame:
    aborted = F.when(~F.col("open"), F.col("aborted"))
    marked = (
        old.withColumn("front", in_front())
        .withColumn("tail", ~F.col("front") & in_tail())
        .withColumn("order", F.when(can_survive(), order_column(orders)))
        .withColumn("always", fixed_expectation())
        .withColumn("aborted", aborted)
        .withColumn("fingerprint", _fingerprint(fates=fates, horizons=horizons))
        .withColumn("must", ~F.col("front") & F.coalesce(F.col("always") == REQUIRED, F.lit(False)))
    )
    front, tail, must, tombstone = (F.col(n) for n in ("front", "tail", "must", "tombstone"))
    # Not below the log start and not required, because required records are in the checksum.
    free = ~front & F.col("always").isNull()
    expectation = winner_expectation()
    last = F.col("versioned") & (F.col("offset") == F.col("log_end") - 1)
    doubt = ~front & ~tail & (is_younger_than_lag() | F.coalesce(last & tombstone, F.lit(False)))
    overdue = F.col("micros") < F.col("overdue")
    return marked.select(
        *_KEY,
        "order",
        "fingerprint",
        _bits(
            (free & (expectation != FORBIDDEN), _MAY),
            (free & (expectation == REQUIRED), _MUST),
            (needs_horizon(tombstone), _NEEDS_HORIZON),
        ).alias("winner"),
        "horizon",
        F.when(must, F.col("fingerprint")).otherwise(0).alias("fingerprints"),
        must.cast("int").alias("is_must"),
        F.lit(0).alias("is_there"),
        F.when(front, 0).otherwise(F.col("superseded") + 1).alias("is_old"),
        front.cast("int").alias("is_front"),
        _bits(
            (doubt, _DOUBTFUL),
            (removed_early(), _EARLY),
            (tail & overdue, _OVERDUE),
            (tail & ~overdue, _NOT_OVERDUE),
        ).alias("seen"),
        F.lit(None).cast("bigint").alias("there_horizon"),
    )


def _new(new: DataFrame, *, fates: bool, horizons: bool) -> DataFrame:
    there_horizon = F.when(~in_tail(), F.col("horizon"))
    nothing = F.lit(None)
    return new.select(
        *_KEY,
        nothing.alias("order"),
        nothing.cast("bigint").alias("fingerprint"),
        nothing.cast("int").alias("winner"),
        nothing.cast("bigint").alias("horizon"),
        _fingerprint(fates=fates, horizons=horizons).alias("fingerprints"),
        F.lit(0).alias("is_must"),
        F.lit(1).alias("is_there"),
        F.lit(0).cast("bigint").alias("is_old"),
        F.lit(0).alias("is_front"),
        _bits(
            (F.col("displaced"), _DISPLACED),
            (invalid_horizon(there_horizon), _INVALID_HORIZON),
        ).alias("seen"),
        there_horizon.alias("there_horizon"),
    )


def _bits(*flags: tuple[Column, int]) -> Column:
    """Combine the bits whose flags are true."""
    bits = [F.when(flag, bit).otherwise(0) for flag, bit in flags]
    return reduce(lambda number, bit: number.bitwiseOR(bit), bits)


def _has(name: str, bit: int) -> Column:
    return F.coalesce(F.col(name).bitwiseAND(bit) != 0, F.lit(False))


def _is_as_expected(*, horizons: bool) -> Column:
    """Return whether a key has exactly the expected records, with correct horizons.

    These are the required records and the winner, which may be required, optional or forbidden.
    """
    more, differing = F.col("is_there") - F.col("is_must"), F.col("fingerprints")
    without = (more == 0) & (differing == 0)
    with_winner = (more == 1) & (differing == F.col("fingerprint"))
    if horizons:
        there_horizon = F.col("there_horizon")
        with_winner &= ~wrong_horizon(
            F.col("horizon"),
            there_horizon,
            _has("seen", _INVALID_HORIZON),
            _has("winner", _NEEDS_HORIZON),
        )
        without &= there_horizon.isNull()
    return (~_has("winner", _MUST) & without) | F.coalesce(
        _has("winner", _MAY) & with_winner, F.lit(False)
    )
