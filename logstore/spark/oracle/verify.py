"""Was a cleaning right? An oracle over the records before and after, in DataFrame operations.

It knows nothing of segments, maps or the cleaner's code: from the records that were there, the
strategy and the range that was cleaned follow the records that must be there, may be there and
must not. Whatever differs is named and counted. Contents are compared by 64 bits of xxhash64 a
column, keys byte by byte. It shares the reader with the engine, not the rules. Source:
docs/spec/cleaner.md §2.2, §2.4, §8 and §13.

One pass over both sides with a hash aggregate by key (`by_key`) tells the
partitions in which every key came out exactly as it must from the others; it may be given a scan
that leaves out what later records beat (`scan`). The others are looked at record
by record: one shuffle by key finds the winners, one by offset compares; and a third query tells
the kinds apart and fetches examples if something is wrong.
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

from logstore.spark.oracle.by_key import glances
from logstore.spark.oracle.kinds import MASKED, PLACE, example, in_order, told_apart
from logstore.spark.oracle.order import Place, records_out_of_order
from logstore.spark.oracle.rows import (
    FORBIDDEN,
    REQUIRED,
    Orders,
    Places,
    asks_horizon,
    competes,
    fixed,
    gone_early,
    in_front,
    in_tail,
    new_rows,
    of_loser,
    of_winner,
    old_rows,
    order_column,
    ranges_of,
    small_table,
    strange_horizon,
    wrong_horizon,
    young,
)
from logstore.spark.oracle.rules import Begin, Cleaned, Rules
from logstore.spark.oracle.versions import OFFSET
from logstore.spark.oracle.violations import KINDS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ("EXAMPLES", "Begin", "Cleaned", "Rules", "Verdict", "verify")

EXAMPLES = 10
"""Examples of each kind of violation in a verdict."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a cleaning.

    Attributes
    ----------
    violations : dict
        Count of each kind of `KINDS` that occurred.
    examples : list of dict
        The first of each kind by topic, partition and offset: kind, text, topic, partition,
        offset (None if the partition is meant) and key (hexadecimal, None if null).
    records_before, records_after : int
        From the log start offset on.
    notes : tuple of str
        What could not be judged, and why.
    gone_from_front : int
        Records before that lie below the log start after: retention or delete-records took them,
        so that no cleaning can be judged by them.
    unproven : tuple of str
        Which of `tombstones`, `lags` and `retention` were not judged.
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
        """Return what verdicts on different partitions say together."""
        counts = Counter[str]()
        shown: list[dict[str, Any]] = []
        for one in verdicts:
            counts.update(one.violations)
        for kind in KINDS:
            rows = [e for verdict in verdicts for e in verdict.examples if e["kind"] == kind]
            shown += in_order(rows)[:examples]
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
        """Whether nothing was found."""
        return not self.violations

    def as_json(self) -> dict[str, Any]:
        """Return the object of the command's JSON."""
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
    cleaned: Places,
    *,
    begun: Mapping[tuple[str, int], Begin] | None = None,
    order: DataFrame | None = None,
    folded: DataFrame | None = None,
    examples: int = EXAMPLES,
) -> Verdict:
    """Compare the records after a cleaning with what must follow from those before it.

    Parameters
    ----------
    before : DataFrame
        Columns of the Kafka source: every data record, those of aborted transactions included.
        If there, `aborted` (boolean, null where a transaction is open)
        and `deleteHorizonMs` (bigint: horizon of the record's batch, null if it has none) are
        taken into account; without the latter no batch has a horizon. `valueDigest` and
        `headersDigest` stand instead of value and headers, if both sides have them; headers that
        bear versions must be there.
    after : DataFrame
        The same, and `aborted` and `deleteHorizonMs` if these are to be compared. The order of its
        rows must be that of the log in each partition, as the data source gives them.
    rules : Rules or mapping
        Of all partitions, or by (topic, partition) of each that is in `cleaned`.
    cleaned : mapping
        By (topic, partition); a partition that is not named must not have changed.
    begun : mapping, optional
        Where the cleanings began; without it everything named was cleaned for the first time.
    order : DataFrame, optional
        Topic, partition and offset of `after` once more, in the order of the log, if it can be
        had without the rest. If `after` has `displaced` (boolean: a record lies elsewhere than its
        offset says), it is looked at only where that is true of some record.
    folded : DataFrame, optional
        `before` once more, without records that others beat (`scan`): enough for
        the first look.
    examples : int
        Of each kind, at most.

    Notes
    -----
    Tombstones: one whose horizon cannot have come must be there; one with a horizon at or before
    `since_ms` must be gone under the offset strategy; anything between may go either way, as may
    an expired one under a version strategy, which has further reasons to keep it. Records of
    aborted transactions beyond the cleaned range may be gone: their segment was rewritten.
    """
    begun = begun or {}
    by_place = rules if isinstance(rules, Mapping) else dict.fromkeys(cleaned, rules)
    orders = Orders.of(by_place)
    ranges = ranges_of(before, by_place, cleaned, begun)
    old = old_rows(before, ranges, orders)
    first = old if folded is None else old_rows(folded, ranges, orders)
    new = new_rows(after, ranges)
    if any(
        place in begun
        and begun[place].log_start_offset < each.log_start_offset
        and by_place[place].strategy != OFFSET
        for place, each in cleaned.items()
    ):
        # Nothing is left out where versions count: the winners are the same.
        winners = _winners(first, orders)
        old, first = _faded(old, winners), _faded(first, winners)
    told = {"fates": "aborted" in after.columns, "horizons": "deleteHorizonMs" in after.columns}
    found = glances(first, new, orders, **told)
    counts: dict[str, int] = {}
    shown: list[dict[str, Any]] = []
    doubtful = [place for place, each in found.items() if each.doubtful]
    if doubtful:
        here = _places(before, doubtful)
        counts, shown = _record_by_record(old, new, here, orders, examples)
    early = [place for place, each in found.items() if each.gone_early]
    overdue = [place for place, each in found.items() if each.overdue]
    disorder: tuple[int, list[Place]] = (0, [])
    if "displaced" not in after.columns or any(each.displaced for each in found.values()):
        disorder = records_out_of_order(after if order is None else order, examples)
    for kind, more, where in (
        ("out_of_order", *disorder),
        ("max_lag_broken", *_overdue(old, overdue)),
        ("retention_early", *_gone_early(old, early, examples)),
    ):
        counts[kind] = more
        shown += [example(kind, *place) for place in where]
    return Verdict(
        violations={kind: counts[kind] for kind in KINDS if counts.get(kind)},
        examples=in_order(shown),
        records_before=sum(each.before for each in found.values()),
        records_after=sum(each.after for each in found.values()),
        gone_from_front=sum(each.gone_from_front for each in found.values()),
    )


def _places(frame: DataFrame, places: Iterable[tuple[str, int]]) -> DataFrame:
    schema = StructType(
        [StructField("topic", StringType()), StructField("partition", IntegerType())]
    )
    return small_table(frame.sparkSession, places, schema)


def _within(frame: DataFrame, places: DataFrame) -> DataFrame:
    return frame.join(places, ["topic", "partition"], "semi")


# --- record by record -------------------------------------------------------------------------


def _record_by_record(
    old: DataFrame, new: DataFrame, places: DataFrame, orders: Orders, examples: int
) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Return the counts and examples of what the records of some partitions show."""
    here = _within(old, places)
    by_content = Window.partitionBy(*PLACE).orderBy(
        "value_digest", "headers_digest", "micros", "key"
    )
    there = _within(new, places).withColumn("copy", F.row_number().over(by_content))
    winners = _winners(here, orders)
    compared = _compared(here.where(~in_front()), there, winners)
    found = compared.groupBy("mask").count().collect()
    if not any(row["mask"] for row in found):
        return {}, []
    return told_apart(compared, old.where(~in_front()), there, winners, examples)


def _winners(old: DataFrame, orders: Orders) -> DataFrame:
    """Return of each key the record that wins among those that were compared."""
    best = (
        old.where(competes())
        .groupBy("topic", "partition", F.col("key").alias("winning_key"))
        .agg(F.max(order_column(orders)).alias("best"))
    )
    offset = F.col("best.offset") if orders.versioned else F.col("best")
    return best.select("topic", "partition", offset.alias("offset"), "winning_key").join(
        old.select(
            *PLACE,
            F.col("tombstone").alias("winning_tombstone"),
            F.col("horizon").alias("winning_horizon"),
            "start",
            "dirty",
            "versioned",
            F.coalesce("since", "now").alias("late"),
        ),
        PLACE,
    )


def _faded(old: DataFrame, winners: DataFrame) -> DataFrame:
    """Mark the records whose winner was removed from the front, before or after it beat them."""
    gone = winners.where(F.col("versioned") & (F.col("offset") < F.col("start"))).select(
        "topic", "partition", F.col("winning_key").alias("key"), F.lit(True).alias("is_gone")
    )
    return (
        old.drop("faded")
        .join(gone, ["topic", "partition", "key"], "left")
        .withColumn("faded", F.coalesce("is_gone", F.lit(False)))
        .drop("is_gone")
    )


def _compared(old: DataFrame, new: DataFrame, winners: DataFrame) -> DataFrame:
    """Return each place of before and after with a bit of `mask` for every kind it violates."""
    wins = F.col("w.winning_key").isNotNull()
    expected = F.coalesce(fixed("b."), F.when(wins, of_winner("b.")).otherwise(of_loser("b.")))
    judged = (
        old.alias("b")
        .join(winners.select(*PLACE, "winning_key").alias("w"), PLACE, "left")
        .select("b.*", expected.alias("expected"), "w.winning_key")
    )
    both = judged.alias("b").join(
        new.alias("a"), [F.col(f"b.{name}") == F.col(f"a.{name}") for name in PLACE], "full_outer"
    )
    conditions = _conditions()
    mask = reduce(
        lambda total, bit: total.bitwiseOR(bit),
        (F.when(conditions[kind], 1 << at).otherwise(0) for at, kind in enumerate(MASKED)),
    )
    return both.select(
        *(F.coalesce(f"a.{name}", f"b.{name}").alias(name) for name in (*PLACE, "key")),
        F.coalesce("a.tombstone", "b.tombstone").alias("tombstone"),
        mask.alias("mask"),
    )


def _conditions() -> dict[str, Column]:
    """Return when a row violates each kind that one row can show."""
    tail, tombstone = in_tail("b."), F.col("b.tombstone")
    in_before, in_after = F.col("b.offset").isNotNull(), F.col("a.offset").isNotNull()
    required = F.col("b.expected") == REQUIRED
    lost = in_before & ~in_after & required
    kept = in_before & in_after & (F.col("b.expected") == FORBIDDEN) & (F.col("a.copy") == 1)
    aborted, keyless = F.col("b.aborted"), F.col("b.key").isNull()
    loses = F.col("b.winning_key").isNull()

    def differs(*names: str) -> Column:
        same = [F.col(f"a.{name}").eqNullSafe(F.col(f"b.{name}")) for name in names]
        return in_before & in_after & ~reduce(lambda left, right: left & right, same)

    return {
        "survivor_lost": lost & ~tail & ~tombstone,
        "tombstone_lost": lost & ~tail & tombstone,
        "tail_lost": lost & tail,
        "min_lag_broken": in_before & ~in_after & ~required & young("b."),
        "loser_kept": kept & ~aborted & ~keyless & loses,
        "tombstone_overdue": kept & ~aborted & ~loses,
        "aborted_kept": kept & aborted,
        "keyless_kept": kept & ~aborted & keyless,
        "key_altered": differs("key"),
        "value_altered": differs("tombstone", "value_digest"),
        "headers_altered": differs("headers_digest"),
        "timestamp_altered": differs("micros"),
        "timestamp_type_altered": differs("type"),
        # Of an open transaction the end may have come since.
        "fate_altered": F.col("a.told") & ~F.col("b.open") & differs("aborted"),
        # Of what should not be there it says nothing that is not said already.
        "horizon_wrong": in_before
        & in_after
        & F.col("a.stamped")
        & (F.col("b.expected") != FORBIDDEN)
        & wrong_horizon(
            F.col("b.horizon"),
            F.col("a.horizon"),
            strange_horizon(F.col("a.horizon"), "b."),
            ~tail & asks_horizon(tombstone & F.col("a.tombstone"), "b."),
        ),
        "duplicated": in_after & (F.col("a.copy") > 1),
        "invented_record": in_after & ~in_before & (F.col("a.copy") == 1),
    }


# --- lags and retention -----------------------------------------------------------------------

Found = tuple[int, list[tuple[str, int, int, bytes | None]]]


def _overdue(old: DataFrame, places: Sequence[tuple[str, int]]) -> Found:
    """Return how many records lie in tails all of whose records are older than the maximal lag.

    A log is due by the largest timestamp of a segment's first batch, so a tail that has a young
    record need not be due, and nothing is said of it; nor of one with times that are no times;
    nor of one with a record that no commit shows, since an open transaction holds up the cleaning
    of all that follows. A log that was not cleaned was perhaps not to be cleaned.
    """
    if not places:
        return 0, []
    was_cleaned = F.col("end").isNotNull() & F.coalesce(F.col("end") > F.col("dirty"), F.lit(True))
    tails = (
        _within(old, _places(old, places))
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
    found = [
        (row["topic"], row["partition"], row["first"]["offset"], row["first"]["key"])
        for row in tails
    ]
    return sum(row["records"] for row in tails), found


def _gone_early(old: DataFrame, places: Sequence[tuple[str, int]], examples: int) -> Found:
    """Return how many records left by the front before their time had come."""
    if not places:
        return 0, []
    gone = _within(old, _places(old, places)).where(gone_early())
    rows = gone.select(*PLACE, "key").orderBy(*PLACE).limit(examples).collect()
    return gone.count(), [tuple(row) for row in rows]
