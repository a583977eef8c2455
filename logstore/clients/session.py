"""A producer as the logs see it: its id and epoch, its sequences, its transaction.

What a refused batch does to it, as in Kafka's clients since KIP-360:

| refused with | idempotent | transactional |
|---|---|---|
| OutOfOrderSequenceNumberError | next epoch, sent again | abort, then the next epoch |
| InvalidProducerEpochError | new id, sent again | abort, which tells if it is fenced |
| ProducerFencedError, InvalidProducerIdMappingError, InvalidTxnStateError | – | the end |
| an answer that was lost, until time is over | next epoch | abort, then the next epoch |
| any other error | its sequences are not used | abort |

With another epoch or id sequences begin at 0. Sending again is safe: a log that refuses a batch has
not written it, and one that wrote it answers the same sequences with the offsets that they have. A
batch that was given up without an answer may stand in the log, so that its sequences may not be
used for another one. In one process only fault rules lose answers. A transaction whose data a log
did not expect is not sent again, since by then some of it may be gone: it may not be committed.
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
from logstore.storage.log.drafts import Stamp
from logstore.types import INT16_MAX, INT32_MAX, TopicPartition

if TYPE_CHECKING:
    from logstore.coordinator.groups.offsets import ConsumerGroupMetadata, OffsetAndMetadata
    from logstore.coordinator.transactions.coordinator import TransactionCoordinator
    from logstore.manager.manager import LogManager
    from logstore.storage.log.drafts import AppendInfo
    from logstore.storage.log.writer import LogWriter

FATAL_ERRORS = (ProducerFencedError, InvalidProducerIdMappingError, InvalidTxnStateError)
"""After which a transactional producer can only be closed."""

EPOCH_ERRORS = (OutOfOrderSequenceNumberError, InvalidProducerEpochError)
"""Which another epoch mends."""


class SessionState(enum.Enum):
    """State of a producer; only the first two concern one without a transactional id."""

    UNINITIALIZED = "not initialized"
    READY = "outside a transaction"
    IN_TRANSACTION = "in a transaction"
    ABORTABLE_ERROR = "in a transaction that can only be aborted"
    FATAL_ERROR = "of no more use"


class ProducerSession:
    """The idempotent side of a producer, and its transaction.

    Parameters
    ----------
    coordinator : TransactionCoordinator
    transactional_id : str or None
        None for a producer that is only idempotent.
    timeout_ms : int
        Age at which its transactions are aborted.

    Attributes
    ----------
    state : SessionState
    error : LogStoreError or None
        Why it is in an error state.

    Notes
    -----
    Guarded by the producer's lock.
    """

    def __init__(
        self, coordinator: TransactionCoordinator, transactional_id: str | None, timeout_ms: int
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
        """Id and epoch; None before the first use."""
        return self._producer

    @property
    def is_transactional(self) -> bool:
        """Whether there is a transactional id."""
        return self._transactional_id is not None

    @property
    def has_transaction(self) -> bool:
        """Whether a transaction was begun and not ended."""
        return self.state in (SessionState.IN_TRANSACTION, SessionState.ABORTABLE_ERROR)

    # -- sending -------------------------------------------------------------------------

    def check_can_send(self) -> None:
        """Refuse to send outside a transaction, if this is a transactional producer.

        Raises
        ------
        IllegalStateError
        LogStoreError
            What was the end of this producer.
        """
        if not self.is_transactional:
            return
        self._raise_if_fatal()
        if self.state is not SessionState.IN_TRANSACTION:
            raise IllegalStateError(
                f"cannot send: the producer is {self.state.value}"
            ) from self.error

    def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Take partitions into the transaction before they get data.

        Raises
        ------
        LogStoreError
            Nothing may be sent to them; the session knows of it.
        """
        if self._transactional_id is None:
            return
        self.raise_if_failed()
        new = set(partitions) - self._partitions
        if new:
            assert self._producer is not None
            try:
                self._coordinator.add_partitions(self._transactional_id, self._producer, new)
            except LogStoreError as error:
                self.failed(error)
                raise
            self._partitions |= new

    def check_can_send_offsets(self) -> None:
        """Refuse to send offsets where no transaction was begun, or with what it failed with."""
        if self.state is SessionState.ABORTABLE_ERROR:
            self.raise_if_failed()
        self._require("send offsets", SessionState.IN_TRANSACTION)

    def send_offsets(
        self, group: ConsumerGroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Write the offsets of a consumer group, at least one, as part of the transaction.

        To be asked for with `check_can_send_offsets` first.

        Raises
        ------
        LogStoreError
            Nothing was written; the transaction can only be aborted.
        """
        assert self._producer is not None
        coordinator = self._coordinator
        try:
            coordinator.groups.check_transactional(group, offsets)
            partition = coordinator.partition_of_group(group.group_id)
            self.add_partitions((partition,))
            with coordinator.verified(partition, self._producer, self._transactional_id):
                coordinator.groups.append_transactional(group.group_id, offsets, self._producer)
        except LogStoreError as error:
            self.failed(error)
            raise

    def stamp(self, topic_partition: TopicPartition) -> Stamp:
        """Return what the next batch of a partition bears.

        Raises
        ------
        KafkaStorageError
            No producer id can be had.
        """
        if self._producer is None:
            assert not self.is_transactional, "a transaction has a producer id"
            self._restart(ProducerIdAndEpoch(self._coordinator.new_producer_id(), 0))
        assert self._producer is not None
        sequence = self._sequences.get(topic_partition, 0)
        return Stamp(*self._producer, sequence, self.is_transactional)

    def append(
        self, manager: LogManager, tp: TopicPartition, append: Callable[[LogWriter], AppendInfo]
    ) -> AppendInfo:
        """Append a batch that bears its stamp; see `append_of_producer`."""
        producer = self._producer if self.is_transactional else None
        return append_of_producer(
            manager, self._coordinator, tp, producer, append, self._transactional_id
        )

    def sent(self, topic_partition: TopicPartition, records: int) -> None:
        """Go on to the sequence after `records` more, which wraps after 2³¹ − 1 to 0."""
        sequence = self._sequences.get(topic_partition, 0)
        self._sequences[topic_partition] = (sequence + records) & INT32_MAX

    def recovers_from(self, error: LogStoreError) -> bool:
        """Mend what made a log refuse a batch, and tell whether to send it again."""
        if self.is_transactional or not isinstance(error, EPOCH_ERRORS):
            return False
        self._bump(anew=isinstance(error, InvalidProducerEpochError))
        return True

    def lost_answer(self) -> None:
        """Never use again the sequences of a batch that may have been written."""
        if self.is_transactional:
            self._wants_epoch = True
        elif self._producer is not None:  # else an interrupt came before the first batch had an id
            self._bump()

    def _bump(self, *, anew: bool = False) -> None:
        """Go on under the next epoch, or under another id."""
        assert self._producer is not None
        producer_id, epoch = self._producer
        if anew or epoch == INT16_MAX:
            self._producer = None
            self._sequences.clear()
        else:
            self._restart(ProducerIdAndEpoch(producer_id, epoch + 1))

    def failed(self, error: LogStoreError) -> None:
        """Draw the consequence of a batch, or a request, that was refused for good."""
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
        """Raise what put the session into an error state, if it is in one."""
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
        """Become the only producer of the transactional id; done once, further calls do nothing.

        Raises
        ------
        IllegalStateError
            There is no transactional id.
        InvalidTransactionTimeoutError, KafkaStorageError
            It may be tried again.
        """
        transactional_id = self._id()
        self._raise_if_fatal()
        if self.state is SessionState.UNINITIALIZED:
            self._restart(self._coordinator.init_producer_id(transactional_id, self._timeout_ms))
            self.state = SessionState.READY

    def begin(self) -> None:
        """Begin a transaction.

        Raises
        ------
        IllegalStateError
            One is open, or `init` was not called.
        """
        self._require("begin a transaction", SessionState.READY)
        self.state = SessionState.IN_TRANSACTION

    def check_can_commit(self) -> None:
        """Refuse to commit what failed, with what it failed with, or what was not begun."""
        if self.state is SessionState.ABORTABLE_ERROR:
            self.raise_if_failed()
        self._require("commit a transaction", SessionState.IN_TRANSACTION)

    def commit(self) -> None:
        """Commit; what was not sent by now is not part of it.

        Raises
        ------
        LogStoreError
            A send failed: it can only be aborted. Or nothing was decided: try again, or abort.
        """
        self.check_can_commit()
        self._end(commit=True)

    def check_can_abort(self) -> None:
        """Refuse to abort what was not begun."""
        self._require(
            "abort a transaction", SessionState.IN_TRANSACTION, SessionState.ABORTABLE_ERROR
        )

    def abort(self) -> None:
        """Abort, and take another epoch if a log did not expect what it was sent.

        Raises
        ------
        ProducerFencedError
        KafkaStorageError
            It may be tried again.
        """
        self.check_can_abort()
        self._end(commit=False)

    def abort_reason(self) -> LogStoreError:
        """Return what becomes of records that wait when the transaction is aborted."""
        return self.error or TransactionAbortedError("the transaction was aborted")

    def _end(self, *, commit: bool) -> None:
        transactional_id = self._id()
        assert self._producer is not None
        try:
            if self._partitions:
                self._coordinator.end_transaction(transactional_id, self._producer, commit=commit)
                self._partitions.clear()
            if self._wants_epoch:
                self._restart(
                    self._coordinator.init_producer_id(
                        transactional_id, self._timeout_ms, expected=self._producer
                    )
                )
                self._wants_epoch = False
        except FATAL_ERRORS as error:
            self.failed(error)
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
