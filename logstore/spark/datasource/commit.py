"""Atomic commit of topics written by many tasks.

Tasks write partitions to a private job directory inside the data directory. The commit locks the
data directory, marks the topics as being deleted, moves the partition directories in, and then
publishes the topics by replacing a single file. Until then, the topics are invisible to readers.
After a crash, the first broker that opens the directory removes them. If the commit of an overwrite
crashes, both the old and the new topic may be lost, but they are never mixed.
"""

from __future__ import annotations

import errno
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from logstore.config.broker_config import BrokerConfig
from logstore.config.overrides import effective_config
from logstore.coordinator.transactions.producer_ids import ProducerIds
from logstore.errors import InvalidRecordError, TopicAlreadyExistsError
from logstore.manager.directories.directory import LogDirectory, in_use_error
from logstore.manager.directories.nesting import check_data_directory
from logstore.manager.topics.ids import random_topic_id
from logstore.manager.topics.store import Topic, TopicStore
from logstore.names import LOCK_FILE, parse_log_dir, validate_topic_name
from logstore.runtime import (
    DiskFileSystem,
    FileSystem,
    Runtime,
    SystemClock,
    make_dirs_durably,
    remove_tree,
)
from logstore.storage.checkpoint.offsets import RECOVERY_POINTS, REPLICATION_OFFSETS
from logstore.storage.checkpoint.topic_id import write_partition_metadata
from logstore.storage.loading.loader import open_log
from logstore.storage.loading.request import LoadRequest
from logstore.types import TopicPartition, decode_topic_id

if TYPE_CHECKING:
    from logstore.runtime import Random
    from logstore.storage.log.log import Log

JOB_DIR_PREFIX = ".logstore-write."
LOCK_WAIT_SECONDS = 10.0
"""Time to wait for a data directory that another process has locked."""

REMOVALS_MAX = 100
"""Attempts of an abort to remove the job directory.

A killed task may have resolved the old directory name and still create, rename or remove one file
during the removal. Its next system call fails.
"""

LEFTOVER_AGE_MS = 24 * 60 * 60 * 1000
"""Age after which a job directory is abandoned, counted from the last file created in it."""


@dataclass(frozen=True)
class WrittenPartition:
    """A cleanly closed partition in its own directory. `end_offset` is the log end offset."""

    topic: str
    partition: int
    folder: str
    end_offset: int


@dataclass(frozen=True)
class WriteJob:
    """A write job and its directory inside a data directory. It is copied to the tasks.

    Attributes
    ----------
    path : str
        The data directory.
    job_dir : str
        Directory to which the tasks write.
    overwrite : bool
        Whether to replace existing topics.
    """

    path: str
    job_dir: str
    overwrite: bool

    @classmethod
    def begin(cls, path: str, topics: Iterable[str], *, overwrite: bool) -> WriteJob:
        """Remove leftovers of dead jobs and create the directory of a new job.

        Parameters
        ----------
        topics : iterable of str
            Topics that the job will write, as far as known.

        Raises
        ------
        TopicAlreadyExistsError
            A topic exists and `overwrite` is not set. Nothing was created.
        InvalidConfigurationError
            The directory contains data directories, as a cluster directory does.
        """
        path = str(Path(path).absolute())  # tasks may have a different working directory
        fs = DiskFileSystem()
        if fs.is_dir(path):
            check_data_directory(fs, path)
        _sweep_leftovers(fs, path)
        if not overwrite and fs.is_dir(path):
            names = [parse_log_dir(name) for name in fs.list_dir(path)]
            partitions = [name.topic_partition for name in names if name and not name.state]
            _refuse_existing(TopicStore(fs, path), partitions, topics, path)
        make_dirs_durably(fs, path)
        job = cls(path, f"{path}/{JOB_DIR_PREFIX}{uuid.uuid4().hex}", overwrite)
        Path(job.job_dir).mkdir()
        return job

    def task_dir(self) -> str:
        """Create a directory for one attempt of a task.

        Raises
        ------
        FileNotFoundError
            The job was aborted.
        """
        path = f"{self.job_dir}/{uuid.uuid4().hex}"
        Path(path).mkdir()
        return path

    def commit(
        self,
        runtime: Runtime,
        topics: Sequence[Topic],
        written: Iterable[WrittenPartition],
        *,
        producer_ids: int = 0,
    ) -> None:
        """Publish all topics atomically, and remove the job directory.

        Parameters
        ----------
        topics : sequence of Topic
            The topics, all of whose partitions must have been written.
        producer_ids : int
            Producer ids below this number are in use and must not be assigned again.

        Raises
        ------
        TopicAlreadyExistsError
            A topic exists and `overwrite` is not set.
        KafkaStorageError
            The data directory is in use by another process, or the disk failed.
        """
        topics = [_identified(topic, runtime.rng) for topic in topics]
        partitions = by_partition(written)
        wanted = {TopicPartition(topic.name, n) for topic in topics for n in topic.partitions}
        assert wanted == partitions.keys(), "exactly the partitions of the topics were written"
        names = [topic.name for topic in topics]
        _wait_for_lock(self.path)
        directory = LogDirectory(runtime, self.path, read_only=False)
        try:
            directory.check_online()
            store = TopicStore(runtime.fs, self.path)
            if not self.overwrite:
                _refuse_existing(store, directory.partitions, names, self.path)
            store.put(replace(topic, deleting=True) for topic in topics)
            if producer_ids:
                # Logs forget expired ids, so they could be assigned to a new producer.
                ProducerIds(runtime.fs, self.path, runtime.lock(), lambda: producer_ids - 1).take()
            _retire(directory, names)
            ids = {
                topic.name: decode_topic_id(topic.id) for topic in topics if topic.id is not None
            }
            _move_in(directory, partitions, ids)
            store.put(topics)
            directory.delete_retired_folders(force=True)
        finally:
            # Other partitions were not modified, so their shutdown state remains valid.
            directory.close(clean=directory.clean or directory.fresh)
        self.abort()

    def abort(self) -> None:
        """Remove the job directory.

        Spark does not wait for killed tasks, so the directory is renamed first. They can then no
        longer create files in it.
        """
        fs = DiskFileSystem()
        doomed = f"{self.job_dir}.doomed"
        try:
            fs.rename(self.job_dir, doomed)
        except FileNotFoundError:
            return  # already aborted or committed
        for attempts_left in reversed(range(REMOVALS_MAX)):
            try:
                remove_tree(fs, doomed)
            except OSError as error:
                if not attempts_left or error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                    raise
            else:
                return


def create_log(
    runtime: Runtime, folder: str, tp: TopicPartition, configs: Mapping[str, str]
) -> Log:
    """Create a partition directory with an empty log.

    Raises
    ------
    InvalidTopicError
        The topic name is invalid.
    FileNotFoundError
        The write job was aborted.
    """
    validate_topic_name(tp.topic)
    Path(folder).mkdir()
    return open_log(
        runtime,
        LoadRequest(
            directory=folder,
            topic_partition=tp,
            config=effective_config(configs),
            clean=True,
            producer_id_expiration_ms=BrokerConfig().producer_id_expiration_ms,
        ),
    )


def close_log(log: Log) -> WrittenPartition:
    """Close a log cleanly and describe it."""
    tp, end_offset = log.topic_partition, log.log_end_offset
    log.close()
    return WrittenPartition(tp.topic, tp.partition, log.directory, end_offset)


def by_partition(written: Iterable[WrittenPartition]) -> dict[TopicPartition, WrittenPartition]:
    """Index task results by partition.

    Raises
    ------
    InvalidRecordError
        Two tasks wrote the same partition.
    """
    partitions: dict[TopicPartition, WrittenPartition] = {}
    for task in written:
        tp = TopicPartition(task.topic, task.partition)
        if tp in partitions:
            raise InvalidRecordError(
                f"rows of {tp} came from several tasks: repartitionById(n, 'partition') is missing"
            )
        partitions[tp] = task
    return partitions


def refuse_in_use(path: str) -> None:
    """Fail early if the data directory is locked, because the commit needs the lock.

    Raises
    ------
    KafkaStorageError
        Another process holds the lock.
    """
    if not _is_free(path):
        raise in_use_error(DiskFileSystem(), path)


def _is_free(path: str) -> bool:
    fs = DiskFileSystem()
    if not fs.exists(f"{path}/{LOCK_FILE}"):
        return True
    lock = fs.lock(f"{path}/{LOCK_FILE}")
    if lock is not None:
        lock.release()
    return lock is not None


def _wait_for_lock(path: str) -> None:
    """Wait up to `LOCK_WAIT_SECONDS` for a job that is committing or testing the lock."""
    deadline = time.monotonic() + LOCK_WAIT_SECONDS
    while not _is_free(path) and time.monotonic() < deadline:
        time.sleep(0.05)


def _identified(topic: Topic, rng: Random) -> Topic:
    """Return the topic with an id, generating one if necessary."""
    return topic if topic.id is not None else replace(topic, id=random_topic_id(rng))


def _retire(directory: LogDirectory, topics: Iterable[str]) -> None:
    for tp in sorted(tp for tp in directory.partitions if tp.topic in topics):
        directory.retire(tp, 0)
    directory.forget_retired()


def _move_in(
    directory: LogDirectory,
    partitions: Mapping[TopicPartition, WrittenPartition],
    topic_ids: Mapping[str, bytes],
) -> None:
    fs = directory.runtime.fs
    for tp, each in sorted(partitions.items()):
        end = each.end_offset
        write_partition_metadata(fs, each.folder, topic_ids[tp.topic])
        directory.adopt(tp, {RECOVERY_POINTS: end, REPLICATION_OFFSETS: end})
        fs.rename(each.folder, directory.partition_path(tp))
    fs.sync_dir(directory.path)


def _refuse_existing(
    store: TopicStore, partitions: Iterable[TopicPartition], topics: Iterable[str], path: str
) -> None:
    folders = {tp.topic for tp in partitions}
    for name in topics:
        stored = store.get(name)
        if (stored is not None and not stored.deleting) or (stored is None and name in folders):
            raise TopicAlreadyExistsError(
                f"topic '{name}' already exists in {path}; overwrite replaces it"
            )


def _sweep_leftovers(fs: FileSystem, path: str) -> None:
    """Remove the directories of dead jobs, and of tasks that outlived their aborted job."""
    if not fs.is_dir(path):
        return
    oldest_ms = SystemClock().now_ms() - LEFTOVER_AGE_MS
    for name in fs.list_dir(path):
        job_dir = f"{path}/{name}"
        if not name.startswith(JOB_DIR_PREFIX):
            continue
        with suppress(FileNotFoundError):  # the job finished, or another job is removing leftovers
            if _last_change_ms(fs, job_dir) < oldest_ms:
                remove_tree(fs, job_dir)


def _last_change_ms(fs: FileSystem, path: str) -> int:
    below = [f"{path}/{name}" for name in fs.list_dir(path)]
    times = [_last_change_ms(fs, each) for each in below if fs.is_dir(each)]
    return max([fs.stat(path).mtime_ms, *times])
