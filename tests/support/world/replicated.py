"""A partition that ends in a hole, on a broker or on every replica of a cluster."""

from __future__ import annotations

from collections.abc import Sequence

from logstore import Broker, Cluster, TopicPartition
from logstore.record.batch import build_batch
from logstore.record.records import Record
from logstore.types import AppendOrigin

TP = TopicPartition("t", 0)


class ReplicatedLog:
    """The partition `TP`, whose replicas all have the same log.

    Parameters
    ----------
    owner : Broker or Cluster
    brokers : sequence of Broker
        That have the replicas.
    """

    def __init__(self, owner: Broker | Cluster, brokers: Sequence[Broker]) -> None:
        self._owner = owner
        self._brokers = brokers
        if isinstance(owner, Cluster):
            owner.create_topic(TP.topic, replication_factor=len(brokers))
        else:
            owner.create_topic(TP.topic)

    @property
    def broker(self) -> Broker:
        """The leader's broker."""
        return self._brokers[self._owner.leader(TP) if isinstance(self._owner, Cluster) else 0]

    def batch(self, base: int, offsets: Sequence[int], last_offset: int) -> None:
        """Append a batch with a record at each of some offsets, under a key of its own."""
        records = [Record(offset, 1000, b"%d" % offset, b"v") for offset in offsets]
        data = build_batch(
            records, base_offset=base, last_offset=last_offset, partition_leader_epoch=0
        )
        self.broker.log(TP).writer.append_batches(data, AppendOrigin.REPLICATION)
        if isinstance(self._owner, Cluster):
            assert self._owner.run_until(lambda: self._have_all(last_offset + 1), timeout=60_000)

    def _have_all(self, log_end_offset: int) -> bool:
        return all(each.log(TP).log_end_offset == log_end_offset for each in self._brokers)

    def bare_end(self, offset: int) -> None:
        """Make the log end at an offset after a hole without a batch."""
        for broker in self._brokers:
            broker.log(TP).writer.roll(offset)

    def settle(self) -> None:
        """Wait until readers see everything up to the log end."""
        for broker in self._brokers:
            log = broker.log(TP)
            log.offsets.set_high_watermark(log.log_end_offset)
