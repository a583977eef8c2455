"""`generate`: the same files however the work is cut, the same rows as Parquet, all or nothing."""

import pytest

pytest.importorskip("pyspark")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException

from logstore import Broker
from logstore.errors import (
    InvalidConfigurationError,
    KafkaStorageError,
    TopicAlreadyExistsError,
)
from logstore.inspect.check import Checker
from logstore.runtime import DiskFileSystem
from logstore.spark.datasource import source
from logstore.spark.generation import generate as generate_module
from logstore.spark.generation.generate import generate, parquet_dir
from logstore.spark.generation.parquet import ParquetTarget
from logstore.workload.spec import BLOCK_RECORDS, from_mapping
from tests.support.world.generated import blocks_of, digest, make_topic, preset, tree
from tests.support.world.messages import exactly

pytestmark = pytest.mark.slow

SMALL = {
    "topic": "users",
    "records": 2_000,
    "partitions": 3,
    "keys": {"count": 50, "distribution": "uniform"},
    "values": {"sizes": "uniform", "min_bytes": 0, "max_bytes": 30},
    "deletes": {"share": 0.1},
    "time": {"late_share": 0.1},
    "versions": {"header": "v", "missing_share": 0.2, "malformed_share": 0.1},
    "producers": {"count": 3, "transactional": 2, "transaction_records": 30, "abort_share": 0.3},
    "batches": {"min_records": 5, "max_records": 60, "codec": "lz4"},
}


def files(path):
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


@pytest.mark.interop  # in short: the test below, and tests/unit/workload/test_blocks.py
def test_any_number_of_splits_gives_byte_identical_partitions(spark, tmp_path):
    spec = from_mapping(
        {
            **SMALL,
            "records": 2 * BLOCK_RECORDS + 1_000,
            "values": {"bytes": 4},
            "time": {"days": 3.0, "late_share": 0.1},
            "producers": {"count": 3, "transactional": 2, "transaction_records": 2_000},
            "batches": {"min_records": 500, "max_records": 2_000, "codec": "lz4"},
            "configs": {"segment.bytes": 400_000, "segment.jitter.ms": 60_000},
        }
    )
    make_topic(spec, tmp_path / "here")
    expected = tree(tmp_path / "here")
    assert sum(name.endswith(".log") for name in expected) > 6
    for splits in (2, 3, 16):
        made = generate(spark, spec, str(tmp_path / str(splits)), splits=splits)
        assert made.records == spec.records
        assert tree(tmp_path / str(splits)) == expected
    # Neither does it matter how many rows Spark hands over at a time.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
    try:
        generate(spark, spec, str(tmp_path / "single"))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert digest(tmp_path / "single") == digest(tmp_path / "here")


def test_blocks_source_and_parquet_have_the_same_rows(spark, tmp_path):
    spec = from_mapping(SMALL)
    made = generate(spark, spec, str(tmp_path / "data"), parquet=str(tmp_path / "rows"))
    assert list(made.seconds) == ["records", "logs", "parquet"]
    source = spark.read.format("logstore").option("topic", "users").load(str(tmp_path / "data"))
    parquet = spark.read.parquet(str(tmp_path / "rows"))
    assert parquet.schema == source.schema
    stored = sorted(source.collect(), key=lambda row: (row.partition, row.offset))
    assert sorted(parquet.collect(), key=lambda row: (row.partition, row.offset)) == stored

    wanted = {number: [] for number in range(3)}
    for block in blocks_of(spec):
        versions = block.version_values()
        for row in range(len(block)):
            value = None if block.tombstone[row] else block.value[row]
            headers = [("v", versions[row])] if block.version_form[row] else None
            wanted[int(block.partition[row])].append(
                (block.key[row].tobytes(), value, int(block.timestamp[row]), headers)
            )
    for number, rows in wanted.items():
        own = [row for row in stored if row.partition == number]
        assert [
            (
                bytes(row.key),
                None if row.value is None else bytes(row.value),
                round(row.timestamp.timestamp() * 1000),
                row.headers and [(each.key, bytes(each.value)) for each in row.headers],
            )
            for row in own
        ] == rows
    assert made.records == len(stored) == 2_000
    assert made.markers == sum(len(block.markers.after) for block in blocks_of(spec))
    assert made.batches == sum(len(np.unique(block.batch)) for block in blocks_of(spec))


def test_an_existing_topic_is_refused_and_overwrite_replaces_it(spark, tmp_path):
    spec, data, rows = from_mapping(SMALL), str(tmp_path / "data"), str(tmp_path / "rows")
    generate(spark, spec, data, parquet=rows)
    before = files(tmp_path)
    with pytest.raises(TopicAlreadyExistsError, match="overwrite replaces it"):
        generate(spark, spec, data)
    other = from_mapping({**SMALL, "topic": "orders", "seed": 2})
    with pytest.raises(InvalidConfigurationError, match="rows already exists"):
        generate(spark, other, data, parquet=rows)
    assert files(tmp_path) == before

    other = from_mapping({**SMALL, "seed": 2, "records": 500})
    generate(spark, other, data, parquet=rows, overwrite=True, configs={"segment.ms": "7"})
    assert spark.read.parquet(rows).count() == 500
    with Broker(data, read_only=True) as broker:
        assert broker.topic("users").configs["segment.ms"] == "7"
        assert [topic.name for topic in broker.topics()] == ["users"]
    assert list(Checker(DiskFileSystem()).path(data)) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "rows"]


def test_a_directory_in_use_is_refused_before_and_within_the_commit(spark, tmp_path, monkeypatch):
    spec, data = from_mapping(SMALL), str(tmp_path / "data")
    with Broker(data) as broker:
        with pytest.raises(KafkaStorageError, match="is in use"):
            generate(spark, spec, data)
        assert [path.name for path in tmp_path.joinpath("data").iterdir() if path.is_dir()] == []
        monkeypatch.setattr(generate_module, "refuse_in_use", lambda path: None)
        with pytest.raises(KafkaStorageError, match="is in use"):
            generate(spark, spec, data)
        assert broker.topics() == []
    assert [path.name for path in tmp_path.joinpath("data").iterdir() if path.is_dir()] == []


def test_a_job_of_which_one_task_fails_leaves_nothing(spark, tmp_path):
    spec, data, rows = from_mapping(SMALL), tmp_path / "data", tmp_path / "rows"
    configs = {"message.timestamp.before.max.ms": "1000"}  # which late records do not keep
    with pytest.raises(PySparkException, match="InvalidTimestampError"):
        generate(spark, spec, str(data), parquet=str(rows), configs=configs)
    assert [*data.iterdir(), *(path for path in tmp_path.iterdir() if path != data)] == []
    with pytest.raises(InvalidConfigurationError, match=r"nearest is 'segment\.bytes'"):
        generate(spark, spec, str(data), configs={"segment.byte": "1"})


def test_a_partition_that_cannot_be_written_leaves_nothing_of_the_others(
    spark, tmp_path, monkeypatch
):
    def torn(*given):
        columns = ("partition", "block", "part", "entries")
        cut = "IF(partition = 2, substring(batches, 1, 5000), batches) AS batches"
        return parcels(*given).selectExpr(*columns, cut)

    parcels = generate_module._parcels
    monkeypatch.setattr(generate_module, "_parcels", torn)
    make_topic(from_mapping({**SMALL, "topic": "orders"}), tmp_path)
    before = files(tmp_path)
    with pytest.raises(PySparkException, match="all batches were complete and appended"):
        generate(spark, from_mapping(SMALL), str(tmp_path))
    assert files(tmp_path) == before
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [
        "orders-0", "orders-1", "orders-2",
    ]  # fmt: skip


def test_parquet_that_cannot_be_written_leaves_the_topic_alone(spark, tmp_path):
    data, rows = tmp_path / "data", tmp_path / "rows"
    make_topic(from_mapping(SMALL), data)
    target = ParquetTarget(str(rows), overwrite=False)
    log = next(data.glob("users-1/*.log"))
    data_bytes = bytearray(log.read_bytes())
    data_bytes[100] ^= 1
    log.write_bytes(data_bytes)
    before = files(tmp_path)
    with pytest.raises(PySparkException, match="CorruptRecordError"):
        target.write(spark, str(data), "users")
    assert files(tmp_path) == before
    assert list(tmp_path.iterdir()) == [data]


def test_only_a_directory_of_parquet_is_replaced(tmp_path):
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "thesis.txt").write_text("years of work")
    with pytest.raises(InvalidConfigurationError, match=r"thesis\.txt in it is not a Parquet"):
        ParquetTarget(str(tmp_path / "rows"), overwrite=True)
    with pytest.raises(
        InvalidConfigurationError, match=exactly("{path}/thesis.txt is not a directory")
    ):
        ParquetTarget(str(tmp_path / "rows" / "thesis.txt"), overwrite=True)


def test_parquet_goes_neither_through_a_file_nor_into_the_data_directory(tmp_path):
    (tmp_path / "file").touch()
    spec = preset("cdc-table", records=10)
    for target, message in (
        (tmp_path / "file" / "below", "file is not a directory"),
        (tmp_path / "data" / "parquet", "is in the data directory"),
        (tmp_path / "data", "is in the data directory"),
    ):
        with pytest.raises(InvalidConfigurationError, match=message):
            generate(None, spec, str(tmp_path / "data"), parquet=str(target))
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_parquet_is_written_next_to_the_data_directory(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path / "data")
    assert {parquet_dir(name, "t") for name in (".", "../data", f"{tmp_path}/data/")} == {
        f"{tmp_path}/data.parquet/t"
    }


def test_nothing_is_made_that_could_not_be_cleaned():
    with pytest.raises(InvalidConfigurationError, match="does not include compact"):
        preset("cdc-table", configs={"cleanup.policy": "delete"})
    with pytest.raises(InvalidConfigurationError, match="does not include compact"):
        preset("cdc-table").with_configs({"cleanup.policy": "delete"})


class InProcess:
    """The part of a session that writes Parquet, with tasks in this process."""

    def __init__(self, directory):
        self.directory = directory

    def range(self, *bounds):
        self.bounds = bounds
        return self

    def mapInArrow(self, task, schema):
        assert schema == "file string"
        self.task = task
        return self

    def collect(self):
        start, end, step, slices = self.bounds
        assert (start, step, slices) == (0, 1, end)
        [partial_dir] = self.directory.glob(".rows.partial.*")
        (partial_dir / ".part-00000.parquet.dead").touch()
        numbers = (pa.RecordBatch.from_pydict({"id": [number]}) for number in range(end))
        self.files = [name for batch in self.task(numbers) for name in batch["file"].to_pylist()]


def test_rows_are_written_as_the_source_reads_them(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "SPLIT_BYTES", 1)
    with Broker(tmp_path / "data") as broker:
        broker.create_topic("t", partitions=2)
        broker.create_topic("other")
        for number in range(2):
            broker.append_many(
                "t", [(b"k%d" % n, b"v") for n in range(5 + number)], partition=number
            )
    rows = tmp_path / "made" / "rows"
    for overwrite in (False, True):
        session = InProcess(rows.parent)
        ParquetTarget(f"file://{rows}", overwrite=overwrite).write(
            session, str(tmp_path / "data"), "t"
        )
        assert session.files == ["part-00000.parquet", "part-00001.parquet"]
        assert sorted(path.name for path in rows.iterdir()) == ["_SUCCESS", *session.files]
        assert [path.name for path in rows.parent.iterdir()] == ["rows"]
        for number, name in enumerate(session.files):
            table = pq.read_table(rows / name)
            assert table.column("key").to_pylist() == [b"k%d" % n for n in range(5 + number)]
            assert table.column("partition").to_pylist() == [number] * (5 + number)
    monkeypatch.setattr(InProcess, "collect", lambda _: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        ParquetTarget(str(rows), overwrite=True).write(session, str(tmp_path / "data"), "t")
    assert [path.name for path in rows.parent.iterdir()] == ["rows"]
    target = ParquetTarget(str(rows), overwrite=True)
    assert (target.is_within(str(tmp_path)), target.is_within(str(tmp_path / "data"))) == (
        True,
        False,
    )
