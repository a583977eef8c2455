"""Transaction markers: the requests of coordinators to partition leaders, and their handler.

The handler serves clients (`wire/transactions.py`), the brokers of a cluster, and the coordinator
of a single broker.

Source: Kafka's TransactionMarkerChannelManager and KafkaApis.handleWriteTxnMarkersRequest.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from logstore.errors import LogStoreError
from logstore.messages.types import WriteTxnMarkersRequest
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from logstore.storage.log.log import Log

logger = logging.getLogger(__name__)

D = TypeVar("D")
D_co = TypeVar("D_co", covariant=True)

MarkerErrors = dict[int, dict[TopicPartition, str | None]]
"""The error name of each partition, or None on success, by producer id."""

OUTDATED_ERRORS = ("INVALID_PRODUCER_EPOCH", "TRANSACTION_COORDINATOR_FENCED")
"""Errors from a log that knows a newer producer or coordinator: the transaction has ended there."""


class MarkerLeader(Protocol[D_co]):
    """A broker that leads partitions."""

    def log(self, topic_partition: TopicPartition) -> Log:
        """Return the log of a partition. Raise an error if this broker is not its leader."""

    def check_append(self, topic_partition: TopicPartition) -> object:
        """Return the leader's role, or raise an error if too few replicas are in sync."""

    def delayed_append(
        self, topic_partition: TopicPartition, last_offset: int, role: object
    ) -> D_co | None:
        """Return an operation that waits until an offset is replicated, or None if it is.

        The operation fails if the leader's role has changed since `check_append`.
        """


class TransactionMarker(NamedTuple):
    """The marker of a transaction, for all of its partitions."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    version: int

    def request(self, partitions: Iterable[TopicPartition]) -> WriteTxnMarkersRequest:
        """Return the request that writes the marker to the given partitions."""
        by_topic = groupby(sorted(partitions), attrgetter("topic"))
        topics = [
            WriteTxnMarkersRequest.WritableTxnMarkerTopic(
                name=topic, partition_indexes=[tp.partition for tp in topic_partitions]
            )
            for topic, topic_partitions in by_topic
        ]
        marker = WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            transaction_result=self.is_commit,
            topics=topics,
            coordinator_epoch=self.coordinator_epoch,
            transaction_version=self.version,
        )
        return WriteTxnMarkersRequest(markers=[marker])


def partitions_of(marker: WriteTxnMarkersRequest.WritableTxnMarker) -> list[TopicPartition]:
    """Return the partitions in a marker request."""
    return [
        TopicPartition(topic.name, number)
        for topic in marker.topics
        for number in topic.partition_indexes
    ]


def write_markers(
    request: WriteTxnMarkersRequest, leader: MarkerLeader[D]
) -> tuple[MarkerErrors, dict[tuple[int, TopicPartition], D]]:
    """Append the markers in a request to the logs, and flush them.

    Returns
    -------
    errors : dict
        The error name of each partition, or None on success, by producer id.
    delayed : dict
        Operations that await replication, by producer id and partition.
    """
    errors: MarkerErrors = {}
    delayed: dict[tuple[int, TopicPartition], D] = {}
    for marker in request.markers:
        of_producer = errors.setdefault(marker.producer_id, {})
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            of_producer.update(dict.fromkeys(partitions_of(marker), "UNKNOWN_SERVER_ERROR"))
            continue
        for tp in partitions_of(marker):
            try:
                waiting = _write_marker(tp, marker, leader)
            except LogStoreError as error:
                logger.info(
                    "%s: no marker was written for producer %d: %s", tp, marker.producer_id, error
                )
                of_producer[tp] = error.kafka_error
            else:
                of_producer[tp] = None
                if waiting is not None:
                    delayed[marker.producer_id, tp] = waiting
    return errors, delayed


def _write_marker(
    tp: TopicPartition, marker: WriteTxnMarkersRequest.WritableTxnMarker, leader: MarkerLeader[D]
) -> D | None:
    log = leader.log(tp)
    role = leader.check_append(tp)
    info = log.writer.append_end_txn_marker(
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        commit=marker.transaction_result,
        transaction_version=marker.transaction_version,
    )
    log.flush()
    return leader.delayed_append(tp, info.last_offset, role)
