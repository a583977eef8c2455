"""Bytes of batches with some of their header changed."""

from __future__ import annotations

from logstore.record.batch import RecordBatch
from logstore.types import TimestampType


def with_offset_and_epoch(data: bytes, base_offset: int, partition_leader_epoch: int) -> bytes:
    return RecordBatch(data).with_place(base_offset, partition_leader_epoch).data


def with_max_timestamp(data: bytes, timestamp_type: TimestampType, max_timestamp: int) -> bytes:
    return RecordBatch(data).with_timestamp(timestamp_type, max_timestamp).data
