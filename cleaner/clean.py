"""One pass over one partition: map the dirty section, rewrite, swap.

A pass is a generator. It yields before every chunk it maps or filters, so that whoever drives
it can report progress, throttle, or throw `CleaningAbortedError` into it; it holds no lock then.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple

from cleaner.build import MapBuild
from cleaner.chunks import ChunkReader
from cleaner.errors import CleaningAbortedError
from cleaner.grouping import group_segments
from cleaner.offset_map import OffsetMap
from cleaner.rewrite import Observer, Rewriter, create_destination
from cleaner.stats import FATE_NAMES, CleanerStats

if TYPE_CHECKING:
    from cleaner.config import CleanerConfig
    from logstore.log import Log
    from logstore.segment import LogSegment


class PassProgress(NamedTuple):
    """Where a pass stands.

    Attributes
    ----------
    phase : str
        `map` or `rewrite`.
    bytes_done, bytes_total : int
        Bytes of the phase before the chunk that comes next, and all of them.
    bytes_read, bytes_written : int
        Input and output of the whole pass so far, that chunk's reading included.
    """

    phase: str
    bytes_done: int
    bytes_total: int
    bytes_read: int
    bytes_written: int


Pass = Generator[PassProgress, None, CleanerStats]


def clean_pass(
    log: Log,
    config: CleanerConfig,
    first_dirty_offset: int,
    upper_bound_offset: int,
    *,
    pass_number: int = 1,
    dry_run: bool = False,
    observer: Observer | None = None,
) -> Pass:
    """Clean offsets below `upper_bound_offset` by the latest record of each key.

    Parameters
    ----------
    first_dirty_offset : int
        Everything below was cleaned before.
    upper_bound_offset : int
        Base of the first segment not to touch; at most the active segment's. When it is not
        above `first_dirty_offset`, nothing is mapped and the clean section below it is
        rewritten once, for its expired tombstones. In a dry run also the active segment may lie
        below, as if it had been rolled.
    dry_run : bool
        Decide every record's fate, but write and swap nothing.
    observer : Observer, optional
        Shown each chunk of the rewrite once its records were judged.

    Returns
    -------
    CleanerStats
        `end_offset` is the next first dirty offset, never below this one; below the upper
        bound if the map was full.

    Raises
    ------
    CleaningAbortedError
        Thrown in by the driver. Groups that were swapped stay; the unfinished one is removed.
    CorruptRecordError, UnsupportedFormatError, SegmentOverflowError, KafkaStorageError, OSError
        The unfinished `.cleaned` files stay for the loader to remove.

    Notes
    -----
    Memory: the map and the I/O buffers, whatever the log's size. Source: cleaner-semantics §1.
    """
    log.check_open()
    generation = log.generation
    clock = log.runtime.clock
    now_ms = clock.now_ms()
    started_ns = clock.monotonic_ns()
    offset_map = OffsetMap(
        config.dedupe_buffer_bytes,
        config.load_factor,
        base_offset=first_dirty_offset,
        max_entries=upper_bound_offset - first_dirty_offset,
        rng=log.runtime.rng,
    )
    reader = ChunkReader(config.io_buffer_bytes)
    build = MapBuild(log, first_dirty_offset, upper_bound_offset, offset_map, reader)
    total = sum(s.size_bytes for s in log.segments.between(first_dirty_offset, upper_bound_offset))
    done = 0
    for size in build.steps():
        yield PassProgress("map", done, total, done + size, 0)
        done += size
    mapped_ns = clock.monotonic_ns()
    end_offset = offset_map.latest_offset + 1
    assert end_offset <= max(first_dirty_offset, upper_bound_offset)
    assert end_offset > first_dirty_offset or first_dirty_offset >= upper_bound_offset
    rewriter = Rewriter(
        log,
        offset_map,
        reader,
        first_dirty_offset=first_dirty_offset,
        upper_bound_offset=upper_bound_offset,
        now_ms=now_ms,
        observer=observer,
    )
    sources = [s for s in log.segments if s.base_offset < min(end_offset, upper_bound_offset)]
    groups = group_segments(sources, log.config, upper_bound_offset)
    total = sum(segment.size_bytes for segment in sources)
    mapped_bytes, done = done, 0
    for group in groups:
        destination = None if dry_run else create_destination(log, group[0].base_offset)
        try:
            for size in rewriter.steps(group, destination):
                read = mapped_bytes + done + size
                yield PassProgress("rewrite", done, total, read, rewriter.bytes_written)
                done += size
        except (CleaningAbortedError, GeneratorExit):
            if destination is not None:
                destination.delete_if_exists()
            raise
        except BaseException:
            if destination is not None:
                destination.close_handlers()
            raise
        if destination is not None:
            _finish_destination(destination, group[-1])
            _swap(log, destination, group, generation)
    return CleanerStats(
        topic_partition=log.topic_partition,
        pass_number=pass_number,
        strategy="offset",
        first_dirty_offset=first_dirty_offset,
        end_offset=end_offset,
        segments_before=len(sources),
        segments_after=len(groups),
        bytes_read=rewriter.bytes_read,
        bytes_written=rewriter.bytes_written,
        messages_read=rewriter.messages_read,
        messages_written=rewriter.messages_written,
        invalid_messages_read=int(rewriter.fates[FATE_NAMES.index("null_key")]),
        map_bytes_read=build.bytes_read,
        map_messages_read=build.messages_read,
        map_entries=len(offset_map),
        map_utilization=offset_map.utilization,
        fates=dict(zip(FATE_NAMES, rewriter.fates.tolist(), strict=True)),
        index_ms=(mapped_ns - started_ns) // 1_000_000,
        clean_ms=(clock.monotonic_ns() - mapped_ns) // 1_000_000,
    )


def _swap(log: Log, destination: LogSegment, group: list[LogSegment], generation: int) -> None:
    """Put the cleaned segment in the place of its sources, unless the log was truncated since.

    Raises
    ------
    CleaningAbortedError
        What was read may no longer be part of the log (KAFKA-631).
    """
    with log.lock:
        if log.generation == generation:
            log.replace_segments([destination], group)
            return
    destination.delete_if_exists()
    raise CleaningAbortedError(f"{log.topic_partition} was truncated during its cleaning")


def _finish_destination(destination: LogSegment, last_source: LogSegment) -> None:
    """Complete a cleaned segment: last time entry, trimmed, durable, dated as its source."""
    modified_ms = last_source.last_modified_ms
    destination.on_become_inactive()
    destination.flush()
    destination.set_last_modified_ms(modified_ms)
