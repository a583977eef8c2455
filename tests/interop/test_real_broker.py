"""Whole brokers: verification of their files after a stop or a kill, and exchange of files."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import closing
from itertools import pairwise

import kafka
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from kafka.admin import NewTopic

from logstore import Broker, VirtualClock
from logstore.analysis.salvage import salvage
from logstore.inspect.check import INFO, CheckCounts, Checker
from logstore.names import METADATA_LOG_DIR
from logstore.runtime import DiskFileSystem, ReadOnlyFileSystem
from logstore.testing import holes
from tests.interop.conftest import unavailable
from tests.support.interop.judge import RELEASES, Unavailable
from tests.support.interop.real_broker import RealBroker, class_path, java

pytestmark = pytest.mark.interop

LEFT_BEHIND = {
    "leftover_cleaned",
    "leftover_swap",
    "leftover_deleted",
    "leftover_tmp",
    "leftover_folder",
    # Topics whose directories await deletion.
    "checkpoint_unknown_partition",
    # A log start that delete-records raised and that a kill reverted.
    "epoch_missing",
}
"""Findings about files that a broker was about to remove, or removes when it starts."""


@pytest.fixture(params=RELEASES, ids=lambda release: release.profile)
def broker(request, scratch):
    """A broker that has not been started."""
    try:
        broker = RealBroker.of(request.param, scratch)
    except Unavailable as error:
        unavailable(error)
    yield broker
    broker.kill()


def checked(path, *, wanted=()):
    """Verify a directory; return the checks with findings above information."""
    counts = CheckCounts()
    findings = list(Checker(ReadOnlyFileSystem(DiskFileSystem()), counts).path(str(path)))
    grave = [each for each in findings if each.severity != INFO]
    assert [(each.check, each.expected) for each in grave] == list(wanted), grave
    return {each.check for each in findings if each not in grave}, counts


def test_nothing_is_found_in_a_brokers_directory_however_it_ended(broker, scratch):
    broker.start()
    broker.traffic(seed=1, rounds=30, kill_after=7)
    result, counts = checked(broker.data_dir)
    assert result <= LEFT_BEHIND
    assert counts.segments > 40
    assert counts.records > 500
    broker.start()
    broker.traffic(seed=2, rounds=5)
    broker.stop()
    result, _ = checked(broker.data_dir)
    assert result <= LEFT_BEHIND
    copies = scratch / "alone"
    names = {path.name for path in broker.data_dir.glob("*-[0-9]")} - {METADATA_LOG_DIR}
    assert {"plain-1", "compacted-0", "both-1", "__transaction_state-0"} <= names
    for name in names:
        shutil.copytree(broker.data_dir / name, copies / name)
        result, _ = checked(copies / name)
        # Without its checkpoint the position of the cleaner is unknown.
        assert result <= {*LEFT_BEHIND, "offset_gap"}, name
        assert "offset_gap" not in result or not name.startswith("__")


def test_a_broker_knows_partitions_made_here_by_their_topic_id(broker):
    """A new partition under a topic of the cluster is served; another topic's is a stray."""
    broker.start()
    broker.traffic(seed=3, rounds=3)
    broker.stop()
    shutil.rmtree(broker.data_dir / "plain-1")
    values = [b"made here %d" % number for number in range(5)]
    with Broker(broker.data_dir) as ours:
        known = ours.topic("plain").id
        assert known is not None
        assert ours.create_topic("plain", partitions=2).id == known
        ours.append_many("plain", [(b"k", value) for value in values], partition=1)
        ours.roll("compacted", 0)
        ours.clean("compacted", force=True)
        ours.create_topic("unheard")
    assert checked(broker.data_dir)[0] <= LEFT_BEHIND
    broker.start()
    broker.traffic(seed=4, rounds=1)
    broker.stop()
    strays = [path.name for path in broker.data_dir.glob("*-stray")]
    assert [name.partition(".")[0] for name in strays] == ["unheard-0"]
    result, _ = checked(broker.data_dir, wanted=[("topics_partition", "a folder unheard-0")])
    assert result <= LEFT_BEHIND
    with Broker(broker.data_dir, read_only=True) as ours:
        result = [each.value for each in ours.read("plain", 1)]
    assert result[:5] == values
    assert len(result) > 5, "and the broker wrote after them"


def values_served(broker, topic, partition):
    """Return offsets and values of a partition as a client reads them."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    result = []
    while (message := consumer.poll(60)) is not None:
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            break
        result.append((message.offset(), message.value()))
    consumer.close()
    return result


def gap_in(served):
    """Return the first missing offset between those that are served."""
    offsets = [offset for offset, _ in served]
    return next(one + 1 for one, other in pairwise(offsets) if other > one + 1)


def test_a_broker_accepts_a_salvaged_directory(broker, scratch):
    """Every record except the damaged batch's is served, and appends continue after them."""
    broker.start()
    broker.traffic(seed=5, rounds=6)
    broker.stop()
    folder = broker.data_dir / "plain-1"
    damaged = max(sorted(folder.glob("*.log"))[:-1], key=lambda path: path.stat().st_size)
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 0xFF
    damaged.write_bytes(data)
    with Broker(broker.data_dir, read_only=True, on_damage="pass_over") as ours:
        report = salvage(ours, ours.partitions("plain", 1), DiskFileSystem(), str(scratch / "out"))
        expected = [
            (each.offset, each.value)
            for each in ours.read("plain", 1, isolation="read_uncommitted")
        ]
    assert len(report.lost) == 1
    assert report.records >= len(expected) > 20, "with those below the log start"
    shutil.rmtree(folder)
    shutil.copytree(scratch / "out" / "plain-1", folder)
    broker.start()
    assert values_served(broker, "plain", 1) == expected
    broker.traffic(seed=6, rounds=2)
    broker.stop()
    gap = ("offset_gap", gap_in(expected))
    assert checked(broker.data_dir, wanted=[gap])[0] <= LEFT_BEHIND


def position_in_process(ours, topic, level):
    consumer = ours.consumer(auto_offset_reset="earliest", isolation_level=level)
    consumer.assign([kafka.TopicPartition(topic, 0)])
    while consumer.poll(timeout_ms=100):
        pass
    return consumer.position(kafka.TopicPartition(topic, 0))


def position_of_kafka_python(bootstrap, topic, level):
    partition = kafka.TopicPartition(topic, 0)
    with closing(
        kafka.KafkaConsumer(
            bootstrap_servers=bootstrap, isolation_level=level, fetch_max_wait_ms=20
        )
    ) as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning()
        while consumer.poll(timeout_ms=500) or consumer.highwater(partition) is None:
            pass
        return consumer.position(partition)


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.profile)
def test_clients_end_up_where_a_consumer_in_the_process_does(release, scratch):
    """After the last batch of logs with holes; kafka-python lacks a codec of one shape."""
    shapes = sorted(holes.SHAPES.keys() - {"compressed"})
    levels = ("read_uncommitted", "read_committed")
    settings = {"log.cleaner.enable": "false", "log.retention.ms": "-1"}
    try:
        broker = RealBroker.of(release, scratch, settings)
    except Unavailable as error:
        unavailable(error)
    with broker:
        with closing(kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
            admin.create_topics([NewTopic(shape, 2, 1) for shape in shapes])
        broker.stop()
        for shape in shapes:  # the other partition keeps the topic's id
            shutil.rmtree(broker.data_dir / f"{shape}-0")
        with Broker(broker.data_dir, clock=VirtualClock()) as ours:
            for shape in shapes:
                ours.create_topic(shape, partitions=2, configs=dict(holes.CONFIGS))
                holes.fill(ours, shape, topic=shape)
            expected = {
                level: {shape: position_in_process(ours, shape, level) for shape in shapes}
                for level in levels
            }
        assert expected["read_committed"]["bare_end"] == 3
        broker.start()
        for level in levels:
            result = {
                shape: position_of_kafka_python(broker.bootstrap, shape, level) for shape in shapes
            }
            assert result == expected[level]
            command = java(
                class_path(release), "broker.Positions", broker.bootstrap, level, *shapes
            )
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
            lines = (line.split() for line in done.stdout.splitlines())
            assert {shape: int(position) for shape, position in lines} == expected[level]
