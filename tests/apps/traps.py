"""Stops the transaction coordinator of a cluster in a chosen state, until its broker is killed.

Each state is recognized at the first step that leaves it. That step waits until the controller has
elected another coordinator, and then fails: the killed broker takes no further step.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from logstore import Cluster, TopicPartition
from logstore.coordinator.groups import store as group_store
from logstore.coordinator.records import partition_for
from logstore.coordinator.transactions import log as transaction_log
from logstore.coordinator.transactions.log import TransactionLog
from logstore.coordinator.transactions.state import TransactionMetadata, TransactionState
from logstore.errors import NotCoordinatorError
from logstore.names import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from logstore.runtime import ThreadScheduler
from logstore.storage.log.writer import LogWriter

OPEN = "open"
PREPARED = "prepared"
BETWEEN_MARKERS = "between-markers"
AFTER_MARKERS = "after-markers"
LOADING = "loading"
STATES = (OPEN, PREPARED, BETWEEN_MARKERS, AFTER_MARKERS, LOADING)

TIMEOUT_S = 120

Marker = tuple[int, int, int]
"""Producer id, producer epoch and coordinator epoch."""


class Caught(NamedTuple):
    """A coordinator that waits to be killed.

    Attributes
    ----------
    partition : TopicPartition
        Of an internal topic. Its leader is the coordinator.
    epoch : int
        Leader epoch of the coordinator.
    broker : int
    details : str
        One word: the transaction's outcome or next state, or the topic being loaded.
    """

    partition: TopicPartition
    epoch: int
    broker: int
    details: str


class Traps:
    """Traps for the coordinators of a cluster; one is set at a time.

    Construct it before the cluster serves clients. It wraps methods of classes, so a process has
    one instance.
    """

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._rng = random.Random(seed)
        self._lock = threading.Lock()
        self._is_caught = threading.Event()
        self._armed: str | None = None
        self._caught: Caught | None = None
        # Before the next partition is added or the load begins; otherwise before the end of the
        # transaction, or at a record that is loaded.
        self._is_early = False
        self._loading: tuple[TopicPartition, int] | None = None  # and the previous leader epoch
        self._newest: dict[str, TransactionMetadata] = {}
        self._markers: Counter[Marker] = Counter()
        self._dead: set[tuple[TopicPartition, int]] = set()
        self._pause = threading.Event()
        self._wrap()

    # -- kills ---------------------------------------------------------------------------

    def kill(self, state: str, group: str) -> tuple[list[int], str]:
        """Kill a coordinator in a state; return the brokers that are down, and details.

        Parameters
        ----------
        state : str
            For `LOADING`, another broker becomes the coordinator: after a kill of the present one,
            which is started again, or because the leader is moved. It is killed while it loads.
        group : str
            Group whose coordinator is killed in half of the `LOADING` cases.
        """
        if state == LOADING:
            return self._kill_loading(group)
        self._set(state)
        caught = self._await(state)
        self._cluster.kill(caught.broker)
        return [caught.broker], caught.details

    def _kill_loading(self, group: str) -> tuple[list[int], str]:
        if self._rng.random() < 0.5:
            partition = self._partition_of(GROUP_OFFSETS_TOPIC, group)
        else:
            transactional_id = self._rng.choice(sorted(self._newest))
            partition = self._partition_of(TRANSACTION_STATE_TOPIC, transactional_id)
        state = self._cluster.state(partition)
        self._loading = partition, state.leader_epoch
        self._set(LOADING)
        if self._is_early:
            self._cluster.kill(state.leader)
            caught = self._await(LOADING)
            self._cluster.restart(state.leader)
            await_all_in_sync(self._cluster)
        else:
            self._cluster.move_leader(partition, to=next(iter({*state.isr} - {state.leader})))
            caught = self._await(LOADING)
        self._cluster.kill(caught.broker)
        return [caught.broker], caught.details

    def _partition_of(self, topic: str, text: str) -> TopicPartition:
        count = len(self._cluster.controller.topic(topic).partitions)
        return TopicPartition(topic, partition_for(text, count))

    def _set(self, state: str) -> None:
        with self._lock:
            self._is_caught.clear()
            self._caught = None
            self._is_early = self._rng.random() < 0.5
            self._armed = state

    def _await(self, state: str) -> Caught:
        if not self._is_caught.wait(TIMEOUT_S):
            raise TimeoutError(f"no coordinator in state '{state}' within {TIMEOUT_S} s")
        with self._lock:
            assert self._caught is not None
            return self._caught

    # -- steps of a coordinator ------------------------------------------------------------

    def _before_state(
        self, partition: TopicPartition, epoch: int, new: TransactionMetadata
    ) -> None:
        """Wait if the state that a transaction leaves is the chosen one."""
        old = self._newest.get(new.transactional_id)
        if old is None or not self._is_current(partition, epoch):
            return
        is_open = old.state is TransactionState.ONGOING
        if is_open and (self._is_early or new.state.is_prepared):
            self._leave(OPEN, partition, epoch, new.state.kafka_name)
        elif old.state.is_prepared and old.partitions and new.state.is_complete:
            self._leave(AFTER_MARKERS, partition, epoch, old.state.kafka_name)

    def _before_marker(self, marker: Marker) -> None:
        metadata = self._prepared_of(marker)
        if metadata is None:
            return
        partition = self._partition_of(TRANSACTION_STATE_TOPIC, metadata.transactional_id)
        epoch = marker[2]
        if (partition, epoch) in self._dead:
            raise NotCoordinatorError(f"the coordinator of {partition} was killed")
        if not self._is_current(partition, epoch):
            return
        written = self._markers[marker]
        if written == 0:
            self._leave(PREPARED, partition, epoch, metadata.state.kafka_name)
        elif written < len(metadata.partitions):
            self._leave(BETWEEN_MARKERS, partition, epoch, metadata.state.kafka_name)

    def _before_load(self, broker: int) -> None:
        if self._is_early and self._loading is not None:
            partition, previous = self._loading
            state = self._cluster.state(partition)
            if state.leader == broker and state.leader_epoch > previous:
                self._leave(LOADING, partition, state.leader_epoch, f"{partition.topic}-after-kill")

    def _before_record(self, topic: str, text: str) -> None:
        if self._is_early or self._loading is None or self._loading[0].topic != topic:
            return
        partition, previous = self._loading
        state = self._cluster.state(partition)
        if self._partition_of(topic, text) == partition and state.leader_epoch > previous:
            self._leave(LOADING, partition, state.leader_epoch, f"{topic}-after-move")

    def _leave(self, state: str, partition: TopicPartition, epoch: int, details: str) -> None:
        """Catch the coordinator if this state is chosen; let a caught one wait, and then fail."""
        with self._lock:
            if self._armed == state:
                self._armed = None
                broker = self._cluster.leader(partition)
                self._caught = Caught(partition, epoch, broker, details)
                self._dead.add((partition, epoch))
                self._is_caught.set()
        if (partition, epoch) not in self._dead:
            return
        for _ in range(TIMEOUT_S * 200):
            if not self._is_current(partition, epoch):
                raise NotCoordinatorError(f"the coordinator of {partition} was killed")
            self._pause.wait(0.005)

    def _is_current(self, partition: TopicPartition, epoch: int) -> bool:
        return self._cluster.state(partition).leader_epoch == epoch

    def _prepared_of(self, marker: Marker) -> TransactionMetadata | None:
        for metadata in list(self._newest.values()):
            if metadata.state.is_prepared and metadata.producer == marker[:2]:
                return metadata
        return None

    # -- wrapped methods -------------------------------------------------------------------

    def _wrap(self) -> None:
        traps = self
        append, mark = TransactionLog.append, LogWriter.append_end_txn_marker
        schedule = ThreadScheduler.schedule

        def append_state(
            log: TransactionLog, metadata: TransactionMetadata, epoch: int, **options: Any
        ) -> Any:
            number = log.partition_of(metadata.transactional_id)
            partition = TopicPartition(TRANSACTION_STATE_TOPIC, number)
            traps._before_state(partition, epoch, metadata)
            if metadata.state.is_prepared:  # without an epoch bump, all its markers are alike
                traps._markers[*metadata.producer, epoch] = 0
            done = append(log, metadata, epoch, **options)
            traps._newest[metadata.transactional_id] = metadata
            return done

        def append_marker(
            writer: LogWriter,
            producer_id: int,
            producer_epoch: int,
            coordinator_epoch: int,
            **options: Any,
        ) -> Any:
            marker = (producer_id, producer_epoch, coordinator_epoch)
            traps._before_marker(marker)
            done = mark(writer, *marker, **options)
            traps._markers[marker] += 1
            return done

        def schedule_load(
            scheduler: ThreadScheduler, name: str, action: Callable[[], None], **options: Any
        ) -> Any:
            if not name.startswith("load-coordinator-"):
                return schedule(scheduler, name, action, **options)
            broker = int(name.rpartition("-")[2])

            def load() -> None:
                with suppress(NotCoordinatorError):
                    traps._before_load(broker)
                    action()

            return schedule(scheduler, name, load, **options)

        decode_id, decode_offset = transaction_log.decode_key, group_store.decode_key

        def decode_loaded_id(key: bytes | None) -> str | None:
            transactional_id = decode_id(key)
            if transactional_id is not None:
                traps._before_record(TRANSACTION_STATE_TOPIC, transactional_id)
            return transactional_id

        def decode_loaded_offset(key: bytes | None) -> Any:
            group_and_partition = decode_offset(key)
            if group_and_partition is not None:
                traps._before_record(GROUP_OFFSETS_TOPIC, group_and_partition[0])
            return group_and_partition

        transaction_log.decode_key = decode_loaded_id
        group_store.decode_key = decode_loaded_offset
        TransactionLog.append = append_state
        LogWriter.append_end_txn_marker = append_marker
        ThreadScheduler.schedule = schedule_load


def await_all_in_sync(cluster: Cluster) -> None:
    """Wait until no partition of the cluster lacks a replica."""
    pause = threading.Event()
    while any(
        len(partition.isr) < len(partition.replicas)
        for topic in cluster.topics()
        for partition in topic.partitions
    ):
        pause.wait(0.05)
