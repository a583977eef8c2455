"""Checks of data directories: their partitions, checkpoints and other files."""

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
    limit_findings,
    unreadable,
)
from logstore.inspect.check.partition import LEFTOVER_CHECKS, PartitionBounds, PartitionCheck
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
    """Valid entries of an offset checkpoint, by partition."""

    def __init__(self, exists: bool) -> None:
        self.exists = exists
        self.is_sound = True
        self.rows: dict[TopicPartition, OffsetRow] = {}

    def take(self, row: OffsetRow | CheckFinding) -> None:
        """Record an entry, or a fault in the file."""
        if isinstance(row, OffsetRow):
            self.rows[row.topic_partition] = row
        elif row.severity == ERROR:
            self.is_sound = False


class _DataDir(NamedTuple):
    """The state of a data directory according to its files.

    Attributes
    ----------
    checkpoints : mapping of str to _Checkpoint
        Checkpoints by file name.
    is_clean : bool
        Whether the directory was closed cleanly.
    is_crashed : bool
        Whether the next opening recovers the directory, because a broker used it without closing it
        and no longer holds its lock.
    """

    path: str
    checkpoints: Mapping[str, _Checkpoint]
    is_clean: bool
    is_crashed: bool


DEFAULT_LIMITS = ReadLimits()


class Checker:
    """Offline verifier of directories and files.

    Parameters
    ----------
    fs : FileSystem
        Only read; passing a `ReadOnlyFileSystem` ensures this.
    counts : CheckCounts, optional
        Incremented during the check.
    limits : ReadLimits
        Limits above which files and batches are not read but reported as findings.

    Notes
    -----
    Each method yields findings as it runs and never stops at the first one. Requires memory for one
    batch and for the state of producers and transactions, whatever the size of the log.
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
        self._topics_by_id: dict[bytes, str] = {}

    def data_dirs(self, paths: Sequence[str]) -> Iterator[CheckFinding]:
        """Verify the data directories of a broker. The first one contains the topics file.

        Raises
        ------
        InvalidConfigurationError
            A path is a cluster directory, which contains data directories.
        """
        paths = [_trimmed(path) for path in paths]
        for path in paths:
            self._check_data_directory(path)
        return limit_findings(self._data_dirs(paths), self.counts.findings)

    def path(self, path: str) -> Iterator[CheckFinding]:
        """Verify a data directory, a partition directory or a single file.

        A directory with segments but no partitions is treated as a partition with a wrong name. A
        partition is checked against the data directory that contains it.

        A path that no longer exists, because another process moved it, is reported as a finding.

        Raises
        ------
        ValueError
            `path` is a file of an unknown type.
        InvalidConfigurationError
            `path` is a cluster directory, which contains data directories.
        """
        path = _trimmed(path)
        if not self._fs.is_dir(path):
            # In this order, a directory that is moved away in the meantime is not mistaken for a
            # file.
            findings = self._file(path) if self._fs.exists(path) else iter([_missing_path(path)])
            return limit_findings(findings, self.counts.findings)
        try:
            names = self._fs.list_dir(path)
        except FileNotFoundError:
            return limit_findings([_missing_path(path)], self.counts.findings)
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
            return limit_findings(self._one_partition(path, named), self.counts.findings)
        return self.data_dirs([path])

    def _check_data_directory(self, path: str) -> None:
        with suppress(OSError):  # reported when the directory is listed
            if self._fs.is_dir(path):
                check_data_directory(self._fs, path)

    def log_bytes(self, paths: Sequence[str]) -> int:
        """Return the total size of the `.log` files among the paths and in their directories.

        Unreadable files count as 0. The check reports them.
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
        """Return whether a directory is a partition or contains partitions or files of a log.

        Directories with segments count whatever their name, because the check reports it.
        Unreadable directories also count.
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
        """Return the names of the subdirectories, except hidden ones."""
        path = _trimmed(path)
        names = self._list_dir(path) if self._fs.is_dir(path) else []
        return [name for name in names if name[0] != "." and self._fs.is_dir(f"{path}/{name}")]

    def _has_segments(self, path: str) -> bool:
        return any(parse_segment_file(name) is not None for name in self._list_dir(path))

    def _list_dir(self, path: str) -> list[str]:
        try:
            return self._fs.list_dir(path)
        except OSError:
            return []  # already reported

    # -- data directories --------------------------------------------------------------------

    def _data_dirs(self, paths: Sequence[str]) -> Iterator[CheckFinding]:
        topics: dict[str, Topic] = {}
        if paths:
            topics, faults = self._topics(paths[0])
            yield from faults
        moving: set[str] = set()
        for path in paths:
            noted, faults = self._read_moves(path)
            yield from faults
            moving |= {f"{path}/{tp}" for tp in noted}
        owners: dict[TopicPartition, str] = {}
        for path in paths:
            partitions: dict[TopicPartition, str] = {}
            yield from self._catch_errors(path, self._names(path, partitions))
            # Checkpoints contain a removed partition until they are next written.
            suffixed = {
                tp for tp in map(_suffixed_partition, self._list_dir(path)) if tp is not None
            }
            for tp, directory in partitions.items():
                other = owners.setdefault(tp, directory)
                if other == directory:
                    continue
                if moved := [each for each in (other, directory) if each in moving]:
                    yield finding("leftover_folder", moved[0], severity=INFO)
                else:
                    yield finding("duplicate_partition", directory, expected=other)
            yield from self._data_dir(path, partitions, suffixed, topics)
        yield from self._stored_partitions(paths, topics, owners)

    def _names(self, path: str, partitions: dict[TopicPartition, str]) -> Iterator[CheckFinding]:
        for name in self._fs.list_dir(path):
            yield from self._name(path, name, partitions)

    def _name(
        self, path: str, name: str, partitions: dict[TopicPartition, str]
    ) -> Iterator[CheckFinding]:
        """Check a name in a data directory. If it is a partition name, add it to `partitions`."""
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
        suffixed: Collection[TopicPartition],
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
                    # The cleaner checkpoint is not rewritten until the next offset is stored.
                    is_stale = name == CLEANER_OFFSETS or row.topic_partition in suffixed
                    yield finding(
                        "checkpoint_unknown_partition",
                        f"{path}/{name}",
                        row.position,
                        offset=row.offset,
                        found=str(row.topic_partition),
                        severity=INFO if is_stale else WARNING,
                    )
        data_dir = self._describe(path, checkpoints)
        for tp, directory in partitions.items():
            yield from self._partition(data_dir, directory, tp, topics)

    def _partition(
        self, data_dir: _DataDir, directory: str, tp: TopicPartition, topics: Mapping[str, Topic]
    ) -> Iterator[CheckFinding]:
        context = self._context(data_dir, tp, topics)
        check = PartitionCheck(self._fs, directory, context, self.counts, self._limits)
        yield from self._catch_errors(directory, check.run())
        bounds = check.bounds
        yield from self._topic_id(directory, tp.topic, bounds.topic_id)
        for name, checkpoint in data_dir.checkpoints.items():
            if (row := checkpoint.rows.get(tp)) is not None:
                # An unclean shutdown may lose unflushed records. The recovery point is at least the
                # log start. It only proves flushed records if it is above the log start.
                is_of_flushed = name == CLEANER_OFFSETS or (
                    name == RECOVERY_POINTS and row.offset > context.log_start_offset
                )
                severity = ERROR if is_of_flushed or context.is_clean else WARNING
                yield from _check_offset(f"{data_dir.path}/{name}", row, bounds, severity)

    def _context(
        self, data_dir: _DataDir, tp: TopicPartition, topics: Mapping[str, Topic]
    ) -> PartitionContext:
        checkpoints, is_clean = data_dir.checkpoints, data_dir.is_clean
        cleaned, started = checkpoints[CLEANER_OFFSETS], checkpoints[LOG_START_OFFSETS]
        # An unreadable checkpoint may have contained any offset.
        first_dirty = cleaned.rows[tp].offset if tp in cleaned.rows else None
        # The log start checkpoint only contains logs that start above the base offset of their
        # first segment. It is outdated while a process runs or after it crashed.
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

    def _describe(self, path: str, checkpoints: Mapping[str, _Checkpoint]) -> _DataDir:
        lock = f"{path}/{LOCK_FILE}"
        is_clean = is_clean_shutdown(self._fs, path)
        is_brokers = checkpoints[RECOVERY_POINTS].exists or self._fs.exists(lock)
        is_held = self._fs.lock_holder(lock) is not None
        is_crashed = is_brokers and not is_clean and not is_held
        return _DataDir(path, checkpoints, is_clean, is_crashed)

    def _data_dir_around(self, path: str) -> _DataDir:
        """Return the data directory that contains a path, without reporting its faults."""
        checkpoints = {}
        for name in CHECKPOINTS:
            checkpoint = f"{path}/{name}"
            checkpoints[name] = _Checkpoint(self._fs.exists(checkpoint))
            for row in read_offsets(self._fs, checkpoint, self._limits.small_file_bytes):
                checkpoints[name].take(row)
        return self._describe(path, checkpoints)

    def _one_partition(self, path: str, tp: TopicPartition | None) -> Iterator[CheckFinding]:
        """Verify a single partition against the data directory that contains it."""
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

    def _catch_errors(self, path: str, findings: Iterator[CheckFinding]) -> Iterator[CheckFinding]:
        """Convert I/O errors to findings, so that the remaining partitions are still checked."""
        try:
            yield from findings
        except OSError as error:
            yield unreadable(path, error)

    def _read_moves(self, path: str) -> tuple[Collection[TopicPartition], list[CheckFinding]]:
        """Return the partitions moving out of a data directory, which are in two directories."""
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
                topic_id = decode_topic_id(topic.id)
                self._topic_ids[topic.name] = (topic_id, path)
                self._topics_by_id[topic_id] = topic.name
        faults = filter(None, map(_config_fault, stored.values()))
        return stored, [finding("topics_file", path, found=fault) for fault in faults]

    def _stored_partitions(
        self, paths: Sequence[str], topics: dict[str, Topic], owners: dict[TopicPartition, str]
    ) -> Iterator[CheckFinding]:
        """Compare the topics file with the partition folders."""
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
        owner = self._topics_by_id.setdefault(topic_id, topic)
        path, found = f"{directory}/{PARTITION_METADATA}", encode_topic_id(topic_id)
        if known != topic_id:
            expected = f"{encode_topic_id(known)}, as in {where}"
            yield finding("topic_id", path, expected=expected, found=found)
        elif owner != topic:
            expected = f"another id, because topic {owner} has this one"
            yield finding("shared_topic_id", path, expected=expected, found=found, severity=WARNING)

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
        if parsed is not None and parsed.state in LEFTOVER_CHECKS:
            check = LEFTOVER_CHECKS[parsed.state]
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
            return iter(self._read_moves(directory)[1])
        if name == PARTITION_METADATA:
            return self._metadata_file(directory, path)
        raise ValueError(f"{path} is not a log file that can be verified")

    def _segment_file(self, directory: str, path: str, base_offset: int) -> Iterator[CheckFinding]:
        """Verify a segment and yield the findings of one of its files."""
        data_dir, slash, name = directory.rpartition("/")
        data_dir = data_dir or slash or "."
        tp = parse_partition_dir(name) or TopicPartition(name, -1)
        topics, _ = self._topics(data_dir)
        context = self._context(self._data_dir_around(data_dir), tp, topics)
        check = PartitionCheck(
            self._fs, directory, context, self.counts, self._limits, only_base_offset=base_offset
        )
        for row in self._catch_errors(path, check.run()):
            if row.path == path:
                yield row

    def _metadata_file(self, directory: str, path: str) -> Iterator[CheckFinding]:
        try:
            read_partition_metadata(self._fs, directory, self._limits.small_file_bytes)
        except CorruptCheckpointError as error:
            yield finding("partition_metadata", path, found=error.found or error.message)
        except OSError as error:
            yield unreadable(path, error)


def _missing_path(path: str) -> CheckFinding:
    return finding("gone", path, found="moved or removed during the check")


def _check_offset(
    path: str, row: OffsetRow, bounds: PartitionBounds, severity: str
) -> Iterator[CheckFinding]:
    """Check that a checkpointed offset is within its log. `severity` applies beyond the end."""
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
        # The offset was correct before old segments were deleted, and is raised by the next write.
        # The cleaner checkpoint is only written in the cleaner's next round.
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
    """Return whether a partition's topic is compacted, or None if unknown.

    A broker has a cleaner checkpoint in each data directory, and a partition without an entry was
    never cleaned. A partition directory that was copied alone has no checkpoint.
    """
    if tp.topic in INTERNAL_COMPACTED_TOPICS:
        return True
    if (topic := topics.get(tp.topic)) is not None:
        return _COMPACT in [policy.strip() for policy in topic.configs.get(_POLICY, "").split(",")]
    return False if is_checkpointed else None


def _config_fault(topic: Topic) -> str | None:
    """Return the fault in the overrides of a stored topic, or None if they are valid."""
    try:
        effective_config(topic.configs, BrokerConfig())
    except InvalidConfigurationError as error:
        return f"topic {topic.name}: {error}"
    return None


def _is_partitions(folder: str) -> bool:
    """Return whether a directory is named like a partition, with or without a suffix."""
    return parse_partition_dir(folder) is not None or _is_suffixed(folder)


def _is_suffixed(folder: str) -> bool:
    """Return whether a directory name has a suffix that marks a partition as not in use."""
    stem = folder.rpartition(".")[0]
    return folder.endswith(_SUFFIXED_FOLDERS) and parse_partition_dir(stem) is not None


def _suffixed_partition(folder: str) -> TopicPartition | None:
    """Return the partition if the directory name marks it as deleted, moving or stray."""
    parsed = parse_log_dir(folder)
    return parsed.topic_partition if parsed is not None and parsed.state else None


def _is_legal(tp: TopicPartition) -> bool:
    try:
        validate_topic_name(tp.topic)
    except InvalidTopicError:
        return False
    return tp.partition <= INT32_MAX


def _trimmed(path: str) -> str:
    return path.rstrip("/") or path
