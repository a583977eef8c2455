"""Was a cleaning right? An oracle over the records before and after, in DataFrame operations.

It knows nothing of segments, maps or the cleaner's code: from the records that were there, the
strategy and the range that was cleaned follow the records that must be there, may be there and
must not. Whatever differs is named and counted. Contents are compared by 128 bits of xxhash64,
keys byte by byte. Source: cleaner-semantics §2.2, §2.4, §8 and §13.

One shuffle by key finds the winners, one by offset compares; a third query runs only if something
is wrong, to tell the kinds apart and fetch examples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType
from pyspark.sql.window import Window

from bench.workloads.order import records_out_of_order
from logstore.errors import InvalidConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OFFSET = "offset"
TIMESTAMP = "timestamp"
HEADER = "header"

EXAMPLES = 10
"""Examples of each kind of violation in a verdict."""

PLACE = ["topic", "partition", "offset"]

KINDS: Mapping[str, str] = {
    "survivor_lost": "the record that wins its key is missing",
    "tombstone_lost": "a winning tombstone is missing before its delete horizon",
    "tail_lost": "a record beyond the cleaned range is missing",
    "min_lag_broken": "a record younger than min.compaction.lag.ms was removed",
    "loser_kept": "a record stays beside the one that wins its key",
    "wrong_winner": "a record stays instead of the one that wins its key",
    "tombstone_resurrected": "a deleted key has a value again: its tombstone is gone, this is not",
    "tombstone_overdue": "a tombstone stays though its delete horizon had passed",
    "aborted_kept": "a record of an aborted transaction stays",
    "keyless_kept": "a record without a key stays",
    "key_altered": "another key",
    "value_altered": "another value",
    "headers_altered": "other headers",
    "timestamp_altered": "another timestamp",
    "timestamp_type_altered": "another timestamp type",
    "duplicated": "a second record with the same offset",
    "invented_record": "nothing was at this offset",
    "invented_key": "nothing was at this offset, and the topic had no such key",
    "wrong_partition": "nothing was at this offset; the key belongs to another partition",
    "out_of_order": "a record stands behind one with a higher offset",
    "max_lag_broken": "a record stays uncleaned, and all of its tail is older than "
    "max.compaction.lag.ms",
}
"""What a verdict may count."""

_MASKED = [kind for kind in KINDS if kind not in (
    "wrong_winner", "tombstone_resurrected", "invented_key", "wrong_partition", "out_of_order",
    "max_lag_broken",
)]  # fmt: skip
_REQUIRED, _OPTIONAL, _FORBIDDEN = "required", "optional", "forbidden"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the cleaning was asked to do.

    Attributes
    ----------
    strategy : str
        `offset`, `timestamp` or `header`.
    header : str
        Name of the version header (8 bytes, big-endian, signed); needed by `header` only.
    since_ms, now_ms : int
        When the first and the last cleaning between before and after began; equal for one pass.
    delete_retention_ms : int
        A tombstone is kept for so long after the first cleaning that saw it.
    min_compaction_lag_ms : int
        A record may not be removed before it is so old.
    max_compaction_lag_ms : int or None
        A log must have been cleaned up to what is so old; None: not looked at.
    """

    strategy: str = OFFSET
    header: str = ""
    since_ms: int
    now_ms: int
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int | None = None

    def __post_init__(self) -> None:
        if self.strategy not in (OFFSET, TIMESTAMP, HEADER):
            raise InvalidConfigurationError(
                f"compaction.strategy {self.strategy!r} is none of offset, timestamp, header"
            )
        if self.strategy == HEADER and not self.header:
            raise InvalidConfigurationError("the header strategy needs the header's name")
        if self.since_ms > self.now_ms:
            raise InvalidConfigurationError(
                f"the first cleaning ({self.since_ms}) is later than the last ({self.now_ms})"
            )


class Cleaned(NamedTuple):
    """What was cleaned of one partition.

    Attributes
    ----------
    log_start_offset : int
        When the cleaning began; records below are not looked at.
    end_offset : int
        First dirty offset after the cleaning; from here on nothing may have changed.
    log_end_offset : int
        When the cleaning began, exclusive. Versions never cost the log its last record.
    """

    log_start_offset: int
    end_offset: int
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found.

    Attributes
    ----------
    violations : dict
        Count of each kind of `KINDS` that occurred.
    examples : list of dict
        The first of each kind by topic, partition and offset: kind, text, topic, partition,
        offset and key (hexadecimal, None if null).
    records_before, records_after : int
        From the log start offset on.
    """

    violations: dict[str, int]
    examples: list[dict[str, Any]]
    records_before: int
    records_after: int

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
        }


def mark_aborted(uncommitted: DataFrame, committed: DataFrame) -> DataFrame:
    """Return the records of an uncommitted view, those that the committed one lacks `aborted`.

    Records of transactions that are still open count as aborted too; they lie beyond everything
    that can be cleaned.
    """
    seen = committed.select(*PLACE, F.lit(True).alias("_committed"))
    return uncommitted.join(seen, PLACE, "left").select(
        *uncommitted.columns, F.col("_committed").isNull().alias("aborted")
    )


def verify(
    before: DataFrame,
    after: DataFrame,
    rules: Rules,
    cleaned: Mapping[tuple[str, int], Cleaned],
    *,
    examples: int = EXAMPLES,
) -> Verdict:
    """Compare the records after a cleaning with what must follow from those before it.

    Parameters
    ----------
    before : DataFrame
        Columns of the Kafka source: every data record, those of aborted transactions included.
        If there, `aborted` (boolean, see `mark_aborted`) and `deleteHorizonMs` (bigint: horizon
        of the record's batch, null if it has none) are taken into account; without the latter no
        batch has a horizon.
    after : DataFrame
        Columns of the Kafka source. The order of its rows must be that of the log in each
        partition, as the data source gives them.
    cleaned : mapping
        By (topic, partition); a partition that is not named must not have changed.
    examples : int
        Of each kind, at most.

    Notes
    -----
    Tombstones: one whose horizon cannot have come must be there; one with a horizon at or before
    `since_ms` must be gone under the offset strategy; anything between may go either way, as may
    an expired one under a version strategy, which has further reasons to keep it. Records of
    aborted transactions beyond the cleaned range may be gone: their segment was rewritten.
    """
    ranges = _ranges(before, cleaned)
    old = _old(before, ranges, rules)
    new = _new(after, ranges)
    winners = _winners(old)
    compared = _compared(old, new, winners, rules)
    found = compared.groupBy("mask", "in_before", "in_after", "copy").count().collect()
    counts = {
        kind: sum(row["count"] for row in found if row["mask"] >> bit & 1)
        for bit, kind in enumerate(_MASKED)
    }
    shown: list[dict[str, Any]] = []
    if any(counts.values()):
        counts, shown = _told_apart(compared, old, new, winners, examples)
    for kind, more, where in (
        ("out_of_order", *records_out_of_order(after, examples)),
        ("max_lag_broken", *_overdue(old, rules)),
    ):
        counts[kind] = more
        shown += [_example(kind, *place) for place in where]
    rank = list(KINDS).index
    return Verdict(
        violations={kind: counts[kind] for kind in KINDS if counts.get(kind)},
        examples=sorted(shown, key=lambda each: rank(each["kind"])),
        records_before=sum(r["count"] for r in found if r["in_before"] and r["copy"] == 1),
        records_after=sum(r["count"] for r in found if r["in_after"]),
    )


# --- the records ------------------------------------------------------------------------------


def _ranges(frame: DataFrame, cleaned: Mapping[tuple[str, int], Cleaned]) -> DataFrame:
    schema = StructType(
        [StructField("topic", StringType()), StructField("partition", IntegerType())]
        + [StructField(name, LongType()) for name in ("start", "end", "log_end")]
    )
    rows = [(topic, partition, *each) for (topic, partition), each in cleaned.items()]
    return F.broadcast(frame.sparkSession.createDataFrame(rows, schema))


def _contents(frame: DataFrame, ranges: DataFrame, *more: Column) -> DataFrame:
    """Return what is compared, in columns of fixed width but for the key."""
    headers = F.transform(
        F.coalesce(F.col("headers"), F.array()),
        # Hashing skips nulls, so whether one was there is hashed in its place.
        lambda each: F.struct(each["key"], each["value"].isNull(), each["value"]),
    )
    picked = frame.select(
        *PLACE,
        "key",
        F.col("value").isNull().alias("tombstone"),
        *_digests("value", F.col("value")),
        *_digests("headers", headers),
        F.unix_micros("timestamp").alias("micros"),
        F.col("timestampType").alias("type"),
        *more,
    )
    return picked.join(ranges, ["topic", "partition"], "left").where(
        F.col("offset") >= F.coalesce("start", F.lit(0))
    )


def _digests(name: str, column: Column) -> tuple[Column, Column]:
    """Return 128 bits of a column's hash: two chains that begin with different numbers."""
    return (
        F.xxhash64(F.lit(1), column).alias(f"{name}_1"),
        F.xxhash64(F.lit(2), column).alias(f"{name}_2"),
    )


def _old(before: DataFrame, ranges: DataFrame, rules: Rules) -> DataFrame:
    has = set(before.columns)
    present, version = _version(rules)
    return _contents(
        before,
        ranges,
        (F.coalesce("aborted", F.lit(False)) if "aborted" in has else F.lit(False)).alias(
            "aborted"
        ),
        (F.col("deleteHorizonMs") if "deleteHorizonMs" in has else F.lit(None))
        .cast("bigint")
        .alias("horizon"),
        present.alias("present"),
        F.when(present, version).otherwise(0).alias("version"),
    )


def _version(rules: Rules) -> tuple[Column, Column]:
    """Return whether a record states a version, and which (KIP-280)."""
    if rules.strategy == OFFSET:
        return F.lit(False), F.lit(0).cast("bigint")
    if rules.strategy == TIMESTAMP:
        return F.lit(True), F.unix_millis("timestamp")
    named = F.filter("headers", lambda each: each["key"] == rules.header)
    # The last of the name decides, even if an earlier one was well-formed.
    value = F.try_element_at(named, F.lit(-1))["value"]
    present = F.coalesce(F.length(value) == 8, F.lit(False))
    number = F.conv(F.hex(F.when(present, value)), 16, -10).cast("bigint")
    return present, number


def _new(after: DataFrame, ranges: DataFrame) -> DataFrame:
    by_content = Window.partitionBy(*PLACE).orderBy("value_1", "headers_1", "micros", "key")
    return _contents(after, ranges).withColumn("copy", F.row_number().over(by_content))


def _winners(old: DataFrame) -> DataFrame:
    """Return of each key the record that wins among those that were compared."""
    competes = ~F.col("aborted") & F.col("key").isNotNull() & ~_in_tail()
    order = F.struct("present", "version", "offset", "tombstone")
    return (
        old.where(competes)
        .groupBy("topic", "partition", "key")
        .agg(F.max(order).alias("best"))
        .select(
            "topic",
            "partition",
            F.col("best.offset").alias("offset"),
            F.col("key").alias("winning_key"),
            F.col("best.tombstone").alias("winning_tombstone"),
        )
    )


def _in_tail(prefix: str = "") -> Column:
    return F.col(f"{prefix}offset") >= F.coalesce(F.col(f"{prefix}end"), F.lit(0))


# --- the comparison ---------------------------------------------------------------------------


def _expected(rules: Rules) -> Column:
    """Return whether a record must, may or must not be there afterwards; over `b` and `w`."""
    horizon = F.col("b.horizon")
    can_expire = F.coalesce(horizon, F.lit(rules.since_ms + rules.delete_retention_ms))
    overdue = F.coalesce(horizon <= rules.since_ms, F.lit(False))
    log_end = F.coalesce(F.col("b.offset") == F.col("b.log_end") - 1, F.lit(False))
    versioned = rules.strategy != OFFSET
    return (
        F.when(_in_tail("b.") & F.col("b.aborted"), _OPTIONAL)
        .when(_in_tail("b."), _REQUIRED)
        .when(F.col("b.aborted"), _FORBIDDEN)
        .when(log_end & F.lit(versioned), _REQUIRED)
        .when(F.col("w.winning_key").isNull(), _FORBIDDEN)
        .when(~F.col("b.tombstone"), _REQUIRED)
        .when(F.lit(rules.now_ms) < can_expire, _REQUIRED)
        .when(overdue & F.lit(not versioned), _FORBIDDEN)
        .otherwise(_OPTIONAL)
    )


def _compared(old: DataFrame, new: DataFrame, winners: DataFrame, rules: Rules) -> DataFrame:
    """Return each place of before and after with a bit of `mask` for every kind it violates."""
    judged = (
        old.alias("b")
        .join(winners.alias("w"), PLACE, "left")
        .select("b.*", _expected(rules).alias("expected"), "w.winning_key")
    )
    both = judged.alias("b").join(
        new.alias("a"), [F.col(f"b.{name}") == F.col(f"a.{name}") for name in PLACE], "full_outer"
    )
    conditions = _conditions(rules)
    mask = reduce(
        lambda total, bit: total.bitwiseOR(bit),
        (F.when(conditions[kind], 1 << at).otherwise(0) for at, kind in enumerate(_MASKED)),
    )
    return both.select(
        *(F.coalesce(f"a.{name}", f"b.{name}").alias(name) for name in (*PLACE, "key")),
        F.coalesce("a.tombstone", "b.tombstone").alias("tombstone"),
        F.col("b.offset").isNotNull().alias("in_before"),
        F.col("a.offset").isNotNull().alias("in_after"),
        F.coalesce("a.copy", F.lit(1)).alias("copy"),
        mask.alias("mask"),
    )


def _conditions(rules: Rules) -> dict[str, Column]:
    """Return when a row violates each kind that one row can show."""
    tail, tombstone = _in_tail("b."), F.col("b.tombstone")
    in_before, in_after = F.col("b.offset").isNotNull(), F.col("a.offset").isNotNull()
    required = F.col("b.expected") == _REQUIRED
    lost = in_before & ~in_after & required
    kept = in_before & in_after & (F.col("b.expected") == _FORBIDDEN) & (F.col("a.copy") == 1)
    aborted, keyless = F.col("b.aborted"), F.col("b.key").isNull()
    loses = F.col("b.winning_key").isNull()
    young = F.col("b.micros") > (rules.now_ms - rules.min_compaction_lag_ms) * 1000

    def differs(*names: str) -> Column:
        same = [F.col(f"a.{name}").eqNullSafe(F.col(f"b.{name}")) for name in names]
        return in_before & in_after & ~reduce(lambda left, right: left & right, same)

    return {
        "survivor_lost": lost & ~tail & ~tombstone,
        "tombstone_lost": lost & ~tail & tombstone,
        "tail_lost": lost & tail,
        "min_lag_broken": in_before & ~in_after & ~required & young
        if rules.min_compaction_lag_ms > 0
        else F.lit(False),
        "loser_kept": kept & ~aborted & ~keyless & loses,
        "tombstone_overdue": kept & ~aborted & ~loses,
        "aborted_kept": kept & aborted,
        "keyless_kept": kept & ~aborted & keyless,
        "key_altered": differs("key"),
        "value_altered": differs("tombstone", "value_1", "value_2"),
        "headers_altered": differs("headers_1", "headers_2"),
        "timestamp_altered": differs("micros"),
        "timestamp_type_altered": differs("type"),
        "duplicated": in_after & (F.col("a.copy") > 1),
        "invented_record": in_after & ~in_before & (F.col("a.copy") == 1),
    }


# --- when something is wrong --------------------------------------------------------------------


def _told_apart(
    compared: DataFrame, old: DataFrame, new: DataFrame, winners: DataFrame, examples: int
) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Return the counts and the first examples of what single rows show."""
    wrong = compared.where(F.col("mask") != 0).persist()
    try:
        plain = wrong.withColumn(
            "kind",
            F.explode(
                F.array_compact(
                    F.array(
                        *(
                            F.when(F.col("mask").bitwiseAND(1 << at) != 0, kind)
                            for at, kind in enumerate(_MASKED)
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
        _example(row["kind"], row["topic"], row["partition"], row["offset"], row["key"])
        for row in rows
    ]


def _losers(kept: DataFrame, new: DataFrame, winners: DataFrame) -> DataFrame:
    """Tell losers that stay beside their winner from those that stay in its place."""
    there = new.where(F.col("copy") == 1).select(
        "topic", "partition", F.col("offset").alias("winner"), F.lit(True).alias("there")
    )
    best = winners.select(
        "topic",
        "partition",
        F.col("winning_key").alias("key"),
        F.col("offset").alias("winner"),
        "winning_tombstone",
    )
    kind = (
        F.when(F.col("there"), "loser_kept")
        .when(F.col("winning_tombstone") & ~F.col("tombstone"), "tombstone_resurrected")
        .otherwise("wrong_winner")
    )
    return (
        kept.drop("kind")
        .join(best, ["topic", "partition", "key"], "left")
        .join(there, ["topic", "partition", "winner"], "left")
        .select(kind.alias("kind"), *PLACE, "key", "tombstone")
    )


def _invented(invented: DataFrame, old: DataFrame) -> DataFrame:
    """Tell records of keys that were there, in this or another partition, from quite new ones."""
    homes = (
        old.where(F.col("key").isNotNull())
        .join(F.broadcast(invented.select("topic", "key").distinct()), ["topic", "key"], "semi")
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


def _overdue(old: DataFrame, rules: Rules) -> tuple[int, list[tuple[str, int, int, bytes | None]]]:
    """Return how many records lie in tails all of whose records are older than the maximal lag.

    A log is due by the largest timestamp of a segment's first batch, so a tail that has a young
    record need not be due, and nothing is said of it; nor of one with a record that no commit
    shows, since an open transaction holds up the cleaning of all that follows.
    """
    if rules.max_compaction_lag_ms is None:
        return 0, []
    limit = (rules.now_ms - rules.max_compaction_lag_ms) * 1000
    tails = (
        old.where(_in_tail() & F.col("end").isNotNull())
        .groupBy("topic", "partition")
        .agg(
            F.max("micros").alias("newest"),
            F.max("aborted").alias("open"),
            F.count("*").alias("records"),
            F.min(F.struct("offset", "key")).alias("first"),
        )
        .where((F.col("newest") < limit) & ~F.col("open"))
        .orderBy("topic", "partition")
        .collect()
    )
    places = [
        (row["topic"], row["partition"], row["first"]["offset"], row["first"]["key"])
        for row in tails
    ]
    return sum(row["records"] for row in tails), places


def _example(
    kind: str, topic: str, partition: int, offset: int, key: bytes | None = None
) -> dict[str, Any]:
    return {
        "kind": kind,
        "text": KINDS[kind],
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "key": None if key is None else bytes(key).hex(),
    }
