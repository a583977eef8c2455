"""Requests about many partitions at once, with results as values, one a partition.

A partition that existed when it began and is deleted meanwhile is passed over by what goes
through all of them.
"""

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
    """Find the first record at or after a time in each partition; see `Broker`."""
    found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
    for tp, time in times.items():
        if time < 0:
            raise ValueError(f"the time for {tp} is negative: {time}")
        listed = manager.log(tp).reader.offset_for_timestamp(time)
        found[tp] = listed and OffsetAndTimestamp(
            listed.offset, listed.timestamp, listed.leader_epoch
        )
    return found


def delete_records(
    manager: LogManager, before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, DeleteRecordsResult]:
    """Delete the records below an offset in each partition; see `Broker`."""
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
    """Move each partition to a data directory; see `Broker`."""
    results: dict[TopicPartition, AlterReplicaLogDirsResult] = {}
    for tp, log_dir in assignments.items():
        try:
            manager.registry.move_partition(tp, fspath(log_dir))
            results[tp] = AlterReplicaLogDirsResult()
        except LogStoreError as error:
            results[tp] = AlterReplicaLogDirsResult(error.kafka_error, str(error))
    return results
