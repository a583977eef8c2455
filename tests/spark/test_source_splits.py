"""A task reads its planned files, and detects that they have changed."""

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from logstore import Broker, TopicPartition, VirtualClock
from logstore.errors import (
    CorruptRecordError,
    InvalidConfigurationError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from logstore.spark.datasource import splits as splits_module
from logstore.spark.datasource.source import LogstoreDataSource
from tests.support.world.messages import exactly

DAY_MS = 86_400_000


def open_source(path, **options):
    given = {name: str(value) for name, value in options.items()}
    data_source = LogstoreDataSource({"path": str(path), "splitBytes": "1", **given})
    return data_source.reader(data_source.schema())


def rows(reader, planned=None):
    names = reader.columns.names
    batches = [b for split in planned or reader.partitions() for b in reader.read(split)]
    return [
        tuple(row[name] for name in names) if len(names) > 1 else row[names[0]]
        for batch in batches
        for row in batch.to_pylist()
    ]


@pytest.fixture
def nothing_is_opened(monkeypatch):
    """Refuse to open logs once the plan is made."""

    def refuse(*_, **__):
        raise AssertionError("the task opened the data directory")

    return lambda: monkeypatch.setattr(splits_module, "Broker", refuse)


def segments_of(broker, topic, count, records=4, partition=0):
    for number in range(count):
        if number:
            broker.roll(topic, partition)
        batch = [(b"k%d" % n, b"%d.%d" % (number, n)) for n in range(records)]
        broker.append_many(topic, batch, partition=partition, batch_records=2)


def log_file(path, base_offset, topic="t", partition=0):
    return Path(path) / f"{topic}-{partition}" / f"{base_offset:020d}.log"


def test_a_task_reads_its_segments_without_opening_the_directory(tmp_path, nothing_is_opened):
    with Broker(tmp_path) as broker:
        broker.create_topic("t", partitions=2)
        segments_of(broker, "t", 3)
        segments_of(broker, "t", 1, partition=1)
    reader = open_source(tmp_path, columns="partition,offset")
    planned = reader.partitions()
    shutil.rmtree(tmp_path / "t-1")
    nothing_is_opened()
    assert rows(reader, planned[:-1]) == [(0, offset) for offset in range(12)]


def test_data_beyond_recovery_is_neither_read_nor_recovered_again(tmp_path, nothing_is_opened):
    with Broker(tmp_path / "data") as broker:
        broker.create_topic("t")
        segments_of(broker, "t", 3)
        shutil.copytree(tmp_path / "data", tmp_path / "copy")  # was not closed
    file = log_file(tmp_path / "copy", 4)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1  # the second batch of the middle segment: the rest is lost too
    file.write_bytes(data)
    reader = open_source(tmp_path / "copy", columns="offset")
    planned = reader.partitions()
    nothing_is_opened()
    assert rows(reader, planned) == [0, 1, 2, 3, 4, 5]
    assert file.read_bytes() == data


@pytest.mark.parametrize("is_torn", (False, True))
def test_reading_starts_at_the_batch_of_the_first_offset(tmp_path, nothing_is_opened, is_torn):
    with Broker(tmp_path) as broker:
        broker.create_topic("t", configs={"index.interval.bytes": "0"})
        segments_of(broker, "t", 1, records=40)
    reader = open_source(tmp_path, columns="offset", startOffset=31, endOffset=35)
    (task,) = reader.partitions()
    (split,) = task.splits
    assert split.files[0].position > 0
    if is_torn:  # nothing before that position is looked at
        file = log_file(tmp_path, 0)
        file.write_bytes(b"\xff" * split.files[0].position + file.read_bytes()[split.files[0][1] :])
    nothing_is_opened()
    assert rows(reader, [task]) == [31, 32, 33, 34]


def test_a_batch_larger_than_what_is_read_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(splits_module, "FETCH_BYTES", 100)
    with Broker(tmp_path) as broker:
        broker.create_topic("t")
        broker.append_many("t", [(b"k", b"x" * size) for size in (1, 5_000, 2)], batch_records=1)
    assert rows(open_source(tmp_path, columns="offset")) == [0, 1, 2]


def test_after_a_cleaning_the_rest_is_read_from_the_log_as_it_is_by_then(tmp_path):
    with Broker(tmp_path, clock=VirtualClock()) as broker:
        broker.create_topic("t", configs={"cleanup.policy": "compact"})
        segments_of(broker, "t", 4)
        reader = open_source(tmp_path, columns="offset,value")
        planned = reader.partitions()
        assert len(planned) == 4
        broker.clean("t", force=True)
    found = rows(reader, planned)
    assert [offset for offset, _ in found] == list(range(8, 16))
    assert found == rows(open_source(tmp_path, columns="offset,value"))


def test_a_split_that_changes_while_it_is_read_continues_where_it_was(tmp_path):
    with Broker(tmp_path, clock=VirtualClock()) as broker:
        broker.create_topic("t", configs={"cleanup.policy": "compact"})
        segments_of(broker, "t", 4)
        reader = open_source(tmp_path, columns="offset", splitBytes=1 << 30)
        ((split,),) = (task.splits for task in reader.partitions())
        parts = splits_module.stored_batches(split, [str(tmp_path)])
        first = [next(parts), next(parts)]
        broker.clean("t", force=True)
        offsets = [int(o) for part in (*first, *parts) for o in part.columns.offsets]
    assert offsets == [0, 1, 2, 3, *range(8, 16)]


def test_aborted_records_are_left_out_of_the_log_as_it_is_by_then(tmp_path):
    small = {"transaction.state.log.num.partitions": 1}
    with Broker(tmp_path, clock=VirtualClock(), broker_config=small) as broker:
        broker.create_topic("t", configs={"cleanup.policy": "compact"})
        segments_of(broker, "t", 3)
        producer = broker.producer(transactional_id="p")
        producer.init_transactions()
        for end in ("abort", "commit"):
            producer.begin_transaction()
            producer.send("t", key=b"k", value=end.encode(), partition=0)
            getattr(producer, f"{end}_transaction")()
        options = {"topic": "t", "columns": "value,aborted", "splitBytes": 1 << 30}
        readers = [open_source(tmp_path, isolation=level, **options)
                   for level in ("read_committed", "read_uncommitted")]  # fmt: skip
        plans = [reader.partitions() for reader in readers]
        broker.clean("t", force=True)
        committed, everything = map(rows, readers, plans)
    cleaned = [(b"%d.%d" % (segment, n), False) for segment in (1, 2) for n in range(4)]
    assert committed == [*cleaned, (b"commit", False)]
    assert everything == [*cleaned, (b"abort", True), (b"commit", False)]


def test_records_that_retention_took_since_the_plan_are_missed(tmp_path):
    with Broker(tmp_path, clock=VirtualClock()) as broker:
        broker.create_topic("t", configs={"cleanup.policy": "delete", "file.delete.delay.ms": "0"})
        segments_of(broker, "t", 3)
        reader = open_source(tmp_path, columns="offset")
        planned = reader.partitions()
        broker.delete_records({TopicPartition("t", 0): 8})
        broker.manager.delete_expired_files()
        with pytest.raises(OffsetOutOfRangeError, match="offset 0 of t-0"):
            rows(reader, planned)


def test_appends_after_the_plan_are_not_read(tmp_path):
    with Broker(tmp_path) as broker:
        broker.create_topic("t")
        segments_of(broker, "t", 2)
        reader = open_source(tmp_path, columns="offset")
        planned = reader.partitions()
        broker.append("t", value=b"more")
        assert rows(reader, planned) == list(range(8))


# --- columns that must be named ------------------------------------------------------------------


@pytest.mark.interop
def test_aborted_is_the_outcome_of_a_records_transaction(tmp_path):
    with Broker(tmp_path / "data") as broker:
        broker.create_topic("t")
        expected = []
        for number, end in enumerate(("abort", None, "commit", "abort", "open", None)):
            if end is None:
                broker.append("t", value=b"plain")
                expected.append(False)
                continue
            producer = broker.producer(transactional_id=f"p{number % 3}")
            producer.init_transactions()
            producer.begin_transaction()
            for _ in range(2):
                producer.send("t", value=b"%d" % number, partition=0)
            producer.flush()
            if end != "open":
                getattr(producer, f"{end}_transaction")()
            expected += [{"abort": True, "commit": False, "open": None}[end]] * 2
            broker.roll("t")
        shutil.copytree(tmp_path / "data", tmp_path / "copy")  # closing would end the open one
    for split_bytes in (1, 1 << 30):
        options = {"topic": "t", "splitBytes": split_bytes}
        reader = open_source(tmp_path / "copy", columns="aborted", **options)
        assert rows(reader) == expected
        reader = open_source(
            tmp_path / "copy", columns="aborted,value", isolation="read_committed", **options
        )
        # The last stable offset is at the open transaction and hides all later records.
        assert rows(reader) == [(False, b"plain"), (False, b"2"), (False, b"2")]


def test_the_delete_horizon_matches_the_records_batch(tmp_path):
    clock = VirtualClock()
    with Broker(tmp_path, clock=clock) as broker:
        configs = {"cleanup.policy": "compact", "delete.retention.ms": str(DAY_MS)}
        broker.create_topic("t", configs=configs)
        broker.append_many("t", [(b"a", None), (b"b", b"1")])
        broker.append("t", value=b"1", key=b"c")
        broker.roll("t")
        broker.clean("t", force=True)
        broker.append("t", value=None, key=b"d")
        horizon = clock.now_ms() + DAY_MS
    reader = open_source(tmp_path, columns="key,deleteHorizonMs")
    assert rows(reader) == [(b"a", horizon), (b"b", horizon), (b"c", None), (b"d", None)]


def test_the_two_columns_must_be_requested_by_name(tmp_path):
    assert LogstoreDataSource({"path": str(tmp_path)}).schema().names[-1] == "headers"
    schema = LogstoreDataSource({"columns": "deleteHorizonMs,aborted,key"}).schema()
    assert schema.simpleString() == "struct<deleteHorizonMs:bigint,aborted:boolean,key:binary>"


# --- selection -----------------------------------------------------------------------------------


def test_the_directories_of_one_broker_are_loaded_together(tmp_path):
    dirs = [str(tmp_path / name) for name in ("one", "two")]
    with Broker(dirs) as broker:
        broker.create_topic("t", partitions=3)
        for partition in range(3):
            broker.append("t", value=b"%d" % partition, partition=partition)
    assert all(list(Path(each).glob("t-*")) for each in dirs)
    data_source = LogstoreDataSource({"paths": json.dumps(dirs), "columns": "partition,value"})
    reader = data_source.reader(data_source.schema())
    assert rows(reader) == [(n, b"%d" % n) for n in range(3)]
    shutil.copytree(next(Path(dirs[1]).glob("t-*")), Path(dirs[0], "t-1"), dirs_exist_ok=True)
    shutil.copytree(Path(dirs[0], "t-1"), Path(dirs[1], "t-1"), dirs_exist_ok=True)
    with pytest.raises(
        InvalidConfigurationError, match=r"partition t-\d exists in both .*/one and"
    ):
        reader.partitions()


def test_partitions_are_assigned_topic_by_topic(tmp_path):
    with Broker(tmp_path) as broker:
        for topic in ("a", "b", "c"):
            broker.create_topic(topic, partitions=3)
            for partition in range(3):
                broker.append(topic, value=b"v", partition=partition)
    reader = open_source(tmp_path, assign='{"a": [2, 0], "c": [1]}', columns="topic,partition")
    assert rows(reader) == [("a", 2), ("a", 0), ("c", 1)]
    with pytest.raises(UnknownTopicOrPartitionError, match=exactly("topic 'a' has no partition 9")):
        open_source(tmp_path, assign='{"a": [9]}').partitions()


@pytest.mark.parametrize(
    ("options", "message"),
    (
        ({"assign": "[1]"}, "is not of the form"),
        ({"assign": "a"}, "is not of the form"),
        ({"assign": '{"a": ["1"]}'}, "is not of the form"),
        ({"assign": "{}", "topic": "a"}, "combined with topic, subscribe or partitions"),
        ({"order": "by key"}, "order: 'by key' is not one of checked, stored"),
        ({"paths": '["a"]'}, "path and paths"),
        ({"path": "", "paths": "[]"}, "no data directory"),
    ),
)
def test_choices_that_mean_nothing_are_refused(tmp_path, options, message):
    with pytest.raises(InvalidConfigurationError, match=message):
        open_source(**{"path": tmp_path, **options})


def test_disorder_is_damage_unless_file_order_is_requested(tmp_path):
    with Broker(tmp_path) as broker:
        broker.create_topic("t")
        segments_of(broker, "t", 3, records=6)
        first = next(broker.log("t").segments.view[0].batches())
    file = log_file(tmp_path, 0)
    data, size = file.read_bytes(), first.header.size_bytes
    batches = [data[at : at + size] for at in range(0, len(data), size)]
    assert len(batches) == 3
    file.write_bytes(b"".join((batches[0], batches[2], batches[1])))
    # A segment's last batch once more at the head of the next one.
    behind = log_file(tmp_path, 6)
    behind.write_bytes(batches[2] + behind.read_bytes())
    with pytest.raises(CorruptRecordError) as damage:
        rows(open_source(tmp_path, columns="offset"))
    assert str(damage.value) == (
        f"{file} at position {2 * size}: a batch of offsets 2 to 3 is where offsets from 6 on are "
        "expected"
    )
    reader = open_source(tmp_path, columns="offset", order="stored")
    assert rows(reader) == [0, 1, 4, 5, 2, 3, 4, 5, *range(6, 18)]
    reader = open_source(tmp_path, columns="offset", order="stored", startOffset=3, endOffset=7)
    assert sorted(rows(reader)) == [3, 4, 4, 5, 5, 6]
