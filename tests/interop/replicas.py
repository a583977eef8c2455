"""Directories of a cluster's brokers, whose logs are replicas, for both loaders."""

from contextlib import suppress
from functools import partial
from pathlib import Path

from logstore import Cluster, LogStoreError, TopicPartition, VirtualClock
from logstore.record.batch import build_batch
from logstore.record.records import Record
from tests.interop.directories import TOPIC, WRITERS, Written
from tests.interop.stories import START_MS

TP = TopicPartition(TOPIC, 0)
CONFIG = {
    "cleanup.policy": "compact,delete",
    "segment.bytes": "900",
    "min.insync.replicas": "2",
    "delete.retention.ms": "1000",
    "retention.ms": "-1",
}


def _replica(broker: int, path: Path) -> Written:
    """Run a cluster through leader moves, power loss, divergence, deletion and cleaning."""
    clock = VirtualClock(START_MS)
    with Cluster(brokers=3, clock=clock, data_dir=path, seed=1) as cluster:
        cluster.create_topic(TOPIC, replication_factor=3, configs=CONFIG)
        for number in range(40):
            if number == 5:
                _transact(cluster, 7, commit=True)
                _transact(cluster, 8, commit=False)
            if number == 10:
                cluster.kill(0, power_loss=True)
            if number == 15:
                cluster.restart(0)
                clock.advance(seconds=1)
            if number == 20:  # records of the isolated leader are truncated
                cluster.disconnect({cluster.leader(TP)}, {0, 1, 2})
                cluster.append(TP, key=b"gone", value=b"x", acks=1)
                cluster.move_leader(TP, to=(cluster.leader(TP) + 1) % 3)
                cluster.heal()
            if number == 25:
                cluster.brokers[1].clean(TOPIC, force=True, roll=True)
            if number == 30:
                cluster.delete_records({TP: 9})
            value = None if number % 9 == 8 else b"%d" % number * (number % 13)
            codec = ("none", "gzip", "zstd")[number % 3]
            with suppress(LogStoreError):
                cluster.append(TP, key=b"%d" % (number % 7), value=value, compression=codec)
        clock.advance(seconds=60)
        cluster.brokers[2].clean(TOPIC, force=True)
        assert cluster.state(TP).isr == (0, 1, 2)
        now_ms = clock.now_ms()
    return Written(path / f"broker-{broker}", CONFIG, now_ms)


def _transact(cluster: Cluster, producer_id: int, *, commit: bool) -> None:
    record = Record(0, START_MS, b"t", b"of %d" % producer_id, ())
    data = build_batch(
        [record], producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    writer = cluster.brokers[cluster.leader(TP)].log(TP).writer
    writer.append_batches(data)
    writer.append_end_txn_marker(producer_id, 0, 0, commit=commit)


WRITERS |= {f"replica of broker {number}": partial(_replica, number) for number in range(3)}
