"""Brokers with transactions for tests: a small state topic, kills, and visible records."""

from __future__ import annotations

from dataclasses import replace

from logstore.broker import Broker
from logstore.coordinator.transactions.coordinator import TransactionCoordinator
from logstore.record.control import end_txn_marker_of
from logstore.runtime import MemoryFileSystem, VirtualClock
from logstore.storage.log import Log
from logstore.types import TopicPartition
from tests.support.world.data_home import Home

COMMITTED = "read_committed"


class Bench:
    """A broker in virtual time whose process can end at any time.

    Parameters
    ----------
    fs, path : FileSystem, str
        Where it lives; fresh memory by default.
    state_partitions : int
        Partitions of `__transaction_state`; one keeps the files few.
    background : bool
        Let only the coordinator run in the background.
    """

    def __init__(
        self,
        fs=None,
        path="/data",
        *,
        clock=None,
        state_partitions=1,
        background=False,
        **options,
    ):
        self.clock = VirtualClock() if clock is None else clock
        self.fs = MemoryFileSystem(self.clock) if fs is None else fs
        self.path = path
        self.background = background
        self.options = options
        self.config = {"transaction_state_log_num_partitions": state_partitions}
        self.broker: Broker | None = None
        self.open()

    def open(self, **config) -> Broker:
        self.config.update(config)
        self.broker = Broker(self.path, fs=self.fs, clock=self.clock, **self.options)
        manager = self.broker.manager
        self.broker._coordinator = TransactionCoordinator(
            self.broker.runtime,
            manager,
            self.broker.groups,
            replace(manager.broker_config, **self.config),
        )
        if self.background:
            manager.start([self.broker.coordinator])
        return self.broker

    @property
    def coordinator(self) -> TransactionCoordinator:
        return self.broker.coordinator

    def kill(self) -> None:
        """End the process without a flush, a close or an abort."""
        for producer in self.broker._producers:
            own = producer._accumulator._own_scheduler
            if own is not None:
                own.shutdown()
        own = self.broker.groups.own_scheduler
        if own is not None:
            own.shutdown()
        Home.kill(self.broker.manager)

    def reopen(self, **config) -> Broker:
        self.kill()
        return self.open(**config)

    def transactional(self, transactional_id="x", **configs):
        """Return a transactional producer."""
        producer = self.broker.producer(transactional_id=transactional_id, **configs)
        producer.init_transactions()
        return producer

    def seen(self, topic="t", partition=0, isolation=COMMITTED) -> list[bytes | None]:
        """Return the values that a reader sees."""
        return [r.value for r in self.broker.read(topic, partition, isolation=isolation)]

    def log(self, topic="t", partition=0) -> Log:
        return self.broker.manager.log(TopicPartition(topic, partition))

    def state(self, transactional_id="x") -> str:
        return self.coordinator.transactions()[transactional_id].state.kafka_name


def markers(log: Log) -> list[tuple[int, int, int, str, int]]:
    """Return (offset, producer id, epoch, kind, coordinator epoch) of a log's markers."""
    result = []
    for batch in log.reader.batches(log.log_start_offset):
        marker = end_txn_marker_of(batch)
        if marker is not None:
            header = batch.header
            result.append(
                (
                    header.base_offset,
                    header.producer_id,
                    header.producer_epoch,
                    marker.control_type.name,
                    marker.coordinator_epoch,
                )
            )
    return result


def stamps(log: Log) -> list[tuple[int, int, int, int, bool]]:
    """Return (base offset, producer id, epoch, base sequence, transactional) of data batches."""
    return [
        (
            batch.header.base_offset,
            batch.header.producer_id,
            batch.header.producer_epoch,
            batch.header.base_sequence,
            batch.header.is_transactional,
        )
        for batch in log.reader.batches(log.log_start_offset)
        if not batch.header.is_control
    ]
