"""Encoding of a producer's records as one batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.record.batch import seal_batch

if TYPE_CHECKING:
    from logstore.record.codecs import Codec
    from logstore.storage.log.drafts import RecordLists, Stamp


def build_producer_batch(records: RecordLists, codec: Codec, stamp: Stamp) -> bytes:
    """Encode a batch as a client sends it: with base offset 0 and create times.

    Parameters
    ----------
    records : RecordLists
        One or more records with timestamps.
    codec : Codec
        Compression codec of the records section.
    stamp : Stamp
        Producer id, epoch, first sequence, and the transactional flag.
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
