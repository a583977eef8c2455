"""Rebuild the producer state at an offset from snapshots and batches.

This is required after loading and after truncation (storage-format §9.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.storage.log.recovery import replay_batches

if TYPE_CHECKING:
    from logstore.storage.producers.state import ProducerStateManager
    from logstore.storage.segment.segments import LogSegments


def rebuild_producer_state(
    state: ProducerStateManager,
    segments: LogSegments,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
    *,
    clean: bool = False,
    high_watermark: int | None = None,
) -> None:
    """Rebuild a producer state from exactly the batches below `end_offset`.

    Parameters
    ----------
    state : ProducerStateManager
        The state to rebuild. Snapshots are deleted and written as in Kafka.
    clean : bool
        Whether the log was closed cleanly. If so, the absence of snapshots means that no batch has
        a producer id.
    high_watermark : int, optional
        The high watermark of a replica. A transaction whose marker is at or above it is still
        undecided, because the marker might be truncated. Snapshots do not contain completed
        transactions, so newer snapshots are deleted and the batches replayed instead.

    Raises
    ------
    CorruptRecordError, UnsupportedFormatError
        The batches cannot be replayed; see `replay_batches`.
    """
    bases = [segment.base_offset for segment in segments]
    if high_watermark is not None and high_watermark < end_offset:
        clean = False
        for offset in state.snapshot_offsets:
            if offset > high_watermark:
                state.delete_snapshot(offset)
    if clean and not state.snapshot_offsets:
        # A producer id would have a snapshot. Skip the scan.
        for offset in (*bases[-2:], end_offset):
            state.map_end_offset = offset
            state.take_snapshot()
        return
    state.truncate_and_reload(log_start_offset, end_offset, now_ms)
    for segment in segments.between(state.map_end_offset, end_offset):
        start = max(segment.base_offset, state.map_end_offset, log_start_offset)
        state.map_end_offset = start
        if segment.base_offset in bases[-2:]:
            state.take_snapshot()
        replay_batches(segment, state, start, end_offset)
    state.map_end_offset = end_offset
    state.take_snapshot()
