from __future__ import annotations

import json
import random

import pytest

from logstore.clients.partitioner import murmur2
from tests.cli.conftest import lines

NOW = ("--now", "2024-01-01")
NOW_MS = 1_704_067_200_000


def values(run, topic="t", *more):
    return [(r["key"], r["value"]) for r in run("read", topic, "--format", "jsonl", *more).jsonl]


def test_report_and_records(run):
    done = run(
        "append",
        "t",
        "--create",
        *("--format", "json"),
        *NOW,
        input=lines({"key": "1", "value": "ann"}, {"key": "2", "value": None, "timestamp": 5}),
    )
    [appended] = done.json["appended"]
    assert appended.pop("bytes") > 0
    assert appended == {
        "topic": "t",
        "partition": 0,
        "first_offset": 0,
        "last_offset": 1,
        "records": 2,
    }
    assert done.json["skipped"] == 0
    first, second = run("read", "t", "--format", "json").json["records"]
    assert (first["timestamp"], second["timestamp"]) == (NOW_MS, 5)
    assert (second["key"], second["value"]) == ("2", None)


def test_reads_a_file(run, tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text(lines({"value": "a"}, {"value": "b"}))
    assert "2 records at offsets 0-1" in run("append", "t", path, "--create").stdout
    assert values(run) == [(None, "a"), (None, "b")]


def test_jsonl_report_is_a_line_a_partition(run):
    run("topic", "create", "t", "--partitions", 2)
    done = run(
        "append",
        "t",
        *("--format", "jsonl"),
        input=lines({"value": "a", "partition": 1}, {"value": "b", "partition": 0}),
    )
    assert [item["partition"] for item in done.jsonl] == [0, 1]


def test_topic_must_exist_unless_created(run, data_dir):
    data_dir.mkdir()
    refused = run("append", "t", input=lines({"value": "a"}), code=2)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in refused.stderr


def test_malformed_line_ends_the_run_after_the_lines_before_it(run):
    text = '{"value": "a"}\n\n{"value": "b"}\nnonsense\n{"value": "c"}\n'
    done = run("append", "t", "--create", "--format", "json", input=text, code=1)
    assert done.json["appended"][0]["records"] == 2
    assert done.stderr.startswith("error: line 4: not JSON")
    assert values(run) == [(None, "a"), (None, "b")]


def test_malformed_lines_are_skipped_on_request(run):
    text = 'nonsense\n{"value": "a"}\n{"key": "k"}\n{"value": "b"}\n'
    done = run("append", "t", "--create", "--skip-invalid", "--format", "json", input=text)
    assert done.json["skipped"] == 2
    assert values(run) == [(None, "a"), (None, "b")]
    told = run("append", "t", "--skip-invalid", "--format", "jsonl", input="x\n")
    assert (told.stdout, told.stderr) == ("", "note: 1 line skipped\n")
    assert "1 line skipped" in run("append", "t", "--skip-invalid", input="x\n").stdout


def test_record_that_the_topic_refuses_has_its_line_named(run):
    run("topic", "create", "t", "--config", "cleanup.policy=compact")
    text = lines({"key": "a", "value": "1"}, {"value": "2"}, {"key": "b", "value": "3"})
    done = run("append", "t", "--format", "json", input=text, code=1)
    assert done.json["appended"][0]["records"] == 1
    assert "line 2: " in done.stderr
    assert "INVALID_RECORD" in done.stderr
    done = run("append", "t", "--format", "json", "--skip-invalid", input=text)
    assert (done.json["appended"][0]["records"], done.json["skipped"]) == (2, 1)


def test_timestamp_out_of_the_topic_s_bounds_has_its_line_named(run):
    run("topic", "create", "t", "--config", "message.timestamp.before.max.ms=1h")
    text = lines({"value": "now"}, {"value": "old", "timestamp": NOW_MS - 3_600_001})
    done = run("append", "t", *NOW, input=text, code=1)
    assert "line 2: Timestamp" in done.stderr
    assert "INVALID_TIMESTAMP" in done.stderr
    assert values(run) == [(None, "now")]


def test_record_too_large_has_its_line_named(run):
    run("topic", "create", "t", "--config", "max.message.bytes=1000")
    text = lines({"value": "a"}, {"value": "x" * 2000}, {"value": "b"})
    done = run("append", "t", input=text, code=1)
    assert "line 2: " in done.stderr
    assert "MESSAGE_TOO_LARGE" in done.stderr
    done = run("append", "t", "--skip-invalid", "--format", "json", input=text)
    assert done.json["skipped"] == 1
    assert [value for _, value in values(run)] == ["a", "a", "b"]


def test_batches_stay_within_the_topics_limits(run):
    run("topic", "create", "t", "--config", "max.message.bytes=500")
    run("topic", "create", "u", "--config", "segment.bytes=500")
    text = lines(*({"value": "x" * 50} for _ in range(100)))
    for topic in ("t", "u"):
        done = run("append", topic, "--format", "json", "--batch-records", 1000, input=text)
        assert done.json["appended"][0]["records"] == 100


def test_tsv(run):
    text = b"k\tv\n\\N\t\n\t\\N\n\na\tb\tc\r\n"
    run("append", "t", "--create", "--input-format", "tsv", input=text)
    assert values(run) == [("k", "v"), (None, ""), ("", None), ("a", "b\tc")]
    done = run("append", "t", "--input-format", "tsv", input="x\ty\nno tab\n", code=1)
    assert "line 2: no tab" in done.stderr


def test_json_values(run):
    text = '{"key": 1, "value": {"a": [1, 2]}}\n{"key": "s", "value": "plain"}\n'
    run("append", "t", "--create", "--json-values", input=text)
    assert values(run) == [("1", '{"a":[1,2]}'), ("s", "plain")]


def test_partition_is_the_line_s_then_the_option_s_then_the_key_s(run):
    run("topic", "create", "t", "--partitions", 4)
    keys = [f"key-{number}" for number in range(20)]
    run("append", "t", input=lines(*({"key": key, "value": "hash"} for key in keys)))
    run(
        "append",
        "t",
        *("--partition", 2),
        input=lines({"key": "a", "value": "option"}, {"value": "line", "partition": 1}),
    )
    found = run("read", "t", "--format", "jsonl").jsonl
    for record in found:
        if record["value"] == "hash":
            assert record["partition"] == (murmur2(record["key"].encode()) & 0x7FFFFFFF) % 4
    assert {r["value"]: r["partition"] for r in found if r["value"] != "hash"} == {
        "option": 2,
        "line": 1,
    }


def test_records_without_key_go_round_robin_a_batch(run):
    run("topic", "create", "t", "--partitions", 3)
    run("append", "t", "--batch-records", 2, input=lines(*({"value": str(n)} for n in range(7))))
    found = run("read", "t", "--format", "jsonl").jsonl
    assert [(r["partition"], r["value"]) for r in found] == [
        *((0, "0"), (0, "1"), (0, "6")),
        *((1, "2"), (1, "3")),
        *((2, "4"), (2, "5")),
    ]


def test_unknown_partition_is_refused(run):
    run("topic", "create", "t", "--partitions", 2)
    refused = run("append", "t", "--partition", 2, input=lines({"value": "a"}), code=2)
    assert "has no partition 2" in refused.stderr
    done = run("append", "t", input=lines({"value": "a"}, {"value": "b", "partition": 9}), code=1)
    assert "line 2: topic 't' has no partition 9" in done.stderr
    assert values(run) == [(None, "a")]


def test_create_makes_the_partitions_that_lines_name(run):
    text = lines({"value": "a", "partition": 0}, {"value": "b", "partition": 3})
    run("append", "t", "--create", input=text)
    [topic] = run("topic", "list", "--format", "jsonl").jsonl
    assert topic["partitions"] == 4
    run("append", "u", "--create", "--partition", 1, input=lines({"value": "a"}))
    assert run("topic", "list", "--format", "jsonl").jsonl[1]["partitions"] == 2
    # An existing topic is left as it is, and a slip of the pen makes no millions of folders.
    run("append", "t", "--create", input=lines({"value": "a", "partition": 4}), code=1)
    run("append", "v", "--create", input=lines({"value": "a", "partition": 10**9}), code=1)


def test_config_is_for_this_run_or_the_created_topic(run):
    made = ("--config", "cleanup.policy=compact")
    run("append", "t", "--create", *made, input=lines({"key": "k", "value": "a"}))
    configs = run("topic", "describe", "t", "--format", "json").json["configs"]
    assert configs["cleanup.policy"]["origin"] == "topic"
    run("append", "t", input=lines({"value": "no key"}), code=1)
    run("append", "t", "--config", "cleanup.policy=delete", input=lines({"value": "no key"}))
    configs = run("topic", "describe", "t", "--format", "json").json["configs"]
    assert configs["cleanup.policy"]["value"] == "compact"


@pytest.mark.parametrize("codec", ("none", "gzip", "snappy", "lz4", "zstd"))
def test_compression(run, codec):
    text = lines(*({"key": str(n), "value": "x" * 50} for n in range(200)))
    run("append", "t", "--create", "--compression", codec, "--batch-records", 100, input=text)
    batches = run("inspect", "t", "--batches", "--format", "jsonl").jsonl
    assert [(b["compresscodec"], b["count"]) for b in batches] == [(codec, 100)] * 2


def test_round_trip_of_everything_a_record_can_hold(run):
    randomness = random.Random(7)
    items = []
    for number in range(300):
        item = {"timestamp": randomness.randrange(-1, 2**40)}
        for name in ("key", "value"):
            match randomness.randrange(3):
                case 0:
                    item[name] = None
                case 1:
                    item[name] = randomness.choice(["", "ä\u2028\x00\x1b", "x" * number])
                case 2:
                    item[f"{name}_base64"] = "/w=="
        item["headers"] = [["h", "1"], ["h", None], [{"base64": "/w=="}, {"base64": "gA=="}]][
            : randomness.randrange(4)
        ]
        item["partition"] = randomness.randrange(3)
        items.append(item)
    run("append", "a", "--create", input=lines(*items))
    first = run("read", "a", "--format", "jsonl")
    run("append", "b", "--create", "--batch-records", 7, input=first.stdout)
    second = run("read", "b", "--format", "jsonl")
    assert second.stdout == first.stdout.replace('"topic": "a"', '"topic": "b"')
    assert [item["partition"] for item in first.jsonl] == sorted(i["partition"] for i in items)
    assert all(json.dumps(item) for item in first.jsonl)


def test_long_batches_go_through_the_kernels_and_read_the_same(run):
    items = [{"key": str(n), "value": None if n % 5 == 0 else "v" * (n % 90)} for n in range(5000)]
    run("append", "t", "--create", input=lines(*items))
    assert values(run) == [(item["key"], item["value"]) for item in items]


def test_nothing_appended(run):
    assert run("append", "t", "--create", input="\n").stdout == "nothing appended\n"
    assert run("append", "t", "--format", "json", input="").json == {"appended": [], "skipped": 0}


def test_missing_file_is_wrong_usage(run, tmp_path):
    refused = run("append", "t", tmp_path / "none.jsonl", code=2)
    assert "none.jsonl" in refused.stderr
