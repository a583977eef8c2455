"""The reader of the data source, called as Spark calls it, without a JVM."""

import os

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from logstore import Broker, VirtualClock
from logstore.errors import (
    InvalidConfigurationError,
    InvalidRecordError,
    UnknownTopicOrPartitionError,
)
from logstore.spark.datasource import source
from logstore.spark.datasource.schema import KAFKA_SCHEMA
from logstore.spark.datasource.source import LogstoreDataSource
from logstore.spark.datasource.splits import SegmentFile, SegmentSplit, plan_tasks, stored_batches
from tests.support.world.golden_dirs import ROOT, lines, manifest
from tests.support.world.messages import exactly

NOW = 1_700_000_000_000
TYPES = {"bigint": LongType(), "binary": BinaryType(), "string": StringType()}


def open_source(path, **options):
    given = {name: str(value) for name, value in options.items()}
    data_source = LogstoreDataSource(CaseInsensitiveDict({"path": str(path), **given}))
    return data_source.reader(data_source.schema())


def tasks(reader):
    return [
        [(each.topic, each.partition, each.start_offset, each.end_offset) for each in task.splits]
        for task in reader.partitions()
    ]


def splits(reader):
    return [split for task in tasks(reader) for split in task]


def batches(reader):
    return [batch for task in reader.partitions() for batch in reader.read(task)]


def column(reader, name):
    return [value for batch in batches(reader) for value in batch.column(name).to_pylist()]


@pytest.fixture
def data_dir(tmp_path):
    """Return a directory: users with 3 segments of 10 records in 0, 5 records in 1; orders."""
    with Broker(tmp_path, clock=VirtualClock(NOW)) as broker:
        broker.create_topic("users", partitions=2)
        broker.create_topic("orders")
        for segment in range(3):
            if segment:
                broker.roll("users", 0)
            broker.append_many("users", [(b"k", b"%d" % n) for n in range(10)], partition=0)
        broker.append_many("users", [(b"k", b"v")] * 5, partition=1)
    return tmp_path


def test_every_segment_is_a_split_where_they_are_large(data_dir):
    assert tasks(open_source(data_dir, topic="users", splitBytes=1)) == [
        [("users", 0, 0, 10)],
        [("users", 0, 10, 20)],
        [("users", 0, 20, 30)],
        [("users", 1, 0, 5)],
    ]


def test_small_segments_that_follow_one_another_go_together(data_dir):
    whole = [("users", 0, 0, 30), ("users", 1, 0, 5)]
    assert tasks(open_source(data_dir, topic="users")) == [whole]
    with Broker(data_dir, read_only=True) as broker:
        size = broker.log("users", 0).segments.view[0].size_bytes
    reader = open_source(data_dir, topic="users", partitions=0, splitBytes=2 * size)
    assert tasks(reader) == [[("users", 0, 0, 20)], [("users", 0, 20, 30)]]
    reader = open_source(data_dir, topic="users", splitBytes=2 * size)
    assert tasks(reader) == [[("users", 0, 0, 20)], [("users", 0, 20, 30), ("users", 1, 0, 5)]]


def test_there_is_a_task_though_there_is_nothing_to_read(data_dir):
    assert tasks(open_source(data_dir, topic="orders")) == [[]]


def test_a_task_has_32_mib_and_a_split_of_unknown_size_is_alone(data_dir):
    def split(number, size):
        file = SegmentFile("f", 1000, 1000 + size, 0, None)
        return SegmentSplit("t", number, 0, 1, () if size == 0 else (file,))

    def planned(*sizes, **options):
        splits = [split(number, size) for number, size in enumerate(sizes)]
        task_bytes = open_source(data_dir, **options).split_bytes
        return [[each.partition for each in task.splits] for task in plan_tasks(splits, task_bytes)]

    half = 16 << 20
    assert planned(half, half, half, half - 1, 1, 1) == [[0, 1], [2, 3, 4], [5]]
    assert planned(1, 0, 1, 0, 0, splitBytes=10) == [[0], [1], [2], [3], [4]]


@pytest.mark.parametrize(
    ("options", "expected"),
    (
        ({}, [("users", 0, 0, 10), ("users", 0, 10, 20), ("users", 0, 20, 30), ("users", 1, 0, 5)]),
        ({"partitions": "1"}, [("users", 1, 0, 5)]),
        ({"partitions": "1,, 0,", "endOffset": 3}, [("users", 1, 0, 3), ("users", 0, 0, 3)]),
        ({"startOffset": 15, "endOffset": 21}, [("users", 0, 15, 20), ("users", 0, 20, 21)]),
        ({"startOffset": 10, "endOffset": 20}, [("users", 0, 10, 20)]),
        ({"startOffset": "earliest", "endOffset": "latest", "partitions": 1}, [("users", 1, 0, 5)]),
        ({"startOffset": "latest"}, []),
        ({"startOffset": 500}, []),
        ({"topic": "orders"}, []),
        ({"subscribe": "users", "startingOffsets": "15", "endingOffsets": "latest"},
         [("users", 0, 15, 20), ("users", 0, 20, 30)]),
        ({"subscribe": "users", "startingOffsets": '{"users": {"0": 15, "1": -1}}'},
         [("users", 0, 15, 20), ("users", 0, 20, 30)]),
        ({"endingOffsets": '{"users": {"0": 3}}'}, [("users", 0, 0, 3), ("users", 1, 0, 5)]),
        ({"endingOffsets": '{"users": {"0": -2}}'}, [("users", 1, 0, 5)]),
    ),
)  # fmt: skip
def test_options_say_what_is_read(data_dir, options, expected):
    if options.get("partitions") and "topic" not in options:
        options = {"topic": "users", **options}
    reader = open_source(data_dir, splitBytes=1, **options)
    assert splits(reader) == expected
    offsets = [offset for _, _, start, end in expected for offset in range(start, end)]
    assert column(reader, "offset") == offsets


def test_a_log_start_inside_a_segment_is_where_reading_starts(data_dir):
    with Broker(data_dir) as broker:
        broker.alter_configs("users", {"cleanup.policy": "delete"})
        broker.manager.delete_records(broker.partitions("users", 0)[0], 13)
    reader = open_source(data_dir, topic="users", partitions=0, splitBytes=1)
    assert splits(reader) == [("users", 0, 13, 20), ("users", 0, 20, 30)]
    assert column(reader, "value")[0] == b"3"


def test_only_requested_columns_are_created_in_order(data_dir):
    data_source = LogstoreDataSource({"path": str(data_dir), "columns": "offset, key,partition"})
    schema = data_source.schema()
    assert schema.names == ["offset", "key", "partition"]
    found = batches(data_source.reader(schema))
    assert {batch.schema.equals(to_arrow_schema(schema, timezone="UTC")) for batch in found} == {
        True
    }


def test_committed_reads_leave_out_what_was_aborted_or_is_open():
    case = "transactions"
    start = manifest(case)["log_start_offset"]
    committed = [line["offset"] for line in lines(case, "committed.jsonl")]
    reader = open_source(ROOT / case / "data", isolation="read_committed", splitBytes=1)
    assert len(reader.partitions()) > 1
    assert column(reader, "offset") == [offset for offset in committed if offset >= start]


def test_arrow_batches_close_by_rows_and_by_bytes(data_dir, monkeypatch):
    with Broker(data_dir) as broker:
        for n in range(20):
            broker.append_many("orders", [(b"k", b"%d" % n)] * 5)
    reader = open_source(data_dir, topic="orders")
    parts = stored_batches(reader.tasks()[0].splits[0], [str(data_dir)])
    two = len(next(parts).columns.data) + len(next(parts).columns.data)

    def sizes():
        return [batch.num_rows for batch in batches(reader)]

    assert sizes() == [100]
    monkeypatch.setattr(source, "ARROW_ROWS", 10)
    assert sizes() == [10] * 10
    monkeypatch.setattr(source, "ARROW_ROWS", 9)
    assert sizes() == [5] * 20
    monkeypatch.setattr(source, "ARROW_ROWS", 100)
    monkeypatch.setattr(source, "ARROW_BYTES", two)
    assert sizes()[0] == 10
    monkeypatch.setattr(source, "ARROW_BYTES", two - 1)
    assert sizes()[0] == 5
    assert column(reader, "value") == [b"%d" % n for n in range(20) for _ in range(5)]


def test_headers_of_many_batches_are_decoded_together(tmp_path):
    long = b"x" * 9_000
    given = [
        (),
        (("a", b"1"),),
        (("a", None), ("é" * 70, long), ("", b"")),
        (),
        (("a", b"2"), ("a", b"3")),
    ]
    with Broker(tmp_path) as broker:
        broker.create_topic("t")
        for n in range(4):
            records = [(None, None, None, headers) for headers in given]
            broker.append_many("t", records, batch_records=n + 1)
    found = column(open_source(tmp_path), "headers")
    expected = [[{"key": n, "value": v} for n, v in headers] or None for headers in given]
    assert found == expected * 4
    assert column(open_source(tmp_path), "key") == [None] * 20


def test_a_header_name_that_is_no_utf8_is_read_as_java_reads_it(tmp_path):
    with Broker(tmp_path) as broker:
        broker.create_topic("t")
        broker.append("t", value=b"v", headers=[("a\udcff", b"1"), ("b", b"2")])
    (headers,) = column(open_source(tmp_path), "headers")
    assert headers == [{"key": "a\ufffd", "value": b"1"}, {"key": "b", "value": b"2"}]


def test_a_time_that_spark_cannot_represent_is_named(tmp_path):
    with Broker(tmp_path) as broker:
        broker.create_topic("t")
        broker.append_many("t", [(None, b"v", 1), (None, b"v", 2**60)])
    with pytest.raises(
        InvalidRecordError, match="offset 1 of t-0: the timestamp 1152921504606846976"
    ):
        column(open_source(tmp_path), "timestamp")
    assert column(open_source(tmp_path, columns="offset"), "offset") == [0, 1]


COLUMNS = (
    "key, value, topic, partition, offset, timestamp, timestampType, headers, aborted,"
    " deleteHorizonMs, valueDigest, headersDigest"
)
ASSIGN = '{"topic": [0, 1]}'
BY_PARTITION = '{"topic": {"0": 23, "1": -1}}'


@pytest.mark.parametrize(
    ("options", "message"),
    (
        (
            {"columns": "key,colour"},
            f"columns: 'key, colour' must be distinct names from {COLUMNS}",
        ),
        ({"columns": "key,key"}, f"columns: 'key, key' must be distinct names from {COLUMNS}"),
        ({"columns": ""}, f"columns: '' must be distinct names from {COLUMNS}"),
        ({"partitions": "x"}, "partitions: 'x' is not a non-negative integer"),
        ({"splitBytes": "1k"}, "splitBytes: '1k' is not a non-negative integer"),
        ({"startOffset": "-5"}, "startOffset: '-5' is not a non-negative integer"),
        ({"endOffset": "-6"}, "endOffset: '-6' is not a non-negative integer"),
        (
            {"isolation": "serializable"},
            "isolation: 'serializable' is not one of read_uncommitted, read_committed",
        ),
        ({"order": "random"}, "order: 'random' is not one of checked, stored"),
        ({"path": ""}, "no data directory is given: use load(DATA_DIR)"),
        ({"topics": "users"}, "unknown option 'topics'; the nearest is 'topic'"),
        (
            {"startingOffset": "1"},
            "unknown option 'startingoffset'; the nearest is 'startingOffsets'",
        ),
        (
            {"topic": "users", "subscribe": "users"},
            "topic and subscribe are synonyms: give one of them",
        ),
        (
            {"startOffset": "1", "startingOffsets": "1"},
            "startOffset and startingOffsets are synonyms: give one of them",
        ),
        (
            {"assign": "{}", "subscribe": "users"},
            "assign cannot be combined with topic, subscribe or partitions",
        ),
        ({"assign": "[5]"}, f"assign: '[5]' is not of the form {ASSIGN}"),
        ({"assign": "{"}, f"assign: '{{' is not of the form {ASSIGN}"),
        ({"assign": '{"users": 3}'}, f"assign: '{{\"users\": 3}}' is not of the form {ASSIGN}"),
        (
            {"startingOffsets": '{"users": 3}'},
            f"startingOffsets: '{{\"users\": 3}}' is not of the form {BY_PARTITION}",
        ),
        (
            {"startingOffsets": '{"users": {"0": -3}}'},
            "startingOffsets: -3 is not an offset, -1 or -2",
        ),
        (
            {"endingOffsets": '{"users": {"x": 3}}'},
            "endingOffsets: 'x' is not a non-negative integer",
        ),
        ({"endingOffsets": "{"}, f"endingOffsets: '{{' is not of the form {BY_PARTITION}"),
    ),
)
def test_options_that_mean_nothing_are_refused(data_dir, options, message):
    with pytest.raises(InvalidConfigurationError) as refused:
        open_source(**{"path": data_dir, **options})
    assert str(refused.value) == message


def test_missing_names_are_refused(data_dir):
    with pytest.raises(UnknownTopicOrPartitionError, match=exactly("unknown topic 'nobody'")):
        open_source(data_dir, topic="nobody").partitions()
    with pytest.raises(
        UnknownTopicOrPartitionError, match=exactly("topic 'users' has no partition 7")
    ):
        open_source(data_dir, topic="users", partitions=7).partitions()
    with pytest.raises(
        InvalidConfigurationError, match=exactly("data directory {path}/nowhere does not exist")
    ):
        open_source(data_dir / "nowhere").partitions()
    (data_dir / "empty").mkdir()
    with pytest.raises(InvalidConfigurationError, match=r"empty: no topic found"):
        open_source(data_dir / "empty").partitions()


def test_reading_takes_no_lock_and_changes_nothing(data_dir):
    def state():
        return {
            path: (path.stat().st_mtime_ns, path.read_bytes())
            for path in data_dir.rglob("*")
            if path.is_file()
        }

    before = state()
    reader = open_source(data_dir)
    first = column(reader, "offset")
    assert state() == before
    with Broker(data_dir) as broker:  # holds the lock, and has taken the marker away
        broker.append("users", value=b"more", partition=1)
        assert column(reader, "offset") == [*first, 5]


def test_the_schema_has_the_types_of_sparks_kafka_source():
    assert [(f.name, f.dataType.simpleString(), f.nullable) for f in KAFKA_SCHEMA] == [
        ("key", "binary", True),
        ("value", "binary", True),
        ("topic", "string", True),
        ("partition", "int", True),
        ("offset", "bigint", True),
        ("timestamp", "timestamp", True),
        ("timestampType", "int", True),
        ("headers", "array<struct<key:string,value:binary>>", True),
    ]


def test_a_schema_of_ones_own_is_refused(data_dir):
    data_source = LogstoreDataSource({"path": str(data_dir), "columns": "key,offset"})
    for text in ("offset bigint, key binary", "key string, offset bigint", "key binary"):
        columns = [column.split() for column in text.split(", ")]
        schema = StructType([StructField(name, TYPES[kind]) for name, kind in columns])
        with pytest.raises(
            InvalidConfigurationError,
            match=exactly(
                "the schema of the data source is fixed; the option columns selects from it"
            ),
        ):
            data_source.reader(schema)


def test_streams_are_refused_with_what_to_use_instead(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    data_source = LogstoreDataSource(CaseInsensitiveDict({"path": str(tmp_path)}))
    reader = data_source.streamReader(KAFKA_SCHEMA)
    for call in (
        reader.initialOffset,
        reader.latestOffset,
        lambda: reader.partitions({}, {}),
        lambda: reader.read(None),
    ):
        with pytest.raises(
            InvalidConfigurationError,
            match=exactly(
                "the data source 'logstore' does not support streaming: use "
                "spark.read.format('logstore'), or 'logstore serve' and Spark's format "
                "'kafka'"
            ),
        ):
            call()
        assert os.environ.pop("SPARK_HIDE_TRACEBACK") == "1"
    with pytest.raises(
        InvalidConfigurationError,
        match=exactly(
            "the data source 'logstore' does not support streaming: use "
            "DataFrame.write.format('logstore'), or 'logstore serve' and Spark's "
            "format 'kafka'"
        ),
    ):
        data_source.streamWriter(KAFKA_SCHEMA, False)
    assert os.environ["SPARK_HIDE_TRACEBACK"] == "1"


def test_digests_are_xxh64_of_values_and_stored_headers(tmp_path):
    import xxhash

    values = [b"v" * 40, None, b"", b"short"]
    headers = [[("h", b"1")], [], [("name", b"value"), ("none", None)], []]
    with Broker(tmp_path, clock=VirtualClock(NOW)) as broker:
        broker.create_topic("t")
        for value, more in zip(values, headers, strict=True):
            broker.append("t", key=b"k", value=value, headers=more)
    reader = open_source(tmp_path, columns="headersDigest,valueDigest")

    def digest(data):
        return int.from_bytes(xxhash.xxh64_digest(data, 42), signed=True)

    assert column(reader, "valueDigest") == [
        None if value is None else digest(value) for value in values
    ]
    assert column(reader, "headersDigest") == [
        digest(stored)
        for stored in (
            b"\x02\x02h\x021",
            b"\x00",
            b"\x04\x08name\x0avalue\x08none\x01",
            b"\x00",
        )
    ]
