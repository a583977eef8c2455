"""Directories that contain data directories: cluster directories and mount points.

A data directory contains partition folders, `TOPIC-NUMBER`. A cluster directory contains a data
directory per broker (`broker-0`, `broker-1` and so on) and the controller's file. The names look
alike, because `broker-0` is also partition 0 of a topic named `broker`. Therefore the files in a
folder decide.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from logstore.errors import InvalidConfigurationError
from logstore.manager.directories.move_notes import MOVES_FILE
from logstore.manager.topics.store import TOPICS_FILE
from logstore.names import (
    CLUSTER_FILE,
    CONTROLLER_DIR,
    FORMER_COORDINATOR_DIR,
    LOCK_FILE,
    META_PROPERTIES,
    PRODUCER_IDS_FILE,
    RAFT_BOOTSTRAP,
    parse_log_dir,
    parse_segment_file,
)
from logstore.storage.checkpoint.offsets import CHECKPOINTS
from logstore.storage.checkpoint.shutdown import CLEAN_SHUTDOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logstore.runtime import FileSystem

DATA_DIRECTORY_FILES = frozenset(
    {
        *CHECKPOINTS,
        CLEAN_SHUTDOWN,
        TOPICS_FILE,
        MOVES_FILE,
        PRODUCER_IDS_FILE,
        META_PROPERTIES,
        RAFT_BOOTSTRAP,
        LOCK_FILE,
    }
)
"""Files that a broker creates in data directories but never in partition folders."""

_BROKER_DIR = re.compile(r"broker-([0-9]+)", re.ASCII)


def is_data_directory(fs: FileSystem, path: str) -> bool:
    """Return whether a folder named like a partition is a data directory.

    A partition folder that was mistakenly opened as a data directory also contains such files, but
    it contains segments and no partitions.
    """
    names = fs.list_dir(path)
    if DATA_DIRECTORY_FILES.isdisjoint(names):
        return False
    return not _has_segments(names) or any(
        parse_log_dir(name) is not None and fs.is_dir(f"{path}/{name}") for name in names
    )


def find_nested(fs: FileSystem, path: str) -> list[str]:
    """Return the data directories in a directory that are named like a partition.

    Without the controller's file, the search is limited to directories that no broker has opened
    for writing, because a directory with its own checkpoints is a data directory.
    """
    is_cluster = is_cluster_directory(fs, path)
    names = fs.list_dir(path)
    if not is_cluster and any(name in DATA_DIRECTORY_FILES - {LOCK_FILE} for name in names):
        return []
    folders = [name for name in names if parse_log_dir(name) is not None]
    return [
        name
        for name in folders
        if (is_cluster and _BROKER_DIR.fullmatch(name)) or _is_nested(fs, f"{path}/{name}")
    ]


def check_no_cluster(fs: FileSystem, path: str, nested: Sequence[str]) -> None:
    """Raise an error for a cluster directory. `nested` is the result of `find_nested`.

    Raises
    ------
    InvalidConfigurationError
        The message explains how to open a single broker and how to serve all of them.
    """
    numbers = [int(match[1]) for name in nested if (match := _BROKER_DIR.fullmatch(name))]
    is_new = fs.is_dir(f"{path}/{CONTROLLER_DIR}") and 0 < len(numbers) == len(nested)
    if is_new or is_cluster_directory(fs, path):
        count = max(numbers, default=0) + 1
        text = (
            f"{path} is the directory of a cluster: its folders broker-0, broker-1 and so on are"
            f" not partitions. Use the data directory of one broker (--data-dir {path}/broker-0) or"
            f" serve the cluster (logstore serve --brokers {count} --data-dir {path})"
        )
        former = f"{path}/{FORMER_COORDINATOR_DIR}"
        if fs.is_dir(former):
            text += (
                ". An earlier version wrote it: __consumer_offsets and __transaction_state are in"
                f" {former} until the cluster is opened, which moves them to the brokers"
            )
        raise InvalidConfigurationError(text)


def check_data_directory(fs: FileSystem, path: str) -> None:
    """Raise an error if a directory contains the data directories of several brokers or disks.

    Otherwise these directories would be written, cleaned and deleted as partitions.

    Raises
    ------
    InvalidConfigurationError
        The message names a directory to use instead.
    """
    nested = find_nested(fs, path)
    check_no_cluster(fs, path, nested)
    if nested:
        raise InvalidConfigurationError(
            f"{path} is not a data directory but contains data directories"
            f" ({', '.join(nested)}). Use"
            f" one of them, or all that belong to the same broker: --data-dir {path}/{nested[0]}"
        )


def is_cluster_directory(fs: FileSystem, path: str) -> bool:
    """Return whether a directory contains the file of a cluster's controller."""
    return fs.exists(f"{path}/{CONTROLLER_DIR}/{CLUSTER_FILE}")


def check_cluster_directory(fs: FileSystem, path: str) -> None:
    """Raise an error if a directory belongs to a single broker instead of a cluster.

    Raises
    ------
    InvalidConfigurationError
        The message names a file or folder that a cluster directory never contains.
    """
    if not fs.is_dir(path) or is_cluster_directory(fs, path):
        return
    for name in fs.list_dir(path):
        is_folder = parse_log_dir(name) is not None and fs.is_dir(f"{path}/{name}")
        if name in DATA_DIRECTORY_FILES or (is_folder and _is_partition(fs, f"{path}/{name}")):
            raise InvalidConfigurationError(
                f"{path} is the data directory of one broker, since it has {name}: serve it without"
                " --brokers, or give the cluster another directory"
            )


def _is_nested(fs: FileSystem, path: str) -> bool:
    try:
        return fs.is_dir(path) and is_data_directory(fs, path)
    except OSError:  # reported when the folder is opened
        return False


def _is_partition(fs: FileSystem, path: str) -> bool:
    """Return whether a folder contains a partition's files. A broker's new folder does not."""
    return _has_segments(fs.list_dir(path)) and not is_data_directory(fs, path)


def _has_segments(names: Sequence[str]) -> bool:
    return any(parse_segment_file(name) is not None for name in names)
