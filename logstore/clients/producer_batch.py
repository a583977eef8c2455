"""Encoding of a producer's records as one batch."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING

from logstore.record.batch import build_batch, seal_batch
from logstore.record.choice import encodes_by_kernel
from logstore.record.records import Record

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
    timestamps = [0 if timestamp is None else timestamp for timestamp in records.timestamps]
    each_headers = records.each_headers()
    if not encodes_by_kernel(len(records)):
        rows = zip(timestamps, records.keys, records.values, each_headers or repeat(()))  # noqa: B905  # repeat() is endless
        return build_batch(
            [Record(row, *fields) for row, fields in enumerate(rows)],
            codec=codec,
            **stamp._asdict(),
        )
    import numpy as np

    from logstore.record.columns import BytesColumn, encode_section, headers_column

    section = encode_section(
        np.array(timestamps, np.int64),
        BytesColumn.from_list(records.keys),
        BytesColumn.from_list(records.values),
        None if each_headers is None else headers_column(each_headers, len(records)),
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
