"""Encode a producer's records as a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.record.batch import seal_batch

if TYPE_CHECKING:
    from logstore.record.codecs import Codec
    from logstore.storage.log.drafts import ProducerFields, RecordLists


def build_producer_batch(
    records: RecordLists, codec: Codec, producer_fields: ProducerFields
) -> bytes:
    """Encode a batch as a client sends it, with base offset 0 and create times.

    Parameters
    ----------
    records : RecordLists
        At least one record. All records must have timestamps.
    codec : Codec
        Compression codec of the records.
    producer_fields : ProducerFields
        Producer id, epoch, first sequence, and whether the batch is transactional.
    """
    draft = records.draft(0)
    times = draft.times
    assert times is not None, "every record has a timestamp"
    return seal_batch(
        draft.section,
        codec=codec,
        last_offset_delta=len(records) - 1,
        record_count=len(records),
        base_timestamp=times.first,
        max_timestamp=times.largest,
        **producer_fields._asdict(),
    )
