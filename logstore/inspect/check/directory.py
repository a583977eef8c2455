"""Data directories: their partitions, their checkpoints, and what else lies there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from logstore.config.broker_config import BrokerConfig
from logstore.config.overrides import ReadLimits, effective_config
from logstore.errors import CorruptCheckpointError, InvalidConfigurationError, InvalidTopicError
from logstore.inspect.check.findings import (
    ERROR,
    INFO,
    WARNING,
    CheckFinding,
    finding,
    limited,
    unreadable,
)
from logstore.inspect.check.partition import LEFTOVERS, PartitionBounds, PartitionCheck
from logstore.inspect.check.segment import CheckCounts, PartitionContext
from logstore.inspect.check.small_files import (
    EpochRow,
    OffsetRow,
    read_epochs,
    read_offsets,
    read_snapshot,
)
from logstore.manager.directories.move_notes import MOVES_FILE, read_moves
from logstore.manager.directories.nesting import (
    DATA_DIRECTORY_FILES,
    check_data_directory,
    is_data_directory,
)
from logstore.manager.topics.store import TOPICS_FILE, Topic, TopicStore
from logstore.names import (
    BROKER_DIRS,
    DELETE_DIR_SUFFIX,
    FUTURE_DIR_SUFFIX,
    INTERNAL_COMPACTED_TOPICS,
    LEADER_EPOCHS,
    LOCK_FILE,
    LOG_SUFFIX,
    METADATA_LOG_DIR,
    SNAPSHOT_SUFFIX,
    STRAY_DIR_SUFFIX,
    parse_log_dir,
    parse_partition_dir,
    parse_segment_file,
    validate_topic_name,
)
from logstore.runtime.fs import FileSystem
from logstore.storage.checkpoint.atomic import TMP_SUFFIX, UNREADABLE
from logstore.storage.checkpoint.offsets import (
    CHECKPOINTS,
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
)
from logstore.storage.checkpoint.shutdown import is_clean_shutdown
from logstore.storage.checkpoint.topic_id import PARTITION_METADATA, read_partition_metadata
from logstore.types import INT32_MAX, INT64_MAX, TopicPartition, decode_topic_id, encode_topic_id

_SUFFIXED_FOLDERS = (DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX, STRAY_DIR_SUFFIX)
_COMPACT = "compact"
_POLICY = "cleanup.policy"


class _Checkpoint:
    """An offset checkpoint, by partition; if it has faults, less than it did."""

    def __init__(self, exists: bool) -> None:
        self.exists = exists
        self.is_sound = True
        self.rows: dict[TopicPartition, OffsetRow] = {}

    def take(self, row: OffsetRow | CheckFinding) -> None:
        """Record what was read of the file."""
        if isinstance(row, OffsetRow):
            self.rows[row.topic_partition] = row
        elif row.severity == ERROR:
            self.is_sound = False


class _DataDir(NamedTuple):
    """A data directory, as its own files describe it.

    Attributes
    ----------
    checkpoints : mapping of str to _Checkpoint
        By the names of the files.
    is_clean : bool
        Whether it was closed cleanly.
    is_crashed : bool
        Whether the next opening recovers it: a broker had it, and neither closed it nor has it.
    """

    path: str
    checkpoints: Mapping[str, _Checkpoint]
    is_clean: bool
    is_crashed: bool


DEFAULT_LIMITS = ReadLimits()


class Checker:
    """An offline verifier of directories and files.

    Parameters
    ----------
    fs : FileSystem
        Only read; a `ReadOnlyFileSystem` proves it.
    counts : CheckCounts, optional
        Raised on the way.
    limits : ReadLimits
        A larger file or batch is a finding, and not read.

    Notes
    -----
    Each method yields findings as it goes and never stops at the first. Memory: one batch, and
    what is known of producers and transactions, whatever the size of the log.
    """

    def __init__(
        self,
        fs: FileSystem,
        counts: CheckCounts | None = None,
        limits: ReadLimits = DEFAULT_LIMITS,
    ) -> None:
        self._fs = fs
        self.counts = CheckCounts() if counts is None else counts
        self._limits = limits
        self._topic_ids: dict[str, tuple[bytes, str]] = {}

    def data_dirs(self, paths: Sequence[str]) -> Iterator[CheckFinding]:
        """Verify data directories that belong together; topics are stored in the first.

        Raises
        ------
        InvalidConfigurationError
            One of them holds data directories, as a cluster's does.
        """
        paths = [_trimmed(path) for path in paths]
        for path in paths:
            self._check_data_directory(path)
        return limited(self._data_dirs(paths), self.counts.findings)

    def path(self, path: str) -> Iterator[CheckFinding]:
        """Verify a data directory, a partition's directory or a single file.

        A directory without partitions that holds segments is taken for a partition of a wrong
        name. Of a partition, the data directory around it tells what to expect.

        What is gone by now, as a folder that another process moves, is a finding.

        Raises
        ------
        ValueError
            `path` is a file of a kind that is not known here.
        InvalidConfigurationError
            It is a directory that holds data directories, as a cluster's does.
        """
        path = _trimmed(path)
        if not self._fs.is_dir(path):
            # Asked in this order: a folder that is moved away meanwhile is no file.
            found = self._file(path) if self._fs.exists(path) else iter([_gone(path)])
            return limited(found, self.counts.findings)
        try:
            names = self._fs.list_dir(path)
        except FileNotFoundError:
            return limited([_gone(path)], self.counts.findings)
        except OSError as error:
            return iter([unreadable(path, error)])
        named = parse_partition_dir(path.rpartition("/")[2])
        has_segments = any(parse_segment_file(name) is not None for name in names)
        has_partitions = any(
            parse_partition_dir(name) is not None and self._fs.is_dir(f"{path}/{name}")
            for name in names
        )
        is_folder = has_segments or (named is not None and not is_data_directory(self._fs, path))
        if not has_partitions and is_folder:
            return limited(self._one_partition(path, named), self.counts.findings)
        return self.data_dirs([path])

    def _check_data_directory(self, path: str) -> None:
        with suppress(OSError):  # a finding when its names are read
            if self._fs.is_dir(path):
                check_data_directory(self._fs, path)

    def log_bytes(self, paths: Sequence[str]) -> int:
        """Return the bytes of all `.log` files in or below some directories, or of a file.

        A file that the disk refuses counts nothing here; verifying tells of it.
        """
        total = 0
        for path in paths:
            with suppress(OSError):
                if self._fs.is_dir(path):
                    for name in self._fs.list_dir(path):
                        if name.endswith(LOG_SUFFIX) or self._fs.is_dir(f"{path}/{name}"):
                            total += self.log_bytes([f"{path}/{name}"])
                elif path.endswith(LOG_SUFFIX):
                    total += self._fs.stat(path).size
        return total

    def has_anything(self, path: str) -> bool:
        """Return whether a directory is a partition's, or holds partitions or files of a log.

        A folder of segments counts, whatever its name: verifying reports the name. So does what
        the disk refuses.
        """
        path = _trimmed(path)
        try:
            names = self._fs.list_dir(path)
        except OSError:
            return True
        return _is_partitions(path.rpartition("/")[2]) or any(
            _is_partitions(name) or self._has_segments(f"{path}/{name}")
            if self._fs.is_dir(f"{path}/{name}")
            else name in DATA_DIRECTORY_FILES or parse_segment_file(name) is not None
            for name in names
        )

    def folders(self, path: str) -> list[str]:
        """Return the names of the folders in a directory, hidden ones left out."""
        path = _trimmed(path)
        names = self._listed(path) if self._fs.is_dir(path) else []
        return [name for name in names if name[0] != "." and self._fs.is_dir(f"{path}/{name}")]

    def _has_segments(self, path: str) -> bool:
        return any(parse_segment_file(name) is not None for name in self._listed(path))

    def _listed(self, path: str) -> list[str]:
        try:
            return self._fs.list_dir(path)
        except OSError:
            return []  # told by whoever looked at it first

    # -- data directories --------------------------------------------------------------------

    def _data_dirs(self, paths: Sequence[str]) -> Iterator[CheckFinding]:
        topics: dict[str, Topic] = {}
        if paths:
            topics, faults = self._topics(paths[0])
            yield from faults
        moving: set[str] = set()
        for path in paths:
            noted, faults = self._moves(path)
            yield from faults
            moving |= {f"{path}/{tp}" for tp in noted}
        owners: dict[TopicPartition, str] = {}
        for path in paths:
            partitions: dict[TopicPartition, str] = {}
            yield from self._guarded(path, self._names(path, partitions))
            # The checkpoints name a partition until they are written next.
            going = {tp for tp in map(_suffixed_partition, self._listed(path)) if tp is not None}
            for tp, directory in partitions.items():
                other = owners.setdefault(tp, directory)
                if other == directory:
                    continue
                if moved := [each for each in (other, directory) if each in moving]:
                    yield finding("leftover_folder", moved[0], severity=INFO)
                else:
                    yield finding("duplicate_partition", directory, expected=other)
            yield from self._data_dir(path, partitions, going, topics)
        yield from self._stored_partitions(paths, topics, owners)

    def _names(self, path: str, partitions: dict[TopicPartition, str]) -> Iterator[CheckFinding]:
        for name in self._fs.list_dir(path):
            yield from self._name(path, name, partitions)

    def _name(
        self, path: str, name: str, partitions: dict[TopicPartition, str]
    ) -> Iterator[CheckFinding]:
        """Judge a name in a data directory; put it among the partitions if it is one's."""
        full = f"{path}/{name}"
        if not self._fs.is_dir(full):
            if name.endswith(TMP_SUFFIX):
                yield finding("leftover_tmp", full, severity=INFO)
            elif name not in DATA_DIRECTORY_FILES:
                yield finding("foreign_file", full, severity=INFO)
            return
        if name in BROKER_DIRS:
            return
        if _is_suffixed(name):
            yield finding("leftover_folder", full, severity=INFO)
            return
        tp = parse_partition_dir(name)
        if tp is not None and _is_legal(tp) and name == str(tp):
            partitions[tp] = full
        else:
            yield finding("folder_name", full, expected="TOPIC-NUMBER", found=name)

    def _data_dir(
        self,
        path: str,
        partitions: dict[TopicPartition, str],
        going: Collection[TopicPartition],
        topics: dict[str, Topic],
    ) -> Iterator[CheckFinding]:
        checkpoints: dict[str, _Checkpoint] = {}
        for name in CHECKPOINTS:
            checkpoint = checkpoints[name] = _Checkpoint(self._fs.exists(f"{path}/{name}"))
            for row in read_offsets(self._fs, f"{path}/{name}", self._limits.small_file_bytes):
                checkpoint.take(row)
                if isinstance(row, CheckFinding):
                    yield row
                elif row.topic_partition not in partitions:
                    # The cleaner's own is rewritten when it next stores an offset.
                    is_stale = name == CLEANER_OFFSETS or row.topic_partition in going
                    yield finding(
                        "checkpoint_unknown_partition",
                        f"{path}/{name}",
                        row.position,
                        offset=row.offset,
                        found=str(row.topic_partition),
                        severity=INFO if is_stale else WARNING,
                    )
        data_dir = self._described(path, checkpoints)
        for tp, directory in partitions.items():
            yield from self._partition(data_dir, directory, tp, topics)

    def _partition(
        self, data_dir: _DataDir, directory: str, tp: TopicPartition, topics: Mapping[str, Topic]
    ) -> Iterator[CheckFinding]:
        context = self._context(data_dir, tp, topics)
        check = PartitionCheck(self._fs, directory, context, self.counts, self._limits)
        yield from self._guarded(directory, check.run())
        bounds = check.bounds
        yield from self._topic_id(directory, tp.topic, bounds.topic_id)
        for name, checkpoint in data_dir.checkpoints.items():
            if (row := checkpoint.rows.get(tp)) is not None:
                # Records that were not flushed may be gone after an unclean stop. The recovery
                # point is never below the log start, so that only above it is it of flushed ones.
                is_of_flushed = name == CLEANER_OFFSETS or (
                    name == RECOVERY_POINTS and row.offset > context.log_start_offset
                )
                severity = ERROR if is_of_flushed or context.is_clean else WARNING
                yield from _judge_offset(f"{data_dir.path}/{name}", row, bounds, severity)

    def _context(
        self, data_dir: _DataDir, tp: TopicPartition, topics: Mapping[str, Topic]
    ) -> PartitionContext:
        checkpoints, is_clean = data_dir.checkpoints, data_dir.is_clean
        cleaned, started = checkpoints[CLEANER_OFFSETS], checkpoints[LOG_START_OFFSETS]
        # Of a checkpoint that cannot be read anything may have been true.
        first_dirty = cleaned.rows[tp].offset if tp in cleaned.rows else None
        # This one names only the logs that start above their first segment's base, and is behind
        # them while a process is at work, or after it fell.
        is_known = started.exists and started.is_sound and is_clean and tp.partition >= 0
        recovered = checkpoints[RECOVERY_POINTS]
        recovery_point = None
        if data_dir.is_crashed:
            row = recovered.rows.get(tp) if recovered.is_sound else None
            recovery_point = 0 if row is None else row.offset
        return PartitionContext(
            is_clean=is_clean,
            first_dirty_offset=first_dirty if cleaned.is_sound else INT64_MAX,
            is_compacted=_is_compacted(tp, topics, is_checkpointed=cleaned.exists),
            log_start_offset=started.rows[tp].offset if tp in started.rows else 0,
            is_log_start_known=is_known,
            is_metadata=str(tp) == METADATA_LOG_DIR,
            recovery_point=recovery_point,
        )

    def _described(self, path: str, checkpoints: Mapping[str, _Checkpoint]) -> _DataDir:
        lock = f"{path}/{LOCK_FILE}"
        is_clean = is_clean_shutdown(self._fs, path)
        is_brokers = checkpoints[RECOVERY_POINTS].exists or self._fs.exists(lock)
        is_held = self._fs.lock_holder(lock) is not None
        is_crashed = is_brokers and not is_clean and not is_held
        return _DataDir(path, checkpoints, is_clean, is_crashed)

    def _data_dir_around(self, path: str) -> _DataDir:
        """Return the data directory around a partition or file, reporting no faults of its own."""
        checkpoints = {}
        for name in CHECKPOINTS:
            checkpoint = f"{path}/{name}"
            checkpoints[name] = _Checkpoint(self._fs.exists(checkpoint))
            for row in read_offsets(self._fs, checkpoint, self._limits.small_file_bytes):
                checkpoints[name].take(row)
        return self._described(path, checkpoints)

    def _one_partition(self, path: str, tp: TopicPartition | None) -> Iterator[CheckFinding]:
        """Verify one partition with what the directory around it says."""
        data_dir, slash, name = path.rpartition("/")
        data_dir = data_dir or slash or "."
        if _is_suffixed(name):
            yield finding("leftover_folder", path, severity=INFO)
            tp = TopicPartition(name, -1)
        elif tp is None or not _is_legal(tp) or name != str(tp):
            yield finding("folder_name", path, expected="TOPIC-NUMBER", found=name)
            tp = TopicPartition(name, -1)
        topics, _ = self._topics(data_dir)
        yield from self._partition(self._data_dir_around(data_dir), path, tp, topics)

    def _guarded(self, path: str, findings: Iterator[CheckFinding]) -> Iterator[CheckFinding]:
        """Turn a failure of the disk into a finding, so that other partitions follow."""
        try:
            yield from findings
        except OSError as error:
            yield unreadable(path, error)

    def _moves(self, path: str) -> tuple[Collection[TopicPartition], list[CheckFinding]]:
        """Return the partitions that a data directory gives away: until then in two of them."""
        try:
            return read_moves(self._fs, path, self._limits.small_file_bytes).keys(), []
        except CorruptCheckpointError as error:
            if error.check == UNREADABLE:
                return (), [unreadable(path, error)]
            fault = finding(
                "moves_file", f"{path}/{MOVES_FILE}", expected=error.expected, found=error.message
            )
            return (), [fault]
        except OSError as error:
            return (), [unreadable(path, error)]

    # -- topics ------------------------------------------------------------------------------

    def _topics(self, data_dir: str) -> tuple[dict[str, Topic], list[CheckFinding]]:
        path = f"{data_dir}/{TOPICS_FILE}"
        try:
            stored = {
                topic.name: topic
                for topic in TopicStore(self._fs, data_dir, self._limits.small_file_bytes).all()
            }
        except CorruptCheckpointError as error:
            if error.check == UNREADABLE:
                return {}, [unreadable(path, error)]
            return {}, [finding("topics_file", path, expected=error.expected, found=error.message)]
        except OSError as error:
            return {}, [unreadable(path, error)]
        for topic in stored.values():
            if topic.id is not None:
                self._topic_ids[topic.name] = (decode_topic_id(topic.id), path)
        faults = filter(None, map(_config_fault, stored.values()))
        return stored, [finding("topics_file", path, found=fault) for fault in faults]

    def _stored_partitions(
        self, paths: Sequence[str], topics: dict[str, Topic], owners: dict[TopicPartition, str]
    ) -> Iterator[CheckFinding]:
        """Compare the topics file with the folders."""
        for topic in topics.values():
            path = f"{paths[0]}/{TOPICS_FILE}"
            for number in topic.partitions:
                tp = TopicPartition(topic.name, number)
                if tp not in owners:
                    yield finding(
                        "topics_partition", path, expected=f"a folder {tp}", severity=WARNING
                    )
        for tp, directory in owners.items():
            stored = topics.get(tp.topic)
            if stored is not None and tp.partition not in stored.partitions:
                expected = f"a partition of topic {tp.topic}"
                yield finding("topics_partition", directory, expected=expected, severity=WARNING)

    def _topic_id(
        self, directory: str, topic: str, topic_id: bytes | None
    ) -> Iterator[CheckFinding]:
        if topic_id is None:
            return
        known, where = self._topic_ids.setdefault(topic, (topic_id, directory))
        if known != topic_id:
            path = f"{directory}/{PARTITION_METADATA}"
            expected = f"{encode_topic_id(known)}, that of {where}"
            yield finding("topic_id", path, expected=expected, found=encode_topic_id(topic_id))

    # -- single files ------------------------------------------------------------------------

    def _file(self, path: str) -> Iterator[CheckFinding]:
        directory, slash, name = path.rpartition("/")
        directory = directory or slash or "."
        parsed = parse_segment_file(name)
        if parsed is not None and not parsed.state:
            if parsed.kind == SNAPSHOT_SUFFIX:
                entries = read_snapshot(
                    self._fs, path, parsed.base_offset, self._limits.small_file_bytes
                )
                return (entry for entry in entries if isinstance(entry, CheckFinding))
            return self._segment_file(directory, path, parsed.base_offset)
        if parsed is not None and parsed.state in LEFTOVERS:
            check = LEFTOVERS[parsed.state]
            return iter([finding(check, path, offset=parsed.base_offset, severity=INFO)])
        if name == LEADER_EPOCHS:
            epochs = read_epochs(self._fs, path, self._limits.small_file_bytes)
            return (epoch for epoch in epochs if not isinstance(epoch, EpochRow))
        if name in CHECKPOINTS:
            rows = read_offsets(self._fs, path, self._limits.small_file_bytes)
            return (row for row in rows if not isinstance(row, OffsetRow))
        if name == TOPICS_FILE:
            return iter(self._topics(directory)[1])
        if name == MOVES_FILE:
            return iter(self._moves(directory)[1])
        if name == PARTITION_METADATA:
            return self._metadata_file(directory, path)
        raise ValueError(f"{path} is no file of a log that can be verified")

    def _segment_file(self, directory: str, path: str, base_offset: int) -> Iterator[CheckFinding]:
        """Verify a segment, and yield what concerns one of its files."""
        data_dir, slash, name = directory.rpartition("/")
        data_dir = data_dir or slash or "."
        tp = parse_partition_dir(name) or TopicPartition(name, -1)
        topics, _ = self._topics(data_dir)
        context = self._context(self._data_dir_around(data_dir), tp, topics)
        check = PartitionCheck(
            self._fs, directory, context, self.counts, self._limits, only_base_offset=base_offset
        )
        for row in self._guarded(path, check.run()):
            if row.path == path:
                yield row

    def _metadata_file(self, directory: str, path: str) -> Iterator[CheckFinding]:
        try:
            read_partition_metadata(self._fs, directory, self._limits.small_file_bytes)
        except CorruptCheckpointError as error:
            yield finding("partition_metadata", path, found=error.found or error.message)
        except OSError as error:
            yield unreadable(path, error)


def _gone(path: str) -> CheckFinding:
    return finding("gone", path, found="it was moved or removed meanwhile")


def _judge_offset(
    path: str, row: OffsetRow, bounds: PartitionBounds, severity: str
) -> Iterator[CheckFinding]:
    """Judge that a checkpoint's offset lies within its log; `severity` of one beyond its end."""
    end, start = bounds.end_offset, bounds.first_base_offset
    if end is not None and row.offset > end:
        yield finding(
            "checkpoint_beyond_end",
            path,
            row.position,
            offset=row.offset,
            expected=end,
            found=row.offset,
            severity=severity,
        )
    elif start is not None and row.offset < start and not path.endswith(CLEANER_OFFSETS):
        # It was true before old segments went, and is raised when it is written next. That of the
        # cleaner waits for its next round, however long.
        yield finding(
            "checkpoint_below_start",
            path,
            row.position,
            offset=row.offset,
            expected=start,
            found=row.offset,
            severity=INFO,
        )


def _is_compacted(
    tp: TopicPartition, topics: Mapping[str, Topic], *, is_checkpointed: bool
) -> bool | None:
    """Tell whether a partition's topic is compacted, None where nobody can.

    A broker has a cleaner checkpoint in each data directory; one that does not name a partition
    says that nothing of it was cleaned. A folder copied alone has none beside it.
    """
    if tp.topic in INTERNAL_COMPACTED_TOPICS:
        return True
    if (topic := topics.get(tp.topic)) is not None:
        return _COMPACT in [policy.strip() for policy in topic.configs.get(_POLICY, "").split(",")]
    return False if is_checkpointed else None


def _config_fault(topic: Topic) -> str | None:
    """Return what is wrong with the overrides of a stored topic."""
    try:
        effective_config(topic.configs, BrokerConfig())
    except InvalidConfigurationError as error:
        return f"topic {topic.name}: {error}"
    return None


def _is_partitions(folder: str) -> bool:
    """Tell whether a folder's name is that of a partition, live or not."""
    return parse_partition_dir(folder) is not None or _is_suffixed(folder)


def _is_suffixed(folder: str) -> bool:
    """Tell whether a folder's name says that it is no live partition's."""
    stem = folder.rpartition(".")[0]
    return folder.endswith(_SUFFIXED_FOLDERS) and parse_partition_dir(stem) is not None


def _suffixed_partition(folder: str) -> TopicPartition | None:
    """Return the partition whose deletion, move or parking a folder's name tells of."""
    found = parse_log_dir(folder)
    return found.topic_partition if found is not None and found.state else None


def _is_legal(tp: TopicPartition) -> bool:
    try:
        validate_topic_name(tp.topic)
    except InvalidTopicError:
        return False
    return tp.partition <= INT32_MAX


def _trimmed(path: str) -> str:
    return path.rstrip("/") or path
