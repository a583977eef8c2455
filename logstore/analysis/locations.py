"""Resolve paths to data directories or partition directories."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from logstore.errors import InvalidConfigurationError
from logstore.manager.directories.directory import OpenedFolder
from logstore.manager.directories.nesting import check_no_cluster, find_nested, is_data_directory
from logstore.names import (
    MAX_TOPIC_LENGTH,
    METADATA_LOG,
    METADATA_LOG_DIR,
    parse_log_dir,
    parse_partition_dir,
)
from logstore.types import INT32_MAX, TopicPartition

if TYPE_CHECKING:
    from logstore.runtime import FileSystem

_RENAMED_FOLDER = re.compile(r"([a-zA-Z0-9._-]+)-([0-9]{1,10})[^0-9a-zA-Z]", re.ASCII)
_ILLEGAL = re.compile(r"[^a-zA-Z0-9._-]")


class Location(NamedTuple):
    """Data directories to open for reading, or a single partition directory in them.

    Attributes
    ----------
    directories : tuple of str
        The data directories.
    shown : OpenedFolder or None
        The only directory to show, under any name, or None for all.
    """

    directories: tuple[str, ...]
    shown: OpenedFolder | None = None


def locate(fs: FileSystem, path: str, display_name: str | None = None) -> Location:
    """Resolve the absolute path of a directory.

    The path may be a data directory, a directory of data directories, or a partition directory with
    any name.

    Parameters
    ----------
    display_name : str, optional
        The path as shown in messages.

    Raises
    ------
    InvalidConfigurationError
        The directory does not exist, contains no partitions, or belongs to a cluster.
    """
    display_name = path if display_name is None else display_name
    if not fs.is_dir(path):
        raise InvalidConfigurationError(f"directory {display_name} does not exist")
    parent, _, name = path.rpartition("/")
    named = partition_of_folder(name)
    folder = Location((parent or "/",), OpenedFolder(named, name))
    if _has_segments(fs, path):
        return folder
    nested = find_nested(fs, path)
    check_no_cluster(fs, path, nested)
    if nested:
        return Location(tuple(f"{path}/{child}" for child in nested))
    if _holds_partitions(fs, path) or is_data_directory(fs, path):
        return Location((path,))
    below = [f"{path}/{child}" for child in fs.list_dir(path) if fs.is_dir(f"{path}/{child}")]
    if below := [child for child in below if _is_data_directory(fs, child)]:
        return Location(tuple(below))
    if name != str(named):
        raise InvalidConfigurationError(
            f"{display_name} is not a partition directory (TOPIC-NUMBER) and contains none"
        )
    return folder


def partition_of_folder(name: str) -> TopicPartition:
    """Return the partition in a directory, according to the directory's name.

    Copies may have different names: `users-3.bak` is partition 3 of users, and `orders.bak` is
    partition 0 of a topic with that name.
    """
    named = parse_log_dir(name)
    if named is not None and not named.state:
        return named.topic_partition
    if name == METADATA_LOG_DIR:
        return METADATA_LOG
    renamed = _RENAMED_FOLDER.match(name)
    if renamed is not None and int(renamed[2]) <= INT32_MAX:
        return TopicPartition(renamed[1], int(renamed[2]))
    return TopicPartition(_ILLEGAL.sub("_", name)[:MAX_TOPIC_LENGTH], 0)


def _holds_partitions(fs: FileSystem, path: str) -> bool:
    return any(
        parse_partition_dir(child) is not None and fs.is_dir(f"{path}/{child}")
        for child in fs.list_dir(path)
    )


def _is_data_directory(fs: FileSystem, path: str) -> bool:
    """Return whether a subdirectory is recognizable as a data directory with partitions."""
    try:
        return fs.exists(f"{path}/meta.properties") or any(
            parse_log_dir(child) is not None
            and fs.is_dir(f"{path}/{child}")
            and _has_segments(fs, f"{path}/{child}")
            for child in fs.list_dir(path)
        )
    except OSError:  # the directory is not readable
        return False


def _has_segments(fs: FileSystem, path: str) -> bool:
    return any(".log" in name for name in fs.list_dir(path))
