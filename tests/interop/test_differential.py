"""Random logs through Kafka's cleaner and ours: nothing may differ beyond the closed list."""

import os
import shutil

import pytest

from tests.interop.differential import Tally, compare_directories, run_seeds, run_story
from tests.interop.stories import story
from tests.support import interop_engine as engine

pytestmark = pytest.mark.interop

SEEDS = range(30)
KAFKA_4_SEEDS = range(100, 110)
WRITE_SEEDS = range(200, 220)
BROKER_SEEDS = range(300, 310)
BROKER_MAP_BYTES = 1024 * 1024 + 24
LONG_SEEDS = range(int(os.environ.get("LOGSTORE_DIFFERENTIAL_SEEDS", "500")))


@pytest.fixture(scope="module")
def total(say):
    """A sum over the module's stories."""
    tally = Tally()
    yield tally
    say(f"differential: {tally}")


@pytest.mark.parametrize("seed", SEEDS)
def test_both_cleaners_write_the_same(seed, kafka3, scratch, row, total):
    row("random logs cleaned by both, pass by pass, to the byte", kafka3)
    total.add(run_story(story(seed), kafka3, scratch))


@pytest.mark.parametrize("seed", KAFKA_4_SEEDS)
def test_kafka_4_cleans_the_same(seed, kafka4, scratch, row, total):
    row("random logs cleaned by both, pass by pass, to the byte", kafka4)
    total.add(run_story(story(seed), kafka4, scratch))


@pytest.mark.parametrize("seed", WRITE_SEEDS)
def test_both_append_the_same(seed, judge, scratch, row):
    """The same operations by both engines give the same files, if no codec is in play."""
    row("random logs appended to by both, to the byte", judge)
    told = story(seed)
    told.compressed = False
    directories = scratch / "kafka", scratch / "ours"
    for number, each in enumerate(told.rounds):
        config = told.fill_config if number == 0 else told.config
        plain = [{**op, "codec": "none"} for op in each.operations]
        judge.ask(
            "write", directories[0], told.topic, config=config, now=each.start_ms, operations=plain
        )
        engine.write(directories[1], told.topic, config, each.start_ms, plain)
    for directory in directories:
        (directory / "cleaner-offset-checkpoint").write_text("0\n0\n")
    compare_directories(f"seed {seed}", told.config, *directories, told.topic, -1)


@pytest.mark.parametrize("seed", BROKER_SEEDS)
def test_the_broker_cleans_as_far_as_kafka(seed, kafka3, scratch, row):
    """`Broker.clean` runs every pass and keeps the checkpoint; so does Kafka's cleaner."""
    row("whole cleanings by the broker, all passes, with the checkpoint", kafka3)
    told = story(seed)
    config = told.config | {"min.compaction.lag.ms": "0"}
    # A broker wants more than 1 MiB for its map; the load factor then makes it small.
    keys = int(told.dedupe_bytes // 24 * told.load_factor)
    load_factor = min(1.0, (keys + 0.5) / (BROKER_MAP_BYTES // 24))
    theirs, ours = scratch / "kafka", scratch / "ours"
    for each in told.rounds:
        plain = [{**op, "codec": "none"} for op in each.operations]
        fill = config | {"cleanup.policy": told.fill_config["cleanup.policy"]}
        engine.write(theirs, told.topic, fill, each.start_ms, plain)
        shutil.rmtree(ours, ignore_errors=True)
        shutil.copytree(theirs, ours)
        cleaned = kafka3.ask(
            "clean", theirs, told.topic, config=config, now=each.clean_ms, passes=99,
            dedupe_bytes=BROKER_MAP_BYTES, load_factor=load_factor,
        )  # fmt: skip
        passes = [each for each in cleaned["passes"] if each["stats"] is not None]
        if not passes:
            continue
        cleaner = {
            "log.cleaner.dedupe.buffer.size": str(BROKER_MAP_BYTES),
            "log.cleaner.io.buffer.load.factor": repr(load_factor),
        }
        with engine.open_broker(ours, told.topic, config, each.clean_ms, cleaner) as broker:
            report = broker.clean(told.topic, force=True)
        assert [p.end_offset for p in report.cleaned] == [p["end_offset"] for p in passes]
        compare_directories(
            f"seed {seed}", config, theirs, ours, told.topic, passes[-1]["end_offset"]
        )


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_random_logs(kafka3, scratch, row, total):
    row("random logs cleaned by both, long profile", kafka3, len(LONG_SEEDS))
    tally, failed = run_seeds(LONG_SEEDS, kafka3, scratch)
    total.add(tally)
    assert not failed, "\n".join(failed)
