"""Verdicts: the state, the bytes that cleaning frees, and the command that helps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from logstore import Broker, TopicPartition, VirtualClock
from logstore.analysis.verdict import Summary, Verdict, partition_verdict
from logstore.cleaner.stats import CleanReport
from logstore.types import DAY_MS

TP = TopicPartition("t", 0)
NOW_MS = 1_704_067_200_000


def broker_with(**configs: str) -> Broker[VirtualClock]:
    broker = Broker(clock=VirtualClock())
    settings = {name.replace("_", "."): value for name, value in configs.items()}
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
        assert explained.verdict == verdict


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
def test_damage_that_was_skipped_comes_first(
    tmp_path: Path, *, is_closed: bool, exact: bool
) -> None:
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


def test_a_policy_that_deletes_says_what_retention_removes() -> None:
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
        assert verdict.retention == (2, before)
        broker.retain("t")
        assert size(broker) == 0


def test_a_policy_with_both_says_both() -> None:
    with broker_with(cleanup_policy="compact,delete", retention_bytes="3000") as broker:
        due(broker)
        due(broker)
        verdict = partition_verdict(broker, TP, exact=True)
        [removed] = broker.retain("t", dry_run=True).decisions
        assert verdict.retention.segments == len(removed.removed) == 1
        assert verdict.state == "due"
        assert [each.code for each in verdict.helps] == ["help.clean", "help.retain"]


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
