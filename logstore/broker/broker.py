"""The broker: topics, produce, consume and clean over the logs of data directories.

A facade that composes the log manager and the cleaner; it holds no rule of its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count, islice
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Self, cast

from logstore.broker.setup import (
    background_threads,
    directories_of,
    disk_of,
    on_damage_of,
    resize_threads,
    runtime_of,
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
from logstore.faults.rules import DISK_KINDS, REQUEST_KINDS, Call, FaultRule, Faults
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
    from ssl import SSLContext

    from logstore.analysis.erasure import ErasureReport
    from logstore.analysis.fates import PartitionFates
    from logstore.analysis.preview import Preview
    from logstore.analysis.reports import CleanReport, ExplainReport, RetainReport
    from logstore.analysis.stats import PartitionStats
    from logstore.broker.doors import Closing, Page
    from logstore.broker.snapshots import Snapshot
    from logstore.cleaner.command import ProgressListener
    from logstore.cleaner.manager import LogCleanerManager
    from logstore.cleaner.pool.metrics import CleanerMetrics
    from logstore.cleaner.pool.pool import CleanerPool
    from logstore.clients.admin_client import AdminClient
    from logstore.clients.consumer import Consumer
    from logstore.clients.producer import Producer
    from logstore.clients.results import (
        AlterReplicaLogDirsResult,
        DeleteRecordsResult,
        OffsetAndTimestamp,
    )
    from logstore.clients.writer import AppendedRange, BatchWriter
    from logstore.coordinator.groups.coordinator import GroupCoordinator
    from logstore.coordinator.transactions.coordinator import TransactionCoordinator
    from logstore.faults.crash import CrashMode
    from logstore.manager.directories.directory import ShownFolder
    from logstore.manager.opening import LoadListener
    from logstore.security.authorizer import Authorizer
    from logstore.security.sasl import Credentials
    from logstore.storage.log.drafts import AppendInfo
    from logstore.storage.log.log import Log
    from logstore.storage.log.reader import ListedOffset
    from logstore.wire.limits import Limits
    from logstore.wire.listener import Listener
    from logstore.wire.nodes import Nodes
    from logstore.wire.settings import ListenerSettings
    from logstore.wire.versions import Versions


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # Covariant, so that whoever takes a Broker takes one on any clock.
    ClockT = TypeVar("ClockT", bound=Clock, default=Clock, covariant=True)
else:
    from typing import TypeVar  # which knows no default before Python 3.13

    ClockT = TypeVar("ClockT", bound=Clock, covariant=True)

_new = tuple.__new__  # see `logstore.storage.log.drafts`


class Broker(Generic[ClockT]):
    """A single-node broker in this process, on the clock that it is given.

    Parameters
    ----------
    data_dir : path or sequence of paths, optional
        Kafka log directories, created when missing. None keeps everything in memory. Relative
        paths are resolved at once, unless `fs` is given.
    clock : Clock, optional
        Wall and monotonic time; the machine's by default, `VirtualClock()` for tests.
    broker_config : mapping or BrokerConfig, optional
        Kafka's broker properties; they give topics their defaults. Keys of Kafka's without a
        meaning here are accepted, unknown ones refused.
    read_only : bool
        Open without changing a byte: recovery is computed in memory and reported.
    seed : int, optional
        Makes everything random repeatable (roll jitter, the cleaner's hash key).
    fs : FileSystem, optional
        Other files than the disk's or fresh memory.
    background : bool
        Run Kafka's housekeeping (retention, flushes, checkpoints, removal of deleted files) on
        its intervals, and the pool of cleaners: in threads, or with a `VirtualClock` inside
        `clock.advance(...)`. Without it nothing happens that is not asked for.
    on_load : callable, optional
        Told of every partition that is opened because its directory was not closed cleanly.
    on_damage : str
        What is done about damage that valid batches lie behind. `recover` cuts the log there as
        Kafka does, with a warning that says what was lost; `refuse` refuses a partition that would
        be cut below its recovery point, or without one, and changes nothing; with `read_only`,
        `pass_over` leaves out what is damaged, tells it in `Log.damages`, and serves the rest.
    shown : ShownFolder, optional
        With `read_only`, the only folder of `data_dir` that is looked at, whatever its name.
    metadata_log : bool
        With `read_only`, have the log of a KRaft node, `__cluster_metadata-0`, as a partition.
    disk_faults : bool, optional
        Whether its disk can be made to fail (`fail`) and to forget (`crash`), for which each file
        operation takes a little longer. By default in memory and on a virtual clock, unless `fs`
        is given.
    replicated : bool
        Whether its logs are replicas, as those of a `Cluster`'s brokers: what they have to say of
        leaders is told by somebody else, and until then nobody writes to them.

    Attributes
    ----------
    faults : Faults
        The rules in force, in the order in which `fail` made them; `clear()` ends them.

    Raises
    ------
    InvalidConfigurationError
        A property is wrong or unknown, or with `read_only` a directory is missing.
    KafkaStorageError
        A data directory is in use by another process, or the first one cannot be read.
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
        shown: ShownFolder | None = None,
        metadata_log: bool = False,
        disk_faults: bool | None = None,
        replicated: bool = False,
    ) -> None:
        # Without a clock of its own it is a Broker[Clock], whose clock says no more of itself.
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
        self._disk = None if read_only or not disk_faults else disk_of(fs, self.faults)
        fs = fs if self._disk is None else self._disk
        threads = background_threads(broker_config)
        self.runtime = runtime_of(self.clock, fs, seed, read_only=read_only, threads=threads)
        self.manager = LogManager(
            self.runtime,
            directories_of(data_dir, absolute=is_disk),
            broker_config,
            read_only=read_only,
            on_load=on_load,
            faults=self.faults,
            replicated=replicated,
            on_damage=on_damage_of(on_damage, read_only=read_only),
            shown=shown,
            metadata_log=metadata_log,
        )
        self._replicated = replicated
        # That of the manager lies over it what was changed in earlier runs.
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
        self._listeners: list[Closing] = []
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
        self._groups = GroupCoordinator(self.runtime, self.manager)
        self.manager.start(
            [Housekeeping(self.manager), self._groups, self.coordinator, cleaner, self._pool]
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        said = [directory.path for directory in self.manager.directories]
        if self.read_only:
            said.append("read-only")
        if self.manager.lifetime.is_over:
            said.append("closed")
        return f"Broker({', '.join(said)})"

    def __del__(self) -> None:
        """Tell of a broker that was dropped while threads work for it."""
        # What `__init__` refused has no manager.
        manager = getattr(self, "manager", None)
        if manager is None or manager.lifetime.is_over:
            return
        schedulers = [manager.runtime.scheduler]
        if self._groups is not None and self._groups.own_scheduler is not None:
            schedulers.append(self._groups.own_scheduler)
        if any(each.is_concurrent and each.is_started for each in schedulers):
            warnings.warn(
                f"{self!r} was never closed, and its threads go on: use it in a with",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Broker cannot be pickled or copied: it has files open and a directory locked; give"
            " the other process the path of a data directory that this one has closed"
        )

    def close(self) -> None:
        """Flush, mark and close everything; closing twice is allowed.

        Everything else that is called afterwards, of the broker and of what was got from it,
        raises `IllegalStateError`. So it does in a forked child, where `close` does nothing: the
        files are the parent's.

        Raises
        ------
        KafkaStorageError
            See `LogManager.close`.
        IllegalStateError
            The caller is a `progress` listener of this broker's `clean`, or a signal handler that
            runs while this thread changes a log. Nothing was closed.
        """
        if self._cleaner is not None and not self.manager.lifetime.is_over:
            self._cleaner.check_not_driving()
            self.manager.check_not_inside()
        try:
            for listener in self._listeners:
                listener.close()
            for consumer in self._consumers.copy():
                consumer._close()  # also one that another thread is using
            for producer in self._producers.copy():
                producer.close()
        finally:
            self.manager.close()

    # -- time in hand --------------------------------------------------------------------

    def run_until(
        self,
        condition: Callable[[], bool] | datetime | int,
        timeout: timedelta | float | None = None,
    ) -> bool:
        """Let time pass, and whatever falls due on the way be done, until something holds.

        Parameters
        ----------
        condition : callable, datetime or int
            What is to hold, asked after each moment at which something was done; or a wall time,
            as a datetime with a time zone or in Unix ms.
        timeout : timedelta or ms, optional
            After which to give up; by default never.

        Returns
        -------
        bool
            False if it did not come to hold in time.

        Raises
        ------
        Deadlock
            In virtual time, if nothing is due any more that could bring it about. While the broker
            listens, the call blocks instead, since a client may bring it about.
        """
        from logstore.broker.waiting import run_until

        return run_until(self.runtime, condition, timeout)

    def next_event(self) -> int | None:
        """Move virtual time to the next moment at which something is due, and let it be done.

        Returns
        -------
        int or None
            The new wall time in Unix ms; None, and time stays, if nothing is due.
        """
        from logstore.broker.waiting import next_event

        return next_event(self.runtime)

    def snapshot(self) -> Snapshot[Broker[VirtualClock]]:
        """Return what a broker in memory holds now, and its time, to go on from again and again.

        Raises
        ------
        InvalidConfigurationError
            It is not in memory, or not on a virtual clock.
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
        """Return another broker that goes on from here, on a clock of its own; see `Snapshot`."""
        return self.snapshot().broker()

    # -- faults --------------------------------------------------------------------------

    def fail(
        self,
        kind: str,
        *,
        error: str | int | type[Exception] | None = None,
        delay: timedelta | float | None = None,
        nth: int | None = None,
        times: int | None = None,
        topic: str | TopicPartition | None = None,
        partition: int | None = None,
        when: Callable[[Call], bool] | None = None,
        after: bool = False,
    ) -> FaultRule:
        """Let requests be refused, be late or lose their answer, or let the disk fail.

        All rules are in `broker.faults`; they end with `remove()`, with the `with` that they are
        used in, with `broker.faults.clear()`, and with the broker.

        Parameters
        ----------
        kind : str
            A request: `append` (a batch for a partition, whoever sends it), `fetch` (of a
            partition), `commit` (of a group's offsets) or `join` (of a group, to which a new
            member has to ask twice). Or an operation of the disk: `write`, `read`, `fsync` (of a
            file or a directory), `rename`, or `swap`, which is a rename that puts a cleaned
            segment in the place of others.
        error : str, int or exception class, optional
            Of a request Kafka's name of an error, or its class. Clients ask again after one that
            passes, as Kafka's do, on the clock; `append` and `read` raise any. Of the disk the
            name or number of an `errno`, by default `EIO`: the data directory goes offline, and
            all use of it is refused with `KafkaStorageError` until the broker is opened again.
            `append` and `fetch` with an `errno` are the writes and reads of `.log` files.
        delay : timedelta or ms, optional
            Time that passes before: virtual time moves on, other time is waited for.
        nth, times, topic, partition, when
            Which calls are struck; see `Faults.add`.
        after : bool
            The append, commit or join is done, and its answer lost. Otherwise nothing is changed.

        Returns
        -------
        FaultRule
            Counts its `hits`.

        Raises
        ------
        InvalidConfigurationError
            No such kind or error (the message has the nearest), nothing that would happen, or a
            fault of a disk that was opened without `disk_faults`.
        """
        rule = self.faults.add(
            kind,
            error=error,
            delay=delay,
            nth=nth,
            times=times,
            topic=topic,
            partition=partition,
            when=when,
            after=after,
        )
        if rule.is_disk and self._disk is None:
            rule.remove()
            self._refuse_without_disk_faults(f"{rule.kind} cannot fail")
        return rule

    def crash(self, mode: CrashMode | None = None) -> Self:
        """Lose power: whatever was not synced is gone. Returns a broker opened on what is left.

        This broker, and all that was got from it, refuses any further use. The other one has its
        clock, directories and settings as of the start, and recovers as Kafka does; rules and
        overrides that end with a broker are gone. Records that are not flushed are not durable in
        a broker alone, whatever `acks` says: let the topic have `flush.messages`, or close the
        broker, for those that are to stay. For the end of a process, which loses nothing that was
        written, there is `fork`.

        Parameters
        ----------
        mode : CrashMode, optional
            What becomes of what was not synced, if `fs` is a `FaultyFileSystem`.

        Raises
        ------
        InvalidConfigurationError
            It was opened without `disk_faults`, or read-only, or cannot obey the mode.
        KafkaStorageError
            The disk, a real one, does not let what was not synced be undone.
        IllegalStateError
            The caller is a `progress` listener of this broker's `clean`.
        """
        from logstore.broker.power import lose_power

        if self._disk is None:
            self._refuse_without_disk_faults("a loss of power has no meaning")
        if self._cleaner is not None:
            self._cleaner.check_not_driving()
        # Asked for before the end, after which everything but the directories' names is refused.
        rng, background = self.runtime.rng, self._pool is not None
        seed = rng.getrandbits(64) if is_repeatable(rng) else None
        paths = [directory.path for directory in self.manager.directories]
        fs = lose_power(self._disk, mode, self.manager, self._listeners, self._clients())
        recovered = Broker(
            paths,
            clock=self.clock,
            broker_config=self._first_config,
            seed=seed,
            fs=fs,
            background=background,
            on_load=self._on_load,
            disk_faults=True,
            replicated=self._replicated,
        )
        return cast("Self", recovered)  # on the same kind of clock

    def kill(self) -> None:
        """End as a killed process does: nothing is flushed or told, and what was written stays.

        Any further use is refused. A broker that is opened on its files recovers.

        Raises
        ------
        IllegalStateError
            The caller is a `progress` listener of this broker's `clean`.
        """
        from logstore.broker.power import end_process

        if self._cleaner is not None and not self.manager.lifetime.is_over:
            self._cleaner.check_not_driving()
        end_process(self.manager, self._listeners, self._clients())

    def lose_power(self) -> None:
        """End as in `crash`, and open nothing: the files are left as last synced.

        Raises as `crash` does.
        """
        from logstore.broker.power import lose_power

        if self._disk is None:
            self._refuse_without_disk_faults("a loss of power has no meaning")
        if self._cleaner is not None:
            self._cleaner.check_not_driving()
        lose_power(self._disk, None, self.manager, self._listeners, self._clients())

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
        """Create a topic; a folder of that name copied from a broker is taken over as it is.

        Parameters
        ----------
        configs : mapping, optional
            Kafka's keys. Times also as `timedelta`, or `7d`, `12h`, `1d12h`; sizes as `512KiB`,
            `1GiB`.
        replication_factor : int
            1, or -1 for the default, which is 1.

        Raises
        ------
        InvalidTopicError, TopicAlreadyExistsError, InvalidConfigurationError
        InvalidReplicationFactorError
            There is one broker.
        """
        self._refuse_if_read_only("create a topic")
        if replication_factor not in (1, -1):
            raise InvalidReplicationFactorError(
                f"topic '{name}' cannot have {replication_factor} replicas: there is one broker"
            )
        return self.manager.topics.create(name, partitions, configs or {})

    def create_partitions(self, topic: str, total: int) -> Topic:
        """Let a topic have at least the partitions 0 to `total` - 1; no data move.

        Raises
        ------
        UnknownTopicOrPartitionError
        """
        self._refuse_if_read_only("create partitions")
        return self.manager.topics.create_partitions(topic, total)

    def topics(self) -> list[Topic]:
        """Return all topics by name, adopted ones included."""
        return self.manager.catalog.topics()

    def topic(self, name: str | TopicPartition) -> Topic:
        """Return one topic.

        Raises
        ------
        UnknownTopicOrPartitionError
        """
        return self.manager.catalog.topic(topic_and_partition(name, None)[0])

    def describe_configs(self, topic: str | TopicPartition) -> dict[str, ConfigValue]:
        """Return each effective config of a topic with its origin and meaning."""
        name, _ = topic_and_partition(topic, None)
        return describe(self.manager.catalog.overrides(name), self.broker_config)

    def override_configs(self, topic: str, configs: Mapping[str, object]) -> None:
        """Lay configs over a topic's own until this broker closes; nothing is stored."""
        self.manager.topics.override(topic, configs)

    def alter_configs(
        self, topic: str, configs: Mapping[str, object], *, unset: Iterable[str] = ()
    ) -> tuple[str, ...]:
        """Change a topic's own configuration, stored and in force from the next use on.

        Parameters
        ----------
        configs : mapping
            Keys to set, with values as `create_topic` takes them.
        unset : iterable of str
            Keys to give back to the broker's defaults.

        Returns
        -------
        tuple of str
            Notes on old names that were understood.

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
        set: Mapping[str, object] | None = None,  # as the command line calls it
        unset: Iterable[str] = (),
        quick: bool = False,
        read_bytes_max: int | None = None,
        partitions_max: int | None = None,
        cluster_wide: bool = False,
    ) -> Preview:
        """Tell what `alter_configs` or `alter_broker_configs` would do, and change nothing.

        For each partition: the decision about its cleaning before and after, what the next cleaning
        would remove, what retention would remove, and until when.

        Parameters
        ----------
        topic, partition : str, int, optional
            None stands for the broker: then `set` and `unset` are broker keys, and the partitions
            are those that would go by other settings.
        set, unset
            As `alter_configs` takes them; without either it is told what is as it is.
        quick : bool
            Read batch headers only, and run no cleaning.
        read_bytes_max : int, optional
            Bytes that may be read to run cleanings; a partition that takes more is told without
            (`PartitionPreview.unread`). By default whatever it takes.
        partitions_max : int, optional
            How many partitions are looked at; the others are counted.
        cluster_wide : bool
            See `alter_broker_configs`.

        Raises
        ------
        UnknownTopicOrPartitionError, InvalidConfigurationError
            As the change itself would.
        """
        from logstore.analysis import preview

        name, number = topic_and_partition(topic, partition)
        if name is None:
            layer = Layer.CLUSTER if cluster_wide else Layer.BROKER
            changes = changes_of(set or {}, unset)
            supposed = preview.suppose_broker(self.manager, changes, layer)
        else:
            supposed = preview.suppose_topic(self.manager, name, set or {}, unset)
        return preview.preview(
            self,
            supposed,
            name,
            number,
            quick=quick,
            read_bytes_max=read_bytes_max,
            partitions_max=partitions_max,
        )

    def delete_topic(self, topic: str) -> None:
        """Delete a topic; its files go after `file.delete.delay.ms`, or when the broker closes.

        Raises
        ------
        UnknownTopicOrPartitionError
        """
        self._refuse_if_read_only("delete a topic")
        self.manager.topics.delete(topic)

    def partitions(
        self, topic: str | TopicPartition | None = None, partition: int | None = None
    ) -> list[TopicPartition]:
        """Return the partitions of one or all topics.

        Raises
        ------
        UnknownTopicOrPartitionError
        """
        name, number = topic_and_partition(topic, partition)
        return self.manager.catalog.partitions(name, number)

    def log(self, topic: str | TopicPartition, partition: int = 0) -> Log:
        """Return a partition's log."""
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
        """Append one record as a batch of its own.

        Parameters
        ----------
        value : bytes or None
            None is a tombstone.
        partition : int, optional
            By Kafka's default partitioner when not given.
        timestamp : int, optional
            Unix ms; the clock's by default.
        headers : iterable of pairs, or mapping
            Names and values in order; a value may be None.

        Raises
        ------
        RequestError
            The log is unchanged.
        IllegalStateError
            Called by a signal handler or a listener while this thread changes the log; nothing was
            appended.
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
            `(key, value[, timestamp[, headers]])` tuples, mappings with those names,
            `NewRecord`s or `ConsumerRecord`s. Read once, a batch a partition at a time.
        batch_records : int, optional
            Records a batch; by default a batch closes at about 16 KiB, as a producer's does.

        Returns
        -------
        list of AppendedRange
            One a partition, in order of partition.

        Raises
        ------
        RequestError
            A batch was refused; the batches before it stay.
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
        """Append a ready-made batch as a client does that speaks Kafka's protocol.

        Data of a transaction are taken only if the coordinator knows the transaction, and the
        partition is part of it. `broker.log(…).writer.append_batches(…)` takes what it is told.

        Parameters
        ----------
        data : bytes
            One batch of magic 2, with base offset 0.
        transactional_id : str, optional
            Of the producer; that which belongs to the batch's producer id by default.

        Raises
        ------
        InvalidTxnStateError, InvalidProducerEpochError, InvalidProducerIdMappingError
            The batch is not part of an open transaction of its producer.
        RequestError, CorruptRecordError, UnsupportedFormatError
            The log is unchanged in any case.
        """
        from logstore.coordinator.transactions.produce import append_as_client

        self._refuse_if_read_only("append")
        tp = TopicPartition(*topic_and_partition(topic, partition))
        return append_as_client(self.manager, self.coordinator, tp, data, transactional_id)

    def batch_writer(
        self, topic: str, *, compression: str = "none", batch_records: int | None = None
    ) -> BatchWriter:
        """Return what `append_many` fills, for callers that append as they go.

        Its batches must be finished, with `BatchWriter.finish`, before the broker closes.
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

    def producer(self, **configs: Any) -> Producer:
        """Return a producer of kafka-python's shape; see `Producer`. It closes with the broker."""
        from logstore.clients.producer import Producer

        self._refuse_if_read_only("produce")
        closed = self._producers.remove
        configs = self._with_client_id("producer", configs)
        producer = Producer(self.runtime, self.manager, self.coordinator, configs, closed)
        self._producers.append(producer)
        return producer

    def consumer(self, *topics: str, **configs: Any) -> Consumer:
        """Return a consumer of kafka-python's shape; see `Consumer`. It closes with the broker.

        That of a read-only broker reads from what its group has committed, and commits nothing.
        """
        from logstore.clients.consumer import Consumer

        closed = self._consumers.remove
        configs = self._with_client_id("consumer", configs)
        consumer = Consumer(self.runtime, self.manager, self.groups, topics, configs, closed)
        self._consumers.append(consumer)
        return consumer

    def _with_client_id(self, kind: str, configs: dict[str, Any]) -> dict[str, Any]:
        # Counted by broker, not by process: ids are stored, and the same seed makes the same bytes.
        if configs.get("client_id"):
            return configs
        return {**configs, "client_id": f"logstore-{kind}-{next(self._client_numbers)}"}

    def admin(self, **configs: Any) -> AdminClient:
        """Return an admin client of kafka-python's shape; see `AdminClient`.

        That of a read-only broker lists and describes.
        """
        from logstore.clients.admin_client import AdminClient

        return AdminClient(self.manager, self.groups, configs)

    def listen(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        sasl: Credentials | Mapping[str, str] | None = None,
        tls: SSLContext | Literal["generate"] | None = None,
        authorizer: Authorizer | None = None,
        auto_create: bool = True,
        restamp: bool = False,
        limits: Limits | None = None,
        versions: Mapping[str, Versions] | None = None,
    ) -> Listener:
        """Serve Kafka's wire protocol at an address, in a thread; see `Listener`.

        It closes with the broker, or at the end of its `with`.

        Parameters
        ----------
        port : int
            0 takes one that is free: `Listener.bootstrap` tells it.
        sasl, tls, authorizer, auto_create, restamp, limits, versions
            See `logstore.wire.settings.ListenerSettings`.

        Raises
        ------
        InvalidConfigurationError
            Nobody can listen at this address, or the data directories are another broker's than
            `node.id` says.
        """
        from logstore.wire.settings import ListenerSettings
        from logstore.wire.versions import SERVED

        settings = ListenerSettings(
            sasl=sasl,
            tls=tls,
            authorizer=authorizer,
            auto_create=auto_create,
            restamp=restamp,
            limits=limits,
            versions=SERVED if versions is None else versions,
        )
        return self.open_listener(host, port, settings)

    def open_listener(
        self,
        host: str,
        port: int,
        settings: ListenerSettings,
        *,
        nodes: Nodes | None = None,
        coordinator: TransactionCoordinator | None = None,
    ) -> Listener:
        """Serve at an address as one of the nodes of a cluster; see `listen`.

        Parameters
        ----------
        nodes : Nodes, optional
            The cluster; by default this broker is alone.
        coordinator : TransactionCoordinator, optional
            That of the cluster, and with it that of groups; by default this broker's.
        """
        from logstore.record.ahead import load_beside
        from logstore.wire.listener import Listener
        from logstore.wire.service import ServedBroker

        self._refuse_if_read_only("listen")
        coordinator = self.coordinator if coordinator is None else coordinator
        parts = ServedBroker(
            self.runtime,
            self.manager,
            coordinator.groups,
            coordinator,
            works_in_memory=self._works_in_memory,
            nodes=nodes,
        )
        coordinator.groups.use_system_clock()
        listener = Listener(parts, host, port, settings)
        self._listeners.append(listener)
        load_beside()
        return listener

    def ui(self, host: str = "127.0.0.1", port: int = 0, **options: Any) -> Page:
        """Serve a page that shows this broker in a browser, and steers it; see `logstore.ui`.

        It closes with the broker, or at the end of its `with`. Whoever has the token that its
        address ends with may do everything, unless an authorizer is given; what was opened
        read-only, or is one of a cluster, is only shown.

        Parameters
        ----------
        port : int
            0 takes one that is free: `url` tells it.
        **options
            `token`, `authorizer` and `principal`, as `logstore.ui.server.Ui` takes them.

        Raises
        ------
        InvalidConfigurationError
            Nobody can listen at this address, or the extra `ui` is not installed.
        """
        from logstore.broker.doors import find_door

        page: Page = find_door("ui")(self, host, port, **options)
        self._listeners.append(page)
        return page

    @property
    def is_replicated(self) -> bool:
        """Whether its logs are replicas of a cluster, whose controller decides about them."""
        return self._replicated

    @property
    def coordinator(self) -> TransactionCoordinator:
        """The transaction coordinator over this broker's logs."""
        if self._coordinator is None:
            from logstore.coordinator.transactions.coordinator import TransactionCoordinator

            self._refuse_if_read_only("coordinate transactions")
            self._coordinator = TransactionCoordinator(
                self.runtime, self.manager, groups=self.groups
            )
        return self._coordinator

    @property
    def groups(self) -> GroupCoordinator:
        """The group coordinator over this broker's logs."""
        if self._groups is None:
            from logstore.coordinator.groups.coordinator import GroupCoordinator

            self._groups = GroupCoordinator(self.runtime, self.manager)
            self.manager.services.add(self._groups)
        return self._groups

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
        """Yield records in offset order; holes are passed over.

        Parameters
        ----------
        offset : int or str, optional
            First offset wanted, inclusive; `earliest`, the log start, by default, or `latest`.
        until : int or str, optional
            Exclusive; the end of what `isolation` allows by default, as with `latest`.
        isolation : str
            `read_uncommitted`, or `read_committed`: without what transactions have not committed.
        key : bytes, optional
            Only records of this key.

        Raises
        ------
        OffsetOutOfRangeError
            `offset` is outside the log; raised at the first step.
        CorruptRecordError
            A batch is damaged; names file and position.
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
        """Return the value of each key that is not deleted, under the topic's strategy."""
        from logstore.clients.table import values_per_key
        from logstore.storage.log.reader import Isolation

        config = self.manager.catalog.config(topic_and_partition(topic, None)[0])
        logs = [self.manager.log(tp) for tp in self.partitions(topic)]
        return values_per_key(logs, config, Isolation(isolation), self.faults)

    def list_offset(self, topic: str, partition: int, target: int) -> ListedOffset | None:
        """Answer a ListOffsets query; None if no record answers.

        Parameters
        ----------
        target : int
            A time in Unix ms, or one of Kafka's targets: -1 latest, -2 earliest, -3 that of the
            largest timestamp.
        """
        return self.log(topic, partition).reader.offset_for_timestamp(target)

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Find the first record at or after a time in each partition; None where there is none."""
        from logstore.clients import partition_requests

        return partition_requests.offsets_for_times(self.manager, times)

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start of each partition."""
        return {tp: self.manager.log(tp).log_start_offset for tp in partitions}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermark of each partition: the offset the next record gets."""
        return {tp: self.manager.log(tp).high_watermark for tp in partitions}

    # -- moving and deleting -------------------------------------------------------------

    def alter_replica_log_dirs(
        self, assignments: Mapping[TopicPartition, str | PathLike[str]]
    ) -> dict[TopicPartition, AlterReplicaLogDirsResult]:
        """Move partitions to other data directories; appends to one wait until it is there.

        One result a partition, in the order given; an error of one hides no other's result.
        """
        from logstore.clients import partition_requests

        self._refuse_if_read_only("move partitions")
        return partition_requests.alter_replica_log_dirs(self.manager, assignments)

    def delete_records(
        self, before: Mapping[TopicPartition, int | str]
    ) -> dict[TopicPartition, DeleteRecordsResult]:
        """Delete the records below an offset in each partition (KIP-107).

        `before` has the exclusive ends of what goes; `latest` or -1 is the high watermark. One
        result a partition, in the order given; an error of one hides no other's result.
        """
        from logstore.clients import partition_requests

        self._refuse_if_read_only("delete records")
        ends = {tp: before_offset(value) for tp, value in before.items()}
        return partition_requests.delete_records(self.manager, ends)

    def first_offset_at(self, topic: str, partition: int, timestamp: int) -> int:
        """Return the offset before which every record is older than `timestamp`.

        That of the first record at or after it, else the high watermark: what to give
        `delete_records` to delete by time.
        """
        return self.log(topic, partition).reader.first_offset_at(timestamp)

    def retain(
        self,
        topic: str | TopicPartition | None = None,
        partition: int | None = None,
        *,
        dry_run: bool = False,
    ) -> RetainReport:
        """Run retention once over the partitions of one or all topics.

        Parameters
        ----------
        dry_run : bool
            Only decide.

        Returns the rule that removes each segment, or the reason why it stays.
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
        """The cleaner over this broker's logs."""
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
        """Compact what is due, until nothing is; or with `force` whatever can be cleaned.

        Parameters
        ----------
        topic, partition : str, int, optional
            All partitions by default.
        force : bool
            Ignore dirty ratio and compaction lags, and clean up to the first uncleanable
            offset in as many passes as the map needs; an empty dirty range still rewrites the
            clean section once. Never crosses the active segment or the last stable offset.
        roll : bool
            Roll non-empty active segments first.
        dry_run : bool
            Change nothing: the first pass over each partition is decided to the last record, the
            further ones are counted.
        threads : int, optional
            So many clean side by side and share the memory; in virtual time one after another.

        Returns
        -------
        CleanReport
            The numbers of every pass, and why the other partitions were not cleaned.
        """
        from logstore.analysis.reports import CleanReport
        from logstore.cleaner.command import CleanCommand

        if not dry_run:
            self._refuse_if_read_only("clean")
        logs = []
        for tp in self.partitions(topic, partition):
            with suppress(UnknownTopicOrPartitionError):  # deleted meanwhile
                logs.append(self.manager.log(tp))
        options: dict[str, Any] = {"force": force, "roll": roll, "threads": threads}
        command = CleanCommand(self.cleaner, **options, progress=progress)
        outcome = command.rehearse(logs) if dry_run else command.run(logs)
        return CleanReport.of(outcome, dry_run=dry_run)

    def explain(
        self,
        topic: str | TopicPartition | None = None,
        partition: int | None = None,
        *,
        quick: bool = False,
        key: bytes | None = None,
    ) -> ExplainReport:
        """Say what stands between each partition and its cleaning, and until when.

        Parameters
        ----------
        key : bytes, optional
            Tell also what becomes of this key, and what must happen first.
        quick : bool
            Read batch headers only. Without it the records of compacted partitions are read: their
            tombstones are counted, and a partition that will be cleaned is cleaned as in a dry run,
            so that damage which would stop the cleaning is met now.
        """
        from logstore.analysis.explaining import explain

        return explain(self, self.partitions(topic, partition), quick=quick, key=key)

    def stats(
        self, topic: str | TopicPartition, partition: int = 0, *, top: int = 10
    ) -> PartitionStats:
        """Count what lies in a partition, record by record, and what of it lives.

        Parameters
        ----------
        top : int
            How many of the keys with the most records, and with the most bytes, are named.
        """
        from logstore.analysis.stats import partition_stats

        tp = self.log(topic, partition).topic_partition
        return partition_stats(self, tp, top=top)

    def erasure(
        self, topic: str | TopicPartition, key: bytes, partition: int | None = None
    ) -> ErasureReport:
        """Find every place where the bytes of a key lie, and when each can vanish.

        All files are read as they lie, those that wait for their removal too. Memory: what a
        cleaning keeps of the partitions that have the key, since their future is rehearsed.
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
        """Tell record by record what the next cleaning does; `force` and `roll` as in `clean`."""
        from logstore.analysis.fates import PartitionFates

        return PartitionFates(self.cleaner, self.log(topic, partition), force=force, roll=roll)

    @property
    def has_pool(self) -> bool:
        """Whether cleaners work in the background."""
        return self._pool is not None

    @property
    def pool(self) -> CleanerPool:
        """The cleaners that work in the background; refused if the broker has none."""
        if self._pool is None:
            raise InvalidConfigurationError("no cleaners run: the broker has no background work")
        return self._pool

    def metrics(self) -> CleanerMetrics:
        """Return Kafka's gauges of the cleaner; what only a pool knows is 0 without one."""
        from logstore.cleaner.pool.metrics import metrics_of

        return self._pool.metrics() if self._pool is not None else metrics_of(self.cleaner)

    @property
    @lasting
    def broker_config(self) -> BrokerConfig:
        """The settings in force: the broker's file, and what was changed while it ran."""
        return self.manager.broker_config

    def describe_broker_configs(self) -> dict[str, ConfigValue]:
        """Return each effective setting of the broker with its origin, meaning and layers.

        Keys that have no value of their own, as the finer units of a time, are not among them.
        """
        return describe_broker_values(self.broker_config)

    def alter_broker_configs(
        self, configs: Mapping[str, object], *, cluster_wide: bool = False
    ) -> tuple[str, ...]:
        """Change broker settings while it runs, and for good: the cleaner's, and topics' defaults.

        They go before what the broker's file says, now and at the next start.

        Parameters
        ----------
        configs : mapping
            Broker keys and values; None takes back what was set this way.
        cluster_wide : bool
            Set what holds for every broker of the cluster that says nothing of its own.

        Returns
        -------
        tuple of str
            Notes on old names that were understood.

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
