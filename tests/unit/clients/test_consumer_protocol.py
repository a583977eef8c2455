"""The in-process consumer with `group_protocol="consumer"` (KIP-848)."""

import pytest

from logstore import Broker
from logstore.coordinator.groups.offsets import OffsetAndMetadata
from logstore.errors import (
    CommitFailedError,
    IllegalGenerationError,
    InvalidConfigurationError,
    RequestError,
)
from logstore.runtime import VirtualClock
from logstore.types import TopicPartition


@pytest.fixture
def broker():
    config = {"group.consumer.assignment.interval.ms": 0}
    with Broker(clock=VirtualClock(), broker_config=config) as broker:
        broker.create_topic("t", 4)
        producer = broker.producer()
        for number in range(40):
            producer.send("t", value=str(number).encode(), partition=number % 4)
        producer.flush()
        yield broker


class Listener:
    def __init__(self):
        self.calls = []

    def on_partitions_revoked(self, partitions):
        self.calls.append(("revoked", sorted(tp.partition for tp in partitions)))

    def on_partitions_assigned(self, partitions):
        self.calls.append(("assigned", sorted(tp.partition for tp in partitions)))

    def on_partitions_lost(self, partitions):
        self.calls.append(("lost", sorted(tp.partition for tp in partitions)))


def member(broker, **configs):
    consumer = broker.consumer(
        group_id="g", group_protocol="consumer", auto_offset_reset="earliest", **configs
    )
    listener = Listener()
    consumer.subscribe(["t"], listener=listener)
    return consumer, listener


def values(consumer, polls=3):
    found = (records for _ in range(polls) for records in consumer.poll(100).values())
    return sorted(int(record.value) for records in found for record in records)


def test_members_share_the_partitions_step_by_step(broker):
    a, heard_a = member(broker)
    assert values(a) == list(range(40))
    b, heard_b = member(broker)
    for _ in range(3):
        assert values(a, 1) == values(b, 1) == [], "the first member has committed"
    assert heard_a.calls == [("assigned", [0, 1, 2, 3]), ("revoked", [2, 3])]
    assert heard_b.calls == [("assigned", [2, 3])]
    assert a.group_metadata().generation_id == b.group_metadata().generation_id == 3
    a.close()
    values(b)
    assert {tp.partition for tp in b.assignment()} == {0, 1, 2, 3}
    assert heard_a.calls[-1] == ("revoked", [0, 1])


def test_a_crashed_member_is_replaced_after_its_session(broker):
    a, _ = member(broker, enable_auto_commit=False)
    values(a)
    a.crash()
    b, _ = member(broker)
    assert values(b) == []
    for _ in range(46):
        b.poll(1000)
    assert len(b.assignment()) == 4


def test_a_static_member_keeps_its_partitions_while_it_is_away(broker):
    a, _ = member(broker, group_instance_id="i")
    values(a)
    a.close()
    b, _ = member(broker)
    values(b)
    assert b.assignment() == set()
    again, _ = member(broker, group_instance_id="i")
    values(again)
    values(b)
    values(again)
    assert len(again.assignment()) == len(b.assignment()) == 2
    with pytest.raises(RequestError, match="owned by"):
        member(broker, group_instance_id="i")[0].poll(0)


def test_a_removed_member_loses_its_partitions_and_rejoins(broker):
    a, heard = member(broker)
    values(a)
    admin = broker.admin()
    (described,) = admin.describe_groups(["g"]).values()
    (found,) = described["members"]
    assert described["group_state"] == "Stable"
    assert found["member_epoch"] == 2
    assert len(found["member_assignment"].partitions) == 4
    broker.groups.leave("g", [(found["member_id"], None)])
    with pytest.raises(CommitFailedError):
        a.commit()
    values(a)
    assert heard.calls[1:] == [("lost", [0, 1, 2, 3]), ("assigned", [0, 1, 2, 3])]


def test_offsets_of_a_transaction_name_the_member(broker):
    a, _ = member(broker, enable_auto_commit=False)
    values(a)
    producer = broker.producer(transactional_id="x")
    producer.init_transactions()
    producer.begin_transaction()
    tp = TopicPartition("t", 0)
    offsets = {tp: OffsetAndMetadata(5)}
    stale = a.group_metadata()._replace(generation_id=9)
    with pytest.raises(IllegalGenerationError):
        producer.send_offsets_to_transaction(offsets, stale)
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send_offsets_to_transaction(offsets, a.group_metadata())
    producer.commit_transaction()
    assert a.committed(tp) == 5


def test_another_subscription_and_new_partitions(broker):
    broker.create_topic("u", 1)
    a, _ = member(broker)
    values(a)
    a.subscribe(["t", "u"])
    values(a)
    assert len(a.assignment()) == 5
    broker.create_partitions("t", 6)
    values(a)
    assert len(a.assignment()) == 7
    a.unsubscribe()
    assert broker.groups.list_groups()[0].state == "Empty"


def test_a_consumer_that_does_not_poll_leaves(broker):
    a, heard = member(broker, max_poll_interval_ms=10_000)
    values(a)
    broker.runtime.clock.advance(ms=20_000)
    assert broker.groups.list_groups()[0].state == "Empty"
    values(a)
    assert heard.calls[1:] == [("lost", [0, 1, 2, 3]), ("assigned", [0, 1, 2, 3])]


def test_members_of_both_protocols_are_in_one_group(broker):
    old = broker.consumer("t", group_id="g", auto_offset_reset="earliest")
    assert len(values(old)) == 40
    new, _ = member(broker)
    for _ in range(6):
        values(old, 1)
        values(new, 1)
    assert len(old.assignment()) == len(new.assignment()) == 2
    new.close()
    for _ in range(6):
        values(old, 1)
    assert len(old.assignment()) == 4
    assert broker.groups.list_groups()[0].group_type == "classic"


@pytest.mark.parametrize(
    "configs",
    (
        {"group_protocol": "other"},
        {"group_protocol": "consumer", "session_timeout_ms": 9000},
        {"group_protocol": "consumer", "heartbeat_interval_ms": 1000},
        {"group_protocol": "consumer", "partition_assignment_strategy": ["range"]},
        {"group_remote_assignor": "range"},
    ),
)
def test_configs_of_the_other_protocol_are_refused(broker, configs):
    with pytest.raises(InvalidConfigurationError):
        broker.consumer(group_id="g", **configs)


def test_the_assignor_of_the_broker_is_selected(broker):
    a, _ = member(broker, group_remote_assignor="range")
    values(a)
    assert broker.groups.describe_consumer_group("g").assignor == "range"
    other, _ = member(broker, group_remote_assignor="sticky")
    with pytest.raises(RequestError, match="not supported"):
        other.poll(0)
