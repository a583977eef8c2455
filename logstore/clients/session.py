"""The state of an idempotent or transactional producer: id, epoch, sequences and transaction.

Errors of a batch are handled as in Kafka's clients since KIP-360:

| error | idempotent | transactional |
|---|---|---|
| OutOfOrderSequenceNumberError | bump epoch, retry | abort, then bump epoch |
| InvalidProducerEpochError | new producer id, retry | abort; fails if fenced |
| ProducerFencedError, InvalidProducerIdMappingError, InvalidTxnStateError | – | fatal |
| no response until the delivery timeout | bump epoch | abort, then bump epoch |
| any other error | reuse the sequences | abort |

Sequences restart at 0 with a new epoch or id. Retries are safe, because a log that rejects a batch
has not written it, and returns the original offsets for a duplicate of a written batch. Without a
response, the batch might have been written, so its sequences must not be reused. In one process,
only fault rules lose responses. A transaction with unexpected sequences is aborted instead of
retried, because some of its records might be missing.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from logstore.coordinator.transactions.produce import append_of_producer
from logstore.coordinator.transactions.state import ProducerIdAndEpoch
from logstore.errors import (
    IllegalStateError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    LogStoreError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    TransactionAbortedError,
)
from logstore.storage.log.drafts import ProducerFields
from logstore.types import INT16_MAX, INT32_MAX, TopicPartition

if TYPE_CHECKING:
    from logstore.clients.coordinators import TransactionRequests
    from logstore.coordinator.groups.offsets import ConsumerGroupMetadata, OffsetAndMetadata
    from logstore.coordinator.transactions.coordinator import TransactionCoordinator
    from logstore.manager.manager import LogManager
    from logstore.storage.log.drafts import AppendInfo
    from logstore.storage.log.writer import LogWriter

FATAL_ERRORS = (ProducerFencedError, InvalidProducerIdMappingError, InvalidTxnStateError)
"""Errors after which a transactional producer can only be closed."""

EPOCH_ERRORS = (OutOfOrderSequenceNumberError, InvalidProducerEpochError)
"""Errors that a new epoch or a new producer id resolves."""


class SessionState(enum.Enum):
    """The state of a producer, which is always UNINITIALIZED without a transactional id."""

    UNINITIALIZED = "not initialized"
    READY = "outside a transaction"
    IN_TRANSACTION = "in a transaction"
    ABORTABLE_ERROR = "in a transaction that must be aborted"
    FATAL_ERROR = "unusable after a fatal error"


class ProducerSession:
    """The state of an idempotent or transactional producer.

    Parameters
    ----------
    coordinator : TransactionRequests
    transactional_id : str or None
        The transactional id, or None if the producer is idempotent but not transactional.
    timeout_ms : int
        Transaction timeout.

    Attributes
    ----------
    state : SessionState
    error : LogStoreError or None
        The cause of an error state, or None in other states.

    Notes
    -----
    The caller must hold the producer's lock.
    """

    def __init__(
        self, coordinator: TransactionRequests, transactional_id: str | None, timeout_ms: int
    ) -> None:
        self._coordinator = coordinator
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._producer: ProducerIdAndEpoch | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._partitions: set[TopicPartition] = set()
        self._wants_epoch = False
        self.state = SessionState.UNINITIALIZED
        self.error: LogStoreError | None = None

    @property
    def producer(self) -> ProducerIdAndEpoch | None:
        """The producer id and epoch, or None if they have not been allocated yet."""
        return self._producer

    @property
    def is_transactional(self) -> bool:
        """Whether the producer has a transactional id."""
        return self._transactional_id is not None

    @property
    def has_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self.state in (SessionState.IN_TRANSACTION, SessionState.ABORTABLE_ERROR)

    # -- sending -------------------------------------------------------------------------

    def check_can_send(self) -> None:
        """Check that records may be sent.

        Raises
        ------
        IllegalStateError
            The producer is transactional, and no transaction is open.
        LogStoreError
            The error that made this producer unusable.
        """
        if not self.is_transactional:
            return
        self._raise_if_fatal()
        if self.state is not SessionState.IN_TRANSACTION:
            raise IllegalStateError(
                f"cannot send: the producer is {self.state.value}"
            ) from self.error

    def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions to the transaction before records are appended to them.

        Raises
        ------
        LogStoreError
            The partitions were not added. The session is now in an error state.
        """
        if self._transactional_id is None:
            return
        self.raise_if_failed()
        new = set(partitions) - self._partitions
        if new:
            transactional_id, producer = self._transactional_id, self._producer
            assert producer is not None
            try:
                self._coordinator.send(
                    lambda owner: owner.add_partitions(transactional_id, producer, new)
                )
            except LogStoreError as error:
                self.fail(error)
                raise
            self._partitions |= new

    def check_can_send_offsets(self) -> None:
        """Check that a transaction is open and has not failed."""
        if self.state is SessionState.ABORTABLE_ERROR:
            self.raise_if_failed()
        self._require("send offsets", SessionState.IN_TRANSACTION)

    def send_offsets(
        self, group: ConsumerGroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Write offsets of a consumer group as part of the transaction.

        The caller must pass at least one offset and call `check_can_send_offsets` first.

        Raises
        ------
        LogStoreError
            Nothing was written. The transaction must be aborted.
        """
        try:
            self._coordinator.send(lambda owner: self._send_offsets(owner, group, offsets))
        except LogStoreError as error:
            self.fail(error)
            raise

    def _send_offsets(
        self,
        owner: TransactionCoordinator,
        group: ConsumerGroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        producer = self._producer
        assert producer is not None
        groups = self._coordinator.home.groups.of(group.group_id, creates=True)
        groups.check_transactional(group, offsets)
        partition = groups.partition_for(group.group_id)
        self.add_partitions((partition,))
        with owner.verified(partition, producer, self._transactional_id):
            wait = groups.append_transactional(group.group_id, offsets, producer)
        wait()

    def producer_fields(self, topic_partition: TopicPartition) -> ProducerFields:
        """Return the producer id, epoch and sequence of the next batch for a partition.

        Raises
        ------
        KafkaStorageError
            No producer id could be allocated.
        """
        if self._producer is None:
            assert not self.is_transactional, "a transactional producer has a producer id"
            self._restart(ProducerIdAndEpoch(self._coordinator.home.new_producer_id(), 0))
        assert self._producer is not None
        sequence = self._sequences.get(topic_partition, 0)
        return ProducerFields(*self._producer, sequence, self.is_transactional)

    def next_producer_fields(self, topic_partition: TopicPartition) -> ProducerFields | None:
        """Return the fields of a partition's next batch, or None before its first in this epoch.

        This is a fast variant of `producer_fields` for producers without transactions. It is called
        once per record; see `logstore.storage.log.drafts`.
        """
        sequence = self._sequences.get(topic_partition)
        if self._producer is None or sequence is None:
            return None
        producer_fields: ProducerFields = tuple.__new__(
            ProducerFields, (*self._producer, sequence, False)
        )
        return producer_fields

    def append(
        self, manager: LogManager, tp: TopicPartition, append: Callable[[LogWriter], AppendInfo]
    ) -> AppendInfo:
        """Append a stamped batch; see `append_of_producer`."""
        producer = self._producer if self.is_transactional else None
        return append_of_producer(
            manager, self._coordinator.home, tp, producer, append, self._transactional_id
        )

    def is_moving(self, error: LogStoreError) -> bool:
        """Return whether an append may be retried because the coordinator is moving."""
        return self._coordinator.is_moving(error)

    def advance(self, topic_partition: TopicPartition, records: int) -> None:
        """Advance a partition's sequence by `records`. It wraps around to 0 after 2³¹ − 1."""
        sequence = self._sequences.get(topic_partition, 0)
        self._sequences[topic_partition] = (sequence + records) & INT32_MAX

    def recovers_from(self, error: LogStoreError) -> bool:
        """Get a new epoch or producer id if the error requires it. Return whether to retry."""
        if self.is_transactional or not isinstance(error, EPOCH_ERRORS):
            return False
        self._bump(new_id=isinstance(error, InvalidProducerEpochError))
        return True

    def handle_lost_response(self) -> None:
        """Bump the epoch, because a batch that might have been written has used its sequences."""
        if self.is_transactional:
            self._wants_epoch = True
        # None if the first batch was interrupted before a producer id was allocated
        elif self._producer is not None:
            self._bump()

    def _bump(self, *, new_id: bool = False) -> None:
        """Continue with the next epoch or, if the epoch is exhausted, with a new producer id."""
        assert self._producer is not None
        producer_id, epoch = self._producer
        if new_id or epoch == INT16_MAX:
            self._producer = None
            self._sequences.clear()
        else:
            self._restart(ProducerIdAndEpoch(producer_id, epoch + 1))

    def fail(self, error: LogStoreError) -> None:
        """Enter the error state that an error of a batch or request requires."""
        if not self.is_transactional:
            return
        if isinstance(error, FATAL_ERRORS):
            self.state = SessionState.FATAL_ERROR
            self.error = error
        elif self.state is SessionState.IN_TRANSACTION:
            self.state = SessionState.ABORTABLE_ERROR
            self.error = error
            self._wants_epoch |= isinstance(error, EPOCH_ERRORS)

    def raise_if_failed(self) -> None:
        """Raise the session's error if it is in an error state."""
        if self.error is not None:
            raise self.error

    def _raise_if_fatal(self) -> None:
        if self.state is SessionState.FATAL_ERROR:
            self.raise_if_failed()

    def _restart(self, producer: ProducerIdAndEpoch) -> None:
        self._producer = producer
        self._sequences.clear()

    # -- transactions --------------------------------------------------------------------

    def init(self) -> None:
        """Initialize the transactional id, and fence earlier producers.

        Repeated calls have no effect.

        Raises
        ------
        IllegalStateError
            The producer has no transactional id.
        InvalidTransactionTimeoutError, KafkaStorageError
            The call may be retried.
        """
        transactional_id = self._id()
        self._raise_if_fatal()
        if self.state is SessionState.UNINITIALIZED:
            self._restart(
                self._coordinator.send(
                    lambda owner: owner.init_producer_id(transactional_id, self._timeout_ms)
                )
            )
            self.state = SessionState.READY

    def begin(self) -> None:
        """Begin a transaction.

        Raises
        ------
        IllegalStateError
            A transaction is already open, or `init` was not called.
        """
        self._require("begin a transaction", SessionState.READY)
        self.state = SessionState.IN_TRANSACTION

    def check_can_commit(self) -> None:
        """Check that a transaction is open and has not failed."""
        if self.state is SessionState.ABORTABLE_ERROR:
            self.raise_if_failed()
        self._require("commit a transaction", SessionState.IN_TRANSACTION)

    def commit(self) -> None:
        """Commit the transaction with all records that were sent.

        Raises
        ------
        LogStoreError
            A record could not be sent, and the transaction must be aborted. Or the outcome was not
            decided: commit again or abort.
        """
        self.check_can_commit()
        self._end(commit=True)

    def check_can_abort(self) -> None:
        """Check that a transaction is open."""
        self._require(
            "abort a transaction", SessionState.IN_TRANSACTION, SessionState.ABORTABLE_ERROR
        )

    def abort(self) -> None:
        """Abort the transaction, and bump the epoch if an error requires it.

        Raises
        ------
        ProducerFencedError
        KafkaStorageError
            The call may be retried.
        """
        self.check_can_abort()
        self._end(commit=False)

    def abort_reason(self) -> LogStoreError:
        """Return the error for the lingering records of an aborted transaction."""
        return self.error or TransactionAbortedError("the transaction was aborted")

    def _end(self, *, commit: bool) -> None:
        transactional_id, producer = self._id(), self._producer
        assert producer is not None
        try:
            if self._partitions:
                self._coordinator.send(
                    lambda owner: owner.end_transaction(transactional_id, producer, commit=commit)
                )
                self._partitions.clear()
            if self._wants_epoch:
                self._restart(
                    self._coordinator.send(
                        lambda owner: owner.init_producer_id(
                            transactional_id, self._timeout_ms, expected=producer
                        )
                    )
                )
                self._wants_epoch = False
        except FATAL_ERRORS as error:
            self.fail(error)
            raise
        self.state = SessionState.READY
        self.error = None

    def _id(self) -> str:
        if self._transactional_id is None:
            raise IllegalStateError("the producer has no transactional_id")
        return self._transactional_id

    def _require(self, what: str, *states: SessionState) -> None:
        self._id()
        self._raise_if_fatal()
        if self.state not in states:
            raise IllegalStateError(f"cannot {what}: the producer is {self.state.value}")
