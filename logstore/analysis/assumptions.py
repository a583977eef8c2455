"""Assumptions: what a directory does not say and an answer about it takes for granted.

Each is one sentence that names what is missing, what is assumed in its place, and what says
otherwise: an option of the command line, or the file to be copied along.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.storage.checkpoint.offsets import (
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    REPLICATION_OFFSETS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from logstore.manager.manager import LogManager
    from logstore.types import TopicPartition


def assumptions(
    manager: LogManager, topic_partition: TopicPartition, *, cleaning: bool = False
) -> tuple[str, ...]:
    """Return what is assumed of a partition that is open.

    Parameters
    ----------
    cleaning : bool
        The answer is about cleaning, so that the cleaner checkpoint counts.
    """
    return tuple(_assumed(manager, topic_partition, cleaning=cleaning))


def assumed_clock(now_text: str) -> str:
    """Return the assumption of whoever was not told a time."""
    return f"the time is this machine's, {now_text}; --now TIME says otherwise"


def _assumed(manager: LogManager, tp: TopicPartition, *, cleaning: bool) -> Iterator[str]:
    topic = manager.catalog.topic(tp.topic)
    if not topic.adopted:
        return  # this engine stored its topics, and writes the rest when it has something to say
    policy = ",".join(manager.catalog.config(tp.topic).cleanup_policy) or "empty"
    laid = manager.catalog.temporary_overrides(tp.topic)
    if "cleanup.policy" not in laid:
        given = ", beside what --config gives" if laid else ""
        yield (
            f"no configuration of topic {tp.topic} is stored here: cleanup.policy {policy} and"
            f" the defaults in force are assumed{given}; --config KEY=VALUE says otherwise"
        )
    directory = manager.registry.directory_of(tp)
    log = manager.log(tp)
    if directory.cleaner_offset(tp) is None and cleaning and log.config.compact:
        yield (
            f"{CLEANER_OFFSETS} has no entry for {tp}: all from the log start"
            f" {log.log_start_offset} on is assumed to be dirty; copying that file along says"
            " otherwise"
        )
    if not manager.runtime.fs.exists(f"{directory.path}/{LOG_START_OFFSETS}"):
        yield (
            f"{LOG_START_OFFSETS} is missing: the log is assumed to start with its first segment,"
            f" at {log.log_start_offset}; copying that file along says otherwise"
        )
    if tp not in directory.high_watermarks:
        yield (
            f"{REPLICATION_OFFSETS} has no entry for {tp}: all up to the log end"
            f" {log.log_end_offset} is assumed to be replicated; copying that file along says"
            " otherwise"
        )
