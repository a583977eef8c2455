"""A producer's records as the bytes of one batch, ready for a log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from logstore.record.batch import build_batch, seal_batch
from logstore.record.choice import encodes_by_kernel
from logstore.record.records import Record

if TYPE_CHECKING:
    from logstore.broker.session import Stamp
    from logstore.log.drafts import NewRecord
    from logstore.record.codecs import Codec


def build_producer_batch(records: Sequence[NewRecord], codec: Codec, stamp: Stamp) -> bytes:
    """Return the batch as a client sends it: base offset 0, create times.

    Parameters
    ----------
    records : sequence of NewRecord
        At least one; timestamps are set.
    codec : Codec
        What the section is compressed with.
    stamp : Stamp
        Producer id, epoch, first sequence, and whether it is transactional.
    """
    timestamps = [0 if record.timestamp is None else record.timestamp for record in records]
    if not encodes_by_kernel(len(records)):
        return build_batch(
            [
                Record(row, timestamp, record.key, record.value, record.headers)
                for row, (record, timestamp) in enumerate(zip(records, timestamps, strict=True))
            ],
            codec=codec,
            **stamp._asdict(),
        )
    import numpy as np

    from logstore.record.columns import BytesColumn, encode_section, headers_column

    has_headers = any(record.headers for record in records)
    section = encode_section(
        np.array(timestamps, np.int64),
        BytesColumn.from_list([record.key for record in records]),
        BytesColumn.from_list([record.value for record in records]),
        headers_column([r.headers for r in records], len(records)) if has_headers else None,
    )
    return seal_batch(
        section,
        codec=codec,
        last_offset_delta=len(records) - 1,
        record_count=len(records),
        base_timestamp=timestamps[0],
        max_timestamp=max(timestamps),
        **stamp._asdict(),
    )
