from __future__ import annotations

import json

import pytest

from logstore.config_table import TOPIC_KEYS


def test_created_topic_is_kept_with_its_configuration(run):
    made = run("topic", "create", "users", "--partitions", 2, "--config", "cleanup.policy=compact")
    assert made.stdout == "created topic users with 2 partitions\n"
    assert run("topic", "list", "--format", "json").json == {
        "topics": [
            {
                "name": "users",
                "partitions": 2,
                "configs": {"cleanup.policy": "compact"},
                "partition_numbers": [0, 1],
                "adopted": False,
            }
        ]
    }


def test_times_of_a_configuration_may_be_durations(run):
    run("topic", "create", "t", "--config", "retention.ms=7d", "--config", "segment.ms=1d12h")
    configs = run("topic", "describe", "t", "--format", "json").json["configs"]
    assert configs["retention.ms"] == {"value": "604800000", "origin": "topic"}
    assert configs["segment.ms"]["value"] == "129600000"


def test_old_names_are_understood_with_a_note(run):
    made = run("topic", "create", "t", "--config", "topic.cleanup.policy=dedupe")
    assert "note: " in made.stderr
    configs = run("topic", "describe", "t", "--format", "json").json["configs"]
    assert configs["cleanup.policy"]["value"] == "compact"


def test_description_has_every_key_with_value_and_origin(run, tmp_path):
    properties = tmp_path / "server.properties"
    properties.write_text("log.segment.bytes=2000\nlog.retention.hours=1\nnum.io.threads=8\n")
    run("topic", "create", "t", "--config", "segment.ms=5")
    found = run("topic", "describe", "t", "--format", "json", "--config-file", properties)
    document = found.json
    assert (document["name"], document["partitions"]) == ("t", 1)
    assert document["configs"]["segment.ms"] == {"value": "5", "origin": "topic"}
    assert document["configs"]["segment.bytes"] == {"value": "2000", "origin": "broker"}
    assert document["configs"]["retention.ms"] == {"value": "3600000", "origin": "broker"}
    assert document["configs"]["cleanup.policy"] == {"value": "delete", "origin": "default"}
    assert list(document["configs"]) == list(TOPIC_KEYS)
    assert found.stderr.count("num.io.threads") == 1

    table = run("topic", "describe", "t", "--config-file", properties).stdout
    assert "broker: log.segment.bytes" in table
    assert "Whether" in table or "What may remove records" in table
    items = run("topic", "describe", "t", "--format", "jsonl").jsonl
    assert {"key": "segment.ms", "value": "5", "origin": "topic"} in items


@pytest.mark.parametrize("strategy", ("timestamp", "header"))
def test_description_warns_of_tombstones_that_go_too_early(run, strategy):
    made = run(
        "topic",
        "create",
        "t",
        *("--config", f"compaction.strategy={strategy}"),
        *("--config", "delete.retention.ms=1h"),
        *("--config", "max.compaction.lag.ms=1m"),
    )
    assert "segment.ms (604800000) is not below delete.retention.ms (3600000)" in made.stderr
    assert "max.compaction.lag.ms (60000)" not in made.stderr
    assert "segment.ms" in run("topic", "describe", "t").stderr


def test_offset_strategy_needs_no_warning(run):
    run("topic", "create", "t", "--config", "delete.retention.ms=1")
    assert run("topic", "describe", "t").stderr == ""


def test_copied_folders_are_listed_as_adopted_and_taken_over(run, golden):
    directory = golden("segments")
    shared = ("--data-dir", directory)
    before = sorted((directory / "golden-0").glob("*.log"))
    contents = [path.read_bytes() for path in before]
    [found] = run("topic", "list", *shared, "--format", "jsonl").jsonl
    assert found["adopted"]
    run("topic", "create", "golden", "--config", "cleanup.policy=compact", *shared)
    [found] = run("topic", "list", *shared, "--format", "jsonl").jsonl
    assert not found["adopted"]
    assert [path.read_bytes() for path in before] == contents


def test_table_of_topics(run):
    run("topic", "create", "b", "--config", "cleanup.policy=compact")
    run("topic", "create", "a")
    heading, _, first, second = run("topic", "list").stdout.splitlines()
    assert heading.split() == ["topic", "partitions", "origin", "configuration"]
    assert first.split() == ["a", "1", "created", "defaults"]
    assert second.split() == ["b", "1", "created", "cleanup.policy=compact"]


def test_empty_directory_has_no_topics(run, data_dir):
    data_dir.mkdir()
    assert run("topic", "list").stdout == "no topics\n"
    assert run("topic", "list", "--format", "json").json == {"topics": []}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    (
        (("create", "a b"), 2, "INVALID_TOPIC_EXCEPTION"),
        (("create", "t", "--config", "retention.mss=1"), 2, "nearest is 'retention.ms'"),
        (("create", "t", "--config", "retention.ms=soon"), 2, "no duration"),
        (("create", "t", "--config", "retention.ms=-2"), 2, "INVALID_CONFIG"),
        (("create", "t", "--config", "retention.ms"), 2, "is not KEY=VALUE"),
        (("create", "t", "--partitions", "0"), 2, "--partitions"),
        (("describe", "usres"), 2, "did you mean users?"),
        (("describe",), 2, "Missing argument"),
        (("create", "users"), 1, "TOPIC_ALREADY_EXISTS"),
        (("delte", "users"), 2, "no such command 'delte'"),
        (("lst",), 2, "did you mean list?"),
    ),
)
def test_refusals(run, arguments, code, message):
    run("topic", "create", "users")
    refused = run("topic", *arguments, code=code)
    assert refused.stdout == ""
    assert message in refused.stderr
    assert refused.stderr.startswith("error: ")
    assert refused.stderr.count("\n") == 1


def test_nothing_is_created_by_a_refused_topic(run, data_dir):
    run("topic", "create", "t", "--config", "no.such.key=1", code=2)
    assert not data_dir.exists()


def test_json_of_create(run):
    made = run("topic", "create", "t", "--format", "json")
    assert json.loads(made.stdout)["name"] == "t"
