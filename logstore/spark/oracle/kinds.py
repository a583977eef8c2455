"""Kinds of violation that one row cannot tell apart, told apart by the records around."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from logstore.record.json_text import bytes_item
from logstore.spark.oracle.violations import KINDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PLACE = ["topic", "partition", "offset"]

MASKED = (
    "survivor_lost",
    "tombstone_lost",
    "tail_lost",
    "min_lag_broken",
    "loser_kept",
    "tombstone_overdue",
    "aborted_kept",
    "keyless_kept",
    "key_altered",
    "value_altered",
    "headers_altered",
    "timestamp_altered",
    "timestamp_type_altered",
    "fate_altered",
    "horizon_wrong",
    "duplicated",
    "invented_record",
)
"""Those that a place shows, before and after; bit by bit in a mask."""


def told_apart(
    compared: DataFrame,
    old: DataFrame,
    new: DataFrame,
    winners: DataFrame,
    examples: int,
) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Return the counts and the first examples of what single rows show.

    Parameters
    ----------
    compared : DataFrame
        Each place with its `mask`.
    """
    wrong = compared.where(F.col("mask") != 0).persist()
    try:
        plain = wrong.withColumn(
            "kind",
            F.explode(
                F.array_compact(
                    F.array(
                        *(
                            F.when(F.col("mask").bitwiseAND(1 << at) != 0, kind)
                            for at, kind in enumerate(MASKED)
                        )
                    )
                )
            ),
        ).select("kind", *PLACE, "key", "tombstone")
        refined = ("loser_kept", "invented_record")
        named = (
            plain.where(~F.col("kind").isin(*refined))
            .unionByName(_losers(plain.where(F.col("kind") == refined[0]), new, winners))
            .unionByName(_invented(plain.where(F.col("kind") == refined[1]), old))
            .persist()
        )
        try:
            counts = {row["kind"]: row["count"] for row in named.groupBy("kind").count().collect()}
            first = Window.partitionBy("kind").orderBy(*PLACE)
            rows = (
                named.withColumn("nth", F.row_number().over(first))
                .where(F.col("nth") <= examples)
                .orderBy("kind", "nth")
                .collect()
            )
        finally:
            named.unpersist()
    finally:
        wrong.unpersist()
    return counts, [
        example(row["kind"], row["topic"], row["partition"], row["offset"], row["key"])
        for row in rows
    ]


def _losers(kept: DataFrame, new: DataFrame, winners: DataFrame) -> DataFrame:
    """Tell losers that stay beside their winner from those that stay in its place.

    With versions one may do so rightly: its winner, a tombstone whose horizon had come when the
    cleanings began (`late`), went in a pass that did not reach as far as this record, which came
    too late (cleaner §13.7).
    """
    there = new.where(F.col("copy") == 1).select(
        "topic", "partition", F.col("offset").alias("winner"), F.lit(True).alias("there")
    )
    best = winners.select(
        "topic",
        "partition",
        F.col("winning_key").alias("key"),
        F.col("offset").alias("winner"),
        "winning_tombstone",
        "winning_horizon",
        "dirty",
        "late",
        "versioned",
    )
    kind = (
        F.when(F.col("there"), "loser_kept")
        .when(F.col("winning_tombstone") & ~F.col("tombstone"), "tombstone_resurrected")
        .otherwise("wrong_winner")
    )
    was_late = (
        F.coalesce("versioned", F.lit(False))
        & F.col("there").isNull()
        & F.col("winning_tombstone")
        & F.coalesce(F.col("winning_horizon") <= F.col("late"), F.lit(False))
        & (F.col("offset") > F.greatest("winner", F.coalesce(F.col("dirty") - 1, F.lit(-1))))
    )
    return (
        kept.drop("kind")
        .join(best, ["topic", "partition", "key"], "left")
        .join(there, ["topic", "partition", "winner"], "left")
        .where(~was_late)
        .select(kind.alias("kind"), *PLACE, "key", "tombstone")
    )


def _invented(invented: DataFrame, old: DataFrame) -> DataFrame:
    """Tell records of keys that were there, in this or another partition, from quite new ones."""
    homes = (
        old.where(F.col("key").isNotNull())
        .join(invented.select("topic", "key").distinct(), ["topic", "key"], "semi")
        .groupBy("topic", "key")
        .agg(F.collect_set("partition").alias("homes"))
    )
    kind = (
        F.when(F.col("key").isNull(), "invented_record")
        .when(F.col("homes").isNull(), "invented_key")
        .when(F.array_contains("homes", F.col("partition")), "invented_record")
        .otherwise("wrong_partition")
    )
    return (
        invented.drop("kind")
        .join(homes, ["topic", "key"], "left")
        .select(kind.alias("kind"), *PLACE, "key", "tombstone")
    )


def example(
    kind: str, topic: str, partition: int, offset: int | None, key: bytes | None = None
) -> dict[str, Any]:
    """Return a violation as a verdict shows it; without an offset it is the partition's.

    The key is in `key`, or in `key_base64` if it is not UTF-8.
    """
    return {
        "kind": kind,
        "text": KINDS[kind],
        "topic": topic,
        "partition": partition,
        "offset": offset,
        **bytes_item("key", None if key is None else bytes(key)),
    }


def in_order(examples: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return examples kind by kind, each kind by place."""
    rank = list(KINDS).index
    return sorted(
        examples,
        key=lambda each: (
            rank(each["kind"]),
            each["topic"],
            each["partition"],
            -1 if each["offset"] is None else each["offset"],
        ),
    )
