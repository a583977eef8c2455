"""Verdicts: the state, the bytes that cleaning frees, and the command that helps."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
import pytest

from logstore import Broker, TopicPartition, VirtualClock
from logstore.analysis.verdict import (
    Retention,
    Summary,
    Verdict,
    partition_verdict,
    quick_verdict,
)
from logstore.cleaner.stats import CleanReport
from logstore.cli.show.verdict import short_amounts, short_state, summary_lines, verdict_lines
from logstore.errors import CorruptRecordError, KafkaStorageError, UnsupportedFormatError
from logstore.reasons import Reason
from logstore.storage.log.retention import RetentionDecision, RetentionRule, SegmentVerdict
from logstore.types import DAY_MS

TP = TopicPartition("t", 0)
NOW_MS = 1_704_067_200_000


def broker_with(**configs: str) -> Broker[VirtualClock]:
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    of_broker = {name: settings.pop(name) for name in [*settings] if name.startswith("log.")}
    broker = Broker(clock=VirtualClock(), broker_config=of_broker)
    broker.create_topic("t", configs={"cleanup.policy": "compact"} | settings)
    return broker


def fill(broker: Broker[VirtualClock], records: int, keys: int = 5) -> None:
    for number in range(records):
        broker.append("t", key=b"%d" % (number % keys), value=b"x" * 100)


def in_active(broker: Broker[VirtualClock]) -> None:
    fill(broker, 20)


def due(broker: Broker[VirtualClock]) -> None:
    fill(broker, 20)
    broker.roll("t")
    fill(broker, 7)


def not_dirty_enough(broker: Broker[VirtualClock]) -> None:
    fill(broker, 20, keys=20)
    broker.roll("t")
    broker.clean("t", force=True)
    fill(broker, 4)
    broker.roll("t")
    fill(broker, 3)


def roll_is_not_enough(broker: Broker[VirtualClock]) -> None:
    fill(broker, 20, keys=20)
    broker.roll("t")
    broker.clean("t", force=True)
    fill(broker, 4)


def clean(broker: Broker[VirtualClock]) -> None:
    due(broker)
    broker.clean("t", force=True, roll=True)


def in_transaction(broker: Broker[VirtualClock]) -> None:
    producer = broker.producer(transactional_id="x")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", key=b"0", value=b"y").get()
    due(broker)


def with_expired_tombstones(broker: Broker[VirtualClock]) -> None:
    fill(broker, 5)
    broker.append("t", key=b"0", value=None)
    broker.roll("t")
    broker.clean("t")
    broker.clock.advance(days=2)


def nothing(_: Broker[VirtualClock]) -> None:
    pass


def freed(report: CleanReport) -> tuple[int, int]:
    return (
        sum(each.bytes_read - each.bytes_written for each in report.cleaned),
        sum(each.messages_read - each.messages_written for each in report.cleaned),
    )


def size(broker: Broker[VirtualClock]) -> int:
    return broker.log(*TP).size_bytes


@pytest.mark.parametrize(
    ("story", "state", "code", "helps"),
    (
        (nothing, "nothing_to_do", "verdict.empty", ()),
        (in_active, "waiting", "verdict.active_segment", ("help.roll",)),
        (roll_is_not_enough, "waiting", "verdict.active_segment", ("help.force_roll",)),
        (due, "due", "verdict.due", ("help.clean",)),
        (
            not_dirty_enough,
            "waiting",
            "verdict.dirty_ratio",
            ("help.lower_ratio", "help.max_lag", "help.force"),
        ),
        (clean, "nothing_to_do", "verdict.all_clean", ()),
        (in_transaction, "waiting", "verdict.last_stable_offset", ("help.end_transaction",)),
        (with_expired_tombstones, "waiting", "verdict.only_forced", ("help.force",)),
    ),
)
def test_exact_numbers_are_those_of_the_cleaning(
    story: Callable[[Broker[VirtualClock]], None], state: str, code: str, helps: tuple[str, ...]
) -> None:
    with broker_with() as broker:
        story(broker)
        verdict = partition_verdict(broker, TP, exact=True)
        assert (verdict.state, verdict.reason.code) == (state, code)
        assert tuple(each.code for each in verdict.helps) == helps
        assert verdict.exact
        is_due = state == "due"
        before = size(broker)
        for rolls, expected in (
            (False, verdict.frees_bytes),
            (True, verdict.frees_bytes_if_rolled),
        ):
            with broker.fork() as copy:
                report = copy.clean("t", force=not is_due, roll=rolls)
                assert freed(report)[0] == before - size(copy) == expected
                if not rolls:
                    assert freed(report)[1] == verdict.frees_records
        bound = partition_verdict(broker, TP)
        assert not bound.exact
        assert bound.frees_bytes is bound.frees_records is bound.frees_bytes_if_rolled is None
        assert bound.frees_bytes_at_most >= verdict.frees_bytes_at_most == verdict.frees_bytes
        assert bound.frees_bytes_if_rolled_at_most >= verdict.frees_bytes_if_rolled_at_most
        assert bound.size_bytes == verdict.size_bytes == before


def test_the_oldest_dirty_data_gives_the_time() -> None:
    with broker_with() as broker:
        in_active(broker)
        broker.clock.advance(days=1)
        assert partition_verdict(broker, TP).since_ms == NOW_MS
        due(broker)
        broker.clean("t", force=True, roll=True)
        assert partition_verdict(broker, TP).since_ms is None


def test_expired_tombstones_need_an_exact_verdict_to_be_seen() -> None:
    with broker_with() as broker:
        with_expired_tombstones(broker)
        assert partition_verdict(broker, TP).state == "nothing_to_do"
        verdict = partition_verdict(broker, TP, exact=True)
        assert (verdict.state, verdict.frees_records) == ("waiting", 1)


def test_a_lag_that_a_forced_cleaning_ignores() -> None:
    with broker_with(min_compaction_lag_ms=str(DAY_MS)) as broker:
        due(broker)
        verdict = partition_verdict(broker, TP, exact=True)
        assert (verdict.state, verdict.is_due) == ("waiting", False)
        assert verdict.reason.code == "verdict.min_compaction_lag"
        assert [each.code for each in verdict.helps] == ["help.lower_min_lag", "help.force"]
        assert partition_verdict(broker, TP).frees_bytes_at_most >= (verdict.frees_bytes or 0) > 0


def test_several_passes_are_not_exact() -> None:
    with Broker(
        clock=VirtualClock(),
        broker_config={"log.cleaner.dedupe.buffer.size": "1048577", "log.cleaner.threads": "1"},
    ) as broker:
        broker.create_topic("t", configs={"cleanup.policy": "compact"})
        for first in (0, 30_000):
            keys = (b"%d" % number for number in range(first, first + 30_000))
            broker.append_many("t", [(key, b"") for key in keys], partition=0)
            broker.roll("t")
        verdict = partition_verdict(broker, TP, exact=True)
        assert (verdict.state, verdict.exact, verdict.frees_bytes) == ("due", False, None)
        assert verdict.frees_bytes_at_most == size(broker)
        [explained] = broker.explain("t").partitions
        assert explained.passes_needed > 1
        assert explained.verdict == replace(verdict, examined="records")


def damage(broker: Broker[VirtualClock], *, is_closed: bool) -> None:
    log = broker.log(*TP)
    segment = log.segments.first if is_closed else log.active_segment
    broker.runtime.fs.open(segment.log_path, create=True).write_at([b"\xff"], 66)


def check_damaged(verdict: Verdict, *, is_closed: bool) -> None:
    assert verdict.state == "damaged"
    assert [each.code for each in verdict.helps] == ["help.check", "help.salvage"]
    code = "verdict.damaged" if is_closed else "verdict.damaged_elsewhere"
    assert verdict.reason.code == code
    assert verdict.reason.values["ranges"] == 1
    assert verdict.is_due is not is_closed
    assert (verdict.exact, verdict.frees_bytes, verdict.frees_bytes_if_rolled) == (
        False,
        None,
        None,
    )


@pytest.mark.parametrize("is_closed", (True, False))
def test_a_dry_run_finds_damage_and_names_it_first(*, is_closed: bool) -> None:
    with broker_with() as broker:
        due(broker)
        damage(broker, is_closed=is_closed)
        assert partition_verdict(broker, TP).state == "due"
        verdict = partition_verdict(broker, TP, exact=True)
        check_damaged(verdict, is_closed=is_closed)
        [explained] = broker.explain("t").partitions
        assert explained.verdict == verdict


@pytest.mark.parametrize("is_closed", (True, False))
@pytest.mark.parametrize("exact", (True, False))
def test_skipped_damage_is_listed_first(tmp_path: Path, *, is_closed: bool, exact: bool) -> None:
    with Broker(tmp_path, clock=VirtualClock()) as broker:
        broker.create_topic("t", configs={"cleanup.policy": "compact"})
        due(broker)
        damage(broker, is_closed=is_closed)
    with Broker(tmp_path, clock=VirtualClock(), read_only=True, on_damage="pass_over") as broker:
        assert partition_verdict(broker, TP).state == "due"  # no record was read
        assert broker.stats("t").verdict.state == "damaged"
        verdict = partition_verdict(broker, TP, exact=exact)
        check_damaged(verdict, is_closed=is_closed)


def test_an_uncleanable_partition_names_the_time_of_its_failure() -> None:
    with broker_with() as broker:
        due(broker)
        broker.cleaner.uncleanable_partitions.add(TP, ValueError("a defect"))
        verdict = partition_verdict(broker, TP, exact=True)
        assert (verdict.state, verdict.exact) == ("uncleanable", False)
        assert verdict.since_ms == broker.clock.now_ms()
        assert verdict.helps[0].code == "help.salvage"


def test_a_delete_policy_shows_the_segments_that_retention_deletes() -> None:
    with broker_with(cleanup_policy="delete", retention_ms=str(DAY_MS)) as broker:
        due(broker)
        verdict = partition_verdict(broker, TP)
        assert (verdict.state, verdict.exact, verdict.frees_bytes) == ("not_compacted", True, 0)
        assert not verdict.helps
        broker.clock.advance(days=3)
        verdict = partition_verdict(broker, TP)
        before = size(broker)
        assert [each.code for each in verdict.helps] == ["help.retain"]
        assert (verdict.frees_bytes, verdict.frees_records) == (before, 27)
        assert verdict.retention[:2] == (2, before)
        assert verdict.retention.reasons == (
            Reason.of("retention.by_time", limit_ms=DAY_MS),
            Reason.of("retention.empties"),
        )
        broker.retain("t")
        assert size(broker) == 0


def test_a_compact_delete_policy_shows_both_effects() -> None:
    with broker_with(cleanup_policy="compact,delete", retention_bytes="3000") as broker:
        due(broker)
        due(broker)
        verdict = partition_verdict(broker, TP, exact=True)
        [removed] = broker.retain("t", dry_run=True).decisions
        assert verdict.retention.segments == len(removed.removed) == 1
        assert verdict.retention.reasons == (Reason.of("retention.by_size", limit_bytes=3000),)
        assert verdict.state == "due"
        assert [each.code for each in verdict.helps] == ["help.clean", "help.retain"]


def test_retention_names_every_rule_that_removes_a_segment() -> None:
    segments = tuple(
        SegmentVerdict(number, number + 1, 100, rule, ())
        for number, rule in enumerate((*RetentionRule, None))
    )
    decision = RetentionDecision(TP, segments, rolls=False, log_start_offset=3)
    with broker_with(retention_bytes="100", retention_ms="60000") as broker:
        found = Retention.of(decision, broker.log("t").config)
    assert found == (
        *(3, 300),
        (
            Reason.of("retention.by_log_start", log_start_offset=3),
            Reason.of("retention.by_size", limit_bytes=100),
            Reason.of("retention.by_time", limit_ms=60_000),
        ),
    )


def verdict_like(**changes: object) -> Verdict:
    with broker_with() as broker:
        due(broker)
        return replace(partition_verdict(broker, TP, exact=True), **changes)


def test_a_summary_adds_up_partitions_that_are_due() -> None:
    verdict = verdict_like()
    waiting = replace(verdict, state="waiting", is_due=False)
    frees, size_bytes = verdict.frees_bytes or 0, verdict.size_bytes
    summary = Summary.of([verdict, waiting]).to_json()
    assert (summary["partitions"], summary["due"], summary["waiting"]) == (2, 1, 1)
    assert summary["frees_bytes"] == summary["frees_bytes_at_most"] == frees
    assert summary["bytes"] == 2 * size_bytes
    bound = replace(verdict, exact=False, frees_bytes=None, frees_bytes_at_most=size_bytes)
    summary = Summary.of([verdict, bound]).to_json()
    assert summary["frees_bytes"] is None
    assert summary["frees_bytes_at_most"] == frees + size_bytes
    assert Summary.of([]).frees_bytes == 0


def test_the_explanation_of_a_due_partition_is_exact() -> None:
    with broker_with() as broker:
        due(broker)
        [found] = broker.explain("t").partitions
        assert found.verdict == partition_verdict(broker, TP, exact=True)
        [quick] = broker.explain("t", quick=True).partitions
        assert quick.verdict == partition_verdict(broker, TP)
        assert broker.stats("t").verdict == found.verdict


def test_a_delete_policy_is_never_dry_run(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []
    monkeypatch.setattr("logstore.analysis.verdict.measure", lambda *_, **__: measured.append(1))
    with broker_with(cleanup_policy="delete") as broker:
        due(broker)
        assert partition_verdict(broker, TP, exact=True) == partition_verdict(broker, TP)
    assert measured == []


# --- whole verdicts, in JSON and as text --------------------------------------------------------


def expired(broker: Broker[VirtualClock]) -> None:
    due(broker)
    broker.clock.advance(days=3)


def unclean(broker: Broker[VirtualClock]) -> None:
    due(broker)
    broker.cleaner.uncleanable_partitions.add(TP, ValueError("a defect"))
    broker.clock.advance(hours=2)


def damaged_header(broker: Broker[VirtualClock]) -> None:
    expired(broker)
    segment = broker.log(*TP).segments.first
    broker.runtime.fs.open(segment.log_path, create=True).write_at([b"\x09"], 16)


def damaged_closed(broker: Broker[VirtualClock]) -> None:
    due(broker)
    damage(broker, is_closed=True)


WHOLE = {
    **{
        each.__name__: (each, {})
        for each in (nothing, in_active, roll_is_not_enough, due, not_dirty_enough, clean)
    },
    **{
        each.__name__: (each, {})
        for each in (in_transaction, with_expired_tombstones, unclean, damaged_closed)
    },
    **{
        each.__name__: (each, {"cleanup_policy": "delete", "retention_ms": str(DAY_MS)})
        for each in (damaged_header,)
    },
    "disabled": (due, {"log_cleaner_enable": "false"}),
    "min_lag": (due, {"min_compaction_lag_ms": str(DAY_MS)}),
    "deletes": (due, {"cleanup_policy": "delete", "retention_ms": str(DAY_MS)}),
    "deletes_now": (expired, {"cleanup_policy": "delete", "retention_ms": str(DAY_MS)}),
    "both": (expired, {"cleanup_policy": "compact,delete", "retention_ms": str(DAY_MS)}),
}
VERDICTS = Path(__file__).with_name("verdicts.json")


def written(verdict: Verdict, now_ms: int) -> dict[str, object]:
    """Return everything that a verdict says."""
    return {
        "json": verdict.to_json(),
        "lines": list(verdict_lines("t-0", verdict, now_ms)),
        "short": [short_state(verdict), *short_amounts(verdict)],
        "numbers": [verdict.size_bytes, *verdict.removable_bytes, verdict.is_due],
    }


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_verdict_is_this(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To accept a change, delete the file, run the test, and review its new contents."""
    monkeypatch.setenv("COLUMNS", "100")
    story, configs = WHOLE[name]
    with broker_with(**configs) as broker:
        story(broker)
        now_ms = broker.clock.now_ms()
        log = broker.log(*TP)
        decision = broker.cleaner.chooser.explain(log)
        found = {
            "quick": written(quick_verdict(broker, log, decision), now_ms),
            "bound": written(partition_verdict(broker, TP), now_ms),
            "exact": written(partition_verdict(broker, TP, exact=True), now_ms),
            "summary": summary_lines(
                Summary.of([partition_verdict(broker, TP, exact=exact) for exact in (True, False)])
            ),
        }
    stored = json.loads(VERDICTS.read_text(encoding="utf-8")) if VERDICTS.exists() else {}
    found = json.loads(json.dumps(found))
    if name not in stored:
        text = json.dumps({**stored, name: found}, indent=0, ensure_ascii=False)
        VERDICTS.write_text(f"{text}\n", encoding="utf-8")
        pytest.fail(f"{name} was missing: review the new file")
    assert found == stored[name]


def of(state: str, **fields: object) -> Verdict:
    """Return a verdict with a bound of 4 KiB in 8 KiB."""
    empty = Verdict.unmeasured(8192)
    given = {"state": state, "frees_bytes_at_most": 4096, "frees_bytes_if_rolled_at_most": 4096}
    return replace(empty, **{**given, **fields})


EXACT = {"exact": True, "frees_bytes": 4096, "frees_records": 1, "frees_bytes_if_rolled": 4096}
BY_TIME = (Reason.of("retention.by_time", limit_ms=3_600_000),)
REMOVED = Retention(2, 2048, BY_TIME)


@pytest.mark.parametrize(
    ("verdict", "removable", "short", "line"),
    (
        (
            of("due", is_due=True),
            *((4096, 4096), ("≤ 4.0 KiB", "≤ 4.0 KiB"),
              "due: frees at most 4.0 KiB of 8.0 KiB; R"),
        ),
        (
            of("due", is_due=True, **EXACT),
            *((4096, 4096), ("4.0 KiB", "4.0 KiB"), "due: frees 4.0 KiB of 8.0 KiB, 1 record; R"),
        ),
        (
            of("waiting", frees_bytes_if_rolled_at_most=5120),
            *((4096, 5120), ("≤ 4.0 KiB", "≤ 5.0 KiB"),
              "waiting: a forced pass frees at most 4.0 KiB of 8.0 KiB; at most"
              " 5.0 KiB if the active segment is rolled; R"),
        ),
        (
            of("waiting", **EXACT | {"frees_bytes_if_rolled": 5120},
               frees_bytes_if_rolled_at_most=5120),
            *((4096, 5120), ("4.0 KiB", "5.0 KiB"),
              "waiting: a forced pass frees 4.0 KiB of 8.0 KiB, 1 record; 5.0 KiB"
              " if the active segment is rolled; R"),
        ),
        (
            of("waiting", frees_bytes_at_most=0),
            *((0, 4096), ("0 B", "≤ 4.0 KiB"),
              "waiting: frees none of 8.0 KiB now; at most 4.0 KiB if"
              " the active segment is rolled; R"),
        ),
        (
            of("waiting", retention=Retention(1, 6144, BY_TIME)),
            *((6144, 6144), ("6.0 KiB", "6.0 KiB"),
              "waiting: a forced pass frees at most 4.0 KiB of 8.0 KiB; retention"
              " removes 1 segment, 6.0 KiB of 8.0 KiB (retention.ms=1h); R"),
        ),
        (of("nothing_to_do"), (0, 0), ("0 B", "0 B"), "nothing to do: R"),
        (
            of("nothing_to_do", retention=REMOVED),
            *((2048, 2048), ("2.0 KiB", "2.0 KiB"),
              "nothing to do: R"),
        ),
        (of("unknown"), (0, 0), ("", ""), "unknown: R"),
        (of("unknown", retention=REMOVED), (2048, 2048), ("", ""), "unknown: R"),
        (of("uncleanable"), (0, 0), ("0 B", "0 B"), "uncleanable: R"),
        (of("damaged"), (0, 0), ("0 B", "0 B"), "damaged: R"),
        (
            of("damaged", is_due=True),
            *((4096, 4096), ("≤ 4.0 KiB", "≤ 4.0 KiB"),
              "damaged: frees at most 4.0 KiB of 8.0 KiB; R"),
        ),
        (
            of("not_compacted", retention=REMOVED),
            *((4096, 4096), ("≤ 4.0 KiB", "≤ 4.0 KiB"),
              "not compacted: never compacted; retention removes 2 segments, 2.0"
              " KiB of 8.0 KiB (retention.ms=1h)"),
        ),
        (
            of("not_compacted", frees_bytes_at_most=0, frees_bytes_if_rolled_at_most=0),
            *((0, 0), ("0 B", "0 B"),
              "not compacted: never compacted; retention keeps all 8.0 KiB"),
        ),
    ),
)  # fmt: skip
def test_a_verdict_has_these_words(
    verdict: Verdict, removable: tuple[int, int], short: tuple[str, str], line: str
) -> None:
    assert verdict.removable_bytes == removable
    assert short_amounts(verdict) == short
    assert short_state(verdict) == verdict.state.replace("_", " ")
    reason = verdict.reason.text
    text = " ".join(each.strip() for each in map(click.unstyle, verdict_lines("t-0", verdict, 0)))
    assert text == f"t-0 {line.removesuffix('R')}" + reason * line.endswith("R")


@pytest.mark.parametrize(
    ("state", "since_ms", "text"),
    (
        ("due", 0, "dirty for 2h"),
        ("uncleanable", 0, "failed 2h ago"),
        ("due", 7_200_000, None),
        ("due", 7_199_999, "dirty for 1ms"),
        ("due", None, None),
    ),
)
def test_a_verdict_has_an_age(state: str, since_ms: int | None, text: str | None) -> None:
    parts = " ".join(verdict_lines("t-0", of(state, since_ms=since_ms), 7_200_000)).split("; ")
    found = [click.unstyle(each) for each in parts if "dirty for" in each or "ago" in each]
    assert found == ([] if text is None else [text])


def test_what_helps_is_joined() -> None:
    helps = (Reason.of("help.check"), Reason.of("help.salvage", topic="t", partition_id=0))
    lines = list(verdict_lines("t-0", of("damaged", helps=helps), 0))
    assert lines[-1].strip() == f"helps: {helps[0].text}; or {helps[1].text}"
    assert list(verdict_lines("t-0", None, 0)) == []
    assert (short_state(None), short_amounts(None)) == ("", ("", ""))


@pytest.mark.parametrize(
    ("verdicts", "expected", "line"),
    (
        ((), (0, None, 0, 0, 0, 0), "0 partitions, 0 B: "),
        (
            (of("due", is_due=True, **EXACT), of("due", is_due=True, **EXACT)),
            (2, {"due": 2}, 8192, 8192, 16384, 0),
            "2 partitions: 2 due (free 8.0 KiB of 16.0 KiB)",
        ),
        (
            (of("due", is_due=True, **EXACT), of("due", is_due=True),
             of("due", is_due=True, **EXACT)),
            (3, {"due": 3}, None, 12288, 24576, 0),
            "3 partitions: 3 due (free at most 12.0 KiB of 24.0 KiB)",
        ),
        (
            (of("waiting", **EXACT), of("not_compacted", retention=REMOVED),
             of("unknown", retention=REMOVED)),
            (3, {"waiting": 1, "not_compacted": 1, "unknown": 1}, 0, 0, 24576, 2048),
            "3 partitions, 24.0 KiB: 1 waiting, 1 not compacted, 1 unknown; retention removes"
            " 2.0 KiB",
        ),
        (
            (of("due", is_due=True, retention=REMOVED), of("not_compacted", retention=REMOVED)),
            (2, {"due": 1, "not_compacted": 1}, None, 4096, 16384, 4096),
            "2 partitions: 1 due (free at most 4.0 KiB of 16.0 KiB), 1 not compacted; retention"
            " removes 4.0 KiB, 2.0 KiB of it in partitions that are due",
        ),
        (
            (of("damaged", is_due=True), of("nothing_to_do")),
            (2, {"damaged": 1, "nothing_to_do": 1}, None, 4096, 16384, 0),
            "2 partitions, 16.0 KiB: 1 damaged, 1 nothing to do, free at most 4.0 KiB of 16.0 KiB"
            " by cleaning damaged ones",
        ),
    ),
)  # fmt: skip
def test_verdicts_add_up(verdicts: tuple[Verdict, ...], expected: tuple, line: str) -> None:
    found = Summary.of(iter(verdicts))
    count, states, *numbers = expected
    states = {**dict.fromkeys(found.states, 0), **(states or {}), "retention_bytes_of_due": 0}
    assert found.headers_only == 0
    names = ("frees_bytes", "frees_bytes_at_most", "bytes", "retention_bytes")
    of_due = sum(each.retention.bytes for each in verdicts if each.is_due)
    assert found.to_json() == {
        "partitions": count,
        **states,
        **dict(zip(names, numbers, strict=True)),
        "retention_bytes_of_due": of_due,
        "headers_only": 0,
    }
    lines = map(click.unstyle, summary_lines(found))
    assert " ".join(each.strip() for each in lines) == line.strip()


def test_an_error_is_damage_only_if_the_bytes_are_at_fault() -> None:
    damaged = Verdict.of_error(CorruptRecordError("a bad batch"), 5000)
    assert (damaged.state, damaged.size_bytes, damaged.frees_bytes_at_most) == (
        "damaged",
        5000,
        5000,
    )
    assert (damaged.frees_bytes_if_rolled_at_most, damaged.exact) == (5000, False)
    assert (damaged.reason, damaged.helps) == (
        Reason.of("verdict.unreadable", message="a bad batch"),
        (Reason.of("help.check"),),
    )
    old = Verdict.of_error(UnsupportedFormatError("magic 9"), 1)
    assert (old.state, old.reason.code) == ("damaged", "verdict.unreadable")
    offline = Verdict.of_error(KafkaStorageError("the disk is full"), 7)
    assert (offline.state, offline.size_bytes, offline.helps) == ("unknown", 7, ())
    assert offline.reason == Reason.of("verdict.not_opened", message="the disk is full")
    assert Verdict.unmeasured(3).reason == Reason.of("verdict.unmeasured")


def test_retention_of_due_partitions_is_added_up_too() -> None:
    due_too = of("due", is_due=True, retention=REMOVED)
    found = Summary.of([due_too, due_too, of("not_compacted", retention=REMOVED)])
    assert (found.retention_bytes, found.retention_bytes_of_due) == (6144, 4096)


def test_a_summary_counts_partitions_of_which_only_headers_were_read() -> None:
    headers = of("waiting", examined="headers")
    empty = replace(headers, size_bytes=0)
    read = of("waiting", examined="records")
    for verdicts, count, end in (
        ((headers, headers), 2, "; headers only"),
        ((headers, read, empty), 1, "; headers only for 1"),
        ((read, empty, Verdict.unmeasured(9)), 0, ""),
    ):
        found = Summary.of(verdicts)
        assert found.headers_only == found.to_json()["headers_only"] == count
        (line,) = map(click.unstyle, summary_lines(found))
        assert line.partition(";")[1] + line.partition(";")[2] == end


@pytest.mark.parametrize("exact", (True, False))
def test_a_verdict_names_what_was_examined(*, exact: bool) -> None:
    with broker_with() as broker:
        due(broker)
        assert partition_verdict(broker, TP, exact=exact).examined == (
            "records" if exact else "headers"
        )
        assert broker.stats("t").verdict.examined == "records"
        quick, full = (
            broker.explain("t", quick=quick).partitions[0].verdict for quick in (True, False)
        )
        assert quick is not None
        assert full is not None
        assert (quick.examined, full.examined) == ("headers", "records")
    with broker_with(cleanup_policy="delete") as broker:
        due(broker)
        assert partition_verdict(broker, TP, exact=exact).examined == "headers"
        assert broker.stats("t").verdict.examined == "records"
    assert Verdict.unmeasured(1).examined is None
