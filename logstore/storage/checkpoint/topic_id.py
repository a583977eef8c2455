"""`partition.metadata`, which contains the id of a partition's topic (KIP-516)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from logstore.errors import CorruptCheckpointError
from logstore.runtime.fs import FileSystem
from logstore.storage.checkpoint.atomic import (
    read_bytes,
    write_all_atomically,
    write_atomically,
)
from logstore.storage.checkpoint.rows import CHECKPOINT_VERSION, Row, parse_number
from logstore.types import LINE_END, SMALL_FILE_MAX_BYTES, decode_topic_id, encode_topic_id

if TYPE_CHECKING:
    from logstore.runtime import Runtime

PARTITION_METADATA = "partition.metadata"

_METADATA_GAP = re.compile(r":[ \t]+")


def read_partition_metadata(
    fs: FileSystem, directory: str, max_bytes: int = SMALL_FILE_MAX_BYTES
) -> bytes | None:
    """Return the topic id stored in a partition's directory.

    Returns
    -------
    bytes or None
        16 bytes, never all zero, or None if the partition has no `partition.metadata`.

    Raises
    ------
    CorruptCheckpointError
        A line is missing or malformed, the version is negative, or the id is zero.
    """
    path = f"{directory}/{PARTITION_METADATA}"
    try:
        data = read_bytes(fs, path, max_bytes)
    except FileNotFoundError:
        return None
    lines = LINE_END.split(data.decode("utf-8", errors="replace"))
    version_text = _metadata_value(path, lines, 1, "version")
    if parse_number(path, Row(1, [version_text]), 0, "version", bits=32) < 0:
        raise CorruptCheckpointError(
            f"line 1: negative version {version_text}", path=path, check="version"
        )
    id_text = _metadata_value(path, lines, 2, "topic_id")
    try:
        topic_id = decode_topic_id(id_text)
    except ValueError as error:
        raise CorruptCheckpointError(
            f"line 2: {error}", path=path, check="topic_id", found=id_text
        ) from error
    if not any(topic_id):
        raise CorruptCheckpointError(
            "line 2: the topic id is zero", path=path, check="topic_id", found=id_text
        )
    return topic_id


def write_partition_metadata(fs: FileSystem, directory: str, topic_id: bytes) -> None:
    """Store a topic id durably in a partition's directory: 16 bytes, not all zero."""
    write_atomically(fs, f"{directory}/{PARTITION_METADATA}", _encode(topic_id))


def write_all_partition_metadata(runtime: Runtime, topic_ids: Mapping[str, bytes]) -> None:
    """Store the topic ids of several partitions durably, given by partition directory."""
    write_all_atomically(
        runtime,
        {f"{path}/{PARTITION_METADATA}": _encode(each) for path, each in topic_ids.items()},
    )


def _encode(topic_id: bytes) -> bytes:
    assert any(topic_id), "the zero id is not a topic id"
    return f"version: {CHECKPOINT_VERSION}\ntopic_id: {encode_topic_id(topic_id)}".encode()


def _metadata_value(path: str, lines: Sequence[str], number: int, name: str) -> str:
    text = lines[number - 1] if number <= len(lines) else ""
    found, *values = _METADATA_GAP.split(text)
    if found != name or len(values) != 1:
        raise CorruptCheckpointError(
            f"line {number}: {name!r} and its value expected, found {text!r}",
            path=path,
            check=name,
            found=text,
        )
    return values[0]
