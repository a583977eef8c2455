"""Bringing a producer state to an offset of the log, from snapshots and batches.

After loading and after truncation (storage-format §9.3).
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
        Changed in place; snapshots are deleted and written as Kafka does.
    clean : bool
        The log was closed cleanly: without any snapshot nobody wrote with a producer id.
    high_watermark : int, optional
        Of a replica, if it lies below: a transaction whose marker stands there or above is still
        undecided, and the marker may be cut off again. Snapshots have nothing of those that ended;
        so the newer ones go, and what they would have told is read.

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
        # Nobody wrote with a producer id, or the snapshots would tell; spare the scan.
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
