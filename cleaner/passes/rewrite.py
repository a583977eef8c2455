"""Rewrite a group of segments to a `.cleaned` segment (docs/spec/cleaner.md §6, §8).

Kernels classify records and move bytes. This module passes chunks to them one at a time,
recompresses batches, and appends to the destination.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logstore import jit
from logstore.cleaner.kernels.assemble import assemble_batches, write_header, write_kept_records
from logstore.cleaner.kernels.classify import (
    ABORTED,
    CONTROL_EXPIRED,
    FATES,
    GROUP_RECORDS,
    SUPERSEDED,
    TALLIES,
    TALLY_BOUND,
    TALLY_READ,
    TALLY_WRITTEN,
    ClassifyOutput,
    PassRules,
    classify_batches,
)
from logstore.cleaner.kernels.hashing import Keys
from logstore.cleaner.kernels.table import (
    COL_ATTRIBUTES,
    COL_DISCARD,
    COL_LAST_OFFSET,
    COL_OUT_SIZE,
    COL_VERDICT,
    DAMAGED,
    DISCARD_ABORTED,
    VERDICT_RETAIN_EMPTY,
)
from logstore.cleaner.passes.chunks import Chunk, ChunkReader, end_of
from logstore.cleaner.passes.locations import BatchLocations
from logstore.cleaner.passes.skipping import Skipping, Survivors
from logstore.cleaner.passes.transactions import (
    AbortedTransactions,
    LastBatches,
    TransactionState,
)
from logstore.cleaner.passes.version_map import kernel_strategy
from logstore.cleaner.strategy import Strategy
from logstore.record.codecs import Codec, compress
from logstore.record.kernels import OK
from logstore.record.layout import CODEC_MASK, HEADER_SIZE
from logstore.storage.segment.kernels import EXTENT_COLUMNS, EXTENT_SIZE, find_index_entries
from logstore.storage.segment.segment import LogSegment
from logstore.types import INT64_MAX, NO_OFFSET

if TYPE_CHECKING:
    from logstore.cleaner.passes.offset_map import KeyMap
    from logstore.storage.log.log import Log

Observer = Callable[["KeyMap", Chunk, NDArray[np.uint8]], None]
"""Called for each classified chunk with the map, the chunk, and the codes of parsed records.

Chunk and codes are valid only during the call.
"""


OUT_BYTES = 2 * 1024 * 1024
"""Number of bytes buffered per write, unless a chunk needs more."""


class Rules(NamedTuple):
    """How a pass compares records.

    Attributes
    ----------
    strategy : Strategy
        Compaction strategy. With the default, offset, the other attributes are ignored.
    keep_offset : int
        Offset of the record that is always retained (the last one in the log), or -1 if there is
        none.
    safe_ms : int
        Latest delete horizon for which this pass compares all earlier appends.
    """

    strategy: Strategy = Strategy()
    keep_offset: int = NO_OFFSET
    safe_ms: int = 0

    def for_kernels(
        self, now_ms: int, new_horizon_ms: int, *, by_winners: bool = False
    ) -> PassRules:
        """Convert the rules for kernels; see `PassRules`."""
        strategy = kernel_strategy(self.strategy)
        keep_offset = self.keep_offset if strategy.has_versions else NO_OFFSET
        return PassRules(strategy, keep_offset, self.safe_ms, now_ms, new_horizon_ms, by_winners)


class Rewriter:
    """Filters batches using a complete map.

    Parameters
    ----------
    upper_bound_offset : int
        End of the pass. At least the header of the batch that ends there is retained.
    now_ms : int
        Time of the pass, which determines expired horizons.
    first_dirty_offset : int
        Offset from which on batches were already verified when the map was built.
    rules : Rules, optional
        How records are compared. [default: by offset]
    verified : collection of int
        Base offsets of other segments verified by this pass.
    locations : BatchLocations, optional
        Locations of mapped batches, used to skip batches without survivors.
    discarded : collection of int, optional
        Transactional batches that were not mapped; see `TransactionState`.
    aborted : AbortedTransactions, optional
        See `MapBuild`.
    observer : Observer, optional
        Called with the decisions for each chunk.

    Attributes
    ----------
    bytes_read, bytes_written : int
        Totals over all groups.
    """

    def __init__(
        self,
        log: Log,
        key_map: KeyMap,
        reader: ChunkReader,
        *,
        first_dirty_offset: int,
        upper_bound_offset: int,
        now_ms: int,
        rules: Rules | None = None,
        verified: Collection[int] = (),
        locations: BatchLocations | None = None,
        discarded: Collection[int] | None = None,
        aborted: AbortedTransactions | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._log = log
        self._locations = locations
        self._observer = observer
        self._map = key_map
        self._verified = verified
        self._reader = reader
        self._first_dirty_offset = first_dirty_offset
        self._upper_bound_offset = upper_bound_offset
        # Capped, whereas Kafka overflows to a negative horizon (docs/spec/cleaner.md §8.4).
        new_horizon_ms = min(now_ms + log.config.delete_retention_ms, INT64_MAX)
        # An observer requires the fate and the superseding offset of each record.
        self._rules = (rules or Rules()).for_kernels(
            now_ms, new_horizon_ms, by_winners=observer is None
        )
        self._survivors: Survivors | None = None
        if self._rules.by_winners:
            self._survivors = Survivors(key_map.arrays, self._rules, upper_bound_offset)
        self._judging = ClassifyOutput(
            np.empty(0, np.uint8),
            np.empty(0, np.int64),
            Keys.room_for(GROUP_RECORDS),
            np.zeros(TALLIES, np.int64),
        )
        self._judge = self._bound()
        self._out = np.empty(OUT_BYTES, np.uint8)
        self._filled = 0
        self._extents = np.empty((1024, EXTENT_COLUMNS), np.int64)
        self._extents_filled = 0
        self._transactions = TransactionState(discarded)
        self._aborted = aborted or AbortedTransactions(log)
        self.bytes_read = 0
        self.bytes_written = 0

    @property
    def fates(self) -> NDArray[np.int64]:
        """Number of records by fate."""
        return self._judging.tally[:FATES]

    @property
    def messages_read(self) -> int:
        """Number of records in the batches that were read."""
        return int(self._judging.tally[TALLY_READ])

    @property
    def messages_written(self) -> int:
        """Number of retained records."""
        return int(self._judging.tally[TALLY_WRITTEN])

    def steps(self, group: Sequence[LogSegment], destination: LogSegment | None) -> Iterator[int]:
        """Rewrite a group. Yields the bytes of each chunk before it is filtered.

        Without a destination, this writes nothing.

        Raises
        ------
        CorruptRecordError, UnsupportedFormatError
            The destination is incomplete.
        SegmentOverflowError
            An offset does not fit into the destination.
        """
        with self._log.lock:
            producers = self._log.producer_state.active_producers(
                group[0].base_offset, end_of(group[-1], self._log)
            )
        last_batches = LastBatches(producers)
        for segment in group:
            end = end_of(segment, self._log)
            self._transactions.add_aborted(self._aborted.between(segment.base_offset, end))
            is_verified = segment.base_offset in self._verified or (
                segment.base_offset >= self._first_dirty_offset
                and end - 1 <= self._map.latest_offset
            )
            skipping = self._skipping(segment) if is_verified else None
            survivors = self._survivors if is_verified else None
            for chunk in self._reader.chunks(
                segment, end, verify=not is_verified, skipping=skipping, survivors=survivors
            ):
                yield chunk.size_bytes
                self._transactions.mark_discardable(chunk)
                last_batches.keep(chunk)
                self._filter(chunk, destination)
        self._flush(destination)

    def _skipping(self, segment: LogSegment) -> Skipping | None:
        """Return the parts of a segment to read, or None to read everything."""
        if self._locations is None or not self._rules.by_winners:
            return None
        locations = self._locations.of(segment)
        if locations is None:
            return None
        return Skipping(locations, self._map.arrays, self._rules, self._upper_bound_offset)

    def _filter(self, chunk: Chunk, destination: LogSegment | None) -> None:
        table = chunk.table
        if chunk.last_offset + 1 >= self._upper_bound_offset > chunk.first_offset:
            last_of_round = table[:, COL_LAST_OFFSET] == self._upper_bound_offset - 1
            table[last_of_round, COL_VERDICT] = VERDICT_RETAIN_EMPTY
        self._reserve_records(chunk)
        status, row = self._judge(chunk.data, table)
        if status == DAMAGED:
            chunk.refuse(row)
        if chunk.passed_over:
            tally = self._judging.tally
            tally[SUPERSEDED] += chunk.passed_over
            tally[TALLY_READ] += chunk.passed_over
        if self._observer is not None:
            self._observer(self._map, chunk, self._judging.codes)
        self.bytes_written += self._assemble(chunk, destination)
        self.bytes_read += chunk.size_bytes

    def _reserve_records(self, chunk: Chunk) -> None:
        """Reserve space for all records in a chunk."""
        judging = self._judging
        total, largest = chunk.found.records, chunk.found.largest
        if total > len(judging.codes):
            room = 2 * total  # chunk sizes vary if most batches are removed
            judging = judging._replace(
                codes=np.empty(room, np.uint8), kept_starts=np.empty(room, np.int64)
            )
        if largest > len(judging.keys.starts):
            judging = judging._replace(keys=Keys.room_for(largest))
        if judging is not self._judging:
            self._judging = judging
            self._judge = self._bound()

    def _bound(self) -> jit.Bound[tuple[int, int]]:
        """Bind the classification kernel, leaving the bytes and the table of a chunk open."""
        return jit.Bound(classify_batches, self._map.arrays, self._rules, self._judging)

    def _assemble(self, chunk: Chunk, destination: LogSegment | None) -> int:
        """Add the survivors of a chunk to the output buffer and return their size."""
        table = chunk.table
        bound = int(self._judging.tally[TALLY_BOUND])
        if self._filled + bound > len(self._out):
            self._flush(destination)
        if bound > len(self._out):
            self._out = np.empty(bound, np.uint8)
        if self._extents_filled + len(table) > len(self._extents):
            extents = np.empty((2 * (self._extents_filled + len(table)), EXTENT_COLUMNS), np.int64)
            extents[: self._extents_filled] = self._extents[: self._extents_filled]
            self._extents = extents
        row = 0
        start = position = self._filled
        while True:
            status, row, position, self._extents_filled = assemble_batches(
                chunk.data,
                table,
                row,
                self._judging.kept_starts,
                self._out,
                position,
                self._extents,
                self._extents_filled,
            )
            if status == OK:
                break
            body = self._compressed_body(chunk, row)
            end = position + HEADER_SIZE + len(body)
            left = int(table[row + 1 :, COL_OUT_SIZE].sum())
            if end + left > len(self._out):
                grown = np.empty(2 * end + left, np.uint8)
                grown[:position] = self._out[:position]
                self._out = grown
            self._out[end - len(body) : end] = np.frombuffer(body, np.uint8)
            write_header(chunk.data, table[row], self._out, position, end)
            self._extents[self._extents_filled - 1, EXTENT_SIZE] = end - position
            position = end
            row += 1
        self._filled = int(position)
        return self._filled - start

    def _flush(self, destination: LogSegment | None) -> None:
        """Append the output buffer to the destination, if any, and clear it."""
        if destination is not None and self._filled:
            jit.follow(find_index_entries, assemble_batches)
            waiting = memoryview(self._out)[: self._filled]  # type: ignore[arg-type]  # a buffer
            destination.append(self._extents[: self._extents_filled], [waiting])
        if destination is not None:
            destination.txn_index.extend(self._transactions.kept_aborts)
        self._transactions.kept_aborts.clear()
        self._filled = self._extents_filled = 0
        if len(self._out) > OUT_BYTES:
            self._out = np.empty(OUT_BYTES, np.uint8)

    def _compressed_body(self, chunk: Chunk, row: int) -> bytes:
        """Return the retained records of a batch, recompressed with the batch's codec."""
        columns = chunk.table[row]
        section = np.empty(int(columns[COL_OUT_SIZE]), np.uint8)
        end = write_kept_records(chunk.data, columns, self._judging.kept_starts, section, 0)
        codec = Codec(int(columns[COL_ATTRIBUTES]) & CODEC_MASK)
        return compress(codec, section[:end].tobytes())


def fates_unread(table: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return the fates, by row, of records that were discarded without being parsed."""
    aborted = table[:, COL_DISCARD] == DISCARD_ABORTED
    return np.where(aborted, np.uint8(ABORTED), np.uint8(CONTROL_EXPIRED))
