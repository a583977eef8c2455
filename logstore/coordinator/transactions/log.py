"""`__transaction_state`, the compacted topic in which the coordinator stores its state.

The topic is created, with Kafka's configs, when the first transactional producer is initialized. A
topic that was copied from a broker is taken over at that time. The hash of a transactional id
determines its partition, and its newest record contains its state.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from logstore.coordinator.topic import CoordinatorTopic
from logstore.coordinator.transactions.state import (
    TransactionMetadata,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from logstore.errors import LogStoreError
from logstore.names import TRANSACTION_STATE_TOPIC
from logstore.storage.log.drafts import NewRecord
from logstore.storage.log.reader import Isolation

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig
    from logstore.coordinator.host import CoordinatorHost
    from logstore.storage.log.log import Log

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class StoredTransactions:
    """The contents of the partitions that this broker coordinates.

    Attributes
    ----------
    epochs : mapping of int to int
        The leader epoch of each partition, as in `CoordinatorHost.owned`.
    by_id : dict
        The newest state of each transactional id.
    unreadable : dict of int to LogStoreError
        The errors of partitions that cannot be read.
    damaged : dict of str to LogStoreError
        The errors of ids whose newest state cannot be decoded.
    """

    epochs: Mapping[int, int] = field(default_factory=dict)
    by_id: dict[str, TransactionMetadata] = field(default_factory=dict)
    unreadable: dict[int, LogStoreError] = field(default_factory=dict)
    damaged: dict[str, LogStoreError] = field(default_factory=dict)


class TransactionLog:
    """Reads and writes `__transaction_state`."""

    def __init__(self, host: CoordinatorHost, config: BrokerConfig) -> None:
        self._topic = CoordinatorTopic(
            host,
            TRANSACTION_STATE_TOPIC,
            config.transaction_state_log_num_partitions,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )

    @property
    def is_stored(self) -> bool:
        """Whether the topic exists and was created by logstore, not copied from a broker."""
        return self._topic.is_stored

    def ensure_stored(self) -> None:
        """Create the topic, or take over a topic that was copied from a broker.

        Raises
        ------
        KafkaStorageError
        """
        self._topic.ensure_stored()

    @property
    def owned(self) -> Mapping[int, int]:
        """The partitions that this broker coordinates; see `CoordinatorHost.owned`."""
        return self._topic.owned

    def check_owned(self, transactional_id: str) -> None:
        """Raise the same errors as `CoordinatorHost.check_owner` for the partition of an id."""
        self._topic.check_owner(self.partition_of(transactional_id))

    def partition_of(self, transactional_id: str) -> int:
        """Return the partition to which an id belongs."""
        return self._topic.partition_of(transactional_id).partition

    def coordinator_epoch(self, transactional_id: str) -> int:
        """Return the coordinator epoch for markers: the leader epoch of the id's partition."""
        return self._topic.log(self.partition_of(transactional_id)).leader_epoch

    def read(self, known: StoredTransactions | None = None) -> StoredTransactions:
        """Return the newest state of each id that this broker coordinates.

        Partitions that are in `known` with the same leader epoch are not read again. Errors are
        logged and part of the result.
        """
        known = known or StoredTransactions()
        owned = self._topic.owned
        stored = StoredTransactions(owned)
        kept = {number for number, epoch in owned.items() if known.epochs.get(number) == epoch}
        for name in ("by_id", "damaged"):
            of_id = getattr(known, name)
            getattr(stored, name).update(
                {each: of_id[each] for each in of_id if self.partition_of(each) in kept}
            )
        stored.unreadable |= {n: error for n, error in known.unreadable.items() if n in kept}
        for number in owned:
            if number in kept:
                continue
            try:
                values = self._newest_values(number)
            except LogStoreError as error:
                logger.error("%s-%d cannot be read: %s", TRANSACTION_STATE_TOPIC, number, error)  # noqa: TRY400  # known, not a surprise
                stored.unreadable[number] = error
                continue
            for transactional_id, value in values.items():
                try:
                    stored.by_id[transactional_id] = decode_value(transactional_id, value)
                except LogStoreError as error:
                    logger.error("the state of '%s' cannot be read: %s", transactional_id, error)  # noqa: TRY400  # see above
                    stored.damaged[transactional_id] = error
        return stored

    def history(self, producer_ids: Collection[int]) -> list[TransactionMetadata]:
        """Return all states of the given producer ids that are still in the log.

        The states of each transactional id are in order. An id is skipped if one of its states
        cannot be decoded or its partition cannot be read.
        """
        history: list[TransactionMetadata] = []
        for number in self._topic.owned:
            states: dict[str, list[TransactionMetadata]] = {}
            damaged: set[str] = set()
            try:
                for transactional_id, value in self._values(number):
                    if value is None:
                        continue
                    try:
                        state = decode_value(transactional_id, value)
                    except LogStoreError:
                        damaged.add(transactional_id)
                        continue
                    if state.producer_id in producer_ids:
                        states.setdefault(transactional_id, []).append(state)
            except LogStoreError:
                continue  # `read` logs the error
            for transactional_id in states.keys() - damaged:
                history += states[transactional_id]
        return history

    def append(
        self, metadata: TransactionMetadata, epoch: int, *, now_ms: int, durable: bool
    ) -> tuple[Log, int]:
        """Store the state of an id. Return the log and the offset of the record.

        Parameters
        ----------
        epoch : int
            The leader epoch in which the previous state was loaded.
        now_ms : int
            The timestamp of the record.
        durable : bool
            Whether to flush the log.

        Raises
        ------
        NotCoordinatorError, CoordinatorLoadInProgressError
            This broker does not coordinate the id in this leader epoch.
        UnknownTopicOrPartitionError, RequestError
            The topic was deleted, or its configs do not allow the record.
        KafkaStorageError
        """
        return self._write(
            metadata.transactional_id, encode_value(metadata), epoch, now_ms, durable=durable
        )

    def forget(self, transactional_id: str, epoch: int, *, now_ms: int) -> None:
        """Write the tombstone of an id. Raises the same errors as `append`."""
        self._write(transactional_id, None, epoch, now_ms, durable=False)

    def _write(
        self, transactional_id: str, value: bytes | None, epoch: int, now_ms: int, *, durable: bool
    ) -> tuple[Log, int]:
        record = NewRecord(encode_key(transactional_id), value, now_ms)
        log, info = self._topic.append(
            self.partition_of(transactional_id),
            epoch,
            lambda writer: writer.append_records([record]),
        )
        if durable:
            log.flush()
        return log, info.last_offset

    def newest_written(self, transactional_id: str) -> tuple[Log, int]:
        """Return the log of an id's partition, and the last offset of the log."""
        log = self._topic.log(self.partition_of(transactional_id))
        return log, log.log_end_offset - 1

    def _newest_values(self, number: int) -> dict[str, bytes]:
        newest: dict[str, bytes] = {}
        for transactional_id, value in self._values(number):
            if value is None:
                newest.pop(transactional_id, None)
            else:
                newest[transactional_id] = value
        return newest

    def _values(self, number: int) -> Iterator[tuple[str, bytes | None]]:
        """Yield the transactional id and the value of each record in a partition."""
        log = self._topic.log(number)
        # This includes records that are not replicated yet. A new leader completes their
        # transactions.
        start_offset, end_offset = log.log_start_offset, log.log_end_offset
        for _, record in log.reader.records(start_offset, end_offset, isolation=Isolation.LOG_END):
            transactional_id = decode_key(record.key)
            if transactional_id is None:
                logger.warning("%s: unknown key at offset %d", log.topic_partition, record.offset)
            else:
                yield transactional_id, record.value
