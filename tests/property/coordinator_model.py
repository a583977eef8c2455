"""The model of `coordinator_simulation`: clients, their transactions, and histories of states."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from logstore import LogStoreError, TopicPartition
from logstore.cluster.markers import SentMarkers
from logstore.cluster.requests import DelayedProduce
from logstore.coordinator.groups.requests import JoinResult, SyncResult
from logstore.coordinator.transactions.state import (
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransactionState,
    TransactionVersion,
    decode_key,
    decode_value,
)
from logstore.runtime.scheduler import Scheduler
from logstore.wire.purgatory import DelayedOperation, Purgatory
from tests.property.cluster_simulation import claim

V0, V2 = TransactionVersion.V0, TransactionVersion.V2


class Unknown(Exception):
    """A call got no final answer; it may have taken effect."""


class NoCoordinator(Exception):
    """The partition of a group or of a transactional id has no leader."""


class Refused(LogStoreError):
    """An error code of a result."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.kafka_error = error


class Write(NamedTuple):
    """An attempt to commit an offset."""

    value: int
    transaction: Transaction | None
    is_acknowledged: bool
    time_ms: int


class Half(NamedTuple):
    """A planned failure of a coordinator between markers.

    Attributes
    ----------
    returns : tuple or None
        A decided transaction and its coordinator, which leads again after the next decision.
    """

    which: int
    delay: int
    fault: int
    returns: tuple[TransactionMetadata, int] | None = None


class Transaction:
    """A transaction as its producer knows it.

    Attributes
    ----------
    outcome : bool or None
        Whether it is committed; None if that is unknown.
    asked : bool or None
        The outcome that the producer has requested.
    """

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.has_begun = False
        self.outcome: bool | None = False
        self.asked: bool | None = None
        self.sent: list[tuple[TopicPartition, int, bytes]] = []
        self.values: set[bytes] = set()


class Process:
    """A client process that uses a transactional id.

    Attributes
    ----------
    version : TransactionVersion
        The version that it uses from its next transaction on.
    ended : bool or None
        The outcome of its last transaction, until it begins another one.
    ended_as : ProducerIdAndEpoch or None
        The producer with which it ended that transaction.
    offsets : dict
        The offset of the producer's last acknowledged record in each partition.
    former : list
        Its earlier producers, with their next sequences.
    """

    def __init__(self, transactional_id: str, version: TransactionVersion) -> None:
        self.id = transactional_id
        self.version = version
        self.producer: ProducerIdAndEpoch | None = None
        self.timeout_ms = 0
        self.is_fenced = self.may_be_fenced = self.is_broken = self.is_ending = False
        self.sequences: Counter[TopicPartition] = Counter()
        self.offsets: dict[TopicPartition, int] = {}
        self.transaction: Transaction | None = None
        self.ended: bool | None = None
        self.ended_as: ProducerIdAndEpoch | None = None
        self.former: list[tuple[ProducerIdAndEpoch, Counter[TopicPartition]]] = []

    def forget(self) -> None:
        """Give up the producer and its transaction."""
        self.become(None)
        self.transaction = self.ended = self.ended_as = None

    def become(self, producer: ProducerIdAndEpoch | None) -> None:
        """Continue as another producer."""
        if self.producer is not None and producer != self.producer:
            self.former.append((self.producer, self.sequences))
            self.sequences = Counter()
            self.offsets = {}
        self.producer = producer


class Member:
    """A member of a group, with the last answer that it got."""

    def __init__(self) -> None:
        self.member_id = ""
        self.joined: JoinResult | None = None
        self.synced: SyncResult | None = None
        self.generation = -1
        self.contact_ms = 0

    def is_member(self, now_ms: int, session_timeout_ms: int) -> bool:
        """Return whether the coordinator cannot have removed the member."""
        is_synced = self.synced is not None and self.synced.error is None
        return is_synced and now_ms < self.contact_ms + session_timeout_ms


class Errors(logging.Handler):
    """Keeps logged errors."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message, and the error that it is about."""
        error = record.exc_info[1] if record.exc_info else None
        self.records.append(f"{record.getMessage()} {error!r}" if error else record.getMessage())


class Watch(Purgatory):
    """Calls a function before and after each wait for replicas, or for a broker with markers.

    Attributes
    ----------
    failed : set
        Partitions and offsets of records whose wait has failed.
    """

    def __init__(self, on_wait: Callable[[TopicPartition | int, bool], object]) -> None:
        super().__init__()
        self._on_wait = on_wait
        self.failed: set[tuple[TopicPartition, int]] = set()

    def wait(
        self,
        operations: Sequence[DelayedOperation],
        scheduler: Scheduler,
        *,
        timeout_ms: int | None = None,
    ) -> bool:
        """Wait until all operations are complete."""
        if not operations:
            return True
        first: Any = operations[0]
        is_marker = isinstance(first, SentMarkers)
        where = first._target if is_marker else first._topic_partition
        self._on_wait(where, False)
        is_done = super().wait(operations, scheduler, timeout_ms=timeout_ms)
        for each in operations:
            if isinstance(each, DelayedProduce) and each.error is not None:
                self.failed.add((each._topic_partition, each._last_offset))
        self._on_wait(where, True)
        return is_done


_IDLE = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
_PREPARE_ABORT, _ONGOING = TransactionState.PREPARE_ABORT, TransactionState.ONGOING

FOLLOWERS: dict[TransactionState | None, tuple[TransactionState | None, ...]] = {
    None: (TransactionState.EMPTY, None),
    **dict.fromkeys(_IDLE, (TransactionState.EMPTY, _ONGOING, _PREPARE_ABORT, None)),
    _ONGOING: (_ONGOING, TransactionState.PREPARE_COMMIT, _PREPARE_ABORT),
    TransactionState.PREPARE_COMMIT: (TransactionState.COMPLETE_COMMIT,),
    _PREPARE_ABORT: (TransactionState.COMPLETE_ABORT,),
}
"""States that may be committed after each state of an id; None is the removal of the id."""


class Known(NamedTuple):
    """A committed state of a transactional id, and the offset of its record."""

    offset: int
    state: TransactionState | None
    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]


class StateHistory:
    """The committed states in a partition of `__transaction_state`, each of which must follow.

    Parameters
    ----------
    has_failed : callable
        Whether the wait for the replicas of the record at an offset failed: its coordinator then
        keeps the earlier state.
    """

    def __init__(self, tally: Counter[str], has_failed: Callable[[int], bool]) -> None:
        self._tally = tally
        self._has_failed = has_failed
        self._known: dict[str, list[Known]] = {}
        self._next_offset = 0

    def take(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        """Check the next committed record."""
        if offset != self._next_offset:
            self._known.clear()  # the cleaner has removed records in between
        self._next_offset = offset + 1
        transactional_id = decode_key(key)
        assert transactional_id is not None
        known = self._known.get(transactional_id, [])
        # Asked only now: a record can be committed before the wait for its replicas fails.
        effective = [n for n, each in enumerate(known) if not self._has_failed(each.offset)]
        known = known[effective[-1] :] if effective else []  # the state before them is unknown
        if value is None:
            producer = known[-1].producer if known else ProducerIdAndEpoch(-1, -1)
            following = Known(offset, None, producer, frozenset())
        else:
            metadata = decode_value(transactional_id, value)
            following = Known(offset, metadata.state, metadata.producer, metadata.partitions)
            name = f"stored {metadata.state.kafka_name}, version {metadata.client_version}"
            self._tally[name] += 1
        follows = not known or any(_follows(each, following) for each in known)
        claim(follows, "a state cannot follow", transactional_id, known, following)
        self._known[transactional_id] = [*known, following]


def _follows(known: Known, following: Known) -> bool:
    if following.state not in FOLLOWERS[known.state] or following.producer < known.producer:
        return False
    if following.state is _ONGOING is known.state:
        is_same = following.producer == known.producer
        return is_same and known.partitions <= following.partitions
    if following.state is TransactionState.PREPARE_COMMIT:
        return known.partitions == following.partitions
    return True
