"""`logstore simulate --from`: its output for a directory, which stays unchanged."""

import json
import re
import shutil

import pytest

from logstore import Broker
from logstore.runtime import VirtualClock


@pytest.fixture
def copied(tmp_path):
    """A data directory: a week of 50 keys, each written many times."""
    path = tmp_path / "copied"
    with Broker(path, clock=VirtualClock()) as broker:
        broker.create_topic("users", configs={"cleanup.policy": "compact", "segment.ms": "1d"})
        broker.create_topic("other")
        for hour in range(24 * 7):
            rows = [(b"%d" % ((5 * hour + n) * 7 % 50), b"x" * 100) for n in range(5)]
            broker.append_many("users", rows, partition=0)
            broker.append("other", value=b"y")
            broker.clock.advance(hours=1)
    return path


def test_it_shows_the_fit_and_its_quality(run, copied, tmp_path):
    out = tmp_path / "out"
    arguments = ("--topic", "users", "--days", "3", "--samples", "9", "--out", str(out))
    done = run("simulate", "--from", str(copied), *arguments)
    assert re.search(r"^users +1\d\d +50 ", done.stdout, re.MULTILINE)
    assert "last third of the log" in done.stdout
    assert "What if: users: 3 days from 2024-01-07 23:00:00.000Z, seed 1" in done.stdout
    assert "Errors of the fit" in (out / "report.html").read_text()
    text = (out / "scenario.toml").read_text()
    assert f'from = "{copied}"' in text
    again = run(
        "simulate", str(out / "scenario.toml"), "--out", str(tmp_path / "again"), "--samples", "9"
    )
    assert again.stdout.splitlines()[1:] == [
        line.replace(str(out), str(tmp_path / "again"))
        for line in done.stdout[done.stdout.index("What if") :].splitlines()[1:]
    ]


def test_json_has_the_fit(run, copied, tmp_path):
    arguments = ("--topic", "users", "--days", "1", "--samples", "3", "--out", str(tmp_path / "o"))
    told = json.loads(run("simulate", "--from", str(copied), *arguments, "--format", "json").stdout)
    (topic,) = told["fit"]["topics"]
    assert topic["records_per_day"] == pytest.approx(120, rel=0.02)
    assert {check["what"] for check in told["fit"]["checks"]} == {
        "records",
        "bytes",
        "keys written",
        "new keys",
    }
    assert told["fit"]["damages"] == []


def test_a_printed_scenario_includes_command_line_options(run, copied):
    shown = run(
        "simulate", "--from", str(copied), "--topic", "users", "--print", "--days", "7",
        "--now", "2024-02-01T00:00:00Z", "--seed", "9", "--config", "segment.ms=2h",
        "--config", "log.cleaner.threads=2",
    ).stdout  # fmt: skip
    for line in (
        'start = "2024-02-01T00:00:00.000Z"',
        "days = 7.0",
        "seed = 9",
        '"segment.ms" = "7200000"',
        '"log.cleaner.threads" = "2"',
    ):
        assert line in shown.splitlines()


def test_a_scenario_with_from_starts_with_the_directory(run, copied, tmp_path):
    other = tmp_path / "elsewhere"
    shutil.copytree(copied, other)
    text = run("simulate", "--from", str(copied), "--topic", "users", "--print").stdout
    (tmp_path / "mine.toml").write_text(text)
    shutil.rmtree(copied)
    told = run(
        "simulate", str(tmp_path / "mine.toml"), "--from", str(other), "--days", "1",
        "--out", str(tmp_path / "out"), "--samples", "2", "--format", "json",
    ).stdout  # fmt: skip
    assert json.loads(told)["days"] == 1


def test_damage_is_reported_as_by_read(run, copied):
    log = min((copied / "users-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[-30] ^= 0xFF
    log.write_bytes(data)
    shown = run("read", "users", "--partition", 0, "--data-dir", copied, code=1)
    printed = run("simulate", "--from", str(copied), "--print", code=1)
    told = [line for line in shown.stderr.splitlines() if line.startswith("damage: ")]
    assert told
    assert [line for line in printed.stderr.splitlines() if line.startswith("damage: ")] == told


@pytest.mark.parametrize(
    ("arguments", "told"),
    (
        (("--from", "nowhere", "--print"), "directory nowhere does not exist"),
        (("--from", "{copied}"), "give --out DIR for the results"),
        (("--from", "{copied}", "--print", "--topic", "user"), "unknown topic 'user'"),
        (("kip-354", "--topic", "users", "--print"), "--topic selects topics to fit"),
        (
            ("--from", "{copied}", "--print", "--config", "segment.m=1h"),
            "unknown broker configuration",
        ),
    ),
)
def test_impossible_values_are_refused(run, copied, arguments, told):
    given = [each.format(copied=copied) for each in arguments]
    assert told in run("simulate", *given, code=2).stderr


def test_a_folder_whose_partition_is_not_the_first_has_its_report(run, tmp_path):
    path = tmp_path / "data"
    with Broker(path, clock=VirtualClock()) as broker:
        broker.create_topic("users", 2, {"cleanup.policy": "compact", "segment.ms": "6h"})
        for hour in range(48):
            broker.append("users", key=b"%d" % (hour % 5), value=b"x" * 50, partition=1)
            broker.clock.advance(hours=1)
    (tmp_path / "copy").mkdir()
    shutil.copytree(path / "users-1", tmp_path / "copy" / "users-1")
    out = tmp_path / "out"
    options = ("--days", "1", "--samples", "4", "--config", "cleanup.policy=compact", "--out", out)
    run("simulate", "--from", tmp_path / "copy" / "users-1", *options)
    assert "The segments of users-1 over time" in (out / "report.html").read_text()


def test_a_folder_is_only_its_partition(run, copied):
    told = run("simulate", "--from", copied / "other-0", "--print")
    assert re.findall(r"^name = (.*)", told.stdout, re.MULTILINE) == ['"other"']


@pytest.fixture
def with_offsets(tmp_path):
    """A data directory with a topic of users and the topics of Kafka's coordinators."""
    path = tmp_path / "data"
    with Broker(path, clock=VirtualClock()) as broker:
        broker.create_topic("users")
        with broker.producer(transactional_id="x") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("users", b"1")
            producer.commit_transaction()
        with broker.consumer("users", group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.poll(timeout_ms=1000)
            consumer.commit()
    return path


def test_kafkas_own_topics_are_left_out(run, with_offsets):
    told = run("simulate", "--from", with_offsets, "--print")
    assert re.findall(r"^name = (.*)", told.stdout, re.MULTILINE) == ['"users"']
    for name in ("__consumer_offsets", "__transaction_state"):
        assert f"topic '{name}' cannot be simulated: only Kafka writes it" in told.stderr
        assert name in told.stdout, "a comment of the scenario"


@pytest.mark.parametrize("name", ("__consumer_offsets", "__transaction_state"))
def test_one_of_kafkas_own_topics_is_refused_by_name(run, with_offsets, tmp_path, name):
    """Random keys and values in it would be no commits of groups, nor states of transactions."""
    folder = next(with_offsets.glob(f"{name}-*"))
    for where in ((with_offsets, "--topic", name), (folder,)):
        told = run("simulate", "--from", *where, "--out", tmp_path / "out", code=2)
        assert f"topic '{name}' cannot be simulated: only Kafka writes it" in told.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("where", ("some", "some/users-3", "renamed"))
def test_any_folder_is_a_start_for_a_search(run, tmp_path, where):
    """Some partitions without the first one and checkpoints, and one of them under any name."""
    data = tmp_path / "data"
    with Broker(data, clock=VirtualClock()) as broker:
        broker.create_topic("users", 4, {"cleanup.policy": "compact", "segment.ms": "6h"})
        for hour in range(30):
            for partition in (1, 3):
                key = b"%d" % (hour % 5)
                broker.append("users", key=key, value=b"x" * 50, partition=partition)
            broker.clock.advance(hours=1)
    for partition in (1, 3):
        name = f"users-{partition}"
        shutil.copytree(data / name, tmp_path / "some" / name)
    shutil.copytree(data / "users-3", tmp_path / "renamed")
    told = run(
        "simulate", "--from", tmp_path / where, "--days", 1, "--samples", 3, "--seeds", 2,
        "--config", "cleanup.policy=compact", "--goal", "oldest <= 30d", "--jobs", 1,
        "--search", "segment.ms=6h..1d/2", "--replicas", 2, "--out", tmp_path / "out",
        "--format", "json",
    ).json  # fmt: skip
    assert told["met"]
    assert told["spread"]["disk_bytes"]["max"] == 2 * told["spread"]["bytes_peak"]["max"]


@pytest.fixture
def two_disks(tmp_path):
    """The partitions of a topic in copies of two brokers' directories, and one renamed folder."""
    data = tmp_path / "data"
    with Broker(data, clock=VirtualClock()) as broker:
        broker.create_topic("users", 4, {"cleanup.policy": "compact", "segment.ms": "6h"})
        for hour in range(30):
            for partition in (1, 2, 3):
                key = b"%d" % (hour % 5)
                broker.append("users", key=key, value=b"x" * 50, partition=partition)
            broker.clock.advance(hours=1)
        broker.clean("users", partition=2, roll=True, force=True)
    for partition in (1, 2):
        shutil.copytree(
            data / f"users-{partition}", tmp_path / f"disk-{partition}/users-{partition}"
        )
    shutil.copy(data / "cleaner-offset-checkpoint", tmp_path / "disk-2")
    shutil.copytree(data / "users-3", tmp_path / "users-3.bak")
    return [tmp_path / "disk-1", tmp_path / "disk-2", tmp_path / "users-3.bak"]


@pytest.mark.slow
def test_several_folders_are_one_start(run, two_disks, tmp_path):
    folders = [part for path in two_disks for part in ("--from", path)]
    given = ("--config", "cleanup.policy=compact", "--days", 1, "--samples", 3)
    out = tmp_path / "out"
    told = run("simulate", *folders, *given, "--out", out, "--keep-logs", "--format", "json").json
    (topic,) = told["fit"]["topics"]
    assert set(topic["partition_shares"]) == {"1", "2", "3"}
    text = (out / "scenario.toml").read_text()
    assert f'from = ["{two_disks[0]}", "{two_disks[1]}", "{two_disks[2]}"]' in text
    kept = {path.name for path in (out / "data").glob("users-*")}
    assert kept >= {"users-1", "users-2", "users-3"}
    again = run(
        "simulate", out / "scenario.toml", "--out", tmp_path / "again", "--samples", 3,
        "--format", "json",
    ).json  # fmt: skip
    for result in (told, again):
        del result["files"]
        result.pop("fit", None)
    assert again == told
    moved = tmp_path / "moved"
    shutil.copytree(two_disks[0], moved)
    run(
        "simulate", out / "scenario.toml", "--from", moved, "--from", two_disks[1],
        "--from", two_disks[2], "--out", tmp_path / "elsewhere", "--samples", 3,
    )  # fmt: skip


def test_a_partition_in_two_folders_is_refused(run, two_disks, tmp_path):
    shutil.copytree(two_disks[0], tmp_path / "disk-3")
    folders = ("--from", two_disks[0], "--from", tmp_path / "disk-3")
    told = run("simulate", *folders, "--print", code=2)
    assert f"users-1 is in {two_disks[0]} and in {tmp_path / 'disk-3'}" in told.stderr
