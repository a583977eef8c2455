"""Faults in the bytes of segments: each kind is counted exactly, and no other kind.

A generated stream is cleaned by the engine. In a copy of the result each partition gets one kind of
fault, several times: batches are decoded, changed and sealed with a correct CRC, so only the oracle
can detect the fault. Plain Python computes the expected counts.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from logstore import Broker
from logstore.record.records import Record
from logstore.spark.oracle.directories import verify_directories
from logstore.spark.oracle.verify import Verdict
from logstore.spark.oracle.violations import KINDS
from logstore.types import TimestampType
from tests.support.oracles.version_oracle import By, order_of
from tests.support.world.fault_history import HASTY_KEYS, TOPIC, History, cleaned_history
from tests.support.world.segment_faults import LogBytes, Row, StoredBatch

pytestmark = pytest.mark.slow

EVERYTHING = 10_000

Counts = dict[str, int]


class Patient:
    """A partition before, and the bytes of the same one after, with the roles of its records."""

    def __init__(self, history: History, number: int, after: LogBytes) -> None:
        self.number, self.after, self.history = number, after, history
        self.end_offset, self.log_end_offset = history.cleaned[number][1:]
        self.before = history.bytes_before(number).rows()
        self.inside = [row for row in self.before if row.offset < self.end_offset]
        best = winners(self.inside, "offset")
        won = list(best.values())
        self.survivors = [row for row in won if not row.is_tombstone]
        deleted = [row for row in won if row.is_tombstone]
        self.tombstones = [row for row in deleted if row.header.delete_horizon_ms is None]
        self.expired = [row for row in deleted if row not in self.tombstones]
        competed = [row for row in self.inside if not row.aborted and row.record.key is not None]
        self.losers = [row for row in competed if best[row.record.key] is not row]
        self.aborted = [row for row in self.inside if row.aborted]
        self.keyless = [row for row in self.inside if row.record.key is None]
        self.tail = [row for row in self.before if row.offset >= self.end_offset]

    def losers_of(self, winners: Sequence[Row]) -> list[tuple[Row, Row]]:
        """Return winners with the last value that each of them superseded, if there is one."""
        last = {row.record.key: row for row in self.losers if not row.is_tombstone}
        return [(row, last[row.record.key]) for row in winners if row.record.key in last]

    def cleaned_batches(self) -> list[StoredBatch]:
        """Return the records in the cleaned range; the active segment must stay in order.

        There the log's end is looked for, so that the directory would not even open.
        """
        cleaned, *_ = self.after.segments
        return [batch for batch in cleaned.batches if batch.is_data]

    def several_at_a_time(self) -> list[StoredBatch]:
        """Return the batches with more than one record."""
        return [batch for batch in self.cleaned_batches() if len(batch.records) > 1]

    def restore(self, *rows: Row) -> None:
        """Put records that were cleaned away back where they were."""
        for row in rows:
            self.after.put(row.record, row.header)


def winners(inside: Sequence[Row], strategy: str) -> dict[bytes, Row]:
    """Return of each key the record that wins."""
    best: dict[bytes, Row] = {}
    for row in inside:
        key = row.record.key
        if key is None or row.aborted:
            continue
        if key not in best or _order(row, strategy) > _order(best[key], strategy):
            best[key] = row
    return best


def _order(row: Row, strategy: str) -> tuple[bool, int, int]:
    if strategy == "offset":
        return False, 0, row.offset
    found, version, offset = order_of(
        row.record, By("timestamp") if strategy == "timestamp" else By("long", "version")
    )
    return found, version if found else 0, offset


def some(things: Sequence, count: int) -> list:
    """Return so many, spread over all."""
    assert len(things) >= count
    step = len(things) // count
    return list(things[: step * count : step])


# --- faults: a partition's bytes, and the expected counts ---------------------------------------


def unharmed(patient: Patient) -> Counts:
    return {}


def lost_survivors(patient: Patient) -> Counts:
    for row in some(patient.survivors, 7):
        patient.after.remove(row.offset)
    return {"survivor_lost": 7}


def lost_tombstones(patient: Patient) -> Counts:
    for row in some(patient.tombstones, 3):
        patient.after.remove(row.offset)
    return {"tombstone_lost": 3}


def lost_tail(patient: Patient) -> Counts:
    for row in some([row for row in patient.tail if not row.aborted], 4):
        patient.after.remove(row.offset)
    return {"tail_lost": 4}


def lost_all(patient: Patient) -> Counts:
    """Take everything: batches without records stay, and the offsets with them."""
    for record in patient.after.records:
        patient.after.remove(record.offset)
    return {
        "survivor_lost": len(patient.survivors),
        "tombstone_lost": len(patient.tombstones),
        "tail_lost": sum(not row.aborted for row in patient.tail),
    }


def kept_losers(patient: Patient) -> Counts:
    patient.restore(*some(patient.losers, 6))
    return {"loser_kept": 6}


def older_values(patient: Patient) -> Counts:
    for winner, loser in some(patient.losers_of(patient.survivors), 3):
        patient.after.remove(winner.offset)
        patient.restore(loser)
    return {"survivor_lost": 3, "wrong_winner": 3}


def resurrected_keys(patient: Patient) -> Counts:
    for winner, loser in some(patient.losers_of(patient.tombstones), 4):
        patient.after.remove(winner.offset)
        patient.restore(loser)
    return {"tombstone_lost": 4, "tombstone_resurrected": 4}


def overdue_tombstones(patient: Patient) -> Counts:
    patient.restore(*some(patient.expired, 3))
    return {"tombstone_overdue": 3}


def kept_aborted(patient: Patient) -> Counts:
    patient.restore(*some(patient.aborted, 5))
    return {"aborted_kept": 5}


def kept_keyless(patient: Patient) -> Counts:
    patient.restore(*some(patient.keyless, 3))
    return {"keyless_kept": 3}


def altered_keys(patient: Patient) -> Counts:
    first, second, *others = some(patient.survivors, 6)
    patient.after.change(first.offset, key=None)
    patient.after.change(second.offset, key=b"")
    for row in others:
        patient.after.change(row.offset, key=row.record.key + b"0")
    return {"key_altered": 6}


def altered_values(patient: Patient) -> Counts:
    """Change one bit, cut a byte off, empty it, take it away; let a tombstone have an empty one."""
    one, two, three, four = some([row for row in patient.survivors if row.record.value], 4)
    value = one.record.value
    patient.after.change(one.offset, value=value[:-1] + bytes([value[-1] ^ 1]))
    patient.after.change(two.offset, value=two.record.value[:-1])
    patient.after.change(three.offset, value=b"")
    patient.after.change(four.offset, value=None)
    patient.after.change(patient.tombstones[0].offset, value=b"")
    patient.after.change(patient.tail[0].offset, value=b"tail")
    return {"value_altered": 6}


def altered_headers(patient: Patient) -> Counts:
    """Change a value, null it, rename it, swap two, add one, take one away; empty is not null."""
    stated = [row for row in patient.survivors if row.record.headers]
    offsets = [row.offset for row in some(stated, 5)]
    version = stated[0].record.headers[0][1]
    for offset, headers in zip(
        offsets,
        (
            (("version", version[:-1] + bytes([version[-1] ^ 1])),),
            (("version", None),),
            (("Version", version),),
            (*stated[3].record.headers, ("x", b"")),
            (),
        ),
        strict=True,
    ):
        patient.after.change(offset, headers=headers)
    return {"headers_altered": 5}


def altered_timestamps(patient: Patient) -> Counts:
    for row, more in zip(some(patient.survivors, 4), (1, -1, 1000, -86_400_000), strict=True):
        patient.after.change(row.offset, timestamp=row.record.timestamp + more)
    return {"timestamp_altered": 4}


def altered_timestamp_types(patient: Patient) -> Counts:
    """Let batches say that the log set a time, which is the one that was there."""
    fitting = [
        batch
        for batch in patient.after.batches
        if len(batch.records) == 1 and batch.records[0].timestamp == batch.header.max_timestamp
    ]
    for batch in some([batch for batch in fitting if batch.is_data], 3):
        patient.after.set_by_log(batch)
        assert batch.header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return {"timestamp_type_altered": 3}


def duplicates(patient: Patient) -> Counts:
    for row in some(patient.survivors, 4):
        patient.after.repeat(row.offset)
    return {"duplicated": 4}


def other_duplicates(patient: Patient) -> Counts:
    for row in some(patient.survivors, 3):
        patient.after.repeat(row.offset, value=b"another")
    return {"duplicated": 3, "value_altered": 3}


def swapped(patient: Patient) -> Counts:
    """Let two records of a batch change places."""
    for batch in some(patient.several_at_a_time(), 3):
        patient.after.swap(batch.records[0].offset)
    return {"out_of_order": 3}


def swapped_batches(patient: Patient) -> Counts:
    filled = [batch for batch in patient.cleaned_batches() if batch.records]
    for pair in some(list(zip(filled[::2], filled[1::2], strict=False)), 4):
        patient.after.swap_batches(*pair)
    return {"out_of_order": 4}


def repeated_batches(patient: Patient) -> Counts:
    """Repeat whole batches, which is also a step back in offsets."""
    batches = some(patient.several_at_a_time(), 3)
    for batch in batches:
        patient.after.repeat_batch(batch)
    return {"duplicated": sum(len(batch.records) for batch in batches), "out_of_order": 3}


def invented_records(patient: Patient) -> Counts:
    """Add records of known keys at free offsets, also after the log's end."""
    places = (*some(free_everywhere(patient), 4), patient.log_end_offset + 2)
    for offset, row in zip(places, patient.survivors, strict=False):
        patient.after.put(row.record._replace(offset=offset), row.header)
    return {"invented_record": 5}


def moved(patient: Patient) -> Counts:
    """Give records another offset."""
    places = free_everywhere(patient)
    for offset, row in zip(some(places, 3), some(patient.survivors, 3), strict=True):
        patient.after.remove(row.offset)
        patient.after.put(row.record._replace(offset=offset), row.header)
    return {"survivor_lost": 3, "invented_record": 3}


def invented_keys(patient: Patient) -> Counts:
    places = some(free_everywhere(patient), 5)
    for offset, row in zip(places, patient.survivors, strict=False):
        patient.after.put(row.record._replace(offset=offset, key=b"%d" % offset), row.header)
    return {"invented_key": 5}


def strayed(patient: Patient) -> Counts:
    others = Patient(patient.history, patient.number - 1, patient.after).survivors
    places = some(free_everywhere(patient), 6)
    for offset, row in zip(places, others, strict=False):
        patient.after.put(row.record._replace(offset=offset), row.header)
    return {"wrong_partition": 6}


def revealed(patient: Patient) -> Counts:
    """Make aborted records beyond the cleaned range count as committed; no record changes."""
    for segment in patient.after.segments:
        # Removed instead of emptied: an empty index next to an abort marker would be rebuilt.
        segment.path.with_suffix(".txnindex").unlink(missing_ok=True)
    there = {record.offset for record in patient.after.records}
    count = sum(row.aborted and row.offset in there for row in patient.tail)
    assert count > 3
    return {"fate_altered": count}


def lost_partition(patient: Patient) -> Counts:
    """Its folder goes when the others are written."""
    return {"partition_lost": 1}


def hasty(patient: Patient) -> Counts:
    """Nothing to do: it was cleaned by force, without regard to the lag."""
    return {"min_lag_broken": HASTY_KEYS}


def idle(patient: Patient) -> Counts:
    """Nothing to do: its active segment, long overdue, was neither rolled nor cleaned."""
    return {"max_lag_broken": len(patient.tail)}


def free_everywhere(patient: Patient) -> list[int]:
    """Return offsets of the cleaned range that hold nothing now and held no record before."""
    held = {row.offset for row in patient.before}
    free = patient.after.free_offsets(0, patient.end_offset)
    return [offset for offset in free if offset not in held]


def altered_horizons(patient: Patient) -> Counts:
    """Let a batch say that its tombstones may go a millisecond later."""
    marked = [each for each in patient.cleaned_batches() if each.header.has_delete_horizon]
    batch = max(marked, key=lambda each: len(each.records))
    later = batch.header.base_timestamp + 1
    batch.header, batch.data = batch.header._replace(base_timestamp=later), None
    return {"horizon_wrong": len(batch.records)}


FAULTS: tuple[Callable[[Patient], Counts], ...] = (
    *(unharmed, lost_survivors, lost_tombstones, lost_tail, lost_all, kept_losers, older_values),
    *(resurrected_keys, overdue_tombstones, kept_aborted, kept_keyless, altered_keys),
    *(altered_values, altered_headers, altered_timestamps, altered_timestamp_types, duplicates),
    *(other_duplicates, repeated_batches, swapped, swapped_batches, invented_records, moved),
    *(invented_keys, strayed, revealed, altered_horizons, lost_partition, hasty, idle),
)
SAME_RECORDS = (
    *(unharmed, altered_timestamp_types, revealed, altered_horizons, lost_partition),
    *(hasty, idle),
)
NOT_OF_BYTES = {"not_cleaned", "retention_early"}
"""Told by checkpoints and log starts: test_directories_facts.py, test_verify_horizons.py."""


@pytest.fixture(scope="module")
def history(tmp_path_factory) -> History:
    return cleaned_history(
        tmp_path_factory.mktemp("faults"),
        "offset",
        len(FAULTS),
        idle=FAULTS.index(idle),
        hasty=FAULTS.index(hasty),
    )


@pytest.fixture(scope="module")
def versioned(tmp_path_factory) -> History:
    return cleaned_history(tmp_path_factory.mktemp("versions"), "header", 3)


@pytest.fixture
def judged(spark, interpreted):
    """Return a function that lets the oracle judge a pair of directories, as the command does."""

    def judge(history: History, after: Path | None = None, **asked: object) -> Verdict:
        return verify_directories(
            spark,
            history.before,
            after or history.after,
            now_ms=history.now_ms,
            examples=EVERYTHING,
            **asked,
        )

    return judge


@pytest.mark.interop  # in short: test_verify.test_every_fault_is_found_and_nothing_else
def test_every_kind_of_fault_is_counted_exactly_where_it_is(judged, history, tmp_path):
    after = tmp_path / "after"
    shutil.copytree(history.after, after)
    expected, damaged = {}, {}
    for number, fault in enumerate(FAULTS):
        patient = Patient(history, number, history.bytes_after(number, after))
        sound = patient.after.records
        expected[number] = fault(patient)
        damaged[number] = patient.after.records
        assert (damaged[number] == sound) == (fault in SAME_RECORDS), fault.__name__
        patient.after.write()
    assert_a_reader_meets(damaged, after)
    shutil.rmtree(after / f"{TOPIC}-{FAULTS.index(lost_partition)}")
    shutil.copytree(after / f"{TOPIC}-0", after / f"other-{len(FAULTS)}")
    expected[len(FAULTS)] = {"partition_invented": 1}

    verdict = judged(history, after)

    found: dict[int, Counter[str]] = {number: Counter() for number in expected}
    for each in verdict.examples:
        found[each["partition"]][each["kind"]] += 1
    for number, counts in expected.items():
        name = FAULTS[number].__name__ if number < len(FAULTS) else "invented partition"
        # Violations that are only counted have incomplete examples.
        assert found[number].keys() == counts.keys(), name
        exact = counts.keys() - {"out_of_order", "max_lag_broken"}
        assert {kind: found[number][kind] for kind in exact} == {k: counts[k] for k in exact}, name
    total = sum((Counter(each) for each in expected.values()), Counter())
    assert verdict.violations == dict(total)
    assert set(verdict.violations) == set(KINDS) - NOT_OF_BYTES
    del damaged[FAULTS.index(lost_partition)]
    assert verdict.records_after == sum(len(records) for records in damaged.values())


def assert_a_reader_meets(damaged: dict[int, list[Record]], after: Path) -> None:
    """Assert that there was no recovery, and that the engine's reader returns the fault.

    It passes over batches that do not rise, or calls them damage: those only must be in the files.
    """
    with Broker(after, read_only=True) as broker:
        for number, fault in enumerate(FAULTS):
            log = broker.log(TOPIC, number)
            assert not log.findings, fault.__name__
            if fault in (swapped_batches, repeated_batches):
                met = LogBytes(after / f"{TOPIC}-{number}").records
            else:
                met = [record for _, record in log.reader.records(0)]
            assert met == damaged[number], fault.__name__


@pytest.mark.interop  # in short: test_verify.test_a_sound_cleaning_passes_…
@pytest.mark.parametrize("strategy", ("header", "timestamp", "offset"))
def test_a_pair_is_right_by_its_own_strategy_and_wrong_by_another(judged, versioned, strategy):
    expected = sum(
        (told_by(versioned, number, strategy) for number in versioned.cleaned), Counter()
    )
    assert (not expected) == (strategy == "header")
    verdict = judged(versioned, strategy=strategy)
    assert verdict.violations == dict(expected)
    assert verdict.ok == (strategy == "header")


def told_by(history: History, number: int, strategy: str) -> Counter[str]:
    """Return, in plain Python, the violations of a cleaning pass under a strategy."""
    there = {record.offset for record in history.bytes_after(number).records}
    end_offset = history.cleaned[number][1]
    inside = [row for row in history.bytes_before(number).rows() if row.offset < end_offset]
    best = winners(inside, strategy)
    told: Counter[str] = Counter()
    for row in inside:
        if row.aborted or row.record.key is None:
            assert row.offset not in there
            continue
        winner = best[row.record.key]
        if row is winner:
            told += _of_winner(row, strategy, row.offset in there, history.now_ms)
        elif row.offset in there:
            if winner.offset in there:
                told["loser_kept"] += 1
            elif winner.is_tombstone and not row.is_tombstone:
                told["tombstone_resurrected"] += 1
            else:
                told["wrong_winner"] += 1
    return told


def _of_winner(row: Row, strategy: str, is_there: bool, now_ms: int) -> Counter[str]:
    if not row.is_tombstone:
        return Counter() if is_there else Counter(survivor_lost=1)
    horizon = row.header.delete_horizon_ms
    if horizon is None or now_ms < horizon:
        return Counter() if is_there else Counter(tombstone_lost=1)
    return Counter(tombstone_overdue=1) if is_there and strategy == "offset" else Counter()
