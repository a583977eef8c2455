"""Classification of violations by a record and the other records of its key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from logstore.record.json_text import bytes_item
from logstore.spark.oracle.violations import KINDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORD_ID = ["topic", "partition", "offset"]

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
"""Kinds visible in a single record before and after; the bits of `mask`."""


def classify_violations(
    compared: DataFrame,
    old: DataFrame,
    new: DataFrame,
    winners: DataFrame,
    examples: int,
) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Return counts and the first examples of violations in single records.

    Parameters
    ----------
    compared : DataFrame
        Each record with its `mask`.
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
        ).select("kind", *RECORD_ID, "key", "tombstone")
        refined = ("loser_kept", "invented_record")
        named = (
            plain.where(~F.col("kind").isin(*refined))
            .unionByName(
                _classify_superseded(plain.where(F.col("kind") == refined[0]), new, winners)
            )
            .unionByName(_classify_invented(plain.where(F.col("kind") == refined[1]), old))
            .persist()
        )
        try:
            counts = {row["kind"]: row["count"] for row in named.groupBy("kind").count().collect()}
            first = Window.partitionBy("kind").orderBy(*RECORD_ID)
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


def _classify_superseded(kept: DataFrame, new: DataFrame, winners: DataFrame) -> DataFrame:
    """Classify superseded records that were retained, with or instead of their winner.

    With versions, the latter may be correct: if the winner is a tombstone whose horizon had passed
    before (`late`), a pass may have removed it without reaching this later record
    (docs/spec/cleaner.md §13.7).
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
        .select(kind.alias("kind"), *RECORD_ID, "key", "tombstone")
    )


def _classify_invented(invented: DataFrame, old: DataFrame) -> DataFrame:
    """Classify unexpected records by whether their key existed in this or another partition."""
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
        .select(kind.alias("kind"), *RECORD_ID, "key", "tombstone")
    )


def example(
    kind: str, topic: str, partition: int, offset: int | None, key: bytes | None = None
) -> dict[str, Any]:
    """Return an example of a violation. Without an offset, it is about the entire partition.

    Keys that are not UTF-8 are in `key_base64` instead of `key`.
    """
    return {
        "kind": kind,
        "text": KINDS[kind],
        "topic": topic,
        "partition": partition,
        "offset": offset,
        **bytes_item("key", None if key is None else bytes(key)),
    }


def sort_examples(examples: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort examples by kind, topic, partition and offset."""
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
