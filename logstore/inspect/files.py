"""Batches and records of `.log` files as they are on disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.inspect.batches import describe_batch, describe_old
from logstore.inspect.internal_topics import CLUSTER_METADATA_TOPIC
from logstore.names import (
    LOG_SUFFIX,
    is_raft_snapshot,
    parse_partition_dir,
    parse_segment_file,
)
from logstore.record import layout, legacy
from logstore.record.batch import RecordBatch, decode_stored
from logstore.record.records import Record
from logstore.record.survey import Damage, SegmentBounds, ValidBatch, survey
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from logstore.runtime import File, FileSystem
    from logstore.storage.segment.segment import LogSegment


class BatchSource(NamedTuple):
    """A `.log` file to list up to the position `end`.

    `topic_partition` and `base_offset` are None if they cannot be derived from the path.
    """

    topic_partition: TopicPartition | None
    base_offset: int | None
    path: str
    file: File
    end: int
    decompression_limit: int


def sources_of(
    topic_partition: TopicPartition, segments: Iterable[LogSegment]
) -> Iterator[BatchSource]:
    """Yield the files of a partition's segments."""
    for segment in segments:
        yield BatchSource(
            topic_partition,
            segment.base_offset,
            segment.log_path,
            segment.file,
            segment.size_bytes,
            segment.config.logstore_decompression_max_bytes,
        )


def source_of_segment(fs: FileSystem, path: str, source: BatchSource) -> BatchSource:
    """Reopen a segment's file to read it as it is on disk."""
    file = fs.open(path)
    return source._replace(path=path, file=file, end=file.size())


def source_of_file(fs: FileSystem, path: str, decompression_limit: int) -> BatchSource:
    """Open a `.log` file, with or without a suffix such as `.cleaned`, or a Raft snapshot.

    Raises
    ------
    FileNotFoundError
    """
    directory, _, name = path.rpartition("/")
    parts = parse_segment_file(name)
    is_log = parts is not None and parts.kind == LOG_SUFFIX
    file = fs.open(path)
    topic_partition = parse_partition_dir(directory.rpartition("/")[2])
    if topic_partition is None and is_raft_snapshot(name):  # such as bootstrap.checkpoint
        topic_partition = TopicPartition(CLUSTER_METADATA_TOPIC, 0)
    return BatchSource(
        topic_partition,
        parts.base_offset if parts is not None and is_log else None,
        path,
        file,
        file.size(),
        decompression_limit,
    )


def describe_batches(source: BatchSource, damages: list[Damage]) -> Iterator[dict[str, Any]]:
    """Yield the batches of a file with kafka-dump-log's field names, and check their CRCs.

    Batches with a wrong CRC are included.

    Parameters
    ----------
    damages : list of Damage
        Receives the damage found. Damage with no valid batch after it is the end of the file.
    """
    for item in _walk(source):
        if isinstance(item, Damage):
            damages.append(item)
            if item.check != "crc":
                continue
            data = source.file.read(item.position, item.size_bytes)
            facts = describe_batch(RecordBatch(data), item.position)
        else:
            facts = describe_batch(item.batch, item.position)
            if item.magic != layout.MAGIC:
                data = source.file.read(item.position, item.end_position - item.position)
                facts |= describe_old(legacy.parse_message(data))
        yield {**facts, "segment": source.base_offset}


class StoredRecord(NamedTuple):
    """A record and its batch as stored in a file."""

    batch: RecordBatch
    position: int
    record: Record


def stored_records(
    source: BatchSource, start_offset: int, damages: list[Damage]
) -> Iterator[StoredRecord]:
    """Yield the records of a file from `start_offset` on, including control records.

    `damages` is filled as by `describe_batches`.
    """
    for item in valid_batches(source, damages):
        if item.batch.header.last_offset < start_offset:
            continue
        for record in decode_stored(item.batch, source.decompression_limit):
            if record.offset >= start_offset:
                yield StoredRecord(item.batch, item.position, record)


def valid_batches(source: BatchSource, damages: list[Damage]) -> Iterator[ValidBatch]:
    """Yield the valid batches of a file. `damages` is filled as by `describe_batches`."""
    for item in _walk(source):
        if isinstance(item, Damage):
            damages.append(item)
        else:
            yield item


def _walk(source: BatchSource) -> Iterator[ValidBatch | Damage]:
    base_offset = source.base_offset
    if base_offset is None:  # not in the file name; take it from the first batch
        base_offset = max(0, int.from_bytes(source.file.read(0, 8), "big", signed=True))
    bounds = SegmentBounds(source.path, base_offset, base_offset, None)
    return survey(source.file, bounds, source.decompression_limit, source.end)
