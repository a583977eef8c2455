"""The writer of one job, called as Spark calls it, without a JVM."""

import errno
import os
import time
from itertools import count
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.types import StructType

from logstore import Broker
from logstore.errors import (
    InvalidConfigurationError,
    InvalidRecordError,
    InvalidTopicError,
    KafkaStorageError,
    TopicAlreadyExistsError,
)
from logstore.inspect.check import Checker
from logstore.manager.topics import Topic, TopicStore
from logstore.runtime import DiskFileSystem
from logstore.spark.datasource import commit
from logstore.spark.datasource.arrow import bytes_column, encoded_headers
from logstore.spark.datasource.schema import KAFKA_SCHEMA
from logstore.spark.datasource.sink import LogstoreWriter
from logstore.storage.checkpoint.topic_id import PARTITION_METADATA
from tests.support.world.messages import exactly


def writer(path, *names, overwrite=False, **options):
    names = names or ("partition", "offset", "key", "value")
    schema = StructType([KAFKA_SCHEMA[name] for name in names])
    given = {name: str(value) for name, value in options.items()}
    return LogstoreWriter(str(path), given, schema, overwrite=overwrite)


def rows(partition, offsets, size=8, **more):
    offsets = list(offsets)
    return pa.RecordBatch.from_pydict(
        {
            "partition": pa.array([partition] * len(offsets), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "key": pa.array([b"k%d" % (n % 5) for n in offsets], pa.binary()),
            "value": pa.array([b"v" * size for _ in offsets], pa.binary()),
            **more,
        }
    )


def write(job, *tasks):
    """Run a job whose tasks get lists of Arrow batches; abort it as Spark does if it fails."""
    messages = []
    try:
        messages += [job.write(iter(task)) for task in tasks]
        job.commit(messages)
    except Exception:
        job.abort([*messages, None])
        raise


def files(path):
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def test_a_named_topic_without_rows_has_a_partition(tmp_path):
    write(writer(tmp_path, topic="t"))
    assert folders(tmp_path) == ["t-0"]


def folders(path):
    return sorted(p.name for p in path.iterdir() if p.is_dir())


def findings(path):
    return list(Checker(DiskFileSystem()).path(str(path)))


def test_append_refuses_a_topic_that_exists_and_overwrite_replaces_it(tmp_path):
    write(writer(tmp_path, topic="users"), [rows(0, range(9)), rows(1, range(3))], [rows(2, [0])])
    write(writer(tmp_path, topic="orders"), [rows(0, range(2))])
    before = files(tmp_path)
    with pytest.raises(
        TopicAlreadyExistsError,
        match=exactly("topic 'users' already exists in {path}; overwrite replaces it"),
    ):
        writer(tmp_path, topic="users")
    assert files(tmp_path) == before

    write(writer(tmp_path, topic="users", overwrite=True), [rows(1, range(4))])
    with Broker(tmp_path, read_only=True) as broker:
        assert [topic.name for topic in broker.topics()] == ["orders", "users"]
        assert broker.topic("users").partitions == (0, 1)
        assert [broker.log("users", n).log_end_offset for n in (0, 1)] == [0, 4]
        assert broker.log("orders").log_end_offset == 2
    assert folders(tmp_path) == ["orders-0", "users-0", "users-1"]
    assert findings(tmp_path) == []


@pytest.mark.parametrize(
    ("partitions", "expected"),
    ((None, {"a": 2, "b": 3, "c": 1}), (4, {"a": 4, "b": 4, "c": 4})),
)
def test_a_task_may_have_rows_of_several_topics_and_partitions(tmp_path, partitions, expected):
    places = [("b", 2), ("a", 0), ("b", 0), ("a", 1), ("b", 2), ("a", 0), ("c", 0)]
    batch = pa.RecordBatch.from_pydict(
        {
            "topic": pa.array([topic for topic, _ in places], pa.string()),
            "partition": pa.array([partition for _, partition in places], pa.int32()),
            "value": pa.array([b"%d" % n for n in range(len(places))], pa.binary()),
        }
    )
    options = {} if partitions is None else {"partitions": partitions}
    write(writer(tmp_path, "topic", "partition", "value", **options), [batch])
    with Broker(tmp_path, read_only=True) as broker:
        assert {topic.name: len(topic.partitions) for topic in broker.topics()} == expected
        found = {
            (tp.topic, tp.partition): [int(record.value) for record in broker.read(*tp)]
            for tp in broker.partitions()
        }
    assert found == {
        (topic, number): [n for n, place in enumerate(places) if place == (topic, number)]
        for topic, count in expected.items()
        for number in range(count)
    }


@pytest.mark.parametrize("kind", (pa.binary(), pa.large_binary(), pa.string(), pa.large_string()))
@pytest.mark.parametrize(
    ("start", "sizes"), ((0, [1, -1, 0, 2]), (1, [-1, 0, 2]), (3, [2]), (4, []))
)
def test_arrays_of_bytes_and_text_become_columns(kind, start, sizes):
    column = bytes_column(pa.array(["a", None, "", "bc"], kind)[start:])
    assert column.sizes.tolist() == sizes
    assert (column.sizes.dtype, column.starts.dtype) == (np.int32, np.int64)
    texts = [
        None if size < 0 else bytes(column.data[at : at + size])
        for at, size in zip(column.starts.tolist(), sizes, strict=True)
    ]
    assert texts == [b"a", None, b"", b"bc"][start:]


def test_a_topic_that_came_while_the_job_ran_is_refused_by_the_commit(tmp_path):
    job = writer(tmp_path, topic="users")
    write(writer(tmp_path, topic="users"), [rows(0, range(9))])
    before = files(tmp_path)
    with pytest.raises(
        TopicAlreadyExistsError,
        match=exactly("topic 'users' already exists in {path}; overwrite replaces it"),
    ):
        write(job, [rows(0, range(5))])
    assert files(tmp_path) == before
    assert folders(tmp_path) == ["users-0"]


def test_a_folder_copied_from_a_broker_is_a_topic_that_exists(tmp_path):
    (tmp_path / "users-3").mkdir()
    with pytest.raises(
        TopicAlreadyExistsError,
        match=exactly("topic 'users' already exists in {path}; overwrite replaces it"),
    ):
        writer(tmp_path, topic="users")


def test_a_directory_that_another_process_holds_is_refused(tmp_path):
    with Broker(tmp_path) as broker:
        with pytest.raises(KafkaStorageError, match="is in use"):
            write(writer(tmp_path, topic="users"), [rows(0, range(9))])
        assert broker.topics() == []
    assert folders(tmp_path) == []


def test_a_crash_within_the_commit_leaves_no_part_of_a_topic(tmp_path, monkeypatch):
    write(writer(tmp_path, topic="orders"), [rows(0, range(2))])
    job = writer(tmp_path, topic="users")
    message = job.write(iter([rows(0, range(9)), rows(1, range(9))]))
    put, puts = TopicStore.put, []

    def crash_at_the_last(store, topics):
        puts.append(store)
        if len(puts) > 1:
            raise RuntimeError("crash")
        put(store, topics)

    monkeypatch.setattr(TopicStore, "put", crash_at_the_last)
    with pytest.raises(RuntimeError, match="crash"):
        job.commit([message])
    monkeypatch.undo()
    assert "users-0" in folders(tmp_path)
    with Broker(tmp_path, read_only=True) as broker:
        assert [topic.name for topic in broker.topics()] == ["orders"]
    with Broker(tmp_path):
        pass
    assert [name for name in folders(tmp_path) if not name.startswith(".")] == ["orders-0"]


def test_folders_are_durable_before_the_topic_is_known(tmp_path, monkeypatch):
    done = []
    for name in ("rename", "sync_dir"):
        operation = getattr(DiskFileSystem, name)

        def noted(fs, *paths, name=name, operation=operation):
            operation(fs, *paths)
            done.append((name, *(str(Path(path).relative_to(tmp_path)) for path in paths)))

        monkeypatch.setattr(DiskFileSystem, name, noted)
    write(writer(tmp_path, topic="users"), [rows(0, range(2)), rows(1, range(2))])
    moved = [at for at, each in enumerate(done) if each[-1] in ("users-0", "users-1")]
    known = [at for at, each in enumerate(done) if each[-1] == "logstore-topics.json"]
    assert len(moved) == len(known) == 2
    assert ("sync_dir", ".") in done[moved[-1] : known[-1]]


def test_a_topic_that_is_being_deleted_is_none_that_exists(tmp_path):
    """As a crash within a commit leaves it."""
    write(writer(tmp_path, topic="orders"), [rows(0, range(2))])
    TopicStore(DiskFileSystem(), str(tmp_path)).put([Topic("users", (0,), {}, deleting=True)])
    write(writer(tmp_path, topic="users"), [rows(0, range(3))])
    with Broker(tmp_path, read_only=True) as broker:
        assert broker.log("users", 0).log_end_offset == 3


def test_a_commit_does_not_say_that_a_directory_was_closed_in_good_order(tmp_path):
    marker = tmp_path / ".kafka_cleanshutdown"
    write(writer(tmp_path, topic="orders"), [rows(0, range(2))])
    assert marker.exists(), "a new directory counts like one that existed"
    marker.unlink()
    write(writer(tmp_path, topic="users"), [rows(0, range(2))])
    assert not marker.exists()


def test_rows_of_one_partition_from_two_tasks_are_refused(tmp_path):
    with pytest.raises(InvalidRecordError, match="users-0 came from several tasks"):
        write(writer(tmp_path, topic="users"), [rows(0, range(3))], [rows(0, range(3, 6))])
    assert folders(tmp_path) == []


SORT = "sortWithinPartitions('offset') is missing"


@pytest.mark.parametrize(
    ("task", "message"),
    (
        ([rows(0, [0, 2, 1, 4, 3])], f"the offsets of users-0 do not ascend: 1 follows 2; {SORT}"),
        (
            [rows(0, [0, 1]), rows(0, [1, 2])],
            f"the offsets of users-0 do not ascend: 1 follows 1; {SORT}",
        ),
        (
            [rows(0, [5, 7]), rows(0, [6, 8])],
            f"the offsets of users-0 do not ascend: 6 follows 7; {SORT}",
        ),
        ([rows(3, [0])], "a row is for users-3, but the topic has 3 partitions"),
        ([rows(-1, [0])], "a row is for users--1, but the topic has 3 partitions"),
        ([rows(None, [0])], "a row has no partition"),
    ),
)
def test_rows_that_cannot_be_written_are_refused(tmp_path, task, message):
    with pytest.raises(InvalidRecordError) as refused:
        write(writer(tmp_path, topic="users", partitions=3), task)
    assert str(refused.value) == message
    assert folders(tmp_path) == []


@pytest.mark.parametrize(
    ("names", "options", "error", "message"),
    (
        (
            ("key", "partition"),
            {"topic": "t"},
            InvalidConfigurationError,
            "the column value is missing",
        ),
        (("value", "partition"), {}, InvalidConfigurationError, "the column topic is missing"),
        (("value",), {"topic": "t"}, InvalidConfigurationError, "or set partitions=1"),
        (("value",), {"topic": "t", "partitions": 0}, InvalidConfigurationError, "0 is not in"),
        (("value",), {"topic": "t", "batchRecords": "x"}, InvalidConfigurationError, "not a non-n"),
        (("value",), {"topic": "a/b", "partitions": 1}, InvalidTopicError, "a/b"),
        (("value",), {"topic": "t", "config.retention.mss": 1}, InvalidConfigurationError, "reten"),
        (("value",), {"topic": "t", "compression": "zip"}, InvalidConfigurationError, "zip"),
        (
            ("value",),
            {"topic": "t", "compresion": "gzip"},
            InvalidConfigurationError,
            "'compression'",
        ),
        (
            ("value",),
            {"topic": "t", "startOffset": "1"},
            InvalidConfigurationError,
            "unknown option",
        ),
    ),
)
def test_options_and_columns_that_mean_nothing_are_refused(
    tmp_path, names, options, error, message
):
    with pytest.raises(error, match=message):
        writer(tmp_path, *names, **options)


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    (
        (
            "colour",
            "string",
            (
                "unknown column colour; known columns are key, value, topic, partition, "
                "offset, timestamp, timestampType, headers"
            ),
        ),
        ("key", "bigint", "column key cannot be bigint"),
        (
            "headers",
            "array<string>",
            "column headers must be array<struct<key:string,value:binary>>",
        ),
    ),
)
def test_columns_of_another_type_are_refused(tmp_path, name, kind, message):
    column = {"name": name, "type": kind, "nullable": True, "metadata": {}}
    if kind.startswith("array"):
        column["type"] = {"type": "array", "elementType": "string", "containsNull": True}
    else:
        column["type"] = {"bigint": "long"}.get(kind, kind)
    value = {"name": "value", "type": "binary", "nullable": True, "metadata": {}}
    schema = StructType.fromJson({"type": "struct", "fields": [value, column]})
    options = {"topic": "t", "partitions": "1"}
    with pytest.raises(InvalidConfigurationError, match=exactly(message)):
        LogstoreWriter(str(tmp_path), options, schema, overwrite=False)


def test_batches_close_by_count_and_before_the_largest_message(tmp_path):
    write(
        writer(tmp_path, topic="users", batchRecords=30, **{"config.max.message.bytes": 14_096}),
        [rows(0, range(70), size=10), rows(0, range(70, 90), size=3000), rows(0, [90], size=9900)],
    )
    with Broker(tmp_path, read_only=True) as broker:
        counts = [b.header.record_count for b in broker.log("users").reader.batches(0)]
        assert sum(counts) == 91
        # 10 small records and 3 of 3000 bytes fit 10000 bytes, then 3 large ones at a time.
        assert counts == [30, 30, 13, 3, 3, 3, 3, 3, 2, 1]


def test_a_record_without_time_gets_the_clocks(tmp_path):
    times = pa.array([None, -500, 1_700_000_000_123_999], pa.timestamp("us", "UTC"))
    job = writer(
        tmp_path,
        "partition",
        "offset",
        "key",
        "value",
        "timestamp",
        topic="t",
        now=1_700_000_000_000,
    )
    write(job, [rows(0, range(3), timestamp=times)])
    with Broker(tmp_path, read_only=True) as broker:
        found = [record.timestamp for record in broker.read("t")]
    assert found == [1_700_000_000_000, -1, 1_700_000_000_123]


def test_a_task_that_outlives_the_abort_of_its_job_leaves_nothing(tmp_path):
    job = writer(tmp_path, topic="users")

    def rows_with_an_abort_between():
        yield rows(0, range(3))
        job.abort([None])
        yield rows(1, range(3))

    with pytest.raises(FileNotFoundError):
        job.write(rows_with_an_abort_between())
    with pytest.raises(FileNotFoundError):
        job.write(iter([rows(0, range(3))]))
    job.abort([None, None])
    assert folders(tmp_path) == []


def test_a_job_aborted_before_any_file_operation_of_its_task_leaves_nothing(tmp_path, monkeypatch):
    """Spark does not wait for the tasks it kills: one may be anywhere when the abort comes.

    Each operation on names below the job's directory is met once by an abort right before it.
    """
    outcomes = []
    for at in count():
        job = writer(tmp_path, topic="users", batchRecords=2)
        task = JobAbortedInTask(job, at)
        with monkeypatch.context() as patched:
            for name in NAME_OPERATIONS:
                patched.setattr(os, name, task.watched(getattr(os, name)))
            try:
                job.write(iter([rows(0, range(3)), rows(1, range(3))]))
            except (FileNotFoundError, KafkaStorageError):
                outcomes.append("failed")
            else:
                outcomes.append("wrote")
        assert (at, folders(tmp_path)) == (at, [] if task.aborted else [Path(job.job.job_dir).name])
        if not task.aborted:
            break
    assert outcomes.count("failed") > 20
    assert outcomes[-1] == "wrote"


NAME_OPERATIONS = ("listdir", "lstat", "mkdir", "open", "replace", "scandir", "stat", "unlink")


class JobAbortedInTask:
    """Aborts a job right before its task's file operation number `at`, counted from 0."""

    def __init__(self, job, at):
        self._job = job
        self._left = at
        self.aborted = False

    def watched(self, operation):
        def watched(path, *arguments, **named):
            if not self.aborted and str(path).startswith(self._job.job.job_dir):
                self.aborted = self._left == 0
                self._left -= 1
                if self.aborted:
                    self._job.abort([None])
            return operation(path, *arguments, **named)

        return watched


@pytest.mark.parametrize(
    ("late", "step"),
    (("makes", "unlink"), ("makes", "rmdir"), ("renames", "unlink"), ("removes", "unlink")),
)
def test_a_call_of_a_task_that_ends_within_the_abort_leaves_nothing(
    tmp_path, monkeypatch, late, step
):
    """A call that has found its folder goes on there, whatever name that has by now.

    So does one that names the folder by a descriptor; it comes right before the abort's first
    `unlink` or `rmdir`, when all names have been read.
    """
    job = writer(tmp_path, topic="users")
    job.write(iter([rows(0, range(3))]))
    (folder,) = Path(job.job.job_dir).glob("*/users-0")
    (log,) = folder.glob("*.log")
    inside = os.open(folder, os.O_RDONLY)
    real, calls = getattr(os, step), []

    def preceded(path, *arguments, **named):
        if not calls:
            calls.append(path)
            monkeypatch.undo()
            if late == "makes":
                os.close(os.open("late", os.O_CREAT | os.O_WRONLY, dir_fd=inside))
            elif late == "renames":
                os.rename(log.name, "other", src_dir_fd=inside, dst_dir_fd=inside)
            else:
                os.unlink(log.name, dir_fd=inside)
        return real(path, *arguments, **named)

    monkeypatch.setattr(os, step, preceded)
    try:
        job.abort([None])
    finally:
        os.close(inside)
    assert calls
    assert folders(tmp_path) == []


def test_an_abort_that_cannot_remove_files_reports_it(tmp_path, monkeypatch):
    job = writer(tmp_path, topic="users")
    job.write(iter([rows(0, range(3))]))

    def refused(path, *_, **__):
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)

    monkeypatch.setattr(os, "rmdir", refused)
    with pytest.raises(OSError, match="not empty"):
        job.abort([None])


def test_files_of_dead_jobs_are_removed_a_day_after_their_last_change(tmp_path):
    dead = writer(tmp_path, topic="users")
    dead.write(iter([rows(0, range(3))]))
    job_dir = Path(dead.job.job_dir)
    folders_of_job = [job_dir, *(path for path in job_dir.rglob("*") if path.is_dir())]
    assert len(folders_of_job) == 3

    def change(path, days):
        os.utime(path, 2 * (time.time() - days * 86_400,))

    for path in folders_of_job:
        change(path, 0.99)
    for last in (job_dir, folders_of_job[-1]):
        for path in folders_of_job:
            change(path, 1.01)
        change(last, 0.99)
        writer(tmp_path, topic="users").abort([])
        assert folders(tmp_path) == [job_dir.name]
    change(folders_of_job[-1], 1.01)
    writer(tmp_path, topic="users").abort([])
    assert folders(tmp_path) == []


def test_topics_are_stored_together_or_not_at_all(tmp_path, monkeypatch):
    store = TopicStore(DiskFileSystem(), str(tmp_path))
    store.put([Topic("a", (0,)), Topic("b", (0, 1), {"segment.bytes": "2048"})])
    with pytest.raises(
        InvalidTopicError,
        match=exactly(
            "topic name 'no/topic' has characters other than ASCII letters, digits, "
            "'.', '_' and '-'"
        ),
    ):
        store.put([Topic("a", (0, 1)), Topic("no/topic", (0,))])
    assert [topic.partitions for topic in TopicStore(DiskFileSystem(), str(tmp_path)).all()] == [
        (0,),
        (0, 1),
    ]
    assert [topic.partitions for topic in store.all()] == [(0,), (0, 1)]


def test_headers_and_nulls_come_through_the_columns(tmp_path):
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    long = b"x" * 10_000
    given = [
        None,
        [],
        [{"key": "version", "value": np.int64(7).tobytes()}],
        [{"key": "", "value": None}, {"key": "é" * 100, "value": long}, {"key": "e", "value": b""}],
    ]
    job = writer(tmp_path, "partition", "offset", "key", "value", "headers", topic="t")
    write(job, [rows(0, range(4), headers=pa.array(given, kind)).slice(0)])
    with Broker(tmp_path, read_only=True) as broker:
        found = [record.headers for record in broker.read("t")]
    assert found == [
        (),
        (),
        (("version", np.int64(7).tobytes()),),
        (("", None), ("é" * 100, long), ("e", b"")),
    ]


def test_headers_of_a_slice_are_its_own(tmp_path):
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    given = [[{"key": "n", "value": b"%d" % n}] * (n % 3) for n in range(9)]
    job = writer(tmp_path, "partition", "offset", "key", "value", "headers", topic="t")
    write(job, [rows(0, range(9), headers=pa.array(given, kind)).slice(4, 4)])
    with Broker(tmp_path, read_only=True) as broker:
        found = [record.headers for record in broker.read("t")]
    assert found == [tuple(("n", b"%d" % n) for _ in range(n % 3)) for n in range(4, 8)]


@pytest.mark.parametrize("given", ([None], [{"key": None, "value": b"v"}]))
def test_a_header_and_its_name_are_not_null(given):
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    with pytest.raises(InvalidRecordError, match=r"^a header or its name is null$"):
        encoded_headers(pa.array([[], given], kind))


def test_large_rows_are_gathered_by_their_bytes_and_none_is_lost(tmp_path, monkeypatch):
    given = [rows(0, range(90), size=500), rows(0, range(90, 200), size=900)]
    write(writer(tmp_path / "whole", topic="t", batchRecords=70, now=5), given)
    monkeypatch.setattr("logstore.spark.datasource.sink._GATHER_BYTES", 7_000)
    write(writer(tmp_path / "pieces", topic="t", batchRecords=70, now=5), given)
    with Broker(tmp_path / "pieces", read_only=True) as broker:
        assert [each.offset for each in broker.read("t")] == list(range(200))
    found = [files(tmp_path / name / "t-0") for name in ("whole", "pieces")]
    for each in found:
        del each[PARTITION_METADATA]  # each commit makes a topic of its own, with a new id
    assert found[0] == found[1]


def test_a_job_whose_folders_move_meanwhile_does_not_keep_another_from_beginning(
    tmp_path, monkeypatch
):
    job = commit.WriteJob.begin(str(tmp_path), ["a"], overwrite=False)

    def vanished(*_):
        raise FileNotFoundError

    monkeypatch.setattr(commit, "_last_change_ms", vanished)
    commit.WriteJob.begin(str(tmp_path), ["b"], overwrite=False).abort()
    job.abort()
    assert not [each for each in tmp_path.iterdir() if each.is_dir()]


def test_a_commit_waits_for_another_that_has_the_data_directory(tmp_path, monkeypatch):
    monkeypatch.setattr(commit, "LOCK_WAIT_SECONDS", 60.0)
    answers = iter([False, False, True])
    monkeypatch.setattr(commit, "_is_free", lambda _: next(answers))
    write(writer(tmp_path, topic="t"), [rows(0, range(3))])
    assert next(answers, "asked three times") == "asked three times"
    assert (tmp_path / "t-0").is_dir()
