"""Random logs through Kafka's cleaner and this one: no difference beyond the closed list.

30 logs for each run and 500 in the long profile, every pass compared to the byte after its dry run;
the README in this directory lists allowed differences.
"""

import os
import shutil

import pytest

from logstore.cleaner.stats import FATE_NAMES
from tests.interop.comparing import Tally, compare_directories
from tests.interop.differential import run_seed, run_story
from tests.interop.dry_run import contents, differing, untimed
from tests.interop.seeds import run_seeds
from tests.interop.stories import STOPS, story
from tests.support.interop import engine

pytestmark = pytest.mark.interop

SEEDS = range(30)
KAFKA_4_SEEDS = range(100, 110)
WRITE_SEEDS = range(200, 220)
BROKER_SEEDS = range(300, 310)
BROKER_MAP_BYTES = 1024 * 1024 + 24

KINDS = {
    # appends by producers and others
    "append", "replicate", "roll", "advance", "leader_epoch", "record headers",
    "idempotent data", "idempotent data of a new epoch",
    "transactional data", "transactional data of a new epoch",
    "commit", "abort", "abort by a new epoch", "empty commit", "empty abort",
    "gzip", "snappy", "lz4", "zstd", "LogAppendTime",
    # operations between passes
    "delete_before", "retain", "segments deleted", "expire", "producer expired",
    "checkpoint lowered", *STOPS,
    # cases in passes
    "compact", "compact,delete", "pass without a restart", "transaction open over a pass",
    "map full", "map full inside a batch", "map full inside a transaction",
    "tombstones at the horizon", "tombstones 1 ms before the horizon",
    "marker at the horizon", "marker 1 ms before the horizon",
    "emptied end of a round", "emptied last batch", "wrote on after its last batch was emptied",
}  # fmt: skip

LONG_SEEDS = range(int(os.environ.get("LOGSTORE_DIFFERENTIAL_SEEDS", "500")))


@pytest.fixture(scope="module")
def total(say):
    """The sum over the module's stories."""
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


def test_the_logs_leave_nothing_out(total):
    """Every kind of write, pass and fate is covered, and Kafka almost always agreed."""
    if total.stories < len(SEEDS) + len(KAFKA_4_SEEDS):
        pytest.skip("only some of the logs were cleaned")
    assert set(+total.kinds) >= KINDS
    assert set(FATE_NAMES) == set(+total.fates)
    assert total.dry_runs >= total.passes > 200
    assert total.aborted_ranges > 50
    assert (total.kafka_failed + total.parted.total()) * 10 < total.stories


@pytest.mark.parametrize("seed", WRITE_SEEDS)
def test_both_append_the_same(seed, judge, scratch, row):
    """The same operations by both engines write the same files if no codec is involved."""
    row("random logs appended to by both, to the byte", judge)
    reported = story(seed, plain=True)
    directories = scratch / "kafka", scratch / "ours"
    for number, each in enumerate(reported.rounds):
        config = reported.fill_config if number == 0 else reported.config
        judge.ask(
            "write", directories[0], reported.topic, config=config, now=each.start_ms,
            operations=each.operations,
        )  # fmt: skip
        engine.write(directories[1], reported.topic, config, each.start_ms, each.operations)
    compare_directories(f"seed {seed}", reported.config, *directories, reported.topic, -1)


@pytest.mark.parametrize("seed", BROKER_SEEDS)
def test_the_broker_cleans_as_far_as_kafka(seed, kafka3, scratch, row):
    """`Broker.clean` runs every pass and keeps the checkpoint; so does Kafka's cleaner.

    Before it, the same command as a dry run: by a broker that only reads, and by this one.
    """
    row("whole cleanings by the broker, all passes, with the checkpoint", kafka3)
    reported = story(seed, plain=True)
    config = reported.config | {"min.compaction.lag.ms": "0"}
    # A broker requires more than 1 MiB for its map; the load factor then makes it small.
    keys = int(reported.dedupe_bytes // 24 * reported.load_factor)
    load_factor = min(1.0, (keys + 0.5) / (BROKER_MAP_BYTES // 24))
    cleaner = {
        "log.cleaner.dedupe.buffer.size": str(BROKER_MAP_BYTES),
        "log.cleaner.io.buffer.load.factor": repr(load_factor),
    }
    theirs, ours = scratch / "kafka", scratch / "ours"
    for each in reported.rounds:
        fill = config | {"cleanup.policy": reported.fill_config["cleanup.policy"]}
        engine.write(theirs, reported.topic, fill, each.start_ms, each.operations)
        shutil.rmtree(ours, ignore_errors=True)
        shutil.copytree(theirs, ours)
        clean_ms = each.sittings[0].start_ms
        cleaned = kafka3.ask(
            "clean", theirs, reported.topic, config=config, now=clean_ms, passes=10_000,
            dedupe_bytes=BROKER_MAP_BYTES, load_factor=load_factor,
        )  # fmt: skip
        passes = [each for each in cleaned["passes"] if each["stats"] is not None]
        if not passes:
            continue
        engine.open_broker(ours, reported.topic, config, clean_ms).close()
        dry = [_dry_run(ours, reported.topic, clean_ms, cleaner)]
        with engine.open_broker(ours, reported.topic, config, clean_ms, cleaner) as broker:
            dry.append(broker.clean(reported.topic, force=True, dry_run=True))
            report = broker.clean(reported.topic, force=True)
        assert [p.end_offset for p in report.cleaned] == [p["end_offset"] for p in passes]
        for output in dry:
            assert [untimed(each) for each in output.cleaned] == [untimed(report.cleaned[0])]
            assert output.passes_needed == report.passes_needed
        compare_directories(
            f"seed {seed}", config, theirs, ours, reported.topic, passes[-1]["end_offset"]
        )


def _dry_run(data_dir, topic, now_ms, cleaner):
    """Dry-run over read-only files; nothing on disk may change."""
    before = contents(data_dir)
    with engine.open_broker(data_dir, topic, {}, now_ms, cleaner, read_only=True) as broker:
        report = broker.clean(topic, force=True, dry_run=True)
    assert differing(before, contents(data_dir)) == []
    return report


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_random_logs(kafka3, scratch, row, total):
    row("random logs cleaned by both, long profile", kafka3, len(LONG_SEEDS))
    tally = Tally()
    failed = run_seeds(LONG_SEEDS, kafka3, scratch, run_seed, tally)
    total.add(tally)
    assert not failed, "\n".join(failed)
