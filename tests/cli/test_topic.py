from __future__ import annotations

import json

import pytest

from logstore import Broker
from logstore.config.topic_keys import TOPIC_KEYS
from tests.cli.conftest import lines


def test_created_topic_is_kept_with_its_configuration(run):
    made = run("topic", "create", "users", "--partitions", 2, "--config", "cleanup.policy=compact")
    assert made.stdout == "created topic users with 2 partitions\n"
    (listed,) = run("topic", "list", "--format", "json").json["topics"]
    topic_id = listed.pop("id")
    assert listed == {
        "name": "users",
        "partitions": 2,
        "configs": {"cleanup.policy": "compact"},
        "partition_numbers": [0, 1],
        "adopted": False,
    }
    assert run("topic", "describe", "users", "--format", "json").json["id"] == topic_id
    assert run("topic", "describe", "users").stdout.startswith(f"users   id {topic_id}   part")


def test_adopted_topic_shows_the_id_of_its_directories(run, golden):
    directory = golden("segments")
    described = run("topic", "describe", "golden", "--data-dir", directory)
    assert described.stdout.startswith(
        "golden   id x3P97ziJPa2-gJ8eiq7qRg   partitions 0   adopted"
    )
    (directory / "golden-0" / "partition.metadata").unlink()
    described = run("topic", "describe", "golden", "--data-dir", directory)
    assert described.stdout.startswith("golden   partitions 0   adopted")


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
    assert set(document["layers"]) == {"retention.ms", "segment.bytes", "segment.ms"}
    assert document["layers"]["retention.ms"] == [
        {"key": "log.retention.hours", "value": "1", "origin": "broker"},
        {"key": "log.retention.hours", "value": "168", "origin": "default"},
    ]
    assert found.stderr.count("num.io.threads") == 1

    table = run("topic", "describe", "t", "--config-file", properties).stdout
    assert "broker: log.segment.bytes" in table
    assert "Whether" in table or "What may remove records" in table
    items = run("topic", "describe", "t", "--format", "jsonl").jsonl
    assert {"key": "segment.ms", "value": "5", "origin": "topic"} in items


def test_description_shows_dynamic_broker_settings(run, data_dir, tmp_path):
    with Broker(data_dir) as broker:
        broker.create_topic("t", configs={"segment.ms": "5"})
        broker.alter_broker_configs({"log.retention.ms": "2000"})
        broker.alter_broker_configs(
            {"log.retention.ms": "3000", "log.roll.ms": "4000"}, cluster_wide=True
        )
    properties = tmp_path / "server.properties"
    properties.write_text("log.retention.hours=1\n")
    document = run("topic", "describe", "t", "--format", "json", "--config-file", properties).json
    assert document["configs"]["retention.ms"] == {"value": "2000", "origin": "dynamic broker"}
    assert [(each["value"], each["origin"]) for each in document["layers"]["retention.ms"]] == [
        ("2000", "dynamic broker"),
        ("3000", "dynamic default"),
        ("1", "broker"),
        ("168", "default"),
    ]
    table = run("topic", "describe", "t", "--config-file", properties).stdout
    assert "topic, overrides dynamic default 4000, overrides default 168" in table
    covered = "overrides dynamic default 3000, overrides broker 1, overrides default 168"
    assert f"dynamic broker: log.retention.ms, {covered}" in table


@pytest.mark.parametrize("strategy", ("timestamp", "header"))
def test_description_warns_of_tombstones_that_go_too_early(run, strategy):
    made = run(
        "topic",
        "create",
        "t",
        *("--config", f"compaction.strategy={strategy}"),
        *("--config", "compaction.strategy.header=v"),
        *("--config", "delete.retention.ms=1h"),
        *("--config", "max.compaction.lag.ms=1m"),
    )
    warning = "note: topic t: segment.ms 604800000 is not below delete.retention.ms 3600000"
    assert made.stderr.startswith(warning)
    assert made.stderr.count("\n") == 1, "max.compaction.lag.ms is short enough"
    describe, explain = ("topic", "describe", "t"), ("explain",)
    assert run(*explain, "t").stderr == "", "it is not compacted"
    for form in ("table", "json", "jsonl"):
        assert run(*describe, "--format", form).stderr == made.stderr
        compact = ("--config", "cleanup.policy=compact", "--format", form)
        for command in (explain, (*explain, "t")):
            assert run(*command, *compact).stderr == made.stderr


def test_a_strategy_without_its_header_is_pointed_out(run):
    made = run("topic", "create", "t", "--config", "compaction.strategy=header")
    assert "compaction.strategy.header names none" in made.stderr
    assert "segment.ms" not in made.stderr, "it compacts by offset"


def test_offset_strategy_needs_no_warning(run):
    run("topic", "create", "t", "--config", "delete.retention.ms=1")
    assert run("topic", "describe", "t").stderr == run("explain", "t").stderr == ""


def test_a_wrong_strategy_is_refused_by_s245(run):
    config = ("--config", "compaction.strategy=Timestamp2")
    made = run("topic", "create", "t", *config, code=2)
    assert "one of offset, timestamp, header" in made.stderr
    run("topic", "create", "t")
    altered = run("topic", "alter", "t", "--set", "compaction.strategy=Timestamp2", code=2)
    assert "one of offset, timestamp, header" in altered.stderr


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
        (("create", "t", "--config", "retention.ms=7x"), 2, "not a duration"),
        (("create", "t", "--config", "retention.ms=-2"), 2, "INVALID_CONFIG"),
        (("create", "t", "--config", "retention.ms"), 2, "is not KEY=VALUE"),
        (("create", "t", "--partitions", "0"), 2, "--partitions"),
        (("describe", "usres"), 2, "did you mean users?"),
        (("describe",), 2, "Missing argument"),
        (("create", "users"), 1, "TOPIC_ALREADY_EXISTS"),
        (("delte", "users"), 2, "unknown command 'delte'"),
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


# -- alter ---------------------------------------------------------------------------------


def configs_of(run, name, *arguments):
    configs = run("topic", "describe", name, "--format", "json", *arguments).json["configs"]
    return {key: each["value"] for key, each in configs.items() if each["origin"] == "topic"}


def test_altered_configuration_is_stored_and_in_force(run):
    run("topic", "create", "t", "--config", "segment.ms=1d", "--config", "retention.ms=7d")
    run("topic", "alter", "t", *("--set", "retention.ms=30d"), *("--set", "segment.bytes=200"))
    assert configs_of(run, "t") == {
        "segment.ms": "86400000",
        "retention.ms": "2592000000",
        "segment.bytes": "200",
    }
    items = [{"value": "x" * 100} for _ in range(3)]
    run("append", "t", "--batch-records", 1, input=lines(*items))
    assert len(run("inspect", "t", "--format", "json").json["segments"]) == 3
    run("topic", "alter", "t", "--unset", "segment.ms", "--unset", "retention.ms")
    assert configs_of(run, "t") == {"segment.bytes": "200"}


def test_change_is_shown_with_values_and_origins(run, tmp_path):
    properties = tmp_path / "server.properties"
    properties.write_text("log.retention.hours=1\n")
    run("topic", "create", "t", "--config", "retention.ms=7d")
    given = ("--set", "segment.ms=1d", "--unset", "retention.ms", "--config-file", properties)
    heading, _, *rows = run("topic", "alter", "t", *given).stdout.splitlines()
    assert heading.split() == ["configuration", "before", "after"]
    assert [row.split() for row in rows] == [
        ["segment.ms", "604800000", "(default)", "86400000", "(topic)"],
        ["retention.ms", "604800000", "(topic)", "3600000", "(log.retention.hours)"],
    ]
    document = run("topic", "alter", "t", "--set", "segment.ms=2d", "--format", "json").json
    change = {
        "key": "segment.ms",
        "before": {"value": "86400000", "origin": "topic"},
        "after": {"value": "172800000", "origin": "topic"},
    }
    assert document["changed"] == [change]
    assert document["configs"] == {"segment.ms": "172800000"}
    assert run("topic", "alter", "t", "--set", "segment.ms=1d", "--format", "jsonl").jsonl == [
        change | {"before": change["after"], "after": change["before"]}
    ]


def test_an_alteration_without_a_change_is_reported(run):
    run("topic", "create", "t", "--config", "segment.ms=1d")
    for given in (("--set", "segment.ms=86400000"), ("--unset", "retention.ms")):
        assert run("topic", "alter", "t", *given).stdout == (
            "nothing to change for topic t: all values are already set\n"
        )
        assert run("topic", "alter", "t", *given, "--format", "json").json["changed"] == []


def test_default_that_is_set_is_the_topics_own(run):
    run("topic", "create", "t")
    assert "(default)" in run("topic", "alter", "t", "--set", "segment.ms=7d").stdout
    assert configs_of(run, "t") == {"segment.ms": "604800000"}


def test_old_names_are_altered_with_a_note(run):
    run("topic", "create", "t")
    altered = run("topic", "alter", "t", "--set", "topic.cleanup.policy=dedupe")
    assert altered.stderr.count("note: ") == 2
    assert configs_of(run, "t") == {"cleanup.policy": "compact"}
    altered = run("topic", "alter", "t", "--unset", "topic.cleanup.policy")
    assert "note: topic.cleanup.policy is the old name of cleanup.policy" in altered.stderr
    assert configs_of(run, "t") == {}


def test_alteration_warns_of_tombstones_that_go_too_early(run):
    run("topic", "create", "t", "--config", "max.compaction.lag.ms=1m")
    altered = run("topic", "alter", "t", "--set", "compaction.strategy=timestamp")
    assert "segment.ms 604800000 is not below delete.retention.ms 86400000" in altered.stderr
    altered = run("topic", "alter", "t", "--set", "segment.ms=1h")
    assert altered.stderr == ""


def test_adopted_topic_is_stored_by_an_alteration(run, golden):
    directory = golden("segments")
    shared = ("--data-dir", directory)
    logs = {path: path.read_bytes() for path in (directory / "golden-0").glob("*.log")}
    altered = run("topic", "alter", "golden", "--set", "cleanup.policy=compact", *shared)
    assert "note: topic golden was adopted" in altered.stderr
    [found] = run("topic", "list", *shared, "--format", "jsonl").jsonl
    assert (found["adopted"], found["configs"]) == (False, {"cleanup.policy": "compact"})
    assert {path: path.read_bytes() for path in logs} == logs


@pytest.mark.parametrize(
    ("arguments", "message"),
    (
        ((), "give --set K=V or --unset K"),
        (("--set", "segment.ms"), "is not KEY=VALUE"),
        (("--set", "segment.mss=1"), "nearest is 'segment.ms'"),
        (("--unset", "segment.mss"), "nearest is 'segment.ms'"),
        (("--set", "segment.ms=1", "--set", "retention.ms=-2"), "INVALID_CONFIG"),
        (("--set", "segment.ms=1", "--unset", "segment.ms"), "cannot be set and unset"),
        (("--set", "max.compaction.lag.ms=1", "--set", "min.compaction.lag.ms=2"), "below"),
    ),
)
def test_refused_alteration_changes_nothing(run, data_dir, arguments, message):
    run("topic", "create", "t", "--config", "segment.bytes=200")
    refused = run("topic", "alter", "t", *arguments, code=2)
    assert message in refused.stderr
    assert refused.stdout == ""
    assert configs_of(run, "t") == {"segment.bytes": "200"}


# -- delete --------------------------------------------------------------------------------


def test_deleted_topic_leaves_no_files_and_its_name_is_free(run, data_dir):
    run("topic", "create", "keep")
    run("topic", "create", "t", "--partitions", 2)
    run("append", "t", "--partition", 1, input=lines({"value": "v"}))
    run("roll", "t", "--partition", 1)
    assert run("topic", "delete", "t").stdout == "deleted topic t: 2 partitions, 3 segments, 69 B\n"
    names = {path.name for path in data_dir.iterdir()}
    assert {name for name in names if "-" in name and "offset" not in name} == {
        "keep-0",
        "logstore-topics.json",
    }
    assert "t 0" not in (data_dir / "recovery-point-offset-checkpoint").read_text()
    assert "unknown topic 't'" in run("topic", "describe", "t", code=2).stderr
    run("topic", "create", "t")
    assert run("offsets", "t", "--format", "json").json["offsets"][0]["offset"] == 0


def test_json_of_delete(run):
    run("topic", "create", "t", "--config", "segment.ms=5")
    deleted = run("topic", "delete", "t", "--format", "json").json
    assert len(deleted.pop("id")) == 22
    assert deleted == {
        "name": "t",
        "partitions": 1,
        "configs": {"segment.ms": "5"},
        "partition_numbers": [0],
        "adopted": False,
        "segments": 1,
        "size_bytes": 0,
    }


def test_adopted_topic_is_deleted_when_a_command_asks(run, golden):
    directory = golden("segments")
    size = sum(path.stat().st_size for path in (directory / "golden-0").glob("*.log"))
    deleted = run("topic", "delete", "golden", "--data-dir", directory, "--format", "json").json
    assert (deleted["adopted"], deleted["size_bytes"]) == (True, size)
    assert not (directory / "golden-0").exists()
    assert run("topic", "list", "--data-dir", directory).stdout == "no topics\n"


def test_topic_whose_data_are_damaged_can_be_deleted(run, data_dir):
    run("append", "t", "--create", input=lines({"value": "v"}))
    (data_dir / "t-0" / f"{0:020}.log").write_bytes(b"\0" * 16 + b"\1" * 99)
    assert "t: 1 partition, 1 segment, 115 B" in run("topic", "delete", "t").stdout
    assert not (data_dir / "t-0").exists()


def test_unknown_topic_is_not_deleted(run, golden):
    directory = golden("segments")
    refused = run("topic", "delete", "goldn", "--data-dir", directory, code=2)
    assert "did you mean golden?" in refused.stderr
    assert (directory / "golden-0").is_dir()


def test_keys_without_effect_are_stored_and_described_with_a_note(run):
    configs = {
        "message.format.version": "2.8",
        "message.downconversion.enable": "false",
        "remote.storage.enable": "false",
        "leader.replication.throttled.replicas": "0:1,0:2",
    }
    options = [part for item in configs.items() for part in ("--config", "=".join(item))]
    run("topic", "create", "t", *options)
    described = run("topic", "describe", "t", "--format", "json").json["configs"]
    assert {key: described[key]["value"] for key in configs} == configs
    assert "Stored and described, but has no effect here" in " ".join(
        run("topic", "describe", "t").stdout.split()
    )
    refused = run("topic", "alter", "t", "--set", "remote.storage.enable=true", code=2)
    assert "tiered storage is not supported" in refused.stderr
