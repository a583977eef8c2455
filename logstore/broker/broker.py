"""The broker: create topics, and append, read and compact records, in one or more data directories.

This is a facade over the log manager, the coordinators and the cleaner. It contains no rules
itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count, islice
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Self, Unpack, cast

from logstore.broker.setup import (
    background_threads,
    build_runtime,
    parse_on_damage,
    resize_threads,
    resolve_data_dirs,
    wrap_disk,
)
from logstore.clients.arguments import (
    before_offset,
    offset_of,
    topic_and_partition,
)
from logstore.clients.partitioner import Partitioner
from logstore.clients.records import (
    ConsumerRecord,
    Headers,
    RecordLike,
    RecordMetadata,
    new_record,
    read_records,
)
from logstore.config.broker_config import BrokerConfig
from logstore.config.dynamic import Layer, changes_of
from logstore.config.overrides import ConfigValue, describe, describe_broker_values
from logstore.errors import (
    InvalidConfigurationError,
    InvalidReplicationFactorError,
    UnknownTopicOrPartitionError,
)
from logstore.faults.rules import DISK_KINDS, REQUEST_KINDS, FaultRule, Faults
from logstore.manager.manager import LogManager
from logstore.manager.topics.store import Topic
from logstore.record.records import NewRecord
from logstore.runtime import (
    Clock,
    DiskFileSystem,
    FileSystem,
    MemoryFileSystem,
    SystemClock,
    VirtualClock,
    is_repeatable,
)
from logstore.runtime.lifetime import lasting
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from logstore.analysis.erasure import ErasureReport
    from logstore.analysis.fates import PartitionFates
    from logstore.analysis.preview import Preview
    from logstore.analysis.reports import ExplainReport, RetainReport
    from logstore.analysis.stats import PartitionStats
    from logstore.broker.plugins import Closable, Page, PageSettings
    from logstore.broker.snapshots import Snapshot
    from logstore.cleaner.command import ProgressListener
    from logstore.cleaner.manager import LogCleanerManager
    from logstore.cleaner.pool.metrics import CleanerMetrics
    from logstore.cleaner.pool.pool import CleanerPool
    from logstore.cleaner.stats import CleanReport
    from logstore.clients.admin_client import AdminClient
    from logstore.clients.consumer import Consumer
    from logstore.clients.producer import Producer
    from logstore.clients.results import (
        AlterReplicaLogDirsResult,
        DeleteRecordsResult,
        OffsetAndTimestamp,
    )
    from logstore.clients.settings import AdminSettings, ConsumerSettings, ProducerSettings
    from logstore.clients.writer import AppendedRange, BatchWriter
    from logstore.coordinator.groups.coordinator import GroupCoordinator
    from logstore.coordinator.host import CoordinatorHost
    from logstore.coordinator.transactions.coordinator import TransactionCoordinator
    from logstore.faults.crash import CrashMode
    from logstore.faults.disk import FaultyDisk
    from logstore.faults.names import FaultError, FaultKind
    from logstore.faults.rules import RuleOptions
    from logstore.manager.directories.directory import OpenedFolder
    from logstore.manager.opening import LoadListener
    from logstore.manager.services import LogService
    from logstore.storage.log.drafts import AppendInfo
    from logstore.storage.log.log import Log
    from logstore.wire.listener import Listener
    from logstore.wire.nodes import Nodes
    from logstore.wire.settings import ListenerOptions, ListenerSettings


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # Covariant, so that a function that takes a Broker accepts a broker with any clock.
    ClockT = TypeVar("ClockT", bound=Clock, default=Clock, covariant=True)
else:
    # TypeVar of the standard library has no `default` before Python 3.13
    from typing import TypeVar

    ClockT = TypeVar("ClockT", bound=Clock, covariant=True)

_new = tuple.__new__  # see `logstore.storage.log.drafts`


class Broker(Generic[ClockT]):
    """A single-node broker in this process.

    Parameters
    ----------
    data_dir : path or sequence of paths, optional
        Kafka log directories. They are created if they do not exist. If None, all files are in
        memory. Relative paths are resolved immediately, unless `fs` is given.
    clock : Clock, optional
        Clock for wall time and monotonic time. The default is the system clock. Use
        `VirtualClock()` in tests.
    broker_config : mapping or BrokerConfig, optional
        Broker properties of Kafka. They also set the defaults of topics. Keys of Kafka that have no
        effect here are accepted. Unknown keys are an error.
    read_only : bool
        Do not change any file. If recovery is necessary, it is done in memory and reported.
    seed : int, optional
        Seed for random choices, such as the roll jitter and the hash key of the cleaner.
    fs : FileSystem, optional
        A file system to use instead of the disk or the memory.
    background : bool
        Run the cleaner threads, and Kafka's periodic tasks: retention, flushes, checkpoints, and
        the removal of deleted files. They run in threads or, with a `VirtualClock`, inside
        `clock.advance(...)`. If False, there are no background tasks.
    on_load : callable, optional
        Called for each partition that is opened because of an unclean shutdown.
    on_damage : str
        What to do about damage that is followed by valid batches. `recover` truncates the log
        before the damage, as Kafka does, and logs a warning about the loss. `refuse` raises an
        error, without any change, if a partition would be truncated below its recovery point or has
        no recovery point. `pass_over` requires `read_only`. It skips the damage, lists it in
        `Log.damages`, and reads the rest.
    shown : OpenedFolder, optional
        The only folder of `data_dir` to open, even if its name is not valid. Requires `read_only`.
    metadata_log : bool
        Open the metadata log of a KRaft node, `__cluster_metadata-0`, as a partition. Requires
        `read_only`.
    disk_faults : bool, optional
        Whether the disk can fail (`fail`) and lose unsynced data (`crash`). This makes each file
        operation a little slower. The default is True in memory and with a virtual clock, unless
        `fs` is given.
    host : CoordinatorHost, optional
        The role of the broker in a `Cluster`. The broker's logs are then replicas, which reject
        appends until the cluster has assigned their leaders.

    Attributes
    ----------
    faults : Faults
        The active rules in the order in which `fail` created them. Use `clear()` to remove them
        all.

    Raises
    ------
    InvalidConfigurationError
        A property is invalid or unknown, or a directory does not exist and `read_only` is set.
    KafkaStorageError
        A data directory is used by another process, or the first one cannot be read.
    """

    def __init__(
        self,
        data_dir: str | PathLike[str] | Sequence[str | PathLike[str]] | None = None,
        *,
        clock: ClockT | None = None,
        broker_config: Mapping[str, object] | BrokerConfig | None = None,
        read_only: bool = False,
        seed: int | None = None,
        fs: FileSystem | None = None,
        background: bool = False,
        on_load: LoadListener | None = None,
        on_damage: Literal["recover", "refuse", "pass_over"] = "recover",
        shown: OpenedFolder | None = None,
        metadata_log: bool = False,
        disk_faults: bool | None = None,
        host: CoordinatorHost | None = None,
    ) -> None:
        # Without `clock` this is a Broker[Clock].
        self.clock: ClockT = cast("ClockT", SystemClock()) if clock is None else clock
        if not isinstance(broker_config, BrokerConfig):
            broker_config = BrokerConfig.from_properties(broker_config or {}, refuse_unknown=True)
        if disk_faults is None:
            is_double = data_dir is None or isinstance(self.clock, VirtualClock)
            disk_faults = fs is None and is_double
        is_disk = fs is None and data_dir is not None
        if fs is None:
            fs = DiskFileSystem(self.clock) if is_disk else MemoryFileSystem(self.clock)
        self._works_in_memory = isinstance(fs, MemoryFileSystem)
        self.faults = Faults((*REQUEST_KINDS, *DISK_KINDS), self.clock)
        self._disk = None if read_only or not disk_faults else wrap_disk(fs, self.faults)
        fs = fs if self._disk is None else self._disk
        threads = background_threads(broker_config)
        self.runtime = build_runtime(self.clock, fs, seed, read_only=read_only, threads=threads)
        self.manager = LogManager(
            self.runtime,
            resolve_data_dirs(data_dir, absolute=is_disk),
            broker_config,
            read_only=read_only,
            on_load=on_load,
            faults=self.faults,
            replicated=host is not None,
            on_damage=parse_on_damage(on_damage, read_only=read_only),
            shown=shown,
            metadata_log=metadata_log,
        )
        self._host = host
        self._creating = self.runtime.lock()
        # The configuration of the manager includes changes made in earlier runs.
        self._first_config, self._on_load = broker_config, on_load
        resize = partial(resize_threads, self.runtime)
        resize(self.manager.broker_config)
        self.manager.services.events.reconfigured.subscribe(resize)
        self.read_only = read_only
        self._partitioner = Partitioner()
        self._cleaner: LogCleanerManager | None = None
        self._pool: CleanerPool | None = None
        self._coordinator: TransactionCoordinator | None = None
        self._groups: GroupCoordinator | None = None
        self._client_numbers = count(1)
        self._producers: list[Producer] = []
        self._consumers: list[Consumer] = []
        self._listeners: list[Closable] = []
        self.manager.lifetime.add(self)
        if background and not read_only:
            self._start()

    def _start(self) -> None:
        from logstore.cleaner.manager import LogCleanerManager
        from logstore.cleaner.pool.pool import CleanerPool
        from logstore.coordinator.groups.coordinator import GroupCoordinator
        from logstore.manager.housekeeping import Housekeeping

        cleaner = LogCleanerManager(self.runtime, self.manager, self.broker_config)
        self._cleaner = cleaner
        self.manager.services.add_holder(cleaner)
        self._pool = CleanerPool(self.runtime, cleaner, self.broker_config)
        coordinators: list[LogService] = []
        if self._host is None:  # if not, they are started on first use
            self._groups = GroupCoordinator(self.runtime, self.manager)
            coordinators = [self._groups, self.coordinator]
        self.manager.start([Housekeeping(self.manager), *coordinators, cleaner, self._pool])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        parts = [directory.path for directory in self.manager.directories]
        if self.read_only:
            parts.append("read-only")
        if self.manager.lifetime.is_over:
            parts.append("closed")
        return f"Broker({', '.join(parts)})"

    def __del__(self) -> None:
        """Warn if the broker is garbage-collected while its threads are running."""
        # The attribute is None if `__init__` failed.
        manager = getattr(self, "manager", None)
        if manager is None or manager.lifetime.is_over:
            return
        schedulers = [manager.runtime.scheduler]
        if self._groups is not None and self._groups.own_scheduler is not None:
            schedulers.append(self._groups.own_scheduler)
        if any(each.is_concurrent and each.is_started for each in schedulers):
            warnings.warn(
                f"{self!r} was not closed and its threads are still running: use a with block",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Broker cannot be pickled or copied because it has open files and a locked directory;"
            " close it and pass the path of its data directory to the other process"
        )

    def close(self) -> None:
        """Flush and close everything. Calling it again has no effect.

        After that, any use of the broker, or of an object obtained from it, raises
        `IllegalStateError`. This also applies to a forked child process, where `close` has no
        effect because the files belong to the parent.

        Raises
        ------
        KafkaStorageError
            See `LogManager.close`.
        IllegalStateError
            This was called by a `progress` listener of `clean`, or by a signal handler that
            interrupted a change of a log in this thread. Nothing was closed.
        """
        self._check_can_end()
        if not self.manager.lifetime.is_over:
            self.manager.check_not_inside()
        try:
            for listener in self._listeners:
                listener.close()
            for consumer in self._consumers.copy():
                consumer._close()  # even if another thread is using it
            for producer in self._producers.copy():
                producer.close()
        finally:
            self.manager.close()

    # -- time ----------------------------------------------------------------------------

    def run_until(
        self,
        condition: Callable[[], bool] | datetime | int,
        timeout: timedelta | float | None = None,
    ) -> bool:
        """Advance time or wait until a condition is true, running everything that becomes due.

        Parameters
        ----------
        condition : callable, datetime or int
            A function that is called after each event, or a wall-clock time to wait for, given as a
            datetime with a time zone or in Unix milliseconds.
        timeout : timedelta or ms, optional
            Maximum time to wait. [default: unlimited]

        Returns
        -------
        bool
            False if the timeout expired before the condition was true.

        Raises
        ------
        Deadlock
            In virtual time, no scheduled event can make the condition true. If the broker has a
            listener, the call blocks instead, because a client could do so.
        """
        from logstore.broker.waiting import run_until

        return run_until(self.runtime, condition, timeout)

    def snapshot(self) -> Snapshot[Broker[VirtualClock]]:
        """Return the state of a broker in memory. Any number of brokers can be started from it.

        Raises
        ------
        InvalidConfigurationError
            The broker is not in memory, or it does not use a virtual clock.
        """
        from logstore.broker.snapshots import Snapshot

        return Snapshot(
            Broker[VirtualClock],
            self.runtime,
            [directory.path for directory in self.manager.directories],
            self._first_config,
            background=self._pool is not None,
            disk_faults=self._disk is not None,
        )

    def fork(self) -> Broker[VirtualClock]:
        """Return a new broker that starts in the current state of this one. It has its own clock.

        See `Snapshot`.
        """
        return self.snapshot().broker()

    # -- faults --------------------------------------------------------------------------

    def fail(
        self,
        kind: FaultKind,
        *,
        error: FaultError | None = None,
        **options: Unpack[RuleOptions],
    ) -> FaultRule:
        """Make requests fail, delay them, lose their responses, or make the disk fail.

        `broker.faults` contains all rules. A rule is active until `remove()` is called, its `with`
        block ends, `broker.faults.clear()` is called, or the broker is closed.

        Parameters
        ----------
        kind : str
            The kind of request: `append` (a batch for a partition, from any client), `fetch` (from
            a partition), `commit` (of a group's offsets) or `join` (of a group; a new member sends
            it twice). Or a disk operation: `write`, `read`, `fsync` (of a file or a directory),
            `rename`, or `swap`, the rename that replaces segments with a cleaned segment.
        error : str, int or exception class, optional
            For a request, the name of an error of Kafka, or its exception class. Clients retry
            retriable errors using the broker's clock. `append` and `read` raise all errors. For the
            disk, the name or number of an `errno`, by default `EIO`. The data directory is then
            offline, and using it raises `KafkaStorageError` until the broker is opened again. With
            an `errno`, `append` and `fetch` are the writes and reads of `.log` files.
        delay : timedelta or ms, optional
            Time that passes before the call. Virtual time is advanced, otherwise the call sleeps.
        nth, times, topic, partition, when
            The calls to which the rule applies; see `Faults.add`.
        after : bool
            Perform the append, commit or join, but lose its response. By default, it is not
            performed.

        Returns
        -------
        FaultRule
            Its `hits` are the number of calls that it has affected.

        Raises
        ------
        InvalidConfigurationError
            The kind or the error is unknown (the message contains the most similar name), the rule
            has no effect, or the disk was opened without `disk_faults`.
        """
        rule = self.faults.add(kind, error=error, **options)
        if rule.is_disk and self._disk is None:
            rule.remove()
            self._refuse_without_disk_faults(f"{rule.kind} cannot fail")
        return rule

    def crash(self, mode: CrashMode | None = None) -> Self:
        """Simulate a power failure: lose all unsynced data, and return a new broker.

        This broker, and every object obtained from it, cannot be used anymore. The new broker has
        the same clock, directories and settings. It recovers the remaining files as Kafka does.
        Fault rules and temporary overrides are dropped. Without replicas, `acks` does not make a
        record durable. To keep records, set `flush.messages` or close the broker. To simulate the
        end of a process, in which everything that was written remains, use `fork`.

        Parameters
        ----------
        mode : CrashMode, optional
            Determines which unsynced data is lost, if `fs` is a `FaultyFileSystem`.

        Raises
        ------
        InvalidConfigurationError
            The broker was opened without `disk_faults`, or read-only, or does not support the mode.
        KafkaStorageError
            This disk cannot discard unsynced data.
        IllegalStateError
            This was called by a `progress` listener of `clean`.
        """
        from logstore.broker.power import lose_power

        disk = self._check_can_lose_power()
        # Read the attributes first, because only the paths of the directories are available after
        # the crash.
        rng, background = self.runtime.rng, self._pool is not None
        seed = rng.getrandbits(64) if is_repeatable(rng) else None
        paths = [directory.path for directory in self.manager.directories]
        fs = lose_power(disk, mode, self.manager, self._listeners, self._clients())
        recovered = Broker(
            paths,
            clock=self.clock,
            broker_config=self._first_config,
            seed=seed,
            fs=fs,
            background=background,
            on_load=self._on_load,
            disk_faults=True,
            host=self._host,
        )
        return cast("Self", recovered)  # the new broker has the same kind of clock

    def _kill(self) -> None:
        """Simulate the end of a killed process.

        Nothing is flushed, and the files remain as written.

        A broker that is opened on the files recovers them.

        Raises
        ------
        IllegalStateError
            This was called by a `progress` listener of `clean`.
        """
        from logstore.broker.power import end_process

        self._check_can_end()
        end_process(self.manager, self._listeners, self._clients())

    def _lose_power(self) -> None:
        """Lose power like `crash`, but without opening another broker.

        Raises the same errors as `crash`.

        The files contain the data that was last synced.
        """
        from logstore.broker.power import lose_power

        disk = self._check_can_lose_power()
        lose_power(disk, None, self.manager, self._listeners, self._clients())

    def _check_can_end(self) -> None:
        """Raise `IllegalStateError` if this is called by a `progress` listener of `clean`."""
        if self._cleaner is not None and not self.manager.lifetime.is_over:
            self._cleaner.check_not_driving()

    def _check_can_lose_power(self) -> FaultyDisk:
        """Raise the same errors as `crash`, or return the disk."""
        if self._disk is None:
            self._refuse_without_disk_faults("cannot simulate a power failure")
        self._check_can_end()
        return self._disk

    def _clients(self) -> list[Consumer | Producer]:
        return [*self._consumers, *self._producers]

    def _refuse_without_disk_faults(self, what: str) -> NoReturn:
        why = "read-only" if self.read_only else "without disk_faults=True"
        raise InvalidConfigurationError(f"{what}: the broker was opened {why}")

    # -- topics --------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, object] | None = None,
        *,
        replication_factor: int = 1,
    ) -> Topic:
        """Create a topic.

        If a folder of that name was copied from a broker, it is adopted unchanged.

        Parameters
        ----------
        configs : mapping, optional
            Topic configs of Kafka. A duration may be a `timedelta`, or text such as `7d`, `12h` or
            `1d12h`. A size may be text such as `512KiB` or `1GiB`.
        replication_factor : int
            Must be 1, or -1 for the default, which is 1.

        Raises
        ------
        InvalidTopicError, TopicAlreadyExistsError, InvalidConfigurationError
        InvalidReplicationFactorError
            More than one replica is requested, but there is only one broker.
        """
        self._refuse_if_read_only("create a topic")
        if replication_factor not in (1, -1):
            raise InvalidReplicationFactorError(
                f"topic '{name}' cannot have {replication_factor} replicas: there is one broker"
            )
        return self.manager.topics.create(name, partitions, configs or {})

    def create_partitions(self, topic: str, total: int) -> Topic:
        """Increase the number of partitions of a topic to `total`. Existing records are not moved.

        Raises
        ------
        UnknownTopicOrPartitionError
        """
        self._refuse_if_read_only("create partitions")
        return self.manager.topics.create_partitions(topic, total)

    def topics(self) -> list[Topic]:
        """Return all topics by name. This includes adopted topics."""
        return self.manager.catalog.topics()

    def topic(self, name: str | TopicPartition) -> Topic:
        """Return one topic.

        Raises
        ------
        UnknownTopicOrPartitionError
        """
        return self.manager.catalog.topic(topic_and_partition(name, None)[0])

    def describe_configs(self, topic: str | TopicPartition) -> dict[str, ConfigValue]:
        """Return the effective configs of a topic, with their origin and documentation."""
        name, _ = topic_and_partition(topic, None)
        return describe(self.manager.catalog.overrides(name), self.broker_config)

    def override_configs(self, topic: str, configs: Mapping[str, object]) -> None:
        """Override configs of a topic until this broker is closed. They are not stored."""
        self.manager.topics.override(topic, configs)

    def alter_configs(
        self, topic: str, configs: Mapping[str, object], *, unset: Iterable[str] = ()
    ) -> tuple[str, ...]:
        """Change the configs of a topic. The change is stored and takes effect immediately.

        Parameters
        ----------
        configs : mapping
            The configs to set, with values as in `create_topic`.
        unset : iterable of str
            The configs to reset to the broker's default.

        Returns
        -------
        tuple of str
            Messages about old names that were translated.

        Raises
        ------
        UnknownTopicOrPartitionError, InvalidConfigurationError
            Nothing was changed.
        """
        self._refuse_if_read_only("alter a topic")
        return self.manager.topics.alter(topic, configs, unset)[1]

    def preview(
        self,
        topic: str | TopicPartition | None = None,
        partition: int | None = None,
        *,
        set: Mapping[str, object] | None = None,  # the command line's name
        unset: Iterable[str] = (),
        quick: bool = False,
        read_bytes_max: int | None = None,
        partitions_max: int | None = None,
        cluster_wide: bool = False,
    ) -> Preview:
        """Return the effects of `alter_configs` or `alter_broker_configs`. Nothing is changed.

        For each partition, the result contains whether it would be cleaned, before and after the
        change. It also contains the records that the next cleaning pass and retention would remove,
        with the times.

        Parameters
        ----------
        topic, partition : str, int, optional
            Without a topic, `set` and `unset` are broker keys. The result then contains the
            partitions whose effective settings would change.
        set, unset
            As in `alter_configs`. If both are empty, the current state is returned.
        quick : bool
            Only read batch headers, and do not simulate a cleaning pass.
        read_bytes_max : int, optional
            Maximum number of bytes to read for dry runs. A partition that needs more has no dry run
            (`PartitionPreview.unread`). Unlimited by default.
        partitions_max : int, optional
            Maximum number of partitions to examine. The others are only counted.
        cluster_wide : bool
            See `alter_broker_configs`.

        Raises
        ------
        UnknownTopicOrPartitionError, InvalidConfigurationError
            The change itself would raise this error.
        """
        from logstore.analysis import preview

        name, number = topic_and_partition(topic, partition)
        if name is None:
            layer = Layer.CLUSTER if cluster_wide else Layer.BROKER
            changes = changes_of(set or {}, unset)
            hypothetical = preview.hypothetical_broker_configs(self.manager, changes, layer)
        else:
            hypothetical = preview.hypothetical_topic_configs(self.manager, name, set or {}, unset)
        return preview.preview(
            self,
            hypothetical,
            name,
            number,
            quick=quick,
            read_bytes_max=read_bytes_max,
            partitions_max=partitions_max,
        )

    def delete_topic(self, topic: str) -> None:
        """Delete a topic.

        Its files are removed after `file.delete.delay.ms`, or when the broker closes.

        Raises
        ------
        UnknownTopicOrPartitionError
        """
        self._refuse_if_read_only("delete a topic")
        self.manager.topics.delete(topic)

    def partitions(
        self, topic: str | TopicPartition | None = None, partition: int | None = None
    ) -> list[TopicPartition]:
        """Return the partitions of one topic, or of all topics.

        Raises
        ------
        UnknownTopicOrPartitionError
        """
        name, number = topic_and_partition(topic, partition)
        return self.manager.catalog.partitions(name, number)

    def log(self, topic: str | TopicPartition, partition: int = 0) -> Log:
        """Return the log of a partition."""
        return self.manager.log(TopicPartition(*topic_and_partition(topic, partition)))

    # -- produce -------------------------------------------------------------------------

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
    ) -> RecordMetadata:
        """Append one record as a batch.

        Parameters
        ----------
        value : bytes or None
            None for a tombstone.
        partition : int, optional
            If it is not set, Kafka's default partitioner selects the partition.
        timestamp : int, optional
            Timestamp in Unix ms. Defaults to the current time of the clock.
        headers : iterable of pairs, or mapping
            Names and values, in order. A value may be None.

        Raises
        ------
        RequestError
            The record was rejected. The log was not changed.
        IllegalStateError
            This was called by a signal handler or a listener while its thread was changing the log.
            Nothing was appended.
        """
        if self.read_only:
            self._refuse_if_read_only("append")
        name: str = topic  # type: ignore[assignment]  # unless it is a partition
        if type(topic) is not str:
            name, partition = topic_and_partition(topic, partition)
        record = new_record(key, value, timestamp, headers)
        number = self._partition_for(name, record, partition)
        tp: TopicPartition = _new(TopicPartition, (name, number))
        append = self.manager.registry.log(tp).writer.append_record
        if compression != "none":
            from logstore.record.codecs import Codec

            append = partial(append, codec=Codec.from_name(compression))
        if self.faults.rules:
            info = self.faults.request("append", (tp,), partial(append, record))
        else:
            info = append(record)
        metadata: RecordMetadata = _new(
            RecordMetadata, (name, number, info.first_offset, info.max_timestamp)
        )
        return metadata

    def append_many(
        self,
        topic: str | TopicPartition,
        records: Iterable[RecordLike],
        *,
        partition: int | None = None,
        compression: str = "none",
        batch_records: int | None = None,
    ) -> list[AppendedRange]:
        """Append records in batches.

        Parameters
        ----------
        records : iterable
            Tuples `(key, value[, timestamp[, headers]])`, mappings with these names, `NewRecord`s
            or `ConsumerRecord`s. The iterable is consumed once. Each partition has one open batch.
        batch_records : int, optional
            Number of records per batch. By default, batches have about 16 KiB, as with a producer.

        Returns
        -------
        list of AppendedRange
            One per partition, ordered by partition.

        Raises
        ------
        RequestError
            A batch was rejected. The batches before it have been appended.
        """
        name, number = topic_and_partition(topic, partition)
        self._refuse_if_read_only("append")
        writer = self.batch_writer(name, compression=compression, batch_records=batch_records)
        writer.add_all(records, number)
        return writer.finish()

    def append_batches(
        self,
        topic: str | TopicPartition,
        data: bytes,
        *,
        partition: int = 0,
        transactional_id: str | None = None,
    ) -> AppendInfo:
        """Append an encoded batch. It is validated like a batch that a client sends to a broker.

        A transactional batch is only accepted if the coordinator knows the transaction and the
        partition has been added to it. Use `broker.log(…).writer.append_batches(…)` to skip this
        check.

        Parameters
        ----------
        data : bytes
            One batch with magic 2 and base offset 0.
        transactional_id : str, optional
            The transactional id of the producer. Defaults to the id that the batch's producer id
            belongs to.

        Raises
        ------
        InvalidTxnStateError, InvalidProducerEpochError, InvalidProducerIdMappingError
            The batch is not part of an open transaction of its producer.
        RequestError, CorruptRecordError, UnsupportedFormatError
            The batch was rejected. The log was not changed.
        """
        from logstore.coordinator.transactions.produce import append_as_client

        self._refuse_if_read_only("append")
        tp = TopicPartition(*topic_and_partition(topic, partition))
        return append_as_client(self.manager, self.coordinator, tp, data, transactional_id)

    def batch_writer(
        self, topic: str, *, compression: str = "none", batch_records: int | None = None
    ) -> BatchWriter:
        """Return the writer used by `append_many`, for callers that append records one at a time.

        Call `BatchWriter.finish` before the broker closes.
        """
        from logstore.clients.writer import BatchWriter
        from logstore.record.codecs import Codec

        self._refuse_if_read_only("append")
        writer = BatchWriter(
            topic,
            self.manager.catalog.topic(topic).partitions,
            lambda number: self.manager.log(TopicPartition(topic, number)),
            self._partitioner,
            faults=self.faults,
            codec=Codec.from_name(compression),
            batch_records=batch_records,
        )
        self.manager.lifetime.add(writer)
        return writer

    def producer(self, **configs: Unpack[ProducerSettings]) -> Producer:
        """Return a producer with the API of kafka-python; see `Producer`.

        It is closed together with the broker.
        """
        from logstore.clients.producer import Producer

        self._refuse_if_read_only("produce")
        transactional_id = configs.get("transactional_id")
        if self._host is not None and transactional_id is not None:
            self.coordinator.partition_for(transactional_id)  # this creates the topic
        closed = self._producers.remove
        named = self._with_client_id("producer", configs)
        producer = Producer(self.runtime, self.manager, self.coordinator, named, closed)
        self._producers.append(producer)
        return producer

    def consumer(self, *topics: str, **configs: Unpack[ConsumerSettings]) -> Consumer:
        """Return a consumer with the API of kafka-python; see `Consumer`.

        It is closed together with the broker. If the broker is read-only, the consumer starts at
        the committed offsets of its group and does not commit any.
        """
        from logstore.clients.consumer import Consumer

        if self._host is not None and configs.get("group_id") is not None:
            self.groups.ensure_stored()
        closed = self._consumers.remove
        named = self._with_client_id("consumer", configs)
        consumer = Consumer(self.runtime, self.manager, self.groups, topics, named, closed)
        self._consumers.append(consumer)
        return consumer

    def _with_client_id(self, kind: str, configs: Mapping[str, Any]) -> Mapping[str, Any]:
        # Each broker numbers its own clients: the ids are stored, and one seed must result in the
        # same bytes in every process.
        if configs.get("client_id"):
            return configs
        return {**configs, "client_id": f"logstore-{kind}-{next(self._client_numbers)}"}

    def admin(self, **configs: Unpack[AdminSettings]) -> AdminClient:
        """Return an admin client with the API of kafka-python; see `AdminClient`.

        If the broker is read-only, the client can only list and describe.
        """
        from logstore.clients.admin_client import AdminClient

        return AdminClient(self.manager, self.groups, configs)

    def listen(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        **settings: Unpack[ListenerOptions],
    ) -> Listener:
        """Serve Kafka's wire protocol at an address, in a separate thread; see `Listener`.

        The listener is closed together with the broker, or at the end of its `with` block.

        Parameters
        ----------
        port : int
            Port to bind to. 0 picks a free port. `Listener.bootstrap` contains the actual port.
        **settings
            See `logstore.wire.settings.ListenerSettings`.

        Raises
        ------
        InvalidConfigurationError
            The address cannot be bound, or `node.id` does not match the data directories.
        """
        from logstore.wire.settings import ListenerSettings

        return self._open_listener(host, port, ListenerSettings(**settings))

    def _open_listener(
        self,
        host: str,
        port: int,
        settings: ListenerSettings,
        *,
        nodes: Nodes | None = None,
    ) -> Listener:
        """Listen at an address as one node of a cluster; see `listen`.

        Parameters
        ----------
        nodes : Nodes, optional
            The cluster. By default, it only consists of this broker.
        """
        from logstore.runtime.background import run_in_background
        from logstore.wire.listener import Listener
        from logstore.wire.service import ServedBroker

        self._refuse_if_read_only("listen")
        parts = ServedBroker(
            self.runtime,
            self.manager,
            self.groups,
            self.coordinator,
            # In a cluster, a coordinator has to wait for replicas.
            works_in_memory=self._works_in_memory and nodes is None,
            nodes=nodes,
        )
        self.groups.use_system_clock()
        listener = Listener(parts, host, port, settings)
        self._listeners.append(listener)
        run_in_background("preload", _load_kernels)
        return listener

    def ui(self, host: str = "127.0.0.1", port: int = 0, **options: Unpack[PageSettings]) -> Page:
        """Serve a web page that shows and controls this broker; see `logstore.ui`.

        It is closed together with the broker, or at the end of its `with` block. Its address
        contains a token that allows every action, unless there is an authorizer. If the broker is
        read-only or belongs to a cluster, the page cannot change anything.

        Parameters
        ----------
        port : int
            Port to bind to. 0 picks a free port. `url` contains the actual port.
        **options
            `token`, `authorizer`, `principal` and `schemas`; see `logstore.ui.server.Ui`.

        Raises
        ------
        InvalidConfigurationError
            The address cannot be bound, or the extra `ui` is not installed.
        """
        from logstore.broker.plugins import find_plugin

        page: Page = find_plugin("ui")(self, host, port, **options)
        self._listeners.append(page)
        return page

    @property
    def coordinator(self) -> TransactionCoordinator:
        """The transaction coordinator of this broker."""
        if self._coordinator is None:
            from logstore.coordinator.transactions.coordinator import TransactionCoordinator

            self._refuse_if_read_only("coordinate transactions")
            with self._creating:
                if self._coordinator is None:
                    self._coordinator = TransactionCoordinator(
                        self.runtime, self.manager, self.groups, host=self._host
                    )
                    self._start_in_cluster(self._coordinator)
        return self._coordinator

    @property
    def groups(self) -> GroupCoordinator:
        """The group coordinator of this broker."""
        if self._groups is None:
            from logstore.coordinator.groups.coordinator import GroupCoordinator

            with self._creating:
                if self._groups is None:
                    self._groups = GroupCoordinator(self.runtime, self.manager, self._host)
                    if self._host is None:
                        self.manager.services.add(self._groups)
                    self._start_in_cluster(self._groups)
        return self._groups

    def _start_in_cluster(self, coordinator: LogService) -> None:
        """Start the periodic tasks of the coordinator in a cluster, even without `background`."""
        if self._host is not None:
            self.runtime.scheduler.start()
            self.manager.services.add(coordinator)
            coordinator.start()

    def _partition_for(self, topic: str, record: NewRecord, partition: int | None) -> int:
        if partition is not None:
            return partition
        numbers = self.manager.catalog.topic(topic).partitions
        if record.key is None:
            return self._partitioner.for_null_keys(numbers)
        return self._partitioner.of_key(record.key, numbers)

    # -- consume -------------------------------------------------------------------------

    def read(
        self,
        topic: str | TopicPartition,
        partition: int = 0,
        *,
        offset: int | str | None = None,
        until: int | str | None = None,
        max_records: int | None = None,
        isolation: str = "read_uncommitted",
        key: bytes | None = None,
    ) -> Iterator[ConsumerRecord]:
        """Yield the records of a partition in offset order.

        Parameters
        ----------
        offset : int or str, optional
            The first offset, inclusive. It may also be `earliest` (the log start, which is the
            default) or `latest`.
        until : int or str, optional
            The last offset, exclusive. Defaults to the end of the log for this `isolation`;
            `latest` means the same.
        isolation : str
            `read_uncommitted`, or `read_committed` to exclude uncommitted and aborted records.
        key : bytes, optional
            Only yield the records with this key.

        Raises
        ------
        OffsetOutOfRangeError
            `offset` is outside of the log. This is raised by the first iteration.
        CorruptRecordError
            A batch is damaged. The message contains the file and the position.
        """
        log = self.log(topic, partition)
        reopen = partial(self.manager.registry.reopen, log.topic_partition)
        from logstore.storage.log.reader import Isolation

        allowed = Isolation(isolation)
        offset, until = offset_of(offset, log, allowed), offset_of(until, log, allowed)
        records = read_records(log, offset, until, allowed, key, reopen, self.faults)
        return records if max_records is None else islice(records, max(max_records, 0))

    def table(
        self, topic: str | TopicPartition, *, isolation: str = "read_committed"
    ) -> dict[bytes, bytes]:
        """Return each key's latest value under the topic's strategy, without deleted keys."""
        from logstore.clients.table import values_per_key
        from logstore.storage.log.reader import Isolation

        config = self.manager.catalog.config(topic_and_partition(topic, None)[0])
        logs = [self.manager.log(tp) for tp in self.partitions(topic)]
        return values_per_key(logs, config, Isolation(isolation), self.faults)

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Look up the first record at or after a timestamp in each partition.

        The result is None if there is no such record.
        """
        from logstore.clients import partition_requests

        return partition_requests.offsets_for_times(self.manager, times)

    # -- moving and deleting -------------------------------------------------------------

    def alter_replica_log_dirs(
        self, assignments: Mapping[TopicPartition, str | PathLike[str]]
    ) -> dict[TopicPartition, AlterReplicaLogDirsResult]:
        """Move partitions to other data directories. Appends to a partition wait during its move.

        Returns one result per partition, in the given order. An error only affects its own
        partition.
        """
        from logstore.clients import partition_requests

        self._refuse_if_read_only("move partitions")
        return partition_requests.alter_replica_log_dirs(self.manager, assignments)

    def delete_records(
        self, before: Mapping[TopicPartition, int | str]
    ) -> dict[TopicPartition, DeleteRecordsResult]:
        """Delete the records below an offset in each partition (KIP-107).

        `before` maps a partition to an exclusive end offset. `latest` or -1 means the high
        watermark. Returns one result per partition, in the given order. An error only affects its
        own partition.
        """
        from logstore.clients import partition_requests

        self._refuse_if_read_only("delete records")
        ends = {tp: before_offset(value) for tp, value in before.items()}
        return partition_requests.delete_records(self.manager, ends)

    def retain(
        self,
        topic: str | TopicPartition | None = None,
        partition: int | None = None,
        *,
        dry_run: bool = False,
    ) -> RetainReport:
        """Run retention once for one topic or for all topics.

        Parameters
        ----------
        dry_run : bool
            Only decide; do not delete anything.

        Returns
        -------
        RetainReport
            For each segment, the rule by which it is deleted, or the reason why it is retained.

        Raises
        ------
        InvalidConfigurationError
            A topic was copied from a broker, so its cleanup.policy is only assumed. Nothing was
            deleted; see `override_configs` and `alter_configs`.
        """
        from logstore.broker.retaining import retain

        if not dry_run:
            self._refuse_if_read_only("retain")
        partitions = self.partitions(topic, partition)
        return retain(self.manager, self.cleaner, partitions, dry_run=dry_run)

    # -- segments and cleaning -----------------------------------------------------------

    def roll(self, topic: str | TopicPartition, partition: int = 0) -> int:
        """Start a new active segment and return its base offset."""
        self._refuse_if_read_only("roll")
        return self.log(topic, partition).writer.roll().base_offset

    @property
    def cleaner(self) -> LogCleanerManager:
        """The log cleaner of this broker."""
        if self._cleaner is None:
            from logstore.cleaner.manager import LogCleanerManager

            self._cleaner = LogCleanerManager(self.runtime, self.manager, self.broker_config)
            self.manager.services.add_holder(self._cleaner)
            self.manager.services.add(self._cleaner)
        return self._cleaner

    def clean(
        self,
        topic: str | TopicPartition | None = None,
        partition: int | None = None,
        *,
        force: bool = False,
        roll: bool = False,
        dry_run: bool = False,
        threads: int | None = None,
        progress: ProgressListener | None = None,
    ) -> CleanReport:
        """Compact the partitions that are due.

        With `force`, compact everything that can be cleaned.

        Cleaning is repeated until no partition is due.

        Parameters
        ----------
        topic, partition : str, int, optional
            Defaults to all partitions.
        force : bool
            Ignore the dirty ratio and the compaction lags. Clean up to the first uncleanable
            offset, in as many passes as the offset map requires. If the log has no dirty records,
            rewrite its clean section once. The active segment is never cleaned, nor is anything
            beyond the last stable offset.
        roll : bool
            First roll active segments that are not empty.
        dry_run : bool
            Do not change anything. The first pass of each partition is decided record by record,
            and further passes are only counted.
        threads : int, optional
            Number of cleaners that run concurrently and share the memory. In virtual time, they
            take turns.

        Returns
        -------
        CleanReport
            The statistics of each pass, and why the other partitions were not cleaned.
        """
        from logstore.cleaner.command import CleanCommand

        if not dry_run:
            self._refuse_if_read_only("clean")
        logs = []
        for tp in self.partitions(topic, partition):
            # the topic has been deleted in the meantime
            with suppress(UnknownTopicOrPartitionError):
                logs.append(self.manager.log(tp))
        options: dict[str, Any] = {"force": force, "roll": roll, "threads": threads}
        command = CleanCommand(self.cleaner, **options, progress=progress)
        return command.dry_run(logs) if dry_run else command.run(logs)

    def explain(
        self,
        topic: str | TopicPartition | None = None,
        partition: int | None = None,
        *,
        quick: bool = False,
        exact: bool = False,
        key: bytes | None = None,
        progress: ProgressListener | None = None,
    ) -> ExplainReport:
        """Return the conditions for cleaning each partition, and when they will be met.

        Parameters
        ----------
        key : bytes, optional
            Also return the records with this key, and the steps until they are removed.
        quick : bool
            Only read batch headers. Otherwise, the records of compacted partitions are read.
            Tombstones are counted, and partitions that are due are cleaned in a dry run. This finds
            damage that would stop a cleaning pass.
        exact : bool
            Also dry-run partitions that are not due, so that each verdict is exact.
        progress : callable, optional
            Called before each chunk of a dry run.
        """
        from logstore.analysis.explaining import explain

        partitions = self.partitions(topic, partition)
        return explain(self, partitions, quick=quick, exact=exact, key=key, progress=progress)

    def stats(
        self, topic: str | TopicPartition, partition: int = 0, *, top: int = 10
    ) -> PartitionStats:
        """Count the records of a partition, and how many of them are live.

        Parameters
        ----------
        top : int
            How many keys to list: those with the most records, and those with the most bytes.
        """
        from logstore.analysis.stats import partition_stats

        tp = self.log(topic, partition).topic_partition
        return partition_stats(self, tp, top=top)

    def erasure(
        self, topic: str | TopicPartition, key: bytes, partition: int | None = None
    ) -> ErasureReport:
        """Find all locations of a key's bytes, and when each of them can be removed.

        All files are read, even those that will be deleted. The partitions that contain the key are
        cleaned in a simulation, which requires as much memory as cleaning them.
        """
        from logstore.analysis.erasure import erasure

        name, number = topic_and_partition(topic, partition)
        return erasure(self, name, key, number)

    def fates(
        self,
        topic: str | TopicPartition,
        partition: int = 0,
        *,
        force: bool = False,
        roll: bool = False,
    ) -> PartitionFates:
        """Return the fate of each record in the next cleaning pass.

        `force` and `roll` are as in `clean`.
        """
        from logstore.analysis.fates import PartitionFates

        return PartitionFates(self.cleaner, self.log(topic, partition), force=force, roll=roll)

    @property
    def pool(self) -> CleanerPool | None:
        """The cleaner threads, or None if `background` is not set."""
        return self._pool

    def metrics(self) -> CleanerMetrics:
        """Return the metrics of Kafka's log cleaner.

        Metrics of cleaner threads are 0 if there are none.
        """
        from logstore.cleaner.pool.metrics import metrics_of

        return self._pool.metrics() if self._pool is not None else metrics_of(self.cleaner)

    @property
    @lasting
    def broker_config(self) -> BrokerConfig:
        """The effective settings, from the properties file and from changes made at run time."""
        return self.manager.broker_config

    def describe_broker_configs(self) -> dict[str, ConfigValue]:
        """Return the effective broker settings, with their origin, documentation and overrides.

        Keys without a value are omitted, such as the finer units of a duration.
        """
        return describe_broker_values(self.broker_config)

    def alter_broker_configs(
        self, configs: Mapping[str, object], *, cluster_wide: bool = False
    ) -> tuple[str, ...]:
        """Change broker settings at run time: the cleaner's, and the defaults of topics.

        The changes are stored, and take precedence over the properties file after a restart.

        Parameters
        ----------
        configs : mapping
            Broker keys and their values. None removes a value that was set with this method.
        cluster_wide : bool
            Set the default for all brokers. A value for a single broker takes precedence.

        Returns
        -------
        tuple of str
            Messages about old names that were translated.

        Raises
        ------
        InvalidConfigurationError
            Nothing was changed.
        """
        self._refuse_if_read_only("alter the broker")
        layer = Layer.CLUSTER if cluster_wide else Layer.BROKER
        return self.manager.topics.reconfigure(configs, layer)

    def _refuse_if_read_only(self, what: str) -> None:
        if self.read_only:
            raise InvalidConfigurationError(f"cannot {what}: the broker was opened read-only")


def _load_kernels() -> None:
    from logstore.record.preload import load_in_background  # imports NumPy

    load_in_background()
