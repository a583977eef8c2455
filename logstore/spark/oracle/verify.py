"""Verify a cleaning pass by comparing DataFrames of the records before and after.

The oracle does not use segments, offset maps or the cleaner's code. From the records before
cleaning, the strategy and the cleaned range, it derives which records are required, optional or
forbidden after cleaning, and counts violations by kind. It compares keys byte by byte, and other
columns by their 64-bit xxhash64. It shares the reader with the engine, but not the rules. Source:
docs/spec/cleaner.md §2.2, §2.4, §8 and §13.

A single hash aggregate by key over both sides (`by_key`) finds the partitions in which all keys are
as expected. Superseded records may be omitted from its input (`scan`). The other partitions are
compared record by record: a shuffle by key finds the winners, and a shuffle by offset compares. If
there are violations, an additional query classifies them and fetches examples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StringType, StructField, StructType
from pyspark.sql.window import Window

from logstore.spark.oracle.by_key import summarize_partitions
from logstore.spark.oracle.kinds import (
    MASKED,
    RECORD_ID,
    classify_violations,
    example,
    sort_examples,
)
from logstore.spark.oracle.order import RecordId, records_out_of_order
from logstore.spark.oracle.rows import (
    FORBIDDEN,
    REQUIRED,
    CleanedRanges,
    Orders,
    build_ranges,
    can_survive,
    fixed_expectation,
    in_front,
    in_tail,
    invalid_horizon,
    is_younger_than_lag,
    needs_horizon,
    new_rows,
    old_rows,
    order_column,
    removed_early,
    small_table,
    superseded_expectation,
    winner_expectation,
    wrong_horizon,
)
from logstore.spark.oracle.rules import Cleaned, Rules, StartState
from logstore.spark.oracle.versions import OFFSET
from logstore.spark.oracle.violations import KINDS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ("EXAMPLES", "Cleaned", "Rules", "StartState", "Verdict", "verify")

EXAMPLES = 10
"""Number of examples per kind of violation in a verdict."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a cleaning pass.

    Attributes
    ----------
    violations : dict
        Number of violations by kind (see `KINDS`).
    examples : list of dict
        The first examples of each kind, ordered by topic, partition and offset. Fields: kind, text,
        topic, partition, offset (None for an entire partition), and key or key_base64.
    records_before, records_after : int
        Number of records at or after the log start offset.
    notes : tuple of str
        Why checks were skipped.
    gone_from_front : int
        Number of old records below the new log start. They are not compared, because retention or
        delete-records removed them.
    unproven : tuple of str
        Rules that were not checked: `tombstones`, `lags`, `retention`.
    """

    violations: dict[str, int]
    examples: list[dict[str, Any]]
    records_before: int
    records_after: int
    notes: tuple[str, ...] = ()
    gone_from_front: int = 0
    unproven: tuple[str, ...] = ()

    @classmethod
    def of(cls, verdicts: Sequence[Verdict], *, examples: int = EXAMPLES) -> Verdict:
        """Merge the verdicts on different partitions."""
        counts = Counter[str]()
        shown: list[dict[str, Any]] = []
        for one in verdicts:
            counts.update(one.violations)
        for kind in KINDS:
            rows = [e for verdict in verdicts for e in verdict.examples if e["kind"] == kind]
            shown += sort_examples(rows)[:examples]
        return cls(
            {kind: counts[kind] for kind in KINDS if counts[kind]},
            shown,
            sum(verdict.records_before for verdict in verdicts),
            sum(verdict.records_after for verdict in verdicts),
            tuple(dict.fromkeys(note for verdict in verdicts for note in verdict.notes)),
            sum(verdict.gone_from_front for verdict in verdicts),
            tuple(dict.fromkeys(name for verdict in verdicts for name in verdict.unproven)),
        )

    @property
    def ok(self) -> bool:
        """Whether no violations were found."""
        return not self.violations

    def as_json(self) -> dict[str, Any]:
        """Return the JSON that the command prints."""
        return {
            "ok": self.ok,
            "violations": self.violations,
            "examples": self.examples,
            "records_before": self.records_before,
            "records_after": self.records_after,
            "gone_from_front": self.gone_from_front,
            "unproven": list(self.unproven),
            "notes": list(self.notes),
        }


def verify(
    before: DataFrame,
    after: DataFrame,
    rules: Rules | Mapping[tuple[str, int], Rules],
    cleaned: CleanedRanges,
    *,
    begun: Mapping[tuple[str, int], StartState] | None = None,
    order: DataFrame | None = None,
    folded: DataFrame | None = None,
    examples: int = EXAMPLES,
) -> Verdict:
    """Compare the records after a cleaning pass with the expected records.

    Parameters
    ----------
    before : DataFrame
        All data records, including aborted ones, with the columns of Spark's Kafka source. Optional
        columns are `aborted` (boolean, null while the transaction is open) and `deleteHorizonMs`
        (bigint, horizon of the batch or null). On both sides `valueDigest` and `headersDigest` may
        replace value and headers, except for headers that contain versions.
    after : DataFrame
        Records after cleaning, with the same columns. `aborted` and `deleteHorizonMs` are compared
        if they exist. Rows of a partition must be in log order, as the data source returns them.
    rules : Rules or mapping
        Rules, or rules by (topic, partition) for each partition in `cleaned`.
    cleaned : mapping
        Cleaned ranges by (topic, partition). Partitions without a range must be unchanged.
    begun : mapping, optional
        States before cleaning. A partition without a state was cleaned for the first time.
    order : DataFrame, optional
        Topic, partition and offset of `after` in log order, from a cheaper scan. If `after` has a
        column `displaced` (boolean, whether a record is out of offset order), it is used only if
        any record is displaced.
    folded : DataFrame, optional
        `before` without superseded records, for the first pass (see `scan`).
    examples : int
        Maximum number of examples per kind.

    Notes
    -----
    Tombstones whose horizon cannot have passed are required. With the offset strategy, tombstones
    with a horizon at or before `since_ms` are forbidden. All other tombstones are optional,
    including expired ones with a version strategy, which may be retained for other reasons. Records
    of aborted transactions after the cleaned range are optional if their segment was rewritten.
    """
    begun = begun or {}
    rules_by_partition = rules if isinstance(rules, Mapping) else dict.fromkeys(cleaned, rules)
    orders = Orders.of(rules_by_partition)
    ranges = build_ranges(before, rules_by_partition, cleaned, begun)
    old = old_rows(before, ranges, orders)
    first = old if folded is None else old_rows(folded, ranges, orders)
    new = new_rows(after, ranges)
    if any(
        partition in begun
        and begun[partition].log_start_offset < each.log_start_offset
        and rules_by_partition[partition].strategy != OFFSET
        for partition, each in cleaned.items()
    ):
        # With version strategies, `folded` omits nothing, so the winners are the same.
        winners = _winners(first, orders)
        old, first = _mark_uncertain(old, winners), _mark_uncertain(first, winners)
    summaries = summarize_partitions(
        first,
        new,
        orders,
        fates="aborted" in after.columns,
        horizons="deleteHorizonMs" in after.columns,
    )
    counts: dict[str, int] = {}
    shown: list[dict[str, Any]] = []
    doubtful = [partition for partition, each in summaries.items() if each.doubtful]
    if doubtful:
        table = _partition_table(before, doubtful)
        counts, shown = _compare_records(old, new, table, orders, examples)
    overdue = [partition for partition, each in summaries.items() if each.overdue]
    disorder: tuple[int, list[RecordId]] = (0, [])
    if "displaced" not in after.columns or any(each.displaced for each in summaries.values()):
        disorder = records_out_of_order(after if order is None else order, examples)
    early: Violations = (0, [])
    if any(each.removed_early for each in summaries.values()):
        early = _removed_early(old, examples)
    for kind, count, records in (
        ("out_of_order", *disorder),
        ("max_lag_broken", *_overdue(old, overdue)),
        ("retention_early", *early),
    ):
        counts[kind] = count
        shown += [example(kind, *record) for record in records]
    return Verdict(
        violations={kind: counts[kind] for kind in KINDS if counts.get(kind)},
        examples=sort_examples(shown),
        records_before=sum(each.before for each in summaries.values()),
        records_after=sum(each.after for each in summaries.values()),
        gone_from_front=sum(each.gone_from_front for each in summaries.values()),
    )


def _partition_table(frame: DataFrame, partitions: Iterable[tuple[str, int]]) -> DataFrame:
    schema = StructType(
        [StructField("topic", StringType()), StructField("partition", IntegerType())]
    )
    return small_table(frame.sparkSession, partitions, schema)


def _within(frame: DataFrame, partitions: DataFrame) -> DataFrame:
    return frame.join(partitions, ["topic", "partition"], "semi")


# --- record by record -------------------------------------------------------------------------


def _compare_records(
    old: DataFrame, new: DataFrame, partitions: DataFrame, orders: Orders, examples: int
) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Compare partitions record by record, and return counts and examples of violations."""
    before = _within(old, partitions)
    by_content = Window.partitionBy(*RECORD_ID).orderBy(
        "value_digest", "headers_digest", "micros", "key"
    )
    after = _within(new, partitions).withColumn("copy", F.row_number().over(by_content))
    winners = _winners(before, orders)
    compared = _compared(before.where(~in_front()), after, winners)
    masks = compared.groupBy("mask").count().collect()
    if not any(row["mask"] for row in masks):
        return {}, []
    return classify_violations(compared, old.where(~in_front()), after, winners, examples)


def _winners(old: DataFrame, orders: Orders) -> DataFrame:
    """Return the record of each key that compaction keeps."""
    best = (
        old.where(can_survive())
        .groupBy("topic", "partition", F.col("key").alias("winning_key"))
        .agg(F.max(order_column(orders)).alias("best"))
    )
    offset = F.col("best.offset") if orders.versioned else F.col("best")
    return best.select("topic", "partition", offset.alias("offset"), "winning_key").join(
        old.select(
            *RECORD_ID,
            F.col("tombstone").alias("winning_tombstone"),
            F.col("horizon").alias("winning_horizon"),
            "start",
            "dirty",
            "versioned",
            F.coalesce("since", "now").alias("late"),
        ),
        RECORD_ID,
    )


def _mark_uncertain(old: DataFrame, winners: DataFrame) -> DataFrame:
    """Mark records whose winner was removed at the log start, possibly before the pass."""
    gone = winners.where(F.col("versioned") & (F.col("offset") < F.col("start"))).select(
        "topic", "partition", F.col("winning_key").alias("key"), F.lit(True).alias("is_gone")
    )
    return (
        old.drop("uncertain")
        .join(gone, ["topic", "partition", "key"], "left")
        .withColumn("uncertain", F.coalesce("is_gone", F.lit(False)))
        .drop("is_gone")
    )


def _compared(old: DataFrame, new: DataFrame, winners: DataFrame) -> DataFrame:
    """Return the records of both sides, with a bit in `mask` for each kind of violation."""
    wins = F.col("w.winning_key").isNotNull()
    expected = F.coalesce(
        fixed_expectation("b."),
        F.when(wins, winner_expectation("b.")).otherwise(superseded_expectation("b.")),
    )
    judged = (
        old.alias("b")
        .join(winners.select(*RECORD_ID, "winning_key").alias("w"), RECORD_ID, "left")
        .select("b.*", expected.alias("expected"), "w.winning_key")
    )
    both = judged.alias("b").join(
        new.alias("a"),
        [F.col(f"b.{name}") == F.col(f"a.{name}") for name in RECORD_ID],
        "full_outer",
    )
    conditions = _conditions()
    mask = reduce(
        lambda total, bit: total.bitwiseOR(bit),
        (F.when(conditions[kind], 1 << at).otherwise(0) for at, kind in enumerate(MASKED)),
    )
    return both.select(
        *(F.coalesce(f"a.{name}", f"b.{name}").alias(name) for name in (*RECORD_ID, "key")),
        F.coalesce("a.tombstone", "b.tombstone").alias("tombstone"),
        mask.alias("mask"),
    )


def _conditions() -> dict[str, Column]:
    """Return the condition of each kind of violation that is visible in a single row."""
    tail, tombstone = in_tail("b."), F.col("b.tombstone")
    in_before, in_after = F.col("b.offset").isNotNull(), F.col("a.offset").isNotNull()
    required = F.col("b.expected") == REQUIRED
    lost = ~in_after & required
    kept = (F.col("b.expected") == FORBIDDEN) & (F.col("a.copy") == 1)
    aborted, keyless = F.col("b.aborted"), F.col("b.key").isNull()
    loses = F.col("b.winning_key").isNull()

    def differs(*names: str) -> Column:
        same = [F.col(f"a.{name}").eqNullSafe(F.col(f"b.{name}")) for name in names]
        return in_before & in_after & ~reduce(lambda left, right: left & right, same)

    return {
        "survivor_lost": lost & ~tail & ~tombstone,
        "tombstone_lost": lost & ~tail & tombstone,
        "tail_lost": lost & tail,
        "min_lag_broken": ~in_after & ~required & is_younger_than_lag("b."),
        "loser_kept": kept & ~aborted & ~keyless & loses,
        "tombstone_overdue": kept & ~aborted & ~loses,
        "aborted_kept": kept & aborted,
        "keyless_kept": kept & ~aborted & keyless,
        "key_altered": differs("key"),
        "value_altered": differs("tombstone", "value_digest"),
        "headers_altered": differs("headers_digest"),
        "timestamp_altered": differs("micros"),
        "timestamp_type_altered": differs("type"),
        # An open transaction may have ended since then.
        "fate_altered": F.col("a.has_aborted") & ~F.col("b.open") & differs("aborted"),
        # Forbidden records have already been reported.
        "horizon_wrong": F.col("a.has_horizon")
        & (F.col("b.expected") != FORBIDDEN)
        & wrong_horizon(
            F.col("b.horizon"),
            F.col("a.horizon"),
            invalid_horizon(F.col("a.horizon"), "b."),
            ~tail & needs_horizon(tombstone & F.col("a.tombstone"), "b."),
        ),
        "duplicated": F.col("a.copy") > 1,
        "invented_record": ~in_before & (F.col("a.copy") == 1),
    }


# --- lags and retention -----------------------------------------------------------------------

Violations = tuple[int, list[tuple[str, int, int, bytes | None]]]
"""A count, and examples as (topic, partition, offset, key)."""


def _overdue(old: DataFrame, partitions: Sequence[tuple[str, int]]) -> Violations:
    """Count records in tails all of whose records exceed the maximum compaction lag.

    The cleaner uses the largest timestamp in the first batch of a segment, so a tail with a younger
    record need not be due. Tails are skipped if they have non-positive timestamps, or aborted or
    open records, because an open transaction delays cleaning of everything after it. Logs that were
    not cleaned are skipped as well.
    """
    if not partitions:
        return 0, []
    was_cleaned = F.col("end").isNotNull() & F.coalesce(F.col("end") > F.col("dirty"), F.lit(True))
    tails = (
        _within(old, _partition_table(old, partitions))
        .where(in_tail() & ~in_front() & was_cleaned)
        .groupBy("topic", "partition", "overdue")
        .agg(
            F.max("micros").alias("newest"),
            F.min("micros").alias("oldest"),
            F.max(F.col("aborted") | F.col("open")).alias("open"),
            F.count("*").alias("records"),
            F.min(F.struct("offset", "key")).alias("first"),
        )
        .where((F.col("newest") < F.col("overdue")) & (F.col("oldest") > 0) & ~F.col("open"))
        .orderBy("topic", "partition")
        .collect()
    )
    records = [
        (row["topic"], row["partition"], row["first"]["offset"], row["first"]["key"])
        for row in tails
    ]
    return sum(row["records"] for row in tails), records


def _removed_early(old: DataFrame, examples: int) -> Violations:
    """Count records removed at the log start before `retention.ms` had passed."""
    gone = old.where(removed_early())
    rows = gone.select(*RECORD_ID, "key").orderBy(*RECORD_ID).limit(examples).collect()
    return gone.count(), [tuple(row) for row in rows]
