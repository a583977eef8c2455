"""`logstore stats`: exact statistics of a partition."""

from __future__ import annotations

import base64

import pytest

from tests.cli.conftest import lines

JAN_1 = 1_704_067_200_000
DAY_MS = 86_400_000


@pytest.fixture
def users(run):
    """Twelve records of three keys, one of them deleted, one of no text, over two days."""
    run("topic", "create", "users", "--config", "segment.bytes=250", "--now", JAN_1)
    for number in range(6):
        item = {"key": "ann", "value": "v" * number}
        run("append", "users", "--now", JAN_1, input=lines(item))
    for value in ("x", None):
        run("append", "users", "--now", JAN_1 + DAY_MS, input=lines({"key": "bob", "value": value}))
    many = [{"key_base64": base64.b64encode(b"\xff").decode(), "value": "w" * 99}] * 3
    run("append", "users", "--compression", "gzip", "--now", JAN_1, input="".join(map(lines, many)))
    run(
        "append",
        "users",
        "--now",
        JAN_1,
        input=lines({"value": "keyless", "headers": [["h", "1"]]}),
    )
    return "users"


def test_the_numbers_are_exact(run, users, data_dir):
    found = run("stats", users, "--format", "json", "--top", 2).json
    assert {"topic": "users", "partition": 0}.items() <= found.items()
    [same] = found.pop("partitions")
    assert found.pop("summary")["bytes"] == found["bytes"]
    assert same == found == run("stats", "users-0", "--format", "json", "--top", 2).json
    assert (found["records"], found["live_records"], found["dead_records"]) == (12, 3, 9)
    assert (found["tombstones"], found["live_keys"], found["distinct_keys"]) == (1, 2, 3)
    assert found["dead"] == {
        **dict.fromkeys(("aborted", "open_transaction", "unstable"), 0),
        **dict.fromkeys(("control", "below_log_start"), 0),
        "superseded": 8,
        "tombstone": 1,
    }
    assert found["keyless_records"] == 1
    assert found["bytes"] == sum(path.stat().st_size for path in data_dir.glob("users-0/*.log"))
    assert [(key["key"], key["records"]) for key in found["top_keys"][:1]] == [("ann", 6)]
    assert found["top_keys"][1]["key_base64"] == "/w=="
    assert found["top_keys_by_bytes"][0]["key_base64"] == "/w=="
    assert found["headers"] == [{"name": "h", "records": 1}]
    assert {each["codec"]: each["records"] for each in found["codecs"]} == {"none": 9, "gzip": 3}
    assert [(each["day"], each["records"]) for each in found["days"]] == [
        ("2024-01-01", 10),
        ("2024-01-02", 2),
    ]
    assert sum(each["live_records"] for each in found["segments"]) == 3
    assert found["value_sizes"]["max"] == 99
    assert found["value_sizes"]["nulls"] == 1


def test_several_partitions_are_a_list(run, users):
    run("topic", "create", "other")
    found = run("stats", "--format", "json").json["partitions"]
    assert [each["topic"] for each in found] == ["other", "users"]
    assert [each["records"] for each in run("stats", "--format", "jsonl").jsonl] == [0, 12]


def test_a_path_is_accepted_and_its_assumptions_are_listed(run, users, data_dir, tmp_path):
    (data_dir / "users-0").rename(tmp_path / "users-0")
    found = run("stats", f"{tmp_path}/users-0", "--format", "json").json
    assert found["records"] == 12
    assert any("--config" in text for text in found["assumed"])


def test_a_strategy_decides_what_lives(run):
    run("topic", "create", "t", "--now", JAN_1)
    for timestamp in (JAN_1 + 5, JAN_1):
        item = {"key": "k", "value": "v", "timestamp": timestamp}
        run("append", "t", "--now", JAN_1, "--batch-records", 1, input=lines(item))
    run("roll", "t")
    for config, lives in (((), 1), (("--config", "compaction.strategy=timestamp"), 1)):
        found = run("stats", "t", *config, "--format", "json").json
        assert found["live_records"] == lives


def test_the_table_has_bars(run, users):
    text = run("stats", users).stdout
    assert text.startswith("users-0 ")
    assert "\n12 records in 12 batches" in text
    assert "█" in text
    assert "3 keys, of which 2 live; 1 tombstone; 1 record without a key" in text
    assert "2024-01-02" in text


def test_damage_is_skipped_and_named(run, users, data_dir):
    path = sorted((data_dir / "users-0").glob("*.log"))[0]
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    found = run("stats", users, "--format", "json", code=1).json
    assert path.name in found["damages"][0]
    assert found["records"] == 11
    assert "damaged: " in run("stats", users, code=1).stdout


def test_top_keys_of_equal_size_are_in_the_order_of_their_first_offset(run):
    run("topic", "create", "t", "--now", JAN_1)
    for key in ("c", "a", "b"):
        run("append", "t", "--now", JAN_1, input=lines({"key": key, "value": "v"}))
    found = run("stats", "t", "--format", "json", "--top", 2).json
    assert [each["key"] for each in found["top_keys"]] == ["c", "a"]
    assert [each["key"] for each in found["top_keys_by_bytes"]] == ["c", "a"]


def test_a_terminal_obeys_no_name(run, data_dir):
    """Neither a header's nor a folder's, which a warning names."""
    item = {"key": "k", "value": "v", "headers": [["\x1b]0;title\x07", "x"]]}
    run("append", "t", "--create", input=lines(item))
    (data_dir / "odd\x1b[2Jname").mkdir()
    found = run("stats", "t")
    assert "\x1b" not in found.stdout + found.stderr
    assert "\\x1b]0;title\\x07" in found.stdout
    assert "odd\\x1b[2Jname" in found.stderr
    assert run("stats", "t", "--format", "json").json["headers"][0]["name"] == "\x1b]0;title\x07"


@pytest.mark.parametrize("keys", (("b", "a"), ("a", "b")))
def test_equal_keys_are_ordered_by_the_offsets_of_their_winners(run, keys):
    """Both by records and by bytes, for any keys."""
    first, second = keys
    order = (first, second, second, first)  # so the second one's winner comes first
    items = ({"key": key, "value": "v"} for key in order)
    run("append", "t", "--create", "--batch-records", 1, input=lines(*items))
    found = run("stats", "t", "--format", "json").json
    for name in ("top_keys", "top_keys_by_bytes"):
        assert [each["key"] for each in found[name]] == [second, first]
        assert len({(each["records"], each["bytes"]) for each in found[name]}) == 1
