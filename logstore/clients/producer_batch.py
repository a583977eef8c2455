"""A producer's records as the bytes of one batch, ready for a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.record.batch import seal_batch

if TYPE_CHECKING:
    from logstore.record.codecs import Codec
    from logstore.storage.log.drafts import RecordLists, Stamp


def build_producer_batch(records: RecordLists, codec: Codec, stamp: Stamp) -> bytes:
    """Return the batch as a client sends it: base offset 0, create times.

    Parameters
    ----------
    records : RecordLists
        At least one; timestamps are set.
    codec : Codec
        What the section is compressed with.
    stamp : Stamp
        Producer id, epoch, first sequence, and whether it is transactional.
    """
    draft = records.draft(0)
    times = draft.times
    assert times is not None, "each record has its own"
    return seal_batch(
        draft.section,
        codec=codec,
        last_offset_delta=len(records) - 1,
        record_count=len(records),
        base_timestamp=times.first,
        max_timestamp=times.largest,
        **stamp._asdict(),
    )
