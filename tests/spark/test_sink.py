"""`df.write.format("logstore")`: directories that the engine reads, all of them or none."""

import pytest

pytest.importorskip("pyspark")


from pyspark.errors import PySparkException

from logstore import Broker
from logstore.inspect.check import Checker
from logstore.manager.topics import TOPICS_FILE
from logstore.runtime import DiskFileSystem, ReadOnlyFileSystem
from logstore.storage.checkpoint.topic_id import PARTITION_METADATA
from tests.support.world.golden_dirs import ROOT

pytestmark = pytest.mark.slow


def save(frame, path, mode="append", **options):
    given = {name.replace("__", "."): str(value) for name, value in options.items()}
    frame.write.format("logstore").mode(mode).options(**given).save(str(path))


def load(spark, path, **options):
    return spark.read.format("logstore").options(**options).load(str(path))


def stream(spark, rows, partitions=3):
    """Return a frame of dense offsets a partition, whole and in order in its tasks."""
    return (
        spark.range(rows)
        .selectExpr(
            f"CAST(id % {partitions} AS int) AS partition",
            f"id DIV {partitions} AS offset",
            "CAST(concat('k', id % 7) AS binary) AS key",
            "IF(id % 11 = 0, NULL, CAST(concat('v', id) AS binary)) AS value",
            "timestamp_millis(1700000000000 + id) AS timestamp",
            "IF(id % 5 = 0, array(named_struct('key', 'version', 'value', CAST(hex(id) AS binary)),"
            " named_struct('key', 'é', 'value', CAST(NULL AS binary))), NULL) AS headers",
        )
        .repartitionById(partitions, "partition")
        .sortWithinPartitions("offset")
    )


def without_ids(found):
    """Drop the files that bear the topic's id: each commit makes a topic of its own."""
    return {
        name: data
        for name, data in found.items()
        if not name.endswith((PARTITION_METADATA, TOPICS_FILE))
    }


def files(path):
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def test_written_topics_are_read_by_spark_and_by_the_engine(spark, tmp_path):
    frame = stream(spark, 3000)
    save(
        frame, tmp_path, topic="users", partitions=4, batchRecords=100, compression="zstd",
        config__segment__bytes=4096,
    )  # fmt: skip
    names = ["partition", "offset", "key", "value", "timestamp", "headers"]
    again = load(spark, tmp_path, columns=",".join(names), splitBytes=1)
    assert again.rdd.getNumPartitions() > 4
    assert sorted(again.collect()) == sorted(frame.select(names).collect())

    with Broker(tmp_path, read_only=True) as broker:
        topic = broker.topic("users")
        assert (topic.partitions, dict(topic.configs)) == ((0, 1, 2, 3), {"segment.bytes": "4096"})
        assert not topic.adopted
        batches = list(broker.log("users", 0).reader.batches(0))
        assert [batch.header.record_count for batch in batches] == [100] * 10
        assert {batch.codec.name for batch in batches} == {"ZSTD"}
        assert len(broker.log("users", 0).segments) > 1
        assert broker.log("users", 3).log_end_offset == 0
        record = next(iter(broker.read("users", 1, offset=3)))  # id 10
        assert record.key == b"k3"
        assert record.headers == (("version", b"A"), ("é", None))
    assert list(Checker(ReadOnlyFileSystem(DiskFileSystem())).path(str(tmp_path))) == []
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [
        "users-0", "users-1", "users-2", "users-3",
    ]  # fmt: skip


def test_however_spark_cuts_the_rows_the_files_are_the_same(spark, tmp_path):
    rows, now = stream(spark, 5000), 1_700_000_500_000
    save(rows, tmp_path / "one", topic="users", batchRecords=64, now=now)
    size = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "333")
    try:
        save(rows, tmp_path / "two", topic="users", batchRecords=64, now=now)
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", size)
    first, second = (without_ids(files(tmp_path / name)) for name in ("one", "two"))
    assert len(first["users-2/00000000000000000000.log"]) > 25_000
    assert second == first


def test_a_job_of_which_one_task_fails_leaves_nothing(spark, tmp_path):
    with Broker(tmp_path) as broker:
        broker.create_topic("orders")
    before = files(tmp_path)
    failing = stream(spark, 3000).selectExpr(
        "partition",
        "IF(offset = 900 AND partition = 1, CAST(raise_error('a task fails') AS binary), value)"
        " AS value",
    )
    with pytest.raises(PySparkException, match="a task fails") as raised:
        save(failing, tmp_path, topic="users")
    assert files(tmp_path) == before, raised.value
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["orders-0"]


def test_a_commit_that_is_refused_leaves_nothing(spark, tmp_path):
    torn = stream(spark, 600).drop("offset").repartition(2)
    with pytest.raises(PySparkException, match="came from several tasks"):
        save(torn, tmp_path, topic="users")
    assert set(files(tmp_path)) <= {".lock", ".kafka_cleanshutdown"}
    with pytest.raises(PySparkException, match="the column value is missing"):
        save(torn.drop("value"), tmp_path, topic="users")


def test_rows_of_a_directory_go_into_another_under_their_own_topic(spark, tmp_path):
    frame = load(spark, ROOT / "codec-none" / "data")
    save(frame.sortWithinPartitions("offset"), tmp_path, config__max__message__bytes=2 << 20)
    names = ("key", "value", "topic", "partition", "timestamp", "headers")
    expected = [tuple(row[n] for n in names) for row in sorted(frame.collect(), key=by_offset)]
    written = sorted(load(spark, tmp_path).collect(), key=by_offset)
    assert [tuple(row[n] for n in names) for row in written] == expected


def by_offset(row):
    return row.offset
