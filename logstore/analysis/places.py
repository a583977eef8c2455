"""Places: which data directories, and which folder in them, a path stands for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from logstore.errors import InvalidConfigurationError
from logstore.manager.directories.directory import ShownFolder
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

_RENAMED = re.compile(r"([a-zA-Z0-9._-]+)-([0-9]{1,10})[^0-9a-zA-Z]", re.ASCII)
_ILLEGAL = re.compile(r"[^a-zA-Z0-9._-]")


class Place(NamedTuple):
    """A place that can be opened to be read.

    Attributes
    ----------
    directories : tuple of str
        The data directories.
    shown : ShownFolder or None
        The only folder in them that is meant, whatever its name.
    """

    directories: tuple[str, ...]
    shown: ShownFolder | None = None


def place_of(fs: FileSystem, path: str, called: str | None = None) -> Place:
    """Return what an absolute path of a directory stands for.

    A data directory, one that holds some, or a partition's folder under whatever name.

    Parameters
    ----------
    called : str, optional
        What messages call it.

    Raises
    ------
    InvalidConfigurationError
        There is no such directory, nothing of that kind in it, or it is a cluster's.
    """
    called = path if called is None else called
    if not fs.is_dir(path):
        raise InvalidConfigurationError(f"there is no directory {called}")
    parent, _, name = path.rpartition("/")
    named = partition_of_folder(name)
    folder = Place((parent or "/",), ShownFolder(named, name))
    if _has_segments(fs, path):
        return folder
    nested = find_nested(fs, path)
    check_no_cluster(fs, path, nested)
    if nested:
        return Place(tuple(f"{path}/{child}" for child in nested))
    if _holds_partitions(fs, path) or is_data_directory(fs, path):
        return Place((path,))
    below = [f"{path}/{child}" for child in fs.list_dir(path) if fs.is_dir(f"{path}/{child}")]
    if below := [child for child in below if _is_data_directory(fs, child)]:
        return Place(tuple(below))
    if name != str(named):
        raise InvalidConfigurationError(
            f"{called} is neither a partition directory (TOPIC-NUMBER) nor holds any"
        )
    return folder


def partition_of_folder(name: str) -> TopicPartition:
    """Return the partition that a folder holds, as far as its name tells.

    That of a copy may have been changed: `users-3.bak` is partition 3 of users, `orders.bak` the
    only one of a topic of that name.
    """
    named = parse_log_dir(name)
    if named is not None and not named.state:
        return named.topic_partition
    if name == METADATA_LOG_DIR:
        return METADATA_LOG
    found = _RENAMED.match(name)
    if found is not None and int(found[2]) <= INT32_MAX:
        return TopicPartition(found[1], int(found[2]))
    return TopicPartition(_ILLEGAL.sub("_", name)[:MAX_TOPIC_LENGTH], 0)


def _holds_partitions(fs: FileSystem, path: str) -> bool:
    return any(
        parse_partition_dir(child) is not None and fs.is_dir(f"{path}/{child}")
        for child in fs.list_dir(path)
    )


def _is_data_directory(fs: FileSystem, path: str) -> bool:
    """Tell whether a folder below the one that was named holds partitions, and says so itself."""
    try:
        return fs.exists(f"{path}/meta.properties") or any(
            parse_log_dir(child) is not None
            and fs.is_dir(f"{path}/{child}")
            and _has_segments(fs, f"{path}/{child}")
            for child in fs.list_dir(path)
        )
    except OSError:  # it is not ours to look into
        return False


def _has_segments(fs: FileSystem, path: str) -> bool:
    return any(".log" in name for name in fs.list_dir(path))
