"""Lost segments of compacted logs: `check` reports the ranges that verdicts note."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from logstore import Broker, VirtualClock

NOW = ("--now", "2024-01-05T00:00:00Z")
COMPACT = {"cleanup.policy": "compact"}


def fill(broker, *, segments, records=40, keys=40):
    for _ in range(segments):
        for number in range(records):
            broker.append("users", key=b"k%d" % (number % keys), value=b"x" * 200)
        broker.roll("users")


@pytest.fixture
def folder(data_dir):
    """The folder of a partition: a cleaned segment from offset 0 on, and three dirty ones."""
    configs = {**COMPACT, "index.interval.bytes": "500"}
    with Broker(data_dir, clock=VirtualClock()) as broker:
        broker.create_topic("users", configs=configs)
        fill(broker, segments=2)
        broker.clean("users", force=True)
        fill(broker, segments=3)
    return data_dir / "users-0"


def lose(folder: Path, base: int, *kept: str) -> None:
    for path in folder.glob(f"{base:020}.*"):
        if path.suffix not in kept:
            path.unlink()


def without_checkpoint(folder: Path) -> None:
    (folder.parent / "cleaner-offset-checkpoint").unlink()
    lose(folder, 120)


def cleaned(folder: Path) -> None:
    """Clean everything: of the offsets below 200, only the last 40 keep their records."""
    with Broker(folder.parent, clock=VirtualClock()) as broker:
        broker.clean("users", force=True, roll=True)


def in_the_clean_section(folder: Path, *kept: str) -> None:
    """Lose the segment that begins at offset 120, of which everything is clean."""
    (folder.parent / "cleaner-offset-checkpoint").write_text("0\n1\nusers 0 200\n")
    lose(folder, 120, *kept)


def with_strays(folder: Path, *offsets: int) -> None:
    in_the_clean_section(folder)
    snapshot = next(folder.glob("*.snapshot"))
    for offset in offsets:
        shutil.copy(snapshot, folder / f"{offset:020}.snapshot")


STORIES = {
    "never lost": (lambda _: None, []),
    "above the first dirty offset": (lambda folder: lose(folder, 120), [(120, 160)]),
    "without a checkpoint": (without_checkpoint, [(120, 160)]),
    "cleaned": (cleaned, []),
    "clean": (in_the_clean_section, []),
    "clean, with its indexes": (
        lambda folder: in_the_clean_section(folder, ".index", ".timeindex"),
        [(120, 160)],
    ),
    "clean, with the snapshot of a shutdown": (lambda folder: with_strays(folder, 130), []),
    "clean, with two snapshots": (lambda folder: with_strays(folder, 120, 140), [(120, 160)]),
}


@pytest.mark.parametrize("story", STORIES)
def test_check_reports_what_a_verdict_notes(run, folder, story):
    change, lost = STORIES[story]
    change(folder)
    verdict = run("inspect", "users", *NOW, "--format", "json", code=None).json["verdict"]
    noted = [
        (note["values"]["first_offset"], note["values"]["next_offset"]) for note in verdict["notes"]
    ]
    findings = run("check", "--format", "json", code=None).json["findings"]
    found = [
        (each["expected"], each["found"]) for each in findings if each["check"] == "lost_segment"
    ]
    assert noted == found == lost
    for each in findings:
        if each["check"] == "lost_segment":
            assert each["severity"] == "warning"
            assert each["path"].endswith(f"{each['offset']:020}.log")


@pytest.mark.parametrize("command", (("inspect", "--exact"), ("explain",), ("stats",)))
def test_cleaning_is_not_recommended_before_the_loss_is_known(run, folder, command):
    before = run(*command, "users", *NOW).stdout
    assert "logstore clean users" in before
    lose(folder, 120)
    shown = " ".join(run(*command, "users", *NOW, code=None).stdout.split())
    assert "a segment may be lost" in shown
    helps = shown.split("helps: ")[1]
    assert helps.startswith("logstore check; or fetch the partition again from a replica")
    assert "logstore clean users" not in shown


def test_a_lost_segment_of_another_policy_stays_a_gap(run, folder):
    lose(folder, 120)
    topics = folder.parent / "logstore-topics.json"
    stored = json.loads(topics.read_text())
    stored["topics"]["users"]["configs"] = {"cleanup.policy": "delete"}
    topics.write_text(json.dumps(stored))
    (folder.parent / "cleaner-offset-checkpoint").write_text("0\n0\n")
    findings = run("check", "--format", "json", code=None).json["findings"]
    assert "lost_segment" not in [each["check"] for each in findings]
    assert ("offset_gap", 160, "warning") in [
        (each["check"], each["offset"], each["severity"]) for each in findings
    ]


def test_several_losses_are_one_note_in_a_table_and_one_each_in_a_verdict(run, folder):
    with Broker(folder.parent, clock=VirtualClock()) as broker:
        fill(broker, segments=2)
    for base in (120, 200):
        lose(folder, base)
    verdict = run("inspect", "users", *NOW, "--format", "json", code=None).json["verdict"]
    first, second = (note["text"] for note in verdict["notes"])
    assert "120..159" in first
    assert "200..239" in second
    table = " ".join(run("inspect", "--summary", *NOW, code=None).stdout.split())
    assert table.count(f" note: users-0: {first}; {second}") == table.count("note:") == 1
    explained = " ".join(run("explain", "users", *NOW, code=None).stdout.split())
    assert f" note: {first} note: {second} helps: " in explained
