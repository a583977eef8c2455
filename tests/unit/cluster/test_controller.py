"""The controller: whole states after each change, stored states, and its lock."""

from dataclasses import replace

import pytest

from logstore.cluster.controller import Controller
from logstore.cluster.states import ClusterTopic, PartitionState
from logstore.errors import (
    FencedLeaderEpochError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    LeaderNotAvailableError,
    LogStoreError,
    NoReassignmentInProgressError,
    RequestError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from logstore.types import TopicPartition
from tests.support.world.locks import HeldLock

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class Guarded(Controller):
    """A controller that checks that its state is only changed while its lock is held."""

    def __setattr__(self, name, value):
        if name in ("_topics", "_failed", "settings", "groups", "changes") and name in vars(self):
            assert self._lock.depth, f"{name} is set without the lock"
        super().__setattr__(name, value)


class World:
    """A controller of brokers 0 to 3, and the states that it has stored."""

    def __init__(self, unclean=(), remembered=(), **stored):
        self.lock = HeldLock(NoLock())
        self.stored = []
        self.failure = None
        self.controller = Guarded(
            self.lock, lambda topic: topic in unclean, remembered, remember=self.remember, **stored
        )

    def remember(self, topics, settings, groups):
        assert self.lock.depth == 1
        if self.failure is not None:
            raise self.failure
        self.stored.append((list(topics), settings, dict(groups)))


class NoLock:
    """A lock for one thread."""

    def __enter__(self):
        """Do nothing."""

    def __exit__(self, *_):
        """Do nothing."""


def state(tp, replicas, leader, epoch, isr, version, **moving):
    return PartitionState(tp, replicas, leader, epoch, isr, version, **moving)


@pytest.fixture
def world():
    """Return a controller of `t` on brokers 0 to 2 and `u` on 1 and 2; 3 is running, too."""
    world = World(unclean=("u",))
    for broker in (3, 1, 0, 2):
        assert world.controller.broker_started(broker) == []
    world.controller.add_topic("u", "id-u", {"a": "1"}, [(1, 2)])
    world.controller.add_topic("t", "id-t", {}, [(0, 1, 2), (2, 0, 1)])
    return world


def test_topics(world):
    controller = world.controller
    t = ClusterTopic(
        "t",
        "id-t",
        3,
        {},
        (state(T0, (0, 1, 2), 0, 0, (0, 1, 2), 0), state(T1, (2, 0, 1), 2, 0, (2, 0, 1), 0)),
    )
    u = ClusterTopic("u", "id-u", 2, {"a": "1"}, (state(U0, (1, 2), 1, 0, (1, 2), 0),))
    assert controller.alive == [0, 1, 2, 3]
    assert controller.topics() == [t, u]
    assert controller.states() == [*t.partitions, *u.partitions]
    assert controller.changes == 2
    assert world.stored == [([u], None, {}), ([t, u], None, {})]
    controller.change_configs("u", lambda own: {**own, "b": "2"})
    u = replace(u, configs={"a": "1", "b": "2"})
    controller.broker_ended(1)
    added = controller.add_partitions("u", [(1, 3), (2, 3)])
    new = [
        state(TopicPartition("u", 1), (1, 3), 3, 0, (3,), 0),
        state(TopicPartition("u", 2), (2, 3), 2, 0, (2, 3), 0),
    ]
    assert added == replace(u, partitions=(state(U0, (1, 2), 2, 1, (2,), 1), *new))
    assert controller.topic("u") == added
    assert controller.remove_topic("u") == added
    assert [topic.name for topic in controller.topics()] == ["t"]
    assert [topic.name for topic in world.stored[-1][0]] == ["t"]
    assert (controller.changes, len(world.stored)) == (6, 6)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    (
        (lambda c: c.topic("x"), UnknownTopicOrPartitionError, "unknown topic 'x'"),
        (lambda c: c.remove_topic("x"), UnknownTopicOrPartitionError, "unknown topic 'x'"),
        (
            lambda c: c.state(TopicPartition("t", 2)),
            UnknownTopicOrPartitionError,
            "topic 't' has no partition 2",
        ),
        (
            lambda c: c.state(TopicPartition("t", -1)),
            UnknownTopicOrPartitionError,
            "topic 't' has no partition -1",
        ),
        (
            lambda c: c.add_topic("t", "other", {}, [(0,)]),
            TopicAlreadyExistsError,
            "topic 't' already exists",
        ),
        (
            lambda c: c.assign(range(1), 5),
            InvalidReplicationFactorError,
            "replication factor 5 exceeds the number of running brokers (4)",
        ),
        (
            lambda c: c.assign(range(1), 0),
            InvalidReplicationFactorError,
            "replication factor 0 exceeds the number of running brokers (4)",
        ),
        (lambda c: c.elect(T0, 3), RequestError, "broker 3 has no replica of t-0"),
        (
            lambda c: c.elect(T0, c.replica_failed(2, T0) and 2),
            LeaderNotAvailableError,
            "broker 2 is not running, or its disk has failed",
        ),
        (
            lambda c: (c.broker_ended(2), c.broker_started(2), c.elect(T0, 2)),
            LeaderNotAvailableError,
            "broker 2 is not in sync with t-0; in-sync: (0, 1)",
        ),
        (
            lambda c: c.alter_isr(replace(c.state(T0), partition_epoch=7), (0,)),
            FencedLeaderEpochError,
            "t-0 has partition epoch 0, the leader knows 7",
        ),
    ),
)
def test_refusals(world, call, error, message):
    with pytest.raises(LogStoreError) as raised:
        call(world.controller)
    assert (type(raised.value), str(raised.value)) == (error, message)


@pytest.mark.parametrize(
    ("racks", "expected"),
    (
        ({}, [(0, 1, 2), (1, 2, 3), (2, 3, 0), (3, 0, 1), (0, 1, 2)]),
        (
            {0: "a", 1: "a", 2: "a", 3: "b"},
            [(0, 3, 1), (3, 1, 2), (1, 2, 0), (2, 0, 3), (0, 3, 1)],
        ),
    ),
)
def test_assignments(world, racks, expected):
    world.controller.racks = racks
    assert world.controller.assign(range(5), 3) == expected
    order = [0, 3, 1, 2] if racks else [0, 1, 2, 3]
    assert world.controller.assign(range(3, 4), 4) == [(order[3], *order[:3])]


def test_brokers_that_end_and_start(world):
    """Of `t`, only replicas in sync lead; of `u`, any; the last one in sync remains so."""
    controller = world.controller
    assert controller.broker_ended(3) == []
    assert controller.broker_ended(2) == [
        state(T0, (0, 1, 2), 0, 0, (0, 1), 1),
        state(T1, (2, 0, 1), 0, 1, (0, 1), 1),
        state(U0, (1, 2), 1, 0, (1,), 1),
    ]
    assert controller.broker_ended(0) == [
        state(T0, (0, 1, 2), 1, 1, (1,), 2),
        state(T1, (2, 0, 1), 1, 2, (1,), 2),
    ]
    assert controller.broker_ended(1) == [
        state(T0, (0, 1, 2), -1, 2, (1,), 3),
        state(T1, (2, 0, 1), -1, 3, (1,), 3),
        state(U0, (1, 2), -1, 1, (1,), 2),
    ]
    assert controller.alive == []
    assert controller.broker_started(2) == [state(U0, (1, 2), 2, 2, (2,), 3)]
    assert controller.broker_started(0) == []
    assert controller.broker_started(1) == [
        state(T0, (0, 1, 2), 1, 3, (1,), 4),
        state(T1, (2, 0, 1), 1, 4, (1,), 4),
    ]
    assert [each.leader for each in controller.states()] == [1, 1, 2]
    assert controller.broker_started(1) == []


def test_replicas_that_fail(world):
    """Until their broker starts again, or another broker does, they neither lead nor sync."""
    controller = world.controller
    assert controller.replica_failed(0, T0) == [state(T0, (0, 1, 2), 1, 1, (1, 2), 1)]
    assert controller.replica_failed(0, T0) == []
    assert (controller.is_eligible(0, T0), controller.is_eligible(0, T1)) == (False, True)
    known = controller.state(T0)
    assert controller.alter_isr(known, (0, 1, 2)) == known
    controller.broker_started(3)
    assert not controller.is_eligible(0, T0)
    controller.broker_started(0)
    assert controller.is_eligible(0, T0)
    assert controller.alter_isr(known, (2, 1, 0)) == replace(
        known, isr=(0, 1, 2), partition_epoch=2
    )


def test_elections(world):
    controller = world.controller
    assert controller.elect(T0, 0) == []
    assert controller.elect(T0, 2) == [state(T0, (0, 1, 2), 2, 1, (0, 1, 2), 1)]
    controller.alter_isr(controller.state(T0), (2,))
    assert controller.elect(T0, 1, unclean=True) == [state(T0, (0, 1, 2), 1, 2, (1,), 3)]
    assert controller.elect(T0, 1, unclean=True) == []


def test_changes_of_the_isr(world):
    """The leader always remains in it, stopped brokers do not join, and the order is fixed."""
    controller = world.controller
    known = controller.state(T1)
    assert controller.alter_isr(known, ()) == state(T1, (2, 0, 1), 2, 0, (2,), 1)
    known = controller.state(T1)
    controller.broker_ended(0)
    assert controller.alter_isr(known, (1, 0)) == state(T1, (2, 0, 1), 2, 0, (2, 1), 2)
    known, changes = controller.state(T1), controller.changes
    assert controller.alter_isr(known, (1, 2)) == known
    assert controller.changes == changes, "the same state is not stored again"


def test_reassignments(world):
    controller, moved = world.controller, []
    controller.moved.subscribe(moved.append)
    states, errors = controller.reassign(
        {T0: (3, 1), T1: (0, 1, 2), U0: None, TopicPartition("x", 0): (0,)}
    )
    moving = {"adding": (3,), "removing": (0, 2)}
    assert states == [
        state(T0, (3, 1, 0, 2), 0, 0, (1, 0, 2), 1, **moving),
        state(T1, (0, 1, 2), 2, 0, (0, 1, 2), 1),
    ]
    assert {tp: (type(error), str(error)) for tp, error in errors.items()} == {
        U0: (NoReassignmentInProgressError, "u-0 is not being reassigned"),
        TopicPartition("x", 0): (UnknownTopicOrPartitionError, "unknown topic 'x'"),
    }
    # There will be fewer replicas, so all of them must be in sync.
    known = controller.alter_isr(states[0], (0, 3))
    assert known == state(T0, (3, 1, 0, 2), 0, 0, (3, 0), 2, **moving)
    assert moved == []
    known = controller.alter_isr(known, (0, 1, 3))
    assert known == state(T0, (3, 1), 3, 1, (3, 1), 3)
    assert moved == [T0]
    # If there will be as many replicas, only the added ones must be in sync.
    controller.alter_isr(controller.state(T1), (2,))
    (known,), _ = controller.reassign({T1: (2, 0, 3)})
    known = controller.alter_isr(known, (2, 3))
    assert known == state(T1, (2, 0, 3), 2, 1, (2, 3), 4)
    assert moved.pop() == T1
    # If replicas are only added, the leader and its epoch remain.
    (known,), _ = controller.reassign({T0: (3, 1, 2)})
    assert known == state(T0, (3, 1, 2), 3, 1, (3, 1), 4, adding=(2,))
    known = controller.alter_isr(known, (3, 1, 2))
    assert known == state(T0, (3, 1, 2), 3, 1, (3, 1, 2), 5)
    assert moved == [T0, T0]


def test_reassignments_that_are_replaced_and_cancelled(world):
    controller = world.controller
    controller.reassign({T0: (3, 0)})
    (known,), _ = controller.reassign({T0: (3,)})
    assert known == state(T0, (3, 0, 1, 2), 0, 0, (0, 1, 2), 2, adding=(3,), removing=(0, 1, 2))
    (known,), _ = controller.reassign({T0: (3, 1)})
    assert known == state(T0, (3, 1, 0, 2), 0, 0, (1, 0, 2), 3, adding=(3,), removing=(0, 2))
    controller.alter_isr(known, (0, 2))
    (known,), _ = controller.reassign({T0: None})
    assert known == state(T0, (1, 0, 2), 0, 1, (0, 2), 5)
    (known,), _ = controller.reassign({T0: (0, 1)})
    assert known == state(T0, (0, 1, 2), 0, 1, (0, 2), 6, removing=(2,))
    (known,), _ = controller.reassign({T0: None})
    assert known == state(T0, (0, 1, 2), 0, 1, (0, 2), 7), "with the same replicas and leader"
    controller.reassign({T0: (3, 1)})
    controller.elect(T0, 3, unclean=True)
    known = controller.state(T0)
    assert (known.leader, known.isr, known.is_moving) == (3, (3,), True)
    states, errors = controller.reassign({T0: None})
    assert states == []
    assert {tp: (type(error), str(error)) for tp, error in errors.items()} == {
        T0: (
            InvalidReplicaAssignmentError,
            "Cannot revert partition reassignment because it would require an unclean leader"
            " election.",
        )
    }
    controller.reassign({U0: (3, 0)})
    controller.broker_ended(2)
    controller.broker_ended(1)
    controller.elect(U0, 3, unclean=True)
    (known,), errors = controller.reassign({U0: None})
    assert (known.replicas, known.leader, known.isr, errors) == ((1, 2), -1, (1, 2), {})


def test_settings_and_groups(world):
    controller = world.controller
    given = {"a": "1"}
    controller.set_settings(given)
    given.clear()
    assert controller.settings == {"a": "1"}
    controller.change_group_configs("g", lambda own: {**own, "b": "2"})
    controller.change_group_configs("h", lambda own: {**own, "c": "3"})
    stored = len(world.stored)
    controller.change_group_configs("g", lambda own: own)
    assert len(world.stored) == stored
    controller.change_group_configs("g", lambda _: {})
    assert controller.groups == {"h": {"c": "3"}}
    _, settings, groups = world.stored[-1]
    assert (settings, groups) == ({"a": "1"}, {"h": {"c": "3"}})


@pytest.mark.parametrize(
    "change",
    (
        lambda c: c.set_settings({"a": "2"}),
        lambda c: c.change_group_configs("g", lambda _: {"b": "3"}),
        lambda c: c.remove_topic("t"),
        lambda c: c.add_topic("v", "id-v", {}, [(0,)]),
        lambda c: c.elect(T0, 1),
    ),
)
def test_a_change_that_cannot_be_stored_is_undone(world, change):
    controller = world.controller
    controller.set_settings({"a": "1"})
    controller.change_group_configs("g", lambda _: {"b": "2"})
    before = controller.topics(), controller.settings, controller.groups
    changes = controller.changes
    world.failure = OSError("no space left")
    with pytest.raises(OSError, match="no space left"):
        change(controller)
    assert (controller.topics(), controller.settings, controller.groups) == before
    assert controller.changes == changes + 2, "readers of the failed change read again"
    world.failure = None
    change(controller)
    assert controller.changes == changes + 3


def test_remembered_topics_have_no_leader_until_their_brokers_start(world):
    before = world.controller
    after = World(
        remembered=before.topics(), settings={"a": "1"}, groups={"g": {"b": "2"}}
    ).controller
    assert after.states() == [replace(each, leader=-1) for each in before.states()]
    assert (after.settings, after.groups, after.changes) == ({"a": "1"}, {"g": {"b": "2"}}, 0)
    assert after.broker_started(2) == [
        state(T0, (0, 1, 2), 2, 1, (0, 1, 2), 1),
        state(T1, (2, 0, 1), 2, 1, (2, 0, 1), 1),
        state(U0, (1, 2), 2, 1, (1, 2), 1),
    ]
