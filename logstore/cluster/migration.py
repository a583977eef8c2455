"""Migrates a cluster whose coordinators were a single object with separate files.

Earlier versions stored `__consumer_offsets`, `__transaction_state` and the producer ids of a
cluster in the directory `coordinator`. `migrate` copies both topics into the cluster with the same
offsets, and then renames the directory. A migration that is interrupted before the rename starts
again. It runs before the cluster serves clients.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from logstore.broker import Broker
from logstore.names import CONTROLLER_DIR, FORMER_COORDINATOR_DIR, PRODUCER_IDS_FILE
from logstore.runtime.fs import remove_tree
from logstore.storage.checkpoint.atomic import read_bytes, write_atomically
from logstore.storage.log.reader import Isolation
from logstore.types import AppendOrigin, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection

    from logstore.cluster.coordination import ClusterHost
    from logstore.config.broker_config import BrokerConfig
    from logstore.runtime import Clock, FileSystem

logger = logging.getLogger(__name__)

_DONE = "coordinator.migrated"


def is_due(fs: FileSystem, data_dir: str) -> bool:
    """Return whether a cluster's directory contains the topics of a former coordinator."""
    return fs.is_dir(f"{data_dir}/{FORMER_COORDINATOR_DIR}")


def migrate(
    fs: FileSystem,
    data_dir: str,
    clock: Clock,
    broker_config: BrokerConfig,
    host: ClusterHost,
    brokers: Collection[Broker],
) -> None:
    """Copy the topics of a former coordinator to the cluster durably, and rename their directory.

    Parameters
    ----------
    host : ClusterHost
        Any running broker. The cluster must not contain the topics yet.
    brokers : collection of Broker
        All running brokers.

    Raises
    ------
    LogStoreError
        The topics cannot be read or written. They remain in the directory.
    """
    folder = f"{data_dir}/{FORMER_COORDINATOR_DIR}"
    logger.info("%s: moving groups and transactions to the brokers", folder)
    with Broker(
        folder, clock=clock, broker_config=broker_config, fs=fs, disk_faults=False
    ) as source:
        source.coordinator.complete_pending_offsets()
        for topic in source.topics():
            host.create_topic(topic.name, len(topic.partitions), topic.configs)
            for number in topic.partitions:
                _copy(source, host, TopicPartition(topic.name, number))
    for broker in brokers:  # any replica can be the leader after a power loss
        for log in broker.manager.registry.open_logs():
            log.flush()
    if fs.exists(f"{folder}/{PRODUCER_IDS_FILE}"):
        data = read_bytes(fs, f"{folder}/{PRODUCER_IDS_FILE}")
        write_atomically(fs, f"{data_dir}/{CONTROLLER_DIR}/{PRODUCER_IDS_FILE}", data)
    fs.rename(folder, f"{data_dir}/{_DONE}")
    fs.sync_dir(data_dir)


def remove_migrated(fs: FileSystem, data_dir: str) -> None:
    """Remove the directory of a former coordinator after its migration."""
    if fs.is_dir(f"{data_dir}/{_DONE}"):
        remove_tree(fs, f"{data_dir}/{_DONE}")


def _copy(source: Broker, host: ClusterHost, topic_partition: TopicPartition) -> None:
    """Copy a partition to its leader, and wait for its replication."""
    old = source.log(topic_partition)
    new = host.leader_log(topic_partition)
    for batch in old.reader.batches(old.log_start_offset, isolation=Isolation.LOG_END):
        placed = batch.with_place(batch.header.base_offset, new.leader_epoch)
        new.writer.append_batches(bytes(placed.data), AppendOrigin.REPLICATION)
    if new.log_end_offset:
        host.await_replicated({new: new.log_end_offset - 1})
