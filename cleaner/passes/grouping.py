"""Select segments to merge (docs/spec/cleaner.md §6.1), and groups to swap together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from logstore.types import INT32_MAX

if TYPE_CHECKING:
    from logstore.config.log_config import LogConfig
    from logstore.storage.segment.segment import LogSegment

BATCH_GROUPS = 16
"""Maximum number of groups swapped together. Appends wait for their renames and fsyncs."""

BATCH_BYTES = 1024 * 1024
"""Maximum total size of sources that are swapped together.

All copies exist at the same time.
"""


def group_segments(
    segments: Sequence[LogSegment], config: LogConfig, upper_bound_offset: int
) -> list[list[LogSegment]]:
    """Group adjacent segments greedily. Each group becomes one segment.

    Parameters
    ----------
    segments : sequence of LogSegment
        Source segments in order.
    upper_bound_offset : int
        Exclusive end of the pass, which limits the offsets of the last source.

    Notes
    -----
    Uses sizes before cleaning. A group includes the next segment as long as log, offset index and
    time index are within the topic's limits, and all offsets fit into 31 bits above its base
    offset.
    """
    groups: list[list[LogSegment]] = []
    log_bytes = index_bytes = time_index_bytes = 0
    for slot, segment in enumerate(segments):
        sizes = (
            segment.size_bytes,
            segment.offset_index.size_bytes,
            segment.time_index.size_bytes,
        )
        following = segments[slot + 1].base_offset if slot + 1 < len(segments) else None
        last_offset = (upper_bound_offset if following is None else following) - 1
        fits = (
            bool(groups)
            and log_bytes + sizes[0] <= config.segment_bytes
            and index_bytes + sizes[1] <= config.segment_index_bytes
            and time_index_bytes + sizes[2] <= config.segment_index_bytes
            and (sizes[0] == 0 or last_offset - groups[-1][0].base_offset <= INT32_MAX)
        )
        if fits:
            groups[-1].append(segment)
            log_bytes += sizes[0]
            index_bytes += sizes[1]
            time_index_bytes += sizes[2]
        else:
            groups.append([segment])
            log_bytes, index_bytes, time_index_bytes = sizes
    return groups


def batch_groups(groups: Sequence[list[LogSegment]]) -> Iterator[list[list[LogSegment]]]:
    """Combine adjacent groups to be swapped together. A large group is swapped separately.

    Kafka swaps each group separately. For tiny groups, the fsyncs would take a hundred times as
    long as the rewrite.
    """
    batch: list[list[LogSegment]] = []
    batch_bytes = 0
    for group in groups:
        size_bytes = sum(segment.size_bytes for segment in group)
        if batch and (len(batch) == BATCH_GROUPS or batch_bytes + size_bytes > BATCH_BYTES):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(group)
        batch_bytes += size_bytes
    if batch:
        yield batch
