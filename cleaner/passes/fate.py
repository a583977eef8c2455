"""The fate of each record in the next pass, as decided by the pass itself.

A dry run of `clean_pass` with an observer reports the cleaner's decisions, so that each rule is
implemented only once. Records that the pass does not read are listed after it, with their segment's
section as the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from logstore.cleaner import selection
from logstore.cleaner.kernels.classify import RETAINED
from logstore.cleaner.kernels.facts import (
    FACT_COLUMNS,
    FACT_CONTROL,
    FACT_FATE,
    FACT_KEY_SIZE,
    FACT_KEY_START,
    FACT_OFFSET,
    FACT_SUPERSEDED_BY,
    list_records,
)
from logstore.cleaner.kernels.slots import MapArrays
from logstore.cleaner.kernels.table import COL_PARSED, DAMAGED
from logstore.cleaner.passes.chunks import Chunk, ChunkReader, end_of
from logstore.cleaner.passes.clean import PassProgress, clean_pass
from logstore.cleaner.passes.offset_map import MapState, OffsetMap
from logstore.cleaner.passes.rewrite import fates_unread
from logstore.cleaner.selection import section_of
from logstore.cleaner.stats import FATE_NAMES
from logstore.types import NO_OFFSET

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from logstore.cleaner.config import CleanerConfig
    from logstore.cleaner.passes.offset_map import KeyMap
    from logstore.cleaner.selection import CleanableState
    from logstore.cleaner.stats import CleanerStats
    from logstore.storage.log.log import Log

BELOW_LOG_START = "below_log_start"
ACTIVE = "active"
NOT_YET_CLEANABLE = "not_yet_cleanable"

FATES = (*FATE_NAMES, BELOW_LOG_START, ACTIVE, NOT_YET_CLEANABLE)
"""Names of the fates by code: first of a pass, then of records outside it.

`below_log_start`: not visible to consumers, regardless of the pass. `active`: in the active
segment. `not_yet_cleanable`: in a segment at or above the first uncleanable offset.
"""

_FATES_BY_SECTION = {selection.ACTIVE: ACTIVE, selection.UNCLEANABLE: NOT_YET_CLEANABLE}
_CODE = {name: code for code, name in enumerate(FATES)}
_NOTHING = np.empty(0, np.uint8)
_NO_MAP = MapArrays(
    np.zeros((1, OffsetMap.SLOT_WORDS), np.uint64),
    MapState().words,
    np.zeros(0, np.uint64),
    np.uint64(0),
    np.uint64(0),
)


class FateChunk(NamedTuple):
    """Records of several batches in offset order.

    Attributes
    ----------
    offsets : (n,) int64
    fates : (n,) uint8
        Indexes into `FATES`.
    superseded_by : (n,) int64
        Offset of the superseding record, or -1 if there is none.
    controls : (n,) int8
        `kernels.table.CONTROL_*`, or `CONTROL_NONE` for data records.
    data : bytes
        Bytes that include the keys.
    key_starts, key_sizes : (n,) int64
        Extents in `data`. Size -1 means a null key.
    """

    offsets: NDArray[np.int64]
    fates: NDArray[np.uint8]
    superseded_by: NDArray[np.int64]
    controls: NDArray[np.int8]
    data: bytes
    key_starts: NDArray[np.int64]
    key_sizes: NDArray[np.int64]


def list_fates(
    log: Log,
    config: CleanerConfig,
    state: CleanableState | None,
    *,
    progress: Callable[[PassProgress], None] | None = None,
) -> Generator[FateChunk, None, CleanerStats | None]:
    """Yield a log's records in offset order with their fates in the next pass.

    Parameters
    ----------
    state : CleanableState, optional
        The range of the pass, from a decision. If None, no pass will run, and records below the
        active segment are retained.
    progress : callable, optional
        Called before each chunk that the pass reads.

    Returns
    -------
    CleanerStats or None
        The statistics of the pass, or None if no pass will run.

    Raises
    ------
    CorruptRecordError, UnsupportedFormatError, SegmentOverflowError
        A batch is damaged. Earlier records are yielded first, but damage in the dirty section stops
        the pass before it yields any records.

    Notes
    -----
    Changes nothing. The caller must ensure that the log is not truncated in the meantime. Requires
    memory for the map, and for one chunk plus 60 bytes per record. If the map becomes full before
    the end of the dirty section, later records are retained, as by the pass.
    """
    log_start_offset = log.log_start_offset
    untouched_from = log.segments.first.base_offset
    stats: CleanerStats | None = None
    seen: list[FateChunk] = []

    def observer(key_map: KeyMap, chunk: Chunk, codes: NDArray[np.uint8]) -> None:
        seen.append(_judged(chunk, key_map, codes, log_start_offset))

    if state is not None:
        first_dirty, upper_bound = state.first_dirty_offset, state.upper_bound_offset
        steps = clean_pass(log, config, first_dirty, upper_bound, dry_run=True, observer=observer)
        while stats is None:
            try:
                step = next(steps)
            except StopIteration as done:
                stats = done.value
            else:
                if progress is not None:
                    progress(step)
            yield from seen
            seen.clear()
        untouched_from = min(stats.end_offset, upper_bound)
    reader = ChunkReader(config.io_buffer_bytes, log.config.logstore_decompression_max_bytes)
    for segment in log.segments:
        if segment.base_offset < untouched_from:
            continue
        section = section_of(log, segment, state)
        fate = _FATES_BY_SECTION.get(section, FATE_NAMES[RETAINED])
        for chunk in reader.chunks(segment, end_of(segment, log)):
            yield _untouched(chunk, fate, log_start_offset)
    return stats


def _judged(
    chunk: Chunk, key_map: KeyMap, codes: NDArray[np.uint8], log_start_offset: int
) -> FateChunk:
    """Return the fates of a chunk classified by the pass."""
    facts = np.empty((chunk.record_count, FACT_COLUMNS), np.int64)
    status, row = list_records(
        chunk.data,
        chunk.table,
        codes,
        fates_unread(chunk.table),
        key_map.arrays,
        facts,
    )
    if status == DAMAGED:
        chunk.refuse(row)
    return _fate_chunk(chunk, facts, log_start_offset)


def _untouched(chunk: Chunk, fate: str, log_start_offset: int) -> FateChunk:
    """Return a chunk that the pass does not read. All its records have the same fate."""
    table = chunk.table
    table[:, COL_PARSED] = 0
    facts = np.empty((chunk.record_count, FACT_COLUMNS), np.int64)
    status, row = list_records(
        chunk.data,
        table,
        _NOTHING,
        np.full(len(table), _CODE[fate], np.uint8),
        _NO_MAP,
        facts,
    )
    if status == DAMAGED:
        chunk.end_before(row)
        return _untouched(chunk, fate, log_start_offset)
    return _fate_chunk(chunk, facts, log_start_offset)


def _fate_chunk(chunk: Chunk, facts: NDArray[np.int64], log_start_offset: int) -> FateChunk:
    """Convert facts to columns, and set the fate of records below the log start."""
    is_below = facts[:, FACT_OFFSET] < log_start_offset
    facts[is_below, FACT_FATE] = _CODE[BELOW_LOG_START]
    facts[is_below, FACT_SUPERSEDED_BY] = NO_OFFSET
    return FateChunk(
        facts[:, FACT_OFFSET],
        facts[:, FACT_FATE].astype(np.uint8),
        facts[:, FACT_SUPERSEDED_BY],
        facts[:, FACT_CONTROL].astype(np.int8),
        chunk.data.tobytes(),  # the reader reuses its buffer
        facts[:, FACT_KEY_START],
        facts[:, FACT_KEY_SIZE],
    )
