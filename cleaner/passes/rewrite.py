"""Rewriting a group of segments into one `.cleaned` segment (§6, §8).

Kernels decide and move bytes; this module feeds them chunk by chunk, compresses the batches that
were compressed before, and appends to the destination.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logstore.cleaner import kernels
from logstore.cleaner.passes.chunks import Chunk, ChunkReader, end_of
from logstore.cleaner.passes.transactions import (
    AbortedTransactions,
    TransactionState,
    keep_last_batches,
)
from logstore.cleaner.passes.version_map import kernel_strategy
from logstore.cleaner.strategy import Strategy
from logstore.record.codecs import Codec, compress
from logstore.record.layout import CODEC_MASK, HEADER_SIZE
from logstore.segment.segment import LogSegment
from logstore.segment.values import BatchExtent
from logstore.types import INT64_MAX, NO_OFFSET

if TYPE_CHECKING:
    from logstore.cleaner.passes.offset_map import KeyMap
    from logstore.log.log import Log

Observer = Callable[["KeyMap", Chunk, NDArray[np.uint8]], None]
"""Shown each chunk once its records were judged: the map, the chunk, the codes of what was parsed.

Chunk and codes are valid during the call only.
"""


class Rules(NamedTuple):
    """By what the records of a pass are compared.

    Attributes
    ----------
    strategy : Strategy
        By offsets by default; then the others do not count.
    keep_offset : int
        The record that stays whatever it is: the last of the log; -1 if none does.
    safe_ms : int
        Latest delete horizon before which nothing was appended that this pass does not compare.
    """

    strategy: Strategy = Strategy()
    keep_offset: int = NO_OFFSET
    safe_ms: int = 0

    def for_kernels(self, now_ms: int, new_horizon_ms: int) -> kernels.PassRules:
        """Return the rules of a pass as kernels take them; see `kernels.PassRules`."""
        strategy = kernel_strategy(self.strategy)
        keep_offset = self.keep_offset if strategy.has_versions else NO_OFFSET
        return kernels.PassRules(strategy, keep_offset, self.safe_ms, now_ms, new_horizon_ms)


class Rewriter:
    """Filters batches through a built map.

    Parameters
    ----------
    upper_bound_offset : int
        End of the round: the batch that ends there keeps at least its header.
    now_ms : int
        Clock of the pass, for horizons that have come.
    first_dirty_offset : int
        The map's batches were verified from here on.
    rules : Rules, optional
        How records are compared; by their offsets by default.
    verified : collection of int
        Bases of further segments whose batches were verified in this pass.
    observer : Observer, optional
        Sees what is decided; it changes nothing.

    Attributes
    ----------
    bytes_read, bytes_written, messages_read, messages_written : int
        Totals over all groups.
    fates : (FATES,) int64
        Records by fate.
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
        observer: Observer | None = None,
    ) -> None:
        self._log = log
        self._observer = observer
        self._map = key_map
        self._verified = verified
        self._reader = reader
        self._first_dirty_offset = first_dirty_offset
        self._upper_bound_offset = upper_bound_offset
        # Saturates where Kafka overflows into a negative horizon (§8.4).
        new_horizon_ms = min(now_ms + log.config.delete_retention_ms, INT64_MAX)
        self._rules = (rules or Rules()).for_kernels(now_ms, new_horizon_ms)
        self._codes = np.empty(0, np.uint8)
        self._record_starts = np.empty(0, np.int64)
        self._out = np.empty(0, np.uint8)
        self._transactions = TransactionState()
        self._aborted = AbortedTransactions(log)
        self.fates = np.zeros(kernels.FATES, np.int64)
        self.bytes_read = 0
        self.bytes_written = 0
        self.messages_read = 0
        self.messages_written = 0

    def steps(self, group: Sequence[LogSegment], destination: LogSegment | None) -> Iterator[int]:
        """Rewrite a group; yield the bytes of each chunk before it is filtered.

        Without a destination nothing is written.

        Raises
        ------
        CorruptRecordError, UnsupportedFormatError
            The destination is left unfinished.
        SegmentOverflowError
            An offset does not fit the destination.
        """
        with self._log.lock:
            producers = self._log.producer_state.active_producers()
        for segment in group:
            end = end_of(segment, self._log)
            self._transactions.add_aborted(self._aborted.between(segment.base_offset, end))
            is_verified = segment.base_offset in self._verified or (
                segment.base_offset >= self._first_dirty_offset
                and end - 1 <= self._map.latest_offset
            )
            for chunk in self._reader.chunks(segment, end, verify=not is_verified):
                yield chunk.size_bytes
                self._transactions.judge(chunk)
                keep_last_batches(chunk, producers)
                self._filter(chunk, destination)

    def _filter(self, chunk: Chunk, destination: LogSegment | None) -> None:
        table = chunk.table
        last_of_round = table[:, kernels.COL_LAST_OFFSET] == self._upper_bound_offset - 1
        table[last_of_round, kernels.COL_VERDICT] = kernels.VERDICT_RETAIN_EMPTY
        self._reserve_records(chunk.record_count)
        status, row = kernels.classify_batches(
            chunk.data, table, self._map.arrays, self._rules, self._codes, self._record_starts
        )
        if status == kernels.DAMAGED:
            chunk.refuse(row)
        if self._observer is not None:
            self._observer(self._map, chunk, self._codes)
        size = self._assemble(chunk)
        self._count(chunk, size)
        if destination is not None:
            if size:
                destination.append(_extents(table), [memoryview(self._out)[:size]])  # type: ignore[arg-type]
            for transaction in self._transactions.kept_aborts:
                destination.txn_index.append(transaction)
        self._transactions.kept_aborts.clear()

    def _reserve_records(self, count: int) -> None:
        if count > len(self._codes):
            self._codes = np.empty(count, np.uint8)
            self._record_starts = np.empty(count, np.int64)

    def _assemble(self, chunk: Chunk) -> int:
        """Write the chunk's survivors to the output buffer; return their bytes."""
        table = chunk.table
        bound = int(table[:, kernels.COL_OUT_SIZE].sum())
        if bound > len(self._out):
            self._out = np.empty(bound, np.uint8)
        row = position = 0
        while True:
            status, row, position = kernels.assemble_batches(
                chunk.data,
                table,
                row,
                self._codes,
                self._record_starts,
                self._out,
                position,
            )
            if status == kernels.OK:
                return int(position)
            body = self._compressed_body(chunk, row)
            end = position + HEADER_SIZE + len(body)
            left = int(table[row + 1 :, kernels.COL_OUT_SIZE].sum())
            if end + left > len(self._out):
                grown = np.empty(2 * end + left, np.uint8)
                grown[:position] = self._out[:position]
                self._out = grown
            self._out[end - len(body) : end] = np.frombuffer(body, np.uint8)
            kernels.write_header(chunk.data, table[row], self._out, position, end)
            table[row, kernels.COL_OUT_SIZE] = end - position
            position = end
            row += 1

    def _compressed_body(self, chunk: Chunk, row: int) -> bytes:
        """Return the kept records of a batch, compressed by its own codec again."""
        columns = chunk.table[row]
        section = np.empty(int(columns[kernels.COL_OUT_SIZE]), np.uint8)
        end = kernels.write_kept_records(
            chunk.data, columns, self._codes, self._record_starts, section, 0
        )
        codec = Codec(int(columns[kernels.COL_ATTRIBUTES]) & CODEC_MASK)
        return compress(codec, section[:end].tobytes())

    def _count(self, chunk: Chunk, written: int) -> None:
        table = chunk.table
        parsed = int(table[:, kernels.COL_PARSED].sum())
        self.fates += np.bincount(self._codes[:parsed], minlength=kernels.FATES)
        unread = table[:, kernels.COL_RECORD_COUNT] - table[:, kernels.COL_PARSED]
        np.add.at(self.fates, fates_unread(table), unread)
        self.bytes_read += chunk.size_bytes
        self.bytes_written += written
        # A batch that keeps its header is gone through even if all of it is discarded.
        walked = table[:, kernels.COL_VERDICT] == kernels.VERDICT_RETAIN_EMPTY
        self.messages_read += parsed + int(unread[walked].sum())
        self.messages_written += int(table[:, kernels.COL_KEPT].sum())


def fates_unread(table: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return the fate, by row, of records that were discarded without being parsed."""
    aborted = table[:, kernels.COL_DISCARD] == kernels.DISCARD_ABORTED
    return np.where(aborted, np.uint8(kernels.ABORTED), np.uint8(kernels.CONTROL_EXPIRED))


def _extents(table: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> list[BatchExtent]:
    """Return the extents of the batches that were written."""
    written = table[table[:, kernels.COL_FORM] != kernels.FORM_DROPPED]
    columns = (kernels.COL_LAST_OFFSET, kernels.COL_OUT_MAX_TIMESTAMP, kernels.COL_OUT_SIZE)
    return [BatchExtent(*row) for row in written[:, columns].tolist()]
