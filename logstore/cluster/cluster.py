"""An in-process cluster of brokers that replicate their logs.

A `Cluster` combines ordinary brokers, a controller, a network, and the replicas of each broker.
Each broker has its own files, cleaner and wall clock. The cluster also acts as a client that sends
requests to the leaders (`append`, `delete_records`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from os import PathLike, fspath
from typing import TYPE_CHECKING, Generic, Literal, Self, Unpack, cast

from logstore.broker import Broker
from logstore.broker.setup import MEMORY_DIR
from logstore.clients.arguments import before_offset, topic_and_partition
from logstore.clients.partitioner import Partitioner
from logstore.clients.records import RecordMetadata
from logstore.clients.results import DeleteRecordsResult
from logstore.cluster.controller import Controller
from logstore.cluster.coordination import ClusterHost
from logstore.cluster.memory import ClusterMemory
from logstore.cluster.migration import is_due, migrate, remove_migrated
from logstore.cluster.network import Network
from logstore.cluster.replicas import Replicas
from logstore.cluster.requests import DelayedDeleteRecords
from logstore.cluster.states import NO_LEADER, ClusterTopic, PartitionState
from logstore.config.broker_config import BrokerConfig
from logstore.config.dynamic import Layer, own_layer
from logstore.config.group_keys import alter_group_overrides, check_new_group
from logstore.config.overrides import alter_overrides, effective_config
from logstore.coordinator.transactions.producer_ids import ProducerIds, largest_producer_id
from logstore.errors import (
    IllegalStateError,
    InvalidConfigurationError,
    InvalidReplicaAssignmentError,
    InvalidTopicError,
    LeaderNotAvailableError,
    LogStoreError,
    UnknownTopicOrPartitionError,
)
from logstore.manager.directories.nesting import check_cluster_directory
from logstore.manager.topics.ids import random_topic_id
from logstore.names import (
    CONTROLLER_DIR,
    INTERNAL_COMPACTED_TOPICS,
    validate_topic_name,
)
from logstore.runtime import (
    Clock,
    DiskFileSystem,
    FileSystem,
    MemoryFileSystem,
    Runtime,
    SkewedClock,
    SystemClock,
    ThreadScheduler,
    VirtualClock,
    random_source,
)
from logstore.types import NO_OFFSET, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition
from logstore.wire.purgatory import Purgatory

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from typing_extensions import TypeVar

    from logstore.clients.records import Headers
    from logstore.cluster.wire import ClusterListeners
    from logstore.runtime import ScheduledTask
    from logstore.storage.log.drafts import AppendInfo
    from logstore.storage.log.log import Log
    from logstore.wire.settings import ListenerOptions

    T = TypeVar("T")
    ClockT = TypeVar("ClockT", bound=Clock, default=Clock, covariant=True)
else:
    from typing import TypeVar

    T = TypeVar("T")
    ClockT = TypeVar("ClockT", bound=Clock, covariant=True)

logger = logging.getLogger(__name__)

Acks = Literal[0, 1, -1, "all"]

THREADS = 8
"""Number of threads for messages between brokers, unless the clock is virtual."""


class Cluster(Generic[ClockT]):
    """An in-process cluster of brokers that replicate their logs and share one clock.

    Parameters
    ----------
    brokers : int
        Number of brokers. Their ids start at 0.
    clock : Clock, optional
        The default is the system clock, with several threads. With a `VirtualClock`, everything
        runs in the thread that advances the clock, and calls that wait advance it.
    data_dir : path, optional
        Directory for the controller's state and a data directory for each broker (`broker-0` and
        so on). A cluster that it already contains is opened. If None, everything is in memory.
    broker_config : mapping or BrokerConfig, optional
        Settings of all brokers; see `Broker`.
    seed : int, optional
        Seed for all random choices.
    racks : sequence of str, optional
        The rack of each broker (`broker.rack`). Consumers with a rack read from followers if
        `replica.selector.class` is Kafka's RackAwareReplicaSelector (KIP-392).
    background : bool
        Whether periodic tasks and cleaners run in the background; see `Broker`. Replication always
        runs in the background.
    disk_faults : bool, optional
        Whether disks can fail and lose unsynced data; see `Broker`.

    Attributes
    ----------
    clock : Clock
    controller : Controller
    network : Network
    purgatory : Purgatory
        The `append` and `delete_records` requests that wait for replicas.

    Raises
    ------
    InvalidConfigurationError
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        clock: ClockT | None = None,
        data_dir: str | PathLike[str] | None = None,
        broker_config: Mapping[str, object] | BrokerConfig | None = None,
        seed: int | None = None,
        background: bool = False,
        disk_faults: bool | None = None,
        racks: Sequence[str] | None = None,
    ) -> None:
        if brokers < 1:
            raise InvalidConfigurationError(f"a cluster needs at least one broker, not {brokers}")
        self.clock: ClockT = cast("ClockT", SystemClock()) if clock is None else clock
        if not isinstance(broker_config, BrokerConfig):
            broker_config = BrokerConfig.from_properties(broker_config or {}, refuse_unknown=True)
        self.broker_config = broker_config
        if racks is not None and (len(racks) != brokers or not all(racks)):
            raise InvalidConfigurationError(
                f"racks must contain the rack of each of {brokers} brokers: {list(racks)}"
            )
        self._racks = dict(enumerate(racks or ()))
        if disk_faults is None:
            disk_faults = data_dir is None or isinstance(self.clock, VirtualClock)
        self._data_dir = None if data_dir is None else os.path.abspath(fspath(data_dir))  # noqa: PTH100  # a link keeps its name
        self._background = background
        self._disk_faults = disk_faults
        rng = random_source(seed)
        scheduler = None
        if not isinstance(self.clock, VirtualClock):
            scheduler = ThreadScheduler(self.clock, THREADS)
        self.runtime = Runtime(self.clock, MemoryFileSystem(self.clock), rng, scheduler)  # type: ignore[arg-type]  # None: its own
        self._seeds = None if seed is None else rng
        self.network = Network(self.clock, self.runtime.scheduler)
        self._lacks_memory = False
        self.controller = self._new_controller(brokers)
        self.controller.racks = self._racks
        self.controller.moved.subscribe(self._on_moved)
        self.purgatory = Purgatory()
        self._partitioner = Partitioner()
        self._listeners: list[ClusterListeners] = []
        # Held while brokers apply the controller's decisions, so that a thread with an older state
        # cannot undo the work of a thread with a newer state.
        self._applying = self.runtime.lock()
        self._is_closed = False
        self.runtime.scheduler.start()
        self._nodes = [self._node_of(number) for number in range(brokers)]
        try:
            for node in self._nodes:
                self._start(node, self._open(node))
            self._migrate()
        except BaseException:
            self.close()
            raise
        self._lacks_memory = False

    def _new_controller(self, brokers: int) -> Controller:
        lock = self.runtime.lock()
        if self._data_dir is None:
            return Controller(lock, self._allows_unclean_leaders)
        fs = DiskFileSystem(self.clock)
        check_cluster_directory(fs, self._data_dir)
        memory = ClusterMemory(fs, f"{self._data_dir}/{CONTROLLER_DIR}")
        self._lacks_memory = not fs.exists(memory.path)
        topics, settings, groups = memory.read()
        if is_due(fs, self._data_dir):  # an interrupted migration starts again
            topics = [each for each in topics if each.name not in INTERNAL_COMPACTED_TOPICS]
        states = [state for topic in topics for state in topic.partitions]
        largest = max((max(state.replicas) for state in states), default=0)
        if largest >= brokers:
            raise InvalidConfigurationError(
                f"{memory.path} contains broker {largest}, but the cluster only has {brokers}"
            )
        return Controller(
            lock, self._allows_unclean_leaders, topics, settings, groups, memory.write
        )

    def _migrate(self) -> None:
        """Move the topics of a separate coordinator to the brokers."""
        if self._data_dir is None:
            return
        fs = DiskFileSystem(self.clock)
        if is_due(fs, self._data_dir):
            host = self._nodes[0].host
            assert host is not None
            brokers = self.brokers.values()
            migrate(fs, self._data_dir, self.clock, self.broker_config, host, brokers)
            for node in self._nodes:
                assert node.host is not None
                node.host.take_over()
        remove_migrated(fs, self._data_dir)

    def _node_of(self, number: int) -> _Node:
        clock: Clock = self.clock
        if isinstance(clock, VirtualClock):
            clock = SkewedClock(clock)
        lock = self.runtime.lock()
        if self._data_dir is None:
            return _Node(number, clock, MemoryFileSystem(clock), MEMORY_DIR, lock)
        data_dir = f"{self._data_dir}/broker-{number}"
        return _Node(number, clock, DiskFileSystem(clock), data_dir, lock)

    def _open(self, node: _Node) -> Broker:
        """Open a broker on its existing files."""
        node.host = ClusterHost(self, node.id)
        return Broker(
            node.data_dir,
            clock=node.clock,
            broker_config=replace(
                self.broker_config,
                node_id=node.id,
                broker_rack=self._racks.get(node.id, self.broker_config.broker_rack),
            ),
            seed=None if self._seeds is None else self._seeds.getrandbits(64),
            fs=node.fs,
            background=self._background,
            disk_faults=self._disk_faults,
            host=node.host,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        states = [f"{node.id}{'' if node.broker else ' (stopped)'}" for node in self._nodes]
        return f"Cluster(brokers {', '.join(states)})"

    def close(self) -> None:
        """Close all running brokers. Repeated calls have no effect."""
        if self._is_closed:
            return
        self._is_closed = True
        for listeners in self._listeners:
            listeners.close()
        self.runtime.scheduler.shutdown()
        for node in self._nodes:
            if node.replicas is not None:
                node.replicas.stop()
            if node.broker is not None:
                node.broker.close()

    # -- brokers -------------------------------------------------------------------------

    @property
    def brokers(self) -> Mapping[int, Broker]:
        """The running brokers by id."""
        return {node.id: node.broker for node in self._nodes if node.broker is not None}

    @property
    def broker_ids(self) -> range:
        """The ids of all brokers, including stopped brokers."""
        return range(len(self._nodes))

    def replicas(self, broker: int) -> Replicas:
        """Return a broker's replicas.

        Raises
        ------
        IllegalStateError
            The broker is not running.
        """
        replicas = self._node(broker).replicas
        if replicas is None:
            raise IllegalStateError(f"broker {broker} is not running")
        return replicas

    def _node(self, broker: int) -> _Node:
        if not 0 <= broker < len(self._nodes):
            raise InvalidConfigurationError(
                f"unknown broker {broker}: broker ids are 0 to {len(self._nodes) - 1}"
            )
        return self._nodes[broker]

    def _running(self, broker: int) -> tuple[_Node, Broker, Replicas]:
        node = self._node(broker)
        if node.broker is None or node.replicas is None:
            raise IllegalStateError(f"broker {broker} is not running")
        return node, node.broker, node.replicas

    def _peer(self, broker: int) -> Replicas | None:
        return self._nodes[broker].replicas

    def _start(self, node: _Node, broker: Broker) -> None:
        node.broker = broker
        self._set_on(broker)
        node.replicas = Replicas(
            node.id,
            broker,
            self.controller,
            self.network,
            self.clock,
            self.runtime.scheduler,
            self._peer,
        )
        node.replicas.failed.subscribe(partial(self._on_failed_replica, node.id))
        assert node.host is not None
        node.host.start(broker, node.replicas)
        with self._applying:
            self._delete_stray_replicas(node, broker)
            for topic in self.controller.topics():
                self._host(node, topic)
        if not self._background:
            self._checkpoint_high_watermarks(node, broker)
        changed = self.controller.broker_started(node.id)
        with self._applying:
            node.replicas.store_epochs(self.controller.states())
            node.replicas.apply(self.controller.states())
        self._notify_brokers(changed)
        for listeners in self._listeners:
            listeners.open(node.id, broker, node.replicas)

    def _delete_stray_replicas(self, node: _Node, broker: Broker) -> None:
        """Delete a broker's topics and replicas that no longer exist in the cluster.

        Raises
        ------
        InvalidConfigurationError
            The controller's file is missing, so the topics may still exist.
        """
        known = {topic.id for topic in self.controller.topics()}
        strays = [each for each in broker.topics() if not each.adopted and each.id not in known]
        if strays and self._lacks_memory:
            raise InvalidConfigurationError(
                f"{node.data_dir} contains topics, such as '{strays[0].name}', but {self._data_dir}"
                f" has no controller file that names their leaders"
            )
        for topic in strays:
            broker.delete_topic(topic.name)
        for known_topic in self.controller.topics():
            for state in known_topic.partitions:
                tp = state.topic_partition
                if node.id not in state.replicas and broker.manager.registry.has(tp):
                    self._drop(broker, tp)

    def _checkpoint_high_watermarks(self, node: _Node, broker: Broker) -> None:
        period_ms = max(self.broker_config.replica_high_watermark_checkpoint_interval_ms, 1)
        manager = broker.manager

        def write() -> None:
            with node.lock:
                if task in node.tasks:
                    manager.checkpoint_high_watermarks()

        with node.lock:
            task = self.runtime.scheduler.schedule(
                f"highwatermark-checkpoint-{node.id}",
                write,
                delay_ms=period_ms,
                period_ms=period_ms,
                idle_ms=lambda: None,
            )
            node.tasks.append(task)
        manager.services.events.log_changed.subscribe(task.wake)

    def _end(self, node: _Node) -> None:
        """Remove a stopped broker, and notify the other brokers."""
        if node.replicas is not None:
            node.replicas.stop()
        self._end_tasks(node)
        node.broker = node.replicas = None
        self._notify_brokers(self.controller.broker_ended(node.id))

    def _end_tasks(self, node: _Node) -> None:
        """Cancel a broker's tasks before its files are closed, waiting for a running task."""
        with node.lock:
            for task in node.tasks:
                task.cancel()
            node.tasks.clear()

    def _on_failed_replica(self, broker: int, topic_partition: TopicPartition) -> None:
        self._notify_brokers(self.controller.replica_failed(broker, topic_partition))

    def _on_moved(self, topic_partition: TopicPartition) -> None:
        self.runtime.scheduler.schedule(
            "reassignment", lambda: self._notify_replicas([topic_partition])
        )

    def _host_moved(self, tp: TopicPartition) -> None:
        """Create replicas that a reassignment adds, and delete replicas that it has removed."""
        for node in self._nodes:
            broker, replicas = node.broker, node.replicas
            if broker is None or replicas is None:
                continue
            state = self.controller.state(tp)  # re-read: other tasks may run during a deletion
            if node.id in state.adding and not broker.manager.registry.has(tp):
                try:
                    self._host(node, self.controller.topic(tp.topic))
                except LogStoreError as error:  # its disk failed; the next start creates it
                    logger.warning("replica %s cannot be created: %s", tp, error)
            elif node.id not in state.replicas and broker.manager.registry.has(tp):
                replicas.forget(tp)
                self._drop(broker, tp)

    def _drop(self, broker: Broker, topic_partition: TopicPartition) -> None:
        try:
            broker.manager.topics.remove_partition(topic_partition)
        # the disk has failed; the next start deletes the replica
        except LogStoreError as error:
            logger.warning("replica %s cannot be deleted: %s", topic_partition, error)

    def _notify_brokers(self, changed: Iterable[PartitionState]) -> None:
        """Send the states of changed partitions to their brokers, leaders first."""
        states = list(changed)
        with self._applying:
            for node in self._nodes:
                if node.replicas is not None:
                    node.replicas.store_epochs(states)
        self._notify_replicas([state.topic_partition for state in states])

    def _notify_replicas(self, changed: Iterable[TopicPartition]) -> None:
        for tp in changed:
            with self._applying, suppress(UnknownTopicOrPartitionError):
                # Re-read the state: another thread may have already sent a newer state.
                state = self.controller.state(tp)
                if state.partition_epoch:  # 0 if the topic is new
                    self._host_moved(tp)
                order = sorted(state.replicas, key=lambda broker: broker != state.leader)
                for broker in order:
                    if (replicas := self._nodes[broker].replicas) is not None:
                        replicas.apply([state])
        for node in self._nodes:
            if node.host is not None:
                node.host.retry_markers()

    # -- faults --------------------------------------------------------------------------

    def kill(self, broker: int, *, power_loss: bool = False) -> None:
        """Kill a broker's process. With `power_loss`, data that was not fsynced is lost.

        The controller notices this immediately, elects new leaders, and removes the broker from all
        ISRs.

        Raises
        ------
        IllegalStateError
            The broker is not running, or the caller is a `progress` listener of its `clean`.
        InvalidConfigurationError
            `power_loss` requires `disk_faults`.
        """
        node, process, replicas = self._running(broker)
        process._check_can_lose_power() if power_loss else process._check_can_end()
        replicas.stop()
        # Notify the other brokers first. Ending the process waits for its listener's requests,
        # which may be waiting for a marker to be replicated to this broker.
        self._notify_brokers(self.controller.broker_ended(broker))
        self._end_tasks(node)
        if power_loss:
            process._lose_power()
        else:
            process._kill()
        self._end(node)

    def stop(self, broker: int) -> None:
        """Shut down a broker cleanly after moving its leaders. Raises the same errors as `kill`."""
        node, process, replicas = self._running(broker)
        process._check_can_end()
        self._notify_brokers(self.controller.broker_ended(broker))
        replicas.stop()
        self._end_tasks(node)
        process.close()
        self._end(node)

    def restart(self, broker: int) -> Broker:
        """Start a broker on its existing files, stopping it first if it is running."""
        node = self._node(broker)
        if node.broker is not None:
            self.stop(broker)
        self._start(node, self._open(node))
        assert node.broker is not None
        return node.broker

    def disconnect(self, ones: Iterable[int], others: Iterable[int]) -> None:
        """Cut all links between two sets of brokers. Clients and controller are unaffected."""
        self.network.disconnect(set(ones), set(others))

    def slow(self, one: int, other: int, delay_ms: int) -> None:
        """Delay all messages between two brokers."""
        self.network.slow(one, other, delay_ms)

    def heal(self) -> None:
        """Restore all links and remove all delays."""
        self.network.heal()

    def skew(self, broker: int, ms: int) -> None:
        """Set how far a broker's wall clock is ahead of (or, if negative, behind) the cluster's.

        Raises
        ------
        InvalidConfigurationError
            The clock of the cluster is not virtual.
        """
        clock = self._node(broker).clock
        if not isinstance(clock, SkewedClock):
            raise InvalidConfigurationError("skew requires a cluster with a VirtualClock")
        clock.skew_ms = ms

    # -- topics --------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, object] | None = None,
        *,
        replication_factor: int = -1,
        assignment: Sequence[Sequence[int]] | None = None,
    ) -> ClusterTopic:
        """Create a topic.

        Parameters
        ----------
        configs : mapping, optional
            See `Broker.create_topic`. In a cluster, `min.insync.replicas` has an effect.
        replication_factor : int
            -1 means `default.replication.factor`.
        assignment : sequence of sequences of int, optional
            The broker ids of each partition's replicas, preferred leader first.

        Raises
        ------
        InvalidTopicError, TopicAlreadyExistsError, InvalidConfigurationError
        InvalidReplicationFactorError
            Too few brokers are running.
        """
        validate_topic_name(name)
        if partitions < 1:
            raise InvalidTopicError(f"a topic needs at least 1 partition, not {partitions}")
        if replication_factor == -1:
            replication_factor = self.broker_config.default_replication_factor
        overrides, _ = alter_overrides({}, configs or {}, (), self.broker_config)
        chosen = _checked(assignment, partitions, self.controller.alive)
        if chosen is None:
            chosen = self.controller.assign(range(partitions), replication_factor)
        with self._applying:  # coordinators also create topics, in threads of several brokers
            topic_id = self._new_topic_id()
            topic = self.controller.add_topic(name, topic_id, overrides, chosen)
            self._host_everywhere(topic)
        self._notify_brokers(topic.partitions)
        return topic

    def _new_topic_id(self) -> str:
        """Return an unused topic id, even if an earlier run had the same seed."""
        known = {topic.id for topic in self.controller.topics()}
        while (topic_id := random_topic_id(self.runtime.rng)) in known:
            pass
        return topic_id

    def create_partitions(
        self, name: str, total: int, *, assignment: Sequence[Sequence[int]] | None = None
    ) -> ClusterTopic:
        """Increase a topic's number of partitions to `total`. Existing records are not moved."""
        topic = self.controller.topic(name)
        added = range(len(topic.partitions), total)
        if added:
            chosen = _checked(assignment, len(added), self.controller.alive)
            if chosen is None:
                factor = len(topic.partitions[0].replicas)
                chosen = self.controller.assign(added, factor)
            with self._applying:
                topic = self.controller.add_partitions(name, chosen)
                self._host_everywhere(topic)
            self._notify_brokers(topic.partitions)
        return topic

    def alter_configs(
        self, name: str, configs: Mapping[str, object], *, unset: Iterable[str] = ()
    ) -> None:
        """Change a topic's config overrides on all brokers, including stopped brokers."""

        def change(own: Mapping[str, str]) -> Mapping[str, str]:
            return alter_overrides(own, configs, unset, self.broker_config)[0]

        with self._applying:
            self.controller.change_configs(name, change)
            for node in self._nodes:
                if node.broker is not None:
                    self._host(node, self.controller.topic(name))

    def delete_topic(self, name: str) -> None:
        """Delete a topic on all brokers, including stopped brokers."""
        with self._applying:
            topic = self.controller.remove_topic(name)
            for node in self._nodes:
                if node.broker is None or node.replicas is None:
                    continue
                for state in topic.partitions:
                    node.replicas.forget(state.topic_partition)
                self._delete_on(node, node.broker, topic)
        deleted = [state.topic_partition for state in topic.partitions]
        for broker in list(self.brokers.values()):  # a coordinator need not have a replica
            with suppress(IllegalStateError):  # it is stopping; others will coordinate its groups
                broker.groups.delete_offsets_of(deleted)

    def _delete_on(self, node: _Node, broker: Broker, topic: ClusterTopic) -> None:
        try:
            # A broker that a reassignment has just removed may still have its replica.
            is_hosted = not broker.manager.catalog.topic(topic.name).adopted
            if is_hosted or any(node.id in state.replicas for state in topic.partitions):
                broker.delete_topic(topic.name)
        except UnknownTopicOrPartitionError:
            pass  # the broker has no replica, or could not create it
        except LogStoreError as error:  # the disk failed; the next start deletes the rest
            logger.warning("%s cannot be deleted on broker %d: %s", topic.name, node.id, error)

    def alter_broker_configs(
        self, configs: Mapping[str, object], *, brokers: Iterable[int] | None = None
    ) -> tuple[str, ...]:
        """Change dynamic broker settings; see `Broker.alter_broker_configs`.

        Parameters
        ----------
        brokers : iterable of int, optional
            The brokers whose individual settings are changed. By default, cluster-wide settings
            are changed, which also apply to brokers that are started later.

        Raises
        ------
        InvalidConfigurationError
            A setting is invalid for a broker. Nothing was changed.
        IllegalStateError
            A broker is not running.
        """
        if brokers is not None:
            return self._alter([self._running(each)[1] for each in brokers], configs, Layer.BROKER)
        return self._alter(list(self.brokers.values()), configs, Layer.CLUSTER)

    def alter_group_configs(
        self, group_id: str, configs: Mapping[str, object], *, unset: Iterable[str] = ()
    ) -> None:
        """Change a group's configs (`logstore.config.group_keys`).

        Raises
        ------
        InvalidConfigurationError
            A config is unknown or invalid. Nothing was changed.
        """

        def change(own: Mapping[str, str]) -> Mapping[str, str]:
            check_new_group(group_id, self.controller.groups)
            return alter_group_overrides(own, configs, unset, self.broker_config)

        self.controller.change_group_configs(group_id, change)

    def _alter(
        self, brokers: Sequence[Broker], configs: Mapping[str, object], layer: Layer
    ) -> tuple[str, ...]:
        if not brokers:
            raise IllegalStateError("no broker is running")
        checked = [broker.manager.topics.check_reconfigured(configs, layer) for broker in brokers]
        config, notes = checked[0]
        if layer is Layer.CLUSTER:
            self.controller.set_settings(own_layer(config, layer))
        for broker in brokers:
            broker.manager.topics.reconfigure(configs, layer)
        return notes

    def _set_on(self, broker: Broker) -> None:
        """Apply the cluster-wide settings to a broker that is starting.

        If the controller has never stored such settings, it adopts the settings of the first broker
        that has any.
        """
        if self.controller.settings is None:
            known = own_layer(broker.broker_config, Layer.CLUSTER)
            if not known:
                return
            self.controller.set_settings(known)
        for each in self.brokers.values():
            each.manager.topics.replace_settings(self.controller.settings or {}, Layer.CLUSTER)

    def topics(self) -> list[ClusterTopic]:
        """Return all topics, sorted by name."""
        return self.controller.topics()

    def _host_everywhere(self, topic: ClusterTopic) -> None:
        for node in self._nodes:
            if node.broker is not None:
                self._host(node, topic)

    def _host(self, node: _Node, topic: ClusterTopic) -> None:
        """Create or update the partitions of a topic on a broker."""
        assert node.broker is not None
        admin, catalog = node.broker.manager.topics, node.broker.manager.catalog
        hosted = [p.topic_partition.partition for p in topic.partitions if node.id in p.replicas]
        try:
            stored = catalog.topic(topic.name)
        except UnknownTopicOrPartitionError:
            stored = None
        if not hosted:
            return
        total = len(topic.partitions)
        if stored is None:
            admin.create(topic.name, total, topic.configs, hosted=hosted, topic_id=topic.id)
            return
        if not set(hosted) <= set(stored.partitions):
            admin.create_partitions(topic.name, total, hosted=hosted)
        if dict(stored.configs) != dict(topic.configs):
            gone = set(stored.configs) - set(topic.configs)
            admin.alter(topic.name, topic.configs, gone)

    def _allows_unclean_leaders(self, topic: str) -> bool:
        configs = self.controller.topic(topic).configs
        return effective_config(configs, self.broker_config).unclean_leader_election_enable

    # -- partitions ----------------------------------------------------------------------

    def reassign(
        self,
        topic: str | TopicPartition,
        partition: int | None = None,
        replicas: Sequence[int] | None = None,
    ) -> None:
        """Start the reassignment of a partition to new replicas, or cancel it.

        The new replicas copy the leader's log. When all of them are in sync, the replaced replicas
        are deleted; if the leader is among them, a new leader is elected. To wait for completion,
        call `run_until` with the condition that `reassignments` is empty.

        Parameters
        ----------
        replicas : sequence of int, optional
            All replicas after the reassignment, preferred leader first. None cancels a
            reassignment.

        Raises
        ------
        InvalidReplicaAssignmentError
            The replicas are not distinct brokers of the cluster, or the reassignment could only be
            cancelled with an unclean leader election.
        NoReassignmentInProgressError
            No reassignment is in progress.
        """
        tp = self.state(topic, partition).topic_partition
        known = self.broker_ids
        if replicas is not None and not (
            replicas and len(set(replicas)) == len(replicas) and set(replicas) <= set(known)
        ):
            raise InvalidReplicaAssignmentError(
                f"replicas must be distinct brokers in {list(known)}, not {list(replicas)}"
            )
        for error in self.reassign_all({tp: replicas}).values():
            raise error

    def reassign_all(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, LogStoreError]:
        """Start or cancel reassignments, and return the errors; see `Controller.reassign`.

        The caller must validate the replicas.
        """
        changed, errors = self.controller.reassign(targets)
        self._notify_brokers(changed)
        return errors

    def reassignments(self) -> list[PartitionState]:
        """Return the partitions that are being reassigned."""
        return [state for state in self.controller.states() if state.is_moving]

    def leader(self, topic: str | TopicPartition, partition: int | None = None) -> int:
        """Return the broker id of a partition's leader, or -1 if there is none."""
        return self.state(topic, partition).leader

    def state(self, topic: str | TopicPartition, partition: int | None = None) -> PartitionState:
        """Return the leader, the leader epoch and the in-sync replicas of a partition."""
        name, number = topic_and_partition(topic, partition)
        return self.controller.state(TopicPartition(name, number or 0))

    def move_leader(
        self,
        topic: str | TopicPartition,
        partition: int | None = None,
        *,
        to: int,
        unclean: bool = False,
    ) -> None:
        """Make the replica of broker `to` the leader.

        Parameters
        ----------
        unclean : bool
            Whether to allow an out-of-sync replica. Records that it lacks are lost, even if they
            were acknowledged.

        Raises
        ------
        RequestError
            The broker has no replica of the partition.
        LeaderNotAvailableError
            The broker is not running, or its replica is not in sync.
        """
        tp = self.state(topic, partition).topic_partition
        self._notify_brokers(self.controller.elect(tp, to, unclean=unclean))

    def low_watermark(self, topic: str | TopicPartition, partition: int | None = None) -> int:
        """Return the lowest log start offset of the live replicas (KIP-107).

        The offset is as known to the leader, or -1 without a leader.
        """
        tp = self.state(topic, partition).topic_partition
        try:
            return self._leader_of(tp)[1].leadership(tp).low_watermark
        except LogStoreError:
            return NO_OFFSET

    def _leader_of(self, topic_partition: TopicPartition) -> tuple[Broker, Replicas]:
        leader = self.controller.state(topic_partition).leader
        if leader == NO_LEADER:
            raise LeaderNotAvailableError(f"{topic_partition} has no leader")
        _, broker, replicas = self._running(leader)
        return broker, replicas

    def leader_log(self, topic_partition: TopicPartition) -> Log:
        """Return the log of a partition on its leader.

        Raises
        ------
        LeaderNotAvailableError, UnknownTopicOrPartitionError
        """
        return self._leader_of(topic_partition)[0].manager.log(topic_partition)

    # -- requests ------------------------------------------------------------------------

    def append(
        self,
        topic: str | TopicPartition,
        *,
        value: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
        compression: str = "none",
        acks: Acks = "all",
        timeout_ms: int = 30_000,
    ) -> RecordMetadata:
        """Append one record on the leader, and wait for replicas as specified by `acks`.

        Parameters
        ----------
        acks : 0, 1 or "all"
            With "all", wait for all in-sync replicas. With 1, only wait for the leader. With 0,
            errors are ignored and the returned offset is -1.
        timeout_ms : int
            The maximum time to wait for replicas. After a timeout, the record remains in the
            leader's log.

        Raises
        ------
        LeaderNotAvailableError
            The partition has no leader.
        NotEnoughReplicasError
            With acks="all", fewer than `min.insync.replicas` replicas are in sync. Nothing was
            appended.
        NotEnoughReplicasAfterAppendError, RequestTimedOutError, NotLeaderForPartitionError
            The record was appended but might be lost.
        RequestError
            See `Broker.append`.
        """
        name, number = topic_and_partition(topic, partition)
        if number is None:
            numbers = tuple(range(len(self.controller.topic(name).partitions)))
            number = (
                self._partitioner.for_null_keys(numbers)
                if key is None
                else self._partitioner.of_key(key, numbers)
            )
        tp = TopicPartition(name, number)

        def append(broker: Broker) -> RecordMetadata:
            return broker.append(
                tp,
                value=value,
                key=key,
                timestamp=timestamp,
                headers=headers,
                compression=compression,
            )

        done = self._produce(tp, append, lambda each: each.offset, acks, timeout_ms)
        return RecordMetadata(name, number, NO_OFFSET, NO_TIMESTAMP) if done is None else done

    def append_batches(
        self,
        topic: str | TopicPartition,
        data: bytes,
        *,
        partition: int | None = None,
        transactional_id: str | None = None,
        acks: Acks = "all",
        timeout_ms: int = 30_000,
    ) -> AppendInfo | None:
        """Append an encoded batch on the leader; see `Broker.append_batches` and `append`.

        Return None if acks=0.
        """
        name, number = topic_and_partition(topic, partition)
        tp = TopicPartition(name, number or 0)

        def append(broker: Broker) -> AppendInfo:
            return broker.append_batches(tp, data, transactional_id=transactional_id)

        return self._produce(tp, append, lambda info: info.last_offset, acks, timeout_ms)

    def _produce(
        self,
        topic_partition: TopicPartition,
        append: Callable[[Broker], T],
        last_offset_of: Callable[[T], int],
        acks: Acks,
        timeout_ms: int,
    ) -> T | None:
        """Append on the leader and wait as specified by `acks`. Return None if acks=0."""
        if acks not in (0, 1, -1, "all"):
            raise InvalidConfigurationError(f"acks must be 0, 1 or 'all', not {acks!r}")
        if acks == 0:
            with suppress(LogStoreError):
                append(self._leader_of(topic_partition)[0])
            return None
        broker, replicas = self._leader_of(topic_partition)
        if acks == 1:
            return append(broker)
        role = replicas.check_append(topic_partition)
        done = append(broker)
        delayed = replicas.delayed_append(topic_partition, last_offset_of(done), role)
        self.purgatory.wait([delayed], self.runtime.scheduler, timeout_ms=timeout_ms)
        if delayed.error is not None:
            raise delayed.error
        return done

    def delete_records(
        self, before: Mapping[TopicPartition, int | str], *, timeout_ms: int = 30_000
    ) -> dict[TopicPartition, DeleteRecordsResult]:
        """Delete the records below an offset in each partition, on all live replicas (KIP-107).

        Parameters
        ----------
        before : mapping
            Exclusive end offsets. `latest` or -1 means the high watermark.
        timeout_ms : int
            The maximum time to wait for followers. After a timeout, `error` is `REQUEST_TIMED_OUT`.

        Returns
        -------
        dict
            One result per partition, in the given order. An error only affects its own partition.
        """
        results: dict[TopicPartition, DeleteRecordsResult] = {}
        delayed: dict[TopicPartition, DelayedDeleteRecords] = {}
        for tp, asked in before.items():
            try:
                broker, replicas = self._leader_of(tp)
                start = broker.manager.delete_records(tp, before_offset(asked))
            except LogStoreError as error:
                results[tp] = DeleteRecordsResult(NO_OFFSET, error.kafka_error, str(error))
            else:
                delayed[tp] = DelayedDeleteRecords(replicas, tp, start)
        waiting = list(delayed.values())
        self.purgatory.wait(waiting, self.runtime.scheduler, timeout_ms=timeout_ms)
        return {tp: delayed[tp].result if tp in delayed else results[tp] for tp in before}

    # -- the wire ------------------------------------------------------------------------

    def listen(
        self, host: str = "127.0.0.1", port: int = 0, **settings: Unpack[ListenerOptions]
    ) -> ClusterListeners:
        """Serve Kafka's wire protocol. Each broker has its own port; see `ClusterListeners`.

        Parameters
        ----------
        port : int
            Port of broker 0. The other brokers use the subsequent ports. 0 picks free ports.
        **settings
            See `logstore.wire.settings.ListenerSettings`.

        Raises
        ------
        InvalidConfigurationError
            An address cannot be bound, or the clock is virtual: clients do not advance it, so
            replication would never proceed.
        """
        from logstore.cluster.wire import ClusterListeners
        from logstore.wire.settings import settings_of_several

        if isinstance(self.clock, VirtualClock):
            raise InvalidConfigurationError(
                "a cluster with a VirtualClock cannot listen, as clients do not advance the clock:"
                " use SystemClock() or ShiftedClock()"
            )
        listeners = ClusterListeners(self, host, port, settings_of_several(settings))
        try:
            for node in self._nodes:
                if node.broker is not None and node.replicas is not None:
                    listeners.open(node.id, node.broker, node.replicas)
        except BaseException:
            listeners.close()
            raise
        self._listeners.append(listeners)
        return listeners

    # -- coordinators --------------------------------------------------------------------

    def group_coordinator(self, group_id: str) -> int:
        """Return the broker id of a group's coordinator, or -1 if there is none.

        The coordinator is the leader of the group's partition of `__consumer_offsets`. The topic is
        created if necessary.
        """
        return self._leader_for(lambda broker: broker.groups.partition_for(group_id))

    def transaction_coordinator(self, transactional_id: str) -> int:
        """Return the broker id of a transactional id's coordinator, or -1 if there is none.

        The coordinator is the leader of the id's partition of `__transaction_state`. The topic is
        created if necessary.
        """
        return self._leader_for(lambda broker: broker.coordinator.partition_for(transactional_id))

    def _leader_for(self, partition_for: Callable[[Broker], TopicPartition]) -> int:
        broker = next(iter(self.brokers.values()), None)
        return NO_LEADER if broker is None else self.leader(partition_for(broker))

    @cached_property
    def producer_ids(self) -> ProducerIds:
        """The producer id generator, shared by all brokers."""
        runtime, directory = self.runtime, CONTROLLER_DIR
        if self._data_dir is not None:
            directory = f"{self._data_dir}/{CONTROLLER_DIR}"
        fs = runtime.fs if self._data_dir is None else DiskFileSystem(self.clock)
        fs.make_dirs(directory)
        return ProducerIds(fs, directory, runtime.lock(), self._largest_producer_id)

    def _largest_producer_id(self) -> int:
        """Return the highest producer id in the running brokers' logs, or -1 if there is none."""
        brokers = self.brokers.values()
        return max((largest_producer_id(each.manager) for each in brokers), default=NO_PRODUCER_ID)

    # -- time ----------------------------------------------------------------------------

    def run_until(
        self,
        condition: Callable[[], bool] | datetime | int,
        timeout: timedelta | float | None = None,
    ) -> bool:
        """Let time pass until a condition is true; see `Broker.run_until`."""
        from logstore.broker.waiting import run_until

        return run_until(self.runtime, condition, timeout)


def _checked(
    assignment: Sequence[Sequence[int]] | None, count: int, alive: Sequence[int]
) -> list[tuple[int, ...]] | None:
    """Return the validated replica assignment, or None if no assignment is given."""
    if assignment is None:
        return None
    chosen = [tuple(replicas) for replicas in assignment]
    if len(chosen) != count or len({len(replicas) for replicas in chosen}) != 1:
        raise InvalidReplicaAssignmentError(
            f"an assignment needs equally many replicas for each of {count} partitions: {chosen}"
        )
    for replicas in chosen:
        if not replicas or len(set(replicas)) < len(replicas) or not set(replicas) <= set(alive):
            raise InvalidReplicaAssignmentError(
                f"replicas must be distinct running brokers in {list(alive)}, not {replicas}"
            )
    return chosen


@dataclass(eq=False)
class _Node:
    """A node. Its id, clock and files outlive its broker process."""

    id: int
    clock: Clock
    fs: FileSystem
    data_dir: str
    lock: AbstractContextManager[bool]  # held to run a task and to cancel tasks
    broker: Broker | None = None
    host: ClusterHost | None = None
    replicas: Replicas | None = None
    tasks: list[ScheduledTask] = field(default_factory=list)
