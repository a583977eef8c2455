"""The transaction coordinator: who may write under a transactional id, and how its work ends.

Every decision is a record in `__transaction_state` before it is acted upon, in this order:

1. `Ongoing` with the partitions, durable, before any of them gets data;
2. to commit, the data durable; then `PrepareCommit` or `PrepareAbort`, durable: the decision;
3. a marker in every partition, durable;
4. `CompleteCommit` or `CompleteAbort`.

After a crash before 2 the transaction is still open, and is aborted when its id comes back or its
time is over. After one between 2 and 4 whoever takes over writes the markers (again: a second one
ends nothing). So in the end every partition has a marker or none has, and all are of one kind.

Kafka relies on replicas for what is durable here by syncs. Otherwise states, epochs, fencing and
errors are those of its TransactionCoordinator, but for what only a network needs: nothing is
pending, and nobody is told to try again later.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from logstore.coordinator.groups.coordinator import GroupCoordinator
from logstore.coordinator.transactions.log import (
    StoredTransactions,
    TransactionConfig,
    TransactionLog,
)
from logstore.coordinator.transactions.pending_offsets import History, settle
from logstore.coordinator.transactions.producer_ids import ProducerIds
from logstore.coordinator.transactions.state import (
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransactionState,
    encode_key,
)
from logstore.errors import (
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    KafkaStorageError,
    LogStoreError,
    ProducerFencedError,
    TransactionCoordinatorFencedError,
    UnknownTopicOrPartitionError,
)
from logstore.names import TRANSACTION_STATE_TOPIC
from logstore.types import INT16_MAX, NO_PRODUCER_ID, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from logstore.manager.manager import LogManager
    from logstore.manager.services import LogEvents
    from logstore.runtime import Runtime, ScheduledTask, Unsubscribe
    from logstore.storage.log.log import Log

__all__ = ["ProducerIdAndEpoch", "TransactionConfig", "TransactionCoordinator"]

logger = logging.getLogger(__name__)

LAST_EPOCH = INT16_MAX - 1
"""The last epoch a producer gets; one is kept back, with which it can still be fenced."""


class PartitionLogs:
    """The logs that have the data of transactions, and get their markers.

    Parameters
    ----------
    log : callable
        Returns a partition's log; of a cluster the leader's.
    marked : callable, optional
        Waits until a marker, which was just written at an offset of a log, will not be lost with
        that log, and raises if it may be; by default nobody has another log.
    """

    def __init__(
        self,
        log: Callable[[TopicPartition], Log],
        marked: Callable[[Log, int], object] = lambda log, offset: None,
    ) -> None:
        self.log = log
        self.marked = marked


class TransactionCoordinator:
    """Gives out producer ids, and begins and ends transactions.

    A service of the log manager: as such it finishes at its start what a crash left prepared, and
    looks on Kafka's intervals for transactions that took too long and for ids out of use. If it is
    not started it does the first when it is first asked for a transaction, and the others at every
    call.

    Parameters
    ----------
    runtime : Runtime
    manager : LogManager
        Not read-only.
    config : TransactionConfig, optional
        The broker's by default.
    groups : GroupCoordinator, optional
        Keeps the offsets of consumer groups that transactions commit; one of its own by default.
    logs : PartitionLogs, optional
        Where the data and markers of transactions are; by default the manager's.

    Attributes
    ----------
    groups : GroupCoordinator
        As given.

    Notes
    -----
    Any thread may call. One lock is held throughout a call, also while markers are written; it is
    taken before that of the group coordinator and the lock of any log.
    """

    def __init__(
        self,
        runtime: Runtime,
        manager: LogManager,
        config: TransactionConfig | None = None,
        groups: GroupCoordinator | None = None,
        logs: PartitionLogs | None = None,
    ) -> None:
        self.config = TransactionConfig.of(manager.broker_config) if config is None else config
        self._runtime = runtime
        self._manager = manager
        self._logs = PartitionLogs(manager.log) if logs is None else logs
        self._lock = manager.lifetime.lock(runtime.lock())
        self._log = TransactionLog(manager, self.config)
        self.groups = GroupCoordinator(runtime, manager) if groups is None else groups
        self._stored: StoredTransactions | None = None
        self._active = False
        # Of prepared transactions: the partitions that have their marker already.
        self._marked: dict[str, set[TopicPartition]] = {}
        # By transactional id: what its producer had when it asked for what it has now. In memory
        # alone, as in Kafka: after a restart such a producer is fenced when it asks again.
        self._renewed: dict[str, ProducerIdAndEpoch] = {}
        self._expiry_task: ScheduledTask | None = None
        self._abort_task: ScheduledTask | None = None
        self._next_expiry_ms = runtime.clock.now_ms() + self.config.remove_expired_interval_ms
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
        """Return a producer id that nobody has.

        Raises
        ------
        KafkaStorageError
            It cannot be reserved.
        """
        return self._producer_ids.take()

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None = None,
    ) -> ProducerIdAndEpoch:
        """Make the caller the only producer of a transactional id.

        An open transaction of the one before is aborted; it is fenced from here on.

        Parameters
        ----------
        timeout_ms : int
            Age at which transactions of the new producer are aborted.
        expected : ProducerIdAndEpoch, optional
            What the caller had until now, if it only wants another epoch (KIP-360). It gets the
            same one when it asks again, as long as nobody else came between.

        Raises
        ------
        ProducerFencedError
            `expected` is not the newest producer; or a transaction was open, which is aborted:
            clients do that first.
        InvalidTransactionTimeoutError
        InvalidRecordError
            The id is too long.
        KafkaStorageError
            The disk failed, or its last transaction cannot be completed.
        """
        if not 0 < timeout_ms <= self.config.max_timeout_ms:
            raise InvalidTransactionTimeoutError(
                f"a transaction timeout of {timeout_ms} ms is not in"
                f" [1, {self.config.max_timeout_ms}] (transaction.max.timeout.ms)"
            )
        encode_key(transactional_id)
        with self._lock:
            transactions = self._enter()
            self._check_readable(transactional_id)
            metadata = transactions.by_id.get(transactional_id)
            if metadata is None:
                producer = ProducerIdAndEpoch(self.new_producer_id(), 0)
            else:
                if expected is not None and not self._is_known(expected, metadata):
                    raise _fenced(transactional_id, expected, metadata)
                metadata = self._settled(metadata)
                if metadata.state is TransactionState.ONGOING:
                    metadata = self._settled(self._abort_and_fence(metadata))
                producer = self._next_producer(metadata, expected)
            self._store(
                TransactionMetadata(
                    transactional_id,
                    producer.producer_id,
                    producer.producer_epoch,
                    timeout_ms,
                    TransactionState.EMPTY,
                )
            )
            if expected is None:
                self._renewed.pop(transactional_id, None)
            else:
                self._renewed[transactional_id] = expected
            return producer

    def _is_known(self, expected: ProducerIdAndEpoch, metadata: TransactionMetadata) -> bool:
        """Tell whether a producer was one of an id's, whatever its epoch is worth by now."""
        is_renewed = expected == self._renewed.get(metadata.transactional_id)
        return is_renewed or expected.producer_id == metadata.producer_id

    def _next_producer(
        self, metadata: TransactionMetadata, expected: ProducerIdAndEpoch | None
    ) -> ProducerIdAndEpoch:
        if expected is not None and expected != metadata.producer:
            if expected == self._renewed.get(metadata.transactional_id):
                return metadata.producer  # it did not hear the answer
            raise _fenced(metadata.transactional_id, expected, metadata)
        if metadata.producer_epoch >= LAST_EPOCH:
            return ProducerIdAndEpoch(self.new_producer_id(), 0)
        return ProducerIdAndEpoch(metadata.producer_id, metadata.producer_epoch + 1)

    # -- transactions --------------------------------------------------------------------

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
    ) -> None:
        """Take partitions into the producer's transaction, opening it if none is open.

        To be done before any of them gets data of it. Durable on return.

        Raises
        ------
        ProducerFencedError
            There is a newer producer, or the transaction took too long.
        InvalidProducerIdMappingError
            The id was forgotten, or has another producer id by now.
        KafkaStorageError
            The disk failed, or the transaction before cannot be completed.
        """
        with self._lock:
            metadata = self._settled(self._owned(transactional_id, producer))
            if metadata.state is TransactionState.ONGOING:
                if metadata.partitions.issuperset(partitions):
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
                ),
                durable=True,
            )
            if (task := self._abort_task) is not None:
                task.wake()

    def partition_of_group(self, group_id: str) -> TopicPartition:
        """Return the partition for a group's offsets; it exists from here on.

        Raises
        ------
        KafkaStorageError
        """
        with self._lock:
            self.groups.ensure_stored()
        return self.groups.partition_of(group_id)

    def owns(self, transactional_id: str, producer: ProducerIdAndEpoch) -> bool:
        """Return whether a producer is known to be the newest one of a transactional id.

        From memory, and without the lock: for every batch of a transaction. If it is False,
        `verified` has the reason.
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
    ) -> Iterator[None]:
        """Keep open, inside, the producer's transaction, of which the partition is part.

        Verified before its first data there (KIP-890); errors are those of a Produce request. With
        `transaction.partition.verification.enable=false` only the owner of the producer id is
        verified, and not even that without a transactional id.

        Parameters
        ----------
        transactional_id : str, optional
            By default the one that has the producer id.

        Raises
        ------
        InvalidTxnStateError
            No transaction is open, or the partition was not added to it.
        InvalidProducerEpochError
            There is a newer producer, or the transaction took too long.
        InvalidProducerIdMappingError
            The transactional id has another producer id, or none.
        KafkaStorageError
            The transaction before cannot be completed, or what is stored cannot be read.
        """
        with self._lock:
            if self._manager.broker_config.transaction_partition_verification_enable:
                self._verify(topic_partition, producer, transactional_id)
            elif transactional_id is not None:
                self._check_owner(transactional_id, producer)
            yield

    def end_transaction(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool
    ) -> None:
        """Commit or abort the producer's transaction.

        Once it returns the decision stands. A marker that could not be written, as its disk failed,
        follows when that is possible; until then the id's next transaction is refused. To ask
        for what was done already is harmless.

        Raises
        ------
        ProducerFencedError, InvalidProducerIdMappingError
            As `add_partitions`.
        InvalidTxnStateError
            No transaction is open, or it was ended the other way.
        KafkaStorageError
            Nothing is decided: the data or the decision cannot be made durable.
        """
        with self._lock:
            metadata = self._owned(transactional_id, producer)
            if metadata.state is TransactionState.ONGOING:
                self._end(metadata, commit=commit)
            elif metadata.state is TransactionState.EMPTY or metadata.state.is_commit != commit:
                raise InvalidTxnStateError(
                    f"cannot {'commit' if commit else 'abort'} the transaction of"
                    f" '{transactional_id}' in state {metadata.state.kafka_name}"
                )
            elif metadata.state.is_prepared:
                self._complete(metadata)

    def transactions(self) -> dict[str, TransactionMetadata]:
        """Return, as a copy, what is known of every transactional id; changes nothing."""
        with self._lock:
            return dict(sorted(self._load().by_id.items()))

    # -- what happens by itself ----------------------------------------------------------

    def abort_timed_out(self) -> list[str]:
        """Abort the transactions that are older than their timeout, and fence their producers.

        Transactions that were ended before, and whose markers could not all be written, are
        completed first: their producers may be gone.

        Returns
        -------
        list of str
            Their transactional ids.
        """
        with self._lock:
            if not self._is_in_use():
                return []
            stored = self._take_over()
            self._complete_prepared(stored)
            now_ms = self._runtime.clock.now_ms()
            late = [
                metadata
                for metadata in stored.by_id.values()
                if metadata.state is TransactionState.ONGOING
                and metadata.start_ms + metadata.timeout_ms < now_ms
            ]
            return [
                metadata.transactional_id
                for metadata in late
                if self._succeeds(self._abort_and_fence, metadata, "cannot be aborted")
            ]

    def remove_expired(self) -> list[str]:
        """Forget the ids that were idle for `transactional.id.expiration.ms`; return them."""
        with self._lock:
            if not self._is_in_use():
                return []
            now_ms = self._runtime.clock.now_ms()
            expired = [
                metadata
                for metadata in self._take_over().by_id.values()
                if metadata.state.is_idle
                and metadata.last_update_ms <= now_ms - self.config.id_expiration_ms
            ]
            return [
                metadata.transactional_id
                for metadata in expired
                if self._succeeds(self._forget, metadata, "cannot be forgotten")
            ]

    def _forget(self, metadata: TransactionMetadata) -> None:
        now_ms = self._runtime.clock.now_ms()
        self._log.forget(metadata.transactional_id, now_ms=now_ms)
        del self._load().by_id[metadata.transactional_id]
        self._renewed.pop(metadata.transactional_id, None)

    def _succeeds(
        self,
        action: Callable[[TransactionMetadata], object],
        metadata: TransactionMetadata,
        failure: str,
    ) -> bool:
        """Do what nobody waits for; if it fails, it is logged and tried again later."""
        try:
            action(metadata)
        except LogStoreError as error:
            logger.warning("transaction of '%s' %s: %s", metadata.transactional_id, failure, error)
            return False
        return True

    # -- as a service --------------------------------------------------------------------

    def start(self) -> None:
        """Finish what was left prepared, and look for what takes too long from now on."""
        with self._lock:
            period_ms = self.config.remove_expired_interval_ms
            self._expiry_task = self._runtime.scheduler.schedule(
                "transactionalId-expiration",
                self._expire_in_background,
                delay_ms=period_ms,
                period_ms=period_ms,
                idle_ms=self._expiry_idle_ms,
            )
            period_ms = self.config.abort_timed_out_interval_ms
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
        """Cancel the tasks."""
        for task in (self._expiry_task, self._abort_task):
            if task is not None:
                task.cancel()
        self._expiry_task = self._abort_task = None

    def follow(self, events: LogEvents) -> Iterable[Unsubscribe]:
        """Look for ids out of use again when something has changed that may be one of theirs."""
        return (
            events.log_changed.subscribe(self._wake),
            events.config_changed.subscribe(self._wake),  # a copied topic may be the engine's now
        )

    def _wake(self, *_: object) -> None:
        if (task := self._expiry_task) is not None:
            task.wake()

    def _expiry_idle_ms(self) -> int | None:
        """Return how long no id expires; what could not be forgotten is tried again."""
        with self._lock:
            if not self._is_in_use():
                return None
            now_ms = self._runtime.clock.now_ms()
            known = self._load().by_id.values()
            moments = [metadata.last_update_ms for metadata in known if metadata.state.is_idle]
            return max(0, min(moments) + self.config.id_expiration_ms - now_ms) if moments else None

    def _abort_idle_ms(self) -> int | None:
        """Return None while every transaction is complete: no timeout has to be checked."""
        with self._lock:
            return 0 if self._has_incomplete() else None

    def _abort_in_background(self) -> None:
        with self._lock:
            if self._has_incomplete():
                self.abort_timed_out()

    def _has_incomplete(self) -> bool:
        known = () if self._stored is None else self._stored.by_id.values()
        return any(not metadata.state.is_idle for metadata in known)

    def _expire_in_background(self) -> None:
        self.remove_expired()

    def _is_in_use(self) -> bool:
        """Tell whether there is a topic to look after; a copied one is left alone until asked."""
        return self._active or self._log.is_stored

    # -- inside; the lock is held ---------------------------------------------------------

    def _load(self) -> StoredTransactions:
        if self._stored is None:
            self._stored = self._log.read()
        return self._stored

    def _take_over(self) -> StoredTransactions:
        """Read what is stored, once, and complete what is prepared."""
        stored = self._load()
        if not self._active:
            self._log.ensure_stored()
            self._active = True
            self._settle_pending_offsets()
            self._complete_prepared(stored)
        return stored

    def _complete_prepared(self, stored: StoredTransactions) -> None:
        """Write the markers that prepared transactions lack, as far as that is possible now."""
        for metadata in list(stored.by_id.values()):
            if metadata.state.is_prepared:
                self._succeeds(self._complete, metadata, "cannot be completed")

    def _settle_pending_offsets(self) -> None:
        """Write the markers that `__consumer_offsets` lacks; see `pending_offsets`.

        Before prepared transactions are completed, whose markers would end more than them.
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
                settle(log, history, self._decide_to_fence)
            except LogStoreError as error:
                logger.warning("%s: pending offsets cannot be settled: %s", log, error)

    def _enter(self) -> StoredTransactions:
        """Begin a call of a producer: do first what is due, if there is no background."""
        stored = self._take_over()
        if self._expiry_task is None:
            self.abort_timed_out()
            now_ms = self._runtime.clock.now_ms()
            if now_ms >= self._next_expiry_ms:
                self._next_expiry_ms = now_ms + self.config.remove_expired_interval_ms
                self.remove_expired()
        return stored

    def _check_readable(self, transactional_id: str) -> None:
        stored = self._load()
        number = self._log.partition_of(transactional_id)
        error = stored.unreadable.get(number) or stored.damaged.get(transactional_id)
        if error is not None:
            raise KafkaStorageError(
                f"what {TRANSACTION_STATE_TOPIC}-{number} keeps of transactional id"
                f" '{transactional_id}' cannot be read: {error}"
            ) from error

    def _owned(self, transactional_id: str, producer: ProducerIdAndEpoch) -> TransactionMetadata:
        """Return what is known of an id, if `producer` is its newest."""
        metadata = self._enter().by_id.get(transactional_id)
        if metadata is None or metadata.producer_id != producer.producer_id:
            raise _not_mapped(transactional_id, producer)
        if metadata.producer != producer:
            raise _fenced(transactional_id, producer, metadata)
        return metadata

    def _verify(
        self, tp: TopicPartition, producer: ProducerIdAndEpoch, transactional_id: str | None
    ) -> None:
        if transactional_id is None:
            transactional_id = self._id_of(producer.producer_id)
            if transactional_id is None:
                raise InvalidTxnStateError(
                    f"{tp}: no transactional id has producer {producer.producer_id}, so that nobody"
                    " began its transaction"
                )
        metadata = self._settled(self._check_owner(transactional_id, producer))
        if metadata.state is not TransactionState.ONGOING or tp not in metadata.partitions:
            raise InvalidTxnStateError(
                f"{tp} is not part of a transaction of '{transactional_id}', whose state is"
                f" {metadata.state.kafka_name}"
            )

    def _check_owner(
        self, transactional_id: str, producer: ProducerIdAndEpoch
    ) -> TransactionMetadata:
        """Return what is known of an id, if `producer` is its newest; for a batch."""
        if not self._is_in_use():
            raise _not_mapped(transactional_id, producer)  # and no topic is made for the answer
        self._check_readable(transactional_id)
        try:
            return self._owned(transactional_id, producer)
        except ProducerFencedError as error:
            # Kafka's answer to a batch, too, since producers expect no other there.
            raise InvalidProducerEpochError(str(error)) from error

    def _id_of(self, producer_id: int) -> str | None:
        """Return the transactional id that a producer id belongs to; changes nothing."""
        if not self._is_in_use():
            return None
        stored = self._load().by_id.values()
        return next((m.transactional_id for m in stored if m.producer_id == producer_id), None)

    def _settled(self, metadata: TransactionMetadata) -> TransactionMetadata:
        """Return the state once nothing is prepared any more.

        Raises
        ------
        KafkaStorageError
            A marker still cannot be written.
        """
        if not metadata.state.is_prepared:
            return metadata
        metadata = self._complete(metadata)
        if metadata.state.is_prepared:
            raise KafkaStorageError(
                f"the last transaction of '{metadata.transactional_id}' is in state"
                f" {metadata.state.kafka_name}: not all of its partitions can be written to"
            )
        return metadata

    def _abort_and_fence(self, metadata: TransactionMetadata) -> TransactionMetadata:
        """Abort an open transaction under the next epoch, which nobody gets."""
        return self._complete(self._decide_to_fence(metadata))

    def _decide_to_fence(self, metadata: TransactionMetadata) -> TransactionMetadata:
        """Decide to abort an open transaction under the next epoch; its markers are to follow."""
        self._renewed.pop(metadata.transactional_id, None)
        bumped = replace(metadata, producer_epoch=metadata.producer_epoch + 1)
        return self._decide(bumped, commit=False)

    def _end(self, metadata: TransactionMetadata, *, commit: bool) -> TransactionMetadata:
        if commit:
            self._flush(metadata.partitions)
        return self._complete(self._decide(metadata, commit=commit))

    def _decide(self, metadata: TransactionMetadata, *, commit: bool) -> TransactionMetadata:
        state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        return self._store(replace(metadata, state=state), durable=True)

    def _flush(self, partitions: Collection[TopicPartition]) -> None:
        for tp in sorted(partitions):
            try:
                log = self._logs.log(tp)
            except UnknownTopicOrPartitionError:
                continue  # deleted meanwhile, with its data
            log.flush()

    def _complete(self, metadata: TransactionMetadata) -> TransactionMetadata:
        """Write the markers that a prepared transaction lacks; complete it if that succeeds."""
        commit = metadata.state.is_commit
        transactional_id = metadata.transactional_id
        epoch = self._log.coordinator_epoch(transactional_id)
        marked = self._marked.setdefault(transactional_id, set())
        for tp in sorted(metadata.partitions - marked):
            try:
                self._write_marker(tp, metadata.producer, epoch, commit=commit)
            except LogStoreError as error:
                logger.warning("%s: no marker for '%s' yet: %s", tp, transactional_id, error)
            else:
                marked.add(tp)
        if not metadata.partitions <= marked:
            return metadata
        state = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        try:
            completed = self._store(replace(metadata, state=state, partitions=frozenset()))
        except LogStoreError as error:
            logger.warning("the end of '%s' is not noted yet: %s", transactional_id, error)
            return metadata
        del self._marked[transactional_id]
        return completed

    def _write_marker(
        self, tp: TopicPartition, producer: ProducerIdAndEpoch, epoch: int, *, commit: bool
    ) -> None:
        """End the producer's transaction in one partition, durably."""
        try:
            log = self._logs.log(tp)
            info = log.writer.append_end_txn_marker(*producer, epoch, commit=commit)
        except UnknownTopicOrPartitionError as error:
            logger.warning(
                "%s: no marker ends the transaction of producer %d with epoch %d there: %s",
                tp,
                *producer,
                error,
            )
            return  # deleted meanwhile, with its data
        except (InvalidProducerEpochError, TransactionCoordinatorFencedError) as error:
            # A log that knows a newer producer or coordinator has had this transaction ended.
            logger.error("%s: the marker of %s is out of date: %s", tp, producer, error)  # noqa: TRY400  # known, not a surprise
            return
        log.flush()
        self._logs.marked(log, info.last_offset)

    def _store(
        self, metadata: TransactionMetadata, *, durable: bool = False
    ) -> TransactionMetadata:
        """Write a state down; it holds from then on."""
        by_id = self._load().by_id
        now_ms = self._runtime.clock.now_ms()
        metadata = replace(metadata, last_update_ms=now_ms)
        metadata.check_follows(by_id.get(metadata.transactional_id))
        self._log.append(metadata, now_ms=now_ms, durable=durable)
        by_id[metadata.transactional_id] = metadata
        return metadata

    def _largest_known_id(self) -> int:
        """Return the largest producer id in any log, -1 if there is none."""
        largest = NO_PRODUCER_ID
        for tp in self._manager.catalog.partitions():
            try:
                known = self._manager.log(tp).producer_state.active_producers()
            except LogStoreError as error:
                logger.warning("%s: its producer ids are not known: %s", tp, error)
                continue
            largest = max(largest, *known, NO_PRODUCER_ID)
        stored = self._load().by_id.values()
        return max(
            largest, max((metadata.producer_id for metadata in stored), default=NO_PRODUCER_ID)
        )


def _not_mapped(
    transactional_id: str, producer: ProducerIdAndEpoch
) -> InvalidProducerIdMappingError:
    return InvalidProducerIdMappingError(
        f"producer {producer.producer_id} is not the one of transactional id '{transactional_id}'"
    )


def _fenced(
    transactional_id: str, producer: ProducerIdAndEpoch, metadata: TransactionMetadata
) -> ProducerFencedError:
    return ProducerFencedError(
        f"producer {producer.producer_id} with epoch {producer.producer_epoch} of transactional id"
        f" '{transactional_id}' is fenced: epoch {metadata.producer_epoch} is the newest"
    )
