"""`logstore demo`: its output for 10,000 records, and proof that its checks find errors."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
import pytest
from click.testing import CliRunner

from logstore.cli.demo import kafka as demo_kafka
from logstore.cli.demo import presenter as demo_presenter
from logstore.cli.demo.accounts import Accounts
from logstore.cli.demo.story import TOPIC, Story
from logstore.cli.demo.verify import expected_offsets
from logstore.cli.main import main
from logstore.types import DAY_MS

NOW = "2026-03-01T00:00:00Z"
GOLDEN = Path(__file__).resolve().parents[1] / "data" / "kafka-3.9" / "clean-segments"
EXPECTED = Path(__file__).with_name("expected")


class Told(NamedTuple):
    """The result of a demo: its directory, its output, and a copy of its `.log` files."""

    out: Path
    text: str
    logs: dict[str, str]


def demo(out: Path, *args: str, code: int = 0) -> Any:
    """Run a small demo in `out`'s parent directory; returns click's result."""
    before = Path.cwd()
    os.chdir(out.parent)
    try:
        result = CliRunner(env={"COLUMNS": None}).invoke(
            main,
            ["demo", "--out", out.name, "--records", "10000", "--now", NOW, *args],
        )
    finally:
        os.chdir(before)
    assert result.exit_code == code, f"{result.stdout}\n{result.stderr}"
    return result


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """One demo for all tests that only read."""
    out = tmp_path_factory.mktemp("demo") / "out"
    text = demo(out).stdout
    return Told(out, text, log_files(out))


def summary(out: Path) -> dict[str, Any]:
    found = json.loads((out / "logstore-demo.json").read_bytes())
    assert isinstance(found, dict)
    return found


def log_files(directory: Path) -> dict[str, str]:
    return {
        path.relative_to(directory).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*.log"))
    }


# -- output --------------------------------------------------------------------------------


def test_demo_prints_its_steps_and_passes_its_checks(told: Told) -> None:
    out, text, _ = told
    found = summary(out)
    assert found["ok"] is True
    assert found["problems"] == []
    assert "identical to Kafka's output: 3 segments, 9 files, byte for byte" in text
    days = [(each["day"], each["why"].split(",")[0]) for each in found["passes"]]
    assert days[0] == (6, "the dirty ratio is 1.00")
    assert days[1][0] == 13
    assert "but the oldest dirty record is 7 d" in found["passes"][1]["why"]
    assert days[2][1] == "the active segment"
    for text_part in ("min.cleanable.dirty.ratio", "max.compaction.lag.ms", "✓", "█", "▓", "░"):
        assert text_part in text


def untimed(text: str) -> str:
    """Return the demo's output without measured times."""
    text = re.sub(r"\n {3}(?:Compiled|Loaded) the .*?\n\n", "\n", text, flags=re.DOTALL)
    text = re.sub(r"written in .*?MiB/s\.", "written in TIME.", text, flags=re.DOTALL)
    text = re.sub(r"(→ \d+) +[\d,]+$", r"\1", text, flags=re.MULTILINE)
    return re.sub(r"Done in .*? s\.", "Done in TIME.", text)


def test_the_whole_output(told: Told) -> None:
    """`expected/demo.txt` was read and approved; change it with the output."""
    assert untimed(told.text) == (EXPECTED / "demo.txt").read_text("utf-8")


def test_the_whole_summary(told: Told) -> None:
    found = summary(told.out)
    times = [found.pop("seconds"), found.pop("kernels_s")]
    times += [found["write"].pop(name) for name in ("seconds", "records_per_s", "mib_per_s")]
    times += [each.pop(name) for each in found["passes"] for name in ("index_ms", "clean_ms")]
    assert all(time >= 0 for time in times)
    assert found == json.loads((EXPECTED / "demo.json").read_bytes())


def test_erased_user_is_on_disk_until_the_lag_is_over(told: Told) -> None:
    found = summary(told.out)["erased"]["found"]
    emails = [each["email"] for each in found]
    keys = [each["key"] for each in found]
    assert emails[0] > 0
    assert emails[2] > 0, "closed, but not compacted yet"
    assert emails[3:] == [0, 0]
    assert keys[3:] == [1, 0], "the tombstone goes with the second cleaning after it"


def test_numbers_fit_each_other(told: Told) -> None:
    found = summary(told.out)
    assert found["before"]["records"] == 10_000
    assert found["before"]["keys"] - found["after"]["keys"] == found["closed_accounts"]
    assert found["after"]["records"] == found["verified_records"]
    assert found["passes"][2]["fates"]["tombstone_expired"] == found["closed_accounts"]
    for each in found["passes"]:
        assert sum(each["fates"].values()) == each["messages_read"]


def test_output_fits_80_columns_without_colours(told: Told) -> None:
    lines = told.text.splitlines()
    assert "\x1b" not in told.text
    for line in lines:
        assert len(line) <= 80 or line.startswith("   logstore ")
        assert line == line.rstrip()


def test_printed_commands_work(told: Told) -> None:
    out, text, _ = told
    commands = [line.strip() for line in text.splitlines() if line.startswith("   logstore ")]
    assert len(commands) == 8
    before = Path.cwd()
    os.chdir(out.parent)
    try:
        for command in commands:
            result = CliRunner().invoke(main, shlex.split(command)[1:])
            assert result.exit_code == 0, f"{command}\n{result.stdout}\n{result.stderr}"
            assert result.stdout or "no records" in result.stderr
    finally:
        os.chdir(before)
    # Cleaning Kafka's input again has the result of Kafka's cleaner.
    assert log_files(out / "kafka-before") == log_files(out / "kafka")


def test_json_is_the_only_output(tmp_path: Path) -> None:
    result = demo(tmp_path / "out", "--format", "json")
    printed = json.loads(result.stdout)
    assert printed["ok"] is True
    stored = summary(tmp_path / "out")
    assert stored == {"made_by": "logstore demo", **printed}


def test_works_where_the_terminal_has_no_block_characters(tmp_path: Path) -> None:
    runner = CliRunner(charset="ascii", env={"COLUMNS": None})
    args = ["demo", "--out", str(tmp_path / "out"), "--records", "10000", "--now", NOW]
    result = runner.invoke(main, args)
    assert result.exit_code == 0, result.stderr
    assert "ok identical" in result.stdout
    assert "#" in result.stdout


# -- deterministic -------------------------------------------------------------------------


def test_same_seed_and_time_give_the_same_bytes(told: Told, tmp_path: Path) -> None:
    demo(tmp_path / "again")
    assert log_files(tmp_path / "again") == told.logs
    assert (Accounts(10_000, 1, 0).users != Accounts(10_000, 2, 0).users).any()


# -- refusals ------------------------------------------------------------------------------


@pytest.mark.parametrize("marker", (None, "{}", "[1]", "no json"))
def test_refuses_a_foreign_directory(tmp_path: Path, marker: str | None) -> None:
    out = tmp_path / "mine"
    (out / "accounts").mkdir(parents=True)
    (out / "accounts" / "precious").write_text("data")
    if marker is not None:
        (out / "logstore-demo.json").write_text(marker)
    before = sorted(out.rglob("*"))
    result = demo(out, code=2)
    assert "not from an earlier demo" in result.stderr
    assert sorted(out.rglob("*")) == before


def test_refuses_a_file(tmp_path: Path) -> None:
    out = tmp_path / "file"
    out.write_text("data")
    assert "is not a directory" in demo(out, code=2).stderr


def test_replaces_its_own_files_and_keeps_others(tmp_path: Path) -> None:
    """Including an interrupted run's files: the marker is written first."""
    out = tmp_path / "out"
    (out / "accounts" / "user-accounts-0").mkdir(parents=True)
    (out / "accounts" / "user-accounts-0" / "00000000000000000000.log").write_bytes(b"torn")
    (out / "notes.txt").write_text("mine")
    (out / "logstore-demo.json").write_text('{"made_by": "logstore demo", "ok": null}')
    demo(out)
    assert summary(out)["ok"] is True
    assert (out / "notes.txt").read_text() == "mine"


def test_refuses_a_time_before_1970(tmp_path: Path) -> None:
    args = ["demo", "--out", str(tmp_path / "out"), "--now", "0"]
    result = CliRunner().invoke(main, args)
    assert result.exit_code == 2
    assert not (tmp_path / "out").exists()


# -- its checks find errors ----------------------------------------------------------------

Tamper = Callable[[Path], None]


def first_log(directory: Path) -> Path:
    return min(directory.glob("user-accounts-0/*.log"))


def flip_a_byte(directory: Path) -> None:
    path = first_log(directory)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def change_a_value(directory: Path) -> None:
    """Change a record's value in a batch that remains valid."""
    path = first_log(directory)
    data = bytearray(path.read_bytes())
    (length,) = struct.unpack_from(">i", data, 8)
    at = data.index(b'"plan":"') + len(b'"plan":"')
    assert at < length + 12, "within the first batch"
    data[at] ^= 1
    struct.pack_into(">I", data, 17, google_crc32c.value(bytes(data[21 : length + 12])))
    path.write_bytes(data)


def drop_the_last_batch(directory: Path) -> None:
    path = first_log(directory)
    data = path.read_bytes()
    end = at = 0
    while at < len(data):
        end = at
        at += 12 + struct.unpack_from(">i", data, at + 8)[0]
    path.write_bytes(data[:end])


def bring_back_an_old_batch(directory: Path) -> None:
    """Append the first batch again, under the next offsets."""
    logs = sorted(directory.glob("user-accounts-0/*.log"))
    old, active = logs[0].read_bytes(), logs[-1]
    batch = bytearray(old[: 12 + struct.unpack_from(">i", old, 8)[0]])
    data = active.read_bytes()
    at = end = 0
    while at < len(data):
        end = at
        at += 12 + struct.unpack_from(">i", data, at + 8)[0]
    (base,) = struct.unpack_from(">q", data, end)
    (delta,) = struct.unpack_from(">i", data, end + 23)
    struct.pack_into(">q", batch, 0, base + delta + 1)
    active.write_bytes(data + bytes(batch))
    (directory / ".kafka_cleanshutdown").unlink()


def leave_a_trace(directory: Path) -> None:
    accounts = Accounts(10_000, 354, DAY_MS)
    trace = b"x" + accounts.email(int(accounts.closed[0]))
    (directory / "user-accounts-0" / "00000000000000000000.log.deleted").write_bytes(trace)


@pytest.mark.parametrize(
    ("tamper", "says"),
    (
        (flip_a_byte, "CRC"),
        (change_a_value, "is not"),
        (drop_the_last_batch, "expected offset"),
        (bring_back_an_old_batch, "unexpected record at offset"),
        (leave_a_trace, "still found"),
    ),
)
def test_detects_tampering(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tamper: Tamper, says: str
) -> None:
    verify = demo_presenter.Presenter._verify

    def tampered(teller: demo_presenter.Presenter) -> None:
        tamper(teller.out / "accounts")
        verify(teller)

    monkeypatch.setattr(demo_presenter.Presenter, "_verify", tampered)
    result = demo(tmp_path / "out", code=1)
    assert "✗" in result.stdout
    assert "Failed: " in result.stdout
    assert result.stderr.startswith("error: ")
    assert says in result.stderr
    assert summary(tmp_path / "out")["ok"] is False


def test_finds_a_difference_from_kafkas_cleaner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = demo_kafka.KafkaCase.clean

    def clean_differently(case: demo_kafka.KafkaCase, directory: Path) -> Any:
        stats = clean(case, directory)
        path = directory / "golden-0" / "00000000000000002774.timeindex"
        path.write_bytes(path.read_bytes()[:-1])
        return stats

    monkeypatch.setattr(demo_kafka.KafkaCase, "clean", clean_differently)
    result = demo(tmp_path / "out", "--format", "json", code=1)
    found = json.loads(result.stdout)
    assert found["kafka"]["identical"] is False
    assert (
        "00000000000000002774.timeindex: differs from the output of Kafka's cleaner"
        in found["problems"][0]
    )


def test_names_files_too_many_and_missing(tmp_path: Path) -> None:
    case = demo_kafka.KafkaCase.load()
    case.place(tmp_path / "kafka")
    stats = case.clean(tmp_path / "kafka")
    assert case.problem(tmp_path / "kafka", stats) is None
    extra = tmp_path / "kafka" / "golden-0" / "00000000000000000001.log"
    extra.write_bytes(b"")
    assert "not in the output of" in (case.problem(tmp_path / "kafka", stats) or "")
    extra.unlink()
    (tmp_path / "kafka" / "golden-0" / "00000000000000006686.index").unlink()
    assert "missing" in (case.problem(tmp_path / "kafka", stats) or "")


# -- its input -----------------------------------------------------------------------------


def test_kafkas_directory_is_the_golden_one() -> None:
    shipped = demo_kafka.DATA / "before"
    golden = GOLDEN / "before" / "data"
    names = sorted(path.relative_to(golden) for path in golden.rglob("*") if path.is_file())
    assert names == sorted(p.relative_to(shipped) for p in shipped.rglob("*") if p.is_file())
    for name in names:
        assert (shipped / name).read_bytes() == (golden / name).read_bytes()
    assert (demo_kafka.DATA / "manifest.json").read_bytes() == (
        GOLDEN / "manifest.json"
    ).read_bytes()
    assert demo_kafka.digests(GOLDEN / "after" / "data") == demo_kafka.KafkaCase.load().digests
    assert sum(path.stat().st_size for path in demo_kafka.DATA.rglob("*")) < 1 << 20


def test_accounts_are_json_and_skewed() -> None:
    accounts = Accounts(20_000, 3, DAY_MS)
    keys, values = accounts.columns(0, 2000)
    for row in range(0, 2000, 7):
        user = int(accounts.users[row])
        value = json.loads(values[row] or b"")
        assert keys[row] == accounts.key(user)
        assert value["name"] == accounts.name(user)
        assert value["email"].encode() == accounts.email(user)
        assert value["revision"] == row + 1
    counts = np.sort(np.bincount(accounts.users, minlength=accounts.accounts))
    assert counts[-len(counts) // 10 :].sum() > 0.4 * accounts.records
    assert (np.diff(accounts.timestamps) >= 0).all()


def test_rows_are_the_same_in_any_company() -> None:
    accounts = Accounts(10_000, 3, DAY_MS)
    keys, values = accounts.columns(0, 10_000)
    for row in (9_999, 17, 8_700, int(np.flatnonzero(accounts.tombstones)[0])):
        assert accounts.record(row) == (int(accounts.timestamps[row]), keys[row], values[row])
    some_keys, some_values = accounts.columns(17, 19)
    assert [some_keys[1], some_values[1]] == [keys[18], values[18]]


def test_closed_accounts_end_with_their_tombstone() -> None:
    accounts = Accounts(10_000, 3, DAY_MS)
    assert len(accounts.closed) == 50
    assert int(accounts.tombstones.sum()) == 50
    for user in accounts.closed.tolist():
        rows = np.flatnonzero(accounts.users == user)
        assert len(rows) > 1
        assert accounts.tombstones[rows].tolist() == [False] * (len(rows) - 1) + [True]
        assert accounts.closing.start <= rows[-1] < accounts.closing.stop


def test_expected_offsets_are_the_definition_of_compaction() -> None:
    accounts = Accounts(10_000, 3, DAY_MS)
    accounts.records = 8
    accounts.users = np.array([1, 2, 1, 3, 2, 1, 3, 3])
    accounts.tombstones = np.array([False, False, False, False, True, False, False, False])
    assert expected_offsets(accounts, 0, with_tombstones=True).tolist() == list(range(8))
    assert expected_offsets(accounts, 5, with_tombstones=True).tolist() == [2, 3, 4, 5, 6, 7]
    assert expected_offsets(accounts, 5, with_tombstones=False).tolist() == [2, 3, 5, 6, 7]
    assert expected_offsets(accounts, 8, with_tombstones=False).tolist() == [5, 7]


# -- its story -----------------------------------------------------------------------------


@pytest.fixture
def story() -> Iterator[Story]:
    story = Story.begin(None, Accounts(10_000, 3, DAY_MS), 3)
    yield story
    story.close()


def test_a_story_reports_what_it_writes_and_reads(story: Story) -> None:
    steps: list[tuple[str, int, int | None]] = []
    history, closing = story.accounts.history, story.accounts.closing
    first = story.write(history, lambda *step: steps.append(step))
    second = story.write(closing, lambda *step: steps.append(step))
    headers = [
        each.header for segment in story.broker.log(TOPIC).segments for each in segment.batches()
    ]
    expected = []
    for chapter in (history, closing):
        size = 0
        for each in headers:
            if chapter.start <= each.base_offset < chapter.stop:
                size += each.size_bytes
                records = each.last_offset + 1 - chapter.start
                expected.append(("writing", size, size * chapter.records // records))
    assert steps == expected
    total = first + second
    assert total == (closing.stop, story.inspect().size_bytes, len(headers), total.seconds)
    assert 0 < first.seconds < total.seconds
    assert story.day == 7.5
    steps.clear()
    [run] = story.clean_when_due(lambda *step: steps.append(step))
    assert (run.day, run.why, run.stats is None) == (
        8,
        "the dirty ratio is 1.00, but the oldest dirty record is 7 d 8 h old",
        False,
    )
    assert list(dict.fromkeys(task for task, _, _ in steps)) == ["reading keys", "compacting"]
    assert all(0 <= done <= (total or 0) for _, done, total in steps)


def test_a_story_ends_if_its_topic_is_not_cleaned(story: Story) -> None:
    story.write(story.accounts.history)
    story.broker.alter_configs(
        TOPIC, {"min.compaction.lag.ms": "99d", "max.compaction.lag.ms": "99d"}
    )
    with pytest.raises(RuntimeError) as raised:
        story.clean_when_due()
    assert str(raised.value) == (
        "the topic was not cleaned by day 15: data at or above offset 0 is younger than"
        " min.compaction.lag.ms 99d"
    )
    assert story.day == 15
