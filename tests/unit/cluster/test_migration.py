"""Groups and transactions of directories with separate coordinators."""

import pytest

from logstore import Broker, VirtualClock
from logstore.cluster import cluster as cluster_module
from logstore.faults.disk import FaultyDisk
from logstore.faults.rules import Faults
from logstore.names import PRODUCER_IDS_FILE
from logstore.runtime import DiskFileSystem
from tests.support.world.former_coordinators import (
    COMPLETE,
    OFFSETS,
    T0,
    committed,
    coordinator_of,
    opened,
    run_killed,
    settled,
    unpack,
)


@pytest.fixture
def directories(tmp_path, monkeypatch):
    return unpack(tmp_path, monkeypatch)


@pytest.mark.parametrize("name", ("complete", "fault"))
def test_groups_and_transactions_are_those_of_before(directories, name):
    for _ in range(2):
        with opened(directories / name) as cluster:
            assert settled(cluster) == (OFFSETS, COMPLETE)
            topics = {topic.name: topic.replication_factor for topic in cluster.topics()}
            assert topics == {"__consumer_offsets": 3, "__transaction_state": 3, "t": 3}
            assert coordinator_of(cluster, "x").new_producer_id() >= 1000
        assert sorted(each.name for each in (directories / name).iterdir()) == [
            "broker-0",
            "broker-1",
            "broker-2",
            "controller",
        ]


def test_a_directory_without_a_file_of_producer_ids_is_migrated(directories):
    (directories / "complete" / "coordinator" / PRODUCER_IDS_FILE).unlink()
    with opened(directories / "complete") as cluster:
        assert settled(cluster) == (OFFSETS, COMPLETE)
        assert coordinator_of(cluster, "x").new_producer_id() == 2  # 0 and 1 are in use


@pytest.mark.parametrize("commit", (True, False))
def test_an_open_transaction_can_be_ended(directories, commit):
    with opened(directories / "open") as cluster:
        pending = OFFSETS | {"g": {0: 0, 1: "UNSTABLE_OFFSET_COMMIT"}}
        assert settled(cluster) == (pending, COMPLETE | {"x": "Ongoing"})
        coordinator = coordinator_of(cluster, "x")
        coordinator.end_transaction("x", coordinator.describe("x").producer, commit=commit)
        assert committed(cluster) == OFFSETS | {"g": {0: 0, 1: 9 if commit else 3}}
        log = cluster.leader_log(T0)
        assert log.last_stable_offset == log.log_end_offset


@pytest.mark.parametrize("ends", (False, True), ids=("open", "ended"))
def test_a_migration_survives_a_power_loss(directories, monkeypatch, ends):
    """All brokers lose their unsynced data. A second migration would drop the later commit.

    The former folder has been renamed, and its removal has not begun.
    """
    disk = FaultyDisk(DiskFileSystem(), Faults((), VirtualClock()))
    with monkeypatch.context() as patch:
        patch.setattr(cluster_module, "DiskFileSystem", lambda _: disk)
        patch.setattr(cluster_module, "remove_migrated", lambda *_: None)
        with opened(directories / "open", disk_faults=False) as cluster:
            cluster.clock.advance(seconds=1)
            if ends:
                coordinator = coordinator_of(cluster, "x")
                coordinator.end_transaction("x", coordinator.describe("x").producer, commit=True)
                for broker in cluster.brokers.values():
                    for log in broker.manager.registry.open_logs():
                        log.flush()
            disk.cut_power()
    disk.lose_power()
    with opened(directories / "open") as cluster:
        assert not (directories / "open" / "coordinator.migrated").exists()
        assert settled(cluster) == (
            OFFSETS | {"g": {0: 0, 1: 9 if ends else "UNSTABLE_OFFSET_COMMIT"}},
            COMPLETE if ends else COMPLETE | {"x": "Ongoing"},
        )


def test_an_abandoned_open_transaction_is_aborted(directories):
    with opened(directories / "open") as cluster:
        cluster.clock.advance(hours=1)
        assert settled(cluster) == (OFFSETS, COMPLETE | {"x": "CompleteAbort"})


def test_offsets_of_records_are_kept_on_all_replicas(directories):
    def read(broker, topic):
        return [
            [(each.offset, each.key, each.value) for each in broker.read(topic, number)]
            for number in range(2)
        ]

    topics = ("__consumer_offsets", "__transaction_state")
    with Broker(directories / "complete" / "coordinator", read_only=True) as broker:
        before = {topic: read(broker, topic) for topic in topics}
    with opened(directories / "complete") as cluster:
        settled(cluster)
        for broker in cluster.brokers.values():
            assert {topic: read(broker, topic) for topic in topics} == before


def test_a_killed_migration_starts_over(directories, monkeypatch):
    """At one of about 180 changes of a file; `tests/crash` tries them all."""
    run_killed(directories / "open", monkeypatch, range(101, 102))
    run_killed(directories / "fault", monkeypatch, range(151, 152))
