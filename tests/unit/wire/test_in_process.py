"""Clients in the broker's process while it listens on a virtual clock."""

import threading

import pytest
from kafka import KafkaAdminClient, KafkaProducer

from logstore import Broker, NewTopic, TopicPartition, VirtualClock
from logstore.runtime import Deadlock
from logstore.runtime.clock import VIRTUAL_EPOCH_MS

T0 = TopicPartition("t", 0)

pytestmark = pytest.mark.timeout(30)

CONFIG = {"offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 0}


@pytest.fixture(params=("memory", "disk"))
def broker(request, tmp_path):
    directory = None if request.param == "memory" else tmp_path / "data"
    with Broker(directory, clock=VirtualClock(), broker_config=CONFIG) as broker:
        broker.create_topic("t")
        yield broker


@pytest.fixture(autouse=True)
def listener(broker):
    with broker.listen() as listener:
        yield listener


def passed_ms(broker):
    return broker.clock.now_ms() - VIRTUAL_EPOCH_MS


def reader(broker, **configs):
    consumer = broker.consumer(auto_offset_reset="earliest", **configs)
    consumer.assign([T0])
    return consumer


@pytest.mark.parametrize("group_id", (None, "g"))
def test_a_poll_with_nothing_to_read_returns_at_its_timeout(broker, group_id):
    consumer = reader(broker, group_id=group_id)
    for round_number in (1, 2):
        assert consumer.poll(timeout_ms=20) == {}
        assert passed_ms(broker) == 20 * round_number, "the clock is at the end of the timeout"
    broker.append("t", value=b"x")
    assert [record.value for record in consumer.poll(timeout_ms=20)[T0]] == [b"x"]
    assert passed_ms(broker) == 40, "no wait, no time"


def test_a_member_of_a_group_waits_no_longer_than_its_timeout(broker):
    consumer = broker.consumer("t", group_id="g", auto_offset_reset="earliest")
    while not consumer.assignment():
        consumer.poll(timeout_ms=20)
    begun_ms = passed_ms(broker)
    assert consumer.poll(timeout_ms=20) == {}
    assert passed_ms(broker) == begun_ms + 20


def test_an_iteration_ends_after_its_timeout(broker):
    broker.append("t", value=b"x")
    assert [record.value for record in reader(broker, consumer_timeout_ms=20)] == [b"x"]
    assert passed_ms(broker) == 20


def test_a_task_due_in_virtual_time_ends_a_wait(broker):
    broker.producer(linger_ms=10).send("t", b"x")
    [record] = reader(broker).poll(timeout_ms=60_000)[T0]
    assert record.value == b"x"
    assert 10 <= passed_ms(broker) < 60_000


def in_thread(action):
    thread = threading.Thread(target=action)
    thread.start()
    return thread


@pytest.mark.parametrize("timeout_ms", (60_000, float("inf")))
def test_a_record_of_a_client_over_the_wire_ends_a_wait(broker, listener, timeout_ms):
    def send():
        producer = KafkaProducer(bootstrap_servers=listener.bootstrap)
        producer.send("t", b"x").get(20)
        producer.close()

    consumer = reader(broker)
    thread = in_thread(send)
    assert [record.value for record in consumer.poll(timeout_ms=timeout_ms)[T0]] == [b"x"]
    assert passed_ms(broker) < 60_000
    thread.join()


def test_a_wait_without_a_timeout_is_not_a_deadlock_while_clients_may_end_it(broker, listener):
    def create():
        admin = KafkaAdminClient(bootstrap_servers=listener.bootstrap)
        admin.create_topics(["made"])
        admin.close()

    thread = in_thread(create)
    assert broker.run_until(lambda: "made" in {topic.name for topic in broker.topics()})
    thread.join()
    assert passed_ms(broker) == 0
    listener.close()
    with pytest.raises(Deadlock):
        broker.run_until(lambda: False)


def test_a_client_deletes_a_topic_that_is_being_cleaned(broker, listener, monkeypatch):
    broker.create_topic("compacted", configs={"cleanup.policy": "compact"})
    for _ in range(3):
        broker.append_many("compacted", [(b"k", b"v")] * 9)
        broker.roll("compacted")
    states, check = broker.cleaner.states, broker.cleaner.states.check_not_aborted
    is_cleaning = threading.Event()
    errors = []

    def wait_for_the_client(tp):
        is_cleaning.set()
        pause = threading.Event()
        while states.is_in_progress(tp):
            pause.wait(0.001)
        check(tp)

    def delete():
        admin = KafkaAdminClient(bootstrap_servers=listener.bootstrap)
        assert is_cleaning.wait(20)
        errors.append(admin.delete_topics(["compacted"])["topics"][0]["error_code"])
        admin.close()

    monkeypatch.setattr(states, "check_not_aborted", wait_for_the_client)
    thread = in_thread(delete)
    broker.clean("compacted", force=True)
    thread.join()
    assert errors == [0]
    assert [topic.name for topic in broker.topics()] == ["t"]


def retrying_producer(broker):
    broker.fail("append", times=2, error="NOT_LEADER_OR_FOLLOWER")
    assert broker.producer().send("t", b"x").get().offset == 0


def lingering_producer(broker):
    assert broker.producer(linger_ms=60_000).send("t", b"x").get().offset == 0


def transaction(broker):
    with broker.producer(transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        broker.fail("append", topic="t", times=2, error="NOT_LEADER_OR_FOLLOWER")
        producer.send("t", b"x")
        producer.commit_transaction()
    assert len(list(broker.read("t", isolation="read_committed"))) == 1


def fetch_that_is_refused(broker):
    broker.append("t", value=b"x")
    broker.fail("fetch", times=2, error="NOT_LEADER_OR_FOLLOWER")
    assert len(reader(broker, retry_backoff_ms=5).poll(60_000)[T0]) == 1


def join_that_is_refused(broker):
    broker.append("t", value=b"x")
    broker.fail("join", times=2, error="COORDINATOR_NOT_AVAILABLE")
    configs = {"group_id": "g", "auto_offset_reset": "earliest", "retry_backoff_ms": 5}
    assert len(broker.consumer("t", **configs).poll(60_000)[T0]) == 1


def commit_that_is_refused(broker):
    broker.append("t", value=b"x")
    consumer = reader(broker, group_id="g")
    consumer.poll()
    broker.fail("commit", times=2, error="COORDINATOR_NOT_AVAILABLE")
    consumer.commit()
    assert consumer.committed(T0) == 1


def slow_request(broker):
    broker.fail("fetch", delay=60_000)
    assert reader(broker).poll(20) == {}


def administration(broker):
    admin = broker.admin()
    admin.create_topics([NewTopic("made", 1, 1)])
    admin.delete_topics(["made"])
    admin.delete_records({T0: 0})


@pytest.mark.parametrize(
    "action",
    (
        retrying_producer,
        lingering_producer,
        transaction,
        fetch_that_is_refused,
        join_that_is_refused,
        commit_that_is_refused,
        slow_request,
        administration,
    ),
    ids=lambda action: action.__name__,
)
def test_no_call_hangs_while_the_broker_listens(broker, action):
    action(broker)
