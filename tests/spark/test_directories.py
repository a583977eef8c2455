"""Comparison of two data directories: the engine's cleaning passes, a wrong rule does not."""

import shutil

import pytest

pytest.importorskip("pyspark")

from logstore import Broker
from logstore.spark.oracle.directories import verify_directories
from tests.support.world.random_cleanings import random_cleanings


@pytest.mark.interop  # in short: test_verify_cleanings
@pytest.mark.usefixtures("interpreted")
def test_forced_cleanings_over_days_and_passes_are_correct(spark, tmp_path):
    made = random_cleanings(tmp_path, 12, {"offset": 4, "varlong": 4}, map_keys=6, live=True)
    verdict = verify_directories(
        spark, made.before, made.after, since_ms=made.since_ms, now_ms=made.now_ms, forced=True
    )
    assert verdict.examples == []
    assert verdict.ok
    assert verdict.records_before > verdict.records_after > 100


@pytest.mark.interop  # in short: test_verify.test_lags_and_the_time_in_which_a_tombstone_may_expire
@pytest.mark.usefixtures("interpreted")
def test_cleanings_that_were_due_heed_the_lags(spark, tmp_path):
    lags = {"min.compaction.lag.ms": "40000000", "max.compaction.lag.ms": "100000000"}
    made = random_cleanings(tmp_path, 15, {"offset": 6, "header": 4}, forced=False, configs=lags)
    times = {"since_ms": made.since_ms, "now_ms": made.now_ms}
    verdict = verify_directories(spark, made.before, made.after, **times)
    assert verdict.examples == []
    assert verdict.records_before > verdict.records_after > 100


def test_the_wrong_rule_is_found_and_what_was_not_cleaned_may_not_have_changed(frames, tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    with Broker(before) as broker:
        broker.create_topic("plain", configs={"cleanup.policy": "delete"})
        broker.create_topic("due", configs={"cleanup.policy": "compact"})
        for topic in ("plain", "due"):
            for _ in range(3):
                records = [(b"k", b"%d" % n, 1_000_000 - n) for n in range(5)]
                broker.append_many(topic, records, partition=0)
                broker.roll(topic)
            broker.append(topic, value=b"last", key=b"another")
    shutil.copytree(before, after)
    (after / "plain-0" / f"{5:020d}.log").write_bytes(b"")
    with Broker(after) as broker:  # compacts, but its topic's configuration does not mention it
        broker.clean("due", force=True)
    wrong = verify_directories(frames, before, after, topic="due", strategy="timestamp")
    assert wrong.violations == {"survivor_lost": 1, "wrong_winner": 1}
    (after / "cleaner-offset-checkpoint").unlink()
    verdict = verify_directories(frames, before, after)
    assert verdict.violations == {"tail_lost": 5 + 14}
    assert [note.split(":")[0] for note in verdict.notes] == [
        "never cleaned, expected to be unchanged",
        "the time of the pass is unknown",
    ]
