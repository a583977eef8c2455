"""A pass over a partition: map the dirty section, rewrite segments, and swap them in.

A pass is a generator that yields before each chunk that it maps or rewrites. The caller can then
report progress, throttle the pass, or throw `CleaningAbortedError`. A suspended pass holds no lock.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from logstore.cleaner.errors import CleaningAbortedError
from logstore.cleaner.passes.build import MapBuild, SeedPass, new_map
from logstore.cleaner.passes.chunks import ChunkReader
from logstore.cleaner.passes.grouping import batch_groups, group_segments
from logstore.cleaner.passes.rewrite import Observer, Rewriter, Rules
from logstore.cleaner.passes.transactions import AbortedTransactions
from logstore.cleaner.stats import FATE_NAMES, CleanerStats
from logstore.cleaner.strategy import Strategy
from logstore.errors import SegmentOverflowError
from logstore.storage.segment.swap import create_cleaned
from logstore.types import INT64_MIN

if TYPE_CHECKING:
    from logstore.cleaner.config import CleanerConfig
    from logstore.storage.log.log import Log
    from logstore.storage.segment.segment import LogSegment


class PassProgress(NamedTuple):
    """Progress of a pass.

    Attributes
    ----------
    phase : str
        `map`, `seed` (the clean section, for version strategies) or `rewrite`.
    bytes_done, bytes_total : int
        Number of bytes in the current phase: before the next chunk, and in total.
    bytes_read, bytes_written : int
        Input and output of the pass so far, including the next chunk's input.
    """

    phase: str
    bytes_done: int
    bytes_total: int
    bytes_read: int
    bytes_written: int


Pass = Generator[PassProgress, None, CleanerStats]

Replacement = tuple["LogSegment", list["LogSegment"]]
"""A cleaned segment, and the source segments it replaces."""


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
    """Clean the offsets below `upper_bound_offset`, retaining the survivor of each key.

    The compaction strategy is determined when the pass starts.

    Parameters
    ----------
    first_dirty_offset : int
        End of the section that is already clean.
    upper_bound_offset : int
        Base offset of the first segment that is not cleaned, at most the active segment's. If it is
        not above `first_dirty_offset`, no key is mapped, and the clean section is rewritten once to
        remove expired tombstones. In a dry run, the active segment may be below it, as if it had
        been rolled.
    dry_run : bool
        Decide the fate of every record, but write nothing and swap nothing.
    observer : Observer, optional
        Called with each chunk of the rewrite after its records have been classified.

    Returns
    -------
    CleanerStats
        `end_offset` is the next first dirty offset, which is never below the current one. It is
        below the upper bound if the map became full.

    Raises
    ------
    CleaningAbortedError
        Thrown by the caller. Groups that were already swapped remain, and unfinished output is
        removed.
    CorruptRecordError, UnsupportedFormatError, SegmentOverflowError, KafkaStorageError, OSError
        Unfinished `.cleaned` files remain and are removed when the log is loaded.

    Notes
    -----
    Requires memory for the map and the I/O buffers, regardless of log size. Source:
    docs/spec/cleaner.md §1.
    """
    log.check_open()
    generation = log.generation
    clock = log.runtime.clock
    now_ms = clock.now_ms()
    log_end_offset = log.log_end_offset  # read after the clock; older records are below it
    started_ns = clock.monotonic_ns()
    strategy = Strategy.of(log.config)
    key_map = new_map(
        log, config, strategy, first_dirty_offset, upper_bound_offset, with_winners=observer is None
    )
    reader = ChunkReader(config.io_buffer_bytes, log.config.logstore_decompression_max_bytes)
    aborted = AbortedTransactions(log)
    build = MapBuild(
        log, first_dirty_offset, upper_bound_offset, key_map, reader, strategy, aborted=aborted
    )
    total = sum(s.size_bytes for s in log.segments.between(first_dirty_offset, upper_bound_offset))
    reader.bytes_ahead = total
    done = 0
    for size in build.steps():
        yield PassProgress("map", done, total, done + size, 0)
        done += size
    map_messages_read = build.messages_read
    end_offset = key_map.latest_offset + 1
    assert end_offset <= max(first_dirty_offset, upper_bound_offset)
    assert end_offset > first_dirty_offset or first_dirty_offset >= upper_bound_offset
    read_bytes = done
    seed = SeedPass(log, first_dirty_offset, key_map, reader, strategy, aborted=aborted)
    for size in seed.steps():
        yield PassProgress("seed", seed.bytes_read, seed.bytes_total, read_bytes + size, 0)
        read_bytes += size
    mapped_ns = clock.monotonic_ns()
    rewriter = Rewriter(
        log,
        key_map,
        reader,
        first_dirty_offset=first_dirty_offset,
        upper_bound_offset=upper_bound_offset,
        now_ms=now_ms,
        rules=Rules(
            strategy,
            keep_offset=log_end_offset - 1,
            safe_ms=now_ms if end_offset == log_end_offset else _last_modified_ms(log, end_offset),
        ),
        verified=seed.verified,
        locations=build.locations,
        discarded=build.discarded,
        aborted=aborted,
        observer=observer,
    )
    sources = [s for s in log.segments if s.base_offset < min(end_offset, upper_bound_offset)]
    groups = group_segments(sources, log.config, upper_bound_offset)
    total = sum(segment.size_bytes for segment in sources)
    done = 0
    for batch in batch_groups(groups):
        destinations: list[LogSegment] = []
        try:
            for group in batch:
                destination = None
                if not dry_run:
                    destination = _create_destination(log, group[0].base_offset)
                    destinations.append(destination)
                for size in rewriter.steps(group, destination):
                    read_bytes += size
                    yield PassProgress("rewrite", done, total, read_bytes, rewriter.bytes_written)
                    done += size
        except BaseException as error:
            _give_up(log, destinations, error)
            raise
        if not dry_run:
            replacements = list(zip(destinations, batch, strict=True))
            _finish(replacements)
            _swap(log, replacements, generation)
    return CleanerStats(
        topic_partition=log.topic_partition,
        pass_number=pass_number,
        strategy=strategy.name,
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
        map_messages_read=map_messages_read,
        seed_bytes_read=seed.bytes_read,
        seed_messages_read=seed.messages_read,
        unversioned_records=build.unversioned,
        malformed_versions=build.malformed,
        map_entries=len(key_map),
        map_utilization=key_map.utilization,
        fates=dict(zip(FATE_NAMES, rewriter.fates.tolist(), strict=True)),
        index_ms=(mapped_ns - started_ns) // 1_000_000,
        clean_ms=(clock.monotonic_ns() - mapped_ns) // 1_000_000,
    )


def _last_modified_ms(log: Log, end_offset: int) -> int:
    """Return when the last segment that is entirely below an offset was modified.

    Later records were not appended before that time (docs/spec/cleaner.md §13.7). INT64_MIN if
    there is none.
    """
    below = [
        segment
        for segment, following in pairwise(log.segments.view)
        if following.base_offset <= end_offset
    ]
    return below[-1].last_modified_ms if below else INT64_MIN


def _create_destination(log: Log, base_offset: int) -> LogSegment:
    return create_cleaned(log.runtime, log.directory, base_offset, log.config)


def _give_up(log: Log, destinations: list[LogSegment], error: BaseException) -> None:
    """Remove the output of unfinished groups, or leave its removal to loading.

    After an abort and before a split, all output is removed, because `.cleaned` files with a higher
    base offset would invalidate the new files of the split. After damage, the last file remains.
    After a disk failure, all files remain.
    """
    is_expected = isinstance(error, (CleaningAbortedError, GeneratorExit, SegmentOverflowError))
    failed = (
        log.is_offline
        or isinstance(error, OSError)
        or not isinstance(error, (Exception, GeneratorExit))
    )
    for destination in destinations:
        is_kept = failed or not (is_expected or destination is not destinations[-1])
        # If the log is closed or belongs to a parent process, another pass might be using these
        # names.
        if is_kept or log.lifetime.is_over:
            destination.close_handlers()
        else:
            destination.delete_if_exists()


def _finish(replacements: list[Replacement]) -> None:
    """Complete cleaned segments: write the last time index entries, trim, flush, set file times.

    Each step is done for all segments before the next step, because consecutive fsyncs are fast.
    """
    for destination, _ in replacements:
        destination.on_become_inactive()
    for destination, _ in replacements:
        destination.flush()
    for destination, group in replacements:
        # A source that was removed in the meantime is below the log start, so its time does not
        # matter.
        with suppress(FileNotFoundError):
            destination.set_last_modified_ms(group[-1].last_modified_ms)


def _swap(log: Log, replacements: list[Replacement], generation: int) -> None:
    """Replace source segments with cleaned ones, unless the log was truncated in the meantime.

    Raises
    ------
    CleaningAbortedError
        The cleaned records might no longer be part of the log (KAFKA-631).
    """
    with log.lock:
        if log.generation == generation:
            log.check_open()
            new: list[LogSegment] = []
            old: list[LogSegment] = []
            for destination, group in replacements:
                if any(segment.base_offset in log.segments for segment in group):
                    new.append(destination)
                    old += group
                else:  # retention has already removed the sources
                    destination.delete_if_exists()
            log.replace_segments(new, old, apart=True)
            return
    for destination, _ in replacements:
        destination.delete_if_exists()
    raise CleaningAbortedError(f"{log.topic_partition} was truncated during its cleaning")
