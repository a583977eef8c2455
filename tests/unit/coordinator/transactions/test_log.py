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


class OwnEpochs(CoordinatorHost):
    """A host that coordinates some partitions, each in its own epoch."""

    def __init__(self, manager):
        super().__init__(manager)
        self.owned_partitions = {}

    def owned(self, name):
        assert name == TRANSACTION_STATE_TOPIC
        return self.owned_partitions


def test_only_partitions_of_a_new_epoch_are_read_again(caplog):
    """The contents of the others remain, and the contents of lost partitions are dropped."""
    bench = Bench(state_partitions=6)
    bench.coordinator.partition_for("id-0")
    host = OwnEpochs(bench.broker.manager)
    log = TransactionLog(host, bench.coordinator.config)
    named = {}
    for each in range(200):
        named.setdefault(log.partition_of(f"id-{each}"), []).append(f"id-{each}")
    assert len(named) == 6
    for number in range(6):
        good, bad, *_ = named[number]
        append(bench.log(TRANSACTION_STATE_TOPIC, number), good, value_of(good, number, at_ms=1))
        append(bench.log(TRANSACTION_STATE_TOPIC, number), bad, b"\0\0 damaged")
    for number in (4, 5):
        bench.log(TRANSACTION_STATE_TOPIC, number).writer.append_records([NewRecord(b"\0", b"v")])

    def contents(stored):
        ids = {each: {} for each in range(6)}
        for kind in ("by_id", "damaged"):
            for transactional_id in getattr(stored, kind):
                ids[log.partition_of(transactional_id)].setdefault(kind, []).append(
                    transactional_id
                )
        return {
            number: (*found.get("by_id", ()), *found.get("damaged", ()))
            for number, found in ids.items()
            if found
        }, sorted(stored.unreadable)

    def pair(number):
        return tuple(named[number][:2])

    host.owned_partitions = {0: 5, 1: 6, 2: 0, 4: 1}
    first = log.read()
    assert contents(first) == ({0: pair(0), 1: pair(1), 2: pair(2)}, [4])
    assert first.epochs is host.owned_partitions
    # Partitions 0 and 4 are not read again, because their epochs have not changed.
    for number in (0, 1):
        good = named[number][0]
        append(bench.log(TRANSACTION_STATE_TOPIC, number), good, value_of(good, 70, at_ms=2))
    host.owned_partitions = {0: 5, 1: 7, 3: 0, 4: 1, 5: 0}
    second = log.read(first)
    assert contents(second) == ({0: pair(0), 1: pair(1), 3: pair(3)}, [4, 5])
    assert second.unreadable[4] is first.unreadable[4]
    ids = [second.by_id[named[number][0]].producer_id for number in (0, 1, 3)]
    assert ids == [0, 70, 3]
    assert contents(first) == ({0: pair(0), 1: pair(1), 2: pair(2)}, [4]), "it is not modified"
    assert [each for each in caplog.messages if "partition" not in each][-1].startswith(
        f"{TRANSACTION_STATE_TOPIC}-5 cannot be read: "
    )
    bench.broker.close()
