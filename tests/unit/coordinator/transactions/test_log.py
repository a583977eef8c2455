"""The history of producer ids in `__transaction_state`."""

from logstore.coordinator.host import CoordinatorHost
from logstore.coordinator.transactions.log import TransactionLog
from logstore.coordinator.transactions.state import (
    TransactionMetadata,
    TransactionState,
    encode_key,
    encode_value,
)
from logstore.names import TRANSACTION_STATE_TOPIC
from logstore.storage.log import NewRecord
from tests.support.world.transactions import Bench

STATES = 3


def append(log, transactional_id, value):
    log.writer.append_records([NewRecord(encode_key(transactional_id), value)])


def value_of(transactional_id, producer_id, *, at_ms):
    return encode_value(
        TransactionMetadata(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=0,
            timeout_ms=60_000,
            state=TransactionState.EMPTY,
            last_update_ms=at_ms,
        )
    )


def history(bench, producer_ids):
    coordinator = bench.coordinator
    found = TransactionLog(CoordinatorHost(bench.broker.manager), coordinator.config).history(
        producer_ids
    )
    return [(each.transactional_id, each.producer_id, each.last_update_ms) for each in found]


def test_all_states_of_the_producer_ids_in_order_also_across_a_deletion_of_the_id(bench):
    bench.transactional("other")
    log = bench.log(TRANSACTION_STATE_TOPIC)
    for at_ms in (1, 2):
        append(log, "x", value_of("x", 70, at_ms=at_ms))
    append(log, "x", None)
    append(log, "x", value_of("x", 71, at_ms=3))
    append(log, "x", value_of("x", 70, at_ms=4))
    assert history(bench, {70}) == [("x", 70, 1), ("x", 70, 2), ("x", 70, 4)]
    assert history(bench, {71}) == [("x", 71, 3)]
    assert history(bench, {72}) == []


def test_only_ids_with_a_damaged_state_are_omitted(bench):
    bench.transactional("other")
    log = bench.log(TRANSACTION_STATE_TOPIC)
    append(log, "x", value_of("x", 70, at_ms=1))
    append(log, "x", b"\0\0 damaged")
    append(log, "x", value_of("x", 70, at_ms=2))
    append(log, "y", value_of("y", 71, at_ms=3))
    assert history(bench, {70, 71}) == [("y", 71, 3)]


def test_a_partition_that_cannot_be_read_hides_no_other():
    bench = Bench(state_partitions=STATES)
    bench.transactional("other")
    stored = TransactionLog(CoordinatorHost(bench.broker.manager), bench.coordinator.config)
    ids = {stored.partition_of(f"id-{number}"): f"id-{number}" for number in range(30)}
    assert len(ids) == STATES
    for number, transactional_id in ids.items():
        log = bench.log(TRANSACTION_STATE_TOPIC, number)
        append(log, transactional_id, value_of(transactional_id, 70, at_ms=number))
    bench.log(TRANSACTION_STATE_TOPIC, 0).writer.append_records([NewRecord(b"\0", b"v")])
    assert history(bench, {70}) == [(ids[1], 70, 1), (ids[2], 70, 2)]
    assert set(stored.read().unreadable) == {0}
    bench.broker.close()
