"""`read` and `inspect --records` show records of Kafka's internal topics decoded and as bytes."""

import json
import shutil

import pytest

from logstore import Broker, OffsetAndMetadata, TopicPartition
from tests.support.interop.decoded_records import RECORDED

OFFSETS = "__consumer_offsets"


@pytest.fixture
def copied(tmp_path):
    for topic in (OFFSETS, "__transaction_state", "__remote_log_metadata"):
        shutil.copytree(RECORDED / f"{topic}-0", tmp_path / f"{topic}-0")
    return tmp_path


def records(shown):
    return [json.loads(line) for line in shown.stdout.splitlines()]


def read(run, directory, topic, *arguments):
    return run("read", topic, "--data-dir", directory, "--partition", "0", *arguments)


def test_read_decodes_offsets(run, copied):
    found = records(read(run, copied, OFFSETS, "--format", "jsonl"))
    first, *_ = found
    assert first["decoded"]["key"].keys() == {"group", "topic", "partition"}
    assert first["decoded"]["value"] is None
    assert first["decoded"]["type"] == "OffsetCommit"
    assert "key_base64" in first or "key" in first
    kinds = {each["decoded"].get("type") for each in found}
    assert {"GroupMetadata", "ConsumerGroupMetadata", None} <= kinds
    assert "unknown record type 99" in found[-1]["decoded"]["error"]


@pytest.mark.parametrize(
    ("topic", "name"),
    (("__transaction_state", "TransactionLog"), ("__remote_log_metadata", "Remote")),
)
def test_read_decodes_other_topics(run, copied, topic, name):
    found = records(read(run, copied, topic, "--format", "jsonl"))
    assert any(each["decoded"].get("type", "").startswith(name) for each in found)


def test_raw_is_bytes_alone(run, copied):
    found = records(read(run, copied, OFFSETS, "--format", "jsonl", "--raw"))
    assert not any("decoded" in each for each in found)
    (whole,) = records(read(run, copied, OFFSETS, "--format", "json", "--raw"))
    assert whole["records"] == found


def test_tables_show_what_is_decoded(run, copied):
    shown = read(run, copied, OFFSETS, "--max-records", "3").stdout
    assert '{"group":' in shown
    assert '{"group":' not in read(run, copied, OFFSETS, "--max-records", "3", "--raw").stdout


def test_records_that_were_read_can_be_appended_again(run, copied, tmp_path):
    lines = read(run, copied, OFFSETS, "--format", "jsonl").stdout
    target = tmp_path / "copy"
    run("topic", "create", "copied", "--data-dir", target)
    run("append", "copied", "--data-dir", target, input=lines)
    again = records(read(run, target, "copied", "--format", "jsonl"))
    wanted = records(read(run, copied, OFFSETS, "--format", "jsonl", "--raw"))
    for each in (*again, *wanted):
        del each["topic"]
    assert again == wanted


def test_inspect_decodes_a_folder_and_a_file(run, copied):
    folder = copied / f"{OFFSETS}-0"
    for target in (folder, next(folder.glob("*.log"))):
        found = records(run("inspect", target, "--records", "--format", "jsonl"))
        assert found[0]["decoded"]["key"].keys() == {"group", "topic", "partition"}
        raw = records(run("inspect", target, "--records", "--format", "jsonl", "--raw"))
        assert [each.pop("decoded") and each for each in found] == raw
        assert '{"group":' in run("inspect", target, "--records").stdout


def test_records_of_other_topics_stay_as_they_are(run, tmp_path):
    run("topic", "create", "__own", "--data-dir", tmp_path)
    run("append", "__own", "--data-dir", tmp_path, input='{"key": "a", "value": "b"}\n')
    (found,) = records(read(run, tmp_path, "__own", "--format", "jsonl"))
    assert "decoded" not in found


@pytest.mark.parametrize(
    "name",
    (
        "__cluster_metadata-0/00000000000000000009-0000000002.checkpoint",
        "__cluster_metadata-0/bootstrap.checkpoint",
        "bootstrap.checkpoint",
        "__cluster_metadata-0/00000000000000000000.log",
    ),
)
def test_snapshots_of_the_clusters_metadata_are_read_as_its_log_is(run, tmp_path, name):
    """The bootstrap of a new cluster is next to the partition directories."""
    source = RECORDED / "__cluster_metadata-0"
    (tmp_path / "__cluster_metadata-0").mkdir()
    path = tmp_path / name
    shutil.copy(source / path.name, path)
    items = run("inspect", path, "--records", "--format", "jsonl").jsonl
    data = [item for item in items if not item["is_control"]]
    assert data
    assert all(item["topic"] == "__cluster_metadata" for item in items)
    assert all(item["decoded"]["value"] is not None for item in data)
    assert all("error" not in item["decoded"] for item in data)
    out = tmp_path.parent / f"{tmp_path.name}.jsonl"
    run("export", path, "--out", out)
    exported = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row.get("decoded") for row in exported] == [item.get("decoded") for item in items]


# -- keys alone --------------------------------------------------------------------------------


@pytest.fixture
def offsets(data_dir):
    """A topic of committed offsets with two records of one key."""
    with Broker(data_dir) as broker:
        broker.create_topic("orders")
        for offset in (1, 2):
            committed = {TopicPartition("orders", 0): OffsetAndMetadata(offset)}
            broker.admin().alter_group_offsets("shop", committed)
        [partition] = {
            tp for tp in broker.partitions("__consumer_offsets") if broker.log(*tp).log_end_offset
        }
    return str(partition)


KEY = {"group": "shop", "topic": "orders", "partition": 0}


def test_stats_name_the_keys_of_kafkas_own_topics(run, offsets):
    found = run("stats", offsets, "--format", "json").json
    for name in ("top_keys", "top_keys_by_bytes"):
        assert found[name][0]["decoded"] == {"type": "OffsetCommit", "key": KEY}
        assert "key" in found[name][0] or "key_base64" in found[name][0]
    assert '{"group":"shop","topic":"orders","partition":0}' in run("stats", offsets).stdout


def test_fates_name_the_keys_of_kafkas_own_topics(run, offsets):
    fates = ("inspect", offsets, "--fate")
    first, *_ = run(*fates, "--format", "jsonl").jsonl
    assert first["decoded"] == {"type": "OffsetCommit", "key": KEY}
    assert '{"group":"shop","topic":"orders","partition":0}' in run(*fates).stdout
    raw, *_ = run(*fates, "--raw", "--format", "jsonl").jsonl
    assert "decoded" not in raw
    assert '"group"' not in run(*fates, "--raw").stdout


def test_a_key_that_is_none_of_kafkas_stays_as_it_is(run, data_dir):
    with Broker(data_dir) as broker:
        broker.create_topic("__consumer_offsets", configs={"cleanup.policy": "compact"})
        broker.append("__consumer_offsets", key=b"odd", value=b"v")
    found = run("stats", "__consumer_offsets", "--format", "json").json
    assert found["top_keys"] == [{"key": "odd", "records": 1, "bytes": 11}]
    assert "odd" in run("inspect", "__consumer_offsets", "--fate").stdout
