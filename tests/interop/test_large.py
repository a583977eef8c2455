"""Logs of more than 64 MiB, written by Kafka, cleaned by both: all files are equal."""

import shutil
import time

import pytest

from logstore.cleaner.config import CleanerConfig
from tests.interop.comparing import compare_directories, compare_stats
from tests.interop.stories import START_MS
from tests.support.interop import engine

pytestmark = pytest.mark.interop

MIB = 1 << 20
TOPIC = "large"

LOGS = {
    "many small records": {
        "config": {"segment.bytes": str(4 * MIB)},
        "fill": {"keys": 300_000, "value_bytes": 100, "batch_records": 100},
        "dedupe_bytes": 32 * MIB,
    },
    "records of a kilobyte, tombstones, a map that fills up": {
        "config": {"segment.bytes": str(8 * MIB), "index.interval.bytes": "16384"},
        "fill": {
            "keys": 60_000,
            "value_bytes": 1000,
            "batch_records": 12,
            "tombstones_per_mille": 150,
        },
        "dedupe_bytes": 24 * 25_000,
    },
    "LogAppendTime, batches larger than a chunk": {
        "config": {
            "segment.bytes": str(16 * MIB),
            "index.interval.bytes": "512",
            "message.timestamp.type": "LogAppendTime",
        },
        "fill": {
            "keys": 100_000,
            "value_bytes": 120,
            "batch_records": 1500,
            "tombstones_per_mille": 20,
        },
        "dedupe_bytes": 32 * MIB,
    },
}


@pytest.mark.parametrize("name", LOGS)
def test_large_logs_are_cleaned_to_the_same_files(name, kafka3, scratch, row, say):
    row("large logs cleaned by both, to the byte", kafka3)
    log = LOGS[name]
    config = {"cleanup.policy": "compact", "delete.retention.ms": "60000"}
    config |= {"index.interval.bytes": "4096", **log["config"]}
    theirs, ours = scratch / "kafka", scratch / "ours"
    filled = kafka3.ask(
        "fill", theirs, TOPIC, config=config, now=START_MS, seed=len(name), bytes=80 * MIB,
        **log["fill"],
    )  # fmt: skip
    size = sum(path.stat().st_size for path in theirs.glob("*/*.log"))
    assert size > 64 * MIB
    segments = len(filled["segments"])
    assert segments >= 5
    assert sum(path.stat().st_size for path in theirs.glob("*/*.index")) > 8 * segments
    shutil.copytree(theirs, ours)
    cleaner = CleanerConfig(dedupe_buffer_bytes=log["dedupe_bytes"])
    passes = kafka_ms = 0
    started = time.perf_counter()
    # The second round, after the horizons, starts from the log start again.
    for now_ms in (filled["now"] + 1000, filled["now"] + 100_000):
        for directory in (theirs, ours):
            (directory / "cleaner-offset-checkpoint").unlink(missing_ok=True)
        answer = kafka3.ask(
            "clean", theirs, TOPIC, config=config, now=now_ms, passes=50,
            dedupe_bytes=log["dedupe_bytes"],
        )  # fmt: skip
        for number, expected in enumerate(answer["passes"]):
            state, stats = engine.clean_once(ours, TOPIC, config, now_ms, cleaner)
            partial = expected["end_offset"] < expected["upper_bound_offset"]
            place = f"{name}, pass {number} at {now_ms}"
            assert state.upper_bound_offset == expected["upper_bound_offset"]
            compare_stats(place, expected, stats, {"mapBytesRead"} if partial else set())
            passes += 1
            kafka_ms += expected["ms"]
        tally = compare_directories(
            name, config, theirs, ours, TOPIC, answer["passes"][-1]["end_offset"]
        )
        assert not tally.recompressed
    say(
        f"large, {name}: {size / MIB:.0f} MiB in {segments} segments, {filled['records']:,} "
        f"records, {passes} passes; both together {time.perf_counter() - started:.1f} s, "
        f"Kafka's passes {kafka_ms / 1000:.1f} s"
    )
