"""`logstore export`: its files as DuckDB, pandas and plain text readers see them."""

from __future__ import annotations

import base64
import csv
import io
import json
import sys

import duckdb
import fastavro
import pandas
import pyarrow.parquet
import pytest

from logstore import Broker, VirtualClock
from logstore.export import arrow, files
from tests.cli.conftest import GOLDEN, tree_hash

NOW = 1_700_000_000_000
FORMATS = ("parquet", "arrow", "csv", "jsonl")


@pytest.fixture
def topic(data_dir):
    """Two partitions with every kind of record that may be difficult for a format."""
    with Broker(data_dir) as broker:
        broker.create_topic("t", 2)
        broker.append_many(
            "t",
            [
                (b"a", b"1", NOW),
                (b"a", b"2", NOW + 1),
                (None, b"\xff\x00", NOW + 2),
                (b"b", None, NOW + 3, [("h", b"x"), ("h", None), ("n", b"\xfe")]),
                (b"\xff", b"", NOW + 4),
                (b"\\N", b'quo"te,\n\xe2\x82\xac', NOW + 5),
            ],
            partition=0,
        )
        broker.append("t", key=b"c", value=b"3", partition=1, timestamp=NOW)
        broker.alter_configs("t", {"cleanup.policy": "compact"})  # which refuses a null key


def read_back(path):
    """Return the rows of an exported file with the names and types of Parquet's columns."""
    if path.suffix in (".parquet", ".arrow"):
        read = pandas.read_parquet if path.suffix == ".parquet" else pandas.read_feather
        rows = read(path, dtype_backend="pyarrow").to_dict("records")
        for row in rows:
            row["timestamp"] = row["timestamp"].value // 10**6
            row["headers"] = [[header["name"], header["value"]] for header in row["headers"]]
    elif path.suffix == ".csv":
        rows = list(csv.DictReader(io.StringIO(path.read_text(), newline="")))
        for row in rows:
            for name, text in row.items():
                row[name] = None if text == r"\N" else text
            for name in ("key", "value"):
                coded = row.pop(f"{name}_base64")
                text = row[name]
                row[name] = (
                    base64.b64decode(coded) if coded else None if text is None else text.encode()
                )
            row["headers"] = json.loads(row["headers"])
            for name in ("partition", "offset", "timestamp", "timestamp_type"):
                row[name] = int(row[name])
            for name in ("batch_base_offset", "position", "superseded_by"):
                row[name] = None if row[name] is None else int(row[name])
    else:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for row in rows:
            for name in ("key", "value"):
                coded = row.pop(f"{name}_base64", None)
                text = row.get(name)
                row[name] = (
                    base64.b64decode(coded) if coded else None if text is None else text.encode()
                )
    for row in rows:
        row["headers"] = [
            (
                name,
                None
                if value is None
                else value
                if isinstance(value, bytes)
                else base64.b64decode(value["base64"])
                if isinstance(value, dict)
                else value.encode(),
            )
            for name, value in row["headers"]
        ]
        for name, value in row.items():
            row[name] = None if value is pandas.NA else value
    return rows


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_holds_every_record_to_the_byte(run, topic, data_dir, tmp_path, suffix):
    out = tmp_path / f"t.{suffix}"
    before = tree_hash(data_dir)
    said = run("export", "t", "--out", out, "--roll").stdout
    assert said.startswith(f"{out}: 7 records, ")
    assert tree_hash(data_dir) == before
    rows = read_back(out)
    with Broker(data_dir, read_only=True) as broker:
        records = [record for part in (0, 1) for record in broker.read("t", part)]
        fates = [fate for part in (0, 1) for fate in broker.fates("t", part, roll=True)]
    assert [
        (r["topic"], r["partition"], r["offset"], r["timestamp"], r["timestamp_type"]) for r in rows
    ] == [(*record[:4], int(record.timestamp_type)) for record in records]
    assert [(r["key"], r["value"], tuple(r["headers"])) for r in rows] == [
        (record.key, record.value, record.headers) for record in records
    ]
    assert [(r["fate"], r["superseded_by"]) for r in rows] == [
        (fate.fate, fate.superseded_by) for fate in fates
    ]
    assert [r["fate"] for r in rows][:3] == ["superseded", "retained", "null_key"]
    assert [r["superseded_by"] for r in rows][:2] == [1, None]
    assert {r["control"] for r in rows} == {None}
    assert [path.name for path in tmp_path.iterdir() if path != data_dir] == [out.name]


def test_duckdb_and_pandas_read_it_in_one_line(run, topic, tmp_path):
    for suffix in FORMATS:
        run("export", "t", "--out", tmp_path / f"t.{suffix}", "--value-format", "text")
    parquet = tmp_path / "t.parquet"
    query = f"select decode(value) from '{parquet}' where key = 'a' order by \"offset\""
    assert duckdb.sql(query).fetchall() == [("1",), ("2",)]
    query = f"select count(*) from read_csv('{tmp_path}/t.csv', nullstr='\\N') where value is null"
    assert duckdb.sql(query).fetchall() == [(2,)]
    query = f"select fate, count(*) from '{tmp_path}/t.jsonl' group by fate"
    assert duckdb.sql(query).fetchall() == [("active", 7)]
    assert list(pandas.read_feather(tmp_path / "t.arrow")["partition"]) == [0] * 6 + [1]
    assert str(pandas.read_parquet(parquet)["timestamp"].dtype) == "datetime64[ms, UTC]"


@pytest.mark.parametrize("suffix", ("parquet", "arrow"))
def test_a_record_without_a_timestamp_has_null_in_columns(run, data_dir, tmp_path, suffix):
    with Broker(data_dir) as broker:
        broker.create_topic("t")
        for timestamp in (-1, 0):
            broker.append("t", value=b"v", timestamp=timestamp)
    out = tmp_path / f"t.{suffix}"
    run("export", "t", "--out", out)
    read = pandas.read_parquet if suffix == "parquet" else pandas.read_feather
    times = read(out, dtype_backend="pyarrow")["timestamp"]
    assert [None if pandas.isna(time) else time.value for time in times] == [None, 0]


@pytest.mark.parametrize("suffix", ("parquet", "arrow"))
def test_columns_are_written_group_by_group(run, topic, tmp_path, monkeypatch, suffix):
    """So that memory is bounded by one group, for many small or few large records."""
    out = tmp_path / f"t.{suffix}"

    def groups():
        run("export", "t", "--out", out, "--overwrite")
        assert len(read_back(out)) == 7
        if suffix == "parquet":
            return pyarrow.parquet.ParquetFile(out).num_row_groups
        return pyarrow.ipc.open_file(out).num_record_batches

    assert groups() == 1
    monkeypatch.setattr(arrow, "GROUP_ROWS_MAX", 2)
    assert groups() == 4
    monkeypatch.setattr(arrow, "GROUP_ROWS_MAX", 100)
    monkeypatch.setattr(arrow, "GROUP_BYTES_MAX", 1)
    assert groups() == 7


# -- decoded -------------------------------------------------------------------------------


def test_values_in_the_framing_of_confluent(run, data_dir, tmp_path):
    avro = {"type": "record", "name": "U", "fields": [{"name": "id", "type": "long"}]}
    (tmp_path / "u.avsc").write_text(json.dumps(avro))
    (tmp_path / "o.proto").write_text('syntax = "proto3"; message O { string name = 1; }')
    (tmp_path / "j.json").write_text('{"type": "object"}')
    packed = io.BytesIO()
    fastavro.schemaless_writer(packed, avro, {"id": 7})
    values = (
        b"\0\0\0\0\1" + packed.getvalue(),
        b"\0\0\0\0\2\0\x0a\x03ann",
        b'\0\0\0\0\3{"a": [1, null]}',
        b"\0\0\0\0\4?",
        None,
    )
    with Broker(data_dir) as broker:
        broker.create_topic("t")
        broker.append_many("t", [(b'{"k": 1}', value) for value in values])
    schemas = [
        part
        for number, name in enumerate(("u.avsc", "o.proto", "j.json"), 1)
        for part in ("--schema", f"{number}={tmp_path / name}")
    ]
    decoding = ("--value-format", "confluent", "--key-format", "json", *schemas)
    outcome = run("export", "t", "--out", tmp_path / "t.jsonl", *decoding, "--format", "json")
    assert outcome.json["undecoded"] == 1
    assert "1 record could not be decoded" in outcome.stderr
    found = [
        json.loads(line)["decoded"] for line in (tmp_path / "t.jsonl").read_text().splitlines()
    ]
    assert [each["value"] for each in found] == [
        {"id": 7},
        {"name": "ann"},
        {"a": [1, None]},
        None,
        None,
    ]
    assert [each["key"] for each in found] == [{"k": 1}] * 5
    assert [each.get("error", "") for each in found][3].startswith("value: schema 4 is unknown")
    run("export", "t", "--out", tmp_path / "t.parquet", *decoding)
    query = f"""select decoded_value->>'$.id', decode_error is null from '{tmp_path}/t.parquet'"""
    assert duckdb.sql(query).fetchall()[:2] == [("7", True), (None, True)]


def test_kafkas_own_topics_are_decoded_unless_raw(run, tmp_path):
    source = GOLDEN / "decoders"
    out = tmp_path / "o.jsonl"
    run("export", f"{source}/__consumer_offsets-0", "--out", out)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    read = run("read", "__consumer_offsets", "--data-dir", f"{source}", "--format", "jsonl")
    assert [row["decoded"] for row in rows if row["control"] is None] == [
        item["decoded"] for item in read.jsonl
    ]
    run("export", f"{source}/__consumer_offsets-0", "--out", out, "--overwrite", "--raw")
    assert "decoded" not in out.read_text()


# -- damage --------------------------------------------------------------------------------


@pytest.mark.parametrize("number", (0, 1, -2, -1))
def test_damage_is_skipped_and_later_fates_are_reported(run, data_dir, tmp_path, number):
    """In the clean section the rewrite meets it first, in the dirty section the map."""
    with Broker(data_dir, clock=VirtualClock(NOW)) as broker:
        broker.create_topic("t", 1, {"cleanup.policy": "compact", "segment.bytes": "1000"})
        for half in range(2):
            for key in range(40):
                broker.append("t", key=b"%d" % (key % 30 + 5 * half), value=b"v" * 50)
            if not half:
                broker.clean("t", force=True)
    path = sorted((data_dir / "t-0").glob("*.log"))[number]
    whole = path.read_bytes()
    before = run("inspect", "t", "--records", "--format", "jsonl").jsonl
    batches = run("inspect", "t", "--batches", "--format", "jsonl").jsonl
    hit = next(item for item in batches if item["segment"] == int(path.stem))
    at = hit["position"] + 70
    path.write_bytes(whole[:at] + b"?" + whole[at + 1 :])
    out = tmp_path / "t.jsonl"
    done = run("export", "t", "--out", out, "--format", "json", code=1)
    assert done.stderr.startswith("damage: ")
    assert [damage["check"] for damage in done.json["damages"]] == ["crc"]
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    lost = range(hit["baseOffset"], hit["lastOffset"] + 1)
    kept = [item["offset"] for item in before if item["offset"] not in lost]
    assert [row["offset"] for row in rows] == kept
    fates = run("inspect", "t", "--fate", "--format", "jsonl", code=1).jsonl
    assert [(row["fate"], row["superseded_by"]) for row in rows] == [
        (fate["fate"], fate["superseded_by"]) for fate in fates
    ]
    assert None not in [row["fate"] for row in rows]
    run("export", "t", "--out", tmp_path / "t.parquet", code=1)
    columns = ("offset", "fate", "superseded_by")
    assert [[row[name] for name in columns] for row in rows] == [
        [None if pandas.isna(row[name]) else row[name] for name in columns]
        for row in read_back(tmp_path / "t.parquet")
    ]


# -- refusals ------------------------------------------------------------------------------


def test_a_file_that_exists_is_not_replaced_unasked(run, topic, tmp_path):
    out = tmp_path / "t.csv"
    out.write_text("mine")
    assert "use --overwrite to replace it" in run("export", "t", "--out", out, code=2).stderr
    assert out.read_text() == "mine"
    run("export", "t", "--out", out, "--overwrite")
    assert out.read_text().startswith("topic,partition,offset")


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_failed_export_leaves_no_file(run, topic, tmp_path, monkeypatch):
    def fail(self, row):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(arrow.Columns, "write", fail)
    assert "No space left" in run("export", "t", "--out", tmp_path / "t.parquet", code=3).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize("room", (0, 200, 500))
@pytest.mark.parametrize("suffix", FORMATS)
def test_a_full_disk_is_named_and_leaves_no_file(run, topic, tmp_path, monkeypatch, suffix, room):
    write = files._Stream.write

    def write_some(self, data):
        if self.tell() + len(data) > room:
            raise OSError(28, "No space left on device")
        return write(self, data)

    monkeypatch.setattr(arrow, "GROUP_ROWS_MAX", 1)
    monkeypatch.setattr(files, "_BUFFER_BYTES", 1)
    monkeypatch.setattr(files._Stream, "write", write_some)
    result = run("export", "t", "--out", tmp_path / f"t.{suffix}", code=3)
    assert result.stderr == "error: [Errno 28] No space left on device\n"
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    (
        (("--out", "t.xlsx"), "must end in .parquet, .arrow, .csv, .jsonl"),
        (("--out", "{data}/t.csv"), "which is only read"),
        (("--out", "{data}/t-0/t.csv"), "which is only read"),
        (("--out", "{tmp}/missing/t.csv"), "missing"),
        (("--out", "t.csv", "--schema", "1=x.avsc"), "x.avsc: no such file"),
        (("--out", "t.csv", "--schema", "x.avsc"), "is not ID=FILE"),
        (("--out", "t.csv", "--schema", "1={tmp}/a.txt"), "must end in .avsc"),
        (("--out", "t.csv", "--schema", "1={tmp}/a.avsc"), "needs --key-format or --value-format"),
        (
            ("--out", "t.csv", "--value-format", "confluent", "--schema", "1={tmp}/a.avsc"),
            "schema 1, {tmp}/a.avsc: not an Avro schema",
        ),
        (
            ("--out", "t.csv", "--value-format", "confluent", "--schema", "1={tmp}/a.proto"),
            "a.proto:1:1: Expected top-level statement",
        ),
    ),
)
def test_impossible_values_are_refused_by_name(
    run, topic, data_dir, tmp_path, monkeypatch, arguments, text
):
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "a.avsc", "a.proto"):
        (tmp_path / name).write_text("?")
    places = {"data": data_dir, "tmp": tmp_path}
    before = sorted(tmp_path.rglob("*"))
    done = run("export", "t", *(part.format(**places) for part in arguments), code=None)
    assert done.code in (2, 3)
    assert text.format(**places) in done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_a_missing_library_is_named_with_its_remedy(run, topic, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = run("export", "t", "--out", tmp_path / "t.parquet", code=2)
    assert "a .parquet file needs pyarrow: pip install 'kafka-logstore[export]'" in done.stderr
    assert not list(tmp_path.glob("t.parquet*"))
    run("export", "t", "--out", tmp_path / "t.csv")
