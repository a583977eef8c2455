"""Build the map of the surviving record for each key in the dirty section.

Source: docs/spec/cleaner.md §5, §13.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from logstore import jit
from logstore.cleaner.errors import OffsetMapFullError
from logstore.cleaner.kernels.mapping import Build, KeyBlock, map_batches
from logstore.cleaner.kernels.table import DAMAGED, MAP_FULL
from logstore.cleaner.passes.chunks import Chunk, ChunkReader, end_of
from logstore.cleaner.passes.locations import BatchLocations
from logstore.cleaner.passes.offset_map import KeyMap, OffsetMap
from logstore.cleaner.passes.transactions import AbortedTransactions, TransactionState
from logstore.cleaner.passes.version_map import VersionMap, kernel_strategy
from logstore.cleaner.strategy import TIMESTAMP, Strategy

if TYPE_CHECKING:
    from logstore.cleaner.config import CleanerConfig
    from logstore.storage.log.log import Log
    from logstore.storage.segment.segment import LogSegment


def new_map(
    log: Log,
    config: CleanerConfig,
    strategy: Strategy,
    start_offset: int,
    end_offset: int,
    *,
    with_winners: bool = False,
) -> KeyMap:
    """Return an empty map for the keys in [start, end), optionally with a bit per offset.

    Raises
    ------
    InvalidConfigurationError
        The buffer is too small to make progress.
    """
    memory, load = config.dedupe_buffer_bytes, config.load_factor
    keys = max(0, end_offset - start_offset)
    rng = log.runtime.rng
    winners_end = end_offset if with_winners else start_offset
    if not strategy.has_versions:
        return OffsetMap(
            memory, load, base_offset=start_offset, max_entries=keys, rng=rng,
            winners_from=start_offset, winners_end=winners_end,
        )  # fmt: skip
    # Clean records before the start may replace an entry.
    base_offset = log.segments.first.base_offset
    return VersionMap(
        memory, load, base_offset=base_offset, max_entries=keys + 1, rng=rng,
        winners_from=start_offset, winners_end=winners_end,
    )  # fmt: skip


def _mapping(key_map: KeyMap, build: Build) -> jit.Bound[tuple[int, int]]:
    """Bind the mapping kernel, leaving the bytes and the table of a chunk open."""
    return jit.Bound(map_batches, key_map.arrays, build, KeyBlock.empty())


def _map_chunk(chunk: Chunk, mapping: jit.Bound[tuple[int, int]]) -> bool:
    """Map the records of a chunk. Return False if the map became full.

    Raises
    ------
    CorruptRecordError, UnsupportedFormatError
        A batch is damaged.
    """
    status, row = mapping(chunk.data, chunk.table)
    if status == DAMAGED:
        chunk.refuse(row)
    return status != MAP_FULL


class MapBuild:
    """Builds a map over [first dirty offset, upper bound).

    Parameters
    ----------
    takes_one_before : bool
        Also map the record before the first dirty offset, for version strategies.
    aborted : AbortedTransactions, optional
        Aborted transactions of the log, if known.

    Attributes
    ----------
    bytes_read, messages_read : int
        Number of bytes and records in completely mapped chunks.
    full : bool
        Whether the map became full before the end of the range.
    locations : BatchLocations
        Locations of the mapped batches.
    discarded : set of int, optional
        Batches of aborted transactions, which are not mapped; see `TransactionState`.
    """

    def __init__(
        self,
        log: Log,
        first_dirty_offset: int,
        upper_bound_offset: int,
        key_map: KeyMap,
        reader: ChunkReader,
        strategy: Strategy | None = None,
        *,
        takes_one_before: bool = True,
        aborted: AbortedTransactions | None = None,
    ) -> None:
        self._log = log
        self._takes_one_before = takes_one_before
        self._aborted = aborted or AbortedTransactions(log)
        self._start = first_dirty_offset
        self._end = upper_bound_offset
        self._map = key_map
        self._reader = reader
        self._strategy = kernel_strategy(strategy or Strategy())
        self.bytes_read = 0
        self.full = False
        self.locations = BatchLocations()
        self.discarded: set[int] | None = None

    @property
    def messages_read(self) -> int:
        """Number of records mapped or skipped so far."""
        return self._map.state.messages

    @property
    def unversioned(self) -> int:
        """Number of mapped records without a valid version."""
        return self._map.state.unversioned

    @property
    def malformed(self) -> int:
        """Number of mapped records with a malformed version header."""
        return self._map.state.malformed

    def steps(self) -> Iterator[int]:
        """Build the map.

        Yields the number of bytes in each chunk before it is mapped. When exhausted, the map's
        `latest_offset` is the last offset that it covers: the end of the range, or the last record
        before the map became full.

        Raises
        ------
        CorruptRecordError, UnsupportedFormatError
            A batch is damaged.
        OffsetMapFullError
            Even the first key does not fit, because its offset is too far from the log start.
        """
        key_map = self._map
        if self._strategy.has_versions and self._takes_one_before:
            self._put_one_before()
        key_map.latest_offset = self._start - 1
        transactions = TransactionState()
        transactions.add_aborted(self._aborted.between(self._start, self._end))
        build = Build(self._strategy, self._start, self._end, insert=True)
        mapping = _mapping(key_map, build)
        for segment in self._log.segments.between(self._start, self._end):
            end = end_of(segment, self._log)
            position = segment.indexed_position(self._start)
            for chunk in self._reader.chunks(segment, end, position):
                yield chunk.size_bytes
                transactions.mark_discardable(chunk)
                self.discarded = transactions.discarded
                if not _map_chunk(chunk, mapping):
                    self._stop()
                    return
                self.locations.note(chunk)
                self.bytes_read += chunk.size_bytes
            key_map.latest_offset = min(end, self._end) - 1

    def _stop(self) -> None:
        if self._map.latest_offset < self._start:
            raise OffsetMapFullError(
                f"{self._log.topic_partition}: no key from offset {self._start} on fits the map"
            )
        self.full = True

    def _put_one_before(self) -> None:
        """Map the record before the first dirty offset, if it exists.

        This may be a superseded record that was retained because it was the log's last. The record
        that supersedes it must not be removed first, even if it is an expired tombstone. The record
        is not counted (docs/spec/cleaner.md §13.5.1).
        """
        offset = self._start - 1
        if not self._log.log_start_offset <= offset < self._end:
            return
        segment = self._log.segments.floor(offset)
        if segment is None:
            return
        transactions = TransactionState()
        transactions.add_aborted(self._aborted.between(offset, self._start))
        end, position = end_of(segment, self._log), segment.indexed_position(offset)
        mapping = _mapping(self._map, Build(self._strategy, offset, self._start, insert=True))
        for chunk in self._reader.chunks(segment, end, position):
            transactions.mark_discardable(chunk)
            _map_chunk(chunk, mapping)
            if chunk.last_offset >= offset:
                break
        self._map.state.forget_counts()


class SeedPass:
    """Compares the clean section with the mapped keys, for version strategies.

    The clean section is read at most once, and not at all if the map is empty. With strategy
    `timestamp`, segments too old to supersede a mapped record are skipped.

    Parameters
    ----------
    aborted : AbortedTransactions, optional
        See `MapBuild`.

    Attributes
    ----------
    bytes_read, messages_read : int
        Number of bytes and records read.
    verified : set of int
        Base offsets of the segments that were completely read and verified.
    """

    def __init__(
        self,
        log: Log,
        first_dirty_offset: int,
        key_map: KeyMap,
        reader: ChunkReader,
        strategy: Strategy,
        *,
        aborted: AbortedTransactions | None = None,
    ) -> None:
        self._log = log
        self._aborted = aborted or AbortedTransactions(log)
        self._end = first_dirty_offset
        self._map = key_map
        self._reader = reader
        self._strategy = kernel_strategy(strategy)
        self.bytes_read = 0
        self.verified: set[int] = set()
        self._messages_before = key_map.state.messages
        self._start = max(log.log_start_offset, log.segments.first.base_offset)
        self._segments: list[LogSegment] = []
        if strategy.has_versions and len(key_map):
            between = log.segments.between(self._start, self._end)
            self._segments = [segment for segment in between if self._may_win(segment, strategy)]

    @property
    def messages_read(self) -> int:
        """Number of records compared or skipped, in complete batches."""
        return self._map.state.messages - self._messages_before

    @property
    def bytes_total(self) -> int:
        """Total size of the segments to read."""
        return sum(segment.size_bytes for segment in self._segments)

    def _may_win(self, segment: LogSegment, strategy: Strategy) -> bool:
        if strategy.name != TIMESTAMP:
            return True
        # If timestamps are equal, the mapped record survives, because its offset is higher.
        largest = segment.max_timestamp_so_far.timestamp
        return largest < 0 or largest > self._map.state.min_version

    def steps(self) -> Iterator[int]:
        """Run the pass. Yields the bytes of each chunk before its records are compared.

        Raises
        ------
        CorruptRecordError, UnsupportedFormatError
            A batch is damaged.
        """
        latest_offset = self._map.latest_offset
        mapping = _mapping(self._map, Build(self._strategy, self._start, self._end, insert=False))
        for segment in self._segments:
            end = end_of(segment, self._log)
            # Use a new state per segment, because the scan misses markers in skipped segments.
            transactions = TransactionState()
            base_offset = segment.base_offset
            transactions.add_aborted(self._aborted.between(base_offset, end))
            for chunk in self._reader.chunks(segment, end):
                yield chunk.size_bytes
                transactions.mark_discardable(chunk)
                _map_chunk(chunk, mapping)
                self.bytes_read += chunk.size_bytes
                if chunk.last_offset >= self._end - 1:
                    break
            if end <= self._end:
                self.verified.add(segment.base_offset)
        assert self._map.latest_offset == latest_offset


def passes_after(
    log: Log,
    config: CleanerConfig,
    first_dirty_offset: int,
    start_offset: int,
    end_offset: int,
) -> int:
    """Count the passes needed to clean [start, end), by how often the map fills up.

    Parameters
    ----------
    first_dirty_offset : int
        First dirty offset of the pass that ended at `start_offset`.

    Notes
    -----
    Reads the range once, and the rest of a chunk again each time the map fills up. With version
    strategies, it rebuilds the map of the preceding pass and reads the clean section for each pass,
    because the next map lacks a superseded record at the end of a range.
    """
    strategy = Strategy.of(log.config)
    reader = ChunkReader(config.io_buffer_bytes, log.config.logstore_decompression_max_bytes)
    passes = 0
    takes_one_before = True
    if strategy.has_versions and start_offset < end_offset:
        start_offset = first_dirty_offset
        passes = -1
    while start_offset < end_offset:
        key_map = new_map(log, config, strategy, start_offset, end_offset)
        build = MapBuild(
            log, start_offset, end_offset, key_map, reader, strategy,
            takes_one_before=takes_one_before,
        )  # fmt: skip
        for _ in build.steps():
            pass
        for _ in SeedPass(log, start_offset, key_map, reader, strategy).steps():
            pass
        if key_map.latest_offset < start_offset:
            return passes + 1  # the log has changed, so no records remain
        start_offset = key_map.latest_offset + 1
        takes_one_before = start_offset < end_offset and not _is_superseded_by_map(
            log, key_map, start_offset - 1
        )
        passes += 1
    return passes


def _is_superseded_by_map(log: Log, key_map: KeyMap, offset: int) -> bool:
    """Return whether the record at an offset is superseded."""
    if not isinstance(key_map, VersionMap):
        return False
    key = next((record.key for _, record in log.reader.records(offset, offset + 1)), None)
    entry = None if key is None else key_map.get(key)
    return entry is not None and entry.order.offset != offset
