"""`logstore retain` on data of a few days."""

from __future__ import annotations

import re
import shutil

import pytest

from tests.cli.conftest import lines, tree_hash

DAY_MS = 86_400_000
JAN_1 = 1_704_067_200_000


def day(number):
    """Return midnight of a day of January 2024."""
    return f"2024-01-{number:02}"


def append(run, topic, *days, key="k", **options):
    """Append one batch with one record of 41 bytes on each day."""
    arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
    for number in days:
        item = {"key": f"{key}", "value": "x" * 41}
        run("append", topic, *arguments, "--now", day(number), input=lines(item))


@pytest.fixture
def events(run):
    """Six records in `events`, one a day from 1 January on, two a segment; seven days stay."""
    configs = ("retention.ms=7d", "segment.bytes=230")
    given = [part for each in configs for part in ("--config", each)]
    run("topic", "create", "events", *given, "--now", day(1))
    append(run, "events", 1, 2, 3, 4, 5, 6)
    return "events"


def removed(report):
    return [(item["base_offset"], item["rule"]) for item in report["removed"]]


def bases(data_dir, name="events-0"):
    return sorted(int(path.stem) for path in (data_dir / name).glob("*.log"))


def test_segments_go_once_their_newest_record_is_past_retention_ms(run, data_dir, events):
    """S-086 as a command: at the limit they stay, a millisecond later they go."""
    at_limit = JAN_1 + DAY_MS + 7 * DAY_MS
    assert run("retain", "--now", at_limit, "--format", "json").json["removed"] == []
    report = run("retain", "--now", at_limit + 1, "--format", "json").json
    assert report["dry_run"] is False
    [item] = report["removed"]
    assert item == {
        "topic": "events",
        "partition": 0,
        "base_offset": 0,
        "size_bytes": 220,
        "rule": "retention.ms",
        "reason": "its newest record (2024-01-02 00:00:00.000Z) is 7d 1ms old,"
        " past retention.ms 7d",
        "code": "retention.record_past",
        "values": {
            "newest_at_ms": JAN_1 + DAY_MS,
            "span_ms": 7 * DAY_MS + 1,
            "limit_ms": 7 * DAY_MS,
        },
        "reasons": [
            {"code": item["code"], "values": item["values"], "text": item["reason"]},
        ],
    }
    assert bases(data_dir) == [2, 4]
    assert not list((data_dir / "events-0").glob("*.deleted"))
    assert "[2, 6]" in run("read", "events", "--from", 0, code=1).stderr


def test_dry_run_equals_the_real_run(run, data_dir, events):
    before = tree_hash(data_dir)
    asked = ("retain", "events", "--now", day(12), "--format", "json")
    dry = run(*asked, "--dry-run").json
    assert tree_hash(data_dir) == before
    assert removed(dry) == [(0, "retention.ms"), (2, "retention.ms")]
    real = run(*asked).json
    assert (dry.pop("dry_run"), real.pop("dry_run")) == (True, False)
    assert dry == real
    assert bases(data_dir) == [4]
    assert run(*asked).json["removed"] == []


def test_kept_segments_are_listed_with_the_reason(run, events):
    report = run("retain", "--dry-run", "--now", day(9), "--format", "json").json
    first, second, third = report["kept"]
    assert (first["base_offset"], first["expires_at_ms"]) == (0, JAN_1 + 8 * DAY_MS + 1)
    assert "within retention.ms" in first["reason"]
    assert second["reason"] == third["reason"] == "the earlier segment 0 is retained"
    assert {each["delayed_by_merging"] for each in report["kept"]} == {False}


def test_table_of_a_dry_run(run, events):
    text = run("retain", "--dry-run", "--now", "2024-01-10T06:00Z").stdout
    heading, _, first, second, third, blank, total = text.splitlines()
    assert heading.split() == ["partition", "offsets", "size", "fate", "why"]
    assert first == (
        "events-0   0..1     220 B  delete  retention.ms: its newest record (2024-01-02"
        " 00:00:00.000Z) is 8d 6h old, past retention.ms 7d"
    )
    assert second.startswith("events-0   2..3     220 B  keep    ")
    assert second.endswith(
        "its newest record (2024-01-04 00:00:00.000Z) is 6d 6h old, within retention.ms 7d;"
        " expires at 2024-01-11 00:00:00.001Z, in 18h 1ms"
    )
    assert third.endswith("the earlier segment 2 is retained")
    assert blank == ""
    assert total == "1 segment would be deleted, 220 B freed; 2 left, 440 B (nothing was changed)"


def test_table_of_a_run_that_removes_everything(run, data_dir, events):
    """S-085 as a command: the log is rolled, and its offsets go on."""
    text = run("retain", "events", "--now", day(31)).stdout
    *_, new, _, total = text.splitlines()
    assert new.split()[:5] == ["events-0", "6", "0", "B", "new"]
    assert total == "3 segments deleted, 660 B freed; 1 left, 0 B"
    assert bases(data_dir) == [6]
    again = run("retain", "events", "--now", day(31)).stdout.splitlines()
    assert again[2].startswith("events-0   6         0 B  kept")
    assert again[-1] == "nothing to delete: 1 segment left, 0 B"
    append(run, "events", 31)
    assert run("offsets", "events", "--format", "json").json["offsets"][0]["offset"] == 7


def test_configs_of_the_run_are_not_kept(run, events):
    limit = ("--config", "retention.bytes=400", "--config", "retention.ms=-1")
    report = run("retain", "--dry-run", *limit, "--now", day(31), "--format", "json").json
    assert removed(report) == [(0, "retention.bytes")]
    assert report["removed"][0]["reason"] == (
        "the log exceeds retention.bytes 400 by 260 bytes, at least the segment's 220"
    )
    configs = run("topic", "describe", "events", "--format", "json").json["configs"]
    assert configs["retention.bytes"] == {"value": "-1", "origin": "default"}


def test_rules_apply_in_order(run, events):
    """Log start first, then size, then time (storage-format §13.1)."""
    run("delete-records", "events", "--before-offset", 3)
    limits = ("--config", "retention.bytes=230", "--config", "retention.ms=1ms")
    report = run("retain", *limits, "--now", day(31), "--format", "json").json
    assert removed(report) == [(2, "retention.ms"), (4, "retention.ms")]


def test_compacted_topics_lose_only_segments_below_the_log_start(run, events):
    """S-088 as a command."""
    run("topic", "create", "users", "--config", "cleanup.policy=compact", "--now", day(1))
    append(run, "users", 1)
    report = run("retain", "--dry-run", "--now", day(31), "--format", "json").json
    assert {item["topic"] for item in report["removed"]} == {"events"}
    [kept] = report["kept"]
    assert kept["topic"] == "users"
    assert kept["expires_at_ms"] is None
    assert "does not include delete" in kept["reason"]


def test_expiry_delayed_by_merging_is_explained(run):
    """Under compact,delete a cleaned segment is as young as its youngest record (KIP-354)."""
    configs = ("cleanup.policy=compact,delete", "retention.ms=7d", "segment.bytes=230")
    given = [part for each in configs for part in ("--config", each)]
    run("topic", "create", "t", *given, "--now", day(1))
    for number in range(1, 7):
        append(run, "t", number, key=f"k{number}")
    larger = ("--config", "segment.bytes=2000")
    run("clean", "t", "--force", "--roll", *larger, "--now", day(7))
    report = run("retain", "t", "--dry-run", "--now", day(10), "--format", "json").json
    assert report["removed"] == []
    assert report["kept"][0]["delayed_by_merging"] is True
    assert report["kept"][0]["expires_at_ms"] == JAN_1 + 12 * DAY_MS + 1
    text = " ".join(run("retain", "t", "--dry-run", "--now", day(10)).stdout.split())
    assert "(KIP-354)" in text
    assert "2024-01-13 00:00:00.001Z" in text
    assert "in 3d 1ms" in text
    assert not re.search(r"\d{12}", text), "times for people"


def test_record_from_the_future_keeps_its_segment(run):
    run("topic", "create", "t", "--config", "retention.ms=1d", "--now", day(1))
    item = {"value": "v", "timestamp": JAN_1 + 5 * DAY_MS}
    run("append", "t", "--now", day(5), input=lines(item))
    text = run("retain", "t", "--now", day(1)).stdout
    assert "its newest record (2024-01-06 00:00:00.000Z) is 5d in the future" in text


def test_adopted_topic_is_retained_when_a_command_asks(run, golden):
    """A copied directory is not retained in the background, but by a command with a policy."""
    directory = golden("segments")
    before = bases(directory, "golden-0")
    asked = ("retain", "golden", "--data-dir", directory, "--now", "2035-01-01")
    table = run(*asked, "--dry-run").stdout
    assert (table.count("  delete  "), table.count("would be deleted")) == (len(before), 1)
    assert bases(directory, "golden-0") == before
    run(*asked, code=2)
    assert bases(directory, "golden-0") == before
    run(*asked, "--config", "cleanup.policy=delete")
    assert len(bases(directory, "golden-0")) == 1


def test_partition_that_cannot_be_opened_does_not_hide_others(run, data_dir, events):
    run("topic", "create", "bad", "--now", day(1))
    append(run, "bad", 1)
    path = data_dir / "bad-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[16] = 1
    path.write_bytes(data)
    report = run("retain", "--dry-run", "--now", day(31), "--format", "json", code=1)
    assert len(report.json["removed"]) == 3
    assert report.stderr.startswith("error: ")
    assert "bad-0" in report.stderr
    assert run("retain", "--now", day(31), code=1).stdout.count("deleted") == 4


def test_lines_of_jsonl_are_the_removed_segments(run, events):
    found = run("retain", "--dry-run", "--now", day(12), "--format", "jsonl").jsonl
    assert [item["base_offset"] for item in found] == [0, 2]


def test_nothing_there(run, data_dir):
    data_dir.mkdir()
    assert run("retain").stdout == "no partitions\n"
    assert run("retain", "--format", "json").json == {
        "dry_run": False,
        "removed": [],
        "kept": [],
        "assumed": [],
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    (
        (("--partition", "0"), "--partition needs a topic"),
        (("evnts",), "did you mean events?"),
        (("events", "--partition", "1"), "has no partition 1"),
        (("events", "--config", "retention.mss=1"), "nearest is 'retention.ms'"),
        (("events", "--config", "retention.ms=-2"), "INVALID_CONFIG"),
    ),
)
def test_wrong_usage(run, data_dir, events, arguments, message):
    before = bases(data_dir)
    refused = run("retain", *arguments, "--now", day(31), code=2)
    assert message in refused.stderr
    assert refused.stdout == ""
    assert bases(data_dir) == before


@pytest.fixture
def copied(data_dir, events, tmp_path):
    """A copy of `events-0` without the topic's configuration."""
    directory = tmp_path / "copy"
    shutil.copytree(data_dir / "events-0", directory / "events-0")
    return directory


def test_nothing_is_deleted_under_an_assumed_policy(run, copied):
    late = ("--data-dir", copied, "--now", day(31))
    for limits in ((), ("--config", "retention.ms=1d")):
        refused = run("retain", *late, *limits, code=2)
        assert refused.stdout == ""
        assert refused.stderr == (
            "error: no configuration of topic events is stored here, so events-0 was not changed;"
            " set --config cleanup.policy=POLICY, or use --dry-run to see what the defaults would"
            " delete (INVALID_CONFIG)\n"
        )
        report = run("retain", *late, *limits, "--format", "json", code=2).json
        assert report["removed"] == []
        assert any("cleanup.policy delete" in text for text in report["assumed"])
    assert bases(copied) == [0, 2, 4]
    given = ("--config", "cleanup.policy=delete")
    report = run("retain", *late, *given, "--format", "json").json
    assert len(report["removed"]) == 3
    assert not any("cleanup.policy" in text for text in report["assumed"])


def test_a_partition_under_an_assumed_policy_does_not_affect_others(run, copied):
    run("topic", "create", "known", "--data-dir", copied, "--config", "retention.ms=1d")
    append(run, "known", 1, **{"data-dir": str(copied)})
    refused = run("retain", "--data-dir", copied, "--now", day(31), "--format", "json", code=2)
    assert [item["topic"] for item in refused.json["removed"]] == ["known"]


def test_dry_run_under_an_assumed_policy_notes_it(run, copied):
    found = run("retain", f"{copied}", "--now", day(31), "--dry-run")
    assert "3 segments would be deleted" in found.stdout
    assert found.stderr.startswith(
        "note: assumed: no configuration of topic events is stored here: cleanup.policy delete"
    )
    given = ("--config", "cleanup.policy=delete")
    limits = ("--config", "retention.ms=1d", "--config", "retention.bytes=-1")
    assert run("retain", f"{copied}", "--now", day(31), "--dry-run", *given, *limits).stderr == ""


def test_limits_that_are_assumed_are_noted(run, copied):
    late = ("--data-dir", copied, "--now", day(31), "--config", "cleanup.policy=delete")
    text = (
        "note: assumed: no configuration of topic events is stored here: {} are assumed in addition"
        " to --config; override with --config KEY=VALUE\n"
    )
    both = "retention.ms 7d and retention.bytes -1 (Kafka's defaults)"
    assert run("retain", *late, "--dry-run").stderr == text.format(both)
    given = ("--config", "retention.bytes=1GiB")
    one = "retention.ms 7d (Kafka's default)"
    assert run("retain", *late, *given).stderr == text.format(one).replace(" are ", " is ")
    assert bases(copied) == [6]
