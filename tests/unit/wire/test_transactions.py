"""Producers and transactions over the wire, in old and new versions."""

import pytest

from logstore import Broker, VirtualClock
from logstore.coordinator.transactions.state import ProducerIdAndEpoch
from logstore.errors import KafkaStorageError
from logstore.messages.types import (
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    WriteTxnMarkersRequest,
)
from logstore.types import TopicPartition
from tests.support.world.wire import Client, name_of, versions
from tests.support.world.wire_transactions import (
    CONFIG,
    NOBODY,
    add,
    add_offsets,
    commit_offsets,
    end,
    init,
    produce,
    produced,
)


@pytest.fixture
def broker():
    with Broker(clock=VirtualClock(), broker_config=CONFIG) as broker:
        broker.create_topic("t", 2)
        yield broker


# -- ids -------------------------------------------------------------------------------------


def test_without_a_producer_id_on_disk_an_idempotent_producer_is_to_ask_again(
    broker, client, monkeypatch
):
    """As in Kafka: NOT_COORDINATOR makes Java's producer look for the coordinator of no id."""

    def fail():
        raise KafkaStorageError("the disk failed")

    monkeypatch.setattr(broker.coordinator, "new_producer_id", fail)
    assert init(client, transactional_id=None) == ("COORDINATOR_LOAD_IN_PROGRESS", NOBODY)


@versions("InitProducerId", 2, 3)
def test_ids_of_idempotent_producers_differ(client, version):
    told = [init(client, version, transactional_id=None) for _ in range(2)]
    assert [error for error, _ in told] == ["NONE", "NONE"]
    (first, epoch), (second, _) = (producer for _, producer in told)
    assert first != second
    assert epoch == 0


@versions("InitProducerId", 3)
def test_a_transactional_id_keeps_its_producer_id_and_gets_the_next_epoch(client, version):
    (_, first), (_, second) = init(client, version), init(client, version)
    assert second == (first.producer_id, first.producer_epoch + 1)


def test_only_the_newest_producer_gets_another_epoch(client):
    (_, first), (_, second) = init(client), init(client)
    assert init(client, 4, known=first) == ("PRODUCER_FENCED", NOBODY)
    assert init(client, 3, known=first) == ("INVALID_PRODUCER_EPOCH", NOBODY)
    (error, third) = init(client, 3, known=second)
    assert (error, third) == ("NONE", (second.producer_id, 2))
    assert init(client, 4, known=second) == ("NONE", third), "it did not hear the answer"


@pytest.mark.parametrize(
    ("fields", "error"),
    (
        ({"transactional_id": ""}, "INVALID_REQUEST"),
        ({"timeout_ms": 0}, "INVALID_TRANSACTION_TIMEOUT"),
        ({"timeout_ms": 10**9}, "INVALID_TRANSACTION_TIMEOUT"),
        ({"known": ProducerIdAndEpoch(1, -1)}, "INVALID_REQUEST"),
        ({"known": ProducerIdAndEpoch(-1, 1)}, "INVALID_REQUEST"),
    ),
)
def test_invalid_requests_get_no_producer_id(client, fields, error):
    assert init(client, 4, **fields) == (error, NOBODY)


# -- transactions ----------------------------------------------------------------------------


@pytest.mark.parametrize("commit", (True, False))
@versions("EndTxn", 2)
def test_a_transaction(broker, client, version, commit):
    _, producer = init(client)
    assert add(client, producer, ("t", 0), ("t", 1), version=min(version, 3)) == ["NONE"] * 2
    assert produce(client, producer) == "NONE"
    log = broker.log("t")
    assert (log.last_stable_offset, log.high_watermark) == (0, 1)
    assert end(client, producer, commit=commit, version=version) == "NONE"
    assert (log.last_stable_offset, log.high_watermark) == (2, 2)
    assert len(list(broker.read("t", 0, isolation="read_committed"))) == commit
    # once more is harmless, the other way is not
    assert end(client, producer, commit=commit, version=version) == "NONE"
    assert end(client, producer, commit=not commit, version=version) == "INVALID_TXN_STATE"


def test_a_partition_that_was_never_added_gets_no_data(broker, client):
    _, producer = init(client)
    assert produce(client, producer) == "INVALID_TXN_STATE"
    assert add(client, producer, ("t", 1)) == ["NONE"]
    refused = produced(client, producer)
    assert name_of(refused.error_code) == "INVALID_TXN_STATE"
    # as in Kafka: a text without details of the log
    assert refused.error_message
    assert refused.log_start_offset == -1
    refused = produced(client, producer, version=11)
    assert name_of(refused.error_code) == "TRANSACTION_ABORTABLE"
    assert broker.log("t").log_end_offset == 0


@pytest.mark.parametrize("version", range(4))
def test_one_partition_that_cannot_be_is_the_end_for_all(broker, client, version):
    _, producer = init(client)
    told = add(client, producer, ("t", 0), ("t", 7), ("no", 0), version=version)
    assert told == [
        "OPERATION_NOT_ATTEMPTED",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]
    assert broker.coordinator.transactions()["x"].state.kafka_name == "Empty"


def test_internal_topics_are_in_no_transaction(client):
    _, producer = init(client)
    assert add(client, producer, ("__consumer_offsets", 0)) == ["TOPIC_AUTHORIZATION_FAILED"]


@pytest.mark.parametrize(
    ("version", "error"), ((1, "INVALID_PRODUCER_EPOCH"), (2, "PRODUCER_FENCED"))
)
def test_an_old_producer_is_fenced_with_the_error_of_its_version(client, version, error):
    (_, old), (_, new) = init(client), init(client)
    assert add(client, old, ("t", 0), version=version) == [error]
    assert end(client, old, version=version) == error
    assert produce(client, old) == "INVALID_PRODUCER_EPOCH"
    assert add(client, new, ("t", 0), version=version) == ["NONE"]


@pytest.mark.parametrize("transactional_id", ("y", ""))
def test_an_unknown_transactional_id(client, transactional_id):
    _, producer = init(client)
    error = "INVALID_REQUEST" if not transactional_id else "INVALID_PRODUCER_ID_MAPPING"
    assert add(client, producer, ("t", 0), transactional_id=transactional_id) == [error]
    assert end(client, producer, transactional_id=transactional_id) == error


def test_a_transaction_that_takes_too_long_is_aborted():
    with Broker(clock=VirtualClock(), broker_config=CONFIG, background=True) as broker:
        broker.create_topic("t")
        with broker.listen() as listener, Client(listener) as client:
            _, producer = init(client)
            add(client, producer, ("t", 0))
            produce(client, producer)
            broker.clock.advance(minutes=1)
            assert broker.log("t").last_stable_offset == 2
            assert end(client, producer) == "PRODUCER_FENCED"


REQUESTS = {
    "InitProducerId": lambda client, producer: init(client)[0],
    "InitProducerId of another": lambda client, producer: init(client, transactional_id="y")[0],
    "AddPartitionsToTxn": lambda client, producer: add(client, producer, ("t", 1))[0],
    "AddOffsetsToTxn": lambda client, producer: add_offsets(client, producer),
    "EndTxn": lambda client, producer: end(client, producer),
    "EndTxn to abort": lambda client, producer: end(client, producer, commit=False),
}


@pytest.mark.parametrize(
    ("kind", "request_name"),
    (
        *(("append", name) for name in REQUESTS),
        *(("fsync", name) for name in REQUESTS if "another" not in name),  # which syncs nothing
    ),
)
def test_a_client_is_to_ask_again_while_the_disk_of_the_coordinator_fails(
    broker, client, kind, request_name
):
    """NOT_COORDINATOR, as in Kafka, and not the error of the disk, which clients do not expect."""
    _, producer = init(client)
    assert add(client, producer, ("t", 0)) == ["NONE"]
    assert produce(client, producer) == "NONE"
    ask = REQUESTS[request_name]
    with broker.fail(kind, error="EIO", topic="__transaction_state"):
        assert ask(client, producer) == "NOT_COORDINATOR"
    assert ask(client, producer) == "NOT_COORDINATOR", "the directory is offline"
    assert broker.coordinator.transactions()["x"].state.kafka_name == "Ongoing"


# -- offsets ---------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", (True, False))
@versions("TxnOffsetCommit", 2, 3)
def test_offsets_are_part_of_a_transaction(broker, client, version, commit):
    _, producer = init(client)
    assert add_offsets(client, producer, min(version, 3)) == "NONE"
    assert commit_offsets(client, producer, ("t", 0, 5, "m"), version=version) == ["NONE"]
    tp = TopicPartition("t", 0)
    stable = broker.groups.fetch("g", [tp], require_stable=True)[tp]
    assert stable.error == "UNSTABLE_OFFSET_COMMIT"
    assert end(client, producer, commit=commit) == "NONE"
    assert [each.offset for each in broker.groups.committed("g").values()] == [5] * commit


def test_offsets_of_a_transaction_are_refused_one_by_one(broker, client):
    _, producer = init(client)
    add_offsets(client, producer)
    rows = ("t", 0, 5, "m" * 5000), ("t", 1, 6, ""), ("no", 0, 7, "")
    assert commit_offsets(client, producer, *rows) == [
        "OFFSET_METADATA_TOO_LARGE",
        "NONE",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]


@pytest.mark.parametrize(
    ("fields", "error"),
    (
        ({"member_id": "nobody", "generation_id_or_member_epoch": 3}, "ILLEGAL_GENERATION"),
        ({"member_id": "nobody"}, "NONE"),  # an empty group accepts every commit without generation
    ),
)
def test_offsets_with_a_generation_are_refused_from_non_members(client, fields, error):
    _, producer = init(client)
    add_offsets(client, producer)
    assert (
        commit_offsets(client, producer, ("t", 0, 5, ""), ("t", 1, 5, ""), **fields) == [error] * 2
    )


def test_offsets_of_a_group_that_was_never_added_are_refused(broker, client):
    _, producer = init(client)
    add(client, producer, ("t", 0))
    offset = ("t", 0, 5, "")
    assert commit_offsets(client, producer, offset) == ["INVALID_TXN_STATE"]
    assert commit_offsets(client, producer, offset, version=4) == ["TRANSACTION_ABORTABLE"]
    assert broker.groups.committed("g") == {}


def test_an_old_producer_commits_no_offsets(client):
    (_, old), (_, _) = init(client), init(client)
    assert add_offsets(client, old) == "PRODUCER_FENCED"
    assert commit_offsets(client, old, ("t", 0, 5, "")) == ["INVALID_PRODUCER_EPOCH"]


# -- administration --------------------------------------------------------------------------


def test_transactions_are_described(broker, client):
    _, producer = init(client, timeout_ms=7000)
    add(client, producer, ("t", 1), ("t", 0))
    asked = DescribeTransactionsRequest(transactional_ids=["x", "none"])
    found, none = client.ask(asked, 0).transaction_states
    assert (found.transaction_state, found.transaction_timeout_ms) == ("Ongoing", 7000)
    assert (found.producer_id, found.producer_epoch) == producer
    assert found.transaction_start_time_ms == broker.clock.now_ms()
    assert [(each.topic, each.partitions) for each in found.topics] == [("t", [0, 1])]
    assert name_of(none.error_code) == "TRANSACTIONAL_ID_NOT_FOUND"
    end(client, producer)
    found, _ = client.ask(asked, 0).transaction_states
    assert (found.transaction_state, found.topics) == ("CompleteCommit", [])


def test_transactions_are_listed(broker, client):
    _, producer = init(client)
    add(client, producer, ("t", 0))
    init(client, transactional_id="y")

    def listed(version=0, **fields):
        answer = client.ask(ListTransactionsRequest(**fields), version)
        return [each.transactional_id for each in answer.transaction_states]

    assert listed() == ["x", "y"]
    assert listed(state_filters=["Ongoing"]) == ["x"]
    assert listed(state_filters=["Dead"]) == []
    assert listed(state_filters=["Odd"]) == []
    assert listed(producer_id_filters=[producer.producer_id]) == ["x"]
    answer = client.ask(ListTransactionsRequest(state_filters=["Ongoing", "Odd"]), 0)
    assert answer.unknown_state_filters == ["Odd"]
    broker.clock.advance(ms=500)
    assert listed(1, duration_filter=400, state_filters=["Ongoing"]) == ["x"]
    assert listed(1, duration_filter=500, state_filters=["Ongoing"]) == []
    init(client, transactional_id="xy")
    patterns = (None, ["x", "xy", "y"]), ("", ["x", "xy", "y"]), ("x.*", ["x", "xy"]), ("x", ["x"])
    for pattern, found in patterns:
        assert sorted(listed(2, transactional_id_pattern=pattern)) == found
    answer = client.ask(ListTransactionsRequest(transactional_id_pattern="x("), 2)
    assert name_of(answer.error_code) == "INVALID_REGULAR_EXPRESSION"
    assert answer.transaction_states == []


def test_a_marker_of_no_producer_is_refused(broker, client):
    """Other markers of the request are written."""
    kind = WriteTxnMarkersRequest
    topic = kind.WritableTxnMarkerTopic(name="t", partition_indexes=[0])
    markers = [
        kind.WritableTxnMarker(
            producer_id=producer_id, producer_epoch=epoch, transaction_result=True, topics=[topic]
        )
        for producer_id, epoch in ((1, -1), (-1, 0), (2, 0))
    ]
    answer = client.ask(kind(markers=markers), 1)
    assert [
        (each.producer_id, name_of(each.topics[0].partitions[0].error_code))
        for each in answer.markers
    ] == [(1, "UNKNOWN_SERVER_ERROR"), (-1, "UNKNOWN_SERVER_ERROR"), (2, "NONE")]
    assert broker.log("t").log_end_offset == 1
