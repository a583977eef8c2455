"""Clients of one broker of a cluster, in its process: the same groups on every broker."""

import pytest

from logstore import Cluster, TopicPartition, VirtualClock
from logstore.coordinator.groups.offsets import OffsetAndMetadata
from logstore.errors import CoordinatorNotAvailableError

TP = TopicPartition("t", 0)
GROUPS = [f"g{number}" for number in range(6)]


@pytest.fixture(params=("memory", "disk"))
def cluster(request, tmp_path):
    data_dir = None if request.param == "memory" else tmp_path / "data"
    with Cluster(clock=VirtualClock(), data_dir=data_dir, seed=1) as cluster:
        cluster.create_topic("t", replication_factor=3)
        cluster.append("t", value=b"x")
        yield cluster


def committed(admin, group_id):
    return {tp: each.offset for tp, each in admin.list_group_offsets(group_id)[group_id].items()}


def test_admin_clients_of_all_brokers_see_the_same_groups(cluster):
    admins = [broker.admin() for broker in cluster.brokers.values()]
    assert [admin.list_groups() for admin in admins] == [[]] * 3
    for number, group_id in enumerate(GROUPS):
        admin = admins[number % 3]
        assert admin.alter_group_offsets(group_id, {TP: OffsetAndMetadata(1)}) == {TP: None}
    assert len({cluster.group_coordinator(each) for each in GROUPS}) > 1
    for admin in admins:
        assert [each["group_id"] for each in admin.list_groups()] == GROUPS
        described = admin.describe_groups(GROUPS)
        assert {each["group_state"] for each in described.values()} == {"Empty"}
        assert [committed(admin, each) for each in GROUPS] == [{TP: 1}] * 6
    assert admins[0].reset_group_offsets("g0", {TP: 0}) == {TP: {"error": None, "offset": 0}}
    assert admins[1].delete_group_offsets("g1", [TP]) == {TP: None}
    assert admins[2].delete_groups(GROUPS[2:]) == dict.fromkeys(GROUPS[2:])
    assert [each["group_id"] for each in admins[1].list_groups()] == ["g0"]


def test_an_admin_client_finds_the_coordinator_after_a_failure(cluster):
    admins = {number: broker.admin() for number, broker in cluster.brokers.items()}
    assert admins[0].alter_group_offsets("g0", {TP: OffsetAndMetadata(1)}) == {TP: None}
    first = cluster.group_coordinator("g0")
    cluster.kill(first)
    cluster.clock.advance(ms=1)
    others = [admins[each] for each in cluster.brokers]
    assert [committed(each, "g0") for each in others] == [{TP: 1}] * 2
    second = cluster.group_coordinator("g0")
    cluster.kill(second)
    cluster.kill(({0, 1, 2} - {first, second}).pop())
    cluster.restart(first)
    assert cluster.group_coordinator("g0") == -1
    with pytest.raises(CoordinatorNotAvailableError):
        cluster.brokers[first].admin().list_group_offsets("g0")


def test_consumers_of_all_brokers_find_the_coordinator(cluster):
    for broker in cluster.brokers.values():
        with broker.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            records = consumer.poll(timeout_ms=10_000)[TP]
            assert [record.value for record in records] == [b"x"]
            consumer.seek(TP, 0)


def test_transactional_producers_of_all_brokers_find_the_coordinator(cluster):
    for broker in cluster.brokers.values():
        broker.producer(transactional_id="x").init_transactions()
    coordinator = cluster.brokers[cluster.transaction_coordinator("x")].coordinator
    assert coordinator.describe("x").producer_epoch == 2
