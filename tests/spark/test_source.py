"""`spark.read.format("logstore")`: Kafka's directories, options, splits."""

import pytest

pytest.importorskip("pyspark")

from logstore import Broker, VirtualClock
from tests.support.world.golden_dirs import READ_CASES, ROOT, encoded, lines, manifest

pytestmark = pytest.mark.slow


def load(spark, path, **options):
    return spark.read.format("logstore").options(**options).load(str(path))


def as_line(row):
    """Return a row as `records.jsonl` shows the record."""
    return {
        "offset": row.offset,
        "timestamp": row.ms,
        "timestamp_type": row.timestampType,
        "key": encoded(None if row.key is None else bytes(row.key)),
        "value": encoded(None if row.value is None else bytes(row.value)),
        "headers": [
            [name, encoded(None if value is None else bytes(value))]
            for name, value in row.headers or ()
        ],
    }


def kafka_rows(case):
    names = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
    start = manifest(case)["log_start_offset"]
    return [
        {name: line[name] for name in names}
        for line in lines(case, "records.jsonl")
        if not line["is_control"] and line["offset"] >= start
    ]


def rows_of(frame):
    rows = frame.selectExpr("*", "unix_millis(timestamp) AS ms").collect()
    return [as_line(row) for row in sorted(rows, key=lambda row: row.offset)]


@pytest.mark.parametrize("case", READ_CASES)
def test_golden_directories_give_the_rows_that_kafka_read(spark, case):
    assert rows_of(load(spark, ROOT / case / "data", splitBytes=1)) == kafka_rows(case)


def test_several_directories_and_the_columns_to_be_named(spark, tmp_path):
    dirs = [str(tmp_path / name) for name in ("one, with a comma", "two")]
    with Broker(dirs, clock=VirtualClock()) as broker:
        broker.create_topic("t", partitions=3, configs={"cleanup.policy": "compact"})
        for partition in range(3):
            broker.append_many("t", [(b"a", None), (b"b", b"1")], partition=partition)
            if partition:
                broker.roll("t", partition)
        broker.clean("t", force=True)
    reader = spark.read.format("logstore")
    assert reader.load(dirs).count() == 6
    named = reader.option("columns", "partition,aborted,deleteHorizonMs").load(dirs)
    found = {(row.partition, row.aborted, row.deleteHorizonMs is None) for row in named.collect()}
    assert found == {(0, False, True), (1, False, False), (2, False, False)}


def test_a_stream_is_refused_in_one_sentence(spark, tmp_path):
    """Where Spark shows the error of a worker, without a traceback of it."""
    stream = spark.readStream.format("logstore").load(str(tmp_path))
    sink = stream.writeStream.format("noop").trigger(once=True)
    query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(Exception, match="'logstore' does not support streaming") as raised:
        query.awaitTermination(120)
    assert "Traceback" not in str(raised.value)
