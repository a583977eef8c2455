"""Producer configs: partitioners, serializers and others."""

import pytest

from logstore import Broker, InvalidConfigurationError, VirtualClock
from logstore.clients.producer_config import DEFAULTS
from logstore.clients.settings import ProducerSettings
from tests.support.world.messages import exactly
from tests.support.world.transactions import stamps


@pytest.fixture
def broker():
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("t", 3)
        yield broker


# -- partitions ------------------------------------------------------------------------------


def test_keys_go_where_kafkas_partitioner_sends_them(broker):
    producer = broker.producer()
    for number in range(20):
        key = b"key %d" % number
        partition = producer.send("t", b"v", key).get().partition
        assert partition == broker.append("t", value=b"v", key=key).partition


def test_records_without_a_key_go_round_robin_a_batch_to_one_partition(broker):
    producer = broker.producer()
    assert [producer.send("t", b"v").get().partition for _ in range(4)] == [0, 1, 2, 0]
    lingering = broker.producer(linger_ms=10)
    found = []
    for _ in range(3):
        futures = [lingering.send("t", b"v") for _ in range(3)]
        lingering.flush()
        found.append([future.value.partition for future in futures])
    assert found == [[0] * 3, [1] * 3, [2] * 3]


def test_a_partitioner_of_kafka_pythons_shape_chooses(broker):
    asked = []

    class Last:
        def partition(self, topic, key, serialized_key, value, serialized_value, cluster):
            assert cluster.topics() == {"t"}
            assert cluster.available_partitions_for_topic(topic) == {0, 1, 2}
            assert cluster.partitions_for_topic("none") is None
            asked.append((topic, key, serialized_key, value, serialized_value))
            return max(cluster.partitions_for_topic(topic))

    producer = broker.producer(
        partitioner=Last(), key_serializer=str.encode, value_serializer=str.encode
    )
    assert producer.send("t", "v", "k").get().partition == 2
    assert producer.send("t", "v", "k", partition=0).get().partition == 0
    assert asked == [("t", "k", b"k", "v", b"v")]


def test_a_partitioner_of_the_older_shape_chooses(broker):
    asked = []
    producer = broker.producer(partitioner=lambda *args: asked.append(args) or args[1][-1])
    assert producer.send("t", b"v", b"k").get().partition == 2
    assert asked == [(b"k", [0, 1, 2], [0, 1, 2])]


def test_a_sticky_partitioner_is_notified_of_new_batches(broker):
    class Sticky:
        def __init__(self):
            self.number = 0
            self.told = []

        def partition(self, *_):
            return self.number

        def on_new_batch(self, topic, _cluster, previous):
            self.told.append((topic, previous))
            self.number = (self.number + 1) % 3

    partitioner = Sticky()
    producer = broker.producer(partitioner=partitioner, linger_ms=10, batch_size=61 + 2 * 121)
    futures = [producer.send("t", b"x" * 100) for _ in range(4)]
    producer.send("t", b"x", b"key")
    assert [future.get().partition for future in futures] == [1, 1, 2, 2]
    assert partitioner.told == [("t", 0), ("t", 1)]


def test_a_partitioner_that_names_no_partition_is_refused(broker):
    for chosen in (None, 3, "0"):
        producer = broker.producer(partitioner=lambda *_, chosen=chosen: chosen)
        with pytest.raises(ValueError, match="no partition"):
            producer.send("t", b"v")


# -- serializers -----------------------------------------------------------------------------


def test_serializers_of_all_three_shapes(broker):
    class New:
        closed = 0

        def serialize(self, topic, headers, data):
            return f"{topic} {headers} {data}".encode()

        def close(self):
            self.closed += 1

    class Old:
        def serialize(self, topic, data):
            return f"{topic} {data}".encode()

    new = New()
    with broker.producer(key_serializer=new, value_serializer=Old()) as producer:
        producer.send("t", 7, 8, [("h", b"1")], 0)
    assert new.closed == 1
    producer = broker.producer(value_serializer=lambda data: data and b"<%d>" % data)
    producer.send("t", 9, partition=0)
    producer.send("t", None, b"k", partition=0)
    assert [(r.key, r.value) for r in broker.read("t", 0)] == [
        (b"t [('h', b'1')] 8", b"t 7"),
        (None, b"<9>"),
        (b"k", None),
    ]


def test_send_raises_the_errors_of_a_serializer(broker):
    producer = broker.producer(value_serializer=lambda data: 1 // data)
    with pytest.raises(ZeroDivisionError):
        producer.send("t", 0)
    with pytest.raises(TypeError, match="a serialized value must be bytes or None, not int"):
        producer.send("t", 1)


# -- configuration -------------------------------------------------------------------------------


def test_configs_of_kafka_pythons_that_mean_nothing_here_are_accepted(broker):
    idle = ProducerSettings.__optional_keys__ - DEFAULTS.keys()
    producer = broker.producer(**dict.fromkeys(idle, "anything"))
    assert producer.send("t", b"v").succeeded()


def test_an_unknown_config_is_refused_with_the_nearest(broker):
    with pytest.raises(InvalidConfigurationError, match="'linger_ms'"):
        broker.producer(linger_msec=5)
    with pytest.raises(ValueError, match="'transactional_id'"):
        broker.producer(transaction_id="x")


@pytest.mark.parametrize(
    ("configs", "message"),
    (
        ({"acks": 2}, "acks must be 0, 1, -1 or 'all', not 2"),
        ({"acks": "none"}, "acks must be 0, 1, -1 or 'all', not 'none'"),
        (
            {"compression_type": "brotli"},
            ("unknown compression name: brotli (known: none, gzip, snappy, lz4, zstd)"),
        ),
        ({"compression_type": 1}, "compression_type must be a name or None, not 1"),
        ({"batch_size": -1}, "batch_size is out of range: -1"),
        ({"linger_ms": -1}, "linger_ms is out of range: -1"),
        ({"linger_ms": float("nan")}, "linger_ms is out of range: nan"),
        ({"linger_ms": "5"}, "linger_ms must be a number, not '5'"),
        ({"max_request_size": None}, "max_request_size must be a number, not None"),
        ({"transaction_timeout_ms": 0}, "transaction_timeout_ms is out of range: 0"),
        ({"transactional_id": ""}, "transactional_id must be a non-empty string, not ''"),
        ({"transactional_id": b"x"}, "transactional_id must be a non-empty string, not b'x'"),
        (
            {"transactional_id": "x", "enable_idempotence": False},
            "transactional_id requires enable_idempotence",
        ),
        ({"transactional_id": "x", "acks": 1}, "enable_idempotence conflicts with acks=1"),
        ({"transactional_id": "x", "retries": 0}, "enable_idempotence conflicts with retries=0"),
        ({"enable_idempotence": True, "acks": 0}, "enable_idempotence conflicts with acks=0"),
        ({"enable_idempotence": True, "retries": 0}, "enable_idempotence conflicts with retries=0"),
        (
            {"enable_idempotence": True, "max_in_flight_requests_per_connection": 6},
            ("enable_idempotence conflicts with max_in_flight_requests_per_connection=6"),
        ),
        ({"key_serializer": 7}, "key_serializer is not callable: 7"),
        ({"partitioner": 7}, "partitioner has no partition method: 7"),
    ),
)
def test_unsupported_configs_are_refused(broker, configs, message):
    with pytest.raises(InvalidConfigurationError, match=exactly(message)):
        broker.producer(**configs)
    broker.close()


@pytest.mark.parametrize(
    ("configs", "is_idempotent"),
    (
        ({}, True),
        ({"acks": "all", "retries": 3, "max_in_flight_requests_per_connection": 5}, True),
        ({"enable_idempotence": False}, False),
        ({"acks": 1}, False),
        ({"retries": 0}, False),
        ({"max_in_flight_requests_per_connection": 6}, False),
    ),
)
def test_a_producer_is_idempotent_unless_a_config_forbids_it(
    broker, configs, is_idempotent, caplog
):
    broker.producer(**configs).send("t", b"v", partition=0)
    (stamp,) = stamps(broker.log("t"))
    assert stamp[1:4] == ((0, 0, 0) if is_idempotent else (-1, -1, -1))
    assert ("not idempotent" in caplog.text) == (
        not is_idempotent and "enable_idempotence" not in configs
    )
