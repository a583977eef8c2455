"""Find the valid batches that would be lost if a partition were truncated at damaged bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from logstore.errors import CorruptionError, UnsupportedFormatError
from logstore.record.search import find_batch
from logstore.record.survey import Damage, SegmentBounds, survey
from logstore.record.walk import batch_totals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logstore.storage.segment.segment import LogSegment

_EFFORT = 1 << 30
"""Maximum number of bytes to search for a valid batch.

If none is found, one is assumed to follow.
"""


class Lost(NamedTuple):
    """The number of valid batches after a cut, and of the records in them."""

    batches: int
    records: int

    def __str__(self) -> str:
        batches = "1 valid batch" if self.batches == 1 else f"{self.batches:,} valid batches"
        records = "1 record" if self.records == 1 else f"{self.records:,} records"
        return f"{batches} with {records}"


def is_followed(segment: LogSegment, position: int, later: Sequence[LogSegment]) -> bool:
    """Return whether a valid batch follows a position of a segment or is in a later segment."""
    if any(_holds_a_batch(each) for each in later):
        return True
    size, base_offset = segment.size_bytes, segment.base_offset
    try:
        at = position + 1
        return find_batch(segment.file, at, size, base_offset, effort=_EFFORT) is not None
    except CorruptionError:  # bytes crafted to look like batches make the search too slow
        return True


def _holds_a_batch(segment: LogSegment) -> bool:
    return find_batch(segment.file, 0, segment.size_bytes, segment.base_offset) is not None


def lost_behind(segment: LogSegment, position: int, later: Sequence[LogSegment]) -> Lost:
    """Count the valid batches that truncating a segment at a position would remove.

    This includes the batches of the `later` segments.
    """
    batches = records = 0
    base_offset = segment.base_offset
    bounds = SegmentBounds(segment.log_path, base_offset, base_offset, None)
    limit = segment.config.logstore_decompression_max_bytes
    for found in survey(segment.file, bounds, limit):
        if not isinstance(found, Damage) and found.position >= position:
            batches += 1
            records += found.batch.header.record_count
    for each in later:
        try:
            totals = batch_totals(each.file, each.log_path, each.size_bytes)
        except (CorruptionError, UnsupportedFormatError):
            inside = lost_behind(each, 0, ())
            batches, records = batches + inside.batches, records + inside.records
        else:
            batches, records = batches + totals.batches, records + totals.records
    return Lost(batches, records)
