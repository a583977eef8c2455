"""Run retention for several partitions on request."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from logstore.analysis.assumptions import refuse_assumed_policy
from logstore.analysis.reports import RetainReport
from logstore.errors import UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from logstore.cleaner.manager import LogCleanerManager
    from logstore.manager.manager import LogManager
    from logstore.types import TopicPartition


def retain(
    manager: LogManager,
    cleaner: LogCleanerManager,
    partitions: Sequence[TopicPartition],
    *,
    dry_run: bool,
) -> RetainReport:
    """Run retention for partitions, possibly as a dry run; see `Broker.retain`."""
    if not dry_run:
        for tp in partitions:
            refuse_assumed_policy(manager, tp)
    decisions = []
    for tp in partitions:
        with suppress(UnknownTopicOrPartitionError):  # the topic has been deleted in the meantime
            log = manager.log(tp)
            cleaned = cleaner.checkpoints.of(tp) if log.config.compact else None
            if dry_run:
                decisions.append(log.retention_decision(first_dirty_offset=cleaned or 0))
                continue
            with manager.services.paused(tp):
                decisions.append(log.delete_old_segments(first_dirty_offset=cleaned or 0))
    return RetainReport(tuple(decisions), dry_run)
