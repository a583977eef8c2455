"""Crashes at every file operation of transactions: each is in all its partitions or in none."""

from dataclasses import replace

import pytest

from logstore import Broker, OffsetAndMetadata
from logstore.config.broker_config import BrokerConfig
from logstore.coordinator.transactions.coordinator import TransactionCoordinator
from logstore.names import GROUP_OFFSETS_TOPIC
from logstore.runtime import VirtualClock
from logstore.testing import FaultyFileSystem, SimulatedCrash
from logstore.types import TopicPartition
from tests.crash.harness import KEPT, fingerprint
from tests.support.world.crashes import Profile, modes

PARTITIONS = (0, 1, 2)
SOURCE = TopicPartition("t", 0)
COMMITS = (b"before", b"x1", b"y1", b"x4")
"""The transactions that may be visible, in offset order."""

BOUNDED = Profile(stride=23, cuts=1)
FULL = Profile(cuts=20, seeds=4)

SMALL = BrokerConfig.from_properties(
    {
        "log.index.size.max.bytes": "240",
        "log.segment.bytes": "600",
        "offsets.topic.num.partitions": "1",
    }
)


class Machine:
    """A broker on a disk, and the acknowledgements of its producers."""

    def __init__(self, clock, image=None):
        self.clock = clock
        self.fs = FaultyFileSystem(clock, image)
        self.acknowledged = set()
        self.aborted = set()

    def open(self):
        self.broker = Broker(
            "/disk/data", fs=self.fs, clock=self.clock, broker_config=SMALL, seed=1
        )
        self.broker._coordinator = TransactionCoordinator(
            self.broker.runtime,
            self.broker.manager,
            self.broker.groups,
            replace(self.broker.manager.broker_config, transaction_state_log_num_partitions=1),
        )
        return self.broker

    def producer(self, transactional_id):
        producer = self.broker.producer(transactional_id=transactional_id)
        producer.init_transactions()
        return producer

    def write(self, producer, name, partitions=PARTITIONS):
        """Send one record of a transaction to each partition, and the offset of a group."""
        for number in partitions:
            producer.send("t", name, partition=number).get()
        offsets = {SOURCE: OffsetAndMetadata(7, name.decode())}
        producer.send_offsets_to_transaction(offsets, "g")

    def commit(self, producer, name, partitions=PARTITIONS):
        producer.begin_transaction()
        self.write(producer, name, partitions)
        producer.commit_transaction()
        self.acknowledged.add(name)

    def abort(self, producer, name):
        self.aborted.add(name)
        producer.begin_transaction()
        self.write(producer, name)
        producer.abort_transaction()

    def seen(self):
        """Return which partitions show a reader of committed data each transaction."""
        result = {}
        for number in PARTITIONS:
            for record in self.broker.read("t", number, isolation="read_committed"):
                result.setdefault(record.value, []).append(number)
        return result


def prepare(machine):
    machine.open().create_topic("t", len(PARTITIONS))
    machine.commit(machine.producer("x"), b"before")
    for number in PARTITIONS:
        machine.broker.log("t", number).flush()
    machine.broker.log(GROUP_OFFSETS_TOPIC).flush()
    machine.broker.close()


def work(machine):
    """Commits, an abort, another transaction in between, a roll, a fenced producer, an open one."""
    machine.open()
    first, second = machine.producer("x"), machine.producer("y")
    machine.commit(first, b"x1")
    second.begin_transaction()
    machine.write(second, b"y1", (1,))
    machine.abort(first, b"x2")
    machine.broker.roll("t", 1)
    machine.write(second, b"y1", (0, 2))
    second.commit_transaction()
    machine.acknowledged.add(b"y1")
    first.begin_transaction()
    machine.aborted.add(b"x3")
    machine.write(first, b"x3", (0, 1))
    machine.commit(machine.producer("x"), b"x4")
    second.begin_transaction()
    machine.aborted.add(b"y2")
    machine.write(second, b"y2", (2,))


def check(machine, acknowledged, aborted):
    """Restart both transactional ids and check the contents."""
    machine.open()
    for transactional_id in ("x", "y"):
        machine.producer(transactional_id)
    for number in PARTITIONS:
        check_settled(machine.broker.log("t", number))
    check_settled(machine.broker.log(GROUP_OFFSETS_TOPIC))
    seen = machine.seen()
    assert acknowledged <= seen.keys(), "committed records are lost"
    assert not aborted & seen.keys(), "aborted or uncommitted records are visible"
    for name, partitions in seen.items():
        assert partitions == list(PARTITIONS), f"only part of {name} is seen"
    newest = max(seen, key=COMMITS.index)
    offsets = machine.broker.groups.committed("g")
    assert offsets == {SOURCE: OffsetAndMetadata(7, newest.decode())}, f"not the offset of {newest}"
    states = machine.broker.coordinator.transactions().values()
    assert all(each.state.is_idle for each in states)
    for name in (b"later", b"later still"):
        machine.commit(machine.producer("x"), name)
    assert machine.seen()[b"later still"] == list(PARTITIONS)
    return seen


def check_settled(log):
    where = log.topic_partition
    assert log.last_stable_offset == log.high_watermark, f"{where} has an open transaction"


def enumerate_crashes(profile):
    clock = VirtualClock()
    prepared = Machine(clock)
    prepare(prepared)
    image = prepared.fs.crash(KEPT)
    seen_states, points, outcomes = set(), 0, set()
    number = 1
    while True:
        machine = Machine(clock, image)
        machine.acknowledged = {b"before"}
        machine.fs.crash_at(number)
        try:
            work(machine)
        except SimulatedCrash:
            points += 1
        else:
            return points, len(seen_states), outcomes
        for mode in modes(machine.fs, profile):
            left = machine.fs.crash(mode)
            key = (fingerprint(left), frozenset(machine.acknowledged))
            if key in seen_states:
                continue
            seen_states.add(key)
            again = Machine(clock, left)
            try:
                seen = check(again, machine.acknowledged, machine.aborted)
            except Exception as error:
                raise AssertionError(
                    f"crash at {machine.fs.operations[-1]}, {mode}: {error!r}"
                ) from error
            outcomes.add(frozenset(seen))
        number += profile.stride


@pytest.mark.parametrize(
    "profile",
    (
        pytest.param(BOUNDED, id="bounded", marks=pytest.mark.slow),
        pytest.param(FULL, id="full", marks=pytest.mark.long),
    ),
)
def test_every_transaction_is_atomic_after_a_crash_at_any_operation(profile):
    points, states, outcomes = enumerate_crashes(profile)
    assert points * profile.stride > 60
    assert states > points
    assert {frozenset((b"before",)), frozenset((b"before", b"x1", b"y1", b"x4"))} <= outcomes
