"""Arguments and configs that clients refuse: the type and the whole message of the error."""

import logging

import pytest

from logstore import Broker, Cluster, TopicPartition, VirtualClock
from logstore.coordinator.groups.requests import ConsumerHeartbeatResult, JoinResult
from logstore.errors import (
    ConcurrentTransactionsError,
    FencedInstanceIdError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    IllegalStateError,
    InconsistentGroupProtocolError,
    InvalidConfigurationError,
    InvalidGroupIdError,
    InvalidRecordError,
    InvalidSessionTimeoutError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    RequestError,
    WakeupError,
)

T0 = TopicPartition("t", 0)


@pytest.fixture
def broker():
    config = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    with Broker(clock=VirtualClock(), seed=1, broker_config=config) as broker:
        broker.create_topic("t")
        yield broker


class Listener:
    def on_partitions_revoked(self, _):
        """Ignore them."""

    on_partitions_assigned = on_partitions_revoked

    def __repr__(self):
        return "Listener()"


class HalfListener:
    def on_partitions_revoked(self, _):
        """Ignore them."""

    def __repr__(self):
        return "HalfListener()"


class OtherHalf:
    def on_partitions_assigned(self, _):
        """Ignore them."""

    def __repr__(self):
        return "OtherHalf()"


def refused(call, error, message):
    with pytest.raises(error) as raised:
        call()
    assert (type(raised.value), str(raised.value)) == (error, message)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    (
        (("t",), TypeError, "topics must be a list, not the string 't'"),
        (
            (["t", T0],),
            TypeError,
            f"a topic must be a string, not {T0!r}; for partitions, use assign()",
        ),
        ((), ValueError, "pass either topics or a pattern"),
        ((["t"], "t.*"), ValueError, "pass either topics or a pattern"),
        (([], 5), TypeError, "a pattern must be a string, not 5"),
        (
            (["t"], None, HalfListener()),
            TypeError,
            "a rebalance listener needs a method on_partitions_assigned: HalfListener()",
        ),
        (
            (["t"], None, OtherHalf()),
            TypeError,
            "a rebalance listener needs a method on_partitions_revoked: OtherHalf()",
        ),
    ),
)
def test_subscriptions(broker, arguments, error, message):
    """A refused subscription does not replace the current one."""
    consumer = broker.consumer(group_id="g")
    consumer.subscribe(["t"], listener=Listener())
    refused(lambda: consumer.subscribe(*arguments), error, message)
    assert consumer.subscription() == {"t"}


def test_a_subscription_has_one_kind(broker):
    consumer = broker.consumer(group_id="g")
    message = (
        "subscription by topics, subscription by pattern and assignment of partitions are mutually"
        " exclusive"
    )
    kinds = {
        "topics": lambda: consumer.subscribe(["t"]),
        "pattern": lambda: consumer.subscribe(pattern="t"),
        "partitions": lambda: consumer.assign([T0]),
    }
    for first, begin in kinds.items():
        begin()
        for second, change in kinds.items():
            if first != second:
                refused(change, IllegalStateError, message)
        begin()
        consumer.unsubscribe()


def test_calls_of_a_consumer_without_partitions(broker):
    consumer = broker.consumer(group_id="g", client_id="me")
    name = "Consumer(me, group_id='g')"
    refused(consumer.seek_to_beginning, ValueError, f"{name} has no assigned partitions")
    refused(consumer.seek_to_end, ValueError, f"{name} has no assigned partitions")
    refused(consumer.poll, IllegalStateError, "call subscribe() or assign() before reading")
    for call in (consumer.pause, consumer.resume, consumer.seek_to_end):
        with pytest.raises((IllegalStateError, ValueError)) as raised:
            call(T0)
        assert str(raised.value) == f"t-0 is not assigned to {name}"
    consumer.assign([T0])
    consumer.wakeup()
    refused(consumer.poll, WakeupError, f"{name} was woken up")
    assert consumer.poll() == {}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    (
        ({"timeout_ms": -1}, ValueError, "timeout_ms must not be negative: -1"),
        ({"max_records": 0}, ValueError, "max_records must be positive: 0"),
        ({"max_records": "5"}, TypeError, "max_records must be an int, not '5'"),
    ),
)
def test_polls(broker, arguments, error, message):
    consumer = broker.consumer()
    consumer.assign([T0])
    refused(lambda: consumer.poll(**arguments), error, message)
    assert consumer.poll(timeout_ms=0, max_records=1) == {}


@pytest.mark.parametrize("group_id", (None, "g"))
def test_a_partition_without_an_offset(broker, group_id):
    consumer = broker.consumer(group_id=group_id, auto_offset_reset="none")
    consumer.assign([T0])
    message = "t-0: no committed offset, and auto_offset_reset is 'none'"
    refused(consumer.poll, NoOffsetForPartitionError, message)
    consumer.seek_to_beginning()
    assert consumer.poll() == {}


@pytest.mark.parametrize(
    ("configs", "message"),
    (
        ({"group_protocol": "raft"}, "group_protocol must be classic or consumer, not 'raft'"),
        (
            {"group_protocol": "consumer", "session_timeout_ms": 10_000},
            "session_timeout_ms cannot be set with group_protocol consumer",
        ),
        (
            {"group_protocol": "classic", "group_remote_assignor": "range"},
            "group_remote_assignor cannot be set with group_protocol classic",
        ),
        (
            {"group_protocol": "consumer", "group_remote_assignor": ""},
            "group_remote_assignor must be a non-empty string, not ''",
        ),
        ({"group_id": ""}, "group_id must be a non-empty string, not ''"),
        (
            {"group_id": None, "group_instance_id": "i"},
            "group_instance_id requires group_id",
        ),
        (
            {"isolation_level": "log_end"},
            "isolation_level must be read_uncommitted or read_committed, not 'log_end'",
        ),
        (
            {"auto_offset_reset": "first"},
            "auto_offset_reset must be earliest, latest or none, not 'first'",
        ),
        (
            {"partition_assignment_strategy": "range"},
            "partition_assignment_strategy must be a list of assignors, not 'range'",
        ),
        (
            {"partition_assignment_strategy": ["range", "cooperative-sticky"]},
            "partition_assignment_strategy mixes eager and cooperative assignors: range,"
            " cooperative-sticky",
        ),
    ),
)
def test_configs_of_a_consumer(broker, configs, message):
    configs = {"group_id": "g"} | configs
    refused(lambda: broker.consumer(**configs), InvalidConfigurationError, message)


@pytest.mark.parametrize(
    ("call", "message"),
    (
        (
            lambda broker: broker.read("t", offset="middle").__next__(),
            "an offset must be a number, 'earliest' or 'latest', not 'middle'",
        ),
        (
            lambda broker: broker.delete_records({T0: "earliest"}),
            "expected an offset or 'latest', not 'earliest'",
        ),
        (
            lambda broker: broker.batch_writer("t", batch_records=0).__enter__(),
            "batch_records must be at least 1: 0",
        ),
    ),
)
def test_arguments_of_a_broker(broker, call, message):
    refused(lambda: call(broker), InvalidConfigurationError, message)


# -- groups ----------------------------------------------------------------------------------------

REFUSALS = {
    "classic": {
        "FENCED_INSTANCE_ID": FencedInstanceIdError,
        "GROUP_MAX_SIZE_REACHED": GroupMaxSizeReachedError,
        "INCONSISTENT_GROUP_PROTOCOL": InconsistentGroupProtocolError,
        "INVALID_GROUP_ID": InvalidGroupIdError,
        "INVALID_SESSION_TIMEOUT": InvalidSessionTimeoutError,
        "NOT_COORDINATOR": RequestError,
    },
    "consumer": {
        "FENCED_INSTANCE_ID": FencedInstanceIdError,
        "GROUP_ID_NOT_FOUND": GroupIdNotFoundError,
        "GROUP_MAX_SIZE_REACHED": GroupMaxSizeReachedError,
        "INVALID_GROUP_ID": InvalidGroupIdError,
        "INVALID_REQUEST": RequestError,
        "NOT_COORDINATOR": RequestError,
    },
}


@pytest.mark.parametrize(
    ("protocol", "error"), [(each, error) for each in REFUSALS for error in REFUSALS[each]]
)
def test_a_group_that_refuses_a_consumer(broker, monkeypatch, protocol, error):
    groups = type(broker.groups)
    if protocol == "classic":
        monkeypatch.setattr(
            groups, "join", lambda _, request, done: done(JoinResult(request.member_id, error))
        )
    else:
        result = ConsumerHeartbeatResult(error=error)
        monkeypatch.setattr(groups, "consumer_heartbeat", lambda _, request, done: done(result))
    consumer = broker.consumer("t", group_id="g", group_protocol=protocol)
    message = f"group 'g' rejected this consumer: {error}"
    if (protocol, error) == ("classic", "NOT_COORDINATOR"):
        message = f"cannot join group 'g': {error}"
    refused(lambda: consumer.poll(timeout_ms=1000), REFUSALS[protocol][error], message)


def test_the_message_of_a_refusal_is_the_coordinators(broker):
    consumer = broker.consumer(
        "t", group_id="g", group_protocol="consumer", group_remote_assignor="best"
    )
    message = (
        "group 'g' rejected this consumer: ServerAssignor best is not supported. Supported"
        " assignors: uniform, range."
    )
    refused(lambda: consumer.poll(timeout_ms=1000), RequestError, message)


# -- producers -------------------------------------------------------------------------------------


def test_retries_of_a_batch_are_logged_and_counted(broker, caplog):
    producer = broker.producer(retries=1, retry_backoff_ms=100, acks=1)
    began_ms = broker.clock.now_ms()
    with caplog.at_level(logging.INFO), broker.fail("append", error="NOT_ENOUGH_REPLICAS", times=2):
        future = producer.send("t", b"1")
        producer.flush()
    assert type(future.exception).__name__ == "NotEnoughReplicasError"
    assert broker.clock.now_ms() - began_ms == 100
    error = str(future.exception)
    assert [each for each in caplog.messages if each.startswith("t-0: ")] == [
        f"t-0: retrying a batch after: {error}",
        f"t-0: a batch of 1 records was rejected: {error}",
    ]


def test_a_transaction_that_cannot_be_aborted_is_logged_when_its_producer_is_closed(
    broker, monkeypatch, caplog
):
    producer = broker.producer(transactional_id="x")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"1")
    producer.flush()

    def refuse(*_, **__):
        raise ConcurrentTransactionsError("it is being completed")

    monkeypatch.setattr(type(broker.coordinator), "end_transaction", refuse)
    name = repr(producer)
    producer.close()
    assert caplog.messages == [
        f"{name}: the open transaction was not aborted: it is being completed"
    ]


@pytest.mark.parametrize("keyless", ((1,), (0, 2)))
def test_records_of_a_batch_with_invalid_records(broker, keyless):
    """Each record has its own error; the valid ones may be sent again."""
    broker.create_topic("c", configs={"cleanup.policy": "compact"})
    producer = broker.producer(linger_ms=1000)
    futures = [
        producer.send("c", b"v", key=None if number in keyless else b"k") for number in range(3)
    ]
    producer.flush()
    for number, future in enumerate(futures):
        error = future.exception
        if number in keyless:
            assert (type(error), str(error)) == (
                InvalidRecordError,
                "Compacted topic cannot accept message without key",
            )
        else:
            assert (type(error), str(error)) == (
                RequestError,
                "the record was not stored: other records in its batch are invalid",
            )
    assert broker.log("c").log_end_offset == 0


def test_a_task_that_runs_during_a_retry_cannot_wait_for_its_record(broker):
    """Its record is sent after the retry."""
    producer = broker.producer(retries=1, retry_backoff_ms=100, linger_ms=0)
    messages = []

    def send():
        with pytest.raises(IllegalStateError) as raised:
            producer.send("t", b"2").get()
        messages.append(str(raised.value))

    broker.runtime.scheduler.start()
    broker.runtime.scheduler.schedule("send", send, delay_ms=50)
    with broker.fail("append", error="NOT_ENOUGH_REPLICAS", times=1):
        assert producer.send("t", b"1").get().offset == 0
    assert messages == [
        "a producer cannot send a batch in a task that runs while its last batch is being retried"
    ]
    assert [record.value for record in broker.read("t")] == [b"1", b"2"]


def test_a_callback_that_fails_is_logged_and_the_others_are_called(broker, caplog):
    producer = broker.producer(linger_ms=1000)
    called = []

    def fail(_):
        raise ValueError("mine")

    future = producer.send("t", b"1").add_callback(fail).add_callback(called.append)
    producer.flush()
    assert called == [future.get()]
    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == (
        "ERROR",
        "a callback of a sent record failed",
    )
    assert str(record.exc_info[1]) == "mine"


def test_a_coordinator_that_stays_away():
    config = {"transaction.state.log.num.partitions": 1}
    with Cluster(3, clock=VirtualClock(), broker_config=config, seed=1) as cluster:
        cluster.create_topic("t", replication_factor=3)
        coordinator = cluster.transaction_coordinator("x")
        other = (coordinator + 1) % 3
        producer = cluster.brokers[other].producer(
            transactional_id="x", retry_backoff_ms=100, max_block_ms=1000
        )
        cluster.disconnect({other}, {coordinator})
        began_ms = cluster.clock.now_ms()
        with pytest.raises(KafkaTimeoutError) as raised:
            producer.init_transactions()
        assert str(raised.value) == (
            "the coordinator of 'x' was not available within 1000 ms: the transaction coordinator"
            " of 'x' is not available"
        )
        assert cluster.clock.now_ms() - began_ms == 1000
        cluster.heal()
        producer.init_transactions()
