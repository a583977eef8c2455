"""Building the map: which offset is the latest of each key in the dirty section (§5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cleaner import kernels
from cleaner.chunks import ChunkReader, end_of
from cleaner.map_kernels import STATE_MESSAGES
from cleaner.offset_map import OffsetMap
from cleaner.transactions import TransactionState, aborted_transactions

if TYPE_CHECKING:
    from cleaner.config import CleanerConfig
    from logstore.log import Log


class MapBuild:
    """One build over [first dirty offset, upper bound).

    Attributes
    ----------
    bytes_read, messages_read : int
        Of the chunks and records that were mapped whole.
    full : bool
        Whether the map was full before the range ended.
    """

    def __init__(
        self,
        log: Log,
        first_dirty_offset: int,
        upper_bound_offset: int,
        offset_map: OffsetMap,
        reader: ChunkReader,
    ) -> None:
        self._log = log
        self._start = first_dirty_offset
        self._end = upper_bound_offset
        self._map = offset_map
        self._reader = reader
        self.bytes_read = 0
        self.full = False

    @property
    def messages_read(self) -> int:
        """Records mapped or passed over so far."""
        return int(self._map.state[STATE_MESSAGES])

    def steps(self) -> Iterator[int]:
        """Run the build; yield the bytes of each chunk before it is mapped.

        Afterwards the map's `latest_offset` is the last offset it speaks for: the end of the
        range, gaps jumped, or the last record put before the map was full.

        Raises
        ------
        CorruptRecordError, UnsupportedFormatError
            A batch is damaged.
        """
        offset_map = self._map
        offset_map.latest_offset = self._start - 1
        transactions = TransactionState()
        transactions.add_aborted(aborted_transactions(self._log, self._start, self._end))
        for segment in self._log.segments.between(self._start, self._end):
            end = end_of(segment, self._log)
            position = segment.indexed_position(self._start)
            for chunk in self._reader.chunks(segment, end, position):
                yield chunk.size_bytes
                transactions.judge(chunk)
                status, row = kernels.map_batches(
                    chunk.data,
                    chunk.table,
                    0,
                    chunk.rows,
                    self._start,
                    offset_map.slots,
                    offset_map.state,
                    offset_map.k0,
                    offset_map.k1,
                )
                if status == kernels.DAMAGED:
                    chunk.refuse(row)
                if status == kernels.MAP_FULL:
                    self.full = True
                    return
                self.bytes_read += chunk.size_bytes
            offset_map.latest_offset = min(end, self._end) - 1


def passes_after(log: Log, config: CleanerConfig, start_offset: int, end_offset: int) -> int:
    """Count the passes that it takes to clean [start, end), by what the map holds.

    Notes
    -----
    Reads the range once, and what a pass left over of a chunk once more.
    """
    passes = 0
    reader = ChunkReader(config.io_buffer_bytes)
    while start_offset < end_offset:
        offset_map = OffsetMap(
            config.dedupe_buffer_bytes,
            config.load_factor,
            base_offset=start_offset,
            max_entries=end_offset - start_offset,
            rng=log.runtime.rng,
        )
        for _ in MapBuild(log, start_offset, end_offset, offset_map, reader).steps():
            pass
        assert offset_map.latest_offset >= start_offset
        start_offset = offset_map.latest_offset + 1
        passes += 1
    return passes
