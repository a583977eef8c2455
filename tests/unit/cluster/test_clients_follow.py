"""Clients in a broker's process, whose coordinator moves to another broker."""

from __future__ import annotations

import threading

import pytest

from logstore import Cluster, TopicPartition, VirtualClock
from logstore.coordinator.groups.offsets import OffsetAndMetadata
from logstore.errors import KafkaTimeoutError

TP = TopicPartition("t", 0)
GROUP, ID = "g", "x"
PROTOCOLS = ("classic", "consumer")
ENDS = ("killed", "stopped", "moved")


def pytest_generate_tests(metafunc):
    """Use all ends and layouts. On disk, kills are `slow` and other ends `long`."""
    names = [name for name in ("layout", "how") if name in metafunc.fixturenames]
    on_disk = [pytest.param("disk", how, marks=pytest.mark.long) for how in ("stopped", "moved")]
    killed_on_disk = pytest.param("disk", "killed", marks=pytest.mark.slow)
    values = {
        "layout": ("memory", "disk"),
        "how": ENDS,
        "layout,how": [*(("memory", how) for how in ENDS), killed_on_disk, *on_disk],
    }
    if names:
        metafunc.parametrize(",".join(names), values[",".join(names)])


@pytest.fixture
def cluster(layout, tmp_path):
    data_dir = None if layout == "memory" else tmp_path / "data"
    with Cluster(clock=VirtualClock(), data_dir=data_dir, seed=1) as cluster:
        yield cluster


def prepare(cluster, coordinator):
    """Create the topic, led by another broker than the coordinator; return that broker."""
    home = (coordinator + 1) % 3
    cluster.create_topic("t", assignment=[[home, coordinator, (coordinator + 2) % 3]])
    return cluster.brokers[home]


def end(cluster, broker, how, partition):
    """End the leadership of an internal partition."""
    if how == "killed":
        cluster.kill(broker)
    elif how == "stopped":
        cluster.stop(broker)
    else:
        cluster.move_leader(partition, to=(broker + 2) % 3)


def after(cluster, delay_ms, action):
    """Perform an action during a later wait."""
    cluster.runtime.scheduler.schedule("end-of-coordinator", action, delay_ms=delay_ms)


class Followed:
    """A consumer, and the end of its coordinator."""

    def __init__(self, cluster, protocol, how, **configs):
        self.cluster, self.how = cluster, how
        self.first = cluster.group_coordinator(GROUP)
        self.partition = cluster.brokers[self.first].groups.partition_of(GROUP)
        self.home = prepare(cluster, self.first)
        self.calls = []
        self.consumer = self.home.consumer(
            group_id=GROUP,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **configs,
        )
        self.consumer.subscribe(["t"], listener=self)

    def on_partitions_assigned(self, partitions):
        self.calls.append(("assigned", sorted(partitions)))

    def on_partitions_revoked(self, partitions):
        self.calls.append(("revoked", sorted(partitions)))

    def on_partitions_lost(self, partitions):
        self.calls.append(("lost", sorted(partitions)))

    def end(self):
        end(self.cluster, self.first, self.how, self.partition)

    def append(self, value):
        self.cluster.append("t", value=value)

    def poll(self, timeout_ms=20_000):
        polled = self.consumer.poll(timeout_ms=timeout_ms)
        return [record.value for record in polled.get(TP, ())]

    def committed(self):
        coordinator = self.cluster.group_coordinator(GROUP)
        assert coordinator != self.first
        return self.cluster.brokers[coordinator].groups.committed(GROUP)[TP].offset


@pytest.fixture(params=PROTOCOLS)
def protocol(request):
    return request.param


@pytest.fixture
def followed(cluster, protocol, how):
    return Followed(cluster, protocol, how)


# -- consumers -------------------------------------------------------------------------------


def test_a_member_stays_one_after_its_coordinator_has_moved(followed):
    followed.append(b"1")
    assert followed.poll() == [b"1"]
    member = followed.consumer.group_metadata()
    followed.end()
    followed.append(b"2")
    assert followed.poll() == [b"2"]
    followed.consumer.commit()
    assert followed.committed() == 2
    followed.cluster.clock.advance(minutes=2)  # longer than a session
    followed.append(b"3")
    assert followed.poll() == [b"3"]
    assert followed.consumer.group_metadata() == member
    assert followed.calls == [("assigned", [TP])]


def test_the_coordinator_ends_in_the_middle_of_a_poll(followed):
    followed.append(b"1")
    assert followed.poll() == [b"1"]
    after(followed.cluster, 1000, followed.end)
    after(followed.cluster, 5000, lambda: followed.append(b"2"))
    assert followed.poll() == [b"2"]
    followed.consumer.commit()
    assert followed.committed() == 2
    assert followed.calls == [("assigned", [TP])]


@pytest.mark.parametrize("delay_ms", (0, 1000, 3001))
def test_the_coordinator_ends_during_a_join(followed, delay_ms):
    after(followed.cluster, delay_ms, followed.end)
    followed.append(b"1")
    assert followed.poll(60_000) == [b"1"]
    followed.cluster.clock.advance(ms=delay_ms + 1)
    followed.append(b"2")
    assert followed.poll(60_000) == [b"2"]
    followed.consumer.commit()
    assert followed.committed() == 2


def test_the_coordinator_ends_before_a_commit(followed):
    followed.append(b"1")
    assert followed.poll() == [b"1"]
    followed.end()
    followed.consumer.commit()
    assert followed.committed() == 1
    assert followed.consumer.committed(TP) == 1


def test_the_coordinator_ends_in_the_middle_of_a_commit(followed):
    followed.append(b"1")
    assert followed.poll() == [b"1"]
    cluster = followed.cluster
    for other in {0, 1, 2} - {followed.first}:
        cluster.slow(followed.first, other, 200)
    after(cluster, 100, followed.end)
    followed.consumer.commit()
    cluster.heal()
    assert followed.committed() == 1


def test_a_commit_without_a_coordinator_fails_after_its_timeout(cluster, protocol):
    followed = Followed(cluster, protocol, "killed")
    followed.append(b"1")
    assert followed.poll() == [b"1"]
    cluster.disconnect([0], [1, 2])
    cluster.disconnect([1], [2])
    with pytest.raises(KafkaTimeoutError, match="COORDINATOR_NOT_AVAILABLE"):
        followed.consumer.commit(timeout_ms=5000)
    cluster.heal()
    followed.consumer.commit()


def test_the_last_commit_of_a_consumer_follows_the_coordinator(cluster, protocol, how):
    followed = Followed(cluster, protocol, how)
    followed.consumer.close()
    consumer = followed.home.consumer(
        "t", group_id="other", group_protocol=protocol, auto_offset_reset="earliest"
    )
    coordinator = cluster.group_coordinator("other")
    partition = followed.home.groups.partition_of("other")
    if cluster.brokers[coordinator] is followed.home:
        cluster.move_leader(partition, to=followed.first)
        coordinator = followed.first
    followed.append(b"1")
    assert [record.value for record in consumer.poll(timeout_ms=20_000)[TP]] == [b"1"]
    if how == "moved":
        cluster.move_leader(partition, to=({0, 1, 2} - {coordinator}).pop())
    else:
        end(cluster, coordinator, how, partition)
    consumer.close()
    groups = followed.home.groups.of("other")
    assert groups.committed("other")[TP].offset == 1
    assert groups.describe("other").members == ()


def test_a_consumer_leaves_when_the_replicas_have_the_change(cluster, protocol):
    followed = Followed(cluster, protocol, "killed")
    followed.append(b"1")
    assert followed.poll() == [b"1"]
    for other in {0, 1, 2} - {followed.first}:
        cluster.slow(followed.first, other, 200)
    followed.consumer.close()
    followed.end()
    cluster.heal()
    cluster.clock.advance(seconds=1)
    groups = followed.home.groups.of(GROUP)
    (listing,) = groups.list_groups()
    assert listing.state == "Empty"


def test_consumers_of_all_brokers_share_a_group(cluster, protocol):
    cluster.create_topic("wide", 3, replication_factor=3)
    first = cluster.group_coordinator(GROUP)
    consumers = {
        number: broker.consumer("wide", group_id=GROUP, group_protocol=protocol)
        for number, broker in cluster.brokers.items()
    }

    def share():
        for _ in range(200):
            for each in consumers.values():
                each.poll(timeout_ms=50)
        return sorted(tp.partition for each in consumers.values() for tp in each.assignment())

    assert share() == [0, 1, 2]
    assert all(len(each.assignment()) == 1 for each in consumers.values())
    cluster.kill(first)
    del consumers[first]
    cluster.clock.advance(minutes=2)
    assert share() == [0, 1, 2]


@pytest.mark.slow
def test_a_member_in_threads_follows_its_coordinator(protocol, how, tmp_path):
    with Cluster(data_dir=tmp_path / "data", background=True) as cluster:
        followed = Followed(cluster, protocol, how)
        followed.append(b"1")
        assert followed.poll() == [b"1"]
        ending = threading.Thread(target=followed.end)
        appending = threading.Timer(0.5, lambda: followed.append(b"2"))
        ending.start()
        appending.start()
        assert followed.poll(60_000) == [b"2"]
        followed.consumer.commit()
        assert followed.committed() == 2
        ending.join()
        appending.join()
        followed.consumer.close()


# -- producers -------------------------------------------------------------------------------


class Transactional:
    """A transactional producer, and the end of its coordinator."""

    def __init__(self, cluster, how):
        self.cluster, self.how = cluster, how
        self.first = cluster.transaction_coordinator(ID)
        self.partition = cluster.brokers[self.first].coordinator.partition_for(ID)
        self.home = prepare(cluster, self.first)
        self.producer = self.home.producer(transactional_id=ID)

    def end(self):
        end(self.cluster, self.first, self.how, self.partition)

    def committed(self):
        self.cluster.clock.advance(seconds=20)
        assert self.cluster.transaction_coordinator(ID) != self.first
        read = self.home.read("t", 0, isolation="read_committed")
        return [record.value for record in read]


@pytest.fixture
def transactional(cluster, how):
    return Transactional(cluster, how)


STEPS = ("init", "begin", "send", "send again", "offsets", "commit")


@pytest.mark.parametrize("step", STEPS)
def test_the_coordinator_ends_before_a_step_of_a_transaction(transactional, step):
    producer = transactional.producer
    actions = {
        "init": producer.init_transactions,
        "begin": producer.begin_transaction,
        "send": lambda: producer.send("t", b"1").get(),
        "send again": lambda: producer.send("t", b"2").get(),
        "offsets": lambda: producer.send_offsets_to_transaction({TP: OffsetAndMetadata(1)}, GROUP),
        "commit": producer.commit_transaction,
    }
    for name, action in actions.items():
        if name == step:
            transactional.end()
        action()
    assert transactional.committed() == [b"1", b"2"]
    groups = transactional.home.groups.of(GROUP)
    assert groups.committed(GROUP)[TP].offset == 1
    producer.begin_transaction()
    producer.send("t", b"3").get()
    producer.abort_transaction()
    assert transactional.committed() == [b"1", b"2"]


@pytest.mark.parametrize("commits", (True, False))
@pytest.mark.parametrize("delay_ms", (100, 300))
def test_the_coordinator_ends_in_the_middle_of_the_end(transactional, commits, delay_ms):
    cluster, producer = transactional.cluster, transactional.producer
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"1").get()
    for other in {0, 1, 2} - {transactional.first}:
        cluster.slow(transactional.first, other, 200)
    after(cluster, delay_ms, transactional.end)
    if commits:
        producer.commit_transaction()
    else:
        producer.abort_transaction()
    cluster.heal()
    assert transactional.committed() == ([b"1"] if commits else [])


def test_offsets_of_a_transaction_follow_the_group_coordinator(cluster, how):
    transactional = Transactional(cluster, how)
    producer = transactional.producer
    group = next(
        name
        for name in map(str, range(100))
        if cluster.brokers[cluster.group_coordinator(name)] is not transactional.home
    )
    producer.init_transactions()
    producer.begin_transaction()
    partition = transactional.home.groups.partition_of(group)
    end(cluster, cluster.leader(partition), how, partition)
    producer.send_offsets_to_transaction({TP: OffsetAndMetadata(5)}, group)
    producer.commit_transaction()
    cluster.clock.advance(seconds=20)
    assert transactional.home.groups.of(group).committed(group)[TP].offset == 5


def test_a_transaction_without_a_coordinator_fails_after_a_time(cluster):
    transactional = Transactional(cluster, "killed")
    producer = transactional.home.producer(transactional_id=ID, max_block_ms=5000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"1").get()
    others = {0, 1, 2} - {transactional.home.broker_config.node_id}
    cluster.disconnect([transactional.home.broker_config.node_id], others)
    with pytest.raises(KafkaTimeoutError, match="not available"):
        producer.commit_transaction()
    cluster.heal()
    producer.commit_transaction()
    assert [each.value for each in transactional.home.read("t", 0)] == [b"1"]


def test_a_cluster_closes_without_waiting_for_the_coordinators_of_open_transactions():
    clock = VirtualClock()
    with Cluster(clock=clock, seed=1) as cluster:
        cluster.create_topic("t", replication_factor=3)
        home = cluster.brokers[cluster.leader(TP)]
        for number in range(8):
            producer = home.producer(transactional_id=f"x{number}")
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"v").get()
        begun_ms = clock.now_ms()
    assert clock.now_ms() - begun_ms < 60_000  # `max_block_ms` of one producer


def test_a_stopped_broker_aborts_the_transactions_of_its_producers(cluster):
    cluster.create_topic("t", replication_factor=3)
    home = cluster.leader(TP)
    for number in range(8):
        producer = cluster.brokers[home].producer(transactional_id=f"x{number}")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"v").get()
    cluster.stop(home)
    log = cluster.brokers[cluster.leader(TP)].log(TP)
    assert cluster.run_until(lambda: log.last_stable_offset == log.high_watermark, timeout=5000)
