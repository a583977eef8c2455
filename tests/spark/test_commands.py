"""Whole outputs of `logstore workload`, with a session of this process instead of Spark's.

To accept a change, delete a file of `outputs/`, run the test, and review its new contents.
"""

import json
import re
from contextlib import nullcontext
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from click.testing import CliRunner

from logstore import Broker, VirtualClock
from logstore.cli.main import main
from logstore.spark.commands.pipeline import Run
from logstore.spark.generation.generate import Generated
from logstore.spark.oracle.verify import Verdict
from tests.support.oracles.local_frames import local_session

STORED = Path(__file__).with_name("outputs")
SMALL = (
    *("--set", "records=400", "--set", "partitions=2", "--set", "keys.count=40"),
    *("--set", "values.max_bytes=60", "--set", "topic=changes"),
)


class Asked(list):
    """The names and options of sessions, and `stopped` after each. `session` is the last one."""


@pytest.fixture
def asked(monkeypatch):
    """Return the names and options of the sessions that the commands open; they are local ones."""
    asked = Asked()

    def begin(name, **options):
        session = asked.session = local_session(monkeypatch)
        session.sparkContext.statusTracker = lambda: None
        asked.append((name, options))
        return session

    monkeypatch.setattr("logstore.spark.sessions.session.spark_session", begin)
    monkeypatch.setattr(
        "logstore.spark.sessions.session.stop_session", lambda session: asked.append("stopped")
    )
    monkeypatch.setattr("logstore.spark.commands.progress.SparkProgress", lambda *_: nullcontext())
    return asked


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*arguments, code=0):
        done = CliRunner(env={"LOGSTORE_DATA_DIR": "data", "COLUMNS": "100"}).invoke(
            main, [*map(str, arguments)]
        )
        assert done.exit_code == code, done.output
        return f"{done.stdout}--- {done.stderr}"

    return call


def compare(name, text):
    # Durations and the speeds of stages are measured.
    text = re.sub(r'("(?:records_per_second|seconds)": )\{[^}]*\}', r"\1{}", text)
    text = re.sub(r'("(?:index|clean)_ms": )\d+', r"\1…", text)
    text = re.sub(r"(?m)^((?:generate: )?[a-z]+) +[\d.]+ +[\d,]+$", r"\1  …", text)
    path = STORED / f"{name}.txt"
    if not path.exists():
        STORED.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        pytest.fail(f"{path} was missing: review the new file")
    assert text.splitlines() == path.read_text(encoding="utf-8").splitlines()


def test_a_run_and_its_repetition_by_hand(run, asked):
    compare("run", run("workload", "run", "cdc-table", *SMALL, "--out", "out", "--threads", 1))
    assert asked == [
        (
            "run changes",
            {
                "master": None,
                "driver_memory": asked[0][1]["driver_memory"],
                "shuffle_partitions": 16,
            },
        ),
        "stopped",
    ]
    assert sorted(path.name for path in Path("out").iterdir()) == [
        *("after", "before", "before.parquet")
    ]
    compare("generate", run("workload", "generate", "cdc-table", *SMALL, "--no-parquet"))
    logs = {
        home: {path.name: path.read_bytes() for path in Path(home).glob("changes-*/*.log")}
        for home in ("data", "out/before")
    }
    assert logs["data"] == logs["out/before"]
    verify = ("workload", "verify", "--before", "out/before", "--after", "out/after", "--forced")
    compare("verify", run(*verify))
    swapped = ("workload", "verify", "--before", "out/after", "--after", "out/before")
    wrong = run(*swapped, "--examples", 2, "--topic", "changes", "--now", "2025-01-01", code=1)
    compare("verify-wrong", wrong)
    compare("verify-json", run(*verify, "--partition", 1, "--topic", "changes", "--format", "json"))


def test_a_run_reports_its_stages_and_exits_with_1_after_violations(run, asked, monkeypatch):
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("changes", partitions=2, configs={"cleanup.policy": "compact"})
        for partition in range(2):
            records = [(b"k%d" % (n % 3), b"value") for n in range(100 + partition)]
            broker.append_many("changes", records, partition=partition)
        cleaned = broker.clean("changes", force=True, roll=True)
    seconds = {"generate: logs": 0.5, "copy": 0.0, "verify": 1.23456}
    outcome = Run(
        Generated("changes", 2, 201, 3, 4, 9_999, {"logs": 0.5}),
        cleaned,
        Verdict({"tail_lost": 2}, [], 201, 6, (), 5),
        seconds,
    )
    given = []

    def pipeline(spark, spec, directory, **options):
        assert Path(directory).is_dir()
        given.append((spec.topic, directory, options))
        return outcome

    monkeypatch.setattr("logstore.spark.commands.pipeline.run_pipeline", pipeline)
    command = ("workload", "run", "cdc-table", "--set", "topic=changes")
    assert run(*command, "--out", "new/out", "--strategy", "timestamp", code=1).splitlines() == [
        "changes: 201 records in 2 partitions, 9.8 KiB; cleaned 2.9 KiB to 212 B",
        "",
        "stage           seconds  records/s",
        "──────────────────────────────────",
        "generate: logs      0.5        402",
        "copy                0.0",
        "verify              1.2        163",
        "",
        "2 violations: 201 records before, 6 after, 5 below the new log start",
        "violation  count  meaning",
        "──────────────────────────────────────────────────────────────",
        "tail_lost      2  a record beyond the cleaned range is missing",
        "--- ",
    ]
    shown = run(*command, "--threads", 3, "--format", "json", code=1)
    assert json.loads(shown.removesuffix("--- ")) == {
        "records": 201,
        "seconds": {"generate: logs": 0.5, "copy": 0.0, "verify": 1.235},
        "records_per_second": {"generate: logs": 402, "verify": 163},
        "generated": {
            "topic": "changes", "partitions": 2, "records": 201, "batches": 3, "markers": 4,
            "bytes": 9_999, "seconds": {"logs": 0.5},
        },
        "cleaned": cleaned.to_json(),
        "verified": outcome.verdict.as_json(),
    }  # fmt: skip
    (_, out, first), (topic, temporary, second) = given
    assert (out, first) == ("new/out", {"strategy": "timestamp", "threads": None})
    assert (topic, second) == ("changes", {"strategy": None, "threads": 3})
    assert Path(out).is_dir()
    assert not Path(temporary).exists()
    for name in ("before", "before.parquet", "after"):
        (Path("new/out") / name).mkdir()
        assert f"new/out/{name} already exists" in run(*command, "--out", "new/out", code=2)
        (Path("new/out") / name).rmdir()


def test_generate_says_where_the_rows_are(run, asked):
    options = ("--master", "local[3]", "--driver-memory", "2g", "--config", "segment.ms=1d",
               "--splits", 3)  # fmt: skip
    compare("generate-json", run(
        *("workload", "generate", "cdc-table", *SMALL, "--parquet", "rows", *options),
        *("--format", "json"),
    ))  # fmt: skip
    assert asked[0] == (
        "generate changes",
        {"master": "local[3]", "driver_memory": "2g", "shuffle_partitions": 16},
    )
    assert sorted(path.name for path in Path("rows").iterdir())[0] == "_SUCCESS"
    assert asked.session.slices[0] == 3


@pytest.mark.parametrize(
    ("text", "message"),
    (
        (
            "logstore.errors.InvalidTopicError: no such topic",
            "no such topic (INVALID_TOPIC_EXCEPTION)",
        ),
        (
            "ModuleNotFoundError: No module named 'logstore'",
            "Spark's workers run python3, which has no module logstore: set PYSPARK_PYTHON to a"
            " Python in which kafka-logstore is installed on every node (INVALID_CONFIG)",
        ),
    ),
)
def test_the_error_of_a_task_is_reported_in_its_own_words(run, asked, monkeypatch, text, message):
    def fail(*_, **__):
        raise RuntimeError(f"a task failed\n{text}\n")

    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setattr("logstore.spark.generation.generate.generate", fail)
    shown = run("workload", "generate", "cdc-table", *SMALL, code=2)
    assert shown == f"--- error: {message}\n"
    assert asked[1:] == ["stopped"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    (
        (("generate", "cdc-table", "--parquet", "x", "--no-parquet"), "are mutually exclusive"),
        (
            ("verify", "--before", "a", "--after", "b", "--partition", 0),
            "--partition requires --topic",
        ),
        (
            ("verify", "--before", "a", "--after", "b", "--since", 0),
            "--since requires --now, the time of the last cleaning pass",
        ),
        (("run", "cdc-table", "--driver-memory", "4x"), "'4x' is not a size such as 512m or 4g"),
        (("run", "cdc-table", "--driver-memory", "511m"), "511m is below the minimum of 512m"),
        (("run", "cdc-table", "--master", "here"), "'here' is not one of local, local[N]"),
    ),
)
def test_wrong_usage_is_reported_before_a_session_begins(run, asked, arguments, message):
    assert message in run("workload", *arguments, code=2)
    assert asked == []


@pytest.mark.parametrize(
    ("verdict", "text"),
    (
        (Verdict({}, [], 1, 1), "correct: 1 record before, 1 after\n"),
        (
            Verdict({}, [], 2_000, 1_500, ("a note",), 20, ("lags", "retention")),
            "correct: 2,000 records before, 1,500 after, 20 below the new log start; "
            "unproven: lags, retention\n",
        ),
        (
            Verdict({"survivor_lost": 1}, [], 2, 0),
            "1 violation: 2 records before, 0 after\n",
        ),
    ),
)
def test_a_verdict_begins_with_its_counts(capsys, verdict, text):
    from logstore.spark.commands.verify import print_verdict

    print_verdict(verdict)
    shown = capsys.readouterr()
    assert shown.out.startswith(text)
    assert shown.err == "".join(f"note: {each}\n" for each in verdict.notes)
