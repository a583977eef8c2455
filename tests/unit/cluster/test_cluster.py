"""A cluster on the happy path: records are replicated, leaders move, brokers come and go."""

from __future__ import annotations

import logging
import threading

import pytest

from logstore import (
    Cluster,
    FencedLeaderEpochError,
    IllegalStateError,
    InvalidConfigurationError,
    InvalidReplicationFactorError,
    KafkaStorageError,
    LeaderNotAvailableError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    SystemClock,
    TopicPartition,
    VirtualClock,
)
from logstore.cluster.requests import DelayedProduce, _not_leader
from logstore.config.dynamic import Layer, own_layer
from tests.unit.cluster.replicas import values

USERS = TopicPartition("users", 0)


@pytest.fixture
def cluster():
    with Cluster(brokers=3, clock=VirtualClock(), seed=1) as cluster:
        configs = {"min.insync.replicas": "2", "cleanup.policy": "delete"}
        cluster.create_topic("users", replication_factor=3, configs=configs)
        yield cluster


def test_records_acknowledged_by_all_are_on_all_replicas(cluster):
    metadata = cluster.append("users", key=b"1", value=b"ann", acks="all")
    assert (metadata.topic, metadata.partition, metadata.offset) == ("users", 0, 0)
    cluster.run_until(lambda: all(values(cluster, broker) == [b"ann"] for broker in range(3)))


def test_a_follower_refuses_clients(cluster):
    with pytest.raises(NotLeaderForPartitionError, match="the leader is broker 0"):
        cluster.brokers[1].append("users", value=b"x")
    assert cluster.brokers[1].log("users").log_end_offset == 0


def test_the_next_replica_leads_when_the_leader_ends(cluster):
    cluster.append("users", value=b"1")
    cluster.kill(0, power_loss=True)
    state = cluster.state("users", 0)
    assert (state.leader, state.leader_epoch, state.isr) == (1, 1, (1, 2))
    cluster.append("users", value=b"2")
    cluster.restart(0)
    assert cluster.run_until(lambda: cluster.state("users").isr == (0, 1, 2), timeout=1000)
    assert values(cluster, 0) == [b"1", b"2"]


def test_a_moved_leader_writes_in_its_own_epoch(cluster):
    cluster.append("users", value=b"1")
    cluster.move_leader("users", 0, to=2)
    cluster.append("users", value=b"2")
    assert cluster.leader("users", 0) == 2
    assert [tuple(e) for e in cluster.brokers[1].log("users").epochs.entries] == [(0, 0), (1, 1)]


def test_too_few_in_sync_refuse_acks_all_and_nothing_is_written(cluster):
    cluster.kill(1)
    cluster.kill(2)
    with pytest.raises(NotEnoughReplicasError):
        cluster.append("users", value=b"x")
    assert cluster.brokers[0].log("users").log_end_offset == 0


def test_without_a_leader_there_is_no_append(cluster):
    for broker in range(3):
        cluster.kill(broker)
    assert cluster.leader("users", 0) == -1
    with pytest.raises(LeaderNotAvailableError):
        cluster.append("users", value=b"x")
    assert cluster.append("users", value=b"x", acks=0).offset == -1


def test_deleted_records_are_removed_on_every_replica(cluster):
    for number in range(4):
        cluster.append("users", value=b"%d" % number)
    results = cluster.delete_records({USERS: 3}, timeout_ms=5000)
    assert results[USERS].low_watermark == 3
    assert results[USERS].error is None
    assert [cluster.brokers[b].log("users").log_start_offset for b in range(3)] == [3, 3, 3]
    assert cluster.low_watermark("users", 0) == 3


def test_brokers_that_run_and_partitions_that_are_led():
    config = {"default.replication.factor": 2}
    with Cluster(clock=VirtualClock(), broker_config=config, seed=1) as cluster:
        topic = cluster.create_topic("t", 3)
        assert topic == cluster.controller.topic("t")
        assert topic.replication_factor == 2
        assert [each.replicas for each in topic.partitions] == [(0, 1), (1, 2), (2, 0)]
        cluster.create_partitions("t", 3)
        assert cluster.topics() == [topic], "as many as there were"
        assert repr(cluster) == "Cluster(brokers 0, 1, 2)"
        cluster.kill(1)
        cluster.stop(2)
        assert repr(cluster) == "Cluster(brokers 0, 1 (stopped), 2 (stopped))"
        assert (list(cluster.brokers), cluster.broker_ids) == ([0], range(3))
        partitions = [("t", number) for number in range(3)]
        assert [cluster.leader(*each) for each in partitions] == [0, -1, 0]
        assert [cluster.low_watermark(*each) for each in partitions] == [0, -1, 0]
        broker = cluster.brokers[0]
        for call, message in (
            (lambda: cluster.replicas(1), "broker 1 is not running"),
            (lambda: cluster.kill(2), "broker 2 is not running"),
            (lambda: cluster.stop(1), "broker 1 is not running"),
            (
                lambda: cluster.alter_broker_configs({"log.retention.ms": "7"}, brokers=[0, 1]),
                "broker 1 is not running",
            ),
        ):
            assert refused(IllegalStateError, call) == message
        assert own_layer(broker.broker_config, Layer.BROKER) == {}
        for number in (-1, 3):
            message = refused(InvalidConfigurationError, cluster.restart, number)
            assert message == f"unknown broker {number}: broker ids are 0 to 2"
        assert cluster.restart(0) is cluster.brokers[0] is not broker
        cluster.close()
        cluster.close()
        assert refused(IllegalStateError, cluster.brokers[0].topics)


# -- refusals ------------------------------------------------------------------------------------


def refused(error, call, *arguments, **options):
    with pytest.raises(error) as caught:
        call(*arguments, **options)
    assert type(caught.value) is error
    return str(caught.value)


def test_a_cluster_has_at_least_one_broker():
    message = refused(InvalidConfigurationError, Cluster, brokers=0, clock=VirtualClock())
    assert message == "a cluster needs at least one broker, not 0"
    with Cluster(brokers=1, clock=VirtualClock()) as one:
        assert list(one.brokers) == [0]


def test_only_a_virtual_cluster_can_skew_clocks():
    with Cluster(brokers=1, clock=SystemClock()) as cluster:
        message = refused(InvalidConfigurationError, cluster.skew, 0, 5)
    assert message == "skew requires a cluster with a VirtualClock"


def test_settings_need_a_running_broker(cluster):
    for broker in range(3):
        cluster.stop(broker)
    message = refused(IllegalStateError, cluster.alter_broker_configs, {"log.retention.ms": "5"})
    assert message == "no broker is running"


@pytest.mark.parametrize("acks", (2, -2, "none", None))
def test_other_acks_are_refused(cluster, acks):
    message = refused(InvalidConfigurationError, cluster.append, USERS, value=b"x", acks=acks)
    assert message == f"acks must be 0, 1 or 'all', not {acks!r}"
    assert cluster.brokers[0].log("users").log_end_offset == 0


def test_there_are_as_many_replicas_as_running_brokers_at_most(cluster):
    cluster.kill(1)
    for factor in (0, 3):
        message = refused(
            InvalidReplicationFactorError, cluster.controller.assign, range(3), factor
        )
        assert message == f"replication factor {factor} exceeds the number of running brokers (2)"
    assert cluster.controller.assign(range(3), 1) == [(0,), (2,), (0,)]
    assert cluster.controller.assign(range(1, 4), 2) == [(2, 0), (0, 2), (2, 0)]


def test_an_outdated_leader_does_not_change_the_isr(cluster):
    known = cluster.state("users", 0)
    cluster.controller.alter_isr(known, [0, 1])
    message = refused(FencedLeaderEpochError, cluster.controller.alter_isr, known, [0])
    assert message == "users-0 has partition epoch 1, the leader knows 0"
    assert cluster.state("users", 0).isr == (0, 1)


def test_a_delay_is_not_negative(cluster):
    assert refused(ValueError, cluster.slow, 0, 1, -1) == "delay_ms must not be negative: -1"
    cluster.slow(0, 1, 0)


def test_leaders_are_in_sync_and_running(cluster):
    cluster.append(USERS, value=b"1", acks="all")
    cluster.kill(2)
    move = cluster.move_leader
    message = refused(LeaderNotAvailableError, move, USERS, to=2)
    assert message == "broker 2 is not running, or its disk has failed"
    for broker in (0, 1):
        cluster.kill(broker)
    cluster.restart(2)
    message = refused(LeaderNotAvailableError, move, USERS, to=2)
    assert message == "broker 2 is not in sync with users-0; in-sync: (1,)"


def test_an_isr_that_shrinks_is_logged(cluster, caplog):
    caplog.set_level(logging.INFO, "logstore.cluster.leadership")
    cluster.disconnect({0}, {2})
    cluster.append(USERS, value=b"1", acks=1)
    assert cluster.run_until(lambda: cluster.state("users").isr == (0, 1), timeout=120_000)
    assert caplog.messages == ["users-0: shrinking the ISR to (0, 1)"]


def test_an_error_at_the_leader_that_stopped_is_reported_as_another_leader():
    other = NotLeaderForPartitionError("x")
    assert _not_leader(USERS, other) is other
    error = _not_leader(USERS, KafkaStorageError("closed"))
    assert type(error) is NotLeaderForPartitionError
    assert str(error) == "the leader of users-0 has stopped: closed"


def test_an_append_waits_for_its_offset_on_all_replicas(cluster):
    offset = cluster.append(USERS, value=b"1", acks=1).offset
    delayed = DelayedProduce(cluster.replicas(0), USERS, offset, cluster.replicas(0).role(USERS))
    assert str(delayed.error) == "users-0: not all in-sync replicas have offset 0 yet"


# -- brokers that cannot end ---------------------------------------------------------------------


def assert_running(cluster):
    """Broker 0 leads, replicates and serves as before."""
    assert cluster.state("users").isr == (0, 1, 2)
    assert cluster.append("users", value=b"x", acks="all").offset >= 0
    cluster.clock.advance(ms=1)
    assert {broker.log(USERS).high_watermark for broker in cluster.brokers.values()} == {1}
    cluster.kill(0)
    cluster.restart(0)


def test_a_broker_runs_on_if_it_cannot_lose_its_power():
    with Cluster(clock=VirtualClock(), disk_faults=False) as cluster:
        cluster.create_topic("users", replication_factor=3)
        message = refused(InvalidConfigurationError, cluster.kill, 0, power_loss=True)
        assert "without disk_faults=True" in message
        assert_running(cluster)


@pytest.mark.parametrize("method", ("kill", "stop"))
def test_a_broker_runs_on_if_its_cleaning_would_end_it(cluster, method):
    cluster.create_topic("compacted", replication_factor=3, configs={"cleanup.policy": "compact"})
    for _ in range(2):
        cluster.append("compacted", key=b"k", value=b"x")
    messages = []

    def progress(*_):
        messages.append(refused(IllegalStateError, getattr(cluster, method), 0))

    cluster.brokers[0].clean("compacted", force=True, roll=True, progress=progress)
    assert "cannot be closed by a listener of its own cleaning" in messages[0]
    assert_running(cluster)


# -- brokers that end while their high watermarks are written ------------------------------------

ENDS = {
    "close": lambda cluster: cluster.stop(0),
    "kill": lambda cluster: cluster.kill(0),
    "lose_power": lambda cluster: cluster.kill(0, power_loss=True),
}


@pytest.mark.parametrize("end", ENDS)
def test_no_high_watermarks_are_written_once_a_broker_ends(cluster, end, monkeypatch):
    (task,) = cluster._nodes[0].tasks
    process = cluster.brokers[0]
    method = end if end == "close" else f"_{end}"
    finish = getattr(process, method)
    ran = []

    def finish_and_run():
        finish()
        task._action()  # as a thread would that was about to
        ran.append(task.name)

    monkeypatch.setattr(process, method, finish_and_run)
    ENDS[end](cluster)
    assert ran == ["highwatermark-checkpoint-0"]
    cluster.restart(0)
    cluster.append("users", value=b"x")
    cluster.clock.advance(seconds=60)
    cluster.kill(0)
    cluster.restart(0)
    assert cluster.brokers[0].manager.directories[0].high_watermarks[USERS] == 1


def test_a_broker_does_not_end_while_its_high_watermarks_are_written(cluster, monkeypatch):
    """Ending its tasks takes a lock that is held meanwhile."""
    node = cluster._nodes[0]
    (task,) = node.tasks
    could_end = []

    def write():
        probe = threading.Thread(target=lambda: could_end.append(node.lock.acquire(blocking=False)))
        probe.start()
        probe.join()

    monkeypatch.setattr(node.broker.manager, "checkpoint_high_watermarks", write)
    task._action()
    assert could_end == [False]


def test_high_watermarks_are_written_after_each_interval_with_a_change(monkeypatch):
    config = {"replica.high.watermark.checkpoint.interval.ms": "700"}
    with Cluster(brokers=1, clock=VirtualClock(), broker_config=config) as cluster:
        cluster.create_topic("users")
        cluster.clock.advance(seconds=60)
        manager = cluster.brokers[0].manager
        start_ms = cluster.clock.now_ms()
        written = []
        monkeypatch.setattr(
            manager,
            "checkpoint_high_watermarks",
            lambda: written.append(cluster.clock.now_ms() - start_ms),
        )
        for _ in range(2):
            cluster.append("users", value=b"x")
            cluster.clock.advance(ms=700)
        assert len(written) == 2
        assert written[1] - written[0] == 700


def test_the_tasks_of_a_broker_are_scheduled_with_the_lock_that_they_take(cluster, monkeypatch):
    """A task that runs at once must find itself among its broker's tasks."""
    node = cluster._nodes[0]
    schedule = cluster.runtime.scheduler.schedule
    could_run = []

    def probe(name, *args, **kwargs):
        if name == "highwatermark-checkpoint-0":
            thread = threading.Thread(
                target=lambda: could_run.append(node.lock.acquire(blocking=False))
            )
            thread.start()
            thread.join()
        return schedule(name, *args, **kwargs)

    cluster.kill(0)
    monkeypatch.setattr(cluster.runtime.scheduler, "schedule", probe)
    cluster.restart(0)
    assert could_run == [False]


def test_high_watermarks_are_not_written_before_an_interval_has_passed(cluster, monkeypatch):
    cluster.kill(0)
    cluster.restart(0)
    written = []
    manager = cluster.brokers[0].manager
    monkeypatch.setattr(manager, "checkpoint_high_watermarks", lambda: written.append(True))
    cluster.append("users", value=b"x")
    cluster.clock.advance(ms=4000)
    assert written == []
    cluster.clock.advance(ms=1000)
    assert written == [True]
