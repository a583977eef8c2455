"""The oracle: correct cleanings pass, and every kind of fault is found, without false alarms.

Each partition has one fault, so that one verdict shows them all; a small model in plain Python
computes the result of a correct cleaning.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from itertools import product

import pytest

pytest.importorskip("pyspark")

from logstore.record.json_text import bytes_item
from logstore.spark.oracle import verify as oracle
from logstore.spark.oracle.verify import Cleaned, Rules, verify
from logstore.spark.oracle.violations import KINDS
from tests.support.world.frames import frame_of

TOPIC = "t"
NOW = 1_700_000_000_000
RETENTION = 100_000
END, LOG_END = 40, 50
EVERYTHING = 10_000
SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, ms bigint, "
    "timestampType int, headers array<struct<key:string,value:binary>>, aborted boolean, "
    "deleteHorizonMs bigint"
)
STRATEGIES = ("offset", "timestamp", "header")
OFFSETS, VERSIONS = ("offset",), ("timestamp", "header")
"""One verdict for those with versions, as a verdict takes seconds; where there are none at all, the
oracle goes a way of its own.
"""


@dataclass(frozen=True)
class Row:
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    ms: int
    headers: tuple = ()
    type: int = 0
    aborted: bool = False
    horizon: int | None = None

    def cells(self):
        head = (self.key, self.value, TOPIC, self.partition, self.offset, self.ms, self.type)
        return (*head, list(self.headers), self.aborted, self.horizon)

    def order(self, strategy):
        if strategy == "offset":
            return (False, 0, self.offset)
        if strategy == "timestamp":
            return (True, self.ms, self.offset)
        named = [value for name, value in self.headers if name == "v"]
        if not named or named[-1] is None or len(named[-1]) != 8:
            return (False, 0, self.offset)
        return (True, int.from_bytes(named[-1], "big", signed=True), self.offset)


def headers(rng):
    version = rng.randrange(-5, 40).to_bytes(8, "big", signed=True)
    decoy = (99).to_bytes(8, "big")
    return rng.choice(
        (
            (("v", version),),
            (("v", decoy), ("v", version)),
            (("v", decoy), ("v", None)),
            (("v", b"\0" * 7),),
            (("other", decoy),),
            (),
            (("v", version), ("v2", decoy)),
        )
    )


def history(partition):
    """Records of one partition: gaps, tombstones of three ages, aborted and keyless records."""
    rng = random.Random(partition)
    rows = []
    for offset in range(LOG_END):
        if offset % 9 == 4:
            continue  # a marker, or a hole of an earlier cleaning
        key = f"p{partition}-{rng.randrange(7)}".encode()
        value = f"value {offset}".encode()
        ms = NOW - 1_000_000 + rng.randrange(100) * 1000
        rows.append(Row(partition, offset, key, value, ms, headers(rng)))
    special = {
        10: {"key": None},
        12: {"aborted": True},
        17: {"aborted": True, "value": None},
        44: {"aborted": True},
        25: {"value": b""},
        30: {"headers": (("v", b"\x80" + bytes(7)),)},  # the least and the greatest version
        33: {"headers": (("v", b"\x7f" + b"\xff" * 7),)},
    }
    rows = [replace(row, **special.get(row.offset, {})) for row in rows]
    # Keys whose last word is a tombstone: without a horizon, with one to come, with one gone by.
    best = (99).to_bytes(8, "big")
    for offset, horizon in ((36, None), (37, NOW + 1), (38, NOW)):
        key = f"p{partition}-deleted-{offset}".encode()
        older = Row(partition, offset - 31, key, b"old", NOW - 1_000_000, (("v", b"\0" * 8),))
        last = Row(partition, offset, key, None, NOW - 500_000, (("v", best),), horizon=horizon)
        rows = [row for row in rows if row.offset not in (offset, offset - 31)]
        rows += [older, last]
    return sorted(rows, key=lambda row: row.offset)


def winners(rows, strategy, end=END):
    best = {}
    for row in rows:
        if row.offset < end and not row.aborted and row.key is not None:
            other = best.get(row.key)
            if other is None or row.order(strategy) > other.order(strategy):
                best[row.key] = row
    return best


def cleaned(rows, strategy, end=END, log_end=LOG_END):
    best = winners(rows, strategy, end)

    def stays(row):
        if row.offset >= end:
            return True
        if row.aborted:
            return False
        if strategy != "offset" and row.offset == log_end - 1:
            return True
        wins = row.key is not None and best[row.key] is row
        expired = row.value is None and row.horizon is not None and row.horizon <= NOW
        return wins and not expired

    return [row for row in rows if stays(row)]


def frame(spark, rows):
    made = frame_of(spark, [row.cells() for row in rows], SCHEMA)
    return made.selectExpr("*", "timestamp_millis(ms) AS timestamp").drop("ms")


def after_frame(spark, rows):
    return frame(spark, rows).drop("aborted", "deleteHorizonMs")


def rules(strategy, **more):
    given = {"since_ms": NOW, "now_ms": NOW, "delete_retention_ms": RETENTION, **more}
    return Rules(strategy=strategy, header="v" if strategy == "header" else "", **given)


def ranges(partitions, end=END, log_end=LOG_END, start=0):
    return {(TOPIC, number): Cleaned(start, end, log_end) for number in partitions}


# --- faults: wrong records after a pass, and the expected violations ----------------------


class Case:
    """One partition before and after, with the roles its records play."""

    def __init__(self, partition, strategy):
        self.partition = partition
        self.before = history(partition)
        self.after = cleaned(self.before, strategy)
        self.best = winners(self.before, strategy)
        here = {row.offset for row in self.after}
        inside = [row for row in self.before if row.offset < END]
        losing = [r for r in inside if r.key in self.best and self.best[r.key] is not r]
        self.losers = [r for r in losing if not r.aborted and self.best[r.key].offset in here]
        self.survivors = [row for row in self.after if row.offset < END and row.value is not None]

    def at(self, offset):
        return next(row for row in self.before if row.offset == offset)

    def without(self, *gone):
        self.after = [row for row in self.after if row.offset not in {g.offset for g in gone}]

    def put(self, *rows):
        self.after = sorted([*self.after, *rows], key=lambda row: row.offset)

    def change(self, row, **new):
        self.after = [replace(each, **new) if each == row else each for each in self.after]
        return row.offset


def lost_survivor(case):
    case.without(case.survivors[0], case.survivors[2])
    return [("survivor_lost", case.survivors[n].offset) for n in (0, 2)]


def lost_tombstones(case):
    case.without(case.at(36), case.at(37))
    return [("tombstone_lost", 36), ("tombstone_lost", 37)]


def lost_tail(case):
    case.without(case.at(45), case.at(48), case.at(44))  # 44 was aborted: it may go
    return [("tail_lost", 45), ("tail_lost", 48)]


def kept_losers(case):
    case.put(*case.losers[:3])
    return [("loser_kept", row.offset) for row in case.losers[:3]]


def wrong_strategy(case):
    loser = next(row for row in case.losers if case.best[row.key].value is not None)
    case.put(loser)
    case.without(case.best[loser.key])
    return [("survivor_lost", case.best[loser.key].offset), ("wrong_winner", loser.offset)]


def resurrected(case):
    case.put(case.at(7))
    return [("tombstone_resurrected", 7)]


def overdue_tombstone(case):
    case.put(case.at(38))
    return [("tombstone_overdue", 38)]


def kept_aborted(case):
    case.put(case.at(12), case.at(17))
    return [("aborted_kept", 12), ("aborted_kept", 17)]


def kept_keyless(case):
    case.put(case.at(10))
    return [("keyless_kept", 10)]


def altered_key(case):
    return [("key_altered", case.change(case.survivors[1], key=b"another"))]


def altered_value(case):
    found = [("value_altered", case.change(case.survivors[1], value=b"valuf"))]
    found.append(("value_altered", case.change(case.at(36), value=b"")))  # empty is not null
    return [*found, ("value_altered", case.change(case.at(46), value=None))]


def altered_headers(case):
    rows = [case.at(offset) for offset in (41, 42, 45)]
    case.change(rows[0], headers=(*rows[0].headers, ("x", None)))
    case.change(rows[1], headers=(("x", b""),))
    case.change(rows[2], headers=(("a", None), ("b", b"x")))
    return [("headers_altered", row.offset) for row in rows]


def altered_timestamp(case):
    row = case.survivors[1]
    return [("timestamp_altered", case.change(row, ms=row.ms + 1))]


def altered_type(case):
    return [("timestamp_type_altered", case.change(case.survivors[1], type=1))]


def duplicate(case):
    case.put(case.survivors[0], case.survivors[0], case.at(47))
    first = case.survivors[0].offset
    return [("duplicated", first), ("duplicated", first), ("duplicated", 47)]


def altered_duplicate(case):
    case.put(replace(case.survivors[0], value=b"!"))
    offset = case.survivors[0].offset
    return [("duplicated", offset), ("value_altered", offset)]


def invented(case):
    case.put(replace(case.survivors[0], offset=4), replace(case.at(48), offset=LOG_END + 3))
    case.put(*[replace(case.at(10), offset=13)] * 2)
    return [
        *(("invented_record", offset) for offset in (4, 13, LOG_END + 3)),
        ("duplicated", 13),
    ]


def invented_key(case):
    case.put(replace(case.survivors[0], offset=22, key=b"nobody's"))
    return [("invented_key", 22)]


def strayed(case):
    case.put(replace(history(case.partition - 1)[0], partition=case.partition, offset=31))
    return [("wrong_partition", 31)]


def swapped(case):
    rows = case.after
    rows[2], rows[3] = rows[3], rows[2]
    rows[-2], rows[-1] = rows[-1], rows[-2]
    return [("out_of_order", rows[3].offset), ("out_of_order", rows[-1].offset)]


FAULTS = [
    *(lost_survivor, lost_tombstones, lost_tail, kept_losers, wrong_strategy, resurrected),
    *(overdue_tombstone, kept_aborted, kept_keyless, altered_key, altered_value, altered_headers),
    *(altered_timestamp, altered_type, duplicate, altered_duplicate, invented, invented_key),
    *(strayed, swapped),
]


@pytest.mark.parametrize("strategies", (OFFSETS, VERSIONS))
def test_every_fault_is_found_and_nothing_else(frames, strategies):
    before, after, expected = [], [], []
    asked = {}
    for partition, (strategy, fault) in enumerate(product(strategies, FAULTS)):
        case = Case(partition, strategy)
        sound = list(case.after)
        told = [(kind, partition, offset) for kind, offset in fault(case)]
        assert case.after != sound, fault.__name__
        if strategy != "offset":  # versions have more reasons to keep an expired tombstone
            told = [each for each in told if each[0] != "tombstone_overdue"]
        expected += told
        before += case.before
        after += case.after
        asked[TOPIC, partition] = rules(strategy)

    verdict = verify(
        frame(frames, before), after_frame(frames, after).coalesce(1), asked,
        ranges(range(len(asked))), examples=EVERYTHING,
    )  # fmt: skip

    found = [(each["kind"], each["partition"], each["offset"]) for each in verdict.examples]
    at_places = [each for each in expected if each[0] != "out_of_order"]
    assert sorted(each for each in found if each[0] != "out_of_order") == sorted(at_places)
    kinds = [kind for kind, _, _ in expected]
    assert verdict.violations == {kind: kinds.count(kind) for kind in KINDS if kind in kinds}
    assert not verdict.ok
    assert (verdict.records_before, verdict.records_after) == (len(before), len(after))
    disorder = {each[1:] for each in expected if each[0] == "out_of_order"}
    assert {each[1:] for each in found if each[0] == "out_of_order"} < disorder


@pytest.mark.parametrize("strategies", (OFFSETS, VERSIONS))
def test_a_sound_cleaning_passes_and_that_of_another_strategy_does_not(
    frames, strategies, monkeypatch
):
    histories = {
        (TOPIC, number): (history(number), strategy, STRATEGIES[STRATEGIES.index(strategy) - 1])
        for number, strategy in enumerate(4 * strategies, 100)
    }
    before = [row for rows, _, _ in histories.values() for row in rows]
    sound = [row for rows, own, _ in histories.values() for row in cleaned(rows, own)]
    wrong = [row for rows, _, other in histories.values() for row in cleaned(rows, other)]
    asked = {place: rules(own) for place, (_, own, _) in histories.items()}
    numbers = ranges(number for _, number in histories)
    old = frame(frames, before)
    verdict = verify(old, after_frame(frames, sound), asked, numbers)
    with monkeypatch.context() as patch:
        # Checksums by key suffice, unless the tail retains an aborted record, as it may.
        patch.setattr(oracle, "_compare_records", None)
        lean = after_frame(frames, [row for row in sound if row.offset != 44]).coalesce(1)
        assert verify(old, lean, asked, numbers).violations == {}
    assert verdict.violations == {}
    assert verdict.as_json() == {
        "ok": True,
        "violations": {},
        "examples": [],
        "records_before": len(before),
        "records_after": len(sound),
        "gone_from_front": 0,
        "unproven": [],
        "notes": [],
    }

    verdict = verify(old, after_frame(frames, wrong), asked, numbers, examples=EVERYTHING)
    disagree = {
        place: [k for k, r in winners(rows, own).items() if winners(rows, other)[k] != r]
        for place, (rows, own, other) in histories.items()
    }
    assert all(disagree.values())
    for kinds in (("survivor_lost", "tombstone_lost"), ("wrong_winner",)):
        found = Counter(
            (each["topic"], each["partition"]) for each in verdict.examples if each["kind"] in kinds
        )
        assert found == {place: len(keys) for place, keys in disagree.items()}


def test_the_first_pass_summarizes_each_partition(frames):
    """Facts that a record alone decides; a doubt does not depend on a violation."""
    old = NOW - 90_000
    before = [
        *(Row(0, n, b"k%d" % (n % 2), b"v", old + n) for n in range(6)),
        # The last record is a tombstone that versions would retain.
        Row(1, 0, b"a", b"v", old), Row(1, 1, b"a", None, old + 1),
        # The superseded record is younger than the minimum lag.
        Row(2, 0, b"a", b"v", NOW - 999), Row(2, 1, b"a", b"w", old),
        # Nothing is below the log start, and the tail has a young record.
        Row(3, 0, b"a", b"v", old), Row(3, 1, b"b", b"v", NOW - 1000), Row(3, 2, b"c", b"v", old),
    ]  # fmt: skip
    gone = {(0, 0), (0, 1), (0, 2), (1, 0), (2, 0)}
    after = [row for row in before if (row.partition, row.offset) not in gone]
    kinds = dict(enumerate(("offset", "timestamp", "offset", "offset")))
    asked = {
        (TOPIC, n): rules(kind, min_compaction_lag_ms=1000, max_compaction_lag_ms=80_000)
        for n, kind in kinds.items()
    }
    retention = 90_000 - 2
    numbers = {
        (TOPIC, 0): Cleaned(2, 4, 6, retention),
        (TOPIC, 1): Cleaned(0, 2, 2),
        (TOPIC, 2): Cleaned(0, 2, 2),
        (TOPIC, 3): Cleaned(0, 1, 3),
    }
    orders = oracle.Orders.of(asked)
    moved = frame(frames, after).withColumn(
        "displaced", oracle.F.col("partition") == oracle.F.col("offset")
    )
    ranges_ = oracle.build_ranges(moved, asked, numbers, {(TOPIC, 0): oracle.StartState(0, 0)})
    found = oracle.summarize_partitions(
        oracle.old_rows(frame(frames, before), ranges_, orders),
        oracle.new_rows(moved, ranges_),
        orders,
        fates=True,
        horizons=True,
    )
    assert {partition: tuple(each) for (_, partition), each in found.items()} == {
        # before, after, doubtful, below the start, removed early, overdue, displaced
        0: (4, 3, True, 2, False, True, False),
        1: (2, 1, True, 0, False, False, True),
        2: (2, 1, True, 0, False, False, False),
        3: (3, 3, False, 0, False, False, False),
    }


def test_the_fate_of_a_transaction_is_compared_if_it_had_ended(frames):
    fates = [(False, True), (True, False), (None, True), (None, False), (False, False)]
    before = [Row(0, at, b"k%d" % at, b"v", NOW, aborted=old) for at, (old, _) in enumerate(fates)]
    after = [replace(row, aborted=new) for row, (_, new) in zip(before, fates, strict=True)]
    asked, numbers = rules("offset"), ranges([0], end=0, log_end=5)
    verdict = verify(frame(frames, before), frame(frames, after), asked, numbers)
    assert [(each["kind"], each["offset"]) for each in verdict.examples] == [
        ("fate_altered", 0),
        ("fate_altered", 1),
    ]
    verdict = verify(frame(frames, before), after_frame(frames, after), asked, numbers)
    assert verdict.violations == {}


def test_the_order_is_looked_at_if_some_record_is_displaced_or_nothing_says_so(frames, monkeypatch):
    looked_at = []

    def out_of_order(order, examples):
        looked_at.append((order.columns, examples))
        return 2, [(TOPIC, 0, 3)]

    monkeypatch.setattr(oracle, "records_out_of_order", out_of_order)
    rows = [Row(each, at, b"k%d" % at, b"v", NOW) for each in (0, 1) for at in range(3)]
    old, new = frame(frames, rows), after_frame(frames, rows)
    asked, numbers = rules("offset"), ranges([0, 1], end=3, log_end=3)
    col, lit = oracle.F.col, oracle.F.lit
    order = new.select("topic", "partition", "offset")
    for after, looks in (
        (new.withColumn("displaced", lit(False)), 0),
        (new.withColumn("displaced", (col("offset") == 2) & (col("partition") == 1)), 1),
        (new, 2),
    ):
        verdict = verify(old, after, asked, numbers, order=order, examples=7)
        assert verdict.violations == ({"out_of_order": 2} if looks else {})
        assert len(looked_at) == looks
    verify(old, new, asked, numbers)
    assert looked_at[1:] == [(order.columns, 7), (new.columns, oracle.EXAMPLES)]


def test_examples_are_limited_for_each_kind_and_sorted(frames):
    rows = [Row(0, at, b"k%02d" % at, None if at % 2 else b"v", NOW) for at in range(10)]
    rows += [Row(1, at, b"k", b"v", NOW) for at in range(4)]
    verdict = verify(
        frame(frames, rows), after_frame(frames, [rows[11]]).coalesce(1), rules("offset"),
        ranges([0, 1], end=6, log_end=10), examples=2,
    )  # fmt: skip
    assert verdict.violations == {
        "survivor_lost": 4, "tombstone_lost": 3, "tail_lost": 4, "wrong_winner": 1,
    }  # fmt: skip
    assert [(e["kind"], e["partition"], e["offset"], e["key"]) for e in verdict.examples] == [
        ("survivor_lost", 0, 0, "k00"),
        ("survivor_lost", 0, 2, "k02"),
        ("tombstone_lost", 0, 1, "k01"),
        ("tombstone_lost", 0, 3, "k03"),
        ("tail_lost", 0, 6, "k06"),
        ("tail_lost", 0, 7, "k07"),
        ("wrong_winner", 1, 1, "k"),
    ]


@pytest.mark.interop
def test_examples_say_what_where_and_which_key(spark, interpreted):
    for name, value in interpreted.items():
        spark.conf.set(name, value)
    case = Case(7, "offset")
    gone = case.survivors[0]
    case.without(gone)
    verdict = verify(
        frame(spark, case.before), after_frame(spark, case.after), rules("offset"), ranges([7])
    )
    assert verdict.examples == [
        {
            "kind": "survivor_lost",
            "text": KINDS["survivor_lost"],
            "topic": TOPIC,
            "partition": 7,
            "offset": gone.offset,
            **bytes_item("key", gone.key),
        }
    ]


def test_the_last_record_of_the_log_stays_under_a_version_strategy(frames):
    """Compared up to the log's end, the last record loses by version (cleaner §13.5)."""
    old, new = ((n).to_bytes(8, "big") for n in (1, 2))

    def rows(partition):
        return [
            Row(partition, 0, b"a", b"0", NOW, (("v", new),)),
            Row(partition, 1, b"a", b"1", NOW, (("v", old),)),
        ]

    sound = {
        partition: cleaned(rows(partition), strategy, end=2, log_end=2)
        for partition, strategy in ((0, "offset"), (1, "header"))
    }
    assert {partition: len(kept) for partition, kept in sound.items()} == {0: 1, 1: 2}
    after = [*sound[0], *sound[1], rows(2)[0], rows(3)[0]]
    strategies = ("offset", "header", "offset", "header")
    verdict = verify(
        frame(frames, [row for partition in range(4) for row in rows(partition)]),
        after_frame(frames, after),
        {(TOPIC, number): rules(strategy) for number, strategy in enumerate(strategies)},
        ranges(range(4), end=2, log_end=2),
        examples=1,
    )
    assert verdict.violations == {"survivor_lost": 2, "wrong_winner": 1}
    assert [(each["kind"], each["partition"], each["offset"]) for each in verdict.examples] == [
        ("survivor_lost", 2, 1),
        ("wrong_winner", 2, 0),
    ]


def test_lags_and_the_time_in_which_a_tombstone_may_expire(frames):
    def row(partition, offset, key, value, age, **more):
        return Row(partition, offset, key, value, NOW - age, **more)

    before = [
        row(0, 0, b"a", b"0", 5_000), row(0, 1, b"a", b"1", 4_999), row(0, 2, b"a", b"2", 9_000),
        row(1, 0, b"b", b"0", 90_001), row(1, 1, b"b", b"1", 90_002),
        row(2, 0, b"c", b"0", 90_001), row(2, 1, b"c", b"1", 10),
        row(4, 0, b"g", b"0", 90_001, aborted=True), row(4, 1, b"g", b"1", 90_001),
        row(5, 0, b"h", b"0", 90_001),
        row(3, 0, b"d", None, 80_000), row(3, 1, b"e", None, 80_000, horizon=NOW - 1),
        row(3, 2, b"f", None, 80_000, horizon=NOW - 50_001),
    ]  # fmt: skip
    after = [each for each in before if each.partition in (1, 2, 4, 5) or each.value == b"2"]
    numbers = {
        (TOPIC, 0): Cleaned(0, 3, 3), (TOPIC, 1): Cleaned(0, 0, 2),
        (TOPIC, 2): Cleaned(0, 0, 2), (TOPIC, 3): Cleaned(0, 3, 4), (TOPIC, 4): Cleaned(0, 0, 2),
    }  # fmt: skip
    asked = rules(
        "offset", since_ms=NOW - 50_000, delete_retention_ms=49_999, min_compaction_lag_ms=5_000,
        max_compaction_lag_ms=90_000,
    )  # fmt: skip
    # Partition 3 twice more: where tombstones stay longer, and where all of them are there.
    later, kept = ([replace(r, partition=n) for r in before if r.partition == 3] for n in (6, 7))
    numbers |= {(TOPIC, 6): numbers[TOPIC, 3], (TOPIC, 7): numbers[TOPIC, 3]}
    by_place = dict.fromkeys(numbers, asked)
    by_place[TOPIC, 6] = replace(asked, delete_retention_ms=50_001)
    verdict = verify(
        frame(frames, [*before, *later, *kept]), after_frame(frames, [*after, *kept]), by_place,
        numbers,
    )  # fmt: skip
    # In partition 0 the record of exactly that age may be removed. In partition 2 a young record
    # follows, in 4 a transaction may be open, and 5 is not configured as compacted.
    assert [(e["kind"], e["partition"], e["offset"]) for e in verdict.examples] == [
        ("tombstone_lost", 6, 0),
        ("min_lag_broken", 0, 1),
        ("tombstone_overdue", 7, 2),
        ("max_lag_broken", 1, 0),
    ]
    assert verdict.violations == {
        "tombstone_lost": 1, "tombstone_overdue": 1, "min_lag_broken": 1, "max_lag_broken": 2,
    }  # fmt: skip


def test_below_the_log_start_nothing_counts_and_unnamed_partitions_may_not_change(frames):
    rows = [Row(0, n, b"a", b"%d" % n, NOW) for n in range(6)]
    rows += [Row(1, n, b"b", b"%d" % n, NOW) for n in range(3)]
    after = [rows[3], rows[5], rows[6], rows[8]]
    verdict = verify(
        frame(frames, rows), after_frame(frames, after), rules("offset"),
        {(TOPIC, 0): Cleaned(4, 6, 6)},
    )  # fmt: skip
    assert verdict.violations == {"tail_lost": 1}
    assert (verdict.records_before, verdict.records_after) == (5, 3)


@pytest.mark.slow
@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("slices", (1, 3))
def test_order_is_looked_at_across_tasks_and_topics(spark, slices):
    places = [("a", 0, 1), ("a", 0, 2), ("b", 0, 1), ("a", 1, 7), ("b", 0, 3), ("a", 0, 5)]
    schema = "topic string, partition int, offset bigint"

    def disorder(rows):
        made = spark.createDataFrame(spark.sparkContext.parallelize(rows, slices), schema)
        return oracle.records_out_of_order(made, 10)

    assert disorder(places) == (0, [])
    assert disorder([*places[:1], *places[:1], *places[1:]]) == (0, []), "no matter of order"
    assert disorder([*places, ("b", 0, 2), ("a", 0, 4)]) == (2, [("a", 0, 4), ("b", 0, 2)])
