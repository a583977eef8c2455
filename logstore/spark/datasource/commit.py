"""Topics that a job of many tasks writes, and that appear all at once or not at all.

Tasks write partitions below a directory of the job's own, in the data directory. The commit takes
the lock of the data directory, stores the topics as being deleted, moves the folders in, and then,
by replacing one file, makes them known. Until then no reader sees them; whoever opens the
directory after a crash removes them. A crash within the commit of an overwrite may so leave
neither topic, but never a mixture.
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
from logstore.errors import InvalidRecordError, KafkaStorageError, TopicAlreadyExistsError
from logstore.manager.directories.directory import LogDirectory
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
from logstore.runtime.locks import describe_holder
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
"""How long a commit waits for a data directory that another process has."""

REMOVALS_MAX = 100
"""How often an abort removes its job's directory before what stands in its way is an error.

A system call of a killed task may have found its folder under the old name, and make, rename or
remove a file in it while that is removed: one such call a task, since the next finds nothing.
"""

LEFTOVER_AGE_MS = 24 * 60 * 60 * 1000
"""A job's directory in which nothing was made for so long belongs to no job that still runs."""


@dataclass(frozen=True)
class WrittenPartition:
    """A partition in a folder of its own, closed cleanly; `end_offset` is its log end."""

    topic: str
    partition: int
    folder: str
    end_offset: int


@dataclass(frozen=True)
class WriteJob:
    """One job's directory in a data directory; copied to the job's tasks.

    Attributes
    ----------
    path : str
        The data directory.
    job_dir : str
        Where the tasks write.
    overwrite : bool
        Put topics in the place of those of the same names, instead of refusing these.
    """

    path: str
    job_dir: str
    overwrite: bool

    @classmethod
    def begin(cls, path: str, topics: Iterable[str], *, overwrite: bool) -> WriteJob:
        """Sweep what dead jobs left, and make the directory of a new one.

        Parameters
        ----------
        topics : iterable of str
            Those of which it is known that the job will write them.

        Raises
        ------
        TopicAlreadyExistsError
            One does, and `overwrite` is not set; nothing was made.
        InvalidConfigurationError
            The directory holds data directories, as a cluster's does.
        """
        path = str(Path(path).absolute())  # a task may run in another working directory
        fs = DiskFileSystem()
        if fs.is_dir(path):
            check_data_directory(fs, path)
        _sweep_leftovers(fs, path)
        if not overwrite and fs.is_dir(path):
            names = [parse_log_dir(name) for name in fs.list_dir(path)]
            found = [name.topic_partition for name in names if name and not name.state]
            _refuse_existing(TopicStore(fs, path), found, topics, path)
        make_dirs_durably(fs, path)
        job = cls(path, f"{path}/{JOB_DIR_PREFIX}{uuid.uuid4().hex}", overwrite)
        Path(job.job_dir).mkdir()
        return job

    def task_dir(self) -> str:
        """Make a directory for one attempt of a task, and return it.

        Raises
        ------
        FileNotFoundError
            The job was aborted meanwhile.
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
        """Make topics known at once, and remove the job's directory.

        Parameters
        ----------
        topics : sequence of Topic
            With all their partitions, each of which was written.
        producer_ids : int
            The ids below bear what was written; nobody is given one of them from now on.

        Raises
        ------
        TopicAlreadyExistsError
            One does, and `overwrite` is not set.
        KafkaStorageError
            The data directory is in use by another process, or the disk failed.
        """
        topics = [_identified(topic, runtime.rng) for topic in topics]
        partitions = by_partition(written)
        wanted = {TopicPartition(topic.name, n) for topic in topics for n in topic.partitions}
        assert wanted == partitions.keys(), "a topic's partitions are all written, and no others"
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
                # No log remembers an expired id: a new producer might get it.
                ProducerIds(runtime.fs, self.path, runtime.lock(), lambda: producer_ids - 1).take()
            _retire(directory, names)
            ids = {
                topic.name: decode_topic_id(topic.id) for topic in topics if topic.id is not None
            }
            _move_in(directory, partitions, ids)
            store.put(topics)
            directory.delete_retired_folders(force=True)
        finally:
            # Of the other partitions nothing was touched: they are as good as they were.
            directory.close(clean=directory.clean or directory.fresh)
        self.abort()

    def abort(self) -> None:
        """Remove all that the job left in its own directory.

        Spark does not wait for the tasks that it kills. The directory takes another name first,
        so that they find no place to make files in.
        """
        fs = DiskFileSystem()
        doomed = f"{self.job_dir}.doomed"
        try:
            fs.rename(self.job_dir, doomed)
        except FileNotFoundError:
            return  # aborted before, or committed
        for attempts_left in reversed(range(REMOVALS_MAX)):
            try:
                remove_tree(fs, doomed)
            except OSError as error:
                if not attempts_left or error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                    raise
            else:
                return


def new_log(runtime: Runtime, folder: str, tp: TopicPartition, configs: Mapping[str, str]) -> Log:
    """Make the folder of a partition, and an empty log in it.

    Raises
    ------
    InvalidTopicError
        The topic's name cannot be a folder's.
    FileNotFoundError
        The job that writes it was aborted.
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


def closed(log: Log) -> WrittenPartition:
    """Close a log cleanly and tell what it is."""
    tp, end_offset = log.topic_partition, log.log_end_offset
    log.close()
    return WrittenPartition(tp.topic, tp.partition, log.directory, end_offset)


def by_partition(written: Iterable[WrittenPartition]) -> dict[TopicPartition, WrittenPartition]:
    """Return what tasks wrote, by partition.

    Raises
    ------
    InvalidRecordError
        Two tasks wrote one partition.
    """
    found: dict[TopicPartition, WrittenPartition] = {}
    for task in written:
        tp = TopicPartition(task.topic, task.partition)
        if tp in found:
            raise InvalidRecordError(
                f"rows of {tp} came from several tasks: repartitionById(n, 'partition') is missing"
            )
        found[tp] = task
    return found


def refuse_in_use(path: str) -> None:
    """Find out early that the commit would not get the lock of a data directory.

    Raises
    ------
    KafkaStorageError
        Another process holds it.
    """
    if not _is_free(path):
        holder = describe_holder(DiskFileSystem().lock_holder(f"{path}/{LOCK_FILE}"))
        raise KafkaStorageError(
            f"data directory {path} is in use: {holder} holds the lock of {path}/{LOCK_FILE}"
        )


def _is_free(path: str) -> bool:
    fs = DiskFileSystem()
    if not fs.exists(f"{path}/{LOCK_FILE}"):
        return True
    lock = fs.lock(f"{path}/{LOCK_FILE}")
    if lock is not None:
        lock.release()
    return lock is not None


def _wait_for_lock(path: str) -> None:
    """Wait a while for another job that commits, or looks whether it could."""
    deadline = time.monotonic() + LOCK_WAIT_SECONDS
    while not _is_free(path) and time.monotonic() < deadline:
        time.sleep(0.05)


def _identified(topic: Topic, rng: Random) -> Topic:
    """Return a topic with an id; a new one, unless it has one."""
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
    store: TopicStore, found: Iterable[TopicPartition], topics: Iterable[str], path: str
) -> None:
    folders = {tp.topic for tp in found}
    for name in topics:
        stored = store.get(name)
        if (stored is not None and not stored.deleting) or (stored is None and name in folders):
            raise TopicAlreadyExistsError(
                f"topic '{name}' already exists in {path}; overwrite replaces it"
            )


def _sweep_leftovers(fs: FileSystem, path: str) -> None:
    """Remove directories of jobs that died, or whose killed task outlived its job's abort."""
    if not fs.is_dir(path):
        return
    oldest_ms = SystemClock().now_ms() - LEFTOVER_AGE_MS
    for name in fs.list_dir(path):
        job_dir = f"{path}/{name}"
        if not name.startswith(JOB_DIR_PREFIX):
            continue
        with suppress(FileNotFoundError):  # its job is at work, or another one is sweeping too
            if _last_change_ms(fs, job_dir) < oldest_ms:
                remove_tree(fs, job_dir)


def _last_change_ms(fs: FileSystem, path: str) -> int:
    """Return when something was last made in a directory or those below; files do not count."""
    below = [f"{path}/{name}" for name in fs.list_dir(path)]
    times = [_last_change_ms(fs, each) for each in below if fs.is_dir(each)]
    return max([fs.stat(path).mtime_ms, *times])
