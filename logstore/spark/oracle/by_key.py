"""The first look of the oracle, at sums by key: of each key exactly that is there which must be.

A sound cleaning leaves of a key its winner, and the tail. So for every key the fingerprints of what
must be there and of what is there are summed up, in one hash aggregate over both sides: no record
meets another, nothing is sorted where only offsets count. Partitions in which some key comes out
otherwise are looked at record by record (`verify`), which alone decides: here
doubt is enough. A fingerprint has 64 bits, as have the sums, which are exclusive or.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from logstore.spark.oracle.rows import (
    FORBIDDEN,
    REQUIRED,
    Orders,
    asks_horizon,
    competes,
    fixed,
    gone_early,
    in_front,
    in_tail,
    of_winner,
    order_column,
    strange_horizon,
    wrong_horizon,
    young,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_KEY = ["topic", "partition", "key"]
_AT_WINNER = ("fingerprint", "winner", "horizon")
_COUNTED = ("is_must", "is_there", "is_old", "is_front")

# Bits of `seen`: what a record says of its key and partition.
_DOUBT, _EARLY, _DISPLACED, _OVERDUE, _NOT_OVERDUE, _STRANGE = (1 << bit for bit in range(6))

# Bits of `winner`: what the winner says of itself.
_MAY, _MUST, _ASKS_HORIZON = 1, 2, 4


class Glance(NamedTuple):
    """One partition at the first look; counts of records.

    Attributes
    ----------
    before, after : int
        From the log start on.
    doubtful : bool
        Whether it must be looked at record by record.
    gone_from_front : int
        Below the log start.
    gone_early : bool
        Whether some of them were too young to go.
    overdue : bool
        Whether its tail may be one that should have been cleaned.
    displaced : bool
        Whether some record lies elsewhere than its offset says.
    """

    before: int
    after: int
    doubtful: bool
    gone_from_front: int
    gone_early: bool
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
    rows = _old(old, orders, fates=fates, horizons=horizons).unionByName(
        _new(new, fates=fates, horizons=horizons)
    )
    of_key = [
        *(F.max_by(name, "order").alias(name) for name in _AT_WINNER),
        F.bit_xor("fingerprints").alias("fingerprints"),
        *(F.sum(name).alias(name) for name in _COUNTED),
        F.bit_or("seen").alias("seen"),
        F.max("there_horizon").alias("there_horizon"),
    ]
    found = (
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
    return {(topic, partition): _glance(*row) for topic, partition, *row in found}


def _glance(before: int, after: int, front: int, wrong: bool, seen: int) -> Glance:
    return Glance(
        before,
        after,
        doubtful=wrong or bool(seen & _DOUBT),
        gone_from_front=front,
        gone_early=bool(seen & _EARLY),
        overdue=bool(seen & _OVERDUE) and not seen & _NOT_OVERDUE,
        displaced=bool(seen & _DISPLACED),
    )


def _fingerprint(*, fates: bool, horizons: bool) -> Column:
    """Return what is summed up of a record: all that must not change of it.

    In the tail that includes the horizon, which elsewhere a cleaning may give.
    """
    names = ["offset", "tombstone", "value_digest", "headers_digest", "micros", "type"]
    more = []
    # Hashing skips nulls; an open transaction is one.
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
        .withColumn("order", F.when(competes(), order_column(orders)))
        .withColumn("always", fixed())
        .withColumn("aborted", aborted)
        .withColumn("fingerprint", _fingerprint(fates=fates, horizons=horizons))
        .withColumn("must", ~F.col("front") & F.coalesce(F.col("always") == REQUIRED, F.lit(False)))
    )
    front, tail, must, tombstone = (F.col(n) for n in ("front", "tail", "must", "tombstone"))
    # Records below the log start are gone; those that must be there anyway are in the sum.
    free = ~front & F.col("always").isNull()
    says = of_winner()
    last = F.coalesce(F.col("versioned"), F.lit(False)) & (F.col("offset") == F.col("log_end") - 1)
    doubt = ~front & ~tail & (young() | F.coalesce(last & tombstone, F.lit(False)))
    overdue = F.col("micros") < F.col("overdue")
    return marked.select(
        *_KEY,
        "order",
        "fingerprint",
        _bits(
            (free & (says != FORBIDDEN), _MAY),
            (free & (says == REQUIRED), _MUST),
            (asks_horizon(tombstone), _ASKS_HORIZON),
        ).alias("winner"),
        "horizon",
        F.when(must, F.col("fingerprint")).otherwise(0).alias("fingerprints"),
        must.cast("int").alias("is_must"),
        F.lit(0).alias("is_there"),
        F.when(front, 0).otherwise(F.col("beaten") + 1).alias("is_old"),
        front.cast("int").alias("is_front"),
        _bits(
            (doubt, _DOUBT),
            (gone_early(), _EARLY),
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
            (strange_horizon(there_horizon), _STRANGE),
        ).alias("seen"),
        there_horizon.alias("there_horizon"),
    )


def _bits(*flags: tuple[Column, int]) -> Column:
    """Return a number that has the bit of each flag that is true."""
    bits = [F.when(flag, bit).otherwise(0) for flag, bit in flags]
    return reduce(lambda number, bit: number.bitwiseOR(bit), bits)


def _has(name: str, bit: int) -> Column:
    return F.coalesce(F.col(name).bitwiseAND(bit) != 0, F.lit(False))


def _is_as_expected(*, horizons: bool) -> Column:
    """Tell whether of a key exactly that is there which must be, its horizons included.

    Beside what must be there anyway that is the winner, which must be, may be or must not be there.
    """
    more, differing = F.col("is_there") - F.col("is_must"), F.col("fingerprints")
    without = (more == 0) & (differing == 0)
    with_winner = (more == 1) & (differing == F.col("fingerprint"))
    if horizons:
        there_horizon = F.col("there_horizon")
        with_winner &= ~wrong_horizon(
            F.col("horizon"),
            there_horizon,
            _has("seen", _STRANGE),
            _has("winner", _ASKS_HORIZON),
        )
        without &= there_horizon.isNull()
    return (~_has("winner", _MUST) & without) | F.coalesce(
        _has("winner", _MAY) & with_winner, F.lit(False)
    )
