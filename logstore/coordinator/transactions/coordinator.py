"""The transaction coordinator, which owns transactional ids and makes transactions atomic.

The coordinator writes each state to `__transaction_state` before acting on it:

1. `Ongoing`, with the partitions, is made durable before the first append to any of them.
2. To commit, the data is flushed. Then `PrepareCommit` or `PrepareAbort` is made durable, which
   decides the outcome.
3. A marker is made durable in each partition.
4. `CompleteCommit` or `CompleteAbort` is written.

If the broker crashes before step 2, the transaction remains open until its id is initialized again
or it times out, which aborts it. If the broker crashes between steps 2 and 4, the next coordinator
writes the markers. A duplicate marker has no effect. As a result, either all partitions get the
same kind of marker, or no partition gets a marker.

Where Kafka relies on replicas for durability, this coordinator uses fsync. States, epochs, fencing
and errors are the same as in Kafka's TransactionCoordinator. In a cluster, a state takes effect
once it is replicated to the in-sync replicas. No lock is held during this wait. Other calls for the
same id get CONCURRENT_TRANSACTIONS, which corresponds to Kafka's pending states. A call that ends a
transaction also waits for its markers, as long as their leaders can be reached.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from logstore.coordinator.host import NO_EPOCH, CoordinatorHost
from logstore.coordinator.markers import OUTDATED_ERRORS, TransactionMarker
from logstore.coordinator.transactions.log import StoredTransactions, TransactionLog
from logstore.coordinator.transactions.pending_offsets import History, write_missing_markers
from logstore.coordinator.transactions.producer_ids import ProducerIds, largest_producer_id
from logstore.coordinator.transactions.state import (
    SERVER_VERSION,
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransactionState,
    TransactionVersion,
    encode_key,
)
from logstore.errors import (
    ConcurrentTransactionsError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    KafkaStorageError,
    LeaderNotAvailableError,
    LogStoreError,
    NotCoordinatorError,
    ProducerFencedError,
    UnknownTopicOrPartitionError,
)
from logstore.names import TRANSACTION_STATE_TOPIC
from logstore.runtime.lifetime import lasting
from logstore.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from logstore.config.broker_config import BrokerConfig
    from logstore.coordinator.groups.coordinator import GroupCoordinator
    from logstore.manager.manager import LogManager
    from logstore.manager.services import LogEvents
    from logstore.runtime import Runtime, ScheduledTask, Unsubscribe

__all__ = ["ProducerIdAndEpoch", "TransactionCoordinator"]

logger = logging.getLogger(__name__)

ADD_TIMEOUT_MS = 100
"""How long to wait for other requests of an id before adding a partition to its transaction.

A producer with `TransactionVersion.V2` sends batches to several leaders at the same time. The wait
corresponds to Kafka's `add.partitions.to.txn.retry.backoff.max.ms`.
"""


class TransactionCoordinator:
    """Allocates producer ids, and begins and ends transactions.

    If the log manager starts the coordinator as a service, it immediately completes prepared
    transactions. In the background, it periodically aborts timed-out transactions and removes
    expired ids, at the same intervals as Kafka. If not, it completes prepared transactions before
    its first transactional call, and does everything else during calls.

    Parameters
    ----------
    runtime : Runtime
    manager : LogManager
        A manager that is not read-only.
    groups : GroupCoordinator
        Stores the committed offsets of transactions.
    config : BrokerConfig, optional
        The default is the manager's configuration.
    host : CoordinatorHost, optional
        The default is a single broker.

    Attributes
    ----------
    groups : GroupCoordinator

    Notes
    -----
    The coordinator is thread-safe. On a single broker, a call holds the coordinator's lock. In a
    cluster, a call excludes other calls for the same transactional id, and releases the lock while
    it waits: with a virtual clock, tasks run in the waiting thread, which a lock would not exclude.
    The lock is acquired before the group coordinator's lock and the locks of logs.
    """

    def __init__(
        self,
        runtime: Runtime,
        manager: LogManager,
        groups: GroupCoordinator,
        config: BrokerConfig | None = None,
        host: CoordinatorHost | None = None,
    ) -> None:
        self.config = manager.broker_config if config is None else config
        self._runtime = runtime
        self._manager = manager
        self._host = CoordinatorHost(manager) if host is None else host
        self._lock = manager.lifetime.lock(runtime.lock())
        self._log = TransactionLog(self._host, self.config)
        self.groups = groups
        self._stored: StoredTransactions | None = None
        self._active = False
        # The partitions of each prepared transaction whose markers have been written.
        self._with_marker: dict[str, set[TopicPartition]] = {}
        # In a cluster, the ids for which a call is in progress, with True if the leader of the id's
        # partition has changed during the call.
        self._pending: dict[str, bool] = {}
        self._expiry_task: ScheduledTask | None = None
        self._abort_task: ScheduledTask | None = None
        self._expiry_interval_ms = (
            self.config.transaction_remove_expired_transaction_cleanup_interval_ms
        )
        self._next_expiry_ms = runtime.clock.now_ms() + self._expiry_interval_ms
        self._producer_ids = ProducerIds(
            runtime.fs,
            manager.directories[0].path,
            self._lock,
            self._largest_known_id,
            manager.broker_config.logstore_small_file_max_bytes,
        )
        manager.lifetime.add(self)

    def __repr__(self) -> str:
        return f"TransactionCoordinator({self._manager!r})"

    # -- producers -----------------------------------------------------------------------

    def new_producer_id(self) -> int:
        """Return a new producer id.

        Raises
        ------
        KafkaStorageError
            The id could not be reserved on disk.
        """
        take = self._host.take_producer_id or self._producer_ids.take
        return take()

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None = None,
    ) -> ProducerIdAndEpoch:
        """Allocate a producer id and an epoch, and fence earlier producers of the transactional id.

        An open transaction of the previous producer is aborted.

        Parameters
        ----------
        timeout_ms : int
            Transaction timeout of the new producer.
        expected : ProducerIdAndEpoch, optional
            The producer's current id and epoch, to bump the epoch (KIP-360). A retry returns the
            same result, unless another producer has initialized the id in the meantime.

        Raises
        ------
        ProducerFencedError
            `expected` is not the newest producer.
        InvalidTransactionTimeoutError
        InvalidRecordError
            The transactional id is too long.
        ConcurrentTransactionsError
            The last transaction cannot be completed yet.
        KafkaStorageError
            The disk failed.
        """
        if not 0 < timeout_ms <= self.config.transaction_max_timeout_ms:
            raise InvalidTransactionTimeoutError(
                f"a transaction timeout of {timeout_ms} ms is not in"
                f" [1, {self.config.transaction_max_timeout_ms}] (transaction.max.timeout.ms)"
            )
        encode_key(transactional_id)
        with self._exclusive(transactional_id):
            metadata = self._find(transactional_id)
            self._check_readable(transactional_id)
            last_epoch = NO_PRODUCER_EPOCH
            version = TransactionVersion.V0
            if metadata is None:
                producer = ProducerIdAndEpoch(self.new_producer_id(), 0)
            else:
                metadata = self._ensure_complete(metadata)
                self._check_may_belong(expected, metadata)
                if metadata.state is TransactionState.ONGOING:
                    metadata = self._ensure_complete(self._abort_and_fence(metadata))
                    self._check_may_belong(expected, metadata)
                producer = self._next_producer(metadata, expected)
                version = metadata.client_version
                if expected is not None:
                    last_epoch = expected.producer_epoch
            self._store(
                TransactionMetadata(
                    transactional_id,
                    producer.producer_id,
                    producer.producer_epoch,
                    timeout_ms,
                    TransactionState.EMPTY,
                    client_version=version,
                    last_producer_epoch=last_epoch,
                )
            )
            return producer

    def _check_may_belong(
        self, expected: ProducerIdAndEpoch | None, metadata: TransactionMetadata
    ) -> None:
        if expected is not None and not metadata.may_belong(expected):
            raise _fenced(metadata.transactional_id, expected, metadata)

    def _next_producer(
        self, metadata: TransactionMetadata, expected: ProducerIdAndEpoch | None
    ) -> ProducerIdAndEpoch:
        if expected is not None and expected.producer_epoch != metadata.producer_epoch:
            if expected.producer_epoch == metadata.last_producer_epoch:
                return metadata.producer  # this is a retry whose response was lost
            raise _fenced(metadata.transactional_id, expected, metadata)
        if metadata.is_exhausted:
            return ProducerIdAndEpoch(self.new_producer_id(), 0)
        return ProducerIdAndEpoch(metadata.producer_id, metadata.producer_epoch + 1)

    # -- transactions --------------------------------------------------------------------

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        version: TransactionVersion = TransactionVersion.V0,
    ) -> None:
        """Add partitions to a producer's transaction, beginning a transaction if necessary.

        The caller must call this method before the first append to each partition. The change is
        durable when the method returns.

        Parameters
        ----------
        version : TransactionVersion
            The version that the client uses.

        Raises
        ------
        ProducerFencedError
            The producer was fenced by a newer epoch, or the transaction timed out.
        InvalidProducerIdMappingError
            The transactional id has expired, or its producer id has changed.
        ConcurrentTransactionsError
            The previous transaction cannot be completed yet.
        KafkaStorageError
            The disk failed.
        """
        with self._exclusive(transactional_id):
            self._complete_known(transactional_id)
            metadata = self._require_owner(transactional_id, producer)
            if metadata.state is TransactionState.ONGOING:
                if metadata.partitions.issuperset(partitions):
                    self._await_newest(transactional_id)  # an earlier call may have failed
                    return
                start_ms = metadata.start_ms
            else:
                start_ms = self._runtime.clock.now_ms()
            self._store(
                replace(
                    metadata,
                    state=TransactionState.ONGOING,
                    partitions=metadata.partitions.union(partitions),
                    start_ms=start_ms,
                    client_version=version,
                ),
                durable=True,
            )
            if (task := self._abort_task) is not None:
                task.wake()

    def open_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch
    ) -> frozenset[TopicPartition]:
        """Return the partitions of a producer's open transaction, or none if it has none open.

        Raises
        ------
        ProducerFencedError, InvalidProducerIdMappingError, KafkaStorageError
            See `add_partitions`.
        """
        self._complete_first(transactional_id)
        return self._require_owner(transactional_id, producer).partitions

    def partition_for(self, transactional_id: str) -> TopicPartition:
        """Return the partition of a transactional id, creating the topic if necessary.

        Raises
        ------
        KafkaStorageError
        """
        if not self._log.is_stored:
            with self._lock:
                self._log.ensure_stored()
        return TopicPartition(TRANSACTION_STATE_TOPIC, self._log.partition_of(transactional_id))

    def owns(self, transactional_id: str, producer: ProducerIdAndEpoch) -> bool:
        """Return whether a producer is known to be the newest producer of a transactional id.

        This is called for each batch of a transaction, so it only uses the state in memory and does
        not acquire the lock. If it returns False, `verified` raises the reason.
        """
        stored = self._stored
        metadata = None if stored is None else stored.by_id.get(transactional_id)
        return metadata is not None and metadata.producer == producer

    @contextmanager
    def verified(
        self,
        topic_partition: TopicPartition,
        producer: ProducerIdAndEpoch,
        transactional_id: str | None = None,
        *,
        adds: bool = False,
    ) -> Iterator[None]:
        """Verify that a partition is part of a producer's transaction, and keep that open.

        Appends use this before a transaction's first batch in a partition (KIP-890), so it raises
        Produce errors. If `transaction.partition.verification.enable` is false, it only verifies
        the ownership of a given transactional id.

        Parameters
        ----------
        transactional_id : str, optional
            Defaults to the transactional id that owns the producer id.
        adds : bool
            Whether to first add the partition to the transaction, beginning a transaction if
            necessary. `TransactionVersion.V2` needs this. `transactional_id` is then required.

        Raises
        ------
        InvalidTxnStateError
            No transaction is open, or the partition was not added to it.
        InvalidProducerEpochError
            The producer was fenced by a newer epoch, or the transaction timed out.
        InvalidProducerIdMappingError
            The transactional id is unknown or has a different producer id.
        ConcurrentTransactionsError
            The previous transaction cannot be completed yet.
        KafkaStorageError
            The stored state cannot be read or written.
        """
        verifies = self._manager.broker_config.transaction_partition_verification_enable
        if transactional_id is None and verifies:
            transactional_id = self._id_of(producer.producer_id)
            if transactional_id is None:
                raise InvalidTxnStateError(
                    f"{topic_partition}: producer {producer.producer_id} has no transactional id,"
                    f" so it cannot have an open transaction"
                )
        if transactional_id is not None:
            self._complete_first(transactional_id)
        if adds:
            assert transactional_id is not None
            self._check_owner(transactional_id, producer)
            self._host.wait_until(
                lambda: transactional_id not in self._pending, timeout_ms=ADD_TIMEOUT_MS
            )
            with _produce_errors():
                self.add_partitions(
                    transactional_id, producer, (topic_partition,), TransactionVersion.V2
                )
        with self._lock:  # keeps the transaction from ending
            if transactional_id is not None:
                metadata = self._check_owner(transactional_id, producer)
                if adds or verifies:
                    _check_open(topic_partition, metadata)
            yield

    def end_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        commit: bool,
        version: TransactionVersion = TransactionVersion.V0,
    ) -> ProducerIdAndEpoch:
        """Commit or abort a producer's transaction.

        When this method returns, the outcome is final. A marker that cannot be written, for example
        because a disk failed, is written later. Until then, the producer cannot begin a new
        transaction. The call is idempotent.

        Parameters
        ----------
        version : TransactionVersion
            The version that the client uses. `V2` allows an abort without an open transaction.

        Returns
        -------
        ProducerIdAndEpoch
            The id and epoch for the next transaction. `V2` bumps the epoch, or allocates a new id
            if the epoch is exhausted.

        Raises
        ------
        ProducerFencedError, InvalidProducerIdMappingError
            See `add_partitions`.
        InvalidTxnStateError
            No transaction is open, or it ended with the opposite outcome.
        KafkaStorageError
            The data or the decision could not be made durable, so the outcome is undecided.
        """
        with self._exclusive(transactional_id):
            if version.bumps_epoch:
                return self._end_v2(transactional_id, producer, commit=commit)
            metadata = self._require_owner(transactional_id, producer)
            if metadata.state is TransactionState.ONGOING:
                self._end(metadata, commit=commit, version=version)
            elif metadata.state is TransactionState.EMPTY or metadata.state.is_commit != commit:
                raise _not_ending(metadata, commit=commit)
            elif metadata.state.is_prepared:
                self._complete(metadata)
            return producer

    def _end_v2(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool
    ) -> ProducerIdAndEpoch:
        """End a transaction and bump the epoch. A retry returns the earlier result."""
        metadata = self._find(transactional_id)
        is_retry = metadata is not None and metadata.is_before_end(producer)
        if metadata is None or not (is_retry or metadata.producer_id == producer.producer_id):
            raise _not_mapped(transactional_id, producer)
        state = metadata.state
        if state.is_prepared:
            is_known = is_retry
        else:
            is_known = metadata.producer == producer or (is_retry and state.is_complete)
        if not is_known:
            raise _fenced(transactional_id, producer, metadata)
        if is_retry:
            if state.is_commit != commit:
                raise _not_ending(metadata, commit=commit)
            if state.is_prepared:
                metadata = self._complete(metadata)
        elif state is TransactionState.ONGOING or not commit:
            metadata = self._end(metadata, commit=commit, version=TransactionVersion.V2)
        else:
            raise _not_ending(metadata, commit=commit)
        return metadata.next_producer

    def of(self, transactional_id: str | None, producer_id: int) -> TransactionCoordinator:
        """Return the coordinator of a transaction. On a single broker, it is this object.

        Raises
        ------
        NotEnoughReplicasError
            No broker is currently the coordinator of the transaction.
        """
        return self._host.transactions_of(self, transactional_id, producer_id)

    @property
    def is_replicated(self) -> bool:
        """Whether the coordinator of a transaction can move to another broker."""
        return self._host.is_replicated

    @property
    @lasting
    def is_over(self) -> bool:
        """Whether the broker has been closed, or its cluster is being closed."""
        return self._manager.lifetime.is_over or self._host.is_closing

    def has_producer(self, producer_id: int) -> bool:
        """Return whether a producer id belongs to a transactional id of this coordinator."""
        return self._id_of(producer_id) is not None

    def transactions(self) -> dict[str, TransactionMetadata]:
        """Return the states of all transactional ids that this broker coordinates."""
        with self._lock:
            return dict(sorted(self._load().by_id.items()))

    def describe(self, transactional_id: str) -> TransactionMetadata | None:
        """Return the state of a transactional id, or None if it does not exist.

        Raises
        ------
        NotCoordinatorError, CoordinatorLoadInProgressError
            A different broker coordinates the id, or this broker is still loading it.
        """
        with self._lock:
            if self._is_in_use():
                self._log.check_owned(transactional_id)
            return self._load().by_id.get(transactional_id)

    # -- background tasks ----------------------------------------------------------------

    def take_over(self) -> None:
        """Load the partitions that this broker coordinates, and complete prepared transactions."""
        with self._lock:
            if not self._is_in_use():
                return
            self._take_over()
        self.complete_prepared()

    def complete_prepared(self) -> None:
        """Complete prepared transactions whose missing markers can be written."""
        with self._lock:
            if not self._is_in_use():
                return
            known = self._load().by_id.values()
            prepared = [each.transactional_id for each in known if each.state.is_prepared]
        for transactional_id in prepared:
            metadata = self._load().by_id.get(transactional_id)
            if metadata is not None and metadata.state.is_prepared:
                self._try(self._complete_known, transactional_id, "cannot be completed")

    def abort_timed_out(self) -> list[str]:
        """Abort timed-out transactions and fence their producers.

        Prepared transactions are completed first, because their producers might never return.

        Returns
        -------
        list of str
            The transactional ids of the aborted transactions.
        """
        self.take_over()
        with self._lock:
            if not self._is_in_use():
                return []
            known = list(self._load().by_id.values())
        timed_out = [each.transactional_id for each in known if self._is_timed_out(each)]
        return [each for each in timed_out if self._try(self._abort, each, "cannot be aborted")]

    def _is_timed_out(self, metadata: TransactionMetadata) -> bool:
        end_ms = metadata.start_ms + metadata.timeout_ms
        is_open = metadata.state is TransactionState.ONGOING
        return is_open and end_ms < self._runtime.clock.now_ms()

    def _abort(self, transactional_id: str) -> None:
        """Abort a transaction if it is still open after its timeout."""
        metadata = self._load().by_id.get(transactional_id)
        if metadata is not None and self._is_timed_out(metadata):
            self._abort_and_fence(metadata)

    def remove_expired(self) -> list[str]:
        """Remove ids that were unused for `transactional.id.expiration.ms`. Return these ids."""
        with self._lock:
            if not self._is_in_use():
                return []
            now_ms = self._runtime.clock.now_ms()
            expired = [
                metadata
                for metadata in self._take_over().by_id.values()
                if metadata.state.is_idle
                and metadata.last_update_ms <= now_ms - self.config.transactional_id_expiration_ms
            ]
            ids = [metadata.transactional_id for metadata in expired]
        return [each for each in ids if self._try(self._forget, each, "cannot be removed")]

    def _forget(self, transactional_id: str) -> None:
        """Remove a transactional id."""
        now_ms = self._runtime.clock.now_ms()
        with self._lock:
            known = self._load().by_id
            if (metadata := known.get(transactional_id)) is not None and metadata.state.is_idle:
                self._log.forget(transactional_id, self._epoch_of(transactional_id), now_ms=now_ms)
                del known[transactional_id]

    def _try(self, action: Callable[[str], object], transactional_id: str, failure: str) -> bool:
        """Run a background action for an id. If it fails, log the error and return False.

        If a call is using the id, return False without logging. The action is retried later.
        """
        try:
            with self._exclusive(transactional_id):
                action(transactional_id)
        except ConcurrentTransactionsError:
            return False
        except LogStoreError as error:
            logger.warning("transaction of '%s' %s: %s", transactional_id, failure, error)
            return False
        return True

    # -- as a service --------------------------------------------------------------------

    def start(self) -> None:
        """Complete prepared transactions, and start the periodic tasks."""
        with self._lock:
            period_ms = self._expiry_interval_ms
            self._expiry_task = self._runtime.scheduler.schedule(
                "transactionalId-expiration",
                self._expire_in_background,
                delay_ms=period_ms,
                period_ms=period_ms,
                idle_ms=self._expiry_idle_ms,
            )
            period_ms = self.config.transaction_abort_timed_out_transaction_cleanup_interval_ms
            self._abort_task = self._runtime.scheduler.schedule(
                "transaction-abort",
                self._abort_in_background,
                delay_ms=period_ms,
                period_ms=period_ms,
                idle_ms=self._abort_idle_ms,
            )
            if self._log.is_stored:
                self._take_over()

    def stop(self) -> None:
        """Cancel the periodic tasks."""
        for task in (self._expiry_task, self._abort_task):
            if task is not None:
                task.cancel()
        self._expiry_task = self._abort_task = None

    def follow(self, events: LogEvents) -> Iterable[Unsubscribe]:
        """Reschedule the check for expired ids when a log or a config changes."""
        return (
            events.log_changed.subscribe(self._wake),
            events.config_changed.subscribe(self._wake),  # a copied topic may have been taken over
        )

    def _wake(self, *_: object) -> None:
        if (task := self._expiry_task) is not None:
            task.wake()

    def _expiry_idle_ms(self) -> int | None:
        """Return the milliseconds until the next id expires, or None if no id will expire."""
        with self._lock:
            if not self._is_in_use():
                return None
            now_ms = self._runtime.clock.now_ms()
            known = self._load().by_id.values()
            updates = [metadata.last_update_ms for metadata in known if metadata.state.is_idle]
            if not updates:
                return None
            return max(0, min(updates) + self.config.transactional_id_expiration_ms - now_ms)

    def _abort_idle_ms(self) -> int | None:
        """Return None if all transactions are complete and cannot time out, or 0 if not."""
        with self._lock:
            return 0 if self._has_incomplete() else None

    def _abort_in_background(self) -> None:
        with self._lock:
            has_incomplete = self._has_incomplete()
        if not has_incomplete:
            return
        try:
            self.abort_timed_out()
        except LogStoreError:
            # an error is expected if the broker was closed during the wait
            if not self._manager.lifetime.is_over:
                raise

    def _has_incomplete(self) -> bool:
        known = () if self._stored is None else self._stored.by_id.values()
        return any(not metadata.state.is_idle for metadata in known)

    def _expire_in_background(self) -> None:
        self.remove_expired()

    def _is_in_use(self) -> bool:
        """Return whether the topic is in use, rather than missing or copied from a broker."""
        return self._active or self._log.is_stored

    # -- inside --------------------------------------------------------------------------

    @contextmanager
    def _exclusive(self, transactional_id: str) -> Iterator[None]:
        """Exclude other calls for a transactional id, even while the current call waits.

        Raises
        ------
        ConcurrentTransactionsError
            Another call for the id is in progress.
        """
        if not self._host.is_replicated:
            with self._lock:  # no call waits
                yield
            return
        with self._lock:
            if transactional_id in self._pending:
                raise ConcurrentTransactionsError(
                    f"another request for '{transactional_id}' is in progress"
                )
            self._load()
            self._pending[transactional_id] = False
        try:
            yield
        finally:
            with self._lock:  # `_load` iterates over `_pending`
                del self._pending[transactional_id]
            self._host.notify()

    def _load(self) -> StoredTransactions:
        with self._lock:
            stored = self._stored
            if stored is None or stored.epochs is not self._log.owned:
                former = {} if stored is None else stored.epochs
                self._stored = stored = self._log.read(stored)
                self._with_marker.clear()  # another leader may have begun new transactions
                for each in self._pending:
                    number = self._log.partition_of(each)
                    if number in former and stored.epochs.get(number) != former[number]:
                        self._pending[each] = True
            return stored

    def _take_over(self) -> StoredTransactions:
        """Load the stored states.

        On a single broker, the first call also completes prepared transactions.
        """
        with self._lock:
            stored = self._load()
            if not self._active:
                self._log.ensure_stored()
                self._active = True
                if not self._host.is_replicated:  # in a cluster, `ClusterHost` calls `take_over`
                    self.complete_pending_offsets()
                    self.complete_prepared()
                stored = self._load()
            return stored

    def complete_pending_offsets(self) -> None:
        """Write the missing markers in `__consumer_offsets`; see `pending_offsets`.

        The caller must do this before completing prepared transactions, because a marker ends all
        of a producer's transactions in the partition.
        """
        logs = self.groups.logs_with_open_transactions()
        if not logs:
            return
        producer_ids = {each for log in logs for each in log.producer_state.open_producers()}
        try:
            history = History(self._log.history(producer_ids))
        except LogStoreError as error:
            logger.warning("the history of transactions cannot be read: %s", error)
            return
        for log in logs:
            try:
                write_missing_markers(log, history, self._decide_to_fence)
            except LogStoreError as error:
                logger.warning("%s: pending offsets cannot be settled: %s", log, error)

    def _find(self, transactional_id: str) -> TransactionMetadata | None:
        """Begin a producer's call. Return the state of its id, or None if the id is unknown.

        Without background tasks, first run the tasks that are due.
        """
        with self._lock:
            self._take_over()
            self._log.check_owned(transactional_id)
            if self._expiry_task is None:
                self.abort_timed_out()
                now_ms = self._runtime.clock.now_ms()
                if now_ms >= self._next_expiry_ms:
                    self._next_expiry_ms = now_ms + self._expiry_interval_ms
                    self.remove_expired()
            return self._load().by_id.get(transactional_id)

    def _check_readable(self, transactional_id: str) -> None:
        stored = self._load()
        number = self._log.partition_of(transactional_id)
        error = stored.unreadable.get(number) or stored.damaged.get(transactional_id)
        if error is not None:
            raise KafkaStorageError(
                f"cannot read the state of transactional id '{transactional_id}' in"
                f" {TRANSACTION_STATE_TOPIC}-{number}: {error}"
            ) from error

    def _complete_first(self, transactional_id: str) -> None:
        """Complete the transaction of an id if it is prepared.

        Raises
        ------
        ConcurrentTransactionsError
            The transaction cannot be completed yet.
        """
        metadata = None if self._stored is None else self._stored.by_id.get(transactional_id)
        if metadata is not None and metadata.state.is_prepared:
            with self._exclusive(transactional_id):
                self._complete_known(transactional_id)

    def _complete_known(self, transactional_id: str) -> None:
        """Complete a prepared transaction. Completing it may change the producer id."""
        metadata = self._load().by_id.get(transactional_id)
        if metadata is not None:
            self._ensure_complete(metadata)

    def _require_owner(
        self, transactional_id: str, producer: ProducerIdAndEpoch
    ) -> TransactionMetadata:
        """Return the state of an id. Raise an error if `producer` is not its newest producer."""
        metadata = self._find(transactional_id)
        if metadata is None or metadata.producer_id != producer.producer_id:
            raise _not_mapped(transactional_id, producer)
        if metadata.producer != producer:
            raise _fenced(transactional_id, producer, metadata)
        return metadata

    def _check_owner(
        self, transactional_id: str, producer: ProducerIdAndEpoch
    ) -> TransactionMetadata:
        """Return the state of an id like `_require_owner`, but raise Produce errors."""
        if not self._is_in_use():
            raise _not_mapped(transactional_id, producer)  # the topic need not be created
        self._check_readable(transactional_id)
        with _produce_errors():
            return self._require_owner(transactional_id, producer)

    def _id_of(self, producer_id: int) -> str | None:
        """Return the transactional id that owns a producer id, or None if there is none."""
        with self._lock:
            if not self._is_in_use():
                return None
            known = self._load().by_id.values()
            return next((m.transactional_id for m in known if m.producer_id == producer_id), None)

    def _ensure_complete(self, metadata: TransactionMetadata) -> TransactionMetadata:
        """Complete the transaction if it is prepared. Return the new state.

        Raises
        ------
        ConcurrentTransactionsError
            A marker cannot be written yet.
        """
        if not metadata.state.is_prepared:
            return metadata
        metadata = self._complete(metadata)
        if metadata.state.is_prepared:
            raise ConcurrentTransactionsError(
                f"the last transaction of '{metadata.transactional_id}' is still in state"
                f" {metadata.state.kafka_name}: not all of its partitions are writable"
            )
        return metadata

    def _abort_and_fence(self, metadata: TransactionMetadata) -> TransactionMetadata:
        """Abort an open transaction and fence its producer by bumping the epoch."""
        return self._complete(self._decide_to_fence(metadata))

    def _decide_to_fence(self, metadata: TransactionMetadata) -> TransactionMetadata:
        """Store the decision to abort, with a bumped epoch. The caller must write the markers."""
        return self._decide(metadata, commit=False, version=SERVER_VERSION)

    def _end(
        self, metadata: TransactionMetadata, *, commit: bool, version: TransactionVersion
    ) -> TransactionMetadata:
        if commit:
            self._flush(metadata.partitions)
        return self._complete(self._decide(metadata, commit=commit, version=version))

    def _decide(
        self, metadata: TransactionMetadata, *, commit: bool, version: TransactionVersion
    ) -> TransactionMetadata:
        needs_id = version.bumps_epoch and metadata.is_exhausted
        next_producer_id = self.new_producer_id() if needs_id else NO_PRODUCER_ID
        now_ms = self._runtime.clock.now_ms()
        prepared = metadata.prepared(
            commit=commit, version=version, next_producer_id=next_producer_id, now_ms=now_ms
        )
        return self._store(prepared, durable=True)

    def _flush(self, partitions: Collection[TopicPartition]) -> None:
        for tp in sorted(partitions):
            try:
                log = self._host.leader_log(tp)
            except UnknownTopicOrPartitionError:
                continue  # the partition was deleted with its data
            except LeaderNotAvailableError:
                continue  # acknowledged records are on the in-sync replicas
            log.flush()

    def _complete(self, metadata: TransactionMetadata) -> TransactionMetadata:
        """Write the missing markers of a prepared transaction. If all are written, complete it."""
        transactional_id = metadata.transactional_id
        with self._lock:
            epoch = self._log.coordinator_epoch(transactional_id)
            # Check this after reading `epoch`: in a later epoch, the state is a different object.
            if self._load().by_id.get(transactional_id) is not metadata:
                # Another leader may have completed the transaction and begun the next one.
                raise ConcurrentTransactionsError(f"the state of '{transactional_id}' has changed")
            missing = metadata.partitions - self._with_marker.get(transactional_id, set())
        # The decision of an earlier leader might not have been replicated yet.
        self._await_newest(transactional_id)
        written = self._write_markers(metadata, epoch, missing)
        with self._lock:
            self._load()
            if self._pending.get(transactional_id):
                return metadata  # another leader may have completed it
            with_marker = self._with_marker.setdefault(transactional_id, set())
            with_marker |= written
            if not metadata.partitions <= with_marker:
                return metadata
        try:
            return self._store(metadata.completed())
        except LogStoreError as error:
            logger.warning("cannot store the completion of '%s': %s", transactional_id, error)
            return metadata

    def _write_markers(
        self, metadata: TransactionMetadata, epoch: int, partitions: Collection[TopicPartition]
    ) -> set[TopicPartition]:
        """Write markers to partitions. Return the partitions that no longer need a marker."""
        producer = metadata.producer
        marker = TransactionMarker(
            *producer, epoch, metadata.state.is_commit, metadata.client_version
        )
        missing = []
        for tp in sorted(partitions):
            try:
                self._host.check_exists(tp)
            except UnknownTopicOrPartitionError as error:  # the partition was deleted with its data
                logger.warning(
                    "%s: skipping the marker of producer %d with epoch %d: %s",
                    tp,
                    *producer,
                    error,
                )
            else:
                missing.append(tp)
        written = set(partitions).difference(missing)
        for tp, code in self._host.write_markers(marker, missing).items() if missing else ():
            if code in OUTDATED_ERRORS:
                # In a cluster, the next coordinator may have written the marker first.
                level = logging.WARNING if self._host.is_replicated else logging.ERROR
                logger.log(level, "%s: the marker of %s is outdated: %s", tp, producer, code)
            elif code is not None:
                logger.warning(
                    "%s: no marker was written for '%s': %s", tp, metadata.transactional_id, code
                )
                continue
            written.add(tp)
        return written

    def _store(
        self, metadata: TransactionMetadata, *, durable: bool = False
    ) -> TransactionMetadata:
        """Write a state to the log. It takes effect once it is replicated.

        If replication fails, the previous state remains in effect. A later call may write the next
        state, or the next coordinator finds this state in the log.

        Raises
        ------
        NotCoordinatorError
            The leader of the partition has changed since the call began.
        """
        transactional_id = metadata.transactional_id
        with self._lock:
            previous = self._load().by_id.get(transactional_id)
            self._check_not_reloaded(transactional_id)
            now_ms = self._runtime.clock.now_ms()
            metadata = replace(
                metadata,
                last_update_ms=now_ms,
                previous_producer_id=(previous or metadata).producer_id,
            )
            metadata.check_follows(previous)
            epoch = self._epoch_of(transactional_id)
            log, offset = self._log.append(metadata, epoch, now_ms=now_ms, durable=durable)
        self._host.await_replicated({log: offset})
        with self._lock:
            known = self._load().by_id
            self._check_not_reloaded(transactional_id)
            known[transactional_id] = metadata
            if not metadata.state.is_prepared:
                self._with_marker.pop(transactional_id, None)
        return metadata

    def _check_not_reloaded(self, transactional_id: str) -> None:
        if self._pending.get(transactional_id):
            raise NotCoordinatorError(
                f"another broker became the coordinator of '{transactional_id}' during the call"
            )

    def _await_newest(self, transactional_id: str) -> None:
        """Wait until the newest state of an id is replicated."""
        self._host.await_replicated(dict([self._log.newest_written(transactional_id)]))

    def _epoch_of(self, transactional_id: str) -> int:
        """Return the leader epoch in which the state of an id was loaded."""
        number = self._log.partition_of(transactional_id)
        stored = self._stored
        return NO_EPOCH if stored is None else stored.epochs.get(number, NO_EPOCH)

    def _largest_known_id(self) -> int:
        """Return the highest producer id in all logs, or -1 if there is none."""
        largest = largest_producer_id(self._manager)
        stored = self._load().by_id.values()
        return max(
            largest, max((metadata.producer_id for metadata in stored), default=NO_PRODUCER_ID)
        )


@contextmanager
def _produce_errors() -> Iterator[None]:
    """Raise `InvalidProducerEpochError` for a fenced producer, as Kafka's Produce does."""
    try:
        yield
    except ProducerFencedError as error:
        raise InvalidProducerEpochError(str(error)) from error


def _check_open(tp: TopicPartition, metadata: TransactionMetadata) -> None:
    if metadata.state is not TransactionState.ONGOING or tp not in metadata.partitions:
        raise InvalidTxnStateError(
            f"{tp} is not part of a transaction of '{metadata.transactional_id}', whose state is"
            f" {metadata.state.kafka_name}"
        )


def _not_mapped(
    transactional_id: str, producer: ProducerIdAndEpoch
) -> InvalidProducerIdMappingError:
    return InvalidProducerIdMappingError(
        f"producer {producer.producer_id} does not belong to transactional id '{transactional_id}'"
    )


def _not_ending(metadata: TransactionMetadata, *, commit: bool) -> InvalidTxnStateError:
    return InvalidTxnStateError(
        f"cannot {'commit' if commit else 'abort'} the transaction of"
        f" '{metadata.transactional_id}' in state {metadata.state.kafka_name}"
    )


def _fenced(
    transactional_id: str, producer: ProducerIdAndEpoch, metadata: TransactionMetadata
) -> ProducerFencedError:
    return ProducerFencedError(
        f"producer {producer.producer_id} with epoch {producer.producer_epoch} of transactional id"
        f" '{transactional_id}' is fenced: epoch {metadata.producer_epoch} is the newest"
    )
