"""`.log` files as they lie: their batches, their records, the bytes behind them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.inspect.batches import describe_batch
from logstore.names import LOG_SUFFIX, parse_partition_dir, parse_segment_file
from logstore.record.batch import RecordBatch, decode_stored
from logstore.record.records import Record
from logstore.record.walk import BatchAt, batch_totals, read_batch, walk_headers
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from logstore.runtime import File, FileSystem
    from logstore.segment.segment import LogSegment


class BatchSource(NamedTuple):
    """A `.log` file to list: where it belongs, and its bytes up to `end`.

    `topic_partition` and `base_offset` are None where the names do not tell.
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


def source_of_file(fs: FileSystem, path: str, decompression_limit: int) -> BatchSource:
    """Open one `.log` file, whatever state its name says it is in.

    Raises
    ------
    FileNotFoundError
    """
    directory, _, name = path.rpartition("/")
    parts = parse_segment_file(name)
    is_log = parts is not None and parts.kind == LOG_SUFFIX
    file = fs.open(path)
    return BatchSource(
        parse_partition_dir(directory.rpartition("/")[2]),
        parts.base_offset if parts is not None and is_log else None,
        path,
        file,
        file.size(),
        decompression_limit,
    )


def describe_batches(source: BatchSource) -> Iterator[dict[str, Any]]:
    """Yield the batches of a file by the names of kafka-dump-log, each with its CRC checked.

    Raises
    ------
    CorruptRecordError, UnsupportedFormatError
        The walk met bytes that are no batch, after the sound ones before.
    """
    for at, batch in _walk(source):
        yield {**describe_batch(batch, at.position), "segment": source.base_offset}


class StoredRecord(NamedTuple):
    """A record as it lies in a file."""

    batch: RecordBatch
    position: int
    record: Record


def stored_records(source: BatchSource, start_offset: int = 0) -> Iterator[StoredRecord]:
    """Yield the records of a file from `start_offset` on, control records included.

    Raises
    ------
    CorruptRecordError, UnsupportedFormatError
        A batch is damaged; names file and position.
    """
    for at, batch in _walk(source):
        if at.header.last_offset < start_offset:
            continue
        batch.ensure_valid()
        for record in decode_stored(batch, source.decompression_limit):
            if record.offset >= start_offset:
                yield StoredRecord(batch, at.position, record)


def _walk(source: BatchSource) -> Iterator[tuple[BatchAt, RecordBatch]]:
    for at in walk_headers(source.file, source.path, 0, source.end):
        yield at, read_batch(source.file, source.path, at.position, at.header.size_bytes)


def invalid_tail_bytes(source: BatchSource) -> int:
    """Return the bytes after the last whole batch of a file whose batches are sound."""
    return source.end - batch_totals(source.file, source.path, source.end).end_position
