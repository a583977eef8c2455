"""The data source yields the records of a reader that shares no code with the engine."""

import pytest

pytest.importorskip("pyspark")

from logstore import Broker, VirtualClock
from logstore.spark.datasource.source import LogstoreDataSource
from tests.support.oracles.plain_reader import CODEC_BITS, HEADER, plain_records
from tests.support.world.golden_dirs import READ_CASES, ROOT, manifest

COLUMNS = ("offset", "timestamp", "timestampType", "key", "value", "headers")


def source_records(data_dir, topic, partition):
    """Return the rows of a partition, with times in ms and headers in pairs."""
    options = {"path": str(data_dir), "columns": ",".join(COLUMNS), "splitBytes": "1"}
    source = LogstoreDataSource({**options, "topic": topic, "partitions": str(partition)})
    reader = source.reader(source.schema())
    for task in reader.partitions():
        for batch in reader.read(task):
            columns = [batch.column(name) for name in COLUMNS]
            columns[1] = columns[1].cast("int64")
            for offset, micros, kind, key, value, headers in zip(
                *(column.to_pylist() for column in columns), strict=True
            ):
                pairs = [(each["key"], each["value"]) for each in headers or ()]
                yield offset, micros // 1000, kind, key, value, pairs


@pytest.mark.parametrize("case", READ_CASES)
def test_kafkas_own_directories_read_alike(case):
    data = ROOT / case / "data"
    start = manifest(case)["log_start_offset"]
    (folder,) = [path for path in data.iterdir() if path.is_dir()]
    topic, _, number = folder.name.rpartition("-")
    expected = [tuple(each) for each in plain_records(folder) if each.offset >= start]
    assert list(source_records(data, topic, number)) == expected


CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.mark.parametrize("codec", CODECS)
def test_our_output_is_read_identically(tmp_path, codec):
    with Broker(tmp_path, clock=VirtualClock()) as broker:
        broker.create_topic("t", configs={"compression.type": codec.replace("none", "producer")})
        rows = [
            (
                b"k%d" % n,
                None if n % 5 == 0 else b"v" * n,
                1_000 + n,
                [("h", b"x"), ("é", None)][: n % 3],
            )
            for n in range(300)
        ]
        broker.append_many("t", rows, batch_records=7)
    (log,) = (tmp_path / "t-0").glob("*.log")
    assert HEADER.unpack_from(log.read_bytes())[5] & CODEC_BITS == CODECS.index(codec)
    expected = [tuple(each) for each in plain_records(tmp_path / "t-0")]
    assert len(expected) == 300
    assert list(source_records(tmp_path, "t", 0)) == expected
