"""The state of a broker: directories, open logs, configs, and the state of the cleaner.

The page, the command line and the simulation use this module rather than the log manager and the
cleaner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from logstore.errors import UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from logstore.analysis.facts import Cleaned
    from logstore.analysis.view import HasLogs
    from logstore.cleaner.selection import CleanableState, CleaningDecision
    from logstore.cleaner.states import CleaningState
    from logstore.cleaner.uncleanable import UncleanablePartition
    from logstore.config.log_config import LogConfig
    from logstore.runtime import Unsubscribe
    from logstore.storage.log.log import Log
    from logstore.types import TopicPartition


# --- the log manager -------------------------------------------------------------------------


def data_dirs(broker: HasLogs) -> list[str]:
    """Return the paths of the data directories."""
    return [directory.path for directory in broker.manager.directories]


def node_id(broker: HasLogs) -> int:
    """Return `node.id` or `broker.id`.

    Raises
    ------
    InvalidConfigurationError, CorruptCheckpointError
        The data directories contain contradictory ids.
    """
    return broker.manager.identity.node_id


def is_replicated(broker: HasLogs) -> bool:
    """Return whether the logs are replicas in a cluster, which only its controller may change."""
    return broker.manager.registry.is_replicated


def open_logs(broker: HasLogs) -> dict[TopicPartition, Log]:
    """Return the logs that are currently open."""
    return {log.topic_partition: log for log in broker.manager.registry.open_logs()}


def topic_config(broker: HasLogs, topic: str) -> LogConfig:
    """Return the effective config of a topic's logs.

    Raises
    ------
    UnknownTopicOrPartitionError
    """
    return broker.manager.catalog.config(topic)


def partition_folder(broker: HasLogs, topic_partition: TopicPartition) -> str | None:
    """Return the directory of a partition, or None if the partition does not exist yet."""
    try:
        directory = broker.manager.registry.directory_of(topic_partition)
    except UnknownTopicOrPartitionError:
        return None
    return directory.partition_path(topic_partition)


def subscribe_to_changes(
    broker: Cleaned, listener: Callable[..., object]
) -> tuple[Unsubscribe, ...]:
    """Call a listener after each change to a log, partition, config or the cleaner."""
    events = broker.manager.services.events
    return tuple(
        signal.subscribe(listener)
        for signal in (
            broker.cleaner.changed,
            events.log_changed,
            events.partition_added,
            events.partition_removed,
            events.partition_moved,
            events.config_changed,
            events.reconfigured,
        )
    )


# --- the cleaner -----------------------------------------------------------------------------


class CleanerView(NamedTuple):
    """The cleaner's state for a partition.

    Attributes
    ----------
    uncleanable : UncleanablePartition or None
        Why the cleaner skips the partition, or None if it does not.
    state : CleaningState or None
        The cleaning pass or pause in progress, or None if the partition is not in use.
    """

    uncleanable: UncleanablePartition | None
    state: CleaningState | None


def cleaner_view(broker: Cleaned, topic_partition: TopicPartition) -> CleanerView:
    """Return the cleaner's state for a partition."""
    cleaner = broker.cleaner
    return CleanerView(
        cleaner.uncleanable_partitions.get(topic_partition), cleaner.states.of(topic_partition)
    )


def cleaner_offset(broker: Cleaned, topic_partition: TopicPartition) -> int | None:
    """Return the first dirty offset stored by the last cleaning pass, or None if there is none."""
    return broker.cleaner.checkpoints.of(topic_partition)


def cleanable_state(broker: Cleaned, log: Log) -> CleanableState:
    """Measure a log as the cleaner does when it selects logs.

    Raises
    ------
    UnknownTopicOrPartitionError, KafkaStorageError
        The log was deleted, or the disk failed.
    """
    return broker.cleaner.chooser.state_of(log)


def cleaning_decision(broker: Cleaned, log: Log, *, forecast: bool = True) -> CleaningDecision:
    """Return the decision that the cleaner's next selection would make.

    Parameters
    ----------
    forecast : bool
        Whether to compute when closed gates open without intervention.
    """
    chooser = broker.cleaner.chooser
    return chooser.decision_of(log, rolled=chooser.is_idle(log), forecast=forecast)
