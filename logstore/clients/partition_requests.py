"""Requests for several partitions, with a result for each partition."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import TYPE_CHECKING

from logstore.clients.results import (
    AlterReplicaLogDirsResult,
    DeleteRecordsResult,
    OffsetAndTimestamp,
)
from logstore.errors import LogStoreError
from logstore.types import NO_OFFSET

if TYPE_CHECKING:
    from logstore.manager.manager import LogManager
    from logstore.types import TopicPartition


def offsets_for_times(
    manager: LogManager, times: Mapping[TopicPartition, int]
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """Look up the first record at or after a timestamp in each partition; see `Broker`."""
    offsets: dict[TopicPartition, OffsetAndTimestamp | None] = {}
    for tp, time in times.items():
        if time < 0:
            raise ValueError(f"the timestamp for {tp} must not be negative: {time}")
        listed = manager.log(tp).reader.offset_for_timestamp(time)
        offsets[tp] = listed and OffsetAndTimestamp(
            listed.offset, listed.timestamp, listed.leader_epoch
        )
    return offsets


def delete_records(
    manager: LogManager, before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, DeleteRecordsResult]:
    """Delete the records before an offset in each partition; see `Broker`."""
    results: dict[TopicPartition, DeleteRecordsResult] = {}
    for tp, offset in before.items():
        try:
            results[tp] = DeleteRecordsResult(manager.delete_records(tp, offset))
        except LogStoreError as error:
            results[tp] = DeleteRecordsResult(NO_OFFSET, error.kafka_error, str(error))
    return results


def alter_replica_log_dirs(
    manager: LogManager, assignments: Mapping[TopicPartition, str | PathLike[str]]
) -> dict[TopicPartition, AlterReplicaLogDirsResult]:
    """Move each partition to a log directory; see `Broker`."""
    results: dict[TopicPartition, AlterReplicaLogDirsResult] = {}
    for tp, log_dir in assignments.items():
        try:
            manager.registry.move_partition(tp, fspath(log_dir))
            results[tp] = AlterReplicaLogDirsResult()
        except LogStoreError as error:
            results[tp] = AlterReplicaLogDirsResult(error.kafka_error, str(error))
    return results
