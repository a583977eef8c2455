from __future__ import annotations

import itertools
import json
import shutil
import struct

import pytest

from logstore.errors import CorruptRecordError
from logstore.record.walk import batch_totals, walk_headers
from logstore.runtime import DiskFileSystem, ReadOnlyFileSystem
from tests.cli.conftest import GOLDEN, lines, tree_hash

CASES = (
    "codec-none",
    "codec-gzip",
    "segments",
    "log-append-time",
    "idempotent",
    "transactions",
    "holes",
)
PARTITION = [
    *("topic", "partition", "log_start_offset", "log_end_offset", "high_watermark"),
    *("last_stable_offset", "first_dirty_offset", "first_uncleanable_offset", "cleanable_ratio"),
    *("records", "live_keys", "tombstones", "recovery", "segments"),
]
SEGMENT = [
    *("base_offset", "last_offset", "size_bytes", "batches", "records", "max_timestamp"),
    "section",
]
BATCH = [
    *("baseOffset", "lastOffset", "count", "baseSequence", "lastSequence", "producerId"),
    *("producerEpoch", "partitionLeaderEpoch", "isTransactional", "isControl"),
    *("deleteHorizonMs", "position", "timestampType", "maxTimestamp", "size", "magic"),
    *("compresscodec", "crc", "isvalid"),
]


def manifest(case):
    return json.loads((GOLDEN / case / "manifest.json").read_text())


@pytest.mark.parametrize("case", CASES)
def test_partition_s_numbers_are_kafka_s(run, case):
    found = run("inspect", GOLDEN / case / "data" / "golden-0", "--format", "json").json
    wanted = manifest(case)
    assert list(found)[: len(PARTITION)] == PARTITION
    for name in ("log_start_offset", "log_end_offset", "last_stable_offset"):
        assert found[name] == wanted[name]
    assert found["high_watermark"] == wanted["log_end_offset"]
    assert [[s["base_offset"], s["size_bytes"]] for s in found["segments"]] == wanted["segments"]
    assert all(list(segment) == SEGMENT for segment in found["segments"])
    assert found["recovery"] == []
    assert (found["live_keys"], found["tombstones"]) == (None, None)


@pytest.mark.parametrize("case", CASES)
def test_batches_are_those_that_kafka_lists(run, case):
    found = run(
        "inspect",
        *("golden", "--partition", 0),
        *("--data-dir", GOLDEN / case / "data"),
        *("--batches", "--format", "jsonl"),
    ).jsonl
    for batch in found:
        assert list(batch)[: len(BATCH)] == BATCH
        batch["timestampType"] = ("CreateTime", "LogAppendTime").index(batch["timestampType"])
        del batch["topic"], batch["partition"]
    wanted = [json.loads(line) for line in (GOLDEN / case / "batches.jsonl").open()]
    assert found == wanted


@pytest.mark.parametrize("case", CASES)
def test_records_include_control_records_and_their_positions(run, case):
    path = GOLDEN / case / "data" / "golden-0"
    found = run("inspect", path, "--records", "--format", "jsonl").jsonl
    wanted = [json.loads(line) for line in (GOLDEN / case / "records.jsonl").open()]
    names = ("offset", "timestamp", "timestamp_type", "batch_base_offset", "is_control")
    assert [[r[n] for n in names] for r in found] == [[r[n] for n in names] for r in wanted]
    batches = run("inspect", path, "--batches", "--format", "jsonl").jsonl
    positions = {batch["baseOffset"]: batch["position"] for batch in batches}
    assert all(r["position"] == positions[r["batch_base_offset"]] for r in found)


def test_sections_follow_checkpoint_and_active_segment(run):
    found = run("inspect", GOLDEN / "clean-segments" / "before" / "data" / "golden-0").stdout
    assert "dirty" in found
    document = run(
        "inspect", GOLDEN / "clean-segments" / "after" / "data" / "golden-0", "--format", "json"
    ).json
    sections = [segment["section"] for segment in document["segments"]]
    assert set(sections[:-1]) == {"clean"}
    assert sections[-1] == "active"
    assert document["cleanable_ratio"] == 0


def test_records_after_an_open_transaction_are_uncleanable(run, golden):
    directory = golden("transactions")
    run("roll", "golden", "--data-dir", directory)
    found = run("inspect", "golden", "--partition", 0, "--data-dir", directory, "--format", "json")
    sections = [(s["base_offset"], s["section"]) for s in found.json["segments"]]
    assert sections == [
        (0, "dirty"),
        (15, "dirty"),
        (30, "dirty"),
        (45, "uncleanable"),
        (53, "active"),
    ]
    assert found.json["segments"][-1]["last_offset"] == 52


def test_deep_counts_live_keys_and_tombstones(run):
    items = [
        ("a", "1"),
        ("b", "1"),
        ("a", None),
        ("c", None),
        (None, "x"),
        ("c", "2"),
        (None, None),
    ]
    run("append", "t", "--create", input=lines(*({"key": k, "value": v} for k, v in items)))
    found = run("inspect", "t", "--deep", "--format", "json").json
    assert (found["live_keys"], found["tombstones"]) == (2, 3)
    assert (found["records"], found["log_end_offset"]) == (7, 7)
    assert "live keys" in run("inspect", "--deep").stdout


def test_shapes_of_json(run):
    run("topic", "create", "one")
    run("topic", "create", "two", "--partitions", 2)
    everything = run("inspect", "--format", "json").json
    assert [f"{p['topic']}-{p['partition']}" for p in everything["partitions"]] == [
        "one-0",
        "two-0",
        "two-1",
    ]
    partition = run("inspect", "two", "--partition", 1, "--format", "json").json
    assert partition == everything["partitions"][2]
    assert run("inspect", "two-1", "--format", "json").json == partition
    assert everything["summary"]["partitions"] == 3
    two = run("inspect", "two", "--format", "json").json
    assert two["partitions"] == everything["partitions"][1:]
    assert two["summary"]["partitions"] == two["summary"]["not_compacted"] == 2
    # The only partition of a topic is found either way.
    only = run("inspect", "one", "--format", "json").json
    assert only.pop("summary")["partitions"] == 1
    assert only == {**everything["partitions"][0], "partitions": everything["partitions"][:1]}
    assert run("inspect", "--format", "jsonl").jsonl == everything["partitions"]


def test_topic_wins_over_path_and_path_over_nothing(run, data_dir, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("append", "t-0", "--create", input=lines({"value": "topic"}))
    shutil.copytree(GOLDEN / "segments" / "data" / "golden-0", tmp_path / "t-0")
    assert run("inspect", "t-0", "--format", "json").json["records"] == 1
    assert run("inspect", "./t-0", "--format", "json").json["records"] == 300
    assert run("inspect", tmp_path / "t-0" / "", "--format", "json").json["records"] == 300
    monkeypatch.chdir(tmp_path / "t-0")
    assert run("inspect", ".", "--format", "json").json["records"] == 300
    for command, place in itertools.product(("clean", "retain"), (".", "..", "../t-0")):
        refused = run(command, place, code=2).stderr
        assert f"{place} is a path, but this command changes topics" in refused
    monkeypatch.chdir(GOLDEN / "segments" / "data")
    assert run("inspect", "golden-0", "--format", "json").json["records"] == 300


def test_path_needs_no_data_directory(run, golden, monkeypatch):
    monkeypatch.chdir(golden("segments"))
    assert run("inspect", "golden-0", "--format", "json").json["log_start_offset"] == 45
    assert "partitions" in run("inspect", ".", "--format", "json").json


def test_file_lists_its_batches_or_records(run, tmp_path):
    path = GOLDEN / "segments" / "data" / "golden-0" / f"{0:020}.log"
    batches = run("inspect", path, "--format", "jsonl").jsonl
    assert [batch["segment"] for batch in batches] == [0] * 17
    assert "segment" in run("inspect", path).stdout
    assert len(run("inspect", path, "--records", "--format", "json").json["records"]) == 41
    assert "v" in run("inspect", path, "--records").stdout
    loose = tmp_path / "some.log.deleted"
    loose.write_bytes(path.read_bytes() + b"torn tail of a crash")
    found = run("inspect", loose, "--format", "json")
    assert found.json["batches"][0]["segment"] is None
    assert "20 bytes after the last whole batch" in found.stderr
    record = run("inspect", loose, "--records", "--format", "jsonl").jsonl[0]
    assert (record["topic"], record["partition"]) == (None, None)


def test_batch_with_a_bad_crc_is_listed_as_invalid(run, golden):
    directory = golden("segments")
    path = directory / "golden-0" / f"{83:020}.log"
    data = bytearray(path.read_bytes())
    data[61] ^= 1
    path.write_bytes(data)
    listed = run("inspect", path, "--format", "jsonl", code=1)
    assert [batch["isvalid"] for batch in listed.jsonl] == [False] + [True] * 16
    assert listed.stderr.startswith(f"damage: {path}: ")
    assert "BAD CRC" in run("inspect", path, code=1).stdout
    records = run("inspect", path, "--records", "--format", "json", code=1).json
    assert [record["offset"] for record in records["records"]] == list(range(86, 126))
    assert [damage["position"] for damage in records["damages"]] == [0]
    # Headers are walked, and this one is sound.
    assert run("inspect", directory / "golden-0", "--format", "json").json["damages"] == []
    deep = run("inspect", directory / "golden-0", "--deep", "--format", "json", code=1).json
    assert (deep["records"], deep["live_keys"]) == (297, 40)
    assert deep["recovery"] == []
    assert deep["damages"] == [
        {
            "path": str(path),
            "position": 0,
            "size_bytes": 130,
            "check": "crc",
            "last_offset_before": 82,
            "first_offset_after": 86,
            "is_mended": False,
            "later_records": 214,
        }
    ]
    assert "Damage" in run("inspect", directory / "golden-0", "--deep", code=1).stdout


def test_damage_that_ends_the_walk_is_named_and_hides_nothing(run, golden):
    directory = golden("segments")
    path = directory / "golden-0" / f"{126:020}.log"
    data = bytearray(path.read_bytes())
    data[16] = 9
    path.write_bytes(data)
    found = run("inspect", directory / "golden-0", "--format", "json", code=1).json
    [damage] = found["damages"]
    assert (damage["check"], damage["position"], damage["is_mended"]) == ("magic", 0, True)
    assert [s["batches"] for s in found["segments"]] == [17, 17, 17, 17, 17, 17, 16, 2]
    recovered = run("inspect", directory / "golden-0", "--as-recovered", "--format", "json", code=1)
    [finding] = recovered.json["recovery"]
    assert finding["action"] == "corrupt_batch"
    assert "magic 9" in finding["detail"]
    assert [s["batches"] for s in recovered.json["segments"]] == [17, 17, 17, 0, 17, 17, 16, 2]


def test_partition_that_cannot_be_opened_does_not_hide_others(run, data_dir):
    run("append", "bad", "--create", input=lines({"value": "x"}))
    run("append", "good", "--create", input=lines({"value": "x"}))
    good = run("inspect", "good", "--partition", 0, "--format", "json").json
    with (data_dir / "bad-0" / f"{0:020}.log").open("r+b") as file:
        file.seek(16)
        file.write(b"\x09")
    found = run("inspect", "--as-recovered", "--format", "json", code=1)
    assert found.json["partitions"] == [
        good,
        {"topic": "bad", "partition": 0, "error": "CORRUPT_MESSAGE"},
    ]
    assert found.stderr.startswith("error: bad-0: ")
    assert "good-0" in run("inspect", "--as-recovered", code=1).stdout
    run("inspect", "bad-0", "--as-recovered", code=1)
    bad, other = run("inspect", "--format", "json", code=1).json["partitions"]
    assert (other, bad["records"], len(bad["damages"])) == (good, 1, 1)


def test_recovery_is_reported_and_not_performed(run, golden):
    directory = golden("segments")
    partition = directory / "golden-0"
    (directory / ".kafka_cleanshutdown").unlink()
    with (partition / f"{293:020}.log").open("ab") as file:
        file.write(b"\0" * 30)
    (partition / f"{83:020}.index").unlink()
    (partition / f"{0:020}.log.deleted").write_bytes(b"x")
    found = run("inspect", partition, "--format", "json")
    actions = {finding["action"] for finding in found.json["recovery"]}
    assert actions == {"truncated_tail", "rebuilt_index", "removed_leftover"}
    assert all({"action", "path", "detail"} == f.keys() for f in found.json["recovery"])
    assert found.stderr == ""
    assert found.json["log_end_offset"] == 300
    text = run("inspect", partition).stdout
    assert "Recovery: repairs on opening for writing" in text
    assert "truncated_tail" in text


def test_many_segments_are_shortened_in_the_table_only(run):
    run("topic", "create", "t", "--config", "segment.bytes=100")
    run("append", "t", "--batch-records", 1, input=lines(*({"value": "x"} for _ in range(60))))
    assert len(run("inspect", "t", "--format", "json").json["segments"]) == 60
    assert "20 segments more" in run("inspect", "t").stdout


def test_empty_data_directory(run, data_dir):
    data_dir.mkdir()
    assert run("inspect").stdout == "no partitions\n"
    assert run("inspect", "--format", "json").json["partitions"] == []


def test_empty_partition(run):
    run("topic", "create", "t")
    [segment] = run("inspect", "t", "--format", "json").json["segments"]
    assert segment == {
        "base_offset": 0,
        "last_offset": -1,
        "size_bytes": 0,
        "batches": 0,
        "records": 0,
        "max_timestamp": -1,
        "section": "active",
    }
    assert "no data" in run("inspect", "t").stdout
    assert run("inspect", "t", "--batches").stdout == "nothing to show\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    (
        (("userz",), "unknown topic 'userz'"),
        (("./none",), "no such file or directory"),
        (("t", "--partition", "3"), "has no partition 3"),
        (("--partition", "0"), "--partition needs a topic"),
        (("./", "--partition", "0"), "--partition needs a topic"),
        (("t", "--batches", "--records"), "are mutually exclusive"),
        (("/",), "is not a partition directory (TOPIC-NUMBER) and contains none"),
        ((__file__,), "neither a .log file nor a Raft snapshot"),
    ),
)
def test_wrong_usage(run, arguments, message):
    run("topic", "create", "t")
    refused = run("inspect", *arguments, code=2)
    assert message in refused.stderr
    assert refused.stdout == ""


@pytest.mark.parametrize("operation", ("is_dir", "list_dir"))
def test_a_folder_that_is_moved_away_is_not_mistaken_for_a_file(
    run, golden, monkeypatch, operation
):
    """Another process renames the folder just before the command uses it."""
    folder = golden("segments") / "golden-0"
    original = getattr(ReadOnlyFileSystem, operation)

    def move_first(fs, path):
        if path == str(folder) and folder.exists():
            folder.rename(folder.with_name("moved"))
        return original(fs, path)

    monkeypatch.setattr(ReadOnlyFileSystem, operation, move_first)
    assert run("inspect", folder, code=2).stderr == (
        f"error: {folder}: no such file or directory (see: logstore inspect --help)\n"
    )


def test_missing_data_directory_is_wrong_usage(run):
    assert "does not exist" in run("inspect", code=2).stderr


@pytest.mark.parametrize(
    "path", sorted(GOLDEN.glob("*/data/golden-0/*.log")), ids=lambda p: f"{p.parts[-4]}-{p.stem}"
)
def test_fast_totals_agree_with_the_walk(path):
    file = DiskFileSystem().open(str(path))
    walked = list(walk_headers(file, str(path)))
    totals = batch_totals(file, str(path))
    assert totals.batches == len(walked)
    assert totals.records == sum(at.header.record_count for at in walked)
    if walked:
        assert totals.last_offset == walked[-1].header.last_offset
        assert totals.max_timestamp == max(at.header.max_timestamp for at in walked)
        assert totals.end_position == walked[-1].end_position
    horizons = [at.header.base_timestamp for at in walked if at.header.has_delete_horizon]
    assert totals.delete_horizon_ms == min(horizons, default=None)
    for end in {at.end_position for at in (*walked[:1], *walked[len(walked) // 2 :][:1])}:
        assert batch_totals(file, str(path), start=batch_totals(file, str(path), end)) == totals


@pytest.mark.parametrize("sent", (0, 16_711_683, -5, 2**31 - 1))
def test_a_damaged_count_is_limited_by_the_size_of_its_batch(run, golden, sent):
    """A walk over headers does not compute the CRC, which covers the count."""
    directory = golden("segments")
    log = directory / "golden-0" / f"{0:020}.log"
    sound = json.loads(run("inspect", directory, "--format", "json").stdout)["partitions"][0]
    data = bytearray(log.read_bytes())
    struct.pack_into(">i", data, 57, sent)
    log.write_bytes(bytes(data))
    found = json.loads(run("inspect", directory, "--format", "json").stdout)["partitions"][0]
    assert 0 <= found["records"] <= sound["records"]


@pytest.mark.parametrize("cut", range(0, 200, 7))
def test_fast_totals_agree_with_the_walk_on_torn_files(tmp_path, cut):
    data = (GOLDEN / "segments" / "data" / "golden-0" / f"{293:020}.log").read_bytes()
    path = tmp_path / "torn.log"
    path.write_bytes(data[: len(data) - cut])
    file = DiskFileSystem().open(str(path))
    walked = list(walk_headers(file, str(path)))
    totals = batch_totals(file, str(path))
    assert totals.batches == len(walked)
    assert totals.last_offset == max((at.header.last_offset for at in walked), default=-1)


@pytest.mark.parametrize("horizons", ((700, 500, 600), (500, 700), (700,)), ids=str)
def test_fast_totals_know_the_first_delete_horizon(tmp_path, horizons):
    data = bytearray((GOLDEN / "segments" / "data" / "golden-0" / f"{0:020}.log").read_bytes())
    path = tmp_path / "horizons.log"
    path.write_bytes(data)
    file = DiskFileSystem().open(str(path))
    assert batch_totals(file, str(path)).delete_horizon_ms is None
    for at, horizon_ms in zip(walk_headers(file, str(path)), horizons, strict=False):
        struct.pack_into(">h", data, at.position + 21, at.header.attributes | 0x40)
        struct.pack_into(">q", data, at.position + 27, horizon_ms)
    path.write_bytes(data)
    totals = batch_totals(DiskFileSystem().open(str(path)), str(path))
    assert totals.delete_horizon_ms == min(horizons)


@pytest.mark.parametrize(("position", "value"), ((16, 7), (8, 0x80), (11, 3)))
def test_fast_totals_refuse_the_same_files_as_the_walk(tmp_path, position, value):
    data = bytearray((GOLDEN / "segments" / "data" / "golden-0" / f"{0:020}.log").read_bytes())
    data[position] = value
    data[8 if position == 11 else position] = 0 if position == 11 else value
    path = tmp_path / "bad.log"
    path.write_bytes(data)
    file = DiskFileSystem().open(str(path))
    with pytest.raises(CorruptRecordError):
        batch_totals(file, str(path))


def test_deep_counts_by_the_topics_strategy(run):
    """The tombstone was appended last but is older than the value."""
    run("topic", "create", "t", "--config", "compaction.strategy=timestamp")
    lines = [
        {"key": "a", "value": "1", "timestamp": 5},
        {"key": "a", "value": None, "timestamp": 3},
    ]
    run("append", "t", input="\n".join(map(json.dumps, lines)))
    found = json.loads(run("inspect", "t", "--deep", "--format", "json").stdout)
    assert (found["live_keys"], found["tombstones"]) == (1, 1)


def test_a_directory_of_a_kraft_node_has_its_metadata_log(run, data_dir):
    """Next to the partitions and read-only: brokers and topics do not include it."""
    shutil.copytree(GOLDEN / "decoders", data_dir)
    names = [path.name for path in sorted(data_dir.iterdir()) if path.is_dir()]
    assert "__cluster_metadata-0" in names
    for command in (("inspect",), ("inspect", f"{data_dir}/"), ("inspect", "--summary")):
        rows = run(*command, "--format", "jsonl").jsonl
        assert [f"{row['topic']}-{row['partition']}" for row in rows] == names
    by_path = run("inspect", f"{data_dir}/__cluster_metadata-0", "--format", "json").json
    by_name = run("inspect", "__cluster_metadata", "--format", "json").json
    assert by_name["records"] == by_path["records"] > 0
    topics = run("topic", "list", "--format", "jsonl").jsonl
    assert "__cluster_metadata" not in {topic["name"] for topic in topics}
    before = tree_hash(data_dir / "__cluster_metadata-0")
    run("append", "t", "--create", input=lines({"key": "k", "value": "v"}))
    run("clean", "--force", "--roll")
    assert tree_hash(data_dir / "__cluster_metadata-0") == before


def test_of_two_metadata_logs_one_is_shown(run, tmp_path):
    """A directory of several nodes can still be inspected."""
    for node in ("one", "two"):
        path = tmp_path / "nodes" / node
        path.mkdir(parents=True)
        (path / "meta.properties").write_text("")
        shutil.copytree(GOLDEN / "decoders" / "__cluster_metadata-0", path / "__cluster_metadata-0")
    found = run("inspect", f"{tmp_path}/nodes", "--format", "jsonl")
    assert [row["directory"] for row in found.jsonl] == [
        f"{tmp_path}/nodes/one/__cluster_metadata-0"
    ]
    assert "nodes/two/__cluster_metadata-0 is ignored" in found.stderr


@pytest.mark.parametrize("option", ((), ("--summary",), ("--deep",), ("--fate",)))
def test_an_assumed_policy_is_noted(run, data_dir, tmp_path, option):
    run("topic", "create", "users", "--config", "cleanup.policy=compact")
    run("append", "users", input=lines({"key": "k", "value": "v"}))
    for name in ("users-0", "other-0", "more-0"):
        shutil.copytree(data_dir / "users-0", tmp_path / "copy" / name)
    one = run("inspect", f"{tmp_path}/copy/users-0", *option).stderr
    assert one == (
        "note: assumed: no configuration of topic users is stored here: cleanup.policy delete"
        " (Kafka's default) and the current defaults are assumed; override with --config"
        " KEY=VALUE\n"
    )
    config = tmp_path / "server.properties"
    config.write_text("log.cleanup.policy=compact\n")
    given_for_all = ("--config-file", config, *option)
    one = run("inspect", f"{tmp_path}/copy/users-0", *given_for_all)
    assert "cleanup.policy compact (log.cleanup.policy) and the current defaults" in one.stderr
    assert ("cleanup.policy compact (assumed)" in one.stdout) == (option in ((), ("--deep",)))
    all_of_them = run("inspect", f"{tmp_path}/copy", *option).stderr
    assert all_of_them.endswith("KEY=VALUE (likewise for 2 other topics)\n")
    given = ("--config", "cleanup.policy=compact")
    assert run("inspect", f"{tmp_path}/copy", *option, *given).stderr == ""
    assert run("inspect", *option).stderr == ""
