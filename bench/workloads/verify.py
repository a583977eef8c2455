"""Was a cleaning right? An oracle over the records before and after, in DataFrame operations.

It knows nothing of segments, maps or the cleaner's code: from the records that were there, the
strategy and the range that was cleaned follow the records that must be there, may be there and
must not. Whatever differs is named and counted. Contents are compared by 128 bits of xxhash64,
keys byte by byte. Source: cleaner-semantics §2.2, §2.4, §8 and §13.

One shuffle by key finds the winners, one by offset compares; a third query runs only if something
is wrong, to tell the kinds apart and fetch examples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType
from pyspark.sql.window import Window

from bench.workloads.kinds import MASKED, PLACE, example, in_order, told_apart
from bench.workloads.order import records_out_of_order
from bench.workloads.versions import ENCODINGS, HEADER, LONG, OFFSET, STRATEGIES, version_of
from bench.workloads.violations import KINDS
from logstore.errors import InvalidConfigurationError
from logstore.types import INT64_MAX

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

EXAMPLES = 10
"""Examples of each kind of violation in a verdict."""

_REQUIRED, _OPTIONAL, _FORBIDDEN = "required", "optional", "forbidden"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the cleaning was asked to do.

    Attributes
    ----------
    strategy : str
        `offset`, `timestamp` or `header`.
    header : str
        Name of the version header; needed by `header` only.
    encoding : str
        How that header states a number: `long`, 8 bytes, big-endian, or `varlong`.
    since_ms, now_ms : int
        When the first and the last cleaning between before and after began; equal for one pass.
        Without the former any tombstone without a horizon may have got one and seen it come.
    delete_retention_ms : int
        A tombstone is kept for so long after the first cleaning that saw it.
    min_compaction_lag_ms : int
        A record may not be removed before it is so old.
    max_compaction_lag_ms : int or None
        A log must have been cleaned up to what is so old; None: not looked at.
    """

    strategy: str = OFFSET
    header: str = ""
    encoding: str = LONG
    since_ms: int | None
    now_ms: int
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int | None = None

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise InvalidConfigurationError(
                f"compaction.strategy {self.strategy!r} is none of offset, timestamp, header"
            )
        if self.strategy == HEADER and not self.header:
            raise InvalidConfigurationError("the header strategy needs the header's name")
        if self.encoding not in ENCODINGS:
            raise InvalidConfigurationError(
                f"a version header's encoding {self.encoding!r} is none of long, varlong"
            )
        if self.since_ms is not None and self.since_ms > self.now_ms:
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


class Begin(NamedTuple):
    """Where the cleanings found a partition.

    Attributes
    ----------
    log_start_offset : int
        Then. What was removed from the front since may have beaten later records by version
        before it went; or not.
    first_dirty_offset : int
        What lies below had been cleaned before. If the cleaned range ends there too, the
        partition may have been rewritten once more, so that expired tombstones went, or not.
    """

    log_start_offset: int
    first_dirty_offset: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found.

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
    """

    violations: dict[str, int]
    examples: list[dict[str, Any]]
    records_before: int
    records_after: int
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, verdicts: Sequence[Verdict], *, examples: int = EXAMPLES) -> Verdict:
        """Return what verdicts on different partitions say together."""
        counts = Counter[str]()
        shown: list[dict[str, Any]] = []
        for each in verdicts:
            counts.update(each.violations)
        for kind in KINDS:
            own = [e for each in verdicts for e in each.examples if e["kind"] == kind]
            shown += in_order(own)[:examples]
        return cls(
            {kind: counts[kind] for kind in KINDS if counts[kind]},
            shown,
            sum(each.records_before for each in verdicts),
            sum(each.records_after for each in verdicts),
            tuple(dict.fromkeys(note for each in verdicts for note in each.notes)),
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
            "notes": list(self.notes),
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
    begun: Mapping[tuple[str, int], Begin] | None = None,
    order: DataFrame | None = None,
    examples: int = EXAMPLES,
) -> Verdict:
    """Compare the records after a cleaning with what must follow from those before it.

    Parameters
    ----------
    before : DataFrame
        Columns of the Kafka source: every data record, those of aborted transactions included.
        If there, `aborted` (boolean, null where a transaction is open; see also `mark_aborted`)
        and `deleteHorizonMs` (bigint: horizon of the record's batch, null if it has none) are
        taken into account; without the latter no batch has a horizon.
    after : DataFrame
        Columns of the Kafka source, and `aborted` if that is to be compared. The order of its
        rows must be that of the log in each partition, as the data source gives them.
    cleaned : mapping
        By (topic, partition); a partition that is not named must not have changed.
    begun : mapping, optional
        Where the cleanings began; without it everything named was cleaned for the first time.
    order : DataFrame, optional
        Topic, partition and offset of `after` once more, in the order of the log, if it can be
        had without the rest.
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
    ranges = _ranges(before, cleaned, begun)
    old = _old(before, ranges, rules)
    new = _new(after, ranges)
    winners = _winners(old)
    if rules.strategy != OFFSET and any(
        place in begun and begun[place].log_start_offset < each.log_start_offset
        for place, each in cleaned.items()
    ):
        old = _faded(old, winners)
    old = old.where(F.col("offset") >= F.coalesce("start", F.lit(0)))
    compared = _compared(old, new, winners, rules)
    found = compared.groupBy("mask", "in_before", "in_after", "copy").count().collect()
    counts = {
        kind: sum(row["count"] for row in found if row["mask"] >> bit & 1)
        for bit, kind in enumerate(MASKED)
    }
    shown: list[dict[str, Any]] = []
    if any(counts.values()):
        late_ms = None
        if rules.strategy != OFFSET:
            late_ms = rules.now_ms if rules.since_ms is None else rules.since_ms
        counts, shown = told_apart(compared, old, new, winners, late_ms, examples)
    for kind, more, where in (
        ("out_of_order", *records_out_of_order(after if order is None else order, examples)),
        ("max_lag_broken", *_overdue(old, rules)),
    ):
        counts[kind] = more
        shown += [example(kind, *place) for place in where]
    return Verdict(
        violations={kind: counts[kind] for kind in KINDS if counts.get(kind)},
        examples=in_order(shown),
        records_before=sum(r["count"] for r in found if r["in_before"] and r["copy"] == 1),
        records_after=sum(r["count"] for r in found if r["in_after"]),
    )


# --- the records ------------------------------------------------------------------------------


def _ranges(
    frame: DataFrame,
    cleaned: Mapping[tuple[str, int], Cleaned],
    begun: Mapping[tuple[str, int], Begin],
) -> DataFrame:
    schema = StructType(
        [StructField("topic", StringType()), StructField("partition", IntegerType())]
        + [StructField(n, LongType()) for n in ("start", "end", "log_end", "oldest", "dirty")]
    )
    nothing = (None, None)
    rows = [(*place, *each, *begun.get(place, nothing)) for place, each in cleaned.items()]
    return F.broadcast(frame.sparkSession.createDataFrame(rows, schema))


def _contents(
    frame: DataFrame, ranges: DataFrame, *more: Column, start: Sequence[str] = ("start",)
) -> DataFrame:
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
        F.col("offset") >= F.coalesce(*start, F.lit(0))
    )


def _digests(name: str, column: Column) -> tuple[Column, Column]:
    """Return 128 bits of a column's hash: two chains that begin with different numbers."""
    return (
        F.xxhash64(F.lit(1), column).alias(f"{name}_1"),
        F.xxhash64(F.lit(2), column).alias(f"{name}_2"),
    )


def _old(before: DataFrame, ranges: DataFrame, rules: Rules) -> DataFrame:
    """Return the records before, those included that were removed from the front since."""
    has = set(before.columns)
    aborted = F.col("aborted") if "aborted" in has else F.lit(False)
    horizon = F.col("deleteHorizonMs") if "deleteHorizonMs" in has else F.lit(None)
    present, version = version_of(rules.strategy, rules.header, rules.encoding)
    return _contents(
        before,
        ranges,
        F.coalesce(aborted, F.lit(False)).alias("aborted"),
        aborted.isNull().alias("open"),
        horizon.cast("bigint").alias("horizon"),
        present.alias("present"),
        F.when(present, version).otherwise(0).alias("version"),
        start=("oldest", "start"),
    ).withColumn("faded", F.lit(False))


def _new(after: DataFrame, ranges: DataFrame) -> DataFrame:
    by_content = Window.partitionBy(*PLACE).orderBy("value_1", "headers_1", "micros", "key")
    # Without the column nothing is said of it; null is an open transaction.
    fate = F.col("aborted") if "aborted" in after.columns else F.lit(None).cast("boolean")
    told = F.lit("aborted" in after.columns)
    contents = _contents(after, ranges, fate.alias("aborted"), told.alias("told"))
    return contents.withColumn("copy", F.row_number().over(by_content))


def _winners(old: DataFrame) -> DataFrame:
    """Return of each key the record that wins among those that were compared."""
    competes = ~F.col("aborted") & F.col("key").isNotNull() & ~_in_tail()
    order = F.struct("present", "version", "offset", "tombstone", "horizon", "dirty")
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
            F.col("best.horizon").alias("winning_horizon"),
            F.col("best.dirty").alias("dirty"),
        )
    )


def _faded(old: DataFrame, winners: DataFrame) -> DataFrame:
    """Mark the records whose winner was removed from the front, before or after it beat them."""
    keys = winners.drop("dirty").join(old.select(*PLACE, "start"), PLACE)
    gone = keys.where(F.col("offset") < F.col("start")).select(
        "topic", "partition", F.col("winning_key").alias("key"), F.lit(True).alias("is_gone")
    )
    return (
        old.drop("faded")
        .join(gone, ["topic", "partition", "key"], "left")
        .withColumn("faded", F.coalesce("is_gone", F.lit(False)))
        .drop("is_gone")
    )


def _in_tail(prefix: str = "") -> Column:
    return F.col(f"{prefix}offset") >= F.coalesce(F.col(f"{prefix}end"), F.lit(0))


# --- the comparison ---------------------------------------------------------------------------


def _expected(rules: Rules) -> Column:
    """Return whether a record must, may or must not be there afterwards; over `b` and `w`."""
    horizon = F.col("b.horizon")
    earliest, overdue = horizon, F.lit(False)
    if rules.since_ms is not None:
        stamped = _within_int64(rules.since_ms + rules.delete_retention_ms)
        earliest = F.coalesce(horizon, F.lit(stamped).cast("bigint"))
        overdue = F.coalesce(horizon <= rules.since_ms, F.lit(False))
    log_end = F.coalesce(F.col("b.offset") == F.col("b.log_end") - 1, F.lit(False))
    versioned = rules.strategy != OFFSET
    tail = _in_tail("b.")
    rewritten = F.coalesce(F.col("b.end") > F.col("b.start"), F.lit(False))
    was_clean = F.coalesce(F.col("b.end") <= F.col("b.dirty"), F.lit(False))
    forbidden = F.when(was_clean, _OPTIONAL).otherwise(_FORBIDDEN)
    return (
        F.when(tail & F.col("b.aborted") & rewritten, _OPTIONAL)
        .when(tail, _REQUIRED)
        .when(F.col("b.aborted"), forbidden)
        .when(log_end & F.lit(versioned), _REQUIRED)
        .when(F.col("b.faded"), _OPTIONAL)
        .when(F.col("w.winning_key").isNull(), forbidden)
        .when(~F.col("b.tombstone"), _REQUIRED)
        .when(F.coalesce(rules.now_ms < earliest, F.lit(False)), _REQUIRED)
        .when(overdue & F.lit(not versioned), forbidden)
        .otherwise(_OPTIONAL)
    )


def _compared(old: DataFrame, new: DataFrame, winners: DataFrame, rules: Rules) -> DataFrame:
    """Return each place of before and after with a bit of `mask` for every kind it violates."""
    judged = (
        old.alias("b")
        .join(winners.drop("dirty").alias("w"), PLACE, "left")
        .select("b.*", _expected(rules).alias("expected"), "w.winning_key")
    )
    both = judged.alias("b").join(
        new.alias("a"), [F.col(f"b.{name}") == F.col(f"a.{name}") for name in PLACE], "full_outer"
    )
    conditions = _conditions(rules)
    mask = reduce(
        lambda total, bit: total.bitwiseOR(bit),
        (F.when(conditions[kind], 1 << at).otherwise(0) for at, kind in enumerate(MASKED)),
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
    young = F.col("b.micros") > _micros(rules.now_ms - rules.min_compaction_lag_ms)
    # What was clean already was so for reasons of its own: other lags, or a forced cleaning.
    young &= F.col("b.offset") >= F.coalesce("b.dirty", F.lit(0))

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
        # Of an open transaction the end may have come since.
        "fate_altered": F.col("a.told") & ~F.col("b.open") & differs("aborted"),
        "duplicated": in_after & (F.col("a.copy") > 1),
        "invented_record": in_after & ~in_before & (F.col("a.copy") == 1),
    }


# --- lags ---------------------------------------------------------------------------------------


def _overdue(old: DataFrame, rules: Rules) -> tuple[int, list[tuple[str, int, int, bytes | None]]]:
    """Return how many records lie in tails all of whose records are older than the maximal lag.

    A log is due by the largest timestamp of a segment's first batch, so a tail that has a young
    record need not be due, and nothing is said of it; nor of one with times that are no times;
    nor of one with a record that no commit shows, since an open transaction holds up the cleaning
    of all that follows. A log that was not cleaned was perhaps not to be cleaned.
    """
    if rules.max_compaction_lag_ms is None:
        return 0, []
    limit = _micros(rules.now_ms - rules.max_compaction_lag_ms)
    was_cleaned = F.col("end").isNotNull() & F.coalesce(F.col("end") > F.col("dirty"), F.lit(True))
    tails = (
        old.where(_in_tail() & was_cleaned)
        .groupBy("topic", "partition")
        .agg(
            F.max("micros").alias("newest"),
            F.min("micros").alias("oldest"),
            F.max(F.col("aborted") | F.col("open")).alias("open"),
            F.count("*").alias("records"),
            F.min(F.struct("offset", "key")).alias("first"),
        )
        .where((F.col("newest") < limit) & (F.col("oldest") > 0) & ~F.col("open"))
        .orderBy("topic", "partition")
        .collect()
    )
    places = [
        (row["topic"], row["partition"], row["first"]["offset"], row["first"]["key"])
        for row in tails
    ]
    return sum(row["records"] for row in tails), places


def _micros(ms: int) -> Column:
    return F.lit(_within_int64(ms * 1000)).cast("bigint")


def _within_int64(number: int) -> int:
    """Return a sum or a product as near as a column can have it: durations may be endless."""
    return max(-INT64_MAX, min(number, INT64_MAX))
